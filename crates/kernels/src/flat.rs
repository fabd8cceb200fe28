//! Transposes of long rows that start on no line, or at few places of pages.
//!
//! **Hazard.** A line that two panels write costs a read and two writes of it; pieces of a line or two,
//! each in another page, cost more than what they move. **Structure.** The loops in which the destination
//! goes on are one long row, those in which the source does are another, whatever their extents: where
//! their elements lie stands in a table for each panel. By vectors that are lines, of which bytes are exchanged, most of
//! elements that make squares go through registers only, on a Zen 5, and where the processor doesn't scatter lines
//! (`through`), and there so does all of what follows each other in rows of a few lines at most, as one panel (`short`). Other
//! panels are pieces of 512 B each way, or, by vectors of half a line and from elements of 2 bytes on, of
//! 64 KiB: of 128 rows of the source and of 512 B of the destination at least, or 64 where rows are at few places. By
//! vectors that are lines, on the same processors, they are narrow from rows of 3 KiB and elements of 4 bytes on: 32
//! elements of 64 rows, of which the next as many are asked for between the lines that are written. They are put
//! together in strips in a first-level cache (`strips`), from a copy in a second-level one or, where squares have sides of a line,
//! from the source; of each row whole lines are written past the caches, and what is left of it is carried to
//! the panel behind.

mod chain;
pub(crate) mod short;
pub(crate) mod strips;
pub(crate) mod through;

use self::chain::Chain;
use self::short::{MOST_COLUMNS, Short, are_short};
use crate::instance::Instance;
use crate::nest::Nest;
use crate::tile::{are_lines, is_line, pitch};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Range, RangeInclusive};

/// Shorter rows of the destination are not worth it; those of the source have a line at least, but for [`short`].
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
    passes: Passes,
}

/// How panels go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    /// They are put together by strips.
    Strips,
    /// As `Strips`, of narrow ones: the next is asked for while one is written, and not while it is read.
    Narrow,
    /// Through registers: they wait in no cache on their way.
    Registers,
    /// As `Registers`, in one: the source's rows are short.
    Short,
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
    /// As [`Passes::Narrow`].
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
        let short = are_short(by, bytes, (&a, &b));
        if b.count() * bytes < LEAST_ROW_BYTES || a.count() * bytes < LINE_BYTES && !short {
            return None;
        }
        let most = PIECE_BYTES / bytes;
        let side = LINE_BYTES / bytes;
        let pitch_bytes = b.lines[0].stride.0;
        let by_rows = pitch_bytes % FEW_PLACES_BYTES == 0;
        let asks_soon = b.len == 1 && !by_rows && !is_near(pitch_bytes, PAGE_BYTES);
        let halves = is_line(2 * by.lanes) && are_lines(by.lanes, bytes, true);
        let rows = (a.count() * bytes, pitch_bytes, b.count() * bytes);
        let long = b.count() * bytes >= NARROW_ROW_BYTES;
        let passes = match () {
            () if short => Passes::Short,
            () if through::go_through(by, bytes, rows) => Passes::Registers,
            () if by.moves_lines() && long && NARROW_BYTES.contains(&bytes) => Passes::Narrow,
            () => Passes::Strips,
        };
        let (rows, columns, band) = match passes {
            Passes::Short => (b.count(), a.count(), a.count()),
            Passes::Registers => {
                let (rows, columns) = through::chunk(by, bytes, (&a, &b));
                (rows, columns, MOST_BAND_ROWS - LINE_BYTES)
            }
            Passes::Narrow => (NARROW_ROWS, NARROW_COLUMNS, NARROW_BAND_ROWS),
            Passes::Strips if halves => {
                let rows = halves_rows(bytes, by_rows);
                (rows, PANEL_BYTES / rows / bytes, HALVES_BAND_ROWS)
            }
            Passes::Strips => {
                let rows = most.min(MOST_ROWS);
                (rows, most.min((COPIED_BYTES / rows - LINE_BYTES) / bytes), BAND_ROWS)
            }
        };
        let strip = if halves { side } else { side.clamp(*STRIP_ROWS.start(), *STRIP_ROWS.end()) };
        let waits = matches!(passes, Passes::Strips | Passes::Narrow);
        debug_assert!(!waits || rows * pitch(columns * bytes) <= COPIED_BYTES);
        let chunk = (columns.min(a.count()), rows.min(b.count()));
        debug_assert!(!waits || strip * pitch(LINE_BYTES + rows * bytes) <= STRIP_BYTES);
        Some(Flat { bytes, a, b, chunk, strip, band, by_rows, asks_soon, passes })
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
        if self.passes == Passes::Short {
            // SAFETY: the caller's contract.
            return unsafe { self.short(instance, (src, stage, dst)) };
        }
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

    /// As [`Flat::run`], of short rows of the source.
    ///
    /// # Safety
    /// As [`Flat::run`].
    unsafe fn short(
        &self,
        instance: &Instance,
        (src, stage, dst): (*const u8, &mut Stage, *mut u8),
    ) {
        let (mut to, columns) = ([0; MOST_COLUMNS], self.a.count());
        to.iter_mut().zip(self.a.from(0)).for_each(|(row, at)| *row = at.1);
        let rows = Short::new(self.b.count(), &to[..columns]);
        let carried = stage.carried.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's contract; `of` has asked `are_short`, and whether rows of the destination are long.
        unsafe { instance.joined.short(self.bytes)(rows, (src, carried, dst)) }
    }

    /// The parts of `all`, each so long, or what is left. What goes through registers is no less than a line: the last
    /// has more.
    fn parts(&self, all: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
        let least = if self.passes == Passes::Registers { LINE_BYTES / self.bytes } else { 1 };
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
                is_narrow: self.passes == Passes::Narrow,
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
        if self.passes == Passes::Registers {
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

impl fmt::Display for Flat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.chunk;
        let (rows, columns) = (self.a.count(), self.b.count());
        write!(f, "long rows, {columns} by {rows} elements of {} B, ", self.bytes)?;
        f.write_str(&match self.passes {
            Passes::Short => "read from end to end, through registers, ".to_owned(),
            Passes::Registers => format!("in panels of {a} by {b}, through registers, "),
            Passes::Narrow | Passes::Strips => format!("in panels of {a} by {b}, "),
        })?;
        f.write_str("by lines past the caches")
    }
}
