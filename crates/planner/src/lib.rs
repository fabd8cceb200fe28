//! The path planner (paper, section 4): from a topology and a query to a plan, by pure functions.
//!
//! [`plan`] chooses the path of memories, the layout in each, the blocking factors, the requests
//! and the size of every buffer; [`split()`] takes several paths at once where that is sooner;
//! [`explain()`] says in words what was chosen and weighed; a [`PlanCache`] keeps plans for
//! transfers that look alike. No clock, thread, I/O or log.
#![forbid(unsafe_code)]

mod assemble;
mod bound;
mod cache;
mod cut;
mod error;
mod explain;
mod full;
mod graph;
mod load;
mod path;
mod predict;
mod query;
mod rates;
mod round;
mod shape;
mod simple;
mod solve;
mod split;
mod word;

pub use cache::{Cached, PlanCache};
pub use error::{ErrorKind, PlanError};
pub use explain::explain;
pub use load::Load;
pub use query::{Choice, End, Options, Query};
pub use split::{Piece, Split, split};

use assemble::Frame;
use graph::{Edges, Graph};
use model::{Algorithm, CostModel, Plan, Topology};
use path::Solution;
use rates::Rates;
use shape::Shape;
use solve::{PathRates, Solver};

/// The plan for `query` on `topology`.
///
/// The paper's model is section 4.2 to the letter: the throughput is the least `tp(PREFIX)` over
/// the hops at the factors returned, and a hop between two intermediates needs a complement of
/// SUFFIX of at most `TH`; the simple algorithm and the baselines ignore `TH` there. The default
/// model predicts seconds, wants two granules in a ring, and blocks for these algorithms too.
/// Factors are the least that reach the throughput; the default model rounds them to runs of
/// whole pages or lines where that costs next to nothing. A memory whose own `TH` is 0 never holds an
/// intermediate.
///
/// # Errors
/// [`PlanError::Query`] for a query that contradicts itself, [`PlanError::UnknownMemory`],
/// [`PlanError::NoPath`] where no channels lead to the destination, and [`PlanError::Space`] where
/// they do but no conversion fits.
pub fn plan(topology: &Topology, query: &Query<'_>, options: &Options) -> Result<Plan, PlanError> {
    plan_without(topology, query, options, Load::IDLE)
}

/// As [`plan`], by way of no channel that `closed` has flows on, nor of the wires in the directions
/// in which these cross.
fn plan_without(
    topology: &Topology,
    query: &Query<'_>,
    options: &Options,
    closed: &Load,
) -> Result<Plan, PlanError> {
    query.check()?;
    let shape = Shape::of(query)?;
    for end in [query.src.memory, query.dst.memory] {
        topology.memory(end).ok_or(PlanError::UnknownMemory { memory: end })?;
    }
    let nodes = graph::nodes_between(topology, query.src.memory.node, query.dst.memory.node);
    let mut graph = Graph::of(topology, &nodes, (query.src.memory, query.dst.memory), options)?;
    graph.close(closed);
    let flows = graph.share(query.load);
    let rates = Rates::of(&graph, &shape, options.model);
    let frame = Frame { query, graph: &graph, shape: &shape, model: options.model };
    let mut plan = match options.algorithm(query.payload_bytes()) {
        Algorithm::Full => full_plan(&frame, &rates, options),
        algorithm => simple_plan(&frame, &rates, algorithm),
    }?;
    plan.search.flows = flows;
    Ok(plan)
}

fn full_plan(frame: &Frame<'_>, rates: &Rates<'_>, options: &Options) -> Result<Plan, PlanError> {
    let budget = options.budget_for(frame.query.payload_bytes());
    let limits = (budget, options.alternatives);
    let edges = Edges::of(frame.graph);
    let mut search = full::Search::new((frame.graph, &edges), frame.shape, rates, limits);
    search.run();
    let (src, dst) = (frame.query.src.memory, frame.query.dst.memory);
    let Some(best) = &search.best else {
        let leads = simple::shortest_path(frame.graph, rates).is_some();
        return Err(if leads {
            PlanError::Space { src, dst }
        } else {
            PlanError::NoPath { src, dst }
        });
    };
    let mut plan = frame.rounded_plan(Algorithm::Full, &best.path, &best.solution);
    search.beaten.sort_by(|a, b| a.prediction.seconds.total_cmp(&b.prediction.seconds));
    plan.alternatives = search.beaten.iter().map(|f| frame.alternative(f)).collect();
    plan.search = search.report;
    Ok(plan)
}

fn simple_plan(
    frame: &Frame<'_>,
    rates: &Rates<'_>,
    algorithm: Algorithm,
) -> Result<Plan, PlanError> {
    let (src, dst) = (frame.query.src.memory, frame.query.dst.memory);
    let found = simple::search(algorithm, frame.graph, frame.shape, rates);
    let simple::Simple { path, solution } = found.ok_or(PlanError::NoPath { src, dst })?;
    let solution = match frame.model {
        CostModel::Paper => solution,
        CostModel::Default => {
            blocked(frame, rates, &path, &solution).ok_or(PlanError::Space { src, dst })?
        }
    };
    Ok(frame.rounded_plan(algorithm, &path, &solution))
}

/// The layouts of a path that converts on its pivot, cut so that the window fits in its rings.
fn blocked(
    frame: &Frame<'_>,
    rates: &Rates<'_>,
    path: &path::Path,
    solution: &Solution,
) -> Option<Solution> {
    let between = solution.pivot > 0 && solution.pivot + 1 < path.hops();
    let (graph, shape, tolerance) = (frame.graph, frame.shape, simple::TOLERANCE);
    let solver = Solver { graph, shape, rates, tolerance };
    if !between || solver.same() {
        return Some(*solution);
    }
    let limits = PathRates::of(frame.graph, rates, path);
    let best = solver.best_with_pivot(path, &limits, solution.pivot, 0.0);
    best.map(|(_, solution)| solution)
}

#[cfg(test)]
mod tests;
