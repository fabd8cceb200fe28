//! Predictions worked out by hand.

use super::*;
use crate::graph::Edges;
use crate::{Options, Query};
use model::{Component, Layout, MemoryId, NodeId, Topology};

const MIB: u64 = 1 << 20;

/// Some memories in a row, with a channel from each to the next.
struct Chain {
    kinds: &'static [&'static str],
    /// What each channel has besides its ends.
    channels: Vec<String>,
    wires: String,
    th_bytes: u64,
    model: CostModel,
    pivot: usize,
    listed: u8,
    /// Of the source and of the destination.
    gaps: [u8; 2],
}

impl Chain {
    fn new(channels: &[&str]) -> Chain {
        let kinds = &["SYS", "ZCM", "REG", "FBM"][..=channels.len()];
        let channels = channels.iter().map(|&text| text.to_owned()).collect();
        let model = CostModel::Default;
        let wires = String::new();
        Chain {
            kinds,
            channels,
            wires,
            th_bytes: 64 * MIB,
            model,
            pivot: 0,
            listed: 0,
            gaps: [0; 2],
        }
    }

    fn text(&self) -> String {
        let memory = |(i, kind)| format!("{{ name = \"m{i}\", kind = \"{kind}\" }}");
        let channel = |(i, rest)| {
            let next = i + 1;
            format!("{{ kind = \"Memcpy\", from = [\"m{i}\"], to = [\"m{next}\"], {rest} }}")
        };
        let memories: Vec<_> = self.kinds.iter().enumerate().map(memory).collect();
        let channels: Vec<_> = self.channels.iter().enumerate().map(channel).collect();
        format!(
            "th_bytes = {}\n[[node]]\nname = \"n\"\nmemory = [{}]\nchannel = [{}]\n{}",
            self.th_bytes,
            memories.join(", "),
            channels.join(", "),
            self.wires
        )
    }

    /// A run of `bytes`.
    fn run<R>(&self, bytes: u64, ask: impl FnOnce(&Case<'_>, &Prediction) -> R) -> R {
        let layout = Layout::row_major(1);
        self.of((&layout, &layout), &[bytes], 1, ask)
    }

    /// Elements of 4 bytes of `extents` x, y, z, whose two fastest dimensions change places.
    fn turned<R>(&self, extents: [u64; 3], ask: impl FnOnce(&Case<'_>, &Prediction) -> R) -> R {
        self.of((&whole([0, 1, 2]), &whole([1, 0, 2])), &extents, 4, ask)
    }

    fn of<R>(
        &self,
        layouts: (&Layout, &Layout),
        extents: &[u64],
        element_bytes: u64,
        ask: impl FnOnce(&Case<'_>, &Prediction) -> R,
    ) -> R {
        let topology = cluster::parse(&self.text()).unwrap();
        let ends = (memory(0), memory(self.channels.len()));
        let fields = [element_bytes];
        let mut query = Query::whole((ends.0, layouts.0), (ends.1, layouts.1), extents, &fields);
        (query.src.listed, query.src.gaps, query.dst.gaps) =
            (self.listed, self.gaps[0], self.gaps[1]);
        let hops: Vec<_> = (0..self.channels.len() as u8).map(|at| (at, at + 1)).collect();
        predicted(&topology, &query, &hops, (self.pivot, self.model), ask)
    }
}

/// What a path of `hops`, from and to these memories, is predicted to take.
fn predicted<R>(
    topology: &Topology,
    query: &Query<'_>,
    hops: &[(u8, u8)],
    (pivot, model): (usize, CostModel),
    ask: impl FnOnce(&Case<'_>, &Prediction) -> R,
) -> R {
    let shape = Shape::of(query).unwrap();
    let ends = (query.src.memory, query.dst.memory);
    let graph = Graph::of(topology, &[NodeId(0)], ends, &Options::default()).unwrap();
    let (mut path, edges) = (Path::EMPTY, Edges::of(&graph));
    for &(from, to) in hops {
        path.push(*edges.out(from).iter().find(|edge| edge.to == to).unwrap());
    }
    let solution = Solution::ends(&shape, pivot);
    let (graph, shape, path, solution) = (&graph, &shape, &path, &solution);
    let case = Case { graph, shape, model, path, solution };
    ask(&case, &case.predict())
}

fn memory(index: usize) -> MemoryId {
    MemoryId { node: NodeId(0), index: index as u16 }
}

fn whole(dims: [u8; 3]) -> Layout {
    let dims = dims.into_iter().map(Component::Whole);
    Layout::new(std::iter::once(Component::Fields).chain(dims), 3).unwrap()
}

fn requests(case: &Case<'_>, predicted: &Prediction) -> Vec<u64> {
    predicted.hops[..case.hops()].iter().map(|hop| hop.request_bytes).collect()
}

#[track_caller]
fn assert_close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 1e-9, "{got}, not {want}");
}

#[track_caller]
fn assert_bound(predicted: &Prediction, hop: usize, why: Limit) {
    assert_eq!((predicted.bound.hop, predicted.bound.why), (hop, why));
}

#[test]
fn a_hop_takes_its_latency_and_its_bytes() {
    let hop = Chain::new(&["throughput = 1e9, latency_ns = 1000000"]);
    hop.run(64 * MIB, |case, predicted| {
        assert_close(predicted.seconds, 0.001 + 0.067_108_864);
        assert_close(predicted.throughput, 1e9);
        assert_bound(predicted, 0, Limit::Channel);
        // Eight latencies are 8 MB; no request is so large.
        assert_eq!(requests(case, predicted), [4 * MIB]);
    });
    // One of 4 MiB in flight is served while the other waits.
    let few = Chain::new(&["throughput = 1e9, latency_ns = 100000000"]);
    let each = (0.1 + 0.004_194_304) / 2.0;
    few.run(64 * MIB, |_, predicted| {
        assert_close(predicted.seconds, 0.1 + 16.0 * each);
        assert_bound(predicted, 0, Limit::Request);
    });
    few.run(4 * MIB, |_, predicted| assert_bound(predicted, 0, Limit::Latency));
    let many = Chain::new(&["throughput = 1e9, latency_ns = 100000000, in_flight = 50"]);
    many.run(64 * MIB, |_, predicted| assert_close(predicted.seconds, 0.1 + 0.067_108_864));
}

#[test]
fn a_request_reaches_nearly_the_rate_of_its_hop() {
    let curve = |last: &str| {
        let points = format!("[[4096, 1e8], [2097152, 1e9], [4194304, {last}]]");
        Chain::new(&[&format!("throughput = {points}")])
    };
    let request = |chain: &Chain, bytes| chain.run(bytes, requests)[0];
    assert_eq!(request(&curve("1.02e9"), 64 * MIB), 2 * MIB);
    assert_eq!(request(&curve("1.04e9"), 64 * MIB), 4 * MIB);
    assert_eq!(request(&curve("1.02e9"), 3 * MIB / 2), 3 * MIB / 2);
    // Eight latencies of it.
    let hidden = |ns| Chain::new(&[&format!("throughput = 1e9, latency_ns = {ns}")]);
    assert_eq!(request(&hidden(100_000), 64 * MIB), MIB);
    assert_eq!(request(&hidden(200_000), 64 * MIB), 2 * MIB);
    // No more than a channel moves in 200 us, where that is more than 4 MiB.
    let fast = Chain::new(&["throughput = 6e11, latency_ns = 30000"]);
    assert_eq!(request(&fast, 256 * MIB), 64 * MIB);
    assert_eq!(request(&fast, 48 * MIB), 48 * MIB);
    let beside_a_ring = Chain::new(&["throughput = 6e11, latency_ns = 30000"; 2]);
    assert_eq!(request(&beside_a_ring, 256 * MIB), 4 * MIB);
    // Whole runs of 6,000 bytes.
    let rows = Chain::new(&["throughput = 1e9"]);
    let (from, to) = (whole([0, 1, 2]), whole([0, 2, 1]));
    let held = rows.of((&from, &to), &[1500, 64, 64], 4, |case, predicted| {
        assert_eq!(predicted.hops[0].step.prefix_bytes, 6000);
        requests(case, predicted)
    });
    assert_eq!(held, [MIB / 6000 * 6000]);
}

#[test]
fn a_request_is_a_quarter_of_the_smaller_ring_beside_it() {
    let mut chain = Chain::new(&["throughput = 1e9"; 3]);
    chain.th_bytes = 2 * MIB;
    assert_eq!(chain.run(1 << 30, requests), [MIB / 2; 3]);
    let one = &Chain { th_bytes: 3, ..Chain::new(&["throughput = 1e9"; 2]) };
    assert_eq!(one.run(1 << 30, requests), [1; 2]);
}

#[test]
fn requests_are_short_enough_that_hops_overlap() {
    let fast = Chain::new(&["throughput = 1e9", "throughput = 2e9"]);
    fast.run(8 * MIB, |case, predicted| {
        assert_eq!(requests(case, predicted), [MIB / 8; 2]);
        assert_close(predicted.seconds, 0.008_388_608 + 131_072.0 / 2e9);
    });
    // Shorter ones would wait for the latency: 2 in flight carry half of its bytes each.
    let lasting = "latency_ns = 1000000";
    let slow = Chain::new(&[
        &format!("throughput = 1e9, {lasting}"),
        &format!("throughput = 2e9, {lasting}"),
    ]);
    slow.run(8 * MIB, |case, predicted| {
        assert_eq!(requests(case, predicted), [2 * MIB; 2]);
        assert_close(predicted.seconds, 0.002 + 0.008_388_608 + 2_097_152.0 / 2e9);
    });
    // None is shorter than 16 KiB for that.
    fast.run(MIB / 2, |case, predicted| assert_eq!(requests(case, predicted), [MIB / 64; 2]));
}

const SHARED: &str = r#"
[[node]]
name = "n"
memory = [ { name = "a", kind = "SYS" }, { name = "b", kind = "ZCM" }, { name = "c", kind = "REG" } ]
channel = [ { kind = "Memcpy", from = ["a", "b"], to = ["b", "c"], throughput = 6e9, throughput_interleave = 3e9, throughput_transpose = 3e9 } ]
"#;

/// What two hops on one channel, the one `pivot` converting, take.
fn shared(pivot: usize, ask: impl FnOnce(&Case<'_>, &Prediction)) {
    let topology = cluster::parse(SHARED).unwrap();
    let ends = (memory(0), memory(2));
    let (from, to) = (whole([0, 1, 2]), whole([1, 0, 2]));
    let query = Query::whole((ends.0, &from), (ends.1, &to), &[256, 128, 64], &[4]);
    predicted(&topology, &query, &[(0, 1), (1, 2)], (pivot, CostModel::Default), ask);
}

#[test]
fn hops_on_one_channel_take_turns() {
    for pivot in 0..2 {
        shared(pivot, |case, predicted| {
            assert_close(predicted.throughput, 2e9);
            // Neither waits for the other's requests, so they stay long.
            assert_close(predicted.seconds, 8_388_608.0 / 2e9);
            assert_eq!(requests(case, predicted), [MIB; 2]);
            assert_bound(predicted, pivot, Limit::Channel);
            assert!(case.excludes(0, 1));
        });
    }
}

#[test]
fn of_hops_equally_slow_the_first_bounds() {
    let equal = Chain::new(&["throughput = 1e9"; 3]);
    equal.run(MIB, |case, predicted| {
        assert_bound(predicted, 0, Limit::Channel);
        assert!(!case.excludes(0, 1));
    });
    let last = Chain::new(&["throughput = 2e9", "throughput = 2e9", "throughput = 1e9"]);
    last.run(MIB, |_, predicted| assert_bound(predicted, 2, Limit::Channel));
}

#[test]
fn hops_exclude_each_other_on_one_half_duplex_wire_only() {
    let excludes = |wires: [&str; 2], half_duplex: bool| {
        let mut chain = Chain::new(&["throughput = 1e9"; 2]);
        for (channel, wire) in chain.channels.iter_mut().zip(wires) {
            channel.push_str(&format!(", wire = \"{wire}\""));
        }
        let wire = |name| {
            format!("{{ name = \"{name}\", throughput = 1e9, half_duplex = {half_duplex} }}")
        };
        chain.wires = format!("wire = [{}, {}]\n", wire("one"), wire("two"));
        chain.run(MIB, |case, _| case.excludes(0, 1))
    };
    assert!(excludes(["one", "one"], true));
    assert!(!excludes(["one", "one"], false));
    assert!(!excludes(["one", "two"], true));
}

/// A granule of 128 KiB, in requests of 256 KiB.
#[test]
fn the_slowest_hop_waits_for_a_granule_of_the_next_slowest() {
    const GRANULE: f64 = 131_072.0;
    const REQUEST: f64 = 262_144.0;
    let wait = |pivot, rates: [&str; 3]| {
        let channels = rates.map(|rate| format!("throughput = {rate}"));
        let channels = channels.each_ref().map(String::as_str);
        let chain = Chain { pivot, ..Chain::new(&channels) };
        chain.turned([128, 256, 128], |case, predicted| {
            assert_eq!(requests(case, predicted), [256 << 10; 3]);
            assert_eq!(predicted.hops[pivot].step.shuffle_bytes, 128 << 10);
            predicted.seconds - 16_777_216.0 / predicted.throughput
        })
    };
    // The first fills the second's window, the third empties it.
    assert_close(wait(1, ["1e9", "4e9", "2e9"]), REQUEST / 4e9 + GRANULE / 2e9);
    assert_close(wait(1, ["1e9", "2e9", "4e9"]), GRANULE / 2e9 + REQUEST / 4e9);
    assert_close(wait(1, ["2e9", "4e9", "1e9"]), GRANULE / 2e9 + REQUEST / 4e9);
    assert_close(wait(1, ["2e9", "1e9", "4e9"]), GRANULE / 2e9 + REQUEST / 4e9);
    // At the ends there is no window.
    assert_close(wait(0, ["1e9", "4e9", "2e9"]), REQUEST / 4e9 + REQUEST / 2e9);
    assert_close(wait(2, ["1e9", "4e9", "2e9"]), REQUEST / 4e9 + REQUEST / 2e9);
}

#[test]
fn what_shares_the_channel_of_the_slowest_hop_holds_nothing_up() {
    let text = r#"
[[node]]
name = "n"
memory = [ { name = "a", kind = "SYS" }, { name = "b", kind = "ZCM" }, { name = "c", kind = "REG" }, { name = "d", kind = "FBM" } ]
channel = [
  { kind = "Memcpy", from = ["a", "c"], to = ["b", "d"], throughput = 2e9 },
  { kind = "Memcpy", from = ["b"], to = ["c"], throughput = 4e9 },
]
"#;
    let topology = cluster::parse(text).unwrap();
    let ends = (memory(0), memory(3));
    let (from, to) = (whole([0, 1, 2]), whole([1, 0, 2]));
    let query = Query::whole((ends.0, &from), (ends.1, &to), &[128, 256, 128], &[4]);
    let hops = [(0, 1), (1, 2), (2, 3)];
    predicted(&topology, &query, &hops, (1, CostModel::Default), |_, predicted| {
        assert_close(predicted.throughput, 1e9);
        // The converting hop alone has its granule to itself.
        assert_close(predicted.seconds, 16_777_216.0 / 1e9 + 131_072.0 / 4e9);
    });
}

#[test]
fn an_index_list_gathers_and_a_gap_ends_runs() {
    let curves = "throughput = [[1024, 1e8], [65536, 1e9]], throughput_gather = 5e8";
    let (from, rows) = (whole([0, 1, 2]), [256, 64, 64]);
    let rate =
        |chain: &Chain| chain.of((&from, &from), &rows, 4, |_, predicted| predicted.throughput);
    let plain = Chain::new(&[curves]);
    assert_close(rate(&plain), 1e9);
    assert_close(rate(&Chain { gaps: [0b010, 0], ..Chain::new(&[curves]) }), 1e8);
    let listed = |model| Chain { listed: 0b010, model, ..Chain::new(&[curves]) };
    assert_close(rate(&listed(CostModel::Default)), 5e8);
    assert_close(rate(&listed(CostModel::Paper)), 1e9);
    // Only the hop at that end.
    let two = Chain { gaps: [0b010, 0], ..Chain::new(&[curves; 2]) };
    two.of((&from, &from), &rows, 4, |_, predicted| {
        assert_close(predicted.hops[0].rate, 1e8);
        assert_close(predicted.hops[1].rate, 1e9);
    });
    let two = Chain { gaps: [0, 0b010], ..two };
    two.of((&from, &from), &rows, 4, |_, predicted| {
        assert_close(predicted.hops[0].rate, 1e9);
        assert_close(predicted.hops[1].rate, 1e8);
    });
}

#[test]
fn a_disk_moves_whole_pages() {
    let rate = |kinds: &'static [&'static str], x| {
        let chain = Chain { kinds, ..Chain::new(&["throughput = 1e9"]) };
        let (from, to) = (whole([0, 1, 2]), whole([0, 2, 1]));
        chain.of((&from, &to), &[x, 64, 64], 4, |_, predicted| predicted.throughput)
    };
    let (read, write) = (&["DSK", "SYS"], &["SYS", "DSK"]);
    for disk in [read, write] {
        // A page and a half, which starts at every half: two pages or three.
        assert_close(rate(disk, 1536), 1e9 * 6144.0 / 8192.0);
        assert_close(rate(disk, 2048), 1e9);
        // As measured, on runs of a page that hold as little.
        assert_close(rate(disk, 256), 1e9);
    }
    assert_close(rate(&["SYS", "ZCM"], 1536), 1e9);
    // Runs that a gap cuts short are priced by the curve, which was measured on such.
    let cut = Chain { kinds: read, gaps: [0b001, 0], ..Chain::new(&["throughput = 1e9"]) };
    cut.of((&whole([0, 1, 2]), &whole([0, 2, 1])), &[1536, 64, 64], 4, |_, predicted| {
        assert_close(predicted.throughput, 1e9);
    });
    // A file in order is read from its first page to its last.
    let chain = Chain { kinds: read, ..Chain::new(&["throughput = 1e9"]) };
    chain.run(MIB + 1, |_, predicted| assert_close(predicted.throughput, 1e9));
}

#[test]
fn a_ring_has_a_request_for_each_in_flight_beside_it() {
    let chain = Chain::new(&["throughput = 1e9, in_flight = 3", "throughput = 1e9, in_flight = 4"]);
    let ring = |chain: &Chain, bytes| {
        chain.run(bytes, |case, predicted| {
            (case.buffer_bytes(0, &predicted.hops), predicted.hops[0].request_bytes)
        })
    };
    assert_eq!(ring(&chain, 1 << 30), (7 * MIB, MIB));
    let small = Chain { th_bytes: 8 * MIB - 1, ..chain };
    // A request is a quarter of it at most; seven don't fit.
    assert_eq!(ring(&small, 1 << 30), (7 * MIB, MIB));
    let smaller = Chain { th_bytes: 5 << 10, ..small };
    assert_eq!(ring(&smaller, 1 << 30), (4 * 1280, 1280));
    let unknown = Chain::new(&["throughput = 1e9"; 2]);
    assert_eq!(ring(&unknown, 1 << 30), (4 * MIB, MIB));
    assert_eq!(ring(&unknown, 40 << 10), (3 * (16 << 10), 16 << 10));
    // A slot holds the longer of the two requests.
    let longer = Chain::new(&["throughput = 1e9", "throughput = 1e9, latency_ns = 200000"]);
    assert_eq!(ring(&longer, 1 << 30), (8 * MIB, MIB));
}

#[test]
fn a_ring_that_a_disk_fills_does_not_stay_in_the_caches() {
    let ring = |kinds: &'static [&'static str], th_bytes, bytes| {
        let chain = Chain { kinds, th_bytes, ..Chain::new(&["throughput = 1e9"; 2]) };
        chain.run(bytes, |case, predicted| case.buffer_bytes(0, &predicted.hops))
    };
    let read = &["DSK", "SYS", "FBM"];
    assert_eq!(ring(read, 64 * MIB, 1 << 30), READ_RING_BYTES);
    assert_eq!(ring(read, 12 * MIB, 1 << 30), 9 * MIB, "no more than what the urgent have");
    assert_eq!(ring(read, 64 * MIB, 8 * MIB), 8 * MIB);
    for others in [&["FBM", "SYS", "DSK"], &["FBM", "SYS", "REG"]] {
        assert_eq!(ring(others, 64 * MIB, 1 << 30), 4 * MIB);
    }
    // Also beside a window, where 2 MiB are a granule; what is behind it holds two.
    let chain = Chain {
        kinds: &["DSK", "SYS", "ZCM", "FBM"],
        pivot: 1,
        ..Chain::new(&["throughput = 1e9"; 3])
    };
    let rings = chain.turned([512, 1024, 64], |case, predicted| {
        [0, 1].map(|hop| case.buffer_bytes(hop, &predicted.hops))
    });
    assert_eq!(rings, [READ_RING_BYTES, 4 * MIB]);
}

#[test]
fn rings_beside_a_window_hold_two_granules() {
    let rings = |model, pivot, th_bytes| {
        let chain = Chain { pivot, model, th_bytes, ..Chain::new(&["throughput = 1e9"; 3]) };
        chain.turned([512, 1024, 64], |case, predicted| {
            assert_eq!(case.window_bytes(1), th_bytes / granules(model));
            [0, 1].map(|hop| case.buffer_bytes(hop, &predicted.hops))
        })
    };
    // 2 MiB a granule.
    assert_eq!(rings(CostModel::Default, 1, 64 * MIB), [4 * MIB; 2]);
    assert_eq!(rings(CostModel::Default, 1, 3 * MIB), [2 * MIB; 2]);
    assert_eq!(rings(CostModel::Paper, 1, 64 * MIB), [2 * MIB; 2]);
    // Where an end converts, requests of 1 MiB, four of them.
    assert_eq!(rings(CostModel::Default, 0, 64 * MIB), [4 * MIB; 2]);
    assert_eq!(rings(CostModel::Paper, 2, 64 * MIB), [MIB; 2]);
    assert_eq!(rings(CostModel::Paper, 2, 1000), [1000; 2]);
}

#[test]
fn the_paper_takes_the_least_rate() {
    let channels =
        ["throughput = 2e9, latency_ns = 1000000", "throughput = 1e9", "throughput = 1e9"];
    let mut chain = Chain { model: CostModel::Paper, ..Chain::new(&channels) };
    chain.run(64 * MIB, |_, predicted| {
        assert_close(predicted.throughput, 1e9);
        assert_close(predicted.seconds, 0.067_108_864);
        assert_bound(predicted, 1, Limit::Channel);
    });
    // Among equals one at its peak, before one that longer requests would serve.
    chain.channels[1] = "throughput = [[1048576, 1e9], [1073741824, 2e9]]".to_owned();
    chain.run(MIB, |_, predicted| assert_bound(predicted, 2, Limit::Channel));
    chain.channels[2] = chain.channels[1].clone();
    chain.run(MIB, |_, predicted| assert_bound(predicted, 1, Limit::Request));
    let bytes =
        Chain { model: CostModel::Paper, ..Chain::new(&["throughput = 1.5", "throughput = 1.0"]) };
    bytes.run(MIB, |_, predicted| assert_bound(predicted, 1, Limit::Channel));
}
