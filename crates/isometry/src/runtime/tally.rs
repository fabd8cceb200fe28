//! Counts copies, for those who watch a machine.

use model::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of the copies that were asked for since a machine was opened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    submitted: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    timed_out: AtomicU64,
    bytes: AtomicU64,
    /// Those that their callers ran themselves stand here alone, so that these pay for no more.
    direct: AtomicU64,
    direct_bytes: AtomicU64,
}

/// A tally at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copies {
    /// All that were taken.
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) timed_out: u64,
    /// What those that have ended brought to their destinations.
    pub(crate) bytes: u64,
    /// How many of those that are done ran on their callers' threads, and what these have brought.
    pub(crate) direct: u64,
    pub(crate) direct_bytes: u64,
}

impl Tally {
    /// A copy was taken. To be called under the lock that its end needs.
    pub(crate) fn submitted(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    /// One that was taken has ended, and has brought so much.
    pub(crate) fn ended(&self, outcome: &Outcome, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let count = match outcome {
            Outcome::Done => &self.done,
            Outcome::Failed(_) => &self.failed,
            Outcome::Cancelled => &self.cancelled,
            Outcome::TimedOut => &self.timed_out,
        };
        // Whoever reads that it has ended reads as well that it was submitted.
        count.fetch_add(1, Ordering::Release);
    }

    /// A caller has run one.
    pub(crate) fn ran_here(&self, bytes: u64) {
        self.direct_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.direct.fetch_add(1, Ordering::Relaxed);
    }

    /// What there is so far: nothing that has ended and was not submitted.
    pub(crate) fn read(&self) -> Copies {
        let [done, failed, cancelled, timed_out] =
            [&self.done, &self.failed, &self.cancelled, &self.timed_out]
                .map(|count| count.load(Ordering::Acquire));
        let [submitted, bytes, direct, direct_bytes] =
            [&self.submitted, &self.bytes, &self.direct, &self.direct_bytes]
                .map(|count| count.load(Ordering::Relaxed));
        Copies {
            submitted: submitted + direct,
            done: done + direct,
            failed,
            cancelled,
            timed_out,
            bytes: bytes + direct_bytes,
            direct,
            direct_bytes,
        }
    }
}

impl Copies {
    /// Those that have not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.submitted - self.done - self.failed - self.cancelled - self.timed_out
    }
}
