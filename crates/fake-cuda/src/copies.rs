//! Calls that queue copies, and what they refuse.

use crate::gpu::{Code, Command, Copy3, End, GPUS, MAX_PITCH_BYTES, State};
use crate::{INVALID_VALUE, call_in};
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemorytype,
    CUstream,
};
use std::ffi::{c_uchar, c_void};

fn queue(name: &'static str, stream: CUstream, copy: impl FnOnce() -> Result<Copy3, Code>) -> Code {
    call_in(name, |gpu, _| {
        let (copy, stream) = (copy()?, gpu.stream(stream));
        let mut state = gpu.state();
        if copy.size.contains(&0) {
            return Ok(());
        }
        check(&state, &copy)?;
        let asked = state.ask(stream, Command::Copy(copy));
        gpu.tell();
        if asked { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

/// Whether the device's ends lie inside an allocation, and no end is a pointer to nothing.
fn check(state: &State, copy: &Copy3) -> Result<(), Code> {
    let is_there = has(state, copy.src, copy.size, copy.src_pitch)
        && has(state, copy.dst, copy.size, copy.dst_pitch);
    if is_there { Ok(()) } else { Err(INVALID_VALUE) }
}

fn has(
    state: &State,
    end: End,
    [bytes, rows, slices]: [usize; 3],
    [row, slice]: [usize; 2],
) -> bool {
    match end {
        End::Host(at) => at != 0,
        End::Device(at) => state.has(at, (slices - 1) * slice + (rows - 1) * row + bytes),
    }
}

/// Queues a copy between two devices, of these contexts: the stream is the source's, and what it reads is in the
/// other once it is over. A fault of either device is the answer.
fn send(
    name: &'static str,
    stream: CUstream,
    contexts: [CUcontext; 2],
    copy: impl FnOnce() -> Result<Copy3, Code>,
) -> Code {
    call_in(name, |gpu, number| {
        let [src, dst] = contexts.map(|context| (context as usize).wrapping_sub(1));
        let (copy, peer) = (copy()?, GPUS.get(dst).ok_or(INVALID_VALUE)?);
        let fault = peer.state().fault;
        if fault != 0 {
            return Err(fault);
        }
        let is_whole = has(&gpu.state(), copy.src, copy.size, copy.src_pitch)
            && has(&peer.state(), copy.dst, copy.size, copy.dst_pitch);
        if src != number || !is_whole {
            return Err(INVALID_VALUE);
        }
        let asked = gpu.state().ask(stream as u64, Command::Send(copy, peer));
        gpu.tell();
        if asked { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

fn run(src: End, dst: End, bytes: usize) -> Copy3 {
    Copy3 { src, dst, size: [bytes, 1, 1], src_pitch: [bytes; 2], dst_pitch: [bytes; 2] }
}

/// An end of rows or slices, from the fields of either structure, moved to where it starts.
fn end(
    kind: CUmemorytype,
    (host, device): (*const c_void, CUdeviceptr),
    start_bytes: usize,
) -> Result<End, Code> {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => Ok(End::Host(host as usize + start_bytes)),
        CUmemorytype::CU_MEMORYTYPE_DEVICE => Ok(End::Device(device + start_bytes as u64)),
        _ => Err(INVALID_VALUE),
    }
}

/// Pitches that hold a row and are not too long, and slices that hold their rows.
fn pitches(pitch: usize, height: usize, (x, y): (usize, usize)) -> Result<[usize; 2], Code> {
    let fits = x <= pitch && pitch <= MAX_PITCH_BYTES && y <= height;
    if fits { Ok([pitch, pitch * height]) } else { Err(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Code {
    queue("cuMemcpyHtoDAsync_v2", stream, || {
        Ok(run(End::Host(src as usize), End::Device(dst), bytes))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    queue("cuMemcpyDtoHAsync_v2", stream, || {
        Ok(run(End::Device(src), End::Host(dst as usize), bytes))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    queue("cuMemcpyDtoDAsync_v2", stream, || Ok(run(End::Device(src), End::Device(dst), bytes)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Code {
    send("cuMemcpyPeerAsync", stream, [src_context, dst_context], || {
        Ok(run(End::Device(src), End::Device(dst), bytes))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Code {
    // SAFETY: the caller hands over one.
    let c = unsafe { &*copy };
    send("cuMemcpy3DPeerAsync", stream, [c.srcContext, c.dstContext], || {
        let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let starts = [c.srcXInBytes, c.srcY, c.srcZ, c.dstXInBytes, c.dstY, c.dstZ];
        let kinds = [c.srcMemoryType, c.dstMemoryType];
        if starts != [0; 6] || kinds != [device; 2] || c.srcLOD != 0 || c.dstLOD != 0 {
            return Err(INVALID_VALUE);
        }
        let (width, height) = (c.WidthInBytes, c.Height);
        Ok(Copy3 {
            src: End::Device(c.srcDevice),
            dst: End::Device(c.dstDevice),
            size: [width, height, c.Depth],
            src_pitch: pitches(c.srcPitch, c.srcHeight, (width, height))?,
            dst_pitch: pitches(c.dstPitch, c.dstHeight, (width, height))?,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Code {
    queue("cuMemcpy2DAsync_v2", stream, || {
        // SAFETY: the caller hands over one.
        let c = unsafe { &*copy };
        let start = |x, y, pitch| x + y * pitch;
        let (width, height) = (c.WidthInBytes, c.Height);
        let src_at = start(c.srcXInBytes, c.srcY, c.srcPitch);
        let dst_at = start(c.dstXInBytes, c.dstY, c.dstPitch);
        Ok(Copy3 {
            src: end(c.srcMemoryType, (c.srcHost, c.srcDevice), src_at)?,
            dst: end(c.dstMemoryType, (c.dstHost, c.dstDevice), dst_at)?,
            size: [width, height, 1],
            src_pitch: pitches(c.srcPitch, height, (c.srcXInBytes + width, 0))?,
            dst_pitch: pitches(c.dstPitch, height, (c.dstXInBytes + width, 0))?,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Code {
    queue("cuMemcpy3DAsync_v2", stream, || {
        // SAFETY: the caller hands over one.
        let c = unsafe { &*copy };
        let reserved = [c.reserved0, c.reserved1].iter().any(|pointer| !pointer.is_null());
        if reserved || c.srcLOD != 0 || c.dstLOD != 0 {
            return Err(INVALID_VALUE);
        }
        let start = |(x, y, z), [row, slice]: [usize; 2]| x + y * row + z * slice;
        let (width, height) = (c.WidthInBytes, c.Height);
        let (src_x, dst_x) = (c.srcXInBytes, c.dstXInBytes);
        let src_pitch = pitches(c.srcPitch, c.srcHeight, (src_x + width, c.srcY + height))?;
        let dst_pitch = pitches(c.dstPitch, c.dstHeight, (dst_x + width, c.dstY + height))?;
        let src_at = start((src_x, c.srcY, c.srcZ), src_pitch);
        let dst_at = start((dst_x, c.dstY, c.dstZ), dst_pitch);
        Ok(Copy3 {
            src: end(c.srcMemoryType, (c.srcHost, c.srcDevice), src_at)?,
            dst: end(c.dstMemoryType, (c.dstHost, c.dstDevice), dst_at)?,
            size: [width, height, c.Depth],
            src_pitch,
            dst_pitch,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(
    at: CUdeviceptr,
    byte: c_uchar,
    bytes: usize,
    stream: CUstream,
) -> Code {
    call_in("cuMemsetD8Async", |gpu, _| {
        let stream = gpu.stream(stream);
        let mut state = gpu.state();
        let fits = state.has(at, bytes);
        let asked = fits && state.ask(stream, Command::Fill(at, byte, bytes));
        gpu.tell();
        if asked { Ok(()) } else { Err(INVALID_VALUE) }
    })
}
