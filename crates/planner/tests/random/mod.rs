//! Random topologies and layouts, from a seed.

use model::{
    Channel, ChannelKind, Component, Curves, Layout, Memory, MemoryId, MemoryKind, NodeClass,
    NodeId, Throughput, Topology,
};

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// The next number from `low` to `high`.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The memory `index` of the only node.
pub(crate) fn memory(index: usize) -> MemoryId {
    MemoryId { node: NodeId(0), index: u16::try_from(index).unwrap() }
}

/// One node with 4 or 5 memories, channels between about half of the pairs, self-loops at most
/// memories, and a `TH` that is tight for instances of `total` bytes.
pub(crate) fn random_topology(random: &mut Random, total: u64) -> Topology {
    let count = random.within(4, 5) as u16;
    let mut channels = Vec::new();
    for from in 0..count {
        for to in 0..count {
            if random.chance(if from == to { 75 } else { 60 }) {
                channels.push(channel(random, from, to));
            }
        }
    }
    let class = NodeClass {
        name: "n".into(),
        first: 0,
        count: 1,
        memories: (0..count).map(|i| random_memory(random, i)).collect(),
        channels,
        wires: vec![],
    };
    let th_bytes = (total / random.within(2, 20)).max(8);
    Topology { name: "random".into(), generation: 0, th_bytes, classes: vec![class], links: vec![] }
}

fn random_memory(random: &mut Random, index: u16) -> Memory {
    let kinds = [MemoryKind::Sys, MemoryKind::Zcm, MemoryKind::Reg, MemoryKind::Fbm];
    Memory {
        name: format!("m{index}"),
        kind: kinds[random.below(4) as usize],
        capacity_bytes: None,
        th_bytes: random.chance(8).then_some(0),
        port: None,
    }
}

fn channel(random: &mut Random, from: u16, to: u16) -> Channel {
    let flat = random.chance(if from == to { 60 } else { 8 });
    let kind = if flat { ChannelKind::Memcpy } else { ChannelKind::GpuCopy };
    let curve = if flat {
        Throughput::constant(random.within(2, 12) as f64 * 1e6).unwrap()
    } else {
        let (mut request, mut rate, mut points) = (0, 0.0, Vec::new());
        for _ in 0..random.within(1, 4) {
            request += random.within(1, 60);
            rate += random.within(1, 4000) as f64 * 1e3;
            points.push((request, rate));
        }
        Throughput::through(points).unwrap()
    };
    Channel {
        kind,
        from: vec![from],
        to: vec![to],
        curves: Curves::all(curve),
        latency_ns: 0,
        wire: None,
        in_flight: None,
        stream_from_bytes: None,
        assumed: false,
    }
}

/// Two orders of `F` and the dimensions, seldom the same.
pub(crate) fn random_layouts(random: &mut Random, rank: usize) -> [Layout; 2] {
    let dims = (0..rank).map(|d| Component::Whole(u8::try_from(d).unwrap()));
    let orders = permutations(&std::iter::once(Component::Fields).chain(dims).collect::<Vec<_>>());
    let count = orders.len() as u64;
    let first = random.below(count);
    let other = if random.chance(10) { first } else { first + random.within(1, count - 1) };
    [first, other % count].map(|i| Layout::new(orders[i as usize].clone(), rank).unwrap())
}

/// All orders of `items`.
pub(crate) fn permutations(items: &[Component]) -> Vec<Vec<Component>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for (i, &first) in items.iter().enumerate() {
        let rest = [&items[..i], &items[i + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|tail| [vec![first], tail].concat()));
    }
    all
}
