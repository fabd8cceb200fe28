//! What a backend implements to move bytes: the [`Channel`] trait, the [`Region`]s it moves them
//! between, and the [`Provider`] that makes regions.
//!
//! **Hazard.** A request in flight touches memory that its owner may wish to free. **Guarantee.**
//! A [`Job`] owns a reference to both of its regions; a channel keeps the job until it reports the
//! completion, so a region's memory outlives every request that touches it, whatever becomes of
//! its id. **Structure.** [`Regions`] maps ids to regions and forgets revoked ones; [`Region`]
//! holds the views of one span of bytes; a backend keeps its own view behind [`Region::device`].

pub mod accelerator;
mod bell;
mod bounds;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fault;
mod held;
mod queue;
mod region;
mod throttle;
mod trace;

pub use bell::Bell;
pub use bounds::check_bounds;
pub use fault::{Fault, Faulty};
pub use held::Held;
pub use queue::{DoneQueue, TaskQueue};
pub use region::{DeviceSpan, HUGE_PAGE_BYTES, HostSpan, Region, Regions};
pub use throttle::Throttle;
pub use trace::{Trace, TraceEvent, TraceKind, TraceLog};
// A backend depends on this crate and `kernels` only; these are the values it is handed.
pub use {layout, model};

/// What the queues and the table of regions synchronise with. A test compiles the same files
/// against shuttle's.
mod sync {
    pub(crate) use crate::bell::Bell;
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
}

use model::{ChannelError, Completion, RequestId, Work};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What a channel can do, in numbers. Abilities are values; no method answers "unsupported".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The most requests that it holds at once.
    pub max_in_flight: u32,
    /// Whether it carries out [`Work::Commit`] and [`Work::Abort`].
    pub commits: bool,
    /// Whether [`Channel::poll`] sees ends sooner than the descriptor tells of them, and who looks takes nothing
    /// from who moves the bytes: an accelerator, which wakes no thread within the time of a short copy.
    pub tells_late: bool,
}

/// A request with its regions found: what a channel holds while the request is in flight.
#[derive(Debug)]
pub struct Job {
    /// Names the request in its completion.
    pub request: RequestId,
    /// What to do.
    pub work: Work,
    /// The region of [`model::CopyWork::src`]; the region itself for a commit or an abort.
    pub src: Arc<Region>,
    /// The region of [`model::CopyWork::dst`]; the region itself for a commit or an abort.
    pub dst: Arc<Region>,
}

/// Moves data between the memories that it joins (paper, section 3.2).
///
/// Requests start in the order in which they are submitted; they may complete in any order. A
/// channel never reads or writes outside a job's regions: a copy that would is completed with
/// [`model::ChannelErrorKind::OutOfBounds`] and touches nothing. All methods are called by one
/// thread at a time. Dropping a channel waits until nothing is in flight.
pub trait Channel: Send {
    /// What the channel can do; constant over its life.
    fn capabilities(&self) -> Capabilities;

    /// Takes `job`, or gives it back while as many as `max_in_flight` are held: that is
    /// back-pressure, not an error. Does not block.
    ///
    /// # Errors
    /// The job itself, untouched, when the channel is full.
    fn submit(&mut self, job: Job) -> Result<(), Job>;

    /// Appends the completions since the last call to `done`. Does not block.
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// A descriptor that becomes readable when [`Channel::poll`] has something to say, so that a
    /// thread can sleep on it. What [`Channel::submit`] itself has ended need not make it so: whoever submits
    /// polls before he sleeps. `None` for a channel that ends all within `submit`.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Blocks until nothing is in flight. Completions stay for [`Channel::poll`].
    fn drain(&mut self);
}

impl<C: Channel + ?Sized> Channel for Box<C> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        (**self).submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        (**self).poll(done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).wake_fd()
    }

    fn drain(&mut self) {
        (**self).drain();
    }
}

/// Makes regions of one memory (DESIGN.md, decision 6).
pub trait Provider: Send + Sync {
    /// A zeroed region of at least `len_bytes`, its start a multiple of `align_bytes`.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::OutOfMemory`] or what else the operating system said.
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError>;
}

#[cfg(test)]
mod checked;
#[cfg(test)]
mod tests;
