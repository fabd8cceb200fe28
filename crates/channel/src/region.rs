//! Spans of bytes, their views, and the table that finds them by id.

use super::sync::{Mutex, MutexGuard};
use model::{MemoryId, RegionId};
use rustix::mm::{Advice, madvise};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

/// What one entry of a page table's upper level maps.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Bytes that a CPU core reads and writes directly.
///
/// The span says where they are, not that they may be touched: two requests in flight whose boxes
/// overlap race, as two threads calling `memcpy` would.
#[derive(Debug, Clone, Copy)]
pub struct HostSpan {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: a span is an address and a length. Whoever reads or writes through it does so in an
// unsafe block of its own, and answers for races there; `Region` keeps the memory alive.
unsafe impl Send for HostSpan {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostSpan {}

impl HostSpan {
    /// The `len_bytes` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are valid for reads, and for writes if the region is ever a destination, for as
    /// long as the owner handed to [`Region::host`] lives.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> Self {
        HostSpan { start, len_bytes }
    }

    /// The first byte.
    #[must_use]
    pub fn start(self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes.
    #[must_use]
    pub fn len_bytes(self) -> usize {
        self.len_bytes
    }

    /// Asks for huge pages where whole ones lie among the bytes and nobody has touched them yet. A kernel
    /// without huge pages refuses; the memory is as good without.
    pub fn ask_for_huge_pages(self) {
        let page_bytes = HUGE_PAGE_BYTES as usize;
        let skip_bytes = self.start.as_ptr().align_offset(page_bytes);
        let left_bytes = self.len_bytes.saturating_sub(skip_bytes);
        let start = self.start.as_ptr().wrapping_add(skip_bytes);
        // SAFETY: the advice changes nothing of what the memory holds.
        let _ = unsafe {
            madvise(start.cast(), left_bytes / page_bytes * page_bytes, Advice::LinuxHugepage)
        };
    }

    /// Whether all bytes of `part` are among these.
    #[must_use]
    pub fn contains(self, part: HostSpan) -> bool {
        let [whole, part] = [self, part].map(|span| (span.start.as_ptr().addr(), span.len_bytes));
        let ahead = part.0.checked_sub(whole.0);
        let end = ahead.and_then(|ahead| ahead.checked_add(part.1));
        end.is_some_and(|end| end <= whole.1)
    }
}

/// Bytes of a device's memory, where that has one address for the device and for networks that know it. As
/// of a [`HostSpan`], it says where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpan {
    start: u64,
    len_bytes: u64,
}

impl DeviceSpan {
    /// The `len_bytes` bytes from address `start` on.
    ///
    /// # Safety
    /// They are memory of a device of CUDA's that this process has allocated, and valid for as long as the
    /// owner of their region lives.
    #[must_use]
    pub unsafe fn new(start: u64, len_bytes: u64) -> Self {
        DeviceSpan { start, len_bytes }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// The number of bytes.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        self.len_bytes
    }
}

/// A span of bytes of one memory, with its views. It owns what keeps them valid.
pub struct Region {
    memory: MemoryId,
    len_bytes: u64,
    host: Option<HostSpan>,
    addressed: Option<DeviceSpan>,
    device: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// A region of host memory, kept valid by `owner`.
    #[must_use]
    pub fn host(memory: MemoryId, span: HostSpan, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let len_bytes = span.len_bytes as u64;
        Region { memory, len_bytes, host: Some(span), addressed: None, device: owner }
    }

    /// A region that only its own backend reaches, through `device`.
    #[must_use]
    pub fn device(memory: MemoryId, len_bytes: u64, device: Arc<dyn Any + Send + Sync>) -> Self {
        Region { memory, len_bytes, host: None, addressed: None, device }
    }

    /// The region, which a network finds at `span` too, if there is one: bytes that its owner keeps valid.
    #[must_use]
    pub fn addressed(self, span: Option<DeviceSpan>) -> Self {
        Region { addressed: span, ..self }
    }

    /// The memory that holds it.
    #[must_use]
    pub fn memory(&self) -> MemoryId {
        self.memory
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Its bytes, where a CPU core reaches them.
    #[must_use]
    pub fn host_span(&self) -> Option<HostSpan> {
        self.host
    }

    /// Its bytes, where a network that knows the device finds them.
    #[must_use]
    pub fn device_span(&self) -> Option<DeviceSpan> {
        self.addressed
    }

    /// The backend's own view, or the owner of host memory, if it is a `T`.
    #[must_use]
    pub fn view<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.device.downcast_ref()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("memory", &self.memory)
            .field("len_bytes", &self.len_bytes)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// The regions of one runtime, by id. A revoked id finds nothing; its memory lives on until the
/// last job that holds it has completed.
#[derive(Debug, Default)]
pub struct Regions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    region: Option<Arc<Region>>,
}

impl Regions {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `region` and names it.
    pub fn insert(&self, region: Region) -> RegionId {
        let mut table = self.lock();
        let index = table.free.pop().unwrap_or_else(|| {
            table.slots.push(Slot::default());
            u32::try_from(table.slots.len() - 1).expect("fewer than 2^32 regions")
        });
        let slot = &mut table.slots[index as usize];
        slot.region = Some(Arc::new(region));
        RegionId { index, generation: slot.generation }
    }

    /// The region called `id`, unless it was revoked.
    #[must_use]
    pub fn get(&self, id: RegionId) -> Option<Arc<Region>> {
        let table = self.lock();
        let slot = table.slots.get(id.index as usize)?;
        slot.region.clone().filter(|_| slot.generation == id.generation)
    }

    /// Forgets `id`: later requests that name it fail. Returns the region, if it was there.
    pub fn revoke(&self, id: RegionId) -> Option<Arc<Region>> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let region = slot.region.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        table.free.push(id.index);
        Some(region)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held left no slot half-written.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    #[test]
    fn a_span_contains_its_parts_and_nothing_beside_them() {
        let span = |at: usize, len_bytes| {
            let start = NonNull::new(without_provenance_mut::<u8>(at)).unwrap();
            // SAFETY: nobody reads or writes there.
            unsafe { HostSpan::new(start, len_bytes) }
        };
        let whole = span(5, 8);
        for (part, is_inside) in [
            (whole, true),
            (span(6, 7), true),
            (span(13, 0), true),
            (span(5, 9), false),
            (span(4, 4), false),
            (span(14, 0), false),
            (span(6, usize::MAX), false),
        ] {
            assert_eq!(whole.contains(part), is_inside, "{part:?} in {whole:?}");
        }
    }
}
