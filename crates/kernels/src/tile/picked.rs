//! Rows of any number of elements that follow each other, past the caches, by vectors that are lines.
//!
//! **Hazard.** As in [`super::rows`]: what is stored on the way waits for what goes past the caches. **Structure.** A
//! line of a row is picked out of its columns of two squares that follow each other, of which the last has waited. The
//! last square ends with the rows: there the end of a row and the column that the next starts with are one line.

use super::{Tile, is_line, sides::columns_of_lines};
use crate::ahead::prefetch_near;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};

/// Whether vectors of so many `lanes`, which pick units of so many bytes, move such rows of elements of `bytes`. A
/// square of smaller ones has more columns than may wait.
pub(crate) const fn are_picked(lanes: usize, unit_bytes: usize, bytes: usize) -> bool {
    is_line(lanes) && unit_bytes <= bytes && matches!(bytes, 4 | 8)
}

/// The numbers of two lines' bytes.
static NUMBERS: [u8; 2 * LINE_BYTES] = numbers();

const fn numbers() -> [u8; 2 * LINE_BYTES] {
    let mut numbers = [0; 2 * LINE_BYTES];
    let mut i = 0;
    while i < numbers.len() {
        numbers[i] = i as u8;
        i += 1;
    }
    numbers
}

/// A line's bytes of two vectors, one behind the other, from number `from` on.
///
/// # Safety
/// The processor has the instruction set of `V`, whose vectors are lines; `from` is no more than a line.
#[inline(always)]
pub(crate) unsafe fn line_of<V: Vector>(both: (V, V), from: usize) -> V {
    // SAFETY: the caller's contract: there are so many numbers.
    unsafe { V::pick(both, V::load(NUMBERS.as_ptr().add(from))) }
}

/// How much of what starts at `dst` lies before its first whole line.
#[inline(always)]
fn head_bytes(dst: *mut u8) -> usize {
    dst.addr().wrapping_neg() % LINE_BYTES
}

/// Moves as many rows as a line has elements.
///
/// # Safety
/// As [`super::along_b`], for `a` of so many, and [`are_picked`] says so. Rows are longer than a line, but not whole
/// lines, and follow each other from the start of a line on.
#[inline(always)]
pub(super) unsafe fn picked<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let side = const { LINE_BYTES / E };
    let line = side as isize * tile.src.0;
    let (mut src, mut dst, mut next) = (src, dst, tile.next);
    // SAFETY: the caller's contract: squares of the tile.
    unsafe {
        let mut first = [V::load(src); LANE_BYTES];
        let mut held = first;
        ask(tile, (&mut next, side), src);
        let mut i = 0;
        columns_of_lines::<V, E>((src, tile.src.0), |column| {
            (first[i], held[i]) = (column, column);
            i += 1;
        });
        src = src.wrapping_offset(line);
        for _ in 1..tile.b / side {
            let mut near = next;
            if near.is_none() {
                ask(tile, (&mut next, side), src);
            }
            let (mut i, mut to) = (0, dst);
            // So little is done for each that the compiler unrolls the square, and keeps it in registers.
            columns_of_lines::<V, E>((src, tile.src.0), |column| {
                // Between the lines that are written memory has time for it.
                if let Some(near) = &mut near {
                    prefetch_near(*near);
                    *near = near.wrapping_add(LINE_BYTES);
                }
                let head = head_bytes(to);
                line_of((held[i], column), head).stream(to.wrapping_add(head));
                held[i] = column;
                (i, to) = (i + 1, to.wrapping_offset(tile.dst.0));
            });
            next = near;
            src = src.wrapping_offset(line);
            dst = dst.wrapping_add(LINE_BYTES);
        }
        let rest = tile.b % side;
        ask(tile, (&mut next, rest), src);
        let src = src.wrapping_offset(-((side - rest) as isize * tile.src.0));
        end::<V, E>((tile, rest * E), (&first, &held), (src, dst));
    }
}

/// Asks for so many lines: of one piece, or of what lies ahead of the rows at `src`.
#[inline(always)]
fn ask(tile: &Tile, (next, count): (&mut Option<*const u8>, usize), src: *const u8) {
    if next.is_some() {
        super::ask(next, count);
    } else if tile.ahead != 0 {
        for j in 0..count as isize {
            prefetch_near(src.wrapping_offset(j * tile.src.0 + tile.ahead));
        }
    }
}

/// Writes what is left of the rows: a line that ends in the last `rest` bytes, and one with the start of the next row.
///
/// # Safety
/// As [`picked`], for the last square at `src`, and lines at `dst` that begin with what is `held`.
#[inline(always)]
unsafe fn end<V: Vector, const E: usize>(
    (tile, rest): (&Tile, usize),
    (first, held): (&[V; LANE_BYTES], &[V; LANE_BYTES]),
    (src, mut dst): (*const u8, *mut u8),
) {
    let side = const { LINE_BYTES / E };
    // SAFETY: the caller's contract; the last row ends with a line.
    unsafe {
        let mut last = [V::load(src); LANE_BYTES];
        let mut i = 0;
        columns_of_lines::<V, E>((src, tile.src.0), |column| {
            last[i] = column;
            i += 1;
        });
        for i in 0..side {
            let head = head_bytes(dst);
            if rest >= head {
                let new = line_of((last[i], last[i]), LINE_BYTES - rest);
                line_of((held[i], new), head).stream(dst.wrapping_add(head));
            }
            let next = dst.wrapping_add(LINE_BYTES + rest);
            let head = head_bytes(next);
            if head > 0 {
                let line = line_of((last[i], first[(i + 1) % side]), head);
                line.stream(next.wrapping_add(head).wrapping_sub(LINE_BYTES));
            }
            dst = dst.wrapping_offset(tile.dst.0);
        }
    }
}
