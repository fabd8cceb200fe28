//! Records of several fields, and arrays of each: either way, past the caches.
//!
//! **Hazard.** A pass for each field reads or writes the lines of records once for each. A line
//! that is written in parts costs a read of it. **Structure.** A block of records is taken apart,
//! or put together, in the first-level cache; whole lines of the destination go past the caches,
//! and what is left of each row is carried to the block behind. Fields of any sizes are moved one
//! by one; a few of one size by tables: each lane of the result is made of bytes of as many lanes
//! as a record has fields.

use crate::element::{Line, move_line};
use crate::instance::Instance;
use crate::narrow::{short_a, split};
use crate::nest::{Loop, Nest};
use crate::stream;
use crate::tile::{Lanes, Tile, along_b, elements};
use crate::vector::{LANE_BYTES, LINE_BYTES, PAGE_BYTES, Vector};
use layout::{CopyDim, FieldCopy, NdCopy};
use std::fmt;
use std::mem::MaybeUninit;

/// The most fields of a record.
const MOST_FIELDS: usize = 64;

/// Longer records are no records.
const MOST_BYTES: usize = 1 << 10;

/// Fewer records aren't worth it.
const LEAST_RECORDS: usize = 256;

/// The records of a block are so many bytes, unless arrays would get less than a line of them.
const BLOCK_BYTES: usize = 4 << 10;

/// How far ahead records are asked for that are taken apart by tables.
const AHEAD_BYTES: usize = 2 << 10;

/// So many fields are moved by tables: [`fill`] has a body for each.
const BY_TABLE: [usize; 4] = [3, 5, 6, MOST_BY_TABLE];
const MOST_BY_TABLE: usize = 7;

/// What is put together: a block, and for each field the line before it.
const STAGE_BYTES: usize = LINE_BYTES * (MOST_BYTES + MOST_FIELDS);

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
}

/// Records: `count` of them, `pitch` bytes apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    fields: Fields<'a>,
    count: usize,
    pitch: usize,
    /// Whether records are the source; else they are the destination.
    splits: bool,
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

/// Where a block is put together, and what is carried of each row.
#[repr(align(64))]
pub(crate) struct Stage {
    block: MaybeUninit<[u8; STAGE_BYTES]>,
    carried: MaybeUninit<[[u8; LINE_BYTES]; MOST_FIELDS]>,
    /// For each lane of the result and each of the source: which bytes go there, and where.
    table: [[[u8; LANE_BYTES]; MOST_BY_TABLE]; MOST_BY_TABLE],
}

impl<'a> Records<'a> {
    /// The records of a copy of fields that differ, whose one loop goes over records.
    pub(crate) fn of_fields(copy: &'a NdCopy) -> Option<Records<'a>> {
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
        Records::new(Fields::List(&copy.fields), ends, splits)
    }

    /// Takes the loops of records and of their fields, which are alike, out of `nest`. `streams` says
    /// that they go past the caches, by vectors of so many `lanes`; if not, only tables are worth it.
    pub(crate) fn of_nest(nest: &mut Nest, (streams, lanes): (bool, usize)) -> Option<Records<'a>> {
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
        let mut records = Records::new(series, ends, splits)?;
        let squares = nest.bytes.is_power_of_two() && nest.bytes < LANE_BYTES;
        // Arrays that lie so want longer runs, where a vector is less than a line.
        let clashes = lanes * LANE_BYTES < LINE_BYTES && fields.dst % PAGE_BYTES == 0;
        let dense = pitch == fields.count as isize * bytes;
        let tables = dense && BY_TABLE.contains(&fields.count);
        records.fill = match (squares, tables) {
            (true, true) => Fill::Tables,
            (true, false) if fields.count == 1 => Fill::Elements,
            (true, false) if splits && clashes => Fill::Squares,
            (true, false) => return None,
            _ => Fill::Elements,
        };
        records.streams = streams;
        if !streams && records.fill != Fill::Tables {
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
        splits: bool,
    ) -> Option<Records<'a>> {
        if fields.len() > MOST_FIELDS || count < LEAST_RECORDS || pitch > MOST_BYTES {
            return None;
        }
        let bytes: usize = fields.iter().map(|f| f.bytes).sum();
        if bytes > pitch || fields.iter().any(|f| f.bytes == 0) {
            return None;
        }
        // Each array gets a line at least, and tables whole vectors.
        let least = if splits { LINE_BYTES } else { 1 };
        let block = match (BLOCK_BYTES / pitch).max(least) {
            few @ ..LINE_BYTES => few,
            many => many / LINE_BYTES * LINE_BYTES,
        };
        let least = |of: &dyn Fn(Field) -> isize| fields.iter().map(of).min().unwrap_or(0);
        let base = (least(&|f| f.src), least(&|f| f.dst));
        // Where each field ends another starts, or the record ends: then they are all of it.
        let ends = |f: Field| f.dst + f.bytes as isize;
        let follows = |f: Field| fields.iter().any(|g| g.dst == ends(f));
        let end = base.1 + pitch as isize;
        let whole = || bytes == pitch && fields.iter().all(|f| ends(f) == end || follows(f));
        let fill = Fill::Elements;
        let records = Records { fields, count, pitch, splits, streams: true, block, fill, base };
        (splits || whole()).then_some(records)
    }

    /// Moves all records.
    ///
    /// # Safety
    /// As [`crate::copy`], with `src` and `dst` at a position of the other loops.
    pub(crate) unsafe fn run(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        let mut stage = Stage {
            block: MaybeUninit::uninit(),
            carried: MaybeUninit::uninit(),
            table: if self.fill == Fill::Tables { self.table() } else { [[[0; LANE_BYTES]; _]; _] },
        };
        for start in (0..self.count).step_by(self.block) {
            let count = self.block.min(self.count - start);
            // SAFETY: a block of the records.
            unsafe { (instance.records)(self, (start, count), (src, &mut stage, dst)) };
        }
    }

    /// Which bytes of which lane of the source go where in a lane of the result; what no lane has
    /// is made 0 by a number beyond it.
    fn table(&self) -> [[[u8; LANE_BYTES]; MOST_BY_TABLE]; MOST_BY_TABLE] {
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
}

/// Moves a block of records.
///
/// # Safety
/// As [`Records::run`]; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn block<V: Vector>(
    records: &Records<'_>,
    block: Block,
    (src, stage, dst): (*const u8, &mut Stage, *mut u8),
) {
    let (start, count) = block;
    let ends = (start == 0, start + count == records.count);
    // SAFETY: the caller's contract.
    unsafe {
        match records.fill {
            Fill::Squares => squares::<V>(records, block, (src, stage)),
            _ => fill::<V>(records, block, (src, stage)),
        }
    }
    let carried = stage.carried.as_mut_ptr().cast::<u8>();
    // Records behind are asked for while lines are written, if they are not while they are read.
    let behind = src.wrapping_offset(records.base.0 + ((start + count) * records.pitch) as isize);
    let ahead = if records.fill == Fill::Tables { 0 } else { records.block * records.pitch };
    let share = ahead.div_ceil(records.fields.len());
    let mut row = stage.block.as_mut_ptr().cast::<u8>();
    for i in 0..if records.splits { records.fields.len() } else { 1 } {
        let (to, bytes) = match records.splits {
            true => (records.fields.at(i).dst, records.fields.at(i).bytes),
            false => (records.base.1, records.pitch),
        };
        if records.splits {
            for at in (i * share..(i + 1) * share).step_by(LINE_BYTES) {
                stream::prefetch(behind.wrapping_add(at));
            }
        }
        let to = dst.wrapping_offset(to).wrapping_add(start * bytes);
        // SAFETY: what the block has of a field, or of the records.
        unsafe {
            if records.streams {
                let carried = carried.wrapping_add(i * LINE_BYTES);
                stream::carry::<V>((row, carried, to), count * bytes, ends);
            } else {
                std::ptr::copy_nonoverlapping(row.wrapping_add(LINE_BYTES), to, count * bytes);
            }
        }
        row = row.wrapping_add(LINE_BYTES + records.block * bytes);
    }
}

/// Puts a block together.
///
/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn fill<V: Vector>(
    records: &Records<'_>,
    (start, count): Block,
    (src, stage): (*const u8, &mut Stage),
) {
    let mut done = 0;
    if records.fill == Fill::Tables {
        // SAFETY: the caller's contract.
        done = unsafe {
            match records.fields.len() {
                3 => tables::<V, 3>(records, (start, count), (src, stage)),
                5 => tables::<V, 5>(records, (start, count), (src, stage)),
                6 => tables::<V, 6>(records, (start, count), (src, stage)),
                _ => tables::<V, MOST_BY_TABLE>(records, (start, count), (src, stage)),
            }
        };
    }
    if done == count {
        return;
    }
    let (first, pitch) = (start + done, records.pitch as isize);
    let mut row = stage.block.as_mut_ptr().cast::<u8>().wrapping_add(LINE_BYTES);
    for field in records.fields.iter() {
        let step = field.bytes as isize;
        let (from, to, stride) = match records.splits {
            true => (field.src + first as isize * pitch, done as isize * step, (pitch, step)),
            false => {
                let to = field.dst - records.base.1 + done as isize * pitch;
                (field.src + first as isize * step, to, (step, pitch))
            }
        };
        let line = Line { count: count - done, stride };
        if !records.splits {
            // What the block behind has of the field.
            let behind = src.wrapping_offset(from).wrapping_add((count - done) * field.bytes);
            for at in (0..records.block * field.bytes).step_by(LINE_BYTES) {
                stream::prefetch(behind.wrapping_add(at));
            }
        }
        // SAFETY: the last elements of a field, which the stage has room for.
        unsafe { move_line(field.bytes, line, src.wrapping_offset(from), row.wrapping_offset(to)) };
        if records.splits {
            row = row.wrapping_add(LINE_BYTES + records.block * field.bytes);
        }
    }
}

/// Takes a block of records apart by squares.
///
/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn squares<V: Vector>(
    records: &Records<'_>,
    (start, count): Block,
    (src, stage): (*const u8, &mut Stage),
) {
    let bytes = records.fields.at(0).bytes;
    let row = LINE_BYTES + records.block * bytes;
    let pitch = records.pitch as isize;
    let tile = Tile {
        a: records.fields.len(),
        b: count,
        o: 1,
        src: (pitch, 0),
        dst: (row as isize, 0),
        ahead: 0,
        next: None,
    };
    let src = src.wrapping_offset(records.base.0 + start as isize * pitch);
    let dst = stage.block.as_mut_ptr().cast::<u8>().wrapping_add(LINE_BYTES);
    // SAFETY: the records of the block.
    unsafe {
        match bytes {
            1 => squares_of::<V, 1>(&tile, src, dst),
            2 => squares_of::<V, 2>(&tile, src, dst),
            4 => squares_of::<V, 4>(&tile, src, dst),
            _ => squares_of::<V, 8>(&tile, src, dst),
        }
    }
}

/// # Safety
/// As [`squares`], for fields of `E` bytes.
#[inline(always)]
unsafe fn squares_of<V: Vector, const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
    let n = const { LANE_BYTES / E };
    let halves = tile.a < n && tile.a.is_power_of_two();
    let dense = tile.src.0 == (tile.a * E) as isize;
    // SAFETY: the caller's contract.
    unsafe {
        match tile.lanes(n, V::LANES) {
            Some(_) if halves && dense => split::<V, E, false>(tile, src, dst),
            Some(Lanes::B) => along_b::<V, E, false>(tile, src, dst),
            Some(Lanes::ShortA) => short_a::<V, E>(tile, src, dst),
            _ => elements::<E>(tile, (0..tile.a, 0..tile.b), src, dst),
        }
    }
}

/// Puts the first records of a block together by tables: as many as whole vectors have, which is
/// what it returns.
///
/// # Safety
/// As [`block`], for records of `N` fields of one size.
#[inline(always)]
unsafe fn tables<V: Vector, const N: usize>(
    records: &Records<'_>,
    (start, count): Block,
    (src, stage): (*const u8, &mut Stage),
) -> usize {
    let bytes = records.fields.at(0).bytes;
    let each = V::LANES * LANE_BYTES / bytes;
    let whole = count / each * each;
    let row = LINE_BYTES + records.block * bytes;
    let to = stage.block.as_mut_ptr().cast::<u8>().wrapping_add(LINE_BYTES);
    let base = src.wrapping_offset(records.base.0).wrapping_add(start * records.pitch);
    let array =
        |i: usize| src.wrapping_offset(records.fields.at(i).src).wrapping_add(start * bytes);
    // SAFETY: the tables are as long as a lane.
    let mut table = [[unsafe { V::gather(|_| stage.table[0][0].as_ptr()) }; N]; N];
    for (to, from) in table.iter_mut().zip(&stage.table) {
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: likewise.
            *to = unsafe { V::gather(|_| from.as_ptr()) };
        }
    }
    for at in (0..whole).step_by(each) {
        if records.splits {
            for line in 0..(V::LANES * N * LANE_BYTES).div_ceil(LINE_BYTES) {
                let ahead = AHEAD_BYTES + line * LINE_BYTES;
                stream::prefetch(base.wrapping_add(at * records.pitch + ahead));
            }
        }
        // SAFETY: lanes of the records, and of the stage.
        unsafe {
            let mut from = [table[0][0]; N];
            for (k, lanes) in from.iter_mut().enumerate() {
                *lanes = match records.splits {
                    true => {
                        let lane = base.wrapping_add(at * records.pitch + k * LANE_BYTES);
                        V::gather(|i| lane.wrapping_add(i * N * LANE_BYTES))
                    }
                    false => V::load(array(k).wrapping_add(at * bytes)),
                };
            }
            for (i, table) in table.iter().enumerate() {
                let mut lanes = from[0].swizzle(table[0]);
                for k in 1..N {
                    lanes = lanes.or(from[k].swizzle(table[k]));
                }
                if records.splits {
                    lanes.store(to.wrapping_add(i * row + at * bytes));
                } else {
                    let to = to.wrapping_add(at * records.pitch + i * LANE_BYTES);
                    lanes.scatter(to, (N * LANE_BYTES) as isize);
                }
            }
        }
    }
    whole
}

impl fmt::Display for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.splits { "taken apart" } else { "put together" };
        let how = match self.fill {
            Fill::Elements => "",
            Fill::Tables => ", by tables",
            Fill::Squares => ", by squares",
        };
        let (Records { pitch, block, .. }, len) = (self, self.fields.len());
        let past = if self.streams { ", by lines past the caches" } else { "" };
        write!(f, "records of {pitch} B, {len} fields, {what} {block} at once{how}{past}")
    }
}
