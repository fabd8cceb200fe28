//! The bound `U` on the throughput of every path (paper, section 4.2).

use crate::graph::{Edge, Edges, Graph, MAX_MEMORIES};
use crate::predict::granules;
use crate::rates::{Rates, curve, inverse};
use crate::shape::Shape;
use crate::solve::{Needs, Solver, TOLERANCE};
use model::ShapeClass;

/// A throughput that no path passes: the widest path on peaks; or less, where no conversion on any
/// channels that a path could join reaches that. It takes the best first, last and converting
/// channels whether or not one path has them all, so it is never too low.
pub(crate) fn upper_bound(
    (graph, edges): (&Graph<'_>, &Edges),
    shape: &Shape,
    rates: &Rates<'_>,
) -> f64 {
    let solver = Solver { graph, shape, rates, tolerance: TOLERANCE };
    let bound = Bound { graph, edges: &edges.all, rates, solver };
    let widest = bound.widest();
    if bound.may_reach(widest) {
        return widest;
    }
    let (mut low, mut high) = (widest * 1e-9, widest);
    while high > low * (1.0 + TOLERANCE) {
        let middle = if high > 4.0 * low { (low * high).sqrt() } else { (low + high) / 2.0 };
        *(if bound.may_reach(middle) { &mut low } else { &mut high }) = middle;
    }
    high
}

struct Bound<'a> {
    graph: &'a Graph<'a>,
    edges: &'a [Edge],
    rates: &'a Rates<'a>,
    solver: Solver<'a>,
}

impl Bound<'_> {
    /// The widest path on peaks.
    fn widest(&self) -> f64 {
        let graph = self.graph;
        let mut width = [0.0f64; MAX_MEMORIES];
        let mut widest = 0.0f64;
        width[usize::from(graph.src)] = f64::INFINITY;
        for _ in 0..graph.vertices.len() {
            let mut grew = false;
            for edge in self.edges {
                let through = width[usize::from(edge.from)].min(self.rates.copy(edge.lane));
                if edge.to == graph.dst {
                    widest = widest.max(through);
                }
                let to = &mut width[usize::from(edge.to)];
                if graph.th_bytes(edge.to) > 0 && through > *to {
                    (*to, grew) = (through, true);
                }
            }
            if !grew {
                break;
            }
        }
        widest
    }

    /// Memories that a path of `throughput` may hold intermediates in: those that it can reach,
    /// and those that it can leave for the destination.
    fn reach(&self, throughput: f64) -> (u64, u64) {
        let graph = self.graph;
        let (mut from_src, mut to_dst) = (0u64, 0u64);
        for _ in 0..graph.vertices.len() {
            let before = (from_src, to_dst);
            for edge in self.edges.iter().filter(|e| self.rates.copy(e.lane) >= throughput) {
                let usable = |vertex: u8| u64::from(graph.th_bytes(vertex) > 0) << vertex;
                if edge.from == graph.src || from_src >> edge.from & 1 == 1 {
                    from_src |= usable(edge.to);
                }
                if edge.to == graph.dst || to_dst >> edge.to & 1 == 1 {
                    to_dst |= usable(edge.from);
                }
            }
            if before == (from_src, to_dst) {
                break;
            }
        }
        (from_src, to_dst)
    }

    /// Whether a path might have `throughput`.
    fn may_reach(&self, throughput: f64) -> bool {
        if self.solver.same() {
            return true;
        }
        let (from_src, to_dst) = self.reach(throughput);
        let mut needs = Needs { first_bytes: u64::MAX, last_bytes: u64::MAX, window_bytes: 0 };
        for edge in self.edges {
            let copies = self.rates.copy(edge.lane) >= throughput;
            let converts = self.rates.convert(edge.lane) >= throughput;
            let first = copies && edge.from == self.graph.src;
            let last = copies && edge.to == self.graph.dst;
            let (reached, leaves) = (from_src >> edge.from & 1 == 1, to_dst >> edge.to & 1 == 1);
            if converts && ((first && (last || leaves)) || (last && reached)) {
                return true;
            }
            if first && leaves {
                needs.first_bytes = needs.first_bytes.min(self.need(edge.lane, throughput));
            }
            if last && reached {
                needs.last_bytes = needs.last_bytes.min(self.need(edge.lane, throughput));
            }
            if converts && reached && leaves {
                let th = self.graph.th_bytes(edge.from).min(self.graph.th_bytes(edge.to));
                needs.window_bytes = needs.window_bytes.max(th / granules(self.rates.model));
            }
        }
        needs.window_bytes > 0 && self.solver.fit(1, &needs).is_some()
    }

    fn need(&self, lane: u8, throughput: f64) -> u64 {
        let curves = &self.graph.lanes[usize::from(lane)].curves;
        let classes = [ShapeClass::Run, ShapeClass::Interleave, ShapeClass::Transpose];
        let least = |class| inverse(curve(self.rates.model, curves, class), throughput);
        classes.into_iter().filter_map(least).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
