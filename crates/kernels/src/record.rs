//! Records of several fields, and arrays of each: either way, past the caches.
//!
//! **Hazard.** A pass for each field reads or writes the lines of records once for each. A line
//! that is written in parts costs a read of it; between fields there may be gaps, which are somebody
//! else's to write. **Structure.** A block of records is taken apart,
//! or put together, in the first-level cache; whole lines of the destination go past the caches,
//! and what is left of each row is carried to the block behind. Fields of any sizes are moved one
//! by one, or by windows (`window`), which write whole lines where they belong; a few of one size by
//! tables: each lane of the result is made of bytes of as many lanes as a record has fields.

pub(crate) mod block;
pub(crate) mod windowed;

use crate::caches::Caches;
use crate::instance::Instance;
use crate::nest::{Loop, Nest};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES};
use crate::window::Row;
use layout::{CopyDim, FieldCopy, NdCopy};
use std::fmt;
use std::mem::MaybeUninit;
use windowed::Windowed;

/// The most fields of a record.
const MOST_FIELDS: usize = 64;

/// Longer records are no records.
pub(crate) const MOST_RECORD_BYTES: usize = 1 << 10;

/// Fewer records aren't worth it.
pub(crate) const LEAST_RECORDS: usize = 256;

/// The records of a block are so many bytes, a part of a first-level cache, unless arrays would get less than a
/// line of them.
const fn block_bytes(caches: Caches) -> usize {
    caches.first.bytes / 8
}

/// So many fields are moved by tables: [`block`] has a body for each.
const BY_TABLE: [usize; 4] = [3, 5, 6, MOST_BY_TABLE];
const MOST_BY_TABLE: usize = 7;

/// What is put together: a block, and for each field the line before it.
const STAGE_BYTES: usize = LINE_BYTES * (MOST_RECORD_BYTES + MOST_FIELDS);

/// A field: its bytes, and where that of the first record is, on either side.
#[derive(Debug, Clone, Copy)]
struct Field {
    bytes: usize,
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
                src: fields[i].src_offset as isize,
                dst: fields[i].dst_offset as isize,
            },
            Fields::Series(_, Field { bytes, src, dst }, step) => {
                let i = i as isize;
                Field { bytes: *bytes, src: src + i * step.0, dst: dst + i * step.1 }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = Field> {
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
    /// Fields of one size, by squares.
    Squares,
    /// By windows, groups of so many records: where they belong.
    Windows { group: usize },
}

/// Records: `count` of them, `pitch` bytes apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    fields: Fields<'a>,
    count: usize,
    pitch: usize,
    /// Whether records are the source; else they are the destination.
    splits: bool,
    /// Whether they are the destination, with gaps between the fields.
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

/// What is carried of each row, and what says how a block is put together.
pub(crate) struct Stage {
    carried: MaybeUninit<[[u8; LINE_BYTES]; MOST_FIELDS]>,
    table: Table,
    windowed: Windowed,
}

/// Where what a block has of each row is, on either side, and how many there are: records are one
/// row, each field's array is one.
pub(crate) struct Rows {
    from: [Row<*const u8>; MOST_FIELDS],
    to: [Row<*mut u8>; MOST_FIELDS],
    lens: (usize, usize),
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
    /// The records of a copy of fields that differ, whose one loop goes over records. `streams` says that
    /// it is too large for the caches; if not, only windows are worth it.
    pub(crate) fn of_fields(
        copy: &'a NdCopy,
        (streams, by): (bool, Abilities),
    ) -> Option<Records<'a>> {
        let [CopyDim { extent, src_index: None, dst_index: None }] = &copy.dims[..] else {
            return None;
        };
        let stride = |f: &FieldCopy| (f.strides[0].src as isize, f.strides[0].dst as isize);
        let first = stride(copy.fields.first()?);
        let dense = |f: &FieldCopy, stride: isize| stride == f.bytes as isize;
        let splits = copy.fields.iter().all(|f| stride(f).0 == first.0 && dense(f, stride(f).1));
        let joins = copy.fields.iter().all(|f| stride(f).1 == first.1 && dense(f, stride(f).0));
        let pitch = match (splits, joins) {
            (true, _) => first.0,
            (_, true) => first.1,
            _ => return None,
        };
        let ends = (*extent as usize, usize::try_from(pitch).ok()?);
        let records = Records::new(Fields::List(&copy.fields), ends, (splits, by.caches))?;
        let records = Records { streams: streams && !records.has_gaps, ..records }.by_windows(by);
        (streams || records.fill != Fill::Elements).then_some(records)
    }

    /// Takes the loops of records and of their fields, which are alike, out of `nest`. `streams` says
    /// that they go past the caches; if not, only tables and windows are worth it.
    pub(crate) fn of_nest(
        nest: &mut Nest,
        (streams, by): (bool, Abilities),
    ) -> Option<Records<'a>> {
        let bytes = nest.bytes as isize;
        let plain = |is: &dyn Fn((isize, isize)) -> bool| {
            nest.loops().iter().position(|l| l.is_plain() && is((l.src, l.dst)))
        };
        let dense_dst = plain(&|(_, dst)| dst == bytes)?;
        let dense_src = plain(&|(src, _)| src == bytes);
        let b = nest.loops()[dense_dst];
        let alone = Loop { count: 1, src: bytes, ..Loop::default() };
        let a = dense_src.map_or(alone, |k| nest.loops()[k]);
        let splits = a.count <= MOST_FIELDS && b.src >= a.count as isize * bytes;
        let joins = b.count <= MOST_FIELDS && a.dst == b.count as isize * bytes;
        let (fields, records, pitch) = match (splits, joins) {
            (true, _) => (a, b, b.src),
            (_, true) => (b, a, a.dst),
            _ => return None,
        };
        let first = Field { bytes: nest.bytes, src: 0, dst: 0 };
        let series = Fields::Series(fields.count, first, (fields.src, fields.dst));
        let ends = (records.count, usize::try_from(pitch).ok()?);
        let records = Records::new(series, ends, (splits, by.caches))?;
        let mut records = Records { streams, ..records };
        let squares = nest.bytes.is_power_of_two() && nest.bytes < LANE_BYTES;
        // Arrays that lie so want longer runs, where a vector is less than a line.
        let clashes = by.lanes * LANE_BYTES < LINE_BYTES && fields.dst % PAGE_BYTES == 0;
        let dense = pitch == fields.count as isize * bytes;
        let tables = dense && BY_TABLE.contains(&fields.count);
        records.fill = match (squares, tables) {
            (true, true) => Fill::Tables,
            (true, false) if fields.count == 1 => Fill::Elements,
            (true, false) if splits && clashes => Fill::Squares,
            (true, false) => return None,
            _ => Fill::Elements,
        };
        // Few fields are in many bytes of each window; yet AMD's processors take longer for one, which only
        // matters where the memory doesn't, or where records are put together.
        let lines = by.lanes * LANE_BYTES == LINE_BYTES;
        let few = fields.count == 3 && lines && (!by.scatters || (splits && streams));
        if records.fill == Fill::Elements || (records.fill == Fill::Tables && few) {
            records = records.by_windows(by);
        }
        if !streams && matches!(records.fill, Fill::Elements | Fill::Squares) {
            return None;
        }
        let behind = dense_src.map_or(0, |k| usize::from(k > dense_dst));
        nest.take(dense_dst);
        dense_src.map(|k| nest.take(k - behind));
        Some(records)
    }

    fn new(
        fields: Fields<'a>,
        (count, pitch): (usize, usize),
        (splits, caches): (bool, Caches),
    ) -> Option<Records<'a>> {
        if fields.len() > MOST_FIELDS || count < LEAST_RECORDS || pitch > MOST_RECORD_BYTES {
            return None;
        }
        let bytes: usize = fields.iter().map(|f| f.bytes).sum();
        if bytes > pitch || fields.iter().any(|f| f.bytes == 0) {
            return None;
        }
        let least = |of: &dyn Fn(Field) -> isize| fields.iter().map(of).min().unwrap_or(0);
        let base = (least(&|f| f.src), least(&|f| f.dst));
        // Where each field ends another starts, or the record ends: then they are all of it.
        let ends = |f: Field| f.dst + f.bytes as isize;
        let follows = |f: Field| fields.iter().any(|g| g.dst == ends(f));
        let end = base.1 + pitch as isize;
        let whole = || bytes == pitch && fields.iter().all(|f| ends(f) == end || follows(f));
        let (has_gaps, fill) = (!splits && !whole(), Fill::Elements);
        // Each array gets a line at least, and tables whole vectors. What is put together where it belongs
        // takes more of the first-level cache than a stage.
        let least = if splits { LINE_BYTES } else { 1 };
        let bytes = block_bytes(caches) / if has_gaps { 2 } else { 1 };
        let block = match (bytes / pitch).max(least) {
            few @ ..LINE_BYTES => few,
            many => many / LINE_BYTES * LINE_BYTES,
        };
        Some(Records { fields, count, pitch, splits, has_gaps, streams: true, block, fill, base })
    }

    /// Moves all records.
    ///
    /// # Safety
    /// As [`crate::copy`], with `src` and `dst` at a position of the other loops.
    pub(crate) unsafe fn run(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        let mut stage = Stage {
            carried: MaybeUninit::uninit(),
            table: if self.fill == Fill::Tables { self.table() } else { [[[0; LANE_BYTES]; _]; _] },
            windowed: Windowed::new(),
        };
        let mut staged = Staged(MaybeUninit::uninit());
        let mut rows = self.rows((src, staged.0.as_mut_ptr().cast(), dst));
        if let Fill::Windows { group } = self.fill {
            let to = (&mut stage.windowed, &mut rows);
            self.plan((group, instance.abilities), to);
        }
        for start in (0..self.count).step_by(self.block) {
            let count = self.block.min(self.count - start);
            // SAFETY: a block of the records.
            unsafe {
                match self.has_windows() {
                    true => (instance.windows)(self, (start, count), (&rows, &stage.windowed)),
                    false => (instance.records)(self, (start, count), (&rows, &mut stage, dst)),
                }
            }
            rows.go_on(count, self.stages());
        }
        if self.has_windows() {
            // SAFETY: the caller's contract.
            unsafe { self.ends(&stage.windowed, src, dst) }
        }
    }

    /// Whether they are moved by windows, which write them where they belong.
    fn has_windows(&self) -> bool {
        matches!(self.fill, Fill::Windows { .. })
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

    /// The rows of each side. Those of the result are in the stage, behind a line each, where they go
    /// past the caches.
    fn rows(&self, (src, stage, dst): (*const u8, *mut u8, *mut u8)) -> Rows {
        let fields = self.fields.len();
        let mut rows = Rows {
            from: [Row { at: src, step: 0 }; MOST_FIELDS],
            to: [Row { at: dst, step: 0 }; MOST_FIELDS],
            lens: if self.splits { (1, fields) } else { (fields, 1) },
        };
        for i in 0..rows.lens.0 {
            let (by, step) = match self.splits {
                true => (self.base.0, self.pitch),
                false => (self.fields.at(i).src, self.fields.at(i).bytes),
            };
            rows.from[i] = Row { at: src.wrapping_offset(by), step };
        }
        let mut staged = stage.wrapping_add(LINE_BYTES);
        for i in 0..rows.lens.1 {
            let (place, step) = self.place_of_row(i, 0, dst);
            rows.to[i] = Row { at: if self.stages() { staged } else { place }, step };
            staged = staged.wrapping_add(LINE_BYTES + self.block * step);
        }
        rows
    }

    /// Where row `i` of the result goes on with the record `start`, and how far it is to the next.
    fn place_of_row(&self, i: usize, start: usize, dst: *mut u8) -> (*mut u8, usize) {
        let (by, step) = match self.splits {
            true => (self.fields.at(i).dst, self.fields.at(i).bytes),
            false => (self.base.1, self.pitch),
        };
        (dst.wrapping_offset(by).wrapping_add(start * step), step)
    }
}

impl fmt::Display for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.splits { "taken apart" } else { "put together" };
        let how = match self.fill {
            Fill::Elements => "",
            Fill::Tables => ", by tables",
            Fill::Squares => ", by squares",
            Fill::Windows { .. } => ", by windows",
        };
        let (Records { pitch, block, .. }, len) = (self, self.fields.len());
        let past = match (self.streams, self.has_gaps) {
            (true, _) => ", by lines past the caches",
            (_, true) => ", between gaps",
            _ => "",
        };
        write!(f, "records of {pitch} B, {len} fields, {what} {block} at once{how}{past}")
    }
}
