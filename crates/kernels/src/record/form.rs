//! Which copies are records and arrays of their fields, or hybrids.

use super::{
    BY_TABLE, Field, Fields, Fill, Hybrid, LEAST_HYBRIDS_BYTES, LEAST_RECORDS, LEAST_ROW_BYTES,
    LEAST_SQUARES_BYTES, LONG_HYBRID, MOST_FIELDS, MOST_RECORD_BYTES, Records, block_bytes,
};
use crate::caches::Caches;
use crate::nest::{Loop, Nest, are_all};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES};
use layout::{CopyDim, FieldCopy, NdCopy};

/// Lines of arrays at multiples of this clash where panels begin several at once.
const CLASHING_BYTES: isize = 1 << 10;

/// Just so many fields of 4 and 8 bytes are slower by panels, wherever arrays lie.
const CLASHING_FIELDS: usize = 16;

/// So many columns at most are joined in registers, if they are a power of two.
const MOST_JOINED: usize = 16;

/// Longer records are as well put together row by row: a square has so little of each.
const MOST_TOGETHER_BYTES: usize = 3 * LINE_BYTES;

/// Fewer records in a row in loops are better put together where they belong.
const LEAST_ROW_RECORDS: usize = if cfg!(test) { 300 } else { 2048 };

/// Records of these fields, of which there are so many, so far apart.
struct Form<'a> {
    fields: Fields<'a>,
    count: usize,
    pitch: usize,
    splits: bool,
    hybrid: Option<Hybrid>,
}

impl<'a> Records<'a> {
    /// The records of a copy of fields that differ, and the loops around them: the innermost loop goes over
    /// records, or two go over hybrids of them. `streams` says that it is too large for the caches; if not,
    /// only windows and halves are worth it.
    pub(crate) fn of_fields(
        copy: &'a NdCopy,
        (streams, by): (bool, Abilities),
    ) -> Option<(Nest<'a>, Records<'a>)> {
        let form = Form::of_hybrids(copy).or_else(|| Form::of_rows(copy))?;
        let loops = if form.hybrid.is_some() { 2 } else { 1 };
        let outer = Nest::around(&copy.dims[..copy.dims.len() - loops], &copy.fields[0])?;
        // What is one row on a side is one at all turns.
        let alike = |f: &FieldCopy, k: usize| {
            let (turn, first) = (f.strides[k], copy.fields[0].strides[k]);
            match (form.hybrid, form.splits) {
                (Some(_), _) => turn == first,
                (None, true) => turn.src == first.src,
                (None, false) => turn.dst == first.dst,
            }
        };
        if !(0..outer.loops().len()).all(|k| copy.fields.iter().all(|f| alike(f, k))) {
            return None;
        }
        let records = Records::new(form, by.caches)?;
        let records = Records { streams: streams && !records.has_gaps, ..records };
        // Gaps are nobody's to write: masks leave them out. What stays in the caches is moved one by one before
        // it is found out what windows are; on a Zen 4 masks were not measured.
        let by_masks = by.masks && streams && by.moves_lines();
        let records = match records.has_gaps && !by_masks {
            true => records,
            false => records.by_windows(by, outer.loops()),
        };
        let records = records.by_halves(by);
        let is_worth_it = records.is_long_enough(outer.loops(), streams)
            && (streams || records.fill != Fill::Elements);
        is_worth_it.then_some((outer, records))
    }

    /// Takes the loops of records and of their fields, which are alike, out of `nest`. `streams` says
    /// that they go past the caches; if not, only tables, picks, windows and dense squares are worth it.
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
        let first = Field { bytes: nest.bytes, padding: 0, src: 0, dst: 0 };
        let series = Fields::Series(fields.count, first, (fields.src, fields.dst));
        let (count, pitch) = (records.count, usize::try_from(pitch).ok()?);
        let form = Form { fields: series, count, pitch, splits, hybrid: None };
        let mut rest = *nest;
        let behind = dense_src.map_or(0, |k| usize::from(k > dense_dst));
        rest.take(dense_dst);
        dense_src.map(|k| rest.take(k - behind));
        let records = Records::new(form, by.caches)?;
        let mut records = Records { streams, ..records };
        // Lanes are squares by themselves where vectors are lines that are moved as a whole. Where these are half a line,
        // panels have had those that squares are better for.
        let lanes = by.moves_lines() && nest.bytes == LANE_BYTES;
        let squares = nest.bytes.is_power_of_two() && (nest.bytes < LANE_BYTES || lanes);
        let dense = pitch == fields.count * nest.bytes;
        let few = dense && BY_TABLE.contains(&fields.count);
        let picked = few && !streams && Records::are_picked(nest.bytes, by);
        // Three are faster by tables, and five that are put together in a stage.
        let least = if splits || !streams { 5 } else { 6 };
        let are_dense = by.exchanges_units() && nest.bytes >= 4 && fields.count >= least;
        records.fill = match (squares, few) {
            (true, true) if picked => Fill::Picks,
            (true, true) if are_dense => Fill::Dense,
            (true, true) => Fill::Tables,
            (true, false) if fields.count == 1 => Fill::Elements,
            (true, false) if records.suit_squares(fields, rest.loops(), by) => Fill::Squares,
            (true, false) => return None,
            _ => Fill::Elements,
        };
        if records.fill == Fill::Squares {
            records.block = records.block_of_squares(by.caches);
        }
        if !streams && matches!(records.fill, Fill::Picks | Fill::Dense) {
            records.block = records.count;
        }
        // Few fields are in many bytes of each window; yet AMD's processors take longer for one, which only
        // matters where records are put together.
        let lines = by.lanes * LANE_BYTES == LINE_BYTES;
        let few = fields.count == 3 && lines && (!by.scatters || splits);
        let is_long = !streams || records.is_long_enough(rest.loops(), streams);
        if is_long && (records.fill == Fill::Elements || (records.fill == Fill::Tables && few)) {
            records = records.by_windows(by, rest.loops());
        }
        if !streams && matches!(records.fill, Fill::Elements | Fill::Squares) {
            return None;
        }
        *nest = rest;
        Some(records)
    }

    /// Takes the loops out of `nest` of hybrids that are records on the other side, of fields of one size, and go on there
    /// as they do here: so many small matrices, of which the source is called the hybrids. Windows move them, or squares in
    /// a stage, where panels would be put together, which `is_staged` says, or their squares overlap others: parts of lines
    /// would be written twice.
    pub(crate) fn of_hybrids(
        nest: &mut Nest,
        is_staged: bool,
        (streams, by): (bool, Abilities),
    ) -> Option<Records<'a>> {
        let step = nest.bytes.cast_signed();
        if !streams
            || !by.exchanges_units()
            || nest.bytes >= LANE_BYTES
            || !nest.bytes.is_power_of_two()
        {
            return None;
        }
        let mut rest = *nest;
        let mut take = |is: &dyn Fn(&Loop) -> bool| {
            let k = rest.loops().iter().position(|l| l.is_plain() && is(l))?;
            Some(rest.take(k))
        };
        let fields = take(&|l| l.dst == step)?;
        let inner = take(&|l| (l.src, l.dst) == (step, fields.count.cast_signed() * step))?;
        let apart = inner.count.cast_signed() * inner.dst;
        let hybrids = take(&|l| (l.src, l.dst) == (apart, apart))?;
        if fields.src != inner.count.cast_signed() * step {
            return None;
        }
        let first = Field { bytes: nest.bytes, padding: 0, src: 0, dst: 0 };
        let series = Fields::Series(fields.count, first, (fields.src, fields.dst));
        let pitch = usize::try_from(apart).ok()?;
        let hybrid = Hybrid { inner: inner.count, step: inner.dst.cast_unsigned(), apart: pitch };
        let form = Form {
            fields: series,
            count: hybrids.count,
            pitch,
            splits: false,
            hybrid: Some(hybrid),
        };
        let records = Records::new(form, by.caches)?;
        let side = LANE_BYTES / nest.bytes;
        let is_ragged = !inner.count.is_multiple_of(side);
        if !(is_staged || is_ragged) || !records.is_long_enough(rest.loops(), streams) {
            return None;
        }
        let windows = records.by_windows(by, rest.loops());
        let squares = Records { fill: Fill::Squares, ..records };
        let records = match windows.has_windows() {
            true => windows,
            false if squares.tile(squares.block).lanes(side, by.lanes).is_some() => squares,
            false => return None,
        };
        *nest = rest;
        Some(records)
    }

    /// Whether records of `fields` are better moved by squares, in a stage, than by panels, for rows in `loops`.
    fn suit_squares(&self, fields: Loop, loops: &[Loop], by: Abilities) -> bool {
        match self.splits {
            true => self.suit_squares_apart(fields, loops, by),
            false => self.suit_squares_together(loops, by),
        }
    }

    /// What a block of squares has: of each array some lines. More of those that are read, which have other pages; and
    /// of those that are written no more if there are records enough.
    fn block_of_squares(&self, caches: Caches) -> usize {
        let line = LINE_BYTES / self.fields.at(0).bytes;
        let of = |bytes: usize, lines: usize| (bytes / self.pitch / line * line).max(lines * line);
        match self.splits {
            true => self.block.min(of(block_bytes(caches), 4)),
            false => of(2 * block_bytes(caches), 8),
        }
    }

    /// Whether records are better put together in a stage, by squares, than by panels, by AVX2: where they aren't whole
    /// lines by themselves, nor longer than some, and not of as many fields as are joined in registers.
    fn suit_squares_together(&self, loops: &[Loop], by: Abilities) -> bool {
        let fields = self.fields.len();
        let are_joined = fields.is_power_of_two() && fields <= MOST_JOINED;
        let suits = !self.pitch.is_multiple_of(LINE_BYTES) && self.pitch < MOST_TOGETHER_BYTES;
        let are_long = loops.is_empty() || self.count >= LEAST_ROW_RECORDS;
        by.exchanges_units() && !are_joined && suits && are_long
    }

    /// Whether arrays of `fields` are better made in a stage, by squares, than by panels where they belong, for rows in
    /// `loops`: where all are at one place of a page, or by AVX2 also where lines are shared, or elements of one or two
    /// bytes are many. In a last-level cache, which source and destination fit into if they take two thirds of it, only
    /// structures of less than a line are; past it so are those where lines of panels clash, which was found on a Zen 3
    /// and measured on no Xeon.
    fn suit_squares_apart(&self, fields: Loop, loops: &[Loop], by: Abilities) -> bool {
        if fields.dst % PAGE_BYTES == 0 {
            return by.lanes * LANE_BYTES < LINE_BYTES;
        }
        let bytes = self.fields.at(0).bytes;
        let (record, array) = (fields.count * bytes, self.count.saturating_mul(bytes));
        let places = loops.iter().fold(fields.dst | array.cast_signed(), |all, l| all | l.dst);
        let shares_lines = places % LINE_BYTES.cast_signed() != 0;
        let are_small = bytes <= 2 && record > LANE_BYTES / 2;
        let clash = match fields.count {
            CLASHING_FIELDS => true,
            _ => fields.dst % CLASHING_BYTES == 0 && record >= LANE_BYTES,
        };
        let row = self.count.saturating_mul(self.pitch);
        let all = loops
            .iter()
            .fold(array.saturating_mul(fields.count), |all, l| all.saturating_mul(l.count));
        let suits = match all > by.caches.third_bytes / 3 {
            true => shares_lines || are_small || by.scatters && clash,
            false => (shares_lines || are_small) && record < LINE_BYTES,
        };
        by.exchanges_units() && suits && (loops.is_empty() || row >= LEAST_SQUARES_BYTES)
    }

    /// Whether rows in `loops` are long enough. In the caches long runs of each field are as well moved one by
    /// one.
    fn is_long_enough(&self, loops: &[Loop], streams: bool) -> bool {
        let bytes = self.count.saturating_mul(self.pitch);
        match self.hybrid {
            Some(hybrid) if hybrid.inner < LONG_HYBRID => {
                loops.is_empty() || bytes >= LEAST_HYBRIDS_BYTES
            }
            None if loops.is_empty() => true,
            _ => streams && (loops.is_empty() || bytes >= LEAST_ROW_BYTES),
        }
    }

    fn new(form: Form<'a>, caches: Caches) -> Option<Records<'a>> {
        let Form { fields, count, pitch, splits, hybrid } = form;
        let inner = hybrid.map_or(1, |hybrid| hybrid.inner);
        let is_few = count.saturating_mul(inner) < LEAST_RECORDS;
        if fields.len() > MOST_FIELDS || is_few || pitch > MOST_RECORD_BYTES {
            return None;
        }
        if fields.iter().any(|f| f.bytes == 0 || f.bytes > pitch) {
            return None;
        }
        let bytes: usize = fields.iter().map(|f| f.bytes).sum();
        let apart = hybrid.map_or(pitch, |hybrid| hybrid.apart);
        if inner.saturating_mul(bytes) > pitch.min(apart) {
            return None;
        }
        let least = |of: &dyn Fn(Field) -> isize| fields.iter().map(of).min().unwrap_or(0);
        let base = (least(&|f| f.src), least(&|f| f.dst));
        // How far it is from record to record of the result, and how much of that a field has.
        let (result, turns) = match hybrid {
            Some(hybrid) if splits => (hybrid.apart, hybrid.inner),
            Some(hybrid) => (hybrid.step, 1),
            None => (pitch, 1),
        };
        let written = |f: Field| ((turns - 1) * f.bytes).saturating_add(f.written());
        let parts = fields.iter().map(|f| (f.dst.abs_diff(base.1) as u64, written(f) as u64));
        let has_gaps = (!splits || hybrid.is_some()) && !are_all(parts, result as u64);
        let fill = Fill::Elements;
        // Each array gets a line at least, and tables whole vectors. What is put together where it belongs
        // takes more of the first-level cache than a stage.
        let least = match hybrid {
            Some(_) => LINE_BYTES.div_ceil(pitch.min(apart)),
            None if splits => LINE_BYTES,
            None => 1,
        };
        let bytes = block_bytes(caches) / if has_gaps { 2 } else { 1 };
        let block = match (bytes / pitch).max(least) {
            few @ ..LINE_BYTES => few,
            many => many / LINE_BYTES * LINE_BYTES,
        };
        let streams = true;
        Some(Records { fields, hybrid, count, pitch, splits, has_gaps, streams, block, base, fill })
    }
}

impl<'a> Form<'a> {
    /// Records that lie so on one side, and as an array of each field on the other.
    fn of_rows(copy: &'a NdCopy) -> Option<Form<'a>> {
        let ([.., CopyDim { extent, src_index: None, dst_index: None }], fields) =
            (&copy.dims[..], &copy.fields[..])
        else {
            return None;
        };
        let k = copy.dims.len() - 1;
        let stride = |f: &FieldCopy| (f.strides[k].src as isize, f.strides[k].dst as isize);
        let first = stride(fields.first()?);
        let dense = |f: &FieldCopy, stride: isize| stride == f.bytes as isize;
        let splits = fields.iter().all(|f| stride(f).0 == first.0 && dense(f, stride(f).1));
        let joins = fields.iter().all(|f| stride(f).1 == first.1 && dense(f, stride(f).0));
        let pitch = match (splits, joins) {
            (true, _) => first.0,
            (_, true) => first.1,
            _ => return None,
        };
        let (count, pitch) = (*extent as usize, usize::try_from(pitch).ok()?);
        Some(Form { fields: Fields::List(fields), count, pitch, splits, hybrid: None })
    }

    /// Records that are arrays of as many records as hybrids on the other side have.
    fn of_hybrids(copy: &'a NdCopy) -> Option<Form<'a>> {
        let rows = Form::of_rows(copy)?;
        let [.., CopyDim { extent, src_index: None, dst_index: None }, _] = &copy.dims[..] else {
            return None;
        };
        let k = copy.dims.len() - 2;
        let first = &copy.fields[0].strides[k];
        let (records, apart) =
            if rows.splits { (first.src, first.dst) } else { (first.dst, first.src) };
        let of = |f: &FieldCopy| if rows.splits { f.dst_offset } else { f.src_offset };
        let start = copy.fields.iter().map(of).min()?;
        let bytes = |f: &FieldCopy| (rows.count as i64).saturating_mul(f.bytes as i64);
        let ends = |f: &FieldCopy| of(f).saturating_sub(start).saturating_add(bytes(f));
        let is_in = |f: &FieldCopy| f.strides[k] == *first && ends(f) <= apart;
        let pitch = usize::try_from(records).ok()?;
        let hybrid =
            Hybrid { inner: rows.count, step: rows.pitch, apart: usize::try_from(apart).ok()? };
        let whole = Some(pitch) == rows.pitch.checked_mul(rows.count);
        let fits = pitch <= MOST_RECORD_BYTES && hybrid.apart <= MOST_RECORD_BYTES;
        let count = *extent as usize;
        (whole && fits && copy.fields.iter().all(is_in)).then_some(Form {
            count,
            pitch,
            hybrid: Some(hybrid),
            ..rows
        })
    }
}
