//! Curves of a file system, by direct I/O on a temporary.

use super::shapes::{dim, step};
use super::{Bench, fill, job_of, memory, nanos_of};
use crate::Error;
use crate::disks::DiskCurves;
use channel::{Provider, Region};
use channel_disk::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use channel_host::{HostProvider, Pages};
use model::{FieldCopy, NdCopy, Stride, Throughput};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE_BYTES: u64 = 64 << 20;
/// The payload of a request, of runs that lie far apart where they are shorter.
const REQUEST_BYTES: u64 = 1 << 20;
const POINT: Duration = Duration::from_millis(12);
/// Enough requests to tell one depth from the next, and to know the time of a short run.
const SHORT_POINT: Duration = Duration::from_millis(4);
/// Long enough that neither direction has the disk to itself for long.
const BOTH_POINT: Duration = Duration::from_millis(40);
/// Lengths of runs.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// A shallower queue is taken if it gives this much of the best.
const DEPTH_ENOUGH: f64 = 0.92;

/// Curves of the file system of `dir`, by direct I/O on temporaries; `None` where these can't be
/// written, all of them: a disk that is nearly full has no room to be measured.
pub(crate) fn disk(dir: &Path) -> Option<DiskCurves> {
    let measured = measured(|| temporary(dir));
    let unmeasured = |e: &Error| log::info!("{} is not measured: {e}", dir.display());
    measured.inspect_err(unmeasured).ok()
}

fn measured(
    mut temporary: impl FnMut() -> Result<Arc<Region>, Error>,
) -> Result<DiskCurves, Error> {
    let file = temporary()?;
    let pages = Pages { prefault: true, huge: true, node: None };
    let most = SIZES[SIZES.len() - 1];
    let buffer = Arc::new(HostProvider::new(memory(0), pages).allocate(8 * most, 4096)?);
    fill(&buffer);
    let mut write = DiskBench::new(Direction::Write, &file, &buffer)?;
    write.fill()?;
    let mut read = DiskBench::new(Direction::Read, &file, &buffer)?;
    let latency_ns = [read.latency_ns()?, write.latency_ns()?];
    let depth = write.depth()?.max(read.depth()?);
    let both = at_once(&mut read, &mut write, depth)?;
    let read = read.curve(depth, || Ok(Arc::clone(&file)))?;
    // New files, whose blocks are written for the first time, as a copy's destination is.
    let write = write.curve(depth, temporary)?;
    Ok(DiskCurves { read, write, both, latency_ns, depth, assumed: false })
}

fn temporary(dir: &Path) -> Result<Arc<Region>, Error> {
    let file = FileRegion::create(&dir.join("probe"), &[], FILE_BYTES, Cache::Bypass)?;
    Ok(Arc::new(file.into_region(memory(1))))
}

/// What is read and written in all while both go on, in long runs.
fn at_once(read: &mut DiskBench, write: &mut DiskBench, depth: u32) -> Result<f64, Error> {
    let (reads, writes) = (read.request(REQUEST_BYTES), write.request(REQUEST_BYTES));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read.rate(&reads, depth, BOTH_POINT));
        let written = write.rate(&writes, depth, BOTH_POINT)?;
        let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
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
        let what = "starting the channels of a disk";
        let channel = DiskChannel::new(config).map_err(|e| Error::resource(what, e))?;
        let (file, buffer) = (Arc::clone(file), Arc::clone(buffer));
        Ok(DiskBench { channel, direction, file, buffer, next: 0 })
    }

    /// A request of runs of `run` bytes that are spread over the whole file.
    fn request(&self, run: u64) -> NdCopy {
        let count = (REQUEST_BYTES / run).max(1);
        let (apart, packed) = (step(FILE_BYTES / count), step(run));
        let stride = match self.direction {
            Direction::Read => Stride { src: apart, dst: packed },
            Direction::Write => Stride { src: packed, dst: apart },
        };
        let field = FieldCopy {
            bytes: run,
            src_offset: 0,
            dst_offset: 0,
            padding: 0,
            strides: vec![stride],
        };
        NdCopy { dims: vec![dim(count)], fields: vec![field] }
    }

    fn rate(&mut self, request: &NdCopy, depth: u32, time: Duration) -> Result<f64, Error> {
        let mut bench = Bench { channel: &mut self.channel, next: self.next };
        let (run, bytes) = (request.fields[0].bytes, request.payload_bytes());
        let (list, direction): (Arc<[NdCopy]>, _) = ([request.clone()].into(), self.direction);
        // Each request takes the neighbours of what the one before it took.
        let places = FILE_BYTES / request.dims[0].extent / run;
        let mut job = |n: u64| {
            let on_disk = (&self.file, n % places * run);
            let in_memory = (&self.buffer, n % u64::from(depth.min(8)) * bytes);
            match direction {
                Direction::Read => job_of(&list, on_disk, in_memory),
                Direction::Write => job_of(&list, in_memory, on_disk),
            }
        };
        let rate = bench.best_rate(depth, time, &mut job)?;
        self.next = bench.next;
        Ok(rate)
    }

    /// Writes all of the file, so that what is read is there.
    fn fill(&mut self) -> Result<(), Error> {
        let all = self.request(REQUEST_BYTES);
        while self.next < FILE_BYTES / REQUEST_BYTES {
            self.rate(&all, 4, Duration::ZERO)?;
        }
        Ok(())
    }

    /// The time of one short run by itself.
    fn latency_ns(&mut self) -> Result<u64, Error> {
        let mut one = self.request(SIZES[0]);
        one.dims[0].extent = 1;
        Ok(nanos_of(SIZES[0], self.rate(&one, 1, SHORT_POINT)?))
    }

    /// The fewest requests at once that keep the disk about as busy as many.
    fn depth(&mut self) -> Result<u32, Error> {
        let request = self.request(REQUEST_BYTES);
        let mut rates = Vec::new();
        for depth in [1, 2, 4, 8] {
            rates.push((depth, self.rate(&request, depth, SHORT_POINT)?));
        }
        let best = rates.iter().map(|r| r.1).fold(0.0, f64::max);
        let enough = rates.iter().find(|r| r.1 >= DEPTH_ENOUGH * best);
        Ok(enough.map_or(8, |r| r.0))
    }

    /// The rate at each length of runs, each on what `file` gives.
    fn curve(
        &mut self,
        depth: u32,
        mut file: impl FnMut() -> Result<Arc<Region>, Error>,
    ) -> Result<Throughput, Error> {
        let mut points = Vec::with_capacity(SIZES.len());
        for size in SIZES {
            self.file = file()?;
            points.push((size, self.rate(&self.request(size), depth, POINT)?));
        }
        Ok(Throughput::measured(points)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::model::{ChannelError, ChannelErrorKind};

    #[test]
    fn a_disk_that_fills_up_meanwhile_is_not_measured() {
        let dir = tempfile::tempdir().unwrap();
        let mut room = 1u32;
        let result = measured(|| {
            let full = ChannelError::new(ChannelErrorKind::NoSpace, "no room");
            room = room.checked_sub(1).ok_or(full)?;
            temporary(dir.path())
        });
        let Err(Error::Channel(error)) = result else { panic!("measured without room") };
        assert_eq!(error.kind, ChannelErrorKind::NoSpace);
        // Where no file can be made: the same, by the door that others use.
        assert!(disk(&dir.path().join("none")).is_none());
    }
}
