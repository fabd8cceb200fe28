//! OpenCL's objects, each owned by a value that releases it. The library is loaded by the first
//! call, and may be called by any thread.
//!
//! An object that a queued command needs is kept by OpenCL until that command is over, whoever
//! releases it; memory of the host is not, which is why [`Queue::copy`] is unsafe.

mod program;
mod queue;

pub(crate) use program::{Function, Program};
#[cfg(test)]
pub(crate) use queue::Hold;
pub(crate) use queue::Queue;

use channel::HostSpan;
use channel::accelerator::{Over, PciPlace};
use cl3::context::{create_context, release_context};
use cl3::device::{
    CL_DEVICE_PCI_BUS_ID_NV, CL_DEVICE_PCI_BUS_INFO_KHR, CL_DEVICE_PCI_SLOT_ID_NV,
    CL_DEVICE_TYPE_ALL, get_device_data, get_device_ids,
};
use cl3::error_codes::{CL_INVALID_VALUE, CL_MEM_OBJECT_ALLOCATION_FAILURE, error_text};
use cl3::event::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, get_event_data, release_event,
    set_event_callback, wait_for_events,
};
use cl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER, create_buffer, release_mem_object, svm_alloc,
    svm_free,
};
use cl3::platform::{get_platform_data, get_platform_ids};
use cl3::types::{
    cl_context, cl_device_id, cl_device_info, cl_event, cl_mem, cl_mem_flags, cl_platform_id,
    cl_platform_info,
};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

/// Buffers are filled by so many zeros at a time, and their sizes are multiples of it.
pub(crate) const FILL_BYTES: usize = 16;

/// A call that OpenCL refused, or a command that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// OpenCL's name of the call, or of the call that queued the command.
    pub(crate) call: &'static str,
    /// OpenCL's number for what went wrong.
    pub(crate) code: c_int,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, error_text(self.code), self.code)
    }
}

fn by(call: &'static str) -> impl Fn(c_int) -> Failure {
    move |code| Failure { call, code }
}

/// A platform: one implementation of OpenCL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Platform(cl_platform_id);

/// The implementations that are installed.
pub(crate) fn platforms() -> Result<Vec<Platform>, Failure> {
    let ids = get_platform_ids().map_err(by("clGetPlatformIDs"))?;
    Ok(ids.into_iter().map(Platform).collect())
}

impl Platform {
    pub(crate) fn devices(self) -> Result<Vec<DeviceId>, Failure> {
        let ids = get_device_ids(self.0, CL_DEVICE_TYPE_ALL).map_err(by("clGetDeviceIDs"))?;
        Ok(ids.into_iter().map(DeviceId).collect())
    }

    pub(crate) fn text(self, what: cl_platform_info) -> Result<String, Failure> {
        get_platform_data(self.0, what).map(text).map_err(by("clGetPlatformInfo"))
    }
}

/// The domain of a device's bus (`cl_nv_device_attribute_query`).
const PCI_DOMAIN_ID_NV: cl_device_info = 0x400A;

/// A device of a platform.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceId(cl_device_id);

// SAFETY: a device is there as long as its platform, which is never unloaded, and may be asked by
// any thread.
unsafe impl Send for DeviceId {}
// SAFETY: as for `Send`.
unsafe impl Sync for DeviceId {}

impl DeviceId {
    pub(crate) fn text(self, what: cl_device_info) -> Result<String, Failure> {
        get_device_data(self.0, what).map(text).map_err(by("clGetDeviceInfo"))
    }

    /// A number of four or eight bytes.
    pub(crate) fn number(self, what: cl_device_info) -> Result<u64, Failure> {
        let refused = by("clGetDeviceInfo");
        let bytes = get_device_data(self.0, what).map_err(&refused)?;
        let short = bytes.as_slice().try_into().map(|b| u64::from(u32::from_ne_bytes(b)));
        let long = bytes.as_slice().try_into().map(u64::from_ne_bytes);
        short.or(long).map_err(|_| refused(CL_INVALID_VALUE))
    }

    /// Where it is, if it says so: by `cl_khr_pci_bus_info`, or in NVIDIA's way.
    pub(crate) fn place(self) -> Option<PciPlace> {
        let told = get_device_data(self.0, CL_DEVICE_PCI_BUS_INFO_KHR).ok();
        told.and_then(|bytes| place_of(&bytes)).or_else(|| {
            let number = |what| u32::try_from(self.number(what).ok()?).ok();
            let slot = number(CL_DEVICE_PCI_SLOT_ID_NV)?;
            Some(PciPlace {
                domain: number(PCI_DOMAIN_ID_NV)?,
                bus: number(CL_DEVICE_PCI_BUS_ID_NV)?,
                device: slot >> 3,
                function: slot & 7,
            })
        })
    }
}

/// What `cl_device_pci_bus_info_khr` says: domain, bus, device and function.
fn place_of(bytes: &[u8]) -> Option<PciPlace> {
    let (numbers, []) = bytes.as_chunks::<4>() else { return None };
    let &[domain, bus, device, function] = numbers else { return None };
    let [domain, bus, device, function] = [domain, bus, device, function].map(u32::from_ne_bytes);
    Some(PciPlace { domain, bus, device, function })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n']).to_owned()
}

/// A context of one device.
#[derive(Debug)]
pub(crate) struct Context {
    raw: cl_context,
    device: DeviceId,
}

// SAFETY: OpenCL's objects may be used by any thread, but for kernels' arguments.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(device: DeviceId) -> Result<Self, Failure> {
        let raw = create_context(&[device.0], null(), None, null_mut());
        Ok(Context { raw: raw.map_err(by("clCreateContext"))?, device })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: this value's own reference. What fails here leaves nothing to do.
        let _ = unsafe { release_context(self.raw) };
    }
}

/// Memory of a context.
#[derive(Debug)]
pub(crate) struct Buffer {
    raw: cl_mem,
    len_bytes: usize,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Buffer {}
// SAFETY: as for `Context`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// At least `len_bytes` bytes, which hold anything.
    pub(crate) fn new(
        context: &Arc<Context>,
        flags: cl_mem_flags,
        len_bytes: usize,
    ) -> Result<Self, Failure> {
        let refused = by("clCreateBuffer");
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(FILL_BYTES);
        let len_bytes = len_bytes.ok_or(refused(cl3::error_codes::CL_INVALID_BUFFER_SIZE))?;
        // SAFETY: the context is valid, and without memory of the host no pointer is needed.
        let raw = unsafe { create_buffer(context.raw, flags, len_bytes, null_mut()) };
        Ok(Buffer { raw: raw.map_err(refused)?, len_bytes, context: Arc::clone(context) })
    }

    /// How long it is.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether it is memory of `context`.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this value's own reference; OpenCL waits for commands that need the memory.
        let _ = unsafe { release_mem_object(self.raw) };
    }
}

/// A buffer that the host sees until this is dropped. Commands are given its address, as any
/// memory of the host's: OpenCL forbids to use the buffer itself meanwhile, and so kernels don't reach it.
#[derive(Debug)]
pub(crate) struct Mapped {
    buffer: Buffer,
    start: NonNull<u8>,
    queue: Arc<Queue>,
}

// SAFETY: the address is that of memory that this value alone unmaps.
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`; nothing is reached through a shared reference but the address.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `buffer` by `queue`; blocks until it is.
    pub(crate) fn new(buffer: Buffer, queue: &Arc<Queue>) -> Result<Self, Failure> {
        let start = queue.map(&buffer)?;
        Ok(Mapped { buffer, start, queue: Arc::clone(queue) })
    }

    /// Its bytes, which are there as long as this value.
    pub(crate) fn span(&self) -> HostSpan {
        // SAFETY: the whole buffer is mapped for reads and writes; its user has this value own it.
        unsafe { HostSpan::new(self.start, self.buffer.len_bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: whoever used the memory held the region, which owned this value. What fails here
        // leaves nothing to do.
        let _ = unsafe { self.queue.unmap(&self.buffer, self.start) };
    }
}

/// Memory of the host that a device's commands and kernels reach at its address, while the host uses it:
/// what OpenCL calls a shared virtual memory buffer of fine grain.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    len_bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the address is that of memory that this value alone gives back.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`; nothing is reached through a shared reference but the address.
unsafe impl Sync for Shared {}

impl Shared {
    /// `len_bytes` bytes, at least one, which hold anything. The context's device shares memory so.
    pub(crate) fn new(context: &Arc<Context>, len_bytes: usize) -> Result<Self, Failure> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        let len_bytes = len_bytes.max(1);
        // SAFETY: the context is valid, and its device has such memory.
        let start = unsafe { svm_alloc(context.raw, flags, len_bytes, 0) };
        // It has no other word for memory that there is none of.
        let none = Failure { call: "clSVMAlloc", code: CL_MEM_OBJECT_ALLOCATION_FAILURE };
        let start = start.ok().and_then(|start| NonNull::new(start.cast())).ok_or(none)?;
        Ok(Shared { start, len_bytes, context: Arc::clone(context) })
    }

    /// Its bytes, which are there as long as this value.
    pub(crate) fn span(&self) -> HostSpan {
        // SAFETY: OpenCL made them for reads and writes; its user has this value own them.
        unsafe { HostSpan::new(self.start, self.len_bytes) }
    }

    /// Whether it is shared with `context`.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this value's own memory. OpenCL waits for no command that needs it: who used it held the
        // region that owned it. What fails here leaves nothing to do.
        let _ = unsafe { svm_free(self.context.raw, self.start.as_ptr().cast()) };
    }
}

/// What becomes of a command.
#[derive(Debug)]
pub(crate) struct Event {
    raw: cl_event,
    /// What queued the command.
    call: &'static str,
}

// SAFETY: as for `Context`.
unsafe impl Send for Event {}
// SAFETY: as for `Context`.
unsafe impl Sync for Event {}

impl Event {
    fn of(call: &'static str, raw: Result<cl_event, c_int>) -> Result<Self, Failure> {
        raw.map(|raw| Event { raw, call }).map_err(by(call))
    }

    /// Calls `over` once, on a thread of OpenCL's or at once, when the command is over or has failed.
    /// It must be quick, wait for nothing, and not panic, which would end the process.
    pub(crate) fn when_over(&self, over: Over) -> Result<(), Failure> {
        let over: Box<Over> = Box::new(over);
        let over = Box::into_raw(over);
        let set = set_event_callback(self.raw, CL_COMPLETE, call_over, over.cast());
        set.map_err(|code| {
            // SAFETY: it came of a box just above, and nobody calls it who was not told of it.
            drop(unsafe { Box::from_raw(over) });
            by("clSetEventCallback")(code)
        })
    }

    /// Whether the command is over, or has failed.
    pub(crate) fn is_over(&self) -> bool {
        self.status().is_ok_and(|status| status <= CL_COMPLETE)
    }

    /// Blocks until the command is over; says why it failed, if it has.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // What has failed is not waited for. What is over is: to ask orders nothing.
        let waited = match self.status() {
            Ok(status) if status < CL_COMPLETE => Ok(()),
            _ => wait_for_events(&[self.raw]).map_err(by("clWaitForEvents")),
        };
        match self.status()? {
            code if code < CL_COMPLETE => Err(Failure { call: self.call, code }),
            _ => waited,
        }
    }

    /// How far the command is; below [`CL_COMPLETE`] why it failed.
    fn status(&self) -> Result<c_int, Failure> {
        let status = get_event_data(self.raw, CL_EVENT_COMMAND_EXECUTION_STATUS);
        let status = status.map_err(by("clGetEventInfo"))?;
        Ok(status.try_into().map_or(CL_COMPLETE, c_int::from_ne_bytes))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this value's own reference.
        let _ = unsafe { release_event(self.raw) };
    }
}

/// What OpenCL calls. A panic ends the process here, and never unwinds into the library.
extern "C" fn call_over(_event: cl_event, _status: c_int, over: *mut c_void) {
    // SAFETY: `when_over` made it of a box of this type, and OpenCL calls once.
    let over: Box<Over> = unsafe { Box::from_raw(over.cast()) };
    over();
}

#[cfg(test)]
impl Event {
    /// What a command's event is that failed.
    pub(crate) fn failed(context: &Context, failure: Failure) -> Self {
        let made = cl3::event::create_user_event(context.raw);
        let event = Event::of(failure.call, made).expect("an event");
        cl3::event::set_user_event_status(event.raw, failure.code).expect("it is set once");
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_four_numbers() {
        let bytes = [1, 0x17, 0x1f, 2].map(u32::to_ne_bytes).concat();
        let place = PciPlace { domain: 1, bus: 0x17, device: 0x1f, function: 2 };
        assert_eq!(place_of(&bytes), Some(place));
        for wrong in [&bytes[..12], &bytes[..15], &[]] {
            assert_eq!(place_of(wrong), None);
        }
    }
}
