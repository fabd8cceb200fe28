//! Memory and streams that a machine shares with other libraries of its process.

use crate::instance::Instance;
use crate::machine::Machine;
use crate::runtime::Shared;
use crate::{ArgumentError, Error, Event};
use channel::accelerator::{Fence, Interop, StreamHandle};
use model::MemoryId;
use std::ops::Range;
use std::sync::Arc;

/// Allocations of devices start at multiples of this, and regions of what others have allocated do too:
/// kernels touch several bytes at once, at multiples of so many from where a region starts.
const ALIGN_BYTES: u64 = 256;

/// A fence that other libraries put what they have queued in front of: by having its stream wait for that.
/// Dropped, it is forgotten.
pub struct StreamFence {
    shared: Arc<Shared>,
    fence: Box<dyn Fence>,
}

impl std::fmt::Debug for StreamFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamFence").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl StreamFence {
    /// The stream, which is there as long as the machine or an instance of it.
    #[must_use]
    pub fn stream(&self) -> StreamHandle {
        self.fence.stream()
    }

    /// The event that all in front is over, which fails where that has failed.
    ///
    /// # Errors
    /// [`Error::Channel`] where the device does not tell; [`Error::Closed`].
    pub fn into_event(self) -> Result<Event, Error> {
        self.shared.heard(self.shared.watch(self.fence))
    }
}

impl Machine {
    /// The event that all is over that `stream` was asked so far: for [`crate::CopyOptions::after`], or to be
    /// waited for. No thread waits meanwhile, and what the stream is
    /// asked later does not wait either. Cancelling it ends the event alone; closing the machine does too.
    ///
    /// `memory` names the device where the stream is a default one and there are several; without it
    /// that is the first.
    ///
    /// # Errors
    /// [`ArgumentError::NoMemory`], [`ArgumentError::NotAddressed`]; [`ArgumentError::NoStream`] for a stream
    /// of another device; [`Error::Channel`] where the device is lost, or the stream is being captured;
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn fence(&self, stream: StreamHandle, memory: Option<&str>) -> Result<Event, Error> {
        self.shared.check_open()?;
        let device = self.shared.device_of(stream, memory);
        self.shared.heard(device.and_then(|device| self.shared.fence_of(device, stream)))
    }

    /// A fence on the device that CUDA calls `ordinal`, with nothing in front of it yet.
    ///
    /// # Errors
    /// [`ArgumentError::NoOrdinal`]; [`Error::Channel`] where the device is lost; [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn stream_fence(&self, ordinal: i32) -> Result<StreamFence, Error> {
        self.shared.check_open()?;
        let (_, device) = self.shared.device_numbered(Some(ordinal))?;
        let fence = self.shared.heard(device.fence().map_err(Error::from))?;
        Ok(StreamFence { shared: Arc::clone(&self.shared), fence })
    }
}

impl Instance {
    /// Which device it lies on, as CUDA numbers them.
    ///
    /// # Errors
    /// [`ArgumentError::NotAddressed`] where that is none, or one whose memory has no addresses.
    pub fn device_ordinal(&self) -> Result<i32, Error> {
        let interop = self.holding.shared.devices().interop(self.memory());
        Ok(interop.ok_or_else(|| self.not_addressed())?.ordinal())
    }

    /// Where the entry with the box's lowest indices lies in the memory of its device. What copies have
    /// written is there once their events have ended.
    ///
    /// # Errors
    /// As [`Instance::device_ordinal`]; [`crate::Mismatch::Strides`] as [`Instance::strides`];
    /// [`Error::Channel`] where the device is lost; [`Error::Forked`], since devices stay with the process that
    /// opened them.
    pub fn device_byte(&self) -> Result<u64, Error> {
        let (start, shared) = (self.holding.device_address(), &self.holding.shared);
        let start = start.ok_or_else(|| self.not_addressed())?;
        if !shared.is_of_this_process() {
            return Err(Error::Forked);
        }
        shared.devices().check(self.memory())?;
        Ok(start.wrapping_add_signed(self.first_offset()?))
    }

    fn not_addressed(&self) -> ArgumentError {
        ArgumentError::NotAddressed { name: self.holding.shared.memory_name(self.memory()) }
    }

    /// Blocks until what it was wrapped behind is over.
    ///
    /// # Errors
    /// Why that has failed.
    pub fn settle(&self) -> Result<(), Error> {
        self.ahead().try_for_each(|event| event.wait(None))
    }
}

impl Shared {
    /// The event that all is over that `stream`, one of this device's, was asked so far.
    pub(crate) fn fence_of(
        self: &Arc<Self>,
        interop: &dyn Interop,
        stream: StreamHandle,
    ) -> Result<Event, Error> {
        let fence = interop.fence()?;
        fence.follow(stream)?;
        self.watch(fence)
    }

    /// The device that CUDA calls `ordinal`, or the first, by its memory.
    pub(crate) fn device_numbered(
        &self,
        ordinal: Option<i32>,
    ) -> Result<(MemoryId, &dyn Interop), ArgumentError> {
        let is_it =
            |(_, interop): &(_, &dyn Interop)| ordinal.is_none_or(|it| interop.ordinal() == it);
        let found = self.devices().interops().find(is_it);
        found.ok_or(ArgumentError::NoOrdinal { ordinal: ordinal.unwrap_or(0) })
    }

    /// The device that has the byte at `address`, by its memory.
    pub(crate) fn device_at(&self, address: u64) -> Result<(MemoryId, &dyn Interop), Error> {
        let mut unknown = Error::from(ArgumentError::NoDevice { address });
        for (memory, interop) in self.devices().interops() {
            match interop.locate(address) {
                Ok(Some(_)) => return Ok((memory, interop)),
                Ok(None) => {}
                Err(error) => unknown = error.into(),
            }
        }
        Err(unknown)
    }

    /// The device that `stream` is of, among all or at `memory`.
    fn device_of(&self, stream: StreamHandle, memory: Option<&str>) -> Result<&dyn Interop, Error> {
        let named = memory.map(|name| self.memory_named(name)).transpose()?;
        if let (Some(id), Some(name)) = (named, memory)
            && self.devices().interop(id).is_none()
        {
            return Err(ArgumentError::NotAddressed { name: name.to_owned() }.into());
        }
        let mut unknown = Error::from(ArgumentError::NoStream);
        let all = self.devices().interops();
        for (_, interop) in all.filter(|&(memory, _)| named.is_none_or(|id| id == memory)) {
            match interop.has_stream(stream) {
                Ok(true) => return Ok(interop),
                Ok(false) => {}
                Err(error) => unknown = error.into(),
            }
        }
        Err(unknown)
    }

    /// What a device has answered, which it may be first heard by that it is lost.
    pub(crate) fn heard<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        answer.inspect_err(|_| self.close_lost())
    }
}

/// The memory of a device from where a region of `bytes` starts, which allocations of it have; of no bytes there
/// is none.
///
/// # Errors
/// [`ArgumentError::Outside`] where some of it lies in none.
pub(crate) fn allocated(interop: &dyn Interop, bytes: &Range<u64>) -> Result<Range<u64>, Error> {
    if bytes.is_empty() {
        return Ok(bytes.clone());
    }
    let start = bytes.start - bytes.start % ALIGN_BYTES;
    let mut seen = start;
    while seen < bytes.end {
        let next = interop.locate(seen)?.ok_or(ArgumentError::Outside)?;
        seen = next.end.max(seen + 1);
    }
    Ok(start..bytes.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::accelerator::{Device, IpcHandle, Owner};
    use channel::{DeviceSpan, Region};
    use model::ChannelError;

    /// A device with allocations at these addresses.
    #[derive(Debug)]
    struct Mapped(Vec<Range<u64>>);

    impl Interop for Mapped {
        fn ordinal(&self) -> i32 {
            0
        }

        fn span(&self, _owner: &Owner) -> Option<DeviceSpan> {
            None
        }

        fn locate(&self, address: u64) -> Result<Option<Range<u64>>, ChannelError> {
            Ok(self.0.iter().find(|range| range.contains(&address)).cloned())
        }

        unsafe fn adopt(&self, _bytes: Range<u64>, owner: Owner) -> Owner {
            owner
        }

        fn export(&self, _region: &Region) -> Result<Option<IpcHandle>, ChannelError> {
            Ok(None)
        }

        fn import(&self, _handle: &IpcHandle, _bytes: u64) -> Result<Owner, ChannelError> {
            unreachable!("nobody asks for any")
        }

        fn register(&self, host: &Arc<Region>) -> Result<Owner, ChannelError> {
            Ok(Arc::<Region>::clone(host))
        }

        fn reach(&self, _peer: &dyn Device) -> Result<Option<i32>, ChannelError> {
            Ok(None)
        }

        fn has_stream(&self, _stream: StreamHandle) -> Result<bool, ChannelError> {
            Ok(false)
        }

        fn fence(&self) -> Result<Box<dyn Fence>, ChannelError> {
            unreachable!("nobody asks for one")
        }
    }

    #[test]
    fn a_region_starts_where_kernels_may_count_from_and_lies_in_allocations() {
        let device = Mapped(vec![0x1000..0x1800, 0x1800..0x2000, 0x3000..0x4000]);
        let of = |bytes: Range<u64>| allocated(&device, &bytes).map_err(|error| error.to_string());
        assert_eq!(of(0x1102..0x1104), Ok(0x1100..0x1104));
        assert_eq!(of(0x1000..0x2000), Ok(0x1000..0x2000), "two that follow each other");
        for outside in [0x1000..0x2001, 0x1fff..0x3001, 0xfff..0x1001, 0x3fff..0x4001] {
            assert_eq!(of(outside), Err(ArgumentError::Outside.to_string()));
        }
        for nothing in [0..0, 5..5, 0x1005..0x1005] {
            assert_eq!(of(nothing.clone()), Ok(nothing), "no bytes");
        }
    }
}
