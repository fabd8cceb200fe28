//! Whether strided entries share bytes.

/// The entries at `Σ counter · stride`, each of `bytes` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progression {
    /// Counts and strides; counts are at least 1.
    pub(crate) loops: Vec<(u64, i64)>,
    /// The bytes of one entry.
    pub(crate) bytes: u64,
}

/// How many partial sums a search may visit.
const SEARCH_STEPS: u32 = 4096;

/// Whether two entries share a byte: there are differences of counters, not all 0, whose sum of
/// strides is shorter than an entry. True as well where the search passes its bound.
pub(crate) fn overlaps_itself(progression: &Progression) -> bool {
    let counted = progression.loops.iter().filter(|l| l.0 > 1);
    let loops = counted.map(|&(count, stride)| Loop::of(1 - i128::from(count), count, stride));
    let loops = descending(loops.collect());
    let stands_still = loops.last().is_some_and(|l| l.stride == 0);
    stands_still || Search::new(progression.bytes).meets(&loops, 0, true)
}

/// Whether an entry of `a` and one of `b` share a byte, where the lowest of `b` starts `apart`
/// bytes above the lowest of `a`. True as well where the search passes its bound.
pub(crate) fn overlap(a: &Progression, b: &Progression, apart: i128) -> bool {
    let down = a.loops.iter().map(|&(count, stride)| Loop::of(1 - i128::from(count), 1, stride));
    let up = b.loops.iter().map(|&(count, stride)| Loop::of(0, count, stride));
    let mut loops = descending(down.chain(up).filter(|l| l.stride != 0).collect());
    loops.dedup_by(|next, kept| {
        let is_one = next.stride == kept.stride;
        if is_one {
            (kept.least, kept.most) = (kept.least + next.least, kept.most + next.most);
        }
        is_one
    });
    Search::new(a.bytes.max(b.bytes)).meets(&loops, apart, false)
}

/// A counter, or a difference of two, from `least` to `most`, times a stride of at least 0.
#[derive(Clone, Copy)]
struct Loop {
    least: i128,
    most: i128,
    stride: i128,
}

impl Loop {
    /// From `least` to below `count`.
    fn of(least: i128, count: u64, stride: i64) -> Self {
        Loop { least, most: i128::from(count) - 1, stride: i128::from(stride).abs() }
    }
}

/// The largest stride first.
fn descending(mut loops: Vec<Loop>) -> Vec<Loop> {
    loops.sort_unstable_by_key(|l| std::cmp::Reverse(l.stride));
    loops
}

struct Search {
    bytes: i128,
    steps: u32,
}

impl Search {
    fn new(bytes: u64) -> Self {
        Search { bytes: i128::from(bytes), steps: SEARCH_STEPS }
    }

    /// Whether `sum`, plus what the loops can add or take away, comes closer to 0 than an entry's
    /// bytes. While `all_zero`, negative differences are left out by symmetry.
    fn meets(&mut self, loops: &[Loop], sum: i128, all_zero: bool) -> bool {
        let Some((&Loop { least, most, stride }, rest)) = loops.split_first() else {
            return !all_zero && sum.abs() < self.bytes;
        };
        let reach = |end: fn(&Loop) -> i128| rest.iter().map(|l| end(l) * l.stride).sum::<i128>();
        let (down, up) = (reach(|l| l.least), reach(|l| l.most));
        // Beyond these the rest does not lead back to 0.
        let from = -(self.bytes - 1 + up + sum).div_euclid(stride);
        let to = (self.bytes - 1 - down - sum).div_euclid(stride);
        let least = if all_zero { 0 } else { least };
        (from.max(least)..=to.min(most)).any(|by| {
            self.steps = self.steps.saturating_sub(1);
            self.steps == 0 || self.meets(rest, sum + by * stride, all_zero && by == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where every entry starts, by the lowest.
    fn starts(progression: &Progression) -> Vec<i128> {
        progression.loops.iter().fold(vec![0], |starts, &(count, stride)| {
            let step = |i| i128::from(i) * i128::from(stride).abs();
            starts.iter().flat_map(|s| (0..count).map(move |i| s + step(i))).collect()
        })
    }

    fn progressions(bytes: u64) -> impl Strategy<Value = Progression> {
        prop::collection::vec((1u64..5, -20i64..20), 0..3)
            .prop_map(move |loops| Progression { loops, bytes })
    }

    proptest! {
        #[test]
        fn two_progressions_meet_where_any_entries_do(
            (a, b) in (1u64..4).prop_flat_map(|bytes| (progressions(bytes), progressions(bytes))),
            apart in -60i128..60,
        ) {
            let bytes = i128::from(a.bytes);
            let share = |x: &i128| starts(&b).iter().any(|y| (apart + y - x).abs() < bytes);
            prop_assert_eq!(overlap(&a, &b, apart), starts(&a).iter().any(share));
        }

        #[test]
        fn a_progression_overlaps_itself_where_two_entries_share(a in progressions(2)) {
            let starts = starts(&a);
            let pairs = (0..starts.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
            let shared = pairs.into_iter().any(|(i, j)| (starts[i] - starts[j]).abs() < 2);
            prop_assert_eq!(overlaps_itself(&a), shared);
        }
    }
}
