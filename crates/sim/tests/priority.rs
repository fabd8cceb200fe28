//! An urgent transfer under a load of less urgent ones that fills every channel on its path.

mod support;

use isometry_sim::{Scenario, TransferSpec, run};
use model::{Priority, Time};
use support::{Chain, done_at, scene};

const RATES: [f64; 3] = [6e9, 3e9, 5e9];
const REQUEST_BYTES: u64 = 256 << 10;
const RING_BYTES: u64 = 1 << 20;
const IN_FLIGHT: u64 = 2;

fn chain(side: u64) -> Chain {
    Chain { hops: 3, side, request_bytes: REQUEST_BYTES, ring_bytes: RING_BYTES, converts: false }
}

/// Less urgent transfers that keep all channels busy for long, three at a time in staging.
fn load() -> Vec<TransferSpec> {
    (0..5).map(|_| chain(16384).transfer(0)).collect()
}

/// Staging for four rings a memory, one of which is kept for the urgent.
fn scenario(transfers: Vec<TransferSpec>) -> Scenario {
    let mut scenario = scene(&RATES, 4 * RING_BYTES, transfers);
    scenario.pools.iter_mut().for_each(|pool| pool.reserve_bytes = RING_BYTES);
    scenario.payload = false;
    scenario
}

fn urgent(side: u64, submit_at: Time) -> TransferSpec {
    TransferSpec { priority: Priority(5), submit_at, ..chain(side).transfer(0) }
}

/// The time that the urgent transfer takes, alone and under load.
fn solo_and_loaded_ns(side: u64, at: Time) -> (u64, u64) {
    let took = |transfers: Vec<TransferSpec>| {
        let run = run(&scenario(transfers));
        run.result.unwrap();
        done_at(&run.trace, 0).0 - at.0
    };
    let with_load = [vec![urgent(side, at)], load()].concat();
    (took(vec![urgent(side, at)]), took(with_load))
}

/// What the requests in flight on each hop take, which nothing can call back.
fn in_flight_ns() -> u64 {
    let bytes = (IN_FLIGHT * REQUEST_BYTES) as f64;
    RATES.iter().map(|rate| (bytes * 1e9 / rate).ceil() as u64).sum()
}

#[test]
fn a_large_urgent_transfer_takes_at_most_1_3_of_its_solo_time() {
    for (side, at_ns) in [(8192, 20_000_000), (8192, 37_123_456), (11264, 5_000_001)] {
        let (solo, loaded) = solo_and_loaded_ns(side, Time(at_ns));
        assert!(loaded * 10 <= solo * 13, "{side}² bytes: {loaded} ns, solo {solo} ns");
    }
}

#[test]
fn a_small_urgent_transfer_waits_for_what_is_in_flight_only() {
    for (side, at_ns) in
        [(64, 20_000_000), (1024, 20_000_000), (1024, 31_415_926), (4096, 27_182_818)]
    {
        let (solo, loaded) = solo_and_loaded_ns(side, Time(at_ns));
        let bound = solo + in_flight_ns();
        assert!(loaded <= bound, "{side}² bytes: {loaded} ns, solo {solo} ns, bound {bound} ns");
    }
}

#[test]
fn without_priority_it_waits_its_turn() {
    let at = Time(20_000_000);
    let equal = TransferSpec { priority: Priority(0), ..urgent(1024, at) };
    let run = run(&scenario([vec![equal], load()].concat()));
    run.result.unwrap();
    let (solo, _) = solo_and_loaded_ns(1024, at);
    assert!(done_at(&run.trace, 0).0 - at.0 > 10 * solo, "the load does bind");
}

/// Direct transfers of middling urgency that keep the first channel busy for long.
fn middling() -> Vec<TransferSpec> {
    let direct = Chain { hops: 1, ..chain(16384) };
    (0..3).map(|_| direct.transfer(2)).collect()
}

#[test]
fn who_holds_the_staging_is_not_held_up_by_the_middling() {
    let (holder, at) = (chain(4096).transfer(0), Time(1_000_000));
    let took = |transfers: Vec<TransferSpec>| {
        let mut scenario = scene(&RATES, RING_BYTES, transfers);
        scenario.payload = false;
        let run = run(&scenario);
        run.result.unwrap();
        done_at(&run.trace, 0).0 - at.0
    };
    let solo = took(vec![urgent(4096, at)]);
    let behind = took(vec![urgent(4096, at), holder.clone()]);
    let middling: Vec<_> =
        middling().into_iter().map(|t| TransferSpec { submit_at: Time(500_000), ..t }).collect();
    let loaded = took([vec![urgent(4096, at), holder], middling].concat());
    assert!(behind > solo + solo / 2, "it does wait for staging: {behind} ns, solo {solo} ns");
    let bound = behind + 2 * in_flight_ns();
    assert!(loaded <= bound, "{loaded} ns, behind the holder alone {behind} ns, bound {bound} ns");
}
