//! Runs of buckets, and how they travel.

/// Buckets that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

/// The bytes of a run in a message.
pub(crate) const RUN_BYTES: usize = 16;

impl Run {
    pub(crate) fn one(bucket: u64) -> Run {
        Run { start: bucket, count: 1 }
    }

    /// What holds so many bytes, at least one, from `at` on, in buckets of `bucket_bytes`.
    pub(crate) fn over((at, bytes): (u64, u64), bucket_bytes: u64) -> Run {
        let start = at / bucket_bytes;
        Run { start, count: (at + bytes.max(1)).div_ceil(bucket_bytes) - start }
    }

    pub(crate) fn end(self) -> u64 {
        self.start + self.count
    }

    pub(crate) fn buckets(self) -> std::ops::Range<u64> {
        self.start..self.end()
    }
}

/// How many buckets there are in all of `runs`; `None` where one has none, reaches beyond `end`, or
/// they are too many to be counted.
pub(crate) fn sum(runs: &[Run], end: u64) -> Option<u64> {
    runs.iter().try_fold(0_u64, |sum, run| {
        let inside = run.count > 0 && run.start.checked_add(run.count)? <= end;
        inside.then_some(sum.checked_add(run.count)?)
    })
}

/// Adds a bucket to `runs`, to the last of them where it follows that.
pub(crate) fn append(runs: &mut Vec<Run>, bucket: u64) {
    match runs.last_mut() {
        Some(last) if last.end() == bucket => last.count += 1,
        _ => runs.push(Run::one(bucket)),
    }
}

pub(crate) fn write(runs: &[Run]) -> impl Iterator<Item = u8> {
    runs.iter().flat_map(|run| [run.start, run.count]).flat_map(u64::to_le_bytes)
}

/// The runs that `bytes` are; `None` where these are none.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Run>> {
    let (words, rest) = bytes.as_chunks::<8>();
    let (pairs, odd) = words.as_chunks::<2>();
    let run = |&[start, count]: &[[u8; 8]; 2]| [start, count].map(u64::from_le_bytes);
    let runs = pairs.iter().map(run).map(|[start, count]| Run { start, count });
    (rest.is_empty() && odd.is_empty()).then(|| runs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_come_back_from_bytes(all in prop::collection::vec(any::<(u64, u64)>(), 0..20), cut in 1_usize..16) {
            let runs: Vec<_> = all.into_iter().map(|(start, count)| Run { start, count }).collect();
            let bytes: Vec<u8> = write(&runs).collect();
            prop_assert_eq!(bytes.len(), RUN_BYTES * runs.len());
            prop_assert_eq!(read(&bytes), Some(runs));
            prop_assert_eq!(read(&[&bytes[..], &[0; 16][..cut]].concat()), None);
        }

        #[test]
        fn a_run_is_all_buckets_of_its_bytes(at in 0_u64..10_000, bytes in 1_u64..10_000, size in 1_u64..100) {
            let touched: std::collections::BTreeSet<_> = (at..at + bytes).map(|i| i / size).collect();
            prop_assert!(Run::over((at, bytes), size).buckets().eq(touched));
        }
    }

    #[test]
    fn what_is_empty_or_beyond_has_no_sum() {
        let run = |start, count| Run { start, count };
        assert_eq!(sum(&[run(0, 3), run(2, 2)], 4), Some(5));
        for wrong in [run(0, 0), run(4, 1), run(0, 5), run(u64::MAX, 1), run(1, u64::MAX)] {
            assert_eq!(sum(&[run(0, 1), wrong], 4), None, "{wrong:?}");
        }
        assert_eq!(sum(&[run(0, u64::MAX), run(0, 1)], u64::MAX), None);
    }
}
