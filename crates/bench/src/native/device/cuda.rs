//! Copies by CUDA's driver, which is loaded when a device is opened.

use super::{Host, RawDevice, Rows, Way};
use crate::Error;
use crate::native::library::Loaded;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

/// How a call went; 0 is success.
type Code = c_int;

/// Objects of the driver's.
type Pointer = *mut c_void;

/// An address of a device's memory.
type Address = u64;

/// Host memory of all contexts.
const PORTABLE: c_uint = 1;

/// A stream that the default one doesn't wait for.
const NON_BLOCKING: c_uint = 1;

/// Kinds of memory.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// The longest text of where a device is.
const TEXT_BYTES: usize = 64;

/// One end of a copy of rows: `host` or `device` counts, as `kind` says.
#[repr(C)]
struct Side {
    x_bytes: usize,
    y: usize,
    kind: c_uint,
    host: Pointer,
    device: Address,
    array: Pointer,
    pitch_bytes: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2d {
    src: Side,
    dst: Side,
    width_bytes: usize,
    height: usize,
}

/// What of the driver is called.
#[derive(Debug)]
struct Api {
    contexts: Contexts,
    memory: Memories,
    streams: Streams,
    copies: Copies,
}

/// Devices and their contexts.
#[derive(Debug)]
struct Contexts {
    count: unsafe extern "C" fn(*mut c_int) -> Code,
    get: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    bus_id: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    retain: unsafe extern "C" fn(*mut Pointer, c_int) -> Code,
    release: unsafe extern "C" fn(c_int) -> Code,
    push: unsafe extern "C" fn(Pointer) -> Code,
    pop: unsafe extern "C" fn(*mut Pointer) -> Code,
}

/// Memory of a device, and pinned memory of the host.
#[derive(Debug)]
struct Memories {
    allocate: unsafe extern "C" fn(*mut Address, usize) -> Code,
    free: unsafe extern "C" fn(Address) -> Code,
    allocate_host: unsafe extern "C" fn(*mut Pointer, usize, c_uint) -> Code,
    free_host: unsafe extern "C" fn(Pointer) -> Code,
}

/// Streams, and waiting for them.
#[derive(Debug)]
struct Streams {
    create: unsafe extern "C" fn(*mut Pointer, c_uint) -> Code,
    destroy: unsafe extern "C" fn(Pointer) -> Code,
    finish: unsafe extern "C" fn(Pointer) -> Code,
}

/// What is timed.
#[derive(Debug)]
struct Copies {
    write: unsafe extern "C" fn(Address, *const c_void, usize, Pointer) -> Code,
    read: unsafe extern "C" fn(Pointer, Address, usize, Pointer) -> Code,
    inside: unsafe extern "C" fn(Address, Address, usize, Pointer) -> Code,
    rows: unsafe extern "C" fn(*const Copy2d, Pointer) -> Code,
    across: unsafe extern "C" fn(Address, Pointer, Address, Pointer, usize, Pointer) -> Code,
}

impl Contexts {
    fn of(library: &Loaded) -> Result<Contexts, Error> {
        // SAFETY: CUDA's functions have these types.
        unsafe {
            Ok(Contexts {
                count: library.function("cuDeviceGetCount")?,
                get: library.function("cuDeviceGet")?,
                bus_id: library.function("cuDeviceGetPCIBusId")?,
                retain: library.function("cuDevicePrimaryCtxRetain")?,
                release: library.function("cuDevicePrimaryCtxRelease_v2")?,
                push: library.function("cuCtxPushCurrent_v2")?,
                pop: library.function("cuCtxPopCurrent_v2")?,
            })
        }
    }
}

impl Memories {
    fn of(library: &Loaded) -> Result<Memories, Error> {
        // SAFETY: CUDA's functions have these types.
        unsafe {
            Ok(Memories {
                allocate: library.function("cuMemAlloc_v2")?,
                free: library.function("cuMemFree_v2")?,
                allocate_host: library.function("cuMemHostAlloc")?,
                free_host: library.function("cuMemFreeHost")?,
            })
        }
    }
}

impl Streams {
    fn of(library: &Loaded) -> Result<Streams, Error> {
        // SAFETY: CUDA's functions have these types.
        unsafe {
            Ok(Streams {
                create: library.function("cuStreamCreate")?,
                destroy: library.function("cuStreamDestroy_v2")?,
                finish: library.function("cuStreamSynchronize")?,
            })
        }
    }
}

impl Copies {
    fn of(library: &Loaded) -> Result<Copies, Error> {
        // SAFETY: CUDA's functions have these types.
        unsafe {
            Ok(Copies {
                write: library.function("cuMemcpyHtoDAsync_v2")?,
                read: library.function("cuMemcpyDtoHAsync_v2")?,
                inside: library.function("cuMemcpyDtoDAsync_v2")?,
                rows: library.function("cuMemcpy2DAsync_v2")?,
                across: library.function("cuMemcpyPeerAsync")?,
            })
        }
    }
}

impl Api {
    fn load(library: &Path) -> Result<Api, Error> {
        let library = Loaded::at(library)?;
        // SAFETY: the function of CUDA's driver has this type, and any thread may call it.
        unsafe {
            let begin: unsafe extern "C" fn(c_uint) -> Code = library.function("cuInit")?;
            check("cuInit", begin(0))?;
        }
        let api = Api {
            contexts: Contexts::of(&library)?,
            memory: Memories::of(&library)?,
            streams: Streams::of(&library)?,
            copies: Copies::of(&library)?,
        };
        library.keep();
        Ok(api)
    }

    /// The device that is at `bus_id`.
    fn device_at(&self, bus_id: &str) -> Result<c_int, Error> {
        let mut count = 0;
        // SAFETY: a place for a number.
        check("cuDeviceGetCount", unsafe { (self.contexts.count)(&mut count) })?;
        for ordinal in 0..count {
            let (mut device, mut text) = (0, [0u8; TEXT_BYTES]);
            let room = TEXT_BYTES as c_int - 1;
            // SAFETY: a place for a number, and one of that length, the last byte of which stays zero.
            unsafe {
                check("cuDeviceGet", (self.contexts.get)(&mut device, ordinal))?;
                let at = text.as_mut_ptr().cast();
                check("cuDeviceGetPCIBusId", (self.contexts.bus_id)(at, room, device))?;
            }
            let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
            if text.to_string_lossy().trim() == bus_id {
                return Ok(device);
            }
        }
        Err(Error::part("looking for a device")(format!("there is none at {bus_id}")))
    }
}

fn check(call: &'static str, code: Code) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::part(call)(format!("CUDA's error {code}"))) }
}

/// A device's primary context, and a stream of it.
#[derive(Debug)]
struct Context {
    api: Api,
    device: c_int,
    raw: Pointer,
    stream: Pointer,
}

impl Context {
    fn open(library: &Path, bus_id: &str) -> Result<Context, Error> {
        let api = Api::load(library)?;
        let (device, mut raw, mut stream) = (api.device_at(bus_id)?, null_mut(), null_mut());
        // SAFETY: a place for a pointer.
        check("cuDevicePrimaryCtxRetain", unsafe { (api.contexts.retain)(&mut raw, device) })?;
        let mut context = Context { api, device, raw, stream };
        // SAFETY: a place for a pointer.
        let create = |api: &Api| unsafe { (api.streams.create)(&mut stream, NON_BLOCKING) };
        context.with("cuStreamCreate", create)?;
        context.stream = stream;
        Ok(context)
    }

    /// Makes `call` with the context current, which the thread's own is again afterwards.
    fn with(&self, call: &'static str, make: impl FnOnce(&Api) -> Code) -> Result<(), Error> {
        // SAFETY: the context is retained.
        check("cuCtxPushCurrent", unsafe { (self.api.contexts.push)(self.raw) })?;
        let made = check(call, make(&self.api));
        // SAFETY: it was pushed just above.
        let popped = check("cuCtxPopCurrent", unsafe { (self.api.contexts.pop)(&mut null_mut()) });
        made.and(popped)
    }

    /// Makes `call`, which queues a copy; blocks until it is over.
    fn finish(&self, call: &'static str, make: impl FnOnce(&Api) -> Code) -> Result<(), Error> {
        self.with(call, |api| match make(api) {
            // SAFETY: the stream is the context's.
            0 => unsafe { (api.streams.finish)(self.stream) },
            code => code,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: both are this value's, and nothing is in flight.
        let _ = self.with("cuStreamDestroy", |api| unsafe { (api.streams.destroy)(self.stream) });
        // SAFETY: it was retained once.
        let _ = unsafe { (self.api.contexts.release)(self.device) };
    }
}

#[derive(Debug)]
struct Memory {
    context: Rc<Context>,
    address: Address,
    bytes: usize,
}

impl Memory {
    fn new(context: &Rc<Context>, bytes: usize) -> Result<Memory, Error> {
        let mut address = 0;
        // SAFETY: a place for an address.
        let allocate = |api: &Api| unsafe { (api.memory.allocate)(&mut address, bytes.max(1)) };
        context.with("cuMemAlloc", allocate)?;
        Ok(Memory { context: Rc::clone(context), address, bytes })
    }

    fn rows(&self, pitch_bytes: usize) -> Side {
        let (kind, host, device) = (DEVICE, null_mut(), self.address);
        Side { x_bytes: 0, y: 0, kind, host, device, array: null_mut(), pitch_bytes }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it is this value's, and nothing is in flight.
        let _ = self.context.with("cuMemFree", |api| unsafe { (api.memory.free)(self.address) });
    }
}

/// Host memory that the driver has pinned.
#[derive(Debug)]
struct Pinned {
    context: Rc<Context>,
    start: NonNull<u8>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: it is this value's, and nothing is in flight.
        let _ = self.context.with("cuMemFreeHost", |api| unsafe { (api.memory.free_host)(start) });
    }
}

/// A device of CUDA with two memories.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    context: Rc<Context>,
    memories: [Memory; 2],
}

impl CudaDevice {
    /// The device that the driver at `library` shows at `bus_id`, with memories of so many bytes.
    pub(crate) fn open(library: &Path, bus_id: &str, bytes: [usize; 2]) -> Result<Self, Error> {
        let context = Rc::new(Context::open(library, bus_id)?);
        let [first, second] = bytes.map(|bytes| Memory::new(&context, bytes));
        Ok(CudaDevice { memories: [first?, second?], context })
    }

    /// Moves `bytes` from the start of the first memory to that of another device's; blocks until they are
    /// there.
    pub(crate) fn copy_across(&self, to: &CudaDevice, bytes: usize) -> Result<(), Error> {
        let (src, dst) = (&self.memories[0], &to.memories[0]);
        Rows::one(bytes).check(src.bytes, dst.bytes)?;
        let (src, dst) = (src.address, dst.address);
        let (context, far) = (&self.context, to.context.raw);
        context.finish("cuMemcpyPeerAsync", |api| {
            // SAFETY: both hold as many bytes, and the contexts are theirs.
            unsafe { (api.copies.across)(dst, far, src, context.raw, bytes, context.stream) }
        })
    }

    /// # Safety
    /// The host's memory and the device's hold the rows that the structure says.
    unsafe fn copy_rows(&self, src: Side, dst: Side, rows: Rows) -> Result<(), Error> {
        let copy = Copy2d { src, dst, width_bytes: rows.bytes, height: rows.count };
        self.context.finish("cuMemcpy2DAsync", |api| {
            // SAFETY: the caller's promise; the driver reads the structure before it returns.
            unsafe { (api.copies.rows)(&copy, self.context.stream) }
        })
    }
}

impl RawDevice for CudaDevice {
    fn pin(&self, bytes: usize) -> Result<Host, Error> {
        let mut start = null_mut();
        self.context.with("cuMemHostAlloc", |api| {
            // SAFETY: a place for a pointer.
            unsafe { (api.memory.allocate_host)(&mut start, bytes.max(1), PORTABLE) }
        })?;
        let start = NonNull::new(start.cast());
        let start = start.ok_or_else(|| Error::part("pinning memory")("it is nowhere"))?;
        let owner = Pinned { context: Rc::clone(&self.context), start };
        // SAFETY: it is there as long as the owner, which nobody else has.
        Ok(unsafe { Host::pinned(start, bytes, owner) })
    }

    fn copy(&self, way: Way, host: &mut Host, rows: Rows) -> Result<(), Error> {
        let memory = &self.memories[usize::from(way == Way::ReadSecond)];
        let host = host.bytes();
        rows.check(host.len(), memory.bytes)?;
        let (at, bytes) = (host.as_mut_ptr().cast(), rows.bytes);
        let (stream, there) = (self.context.stream, memory.address);
        if rows.count > 1 {
            let pitch_bytes = rows.pitch;
            let (array, kind) = (null_mut(), HOST);
            let here = Side { x_bytes: 0, y: 0, kind, host: at, device: 0, array, pitch_bytes };
            let there = memory.rows(bytes);
            let (src, dst) = if way == Way::Write { (here, there) } else { (there, here) };
            // SAFETY: the rows lie in both, which was just looked at, and it blocks until nobody touches
            // them any more.
            return unsafe { self.copy_rows(src, dst, rows) };
        }
        match way {
            Way::Write => self.context.finish("cuMemcpyHtoDAsync", |api| {
                // SAFETY: as above.
                unsafe { (api.copies.write)(there, at, bytes, stream) }
            }),
            Way::Read | Way::ReadSecond => self.context.finish("cuMemcpyDtoHAsync", |api| {
                // SAFETY: as above.
                unsafe { (api.copies.read)(at, there, bytes, stream) }
            }),
        }
    }

    fn copy_inside(&self, rows: Rows) -> Result<(), Error> {
        let [from, to] = &self.memories;
        rows.check(from.bytes, to.bytes)?;
        if rows.count > 1 {
            // SAFETY: the rows lie in both, which was just looked at.
            return unsafe { self.copy_rows(from.rows(rows.pitch), to.rows(rows.bytes), rows) };
        }
        self.context.finish("cuMemcpyDtoDAsync", |api| {
            // SAFETY: as above.
            unsafe {
                (api.copies.inside)(to.address, from.address, rows.bytes, self.context.stream)
            }
        })
    }

    fn as_cuda(&self) -> Option<&CudaDevice> {
        Some(self)
    }
}
