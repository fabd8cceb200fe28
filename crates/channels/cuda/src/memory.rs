//! Memory of a device (FBM), and memory of the host that it reaches fast (ZCM).

use crate::device::Device;
use crate::driver::{Buffer, Failure, INVALID_VALUE, OUT_OF_MEMORY, Pinned};
use crate::error::no_memory;
use channel::model::{ChannelError, MemoryId};
use channel::{HostSpan, Provider, Region};
use std::sync::Arc;

/// What a channel finds behind a region of a device's memory.
#[derive(Debug)]
pub(crate) struct DeviceSpan {
    pub(crate) buffer: Buffer,
}

/// Makes regions of a device's memory (FBM), each allocated by itself. Nobody sees its address, so
/// that every alignment counts as kept. Blocks until the device has zeroed it.
#[derive(Debug, Clone)]
pub struct FbmProvider {
    memory: MemoryId,
    device: Device,
}

impl FbmProvider {
    /// Regions of `memory`, which `device` has.
    #[must_use]
    pub fn new(memory: MemoryId, device: Device) -> Self {
        FbmProvider { memory, device }
    }
}

impl Provider for FbmProvider {
    fn allocate(&self, len_bytes: u64, _align_bytes: u64) -> Result<Region, ChannelError> {
        let buffer = allocate(&self.device, len_bytes, len_bytes, |len| {
            Buffer::new(self.device.context(), len)
        })?;
        let filled = self.device.setup().fill(&buffer);
        filled.map_err(|failure| self.device.failed(&failure))?;
        Ok(Region::device(self.memory, len_bytes, Arc::new(DeviceSpan { buffer })))
    }
}

/// Makes regions of host memory that is pinned for all devices of CUDA's, and mapped by them (ZCM).
/// Its pages are there, and have all been touched.
#[derive(Debug, Clone)]
pub struct ZcmProvider {
    memory: MemoryId,
    device: Device,
}

impl ZcmProvider {
    /// Regions of `memory`, which is the host's and near to `device`.
    #[must_use]
    pub fn new(memory: MemoryId, device: Device) -> Self {
        ZcmProvider { memory, device }
    }
}

impl Provider for ZcmProvider {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        let align_bytes = align_bytes.max(1);
        let whole_bytes = len_bytes.saturating_add(align_bytes - 1);
        let pinned = allocate(&self.device, len_bytes, whole_bytes, |len| {
            Pinned::new(self.device.context(), len)
        })?;
        // What was allocated is longer than both, so that neither is cut.
        let span = zeroed(&pinned, len_bytes as usize, align_bytes as usize);
        Ok(Region::host(self.memory, span, Arc::new(pinned)))
    }
}

/// What `make` makes of `whole_bytes` bytes, for a region of `len_bytes`.
fn allocate<T>(
    device: &Device,
    len_bytes: u64,
    whole_bytes: u64,
    make: impl FnOnce(usize) -> Result<T, Failure>,
) -> Result<T, ChannelError> {
    device.check()?;
    let none = |why: &str| no_memory(&device.info().name, len_bytes, why);
    let whole_bytes = isize::try_from(whole_bytes).map_err(|_| none("no such size"))?;
    make(whole_bytes.cast_unsigned()).map_err(|failure| match failure.code {
        // A size is all that there is to be wrong.
        OUT_OF_MEMORY | INVALID_VALUE => none(&failure.to_string()),
        _ => device.failed(&failure),
    })
}

/// The first `len_bytes` bytes of `pinned` from a multiple of `align_bytes` on, which are zero now.
/// It is longer than `len_bytes` by as much as that may skip.
fn zeroed(pinned: &Pinned, len_bytes: usize, align_bytes: usize) -> HostSpan {
    let address = pinned.start().as_ptr().addr();
    let skip_bytes = address.next_multiple_of(align_bytes) - address;
    // SAFETY: what is skipped, and the bytes behind it, lie inside the memory, which nobody else has
    // yet.
    let start = unsafe {
        let start = pinned.start().add(skip_bytes);
        start.write_bytes(0, len_bytes);
        start
    };
    // SAFETY: the bytes are there as long as that value, which becomes the region's owner.
    unsafe { HostSpan::new(start, len_bytes) }
}
