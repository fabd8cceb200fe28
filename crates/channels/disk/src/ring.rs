//! Operations by io_uring.
//!
//! **Hazard.** The kernel reads and writes memory behind the program's back until it says that it
//! has stopped. **Guarantee.** An operation stays in its slot, with its segments and its buffer,
//! until its completion is here; the channel holds the job, and so the memory, as long; registered
//! memory is held as long as the ring. **Structure.** A slot for each operation in flight; the
//! slot is the completion's user data.

use crate::executor::{Ended, Executor};
use crate::op::Op;
use crate::pieces::Direction;
use channel::{Bell, Region};
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// The kernel's bound on one registered buffer.
const BUFFER_BYTES: usize = 1 << 30;

/// The pause before the kernel is asked again, where it had no room for anything.
const RETRY: Duration = Duration::from_millis(1);

/// Memory that the ring knows.
struct Fixed {
    start: usize,
    end: usize,
    index: u16,
}

/// An io_uring that rings the channel's bell.
pub(crate) struct Ring {
    ring: IoUring,
    bell: Arc<Bell>,
    slots: Vec<Option<Box<Op>>>,
    free: Vec<usize>,
    /// Slots in the submission queue that the kernel has not taken.
    queued: Vec<usize>,
    /// Why the kernel takes nothing any more.
    broken: Option<Errno>,
    fixed: Vec<Fixed>,
    /// Keeps the registered memory alive; last, so that the ring goes before it.
    _arenas: Vec<Arc<Region>>,
}

impl Ring {
    /// A ring for `depth` operations. `arenas` are registered where the kernel lets them be.
    pub(crate) fn new(depth: u32, bell: &Arc<Bell>, arenas: Vec<Arc<Region>>) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        ring.submitter().register_eventfd(bell.as_fd().as_raw_fd())?;
        let fixed = register(&ring, &arenas).unwrap_or_default();
        let depth = depth as usize;
        Ok(Ring {
            ring,
            bell: Arc::clone(bell),
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            queued: Vec::with_capacity(depth),
            broken: None,
            fixed,
            _arenas: arenas,
        })
    }

    /// How many buffers are registered.
    pub(crate) fn fixed_count(&self) -> usize {
        self.fixed.len()
    }

    fn entry(&self, op: &Op) -> Entry {
        let (fd, offset) = (types::Fd(op.fd), op.offset);
        let segments = op.segments();
        if let [one] = segments {
            let (start, len) = (one.iov_base.cast::<u8>(), one.iov_len as u32);
            let index = self.index_of(start as usize, one.iov_len);
            match (op.direction, index) {
                (Direction::Read, Some(index)) => {
                    opcode::ReadFixed::new(fd, start, len, index).offset(offset).build()
                }
                (Direction::Write, Some(index)) => {
                    opcode::WriteFixed::new(fd, start, len, index).offset(offset).build()
                }
                (Direction::Read, None) => opcode::Read::new(fd, start, len).offset(offset).build(),
                (Direction::Write, None) => {
                    opcode::Write::new(fd, start, len).offset(offset).build()
                }
            }
        } else {
            let (start, count) = (segments.as_ptr(), segments.len() as u32);
            match op.direction {
                Direction::Read => opcode::Readv::new(fd, start, count).offset(offset).build(),
                Direction::Write => opcode::Writev::new(fd, start, count).offset(offset).build(),
            }
        }
    }

    fn index_of(&self, start: usize, len: usize) -> Option<u16> {
        let holds = |f: &&Fixed| f.start <= start && start + len <= f.end;
        self.fixed.iter().find(holds).map(|f| f.index)
    }

    fn end(&mut self, slot: usize, result: Result<usize, Errno>) -> Option<Ended> {
        let op = self.slots[slot].take()?;
        self.free.push(slot);
        Some(Ended { op, result })
    }
}

/// Registers `arenas`, in buffers of at most 1 GiB.
fn register(ring: &IoUring, arenas: &[Arc<Region>]) -> Option<Vec<Fixed>> {
    let mut fixed = Vec::new();
    for span in arenas.iter().filter_map(|arena| arena.host_span()) {
        let (start, end) = (span.start().as_ptr() as usize, span.len_bytes());
        let end = start + end;
        for start in (start..end).step_by(BUFFER_BYTES) {
            let index = u16::try_from(fixed.len()).ok()?;
            fixed.push(Fixed { start, end: end.min(start + BUFFER_BYTES), index });
        }
    }
    if fixed.is_empty() {
        return None;
    }
    let iovec = |f: &Fixed| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(f.start),
        iov_len: f.end - f.start,
    };
    let iovecs: Vec<_> = fixed.iter().map(iovec).collect();
    // SAFETY: the buffers lie in the arenas, which the ring's owner keeps until the ring is gone.
    let registered = unsafe { ring.submitter().register_buffers(&iovecs) };
    // Beyond the memlock limit the kernel refuses; operations work without.
    registered.is_ok().then_some(fixed)
}

impl Executor for Ring {
    fn start(&mut self, op: Box<Op>) {
        let slot = self.free.pop().expect("no more than the depth are in flight");
        let entry = self.entry(&op).user_data(slot as u64);
        self.slots[slot] = Some(op);
        self.queued.push(slot);
        if self.broken.is_some() {
            // What the kernel never takes would fill the queue.
            return;
        }
        // SAFETY: the entry's descriptor belongs to the job's file and its memory to the job or
        // to the operation, and all of them stay until the completion is here.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue is as long as the depth");
    }

    fn flush(&mut self) {
        while !self.queued.is_empty() && self.broken.is_none() {
            match self.ring.submit() {
                Ok(count) => drop(self.queued.drain(..count.min(self.queued.len()))),
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => break,
                    errno => self.broken = Some(errno.unwrap_or(Errno::IO)),
                },
            }
        }
        if !self.queued.is_empty() && self.queued.len() == self.slots.len() - self.free.len() {
            // Nothing is in flight whose completion would wake the driver for another try, and a
            // try without a pause would keep a core busy while the kernel has no memory.
            std::thread::sleep(RETRY);
            self.bell.ring();
        }
    }

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        let entries: Vec<_> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (slot, code) in entries {
            let result = usize::try_from(code).map_err(|_| Errno::from_raw_os_error(-code));
            let slot = usize::try_from(slot).expect("a slot");
            ended.extend(self.end(slot, result));
        }
        if let Some(errno) = self.broken {
            for slot in std::mem::take(&mut self.queued) {
                ended.extend(self.end(slot, Err(errno)));
            }
        }
    }
}
