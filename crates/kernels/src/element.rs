//! Lines and planes of elements, for sizes known at compile time.

use crate::vector::LINE_BYTES;
use std::mem::MaybeUninit;

/// Elements at equal distances: how many, and how far apart in source and destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) count: usize,
    pub(crate) stride: (isize, isize),
}

/// Elements of two loops. The destination is fastest along `along`, the source along `across`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane {
    pub(crate) along: Line,
    pub(crate) across: Line,
}

/// Fewer lines across than this aren't worth a tile, which is as long as a cache line on both sides.
const FEW: usize = 8;

/// A region is so many tiles wide and high: its lines lie side by side in few pages.
const TILES: usize = 4;

/// How many elements of a line are moved before the next line of a narrow plane: what the lines
/// of both sides share stays in the first-level cache.
const STRIP: usize = 512;

/// Calls `$call::<N>` for the sizes that have a kernel, `$else` for others.
macro_rules! by_size {
    ($bytes:expr, $call:ident($($arg:expr),*), $else:expr) => {
        match $bytes {
            1 => $call::<1>($($arg),*),
            2 => $call::<2>($($arg),*),
            3 => $call::<3>($($arg),*),
            4 => $call::<4>($($arg),*),
            6 => $call::<6>($($arg),*),
            8 => $call::<8>($($arg),*),
            12 => $call::<12>($($arg),*),
            16 => $call::<16>($($arg),*),
            24 => $call::<24>($($arg),*),
            32 => $call::<32>($($arg),*),
            48 => $call::<48>($($arg),*),
            64 => $call::<64>($($arg),*),
            _ => $else,
        }
    };
}
pub(crate) use by_size;

/// Moves a line of elements of `bytes`.
///
/// # Safety
/// The elements of the line are valid for reads at `src` and for writes at `dst`, apart.
pub(crate) unsafe fn move_line(bytes: usize, line: Line, src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract, for the size at hand.
    unsafe { by_size!(bytes, line_of(line, src, dst), line_of_runs(bytes, line, src, dst)) }
}

/// Moves a plane of elements of `bytes`.
///
/// # Safety
/// The elements of the plane are valid for reads at `src` and for writes at `dst`, apart.
pub(crate) unsafe fn move_plane(bytes: usize, plane: Plane, src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract, for the size at hand.
    unsafe { by_size!(bytes, plane_of(plane, src, dst), plane_of_runs(bytes, plane, src, dst)) }
}

/// Moves a plane of elements of `bytes` line by line.
///
/// # Safety
/// As [`move_plane`].
pub(crate) unsafe fn move_lines(bytes: usize, plane: Plane, src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract, for the size at hand.
    unsafe { by_size!(bytes, block_of(plane, src, dst), plane_of_runs(bytes, plane, src, dst)) }
}

/// # Safety
/// As [`move_line`].
unsafe fn line_of_runs(bytes: usize, line: Line, src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract, for elements of such sizes.
    unsafe {
        match bytes {
            5..=8 => line_of_ends::<4>(bytes, line, src, dst),
            9..=16 => line_of_ends::<8>(bytes, line, src, dst),
            17..=32 => line_of_ends::<16>(bytes, line, src, dst),
            33..=64 => line_of_ends::<32>(bytes, line, src, dst),
            _ => {
                for_elements(line, src, dst, |src, dst| {
                    std::ptr::copy_nonoverlapping(src, dst, bytes);
                });
            }
        }
    }
}

/// Moves elements of `N` to twice as many bytes: the first `N`, and the last, which may be the same in part.
///
/// # Safety
/// As [`move_line`].
unsafe fn line_of_ends<const N: usize>(bytes: usize, line: Line, src: *const u8, dst: *mut u8) {
    let last = bytes - N;
    for_elements(line, src, dst, |src, dst| {
        // SAFETY: an element of the line; byte arrays need no alignment.
        unsafe {
            let first = src.cast::<[u8; N]>().read();
            let second = src.wrapping_add(last).cast::<[u8; N]>().read();
            dst.cast::<[u8; N]>().write(first);
            dst.wrapping_add(last).cast::<[u8; N]>().write(second);
        }
    });
}

/// Calls `each` with where each element of a line is on either side.
#[inline(always)]
fn for_elements(
    line: Line,
    mut src: *const u8,
    mut dst: *mut u8,
    each: impl Fn(*const u8, *mut u8),
) {
    for _ in 0..line.count {
        each(src, dst);
        src = src.wrapping_offset(line.stride.0);
        dst = dst.wrapping_offset(line.stride.1);
    }
}

/// Runs of a size known only now: in blocks of 16 by 16, which share lines on both sides.
///
/// # Safety
/// As [`move_plane`].
unsafe fn plane_of_runs(bytes: usize, plane: Plane, src: *const u8, dst: *mut u8) {
    for_blocks(plane, 16, |block, src_by, dst_by| {
        for i in 0..block.across.count as isize {
            let src = src.wrapping_offset(src_by + i * block.across.stride.0);
            let dst = dst.wrapping_offset(dst_by + i * block.across.stride.1);
            // SAFETY: a line of a block of the plane.
            unsafe { line_of_runs(bytes, block.along, src, dst) };
        }
    });
}

/// Calls `each` for blocks of `side` by `side` that tile `plane`, with their distances from its
/// start on either side; blocks along the destination first.
fn for_blocks(plane: Plane, side: usize, mut each: impl FnMut(Plane, isize, isize)) {
    for i in (0..plane.across.count).step_by(side) {
        for j in (0..plane.along.count).step_by(side) {
            let part =
                |line: Line, from: usize| Line { count: side.min(line.count - from), ..line };
            let block = Plane { along: part(plane.along, j), across: part(plane.across, i) };
            let (i, j) = (i as isize, j as isize);
            let src_by = i * plane.across.stride.0 + j * plane.along.stride.0;
            let dst_by = i * plane.across.stride.1 + j * plane.along.stride.1;
            each(block, src_by, dst_by);
        }
    }
}

/// # Safety
/// As [`move_line`], for elements of `N` bytes.
#[inline]
unsafe fn line_of<const N: usize>(line: Line, src: *const u8, dst: *mut u8) {
    match line.stride {
        // SAFETY: as here; constant strides let the compiler use wider instructions.
        (from, to) if to == N as isize => unsafe {
            strided::<N>(line.count, (src, from), (dst, N as isize))
        },
        // SAFETY: likewise.
        (from, to) if from == N as isize => unsafe {
            strided::<N>(line.count, (src, N as isize), (dst, to))
        },
        // SAFETY: likewise.
        (from, to) => unsafe { strided::<N>(line.count, (src, from), (dst, to)) },
    }
}

/// # Safety
/// As [`line_of`].
#[inline(always)]
unsafe fn strided<const N: usize>(
    count: usize,
    (src, from): (*const u8, isize),
    (dst, to): (*mut u8, isize),
) {
    for i in 0..count as isize {
        let src = src.wrapping_offset(i * from).cast::<[u8; N]>();
        let dst = dst.wrapping_offset(i * to).cast::<[u8; N]>();
        // SAFETY: an element of the line; byte arrays need no alignment.
        unsafe { dst.write(src.read()) };
    }
}

/// # Safety
/// As [`move_plane`], for elements of `N` bytes.
unsafe fn plane_of<const N: usize>(plane: Plane, src: *const u8, dst: *mut u8) {
    let side = const { tile_side(N) };
    let dense = plane.across.stride.0 == N as isize && plane.along.stride.1 == N as isize;
    if plane.across.count < FEW || plane.along.count < FEW {
        // SAFETY: as here.
        return unsafe { narrow_plane::<N>(plane, src, dst) };
    }
    for_blocks(plane, side * TILES, |region, src_by, dst_by| {
        let (src, dst) = (src.wrapping_offset(src_by), dst.wrapping_offset(dst_by));
        for_blocks(region, side, |block, src_by, dst_by| {
            let (src, dst) = (src.wrapping_offset(src_by), dst.wrapping_offset(dst_by));
            let full = dense && block.along.count == side && block.across.count == side;
            // SAFETY: a block of the plane; `full` says that rows are dense on both sides.
            unsafe {
                if full { dense_tile::<N>(block, src, dst) } else { block_of::<N>(block, src, dst) }
            }
        });
    });
}

/// The elements in a row of a tile.
const fn tile_side(bytes: usize) -> usize {
    let side = LINE_BYTES / bytes;
    if side < 4 { 4 } else { side }
}

/// A plane of few lines: strips of each in turn.
///
/// # Safety
/// As [`plane_of`].
unsafe fn narrow_plane<const N: usize>(plane: Plane, src: *const u8, dst: *mut u8) {
    for start in (0..plane.along.count).step_by(STRIP) {
        let along = Line { count: STRIP.min(plane.along.count - start), ..plane.along };
        let src = src.wrapping_offset(start as isize * along.stride.0);
        let dst = dst.wrapping_offset(start as isize * along.stride.1);
        // SAFETY: a strip of the plane.
        unsafe { block_of::<N>(Plane { along, ..plane }, src, dst) };
    }
}

/// # Safety
/// As [`plane_of`].
unsafe fn block_of<const N: usize>(block: Plane, src: *const u8, dst: *mut u8) {
    for i in 0..block.across.count as isize {
        let src = src.wrapping_offset(i * block.across.stride.0);
        let dst = dst.wrapping_offset(i * block.across.stride.1);
        // SAFETY: a line of the block.
        unsafe { line_of::<N>(block.along, src, dst) };
    }
}

/// A tile whose rows are one cache line on both sides: read by whole lines into a buffer, written
/// by whole lines out of it, so that power-of-two strides don't evict what is half used.
///
/// # Safety
/// As [`plane_of`], for a block of `64 / N` (at least 4) lines each way, dense on both sides.
unsafe fn dense_tile<const N: usize>(block: Plane, src: *const u8, dst: *mut u8) {
    let mut tile = [MaybeUninit::<u8>::uninit(); MAX_TILE_BYTES];
    let tile = tile.as_mut_ptr().cast::<[u8; N]>();
    let side = const { tile_side(N) };
    for j in 0..side {
        let row = src.wrapping_offset(j as isize * block.along.stride.0).cast::<[u8; N]>();
        // SAFETY: a row of the block, `side` elements side by side; the tile holds `side²`.
        unsafe { std::ptr::copy_nonoverlapping(row, tile.add(j * side), side) };
    }
    for i in 0..side {
        let row = dst.wrapping_offset(i as isize * block.across.stride.1).cast::<[u8; N]>();
        for j in 0..side {
            // SAFETY: a row of the block in the destination, likewise; the tile is full by now.
            unsafe { row.wrapping_add(j).write(*tile.add(j * side + i)) };
        }
    }
}

/// A tile of the smallest elements: 64 lines of 64 bytes.
const MAX_TILE_BYTES: usize = LINE_BYTES * LINE_BYTES;
