//! What devices there are, and one that is in use.

use crate::driver::{Context, DeviceId, Driver, Failure, NO_DEVICE, Stream, Unusable};
use crate::error::{failed, lost};
use channel::model::{ChannelError, ChannelErrorKind};
use std::error::Error as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// The driver's library, which comes with the kernel's module.
const LIBRARY: &str = "libcuda.so.1";

/// Why there is no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Absent {
    /// The driver's library can't be loaded, or is one that lacks what is needed.
    #[error(
        "no CUDA: {library} can't be used; install NVIDIA's driver, of CUDA 12 or later ({why})"
    )]
    Library {
        /// Its name or path.
        library: String,
        /// What the loader says.
        why: String,
    },
    /// It knows no device.
    #[error(
        "no CUDA device: the driver is there and finds none (CUDA_VISIBLE_DEVICES may hide them)"
    )]
    Device,
    /// It answers with an error.
    #[error("CUDA doesn't work: {why}")]
    Refused {
        /// What it says.
        why: String,
    },
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device.
    pub name: String,
    /// Where it is, in the words of `lspci -D`: `0000:17:00.0`.
    pub bus_id: String,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
    /// How much memory it has.
    pub memory_bytes: u64,
    /// The longest way from row to row of one copy.
    pub most_pitch_bytes: usize,
    /// What of CUDA its driver speaks, major and minor.
    pub cuda_version: (u32, u32),
}

/// A device that may be opened.
#[derive(Debug, Clone)]
pub struct Found {
    id: DeviceId,
    info: DeviceInfo,
}

/// The devices of this machine, in the driver's order. One that fails is left out and logged. The
/// library is loaded by the first call, and stays.
///
/// # Errors
/// [`Absent`] where there is none.
pub fn find() -> Result<Vec<Found>, Absent> {
    find_in(Path::new(LIBRARY))
}

/// The devices of the driver at `library`, a path or a name that the system's loader knows.
///
/// # Errors
/// As [`find`].
pub fn find_in(library: &Path) -> Result<Vec<Found>, Absent> {
    let driver = Driver::load(library.as_os_str()).map_err(|unusable| match unusable {
        Unusable::Library(error) => {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Absent::Library { library: library.display().to_string(), why }
        }
        Unusable::Refused(failure) => refused(&failure),
    })?;
    let asked = driver.version().and_then(|version| Ok((version, driver.devices()?)));
    let (version, ids) = asked.map_err(|failure| refused(&failure))?;
    let found: Vec<_> = ids.into_iter().filter_map(|id| of_device(id, version)).collect();
    if found.is_empty() { Err(Absent::Device) } else { Ok(found) }
}

fn refused(failure: &Failure) -> Absent {
    match failure.code {
        NO_DEVICE => Absent::Device,
        _ => Absent::Refused { why: failure.to_string() },
    }
}

fn of_device(id: DeviceId, cuda_version: (u32, u32)) -> Option<Found> {
    match describe(&id, cuda_version) {
        Ok(info) => Some(Found { id, info }),
        Err(failure) => {
            log::warn!("a CUDA device is left out: {failure}");
            None
        }
    }
}

fn describe(id: &DeviceId, cuda_version: (u32, u32)) -> Result<DeviceInfo, Failure> {
    Ok(DeviceInfo {
        name: id.name()?,
        bus_id: id.bus_id()?,
        capability: id.capability()?,
        memory_bytes: id.memory_bytes()?,
        most_pitch_bytes: id.most_pitch_bytes()?,
        cuda_version,
    })
}

impl Found {
    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Opens the device, in its primary context: the one that other libraries of this process use.
    /// Opened twice it is two devices, whose channels refuse each other's memory.
    ///
    /// # Errors
    /// What the device says: [`ChannelErrorKind::DeviceLost`],
    /// [`ChannelErrorKind::OutOfMemory`] or [`ChannelErrorKind::Io`].
    pub fn open(&self) -> Result<Device, ChannelError> {
        let made = Context::retain(&self.id).and_then(|context| {
            let context = Arc::new(context);
            let setup = Stream::new(&context)?;
            Ok((context, setup))
        });
        let (context, setup) = made.map_err(|failure| failed(&self.info.name, &failure))?;
        let (info, lost) = (self.info.clone(), OnceLock::new());
        Ok(Device { inner: Arc::new(Inner { info, context, setup, lost }) })
    }
}

/// A device in use; its clones are the same one. It is closed when its last region, channel and
/// clone are gone.
#[derive(Debug, Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: DeviceInfo,
    context: Arc<Context>,
    /// For what memory needs when it is made.
    setup: Stream,
    /// Why the device is lost.
    lost: OnceLock<String>,
}

impl Device {
    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Whether the device is lost: it takes no more work, and allocates nothing.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.lost.get().is_some()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    pub(crate) fn setup(&self) -> &Stream {
        &self.inner.setup
    }

    /// Refuses where the device is lost.
    pub(crate) fn check(&self) -> Result<(), ChannelError> {
        self.inner.lost.get().map_or(Ok(()), |why| Err(lost(&self.info().name, why)))
    }

    /// The error that `failure` is; one that says that the device is lost makes it so.
    pub(crate) fn failed(&self, failure: &Failure) -> ChannelError {
        let error = failed(&self.info().name, failure);
        if error.kind == ChannelErrorKind::DeviceLost {
            // Only why it was lost first is of interest.
            let _ = self.inner.lost.set(failure.to_string());
        }
        error
    }
}
