//! Rects as every implementation of OpenCL takes them.
//!
//! The specification asks of a region that it ends within its buffer. Two implementations ask for more, and a
//! rect that either of them would refuse is cut for all, which is rarely needed:
//!
//! - NVIDIA's counts rows, and slices, whole: from a multiple of the pitch to where the next one would start.
//!   Where that is behind the end of the buffer the last one becomes a rect of its own. It counts both in 32 bits,
//!   and writes elsewhere where they are more: what starts so far behind rows so short goes row by row.
//! - PoCL tells whether two regions of one buffer overlap by the algorithm of OpenCL 1.2. That takes rows which lie
//!   on both sides of a multiple of the pitch for longer than they are, and such rects are halved until they are
//!   as far apart as it asks.

use crate::cl::Buffer;
use channel::accelerator::{Ends, Rect};

/// The length of memory of the host, of which OpenCL knows no end.
const HOST: usize = usize::MAX;

/// Where the sides of a rect may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// How long the buffers of source and destination are, or [`HOST`].
    lens: [usize; 2],
    in_place: bool,
}

impl Bounds {
    pub(crate) fn of(ends: Ends<'_, Buffer>) -> Self {
        let (lens, in_place) = match ends {
            Ends::Write(_, to) => ([HOST, to.len_bytes()], false),
            Ends::Read(from, _) => ([from.len_bytes(), HOST], false),
            Ends::Copy(from, to) => ([from.len_bytes(), to.len_bytes()], std::ptr::eq(from, to)),
        };
        Bounds { lens, in_place }
    }
}

/// A side of a rect as OpenCL is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    /// The first byte, in bytes of a row, rows of a slice, slices.
    pub(crate) origin: [usize; 3],
    /// From row to row, and from slice to slice: 0 where there is but one.
    pub(crate) pitch: [usize; 2],
}

/// Source and destination of `rect`.
pub(crate) fn sides(rect: &Rect) -> [Side; 2] {
    [(rect.src, rect.src_pitch), (rect.dst, rect.dst_pitch)].map(|(at, [row, slice])| {
        if rect.size[2] == 1 {
            return Side { origin: [at % row, at / row, 0], pitch: [row, 0] };
        }
        let in_slice = at % slice;
        Side { origin: [in_slice % row, in_slice / row, at / slice], pitch: [row, slice] }
    })
}

/// The same bytes as `rect`, by rects that are taken: mostly by itself, and seldom by more than two.
pub(crate) fn parts(rect: Rect, bounds: Bounds) -> impl Iterator<Item = Rect> {
    let (mut next, mut rest) = (Some(rect), Vec::new());
    std::iter::from_fn(move || {
        let mut rect = next.take().or_else(|| rest.pop())?;
        while let Some(count) = first_part(&rect, bounds) {
            let (first, behind) = cut(rect, count);
            rest.push(behind);
            rect = first;
        }
        Some(rect)
    })
}

/// The dimension of `rect` that is cut: its slices, or the rows of its only one.
fn outer(rect: &Rect) -> usize {
    if rect.size[2] > 1 { 2 } else { 1 }
}

/// How many rows or slices of `rect` are to be asked for without the rest, where it isn't taken as it is.
fn first_part(rect: &Rect, bounds: Bounds) -> Option<usize> {
    let (outer, sides) = (outer(rect), sides(rect));
    let count = rect.size[outer];
    let is_long =
        |(side, len): (Side, usize)| (side.origin[outer] + count) * side.pitch[outer - 1] > len;
    if rect.is_run() {
        None
    } else if sides.into_iter().zip(bounds.lens).any(is_long) {
        Some(count - 1)
    } else if sides.into_iter().zip(bounds.lens).any(is_far) {
        Some(count / 2)
    } else {
        (bounds.in_place && seems_to_overlap(rect, sides)).then_some(count / 2)
    }
}

/// Whether rows of a slice, or rows or slices in front of a side that is a buffer, are more than 32 bits count. In
/// memory of the host a side starts at an address.
fn is_far((Side { origin: [_, y, z], pitch: [row, slice] }, len): (Side, usize)) -> bool {
    let in_front = if len == HOST { 0 } else { y.max(z) };
    u32::try_from(in_front.max(slice / row)).is_err()
}

/// Whether the sides of `rect`, which are of one buffer and don't overlap, may be taken for overlapping.
fn seems_to_overlap(rect: &Rect, sides: [Side; 2]) -> bool {
    let [bytes, rows, slices] = rect.size;
    let wraps = |Side { origin: [x, y, _], pitch: [row, slice] }: Side| {
        x + bytes > row || slices > 1 && y + rows > slice / row
    };
    // Both have these pitches.
    let [row, slice] = rect.src_pitch;
    let apart = if slices > 1 { slices * slice } else { rows * row } + rows * row + bytes;
    sides.into_iter().any(wraps) && rect.src.abs_diff(rect.dst) < apart
}

/// The first `count` rows or slices of `rect`, and those behind them.
fn cut(rect: Rect, count: usize) -> (Rect, Rect) {
    let (outer, mut first, mut behind) = (outer(&rect), rect, rect);
    first.size[outer] = count;
    behind.size[outer] -= count;
    behind.src += count * rect.src_pitch[outer - 1];
    behind.dst += count * rect.dst_pitch[outer - 1];
    (first, behind)
}

#[cfg(test)]
mod tests;
