//! Records of several fields, and arrays of each: either way, past the caches.
//!
//! **Hazard.** A pass for each field reads or writes the lines of records once for each. A line that is written
//! in parts costs a read of it; between fields there may be gaps, which are somebody else's to write.
//! **Structure.** A block of records is taken apart, or put together, in the first-level cache; whole lines of
//! the destination go past the caches, and what is left of each row is carried to the block behind. Many fields
//! of one size go by squares, taken apart where panels would share lines; fields of any sizes are moved one by
//! one, small ones by `halves`, or any by windows (`window`), which write whole lines where they belong; a few of
//! one size by tables: each lane of the result is made of bytes of as many lanes as a record has fields, or in
//! the caches each vector of as many vectors (`picks`). Hybrids are records of records: so many together, which
//! lie field by field on the other side; of one size of field they are small matrices. The loops around records are
//! run here, too: where rows start at one place of a line at each turn what windows are is found out once.

pub(crate) mod block;
mod dense;
mod form;
mod halves;
mod picks;
pub(crate) mod windowed;

use crate::ahead::Row;
use crate::caches::Caches;
use crate::instance::Instance;
use crate::nest::Loop;
use crate::vector::{LANE_BYTES, LINE_BYTES};
use halves::Halves;
use layout::FieldCopy;
use picks::Picks;
use std::fmt;
use std::mem::MaybeUninit;
use windowed::Windowed;

/// The most fields of a record.
const MOST_FIELDS: usize = 64;

/// Longer records are no records.
pub(crate) const MOST_RECORD_BYTES: usize = 1 << 10;

/// Fewer records aren't worth it.
pub(crate) const LEAST_RECORDS: usize = 256;

/// Nor are shorter rows of records in loops: lines that are written in part, at their ends, wait for what is
/// in them. Hybrids of less than so many records take longer element by element, and are worth it earlier.
const LEAST_ROW_BYTES: usize = if cfg!(test) { 3 << 10 } else { 20 << 10 };
const LEAST_HYBRIDS_BYTES: usize = if cfg!(test) { 256 } else { 4 << 10 };
const LONG_HYBRID: usize = 64;

/// What rows in loops have of records at least that are taken apart by squares, unless arrays are at one place of a page.
const LEAST_SQUARES_BYTES: usize = if cfg!(test) { 2 << 10 } else { 16 << 10 };

/// The records of a block are so many bytes, a part of a first-level cache, unless arrays would get less than a
/// line of them. Squares have blocks of their own.
const fn block_bytes(caches: Caches) -> usize {
    caches.first.bytes / 8
}

/// So many fields are moved by tables, or picked: [`block`] and [`picks`] have a body for each.
const BY_TABLE: [usize; 4] = [3, 5, 6, MOST_BY_TABLE];
const MOST_BY_TABLE: usize = 7;

/// What is put together: a block, and for each field the line before it.
const STAGE_BYTES: usize = LINE_BYTES * (MOST_RECORD_BYTES + MOST_FIELDS);

/// A field: its bytes, those of padding behind it in the destination, and where that of the first record is, on
/// either side.
#[derive(Debug, Clone, Copy)]
struct Field {
    bytes: usize,
    padding: usize,
    src: isize,
    dst: isize,
}

/// The fields of a record.
#[derive(Debug, Clone, Copy)]
enum Fields<'a> {
    /// Each as it is.
    List(&'a [FieldCopy]),
    /// So many, alike: the first, and how far the next is on either side.
    Series(usize, Field, (isize, isize)),
}

impl Field {
    /// How much of the result it has, with its padding.
    fn written(&self) -> usize {
        self.bytes.saturating_add(self.padding)
    }
}

impl Fields<'_> {
    fn len(&self) -> usize {
        match self {
            Fields::List(fields) => fields.len(),
            Fields::Series(count, ..) => *count,
        }
    }

    #[inline(always)]
    fn at(&self, i: usize) -> Field {
        match self {
            Fields::List(fields) => Field {
                bytes: fields[i].bytes as usize,
                padding: fields[i].padding as usize,
                src: fields[i].src_offset as isize,
                dst: fields[i].dst_offset as isize,
            },
            Fields::Series(_, first, step) => {
                let i = i as isize;
                Field { src: first.src + i * step.0, dst: first.dst + i * step.1, ..*first }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = Field> + Clone {
        (0..self.len()).map(|i| self.at(i))
    }
}

/// How a block is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Field by field.
    Elements,
    /// Fields of one size, by tables.
    Tables,
    /// As `Tables`, into the caches, by vectors that are lines.
    Picks,
    /// Fields of one size, by squares.
    Squares,
    /// Likewise, dense ones of which there are a few more than a lane has.
    Dense,
    /// Small fields that lie together, by halves.
    Halves,
    /// By windows, groups of so many records: where they belong. Their rows start at so many places of a
    /// line in all; where these are too many, 0 stands for groups that start with their rows. Windows may be those of
    /// a lane each.
    Windows { group: usize, places: usize, by_lanes: bool },
}

/// Of what records are made that are hybrids on the other side: as many records, there field by field.
#[derive(Debug, Clone, Copy)]
struct Hybrid {
    /// How many these are, and how far apart.
    inner: usize,
    step: usize,
    /// How far it is from one hybrid to the next.
    apart: usize,
}

/// Records: `count` of them, `pitch` bytes apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    fields: Fields<'a>,
    hybrid: Option<Hybrid>,
    count: usize,
    pitch: usize,
    /// Whether records are the source; else they are the destination.
    splits: bool,
    /// Whether they are the destination, with gaps between the fields that aren't padding.
    has_gaps: bool,
    /// Whether they go past the caches.
    streams: bool,
    /// The records of a block.
    block: usize,
    /// Where the first record or the lowest array starts, on either side.
    base: (isize, isize),
    fill: Fill,
}

/// A block: the number of its first record and how many there are.
pub(crate) type Block = (usize, usize);

/// For each lane of the result and each of the source: which bytes go there, and where.
type Table = [[[u8; LANE_BYTES]; MOST_BY_TABLE]; MOST_BY_TABLE];

/// Where a block is put together.
#[repr(align(64))]
struct Staged(MaybeUninit<[u8; STAGE_BYTES]>);

/// What is carried of each row.
#[repr(align(64))]
struct Carried(MaybeUninit<[[u8; LINE_BYTES]; MOST_FIELDS]>);

/// What says how a block is moved, by the way that it is. Some of it is large: nobody else has it on the stack.
enum Aid<'a> {
    None,
    Tables(&'a Table),
    Picks(&'a Picks),
    Halves(&'a Halves, &'a mut halves::Staged),
    Windows(&'a mut Windowed),
}

/// Where rows start, what is carried of each, and what says how a block is moved.
pub(crate) struct Stage<'a> {
    starts: Rows,
    carried: Carried,
    aid: Aid<'a>,
}

/// Where what a block has of each row is, on either side, and how many there are: records are one
/// row, hybrids are, each field's array is one.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    from: [Row<*const u8>; MOST_FIELDS],
    to: [Row<*mut u8>; MOST_FIELDS],
    lens: (usize, usize),
}

/// Where records are that are moved: their rows, and what helps.
struct At<'a> {
    rows: Rows,
    stage: Stage<'a>,
    staged: Option<&'a mut Staged>,
}

/// By what records are moved, around what loops, and where these start.
#[derive(Clone, Copy)]
struct With<'a> {
    instance: &'a Instance,
    loops: &'a [Loop<'a>],
    src: *const u8,
    dst: *mut u8,
}

impl Rows {
    /// Goes on by `count` records; those in the stage stay there.
    fn go_on(&mut self, count: usize, stages: bool) {
        for row in &mut self.from[..self.lens.0] {
            row.at = row.at.wrapping_add(count * row.step);
        }
        let moving = if stages { 0 } else { self.lens.1 };
        for row in &mut self.to[..moving] {
            row.at = row.at.wrapping_add(count * row.step);
        }
    }
}

impl<'a> Records<'a> {
    /// Moves all records at each position of `loops`.
    ///
    /// # Safety
    /// As [`crate::copy`], with `src` and `dst` at the start of these loops.
    #[inline(never)]
    pub(crate) unsafe fn run(
        &self,
        instance: &Instance,
        loops: &[Loop],
        (src, dst): (*const u8, *mut u8),
    ) {
        let with = With { instance, loops, src, dst };
        // SAFETY: the caller's contract.
        unsafe {
            match self.fill {
                Fill::Elements | Fill::Squares | Fill::Dense => self.aided(with, Aid::None),
                Fill::Tables => self.aided(with, Aid::Tables(&self.table())),
                Fill::Picks => self.aided(with, Aid::Picks(&Picks::of(self))),
                Fill::Halves => self.halved(with),
                Fill::Windows { .. } => self.windowed(with),
            }
        }
    }

    /// As [`Records::run`], by halves.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn halved(&self, with: With<'_>) {
        let (halves, mut staged) = (Halves::of(self), halves::Staged::new());
        // SAFETY: the caller's contract.
        unsafe { self.aided(with, Aid::Halves(&halves, &mut staged)) }
    }

    /// As [`Records::run`], by windows.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn windowed(&self, with: With<'_>) {
        let mut windowed = Windowed::new(with.loops);
        // SAFETY: the caller's contract.
        unsafe { self.aided(with, Aid::Windows(&mut windowed)) }
    }

    /// As [`Records::run`], with what helps.
    ///
    /// # Safety
    /// As there.
    unsafe fn aided(&self, with: With<'_>, aid: Aid<'_>) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.stages() {
                true => self.staged(with, aid),
                false => self.positions(with, aid, None),
            }
        }
    }

    /// As [`Records::aided`], put together in a stage.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn staged(&self, with: With<'_>, aid: Aid<'_>) {
        let mut staged = Staged(MaybeUninit::uninit());
        if self.fields.iter().any(|field| field.padding > 0) {
            // It is written as it is there.
            let bytes = (2 * LINE_BYTES + self.block * self.pitch).min(STAGE_BYTES);
            // SAFETY: a part of the stage.
            unsafe { staged.0.as_mut_ptr().cast::<u8>().write_bytes(0, bytes) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.positions(with, aid, Some(&mut staged)) }
    }

    /// As [`Records::aided`], with the stage where there is one.
    ///
    /// # Safety
    /// As there.
    unsafe fn positions(&self, with: With<'_>, aid: Aid<'_>, staged: Option<&mut Staged>) {
        let starts = self.starts(with.src, with.dst);
        let stage = Stage { starts, carried: Carried(MaybeUninit::uninit()), aid };
        let mut at = At { rows: starts, stage, staged };
        let places = match self.fill {
            Fill::Windows { places: 2.., .. } => self.places(with.loops),
            _ => 1,
        };
        // What starts at one place is moved one behind the other.
        for place in 0..places {
            // SAFETY: the caller's contract; each position is at one place.
            unsafe { self.each(with.instance, (with.loops, 0), (place, places), &mut at) }
        }
    }

    /// Moves all records at the positions of `loops` from loop `k` on at which rows start at one `place` of
    /// these.
    ///
    /// # Safety
    /// As [`Records::run`], with rows at a position of the loops before.
    unsafe fn each(
        &self,
        instance: &Instance,
        (loops, k): (&[Loop], usize),
        (place, places): (usize, usize),
        at: &mut At<'_>,
    ) {
        let Some(here) = loops.get(k) else {
            // SAFETY: the caller's contract, for one position.
            return unsafe { self.rows(instance, at) };
        };
        let period = if places > 1 { self.period(here, k) } else { 1 };
        let mut before = (0, 0);
        for i in (place % period..here.count).step_by(period) {
            let turn = here.turn(i);
            let by = (turn.0.wrapping_sub(before.0), turn.1.wrapping_sub(before.1));
            self.go_on((here, k), by, &mut at.stage.starts);
            before = turn;
            // SAFETY: the caller's contract, for the positions of one turn.
            unsafe { self.each(instance, (loops, k + 1), (place / period, places), at) };
        }
        let back = (before.0.wrapping_neg(), before.1.wrapping_neg());
        self.go_on((here, k), back, &mut at.stage.starts);
    }

    /// Moves all records whose rows are at `at`.
    ///
    /// # Safety
    /// As [`Records::run`], for one position.
    unsafe fn rows(&self, instance: &Instance, at: &mut At<'_>) {
        let At { rows, stage, staged } = at;
        self.begin(&stage.starts, rows, staged.as_mut().map(|staged| staged.0.as_mut_ptr().cast()));
        if let Aid::Windows(windowed) = &mut stage.aid {
            self.plan(instance.abilities, (windowed, rows));
        }
        let head = if self.fill == Fill::Picks { self.before_lines(rows) } else { 0 };
        let mut start = 0;
        while start < self.count {
            let most = if start == 0 && head > 0 { head } else { self.block };
            let count = most.min(self.count - start);
            // SAFETY: a block of the records.
            unsafe {
                match (self.fill, &stage.aid) {
                    (Fill::Windows { by_lanes, .. }, Aid::Windows(windowed)) => {
                        instance.windows(by_lanes)(self, (start, count), (rows, windowed));
                    }
                    _ => {
                        instance.records(self.body())(self, (start, count), (rows, stage));
                    }
                }
            }
            rows.go_on(count, self.stages());
            start += count;
        }
        if let Aid::Windows(windowed) = &stage.aid {
            // SAFETY: the caller's contract.
            unsafe { self.ends(windowed, &stage.starts) }
        }
    }

    /// How far field `i` goes with a turn of loop `k`, on either side.
    fn turn(&self, (of, k): (&Loop, usize), i: usize) -> (isize, isize) {
        match self.fields {
            Fields::List(fields) => {
                (fields[i].strides[k].src as isize, fields[i].strides[k].dst as isize)
            }
            Fields::Series(..) => (of.src, of.dst),
        }
    }

    /// Goes on with all rows by so many turns of loop `k` on either side.
    fn go_on(&self, at: (&Loop, usize), turns: (isize, isize), rows: &mut Rows) {
        for (i, row) in rows.from[..rows.lens.0].iter_mut().enumerate() {
            row.at = row.at.wrapping_offset(turns.0.wrapping_mul(self.turn(at, i).0));
        }
        for (i, row) in rows.to[..rows.lens.1].iter_mut().enumerate() {
            row.at = row.at.wrapping_offset(turns.1.wrapping_mul(self.turn(at, i).1));
        }
    }

    /// After how many turns of loop `k` all rows of the result start at the same place of a line; where a
    /// table says which turns these are, each may have its own.
    fn period(&self, of: &Loop, k: usize) -> usize {
        let steps = (0..self.rows_to()).fold(0, |all, i| all | self.turn((of, k), i).1);
        let period = LINE_BYTES >> steps.trailing_zeros().min(LINE_BYTES.ilog2());
        match of.dst_table {
            Some(_) if period > 1 => of.count,
            _ => period.min(of.count),
        }
    }

    /// At how many places of a line rows start, with all turns of `loops`.
    fn places(&self, loops: &[Loop]) -> usize {
        let periods = loops.iter().enumerate().map(|(k, of)| self.period(of, k));
        periods.fold(1, usize::saturating_mul)
    }

    /// Whether they are moved by windows, which write them where they belong.
    fn has_windows(&self) -> bool {
        matches!(self.fill, Fill::Windows { .. })
    }

    /// The body that moves a block of them, if windows don't.
    fn body(&self) -> usize {
        match (self.fill, self.hybrid) {
            (Fill::Squares, Some(_)) => block::HYBRIDS,
            (Fill::Squares, None) => block::SQUARES,
            _ => block::OTHERS,
        }
    }

    /// Whether a block is put together in the stage.
    fn stages(&self) -> bool {
        self.streams && !self.has_windows()
    }

    /// Which bytes of which lane of the source go where in a lane of the result; what no lane has
    /// is made 0 by a number beyond it.
    fn table(&self) -> Table {
        let mut table = [[[u8::MAX; LANE_BYTES]; MOST_BY_TABLE]; MOST_BY_TABLE];
        let bytes = self.fields.at(0).bytes;
        for at in 0..self.fields.len() * LANE_BYTES {
            // A byte of the records, and where it is in the arrays.
            let (record, field, byte) = (at / self.pitch, at % self.pitch / bytes, at % bytes);
            let records = (at / LANE_BYTES, at % LANE_BYTES);
            let arrays = (field, record * bytes + byte);
            let (from, to) = if self.splits { (records, arrays) } else { (arrays, records) };
            table[to.0][from.0][to.1] = from.1 as u8;
        }
        table
    }

    /// Where field `i` is in a record.
    fn place(&self, i: usize) -> usize {
        let field = self.fields.at(i);
        let by = if self.splits { field.src - self.base.0 } else { field.dst - self.base.1 };
        by.cast_unsigned()
    }

    /// Where the first of field `i` is behind the lowest one, on the other side.
    fn place_apart(&self, i: usize) -> usize {
        let field = self.fields.at(i);
        let by = if self.splits { field.dst - self.base.1 } else { field.src - self.base.0 };
        by.cast_unsigned()
    }

    /// Where rows start on each side.
    fn starts(&self, src: *const u8, dst: *mut u8) -> Rows {
        let fields = self.fields.len();
        let records = (src.wrapping_offset(self.base.0), dst.wrapping_offset(self.base.1));
        let mut rows = Rows {
            from: [Row { at: records.0, step: self.pitch }; MOST_FIELDS],
            to: [Row { at: records.1, step: self.pitch }; MOST_FIELDS],
            lens: (1, 1),
        };
        match (self.hybrid, self.splits) {
            (Some(hybrid), true) => rows.to[0].step = hybrid.apart,
            (Some(hybrid), false) => rows.from[0].step = hybrid.apart,
            (None, true) => {
                for (row, field) in rows.to.iter_mut().zip(self.fields.iter()) {
                    *row = Row { at: dst.wrapping_offset(field.dst), step: field.bytes };
                }
                rows.lens.1 = fields;
            }
            (None, false) => {
                for (row, field) in rows.from.iter_mut().zip(self.fields.iter()) {
                    *row = Row { at: src.wrapping_offset(field.src), step: field.bytes };
                }
                rows.lens.0 = fields;
            }
        }
        rows
    }

    /// Sets `rows` to those that start at `starts`. Those of the result are in the stage, behind a line
    /// each, where they go past the caches.
    fn begin(&self, starts: &Rows, rows: &mut Rows, stage: Option<*mut u8>) {
        let (from, to) = starts.lens;
        rows.from[..from].copy_from_slice(&starts.from[..from]);
        rows.to[..to].copy_from_slice(&starts.to[..to]);
        if let Some(stage) = stage {
            let mut staged = stage.wrapping_add(LINE_BYTES);
            for row in &mut rows.to[..to] {
                row.at = staged;
                staged = staged.wrapping_add(LINE_BYTES + self.block * row.step);
            }
            debug_assert!(staged.addr() - stage.addr() <= LINE_BYTES + STAGE_BYTES, "{self:?}");
        }
    }
}

impl fmt::Display for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.hybrid, self.splits) {
            (Some(_), true) => "to hybrids",
            (Some(_), false) => "from hybrids",
            (None, true) => "taken apart",
            (None, false) => "put together",
        };
        let how = match self.fill {
            Fill::Elements => "",
            Fill::Tables => ", by tables",
            Fill::Picks => ", each vector picked from all",
            Fill::Squares | Fill::Dense => ", by squares",
            Fill::Halves => ", by halves",
            Fill::Windows { by_lanes: false, .. } => ", by windows",
            Fill::Windows { by_lanes: true, .. } => ", by windows of a lane each",
        };
        let (Records { pitch, block, .. }, len) = (self, self.fields.len());
        let past = match (self.streams, self.has_gaps) {
            (true, _) if matches!(self.fill, Fill::Windows { places: 0, .. }) => {
                ", in rows that start anywhere"
            }
            (true, _) => ", by lines past the caches",
            (_, true) => ", between gaps",
            _ => "",
        };
        write!(f, "records of {pitch} B, {len} fields, {what} {block} at once{how}{past}")
    }
}
