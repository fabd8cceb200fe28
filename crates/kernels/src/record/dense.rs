//! Dense records of a few fields of one size, by squares.
//!
//! **Hazard.** Tables take as many instructions for each lane of the result as there are fields. **Structure.** Fields
//! are moved by squares, of as many as a lane has, the last of which overlaps the one before it: as many as records have
//! are known, so that nothing is made of what is moved twice, and nothing is to be found out about where records lie.

use super::block::AHEAD_BYTES;
use super::{Records, Rows};
use crate::ahead::prefetch;
use crate::tile::{lanes, square};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};

/// Moves the first records of a block: as many as whole vectors have, which is what it returns.
///
/// # Safety
/// As [`super::block::run`], for dense records of fields of one size.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(records: &Records<'_>, count: usize, rows: &Rows) -> usize {
    // SAFETY: the caller's contract.
    unsafe {
        match (records.fields.at(0).bytes, records.fields.len()) {
            (4, 5) => by::<V, 4, 5>(records, count, rows),
            (4, 6) => by::<V, 4, 6>(records, count, rows),
            (4, _) => by::<V, 4, 7>(records, count, rows),
            (_, 5) => by::<V, 8, 5>(records, count, rows),
            (_, 6) => by::<V, 8, 6>(records, count, rows),
            (..) => by::<V, 8, 7>(records, count, rows),
        }
    }
}

/// # Safety
/// As [`run`], for `N` fields of `E` bytes, of which a lane has fewer.
#[inline(always)]
unsafe fn by<V: Vector, const E: usize, const N: usize>(
    records: &Records<'_>,
    count: usize,
    rows: &Rows,
) -> usize {
    // SAFETY: the caller's contract.
    unsafe {
        match records.splits {
            true => apart::<V, E, N>(count, rows, records.streams),
            false => together::<V, E, N>(count, rows),
        }
    }
}

/// # Safety
/// As [`by`], for records that are taken apart.
#[inline(always)]
unsafe fn apart<V: Vector, const E: usize, const N: usize>(
    count: usize,
    rows: &Rows,
    streams: bool,
) -> usize {
    let n = const { LANE_BYTES / E };
    let to: [*mut u8; N] = std::array::from_fn(|i| rows.to[i].at);
    let whole = count / (n * V::LANES) * (n * V::LANES);
    for at in (0..whole).step_by(n * V::LANES) {
        let src = rows.from[0].at.wrapping_add(at * N * E);
        if streams {
            for line in 0..const { (V::LANES * N * LANE_BYTES).div_ceil(LINE_BYTES) } {
                prefetch(src.wrapping_add(AHEAD_BYTES + line * LINE_BYTES));
            }
        }
        for part in 0..const { N.div_ceil(LANE_BYTES / E) } {
            let first = (part * n).min(N - n);
            let src = src.wrapping_add(first * E).cast::<[u8; E]>();
            // SAFETY: these fields of as many records.
            unsafe {
                let columns = square::<V, E>(|r| {
                    lanes(src.wrapping_offset(r * N as isize).cast(), (n * N * E) as isize)
                });
                // So it is unrolled.
                for i in 0..n {
                    if first + i >= part * n {
                        columns[i].store(to[first + i].wrapping_add(at * E));
                    }
                }
            }
        }
    }
    whole
}

/// # Safety
/// As [`by`], for records that are put together.
#[inline(always)]
unsafe fn together<V: Vector, const E: usize, const N: usize>(count: usize, rows: &Rows) -> usize {
    let n = const { LANE_BYTES / E };
    let from: [*const u8; N] = std::array::from_fn(|i| rows.from[i].at);
    let whole = count / (n * V::LANES) * (n * V::LANES);
    for at in (0..whole).step_by(n * V::LANES) {
        let dst = rows.to[0].at.wrapping_add(at * N * E);
        for part in 0..const { N.div_ceil(LANE_BYTES / E) } {
            let first = (part * n).min(N - n);
            // SAFETY: these fields of as many records.
            unsafe {
                let records =
                    square::<V, E>(|i| V::load(from[first + i as usize].wrapping_add(at * E)));
                for (r, lanes) in records.iter().enumerate().take(n) {
                    lanes.scatter(dst.wrapping_add((r * N + first) * E), (n * N * E) as isize);
                }
            }
        }
    }
    whole
}
