//! A driver of CUDA's without a device, as a library that tests load in its place. It emulates two
//! devices, or three, in memory of the host, and shows nothing of what NVIDIA's driver does.
//!
//! Its types are those that were generated from NVIDIA's header. It refuses what the driver refuses: a
//! call without the right context, ranges outside an allocation, pitches that are too short or too
//! long. A fault stays, and every later call answers it. [`Fake`] is how tests load it and what they tell
//! it by; `control` hears them.
#![allow(non_snake_case, reason = "the names are the driver's")]

mod control;
mod copies;
mod fake;
mod gpu;
mod ipc;
mod memory;
mod modules;
mod neighbour;
mod pointers;
mod streams;

pub use fake::Fake;
pub use neighbour::Neighbour;

use control::calls;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUdeviceptr, CUresult,
};
use gpu::{COUNT, Code, GPUS, Gpu, MAX_PITCH_BYTES, MEMORY_BYTES};
use memory::Block;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

thread_local! {
    /// The contexts that this thread made current, by the numbers of their devices.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Where memory of devices starts: no address of the host's.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000_0000;

/// Pages.
const HOST_ALIGN: usize = 4096;

/// The most memory of the host that can be pinned at once.
const PINNED_BYTES: usize = 1 << 30;

const INVALID_VALUE: Code = CUresult::CUDA_ERROR_INVALID_VALUE as Code;
const INVALID_CONTEXT: Code = CUresult::CUDA_ERROR_INVALID_CONTEXT as Code;
const INVALID_DEVICE: Code = CUresult::CUDA_ERROR_INVALID_DEVICE as Code;
const OUT_OF_MEMORY: Code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Code;

const HOST_MEMORY_ALREADY_REGISTERED: Code =
    CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED as Code;
const HOST_MEMORY_NOT_REGISTERED: Code = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED as Code;
const PEER_ACCESS_ALREADY_ENABLED: Code = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as Code;

/// The names of results that tests inject.
const NAMES: [(CUresult, &CStr); 13] = [
    (CUresult::CUDA_ERROR_INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE"),
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY"),
    (CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE, c"CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (CUresult::CUDA_ERROR_NO_DEVICE, c"CUDA_ERROR_NO_DEVICE"),
    (CUresult::CUDA_ERROR_STUB_LIBRARY, c"CUDA_ERROR_STUB_LIBRARY"),
    (CUresult::CUDA_ERROR_INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT"),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS"),
    (CUresult::CUDA_ERROR_LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED"),
    (CUresult::CUDA_ERROR_NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED"),
    (CUresult::CUDA_ERROR_INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    (CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
];

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(0)
}

/// A call that needs no context.
fn call(name: &'static str, make: impl FnOnce() -> Result<(), Code>) -> Code {
    code(control::enter(name).and_then(|()| make()))
}

/// A call in the current context, whose device has no fault.
fn call_in(name: &'static str, make: impl FnOnce(&'static Gpu, usize) -> Result<(), Code>) -> Code {
    call(name, || {
        let number = current()?;
        let fault = GPUS[number].state().fault;
        if fault == 0 { make(&GPUS[number], number) } else { Err(fault) }
    })
}

/// The number of the device whose context is current.
fn current() -> Result<usize, Code> {
    CURRENT.with_borrow(|current| current.last().copied()).ok_or(INVALID_CONTEXT)
}

fn device(number: CUdevice) -> Result<&'static Gpu, Code> {
    let number = usize::try_from(number).map_err(|_| INVALID_DEVICE)?;
    GPUS[..COUNT.load(Ordering::Relaxed)].get(number).ok_or(INVALID_DEVICE)
}

/// Writes `value` where a caller wants it.
fn give<T>(place: *mut T, value: T) -> Result<(), Code> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: callers hand over places of this type.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes `text`, and a zero behind it, where there is room for both.
fn give_text(place: *mut c_char, room: c_int, text: &str) -> Result<(), Code> {
    if text.len() >= usize::try_from(room).unwrap_or(0) {
        return Err(INVALID_VALUE);
    }
    // SAFETY: there is as much room as the caller says.
    unsafe {
        place.cast::<u8>().copy_from(text.as_ptr(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Code {
    call("cuInit", || Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    call("cuDriverGetVersion", || give(version, 12_080))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: Code, name: *mut *const c_char) -> Code {
    let found = NAMES.iter().find(|(code, _)| *code as Code == error);
    code(found.ok_or(INVALID_VALUE).and_then(|(_, text)| give(name, text.as_ptr())))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    call("cuDeviceGetCount", || give(count, COUNT.load(Ordering::Relaxed) as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(id: *mut CUdevice, ordinal: c_int) -> Code {
    call("cuDeviceGet", || device(ordinal).and_then(|_| give(id, ordinal)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, room: c_int, id: CUdevice) -> Code {
    call("cuDeviceGetName", || {
        device(id).and_then(|_| give_text(name, room, &format!("Emulated {id}")))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(name: *mut c_char, room: c_int, id: CUdevice) -> Code {
    call("cuDeviceGetPCIBusId", || {
        device(id).and_then(|_| give_text(name, room, &format!("0000:0{id}:00.0")))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, id: CUdevice) -> Code {
    call("cuDeviceTotalMem_v2", || device(id).and_then(|_| give(bytes, MEMORY_BYTES)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, what: c_uint, id: CUdevice) -> Code {
    use CUdevice_attribute as Attribute;
    call("cuDeviceGetAttribute", || {
        device(id)?;
        let known = [
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH, MAX_PITCH_BYTES as c_int),
            (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 6),
        ];
        let found = known.iter().find(|(attribute, _)| *attribute as c_uint == what);
        found.ok_or(INVALID_VALUE).and_then(|&(_, number)| give(value, number))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, id: CUdevice) -> Code {
    call("cuDevicePrimaryCtxRetain", || {
        device(id)?.state().contexts += 1;
        give(context, (id as usize + 1) as CUcontext)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(id: CUdevice) -> Code {
    call("cuDevicePrimaryCtxRelease_v2", || {
        let mut state = device(id)?.state();
        state.contexts = state.contexts.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        Ok(())
    })
}

/// The number of the device whose context this is.
fn retained(context: CUcontext) -> Result<usize, Code> {
    let number = (context as usize).wrapping_sub(1);
    let gpu = GPUS.get(number).ok_or(INVALID_CONTEXT)?;
    if gpu.state().contexts == 0 { Err(INVALID_CONTEXT) } else { Ok(number) }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: CUcontext) -> Code {
    call("cuCtxSetCurrent", || {
        let number = retained(context)?;
        CURRENT.with_borrow_mut(|current| {
            current.pop();
            current.push(number);
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: CUcontext) -> Code {
    call("cuCtxPushCurrent_v2", || {
        let number = retained(context)?;
        CURRENT.with_borrow_mut(|current| current.push(number));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> Code {
    call("cuCtxPopCurrent_v2", || {
        let number = CURRENT.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        give(context, (number + 1) as CUcontext)
    })
}

/// Each device reaches the others.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(reaches: *mut c_int, id: CUdevice, peer: CUdevice) -> Code {
    call("cuDeviceCanAccessPeer", || {
        device(id).and_then(|_| device(peer))?;
        give(reaches, c_int::from(id != peer))
    })
}

/// Those next to each other have a faster link than those that are not.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    what: c_uint,
    id: CUdevice,
    peer: CUdevice,
) -> Code {
    use CUdevice_P2PAttribute as Attribute;
    call("cuDeviceGetP2PAttribute", || {
        device(id).and_then(|_| device(peer))?;
        match what == Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK as c_uint {
            _ if id == peer => Err(INVALID_DEVICE),
            true => give(value, c_int::from(id.abs_diff(peer) > 1)),
            false => Err(INVALID_VALUE),
        }
    })
}

/// Once for each pair, as by the driver.
#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Code {
    call_in("cuCtxEnablePeerAccess", |gpu, number| {
        let peer = (peer as usize).wrapping_sub(1);
        match flags {
            0 if peer < GPUS.len() && peer != number => {}
            _ => return Err(INVALID_VALUE),
        }
        if gpu.reached.fetch_or(1 << peer, Ordering::Relaxed) & 1 << peer != 0 {
            Err(PEER_ACCESS_ALREADY_ENABLED)
        } else {
            Ok(())
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> Code {
    call_in("cuMemAlloc_v2", |gpu, number| {
        let mut state = gpu.state();
        let used: usize = state.blocks.values().map(|block| block.len()).sum();
        match bytes {
            0 => return Err(INVALID_VALUE),
            _ if bytes > MEMORY_BYTES - used => return Err(OUT_OF_MEMORY),
            _ => {}
        }
        let far = state.far_away(number);
        let block = vec![0xa5; bytes];
        let at = if state.is_host_memory { block.as_ptr().expose_provenance() as u64 } else { far };
        state.blocks.insert(at, Block::Own(block));
        give(address, at)
    })
}

/// Unlike the driver it waits for nothing: what a copy still needs is gone. What others have open stays, and so
/// counts as not given back.
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> Code {
    call_in("cuMemFree_v2", |gpu, _| {
        let mut state = gpu.state();
        let may_be_freed = state.blocks.get(&address).is_some_and(Block::may_be_freed);
        let freed = may_be_freed.then(|| state.blocks.remove(&address)).flatten();
        freed.map(drop).ok_or(INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code {
    call_in("cuMemHostAlloc", |_, _| {
        let used: usize = calls().pinned.values().sum();
        if bytes == 0 || flags & !7 != 0 {
            return Err(INVALID_VALUE);
        }
        if bytes > PINNED_BYTES - used {
            return Err(OUT_OF_MEMORY);
        }
        let layout = Layout::from_size_align(bytes, HOST_ALIGN).map_err(|_| OUT_OF_MEMORY)?;
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: it was allocated just now; a driver's memory holds anything.
        unsafe { memory.write_bytes(0xa5, bytes) };
        calls().pinned.insert(memory as usize, bytes);
        give(start, memory.cast())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(start: *mut c_void) -> Code {
    call_in("cuMemFreeHost", |_, _| {
        let bytes = calls().pinned.remove(&(start as usize)).ok_or(INVALID_VALUE)?;
        let layout = Layout::from_size_align(bytes, HOST_ALIGN).map_err(|_| INVALID_VALUE)?;
        // SAFETY: it came of `cuMemHostAlloc`, and is given back once.
        unsafe { dealloc(start.cast(), layout) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint) -> Code {
    call_in("cuMemHostRegister_v2", |_, _| {
        if start.is_null() || bytes == 0 || flags & !15 != 0 {
            return Err(INVALID_VALUE);
        }
        match calls().registered.insert(start as usize) {
            true => Ok(()),
            false => Err(HOST_MEMORY_ALREADY_REGISTERED),
        }
    })
}

/// What was registered has to be there still, or its process ends here.
#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(start: *mut c_void) -> Code {
    call_in("cuMemHostUnregister", |_, _| {
        if !calls().registered.remove(&(start as usize)) {
            return Err(HOST_MEMORY_NOT_REGISTERED);
        }
        // SAFETY: it was registered, and callers keep it until this is over.
        let _ = unsafe { start.cast::<u8>().read_volatile() };
        Ok(())
    })
}
