//! Rects against the oracle, against what devices allow, and how many there are.

use super::*;
use crate::conformance::{Draw, Shape, nested as copy};
use layout::{FieldCopy, NdCopy};
use std::sync::Arc;

const STRICT: RectRules = RectRules { most_pitch_bytes: usize::MAX, equal_pitches_in_place: true };

fn rects(copy: &NdCopy, bases: (u64, u64), in_place: bool) -> Vec<Rect> {
    by(STRICT, copy, bases, in_place)
}

fn by(rules: RectRules, copy: &NdCopy, bases: (u64, u64), in_place: bool) -> Vec<Rect> {
    Rects::new([copy.clone()].into(), bases, rules, in_place).collect()
}

fn count(copy: &NdCopy) -> usize {
    rects(copy, (0, 0), false).len()
}

/// What devices ask of a rect.
fn assert_allowed(rect: &Rect, in_place: bool) {
    assert!(rect.size.iter().all(|&n| n > 0), "{rect:?}");
    for [row, slice] in [rect.src_pitch, rect.dst_pitch] {
        assert!(row >= rect.size[0] && slice >= row * rect.size[1], "{rect:?}");
        assert_eq!(slice % row, 0, "{rect:?}");
    }
    let alike = rect.src_pitch == rect.dst_pitch;
    assert!(!in_place || rect.is_run() || alike, "{rect:?}");
}

#[test]
fn rects_move_what_the_oracle_moves() {
    for seed in 0..600 {
        let draw = &mut Draw::new(seed);
        let shape = Shape::draw(draw, [1, 4, 16, 300][seed as usize % 4]);
        let (src, dst) = (3, 5);
        let from = draw.bytes((src + shape.src_bytes + 7) as usize);
        let mut expected = draw.bytes((dst + shape.dst_bytes + 7) as usize);
        let mut to = expected.clone();
        layout::oracle::copy(&shape.copy, &from, src as usize, &mut expected, dst as usize);
        for rect in rects(&shape.copy, (src, dst), false) {
            assert_allowed(&rect, false);
            for (read, written) in rect.runs() {
                to[written..][..rect.size[0]].copy_from_slice(&from[read..][..rect.size[0]]);
            }
        }
        assert!(to == expected, "seed {seed}: {:?}", shape.copy);
    }
}

#[test]
fn rects_inside_one_buffer_move_the_same() {
    for seed in 0..300 {
        let draw = &mut Draw::new(seed);
        let shape = Shape::draw(draw, 16);
        let (src, dst) = (1, 1 + shape.src_bytes);
        let mut bytes = draw.bytes((dst + shape.dst_bytes) as usize);
        let (before, mut expected) = (bytes.clone(), bytes.clone());
        layout::oracle::copy(&shape.copy, &before, src as usize, &mut expected, dst as usize);
        for rect in rects(&shape.copy, (src, dst), true) {
            assert_allowed(&rect, true);
            for (read, written) in rect.runs() {
                bytes.copy_within(read..read + rect.size[0], written);
            }
        }
        assert!(bytes == expected, "seed {seed}: {:?}", shape.copy);
    }
}

#[test]
fn what_can_be_one_rect_is_one() {
    let run = copy(1 << 20, &[]);
    let dense = copy(4, &[(8, 512, 512), (16, 32, 32), (8, 4, 4)]);
    let rows = copy(100, &[(50, 1000, 100)]);
    let backwards = copy(8, &[(5, -16, -8)]);
    let box_3d = copy(12, &[(4, 10_000, 240), (20, 100, 12)]);
    let with_ones = copy(12, &[(1, -7, 0), (20, 100, 12), (1, 1 << 60, 1 << 60)]);
    for one in [run, dense, rows, backwards, box_3d, with_ones] {
        assert_eq!(count(&one), 1, "{one:?}");
    }
    let mut fields = copy(4, &[(10, 8, 8)]);
    fields.fields.push(FieldCopy { src_offset: 80, dst_offset: 160, ..fields.fields[0].clone() });
    assert_eq!(count(&fields), 1, "two columns on both sides");
}

#[test]
fn what_no_rect_holds_is_a_loop_of_them() {
    let four_dims = copy(4, &[(3, 8000, 5000), (4, 900, 600), (5, 90, 60), (6, 9, 6)]);
    assert_eq!(count(&four_dims), 12, "of the four loops two are left");
    let odd_slices = copy(4, &[(7, 8001, 400), (10, 80, 40)]);
    assert_eq!(count(&odd_slices), 7, "no slice pitch but a multiple of the row pitch");
    let turned = copy(4, &[(64, 4, 400), (100, 256, 4)]);
    assert_eq!(count(&turned), 64, "each row becomes a column");
    assert_eq!(count(&copy(4, &[(9, 0, 4)])), 9, "the same bytes again");
    assert_eq!(count(&copy(4, &[(9, -4, 4)])), 9, "one side backwards");
    assert_eq!(count(&copy(4, &[(0, 4, 4)])), 0);
}

#[test]
fn pages_that_follow_each_other_are_one_rect() {
    let pages = |src: &[u64], dst: Option<&[u64]>| {
        let mut copy = copy(64, &[(src.len() as u64, 128, 64)]);
        copy.dims[0].src_index = Some(src.into());
        copy.dims[0].dst_index = dst.map(Arc::from);
        count(&copy)
    };
    assert_eq!(pages(&[7, 8, 9, 10], None), 1);
    assert_eq!(pages(&[3, 5, 7], Some(&[10, 11, 12])), 1);
    assert_eq!(pages(&[1, 2, 3, 9, 10, 11], None), 2);
    assert_eq!(pages(&[4], None), 1);
    assert_eq!(pages(&[1, 4, 2, 9], None), 2, "two at a time");
    assert_eq!(pages(&[9, 4, 1], None), 3, "backwards on one side");
}

#[test]
fn copies_that_lie_among_each_other_are_runs() {
    let halves = copy(8, &[(4, 16, 16)]);
    let moved = |by: u64| rects(&halves, (0, by), true);
    assert_eq!(moved(64).len(), 1);
    assert_eq!(moved(8).len(), 4);
    assert!(moved(8).iter().all(Rect::is_run));
    assert_eq!(rects(&copy(8, &[(4, 16, 32)]), (0, 64), true).len(), 4, "pitches differ");
}

#[test]
fn rows_too_far_apart_are_runs() {
    let rows = copy(100, &[(50, 1000, 200)]);
    let within = |most| by(RectRules { most_pitch_bytes: most, ..STRICT }, &rows, (0, 0), false);
    assert_eq!((within(1000).len(), within(999).len()), (1, 50));
    assert!(within(999).iter().all(Rect::is_run));
    // Of two loops the one whose pitch is short enough holds the rows.
    let slices = copy(100, &[(50, 1000, 1000), (4, 200, 200)]);
    let rules = RectRules { most_pitch_bytes: 200, ..STRICT };
    assert_eq!(by(rules, &slices, (0, 0), false).len(), 1);
}

#[test]
fn pitches_of_one_region_differ_where_they_may() {
    let rows = copy(8, &[(4, 16, 32)]);
    let free = RectRules { equal_pitches_in_place: false, ..STRICT };
    assert_eq!((by(free, &rows, (0, 64), true).len(), rects(&rows, (0, 64), true).len()), (1, 4));
    assert_eq!(by(free, &rows, (0, 8), true).len(), 4, "they lie among each other");
}
