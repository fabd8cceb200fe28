//! How the full algorithm searches: ties, what it remembers, its budget and when it stops.

use isometry_planner::{Choice, Options, Query, plan};
use model::{Algorithm, CostModel, IndexSpace, Plan, Topology, Wire};
use std::collections::HashSet;

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");

fn full(model: CostModel) -> Options {
    Options { choice: Choice::Only(Algorithm::Full), model, ..Options::default() }
}

/// One node with host memories `a` to `d` and these channels: from, to, throughput.
fn node(channels: &[(&str, &str, &str)]) -> Topology {
    let channel = |&(from, to, throughput): &(&str, &str, &str)| {
        format!(
            "{{ kind = \"Memcpy\", from = [\"{from}\"], to = [\"{to}\"], throughput = {throughput} }},"
        )
    };
    let memories = ["a", "b", "c", "d"].map(|m| format!("{{ name = \"{m}\", kind = \"SYS\" }},"));
    let channels: String = channels.iter().map(channel).collect();
    let memories = memories.concat();
    let text = format!(
        "th_bytes = 65536\n[[node]]\nname = \"n\"\nmemory = [{memories}]\nchannel = [{channels}]"
    );
    cluster::parse(&text).unwrap()
}

/// The plan for a square of 4-byte entries.
fn planned(topology: &Topology, ends: [&str; 2], layouts: [&str; 2], options: &Options) -> Plan {
    let space = IndexSpace::of(&[("y", 4096), ("x", 4096)]).unwrap();
    let [from, to] = layouts.map(|text| layout::parse(text, &space).unwrap());
    let [src, dst] = ends.map(|name| topology.memory_named(name).unwrap());
    let extents = space.extents();
    let query = Query::whole((src, &from), (dst, &to), &extents, &[4]);
    plan(topology, &query, options).unwrap()
}

const SAME: [&str; 2] = ["<F, x, y>"; 2];
const TRANSPOSE: [&str; 2] = ["<F, x, y>", "<F, y, x>"];

/// The memories of the paper's plan from `a` to `d`.
fn path(channels: &[(&str, &str, &str)], layouts: [&str; 2]) -> String {
    let topology = node(channels);
    let plan = planned(&topology, ["a", "d"], layouts, &full(CostModel::Paper));
    let short = |&m| topology.memory_name(m).unwrap().replace("n0.", "");
    plan.memories.iter().map(short).collect()
}

#[test]
fn of_equal_throughputs_the_fewest_hops_win() {
    let through_b = [("a", "b", "9e9"), ("b", "d", "2e9")];
    let direct = [("a", "d", "2e9")];
    assert_eq!(path(&[&through_b[..], &direct].concat(), SAME), "ad");
    let slower = [("a", "d", "1.9e9")];
    assert_eq!(path(&[&through_b[..], &slower].concat(), SAME), "abd");
}

#[test]
fn then_the_greatest_peaks() {
    let ways = |b: [&'static str; 2], c: [&'static str; 2]| {
        let channels = [("a", "b", b[0]), ("b", "d", b[1]), ("a", "c", c[0]), ("c", "d", c[1])];
        path(&channels, SAME)
    };
    assert_eq!(ways(["2e9", "5e9"], ["9e9", "2e9"]), "acd");
    assert_eq!(ways(["9e9", "2e9"], ["2e9", "5e9"]), "abd");
    assert_eq!(ways(["2e9", "5e9"], ["2.1e9", "2.1e9"]), "acd", "throughput comes first");
}

#[test]
fn a_search_counts_what_it_visits_and_solves() {
    let hops = [("a", "b", "2e9"), ("b", "d", "2e9")];
    let counted = |channels: &[(&'static str, &'static str, &'static str)], layouts, model| {
        let plan = planned(&node(channels), ["a", "d"], layouts, &full(model));
        (plan.search.paths, plan.search.solved)
    };
    // The paper's model counts each hop that might convert; the other, each that is tried.
    assert_eq!(counted(&hops, SAME, CostModel::Paper), (1, 2));
    assert_eq!(counted(&hops, SAME, CostModel::Default), (1, 1));
    assert_eq!(counted(&hops, TRANSPOSE, CostModel::Paper), (1, 2));
    assert_eq!(counted(&hops, TRANSPOSE, CostModel::Default), (1, 2));
}

#[test]
fn simple_breaks_ties_as_full_does() {
    let (by_b, by_c) =
        ([("a", "b", "2e9"), ("b", "d", "2e9")], [("a", "c", "2e9"), ("c", "d", "2e9")]);
    let both = [[by_b, by_c].concat(), [by_c, by_b].concat()];
    let mixed = [by_c[1], by_b[1], by_c[0], by_b[0]].to_vec();
    for (channels, memory) in both.into_iter().chain([mixed]).zip(["b", "c", "c"]) {
        let topology = node(&channels);
        for algorithm in [Algorithm::Simple, Algorithm::Full] {
            let options = Options { choice: Choice::Only(algorithm), ..full(CostModel::Paper) };
            let plan = planned(&topology, ["a", "d"], SAME, &options);
            assert_eq!(topology.short_name(plan.memories[1]), memory, "{algorithm:?}");
        }
    }
}

/// A node with memories of the given `TH` in a row, each with a channel to the next that is no
/// Memcpy, and Memcpy channels within these.
fn row(th_bytes: &[u64], converting: &[usize]) -> Topology {
    let memory = |(i, th)| format!("{{ name = \"m{i}\", kind = \"FBM\", th_bytes = {th} }},");
    let channel = |kind: &str, from: usize, to: usize| {
        format!(
            "{{ kind = \"{kind}\", from = [\"m{from}\"], to = [\"m{to}\"], throughput = 1e9 }},"
        )
    };
    let memories: String = th_bytes.iter().enumerate().map(memory).collect();
    let next = (1..th_bytes.len()).map(|to| channel("GPUCopy", to - 1, to));
    let within = converting.iter().map(|&at| channel("Memcpy", at, at));
    let channels: String = next.chain(within).collect();
    let text = format!("[[node]]\nname = \"n\"\nmemory = [{memories}]\nchannel = [{channels}]");
    cluster::parse(&text).unwrap()
}

#[test]
fn simple_converts_in_the_first_memory_that_may_hold_an_intermediate() {
    let memories = |topology: &Topology, last: &str| {
        let options = Options { choice: Choice::Only(Algorithm::Simple), ..full(CostModel::Paper) };
        let plan = planned(topology, ["m0", last], TRANSPOSE, &options);
        let index = |m: &model::MemoryId| m.index;
        plan.memories.iter().map(index).collect::<Vec<_>>()
    };
    let room = 1 << 20;
    assert_eq!(memories(&row(&[room; 3], &[0, 1, 2]), "m2"), [0, 0, 1, 2]);
    assert_eq!(memories(&row(&[0, room, room], &[0, 1, 2]), "m2"), [0, 1, 1, 2]);
    assert_eq!(memories(&row(&[0, room, room], &[0, 2]), "m2"), [0, 1, 2, 2]);
    // A path of the most hops has no room for one more.
    let longest: Vec<u16> = (0..13).collect();
    assert_eq!(memories(&row(&[room; 13], &[5]), "m12"), longest);
    assert_eq!(memories(&row(&[room; 12], &[5]), "m11").len(), 13);
}

#[test]
fn channels_side_by_side_lead_the_same_way() {
    let twice = [("a", "b", "1e9"), ("b", "d", "2e9"), ("b", "d", "3e9")];
    let options = Options { choice: Choice::Only(Algorithm::Simple), ..Options::default() };
    let plan = planned(&node(&twice), ["a", "d"], SAME, &options);
    assert_eq!(plan.hops.iter().map(|hop| hop.channel.index).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn then_the_smallest_shuffles_then_the_order_of_the_file() {
    // Both ends want runs; longer reads through `b` make its shuffles larger.
    let through = |memory, read| {
        [("a", memory, read), (memory, memory, "9e9"), (memory, "d", "[[256, 2e9]]")]
    };
    let (long, short) = (through("b", "[[512, 2e9]]"), through("c", "[[256, 2e9]]"));
    for channels in [[long, short].concat(), [short, long].concat()] {
        assert_eq!(path(&channels, TRANSPOSE), "accd");
    }
    let same = through("b", "[[256, 2e9]]");
    assert_eq!(path(&[same, short].concat(), TRANSPOSE), "abbd");
    assert_eq!(path(&[short, same].concat(), TRANSPOSE), "accd");
}

/// A channel that converts at `least` and copies at `most`.
fn bent(least: &str, most: &str) -> String {
    format!("[[4, {least}], [4096, {most}]]")
}

#[test]
fn ties_do_not_depend_on_what_paths_could_reach_at_best() {
    let ways = |b: [&str; 2], c: [&str; 2]| {
        let curves = [bent("2e9", b[0]), bent("1e9", b[1]), bent("2e9", c[0]), bent("1e9", c[1])];
        let ends = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")];
        let channels: Vec<_> =
            ends.iter().zip(&curves).map(|(&(from, to), curve)| (from, to, &curve[..])).collect();
        let topology = node(&channels);
        let plan = planned(&topology, ["a", "d"], TRANSPOSE, &full(CostModel::Paper));
        assert_eq!(plan.throughput, 2e9);
        topology.short_name(plan.memories[1])
    };
    // All convert at 2 GB/s, where they start. The greatest peaks win, then the first in the file.
    assert_eq!(ways(["5e9", "5e9"], ["3e9", "20e9"]), "c");
    assert_eq!(ways(["3e9", "20e9"], ["5e9", "5e9"]), "b");
    assert_eq!(ways(["3e9", "20e9"], ["5e9", "12e9"]), "b");
    assert_eq!(ways(["5e9", "12e9"], ["3e9", "20e9"]), "b");
}

#[test]
fn the_default_model_breaks_ties_by_the_greatest_peaks() {
    // Both are bound by their slower channel, and neither shows what the other would do.
    let ways = |b: &'static str, c: &'static str| {
        let text = node(&[("a", "b", "2e9"), ("b", "d", b), ("a", "c", "2e9"), ("c", "d", c)]);
        let options = full(CostModel::Default);
        let plan = planned(&text, ["a", "d"], SAME, &options);
        text.short_name(plan.memories[1])
    };
    assert_eq!(ways("[[4, 5e9], [1073741824, 5e9]]", "[[4, 5e9], [1073741824, 9e9]]"), "c");
    assert_eq!(ways("[[4, 5e9], [1073741824, 9e9]]", "[[4, 5e9], [1073741824, 5e9]]"), "b");
    assert_eq!(ways("5e9", "5e9"), "b");
}

#[test]
fn the_only_path_has_no_alternative() {
    let ends = bent("1e8", "2e9");
    let through =
        |memory| [("a", memory, &ends[..]), (memory, memory, "9e9"), (memory, "d", &ends)];
    let memories = |topology: &Topology, ids: &[model::MemoryId]| {
        ids.iter().map(|&id| topology.short_name(id)).collect::<String>()
    };
    for model in [CostModel::Paper, CostModel::Default] {
        let mut topology = node(&through("b"));
        // While latencies are most of the time, slower solutions of a path are tried too.
        topology.classes[0].channels.iter_mut().for_each(|channel| channel.latency_ns = 20_000_000);
        let plan = planned(&topology, ["a", "d"], TRANSPOSE, &full(model));
        assert_eq!(memories(&topology, &plan.memories), "abbd");
        let others = plan.alternatives.iter().map(|other| memories(&topology, &other.memories));
        assert_eq!(others.collect::<Vec<_>>(), ["abd"]);
        // Hops in the paper's model; in the other pivots, and four parts of the best throughput.
        let solved = if model == CostModel::Paper { 2 + 3 } else { 2 + 3 + 4 };
        assert_eq!((plan.search.paths, plan.search.solved), (2, solved));
    }
}

/// They are more than 64 bits number, and so is what would hide them.
#[test]
fn latencies_of_centuries_add_up() {
    let mut topology = node(&[("a", "b", "1e24"), ("b", "d", "1e24")]);
    topology.classes[0].channels.iter_mut().for_each(|channel| channel.latency_ns = u64::MAX);
    let plan = planned(&topology, ["a", "d"], SAME, &full(CostModel::Default));
    assert!(plan.seconds.unwrap() > 2.0 * 1.8e10, "{:?}", plan.seconds);
    assert!(plan.hops.iter().all(|hop| hop.request_bytes >= 8192), "{:?}", plan.hops);
}

/// Memories that lead to each other and back, never on: only the first of them leads to the end.
#[test]
fn dead_ends_count_towards_the_budget() {
    let leaves: Vec<String> = (0..8).map(|i| format!("l{i}")).collect();
    let names = |list: &[String]| {
        list.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    };
    let memory = |name: &String| format!("{{ name = \"{name}\", kind = \"SYS\" }},");
    let all = [&["a".to_owned(), "b".to_owned(), "d".to_owned()][..], &leaves].concat();
    let channel = |from: &str, to: &str| {
        format!(
            "{{ kind = \"Memcpy\", from = [{from}], to = [{to}], throughput = [[4, 1e8], [4096, 9e9]] }},"
        )
    };
    let text = format!(
        "[[node]]\nname = \"n\"\nmemory = [{}]\nchannel = [{}{}{}{}]",
        all.iter().map(memory).collect::<String>(),
        channel("\"a\"", "\"b\""),
        channel("\"b\"", "\"d\""),
        channel("\"b\"", &names(&leaves)),
        channel(&names(&leaves), &names(&[&["b".to_owned()][..], &leaves].concat())),
    );
    let topology = cluster::parse(&text).unwrap();
    let options = Options { budget: Some(32), ..full(CostModel::Paper) };
    let plan = planned(&topology, ["a", "d"], TRANSPOSE, &options);
    assert!(plan.search.exhausted);
    assert_eq!((plan.search.paths, plan.search.solved), (1, 2));
}

#[test]
fn alternatives_are_other_paths_from_the_best_on() {
    let topology = cluster::parse(SAPLING).unwrap();
    for model in [CostModel::Paper, CostModel::Default] {
        for most in 0..4 {
            let options = Options { alternatives: most, ..full(model) };
            let plan = planned(&topology, ["n0.sys", "n1.fbm"], TRANSPOSE, &options);
            let others = &plan.alternatives;
            assert!(others.len() <= most && others.is_empty() == (most == 0), "{others:?}");
            assert!(model == CostModel::Default || others.len() == most, "{others:?}");
            let distinct: HashSet<_> = others.iter().map(|other| &other.memories).collect();
            assert_eq!(distinct.len(), others.len(), "{others:?}");
            for (i, other) in others.iter().enumerate() {
                assert_eq!(other.layouts.len(), other.memories.len());
                assert_ne!(other.memories, plan.memories);
                assert!(other.throughput > 0.0 && other.bound.is_some());
                assert!(other.seconds.is_none_or(|s| s >= plan.seconds.unwrap()));
                let same = |b: &&model::Alternative| b.memories == other.memories;
                assert!(!others[..i].iter().any(|b| same(&b)), "{other:?}");
            }
            assert!(others.is_sorted_by(|a, b| a.seconds <= b.seconds));
        }
    }
}

#[test]
fn the_budget_ends_a_search_and_only_that_says_so() {
    let topology = cluster::parse(SAPLING).unwrap();
    let within = |model, budget| {
        let options = Options { budget: Some(budget), ..full(model) };
        planned(&topology, ["n0.fbm", "n1.fbm"], TRANSPOSE, &options)
    };
    let best = within(CostModel::Paper, 10_000);
    assert!(!best.search.exhausted);
    for budget in (5..1500).step_by(35) {
        let plan = within(CostModel::Paper, budget);
        let search = &plan.search;
        assert_eq!(search.budget, budget);
        assert!(search.paths <= 8 * budget + 1 && search.solved < budget + 12, "{search:?}");
        let enough = budget >= best.search.solved && 8 * budget >= best.search.paths;
        assert_eq!(search.exhausted, !enough, "{search:?}");
        assert!(search.exhausted || plan == Plan { search: search.clone(), ..best.clone() });
    }
    let timed = within(CostModel::Default, 100).search;
    assert!(timed.exhausted && timed.paths <= 801 && timed.solved < 120, "{timed:?}");
}

#[test]
fn a_path_as_fast_as_any_can_be_ends_the_search() {
    let topology = cluster::parse(SAPLING).unwrap();
    let ends = |src: &'static str, dst: &'static str| [src, dst].map(|name| format!("n0.{name}"));
    for model in [CostModel::Paper, CostModel::Default] {
        // Any path of three hops is visited after 10 others.
        for (src, dst) in [("sys", "sys"), ("zcm", "fbm"), ("sys", "dsk"), ("reg", "fbm")] {
            for layouts in [SAME, TRANSPOSE] {
                let [src, dst] = ends(src, dst);
                let search = planned(&topology, [&src, &dst], layouts, &full(model)).search;
                assert!(!search.exhausted && search.paths <= 10, "{src} {dst} {search:?}");
            }
        }
    }
}

/// `topology` with its channels `crossing`, by their order in the file, on one wire that carries
/// one direction at a time.
fn with_wire(mut topology: Topology, rate: f64, crossing: [usize; 2]) -> Topology {
    let class = &mut topology.classes[0];
    class.wires = vec![Wire { name: "bus".to_owned(), rate, half_duplex: true }];
    crossing.into_iter().for_each(|channel| class.channels[channel].wire = Some(0));
    topology
}

#[test]
fn only_the_default_model_counts_a_wire_for_each_hop_on_it() {
    let channels = [("a", "b", "9e9"), ("b", "d", "9e9"), ("a", "c", "5e9"), ("c", "d", "5e9")];
    let topology = with_wire(node(&channels), 9e9, [0, 1]);
    let through = |model, budget| {
        let options = Options { budget: Some(budget), ..full(model) };
        let plan = planned(&topology, ["a", "d"], SAME, &options);
        topology.memory_name(plan.memories[1]).unwrap()
    };
    assert_eq!(through(CostModel::Paper, 100), "n0.b");
    assert_eq!(through(CostModel::Default, 100), "n0.c");
    assert_eq!(through(CostModel::Default, 1), "n0.c", "it is the first to be tried");
}

#[test]
fn hops_that_share_a_wire_or_channel_have_runs_for_what_is_left_to_each() {
    let rate = "[[512, 1e9], [4096, 2e9]]";
    let apart = node(&[("a", "b", rate), ("c", "d", rate), ("b", "c", "90e9")]);
    let mut together = apart.clone();
    let channels = &mut together.classes[0].channels;
    channels[0].from.push(2);
    channels[0].to.push(3);
    channels.remove(1);
    let wired = with_wire(apart, 2e9, [0, 1]);
    for topology in [wired, together] {
        let options = Options { th_bytes: Some(64 << 20), ..full(CostModel::Default) };
        let plan = planned(&topology, ["a", "d"], TRANSPOSE, &options);
        assert_eq!(plan.hops.len(), 3);
        assert!(plan.throughput > 0.99e9, "{}: {:?}", plan.throughput, plan.hops);
    }
}

#[test]
fn a_search_visits_at_most_eight_paths_for_each_that_it_may_solve() {
    let channels = [[("a", "b", "2e9"); 20], [("b", "d", "2e9"); 20]].concat();
    let options = Options { budget: Some(4), ..full(CostModel::Default) };
    let search = planned(&node(&channels), ["a", "d"], SAME, &options).search;
    assert!(search.exhausted && search.paths == 8 * 4 + 1, "{search:?}");
}

#[test]
fn a_memory_without_room_is_no_intermediate_however_fast() {
    let channels = [("a", "b", "9e9"), ("b", "d", "9e9"), ("a", "c", "2e9"), ("c", "d", "2e9")];
    let mut topology = node(&channels);
    topology.classes[0].memories[1].th_bytes = Some(0);
    for model in [CostModel::Paper, CostModel::Default] {
        let plan = planned(&topology, ["a", "d"], SAME, &full(model));
        assert_eq!(topology.memory_name(plan.memories[1]).unwrap(), "n0.c");
    }
}

#[test]
fn a_memory_has_no_larger_buffer_than_its_own_th_whatever_is_asked_for() {
    let mut topology = node(&[("a", "b", "2e9"), ("b", "b", "9e9"), ("b", "d", "2e9")]);
    let largest = |topology: &Topology, th_bytes| {
        let options = Options { th_bytes: Some(th_bytes), ..full(CostModel::Default) };
        let buffers = planned(topology, ["a", "d"], TRANSPOSE, &options).buffers;
        buffers.iter().map(|buffer| buffer.bytes).max().unwrap()
    };
    assert!(largest(&topology, 1 << 30) > 65536, "in place of the topology's");
    topology.classes[0].memories[1].th_bytes = Some(1 << 20);
    assert!((65536..=1 << 20).contains(&largest(&topology, 1 << 30)));
    assert!(largest(&topology, 65536) <= 65536);
}
