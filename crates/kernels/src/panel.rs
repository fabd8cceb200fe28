//! Panels: pieces of a copy of which both sides have lines in common.
//!
//! **Hazard.** A transpose that follows one side touches another page of the other side for each
//! element. **Structure.** The loops of a copy are cut into panels of a few lines each way. A
//! panel whose rows are whole lines of the destination is moved in place, and so are rows of whole
//! lanes that follow each other, of which lines are made in registers. Others that are short and follow
//! each other are put together in the first-level cache, as the destination has it, and then written out;
//! where squares have sides of a line, each of its rows starts on one there, and lines that two rows
//! share are made whole on the way out. What lies ahead of a panel is asked for while it is moved.

mod asks;
mod boxes;
mod chunk;
mod rows;
mod shape;

use self::asks::Asks;
use self::shape::{follows, halves_clash, has_short_rows, kept_bytes, suit_halves};
use crate::Stores;
use crate::ahead::prefetch;
use crate::element::{Line, Plane, move_plane};
use crate::instance::{Instance, Transpose};
use crate::nest::{Loop, Nest, line};
use crate::runs::Runs;
use crate::tile::{LINES_AHEAD_BYTES, Lanes, SCATTERING_BYTES, Tile, are_lines, is_line};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null_mut;

/// Where a panel is put together has so much room, of which no more is used than a first-level cache has.
const STAGE_BYTES: usize = 32 << 10;

/// What a panel that is put together holds, if there is as much: less isn't worth the trouble.
const PANEL_BYTES: usize = 4 << 10;

/// Rows of up to this, one right behind the other, are moved as a whole.
const PACKED_BYTES: usize = 2 << 10;

/// Rows of the destination that are gone on with before the next are begun: caches keep their pages.
const BAND_ROWS: usize = 2048;

/// By vectors of half a line, a part of such rows gets so many panels of each row before the next part does: small
/// pages are looked for once for all of these, and of the source's rows what follows is soon read. By 16 and 32 it was no
/// faster.
const PART_PANELS: usize = 8;

/// Lines that are begun at multiples of this are at few places of pages.
const CLASHING_BYTES: isize = 2048;

/// Blocks of up to this that follow each other on both sides are moved many at once by squares with sides of
/// a line: less is moved by one panel than is asked for ahead.
const LITTLE_BYTES: usize = 8 << 10;

/// What a visit to a row of the destination is to write.
const VISIT_BYTES: usize = 1 << 10;

/// A loop that turns once.
const ONCE: Line = Line { count: 1, stride: (0, 0) };

/// How panels are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// In place, into the caches.
    Cached,
    /// In place, by whole lines past the caches, with such lanes.
    Lines(Lanes),
    /// As `Lines`, rows of whole lanes that are whole lines only together.
    Rows,
    /// Put together first, then past the caches.
    Staged,
    /// As `Staged`, so many rows that are whole lines only together, and so far apart: each starts on a
    /// line of the stage, since stores that share lines cost more than loads that do.
    Spliced { rows: usize, pitch: usize },
}

/// Three loops over elements of `bytes`: along `b` the destination is dense, along `a` the source
/// if it is along any; `o` is the one with which the destination goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panels {
    bytes: usize,
    a: Line,
    b: Line,
    o: Line,
    writes: Writes,
    /// Whether every row of the destination is whole lines.
    whole: bool,
    /// Whether squares may have sides of a line.
    has_line_sides: bool,
    /// What moves them.
    by: Abilities,
    source: Source,
    /// How much of `a` and `b` a panel has.
    chunk: (usize, usize),
    /// What is asked for of the source meanwhile.
    asks: Asks,
}

/// What the source is like.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// Whether it is dense along `a`.
    dense: bool,
    /// Whether it goes on where a block ends, or there is but one.
    follows: bool,
    /// Whether all of it is more than caches keep.
    far: bool,
}

/// Where a panel is put together.
#[repr(align(64))]
struct Stage(MaybeUninit<[u8; STAGE_BYTES]>);

impl Panels {
    /// Takes the loops of panels out of `nest`, whose first element goes to the address `dst`;
    /// `None` if no loop is dense in the destination. `streams` says that it goes past the caches.
    pub(crate) fn of(
        nest: &mut Nest,
        dst: usize,
        (streams, by): (bool, Abilities),
    ) -> Option<Panels> {
        let far = nest.payload_bytes() > kept_bytes(by);
        let bytes = nest.bytes as isize;
        let plain = |nest: &Nest, is: &dyn Fn(&Loop) -> bool| {
            nest.loops().iter().position(|l| l.is_plain() && is(l))
        };
        let b = plain(nest, &|l| l.dst == bytes).map(|k| line(nest.take(k)))?;
        let shared = |l: &&Loop| l.dst % LINE_BYTES as isize != 0;
        let all_shared = nest.loops().iter().filter(shared).count();
        let a = plain(nest, &|l| l.src == bytes).map(|k| line(nest.take(k)));
        let (dense, a) = (a.is_some(), a.unwrap_or(ONCE));
        let (writes, chunk, asks) = (Writes::Cached, (1, 1), Asks::default());
        let aligned = dst.is_multiple_of(LINE_BYTES);
        let whole = aligned && all_shared == 0 && (b.count * nest.bytes).is_multiple_of(LINE_BYTES);
        let (o, bytes) = (ONCE, nest.bytes);
        // As far as two loops tell; a third may be taken yet.
        let source = Source { dense, follows: follows(nest, a.count * b.count * bytes), far };
        let short = streams && source.follows && bytes < LANE_BYTES;
        let has_line_sides = are_lines(by.lanes, bytes, streams)
            && a.count * bytes >= LINE_BYTES
            && !(short && has_short_rows(bytes, (a, b), by))
            && (!is_line(2 * by.lanes)
                || suit_halves(bytes, (a, b), (streams, whole, far), by.caches));
        let mut panels =
            Panels { bytes, a, b, o, writes, whole, has_line_sides, by, source, chunk, asks };
        if streams {
            let block = panels.block_bytes() as isize;
            let follows = nest.loops().iter().any(|l| l.is_plain() && l.dst == block);
            let lines = aligned.then(|| panels.whole_lines((all_shared, follows))).flatten();
            panels.writes = lines.map_or(Writes::Staged, Writes::Lines);
        }
        panels.o = panels.third(nest);
        panels.writes = panels.joined(aligned && all_shared == 1).unwrap_or(panels.writes);
        panels.source.follows = follows(nest, panels.block_bytes());
        panels.chunk = panels.chunk();
        debug_assert!(panels.chunk.0 > 0 && panels.chunk.1 > 0, "{panels:?}");
        panels.asks = panels.asks(nest, streams);
        Some(panels)
    }

    /// Whether vectors are half a line, of which squares with sides of a line have two for each.
    fn by_halves(&self) -> bool {
        is_line(2 * self.by.lanes)
    }

    /// How much is put together at once.
    fn room(&self) -> usize {
        STAGE_BYTES.min(self.by.caches.first.bytes)
    }

    /// The side of a square of elements, if vectors move them.
    pub(crate) fn square(&self) -> Option<usize> {
        let whole = self.source.dense && self.bytes.is_power_of_two() && self.bytes <= LANE_BYTES;
        whole.then(|| LANE_BYTES / self.bytes)
    }

    /// The lanes by which all of the destination is written by whole lines, if it is: of the
    /// loops but `b`, `shared` don't start a line with each turn, and one `follows` the rows.
    fn whole_lines(&self, (shared, follows): (usize, bool)) -> Option<Lanes> {
        let n = self.square()?;
        let (a, b, row) = (self.a.count, self.b.count, self.row_bytes());
        // Rows that are parts of lines: then `a` starts inside them, and no other loop may.
        let parts = usize::from(row < LINE_BYTES);
        // Turns of a lane, or of whole vectors, be it of half a line.
        let fits = a == n || a.is_multiple_of(self.by.lanes.min(2) * n);
        let blocks = follows && fits && a * self.bytes < LINE_BYTES;
        let long = parts == 1 && a * self.bytes >= LINE_BYTES;
        let joins = b.is_power_of_two() && (2..=LANE_BYTES).contains(&b) && row <= LINE_BYTES;
        match shared {
            _ if shared == parts && joins && self.goes_on() && (blocks || long) => {
                Some(Lanes::Join)
            }
            0 if follows && self.is_small(n) && !self.has_line_sides => None,
            0 if self.clashes(n) => None,
            0 if self.is_split() => Some(Lanes::Split),
            0 if a >= n && row % LINE_BYTES == 0 => Some(Lanes::Lines),
            _ => None,
        }
    }

    /// Whether squares of side `n` would begin more lines than a processor holds half written, or
    /// such as lie at the same place of pages, where vectors are less than a line. Four at a time
    /// are still better begun than put together from rows that lie at the same place of pages too.
    fn clashes(&self, n: usize) -> bool {
        if self.has_line_sides {
            let loops = (self.a, self.b);
            return self.by_halves()
                && halves_clash(self.bytes, loops, self.source.far, self.by.caches);
        }
        let parts = !is_line(self.by.lanes) && self.a.count >= n;
        let clashing = self.a.stride.1 % CLASHING_BYTES == 0;
        let few = match (clashing, self.b.stride.0 % PAGE_BYTES == 0) {
            (true, true) => 4,
            (true, false) => 2,
            (false, _) => 8,
        };
        parts && n > few
    }

    /// Why long rows are better, if they are and there are any: it is put together before it is written, or
    /// lines of both sides are at the same few places of pages, and squares have no sides of a line.
    pub(crate) fn why_flat(&self) -> Option<&'static str> {
        let scattered = (self.a.stride.1 | self.b.stride.0) % SCATTERING_BYTES == 0;
        let lanes = !self.has_line_sides && self.bytes < LANE_BYTES;
        match self.writes {
            Writes::Rows if self.by_halves() => None,
            Writes::Staged | Writes::Spliced { .. } | Writes::Rows => {
                let why = "squares would not write whole lines where they belong";
                (!self.keeps_rows()).then_some(why)
            }
            Writes::Lines(Lanes::Lines) => {
                let why = "rows of both sides are at few places of pages";
                (lanes && scattered && !self.begins_few()).then_some(why)
            }
            Writes::Lines(_) | Writes::Cached => None,
        }
    }

    /// Whether a block is one panel: cut into several, it would be left and come back to.
    fn is_one(&self) -> bool {
        self.chunk() == (self.a.count, self.b.count)
    }

    /// Takes the loop with which the source goes on out of `nest`, or the destination, where rows are short.
    fn third(&self, nest: &mut Nest) -> Line {
        if let Some((k, turns)) = self.beside(nest) {
            return line(nest.split(k, turns));
        }
        let run = if self.goes_on() { self.block_bytes() } else { self.row_bytes() };
        let staged = self.is_staged() && self.goes_on();
        let plain = (0..nest.loops().len()).filter(|&k| nest.loops()[k].is_plain());
        let next = plain.min_by_key(|&k| nest.loops()[k].dst.unsigned_abs());
        let turns = if staged { PANEL_BYTES } else { VISIT_BYTES } / run;
        let little = !self.has_squares_of_lines() || self.block_bytes() <= LITTLE_BYTES;
        let follows = |k: usize| self.is_followed(line(nest.loops()[k])) && self.is_one();
        match next {
            Some(k) if !staged && little && follows(k) => line(nest.take(k)),
            Some(k) if turns > 1 && !self.reads_in_order() => line(nest.split(k, turns)),
            _ => ONCE,
        }
    }

    /// Moves all that the loops reach.
    ///
    /// # Safety
    /// As [`crate::copy`], with `src` and `dst` at a position of the other loops.
    pub(crate) unsafe fn run(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        // SAFETY: the caller's contract; what is moved in place needs no stage.
        unsafe {
            match self.is_staged() {
                true => self.put_together(instance, src, dst),
                false => self.bands(instance, (src, null_mut(), dst)),
            }
        }
    }

    /// As [`Panels::run`], by a stage, which is not there for any other way: room for it costs as much as a small copy.
    ///
    /// # Safety
    /// As [`Panels::run`].
    #[inline(never)]
    unsafe fn put_together(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        let mut stage = Stage(MaybeUninit::uninit());
        let stage = stage.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's contract.
        unsafe { self.bands(instance, (src, stage, dst)) }
    }

    /// Moves all that the loops reach, band by band.
    ///
    /// # Safety
    /// As [`Panels::run`], at a source, a stage where panels are put together, and a destination.
    unsafe fn bands(&self, instance: &Instance, at: (*const u8, *mut u8, *mut u8)) {
        let band = BAND_ROWS.next_multiple_of(self.chunk.0);
        let (few, columns) = self.part().unwrap_or((band, self.b.count));
        for start in (0..self.a.count).step_by(band) {
            let range = start..self.a.count.min(start + band);
            for first in (0..self.b.count).step_by(columns) {
                let rows = first..self.b.count.min(first + columns);
                for start in range.clone().step_by(few) {
                    let range = start..range.end.min(start + few);
                    // SAFETY: the caller's contract, for part of the loops.
                    unsafe { self.rows(instance, (range, rows.clone()), at) };
                }
            }
        }
    }

    /// How many rows of a band are gone on with at once, and with how much of each, if it is not with all: of so many
    /// pages as a core finds fast half, if that is several panels.
    fn part(&self) -> Option<(usize, usize)> {
        let rows = self.by.caches.pages / 2;
        let in_place = matches!(self.writes, Writes::Lines(_) | Writes::Rows);
        if self.a.count <= rows || !self.by_halves() || !in_place {
            return None;
        }
        let rows = rows.next_multiple_of(self.chunk.0);
        (rows > self.chunk.0).then_some((rows, PART_PANELS * self.chunk.1))
    }

    /// Moves a range of `a` of some rows of the source, panel by panel.
    ///
    /// # Safety
    /// As [`Panels::run`].
    #[inline(never)]
    unsafe fn rows(
        &self,
        instance: &Instance,
        (range, rows): (Range<usize>, Range<usize>),
        at: (*const u8, *mut u8, *mut u8),
    ) {
        let boxes = self.boxes();
        for b in rows.clone().step_by(self.chunk.1) {
            let rows = b..rows.end.min(b + self.chunk.1);
            // SAFETY: the caller's contract, for part of the loops.
            unsafe {
                match boxes {
                    Some(boxes) => {
                        self.band_of_boxes(boxes, instance, (&range, &rows), (at.0, at.2))
                    }
                    None => self.band(instance, (range.clone(), rows), at),
                }
            }
        }
    }

    /// Moves a part of rows, for a range of `a`.
    ///
    /// # Safety
    /// As [`Panels::run`].
    #[inline(always)]
    unsafe fn band(
        &self,
        instance: &Instance,
        (range, rows): (Range<usize>, Range<usize>),
        (src, stage, dst): (*const u8, *mut u8, *mut u8),
    ) {
        let least = match self.writes {
            Writes::Rows => self.chunk.0,
            _ => self.square().unwrap_or(1).min(self.chunk.0),
        };
        let last = self.a.count.saturating_sub(least);
        for a in range.clone().step_by(self.chunk.0) {
            let next = match self.asks_at_once() {
                true => {
                    self.ask_for_box(a, (&range, &rows), src);
                    (None, 0)
                }
                false => self.next_of(a, (&range, &rows), src),
            };
            // The last rows overlap those before them where they would make no square.
            let a = a.min(last);
            let by = |a: isize, (of_a, of_b): (isize, isize)| a * of_a + rows.start as isize * of_b;
            let src = src.wrapping_offset(by(a as isize, (self.a.stride.0, self.b.stride.0)));
            let dst = dst.wrapping_offset(by(a as isize, (self.a.stride.1, self.b.stride.1)));
            let count = self.chunk.0.min(range.end - a);
            // SAFETY: a panel of the loops.
            unsafe { self.panel(instance, (count, &rows), next, (src, stage, dst)) };
        }
    }

    /// Moves one panel; what is `next` is asked for, if anything of the next block is.
    ///
    /// # Safety
    /// As [`Panels::run`], for the first elements of a panel.
    #[inline(always)]
    unsafe fn panel(
        &self,
        instance: &Instance,
        (a, rows): (usize, &Range<usize>),
        (next, next_lines): (Option<*const u8>, usize),
        (src, stage, dst): (*const u8, *mut u8, *mut u8),
    ) {
        let tile = Tile {
            a,
            b: rows.len(),
            o: self.o.count,
            src: (self.b.stride.0, self.o.stride.0),
            dst: (self.a.stride.1, self.o.stride.1),
            has_line_sides: self.has_line_sides,
            squares: self.squares_past_caches(),
            ahead: if self.writes == Writes::Staged { 0 } else { self.asks.ahead },
            next,
            next_lines,
            soon: self.asks.soon,
        };
        // SAFETY: the caller's contract; the processor has the instance's instructions; where rows are
        // lines, `of` has seen that every panel starts and ends with one; where they are whole
        // lanes, `joined`; where they are spliced, the stage has room for them, and a line behind each.
        unsafe {
            match self.writes {
                Writes::Cached => self.fill(instance, &tile, src, dst),
                Writes::Lines(lanes) => self.squares(instance, (lanes, &tile), (src, dst)),
                Writes::Rows => {
                    let around = (rows.start, self.b.count - rows.end);
                    instance.joined.rows(self.bytes)((&tile, around), src, dst);
                }
                Writes::Staged => {
                    if self.asks.next == 0 {
                        self.ask_ahead(&tile, src);
                    }
                    self.runs(instance, tile, (src, stage, dst));
                }
                Writes::Spliced { pitch, .. } => {
                    let tile = Tile { dst: (pitch as isize, 0), ..tile };
                    self.fill(instance, &tile, src, stage);
                    // Memory has had no time for all of it while the panel was put together.
                    let next = next.filter(|_| self.by.scatters_lines());
                    let rows = (tile.a, tile.b * self.bytes, pitch);
                    (instance.joined.splice)(rows, next, stage, dst);
                }
            }
        }
    }

    /// Asks for what lies ahead of `tile`.
    fn ask_ahead(&self, tile: &Tile, src: *const u8) {
        if self.asks.ahead == 0 {
            return;
        }
        let (rows, bytes) = match self.is_packed() {
            true => (1, tile.a * tile.b * self.bytes),
            false => (tile.b, tile.a * self.bytes),
        };
        for o in 0..tile.o as isize {
            for row in 0..rows as isize {
                let by = o * tile.src.1 + row * tile.src.0 + self.asks.ahead;
                for at in (0..bytes).step_by(LINE_BYTES) {
                    prefetch(src.wrapping_offset(by).wrapping_add(at));
                }
            }
        }
    }

    /// Puts `tile` together, and writes it out by runs.
    ///
    /// # Safety
    /// As [`Panels::panel`].
    unsafe fn runs(
        &self,
        instance: &Instance,
        mut tile: Tile,
        (src, stage, dst): (*const u8, *mut u8, *mut u8),
    ) {
        let row = tile.b * self.bytes;
        debug_assert!(tile.a * tile.o * row <= STAGE_BYTES, "{self:?}");
        let a = Line { count: tile.a, stride: (0, self.a.stride.1) };
        let o = Line { count: tile.o, stride: (0, self.o.stride.1) };
        // The stage has the loops in the order of the destination.
        let o_first = o.count > 1 && o.stride.1.unsigned_abs() < a.stride.1.unsigned_abs();
        let [mut inner, mut outer] = if o_first { [o, a] } else { [a, o] };
        inner.stride.0 = row as isize;
        outer.stride.0 = (row * inner.count) as isize;
        let pitches = (inner.stride.0, outer.stride.0);
        tile.dst = if o_first { (pitches.1, pitches.0) } else { pitches };
        // SAFETY: the stage has room for a panel, every byte of which is written before it is
        // read; the runs are those of the tile.
        unsafe {
            self.fill(instance, &tile, src, stage);
            let runs = Runs::of(row, (inner, outer), Stores::Streamed);
            (instance.runs)(&runs, stage, dst);
        }
    }

    /// Moves `tile` by squares, of which those with sides of a line leave up to half of one.
    ///
    /// # Safety
    /// As [`Panels::panel`], for `lanes` that may move the tile.
    #[inline(always)]
    unsafe fn squares(
        &self,
        instance: &Instance,
        (lanes, tile): (Lanes, &Tile),
        (src, dst): (*const u8, *mut u8),
    ) {
        let transpose = instance.transpose(lanes, self.bytes);
        // SAFETY: the caller's contract.
        unsafe {
            match self.has_line_sides && self.leaves_rest(instance, (lanes, tile)) {
                true => self.with_rest(transpose, tile, (src, dst)),
                false => transpose(tile, src, dst),
            }
        }
    }

    /// Whether squares with sides of a line leave a rest of `tile`'s columns, of up to half of one.
    fn leaves_rest(&self, instance: &Instance, (lanes, tile): (Lanes, &Tile)) -> bool {
        let row = tile.a * self.bytes;
        if !(1..=LINE_BYTES / 2).contains(&(row % LINE_BYTES)) {
            return false;
        }
        let has_lines = matches!(lanes, Lanes::B | Lanes::Lines | Lanes::Boxes)
            && are_lines(instance.abilities.lanes, self.bytes, lanes != Lanes::B);
        has_lines && row.min(tile.b * self.bytes) >= LINE_BYTES
    }

    /// Moves `tile` by squares with sides of a line, and the rest by squares inside lanes, of which fewer
    /// columns are moved twice.
    ///
    /// # Safety
    /// As [`Panels::squares`], where that leaves a rest.
    unsafe fn with_rest(
        &self,
        transpose: Transpose,
        tile: &Tile,
        (src, dst): (*const u8, *mut u8),
    ) {
        let row = tile.a * self.bytes;
        let (n, lines) = (LANE_BYTES / self.bytes, (row - row % LINE_BYTES) / self.bytes);
        let mut next = tile.next;
        for o in 0..tile.o as isize {
            let (src, dst) = tile.turn(o, src, dst);
            for a in [0..lines, lines.min(tile.a - n)..tile.a] {
                let src = src.wrapping_add(a.start * self.bytes);
                let dst = dst.wrapping_offset(a.start as isize * tile.dst.0);
                let part = Tile { a: a.len(), o: 1, next, ..*tile };
                // SAFETY: the caller's contract, for columns of a turn, no fewer than a square's.
                unsafe { transpose(&part, src, dst) };
                // The rest of a box is little, and none is asked for meanwhile.
                next = next.filter(|_| tile.next_lines == 0);
                next = next.map(|at| at.wrapping_add(a.len() * tile.b * self.bytes));
            }
        }
    }

    /// Moves the elements of `tile`.
    ///
    /// # Safety
    /// As [`Panels::panel`].
    unsafe fn fill(&self, instance: &Instance, tile: &Tile, src: *const u8, dst: *mut u8) {
        if let Some(lanes) = self.narrow_in_caches() {
            // SAFETY: the caller's contract; the processor has the instance's instructions.
            return unsafe { instance.transpose(lanes, self.bytes)(tile, src, dst) };
        }
        if let Some(n) = self.square()
            && let Some(lanes) = tile.lanes(n, instance.abilities.lanes)
        {
            let lanes = match lanes {
                Lanes::B if self.is_copied() => Lanes::Copied,
                _ => lanes,
            };
            // SAFETY: the caller's contract; the processor has the instance's instructions; `chunk`
            // leaves room for a copy.
            return unsafe { self.squares(instance, (lanes, tile), (src, dst)) };
        }
        let along = Line { count: tile.b, stride: (tile.src.0, self.bytes as isize) };
        let across = Line { count: tile.a, stride: (self.a.stride.0, tile.dst.0) };
        for o in 0..tile.o as isize {
            let src = src.wrapping_offset(o * tile.src.1);
            let dst = dst.wrapping_offset(o * tile.dst.1);
            // SAFETY: the caller's contract, for one turn.
            unsafe { move_plane(self.bytes, Plane { along, across }, src, dst) };
        }
    }
}

impl fmt::Display for Panels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.chunk;
        write!(f, "panels of {a} by {b} elements of {} B, ", self.bytes)?;
        if self.o.count > 1 {
            write!(f, "{} at once, ", self.o.count)?;
        }
        match self.writes {
            Writes::Cached => match self.narrow_in_caches() {
                Some(Lanes::SplitCached) => write!(f, "in place, rows taken apart in registers"),
                Some(_) => write!(f, "in place, columns put together in registers"),
                None => write!(f, "in place"),
            },
            Writes::Lines(_) => write!(f, "in place, by lines past the caches"),
            Writes::Rows => write!(f, "in place, by lines of two rows past the caches"),
            Writes::Staged => write!(f, "put together, by runs past the caches"),
            Writes::Spliced { .. } => {
                write!(f, "put together, by lines of two rows past the caches")
            }
        }
    }
}
