//! What of the CUDA driver's interface (`cuda.h`, version 12) is used here, found in the library when it
//! is loaded. Codes are numbers, since a driver may have ones that are newer than this program. The
//! tests' driver is written against bindings that were generated from NVIDIA's header, so that a
//! structure that differs from it is found.

use libloading::{Error, Library};
use std::ffi::{OsStr, c_char, c_int, c_uint, c_void};

/// How a call went; 0 is success.
pub(crate) type Code = c_int;
pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const CAPTURE_UNSUPPORTED: Code = 900;

/// Objects of the driver's.
pub(crate) type Pointer = *mut c_void;

/// An address of a device's memory.
pub(crate) type Address = u64;

/// What a device may be asked.
pub(crate) const MAX_PITCH: c_int = 11;
pub(crate) const UNIFIED_ADDRESSING: c_int = 41;
pub(crate) const CAPABILITY_MAJOR: c_int = 75;
pub(crate) const CAPABILITY_MINOR: c_int = 76;

/// Host memory of all contexts, which devices see.
pub(crate) const PORTABLE_MAPPED: c_uint = 1 | 2;

/// Host memory that is registered, of all contexts.
pub(crate) const PORTABLE: c_uint = 1;

/// A stream that the default one doesn't wait for.
pub(crate) const NON_BLOCKING: c_uint = 1;

/// An event that is slept for, and takes no time.
pub(crate) const BLOCKING_UNTIMED: c_uint = 1 | 2;

/// What an address may be asked: the context, the kind of memory, whether it is managed, the device, and
/// where its allocation starts and how long that is.
pub(crate) const POINTER: [c_uint; 6] = [1, 2, 8, 9, 11, 12];

/// Kinds of memory.
pub(crate) const HOST: c_uint = 1;
pub(crate) const DEVICE: c_uint = 2;

/// Access to a peer's memory is enabled already.
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Code = 704;

/// What a link is asked for, in `CUdevice_P2PAttribute`: lower is faster.
pub(crate) const PERFORMANCE_RANK: c_int = 1;

/// What another process opens memory by: `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle {
    pub(crate) bytes: [u8; 64],
}

/// Memory is opened so that peer access is enabled where that needs it.
pub(crate) const LAZY_PEER_ACCESS: c_uint = 1;

/// One end of a copy of rows: `host` or `device` counts, as `kind` says.
#[repr(C)]
pub(crate) struct Side2d {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: *mut c_void,
    pub(crate) device: Address,
    pub(crate) array: Pointer,
    pub(crate) pitch_bytes: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) src: Side2d,
    pub(crate) dst: Side2d,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
}

/// One end of a copy of slices; `context` is that of its device where these are two, and null elsewhere.
#[repr(C)]
pub(crate) struct Side3d {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) detail: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: *mut c_void,
    pub(crate) device: Address,
    pub(crate) array: Pointer,
    pub(crate) context: Pointer,
    pub(crate) pitch_bytes: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, whose fields lie as these.
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) src: Side3d,
    pub(crate) dst: Side3d,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// What a stream calls; the code says whether what was queued before has failed.
pub(crate) type Callback = unsafe extern "C" fn(Pointer, Code, *mut c_void);

/// The library.
pub(crate) struct Api {
    pub(crate) init: unsafe extern "C" fn(c_uint) -> Code,
    pub(crate) version: unsafe extern "C" fn(*mut c_int) -> Code,
    pub(crate) error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    pub(crate) devices: Devices,
    pub(crate) contexts: Contexts,
    pub(crate) memory: Memory,
    pub(crate) copies: Copies,
    pub(crate) modules: Modules,
    pub(crate) streams: Streams,
    pub(crate) events: Events,
}

pub(crate) struct Devices {
    pub(crate) count: unsafe extern "C" fn(*mut c_int) -> Code,
    pub(crate) get: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    pub(crate) name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    pub(crate) bus_id: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code,
    pub(crate) memory: unsafe extern "C" fn(*mut usize, c_int) -> Code,
    pub(crate) attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code,
    pub(crate) reaches: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code,
    pub(crate) link: unsafe extern "C" fn(*mut c_int, c_int, c_int, c_int) -> Code,
}

pub(crate) struct Contexts {
    pub(crate) retain: unsafe extern "C" fn(*mut Pointer, c_int) -> Code,
    pub(crate) release: unsafe extern "C" fn(c_int) -> Code,
    pub(crate) set: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) push: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) pop: unsafe extern "C" fn(*mut Pointer) -> Code,
    pub(crate) reach: unsafe extern "C" fn(Pointer, c_uint) -> Code,
}

pub(crate) struct Memory {
    pub(crate) allocate: unsafe extern "C" fn(*mut Address, usize) -> Code,
    pub(crate) free: unsafe extern "C" fn(Address) -> Code,
    pub(crate) allocate_host: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Code,
    pub(crate) free_host: unsafe extern "C" fn(*mut c_void) -> Code,
    pub(crate) register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code,
    pub(crate) unregister: unsafe extern "C" fn(*mut c_void) -> Code,
    pub(crate) fill: unsafe extern "C" fn(Address, u8, usize, Pointer) -> Code,
    /// How many are asked, which, places for answers, and of what.
    pub(crate) describe:
        unsafe extern "C" fn(c_uint, *const c_uint, *const *mut c_void, Address) -> Code,
    pub(crate) export: unsafe extern "C" fn(*mut IpcHandle, Address) -> Code,
    pub(crate) open: unsafe extern "C" fn(*mut Address, IpcHandle, c_uint) -> Code,
    pub(crate) close: unsafe extern "C" fn(Address) -> Code,
}

pub(crate) struct Copies {
    pub(crate) write: unsafe extern "C" fn(Address, *const c_void, usize, Pointer) -> Code,
    pub(crate) read: unsafe extern "C" fn(*mut c_void, Address, usize, Pointer) -> Code,
    pub(crate) copy: unsafe extern "C" fn(Address, Address, usize, Pointer) -> Code,
    pub(crate) rows: unsafe extern "C" fn(*const Copy2d, Pointer) -> Code,
    pub(crate) slices: unsafe extern "C" fn(*const Copy3d, Pointer) -> Code,
    /// Of one run, to another device: address and context there, and here.
    pub(crate) run_to_peer:
        unsafe extern "C" fn(Address, Pointer, Address, Pointer, usize, Pointer) -> Code,
    pub(crate) slices_to_peer: unsafe extern "C" fn(*const Copy3d, Pointer) -> Code,
}

pub(crate) struct Modules {
    pub(crate) load: unsafe extern "C" fn(*mut Pointer, *const c_void) -> Code,
    pub(crate) unload: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) function: unsafe extern "C" fn(*mut Pointer, Pointer, *const c_char) -> Code,
    pub(crate) launch: Launch,
}

/// A kernel; groups, and work items of one, by three dimensions; memory that a group has besides, the
/// stream, and places of arguments.
pub(crate) type Launch = unsafe extern "C" fn(
    Pointer,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Pointer,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

pub(crate) struct Streams {
    pub(crate) create: unsafe extern "C" fn(*mut Pointer, c_uint) -> Code,
    pub(crate) destroy: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) finish: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) call: unsafe extern "C" fn(Pointer, Callback, *mut c_void, c_uint) -> Code,
    pub(crate) context: unsafe extern "C" fn(Pointer, *mut Pointer) -> Code,
    pub(crate) is_capturing: unsafe extern "C" fn(Pointer, *mut c_uint) -> Code,
    pub(crate) follow: unsafe extern "C" fn(Pointer, Pointer, c_uint) -> Code,
}

pub(crate) struct Events {
    pub(crate) create: unsafe extern "C" fn(*mut Pointer, c_uint) -> Code,
    pub(crate) destroy: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) record: unsafe extern "C" fn(Pointer, Pointer) -> Code,
    pub(crate) query: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) wait: unsafe extern "C" fn(Pointer) -> Code,
}

impl Api {
    /// Loads the library, for good: it has threads, and others of this process may use it too.
    pub(crate) fn load(path: &OsStr) -> Result<Api, Error> {
        // SAFETY: that file is to be CUDA's driver, whose functions have these types; loading it runs
        // what it runs to set itself up. It is never unloaded.
        unsafe {
            let library = Library::new(path)?;
            let api = Api {
                init: *library.get("cuInit")?,
                version: *library.get("cuDriverGetVersion")?,
                error_name: *library.get("cuGetErrorName")?,
                devices: Devices::of(&library)?,
                contexts: Contexts::of(&library)?,
                memory: Memory::of(&library)?,
                copies: Copies::of(&library)?,
                modules: Modules::of(&library)?,
                streams: Streams::of(&library)?,
                events: Events::of(&library)?,
            };
            std::mem::forget(library);
            Ok(api)
        }
    }
}

impl Devices {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Devices {
                count: *library.get("cuDeviceGetCount")?,
                get: *library.get("cuDeviceGet")?,
                name: *library.get("cuDeviceGetName")?,
                bus_id: *library.get("cuDeviceGetPCIBusId")?,
                memory: *library.get("cuDeviceTotalMem_v2")?,
                attribute: *library.get("cuDeviceGetAttribute")?,
                reaches: *library.get("cuDeviceCanAccessPeer")?,
                link: *library.get("cuDeviceGetP2PAttribute")?,
            })
        }
    }
}

impl Contexts {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Contexts {
                retain: *library.get("cuDevicePrimaryCtxRetain")?,
                release: *library.get("cuDevicePrimaryCtxRelease_v2")?,
                set: *library.get("cuCtxSetCurrent")?,
                push: *library.get("cuCtxPushCurrent_v2")?,
                pop: *library.get("cuCtxPopCurrent_v2")?,
                reach: *library.get("cuCtxEnablePeerAccess")?,
            })
        }
    }
}

impl Memory {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Memory {
                allocate: *library.get("cuMemAlloc_v2")?,
                free: *library.get("cuMemFree_v2")?,
                allocate_host: *library.get("cuMemHostAlloc")?,
                free_host: *library.get("cuMemFreeHost")?,
                register: *library.get("cuMemHostRegister_v2")?,
                unregister: *library.get("cuMemHostUnregister")?,
                fill: *library.get("cuMemsetD8Async")?,
                describe: *library.get("cuPointerGetAttributes")?,
                export: *library.get("cuIpcGetMemHandle")?,
                open: *library.get("cuIpcOpenMemHandle_v2")?,
                close: *library.get("cuIpcCloseMemHandle")?,
            })
        }
    }
}

impl Copies {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Copies {
                write: *library.get("cuMemcpyHtoDAsync_v2")?,
                read: *library.get("cuMemcpyDtoHAsync_v2")?,
                copy: *library.get("cuMemcpyDtoDAsync_v2")?,
                rows: *library.get("cuMemcpy2DAsync_v2")?,
                slices: *library.get("cuMemcpy3DAsync_v2")?,
                run_to_peer: *library.get("cuMemcpyPeerAsync")?,
                slices_to_peer: *library.get("cuMemcpy3DPeerAsync")?,
            })
        }
    }
}

impl Modules {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Modules {
                load: *library.get("cuModuleLoadData")?,
                unload: *library.get("cuModuleUnload")?,
                function: *library.get("cuModuleGetFunction")?,
                launch: *library.get("cuLaunchKernel")?,
            })
        }
    }
}

impl Streams {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Streams {
                create: *library.get("cuStreamCreate")?,
                destroy: *library.get("cuStreamDestroy_v2")?,
                finish: *library.get("cuStreamSynchronize")?,
                call: *library.get("cuStreamAddCallback")?,
                context: *library.get("cuStreamGetCtx")?,
                is_capturing: *library.get("cuStreamIsCapturing")?,
                follow: *library.get("cuStreamWaitEvent")?,
            })
        }
    }
}

impl Events {
    unsafe fn of(library: &Library) -> Result<Self, Error> {
        // SAFETY: as for `Api::load`.
        unsafe {
            Ok(Events {
                create: *library.get("cuEventCreate")?,
                destroy: *library.get("cuEventDestroy_v2")?,
                record: *library.get("cuEventRecord")?,
                query: *library.get("cuEventQuery")?,
                wait: *library.get("cuEventSynchronize")?,
            })
        }
    }
}
