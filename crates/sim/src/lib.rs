//! The engine in virtual time, against adversaries that do everything a channel may do.
//!
//! **Hazard.** An engine that reuses a buffer too early, reads one too soon or forgets to wake a
//! descriptor works nearly always; threads and real devices show such a mistake once a month.
//! **Guarantee.** A run is a function of its [`Scenario`]: the same shipped engine, a virtual
//! clock, and channels that move real bytes at the worst legal moment. A rule that is broken is
//! named, with the seed that shows it again. **Structure.** [`scenario`] draws a [`Scenario`] from
//! a seed, and [`run`] plays it; [`node_scenario`] and [`run_nodes`] do so for several engines that
//! run plans together; [`fuzz`] plays both of many seeds.
//!
//! What every run checks: bounds of each copy; that staging is read after it was written and
//! written after it was read; that nothing is touched after a transfer's event; every byte of a
//! destination, and around it; order, room and urgency on each channel; progress; that every
//! transfer ends, for a reason, as soon as it can, and leaves nothing behind.
//!
//! [`simulate`] is for whole clusters: a [`Workload`] without bytes or adversary, and how long it
//! takes.
#![forbid(unsafe_code)]

mod agenda;
mod audit;
mod channel;
mod content;
mod ends;
mod generate;
mod geometry;
mod memory;
mod nodes;
mod planned;
mod report;
mod rng;
mod scenario;
mod simulate;
mod stage;
mod trace;
mod urgency;
mod violation;
mod waits;
mod world;

pub use channel::ChannelSpec;
pub use generate::scenario;
pub use nodes::{NodeFault, NodeScenario, WireSpec, node_scenario, run_nodes};
pub use report::{Failure, FuzzReport, Summary};
pub use rng::Rng;
pub use scenario::{After, End, Fault, FenceSpec, PoolSpec, Rule, Scenario, Stored, TransferSpec};
pub use simulate::{
    Baseline, Case, CaseReport, CopyReport, CopySpec, Instance, MAX_TRACE_EVENTS, MAX_TRANSFERS,
    Note, PlanCount, READY_MADE_WORKLOADS, RunTrace, Setup, SimulateError, Tally, Watch, Workload,
    WorkloadError, simulate,
};
pub use trace::{Entry, Event};
pub use violation::Violation;
pub use waits::Waits;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// What happened in a run, and whether every rule was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Everything that happened, in order; up to the failure, if there is one.
    pub trace: Vec<Entry>,
    /// What it came to.
    pub result: Result<Summary, Failure>,
}

/// Plays `scenario` to its end, or to the first rule that the engine breaks.
#[must_use]
pub fn run(scenario: &Scenario) -> Run {
    let played = catch_unwind(AssertUnwindSafe(|| play(scenario)));
    let (trace, result) = played.unwrap_or_else(|panic| {
        let message = message_of(panic.as_ref());
        (Vec::new(), Err((model::Time(0), Violation::Panicked { message })))
    });
    let seed = scenario.seed;
    let result = match result {
        Ok(()) => Ok(Summary::of(&trace)),
        Err((at, violation)) => Err(Failure { seed, at, violation }),
    };
    Run { trace, result }
}

/// Plays the scenarios of `seed`, that of one node, then that of several.
#[must_use]
pub fn run_seed(seed: u64) -> Run {
    let Run { mut trace, result } = run(&scenario(seed));
    let Ok(mut summary) = result else { return Run { trace, result } };
    let together = run_nodes(&node_scenario(seed));
    trace.extend(together.trace);
    let result = together.result.map(|other| {
        summary.add(&other);
        summary
    });
    Run { trace, result }
}

/// Plays the scenarios of `seeds` in order, up to the first failure. Equal arguments give equal
/// reports.
#[must_use]
pub fn fuzz(seeds: Range<u64>) -> FuzzReport {
    let mut report = FuzzReport::default();
    for seed in seeds {
        if !report.count(run_seed(seed).result) {
            break;
        }
    }
    report
}

type Played = (Vec<Entry>, Result<(), (model::Time, Violation)>);

fn play(scenario: &Scenario) -> Played {
    match World::new(scenario) {
        Ok(world) => world.run(),
        Err(violation) => (Vec::new(), Err((model::Time(0), violation))),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
