//! Parts against what implementations take, and how many there are.

use super::*;
use channel::accelerator::{RectRules, Rects};
use channel::conformance::{Draw, Shape};

/// A rect whose pitches are the same on both sides.
fn rect(at: [usize; 2], size: [usize; 3], pitch: [usize; 2]) -> Rect {
    Rect { src: at[0], dst: at[1], size, src_pitch: pitch, dst_pitch: pitch }
}

/// Whether NVIDIA's takes a side of `size` in a buffer so long. This is the rule that explains which of 6,000
/// random rects, and of 46 others, it took and which it refused.
fn nvidia_takes(
    Side { origin: [x, y, z], pitch: [row, slice] }: Side,
    size: [usize; 3],
    len: usize,
) -> bool {
    let [bytes, rows, slices] = size;
    let (given, slice) = (slice > 0, slice.max(row * rows));
    let end = x + (y + rows - 1) * row + (z + slices - 1) * slice + bytes;
    let whole = (y + rows) * row <= len && (!given || (z + slices) * slice <= len);
    let is_counted = |n: usize| u32::try_from(n).is_ok();
    let are_counted = is_counted(y) && is_counted(z) && is_counted(slice / row);
    row >= bytes && slice % row == 0 && end <= len && whole && are_counted
}

/// Whether two regions of one buffer overlap by the algorithm that OpenCL 1.2 has in an appendix: their
/// boxes meet, or one of them wraps into the other's and they do if all is counted whole.
fn overlap_by_boxes(sides: [Side; 2], size: [usize; 3]) -> bool {
    let [bytes, rows, slices] = size;
    let [row, slice] = sides[0].pitch;
    let slice = slice.max(row * rows);
    let [src, dst] = sides.map(|side| side.origin);
    let meet = |a: usize, b: usize, len: usize| a < b + len && b < a + len;
    let wraps = |axis: usize, count: usize| {
        let beyond = |at: usize| (at + size[axis]).saturating_sub(count);
        beyond(src[axis]) > dst[axis] || beyond(dst[axis]) > src[axis]
    };
    let start = |[x, y, z]: [usize; 3]| x + y * row + z * slice;
    let whole = slices * slice + rows * row + bytes;
    (0..3).all(|axis| meet(src[axis], dst[axis], size[axis]))
        || (wraps(0, row) || slices > 1 && wraps(1, slice / row))
            && meet(start(src), start(dst), whole)
}

fn assert_taken(rect: &Rect, bounds: Bounds) {
    let [src, dst] = sides(rect);
    for ((side, at), len) in [(src, rect.src), (dst, rect.dst)].into_iter().zip(bounds.lens) {
        let [x, y, z] = side.origin;
        assert_eq!(x + y * side.pitch[0] + z * side.pitch[1], at);
        assert!(rect.is_run() || nvidia_takes(side, rect.size, len), "{rect:?} within {bounds:?}");
    }
    let overlap = bounds.in_place && !rect.is_run() && overlap_by_boxes([src, dst], rect.size);
    assert!(!overlap, "{rect:?}");
}

/// Where each run of `rect` is read and written, and how long it is.
fn runs(rect: Rect) -> Vec<[usize; 3]> {
    let places = (0..rect.size[2]).flat_map(|z| (0..rect.size[1]).map(move |y| (y, z)));
    let way = |(y, z): (usize, usize), [row, slice]: [usize; 2]| y * row + z * slice;
    let run =
        |at| [rect.src + way(at, rect.src_pitch), rect.dst + way(at, rect.dst_pitch), rect.size[0]];
    places.map(run).collect()
}

/// Checks the parts of `rect`, and returns how many they are.
fn checked(rect: Rect, bounds: Bounds) -> usize {
    let parts: Vec<_> = parts(rect, bounds).collect();
    parts.iter().for_each(|part| assert_taken(part, bounds));
    assert!(parts.iter().copied().flat_map(runs).eq(runs(rect)), "{parts:?} of {rect:?}");
    parts.len()
}

#[test]
fn parts_are_taken_and_move_the_same() {
    let rules = RectRules { most_pitch_bytes: usize::MAX, equal_pitches_in_place: true };
    let mut cut = 0;
    for seed in 0..600 {
        let draw = &mut Draw::new(seed);
        let shape = Shape::draw(draw, [1, 4, 16, 300][seed as usize % 4]);
        // Nothing lies in front or behind, so that a buffer often ends before its last row's pitch does.
        let lens = [shape.src_bytes, shape.dst_bytes].map(|len| len as usize);
        for rect in Rects::new([shape.copy].into(), (0, 0), rules, false) {
            let parts = checked(rect, Bounds { lens, in_place: false });
            assert!(parts <= 3, "{parts} parts of {rect:?} within {lens:?}");
            cut += usize::from(parts > 1);
        }
    }
    assert!(cut > 100, "{cut} rects are cut");
}

#[test]
fn parts_inside_one_buffer_are_taken_and_move_the_same() {
    let mut cut = 0;
    for seed in 0..3000 {
        let draw = &mut Draw::new(seed);
        let mut below = |limit| draw.below(limit) as usize;
        let size = [1 + below(9), 1 + below(40), if below(2) == 0 { 1 } else { 1 + below(9) }];
        let row = size[0] + below(9);
        let slice = row * (size[1] + if size[2] == 1 { 0 } else { below(4) });
        let whole = (size[2] - 1) * slice + (size[1] - 1) * row + size[0];
        let first = below(3) * below(100);
        let second = first + whole + below(3) * below(100);
        let len = second + whole + below(2) * below(100);
        let at = if below(2) == 0 { [first, second] } else { [second, first] };
        let rect = rect(at, size, [row, slice]);
        let parts = checked(rect, Bounds { lens: [len; 2], in_place: true });
        assert!(parts <= 8, "{parts} parts of {rect:?} within {len}");
        cut += usize::from(parts > 1);
    }
    assert!((500..2500).contains(&cut), "{cut} rects are cut");
}

#[test]
fn a_last_row_or_slice_that_a_buffer_ends_within_goes_alone() {
    let parts = |rect, lens| parts(rect, Bounds { lens, in_place: false }).collect::<Vec<_>>();
    let sizes = |rect, lens| parts(rect, lens).iter().map(|part| part.size).collect::<Vec<_>>();
    // From the last multiple of the pitch on, five rows end at 1800.
    let rows = rect([350, 0], [100, 5, 1], [300, 1500]);
    assert_eq!(parts(rows, [1800, 1500]), [rows]);
    assert_eq!(sizes(rows, [1799, 1500]), [[100, 4, 1], [100, 1, 1]]);
    assert_eq!(sizes(rows, [1800, 1499]), [[100, 4, 1], [100, 1, 1]], "of the destination");
    assert_eq!(sizes(rows, [HOST; 2]).len(), 1, "memory of the host has no end");
    // Four slices end at 4500, the rows of the last at 4200, and its bytes at 4050.
    let slices = rect([0, 950], [100, 2, 4], [300, 900]);
    let (most, last) = ([100, 2, 3], [100, 2, 1]);
    assert_eq!(parts(slices, [3600, 4500]), [slices]);
    assert_eq!(sizes(slices, [3600, 4499]), [most, last]);
    assert_eq!(sizes(slices, [3600, 4200]), [most, last]);
    assert_eq!(sizes(slices, [3600, 4199]), [most, [100, 1, 1], [100, 1, 1]]);
    assert_eq!(sizes(rect([0, 0], [100, 1, 1], [100, 100]), [100, 100]).len(), 1);
}

#[test]
fn what_is_behind_more_rows_than_32_bits_count_goes_row_by_row() {
    const FAR: usize = u32::MAX as usize;
    let bounds = Bounds { lens: [HOST - 1; 2], in_place: false };
    let rows = |at| rect([0, at], [1, 5, 1], [2, 10]);
    assert_eq!(checked(rows(2 * FAR), bounds), 1);
    assert_eq!(checked(rows(2 * FAR + 2), bounds), 5);
    let slices = |at| rect([at, 0], [1, 2, 3], [2, 4]);
    assert_eq!(checked(slices(4 * FAR), bounds), 1);
    assert_eq!(checked(slices(4 * FAR + 4), bounds), 6);
    let long = |slice| rect([0, 0], [1, 2, 3], [2, slice]);
    assert_eq!(checked(long(2 * FAR), bounds), 1);
    let host = Bounds { lens: [HOST - 1, HOST], in_place: false };
    assert_eq!(parts(rows(2 * FAR + 2), host).count(), 1, "it starts at an address");
    // Before all slices but the first there are as many rows.
    assert_eq!(checked(long(2 * FAR + 2), bounds), 1 + 2 + 2);
}

#[test]
fn rows_that_wrap_beside_each_other_are_halved() {
    let parts = |dst, in_place| {
        let rows = rect([0, dst], [40, 10, 1], [100, 1000]);
        parts(rows, Bounds { lens: [4000; 2], in_place })
            .map(|part| part.size[1])
            .collect::<Vec<_>>()
    };
    assert_eq!(parts(1080, true), [5, 5]);
    assert_eq!(parts(1080, false), [10], "other buffers");
    assert_eq!(parts(1060, true), [10], "they wrap not");
    assert_eq!([parts(1980, true), parts(2080, true)], [vec![5, 5], vec![10]], "far apart");
}
