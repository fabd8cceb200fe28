//! Kernels: made ready for a device by the driver, and launched.

use super::raw::Pointer;
use super::{Buffer, Context, Failure, Stream};
use channel::accelerator::{GROUP_ITEMS, Launch};
use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr::{from_ref, null_mut};
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

impl Stream {
    /// Queues `launch`, whose kernel is `function`.
    ///
    /// # Safety
    /// The function's module is there, and of this stream's context. All that it reads lies inside the
    /// first buffer, all that it writes inside the second; these stay valid until an event that is recorded
    /// behind it is over, and until then nobody touches these bytes in a conflicting way.
    pub(crate) unsafe fn launch(
        &self,
        Function(function): Function,
        (src, dst): (&Buffer, &Buffer),
        launch: &Launch,
    ) -> Result<(), Failure> {
        let place = |value: *const c_void| value.cast_mut();
        let parameters = launch.parameters();
        let mut arguments = [
            place(from_ref(&src.address).cast()),
            place(from_ref(&dst.address).cast()),
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
