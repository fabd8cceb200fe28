//! Copies by OpenCL.

use super::{Host, RawDevice, Rows, Way};
use crate::Error;
use cl3::command_queue as queue;
use cl3::context::{create_context, release_context};
use cl3::device::{CL_DEVICE_NAME, CL_DEVICE_TYPE_ALL, get_device_data, get_device_ids};
use cl3::error_codes::error_text;
use cl3::event::{release_event, wait_for_events};
use cl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, create_buffer,
    release_mem_object,
};
use cl3::platform::get_platform_ids;
use cl3::types::{CL_TRUE, cl_command_queue, cl_context, cl_device_id, cl_event, cl_mem};
use std::ptr::{NonNull, null, null_mut};
use std::rc::Rc;

/// A device of OpenCL with two buffers.
#[derive(Debug)]
pub(crate) struct OpenClDevice {
    context: Rc<Context>,
    memories: [Memory; 2],
}

/// A context of one device, and its queue.
#[derive(Debug)]
struct Context {
    raw: cl_context,
    queue: cl_command_queue,
}

#[derive(Debug)]
struct Memory {
    context: Rc<Context>,
    raw: cl_mem,
    bytes: usize,
}

/// A buffer that the host sees.
#[derive(Debug)]
struct Mapped {
    memory: Memory,
    start: NonNull<u8>,
}

impl OpenClDevice {
    /// The `nth` device called `name`, from 0, with memories of so many bytes.
    pub(crate) fn open(name: &str, nth: usize, bytes: [usize; 2]) -> Result<Self, Error> {
        let device = device_named(name, nth)?;
        let raw = create_context(&[device], null(), None, null_mut());
        let raw = raw.map_err(failed("clCreateContext"))?;
        // SAFETY: the device is the context's.
        let queue = unsafe { queue::create_command_queue(raw, device, 0) };
        let queue = queue.map_err(failed("clCreateCommandQueue"))?;
        let context = Rc::new(Context { raw, queue });
        let [first, second] = bytes.map(|bytes| Memory::new(&context, bytes, CL_MEM_READ_WRITE));
        Ok(OpenClDevice { memories: [first?, second?], context })
    }
}

impl RawDevice for OpenClDevice {
    fn pin(&self, bytes: usize) -> Result<Host, Error> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let mapped = Mapped::new(Memory::new(&self.context, bytes, flags)?)?;
        // SAFETY: it stays mapped as long as the owner, which nobody else has.
        Ok(unsafe { Host::pinned(mapped.start, bytes, mapped) })
    }

    fn copy(&self, way: Way, host: &mut Host, rows: Rows) -> Result<(), Error> {
        let memory = &self.memories[usize::from(way == Way::ReadSecond)];
        let host = host.bytes();
        rows.check(host.len(), memory.bytes)?;
        // SAFETY: the rows lie in both, which was just looked at.
        let done = unsafe {
            match rows.count {
                1 => self.copy_run(way, memory, host, rows.bytes),
                _ => self.copy_rect(way, memory, host, rows),
            }
        };
        release(done.map_err(failed("copying rows by OpenCL"))?)
    }

    fn copy_inside(&self, rows: Rows) -> Result<(), Error> {
        let [from, to] = &self.memories;
        rows.check(from.bytes, to.bytes)?;
        let (queue, src, dst) = (self.context.queue, from.raw, to.raw);
        let Rows { count, bytes, pitch } = rows;
        let ([zero, region], own) = ([[0; 3], [bytes, count, 1]], bytes * count);
        let (zero, region) = (zero.as_ptr(), region.as_ptr());
        // SAFETY: both are of the queue's context, and the rows lie in them, which was just looked at.
        let copied = unsafe {
            match count {
                1 => queue::enqueue_copy_buffer(queue, src, dst, 0, 0, bytes, 0, null()),
                _ => queue::enqueue_copy_buffer_rect(
                    queue,
                    src,
                    dst,
                    zero,
                    zero,
                    region,
                    pitch,
                    pitch * count,
                    bytes,
                    own,
                    0,
                    null(),
                ),
            }
        };
        let copied = copied.map_err(failed("copying inside a device by OpenCL"))?;
        let waited = wait_for_events(&[copied]).map_err(failed("clWaitForEvents"));
        waited.and(release(copied))
    }
}

impl OpenClDevice {
    /// A run of `bytes` at the start of both; blocks until it is there.
    ///
    /// # Safety
    /// Both hold as many.
    unsafe fn copy_run(
        &self,
        way: Way,
        memory: &Memory,
        host: &mut [u8],
        bytes: usize,
    ) -> Result<cl_event, i32> {
        let (queue, at) = (self.context.queue, host.as_mut_ptr().cast());
        // SAFETY: the caller's promise; it blocks until nobody touches them any more.
        unsafe {
            match way {
                Way::Write => {
                    queue::enqueue_write_buffer(queue, memory.raw, CL_TRUE, 0, bytes, at, 0, null())
                }
                Way::Read | Way::ReadSecond => {
                    queue::enqueue_read_buffer(queue, memory.raw, CL_TRUE, 0, bytes, at, 0, null())
                }
            }
        }
    }

    /// Rows from the start of both on; blocks until they are there.
    ///
    /// # Safety
    /// They lie in both.
    unsafe fn copy_rect(
        &self,
        way: Way,
        memory: &Memory,
        host: &mut [u8],
        rows: Rows,
    ) -> Result<cl_event, i32> {
        let Rows { count, bytes, pitch } = rows;
        let ([zero, region], own) = ([[0; 3], [bytes, count, 1]], bytes * count);
        let (zero, region, at) = (zero.as_ptr(), region.as_ptr(), host.as_mut_ptr().cast());
        let (queue, memory) = (self.context.queue, memory.raw);
        // Both take the same, but for what they promise of the host's bytes.
        macro_rules! queued {
            ($call:path) => {
                $call(
                    queue,
                    memory,
                    CL_TRUE,
                    zero,
                    zero,
                    region,
                    bytes,
                    own,
                    pitch,
                    pitch * count,
                    at,
                    0,
                    null(),
                )
            };
        }
        // SAFETY: the caller's promise; it blocks until nobody touches them any more.
        unsafe {
            match way {
                Way::Write => queued!(queue::enqueue_write_buffer_rect),
                Way::Read | Way::ReadSecond => queued!(queue::enqueue_read_buffer_rect),
            }
        }
    }
}

impl Memory {
    fn new(context: &Rc<Context>, bytes: usize, flags: u64) -> Result<Memory, Error> {
        // SAFETY: OpenCL allocates it.
        let raw = unsafe { create_buffer(context.raw, flags, bytes.max(1), null_mut()) };
        let raw = raw.map_err(failed("clCreateBuffer"))?;
        Ok(Memory { context: Rc::clone(context), raw, bytes })
    }
}

impl Mapped {
    fn new(memory: Memory) -> Result<Mapped, Error> {
        let (queue, flags, mut start) =
            (memory.context.queue, CL_MAP_READ | CL_MAP_WRITE, null_mut());
        let (raw, bytes) = (memory.raw, memory.bytes);
        // SAFETY: the buffer is of the queue's context and as long; it blocks until it is mapped.
        let mapped = unsafe {
            queue::enqueue_map_buffer(queue, raw, CL_TRUE, flags, 0, bytes, &mut start, 0, null())
        };
        release(mapped.map_err(failed("clEnqueueMapBuffer"))?)?;
        let start = NonNull::new(start.cast());
        let start = start.ok_or_else(|| Error::part("mapping a buffer")("it is nowhere"))?;
        Ok(Mapped { memory, start })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (Memory { context, raw, .. }, start) = (&self.memory, self.start.as_ptr().cast());
        // SAFETY: it is mapped there, and nobody uses it any more.
        let ended =
            unsafe { queue::enqueue_unmap_mem_object(context.queue, *raw, start, 0, null()) };
        let ended = ended.map_err(failed("clEnqueueUnmapMemObject")).and_then(release);
        let ended = ended.is_ok() && queue::finish(context.queue).is_ok();
        debug_assert!(ended, "a buffer is unmapped");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it is this value's, and nothing is in flight.
        let ended = unsafe { release_mem_object(self.raw) };
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: they are this value's, and nothing is in flight.
        let ended =
            unsafe { [queue::release_command_queue(self.queue), release_context(self.raw)] };
        debug_assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
}

fn device_named(name: &str, nth: usize) -> Result<cl_device_id, Error> {
    let mut before = 0;
    for platform in get_platform_ids().map_err(failed("clGetPlatformIDs"))? {
        for device in get_device_ids(platform, CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let called = get_device_data(device, CL_DEVICE_NAME);
            let called = called.map_err(failed("clGetDeviceInfo"))?;
            if String::from_utf8_lossy(&called).trim_end_matches('\0').trim() == name {
                if before == nth {
                    return Ok(device);
                }
                before += 1;
            }
        }
    }
    Err(Error::part("looking for a device")(format!("there is no `{name}` of number {nth}")))
}

fn release(event: cl_event) -> Result<(), Error> {
    // SAFETY: it was just made, and nobody else has it.
    unsafe { release_event(event) }.map_err(failed("clReleaseEvent"))
}

fn failed(call: &'static str) -> impl FnOnce(i32) -> Error {
    move |code| Error::part(call)(error_text(code))
}
