//! The Memcpy channel (paper, table 2): host memory to host memory.

use crate::copy;
use crate::cores::Cores;
use crate::lanes::{Lanes, Running, Task};
use channel::layout::NdCopy;
use channel::model::{ChannelError, ChannelErrorKind, Completion, Crossover, Work};
use channel::{Bell, Capabilities, Channel, DoneQueue, Held, Job};
use kernels::Stores;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Below this, cutting a request over lanes costs more than it brings.
pub const SPLIT_BYTES: u64 = 1 << 20;

/// How a Memcpy channel is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemcpyConfig {
    /// Threads that copy; at least one is made.
    pub lanes: usize,
    /// Requests held at once; at least one.
    pub max_in_flight: u32,
    /// The cores that the lanes keep to; `None` leaves them where the process may run.
    pub cores: Option<BTreeSet<usize>>,
}

impl MemcpyConfig {
    /// `lanes` lanes for all memories of a machine: bound near the first where that has a core for
    /// each, else wherever the process may run, so that no core near the others lies idle.
    #[must_use]
    pub fn among(cores: &Cores, lanes: usize) -> Self {
        let first = cores.nodes.first().filter(|first| lanes <= first.cores.len());
        let near = first.filter(|_| cores.nodes.len() > 1);
        MemcpyConfig::of(lanes, near.map(|n| n.cores.clone()))
    }

    /// `lanes` lanes, and for each a request to work on and one that waits. More would only stand
    /// in front of an urgent one.
    #[must_use]
    pub fn of(lanes: usize, cores: Option<BTreeSet<usize>>) -> Self {
        let max_in_flight = u32::try_from(lanes.saturating_mul(2)).unwrap_or(u32::MAX);
        MemcpyConfig { lanes, max_in_flight, cores }
    }
}

/// Copies inside host memory on its own threads.
#[derive(Debug)]
pub struct MemcpyChannel {
    lanes: Lanes,
    done: Arc<DoneQueue<Completion>>,
    held: Held,
    crossover: Crossover,
}

impl MemcpyChannel {
    /// A channel with its lanes asleep.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub fn new(config: &MemcpyConfig) -> io::Result<Self> {
        let done = Arc::new(DoneQueue::new(Arc::new(Bell::new()?)));
        let lanes = Lanes::new(config.lanes, config.cores.as_ref(), &done)?;
        let held = Held::new(config.max_in_flight.max(1));
        Ok(MemcpyChannel { lanes, done, held, crossover: Crossover::default() })
    }

    /// Has requests from now on write results of `crossover` and more past the caches, as it is for
    /// all lanes together ([`Crossover::by`]). Until it is called [`Crossover::default`] holds: it
    /// takes the channel to measure what suits the machine.
    pub fn set_crossover(&mut self, crossover: Crossover) {
        self.crossover = crossover;
    }

    fn start(&self, job: Job) {
        let request = job.request;
        if let Err(error) = self.try_start(job) {
            self.done.push(Completion { request, result: Err(error) });
        }
    }

    fn try_start(&self, job: Job) -> Result<(), ChannelError> {
        let Work::Copy(work) = &job.work else { return Err(no_commit()) };
        let lanes = self.lanes.count();
        let stores = stores(&work.list, work.result_bytes, (self.crossover, lanes));
        let bases = copy::check(work, (&job.src, &job.dst), stores)?;
        let (copies, tasks) = cut(&work.list, work.payload_bytes, lanes);
        let (left, broken) = (AtomicUsize::new(tasks), AtomicBool::new(false));
        let (request, job) = (job.request, Mutex::new(Some(job)));
        let running = Arc::new(Running { request, job, copies, bases, left, broken });
        for task in 0..tasks {
            let bound = |n| n * running.copies.len() / tasks;
            let part = bound(task)..bound(task + 1);
            self.lanes.push(Task { running: Arc::clone(&running), part });
        }
        Ok(())
    }
}

/// What suits a result of `result_bytes` of which `list` is a part: several lanes share it only where they would share a
/// request of as much.
#[must_use]
pub fn stores(
    list: &[NdCopy],
    result_bytes: u64,
    (crossover, lanes): (Crossover, usize),
) -> Stores {
    let lanes = if result_bytes < SPLIT_BYTES { 1 } else { lanes };
    Stores::of(list, result_bytes, crossover.by(lanes))
}

/// The copies of `list`, which move `payload_bytes`, each cut into a piece for every lane where they
/// are few and large, and how many of `lanes` are to share them in their order.
#[must_use]
pub fn cut(list: &Arc<[NdCopy]>, payload_bytes: u64, lanes: usize) -> (Arc<[NdCopy]>, usize) {
    if lanes < 2 || payload_bytes < SPLIT_BYTES {
        return (Arc::clone(list), 1);
    }
    let copies = match list.len() >= lanes * 4 {
        true => Arc::clone(list),
        false => list.iter().flat_map(|copy| kernels::split(copy, lanes)).collect(),
    };
    let tasks = lanes.min(copies.len()).max(1);
    (copies, tasks)
}

fn no_commit() -> ChannelError {
    ChannelError::new(ChannelErrorKind::Io, "host memory has nothing to commit or to abort")
}

impl Channel for MemcpyChannel {
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_in_flight: self.held.most(), commits: false, tells_late: false }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let job = self.held.take(job)?;
        self.start(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.held.poll(&self.done, done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.done.bell().as_fd())
    }

    fn drain(&mut self) {
        self.held.drain(&self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::layout::{CopyDim, FieldCopy, Stride};

    fn list(copies: usize) -> Arc<[NdCopy]> {
        let strides = vec![Stride { src: 8, dst: 4 }];
        let dims = vec![CopyDim { extent: 1 << 18, src_index: None, dst_index: None }];
        let fields =
            vec![FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, padding: 0, strides }];
        vec![NdCopy { dims, fields }; copies].into()
    }

    #[test]
    fn one_lane_decides_of_what_it_moves_alone() {
        let crossover = Crossover { in_order: SPLIT_BYTES / 2, turned: SPLIT_BYTES / 2 };
        let stores = |bytes, lanes| stores(&list(1), bytes, (crossover, lanes));
        for lanes in [1, 2] {
            assert_eq!(stores(SPLIT_BYTES / 2 - 1, lanes), Stores::Cached);
            assert_eq!(stores(SPLIT_BYTES / 2, lanes), Stores::Streamed);
            assert_eq!(stores(SPLIT_BYTES, lanes), Stores::Streamed);
        }
        let late = (Crossover { in_order: SPLIT_BYTES, ..crossover }, 2);
        assert_eq!(super::stores(&list(1), SPLIT_BYTES, late), Stores::Cached);
    }

    #[test]
    fn few_large_copies_are_cut_and_others_only_shared() {
        let cut = |copies, bytes, lanes| {
            let (cut, tasks) = cut(&list(copies), bytes, lanes);
            (cut.len(), tasks)
        };
        assert_eq!(cut(1, SPLIT_BYTES, 2), (2, 2));
        assert_eq!(cut(7, SPLIT_BYTES, 2), (14, 2));
        assert_eq!(cut(8, SPLIT_BYTES, 2), (8, 2));
        assert_eq!(cut(1, SPLIT_BYTES - 1, 2), (1, 1));
        assert_eq!(cut(8, SPLIT_BYTES, 1), (8, 1));
        assert_eq!(cut(0, SPLIT_BYTES, 2), (0, 1));
    }
}
