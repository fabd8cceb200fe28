//! Random programs over random plans, with completions in random order and bytes moved at the
//! worst legal moment, give what a naive copy gives.

mod support;

use isometry_engine::{CompileError, Engine, Program, Transfer};
use layout::{Part, Placement};
use model::{
    ChannelKind, Component, FieldSpace, IndexSpace, Layout, Outcome, Plan, Request, Selection,
    Span, Time, TransferId,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use support::{Bytes, done, engine, place, plan, requests};

const CAPACITY_BYTES: u64 = 1 << 20;
/// A ring may start as far into its alignment unit as the file beside it.
const ALIGN_BYTES: usize = 4096;
const NAMES: [&str; 3] = ["x", "y", "z"];

/// One random case, in numbers from which everything is made.
#[derive(Debug, Clone)]
struct Case {
    /// Extent of the box, where it starts in source and destination, block of the splits (0 for a
    /// whole dimension), for each dimension.
    dims: Vec<(u64, u64, u64, u64)>,
    field_bytes: Vec<u64>,
    /// How the components of each layout are ordered: source, intermediates, destination.
    orders: Vec<Vec<u8>>,
    request_bytes: Vec<u64>,
    ring_extra_bytes: Vec<u64>,
    max_in_flight: u32,
    channels: u16,
    choices: Vec<prop::sample::Index>,
    ends: Ends,
}

/// What is special about the two ends of a case.
#[derive(Debug, Clone)]
struct Ends {
    /// Whether the instances hold the box and nothing else.
    are_whole: bool,
    /// Whether source and destination are files.
    are_files: (bool, bool),
    /// Whether the indices of each dimension are a list, in source and destination.
    are_listed: Vec<(bool, bool)>,
}

fn ends() -> impl Strategy<Value = Ends> {
    let pair = || any::<(bool, bool)>();
    let are_listed = prop_oneof![Just(vec![(false, false); 3]), prop::collection::vec(pair(), 3)];
    (any::<bool>(), pair(), are_listed).prop_map(|(are_whole, are_files, are_listed)| Ends {
        are_whole,
        are_files,
        are_listed,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let dim = (1..9u64, 0..5u64, 0..5u64, prop_oneof![Just(0u64), 2..5u64]);
    let dims = prop::collection::vec(dim, 1..4);
    let order = prop::collection::vec(any::<u8>(), 7);
    let shape = (dims, prop::collection::vec(1..9u64, 1..4), prop::collection::vec(order, 2..6));
    let sizes = (
        prop::collection::vec(1..200u64, 5),
        prop::collection::vec(prop_oneof![Just(0u64), 0..400u64], 4),
        1..5u32,
        1..4u16,
    );
    let choices = prop::collection::vec(any::<prop::sample::Index>(), 64);
    let is_kept = prop::collection::vec(any::<bool>(), 5);
    (shape, sizes, choices, ends(), is_kept).prop_map(|(shape, sizes, choices, ends, is_kept)| {
        let (mut dims, field_bytes, mut orders) = shape;
        if ends.are_whole {
            dims.iter_mut().for_each(|dim| (dim.1, dim.2) = (0, 0));
        }
        for at in (1..orders.len()).filter(|at| is_kept[at - 1]) {
            orders[at] = orders[at - 1].clone();
        }
        Case {
            dims,
            field_bytes,
            orders,
            request_bytes: sizes.0,
            ring_extra_bytes: sizes.1,
            max_in_flight: sizes.2,
            channels: sizes.3,
            choices,
            ends,
        }
    })
}

impl Case {
    /// The components with this case's splits, in the order of `keys`.
    fn layout(&self, keys: &[u8]) -> Layout {
        let mut components = vec![Component::Fields];
        for (dim, &(_, _, _, block)) in self.dims.iter().enumerate() {
            let dim = dim as u8;
            if block == 0 {
                components.push(Component::Whole(dim));
            } else {
                // Layouts of one plan need not be split alike.
                let size = block * (1 + u64::from(keys[6] % 2));
                components.push(Component::Inner { dim, level: 1, size });
                components.push(Component::Outer(dim));
            }
        }
        let mut keyed: Vec<_> = keys.iter().zip(components).collect();
        keyed.sort_by_key(|(key, _)| **key);
        Layout::new(keyed.into_iter().map(|(_, c)| c), self.dims.len()).unwrap()
    }

    fn fields(&self) -> FieldSpace {
        FieldSpace::packed(&self.field_bytes).unwrap()
    }

    /// An instance around the box, which starts at `lo(dim)`, and the indices of the box.
    fn instance(
        &self,
        layout: &Layout,
        lo: impl Fn(&(u64, u64, u64, u64)) -> u64,
        is_listed: impl Fn(&(bool, bool)) -> bool,
    ) -> (Placement, Part, Vec<Vec<i64>>) {
        let around = if self.ends.are_whole { 0 } else { 2 };
        let extents: Vec<_> =
            NAMES.iter().zip(&self.dims).map(|(&n, d)| (n, lo(d) + d.0 + around)).collect();
        let space = IndexSpace::of(&extents).unwrap();
        let placement = Placement::of_layout(layout, &space, &self.fields()).unwrap();
        let axis = |(dim, listed): (&(u64, u64, u64, u64), &(bool, bool))| {
            let (lo, hi) = (lo(dim) as i64, (lo(dim) + dim.0) as i64);
            let mut indices: Vec<i64> = (lo..hi).collect();
            if !is_listed(listed) {
                return (Span::Range { lo, hi }, indices);
            }
            indices.rotate_left(dim.0 as usize / 2);
            (Span::List(indices.clone().into()), indices)
        };
        let axes = self.dims.iter().zip(&self.ends.are_listed).map(axis);
        let (spans, indices): (Vec<_>, Vec<_>) = axes.unzip();
        let all: Vec<usize> = (0..self.field_bytes.len()).collect();
        let selection = Selection::new(&space, spans).unwrap();
        (placement.clone(), placement.select(&selection, &all).unwrap(), indices)
    }

    fn plan(&self, buffers: &[u64]) -> Plan {
        let layouts: Vec<_> = self.orders.iter().map(|keys| self.layout(keys)).collect();
        let mut plan = plan(layouts, &self.request_bytes, buffers, self.channels);
        plan.phase = self.dims.iter().map(|d| d.1).collect();
        let (first, last) = (0, plan.hops.len() - 1);
        if self.ends.are_files.1 {
            plan.hops[last].kind = ChannelKind::DiskWrite;
        }
        if self.ends.are_files.0 {
            plan.hops[first].kind = ChannelKind::DiskRead;
        }
        plan
    }

    /// The program with the smallest rings that it takes, and a little more.
    fn program(&self, src: &Part, dst: &Part) -> Program {
        let mut buffers = vec![1; self.orders.len() - 2];
        loop {
            match Program::compile(&self.plan(&buffers), src.clone(), dst.clone()) {
                Err(CompileError::Buffer { buffer, needed_bytes, bytes }) => {
                    assert!(bytes < needed_bytes);
                    buffers[buffer] = needed_bytes;
                }
                Err(error) => panic!("{error}"),
                Ok(_) => break,
            }
        }
        for (bytes, extra) in buffers.iter_mut().zip(&self.ring_extra_bytes) {
            *bytes += extra;
        }
        Program::compile(&self.plan(&buffers), src.clone(), dst.clone()).unwrap()
    }

    /// All entries of the box, counted from its start.
    fn entries(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for &(extent, ..) in &self.dims {
            let longer =
                |index: Vec<usize>| (0..extent as usize).map(move |i| [&index[..], &[i]].concat());
            all = all.into_iter().flat_map(longer).collect();
        }
        all
    }
}

fn pick(indices: &[Vec<i64>], entry: &[usize]) -> Vec<i64> {
    indices.iter().zip(entry).map(|(list, &i)| list[i]).collect()
}

/// The requests that the engine gives out now, and what they may do to their destinations.
fn begun(engine: &mut Engine, bytes: &mut Bytes) -> Vec<Request> {
    let out = requests(engine);
    out.iter().for_each(|request| bytes.scribble(request));
    out
}

fn end(engine: &mut Engine, bytes: &mut Bytes, request: &Request) {
    bytes.finish(request);
    engine.handle_completion(Time(0), done(request));
}

/// Cancels a transfer after some completions and forgets it, so that the next takes its place.
fn abandon(engine: &mut Engine, bytes: &mut Bytes, id: TransferId, completions: usize) {
    let mut out = VecDeque::from(begun(engine, bytes));
    for _ in 0..completions {
        let Some(request) = out.pop_front() else { break };
        end(engine, bytes, &request);
        out.extend(begun(engine, bytes));
    }
    engine.cancel(Time(0), id);
    out.iter().for_each(|request| end(engine, bytes, request));
    assert_eq!(engine.poll_event().map(|e| e.transfer), Some(id));
    engine.forget(id);
}

fn check(case: &Case) {
    let (from_layout, to_layout) = (&case.orders[0], case.orders.last().unwrap());
    let (from, src, src_indices) = case.instance(&case.layout(from_layout), |d| d.1, |l| l.0);
    let (to, dst, dst_indices) = case.instance(&case.layout(to_layout), |d| d.2, |l| l.1);
    let program = Arc::new(case.program(&src, &dst));
    let total = program.payload_bytes();
    assert_eq!(total, src.payload_bytes());
    let source: Vec<u8> = (0..from.span().end).map(|i| (i % 251) as u8 + 1).collect();
    let target = vec![0xAA; to.span().end as usize];
    let mut expected = target.clone();
    for entry in case.entries() {
        for (field, &bytes) in case.field_bytes.iter().enumerate() {
            let at = from.address(&pick(&src_indices, &entry), field) as usize;
            let put = to.address(&pick(&dst_indices, &entry), field) as usize;
            expected[put..put + bytes as usize].copy_from_slice(&source[at..at + bytes as usize]);
        }
    }
    let mut bytes = Bytes { regions: vec![Vec::new(); 12] };
    for (memory, size) in program.buffers() {
        bytes.regions[memory.index as usize] = vec![0; size as usize + ALIGN_BYTES];
    }
    (bytes.regions[10], bytes.regions[11]) = (source.clone(), target);
    let mut engine = engine(case.channels, case.max_in_flight, CAPACITY_BYTES);
    let transfer = Transfer::new(Arc::clone(&program), place(10, 0), place(11, 0));
    let mut choices = case.choices.iter().cycle();
    let earlier = engine.submit(Time(0), transfer.clone()).unwrap();
    abandon(&mut engine, &mut bytes, earlier, choices.next().unwrap().index(16));
    let id = engine.submit(Time(0), transfer).unwrap();
    let (mut out, mut last_done) = (Vec::new(), 0);
    loop {
        out.extend(begun(&mut engine, &mut bytes));
        if out.is_empty() {
            break;
        }
        let request = out.swap_remove(choices.next().unwrap().index(out.len()));
        end(&mut engine, &mut bytes, &request);
        let (done, all) = engine.progress(id).unwrap();
        assert!(last_done <= done && done <= all);
        last_done = done;
    }
    assert_eq!(engine.poll_event().map(|e| e.outcome), Some(Outcome::Done));
    assert_eq!(engine.progress(id), Some((total, total)));
    assert_eq!(bytes.regions[11], expected);
    assert_eq!(bytes.regions[10], source);
    assert!(engine.is_idle());
    for hop in engine.report(id).unwrap().hops {
        assert_eq!(hop.bytes, total);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_chain_gives_the_bytes_of_a_naive_copy(case in cases()) {
        check(&case);
    }
}

/// Both ends lie in one piece and alike, yet later entries lie lower, or anywhere.
#[test]
fn runs_that_do_not_ascend_are_copied_right() {
    const ENTRIES: i64 = 64;
    let space = IndexSpace::of(&[("x", 64)]).unwrap();
    let fields = FieldSpace::packed(&[4, 8]).unwrap();
    let item = i64::try_from(fields.item_bytes()).unwrap();
    let turned: Vec<i64> = (0..ENTRIES).rev().collect();
    let all = Selection::all(&space);
    let listed = Selection::new(&space, vec![Span::List(turned.into())]).unwrap();
    for (stride, first, selection) in [(-item, (ENTRIES - 1) * item, all), (item, 0, listed)] {
        let placement = Placement::of_strides(&space, &fields, &[stride]).unwrap();
        let part = placement.select(&selection, &[0, 1]).unwrap();
        let mut plan = plan(vec![Layout::row_major(1); 2], &[17], &[], 1);
        plan.phase = vec![0];
        let program = Arc::new(Program::compile(&plan, part.clone(), part).unwrap());
        let len = usize::try_from(ENTRIES * item).unwrap();
        let mut bytes = Bytes { regions: vec![(0..len).map(|i| i as u8).collect(), vec![0; len]] };
        let base = u64::try_from(first).unwrap();
        let mut engine = engine(1, 4, 0);
        engine.submit(Time(0), Transfer::new(program, place(0, base), place(1, base))).unwrap();
        while let Some(request) = engine.poll_request() {
            bytes.finish(&request);
            engine.handle_completion(Time(0), done(&request));
        }
        assert_eq!(bytes.regions[0], bytes.regions[1]);
    }
}
