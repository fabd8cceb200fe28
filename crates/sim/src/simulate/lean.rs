//! Channels that only take their time: no adversary, no bytes, no faults.

use crate::channel::{ChannelSpec, VirtualChannel};
use crate::rng::Rng;
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

/// A channel that serves one request at a time, in their order; latencies of several overlap.
#[derive(Debug)]
pub(crate) struct LeanChannel {
    meter: Meter,
    latency: Duration,
    jobs: VecDeque<Job>,
    is_serving: bool,
}

impl LeanChannel {
    pub(crate) fn new(spec: &ChannelSpec) -> Self {
        LeanChannel {
            meter: Meter::new(spec),
            latency: Duration::from_nanos(spec.latency_ns),
            jobs: VecDeque::new(),
            is_serving: false,
        }
    }

    /// Takes a request.
    pub(crate) fn submit(&mut self, now: Time, request: Request) {
        let (request, service) = self.meter.measure(request);
        self.jobs.push_back(Job { request, service, ready: now + self.latency });
    }

    /// Whether one request is here, and no other.
    pub(crate) fn has_one(&self) -> bool {
        self.jobs.len() == 1
    }

    /// From when on the next request can be served, unless one is.
    pub(crate) fn ready_at(&self) -> Option<Time> {
        self.jobs.front().filter(|_| !self.is_serving).map(|job| job.ready)
    }

    /// Serves the next request, whose time has come.
    pub(crate) fn begin(&mut self) -> Option<&Job> {
        self.is_serving = true;
        self.jobs.front()
    }

    /// Ends the request that is served.
    pub(crate) fn end(&mut self) -> Option<Request> {
        self.is_serving = false;
        self.jobs.pop_front().map(|job| job.request)
    }
}

/// Says how long requests take, by the rule of [`VirtualChannel`]: one without latency or jitter
/// that is never idle, so that each request takes what its clock moves on.
#[derive(Debug)]
struct Meter {
    channel: VirtualChannel,
    clock: Time,
}

impl Meter {
    fn new(spec: &ChannelSpec) -> Self {
        let spec = ChannelSpec { latency_ns: 0, jitter_ns: 0, ..spec.clone() };
        Meter { channel: VirtualChannel::new(spec, Rng::new(0)), clock: Time(0) }
    }

    fn measure(&mut self, request: Request) -> (Request, Duration) {
        let (id, before) = (request.id, self.clock);
        self.clock = self.channel.submit(before, 0, request).complete;
        let flight = self.channel.complete(id).expect("it was just submitted");
        (flight.request, self.clock.since(before))
    }
}

/// Payload of a request.
pub(crate) fn payload_bytes(request: &Request) -> u64 {
    match &request.work {
        Work::Copy(work) => work.payload_bytes,
        Work::Commit { .. } | Work::Abort { .. } => 0,
    }
}
