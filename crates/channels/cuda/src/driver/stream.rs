//! Streams and events, and what streams are asked to do.

use super::raw::{self, Code, Copy2d, Copy3d, Pointer, Side2d, Side3d};
use super::{Buffer, Context, Failure};
use channel::accelerator::{Ends, Rect, StreamHandle};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

/// Copies that a device carries out one after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) raw: Pointer,
    pub(super) context: Arc<Context>,
}

// SAFETY: any thread may use a stream.
unsafe impl Send for Stream {}
// SAFETY: as for `Send`.
unsafe impl Sync for Stream {}

/// One end of a copy, where it starts.
#[derive(Clone, Copy)]
enum End {
    Host(NonNull<u8>),
    Device(raw::Address),
}

impl End {
    fn of(buffer: &Buffer) -> Self {
        End::Device(buffer.address)
    }

    /// So many bytes on: kind, place on the host, place on the device.
    fn at(self, bytes: usize) -> (u32, *mut c_void, raw::Address) {
        match self {
            End::Host(start) => (raw::HOST, start.as_ptr().wrapping_add(bytes).cast(), 0),
            End::Device(start) => (raw::DEVICE, null_mut(), start + bytes as u64),
        }
    }

    fn rows(self, bytes: usize, pitch_bytes: usize) -> Side2d {
        let (kind, host, device) = self.at(bytes);
        Side2d { x_bytes: 0, y: 0, kind, host, device, array: null_mut(), pitch_bytes }
    }

    fn slices(self, bytes: usize, [pitch_bytes, slice_bytes]: [usize; 2]) -> Side3d {
        let (kind, host, device) = self.at(bytes);
        Side3d {
            x_bytes: 0,
            y: 0,
            z: 0,
            detail: 0,
            kind,
            host,
            device,
            array: null_mut(),
            context: null_mut(),
            pitch_bytes,
            height: slice_bytes / pitch_bytes,
        }
    }
}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        let mut raw = null_mut();
        context.with("cuStreamCreate", |api| {
            // SAFETY: a place for a pointer.
            unsafe { (api.streams.create)(&mut raw, raw::NON_BLOCKING) }
        })?;
        Ok(Stream { raw, context: Arc::clone(context) })
    }

    /// Makes every byte of `buffer` zero; blocks until it is.
    pub(crate) fn fill(&self, buffer: &Buffer) -> Result<(), Failure> {
        let event = Event::new(&self.context)?;
        self.context.with("cuMemsetD8Async", |api| {
            // SAFETY: both are of one context, and the length is the buffer's.
            unsafe { (api.memory.fill)(buffer.address, 0, buffer.len_bytes, self.raw) }
        })?;
        match self.record(&event) {
            Ok(()) => event.wait(),
            Err(failure) => self.finish().and(Err(failure)),
        }
    }

    /// Queues the copy of one rect.
    ///
    /// # Safety
    /// The rect lies inside both ends. These stay valid until an event that is recorded behind it is
    /// over, and until then nobody touches bytes of it in a conflicting way.
    pub(crate) unsafe fn copy(&self, ends: Ends<'_, Buffer>, rect: &Rect) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Ends::Copy(from, to) = ends
                && from.context.raw != to.context.raw
            {
                return self.copy_to_peer((from, to), rect);
            }
            if rect.is_run() {
                return self.copy_run(ends, rect);
            }
            let (src, dst) = match ends {
                Ends::Write(from, to) => (End::Host(from), End::of(to)),
                Ends::Read(from, to) => (End::of(from), End::Host(to)),
                Ends::Copy(from, to) => (End::of(from), End::of(to)),
            };
            let flat = rect.size[2] == 1;
            if flat { self.copy_rows((src, dst), rect) } else { self.copy_slices((src, dst), rect) }
        }
    }

    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn copy_run(&self, ends: Ends<'_, Buffer>, rect: &Rect) -> Result<(), Failure> {
        let Rect { src, dst, size: [bytes, ..], .. } = *rect;
        let on = |buffer: &Buffer, by: usize| buffer.address + by as u64;
        match ends {
            Ends::Write(from, to) => self.context.with("cuMemcpyHtoDAsync", |api| {
                let from = from.as_ptr().wrapping_add(src).cast_const().cast();
                // SAFETY: the caller's promise.
                unsafe { (api.copies.write)(on(to, dst), from, bytes, self.raw) }
            }),
            Ends::Read(from, to) => self.context.with("cuMemcpyDtoHAsync", |api| {
                let to = to.as_ptr().wrapping_add(dst).cast();
                // SAFETY: the caller's promise.
                unsafe { (api.copies.read)(to, on(from, src), bytes, self.raw) }
            }),
            Ends::Copy(from, to) => self.context.with("cuMemcpyDtoDAsync", |api| {
                // SAFETY: the caller's promise.
                unsafe { (api.copies.copy)(on(to, dst), on(from, src), bytes, self.raw) }
            }),
        }
    }

    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn copy_rows(&self, (src, dst): (End, End), rect: &Rect) -> Result<(), Failure> {
        let [width_bytes, height, _] = rect.size;
        let (src, dst) =
            (src.rows(rect.src, rect.src_pitch[0]), dst.rows(rect.dst, rect.dst_pitch[0]));
        let copy = Copy2d { src, dst, width_bytes, height };
        self.context.with("cuMemcpy2DAsync", |api| {
            // SAFETY: the caller's promise; the driver reads the structure before it returns.
            unsafe { (api.copies.rows)(&copy, self.raw) }
        })
    }

    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn copy_slices(&self, (src, dst): (End, End), rect: &Rect) -> Result<(), Failure> {
        let [width_bytes, height, depth] = rect.size;
        let (src, dst) =
            (src.slices(rect.src, rect.src_pitch), dst.slices(rect.dst, rect.dst_pitch));
        let copy = Copy3d { src, dst, width_bytes, height, depth };
        self.context.with("cuMemcpy3DAsync", |api| {
            // SAFETY: the caller's promise; the driver reads the structure before it returns.
            unsafe { (api.copies.slices)(&copy, self.raw) }
        })
    }

    /// Between two devices, by their contexts, so that it goes also where addresses of the one mean nothing to the
    /// other, as those of pools and mappings may.
    ///
    /// # Safety
    /// As [`Stream::copy`].
    unsafe fn copy_to_peer(
        &self,
        (from, to): (&Buffer, &Buffer),
        rect: &Rect,
    ) -> Result<(), Failure> {
        let [from_context, to_context] = [from, to].map(|buffer| buffer.context.raw);
        let [width_bytes, height, depth] = rect.size;
        if rect.is_run() {
            let [src, dst] = [from.address + rect.src as u64, to.address + rect.dst as u64];
            return self.context.with("cuMemcpyPeerAsync", |api| {
                let copy = api.copies.run_to_peer;
                // SAFETY: the caller's promise.
                unsafe { copy(dst, to_context, src, from_context, width_bytes, self.raw) }
            });
        }
        let side = |buffer, at, pitches, context| {
            let side = End::of(buffer).slices(at, pitches);
            Side3d { context, ..side }
        };
        let src = side(from, rect.src, rect.src_pitch, from_context);
        let dst = side(to, rect.dst, rect.dst_pitch, to_context);
        let copy = Copy3d { src, dst, width_bytes, height, depth };
        self.context.with("cuMemcpy3DPeerAsync", |api| {
            // SAFETY: the caller's promise; the driver reads the structure before it returns.
            unsafe { (api.copies.slices_to_peer)(&copy, self.raw) }
        })
    }

    /// Has `event` be over when what was queued before is.
    pub(crate) fn record(&self, event: &Event) -> Result<(), Failure> {
        self.context.with("cuEventRecord", |api| {
            // SAFETY: both are of one context.
            unsafe { (api.events.record)(event.raw, self.raw) }
        })
    }

    /// Blocks until all that was queued is over; the driver may spin.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.context.with("cuStreamSynchronize", |api| {
            // SAFETY: the stream is there as long as this value.
            unsafe { (api.streams.finish)(self.raw) }
        })
    }

    /// The driver's handle of it.
    pub(crate) fn handle(&self) -> StreamHandle {
        // SAFETY: it is this value's stream, which is there as long as that.
        unsafe { StreamHandle::new(self.raw.expose_provenance() as u64) }
    }

    /// Has what is queued here later wait for what `other` was asked so far, a stream of the context's. One
    /// that is being captured is refused: it runs nothing, and would capture this one too.
    pub(crate) fn follow(&self, other: StreamHandle) -> Result<(), Failure> {
        let (other, mut is_captured) = (raw_stream(other), 0);
        self.context.with("cuStreamIsCapturing", |api| {
            // SAFETY: a stream, as its handle says, and a place for a number.
            unsafe { (api.streams.is_capturing)(other, &mut is_captured) }
        })?;
        if is_captured != 0 {
            return Err(self
                .context
                .driver
                .failure("cuStreamIsCapturing", raw::CAPTURE_UNSUPPORTED));
        }
        // It may go before it is over: the driver remembers what waits for it.
        let event = Event::new(&self.context)?;
        self.context.with("cuEventRecord", |api| {
            // SAFETY: a stream, as its handle says.
            unsafe { (api.events.record)(event.raw, other) }
        })?;
        self.wait_for(&event)
    }

    /// Has what is queued here later wait for what `event` was last recorded behind.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<(), Failure> {
        self.context.with("cuStreamWaitEvent", |api| {
            // SAFETY: both are of one context.
            unsafe { (api.streams.follow)(self.raw, event.raw, 0) }
        })
    }

    /// Calls `over` once, on a thread of the driver's, when what was queued before is over or has
    /// failed, which the code says. Later copies of the stream wait for it: it must be quick, wait for
    /// nothing, call nothing of CUDA's, and not panic, which would end the process.
    pub(crate) fn when_over<F: FnOnce(Code) + Send + 'static>(
        &self,
        over: F,
    ) -> Result<(), Failure> {
        let over = Box::into_raw(Box::new(over));
        let added = self.context.with("cuStreamAddCallback", |api| {
            // SAFETY: the driver calls once, with the box.
            unsafe { (api.streams.call)(self.raw, call_over::<F>, over.cast(), 0) }
        });
        added.inspect_err(|_| {
            // SAFETY: it came of a box just above, and nobody calls it who was not told of it.
            drop(unsafe { Box::from_raw(over) });
        })
    }
}

impl Context {
    /// Whether `stream` is one of the context's, as a default one is of every context.
    pub(crate) fn has_stream(&self, stream: StreamHandle) -> Result<bool, Failure> {
        let mut context = null_mut();
        self.with("cuStreamGetCtx", |api| {
            // SAFETY: a stream, as its handle says, and a place for a pointer.
            unsafe { (api.streams.context)(raw_stream(stream), &mut context) }
        })?;
        Ok(context == self.raw)
    }
}

fn raw_stream(stream: StreamHandle) -> Pointer {
    with_exposed_provenance_mut(stream.raw() as usize)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: this value's own stream; the driver carries out what is queued.
        let _ =
            self.context.with("cuStreamDestroy", |api| unsafe { (api.streams.destroy)(self.raw) });
    }
}

/// What CUDA calls: also after a device has failed, unlike what `cuLaunchHostFunc` takes. A panic ends
/// the process here, and never unwinds into the driver.
unsafe extern "C" fn call_over<F: FnOnce(Code)>(_stream: Pointer, code: Code, over: *mut c_void) {
    // SAFETY: `when_over` made it of a box of this type, and the driver calls once.
    let over: Box<F> = unsafe { Box::from_raw(over.cast()) };
    over(code);
}

/// A place in a stream that may be waited for.
#[derive(Debug)]
pub(crate) struct Event {
    raw: Pointer,
    context: Arc<Context>,
}

// SAFETY: any thread may use an event.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        let mut raw = null_mut();
        context.with("cuEventCreate", |api| {
            // SAFETY: a place for a pointer.
            unsafe { (api.events.create)(&mut raw, raw::BLOCKING_UNTIMED) }
        })?;
        Ok(Event { raw, context: Arc::clone(context) })
    }

    /// Whether what the event was last recorded behind is over, or has failed.
    pub(crate) fn is_over(&self) -> bool {
        let Ok(_entered) = self.context.enter() else { return true };
        // SAFETY: the event is there as long as this value.
        let code = unsafe { (self.context.driver.api.events.query)(self.raw) };
        code != raw::NOT_READY
    }

    /// Sleeps until what the event was last recorded behind is over; says whether that has failed.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        self.context.with("cuEventSynchronize", |api| {
            // SAFETY: the event is there as long as this value.
            unsafe { (api.events.wait)(self.raw) }
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this value's own event.
        let _ =
            self.context.with("cuEventDestroy", |api| unsafe { (api.events.destroy)(self.raw) });
    }
}
