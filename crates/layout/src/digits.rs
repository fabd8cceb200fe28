//! Mixed-radix indices: a blocked dimension counts in digits.

use std::ops::Range;

/// One digit of an index: `(index / place) % size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digit {
    /// The weight of the digit: the product of the sizes below.
    pub(crate) place: u64,
    /// How many values it has; `u64::MAX` for the outermost.
    pub(crate) size: u64,
}

impl Digit {
    /// The digit of a dimension that isn't blocked.
    pub(crate) const WHOLE: Digit = Digit { place: 1, size: u64::MAX };

    /// The digit's value in `index`.
    pub(crate) fn of(self, index: u64) -> u64 {
        match self {
            Digit { place: 1, size: u64::MAX } => index,
            Digit { place, size: u64::MAX } => index / place,
            Digit { place, size } => (index / place) % size,
        }
    }
}

/// The digits of a dimension with these block sizes, innermost first. Places past 64 bits are
/// held at the maximum, where every index has digit 0.
pub(crate) fn digits_of(blocks: impl Iterator<Item = u64>) -> Vec<Digit> {
    let mut place = 1u64;
    let mut digits = Vec::new();
    for size in blocks {
        digits.push(Digit { place, size });
        place = place.saturating_mul(size);
    }
    digits.push(Digit { place, size: u64::MAX });
    digits
}

/// How many indices below `bound` have every digit within its range.
fn count_below(digits: &[Digit], ranges: &[Range<u64>], bound: u64) -> u64 {
    let mut total = 0;
    for level in (0..digits.len()).rev() {
        let digit = digits[level].of(bound);
        let range = &ranges[level];
        let smaller = digit.clamp(range.start, range.end) - range.start;
        total += smaller * ranges[..level].iter().map(|r| r.end - r.start).product::<u64>();
        if !range.contains(&digit) {
            break;
        }
    }
    total
}

/// How many indices of `indices` have every digit within its range.
pub(crate) fn count(digits: &[Digit], ranges: &[Range<u64>], indices: &Range<u64>) -> u64 {
    match ranges {
        [only] => {
            let end = only.end.min(indices.end);
            end.saturating_sub(only.start.max(indices.start))
        }
        _ => count_below(digits, ranges, indices.end) - count_below(digits, ranges, indices.start),
    }
}

/// The values that each digit takes over `indices`, as if they were independent.
pub(crate) fn free_ranges(digits: &[Digit], indices: &Range<u64>) -> Vec<Range<u64>> {
    let last = indices.end.max(1) - 1;
    digits.iter().map(|d| 0..d.size.min(last / d.place + 1)).collect()
}

/// `indices` whose digits lie in `ranges`, as products of digit ranges: fewer than two a digit.
pub(crate) fn products(
    digits: &[Digit],
    ranges: &[Range<u64>],
    indices: &Range<u64>,
) -> Vec<Vec<Range<u64>>> {
    let mut out = Vec::new();
    if indices.start < indices.end {
        let bounds = Bounds { digits, first: indices.start, last: indices.end - 1 };
        bounds.descend(digits.len(), (true, true), ranges.to_vec(), &mut out);
    }
    out
}

struct Bounds<'a> {
    digits: &'a [Digit],
    first: u64,
    last: u64,
}

impl Bounds<'_> {
    /// Cuts digit `level - 1` where it may touch the bounds; `tight` says whether all digits
    /// above equal those of the first and of the last index. A bound that lies between two
    /// values of the digit leaves the digits below free, and cuts nothing.
    fn descend(
        &self,
        level: usize,
        tight: (bool, bool),
        ranges: Vec<Range<u64>>,
        out: &mut Vec<Vec<Range<u64>>>,
    ) {
        if level == 0 || tight == (false, false) {
            out.push(ranges);
            return;
        }
        let digit = self.digits[level - 1];
        let (lo, hi) = (digit.of(self.first), digit.of(self.last));
        let range = ranges[level - 1].clone();
        let start = if tight.0 { range.start.max(lo) } else { range.start };
        let end = if tight.1 { range.end.min(hi.saturating_add(1)) } else { range.end };
        let whole = |end: u64| end.is_multiple_of(digit.place);
        let below = (!whole(self.first), !whole(self.last + 1));
        let tight = (tight.0 && below.0, tight.1 && below.1);
        for part in cut(start..end, [lo, lo.saturating_add(1), hi, hi.saturating_add(1)], tight) {
            let still = (tight.0 && part.start == lo, tight.1 && part.end - 1 == hi);
            let mut next = ranges.clone();
            next[level - 1] = part;
            self.descend(level - 1, still, next, out);
        }
    }
}

/// Cuts `range` at those of `[lo, lo + 1, hi, hi + 1]` that a tight bound makes special.
fn cut(range: Range<u64>, at: [u64; 4], tight: (bool, bool)) -> Vec<Range<u64>> {
    if range.is_empty() {
        return Vec::new();
    }
    let special = [tight.0, tight.0, tight.1, tight.1];
    let mut points: Vec<u64> =
        at.into_iter().zip(special).filter(|p| p.1 && range.contains(&p.0)).map(|p| p.0).collect();
    points.extend([range.start, range.end]);
    points.sort_unstable();
    points.windows(2).map(|w| w[0]..w[1]).filter(|r| r.start < r.end).collect()
}
