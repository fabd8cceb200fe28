//! What a run and a series of runs came to, in words that are the same for the same arguments.

use crate::trace::{Entry, Event};
use crate::violation::Violation;
use model::{Outcome, Time};
use std::fmt;
use thiserror::Error;

/// A run in which every rule was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Transfers that moved every byte.
    pub done: u64,
    /// Transfers that were cancelled.
    pub cancelled: u64,
    /// Transfers whose deadline passed.
    pub timed_out: u64,
    /// Transfers that failed.
    pub failed: u64,
    /// Requests issued.
    pub requests: u64,
    /// Their payload.
    pub bytes: u64,
    /// Virtual time that passed.
    pub time_ns: u64,
    /// A hash of everything that happened, in order.
    pub digest: u64,
}

/// A run in which a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "seed {seed} fails at {} ns: {violation}\n  replay: iso sim fuzz --seeds 1 --first-seed {seed}",
    at.0
)]
pub struct Failure {
    /// The seed that shows it again.
    pub seed: u64,
    /// When, in virtual time.
    pub at: Time,
    /// What.
    pub violation: Violation,
}

/// A series of runs, ended by the first failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FuzzReport {
    /// Runs that kept every rule.
    pub passed: u64,
    /// Their sums; the digest covers all of them.
    pub total: Summary,
    /// The first run that did not.
    pub failure: Option<Failure>,
}

impl Summary {
    /// The sums of `entries`.
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let mut summary = Summary::default();
        for entry in entries {
            summary.count(&entry.event);
            summary.digest = mix(summary.digest, entry.to_string().as_bytes());
        }
        summary.time_ns = entries.last().map_or(0, |e| e.at.0);
        summary
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Issued { bytes, .. } => {
                self.requests += 1;
                self.bytes += bytes;
            }
            Event::Ended { outcome, .. } => *self.counter(outcome) += 1,
            _ => {}
        }
    }

    fn counter(&mut self, outcome: &Outcome) -> &mut u64 {
        match outcome {
            Outcome::Done => &mut self.done,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::TimedOut => &mut self.timed_out,
            Outcome::Failed(_) => &mut self.failed,
        }
    }

    pub(crate) fn add(&mut self, other: &Summary) {
        self.done += other.done;
        self.cancelled += other.cancelled;
        self.timed_out += other.timed_out;
        self.failed += other.failed;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
        self.digest = mix(self.digest, &other.digest.to_le_bytes());
    }
}

impl FuzzReport {
    /// Counts one more run; false where it failed.
    pub(crate) fn count(&mut self, run: Result<Summary, Failure>) -> bool {
        match run {
            Ok(summary) => {
                self.passed += 1;
                self.total.add(&summary);
            }
            Err(failure) => self.failure = Some(failure),
        }
        self.failure.is_none()
    }

    /// Whether every run kept every rule.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failure.is_none()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} done, {} cancelled, {} timed out, {} failed; {} requests, {} bytes, {} ns; {:016x}",
            self.done,
            self.cancelled,
            self.timed_out,
            self.failed,
            self.requests,
            self.bytes,
            self.time_ns,
            self.digest
        )
    }
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds passed: {}", self.passed, self.total)?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, "\n{failure}"))
    }
}

/// FNV-1a over `bytes`, going on from `hash`.
fn mix(hash: u64, bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash ^ 0xcbf2_9ce4_8422_2325, step)
}
