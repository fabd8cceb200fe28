//! Kernels: made ready for a device by the driver, and launched.

use super::raw::{Address, Pointer};
use super::{Buffer, Context, Failure, Stream};
use channel::accelerator::{Ends, GROUP_ITEMS, Launch};
use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr::{NonNull, from_ref, null_mut};
use std::sync::Arc;

/// Kernels of a context.
#[derive(Debug)]
pub(crate) struct Module {
    raw: Pointer,
    context: Arc<Context>,
}

// SAFETY: any thread may use a module.
unsafe impl Send for Module {}
// SAFETY: as for `Send`.
unsafe impl Sync for Module {}

impl Module {
    /// Those of `ptx`, which the driver compiles for the device; blocks as long as that takes.
    pub(crate) fn new(context: &Arc<Context>, ptx: &CStr) -> Result<Self, Failure> {
        let mut raw = null_mut();
        context.with("cuModuleLoadData", |api| {
            // SAFETY: a place for a pointer, and a text that ends with a zero.
            unsafe { (api.modules.load)(&mut raw, ptx.as_ptr().cast()) }
        })?;
        Ok(Module { raw, context: Arc::clone(context) })
    }

    /// The kernel called `name`.
    pub(crate) fn function(&self, name: &str) -> Result<Function, Failure> {
        let (mut raw, name) = (null_mut(), CString::new(name).expect("kernels have plain names"));
        self.context.with("cuModuleGetFunction", |api| {
            // SAFETY: a place for a pointer, and a text that ends with a zero.
            unsafe { (api.modules.function)(&mut raw, self.raw, name.as_ptr()) }
        })?;
        Ok(Function(raw))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: this value's own module. What fails here leaves nothing to do.
        let _ =
            self.context.with("cuModuleUnload", |api| unsafe { (api.modules.unload)(self.raw) });
    }
}

/// A kernel, which is there as long as its module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(Pointer);

// SAFETY: any thread may launch it.
unsafe impl Send for Function {}

/// Where both ends start for a kernel. Memory of the host that it reaches has the address that it has for
/// the host ([`super::DeviceId::has_one_address_space`]).
fn addresses(ends: Ends<'_, Buffer>) -> (Address, Address) {
    let host = |start: NonNull<u8>| start.as_ptr().expose_provenance() as Address;
    match ends {
        Ends::Write(from, to) => (host(from), to.address),
        Ends::Read(from, to) => (from.address, host(to)),
        Ends::Copy(from, to) => (from.address, to.address),
    }
}

impl Stream {
    /// Queues `launch`, whose kernel is `function`.
    ///
    /// # Safety
    /// The function's module is there, and of this stream's context, whose device reaches memory of the
    /// host that is an end. All that it reads and writes lies inside the ends; these stay valid until an
    /// event that is recorded behind it is over, and until then nobody touches these bytes in a conflicting
    /// way.
    pub(crate) unsafe fn launch(
        &self,
        Function(function): Function,
        ends: Ends<'_, Buffer>,
        launch: &Launch,
    ) -> Result<(), Failure> {
        let place = |value: *const c_void| value.cast_mut();
        let ((src, dst), parameters) = (addresses(ends), launch.parameters());
        let mut arguments = [
            place(from_ref(&src).cast()),
            place(from_ref(&dst).cast()),
            place(from_ref(&parameters).cast()),
        ];
        let (groups, items) = (launch.groups() as c_uint, GROUP_ITEMS as c_uint);
        self.context.with("cuLaunchKernel", |api| {
            let arguments = arguments.as_mut_ptr();
            // SAFETY: these are the arguments of all kernels, in their order, which the driver reads
            // before it returns; and the caller's promise.
            unsafe {
                (api.modules.launch)(
                    function,
                    groups,
                    1,
                    1,
                    items,
                    1,
                    1,
                    0,
                    self.raw,
                    arguments,
                    null_mut(),
                )
            }
        })
    }
}
