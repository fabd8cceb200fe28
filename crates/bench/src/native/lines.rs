//! What the memory traffic of structures with padding takes without the conversion.
//!
//! Padding is read with its lines, and where it is the destination's no line is written whole: then a
//! processor has to read it first. All lines of both sides go by in their order, a block of the
//! destination and its share of the source at a time; nothing is shuffled, and what is written is of no
//! use.

use super::stream::LINE_BYTES;
use super::{Buffers, stream};
use crate::Error;
use crate::peer::Spans;
use std::hint::black_box;
use std::marker::PhantomData;

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
    in_part: bool,
    buffers: PhantomData<&'a Buffers>,
}

impl<'a> Lines<'a> {
    /// That of all whole lines of the buffers. The destination's are written `in_part`, or whole and past
    /// the caches. None where it doesn't start with a line.
    pub(crate) fn of(buffers: &'a Buffers, in_part: bool) -> Result<Option<Self>, Error> {
        let spans = buffers.spans()?;
        let lines = Lines { spans, in_part, buffers: PhantomData };
        Ok(spans.dst.0.is_multiple_of(LINE_BYTES).then_some(lines))
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> &'static str {
        if self.in_part { "by lines, written in part" } else { "by lines" }
    }

    /// Runs it once.
    pub(crate) fn run(&self) {
        let (src, dst) = (self.spans.src.0 as *const u8, self.spans.dst.0 as *mut u8);
        let [from, to] = [self.spans.src.1, self.spans.dst.1].map(|n| n / LINE_BYTES * LINE_BYTES);
        let blocks = to.div_ceil(BLOCK_BYTES);
        for (i, at) in (0..to).step_by(BLOCK_BYTES).enumerate() {
            let share = |i: usize| i * from / blocks / LINE_BYTES * LINE_BYTES;
            for line in (share(i)..share(i + 1)).step_by(LINE_BYTES) {
                // SAFETY: a line of the source, which lives as long as this.
                black_box(unsafe { src.add(line).read() });
            }
            let bytes = BLOCK_BYTES.min(to - at);
            // SAFETY: whole lines of the destination, likewise.
            unsafe { self.write(dst.add(at), bytes) };
        }
        if !self.in_part {
            stream::fence();
        }
    }

    /// # Safety
    /// So many bytes are valid for writes, and whole lines.
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

#[cfg(test)]
mod tests {
    use super::*;
    use isometry::Machine;

    #[test]
    fn every_line_is_written_whole_or_in_part() {
        let machine = Machine::builder().assume(true).open().unwrap();
        for (in_part, bytes) in [(true, PART.len()), (false, LINE_BYTES)] {
            let buffers = Buffers::new(&machine, [3000, 10_000], 0).unwrap();
            Lines::of(&buffers, in_part).unwrap().unwrap().run();
            let is_written = |line: &[u8]| line.iter().take_while(|b| **b == 0x5A).count();
            let right =
                |_: &[u8], dst: &[u8]| dst.chunks_exact(LINE_BYTES).all(|l| is_written(l) == bytes);
            assert!(buffers.check(right).unwrap());
        }
    }
}
