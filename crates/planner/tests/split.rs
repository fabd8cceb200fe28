//! Transfers on several disjoint paths at once.

use isometry_planner::{Choice, Options, Query, Split, plan, split};
use model::{
    Algorithm, ChannelId, Component, CostModel, IndexSpace, Layout, MemoryId, Topology, Wire,
    WireId,
};
use proptest::prelude::*;
use random::{Random, memory, random_layouts, random_topology};
use std::collections::HashSet;

mod random;

/// A channel, or a wire in a direction.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Used {
    Channel(ChannelId),
    Wire(WireId, Option<bool>),
}

/// What the hops of a plan use.
fn used(topology: &Topology, plan: &model::Plan) -> HashSet<Used> {
    let mut used = HashSet::new();
    for (hop, ends) in plan.hops.iter().zip(plan.memories.windows(2)) {
        used.insert(Used::Channel(hop.channel));
        if topology.link(hop.channel).is_some() {
            let ports = ends.iter().zip([false, true]);
            let ports =
                ports.filter_map(|(&end, comes_in)| Some((topology.port(end)?.0, comes_in)));
            used.extend(ports.map(|(wire, comes_in)| Used::Wire(wire, Some(comes_in))));
        }
        let (class, _) = topology.class_of(hop.channel.node).unwrap();
        if let Some(wire) = topology.channel(hop.channel).and_then(|c| c.wire) {
            let both = topology.classes[class].wires[usize::from(wire)].half_duplex;
            let to_host = topology.memory(ends[1]).unwrap().kind.is_host();
            let wire = WireId { node: hop.channel.node, index: wire };
            used.insert(Used::Wire(wire, (!both).then_some(to_host)));
        }
    }
    used
}

/// Every rule of a split of `query`.
fn check(topology: &Topology, query: &Query<'_>, split: &Split, most: usize) {
    let (mut end, mut bytes, mut taken) = (0, 0, HashSet::new());
    assert!((1..=most.max(1)).contains(&split.parts.len()));
    for part in &split.parts {
        assert_eq!(part.range.start, end);
        (end, bytes) = (part.range.end, bytes + part.bytes);
        let mut used = used(topology, &part.plan);
        assert!(used.iter().all(|one| !taken.contains(one)), "{used:?} and {taken:?}");
        taken.extend(used.drain());
        assert_eq!(part.plan.memories.first(), Some(&query.src.memory));
        assert_eq!(part.plan.memories.last(), Some(&query.dst.memory));
        for layout in [query.src.layout, query.dst.layout] {
            let block: u64 = layout.blocks(split.dim).product();
            assert!(part.range.start.is_multiple_of(block), "{:?} cuts {block}", part.range);
        }
    }
    assert_eq!((end, bytes), (query.extents[split.dim], query.payload_bytes()));
    if split.parts.len() > 1 {
        assert!(split.parts.iter().all(|part| part.bytes > 0));
    }
}

/// A layout of two dimensions, each whole or in blocks, in some order.
fn any_layout() -> impl Strategy<Value = Layout> {
    let dim = |dim: u8| {
        prop::option::of(2u64..9).prop_map(move |block| match block {
            None => vec![Component::Whole(dim)],
            Some(size) => vec![Component::Inner { dim, level: 1, size }, Component::Outer(dim)],
        })
    };
    let all = (dim(0), dim(1)).prop_map(|(a, b)| [vec![Component::Fields], a, b].concat());
    all.prop_shuffle().prop_map(|components| Layout::new(components, 2).unwrap())
}

/// Two of them, or two orders without blocks.
fn any_layouts() -> impl Strategy<Value = [Layout; 2]> {
    let plain = any::<u64>().prop_map(|seed| random_layouts(&mut Random::new(seed), 2));
    prop_oneof![[any_layout(), any_layout()], plain]
}

/// A random node, some of whose channels cross a wire.
fn wired(seed: u64, total: u64) -> Topology {
    let mut random = Random::new(seed);
    let mut topology = random_topology(&mut random, total);
    let class = &mut topology.classes[0];
    let wire = |half_duplex| Wire { name: format!("{half_duplex}"), rate: 5e6, half_duplex };
    class.wires = vec![wire(false), wire(true)];
    for channel in &mut class.channels {
        channel.wire = [None, None, Some(0), Some(1)][random.below(4) as usize];
    }
    topology
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_split_keeps_its_rules(
        seed in 0..u64::MAX,
        layouts in any_layouts(),
        extents in prop::array::uniform2(1u64..300),
        most in 1..5usize,
        algorithm in prop::sample::select(vec![Algorithm::Full, Algorithm::Simple]),
        model in prop::sample::select(CostModel::ALL.to_vec()),
    ) {
        let topology = wired(seed, extents.iter().product::<u64>() * 4);
        let ends = ((memory(0), &layouts[0]), (memory(1), &layouts[1]));
        let query = Query::whole(ends.0, ends.1, &extents, &[4]);
        let options = Options { choice: Choice::Only(algorithm), model, ..Options::default() };
        let Ok(whole) = plan(&topology, &query, &options) else {
            prop_assert!(split(&topology, &query, &options, most).is_err());
            return Ok(());
        };
        let found = split(&topology, &query, &options, most).unwrap();
        check(&topology, &query, &found, most);
        let alone = split(&topology, &query, &options, 1).unwrap();
        prop_assert_eq!(alone.parts.len(), 1);
        prop_assert_eq!(&alone.parts[0].plan, &whole);
        prop_assert!(found.seconds() <= alone.seconds());
        prop_assert_eq!(found.seconds(), found.parts.iter().map(|p| p.seconds()).fold(0.0, f64::max));
    }
}

struct Case<'a> {
    cluster: &'a str,
    ends: [&'a str; 2],
    layouts: [&'a str; 2],
}

const KEPT: [&str; 2] = ["<F, x, y>", "<F, x, y>"];
const TURNED: [&str; 2] = ["<F, x, y>", "<F, y, x>"];

impl Case<'_> {
    /// The split of 2 GiB into at most so many parts, the path of each, and how much sooner it ends.
    fn split(&self, most: usize) -> (Split, Vec<String>, f64) {
        let topology = cluster::ready_made(self.cluster).unwrap();
        let space = IndexSpace::of(&[("y", 16384), ("x", 16384)]).unwrap();
        let layouts = self.layouts.map(|text| layout::parse(text, &space).unwrap());
        let memories: Vec<MemoryId> =
            self.ends.iter().map(|name| topology.memory_named(name).unwrap()).collect();
        let extents = space.extents();
        let ends = ((memories[0], &layouts[0]), (memories[1], &layouts[1]));
        let query = Query::whole(ends.0, ends.1, &extents, &[4, 4]);
        let options = Options::default();
        let found = split(&topology, &query, &options, most).unwrap();
        check(&topology, &query, &found, most);
        let name = |&m: &MemoryId| topology.memory_name(m).unwrap();
        let path =
            |plan: &model::Plan| plan.memories.iter().map(name).collect::<Vec<_>>().join(" ");
        let paths = found.parts.iter().map(|part| path(&part.plan)).collect();
        let alone = plan(&topology, &query, &options).unwrap().seconds.unwrap();
        let gain = alone / found.seconds();
        (found, paths, gain)
    }
}

#[test]
fn a_device_sends_by_its_own_card_by_anothers_and_by_the_hosts() {
    let case = Case { cluster: "modern", ends: ["n0.gpu0", "n1.gpu0"], layouts: KEPT };
    let (two, paths, gain) = case.split(2);
    assert_eq!(paths, ["n0.gpu0 n1.gpu0", "n0.gpu0 n0.gpu1 n1.gpu1 n1.gpu0"]);
    assert!(gain > 1.99, "{gain}");
    let parts = two.parts.iter().map(|part| part.seconds() / two.seconds());
    assert!(parts.clone().all(|part| part > 0.999), "{:?}", parts.collect::<Vec<_>>());
    let (_, paths, gain) = case.split(8);
    assert_eq!(paths.len(), 3, "every other way is by the same port or slot");
    assert_eq!(paths[2], "n0.gpu0 n0.zcm n1.gpu2 n1.gpu0");
    assert!(gain > 2.98, "{gain}");
}

#[test]
fn parts_are_as_large_as_their_paths_are_fast() {
    let case = Case { cluster: "modern", ends: ["n0.sys", "n0.gpu0"], layouts: TURNED };
    let (found, paths, gain) = case.split(2);
    assert_eq!(paths, ["n0.sys n0.zcm n0.gpu0 n0.gpu0", "n0.sys n0.gpu1 n0.gpu1 n0.gpu0"]);
    // 55 GB/s by the slot of the device, and 14 by another's.
    let part = found.parts[0].bytes as f64 / (16384.0 * 16384.0 * 8.0);
    assert!((part - 55.0 / 69.0).abs() < 0.01, "{part}");
    assert!((1.2..69.0 / 55.0).contains(&gain), "{gain}");
}

#[test]
fn parts_leave_by_one_port_each() {
    // Registered memory and the rest each have a link, but they leave by the same port.
    let case = Case { cluster: "sapling", ends: ["n0.sys", "n1.sys"], layouts: KEPT };
    assert_eq!(case.split(4).1, ["n0.sys n0.reg n1.sys"]);
}

#[test]
fn what_has_one_way_only_is_one_part() {
    for (cluster, ends) in [
        ("sapling", ["n0.dsk", "n1.fbm"]),
        ("modern", ["n0.nvme", "n0.gpu0"]),
        ("two-nodes", ["n0.fbm", "n1.fbm"]),
    ] {
        let (found, _, gain) = Case { cluster, ends, layouts: TURNED }.split(8);
        assert_eq!((found.parts.len(), gain), (1, 1.0), "{cluster}");
    }
}

#[test]
fn what_cannot_be_cut_is_one_part() {
    let case = Case {
        cluster: "modern",
        ends: ["n0.gpu0", "n1.gpu0"],
        layouts: ["<x_in=16384, y_in=16384, F, x_out, y_out>", "<F, x, y>"],
    };
    assert_eq!(case.split(8).0.parts.len(), 1);
}

/// From `a` to `d` by `b` at 3 GB/s, and by `c` at a rate, after a latency.
fn two_ways(rate: f64, latency_ns: u64) -> Topology {
    let text = format!(
        r#"
        [[node]]
        name = "n"
        memory = [
          {{ name = "a", kind = "SYS" }}, {{ name = "b", kind = "SYS" }},
          {{ name = "c", kind = "SYS" }}, {{ name = "d", kind = "SYS" }},
        ]
        channel = [
          {{ kind = "Memcpy", from = ["a"], to = ["b"], throughput = 3.0e9 }},
          {{ kind = "Memcpy", from = ["b"], to = ["d"], throughput = 30.0e9 }},
          {{ kind = "Memcpy", from = ["a"], to = ["c"], throughput = {rate:e}, latency_ns = {latency_ns} }},
          {{ kind = "Memcpy", from = ["c"], to = ["d"], throughput = 30.0e9 }},
        ]
        "#
    );
    cluster::parse(&text).unwrap()
}

/// The parts of a transfer of `mib` MiB from `a` to `d`.
fn by_two_ways(topology: &Topology, mib: u64) -> Split {
    let layout = Layout::row_major(1);
    let ends = ["a", "d"].map(|name| (topology.memory_named(name).unwrap(), &layout));
    let extents = [mib << 18];
    let query = Query::whole(ends[0], ends[1], &extents, &[4]);
    let found = split(topology, &query, &Options::default(), 4).unwrap();
    check(topology, &query, &found, 4);
    found
}

#[test]
fn a_way_that_begins_late_has_the_smaller_part() {
    let topology = two_ways(3e9, 5_000_000);
    let found = by_two_ways(&topology, 64);
    let seconds = found.parts.iter().map(|part| part.seconds()).collect::<Vec<_>>();
    assert_eq!(seconds.len(), 2);
    assert!((seconds[0] / seconds[1] - 1.0).abs() < 0.02, "{seconds:?}");
    // 8 MiB have arrived by `b` before the first byte would by `c`.
    assert_eq!(by_two_ways(&topology, 8).parts.len(), 1);
}

#[test]
fn a_way_must_be_worth_it() {
    let parts = |rate| by_two_ways(&two_ways(rate, 0), 1024).parts.len();
    assert_eq!([0.03e9, 0.09e9].map(parts), [1, 2]);
}

#[test]
fn parts_are_planned_as_carefully_as_the_whole() {
    // Either would be planned by the simple algorithm, were it a transfer.
    let found = by_two_ways(&two_ways(3e9, 0), 20);
    assert_eq!(found.parts.len(), 2);
    for part in &found.parts {
        assert!(part.bytes < Options::default().threshold_bytes);
        assert_eq!(part.plan.algorithm, Algorithm::Full);
    }
}
