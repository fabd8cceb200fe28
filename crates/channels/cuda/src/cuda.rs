//! GPUWrite, GPURead and GPUCopy (paper, table 2).

use crate::copier::Streams;
use crate::device::Device;
use channel::accelerator::{Direction, RectChannel};
use channel::model::{ChannelError, Completion};
use channel::{Capabilities, Channel, Job};
use std::os::fd::BorrowedFd;

/// Streams of a channel unless its user says otherwise. The driver holds up a stream while it says
/// that a batch is over, so that copies go on where there is another. What is best on a device was not
/// measured yet.
const STREAMS: usize = 2;

/// Moves bytes between a device and the host, or inside the device, as [`RectChannel`] does, by
/// streams that are made once and kept. The driver calls back when a batch of copies is over. A device
/// that is lost ends the requests of all its channels.
///
/// Where host memory is not pinned the driver may stage it, and then [`Channel::submit`] and
/// [`Channel::poll`] take as long as that does.
#[derive(Debug)]
pub struct CudaChannel {
    inner: RectChannel<Streams>,
}

impl CudaChannel {
    /// A channel of `device` with nothing in flight.
    ///
    /// # Errors
    /// As [`CudaChannel::with_streams`].
    pub fn new(device: &Device, direction: Direction) -> Result<Self, ChannelError> {
        Self::with_streams(device, direction, STREAMS)
    }

    /// A channel that spreads its copies over so many streams, at least one.
    ///
    /// # Errors
    /// What the device says where it makes no stream, or is lost;
    /// [`channel::model::ChannelErrorKind::Io`] when the process has no descriptor left.
    pub fn with_streams(
        device: &Device,
        direction: Direction,
        streams: usize,
    ) -> Result<Self, ChannelError> {
        let inner = RectChannel::new(Streams::new(device, streams)?, direction)?;
        Ok(CudaChannel { inner })
    }
}

impl Channel for CudaChannel {
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
