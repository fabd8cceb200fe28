//! Another library of the process, as tests have it.

use crate::Fake;
use libloading::{Library, Symbol};
use std::ffi::{CStr, OsStr, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// The system's driver.
const SYSTEM: &str = "libcuda.so.1";

type Context = *mut c_void;

/// A library that uses a device of a driver beside the one that is tested, in its primary context.
#[derive(Debug)]
pub struct Neighbour {
    driver: Library,
    device: c_int,
    context: Context,
}

impl Fake {
    /// A library that uses this device too.
    ///
    /// # Panics
    /// Where the device refuses, as in the other methods.
    #[must_use]
    pub fn neighbour(&self, device: c_int) -> Neighbour {
        Neighbour::of(self.path().as_os_str(), device)
    }
}

impl Neighbour {
    /// A library that uses this device of the system's driver too, which something of the process has set up.
    ///
    /// # Panics
    /// Where there is no such driver, and as [`Fake::neighbour`].
    #[must_use]
    pub fn on_system(device: c_int) -> Neighbour {
        Neighbour::of(SYSTEM.as_ref(), device)
    }

    fn of(driver: &OsStr, device: c_int) -> Neighbour {
        // SAFETY: it is loaded already, or is the system's.
        let driver = unsafe { Library::new(driver) }.expect("the driver loads");
        let mut neighbour = Neighbour { driver, device, context: null_mut() };
        let mut context = null_mut();
        let retain: Symbol<'_, extern "C" fn(*mut Context, c_int) -> c_uint> =
            neighbour.symbol(c"cuDevicePrimaryCtxRetain");
        assert_eq!(retain(&mut context, device), 0);
        neighbour.context = context;
        neighbour
    }

    /// Memory of the device, which stays there until [`Neighbour::free`].
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        self.call(c"cuMemAlloc_v2", |allocate: extern "C" fn(*mut u64, usize) -> c_uint| {
            allocate(&mut address, bytes)
        });
        address
    }

    /// Gives memory back.
    pub fn free(&self, address: u64) {
        self.call(c"cuMemFree_v2", |free: extern "C" fn(u64) -> c_uint| free(address));
    }

    /// A new stream.
    #[must_use]
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        self.call(c"cuStreamCreate", |create: extern "C" fn(*mut u64, c_uint) -> c_uint| {
            create(&mut stream, 1)
        });
        stream
    }

    /// Ends a stream once it has nothing left to do.
    pub fn end(&self, stream: u64) {
        self.call(c"cuStreamDestroy_v2", |destroy: extern "C" fn(u64) -> c_uint| destroy(stream));
    }

    /// Asks a stream to fill memory.
    pub fn fill(&self, stream: u64, (address, bytes): (u64, usize), byte: u8) {
        type Fill = extern "C" fn(u64, u8, usize, u64) -> c_uint;
        self.call(c"cuMemsetD8Async", |fill: Fill| fill(address, byte, bytes, stream));
    }

    /// Has a stream wait for what another was asked so far.
    pub fn follow(&self, stream: u64, other: u64) {
        let mut event = 0u64;
        self.call(c"cuEventCreate", |create: extern "C" fn(*mut u64, c_uint) -> c_uint| {
            create(&mut event, 2)
        });
        self.call(c"cuEventRecord", |record: extern "C" fn(u64, u64) -> c_uint| {
            record(event, other)
        });
        type Wait = extern "C" fn(u64, u64, c_uint) -> c_uint;
        self.call(c"cuStreamWaitEvent", |wait: Wait| wait(stream, event, 0));
        self.call(c"cuEventDestroy_v2", |destroy: extern "C" fn(u64) -> c_uint| destroy(event));
    }

    /// Makes a call of this name and type in the device's context.
    fn call<F: Copy>(&self, name: &CStr, make: impl FnOnce(F) -> c_uint) {
        let push: Symbol<'_, extern "C" fn(Context) -> c_uint> =
            self.symbol(c"cuCtxPushCurrent_v2");
        let pop: Symbol<'_, extern "C" fn(*mut Context) -> c_uint> =
            self.symbol(c"cuCtxPopCurrent_v2");
        assert_eq!(push(self.context), 0);
        let code = make(*self.symbol::<F>(name));
        assert_eq!(pop(&mut null_mut()), 0);
        assert_eq!(code, 0, "{name:?}");
    }

    fn symbol<F>(&self, name: &CStr) -> Symbol<'_, F> {
        // SAFETY: drivers have these, with the types that this file gives them.
        unsafe { self.driver.get(name) }.expect("the driver has it")
    }
}

// SAFETY: any thread may make a context current.
unsafe impl Send for Neighbour {}
// SAFETY: as for `Send`.
unsafe impl Sync for Neighbour {}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let release: Symbol<'_, extern "C" fn(c_int) -> c_uint> =
            self.symbol(c"cuDevicePrimaryCtxRelease_v2");
        release(self.device);
    }
}
