//! Many ranks that come and go, each of which leaves nothing behind at the others. Ranks of a process of
//! their own, whose descriptors, threads and memory are counted.

use crate::common::{Over, ended, is_rank, new_job, start_one};
use crate::place::{ASK, END, Place, Rank};
use isometry_fabric::{Lost, ROOT};
use rustix::param::page_size;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// How many come and go.
const TURNS: u32 = 200;

/// Fewer than one of each: where more threads sleep at once than before, each keeps what it sleeps on.
const SLACK: usize = TURNS as usize / 2;

/// How many have come and gone once all has been used that is kept.
const WARM: u32 = 20;

/// More than what is kept of so many ranks for good.
const SLACK_BYTES: usize = 8 << 20;

fn entries(of: &str) -> usize {
    fs::read_dir(format!("/proc/self/{of}")).unwrap().count()
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page_size()
}

/// Has one rank come, speak to all that are there, and go, by leaving or by being dropped.
fn come_and_go(place: &Place, there: &[Rank], turn: u32) {
    let rank = place.later().unwrap();
    for peer in there {
        rank.request(peer.rank(), ASK, &[], &[7; 900]).unwrap();
        peer.request(rank.rank(), END, &[], &[7; 900]).unwrap();
    }
    let answers = || rank.answers.load(SeqCst) as usize;
    let is_answered = || {
        there.iter().for_each(|peer| _ = peer.poll());
        answers() == there.len()
    };
    while !is_answered() {
        rank.poll();
    }
    if turn.is_multiple_of(2) {
        rank.leave().unwrap();
    }
    let number = rank.rank();
    drop(rank);
    assert!(there.iter().all(|peer| peer.until_lost(number) == Lost::Left));
}

#[test]
fn ranks_that_come_and_go_leave_nothing_behind() {
    let test = "turnover::ranks_that_come_and_go_leave_nothing_behind";
    if !is_rank() {
        for over in [Over::Shm, Over::Tcp, Over::NearTcp] {
            let variables = new_job(1, over).variables(0);
            let statuses = ended(vec![start_one(test, over, variables)]);
            assert!(statuses[0].success(), "over {over:?}: {}", statuses[0]);
        }
        return;
    }
    let root = std::env::var(ROOT).unwrap();
    let over = if root.starts_with("local:") { Over::Shm } else { Over::Tcp };
    let place = Place { over, root, capacity: TURNS + 2 };
    let there = place.founders(2);
    let before = ["fd", "task"].map(entries);
    let mut held = 0;
    for turn in 0..TURNS {
        if turn == WARM {
            held = resident_bytes();
        }
        come_and_go(&place, &there, turn);
    }
    let more = || [0, 1].map(|of| entries(["fd", "task"][of]).saturating_sub(before[of]));
    // Who tells of a rank's end may be about to let go of it, and a thread to end.
    let end = Instant::now() + Duration::from_secs(20);
    while more().into_iter().max() > Some(SLACK) {
        assert!(Instant::now() < end, "{:?} more descriptors and threads", more());
        thread::yield_now();
    }
    let grown = resident_bytes().saturating_sub(held);
    assert!(grown < SLACK_BYTES, "{grown} B more after {TURNS} ranks");
}
