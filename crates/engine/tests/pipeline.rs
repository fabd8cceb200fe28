//! Random programs over random plans, with completions in random order and bytes moved at the
//! worst legal moment, give what a naive copy gives.

mod support;

use isometry_engine::{CompileError, Program, Transfer};
use layout::{Part, Placement};
use model::{Component, FieldSpace, IndexSpace, Layout, Outcome, Plan, Selection, Span, Time};
use proptest::prelude::*;
use std::sync::Arc;
use support::{Bytes, done, engine, place, plan};

const CAPACITY_BYTES: u64 = 1 << 20;
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
    (shape, sizes, choices).prop_map(|((dims, field_bytes, orders), sizes, choices)| Case {
        dims,
        field_bytes,
        orders,
        request_bytes: sizes.0,
        ring_extra_bytes: sizes.1,
        max_in_flight: sizes.2,
        channels: sizes.3,
        choices,
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

    /// An instance around the box, which starts at `lo(dim)`.
    fn instance(
        &self,
        layout: &Layout,
        lo: impl Fn(&(u64, u64, u64, u64)) -> u64,
    ) -> (Placement, Part, Vec<i64>) {
        let extents: Vec<_> =
            NAMES.iter().zip(&self.dims).map(|(&n, d)| (n, lo(d) + d.0 + 2)).collect();
        let space = IndexSpace::of(&extents).unwrap();
        let placement = Placement::of_layout(layout, &space, &self.fields()).unwrap();
        let starts: Vec<i64> = self.dims.iter().map(|d| lo(d) as i64).collect();
        let span =
            |d: &(u64, u64, u64, u64)| Span::Range { lo: lo(d) as i64, hi: (lo(d) + d.0) as i64 };
        let selection = Selection::new(&space, self.dims.iter().map(span).collect()).unwrap();
        let all: Vec<usize> = (0..self.field_bytes.len()).collect();
        let part = placement.select(&selection, &all).unwrap();
        (placement, part, starts)
    }

    fn plan(&self, buffers: &[u64]) -> Plan {
        let layouts: Vec<_> = self.orders.iter().map(|keys| self.layout(keys)).collect();
        let mut plan = plan(layouts, &self.request_bytes, buffers, self.channels);
        plan.phase = self.dims.iter().map(|d| d.1).collect();
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

    fn indices(&self) -> Vec<Vec<i64>> {
        let mut all = vec![Vec::new()];
        for &(extent, ..) in &self.dims {
            let longer =
                |index: Vec<i64>| (0..extent as i64).map(move |i| [&index[..], &[i]].concat());
            all = all.into_iter().flat_map(longer).collect();
        }
        all
    }
}

fn add(a: &[i64], b: &[i64]) -> Vec<i64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn check(case: &Case) {
    let (from, src, src_starts) = case.instance(&case.layout(&case.orders[0]), |d| d.1);
    let (to, dst, dst_starts) = case.instance(&case.layout(case.orders.last().unwrap()), |d| d.2);
    let program = Arc::new(case.program(&src, &dst));
    let total = program.payload_bytes();
    assert_eq!(total, src.payload_bytes());
    let source: Vec<u8> = (0..from.span().end).map(|i| (i % 251) as u8 + 1).collect();
    let target = vec![0xAA; to.span().end as usize];
    let mut expected = target.clone();
    for index in case.indices() {
        for (field, &bytes) in case.field_bytes.iter().enumerate() {
            let at = from.address(&add(&index, &src_starts), field) as usize;
            let put = to.address(&add(&index, &dst_starts), field) as usize;
            expected[put..put + bytes as usize].copy_from_slice(&source[at..at + bytes as usize]);
        }
    }
    let mut bytes = Bytes { regions: vec![Vec::new(); 12] };
    for (memory, size) in program.buffers() {
        bytes.regions[memory.index as usize] = vec![0; size as usize];
    }
    (bytes.regions[10], bytes.regions[11]) = (source.clone(), target);
    let mut engine = engine(case.channels, case.max_in_flight, CAPACITY_BYTES);
    let transfer = Transfer::new(Arc::clone(&program), place(10, 0), place(11, 0));
    let id = engine.submit(Time(0), transfer).unwrap();
    let (mut out, mut choices, mut last_done) = (Vec::new(), case.choices.iter().cycle(), 0);
    loop {
        while let Some(request) = engine.poll_request() {
            bytes.scribble(&request);
            out.push(request);
        }
        if out.is_empty() {
            break;
        }
        let request = out.swap_remove(choices.next().unwrap().index(out.len()));
        bytes.finish(&request);
        engine.handle_completion(Time(0), done(&request));
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
