//! Squares with sides of a line.
//!
//! **Hazard.** A line that is read by a part for each square inside lanes is gone before its next part is, where
//! others follow it at its place of the caches. **Structure.** Vectors that are lines make squares whose sides are
//! lines: whole vectors are loaded and stored, and lanes are exchanged between them first. Vectors of half a line
//! make them of four squares with sides of their own, and write each line at once: its halves wait for each other
//! in registers. What 64 rows make of a row of the destination is several lines, which memory takes faster one behind
//! the other: they are read by lanes after all, where a first-level cache keeps a line of each, or put together.

use super::{Chunks, SCATTERING_BYTES, Tile, is_line, lanes, loaded, shuffle, square};
use crate::ahead::{prefetch, prefetch_near};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::mem::MaybeUninit;

/// So many lines of a box are asked for at once.
pub(crate) const FEW: usize = 4;

/// What rows that are read lane by lane at once make of a row of the destination: a first-level cache keeps a line of
/// each. Half as much was a tenth slower, and twice as much no faster.
pub(crate) const LANES_BYTES: usize = 8 * LINE_BYTES;

/// So many rows are put together at once.
const STAGED_ROWS: usize = 64;

/// How many squares across a panel has that is put together first: with four it was up to a tenth slower.
const STAGED_SQUARES: usize = 2;

/// Elements of more are moved one square after the other.
pub(crate) const SEVERAL_BYTES: usize = 4;

/// Where such a panel is.
#[repr(align(64))]
struct Stage(MaybeUninit<[u8; STAGED_SQUARES * LINE_BYTES * STAGED_ROWS]>);

/// How squares with sides of a line are moved past the caches, by vectors that are lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Squares {
    /// One after the other.
    Single,
    /// Several at once, lane by lane.
    Lanes,
    /// Several at once, put together first.
    Staged,
}

/// Where rows are an element more than a multiple of this apart, loads wait for stores at the same place of another page:
/// the fewer there are of them, the better.
const WAITING_BYTES: isize = 1 << 10;

/// Asks for so many lines of a box, of whose rows so many are `left` each, and goes on behind them.
#[inline(always)]
pub(super) fn ask_box(
    tile: &Tile,
    count: usize,
    (next, left): (&mut Option<*const u8>, &mut usize),
) {
    let Some(next) = next else { return };
    for _ in 0..count / FEW {
        for i in 0..FEW {
            prefetch_near(next.wrapping_add(i * LINE_BYTES));
        }
        *next = next.wrapping_add(FEW * LINE_BYTES);
        *left -= FEW;
        if *left == 0 {
            *left = tile.next_lines;
            *next = next.wrapping_sub(*left * LINE_BYTES).wrapping_offset(tile.src.0);
        }
    }
}

/// As [`super::along_b`], by squares with sides of a line; with `BOX`, what is asked for is one.
///
/// # Safety
/// As [`super::along_b`]; vectors are lines, or halves, and neither side of the tile is shorter than one.
#[inline(always)]
pub(super) unsafe fn by_lines<V: Vector, const E: usize, const STREAM: bool, const BOX: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let side = const { LINE_BYTES / E };
    let (row, to) = (tile.src.0, tile.dst.0);
    let step = if tile.next.is_some() { LINE_BYTES as isize } else { row };
    let (mut next, mut left) = (tile.next, tile.next_lines);
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in Chunks::of(tile.a, side) {
            for b in Chunks::of(tile.b, side) {
                let src = src.wrapping_offset(b * row + a * E as isize);
                let mut dst = dst.wrapping_offset(a * to + b * E as isize);
                let ahead = || src.wrapping_offset(tile.ahead);
                let mut near = next.or_else(|| (tile.ahead != 0).then(ahead));
                let mut soon = src.wrapping_offset(tile.soon);
                if const { !is_line(V::LANES) } {
                    if BOX {
                        ask_box(tile, side, (&mut near, &mut left));
                    } else {
                        for _ in 0..side {
                            if let Some(near) = &mut near {
                                prefetch_near(*near);
                                *near = near.wrapping_offset(step);
                            }
                        }
                    }
                    next = next.and(near);
                    // The last square may overlap the one before it.
                    let is_old = (1..=side / 2).contains(&(b as usize % side));
                    // SAFETY: a square of the tile, of which what is old was moved with the one before it.
                    unsafe { by_half_lines::<V, E, STREAM>(is_old, (src, row), (dst, to)) };
                    continue;
                }
                let mut asked = 0;
                // SAFETY: a square of the tile.
                unsafe {
                    // What is asked for line by line, between the stores, leaves room for what is loaded.
                    columns_of_lines::<V, E>((src, row), |column| {
                        if BOX {
                            if asked % FEW == 0 {
                                ask_box(tile, FEW, (&mut near, &mut left));
                            }
                            asked += 1;
                        } else if let Some(near) = &mut near {
                            prefetch_near(*near);
                            *near = near.wrapping_offset(step);
                        }
                        if tile.soon != 0 {
                            prefetch(soon);
                            soon = soon.wrapping_offset(row);
                        }
                        match STREAM {
                            true => column.stream(dst),
                            false => column.store(dst),
                        }
                        dst = dst.wrapping_offset(to);
                    });
                }
                next = next.and(near);
            }
        }
    }
}

/// As [`super::along_b`], past the caches, by squares with sides of a line whose rows are read lane by lane: what a lane
/// of a few squares makes of a row of the destination is written at once.
///
/// # Safety
/// As [`by_lines`]; vectors are lines, and rows of the destination whole squares' sides.
#[inline(always)]
pub(super) unsafe fn by_lanes<V: Vector, const E: usize>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let (n, side, most) = const { (LANE_BYTES / E, LINE_BYTES / E, LANES_BYTES / E) };
    let (row, to) = (tile.src.0, tile.dst.0);
    let step = if tile.next.is_some() { LINE_BYTES as isize } else { row };
    let mut next = tile.next;
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in Chunks::of(tile.a, side) {
            for start in (0..tile.b).step_by(most) {
                let rows = most.min(tile.b - start);
                let src = src.wrapping_offset(start as isize * row + a * E as isize);
                let dst = dst.wrapping_offset(start as isize * E as isize + a * to);
                for lane in (0..side).step_by(n) {
                    for b in (0..rows).step_by(side) {
                        let src = src.wrapping_offset(b as isize * row);
                        let mut dst = dst.wrapping_offset(lane as isize * to).wrapping_add(b * E);
                        // SAFETY: a lane of a square of the tile.
                        let columns = unsafe {
                            let src = src.wrapping_add(lane * E);
                            let load =
                                |j| lanes::<V>(src.wrapping_offset(j * row), n as isize * row);
                            square::<V, E>(load)
                        };
                        let asked = src.wrapping_offset(lane as isize * row);
                        let ahead = || asked.wrapping_offset(tile.ahead);
                        let mut near = next.or_else(|| (tile.ahead != 0).then(ahead));
                        let mut soon = asked.wrapping_offset(tile.soon);
                        for column in columns.iter().take(n) {
                            if let Some(near) = &mut near {
                                prefetch_near(*near);
                                *near = near.wrapping_offset(step);
                            }
                            if tile.soon != 0 {
                                prefetch(soon);
                                soon = soon.wrapping_offset(row);
                            }
                            // SAFETY: a line of the tile.
                            unsafe { column.stream(dst) };
                            dst = dst.wrapping_offset(to);
                        }
                        next = next.and(near);
                    }
                }
            }
        }
    }
}

/// As [`by_lanes`], by panels of whole squares that are put together first: memory takes rows of the destination one
/// behind the other, and gives what is asked for of the next panel row by row meanwhile, while nothing else is read. What
/// comes soon is not asked for once more.
///
/// # Safety
/// As [`by_lanes`].
#[inline(always)]
pub(super) unsafe fn by_stage<V: Vector, const E: usize>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let side = const { LINE_BYTES / E };
    let mut stage = Stage(MaybeUninit::uninit());
    let stage = stage.0.as_mut_ptr().cast::<u8>();
    let (mut next, line) = (tile.next, LINE_BYTES as isize);
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in (0..tile.a).step_by(STAGED_SQUARES * side) {
            // A last panel of less than a square overlaps the one before it.
            let a = a.min(tile.a - side);
            let columns = (STAGED_SQUARES * side).min(tile.a - a);
            let across = columns.div_ceil(side);
            for start in (0..tile.b).step_by(STAGED_ROWS) {
                let lines = STAGED_ROWS.min(tile.b - start) / side;
                let src = src.wrapping_offset(start as isize * tile.src.0).wrapping_add(a * E);
                let mut dst = dst.wrapping_offset(a as isize * tile.dst.0).wrapping_add(start * E);
                // SAFETY: a panel of the tile; the stage has room for one.
                unsafe { put_together::<V, E>((columns, lines), (src, tile.src.0), stage) };
                let mut near =
                    next.or_else(|| (tile.ahead != 0).then(|| src.wrapping_offset(tile.ahead)));
                let to_row = match next {
                    Some(_) => line,
                    None => tile.src.0 - (across as isize - 1) * line,
                };
                let (mut left, mut put) = (across, stage.cast_const());
                for _ in 0..columns {
                    for b in 0..lines {
                        if let Some(near) = &mut near {
                            prefetch_near(*near);
                            left -= 1;
                            *near = near.wrapping_offset(if left == 0 { to_row } else { line });
                            left = if left == 0 { across } else { left };
                        }
                        // SAFETY: lines of the panel and of the tile.
                        unsafe { V::load(put).stream(dst.wrapping_add(b * LINE_BYTES)) };
                        put = put.wrapping_add(LINE_BYTES);
                    }
                    dst = dst.wrapping_offset(tile.dst.0);
                }
                next = next.and(near);
            }
        }
    }
}

/// Moves a panel of so many columns of some `lines` by squares with sides of a line, those of the same rows one behind
/// the other, to where these columns follow each other.
///
/// # Safety
/// As [`by_lanes`], for a panel whose rows are at `src`, so far apart, of no fewer columns than a square's; `stage` is valid
/// for writes of so many lines of each.
#[inline(always)]
unsafe fn put_together<V: Vector, const E: usize>(
    (columns, lines): (usize, usize),
    (src, row): (*const u8, isize),
    stage: *mut u8,
) {
    let side = const { LINE_BYTES / E };
    let (across, pitch) = (columns.div_ceil(side), lines * LINE_BYTES);
    for i in 0..lines * across {
        // The last square of a row may overlap the one before it.
        let (a, b) = ((i % across * side).min(columns - side), i / across);
        let src = src.wrapping_offset((b * side) as isize * row).wrapping_add(a * E);
        let mut put = stage.wrapping_add(a * pitch + b * LINE_BYTES);
        // SAFETY: a square of the panel.
        unsafe {
            columns_of_lines::<V, E>((src, row), |column| {
                column.store(put);
                put = put.wrapping_add(pitch);
            });
        }
    }
}

/// Moves a square with sides of a line by vectors of half a line. The first half of its rows may be left out if it
/// `is_old`: moved before.
///
/// # Safety
/// As [`by_lines`], for the rows of a square at `src` and its columns at `dst`, so far apart.
#[inline(always)]
unsafe fn by_half_lines<V: Vector, const E: usize, const STREAM: bool>(
    is_old: bool,
    (src, row): (*const u8, isize),
    (dst, to): (*mut u8, isize),
) {
    let in_parts = !STREAM && row % WAITING_BYTES != E as isize;
    // SAFETY: the caller's contract.
    unsafe {
        match () {
            () if in_parts && to % SCATTERING_BYTES != 0 => {
                by_turns::<V, E>(is_old, (src, row), (dst, to));
            }
            () if in_parts && const { E == 4 } => by_quarters::<V, E>((src, row), (dst, to)),
            () => by_halves::<V, E, STREAM>((src, row), (dst, to)),
        }
    }
}

/// As [`by_half_lines`], with both halves of each line one right behind the other.
///
/// # Safety
/// As [`by_half_lines`].
#[inline(always)]
unsafe fn by_halves<V: Vector, const E: usize, const STREAM: bool>(
    (src, row): (*const u8, isize),
    (dst, to): (*mut u8, isize),
) {
    let (n, half) = const { (LANE_BYTES / E, LINE_BYTES / 2) };
    let side = 2 * n as isize;
    for h in 0..2 {
        let src = src.wrapping_add(h * half);
        let mut dst = dst.wrapping_offset(h as isize * side * to);
        // SAFETY: the caller's contract.
        unsafe {
            let first = square_of_two_lanes::<V, E>(|j| src.wrapping_offset(j * row));
            let src = src.wrapping_offset(side * row);
            let second = square_of_two_lanes::<V, E>(|j| src.wrapping_offset(j * row));
            for lane in 0..2 {
                for i in 0..n {
                    let (first, second) = (first[lane][i], second[lane][i]);
                    if STREAM {
                        first.stream(dst);
                        second.stream(dst.wrapping_add(half));
                    } else {
                        first.store(dst);
                        second.store(dst.wrapping_add(half));
                    }
                    dst = dst.wrapping_offset(to);
                }
            }
        }
    }
}

/// As [`by_half_lines`], into the caches, one half of the rows after the other: fewer lines of the source are read at once,
/// and those of the destination stay until they are whole. The first half is left out if it `is_old`.
///
/// # Safety
/// As [`by_half_lines`].
#[inline(always)]
unsafe fn by_turns<V: Vector, const E: usize>(
    is_old: bool,
    (src, row): (*const u8, isize),
    (dst, to): (*mut u8, isize),
) {
    let rows = const { (LINE_BYTES / 2 / E) as isize };
    // SAFETY: the caller's contract.
    unsafe {
        if !is_old {
            half_of_rows::<V, E>((src, row), (dst, to));
        }
        let src = src.wrapping_offset(rows * row);
        half_of_rows::<V, E>((src, row), (dst.wrapping_add(LINE_BYTES / 2), to));
    }
}

/// Moves rows of a line each, half as many as a square with such sides has.
///
/// # Safety
/// As [`by_half_lines`].
#[inline(always)]
unsafe fn half_of_rows<V: Vector, const E: usize>(
    (src, row): (*const u8, isize),
    (mut dst, to): (*mut u8, isize),
) {
    let (n, half) = const { (LANE_BYTES / E, LINE_BYTES / 2) };
    for a in 0..2 {
        let src = src.wrapping_add(a * half);
        // SAFETY: the caller's contract.
        unsafe {
            let columns = square_of_two_lanes::<V, E>(|j| src.wrapping_offset(j * row));
            for lane in columns {
                for column in lane.iter().take(n) {
                    column.store(dst);
                    dst = dst.wrapping_offset(to);
                }
            }
        }
    }
}

/// As [`by_half_lines`], into the caches, by lanes of rows of which as many vectors are loaded as a lane has elements:
/// more columns than that, of small elements, would not find room in registers.
///
/// # Safety
/// As [`by_half_lines`].
#[inline(always)]
unsafe fn by_quarters<V: Vector, const E: usize>(
    (src, row): (*const u8, isize),
    (mut dst, to): (*mut u8, isize),
) {
    let (n, half) = const { (LANE_BYTES / E, LINE_BYTES / 2) };
    let part = |k: isize| src.wrapping_offset(k * n as isize * row);
    let parts = [part(0), part(1), part(2), part(3)];
    for q in 0..LINE_BYTES / LANE_BYTES {
        // What is the same for each quarter comes last: no address is reckoned anew.
        let at =
            |k: usize, j: isize| parts[k].wrapping_offset(j * row).wrapping_add(q * LANE_BYTES);
        // SAFETY: the caller's contract.
        unsafe {
            let first = square::<V, E>(|j| V::gather(|lane| at(lane, j)));
            let second = square::<V, E>(|j| V::gather(|lane| at(2 + lane, j)));
            for i in 0..n {
                first[i].store(dst);
                second[i].store(dst.wrapping_add(half));
                dst = dst.wrapping_offset(to);
            }
        }
    }
}

/// The columns of a square with sides of two lanes, those of each lane of its rows.
///
/// # Safety
/// Its rows, where `at` says, are valid for reads; vectors have two lanes, and the processor has the
/// instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn square_of_two_lanes<V: Vector, const E: usize>(
    at: impl Fn(isize) -> *const u8,
) -> [[V; LANE_BYTES]; 2] {
    let n = const { LANE_BYTES / E };
    // SAFETY: the caller's contract.
    unsafe {
        let load = |j| V::load(at(j));
        let both = |j: isize| load(j).unzip_lanes(load(n as isize + j));
        let (mut low, mut high) = (loaded(n, |j| both(j).0), loaded(n, |j| both(j).1));
        shuffle::<V, E>(&mut low, n, n);
        shuffle::<V, E>(&mut high, n, n);
        [low, high]
    }
}

/// As [`square_of_lines`], of rows that are at `src`, so far apart.
///
/// # Safety
/// As [`square_of_lines`], for rows that are valid for reads.
#[inline(always)]
pub(super) unsafe fn columns_of_lines<V: Vector, const E: usize>(
    (mut src, row): (*const u8, isize),
    store: impl FnMut(V),
) {
    let load = || {
        // SAFETY: the caller's contract.
        let line = unsafe { V::load(src) };
        src = src.wrapping_offset(row);
        line
    };
    // SAFETY: the caller's contract.
    unsafe { square_of_lines::<V, E>(load, store) }
}

/// Makes the columns of a square with sides of a line of its rows, which `load` gives one after the
/// other, and gives one after the other to `store`: whoever goes from each to the next needs no
/// register for every one's place. There are as many rows as a line has elements, and `load` is called once for each.
///
/// # Safety
/// Vectors are lines, and the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn square_of_lines<V: Vector, const E: usize>(
    mut load: impl FnMut() -> V,
    mut store: impl FnMut(V),
) {
    const LANES: usize = LINE_BYTES / LANE_BYTES;
    let n = const { LANE_BYTES / E };
    let mut rows = [[load(); LANE_BYTES]; LANES];
    for i in 1..LANES * n {
        rows[i / n][i % n] = load();
    }
    let mut squares = rows;
    // SAFETY: the caller's contract.
    unsafe {
        for j in 0..n {
            let (low, high) =
                (rows[0][j].unzip_lanes(rows[1][j]), rows[2][j].unzip_lanes(rows[3][j]));
            let (even, odd) = (low.0.unzip_lanes(high.0), low.1.unzip_lanes(high.1));
            for (square, row) in squares.iter_mut().zip([even.0, odd.0, even.1, odd.1]) {
                square[j] = row;
            }
        }
        for square in &mut squares {
            shuffle::<V, E>(square, n, n);
            for column in square.iter().take(n) {
                store(*column);
            }
        }
    }
}
