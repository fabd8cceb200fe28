//! A channel that writes down what it is asked and when it is done.

use crate::{Capabilities, Channel, Job};
use model::{Completion, RequestId, Time, Work};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceKind {
    /// The channel took it. The payload of a commit or an abort is 0.
    Submitted {
        /// The bytes that it moves.
        payload_bytes: u64,
    },
    /// It ended.
    Completed {
        /// Whether without an error.
        ok: bool,
    },
}

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// When, by the trace's clock.
    pub at: Time,
    /// Which request.
    pub request: RequestId,
    /// What happened.
    pub kind: TraceKind,
}

/// The last events of a channel; the oldest go when it is full. Clones share one log.
#[derive(Debug, Clone)]
pub struct TraceLog {
    limit: usize,
    events: Arc<Mutex<VecDeque<TraceEvent>>>,
}

impl TraceLog {
    /// An empty log of at most `limit` events.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        TraceLog { limit, events: Arc::default() }
    }

    /// Takes all events out, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<TraceEvent> {
        self.lock().drain(..).collect()
    }

    fn add(&self, event: TraceEvent) {
        let mut events = self.lock();
        if events.len() >= self.limit {
            events.pop_front();
        }
        events.push_back(event);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<TraceEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel with a log.
#[derive(Debug)]
pub struct Trace<C, F> {
    inner: C,
    clock: F,
    log: TraceLog,
}

impl<C: Channel, F: Fn() -> Time + Send> Trace<C, F> {
    /// `inner`, whose requests are written to `log` with the time that `clock` says.
    #[must_use]
    pub fn new(inner: C, clock: F, log: TraceLog) -> Self {
        Trace { inner, clock, log }
    }
}

impl<C: Channel, F: Fn() -> Time + Send> Channel for Trace<C, F> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let at = (self.clock)();
        let request = job.request;
        let payload_bytes = match &job.work {
            Work::Copy(copy) => copy.payload_bytes,
            Work::Commit { .. } | Work::Abort { .. } => 0,
        };
        self.inner.submit(job)?;
        self.log.add(TraceEvent { at, request, kind: TraceKind::Submitted { payload_bytes } });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        let first = done.len();
        self.inner.poll(done);
        for completion in &done[first..] {
            let kind = TraceKind::Completed { ok: completion.result.is_ok() };
            self.log.add(TraceEvent { at: (self.clock)(), request: completion.request, kind });
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wake_fd()
    }

    fn drain(&mut self) {
        self.inner.drain();
    }
}
