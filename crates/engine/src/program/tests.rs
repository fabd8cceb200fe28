//! Requests whose copies were made before, against the same made anew.

use super::*;
use crate::support;
use layout::Placement;
use model::{Component, FieldSpace, IndexSpace, Layout, Selection, Span};
use proptest::prelude::*;
use std::collections::HashSet;

/// A box, and a path for it, in numbers from which both are made.
#[derive(Debug, Clone)]
struct Case {
    dims: Vec<Dim>,
    field_bytes: Vec<u64>,
    /// How the components of each layout are ordered, and which are split.
    orders: Vec<Vec<u8>>,
    request_bytes: u64,
    buffer_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Dim {
    extent: u64,
    /// Where the box starts.
    lo: u64,
    block: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let dim = (1..14u64, 0..4u64, 2..5u64);
    let dims = prop::collection::vec(dim, 1..4);
    let orders = prop::collection::vec(prop::collection::vec(any::<u8>(), 8), 2..5);
    let shape = (dims, prop::collection::vec(1..5u64, 1..3), orders, any::<bool>());
    (shape, 1..60u64, 1..600u64).prop_map(|(shape, request_bytes, buffer_bytes)| {
        let (dims, field_bytes, mut orders, is_copied) = shape;
        if is_copied {
            orders[1] = orders[0].clone();
        }
        let dims = dims.into_iter().map(|(extent, lo, block)| Dim { extent, lo, block });
        Case { dims: dims.collect(), field_bytes, orders, request_bytes, buffer_bytes }
    })
}

/// Direct copies of one field that are cut into boxes, many of them ragged.
fn boxed_cases() -> impl Strategy<Value = Case> {
    let dim = (1..90u64, 0..4u64).prop_map(|(extent, lo)| Dim { extent, lo, block: 2 });
    let keys = prop::collection::vec(any::<u8>(), 7);
    let bytes = prop::sample::select(vec![1u64, 3, 4, 8, 64]);
    let shape = (prop::collection::vec(dim, 2..4), bytes, [keys.clone(), keys]);
    (shape, 1000..20_000u64).prop_map(|((mut dims, bytes, orders), request_bytes)| {
        while bytes * dims.iter().map(|d| d.extent).product::<u64>() > 200_000 {
            dims.pop();
        }
        let orders = orders.map(|keys| [keys, vec![0]].concat()).to_vec();
        Case { dims, field_bytes: vec![bytes], orders, request_bytes, buffer_bytes: 1 }
    })
}

impl Case {
    fn layout(&self, keys: &[u8]) -> Layout {
        let mut components = vec![Component::Fields];
        for (dim, Dim { block, .. }) in (0..).zip(&self.dims) {
            if keys[7] >> dim & 1 == 0 {
                components.push(Component::Whole(dim));
            } else {
                components.push(Component::Inner { dim, level: 1, size: *block });
                components.push(Component::Outer(dim));
            }
        }
        let mut keyed: Vec<_> = keys.iter().zip(components).collect();
        keyed.sort_by_key(|(key, _)| **key);
        Layout::new(keyed.into_iter().map(|(_, c)| c), self.dims.len()).unwrap()
    }

    fn part(&self, layout: &Layout) -> Part {
        let names = ["x", "y", "z"];
        let extents: Vec<_> =
            names.iter().zip(&self.dims).map(|(&n, d)| (n, d.lo + d.extent + 1)).collect();
        let space = IndexSpace::of(&extents).unwrap();
        let fields = FieldSpace::packed(&self.field_bytes).unwrap();
        let placement = Placement::of_layout(layout, &space, &fields).unwrap();
        let span = |d: &Dim| Span::Range { lo: d.lo as i64, hi: (d.lo + d.extent) as i64 };
        let spans = self.dims.iter().map(span).collect();
        let all: Vec<usize> = (0..self.field_bytes.len()).collect();
        placement.select(&Selection::new(&space, spans).unwrap(), &all).unwrap()
    }

    fn plan(&self, buffers: &[u64]) -> Plan {
        let layouts: Vec<_> = self.orders.iter().map(|keys| self.layout(keys)).collect();
        let requests = vec![self.request_bytes; layouts.len() - 1];
        let phase = self.dims.iter().map(|d| d.lo).collect();
        Plan { phase, ..support::plan(layouts, &requests, buffers, 1) }
    }

    /// With the buffers of the case, or as large as they must be.
    fn program(&self) -> Program {
        let ends = [&self.orders[0], &self.orders[self.orders.len() - 1]];
        let [src, dst] = ends.map(|keys| self.part(&self.layout(keys)));
        let mut buffers = vec![self.buffer_bytes; self.orders.len() - 2];
        loop {
            match Program::compile(&self.plan(&buffers), src.clone(), dst.clone()) {
                Err(CompileError::Buffer { buffer, needed_bytes, .. }) => {
                    buffers[buffer] = needed_bytes;
                }
                program => return program.unwrap(),
            }
        }
    }
}

/// From where to where each byte goes.
fn moves(chunk: &Chunk) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    for copy in chunk.list.iter() {
        for field in &copy.fields {
            let start = (chunk.src_offset + field.src_offset, chunk.dst_offset + field.dst_offset);
            let mut places = vec![start];
            for (dim, stride) in copy.dims.iter().zip(&field.strides) {
                let turns = |(src, dst)| {
                    (0..dim.extent as i64)
                        .map(move |i| (src + i * stride.src, dst + i * stride.dst))
                };
                places = places.into_iter().flat_map(turns).collect();
            }
            let bytes = 0..field.bytes as i64;
            let run = |(src, dst)| bytes.clone().map(move |i| (src + i, dst + i));
            all.extend(places.into_iter().flat_map(run));
        }
    }
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_kept_of_a_request_serves_those_of_its_shape_only(case in cases()) {
        let program = case.program();
        for hop in 0..program.hops().len() {
            for (ordinal, (range, slots)) in program.walk(hop).enumerate() {
                let kept = program.chunk(hop, ordinal, range.clone(), slots);
                let anew = chunk_of(&program.sides(hop, slots), range.clone());
                prop_assert_eq!(moves(&kept), moves(&anew), "hop {}, bytes {:?}", hop, range);
                let pieces: usize = kept.list.iter().map(|copy| copy.fields.len()).sum();
                prop_assert!(pieces as u64 <= program.most_pieces(hop));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn boxes_move_every_byte_once(case in boxed_cases()) {
        let program = case.program();
        let slots = <(Slot, Slot)>::default();
        let whole = chunk_of(&program.sides(0, slots), 0..program.payload_bytes());
        let mut all = Vec::new();
        for (ordinal, (range, slots)) in program.walk(0).enumerate() {
            prop_assert!(range.end - range.start <= case.request_bytes);
            all.extend(moves(&program.chunk(0, ordinal, range, slots)));
        }
        all.sort_unstable();
        prop_assert_eq!(all, moves(&whole));
    }
}

#[test]
fn a_box_is_one_request() {
    let lengths = |extents: [u64; 2], bytes| {
        let dims = extents.map(|extent| Dim { extent, lo: 0, block: 2 }).to_vec();
        let orders = vec![vec![0, 1, 2, 0, 0, 0, 0, 0], vec![0, 2, 1, 0, 0, 0, 0, 0]];
        let (field_bytes, request_bytes) = (vec![bytes], 1 << 20);
        let case = Case { dims, field_bytes, orders, request_bytes, buffer_bytes: 1 };
        case.program().requests(0).map(|r| r.end - r.start).collect::<Vec<_>>()
    };
    assert_eq!(lengths([8192, 8192], 4), [1 << 20; 256]);
    for (extents, bytes, boxes) in [([8000, 8000], 4, 16 * 16), ([5000, 8000], 16, 10 * 63)] {
        let lengths = lengths(extents, bytes);
        assert!(lengths.len() <= boxes, "{} of {boxes}", lengths.len());
        assert_eq!(lengths[0], 1 << 20);
    }
}

/// How many lists of copies the requests of the first hop have, and how many requests these are.
fn lists(case: &Case) -> (usize, usize) {
    let program = case.program();
    let chunk = |(ordinal, (range, slots))| program.chunk(0, ordinal, range, slots).list;
    let all: Vec<_> = program.walk(0).enumerate().map(chunk).collect();
    let distinct: HashSet<_> = all.iter().map(|list| list.as_ptr()).collect();
    (distinct.len(), all.len())
}

#[test]
fn requests_of_one_shape_share_their_copies() {
    let dim = |extent, lo, block| Dim { extent, lo, block };
    let case = |dims: &[Dim], orders: [&[u8]; 2], request_bytes| Case {
        dims: dims.to_vec(),
        field_bytes: vec![4],
        orders: orders.map(<[u8]>::to_vec).to_vec(),
        request_bytes,
        buffer_bytes: 1,
    };
    // The order of fields, x, y, z where none is split.
    let (rows, turned) = ([0, 1, 2, 3, 0, 0, 0, 0], [0, 2, 1, 3, 0, 0, 0, 0]);
    let cube = [dim(8, 0, 2), dim(6, 0, 2), dim(10, 0, 2)];
    assert_eq!(lists(&case(&cube, [&turned, &rows], 8 * 4)), (1, 60));
    assert_eq!(lists(&case(&cube, [&turned, &rows], 8 * 6 * 4)), (1, 10));
    assert_eq!(lists(&case(&cube, [&turned, &rows], 4 * 4)), (1, 120));
    // Fields, the inside of blocks of x, y, the blocks of x: of the first and the last, which are
    // cut in half, a request holds two rows, 3 a block; of the ten others one, 6 a block.
    let blocked = [0, 1, 3, 2, 0, 0, 0, 1];
    let plane = [dim(4 * 11, 2, 4), dim(6, 0, 2)];
    let turned = [0, 2, 1, 0, 0, 0, 0, 0];
    assert_eq!(lists(&case(&plane, [&turned, &blocked], 4 * 4)), (3, 66));
}
