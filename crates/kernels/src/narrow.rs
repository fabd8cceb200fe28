//! Tiles of which a side is short: structures and arrays, pixels and planes, hybrids.
//!
//! Where the short side is a power of two, the zips of [`crate::tile`] do it without squares: a
//! rotation of the bits of an element's number is a perfect shuffle, stage by stage. Where it is
//! not, squares are moved of which a part is of no use.

use crate::ahead::prefetch;
use crate::tile::{Chunks, PAIR, Tile, ask, elements, is_line, lanes, loaded, shuffle, square};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::ops::Range;

/// More rows of halves of lines are a tenth slower if they are loaded while others are stored.
const MOST_BY_TURNS: usize = 8;

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

/// The columns of as many rows of `A` elements as a vector has, one right behind the other.
///
/// # Safety
/// They are valid for reads, and `A` is a power of two; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn columns_of<V: Vector, const E: usize, const A: usize>(
    src: *const u8,
) -> [V; LANE_BYTES] {
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
    let goes_on = tile.dst.1 == (tile.a * B * E) as isize;
    let mut next = tile.next;
    // SAFETY: the caller's contract, for whole vectors of columns, or of turns, and for those behind.
    unsafe {
        if goes_on && tile.a == const { LANE_BYTES / E } {
            let whole = tile.o / V::LANES * V::LANES;
            join_blocks::<V, E, B, ASKS, false>(tile, (0..whole, 1), &mut next, (src, dst));
            for o in whole..tile.o {
                let (src, dst) = tile.turn(o as isize, src, dst);
                elements::<E>(tile, (0..tile.a, 0..B), src, dst);
            }
            return;
        }
        let blocks = tile.a / const { V::LANES * LANE_BYTES / E };
        let whole = blocks * const { V::LANES * LANE_BYTES / E };
        // What a turn leaves may share a line with the next, and comes first.
        let turns = if whole == tile.a { tile.o } else { 1 };
        for o in (0..tile.o).step_by(turns) {
            let blocks = (o..o + turns, blocks);
            join_blocks::<V, E, B, ASKS, true>(tile, blocks, &mut next, (src, dst));
            let (src, dst) = tile.turn(o as isize, src, dst);
            elements::<E>(tile, (whole..tile.a, 0..B), src, dst);
        }
    }
}

/// Moves so many blocks, of a vector of each row, of each of the `turns`; or where they aren't `DENSE` but lanes that go on
/// with each other in the destination, of as many turns at once. With `ASKS` up to [`MOST_BY_TURNS`] rows are loaded while
/// those of the block before are stored: past the caches both are faster by turns than all at once, by up to an eighth.
///
/// # Safety
/// As [`join`], for these.
#[inline(always)]
unsafe fn join_blocks<
    V: Vector,
    const E: usize,
    const B: usize,
    const ASKS: bool,
    const DENSE: bool,
>(
    tile: &Tile,
    (turns, blocks): (Range<usize>, usize),
    next: &mut Option<*const u8>,
    (src, dst): (*const u8, *mut u8),
) {
    if turns.is_empty() || blocks == 0 {
        return;
    }
    let (line, bytes) = const { (V::LANES * LANE_BYTES, V::LANES * LANE_BYTES * B) };
    let at_once = const { if DENSE { 1 } else { V::LANES } };
    if const { !ASKS || B > MOST_BY_TURNS } {
        for o in turns.step_by(at_once) {
            let (src, dst) = tile.turn(o as isize, src, dst);
            for block in 0..blocks {
                if ASKS {
                    ask(next, bytes / LINE_BYTES);
                }
                ask_ahead(tile, src.wrapping_add(block * bytes), bytes);
                // SAFETY: a block of the turns.
                unsafe {
                    let rows = rows_of::<V, B, DENSE>(tile, src.wrapping_add(block * line));
                    let vectors = together::<V, E, B>(rows);
                    for (v, vector) in vectors.into_iter().enumerate().take(B) {
                        vector.stream(dst.wrapping_add(block * bytes + v * line));
                    }
                }
            }
        }
        return;
    }
    let from = |(o, block): (usize, usize)| {
        let (src, _) = tile.turn(o as isize, src, dst);
        src.wrapping_add(block * line)
    };
    let mut at = (turns.start, 0);
    // SAFETY: the first block.
    let mut rows = unsafe { rows_of::<V, B, DENSE>(tile, from(at)) };
    while at.0 < turns.end {
        let after = if at.1 + 1 < blocks { (at.0, at.1 + 1) } else { (at.0 + at_once, 0) };
        let soon = if after.0 < turns.end { after } else { at };
        let (src, dst) = tile.turn(at.0 as isize, src, dst);
        let (src, dst) = (src.wrapping_add(at.1 * bytes), dst.wrapping_add(at.1 * bytes));
        ask(next, bytes / LINE_BYTES);
        ask_ahead(tile, src, bytes);
        // SAFETY: a block of the turns.
        unsafe {
            let vectors = together::<V, E, B>(rows);
            for v in 0..B {
                vectors[v].stream(dst.wrapping_add(v * line));
                rows[v] = row::<V, DENSE>(tile, from(soon), v as isize);
            }
        }
        at = after;
    }
}

/// The first `B` rows of a block.
///
/// # Safety
/// As [`row`], for each.
#[inline(always)]
unsafe fn rows_of<V: Vector, const B: usize, const DENSE: bool>(
    tile: &Tile,
    src: *const u8,
) -> [V; LANE_BYTES] {
    // No closure, which the compiler may leave one: then vectors would wait in memory.
    // SAFETY: the caller's contract.
    unsafe {
        let mut rows = [row::<V, DENSE>(tile, src, 0); LANE_BYTES];
        for (j, later) in rows.iter_mut().enumerate().skip(1) {
            if j < B {
                *later = row::<V, DENSE>(tile, src, j as isize);
            }
        }
        rows
    }
}

/// Row `j` of a block at `src`: a vector of a turn, or a lane of each.
///
/// # Safety
/// As [`Vector::load`], or [`Vector::gather`], for these.
#[inline(always)]
unsafe fn row<V: Vector, const DENSE: bool>(tile: &Tile, src: *const u8, j: isize) -> V {
    let src = src.wrapping_offset(j * tile.src.0);
    // SAFETY: the caller's contract.
    unsafe { if DENSE { V::load(src) } else { lanes::<V>(src, tile.src.1) } }
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
                let rows = loaded(B, |j| V::load(src.wrapping_offset(j * tile.src.0)));
                let vectors = together::<V, E, B>(rows);
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

/// `B` rows of a vector each, as columns one behind the other, lane by lane.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn together<V: Vector, const E: usize, const B: usize>(
    rows: [V; LANE_BYTES],
) -> [V; LANE_BYTES] {
    let n = const { LANE_BYTES / E };
    let mut vectors = rows;
    // SAFETY: the caller's contract.
    unsafe {
        if B <= n {
            shuffle::<V, E>(&mut vectors, B, B);
        } else {
            // Squares of rows, of which every column has a part.
            for group in 0..B / n {
                let columns = square::<V, E>(|j| rows[group * n + j as usize]);
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
    }
    vectors
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
