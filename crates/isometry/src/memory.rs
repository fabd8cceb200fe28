//! Memory that others own, as regions: the only place of this crate where addresses are touched.
//!
//! **Hazard.** A wrapped array may be freed, moved or read while a copy runs. **Guarantee.** The
//! owner that is handed in lives as long as the region, and the region as long as any copy that
//! uses it. That no one else writes what a copy reads, or touches what it writes, is up to the
//! user, as with two threads that call `memcpy`; the calls that look inside from safe code hold the
//! instance's lock against each other. **Structure.** [`Foreign`] is the memory with its
//! owner; [`bytes_of`] and [`write_to`] are the two ways to look inside from safe code.

use crate::interop::allocated;
use crate::runtime::Shared;
use crate::{ArgumentError, Error, Event};
use channel::accelerator::{Interop, StreamHandle};
use channel::{HostSpan, Region};
use fabric::Fabric;
use model::MemoryId;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// An array in memory that somebody else allocated.
///
/// It is wrapped once: the lock of its instance knows nothing of another.
///
/// ```compile_fail,E0599
/// let foreign = isometry::Foreign::of_vec(vec![0; 4], vec![1]);
/// let twice = foreign.clone();
/// ```
pub struct Foreign {
    base: Base,
    pub(crate) strides: Vec<i64>,
    pub(crate) writable: bool,
    /// What is to be over before it is touched.
    after: Vec<Event>,
    owner: Arc<dyn Any + Send + Sync>,
    /// The bytes around `base` that are known to be there, where its constructor checks that.
    within: Option<Range<i64>>,
    /// The device that it is said to lie on, as CUDA numbers them.
    ordinal: Option<i32>,
}

/// An array that was found in a machine.
pub(crate) struct Placed {
    pub(crate) region: Region,
    /// Where in the region the entry with the lowest indices is.
    pub(crate) base: u64,
    /// What is to be over before it is touched.
    pub(crate) after: Vec<Event>,
}

/// Where the entry with the lowest indices is.
#[derive(Debug, Clone, Copy)]
enum Base {
    Host(NonNull<u8>),
    /// An address of a device's memory, and the stream on which what is there is made.
    Device(u64, Option<StreamHandle>),
}

// SAFETY: an address and its owner, which is `Send + Sync` itself; nothing is read through it
// but by copies, for which `Foreign::new` has the caller answer.
unsafe impl Send for Foreign {}
// SAFETY: as for `Send`.
unsafe impl Sync for Foreign {}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Foreign")
            .field("base", &self.base)
            .field("strides", &self.strides)
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}

impl Foreign {
    /// The array whose entry with the lowest indices is at `base`, with `strides` bytes from one
    /// index to the next, in the order of the dimensions that it is wrapped with.
    ///
    /// # Safety
    /// Every byte of every entry that those dimensions and strides reach is valid for reads, and
    /// for writes if `writable`, for as long as `owner` lives; and no one touches what a copy
    /// writes, or writes what it reads, while it runs.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        strides: Vec<i64>,
        writable: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Foreign {
            base: Base::Host(base),
            strides,
            writable,
            after: Vec::new(),
            owner,
            within: None,
            ordinal: None,
        }
    }

    /// As [`Foreign::new`], of memory of a device that has `base` for an address. [`crate::Machine::wrap`] looks
    /// which device that is, and that its allocations have all bytes. Every copy waits until what `stream` was
    /// asked before that is over.
    ///
    /// # Safety
    /// As for [`Foreign::new`]; what other streams were asked to do with the bytes is over, or in front of
    /// what [`Foreign::after`] is given.
    #[must_use]
    pub unsafe fn on_device(
        base: u64,
        stream: Option<StreamHandle>,
        strides: Vec<i64>,
        writable: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let base = Base::Device(base, stream);
        let (after, within, ordinal) = (Vec::new(), None, None);
        Foreign { base, strides, writable, after, owner, within, ordinal }
    }

    /// The device that it lies on, as CUDA numbers them, which counts where it has no bytes: these have no
    /// address then that would tell. Default: the machine's first.
    #[must_use]
    pub fn on_ordinal(self, ordinal: i32) -> Self {
        Foreign { ordinal: Some(ordinal), ..self }
    }

    /// Has every copy wait until `event` has ended well too, and fail where it does not.
    #[must_use]
    pub fn after(mut self, event: Event) -> Self {
        self.after.push(event);
        self
    }

    /// Bytes that are read only, with `strides` from the first of them.
    #[must_use]
    pub fn of_bytes(bytes: Arc<[u8]>, strides: Vec<i64>) -> Self {
        let base = NonNull::from(&bytes[..]).cast();
        Self::checked((base, bytes.len()), strides, false, Arc::new(bytes))
    }

    /// Bytes of the program that are read only, with `strides` from the first of them.
    #[must_use]
    pub fn of_static(bytes: &'static [u8], strides: Vec<i64>) -> Self {
        Self::checked((NonNull::from(bytes).cast(), bytes.len()), strides, false, Arc::new(()))
    }

    /// A vector that is given away; [`crate::Instance::to_vec`] reads it.
    #[must_use]
    pub fn of_vec(bytes: Vec<u8>, strides: Vec<i64>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        let base = NonNull::new(start).unwrap_or(NonNull::dangling());
        let given = Given { base, len, capacity: bytes.capacity() };
        Self::checked((base, len), strides, true, Arc::new(given))
    }

    fn checked(
        (base, len): (NonNull<u8>, usize),
        strides: Vec<i64>,
        writable: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let within = Some(0..i64::try_from(len).unwrap_or(i64::MAX));
        let (base, after, ordinal) = (Base::Host(base), Vec::new(), None);
        Foreign { base, strides, writable, after, owner, within, ordinal }
    }

    /// Where in a machine it is, whose bytes are `span` around the base.
    ///
    /// # Errors
    /// As [`crate::Machine::wrap`].
    pub(crate) fn placed(&self, shared: &Arc<Shared>, span: &Range<i64>) -> Result<Placed, Error> {
        let after = self.after.clone();
        match self.base {
            Base::Host(base) => {
                let memory = shared.memory_named("sys")?;
                let region = self.on_host(memory, base, span).ok_or(ArgumentError::Outside)?;
                Ok(Placed { region, base: span.start.unsigned_abs(), after })
            }
            Base::Device(base, _) if span.is_empty() => {
                let (memory, interop) = shared.device_numbered(self.ordinal)?;
                let (region, base) = self.adopted((memory, interop), base, span)?;
                Ok(Placed { region, base, after })
            }
            Base::Device(base, stream) => {
                let (memory, interop) = shared.device_at(base)?;
                let (region, base) = self.adopted((memory, interop), base, span)?;
                let fence = stream.map(|stream| shared.fence_of(interop, stream)).transpose()?;
                Ok(Placed { region, base, after: after.into_iter().chain(fence).collect() })
            }
        }
    }

    /// The region of a device's memory that has the bytes `span` around `base`, and where that is in it.
    fn adopted(
        &self,
        (memory, interop): (MemoryId, &dyn Interop),
        base: u64,
        span: &Range<i64>,
    ) -> Result<(Region, u64), Error> {
        let ends = [span.start, span.end].map(|by| base.checked_add_signed(by));
        let [Some(start), Some(end)] = ends else { return Err(ArgumentError::Outside.into()) };
        let bytes = allocated(interop, &(start..end))?;
        let (from, len_bytes) = (bytes.start, bytes.end - bytes.start);
        // SAFETY: allocations of the device have the bytes, and its constructor's caller said that `owner`
        // keeps them.
        let view = unsafe { interop.adopt(bytes, Arc::clone(&self.owner)) };
        let there = interop.span(&view);
        Ok((Region::device(memory, len_bytes, view).addressed(there), base - from))
    }

    /// The region of the bytes `span` around `base`; `None` where the owner doesn't have them.
    fn on_host(&self, memory: MemoryId, base: NonNull<u8>, span: &Range<i64>) -> Option<Region> {
        if self.within.as_ref().is_some_and(|w| span.start < w.start || span.end > w.end) {
            return None;
        }
        let start = base.as_ptr().wrapping_offset(isize::try_from(span.start).ok()?);
        let len = usize::try_from(span.end - span.start).ok()?;
        // SAFETY: the bytes are there and stay there with `owner`: its constructor's caller said
        // so, or they lie within the slice that it came from.
        let span = unsafe { HostSpan::new(NonNull::new(start)?, len) };
        Some(Region::host(memory, span, Arc::clone(&self.owner)))
    }
}

/// A vector taken apart, so that nothing but the pointer that was taken from it reaches its bytes.
struct Given {
    base: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: an allocation that is this value's alone, and that it never looks into.
unsafe impl Send for Given {}
// SAFETY: as for `Send`.
unsafe impl Sync for Given {}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: `Foreign::of_vec` took these from a vector that it did not drop, and the region
        // that used the bytes has gone, or it would hold this value.
        drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), self.len, self.capacity) });
    }
}

/// This node's segment of `fabric`, which stays joined as long as the region lives.
pub(crate) fn segment(memory: MemoryId, fabric: &Arc<Fabric>) -> Region {
    let segment = fabric.segment();
    let len = usize::try_from(segment.bytes()).unwrap_or(0);
    // SAFETY: the segment is mapped for reading and writing as long as the fabric lives.
    let span = unsafe { HostSpan::new(segment.start(), len) };
    let owner: Arc<Fabric> = Arc::clone(fabric);
    Region::host(memory, span, owner)
}

/// A copy of the bytes `range` of host memory; `None` where they are not there.
pub(crate) fn bytes_of(region: &Region, range: Range<u64>) -> Option<Vec<u8>> {
    let (from, len) = part_of(region, range)?;
    let mut bytes = vec![0; len];
    // SAFETY: `part_of` found the bytes inside the region, which lives during this call; the
    // vector is new.
    unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    Some(bytes)
}

/// Writes `bytes` to host memory at `offset`; `None` where there is no room.
pub(crate) fn write_to(region: &Region, offset: u64, bytes: &[u8]) -> Option<()> {
    let end = offset.checked_add(bytes.len() as u64)?;
    let (to, len) = part_of(region, offset..end)?;
    // SAFETY: as in `bytes_of`; a caller who has a slice into the region answers for the overlap,
    // which `copy_from` allows.
    unsafe { to.as_ptr().copy_from(bytes.as_ptr(), len) };
    Some(())
}

fn part_of(region: &Region, range: Range<u64>) -> Option<(NonNull<u8>, usize)> {
    let span = region.host_span()?;
    if range.start > range.end || range.end > region.len_bytes() {
        return None;
    }
    let offset = usize::try_from(range.start).ok()?;
    let start = NonNull::new(span.start().as_ptr().wrapping_add(offset))?;
    Some((start, usize::try_from(range.end - range.start).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::NodeId;

    const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };

    #[test]
    fn a_vector_is_written_and_read() {
        let foreign = Foreign::of_vec(vec![1, 2, 3, 4], vec![1]);
        let Base::Host(base) = foreign.base else { panic!("a vector is on the host") };
        assert!(foreign.on_host(MEMORY, base, &(0..5)).is_none());
        assert!(foreign.on_host(MEMORY, base, &(-1..2)).is_none());
        let region = foreign.on_host(MEMORY, base, &(1..4)).unwrap();
        drop(foreign);
        assert_eq!(bytes_of(&region, 0..3), Some(vec![2, 3, 4]));
        assert_eq!(write_to(&region, 1, &[9, 8]), Some(()));
        assert_eq!(bytes_of(&region, 0..3), Some(vec![2, 9, 8]));
        assert_eq!(write_to(&region, 2, &[9, 8]), None);
        assert_eq!(bytes_of(&region, 2..4), None);
    }

    #[test]
    fn read_only_bytes_stay_with_their_owner() {
        let bytes: Arc<[u8]> = Arc::new([5, 6, 7]);
        let foreign = Foreign::of_bytes(Arc::clone(&bytes), vec![1]);
        let Base::Host(base) = foreign.base else { panic!("bytes are on the host") };
        let region = foreign.on_host(MEMORY, base, &(0..3)).unwrap();
        drop(foreign);
        assert_eq!(Arc::strong_count(&bytes), 2);
        drop(region);
        assert_eq!(Arc::strong_count(&bytes), 1);
        assert!(!Foreign::of_static(b"abc", vec![1]).writable);
    }
}
