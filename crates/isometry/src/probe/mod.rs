//! Measures channels: rates against request sizes, through the same trait that copies use.

mod crossover;
mod disk;
mod host;
mod shapes;

pub(crate) use disk::disk;
pub(crate) use host::{HostRates, device, link, memcpy};

use channel::{Channel, Job, Region};
use model::{ChannelError, CopyWork, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId, Work};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a point is measured. The best counts: what else runs only ever slows it down.
const TIMES: usize = 3;

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
        let mut best = 0.0f64;
        for _ in 0..TIMES {
            best = best.max(self.rate(depth, time, job)?);
        }
        Ok(best)
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
    // No table: a job carries its regions.
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let payload_bytes = list.iter().map(NdCopy::payload_bytes).sum();
    let list = Arc::clone(list);
    let (from, to, result_bytes) = (place(src.1), place(dst.1), dst.0.len_bytes());
    let work = CopyWork { list, src: from, dst: to, payload_bytes, result_bytes };
    Job {
        request: RequestId(0),
        work: Work::Copy(work),
        src: Arc::clone(src.0),
        dst: Arc::clone(dst.0),
    }
}
