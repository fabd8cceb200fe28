//! Long rows of which the source has short ones that follow each other, as structures and pixels do, by vectors that are
//! lines.
//!
//! **Hazard.** A line that two panels write costs a read and two writes of it. **Structure.** As in [`super::through`]: a
//! line of a row of the destination is picked out of its columns of two squares that follow each other, and written past
//! the caches between the lines that are asked for. All of the loops is one panel, since the source is read from end to
//! end.

use super::chain::Chain;
use super::through::{Targets, are_moved};
use crate::ahead::{READ_ON_BYTES, prefetch_near};
use crate::narrow::columns_of;
use crate::tile::{PAIR, lanes, square};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, Vector};

/// Rows of the source, one right behind the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short<'a> {
    /// How many there are: as many as a line has elements at least.
    rows: usize,
    /// Where the rows of the destination start: one for each element of a row.
    dst: &'a [isize],
}

impl<'a> Short<'a> {
    pub(super) fn new(rows: usize, dst: &'a [isize]) -> Self {
        Short { rows, dst }
    }
}

/// Longer rows, and such of more elements, were not measured.
const MOST_ROW_BYTES: usize = 4 * LINE_BYTES;
pub(super) const MOST_COLUMNS: usize = LINE_BYTES;

/// Whether rows of the source along `a` are moved so, by as many elements as `b` has: they follow each other, are a few
/// lines at most, and no less than a lane, or whole parts of one. Where the processor doesn't hold lines it was not measured.
pub(super) fn are_short(by: Abilities, bytes: usize, (a, b): (&Chain, &Chain)) -> bool {
    let row = a.count() * bytes;
    let packed = b.len == 1 && b.lines[0].stride.0 == row.cast_signed();
    let few = row <= MOST_ROW_BYTES && a.count() <= MOST_COLUMNS;
    let lanes = row >= LANE_BYTES || a.count().is_power_of_two() && a.count() > 1;
    packed && few && lanes && by.holds_lines() && are_moved(by.lanes, by.unit_bytes, bytes)
}

/// Moves short rows.
///
/// # Safety
/// The elements are valid for reads at the first of `at` and for writes at the last, apart, and a line of each column at
/// the second, which is aligned; of the rows [`are_short`] says that they are moved so. The processor has the instruction
/// set of `V`.
#[inline(always)]
pub(crate) unsafe fn short<V: Vector, const E: usize>(
    rows: Short<'_>,
    at: (*const u8, *mut u8, *mut u8),
) {
    if const { !are_moved(V::LANES, V::UNIT_BYTES, E) } {
        unreachable!("only such vectors and elements are moved so");
    }
    // SAFETY: the caller's contract.
    unsafe {
        match rows.dst.len() {
            2 => short_of::<V, E, 2>(rows, at),
            4 if const { E <= 8 } => short_of::<V, E, 4>(rows, at),
            8 if const { E <= 4 } => short_of::<V, E, 8>(rows, at),
            _ => short_of::<V, E, 0>(rows, at),
        }
    }
}

/// As [`short`], of rows of `A` elements, or of a lane or more.
///
/// # Safety
/// As [`short`].
#[inline(always)]
unsafe fn short_of<V: Vector, const E: usize, const A: usize>(
    rows: Short<'_>,
    (src, carried, dst): (*const u8, *mut u8, *mut u8),
) {
    let (side, step) = (const { LINE_BYTES / E }, if A > 0 { A } else { LANE_BYTES / E });
    let (a, pitch) = (rows.dst.len(), rows.dst.len() * E);
    let mut next = src.wrapping_offset(READ_ON_BYTES);
    let lane = |start: usize| {
        // A last lane overlaps the one before it.
        let first = start.min(a - step);
        let carried = carried.wrapping_add(first * LINE_BYTES);
        (first * E, Targets { dst: &rows.dst[first..first + step], old: start - first, carried })
    };
    let whole = rows.rows / side;
    // SAFETY: squares of the rows, and the end of those of the destination.
    unsafe {
        for k in (0..whole).step_by(PAIR) {
            let (src, dst) = (src.wrapping_add(k * side * pitch), dst.wrapping_add(k * LINE_BYTES));
            let second = if k + 1 < whole { side * pitch } else { 0 };
            for start in (0..a).step_by(step) {
                let (from, targets) = lane(start);
                let src = src.wrapping_add(from);
                let columns = columns::<V, E, A>(src, pitch);
                let next_columns = self::columns::<V, E, A>(src.wrapping_add(second), pitch);
                for i in targets.old..step {
                    prefetch_near(next);
                    prefetch_near(next.wrapping_add(LINE_BYTES));
                    next = next.wrapping_add(2 * LINE_BYTES);
                    targets.go_on((k == 0, i), columns[i], dst);
                    if second > 0 {
                        targets.go_on((false, i), next_columns[i], dst.wrapping_add(LINE_BYTES));
                    }
                }
            }
        }
        let (dst, rest) = (dst.wrapping_add(whole * LINE_BYTES), rows.rows % side * E);
        let src = src.wrapping_add((rows.rows - side) * pitch);
        for start in (0..a).step_by(step) {
            let (from, targets) = lane(start);
            let columns = columns::<V, E, A>(src.wrapping_add(from), pitch);
            targets.end((0, rest), &columns[..step], dst);
        }
    }
}

/// The columns of as many rows as a line has elements, so far apart: all `A`, or those of a lane.
///
/// # Safety
/// As [`short`].
#[inline(always)]
unsafe fn columns<V: Vector, const E: usize, const A: usize>(
    src: *const u8,
    pitch: usize,
) -> [V; LANE_BYTES] {
    let (n, pitch) = (const { (LANE_BYTES / E) as isize }, pitch.cast_signed());
    // SAFETY: the caller's contract.
    unsafe {
        match A {
            0 => square::<V, E>(|j| lanes::<V>(src.wrapping_offset(j * pitch), n * pitch)),
            _ => columns_of::<V, E, A>(src),
        }
    }
}
