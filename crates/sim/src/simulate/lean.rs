//! Channels that only take their time: no adversary, no bytes, no faults.

use crate::channel::ChannelSpec;
use model::{Request, Time, Work};
use std::collections::VecDeque;
use std::time::Duration;

/// A request in a channel.
#[derive(Debug)]
pub(crate) struct Job {
    /// What was asked.
    pub(crate) request: Request,
    /// What it takes where no wire holds it up.
    pub(crate) service: Duration,
    /// From when on it can be served: its latency is over.
    pub(crate) ready: Time,
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Served {
    /// What was asked.
    pub(crate) request: Request,
    /// From when on the channel served it.
    pub(crate) from: Time,
}

/// A channel that serves one request at a time, in their order; latencies of several overlap.
#[derive(Debug)]
pub(crate) struct LeanChannel {
    spec: ChannelSpec,
    jobs: VecDeque<Job>,
    /// Since when the first request is served.
    serving: Option<Time>,
}

impl LeanChannel {
    pub(crate) fn new(spec: ChannelSpec) -> Self {
        LeanChannel { spec, jobs: VecDeque::new(), serving: None }
    }

    /// Takes a request.
    pub(crate) fn submit(&mut self, now: Time, request: Request) {
        let service = match &request.work {
            Work::Copy(work) => self.spec.service(work),
            Work::Commit { .. } | Work::Abort { .. } => Duration::ZERO,
        };
        let ready = now + Duration::from_nanos(self.spec.latency_ns);
        self.jobs.push_back(Job { request, service, ready });
    }

    /// Whether one request is here, and no other.
    pub(crate) fn has_one(&self) -> bool {
        self.jobs.len() == 1
    }

    /// From when on the next request can be served, unless one is.
    pub(crate) fn ready_at(&self) -> Option<Time> {
        self.jobs.front().filter(|_| self.serving.is_none()).map(|job| job.ready)
    }

    /// Serves the next request, whose time has come.
    pub(crate) fn begin(&mut self, now: Time) -> Option<&Job> {
        self.serving = Some(now);
        self.jobs.front()
    }

    /// Ends the request that is served.
    pub(crate) fn end(&mut self) -> Option<Served> {
        let from = self.serving.take()?;
        self.jobs.pop_front().map(|job| Served { request: job.request, from })
    }
}

/// Payload of a request.
pub(crate) fn payload_bytes(request: &Request) -> u64 {
    match &request.work {
        Work::Copy(work) => work.payload_bytes,
        Work::Commit { .. } | Work::Abort { .. } => 0,
    }
}
