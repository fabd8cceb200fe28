//! CUDA's objects, each owned by a value that gives it back. Any thread may use them: what needs a
//! context makes it current for as long as the call takes, and leaves the thread's own as it was.
//!
//! The driver keeps nothing alive that a queued copy needs, neither memory of a device nor of the
//! host, which is why [`Stream::copy`] is unsafe.

mod ipc;
mod module;
mod pointer;
mod raw;
mod registered;
mod stream;

pub(crate) use module::{Function, Module};
pub(crate) use raw::{INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, OUT_OF_MEMORY};
pub(crate) use registered::Registered;
pub(crate) use stream::{Event, Stream};

use channel::accelerator::Owner;
use channel::{DeviceSpan, HostSpan};
use raw::{Api, Code, Pointer};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

/// A call that the driver refused, or that told of copies that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The driver's name of the call.
    pub(crate) call: &'static str,
    /// Its number for what went wrong.
    pub(crate) code: Code,
    /// Its name for it.
    pub(crate) name: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.name, self.code)
    }
}

/// CUDA's driver, ready for use.
#[derive(Clone)]
pub(crate) struct Driver {
    api: Arc<Api>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Why there is no driver.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The library can't be loaded, or lacks a function.
    Library(libloading::Error),
    /// It doesn't begin.
    Refused(Failure),
}

impl Driver {
    /// Loads the library at `path`, which stays.
    pub(crate) fn load(path: &OsStr) -> Result<Self, Unusable> {
        let api = Api::load(path).map_err(Unusable::Library)?;
        let driver = Driver { api: Arc::new(api) };
        // SAFETY: any thread may call it, as often as it likes.
        let begun = driver.check("cuInit", unsafe { (driver.api.init)(0) });
        begun.map(|()| driver).map_err(Unusable::Refused)
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), Failure> {
        if code == raw::SUCCESS { Ok(()) } else { Err(self.failure(call, code)) }
    }

    fn failure(&self, call: &'static str, code: Code) -> Failure {
        let mut name = null();
        // SAFETY: a place for a pointer; what is not null there is a constant text of the library's.
        let name = unsafe {
            let known = (self.api.error_name)(code, &mut name) == raw::SUCCESS && !name.is_null();
            known.then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        Failure { call, code, name: name.unwrap_or_else(|| "an error without a name".into()) }
    }

    /// What of CUDA it speaks: major and minor.
    pub(crate) fn version(&self) -> Result<(u32, u32), Failure> {
        let version = self.number("cuDriverGetVersion", |place| {
            // SAFETY: a place for a number.
            unsafe { (self.api.version)(place) }
        })?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// The devices that it knows, in its order.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceId>, Failure> {
        let count = self.number("cuDeviceGetCount", |place| {
            // SAFETY: a place for a number.
            unsafe { (self.api.devices.count)(place) }
        })?;
        let get = |ordinal| {
            let id = self.number("cuDeviceGet", |place| {
                // SAFETY: as above.
                unsafe { (self.api.devices.get)(place, ordinal) }
            });
            Ok(DeviceId { driver: self.clone(), id: id? })
        };
        (0..count).map(get).collect()
    }

    fn number(
        &self,
        call: &'static str,
        ask: impl FnOnce(*mut c_int) -> Code,
    ) -> Result<c_int, Failure> {
        let mut number = 0;
        self.check(call, ask(&mut number))?;
        Ok(number)
    }
}

/// A device, before anything is done with it.
#[derive(Debug, Clone)]
pub(crate) struct DeviceId {
    driver: Driver,
    id: c_int,
}

/// The longest text that a device says of itself.
const TEXT_BYTES: usize = 256;

impl DeviceId {
    pub(crate) fn name(&self) -> Result<String, Failure> {
        self.text("cuDeviceGetName", self.driver.api.devices.name)
    }

    pub(crate) fn bus_id(&self) -> Result<String, Failure> {
        self.text("cuDeviceGetPCIBusId", self.driver.api.devices.bus_id)
    }

    fn text(
        &self,
        call: &'static str,
        ask: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    ) -> Result<String, Failure> {
        let mut text = [0u8; TEXT_BYTES];
        // SAFETY: a place of that length, the last byte of which stays zero.
        let code = unsafe { ask(text.as_mut_ptr().cast(), TEXT_BYTES as c_int - 1, self.id) };
        self.driver.check(call, code)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().trim().to_owned())
    }

    pub(crate) fn memory_bytes(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        // SAFETY: a place for a number.
        let code = unsafe { (self.driver.api.devices.memory)(&mut bytes, self.id) };
        self.driver.check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    /// Which functions it has: major and minor.
    pub(crate) fn capability(&self) -> Result<(u32, u32), Failure> {
        let part = |what| Ok(u32::try_from(self.attribute(what)?).unwrap_or(0));
        Ok((part(raw::CAPABILITY_MAJOR)?, part(raw::CAPABILITY_MINOR)?))
    }

    /// Whether memory that was pinned in any context has one address, for the host and for all devices
    /// that say so.
    pub(crate) fn has_one_address_space(&self) -> Result<bool, Failure> {
        Ok(self.attribute(raw::UNIFIED_ADDRESSING)? != 0)
    }

    /// The longest way from row to row of a copy.
    pub(crate) fn most_pitch_bytes(&self) -> Result<usize, Failure> {
        Ok(usize::try_from(self.attribute(raw::MAX_PITCH)?).unwrap_or(0))
    }

    fn attribute(&self, what: c_int) -> Result<c_int, Failure> {
        self.driver.number("cuDeviceGetAttribute", |place| {
            // SAFETY: a place for a number.
            unsafe { (self.driver.api.devices.attribute)(place, what, self.id) }
        })
    }
}

/// The primary context of a device, which all of this process share.
#[derive(Debug)]
pub(crate) struct Context {
    driver: Driver,
    device: c_int,
    raw: Pointer,
}

// SAFETY: any thread may make a context current and use what belongs to it.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn retain(device: &DeviceId) -> Result<Self, Failure> {
        let (driver, mut raw) = (device.driver.clone(), null_mut());
        // SAFETY: a place for a pointer.
        let code = unsafe { (driver.api.contexts.retain)(&mut raw, device.id) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Context { driver, device: device.id, raw })
    }

    /// Whether both are of one loaded driver.
    pub(crate) fn shares_driver(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.driver.api, &other.driver.api)
    }

    /// The rank of the link by which the device copies straight to device number `peer`, whose primary context
    /// is in use, 0 being the fastest; the last where the driver tells none. It does so from now on, for all of
    /// this process, where it can.
    pub(crate) fn reach(&self, peer: c_int) -> Result<Option<c_int>, Failure> {
        let devices = &self.driver.api.devices;
        let reaches = self.driver.number("cuDeviceCanAccessPeer", |place| {
            // SAFETY: a place for a number.
            unsafe { (devices.reaches)(place, self.device, peer) }
        })?;
        if reaches == 0 {
            return Ok(None);
        }
        let rank = self.driver.number("cuDeviceGetP2PAttribute", |place| {
            // SAFETY: a place for a number.
            unsafe { (devices.link)(place, raw::PERFORMANCE_RANK, self.device, peer) }
        });
        let peer = Context::retain(&DeviceId { driver: self.driver.clone(), id: peer })?;
        let enabled = self.with("cuCtxEnablePeerAccess", |api| {
            // SAFETY: both contexts are retained.
            unsafe { (api.contexts.reach)(peer.raw, 0) }
        });
        match enabled {
            Err(failure) if failure.code != raw::PEER_ACCESS_ALREADY_ENABLED => Err(failure),
            _ => Ok(Some(rank.unwrap_or(c_int::MAX))),
        }
    }

    /// Makes the context this thread's, beneath what is made current for a call.
    pub(crate) fn bind_thread(&self) -> Result<(), Failure> {
        // SAFETY: the context is retained. A thread may keep one that has been released.
        self.driver.check("cuCtxSetCurrent", unsafe { (self.driver.api.contexts.set)(self.raw) })
    }

    /// Makes `call` with the context current.
    fn with(&self, call: &'static str, make: impl FnOnce(&Api) -> Code) -> Result<(), Failure> {
        let _entered = self.enter()?;
        self.driver.check(call, make(&self.driver.api))
    }

    /// Makes the context current on this thread until the value is dropped.
    fn enter(&self) -> Result<Entered<'_>, Failure> {
        // SAFETY: the context is retained.
        let code = unsafe { (self.driver.api.contexts.push)(self.raw) };
        self.driver.check("cuCtxPushCurrent", code)?;
        Ok(Entered { context: self })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. What fails here leaves nothing to do.
        let _ = unsafe { (self.driver.api.contexts.release)(self.device) };
    }
}

struct Entered<'a> {
    context: &'a Context,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread made it current; what was so before is again.
        let _ = unsafe { (self.context.driver.api.contexts.pop)(&mut null_mut()) };
    }
}

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct Buffer {
    context: Arc<Context>,
    address: raw::Address,
    len_bytes: usize,
    origin: Origin,
}

/// Whose memory a buffer is, and so who gives it back.
#[derive(Debug)]
enum Origin {
    /// It was allocated for the buffer.
    Allocated,
    /// Another process has exported it.
    Opened,
    /// Somebody else has allocated it, whom this keeps.
    Given(#[expect(dead_code, reason = "it is kept, and dropped")] Owner),
}

impl Buffer {
    /// At least `len_bytes` bytes, which hold anything.
    pub(crate) fn new(context: &Arc<Context>, len_bytes: usize) -> Result<Self, Failure> {
        let (mut address, len_bytes) = (0, len_bytes.max(1));
        context.with("cuMemAlloc", |api| {
            // SAFETY: a place for an address.
            unsafe { (api.memory.allocate)(&mut address, len_bytes) }
        })?;
        Ok(Buffer { context: Arc::clone(context), address, len_bytes, origin: Origin::Allocated })
    }

    /// The `len_bytes` bytes at `address`, which `owner` gives back.
    ///
    /// # Safety
    /// They are memory of the context's device, and stay so as long as `owner` lives.
    pub(crate) unsafe fn of_other(
        context: &Arc<Context>,
        (address, len_bytes): (u64, usize),
        owner: Owner,
    ) -> Self {
        Buffer { context: Arc::clone(context), address, len_bytes, origin: Origin::Given(owner) }
    }

    /// Whether it is memory of `context`.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The context that it is of.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Where it is.
    pub(crate) fn span(&self) -> DeviceSpan {
        // SAFETY: it was allocated, and is freed when this is dropped.
        unsafe { DeviceSpan::new(self.address, self.len_bytes as u64) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // What fails here leaves nothing to do.
        let _ = match self.origin {
            Origin::Allocated => self.context.with("cuMemFree", |api| {
                // SAFETY: this value's own memory, which no copy needs any more.
                unsafe { (api.memory.free)(self.address) }
            }),
            Origin::Opened => self.close(),
            Origin::Given(_) => Ok(()),
        };
    }
}

/// Memory of the host that devices reach by themselves.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the address is that of memory that this value alone gives back.
unsafe impl Send for Pinned {}
// SAFETY: as for `Send`; nothing is reached through a shared reference but the address.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `len_bytes` bytes, at least one, which hold anything.
    pub(crate) fn new(context: &Arc<Context>, len_bytes: usize) -> Result<Self, Failure> {
        let (mut start, len_bytes) = (null_mut(), len_bytes.max(1));
        context.with("cuMemHostAlloc", |api| {
            // SAFETY: a place for a pointer.
            unsafe { (api.memory.allocate_host)(&mut start, len_bytes, raw::PORTABLE_MAPPED) }
        })?;
        let nowhere = || context.driver.failure("cuMemHostAlloc", INVALID_VALUE);
        let start = NonNull::new(start.cast()).ok_or_else(nowhere)?;
        Ok(Pinned { context: Arc::clone(context), start, len_bytes })
    }

    /// Its bytes, which are there as long as this value.
    pub(crate) fn span(&self) -> HostSpan {
        // SAFETY: the driver made them for reads and writes; its user has this value own them.
        unsafe { HostSpan::new(self.start, self.len_bytes) }
    }

    /// Whether `span` is a part of it, and kernels in `context` find it at its address, where that device
    /// shares the host's addresses.
    pub(crate) fn is_reached(&self, context: &Context, span: HostSpan) -> bool {
        self.context.shares_driver(context) && self.span().contains(span)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: this value's own memory, which nobody uses any more: who did held the region that
        // owned it. What fails here leaves nothing to do.
        let _ = self.context.with("cuMemFreeHost", |api| unsafe { (api.memory.free_host)(start) });
    }
}
