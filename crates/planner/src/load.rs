//! What other transfers use while one is planned.

use crate::graph::{Way, WireRef};
use model::{ChannelId, MemoryId, NodeId, Plan, Topology, WireId};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

/// How many hops of running transfers are on each channel, and on each wire in either direction.
///
/// Of a channel with `n` flows a new one gets the part `1 / (n + 1)`, and each channel at work on a
/// wire as much of that as every other: right where flows share fairly, and where the oldest goes
/// first and all are as large. It knows neither how urgent they are nor how much is left of them:
/// where channels serve the more urgent first, a load of those that are not less urgent is the one
/// to plan with. A flow that another hop of its transfer slows down counts as a whole one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Load {
    flows: BTreeMap<ChannelId, u32>,
    crossings: BTreeMap<(WireId, bool, ChannelId), u32>,
}

impl Load {
    /// Nobody uses anything.
    pub const IDLE: &'static Load = &Load { flows: BTreeMap::new(), crossings: BTreeMap::new() };

    /// A transfer by `plan`, which was made for `topology`, has begun.
    pub fn begin(&mut self, topology: &Topology, plan: &Plan) {
        for (channel, crossings) in flows_of(topology, plan) {
            add(&mut self.flows, channel, 1);
            crossings.for_each(|crossing| add(&mut self.crossings, crossing, 1));
        }
    }

    /// A transfer by `plan` that had begun has ended.
    pub fn end(&mut self, topology: &Topology, plan: &Plan) {
        for (channel, crossings) in flows_of(topology, plan) {
            take(&mut self.flows, channel);
            crossings.for_each(|crossing| take(&mut self.crossings, crossing));
        }
    }

    /// The flows of `other` too.
    pub fn add(&mut self, other: &Load) {
        other.flows.iter().for_each(|(&channel, &more)| add(&mut self.flows, channel, more));
        other.crossings.iter().for_each(|(&at, &more)| add(&mut self.crossings, at, more));
    }

    /// Whether nobody uses anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty()
    }

    /// How many flows are on a channel.
    #[must_use]
    pub fn flows(&self, channel: ChannelId) -> u32 {
        self.flows.get(&channel).copied().unwrap_or(0)
    }

    /// How many channels but `lane` have flows on a wire in one direction, or in either where it is
    /// half duplex.
    pub(crate) fn beside(&self, lane: ChannelId, wire: &WireRef, to_host: bool) -> u32 {
        let ways = [true, false].into_iter().filter(|&way| way == to_host || wire.half_duplex);
        let channels = ways.flat_map(|way| self.on((wire.id, way)));
        let others: BTreeSet<ChannelId> = channels.filter(|&channel| channel != lane).collect();
        u32::try_from(others.len()).unwrap_or(u32::MAX)
    }

    fn on(&self, (wire, to_host): Way) -> impl Iterator<Item = ChannelId> {
        let ends = [u32::MIN, u32::MAX].map(|node| {
            let index = if node == u32::MIN { u16::MIN } else { u16::MAX };
            (wire, to_host, ChannelId { node: NodeId(node), index })
        });
        self.crossings.range(ends[0]..=ends[1]).map(|((_, _, channel), _)| *channel)
    }

    /// Whether it has flows on a channel or a wire of one of `nodes`.
    pub(crate) fn touches(&self, nodes: &[NodeId]) -> bool {
        self.flows.keys().any(|channel| nodes.contains(&channel.node))
            || self.crossings.keys().any(|(wire, ..)| nodes.contains(&wire.node))
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, more: u32) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(more);
}

/// One less.
fn take<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let Entry::Occupied(mut count) = counts.entry(key) else { return };
    *count.get_mut() -= 1;
    if *count.get() == 0 {
        count.remove();
    }
}

/// The channel of each hop of `plan`, and what it crosses: the channel's wire, or the ports of the
/// hop's memories.
fn flows_of(
    topology: &Topology,
    plan: &Plan,
) -> impl Iterator<Item = (ChannelId, impl Iterator<Item = (WireId, bool, ChannelId)>)> {
    let is_host = |id: MemoryId| topology.memory(id).is_some_and(|m| m.kind.is_host());
    plan.hops.iter().zip(plan.memories.windows(2)).map(move |(hop, ends)| {
        let id = hop.channel;
        let (node, is_link) = (id.node, topology.link(id).is_some());
        let own = topology.channel(id).and_then(|channel| channel.wire);
        let own = own.map(|index| (WireId { node, index }, is_host(ends[1]), id));
        let port = |at: usize| topology.port(ends[at]).filter(|_| is_link).map(|(wire, _)| wire);
        let ports = [0, 1].map(|at| port(at).map(|wire| (wire, at == 1, id)));
        (id, own.into_iter().chain(ports.into_iter().flatten()))
    })
}
