//! Kernels: compiled for the device of a context, and launched.

use super::{Buffer, Context, Event, Failure, Queue, by, text};
use channel::accelerator::{Ends, GROUP_ITEMS, Launch, Parameters};
use cl3::command_queue::enqueue_nd_range_kernel;
use cl3::error_codes::CL_INVALID_KERNEL_NAME;
use cl3::kernel::{create_kernel, release_kernel, set_kernel_arg, set_kernel_arg_svm_pointer};
use cl3::program::{
    CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_data,
    release_program,
};
use cl3::types::{cl_kernel, cl_program};
use std::ffi::{CString, c_void};
use std::ptr::{NonNull, from_ref, null, null_mut};
use std::sync::Arc;

/// Kernels of a context.
#[derive(Debug)]
pub(crate) struct Program {
    raw: cl_program,
    #[expect(dead_code, reason = "it lives as long as the program")]
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Program {}
// SAFETY: as for `Context`.
unsafe impl Sync for Program {}

impl Program {
    /// Compiles `source`; blocks as long as that takes. What the compiler says where it fails is
    /// logged.
    pub(crate) fn new(context: &Arc<Context>, source: &str) -> Result<Self, Failure> {
        // One text: of several the library would take lengths for addresses.
        let raw = create_program_with_source(context.raw, &[source]);
        let raw = raw.map_err(by("clCreateProgramWithSource"))?;
        let program = Program { raw, context: Arc::clone(context) };
        let built = build_program(raw, &[context.device.0], c"", None, null_mut());
        built.map_err(|code| {
            let said = get_program_build_data(raw, context.device.0, CL_PROGRAM_BUILD_LOG);
            log::warn!("a compiler of OpenCL says: {}", said.map(text).unwrap_or_default());
            by("clBuildProgram")(code)
        })?;
        Ok(program)
    }

    /// The kernel called `name`.
    pub(crate) fn function(&self, name: &str) -> Result<Function, Failure> {
        let refused = by("clCreateKernel");
        let name = CString::new(name).map_err(|_| refused(CL_INVALID_KERNEL_NAME))?;
        create_kernel(self.raw, &name).map(Function).map_err(refused)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this value's own reference.
        let _ = unsafe { release_program(self.raw) };
    }
}

/// A kernel and its arguments, which only one thread at a time may set.
#[derive(Debug)]
pub(crate) struct Function(cl_kernel);

// SAFETY: a kernel may be used by any thread, and whoever sets arguments has the value for himself.
unsafe impl Send for Function {}

impl Function {
    /// # Safety
    /// `value` is what the kernel takes as its argument number `index`.
    unsafe fn set<T>(&mut self, index: u32, value: &T) -> Result<(), Failure> {
        let value: *const c_void = from_ref(value).cast();
        // SAFETY: the value is there while it is read, and the caller's promise.
        let set = unsafe { set_kernel_arg(self.0, index, size_of::<T>(), value) };
        set.map_err(by("clSetKernelArg"))
    }

    /// Has the kernel's argument number `index` be a buffer.
    ///
    /// # Safety
    /// The kernel takes a pointer there.
    unsafe fn set_buffer(&mut self, index: u32, buffer: &Buffer) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.set(index, &buffer.raw) }
    }

    /// Has the kernel's argument number `index` be memory that host and device share.
    ///
    /// # Safety
    /// The kernel takes a pointer there, and the memory is of its context.
    unsafe fn set_shared(&mut self, index: u32, start: NonNull<u8>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let set = unsafe { set_kernel_arg_svm_pointer(self.0, index, start.as_ptr().cast()) };
        set.map_err(by("clSetKernelArgSVMPointer"))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: this value's own reference; a launch that is queued has one of its own.
        let _ = unsafe { release_kernel(self.0) };
    }
}

impl Queue {
    /// Queues `launch`, whose kernel is `function`.
    ///
    /// # Safety
    /// All that it reads and writes lies inside the ends, of which memory of the host is shared with the
    /// queue's device. Until the event is over both stay valid, and nobody touches these bytes in a
    /// conflicting way.
    pub(crate) unsafe fn launch(
        &self,
        function: &mut Function,
        ends: Ends<'_, Buffer>,
        launch: &Launch,
    ) -> Result<Event, Failure> {
        let parameters: Parameters = launch.parameters();
        // SAFETY: these are the arguments of all kernels, in their order.
        unsafe {
            match ends {
                Ends::Write(from, _) => function.set_shared(0, from)?,
                Ends::Read(from, _) | Ends::Copy(from, _) => function.set_buffer(0, from)?,
            }
            match ends {
                Ends::Read(_, to) => function.set_shared(1, to)?,
                Ends::Write(_, to) | Ends::Copy(_, to) => function.set_buffer(1, to)?,
            }
            function.set(2, &parameters)?;
        }
        let (items, group) = ([launch.groups() * GROUP_ITEMS], [GROUP_ITEMS]);
        let (items, group) = (items.as_ptr(), group.as_ptr());
        // SAFETY: kernel and buffers are of the queue's context, there is one size of either kind, and
        // the caller's promise.
        let event = unsafe {
            enqueue_nd_range_kernel(self.raw, function.0, 1, null(), items, group, 0, null())
        };
        Event::of("clEnqueueNDRangeKernel", event)
    }
}
