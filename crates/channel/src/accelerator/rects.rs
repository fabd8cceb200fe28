//! A canonical copy as the rects that a device copies, each by one command (paper, section 3.4).
//!
//! A rect is rows of bytes, and slices of rows: on either side a row starts a row pitch behind the
//! one before it, and a slice a slice pitch. A pitch is at least as long as what it steps over, and
//! a slice pitch a multiple of the row pitch, or devices refuse it. What no rect holds is a loop of
//! them: further dimensions, those that run backwards or stand still, the parts of an index table
//! whose entries are not equally far apart, and fields that differ.

use layout::{CopyDim, FieldCopy, NdCopy};
use model::CopyList;

/// Bytes that one command moves. Places count from the start of either region; all are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// The first byte read.
    pub src: usize,
    /// The first byte written.
    pub dst: usize,
    /// Bytes of a row, rows of a slice, slices.
    pub size: [usize; 3],
    /// From row to row, and from slice to slice, of the source.
    pub src_pitch: [usize; 2],
    /// Likewise of the destination.
    pub dst_pitch: [usize; 2],
}

impl Rect {
    /// Whether it is one run of bytes.
    #[must_use]
    pub fn is_run(&self) -> bool {
        self.size[1] == 1 && self.size[2] == 1
    }
}

/// What a device's API asks of rects besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RectRules {
    /// The longest way from row to row. Rows that are farther apart are copied one by one.
    pub most_pitch_bytes: usize,
    /// Whether both sides have the same pitches where they are one region.
    pub equal_pitches_in_place: bool,
}

/// Byte `at` of a buffer as a place in rows and slices of these pitches, which is how some APIs
/// count.
#[must_use]
pub fn origin(at: usize, [row, slice]: [usize; 2]) -> [usize; 3] {
    let in_slice = at % slice;
    [in_slice % row, in_slice / row, at / slice]
}

/// One loop of a copy: how often it turns, and how far it goes on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    count: u64,
    src: i64,
    dst: i64,
}

/// Turns of a dimension whose positions are equally far apart: the first, and the step to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leg {
    count: u64,
    src: (u64, i64),
    dst: (u64, i64),
}

/// Runs of `bytes`, and loops over them without tables.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nest {
    bytes: u64,
    src: i64,
    dst: i64,
    loops: Vec<Loop>,
}

/// How the nests of a request become rects.
#[derive(Debug, Clone, Copy)]
struct Fit {
    most_pitch: i64,
    equal_pitches: bool,
    /// Whether both sides are one region: then no rect spans bytes that the other side touches.
    in_place: bool,
}

/// The rects of a list of copies whose bounds have been checked, made one at a time.
#[derive(Debug)]
pub struct Rects {
    list: CopyList,
    /// The copy that comes next.
    next: usize,
    nests: Option<Nests>,
    walk: Option<Walk>,
    /// Where the offsets of source and destination count from.
    bases: (u64, u64),
    fit: Fit,
}

impl Rects {
    /// The rects of `list` by `rules`, its offsets counted from `bases`; `in_place` where both sides
    /// are one region.
    #[must_use]
    pub fn new(list: CopyList, bases: (u64, u64), rules: RectRules, in_place: bool) -> Self {
        let fit = Fit {
            most_pitch: rules.most_pitch_bytes.try_into().unwrap_or(i64::MAX),
            equal_pitches: in_place && rules.equal_pitches_in_place,
            in_place,
        };
        Rects { list, next: 0, nests: None, walk: None, bases, fit }
    }

    /// The next nest of the present copy, or of the next that has one.
    fn next_nest(&mut self) -> Option<Nest> {
        loop {
            if let Some(nests) = &mut self.nests
                && let Some(nest) = nests.next(&self.list[self.next - 1], self.bases)
            {
                return Some(nest);
            }
            self.nests = Nests::of(self.list.get(self.next)?);
            self.next += 1;
        }
    }
}

impl Iterator for Rects {
    type Item = Rect;

    fn next(&mut self) -> Option<Rect> {
        loop {
            if let Some(rect) = self.walk.as_mut().and_then(Iterator::next) {
                return Some(rect);
            }
            let nest = self.next_nest()?.simplified();
            self.walk = Some(Walk::over(nest, self.fit));
        }
    }
}

/// The nests of one copy: one for each field, unless these are a loop themselves, and each choice of
/// legs.
#[derive(Debug)]
struct Nests {
    legs: Vec<Vec<Leg>>,
    /// Which leg of each dimension comes next.
    turn: Vec<usize>,
    /// All fields, where they are alike and equally far apart.
    series: Option<Loop>,
    field: usize,
}

impl Nests {
    /// `None` for a copy that moves nothing.
    fn of(copy: &NdCopy) -> Option<Self> {
        if copy.dims.iter().any(|d| d.extent == 0) {
            return None;
        }
        let legs: Vec<_> = copy.dims.iter().map(legs).collect();
        let turn = vec![0; legs.len()];
        Some(Nests { legs, turn, series: series(&copy.fields), field: 0 })
    }

    fn next(&mut self, copy: &NdCopy, bases: (u64, u64)) -> Option<Nest> {
        let field = copy.fields.get(self.field)?;
        let nest = self.nest(field, bases);
        if !self.step() {
            self.field = if self.series.is_some() { copy.fields.len() } else { self.field + 1 };
        }
        Some(nest)
    }

    fn nest(&self, field: &FieldCopy, bases: (u64, u64)) -> Nest {
        let (mut src, mut dst) = (field.src_offset, field.dst_offset);
        let mut loops = Vec::with_capacity(self.legs.len() + 1);
        for ((legs, &turn), stride) in self.legs.iter().zip(&self.turn).zip(&field.strides) {
            let leg = legs[turn];
            src = src.wrapping_add(stride.src.wrapping_mul(leg.src.0.cast_signed()));
            dst = dst.wrapping_add(stride.dst.wrapping_mul(leg.dst.0.cast_signed()));
            let (by_src, by_dst) =
                (stride.src.wrapping_mul(leg.src.1), stride.dst.wrapping_mul(leg.dst.1));
            loops.push(Loop { count: leg.count, src: by_src, dst: by_dst });
        }
        loops.extend(self.series);
        let src = src.wrapping_add_unsigned(bases.0);
        Nest { bytes: field.bytes, src, dst: dst.wrapping_add_unsigned(bases.1), loops }
    }

    /// Goes to the next choice of legs; false where that is the first again.
    fn step(&mut self) -> bool {
        for (turn, legs) in self.turn.iter_mut().zip(&self.legs).rev() {
            *turn += 1;
            if *turn < legs.len() {
                return true;
            }
            *turn = 0;
        }
        false
    }
}

/// The turns of `dim` as the fewest legs that a look at one entry after the other finds.
fn legs(dim: &CopyDim) -> Vec<Leg> {
    if dim.src_index.is_none() && dim.dst_index.is_none() {
        return vec![Leg { count: dim.extent, src: (0, 1), dst: (0, 1) }];
    }
    let position = |table: &Option<std::sync::Arc<[u64]>>, turn: u64| {
        table.as_ref().map_or(turn, |table| table[turn as usize])
    };
    let at = |turn: u64| (position(&dim.src_index, turn), position(&dim.dst_index, turn));
    let step = |turn: u64| {
        let (here, next) = (at(turn), at(turn + 1));
        (next.0.wrapping_sub(here.0).cast_signed(), next.1.wrapping_sub(here.1).cast_signed())
    };
    let (mut legs, mut turn) = (Vec::new(), 0);
    while turn < dim.extent {
        let (src, dst) = at(turn);
        let mut leg = Leg { count: 1, src: (src, 0), dst: (dst, 0) };
        if turn + 1 < dim.extent {
            (leg.src.1, leg.dst.1) = step(turn);
            let last = (turn + 1..dim.extent - 1).find(|&k| step(k) != step(turn));
            leg.count = last.unwrap_or(dim.extent - 1) - turn + 1;
        }
        turn += leg.count;
        legs.push(leg);
    }
    legs
}

/// Several fields as a loop, where they are alike and equally far apart.
fn series(fields: &[FieldCopy]) -> Option<Loop> {
    let [first, second, ..] = fields else { return None };
    let step = |a: &FieldCopy, b: &FieldCopy| {
        (b.src_offset.wrapping_sub(a.src_offset), b.dst_offset.wrapping_sub(a.dst_offset))
    };
    let (src, dst) = step(first, second);
    let even = fields.windows(2).all(|pair| step(&pair[0], &pair[1]) == (src, dst));
    let alike = fields.iter().all(|f| f.bytes == first.bytes && f.strides == first.strides);
    (even && alike).then_some(Loop { count: fields.len() as u64, src, dst })
}

impl Nest {
    /// The same bytes by fewer loops, none of which walks the destination backwards.
    fn simplified(mut self) -> Nest {
        self.loops.retain(|l| l.count > 1);
        self.turn_round();
        while self.widen() || self.join() {}
        self
    }

    fn turn_round(&mut self) {
        for l in self.loops.iter_mut().filter(|l| l.dst < 0) {
            let last = (l.count - 1).cast_signed();
            self.src = self.src.wrapping_add(l.src.wrapping_mul(last));
            self.dst = self.dst.wrapping_add(l.dst.wrapping_mul(last));
            (l.src, l.dst) = (l.src.wrapping_neg(), l.dst.wrapping_neg());
        }
    }

    /// Makes a loop whose turns lie side by side a part of the run.
    fn widen(&mut self) -> bool {
        let bytes = self.bytes.cast_signed();
        let beside = self.loops.iter().position(|l| l.src == bytes && l.dst == bytes);
        let Some(k) = beside else { return false };
        self.bytes *= self.loops.swap_remove(k).count;
        true
    }

    /// Makes one loop of two, of which one goes on where the other ends.
    fn join(&mut self) -> bool {
        let goes_on = |inner: &Loop, outer: &Loop| {
            let whole = |stride: i64| stride.checked_mul(inner.count.cast_signed());
            whole(inner.src) == Some(outer.src) && whole(inner.dst) == Some(outer.dst)
        };
        for (k, outer) in self.loops.iter().enumerate().filter(|(_, l)| l.dst != 0) {
            if let Some(inner) = self.loops.iter().position(|inner| goes_on(inner, outer)) {
                self.loops[inner].count *= outer.count;
                self.loops.swap_remove(k);
                return true;
            }
        }
        false
    }

    /// The loops that are rows and slices, by their places: those that leave the fewest rects.
    fn choice(&self, fit: Fit) -> (Option<usize>, Option<usize>) {
        if fit.in_place && self.overlaps_itself() {
            return (None, None);
        }
        let (mut best, mut most) = ((None, None), 1);
        for (r, row) in self.loops.iter().enumerate().filter(|(_, l)| self.is_row(l, fit)) {
            if row.count > most {
                (best, most) = ((Some(r), None), row.count);
            }
            for (s, slice) in self.loops.iter().enumerate() {
                let both = row.count.saturating_mul(slice.count);
                if s != r && both > most && is_slice(row, slice, fit) {
                    (best, most) = ((Some(r), Some(s)), both);
                }
            }
        }
        best
    }

    fn is_row(&self, l: &Loop, fit: Fit) -> bool {
        let pitches = self.bytes.cast_signed()..=fit.most_pitch;
        let fits = pitches.contains(&l.src) && pitches.contains(&l.dst);
        fits && (!fit.equal_pitches || l.src == l.dst)
    }

    /// Whether the bytes between the first and the last that are read touch those that are written.
    fn overlaps_itself(&self) -> bool {
        let hull = |start: i64, stride: fn(&Loop) -> i64| {
            let ends = self.loops.iter().map(|l| i128::from(stride(l)) * i128::from(l.count - 1));
            let (before, behind) =
                ends.fold((0, 0), |(b, e), way| (b + way.min(0), e + way.max(0)));
            let start = i128::from(start);
            start + before..start + behind + i128::from(self.bytes)
        };
        let (src, dst) = (hull(self.src, |l| l.src), hull(self.dst, |l| l.dst));
        src.start < dst.end && dst.start < src.end
    }
}

/// Whether the turns of `slice` can be slices of rows that are those of `row`.
fn is_slice(row: &Loop, slice: &Loop, fit: Fit) -> bool {
    let fits = |row_pitch: i64, slice_pitch: i64| {
        let rows = i128::from(row_pitch) * i128::from(row.count);
        i128::from(slice_pitch) >= rows && slice_pitch % row_pitch == 0
    };
    fits(row.src, slice.src)
        && fits(row.dst, slice.dst)
        && (!fit.equal_pitches || slice.src == slice.dst)
}

/// The rects of a nest: one, and the loops around it.
#[derive(Debug)]
struct Walk {
    first: Rect,
    outer: Vec<Loop>,
    /// The next turn of each loop; `None` when all were taken.
    turn: Option<Vec<u64>>,
}

impl Walk {
    fn over(mut nest: Nest, fit: Fit) -> Self {
        let (row, slice) = nest.choice(fit);
        let none = Loop { count: 1, src: 0, dst: 0 };
        let of = |place: Option<usize>| place.map_or(none, |k| nest.loops[k]);
        let (rows, slices) = (of(row), of(slice));
        let pitch = |row: i64, slice: i64| {
            let row = row.max(nest.bytes.cast_signed());
            [row as usize, slice.max(row * rows.count.cast_signed()) as usize]
        };
        let first = Rect {
            src: nest.src as usize,
            dst: nest.dst as usize,
            size: [nest.bytes as usize, rows.count as usize, slices.count as usize],
            src_pitch: pitch(rows.src, slices.src),
            dst_pitch: pitch(rows.dst, slices.dst),
        };
        let mut place = 0;
        nest.loops.retain(|_| {
            place += 1;
            Some(place - 1) != row && Some(place - 1) != slice
        });
        let turn = (nest.bytes > 0).then(|| vec![0; nest.loops.len()]);
        Walk { first, outer: nest.loops, turn }
    }
}

impl Iterator for Walk {
    type Item = Rect;

    fn next(&mut self) -> Option<Rect> {
        let turn = self.turn.as_mut()?;
        let mut rect = self.first;
        for (l, &at) in self.outer.iter().zip(&*turn) {
            let way = |stride: i64| stride.wrapping_mul(at.cast_signed()) as usize;
            rect.src = rect.src.wrapping_add(way(l.src));
            rect.dst = rect.dst.wrapping_add(way(l.dst));
        }
        let more = self.outer.iter().zip(turn).rev().any(|(l, at)| {
            *at = (*at + 1) % l.count;
            *at > 0
        });
        if !more {
            self.turn = None;
        }
        Some(rect)
    }
}

#[cfg(test)]
impl Rect {
    /// Where each of its runs is read and written.
    pub(super) fn runs(self) -> impl Iterator<Item = (usize, usize)> {
        let Rect { src, dst, size, src_pitch, dst_pitch } = self;
        (0..size[2]).flat_map(move |z| {
            (0..size[1]).map(move |y| {
                let way = |[row, slice]: [usize; 2]| y * row + z * slice;
                (src + way(src_pitch), dst + way(dst_pitch))
            })
        })
    }
}

#[cfg(test)]
mod tests;
