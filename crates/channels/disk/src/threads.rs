//! A few threads for what blocks: plain reads and writes where the kernel forbids io_uring, and
//! commits.

use crate::executor::{Ended, Executor};
use crate::file::FileRegion;
use crate::op::Op;
use crate::pieces::Direction;
use channel::model::ChannelError;
use channel::{Bell, DoneQueue, Region, TaskQueue};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The kernel's own bound on segments.
const SEGMENTS: usize = 1024;

/// The end of a file's way.
#[derive(Debug)]
pub(crate) struct Settle {
    /// The job, by slot.
    pub(crate) slot: usize,
    /// The file.
    pub(crate) region: Arc<Region>,
    /// Commit, with a sync or without; or else abort.
    pub(crate) commit: Option<bool>,
}

impl Settle {
    fn carry_out(&self) -> Result<(), ChannelError> {
        match (self.region.view::<FileRegion>(), self.commit) {
            (Some(file), Some(sync)) => file.commit(sync),
            (Some(file), None) => file.abort(),
            (None, _) => Ok(()),
        }
    }
}

enum Task {
    Transfer(Box<Op>),
    Settle(Settle),
}

/// Threads that sleep while there is nothing to do.
pub(crate) struct Threads {
    tasks: Arc<TaskQueue<Task>>,
    ended: Arc<DoneQueue<Ended>>,
    settled: Arc<DoneQueue<(usize, Result<(), ChannelError>)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// `count` threads that ring `bell`.
    pub(crate) fn new(count: usize, bell: &Arc<Bell>) -> io::Result<Self> {
        let mut threads = Threads {
            tasks: Arc::new(TaskQueue::new()),
            ended: Arc::new(DoneQueue::new(Arc::clone(bell))),
            settled: Arc::new(DoneQueue::new(Arc::clone(bell))),
            threads: Vec::new(),
        };
        for index in 0..count {
            let (tasks, ended) = (Arc::clone(&threads.tasks), Arc::clone(&threads.ended));
            let settled = Arc::clone(&threads.settled);
            let thread = Builder::new().name(format!("isometry-disk-{index}"));
            let work = move || {
                while let Some(task) = tasks.take() {
                    match task {
                        Task::Transfer(op) => ended.push(transfer(op)),
                        Task::Settle(settle) => settled.push((settle.slot, settle.carry_out())),
                    }
                }
            };
            threads.threads.push(thread.spawn(work)?);
        }
        Ok(threads)
    }

    /// Commits or aborts.
    pub(crate) fn settle(&self, settle: Settle) {
        self.tasks.push(Task::Settle(settle));
    }

    /// Appends what was committed or aborted since the last call.
    pub(crate) fn reap_settled(&self, to: &mut Vec<(usize, Result<(), ChannelError>)>) {
        self.settled.take(to);
    }
}

impl Executor for Threads {
    fn start(&mut self, op: Box<Op>) {
        self.tasks.push(Task::Transfer(op));
    }

    fn flush(&mut self) {}

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        self.ended.take(ended);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.tasks.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One `preadv` or `pwritev`.
fn transfer(op: Box<Op>) -> Ended {
    let segments = &op.segments()[..op.segments().len().min(SEGMENTS)];
    // SAFETY: the segments lie in the operation's own buffer or in memory of its job, which the
    // channel holds until the operation has come back.
    let result = unsafe { call(&op, segments) };
    Ended { op, result }
}

/// Asks the kernel to move `segments`, from where `op` stands.
///
/// # Safety
/// The segments may be read, or written where `op` reads a file, until this returns.
pub(crate) unsafe fn call(op: &Op, segments: &[libc::iovec]) -> Result<usize, Errno> {
    let count = i32::try_from(segments.len()).expect("at most 1024");
    let (start, offset) = (segments.as_ptr(), op.offset.cast_signed());
    // SAFETY: the caller's promise is what the kernel asks for.
    let bytes = unsafe {
        match op.direction {
            Direction::Read => libc::preadv(op.fd, start, count, offset),
            Direction::Write => libc::pwritev(op.fd, start, count, offset),
        }
    };
    usize::try_from(bytes).map_err(|_| {
        let code = io::Error::last_os_error().raw_os_error();
        code.map_or(Errno::IO, Errno::from_raw_os_error)
    })
}
