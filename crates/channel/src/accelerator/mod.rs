//! What channels of accelerators have in common, whatever the device's API: a request becomes commands,
//! these are queued in batches, and the channel hears when a batch is over.
//!
//! **Hazard.** A device moves bytes long after it was asked to, and calls back on threads of its own.
//! **Guarantee.** A request holds its regions until the last of its commands is over; no thread waits
//! for a transfer, and nothing spins. **Structure.** [`Rects`] and [`Launches`] decide and do nothing: the
//! former copy rows as they are, the latter convert. A backend's [`Copier`] queues what one of them says,
//! as a [`Batch`]; [`CommandChannel`] is the channel over it. A [`Device`] makes such channels, and what
//! [`FbmProvider`] and [`ZcmProvider`] make regions of; its [`Health`] says whether it is lost, and its
//! [`Interop`] what other libraries share with it.

mod channel;
mod converter;
mod device;
mod interop;
mod launch;
mod memory;
mod nest;
mod place;
mod preparation;
mod rects;
mod transfer;

pub use channel::CommandChannel;
pub use converter::{Converter, KernelDevice, Launcher};
pub use device::{Device, Health, Owner, Profile, Reach};
pub use interop::{Fence, Interop, IpcHandle, Reached, StreamHandle};
pub use launch::{ELEMENT_BYTES, GROUP_ITEMS, KERNELS, Kernel, Launch, Launches, Parameters};
pub use memory::{FbmProvider, ZcmProvider};
pub use place::{NoPlace, PciPlace};
pub use preparation::Preparation;
pub use rects::{Rect, RectRules, Rects};

use crate::{Bell, Region};
use model::{ChannelError, ChannelErrorKind, CopyList};
use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// Which way a channel moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// GPUWrite: from host memory to the device's.
    Write,
    /// GPURead: from the device's memory to the host's.
    Read,
    /// GPUCopy: inside the device's memory, or to that of another which it reaches
    /// ([`Interop::reach`]), by rects.
    Copy,
    /// GPUConvert: inside the device's memory, by kernels that convert layouts.
    Convert,
    /// GPUConvert: from host memory that the device's kernels reach to the device's, by these.
    ConvertWrite,
    /// GPUConvert: from the device's memory to host memory that its kernels reach, by these.
    ConvertRead,
}

impl Direction {
    /// Every way.
    pub const ALL: [Direction; 6] = [
        Direction::Write,
        Direction::Read,
        Direction::Copy,
        Direction::Convert,
        Direction::ConvertWrite,
        Direction::ConvertRead,
    ];

    /// Whether kernels convert.
    #[must_use]
    pub fn converts(self) -> bool {
        matches!(self, Direction::Convert | Direction::ConvertWrite | Direction::ConvertRead)
    }

    /// Whether the source is the device's memory, and not the host's.
    #[must_use]
    pub fn reads_device(self) -> bool {
        !matches!(self, Direction::Write | Direction::ConvertWrite)
    }

    /// Whether the destination is the device's memory, and not the host's.
    #[must_use]
    pub fn writes_device(self) -> bool {
        !matches!(self, Direction::Read | Direction::ConvertRead)
    }
}

/// The two ends of copies, each where its region starts. `M` is the device's memory.
#[derive(Debug)]
pub enum Ends<'a, M> {
    /// From the host to a device.
    Write(NonNull<u8>, &'a M),
    /// From a device to the host.
    Read(&'a M, NonNull<u8>),
    /// Inside a device, or from there to another that it reaches.
    Copy(&'a M, &'a M),
}

impl<M> Clone for Ends<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Ends<'_, M> {}

/// What is called when a batch is over.
pub type Over = Box<dyn FnOnce() + Send>;

/// Commands that were queued together. Dropping one blocks until its commands are over, and so does
/// giving it back: nobody frees memory that a device still uses.
pub trait Batch: Debug + Send {
    /// Calls `over` once, on any thread or at once, when all commands are over or have failed.
    ///
    /// # Errors
    /// Where nobody will call; `over` was not called then.
    fn when_over(&self, over: Over) -> Result<(), ChannelError>;

    /// Whether all commands are over or have failed.
    fn is_over(&self) -> bool;

    /// Blocks, without spinning, until all commands are over; returns at once where they are.
    ///
    /// # Errors
    /// Why the first command failed that has.
    fn wait(&mut self) -> Result<(), ChannelError>;
}

/// What became of asking for copies.
#[derive(Debug)]
pub struct Queued<B> {
    /// How many commands were queued.
    pub count: usize,
    /// They, if there are any.
    pub batch: Option<B>,
    /// Why no more were.
    pub result: Result<(), ChannelError>,
}

/// How a device's API copies. One thread at a time calls it, and not always the same.
pub trait Copier: Debug + Send {
    /// Memory of the device: what is behind its regions.
    type Memory: Any + Send + Sync;
    /// What a request becomes, one command after the other.
    type Commands: Iterator<Item: Debug + Send> + Debug + Send;
    /// Commands queued together.
    type Batch: Batch;

    /// The commands of `list`, whose bounds have been checked, its offsets counted from `bases`;
    /// `in_place` where both sides are one region.
    fn commands(&self, list: CopyList, bases: (u64, u64), in_place: bool) -> Self::Commands;

    /// How many queues there are, at least one; constant.
    fn queues(&self) -> usize;

    /// What the device is called in errors, and whether it is lost.
    fn health(&self) -> &Health;

    /// Whether `memory` is the device's, by the same opening of it.
    fn has(&self, memory: &Self::Memory) -> bool;

    /// The health of the other device that `memory` is of, where its commands reach that as what they copy to.
    fn peer(&self, memory: &Self::Memory) -> Option<Arc<Health>> {
        let _ = memory;
        None
    }

    /// Whether its commands reach `host`, a region of host memory, where it lies.
    fn reaches(&self, host: &Region) -> bool {
        let _ = host;
        true
    }

    /// Whether it queues commands now. Where it needs something first that takes long it has that made,
    /// and `bell` rings when it is there, or can't be had and the device's health says so.
    fn is_ready(&mut self, bell: &Arc<Bell>) -> bool {
        let _ = bell;
        true
    }

    /// Blocks until what [`Copier::is_ready`] has begun is over.
    fn get_ready(&mut self) {}

    /// Queues `commands`, in their order, on queue number `queue`. Stops at the first that is
    /// refused. Does not block, unless the API does where it reads memory that may be paged out.
    ///
    /// # Safety
    /// Each command lies inside both ends. Memory of the host, and the regions that the ends are of,
    /// stay valid until the batch is over, and until then nobody touches bytes of a command in a
    /// conflicting way.
    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Self::Memory>,
        commands: &mut dyn Iterator<Item = <Self::Commands as Iterator>::Item>,
    ) -> Queued<Self::Batch>;

    /// Has the device begin what is queued.
    ///
    /// # Errors
    /// What the device says.
    fn flush(&mut self) -> Result<(), ChannelError>;
}

/// Where `src` and `dst` start, one of which is host memory unless both are the device's.
fn ends<'a, C: Copier>(
    copier: &C,
    direction: Direction,
    (src, dst): (&'a Region, &'a Region),
) -> Result<Ends<'a, C::Memory>, ChannelError> {
    Ok(match direction {
        Direction::Write | Direction::ConvertWrite => {
            Ends::Write(host(copier, src)?, memory(copier, dst)?)
        }
        Direction::Read | Direction::ConvertRead => {
            Ends::Read(memory(copier, src)?, host(copier, dst)?)
        }
        Direction::Copy => Ends::Copy(memory(copier, src)?, reached(copier, dst)?),
        Direction::Convert => Ends::Copy(memory(copier, src)?, memory(copier, dst)?),
    })
}

/// Where the host memory that `region` is starts.
fn host<C: Copier>(copier: &C, region: &Region) -> Result<NonNull<u8>, ChannelError> {
    let span = region.host_span().ok_or_else(|| unknown(region, "host memory"))?;
    let what = || format!("host memory that kernels of {} reach", copier.health().name());
    match copier.reaches(region) {
        true => Ok(span.start()),
        false => Err(unknown(region, &what())),
    }
}

/// The device's memory that `region` is.
fn memory<'a, C: Copier>(copier: &C, region: &'a Region) -> Result<&'a C::Memory, ChannelError> {
    let memory = region.view::<C::Memory>().filter(|memory| copier.has(memory));
    let what = || format!("memory of {}, or of this opening of it", copier.health().name());
    memory.ok_or_else(|| unknown(region, &what()))
}

/// The memory that `region` is, of the device or one that it reaches and that is not lost.
fn reached<'a, C: Copier>(copier: &C, region: &'a Region) -> Result<&'a C::Memory, ChannelError> {
    let Some((there, peer)) = peer(copier, region) else { return memory(copier, region) };
    peer.check().map(|()| there)
}

/// The memory that `region` is of another device that the device reaches, and that one's health.
fn peer<'a, C: Copier>(copier: &C, region: &'a Region) -> Option<(&'a C::Memory, Arc<Health>)> {
    let there = region.view::<C::Memory>()?;
    Some((there, copier.peer(there)?))
}

/// A region that is not `what` a channel needs there.
fn unknown(region: &Region, what: &str) -> ChannelError {
    ChannelError::new(ChannelErrorKind::UnknownRegion, format!("{region:?} is not {what}"))
}
