//! What stands in front of the engines: room for instances, and the DMA threads of a baseline; else
//! a bound on what an engine has at once.

use crate::simulate::error::SimulateError;
use crate::simulate::gate::{Gate, Needs, Turn};
use crate::simulate::route::Route;
use crate::simulate::workload::CopySpec;
use model::{MemoryId, NodeId, Topology};
use std::collections::BTreeMap;

/// A pool takes at most this, and at most half of its memory.
const POOL_BYTES: u64 = 512 << 20;

/// The most transfers that are asked of an engine at once, where threads are no limit.
const MAX_ASKED: u32 = 1 << 12;

/// What a memory's staging pool takes of it.
pub(crate) fn pool_bytes(topology: &Topology, memory: MemoryId) -> u64 {
    let capacity = topology.memory(memory).and_then(|m| m.capacity_bytes);
    capacity.map_or(POOL_BYTES, |bytes| POOL_BYTES.min(bytes / 2))
}

/// Gives out room in memories: to a copy at its start for its source, its destination and every
/// whole instance between, at once; and takes each back when nothing reads it any more.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    room: Gate,
    threads: Gate,
    /// The shelf of each node.
    nodes: BTreeMap<NodeId, usize>,
    /// The shelf of each memory, and its room when nothing is there.
    memories: BTreeMap<MemoryId, (usize, u64)>,
    /// Whole instances between hops: now, and at most.
    between: BTreeMap<MemoryId, (u64, u64)>,
}

impl Desk {
    /// Counts `memory`, of which a pool takes `pooled_bytes`.
    pub(crate) fn add_memory(&mut self, topology: &Topology, memory: MemoryId, pooled_bytes: u64) {
        let capacity = topology.memory(memory).and_then(|m| m.capacity_bytes).unwrap_or(u64::MAX);
        let left_bytes = capacity - pooled_bytes;
        self.memories.insert(memory, (self.room.add(left_bytes), left_bytes));
    }

    /// Counts the threads of `node`; `None` where they are no limit.
    pub(crate) fn add_node(&mut self, node: NodeId, threads: Option<u32>) {
        let shelf = self.threads.add(threads.unwrap_or(MAX_ASKED).max(1).into());
        self.nodes.insert(node, shelf);
    }

    /// What an instance on `route` needs: room for all that it keeps anywhere.
    pub(crate) fn needs(&self, copy: &CopySpec, route: &Route) -> Result<Needs, SimulateError> {
        let mut sums = BTreeMap::new();
        for &(memory, bytes) in &route.places {
            let sum: &mut u64 = sums.entry(memory).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let need = |(memory, bytes): (MemoryId, u64)| {
            let (shelf, left_bytes) = self.memories[&memory];
            let copy = copy.name.clone();
            let short = SimulateError::Capacity { copy, memory, bytes, left_bytes };
            if bytes <= left_bytes { Ok((shelf, bytes)) } else { Err(short) }
        };
        sums.into_iter().map(need).collect()
    }

    /// `task` waits for room.
    pub(crate) fn ask_room(&mut self, turn: Turn, task: usize, needs: &Needs) {
        self.room.ask(turn, task, needs);
    }

    /// The next task that has its room.
    pub(crate) fn next_with_room(&mut self) -> Option<usize> {
        self.room.poll()
    }

    /// Whole instances of `route` lie between its hops from now on.
    pub(crate) fn occupy(&mut self, route: &Route) {
        for &(memory, bytes) in between(route) {
            let (now, most) = self.between.entry(memory).or_default();
            *now += bytes;
            *most = (*most).max(*now);
        }
    }

    /// Place `place` of `route` is free again.
    pub(crate) fn vacate(&mut self, route: &Route, place: usize) {
        let (memory, bytes) = route.places[place];
        self.room.put_back(self.memories[&memory].0, bytes);
        if place > 0 && place + 1 < route.places.len() {
            self.between.entry(memory).or_default().0 -= bytes;
        }
    }

    /// `task` waits for a thread of `node`; for its turn with the engine, where these are no limit.
    pub(crate) fn ask_thread(&mut self, turn: Turn, task: usize, node: NodeId) {
        self.threads.ask(turn, task, &[(self.nodes[&node], 1)].into());
    }

    /// The next task that has its thread.
    pub(crate) fn next_with_thread(&mut self) -> Option<usize> {
        self.threads.poll()
    }

    /// A thread of `node` is idle.
    pub(crate) fn free_thread(&mut self, node: NodeId) {
        self.threads.put_back(self.nodes[&node], 1);
    }

    /// The most that whole instances between hops took in each memory.
    pub(crate) fn peaks(&self) -> Vec<(MemoryId, u64)> {
        self.between.iter().map(|(&memory, &(_, most))| (memory, most)).collect()
    }
}

fn between(route: &Route) -> &[(MemoryId, u64)] {
    &route.places[1..route.places.len() - 1]
}
