//! What devices there are, and one that is in use.

use crate::copier::Streams;
use crate::driver::{
    Buffer, Context, DeviceId, Driver, Failure, INVALID_VALUE, Module, NO_DEVICE, OUT_OF_MEMORY,
    Pinned, Stream, Unusable,
};
use crate::error::kind_of;
use crate::interop::Fences;
use channel::accelerator::{
    self, CommandChannel, Converter, Direction, Health, Interop, KernelDevice, Owner, Profile,
    Reach,
};
use channel::model::ChannelError;
use channel::{Channel, HostSpan};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use thiserror::Error;

/// What CUDA is called in errors.
const API: &str = "CUDA";

/// Streams of a channel unless its user says otherwise, beside those that call back. On an H200 two and four move
/// as much as one (`examples/queues.rs` of the benches).
const STREAMS: usize = 1;

/// What is a device's own is no memory of the host.
const SHARES_HOST_MEMORY: bool = false;

/// The kernels that convert layouts, as `scripts/ptx.sh` has lowered them.
const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");

/// The least compute capability that they are lowered for.
const LEAST_CAPABILITY: (u32, u32) = (7, 0);

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
    /// Whether kernels find host memory that is pinned at the host's addresses.
    pub shares_addresses: bool,
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
        shares_addresses: id.has_one_address_space()?,
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
    /// As [`accelerator::Device::allocate`].
    pub fn open(&self) -> Result<Device, ChannelError> {
        let made = Context::retain(&self.id).and_then(|context| {
            let context = Arc::new(context);
            let setup = Stream::new(&context)?;
            Ok((context, setup))
        });
        let (info, health) = (self.info.clone(), Arc::new(Health::new(API, &self.info.name)));
        let failed = |failure: Failure| health.failed(kind_of(failure.code), failure);
        let (context, setup) = made.map_err(failed)?;
        let kernels = OnceLock::new();
        let (fences, peers) = (Fences::default(), Mutex::default());
        let inner = Inner { info, health, context, setup, kernels, fences, peers };
        Ok(Device { inner: Arc::new(inner) })
    }
}

/// A device in use; its clones are the same one. It is closed when its last region, channel and
/// clone are gone.
///
/// Where host memory is not pinned the driver may stage it, and then [`Channel::submit`] and
/// [`Channel::poll`] of its channels take as long as that does.
#[derive(Debug, Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: DeviceInfo,
    health: Arc<Health>,
    context: Arc<Context>,
    /// For what memory needs when it is made.
    setup: Stream,
    /// The kernels that convert layouts, or why there are none.
    kernels: OnceLock<Result<Module, Failure>>,
    fences: Fences,
    /// The health of the devices that copies go straight to, by their numbers.
    peers: Mutex<BTreeMap<i32, Arc<Health>>>,
}

impl Device {
    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    pub(crate) fn fences(&self) -> &Fences {
        &self.inner.fences
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Health>>> {
        self.inner.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that `failure` is; one that says that the device is lost makes it so.
    pub(crate) fn failed(&self, failure: &Failure) -> ChannelError {
        self.inner.health.failed(kind_of(failure.code), failure)
    }

    /// The kernels that convert layouts. Who asks first waits until the driver has compiled them; where it
    /// doesn't, the device's health says so.
    pub(crate) fn kernels(&self) -> Result<&Module, Failure> {
        let load = || {
            let since = Instant::now();
            let text = CStr::from_bytes_with_nul(KERNELS.as_bytes()).expect("a text without zeros");
            let loaded = Module::new(self.context(), text);
            let name = self.inner.health.name();
            log::debug!("loaded kernels for {name} within {:?}", since.elapsed());
            loaded.inspect_err(|failure| {
                self.failed(failure);
                self.inner.health.lose_kernels(failure);
            })
        };
        self.inner.kernels.get_or_init(load).as_ref().map_err(Failure::clone)
    }

    /// What `make` makes of `len_bytes` bytes in the device's context.
    fn make<T>(
        &self,
        len_bytes: u64,
        make: impl FnOnce(&Arc<Context>, usize) -> Result<T, Failure>,
    ) -> Result<T, ChannelError> {
        let health = &self.inner.health;
        health.check()?;
        let len = isize::try_from(len_bytes);
        let len = len.map_err(|_| health.no_memory(len_bytes, "no such size"))?;
        make(self.context(), len.cast_unsigned()).map_err(|failure| match failure.code {
            // A size is all that there is to be wrong.
            OUT_OF_MEMORY | INVALID_VALUE => health.no_memory(len_bytes, failure),
            _ => self.failed(&failure),
        })
    }
}

impl KernelDevice for Device {
    fn knows_kernels(&self) -> bool {
        self.inner.kernels.get().is_some()
    }

    fn make_kernels(&self) {
        // Why there are none is told by its health.
        let _ = self.kernels();
    }
}

impl accelerator::Device for Device {
    fn health(&self) -> &Arc<Health> {
        &self.inner.health
    }

    fn profile(&self) -> Profile {
        let DeviceInfo { name, bus_id, cuda_version: (major, minor), .. } = self.info();
        Profile {
            key: format!("{API} {major}.{minor}, {name}, {bus_id}"),
            place: bus_id.parse().ok(),
            memory_bytes: self.info().memory_bytes,
            most_bytes: self.info().memory_bytes,
            shares_host_memory: SHARES_HOST_MEMORY,
            converts: self.info().capability >= LEAST_CAPABILITY,
            reach: if self.info().shares_addresses { Reach::All } else { Reach::Nothing },
        }
    }

    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError> {
        let buffer = self.make(len_bytes, Buffer::new)?;
        self.inner.setup.fill(&buffer).map_err(|failure| self.failed(&failure))?;
        Ok(Arc::new(buffer))
    }

    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        let pinned = self.make(len_bytes, Pinned::new)?;
        Ok((pinned.span(), Arc::new(pinned)))
    }

    fn channel(
        &self,
        direction: Direction,
        queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let streams = Streams::new(self, queues.unwrap_or(STREAMS))?;
        Ok(match direction {
            way if way.converts() => {
                let converter = Converter::new(streams, self.clone());
                Box::new(CommandChannel::new(converter, direction, SHARES_HOST_MEMORY)?)
            }
            _ => Box::new(CommandChannel::new(streams, direction, SHARES_HOST_MEMORY)?),
        })
    }

    fn bind_thread(&self) {
        if let Err(failure) = self.context().bind_thread() {
            log::warn!("{}", self.failed(&failure));
        }
    }

    fn interop(&self) -> Option<&dyn Interop> {
        Some(self)
    }
}
