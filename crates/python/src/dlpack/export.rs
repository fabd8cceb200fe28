//! Instances for others.

use super::dtype;
use super::raw::{self, Legacy, Managed, READ_ONLY, Tensor, VERSION, Versioned};
use crate::errors;
use isometry::Instance;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr::with_exposed_provenance_mut;

/// How a tensor is asked for.
pub(crate) struct Request {
    /// The latest version that is understood, major and minor; none that has versions without it.
    pub(crate) most_version: Option<(u32, u32)>,
    /// Where it is to be: kind of device, and its number.
    pub(crate) device: Option<(i32, i32)>,
    /// Whether it has to be a copy.
    pub(crate) copy: Option<bool>,
}

/// What is handed out: the structure, which comes first so that who has it has this, what it points to, and
/// whose bytes it describes.
#[repr(C)]
struct Export<M> {
    managed: M,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _instance: Instance,
}

/// Where an instance in a device's memory is, as DLPack says it.
///
/// # Errors
/// `ValueError` for memory of no device of CUDA's.
pub(crate) fn device_of(instance: &Instance) -> PyResult<(i32, i32)> {
    Ok((raw::CUDA, instance.device_ordinal().map_err(errors::raised)?))
}

/// A capsule of an instance in a device's memory, which it keeps until it is given back.
///
/// # Errors
/// `BufferError` for what was asked and can't be had; `ValueError`, `LayoutError` as for other arrays.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    instance: &Instance,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    let here = device_of(instance)?;
    if request.device.is_some_and(|device| device != here) {
        return Err(PyBufferError::new_err("it is on another device: copy it there first"));
    }
    if request.copy == Some(true) {
        return Err(PyBufferError::new_err("a copy is made by the machine, into an instance"));
    }
    let (shape, strides) = (extents(instance), in_elements(instance)?);
    let tensor = described(instance, here, (&shape, &strides))?;
    let is_versioned = request.most_version.is_some_and(|(major, _)| major >= VERSION.major);
    let context = std::ptr::null_mut();
    if is_versioned {
        let flags = if instance.is_writable() { 0 } else { READ_ONLY };
        let deleter = Some(delete::<Versioned> as _);
        let managed = Versioned { version: VERSION, context, deleter, flags, tensor };
        return in_capsule(py, export(managed, shape, strides, instance));
    }
    if !instance.is_writable() {
        let what = "DLPack before version 1 can't say that it is read-only: ask with max_version";
        return Err(PyBufferError::new_err(what));
    }
    let managed = Legacy { tensor, context, deleter: Some(delete::<Legacy> as _) };
    in_capsule(py, export(managed, shape, strides, instance))
}

fn extents(instance: &Instance) -> Vec<i64> {
    instance.extents().into_iter().map(u64::cast_signed).collect()
}

/// Strides that count elements.
fn in_elements(instance: &Instance) -> PyResult<Vec<i64>> {
    let item = instance.fields().item_bytes().cast_signed();
    let wrong = || PyBufferError::new_err("strides that are no multiples of an element");
    let strides = instance.strides().map_err(errors::raised)?;
    let count = |stride: i64| (stride % item == 0).then_some(stride / item).ok_or_else(wrong);
    strides.into_iter().map(count).collect()
}

/// The tensor, whose `shape` and `strides` stay where they are.
fn described(
    instance: &Instance,
    (kind, id): (i32, i32),
    (shape, strides): (&[i64], &[i64]),
) -> PyResult<Tensor> {
    let dtype = dtype::number(instance.fields())?;
    let first = instance.device_byte().map_err(errors::raised)?;
    let is_empty = shape.contains(&0);
    Ok(Tensor {
        data: with_exposed_provenance_mut(if is_empty { 0 } else { first as usize }),
        device: raw::Device { kind, id },
        // Spaces have few dimensions.
        rank: shape.len() as i32,
        dtype,
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        byte_offset: 0,
    })
}

fn export<M: Managed>(
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    instance: &Instance,
) -> Box<Export<M>> {
    Box::new(Export { managed, _shape: shape, _strides: strides, _instance: instance.clone() })
}

fn in_capsule<M: Managed>(py: Python<'_>, export: Box<Export<M>>) -> PyResult<Bound<'_, PyAny>> {
    let export = Box::into_raw(export);
    // SAFETY: the name is a constant, and what the capsule holds is there until the deleter is called.
    let made = unsafe {
        let raw = ffi::PyCapsule_New(export.cast(), M::NAME.as_ptr(), Some(forget::<M>));
        Bound::from_owned_ptr_or_err(py, raw)
    };
    made.inspect_err(|_| {
        // SAFETY: it came of a box just above, and no capsule has it.
        drop(unsafe { Box::from_raw(export) });
    })
}

/// What whoever has taken a tensor calls once, on any thread, with or without the interpreter.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: `in_capsule` made it of a box whose first part it is, and nobody uses it any more.
    drop(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
}

/// What Python calls when a capsule goes: one that nobody has taken the tensor out of takes it along.
unsafe extern "C" fn forget<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python has the interpreter here; a capsule of this name still holds what `in_capsule` put there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>());
        }
    }
}
