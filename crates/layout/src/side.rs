//! The two sides of a copy, and how each maps box-relative indices to bytes.

use crate::digits::Digit;
use crate::lattice::{Lattice, carrying_loop, is_cut_at, split_at_blocks, split_at_value};
use crate::order::Walk;
use crate::part::{Indices, Part};
use crate::stream::Stream;
use std::sync::Arc;

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
pub enum Side<'a> {
    /// A box of an instance; offsets are relative to the instance's base.
    Instance(&'a Part),
    /// A window on a stream.
    Stream {
        /// The stream.
        stream: &'a Stream,
        /// The stream position that lies at offset 0.
        base: u64,
    },
}

/// An address before the field comes in: field `f` lies at
/// `fixed + scaled · bytes(f) + spread · before(f)`, plus the field's own offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Point {
    pub(crate) fixed: i64,
    pub(crate) scaled: i64,
    pub(crate) spread: i64,
}

impl Point {
    /// The way from `other` to `self`.
    pub(crate) fn minus(self, other: Point) -> Point {
        Point {
            fixed: self.fixed - other.fixed,
            scaled: self.scaled - other.scaled,
            spread: self.spread - other.spread,
        }
    }

    /// For a field of `bytes`, with no other field before it.
    pub(crate) fn of_bytes(self, bytes: u64) -> i64 {
        self.fixed + self.scaled * bytes as i64
    }
}

impl<'a> Side<'a> {
    /// Whether the side is as long as `stream` in every dimension.
    pub(crate) fn is_as_long_as(&self, stream: &Stream) -> bool {
        let extents = stream.fused().extents();
        match self {
            Side::Instance(part) => part.extents().iter().copied().eq(extents),
            Side::Stream { stream, .. } => stream.fused().extents().eq(extents),
        }
    }

    pub(crate) fn field_count(&self) -> usize {
        match self {
            Side::Instance(part) => part.field_bytes().len(),
            Side::Stream { stream, .. } => stream.field_count(),
        }
    }

    pub(crate) fn field_bytes(&self, field: usize) -> u64 {
        match self {
            Side::Instance(part) => part.field_bytes()[field],
            Side::Stream { stream, .. } => stream.fused().field_bytes(field),
        }
    }

    /// The bytes behind `field` that may be written with anything.
    pub(crate) fn padding(&self, field: usize) -> u64 {
        match self {
            Side::Instance(part) => part.padding[field],
            Side::Stream { .. } => 0,
        }
    }

    /// The index list that the side takes along `dim`.
    pub(crate) fn list(&self, dim: usize) -> Option<&'a Arc<[u64]>> {
        match self {
            Side::Instance(part) => match part.indices(dim) {
                Indices::List(list) => Some(list),
                Indices::From(_) => None,
            },
            Side::Stream { .. } => None,
        }
    }

    /// What the entry of a list adds to the address.
    pub(crate) fn listed(&self, dim: usize, entry: u64) -> Point {
        match self {
            Side::Instance(part) => {
                let step = part.axis(dim).at(entry);
                Point { fixed: step.fixed, scaled: step.scaled, spread: 0 }
            }
            Side::Stream { .. } => Point::default(),
        }
    }

    /// The sizes of the blocks of `dim`, and where in the largest the first index lies.
    pub(crate) fn blocks(&self, dim: usize) -> (impl Iterator<Item = u64> + use<'a>, u64) {
        let (digits, start) = match *self {
            Side::Instance(_) => self.digits(dim),
            Side::Stream { stream, .. } => stream.digits_of(dim),
        };
        (digits[1..].iter().map(|digit| digit.place), start)
    }

    /// Whether `dim` counts in one digit.
    pub(crate) fn is_plain(&self, dim: usize) -> bool {
        self.digits(dim).0.len() == 1
    }

    /// What finds entries on this side.
    pub(crate) fn finder(&self) -> Finder<'a> {
        match *self {
            Side::Instance(part) => Finder::Instance(part),
            Side::Stream { stream, base } => {
                Finder::Stream { walk: Walk::new(stream.fused()), base }
            }
        }
    }

    /// The address of `field` at `point`.
    pub(crate) fn address(&self, point: Point, field: usize) -> i64 {
        let own = match self {
            Side::Instance(part) => part.offset(field),
            Side::Stream { stream, .. } => point.spread * stream.fused().before(field) as i64,
        };
        own + point.of_bytes(self.field_bytes(field))
    }

    /// Cuts lattices of `dim` so that the address is affine on each, whatever the other
    /// dimensions do.
    pub(crate) fn split(&self, dim: usize, mut lattices: Vec<Lattice>) -> Vec<Lattice> {
        if self.list(dim).is_some() || self.is_plain(dim) {
            return lattices;
        }
        let (digits, start) = self.digits(dim);
        for digit in digits[1..].iter().rev() {
            if lattices.iter().any(|l| carrying_loop(l, digit.place, start).is_some()) {
                lattices =
                    split_all(lattices, |l, out| split_at_blocks(l, digit.place, start, out));
            }
        }
        match self {
            Side::Instance(_) => lattices,
            Side::Stream { stream, .. } => split_at_ragged_edges(stream, dim, lattices),
        }
    }

    /// The digits of `dim`, and what is added to an index before it is taken apart.
    fn digits(&self, dim: usize) -> (&'a [Digit], u64) {
        match *self {
            Side::Instance(part) => match part.indices(dim) {
                Indices::From(start) => (part.digits(dim), *start),
                Indices::List(_) => (part.digits(dim), 0),
            },
            Side::Stream { stream, .. } => {
                (stream.fused().digits_of(dim), stream.fused().indices[dim].start)
            }
        }
    }
}

/// Finds entries; it keeps what many searches need.
pub(crate) enum Finder<'a> {
    Instance(&'a Part),
    Stream { walk: Walk<'a>, base: u64 },
}

impl Finder<'_> {
    /// Where the entry at the box-relative `index` lies; dimensions with a list add nothing.
    pub(crate) fn point(&mut self, index: &[u64]) -> Point {
        let (walk, base) = match self {
            Finder::Instance(part) => return point_of_part(part, index),
            Finder::Stream { walk, base } => (walk, *base),
        };
        let order = walk.order;
        let rank = order.rank_of(index, walk);
        Point {
            fixed: (rank.blocks * order.entry_bytes()) as i64 - base as i64,
            scaled: rank.behind as i64,
            spread: rank.block_entries as i64,
        }
    }
}

fn point_of_part(part: &Part, index: &[u64]) -> Point {
    let mut point = Point::default();
    for (dim, &i) in index.iter().enumerate() {
        if let Indices::From(start) = part.indices(dim) {
            let step = part.axis(dim).at(start + i);
            point.fixed += step.fixed;
            point.scaled += step.scaled;
        }
    }
    point
}

/// Cuts where the blocks of a stream stop being whole, which is where its strides change.
fn split_at_ragged_edges(stream: &Stream, dim: usize, lattices: Vec<Lattice>) -> Vec<Lattice> {
    let order = stream.fused();
    if order.is_in_order(dim) {
        split_at_partial_blocks(stream, dim, lattices)
    } else {
        split_at_edge_digits(stream, dim, lattices)
    }
}

/// Where faster digits are finer ones: cuts off the blocks at either end that the box holds in
/// part only.
fn split_at_partial_blocks(
    stream: &Stream,
    dim: usize,
    mut lattices: Vec<Lattice>,
) -> Vec<Lattice> {
    let order = stream.fused();
    let indices = &order.indices[dim];
    for digit in &order.digits_of(dim)[1..] {
        let first_whole = indices.start.div_ceil(digit.place).saturating_mul(digit.place);
        let last_whole = indices.end - indices.end % digit.place;
        for at in [first_whole, last_whole] {
            let at = at.saturating_sub(indices.start);
            lattices = split_all_at(lattices, &|index| index, at);
        }
    }
    lattices
}

/// In any order: cuts where a digit passes that of the first or of the last index.
fn split_at_edge_digits(stream: &Stream, dim: usize, mut lattices: Vec<Lattice>) -> Vec<Lattice> {
    let order = stream.fused();
    let indices = &order.indices[dim];
    for digit in order.digits_of(dim) {
        let (lo, hi) = (digit.of(indices.start), digit.of(indices.end - 1));
        for at in [lo, lo + 1, hi, hi + 1] {
            let value = |index: u64| digit.of(index + indices.start);
            lattices = split_all_at(lattices, &value, at);
        }
    }
    lattices
}

fn split_all_at(lattices: Vec<Lattice>, value: &dyn Fn(u64) -> u64, at: u64) -> Vec<Lattice> {
    if !lattices.iter().any(|l| is_cut_at(l, value, at)) {
        return lattices;
    }
    split_all(lattices, |l, out| split_at_value(l, value, at, out))
}

fn split_all(lattices: Vec<Lattice>, split: impl Fn(Lattice, &mut Vec<Lattice>)) -> Vec<Lattice> {
    let mut out = Vec::with_capacity(lattices.len());
    lattices.into_iter().for_each(|l| split(l, &mut out));
    out
}
