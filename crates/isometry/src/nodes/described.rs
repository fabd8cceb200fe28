//! What one node tells another of an instance that it publishes or lends.

use crate::instance::{Holding, Instance, Keeper};
use crate::runtime::Shared;
use crate::view::{Arrangement, View};
use crate::{Array, Error};
use channel::Region;
use layout::Placement;
use model::{Dim, Field, FieldSpace, IndexSpace, Layout, MemoryId, RegionId, Selection, Span};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An instance: where it is, and everything that a copy needs to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Described {
    memory: u16,
    region: RegionId,
    /// How long the region is.
    bytes: u64,
    base: u64,
    is_writable: bool,
    is_created: bool,
    entries: Entries,
    arranged: Arranged,
    selected: Vec<Selected>,
}

/// What an array has entries for, and what each holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entries {
    /// Name, and bounds.
    dims: Vec<(String, i64, i64)>,
    /// Name, size, offset and type.
    fields: Vec<(String, u64, u64, String)>,
    item_bytes: u64,
}

impl Entries {
    pub(super) fn of(space: &IndexSpace, fields: &FieldSpace) -> Entries {
        let dim = |dim: &Dim| (dim.name.to_string(), dim.lo, dim.hi);
        let field = |f: &Field| (f.name.to_string(), f.bytes, f.offset, f.dtype.to_string());
        Entries {
            dims: space.dims().iter().map(dim).collect(),
            fields: fields.fields().iter().map(field).collect(),
            item_bytes: fields.item_bytes(),
        }
    }

    /// The same as who moves them knows them.
    ///
    /// # Errors
    /// Where no array is like that.
    pub(super) fn spaces(&self) -> Result<(IndexSpace, FieldSpace), Error> {
        let dim = |(name, lo, hi): &(String, i64, i64)| Dim {
            name: name.as_str().into(),
            lo: *lo,
            hi: *hi,
        };
        let field = |(name, bytes, offset, dtype): &(String, u64, u64, String)| Field {
            name: name.as_str().into(),
            bytes: *bytes,
            offset: *offset,
            dtype: dtype.as_str().into(),
        };
        let space = IndexSpace::new(self.dims.iter().map(dim).collect())?;
        let fields = FieldSpace::new(self.fields.iter().map(field).collect(), self.item_bytes)?;
        Ok((space, fields))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Arranged {
    Layout(Layout),
    Strides(Vec<i64>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Selected {
    Range(i64, i64),
    List(Vec<i64>),
}

impl Described {
    /// What to say of `instance`.
    pub(crate) fn of(instance: &Instance) -> Described {
        let (view, holding) = (&instance.view, &instance.holding);
        let place = instance.place();
        let span = |span: &Span| match span {
            Span::Range { lo, hi } => Selected::Range(*lo, *hi),
            Span::List(list) => Selected::List(list.to_vec()),
        };
        Described {
            memory: view.memory.index,
            region: place.region,
            bytes: holding.region.len_bytes(),
            base: place.offset,
            is_writable: holding.writable,
            is_created: holding.is_created,
            entries: Entries::of(&view.space, &view.fields),
            arranged: match &view.arrangement {
                Arrangement::Layout(layout) => Arranged::Layout(layout.clone()),
                Arrangement::Strides(strides) => Arranged::Strides(strides.clone()),
            },
            selected: view.selection.spans().iter().map(span).collect(),
        }
    }

    /// The region that it lies in, as its node calls it.
    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    /// The instance, as `node`, whose it is, describes it; who keeps it there until when is up to
    /// `keeper`.
    ///
    /// # Errors
    /// Where no instance is like that.
    pub(crate) fn instance(
        self,
        shared: &Arc<Shared>,
        (node, keeper): (model::NodeId, Keeper),
    ) -> Result<Instance, Error> {
        let memory = MemoryId { node, index: self.memory };
        let view = self.view(memory)?;
        let holding = Holding::of_other(
            shared,
            (self.region, Region::device(memory, self.bytes, Arc::new(()))),
            (self.is_writable, self.is_created),
            keeper,
        );
        Ok(Instance::new(Arc::new(holding), self.base, view))
    }

    /// What is described, where `there` lies: the node's own.
    ///
    /// # Errors
    /// Where no instance is like that. One that reaches outside of its region is an error of who copies.
    pub(super) fn within(self, there: &Instance) -> Result<Instance, Error> {
        let view = self.view(there.memory())?;
        Ok(Instance::new(Arc::clone(&there.holding), self.base, view))
    }

    fn view(&self, memory: MemoryId) -> Result<View, Error> {
        let (space, fields) = self.entries.spaces()?;
        let view = match &self.arranged {
            Arranged::Layout(layout) => {
                Placement::of_layout(layout, &space, &fields)?;
                View::of_array(memory, Array { space, fields, layout: layout.clone() })
            }
            Arranged::Strides(strides) => {
                Placement::of_strides(&space, &fields, strides)?;
                View::of_strides(memory, (space, fields), strides.clone())
            }
        };
        let span = |selected: &Selected| match selected {
            Selected::Range(lo, hi) => Span::Range { lo: *lo, hi: *hi },
            Selected::List(list) => Span::List(list.as_slice().into()),
        };
        let spans: Vec<_> = self.selected.iter().map(span).collect();
        let selection = Selection::new(&view.space, spans)?;
        Ok(view.selecting(selection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn what_reaches_outside_of_its_region_is_an_error_of_who_reads() {
        let machine = Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
        let array = Array::of(&[("y", 400), ("x", 300)], "<f4").unwrap();
        let there = machine.empty(array, "sys").unwrap();
        let described = Described::of(&there);
        machine.verify(&described.clone().within(&there).unwrap(), &there).unwrap();
        for wrong in [
            Described { base: 1, ..described.clone() },
            Described { base: 1 << 40, ..described.clone() },
            Described { base: u64::MAX, ..described.clone() },
            Described { arranged: Arranged::Strides(vec![-4, 4]), ..described.clone() },
            Described { arranged: Arranged::Strides(vec![1 << 40, 4]), ..described.clone() },
        ] {
            let read = wrong.clone().within(&there).and_then(|it| machine.verify(&it, &there));
            let error = read.err().unwrap_or_else(|| panic!("{wrong:?}"));
            assert!(!matches!(error, Error::Differs { .. }), "{error}");
        }
    }
}
