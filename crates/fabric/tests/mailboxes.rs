//! Ranks of one machine that meet by a network, where one can't make the mailbox by which they would be neighbours.

#[allow(dead_code, reason = "ranks here are started with a limit")]
mod common;

use common::{Over, command, ended, is_rank, join_with, new_job};
use isometry_fabric::model::NodeId;
use isometry_fabric::{Call, Handlers, Payload};
use rustix::process::{Resource, getrlimit};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HANDLER: u8 = 128;

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// More than goes with a message between neighbours.
const MANY: usize = 10_000;

/// Runs a program whose files have 32 KiB at most: a segment finds room, a mailbox none.
const LIMITED: &str = r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#;

#[test]
fn who_has_no_mailbox_speaks_by_the_network() {
    let test = "who_has_no_mailbox_speaks_by_the_network";
    if is_rank() {
        return speak();
    }
    // UCX would make such files of its own.
    let over = Over::NearTcp;
    for are_limited in [[true, false], [true, true]] {
        let job = new_job(2, over);
        let start = |(rank, is_limited)| {
            let plain = command(test, over, job.variables(rank));
            let mut command = if is_limited { limited(&plain) } else { plain };
            command.spawn().unwrap()
        };
        let ranks = ended((0..).zip(are_limited).map(start).collect());
        assert!(ranks.iter().all(|it| it.success()), "{are_limited:?}: {ranks:?}");
    }
}

fn limited(plain: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", LIMITED]).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // What it says counts where it goes to a file.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Says something to the other rank, and puts to it, by the network.
fn speak() {
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let hear = move |call: &Call<'_>| {
        let Payload::Bytes(bytes) = call.payload() else { panic!("it has some") };
        hears.fetch_add(bytes.len(), Ordering::Relaxed);
    };
    let handlers = Handlers::new().with(HANDLER, hear);
    let fabric = join_with(handlers, |config| config.segment_bytes = 1 << 12).unwrap();
    let other = NodeId(1 - fabric.rank().0);
    let has_mailbox = fabric.capabilities().medium_bytes < MANY;
    assert_eq!(has_mailbox, getrlimit(Resource::Fsize).current.is_none());
    assert!(!fabric.reaches(other) && fabric.medium_bytes(other) >= MANY);
    fabric.request(other, HANDLER, &[], &[7; MANY]).unwrap();
    fabric.wait_until(LONG, || heard.load(Ordering::Relaxed) == MANY).unwrap();
    fabric.put(other, 40, &[8; 100]).unwrap();
    fabric.barrier().unwrap();
    let mut there = [0; 100];
    fabric.segment().read(40, &mut there).unwrap();
    assert_eq!(there, [8; 100]);
    fabric.barrier().unwrap();
}
