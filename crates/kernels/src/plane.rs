//! One field: its loops, and the innermost two as a plane that is moved in blocks.

use crate::element::{Line, Plane, move_line, move_plane};
use crate::walk::{offset, positions};
use layout::{CopyDim, FieldCopy, Stride};
use std::ops::Range;

/// The loops of one field from `first` on.
pub(crate) struct Nest<'a> {
    pub(crate) dims: &'a [CopyDim],
    pub(crate) field: &'a FieldCopy,
    pub(crate) first: usize,
}

/// Moves `range` of the loop `nest.first`, with all of the loops inside it.
///
/// # Safety
/// As [`crate::copy`], with `src` and `dst` at position 0 of these loops.
pub(crate) unsafe fn nest(nest: &Nest, range: Range<u64>, src: *const u8, dst: *mut u8) {
    let across = across(nest);
    let along = along(nest);
    let run = Run { nest, range, across, along };
    // SAFETY: the caller's contract.
    unsafe { run.loops(nest.first, src, dst) }
}

fn has_table(dim: &CopyDim) -> bool {
    dim.src_index.is_some() || dim.dst_index.is_some()
}

/// The innermost loop, if it has no table: destinations are written along it.
fn along(nest: &Nest) -> Option<usize> {
    let last = nest.dims.len().checked_sub(1).filter(|&last| last >= nest.first)?;
    (!has_table(&nest.dims[last])).then_some(last)
}

/// The loop in which the source is fastest, if that isn't the innermost.
fn across(nest: &Nest) -> Option<usize> {
    let along = along(nest)?;
    let stride = |k: &usize| nest.field.strides[*k].src.unsigned_abs();
    let fastest = (nest.first..along).filter(|&k| !has_table(&nest.dims[k])).min_by_key(stride)?;
    (stride(&fastest) < stride(&along)).then_some(fastest)
}

struct Run<'a> {
    nest: &'a Nest<'a>,
    range: Range<u64>,
    across: Option<usize>,
    along: Option<usize>,
}

impl Run<'_> {
    /// Runs the loops from `dim` on, but for the two of the plane.
    ///
    /// # Safety
    /// As [`nest`], with `src` and `dst` at the positions of the loops before `dim`.
    unsafe fn loops(&self, dim: usize, src: *const u8, dst: *mut u8) {
        if Some(dim) == self.across {
            // SAFETY: the plane runs this loop.
            return unsafe { self.loops(dim + 1, src, dst) };
        }
        if dim >= self.nest.dims.len() || Some(dim) == self.along {
            // SAFETY: the positions of all other loops are in `src` and `dst`.
            return unsafe { self.plane(src, dst) };
        }
        let stride = self.nest.field.strides[dim];
        for i in self.turns(dim) {
            let (from, to) = positions(&self.nest.dims[dim], i);
            let src = offset(src, from * stride.src);
            let dst = offset(dst, to * stride.dst).cast_mut();
            // SAFETY: these are the positions of turn `i`.
            unsafe { self.loops(dim + 1, src, dst) };
        }
    }

    /// The turns of loop `dim`.
    fn turns(&self, dim: usize) -> Range<u64> {
        if dim == self.nest.first { self.range.clone() } else { 0..self.nest.dims[dim].extent }
    }

    /// Moves the one or two innermost loops, or one element.
    ///
    /// # Safety
    /// As [`Run::loops`].
    unsafe fn plane(&self, src: *const u8, dst: *mut u8) {
        let bytes = self.nest.field.bytes as usize;
        let Some(along) = self.along else {
            // SAFETY: one element at the positions of all loops.
            return unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
        };
        let (src, dst, line) = self.line(along, src, dst);
        let Some(across) = self.across else {
            // SAFETY: the line is the innermost loop.
            return unsafe { move_line(bytes, line, src, dst) };
        };
        let (src, dst, column) = self.line(across, src, dst);
        let plane = Plane { along: line, across: column };
        // SAFETY: the plane is the two loops.
        unsafe { move_plane(bytes, plane, src, dst) }
    }

    /// The turns of loop `dim` as a line, and where it starts.
    fn line(&self, dim: usize, src: *const u8, dst: *mut u8) -> (*const u8, *mut u8, Line) {
        let (turns, stride) = (self.turns(dim), self.nest.field.strides[dim]);
        let start = turns.start as i64;
        let src = offset(src, start * stride.src);
        let dst = offset(dst, start * stride.dst).cast_mut();
        (src, dst, Line { count: (turns.end - turns.start) as usize, stride: narrow(stride) })
    }
}

fn narrow(stride: Stride) -> (isize, isize) {
    (stride.src as isize, stride.dst as isize)
}
