//! What other transfers use while one is planned.

use model::{ChannelId, MemoryId, NodeId, Plan, Topology};
use std::collections::BTreeMap;

/// How many hops of running transfers are on each channel, by their direction on its wire.
///
/// Of a channel with `n` flows a new one gets the part `1 / (n + 1)`, and each channel at work on a
/// wire as much of that as every other: right where flows share fairly, and where the oldest goes
/// first and all are as large. It knows neither how urgent they are nor how much is left of them:
/// where channels serve the more urgent first, a load of those that are not less urgent is the one
/// to plan with. A flow that another hop of its transfer slows down counts as a whole one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Load {
    flows: BTreeMap<(ChannelId, bool), u32>,
}

impl Load {
    /// Nobody uses anything.
    pub const IDLE: &'static Load = &Load { flows: BTreeMap::new() };

    /// A transfer by `plan`, which was made for `topology`, has begun.
    pub fn begin(&mut self, topology: &Topology, plan: &Plan) {
        for flow in flows_of(topology, plan) {
            let flows = self.flows.entry(flow).or_default();
            *flows = flows.saturating_add(1);
        }
    }

    /// A transfer by `plan` that had begun has ended.
    pub fn end(&mut self, topology: &Topology, plan: &Plan) {
        for flow in flows_of(topology, plan) {
            let Some(flows) = self.flows.get_mut(&flow) else { continue };
            *flows -= 1;
            if *flows == 0 {
                self.flows.remove(&flow);
            }
        }
    }

    /// The flows of `other` too.
    pub fn add(&mut self, other: &Load) {
        for (&flow, &more) in &other.flows {
            let flows = self.flows.entry(flow).or_default();
            *flows = flows.saturating_add(more);
        }
    }

    /// Whether nobody uses anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty()
    }

    /// How many flows are on a channel.
    #[must_use]
    pub fn flows(&self, channel: ChannelId) -> u32 {
        let both = [true, false].map(|to_host| self.flows_towards(channel, to_host));
        both[0].saturating_add(both[1])
    }

    /// Those that end at host memory, or those that don't.
    pub(crate) fn flows_towards(&self, channel: ChannelId, to_host: bool) -> u32 {
        self.flows.get(&(channel, to_host)).copied().unwrap_or(0)
    }

    /// Whether it has flows on a channel of one of `nodes`.
    pub(crate) fn touches(&self, nodes: &[NodeId]) -> bool {
        self.flows.keys().any(|(channel, _)| nodes.contains(&channel.node))
    }
}

/// The channel of each hop of `plan`, and whether the hop ends at host memory.
fn flows_of(topology: &Topology, plan: &Plan) -> impl Iterator<Item = (ChannelId, bool)> {
    let is_host = |id: &MemoryId| topology.memory(*id).is_some_and(|m| m.kind.is_host());
    plan.hops.iter().zip(&plan.memories[1..]).map(move |(hop, to)| (hop.channel, is_host(to)))
}
