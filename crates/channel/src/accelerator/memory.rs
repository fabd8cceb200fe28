//! Memory of a device (FBM), and memory of the host that it reaches fast (ZCM).

use super::{Device, ELEMENT_BYTES};
use crate::{HostSpan, Provider, Region};
use model::{ChannelError, MemoryId};
use std::sync::Arc;

/// Makes regions of a device's memory (FBM), each allocated by itself. They start where the device's
/// allocations do, whatever alignment is asked for. Blocks until the device has zeroed it.
#[derive(Debug, Clone)]
pub struct FbmProvider {
    memory: MemoryId,
    device: Arc<dyn Device>,
}

impl FbmProvider {
    /// Regions of `memory`, which `device` has.
    #[must_use]
    pub fn new(memory: MemoryId, device: Arc<dyn Device>) -> Self {
        FbmProvider { memory, device }
    }
}

impl Provider for FbmProvider {
    fn allocate(&self, len_bytes: u64, _align_bytes: u64) -> Result<Region, ChannelError> {
        let owner = self.device.allocate(len_bytes)?;
        let span = self.device.interop().and_then(|interop| interop.span(&owner));
        Ok(Region::device(self.memory, len_bytes, owner).addressed(span))
    }
}

/// Makes regions of host memory that the driver of a device has made for it (ZCM). Its pages are
/// there, and have all been touched, and its start suits the device's kernels.
#[derive(Debug, Clone)]
pub struct ZcmProvider {
    memory: MemoryId,
    device: Arc<dyn Device>,
}

impl ZcmProvider {
    /// Regions of `memory`, which is the host's and near to `device`.
    #[must_use]
    pub fn new(memory: MemoryId, device: Arc<dyn Device>) -> Self {
        ZcmProvider { memory, device }
    }
}

impl Provider for ZcmProvider {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        let align_bytes = align_bytes.max(ELEMENT_BYTES);
        let (whole, owner) = self.device.pin(len_bytes.saturating_add(align_bytes - 1))?;
        if self.device.profile().shares_host_memory {
            // Its driver has them from the same allocator as any program; a disk fills small ones half as fast.
            whole.ask_for_huge_pages();
        }
        // What was pinned is longer than both, so that neither is cut.
        let span = zeroed(whole, len_bytes as usize, align_bytes as usize);
        Ok(Region::host(self.memory, span, owner))
    }
}

/// The first `len_bytes` bytes of `whole` from a multiple of `align_bytes` on, which are zero now.
///
/// # Panics
/// Where `whole` is not longer than that by as much as may be skipped.
fn zeroed(whole: HostSpan, len_bytes: usize, align_bytes: usize) -> HostSpan {
    let address = whole.start().as_ptr().addr();
    let skip_bytes = address.next_multiple_of(align_bytes) - address;
    assert!(skip_bytes + len_bytes <= whole.len_bytes(), "a device pins as much as was asked for");
    // SAFETY: what is skipped, and the bytes behind it, lie inside the span, which nobody else has yet.
    let start = unsafe {
        let start = whole.start().add(skip_bytes);
        start.write_bytes(0, len_bytes);
        start
    };
    // SAFETY: they are a part of the span's bytes, and so as valid.
    unsafe { HostSpan::new(start, len_bytes) }
}
