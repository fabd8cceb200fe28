//! Queues, and what they are asked to do.

use super::{Buffer, Context, Event, FILL_BYTES, Failure, by};
use crate::parts::sides;
use channel::accelerator::{Ends, Rect};
use cl3::command_queue as queue;
use cl3::memory::{CL_MAP_READ, CL_MAP_WRITE};
use cl3::types::{CL_FALSE, CL_TRUE, cl_command_queue};
use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

/// Commands that a device carries out one after the other.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) raw: cl_command_queue,
    #[cfg_attr(not(test), expect(dead_code, reason = "it lives as long as the queue"))]
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Queue {}
// SAFETY: as for `Context`.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        // SAFETY: the device is the context's.
        let raw = unsafe { queue::create_command_queue(context.raw, context.device.0, 0) };
        let raw = raw.map_err(by("clCreateCommandQueue"))?;
        Ok(Queue { raw, context: Arc::clone(context) })
    }

    /// Has what was queued begin.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        queue::flush(self.raw).map_err(by("clFlush"))
    }

    /// Makes every byte of `buffer` zero; blocks until it is.
    pub(crate) fn fill(&self, buffer: &Buffer) -> Result<(), Failure> {
        let zeros = [0u8; FILL_BYTES];
        let (pattern, length) = (zeros.as_ptr().cast::<c_void>(), buffer.len_bytes);
        // SAFETY: both are of one context, the length is the buffer's and a multiple of the
        // pattern's, which OpenCL copies before it returns.
        let event = unsafe {
            queue::enqueue_fill_buffer(
                self.raw,
                buffer.raw,
                pattern,
                FILL_BYTES,
                0,
                length,
                0,
                null(),
            )
        };
        Event::of("clEnqueueFillBuffer", event)?.wait()
    }

    /// Where the host sees `buffer`, until it is unmapped; blocks until it does.
    pub(crate) fn map(&self, buffer: &Buffer) -> Result<NonNull<u8>, Failure> {
        let (mut start, flags) = (null_mut(), CL_MAP_READ | CL_MAP_WRITE);
        // SAFETY: both are of one context, and the length is the buffer's.
        let event = unsafe {
            queue::enqueue_map_buffer(
                self.raw,
                buffer.raw,
                CL_TRUE,
                flags,
                0,
                buffer.len_bytes,
                &mut start,
                0,
                null(),
            )
        };
        Event::of("clEnqueueMapBuffer", event)?;
        let nowhere =
            Failure { call: "clEnqueueMapBuffer", code: cl3::error_codes::CL_MAP_FAILURE };
        NonNull::new(start.cast()).ok_or(nowhere)
    }

    /// Takes back what [`Queue::map`] returned.
    ///
    /// # Safety
    /// `start` came of mapping `buffer`, and nobody uses the memory there from now on.
    pub(crate) unsafe fn unmap(&self, buffer: &Buffer, start: NonNull<u8>) -> Result<(), Failure> {
        let start = start.as_ptr().cast();
        // SAFETY: the caller's promise.
        let event =
            unsafe { queue::enqueue_unmap_mem_object(self.raw, buffer.raw, start, 0, null()) };
        Event::of("clEnqueueUnmapMemObject", event)?;
        self.flush()
    }

    /// Queues the copy of one rect.
    ///
    /// # Safety
    /// The rect lies inside both ends. Where one is memory of the host it stays valid until the
    /// event is over, and until then nobody touches bytes of it in a conflicting way.
    pub(crate) unsafe fn copy(
        &self,
        ends: Ends<'_, Buffer>,
        rect: &Rect,
    ) -> Result<Event, Failure> {
        // SAFETY: the caller's promise.
        unsafe {
            if rect.is_run() { self.copy_run(ends, rect) } else { self.copy_rect(ends, rect) }
        }
    }

    /// # Safety
    /// As [`Queue::copy`].
    unsafe fn copy_run(&self, ends: Ends<'_, Buffer>, rect: &Rect) -> Result<Event, Failure> {
        let Rect { src, dst, size: [bytes, ..], .. } = *rect;
        match ends {
            Ends::Write(from, to) => {
                let from = from.as_ptr().wrapping_add(src).cast_const().cast();
                // SAFETY: the caller's promise.
                let event = unsafe {
                    queue::enqueue_write_buffer(
                        self.raw,
                        to.raw,
                        CL_FALSE,
                        dst,
                        bytes,
                        from,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueWriteBuffer", event)
            }
            Ends::Read(from, to) => {
                let to = to.as_ptr().wrapping_add(dst).cast();
                // SAFETY: the caller's promise.
                let event = unsafe {
                    queue::enqueue_read_buffer(
                        self.raw,
                        from.raw,
                        CL_FALSE,
                        src,
                        bytes,
                        to,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueReadBuffer", event)
            }
            Ends::Copy(from, to) => {
                // SAFETY: the caller's promise.
                let event = unsafe {
                    queue::enqueue_copy_buffer(
                        self.raw,
                        from.raw,
                        to.raw,
                        src,
                        dst,
                        bytes,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueCopyBuffer", event)
            }
        }
    }

    /// # Safety
    /// As [`Queue::copy`].
    unsafe fn copy_rect(&self, ends: Ends<'_, Buffer>, rect: &Rect) -> Result<Event, Failure> {
        let Rect { src, dst, size, .. } = *rect;
        let [src_side, dst_side] = sides(rect);
        let (src_at, dst_at) = (src_side.origin.as_ptr(), dst_side.origin.as_ptr());
        let ([src_row, src_slice], [dst_row, dst_slice]) = (src_side.pitch, dst_side.pitch);
        let size = size.as_ptr();
        // On the host's side the pointer is the origin.
        let zeros = [0; 3];
        let start = zeros.as_ptr();
        match ends {
            Ends::Write(from, to) => {
                let from = from.as_ptr().wrapping_add(src).cast();
                // SAFETY: the caller's promise; each array has three numbers.
                let event = unsafe {
                    queue::enqueue_write_buffer_rect(
                        self.raw,
                        to.raw,
                        CL_FALSE,
                        dst_at,
                        start,
                        size,
                        dst_row,
                        dst_slice,
                        src_row,
                        src_slice,
                        from,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueWriteBufferRect", event)
            }
            Ends::Read(from, to) => {
                let to = to.as_ptr().wrapping_add(dst).cast();
                // SAFETY: as above.
                let event = unsafe {
                    queue::enqueue_read_buffer_rect(
                        self.raw,
                        from.raw,
                        CL_FALSE,
                        src_at,
                        start,
                        size,
                        src_row,
                        src_slice,
                        dst_row,
                        dst_slice,
                        to,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueReadBufferRect", event)
            }
            Ends::Copy(from, to) => {
                // SAFETY: as above.
                let event = unsafe {
                    queue::enqueue_copy_buffer_rect(
                        self.raw,
                        from.raw,
                        to.raw,
                        src_at,
                        dst_at,
                        size,
                        src_row,
                        src_slice,
                        dst_row,
                        dst_slice,
                        0,
                        null(),
                    )
                };
                Event::of("clEnqueueCopyBufferRect", event)
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: this value's own reference; OpenCL carries out what is queued.
        let _ = unsafe { queue::release_command_queue(self.raw) };
    }
}

/// What a queue waits for.
#[cfg(test)]
pub(crate) struct Hold(Event);

#[cfg(test)]
impl Queue {
    /// Has what is queued from now on wait.
    pub(crate) fn hold(&self) -> Hold {
        let made = cl3::event::create_user_event(self.context.raw);
        let gate = Event::of("clCreateUserEvent", made).expect("a gate");
        // SAFETY: the event is of the queue's context.
        let barrier = unsafe { queue::enqueue_barrier_with_wait_list(self.raw, 1, &gate.raw) };
        Event::of("clEnqueueBarrierWithWaitList", barrier).expect("a barrier");
        Hold(gate)
    }
}

#[cfg(test)]
impl Hold {
    /// Lets what waits go on.
    pub(crate) fn end(self) {
        cl3::event::set_user_event_status(self.0.raw, cl3::event::CL_COMPLETE)
            .expect("it is set once");
    }
}
