//! Calls that share memory with other processes of this machine.
//!
//! A handle names a file of the process that exported it. As the driver does, a process refuses what it has
//! exported itself.

use crate::gpu::{Code, GPUS};
use crate::memory::{Block, Mapping};
use crate::{INVALID_CONTEXT, INVALID_VALUE, call, call_in, current, give};
use cudarc::driver::sys::{CUdeviceptr, CUipcMemHandle, CUresult};
use std::ffi::{c_char, c_uint};
use std::fs::File;

const INVALID_HANDLE: Code = CUresult::CUDA_ERROR_INVALID_HANDLE as Code;
const NOT_SUPPORTED: Code = CUresult::CUDA_ERROR_NOT_SUPPORTED as Code;

/// The only flag: peer access is enabled where that is needed.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// A process, and the number that a file has there.
fn handle_of(process: u32, file: u32) -> CUipcMemHandle {
    let numbers = (u64::from(process) << 32 | u64::from(file)).to_le_bytes();
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    let places = handle.reserved.iter_mut().zip(numbers);
    places.for_each(|(place, byte)| *place = byte as c_char);
    handle
}

fn read(handle: &CUipcMemHandle) -> (u32, u32) {
    let numbers = std::array::from_fn(|i| handle.reserved[i] as u8);
    let numbers = u64::from_le_bytes(numbers);
    ((numbers >> 32) as u32, numbers as u32)
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, at: CUdeviceptr) -> Code {
    call_in("cuIpcGetMemHandle", |gpu, _| {
        let mut state = gpu.state();
        if state.is_host_memory {
            return Err(NOT_SUPPORTED);
        }
        let exported = state.blocks.get_mut(&at).ok_or(INVALID_VALUE)?.export()?;
        give(handle, handle_of(std::process::id(), exported.number()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenMemHandle_v2(
    at: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Code {
    call_in("cuIpcOpenMemHandle_v2", |gpu, number| {
        let (process, file) = read(&handle);
        match flags {
            LAZY_ENABLE_PEER_ACCESS if process == std::process::id() => {
                return Err(INVALID_CONTEXT);
            }
            LAZY_ENABLE_PEER_ACCESS => {}
            _ => return Err(INVALID_VALUE),
        }
        let there = format!("/proc/{process}/fd/{file}");
        let file = File::options().read(true).write(true).open(there);
        let opened = file.ok().and_then(|file| Mapping::open(file.into()).ok());
        let opened = opened.ok_or(INVALID_HANDLE)?;
        let mut state = gpu.state();
        let address = state.far_away(number);
        state.blocks.insert(address, Block::Opened(opened));
        give(at, address)
    })
}

/// A device with a fault answers that, and reaches nothing of others any more all the same.
#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(at: CUdeviceptr) -> Code {
    call("cuIpcCloseMemHandle", || {
        let mut state = GPUS[current()?].state();
        let is_opened = state.blocks.get(&at).is_some_and(Block::is_opened);
        let closed = is_opened.then(|| state.blocks.remove(&at)).flatten();
        closed.map(drop).ok_or(INVALID_VALUE)?;
        if state.fault == 0 { Ok(()) } else { Err(state.fault) }
    })
}
