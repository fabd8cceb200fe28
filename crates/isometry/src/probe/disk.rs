//! Curves of a file system, by direct I/O on a temporary.

use super::{Bench, job_of, nanos_of};
use crate::Error;
use crate::builder::memory;
use crate::disks::DiskCurves;
use channel::{Provider, Region};
use channel_disk::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use channel_host::{HostProvider, Pages};
use model::{FieldCopy, NdCopy, Throughput};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE_BYTES: u64 = 32 << 20;
const POINT: Duration = Duration::from_millis(20);
/// Long enough that neither direction has the disk to itself for long.
const BOTH_POINT: Duration = Duration::from_millis(60);
/// Request sizes.
const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// A shallower queue is taken if it gives this much of the best.
const DEPTH_ENOUGH: f64 = 0.92;

/// Curves of the file system of `dir`, by direct I/O on a temporary; `None` where that can't be
/// written.
pub(crate) fn disk(dir: &Path) -> Result<Option<DiskCurves>, Error> {
    let path = dir.join("probe");
    let Ok(file) = FileRegion::create(&path, &[], FILE_BYTES, Cache::Bypass) else {
        return Ok(None);
    };
    let file = Arc::new(file.into_region(memory(1)));
    let pages = Pages { prefault: true, ..Pages::default() };
    let most = SIZES[SIZES.len() - 1];
    let buffer = Arc::new(HostProvider::new(memory(0), pages).allocate(8 * most, 4096)?);
    let mut write = DiskBench::new(Direction::Write, &file, &buffer)?;
    // Once over all of it, so that what is read is there.
    write.rate(1 << 20, 4, Duration::from_millis(60))?;
    let small = SIZES[0];
    let write_ns = nanos_of(small, write.rate(small, 1, POINT)?);
    let write_depth = write.depth()?;
    let mut read = DiskBench::new(Direction::Read, &file, &buffer)?;
    let read_ns = nanos_of(small, read.rate(small, 1, POINT)?);
    let depth = write_depth.max(read.depth()?);
    let curves = (read.curve(depth)?, write.curve(depth)?);
    let both = at_once(&mut read, &mut write, depth)?;
    let latency_ns = [read_ns, write_ns];
    Ok(Some(DiskCurves {
        read: curves.0,
        write: curves.1,
        both,
        latency_ns,
        depth,
        assumed: false,
    }))
}

/// What is read and written in all while both go on, in requests of 1 MiB.
fn at_once(read: &mut DiskBench, write: &mut DiskBench, depth: u32) -> Result<f64, Error> {
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read.rate(1 << 20, depth, BOTH_POINT));
        let written = write.rate(1 << 20, depth, BOTH_POINT)?;
        let read =
            reading.join().map_err(|_| Error::io("io_uring", io::ErrorKind::Other.into()))?;
        Ok(read? + written)
    })
}

struct DiskBench {
    channel: DiskChannel,
    direction: Direction,
    file: Arc<Region>,
    buffer: Arc<Region>,
    next: u64,
}

impl DiskBench {
    fn new(direction: Direction, file: &Arc<Region>, buffer: &Arc<Region>) -> Result<Self, Error> {
        let arenas = vec![Arc::clone(buffer)];
        let config = DiskConfig { direction, depth: 16, interface: Interface::Best, arenas };
        let channel = DiskChannel::new(config).map_err(|e| Error::io("io_uring", e))?;
        Ok(DiskBench {
            channel,
            direction,
            file: Arc::clone(file),
            buffer: Arc::clone(buffer),
            next: 0,
        })
    }

    fn rate(&mut self, request: u64, depth: u32, time: Duration) -> Result<f64, Error> {
        let field = FieldCopy { bytes: request, src_offset: 0, dst_offset: 0, strides: Vec::new() };
        let list: Arc<[NdCopy]> = Arc::new([NdCopy { dims: Vec::new(), fields: vec![field] }]);
        let (file, buffer, direction) =
            (Arc::clone(&self.file), Arc::clone(&self.buffer), self.direction);
        let mut job = |n: u64| {
            let on_disk = (&file, n % (FILE_BYTES / request) * request);
            let in_memory = (&buffer, n % u64::from(depth.min(8)) * request);
            match direction {
                Direction::Read => job_of(&list, on_disk, in_memory),
                Direction::Write => job_of(&list, in_memory, on_disk),
            }
        };
        let mut bench = Bench { channel: &mut self.channel, next: self.next };
        let rate = bench.best_rate(depth, time, &mut job)?;
        self.next = bench.next;
        Ok(rate)
    }

    /// The fewest requests at once that keep the disk about as busy as many.
    fn depth(&mut self) -> Result<u32, Error> {
        let mut rates = Vec::new();
        for depth in [1, 2, 4, 8] {
            rates.push((depth, self.rate(1 << 20, depth, POINT)?));
        }
        let best = rates.iter().map(|r| r.1).fold(0.0, f64::max);
        let enough = rates.iter().find(|r| r.1 >= DEPTH_ENOUGH * best);
        Ok(enough.map_or(8, |r| r.0))
    }

    fn curve(&mut self, depth: u32) -> Result<Throughput, Error> {
        let mut points = Vec::with_capacity(SIZES.len());
        for size in SIZES {
            points.push((size, self.rate(size, depth, POINT)?));
        }
        Ok(Throughput::measured(points)?)
    }
}
