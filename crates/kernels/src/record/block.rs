//! A block of records: put together in the first-level cache, and written out.

use super::{
    Aid, Block, Fill, Hybrid, MOST_BY_TABLE, Records, Rows, Stage, Table, Windowed, dense, halves,
    picks,
};
use crate::ahead::{Asks, prefetch};
use crate::element::{Line, Plane, move_line, move_lines};
use crate::narrow::{short_a, short_b, split};
use crate::stream;
use crate::tile::sides::Squares;
use crate::tile::{Lanes, Tile, along_a, along_b, along_o, elements, is_line};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use crate::window::{self, lanes::LANES};
use std::ops::Range;

/// How far ahead records are asked for that are taken apart by tables.
pub(super) const AHEAD_BYTES: usize = 2 << 10;

/// Hybrids of fewer records are moved from hybrid to hybrid.
const FEW: usize = 8;

/// Bodies of which each takes longer if it is one with another: for squares, for those of hybrids, and for the others.
pub(crate) const OTHERS: usize = 0;
pub(crate) const SQUARES: usize = 1;
pub(crate) const HYBRIDS: usize = 2;
pub(crate) const BODIES: usize = 3;

/// Moves a block of records, by the body of this number.
///
/// # Safety
/// As [`Records::run`]; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn run<V: Vector, const BODY: usize>(
    records: &Records<'_>,
    (start, count): Block,
    (rows, stage): (&Rows, &mut Stage<'_>),
) {
    // Nothing is built for what no choice comes to.
    if const { BODY == HYBRIDS && V::LANES != LANES || BODY == SQUARES && is_line(V::LANES) } {
        unreachable!("such vectors make no squares in a stage");
    }
    // SAFETY: the caller's contract.
    unsafe {
        let done = match &mut stage.aid {
            _ if const { BODY != OTHERS } => squares::<V, BODY>(records, count, rows),
            Aid::None if records.fill == Fill::Dense => dense::run::<V>(records, count, rows),
            Aid::None => 0,
            Aid::Tables(table) => match records.fields.len() {
                3 => tables::<V, 3>(records, count, (table, rows)),
                5 => tables::<V, 5>(records, count, (table, rows)),
                6 => tables::<V, 6>(records, count, (table, rows)),
                _ => tables::<V, MOST_BY_TABLE>(records, count, (table, rows)),
            },
            Aid::Picks(picks) => picks::run::<V>(records, (start, count), (rows, picks)),
            Aid::Halves(halves, staged) => {
                halves::run::<V>(records, (start, count), (rows, halves, staged))
            }
            Aid::Windows(_) => unreachable!("windows have a body of their own"),
        };
        if done < count {
            for i in 0..records.fields.len() {
                if !records.splits
                    && i < rows.lens.0
                    && !matches!(records.fill, Fill::Picks | Fill::Dense)
                {
                    // What the block behind has of the field; there is none where these are.
                    let row = rows.from[i];
                    for at in (0..records.block * row.step).step_by(LINE_BYTES) {
                        prefetch(row.at.wrapping_add(count * row.step + at));
                    }
                }
                one_by_one(records, i, done..count, rows);
            }
        }
        if records.stages() {
            let carried = stage.carried.0.as_mut_ptr().cast();
            flush::<V, BODY>(records, (start, count), (rows, carried, &stage.starts));
        }
    }
}

/// Writes a block out, past the caches.
///
/// # Safety
/// As [`run`], with the block in `rows`, which start at `starts`, and what is carried of each at `carried`.
#[inline(always)]
unsafe fn flush<V: Vector, const BODY: usize>(
    records: &Records<'_>,
    (start, count): Block,
    (rows, carried, starts): (&Rows, *mut u8, &Rows),
) {
    let ends = (start == 0, start + count == records.count);
    // Records behind are asked for while lines are written, if they are not while they are read.
    let behind = rows.from[0].at.wrapping_add(count * records.pitch);
    let by_squares = const { BODY != OTHERS };
    let by_row = records.splits && (by_squares || records.fill == Fill::Elements);
    let ahead = if by_row { records.block * records.pitch } else { 0 };
    let share = ahead.div_ceil(rows.lens.1);
    // By halves a block takes so little time that all that is behind it is asked for line by line, and so it is of arrays
    // that squares are put together of.
    let by_line = !is_line(V::LANES)
        && if by_squares { !records.splits } else { records.fill == Fill::Halves };
    let from = if by_line { &rows.from[..rows.lens.0] } else { &[] };
    let payload = || records.fields.iter().map(|field| field.bytes).sum();
    let each = if by_line && records.splits { records.pitch.div_ceil(payload()) } else { 1 };
    let mut asks = Asks::new(from, count);
    for i in 0..rows.lens.1 {
        for at in (i * share..(i + 1) * share).step_by(LINE_BYTES) {
            prefetch(behind.wrapping_add(at));
        }
        let row = rows.to[i].at.wrapping_sub(LINE_BYTES);
        let carried = carried.wrapping_add(i * LINE_BYTES);
        let to = starts.to[i];
        let place = to.at.wrapping_add(start * to.step);
        let ask = by_line.then_some(|| asks.ask(each));
        // SAFETY: what the block has of a field, or of the records.
        unsafe { stream::carry::<V>((row, carried, place), count * to.step, ends, ask) };
    }
}

/// Moves field `i` of these records of a block, one by one.
///
/// # Safety
/// As [`run`].
#[inline(always)]
pub(super) unsafe fn one_by_one(records: &Records<'_>, i: usize, these: Range<usize>, rows: &Rows) {
    if let Some(hybrid) = records.hybrid {
        // SAFETY: the caller's contract.
        return unsafe { in_hybrids(records, hybrid, (i, these), rows) };
    }
    let (field, place, count) = (records.fields.at(i), records.place(i), these.len());
    let (from, to) = match records.splits {
        true => (rows.from[0].at.wrapping_add(place), rows.to[i].at),
        false => (rows.from[i].at, rows.to[0].at.wrapping_add(place)),
    };
    let steps = match records.splits {
        true => (records.pitch, field.bytes),
        false => (field.bytes, records.pitch),
    };
    let from = from.wrapping_add(these.start * steps.0);
    let to = to.wrapping_add(these.start * steps.1);
    let line = Line { count, stride: (steps.0 as isize, steps.1 as isize) };
    // SAFETY: elements of a field, which the rows have.
    unsafe { move_line(field.bytes, line, from, to) };
}

/// As [`one_by_one`], for those of hybrids. It has no vectors, and a place of its own: beside these it is in
/// the way.
///
/// # Safety
/// As [`run`].
#[inline(never)]
unsafe fn in_hybrids(
    records: &Records<'_>,
    hybrid: Hybrid,
    (i, these): (usize, Range<usize>),
    rows: &Rows,
) {
    let (bytes, places) = (records.fields.at(i).bytes, (records.place(i), records.place_apart(i)));
    let (places, steps) = match records.splits {
        true => (places, (hybrid.step, bytes)),
        false => ((places.1, places.0), (bytes, hybrid.step)),
    };
    let (src, dst) = (rows.from[0], rows.to[0]);
    let from = src.at.wrapping_add(these.start * src.step + places.0);
    let to = dst.at.wrapping_add(these.start * dst.step + places.1);
    let line = |count, steps: (usize, usize)| {
        let stride = (steps.0 as isize, steps.1 as isize);
        Line { count, stride }
    };
    let (inner, hybrids) = (line(hybrid.inner, steps), line(these.len(), (src.step, dst.step)));
    let (along, across) = if inner.count < FEW { (hybrids, inner) } else { (inner, hybrids) };
    // SAFETY: elements of a field, which the rows have.
    unsafe { move_lines(bytes, Plane { along, across }, from, to) };
}

/// Moves the groups that a block has by windows, and asks for what is behind them. What goes past the
/// caches is made line by line, if need be by two vectors each, or group by group.
///
/// # Safety
/// As [`Records::run`], for records that windows are found out for; the processor has the instruction set
/// of `V`.
#[inline(always)]
pub(crate) unsafe fn windows<V: Vector, const BY_LANES: bool>(
    records: &Records<'_>,
    (start, count): Block,
    (rows, windowed): (&Rows, &Windowed),
) {
    // As in `run`.
    if const { V::UNIT_BYTES > LINE_BYTES || BY_LANES && V::LANES != LANES } {
        unreachable!("such vectors have no windows, or none of a lane each");
    }
    let group = windowed.group;
    let times = windowed.times(records.count - start).min(count / group);
    let (from, to) = (&rows.from[..rows.lens.0], &rows.to[..rows.lens.1]);
    let (plan, these) = (&windowed.plan, (times, group, windowed.start.streams));
    // SAFETY: the caller's contract.
    unsafe {
        if const { is_line(V::LANES) } && windowed.start.in_order {
            return window::in_order::<V>(plan, (times, group), from[0], to);
        }
        if const { BY_LANES } || const { !is_line(V::LANES) } && records.has_half_lines(V::LANES) {
            return window::groups::<V, 2, BY_LANES>(plan, these, from, to);
        }
        window::groups::<V, 1, BY_LANES>(plan, these, from, to)
    }
}

impl Records<'_> {
    /// So many records of a block, of fields of one size, as squares move them; they are put together in the stage.
    #[inline(always)]
    pub(super) fn tile(&self, count: usize) -> Tile {
        let (bytes, fields) = (self.fields.at(0).bytes, self.fields.len());
        let pitch = self.pitch as isize;
        let row = (LINE_BYTES + self.block * bytes) as isize;
        let apart = || self.fields.at(1).src - self.fields.at(0).src;
        let ((a, b, o), src, dst) = match (self.hybrid, self.splits) {
            (Some(Hybrid { inner, step, apart: turn }), _) => {
                ((inner, fields, count), (apart(), turn as isize), (step as isize, pitch))
            }
            (None, true) => ((fields, count, 1), (pitch, 0), (row, 0)),
            (None, false) => ((count, fields, 1), (apart(), 0), (pitch, 0)),
        };
        Tile {
            a,
            b,
            o,
            src,
            dst,
            has_line_sides: (fields * bytes).is_multiple_of(LINE_BYTES),
            squares: Squares::Single,
            ahead: 0,
            soon: 0,
            next: None,
            next_lines: 0,
        }
    }
}

/// Takes a block of records apart by squares, or puts it together: all of it, which is what it returns.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn squares<V: Vector, const BODY: usize>(
    records: &Records<'_>,
    count: usize,
    rows: &Rows,
) -> usize {
    let tile = records.tile(count);
    // Others than hybrids are one turn: where that is known nothing goes on with turns.
    let tile = match const { BODY == HYBRIDS } {
        true => tile,
        false => Tile { o: 1, src: (tile.src.0, 0), dst: (tile.dst.0, 0), ..tile },
    };
    let (src, dst) = (rows.from[0].at, rows.to[0].at);
    // SAFETY: the records of the block.
    unsafe {
        match records.fields.at(0).bytes {
            1 => squares_of::<V, 1, BODY>(&tile, src, dst),
            2 => squares_of::<V, 2, BODY>(&tile, src, dst),
            4 => squares_of::<V, 4, BODY>(&tile, src, dst),
            _ => squares_of::<V, 8, BODY>(&tile, src, dst),
        }
    }
    count
}

/// # Safety
/// As [`squares`], for fields of `E` bytes.
#[inline(always)]
unsafe fn squares_of<V: Vector, const E: usize, const BODY: usize>(
    tile: &Tile,
    src: *const u8,
    dst: *mut u8,
) {
    let n = const { LANE_BYTES / E };
    let halves = tile.a < n && matches!(tile.a, 2 | 4 | 8);
    let dense = tile.src.0 == (tile.a * E) as isize;
    // SAFETY: the caller's contract.
    unsafe {
        match tile.lanes(n, V::LANES) {
            Some(_) if halves && dense => split::<V, E, false>(tile, src, dst),
            Some(Lanes::B) => along_b::<V, E, false>(tile, src, dst),
            Some(Lanes::ShortA) => short_a::<V, E>(tile, src, dst),
            Some(Lanes::A) => along_a::<V, E>(tile, src, dst),
            Some(Lanes::ShortB) => short_b::<V, E>(tile, src, dst),
            Some(Lanes::O) if const { BODY == HYBRIDS } => along_o::<V, E>(tile, src, dst),
            _ => elements::<E>(tile, (0..tile.a, 0..tile.b), src, dst),
        }
    }
}

/// Puts the first records of a block together by tables: as many as whole vectors have, which is
/// what it returns.
///
/// # Safety
/// As [`run`], for records of `N` fields of one size.
#[inline(always)]
unsafe fn tables<V: Vector, const N: usize>(
    records: &Records<'_>,
    count: usize,
    (all, rows): (&Table, &Rows),
) -> usize {
    let bytes = records.fields.at(0).bytes;
    let each = V::LANES * LANE_BYTES / bytes;
    let whole = count / each * each;
    // SAFETY: the tables are as long as a lane.
    let mut table = [[unsafe { V::gather(|_| all[0][0].as_ptr()) }; N]; N];
    for (to, from) in table.iter_mut().zip(all) {
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: likewise.
            *to = unsafe { V::gather(|_| from.as_ptr()) };
        }
    }
    for at in (0..whole).step_by(each) {
        if records.splits {
            for line in 0..(V::LANES * N * LANE_BYTES).div_ceil(LINE_BYTES) {
                let ahead = AHEAD_BYTES + line * LINE_BYTES;
                prefetch(rows.from[0].at.wrapping_add(at * records.pitch + ahead));
            }
        }
        // SAFETY: lanes of the records, and of the stage.
        unsafe {
            let mut from = [table[0][0]; N];
            for (k, lanes) in from.iter_mut().enumerate() {
                *lanes = match records.splits {
                    true => {
                        let lane = at * records.pitch + k * LANE_BYTES;
                        let lane = rows.from[0].at.wrapping_add(lane);
                        V::gather(|i| lane.wrapping_add(i * N * LANE_BYTES))
                    }
                    false => V::load(rows.from[k].at.wrapping_add(at * bytes)),
                };
            }
            for (i, table) in table.iter().enumerate() {
                let mut lanes = from[0].swizzle(table[0]);
                for k in 1..N {
                    lanes = lanes.or(from[k].swizzle(table[k]));
                }
                if records.splits {
                    lanes.store(rows.to[i].at.wrapping_add(at * bytes));
                } else {
                    let to = rows.to[0].at.wrapping_add(at * records.pitch + i * LANE_BYTES);
                    lanes.scatter(to, (N * LANE_BYTES) as isize);
                }
            }
        }
    }
    whole
}
