//! Calls for streams and events.

use crate::gpu::{Call, Code, Command, Event, GPUS};
use crate::{INVALID_VALUE, call_in, give};
use cudarc::driver::sys::{CUcontext, CUevent, CUresult, CUstream, CUstreamCaptureStatus};
use std::ffi::{c_uint, c_void};

const INVALID_HANDLE: Code = CUresult::CUDA_ERROR_INVALID_HANDLE as Code;

fn known(is_known: bool) -> Result<(), Code> {
    if is_known { Ok(()) } else { Err(INVALID_HANDLE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> Code {
    call_in("cuStreamCreate", |gpu, _| match flags {
        0 | 1 => give(stream, gpu.open_stream() as CUstream),
        _ => Err(INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> Code {
    call_in("cuStreamDestroy_v2", |gpu, _| {
        let closed = gpu.state().close_stream(stream as u64);
        gpu.tell();
        known(closed)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: CUstream) -> Code {
    call_in("cuStreamSynchronize", |gpu, _| {
        let stream = gpu.stream(stream);
        gpu.wait_until(|state| state.is_idle(stream))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamAddCallback(
    stream: CUstream,
    call: Call,
    data: *mut c_void,
    flags: c_uint,
) -> Code {
    call_in("cuStreamAddCallback", |gpu, _| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let asked = gpu.state().ask(stream as u64, Command::Call(call, data as usize));
        gpu.tell();
        known(asked)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Code {
    call_in("cuStreamWaitEvent", |gpu, _| {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let stream = gpu.stream(stream);
        let asked = gpu.state().wait_in(stream, event as u64);
        gpu.tell();
        known(asked)
    })
}

/// A default stream is one of the current context's.
#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> Code {
    call_in("cuStreamGetCtx", |gpu, number| {
        let name = gpu.stream(stream);
        let has = |number: &usize| GPUS[*number].state().streams.contains_key(&name);
        let mut all = std::iter::once(number).chain(0..GPUS.len());
        let found = all.find(has).ok_or(INVALID_HANDLE)?;
        give(context, (found + 1) as CUcontext)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> Code {
    use CUstreamCaptureStatus as Status;
    call_in("cuStreamIsCapturing", |gpu, _| {
        let name = gpu.stream(stream);
        let captured = gpu.state().streams.get(&name).map(|stream| stream.captured);
        match captured.ok_or(INVALID_HANDLE)? {
            true => give(status, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE),
            false => give(status, Status::CU_STREAM_CAPTURE_STATUS_NONE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> Code {
    call_in("cuEventCreate", |gpu, _| {
        if flags > 7 {
            return Err(INVALID_VALUE);
        }
        let mut state = gpu.state();
        let name = state.name();
        state.events.insert(name, Event::default());
        give(event, name as CUevent)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: CUevent) -> Code {
    call_in("cuEventDestroy_v2", |gpu, _| known(gpu.state().destroy_event(event as u64)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> Code {
    call_in("cuEventRecord", |gpu, _| {
        let stream = gpu.stream(stream);
        gpu.wait_until(|state| !state.is_full(stream))?;
        let mut state = gpu.state();
        known(state.events.contains_key(&(event as u64)))?;
        let asked = state.ask(stream, Command::Event(event as u64));
        gpu.tell();
        known(asked)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: CUevent) -> Code {
    call_in("cuEventQuery", |gpu, _| {
        let state = gpu.state();
        known(state.events.contains_key(&(event as u64)))?;
        match state.event_error(event as u64) {
            Some(0) => Ok(()),
            Some(error) => Err(error),
            None => Err(CUresult::CUDA_ERROR_NOT_READY as Code),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: CUevent) -> Code {
    call_in("cuEventSynchronize", |gpu, _| {
        let mut error = Some(INVALID_HANDLE);
        gpu.wait_until(|state| {
            error = state.event_error(event as u64);
            error.is_some()
        })?;
        match error {
            Some(0) => Ok(()),
            other => Err(other.unwrap_or(INVALID_HANDLE)),
        }
    })
}
