//! RemoteMemcpy (paper, table 2): memory of this node to registered memory of another, of hosts, and of
//! accelerators where the network reaches it.
//!
//! **Hazard.** A peer is lost while bytes are on their way to it, and the memory that they come from
//! is wanted back. **Guarantee.** A request ends once its bytes are where they belong, or never will
//! be: until then its job, and so the memory, is held. **Structure.** A [`RemoteSpan`] says where a
//! region lies in a peer's segment, or in a window of it on a device's memory; [`RemoteChannel`] has a
//! thread of its own, which puts what a job says through a [`Fabric`], from host memory to segments, with the
//! layout converted on the way, and from devices to windows. It sleeps when there is nothing to
//! do, and runs handlers while it waits for peers. What goes to a peer that takes nothing and says
//! nothing is given up after some seconds, since others wait behind it. Where the segment is mapped, who
//! submits a small job carries it out at once. Between devices of one machine that no network reaches there is a
//! [`DeviceLink`] instead.

mod exported;
mod lane;
mod opener;

pub use exported::{DeviceLink, Exported};

use channel::accelerator::Device;
use channel::model::{Completion, MemoryId, NodeId};
use channel::{Bell, Capabilities, Channel, DoneQueue, Held, Job, Region};
use fabric::{Begin, Fabric, Window};
use lane::Lane;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Requests held at once: one is on its way while another is made ready, and one waits.
const MAX_IN_FLIGHT: u32 = 3;

/// Where a region lies that another node published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Whose memory.
    pub node: NodeId,
    /// From which byte on, of its segment or the window.
    pub at: u64,
    /// A window on memory of a device; its segment where that is none.
    pub window: Option<Window>,
}

impl RemoteSpan {
    /// What a node's segment has from byte `at` on.
    #[must_use]
    pub fn in_segment(node: NodeId, at: u64) -> Self {
        RemoteSpan { node, at, window: None }
    }

    /// What a window of a node's has.
    #[must_use]
    pub fn in_window(node: NodeId, window: Window) -> Self {
        RemoteSpan { node, at: 0, window: Some(window) }
    }

    /// The region of `len_bytes` bytes there, which is a part of `memory`.
    #[must_use]
    pub fn into_region(self, memory: MemoryId, len_bytes: u64) -> Region {
        Region::device(memory, len_bytes, Arc::new(self))
    }
}

/// Lets other nodes put to a region of the memory of `device`, which is kept until this one has left them; `None`
/// where the network doesn't reach it.
///
/// # Errors
/// As [`Fabric::open_window`].
pub fn open_window(
    fabric: &Fabric,
    device: &Arc<dyn Device>,
    region: &Arc<Region>,
) -> Option<Result<Window, fabric::Error>> {
    let start = region.device_span()?.start();
    let (owner, device) = (Arc::<Region>::clone(region), Arc::clone(device));
    let begin = Begin::new(move || device.bind_thread());
    // SAFETY: it is memory of a device of this process, as its region says, which keeps it.
    unsafe { fabric.open_window((start, region.len_bytes()), owner, begin) }
}

/// Puts bytes of this node's memory into other nodes' segments and windows.
#[derive(Debug)]
pub struct RemoteChannel {
    lane: Arc<Lane>,
    thread: Option<JoinHandle<()>>,
    held: Held,
}

impl RemoteChannel {
    /// A channel by way of `fabric`, out of memory of the host.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub fn new(fabric: Arc<Fabric>) -> io::Result<Self> {
        RemoteChannel::of_devices(fabric, [])
    }

    /// One out of these memories, each of a device: where the network refuses to put from one to a window, that
    /// device's health says so from then on.
    ///
    /// # Errors
    /// As [`RemoteChannel::new`].
    pub fn of_devices(
        fabric: Arc<Fabric>,
        devices: impl IntoIterator<Item = (MemoryId, Arc<dyn Device>)>,
    ) -> io::Result<Self> {
        let done = DoneQueue::new(Arc::new(Bell::new()?));
        let lane = Arc::new(Lane::new(fabric, devices.into_iter().collect(), done));
        let served = Arc::clone(&lane);
        let thread = Builder::new().name("iso-remote".to_owned()).spawn(move || served.serve())?;
        Ok(RemoteChannel { lane, thread: Some(thread), held: Held::new(MAX_IN_FLIGHT) })
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        self.lane.close();
        // A panic of the thread was printed when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Channel for RemoteChannel {
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_in_flight: self.held.most(), commits: false, tells_late: false }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let job = self.held.take(job)?;
        self.lane.take(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.held.poll(&self.lane.done, done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.lane.done.bell().as_fd())
    }

    fn drain(&mut self) {
        self.held.drain(&self.lane.done);
    }
}
