//! Nodes that come and go, and leave nothing behind at one that stays. Alone in its process, whose
//! descriptors and threads are counted.

use isometry::fabric::{Config, Job};
use isometry::{Array, CopyOptions, Machine, MachineBuilder};
use std::time::{Duration, Instant};
use std::{fs, thread};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// How many come and go.
const TURNS: u32 = 20;

/// Fewer than one of each: where more threads sleep at once than before, each keeps what it sleeps on.
const SLACK: usize = TURNS as usize / 2;

fn entries(of: &str) -> usize {
    fs::read_dir(format!("/proc/self/{of}")).unwrap().count()
}

fn builder() -> MachineBuilder {
    Machine::builder().assume(true).lanes(1).staging(1 << 20)
}

/// Has a node come under a name that others had before, copy something there and back, and go.
fn come_and_go(root: &str, stays: &Machine) {
    let comes = builder().node_name("guest").join(&Config::later(root, b"key")).unwrap();
    let rows = Array::of(&[("y", 30), ("x", 40)], "<f4").unwrap();
    for (from, to, name) in [(&comes, stays, "guest/own"), (stays, &comes, "node0/own")] {
        let there = from.empty(rows.clone(), "sys").unwrap();
        let _ = from.publish("own", &there);
        let found = to.lookup(name, PATIENCE).unwrap();
        let here = to.empty(rows.clone(), "sys").unwrap();
        to.copy(&found, &here, &CopyOptions::default()).unwrap().wait(PATIENCE).unwrap();
    }
}

#[test]
fn nodes_that_come_and_go_leave_nothing_behind() {
    for job in [Job::new(1).unwrap(), Job::loopback(1).unwrap()] {
        let [(_, root), ..] = job.variables(0);
        let config = Config { capacity: TURNS + 2, ..Config::new(&root, (0, 1), b"key") };
        let stays = builder().join(&config).unwrap();
        come_and_go(&root, &stays);
        let before = ["fd", "task"].map(entries);
        (0..TURNS).for_each(|_| come_and_go(&root, &stays));
        let grown = || [0, 1].map(|of| entries(["fd", "task"][of]).saturating_sub(before[of]));
        // Who tells of a node's end may be about to let go of it, and a thread to end.
        let end = Instant::now() + Duration::from_secs(20);
        while grown().into_iter().max() > Some(SLACK) {
            assert!(Instant::now() < end, "{:?} more descriptors and threads", grown());
            thread::yield_now();
        }
    }
}
