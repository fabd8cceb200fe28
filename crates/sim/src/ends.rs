//! Random instances around a box: in blocks or on strides, with more fields and entries than are
//! copied.

use crate::geometry::Geometry;
use crate::rng::Rng;
use crate::scenario::{End, Stored};
use model::{Component, Dim, Field, FieldSpace, IndexSpace, Layout, Selection, Span};

const NAMES: [&str; 4] = ["x", "y", "z", "w"];

/// What an end is for: a source may hold one byte for several entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Source,
    Destination,
}

impl Geometry {
    /// An end, and the plan's notation for its layout.
    pub(crate) fn end(&self, rng: &mut Rng, used: Use) -> (End, Layout) {
        if rng.chance(25) { self.wrapped(rng, used) } else { self.laid_out(rng, used) }
    }

    /// An instance that keeps some of the blocks.
    fn laid_out(&self, rng: &mut Rng, used: Use) -> (End, Layout) {
        let joined: Vec<bool> = self.extents.iter().map(|_| rng.chance(60)).collect();
        let notation = self.permute(rng, &joined);
        let layout = self.join(&notation, &joined);
        let (space, part) = self.space(rng, &joined, used);
        (End { space, layout, part, stored: self.stored(rng) }, notation)
    }

    /// An array of somebody else's: strides of any sign, with gaps of any size.
    fn wrapped(&self, rng: &mut Rng, used: Use) -> (End, Layout) {
        let joined = vec![true; self.extents.len()];
        let mut order: Vec<usize> = (0..joined.len()).collect();
        rng.shuffle(&mut order);
        let units = order.iter().flat_map(|&dim| self.components(dim));
        let components = [Component::Fields].into_iter().chain(units);
        let notation = Layout::new(components, joined.len()).expect("each component once");
        let layout = self.join(&notation, &joined);
        let (space, part) = self.space(rng, &joined, used);
        let mut stored = self.stored(rng);
        let mut strides = strides(rng, &order, &space.extents(), stored.fields.item_bytes());
        if used == Use::Source && rng.chance(10) {
            strides[order[0]] = 0;
        }
        stored.strides = Some(strides);
        (End { space, layout, part, stored }, notation)
    }

    /// An index space that holds the box, and the box in it.
    fn space(&self, rng: &mut Rng, joined: &[bool], used: Use) -> (IndexSpace, Selection) {
        let dims = (0..joined.len()).map(|d| self.dim(rng, (d, joined[d]), used));
        let (dims, spans): (Vec<Dim>, Vec<Span>) = dims.unzip();
        let space = IndexSpace::new(dims).expect("few small dimensions");
        let part = Selection::new(&space, spans).expect("the box lies inside");
        (space, part)
    }

    /// A dimension of an instance that holds the box, at its phase where the blocks are kept.
    fn dim(&self, rng: &mut Rng, (dim, joined): (usize, bool), used: Use) -> (Dim, Span) {
        let block: u64 = self.blocks[dim].iter().product();
        let before =
            if joined { rng.within(0, 3) } else { self.phase[dim] + block * rng.within(0, 1) };
        let first = small(rng.within(0, 9)) - 4;
        let (lo, hi) = (first + small(before), first + small(before + self.extents[dim]));
        let end = hi + small(rng.within(0, 3));
        let span = if rng.chance(10) {
            Span::List(list(rng, (first, end), self.extents[dim], used).into())
        } else {
            Span::Range { lo, hi }
        };
        (Dim { name: NAMES[dim].into(), lo: first, hi: end }, span)
    }

    /// The copied fields alone, or among others with padding between them.
    fn stored(&self, rng: &mut Rng) -> Stored {
        if rng.chance(70) {
            return Stored::all(self.fields());
        }
        let mut slots: Vec<Option<usize>> = (0..self.field_bytes.len()).map(Some).collect();
        slots.extend((0..rng.within(0, 2)).map(|_| None));
        rng.shuffle(&mut slots);
        let (mut end, mut fields) = (0, Vec::new());
        for (at, slot) in slots.iter().enumerate() {
            let bytes = slot.map_or_else(|| rng.pick(&[1, 2, 4, 5]), |f| self.field_bytes[f]);
            let offset = end + gap(rng);
            fields.push(Field { name: format!("s{at}").into(), bytes, offset, dtype: "".into() });
            end = offset + bytes;
        }
        let fields = FieldSpace::new(fields, end + gap(rng)).expect("fields beside each other");
        let at = |field| slots.iter().position(|slot| *slot == Some(field)).expect("each is there");
        Stored { fields, chosen: (0..self.field_bytes.len()).map(at).collect(), strides: None }
    }
}

/// Strides that keep entries of `item_bytes` apart, the first of `order` the fastest.
fn strides(rng: &mut Rng, order: &[usize], extents: &[u64], item_bytes: u64) -> Vec<i64> {
    let mut strides = vec![0; extents.len()];
    let mut step = item_bytes;
    for &dim in order {
        step += gap(rng);
        strides[dim] = if rng.chance(30) { -small(step) } else { small(step) };
        step *= extents[dim].max(1);
    }
    strides
}

/// `count` indices from `lo` to below `hi`, in any order; a destination's are all different.
fn list(rng: &mut Rng, (lo, hi): (i64, i64), count: u64, used: Use) -> Vec<i64> {
    let mut indices: Vec<i64> = (lo..hi).collect();
    if used == Use::Source && !indices.is_empty() {
        return (0..count).map(|_| rng.pick(&indices)).collect();
    }
    rng.shuffle(&mut indices);
    indices.truncate(usize::try_from(count).expect("small"));
    indices
}

/// The padding between two things.
fn gap(rng: &mut Rng) -> u64 {
    rng.pick(&[0, 0, 0, 1, 3, 8])
}

fn small(number: u64) -> i64 {
    i64::try_from(number).expect("small")
}
