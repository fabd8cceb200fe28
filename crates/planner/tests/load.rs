//! Plans beside the flows of other transfers.

use isometry_planner::{Choice, Load, Options, PlanCache, Query, explain, plan};
use model::{
    Algorithm, ChannelId, CostModel, IndexSpace, Layout, MemoryId, NodeId, Plan, Topology,
};
use proptest::prelude::*;
use random::{Random, memory, random_layouts, random_topology};

mod random;

/// Two ways from `a` to `d`, by `b` and by `c`, and a disk on a half-duplex wire; `w` is crossed by
/// two channels to the device and one from it.
const NODE: &str = r#"
th_bytes = 1048576
[[node]]
name = "n"
count = 4
memory = [
  { name = "a", kind = "SYS" }, { name = "b", kind = "SYS" }, { name = "c", kind = "SYS" },
  { name = "d", kind = "SYS" }, { name = "dev", kind = "FBM" }, { name = "dsk", kind = "DSK" },
]
channel = [
  { kind = "Memcpy", from = ["a"], to = ["b"], throughput = 4.0e9 },
  { kind = "Memcpy", from = ["b"], to = ["d"], throughput = 4.0e9 },
  { kind = "Memcpy", from = ["a"], to = ["c"], throughput = 3.0e9 },
  { kind = "Memcpy", from = ["c"], to = ["d"], throughput = 3.0e9 },
  { kind = "GPUWrite", from = ["a"], to = ["dev"], throughput = 9.0e9, wire = "bus" },
  { kind = "GPUWrite", from = ["d"], to = ["dev"], throughput = 9.0e9, wire = "bus" },
  { kind = "GPURead", from = ["dev"], to = ["a"], throughput = 9.0e9, wire = "bus" },
  { kind = "DiskWrite", from = ["d"], to = ["dsk"], throughput = 1.0e9, wire = "disk" },
  { kind = "DiskRead", from = ["dsk"], to = ["d"], throughput = 1.0e9, wire = "disk" },
]
wire = [
  { name = "bus", throughput = 6.0e9 },
  { name = "disk", throughput = 1.0e9, half_duplex = true },
]
[[link]]
kind = "RemoteMemcpy"
from = ["n.d"]
to = ["n.a"]
throughput = 2.0e9
"#;

/// The way from `a` to `end` crosses the bus twice.
const TWICE: &str = r#"
[[node]]
name = "n"
memory = [
  { name = "a", kind = "SYS" }, { name = "b", kind = "SYS" },
  { name = "dev", kind = "FBM" }, { name = "end", kind = "FBM" },
]
channel = [
  { kind = "GPUWrite", from = ["a"], to = ["dev"], throughput = 90.0e9, wire = "bus" },
  { kind = "GPURead", from = ["dev"], to = ["b"], throughput = 90.0e9 },
  { kind = "GPUWrite", from = ["b"], to = ["end"], throughput = 90.0e9, wire = "bus" },
]
wire = [ { name = "bus", throughput = 6.0e9 } ]
"#;

struct Cluster {
    topology: Topology,
    layout: Layout,
    load: Load,
}

const EXTENTS: [u64; 2] = [8192, 8192];
const PAYLOAD: f64 = (4 * 8192 * 8192) as f64;

impl Cluster {
    fn new() -> Cluster {
        Cluster::of(NODE)
    }

    fn of(text: &str) -> Cluster {
        let topology = cluster::parse(text).unwrap();
        Cluster { topology, layout: Layout::row_major(2), load: Load::default() }
    }

    fn memory(&self, name: &str) -> MemoryId {
        self.topology.memory_named(name).unwrap()
    }

    fn query(&self, from: &str, to: &str) -> Query<'_> {
        let ends = [from, to].map(|name| (self.memory(name), &self.layout));
        Query { load: &self.load, ..Query::whole(ends[0], ends[1], &EXTENTS, &[4]) }
    }

    fn plan(&self, from: &str, to: &str, model: CostModel) -> Plan {
        let options =
            Options { choice: Choice::Only(Algorithm::Full), model, ..Options::default() };
        plan(&self.topology, &self.query(from, to), &options).unwrap()
    }

    /// A transfer begins, planned beside those that have begun before.
    fn begin(&mut self, from: &str, to: &str) -> Plan {
        let plan = self.plan(from, to, CostModel::Default);
        self.load.begin(&self.topology, &plan);
        plan
    }

    fn way(&self, plan: &Plan) -> String {
        let names = plan.memories.iter().map(|&m| self.topology.memory_name(m).unwrap());
        names.collect::<Vec<_>>().join(" ").replace("n0.", "")
    }
}

fn rate(plan: &Plan) -> f64 {
    (plan.throughput / 1e8).round() / 10.0
}

#[test]
fn each_goes_where_most_is_left() {
    let mut cluster = Cluster::new();
    let plans = [(); 3].map(|()| cluster.begin("n0.a", "n0.d"));
    let ways = plans.each_ref().map(|plan| cluster.way(plan));
    assert_eq!(ways, ["a b d", "a c d", "a b d"]);
    assert_eq!(plans.each_ref().map(rate), [4.0, 3.0, 2.0]);
    assert_eq!(plans.each_ref().map(|plan| plan.search.flows), [0, 2, 4]);
    // The first ends: 2 GB/s is left by `b` and 1.5 by `c`.
    cluster.load.end(&cluster.topology, &plans[0]);
    assert_eq!(cluster.way(&cluster.plan("n0.a", "n0.d", CostModel::Default)), "a b d");
    cluster.load.end(&cluster.topology, &plans[1]);
    assert_eq!(cluster.way(&cluster.plan("n0.a", "n0.d", CostModel::Default)), "a c d");
    cluster.load.end(&cluster.topology, &plans[2]);
    assert!(cluster.load.is_idle());
    assert_eq!(cluster.load, Load::default());
}

#[test]
fn loads_add_up() {
    let mut cluster = Cluster::new();
    let plan = cluster.begin("n0.a", "n0.dev");
    let mut both = cluster.load.clone();
    both.add(&cluster.load);
    assert_eq!(both.flows(plan.hops[0].channel), 2);
    for _ in 0..2 {
        both.end(&cluster.topology, &plan);
    }
    assert!(both.is_idle());
}

#[test]
fn the_papers_model_counts_the_shares_too() {
    let mut cluster = Cluster::new();
    cluster.begin("n0.a", "n0.d");
    let paper = cluster.plan("n0.a", "n0.d", CostModel::Paper);
    assert_eq!((cluster.way(&paper), paper.throughput), ("a c d".to_owned(), 3.0e9));
}

#[test]
fn flows_of_one_channel_share_what_it_gets_of_its_wire() {
    let mut cluster = Cluster::new();
    let writes = [(); 2].map(|()| rate(&cluster.begin("n0.a", "n0.dev")));
    assert_eq!(writes, [6.0, 3.0]);
    // However many flows the other channel has, it is one on the wire.
    let third = cluster.plan("n0.a", "n0.dev", CostModel::Default);
    assert_eq!((cluster.way(&third), rate(&third)), ("a b d dev".to_owned(), 3.0));
    assert_eq!(rate(&cluster.plan("n0.d", "n0.dev", CostModel::Default)), 3.0);
    assert_eq!(rate(&cluster.plan("n0.dev", "n0.a", CostModel::Default)), 6.0, "the other way");
}

#[test]
fn hops_of_one_plan_that_cross_a_wire_each_have_their_share_of_it() {
    let mut cluster = Cluster::of(TWICE);
    assert_eq!(rate(&cluster.plan("a", "end", CostModel::Default)), 3.0);
    for _ in 0..2 {
        cluster.begin("b", "end");
    }
    // A half for the first hop and a third for the last, which two others share the channel with.
    assert_eq!(rate(&cluster.plan("a", "end", CostModel::Default)), 1.2);
}

/// Three nodes whose memories `a` and `b` are behind one port.
const PORTS: &str = r#"
[[node]]
name = "n"
count = 4
memory = [
  { name = "a", kind = "SYS", port = "nic" }, { name = "b", kind = "REG", port = "nic" },
  { name = "c", kind = "SYS" },
]
channel = [ { kind = "Memcpy", from = ["a"], to = ["a"], throughput = 80.0e9 } ]
wire = [ { name = "nic", throughput = 6.0e9 } ]
[[link]]
kind = "RemoteMemcpy"
from = ["n.a", "n.c"]
to = ["n.a", "n.c"]
throughput = 9.0e9
[[link]]
kind = "RemoteMemcpy"
from = ["n.b"]
to = ["n.b"]
throughput = 2.0e9
"#;

#[test]
fn a_link_is_no_faster_than_the_ports_at_its_ends() {
    let cluster = Cluster::of(PORTS);
    let rate = |from, to| rate(&cluster.plan(from, to, CostModel::Default));
    assert_eq!([rate("n0.a", "n1.a"), rate("n0.c", "n1.a"), rate("n0.a", "n1.c")], [6.0; 3]);
    assert_eq!([rate("n0.c", "n1.c"), rate("n0.b", "n1.b")], [9.0, 2.0]);
    let paper = cluster.plan("n0.a", "n1.a", CostModel::Paper);
    assert_eq!(paper.throughput, 9.0e9);
}

#[test]
fn who_sends_to_one_node_shares_its_port() {
    let mut cluster = Cluster::of(PORTS);
    let sent = [0, 1, 2].map(|from| rate(&cluster.begin(&format!("n{from}.a"), "n3.a")));
    assert_eq!(sent, [6.0, 3.0, 2.0]);
    // A channel with several flows is one on the port, and its flows share what it gets.
    assert_eq!(rate(&cluster.plan("n2.a", "n3.a", CostModel::Default)), 1.0);
    // What leaves there, what goes elsewhere, and what has no port, is as if nobody came in.
    let idle = |from, to| rate(&cluster.plan(from, to, CostModel::Default));
    assert_eq!([idle("n3.a", "n1.a"), idle("n3.c", "n1.c")], [6.0, 9.0]);
    // Another channel of the same node leaves by the same port.
    assert_eq!(idle("n0.b", "n1.b"), 2.0);
    for _ in 0..3 {
        cluster.begin("n1.b", "n0.b");
    }
    assert_eq!(rate(&cluster.plan("n1.a", "n0.a", CostModel::Default)), 1.5);
}

#[test]
fn the_channels_share_a_wire_and_the_flows_their_channel() {
    let mut cluster = Cluster::of(TWICE);
    cluster.begin("b", "end");
    cluster.begin("a", "dev");
    assert_eq!(rate(&cluster.plan("a", "dev", CostModel::Default)), 1.5, "half of a half");
}

#[test]
fn both_ways_share_a_half_duplex_wire() {
    let mut cluster = Cluster::new();
    cluster.begin("n0.d", "n0.dsk");
    assert_eq!(rate(&cluster.plan("n0.dsk", "n0.d", CostModel::Default)), 0.5);
}

#[test]
fn a_link_is_shared_by_all_that_its_node_sends() {
    let mut cluster = Cluster::new();
    cluster.begin("n0.d", "n1.a");
    assert_eq!(rate(&cluster.plan("n0.d", "n2.a", CostModel::Default)), 1.0);
    assert_eq!(rate(&cluster.plan("n1.d", "n2.a", CostModel::Default)), 2.0);
}

#[test]
fn no_plan_is_kept_for_a_load_or_from_it() {
    let mut cluster = Cluster::new();
    let (mut cache, options) = (PlanCache::new(8), Options::default());
    let idle = cache.plan(&cluster.topology, &cluster.query("n0.a", "n0.d"), &options).unwrap();
    cluster.begin("n0.a", "n0.d");
    for _ in 0..2 {
        let query = cluster.query("n0.a", "n0.d");
        let beside = cache.plan(&cluster.topology, &query, &options).unwrap();
        assert!(!beside.hit);
        assert_eq!(*beside.plan, plan(&cluster.topology, &query, &options).unwrap());
        assert_ne!(beside.plan, idle.plan);
    }
    // Nodes that look alike, and have no load, are served though the node that was planned for has.
    let mut cache = PlanCache::new(8);
    for (node, hit) in [("n2", false), ("n3", true)] {
        let query = cluster.query(&format!("{node}.a"), &format!("{node}.d"));
        let other = cache.plan(&cluster.topology, &query, &options).unwrap();
        assert_eq!((other.hit, rate(&other.plan), other.plan.search.flows), (hit, 4.0, 0));
    }
    cluster.load = Load::default();
    let query = cluster.query("n0.a", "n0.d");
    let again = cache.plan(&cluster.topology, &query, &options).unwrap();
    assert_eq!((again.hit, &again.plan), (true, &idle.plan));
}

#[test]
fn explain_says_that_it_was_counted() {
    let mut cluster = Cluster::new();
    let space = IndexSpace::of(&[("y", 8192), ("x", 8192)]).unwrap();
    let told = |plan: &Plan| explain(plan, &cluster.topology, &space);
    let idle = cluster.plan("n0.a", "n0.d", CostModel::Default);
    assert!(!told(&idle).contains("beside"), "{}", told(&idle));
    cluster.begin("n0.a", "n0.d");
    let told = |plan: &Plan| explain(plan, &cluster.topology, &space);
    let busy = cluster.plan("n0.a", "n0.d", CostModel::Default);
    let line = "\nbeside 2 flows of other transfers, by fair shares\n";
    assert!(told(&busy).contains(line), "{}", told(&busy));
}

#[test]
fn an_idle_load_changes_nothing() {
    let mut cluster = Cluster::new();
    let before = cluster.plan("n0.a", "n1.d", CostModel::Default);
    let other = cluster.begin("n2.a", "n2.dev");
    assert_eq!(cluster.load.flows(other.hops[0].channel), 1);
    assert_eq!(cluster.plan("n0.a", "n1.d", CostModel::Default), before);
    let seconds = before.seconds.unwrap();
    assert!(seconds > PAYLOAD / 2.0e9 && seconds < PAYLOAD / 1.9e9, "{seconds}");
}

/// `load` has so many flows on each channel of the one node, of plans of a hop each.
fn random_load(random: &mut Random, topology: &Topology) -> (Load, Vec<u32>) {
    let mut load = Load::default();
    let channels = &topology.classes[0].channels;
    let flows: Vec<u32> = channels.iter().map(|_| random.below(4) as u32).collect();
    for (index, (channel, &flows)) in (0..).zip(channels.iter().zip(&flows)) {
        let ends = [channel.from[0], channel.to[0]].map(|at| memory(at.into()));
        let plan = one_hop(ends, ChannelId { node: NodeId(0), index });
        (0..flows).for_each(|_| load.begin(topology, &plan));
    }
    (load, flows)
}

fn one_hop(ends: [MemoryId; 2], channel: ChannelId) -> Plan {
    let cluster = Cluster::new();
    let mut plan = cluster.plan("n0.a", "n0.b", CostModel::Default);
    (plan.memories, plan.hops[0].channel) = (ends.into(), channel);
    plan
}

proptest! {
    /// A load is as if every channel were as slow as what is left of it.
    #[test]
    fn beside_flows_is_among_slower_channels(
        seed in any::<u64>(),
        extents in prop::array::uniform2(1u64..300),
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        model in prop::sample::select(CostModel::ALL.to_vec()),
    ) {
        let mut random = Random::new(seed);
        let topology = random_topology(&mut random, extents.iter().product::<u64>() * 4);
        let layouts = random_layouts(&mut random, 2);
        let (load, flows) = random_load(&mut random, &topology);
        let mut slower = topology.clone();
        for (channel, &flows) in slower.classes[0].channels.iter_mut().zip(&flows) {
            channel.curves = channel.curves.shared(flows + 1);
        }
        let ends = ((memory(0), &layouts[0]), (memory(1), &layouts[1]));
        let query = Query::whole(ends.0, ends.1, &extents, &[4]);
        let options = Options { choice: Choice::Only(algorithm), model, ..Options::default() };
        let beside = plan(&topology, &Query { load: &load, ..query }, &options);
        let among = plan(&slower, &query, &options);
        let beside = beside.map(|mut plan| {
            plan.search.flows = 0;
            plan
        });
        prop_assert_eq!(beside, among);
    }
}
