//! A copy of one field, or of fields at equal distances, as one nest of loops.

use crate::element::Line;
use layout::{CopyDim, FieldCopy, NdCopy};
use std::ops::Range;

/// More loops than a nest holds are left to `walk`.
pub(crate) const MOST_LOOPS: usize = 12;

/// One loop: how often it turns, and how far it goes on either side; a table says which multiples
/// of that.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loop<'a> {
    pub(crate) count: usize,
    pub(crate) src: isize,
    pub(crate) dst: isize,
    pub(crate) src_table: Option<&'a [u64]>,
    pub(crate) dst_table: Option<&'a [u64]>,
}

impl Loop<'_> {
    fn of(dim: &CopyDim, src: i64, dst: i64) -> Loop<'_> {
        Loop {
            count: dim.extent as usize,
            src: src as isize,
            dst: dst as isize,
            src_table: dim.src_index.as_deref(),
            dst_table: dim.dst_index.as_deref(),
        }
    }

    /// Whether turns are equally far apart on both sides.
    pub(crate) fn is_plain(&self) -> bool {
        self.src_table.is_none() && self.dst_table.is_none()
    }

    /// Which multiples of its strides turn `i` is at, on either side.
    pub(crate) fn turn(&self, i: usize) -> (isize, isize) {
        let position = |table: Option<&[u64]>| table.map_or(i, |t| t[i] as usize) as isize;
        (position(self.src_table), position(self.dst_table))
    }

    /// How far turn `i` is from the start, on either side.
    pub(crate) fn at(&self, i: usize) -> (isize, isize) {
        let turn = self.turn(i);
        (turn.0 * self.src, turn.1 * self.dst)
    }
}

/// Elements of `bytes`, and loops over them, at these offsets from either base.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nest<'a> {
    pub(crate) bytes: usize,
    pub(crate) src: isize,
    pub(crate) dst: isize,
    loops: [Loop<'a>; MOST_LOOPS],
    len: usize,
}

impl<'a> Nest<'a> {
    /// `copy` as a nest, if its fields are alike and equally far apart, and not empty.
    pub(crate) fn of(copy: &'a NdCopy) -> Option<Nest<'a>> {
        let (first, step) = series(&copy.fields).filter(|(first, _)| first.bytes > 0)?;
        let mut nest = Nest {
            bytes: first.bytes as usize,
            src: first.src_offset as isize,
            dst: first.dst_offset as isize,
            loops: [Loop::default(); MOST_LOOPS],
            len: 0,
        };
        let fields = Loop { count: copy.fields.len(), src: step.0, dst: step.1, ..Loop::default() };
        let dims = copy.dims.iter().zip(&first.strides).map(|(d, s)| Loop::of(d, s.src, s.dst));
        for each in dims.chain([fields]).filter(|each| each.count > 1 || !each.is_plain()) {
            *nest.loops.get_mut(nest.len)? = each;
            nest.len += 1;
        }
        nest.fold();
        Some(nest)
    }

    /// These loops as they are for `first` of several fields, around what is not part of the nest.
    pub(crate) fn around(dims: &'a [CopyDim], first: &FieldCopy) -> Option<Nest<'a>> {
        let mut nest = Nest { len: dims.len(), ..Nest::default() };
        let loops = dims.iter().zip(&first.strides).map(|(d, s)| Loop::of(d, s.src, s.dst));
        for (to, each) in nest.loops.get_mut(..dims.len())?.iter_mut().zip(loops) {
            *to = each;
        }
        Some(nest)
    }

    /// Its loops.
    pub(crate) fn loops(&self) -> &[Loop<'a>] {
        &self.loops[..self.len]
    }

    /// How many positions they have.
    pub(crate) fn positions(&self) -> usize {
        self.loops().iter().map(|l| l.count).product()
    }

    /// How many bytes they move; the most there can be where there are more.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.loops().iter().fold(self.bytes, |bytes, l| bytes.saturating_mul(l.count))
    }

    /// How far position `i` is from the first, on either side.
    pub(crate) fn at(&self, mut i: usize) -> (isize, isize) {
        let mut at = (0, 0);
        for l in self.loops().iter().rev() {
            let (src, dst) = l.at(i % l.count);
            (at.0, at.1, i) = (at.0 + src, at.1 + dst, i / l.count);
        }
        at
    }

    /// Makes loops in which both sides are dense part of the element.
    fn fold(&mut self) {
        let dense = |l: &Loop, bytes: usize| {
            l.is_plain() && l.src == bytes as isize && l.dst == bytes as isize
        };
        while let Some(k) = self.loops().iter().position(|l| dense(l, self.bytes)) {
            self.bytes *= self.loops[k].count;
            self.take(k);
        }
    }

    /// Takes loop `k` out; those behind it move up.
    pub(crate) fn take(&mut self, k: usize) -> Loop<'a> {
        let taken = self.loops[k];
        self.loops.copy_within(k + 1..self.len, k);
        self.len -= 1;
        taken
    }

    /// The most turns of loop `k`, up to `turns`, that divide it.
    pub(crate) fn part(&self, k: usize, turns: usize) -> usize {
        let most = turns.min(self.loops[k].count);
        (2..=most).rev().find(|t| self.loops[k].count.is_multiple_of(*t)).unwrap_or(1)
    }

    /// Takes the most turns of loop `k` out, up to `turns`, that divide it: as a loop of its own.
    pub(crate) fn split(&mut self, k: usize, turns: usize) -> Loop<'a> {
        let turns = self.part(k, turns);
        let part = Loop { count: turns, ..self.loops[k] };
        if turns == self.loops[k].count {
            return self.take(k);
        }
        let whole = &mut self.loops[k];
        whole.count /= turns;
        whole.src *= turns as isize;
        whole.dst *= turns as isize;
        part
    }

    /// The part in which loop `k`, which has no table, has these turns only.
    pub(crate) fn turns(mut self, k: usize, range: Range<usize>) -> Nest<'a> {
        let part = &mut self.loops[k];
        part.count = range.len();
        let (src, dst) = part.at(range.start);
        self.src += src;
        self.dst += dst;
        self
    }

    /// What turn `i` of loop `k`, which has no table, goes over.
    pub(crate) fn turn(mut self, k: usize, i: usize) -> Nest<'a> {
        let (src, dst) = self.take(k).at(i);
        self.src += src;
        self.dst += dst;
        self
    }

    /// These loops alone, from offset 0 on.
    pub(crate) fn only(&self, is: impl Fn(usize) -> bool) -> Nest<'a> {
        let mut some = Nest { bytes: self.bytes, ..Nest::default() };
        for k in (0..self.len).filter(|&k| is(k)) {
            some.loops[some.len] = self.loops[k];
            some.len += 1;
        }
        some
    }

    /// Orders the loops so that the destination is walked upwards as far as it can be.
    pub(crate) fn sort_by_destination(&mut self) {
        let len = self.len;
        self.loops[..len].sort_unstable_by_key(|l| std::cmp::Reverse(l.dst.unsigned_abs()));
    }

    /// Orders the loops so that the source is walked upwards as far as it can be.
    pub(crate) fn sort_by_source(&mut self) {
        let len = self.len;
        self.loops[..len].sort_unstable_by_key(|l| std::cmp::Reverse(l.src.unsigned_abs()));
    }
}

/// A loop without a table.
pub(crate) fn line(of: Loop) -> Line {
    Line { count: of.count, stride: (of.src, of.dst) }
}

/// The first of fields that are alike, and how far the next is on either side.
fn series(fields: &[FieldCopy]) -> Option<(&FieldCopy, (isize, isize))> {
    let first = fields.first()?;
    let distance = |a: &FieldCopy, b: &FieldCopy| {
        ((b.src_offset - a.src_offset) as isize, (b.dst_offset - a.dst_offset) as isize)
    };
    let step = fields.get(1).map_or((0, 0), |second| distance(first, second));
    let even = fields.windows(2).all(|pair| distance(&pair[0], &pair[1]) == step);
    let alike = fields.iter().all(|f| f.bytes == first.bytes && f.strides == first.strides);
    (even && alike).then_some((first, step))
}

/// Whether parts that start so far from the first, and have so many bytes, none of them none, are all of `bytes`: where
/// each ends another starts, or all of it ends.
pub(crate) fn are_all(parts: impl Iterator<Item = (u64, u64)> + Clone, bytes: u64) -> bool {
    let end = |(at, bytes): (u64, u64)| at.saturating_add(bytes);
    let starts = |at: u64| parts.clone().any(|part| part.0 == at);
    let follows = |part| end(part) == bytes || end(part) < bytes && starts(end(part));
    let all = parts.clone().map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
    all == bytes && parts.clone().all(follows)
}
