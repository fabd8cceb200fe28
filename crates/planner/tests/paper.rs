//! The examples of the paper, on the cluster files that are shipped.

use isometry_planner::{Choice, Options, PlanError, Query, plan};
use model::{Algorithm, Component, CostModel, IndexSpace, Layout, Limit, Plan, Topology};

const TWO_NODES: &str = include_str!("../../../clusters/two-nodes.toml");
const SAPLING: &str = include_str!("../../../clusters/sapling.toml");
/// 8 integers for each of 4 Mi entries.
const INTEGERS: [u64; 8] = [4; 8];

/// The layout of a text without blocks.
fn layout(space: &IndexSpace, text: &str) -> Layout {
    let component = |name: &str| match name {
        "F" => Component::Fields,
        _ => Component::Whole(u8::try_from(space.position(name).unwrap()).unwrap()),
    };
    let names = text.trim_matches(['<', '>']).split(", ");
    Layout::new(names.map(component), space.rank()).unwrap()
}

fn options(algorithm: Algorithm, model: CostModel) -> Options {
    Options { choice: Choice::Only(algorithm), model, ..Options::default() }
}

struct Case<'a> {
    topology: &'a Topology,
    space: IndexSpace,
    fields: &'a [u64],
    layouts: [&'a str; 2],
}

impl Case<'_> {
    fn plan(&self, src: &str, dst: &str, options: &Options) -> Result<Plan, PlanError> {
        let memory = |name| self.topology.memory_named(name).unwrap();
        let [from, to] = self.layouts.map(|l| layout(&self.space, l));
        let extents = self.space.extents();
        let query = Query::whole((memory(src), &from), (memory(dst), &to), &extents, self.fields);
        plan(self.topology, &query, options)
    }

    fn memories(&self, plan: &Plan) -> Vec<String> {
        plan.memories.iter().map(|&m| self.topology.memory_name(m).unwrap()).collect()
    }

    fn layouts(&self, plan: &Plan) -> Vec<String> {
        plan.layouts.iter().map(|l| l.display(&self.space).to_string()).collect()
    }
}

fn transpose(topology: &Topology) -> Case<'_> {
    let space = IndexSpace::of(&[("x", 65536), ("y", 65536)]).unwrap();
    Case { topology, space, fields: &[4, 4, 8], layouts: ["<F, x, y>", "<F, y, x>"] }
}

fn integers<'a>(topology: &'a Topology, layouts: [&'a str; 2]) -> Case<'a> {
    let space = IndexSpace::of(&[("x", 4 << 20)]).unwrap();
    Case { topology, space, fields: &INTEGERS, layouts }
}

#[test]
fn the_example_of_section_4_3_comes_out_as_in_table_3() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let case = transpose(&topology);
    let plan = case.plan("n0.fbm", "n1.fbm", &options(Algorithm::Full, CostModel::Paper)).unwrap();
    assert_eq!((plan.algorithm, plan.model), (Algorithm::Full, CostModel::Paper));
    assert_eq!(plan.throughput, 3.0e9);
    assert_eq!(case.memories(&plan), ["n0.fbm", "n0.zcm", "n0.reg", "n1.reg", "n1.fbm"]);
    assert_eq!(
        case.layouts(&plan),
        [
            "<F, x_in=2048, x_out, y_in=1024, y_out>",
            "<F, x_in=2048, y_in=1024, x_out, y_out>",
            "<F, y_in=1024, x_in=2048, x_out, y_out>",
            "<F, y_in=1024, x_in=2048, x_out, y_out>",
            "<F, y_in=1024, y_out, x_in=2048, x_out>",
        ]
    );
    let hops: Vec<_> = plan
        .hops
        .iter()
        .map(|h| (h.kind.name(), h.prefix_bytes, h.shuffle_bytes, h.throughput))
        .collect();
    assert_eq!(
        hops,
        [
            ("GPURead", 32768, 1_073_741_824, 3.0e9),
            ("Memcpy", 16, 33_554_432, 7.74e9),
            ("RemoteMemcpy", 68_719_476_736, 1, 3.0e9),
            ("GPUWrite", 16384, 68_719_476_736, 3.0e9),
        ]
    );
    let buffers: Vec<_> = plan.buffers.iter().map(|b| b.bytes).collect();
    assert_eq!(buffers, [33_554_432, 33_554_432, 1_048_576]);
    assert_eq!((plan.bound_by.hop, plan.bound_by.why), (2, Limit::Channel));
    assert!(!plan.search.exhausted);
}

#[test]
fn the_simple_algorithm_puts_a_memcpy_after_the_first_host_memory() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let case = transpose(&topology);
    for model in [CostModel::Paper, CostModel::Default] {
        let plan = case.plan("n0.fbm", "n1.fbm", &options(Algorithm::Simple, model)).unwrap();
        let expected = ["n0.fbm", "n0.reg", "n0.reg", "n1.reg", "n1.fbm"];
        assert_eq!(case.memories(&plan), expected);
        let in_order = [0, 2, 3].map(|i| plan.hops[i].shuffle_bytes == 1);
        assert_eq!(in_order, [model == CostModel::Paper, true, model == CostModel::Paper]);
    }
}

#[test]
fn the_baselines_convert_at_one_end() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let case = transpose(&topology);
    let kinds = |algorithm| {
        let plan = case.plan("n0.fbm", "n1.fbm", &options(algorithm, CostModel::Paper)).unwrap();
        plan.hops.iter().map(|h| h.shuffle_bytes == 1).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Algorithm::Spsl), [true, true, false]);
    assert_eq!(kinds(Algorithm::Spdl), [false, true, true]);
}

#[test]
fn intermediates_in_the_order_of_an_end_have_its_very_layout() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let space = IndexSpace::of(&[("n", 1), ("x", 4 << 20)]).unwrap();
    let layouts = ["<F, n, x>", "<x, n, F>"];
    let case = Case { topology: &topology, space, fields: &INTEGERS, layouts };
    let planned = |algorithm| {
        let plan = case.plan("n0.fbm", "n1.fbm", &options(algorithm, CostModel::Paper)).unwrap();
        case.layouts(&plan)
    };
    let [from, to] = layouts;
    assert_eq!(planned(Algorithm::Spsl), [from, from, from, to]);
    assert_eq!(planned(Algorithm::Spdl), [from, to, to, to]);
}

#[test]
fn windows_have_the_granule_of_their_layouts_wherever_these_have_extents_of_1() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let space = IndexSpace::of(&[("n", 1), ("x", 4 << 20)]).unwrap();
    let sizes = layout::Sizes { extents: space.extents(), field_bytes: INTEGERS.to_vec() };
    for from in ["<n, F, x>", "<F, n, x>", "<F, x, n>"] {
        for to in ["<n, x, F>", "<x, n, F>", "<x, F, n>"] {
            let (space, layouts) = (space.clone(), [from, to]);
            let case = Case { topology: &topology, space, fields: &INTEGERS, layouts };
            let full = options(Algorithm::Full, CostModel::Default);
            let plan = case.plan("n0.fbm", "n1.fbm", &full).unwrap();
            let between = 1..plan.hops.len() - 1;
            let converts = |&hop: &usize| plan.hops[hop].shuffle_bytes > 1;
            let pivot = between.clone().find(converts).expect("a hop between windows converts");
            let granule =
                layout::shuffle_bytes(&plan.layouts[pivot], &plan.layouts[pivot + 1], &sizes);
            assert_eq!(plan.hops[pivot].shuffle_bytes, granule, "{:?}", case.layouts(&plan));
        }
    }
}

#[test]
fn system_memories_of_two_nodes_are_joined_through_registered_memory() {
    let topology = cluster::parse(SAPLING).unwrap();
    let case = integers(&topology, ["<F, x>", "<F, x>"]);
    for model in [CostModel::Paper, CostModel::Default] {
        let full = case.plan("n0.sys", "n1.sys", &options(Algorithm::Full, model)).unwrap();
        let simple = case.plan("n0.sys", "n1.sys", &options(Algorithm::Simple, model)).unwrap();
        assert_eq!(case.memories(&full), ["n0.sys", "n0.reg", "n1.sys"]);
        assert_eq!(case.memories(&simple), ["n0.sys", "n1.sys"]);
        let gain = full.throughput / simple.throughput;
        assert!((1.16..1.19).contains(&gain), "{gain}");
    }
}

#[test]
fn a_conversion_on_the_way_to_disk_goes_through_a_buffer_in_memory() {
    let topology = cluster::parse(SAPLING).unwrap();
    let case = integers(&topology, ["<F, x>", "<x, F>"]);
    for algorithm in [Algorithm::Full, Algorithm::Simple] {
        for model in [CostModel::Paper, CostModel::Default] {
            let plan = case.plan("n0.sys", "n0.dsk", &options(algorithm, model)).unwrap();
            let to_disk = plan.hops.last().unwrap();
            assert_eq!(plan.hops[0].kind.name(), "Memcpy");
            assert!(to_disk.prefix_bytes >= 1 << 20 && to_disk.throughput > 0.95 * 270e6);
        }
    }
    for algorithm in [Algorithm::Spsl, Algorithm::Spdl] {
        let plan = case.plan("n0.sys", "n0.dsk", &options(algorithm, CostModel::Paper)).unwrap();
        assert!(plan.throughput < 0.01 * 270e6);
    }
}

#[test]
fn a_file_is_converted_to_another_on_the_same_disk() {
    let topology = cluster::parse(SAPLING).unwrap();
    let space = IndexSpace::of(&[("n", 64), ("h", 224), ("w", 224), ("c", 3)]).unwrap();
    let layouts = ["<F, c, w, h, n>", "<F, w, h, c, n>"];
    let case = Case { topology: &topology, space, fields: &[4], layouts };
    for algorithm in [Algorithm::Full, Algorithm::Simple] {
        let plan = case.plan("n0.dsk", "n0.dsk", &options(algorithm, CostModel::Default)).unwrap();
        let kinds: Vec<_> = plan.hops.iter().map(|h| h.kind.name()).collect();
        assert_eq!(kinds, ["DiskRead", "Memcpy", "DiskWrite"], "{:?}", case.layouts(&plan));
        assert!(plan.buffers.iter().all(|b| b.bytes <= topology.th_bytes));
    }
}

#[test]
fn what_can_not_be_planned_is_an_error() {
    let mut topology = cluster::parse(TWO_NODES).unwrap();
    let full = options(Algorithm::Full, CostModel::Default);
    let far = integers(&topology, ["<F, x>", "<x, F>"]).plan("n0.sys", "n1.dsk", &full);
    assert!(matches!(far, Err(PlanError::NoPath { .. })), "{far:?}");
    topology.links.clear();
    let apart = integers(&topology, ["<F, x>", "<x, F>"]).plan("n0.sys", "n1.sys", &full);
    assert!(matches!(apart, Err(PlanError::NoPath { .. })), "{apart:?}");
}

#[test]
fn auto_changes_to_the_full_algorithm_at_16_mib() {
    let topology = cluster::parse(SAPLING).unwrap();
    let case = |extent| Case {
        topology: &topology,
        space: IndexSpace::of(&[("x", extent)]).unwrap(),
        fields: &[4],
        layouts: ["<F, x>", "<F, x>"],
    };
    let algorithm =
        |extent| case(extent).plan("n0.sys", "n1.sys", &Options::default()).unwrap().algorithm;
    assert_eq!(algorithm((4 << 20) - 1), Algorithm::Simple);
    assert_eq!(algorithm(4 << 20), Algorithm::Full);
}

#[test]
fn a_plan_explains_itself() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let case = transpose(&topology);
    let plan =
        case.plan("n0.fbm", "n1.fbm", &options(Algorithm::Full, CostModel::Default)).unwrap();
    let text = isometry_planner::explain(&plan, &topology, &case.space);
    for part in [
        "full algorithm",
        "n0.zcm",
        "buffer of",
        "bound by hop",
        "weighed: n0.fbm <",
        "of at most 20000",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(!plan.alternatives.is_empty());
    let other = &plan.alternatives[0];
    assert!(other.seconds >= plan.seconds && other.bound.is_some());
}

#[test]
fn rings_between_windows_hold_two_granules_and_whole_slots() {
    let topology = cluster::parse(TWO_NODES).unwrap();
    let case = transpose(&topology);
    let plan =
        case.plan("n0.fbm", "n1.fbm", &options(Algorithm::Full, CostModel::Default)).unwrap();
    for (i, hop) in plan.hops.iter().enumerate().skip(1).take(plan.hops.len() - 2) {
        for buffer in &plan.buffers[i - 1..=i] {
            assert!(buffer.bytes >= 2 * hop.shuffle_bytes && buffer.bytes <= topology.th_bytes);
            assert!(hop.request_bytes <= buffer.bytes / 2);
        }
    }
    assert!(plan.seconds.unwrap() > 68_719_476_736.0 / plan.throughput);
}

const CHAIN: &str = r#"
[[node]]
name = "n"
memory = [ { name = "a", kind = "SYS" }, { name = "b", kind = "ZCM" }, { name = "c", kind = "REG" } ]
channel = [
  { kind = "Memcpy", from = ["a"], to = ["b"], throughput = 5e9, wire = "bus" },
  { kind = "Memcpy", from = ["b"], to = ["c"], throughput = 5e9, wire = "bus" },
]
wire = [ { name = "bus", throughput = 6e9 } ]
"#;

#[test]
fn the_shortest_path_has_the_widest_channels_then_the_first_in_the_file() {
    let through = |b: &str, [ab, bd, ac, cd]: [f64; 4]| {
        let channel = |from: &str, to: &str, rate: f64| {
            format!(
                "{{ kind = \"Memcpy\", from = [\"{from}\"], to = [\"{to}\"], throughput = {rate:?} }},"
            )
        };
        let memory = |name, more| format!("{{ name = \"{name}\", kind = \"SYS\"{more} }},");
        let memories = [memory("a", ""), memory("b", b), memory("c", ""), memory("d", "")].concat();
        let channels = [("a", "b", ab), ("b", "d", bd), ("a", "c", ac), ("c", "d", cd)];
        let channels = channels.map(|(from, to, rate)| channel(from, to, rate)).concat();
        let detour = channel("a", "a", 9e9) + &channel("b", "c", 9e9);
        let text = format!(
            "[[node]]\nname = \"n\"\nmemory = [{memories}]\nchannel = [{detour}{channels}]"
        );
        let topology = cluster::parse(&text).unwrap();
        let case = integers(&topology, ["<F, x>", "<F, x>"]);
        let plan = case.plan("a", "d", &options(Algorithm::Spsl, CostModel::Paper)).unwrap();
        case.memories(&plan)[1].clone()
    };
    assert_eq!(through("", [2e9, 2e9, 2e9, 2e9]), "n0.b");
    assert_eq!(through("", [2e9, 2e9, 1e9, 5e9]), "n0.c");
    assert_eq!(through("", [5e9, 1e9, 2e9, 2e9]), "n0.b");
    assert_eq!(through("", [1e9, 3.5e9, 2e9, 2e9]), "n0.c");
    assert_eq!(through(", th_bytes = 0", [5e9, 5e9, 1e9, 1e9]), "n0.c");
}

const DISK: &str = r#"
[[node]]
name = "n"
memory = [ { name = "sys", kind = "SYS" }, { name = "dsk", kind = "DSK", th_bytes = 0 } ]
channel = [
  { kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = [[4096, 0.2e9], [65536, 3e9]], wire = "ssd" },
  { kind = "DiskWrite", from = ["sys"], to = ["dsk"], throughput = [[4096, 0.2e9], [65536, 2e9]], wire = "ssd" },
  { kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = 50e9 },
]
wire = [ { name = "ssd", throughput = 2.5e9, half_duplex = true } ]
"#;

#[test]
fn a_disk_reads_or_writes() {
    let default = options(Algorithm::Full, CostModel::Default);
    let both_ways = |text: &str| {
        let topology = cluster::parse(text).unwrap();
        let plan = integers(&topology, ["<F, x>", "<F, x>"]).plan("dsk", "dsk", &default).unwrap();
        (plan.throughput / 1e9, plan.bound_by)
    };
    let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
    // A read keeps the disk busy as long as the wire does, a write as long as its channel does.
    let (half, bound) = both_ways(DISK);
    assert!(close(half, 1.0 / (1.0 / 2.5 + 1.0 / 2.0)), "{half}");
    assert_eq!((bound.hop, bound.why), (0, Limit::Wire));
    let (full, bound) = both_ways(&DISK.replace(", half_duplex = true", ""));
    assert!(close(full, 2.0), "{full}");
    assert_eq!((bound.hop, bound.why), (1, Limit::Channel));
    let topology = cluster::parse(DISK).unwrap();
    let one_way = integers(&topology, ["<F, x>", "<F, x>"]).plan("dsk", "sys", &default).unwrap();
    assert!(close(one_way.throughput / 1e9, 2.5) && one_way.bound_by.why == Limit::Wire);
}

#[test]
fn a_wire_that_hops_share_counts_once_for_each() {
    let topology = cluster::parse(CHAIN).unwrap();
    let case = integers(&topology, ["<F, x>", "<F, x>"]);
    let default = options(Algorithm::Full, CostModel::Default);
    let once = case.plan("a", "b", &default).unwrap();
    assert!((once.throughput - 5e9).abs() < 1.0);
    let twice = case.plan("a", "c", &default).unwrap();
    assert!((twice.throughput - 3e9).abs() < 1.0, "{}", twice.throughput);
    assert_eq!(twice.bound_by.why, Limit::Wire);
    let paper = case.plan("a", "c", &options(Algorithm::Full, CostModel::Paper)).unwrap();
    assert_eq!(paper.throughput, 5e9);
}
