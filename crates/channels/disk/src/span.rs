//! Pieces that one operation can move: neighbours in the file.

use crate::pieces::{Direction, Piece, Walk};

/// The most bytes of a file that one operation covers: enough for any disk's full rate.
pub(crate) const SPAN_BYTES: u64 = 1 << 20;
/// A read takes a hole in its stride up to this: skipping it costs another operation.
const HOLE_BYTES: u64 = 16 << 10;
/// The most pieces of a span. Each takes at most two of the 1024 segments of an operation.
const SPAN_PIECES: usize = 500;
/// Pieces below this are gathered in a buffer and take no segment; more of them fit a span.
pub(crate) const SMALL_BYTES: u64 = 512;
/// The most pieces of a span that are small.
const SMALL_PIECES: usize = 4096;

/// A page of the page cache, or several: 4096 bytes, but 64 KiB on some Arm and Power kernels.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size().max(4096) as u64
}

/// Pieces in ascending order without overlap; when they are written, without holes but padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// The pieces; at least one.
    pub(crate) pieces: Vec<Piece>,
}

impl Span {
    /// Takes the first span of what is left of `walk`.
    pub(crate) fn take(walk: &mut Walk, direction: Direction) -> Option<Span> {
        let pieces = walk.pieces();
        let first = pieces.first()?.file;
        // The next one begins on a boundary.
        let limit = (first + SPAN_BYTES) / page_bytes() * page_bytes();
        let count = fitting(pieces, direction, limit);
        let mut pieces = pieces[..count].to_vec();
        let last = pieces.last_mut().expect("a span has a piece");
        let over = (last.file + last.bytes).saturating_sub(limit);
        let kept = last.bytes - over;
        let memory = last.memory.wrapping_add(kept);
        let rest = Piece { file: limit, memory, bytes: over, padding: last.padding };
        last.bytes = kept;
        walk.take(count, (over > 0).then_some(rest));
        Some(Span { pieces })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> u64 {
        self.pieces[0].file
    }

    /// The byte after the last.
    pub(crate) fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |p| p.file + p.bytes)
    }
}

/// How many of `pieces` belong in one span that ends at `limit`.
fn fitting(pieces: &[Piece], direction: Direction, limit: u64) -> usize {
    let (mut end, mut padding, mut large) = (pieces[0].file, 0, 0);
    for (count, piece) in pieces.iter().enumerate() {
        let hole = if direction == Direction::Read { HOLE_BYTES } else { padding };
        let near = piece.file >= end && piece.file - end <= hole && piece.file < limit;
        large += usize::from(piece.bytes >= SMALL_BYTES);
        if !near || large > SPAN_PIECES || count >= SMALL_PIECES {
            return count;
        }
        (end, padding) = (piece.file + piece.bytes, piece.padding);
    }
    pieces.len()
}
