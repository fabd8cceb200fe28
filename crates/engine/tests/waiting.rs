//! What an engine promises to those that wait: nobody is held up by who holds what they wait for,
//! and any number of them leaves as it came.

mod support;

use isometry_engine::{ChannelConfig, EngineConfig, PoolConfig};
use isometry_engine::{Dependency, Engine, Fifo, Transfer, Wait};
use model::{FenceId, Outcome, Priority, Request, Time, TransferId};
use std::sync::Arc;
use support::{channel, done, engine, memory, region, requests, run, run_program, transfer};

const NOW: Time = Time(7);
/// The alignment of staging: the least that a ring takes of a pool.
const RING_BYTES: u64 = 4096;

fn urgent(priority: i32, hops: usize) -> Transfer {
    let program = run_program(64, hops, 8, RING_BYTES);
    Transfer { priority: Priority(priority), ..transfer(&program) }
}

/// Ends everything that is out, and returns whose request comes next on the first channel.
fn next(engine: &mut Engine, out: &mut Vec<Request>) -> Option<TransferId> {
    out.drain(..).for_each(|request| engine.handle_completion(NOW, done(&request)));
    *out = requests(engine);
    out.iter().find(|request| request.channel == channel(0)).map(|request| request.transfer)
}

#[test]
fn who_holds_staging_is_served_as_urgently_as_who_waits_for_it() {
    let mut engine = engine(2, 1, RING_BYTES);
    let mut out = Vec::new();
    let low = engine.submit(NOW, urgent(0, 2)).unwrap();
    let middle = engine.submit(NOW, urgent(5, 1)).unwrap();
    assert_eq!(next(&mut engine, &mut out), Some(middle));
    let first = engine.submit(NOW, urgent(9, 2)).unwrap();
    assert_eq!(next(&mut engine, &mut out), Some(low));
    let above = engine.submit(NOW, urgent(9, 1)).unwrap();
    assert_eq!(next(&mut engine, &mut out), Some(low), "as the older of the two urgent ones");
    engine.cancel(NOW, first);
    assert_eq!(next(&mut engine, &mut out), Some(above), "nobody urgent waits any more");
    engine.cancel(NOW, above);
    assert_eq!(next(&mut engine, &mut out), Some(middle));
    let second = engine.submit(NOW, urgent(7, 2)).unwrap();
    let mut order = Vec::new();
    while !engine.is_idle() {
        order.extend(next(&mut engine, &mut out));
        while engine.poll_event().is_some() {}
    }
    let last = |id| order.iter().rposition(|served| *served == id);
    assert!(last(low) < last(second) && last(second) < last(middle), "{order:?}");
}

#[test]
fn under_fifo_nobody_is_raised() {
    let config = ChannelConfig { policy: Arc::new(Fifo), ..ChannelConfig::new(channel(0), 1) };
    let pool = PoolConfig {
        memory: memory(1),
        region: region(1),
        capacity_bytes: RING_BYTES,
        reserve_bytes: 0,
    };
    let other = ChannelConfig::new(channel(1), 1);
    let mut engine = Engine::new(EngineConfig::new(vec![config, other], vec![pool]));
    let middle = engine.submit(NOW, urgent(5, 1)).unwrap();
    engine.submit(NOW, urgent(0, 2)).unwrap();
    engine.submit(NOW, urgent(9, 2)).unwrap();
    let mut out = Vec::new();
    for _ in 0..8 {
        assert_eq!(next(&mut engine, &mut out), Some(middle));
    }
}

#[test]
fn what_is_waited_for_twice_is_done_once() {
    let mut engine = engine(1, 1, 0);
    let first = engine.submit(NOW, urgent(0, 1)).unwrap();
    let fence = Dependency::Fence(FenceId(1));
    let after = vec![Dependency::Transfer(first), fence, fence, Dependency::Transfer(first)];
    let second = engine.submit(NOW, Transfer { after, ..urgent(0, 1) }).unwrap();
    assert_eq!(engine.waits(second).len(), 4);
    run(&mut engine, NOW);
    assert_eq!(engine.progress(second), Some((0, 64)));
    assert_eq!(engine.waits(second), [Wait::Other(fence), Wait::Other(fence)]);
    engine.handle_fence(NOW, FenceId(1), Ok(()));
    run(&mut engine, NOW);
    assert_eq!(engine.progress(second), Some((64, 64)));
}

/// A test that takes minutes where leaving takes as long as the queue.
#[test]
fn a_hundred_thousand_that_wait_leave_one_by_one() {
    const MANY: usize = 100_000;
    let mut engine = engine(2, 1, RING_BYTES);
    let holds = engine.submit(NOW, urgent(0, 2)).unwrap();
    let (direct, staged) = (urgent(0, 1), urgent(0, 2));
    let after = vec![Dependency::Transfer(holds), Dependency::Fence(FenceId(0))];
    let dependent = Transfer { after, ..urgent(0, 1) };
    let mut waiting = Vec::new();
    for like in [direct, staged, dependent] {
        waiting.extend((0..MANY).map(|_| engine.submit(NOW, like.clone()).unwrap()));
    }
    let mut ended = 0;
    for id in waiting {
        assert!(engine.cancel(NOW, id));
        ended += std::iter::from_fn(|| engine.poll_event())
            .filter(|event| event.outcome == Outcome::Cancelled)
            .count();
        engine.forget(id);
    }
    assert_eq!(ended, 3 * MANY);
    run(&mut engine, NOW);
    assert_eq!(engine.progress(holds), Some((64, 64)));
}

#[test]
fn what_is_under_way_is_told_until_it_ends() {
    let mut engine = engine(2, 1, RING_BYTES);
    assert_eq!(engine.underway(), []);
    let first = engine.submit(NOW, urgent(3, 2)).unwrap();
    let second = engine.submit(NOW, urgent(5, 2)).unwrap();
    let ids = |engine: &Engine| engine.underway().iter().map(|u| u.id).collect::<Vec<_>>();
    assert_eq!(ids(&engine), [first, second]);
    let [one, two] = <[_; 2]>::try_from(engine.underway()).unwrap();
    assert_eq!((one.priority, two.priority), (Priority(3), Priority(5)));
    assert_eq!((one.progress, one.memories.len()), (engine.progress(first).unwrap(), 3));
    assert_eq!(two.waits, engine.waits(second));
    assert!(matches!(two.waits[..], [Wait::Staging { .. }]), "{:?}", two.waits);
    let mut out = Vec::new();
    engine.cancel(NOW, second);
    assert_eq!(ids(&engine), [first], "it has ended, and is not forgotten");
    while !engine.is_idle() {
        next(&mut engine, &mut out);
        while engine.poll_event().is_some() {}
    }
    assert_eq!(engine.underway(), []);
}
