//! Scratch space on a disk.

use crate::file::{Cache, FileRegion};
use channel::model::{ChannelError, MemoryId};
use channel::{Provider, Region};
use std::path::PathBuf;

/// Makes regions of a DSK memory that are files without a name to come: they are deleted when they
/// are dropped.
#[derive(Debug, Clone)]
pub struct DiskProvider {
    memory: MemoryId,
    dir: PathBuf,
    cache: Cache,
}

impl DiskProvider {
    /// Regions of `memory`, in files of the directory `dir`.
    #[must_use]
    pub fn new(memory: MemoryId, dir: PathBuf, cache: Cache) -> Self {
        DiskProvider { memory, dir, cache }
    }
}

impl Provider for DiskProvider {
    /// The region starts at the start of its file: every alignment is met.
    fn allocate(&self, len_bytes: u64, _align_bytes: u64) -> Result<Region, ChannelError> {
        let path = self.dir.join("scratch");
        let file = FileRegion::create(&path, &[], len_bytes, self.cache)?;
        Ok(file.into_region(self.memory))
    }
}
