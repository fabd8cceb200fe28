//! Ends with blocks of their own: refined where they nest, else one end's order or the other's.

use isometry_planner::{Choice, ErrorKind, Options, Query, plan};
use model::{Algorithm, Component, CostModel, IndexSpace, Layout, MemoryId, NodeId, Plan};
use proptest::prelude::*;

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");

fn inner(dim: u8, level: u8, size: u64) -> Component {
    Component::Inner { dim, level, size }
}

fn full(model: CostModel) -> Options {
    Options { choice: Choice::Only(Algorithm::Full), model, ..Options::default() }
}

fn between(from: &Layout, to: &Layout, extents: &[u64]) -> Plan {
    let topology = cluster::parse(SAPLING).unwrap();
    let memory = |name| topology.memory_named(name).unwrap();
    let ends = ((memory("n0.fbm"), from), (memory("n1.dsk"), to));
    let query = Query::whole(ends.0, ends.1, extents, &[4, 4]);
    plan(&topology, &query, &full(CostModel::Default)).unwrap()
}

fn texts(plan: &Plan) -> Vec<String> {
    let space = IndexSpace::of(&[("x", 1 << 22)]).unwrap();
    plan.layouts.iter().map(|l| l.display(&space).to_string()).collect()
}

#[test]
fn nested_blocks_are_written_in_one_alphabet() {
    use Component::{Fields, Outer};
    let from = Layout::new(vec![inner(0, 1, 4), Fields, Outer(0)], 1).unwrap();
    let to = Layout::new(vec![inner(0, 1, 16), Fields, Outer(0)], 1).unwrap();
    let plan = between(&from, &to, &[1 << 22]);
    let layouts = texts(&plan);
    let first = &plan.layouts[0];
    assert!(plan.layouts.iter().all(|l| l.blocks(0).eq(first.blocks(0))), "{layouts:?}");
    assert!(layouts[0].starts_with("<x_in=4, F, x_in2=4"), "{layouts:?}");
    assert!(layouts.last().unwrap().starts_with("<x_in=4, x_in2=4, F"), "{layouts:?}");
}

#[test]
fn blocks_that_do_not_nest_use_the_order_of_an_end() {
    use Component::{Fields, Outer};
    let from = Layout::new(vec![inner(0, 1, 4), Fields, Outer(0)], 1).unwrap();
    let to = Layout::new(vec![inner(0, 1, 6), Fields, Outer(0)], 1).unwrap();
    let plan = between(&from, &to, &[1 << 22]);
    assert!(plan.layouts.iter().all(|l| *l == from || *l == to), "{:?}", texts(&plan));
    assert_eq!((plan.layouts.first(), plan.layouts.last()), (Some(&from), Some(&to)));
}

#[test]
fn blocks_beyond_63_bits_are_refused() {
    use Component::{Fields, Outer};
    let topology = cluster::parse(SAPLING).unwrap();
    let memory = MemoryId { node: NodeId(0), index: 0 };
    for sizes in [[1 << 40, 1 << 40], [u64::MAX, 1], [1 << 62, 2]] {
        let huge = vec![inner(0, 1, sizes[0]), inner(0, 2, sizes[1]), Fields, Outer(0)];
        let huge = Layout::new(huge, 1).unwrap();
        let query = Query::whole((memory, &huge), (memory, &huge), &[10], &[4]);
        let error = plan(&topology, &query, &full(CostModel::Default)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Query, "{sizes:?}");
    }
}

#[test]
fn nodes_that_no_link_joins_are_reached_through_others() {
    let text = r#"
[[node]]
name = "a"
memory = [ { name = "sys", kind = "SYS" } ]
[[node]]
name = "hub"
count = 2
memory = [ { name = "sys", kind = "SYS" } ]
[[node]]
name = "c"
memory = [ { name = "sys", kind = "SYS" } ]
[[link]]
kind = "RemoteMemcpy"
from = ["a.sys"]
to = ["hub.sys"]
throughput = 1e9
[[link]]
kind = "RemoteMemcpy"
from = ["hub.sys"]
to = ["c.sys"]
throughput = 1e9
"#;
    let topology = cluster::parse(text).unwrap();
    let layout = Layout::row_major(1);
    let memory = |name| topology.memory_named(name).unwrap();
    let ends = ((memory("a0.sys"), &layout), (memory("c0.sys"), &layout));
    let query = Query::whole(ends.0, ends.1, &[1 << 20], &[8]);
    let plan = plan(&topology, &query, &full(CostModel::Default)).unwrap();
    assert_eq!(plan.memories, ["a0.sys", "hub0.sys", "c0.sys"].map(memory));
}

/// A layout of two dimensions, each in 0 to 2 blocks, in some order.
fn any_layout() -> impl Strategy<Value = Layout> {
    let dim = |dim: u8| {
        prop::collection::vec(1u64..9, 0..3).prop_map(move |sizes| {
            let outer =
                if sizes.is_empty() { Component::Whole(dim) } else { Component::Outer(dim) };
            let blocks = (1u8..).zip(sizes).map(move |(level, size)| inner(dim, level, size));
            blocks.chain([outer]).collect::<Vec<_>>()
        })
    };
    let all = (dim(0), dim(1)).prop_map(|(a, b)| [vec![Component::Fields], a, b].concat());
    all.prop_shuffle().prop_map(|components| Layout::new(components, 2).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_query_has_a_sound_plan_or_an_error(
        layouts in (any_layout(), any_layout()),
        extents in prop::array::uniform2(prop_oneof![0u64..5, 1u64..5000, Just(u64::MAX)]),
        fields in prop::collection::vec(1u64..200, 1..4),
        phase in prop::array::uniform2(0u64..8),
        (ends, th, listed) in ((0u16..6, 0u16..12), 1u64..1 << 22, 0u8..4),
    ) {
        let topology = cluster::parse(SAPLING).unwrap();
        let memory = |i: u16| MemoryId { node: NodeId(u32::from(i / 6)), index: i % 6 };
        let (src, dst) = (memory(ends.0), memory(ends.1));
        let mut query = Query::whole((src, &layouts.0), (dst, &layouts.1), &extents, &fields);
        query.src.phase = &phase;
        query.src.listed = listed;
        for algorithm in [Algorithm::Full, Algorithm::Simple, Algorithm::Spsl, Algorithm::Spdl] {
            for model in [CostModel::Paper, CostModel::Default] {
                let options = Options {
                    choice: Choice::Only(algorithm),
                    model,
                    th_bytes: Some(th),
                    budget: Some(200),
                    ..Options::default()
                };
                let Ok(plan) = plan(&topology, &query, &options) else { continue };
                check(&plan, &query, th);
            }
        }
    }
}

fn check(plan: &Plan, query: &Query<'_>, th: u64) {
    let hops = plan.hops.len();
    assert_eq!((plan.memories.len(), plan.layouts.len()), (hops + 1, hops + 1));
    assert_eq!(plan.buffers.len() + 1, hops);
    assert!(plan.throughput > 0.0 && plan.bound_by.hop < hops);
    let ends = [plan.memories.first(), plan.memories.last()];
    assert_eq!(ends, [Some(&query.src.memory), Some(&query.dst.memory)]);
    assert!(plan.hops.iter().all(|h| h.request_bytes > 0));
    if plan.model == CostModel::Default {
        assert!(plan.buffers.iter().all(|b| (1..=th).contains(&b.bytes)), "{plan:#?}");
    }
}

#[test]
fn a_gap_ends_the_runs_of_its_end() {
    let topology = cluster::parse(SAPLING).unwrap();
    let memory = |name| topology.memory_named(name).unwrap();
    let rows = Layout::row_major(2);
    let ends = ((memory("n0.dsk"), &rows), (memory("n0.sys"), &rows));
    let whole = Query::whole(ends.0, ends.1, &[1 << 16, 1 << 10], &[4]);
    let mut narrow = whole;
    narrow.src.gaps = 1;
    let rate =
        |query| plan(&topology, query, &full(CostModel::Default)).unwrap().hops[0].throughput;
    assert!(rate(&narrow) < 0.5 * rate(&whole), "{} {}", rate(&narrow), rate(&whole));
}
