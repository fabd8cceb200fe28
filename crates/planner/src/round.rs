//! Blocking factors whose runs fill whole pages and lines.
//!
//! The search gives the least factors that reach a throughput: 2537 entries of 4 bytes, say. Around
//! them lie others that predict about the same, and whose runs start and end where disks and
//! caches do. The default model takes those; the paper's keeps what section 4.2 finds.

use crate::assemble::Frame;
use crate::path::{Path, Solution};
use crate::predict::{Case, PAGE_BYTES, Prediction};
use crate::shape::{Factors, WHOLE};
use model::MAX_DIMS;

/// What a rounded factor may cost of the predicted time. The curves do not know of lines that two
/// requests share, of the scalar edges of a kernel, nor what a write off the page makes the page
/// cache read; each of these is more.
const WORTH: f64 = 1.02;
/// The step of runs at a disk: pages, or the blocks that direct I/O takes at the least.
const DISK_BYTES: [u64; 2] = [PAGE_BYTES, 512];
/// The step of runs in memory: a cache line.
const LINE_BYTES: u64 = 64;

/// `path` with its factors rounded; `None` where they are round, or rounding costs too much.
pub(crate) fn rounded(
    frame: &Frame<'_>,
    path: &Path,
    (solution, prediction): (&Solution, &Prediction),
) -> Option<(Solution, Prediction)> {
    let found = Rounding { frame, path, solution };
    for disk_bytes in DISK_BYTES.into_iter().chain([LINE_BYTES]) {
        let steps = found.steps(disk_bytes);
        let round = |dim: usize| solution.factors[dim].is_multiple_of(steps[dim]);
        if (0..MAX_DIMS).all(round) {
            return None;
        }
        let best = found.best(&steps);
        let enough = best.filter(|(_, p)| p.seconds <= prediction.seconds * WORTH);
        if enough.is_some() {
            return enough;
        }
    }
    None
}

struct Rounding<'a> {
    frame: &'a Frame<'a>,
    path: &'a Path,
    solution: &'a Solution,
}

impl Rounding<'_> {
    /// For each dimension, what its factor must be a multiple of for the runs at both ends to be
    /// multiples of `disk_bytes` at a disk and of a line elsewhere; 1 where it is not split, or no
    /// factor makes them start there.
    fn steps(&self, disk_bytes: u64) -> Factors {
        let (shape, factors) = (self.frame.shape, &self.solution.factors);
        let mut steps = WHOLE;
        let ends = [(0, &shape.src, &self.solution.before), (1, &shape.dst, &self.solution.after)];
        for (end, word, beside) in ends {
            let prefix = shape.compact(word, factors).common_prefix(beside);
            let Some(dim) = shape.cut_dim(prefix, factors) else { continue };
            let entry_bytes = shape.prefix_bytes(prefix, factors) / factors[dim];
            let disk = self.at_disk(end);
            for unit in if disk { [disk_bytes, LINE_BYTES] } else { [LINE_BYTES; 2] } {
                let starts = entry_bytes.saturating_mul(shape.split_size(dim));
                if starts.is_multiple_of(unit) {
                    let step = unit / gcd(unit, entry_bytes);
                    // Both are powers of two, so that the larger is a multiple of the other.
                    steps[dim] = steps[dim].max(step);
                    break;
                }
            }
        }
        steps
    }

    fn at_disk(&self, end: usize) -> bool {
        let hop = if end == 0 { 0 } else { self.path.hops() - 1 };
        self.case(self.solution).at_disk(hop)
    }

    fn case<'b>(&'b self, solution: &'b Solution) -> Case<'b> {
        let Frame { graph, shape, model, .. } = *self.frame;
        Case { graph, shape, model, path: self.path, solution }
    }

    /// The best of the factors around the solution's that are multiples of `steps` and fit.
    fn best(&self, steps: &Factors) -> Option<(Solution, Prediction)> {
        let mut split = (0..MAX_DIMS).filter(|&dim| self.solution.factors[dim] > 1);
        let (first, second) = (split.next()?, split.next());
        let mut best = None;
        for start in self.around(&self.solution.factors, first, steps) {
            let Some(second) = second else {
                self.offer(&start, &mut best);
                continue;
            };
            for factors in self.around(&start, second, steps) {
                self.offer(&factors, &mut best);
                self.offer(&self.grown(&factors, first, steps), &mut best);
            }
            self.offer(&self.grown(&start, second, steps), &mut best);
        }
        best
    }

    /// `factors` with that of `dim` rounded down and up.
    fn around(&self, factors: &Factors, dim: usize, steps: &Factors) -> [Factors; 2] {
        let down = factors[dim] / steps[dim] * steps[dim];
        let up = factors[dim].next_multiple_of(steps[dim]);
        [down.max(steps[dim]), up].map(|factor| with(factors, dim, factor))
    }

    /// `factors` with the greatest of `dim` that leaves the window within its rings.
    fn grown(&self, factors: &Factors, dim: usize, steps: &Factors) -> Factors {
        let one = self.window_bytes(&with(factors, dim, steps[dim]));
        let most = self.frame.shape.split_size(dim) / steps[dim];
        let times = (self.room_bytes() / one.max(1)).clamp(1, most.max(1));
        with(factors, dim, times * steps[dim])
    }

    fn window_bytes(&self, factors: &Factors) -> u64 {
        let window = self.solution.before.below_suffix(&self.solution.after);
        self.frame.shape.shuffle_bytes(window, factors)
    }

    fn room_bytes(&self) -> u64 {
        self.case(self.solution).window_bytes(self.solution.pivot)
    }

    /// Keeps `factors` if they fit and are better. A factor that leaves no outer part is another
    /// layout, and not offered.
    fn offer(&self, factors: &Factors, best: &mut Option<(Solution, Prediction)>) {
        let split = |dim: &usize| self.solution.factors[*dim] > 1;
        let cuts = |dim| (2..self.frame.shape.split_size(dim)).contains(&factors[dim]);
        let fits = (0..MAX_DIMS).filter(split).all(cuts);
        if !fits || self.window_bytes(factors) > self.room_bytes() {
            return;
        }
        let solution = Solution { factors: *factors, ..*self.solution };
        let prediction = self.frame.predict(self.path, &solution);
        if best.is_none_or(|(_, b)| prediction.seconds < b.seconds) {
            *best = Some((solution, prediction));
        }
    }
}

fn with(factors: &Factors, dim: usize, factor: u64) -> Factors {
    let mut factors = *factors;
    factors[dim] = factor;
    factors
}

/// The greatest common divisor; `a` must not be 0.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
