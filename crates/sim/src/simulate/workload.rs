//! Workloads: copies, when they start, and what they wait for.

use crate::simulate::error::WorkloadError;
use layout::Placement;
use model::{FieldSpace, IndexSpace, Layout, MemoryId, Priority, Time};
use std::time::Duration;

/// The most transfers of one case.
pub const MAX_TRANSFERS: u64 = 1 << 22;

/// Alike copies of whole instances, that start together.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySpec {
    /// What reports and other copies' `after` call it; unique in its case.
    pub name: String,
    /// The memory of the sources.
    pub from: MemoryId,
    /// The memory of the destinations.
    pub to: MemoryId,
    /// The index space of each instance.
    pub space: IndexSpace,
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
    /// Payload of one instance. A workload's add up to less than 2^63.
    #[must_use]
    pub fn instance_bytes(&self) -> u64 {
        self.space.entries().saturating_mul(self.fields.item_bytes())
    }

    /// Payload of all instances.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.instance_bytes().saturating_mul(self.count.into())
    }

    /// What an instance with this layout takes of its memory, padding of blocks included.
    pub(crate) fn footprint(&self, layout: &Layout) -> Result<u64, layout::LayoutError> {
        let span = Placement::of_layout(layout, &self.space, &self.fields)?.span();
        Ok(span.end.abs_diff(span.start))
    }
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
    /// Checks what no copy can say of itself: the number of transfers, and of bytes; and that each
    /// waits for earlier ones only.
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        for (at, copy) in self.copies.iter().enumerate() {
            if copy.after.iter().any(|&before| before >= at) {
                let key = format!("copy[{at}].after");
                return Err(WorkloadError::value(key, "copies listed earlier, and no others"));
            }
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
