//! A transfer in several parts at once, on paths that share nothing.

use crate::cut::{Cut, Slice};
use crate::{Choice, Load, Options, PlanError, Query, plan, plan_without};
use model::{Plan, Topology};
use std::ops::Range;

/// What one path more must leave of the predicted time: it takes staging, and channels that others
/// may want.
const WORTHWHILE: f64 = 0.98;

/// A transfer, cut along one dimension into parts that run at the same time.
///
/// Invariant: the ranges follow one another from 0 to the extent of the box, and none is empty but
/// a box's that is; no two plans have a channel in common, nor a wire in one direction (a half-duplex
/// one in either).
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The dimension that is cut.
    pub dim: usize,
    /// The parts; one where nothing is gained by more.
    pub parts: Vec<Piece>,
}

/// A part of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Its indices along the dimension that is cut, counted from the start of the box.
    pub range: Range<u64>,
    /// Its payload.
    pub bytes: u64,
    /// The plan for its box.
    pub plan: Plan,
}

impl Split {
    /// The predicted time until the last part has ended.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.parts.iter().map(Piece::seconds).fold(0.0, f64::max)
    }
}

impl Piece {
    /// The predicted time; in the paper's model, the payload over the throughput.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.plan.seconds.unwrap_or_else(|| self.streaming_seconds())
    }

    fn streaming_seconds(&self) -> f64 {
        self.bytes as f64 / self.plan.throughput
    }
}

/// The plan for `query`, or several for parts of its box on up to `most` disjoint paths, where
/// these are predicted to end sooner.
///
/// The paths are chosen one after the other: the best, then the best by way of what those before
/// leave. The parts are cut so that they end together, where blocks of both ends start; each is
/// planned anew for its own box. It is greedy: where the best path stands in the way of two others
/// that are better together, these are not found. Parts are predicted as if memories were shared
/// without loss.
///
/// # Errors
/// As [`plan`](fn@crate::plan).
pub fn split(
    topology: &Topology,
    query: &Query<'_>,
    options: &Options,
    most: usize,
) -> Result<Split, PlanError> {
    let whole = plan(topology, query, options)?;
    let mut best = Split { dim: 0, parts: vec![whole_of(query, whole)] };
    // Parts take the algorithm that is worth its time for the whole.
    let algorithm = best.parts[0].plan.algorithm;
    let options = Options { choice: Choice::Only(algorithm), ..*options };
    let cutter = Cutter { topology, query, options: &options };
    let (cuts, mut paths) = (Cut::of(query), best.parts.clone());
    while paths.len() < most && !cuts.is_empty() {
        let Some(next) = cutter.beside(&paths) else { break };
        paths.push(next);
        let splits = cuts.iter().filter_map(|cut| cutter.divided(cut, &paths));
        let found = splits.min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        match found.filter(|split| split.seconds() < best.seconds() * WORTHWHILE) {
            Some(split) => best = split,
            None => break,
        }
    }
    Ok(best)
}

/// All of the box by one plan.
fn whole_of(query: &Query<'_>, plan: Plan) -> Piece {
    Piece { range: 0..query.extents[0], bytes: query.payload_bytes(), plan }
}

/// Cuts one transfer.
struct Cutter<'a> {
    topology: &'a Topology,
    query: &'a Query<'a>,
    options: &'a Options,
}

impl Cutter<'_> {
    /// The best way of the whole transfer that shares nothing with `paths`.
    fn beside(&self, paths: &[Piece]) -> Option<Piece> {
        let closed = self.used(paths.iter());
        let plan = plan_without(self.topology, self.query, self.options, &closed).ok()?;
        Some(whole_of(self.query, plan))
    }

    /// The channels of these.
    fn used<'p>(&self, pieces: impl Iterator<Item = &'p Piece>) -> Load {
        let mut used = Load::default();
        pieces.for_each(|piece| used.begin(self.topology, &piece.plan));
        used
    }

    /// A part for each of `paths`, which are plans of the whole.
    fn divided(&self, cut: &Cut, paths: &[Piece]) -> Option<Split> {
        let mut parts = paths.to_vec();
        for (at, range) in cut.ranges(&sizes(paths))?.into_iter().enumerate() {
            let others = parts.iter().enumerate().filter(|&(other, _)| other != at);
            let closed = self.used(others.map(|(_, piece)| piece));
            let slice = Slice::of(self.query, cut.dim, &range);
            let query = slice.query(self.query);
            let plan = plan_without(self.topology, &query, self.options, &closed).ok()?;
            parts[at] = Piece { range, bytes: query.payload_bytes(), plan };
        }
        Some(Split { dim: cut.dim, parts })
    }
}

/// The bytes for each of `paths`, which are plans of the whole, with which all end together; less
/// than none where one would not have begun by then.
fn sizes(paths: &[Piece]) -> Vec<f64> {
    let before = |path: &Piece| path.seconds() - path.streaming_seconds();
    let rate: f64 = paths.iter().map(|path| path.plan.throughput).sum();
    let missed: f64 = paths.iter().map(|path| path.plan.throughput * before(path)).sum();
    let end = (paths[0].bytes as f64 + missed) / rate;
    paths.iter().map(|path| path.plan.throughput * (end - before(path))).collect()
}
