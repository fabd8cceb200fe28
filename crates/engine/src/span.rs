//! Completions that come out of order, as one watermark.
//!
//! **Hazard.** Requests of a hop complete in any order; a reader that trusts a later one would
//! read bytes that are not there yet. **Guarantee.** [`Spans::complete`] moves the watermark over
//! the contiguous part only. **Structure.** The islands past the watermark, sorted, merged, apart;
//! there are never more than requests in flight.

use std::ops::Range;

/// Which bytes of a stream are complete.
///
/// Invariant: islands are sorted, not empty, lie past the watermark and don't touch one another.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    watermark: u64,
    islands: Vec<Range<u64>>,
}

impl Spans {
    /// Everything below is complete.
    pub(crate) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Forgets everything, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.watermark = 0;
        self.islands.clear();
    }

    /// Adds `range`, which overlaps nothing added before, and returns the watermark.
    pub(crate) fn complete(&mut self, range: Range<u64>) -> u64 {
        debug_assert!(range.start >= self.watermark, "a range completes once");
        if range.start == self.watermark {
            self.watermark = range.end;
            self.absorb();
        } else if !range.is_empty() {
            self.insert(range);
        }
        self.watermark
    }

    fn absorb(&mut self) {
        if self.islands.first().is_some_and(|island| island.start == self.watermark) {
            self.watermark = self.islands.remove(0).end;
        }
    }

    fn insert(&mut self, range: Range<u64>) {
        let at = self.islands.partition_point(|island| island.start < range.start);
        let joins_next = self.islands.get(at).is_some_and(|next| next.start == range.end);
        let joins_last = at > 0 && self.islands[at - 1].end == range.start;
        match (joins_last, joins_next) {
            (true, true) => self.islands[at - 1].end = self.islands.remove(at).end,
            (true, false) => self.islands[at - 1].end = range.end,
            (false, true) => self.islands[at].start = range.start,
            (false, false) => self.islands.insert(at, range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_watermark_stops_at_a_gap() {
        let mut spans = Spans::default();
        assert_eq!(spans.complete(4..8), 0);
        assert_eq!(spans.complete(12..16), 0);
        assert_eq!(spans.complete(0..4), 8);
        assert_eq!(spans.complete(8..12), 16);
        assert!(spans.islands.is_empty());
    }

    proptest! {
        #[test]
        fn the_watermark_is_the_contiguous_part(
            order in Just((0..24u64).collect::<Vec<_>>()).prop_shuffle()
        ) {
            let mut spans = Spans::default();
            let mut seen = [false; 25];
            for piece in order {
                seen[piece as usize] = true;
                let contiguous = seen.iter().position(|s| !s).unwrap() as u64;
                prop_assert_eq!(spans.complete(piece * 3..piece * 3 + 3), contiguous * 3);
                prop_assert!(spans.islands.windows(2).all(|p| p[0].end < p[1].start));
            }
        }
    }
}
