//! Measures channels: rates against request sizes, through the same trait that copies use.

mod crossover;
mod disk;
mod host;
mod shapes;

pub(crate) use disk::disk;
pub(crate) use host::{HostRates, device, link, memcpy, side_bytes};

use crate::memory::write_to;
use channel::{Channel, Job, Region};
use model::{ChannelError, CopyWork, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId, Work};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a point is measured. The best counts: what else runs only ever slows it down.
const TIMES: usize = 3;

/// What a source is filled with repeats after so many bytes.
const FILL_BYTES: usize = 64 << 10;

/// A channel with work to give it.
struct Bench<'a> {
    channel: &'a mut dyn Channel,
    /// How many requests it has been given.
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
        best_of_times(|| self.rate(depth, time, job))
    }

    /// Bytes per second with `depth` requests of `job` in flight for at least `time`; `job` makes
    /// the n-th request of all.
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
                let mut job = job(self.next);
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
            self.channel.poll(&mut done);
            if done.is_empty() {
                self.wait();
                self.channel.poll(&mut done);
            }
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

/// The best of [`TIMES`] measurements.
fn best_of_times<E>(mut rate: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    (0..TIMES).try_fold(0.0, |best: f64, _| Ok(best.max(rate()?)))
}

/// Of which node it is does not matter to who copies.
fn memory(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

fn payload(work: &Work) -> u64 {
    match work {
        Work::Copy(copy) => copy.payload_bytes,
        Work::Commit { .. } | Work::Abort { .. } => 0,
    }
}

/// Writes numbers all over `region`, none of them 0: there are processors that write zeros past the
/// caches twice as fast as anything else, and disks that keep none.
pub(crate) fn fill(region: &Region) {
    let numbers = (1u64..=FILL_BYTES as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    for start in (0..region.len_bytes()).step_by(FILL_BYTES) {
        let left = usize::try_from(region.len_bytes() - start).unwrap_or(FILL_BYTES);
        write_to(region, start, &bytes[..left.min(FILL_BYTES)]).expect("host memory, all of it");
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

fn job_of(list: &Arc<[NdCopy]>, src: (&Arc<Region>, u64), dst: (&Arc<Region>, u64)) -> Job {
    let work = work_of(list, (src.1, dst.1), dst.0.len_bytes());
    Job {
        request: RequestId(0),
        work: Work::Copy(work),
        src: Arc::clone(src.0),
        dst: Arc::clone(dst.0),
    }
}

/// `list`, from and to these offsets, as part of a transfer that brings its destination so many bytes.
fn work_of(list: &Arc<[NdCopy]>, (src, dst): (u64, u64), result_bytes: u64) -> CopyWork {
    // No table: who carries it out has the regions.
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let payload_bytes = list.iter().map(NdCopy::payload_bytes).sum();
    let (src, dst) = (place(src), place(dst));
    CopyWork { list: Arc::clone(list), src, dst, payload_bytes, result_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::Provider;
    use channel_host::{HostProvider, Pages};

    #[test]
    fn what_is_filled_has_no_line_of_zeros() {
        let provider = HostProvider::new(memory(0), Pages::default());
        for bytes in [1000, FILL_BYTES as u64, FILL_BYTES as u64 + 4096] {
            let region = provider.allocate(bytes, 4096).unwrap();
            fill(&region);
            let bytes = crate::memory::bytes_of(&region, 0..region.len_bytes()).unwrap();
            assert!(bytes.chunks(64).all(|line| line.iter().any(|&byte| byte != 0)));
        }
    }
}
