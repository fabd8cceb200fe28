//! DMA workers and their pools of transfer descriptors (paper, section 3.5).
//!
//! A descriptor stands in its worker's queue exactly while it is ready: it has a request whose
//! input is written and whose output space is free. Nothing but being served takes that away
//! from it, so that an entry is never stale but for a transfer that stopped, and stopping
//! removes it.

use crate::config::ChannelConfig;
use crate::counts::ChannelCounts;
use crate::policy::{Policy, Rank, Standing};
use model::{ChannelId, Priority, Time, TransferId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Of every so many bytes of a channel, ageing gives one to those that wait: 5%.
const AGEING_SHARE: u64 = 20;

/// A transfer descriptor, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct XdRef {
    pub(crate) transfer: TransferId,
    pub(crate) hop: u16,
}

/// A descriptor in its worker's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) rank: Rank,
    pub(crate) since: Time,
    pub(crate) priority: Priority,
    /// Payload of the request that it is ready for.
    pub(crate) bytes: u64,
    pub(crate) xd: XdRef,
}

/// One channel's worker. Invariant: `in_flight <= max_in_flight`.
#[derive(Debug)]
pub(crate) struct Worker {
    id: ChannelId,
    policy: Arc<dyn Policy>,
    max_in_flight: u32,
    in_flight: u32,
    /// The least is served first.
    queue: BTreeSet<Entry>,
    floor_bytes: u64,
    ageing: Option<Duration>,
    credit_bytes: u64,
    last_served: Option<TransferId>,
    pub(crate) counts: ChannelCounts,
}

impl Worker {
    pub(crate) fn new(config: &ChannelConfig, ageing: Option<Duration>) -> Self {
        Worker {
            id: config.id,
            policy: Arc::clone(&config.policy),
            max_in_flight: config.max_in_flight.max(1),
            in_flight: 0,
            queue: BTreeSet::new(),
            floor_bytes: 0,
            ageing,
            credit_bytes: 0,
            last_served: None,
            counts: ChannelCounts::default(),
        }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// What a descriptor that joins now counts as served.
    pub(crate) fn floor_bytes(&self) -> u64 {
        self.floor_bytes
    }

    /// Whose request was given out last.
    pub(crate) fn last_served(&self) -> Option<TransferId> {
        self.last_served
    }

    /// The priority of the descriptor that is served next.
    pub(crate) fn next_priority(&self) -> Option<Priority> {
        self.queue.first().map(|entry| entry.priority)
    }

    /// Queues `xd`, ready for a request of `bytes`. The entry is what names it from then on.
    pub(crate) fn push(
        &mut self,
        xd: XdRef,
        standing: &Standing,
        bytes: u64,
        since: Time,
    ) -> Entry {
        let (rank, priority) = (self.policy.rank(standing), standing.priority);
        let entry = Entry { rank, since, priority, bytes, xd };
        self.queue.insert(entry);
        entry
    }

    /// Takes an entry out of the queue.
    pub(crate) fn remove(&mut self, entry: &Entry) {
        let was_queued = self.queue.remove(entry);
        debug_assert!(was_queued, "a lane knows what stands in the queue");
    }

    /// Moves an entry to where `standing` puts it.
    pub(crate) fn restand(&mut self, entry: &Entry, standing: &Standing) -> Entry {
        self.remove(entry);
        self.push(entry.xd, standing, entry.bytes, entry.since)
    }

    /// The next descriptor to serve, while the channel has room; it counts as in flight.
    pub(crate) fn take(&mut self, now: Time) -> Option<Entry> {
        if self.in_flight >= self.max_in_flight {
            return None;
        }
        let entry = self.take_aged(now).or_else(|| self.queue.pop_first())?;
        self.in_flight += 1;
        self.last_served = Some(entry.xd.transfer);
        Some(entry)
    }

    /// A request was given out of the descriptor that had `standing`. It was the least served one
    /// that was ready, under a policy that goes by that.
    pub(crate) fn served(&mut self, standing: &Standing) {
        self.floor_bytes = self.floor_bytes.max(standing.served_bytes);
    }

    /// A request came back.
    pub(crate) fn complete(&mut self) {
        debug_assert!(self.in_flight > 0, "a request comes back once");
        self.in_flight -= 1;
    }

    fn take_aged(&mut self, now: Time) -> Option<Entry> {
        let after = self.ageing?;
        let next = *self.queue.first()?;
        let waited_long = |e: &&Entry| e.xd != next.xd && now.since(e.since) >= after;
        let aged = *self.queue.iter().filter(waited_long).min_by_key(|e| e.since)?;
        // Credit is earned only against somebody who waits, and never for more than one request.
        if self.credit_bytes < aged.bytes.saturating_mul(AGEING_SHARE - 1) {
            self.credit_bytes = self.credit_bytes.saturating_add(next.bytes);
            return None;
        }
        self.credit_bytes = 0;
        self.remove(&aged);
        Some(aged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ByPriority, FairShare};
    use model::NodeId;

    fn worker(policy: Arc<dyn Policy>, max_in_flight: u32, ageing: Option<Duration>) -> Worker {
        let id = ChannelId { node: NodeId(0), index: 0 };
        Worker::new(&ChannelConfig { id, max_in_flight, policy }, ageing)
    }

    fn xd(index: u32) -> XdRef {
        XdRef { transfer: TransferId { index, generation: 0 }, hop: 0 }
    }

    fn standing(priority: i32, arrival: u64, served_bytes: u64) -> Standing {
        let priority = Priority(priority);
        Standing { priority, priority_arrival: arrival, arrival, served_bytes }
    }

    fn serve(worker: &mut Worker, now: u64) -> Option<u32> {
        let entry = worker.take(Time(now))?;
        worker.complete();
        Some(entry.xd.transfer.index)
    }

    #[test]
    fn the_most_urgent_is_served_first_while_there_is_room() {
        let mut worker = worker(Arc::new(ByPriority), 2, None);
        for (i, priority) in [0, 5, 5].into_iter().enumerate() {
            worker.push(xd(i as u32), &standing(priority, i as u64, 0), 1, Time(0));
        }
        assert_eq!(worker.next_priority(), Some(Priority(5)));
        assert_eq!(worker.take(Time(0)).unwrap().xd, xd(1));
        assert_eq!(worker.take(Time(0)).unwrap().xd, xd(2));
        assert_eq!(worker.take(Time(0)), None);
        worker.complete();
        assert_eq!(worker.take(Time(0)).unwrap().xd, xd(0));
        assert_eq!((worker.in_flight(), worker.last_served()), (2, Some(xd(0).transfer)));
    }

    #[test]
    fn fair_share_serves_equal_bytes_from_joining_on() {
        let mut worker = worker(Arc::new(FairShare), 1, None);
        let mut served = [0u64, 0];
        for _ in 0..10 {
            worker.push(xd(0), &standing(0, 0, served[0]), 10, Time(0));
            serve(&mut worker, 0);
            served[0] += 10;
            worker.served(&standing(0, 0, served[0]));
        }
        served[1] = worker.floor_bytes();
        let mut turns = [0, 0];
        for (i, bytes) in [(0, 10), (1, 5)] {
            worker.push(xd(i), &standing(0, 0, served[i as usize]), bytes, Time(0));
        }
        for _ in 0..30 {
            let i = serve(&mut worker, 0).unwrap() as usize;
            let bytes = [10, 5][i];
            served[i] += bytes;
            turns[i] += 1;
            worker.push(xd(i as u32), &standing(0, i as u64, served[i]), bytes, Time(0));
        }
        assert_eq!(turns, [10, 20]);
    }

    #[test]
    fn ageing_gives_one_byte_in_twenty() {
        for (ageing, expected) in [(None, 0), (Some(Duration::from_nanos(10)), 10)] {
            let mut worker = worker(Arc::new(ByPriority), 1, ageing);
            worker.push(xd(0), &standing(0, 0, 0), 8, Time(0));
            worker.push(xd(1), &standing(9, 1, 0), 8, Time(0));
            let mut turns = [0, 0];
            for _ in 0..200 {
                let i = serve(&mut worker, 100).unwrap();
                turns[i as usize] += 1;
                worker.push(xd(i), &standing([0, 9][i as usize], 0, 0), 8, Time(0));
            }
            assert_eq!(turns[0], expected);
        }
    }

    #[test]
    fn nobody_ages_before_the_time() {
        let mut worker = worker(Arc::new(ByPriority), 1, Some(Duration::from_nanos(10)));
        worker.push(xd(0), &standing(0, 0, 0), 8, Time(95));
        for _ in 0..100 {
            worker.push(xd(1), &standing(9, 1, 0), 8, Time(100));
            assert_eq!(serve(&mut worker, 100), Some(1));
        }
    }

    #[test]
    fn a_removed_transfer_is_not_served() {
        let mut worker = worker(Arc::new(ByPriority), 1, None);
        let entry = worker.push(xd(0), &standing(0, 0, 0), 1, Time(0));
        worker.push(xd(1), &standing(0, 1, 0), 1, Time(0));
        worker.remove(&entry);
        assert_eq!(serve(&mut worker, 0), Some(1));
        assert_eq!(serve(&mut worker, 0), None);
    }

    #[test]
    fn a_descriptor_moves_to_its_new_standing_and_keeps_its_age() {
        let mut worker = worker(Arc::new(ByPriority), 1, None);
        let entry = worker.push(xd(0), &standing(0, 0, 0), 8, Time(3));
        worker.push(xd(1), &standing(5, 1, 0), 8, Time(0));
        let moved = worker.restand(&entry, &standing(9, 2, 0));
        assert_eq!((moved.since, moved.bytes, moved.priority), (Time(3), 8, Priority(9)));
        let back = worker.restand(&moved, &standing(0, 0, 0));
        assert_eq!(back, entry);
        assert_eq!([serve(&mut worker, 0), serve(&mut worker, 0)], [Some(1), Some(0)]);
    }
}
