//! How much of the loops a panel has.
//!
//! **Hazard.** What a panel has of the source is to stay in a cache until all of it is moved, and what it
//! writes of a row should be long enough for memory to take it at once. **Structure.** Chunks are counted in
//! lines of either side, and are small where rows lie at the same few places of a cache.

use super::shape::{FOLLOWED_BYTES, NEAR_CLASH_BYTES};
use super::{PACKED_BYTES, PANEL_BYTES, Panels, VISIT_BYTES, Writes};
use crate::caches::Caches;
use crate::tile::sides::LANES_BYTES;
use crate::tile::{COPIED_BYTES, COPIED_ROWS, Lanes};
use crate::vector::{LINE_BYTES, PAIR_BYTES};

/// What panels of squares with sides of a line have of rows, and how many rows of the source.
pub(super) const SQUARES_BYTES: usize = 4 * LINE_BYTES;
pub(super) const SQUARES_ROWS: usize = 64;

/// How many rows of the source such panels have that the processor follows by itself: a Xeon's second-level cache follows
/// so many pages at once.
const FOLLOWED_ROWS: usize = 32;

/// What such panels have of a source whose rows lie one right behind the other, up to twice as much, or three times of
/// long rows, while the same is asked for: a part of a second-level cache.
pub(super) const fn panel_run_bytes(caches: Caches) -> usize {
    caches.second.bytes / 4
}

/// What panels of squares by halves have of a row that is read from end to end. A Zen 3 is 1.2 to 2.5 times as fast so as
/// by parts of many rows.
pub(super) const HALVES_BYTES: usize = 2 << 10;

/// They have as many rows as a line has elements, or so many, which a first-level cache has ways: up to 16 a Zen 3 follows
/// by itself, and so many as 32 elements of two bytes make are still faster than all rows.
const HALVES_ROWS: usize = 8;

/// What panels of squares with sides of a line have of rows where they have few of those that such a panel might: by
/// [`SQUARES_BYTES`] it was no faster, or up to a tenth slower.
const LONG_BYTES: usize = 2 << 10;

/// On a Zen 5 rows of a multiple of so many elements of 4 or 8 bytes, or of so many and more of 16, that follow each other
/// in no cache are better moved by few at once.
const CROWDED_ELEMENTS: usize = 256;

/// So many of `count`, or all where that is less than two chunks.
pub(super) fn few(count: usize, few: usize) -> usize {
    if count < 2 * few { count } else { few }
}

/// How many rows of the source a block has at least of which squares by halves are put together.
pub(super) const fn block_rows(bytes: usize) -> usize {
    SQUARES_BYTES / bytes
}

impl Panels {
    /// How much of `a` and `b` a panel has.
    pub(super) fn chunk(&self) -> (usize, usize) {
        let pair = (PAIR_BYTES / self.bytes).max(1);
        let (a, b) = (self.a.count, self.b.count);
        let narrow = matches!(self.writes, Writes::Lines(Lanes::Split | Lanes::Join));
        if narrow || self.narrow_in_caches().is_some() {
            return (a, b);
        }
        if self.writes == Writes::Rows {
            let rows = if self.by_halves() { few(b, self.rows_of_box()) } else { b };
            return (LINE_BYTES / self.bytes, rows);
        }
        if self.has_squares_of_lines() {
            return self.chunk_of_squares();
        }
        if self.has_blocks() {
            return self.chunk_of_blocks();
        }
        if self.is_copied() {
            return (a.min(COPIED_BYTES / self.bytes), b.min(COPIED_ROWS));
        }
        if !self.is_staged() {
            if !self.is_packed() {
                return match self.has_squares_in_caches() {
                    true => (few(a, SQUARES_BYTES / self.bytes), few(b, SQUARES_ROWS)),
                    false => (few(a, pair), few(b, pair)),
                };
            }
            if self.writes_few_rows() {
                return (few(a, LINE_BYTES / self.bytes), few(b, VISIT_BYTES / self.bytes));
            }
            if self.writes_long_rows() {
                return (few(a, pair), few(b, VISIT_BYTES / self.bytes));
            }
            let room = self.room() / (a * self.bytes) / pair * pair;
            return (a, few(b, room.clamp(pair, VISIT_BYTES / 2 / self.bytes)));
        }
        let rows = |a: usize| {
            let room = self.room() / (a * self.bytes);
            b.min(room.min(pair.max(PANEL_BYTES / (a * self.bytes))).max(1))
        };
        let turns = |most: usize| a.min((most / (self.row_bytes() * self.o.count)).max(1));
        match () {
            () if let Writes::Spliced { rows, .. } = self.writes => (rows, b),
            () if self.o.count > 1 => (turns(self.room() / 2).min(pair), b),
            () if self.goes_on() && self.row_bytes() * a <= self.room() / 2 => (a, b),
            () if let Some(n) = self.square().filter(|&n| self.is_small(n)) => {
                (turns(self.room()) / n * n, b)
            }
            () if self.is_packed() => (a, rows(a)),
            () if self.goes_on() && self.row_bytes() <= PACKED_BYTES => {
                (turns(self.room()).min(pair), b)
            }
            () => (a.min(pair), rows(a.min(pair))),
        }
    }

    /// As [`Panels::chunk`], of blocks: twice the least, if it is no more than a panel has of a run.
    fn chunk_of_blocks(&self) -> (usize, usize) {
        let (a, b, rows) = (self.a.count, self.b.count, block_rows(self.bytes));
        let twice = a * self.bytes * rows <= panel_run_bytes(self.by.caches);
        (few(a, LINE_BYTES / self.bytes), few(b, if twice { 2 * rows } else { rows }))
    }

    /// As [`Panels::chunk`], of squares with sides of a line.
    fn chunk_of_squares(&self) -> (usize, usize) {
        let (a, b) = (self.a.count, self.b.count);
        let side = SQUARES_BYTES / self.bytes;
        // Long rows may be more than that.
        let run = (panel_run_bytes(self.by.caches) / (a * self.bytes)).max(1);
        let run = run.next_multiple_of(side);
        let all = self.writes_all();
        // Rows that end too soon, or lie in the caches, and whose lines few rows would begin at few places.
        let near = !self.source.far && self.begins_at_few_places();
        let by_all = all && (near || a * self.bytes < FOLLOWED_BYTES);
        match self.is_packed() || self.has_long_runs() {
            _ if self.are_beside() => (a, b),
            true if self.by_halves() && self.row_bytes() < VISIT_BYTES => (a, b),
            true if self.by_halves() => (a, few(b, self.visit_of_runs() / self.bytes)),
            true if self.is_read_once() || self.reads_lines() => {
                (a, if a * self.bytes > LINE_BYTES { few(b, side) } else { b })
            }
            // Wherever they are, where so much of each is written at once.
            true if self.may_go_by_lanes() => (a, few(b, run.min(LANES_BYTES / self.bytes))),
            true if self.by.scatters_lines() => (a, few(b, self.rows_at_once(run))),
            // Farther apart they do less than the source's would, read in pieces.
            true if self.clashes_on() => (few(a, side), few(b, side)),
            true => (a, few(b, run)),
            false if let Some(boxes) = self.boxes() => self.chunk_of_boxes(boxes),
            false if self.by_halves() && !by_all => (
                few(a, HALVES_BYTES / self.bytes),
                few(b, HALVES_ROWS.max(LINE_BYTES / self.bytes)),
            ),
            false if all && self.by_few_rows() => (few(a, LONG_BYTES / self.bytes), SQUARES_ROWS),
            false if all => (few(a, side), b),
            false if self.follows_rows() => (few(a, side), few(b, FOLLOWED_ROWS)),
            false => (few(a, side), few(b, SQUARES_ROWS)),
        }
    }

    /// How much squares by halves write of a long row of the destination at once, where short rows of the source follow each
    /// other: a line or two, since the next are soon read. By half a KiB a Zen 3 was up to two fifths slower.
    fn visit_of_runs(&self) -> usize {
        let long = self.a.count * self.bytes >= FOLLOWED_BYTES;
        if long && self.a.stride.1 % NEAR_CLASH_BYTES != 0 { LINE_BYTES } else { PAIR_BYTES }
    }

    /// Of how many rows that follow each other a panel has all on a Zen 5: as many as a `run` has, but where lines of the
    /// destination begin at few places of pages so many that four of each are made, or two where no cache keeps a source of
    /// [`CROWDED_ELEMENTS`]: it is a fifth to two thirds faster so.
    fn rows_at_once(&self, run: usize) -> usize {
        let crowded = match self.bytes {
            4 | 8 => self.a.count.is_multiple_of(CROWDED_ELEMENTS),
            16 => self.a.count >= CROWDED_ELEMENTS && !self.clashes_on(),
            _ => false,
        };
        match self.clashes_on() {
            _ if crowded && self.source.far => PAIR_BYTES / self.bytes,
            true => SQUARES_BYTES / self.bytes,
            false => run,
        }
    }
}
