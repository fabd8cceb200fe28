//! Panels of long rows that are put together by strips, which are written out as whole lines.

use super::{PANEL_BYTES, Panel, Stage, Strip, halves_rows};
use crate::ahead::{prefetch, prefetch_near};
use crate::element::{Line, move_line};
use crate::stream;
use crate::tile::sides::{square_of_lines, square_of_two_lanes};
use crate::tile::{LINES_AHEAD_BYTES, are_lines, copy_row, is_line, square};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};

/// So many rows ahead of a square lines of its strip are asked for once more, into a first-level cache: if rows are not at one
/// place of it, and all in one loop. Of several it is no gain.
const SOON_ROWS: usize = 16;

impl Panel<'_> {
    /// Whether squares with sides of a line are all of it, for vectors of so many `lanes`: then the
    /// source is read as it is.
    pub(super) fn is_direct(&self, lanes: usize) -> bool {
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
    pub(super) unsafe fn elements(&self, strip: Strip, stage: &mut Stage) {
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
