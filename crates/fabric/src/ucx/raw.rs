//! What of UCP's interface (`ucp/api/ucp.h`, version 1.13) is used here, found in the library when it is
//! loaded. Structures are as long as the interface's, and say by a mask which of their fields count.

use libloading::{Error, Library};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;

/// The version of the interface that this follows.
pub(crate) const VERSION: (c_uint, c_uint) = (1, 13);

pub(crate) type Status = i8;

pub(crate) const OK: Status = 0;
pub(crate) const IN_PROGRESS: Status = 1;
pub(crate) const BUSY: Status = -15;
/// An argument can't be.
pub(crate) const INVALID: Status = -5;

/// The least that a pointer is which is a status.
const LAST_ERROR: isize = -100;

/// What a call returns that may go on: nothing where it is over, a request, or an error.
pub(crate) type Pointer = *mut c_void;

/// The request that goes on; none where it is over, which says how.
pub(crate) fn request(pointer: Pointer) -> Result<Option<Pointer>, Status> {
    let address = pointer as isize;
    match address {
        0 => Ok(None),
        LAST_ERROR..0 => Err(address as Status),
        _ => Ok(Some(pointer)),
    }
}

pub(crate) const FEATURES: u64 = RMA | WAKEUP | AM;
const RMA: u64 = 1 << 1;
const WAKEUP: u64 = 1 << 4;
const AM: u64 = 1 << 6;

/// For `ucp_init`.
#[repr(C)]
pub(crate) struct Params {
    pub(crate) mask: u64,
    pub(crate) features: u64,
    pub(crate) rest: [u64; 16],
}
pub(crate) const HAS_FEATURES: u64 = 1;

/// What a context says of itself.
#[repr(C)]
pub(crate) struct ContextAttributes {
    pub(crate) mask: u64,
    pub(crate) request_size: usize,
    pub(crate) thread_mode: c_int,
    /// A bit for each kind of memory that it reaches.
    pub(crate) memory_types: u64,
    pub(crate) rest: [u64; 16],
}
pub(crate) const HAS_MEMORY_TYPES: u64 = 1 << 2;
/// That of CUDA's devices.
pub(crate) const CUDA: u64 = 1 << 1;

/// For a worker, which is used by one thread where its mode is 0.
#[repr(C)]
pub(crate) struct WorkerParams {
    pub(crate) mask: u64,
    pub(crate) thread_mode: c_int,
    pub(crate) rest: [u64; 32],
}
pub(crate) const HAS_THREAD_MODE: u64 = 1;

/// For an endpoint.
#[repr(C)]
pub(crate) struct EndpointParams {
    pub(crate) mask: u64,
    pub(crate) address: *const c_void,
    pub(crate) error_mode: c_int,
    pub(crate) error_handler: unsafe extern "C" fn(*mut c_void, Pointer, Status),
    pub(crate) error_argument: *mut c_void,
    pub(crate) rest: [u64; 16],
}
pub(crate) const HAS_ADDRESS: u64 = 1;
pub(crate) const HAS_ERROR_MODE: u64 = 1 << 1;
pub(crate) const HAS_ERROR_HANDLER: u64 = 1 << 2;
/// Peers may fail.
pub(crate) const MODE_PEER: c_int = 1;

/// For memory.
#[repr(C)]
pub(crate) struct MemoryParams {
    pub(crate) mask: u64,
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    pub(crate) rest: [u64; 8],
}
pub(crate) const HAS_PLACE: u64 = 1 | 1 << 1;

/// For what receives active messages.
#[repr(C)]
pub(crate) struct HandlerParams {
    pub(crate) mask: u64,
    pub(crate) id: c_uint,
    pub(crate) flags: u32,
    pub(crate) run: unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        usize,
        *mut c_void,
        usize,
        *const ReceiveParams,
    ) -> Status,
    pub(crate) argument: *mut c_void,
}
pub(crate) const HAS_HANDLER: u64 = 1 | 1 << 2 | 1 << 3;

/// What comes with an active message.
#[repr(C)]
pub(crate) struct ReceiveParams {
    pub(crate) attributes: u64,
    pub(crate) reply_to: Pointer,
}
/// Its data is still with the sender.
pub(crate) const RENDEZVOUS: u64 = 1 << 17;

/// For a call that may go on.
#[repr(C)]
pub(crate) struct RequestParams {
    pub(crate) mask: u32,
    pub(crate) flags: u32,
    pub(crate) rest: [u64; 12],
}
pub(crate) const HAS_FLAGS: u32 = 1 << 4;
pub(crate) const FORCE: u32 = 1;

/// The library.
pub(crate) struct Api {
    pub(crate) contexts: Contexts,
    pub(crate) workers: Workers,
    pub(crate) endpoints: Endpoints,
    pub(crate) memory: Memory,
    pub(crate) requests: Requests,
    // Dropped last: the others point into it.
    _library: Library,
}

pub(crate) struct Contexts {
    pub(crate) version: unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint),
    pub(crate) config_read:
        unsafe extern "C" fn(*const c_char, *const c_char, *mut Pointer) -> Status,
    pub(crate) config_modify: unsafe extern "C" fn(Pointer, *const c_char, *const c_char) -> Status,
    pub(crate) config_release: unsafe extern "C" fn(Pointer),
    pub(crate) init:
        unsafe extern "C" fn(c_uint, c_uint, *const Params, Pointer, *mut Pointer) -> Status,
    pub(crate) query: unsafe extern "C" fn(Pointer, *mut ContextAttributes) -> Status,
    pub(crate) cleanup: unsafe extern "C" fn(Pointer),
}

pub(crate) struct Workers {
    pub(crate) create: unsafe extern "C" fn(Pointer, *const WorkerParams, *mut Pointer) -> Status,
    pub(crate) destroy: unsafe extern "C" fn(Pointer),
    pub(crate) address: unsafe extern "C" fn(Pointer, *mut *mut u8, *mut usize) -> Status,
    pub(crate) release_address: unsafe extern "C" fn(Pointer, *mut u8),
    pub(crate) descriptor: unsafe extern "C" fn(Pointer, *mut c_int) -> Status,
    pub(crate) arm: unsafe extern "C" fn(Pointer) -> Status,
    pub(crate) progress: unsafe extern "C" fn(Pointer) -> c_uint,
    pub(crate) receive: unsafe extern "C" fn(Pointer, *const HandlerParams) -> Status,
}

pub(crate) struct Endpoints {
    pub(crate) create: unsafe extern "C" fn(Pointer, *const EndpointParams, *mut Pointer) -> Status,
    pub(crate) close: unsafe extern "C" fn(Pointer, *const RequestParams) -> Pointer,
    pub(crate) flush: unsafe extern "C" fn(Pointer, *const RequestParams) -> Pointer,
    pub(crate) send: unsafe extern "C" fn(
        Pointer,
        c_uint,
        *const u8,
        usize,
        *const u8,
        usize,
        *const RequestParams,
    ) -> Pointer,
    pub(crate) put: unsafe extern "C" fn(
        Pointer,
        *const u8,
        usize,
        u64,
        Pointer,
        *const RequestParams,
    ) -> Pointer,
    pub(crate) unpack_key: unsafe extern "C" fn(Pointer, *const u8, *mut Pointer) -> Status,
    pub(crate) destroy_key: unsafe extern "C" fn(Pointer),
}

pub(crate) struct Memory {
    pub(crate) map: unsafe extern "C" fn(Pointer, *const MemoryParams, *mut Pointer) -> Status,
    pub(crate) unmap: unsafe extern "C" fn(Pointer, Pointer) -> Status,
    pub(crate) pack_key: unsafe extern "C" fn(Pointer, Pointer, *mut *mut u8, *mut usize) -> Status,
    pub(crate) release_key: unsafe extern "C" fn(*mut u8),
}

pub(crate) struct Requests {
    pub(crate) status: unsafe extern "C" fn(Pointer) -> Status,
    pub(crate) free: unsafe extern "C" fn(Pointer),
}

impl Api {
    /// Loads the library.
    pub(crate) fn load(path: &Path) -> Result<Api, Error> {
        // SAFETY: that file is to be UCX, whose functions have these types; loading it runs what it
        // runs to set itself up.
        unsafe {
            let library = Library::new(path)?;
            macro_rules! found {
                ($name:literal) => {
                    *library.get($name)?
                };
            }
            Ok(Api {
                contexts: Contexts {
                    version: found!("ucp_get_version"),
                    config_read: found!("ucp_config_read"),
                    config_modify: found!("ucp_config_modify"),
                    config_release: found!("ucp_config_release"),
                    init: found!("ucp_init_version"),
                    query: found!("ucp_context_query"),
                    cleanup: found!("ucp_cleanup"),
                },
                workers: Workers {
                    create: found!("ucp_worker_create"),
                    destroy: found!("ucp_worker_destroy"),
                    address: found!("ucp_worker_get_address"),
                    release_address: found!("ucp_worker_release_address"),
                    descriptor: found!("ucp_worker_get_efd"),
                    arm: found!("ucp_worker_arm"),
                    progress: found!("ucp_worker_progress"),
                    receive: found!("ucp_worker_set_am_recv_handler"),
                },
                endpoints: Endpoints {
                    create: found!("ucp_ep_create"),
                    close: found!("ucp_ep_close_nbx"),
                    flush: found!("ucp_ep_flush_nbx"),
                    send: found!("ucp_am_send_nbx"),
                    put: found!("ucp_put_nbx"),
                    unpack_key: found!("ucp_ep_rkey_unpack"),
                    destroy_key: found!("ucp_rkey_destroy"),
                },
                memory: Memory {
                    map: found!("ucp_mem_map"),
                    unmap: found!("ucp_mem_unmap"),
                    pack_key: found!("ucp_rkey_pack"),
                    release_key: found!("ucp_rkey_buffer_release"),
                },
                requests: Requests {
                    status: found!("ucp_request_check_status"),
                    free: found!("ucp_request_free"),
                },
                _library: library,
            })
        }
    }
}
