//! What an address is told to be.

use crate::control::calls;
use crate::gpu::{Code, GPUS};
use crate::{INVALID_VALUE, call_in, give};
use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute};
use std::ffi::{c_int, c_uint, c_void};

/// A range of memory, and whose it is.
#[derive(Clone, Copy)]
struct Pointer {
    kind: CUmemorytype,
    /// The number of the device that it belongs to, or for which it was pinned.
    device: usize,
    start: u64,
    bytes: usize,
}

/// What is at `at`, if that is memory of a device or pinned for one.
fn find(at: u64) -> Option<Pointer> {
    let of_device = |device: usize| {
        let (start, bytes) = GPUS[device].state().mapped(at)?;
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        Some(Pointer { kind, device, start, bytes })
    };
    let of_host = || {
        let calls = calls();
        let (&start, &bytes) = calls.pinned.range(..=at as usize).next_back()?;
        let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
        let found = Pointer { kind, device: 0, start: start as u64, bytes };
        (at < found.start + bytes as u64).then_some(found)
    };
    (0..GPUS.len()).find_map(of_device).or_else(of_host)
}

/// Writes what `attribute` is; of an address that is not known a zero, and no device.
fn answer(
    attribute: CUpointer_attribute,
    place: *mut c_void,
    pointer: Option<Pointer>,
) -> Result<(), Code> {
    use CUpointer_attribute as Attribute;
    match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => {
            give(place.cast(), pointer.map_or(0, |p| p.device as u64 + 1))
        }
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            give(place.cast(), pointer.map_or(0, |p| p.kind as c_uint))
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => give(place.cast(), 0 as c_uint),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            give(place.cast(), pointer.map_or(-2, |p| p.device as c_int))
        }
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
            give(place.cast(), pointer.map_or(0, |p| p.start))
        }
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => {
            give(place.cast(), pointer.map_or(0, |p| p.bytes))
        }
        _ => Err(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const CUpointer_attribute,
    places: *const *mut c_void,
    at: CUdeviceptr,
) -> Code {
    call_in("cuPointerGetAttributes", |_, _| {
        let pointer = find(at);
        // SAFETY: callers hand over as many attributes, and places for them, as they say.
        let asked = (0..count as usize).map(|n| unsafe { (*attributes.add(n), *places.add(n)) });
        asked.into_iter().try_for_each(|(attribute, place)| answer(attribute, place, pointer))
    })
}
