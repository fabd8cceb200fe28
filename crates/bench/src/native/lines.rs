//! What the memory traffic of structures takes without the conversion, where that is no one regular copy: fields differ,
//! or there is padding.
//!
//! Padding is read with its lines, and where it is the destination's no line is written whole: then a
//! processor has to read it first. Structures are one row, and so is each array of a field. All lines of both sides go by
//! in the order of their rows, a block of the destination and its share of the source at a time; nothing is shuffled, and
//! what is written is of no use.

use super::stream::LINE_BYTES;
use super::{Buffers, stream};
use crate::Error;
use crate::peer::{Spans, Strides, View};
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;

/// So much of the destination is a block.
const BLOCK_BYTES: usize = 4 << 10;

/// What is written of a line in part, and a whole one.
const PART: [u8; 8] = [0x5A; 8];

#[repr(align(64))]
struct Block([u8; BLOCK_BYTES]);

static BLOCK: Block = Block([0x5A; BLOCK_BYTES]);

/// The traffic between two buffers.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    spans: Spans,
    /// The rows of each side, in bytes from its start; of the destination's those lines that are whole.
    from: Vec<Range<usize>>,
    to: Vec<Range<usize>>,
    in_part: bool,
    buffers: PhantomData<&'a Buffers>,
}

impl<'a> Lines<'a> {
    /// That of all lines of the rows that `views` have. The destination's are written `in_part`, or whole and past
    /// the caches. None where it doesn't start with a line.
    pub(crate) fn of(
        buffers: &'a Buffers,
        views: &[View],
        in_part: bool,
    ) -> Result<Option<Self>, Error> {
        let spans = buffers.spans()?;
        let from = rows(views, |view| &view.src, spans.src.1);
        let whole = |row: &Range<usize>| {
            row.start.next_multiple_of(LINE_BYTES)..row.end / LINE_BYTES * LINE_BYTES
        };
        let to = rows(views, |view| &view.dst, spans.dst.1);
        let to = to.iter().map(whole).filter(|row| !row.is_empty()).collect();
        let lines = Lines { spans, from, to, in_part, buffers: PhantomData };
        Ok(spans.dst.0.is_multiple_of(LINE_BYTES).then_some(lines))
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> String {
        let part = if self.in_part { ", written in part" } else { "" };
        format!("by lines, of {} rows to {}{part}", self.from.len(), self.to.len())
    }

    /// Runs it once.
    pub(crate) fn run(&self) {
        let (src, dst) = (self.spans.src.0 as *const u8, self.spans.dst.0 as *mut u8);
        let bytes: usize = self.to.iter().map(Range::len).sum();
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let share = |row: &Range<usize>, i: usize| {
            row.start + i * (row.len() / LINE_BYTES) / blocks * LINE_BYTES
        };
        for i in 0..blocks {
            for row in &self.from {
                for line in (share(row, i)..share(row, i + 1)).step_by(LINE_BYTES) {
                    // SAFETY: a byte of the source, which lives as long as this.
                    black_box(unsafe { src.add(line).read() });
                }
            }
            for row in &self.to {
                let (start, end) = (share(row, i), share(row, i + 1));
                // SAFETY: whole lines of the destination, likewise, and no more than a block.
                unsafe { self.write(dst.add(start), end - start) };
            }
        }
        if !self.in_part {
            stream::fence();
        }
    }

    /// # Safety
    /// So many bytes are valid for writes, and whole lines, a block at most.
    unsafe fn write(&self, dst: *mut u8, bytes: usize) {
        if !self.in_part {
            // SAFETY: the caller's contract; a block is as long.
            return unsafe { stream::copy_lines(BLOCK.0.as_ptr(), dst, bytes / LINE_BYTES) };
        }
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: the caller's contract; byte arrays need no alignment.
            unsafe { dst.add(at).cast::<[u8; 8]>().write(PART) };
        }
    }
}

/// The rows that `views` have on a side of so many bytes: the array of each, or all of it where they are structures.
fn rows(views: &[View], side: fn(&View) -> &Strides, bytes: usize) -> Vec<Range<usize>> {
    let array = |view: &View| {
        let (start, strides) = (usize::try_from(side(view).offset).ok()?, &side(view).strides);
        let dense = strides[..] == [view.item_bytes.cast_signed()];
        let row = start..start + (view.extents.first()? * view.item_bytes) as usize;
        (dense && row.end <= bytes).then_some(row)
    };
    let arrays: Option<Vec<_>> = views.iter().map(array).collect();
    arrays.unwrap_or_else(|| std::iter::once(0..bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isometry::Machine;

    /// Fields of 2 and of 8 bytes in structures of 10, 700 of them, and their arrays from 0 and from 1400 on.
    fn fields() -> Vec<View> {
        let side = |offset, stride| Strides { offset, strides: vec![stride] };
        let view = |item_bytes, at, array| View {
            extents: vec![700],
            item_bytes,
            src: side(at, 10),
            dst: side(array, item_bytes.cast_signed()),
        };
        vec![view(2, 0, 0), view(8, 2, 1400)]
    }

    #[test]
    fn every_line_is_written_whole_or_in_part() {
        let machine = Machine::builder().assume(true).open().unwrap();
        for (in_part, bytes) in [(true, PART.len()), (false, LINE_BYTES)] {
            let buffers = Buffers::new(&machine, [7000, 10_000], 0).unwrap();
            let back = fields().into_iter().map(|v| View { src: v.dst, dst: v.src, ..v });
            Lines::of(&buffers, &back.collect::<Vec<_>>(), in_part).unwrap().unwrap().run();
            let is_written = |line: &[u8]| line.iter().take_while(|b| **b == 0x5A).count();
            let right =
                |_: &[u8], dst: &[u8]| dst.chunks_exact(LINE_BYTES).all(|l| is_written(l) == bytes);
            assert!(buffers.check(right).unwrap());
        }
    }

    #[test]
    fn whole_lines_of_each_array_are_written() {
        let machine = Machine::builder().assume(true).open().unwrap();
        let buffers = Buffers::new(&machine, [7000, 7000], 0).unwrap();
        let lines = Lines::of(&buffers, &fields(), false).unwrap().unwrap();
        assert_eq!((lines.from.len(), &lines.from[0]), (1, &(0..7000)));
        assert_eq!(lines.to, [0..1344, 1408..6976]);
        lines.run();
        let right = |_: &[u8], dst: &[u8]| {
            let in_rows = |at: &usize| lines.to.iter().any(|row| row.contains(at));
            (0..dst.len()).all(|at| (dst[at] == 0x5A) == in_rows(&at))
        };
        assert!(buffers.check(right).unwrap());
    }
}
