//! Rows to and from a device's memory, and copies inside it, by nothing but OpenCL: as who calls it by hand
//! does.

use crate::Error;
use cl3::command_queue as queue;
use cl3::context::{create_context, release_context};
use cl3::device::{CL_DEVICE_NAME, CL_DEVICE_TYPE_ALL, get_device_data, get_device_ids};
use cl3::error_codes::error_text;
use cl3::event::{release_event, wait_for_events};
use cl3::memory::{CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use cl3::platform::get_platform_ids;
use cl3::types::{CL_TRUE, cl_command_queue, cl_context, cl_device_id, cl_event, cl_mem};
use std::ptr::{null, null_mut};

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the host to the device.
    Write,
    /// From the device to the host.
    Read,
}

/// Rows of `bytes`, which lie together on the device, and `pitch` bytes apart on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) pitch: usize,
}

/// A device with memory for some bytes, twice, and a queue that is in order.
#[derive(Debug)]
pub(crate) struct RawDevice {
    context: cl_context,
    queue: cl_command_queue,
    memory: cl_mem,
    other: cl_mem,
    bytes: usize,
}

impl RawDevice {
    /// The first device called `name`, with twice so many bytes.
    pub(crate) fn open(name: &str, bytes: usize) -> Result<RawDevice, Error> {
        let device = device_named(name)?;
        let context = create_context(&[device], null(), None, null_mut());
        let context = context.map_err(failed("clCreateContext"))?;
        // SAFETY: the device is the context's.
        let queue = unsafe { queue::create_command_queue(context, device, 0) };
        let queue = queue.map_err(failed("clCreateCommandQueue"))?;
        let buffer = || {
            // SAFETY: OpenCL allocates it.
            let memory = unsafe { create_buffer(context, CL_MEM_READ_WRITE, bytes, null_mut()) };
            memory.map_err(failed("clCreateBuffer"))
        };
        Ok(RawDevice { context, queue, memory: buffer()?, other: buffer()?, bytes })
    }

    /// Moves `rows`, the first of which is at the start of `host` and of the device's memory; blocks until
    /// they are there.
    pub(crate) fn copy(&self, way: Way, host: &mut [u8], rows: Rows) -> Result<(), Error> {
        let Rows { count, bytes, pitch } = rows;
        let last = (count.max(1) - 1) * pitch + bytes;
        if last > host.len() || count * bytes > self.bytes {
            return Err(Error::part("copying rows")("they reach outside"));
        }
        let (zero, region) = ([0; 3], [bytes, count, 1]);
        let (zero, region) = (zero.as_ptr(), region.as_ptr());
        let (own, at) = (bytes * count, host.as_mut_ptr());
        let is_one = count == 1;
        // SAFETY: the rows lie in both, which was just looked at, and it blocks until nobody touches
        // them any more.
        let done = unsafe {
            match way {
                Way::Write if is_one => queue::enqueue_write_buffer(
                    self.queue,
                    self.memory,
                    CL_TRUE,
                    0,
                    bytes,
                    at.cast(),
                    0,
                    null(),
                ),
                Way::Read if is_one => queue::enqueue_read_buffer(
                    self.queue,
                    self.memory,
                    CL_TRUE,
                    0,
                    bytes,
                    at.cast(),
                    0,
                    null(),
                ),
                Way::Write => queue::enqueue_write_buffer_rect(
                    self.queue,
                    self.memory,
                    CL_TRUE,
                    zero,
                    zero,
                    region,
                    bytes,
                    own,
                    pitch,
                    pitch * count,
                    at.cast(),
                    0,
                    null(),
                ),
                Way::Read => queue::enqueue_read_buffer_rect(
                    self.queue,
                    self.memory,
                    CL_TRUE,
                    zero,
                    zero,
                    region,
                    bytes,
                    own,
                    pitch,
                    pitch * count,
                    at.cast(),
                    0,
                    null(),
                ),
            }
        };
        release(done.map_err(failed("copying rows by OpenCL"))?)
    }

    /// Copies all bytes from the one memory to the other; blocks until they are there.
    pub(crate) fn copy_inside(&self) -> Result<(), Error> {
        let Self { queue, memory, other, bytes, .. } = *self;
        // SAFETY: both are of the queue's context, and as long.
        let copied =
            unsafe { queue::enqueue_copy_buffer(queue, memory, other, 0, 0, bytes, 0, null()) };
        let copied = copied.map_err(failed("clEnqueueCopyBuffer"))?;
        let waited = wait_for_events(&[copied]).map_err(failed("clWaitForEvents"));
        waited.and(release(copied))
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        // SAFETY: they are this value's, and nothing is in flight.
        let ended = unsafe {
            [
                release_mem_object(self.memory),
                release_mem_object(self.other),
                queue::release_command_queue(self.queue),
                release_context(self.context),
            ]
        };
        debug_assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
}

fn device_named(name: &str) -> Result<cl_device_id, Error> {
    for platform in get_platform_ids().map_err(failed("clGetPlatformIDs"))? {
        for device in get_device_ids(platform, CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let called = get_device_data(device, CL_DEVICE_NAME);
            let called = called.map_err(failed("clGetDeviceInfo"))?;
            if String::from_utf8_lossy(&called).trim_end_matches('\0').trim() == name {
                return Ok(device);
            }
        }
    }
    Err(Error::part("looking for a device")(format!("there is no `{name}`")))
}

fn release(event: cl_event) -> Result<(), Error> {
    // SAFETY: it was just made, and nobody else has it.
    unsafe { release_event(event) }.map_err(failed("clReleaseEvent"))
}

fn failed(call: &'static str) -> impl FnOnce(i32) -> Error {
    move |code| Error::part(call)(error_text(code))
}
