//! What other libraries of this process know of a device, and use too: addresses of its memory, and streams.
//!
//! **Hazard.** Memory that another library gave is freed, or still written by what that library has queued on
//! a stream. **Guarantee.** Memory that was adopted keeps its owner as long as anyone may touch it; a fence
//! says when what a stream was asked before is over, and nothing waits for that meanwhile, neither a thread
//! nor that stream. **Structure.** A [`super::Device`] whose API has addresses is an [`Interop`]; a [`Fence`]
//! is a stream of its own that may be put behind others.

use super::{Device, Owner};
use crate::{DeviceSpan, Region};
use model::ChannelError;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// What is called when a fence is reached, or with why it never will be.
pub type Reached = Box<dyn FnOnce(Result<(), ChannelError>) + Send>;

/// A stream of another library's, or a default one, by the API's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHandle(u64);

impl StreamHandle {
    /// CUDA's default stream of all threads, which waits for those that block, and these for it.
    pub const LEGACY_DEFAULT: Self = StreamHandle(1);

    /// CUDA's default stream of the thread that uses it.
    pub const PER_THREAD_DEFAULT: Self = StreamHandle(2);

    /// The stream that the API calls `handle`.
    ///
    /// # Safety
    /// There is such a stream, and it is there as long as this value is used.
    #[must_use]
    pub const unsafe fn new(handle: u64) -> Self {
        StreamHandle(handle)
    }

    /// The handle.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }
}

/// What another process of this machine opens memory of a device by. It is good while that memory is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle(pub [u8; 64]);

/// A device whose memory has addresses, which are unique in the process, and whose streams others use.
pub trait Interop: Debug + Send + Sync {
    /// The device's number, as its API counts.
    fn ordinal(&self) -> i32;

    /// Where `owner` has its bytes, if it is memory of this opening of the device: what [`super::Device::allocate`]
    /// or [`Interop::adopt`] has given.
    fn span(&self, owner: &Owner) -> Option<DeviceSpan>;

    /// The allocation that the byte at `address` lies in, whoever made it; `None` where the device's context
    /// has none there. One array may lie in several that follow each other.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::DeviceLost`], or what else the device says.
    fn locate(&self, address: u64) -> Result<Option<Range<u64>>, ChannelError>;

    /// What channels of the device find behind a region of `bytes`, which somebody else has allocated.
    /// Nothing is given back but `owner`.
    ///
    /// # Safety
    /// The bytes are memory of the device, and stay so as long as `owner` lives.
    unsafe fn adopt(&self, bytes: Range<u64>, owner: Owner) -> Owner;

    /// What other processes of this machine open `region` by: the bytes of one [`super::Device::allocate`] of
    /// this opening of the device. `None` where it is another. Its memory is to outlive what they do with it.
    ///
    /// # Errors
    /// As [`Interop::locate`]; also where the driver shares no memory with other processes.
    fn export(&self, region: &Region) -> Result<Option<IpcHandle>, ChannelError>;

    /// What channels of the device find behind a region of `len_bytes`, which another process has exported, from
    /// this device or one that it reaches. It is closed when it is dropped.
    ///
    /// # Errors
    /// As [`Interop::locate`]; [`model::ChannelErrorKind::Io`] where the handle is none, is this process's own
    /// or of less memory, or where this device does not reach that.
    fn import(&self, handle: &IpcHandle, len_bytes: u64) -> Result<Owner, ChannelError>;

    /// Has all devices of the API reach `host`, memory of the host that others have made, as fast as what they pin;
    /// kernels may not. What is returned keeps that memory, and undoes this before it lets that go.
    ///
    /// # Errors
    /// As [`Interop::locate`]; also where `host` has no bytes, or some that were registered before.
    fn register(&self, host: &Arc<Region>) -> Result<Owner, ChannelError>;

    /// Whether the device copies straight to memory of `peer`, another of its API: the rank of the link by which
    /// it does. Links of equal ranks are taken to be as fast. Channels of [`super::Direction::Copy`] take such
    /// memory as their destination from now on, until that one is lost.
    ///
    /// # Errors
    /// As [`Interop::locate`].
    fn reach(&self, peer: &dyn Device) -> Result<Option<i32>, ChannelError>;

    /// Whether `stream` is one of the device's, as a default one is of every device.
    ///
    /// # Errors
    /// As [`Interop::locate`].
    fn has_stream(&self, stream: StreamHandle) -> Result<bool, ChannelError>;

    /// A fence that nothing is in front of yet.
    ///
    /// # Errors
    /// As [`Interop::locate`]; [`model::ChannelErrorKind::Io`] where as many as there may be are not reached.
    fn fence(&self) -> Result<Box<dyn Fence>, ChannelError>;
}

/// A place behind what others have queued on streams of a device. Dropped, it is forgotten.
pub trait Fence: Debug + Send {
    /// A stream for others to put in front what they have queued, by having it wait for that. It is there
    /// as long as the device.
    fn stream(&self) -> StreamHandle;

    /// Puts all in front that `stream`, one of the device's, was asked so far.
    ///
    /// # Errors
    /// What the device says; also where the stream is being captured, and runs nothing.
    fn follow(&self, stream: StreamHandle) -> Result<(), ChannelError>;

    /// Calls `reached` once, on a thread of the driver's, when all in front is over or has failed. It must be
    /// quick, wait for nothing, give nothing of the device back, and not panic.
    ///
    /// # Errors
    /// Where nobody will call.
    fn when_reached(self: Box<Self>, reached: Reached) -> Result<(), ChannelError>;
}
