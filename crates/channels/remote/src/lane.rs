use crate::RemoteSpan;
use channel::model::{ChannelError, ChannelErrorKind, Completion, CopyWork, Work};
use channel::{DoneQueue, Job, Region, check_bounds};
use fabric::{Error, ErrorKind, Fabric, Handle};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Up to so many bytes are copied by who submits them.
const SMALL_BYTES: u64 = 64 << 10;

/// What a channel and its thread share.
#[derive(Debug)]
pub(crate) struct Lane {
    fabric: std::sync::Arc<Fabric>,
    tasks: Mutex<Tasks>,
    changed: Condvar,
    pub(crate) done: DoneQueue<Completion>,
}

#[derive(Debug, Default)]
struct Tasks {
    jobs: VecDeque<Job>,
    is_closed: bool,
    /// Whether the thread waits for peers, and so for messages.
    is_open: bool,
}

/// A job whose bytes are on their way.
struct Open<'a> {
    job: Job,
    handle: Handle<'a>,
}

impl Lane {
    pub(crate) fn new(fabric: std::sync::Arc<Fabric>, done: DoneQueue<Completion>) -> Lane {
        Lane { fabric, tasks: Mutex::default(), changed: Condvar::new(), done }
    }

    /// Carries out what is small and needs no peer, and leaves the rest to the thread.
    pub(crate) fn take(&self, job: Job) {
        if self.is_small(&job) {
            let result = self.start(&job).map(drop);
            return self.end(job, result);
        }
        self.change(|tasks| tasks.jobs.push_back(job));
    }

    /// Whether a job costs less than waking the thread would, and none comes before it there.
    fn is_small(&self, job: &Job) -> bool {
        let Work::Copy(work) = &job.work else { return false };
        let reaches = |span: &RemoteSpan| self.fabric.reaches(span.node);
        work.payload_bytes <= SMALL_BYTES && job.dst.view().is_some_and(reaches) && !self.has_task()
    }

    /// Lets [`Lane::serve`] return once all has ended.
    pub(crate) fn close(&self) {
        self.change(|tasks| tasks.is_closed = true);
    }

    /// Tells the thread of something.
    fn change(&self, change: impl FnOnce(&mut Tasks)) {
        let mut tasks = self.tasks();
        change(&mut tasks);
        if tasks.is_open {
            self.fabric.wake();
        }
        self.changed.notify_one();
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // No method leaves a half-changed state behind when it panics.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out what is pushed, until closed.
    pub(crate) fn serve(&self) {
        let mut open = VecDeque::new();
        while self.wait_for_task().is_some() {
            self.work(&mut open);
            while !open.is_empty() {
                let waited = self.fabric.sleep_until(None, || {
                    open.iter().any(|open: &Open<'_>| open.handle.has_news()) || self.has_task()
                });
                debug_assert!(waited.is_ok(), "it has all the time and is no handler");
                self.work(&mut open);
            }
        }
    }

    /// Starts what was pushed, and ends what is over.
    fn work<'a>(&'a self, open: &mut VecDeque<Open<'a>>) {
        while let Some(job) = self.next() {
            match self.start(&job) {
                Ok(handle) => open.push_back(Open { job, handle }),
                Err(error) => self.end(job, Err(error)),
            }
            self.settle(open);
        }
        self.settle(open);
    }

    /// Sleeps where no message wakes it; `None` when it is closed and all has ended.
    fn wait_for_task(&self) -> Option<()> {
        let mut tasks = self.tasks();
        tasks.is_open = false;
        while tasks.jobs.is_empty() {
            if tasks.is_closed {
                return None;
            }
            tasks = self.changed.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
        tasks.is_open = true;
        Some(())
    }

    fn next(&self) -> Option<Job> {
        self.tasks().jobs.pop_front()
    }

    fn has_task(&self) -> bool {
        !self.tasks().jobs.is_empty()
    }

    fn start(&self, job: &Job) -> Result<Handle<'_>, ChannelError> {
        let Work::Copy(work) = &job.work else { return Err(no_commit()) };
        let span: &RemoteSpan = job.dst.view().ok_or_else(|| unknown(&job.dst))?;
        check_bounds(work, job.src.len_bytes(), job.dst.len_bytes())?;
        let (bytes, base) = source(&job.src, work)?;
        let at = span.at.saturating_add(work.dst.offset);
        let put = self.fabric.put_copies(span.node, &work.list, (bytes, base), at);
        put.map_err(|error| failed(&error))
    }

    /// Ends those whose bytes have arrived, or never will.
    fn settle(&self, open: &mut VecDeque<Open<'_>>) {
        for _ in 0..open.len() {
            let Some(mut first) = open.pop_front() else { return };
            match first.handle.try_wait() {
                Ok(false) => open.push_back(first),
                Ok(true) => self.end(first.job, Ok(())),
                Err(error) => self.end(first.job, Err(failed(&error))),
            }
        }
    }

    fn end(&self, job: Job, result: Result<(), ChannelError>) {
        let request = job.request;
        // Its regions first: who hears of the end may want them back.
        drop(job);
        self.done.push(Completion { request, result });
    }
}

/// The bytes that `work`, whose bounds were checked, reads from, and where its offset 0 is in them.
fn source<'a>(region: &'a Region, work: &CopyWork) -> Result<(&'a [u8], usize), ChannelError> {
    let span = region.host_span().ok_or_else(|| unknown(region))?;
    let base = usize::try_from(work.src.offset).map_err(|_| unknown(region))?;
    // SAFETY: the bytes are there as long as the region is. Of these only those are read that the
    // work copies, which nobody writes until it has ended: neither the engine, whose window they are
    // in, nor the user, who was asked not to.
    let bytes = unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) };
    Ok((bytes, base))
}

fn failed(error: &Error) -> ChannelError {
    let kind = match error.kind() {
        ErrorKind::PeerLost => ChannelErrorKind::PeerLost,
        ErrorKind::Usage => ChannelErrorKind::OutOfBounds,
        _ => ChannelErrorKind::Io,
    };
    ChannelError::new(kind, error.to_string())
}

fn unknown(region: &Region) -> ChannelError {
    let detail = format!("a copy of {region:?}, which does not join host memory to another node");
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}

fn no_commit() -> ChannelError {
    ChannelError::new(ChannelErrorKind::Io, "memory has nothing to commit or to abort")
}
