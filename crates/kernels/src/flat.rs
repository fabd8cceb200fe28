//! Transposes of long rows that start on no line, or at few places of pages.
//!
//! **Hazard.** A line that two panels write costs a read and two writes of it; pieces of a line or two,
//! each in another page, cost more than what they move. **Structure.** The loops in which the destination
//! goes on are one long row, those in which the source does are another, whatever their extents: where
//! their elements lie stands in a table for each panel. By vectors that are lines, of which bytes are exchanged, most of
//! elements that make squares go through registers only, on a Zen 5, and where the processor doesn't scatter lines
//! (`through`). Other panels are pieces of 512 B each way, or, by vectors of half a line and from elements of 2 bytes on, of
//! 64 KiB: of 128 rows of the source and of 512 B of the destination at least, or 64 where rows are at few places. By
//! vectors that are lines, on the same processors, they are narrow from rows of 3 KiB and elements of 4 bytes on: 32
//! elements of 64 rows, of which the next as many are asked for between the lines that are written. They are put
//! together in strips in a first-level cache, from a copy in a second-level one or, where squares have sides of a line,
//! from the source; of each row whole lines are written past the caches, and what is left of it is carried to
//! the panel behind.

mod chain;
pub(crate) mod through;

use self::chain::Chain;
use crate::ahead::{prefetch, prefetch_near};
use crate::element::{Line, move_line};
use crate::instance::Instance;
use crate::nest::Nest;
use crate::stream;
use crate::tile::sides::{square_of_lines, square_of_two_lanes};
use crate::tile::{LINES_AHEAD_BYTES, are_lines, copy_row, is_line, pitch, square};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES, Vector};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Range, RangeInclusive};

/// Shorter rows of the destination are not worth it; those of the source have a line at least.
const LEAST_ROW_BYTES: usize = 1 << 10;

/// Rows at multiples of this, as far as the first loop of their chain says, are at few places of the caches, and of
/// memory, which gives their lines faster in the order in which they lie than down the rows.
const FEW_PLACES_BYTES: isize = 1 << 10;

/// What a panel has of a row, on either side, if its elements are not too many.
const PIECE_BYTES: usize = 8 * LINE_BYTES;

/// The most rows of the source in a panel.
const MOST_ROWS: usize = 256;

/// Room for what is copied in: a small part of a second-level cache.
const COPIED_BYTES: usize = 80 << 10;

/// Rows of the destination that are put together at once: as many as a line of the source has
/// elements, but for the largest and the smallest.
const STRIP_ROWS: RangeInclusive<usize> = 16..=32;

/// Room for these: part of a first-level cache.
const STRIP_BYTES: usize = 32 * pitch(PIECE_BYTES);

/// Rows of the destination that are gone on with before the next are begun.
const BAND_ROWS: usize = 512;

/// What a panel has by vectors of half a line, which read the source as it is and ask for the next panel meanwhile.
const PANEL_BYTES: usize = 64 << 10;

/// It has so many rows of the source at least, and so many where these are at few places.
const HALVES_ROWS: usize = 128;
const FEW_PLACES_ROWS: usize = 64;

/// So many rows ahead of a square lines of its strip are asked for once more, into a first-level cache: if rows are not at one
/// place of it, and all in one loop. Of several it is no gain.
const SOON_ROWS: usize = 16;

/// As [`BAND_ROWS`], by vectors of half a line.
const HALVES_BAND_ROWS: usize = 1024;

/// What a narrow panel has of the rows of the source, and how many rows.
const NARROW_COLUMNS: usize = 32;
const NARROW_ROWS: usize = 64;

/// They are for elements of so many bytes, and for rows of the destination of so many.
const NARROW_BYTES: RangeInclusive<usize> = 4..=LANE_BYTES;
const NARROW_ROW_BYTES: usize = 3 << 10;

/// As [`BAND_ROWS`], by narrow panels: of others there are fewer.
const NARROW_BAND_ROWS: usize = 2048;
const MOST_BAND_ROWS: usize = NARROW_BAND_ROWS;

/// Two long rows over elements of `bytes`: along `b` the destination goes on, along `a` the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flat {
    bytes: usize,
    a: Chain,
    b: Chain,
    /// How much of `a` and `b` a panel has.
    chunk: (usize, usize),
    /// How many rows of the destination are put together at once.
    strip: usize,
    /// How many are gone on with before the next are begun.
    band: usize,
    /// Whether the next panel is asked for row by row: the source's are at few places.
    by_rows: bool,
    /// Whether what is read soon is asked for once more.
    asks_soon: bool,
    /// Whether panels are narrow: the next is asked for while one is written, and not while it is read.
    is_narrow: bool,
    /// Whether panels wait in no cache on their way.
    through: bool,
}

/// A panel: where its elements are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel<'a> {
    element_bytes: usize,
    /// How far apart rows are that are copied in.
    width: usize,
    /// How far apart rows are that are put together.
    pitch: usize,
    /// Where the rows of the source start.
    src: &'a [isize],
    /// Where the rows of the destination go on.
    dst: &'a [isize],
    /// The number of the first of those in their band.
    row: usize,
    /// Whether rows begin with it, and whether they end with it.
    ends: (bool, bool),
    /// Whether the next panel is asked for: it has at least half as much of the source's rows, else most of what is
    /// asked for would not be read.
    asks: bool,
    /// As in [`Flat`].
    by_rows: bool,
    asks_soon: bool,
    is_narrow: bool,
    /// How far it is to the next, if that is known: for what goes through registers.
    next: Option<isize>,
}

/// Rows of the destination that a panel has.
pub(crate) type Strip = Range<usize>;

/// Where panels are put together, and what is carried of each row.
#[repr(align(64))]
pub(crate) struct Stage {
    copied: [u8; COPIED_BYTES],
    strip: [u8; STRIP_BYTES],
    carried: MaybeUninit<[[u8; LINE_BYTES]; MOST_BAND_ROWS]>,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let carried = MaybeUninit::uninit();
        Stage { copied: [0; COPIED_BYTES], strip: [0; STRIP_BYTES], carried }
    }
}

impl Flat {
    /// Takes long rows out of `nest`; `None` where there are none.
    pub(crate) fn of(nest: &mut Nest, by: Abilities) -> Option<Flat> {
        let bytes = nest.bytes;
        if bytes > LINE_BYTES {
            return None;
        }
        let b = Chain::take(nest, |l| l.dst, |l| l.src == bytes as isize)?;
        let a = Chain::take(nest, |l| l.src, |_| false)?;
        if b.count() * bytes < LEAST_ROW_BYTES || a.count() * bytes < LINE_BYTES {
            return None;
        }
        let most = PIECE_BYTES / bytes;
        let side = LINE_BYTES / bytes;
        let pitch_bytes = b.lines[0].stride.0;
        let by_rows = pitch_bytes % FEW_PLACES_BYTES == 0;
        let asks_soon = b.len == 1 && !by_rows && !is_near(pitch_bytes, PAGE_BYTES);
        let halves = is_line(2 * by.lanes) && are_lines(by.lanes, bytes, true);
        let rows = (a.count() * bytes, pitch_bytes, b.count() * bytes);
        let through = through::go_through(by, bytes, rows);
        let long = b.count() * bytes >= NARROW_ROW_BYTES;
        let is_narrow = by.moves_lines() && !through && long && NARROW_BYTES.contains(&bytes);
        let (rows, columns, band) = match () {
            () if through => {
                let (rows, columns) = through::chunk(by, bytes, (&a, &b));
                (rows, columns, MOST_BAND_ROWS - LINE_BYTES)
            }
            () if halves => {
                let rows = halves_rows(bytes, by_rows);
                (rows, PANEL_BYTES / rows / bytes, HALVES_BAND_ROWS)
            }
            () if is_narrow => (NARROW_ROWS, NARROW_COLUMNS, NARROW_BAND_ROWS),
            () => {
                let rows = most.min(MOST_ROWS);
                (rows, most.min((COPIED_BYTES / rows - LINE_BYTES) / bytes), BAND_ROWS)
            }
        };
        let strip = if halves { side } else { side.clamp(*STRIP_ROWS.start(), *STRIP_ROWS.end()) };
        debug_assert!(through || rows * pitch(columns * bytes) <= COPIED_BYTES);
        let chunk = (columns.min(a.count()), rows.min(b.count()));
        debug_assert!(through || strip * pitch(LINE_BYTES + rows * bytes) <= STRIP_BYTES);
        Some(Flat { bytes, a, b, chunk, strip, band, by_rows, asks_soon, is_narrow, through })
    }

    /// Moves all that the loops reach.
    ///
    /// # Safety
    /// As [`crate::copy`], with `src` and `dst` at a position of the other loops.
    pub(crate) unsafe fn run(
        &self,
        instance: &Instance,
        (src, stage, dst): (*const u8, &mut Stage, *mut u8),
    ) {
        let (rows, columns) = (self.a.count(), self.b.count());
        let mut from = [0; MOST_ROWS + LINE_BYTES];
        for band in self.parts(0..rows, self.band) {
            for b in self.parts(0..columns, self.chunk.1) {
                let from = &mut from[..b.len()];
                from.iter_mut().zip(self.b.from(b.start)).for_each(|(row, at)| *row = at.0);
                let ends = (b.start == 0, b.end == columns);
                let dst = dst.wrapping_add(b.start * self.bytes);
                // SAFETY: a part of the loops.
                unsafe { self.band(instance, (band.clone(), from, ends), (src, &mut *stage, dst)) };
            }
        }
    }

    /// The parts of `all`, each so long, or what is left. What goes through registers is no less than a line: the last
    /// has more.
    fn parts(&self, all: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
        let least = if self.through { LINE_BYTES / self.bytes } else { 1 };
        let mut next = all.start;
        std::iter::from_fn(move || {
            let (start, left) = (next, all.end - next);
            next += if left < most + least { left } else { most };
            (left > 0).then_some(start..next)
        })
    }

    /// # Safety
    /// As [`Flat::run`].
    unsafe fn band(
        &self,
        instance: &Instance,
        (band, from, ends): (Range<usize>, &[isize], (bool, bool)),
        (src, stage, dst): (*const u8, &mut Stage, *mut u8),
    ) {
        debug_assert!(band.len() <= MOST_BAND_ROWS, "a line is carried of each");
        let mut rows = self.a.from(band.start);
        let mut to = [0; PIECE_BYTES + LINE_BYTES];
        for part in self.parts(band.clone(), self.chunk.0) {
            let (a, to) = (part.start, &mut to[..part.len()]);
            to.iter_mut().zip(&mut rows).for_each(|(row, at)| *row = at.1);
            let panel = Panel {
                element_bytes: self.bytes,
                width: pitch(to.len() * self.bytes),
                pitch: pitch(LINE_BYTES + from.len() * self.bytes),
                src: from,
                dst: to,
                row: a - band.start,
                ends,
                asks: a + self.chunk.0 + self.chunk.0 / 2 <= band.end,
                by_rows: self.by_rows,
                asks_soon: self.asks_soon,
                is_narrow: self.is_narrow,
                next: self.next((&part, &band), from.len()),
            };
            // SAFETY: a panel of the loops.
            unsafe { self.panel(instance, &panel, (src.wrapping_add(a * self.bytes), stage, dst)) };
        }
    }

    /// How far it is from a panel of a `part` of a band, with so many rows, to the next: of the columns behind it, or of the
    /// rows behind these, if all are equally far apart.
    fn next(&self, (part, band): (&Range<usize>, &Range<usize>), rows: usize) -> Option<isize> {
        let so_far = ((part.start - band.start) * self.bytes).cast_signed();
        match part.end < band.end {
            // The line in which a row of this panel ends was read with it.
            true => Some((part.len() * self.bytes + LINE_BYTES - 1).cast_signed()),
            false if self.b.len == 1 => {
                Some(rows.cast_signed() * self.b.lines[0].stride.0 - so_far)
            }
            false => None,
        }
    }

    /// # Safety
    /// As [`Flat::run`].
    unsafe fn panel(
        &self,
        instance: &Instance,
        panel: &Panel<'_>,
        (src, stage, dst): (*const u8, &mut Stage, *mut u8),
    ) {
        if self.through {
            let carried =
                stage.carried.as_mut_ptr().cast::<u8>().wrapping_add(panel.row * LINE_BYTES);
            // SAFETY: the caller's contract; `of` has asked `go_through`, and no part is less than a line; a band has no
            // more rows than lines are carried.
            return unsafe { instance.joined.through(self.bytes)(panel, (src, carried, dst)) };
        }
        let direct = panel.is_direct(instance.abilities.lanes);
        if !direct {
            // SAFETY: the caller's contract.
            unsafe { (instance.copy_in)(panel, src, stage) };
        }
        for start in (0..panel.dst.len()).step_by(self.strip) {
            let strip = start..panel.dst.len().min(start + self.strip);
            // SAFETY: rows of the panel, which is copied in.
            unsafe {
                match instance.squares(self.bytes) {
                    Some(squares) => squares(panel, strip.clone(), (direct.then_some(src), stage)),
                    None => panel.elements(strip.clone(), stage),
                }
                (instance.flush)(panel, strip, (src, stage, dst));
            }
        }
    }
}

/// How many rows of the source, of elements of `bytes`, a panel has by vectors of half a line.
const fn halves_rows(bytes: usize, by_rows: bool) -> usize {
    let least = if by_rows { FEW_PLACES_ROWS } else { HALVES_ROWS };
    let rows = PIECE_BYTES / bytes;
    if rows < least { least } else { rows }
}

/// Whether rows so far apart are less than a line from multiples of `place`: of a page, they are at one place of a
/// first-level cache.
fn is_near(pitch_bytes: isize, place: isize) -> bool {
    let (at, line) = (pitch_bytes.rem_euclid(place), LINE_BYTES as isize);
    at < line || at > place - line
}

impl Panel<'_> {
    /// Whether squares with sides of a line are all of it, for vectors of so many `lanes`: then the
    /// source is read as it is.
    fn is_direct(&self, lanes: usize) -> bool {
        let sides = (self.src.len() | self.dst.len()) * self.element_bytes;
        are_lines(lanes, self.element_bytes, true) && sides.is_multiple_of(LINE_BYTES)
    }

    /// Asks for a part of the next panel while a square of a strip is put together, the first of whose `rows` is `first`:
    /// as many lines as it has rows.
    #[inline(always)]
    fn ask_next<const E: usize, const BY_ROWS: bool>(
        &self,
        (strip, first, rows): (&Strip, usize, &[isize]),
        src: *const u8,
    ) {
        let (side, piece) = const { (2 * LANE_BYTES / E, PANEL_BYTES / halves_rows(E, BY_ROWS)) };
        let next = src.wrapping_add(piece);
        if !BY_ROWS {
            let next = next.wrapping_add(strip.start * E);
            return rows.iter().for_each(|row| prefetch_near(next.wrapping_offset(*row)));
        }
        let lines = piece / LINE_BYTES;
        let few = side.min(lines);
        let first = strip.start * E / LINE_BYTES * self.src.len() + first;
        for first in (0..side / few).map(|i| first + i * few) {
            let next = next.wrapping_offset(self.src[first / lines]);
            let next = next.wrapping_add(first % lines * LINE_BYTES);
            for line in 0..few {
                prefetch_near(next.wrapping_add(line * LINE_BYTES));
            }
        }
    }

    /// Asks for what squares with `side` rows from row `first` on have of a strip that starts at `src`, or behind the last
    /// row for as much of the strip behind; but not for less.
    #[inline(always)]
    fn ask_soon(&self, (first, side): (usize, usize), src: *const u8) {
        let rows = self.src.len();
        let (first, src) = match first < rows {
            true => (first, src),
            false => (first - rows, src.wrapping_add(LINE_BYTES)),
        };
        if let Some(rows) = self.src.get(first..first + side) {
            for row in rows {
                prefetch(src.wrapping_offset(*row));
            }
        }
    }

    /// Asks for a line of the next panel each time it is called: row by row, from that on which is due while the strip
    /// from row `first` on is written.
    fn ask_late(&self, first: usize, src: *const u8) -> impl FnMut() {
        let panel_bytes = self.dst.len() * self.element_bytes;
        let lines = panel_bytes / LINE_BYTES;
        debug_assert!(lines > 0, "a source's row has a line at least");
        // The line in which a row of this panel ends was read with it.
        let next = src.wrapping_add(panel_bytes + LINE_BYTES - 1);
        let mut rows = self.src.iter().skip(first * self.src.len() / self.dst.len());
        let (mut at, mut left) = (next, 0);
        move || {
            if left == 0 {
                let Some(row) = rows.next() else { return };
                (at, left) = (next.wrapping_offset(*row), lines);
            }
            prefetch_near(at);
            (at, left) = (at.wrapping_add(LINE_BYTES), left - 1);
        }
    }

    /// Puts a strip together element by element.
    ///
    /// # Safety
    /// The panel is copied in.
    unsafe fn elements(&self, strip: Strip, stage: &mut Stage) {
        let bytes = self.element_bytes;
        let line = Line { count: self.src.len(), stride: (self.width as isize, bytes as isize) };
        for (i, a) in strip.enumerate() {
            let src = stage.copied.as_ptr().wrapping_add(a * bytes);
            let dst = stage.strip.as_mut_ptr().wrapping_add(i * self.pitch + LINE_BYTES);
            // SAFETY: a row of the panel.
            unsafe { move_line(bytes, line, src, dst) };
        }
    }
}

/// Copies a panel's rows of the source into the stage.
///
/// # Safety
/// They are valid for reads; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn copy_in<V: Vector>(panel: &Panel<'_>, src: *const u8, stage: &mut Stage) {
    let bytes = panel.dst.len() * panel.element_bytes;
    for (b, row) in panel.src.iter().enumerate() {
        let src = src.wrapping_offset(*row);
        let to = stage.copied.as_mut_ptr().wrapping_add(b * panel.width);
        // SAFETY: a row of the panel.
        unsafe { copy_row::<V>(src, to, bytes) };
    }
}

/// Puts a strip of a panel together by squares, of the source where it is `direct`.
///
/// # Safety
/// The panel is copied in, or valid for reads at what is `direct`, which [`Panel::is_direct`] allows;
/// the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn squares<V: Vector, const E: usize>(
    panel: &Panel<'_>,
    strip: Strip,
    (direct, stage): (Option<*const u8>, &mut Stage),
) {
    // SAFETY: the caller's contract.
    unsafe {
        match direct {
            None => squares_of_lanes::<V, E>(panel, strip, stage),
            Some(src) if const { are_lines(V::LANES, E, true) } => {
                match const { is_line(V::LANES) } {
                    true => squares_of_lines::<V, E>(panel, strip, (src, stage)),
                    false if panel.by_rows => {
                        squares_of_halves::<V, E, true, false>(panel, strip, (src, stage));
                    }
                    false if panel.asks_soon => {
                        squares_of_halves::<V, E, false, true>(panel, strip, (src, stage));
                    }
                    false => squares_of_halves::<V, E, false, false>(panel, strip, (src, stage)),
                }
            }
            Some(_) => unreachable!("only squares of lines are direct"),
        }
    }
}

/// By squares with sides of a line, from the source.
///
/// # Safety
/// As [`squares`].
#[inline(always)]
unsafe fn squares_of_lines<V: Vector, const E: usize>(
    panel: &Panel<'_>,
    strip: Strip,
    (src, stage): (*const u8, &mut Stage),
) {
    let side = const { LINE_BYTES / E };
    let new = stage.strip.as_mut_ptr().wrapping_add(LINE_BYTES);
    for a in strip.clone().step_by(side) {
        let from = src.wrapping_add(a * E);
        let to = new.wrapping_add((a - strip.start) * panel.pitch);
        for (rows, to) in
            panel.src.chunks_exact(side).zip((0..).map(|b| to.wrapping_add(b * LINE_BYTES)))
        {
            if !panel.is_narrow {
                let ahead = rows.iter().map(|row| row + LINES_AHEAD_BYTES);
                ahead.for_each(|at| prefetch_near(from.wrapping_offset(at)));
            }
            // SAFETY: a square of the panel, which the stage has room for: there are as many rows as it loads lines.
            unsafe {
                // So little is done for each that the compiler unrolls the square.
                let (mut row, mut to) = (rows.as_ptr(), to);
                let load = || {
                    let line = V::load(from.wrapping_offset(row.read()));
                    row = row.add(1);
                    line
                };
                square_of_lines::<V, E>(load, |column| {
                    column.store(to);
                    to = to.wrapping_add(panel.pitch);
                });
            }
        }
    }
}

/// As [`squares_of_lines`], by vectors of half a line and squares with as long sides: both that share lines of
/// the source, one after the other.
///
/// # Safety
/// As [`squares`].
#[inline(always)]
unsafe fn squares_of_halves<V: Vector, const E: usize, const BY_ROWS: bool, const SOON: bool>(
    panel: &Panel<'_>,
    strip: Strip,
    (src, stage): (*const u8, &mut Stage),
) {
    let (n, side) = const { (LANE_BYTES / E, 2 * LANE_BYTES / E) };
    let from = src.wrapping_add(strip.start * E);
    let new = stage.strip.as_mut_ptr().wrapping_add(LINE_BYTES);
    for (b, rows) in panel.src.chunks_exact(side).enumerate() {
        if panel.asks {
            panel.ask_next::<E, BY_ROWS>((&strip, b * side, rows), src);
        }
        if SOON {
            panel.ask_soon((b * side + SOON_ROWS, side), from);
        }
        for a in (0..strip.len()).step_by(side) {
            let from = from.wrapping_add(a * E);
            let mut to = new.wrapping_add(a * panel.pitch + b * side * E);
            // SAFETY: a square of the panel, which the stage has room for.
            unsafe {
                let at = |j: isize| from.wrapping_offset(rows[j as usize]);
                for columns in square_of_two_lanes::<V, E>(at) {
                    for column in columns.iter().take(n) {
                        column.store(to);
                        to = to.wrapping_add(panel.pitch);
                    }
                }
            }
        }
    }
}

/// By squares inside lanes, from what was copied in: also of what is behind its rows and below them,
/// which is of no use.
///
/// # Safety
/// As [`squares`].
#[inline(always)]
unsafe fn squares_of_lanes<V: Vector, const E: usize>(
    panel: &Panel<'_>,
    strip: Strip,
    stage: &mut Stage,
) {
    let n = const { LANE_BYTES / E };
    let new = stage.strip.as_mut_ptr().wrapping_add(LINE_BYTES);
    for a in strip.clone().step_by(n) {
        let from = stage.copied.as_ptr().wrapping_add(a * E);
        let to = new.wrapping_add((a - strip.start) * panel.pitch);
        for b in (0..panel.src.len()).step_by(n * V::LANES) {
            // SAFETY: squares of what was copied in, which the stage has room for.
            unsafe {
                let at = |j: usize| from.wrapping_add((b + j) * panel.width);
                let columns = square::<V, E>(|j| V::gather(|lane| at(j as usize + lane * n)));
                for (i, column) in columns.into_iter().enumerate().take(n) {
                    column.store(to.wrapping_add(i * panel.pitch + b * E));
                }
            }
        }
    }
}

/// Writes out the whole lines of a strip, and carries what is left of its rows. The panel is at `src`.
///
/// # Safety
/// The rows of the destination are valid for writes, with what was carried of them; the processor
/// has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn flush<V: Vector>(
    panel: &Panel<'_>,
    strip: Strip,
    (src, stage, dst): (*const u8, &mut Stage, *mut u8),
) {
    let bytes = panel.src.len() * panel.element_bytes;
    let carried = stage.carried.as_mut_ptr().cast::<u8>();
    let carried = carried.wrapping_add((panel.row + strip.start) * LINE_BYTES);
    let asks = const { is_line(V::LANES) } && panel.asks && panel.is_narrow;
    let mut ask = asks.then(|| panel.ask_late(strip.start, src));
    for (i, row) in panel.dst[strip].iter().enumerate() {
        let from = stage.strip.as_mut_ptr().wrapping_add(i * panel.pitch);
        let at = (from, carried.wrapping_add(i * LINE_BYTES), dst.wrapping_offset(*row));
        // SAFETY: a row of the strip, and what is carried of it.
        unsafe { stream::carry::<V>(at, bytes, panel.ends, ask.as_mut()) };
    }
}

impl fmt::Display for Flat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.chunk;
        let (rows, columns) = (self.a.count(), self.b.count());
        write!(f, "long rows, {columns} by {rows} elements of {} B, ", self.bytes)?;
        write!(f, "in panels of {a} by {b}, ")?;
        f.write_str(if self.through { "through registers, " } else { "" })?;
        f.write_str("by lines past the caches")
    }
}
