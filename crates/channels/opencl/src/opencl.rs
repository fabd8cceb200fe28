//! GPUWrite, GPURead and GPUCopy (paper, table 2).

use crate::copier::Queues;
use crate::device::Device;
use channel::accelerator::{Direction, RectChannel};
use channel::model::{ChannelError, Completion};
use channel::{Capabilities, Channel, Job};
use std::os::fd::BorrowedFd;

/// Queues of a channel unless its user says otherwise. Several let a device use several engines for
/// copies, where it has them. On PoCL, whose queues are threads, two took 1.0 to 0.7 times as long as
/// one for rows of 4 KiB and more, and up to twice as long for shorter ones and whole runs
/// (`examples/queues.rs`), which says nothing of a device: that is still to be measured.
const QUEUES: usize = 1;

/// Moves bytes between a device and the host, or inside the device, as [`RectChannel`] does, by
/// queues that are made once and kept. OpenCL calls back when a batch of commands is over. A device
/// that is lost ends the requests of all its channels.
#[derive(Debug)]
pub struct OpenClChannel {
    inner: RectChannel<Queues>,
}

impl OpenClChannel {
    /// A channel of `device` with nothing in flight.
    ///
    /// # Errors
    /// As [`OpenClChannel::with_queues`].
    pub fn new(device: &Device, direction: Direction) -> Result<Self, ChannelError> {
        Self::with_queues(device, direction, QUEUES)
    }

    /// A channel that spreads its commands over so many queues, at least one.
    ///
    /// # Errors
    /// What the device says where it makes no queue, or is lost;
    /// [`channel::model::ChannelErrorKind::Io`] when the process has no descriptor left.
    pub fn with_queues(
        device: &Device,
        direction: Direction,
        queues: usize,
    ) -> Result<Self, ChannelError> {
        let inner = RectChannel::new(Queues::new(device, queues)?, direction)?;
        Ok(OpenClChannel { inner })
    }
}

impl Channel for OpenClChannel {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        self.inner.submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.inner.poll(done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wake_fd()
    }

    fn drain(&mut self) {
        self.inner.drain();
    }
}

#[cfg(test)]
mod tests;
