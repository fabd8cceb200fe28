//! What a hop does to the order, worked out by hand.

use super::*;
use crate::Query;
use crate::word::SPLIT;
use model::{Component, Layout, MemoryId, NodeId};

/// A hop between two orders of the fields, `F`, and x, y, z, in `fields` of so many bytes each.
fn step(orders: [&str; 2], extents: [u64; 3], fields: &[u64], x_in: u64) -> Step {
    let layout = |order: &str| {
        let component = |c| match c {
            'F' => Component::Fields,
            dim => Component::Whole(dim as u8 - b'x'),
        };
        Layout::new(order.chars().map(component), 3).unwrap()
    };
    let layouts = orders.map(layout);
    let memory = MemoryId { node: NodeId(0), index: 0 };
    let query = Query::whole((memory, &layouts[0]), (memory, &layouts[1]), &extents, fields);
    let shape = Shape::of(&query).unwrap();
    let mut factors = WHOLE;
    factors[0] = x_in;
    shape.step(&shape.end_word(0, &factors), &shape.end_word(1, &factors), &factors)
}

#[test]
fn a_copy_in_order_is_one_run() {
    let step = step(["Fxyz", "Fxyz"], [10, 6, 7], &[4, 2], 1);
    assert_eq!((step.prefix_bytes, step.run_bytes, step.shuffle_bytes), (2520, 2520, 1));
    assert_eq!((step.start_bytes, step.class), (2520, ShapeClass::Run));
}

#[test]
fn a_hop_keeps_a_prefix_and_moves_the_rest_but_for_a_suffix() {
    let turned = step(["Fxyz", "Fyxz"], [10, 6, 7], &[4, 2], 1);
    assert_eq!((turned.prefix_bytes, turned.shuffle_bytes), (6, 360));
    let rows = step(["Fxyz", "Fxzy"], [10, 6, 7], &[4, 2], 1);
    assert_eq!((rows.prefix_bytes, rows.shuffle_bytes), (60, 2520));
    let parted = step(["Fxyz", "xFyz"], [10, 6, 7], &[4, 2], 1);
    assert_eq!((parted.prefix_bytes, parted.shuffle_bytes), (2, 60));
}

/// Blocks of 3 of 10: the last holds one.
#[test]
fn a_run_is_as_long_as_a_prefix_on_average() {
    let split = step(["Fxyz", "Fxzy"], [10, 6, 7], &[6], 3);
    assert_eq!((split.prefix_bytes, split.run_bytes), (60, 60));
    let mut factors = WHOLE;
    factors[0] = 3;
    let shape = {
        let layout = Layout::row_major(1);
        let memory = MemoryId { node: NodeId(0), index: 0 };
        Shape::of(&Query::whole((memory, &layout), (memory, &layout), &[10], &[6])).unwrap()
    };
    let (mut from, mut to) = (Word::EMPTY, Word::EMPTY);
    [0, SPLIT, 1].into_iter().for_each(|atom| from.push(atom));
    [0, SPLIT].into_iter().for_each(|atom| to.push(atom));
    let cut = shape.step(&from, &to, &factors);
    assert_eq!((cut.prefix_bytes, cut.run_bytes, cut.start_bytes), (18, 15, 6));
}

#[test]
fn short_runs_are_interleaved_within_a_line_and_transposed_beyond() {
    let class = |orders, x, y| step(orders, [x, y, 7], &[4], 1).class;
    let turned = ["Fxyz", "Fyxz"];
    assert_eq!(class(turned, 100, 100), ShapeClass::Transpose);
    // 16 elements are 64 bytes, at either end.
    assert_eq!(class(turned, 16, 100), ShapeClass::Interleave);
    assert_eq!(class(turned, 100, 16), ShapeClass::Interleave);
    assert_eq!(class(turned, 17, 17), ShapeClass::Transpose);
    // Runs of 64 bytes are copied as such.
    assert_eq!(class(["Fxyz", "Fxzy"], 16, 100), ShapeClass::Run);
    assert_eq!(class(["Fxyz", "Fxzy"], 15, 100), ShapeClass::Transpose);
    // Only the fields part, however long the rows.
    assert_eq!(class(["Fxyz", "xFyz"], 100, 100), ShapeClass::Interleave);
    assert_eq!(class(["Fxyz", "yxFz"], 100, 100), ShapeClass::Transpose);
}
