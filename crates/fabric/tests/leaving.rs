//! Ranks that leave, and live on.

#[allow(dead_code, reason = "ranks here are no processes")]
mod common;

use common::{Over, together, ways};
use isometry_fabric::model::NodeId;
use isometry_fabric::{Error, Fabric, Handlers, Lost, strided};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HANDLER: u8 = 128;

/// One that nobody calls.
const FORGED: u8 = 200;

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn is_lost(error: &Error, rank: u32) -> bool {
    matches!(error, Error::PeerLost { peer, why: Lost::Left } if peer.0 == rank)
}

/// Counts the calls of a handler.
fn counting(handler: u8) -> (Arc<AtomicU32>, Handlers) {
    let count = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&count);
    (count, Handlers::new().with(handler, move |_| _ = counts.fetch_add(1, Ordering::Relaxed)))
}

/// Two ranks that meet by TCP; all room of the second's stream to the first is taken, so that it
/// leaves in the middle of a message.
fn with_no_room() -> Vec<Fabric> {
    let both = together(Over::Tcp, vec![Handlers::new(), Handlers::new()]);
    let message = vec![7; 60 << 10];
    while both[1].try_request(NodeId(0), HANDLER, &[], &message).unwrap() {}
    both
}

#[test]
fn who_leaves_is_lost_to_others_and_they_to_it() {
    let is_real = |over: &Over| !matches!(over, Over::Messages);
    let ways = ways("who_leaves_is_lost_to_others_and_they_to_it");
    ways.into_iter().filter(is_real).for_each(leaves);
}

fn leaves(over: Over) {
    let (count, handlers) = counting(HANDLER);
    let both = together(over, vec![handlers, Handlers::new()]);
    let [first, second] = &both[..] else { unreachable!("there are two") };
    for _ in 0..100 {
        second.request(NodeId(0), HANDLER, &[], &[]).unwrap();
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(|| second.barrier().unwrap_err());
        second.leave().unwrap();
        assert!(is_lost(&waiting.join().unwrap(), 0));
    });
    first.wait_until(LONG, || first.lost(NodeId(1)) == Some(Lost::Left)).unwrap();
    first.wait_until(LONG, || count.load(Ordering::Relaxed) == 100).unwrap();
    for (fabric, other) in [(first, 1), (second, 0)] {
        for error in [
            fabric.put(NodeId(other), 0, &[]).unwrap_err(),
            fabric.get(NodeId(other), 0, &mut []).unwrap_err(),
            fabric.request(NodeId(other), HANDLER, &[], &[]).unwrap_err(),
        ] {
            assert!(is_lost(&error, other), "{error}");
        }
    }
    second.leave().unwrap();
}

#[test]
fn a_handler_does_not_leave() {
    let (count, handlers) = counting(HANDLER + 1);
    let leaving = Handlers::new().with(HANDLER, |call| {
        assert!(matches!(call.fabric().leave(), Err(Error::InHandler { .. })));
        call.reply(HANDLER + 1, &[], &[]).unwrap();
    });
    let both = together(Over::Tcp, vec![handlers, leaving]);
    both[0].request(NodeId(1), HANDLER, &[], &[]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| both[1].barrier());
        both[0].wait_until(LONG, || count.load(Ordering::Relaxed) == 1).unwrap();
        both[0].barrier().unwrap();
    });
}

#[test]
fn who_has_no_room_for_a_while_hears_of_leaving_all_the_same() {
    let both = with_no_room();
    both[1].leave().unwrap();
    both[0].wait_until(LONG, || both[0].lost(NodeId(1)).is_some()).unwrap();
}

#[test]
fn who_has_left_sleeps() {
    let both = with_no_room();
    both[1].leave().unwrap();
    let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (before, waited) = (spent(), Duration::from_millis(500));
    assert!(matches!(both[1].wait_until(Some(waited), || false), Err(Error::Timeout { .. })));
    let spent = spent() - before;
    assert!(spent < waited / 5, "{spent:?} of the processor in {waited:?}");
}

/// Another thread of it reads, in the middle of a put, whose bytes look like messages.
#[test]
fn who_has_left_takes_nothing_for_what_it_is_not() {
    let (forged, handlers) = counting(FORGED);
    let both = together(Over::Tcp, vec![Handlers::new(), handlers]);
    let word = 1_u64 | u64::from(FORGED) << 8;
    let bytes: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), 128 << 10).flatten().collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while both[0].put_nb(NodeId(1), 0, &bytes).is_ok() {}
            is_over.store(true, Ordering::Release);
        });
        scope.spawn(|| both[1].wait_until(LONG, || is_over.load(Ordering::Acquire)));
        while both[1].segment().word(0).unwrap().load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        both[1].leave().unwrap();
        while !is_over.load(Ordering::Acquire) {
            thread::yield_now();
        }
        both[1].wake();
    });
    assert_eq!(forged.load(Ordering::Relaxed), 0);
}

/// In messages that are written several at once, and find no room.
#[test]
fn who_puts_strided_to_one_that_leaves_meanwhile_is_told_so() {
    let both = together(Over::Tcp, vec![Handlers::new(), Handlers::new()]);
    let src = vec![7; 1 << 20];
    let copies = vec![strided(&[8, 1 << 16], &[16], &[16]); 100];
    thread::scope(|scope| {
        let put = || both[0].put_copies(NodeId(1), &copies, (&src, 0), 0).map(drop);
        let putting = scope.spawn(put);
        while both[1].segment().word(0).unwrap().load(Ordering::Relaxed) == 0 {
            both[1].poll();
        }
        both[1].leave().unwrap();
        let error = putting.join().unwrap().unwrap_err();
        assert!(is_lost(&error, 1), "{error}");
    });
    both[0].put_copies(NodeId(0), &copies[..1], (&src, 0), 0).unwrap().wait(LONG).unwrap();
}
