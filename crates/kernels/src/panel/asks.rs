//! What panels ask for before they read it.
//!
//! **Hazard.** Two caches want to be filled ahead, each by what it keeps: lines that lie at the same few
//! places of the first push each other out, and what is not read soon does in either. **Structure.** What
//! is asked for is what will be read next in the order of the loops: the next run of the source, rows
//! further on, the next few lines of all rows, or where the innermost of the loops around goes on. What
//! is read once from end to end the processor finds by itself, and asking for it holds it up.

use super::chunk::SQUARES_ROWS;
use super::{LINES_AHEAD_BYTES, Lanes, Panels, Writes};
use crate::ahead::{READ_ON_BYTES, prefetch_near};
use crate::nest::{Loop, Nest};
use crate::tile::are_lines;
use crate::tile::sides::FEW;
use crate::vector::{LINE_BYTES, PAGE_BYTES, PAIR_BYTES};
use std::ops::Range;

/// How far ahead a row of the source is asked for.
const AHEAD_BYTES: isize = 256;

/// Rows of the source of a few lines, up to this, that lie one right behind the other: squares with sides
/// of a line ask for so many of them ahead.
const FEW_LINES_BYTES: usize = 8 * LINE_BYTES;
const FEW_ROWS: usize = 32;

/// How far ahead of a row is asked for, for squares by halves.
const HALVES_AHEAD_BYTES: isize = 512;

/// How far ahead is asked for of blocks that follow each other on both sides, and of few rows, of which a
/// panel is soon moved.
const BLOCKS_AHEAD_BYTES: isize = 2048;

/// As [`READ_ON_BYTES`], where rows are lines: by twice as much it was up to a twentieth slower.
const LINES_ON_BYTES: isize = 8 << 10;

/// What a box has of each row of a block, where panels ask for boxes of which rows are whole lines only together: by halves,
/// and where the processor holds lines. There half as much was up to a fourth slower.
const BOX_BYTES: usize = FEW * LINE_BYTES;
const HELD_BOX_BYTES: usize = 8 * LINE_BYTES;

/// Rows that are no whole boxes have so many at least: of a last box there is less than is asked for.
const LEAST_BOXES: usize = 4;

/// Rows are long that have so many times what is asked for ahead: then little of it is behind their end.
const LONG: isize = 4;

/// Distances in the source, in bytes; 0 where nothing is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asks {
    /// From a row to what lies ahead of it.
    pub(super) ahead: isize,
    /// From a panel or block to the next, all of which is asked for while this one is moved.
    pub(super) next: isize,
    /// As `ahead`, to what comes so soon that a first-level cache keeps it.
    pub(super) soon: isize,
    /// How many lines of each row are, a multiple of [`FEW`], if what is `next` is no run.
    lines: usize,
    /// What boxes that are have of each row, of panels of which rows are whole lines only together.
    box_bytes: usize,
}

impl Panels {
    /// What is asked for, where `nest` has the other loops.
    pub(super) fn asks(&self, nest: &Nest, streams: bool) -> Asks {
        if self.reads_on() {
            return Asks { next: READ_ON_BYTES, ..Asks::default() };
        }
        if self.reads_lines() {
            return Asks { next: LINES_ON_BYTES, ..Asks::default() };
        }
        if self.is_read_once() {
            return Asks::default();
        }
        let innermost = nest.loops().last().filter(|l| l.is_plain()).map_or(0, |l| l.src);
        if self.boxes().is_some() {
            return Asks { next: innermost, ..Asks::default() };
        }
        if self.are_beside() {
            return Asks { next: innermost, lines: self.lines_beside(), ..Asks::default() };
        }
        let box_bytes = self.box_bytes();
        if box_bytes > 0 && self.by.holds_lines() {
            return Asks { next: innermost, box_bytes, ..Asks::default() };
        }
        let next = self.next(nest, innermost);
        let ahead = if streams && next == 0 { self.ahead(innermost) } else { 0 };
        Asks { ahead, next, soon: self.soon(ahead, next), lines: 0, box_bytes }
    }

    /// How many lines of a row a panel has whose turns lie side by side; 0 where all of it is one run.
    fn lines_beside(&self) -> usize {
        let row = self.o.count * self.a.count * self.bytes;
        let lines = (row / LINE_BYTES + FEW / 2) / FEW * FEW;
        if self.b.stride.0 == row.cast_signed() { 0 } else { lines.max(FEW) }
    }

    fn next(&self, nest: &Nest, innermost: isize) -> isize {
        let block = self.block_bytes() as isize;
        let is_next = |l: &Loop| l.is_plain() && (l.src, l.dst) == (block, block);
        let runs = self.has_runs() || self.has_blocks();
        match () {
            () if runs && self.chunk.1 < self.b.count => self.chunk.1 as isize * self.b.stride.0,
            () if runs => innermost,
            () if (self.is_run() || self.is_near()) && nest.loops().iter().any(is_next) => block,
            () => 0,
        }
    }

    fn ahead(&self, innermost: isize) -> isize {
        let short = self.a.count * self.bytes < LINE_BYTES;
        match () {
            () if !self.source.dense => 0,
            () if self.has_parts_of_lines() => LINES_AHEAD_BYTES,
            () if self.is_followed(self.o) => BLOCKS_AHEAD_BYTES,
            () if self.has_squares_of_lines() => self.ahead_of_squares(innermost),
            () if self.writes == Writes::Lines(Lanes::Join) => 0,
            () if self.is_packed() && (self.writes == Writes::Staged || !short) => {
                self.chunk.1 as isize * self.b.stride.0
            }
            () if self.b.stride.0 % PAGE_BYTES == 0 => 0,
            () => AHEAD_BYTES,
        }
    }

    /// How far ahead squares with sides of a line ask: of rows of few lines that a panel has all of, for
    /// where the innermost loop goes on, or nothing if there is none. Pairs of lines that follow each other
    /// the processor finds by itself, and of some panels [all rows](Panels::follows_rows).
    fn ahead_of_squares(&self, innermost: isize) -> isize {
        let row = self.a.count * self.bytes;
        let pair = (LINE_BYTES + 1..=PAIR_BYTES).contains(&row);
        let few_lines = (PAIR_BYTES + 1..=FEW_LINES_BYTES).contains(&row);
        let long = row as isize >= LONG * BLOCKS_AHEAD_BYTES;
        match self.is_packed() {
            _ if self.follows_rows() => 0,
            _ if self.by_halves() => self.ahead_of_halves(),
            true if pair => 0,
            true if few_lines => (FEW_ROWS * row) as isize,
            false if few_lines && self.is_one() => innermost,
            false if (pair || long) && self.chunk.1 < SQUARES_ROWS => BLOCKS_AHEAD_BYTES,
            _ => LINES_AHEAD_BYTES,
        }
    }

    /// As [`Panels::ahead_of_squares`], by halves. Rows at one place of a cache that are more than it has there
    /// would push each other out.
    fn ahead_of_halves(&self) -> isize {
        if self.is_crowded() { 0 } else { HALVES_AHEAD_BYTES }
    }

    /// Two squares on, in a run of several. Else the next line of long rows, if a panel has all of them or so few that a
    /// cache keeps these, and they don't lie at the same few places of it.
    fn soon(&self, ahead: isize, next: isize) -> isize {
        let side = LINE_BYTES / self.bytes;
        let (rows, pitch) = (self.chunk.1, self.b.stride.0);
        let long = (self.a.count * self.bytes) as isize >= LONG * ahead.abs();
        let all = rows == self.b.count || self.writes_all() && self.by_few_rows();
        match () {
            () if !self.has_squares_of_lines() || self.by_halves() => 0,
            () if self.has_runs() && next != 0 && rows >= 4 * side => 2 * side as isize * pitch,
            () if ahead != 0 && long && all && pitch % PAGE_BYTES != 0 => LINE_BYTES as isize,
            () => 0,
        }
    }

    /// What boxes have of each row, where panels ask for such of which rows are whole lines only together; 0 where they
    /// don't. By halves they do if a second-level cache has no room for their block and the next; where lines are held, if
    /// no cache keeps the source and the block is large. Of rows at multiples of a page a cache would not keep a box,
    /// either.
    fn box_bytes(&self) -> usize {
        let halves = self.by_halves() && are_lines(self.by.lanes, self.bytes, false);
        let second = self.by.caches.second.bytes;
        let (asks, bytes) = match self.by.holds_lines() {
            true => (self.source.far && self.block_bytes() > 2 * second, HELD_BOX_BYTES),
            false => (halves && 2 * self.block_bytes() > second, BOX_BYTES),
        };
        let row = self.a.count * self.bytes;
        let whole = row.is_multiple_of(bytes) || row >= LEAST_BOXES * bytes;
        let scattered = self.b.stride.0 % PAGE_BYTES != 0;
        if asks && self.has_parts_of_lines() && whole && scattered { bytes } else { 0 }
    }

    /// Whether as much of the next box as a panel is due is asked for at once, before it is moved: where lines are held
    /// that is no slower than between their stores.
    pub(super) fn asks_at_once(&self) -> bool {
        self.asks.box_bytes > 0 && self.by.holds_lines()
    }

    /// What is asked for while the panel at `a` of some rows of the block at `src` is moved: as much of the next block;
    /// or a part of the rows of the next box, and so many lines of each. It is one of a `range` of `a`.
    pub(super) fn next_of(
        &self,
        a: usize,
        (range, rows): (&Range<usize>, &Range<usize>),
        src: *const u8,
    ) -> (Option<*const u8>, usize) {
        if self.asks.box_bytes > 0 {
            let part = self.part_of_box(a, (range, rows), src);
            return part.map_or((None, 0), |(at, _)| (Some(at), FEW));
        }
        let moved = (rows.start * self.a.count + a * rows.len()) * self.bytes;
        let block = (self.asks.next != 0).then(|| src.wrapping_offset(self.asks.next));
        (block.map(|at| at.wrapping_add(moved)), self.asks.lines)
    }

    /// Asks for what [`Panels::asks_at_once`] says.
    pub(super) fn ask_for_box(
        &self,
        a: usize,
        (range, rows): (&Range<usize>, &Range<usize>),
        src: *const u8,
    ) {
        let Some((mut at, rows)) = self.part_of_box(a, (range, rows), src) else { return };
        for _ in 0..rows {
            for line in (0..self.asks.box_bytes).step_by(LINE_BYTES) {
                prefetch_near(at.wrapping_add(line));
            }
            at = at.wrapping_offset(self.b.stride.0);
        }
    }

    /// The part of the next box that a panel is due, as [`Panels::next_of`] says: of these rows, of those behind them, or of
    /// the next block; and how many rows it has.
    #[inline(never)]
    fn part_of_box(
        &self,
        a: usize,
        (range, rows): (&Range<usize>, &Range<usize>),
        src: *const u8,
    ) -> Option<(*const u8, usize)> {
        let (at, bytes) = (a * self.bytes, self.asks.box_bytes);
        let next = at - at % bytes + bytes;
        let row_at = |at: usize| rows.len().min(at * rows.len() / bytes);
        let first = row_at(at % bytes);
        let from = |at: usize, row: usize| {
            Some(src.wrapping_add(at).wrapping_offset(row as isize * self.b.stride.0))
        };
        let next = match () {
            () if next < range.end * self.bytes => from(next, rows.start),
            () if rows.end < self.b.count => from(range.start * self.bytes, rows.end),
            () if range.end < self.a.count => from(next, 0),
            () => (self.asks.next != 0).then(|| src.wrapping_offset(self.asks.next)),
        };
        let count = row_at(at % bytes + self.chunk.0 * self.bytes) - first;
        next.map(|at| (at.wrapping_offset(first as isize * self.b.stride.0), count))
    }
}

#[cfg(test)]
mod tests {
    use super::super::BAND_ROWS;
    use super::*;
    use crate::caches::{Cache, Caches};
    use crate::instance::available;
    use layout::{CopyDim, FieldCopy, NdCopy, Stride};
    use std::collections::BTreeMap;

    /// Two images of so many channels and pixels of 4 bytes.
    fn images((channels, pixels): (i64, i64)) -> NdCopy {
        let (plane, image) = (4 * pixels, 4 * channels * pixels);
        let loops = [(2, image, image), (channels, plane, 4), (pixels, 4, 4 * channels)];
        let strides = loops.map(|(_, src, dst)| Stride { src, dst }).to_vec();
        let field = FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, padding: 0, strides };
        let extents = loops.map(|(count, ..)| count.cast_unsigned());
        let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
        NdCopy { dims: extents.map(dim).to_vec(), fields: vec![field] }
    }

    /// The panels of such images where lines are held, a second-level cache has 16 KiB, and a third-level one so much.
    fn panels(shape: (i64, i64), third_bytes: usize) -> Panels {
        let second = Cache { bytes: 16 << 10, ways: 8 };
        let caches = Caches { second, third_bytes, ..Caches::MEASURED };
        let lines = available().find(|instance| instance.name == "emulated").unwrap();
        let by = lines.on(None).with(caches).abilities;
        Panels::of(&mut Nest::of(&images(shape)).unwrap(), 4096, (true, by)).unwrap()
    }

    #[test]
    fn boxes_are_asked_for_of_large_blocks_of_far_sources() {
        assert!(panels((67, 512), 1 << 10).asks_at_once());
        // What a cache keeps, little blocks, rows at multiples of a page, and such as are few boxes and not whole ones.
        for (shape, third_bytes) in [
            ((67, 512), 1 << 20),
            ((15, 528), 1 << 10),
            ((67, 1024), 1 << 10),
            ((67, 500), 1 << 10),
        ] {
            assert!(!panels(shape, third_bytes).asks_at_once(), "{shape:?}");
        }
    }

    #[test]
    fn each_row_of_the_next_box_is_asked_for_once() {
        // The last has more columns than a band.
        for (channels, pixels) in [(67, 512), (20, 1152), (35, 640), (20, 2176)] {
            let panels = panels((channels, pixels), 1 << 10);
            let (all, rows) = (0..panels.a.count, 0..panels.b.count);
            let mut asked = BTreeMap::new();
            for start in all.clone().step_by(BAND_ROWS) {
                let band = start..all.end.min(start + BAND_ROWS);
                for a in band.clone().step_by(panels.chunk.0) {
                    let part = panels.part_of_box(a, (&band, &rows), std::ptr::null());
                    let (at, count) = part.expect("another image follows");
                    for row in 0..count {
                        let at = at.wrapping_offset(row as isize * panels.b.stride.0).addr();
                        *asked.entry(at).or_insert(0) += 1;
                    }
                }
            }
            // All boxes of all rows, but of the first of the image, and a box of the next image.
            let row_bytes = 4 * pixels as usize;
            let boxes = (HELD_BOX_BYTES..=row_bytes).step_by(HELD_BOX_BYTES);
            let image = 4 * (channels * pixels) as usize;
            let place = |at: usize| if at < row_bytes { at } else { image };
            let expected: BTreeMap<usize, i32> = boxes
                .flat_map(|at| (0..channels as usize).map(move |row| place(at) + row * row_bytes))
                .map(|at| (at, 1))
                .collect();
            assert_eq!(asked, expected, "{channels} by {pixels}");
        }
    }
}
