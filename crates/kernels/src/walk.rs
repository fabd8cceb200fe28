//! The outer loops of a copy.

use crate::plane::{self, Nest};
use layout::{CopyDim, NdCopy};
use std::ops::Range;

/// How much of all fields is moved before the next part: half of a small first-level cache, so
/// that what one field leaves of a line is there for the next.
const PART_BYTES: u64 = 16 << 10;

/// Where an outer loop stands. Frames form a list on the stack, innermost first, so that loops of
/// any number need no allocation.
struct Frame<'a> {
    outer: Option<&'a Frame<'a>>,
    dim: usize,
    src_position: i64,
    dst_position: i64,
}

/// Moves `copy`; no extent is 0.
///
/// # Safety
/// As [`crate::copy`].
pub(crate) unsafe fn walk(copy: &NdCopy, src: *const u8, dst: *mut u8) {
    if let [field] = &copy.fields[..] {
        let (src, dst) =
            (offset(src, field.src_offset), offset(dst.cast_const(), field.dst_offset));
        let nest = Nest { dims: &copy.dims, field, first: 0 };
        // SAFETY: the caller's contract covers the field's bytes.
        unsafe { plane::nest(&nest, whole(&copy.dims, 0), src, dst.cast_mut()) };
        return;
    }
    let walk = Walk { copy, src, dst, inner: inner_loops(copy) };
    // SAFETY: the caller's contract.
    unsafe { walk.outer(0, None) }
}

struct Walk<'a> {
    copy: &'a NdCopy,
    src: *const u8,
    dst: *mut u8,
    /// Loops from here on are done field by field, those before for all fields together; the
    /// loop here in parts.
    inner: usize,
}

impl Walk<'_> {
    /// Runs the loops from `dim` on.
    ///
    /// # Safety
    /// As [`crate::copy`]; `frame` holds the positions of the loops before.
    unsafe fn outer(&self, dim: usize, frame: Option<&Frame>) {
        if dim == self.inner {
            // SAFETY: as here.
            return unsafe { self.parts(frame) };
        }
        let loops = &self.copy.dims[dim];
        for i in 0..loops.extent {
            let (src_position, dst_position) = positions(loops, i);
            let frame = Frame { outer: frame, dim, src_position, dst_position };
            // SAFETY: as here; the positions are those of the loop.
            unsafe { self.outer(dim + 1, Some(&frame)) };
        }
    }

    /// Runs the loop `inner` in parts, each for one field after the other.
    ///
    /// # Safety
    /// As [`Walk::outer`].
    unsafe fn parts(&self, frame: Option<&Frame>) {
        let range = whole(&self.copy.dims, self.inner);
        let each = self.part_turns();
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(each));
            for field in 0..self.copy.fields.len() {
                // SAFETY: as here; the part lies in the loop.
                unsafe { self.field(field, start..end, frame) };
            }
            start = end;
        }
    }

    /// How many turns of the loop `inner` make a part.
    fn part_turns(&self) -> u64 {
        let inside = self.copy.dims.iter().skip(self.inner + 1).map(|d| d.extent);
        let bytes = inside.fold(entry_bytes(self.copy), u64::saturating_mul);
        (PART_BYTES / bytes.max(1)).max(1)
    }

    /// Moves one field for `range` of the loop `inner`.
    ///
    /// # Safety
    /// As [`Walk::outer`].
    unsafe fn field(&self, field: usize, range: Range<u64>, mut frame: Option<&Frame>) {
        let field = &self.copy.fields[field];
        let (mut from, mut to) = (field.src_offset, field.dst_offset);
        while let Some(here) = frame {
            from += here.src_position * field.strides[here.dim].src;
            to += here.dst_position * field.strides[here.dim].dst;
            frame = here.outer;
        }
        let (src, dst) = (offset(self.src, from), offset(self.dst.cast_const(), to).cast_mut());
        let nest = Nest { dims: &self.copy.dims, field, first: self.inner };
        // SAFETY: the positions and the range are those of the copy, whose bytes are valid.
        unsafe { plane::nest(&nest, range, src, dst) };
    }
}

/// The first of the innermost loops that together fit into a part; at least the innermost.
fn inner_loops(copy: &NdCopy) -> usize {
    let mut bytes = entry_bytes(copy);
    for dim in (0..copy.dims.len()).rev() {
        bytes = bytes.saturating_mul(copy.dims[dim].extent);
        if bytes > PART_BYTES {
            return dim;
        }
    }
    0
}

fn entry_bytes(copy: &NdCopy) -> u64 {
    copy.fields.iter().map(|f| f.bytes).sum()
}

/// All turns of loop `dim`; one turn where there is no such loop.
fn whole(dims: &[CopyDim], dim: usize) -> Range<u64> {
    0..dims.get(dim).map_or(1, |d| d.extent)
}

/// What turn `i` of a loop multiplies strides with, on either side.
pub(crate) fn positions(dim: &CopyDim, i: u64) -> (i64, i64) {
    let position = |table: &Option<std::sync::Arc<[u64]>>| {
        table.as_ref().map_or(i, |table| table[i as usize]) as i64
    };
    (position(&dim.src_index), position(&dim.dst_index))
}

/// `by` bytes from `pointer`, which need not be inside an allocation.
pub(crate) fn offset(pointer: *const u8, by: i64) -> *const u8 {
    pointer.wrapping_offset(by as isize)
}
