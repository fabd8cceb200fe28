//! Random boxes and layouts that fit together in one plan.

use crate::rng::Rng;
use layout::Sizes;
use model::{Component, FieldSpace, Layout};

/// The box that a transfer moves, and the blocks in which its plan writes every layout.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    pub(crate) extents: Vec<u64>,
    /// Block sizes of each dimension, innermost first; none where it stays whole.
    pub(crate) blocks: Vec<Vec<u64>>,
    /// Where the box starts in the outermost block of each dimension.
    pub(crate) phase: Vec<u64>,
    pub(crate) field_bytes: Vec<u64>,
}

impl Geometry {
    /// A box of about `entries` entries.
    pub(crate) fn draw(rng: &mut Rng, entries: u64) -> Self {
        let rank = rng.within(1, 4);
        let mut left = entries;
        let extents: Vec<u64> = (0..rank).map(|_| extent(rng, &mut left)).collect();
        let blocks: Vec<Vec<u64>> = extents.iter().map(|&e| blocks(rng, e)).collect();
        let phase = blocks.iter().map(|b| rng.within(0, b.iter().product::<u64>() - 1)).collect();
        let sizes = [1, 2, 3, 4, 8, 16];
        let field_bytes = (0..rng.within(1, 3)).map(|_| rng.pick(&sizes)).collect();
        Geometry { extents, blocks, phase, field_bytes }
    }

    pub(crate) fn fields(&self) -> FieldSpace {
        FieldSpace::packed(&self.field_bytes).expect("sizes are positive and few")
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { extents: self.extents.clone(), field_bytes: self.field_bytes.clone() }
    }

    pub(crate) fn payload_bytes(&self) -> u64 {
        self.extents.iter().product::<u64>() * self.field_bytes.iter().sum::<u64>()
    }

    /// A layout with every split, in any order.
    pub(crate) fn layout(&self, rng: &mut Rng) -> Layout {
        let joined = vec![false; self.extents.len()];
        self.permute(rng, &joined)
    }

    /// A layout with every split, in any order, but for the parts of a joined dimension, which
    /// stand together.
    pub(crate) fn permute(&self, rng: &mut Rng, joined: &[bool]) -> Layout {
        let mut units = vec![vec![Component::Fields]];
        for (dim, &joined) in joined.iter().enumerate() {
            let parts = self.components(dim);
            if joined {
                units.push(parts)
            } else {
                units.extend(parts.into_iter().map(|c| vec![c]))
            }
        }
        rng.shuffle(&mut units);
        Layout::new(units.concat(), joined.len()).expect("each component once")
    }

    /// The parts of a dimension, the fastest first.
    pub(crate) fn components(&self, dim: usize) -> Vec<Component> {
        let d = u8::try_from(dim).expect("few dimensions");
        if self.blocks[dim].is_empty() {
            return vec![Component::Whole(d)];
        }
        let inner = |(level, &size): (u8, &u64)| Component::Inner { dim: d, level, size };
        (1u8..).zip(&self.blocks[dim]).map(inner).chain([Component::Outer(d)]).collect()
    }

    /// `notation` without the splits of joined dimensions: the layout that gives the addresses.
    pub(crate) fn join(&self, notation: &Layout, joined: &[bool]) -> Layout {
        let keep = |c: &Component| match (c.dim(), *c) {
            (Some(d), Component::Inner { dim, level: 1, .. }) if joined[d] => {
                Some(Component::Whole(dim))
            }
            (Some(d), Component::Inner { .. } | Component::Outer(_)) if joined[d] => None,
            (_, component) => Some(component),
        };
        let components = notation.components().iter().filter_map(keep);
        Layout::new(components, joined.len()).expect("each component once")
    }
}

fn extent(rng: &mut Rng, left: &mut u64) -> u64 {
    let extent = match rng.within(0, 49) {
        0 => 0,
        1..=4 => 1,
        _ => rng.within(1, (*left).clamp(1, 48)),
    };
    *left /= extent.max(1);
    extent
}

fn blocks(rng: &mut Rng, extent: u64) -> Vec<u64> {
    let levels = rng.pick(&[0, 0, 0, 1, 1, 2]);
    (0..levels).map(|_| rng.within(1, (extent / 2).clamp(1, 8))).collect()
}
