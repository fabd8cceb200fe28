//! Blocking factors that direct I/O and caches like, in the default model only.

use isometry_planner::{Choice, Options, Query, plan};
use model::{Algorithm, Component, CostModel, Layout, Plan, Topology};

/// One machine as the library finds it: a disk, and staging for buffers of 64 MiB.
const MACHINE: &str = r#"
th_bytes = 67108864
[[node]]
name = "node"
memory = [ { name = "sys", kind = "SYS" }, { name = "dsk", kind = "DSK", th_bytes = 0 } ]
wire = [ { name = "ssd", throughput = 2e9, half_duplex = true } ]

[[node.channel]]
kind = "Memcpy"
from = ["sys"]
to = ["sys"]
throughput = [[16, 3.1e9], [256, 3.5e9], [4096, 4.9e9], [65536, 5.5e9]]
throughput_interleave = [[1, 0.6e9], [4, 2e9], [64, 4e9]]
throughput_transpose = [[1, 0.46e9], [4, 0.8e9], [64, 3.7e9]]
latency_ns = 19000

[[node.channel]]
kind = "DiskRead"
from = ["dsk"]
to = ["sys"]
throughput = [[4096, 0.33e9], [16384, 1.03e9], [65536, 2.3e9], [262144, 2.9e9]]
latency_ns = 32000
in_flight = 4
wire = "ssd"

[[node.channel]]
kind = "DiskWrite"
from = ["sys"]
to = ["dsk"]
throughput = [[4096, 0.7e9], [16384, 0.8e9], [65536, 1.96e9], [262144, 2.9e9]]
latency_ns = 18000
in_flight = 4
wire = "ssd"
"#;

/// The plan of a transpose on the disk.
fn transpose(topology: &Topology, extents: [u64; 2], bytes: u64, options: &Options) -> Plan {
    let [from, to] = [[1, 0], [0, 1]].map(|dims| order(&dims));
    let disk = topology.memory_named("dsk").unwrap();
    let fields = [bytes];
    let query = Query::whole((disk, &from), (disk, &to), &extents, &fields);
    plan(topology, &query, options).unwrap()
}

/// The layout of these dimensions, fastest first.
fn order(dims: &[u8]) -> Layout {
    let dims = dims.iter().map(|&dim| Component::Whole(dim));
    let components: Vec<_> = std::iter::once(Component::Fields).chain(dims).collect();
    let rank = components.len() - 1;
    Layout::new(components, rank).unwrap()
}

fn options(algorithm: Algorithm, model: CostModel) -> Options {
    Options { choice: Choice::Only(algorithm), model, ..Options::default() }
}

fn runs(plan: &Plan) -> [u64; 2] {
    [plan.hops[0].prefix_bytes, plan.hops.last().unwrap().prefix_bytes]
}

/// With the disk's medium shared and not.
fn machines() -> [Topology; 2] {
    let apart = MACHINE.replace("wire = \"ssd\"\n", "");
    [MACHINE, &apart].map(|text| cluster::parse(text).unwrap())
}

fn with_th(th_bytes: u64) -> Options {
    let options = options(Algorithm::Full, CostModel::Default);
    Options { th_bytes: Some(th_bytes), ..options }
}

#[track_caller]
fn assert_runs_fill(plan: &Plan, bytes: u64) {
    for run in runs(plan) {
        assert!(run.is_multiple_of(bytes), "runs of {:?}, {:?}", runs(plan), plan.layouts);
    }
}

#[test]
fn two_gibibytes_are_transposed_on_disk_by_whole_pages() {
    for topology in machines() {
        for algorithm in [Algorithm::Full, Algorithm::Simple] {
            let options = options(algorithm, CostModel::Default);
            let plan = transpose(&topology, [16384, 32768], 4, &options);
            assert_runs_fill(&plan, 4096);
            assert!(runs(&plan).iter().all(|&run| run >= 8192), "{:?}", runs(&plan));
            let granule = plan.hops[1].shuffle_bytes;
            assert!(plan.buffers.iter().all(|b| 2 * granule <= b.bytes && b.bytes <= 64 << 20));
        }
    }
}

#[test]
fn by_blocks_where_the_rings_hold_no_whole_pages() {
    for topology in machines() {
        let plan = transpose(&topology, [16384, 32768], 4, &with_th(1 << 20));
        assert_runs_fill(&plan, 512);
    }
}

#[test]
fn by_lines_where_rows_start_off_the_blocks() {
    for topology in machines() {
        for th in [1 << 20, 8 << 20, 64 << 20] {
            assert_runs_fill(&transpose(&topology, [10_000, 50_000], 4, &with_th(th)), 64);
        }
    }
}

#[test]
fn each_end_by_what_its_rows_allow() {
    // Rows of 8,000 bytes and of 8 MiB.
    let topology = &machines()[0];
    let [read, write] = runs(&transpose(topology, [1 << 20, 1000], 8, &with_th(8 << 20)));
    assert!(read == 8000 || read.is_multiple_of(64), "{read}");
    assert!(write.is_multiple_of(4096), "{write}");
}

#[test]
fn the_papers_model_keeps_the_least_factors() {
    let topology = &machines()[1];
    let mut paper = options(Algorithm::Full, CostModel::Paper);
    paper.th_bytes = Some(64 << 20);
    let plan = transpose(topology, [16384, 32768], 4, &paper);
    assert!(runs(&plan).iter().any(|run| !run.is_multiple_of(64)), "{:?}", runs(&plan));
}

#[test]
fn both_dimensions_are_rounded_where_a_batch_is_not_split() {
    let topology = &machines()[0];
    let disk = topology.memory_named("dsk").unwrap();
    let (from, to) = (order(&[2, 1, 0]), order(&[1, 2, 0]));
    let extents = [8, 16384, 32768];
    let query = Query::whole((disk, &from), (disk, &to), &extents, &[4]);
    assert_runs_fill(&plan(topology, &query, &with_th(64 << 20)).unwrap(), 4096);
}

/// A disk and an accelerator with host memory between them. The rates of both grow with their
/// runs; up to `device_run` bytes at the accelerator.
fn device(device_run: u64) -> Topology {
    let text = r#"
[[node]]
name = "node"
memory = [
  { name = "dsk", kind = "DSK", th_bytes = 0 }, { name = "sys", kind = "SYS" },
  { name = "zcm", kind = "ZCM" }, { name = "fbm", kind = "FBM" },
]
channel = [
  { kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = [[65536, 8e9]] },
  { kind = "DiskWrite", from = ["sys"], to = ["dsk"], throughput = [[65536, 8e9]] },
  { kind = "Memcpy", from = ["sys", "zcm"], to = ["sys", "zcm"], throughput = 90e9 },
  { kind = "GPURead", from = ["fbm"], to = ["zcm"], throughput = [[DEVICE, 8e9]] },
  { kind = "GPUWrite", from = ["zcm"], to = ["fbm"], throughput = [[DEVICE, 8e9]] },
]
"#;
    cluster::parse(&text.replace("DEVICE", &device_run.to_string())).unwrap()
}

/// The plan of a transpose of entries of 4 bytes from one memory of `topology` to another.
fn across(topology: &Topology, names: [&str; 2], extents: [u64; 2], th_bytes: u64) -> Plan {
    let [from, to] = [order(&[1, 0]), order(&[0, 1])];
    let [src, dst] = names.map(|name| topology.memory_named(name).unwrap());
    let query = Query::whole((src, &from), (dst, &to), &extents, &[4]);
    plan(topology, &query, &with_th(th_bytes)).unwrap()
}

#[test]
fn pages_at_the_disk_and_lines_at_the_device_fill_the_ring() {
    // About 2,030 entries each way: 2,048 at the disk leave room for fewer at the device.
    let topology = device(65536);
    for names in [["dsk", "fbm"], ["fbm", "dsk"]] {
        let plan = across(&topology, names, [16384, 32768], 2 * 4 * 2030 * 2030);
        let [mut disk, mut line] = runs(&plan);
        if names[1] == "dsk" {
            (disk, line) = (line, disk);
        }
        assert!(disk.is_multiple_of(4096) && line.is_multiple_of(64), "{disk} {line}");
        let room = 4 * 4 * 2030 * 2030;
        assert!(disk * line <= room && room < disk * (line + 64), "{disk} {line}");
    }
}

#[test]
fn factors_stay_where_rounding_them_would_cost() {
    // 22 entries each way; the lines below and above are 16 and 32.
    let topology = device(65536);
    let seconds = |extent| {
        let plan = across(&topology, ["fbm", "fbm"], [extent; 2], 4096);
        assert!(runs(&plan).iter().any(|run| !run.is_multiple_of(64)), "{:?}", runs(&plan));
        plan.seconds.unwrap()
    };
    // Rows of 257 entries don't start at lines, so that nothing is rounded.
    let (lines, none) = (seconds(256), seconds(257));
    assert!(lines <= none * 1.02, "{lines} {none}");
}

#[test]
fn a_rounded_factor_leaves_more_than_one_block() {
    // 90 entries of a row of 96 at the device, and 1,100 at the disk: 1,024 would leave room for 96.
    let plan = across(&device(5362), ["fbm", "dsk"], [16384, 96], 2 * 4 * 90 * 1100);
    let blocks: Vec<_> = plan.layouts[0].blocks(1).collect();
    assert!(blocks[0] < 96 && blocks[0].is_multiple_of(16), "{blocks:?}");
}
