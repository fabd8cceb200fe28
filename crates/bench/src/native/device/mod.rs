//! A device by nothing but its own API, as who calls it by hand does.

mod cuda;
mod opencl;

pub(crate) use cuda::CudaDevice;
pub(crate) use opencl::OpenClDevice;

use crate::Error;
use isometry::channel::HostSpan;
use isometry::{Array, Instance, Machine};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::slice;

/// Which way, and from or to which of a device's two memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the host to the first memory.
    Write,
    /// From the first memory to the host.
    Read,
    /// From the second memory, which [`RawDevice::copy_inside`] writes, to the host.
    ReadSecond,
}

/// Rows of `bytes`, which lie `pitch` bytes apart on one side, and together on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) pitch: usize,
}

impl Rows {
    /// One row of so many bytes.
    pub(crate) fn one(bytes: usize) -> Rows {
        Rows { count: 1, bytes, pitch: bytes }
    }

    /// What they hold.
    pub(crate) fn payload_bytes(self) -> usize {
        self.count * self.bytes
    }

    /// From the first byte of the first to the last of the last, where they lie apart.
    pub(crate) fn span_bytes(self) -> usize {
        (self.count.max(1) - 1) * self.pitch + self.bytes
    }

    /// Fails where they don't fit into so many bytes that lie apart, or into so many that lie together.
    fn check(self, apart_bytes: usize, together_bytes: usize) -> Result<(), Error> {
        let fits = self.span_bytes() <= apart_bytes && self.payload_bytes() <= together_bytes;
        if fits { Ok(()) } else { Err(Error::part("copying rows")("they reach outside")) }
    }
}

/// A device with two memories, and a queue that is in order.
pub(crate) trait RawDevice: Debug {
    /// So many bytes of the host's that the device reaches by itself; they are zero.
    fn pin(&self, bytes: usize) -> Result<Host, Error>;

    /// Moves `rows`, which lie apart from the start of `host` on and together in the device's memory;
    /// blocks until they are there.
    fn copy(&self, way: Way, host: &mut Host, rows: Rows) -> Result<(), Error>;

    /// Moves `rows`, which lie apart in the first memory, together into the second; blocks until they are
    /// there.
    fn copy_inside(&self, rows: Rows) -> Result<(), Error>;

    /// The device, where it is CUDA's: these copy to each other without the host.
    fn as_cuda(&self) -> Option<&CudaDevice> {
        None
    }
}

/// Memory of the host's that copies by hand go to and come from.
#[derive(Debug)]
pub(crate) struct Host {
    span: HostSpan,
    /// What keeps it valid.
    _owner: Box<dyn Debug>,
}

impl Host {
    /// So many bytes of plain memory, as a machine hands it out, each page of it touched.
    pub(crate) fn plain(machine: &Machine, bytes: usize) -> Result<Host, Error> {
        let memory: Instance = machine.empty(Array::of(&[("b", bytes as u64)], "|u1")?, "sys")?;
        memory.fill(&vec![0; bytes])?;
        Ok(Host { span: memory.host_span()?, _owner: Box::new(memory) })
    }

    /// The bytes at `start`.
    ///
    /// # Safety
    /// They are valid for reads and writes for as long as `owner`, and nobody else has them.
    unsafe fn pinned(start: NonNull<u8>, bytes: usize, owner: impl Debug + 'static) -> Host {
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(0, bytes) };
        // SAFETY: as above; the owner lives as long as the value.
        Host { span: unsafe { HostSpan::new(start, bytes) }, _owner: Box::new(owner) }
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this value owns them and all of them were written; no copy is in flight between calls.
        unsafe { slice::from_raw_parts_mut(self.span.start().as_ptr(), self.span.len_bytes()) }
    }
}

#[cfg(test)]
mod tests;
