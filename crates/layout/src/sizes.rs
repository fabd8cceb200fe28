//! Sizes of components, and `PREFIX`, `SUFFIX` and `TOTAL` in bytes (paper, section 4.2).

use model::{Component, FieldSpace, IndexSpace, Layout};

/// What the sizes of a layout's components depend on: the extents and the field sizes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// The extents of the copied box.
    pub extents: Vec<u64>,
    /// The sizes of the copied fields.
    pub field_bytes: Vec<u64>,
}

impl Sizes {
    /// The sizes of a whole instance.
    #[must_use]
    pub fn of(space: &IndexSpace, fields: &FieldSpace) -> Self {
        let field_bytes = fields.fields().iter().map(|f| f.bytes).collect();
        Sizes { extents: space.extents(), field_bytes }
    }

    /// `|component|`: for `F` the bytes of all fields, for `x_out` the blocks that hold the
    /// extent, the last perhaps in part. Sizes past 64 bits are held at the maximum.
    #[must_use]
    pub fn of_component(&self, layout: &Layout, component: Component) -> u64 {
        match component {
            Component::Fields => self.field_bytes.iter().fold(0, |a, &b| a.saturating_add(b)),
            Component::Whole(dim) => self.extents[usize::from(dim)],
            Component::Inner { size, .. } => size,
            Component::Outer(dim) => {
                let dim = usize::from(dim);
                let block = layout.blocks(dim).fold(1u64, u64::saturating_mul);
                self.extents[dim].div_ceil(block)
            }
        }
    }

    fn product(&self, layout: &Layout, components: &[Component]) -> u64 {
        let sizes = components.iter().map(|&c| self.of_component(layout, c));
        sizes.fold(1, u64::saturating_mul)
    }
}

/// `TOTAL`: the bytes of the instance, with the padding of blocks that don't divide an extent.
#[must_use]
pub fn total_bytes(layout: &Layout, sizes: &Sizes) -> u64 {
    sizes.product(layout, layout.components())
}

/// `PREFIX`: the bytes that both layouts hold in one order. A prefix that ends before `F` counts
/// the smallest field's size; that of equal layouts is `TOTAL`.
#[must_use]
pub fn prefix_bytes(a: &Layout, b: &Layout, sizes: &Sizes) -> u64 {
    let pairs = a.components().iter().zip(b.components());
    let prefix = &a.components()[..pairs.take_while(|(x, y)| x == y).count()];
    let field = if prefix.contains(&Component::Fields) {
        1
    } else {
        sizes.field_bytes.iter().copied().min().unwrap_or(1)
    };
    sizes.product(a, prefix).saturating_mul(field)
}

/// `SUFFIX`: the product of the sizes of the slowest components that both layouts have in one
/// order; `TOTAL` for equal layouts.
#[must_use]
pub fn suffix_bytes(a: &Layout, b: &Layout, sizes: &Sizes) -> u64 {
    sizes.product(a, &a.components()[a.components().len() - common_suffix(a, b)..])
}

/// The complement of `SUFFIX`: the bytes that are shuffled at once. A complement without `F`
/// counts the largest field's size; that of equal layouts is 1.
#[must_use]
pub fn shuffle_bytes(a: &Layout, b: &Layout, sizes: &Sizes) -> u64 {
    if a == b {
        return 1;
    }
    let complement = &a.components()[..a.components().len() - common_suffix(a, b)];
    let field = if complement.contains(&Component::Fields) {
        1
    } else {
        sizes.field_bytes.iter().copied().max().unwrap_or(1)
    };
    sizes.product(a, complement).saturating_mul(field)
}

/// How many of the slowest components both layouts have in one order.
#[must_use]
pub fn common_suffix(a: &Layout, b: &Layout) -> usize {
    let pairs = a.components().iter().rev().zip(b.components().iter().rev());
    pairs.take_while(|(x, y)| x == y).count()
}
