//! The layouts and blocking factors that make one path fastest (paper, section 4.2, parts 2, 3).
//!
//! For a wanted throughput, each hop's function has a least request, its *need*: the function of the
//! shape class that it leaves, so that a need below a line is that of single elements. A hop at an
//! end may reorder anything beyond a prefix of its need; a hop between intermediates may reorder
//! within a window of at most `TH`, beyond a prefix of its need. Three facts make the search
//! small without losing a better answer:
//!
//! 1. Some hop changes the order where the two ends first differ, and so has at most their common
//!    prefix for a request. If it is the first or the last hop, it may as well do everything.
//!    Otherwise it is between intermediates, and with one `TH` for these it may as well do what
//!    all other hops between intermediates do: the composite keeps the shorter prefix and the
//!    larger window. It is called the pivot. (Where the memories of one path have different `TH`
//!    the search still allows one pivot only.)
//! 2. Before the pivot the layout then starts with the least prefix `A` of the source's that the
//!    first hop needs, after it with the least prefix `B` of the destination's that the last hop
//!    needs: a longer one makes the window larger. Or the window is already a prefix of an end's
//!    layout, and that end's hop copies in order.
//! 3. `A` and `B` each cut at most one dimension, and the least integer factor that satisfies
//!    the need is the best one. So feasibility is decided on integers, without a solver.

use crate::graph::Graph;
use crate::path::{MAX_HOPS, Path, Solution};
use crate::predict::granules;
use crate::rates::{Rates, least_prefix};
use crate::shape::{Factors, Shape, WHOLE};
use crate::word::{SPLIT, Word};
use model::CostModel;

/// How close, relatively, the full algorithm comes to the best throughput of a path.
pub(crate) const TOLERANCE: f64 = 1e-7;
/// Times nearer than this, relatively, are equal.
const SAME: f64 = 1e-12;

/// What the ends' hops need for some throughput, and the largest window between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) first_bytes: u64,
    pub(crate) last_bytes: u64,
    pub(crate) window_bytes: u64,
}

/// What a hop may do for a throughput: the least time a byte that other hops leave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathRates {
    hops: usize,
    /// The rate of a copy in order on each hop.
    copy: [f64; MAX_HOPS],
    /// Seconds a byte that other hops on the same channel or half-duplex wire take.
    others: [f64; MAX_HOPS],
    /// Seconds a byte that the hop's half-duplex wire takes at least.
    wire: [f64; MAX_HOPS],
}

impl PathRates {
    pub(crate) fn of(graph: &Graph<'_>, rates: &Rates<'_>, path: &Path) -> PathRates {
        let none = [0.0; MAX_HOPS];
        let mut made = PathRates { hops: path.hops(), copy: none, others: none, wire: none };
        for (i, edge) in path.edges().iter().enumerate() {
            made.copy[i] = rates.copy(edge.lane);
            if rates.model == CostModel::Paper {
                continue;
            }
            let lane = &graph.lanes[usize::from(edge.lane)];
            made.wire[i] = lane.busy_seconds(f64::INFINITY);
            for (k, other) in path.edges().iter().enumerate() {
                let other_lane = &graph.lanes[usize::from(other.lane)];
                if k != i && lane.excludes(other_lane) {
                    made.others[i] += other_lane.busy_seconds(rates.copy(other.lane));
                }
            }
        }
        made
    }

    /// The rate that hop `hop` alone must have for the path to have `throughput`; more than any
    /// channel's where it can't.
    fn wanted(&self, hop: usize, throughput: f64) -> f64 {
        if self.others[hop] + self.wire[hop] == 0.0 {
            return throughput;
        }
        let left = 1.0 / throughput - self.others[hop];
        let enough = left > 0.0 && left >= self.wire[hop] * (1.0 - SAME);
        if enough { 1.0 / left } else { f64::INFINITY }
    }

    /// What `rate` of hop `hop` alone gives the path.
    fn given(&self, hop: usize, rate: f64) -> f64 {
        if self.others[hop] + self.wire[hop] == 0.0 {
            return rate;
        }
        1.0 / ((1.0 / rate).max(self.wire[hop]) + self.others[hop])
    }

    /// The throughput if every hop copied in order.
    pub(crate) fn ceiling(&self) -> f64 {
        (0..self.hops).map(|i| self.given(i, self.copy[i])).fold(f64::INFINITY, f64::min)
    }

    /// As [`PathRates::ceiling`], but with `rate` at hop `hop`.
    fn ceiling_with(&self, hop: usize, rate: f64) -> f64 {
        let others = (0..self.hops).filter(|&i| i != hop).map(|i| self.given(i, self.copy[i]));
        others.fold(self.given(hop, rate), f64::min)
    }
}

/// Solves paths of one transfer.
#[derive(Clone, Copy)]
pub(crate) struct Solver<'a> {
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) rates: &'a Rates<'a>,
    /// How close, relatively, the search for the best throughput comes.
    pub(crate) tolerance: f64,
}

impl Solver<'_> {
    /// Whether the ends have one order, so that no hop converts.
    pub(crate) fn same(&self) -> bool {
        self.shape.mixable && self.shape.src == self.shape.dst
    }

    /// The best solution of `path` whose throughput is more than `bar`, and that throughput.
    pub(crate) fn best(&self, path: &Path, bar: f64) -> Option<(f64, Solution)> {
        let rates = PathRates::of(self.graph, self.rates, path);
        let mut best: Option<(f64, Solution)> = None;
        for pivot in 0..path.hops() {
            let bar = best.map_or(bar, |(throughput, _)| throughput);
            if let Some(found) = self.best_with_pivot(path, &rates, pivot, bar) {
                best = Some(found);
            }
            if self.same() {
                break;
            }
        }
        best
    }

    /// The best solution in which hop `pivot` changes the first difference.
    pub(crate) fn best_with_pivot(
        &self,
        path: &Path,
        rates: &PathRates,
        pivot: usize,
        bar: f64,
    ) -> Option<(f64, Solution)> {
        let lane = path.edges()[pivot].lane;
        let ceiling = rates.ceiling_with(pivot, self.rates.convert(lane));
        if ceiling <= bar {
            return None;
        }
        if self.same() || pivot == 0 || pivot + 1 == path.hops() {
            return Some((ceiling, Solution::ends(self.shape, pivot)));
        }
        if let Some(solution) = self.at(path, rates, pivot, ceiling) {
            return Some((ceiling, solution));
        }
        let mut low = (bar * (1.0 + self.tolerance)).max(ceiling * 1e-9);
        let mut found = self.at(path, rates, pivot, low)?;
        let mut high = ceiling;
        while high > low * (1.0 + self.tolerance) {
            let middle = if high > 4.0 * low { (low * high).sqrt() } else { (low + high) / 2.0 };
            match self.at(path, rates, pivot, middle) {
                Some(solution) => (low, found) = (middle, solution),
                None => high = middle,
            }
        }
        Some((low, found))
    }

    /// Layouts with which `path` has `throughput`, if there are any.
    pub(crate) fn at(
        &self,
        path: &Path,
        rates: &PathRates,
        pivot: usize,
        throughput: f64,
    ) -> Option<Solution> {
        let last = path.hops() - 1;
        let need = |hop: usize| {
            let curves = &self.graph.lane(path.edges()[hop]).curves;
            least_prefix(self.rates.model, curves, rates.wanted(hop, throughput))
        };
        let edge = path.edges()[pivot];
        let th = self.graph.th_bytes(edge.from).min(self.graph.th_bytes(edge.to));
        let needs = Needs {
            first_bytes: need(0)?,
            last_bytes: need(last)?,
            window_bytes: th / granules(self.rates.model),
        };
        self.fit(pivot, &needs)
    }

    /// As [`Fitter::fit`].
    pub(crate) fn fit(&self, pivot: usize, needs: &Needs) -> Option<Solution> {
        Fitter { shape: self.shape }.fit(pivot, needs)
    }
}

/// Finds layouts around a pivot.
pub(crate) struct Fitter<'a> {
    pub(crate) shape: &'a Shape,
}

impl Fitter<'_> {
    /// Layouts around a pivot that satisfy `needs`, with the smallest shuffles at the ends.
    pub(crate) fn fit(&self, pivot: usize, needs: &Needs) -> Option<Solution> {
        let direct = Solution::ends(self.shape, pivot);
        if !self.shape.mixable {
            return self.fits(&direct, needs).then_some(direct);
        }
        let (mut a, mut b) = self.least_prefixes(needs);
        let candidates = [direct, self.after_only(pivot, &b), self.before_only(pivot, &a)];
        if let Some(found) = self.smallest(candidates, needs) {
            return Some(found);
        }
        let factors = join(&mut a, &mut b);
        let orders = [0, 1].map(|end| self.shape.end_word(end, &factors));
        let both = orders.map(|rest| {
            let (mut before, mut after) = (a.word, b.word);
            before.push_missing(&b.word);
            after.push_missing(&a.word);
            before.push_missing(&rest);
            after.push_missing(&rest);
            Solution { factors, pivot, before, after }
        });
        self.smallest([direct, both[0], both[1]], needs)
    }

    /// The first hop copies in order; the last needs `b`.
    fn after_only(&self, pivot: usize, b: &Prefix) -> Solution {
        let factors = b.factors();
        let before = self.shape.end_word(0, &factors);
        let mut after = b.word;
        after.push_missing(&before);
        Solution { factors, pivot, before, after }
    }

    /// The last hop copies in order; the first needs `a`.
    fn before_only(&self, pivot: usize, a: &Prefix) -> Solution {
        let factors = a.factors();
        let after = self.shape.end_word(1, &factors);
        let mut before = a.word;
        before.push_missing(&after);
        Solution { factors, pivot, before, after }
    }

    fn fits(&self, solution: &Solution, needs: &Needs) -> bool {
        let window = solution.before.below_suffix(&solution.after);
        self.shape.shuffle_bytes(window, &solution.factors) <= needs.window_bytes
    }

    /// Of the candidates that fit, the one whose ends shuffle least; the first on a tie.
    fn smallest<const N: usize>(
        &self,
        candidates: [Solution; N],
        needs: &Needs,
    ) -> Option<Solution> {
        let mut best: Option<(u128, Solution)> = None;
        for solution in candidates.into_iter().filter(|s| self.fits(s, needs)) {
            let shuffles = self.shuffles(&solution);
            if best.is_none_or(|(least, _)| shuffles < least) {
                best = Some((shuffles, solution));
            }
        }
        best.map(|(_, solution)| solution)
    }

    /// The sum of the shuffles of a solution's three converting hops.
    fn shuffles(&self, solution: &Solution) -> u128 {
        let (shape, factors) = (self.shape, &solution.factors);
        let [src, dst] = [0, 1].map(|end| shape.end_word(end, factors));
        let hops = [
            (&src, &solution.before),
            (&solution.before, &solution.after),
            (&solution.after, &dst),
        ];
        let shuffle = |(from, to): (&Word, &Word)| {
            let equal = from == to;
            let bytes = shape.shuffle_bytes(from.below_suffix(to), factors);
            if equal { 1 } else { u128::from(bytes) }
        };
        hops.into_iter().map(shuffle).sum()
    }

    /// The least prefixes of the ends that satisfy the needs of the hops there.
    fn least_prefixes(&self, needs: &Needs) -> (Prefix, Prefix) {
        let reach = |word, need| Prefix::reach(self.shape, word, need);
        (reach(&self.shape.src, needs.first_bytes), reach(&self.shape.dst, needs.last_bytes))
    }
}

/// A prefix of a word, with at most one dimension cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    pub(crate) word: Word,
    /// The dimension that is cut, its factor, and its unit.
    cut: Option<(usize, u64, u8)>,
}

impl Prefix {
    /// The least prefix of `word` with at least `need` bytes, or all of it.
    fn reach(shape: &Shape, word: &Word, need: u64) -> Prefix {
        let mut made = Word::EMPTY;
        let (mut entries, mut with_fields) = (1u64, false);
        for &atom in word.atoms() {
            let bytes = entries.saturating_mul(shape.field_bytes(with_fields));
            if bytes >= need {
                break;
            }
            let size = shape.size(atom, &WHOLE);
            if atom == 0 {
                with_fields = true;
            } else {
                let factor = need.div_ceil(bytes);
                if let Some(dim) = shape.split_dim(atom).filter(|_| factor < size) {
                    made.push(SPLIT + dim as u8);
                    return Prefix { word: made, cut: Some((dim, factor, atom)) };
                }
                entries = entries.saturating_mul(size);
            }
            made.push(atom);
        }
        Prefix { word: made, cut: None }
    }

    fn factors(&self) -> Factors {
        let mut factors = WHOLE;
        if let Some((dim, factor, _)) = self.cut {
            factors[dim] = factor;
        }
        factors
    }

    /// Takes the cut dimension whole.
    fn uncut(&mut self) {
        let Some((dim, _, unit)) = self.cut.take() else { return };
        let mut word = Word::EMPTY;
        for &atom in self.word.atoms() {
            word.push(if usize::from(atom) == usize::from(SPLIT) + dim { unit } else { atom });
        }
        self.word = word;
    }

    fn has(&self, atom: u8) -> bool {
        self.word.atoms().contains(&atom)
    }
}

/// The factors of two prefixes together: a dimension that both cut takes the larger factor, one
/// that the other holds whole is not cut.
fn join(a: &mut Prefix, b: &mut Prefix) -> Factors {
    if a.cut.is_some_and(|(_, _, unit)| b.has(unit)) {
        a.uncut();
    }
    if b.cut.is_some_and(|(_, _, unit)| a.has(unit)) {
        b.uncut();
    }
    let mut factors = a.factors();
    if let Some((dim, factor, _)) = b.cut {
        factors[dim] = factors[dim].max(factor);
    }
    factors
}

#[cfg(test)]
mod tests;
