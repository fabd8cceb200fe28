//! Records of fields of any sizes, taken apart and put together by vectors.
//!
//! **Hazard.** Fields of odd sizes, moved one by one, take an instruction or two for each, however
//! short they are. **Structure.** So many records are a *group* that its bytes, and those of each
//! field in it, are whole vectors. A vector of the result is made of *windows*: vectors of the
//! source, each from the first byte on that is still missing, or from the start of the line that has
//! it, out of which a table takes what belongs there. One vector is made of many groups before the next
//! one is: its tables stay in registers, and what the windows of these groups have in common stays in the
//! first-level cache. What no table takes of a window is read all the same, and never used.

use crate::stream;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::array::from_fn;
use std::mem::MaybeUninit;

/// The most windows of a group whose rows start with a vector each: their tables are read from the
/// second-level cache at worst.
pub(crate) const MOST_WINDOWS: usize = 128;

/// The number of a row, which records or the array of a field are, and of a byte in a group of it.
pub(crate) type Place = (u16, u16);

/// What a vector of the result has of one of the source.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// For each byte of the result, by as many as a vector has, its number in what there is already or,
    /// behind that, in the window.
    table: [u8; LINE_BYTES],
    from: Place,
}

/// A vector of the result.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Of how many windows it is made.
    windows: usize,
    to: Place,
}

/// How a group is moved.
pub(crate) struct Plan {
    /// Vectors that start anywhere have parts of two that start with a row, and so have windows of lines.
    windows: [MaybeUninit<Window>; 3 * MOST_WINDOWS],
    vectors: [MaybeUninit<Made>; MOST_WINDOWS],
    lens: (usize, usize),
}

/// Where a row is, and how far it is to its next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<P> {
    pub(crate) at: P,
    pub(crate) step: usize,
}

impl Plan {
    pub(crate) fn new() -> Self {
        let windows = [const { MaybeUninit::uninit() }; _];
        Plan { windows, vectors: [const { MaybeUninit::uninit() }; _], lens: (0, 0) }
    }

    /// Adds a vector that goes `to`: the bytes of the source in it are `from`, and its windows start at
    /// multiples of `unit`.
    pub(crate) fn push(&mut self, (from, unit): (&[Place], u16), to: Place) {
        let before = self.lens.0;
        windows((from, unit), &mut |window| {
            self.windows[self.lens.0].write(window);
            self.lens.0 += 1;
        });
        self.vectors[self.lens.1].write(Made { windows: self.lens.0 - before, to });
        self.lens.1 += 1;
    }

    fn windows(&self) -> &[Window] {
        // SAFETY: `push` wrote so many.
        unsafe { self.windows[..self.lens.0].assume_init_ref() }
    }

    fn vectors(&self) -> &[Made] {
        // SAFETY: `push` wrote so many.
        unsafe { self.vectors[..self.lens.1].assume_init_ref() }
    }

    /// Where the windows start.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.windows().iter().map(|window| window.from)
    }
}

/// How many windows that start anywhere a vector is made of whose bytes are `from`.
pub(crate) fn count(from: &[Place]) -> usize {
    let mut count = 0;
    windows((from, 1), &mut |_| count += 1);
    count
}

/// Calls `each` for the windows that a vector is made of: the bytes of the source in it, as many as a
/// vector has, are `from`. Windows start at multiples of `unit`.
fn windows((from, unit): (&[Place], u16), each: &mut impl FnMut(Window)) {
    let mut missing = [false; LINE_BYTES];
    missing[..from.len()].fill(true);
    while let Some(first) = missing.iter().position(|m| *m) {
        let (row, start) = (from[first].0, from[first].1 / unit * unit);
        let mut table = from_fn(|i| i as u8);
        for (i, &(r, byte)) in from.iter().enumerate() {
            let number = usize::from(byte).wrapping_sub(start.into());
            if missing[i] && r == row && number < from.len() {
                (table[i], missing[i]) = ((from.len() + number) as u8, false);
            }
        }
        each(Window { table, from: (row, start) });
    }
}

/// Moves `times` groups of so many records of the rows `from` and `to`, past the caches if it
/// `streams`; and asks for as many groups behind them, `near` or in the first-level cache.
///
/// # Safety
/// What the windows read of the groups is valid for reads, and the groups for writes, apart; the plan
/// is for vectors of this size, whose places are multiples of it where it `streams`; the processor
/// has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn groups<V: Vector>(
    plan: &Plan,
    (times, group, streams): (usize, usize, bool),
    (from, near): (&[Row<*const u8>], bool),
    to: &[Row<*mut u8>],
) {
    let lines: usize = from.iter().map(|row| times * group * row.step / LINE_BYTES).sum();
    let share = lines.div_ceil(plan.lens.1.max(1));
    let mut asks = from.iter().flat_map(|row| {
        let bytes = times * group * row.step;
        (bytes..2 * bytes).step_by(LINE_BYTES).map(|line| row.at.wrapping_add(line))
    });
    let mut windows = plan.windows();
    for made in plan.vectors() {
        let these = asks.by_ref().take(share);
        match near {
            true => these.for_each(stream::prefetch_near),
            false => these.for_each(stream::prefetch),
        }
        let row = to[usize::from(made.to.0)];
        let step = group * row.step;
        let dst = row.at.wrapping_add(made.to.1.into());
        let (these, rest) = windows.split_at(made.windows);
        windows = rest;
        let at = (times, group, from);
        // SAFETY: the caller's contract, for a vector of each group.
        unsafe {
            match streams {
                true => by_windows(these, at, (dst, step), |made: V, dst| made.stream(dst)),
                false => by_windows(these, at, (dst, step), |made: V, dst| made.store(dst)),
            }
        }
    }
}

/// Makes a vector of each of so many groups, and calls `put` with it and where it goes.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by_windows<V: Vector>(
    windows: &[Window],
    from: (usize, usize, &[Row<*const u8>]),
    to: (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    // SAFETY: the caller's contract.
    unsafe {
        match windows.len() {
            1 => by::<V, 1>(windows, from, to, put),
            2 => by::<V, 2>(windows, from, to, put),
            3 => by::<V, 3>(windows, from, to, put),
            4 => by::<V, 4>(windows, from, to, put),
            5 => by::<V, 5>(windows, from, to, put),
            6 => by::<V, 6>(windows, from, to, put),
            7 => by::<V, 7>(windows, from, to, put),
            8 => by::<V, 8>(windows, from, to, put),
            _ => by_any(windows, from, to, put),
        }
    }
}

/// As [`by_windows`], for `N` windows, whose tables stay in registers.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by<V: Vector, const N: usize>(
    windows: &[Window],
    (times, group, from): (usize, usize, &[Row<*const u8>]),
    (dst, step): (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    let rows: [_; N] = from_fn(|i| from[usize::from(windows[i].from.0)]);
    let steps: [_; N] = from_fn(|i| group * rows[i].step);
    let mut at: [_; N] = from_fn(|i| rows[i].at.wrapping_add(windows[i].from.1.into()));
    // SAFETY: a table is as long as a vector.
    let tables: [V; N] = from_fn(|i| unsafe { V::load(windows[i].table.as_ptr()) });
    for n in 0..times {
        // SAFETY: the caller's contract.
        unsafe {
            let mut made = V::load(at[0]);
            made = made.take(made, tables[0]);
            for i in 1..N {
                made = made.take(V::load(at[i]), tables[i]);
            }
            put(made, dst.wrapping_add(n * step));
        }
        at = from_fn(|i| at[i].wrapping_add(steps[i]));
    }
}

/// As [`by_windows`], for more windows than registers hold tables of.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by_any<V: Vector>(
    windows: &[Window],
    (times, group, from): (usize, usize, &[Row<*const u8>]),
    (dst, step): (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    let Some(first) = windows.first() else { return };
    for n in 0..times {
        // SAFETY: the caller's contract; a table is as long as a vector.
        unsafe {
            let mut made = V::load(first.table.as_ptr());
            for window in windows {
                let row = from[usize::from(window.from.0)];
                let at = row.at.wrapping_add(n * group * row.step + usize::from(window.from.1));
                made = made.take(V::load(at), V::load(window.table.as_ptr()));
            }
            put(made, dst.wrapping_add(n * step));
        }
    }
}

/// How many records make a group, where the bytes of fields and of records are multiples of a
/// number and vectors have so many lanes.
pub(crate) fn group_of(bytes: usize, lanes: usize) -> usize {
    let vector = lanes * LANE_BYTES;
    vector >> bytes.trailing_zeros().min(vector.ilog2())
}
