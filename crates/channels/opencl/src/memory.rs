//! Memory of a device (FBM), and memory of the host that it reaches fast (ZCM).

use crate::cl::Buffer;
use crate::device::Device;
use crate::error::{When, no_memory};
use channel::model::{ChannelError, ChannelErrorKind, MemoryId};
use channel::{HostSpan, Provider, Region};
use cl3::memory::{CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a channel finds behind a region of a device's memory.
#[derive(Debug)]
pub(crate) struct DeviceSpan {
    pub(crate) buffer: Buffer,
}

/// Makes regions of a device's memory (FBM), each a buffer of its own. Nobody sees its address, so
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
        let buffer = buffer(&self.device, CL_MEM_READ_WRITE, len_bytes)?;
        let filled = self.device.setup().fill(&buffer);
        filled.map_err(|failure| self.device.failed(failure, When::Asked))?;
        Ok(Region::device(self.memory, len_bytes, Arc::new(DeviceSpan { buffer })))
    }
}

/// Makes regions of host memory that the driver of a device has made for it (ZCM): it stays where
/// it is, so that the device may reach it by itself. Its pages have all been touched.
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
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let buffer = buffer(&self.device, flags, whole_bytes)?;
        let mapped = Mapped::new(buffer, &self.device)?;
        let too_large = |_| no_memory(&self.device.info().name, len_bytes, "no such size");
        let (len, align) = (len_bytes.try_into(), align_bytes.try_into());
        let span = mapped.zeroed(len.map_err(too_large)?, align.map_err(too_large)?);
        Ok(Region::host(self.memory, span, Arc::new(mapped)))
    }
}

/// A buffer of at least `len_bytes` bytes.
fn buffer(device: &Device, flags: u64, len_bytes: u64) -> Result<Buffer, ChannelError> {
    device.check()?;
    let (name, most_bytes) = (&device.info().name, device.info().most_bytes);
    if len_bytes > most_bytes {
        let why = format!("one region has {most_bytes} bytes at most there");
        return Err(no_memory(name, len_bytes, &why));
    }
    let len = usize::try_from(len_bytes).map_err(|_| no_memory(name, len_bytes, "no such size"))?;
    Buffer::new(device.context(), flags, len).map_err(|failure| {
        let error = device.failed(failure, When::Asked);
        match error.kind {
            ChannelErrorKind::OutOfMemory => no_memory(name, len_bytes, &failure.to_string()),
            _ => error,
        }
    })
}

/// A buffer that the host sees until this is dropped. Commands are given its address, as any
/// memory of the host's: OpenCL forbids to use the buffer itself meanwhile.
#[derive(Debug)]
struct Mapped {
    buffer: Buffer,
    start: NonNull<u8>,
    device: Device,
}

// SAFETY: the address is that of memory that this value alone unmaps.
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`; nothing is reached through a shared reference but the address.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(buffer: Buffer, device: &Device) -> Result<Self, ChannelError> {
        let start = device.setup().map(&buffer);
        let start = start.map_err(|failure| device.failed(failure, When::Asked))?;
        Ok(Mapped { buffer, start, device: device.clone() })
    }

    /// The first `len_bytes` bytes from a multiple of `align_bytes` on, which are zero now. The
    /// buffer is longer than `len_bytes` by as much as that may skip.
    fn zeroed(&self, len_bytes: usize, align_bytes: usize) -> HostSpan {
        let address = self.start.as_ptr().addr();
        let skip_bytes = address.next_multiple_of(align_bytes) - address;
        // SAFETY: what is skipped, and the bytes behind it, lie inside the buffer, which is mapped
        // for writing and which nobody else has yet.
        let start = unsafe {
            let start = self.start.add(skip_bytes);
            start.write_bytes(0, len_bytes);
            start
        };
        // SAFETY: the bytes are there as long as this value, which is the region's owner.
        unsafe { HostSpan::new(start, len_bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: whoever used the memory held the region, which owned this value. What fails here
        // leaves nothing to do.
        let _ = unsafe { self.device.setup().unmap(&self.buffer, self.start) };
    }
}
