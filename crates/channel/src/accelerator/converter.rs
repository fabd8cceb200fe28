//! Launches of kernels on the queues of a copier.

use super::{Copier, ELEMENT_BYTES, Ends, Health, Launch, Launches, Preparation, Queued};
use crate::{Bell, Region};
use model::{ChannelError, CopyList};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// A device in use that has kernels; its clones are the same one.
pub trait KernelDevice: Debug + Clone + Send + Sync + 'static {
    /// Whether the kernels are there, or can't be had.
    fn knows_kernels(&self) -> bool;

    /// Makes them, unless that was done; blocks as long as it takes. Where they can't be had the device's
    /// health says so.
    fn make_kernels(&self);
}

/// A copier whose queues take launches of the kernels too.
pub trait Launcher: Copier {
    /// Whether kernels reach `host`, a region of host memory, where it lies.
    fn has_pinned(&self, host: &Region) -> bool;

    /// Queues `launches`, in their order, on queue number `queue`, where the kernels are known. Stops at the
    /// first that is refused, and does not block.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    unsafe fn launch(
        &mut self,
        queue: usize,
        ends: Ends<'_, Self::Memory>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Self::Batch>;
}

/// Converts by kernels, inside a device's memory or between it and host memory that they reach. These are
/// made by the first request.
#[derive(Debug)]
pub struct Converter<L, D> {
    launcher: L,
    device: D,
    kernels: Preparation,
}

impl<L: Launcher, D: KernelDevice> Converter<L, D> {
    /// On the queues of `launcher`, which are those of `device`.
    #[must_use]
    pub fn new(launcher: L, device: D) -> Self {
        Converter { launcher, device, kernels: Preparation::default() }
    }
}

impl<L: Launcher, D: KernelDevice> Copier for Converter<L, D> {
    type Memory = L::Memory;
    type Commands = Launches;
    type Batch = L::Batch;

    fn commands(&self, list: CopyList, bases: (u64, u64), _in_place: bool) -> Launches {
        Launches::new(list, bases)
    }

    fn queues(&self) -> usize {
        self.launcher.queues()
    }

    fn health(&self) -> &Health {
        self.launcher.health()
    }

    fn has(&self, memory: &Self::Memory) -> bool {
        self.launcher.has(memory)
    }

    fn reaches(&self, host: &Region) -> bool {
        let is_aligned =
            |start: NonNull<u8>| (start.as_ptr().addr() as u64).is_multiple_of(ELEMENT_BYTES);
        let starts_well = host.host_span().is_some_and(|span| is_aligned(span.start()));
        starts_well && self.launcher.has_pinned(host)
    }

    fn is_ready(&mut self, bell: &Arc<Bell>) -> bool {
        if !self.device.knows_kernels() {
            let device = self.device.clone();
            self.kernels.begin(bell, move || device.make_kernels());
        }
        self.device.knows_kernels()
    }

    fn get_ready(&mut self) {
        self.kernels.wait();
    }

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Self::Memory>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Self::Batch> {
        // SAFETY: the caller's promise.
        unsafe { self.launcher.launch(queue, ends, launches) }
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        self.launcher.flush()
    }
}
