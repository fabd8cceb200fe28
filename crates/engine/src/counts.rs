//! What an engine has done since it was made, in numbers that only grow: for those who watch it.

use model::{NodeId, Priority};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// What tells the counts of [`Waits`] apart, in ascending order.
pub const WAIT_BOUNDS: [Duration; 7] = [
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// How long many things waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many waited no longer than the bound of [`WAIT_BOUNDS`] at this position, and longer than
    /// the one before; the last, how many waited longer than all.
    pub counts: [u64; WAIT_BOUNDS.len() + 1],
    /// How long all of them waited together.
    pub total: Duration,
}

impl Waits {
    fn add(&mut self, waited: Duration) {
        self.counts[WAIT_BOUNDS.partition_point(|bound| *bound < waited)] += 1;
        self.total += waited;
    }
}

/// Waits by the priority of the transfers that waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassWaits {
    /// Of priorities below 0.
    pub low: Waits,
    /// Of priority 0.
    pub normal: Waits,
    /// Of priorities above 0.
    pub high: Waits,
}

impl ClassWaits {
    pub(crate) fn add(&mut self, priority: Priority, waited: Duration) {
        let class = match priority.0.cmp(&0) {
            Ordering::Less => &mut self.low,
            Ordering::Equal => &mut self.normal,
            Ordering::Greater => &mut self.high,
        };
        class.add(waited);
    }
}

/// A channel's requests that write to one node. Those that are neither done nor failed are out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that were given out: copies, commits and aborts.
    pub submitted: u64,
    /// Those that have succeeded.
    pub done: u64,
    /// Those that have not.
    pub failed: u64,
    /// Payload of those that have succeeded, also where their transfer did not.
    pub bytes: u64,
}

/// What a channel has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    /// How long requests that were ready waited until they were given out.
    pub waits: ClassWaits,
    /// By the node that was written to.
    pub traffic: BTreeMap<NodeId, Traffic>,
}

impl ChannelCounts {
    /// A request that writes to `node` was given out.
    pub(crate) fn given_out(&mut self, node: NodeId, priority: Priority, waited: Duration) {
        self.waits.add(priority, waited);
        self.traffic.entry(node).or_default().submitted += 1;
    }

    /// One has ended; it has moved so much, or failed.
    pub(crate) fn ended(&mut self, node: NodeId, moved: Option<u64>) {
        let traffic = self.traffic.entry(node).or_default();
        match moved {
            Some(bytes) => {
                traffic.done += 1;
                traffic.bytes += bytes;
            }
            None => traffic.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_below_its_bound_and_in_its_class() {
        let mut waits = ClassWaits::default();
        waits.add(Priority(-1), Duration::ZERO);
        waits.add(Priority(0), WAIT_BOUNDS[0]);
        waits.add(Priority(0), WAIT_BOUNDS[0] + Duration::from_nanos(1));
        waits.add(Priority(i32::MAX), WAIT_BOUNDS[6] * 2);
        assert_eq!(waits.low.counts, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(waits.normal.counts, [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(waits.high.counts, [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(waits.normal.total, Duration::from_nanos(20_001));
        assert_eq!(waits.high.total, Duration::from_secs(20));
    }
}
