//! Cancel, deadline and channel error, at every hop, with the ring beside it empty, full and
//! wrapped; a bystander that waits for the same staging must come out whole.

mod support;

use isometry_sim::{Entry, Event, Fault, Scenario, run};
use model::{ChannelErrorKind, Outcome, RequestId, Time};
use std::collections::BTreeMap;
use support::{Chain, channel, scene};

const HOPS: u16 = 3;
const RING_BYTES: u64 = 512;
const REQUEST_BYTES: u64 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Empty,
    Full,
    Wrapped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Cancel,
    Deadline,
    Error,
}

/// What went through a ring so far: given to be written, written, read for good.
#[derive(Debug, Clone, Copy, Default)]
struct Ring {
    written_bytes: u64,
    landed_bytes: u64,
    read_bytes: u64,
}

impl Ring {
    fn is(self, state: State) -> bool {
        let held = self.written_bytes - self.read_bytes;
        let lap = |position: u64| position / RING_BYTES;
        match state {
            State::Empty => self.read_bytes > 0 && self.read_bytes == self.landed_bytes,
            State::Full => held + REQUEST_BYTES > RING_BYTES,
            State::Wrapped => held > 0 && lap(self.read_bytes) < lap(self.written_bytes - 1),
        }
    }
}

/// The ring that hop `hop` reads, or that the first one writes: between `n - 1` and `n`.
fn ring_of(hop: u16) -> u16 {
    hop.max(1)
}

/// The ring before hop `reader` of transfer 0 after each entry of `trace`.
fn ring_history(trace: &[Entry], reader: u16) -> Vec<Ring> {
    let mut flights: BTreeMap<RequestId, (u16, u64)> = BTreeMap::new();
    let mut ring = Ring::default();
    let mut history = Vec::new();
    for entry in trace {
        match entry.event {
            Event::Issued { transfer: 0, request, hop, bytes, .. } => {
                flights.insert(request, (hop, bytes));
                ring.written_bytes += if hop + 1 == reader { bytes } else { 0 };
            }
            Event::Completed { request, ok: true } => match flights.remove(&request) {
                Some((hop, bytes)) if hop + 1 == reader => ring.landed_bytes += bytes,
                Some((hop, bytes)) if hop == reader => ring.read_bytes += bytes,
                _ => {}
            },
            _ => {}
        }
        history.push(ring);
    }
    history
}

/// The middle one of the instants at which the ring beside `hop` is in `state` for a while.
fn instant(trace: &[Entry], hop: u16, state: State) -> Option<Time> {
    let end = |e: &Entry| matches!(e.event, Event::Ended { transfer: 0, .. });
    let trace = &trace[..trace.iter().position(end)?];
    let history = ring_history(trace, ring_of(hop));
    let calm = |i: &usize| trace[*i].at.0 + 1 < trace[i + 1].at.0;
    let right = |i: &usize| history[*i].is(state);
    let found: Vec<usize> = (0..trace.len() - 1).filter(calm).filter(right).collect();
    found.get(found.len() / 2).map(|&i| Time(trace[i].at.0 + 1))
}

/// Rates that bring the ring beside `hop` into `state`: slow before it, or slow behind.
fn scenario(hop: u16, state: State, converts: bool) -> Scenario {
    let chain = Chain {
        hops: HOPS,
        side: 64,
        request_bytes: REQUEST_BYTES,
        ring_bytes: RING_BYTES,
        converts,
    };
    let slow = if state == State::Empty { ring_of(hop) - 1 } else { ring_of(hop) };
    let mut rates = [1e9; HOPS as usize];
    rates[usize::from(slow)] = 0.1e9;
    scene(&rates, 4096, vec![chain.transfer(0), chain.transfer(0)])
}

fn with_trouble(calm: &Scenario, trouble: Trouble, hop: u16, at: Time) -> Scenario {
    let mut scenario = calm.clone();
    let kind = ChannelErrorKind::Io;
    match trouble {
        Trouble::Cancel => scenario.faults.push((at, Fault::Cancel(0))),
        Trouble::Error => scenario.faults.push((at, Fault::Break { channel: channel(hop), kind })),
        Trouble::Deadline => scenario.transfers[0].deadline = Some(at),
    }
    scenario
}

fn check_outcome(trace: &[Entry], trouble: Trouble, hop: u16) {
    let ended = |e: &Entry| match &e.event {
        Event::Ended { transfer: 0, outcome } => Some(outcome.clone()),
        _ => None,
    };
    match (trouble, trace.iter().find_map(ended).unwrap()) {
        (Trouble::Cancel, outcome) => assert_eq!(outcome, Outcome::Cancelled),
        (Trouble::Deadline, outcome) => assert_eq!(outcome, Outcome::TimedOut),
        (Trouble::Error, Outcome::Failed(error)) => assert_eq!(error.hop, usize::from(hop)),
        (Trouble::Error, outcome) => panic!("{outcome:?}"),
    }
}

fn check_case(trouble: Trouble, hop: u16, state: State, converts: bool) {
    let case = format!("{trouble:?} at hop {hop}, ring {state:?}, converts: {converts}");
    let calm = scenario(hop, state, converts);
    let before = run(&calm);
    before.result.unwrap_or_else(|e| panic!("{case}: calm: {e}"));
    let at = instant(&before.trace, hop, state).unwrap_or_else(|| panic!("{case}: not reached"));
    let after = run(&with_trouble(&calm, trouble, hop, at));
    after.result.unwrap_or_else(|e| panic!("{case}: {e}"));
    let same = after.trace.iter().take_while(|e| e.at < at).count();
    assert!(after.trace[..same] == before.trace[..same], "{case}: differs before the trouble");
    let ring = ring_history(&after.trace, ring_of(hop))[same - 1];
    assert!(ring.is(state), "{case}: {ring:?} when it strikes");
    check_outcome(&after.trace, trouble, hop);
    support::done_at(&after.trace, 1);
}

#[test]
fn trouble_at_every_hop_in_every_state_of_its_ring() {
    for trouble in [Trouble::Cancel, Trouble::Deadline, Trouble::Error] {
        for hop in 0..HOPS {
            for state in [State::Empty, State::Full, State::Wrapped] {
                check_case(trouble, hop, state, false);
                check_case(trouble, hop, state, true);
            }
        }
    }
}
