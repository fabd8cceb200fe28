//! Records by windows: which windows a group has, and what of the rows no group has.

use super::block::one_by_one;
use super::{Fields, Fill, Hybrid, MOST_FIELDS, Records, Rows, block_bytes};
use crate::ahead::Row;
use crate::nest::Loop;
use crate::tile;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES};
use crate::window::lanes::MOST_OF_A_LANE;
use crate::window::{self, GAP, MOST_WINDOWS, Place, Plan};
use std::array::from_fn;

/// A block has so many groups at least.
const LEAST_GROUPS: usize = 4;

/// A block of single vectors has so many groups that so many lines are asked for before each: fewer are late,
/// more are held up; and is so much at most, of which a first-level cache has room for twice.
const ASKED_LINES: usize = 12;
const MOST_BYTES: usize = 16 << 10;

/// That of short groups is so much at least.
const SHORT_BYTES: usize = 2 << 10;

/// So many arrays are few, for a processor that scatters lines.
const FEW_FIELDS: usize = 3;

/// That of lines of two vectors, which ask for one line each, is so much.
const BY_LINES_BYTES: usize = 8 << 10;

/// That of such lines whose lanes have windows of their own is so much: it takes longer to begin with each line of a block.
const BY_LANES_BYTES: usize = 16 << 10;

/// They have such for fields of so many bytes, or a multiple of that.
const LANE_FIELD_BYTES: usize = 12;

/// A window takes the time in which so many numbers are moved one by one; and to find out what it is
/// takes that of so many.
const MOVES_A_WINDOW: usize = 2;
const MOVES_TO_PLAN: usize = if cfg!(test) { 8 } else { 2048 };

/// How the groups of records are moved.
pub(crate) struct Windowed {
    pub(super) plan: Plan,
    /// Where groups start that it is for.
    pub(super) start: Start,
    /// The records of a group; none before it is found out how they are moved.
    pub(super) group: usize,
    /// A group is moved if there are so many records from its first on.
    needs: usize,
    /// Whether rows of the source start at one place of a line with each turn of the loops around them.
    is_one_place: bool,
}

/// Where groups start, and what depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// How many bytes before the first group each row of the result has.
    heads: [u8; MOST_FIELDS],
    /// Whether what is made is whole lines, which go past the caches.
    pub(super) streams: bool,
    /// Whether windows start with lines of the source.
    by_lines: bool,
    /// Whether groups are moved one behind the other.
    pub(super) in_order: bool,
}

impl Default for Start {
    fn default() -> Self {
        Start { heads: [0; MOST_FIELDS], streams: false, by_lines: false, in_order: false }
    }
}

impl Windowed {
    /// For records at each turn of `loops`.
    pub(super) fn new(loops: &[Loop]) -> Self {
        let is_one_place = loops.iter().all(|of| of.src % LINE_BYTES as isize == 0);
        Windowed { plan: Plan::new(), start: Start::default(), group: 0, needs: 0, is_one_place }
    }

    /// How many groups are moved of `count` records.
    pub(super) fn times(&self, count: usize) -> usize {
        count.checked_sub(self.needs).map_or(0, |behind| behind / self.group + 1)
    }
}

impl Records<'_> {
    /// These, by windows, where that takes less time than field by field, at all turns of `loops` around them.
    pub(super) fn by_windows(mut self, by: Abilities, loops: &[Loop]) -> Self {
        let apart = |i| self.hybrid.map_or(0, |hybrid| hybrid.apart | self.place_apart(i));
        let places = (0..self.fields.len()).fold(0, |all, i| all | self.place(i) | apart(i));
        let (inner, step) =
            self.hybrid.map_or((1, self.pitch), |hybrid| (hybrid.inner, hybrid.step));
        let bytes = self.fields.iter().fold(step, |all, f| all | f.bytes);
        let payload = inner * self.fields.iter().map(|f| f.bytes).sum::<usize>();
        let moves = |bytes: usize| bytes / 8 + (bytes % 8).count_ones() as usize;
        let moves = inner * self.fields.iter().map(|f| moves(f.bytes)).sum::<usize>();
        let vector = by.lanes * LANE_BYTES;
        let is_short = self.has_short_groups(by);
        let made = if self.hybrid.is_some() || is_short { self.step(0) } else { bytes };
        let group = window::group_of(made, if self.streams { LINE_BYTES } else { vector });
        let least = LEAST_GROUPS * group;
        let turns = loops.iter().fold(self.count, |all, of| all.saturating_mul(of.count));
        let plans = turns.saturating_mul(moves) / MOVES_TO_PLAN;
        let most = [plans, group * moves / MOVES_A_WINDOW];
        let most = most.into_iter().fold(MOST_WINDOWS, usize::min);
        let span = self.hybrid.map_or(self.pitch, |hybrid| hybrid.apart.max(self.pitch));
        // Long fields are vectors as they are; what is far between, or in other records, is better fetched one by
        // one; each vector has a window at least, but where all of it may be gaps.
        let are_arrays = self.splits && self.hybrid.is_none();
        let written = if are_arrays { payload } else { self.step(0) };
        // Hybrids have lanes whatever their units are, and wherever they start.
        let are_units = (bytes | places).is_multiple_of(by.unit_bytes);
        let has_lanes = self.has_lanes(by, group);
        if self.end() > step
            || !(are_units || self.hybrid.is_some() && has_lanes)
            || bytes.is_multiple_of(LANE_BYTES)
            || 2 * payload < span
            || self.count < least
            || least * span > 4 * block_bytes(by.caches)
            || group * written / vector > most
        {
            return self;
        }
        let count = |by_lanes| self.count_windows((group, by.lanes), by_lanes);
        let by_lanes = has_lanes && !(are_units && count(false) <= most);
        let count = count(by_lanes);
        if count <= most {
            let group_bytes = group * self.pitch;
            let asked = ASKED_LINES * LINE_BYTES / vector * payload / self.pitch;
            let asked = asked.min(MOST_BYTES / group_bytes);
            let groups = match (self.has_half_lines(by.lanes), is_short) {
                (true, _) if by_lanes => BY_LANES_BYTES / group_bytes,
                (true, _) => BY_LINES_BYTES / group_bytes,
                (false, true) => asked.max(SHORT_BYTES / group_bytes),
                (false, false) => asked,
            };
            // What windows are is found out for each place.
            let places = Some(self.places(loops)).filter(|places| *places <= plans / count);
            self.fill = Fill::Windows { group, places: places.unwrap_or(0), by_lanes };
            self.block = groups.max(LEAST_GROUPS) * group;
        }
        self
    }

    /// How many windows the vectors of a group have, of so many lanes, in all or for each lane.
    fn count_windows(&self, of: (usize, usize), by_lanes: bool) -> usize {
        let mut count = 0;
        let each = &mut |from: &[Place], _| count += window::count(from, by_lanes);
        self.vectors(of, &[0; MOST_FIELDS], each);
        count
    }

    /// Whether lanes have windows of their own where vectors have too many, or which are no units: past the caches, by
    /// vectors that exchange only units of more than a byte. Of such fields a lane has parts of two at most, wherever rows
    /// start, and of hybrids all that is in those it has parts of. Other fields were not measured, or are slower so.
    fn has_lanes(&self, by: Abilities, group: usize) -> bool {
        let suits = self.streams && by.exchanges_units();
        let fields = || self.fields.iter().all(|f| f.bytes.is_multiple_of(LANE_FIELD_BYTES));
        let few = |hybrid: Hybrid| {
            let (read, made) = match self.splits {
                true => (self.pitch, hybrid.apart),
                false => (hybrid.apart, self.pitch),
            };
            let windows = (((LANE_BYTES - 2) / made + 2) * read).div_ceil(LANE_BYTES);
            let vectors = group * made / (by.lanes * LANE_BYTES);
            windows <= MOST_OF_A_LANE && vectors * windows <= 2 * MOST_WINDOWS
        };
        suits && self.hybrid.map_or_else(fields, few)
    }

    /// Whether groups are whole vectors of the records that are put together, but not of each field: what they read
    /// starts anywhere as it is. A Xeon is a fifth faster so where these are fewer vectors; other processors were not
    /// measured.
    fn has_short_groups(&self, by: Abilities) -> bool {
        !self.splits && self.hybrid.is_none() && by.holds_lines()
    }

    /// Whether groups are better moved one behind the other past the caches than each line of many: on a Xeon arrays of
    /// fields that differ are written up to a fifth faster so, and on a Zen 5 up to a fourth where there are few, and
    /// more as much slower. Fields that are alike are not, nor are hybrids.
    fn goes_in_order(&self, by: Abilities) -> bool {
        let differ = matches!(self.fields, Fields::List(_));
        let few = by.moves_lines() && self.fields.len() <= FEW_FIELDS;
        self.splits && self.hybrid.is_none() && differ && (few || by.holds_lines())
    }

    /// Whether lines that go past the caches are made of two vectors of so many lanes.
    pub(super) fn has_half_lines(&self, lanes: usize) -> bool {
        self.streams && !tile::is_line(lanes)
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
        heads: &[u8; MOST_FIELDS],
        each: &mut impl FnMut(&[Place], Place),
    ) {
        for (row, head) in heads[..self.rows_to()].iter().enumerate() {
            let bytes = group * self.step(row);
            for at in (0..bytes).step_by(lanes * LANE_BYTES) {
                let at_row = usize::from(*head) + at;
                let from: [_; LINE_BYTES] = match self.hybrid {
                    Some(hybrid) if self.splits => from_fn(|i| self.of_aos(hybrid, at_row + i)),
                    Some(hybrid) => from_fn(|i| self.of_hybrid(hybrid, at_row + i)),
                    None if self.splits => from_fn(|i| self.of_records(row, at_row + i)),
                    None => from_fn(|i| self.of_arrays(at_row + i)),
                };
                each(&from[..lanes * LANE_BYTES], (row as u16, at as u16));
            }
        }
    }

    /// How many rows the result has.
    pub(super) fn rows_to(&self) -> usize {
        if self.splits && self.hybrid.is_none() { self.fields.len() } else { 1 }
    }

    /// How far it is from record to record in row `i` of the result.
    fn step(&self, i: usize) -> usize {
        match self.hybrid {
            Some(hybrid) if self.splits => hybrid.apart,
            None if self.splits => self.fields.at(i).bytes,
            _ => self.pitch,
        }
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
        let Some(row) = (0..self.fields.len()).find(has) else { return GAP };
        (row as u16, (record * self.fields.at(row).bytes + at - self.place(row)) as u16)
    }

    /// Where byte `at` of hybrids is in the records.
    fn of_aos(&self, hybrid: Hybrid, at: usize) -> Place {
        let (block, at) = (at / hybrid.apart, at % hybrid.apart);
        let bytes = |i: usize| self.fields.at(i).bytes;
        let has = |i: &usize| at.wrapping_sub(self.place_apart(*i)) < hybrid.inner * bytes(*i);
        let Some(i) = (0..self.fields.len()).find(has) else { return GAP };
        let at = at - self.place_apart(i);
        let record = block * self.pitch + at / bytes(i) * hybrid.step;
        (0, (record + self.place(i) + at % bytes(i)) as u16)
    }

    /// Where byte `at` of the records is in hybrids.
    fn of_hybrid(&self, hybrid: Hybrid, at: usize) -> Place {
        let (block, at) = (at / self.pitch, at % self.pitch);
        let (record, at) = (at / hybrid.step, at % hybrid.step);
        let has = |i: &usize| at.wrapping_sub(self.place(*i)) < self.fields.at(*i).bytes;
        let Some(i) = (0..self.fields.len()).find(has) else { return GAP };
        let array = block * hybrid.apart + self.place_apart(i) + record * self.fields.at(i).bytes;
        (0, (array + at - self.place(i)) as u16)
    }

    /// Finds out how groups are moved, unless that is known for rows that start so, and lets `rows` start with
    /// the first: with the first whole line of each row, if it goes past the caches, else with the first whole
    /// vector.
    pub(super) fn plan(&self, by: Abilities, (windowed, rows): (&mut Windowed, &mut Rows)) {
        let Fill::Windows { group, places, by_lanes } = self.fill else { return };
        let vector = by.lanes * LANE_BYTES;
        let (from, to) = (rows.from[0].at, &mut rows.to[..rows.lens.1]);
        let first = if self.streams { LINE_BYTES } else { vector };
        let begun = |row: &Row<*mut u8>| row.at.addr().wrapping_neg() % first;
        let mut start = Start::default();
        let anywhere = by_lanes && self.hybrid.is_some();
        let is_unit = |row: &Row<*mut u8>| begun(row).is_multiple_of(by.unit_bytes);
        if places > 0 && (anywhere || to.iter().all(is_unit)) {
            start.streams = self.streams;
            for (head, row) in start.heads.iter_mut().zip(to) {
                *head = begun(row) as u8;
                row.at = row.at.wrapping_add(usize::from(*head));
            }
        }
        // A vector that is a line of the source is read faster than one that has parts of two.
        let are_lines = windowed.is_one_place && from.addr().is_multiple_of(LINE_BYTES);
        start.by_lines = self.splits && tile::is_line(by.lanes) && are_lines;
        start.in_order = start.streams && self.goes_in_order(by);
        if windowed.group == 0 || windowed.start != start {
            (windowed.group, windowed.start) = (group, start);
            self.find_out((by.lanes, by_lanes), windowed);
        }
    }

    /// Finds out how groups are moved that start so.
    fn find_out(&self, (lanes, by_lanes): (usize, bool), windowed: &mut Windowed) {
        let Windowed { plan, start, group, .. } = windowed;
        let unit = if start.by_lines { LINE_BYTES } else { 1 };
        let window_bytes = if by_lanes { LANE_BYTES } else { lanes * LANE_BYTES };
        plan.clear((by_lanes, self.has_gaps));
        let each = &mut |from: &[Place], to| plan.push((from, unit as u16), to);
        self.vectors((*group, lanes), &start.heads, each);
        let head = |i: usize| usize::from(start.heads[i]);
        // Where nothing is behind the last record's gap no vector is to reach into it.
        let behind = usize::from(self.has_gaps);
        let written = (0..self.rows_to()).map(|i| head(i).div_ceil(self.step(i)) + *group + behind);
        let last_read = self.last_read();
        let read = plan.places().map(|(row, at)| {
            let end = usize::from(at) + window_bytes;
            match last_read {
                Some((last, step)) => end.saturating_sub(last).div_ceil(step) + 1,
                None => end.div_ceil(self.fields.at(row.into()).bytes),
            }
        });
        windowed.needs = written.chain(read).max().unwrap_or(0);
    }

    /// Where what is read of a record ends, if the source is one row, and how far it is to the next.
    fn last_read(&self) -> Option<(usize, usize)> {
        match (self.splits, self.hybrid) {
            (true, None) => Some((self.end(), self.pitch)),
            (true, Some(Hybrid { inner, step, .. })) => {
                Some(((inner - 1) * step + self.end(), self.pitch))
            }
            (false, Some(Hybrid { inner, apart, .. })) => {
                let end = |i| self.place_apart(i) + inner * self.fields.at(i).bytes;
                Some(((0..self.fields.len()).map(end).max()?, apart))
            }
            (false, None) => None,
        }
    }

    /// Moves what no group has of each row, at either end.
    ///
    /// # Safety
    /// As [`Records::run`], for rows that start at `rows`.
    pub(super) unsafe fn ends(&self, windowed: &Windowed, rows: &Rows) {
        let done = windowed.group * windowed.times(self.count);
        for i in 0..self.fields.len() {
            let row = i.min(self.rows_to() - 1);
            let (head, step) = (usize::from(windowed.start.heads[row]), self.step(row));
            // SAFETY: records of the caller's.
            unsafe {
                one_by_one(self, i, 0..head.div_ceil(step), rows);
                one_by_one(self, i, done + head / step..self.count, rows);
            }
        }
    }
}
