//! What a DMA worker serves next (paper, section 3.5).

use model::Priority;
use std::fmt;

/// What a policy knows of a transfer descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The transfer's priority, or that of a more urgent one that waits for staging it holds.
    pub priority: Priority,
    /// The arrival of the transfer whose priority that is.
    pub priority_arrival: u64,
    /// The transfer's own arrival: grows with each that the engine takes.
    pub arrival: u64,
    /// What the worker has served this descriptor, counted from what the least served one had
    /// when it joined.
    pub served_bytes: u64,
}

/// The place of a descriptor in its worker's queue; the least is served first.
pub type Rank = (u64, u64);

/// Orders the descriptors of one channel. A policy is a pure function: a worker asks once for
/// each request, when the descriptor becomes ready for it.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The rank of a descriptor with this standing.
    fn rank(&self, standing: &Standing) -> Rank;
}

/// The most urgent first, then the oldest: a new urgent transfer is served from the next request
/// on, and the less urgent ones are suspended. One that holds staging which a more urgent one
/// waits for is served as if it were that one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByPriority;

impl Policy for ByPriority {
    fn rank(&self, standing: &Standing) -> Rank {
        let urgency = i64::from(i32::MAX) - i64::from(standing.priority.0);
        (urgency.unsigned_abs(), standing.priority_arrival)
    }
}

/// The oldest first, whatever its priority.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn rank(&self, standing: &Standing) -> Rank {
        (standing.arrival, 0)
    }
}

/// The least served first: transfers share the channel in equal parts, by bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairShare;

impl Policy for FairShare {
    fn rank(&self, standing: &Standing) -> Rank {
        (standing.served_bytes, standing.arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(priority: i32, arrival: u64, served_bytes: u64) -> Standing {
        let priority = Priority(priority);
        Standing { priority, priority_arrival: arrival, arrival, served_bytes }
    }

    #[test]
    fn priority_beats_age_over_the_whole_range() {
        let order = [i32::MAX, 1, 0, -1, i32::MIN];
        for pair in order.windows(2) {
            let (urgent, idle) = (standing(pair[0], 9, 0), standing(pair[1], 1, 0));
            assert!(ByPriority.rank(&urgent) < ByPriority.rank(&idle));
        }
        assert!(ByPriority.rank(&standing(3, 1, 9)) < ByPriority.rank(&standing(3, 2, 0)));
    }

    #[test]
    fn fifo_and_fair_share_ignore_priority() {
        assert!(Fifo.rank(&standing(0, 1, 0)) < Fifo.rank(&standing(9, 2, 0)));
        assert!(FairShare.rank(&standing(0, 5, 10)) < FairShare.rank(&standing(9, 1, 11)));
    }
}
