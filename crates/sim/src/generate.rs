//! Scenarios out of a seed: a few memories and channels, plans by hand over them, and trouble.

use crate::channel::ChannelSpec;
use crate::ends::Use;
use crate::geometry::Geometry;
use crate::planned;
use crate::rng::Rng;
use crate::scenario::{After, Fault, FenceSpec, PoolSpec, Rule, Scenario, TransferSpec};
use layout::{Sizes, prefix_bytes, shuffle_bytes};
use model::{
    Algorithm, Bound, Buffer, ChannelErrorKind, ChannelId, ChannelKind, CostModel, Curves, Hop,
    Layout, Limit, MemoryId, NodeId, Plan, Priority, SearchReport, ShapeClass, Throughput, Time,
    Topology,
};
use std::time::Duration;

/// The scenario of `seed`.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let land = Land::draw(&mut rng);
    let count = rng.pick(&[1, 1, 2, 3, 4, 6, 16]);
    let entries = if count > 6 { 64 } else { rng.pick(&[16, 256, 2048]) };
    let mut scenario = Scenario {
        seed,
        channels: land.channels.clone(),
        ageing: ageing(&mut rng),
        pools: Vec::new(),
        transfers: land.transfers(&mut rng, count, entries),
        fences: Vec::new(),
        faults: Vec::new(),
        payload: true,
        limit: Time(LIMIT_NS),
    };
    scenario.pools = land.pools(&mut rng, &scenario.transfers);
    order_submissions(&mut rng, &mut scenario);
    add_waits(&mut rng, &mut scenario);
    add_faults(&mut rng, &mut scenario);
    scenario
}

pub(crate) fn ageing(rng: &mut Rng) -> Option<Duration> {
    rng.pick(&[None, None, None, None, Some(1_000), Some(50_000)]).map(Duration::from_nanos)
}

/// Ten virtual seconds: a thousand times what the longest scenario takes.
pub(crate) const LIMIT_NS: u64 = 10_000_000_000;

/// About how long a scenario without trouble takes; what goes wrong goes wrong within it.
pub(crate) const SPAN_NS: u64 = 400_000;

/// About the most requests of one hop.
pub(crate) const MAX_REQUESTS: u64 = 48;

/// The memories and channels of one scenario.
struct Land {
    memories: u16,
    channels: Vec<ChannelSpec>,
    priorities: Vec<i32>,
    /// Where the planner is asked; without, plans are drawn.
    topology: Option<Topology>,
}

impl Land {
    fn draw(rng: &mut Rng) -> Self {
        let count = u16::try_from(rng.within(1, 4)).expect("small");
        let memories = u16::try_from(rng.within(2, 5)).expect("small");
        let channels: Vec<ChannelSpec> = (0..count).map(|index| channel(rng, index)).collect();
        let topology = planned::topology(rng, memories, &channels);
        Land {
            memories,
            channels,
            priorities: rng.pick(&[vec![0], vec![0, 0, 9], vec![-7, 0, 3, i32::MAX]]),
            topology: rng.chance(40).then_some(topology),
        }
    }

    fn memory(&self, rng: &mut Rng) -> MemoryId {
        let last = u64::from(self.memories) - 1;
        MemoryId { node: NodeId(0), index: u16::try_from(rng.within(0, last)).expect("small") }
    }

    /// Some are alike, and so share a program.
    fn transfers(&self, rng: &mut Rng, count: usize, entries: u64) -> Vec<TransferSpec> {
        let mut transfers: Vec<TransferSpec> = Vec::new();
        for _ in 0..count {
            let alike = !transfers.is_empty() && rng.chance(25);
            let next = if alike { rng.pick(&transfers) } else { self.transfer(rng, entries) };
            transfers.push(TransferSpec { priority: self.priority(rng), ..next });
        }
        transfers
    }

    fn priority(&self, rng: &mut Rng) -> Priority {
        Priority(rng.pick(&self.priorities))
    }

    fn transfer(&self, rng: &mut Rng, entries: u64) -> TransferSpec {
        let geometry = Geometry::draw(rng, entries);
        let (src, first) = geometry.end(rng, Use::Source);
        let (dst, last) = geometry.end(rng, Use::Destination);
        let ends = [(&src, self.memory(rng)), (&dst, self.memory(rng))];
        let asked = self.topology.as_ref();
        let planned = asked.and_then(|t| planned::plan(rng, t, ends));
        let mut plan = planned.unwrap_or_else(|| {
            let hops = rng.pick(&[1, 2, 2, 3, 3, 4]);
            let layouts = layouts(rng, &geometry, (first, last), hops);
            self.plan(rng, &geometry, layouts)
        });
        let least = geometry.payload_bytes() / MAX_REQUESTS;
        plan.hops.iter_mut().for_each(|hop| hop.request_bytes = hop.request_bytes.max(least));
        TransferSpec {
            commit: rng.chance(10),
            ..TransferSpec::new(plan, geometry.fields(), [src, dst])
        }
    }

    fn plan(&self, rng: &mut Rng, geometry: &Geometry, layouts: Vec<Layout>) -> Plan {
        let memories: Vec<MemoryId> = layouts.iter().map(|_| self.memory(rng)).collect();
        let mut plan = plan(rng, geometry, layouts, memories);
        for hop in &mut plan.hops {
            hop.channel = rng.pick(&self.channels).id;
        }
        plan
    }

    /// Pools that hold every transfer by itself: some just so, some all at once.
    fn pools(&self, rng: &mut Rng, transfers: &[TransferSpec]) -> Vec<PoolSpec> {
        let memory = |index| MemoryId { node: NodeId(0), index };
        (0..self.memories).map(|index| pool(rng, memory(index), transfers)).collect()
    }
}

/// A plan through `memories` in these layouts, whose hops have no channel yet.
pub(crate) fn plan(
    rng: &mut Rng,
    geometry: &Geometry,
    layouts: Vec<Layout>,
    memories: Vec<MemoryId>,
) -> Plan {
    let sizes = geometry.sizes();
    let pairs = layouts.windows(2);
    let hops: Vec<Hop> = pairs.map(|pair| hop(rng, pair, &sizes)).collect();
    let ring = |at: usize| ring_bytes(&hops, at);
    let rings: Vec<u64> = (1..hops.len()).map(ring).collect();
    let buffer = |(memory, least)| Buffer { memory, bytes: roomy(rng, least) };
    let buffers = memories[1..].iter().copied().zip(rings).map(buffer).collect();
    Plan {
        algorithm: Algorithm::Full,
        model: CostModel::Default,
        throughput: 1e9,
        seconds: None,
        memories,
        layouts,
        phase: geometry.phase.clone(),
        hops,
        buffers,
        bound_by: Bound { hop: 0, why: Limit::Channel },
        alternatives: Vec::new(),
        search: SearchReport::default(),
    }
}

fn hop(rng: &mut Rng, pair: &[Layout], sizes: &Sizes) -> Hop {
    Hop {
        channel: ChannelId { node: NodeId(0), index: 0 },
        kind: ChannelKind::Memcpy,
        prefix_bytes: prefix_bytes(&pair[0], &pair[1], sizes),
        shuffle_bytes: shuffle_bytes(&pair[0], &pair[1], sizes),
        class: ShapeClass::Run,
        throughput: 1e9,
        request_bytes: rng.pick(&[1, 16, 64, 256, 1024, 8192]),
    }
}

pub(crate) fn pool(rng: &mut Rng, memory: MemoryId, transfers: &[TransferSpec]) -> PoolSpec {
    let need = |t: &TransferSpec| -> u64 {
        let here = t.plan.buffers.iter().filter(|b| b.memory == memory);
        here.map(|b| b.bytes.next_multiple_of(STAGING_ALIGN_BYTES)).sum()
    };
    let largest = transfers.iter().map(need).max().unwrap_or(0);
    let capacity_bytes = largest * rng.pick(&[1, 1, 2, 8]);
    let reserve_bytes =
        if capacity_bytes > largest { rng.pick(&[0, capacity_bytes / 8]) } else { 0 };
    PoolSpec { memory, capacity_bytes, reserve_bytes }
}

/// Engines hand out staging in multiples of this.
const STAGING_ALIGN_BYTES: u64 = 4096;

pub(crate) fn channel(rng: &mut Rng, index: u16) -> ChannelSpec {
    let rate = rng.pick(&[0.05e9, 0.5e9, 2e9, 8e9]);
    let flat = Throughput::constant(rate).expect("a positive rate");
    let steep = Throughput::through(vec![(64, rate / 8.0), (4096, rate)]).expect("rising rates");
    ChannelSpec {
        id: ChannelId { node: NodeId(0), index },
        curves: Curves::all(if rng.chance(50) { flat } else { steep }),
        latency_ns: rng.pick(&[0, 100, 5_000]),
        jitter_ns: rng.pick(&[0, 500, 20_000]),
        max_in_flight: rng.pick(&[1, 2, 3, 8]),
        rule: rng.pick(&[Rule::Priority, Rule::Priority, Rule::Fifo, Rule::FairShare]),
    }
}

/// The layouts of a path: an intermediate one is that of the memory before, of the end, or new.
pub(crate) fn layouts(
    rng: &mut Rng,
    geometry: &Geometry,
    ends: (Layout, Layout),
    hops: usize,
) -> Vec<Layout> {
    let mut layouts = vec![ends.0];
    for _ in 1..hops {
        let before = layouts[layouts.len() - 1].clone();
        let next = match rng.within(0, 3) {
            0 | 1 => before,
            2 => ends.1.clone(),
            _ => geometry.layout(rng),
        };
        layouts.push(next);
    }
    layouts.push(ends.1);
    layouts
}

/// The least ring between hop `at - 1` and hop `at`: two granules of either that converts between
/// two windows.
fn ring_bytes(hops: &[Hop], at: usize) -> u64 {
    let inner = |hop: usize| (1..hops.len() - 1).contains(&hop).then(|| hops[hop].shuffle_bytes);
    2 * inner(at - 1).max(inner(at)).unwrap_or(1)
}

fn roomy(rng: &mut Rng, least: u64) -> u64 {
    let wish = rng.pick(&[64, 256, 1000, 4096]);
    (least * rng.pick(&[1, 1, 2, 3])).max(wish)
}

/// All at once, or spread.
pub(crate) fn order_submissions(rng: &mut Rng, scenario: &mut Scenario) {
    let spread = rng.pick(&[0, 0, SPAN_NS]);
    let mut times: Vec<u64> = scenario.transfers.iter().map(|_| rng.within(0, spread)).collect();
    times.sort_unstable();
    for (transfer, at) in scenario.transfers.iter_mut().zip(times) {
        transfer.submit_at = Time(at);
        let patience = rng.within(0, 2 * SPAN_NS);
        transfer.deadline = rng.chance(15).then_some(Time(at + patience));
    }
}

fn add_waits(rng: &mut Rng, scenario: &mut Scenario) {
    let fences = if rng.chance(30) { rng.within(1, 2) } else { 0 };
    let fence =
        |rng: &mut Rng| FenceSpec { at: Time(rng.within(0, SPAN_NS)), fails: rng.chance(20) };
    scenario.fences = (0..fences).map(|_| fence(rng)).collect();
    for transfer in 0..scenario.transfers.len() {
        let mut after = Vec::new();
        if transfer > 0 && rng.chance(20) {
            after.push(After::Transfer(rng.index(transfer)));
        }
        let submit_at = scenario.transfers[transfer].submit_at;
        let open = |&fence: &usize| scenario.fences[fence].at >= submit_at;
        let open: Vec<usize> = (0..scenario.fences.len()).filter(open).collect();
        if !open.is_empty() && rng.chance(30) {
            after.push(After::Fence(rng.pick(&open)));
        }
        scenario.transfers[transfer].after = after;
    }
    for transfer in 0..scenario.transfers.len() {
        let awaited = After::Transfer(transfer);
        let is_awaited = scenario.transfers.iter().any(|t| t.after.contains(&awaited));
        scenario.transfers[transfer].forgotten = !is_awaited && rng.chance(15);
    }
}

pub(crate) fn add_faults(rng: &mut Rng, scenario: &mut Scenario) {
    let count = rng.pick(&[0, 0, 1, 1, 2, 4]);
    for _ in 0..count {
        let fault = fault(rng, scenario);
        scenario.faults.push((Time(rng.within(0, SPAN_NS)), fault));
    }
}

fn fault(rng: &mut Rng, scenario: &Scenario) -> Fault {
    let channel = rng.pick(&scenario.channels).id;
    let kinds = [ChannelErrorKind::Io, ChannelErrorKind::NoSpace, ChannelErrorKind::ShortRead];
    match rng.within(0, 9) {
        0..=3 => Fault::Cancel(rng.index(scenario.transfers.len())),
        4..=6 => Fault::Break { channel, kind: rng.pick(&kinds) },
        7..=8 => Fault::Stall { channel, for_ns: rng.within(1, SPAN_NS) },
        _ => Fault::Lose(channel),
    }
}
