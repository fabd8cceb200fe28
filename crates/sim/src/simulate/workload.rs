//! Workloads: copies, when they start, and what they wait for.

use crate::simulate::error::WorkloadError;
use layout::{LayoutError, Part, Placement};
use model::{Dim, FieldSpace, IndexSpace, Layout, MemoryId, Priority, Selection, Span, Time};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The most transfers of one case.
pub const MAX_TRANSFERS: u64 = 1 << 22;

/// Alike copies of instances or boxes of them, that start together.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySpec {
    /// What reports and other copies' `after` call it; unique in its case.
    pub name: String,
    /// The memory of the sources.
    pub from: MemoryId,
    /// The memory of the destinations.
    pub to: MemoryId,
    /// What each copies: a box, in absolute indices.
    pub space: IndexSpace,
    /// The index space of the instance at the source and of that at the destination, of which
    /// `space` is a box: equal to it for whole instances.
    pub instances: [IndexSpace; 2],
    /// The fields of each instance, packed.
    pub fields: FieldSpace,
    /// The layout of the sources and that of the destinations.
    pub layouts: [Layout; 2],
    /// How many instances.
    pub count: u32,
    /// How urgent they are.
    pub priority: Priority,
    /// When they start, at the earliest.
    pub at: Time,
    /// Copies listed earlier, by position, that must all have ended before these start.
    pub after: Vec<usize>,
    /// How long after the end of the last of them: what is computed in between takes that long.
    pub compute: Duration,
}

impl CopySpec {
    /// Payload of one copy. A workload's add up to less than 2^63.
    #[must_use]
    pub fn instance_bytes(&self) -> u64 {
        self.space.entries().saturating_mul(self.fields.item_bytes())
    }

    /// Payload of all copies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.instance_bytes().saturating_mul(self.count.into())
    }

    /// What the box with this layout takes of its memory, padding of blocks included.
    pub(crate) fn footprint(&self, layout: &Layout) -> Result<u64, LayoutError> {
        let span = Placement::of_layout(layout, &self.space, &self.fields)?.span();
        Ok(span.end.abs_diff(span.start))
    }

    /// How the box lies at the source (0) or the destination (1).
    pub(crate) fn end(&self, end: usize) -> Form<'_> {
        Form { layout: &self.layouts[end], instance: &self.instances[end] }
    }

    /// How the box lies by itself.
    pub(crate) fn alone<'a>(&'a self, layout: &'a Layout) -> Form<'a> {
        Form { layout, instance: &self.space }
    }

    /// The box as it lies in `form`.
    pub(crate) fn part(&self, form: Form<'_>) -> Result<Part, LayoutError> {
        let fields: Vec<usize> = (0..self.fields.fields().len()).collect();
        let placement = Placement::of_layout(form.layout, form.instance, &self.fields)?;
        let boxed = Selection::new(form.instance, self.spans());
        placement.select(&boxed.expect("a case is checked before it runs"), &fields)
    }

    /// The part `range` of the box along one dimension, counted from its start.
    pub(crate) fn slice(&self, dim: usize, range: &Range<u64>) -> Self {
        let mut dims = self.space.dims().to_vec();
        let lo = dims[dim].lo;
        (dims[dim].lo, dims[dim].hi) =
            (lo.saturating_add_unsigned(range.start), lo.saturating_add_unsigned(range.end));
        let space = IndexSpace::new(dims).expect("less than the box has");
        CopySpec { space, ..self.clone() }
    }

    /// Checks that what is copied is a box of both instances.
    fn check_boxes(&self, key: &str) -> Result<(), WorkloadError> {
        let names = |space: &IndexSpace| -> Vec<Arc<str>> {
            space.dims().iter().map(|dim| Arc::clone(&dim.name)).collect()
        };
        for (end, instance) in ["from", "to"].into_iter().zip(&self.instances) {
            let wrong = |why: String| WorkloadError::value(format!("{key}.dims.{end}"), why);
            Selection::new(instance, self.spans()).map_err(|e| wrong(e.to_string()))?;
            if names(instance) != names(&self.space) {
                return Err(wrong("expected the box's dimensions, in its order".to_owned()));
            }
        }
        Ok(())
    }

    fn spans(&self) -> Vec<Span> {
        let span = |dim: &Dim| Span::Range { lo: dim.lo, hi: dim.hi };
        self.space.dims().iter().map(span).collect()
    }
}

/// How a box lies in a memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form<'a> {
    pub(crate) layout: &'a Layout,
    /// What the layout arranges: the box, or more.
    pub(crate) instance: &'a IndexSpace,
}

/// Copies that run together, from an idle cluster on.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What reports call it.
    pub name: String,
    /// The copies.
    pub copies: Vec<CopySpec>,
}

/// Cases that run one after the other, each by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What reports call it.
    pub name: String,
    /// The cases.
    pub cases: Vec<Case>,
}

impl Case {
    /// When the last copy would end if none took any time: what is computed, and waited for, between
    /// them. A case that [`crate::simulate`] would refuse has no meaningful answer.
    #[must_use]
    pub fn computing(&self) -> Duration {
        let mut ends: Vec<Time> = Vec::with_capacity(self.copies.len());
        for copy in &self.copies {
            let before = copy.after.iter().filter_map(|&at| ends.get(at)).max();
            let computed = before.copied().unwrap_or_default() + copy.compute;
            ends.push(computed.max(copy.at));
        }
        ends.into_iter().max().unwrap_or_default().since(Time(0))
    }

    /// Checks what no copy can say of itself: the number of transfers, and of bytes; that each waits
    /// for earlier ones only, has instances, and is a box of these.
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        for (at, copy) in self.copies.iter().enumerate() {
            if copy.after.iter().any(|&before| before >= at) {
                let key = format!("copy[{at}].after");
                return Err(WorkloadError::value(key, "copies listed earlier, and no others"));
            }
            if copy.count == 0 {
                let key = format!("copy[{at}].count");
                return Err(WorkloadError::value(key, "at least one instance"));
            }
            copy.check_boxes(&format!("copy[{at}]"))?;
        }
        let transfers: u64 = self.copies.iter().map(|copy| u64::from(copy.count)).sum();
        if transfers > MAX_TRANSFERS {
            let why = format!("{transfers} transfers, and {MAX_TRANSFERS} at most");
            return Err(WorkloadError::value("copy", why));
        }
        let bytes = self.copies.iter().try_fold(0u64, |sum, copy| sum.checked_add(copy.bytes()));
        match bytes {
            Some(bytes) if bytes < 1 << 63 => Ok(()),
            _ => Err(WorkloadError::value("copy", "more bytes than 63 bits can number")),
        }
    }
}
