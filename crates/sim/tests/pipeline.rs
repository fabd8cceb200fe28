//! Pipelined paths: what the engine reaches in virtual time, against what the planner's default
//! model predicts.

mod support;

use isometry_sim::{ChannelSpec, End, PoolSpec, Rule, Scenario, Stored, TransferSpec, run};
use model::{ChannelId, CostModel, FieldSpace, IndexSpace, Plan, Selection, Time, Topology};
use planner::{Choice, Options, Query};

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");
const TWO_NODES: &str = include_str!("../../../clusters/two-nodes.toml");

/// One transfer to plan and to run.
struct Case {
    cluster: &'static str,
    ends: [&'static str; 2],
    dims: &'static [(&'static str, u64)],
    fields: &'static [u64],
    layouts: [&'static str; 2],
}

const CASES: [Case; 10] = [
    Case {
        cluster: TWO_NODES,
        ends: ["n0.fbm", "n1.fbm"],
        dims: &[("x", 8192), ("y", 4096)],
        fields: &[4, 4, 8],
        layouts: ["<F, x, y>", "<F, y, x>"],
    },
    Case {
        cluster: TWO_NODES,
        ends: ["n0.fbm", "n1.fbm"],
        dims: &[("x", 1 << 24)],
        fields: &[16],
        layouts: ["<F, x>", "<F, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.sys", "n1.sys"],
        dims: &[("x", 1 << 26)],
        fields: &[4],
        layouts: ["<F, x>", "<F, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.sys", "n0.dsk"],
        dims: &[("x", 1 << 22)],
        fields: &[4; 8],
        layouts: ["<F, x>", "<x, F>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.dsk", "n0.fbm"],
        dims: &[("y", 4096), ("x", 8192)],
        fields: &[4],
        layouts: ["<F, x, y>", "<F, y, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.fbm", "n0.fbm1"],
        dims: &[("x", 1 << 24)],
        fields: &[4; 8],
        layouts: ["<F, x>", "<F, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.fbm", "n0.fbm1"],
        dims: &[("y", 8192), ("x", 8192)],
        fields: &[8],
        layouts: ["<F, x, y>", "<F, y, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.fbm", "n1.fbm"],
        dims: &[("x", 1 << 22)],
        fields: &[4; 8],
        layouts: ["<F, x>", "<x, F>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.dsk", "n0.dsk"],
        dims: &[("y", 4096), ("x", 4096)],
        fields: &[8],
        layouts: ["<F, x, y>", "<F, y, x>"],
    },
    Case {
        cluster: SAPLING,
        ends: ["n0.fbm", "n1.sys"],
        dims: &[("x", 1 << 18)],
        fields: &[4],
        layouts: ["<F, x>", "<F, x>"],
    },
];

/// The share of a channel's requests in flight that the planner counts on, where none is measured.
const IN_FLIGHT: u32 = 2;

fn channel(topology: &Topology, id: ChannelId) -> ChannelSpec {
    let inside = topology.channel(id).map(|c| (&c.curves, c.latency_ns, c.in_flight));
    let between = topology.link(id).map(|l| (&l.curves, l.latency_ns, l.in_flight));
    let (curves, latency_ns, in_flight) = inside.or(between).unwrap();
    ChannelSpec {
        id,
        curves: curves.clone(),
        latency_ns,
        jitter_ns: 0,
        max_in_flight: in_flight.unwrap_or(IN_FLIGHT),
        rule: Rule::Priority,
    }
}

fn end(case: &Case, space: &IndexSpace, at: usize) -> End {
    let layout = layout::parse(case.layouts[at], space).unwrap();
    let stored = Stored::all(FieldSpace::packed(case.fields).unwrap());
    End { space: space.clone(), layout, part: Selection::all(space), stored }
}

fn plan(topology: &Topology, case: &Case, ends: [&End; 2]) -> Plan {
    let memory = |at: usize| topology.memory_named(case.ends[at]).unwrap();
    let extents = ends[0].space.extents();
    let (src, dst) = ((memory(0), &ends[0].layout), (memory(1), &ends[1].layout));
    let query = Query::whole(src, dst, &extents, case.fields);
    let options = Options { choice: Choice::Auto, model: CostModel::Default, ..Options::default() };
    planner::plan(topology, &query, &options).unwrap()
}

fn scenario(case: &Case) -> Scenario {
    let topology = cluster::parse(case.cluster).unwrap();
    let space = IndexSpace::of(case.dims).unwrap();
    let (src, dst) = (end(case, &space, 0), end(case, &space, 1));
    let plan = plan(&topology, case, [&src, &dst]);
    let mut ids: Vec<ChannelId> = plan.hops.iter().map(|hop| hop.channel).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut pools: Vec<_> = plan.buffers.iter().map(|b| b.memory).collect();
    pools.sort_unstable();
    pools.dedup();
    let pool = |memory| PoolSpec { memory, capacity_bytes: 1 << 30, reserve_bytes: 0 };
    Scenario {
        seed: 1,
        channels: ids.into_iter().map(|id| channel(&topology, id)).collect(),
        ageing: None,
        pools: pools.into_iter().map(pool).collect(),
        transfers: vec![TransferSpec::new(
            plan,
            FieldSpace::packed(case.fields).unwrap(),
            [src, dst],
        )],
        fences: Vec::new(),
        faults: Vec::new(),
        payload: false,
        limit: Time(1 << 50),
    }
}

#[test]
fn the_engine_reaches_what_the_default_model_predicts() {
    let mut slow = Vec::new();
    for case in &CASES {
        let scenario = scenario(case);
        let plan = &scenario.transfers[0].plan;
        let run = run(&scenario);
        run.result.unwrap_or_else(|e| panic!("{:?}: {e}", case.ends));
        let took = support::done_at(&run.trace, 0).0 as f64 * 1e-9;
        let share = plan.seconds.unwrap() / took;
        let line =
            format!("{:?} {:?} {} hops: {share:.3}", case.ends, case.layouts, plan.hops.len());
        println!("{line}");
        slow.extend((share < 0.95).then_some(line));
    }
    assert!(slow.is_empty(), "below 0.95 of the prediction:\n{}", slow.join("\n"));
}
