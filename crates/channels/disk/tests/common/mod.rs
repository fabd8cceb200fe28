//! Regions of files and of host memory for the tests of this crate.
#![allow(dead_code)]

use channel::conformance::{Draw, Fixture};
use channel::model::{
    Completion, CopyWork, FieldCopy, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId, Work,
};
use channel::{Channel, HostSpan, Job, Region};
use isometry_channel_disk::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) const DSK: MemoryId = MemoryId { node: NodeId(0), index: 1 };
pub(crate) const SYS: MemoryId = MemoryId { node: NodeId(0), index: 0 };

/// A directory on the file system that the project is built on.
pub(crate) fn directory() -> TempDir {
    let built = option_env!("CARGO_TARGET_TMPDIR").and_then(|dir| TempDir::new_in(dir).ok());
    built.unwrap_or_else(|| TempDir::new().unwrap())
}

/// Host memory that starts `phase` bytes after a page's start and holds `bytes`.
pub(crate) fn memory(bytes: &[u8], phase: usize) -> Arc<Region> {
    let mut owner = vec![0u8; bytes.len() + 8192].into_boxed_slice();
    let skip = owner.as_ptr().align_offset(4096) + phase % 4096;
    owner[skip..skip + bytes.len()].copy_from_slice(bytes);
    let start = NonNull::from(&mut owner[skip]);
    // SAFETY: the owner is the box, whose bytes don't move and are not reached otherwise.
    let span = unsafe { HostSpan::new(start, bytes.len()) };
    Arc::new(Region::host(SYS, span, Arc::new(owner)))
}

/// What host memory holds.
pub(crate) fn bytes_of(region: &Region) -> Vec<u8> {
    let span = region.host_span().unwrap();
    // SAFETY: the span is valid as long as the region is, and no request on it is in flight.
    unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) }.to_vec()
}

pub(crate) fn channel(direction: Direction, interface: Interface, depth: u32) -> DiskChannel {
    let config = DiskConfig { direction, depth, interface, arenas: Vec::new() };
    DiskChannel::new(config).unwrap()
}

/// A request for one run from the start of one region to the start of the other.
pub(crate) fn run_of(request: u64, bytes: u64, src: &Arc<Region>, dst: &Arc<Region>) -> Job {
    run_at(request, bytes, (src, 0), (dst, 0))
}

/// A request for one run.
pub(crate) fn run_at(
    request: u64,
    bytes: u64,
    src: (&Arc<Region>, u64),
    dst: (&Arc<Region>, u64),
) -> Job {
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
    let list = [NdCopy { dims: Vec::new(), fields: vec![field] }].into();
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let (from, to) = (place(src.1), place(dst.1));
    let work = Work::Copy(CopyWork {
        list,
        src: from,
        dst: to,
        payload_bytes: bytes,
        result_bytes: bytes,
    });
    Job { request: RequestId(request), work, src: Arc::clone(src.0), dst: Arc::clone(dst.0) }
}

/// A commit or an abort.
pub(crate) fn settle(request: u64, region: &Arc<Region>, commit: Option<bool>) -> Job {
    let id = RegionId { index: 0, generation: 0 };
    let work = match commit {
        Some(sync) => Work::Commit { region: id, sync },
        None => Work::Abort { region: id },
    };
    Job { request: RequestId(request), work, src: Arc::clone(region), dst: Arc::clone(region) }
}

/// Submits `job` and sleeps until it has ended.
pub(crate) fn finish(channel: &mut dyn Channel, job: Job) -> Completion {
    channel.submit(job).expect("there is room");
    let mut done = Vec::new();
    while done.is_empty() {
        let fd = channel.wake_fd().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "never became readable");
        channel.poll(&mut done);
    }
    assert_eq!(done.len(), 1);
    done.remove(0)
}

/// The names in `dir`.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// A way to ask the kernel, and a way through or around the page cache, both ways.
pub(crate) struct Suite {
    pub(crate) direction: Direction,
    pub(crate) interface: Interface,
    pub(crate) cache: Cache,
    pub(crate) dir: TempDir,
    pub(crate) count: Cell<usize>,
}

impl Suite {
    pub(crate) fn new(direction: Direction, interface: Interface, cache: Cache) -> Self {
        Suite { direction, interface, cache, dir: directory(), count: Cell::new(0) }
    }

    fn next(&self) -> usize {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(format!("f{}", self.next()))
    }

    /// Data that begins now on a boundary, now off it.
    fn offset(&self) -> usize {
        [0, 128, 4096, 1, 512][self.next() % 5]
    }

    fn existing(&self, bytes: &[u8]) -> Arc<Region> {
        let (path, offset) = (self.path(), self.offset());
        let mut all = vec![0xAA; offset];
        all.extend_from_slice(bytes);
        all.extend_from_slice(&[0xBB; 100]);
        fs::write(&path, all).unwrap();
        let from = offset as u64;
        let file = FileRegion::open(&path, from..from + bytes.len() as u64, self.cache).unwrap();
        fs::remove_file(&path).unwrap();
        Arc::new(file.into_region(DSK))
    }

    /// A file being written that holds `bytes` already.
    fn created(&self, bytes: &[u8]) -> Arc<Region> {
        let header = vec![0xAA; self.offset()];
        let file = FileRegion::create(&self.path(), &header, bytes.len() as u64, self.cache);
        let region = Arc::new(file.unwrap().into_region(DSK));
        let mut writer = channel(Direction::Write, Interface::Threads, 4);
        let job = run_of(0, bytes.len() as u64, &memory(bytes, 0), &region);
        assert_eq!(finish(&mut writer, job).result, Ok(()));
        region
    }

    fn memory(&self, bytes: &[u8]) -> Arc<Region> {
        memory(bytes, [0, 128, 64, 3][self.next() % 4])
    }
}

impl Fixture for Suite {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(channel(self.direction, self.interface, 6))
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        match self.direction {
            Direction::Read => self.existing(bytes),
            Direction::Write => self.memory(bytes),
        }
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        match self.direction {
            Direction::Read => self.memory(bytes),
            Direction::Write => self.created(bytes),
        }
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        match destination.view::<FileRegion>() {
            None => bytes_of(destination),
            Some(file) => file_bytes(file, destination.len_bytes()),
        }
    }
}

/// What a region of a file holds, through the page cache.
pub(crate) fn file_bytes(file: &FileRegion, len_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len_bytes).unwrap()];
    let mut done = 0;
    while done < bytes.len() {
        let at = file.data_offset() + done as u64;
        let count = rustix::io::pread(file.as_fd(), &mut bytes[done..], at).unwrap();
        assert!(count > 0, "the file is too short");
        done += count;
    }
    bytes
}

/// Bytes of a seed.
pub(crate) fn random(seed: u64, len: usize) -> Vec<u8> {
    Draw::new(seed).bytes(len)
}
