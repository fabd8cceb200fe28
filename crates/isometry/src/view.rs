//! What a copy needs to know of one side: everything but the address.

use crate::{ArgumentError, Array, Error, Mismatch};
use foldhash::fast::FixedState;
use layout::Placement;
use model::{
    Component, Dim, FieldSpace, IndexSpace, Layout, MemoryId, ModelError, Selection, Span,
};
use std::collections::HashSet;
use std::hash::BuildHasher;

/// How entries are arranged relative to the base.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Arrangement {
    /// By a layout vector.
    Layout(Layout),
    /// By bytes from one index to the next, in the order of the dimensions.
    Strides(Vec<i64>),
}

/// A box of an instance in a memory. Views that are alike share plans and programs, whatever
/// their addresses.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) memory: MemoryId,
    pub(crate) space: IndexSpace,
    pub(crate) fields: FieldSpace,
    pub(crate) arrangement: Arrangement,
    pub(crate) selection: Selection,
    /// Of everything above.
    pub(crate) hash: u64,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.parts() == other.parts()
    }
}

impl View {
    /// All of an array in `memory`.
    pub(crate) fn of_array(memory: MemoryId, array: Array) -> Self {
        let selection = Selection::all(&array.space);
        let arrangement = Arrangement::Layout(array.layout);
        Self::new(memory, array.space, array.fields, (arrangement, selection))
    }

    /// All of a wrapped array in `memory`.
    pub(crate) fn of_strides(
        memory: MemoryId,
        (space, fields): (IndexSpace, FieldSpace),
        strides: Vec<i64>,
    ) -> Self {
        let selection = Selection::all(&space);
        Self::new(memory, space, fields, (Arrangement::Strides(strides), selection))
    }

    fn new(
        memory: MemoryId,
        space: IndexSpace,
        fields: FieldSpace,
        (arrangement, selection): (Arrangement, Selection),
    ) -> Self {
        let mut view = View { memory, space, fields, arrangement, selection, hash: 0 };
        view.hash = FixedState::with_seed(0).hash_one(view.parts());
        view
    }

    fn parts(&self) -> (MemoryId, &IndexSpace, &FieldSpace, &Arrangement, &Selection) {
        (self.memory, &self.space, &self.fields, &self.arrangement, &self.selection)
    }

    /// The same instance with another box.
    pub(crate) fn selecting(self, selection: Selection) -> Self {
        Self::new(self.memory, self.space, self.fields, (self.arrangement, selection))
    }

    /// The same box but for dimension `name`, which becomes `span` of what was selected: absolute
    /// indices, which must lie in the selection where that is a range.
    pub(crate) fn with_span(&self, name: &str, span: Span) -> Result<Self, Error> {
        let dim = self.space.position(name);
        let dim = dim.ok_or_else(|| ArgumentError::NoDim { name: name.to_owned() })?;
        let mut spans = self.selection.spans().to_vec();
        if !inside(&spans[dim], &span) {
            let (asked, bounds) = (span.hull(), spans[dim].hull());
            return Err(ModelError::Bounds { name: name.to_owned(), asked, bounds }.into());
        }
        spans[dim] = span;
        let selection = Selection::new(&self.space, spans)?;
        let arrangement = self.arrangement.clone();
        let (space, fields) = (self.space.clone(), self.fields.clone());
        Ok(Self::new(self.memory, space, fields, (arrangement, selection)))
    }

    /// Where each entry of the whole instance lies.
    pub(crate) fn placement(&self) -> Result<Placement, Error> {
        let placement = match &self.arrangement {
            Arrangement::Layout(layout) => Placement::of_layout(layout, &self.space, &self.fields)?,
            Arrangement::Strides(strides) => {
                Placement::of_strides(&self.space, &self.fields, strides)?
            }
        };
        Ok(placement)
    }

    /// Whether every entry of the instance is selected, in any order, where none is twice: as in
    /// a destination.
    pub(crate) fn is_whole(&self) -> bool {
        self.selection.extents() == self.space.extents()
    }

    /// The payload of the box.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let entries: u64 = self.selection.extents().iter().product();
        entries.saturating_mul(self.fields.payload_bytes())
    }

    /// Bytes from one index of the box to the next, in the order of the dimensions.
    ///
    /// # Errors
    /// [`Mismatch::Strides`] where there are none: blocks, index lists, fields that lie apart or
    /// without their structure's padding.
    pub(crate) fn strides(&self) -> Result<Vec<i64>, Error> {
        let lists = self.selection.spans().iter().any(|s| matches!(s, Span::List(_)));
        match &self.arrangement {
            _ if lists => Err(self.no_strides()),
            Arrangement::Strides(strides) => Ok(strides.clone()),
            Arrangement::Layout(layout) => self.strides_of(layout),
        }
    }

    fn strides_of(&self, layout: &Layout) -> Result<Vec<i64>, Error> {
        let innermost = layout.components().first() == Some(&Component::Fields);
        let entry = self.fields.item_bytes();
        // Elsewhere fields are packed: an entry is not what its structure says.
        let is_entry = self.fields.fields().len() == 1 && entry == self.fields.payload_bytes();
        if !innermost && !is_entry {
            return Err(self.no_strides());
        }
        let mut step = i64::try_from(entry).map_err(|_| ModelError::TooLarge)?;
        let mut strides = vec![0; self.space.rank()];
        for component in layout.components() {
            match component {
                Component::Fields => {}
                Component::Whole(dim) => {
                    let dim = usize::from(*dim);
                    strides[dim] = step;
                    let extent = i64::try_from(self.space.dims()[dim].extent().max(1));
                    step = step.saturating_mul(extent.unwrap_or(i64::MAX));
                }
                _ => return Err(self.no_strides()),
            }
        }
        Ok(strides)
    }

    fn no_strides(&self) -> Error {
        let layout = match &self.arrangement {
            Arrangement::Layout(layout) => layout.display(&self.space).to_string(),
            Arrangement::Strides(_) => "an index list".to_owned(),
        };
        Mismatch::Strides { layout }.into()
    }

    /// The same view with its dimensions in the order of `names`.
    pub(crate) fn in_order_of(&self, names: &[Dim]) -> Result<View, Error> {
        if let Some(extra) =
            self.space.dims().iter().find(|d| names.iter().all(|n| n.name != d.name))
        {
            return Err(Mismatch::Dim { name: extra.name.to_string() }.into());
        }
        let find = |dim: &Dim| {
            let lacks = || Mismatch::Dim { name: dim.name.to_string() };
            self.space.position(&dim.name).ok_or_else(lacks)
        };
        let order = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        if order.iter().copied().eq(0..order.len()) {
            return Ok(self.clone());
        }
        let space = IndexSpace::new(order.iter().map(|&d| self.space.dims()[d].clone()).collect())?;
        let spans = order.iter().map(|&d| self.selection.spans()[d].clone()).collect();
        let selection = Selection::new(&space, spans)?;
        let arrangement = match &self.arrangement {
            Arrangement::Layout(layout) => Arrangement::Layout(renumbered(layout, &order)?),
            Arrangement::Strides(s) => Arrangement::Strides(order.iter().map(|&d| s[d]).collect()),
        };
        Ok(Self::new(self.memory, space, self.fields.clone(), (arrangement, selection)))
    }
}

/// The layout with dimension `order[i]` called `i`.
fn renumbered(layout: &Layout, order: &[usize]) -> Result<Layout, Error> {
    let new = |old: u8| {
        let position = order.iter().position(|&d| d == usize::from(old)).unwrap_or(order.len());
        u8::try_from(position).unwrap_or(u8::MAX)
    };
    let rename = |component: &Component| match *component {
        Component::Fields => Component::Fields,
        Component::Whole(dim) => Component::Whole(new(dim)),
        Component::Inner { dim, level, size } => Component::Inner { dim: new(dim), level, size },
        Component::Outer(dim) => Component::Outer(new(dim)),
    };
    Ok(Layout::new(layout.components().iter().map(rename), order.len())?)
}

/// The indices of a list, for looking up many.
pub(crate) fn members(list: &[i64]) -> HashSet<i64, FixedState> {
    list.iter().copied().collect()
}

fn inside(outer: &Span, inner: &Span) -> bool {
    match (outer, inner) {
        (Span::Range { lo, hi }, Span::Range { lo: from, hi: to }) => {
            lo <= from && from <= to && to <= hi
        }
        (Span::Range { lo, hi }, Span::List(list)) => list.iter().all(|i| (*lo..*hi).contains(i)),
        (Span::List(there), Span::List(list)) => {
            let there = members(there);
            list.iter().all(|i| there.contains(i))
        }
        (Span::List(_), Span::Range { .. }) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_inside_a_list_is_told_in_no_time() {
        let all: Vec<i64> = (0..400_000).map(|i| i * 3).collect();
        let some: Vec<i64> = all.iter().rev().copied().collect();
        let (all, some) = (Span::List(all.into()), Span::List(some.into()));
        assert!(inside(&all, &some) && inside(&some, &all));
        assert!(!inside(&all, &Span::List([3, 4].into())));
    }
}
