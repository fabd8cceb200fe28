//! Scenarios of several nodes out of a seed.

use super::{NodeFault, NodeScenario, WireSpec};
use crate::channel::ChannelSpec;
use crate::ends::Use;
use crate::generate::{self, LIMIT_NS, SPAN_NS};
use crate::geometry::Geometry;
use crate::rng::Rng;
use crate::scenario::{After, Fault, FenceSpec, Scenario, TransferSpec};
use engine::EngineConfig;
use model::{ChannelId, Layout, MemoryId, NodeId, Plan, Priority, Time};
use std::time::Duration;

/// The most nodes that a path visits.
const MAX_STRETCHES: usize = 3;

/// The channel to other nodes, of each node; those below stay on it.
const LINK: u16 = 2;

/// The scenario of several nodes of `seed`.
#[must_use]
pub fn node_scenario(seed: u64) -> NodeScenario {
    let mut rng = Rng::new(seed ^ 0xc1d5);
    let land = Land::draw(&mut rng);
    let count = rng.pick(&[1, 2, 3, 6, 12]);
    let entries = if count > 3 { 64 } else { rng.pick(&[16, 256, 1024]) };
    let mut transfers: Vec<TransferSpec> = Vec::new();
    for _ in 0..count {
        transfers.push(land.transfer(&mut rng, entries));
    }
    let pools = land.memories().map(|id| generate::pool(&mut rng, id, &transfers)).collect();
    let mut base = Scenario {
        seed,
        channels: land.channels.clone(),
        ageing: generate::ageing(&mut rng),
        pools,
        transfers,
        fences: Vec::new(),
        faults: Vec::new(),
        payload: true,
        limit: Time(LIMIT_NS),
    };
    generate::order_submissions(&mut rng, &mut base);
    let askers: Vec<NodeId> = base.transfers.iter().map(|t| land.asker(&mut rng, t)).collect();
    add_waits(&mut rng, &mut base, &askers);
    if rng.chance(50) {
        generate::add_faults(&mut rng, &mut base);
    }
    lengthen_stalls(&mut rng, &mut base);
    let faults = if rng.chance(50) { land.faults(&mut rng) } else { Vec::new() };
    let wire = wire(&mut rng);
    let room = EngineConfig::MAX_TRANSFERS;
    let max_transfers = rng.pick(&[room, room, room, room, 3, 6]);
    NodeScenario { nodes: land.nodes, base, askers, wire, max_transfers, faults }
}

/// The nodes, memories and channels of one scenario.
struct Land {
    nodes: u32,
    memories: u16,
    channels: Vec<ChannelSpec>,
}

impl Land {
    fn draw(rng: &mut Rng) -> Self {
        let nodes = rng.pick(&[2, 2, 3, 4]);
        let ids = (0..nodes).flat_map(|n| (0..=LINK).map(move |index| (NodeId(n), index)));
        let channels = ids.map(|(node, index)| {
            let spec = generate::channel(rng, index);
            ChannelSpec { id: ChannelId { node, index }, ..spec }
        });
        Land { nodes, channels: channels.collect(), memories: rng.pick(&[1, 2, 3]) }
    }

    fn memories(&self) -> impl Iterator<Item = MemoryId> + use<> {
        let memories = self.memories;
        (0..self.nodes)
            .flat_map(move |n| (0..memories).map(move |index| MemoryId { node: NodeId(n), index }))
    }

    fn node(&self, rng: &mut Rng) -> NodeId {
        NodeId(u32::try_from(rng.within(0, u64::from(self.nodes) - 1)).expect("few nodes"))
    }

    /// One of those that the data passes, or a third.
    fn asker(&self, rng: &mut Rng, transfer: &TransferSpec) -> NodeId {
        if rng.chance(30) { self.node(rng) } else { rng.pick(&transfer.plan.memories).node }
    }

    fn transfer(&self, rng: &mut Rng, entries: u64) -> TransferSpec {
        let geometry = Geometry::draw(rng, entries);
        let (src, first) = geometry.end(rng, Use::Source);
        let (dst, last) = geometry.end(rng, Use::Destination);
        let memories = self.path(rng);
        let layouts = generate::layouts(rng, &geometry, (first, last), memories.len() - 1);
        let mut plan = self.plan(rng, &geometry, layouts, memories);
        let least = geometry.payload_bytes() / generate::MAX_REQUESTS;
        plan.hops.iter_mut().for_each(|hop| hop.request_bytes = hop.request_bytes.max(least));
        TransferSpec {
            commit: rng.chance(10),
            priority: Priority(rng.pick(&[0, 0, 3])),
            ..TransferSpec::new(plan, geometry.fields(), [src, dst])
        }
    }

    /// Memories of one to three nodes, none of which the path comes back to.
    fn path(&self, rng: &mut Rng) -> Vec<MemoryId> {
        let mut nodes: Vec<NodeId> = (0..self.nodes).map(NodeId).collect();
        rng.shuffle(&mut nodes);
        nodes.truncate(rng.pick(&[1, 2, 2, 2, MAX_STRETCHES]).min(nodes.len()));
        let mut path = Vec::new();
        for node in nodes {
            for _ in 0..rng.pick(&[1, 1, 2]) {
                let index = rng.within(0, u64::from(self.memories) - 1);
                path.push(MemoryId { node, index: u16::try_from(index).expect("few memories") });
            }
        }
        if path.len() == 1 {
            path.push(path[0]);
        }
        path
    }

    fn plan(
        &self,
        rng: &mut Rng,
        geometry: &Geometry,
        layouts: Vec<Layout>,
        memories: Vec<MemoryId>,
    ) -> Plan {
        let mut plan = generate::plan(rng, geometry, layouts, memories);
        for (hop, pair) in plan.hops.iter_mut().zip(plan.memories.windows(2)) {
            let inside = rng.within(0, u64::from(LINK) - 1);
            let index = if pair[0].node == pair[1].node { inside } else { u64::from(LINK) };
            let index = u16::try_from(index).expect("few channels");
            hop.channel = ChannelId { node: pair[0].node, index };
        }
        plan
    }

    fn faults(&self, rng: &mut Rng) -> Vec<(Time, NodeFault)> {
        let mut faults = Vec::new();
        for _ in 0..rng.pick(&[1, 1, 2, 3]) {
            let at = rng.within(0, SPAN_NS);
            let node = self.node(rng);
            let most_ns = rng.pick(&[SPAN_NS, 60 * SPAN_NS]);
            let for_ns = rng.within(1, most_ns);
            let fault = match rng.within(0, 9) {
                0..=4 => NodeFault::Die(node),
                5..=7 => {
                    let (other, is_one_way) = (self.node(rng), rng.chance(50));
                    NodeFault::Part { one: node, other, for_ns, is_one_way }
                }
                _ => NodeFault::Stall { node, for_ns },
            };
            if fault == NodeFault::Die(node) && rng.chance(60) {
                faults.push((Time(at + for_ns), NodeFault::Return(node)));
            }
            faults.push((Time(at), fault));
        }
        faults
    }
}

/// Transfers of one asker may wait for each other, and all for fences.
fn add_waits(rng: &mut Rng, base: &mut Scenario, askers: &[NodeId]) {
    let fences = rng.pick(&[0, 0, 1]);
    let fence =
        |rng: &mut Rng| FenceSpec { at: Time(rng.within(0, SPAN_NS)), fails: rng.chance(20) };
    base.fences = (0..fences).map(|_| fence(rng)).collect();
    for at in 1..base.transfers.len() {
        let other = rng.index(at);
        if rng.chance(20) && askers[other] == askers[at] {
            base.transfers[at].after = vec![After::Transfer(other)];
        }
        let submit_at = base.transfers[at].submit_at;
        if rng.chance(20) && base.fences.first().is_some_and(|f| f.at >= submit_at) {
            base.transfers[at].after.push(After::Fence(0));
        }
    }
}

/// Channels may stand still for longer than a lease: that is no reason to give anybody up.
fn lengthen_stalls(rng: &mut Rng, base: &mut Scenario) {
    for (_, fault) in &mut base.faults {
        if let Fault::Stall { for_ns, .. } = fault {
            *for_ns *= rng.pick(&[1, 1, 60]);
        }
    }
}

/// A lease is many times what a packet takes that is lost a few times, or late; on a wire that loses
/// none it may be shorter than what a transfer waits for.
fn wire(rng: &mut Rng) -> WireSpec {
    let is_bad = rng.chance(50);
    WireSpec {
        latency_ns: rng.pick(&[100, 1_000, 20_000]),
        jitter_ns: rng.pick(&[0, 1_000, 50_000]),
        lost_percent: if is_bad { rng.pick(&[0, 5, 25]) } else { 0 },
        repeated_percent: if is_bad { rng.pick(&[0, 5, 25]) } else { 0 },
        late_percent: if is_bad { rng.pick(&[0, 1]) } else { 0 },
        lease: Duration::from_millis(if is_bad { 20 } else { rng.pick(&[1, 1, 20]) }),
        resend: Duration::from_nanos(rng.pick(&[100_000, 300_000])),
    }
}
