//! Plans kept for transfers that look alike (paper, section 4.2).
//!
//! A key is everything that a plan depends on: the memories, the layouts, the extents, the fields,
//! the phases of the box in its blocks, the options. It is hashed from what the caller has
//! borrowed, so that a hit copies nothing and allocates nothing. Nodes of a class are alike: a
//! plan between two of them is made once, and written with the names of others on their first use.

use crate::{Options, PlanError, Query, plan, query::End};
use foldhash::fast::FixedState;
use model::{Layout, MemoryId, NodeId, Plan, Topology};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// A plan and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Cached {
    /// The plan.
    pub plan: Arc<Plan>,
    /// Whether it was there already.
    pub hit: bool,
}

/// A bounded cache of plans for one topology; the least recently used one makes room.
///
/// Invariant: never more than `capacity` plans, all made for the topology of `generation`.
#[derive(Debug)]
pub struct PlanCache {
    entries: HashMap<u64, Entry, FixedState>,
    hasher: FixedState,
    capacity: usize,
    generation: u64,
    /// Counts uses, to know the oldest.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    plan: Arc<Plan>,
    used: u64,
}

#[derive(Debug)]
struct Key {
    memories: [MemoryId; 2],
    layouts: [Layout; 2],
    phases: [Box<[u64]>; 2],
    listed: [u8; 2],
    extents: Box<[u64]>,
    field_bytes: Box<[u64]>,
    options: Options,
}

impl PlanCache {
    /// An empty cache of at most `capacity` plans, and at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        PlanCache {
            entries: HashMap::with_hasher(FixedState::default()),
            hasher: FixedState::default(),
            capacity: capacity.max(1),
            generation: 0,
            uses: 0,
        }
    }

    /// How many plans it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The plan of [`plan`](fn@crate::plan), kept or new. A topology of another generation than
    /// the last one's empties the cache first. A hit allocates nothing.
    ///
    /// # Errors
    /// As [`plan`](fn@crate::plan); errors are not kept.
    pub fn plan(
        &mut self,
        topology: &Topology,
        query: &Query<'_>,
        options: &Options,
    ) -> Result<Cached, PlanError> {
        if self.generation != topology.generation {
            self.entries.clear();
            self.generation = topology.generation;
        }
        let hash = self.hasher.hash_one((query, options));
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(&hash)
            && entry.key.is(query, options)
        {
            entry.used = self.uses;
            return Ok(Cached { plan: Arc::clone(&entry.plan), hit: true });
        }
        let cached = self.make(topology, query, options)?;
        self.insert(hash, Key::of(query, options), &cached.plan);
        Ok(cached)
    }

    /// A new plan, or one for nodes of the same classes with the nodes replaced.
    fn make(
        &mut self,
        topology: &Topology,
        query: &Query<'_>,
        options: &Options,
    ) -> Result<Cached, PlanError> {
        let nodes = [query.src.memory.node, query.dst.memory.node];
        let alike = first_alike(topology, nodes).filter(|alike| *alike != nodes);
        let Some(alike) = alike else {
            let plan = Arc::new(plan(topology, query, options)?);
            return Ok(Cached { plan, hit: false });
        };
        let at = |end: End<'_>, node| MemoryId { node, ..end.memory };
        let like = Query {
            src: End { memory: at(query.src, alike[0]), ..query.src },
            dst: End { memory: at(query.dst, alike[1]), ..query.dst },
            ..*query
        };
        let cached = self.plan(topology, &like, options)?;
        match renamed(&cached.plan, alike, nodes) {
            Some(plan) => Ok(Cached { plan: Arc::new(plan), hit: cached.hit }),
            None => Ok(Cached { plan: Arc::new(plan(topology, query, options)?), hit: false }),
        }
    }

    fn insert(&mut self, hash: u64, key: Key, plan: &Arc<Plan>) {
        if self.entries.len() >= self.capacity {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some((&oldest, _)) = oldest {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(hash, Entry { key, plan: Arc::clone(plan), used: self.uses });
    }
}

impl Key {
    fn of(query: &Query<'_>, options: &Options) -> Key {
        let ends = [&query.src, &query.dst];
        Key {
            memories: ends.map(|e| e.memory),
            layouts: ends.map(|e| e.layout.clone()),
            phases: ends.map(|e| e.phase.into()),
            listed: ends.map(|e| e.listed),
            extents: query.extents.into(),
            field_bytes: query.field_bytes.into(),
            options: *options,
        }
    }

    fn is(&self, query: &Query<'_>, options: &Options) -> bool {
        let end = |i: usize, end: &End<'_>| {
            self.memories[i] == end.memory
                && self.listed[i] == end.listed
                && self.layouts[i] == *end.layout
                && *self.phases[i] == *end.phase
        };
        end(0, &query.src)
            && end(1, &query.dst)
            && *self.extents == *query.extents
            && *self.field_bytes == *query.field_bytes
            && self.options == *options
    }
}

/// The first nodes of the classes of `nodes`: two of one class where these are two.
fn first_alike(topology: &Topology, nodes: [NodeId; 2]) -> Option<[NodeId; 2]> {
    let first = |node: NodeId| topology.class_of(node).map(|(_, number)| node.0 - number);
    let (src, dst) = (first(nodes[0])?, first(nodes[1])?);
    let apart = u32::from(src == dst && nodes[0] != nodes[1]);
    Some([NodeId(src), NodeId(dst + apart)])
}

/// `plan` between the nodes `to` instead of `from`; `None` where it visits others.
fn renamed(plan: &Plan, from: [NodeId; 2], to: [NodeId; 2]) -> Option<Plan> {
    let rename = |node: &mut NodeId| {
        let at = from.iter().position(|n| n == node);
        at.map(|at| *node = to[at])
    };
    let mut plan = plan.clone();
    for alternative in &mut plan.alternatives {
        alternative.memories.iter_mut().try_for_each(|m| rename(&mut m.node))?;
    }
    plan.memories.iter_mut().try_for_each(|m| rename(&mut m.node))?;
    plan.hops.iter_mut().try_for_each(|h| rename(&mut h.channel.node))?;
    plan.buffers.iter_mut().try_for_each(|b| rename(&mut b.memory.node))?;
    Some(plan)
}
