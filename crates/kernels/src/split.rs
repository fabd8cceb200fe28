//! One copy as several, for lanes.

use crate::vector::LINE_BYTES;
use layout::{CopyDim, NdCopy, Stride};
use std::ops::Range;
use std::sync::Arc;

/// Lanes take bytes of one run in multiples of this, so that they share no cache line.
const ALIGN_BYTES: u64 = 4096;

/// Pieces of a loop begin where lines of the destination do if they have so many times the turns that takes: others
/// would become too unlike.
const EVEN: u64 = 16;

/// At most `pieces` copies, about equally large, that together are `copy`. No two write the same
/// byte. The loop that is cut has a turn for each piece, or else the most turns; of several such it is one
/// of which a piece has a line of either side, if there is any, then the one whose turns are farthest apart,
/// on the side where they are nearer, and then the outermost. It is cut where the destination is as far into a line as
/// at its start, if it has many turns: what starts on no line takes to slower ways. A single run is cut at multiples of
/// 4 KiB.
/// Fewer come back where there is less to cut.
///
/// # Panics
/// Where `copy` isn't well-formed.
#[must_use]
pub fn split(copy: &NdCopy, pieces: usize) -> Vec<NdCopy> {
    let pieces = pieces.max(1) as u64;
    let fitness = |&k: &usize| {
        let (extent, step) = (copy.dims[k].extent, step_bytes(copy, k));
        let has_lines = extent.saturating_mul(step) / pieces >= LINE_BYTES as u64;
        (extent.min(pieces), has_lines, step)
    };
    match ((0..copy.dims.len()).rev().max_by_key(fitness), &copy.fields[..]) {
        (Some(k), _) => {
            let (extent, unit) = (copy.dims[k].extent, turns_of_line(copy, k));
            let unit = if extent / pieces < EVEN * unit { 1 } else { unit };
            shares(extent, pieces, unit).map(|range| turns_of(copy, k, range)).collect()
        }
        (None, [only]) => {
            shares(only.bytes, pieces, ALIGN_BYTES).map(|range| bytes_of(copy, range)).collect()
        }
        (None, _) => vec![copy.clone()],
    }
}

/// How far the turns of loop `k` are apart, on the side where they are nearer. Few bytes mean that it
/// goes along rows of that side: cut there, each lane gets a part of all rows, goes over the same pages
/// as the others, and may take to a slower way, of short rows that share lines.
fn step_bytes(copy: &NdCopy, k: usize) -> u64 {
    let step = |stride: Stride| stride.src.unsigned_abs().min(stride.dst.unsigned_abs());
    copy.fields.first().map_or(0, |first| step(first.strides[k]))
}

/// After how many turns of loop `k` every field's destination is as far into a line as before, if no table places them.
fn turns_of_line(copy: &NdCopy, k: usize) -> u64 {
    if copy.dims[k].dst_index.is_some() {
        return 1;
    }
    let turns = |step: i64| LINE_BYTES as u64 >> step.trailing_zeros().min(LINE_BYTES.ilog2());
    copy.fields.iter().map(|field| turns(field.strides[k].dst)).max().unwrap_or(1)
}

/// Copies that together are `copy`, one after the other: each is `most` turns of the outermost loop that
/// has several, or else bytes of the one run, and the last what is left.
///
/// # Panics
/// Where `most` is 0, or `copy` isn't well-formed.
pub fn parts(copy: &NdCopy, most: u64) -> impl DoubleEndedIterator<Item = NdCopy> {
    let outermost = (0..copy.dims.len()).find(|&k| copy.dims[k].extent >= 2);
    let total = match (outermost, &copy.fields[..]) {
        (Some(k), _) => copy.dims[k].extent,
        (None, [only]) => only.bytes,
        (None, _) => 1,
    };
    (0..total.div_ceil(most)).map(move |i| {
        let range = i * most..total.min((i + 1).saturating_mul(most));
        match (outermost, &copy.fields[..]) {
            (Some(k), _) => turns_of(copy, k, range),
            (None, [_]) => bytes_of(copy, range),
            (None, _) => copy.clone(),
        }
    })
}

/// `0..total` in at most `pieces` ranges of multiples of `unit`, but for the last.
fn shares(total: u64, pieces: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let each = total.div_ceil(pieces).checked_next_multiple_of(unit).unwrap_or(total).max(1);
    (0..total.div_ceil(each)).map(move |i| i * each..total.min((i + 1).saturating_mul(each)))
}

/// The part of `copy` in which loop `k` runs over `range`.
fn turns_of(copy: &NdCopy, k: usize, range: Range<u64>) -> NdCopy {
    let mut part = copy.clone();
    let table = |table: &Option<Arc<[u64]>>| {
        table.as_ref().map(|t| Arc::from(&t[range.start as usize..range.end as usize]))
    };
    let whole = &copy.dims[k];
    part.dims[k] = CopyDim {
        extent: range.end - range.start,
        src_index: table(&whole.src_index),
        dst_index: table(&whole.dst_index),
    };
    let start = range.start as i64;
    for field in &mut part.fields {
        if whole.src_index.is_none() {
            field.src_offset += start * field.strides[k].src;
        }
        if whole.dst_index.is_none() {
            field.dst_offset += start * field.strides[k].dst;
        }
    }
    part
}

/// The bytes `range` of a copy that is one run.
fn bytes_of(copy: &NdCopy, range: Range<u64>) -> NdCopy {
    let mut part = copy.clone();
    for field in &mut part.fields {
        (field.bytes, field.padding) = (range.end - range.start, 0);
        field.src_offset += range.start as i64;
        field.dst_offset += range.start as i64;
    }
    part
}
