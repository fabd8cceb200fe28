//! A list of copies as nests of loops without tables, which is what devices are asked for.

use layout::{CopyDim, FieldCopy, NdCopy};
use model::CopyList;

/// One loop of a copy: how often it turns, and how far it goes on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) count: u64,
    pub(super) src: i64,
    pub(super) dst: i64,
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
pub(super) struct Nest {
    pub(super) bytes: u64,
    pub(super) src: i64,
    pub(super) dst: i64,
    pub(super) loops: Vec<Loop>,
}

/// The nests of a list of copies whose bounds have been checked, made one at a time. Each has the
/// fewest loops, none of which walks the destination backwards.
#[derive(Debug)]
pub(super) struct Nests {
    list: CopyList,
    /// The copy that comes next.
    next: usize,
    current: Option<CopyNests>,
    /// Where the offsets of source and destination count from.
    bases: (u64, u64),
    least_turns: u64,
}

impl Nests {
    /// The nests of `list`, its offsets counted from `bases`. Entries of a table are a loop where at least
    /// so many in a row are equally far apart: any two are.
    pub(super) fn new(list: CopyList, bases: (u64, u64), least_turns: u64) -> Self {
        Nests { list, next: 0, current: None, bases, least_turns }
    }
}

impl Iterator for Nests {
    type Item = Nest;

    fn next(&mut self) -> Option<Nest> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(nest) = current.next(&self.list[self.next - 1], self.bases)
            {
                if nest.bytes > 0 {
                    return Some(nest.simplified());
                }
                continue;
            }
            self.current = CopyNests::of(self.list.get(self.next)?, self.least_turns);
            self.next += 1;
        }
    }
}

/// The nests of one copy: one for each field, unless these are a loop themselves, and each choice of
/// legs.
#[derive(Debug)]
struct CopyNests {
    legs: Vec<Vec<Leg>>,
    /// Which leg of each dimension comes next.
    turn: Vec<usize>,
    /// All fields, where they are alike and equally far apart.
    series: Option<Loop>,
    field: usize,
}

impl CopyNests {
    /// `None` for a copy that moves nothing.
    fn of(copy: &NdCopy, least_turns: u64) -> Option<Self> {
        if copy.dims.iter().any(|d| d.extent == 0) {
            return None;
        }
        let legs: Vec<_> = copy.dims.iter().map(|dim| legs(dim, least_turns)).collect();
        let turn = vec![0; legs.len()];
        Some(CopyNests { legs, turn, series: series(&copy.fields), field: 0 })
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

/// The turns of `dim` as the fewest legs that a look at one entry after the other finds, of one turn or of
/// at least `least_turns`.
fn legs(dim: &CopyDim, least_turns: u64) -> Vec<Leg> {
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
            let last = (turn + 1..dim.extent - 1).find(|&k| step(k) != step(turn));
            let count = last.unwrap_or(dim.extent - 1) - turn + 1;
            if count >= least_turns {
                (leg.src.1, leg.dst.1) = step(turn);
                leg.count = count;
            }
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
}

/// How far each turn of some loops lies from the first, the last loop fastest. Without loops there is
/// one turn.
#[derive(Debug)]
pub(super) struct Turns {
    loops: Vec<Loop>,
    /// The next turn of each loop; `None` when all were taken.
    turn: Option<Vec<u64>>,
}

impl Turns {
    pub(super) fn of(loops: Vec<Loop>) -> Self {
        let turn = Some(vec![0; loops.len()]);
        Turns { loops, turn }
    }
}

impl Iterator for Turns {
    /// On the source's side, and on the destination's.
    type Item = (i64, i64);

    fn next(&mut self) -> Option<(i64, i64)> {
        let turn = self.turn.as_mut()?;
        let way = |by: fn(&Loop) -> i64| {
            let each = self.loops.iter().zip(&*turn);
            let each = each.map(|(l, &at)| by(l).wrapping_mul(at.cast_signed()));
            each.fold(0, i64::wrapping_add)
        };
        let ways = (way(|l| l.src), way(|l| l.dst));
        let more = self.loops.iter().zip(turn).rev().any(|(l, at)| {
            *at = (*at + 1) % l.count;
            *at > 0
        });
        if !more {
            self.turn = None;
        }
        Some(ways)
    }
}
