//! Records of fields of any sizes, taken apart and put together by vectors.
//!
//! **Hazard.** Fields of odd sizes, moved one by one, take an instruction or two for each, however
//! short they are. **Structure.** So many records are a *group* that its bytes, and those of each
//! field in it, are whole vectors. A vector of the result is made of *windows*: vectors of the
//! source, each from the first byte on that is still missing, out of which a table takes what belongs
//! there. Several groups at once share the tables. What no table takes of a window is read all the
//! same, never used, and lies between the first and the last byte of the group.

use crate::stream;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::array::from_fn;

/// So many groups are moved at once: what is to be done with a window is found out once for all.
pub(crate) const GROUPS: usize = 4;

/// How far ahead of each row of the source bytes are asked for.
const AHEAD_BYTES: usize = 4 << 10;

/// What a table says of a byte that is not in the window.
const NONE: u8 = u8::MAX;

/// The number of a row, which records or the array of a field are, and of a byte in a group of it.
pub(crate) type Place = (u16, u16);

/// What a vector of the result has of one of the source.
#[derive(Debug, Clone, Copy)]
#[repr(align(16))]
pub(crate) struct Window {
    /// For each byte of the result its number in the window, by as many as a vector has.
    table: [u8; LINE_BYTES],
    from: Place,
    /// Where the vector goes, if it is complete with this.
    to: Option<Place>,
}

/// Where a row is, and how far it is to its next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<P> {
    pub(crate) at: P,
    pub(crate) step: usize,
}

/// Calls `each` for the windows that a vector is made of which goes `to`: the bytes of the source in
/// it, as many as a vector has, are `from`, and where a row of the source ends `end` says.
pub(crate) fn windows(
    from: &[Place],
    to: Place,
    end: impl Fn(u16) -> usize,
    each: &mut impl FnMut(Window),
) {
    let mut missing = [false; LINE_BYTES];
    missing[..from.len()].fill(true);
    while let Some(first) = missing.iter().position(|m| *m) {
        let (row, byte) = from[first];
        let start = usize::from(byte).min(end(row) - from.len());
        let table = from_fn(|i| match from.get(i) {
            Some(&(r, byte)) if missing[i] && r == row => {
                let number = usize::from(byte).wrapping_sub(start);
                if number < from.len() { number as u8 } else { NONE }
            }
            _ => NONE,
        });
        for (missing, number) in missing.iter_mut().zip(table) {
            *missing &= number == NONE;
        }
        let to = missing.iter().all(|m| !m).then_some(to);
        each(Window { table, from: (row, start as u16), to });
    }
}

/// Moves `times` times [`GROUPS`] groups of so many records of the rows `from` and `to`.
///
/// # Safety
/// The groups are valid for reads, up to the ends that the windows were made for, and for writes,
/// apart; the windows were made for vectors of this size; the processor has the instruction set of
/// `V`.
#[inline(always)]
pub(crate) unsafe fn groups<V: Vector>(
    windows: &[Window],
    (times, group): (usize, usize),
    from: &[Row<*const u8>],
    to: &[Row<*mut u8>],
) {
    for first in (0..times * GROUPS * group).step_by(GROUPS * group) {
        for row in from {
            let at = row.at.wrapping_add(first * row.step + AHEAD_BYTES);
            for line in (0..GROUPS * group * row.step).step_by(LINE_BYTES) {
                stream::prefetch(at.wrapping_add(line));
            }
        }
        // SAFETY: groups of the caller's.
        unsafe { several::<V>(windows, (first, group), from, to) };
    }
}

/// Moves the groups from the record `first` on.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn several<V: Vector>(
    windows: &[Window],
    (first, group): (usize, usize),
    from: &[Row<*const u8>],
    to: &[Row<*mut u8>],
) {
    let Some(window) = windows.first() else { return };
    // SAFETY: a table is as long as a vector.
    let mut made = [unsafe { V::load(window.table.as_ptr()) }; GROUPS];
    for window in windows {
        let row = from[usize::from(window.from.0)];
        let src = row.at.wrapping_add(first * row.step + usize::from(window.from.1));
        // SAFETY: vectors of the groups, on either side.
        unsafe {
            let table = V::load(window.table.as_ptr());
            for (n, made) in made.iter_mut().enumerate() {
                *made = made.take(V::load(src.wrapping_add(n * group * row.step)), table);
            }
            let Some((row, byte)) = window.to else { continue };
            let row = to[usize::from(row)];
            let dst = row.at.wrapping_add(first * row.step + usize::from(byte));
            for (n, made) in made.iter().enumerate() {
                made.store(dst.wrapping_add(n * group * row.step));
            }
        }
    }
}

/// How many records make a group, where the bytes of fields and of records are multiples of a
/// number and vectors have so many lanes.
pub(crate) fn group_of(bytes: usize, lanes: usize) -> usize {
    let vector = lanes * LANE_BYTES;
    vector >> bytes.trailing_zeros().min(vector.ilog2())
}
