//! What an engine promises about order, ends and time.

mod support;

use isometry_engine::{
    ChannelConfig, Commit, Dependency, Engine, EngineConfig, FairShare, Fifo, PoolConfig, Program,
    State, SubmitError, Transfer, TransferEvent,
};
use layout::Placement;
use model::{
    ChannelError, ChannelErrorKind, ChannelKind, Completion, Component, FenceId, FieldSpace,
    IndexSpace, Layout, Outcome, Priority, Request, Selection, Span, Time, TransferError,
    TransferId, Work,
};
use std::sync::Arc;
use std::time::Duration;
use support::{
    broken, channel, done, engine, failed, memory, place, plan, region, requests, row, run,
    run_program, transfer,
};

const NOW: Time = Time(7);

fn outcome(engine: &mut Engine, id: TransferId) -> Option<Outcome> {
    let event = engine.poll_event()?;
    assert_eq!(event.transfer, id);
    Some(event.outcome)
}

#[test]
fn a_transfer_without_payload_ends_at_once() {
    let mut engine = engine(2, 1, 0);
    let id = engine.submit(NOW, transfer(&run_program(0, 1, 4, 0))).unwrap();
    assert_eq!(outcome(&mut engine, id), Some(Outcome::Done));
    assert_eq!(engine.progress(id), Some((0, 0)));
    let commit = Some(Commit { sync: true });
    let id = engine.submit(NOW, Transfer { commit, ..transfer(&run_program(0, 2, 4, 4)) });
    assert_eq!(engine.poll_event(), None);
    let last = run(&mut engine, NOW);
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].work, Work::Commit { region: region(101), sync: true });
    assert_eq!(last[0].channel, channel(1));
    assert_eq!(outcome(&mut engine, id.unwrap()), Some(Outcome::Done));
}

#[test]
fn only_the_last_hop_says_what_the_transfer_brings() {
    let mut engine = engine(2, 1, 64);
    engine.submit(NOW, transfer(&run_program(40, 2, 8, 16))).unwrap();
    let mut hops = [0; 2];
    for request in run(&mut engine, NOW) {
        let Work::Copy(work) = &request.work else { panic!("{request:?}") };
        hops[usize::from(request.hop)] += work.payload_bytes;
        assert_eq!(work.result_bytes, [0, 40][usize::from(request.hop)]);
    }
    assert_eq!(hops, [40, 40]);
}

#[test]
fn requests_keep_their_order_and_the_bound_in_flight() {
    let mut engine = engine(1, 3, 0);
    let id = engine.submit(NOW, transfer(&run_program(40, 1, 8, 0))).unwrap();
    let mut out = requests(&mut engine);
    assert_eq!((out.len(), engine.in_flight(channel(0))), (3, 3));
    engine.handle_completion(NOW, done(&out[2]));
    assert_eq!(engine.progress(id), Some((8, 40)));
    out.extend(requests(&mut engine));
    assert_eq!(out.len(), 4);
    for request in &out[..2] {
        engine.handle_completion(NOW, done(request));
    }
    out.extend(requests(&mut engine));
    engine.handle_completion(NOW, done(&out[3]));
    let starts: Vec<u64> = out.iter().map(source_offset).collect();
    assert_eq!(starts, [0, 8, 16, 24, 32]);
    assert_eq!(engine.poll_event(), None);
    engine.handle_completion(NOW, done(&out[4]));
    engine.handle_completion(NOW, done(&out[4]));
    assert_eq!(outcome(&mut engine, id), Some(Outcome::Done));
}

fn source_offset(request: &Request) -> u64 {
    match &request.work {
        Work::Copy(work) => work.src.offset,
        _ => u64::MAX,
    }
}

#[test]
fn equal_requests_share_one_list() {
    let mut engine = engine(1, 9, 0);
    let program = run_program(1 << 20, 1, 4096, 0);
    engine.submit(NOW, transfer(&program)).unwrap();
    let lists: Vec<_> = requests(&mut engine)
        .into_iter()
        .map(|request| match request.work {
            Work::Copy(work) => work.list,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lists.len(), 9);
    assert!(lists.windows(2).all(|pair| Arc::ptr_eq(&pair[0], &pair[1])));
}

/// Rounds until `id` ends, when each round ends all that is in flight.
fn rounds_until(engine: &mut Engine, id: TransferId) -> u32 {
    for round in 0.. {
        if matches!(engine.state(id), Some(State::Ended(_))) {
            return round;
        }
        for request in requests(engine) {
            engine.handle_completion(NOW, done(&request));
        }
    }
    unreachable!()
}

#[test]
fn an_urgent_transfer_is_served_from_the_next_request_on_at_every_hop() {
    let program = run_program(64, 3, 8, 32);
    let mut alone = engine(3, 1, 1 << 20);
    let id = alone.submit(NOW, transfer(&program)).unwrap();
    let solo = rounds_until(&mut alone, id);
    for head_start in 0..10 {
        let mut loaded = engine(3, 1, 1 << 20);
        for _ in 0..4 {
            loaded.submit(NOW, transfer(&program)).unwrap();
        }
        for _ in 0..head_start {
            let out = requests(&mut loaded);
            out.iter().for_each(|request| loaded.handle_completion(NOW, done(request)));
        }
        let out = requests(&mut loaded);
        let priority = Priority(1);
        let urgent = loaded.submit(NOW, Transfer { priority, ..transfer(&program) }).unwrap();
        assert_eq!(loaded.next_priority(channel(0)), Some(priority));
        out.iter().for_each(|request| loaded.handle_completion(NOW, done(request)));
        assert!(rounds_until(&mut loaded, urgent) <= solo, "only what is in flight holds it up");
    }
}

#[test]
fn fair_share_gives_equal_bytes_and_ageing_one_in_twenty() {
    let fair = ChannelConfig { policy: Arc::new(FairShare), ..ChannelConfig::new(channel(0), 1) };
    let urgent_bytes = |config: EngineConfig, count: u64| {
        let mut engine = Engine::new(config);
        let (small, large) = (run_program(1 << 20, 1, 8, 0), run_program(1 << 20, 1, 32, 0));
        engine.submit(NOW, transfer(&small)).unwrap();
        let priority = Priority(1);
        let urgent = engine.submit(NOW, Transfer { priority, ..transfer(&large) }).unwrap();
        let (mut bytes, mut all) = (0, 0);
        for round in 0..count {
            let request = engine.poll_request().unwrap();
            let Work::Copy(work) = &request.work else { panic!("{request:?}") };
            all += work.payload_bytes;
            bytes += if request.transfer == urgent { work.payload_bytes } else { 0 };
            engine.handle_completion(Time(10 * round), done(&request));
        }
        (bytes, all)
    };
    let (bytes, all) = urgent_bytes(EngineConfig::new(vec![fair], Vec::new()), 500);
    assert_eq!(bytes * 2, all);
    let channels = vec![ChannelConfig::new(channel(0), 1)];
    let config = EngineConfig::new(channels, Vec::new());
    assert_eq!(urgent_bytes(config.clone(), 500), (500 * 32, 500 * 32));
    let ageing = Some(Duration::from_nanos(5));
    let (bytes, all) = urgent_bytes(EngineConfig { ageing, ..config }, 600);
    let aged = all - bytes;
    assert!(aged * 20 <= all && aged * 25 > all, "{aged} of {all}");
}

#[test]
fn a_channel_under_fifo_ignores_priority() {
    let fifo = ChannelConfig { policy: Arc::new(Fifo), ..ChannelConfig::new(channel(0), 1) };
    let mut engine = Engine::new(EngineConfig::new(vec![fifo], Vec::new()));
    let program = run_program(32, 1, 8, 0);
    let first = engine.submit(NOW, transfer(&program)).unwrap();
    let priority = Priority(9);
    engine.submit(NOW, Transfer { priority, ..transfer(&program) }).unwrap();
    let order = run(&mut engine, NOW);
    assert!(order[..4].iter().all(|r| r.transfer == first));
    assert_eq!(order.len(), 8);
}

#[test]
fn a_transfer_starts_when_all_it_waits_for_is_done() {
    let mut engine = engine(1, 8, 0);
    let program = run_program(8, 1, 8, 0);
    let first = engine.submit(NOW, transfer(&program)).unwrap();
    let fence = FenceId(3);
    let after = vec![Dependency::Transfer(first), Dependency::Fence(fence)];
    let second = engine.submit(NOW, Transfer { after, ..transfer(&program) }).unwrap();
    assert_eq!(engine.state(second), Some(State::WaitingForOthers));
    assert_eq!(run(&mut engine, NOW).len(), 1);
    assert_eq!(engine.state(second), Some(State::WaitingForOthers));
    engine.handle_fence(Time(20), fence, Ok(()));
    assert_eq!(run(&mut engine, Time(30)).len(), 1);
    assert_eq!(outcome(&mut engine, first), Some(Outcome::Done));
    assert_eq!(outcome(&mut engine, second), Some(Outcome::Done));
    let report = engine.report(second).unwrap();
    assert_eq!(report.waiting_for_others, Duration::from_nanos(13));
    assert_eq!(report.running, Duration::from_nanos(10));
    let after = vec![Dependency::Transfer(first)];
    let third = engine.submit(NOW, Transfer { after, ..transfer(&program) }).unwrap();
    assert_eq!(engine.state(third), Some(State::Running));
}

#[test]
fn what_waits_for_a_failure_fails_with_its_cause() {
    let mut engine = engine(1, 8, 0);
    let program = run_program(8, 1, 8, 0);
    let mut last = engine.submit(NOW, transfer(&program)).unwrap();
    for _ in 0..5000 {
        let after = vec![Dependency::Transfer(last)];
        last = engine.submit(NOW, Transfer { after, ..transfer(&program) }).unwrap();
    }
    let request = engine.poll_request().unwrap();
    engine.handle_completion(NOW, failed(&request));
    let events: Vec<TransferEvent> = std::iter::from_fn(|| engine.poll_event()).collect();
    assert_eq!(events.len(), 5001);
    let Outcome::Failed(error) = &events[5000].outcome else { panic!("{:?}", events[5000]) };
    assert_eq!(error.cause.kind, ChannelErrorKind::Dependency);
    assert_eq!(
        error.cause.detail,
        "a transfer that it waited for did not succeed: hop 0 failed: broken"
    );
    assert!(engine.is_idle());
    let after = vec![Dependency::Transfer(last)];
    let late = engine.submit(NOW, Transfer { after, ..transfer(&program) }).unwrap();
    assert!(matches!(outcome(&mut engine, late), Some(Outcome::Failed(_))));
}

#[test]
fn what_waits_for_a_failed_fence_or_a_cancelled_transfer_fails() {
    let mut engine = engine(1, 8, 0);
    let program = run_program(8, 1, 8, 0);
    let fence = vec![Dependency::Fence(FenceId(1))];
    let first =
        engine.submit(NOW, Transfer { after: fence.clone(), ..transfer(&program) }).unwrap();
    engine.handle_fence(NOW, FenceId(1), Err(broken()));
    let Some(Outcome::Failed(error)) = outcome(&mut engine, first) else { panic!() };
    assert_eq!(error.cause.kind, ChannelErrorKind::Dependency);
    let second = engine.submit(NOW, Transfer { after: fence, ..transfer(&program) }).unwrap();
    let after = vec![Dependency::Transfer(second)];
    let third = engine.submit(NOW, Transfer { after, ..transfer(&program) }).unwrap();
    assert!(engine.cancel(NOW, second));
    assert_eq!(outcome(&mut engine, second), Some(Outcome::Cancelled));
    assert!(matches!(outcome(&mut engine, third), Some(Outcome::Failed(_))));
    engine.handle_fence(NOW, FenceId(1), Ok(()));
    assert!(engine.is_idle());
    assert_eq!(requests(&mut engine), []);
}

/// Stops a transfer of three hops after each number of completions: with the rings empty, full
/// and wrapped on the way. What is in flight ends well in its order, or badly in the other.
fn stops_cleanly(stop: impl Fn(&mut Engine, TransferId, &mut Vec<Request>) -> Outcome) {
    let program = run_program(96, 3, 8, 16);
    for (completions, backwards) in (0..35).flat_map(|n| [(n, false), (n, true)]) {
        let mut engine = engine(3, 2, 1 << 16);
        let (commit, deadline) = (Some(Commit { sync: false }), Some(Time(50)));
        let asked = Transfer { commit, deadline, ..transfer(&program) };
        let id = engine.submit(NOW, asked).unwrap();
        let mut out = requests(&mut engine);
        for _ in 0..completions {
            engine.handle_completion(NOW, done(&out.remove(0)));
            out.extend(requests(&mut engine));
        }
        let expected = stop(&mut engine, id, &mut out);
        drain(&mut engine, out, backwards);
        let abort = engine.poll_request().unwrap();
        assert_eq!((abort.hop, abort.work.clone()), (2, Work::Abort { region: region(101) }));
        assert_eq!((engine.poll_request(), engine.poll_event()), (None, None));
        engine.handle_completion(NOW, failed(&abort));
        assert_eq!(outcome(&mut engine, id), Some(expected));
        assert!(engine.is_idle());
        assert_eq!(engine.poll_timeout(), None);
    }
}

fn drain(engine: &mut Engine, mut out: Vec<Request>, backwards: bool) {
    if backwards {
        out.reverse();
    }
    for request in out {
        assert_eq!((engine.poll_request(), engine.poll_event()), (None, None));
        assert_ne!(engine.staging(memory(1)).unwrap().0, 0, "released before it drained");
        let completion = if backwards { failed(&request) } else { done(&request) };
        engine.handle_completion(NOW, completion);
    }
    for pool in 1..3 {
        assert_eq!(engine.staging(memory(pool)).unwrap().0, 0);
    }
}

#[test]
fn a_cancelled_transfer_ends_when_all_in_flight_has_drained() {
    stops_cleanly(|engine, id, _| {
        assert!(engine.cancel(NOW, id));
        assert!(!engine.cancel(NOW, id));
        Outcome::Cancelled
    });
}

#[test]
fn a_deadline_ends_a_transfer_likewise() {
    stops_cleanly(|engine, _, _| {
        assert_eq!(engine.poll_timeout(), Some(Time(50)));
        engine.handle_timeout(Time(49));
        assert_eq!(engine.poll_timeout(), Some(Time(50)));
        engine.handle_timeout(Time(50));
        Outcome::TimedOut
    });
}

#[test]
fn a_channel_error_ends_a_transfer_likewise() {
    for from_the_back in [false, true] {
        stops_cleanly(|engine, _, out| {
            let request = if from_the_back { out.pop().unwrap() } else { out.remove(0) };
            engine.handle_completion(NOW, failed(&request));
            let hop = usize::from(request.hop);
            let memory = memory(request.hop + 1);
            Outcome::Failed(TransferError { hop, memory, cause: broken() })
        });
    }
}

#[test]
fn a_failure_names_the_memory_that_it_is_about() {
    use ChannelErrorKind::{Io, NoSpace, ShortRead};
    use ChannelKind::{DiskRead, DiskWrite};
    let (layout, part) = row(8);
    for (kind, cause, blamed) in
        [(DiskRead, Io, 0), (DiskRead, NoSpace, 1), (DiskWrite, Io, 1), (DiskWrite, ShortRead, 0)]
    {
        let mut plan = plan(vec![layout.clone(); 2], &[8], &[], 1);
        (plan.phase, plan.hops[0].kind) = (vec![0], kind);
        let program = Program::compile(&plan, part.clone(), part.clone()).unwrap();
        let mut engine = engine(1, 1, 0);
        let id = engine.submit(NOW, transfer(&Arc::new(program))).unwrap();
        let request = engine.poll_request().unwrap().id;
        let cause = ChannelError::new(cause, "broken");
        engine.handle_completion(NOW, Completion { request, result: Err(cause.clone()) });
        let error = TransferError { hop: 0, memory: memory(blamed), cause };
        assert_eq!(outcome(&mut engine, id), Some(Outcome::Failed(error)));
    }
}

#[test]
fn others_go_on_after_a_failure() {
    let mut engine = engine(1, 1, 0);
    let program = run_program(16, 1, 8, 0);
    let bad = engine.submit(NOW, transfer(&program)).unwrap();
    let good = engine.submit(NOW, transfer(&program)).unwrap();
    let request = engine.poll_request().unwrap();
    engine.handle_completion(NOW, failed(&request));
    assert!(matches!(outcome(&mut engine, bad), Some(Outcome::Failed(_))));
    assert_eq!(run(&mut engine, NOW).len(), 2);
    assert_eq!(outcome(&mut engine, good), Some(Outcome::Done));
}

#[test]
fn a_commit_follows_the_last_byte_and_cannot_be_taken_back() {
    let mut engine = engine(1, 4, 0);
    let commit = Some(Commit { sync: true });
    let asked = Transfer { commit, ..transfer(&run_program(16, 1, 8, 0)) };
    let id = engine.submit(NOW, asked.clone()).unwrap();
    let out = requests(&mut engine);
    engine.handle_completion(NOW, done(&out[1]));
    assert_eq!(engine.poll_request(), None);
    engine.handle_completion(NOW, done(&out[0]));
    assert_eq!(engine.state(id), Some(State::Committing));
    let last = engine.poll_request().unwrap();
    assert_eq!(last.work, Work::Commit { region: region(101), sync: true });
    assert!(!engine.cancel(NOW, id));
    engine.handle_completion(NOW, done(&last));
    assert_eq!(outcome(&mut engine, id), Some(Outcome::Done));

    let id = engine.submit(NOW, asked).unwrap();
    let all: Vec<_> = requests(&mut engine);
    all.iter().for_each(|request| engine.handle_completion(NOW, done(request)));
    let commit = engine.poll_request().unwrap();
    engine.handle_completion(NOW, failed(&commit));
    assert_eq!(engine.poll_request().unwrap().work, Work::Abort { region: region(101) });
    assert!(matches!(engine.state(id), Some(State::Stopping(Outcome::Failed(_)))));
}

#[test]
fn a_commit_that_has_not_gone_out_becomes_an_abort() {
    let mut engine = engine(1, 1, 0);
    let commit = Some(Commit { sync: true });
    let asked = Transfer { commit, ..transfer(&run_program(8, 1, 8, 0)) };
    let id = engine.submit(NOW, asked).unwrap();
    let copy = engine.poll_request().unwrap();
    engine.handle_completion(NOW, done(&copy));
    assert_eq!(engine.state(id), Some(State::Committing));
    assert!(engine.cancel(NOW, id));
    let works: Vec<Work> = run(&mut engine, NOW).into_iter().map(|request| request.work).collect();
    assert_eq!(works, [Work::Abort { region: region(101) }]);
    assert_eq!(outcome(&mut engine, id), Some(Outcome::Cancelled));
}

#[test]
fn staging_goes_to_the_urgent_and_a_reserve_is_kept_for_them() {
    let channels = vec![ChannelConfig::new(channel(0), 1), ChannelConfig::new(channel(1), 1)];
    let pool = PoolConfig {
        memory: memory(1),
        region: region(1),
        capacity_bytes: 4 << 12,
        reserve_bytes: 1 << 12,
    };
    let mut engine = Engine::new(EngineConfig::new(channels, vec![pool]));
    let program = run_program(1 << 16, 2, 1 << 11, 1 << 12);
    let ids: Vec<_> = (0..6).map(|_| engine.submit(NOW, transfer(&program)).unwrap()).collect();
    let states = |engine: &Engine| {
        ids.iter().filter(|id| engine.state(**id) == Some(State::Running)).count()
    };
    assert_eq!((states(&engine), engine.staging(memory(1))), (3, Some((3 << 12, 4 << 12))));
    let priority = Priority(1);
    let urgent = engine.submit(NOW, Transfer { priority, ..transfer(&program) }).unwrap();
    assert_eq!(engine.state(urgent), Some(State::Running));
    let next = engine.submit(NOW, Transfer { priority, ..transfer(&program) }).unwrap();
    assert_eq!(engine.state(next), Some(State::WaitingForStaging));
    engine.cancel(NOW, ids[0]);
    assert_eq!(engine.state(next), Some(State::Running));
    engine.cancel(NOW, next);
    assert_eq!(engine.state(ids[3]), Some(State::WaitingForStaging));
    engine.cancel(NOW, urgent);
    assert_eq!(engine.state(ids[3]), Some(State::Running));
    assert_eq!(engine.state(ids[4]), Some(State::WaitingForStaging));
}

#[test]
fn what_can_never_run_is_refused() {
    let mut engine = engine(2, 1, 1 << 12);
    let refuse = |engine: &mut Engine, t: Transfer| engine.submit(NOW, t).unwrap_err();
    let large = transfer(&run_program(1 << 20, 2, 1 << 12, 1 << 13));
    assert_eq!(refuse(&mut engine, large), SubmitError::NeverFits(memory(1)));
    let far = transfer(&run_program(64, 3, 8, 16));
    assert_eq!(refuse(&mut engine, far), SubmitError::UnknownChannel(channel(2)));
    let program = run_program(64, 1, 8, 0);
    let past_end = Transfer { dst: place(1, u64::MAX), ..transfer(&program) };
    assert_eq!(refuse(&mut engine, past_end), SubmitError::OutOfRegion);
    let across_end = Transfer { src: place(1, i64::MAX as u64 - 8), ..transfer(&program) };
    let error = refuse(&mut engine, across_end);
    assert_eq!((error.is_retryable(), error), (false, SubmitError::OutOfRegion));
    let unknown = TransferId { index: 9, generation: 0 };
    let after = vec![Dependency::Transfer(unknown)];
    let error = refuse(&mut engine, Transfer { after, ..transfer(&program) });
    assert_eq!(error, SubmitError::UnknownDependency(unknown));
    assert!(engine.is_idle());
}

#[test]
fn a_refusal_names_a_memory_as_its_reader_does() {
    let name = |found| if found == memory(1) { "n0.reg".to_owned() } else { "another".to_owned() };
    let refused = SubmitError::NeverFits(memory(1));
    let says = |memory| {
        format!(
            "the plan's buffers in {memory} exceed its staging: give it more, or plan with a smaller TH"
        )
    };
    assert_eq!(refused.to_string(), says("memory 1 of node0"));
    assert_eq!(refused.told(name), says("n0.reg"));
    assert_eq!(SubmitError::UnknownPool(memory(1)).told(name), "n0.reg has no staging");
    assert_eq!(SubmitError::Full.told(name), SubmitError::Full.to_string());
}

#[test]
fn a_channel_may_come_later() {
    let mut engine = engine(1, 1, 1 << 12);
    let program = run_program(16, 2, 8, 16);
    let refused = engine.submit(NOW, transfer(&program)).unwrap_err();
    assert_eq!(refused, SubmitError::UnknownChannel(channel(1)));
    engine.add_channel(&ChannelConfig::new(channel(1), 1));
    let id = engine.submit(NOW, transfer(&program)).unwrap();
    run(&mut engine, NOW);
    assert_eq!(outcome(&mut engine, id), Some(Outcome::Done));
}

#[test]
fn a_full_table_takes_more_once_something_is_forgotten() {
    let channels = vec![ChannelConfig::new(channel(0), 1)];
    let config = EngineConfig { max_transfers: 2, ..EngineConfig::new(channels, Vec::new()) };
    let mut engine = Engine::new(config);
    let program = run_program(8, 1, 8, 0);
    let first = engine.submit(NOW, transfer(&program)).unwrap();
    let second = engine.submit(NOW, transfer(&program)).unwrap();
    let refused = engine.submit(NOW, transfer(&program)).unwrap_err();
    assert!(refused.is_retryable());
    engine.forget(second);
    assert_eq!(run(&mut engine, NOW).len(), 2);
    assert_eq!(outcome(&mut engine, first), Some(Outcome::Done));
    assert_eq!(outcome(&mut engine, second), Some(Outcome::Done));
    assert_eq!((engine.state(second), engine.progress(second)), (None, None));
    let third = engine.submit(NOW, transfer(&program)).unwrap();
    assert_eq!(third.index, second.index);
    assert_ne!(third, second);
    assert!(!engine.cancel(NOW, second));
    assert_eq!(engine.state(first), Some(State::Ended(Outcome::Done)));
    assert_eq!(run(&mut engine, NOW).len(), 1);
    assert_eq!((engine.progress(second), engine.progress(third)), (None, Some((8, 8))));
    engine.forget(third);
    engine.forget(third);
    assert_eq!(engine.state(third), None);
    assert!(engine.submit(NOW, transfer(&program)).is_ok());
    assert!(engine.submit(NOW, transfer(&program)).unwrap_err().is_retryable());
}

#[test]
fn a_report_says_what_a_hop_waited_for_and_who_held_it_up() {
    let mut engine = engine(2, 1, 1 << 16);
    let program = run_program(16, 2, 8, 16);
    let other = engine.submit(Time(0), transfer(&run_program(8, 1, 8, 0))).unwrap();
    let id = engine.submit(Time(0), transfer(&program)).unwrap();
    for now in [10, 15, 18] {
        let request = engine.poll_request_of(channel(0)).unwrap();
        engine.handle_completion(Time(now), done(&request));
    }
    for now in [30, 42] {
        let request = engine.poll_request_of(channel(1)).unwrap();
        engine.handle_completion(Time(now), done(&request));
    }
    let ns = Duration::from_nanos;
    let report = engine.report(id).unwrap();
    let [first, second] = &report.hops[..] else { panic!("{report:?}") };
    assert_eq!((first.held_up_by, second.held_up_by), (Some(other), None));
    assert_eq!((first.requests, first.bytes), (2, 16));
    assert_eq!((first.waiting_for_channel, first.busy), (ns(10), ns(8)));
    assert_eq!((first.from, first.to), (memory(0), memory(1)));
    assert_eq!((second.waiting_for_input, second.waiting_for_channel), (ns(15), ns(3)));
    assert_eq!(second.busy, ns(24));
    assert_eq!((report.waiting_for_staging, report.running), (ns(0), ns(42)));
}

#[test]
fn channels_count_what_they_did_for_transfers_of_each_priority() {
    let mut engine = engine(2, 1, 1 << 16);
    let program = run_program(16, 2, 8, 16);
    for priority in [-1, 4] {
        let priority = Priority(priority);
        engine.submit(Time(0), Transfer { priority, ..transfer(&program) }).unwrap();
    }
    let first = engine.poll_request_of(channel(0)).unwrap();
    engine.handle_completion(Time(20_000), done(&first));
    let second = engine.poll_request_of(channel(0)).unwrap();
    engine.handle_completion(Time(30_000), Completion { result: Err(broken()), ..done(&second) });
    let third = engine.poll_request_of(channel(0)).unwrap();
    let (_, counts) = engine.channels().next().unwrap();
    let traffic = counts.traffic[&memory(0).node];
    assert_eq!((traffic.submitted, traffic.done, traffic.failed), (3, 1, 1));
    assert_eq!((traffic.bytes, engine.in_flight(channel(0))), (8, 1));
    // The urgent one went first; the other waited until it had failed.
    let ns = Duration::from_nanos;
    let (high, low) = (counts.waits.high, counts.waits.low);
    assert_eq!((high.counts[0], high.counts[1], high.total), (1, 1, ns(20_000)));
    assert_eq!((low.counts[1], low.total), (1, ns(30_000)));
    assert_eq!(engine.staging_waits().high.counts[0], 1);
    assert_eq!(engine.staging_waits().low.counts[0], 1);
    engine.handle_completion(Time(40_000), done(&third));
    run(&mut engine, Time(50_000));
    let done: u64 = engine.channels().map(|(_, c)| c.traffic[&memory(0).node].done).sum();
    assert_eq!(done, 1 + 4, "of the one that failed, and of the other");
}

#[test]
fn a_report_counts_up_to_now_what_a_hop_does() {
    let mut engine = engine(2, 2, 1 << 16);
    let id = engine.submit(Time(2), transfer(&run_program(16, 2, 4, 8))).unwrap();
    let out = requests(&mut engine);
    engine.handle_completion(Time(5), done(&out[0]));
    engine.handle_completion(Time(10), done(&out[1]));
    let second = engine.poll_request_of(channel(1)).unwrap();
    assert_eq!(engine.poll_request_of(channel(0)), None, "the ring is full");
    engine.handle_completion(Time(25), done(&second));
    engine.handle_timeout(Time(29));
    let ns = Duration::from_nanos;
    let report = engine.report(id).unwrap();
    let [first, last] = &report.hops[..] else { panic!("{report:?}") };
    assert_eq!((first.busy, first.waiting_for_space), (ns(8), ns(15)));
    assert_eq!((first.waiting_for_channel, first.waiting_for_input), (ns(4), ns(0)));
    assert_eq!((last.busy, last.waiting_for_input), (ns(15), ns(3)));
    assert_eq!(report.running, ns(27));
    assert_eq!((first.bytes, first.requests, last.bytes, last.requests), (8, 2, 4, 1));
}

#[test]
fn a_stopped_hop_is_busy_until_its_last_request_is_back() {
    let mut engine = engine(2, 2, 1 << 16);
    let id = engine.submit(Time(0), transfer(&run_program(16, 2, 4, 8))).unwrap();
    let out = requests(&mut engine);
    engine.handle_completion(Time(5), done(&out[0]));
    let second = engine.poll_request_of(channel(1)).unwrap();
    engine.cancel(Time(6), id);
    engine.handle_completion(Time(10), done(&second));
    engine.handle_completion(Time(20), done(&out[1]));
    let busy: Vec<_> = engine.report(id).unwrap().hops.iter().map(|hop| hop.busy).collect();
    assert_eq!(busy, [20, 5].map(Duration::from_nanos));
}

#[test]
fn a_direct_request_moves_all_fields_of_its_entries() {
    let space = IndexSpace::of(&[("i", 1 << 16)]).unwrap();
    let fields = FieldSpace::packed(&[4, 8, 4]).unwrap();
    let columns = Layout::new(vec![Component::Whole(0), Component::Fields], 1).unwrap();
    let structures = Layout::new(vec![Component::Fields, Component::Whole(0)], 1).unwrap();
    for layouts in [[&structures, &columns], [&columns, &structures]] {
        let [src, dst] = layouts.map(|layout| {
            let placement = Placement::of_layout(layout, &space, &fields).unwrap();
            placement.select(&Selection::all(&space), &[0, 1, 2]).unwrap()
        });
        let mut plan = plan(layouts.map(Layout::clone).into(), &[1 << 16], &[], 1);
        plan.phase = vec![0];
        let program = Arc::new(Program::compile(&plan, src, dst).unwrap());
        let mut engine = engine(1, 64, 0);
        engine.submit(NOW, transfer(&program)).unwrap();
        let requests = requests(&mut engine);
        assert_eq!(requests.len(), 16);
        for request in requests {
            let Work::Copy(work) = request.work else { panic!("{request:?}") };
            let moved: Vec<_> = work.list.iter().flat_map(|c| &c.fields).map(|f| f.bytes).collect();
            assert_eq!(moved.len(), 3, "{moved:?}");
        }
    }
}

/// Direct I/O moves what lies equally far into an alignment unit in file and memory.
#[test]
fn a_ring_beside_a_file_starts_as_far_into_an_alignment_unit() {
    use ChannelKind::{DiskRead, DiskWrite, Memcpy};
    const ALIGN_BYTES: u64 = 4096;
    let space = IndexSpace::of(&[("x", 1 << 16)]).unwrap();
    let fields = FieldSpace::packed(&[1]).unwrap();
    let layout = Layout::row_major(1);
    let placement = Placement::of_layout(&layout, &space, &fields).unwrap();
    let rest = Selection::new(&space, vec![Span::Range { lo: 16, hi: 1 << 16 }]).unwrap();
    let part = placement.select(&rest, &[0]).unwrap();
    for (kinds, phases) in [
        ([DiskRead, Memcpy, DiskWrite], (116, 316)),
        ([DiskRead, Memcpy, Memcpy], (116, 0)),
        ([Memcpy, Memcpy, DiskWrite], (0, 316)),
        ([DiskWrite, DiskWrite, DiskRead], (0, 0)),
        ([DiskRead, DiskRead, DiskRead], (116, 0)),
    ] {
        let mut plan = plan(vec![layout.clone(); 4], &[1 << 12; 3], &[1 << 13; 2], 3);
        plan.phase = vec![0];
        plan.hops.iter_mut().zip(kinds).for_each(|(hop, kind)| hop.kind = kind);
        let program = Arc::new(Program::compile(&plan, part.clone(), part.clone()).unwrap());
        let mut engine = engine(3, 1, 1 << 16);
        let (src, dst) = (place(100, ALIGN_BYTES + 100), place(101, 3 * ALIGN_BYTES + 300));
        engine.submit(NOW, Transfer { src, dst, ..transfer(&program) }).unwrap();
        let out = run(&mut engine, NOW);
        let middle = out.iter().find(|request| request.hop == 1).unwrap();
        let Work::Copy(work) = &middle.work else { panic!("{middle:?}") };
        let found = (work.src.offset % ALIGN_BYTES, work.dst.offset % ALIGN_BYTES);
        assert_eq!(found, phases, "{kinds:?}");
    }
}
