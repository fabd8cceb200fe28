//! How a span of a file is moved: which part goes around the page cache, and which bytes go
//! straight between file and memory.
//!
//! **Hazard.** Bytes of one page that are written both through the page cache and around it may
//! be lost. **Guarantee.** Only whole pages are written around it, by an operation that writes all
//! of them; the edges of a span go through it. Reads have no such trouble: they take whole blocks
//! and leave what nobody asked for in a buffer.

use crate::align::Bounds;
use crate::file::FileRegion;
use crate::pieces::{Direction, Piece};
use crate::span::{SMALL_BYTES, Span, page_bytes};

/// Between edges that go through the page cache, less is not worth going around it.
const DIRECT_WRITE_BYTES: u64 = 16 << 10;

/// One operation on a file, before it has a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The boundaries that it keeps to.
    pub(crate) bounds: Bounds,
    /// Where it begins in the file.
    pub(crate) from: u64,
    /// Where it ends.
    pub(crate) to: u64,
    /// The bytes below this are needed; those from here on need not be there.
    pub(crate) needed_to: u64,
    /// What it moves, ascending and without overlap.
    pub(crate) pieces: Vec<Piece>,
}

/// The next bytes of an operation, in file order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment {
    /// They lie at this address.
    Memory { address: u64, bytes: u64 },
    /// They take the next bytes of the operation's buffer.
    Scratch { bytes: u64 },
}

/// Bytes that go between the buffer and memory by a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    /// Offset in the buffer.
    pub(crate) scratch: u64,
    /// Address in memory.
    pub(crate) memory: u64,
    /// How many.
    pub(crate) bytes: u64,
}

/// Where each byte of a plan lies in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// The operation's segments.
    pub(crate) segments: Vec<Segment>,
    /// The copies, before a write or after a read.
    pub(crate) moves: Vec<Move>,
    /// The size of the buffer.
    pub(crate) scratch_bytes: u64,
}

impl Spread {
    /// Whether the buffer has bytes that no copy fills.
    pub(crate) fn has_holes(&self) -> bool {
        self.moves.iter().map(|one| one.bytes).sum::<u64>() < self.scratch_bytes
    }
}

/// The operations that move `span` of `file`.
pub(crate) fn plans(span: Span, direction: Direction, file: &FileRegion) -> Vec<Plan> {
    let bounds = file.direct().map(|direct| direct.bounds);
    match (direction, bounds) {
        (Direction::Read, bounds) => vec![read(span, bounds.unwrap_or(Bounds::NONE))],
        (Direction::Write, None) => vec![buffered(&span.pieces)],
        (Direction::Write, Some(bounds)) => {
            let block_bytes = bounds.block_bytes.max(page_bytes());
            write(&span, Bounds { block_bytes, ..bounds })
        }
    }
}

/// Whole blocks, the first and the last of which may hold more than is needed.
fn read(span: Span, bounds: Bounds) -> Plan {
    let block_bytes = bounds.block_bytes;
    let (from, needed_to) = (span.start() / block_bytes * block_bytes, span.end());
    let to = needed_to.next_multiple_of(block_bytes);
    Plan { bounds, from, to, needed_to, pieces: span.pieces }
}

/// The whole pages around the cache, the edges through it.
fn write(span: &Span, bounds: Bounds) -> Vec<Plan> {
    let page_bytes = bounds.block_bytes;
    let from = span.start().next_multiple_of(page_bytes);
    let to = span.end() / page_bytes * page_bytes;
    let has_edges = (from, to) != (span.start(), span.end());
    if to <= from || (has_edges && to < from + DIRECT_WRITE_BYTES) {
        return vec![buffered(&span.pieces)];
    }
    let pieces = clip(&span.pieces, from, to);
    let middle = Plan { bounds, from, to, needed_to: to, pieces };
    let head = clip(&span.pieces, span.start(), from);
    let tail = clip(&span.pieces, to, span.end());
    let edge = |pieces: Vec<Piece>| (!pieces.is_empty()).then(|| buffered(&pieces));
    edge(head).into_iter().chain([middle]).chain(edge(tail)).collect()
}

fn buffered(pieces: &[Piece]) -> Plan {
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let to = last.file + last.bytes;
    Plan { bounds: Bounds::NONE, from: first.file, to, needed_to: to, pieces: pieces.to_vec() }
}

/// The parts of `pieces` between `from` and `to`.
fn clip(pieces: &[Piece], from: u64, to: u64) -> Vec<Piece> {
    let cut = |piece: &Piece| {
        let start = piece.file.max(from);
        let end = (piece.file + piece.bytes).min(to);
        let memory = piece.memory.wrapping_add(start - piece.file);
        (start < end).then(|| Piece { file: start, memory, bytes: end - start, padding: 0 })
    };
    pieces.iter().filter_map(cut).collect()
}

impl Plan {
    /// Sends every aligned stretch of a piece straight, and the rest through a buffer.
    pub(crate) fn spread(&self) -> Spread {
        let mut spread = Spread::default();
        // The buffer's bytes from `spread.scratch_bytes` on hold the file from `cursor` on.
        let mut cursor = self.from;
        for piece in &self.pieces {
            match self.straight(piece) {
                None => spread.detour(piece, cursor),
                Some(core) => {
                    let (head, tail) = around(piece, &core);
                    spread.detour(&head, cursor);
                    spread.buffer(core.file - cursor);
                    let Piece { memory: address, bytes, .. } = core;
                    spread.segments.push(Segment::Memory { address, bytes });
                    cursor = core.file + core.bytes;
                    spread.detour(&tail, cursor);
                }
            }
        }
        spread.buffer(self.to - cursor);
        spread
    }

    /// The part of `piece` that keeps to the boundaries on both sides and is worth a segment.
    fn straight(&self, piece: &Piece) -> Option<Piece> {
        let block = self.bounds.block_bytes;
        let from = piece.file.next_multiple_of(block);
        let to = (piece.file + piece.bytes) / block * block;
        let memory = piece.memory.wrapping_add(from - piece.file);
        let bytes = to.checked_sub(from)?;
        let alone = self.pieces.len() == 1 && bytes > 0;
        let worth = alone || bytes >= SMALL_BYTES;
        (worth && memory.is_multiple_of(self.bounds.memory_bytes)).then_some(Piece {
            file: from,
            memory,
            bytes,
            padding: 0,
        })
    }
}

impl Spread {
    fn detour(&mut self, piece: &Piece, cursor: u64) {
        if piece.bytes > 0 {
            let scratch = self.scratch_bytes + (piece.file - cursor);
            self.moves.push(Move { scratch, memory: piece.memory, bytes: piece.bytes });
        }
    }

    fn buffer(&mut self, bytes: u64) {
        if bytes > 0 {
            self.segments.push(Segment::Scratch { bytes });
            self.scratch_bytes += bytes;
        }
    }
}

/// What `piece` has before and after its part `core`.
fn around(piece: &Piece, core: &Piece) -> (Piece, Piece) {
    let head = Piece { bytes: core.file - piece.file, ..*piece };
    let done = head.bytes + core.bytes;
    let file = core.file + core.bytes;
    let memory = piece.memory.wrapping_add(done);
    (head, Piece { file, memory, bytes: piece.bytes - done, padding: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Bounds = Bounds { block_bytes: 512, memory_bytes: 512 };
    const PAGES: Bounds = Bounds { block_bytes: 4096, memory_bytes: 512 };

    fn piece(file: u64, memory: u64, bytes: u64) -> Piece {
        Piece { file, memory, bytes, padding: 0 }
    }

    #[test]
    fn an_aligned_read_needs_no_buffer() {
        let plan = read(Span { pieces: vec![piece(4096, 1 << 20, 8192)] }, BLOCKS);
        let spread = plan.spread();
        assert_eq!(spread.segments, [Segment::Memory { address: 1 << 20, bytes: 8192 }]);
        assert_eq!((spread.moves.len(), spread.scratch_bytes), (0, 0));
    }

    #[test]
    fn a_read_off_the_boundaries_buffers_its_edges() {
        // The memory is in phase with the file: offset 128 on either side.
        let plan = read(Span { pieces: vec![piece(128, (1 << 20) + 128, 2000)] }, BLOCKS);
        assert_eq!((plan.from, plan.to, plan.needed_to), (0, 2560, 2128));
        let spread = plan.spread();
        let middle = Segment::Memory { address: (1 << 20) + 512, bytes: 1536 };
        let edge = Segment::Scratch { bytes: 512 };
        assert_eq!(spread.segments, [edge, middle, edge]);
        let head = Move { scratch: 128, memory: (1 << 20) + 128, bytes: 384 };
        let tail = Move { scratch: 512, memory: (1 << 20) + 2048, bytes: 80 };
        assert_eq!(spread.moves, [head, tail]);
    }

    #[test]
    fn a_read_out_of_phase_goes_through_the_buffer_whole() {
        let plan = read(Span { pieces: vec![piece(128, 1 << 20, 2000)] }, BLOCKS);
        let spread = plan.spread();
        assert_eq!(spread.segments, [Segment::Scratch { bytes: 2560 }]);
        assert_eq!(spread.moves, [Move { scratch: 128, memory: 1 << 20, bytes: 2000 }]);
    }

    #[test]
    fn a_write_keeps_pages_apart() {
        let span = Span { pieces: vec![piece(100, (1 << 20) + 100, 100_000)] };
        let plans = write(&span, PAGES);
        let bounds: Vec<_> = plans.iter().map(|p| (p.bounds.block_bytes, p.from, p.to)).collect();
        assert_eq!(bounds, [(1, 100, 4096), (4096, 4096, 98304), (1, 98304, 100_100)]);
        assert_eq!(plans[1].spread().scratch_bytes, 0);
        let small = Span { pieces: vec![piece(100, 0, 9000)] };
        assert_eq!(write(&small, PAGES), [buffered(&small.pieces)]);
        let page = write(&Span { pieces: vec![piece(8192, 1 << 20, 4096)] }, PAGES);
        assert_eq!((page.len(), page[0].bounds, page[0].spread().scratch_bytes), (1, PAGES, 0));
    }

    #[test]
    fn a_device_that_takes_any_word_of_memory_needs_no_phase() {
        let bounds = Bounds { block_bytes: 512, memory_bytes: 4 };
        let plan = read(Span { pieces: vec![piece(512, (1 << 20) + 20, 1024)] }, bounds);
        let whole = Segment::Memory { address: (1 << 20) + 20, bytes: 1024 };
        assert_eq!(plan.spread().segments, [whole]);
        let odd = read(Span { pieces: vec![piece(512, (1 << 20) + 21, 1024)] }, bounds);
        assert_eq!(odd.spread().scratch_bytes, 1024);
    }
}
