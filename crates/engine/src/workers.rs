//! The workers of an engine, and which of them may have a request to give out.
//!
//! **Hazard.** An engine that asks every worker after everything that happens takes as long as it
//! has channels. **Guarantee.** Who has a request to give out is *stirred*, and only such are asked.
//! **Structure.** A worker that was asked and had nothing, since its queue is empty or its channel
//! full, has nothing until a descriptor is queued or a request comes back: both stir it.

use crate::config::ChannelConfig;
use crate::policy::Standing;
use crate::worker::{Entry, Worker, XdRef};
use model::{ChannelId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};
use std::time::Duration;

/// Workers by position.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Worker>,
    by_id: BTreeMap<ChannelId, usize>,
    stirred: BTreeSet<usize>,
    turn: usize,
    ageing: Option<Duration>,
}

impl Workers {
    /// No worker; those to come let descriptors age so.
    pub(crate) fn new(ageing: Option<Duration>) -> Self {
        let (by_id, stirred) = (BTreeMap::new(), BTreeSet::new());
        Workers { all: Vec::new(), by_id, stirred, turn: 0, ageing }
    }

    /// One more. Of two with one id, plans use the first.
    pub(crate) fn add(&mut self, channel: &ChannelConfig) {
        self.by_id.entry(channel.id).or_insert(self.all.len());
        self.all.push(Worker::new(channel, self.ageing));
    }

    /// The position of a channel's worker.
    pub(crate) fn of(&self, channel: ChannelId) -> Option<usize> {
        self.by_id.get(&channel).copied()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.all.iter()
    }

    /// Queues a descriptor at a worker: see [`Worker::push`].
    pub(crate) fn push(
        &mut self,
        worker: usize,
        xd: XdRef,
        standing: &Standing,
        (bytes, since): (u64, Time),
    ) -> Entry {
        self.stirred.insert(worker);
        self.all[worker].push(xd, standing, bytes, since)
    }

    /// A request of a worker came back.
    pub(crate) fn complete(&mut self, worker: usize) {
        self.stirred.insert(worker);
        self.all[worker].complete();
    }

    /// The one to ask next: who gave something out last, then those behind it, round and round.
    pub(crate) fn next(&self) -> Option<usize> {
        let behind = self.stirred.range(self.turn..).next();
        behind.or_else(|| self.stirred.first()).copied()
    }

    /// A worker was asked and gave something out.
    pub(crate) fn gave(&mut self, worker: usize) {
        self.turn = worker;
    }

    /// A worker was asked and has nothing.
    pub(crate) fn calm(&mut self, worker: usize) {
        self.stirred.remove(&worker);
    }
}

impl Index<usize> for Workers {
    type Output = Worker;

    fn index(&self, worker: usize) -> &Worker {
        &self.all[worker]
    }
}

impl IndexMut<usize> for Workers {
    fn index_mut(&mut self, worker: usize) -> &mut Worker {
        &mut self.all[worker]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{NodeId, Priority, TransferId};

    const COUNT: u16 = 4;

    fn id(index: u16) -> ChannelId {
        ChannelId { node: NodeId(0), index }
    }

    fn workers() -> Workers {
        let mut workers = Workers::new(None);
        (0..COUNT).for_each(|index| workers.add(&ChannelConfig::new(id(index), 1)));
        workers
    }

    fn push(workers: &mut Workers, worker: usize) {
        let xd = XdRef { transfer: TransferId { index: 0, generation: 0 }, hop: 0 };
        let priority = Priority(0);
        let standing = Standing { priority, priority_arrival: 0, arrival: 0, served_bytes: 0 };
        workers.push(worker, xd, &standing, (1, Time(0)));
    }

    /// Asks until nobody has anything; who gave something out, in order.
    fn ask(workers: &mut Workers) -> Vec<usize> {
        let mut gave = Vec::new();
        while let Some(worker) = workers.next() {
            match workers[worker].take(Time(0)) {
                Some(_) => {
                    workers.gave(worker);
                    gave.push(worker);
                }
                None => workers.calm(worker),
            }
        }
        gave
    }

    #[test]
    fn turns_go_round_from_who_gave_last() {
        let mut workers = workers();
        [3, 1].into_iter().for_each(|worker| push(&mut workers, worker));
        assert_eq!(ask(&mut workers), [1, 3]);
        workers.complete(3);
        [0, 2, 3].into_iter().for_each(|worker| push(&mut workers, worker));
        assert_eq!(ask(&mut workers), [3, 0, 2]);
    }

    #[test]
    fn who_had_nothing_takes_no_turn() {
        let mut workers = workers();
        [0, 3].into_iter().for_each(|worker| push(&mut workers, worker));
        assert_eq!(ask(&mut workers), [0, 3]);
        workers.complete(0);
        assert_eq!(ask(&mut workers), Vec::<usize>::new());
        workers.complete(3);
        [0, 3].into_iter().for_each(|worker| push(&mut workers, worker));
        assert_eq!(ask(&mut workers), [3, 0]);
    }

    #[test]
    fn who_was_full_is_asked_again_when_a_request_came_back() {
        let mut workers = workers();
        [2, 2].into_iter().for_each(|worker| push(&mut workers, worker));
        assert_eq!(ask(&mut workers), [2]);
        workers.complete(2);
        assert_eq!(ask(&mut workers), Vec::<usize>::new());
    }

    #[test]
    fn a_channel_has_one_worker() {
        let mut workers = workers();
        workers.add(&ChannelConfig::new(id(1), 1));
        assert_eq!((workers.of(id(1)), workers.of(id(COUNT))), (Some(1), None));
    }
}
