//! Measures channels: rates against request sizes, through the same trait that copies use.

use crate::Error;
use crate::builder::memory;
use crate::disks::DiskCurves;
use channel::{Channel, Job, Provider, Region};
use channel_disk::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use channel_host::{HostProvider, MemcpyChannel, Pages};
use model::{
    ChannelError, CopyDim, CopyWork, Curves, FieldCopy, NdCopy, Place, RegionId, RequestId, Stride,
    Throughput, Work,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Each of the two buffers of a host measurement: twice the last cache, within these bounds.
const HOST_BYTES: std::ops::RangeInclusive<u64> = (16 << 20)..=(64 << 20);
/// The payload of one host request, and how far apart requests lie: a source of every other run
/// takes twice the payload.
const HOST_REQUEST_BYTES: u64 = 4 << 20;
const HOST_STEP_BYTES: u64 = 8 << 20;
/// How long a point is measured each time, at least one round of requests.
const HOST_POINT: Duration = Duration::from_millis(6);
/// How often a point is measured. The best counts: what else runs only ever slows it down.
const TIMES: usize = 3;
/// The file of a disk measurement.
const DISK_BYTES: u64 = 32 << 20;
const DISK_POINT: Duration = Duration::from_millis(20);
/// Request sizes on a disk.
const DISK_SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// A shallower queue is taken if it gives this much of the best.
const DEPTH_ENOUGH: f64 = 0.92;

/// What a request that moves next to nothing takes.
const TINY_BYTES: u64 = 64;

/// Curves of copies inside host memory, for each shape class, and the time from submitting a
/// request to its end where there is nothing to move.
pub(crate) fn memcpy(channel: &mut MemcpyChannel) -> Result<(Curves, u64), Error> {
    let mut bench = HostBench::new(channel)?;
    let latency_ns = bench.latency_ns()?;
    let run = bench.curve(&[16, 64, 256, 1024, 4096, 65536, 1 << 20], runs)?;
    let interleave = bench.curve(&[1, 2, 4, 8, 16, 64], interleaved)?;
    let transpose = bench.curve(&[1, 2, 4, 8, 16, 64, 256], transposed)?;
    let gather = bench.curve(&[4, 16, 64, 1024, 16384], gathered)?;
    let (interleave, transpose, gather) = (Some(interleave), Some(transpose), Some(gather));
    Ok((Curves { run, interleave, transpose, gather }, latency_ns))
}

/// A channel with work to give it.
struct Bench<'a> {
    channel: &'a mut dyn Channel,
    next: u64,
}

impl Bench<'_> {
    /// The best of [`TIMES`] measurements of [`Bench::rate`].
    fn best_rate(
        &mut self,
        depth: u32,
        time: Duration,
        job: &mut dyn FnMut(u64) -> Job,
    ) -> Result<f64, ChannelError> {
        let mut best = 0.0f64;
        for _ in 0..TIMES {
            best = best.max(self.rate(depth, time, job)?);
        }
        Ok(best)
    }

    /// Bytes per second with `depth` requests of `job` in flight for at least `time`; `job` makes
    /// the n-th request and says what it moves.
    fn rate(
        &mut self,
        depth: u32,
        time: Duration,
        job: &mut dyn FnMut(u64) -> Job,
    ) -> Result<f64, ChannelError> {
        let (mut moved, mut flying, mut done) = (0u64, 0u32, Vec::new());
        let (started, mut count) = (Instant::now(), 0);
        loop {
            let more = count < u64::from(depth) || started.elapsed() < time;
            while more && flying < depth {
                let mut job = job(count);
                job.request = RequestId(self.next);
                moved += payload(&job.work);
                if self.channel.submit(job).is_err() {
                    break;
                }
                (self.next, count, flying) = (self.next + 1, count + 1, flying + 1);
            }
            if flying == 0 {
                break;
            }
            self.wait();
            self.channel.poll(&mut done);
            for completion in done.drain(..) {
                flying -= 1;
                completion.result?;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
        let bytes = moved as f64;
        Ok(bytes / started.elapsed().as_secs_f64())
    }

    fn wait(&self) {
        if let Some(fd) = self.channel.wake_fd() {
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
    }
}

fn payload(work: &Work) -> u64 {
    match work {
        Work::Copy(copy) => copy.payload_bytes,
        Work::Commit { .. } | Work::Abort { .. } => 0,
    }
}

/// The time of one request, one after the other at `rate`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a few milliseconds at most"
)]
fn nanos_of(bytes: u64, rate: f64) -> u64 {
    (bytes as f64 / rate * 1e9) as u64
}

struct HostBench<'a> {
    bench: Bench<'a>,
    src: Arc<Region>,
    dst: Arc<Region>,
    depth: u32,
}

impl<'a> HostBench<'a> {
    fn new(channel: &'a mut MemcpyChannel) -> Result<Self, Error> {
        let pages = Pages { prefault: true, ..Pages::default() };
        let provider = HostProvider::new(memory(0), pages);
        let bytes = (2 * last_cache_bytes()).clamp(*HOST_BYTES.start(), *HOST_BYTES.end());
        let region = || provider.allocate(bytes, 4096).map(Arc::new);
        let depth = channel.capabilities().max_in_flight;
        Ok(HostBench { src: region()?, dst: region()?, depth, bench: Bench { channel, next: 0 } })
    }

    fn latency_ns(&mut self) -> Result<u64, Error> {
        let list: Arc<[NdCopy]> = Arc::new([runs(TINY_BYTES, TINY_BYTES)]);
        let (src, dst) = (Arc::clone(&self.src), Arc::clone(&self.dst));
        let mut job = |_| job_of(&list, (&src, 0), (&dst, 0), TINY_BYTES);
        let rate = self.bench.best_rate(1, HOST_POINT, &mut job)?;
        Ok(nanos_of(TINY_BYTES, rate))
    }

    /// The rate at each of `sizes`, of copies that `shape` makes of a size and a payload.
    fn curve(&mut self, sizes: &[u64], shape: fn(u64, u64) -> NdCopy) -> Result<Throughput, Error> {
        let mut points = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let list: Arc<[NdCopy]> = Arc::new([shape(size, HOST_REQUEST_BYTES)]);
            let moved = list[0].payload_bytes();
            let (src, dst) = (Arc::clone(&self.src), Arc::clone(&self.dst));
            let places = src.len_bytes() / HOST_STEP_BYTES;
            let mut job = |n: u64| {
                let offset = n % places * HOST_STEP_BYTES;
                job_of(&list, (&src, offset), (&dst, offset), moved)
            };
            points.push((size, self.bench.best_rate(self.depth, HOST_POINT, &mut job)?));
        }
        Ok(Throughput::measured(points)?)
    }
}

fn job_of(
    list: &Arc<[NdCopy]>,
    src: (&Arc<Region>, u64),
    dst: (&Arc<Region>, u64),
    payload_bytes: u64,
) -> Job {
    // No table: a job carries its regions.
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let list = Arc::clone(list);
    let work = CopyWork { list, src: place(src.1), dst: place(dst.1), payload_bytes };
    Job {
        request: RequestId(0),
        work: Work::Copy(work),
        src: Arc::clone(src.0),
        dst: Arc::clone(dst.0),
    }
}

fn dim(extent: u64) -> CopyDim {
    CopyDim { extent: extent.max(1), src_index: None, dst_index: None }
}

fn step(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Every other run of a source, packed.
fn runs(run: u64, bytes: u64) -> NdCopy {
    let strides = vec![Stride { src: step(2 * run), dst: step(run) }];
    let field = FieldCopy { bytes: run, src_offset: 0, dst_offset: 0, strides };
    NdCopy { dims: vec![dim(bytes / run)], fields: vec![field] }
}

/// Four fields of a structure, each to a column of its own.
fn interleaved(element: u64, bytes: u64) -> NdCopy {
    let entries = bytes / (4 * element);
    let field = |f: u64| FieldCopy {
        bytes: element,
        src_offset: step(f * element),
        dst_offset: step(f * entries * element),
        strides: vec![Stride { src: step(4 * element), dst: step(element) }],
    };
    NdCopy { dims: vec![dim(entries)], fields: (0..4).map(field).collect() }
}

/// A square matrix, turned.
fn transposed(element: u64, bytes: u64) -> NdCopy {
    let side = (bytes / element).isqrt().max(2);
    let strides = vec![
        Stride { src: step(side * element), dst: step(element) },
        Stride { src: step(element), dst: step(side * element) },
    ];
    let field = FieldCopy { bytes: element, src_offset: 0, dst_offset: 0, strides };
    NdCopy { dims: vec![dim(side), dim(side)], fields: vec![field] }
}

/// Runs in an order that no prefetcher guesses.
fn gathered(run: u64, bytes: u64) -> NdCopy {
    let count = (bytes / run).max(1);
    // A step without a common divisor with the count visits all.
    let stride = (count * 5 / 8) | 1;
    let prime = (stride..).find(|s| gcd(*s, count) == 1).unwrap_or(1);
    let index: Arc<[u64]> = (0..count).map(|i| i * prime % count).collect();
    let dims = vec![CopyDim { extent: count, src_index: Some(index), dst_index: None }];
    let strides = vec![Stride { src: step(run), dst: step(run) }];
    NdCopy { dims, fields: vec![FieldCopy { bytes: run, src_offset: 0, dst_offset: 0, strides }] }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest cache of the first core, as the kernel says.
fn last_cache_bytes() -> u64 {
    let size = |i: usize| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|k| k << 10)
    };
    (0..8).filter_map(size).max().unwrap_or(16 << 20)
}

/// Curves of the file system of `dir`, by direct I/O on a temporary; `None` where that can't be
/// written.
pub(crate) fn disk(dir: &Path) -> Result<Option<DiskCurves>, Error> {
    let path = dir.join("probe");
    let Ok(file) = FileRegion::create(&path, &[], DISK_BYTES, Cache::Bypass) else {
        return Ok(None);
    };
    let file = Arc::new(file.into_region(memory(1)));
    let pages = Pages { prefault: true, ..Pages::default() };
    let most = DISK_SIZES[DISK_SIZES.len() - 1];
    let buffer = Arc::new(HostProvider::new(memory(0), pages).allocate(8 * most, 4096)?);
    let mut write = DiskBench::new(Direction::Write, &file, &buffer)?;
    // Once over all of it, so that what is read is there.
    write.rate(1 << 20, 4, Duration::from_millis(60))?;
    let small = DISK_SIZES[0];
    let write_ns = nanos_of(small, write.rate(small, 1, DISK_POINT)?);
    let write_depth = write.depth()?;
    let mut read = DiskBench::new(Direction::Read, &file, &buffer)?;
    let read_ns = nanos_of(small, read.rate(small, 1, DISK_POINT)?);
    let depth = write_depth.max(read.depth()?);
    let curves = (read.curve(depth)?, write.curve(depth)?);
    let latency_ns = [read_ns, write_ns];
    Ok(Some(DiskCurves { read: curves.0, write: curves.1, latency_ns, depth, assumed: false }))
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
            let on_disk = (&file, n % (DISK_BYTES / request) * request);
            let in_memory = (&buffer, n % u64::from(depth.min(8)) * request);
            match direction {
                Direction::Read => job_of(&list, on_disk, in_memory, request),
                Direction::Write => job_of(&list, in_memory, on_disk, request),
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
            rates.push((depth, self.rate(1 << 20, depth, DISK_POINT)?));
        }
        let best = rates.iter().map(|r| r.1).fold(0.0, f64::max);
        let enough = rates.iter().find(|r| r.1 >= DEPTH_ENOUGH * best);
        Ok(enough.map_or(8, |r| r.0))
    }

    fn curve(&mut self, depth: u32) -> Result<Throughput, Error> {
        let mut points = Vec::with_capacity(DISK_SIZES.len());
        for size in DISK_SIZES {
            points.push((size, self.rate(size, depth, DISK_POINT)?));
        }
        Ok(Throughput::measured(points)?)
    }
}
