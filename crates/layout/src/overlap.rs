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
    let mut loops: Vec<(i128, i128)> = progression
        .loops
        .iter()
        .filter(|l| l.0 > 1)
        .map(|&(count, stride)| (i128::from(count) - 1, i128::from(stride).abs()))
        .collect();
    loops.sort_unstable_by_key(|l| std::cmp::Reverse(l.1));
    let mut search = Search { bytes: i128::from(progression.bytes), steps: SEARCH_STEPS };
    search.meets(&loops, 0, true)
}

struct Search {
    bytes: i128,
    steps: u32,
}

impl Search {
    /// Whether `sum`, plus what the loops can add or take away, comes closer to 0 than an entry's
    /// bytes. While `all_zero`, negative differences are left out by symmetry.
    fn meets(&mut self, loops: &[(i128, i128)], sum: i128, all_zero: bool) -> bool {
        let Some((&(most, stride), rest)) = loops.split_first() else {
            return !all_zero && sum.abs() < self.bytes;
        };
        let slack: i128 = rest.iter().map(|l| l.0 * l.1).sum::<i128>() + self.bytes - 1;
        if stride == 0 {
            return true;
        }
        let least = if all_zero { 0 } else { -most };
        let from = (-sum - slack).div_euclid(stride).max(least);
        let to = (slack - sum).div_euclid(stride).min(most);
        (from..=to).any(|by| {
            self.steps = self.steps.saturating_sub(1);
            let next = sum + by * stride;
            self.steps == 0 || (next.abs() <= slack && self.meets(rest, next, all_zero && by == 0))
        })
    }
}
