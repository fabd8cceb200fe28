//! Records by windows: which windows a group has, and what of the rows no group has.

use super::block::one_by_one;
use super::{Fill, MOST_FIELDS, Records, Rows, block_bytes};
use crate::tile;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES};
use crate::window::{self, MOST_WINDOWS, Place, Plan, Row};

/// A block has so many groups at least.
const LEAST_GROUPS: usize = 4;

/// A block has so many groups that so many lines are asked for before each vector, or twice as many before
/// each line of two: fewer are late, more are held up; and is so much at most, of which a first-level cache
/// has room for twice.
const ASKED_LINES: usize = 12;
const MOST_BYTES: usize = 16 << 10;

/// A window takes the time in which so many numbers are moved one by one; and to find out what it is
/// takes that of so many.
const MOVES_A_WINDOW: usize = 2;
const MOVES_TO_PLAN: usize = if cfg!(test) { 8 } else { 2048 };

/// How the groups of records are moved.
pub(crate) struct Windowed {
    pub(super) plan: Plan,
    /// How many bytes before the first group each row of the result has.
    heads: [usize; MOST_FIELDS],
    /// The records of a group.
    pub(super) group: usize,
    /// A group is moved if there are so many records from its first on.
    needs: usize,
    /// Whether what is made is whole lines, which go past the caches.
    pub(super) streams: bool,
}

impl Windowed {
    pub(super) fn new() -> Self {
        Windowed { plan: Plan::new(), heads: [0; MOST_FIELDS], group: 0, needs: 0, streams: false }
    }

    /// How many groups are moved of `count` records.
    pub(super) fn times(&self, count: usize) -> usize {
        count.checked_sub(self.needs).map_or(0, |behind| behind / self.group + 1)
    }
}

impl Records<'_> {
    /// These, by windows, where that takes less time than field by field.
    pub(super) fn by_windows(mut self, by: Abilities) -> Self {
        let places = (0..self.fields.len()).fold(0, |all, i| all | self.place(i));
        let bytes = self.fields.iter().fold(self.pitch, |all, f| all | f.bytes);
        let payload: usize = self.fields.iter().map(|f| f.bytes).sum();
        let moves = |bytes: usize| bytes / 8 + (bytes % 8).count_ones() as usize;
        let moves: usize = self.fields.iter().map(|f| moves(f.bytes)).sum();
        let vector = by.lanes * LANE_BYTES;
        let group = window::group_of(bytes, if self.streams { LINE_BYTES } else { vector });
        let least = LEAST_GROUPS * group;
        let most = [self.count * moves / MOVES_TO_PLAN, group * moves / MOVES_A_WINDOW];
        let most = most.into_iter().fold(MOST_WINDOWS, usize::min);
        // Gaps are nobody's to write. Long fields are vectors as they are; what is far between, or in
        // other records, is better fetched one by one; each vector has a window at least.
        if self.has_gaps
            || self.end() > self.pitch
            || !(bytes | places).is_multiple_of(by.unit_bytes)
            || bytes.is_multiple_of(LANE_BYTES)
            || 2 * payload < self.pitch
            || self.count < least
            || least * self.pitch > 4 * block_bytes(by.caches)
            || group * payload / vector > most
        {
            return self;
        }
        let mut count = 0;
        let heads = &[0; MOST_FIELDS];
        self.vectors((group, by.lanes), heads, &mut |from, _| count += window::count(from));
        if count <= most {
            let most = MOST_BYTES / (group * self.pitch);
            let lines = ASKED_LINES * LINE_BYTES / vector;
            let groups = (lines * payload / self.pitch).min(most);
            self.fill = Fill::Windows { group };
            self.block = groups.max(LEAST_GROUPS) * group;
        }
        self
    }

    /// Where the last field of a record ends.
    fn end(&self) -> usize {
        let ends = (0..self.fields.len()).map(|i| self.place(i) + self.fields.at(i).bytes);
        ends.max().unwrap_or(0)
    }

    /// Calls `each` for the vectors of a group, of so many `lanes`, line by line: with where their bytes come
    /// from, and where they go. Groups start so many bytes behind the start of each row.
    fn vectors(
        &self,
        (group, lanes): (usize, usize),
        heads: &[usize; MOST_FIELDS],
        each: &mut impl FnMut(&[Place], Place),
    ) {
        for (row, head) in heads[..self.rows_to()].iter().enumerate() {
            let bytes = group * self.step(row);
            for at in (0..bytes).step_by(lanes * LANE_BYTES) {
                let from: [_; LINE_BYTES] = std::array::from_fn(|i| match self.splits {
                    true => self.of_records(row, head + at + i),
                    false => self.of_arrays(head + at + i),
                });
                each(&from[..lanes * LANE_BYTES], (row as u16, at as u16));
            }
        }
    }

    /// How many rows the result has.
    fn rows_to(&self) -> usize {
        if self.splits { self.fields.len() } else { 1 }
    }

    /// How far it is from record to record in row `i` of the result.
    fn step(&self, i: usize) -> usize {
        if self.splits { self.fields.at(i).bytes } else { self.pitch }
    }

    /// Where byte `at` of the array of field `i` is in the records.
    fn of_records(&self, i: usize, at: usize) -> Place {
        let bytes = self.fields.at(i).bytes;
        (0, (at / bytes * self.pitch + self.place(i) + at % bytes) as u16)
    }

    /// Where byte `at` of the records is in an array.
    fn of_arrays(&self, at: usize) -> Place {
        let (record, at) = (at / self.pitch, at % self.pitch);
        let has = |i: &usize| at.wrapping_sub(self.place(*i)) < self.fields.at(*i).bytes;
        let row = (0..self.fields.len()).find(has).unwrap_or(0);
        (row as u16, (record * self.fields.at(row).bytes + at - self.place(row)) as u16)
    }

    /// Finds out how groups are moved. What goes past the caches starts with the first whole line of each
    /// row, else with the first whole vector.
    pub(super) fn plan(
        &self,
        (group, by): (usize, Abilities),
        (windowed, rows): (&mut Windowed, &mut Rows),
    ) {
        windowed.group = group;
        let vector = by.lanes * LANE_BYTES;
        let (from, rows) = (rows.from[0].at, &mut rows.to[..rows.lens.1]);
        let first = if self.streams { LINE_BYTES } else { vector };
        let begun = |row: &Row<*mut u8>| row.at.addr().wrapping_neg() % first;
        if rows.iter().all(|row| begun(row).is_multiple_of(by.unit_bytes)) {
            windowed.streams = self.streams;
            for (head, row) in windowed.heads.iter_mut().zip(rows) {
                *head = begun(row);
                row.at = row.at.wrapping_add(*head);
            }
        }
        let Windowed { plan, heads, .. } = windowed;
        // A vector that is a line of the source is read faster than one that has parts of two.
        let are_lines = tile::is_line(by.lanes) && from.addr().is_multiple_of(LINE_BYTES);
        let unit = if self.splits && are_lines { LINE_BYTES } else { 1 };
        self.vectors((group, by.lanes), heads, &mut |from, to| plan.push((from, unit as u16), to));
        let written = (0..self.rows_to()).map(|i| heads[i].div_ceil(self.step(i)) + group);
        let read = plan.places().map(|(row, at)| {
            let end = usize::from(at) + vector;
            match self.splits {
                true => end.saturating_sub(self.end()).div_ceil(self.pitch) + 1,
                false => end.div_ceil(self.fields.at(row.into()).bytes),
            }
        });
        windowed.needs = written.chain(read).max().unwrap_or(0);
    }

    /// Moves what of each row no group has, at either end.
    ///
    /// # Safety
    /// As [`Records::run`].
    pub(super) unsafe fn ends(&self, windowed: &Windowed, src: *const u8, dst: *mut u8) {
        let (rows, done) =
            (self.rows((src, dst, dst)), windowed.group * windowed.times(self.count));
        for i in 0..self.fields.len() {
            let row = if self.splits { i } else { 0 };
            let (head, step) = (windowed.heads[row], self.step(row));
            // SAFETY: records of the caller's.
            unsafe {
                one_by_one(self, i, 0..head.div_ceil(step), &rows);
                one_by_one(self, i, done + head / step..self.count, &rows);
            }
        }
    }
}
