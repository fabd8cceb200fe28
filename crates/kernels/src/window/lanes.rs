//! Windows of a lane each, for vectors that exchange larger units than bytes between their lanes.
//!
//! **Hazard.** Of fields of 12 bytes a vector has parts of more than two windows that are vectors, each of which takes an
//! exchange of lanes; and fields of one or two bytes are no units of such an exchange. **Structure.** Each lane of the
//! result is made of a few windows of its own, which start anywhere: they are loaded where they belong, and a table puts
//! their bytes in order.

use super::{ELSEWHERE, Groups, Piece, Place, bytes_of};
use crate::ahead::prefetch;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::array::from_fn;

/// The lanes of vectors that are made so.
pub(crate) const LANES: usize = 2;

/// As many windows has a lane at most.
pub(crate) const MOST_OF_A_LANE: usize = 8;

/// Calls `each` for the windows that the lanes of a vector are made of, one of each at a time: the bytes of the source in
/// it, as many as a vector has, are `from`. Each starts with the first byte of a row that is missing, so that there are as
/// few as can be. Where a lane has fewer than another the last is there again, of which nothing is taken.
pub(super) fn pieces(from: &[Place], each: &mut impl FnMut(Piece)) {
    let mut missing = bytes_of(from);
    let mut last = [from[missing.trailing_zeros() as usize % from.len()]; LINE_BYTES / LANE_BYTES];
    while missing != 0 {
        let mut piece = Piece { table: [ELSEWHERE; LINE_BYTES], from: last, windows: 1 };
        for lane in 0..from.len() / LANE_BYTES {
            let (start, here) = (lane * LANE_BYTES, missing);
            let these = (start..start + LANE_BYTES).filter(|i| here >> i & 1 == 1);
            let Some(first) = these.clone().map(|i| from[i]).min() else { continue };
            piece.from[lane] = first;
            for i in these {
                let number = usize::from(from[i].1).wrapping_sub(first.1.into());
                if from[i].0 == first.0 && number < LANE_BYTES {
                    missing &= !(1 << i);
                    piece.table[i] = number as u8;
                }
            }
        }
        last = piece.from;
        each(piece);
    }
}

/// As [`super::by_windows`], for windows of a lane each.
///
/// # Safety
/// As [`super::groups`], for vectors of so many [`LANES`].
#[inline(always)]
pub(super) unsafe fn by_windows<V: Vector, const PARTS: usize>(
    pieces: [&[Piece]; PARTS],
    from: Groups<'_>,
    to: (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    let most = pieces.iter().map(|part| part.len()).max().unwrap_or(0);
    // SAFETY: the caller's contract.
    unsafe {
        match (most, from.rows.len()) {
            (..=2, _) => by::<V, PARTS, false, 2>(pieces, from, to, put),
            (..=4, 1) => by::<V, PARTS, true, 4>(pieces, from, to, put),
            (_, 1) => by::<V, PARTS, true, MOST_OF_A_LANE>(pieces, from, to, put),
            _ => by::<V, PARTS, false, MOST_OF_A_LANE>(pieces, from, to, put),
        }
    }
}

/// As [`by_windows`], for `N` windows of each lane at most. Whether the source is `ONE` row is known then, as in
/// [`super::by`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn by<V: Vector, const PARTS: usize, const ONE: bool, const N: usize>(
    pieces: [&[Piece]; PARTS],
    Groups { times, group, rows, mut ask, ask_step }: Groups<'_>,
    (dst, step): (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    debug_assert!(pieces.iter().all(|part| (1..=N).contains(&part.len())));
    // Where a part has fewer the last is taken again.
    let all: [[&Piece; N]; PARTS] =
        pieces.map(|pieces| from_fn(|i| &pieces[i.min(pieces.len() - 1)]));
    let place = |part: usize, i: usize, lane: usize| all[part][i].from[lane];
    let row = |part: usize, i: usize, lane: usize| rows[usize::from(place(part, i, lane).0)];
    let behind: [[[usize; LANES]; N]; PARTS] =
        from_fn(|part| from_fn(|i| from_fn(|lane| place(part, i, lane).1.into())));
    let mut at: [[[_; LANES]; N]; PARTS] = from_fn(|part| {
        from_fn(|i| from_fn(|lane| row(part, i, lane).at.wrapping_add(behind[part][i][lane])))
    });
    let steps: [[[_; LANES]; N]; PARTS] =
        from_fn(|part| from_fn(|i| from_fn(|lane| group * row(part, i, lane).step)));
    // SAFETY: a table is as long as a vector.
    let mut tables = [[unsafe { V::load(all[0][0].table.as_ptr()) }; N]; PARTS];
    for (tables, all) in tables.as_flattened_mut().iter_mut().zip(all.as_flattened()) {
        // SAFETY: likewise.
        *tables = unsafe { V::load(all.table.as_ptr()) };
    }
    let mut one = rows[0].at;
    for n in 0..times {
        if PARTS > 1 {
            prefetch(ask);
            ask = ask.wrapping_add(ask_step);
        }
        for (part, tables) in tables.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe {
                let start = |i: usize, lane: usize| match ONE {
                    true => one.wrapping_add(behind[part][i][lane]),
                    false => at[part][i][lane],
                };
                let window = |i: usize| V::gather(|lane| start(i, lane)).swizzle(tables[i]);
                let mut made = window(0);
                for i in 1..N {
                    made = made.or(window(i));
                }
                put(made, dst.wrapping_add(n * step + part * V::LANES * LANE_BYTES));
            }
        }
        one = one.wrapping_add(group * rows[0].step);
        let (at, steps) = (at.as_flattened_mut(), steps.as_flattened());
        for (at, by) in at.as_flattened_mut().iter_mut().zip(steps.as_flattened()) {
            *at = at.wrapping_add(*by);
        }
    }
}
