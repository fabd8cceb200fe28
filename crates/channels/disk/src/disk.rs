//! The DiskRead and DiskWrite channels (paper, table 2).

use crate::executor::{Ended, Executor};
use crate::flight::{Active, Flight};
use crate::op::{Op, Step};
use crate::pieces::Direction;
use crate::ring::Ring;
use crate::scratch::ScratchPool;
use crate::threads::Threads;
use channel::model::{ChannelError, Completion};
use channel::{Bell, Capabilities, Channel, Held, Job, Region};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Operations in flight for each request held: a request of the largest size goes at once, …
const OPS_PER_REQUEST: u32 = 4;
/// … but beyond so many operations a deeper queue adds latency only.
const MOST_OPS: u32 = 16;
/// More threads than this fight over the disk's queue.
const MOST_THREADS: u32 = 8;

/// How the kernel is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// io_uring where the kernel allows it, else threads.
    Best,
    /// Threads that call `preadv` and `pwritev`.
    Threads,
}

/// How a disk channel is made.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// DiskRead or DiskWrite.
    pub direction: Direction,
    /// Requests held at once; at least one. A request of many operations has up to four of them
    /// in flight for each request that may be held, sixteen in all where the depth is below.
    pub depth: u32,
    /// How the kernel is asked.
    pub interface: Interface,
    /// Regions of host memory that most requests use: the staging arenas. They are registered
    /// with the kernel where it allows that.
    pub arenas: Vec<Arc<Region>>,
}

/// Moves bytes between files and host memory.
///
/// Operations start in ascending offsets of the file within a request, and requests in the order
/// of [`Channel::submit`]. A commit covers the requests that had completed before it was
/// submitted. The kernel cancels the operations of a thread that ends; they are started again by
/// the next call of [`Channel::poll`].
pub struct DiskChannel {
    config: DiskConfig,
    bell: Arc<Bell>,
    executor: Box<dyn Executor>,
    /// Commits and aborts; the executor's threads would do, but a ring has none.
    settler: Threads,
    uses_ring: bool,
    registered: usize,
    flight: Flight,
    scratch: ScratchPool,
    done: Vec<Completion>,
    held: Held,
}

impl DiskChannel {
    /// A channel with nothing in flight.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub fn new(config: DiskConfig) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        let depth = config.depth.clamp(1, 4096);
        let config = DiskConfig { depth, ..config };
        let ring = match config.interface {
            Interface::Best => Ring::new(ops_of(depth), &bell, config.arenas.clone()).ok(),
            Interface::Threads => None,
        };
        let (uses_ring, registered) = (ring.is_some(), ring.as_ref().map_or(0, Ring::fixed_count));
        let executor: Box<dyn Executor> = match ring {
            Some(ring) => Box::new(ring),
            None => Box::new(Threads::new(ops_of(depth).min(MOST_THREADS) as usize, &bell)?),
        };
        let mut channel = Self::with(config, executor, bell)?;
        (channel.uses_ring, channel.registered) = (uses_ring, registered);
        Ok(channel)
    }

    /// A channel whose operations `executor` carries out, which rings `bell`.
    pub(crate) fn with(
        config: DiskConfig,
        executor: Box<dyn Executor>,
        bell: Arc<Bell>,
    ) -> io::Result<Self> {
        let held = Held::new(config.depth);
        let settler = Threads::new(usize::from(config.direction == Direction::Write), &bell)?;
        Ok(DiskChannel {
            config,
            bell,
            executor,
            settler,
            uses_ring: false,
            registered: 0,
            flight: Flight::default(),
            scratch: ScratchPool::default(),
            done: Vec::new(),
            held,
        })
    }

    /// Whether the kernel allowed io_uring; threads do the work otherwise.
    #[must_use]
    pub fn uses_ring(&self) -> bool {
        self.uses_ring
    }

    /// How many buffers of the arenas the kernel let be registered; 0 is slower, not wrong.
    #[must_use]
    pub fn registered_buffers(&self) -> usize {
        self.registered
    }

    fn take(&mut self, job: Job) {
        let request = job.request;
        match Active::begin(job, self.config.direction) {
            Err(error) => self.done.push(Completion { request, result: Err(error) }),
            Ok(active) => {
                let settles = active.settles();
                let slot = self.flight.add(active);
                match settles {
                    Some(commit) => self.settler.settle(self.flight.settle(slot, commit)),
                    None => self.flight.queue(slot),
                }
            }
        }
    }

    /// Starts operations while there is room.
    fn pump(&mut self) {
        while self.flight.ops() < ops_of(self.config.depth) {
            let Some(slot) = self.flight.first() else { break };
            match self.next_op(slot) {
                Some(op) => {
                    self.flight.started(slot);
                    self.executor.start(op);
                }
                None => {
                    self.flight.unqueue();
                    self.done.extend(self.flight.retire(slot));
                }
            }
        }
        self.executor.flush();
    }

    fn next_op(&mut self, slot: usize) -> Option<Box<Op>> {
        let direction = self.config.direction;
        let (active, scratch) = (self.flight.get(slot), &mut self.scratch);
        let plan = active.next_plan(direction)?;
        Some(Op::new(&plan, (slot, direction), active.file()?, scratch))
    }

    /// Takes in what has ended, and starts what that made room for.
    fn advance(&mut self) {
        self.bell.clear();
        let mut settled = Vec::new();
        self.settler.reap_settled(&mut settled);
        for (slot, result) in settled {
            self.end_op(slot, result);
        }
        let mut ended = Vec::new();
        self.executor.reap(&mut ended);
        for one in ended {
            self.take_back(one);
        }
        self.pump();
    }

    fn take_back(&mut self, Ended { mut op, result }: Ended) {
        let slot = op.slot;
        let step = match self.flight.get(slot).file() {
            Some(file) => op.advance(result, file),
            None => Step::Done,
        };
        match step {
            Step::Again => self.executor.start(op),
            Step::Done => {
                op.retire(&mut self.scratch);
                self.end_op(slot, Ok(()));
            }
            Step::Failed(error) => {
                op.retire(&mut self.scratch);
                self.end_op(slot, Err(error));
            }
        }
    }

    fn end_op(&mut self, slot: usize, result: Result<(), ChannelError>) {
        self.flight.ended(slot, result);
        self.done.extend(self.flight.retire(slot));
    }
}

/// Operations in flight at once.
pub(crate) fn ops_of(depth: u32) -> u32 {
    depth.saturating_mul(OPS_PER_REQUEST).min(MOST_OPS.max(depth))
}

impl Channel for DiskChannel {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_in_flight: self.held.most(),
            commits: self.config.direction == Direction::Write,
            tells_late: false,
        }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let job = self.held.take(job)?;
        self.take(job);
        self.pump();
        if !self.done.is_empty() {
            self.bell.ring();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.advance();
        self.held.tell(self.done.len());
        done.append(&mut self.done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn drain(&mut self) {
        self.advance();
        while !self.flight.is_idle() {
            self.bell.wait();
            self.advance();
        }
        if !self.done.is_empty() {
            self.bell.ring();
        }
    }
}

impl Drop for DiskChannel {
    fn drop(&mut self) {
        self.drain();
    }
}
