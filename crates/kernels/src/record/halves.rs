//! Small fields that lie together, by halves.
//!
//! **Hazard.** A field of a byte takes as many instructions as one of eight. **Structure.** The fields of a
//! record that lie within a lane are a *column*, laid out by size, the largest first: then each half of
//! it, and each half of that, has whole fields or is one. A table and an exchange of halves take a column
//! apart into arrays of either half, or put it together; those of several fields lie in the stage and are
//! halved in turn. A column that has less than it writes is written before what follows it.

use super::block::one_by_one;
use super::{Block, Fill, Records, Rows};
use crate::element::{Line, move_line};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, Vector};
use std::array::from_fn;
use std::mem::MaybeUninit;

/// What moves columns has so many lanes.
const LANES: usize = 2;

/// The most fields of a record that has columns.
const MOST_FIELDS: usize = 16;

/// Each field is halved out four times at most, if not together with others.
const MOST_STEPS: usize = 4 * MOST_FIELDS;

/// In the caches fewer bytes of records are as well moved one by one: to find out about columns takes that long.
const LEAST_CACHED_BYTES: usize = if cfg!(test) { 3 << 10 } else { 64 << 10 };

/// Nor are longer records worth it there, of which columns are a small part.
const MOST_CACHED_RECORD_BYTES: usize = 24;

/// The most bytes that all halves of a column take in the stage, for each record of a block; and how many
/// records that has at most.
const STAGED_BYTES: usize = 4 * LANE_BYTES;
const MOST_RECORDS: usize = 6 * LINE_BYTES;

/// A field in the layout of a column.
#[derive(Debug, Clone, Copy)]
struct Member {
    field: usize,
    bytes: usize,
    at: usize,
}

/// Where a column or a half of one is.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// In the records, so many bytes behind the start of each.
    Records(usize),
    /// The array of a field.
    Field(usize),
    /// In the stage, behind so many bytes for each record of a block.
    Staged(usize),
}

/// A whole and its halves.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// What a record has in the whole.
    bytes: usize,
    whole: Part,
    halves: [Part; 2],
    table: [u8; LANE_BYTES],
}

/// What is moved behind each other.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Field(usize),
    /// By the steps from one to another, the outermost first.
    Column(usize, usize),
}

/// How columns are moved.
pub(super) struct Halves {
    steps: [Step; MOST_STEPS],
    passes: [Pass; MOST_FIELDS],
    lens: (usize, usize),
    /// The bytes of a record that the stage has of a column.
    staged: usize,
}

/// What is neither in records nor in the array of a field.
#[repr(align(64))]
pub(super) struct Staged(MaybeUninit<[u8; STAGED_BYTES * MOST_RECORDS]>);

impl Staged {
    pub(super) fn new() -> Self {
        Staged(MaybeUninit::uninit())
    }
}

impl Halves {
    /// For records of few enough fields, which have no gaps if they are put together.
    pub(super) fn of(records: &Records<'_>) -> Self {
        let part = Part::Staged(0);
        let step = Step { bytes: 0, whole: part, halves: [part; 2], table: [0; LANE_BYTES] };
        let (steps, passes) = ([step; MOST_STEPS], [Pass::Field(0); MOST_FIELDS]);
        let mut halves = Halves { steps, passes, lens: (0, 0), staged: 0 };
        let len = records.fields.len();
        let mut order: [usize; MOST_FIELDS] = from_fn(|i| i);
        order[..len].sort_by_key(|&i| records.place(i));
        let mut rest = &order[..len];
        while let Some(&first) = rest.first() {
            let (start, mut bytes) = (records.place(first), 0);
            let fits = |&&i: &&usize| {
                let field = records.fields.at(i).bytes;
                bytes += field;
                let end = records.place(i) + field;
                field.is_power_of_two() && bytes <= LANE_BYTES && end <= start + LANE_BYTES
            };
            let fitting = rest.iter().take_while(fits).count();
            let is_small = |&&i: &&usize| records.fields.at(i).bytes < LANE_BYTES / 2;
            // Two are put together one by one in about as little time.
            let least = if records.splits { 2 } else { 3 };
            let pays = rest[..fitting].iter().filter(is_small).count() >= least;
            let (column, behind) = rest.split_at(if pays { fitting } else { 1 });
            halves.passes[halves.lens.1] = match column {
                [field] => Pass::Field(*field),
                _ => halves.column(records, column),
            };
            halves.lens.1 += 1;
            rest = behind;
        }
        halves
    }

    /// Whether there are columns, and others write what these have not of a record.
    fn suit(&self, records: &Records<'_>) -> bool {
        let ends = |step: &Step| match step.whole {
            Part::Records(at) => at + step.bytes,
            _ => 0,
        };
        let end = self.steps[..self.lens.0].iter().map(ends).max();
        end.is_some_and(|end| records.splits || self.lens.1 == 1 || end <= records.pitch)
    }

    /// Finds out the steps of a column of these fields, the first of which starts first.
    fn column(&mut self, records: &Records<'_>, fields: &[usize]) -> Pass {
        let mut members = [Member { field: 0, bytes: 0, at: 0 }; LANE_BYTES];
        let members = &mut members[..fields.len()];
        for (member, &field) in members.iter_mut().zip(fields) {
            *member = Member { field, bytes: records.fields.at(field).bytes, at: 0 };
        }
        members.sort_by_key(|member| LANE_BYTES - member.bytes);
        let mut bytes = 0;
        for member in members.iter_mut() {
            member.at = bytes;
            bytes += member.bytes;
        }
        let start = records.place(fields[0]);
        let last = fields[fields.len() - 1];
        let end = records.place(last) + records.fields.at(last).bytes;
        let mut order = [u8::MAX; LANE_BYTES];
        for member in members.iter() {
            for i in 0..member.bytes {
                order[member.at + i] = (records.place(member.field) - start + i) as u8;
            }
        }
        let bytes = if records.splits { LANE_BYTES } else { (end - start).next_power_of_two() };
        let (first, whole) = (self.lens.0, Part::Records(start));
        self.staged = if bytes < LANE_BYTES { bytes } else { 0 };
        self.halve(members, (0, bytes), (whole, records.splits));
        self.steps[first].table = table(bytes, &order, records.splits);
        Pass::Column(first, self.lens.0)
    }

    /// Adds what makes halves of so many bytes of the layout, from one on, and of those that aren't fields.
    fn halve(
        &mut self,
        members: &[Member],
        (at, bytes): (usize, usize),
        (whole, splits): (Part, bool),
    ) {
        let half = bytes / 2;
        let mut halves = [at, at + half].map(|at| {
            match members.iter().find(|member| (member.at, member.bytes) == (at, half)) {
                Some(member) => Part::Field(member.field),
                None => {
                    self.staged += half;
                    Part::Staged(self.staged - half)
                }
            }
        });
        // The larger come first: an empty half is the second, which is written but never read.
        let has_second = members.iter().any(|member| (at + half..at + bytes).contains(&member.at));
        if !has_second && !splits {
            halves[1] = halves[0];
        }
        let order = from_fn(|i| i as u8);
        let table = table(bytes, &order, splits);
        self.steps[self.lens.0] = Step { bytes, whole, halves, table };
        self.lens.0 += 1;
        for (part, at) in halves.into_iter().zip([at, at + half]).take(1 + usize::from(has_second))
        {
            if matches!(part, Part::Staged(_)) {
                self.halve(members, (at, half), (part, splits));
            }
        }
    }
}

/// What makes the halves of each of so many bytes stand in those of a lane, or puts them back. The bytes of
/// the layout are where `order` says in the whole.
fn table(bytes: usize, order: &[u8; LANE_BYTES], splits: bool) -> [u8; LANE_BYTES] {
    let mut table = [u8::MAX; LANE_BYTES];
    let half = bytes / 2;
    for at in 0..LANE_BYTES {
        let (number, byte) = (at / bytes, at % bytes);
        let in_halves = byte / half * (LANE_BYTES / 2) + number * half + byte % half;
        let in_whole = number * bytes + usize::from(order[byte]);
        match splits {
            true if order[byte] != u8::MAX => table[in_halves] = in_whole as u8,
            false if order[byte] != u8::MAX => table[in_whole] = in_halves as u8,
            _ => {}
        }
    }
    table
}

impl Records<'_> {
    /// These, by halves, where several fields lie together.
    pub(super) fn by_halves(mut self, by: Abilities) -> Self {
        let few = self.fill == Fill::Elements
            && self.hybrid.is_none()
            && self.fields.len() <= MOST_FIELDS;
        let bytes = self.count.saturating_mul(self.pitch);
        let is_short = self.pitch <= MOST_CACHED_RECORD_BYTES && bytes >= LEAST_CACHED_BYTES;
        let pays = self.streams || !self.has_gaps && is_short;
        if few && pays && by.lanes == LANES && Halves::of(&self).suit(&self) {
            self.fill = Fill::Halves;
            self.block = self.block.min(MOST_RECORDS);
        }
        self
    }

    /// Where a part starts, and how far it is from lane to lane.
    fn part(&self, part: Part, rows: &Rows, stage: *mut u8) -> (*mut u8, usize) {
        match (part, self.splits) {
            (Part::Records(at), true) => (rows.from[0].at.cast_mut().wrapping_add(at), self.pitch),
            (Part::Records(at), false) => (rows.to[0].at.wrapping_add(at), self.pitch),
            (Part::Field(i), true) => (rows.to[i].at, LANE_BYTES),
            (Part::Field(i), false) => (rows.from[i].at.cast_mut(), LANE_BYTES),
            (Part::Staged(at), _) => (stage.wrapping_add(at * self.block), LANE_BYTES),
        }
    }
}

/// Moves the first records of a block: as many as whole vectors have, which is what it returns.
///
/// # Safety
/// As [`super::block::run`].
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(
    records: &Records<'_>,
    (start, count): Block,
    (rows, halves, stage): (&Rows, &Halves, &mut Staged),
) -> usize {
    // The lanes of the last records may reach behind them.
    let safe = records.count.saturating_sub(start + LANE_BYTES);
    let whole = V::LANES * LANE_BYTES;
    let count = count.min(safe) / whole * whole;
    let stage = stage.0.as_mut_ptr().cast();
    for pass in &halves.passes[..halves.lens.1] {
        // SAFETY: the caller's contract; the stage has room for all parts of a column.
        unsafe {
            match *pass {
                Pass::Field(i) => one_by_one(records, i, 0..count, rows),
                Pass::Column(first, last) => {
                    let steps = &halves.steps[first..last];
                    match records.splits {
                        true => apart::<V>(records, count, (rows, steps, stage)),
                        false => together::<V>(records, count, (rows, steps, stage)),
                    }
                }
            }
        }
    }
    count
}

/// Takes a column apart.
///
/// # Safety
/// As [`run`], for so many records.
#[inline(always)]
unsafe fn apart<V: Vector>(
    records: &Records<'_>,
    count: usize,
    (rows, steps, stage): (&Rows, &[Step], *mut u8),
) {
    for step in steps {
        let (whole, pitch) = records.part(step.whole, rows, stage);
        let part = |half: usize| records.part(step.halves[half], rows, stage).0;
        let (low, high) = (part(0), part(1));
        let at = |i: usize| whole.wrapping_add(i * pitch).cast_const();
        // SAFETY: the table is as long as a lane; the caller's contract.
        unsafe {
            let table = V::gather(|_| step.table.as_ptr());
            for n in 0..count * step.bytes / (2 * V::LANES * LANE_BYTES) {
                let (first, by) = (2 * n * V::LANES, n * V::LANES * LANE_BYTES);
                let even = V::gather(|i| at(first + 2 * i)).swizzle(table);
                let odd = V::gather(|i| at(first + 2 * i + 1)).swizzle(table);
                let halves = even.zip::<8>(odd);
                halves.0.store(low.wrapping_add(by));
                halves.1.store(high.wrapping_add(by));
            }
        }
    }
}

/// Puts a column together.
///
/// # Safety
/// As [`run`], for so many records.
#[inline(always)]
unsafe fn together<V: Vector>(
    records: &Records<'_>,
    count: usize,
    (rows, steps, stage): (&Rows, &[Step], *mut u8),
) {
    for step in steps.iter().rev() {
        // What has less than a lane of each record goes there one by one.
        let is_staged = matches!(step.whole, Part::Records(_)) && step.bytes < LANE_BYTES;
        let to = if is_staged { Part::Staged(0) } else { step.whole };
        let (whole, pitch) = records.part(to, rows, stage);
        let part = |half: usize| records.part(step.halves[half], rows, stage).0;
        let (low, high) = (part(0), part(1));
        // SAFETY: the table is as long as a lane; the caller's contract.
        unsafe {
            let table = V::gather(|_| step.table.as_ptr());
            for n in 0..count * step.bytes / (2 * V::LANES * LANE_BYTES) {
                let by = n * V::LANES * LANE_BYTES;
                let low = V::load(low.wrapping_add(by));
                let (even, odd) = low.zip::<8>(V::load(high.wrapping_add(by)));
                let lanes = even.swizzle(table).unzip_lanes(odd.swizzle(table));
                let to = whole.wrapping_add(2 * n * V::LANES * pitch);
                // In their order, since a lane may reach into the record behind.
                lanes.0.scatter(to, pitch as isize);
                lanes.1.scatter(to.wrapping_add(V::LANES * pitch), pitch as isize);
            }
            if is_staged {
                let to = records.part(step.whole, rows, stage).0;
                let stride = (step.bytes as isize, records.pitch as isize);
                move_line(step.bytes, Line { count, stride }, stage, to);
            }
        }
    }
}
