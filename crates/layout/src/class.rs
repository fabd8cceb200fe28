//! What a list of copies looks like to the hardware, and which bytes it touches.

use model::{CopyDim, NdCopy, ShapeClass};
use std::ops::Range;
use std::sync::Arc;

/// Elements of this size and above are runs, in whatever order they come; a loop over less than
/// this and no further is a structure, as fields are.
const RUN_BYTES: u64 = 64;

/// The class of the copies that move the most bytes; `Run` for no copy at all. A copy is a
///
/// - `Gather` if it has an index table;
/// - `Run` if its elements have 64 bytes or more, or if it has no loop;
/// - `Interleave` if the loop with the smallest stride is the same on both sides, or on one of
///   them walks at most 64 bytes: the three channels of a pixel part like three fields;
/// - `Transpose` otherwise.
#[must_use]
pub fn shape_class(copies: &[NdCopy]) -> ShapeClass {
    let mut bytes = [0u64; 4];
    for copy in copies {
        let bytes = &mut bytes[class_of(copy) as usize];
        *bytes = bytes.saturating_add(copy.payload_bytes());
    }
    let classes =
        [ShapeClass::Run, ShapeClass::Interleave, ShapeClass::Transpose, ShapeClass::Gather];
    classes.into_iter().rev().max_by_key(|&c| bytes[c as usize]).unwrap_or(ShapeClass::Run)
}

fn class_of(copy: &NdCopy) -> ShapeClass {
    let has_table = |d: &CopyDim| d.src_index.is_some() || d.dst_index.is_some();
    let strides = &copy.fields[0].strides;
    let fastest = |stride: &dyn Fn(usize) -> i64| {
        (0..strides.len()).rev().min_by_key(|&k| stride(k).unsigned_abs())
    };
    if copy.dims.iter().any(has_table) {
        ShapeClass::Gather
    } else if copy.dims.is_empty() || copy.fields.iter().all(|f| f.bytes >= RUN_BYTES) {
        ShapeClass::Run
    } else {
        let ends = [fastest(&|k| strides[k].src), fastest(&|k| strides[k].dst)];
        let is_narrow =
            |k: usize| copy.dims[k].extent.saturating_mul(copy.fields[0].bytes) <= RUN_BYTES;
        match ends[0] == ends[1] || ends.into_iter().flatten().any(is_narrow) {
            true => ShapeClass::Interleave,
            false => ShapeClass::Transpose,
        }
    }
}

/// The smallest ranges that hold every byte which `copy` reads, and may write, relative to the bases
/// of source and destination. For every channel's check of bounds: bytes past 63 bits are held at
/// the ends.
#[must_use]
pub fn touched(copy: &NdCopy) -> (Range<i64>, Range<i64>) {
    let src = copy.fields.iter().map(|f| {
        let turn = |k: usize| (f.strides[k].src, bounds(&copy.dims[k], true));
        field_touches((f.src_offset, f.bytes.into()), f.strides.len(), turn)
    });
    let dst = copy.fields.iter().map(|f| {
        let turn = |k: usize| (f.strides[k].dst, bounds(&copy.dims[k], false));
        let bytes = i128::from(f.bytes) + i128::from(f.padding);
        field_touches((f.dst_offset, bytes), f.strides.len(), turn)
    });
    (hull(src), hull(dst))
}

/// Whether a range of [`touched`] lies in memory of `len_bytes`, if offset 0 is `base` bytes behind its start.
#[must_use]
pub fn lies_in(touched: &Range<i64>, base: u64, len_bytes: u64) -> bool {
    let at = |end: i64| i128::from(end) + i128::from(base);
    // A range holds its ends within 63 bits; with a base of more they would seem to fit.
    i64::try_from(base).is_ok()
        && at(touched.start) >= 0
        && at(touched.end) <= i128::from(len_bytes)
}

fn hull(ranges: impl Iterator<Item = Range<i64>>) -> Range<i64> {
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// The least and greatest position along a dimension, on the source's side or the other.
fn bounds(dim: &CopyDim, of_src: bool) -> (u64, u64) {
    let index: &Option<Arc<[u64]>> = if of_src { &dim.src_index } else { &dim.dst_index };
    match index {
        // Once over it: a long table takes as long to read as what it names.
        Some(table) => {
            let (least, most) = table
                .iter()
                .fold((u64::MAX, 0), |(least, most), &at| (least.min(at), most.max(at)));
            (least.min(most), most)
        }
        None => (0, dim.extent.saturating_sub(1)),
    }
}

/// Where elements of so many bytes lie, the first of them at an offset, with so many `loops`.
fn field_touches(
    (offset, bytes): (i64, i128),
    loops: usize,
    loop_of: impl Fn(usize) -> (i64, (u64, u64)),
) -> Range<i64> {
    let start = (i128::from(offset), i128::from(offset) + bytes);
    let ends = (0..loops).try_fold(start, |(lo, hi), k| {
        let (stride, (first, last)) = loop_of(k);
        let ends = [first, last].map(|p| i128::from(stride) * i128::from(p));
        Some((lo.checked_add(ends[0].min(ends[1]))?, hi.checked_add(ends[0].max(ends[1]))?))
    });
    // Past 127 bits, nothing is known but that it is too far.
    let (lo, hi) = ends.unwrap_or((i128::MIN, i128::MAX));
    let held = |v: i128| v.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    held(lo)..held(hi)
}
