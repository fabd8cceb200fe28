//! Instances: arrays in a memory, and boxes of them.

use crate::memory;
use crate::runtime::Shared;
use crate::view::View;
use crate::{ArgumentError, Error, Event};
use channel::{DeviceSpan, HostSpan, Region};
use model::{FieldSpace, IndexSpace, Layout, MemoryId, NodeId, Place, RegionId, Span};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// Who keeps a region as long as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// This machine's table.
    Table,
    /// The node that has published it.
    Publisher,
    /// The node that lends it until it is given back.
    Lender(NodeId),
}

/// A region in a machine's table, for as long as anything uses it.
pub(crate) struct Holding {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: RegionId,
    pub(crate) region: Arc<Region>,
    pub(crate) writable: bool,
    /// Whether the region is a file that its machine makes.
    pub(crate) is_created: bool,
    keeper: Keeper,
    /// What is to be over before it is touched.
    pub(crate) after: Vec<Event>,
    /// Held by those who look inside from the program's threads.
    inside: RwLock<()>,
}

impl Holding {
    /// Adds `region` to a machine's table.
    pub(crate) fn new(shared: &Arc<Shared>, region: Region, writable: bool) -> Self {
        let id = shared.regions.insert(region);
        let region = shared.regions.get(id).expect("just inserted");
        let (shared, inside, keeper) = (Arc::clone(shared), RwLock::new(()), Keeper::Table);
        let after = Vec::new();
        Holding { shared, id, region, writable, is_created: false, keeper, after, inside }
    }

    /// A region of another node, which that one calls `id`.
    pub(crate) fn of_other(
        shared: &Arc<Shared>,
        (id, region): (RegionId, Region),
        (writable, is_created): (bool, bool),
        keeper: Keeper,
    ) -> Self {
        let (shared, region, inside) = (Arc::clone(shared), Arc::new(region), RwLock::new(()));
        Holding { shared, id, region, writable, is_created, keeper, after: Vec::new(), inside }
    }
}

impl Holding {
    /// Where the region starts, if it is memory of a device that has addresses.
    pub(crate) fn device_address(&self) -> Option<u64> {
        self.region.device_span().map(DeviceSpan::start)
    }
}

impl Drop for Holding {
    /// In the child of a fork nobody may be there to give the table's lock back.
    fn drop(&mut self) {
        if !self.shared.is_of_this_process() {
            return;
        }
        match (self.keeper, &self.shared.nodes) {
            // Requests in flight hold the region itself.
            (Keeper::Table, _) => _ = self.shared.regions.revoke(self.id),
            (Keeper::Lender(node), Some(nodes)) => nodes.give_back(node, self.id),
            _ => {}
        }
    }
}

/// Data in one memory: index space, field space, layout, and which box of it is meant.
///
/// Cheap to clone; clones and boxes share the data. The data lives as long as an instance or a
/// transfer uses it.
#[derive(Clone)]
pub struct Instance {
    pub(crate) holding: Arc<Holding>,
    /// Of the instance's base in the region.
    pub(crate) base: u64,
    pub(crate) view: Arc<View>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("view", &self.view)
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// The entries of the whole instance.
    #[must_use]
    pub fn space(&self) -> &IndexSpace {
        &self.view.space
    }

    /// What is stored for each entry.
    #[must_use]
    pub fn fields(&self) -> &FieldSpace {
        &self.view.fields
    }

    /// The memory that holds it.
    #[must_use]
    pub fn memory(&self) -> MemoryId {
        self.view.memory
    }

    /// The layout vector, or for a wrapped array the nearest one.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self.view.placement() {
            Ok(placement) => placement.layout().clone(),
            Err(_) => Layout::row_major(self.view.space.rank()),
        }
    }

    /// The extents of the box, in the order of the dimensions.
    #[must_use]
    pub fn extents(&self) -> Vec<u64> {
        self.view.selection.extents()
    }

    /// The bytes of all fields at all indices of the box.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.view.payload_bytes()
    }

    /// Whether a copy may write to it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.holding.writable
    }

    /// The box of `ranges`: half-open, in absolute indices; a dimension that is not named stays.
    ///
    /// # Errors
    /// [`ArgumentError::NoDim`]; [`Error::Model`] for indices outside the box.
    pub fn select(&self, ranges: &[(&str, Range<i64>)]) -> Result<Instance, Error> {
        let mut view = View::clone(&self.view);
        for (name, range) in ranges {
            view = view.with_span(name, Span::Range { lo: range.start, hi: range.end })?;
        }
        Ok(self.with_view(view))
    }

    /// The entries at `indices` of dimension `dim`, in that order: the pages of a cache, say. A
    /// source may repeat one.
    ///
    /// # Errors
    /// As [`Instance::select`].
    pub fn take(&self, dim: &str, indices: &[i64]) -> Result<Instance, Error> {
        Ok(self.with_view(self.view.with_span(dim, Span::List(indices.into()))?))
    }

    /// Bytes from one index to the next, in the order of the dimensions, with the fields at their
    /// own offsets in each entry.
    ///
    /// # Errors
    /// [`crate::Mismatch::Strides`] where a dimension is in blocks or an index list, or several
    /// fields lie apart.
    pub fn strides(&self) -> Result<Vec<i64>, Error> {
        self.view.strides()
    }

    /// Where the entry with the box's lowest indices lies.
    ///
    /// # Errors
    /// [`ArgumentError::NotHost`] where no CPU core reaches it, [`crate::Mismatch::Strides`] as
    /// [`Instance::strides`].
    pub fn first_byte(&self) -> Result<*mut u8, Error> {
        let (offset, span) = (self.first_offset()?, self.host_span()?);
        Ok(span.start().as_ptr().wrapping_offset(isize::try_from(offset).unwrap_or(0)))
    }

    /// Where in the region the entry with the box's lowest indices lies.
    pub(crate) fn first_offset(&self) -> Result<i64, Error> {
        let strides = self.view.strides()?;
        let lows = self.view.space.dims().iter().zip(self.view.selection.spans());
        let offset: i64 = lows
            .zip(strides)
            .map(|((dim, span), stride)| match span {
                Span::Range { lo, .. } => (lo - dim.lo) * stride,
                Span::List(_) => 0,
            })
            .sum();
        Ok(offset.wrapping_add_unsigned(self.base))
    }

    /// The bytes of the whole instance in its own linear order, padding included. The region
    /// stays valid while this instance or a clone of it lives.
    ///
    /// # Errors
    /// [`ArgumentError::NotHost`] where no CPU core reaches it.
    pub fn host_span(&self) -> Result<HostSpan, Error> {
        let name = || self.holding.shared.memory_name(self.view.memory);
        let not_host = || ArgumentError::NotHost { name: name() };
        Ok(self.holding.region.host_span().ok_or_else(not_host)?)
    }

    /// A copy of [`Instance::host_span`]. Any number of threads may call this and
    /// [`Instance::fill`] on one array; they wait for each other. While a copy writes to the array,
    /// as with any memory that a device writes, what this returns of its box is unspecified.
    ///
    /// # Errors
    /// As [`Instance::host_span`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        self.host_span()?;
        let _inside = self.holding.inside.read().unwrap_or_else(PoisonError::into_inner);
        let region = &self.holding.region;
        Ok(memory::bytes_of(region, 0..region.len_bytes()).unwrap_or_default())
    }

    /// Writes `bytes` over the start of [`Instance::host_span`]. Threads that call this or
    /// [`Instance::to_vec`] wait for each other; a copy that runs on the array does not, and what it
    /// moves of these bytes, or leaves here, is unspecified.
    ///
    /// # Errors
    /// As [`Instance::host_span`]; [`ArgumentError::ReadOnly`]; [`ArgumentError::Bytes`] where
    /// there are more bytes than the instance has.
    pub fn fill(&self, bytes: &[u8]) -> Result<(), Error> {
        self.host_span()?;
        if !self.holding.writable {
            return Err(ArgumentError::ReadOnly.into());
        }
        let _inside = self.holding.inside.write().unwrap_or_else(PoisonError::into_inner);
        let has = self.holding.region.len_bytes();
        let too_many = ArgumentError::Bytes { given: bytes.len() as u64, has };
        Ok(memory::write_to(&self.holding.region, 0, bytes).ok_or(too_many)?)
    }

    /// Makes a created file appear under its name, whatever was written to it; with `sync` only
    /// after it would survive a power failure.
    ///
    /// # Errors
    /// [`ArgumentError::NothingToCommit`] for anything but a file that this machine creates;
    /// [`ArgumentError::NotPending`] where it was committed or deleted; [`Error::Io`] where the
    /// operating system refuses.
    pub fn commit(&self, sync: bool) -> Result<(), Error> {
        crate::file::commit(&self.holding, sync)
    }

    /// The layout with the entries and fields that it orders.
    #[must_use]
    pub fn array(&self) -> crate::Array {
        let (space, fields) = (self.view.space.clone(), self.view.fields.clone());
        crate::Array { space, fields, layout: self.layout() }
    }

    /// Whether the two could share bytes: both on the host, both in a device's memory that has addresses,
    /// or in one region.
    pub(crate) fn may_share_bytes(&self, other: &Instance) -> bool {
        let (a, b) = (&self.holding, &other.holding);
        let are_near = self.memory().node == other.memory().node;
        (are_near && a.id == b.id)
            || (a.region.host_span().is_some() && b.region.host_span().is_some())
            || (a.device_address().is_some() && b.device_address().is_some())
    }

    /// What it was wrapped behind, but for what has ended well.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = &Event> {
        let is_ahead = |event: &&Event| !matches!(event.outcome(), Some(Ok(())));
        self.holding.after.iter().filter(is_ahead)
    }

    pub(crate) fn new(holding: Arc<Holding>, base: u64, view: View) -> Self {
        Instance { holding, base, view: Arc::new(view) }
    }

    pub(crate) fn place(&self) -> Place {
        Place { region: self.holding.id, offset: self.base }
    }

    fn with_view(&self, view: View) -> Self {
        Instance { holding: Arc::clone(&self.holding), base: self.base, view: Arc::new(view) }
    }
}
