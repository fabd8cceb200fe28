//! Panels of long rows that wait in no cache on their way, by vectors that are lines.
//!
//! **Hazard.** What is put together first is read and written by turns, and memory waits for one side or the other.
//! **Structure.** A line of a row is picked out of its columns of two squares that follow each other, of which the first
//! is carried, and written past the caches between the lines that are asked for. A last square ends with the rows.
//! Squares are taken lane by lane: so few columns at once find room in registers.

use super::chain::Chain;
use super::{LEAST_ROW_BYTES, MOST_ROWS, Panel, is_near};
use crate::ahead::prefetch_near;
use crate::tile::picked::line_of;
use crate::tile::{SCATTERING_BYTES, is_line, square};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, Vector};

/// The lanes of a line.
const LANES: usize = LINE_BYTES / LANE_BYTES;

/// Where the processor holds lines a panel has so much of the rows of either side, and no more columns than so many: with
/// half or twice as much of either it was up to a tenth slower, and on the whole no faster.
const HELD_BYTES: usize = 4 * LINE_BYTES;
const HELD_COLUMNS: usize = 64;

/// There rows of the destination are no shorter than this; of elements of 8 and 16 bytes than that, and the source's have all
/// of a panel's.
const HELD_ROW_BYTES: usize = LEAST_ROW_BYTES + LINE_BYTES;
const LONG_ROW_BYTES: usize = 2 * LEAST_ROW_BYTES;

/// Rows less than a line from multiples of this are at few places for squares of elements of a byte, which have 64.
const CROWDED_BYTES: isize = 2 << 10;

/// On a Zen 5 rows of the source that follow each other are packed, up to so long.
const PACKED_BYTES: usize = 8 << 10;

/// A panel has as many of these as make so much of a row of the destination.
const FEW_BYTES: usize = 4 * LINE_BYTES;

/// It has all of rows of so many elements, and of longer ones about so many.
const WHOLE_ELEMENTS: usize = 256;
const PART_ELEMENTS: usize = 128;

/// It has so many elements of other rows, and as many rows as make so much of one of the destination.
const COLUMNS: usize = 32;
const LONG_BYTES: usize = 2 << 10;

/// Whether long rows of elements of `bytes` go through registers, wherever they start: those of the source so long and so
/// far apart, to such of the destination. On a Zen 5 so do elements of 2 bytes and more, and others where lines are held.
/// There that is up to 1.8 times as fast, but for short rows, and for elements of a byte in rows at few places of a
/// first-level cache, of which a square has more than that keeps.
pub(crate) fn go_through(
    by: Abilities,
    bytes: usize,
    (from, pitch, to): (usize, isize, usize),
) -> bool {
    let long = match bytes {
        5.. => from >= HELD_BYTES && to >= LONG_ROW_BYTES,
        _ => to >= HELD_ROW_BYTES,
    };
    let crowded = bytes == 1 && (is_near(pitch, CROWDED_BYTES) || pitch % SCATTERING_BYTES == 0);
    let held = by.holds_lines() && long && !crowded;
    (held || by.scatters_lines() && bytes > 1) && are_moved(by.lanes, by.unit_bytes, bytes)
}

/// Whether vectors of so many `lanes`, which pick units of so many bytes, move such.
pub(super) const fn are_moved(lanes: usize, unit_bytes: usize, bytes: usize) -> bool {
    is_line(lanes) && unit_bytes == 1 && bytes.is_power_of_two() && bytes <= LANE_BYTES
}

/// How many rows of the source a panel has of long rows along `b`, and how many columns, along `a`.
pub(super) fn chunk(by: Abilities, bytes: usize, (a, b): (&Chain, &Chain)) -> (usize, usize) {
    if by.holds_lines() {
        return (HELD_BYTES / bytes, (HELD_BYTES / bytes).min(HELD_COLUMNS));
    }
    let (columns, row) = (a.count(), a.count() * bytes);
    let packed = b.len == 1 && b.lines[0].stride.0 == row.cast_signed() && row <= PACKED_BYTES;
    let (rows, columns) = match packed {
        true if columns <= WHOLE_ELEMENTS => (FEW_BYTES / bytes, columns),
        true => (FEW_BYTES / bytes, columns.div_ceil(columns.div_ceil(PART_ELEMENTS))),
        false => ((LONG_BYTES / bytes).min(MOST_ROWS), COLUMNS),
    };
    (rows, columns.next_multiple_of(LINE_BYTES / bytes))
}

/// Moves a panel.
///
/// # Safety
/// The panel's elements are valid for reads at `src`, and for writes at `dst`, apart. It has as many rows and columns as a
/// line has elements at least, and a multiple of that of rows where they don't end with it; a line is carried of each of its
/// columns at `carried`, and valid for both. [`go_through`] says that such vectors move such elements, and the processor has
/// their instruction set.
#[inline(always)]
pub(crate) unsafe fn through<V: Vector, const E: usize>(
    panel: &Panel<'_>,
    (src, carried, dst): (*const u8, *mut u8, *mut u8),
) {
    if const { !are_moved(V::LANES, V::UNIT_BYTES, E) } {
        unreachable!("only such vectors and elements are moved so");
    }
    let (n, side) = const { (LANE_BYTES / E, LINE_BYTES / E) };
    let mut asks = Asks::of(panel, src);
    for start in (0..panel.dst.len()).step_by(side) {
        // A last strip overlaps the one before it.
        let a = start.min(panel.dst.len() - side);
        let from = src.wrapping_add(a * E);
        let targets = Targets {
            dst: &panel.dst[a..a + side],
            old: start - a,
            carried: carried.wrapping_add(a * LINE_BYTES),
        };
        // SAFETY: squares of the panel, and the end of its rows.
        unsafe {
            for (k, rows) in panel.src.chunks_exact(side).enumerate() {
                let begins = panel.ends.0 && k == 0;
                let dst = dst.wrapping_add(k * LINE_BYTES);
                for lane in 0..LANES {
                    asks.ask(n);
                    let columns = columns::<V, E>(rows, from.wrapping_add(lane * LANE_BYTES));
                    for (i, &column) in columns.iter().enumerate().take(n) {
                        targets.go_on((begins, lane * n + i), column, dst);
                    }
                }
            }
            if panel.ends.1 {
                let (whole, rest) = (panel.src.len() / side, panel.src.len() % side * E);
                let rows = &panel.src[panel.src.len() - side..];
                let dst = dst.wrapping_add(whole * LINE_BYTES);
                for lane in 0..LANES {
                    let columns = columns::<V, E>(rows, from.wrapping_add(lane * LANE_BYTES));
                    targets.end((lane * n, rest), &columns[..n], dst);
                }
            }
        }
    }
}

/// Rows of the destination, of which some are `old`: moved before.
pub(super) struct Targets<'a> {
    pub(super) dst: &'a [isize],
    pub(super) old: usize,
    pub(super) carried: *mut u8,
}

impl Targets<'_> {
    /// Where row `i` goes on from: the line there, and how much of that it has.
    #[inline(always)]
    fn at(&self, i: usize, dst: *mut u8) -> (*mut u8, usize) {
        let at = dst.wrapping_offset(self.dst[i]);
        let begun = at.addr() % LINE_BYTES;
        (at.wrapping_sub(begun), begun)
    }

    /// Goes on with row `i` by a line, if that is not old; of a row that `begins` by what of the first is its own.
    ///
    /// # Safety
    /// As [`through`], for a `column` of a square of the panel.
    #[inline(always)]
    pub(super) unsafe fn go_on<V: Vector>(
        &self,
        (begins, i): (bool, usize),
        column: V,
        dst: *mut u8,
    ) {
        if i < self.old {
            return;
        }
        let (to, begun) = self.at(i, dst);
        let held = self.carried.wrapping_add(i * LINE_BYTES);
        // SAFETY: the caller's contract.
        unsafe {
            if begins && begun > 0 {
                line_of((column, column), LINE_BYTES - begun).store_some(to, !0 << begun);
            } else {
                let before = if begins { column } else { V::load(held) };
                line_of((before, column), LINE_BYTES - begun).stream(to);
            }
            column.store(held);
        }
    }

    /// Ends rows from `first` on with the last `rest` bytes of `columns` that end with them.
    ///
    /// # Safety
    /// As [`Targets::go_on`], where a line of each is carried.
    #[inline(always)]
    pub(super) unsafe fn end<V: Vector>(
        &self,
        (first, rest): (usize, usize),
        columns: &[V],
        dst: *mut u8,
    ) {
        for (i, &column) in columns.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe { self.end_row((first + i, rest), column, dst) };
        }
    }

    /// As [`Targets::end`], row `i`, if that is not old.
    ///
    /// # Safety
    /// As [`Targets::end`].
    #[inline(always)]
    unsafe fn end_row<V: Vector>(&self, (i, rest): (usize, usize), column: V, dst: *mut u8) {
        if i < self.old {
            return;
        }
        let (to, begun) = self.at(i, dst);
        let bytes = begun + rest;
        // SAFETY: the caller's contract.
        unsafe {
            let held = V::load(self.carried.wrapping_add(i * LINE_BYTES));
            let new = line_of((column, column), LINE_BYTES - rest);
            let line = line_of((held, new), LINE_BYTES - begun);
            if bytes < LINE_BYTES {
                return line.store_some(to, (1 << bytes) - 1);
            }
            line.stream(to);
            let left = bytes - LINE_BYTES;
            if left > 0 {
                let line = line_of((column, column), LINE_BYTES - left);
                line.store_some(to.wrapping_add(LINE_BYTES), (1 << left) - 1);
            }
        }
    }
}

/// The columns of a lane of as many rows as a line has elements, which start so far behind `src`.
///
/// # Safety
/// As [`square`], for as many rows at least, whose elements are valid for reads there.
#[inline(always)]
unsafe fn columns<V: Vector, const E: usize>(rows: &[isize], src: *const u8) -> [V; LANE_BYTES] {
    let n = const { LANE_BYTES / E };
    debug_assert!(rows.len() >= const { LINE_BYTES / E });
    let rows = rows.as_ptr();
    // SAFETY: the caller's contract; there are so many rows. With more checks the compiler would not unroll it.
    unsafe {
        square::<V, E>(|j| {
            V::gather(|lane| src.wrapping_offset(rows.add(j as usize + lane * n).read()))
        })
    }
}

/// What is asked for meanwhile: the rows of the next panel, as far as this one's are long.
struct Asks<'a> {
    rows: std::slice::Iter<'a, isize>,
    first: *const u8,
    lines: usize,
    next: *const u8,
    left: usize,
}

impl<'a> Asks<'a> {
    fn of(panel: &'a Panel<'_>, src: *const u8) -> Asks<'a> {
        let lines = panel.dst.len() * panel.element_bytes / LINE_BYTES;
        let first = src.wrapping_offset(panel.next.unwrap_or(0));
        let rows = if panel.next.is_some() { panel.src } else { &[] };
        Asks { rows: rows.iter(), first, lines, next: first, left: 0 }
    }

    /// Asks for so many lines, if there are any left.
    #[inline(always)]
    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            if self.left == 0 {
                let Some(row) = self.rows.next() else { return };
                (self.next, self.left) = (self.first.wrapping_offset(*row), self.lines);
            }
            prefetch_near(self.next);
            (self.next, self.left) = (self.next.wrapping_add(LINE_BYTES), self.left - 1);
        }
    }
}
