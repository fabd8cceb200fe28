//! What a copy's memory traffic takes without the copy: about what bounds whoever moves it by pieces.
//!
//! A transpose of more than the caches hold is cut into boxes, so that a line that one element of
//! is needed is still there for the next. Of each box both sides have pieces, far apart where the
//! other side goes on; or one side has a run that is part of a second-level cache. A pattern reads each
//! line of these pieces once and writes each line once, box after box, and shuffles nothing: what it
//! writes is of no use. It waits for what it reads, or asks for a box ahead between the stores of one:
//! the next, or one far ahead, for the second-level cache only. The best of them is no proof: who reads
//! between the stores, row by row, may be faster, as ours is with most transposes and images by vectors of
//! half a line. Lines that go along few rows of one side, inside a part of the other, were tried as well: of
//! 42 transposes and images they were the fastest with none on a Zen 3.

use super::moves::is_inside;
use super::stream::LINE_BYTES;
use super::{Buffers, stream};
use crate::Error;
use crate::peer::{Spans, View};
use layout::{CopyDim, FieldCopy, NdCopy, Stride};
use std::collections::VecDeque;
use std::hint::black_box;
use std::marker::PhantomData;

/// A run that a second-level cache holds while the next is asked for.
const RUN_BYTES: usize = 128 << 10;

/// How long pieces are, of the source and of the destination, if that much of the copy is in one.
const PIECES_BYTES: [(usize, usize); 11] = [
    (64, 64),
    (64, 256),
    (64, 512),
    (256, 256),
    (512, 512),
    (1024, 1024),
    (4096, 4096),
    (RUN_BYTES, 64),
    (RUN_BYTES, 256),
    (64, RUN_BYTES),
    (256, RUN_BYTES),
];

/// So much is read between the box that is asked for far ahead and the one that is written, and a box
/// at least.
const FAR_BYTES: usize = 16 << 10;

/// So much is written between asks for a box ahead.
const PART_BYTES: usize = 4 * LINE_BYTES;

/// Boxes of more are not for a second-level cache.
const BOX_BYTES: usize = 256 << 10;

/// What is written, again and again.
#[repr(align(64))]
struct Part([u8; PART_BYTES]);

static PART: Part = Part([0x5A; PART_BYTES]);

/// A side of a copy.
#[derive(Debug, Clone, Copy)]
enum Side {
    Src,
    Dst,
}

/// So many turns, and how far apart they are on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    count: usize,
    src: isize,
    dst: isize,
}

impl Loop {
    fn stride(&self, side: Side) -> isize {
        match side {
            Side::Src => self.src,
            Side::Dst => self.dst,
        }
    }
}

/// The pieces of a box that are read, and those that are written.
type BoxPieces = (Pieces, Pieces);

/// A box's pieces on one side: of so many bytes, and where they start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pieces {
    bytes: usize,
    offsets: Vec<isize>,
}

impl Pieces {
    /// Where their lines start.
    fn lines(&self) -> impl Iterator<Item = isize> {
        let starts = (0..self.bytes as isize).step_by(LINE_BYTES);
        self.offsets.iter().flat_map(move |at| starts.clone().map(move |line| at + line))
    }
}

/// A loop of boxes: so many whole ones, and one of what is left, if anything is.
#[derive(Debug, Clone)]
struct Along {
    whole: Loop,
    left: usize,
}

/// The boxes of a copy.
#[derive(Debug, Clone)]
struct Boxes {
    start: (isize, isize),
    /// The outermost first.
    loops: Vec<Along>,
    /// The pieces of a box, by the loops that it is the last of: bit `k` for `loops[k]`.
    pieces: Vec<BoxPieces>,
}

/// Which box is asked for while one is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    None,
    Next,
    Far,
}

impl Asks {
    /// Each, and what it is called.
    const ALL: [(Asks, &'static str); 3] = [
        (Asks::None, ""),
        (Asks::Next, ", the next box asked for"),
        (Asks::Far, ", boxes asked for far ahead"),
    ];

    /// How many boxes of so many bytes ahead.
    fn boxes(self, bytes: usize) -> usize {
        match self {
            Asks::None => 0,
            Asks::Next => 1,
            Asks::Far => FAR_BYTES.div_ceil(bytes),
        }
    }
}

/// The traffic of a copy by boxes of one size, but for the last of a loop.
#[derive(Debug)]
pub(crate) struct Pattern<'a> {
    /// What its boxes are.
    pub(crate) name: String,
    boxes: Boxes,
    asks: Asks,
    /// How many boxes ahead of the one that is written.
    ahead: usize,
    spans: Spans,
    streams: bool,
    buffers: PhantomData<&'a Buffers>,
}

impl<'a> Pattern<'a> {
    /// The patterns of `view`, which `streams` past the caches or not: by pieces of several sizes,
    /// in the order of either side, with boxes ahead asked for or not. None where its bytes aren't
    /// inside the buffers, or the destination doesn't start with a line.
    pub(crate) fn of(view: &View, buffers: &'a Buffers, streams: bool) -> Result<Vec<Self>, Error> {
        let spans = buffers.spans()?;
        let copy = copy_of(view);
        let is_some = copy.payload_bytes() > 0;
        if !spans.dst.0.is_multiple_of(LINE_BYTES) || !is_some || !is_inside(&copy, &spans) {
            return Ok(Vec::new());
        }
        let bytes = view.item_bytes as usize;
        let loops = loops(view);
        let mut all: Vec<Pattern<'a>> = Vec::new();
        for pieces in PIECES_BYTES {
            let extents = extents(&loops, bytes, pieces);
            let box_bytes = extents.iter().product::<usize>() * bytes;
            if box_bytes > BOX_BYTES {
                continue;
            }
            for (side, order) in [(Side::Src, "source"), (Side::Dst, "destination")] {
                let start = (view.src.offset as isize, view.dst.offset as isize);
                let boxes = Boxes::of(&loops, (bytes, &extents), start, side);
                for (asks, asked) in Asks::ALL {
                    let (from, to) = pieces;
                    let name = format!("{from} to {to} B in the order of the {order}{asked}");
                    let (boxes, ahead, buffers) =
                        (boxes.clone(), asks.boxes(box_bytes), PhantomData);
                    all.push(Pattern { name, boxes, asks, ahead, spans, streams, buffers });
                }
            }
        }
        Ok(all)
    }

    /// Runs it once.
    pub(crate) fn run(&self) {
        let src = self.spans.src.0 as *const u8;
        let none = Pieces { bytes: 1, offsets: Vec::new() };
        let mut asked = VecDeque::with_capacity(self.ahead + 1);
        self.boxes.each(&mut |next: &BoxPieces, at| {
            asked.push_back((next, at));
            if asked.len() > self.ahead {
                let due = asked.pop_front().expect("one more than wait");
                let next = if self.ahead > 0 { &next.0 } else { &none };
                self.move_box(due, (next, src.wrapping_offset(at.0)));
            }
        });
        asked.into_iter().for_each(|due| self.move_box(due, (&none, src)));
        if self.streams {
            stream::fence();
        }
    }

    /// Reads a box and writes it, and asks for the pieces of one ahead meanwhile.
    fn move_box(&self, due: (&BoxPieces, (isize, isize)), (ahead, src): (&Pieces, *const u8)) {
        let ((reads, writes), at) = due;
        for from in &reads.offsets {
            let from = (self.spans.src.0 as *const u8).wrapping_offset(at.0 + from);
            // SAFETY: `of` found all of the view inside the buffers, which live as long as this.
            unsafe { read(from, reads.bytes) };
        }
        let dst = self.spans.dst.0 as *mut u8;
        let parts = writes.offsets.len() * writes.bytes.div_ceil(PART_BYTES);
        let each = (ahead.offsets.len() * ahead.bytes.div_ceil(LINE_BYTES)).div_ceil(parts);
        let mut asks = ahead.lines().map(|line| src.wrapping_offset(line));
        for to in &writes.offsets {
            let lines = lines(at.1 + to, writes.bytes);
            for part in (lines.0..lines.1).step_by(PART_BYTES) {
                asks.by_ref().take(each).for_each(|line| match self.asks {
                    Asks::Far => stream::prefetch_far(line),
                    Asks::None | Asks::Next => stream::prefetch(line),
                });
                let bytes = PART_BYTES.min(lines.1 - part);
                // SAFETY: as above; lines that start before a piece start inside the buffer, which
                // starts with one.
                unsafe { write(dst.add(part), bytes, self.streams) };
            }
        }
    }
}

/// The lines that a piece writes, in bytes from the buffer's start: not the one in which it ends,
/// which is that of the piece behind.
fn lines(start: isize, bytes: usize) -> (usize, usize) {
    let start = start.cast_unsigned();
    (start / LINE_BYTES * LINE_BYTES, (start + bytes) / LINE_BYTES * LINE_BYTES)
}

/// Reads something of each line.
///
/// # Safety
/// So many bytes are valid for reads, and not none.
unsafe fn read(src: *const u8, bytes: usize) {
    let mut all = 0;
    for at in (0..bytes).step_by(LINE_BYTES) {
        // SAFETY: the caller's contract.
        all |= unsafe { src.add(at).read() };
    }
    // SAFETY: the caller's contract.
    all |= unsafe { src.add(bytes - 1).read() };
    black_box(all);
}

/// Writes whole lines.
///
/// # Safety
/// So many bytes are valid for writes, a part at most, and whole lines.
unsafe fn write(dst: *mut u8, bytes: usize, streams: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        match streams {
            true => stream::copy_lines(PART.0.as_ptr(), dst, bytes / LINE_BYTES),
            false => std::ptr::copy_nonoverlapping(PART.0.as_ptr(), dst, bytes),
        }
    }
}

/// What moves `view`: it says which bytes the view touches.
fn copy_of(view: &View) -> NdCopy {
    let strides = view.src.strides.iter().zip(&view.dst.strides);
    let field = FieldCopy {
        bytes: view.item_bytes,
        src_offset: view.src.offset,
        dst_offset: view.dst.offset,
        padding: 0,
        strides: strides.map(|(&src, &dst)| Stride { src, dst }).collect(),
    };
    let dim = |&extent: &u64| CopyDim { extent, src_index: None, dst_index: None };
    NdCopy { dims: view.extents.iter().map(dim).collect(), fields: vec![field] }
}

fn loops(view: &View) -> Vec<Loop> {
    let strides = view.src.strides.iter().zip(&view.dst.strides);
    let all = view.extents.iter().zip(strides).map(|(&count, (&src, &dst))| Loop {
        count: count as usize,
        src: src as isize,
        dst: dst as isize,
    });
    all.filter(|l| l.count > 1).collect()
}

/// The loops' numbers, as `side` has them, the fastest first.
fn in_order(loops: &[Loop], side: Side) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by_key(|&k| loops[k].stride(side).unsigned_abs());
    order
}

/// How much of each loop a box has whose pieces are of so many bytes on either side, if there is as
/// much.
fn extents(loops: &[Loop], bytes: usize, (src, dst): (usize, usize)) -> Vec<usize> {
    let mut extents = vec![1; loops.len()];
    for (side, piece) in [(Side::Src, src), (Side::Dst, dst)] {
        let mut run = bytes;
        for k in in_order(loops, side) {
            if loops[k].stride(side) != run as isize || run >= piece {
                break;
            }
            let (count, most) = (loops[k].count, piece.div_ceil(run));
            // What would be less than two boxes is one.
            extents[k] = extents[k].max(if count < 2 * most { count } else { most });
            run *= loops[k].count;
        }
    }
    extents
}

impl Boxes {
    /// Boxes of `extents`, in the order of `side`.
    fn of(
        loops: &[Loop],
        (bytes, extents): (usize, &[usize]),
        start: (isize, isize),
        side: Side,
    ) -> Boxes {
        let mut order = in_order(loops, side);
        order.reverse();
        let along = |&k: &usize| {
            let (all, extent) = (loops[k], extents[k]);
            let by = |stride: isize| stride * extent as isize;
            let whole = Loop { count: all.count / extent, src: by(all.src), dst: by(all.dst) };
            Along { whole, left: all.count % extent }
        };
        let along: Vec<Along> = order.iter().map(along).collect();
        let pieces = (0..1 << along.len()).map(|last: usize| {
            let inner = order.iter().zip(&along).enumerate().map(|(i, (&k, along))| {
                let count = if last >> i & 1 == 1 { along.left } else { extents[k] };
                Loop { count, ..loops[k] }
            });
            let inner: Vec<Loop> = inner.collect();
            (pieces(&inner, bytes, Side::Src), pieces(&inner, bytes, Side::Dst))
        });
        let pieces = pieces.collect();
        Boxes { start, loops: along, pieces }
    }

    /// Calls `body` with the pieces of each box, and where it starts.
    fn each<'b>(&'b self, body: &mut impl FnMut(&'b BoxPieces, (isize, isize))) {
        self.from(0, 0, self.start, body);
    }

    /// As [`Boxes::each`], for the loops from number `k` on, at the `last` of those before.
    fn from<'b>(
        &'b self,
        k: usize,
        last: usize,
        at: (isize, isize),
        body: &mut impl FnMut(&'b BoxPieces, (isize, isize)),
    ) {
        let Some(along) = self.loops.get(k) else { return body(&self.pieces[last], at) };
        let turns = along.whole.count + usize::from(along.left > 0);
        for i in 0..turns {
            let last = last | usize::from(i == along.whole.count) << k;
            let by = |stride: isize| i as isize * stride;
            let at = (at.0 + by(along.whole.src), at.1 + by(along.whole.dst));
            self.from(k + 1, last, at, body);
        }
    }
}

/// The pieces that a box has on one side.
fn pieces(inner: &[Loop], bytes: usize, side: Side) -> Pieces {
    let mut pieces = Pieces { bytes, offsets: vec![0] };
    for k in in_order(inner, side) {
        let (count, stride) = (inner[k].count, inner[k].stride(side));
        if pieces.offsets.len() == 1 && stride == pieces.bytes as isize {
            pieces.bytes *= count;
            continue;
        }
        let turns = 0..count as isize;
        let turn = |i: isize| pieces.offsets.iter().map(move |at| at + i * stride);
        pieces.offsets = turns.flat_map(turn).collect();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Strides;
    use isometry::Machine;

    fn view(item_bytes: u64, loops: &[(u64, i64, i64)]) -> View {
        let side = |of: fn(&(u64, i64, i64)) -> i64| Strides {
            offset: 0,
            strides: loops.iter().map(of).collect(),
        };
        let extents = loops.iter().map(|l| l.0).collect();
        View { extents, item_bytes, src: side(|l| l.1), dst: side(|l| l.2) }
    }

    /// A transpose, structures of three fields, rows that are no whole lines, a hybrid.
    fn views() -> Vec<View> {
        vec![
            view(4, &[(300, 1200, 4), (300, 4, 1200)]),
            view(4, &[(1000, 12, 4), (3, 4, 4000)]),
            view(2, &[(49, 2, 14), (131, 98, 686), (7, 12_838, 2)]),
            view(8, &[(64, 256, 256), (4, 64, 8), (8, 8, 32)]),
            view(16, &[(5, 16, 16)]),
        ]
    }

    #[test]
    fn every_byte_is_read_once_and_every_line_written_once() {
        for view in views() {
            let bytes = view.extents.iter().product::<u64>() * view.item_bytes;
            let machine = Machine::builder().assume(true).open().unwrap();
            let buffers = Buffers::new(&machine, [bytes, bytes], 0).unwrap();
            let patterns = Pattern::of(&view, &buffers, true).unwrap();
            assert!(patterns.len() >= 2, "{view:?}");
            for pattern in patterns {
                let (mut read, mut written) = (vec![0; bytes as usize], vec![0; bytes as usize]);
                pattern.boxes.each(&mut |(reads, writes), at| {
                    for offset in &reads.offsets {
                        let start = (at.0 + offset).cast_unsigned();
                        read[start..start + reads.bytes].iter_mut().for_each(|n| *n += 1);
                    }
                    for offset in &writes.offsets {
                        let (start, end) = lines(at.1 + offset, writes.bytes);
                        written[start..end].iter_mut().for_each(|n| *n += 1);
                    }
                });
                assert!(read.iter().all(|&n| n == 1), "{} {view:?}", pattern.name);
                let whole = bytes as usize / LINE_BYTES * LINE_BYTES;
                assert!(written[..whole].iter().all(|&n| n == 1), "{} {view:?}", pattern.name);
                assert!(written[whole..].iter().all(|&n| n == 0), "{} {view:?}", pattern.name);
            }
        }
    }

    #[test]
    fn it_writes_whole_lines_and_reads_what_there_is() {
        let machine = Machine::builder().assume(true).open().unwrap();
        for (view, streams) in views().into_iter().flat_map(|v| [(v.clone(), true), (v, false)]) {
            let bytes = view.extents.iter().product::<u64>() * view.item_bytes;
            let buffers = Buffers::new(&machine, [bytes, bytes], 0).unwrap();
            for pattern in Pattern::of(&view, &buffers, streams).unwrap() {
                buffers.poison().unwrap();
                pattern.run();
                let whole = bytes as usize / LINE_BYTES * LINE_BYTES;
                let right = |_: &[u8], dst: &[u8]| dst[..whole].iter().all(|&b| b == 0x5A);
                assert!(buffers.check(right).unwrap(), "{view:?}");
            }
            let outside = View { item_bytes: view.item_bytes + 1, ..view.clone() };
            assert!(Pattern::of(&outside, &buffers, streams).unwrap().is_empty());
        }
    }

    #[test]
    fn boxes_have_pieces_of_both_sides() {
        let loops = loops(&view(4, &[(300, 1200, 4), (300, 4, 1200)]));
        assert_eq!(extents(&loops, 4, (256, 256)), [64, 64]);
        let boxes = Boxes::of(&loops, (4, &[64, 64]), (0, 0), Side::Dst);
        let mut sizes: Vec<_> = boxes.pieces.iter().map(|(r, w)| (r.bytes, w.bytes)).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [(176, 176), (176, 256), (256, 176), (256, 256)]);
        let mut count = 0;
        boxes.each(&mut |_, _| count += 1);
        assert_eq!(count, 25);
    }
}
