//! Boxes of the source's rows, by squares whose sides are lines, be it of two vectors.
//!
//! **Hazard.** Few rows read from end to end are what memory gives fastest, but they make a line of each of many rows of
//! the destination: where such lines are begun at few places of pages memory takes them slowly, and the longer the
//! visit of each row the less so. And more rows at one place of a cache than it has there push each other out before
//! they are moved. **Structure.** A box of more rows is asked for while the one before it is moved, in the order in which
//! it lies. Where all rows are at one place of a second-level cache boxes are narrow: as many rows are read at a time
//! as that keeps, and the processor finds what lies ahead of so few by itself.

use super::chunk::{HALVES_BYTES, SQUARES_BYTES, few};
use super::{Lanes, PACKED_BYTES, Panels};
use crate::instance::Instance;
use crate::tile::Tile;
use crate::tile::sides::{FEW, Squares};
use crate::vector::{LINE_BYTES, PAGE_BYTES, PAIR_BYTES};
use std::ops::Range;

/// How many rows of the source a box has that is asked for: by twice as many it was up to a fourth slower, and by half as
/// many up to two fifths. Of elements of 2 and 4 bytes that caches keep, at several places, twice as many are up to two
/// fifths faster.
const BOX_ROWS: usize = 32;

/// What a box has of the source's rows by vectors that are lines, on a Zen 5 and where the processor holds them. Of the
/// destination's rows it has two lines each, which both write faster than one or four, but for elements of two bytes where
/// lines are held, and for little rows.
const WIDE_BYTES: usize = 1 << 10;
const HELD_BYTES: usize = 512;

/// Of little rows of the destination a Zen 5 writes a line at a time, and others all of elements of four bytes.
const LITTLE_ROW_BYTES: usize = 2 * PAIR_BYTES;

/// On a Zen 5 they are worth it where the source's rows are so far apart, and so many elements.
const FAR_BYTES: usize = 16 << 10;
const FAR_ELEMENTS: usize = 2 << 10;

/// Where lines are held, rows of the source so far apart are read faster by all, if those of the destination follow each
/// other and are so short, …
const APART_BYTES: usize = 256 << 10;
const SHORT_ROW_BYTES: usize = 512;

/// … or if the source's are less than a box, so far apart, and the destination's so short.
const LESS_APART_BYTES: usize = 1 << 20;
const LESS_ROW_BYTES: usize = 1 << 10;

/// Of shorter rows, in lines, no line is asked for that is not theirs.
const SHORT_LINES: usize = 2 * FEW;

/// What panels are that are boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boxes {
    /// Each is asked for while the one before it is moved.
    Asked,
    /// So is each, by vectors that are lines: so much of each of the source's rows, to so much of the destination's.
    Wide { bytes: usize, row_bytes: usize },
    /// Each is moved a square's rows at a time, and none is asked for.
    Narrow,
}

impl Panels {
    /// Whether panels of squares are boxes: not of rows that follow each other, nor, by halves, where short rows of the
    /// destination do, nor where panels have several turns of a third loop.
    pub(super) fn boxes(&self) -> Option<Boxes> {
        let third = self.o.count > 1 || self.are_beside();
        if !self.has_squares_of_lines() || self.is_packed() || third {
            return None;
        }
        let pitch = self.b.stride.0;
        if !self.by_halves() {
            return self.wide_boxes();
        }
        let pages = pitch % PAGE_BYTES == 0;
        if self.goes_on() && self.row_bytes() <= PACKED_BYTES && !pages {
            return None;
        }
        let short = self.a.count * self.bytes <= HALVES_BYTES;
        match self.bytes {
            8 if self.is_at_one_place() => Some(Boxes::Narrow),
            // As many rows as a line of these has elements are more than the processor follows.
            2 => Some(Boxes::Asked),
            4 | 8 if self.begins_at_few_places() => Some(Boxes::Asked),
            // They end soon after the processor follows them.
            _ => short.then_some(Boxes::Asked),
        }
    }

    /// As [`Panels::boxes`], by vectors that are lines.
    fn wide_boxes(&self) -> Option<Boxes> {
        match () {
            () if self.row_bytes() < PAIR_BYTES => None,
            () if self.by.scatters_lines() => self.scattered_boxes(),
            // Sources that caches keep were no faster so, or slower.
            () if self.by.holds_lines() && self.source.far => self.held_boxes(),
            () => None,
        }
    }

    /// As [`Panels::boxes`], on a Zen 5.
    fn scattered_boxes(&self) -> Option<Boxes> {
        let far = self.b.stride.0.unsigned_abs() >= FAR_BYTES.max(FAR_ELEMENTS * self.bytes);
        let little = self.row_bytes() <= LITTLE_ROW_BYTES;
        let row_bytes = if little { LINE_BYTES } else { PAIR_BYTES };
        let wide = far && self.a.count * self.bytes >= WIDE_BYTES;
        wide.then_some(Boxes::Wide { bytes: WIDE_BYTES, row_bytes })
    }

    /// As [`Panels::boxes`], where lines are held, of a source that no cache keeps. Rows that the processor follows by itself
    /// are read from end to end instead.
    fn held_boxes(&self) -> Option<Boxes> {
        let (pitch, row) = (self.b.stride.0.unsigned_abs(), self.row_bytes());
        let short = self.writes_all() && row <= SHORT_ROW_BYTES && pitch >= APART_BYTES;
        let less = self.a.count * self.bytes < HELD_BYTES;
        let by_all = short || less && row <= LESS_ROW_BYTES && pitch >= LESS_APART_BYTES;
        if by_all || pitch < PAGE_BYTES.unsigned_abs() || self.follows_rows() {
            return None;
        }
        let row_bytes = match self.bytes {
            2 => LINE_BYTES,
            4 if row <= LITTLE_ROW_BYTES => row,
            // Longer elements were up to a twentieth slower so.
            _ if row <= LITTLE_ROW_BYTES => return None,
            _ => PAIR_BYTES,
        };
        Some(Boxes::Wide { bytes: HELD_BYTES, row_bytes })
    }

    /// Whether all rows of the source are at one place of a second-level cache.
    fn is_at_one_place(&self) -> bool {
        self.b.stride.0 % self.by.caches.second.place_bytes().cast_signed() == 0
    }

    /// How much of `a` and `b` a box has: by halves it and the next take a sixteenth of a second-level cache, or an eighth
    /// where caches keep elements of 2 and 4 bytes at several places, if it is none of the last.
    pub(super) fn chunk_of_boxes(&self, boxes: Boxes) -> (usize, usize) {
        let (bytes, rows) = match boxes {
            Boxes::Wide { bytes, row_bytes } => (bytes, row_bytes / self.bytes),
            Boxes::Asked => {
                let rows = match self.source.far || self.bytes > 4 || self.is_at_one_place() {
                    true => BOX_ROWS,
                    false => 2 * BOX_ROWS,
                };
                (self.by.caches.second.bytes / 32 / BOX_ROWS, rows)
            }
            Boxes::Narrow => (SQUARES_BYTES, 2 * LINE_BYTES / self.bytes),
        };
        (few(self.a.count, bytes.max(LINE_BYTES) / self.bytes), few(self.b.count, rows))
    }

    /// What a box has of `a` if so many are left: a rest of less than half a box is part of the last.
    fn width(&self, left: usize) -> usize {
        if left < self.chunk.0 + self.chunk.0 / 2 { left } else { self.chunk.0 }
    }

    /// Moves a part of rows, for a range of `a`, box by box.
    ///
    /// # Safety
    /// As [`Panels::run`].
    #[inline(never)]
    pub(super) unsafe fn band_of_boxes(
        &self,
        boxes: Boxes,
        instance: &Instance,
        (range, rows): (&Range<usize>, &Range<usize>),
        (src, dst): (*const u8, *mut u8),
    ) {
        let mut tile = Tile {
            a: 0,
            b: rows.len(),
            o: 1,
            src: (self.b.stride.0, 0),
            dst: (self.a.stride.1, 0),
            has_line_sides: true,
            squares: Squares::Single,
            ahead: 0,
            soon: 0,
            next: None,
            next_lines: 0,
        };
        let last = self.a.count - self.square().unwrap_or(1);
        let from = |a: usize, row: usize| {
            src.wrapping_add(a * self.bytes).wrapping_offset(row as isize * self.b.stride.0)
        };
        let mut start = range.start;
        while start < range.end {
            // The last rows overlap those before them where they would make no square.
            let a = start.min(last);
            start += self.width(range.end - start);
            tile.a = start - a;
            let src = from(a, rows.start);
            let to = dst.wrapping_offset(a as isize * self.a.stride.1);
            let to = to.wrapping_add(rows.start * self.bytes);
            if boxes != Boxes::Narrow {
                let next = match () {
                    () if start < range.end => Some((from(start, rows.start), range.end - start)),
                    () if rows.end < self.b.count => {
                        Some((from(range.start, rows.end), range.len()))
                    }
                    () if self.asks.next != 0 => {
                        Some((from(range.start, 0).wrapping_offset(self.asks.next), range.len()))
                    }
                    () => None,
                };
                self.ask_for(next, (&mut tile, src));
            }
            // SAFETY: a box of the loops; its rows are whole lines of the destination.
            unsafe {
                match boxes {
                    Boxes::Asked => self.squares(instance, (Lanes::Lines, &tile), (src, to)),
                    Boxes::Wide { .. } => self.squares(instance, (Lanes::Boxes, &tile), (src, to)),
                    Boxes::Narrow => self.rows_of_squares(instance, &tile, (src, to)),
                }
            }
        }
    }

    /// Asks for the `next` box, of which there are so many columns left, while `tile` is moved: row by row, by a
    /// multiple of a few lines each; or if these are short, in the order in which the tile is read. Which box is
    /// the next is not known at the end of a part of rows, where another is asked for.
    fn ask_for(&self, next: Option<(*const u8, usize)>, (tile, src): (&mut Tile, *const u8)) {
        (tile.next, tile.next_lines, tile.ahead) = (None, 0, 0);
        let Some((next, left)) = next else { return };
        let lines = (self.width(left) * self.bytes).div_ceil(LINE_BYTES);
        if lines < SHORT_LINES && !lines.is_multiple_of(FEW) {
            tile.ahead = next.addr().wrapping_sub(src.addr()).cast_signed();
        } else {
            (tile.next, tile.next_lines) = (Some(next), (lines + FEW / 2) / FEW * FEW);
        }
    }

    /// Moves `tile` by squares, those of the same rows one behind the other.
    ///
    /// # Safety
    /// As [`Panels::squares`].
    unsafe fn rows_of_squares(
        &self,
        instance: &Instance,
        tile: &Tile,
        (src, dst): (*const u8, *mut u8),
    ) {
        let part = Tile { b: LINE_BYTES / self.bytes, ..*tile };
        for b in (0..tile.b).step_by(part.b) {
            let src = src.wrapping_offset(b as isize * tile.src.0);
            let dst = dst.wrapping_add(b * self.bytes);
            // SAFETY: the caller's contract, for rows of the tile, which are whole lines of the destination.
            unsafe { self.squares(instance, (Lanes::Lines, &part), (src, dst)) };
        }
    }
}
