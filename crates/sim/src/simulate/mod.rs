//! A workload on a cluster that need not be there: when it ends, on which paths, and what it takes.
//!
//! The planner plans and the engine runs, as they ship; channels take the time that their curves
//! say, wires are shared fairly, and no byte moves. Virtual time is whole nanoseconds, so that equal
//! arguments give equal reports on every machine. See [`simulate`].
//!
//! Each node that a case touches has an engine; what they tell each other takes the time of a link.

mod apps;
mod desk;
mod error;
mod exchange;
mod fleet;
mod gate;
mod latency;
mod lean;
mod parse;
mod places;
mod planning;
mod reach;
mod ready;
mod report;
mod roads;
mod route;
mod setup;
mod shortest;
mod trace;
mod watch;
mod wire;
mod workload;
mod world;

pub use error::{SimulateError, WorkloadError};
pub use planning::PlanCount;
pub use ready::READY_MADE_WORKLOADS;
pub use report::{CaseReport, CopyReport, Tally};
pub use setup::{Baseline, Setup};
pub use trace::{MAX_TRACE_EVENTS, RunTrace};
pub use watch::{Instance, Note, Watch};
pub use workload::{Case, CopySpec, MAX_TRANSFERS, Workload};

use model::Topology;
use world::World;

/// Runs `case` on `topology`, from an idle cluster to the end of its last copy.
///
/// A memory holds the instances of the copies that run, and staging: a pool takes 512 MiB of each
/// memory in which a plan has a buffer, at most half of it, and keeps a quarter of that for what is
/// more urgent. A copy waits until there is room for its source, its destination and, where a
/// baseline keeps whole instances between, for these too; the most urgent first, then the oldest.
/// Where the topology knows no capacity, there is always room.
///
/// `watch` follows the run, and may stop it.
///
/// # Errors
/// [`SimulateError`]: a case that contradicts itself, a copy without a plan, one that never fits,
/// or `watch` said no.
pub fn simulate(
    topology: &Topology,
    case: &Case,
    setup: &Setup,
    watch: &mut dyn Watch,
) -> Result<CaseReport, SimulateError> {
    case.check()?;
    World::new(topology, case, setup, watch)?.run(topology, watch)
}
