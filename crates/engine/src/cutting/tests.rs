//! How hops and rings are cut.

use super::*;
use crate::program::Program;
use crate::support;
use layout::Placement;
use model::{FieldSpace, IndexSpace, Selection, Span};

const FIELDS: Component = Component::Fields;

/// Rows of `z`, then `y`, then `x`, fastest last; fields innermost.
fn whole(dims: [u8; 3]) -> Layout {
    Layout::new(std::iter::once(FIELDS).chain(dims.map(Component::Whole)), 3).unwrap()
}

/// A box of 8 by 16 by 32 entries of `fields`; `around` that many more in the instance.
fn part(layout: &Layout, fields: &[u64], around: u64) -> Part {
    let space = IndexSpace::of(&[("x", 8 + around), ("y", 16), ("z", 32)]).unwrap();
    let all: Vec<usize> = (0..fields.len()).collect();
    let fields = FieldSpace::packed(fields).unwrap();
    let placement = Placement::of_layout(layout, &space, &fields).unwrap();
    let span = |hi| Span::Range { lo: 0, hi };
    let selection = Selection::new(&space, vec![span(8), span(16), span(32)]).unwrap();
    placement.select(&selection, &all).unwrap()
}

fn plan(layouts: &[&Layout], kinds: &[ChannelKind], requests: &[u64], buffers: &[u64]) -> Plan {
    let layouts = layouts.iter().map(|&l| l.clone()).collect();
    let mut plan = support::plan(layouts, requests, buffers, 1);
    plan.phase = vec![0; 3];
    plan.hops.iter_mut().zip(kinds).for_each(|(hop, kind)| hop.kind = *kind);
    plan
}

/// The rings and hops of a plan whose ends have its first and its last layout.
fn cut(plan: &Plan, around: [u64; 2]) -> (Vec<Ring>, Vec<Rule>) {
    let ends = [&plan.layouts[0], &plan.layouts[plan.layouts.len() - 1]];
    let (src, dst) = (part(ends[0], &[4], around[0]), part(ends[1], &[4], around[1]));
    let streams = streams(plan, &src).unwrap();
    let rings = rings(plan, (&src, &dst), streams).unwrap();
    let rules = hops(plan, (&src, &dst), &rings).iter().map(|hop| hop.rule).collect();
    (rings, rules)
}

fn places(rings: &[Ring]) -> Vec<(u64, u64)> {
    rings.iter().map(|ring| (ring.pitch_bytes, ring.slots)).collect()
}

use ChannelKind::{DiskRead, DiskWrite, Memcpy};

#[test]
fn what_is_left_is_halved_rather_than_a_sliver() {
    let lengths = [100, 101, 150, 199, 200, 201].map(|left| without_sliver(left, 100));
    assert_eq!(lengths, [100, 51, 75, 100, 100, 100]);
    assert_eq!(without_sliver(60, 100), 100);
    let (layout, row) = support::row(30_000);
    let lengths = |bytes| {
        let plan = support::plan(vec![layout.clone(); 2], &[bytes], &[], 1);
        let plan = Plan { phase: vec![0], ..plan };
        let program = Program::compile(&plan, row.clone(), row.clone()).unwrap();
        program.requests(0).map(|r| r.end - r.start).collect::<Vec<_>>()
    };
    assert_eq!(lengths(8000), [8000, 8000, 7000, 7000]);
    // Halves of what is left at the last but one, in whole pages.
    assert_eq!(lengths(16_384), [16_384, 13_616]);
    assert_eq!(lengths(20_480), [16_384, 13_616]);
    // At a boundary of components too.
    let turned = plan(&[&whole([0, 1, 2]), &whole([0, 2, 1])], &[Memcpy], &[6000], &[]);
    let parts = [0, 1].map(|end| part(&turned.layouts[end], &[4], 0));
    let program = Program::compile(&turned, parts[0].clone(), parts[1].clone()).unwrap();
    let ends: Vec<u64> = program.requests(0).map(|range| range.end).collect();
    assert_eq!(ends, [5120, 10_240, 12_288, 16_384]);
}

#[test]
fn sizes_are_the_nearest_that_fit() {
    assert_eq!([99, 149, 150, 151, 249, 251, 0].map(|n| nearest(n, 100)), [1, 1, 1, 2, 2, 3, 1]);
    assert_eq!(
        [1000, 500, 400, 300, 5000, 0].map(|n| even_share(1000, n)),
        [1000, 500, 500, 334, 1000, 1]
    );
    assert_eq!(even_share(0, 10), 1);
    assert_eq!(pitch(4000, 12_288), (4096, 3));
    assert_eq!(pitch(4000, 12_000), (4000, 3));
    assert_eq!(pitch(4000, 100), (4000, 1));
    assert_eq!(pitch(u64::MAX, u64::MAX), (u64::MAX, 1));
}

#[test]
fn a_direct_hop_is_cut_anywhere_only_where_both_ends_are_one_run() {
    let (rows, columns) = (whole([2, 1, 0]), whole([0, 1, 2]));
    let rule = |layouts: [&Layout; 2], around: [u64; 2]| {
        let plan = plan(&layouts, &[Memcpy], &[100], &[]);
        let [src, dst] = [0, 1].map(|end| part(layouts[end], &[4], around[end]));
        direct_hop(&plan, &src, &dst).rule
    };
    let (every, component) = (Rule::Every { bytes: 100 }, Rule::Component { bytes: 100 });
    assert_eq!(rule([&columns, &columns], [0, 0]), every);
    assert_eq!(rule([&columns, &columns], [1, 0]), component);
    assert_eq!(rule([&columns, &columns], [0, 1]), component);
    assert_eq!(rule([&rows, &columns], [0, 0]), component);
    // A box that ends early in the slowest dimension is still one run.
    assert_eq!(rule([&rows, &rows], [1, 1]), every);
}

#[test]
fn a_file_is_read_and_written_in_its_own_order() {
    let layouts = [whole([0, 1, 2]), whole([2, 1, 0])];
    let order = |kind, fields: &[u64]| {
        let plan = plan(&[&layouts[0], &layouts[1]], &[kind], &[100], &[]);
        super::order(&plan, 0, &part(&layouts[0], fields, 0))
    };
    assert_eq!([DiskRead, DiskWrite].map(|kind| order(kind, &[4])), layouts);
    assert_eq!([DiskRead, DiskWrite].map(|kind| order(kind, &[4, 4])), layouts);
    // Elsewhere in that of the end that has an entry's fields together, or in the destination's.
    let columns = Layout::new([0, 1, 2].map(Component::Whole).into_iter().chain([FIELDS]), 3);
    let (records, columns) = (&layouts[0], &columns.unwrap());
    let order = |kind, ends: [&Layout; 2]| {
        let plan = plan(&ends, &[kind], &[100], &[]);
        super::order(&plan, 0, &part(ends[0], &[4, 4], 0))
    };
    assert_eq!(order(Memcpy, [records, columns]), *records);
    assert_eq!(order(Memcpy, [columns, records]), *records);
    assert_eq!(order(Memcpy, [columns, columns]), *columns);
    assert_eq!(order(DiskRead, [columns, records]), *columns);
    assert_eq!(order(DiskWrite, [records, columns]), *columns);
}

/// Entries of 4 bytes, 16 KiB in all. The hop between the rings turns planes of 8 by 16.
#[test]
fn rings_and_requests_hold_whole_granules() {
    let (from, to) = (whole([0, 1, 2]), whole([1, 0, 2]));
    let layouts = [&from, &from, &to, &to];
    let cut = |requests: [u64; 3], buffers: [u64; 2]| {
        cut(&plan(&layouts, &[DiskRead, Memcpy, DiskWrite], &requests, &buffers), [0, 0])
    };
    let granules = |bytes| Rule::Granules { below: 3, bytes };
    let (rings, rules) = cut([512, 512, 512], [4096, 4096]);
    assert_eq!(places(&rings), [(512, 8), (512, 8)]);
    assert_eq!(rings.iter().map(|r| r.rule).collect::<Vec<_>>(), [granules(512); 2]);
    assert_eq!(rules, [Rule::Every { bytes: 512 }, granules(512), Rule::Every { bytes: 512 }]);
    // The longer of the two requests beside a ring, to the nearest granule; half a ring at most.
    let (rings, rules) = cut([1300, 512, 100], [4096, 1024]);
    assert_eq!(places(&rings), [(1536, 2), (512, 2)]);
    // Requests that cut the smaller slot evenly.
    assert_eq!(rules, [Rule::Every { bytes: 1536 }, granules(512), Rule::Every { bytes: 103 }]);
    assert_eq!(places(&cut([4096, 512, 512], [4096, 4096]).0), [(2048, 2), (512, 8)]);
    assert_eq!(places(&cut([512, 512, 4096], [4096, 8192]).0), [(512, 8), (4096, 2)]);
    // A request of less than a granule is cut at components.
    let (rings, rules) = cut([128, 128, 128], [512, 600]);
    assert_eq!(places(&rings), [(512, 1), (512, 1)]);
    let [component, every] = [Rule::Component { bytes: 128 }, Rule::Every { bytes: 128 }];
    assert_eq!(rules, [every, component, every]);
    let small = plan(&layouts, &[Memcpy; 3], &[512; 3], &[512, 511]);
    let parts = (&part(&from, &[4], 0), &part(&to, &[4], 0));
    let error = rings_of(&small, parts).unwrap_err();
    assert_eq!(error, CompileError::Buffer { buffer: 1, bytes: 511, needed_bytes: 512 });
}

#[test]
fn nothing_needs_no_room() {
    let (layout, part) = support::row(0);
    let plan = support::plan(vec![layout; 3], &[1, 1], &[0], 1);
    let plan = Plan { phase: vec![0], ..plan };
    assert_eq!(Program::compile(&plan, part.clone(), part).unwrap().payload_bytes(), 0);
}

fn rings_of(plan: &Plan, parts: (&Part, &Part)) -> Result<Vec<Ring>, CompileError> {
    rings(plan, parts, streams(plan, parts.0)?)
}

#[test]
fn a_ring_between_copies_in_order_is_cut_where_its_ends_allow() {
    let (rows, turned) = (whole([0, 1, 2]), whole([1, 0, 2]));
    let rules = |layouts: [&Layout; 3], kinds: [ChannelKind; 2], around| {
        let (rings, rules) = cut(&plan(&layouts, &kinds, &[500, 500], &[2000]), around);
        assert_eq!(places(&rings), [(500, 4)]);
        (rings[0].rule, rules[0], rules[1])
    };
    let (every, component) = (Rule::Every { bytes: 500 }, Rule::Component { bytes: 500 });
    let copies = [&rows, &rows, &rows];
    assert_eq!(rules(copies, [Memcpy; 2], [0, 0]), (every, every, every));
    assert_eq!(rules(copies, [Memcpy; 2], [1, 0]), (component, component, every));
    assert_eq!(rules(copies, [Memcpy; 2], [0, 1]), (component, every, component));
    let last = [&rows, &rows, &turned];
    assert_eq!(rules(last, [Memcpy; 2], [0, 0]), (component, every, component));
    // A file's own order is cut by whole pages, whatever the other hop does.
    assert_eq!(rules(last, [DiskRead, Memcpy], [0, 0]), (every, every, component));
    let first = [&turned, &rows, &rows];
    assert_eq!(rules(first, [Memcpy, DiskWrite], [0, 0]), (every, component, every));
    assert_eq!(rules(first, [DiskRead, Memcpy], [0, 0]), (component, component, every));
    assert_eq!(rules(last, [Memcpy, DiskWrite], [0, 0]), (component, every, component));
    // Between two rings nothing is in the way.
    let between = plan(&[&rows; 4], &[Memcpy; 3], &[500; 3], &[2000; 2]);
    assert_eq!(cut(&between, [1, 1]).1, [component, every, component]);
}
