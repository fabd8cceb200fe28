//! Sets of indices of one dimension that loops can walk, and how they are cut.

use crate::digits::{Digit, products};
use crate::short::Short;
use std::ops::Range;

/// A loop over indices: `count` of them, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Loop {
    /// How often it runs; at least 2.
    pub count: u64,
    /// How far apart neighbours are; at least 1.
    pub step: u64,
}

/// The indices `start + Σ counter · step`, all different. Steps descend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lattice {
    pub(crate) start: u64,
    pub(crate) loops: Short<Loop, 4>,
}

impl Lattice {
    /// The indices of `range`, which isn't empty.
    pub(crate) fn interval(range: Range<u64>) -> Self {
        let count = range.end - range.start;
        let loops = (count > 1).then_some(Loop { count, step: 1 }).into_iter().collect();
        Lattice { start: range.start, loops }
    }

    /// The smallest index.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The loops, largest step first. With none, there is one index.
    #[must_use]
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The number of indices.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.loops.iter().map(|l| l.count).product()
    }

    /// Always false: a lattice has an index at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The indices, outermost loop slowest.
    #[must_use]
    pub fn indices(&self) -> Vec<u64> {
        let mut indices = vec![self.start];
        for l in self.loops.iter() {
            let spread = |base: u64| (0..l.count).map(move |i| base + i * l.step);
            indices = indices.into_iter().flat_map(spread).collect();
        }
        indices
    }

    /// The indices for which loop `k` counts in `range`.
    fn slice(&self, k: usize, range: Range<u64>) -> Self {
        let mut sliced = self.clone();
        sliced.start += range.start * self.loops[k].step;
        sliced.loops[k].count = range.end - range.start;
        if sliced.loops[k].count == 1 {
            sliced.loops.remove(k);
        }
        sliced
    }

    /// The distance from the first to the last index of the loops for which `which` holds.
    fn reach(&self, which: impl Fn(&Loop) -> bool) -> u64 {
        self.loops.iter().filter(|l| which(l)).map(|l| (l.count - 1) * l.step).sum()
    }
}

/// The indices of `indices` whose digits lie in `ranges`, counted from `indices.start`.
pub(crate) fn lattices(
    digits: &[Digit],
    ranges: &[Range<u64>],
    indices: &Range<u64>,
) -> Vec<Lattice> {
    if let Some(interval) = interval_of(digits, ranges, indices) {
        return interval.into_iter().map(Lattice::interval).collect();
    }
    let lattice = |ranges: Vec<Range<u64>>| of_product(digits, &ranges, indices.start);
    products(digits, ranges, indices).into_iter().map(lattice).collect()
}

/// The interval that the digits make where the slower ones are fixed and the faster ones free:
/// `None` if they aren't, `Some(None)` if it is empty.
fn interval_of(
    digits: &[Digit],
    ranges: &[Range<u64>],
    indices: &Range<u64>,
) -> Option<Option<Range<u64>>> {
    let is_free = |j: usize| ranges[j].start == 0 && ranges[j].end == digits[j].size;
    let is_fixed = |j: usize| ranges[j].end - ranges[j].start == 1;
    let run = (0..digits.len()).find(|&j| !is_free(j)).unwrap_or(digits.len() - 1);
    if !(run + 1..digits.len()).all(is_fixed) {
        return None;
    }
    let above: u64 = (run + 1..digits.len()).map(|j| ranges[j].start * digits[j].place).sum();
    let at = |value: u64| above.saturating_add(value.saturating_mul(digits[run].place));
    let start = at(ranges[run].start).max(indices.start);
    let end = at(ranges[run].end).min(indices.end);
    Some((start < end).then(|| start - indices.start..end - indices.start))
}

/// The lattice of a product of digit ranges, counted from `origin`.
fn of_product(digits: &[Digit], ranges: &[Range<u64>], origin: u64) -> Lattice {
    let start: u64 = digits.iter().zip(ranges).map(|(d, r)| r.start * d.place).sum();
    let mut loops: Short<Loop, 4> = Short::new();
    for (digit, range) in digits.iter().zip(ranges) {
        let count = range.end - range.start;
        match loops.last_mut() {
            _ if count == 1 => {}
            Some(last) if last.count * last.step == digit.place => last.count *= count,
            _ => loops.push(Loop { count, step: digit.place }),
        }
    }
    loops.reverse();
    Lattice { start: start - origin, loops }
}

/// Cuts `lattice` so that a loop either steps by whole blocks of `block` or stays in one; block
/// boundaries lie where `index + phase` is a multiple of `block`.
pub(crate) fn split_at_blocks(lattice: Lattice, block: u64, phase: u64, out: &mut Vec<Lattice>) {
    let mut rest = Some(lattice);
    while let Some(lattice) = rest.take() {
        match carrying_loop(&lattice, block, phase) {
            None => out.push(lattice),
            Some(k) => rest = split_carrying(lattice, k, (block, phase), out),
        }
    }
}

/// The largest loop that leaves a block other than by whole blocks, if one does.
pub(crate) fn carrying_loop(lattice: &Lattice, block: u64, phase: u64) -> Option<usize> {
    let k = lattice.loops.iter().position(|l| l.step % block != 0)?;
    let within = (lattice.start + phase) % block;
    (within + lattice.reach(|l| l.step % block != 0) >= block).then_some(k)
}

/// Cuts what comes before loop `k` leaves its block off `lattice` and returns the remainder, or
/// turns loop `k` into a loop over periods.
fn split_carrying(
    lattice: Lattice,
    k: usize,
    (block, phase): (u64, u64),
    out: &mut Vec<Lattice>,
) -> Option<Lattice> {
    let Loop { count, step } = lattice.loops[k];
    let within = (lattice.start + phase) % block;
    let head = (block - within).div_ceil(step);
    let period = block / gcd(step, block);
    if head >= count {
        split_inner(&lattice, k, (block, phase), out);
        return None;
    }
    if within < step && count / 2 >= period {
        let whole = count - count % period;
        split_at_blocks(periodic(lattice.slice(k, 0..whole), k, period), block, phase, out);
        return (whole < count).then(|| lattice.slice(k, whole..count));
    }
    split_at_blocks(lattice.slice(k, 0..head), block, phase, out);
    Some(lattice.slice(k, head..count))
}

/// Loop `k` stays in its block, but with the loops inside it doesn't: takes its counts apart
/// where that happens.
fn split_inner(lattice: &Lattice, k: usize, (block, phase): (u64, u64), out: &mut Vec<Lattice>) {
    let Loop { count, step } = lattice.loops[k];
    let inner = lattice.reach(|l| l.step % block != 0) - (count - 1) * step;
    let room = block.saturating_sub((lattice.start + phase) % block + inner);
    let fitting = room.div_ceil(step).min(count);
    if fitting > 0 {
        out.push(lattice.slice(k, 0..fitting));
    }
    for i in fitting..count {
        split_at_blocks(lattice.slice(k, i..i + 1), block, phase, out);
    }
}

/// Loop `k` as a loop over periods of `period` counts, and one inside a period.
fn periodic(mut lattice: Lattice, k: usize, period: u64) -> Lattice {
    let Loop { count, step } = lattice.loops[k];
    lattice.loops[k] = Loop { count: period, step };
    lattice.loops.push(Loop { count: count / period, step: step * period });
    lattice.loops.sort_by_key(|l| std::cmp::Reverse(l.step));
    lattice
}

/// Cuts `lattice` into indices whose `value` lies below `at`, and the others. `value` is affine
/// on the lattice and doesn't fall.
pub(crate) fn split_at_value(
    lattice: Lattice,
    value: &dyn Fn(u64) -> u64,
    at: u64,
    out: &mut Vec<Lattice>,
) {
    if !is_cut_at(&lattice, value, at) {
        out.push(lattice);
        return;
    }
    let (first, reach) = values_of(&lattice, value);
    let rise = |l: &Loop| value(lattice.start + l.step) - first;
    let k = (0..lattice.loops.len()).max_by_key(|&k| rise(&lattice.loops[k])).unwrap_or(0);
    let (count, by) = (lattice.loops[k].count, rise(&lattice.loops[k]));
    let inner = reach - (count - 1) * by;
    let below = at.saturating_sub(first + inner).div_ceil(by).min(count);
    let above = (at - first).div_ceil(by).min(count);
    if below > 0 {
        out.push(lattice.slice(k, 0..below));
    }
    for i in below..above {
        split_at_value(lattice.slice(k, i..i + 1), value, at, out);
    }
    if above < count {
        out.push(lattice.slice(k, above..count));
    }
}

/// Whether `value` lies below `at` for some indices of `lattice` and not for others.
pub(crate) fn is_cut_at(lattice: &Lattice, value: &dyn Fn(u64) -> u64, at: u64) -> bool {
    let (first, reach) = values_of(lattice, value);
    first < at && first + reach >= at
}

/// The value of the first index, and how much larger that of the last is.
fn values_of(lattice: &Lattice, value: &dyn Fn(u64) -> u64) -> (u64, u64) {
    let first = value(lattice.start);
    let rise = |l: &Loop| (l.count - 1) * (value(lattice.start + l.step) - first);
    (first, lattice.loops.iter().map(rise).sum())
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
