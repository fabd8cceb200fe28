//! The body of all transposes: squares of elements, each inside one lane of 16 bytes, in as many
//! lanes at once as a vector has.
//!
//! Elements of `E` bytes make squares of `n = 16 / E` by `n`. A vector of each of `n` rows is
//! loaded, log2(n) stages of zips exchange rows and columns in all lanes together, and a vector
//! of each column is stored. What the lanes of a vector are is free: neighbours along the
//! destination (then whole vectors are stored), along the source (whole vectors are loaded), or
//! along a third loop. Where a count is no multiple of a square's side, the last squares overlap
//! those before them: some elements are moved twice.

pub(crate) mod picked;
pub(crate) mod rows;
pub(crate) mod sides;

use self::sides::{SEVERAL_BYTES, Squares, by_lanes, by_lines, by_stage};
use crate::ahead::{prefetch, prefetch_near};
use crate::vector::{LANE_BYTES, LINE_BYTES, PAIR_BYTES, Vector};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Three loops over elements: the source is dense along `a`, the destination along `b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) o: usize,
    /// How far apart the source has turns of `b` and of `o`.
    pub(crate) src: (isize, isize),
    /// How far apart the destination has turns of `a` and of `o`.
    pub(crate) dst: (isize, isize),
    /// Whether squares have sides of a line, where that can be.
    pub(crate) has_line_sides: bool,
    /// How vectors that are lines move these past the caches.
    pub(crate) squares: Squares,
    /// How far ahead of a row the source is asked for; 0 for not at all.
    pub(crate) ahead: isize,
    /// As `ahead`, into a first-level cache, where squares with sides of a line ask into a second-level one.
    pub(crate) soon: isize,
    /// What is asked for meanwhile: as much as the tile has, from here on.
    pub(crate) next: Option<*const u8>,
    /// How many lines that has of each row, as far apart as the tile's: a multiple of [`sides::FEW`], or 0 for what lies in
    /// one piece.
    pub(crate) next_lines: usize,
}

/// Which loop the lanes of a vector lie along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Lanes {
    /// Along the destination.
    B,
    /// As `B`, past the caches: every vector is part of one line.
    Lines,
    /// As `Lines`, by vectors that are lines: what is asked for is a box of rows.
    Boxes,
    /// As `B`, from a copy of the source's rows, which lie at the same few places of a cache.
    Copied,
    /// Rows of a power of two of elements, less than a square's side, one right behind the other,
    /// past the caches: every vector is part of one line.
    Split,
    /// As `Split`, into the caches.
    SplitCached,
    /// Columns of a power of two of elements, one right behind the other, past the caches: every
    /// vector is part of one line.
    Join,
    /// As `Join`, into the caches, where rows are no less than a vector.
    JoinCached,
    /// Along the source.
    A,
    /// Along the third loop.
    O,
    /// As `B`, where `a` is shorter than a square and the source dense along both.
    ShortA,
    /// As `A`, where `b` is shorter than a square and the destination dense along both.
    ShortB,
}

impl Tile {
    /// How vectors of so many `lanes` move it by squares of side `n`; `None` where it is too small.
    pub(crate) fn lanes(&self, n: usize, lanes: usize) -> Option<Lanes> {
        let bytes = LANE_BYTES / n;
        let short_a = self.src.0 == (self.a * bytes) as isize;
        let short_b = self.dst.0 == (self.b * bytes) as isize;
        match () {
            () if self.a >= n && self.b >= lanes * n => Some(Lanes::B),
            () if self.a >= lanes * n && self.b >= n => Some(Lanes::A),
            () if self.a >= n && self.b >= n && self.o >= lanes => Some(Lanes::O),
            () if self.a < n && short_a && self.b >= lanes * n + n => Some(Lanes::ShortA),
            () if self.b < n && short_b && self.a >= lanes * n + n => Some(Lanes::ShortB),
            () => None,
        }
    }

    /// Where turn `o` of the third loop starts.
    #[inline(always)]
    pub(crate) fn turn(&self, o: isize, src: *const u8, dst: *mut u8) -> (*const u8, *mut u8) {
        (src.wrapping_offset(o * self.src.1), dst.wrapping_offset(o * self.dst.1))
    }

    /// Asks for a part of what lies ahead of a vector's rows: all of it in the steps that share their lines. `step` is the
    /// number of this one. Rows of less than a line have fewer steps, which ask for one line after the other.
    #[inline(always)]
    fn ask_ahead(&self, (rows, step): (isize, isize), src: *const u8) {
        const STEPS: isize = (LINE_BYTES / LANE_BYTES) as isize;
        if self.ahead == 0 {
            return;
        }
        let each = rows / STEPS;
        let apart = if self.src.0 > 0 { self.src.0.max(LINE_BYTES as isize) } else { self.src.0 };
        for j in 0..each {
            let at = step % STEPS * each + j;
            prefetch(src.wrapping_offset(at * apart + self.ahead));
        }
    }
}

/// Where chunks of a size that cover a count start; the last may overlap the one before it.
pub(crate) struct Chunks {
    next: usize,
    count: usize,
    size: usize,
}

impl Chunks {
    #[inline(always)]
    pub(crate) fn of(count: usize, size: usize) -> Self {
        Chunks { next: 0, count, size }
    }
}

impl Iterator for Chunks {
    type Item = isize;

    #[inline(always)]
    fn next(&mut self) -> Option<isize> {
        if self.next >= self.count {
            return None;
        }
        let start = self.next.min(self.count - self.size);
        self.next += self.size;
        Some(start as isize)
    }
}

/// The columns of `n` rows that `load` gives.
///
/// # Safety
/// The processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn square<V: Vector, const E: usize>(
    load: impl Fn(isize) -> V,
) -> [V; LANE_BYTES] {
    let n = const { LANE_BYTES / E };
    let mut rows = loaded(n, load);
    // SAFETY: the caller's contract.
    unsafe { shuffle::<V, E>(&mut rows, n, n) };
    rows
}

/// Lane `i` from `i * by` bytes behind `src`.
///
/// # Safety
/// As [`Vector::gather`].
#[inline(always)]
pub(crate) unsafe fn lanes<V: Vector>(src: *const u8, by: isize) -> V {
    // SAFETY: the caller's contract.
    unsafe { V::gather(|lane| src.wrapping_offset(lane as isize * by)) }
}

/// The first `count` vectors, as `load` gives them.
#[inline(always)]
pub(crate) fn loaded<V: Vector>(count: usize, load: impl Fn(isize) -> V) -> [V; LANE_BYTES] {
    let mut vectors = [load(0); LANE_BYTES];
    // Without `take`: so it is unrolled.
    for (j, vector) in vectors.iter_mut().enumerate().skip(1) {
        if j < count {
            *vector = load(j as isize);
        }
    }
    vectors
}

/// Makes lanes of rows of `to` elements out of lanes of the first `count` vectors: what was at
/// `i`, counted through a lane of all vectors in turn, goes to `i * to`, modulo all but the last.
///
/// # Safety
/// The processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn shuffle<V: Vector, const E: usize>(
    vectors: &mut [V; LANE_BYTES],
    count: usize,
    to: usize,
) {
    let mut stage = 1;
    while stage < to {
        // SAFETY: the caller's contract.
        *vectors = unsafe { zip_halves::<V, E>(*vectors, count) };
        stage *= 2;
    }
}

/// The first `count` vectors, of whose halves two that are at the same place are zipped; what is behind them is of no use.
///
/// # Safety
/// As [`shuffle`].
#[inline(always)]
unsafe fn zip_halves<V: Vector, const E: usize>(
    from: [V; LANE_BYTES],
    count: usize,
) -> [V; LANE_BYTES] {
    let two = |i: usize| match i < count / 2 {
        // SAFETY: the caller's contract.
        true => unsafe { from[i].zip::<E>(from[i + count / 2]) },
        false => (from[i], from[i]),
    };
    // Not in a loop, which the compiler may leave one: then vectors would wait in memory.
    let (a, b, c, d) = (two(0), two(1), two(2), two(3));
    let (e, f, g, h) = (two(4), two(5), two(6), two(7));
    [a.0, a.1, b.0, b.1, c.0, c.1, d.0, d.1, e.0, e.1, f.0, f.1, g.0, g.1, h.0, h.1]
}

/// Rows that are copied before they are moved have at most so much.
pub(crate) const COPIED_BYTES: usize = 4 * LINE_BYTES;

/// At most so many rows are.
pub(crate) const COPIED_ROWS: usize = 64;

/// How far apart copies of rows are.
const COPIED_PITCH: usize = pitch(COPIED_BYTES);

/// How far apart pieces of so many bytes are: an odd number of lines, so that they are not at the
/// same few places of a cache.
pub(crate) const fn pitch(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE_BYTES) | LINE_BYTES
}

/// Rows at multiples of this are at few places of the caches.
pub(crate) const SCATTERING_BYTES: isize = 512;

/// Where rows are copied to.
#[repr(align(64))]
struct CopiedRows(MaybeUninit<[u8; COPIED_ROWS * COPIED_PITCH]>);

/// How many vectors of a row are written one behind the other, if they are no less than a pair of
/// lines.
pub(crate) const PAIR: usize = 2;

/// How far ahead a row of the source is asked for, for squares with sides of a line.
pub(crate) const LINES_AHEAD_BYTES: isize = PAIR_BYTES as isize;

/// Whether squares of elements of `bytes` have sides of a line, by vectors of so many `lanes`: if these
/// are lines, or halves. Squares of small elements are more vectors than a processor holds: that is only
/// worth it past the caches, and not for bytes.
pub(crate) const fn are_lines(lanes: usize, bytes: usize, streams: bool) -> bool {
    let least = if streams { 2 } else { 4 };
    let squares = bytes.is_power_of_two() && bytes <= LANE_BYTES;
    (is_line(lanes) || is_line(2 * lanes)) && squares && bytes >= least
}

/// Whether vectors of so many `lanes` are lines.
pub(crate) const fn is_line(lanes: usize) -> bool {
    lanes * LANE_BYTES == LINE_BYTES
}

/// Lanes along the destination. With `STREAM`, past the caches.
///
/// # Safety
/// The elements are valid for reads at `src` and for writes at `dst`, apart; [`Tile::lanes`] says
/// [`Lanes::B`]. With `STREAM`, all vectors at `dst` are aligned, and `b` is a multiple of their
/// elements. The processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn along_b<V: Vector, const E: usize, const STREAM: bool>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let least = const { LINE_BYTES / E };
    if const { are_lines(V::LANES, E, STREAM) }
        && tile.has_line_sides
        && tile.a.min(tile.b) >= least
    {
        let several = const { STREAM && is_line(V::LANES) && E <= SEVERAL_BYTES };
        let boxes = const { !is_line(V::LANES) } && tile.next_lines > 0;
        // SAFETY: the caller's contract; there are squares.
        return unsafe {
            match tile.squares {
                Squares::Staged if several => by_stage::<V, E>(tile, src, dst),
                Squares::Lanes if several => by_lanes::<V, E>(tile, src, dst),
                _ if boxes => by_lines::<V, E, STREAM, true>(tile, src, dst),
                _ => by_lines::<V, E, STREAM, false>(tile, src, dst),
            }
        };
    }
    let n = const { (LANE_BYTES / E) as isize };
    let (row, to, rows) = (tile.src.0, tile.dst.0, n as usize * V::LANES);
    // Rows at few places of the caches compete for them where none is asked for ahead: fewer at once.
    let pair = if tile.ahead == 0 && row % SCATTERING_BYTES == 0 {
        PAIR
    } else {
        tile.b.div_ceil(rows).max(PAIR)
    };
    let mut next = tile.next;
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for start in (0..tile.b).step_by(pair * rows) {
            for a in Chunks::of(tile.a, n as usize) {
                for b in (start..tile.b.min(start + pair * rows)).step_by(rows) {
                    let b = b.min(tile.b - rows) as isize;
                    let src = src.wrapping_offset(b * row + a * E as isize);
                    let dst = dst.wrapping_offset(a * to + b * E as isize);
                    tile.ask_ahead((rows as isize, a / n), src);
                    ask(&mut next, rows * LANE_BYTES / LINE_BYTES);
                    // SAFETY: squares of the tile.
                    unsafe {
                        let load = |j| lanes::<V>(src.wrapping_offset(j * row), n * row);
                        let columns = square::<V, E>(load);
                        for i in 0..n {
                            let (column, dst) = (columns[i as usize], dst.wrapping_offset(i * to));
                            if STREAM { column.stream(dst) } else { column.store(dst) }
                        }
                    }
                }
            }
        }
    }
}

/// As [`along_b`] past the caches, for [`Lanes::Boxes`]. In one body with it squares that ask for no box were up to a
/// sixth slower.
///
/// # Safety
/// As [`along_b`].
#[inline(always)]
pub(crate) unsafe fn boxes<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let squares = const { is_line(V::LANES) && are_lines(V::LANES, E, true) };
    let sides = tile.has_line_sides && tile.a.min(tile.b) >= const { LINE_BYTES / E };
    // SAFETY: the caller's contract; there are squares with sides of a line.
    unsafe {
        match squares && sides && tile.next_lines > 0 {
            true => by_lines::<V, E, true, true>(tile, src, dst),
            false => along_b::<V, E, true>(tile, src, dst),
        }
    }
}

/// Asks for the next few `lines`, if anything is asked for, and goes on behind them.
#[inline(always)]
pub(crate) fn ask(next: &mut Option<*const u8>, lines: usize) {
    if let Some(next) = next {
        for _ in 0..lines {
            prefetch_near(*next);
            *next = next.wrapping_add(LINE_BYTES);
        }
    }
}

/// Lanes along the destination, from a copy of the source's rows.
///
/// # Safety
/// As [`along_b`], for [`Lanes::Copied`].
#[inline(always)]
pub(crate) unsafe fn copied<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let mut copy = CopiedRows(MaybeUninit::uninit());
    let copy = copy.0.as_mut_ptr().cast::<u8>();
    let packed = Tile {
        o: 1,
        src: (COPIED_PITCH as isize, 0),
        ahead: 0,
        soon: 0,
        next: None,
        next_lines: 0,
        ..*tile
    };
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        // SAFETY: rows of the tile, for which there is room; a turn of it.
        unsafe {
            for b in 0..tile.b {
                let src = src.wrapping_offset(b as isize * tile.src.0);
                copy_row::<V>(src, copy.wrapping_add(b * COPIED_PITCH), tile.a * E);
            }
            along_b::<V, E, false>(&packed, copy, dst);
        }
    }
}

/// Copies a row of a panel to where it is moved from.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn copy_row<V: Vector>(src: *const u8, dst: *mut u8, bytes: usize) {
    let vector = V::LANES * LANE_BYTES;
    // SAFETY: the caller's contract.
    unsafe {
        if !bytes.is_multiple_of(2 * vector) {
            return std::ptr::copy_nonoverlapping(src, dst, bytes);
        }
        // Two at a time: a call of libc's copy would cost as much as it moves.
        for at in (0..bytes).step_by(2 * vector) {
            let (low, high) = (V::load(src.add(at)), V::load(src.add(at + vector)));
            low.store(dst.add(at));
            high.store(dst.add(at + vector));
        }
    }
}

/// Lanes along the source.
///
/// # Safety
/// As [`along_b`], for [`Lanes::A`].
#[inline(always)]
pub(crate) unsafe fn along_a<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let n = const { (LANE_BYTES / E) as isize };
    let (row, to) = (tile.src.0, tile.dst.0);
    for o in 0..tile.o as isize {
        let (src, dst) = tile.turn(o, src, dst);
        for a in Chunks::of(tile.a, n as usize * V::LANES) {
            for b in Chunks::of(tile.b, n as usize) {
                let src = src.wrapping_offset(b * row + a * E as isize);
                let dst = dst.wrapping_offset(a * to + b * E as isize);
                // SAFETY: squares of the tile.
                unsafe {
                    let columns = square::<V, E>(|j| V::load(src.wrapping_offset(j * row)));
                    for i in 0..n {
                        columns[i as usize].scatter(dst.wrapping_offset(i * to), n * to);
                    }
                }
            }
        }
    }
}

/// Lanes along the third loop.
///
/// # Safety
/// As [`along_b`], for [`Lanes::O`].
#[inline(always)]
pub(crate) unsafe fn along_o<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let n = const { (LANE_BYTES / E) as isize };
    let (row, to) = (tile.src.0, tile.dst.0);
    for o in Chunks::of(tile.o, V::LANES) {
        let (src, dst) = tile.turn(o, src, dst);
        for b in Chunks::of(tile.b, n as usize) {
            for a in Chunks::of(tile.a, n as usize) {
                let src = src.wrapping_offset(b * row + a * E as isize);
                let dst = dst.wrapping_offset(a * to + b * E as isize);
                // SAFETY: squares of the tile.
                unsafe {
                    let load = |j| lanes::<V>(src.wrapping_offset(j * row), tile.src.1);
                    let columns = square::<V, E>(load);
                    for i in 0..n {
                        columns[i as usize].scatter(dst.wrapping_offset(i * to), tile.dst.1);
                    }
                }
            }
        }
    }
}

/// Moves elements one by one.
///
/// # Safety
/// As [`along_b`], for ranges of `a` and `b`.
pub(crate) unsafe fn elements<const E: usize>(
    tile: &Tile,
    (a, b): (Range<usize>, Range<usize>),
    src: *const u8,
    dst: *mut u8,
) {
    for a in a.start as isize..a.end as isize {
        for b in b.start as isize..b.end as isize {
            let src = src.wrapping_offset(b * tile.src.0 + a * E as isize);
            let dst = dst.wrapping_offset(a * tile.dst.0 + b * E as isize);
            // SAFETY: an element of the tile; byte arrays need no alignment.
            unsafe { dst.cast::<[u8; E]>().write(src.cast::<[u8; E]>().read()) };
        }
    }
}
