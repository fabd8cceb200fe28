//! Any plan value compiles or is refused, and what compiles tiles the payload.

mod support;

use isometry_engine::{CompileError, Program};
use layout::{Part, Placement};
use model::{Buffer, Component, FieldSpace, IndexSpace, Layout, Plan, Selection};
use proptest::prelude::*;
use support::{memory, plan, row};

/// A size that is small, at a boundary, or anything.
fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![0..40u64, Just(1 << 32), Just(u64::MAX), Just(u64::MAX / 2), any::<u64>()]
}

fn layouts() -> impl Strategy<Value = Layout> {
    let dims = prop::collection::vec(prop::collection::vec(sizes(), 0..3), 1..4);
    (dims, any::<u64>()).prop_map(|(dims, order)| {
        let mut components = vec![Component::Fields];
        for (dim, blocks) in dims.iter().enumerate() {
            let dim = u8::try_from(dim).unwrap();
            for (level, &size) in (1..).zip(blocks) {
                components.push(Component::Inner { dim, level, size: size.max(1) });
            }
            let is_whole = blocks.is_empty();
            let last = if is_whole { Component::Whole(dim) } else { Component::Outer(dim) };
            components.push(last);
        }
        let count = components.len();
        components.rotate_left(usize::try_from(order % 16).unwrap() % count);
        components.swap(0, usize::try_from(order / 16 % 64).unwrap() % count);
        Layout::new(components, dims.len()).unwrap()
    })
}

fn plans() -> impl Strategy<Value = Plan> {
    let hops = 1..5usize;
    let values = (
        prop::collection::vec(layouts(), 5),
        prop::collection::vec(sizes(), 5),
        prop::collection::vec(sizes(), 4),
        prop::collection::vec(sizes(), 0..4),
        any::<u16>(),
    );
    (hops, values).prop_map(|(hops, (layouts, requests, buffers, phase, harm))| {
        let layouts = layouts[..=hops].to_vec();
        let mut plan = plan(layouts, &requests, &buffers, 2);
        plan.phase = phase;
        match harm % 16 {
            1 => drop(plan.memories.pop()),
            2 => drop(plan.layouts.pop()),
            3 => drop(plan.buffers.pop()),
            4 => drop(plan.hops.pop()),
            5 => plan.buffers.push(Buffer { memory: memory(9), bytes: 1 }),
            6 => plan.hops.clear(),
            _ => {}
        }
        plan
    })
}

fn part(extents: &[u64], field_bytes: &[u64], layout: &Layout) -> Option<Part> {
    let names = ["x", "y", "z"];
    let dims: Vec<_> = names.into_iter().zip(extents.iter().copied()).collect();
    let space = IndexSpace::of(&dims).ok()?;
    let fields = FieldSpace::packed(field_bytes).ok()?;
    let placement = Placement::of_layout(layout, &space, &fields).ok()?;
    let all: Vec<usize> = (0..field_bytes.len()).collect();
    placement.select(&Selection::all(&space), &all).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_plan_compiles_or_is_refused(
        mut plan in plans(),
        extents in prop::collection::vec(0..7u64, 1..4),
        field_bytes in prop::collection::vec(1..5000u64, 1..3),
        alike in any::<bool>(),
    ) {
        let whole = Layout::row_major(extents.len());
        if alike {
            // Most random plans are refused for their ranks; these go further.
            let fits = |l: &Layout| part(&extents, &field_bytes, l).is_some();
            plan.layouts.iter_mut().filter(|l| !fits(l)).for_each(|l| *l = whole.clone());
            plan.phase.resize(extents.len(), 0);
            plan.phase.iter_mut().for_each(|phase| *phase %= 1 << 40);
        }
        let Some(part) = part(&extents, &field_bytes, &whole) else { return Ok(()) };
        let Ok(program) = Program::compile(&plan, part.clone(), part.clone()) else {
            return Ok(());
        };
        for hop in 0..plan.hops.len() {
            let mut at = 0;
            for range in program.requests(hop).take(200) {
                prop_assert!(range.start == at && range.end > at, "{range:?} at {at}");
                at = range.end;
            }
            prop_assert!(at <= part.payload_bytes());
        }
        for ((_, bytes), buffer) in program.buffers().zip(&plan.buffers) {
            prop_assert!(bytes <= buffer.bytes.max(1));
        }
    }
}

#[test]
fn parts_must_be_alike_and_the_destination_writable() {
    let (layout, eight) = row(8);
    let (_, nine) = row(9);
    let plan = plan(vec![layout; 2], &[4], &[], 1);
    let plan = Plan { phase: vec![0], ..plan };
    let error = Program::compile(&plan, eight.clone(), nine).unwrap_err();
    assert_eq!(error, CompileError::Parts { what: "extents" });
    let space = IndexSpace::of(&[("x", 8)]).unwrap();
    let fields = FieldSpace::packed(&[1]).unwrap();
    let still = Placement::of_strides(&space, &fields, &[0]).unwrap();
    let still = still.select(&Selection::all(&space), &[0]).unwrap();
    let error = Program::compile(&plan, eight.clone(), still.clone()).unwrap_err();
    assert!(matches!(error, CompileError::Destination(_)));
    assert_eq!(Program::compile(&plan, still, eight).unwrap().payload_bytes(), 8);
}

#[test]
fn a_plan_has_1_to_64_hops() {
    let (layout, part) = row(8);
    let hops_of = |plan: Plan| {
        let plan = Plan { phase: vec![0], ..plan };
        Program::compile(&plan, part.clone(), part.clone()).map(|program| program.channels().len())
    };
    let long =
        |hops: usize| plan(vec![layout.clone(); hops + 1], &vec![8; hops], &vec![16; hops - 1], 1);
    let refused = Err(CompileError::Plan { why: "a plan has 1 to 64 hops" });
    let (one, place) = (long(1), vec![memory(0)]);
    let none = Plan { hops: vec![], memories: place, layouts: vec![layout.clone()], ..one };
    assert_eq!((hops_of(none), hops_of(long(65))), (refused.clone(), refused));
    assert_eq!((hops_of(long(1)), hops_of(long(64))), (Ok(1), Ok(64)));
}

#[test]
fn a_plan_whose_lists_do_not_belong_together_is_refused() {
    let (layout, part) = row(64);
    let harms: [fn(&mut Plan); 4] = [
        |plan| plan.memories.truncate(2),
        |plan| plan.layouts.truncate(2),
        |plan| plan.buffers.clear(),
        |plan| plan.buffers[0].memory = memory(7),
    ];
    for harm in harms {
        let mut plan = plan(vec![layout.clone(); 3], &[8; 2], &[16], 2);
        plan.phase = vec![0];
        assert!(Program::compile(&plan, part.clone(), part.clone()).is_ok());
        harm(&mut plan);
        let refused = Program::compile(&plan, part.clone(), part.clone());
        assert!(matches!(refused, Err(CompileError::Plan { .. })), "{refused:?}");
    }
}

#[test]
fn a_plan_of_too_many_pieces_is_refused() {
    let (layout, part) = row(64);
    let mut plan = plan(vec![layout; 3], &[8; 2], &[16], 2);
    plan.phase = vec![0];
    let within = |max| Program::compile_within(&plan, part.clone(), part.clone(), max).map(|_| ());
    assert_eq!(within(5), Ok(()));
    assert_eq!(within(4), Err(CompileError::Pieces { hop: 0, pieces: 5, max_pieces: 4 }));
}

#[test]
fn a_program_keeps_its_plan_and_not_what_the_search_did() {
    let (layout, part) = row(64);
    let bare = Plan { phase: vec![0], ..plan(vec![layout; 2], &[8], &[], 1) };
    let mut searched = bare.clone();
    searched.search.paths = 7;
    searched.alternatives = vec![model::Alternative {
        memories: vec![memory(0)],
        layouts: Vec::new(),
        throughput: 0.0,
        seconds: None,
        bound: None,
    }];
    let program = Program::compile(&searched, part.clone(), part).unwrap();
    assert_eq!(**program.plan(), bare);
}

#[test]
fn a_ring_holds_what_the_plan_says() {
    let (layout, part) = row(100_000);
    let mut plan = plan(vec![layout; 3], &[4000, 12_000], &[24_000], 2);
    plan.phase = vec![0];
    let program = Program::compile(&plan, part.clone(), part.clone()).unwrap();
    assert_eq!(program.buffers().next(), Some((memory(1), 24_000)));
    let lengths = |hop| program.requests(hop).map(|r| r.end - r.start).collect::<Vec<_>>();
    assert_eq!(lengths(0), [4000; 25]);
    assert_eq!(lengths(1), [&[12_000; 7][..], &[8000; 2]].concat());
    plan.hops[0].request_bytes = 5000;
    let program = Program::compile(&plan, part.clone(), part.clone()).unwrap();
    let lengths: Vec<_> = program.requests(0).map(|r| r.end - r.start).collect();
    assert!(lengths.iter().all(|bytes| *bytes >= 4000), "no slivers: {lengths:?}");
    plan.buffers[0].bytes = 0;
    let error = Program::compile(&plan, part.clone(), part).unwrap_err();
    assert_eq!(error, CompileError::Buffer { buffer: 0, bytes: 0, needed_bytes: 1 });
}

/// Images from NHWC to NCHW: 602,112 bytes each, the granule of the hop between the rings.
#[test]
fn slots_and_requests_hold_whole_granules() {
    const IMAGE_BYTES: u64 = 224 * 224 * 3 * 4;
    let whole = |dims: &[u8]| {
        let dims = dims.iter().map(|&d| Component::Whole(d));
        Layout::new(std::iter::once(Component::Fields).chain(dims), 4).unwrap()
    };
    let (nhwc, nchw) = (whole(&[3, 2, 1, 0]), whole(&[2, 1, 3, 0]));
    let space = IndexSpace::of(&[("n", 100), ("h", 224), ("w", 224), ("c", 3)]).unwrap();
    let fields = FieldSpace::packed(&[4]).unwrap();
    let part = |layout: &Layout| {
        let placement = Placement::of_layout(layout, &space, &fields).unwrap();
        placement.select(&Selection::all(&space), &[0]).unwrap()
    };
    let layouts = vec![nhwc.clone(), nhwc.clone(), nchw.clone(), nchw.clone()];
    for (request_bytes, images, pieces) in
        [(1 << 20, 2, 1), (400_000, 1, 2), (100_000, 1, 6), (3 << 20, 3, 1)]
    {
        let mut plan = plan(layouts.clone(), &[request_bytes; 3], &[4 << 20; 2], 3);
        plan.phase = vec![0; 4];
        let program = Program::compile(&plan, part(&nhwc), part(&nchw)).unwrap();
        let slot = images * IMAGE_BYTES;
        for (_, bytes) in program.buffers() {
            assert_eq!(bytes, (4 << 20) / slot * slot);
        }
        for hop in 0..3 {
            let first = program.requests(hop).next().unwrap();
            // Within an image the converting hop ends its requests at planes.
            let fits =
                if hop == 1 { first.end > slot / pieces / 2 } else { first.end == slot / pieces };
            assert!(
                fits && first.end <= slot / pieces,
                "{request_bytes} bytes, hop {hop}: {first:?}"
            );
        }
    }
}
