//! Tiles of which a side is short: structures and arrays, pixels and planes, hybrids.
//!
//! Where the short side is a power of two, the zips of [`crate::tile`] do it without squares: a
//! rotation of the bits of an element's number is a perfect shuffle, stage by stage. Where it is
//! not, squares are moved of which a part is of no use.

use crate::ahead::prefetch;
use crate::tile::{Chunks, PAIR, Tile, ask, elements, is_line, lanes, loaded, shuffle, square};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};

/// The body for [`crate::tile::Lanes::Split`].
///
/// # Safety
/// As [`crate::tile::along_b`] with `STREAM`, but for `b`, which is any number.
#[inline(always)]
pub(crate) unsafe fn split<V: Vector, const E: usize, const STREAM: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    // SAFETY: the caller's contract; rows are shorter than a lane.
    unsafe {
        match tile.a {
            2 => split_of::<V, E, 2, STREAM>(tile, src, dst),
            4 => split_of::<V, E, 4, STREAM>(tile, src, dst),
            _ => split_of::<V, E, 8, STREAM>(tile, src, dst),
        }
    }
}

/// # Safety
/// As [`split`], for rows of `A` elements.
#[inline(always)]
unsafe fn split_of<V: Vector, const E: usize, const A: usize, const STREAM: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let rows = const { LANE_BYTES / E } * V::LANES;
    let whole = tile.b / (PAIR * rows) * (PAIR * rows);
    let mut next = tile.next;
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for b in (0..whole).step_by(PAIR * rows) {
            let (src, dst) = (src.wrapping_add(b * A * E), dst.wrapping_add(b * E));
            if const { is_line(V::LANES) } {
                ask(&mut next, PAIR * rows * A * E / LINE_BYTES);
            }
            // SAFETY: rows of the tile.
            unsafe {
                let first = columns_of::<V, E, A>(src);
                let second = columns_of::<V, E, A>(src.wrapping_add(rows * A * E));
                for v in 0..A {
                    let dst = dst.wrapping_offset(v as isize * tile.dst.0);
                    if STREAM {
                        first[v].stream(dst);
                        second[v].stream(dst.wrapping_add(rows * E));
                    } else {
                        first[v].store(dst);
                        second[v].store(dst.wrapping_add(rows * E));
                    }
                }
            }
        }
        // SAFETY: the last rows of the tile.
        unsafe { elements::<E>(tile, (0..A, whole..tile.b), src, dst) }
    }
}

/// The columns of rows of `A` elements, one right behind the other.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn columns_of<V: Vector, const E: usize, const A: usize>(src: *const u8) -> [V; LANE_BYTES] {
    // SAFETY: the caller's contract.
    unsafe {
        let by = (A * LANE_BYTES) as isize;
        let load = |v| lanes::<V>(src.wrapping_offset(v * LANE_BYTES as isize), by);
        let mut vectors = loaded(A, load);
        shuffle::<V, E>(&mut vectors, A, LANE_BYTES / E);
        vectors
    }
}

/// The body for [`crate::tile::Lanes::Join`].
///
/// # Safety
/// As [`crate::tile::along_b`] with `STREAM`, but for `a`, which is any number.
#[inline(always)]
pub(crate) unsafe fn join<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        match const { is_line(V::LANES) } {
            true => join_by::<V, E, true>(tile, src, dst),
            false => join_by::<V, E, false>(tile, src, dst),
        }
    }
}

/// As [`join`]; only where the instruction set has vectors that are lines a tile `ASKS` for what it reads on.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn join_by<V: Vector, const E: usize, const ASKS: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let columns = const { V::LANES * LANE_BYTES / E };
    if tile.a < columns && tile.a != LANE_BYTES / E && V::Half::LANES < V::LANES {
        // SAFETY: the caller's contract, whose instruction set has that of half a vector.
        return unsafe { join_by::<V::Half, E, ASKS>(tile, src, dst) };
    }
    // SAFETY: the caller's contract; columns are no longer than a line.
    unsafe {
        match tile.b {
            2 => join_of::<V, E, 2, ASKS>(tile, src, dst),
            4 => join_of::<V, E, 4, ASKS>(tile, src, dst),
            8 => join_of::<V, E, 8, ASKS>(tile, src, dst),
            _ => join_of::<V, E, 16, ASKS>(tile, src, dst),
        }
    }
}

/// # Safety
/// As [`join`], for columns of `B` elements.
#[inline(always)]
unsafe fn join_of<V: Vector, const E: usize, const B: usize, const ASKS: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let (n, bytes) = const { (LANE_BYTES / E, V::LANES * LANE_BYTES * B) };
    let columns = n * V::LANES;
    let goes_on = tile.dst.1 == (tile.a * B * E) as isize;
    if goes_on && tile.a == n {
        // SAFETY: the caller's contract.
        return unsafe { join_turns::<V, E, B, ASKS>(tile, src, dst) };
    }
    let whole = tile.a / columns * columns;
    let mut next = tile.next;
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in (0..whole).step_by(columns) {
            let to = dst.wrapping_add(a * B * E);
            if ASKS {
                ask(&mut next, bytes / LINE_BYTES);
            }
            ask_ahead(tile, src.wrapping_add(a * B * E), bytes);
            // SAFETY: columns of the tile.
            unsafe {
                let vectors = joined::<V, E, B, true>(src.wrapping_add(a * E), tile);
                for (v, vector) in vectors.into_iter().enumerate().take(B) {
                    vector.stream(to.wrapping_add(v * V::LANES * LANE_BYTES));
                }
            }
        }
        // SAFETY: the last columns of the tile.
        unsafe { elements::<E>(tile, (whole..tile.a, 0..B), src, dst) }
    }
}

/// [`join_of`] for turns of the third loop that are a lane, and go on with each other in the
/// destination.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn join_turns<V: Vector, const E: usize, const B: usize, const ASKS: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let whole = tile.o / V::LANES * V::LANES;
    let mut next = tile.next;
    for o in (0..whole).step_by(V::LANES) {
        let (src, dst) = tile.turn(o as isize, src, dst);
        if ASKS {
            ask(&mut next, V::LANES * LANE_BYTES * B / LINE_BYTES);
        }
        ask_ahead(tile, src, V::LANES * LANE_BYTES * B);
        // SAFETY: turns of the tile.
        unsafe {
            let vectors = joined::<V, E, B, false>(src, tile);
            for (v, vector) in vectors.into_iter().enumerate().take(B) {
                vector.stream(dst.wrapping_add(v * V::LANES * LANE_BYTES));
            }
        }
    }
    for o in whole..tile.o {
        let (src, dst) = tile.turn(o as isize, src, dst);
        // SAFETY: turns of the tile.
        unsafe { elements::<E>(tile, (0..tile.a, 0..B), src, dst) };
    }
}

/// The body for [`crate::tile::Lanes::JoinCached`]. The last columns overlap those before them.
///
/// # Safety
/// As [`crate::tile::along_b`], for columns of 2, 4, 8 or 16 elements and rows of no less than a vector.
#[inline(always)]
pub(crate) unsafe fn join_cached<V: Vector, const E: usize>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match tile.b {
            2 => join_cached_of::<V, E, 2>(tile, src, dst),
            4 => join_cached_of::<V, E, 4>(tile, src, dst),
            8 => join_cached_of::<V, E, 8>(tile, src, dst),
            _ => join_cached_of::<V, E, 16>(tile, src, dst),
        }
    }
}

/// # Safety
/// As [`join_cached`], for columns of `B` elements.
#[inline(always)]
unsafe fn join_cached_of<V: Vector, const E: usize, const B: usize>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in Chunks::of(tile.a, const { V::LANES * LANE_BYTES / E }) {
            let (src, dst) =
                (src.wrapping_offset(a * E as isize), dst.wrapping_offset(a * (B * E) as isize));
            // SAFETY: columns of the tile.
            unsafe {
                let vectors = joined::<V, E, B, true>(src, tile);
                for (v, vector) in vectors.into_iter().enumerate().take(B) {
                    vector.store(dst.wrapping_add(v * V::LANES * LANE_BYTES));
                }
            }
        }
    }
}

/// Asks for what lies ahead of `bytes` of blocks.
#[inline(always)]
fn ask_ahead(tile: &Tile, src: *const u8, bytes: usize) {
    if tile.ahead != 0 {
        for at in (0..bytes).step_by(LINE_BYTES) {
            prefetch(src.wrapping_add(at).wrapping_offset(tile.ahead));
        }
    }
}

/// `B` rows of a vector each, as columns one behind the other, lane by lane. With `DENSE` they are
/// of one turn of the third loop; else each lane is of another.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn joined<V: Vector, const E: usize, const B: usize, const DENSE: bool>(
    src: *const u8,
    tile: &Tile,
) -> [V; LANE_BYTES] {
    let n = const { LANE_BYTES / E };
    let (row, next) = tile.src;
    // SAFETY: the caller's contract.
    unsafe {
        let load = |j: isize| match DENSE {
            true => V::load(src.wrapping_offset(j * row)),
            false => lanes::<V>(src.wrapping_offset(j * row), next),
        };
        let mut vectors = loaded(B.min(n), load);
        if B <= n {
            shuffle::<V, E>(&mut vectors, B, B);
        } else {
            // Squares of rows, of which every column has a part.
            for group in 0..B / n {
                let columns = square::<V, E>(|j| load((group * n) as isize + j));
                for i in 0..n {
                    vectors[i * (B / n) + group] = columns[i];
                }
            }
        }
        for _ in 0..V::LANES.ilog2() {
            let from = vectors;
            for i in 0..B / 2 {
                (vectors[i], vectors[i + B / 2]) = from[2 * i].unzip_lanes(from[2 * i + 1]);
            }
        }
        vectors
    }
}

/// Rows of less than a lane, one right behind the other: whole lanes are read, and the columns
/// that belong to the rows behind are left.
///
/// # Safety
/// As [`crate::tile::along_b`], for [`crate::tile::Lanes::ShortA`].
#[inline(always)]
pub(crate) unsafe fn short_a<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let n = const { (LANE_BYTES / E) as isize };
    let (row, to) = (tile.src.0, tile.dst.0);
    let whole = tile.b - (n as usize - 1) / tile.a;
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for b in Chunks::of(whole, n as usize * V::LANES) {
            let src = src.wrapping_offset(b * row);
            let dst = dst.wrapping_offset(b * E as isize);
            // SAFETY: what is read behind a row is of the rows behind it: there are enough.
            unsafe {
                let load = |j| lanes::<V>(src.wrapping_offset(j * row), n * row);
                let columns = square::<V, E>(load);
                for i in 0..n {
                    if i < tile.a as isize {
                        columns[i as usize].store(dst.wrapping_offset(i * to));
                    }
                }
            }
        }
        // SAFETY: the last rows of the tile.
        unsafe { elements::<E>(tile, (0..tile.a, whole..tile.b), src, dst) }
    }
}

/// Columns of less than a lane, one right behind the other: whole lanes are written, in ascending
/// order, so that what is behind a column is written over by the columns behind it.
///
/// # Safety
/// As [`crate::tile::along_b`], for [`crate::tile::Lanes::ShortB`].
#[inline(always)]
pub(crate) unsafe fn short_b<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let n = const { (LANE_BYTES / E) as isize };
    let (row, to) = (tile.src.0, tile.dst.0);
    let whole = tile.a - (n as usize - 1) / tile.b;
    let mut lanes = [[0u8; LINE_BYTES]; LANE_BYTES];
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in Chunks::of(whole, n as usize * V::LANES) {
            let src = src.wrapping_offset(a * E as isize);
            let dst = dst.wrapping_offset(a * to);
            // SAFETY: the rows are the tile's, the first again where there are fewer than a
            // square has; what is written behind a column is of the columns behind it, of which
            // there are enough, and which are written later.
            unsafe {
                let row = |j: isize| if j < tile.b as isize { j * row } else { 0 };
                let columns = square::<V, E>(|j| V::load(src.wrapping_offset(row(j))));
                for i in 0..n as usize {
                    columns[i].store(lanes[i].as_mut_ptr());
                }
                for lane in 0..V::LANES {
                    for (i, column) in lanes.iter().enumerate().take(n as usize) {
                        let from = column.as_ptr().add(lane * LANE_BYTES);
                        let to = dst.wrapping_offset((lane * n as usize + i) as isize * to);
                        let bytes = from.cast::<[u8; LANE_BYTES]>().read();
                        to.cast::<[u8; LANE_BYTES]>().write(bytes);
                    }
                }
            }
        }
        // SAFETY: the last columns of the tile.
        unsafe { elements::<E>(tile, (whole..tile.a, 0..tile.b), src, dst) }
    }
}
