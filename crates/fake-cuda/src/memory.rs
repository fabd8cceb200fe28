//! Memory of devices: of this process alone, or mapped by others too.

use crate::OUT_OF_MEMORY;
use crate::gpu::Code;
use rustix::fs::{FlockOperation, MemfdFlags, flock, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;

/// An allocation.
pub(crate) enum Block {
    Own(Vec<u8>),
    /// Exported, so that it is a file.
    Exported(Mapping),
    /// What another process has exported.
    Opened(Mapping),
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        match self {
            Block::Own(bytes) => bytes.len(),
            Block::Exported(mapping) | Block::Opened(mapping) => mapping.bytes,
        }
    }

    pub(crate) fn is_opened(&self) -> bool {
        matches!(self, Block::Opened(_))
    }

    /// Whether it may be freed: that others have it open still is where the driver promises nothing.
    pub(crate) fn may_be_freed(&self) -> bool {
        match self {
            Block::Own(_) => true,
            Block::Exported(mapping) => !mapping.is_open_elsewhere(),
            Block::Opened(_) => false,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Block::Own(bytes) => bytes,
            Block::Exported(mapping) | Block::Opened(mapping) => mapping.bytes_mut(),
        }
    }

    /// Has it be a file, and returns that.
    pub(crate) fn export(&mut self) -> Result<&Mapping, Code> {
        if let Block::Own(bytes) = self {
            let mut mapping = Mapping::new(bytes.len()).map_err(|_| OUT_OF_MEMORY)?;
            mapping.bytes_mut().copy_from_slice(bytes);
            *self = Block::Exported(mapping);
        }
        match self {
            Block::Exported(mapping) => Ok(mapping),
            _ => Err(crate::INVALID_VALUE),
        }
    }
}

/// A file of memory, mapped. Who has opened it holds its lock with others.
pub(crate) struct Mapping {
    start: *mut u8,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: it is reached under the lock of its device's state only, and by other processes, whose users see to
// it that nobody touches bytes that others write.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> rustix::io::Result<Self> {
        let file = memfd_create(c"fake-cuda", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        Mapping::of(file)
    }

    /// A file that another process has made so.
    pub(crate) fn open(file: OwnedFd) -> rustix::io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Mapping::of(file)
    }

    fn of(file: OwnedFd) -> rustix::io::Result<Self> {
        let bytes = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of as many bytes as the file has, which nobody makes shorter.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, &file, 0)? };
        Ok(Mapping { start: start.cast(), bytes, file })
    }

    /// The number of the file, which others of this machine find among those of this process.
    pub(crate) fn number(&self) -> u32 {
        self.file.as_raw_fd().cast_unsigned()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: they are mapped as long as this value; as for `Send`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    fn is_open_elsewhere(&self) -> bool {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which nobody has references to any more.
        let _ = unsafe { munmap(self.start.cast::<c_void>(), self.bytes) };
    }
}
