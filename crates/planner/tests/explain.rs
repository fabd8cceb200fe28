//! What `explain` says of a plan, word for word.

use isometry_planner::{Choice, Options, Query, explain, plan};
use model::{
    Algorithm, Alternative, Bound, CostModel, IndexSpace, Layout, Limit, Plan, SearchReport,
    Topology,
};

const TWO_NODES: &str = include_str!("../../../clusters/two-nodes.toml");
const SEARCH: SearchReport =
    SearchReport { paths: 9, solved: 7, budget: 20, exhausted: false, flows: 0 };

fn space() -> IndexSpace {
    IndexSpace::of(&[("y", 65536), ("x", 65536)]).unwrap()
}

/// The transpose of section 4.3.
fn transpose(topology: &Topology) -> Plan {
    let memory = |name| topology.memory_named(name).unwrap();
    let (from, to) = (Layout::row_major(2), layout::parse("<F, y, x>", &space()).unwrap());
    let extents = space().extents();
    let ends = ((memory("n0.fbm"), &from), (memory("n1.fbm"), &to));
    let query = Query::whole(ends.0, ends.1, &extents, &[4, 4, 8]);
    let choice = Choice::Only(Algorithm::Full);
    let options = Options { choice, model: CostModel::Paper, ..Options::default() };
    plan(topology, &query, &options).unwrap()
}

#[test]
fn the_plan_of_section_4_3_is_told_hop_by_hop() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let mut plan = transpose(&topology);
    let weighed = |bound| Alternative {
        memories: plan.memories[3..].to_vec(),
        layouts: plan.layouts[3..].to_vec(),
        throughput: 2e6,
        seconds: None,
        bound,
    };
    plan.alternatives = vec![weighed(Some(Bound { hop: 1, why: Limit::Wire })), weighed(None)];
    plan.search = SEARCH;
    let told = explain(&plan, &topology, &space());
    let expected = "\
full algorithm, the paper's model: 3.00 GB/s
  n0.fbm       <F, x_in=2048, x_out, y_in=1024, y_out>
    GPURead: reorders 1 GiB at a time, in runs of 32 KiB, 3.00 GB/s, requests of 1 MiB
  n0.zcm       <F, x_in=2048, y_in=1024, x_out, y_out>  in a buffer of 32 MiB
    Memcpy: reorders 32 MiB at a time, in runs of 16 B, 7.74 GB/s, requests of 1 MiB
  n0.reg       <F, y_in=1024, x_in=2048, x_out, y_out>  in a buffer of 32 MiB
    RemoteMemcpy: in order, 3.00 GB/s, requests of 1 MiB
  n1.reg       <F, y_in=1024, x_in=2048, x_out, y_out>  in a buffer of 1 MiB
    GPUWrite: reorders 64 GiB at a time, in runs of 16 KiB, 3.00 GB/s, requests of 1 MiB
  n1.fbm       <F, y_in=1024, y_out, x_in=2048, x_out>
bound by hop 2 (RemoteMemcpy): its channel is at its peak, or shared
weighed: n1.reg <F, y_in=1024, x_in=2048, x_out, y_out> → n1.fbm <F, y_in=1024, y_out, x_in=2048, \
x_out>: 2.0 MB/s; hop 1: its wire carries all it can
weighed: n1.reg <F, y_in=1024, x_in=2048, x_out, y_out> → n1.fbm <F, y_in=1024, y_out, x_in=2048, \
x_out>: 2.0 MB/s; no blocking factors satisfy its constraints
search: 9 paths, 7 solved, of at most 20
";
    assert_eq!(told, expected);
    plan.search.exhausted = true;
    let told = explain(&plan, &topology, &space());
    assert!(told.ends_with("of at most 20; the budget ended it\n"), "{told}");
}

#[test]
fn figures_have_the_largest_unit_that_they_fill() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let mut plan = transpose(&topology);
    let mut cost = |throughput, seconds| {
        (plan.throughput, plan.seconds) = (throughput, Some(seconds));
        let told = explain(&plan, &topology, &space());
        told.lines().next().unwrap().split(": ").last().unwrap().to_owned()
    };
    assert_eq!(cost(1e9, 1.0), "1.00 GB/s, 1.00 s in all");
    assert_eq!(cost(0.5e9, 0.5), "500.0 MB/s, 500.00 ms in all");
    assert_eq!(cost(1e6, 1e-3), "1.0 MB/s, 1.00 ms in all");
    assert_eq!(cost(0.5e6, 0.5e-3), "500.0 kB/s, 500.0 µs in all");
    let mut buffer = |bytes| {
        plan.buffers[0].bytes = bytes;
        let told = explain(&plan, &topology, &space());
        told.lines().nth(3).unwrap().split("buffer of ").last().unwrap().to_owned()
    };
    let told = [1023, 1024, 1536, 3 << 30].map(&mut buffer);
    assert_eq!(told, ["1023 B", "1 KiB", "1.5 KiB", "3 GiB"]);
}

#[test]
fn memories_have_short_names_on_one_machine() {
    let mut topology = cluster::parse(TWO_NODES).unwrap();
    let plan = transpose(&topology);
    let first = |topology: &Topology| {
        let told = explain(&plan, topology, &space());
        told.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(first(&topology), "n0.fbm");
    topology.classes[0].count = 1;
    assert_eq!(first(&topology), "fbm");
}
