//! Rows of whole lanes that follow each other, past the caches.
//!
//! **Hazard.** Rows that are not whole lines share lines, and what is stored into a cache on the way waits for what
//! goes past it. **Structure.** Every fourth row starts with a line. A vector has a lane of two rows, four apart, which
//! start at the same lane of a line; so lanes of four squares, of which some have waited in registers as far as there
//! are any, are a line of each. How a row starts waits for the end of the one before it.

use super::picked::{are_picked, picked};
use super::sides::{FEW, ask_box};
use super::{Tile, ask, is_line, loaded, shuffle, square};
use crate::ahead::prefetch_near;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};

/// The lanes of a line.
const LANES: usize = LINE_BYTES / LANE_BYTES;

/// Rows so far apart start at the same lane of a line.
pub(crate) const ALIKE: usize = LANES;

/// Whether vectors of so many `lanes` move such rows, of elements of `bytes`: those of half a line.
pub(crate) const fn are_rows(lanes: usize, bytes: usize) -> bool {
    is_line(2 * lanes) && matches!(bytes, 4 | 8)
}

/// Moves a part of rows, before and behind which so many elements of each lie.
///
/// # Safety
/// As [`super::along_b`], for whole rows, and [`are_rows`] says so. Rows are longer than a line, whole lanes but not whole
/// lines, and follow each other from the start of a line on; there are as many as a line has elements, or a multiple.
/// A part starts with a multiple of these, and ends with one or with the rows.
#[inline(always)]
pub(crate) unsafe fn rows<V: Vector, const E: usize>(
    (tile, around): (&Tile, (usize, usize)),
    src: *const u8,
    dst: *mut u8,
) {
    if const { are_rows(V::LANES, E) } {
        // SAFETY: the caller's contract.
        unsafe {
            match (tile.b + around.1) * E / LANE_BYTES % LANES {
                1 => rows_of::<V, E, 1>((tile, around), src, dst),
                2 => rows_of::<V, E, 2>((tile, around), src, dst),
                _ => rows_of::<V, E, 3>((tile, around), src, dst),
            }
        }
    } else if const { are_picked(V::LANES, V::UNIT_BYTES, E) } {
        // SAFETY: the caller's contract.
        unsafe { picked::<V, E>(tile, src, dst) }
    } else {
        unreachable!("only such vectors and elements are moved so");
    }
}

/// As [`rows`], of whole lines and `REST` lanes.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_of<V: Vector, const E: usize, const REST: usize>(
    (tile, (before, behind)): (&Tile, (usize, usize)),
    src: *const u8,
    dst: *mut u8,
) {
    let (row, to) = (tile.src.0, tile.dst.0);
    let side = const { LINE_BYTES / E };
    let line = side as isize * row;
    let lines = tile.b / side;
    let mut asks = Asks { tile, next: tile.next, left: tile.next_lines };
    for a in (0..tile.a).step_by(side) {
        let start = src.wrapping_add(a * E);
        let (mut src, mut dst) = (start, dst.wrapping_offset(a as isize * to));
        // SAFETY: the caller's contract: lines and lanes of the tile, and what lies before it.
        unsafe {
            let mut parts = Parts::<V>::new(start);
            if before > 0 {
                parts.go_on::<E, REST>(
                    (Goal::Wait, LANES),
                    (src.wrapping_offset(-line), row),
                    (dst, to),
                );
            }
            for i in 0..lines {
                asks.ask(src.wrapping_offset(tile.ahead), side);
                match i == 0 && before == 0 {
                    true => parts.go_on::<E, REST>((Goal::Begin, LANES), (src, row), (dst, to)),
                    false => parts.go_on::<E, REST>((Goal::Lines, LANES), (src, row), (dst, to)),
                }
                src = src.wrapping_offset(line);
                dst = dst.wrapping_add(LINE_BYTES);
            }
            if behind == 0 {
                let few = const { (REST * LANE_BYTES / E).next_multiple_of(FEW) };
                asks.ask(src.wrapping_offset(tile.ahead), few);
                parts.go_on::<E, REST>((Goal::Lines, REST), (src, row), (dst, to));
                if before > 0 {
                    let start = start.wrapping_offset(-(before as isize) * row);
                    parts.go_on::<E, REST>((Goal::Start, LANES), (start, row), (dst, to));
                }
                let first = dst.wrapping_sub((before * E) + lines * LINE_BYTES);
                parts.end::<E, REST>((first, to));
            }
        }
    }
}

/// What is asked for meanwhile.
struct Asks<'a> {
    tile: &'a Tile,
    next: Option<*const u8>,
    left: usize,
}

impl Asks<'_> {
    /// Asks for so many lines, a multiple of [`FEW`]: of a box, of one piece, or `ahead` of rows.
    #[inline(always)]
    fn ask(&mut self, ahead: *const u8, count: usize) {
        if self.tile.next_lines > 0 {
            ask_box(self.tile, count, (&mut self.next, &mut self.left));
        } else if self.next.is_some() {
            ask(&mut self.next, count);
        } else if self.tile.ahead != 0 {
            for j in 0..count as isize {
                prefetch_near(ahead.wrapping_offset(j * self.tile.src.0));
            }
        }
    }
}

/// What is done with as many lanes of rows as a line has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Those that end a line are written with what has waited.
    Lines,
    /// So they are, but those before the first line of a row wait for the end of the row before it.
    Begin,
    /// As `Begin`, for these only.
    Start,
    /// What is left behind the last line waits.
    Wait,
}

/// What waits of as many rows as a line has elements, of up to two groups of two for each lane of a line.
struct Parts<V> {
    /// How they start, by the lanes of a line.
    starts: [[[V; LANES]; LANES]; 2],
    /// How they go on.
    held: [[[V; LANES]; LANES]; 2],
}

impl<V: Vector> Parts<V> {
    /// Nothing yet, for which it takes what is at `src`.
    ///
    /// # Safety
    /// As [`Vector::load`].
    #[inline(always)]
    unsafe fn new(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        let none = [[[unsafe { V::load(src) }; LANES]; LANES]; 2];
        Parts { starts: none, held: none }
    }

    /// Goes on with the rows by so many lanes.
    ///
    /// # Safety
    /// As [`rows_of`], for what is at `src` of the source's rows and for a line at `dst`, or as many lanes before it
    /// as a row starts behind a line.
    #[inline(always)]
    unsafe fn go_on<const E: usize, const REST: usize>(
        &mut self,
        (goal, lanes): (Goal, usize),
        (src, row): (*const u8, isize),
        (dst, to): (*mut u8, isize),
    ) {
        for g in 0..const { groups(E) } {
            let src = src.wrapping_add(g * LINE_BYTES / 2);
            let dst = dst.wrapping_offset((2 * g * LANES) as isize * to);
            for k in 0..lanes {
                let src = src.wrapping_offset((k * LANE_BYTES / E) as isize * row);
                // SAFETY: the caller's contract.
                unsafe {
                    let columns = columns::<V, E>(src, row);
                    self.take::<REST>((goal, g, k), columns, (dst, to));
                }
            }
        }
    }

    /// Takes lane `k` of a line of group `g`, and writes the lines that it ends.
    ///
    /// # Safety
    /// As [`Parts::go_on`], for a group.
    #[inline(always)]
    unsafe fn take<const REST: usize>(
        &mut self,
        (goal, g, k): (Goal, usize, usize),
        columns: [V; LANES],
        (dst, to): (*mut u8, isize),
    ) {
        for (i, &column) in columns.iter().enumerate() {
            let start = i * REST % LANES;
            let at = (start + k) % LANES;
            match goal {
                Goal::Begin | Goal::Start if start > 0 && start + k < LANES => {
                    self.starts[g][i][at] = column;
                    continue;
                }
                Goal::Start => continue,
                Goal::Wait if start + k < LANES => continue,
                _ => self.held[g][i][at] = column,
            }
            if at == LANES - 1 {
                let dst = dst.wrapping_offset(i as isize * to).wrapping_sub(start * LANE_BYTES);
                // SAFETY: the caller's contract.
                unsafe { stream_both(&self.held[g][i], dst, to) };
            }
        }
    }

    /// Writes the lines that are the end of a row and the start of the next.
    ///
    /// # Safety
    /// As [`rows_of`], of which the first starts at `dst`.
    #[inline(always)]
    unsafe fn end<const E: usize, const REST: usize>(&self, (dst, to): (*mut u8, isize)) {
        for g in 0..const { groups(E) } {
            for i in 1..LANES {
                let start = i * REST % LANES;
                let mut line = self.starts[g][i];
                for (k, lane) in line.iter_mut().enumerate().take(start) {
                    *lane = self.held[g][i - 1][k];
                }
                let dst = dst.wrapping_offset((2 * g * LANES + i) as isize * to);
                if start > 0 {
                    // SAFETY: the caller's contract.
                    unsafe { stream_both(&line, dst.wrapping_sub(start * LANE_BYTES), to) };
                }
            }
        }
    }
}

/// Of how many groups rows are that lie along a line of the source.
const fn groups(bytes: usize) -> usize {
    LINE_BYTES / bytes / (2 * LANES)
}

/// A lane of each row of a group, of two that lie [`LANES`] apart in each vector.
///
/// # Safety
/// The elements are valid for reads at `src`, and the processor has the instruction set of `V`.
#[inline(always)]
unsafe fn columns<V: Vector, const E: usize>(src: *const u8, row: isize) -> [V; LANES] {
    let n = const { LANE_BYTES / E };
    let half = |j: isize, i: usize| src.wrapping_offset(j * row).wrapping_add(i * LINE_BYTES / 2);
    // SAFETY: the caller's contract.
    unsafe {
        if const { LANE_BYTES / E == LANES } {
            let square = square::<V, E>(|j| V::load(half(j, 0)));
            return [square[0], square[1], square[2], square[3]];
        }
        let mut low = loaded(n, |j| V::load(half(j, 0)).unzip_lanes(V::load(half(j, 1))).0);
        let mut high = loaded(n, |j| V::load(half(j, 0)).unzip_lanes(V::load(half(j, 1))).1);
        shuffle::<V, E>(&mut low, n, n);
        shuffle::<V, E>(&mut high, n, n);
        [low[0], low[1], high[0], high[1]]
    }
}

/// Writes a line of two rows, [`LANES`] apart.
///
/// # Safety
/// As [`Vector::stream`], for lines at `dst` and there.
#[inline(always)]
unsafe fn stream_both<V: Vector>(line: &[V; LANES], dst: *mut u8, to: isize) {
    let other = dst.wrapping_offset(LANES as isize * to);
    // SAFETY: the caller's contract.
    unsafe {
        let (first, second) = (line[0].unzip_lanes(line[1]), line[2].unzip_lanes(line[3]));
        first.0.stream(dst);
        second.0.stream(dst.wrapping_add(LINE_BYTES / 2));
        first.1.stream(other);
        second.1.stream(other.wrapping_add(LINE_BYTES / 2));
    }
}
