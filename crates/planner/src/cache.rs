//! Plans kept for transfers that look alike (paper, section 4.2).
//!
//! A key is everything that a plan depends on: the memories, the layouts, the extents, the fields,
//! the phases of the box in its blocks, the options. It is written from what the caller has
//! borrowed into numbers on the stack, so that a hit allocates nothing. Nodes of a class are alike: a
//! plan between two of them is made once, and written with the names of others on their first use.
//!
//! The load is not part of a key: what is kept was made for idle nodes, and serves these only. Where
//! other transfers use a node that the search visits, plans are made anew and not kept: the same
//! load seldom comes back.

use crate::graph::nodes_between;
use crate::{Choice, Load, Options, PlanError, Query, plan, query::End};
use foldhash::fast::FixedState;
use model::{Component, MemoryId, NodeId, Plan, Topology};
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
    key: Box<[u64]>,
    plan: Arc<Plan>,
    used: u64,
}

/// The most numbers of a key that are kept on the stack: 4 dimensions in a
/// block at both ends, and 16 fields.
const SHORT_KEY: usize = 64;

/// All that a plan depends on, written out in numbers, without ambiguity.
#[derive(Debug)]
struct Key {
    short: [u64; SHORT_KEY],
    len: usize,
    /// Takes the place of `short` where that is too small.
    long: Vec<u64>,
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
    /// the last one's empties the cache first. A hit on an idle cluster allocates nothing. Under a
    /// load on the nodes between the ends there is none.
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
        if !query.load.is_idle() && is_shared(topology, query) {
            return Ok(Cached { plan: Arc::new(plan(topology, query, options)?), hit: false });
        }
        let key = Key::of(query, options);
        let hash = self.hasher.hash_one(key.numbers());
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(&hash)
            && *entry.key == *key.numbers()
        {
            entry.used = self.uses;
            return Ok(Cached { plan: Arc::clone(&entry.plan), hit: true });
        }
        let cached = self.make(topology, query, options)?;
        self.insert(hash, key.numbers().into(), &cached.plan);
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
            // There is none between the nodes of `query`, and here it is the others' plan.
            load: Load::IDLE,
            ..*query
        };
        let cached = self.plan(topology, &like, options)?;
        match renamed(&cached.plan, alike, nodes) {
            Some(plan) => Ok(Cached { plan: Arc::new(plan), hit: cached.hit }),
            None => Ok(Cached { plan: Arc::new(plan(topology, query, options)?), hit: false }),
        }
    }

    fn insert(&mut self, hash: u64, key: Box<[u64]>, plan: &Arc<Plan>) {
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
        let mut key = Key { short: [0; SHORT_KEY], len: 0, long: Vec::new() };
        for end in [&query.src, &query.dst] {
            key.push_end(end);
        }
        key.push(query.extents.len() as u64);
        query.extents.iter().chain(query.field_bytes).for_each(|&n| key.push(n));
        let choice = match options.choice {
            Choice::Auto => 0,
            Choice::Only(algorithm) => 1 + algorithm as u64,
        };
        key.push(choice | (options.model as u64) << 8 | (options.alternatives as u64) << 16);
        for limit in [options.th_bytes, options.budget] {
            key.push(u64::from(limit.is_some()));
            key.push(limit.unwrap_or(0));
        }
        key.push(options.threshold_bytes);
        key
    }

    fn push_end(&mut self, end: &End<'_>) {
        let components = end.layout.components();
        self.push(u64::from(end.memory.node.0) << 16 | u64::from(end.memory.index));
        let bits = u64::from(end.listed) | u64::from(end.gaps) << 8;
        self.push(bits | (components.len() as u64) << 16);
        for &component in components {
            match component {
                Component::Fields => self.push(0),
                Component::Whole(dim) => self.push(1 | u64::from(dim) << 8),
                Component::Outer(dim) => self.push(2 | u64::from(dim) << 8),
                Component::Inner { dim, level, size } => {
                    self.push(3 | u64::from(dim) << 8 | u64::from(level) << 16);
                    self.push(size);
                }
            }
        }
        self.push(end.phase.len() as u64);
        end.phase.iter().for_each(|&phase| self.push(phase));
    }

    fn push(&mut self, number: u64) {
        if let Some(place) = self.short.get_mut(self.len) {
            *place = number;
            self.len += 1;
            return;
        }
        if self.long.is_empty() {
            self.long.extend(self.short);
        }
        self.long.push(number);
    }

    fn numbers(&self) -> &[u64] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// Whether others use channels of the nodes that a search for `query` visits.
fn is_shared(topology: &Topology, query: &Query<'_>) -> bool {
    let ends = (query.src.memory.node, query.dst.memory.node);
    query.load.touches(&nodes_between(topology, ends.0, ends.1))
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
