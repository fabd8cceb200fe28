//! Bounds worked out by hand.

use super::*;
use crate::{Options, Query};
use model::{Component, CostModel, Layout, MemoryId, NodeId};

/// A curve on which 4 bytes reach 0.3 GB/s, 100 to 1000 bytes a MB/s each.
const BENT: &str = "[[4, 3e8], [300, 3.1e8], [400, 4e8], [500, 5e8], [1000, 1e9]]";

/// A channel from one memory to another.
struct Hop(&'static str, &'static str, &'static str);

/// `U` from `a` to `z`, of `memories` beside these, for 1000 entries of two fields of 4 bytes that
/// change from `<F, x>` to `<x, F>`, or don't.
fn bound(memories: &[&str], hops: &[Hop], converts: bool) -> f64 {
    bound_of(CostModel::Paper, memories, hops, converts)
}

fn bound_of(model: CostModel, memories: &[&str], hops: &[Hop], converts: bool) -> f64 {
    let memory = |text: &&str| {
        let (name, more) = text.split_once(',').unwrap_or((text, ""));
        let comma = if more.is_empty() { "" } else { "," };
        format!("{{ name = \"{name}\", kind = \"SYS\"{comma}{more} }}")
    };
    let channel = |Hop(from, to, rate): &Hop| {
        format!(
            "{{ kind = \"Memcpy\", from = [\"{from}\"], to = [\"{to}\"], throughput = {rate} }}"
        )
    };
    let names: Vec<_> = ["a"].iter().chain(memories).chain(&["z"]).map(memory).collect();
    let channels: Vec<_> = hops.iter().map(channel).collect();
    let text = format!(
        "th_bytes = 1600\n[[node]]\nname = \"n\"\nmemory = [{}]\nchannel = [{}]\n",
        names.join(", "),
        channels.join(", ")
    );
    let topology = cluster::parse(&text).unwrap();
    let id = |index: usize| MemoryId { node: NodeId(0), index: index as u16 };
    let ends = (id(0), id(memories.len() + 1));
    let layout = |order: [Component; 2]| Layout::new(order, 1).unwrap();
    let rows = layout([Component::Fields, Component::Whole(0)]);
    let columns = layout([Component::Whole(0), Component::Fields]);
    let to = if converts { &columns } else { &rows };
    let query = Query::whole((ends.0, &rows), (ends.1, to), &[1000], &[4, 4]);
    let shape = Shape::of(&query).unwrap();
    let graph = Graph::of(&topology, &[NodeId(0)], ends, &Options::default()).unwrap();
    let rates = Rates::of(&graph, &shape, model);
    upper_bound((&graph, &Edges::of(&graph)), &shape, &rates)
}

#[track_caller]
fn assert_close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 1e-6, "{got}, not {want}");
}

#[test]
fn a_copy_in_order_is_bound_by_the_widest_path() {
    let hops = [
        Hop("a", "b", "5e9"),
        Hop("b", "z", "2e9"),
        Hop("a", "c", "3e9"),
        Hop("c", "z", "4e9"),
        Hop("a", "z", "1e9"),
        Hop("c", "d", "9e9"),
        Hop("e", "z", "9e9"),
    ];
    assert_eq!(bound(&["b", "c", "d", "e"], &hops, false), 3e9);
    assert_eq!(bound(&["b", "c, th_bytes = 0", "d", "e"], &hops, false), 2e9);
    assert_eq!(bound(&["b, th_bytes = 0", "c, th_bytes = 0", "d", "e"], &hops, false), 1e9);
    // Found from the last channel of the file to the first.
    let back = [Hop("c", "z", "3e9"), Hop("b", "c", "3e9"), Hop("a", "b", "3e9")];
    assert_eq!(bound(&["b", "c"], &back, false), 3e9);
}

#[test]
fn an_end_that_converts_has_the_rate_of_its_runs() {
    assert_close(bound(&[], &[Hop("a", "z", BENT)], true), 3e8);
    assert_close(bound(&["b"], &[Hop("a", "b", BENT), Hop("b", "z", "2e9")], true), 1e9);
    assert_close(bound(&["b"], &[Hop("a", "b", "2e9"), Hop("b", "z", "2.5e8")], true), 2.5e8);
    assert_close(bound(&["b"], &[Hop("a", "b", "2.5e8"), Hop("b", "z", BENT)], true), 2.5e8);
    let ends = [Hop("a", "b", BENT), Hop("b", "z", BENT)];
    assert_close(bound(&["b"], &ends, true), 3e8);
    // What converts faster leads nowhere, or comes from nowhere.
    let dead = [Hop("a", "z", BENT), Hop("a", "b", "2e9"), Hop("c", "z", "2e9")];
    assert_close(bound(&["b", "c"], &dead, true), 3e8);
    let [a, ..] = &dead;
    let through = [Hop(a.0, a.1, a.2), Hop("a", "b", "9e9"), Hop("b", "z", "9e9")];
    assert_close(bound(&["b, th_bytes = 0"], &through, true), 3e8);
    let too_slow = [Hop("b", "z", "2e8"), Hop("a", "c", "2e8")];
    let [a, b, c] = dead;
    let [d, e] = too_slow;
    assert_close(bound(&["b", "c"], &[a, b, c, d, e], true), 3e8);
}

/// A window of `TH`, 1600 bytes, holds 200 entries: runs of 800 bytes in the destination.
#[test]
fn a_window_between_bounds_what_both_ends_reach() {
    let ends = || [Hop("a", "b", BENT), Hop("b", "z", BENT)];
    let with = |memories: &[&str], more: Vec<Hop>| {
        bound(memories, &ends().into_iter().chain(more).collect::<Vec<_>>(), true)
    };
    assert_close(with(&["b"], vec![Hop("b", "b", "9e9")]), 8e8);
    assert_close(with(&["b"], vec![Hop("b", "b", "7e8")]), 7e8);
    assert_close(with(&["b, th_bytes = 1000"], vec![Hop("b", "b", "9e9")]), 5e8);
    // Two windows in a ring.
    let hops = [Hop("a", "b", BENT), Hop("b", "z", BENT), Hop("b", "b", "9e9")];
    assert_close(bound_of(CostModel::Default, &["b"], &hops, true), 4e8);
    // The smaller of the two windows that a channel between two memories joins.
    let apart = |b, c| {
        let hops = [Hop("a", "b", BENT), Hop("b", "c", "9e9"), Hop("c", "z", BENT)];
        bound(&[b, c], &hops, true)
    };
    assert_close(apart("b", "c, th_bytes = 1000"), 5e8);
    assert_close(apart("b, th_bytes = 1000", "c"), 5e8);
    // Larger windows, that no path at this rate comes through.
    let large = "c, th_bytes = 99999";
    let aside = |hops: [Hop; 2]| {
        let [x, y] = hops;
        with(&["b", large], vec![Hop("b", "b", "9e9"), Hop("c", "c", "9e9"), x, y])
    };
    assert_close(aside([Hop("b", "c", "9e9"), Hop("c", "b", "9e9")]), 1e9);
    assert_close(aside([Hop("b", "c", "9e9"), Hop("c", "b", "2e8")]), 8e8);
    assert_close(aside([Hop("b", "c", "2e8"), Hop("c", "b", "9e9")]), 8e8);
    // Better ends, likewise: flat channels need no runs.
    assert_close(aside([Hop("a", "c", "2e8"), Hop("c", "z", "2e8")]), 8e8);
    assert_close(aside([Hop("a", "c", "9e9"), Hop("c", "c", "9e9")]), 8e8);
}
