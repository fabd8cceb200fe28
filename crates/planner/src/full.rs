//! The full algorithm (paper, section 4.2): every path, every layout, every blocking factor.
//!
//! Paths are visited by their number of hops. Those of one length are sorted by what they could
//! reach at best, so that the first ones solved decide most of the others by a comparison. The
//! search ends when no longer path can be better: in the paper's model when the best reaches the
//! bound `U`, which is the widest path on peaks, made tighter by the best conversion that any
//! channels between could do.

use crate::bound::upper_bound;
use crate::graph::{Edges, Graph};
use crate::path::{MAX_HOPS, Path, Solution};
use crate::predict::{Case, Prediction};
use crate::rates::Rates;
use crate::shape::Shape;
use crate::solve::{PathRates, Solver, TOLERANCE};
use model::{CostModel, SearchReport};

/// Rates nearer than this are equal.
const SAME: f64 = 1e-9;
/// Paths may be visited that many times as often as solved, and so many hops for each of them be
/// walked.
const PATHS: u64 = 8;
/// In the default model, a path that can't save this part of the time is not tried.
const WORTHWHILE: f64 = 0.95;

/// A solved path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) path: Path,
    pub(crate) solution: Solution,
    pub(crate) prediction: Prediction,
    /// The product of the peaks of its channels: in the order of the sum of their logarithms.
    peaks: f64,
}

/// A path that is not solved yet, with the most that it could reach.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    path: Path,
    ceiling: f64,
    peaks: f64,
}

/// The full search over one graph.
pub(crate) struct Search<'a> {
    pub(crate) graph: &'a Graph<'a>,
    edges: &'a Edges,
    pub(crate) shape: &'a Shape,
    pub(crate) rates: &'a Rates<'a>,
    pub(crate) report: SearchReport,
    /// The best so far.
    pub(crate) best: Option<Found>,
    /// What was solved and beaten, the latest first.
    pub(crate) beaten: Vec<Found>,
    /// How many beaten ones are kept.
    pub(crate) keep: usize,
    /// For each vertex, the fewest hops to the destination.
    distance: Vec<u8>,
    /// `U`: no path of any length is faster.
    bound: Option<f64>,
    /// The hops walked, on paths and into dead ends.
    walked: u64,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        (graph, edges): (&'a Graph<'a>, &'a Edges),
        shape: &'a Shape,
        rates: &'a Rates<'a>,
        (budget, keep): (u64, usize),
    ) -> Search<'a> {
        let report = SearchReport { budget, ..SearchReport::default() };
        let distance = distances(graph, edges);
        Search {
            graph,
            edges,
            shape,
            rates,
            report,
            best: None,
            beaten: Vec::new(),
            keep,
            distance,
            bound: None,
            walked: 0,
        }
    }

    /// Runs the search; the best is then in `best`, if anything is feasible.
    pub(crate) fn run(&mut self) {
        let mut leaves = Vec::with_capacity(64);
        for hops in 1..=MAX_HOPS.min(2 * self.graph.vertices.len()) {
            if !self.longer_may_win(hops) || self.report.exhausted {
                break;
            }
            leaves.clear();
            self.collect(hops, &mut leaves);
            leaves
                .sort_by(|a, b| b.ceiling.total_cmp(&a.ceiling).then(b.peaks.total_cmp(&a.peaks)));
            for leaf in &leaves {
                if !self.visit(leaf) {
                    break;
                }
            }
        }
    }

    /// Whether a path of `hops` hops could be better than the best so far.
    fn longer_may_win(&mut self, hops: usize) -> bool {
        let Some(best) = self.best else { return true };
        let bound = || upper_bound((self.graph, self.edges), self.shape, self.rates);
        let bound = *self.bound.get_or_insert_with(bound);
        match self.rates.model {
            CostModel::Paper => best.prediction.throughput * (1.0 + SAME) < bound,
            CostModel::Default => self.least_seconds(bound, hops) < self.bar_seconds(&best),
        }
    }

    fn bar_seconds(&self, best: &Found) -> f64 {
        best.prediction.seconds * WORTHWHILE
    }

    fn least_seconds(&self, throughput: f64, hops: usize) -> f64 {
        let latency = self.graph.lanes.iter().map(|l| l.latency_ns).min().unwrap_or(0);
        self.shape.payload as f64 / throughput + hops as f64 * latency as f64 * 1e-9
    }

    /// All paths of `hops` hops that are not worse than the best by their peaks alone.
    fn collect(&mut self, hops: usize, leaves: &mut Vec<Leaf>) {
        let mut walk = Walk { path: Path::EMPTY, visited: 1u64 << self.graph.src, loops: 0 };
        self.extend(&mut walk, self.graph.src, hops, leaves);
    }

    fn extend(&mut self, walk: &mut Walk, at: u8, left: usize, leaves: &mut Vec<Leaf>) {
        let (graph, edges) = (self.graph, self.edges);
        for &edge in edges.out(at) {
            if self.report.exhausted || self.rates.copy(edge.lane) < self.bar() {
                continue;
            }
            if left == 1 {
                if edge.to == graph.dst && walk.may_end(edge.from, edge.to, graph.src == graph.dst)
                {
                    walk.path.push(edge);
                    self.leaf(&walk.path, leaves);
                    walk.path.pop();
                }
                continue;
            }
            let far = usize::from(self.distance[usize::from(edge.to)]) > left - 1;
            if far || graph.th_bytes(edge.to) == 0 || !walk.may_visit(edge.from, edge.to) {
                continue;
            }
            self.walked += 1;
            self.report.exhausted |=
                self.walked > self.most_paths().saturating_mul(MAX_HOPS as u64);
            let before = (walk.visited, walk.loops);
            walk.visit(edge.from, edge.to);
            walk.path.push(edge);
            self.extend(walk, edge.to, left - 1, leaves);
            walk.path.pop();
            (walk.visited, walk.loops) = before;
        }
    }

    /// What a hop must reach for its path to be worth a look.
    fn bar(&self) -> f64 {
        let Some(best) = &self.best else { return 0.0 };
        match self.rates.model {
            CostModel::Paper => best.prediction.throughput * (1.0 + SAME),
            CostModel::Default => self.shape.payload as f64 / self.bar_seconds(best),
        }
    }

    fn most_paths(&self) -> u64 {
        self.report.budget.saturating_mul(PATHS)
    }

    fn leaf(&mut self, path: &Path, leaves: &mut Vec<Leaf>) {
        self.report.paths += 1;
        self.report.exhausted |= self.report.paths > self.most_paths();
        let ceiling = PathRates::of(self.graph, self.rates, path).ceiling();
        if ceiling < self.bar() {
            return;
        }
        let peaks = path.edges().iter().map(|&edge| self.graph.lane(edge).peak()).product();
        leaves.push(Leaf { path: *path, ceiling, peaks });
    }

    /// Solves `leaf` if it could be best. False where no later leaf of its length could be.
    fn visit(&mut self, leaf: &Leaf) -> bool {
        if let Some(best) = &self.best {
            let hopeless = match self.rates.model {
                CostModel::Paper => leaf.ceiling < best.prediction.throughput * (1.0 - SAME),
                CostModel::Default => {
                    self.shape.payload as f64 / leaf.ceiling > self.bar_seconds(best)
                }
            };
            if hopeless {
                return false;
            }
        }
        if self.report.solved >= self.report.budget {
            self.report.exhausted = true;
            return false;
        }
        match self.rates.model {
            CostModel::Paper => self.solve_paper(leaf),
            CostModel::Default => self.solve_timed(leaf),
        }
        true
    }

    fn solve_paper(&mut self, leaf: &Leaf) {
        let same_length = self.best.filter(|b| b.path.hops() == leaf.path.hops());
        let bar = match (&self.best, same_length) {
            (_, Some(best)) => best.prediction.throughput * (1.0 - SAME),
            (Some(best), None) => best.prediction.throughput * (1.0 + SAME),
            (None, _) => 0.0,
        };
        self.report.solved += leaf.path.hops() as u64;
        if let Some((_, solution)) = self.solver().best(&leaf.path, bar) {
            self.offer(leaf, solution);
        }
    }

    /// The default model weighs a smaller granule against a longer run: a few throughputs below
    /// the best one are tried.
    fn solve_timed(&mut self, leaf: &Leaf) {
        let rates = PathRates::of(self.graph, self.rates, &leaf.path);
        let solver = self.solver();
        for pivot in 0..leaf.path.hops() {
            let bar = self.bar();
            self.report.solved += 1;
            let Some((top, solution)) = solver.best_with_pivot(&leaf.path, &rates, pivot, bar)
            else {
                continue;
            };
            self.offer(leaf, solution);
            if solver.same() {
                break;
            }
            let between = pivot > 0 && pivot + 1 < leaf.path.hops();
            for part in [0.9, 0.7, 0.5, 0.25].into_iter().filter(|_| between) {
                if top * part <= self.bar() {
                    break;
                }
                self.report.solved += 1;
                if let Some(solution) = solver.at(&leaf.path, &rates, pivot, top * part) {
                    self.offer(leaf, solution);
                }
            }
        }
    }

    fn solver(&self) -> Solver<'a> {
        Solver { graph: self.graph, shape: self.shape, rates: self.rates, tolerance: TOLERANCE }
    }

    fn offer(&mut self, leaf: &Leaf, solution: Solution) {
        let case = Case {
            graph: self.graph,
            shape: self.shape,
            model: self.rates.model,
            path: &leaf.path,
            solution: &solution,
        };
        let prediction = case.predict();
        let found = Found { path: leaf.path, solution, prediction, peaks: leaf.peaks };
        match self.best {
            None => self.best = Some(found),
            Some(best) if self.is_better(&found, &best) => {
                self.best = Some(found);
                self.beaten.retain(|b| b.path != leaf.path);
                self.remember(best, &leaf.path);
            }
            Some(best) => self.remember(found, &best.path),
        }
    }

    fn remember(&mut self, found: Found, winner: &Path) {
        if self.keep > 0 && found.path != *winner {
            self.beaten.retain(|b| b.path != found.path);
            self.beaten.insert(0, found);
            self.beaten.truncate(self.keep);
        }
    }

    fn is_better(&self, a: &Found, b: &Found) -> bool {
        match self.rates.model {
            CostModel::Paper => self.is_better_paper(a, b),
            CostModel::Default => {
                let (new, old) = (a.prediction.seconds, b.prediction.seconds);
                let tied = (new - old).abs() <= old * SAME;
                if tied { a.peaks > b.peaks * (1.0 + SAME) } else { new < old }
            }
        }
    }

    /// The greater throughput; then the greater sum of log peak throughputs, the smaller sum of
    /// shuffles, and the earlier in the file. Fewer hops come first: a longer path is offered only
    /// where it has more.
    fn is_better_paper(&self, a: &Found, b: &Found) -> bool {
        let (new, old) = (a.prediction.throughput, b.prediction.throughput);
        if (new - old).abs() > old * SAME {
            return new > old;
        }
        if (a.peaks - b.peaks).abs() > b.peaks * SAME {
            return a.peaks > b.peaks;
        }
        let (a_sum, b_sum) = (shuffles(a), shuffles(b));
        if a_sum != b_sum {
            return a_sum < b_sum;
        }
        a.path.edges() < b.path.edges()
    }
}

fn shuffles(found: &Found) -> u128 {
    let hops = &found.prediction.hops[..found.path.hops()];
    hops.iter().map(|h| u128::from(h.step.shuffle_bytes)).sum()
}

/// A path under way: acyclic, but for one use of each self-loop and an end that is also the start.
struct Walk {
    path: Path,
    visited: u64,
    loops: u64,
}

impl Walk {
    fn may_visit(&self, from: u8, to: u8) -> bool {
        let taken = if from == to { self.loops } else { self.visited };
        taken & (1 << to) == 0
    }

    /// Whether the last hop may lead from `from` to the end `to`: where the ends are one memory it
    /// comes back to the start.
    fn may_end(&self, from: u8, to: u8, round: bool) -> bool {
        (round && from != to) || self.may_visit(from, to)
    }

    fn visit(&mut self, from: u8, to: u8) {
        if from == to {
            self.loops |= 1 << to;
        }
        self.visited |= 1 << to;
    }
}

/// For each vertex, the fewest hops to the destination through memories that may be intermediates;
/// 255 where there is no way.
fn distances(graph: &Graph<'_>, edges: &Edges) -> Vec<u8> {
    let mut distance = vec![u8::MAX; graph.vertices.len()];
    for hops in 1..=MAX_HOPS as u8 {
        for edge in &edges.all {
            let ends = edge.to == graph.dst && hops == 1;
            let leads = graph.th_bytes(edge.to) > 0 && distance[usize::from(edge.to)] == hops - 1;
            let onward = ends || leads;
            let from = &mut distance[usize::from(edge.from)];
            if onward && *from > hops {
                *from = hops;
            }
        }
    }
    distance
}
