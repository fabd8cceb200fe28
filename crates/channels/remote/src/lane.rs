use crate::RemoteSpan;
use channel::accelerator::Device;
use channel::model::{
    ChannelError, ChannelErrorKind, Completion, CopyWork, MemoryId, NodeId, Work,
};
use channel::{DoneQueue, Job, Region, check_bounds};
use fabric::{Error, ErrorKind, Fabric, Handle, Patience};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a peer may take nothing and say nothing until what goes to it is given up, so that others
/// have their turn: as long as engines wait for each other.
const PATIENCE: Duration = Duration::from_secs(5);

/// Up to so many bytes are copied by who submits them.
const SMALL_BYTES: u64 = 64 << 10;

/// What a channel and its thread share.
#[derive(Debug)]
pub(crate) struct Lane {
    fabric: Arc<Fabric>,
    /// Those whose memory is put out of, by that.
    devices: BTreeMap<MemoryId, Arc<dyn Device>>,
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
    since: Instant,
}

/// What its thread knows.
#[derive(Default)]
struct Serving<'a> {
    open: VecDeque<Open<'a>>,
    /// Peers that were waited for in vain, and since when they are not again.
    silent: BTreeMap<NodeId, Instant>,
}

impl Lane {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        devices: BTreeMap<MemoryId, Arc<dyn Device>>,
        done: DoneQueue<Completion>,
    ) -> Lane {
        Lane { fabric, devices, tasks: Mutex::default(), changed: Condvar::new(), done }
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
        let _patience = Patience::begin(PATIENCE);
        let mut serving = Serving::default();
        while self.wait_for_task().is_some() {
            self.work(&mut serving);
            while !serving.open.is_empty() {
                // Woken, or it is time to see who has said nothing.
                let _ = self.fabric.sleep_until(self.patience_left(&serving), || {
                    serving.open.iter().any(|open| open.handle.has_news()) || self.has_task()
                });
                self.work(&mut serving);
            }
        }
    }

    /// Starts what was pushed, and ends what is over.
    fn work<'a>(&'a self, serving: &mut Serving<'a>) {
        while let Some(job) = self.next() {
            match self.start_unless_silent(&job, serving) {
                Ok(handle) => serving.open.push_back(Open { job, handle, since: Instant::now() }),
                Err(error) => self.end(job, Err(error)),
            }
            self.settle(serving);
        }
        self.settle(serving);
    }

    /// As [`Lane::start`], but for some seconds does not wait again for a peer that was waited for in vain,
    /// unless it has said something.
    fn start_unless_silent(
        &self,
        job: &Job,
        serving: &mut Serving<'_>,
    ) -> Result<Handle<'_>, ChannelError> {
        let Some(peer) = peer_of(job) else { return self.start(job) };
        let is_recent = |at: &Instant| at.elapsed() < PATIENCE;
        if serving.silent.get(&peer).is_some_and(is_recent) && self.fabric.lost(peer).is_none() {
            let waited = self.fabric.silence(peer);
            if waited >= PATIENCE {
                return Err(failed(&Error::Silent { peer, waited }));
            }
        }
        let started = self.start(job);
        if started.as_ref().is_err_and(|error| error.kind == ChannelErrorKind::PeerLost) {
            serving.silent.insert(peer, Instant::now());
        }
        started
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
        let at = span.at.saturating_add(work.dst.offset);
        let put = match &span.window {
            None => {
                let (bytes, base) = source(&job.src, work)?;
                self.fabric.put_copies(span.node, &work.list, (bytes, base), at)
            }
            Some(window) => {
                let from = job.src.device_span().ok_or_else(|| unknown(&job.src))?;
                let from = (from.start(), job.src.len_bytes(), work.src.offset);
                // SAFETY: it is memory of a device of this process, which the job keeps; nobody writes what
                // the work copies until that has ended, as in `source`.
                unsafe { self.fabric.put_to_window((span.node, window, at), &work.list, from) }
            }
        };
        put.map_err(|error| failed(&error))
    }

    /// Ends those whose bytes have arrived, or never will.
    fn settle(&self, serving: &mut Serving<'_>) {
        for _ in 0..serving.open.len() {
            let Some(mut first) = serving.open.pop_front() else { return };
            match first.handle.try_wait() {
                Ok(false) => match self.silent_since(&first) {
                    None => serving.open.push_back(first),
                    Some(error) => {
                        let peer = peer_of(&first.job);
                        serving.silent.extend(peer.map(|peer| (peer, Instant::now())));
                        self.end(first.job, Err(failed(&error)));
                    }
                },
                Ok(true) => self.end(first.job, Ok(())),
                Err(error) => self.end(first.job, Err(failed(&error))),
            }
        }
    }

    /// That its peer has said nothing since a job was started, and for too long. What was put may still
    /// arrive, out of memory that is not the job's.
    fn silent_since(&self, open: &Open<'_>) -> Option<Error> {
        let (peer, waited) = self.waited(open)?;
        (waited >= PATIENCE).then_some(Error::Silent { peer, waited })
    }

    /// For how long a job's peer has said nothing since that was started.
    fn waited(&self, open: &Open<'_>) -> Option<(NodeId, Duration)> {
        let peer = peer_of(&open.job)?;
        Some((peer, self.fabric.silence(peer).min(open.since.elapsed())))
    }

    /// How soon a job may be given up.
    fn patience_left(&self, serving: &Serving<'_>) -> Option<Duration> {
        let waited = serving.open.iter().filter_map(|open| self.waited(open));
        waited.map(|(_, waited)| PATIENCE.saturating_sub(waited)).min()
    }

    fn end(&self, job: Job, result: Result<(), ChannelError>) {
        let (request, [from, to]) = (job.request, [job.src.memory(), job.dst.memory()]);
        if let Some(device) = self.devices.get(&from)
            && let Err(why) = &result
            && why.kind == ChannelErrorKind::Io
        {
            // The network does not take what it says that it does.
            device.health().lose_reach(to, format!("{}: {}", device.health().name(), why.detail));
        }
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

/// Where a job's bytes go.
fn peer_of(job: &Job) -> Option<NodeId> {
    job.dst.view().map(|span: &RemoteSpan| span.node)
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
    let detail = format!("a copy of {region:?}, which joins nothing of this node to another's");
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}

fn no_commit() -> ChannelError {
    ChannelError::new(ChannelErrorKind::Io, "memory has nothing to commit or to abort")
}
