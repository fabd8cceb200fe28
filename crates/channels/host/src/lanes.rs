//! Threads that copy.

use crate::copy::{self, Bases};
use crate::cores;
use channel::layout::NdCopy;
use channel::model::{ChannelError, ChannelErrorKind, Completion, RequestId};
use channel::{DoneQueue, Job, TaskQueue};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A request whose bounds have been checked, shared by the lanes that work on it.
#[derive(Debug)]
pub(crate) struct Running {
    /// Names the request in its completion.
    pub(crate) request: RequestId,
    /// Keeps the regions alive until the last task has ended, which takes it.
    pub(crate) job: Mutex<Option<Job>>,
    /// What to copy; the job's own list, or one cut into pieces.
    pub(crate) copies: Arc<[NdCopy]>,
    /// Where.
    pub(crate) bases: Bases,
    /// Tasks that have not ended.
    pub(crate) left: AtomicUsize,
    /// Whether a task panicked.
    pub(crate) broken: AtomicBool,
}

/// Some of the copies of a request.
#[derive(Debug)]
pub(crate) struct Task {
    /// The request.
    pub(crate) running: Arc<Running>,
    /// Which of its copies.
    pub(crate) part: Range<usize>,
}

impl Task {
    /// Copies; the last task of a request gives its completion. The request lets go of its
    /// regions before anybody hears of it.
    fn carry_out(self) -> Option<Completion> {
        let work = AssertUnwindSafe(|| {
            for copy in &self.running.copies[self.part.clone()] {
                // SAFETY: the bases are of this job's checked work, of which the copies are
                // pieces, and `running` holds both regions until the last task has ended.
                unsafe { copy::run(copy, self.running.bases) };
            }
        });
        if catch_unwind(work).is_err() {
            self.running.broken.store(true, Ordering::Relaxed);
        }
        // Each task's bytes happen before the completion: release here, acquire by the last.
        if self.running.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        // Lanes that have ended their tasks may hold `running` for a while yet.
        drop(self.running.job.lock().unwrap_or_else(PoisonError::into_inner).take());
        let request = self.running.request;
        let result = outcome(self.running.broken.load(Ordering::Relaxed));
        Some(Completion { request, result })
    }
}

fn outcome(broken: bool) -> Result<(), ChannelError> {
    if !broken {
        return Ok(());
    }
    Err(ChannelError::new(ChannelErrorKind::Io, "a lane panicked while it copied"))
}

/// Threads that take tasks in order, and sleep while there are none.
#[derive(Debug)]
pub(crate) struct Lanes {
    tasks: Arc<TaskQueue<Task>>,
    threads: Vec<JoinHandle<()>>,
}

impl Lanes {
    /// `count` lanes that report to `done`, kept on `cores` where some are given.
    pub(crate) fn new(
        count: usize,
        cores: Option<&BTreeSet<usize>>,
        done: &Arc<DoneQueue<Completion>>,
    ) -> io::Result<Self> {
        let mut lanes = Lanes { tasks: Arc::new(TaskQueue::new()), threads: Vec::new() };
        for lane in 0..count.max(1) {
            let (tasks, done) = (Arc::clone(&lanes.tasks), Arc::clone(done));
            let cores = cores.cloned();
            let thread = Builder::new().name(format!("isometry-lane-{lane}"));
            lanes.threads.push(thread.spawn(move || serve(&tasks, &done, cores.as_ref()))?);
        }
        Ok(lanes)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Hands `task` to the first lane that is free.
    pub(crate) fn push(&self, task: Task) {
        self.tasks.push(task);
    }
}

fn serve(tasks: &TaskQueue<Task>, done: &DoneQueue<Completion>, cores: Option<&BTreeSet<usize>>) {
    if let Some(cores) = cores {
        // A cpuset that changed since may refuse; the lane is as good elsewhere.
        let _ = cores::bind(cores);
    }
    while let Some(task) = tasks.take() {
        if let Some(completion) = task.carry_out() {
            done.push(completion);
        }
    }
}

impl Drop for Lanes {
    /// Waits until every task has been carried out.
    fn drop(&mut self) {
        self.tasks.close();
        for thread in self.threads.drain(..) {
            // A lane catches the panics of its work.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostProvider, Pages};
    use channel::Provider;
    use channel::model::{CopyWork, MemoryId, NodeId, Place, RegionId, Work};
    use kernels::Stores;

    #[test]
    fn the_regions_are_free_when_the_last_task_has_ended() {
        let memory = MemoryId { node: NodeId(0), index: 0 };
        let region = HostProvider::new(memory, Pages::default()).allocate(8, 8).unwrap();
        let (region, copies) = (Arc::new(region), Arc::from([]));
        let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
        let list = Arc::clone(&copies);
        let work = CopyWork { list, src: place, dst: place, payload_bytes: 0, result_bytes: 0 };
        let bases = copy::check(&work, (&region, &region), Stores::Cached).unwrap();
        let (src, dst) = (Arc::clone(&region), Arc::clone(&region));
        let job = Job { request: RequestId(1), work: Work::Copy(work), src, dst };
        let running = Arc::new(Running {
            request: job.request,
            job: Mutex::new(Some(job)),
            copies,
            bases,
            left: AtomicUsize::new(2),
            broken: AtomicBool::new(false),
        });
        let task = || Task { running: Arc::clone(&running), part: 0..0 };
        assert_eq!((task().carry_out(), Arc::strong_count(&region)), (None, 3));
        assert!(task().carry_out().is_some());
        assert_eq!(Arc::strong_count(&region), 1, "the task before still holds `running`");
    }
}
