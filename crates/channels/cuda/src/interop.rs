//! What other libraries share with a device: its memory by address, and its streams by handle.

use crate::device::Device;
use crate::driver::{Buffer, INVALID_CONTEXT, Registered, Stream};
use crate::error::kind_of;
use channel::accelerator::{
    self, Device as _, Health, Interop, IpcHandle, Owner, Reached, StreamHandle,
};
use channel::model::{ChannelError, ChannelErrorKind};
use channel::{DeviceSpan, Region};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most fences of a device that may not be reached.
const MOST_FENCES: usize = 256;

/// The streams that fences of a device are made of, each for one at a time: on one stream a fence would wait
/// for all before it, whoever these wait for. They are made when they are needed, and stay.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    streams: Mutex<Vec<(Arc<Stream>, Taken)>>,
}

/// Whether a fence has a stream.
type Taken = Arc<AtomicBool>;

impl Fences {
    /// A stream that no fence has; one that `make` makes where there is none.
    ///
    /// # Errors
    /// As `make`, or `None` where there are as many as may be.
    fn take(
        &self,
        make: impl FnOnce() -> Result<Stream, ChannelError>,
    ) -> Result<Option<(Arc<Stream>, Holding)>, ChannelError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for (stream, taken) in &*streams {
            if !taken.swap(true, Ordering::Acquire) {
                return Ok(Some((Arc::clone(stream), Holding(Arc::clone(taken)))));
            }
        }
        if streams.len() == MOST_FENCES {
            return Ok(None);
        }
        let (stream, taken) = (Arc::new(make()?), Arc::new(AtomicBool::new(true)));
        streams.push((Arc::clone(&stream), Arc::clone(&taken)));
        Ok(Some((stream, Holding(taken))))
    }
}

/// A fence's hold on a stream, without the stream: what is dropped on a thread of the driver's must not give
/// anything of CUDA's back.
#[derive(Debug)]
struct Holding(Taken);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A stream that others may be put in front of.
#[derive(Debug)]
struct Fence {
    device: Device,
    stream: Arc<Stream>,
    holding: Holding,
}

impl accelerator::Fence for Fence {
    fn stream(&self) -> StreamHandle {
        self.stream.handle()
    }

    fn follow(&self, stream: StreamHandle) -> Result<(), ChannelError> {
        self.stream.follow(stream).map_err(|failure| self.device.failed(&failure))
    }

    fn when_reached(self: Box<Self>, reached: Reached) -> Result<(), ChannelError> {
        let Fence { device, stream, holding } = *self;
        // Without the device, nothing of which may be given back on a thread of the driver's.
        let health = Arc::clone(device.health());
        let over = move |code| {
            drop(holding);
            reached(outcome(code, &health));
        };
        stream.when_over(over).map_err(|failure| device.failed(&failure))
    }
}

/// What became of what was in front of a fence of a device, which may be lost by that. The driver may not be asked
/// here for its word for `code`.
fn outcome(code: i32, health: &Health) -> Result<(), ChannelError> {
    match code {
        0 => Ok(()),
        _ => {
            let failure = format!("what a stream was asked has failed ({code})");
            Err(health.failed(kind_of(code), failure))
        }
    }
}

impl Interop for Device {
    fn ordinal(&self) -> i32 {
        self.context().ordinal()
    }

    fn span(&self, owner: &Owner) -> Option<DeviceSpan> {
        let buffer = owner.downcast_ref::<Buffer>()?;
        buffer.is_of(self.context()).then(|| buffer.span())
    }

    fn locate(&self, address: u64) -> Result<Option<Range<u64>>, ChannelError> {
        self.health().check()?;
        self.context().allocation(address).map_err(|failure| self.failed(&failure))
    }

    unsafe fn adopt(&self, bytes: Range<u64>, owner: Owner) -> Owner {
        let len_bytes = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise.
        Arc::new(unsafe { Buffer::of_other(self.context(), (bytes.start, len_bytes), owner) })
    }

    fn export(&self, region: &Region) -> Result<Option<IpcHandle>, ChannelError> {
        self.health().check()?;
        let buffer = region.view::<Buffer>().filter(|buffer| buffer.is_of(self.context()));
        let exported = buffer.map_or(Ok(None), Buffer::export);
        Ok(exported.map_err(|failure| self.failed(&failure))?.map(IpcHandle))
    }

    fn import(&self, handle: &IpcHandle, len_bytes: u64) -> Result<Owner, ChannelError> {
        self.health().check()?;
        let len_bytes = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        match Buffer::open(self.context(), handle.0, len_bytes) {
            Ok(opened) => Ok(Arc::new(opened)),
            // So the driver refuses what this process itself has exported.
            Err(failure) if failure.code == INVALID_CONTEXT => {
                let detail = format!("{}: {failure}", self.health().name());
                Err(ChannelError::new(ChannelErrorKind::Io, detail))
            }
            Err(failure) => Err(self.failed(&failure)),
        }
    }

    fn register(&self, host: &Arc<Region>) -> Result<Owner, ChannelError> {
        self.health().check()?;
        let registered = Registered::new(self.context(), host);
        Ok(Arc::new(registered.map_err(|failure| self.failed(&failure))?))
    }

    fn reach(&self, peer: &dyn accelerator::Device) -> Result<Option<i32>, ChannelError> {
        self.health().check()?;
        let Some(number) = peer.interop().map(Interop::ordinal) else { return Ok(None) };
        let link = self.context().reach(number).map_err(|failure| self.failed(&failure))?;
        if link.is_some() {
            self.peers().insert(number, Arc::clone(peer.health()));
        }
        Ok(link)
    }

    fn has_stream(&self, stream: StreamHandle) -> Result<bool, ChannelError> {
        self.health().check()?;
        self.context().has_stream(stream).map_err(|failure| self.failed(&failure))
    }

    fn fence(&self) -> Result<Box<dyn accelerator::Fence>, ChannelError> {
        self.health().check()?;
        let make = || Stream::new(self.context()).map_err(|failure| self.failed(&failure));
        let too_many = || {
            let detail = format!("{}: {MOST_FENCES} fences are not reached", self.health().name());
            ChannelError::new(ChannelErrorKind::Io, detail)
        };
        let (stream, holding) = self.fences().take(make)?.ok_or_else(too_many)?;
        Ok(Box::new(Fence { device: self.clone(), stream, holding }))
    }
}
