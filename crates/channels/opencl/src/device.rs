//! What devices there are, and one that is in use.

use crate::cl::{
    self, Buffer, Context, DeviceId, Failure, Mapped, Platform, Program, Queue, Shared,
};
use crate::copier::Queues;
use crate::error::{When, kind_of};
use channel::accelerator::{
    self, CommandChannel, Converter, Direction, GROUP_ITEMS, Health, KERNELS, KernelDevice, Owner,
    PciPlace, Profile, Reach,
};
use channel::model::{ChannelError, ChannelErrorKind};
use channel::{Channel, HostSpan};
use cl3::device::{
    CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_GLOBAL_MEM_SIZE,
    CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_NAME,
    CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_DEVICE_VENDOR_ID, CL_DEVICE_VERSION,
};
use cl3::error_codes::{CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_RUNTIME_LOAD_FAILED};
use cl3::memory::{CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE};
use cl3::platform::CL_PLATFORM_NAME;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use thiserror::Error;

/// What OpenCL is called in errors.
const API: &str = "OpenCL";

/// Queues of a channel unless its user says otherwise. Several let a device use several engines for
/// copies, where it has them. On PoCL, whose queues are threads, two took 1.2 to 0.6 times as long as
/// one for rows of 4 KiB and more, and up to twice as long for shorter ones and whole runs; four took as
/// long as two, give or take a tenth (`examples/queues.rs` of the benches). They are cores that others
/// could have had. By NVIDIA's on an H200 two and four move as much as one.
const QUEUES: usize = 1;

/// What [`KERNELS`] need of OpenCL C.
const PRELUDE: &str = include_str!("prelude.cl");

/// The least version of OpenCL that has all that is used here: 1.2 brought the filling of buffers.
const LEAST_VERSION: (u32, u32) = (1, 2);

/// Why there is no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Absent {
    /// The loader of OpenCL implementations is not installed.
    #[error(
        "no OpenCL: libOpenCL.so.1 can't be loaded; install it, or name it in OPENCL_DYLIB_PATH"
    )]
    Library,
    /// It knows no implementation that has a device of OpenCL 1.2 or later.
    #[error(
        "no OpenCL device: install the driver of one (its .icd file lies in /etc/OpenCL/vendors)"
    )]
    Device,
    /// It was loaded before a fork, and its threads stayed with the parent.
    #[error("OpenCL was loaded before this process was forked off, and doesn't work in it")]
    Forked,
    /// It answers with an error.
    #[error("OpenCL doesn't work: {why}")]
    Refused {
        /// What it says.
        why: String,
    },
}

/// What kind of processor a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// The processor that runs this program.
    Cpu,
    /// Anything else.
    Other,
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The implementation of OpenCL.
    pub platform: String,
    /// The device.
    pub name: String,
    /// Of OpenCL, in its own words: `OpenCL 3.0 …`.
    pub version: String,
    /// Who made it, as PCI numbers makers, where he has a number there.
    pub vendor: u32,
    /// What kind of processor it is.
    pub kind: DeviceKind,
    /// Where it is, if it says so.
    pub place: Option<PciPlace>,
    /// Whether its memory is the host's.
    pub shares_host_memory: bool,
    /// How much memory it has.
    pub memory_bytes: u64,
    /// The largest region that it allocates.
    pub most_bytes: u64,
    /// Whether it has a compiler for kernels.
    pub compiles: bool,
    /// Whether its kernels may use memory of the host while the host does (OpenCL 2.0, where a device has
    /// shared virtual memory of fine grain).
    pub shares_addresses: bool,
}

/// A device that may be opened.
#[derive(Debug, Clone)]
pub struct Found {
    id: DeviceId,
    info: DeviceInfo,
}

/// Held by who looks for devices: an implementation makes them when it is first asked, and PoCL shows
/// others what is half made. It is the library's state that is the process's, not ours.
static ASKED: Mutex<()> = Mutex::new(());

/// The process that loaded the library; 0 before.
static LOADED_BY: AtomicU32 = AtomicU32::new(0);

/// The devices of all platforms, in their order. A platform that fails, and a device that can't be
/// used, are left out and logged.
///
/// # Errors
/// [`Absent`] where there is none.
pub fn find() -> Result<Vec<Found>, Absent> {
    let (loaded_by, process) = (LOADED_BY.load(Ordering::Relaxed), std::process::id());
    if loaded_by != 0 && loaded_by != process {
        return Err(Absent::Forked);
    }
    let _asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = cl::platforms().map_err(|failure| match failure.code {
        DLOPEN_RUNTIME_LOAD_FAILED => Absent::Library,
        CL_PLATFORM_NOT_FOUND_KHR => Absent::Device,
        _ => Absent::Refused { why: failure.to_string() },
    })?;
    LOADED_BY.store(process, Ordering::Relaxed);
    let found: Vec<Found> = platforms.into_iter().flat_map(of_platform).collect();
    if found.is_empty() { Err(Absent::Device) } else { Ok(found) }
}

fn of_platform(platform: Platform) -> Vec<Found> {
    let asked = || Ok((platform.text(CL_PLATFORM_NAME)?, platform.devices()?));
    let asked: Result<_, Failure> = asked();
    let (name, ids) = asked.unwrap_or_else(|failure| {
        log::warn!("a platform of OpenCL is left out: {failure}");
        Default::default()
    });
    ids.into_iter().filter_map(|id| of_device(&name, id)).collect()
}

fn of_device(platform: &str, id: DeviceId) -> Option<Found> {
    let why = match describe(platform, id) {
        Ok((info, true)) if is_recent(&info.version) => return Some(Found { id, info }),
        Ok((info, false)) => format!("`{}` is not available", info.name),
        Ok((info, true)) => format!("`{}` has {}, and 1.2 is needed", info.name, info.version),
        Err(failure) => failure.to_string(),
    };
    log::warn!("a device of OpenCL's {platform} is left out: {why}");
    None
}

/// What a device says of itself, and whether it is available.
fn describe(platform: &str, id: DeviceId) -> Result<(DeviceInfo, bool), Failure> {
    let kind = match id.number(CL_DEVICE_TYPE)? {
        kind if kind & CL_DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
        kind if kind & CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    };
    let info = DeviceInfo {
        platform: platform.to_owned(),
        name: id.text(CL_DEVICE_NAME)?,
        version: id.text(CL_DEVICE_VERSION)?,
        vendor: id.number(CL_DEVICE_VENDOR_ID)? as u32,
        kind,
        place: id.place(),
        // Deprecated, and there nevertheless; who doesn't answer has memory of his own.
        shares_host_memory: id.number(CL_DEVICE_HOST_UNIFIED_MEMORY).unwrap_or(0) != 0,
        memory_bytes: id.number(CL_DEVICE_GLOBAL_MEM_SIZE)?,
        most_bytes: id.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        compiles: id.number(CL_DEVICE_COMPILER_AVAILABLE)? != 0,
        // Who doesn't know the question shares none.
        shares_addresses: id.number(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0)
            & CL_DEVICE_SVM_FINE_GRAIN_BUFFER
            != 0,
    };
    Ok((info, id.number(CL_DEVICE_AVAILABLE)? != 0))
}

/// Whether `version`, as `OpenCL 1.2 and more`, is one that can be used.
fn is_recent(version: &str) -> bool {
    let number = version.split(' ').nth(1).and_then(|number| {
        let (major, minor) = number.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    number.is_some_and(|number: (u32, u32)| number >= LEAST_VERSION)
}

impl Found {
    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes a context of the device. Opened twice it is two devices, which share no memory.
    ///
    /// # Errors
    /// As [`accelerator::Device::allocate`].
    pub fn open(&self) -> Result<Device, ChannelError> {
        let made = Context::new(self.id).and_then(|context| {
            let context = Arc::new(context);
            let setup = Queue::new(&context)?;
            Ok((context, Arc::new(setup)))
        });
        let (info, health) = (self.info.clone(), Arc::new(Health::new(API, &self.info.name)));
        let failed = |failure: Failure| health.failed(kind_of(failure.code, When::Asked), failure);
        let (context, setup) = made.map_err(failed)?;
        let kernels = OnceLock::new();
        Ok(Device { inner: Arc::new(Inner { info, health, context, setup, kernels }) })
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
    health: Arc<Health>,
    context: Arc<Context>,
    /// For what memory needs when it is made and given back.
    setup: Arc<Queue>,
    /// The kernels that convert layouts, or why there are none.
    kernels: OnceLock<Result<Program, Failure>>,
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

    /// The error that `failure` is; one that says that the device is lost makes it so.
    pub(crate) fn failed(&self, failure: Failure, when: When) -> ChannelError {
        self.inner.health.failed(kind_of(failure.code, when), failure)
    }

    /// The kernels that convert layouts. Who asks first waits until they are compiled; where they can't
    /// be, the device's health says so.
    pub(crate) fn kernels(&self) -> Result<&Program, Failure> {
        let compile = || {
            let (source, since) =
                (format!("#define GROUP_ITEMS {GROUP_ITEMS}\n{PRELUDE}{KERNELS}"), Instant::now());
            let built = Program::new(self.context(), &source);
            let name = self.inner.health.name();
            log::debug!("compiled kernels for {name} within {:?}", since.elapsed());
            built.inspect_err(|failure| self.inner.health.lose_kernels(failure))
        };
        self.inner.kernels.get_or_init(compile).as_ref().map_err(|&failure| failure)
    }

    /// What `make` makes of `len_bytes` bytes in the device's context.
    fn make<T>(
        &self,
        len_bytes: u64,
        make: impl FnOnce(&Arc<Context>, usize) -> Result<T, Failure>,
    ) -> Result<T, ChannelError> {
        let Inner { info, health, context, .. } = &*self.inner;
        health.check()?;
        if len_bytes > info.most_bytes {
            let why = format!("one region has {} bytes at most there", info.most_bytes);
            return Err(health.no_memory(len_bytes, why));
        }
        let len = usize::try_from(len_bytes);
        let len = len.map_err(|_| health.no_memory(len_bytes, "no such size"))?;
        make(context, len).map_err(|failure| {
            let error = self.failed(failure, When::Asked);
            match error.kind {
                ChannelErrorKind::OutOfMemory => health.no_memory(len_bytes, failure),
                _ => error,
            }
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
        let DeviceInfo { platform, name, version, .. } = self.info();
        Profile {
            key: format!("{API} {platform}, {name}, {version}"),
            place: self.info().place,
            memory_bytes: self.info().memory_bytes,
            most_bytes: self.info().most_bytes,
            shares_host_memory: self.info().shares_host_memory,
            converts: self.info().compiles,
            // Each device has a context, and shared memory is one context's.
            reach: if self.info().shares_addresses { Reach::Own } else { Reach::Nothing },
        }
    }

    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError> {
        let flags = CL_MEM_READ_WRITE;
        let buffer = self.make(len_bytes, |context, len| Buffer::new(context, flags, len))?;
        let filled = self.inner.setup.fill(&buffer);
        filled.map_err(|failure| self.failed(failure, When::Asked))?;
        Ok(Arc::new(buffer))
    }

    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        if self.info().shares_addresses {
            let shared = self.make(len_bytes, Shared::new)?;
            return Ok((shared.span(), Arc::new(shared)));
        }
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let buffer = self.make(len_bytes, |context, len| Buffer::new(context, flags, len))?;
        let mapped = Mapped::new(buffer, &self.inner.setup);
        let mapped = mapped.map_err(|failure| self.failed(failure, When::Asked))?;
        Ok((mapped.span(), Arc::new(mapped)))
    }

    fn channel(
        &self,
        direction: Direction,
        queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let queues = Queues::new(self, queues.unwrap_or(QUEUES))?;
        let shares_host_memory = self.info().shares_host_memory;
        Ok(match direction {
            way if way.converts() => {
                let converter = Converter::new(queues, self.clone());
                Box::new(CommandChannel::new(converter, direction, shares_host_memory)?)
            }
            _ => Box::new(CommandChannel::new(queues, direction, shares_host_memory)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, is_recent};
    use crate::common::found;
    use channel::conformance::{Accelerator, run_channels, run_devices};

    #[test]
    fn devices_that_share_no_addresses_conform() {
        let Some(found) = found("devices_that_share_no_addresses_conform") else { return };
        let apart = |found: &Found| {
            let mut found = found.clone();
            found.info.shares_addresses = false;
            Accelerator::new(found.open().unwrap(), 1)
        };
        let devices = [&found[0], &found[found.len() - 1]].map(apart);
        run_channels(&devices[0]);
        run_devices(&devices);
    }

    #[test]
    fn versions_are_read() {
        for (version, recent) in [
            ("OpenCL 1.2 ", true),
            ("OpenCL 3.0 PoCL", true),
            ("OpenCL 10.0", true),
            ("OpenCL 1.1 Mesa", false),
            ("OpenCL 1.", false),
            ("OpenCL", false),
            ("", false),
        ] {
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }
}
