//! A channel whose requests fail on demand, for tests of everything above it.

use crate::{Capabilities, Channel, Job};
use model::{ChannelError, ChannelErrorKind, Completion, RequestId};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// A failure to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which request, counted from 0 in the order in which the channel takes them.
    pub nth: u64,
    /// The error that it ends with.
    pub kind: ChannelErrorKind,
}

/// A channel that runs every request and reports the chosen ones as failed: the contract leaves
/// the destination of a failed request unspecified.
#[derive(Debug)]
pub struct Faulty<C> {
    inner: C,
    faults: Vec<Fault>,
    taken: u64,
    failing: HashMap<RequestId, ChannelErrorKind>,
}

impl<C: Channel> Faulty<C> {
    /// `inner` with `faults`.
    #[must_use]
    pub fn new(inner: C, faults: Vec<Fault>) -> Self {
        Faulty { inner, faults, taken: 0, failing: HashMap::new() }
    }
}

impl<C: Channel> Channel for Faulty<C> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let request = job.request;
        self.inner.submit(job)?;
        if let Some(fault) = self.faults.iter().find(|f| f.nth == self.taken) {
            self.failing.insert(request, fault.kind);
        }
        self.taken += 1;
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        let first = done.len();
        self.inner.poll(done);
        for completion in &mut done[first..] {
            if let Some(kind) = self.failing.remove(&completion.request) {
                completion.result = Err(ChannelError::new(kind, "injected"));
            }
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wake_fd()
    }

    fn drain(&mut self) {
        self.inner.drain();
    }
}
