//! Virtual channels: they start requests in order, end them in any order, and choose the worst
//! legal moment for every byte.
//!
//! A request may read its source at any moment between its submission and its completion, and
//! write its destination likewise; its destination holds anything until it has completed. So the
//! channel scribbles on the destination at submission, often again later, reads early or late by
//! chance, and mostly writes the real bytes at the last moment.

use crate::memory::Owner;
use crate::rng::Rng;
use crate::scenario::Rule;
use layout::shape_class;
use model::{
    ChannelError, ChannelErrorKind, ChannelId, CopyWork, Curves, Request, RequestId, Time, Work,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A channel of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelSpec {
    /// Its id in plans.
    pub id: ChannelId,
    /// Bytes per second against the length of a run.
    pub curves: Curves,
    /// From submission to the first byte.
    pub latency_ns: u64,
    /// The most that a completion comes later than it could, by chance; 0 keeps them in order.
    pub jitter_ns: u64,
    /// The most requests that it holds.
    pub max_in_flight: u32,
    /// Whom its worker serves.
    pub rule: Rule,
}

/// When a request's bytes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moments {
    pub(crate) read: Time,
    pub(crate) scribble: Time,
    pub(crate) write: Time,
    pub(crate) complete: Time,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) owner: Owner,
    pub(crate) request: Request,
    /// What it has read.
    pub(crate) taken: Vec<u8>,
    fault: Option<ChannelErrorKind>,
}

impl Flight {
    /// What to copy, unless it is a commit or an abort.
    pub(crate) fn copy(&self) -> Option<&CopyWork> {
        copy_of(&self.request)
    }

    /// Makes it fail.
    pub(crate) fn fail(&mut self, kind: ChannelErrorKind) {
        self.fault = Some(kind);
    }

    /// How it ends.
    pub(crate) fn result(&self) -> Result<(), ChannelError> {
        let detail = || format!("injected into {:?}", self.request.id);
        self.fault.map_or(Ok(()), |kind| Err(ChannelError::new(kind, detail())))
    }
}

/// A channel at work.
#[derive(Debug)]
pub(crate) struct VirtualChannel {
    spec: ChannelSpec,
    rng: Rng,
    free_at: Time,
    flights: BTreeMap<RequestId, Flight>,
    last: Option<RequestId>,
    next_fault: Option<ChannelErrorKind>,
    lost: bool,
}

impl VirtualChannel {
    pub(crate) fn new(spec: ChannelSpec, rng: Rng) -> Self {
        VirtualChannel {
            spec,
            rng,
            free_at: Time(0),
            flights: BTreeMap::new(),
            last: None,
            next_fault: None,
            lost: false,
        }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.spec.id
    }

    /// Whether it takes another request.
    pub(crate) fn has_room(&self) -> bool {
        self.flights.len() < self.spec.max_in_flight as usize
    }

    /// Whether `id` follows those taken before.
    pub(crate) fn follows(&self, id: RequestId) -> bool {
        self.last.is_none_or(|last| last < id)
    }

    /// Takes `request` and says when its bytes move.
    pub(crate) fn submit(&mut self, now: Time, owner: Owner, request: Request) -> Moments {
        let moments = self.moments(now, copy_of(&request));
        self.last = Some(request.id);
        let lost = self.lost.then_some(ChannelErrorKind::DeviceLost);
        let fault = lost.or_else(|| self.next_fault.take());
        self.flights.insert(request.id, Flight { owner, request, taken: Vec::new(), fault });
        moments
    }

    /// A request in flight.
    pub(crate) fn flight(&mut self, id: RequestId) -> Option<&mut Flight> {
        self.flights.get_mut(&id)
    }

    /// Ends a request.
    pub(crate) fn complete(&mut self, id: RequestId) -> Option<Flight> {
        self.flights.remove(&id)
    }

    /// Makes the oldest request in flight fail, or the next one if there is none.
    pub(crate) fn break_next(&mut self, kind: ChannelErrorKind) {
        match self.flights.values_mut().next() {
            Some(flight) => flight.fault = Some(kind),
            None => self.next_fault = Some(kind),
        }
    }

    /// Makes all requests in flight and all later ones fail.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
        for flight in self.flights.values_mut() {
            flight.fault = Some(ChannelErrorKind::DeviceLost);
        }
    }

    /// Starts nothing new until `until`.
    pub(crate) fn stall(&mut self, until: Time) {
        self.free_at = self.free_at.max(until);
    }

    fn moments(&mut self, now: Time, work: Option<&CopyWork>) -> Moments {
        let start = self.free_at.max(now + Duration::from_nanos(self.spec.latency_ns));
        self.free_at = start + work.map_or(Duration::ZERO, |w| self.spec.service(w));
        let complete = self.free_at + Duration::from_nanos(self.rng.within(0, self.spec.jitter_ns));
        let read = self.moment(now, complete);
        let write = self.moment(read, complete);
        Moments { read, scribble: self.moment(now, write), write, complete }
    }

    /// A moment of an interval: its end, its start, or any other.
    fn moment(&mut self, from: Time, to: Time) -> Time {
        match self.rng.within(0, 5) {
            0..=2 => to,
            3 => from,
            _ => Time(self.rng.within(from.0, to.0)),
        }
    }
}

impl ChannelSpec {
    /// How long a request takes, once its latency is over.
    pub(crate) fn service(&self, work: &CopyWork) -> Duration {
        let runs: u64 = work.list.iter().map(run_count).sum();
        let run_bytes = work.payload_bytes / runs.max(1);
        let rate = self.curves.of(shape_class(&work.list)).at(run_bytes.max(1));
        Duration::from_nanos(nanoseconds(work.payload_bytes, rate))
    }
}

fn copy_of(request: &Request) -> Option<&CopyWork> {
    match &request.work {
        Work::Copy(work) => Some(work),
        Work::Commit { .. } | Work::Abort { .. } => None,
    }
}

fn run_count(copy: &model::NdCopy) -> u64 {
    copy.dims.iter().map(|d| d.extent).product::<u64>() * copy.fields.len() as u64
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(bytes: u64, rate: f64) -> u64 {
    libm::ceil(bytes as f64 * 1e9 / rate) as u64
}

#[cfg(test)]
mod tests;
