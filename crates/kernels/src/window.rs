//! Records of fields of any sizes, taken apart and put together by vectors.
//!
//! **Hazard.** Fields of odd sizes, moved one by one, take an instruction or two for each, however
//! short they are. **Structure.** So many records are a *group* that its bytes, and those of each
//! field in it, are whole vectors. A vector of the result is made of *windows*: vectors of the
//! source, each from the first byte on that is still missing, or from the start of the line that has
//! it; out of each two of them a table takes what belongs there. One line is made of many groups before
//! the next one is, by vectors of a line or of half a line: their tables stay in registers, and what the
//! windows of these groups have in common stays in the first-level cache. Where memory takes the lines of a
//! row faster in their order than a few lines apart, it is one group behind the other instead ([`in_order`]).
//! What no table takes of a window is read all the same, and never used.

use crate::ahead::{Asks, FAR_BYTES, Row, prefetch, prefetch_near};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::mem::MaybeUninit;

pub(crate) mod lanes;

/// The most windows of a group whose rows start with a vector each: their tables are read from the
/// second-level cache at worst.
pub(crate) const MOST_WINDOWS: usize = 128;

/// How far ahead records that are taken apart group by group are asked for in the first-level cache: those
/// of a few groups.
const SOON_BYTES: usize = 2 << 10;

/// The number of a row, which records or the array of a field are, and of a byte in a group of it.
pub(crate) type Place = (u16, u16);

/// In place of a byte that no source has.
pub(crate) const GAP: Place = (u16::MAX, u16::MAX);

/// What a vector of the result has of two windows of the source, or of one for each of its lanes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Piece {
    /// For each byte of the result, by as many as a vector has, its number in the two windows, one behind
    /// the other, or in that of its lane; 128 or more where it comes from others.
    table: [u8; LINE_BYTES],
    from: [Place; LINE_BYTES / LANE_BYTES],
    /// How many windows these are, or 1 for one of each lane.
    windows: usize,
}

/// What a table has for the bytes that are in neither window.
const ELSEWHERE: u8 = u8::MAX;

/// A vector of the result.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Of how many windows it is made, in all or for each lane.
    windows: usize,
    /// The bytes that it writes, bit by bit.
    which: u64,
    to: Place,
}

/// How a group is moved.
pub(crate) struct Plan {
    /// Vectors that start anywhere have parts of two that start with a row, and so have windows of lines:
    /// three times as many at most. There are no more vectors than windows may be, so that twos of them, and one
    /// that is left of each vector, or those of each lane, are twice as many.
    pieces: [MaybeUninit<Piece>; 2 * MOST_WINDOWS],
    vectors: [MaybeUninit<Made>; MOST_WINDOWS],
    lens: (usize, usize),
    /// Whether windows are those of a lane each.
    by_lanes: bool,
    /// Whether gaps are somebody else's; else they are written with anything.
    leaves_gaps: bool,
}

impl Plan {
    pub(crate) fn new() -> Self {
        let pieces = [const { MaybeUninit::uninit() }; _];
        let vectors = [const { MaybeUninit::uninit() }; _];
        Plan { pieces, vectors, lens: (0, 0), by_lanes: false, leaves_gaps: true }
    }

    /// Takes all vectors out; those that are added then are made `by_lanes`, or not, and leave [`GAP`]s as they are or
    /// write them, too.
    pub(crate) fn clear(&mut self, (by_lanes, leaves_gaps): (bool, bool)) {
        (self.lens, self.by_lanes, self.leaves_gaps) = ((0, 0), by_lanes, leaves_gaps);
    }

    /// Adds a vector that goes `to`, unless nothing of it is written: the bytes of the source in it are `from`, and its
    /// windows start at multiples of `unit`.
    pub(crate) fn push(&mut self, (from, unit): (&[Place], u16), to: Place) {
        let has = bytes_of(from);
        if has == 0 && self.leaves_gaps {
            return;
        }
        let mut windows = 0;
        let mut add = |piece: Piece| {
            self.pieces[self.lens.0].write(piece);
            self.lens.0 += 1;
            windows += piece.windows;
        };
        match has {
            // Of any window, which there is.
            0 => add(Piece { table: [ELSEWHERE; _], from: [(0, 0); _], windows: 1 }),
            _ => pieces((from, unit), self.by_lanes, &mut add),
        }
        let which = if self.leaves_gaps { has } else { u64::MAX >> (LINE_BYTES - from.len()) };
        assert!(!self.by_lanes || windows <= lanes::MOST_OF_A_LANE, "a lane has too many windows");
        self.vectors[self.lens.1].write(Made { windows, which, to });
        self.lens.1 += 1;
    }

    fn pieces(&self) -> &[Piece] {
        // SAFETY: `push` wrote so many.
        unsafe { self.pieces[..self.lens.0].assume_init_ref() }
    }

    fn vectors(&self) -> &[Made] {
        // SAFETY: `push` wrote so many.
        unsafe { self.vectors[..self.lens.1].assume_init_ref() }
    }

    /// Whether vectors have bytes that are not written.
    fn has_gaps(&self, bytes: usize) -> bool {
        self.vectors().iter().any(|made| made.which.count_ones() as usize != bytes)
    }

    /// Where the windows start.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.pieces().iter().flat_map(|piece| piece.from)
    }
}

/// How many windows that start anywhere a vector is made of whose bytes are `from`, in all or for each lane.
pub(crate) fn count(from: &[Place], by_lanes: bool) -> usize {
    let mut count = 0;
    pieces((from, 1), by_lanes, &mut |piece| count += piece.windows);
    count
}

/// Calls `each` for what a vector is made of whose bytes are `from`: windows, lane by lane or by twos, which start at
/// multiples of `unit`.
fn pieces(from: (&[Place], u16), by_lanes: bool, each: &mut impl FnMut(Piece)) {
    match by_lanes {
        true => lanes::pieces(from.0, each),
        false => pairs(from, each),
    }
}

/// Calls `each` for the windows that a vector is made of, by twos: the bytes of the source in it, as many
/// as a vector has, are `from`. Windows start at multiples of `unit`. The last may be there twice.
fn pairs((from, unit): (&[Place], u16), each: &mut impl FnMut(Piece)) {
    let mut missing = bytes_of(from);
    let place = |missing: u64| {
        let (row, byte) = *from.get(missing.trailing_zeros() as usize)?;
        Some((row, byte / unit * unit))
    };
    while let Some(first) = place(missing) {
        let mut pair = Piece { table: [ELSEWHERE; LINE_BYTES], from: [first; _], windows: 1 };
        for (behind, window) in pair.from.iter_mut().enumerate().take(2) {
            *window = place(missing).unwrap_or(first);
            let mut rest = missing;
            while rest != 0 {
                let i = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let number = usize::from(from[i].1).wrapping_sub(window.1.into());
                if from[i].0 == window.0 && number < from.len() {
                    missing &= !(1 << i);
                    pair.table[i] = (behind * from.len() + number) as u8;
                }
            }
        }
        pair.windows += usize::from(pair.from[0] != pair.from[1]);
        each(pair);
    }
}

/// The bytes of a vector that a source has, bit by bit.
fn bytes_of(from: &[Place]) -> u64 {
    let gaps = from.iter().enumerate().filter(|(_, from)| **from == GAP);
    gaps.fold(u64::MAX >> (LINE_BYTES - from.len()), |all, (i, _)| all & !(1 << i))
}

/// What is moved: so many groups of so many records of rows. A line of two vectors asks for one line of what
/// is behind them.
#[derive(Clone, Copy)]
struct Groups<'a> {
    times: usize,
    group: usize,
    rows: &'a [Row<*const u8>],
    /// Where the first line is that is asked for, and how far it is from one to the next.
    ask: *const u8,
    ask_step: usize,
}

/// Moves `times` groups of so many records of the rows `from` and `to`, past the caches if it
/// `streams`; and asks for as many groups behind them, and for what lies far behind these if
/// they go by single vectors. Else so many `PARTS`, one behind the other, make a line.
///
/// # Safety
/// What the windows read of the groups is valid for reads, and the groups for writes, apart; the plan
/// is for vectors of this size, line by line, which start with one of the destination where it `streams`;
/// the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn groups<V: Vector, const PARTS: usize, const BY_LANES: bool>(
    plan: &Plan,
    (times, group, streams): (usize, usize, bool),
    from: &[Row<*const u8>],
    to: &[Row<*mut u8>],
) {
    let lines: usize = from.iter().map(|row| times * group * row.step / LINE_BYTES).sum();
    let share = lines.div_ceil((plan.lens.1 / PARTS).max(1));
    let mut asks = Asks::new(from, times * group);
    // What is read with gaps has more lines than are made: then these are asked for that are so far apart.
    let ask_step = share * LINE_BYTES / times.max(1);
    // Vectors that have masks are lines by themselves: then `PARTS` is 1.
    let has_gaps = V::MASKS && plan.has_gaps(V::LANES * LANE_BYTES);
    let mut pieces = plan.pieces();
    for line in plan.vectors().chunks_exact(PARTS) {
        let ask = match PARTS {
            1 => {
                asks.ask_far(share);
                None
            }
            _ => asks.take(share),
        };
        let Made { which, to: (row, at), .. } = line[0];
        let row = to[usize::from(row)];
        let to = (row.at.wrapping_add(at.into()), group * row.step);
        let mut these: [&[Piece]; PARTS] = [&[]; PARTS];
        for (these, made) in these.iter_mut().zip(line) {
            let twos = made.windows.div_ceil(2);
            (*these, pieces) = pieces.split_at(if BY_LANES { made.windows } else { twos });
        }
        let ask = ask.unwrap_or(from[0].at);
        let from = Groups { times, group, rows: from, ask, ask_step };
        if BY_LANES {
            // SAFETY: the caller's contract, for a line of each group.
            unsafe {
                match streams {
                    true => lanes::by_windows(these, from, to, |made: V, dst| made.stream(dst)),
                    false => lanes::by_windows(these, from, to, |made: V, dst| made.store(dst)),
                }
            }
            continue;
        }
        // Where parts differ, twos of windows are picked from as often for each.
        let windows = line.iter().map(|made| made.windows).max().unwrap_or(0);
        let alike = line.iter().all(|made| made.windows == windows);
        let windows = if alike { windows } else { windows.next_multiple_of(2) };
        let these = (windows, these);
        // SAFETY: the caller's contract, for a line of each group.
        unsafe {
            match streams {
                true => by_rows(these, from, to, |made: V, dst| made.stream(dst)),
                // A line that is written in part is read first. No body is built for what has no masks.
                false if V::MASKS && has_gaps => by_rows(these, from, to, |made: V, dst| {
                    made.store_some(dst, which);
                    prefetch(dst.wrapping_add(times * to.1));
                    prefetch_near(dst.wrapping_add(FAR_BYTES));
                }),
                false => by_rows(these, from, to, |made: V, dst| made.store(dst)),
            }
        }
    }
}

/// As [`groups`], past the caches and out of one row, one group behind the other: the lines of each row of the
/// result are written in their order, which memory takes faster, and tables are read each time.
///
/// # Safety
/// As [`groups`], for a line of vectors that are lines.
#[inline(always)]
pub(crate) unsafe fn in_order<V: Vector>(
    plan: &Plan,
    (times, group): (usize, usize),
    from: Row<*const u8>,
    to: &[Row<*mut u8>],
) {
    // Each vector asks for its share of the lines that a group has.
    let (lines, vectors) = (group * from.step / LINE_BYTES, plan.lens.1);
    let (mut due, mut ask) = (0, from.at);
    for n in 0..times {
        let src = from.at.wrapping_add(n * group * from.step);
        let pick = |pair: &Piece| {
            let window = |i: usize| src.wrapping_add(pair.from[i].1.into());
            let (first, second) = (window(0), window(1));
            // SAFETY: the caller's contract; a table is as long as a vector.
            unsafe {
                let table = V::load(pair.table.as_ptr());
                (V::pick((V::load(first), V::load(second)), table), table)
            }
        };
        let mut pairs = plan.pieces().iter();
        for Made { windows, to: (row, at), .. } in plan.vectors() {
            due += lines;
            while due >= vectors {
                prefetch(ask.wrapping_add(SOON_BYTES));
                prefetch_near(ask.wrapping_add(FAR_BYTES));
                ask = ask.wrapping_add(LINE_BYTES);
                due -= vectors;
            }
            let Some((mut made, _)) = pairs.next().map(pick) else { return };
            for (more, table) in pairs.by_ref().take((windows - 1) / 2).map(pick) {
                // SAFETY: the caller's contract.
                made = unsafe { more.or_else(made, table) };
            }
            let to = to[usize::from(*row)];
            let dst = to.at.wrapping_add(n * group * to.step + usize::from(*at));
            // SAFETY: the caller's contract.
            unsafe { made.stream(dst) }
        }
    }
}

/// As [`by_windows`], for sources of one row and of several.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by_rows<V: Vector, const PARTS: usize>(
    windows: (usize, [&[Piece]; PARTS]),
    from: Groups<'_>,
    to: (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    // SAFETY: the caller's contract.
    unsafe {
        match from.rows.len() {
            1 => by_windows::<V, PARTS, true>(windows, from, to, put),
            _ => by_windows::<V, PARTS, false>(windows, from, to, put),
        }
    }
}

/// Makes a line of each of so many groups, and calls `put` with its parts and where they go. Whether the
/// source is `ONE` row is known then: its windows are told by how far they are behind it.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by_windows<V: Vector, const PARTS: usize, const ONE: bool>(
    (windows, pairs): (usize, [&[Piece]; PARTS]),
    from: Groups<'_>,
    to: (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    // SAFETY: the caller's contract.
    unsafe {
        match windows {
            1 => by::<V, PARTS, ONE, 1>(pairs, from, to, put),
            2 => by::<V, PARTS, ONE, 2>(pairs, from, to, put),
            3 => by::<V, PARTS, ONE, 3>(pairs, from, to, put),
            4 => by::<V, PARTS, ONE, 4>(pairs, from, to, put),
            5 => by::<V, PARTS, ONE, 5>(pairs, from, to, put),
            6 => by::<V, PARTS, ONE, 6>(pairs, from, to, put),
            7 => by::<V, PARTS, ONE, 7>(pairs, from, to, put),
            8 => by::<V, PARTS, ONE, 8>(pairs, from, to, put),
            _ => by_any::<V, PARTS, ONE>(pairs, from, to, put),
        }
    }
}

/// As [`by_windows`], for `N` windows, whose tables stay in registers.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by<V: Vector, const PARTS: usize, const ONE: bool, const N: usize>(
    pairs: [&[Piece]; PARTS],
    Groups { times, group, rows: from, mut ask, ask_step }: Groups<'_>,
    (dst, step): (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    // SAFETY: a table is as long as a vector.
    let mut tables = [[unsafe { V::load(pairs[0][0].table.as_ptr()) }; N]; PARTS];
    let (mut rows, mut behind) = ([[from[0]; N]; PARTS], [[0; N]; PARTS]);
    let mut at = [[from[0].at; N]; PARTS];
    // By loops, since there are hundreds of these bodies, and closures are built for each.
    for (part, pairs) in pairs.iter().enumerate() {
        for i in 0..N {
            // What is picked twice, where a part has fewer windows, is the same.
            let pair = &pairs[(i / 2).min(pairs.len() - 1)];
            let (row, start) = pair.from[i % 2];
            (rows[part][i], behind[part][i]) = (from[usize::from(row)], usize::from(start));
            at[part][i] = rows[part][i].at.wrapping_add(behind[part][i]);
            // SAFETY: a table is as long as a vector.
            tables[part][i] = unsafe { V::load(pair.table.as_ptr()) };
        }
    }
    let mut row = rows[0][0].at;
    for n in 0..times {
        if PARTS > 1 {
            prefetch(ask);
            ask = ask.wrapping_add(ask_step);
        }
        for (part, tables) in tables.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe {
                let window = |i: usize| {
                    V::load(if ONE { row.wrapping_add(behind[part][i]) } else { at[part][i] })
                };
                let two = |i: usize| {
                    let first = window(i);
                    (first, if i + 1 < N { window(i + 1) } else { first })
                };
                let mut made = V::pick(two(0), tables[0]);
                for i in (2..N).step_by(2) {
                    made = V::pick(two(i), tables[i]).or_else(made, tables[i]);
                }
                put(made, dst.wrapping_add(n * step + part * V::LANES * LANE_BYTES));
            }
        }
        row = row.wrapping_add(group * rows[0][0].step);
        for (at, rows) in at.as_flattened_mut().iter_mut().zip(rows.as_flattened()) {
            *at = at.wrapping_add(group * rows.step);
        }
    }
}

/// As [`by_windows`], for any number of windows, whose tables are read each time.
///
/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn by_any<V: Vector, const PARTS: usize, const ONE: bool>(
    pairs: [&[Piece]; PARTS],
    Groups { times, group, rows: from, mut ask, ask_step }: Groups<'_>,
    (dst, step): (*mut u8, usize),
    put: impl Fn(V, *mut u8),
) {
    for n in 0..times {
        if PARTS > 1 {
            prefetch(ask);
            ask = ask.wrapping_add(ask_step);
        }
        for (part, pairs) in pairs.iter().enumerate() {
            let Some(first) = pairs.first() else { return };
            // SAFETY: the caller's contract; a table is as long as a vector.
            unsafe {
                let mut made = V::load(first.table.as_ptr());
                for pair in *pairs {
                    let window = |(row, behind): Place| {
                        let row = if ONE { from[0] } else { from[usize::from(row)] };
                        V::load(row.at.wrapping_add(n * group * row.step + usize::from(behind)))
                    };
                    let (first, second) = (window(pair.from[0]), window(pair.from[1]));
                    let table = V::load(pair.table.as_ptr());
                    made = V::pick((first, second), table).or_else(made, table);
                }
                put(made, dst.wrapping_add(n * step + part * V::LANES * LANE_BYTES));
            }
        }
    }
}

/// How many records make a group, where the bytes of fields and of records are multiples of a
/// number, and what is made at once are so many.
pub(crate) fn group_of(bytes: usize, made: usize) -> usize {
    made >> bytes.trailing_zeros().min(made.ilog2())
}
