//! Memory that another Python object owns, described without copying it.

use crate::dtype;
use model::FieldSpace;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};
use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

/// Elements of an array in host memory, and what keeps them there.
pub(crate) struct Array {
    /// The element at index 0 of every dimension.
    pub(crate) first: *mut u8,
    /// Extents, slowest first.
    pub(crate) shape: Vec<u64>,
    /// Bytes from one index to the next, likewise.
    pub(crate) strides: Vec<i64>,
    /// What an element is.
    pub(crate) fields: FieldSpace,
    /// Whether it may be a destination.
    pub(crate) writable: bool,
    /// Keeps the memory valid while it lives.
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
}

impl Array {
    /// What `object` exports: by `__array_interface__`, `__dlpack__` or the buffer protocol.
    ///
    /// # Errors
    /// `TypeError` for an object that exports none of them.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(interface) = object.getattr_opt("__array_interface__")? {
            return Self::of_interface(object, &interface.cast_into::<PyDict>()?);
        }
        if object.hasattr("__dlpack__")? {
            let numpy = object.py().import("numpy")?;
            return Self::of(&numpy.call_method1("from_dlpack", (object,))?);
        }
        Self::of_buffer(object)
    }

    fn of_interface(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let shape: Vec<u64> = required(interface, "shape")?.extract()?;
        let fields = match object.getattr_opt("dtype")? {
            Some(dtype) => dtype::fields(&dtype)?,
            None => dtype::fields(&required(interface, "typestr")?)?,
        };
        let promised = dtype::fields(&required(interface, "typestr")?)?;
        if promised.item_bytes() != fields.item_bytes() {
            return Err(PyValueError::new_err("its dtype and its __array_interface__ disagree"));
        }
        let (address, read_only): (usize, bool) = required(interface, "data")?.extract()?;
        let strides = match interface.get_item("strides")?.filter(|s| !s.is_none()) {
            Some(strides) => strides.extract()?,
            None => packed_strides(&shape, fields.item_bytes()),
        };
        Ok(Array {
            first: std::ptr::with_exposed_provenance_mut(address),
            shape,
            strides,
            fields,
            writable: !read_only,
            owner: Arc::new(object.clone().unbind()),
        })
    }

    fn of_buffer(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let none = |_| {
            PyTypeError::new_err(
                "expected an array: an object with __array_interface__, __dlpack__ or a buffer",
            )
        };
        // The view holds the buffer: unlike a `PyUntypedBuffer` it may be dropped by a thread that
        // runs copies while whoever waits for that thread has the interpreter.
        let view = PyMemoryView::from(object).map_err(none)?;
        let buffer = PyUntypedBuffer::get(&view)?;
        if buffer.suboffsets().is_some() {
            return Err(PyValueError::new_err("a buffer of pointers to rows has no strides"));
        }
        Ok(Array {
            first: buffer.buf_ptr().cast(),
            shape: buffer.shape().iter().map(|&extent| extent as u64).collect(),
            strides: buffer.strides().iter().map(|&stride| stride as i64).collect(),
            fields: dtype::parse(element(buffer.format(), buffer.item_size())?)?,
            writable: !buffer.readonly(),
            owner: Arc::new(view.unbind()),
        })
    }
}

fn required<'py>(interface: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || PyTypeError::new_err(format!("__array_interface__ has no `{key}`"));
    interface.get_item(key)?.filter(|v| !v.is_none()).ok_or_else(missing)
}

fn packed_strides(shape: &[u64], item_bytes: u64) -> Vec<i64> {
    let mut step = item_bytes as i64;
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let stride = step;
            step = step.saturating_mul(extent as i64);
            stride
        })
        .collect();
    strides.reverse();
    strides
}

/// NumPy's name for one element in the format of the `struct` module.
fn element(format: &CStr, item_bytes: usize) -> PyResult<String> {
    let text = format.to_str().unwrap_or_default();
    let (order, code) = match text.strip_prefix(['@', '=', '<', '>', '!']) {
        Some(code) if text.starts_with(['>', '!']) => ('>', code),
        Some(code) => ('<', code),
        None => ('<', text),
    };
    let kind = match code {
        "b" | "h" | "i" | "l" | "q" | "n" => 'i',
        "B" | "H" | "I" | "L" | "Q" | "N" => 'u',
        "e" | "f" | "d" => 'f',
        "Zf" | "Zd" => 'c',
        "?" => 'b',
        "c" => 'S',
        _ => {
            let what = format!("a buffer of format `{text}`: wrap numpy.asarray of it");
            return Err(PyTypeError::new_err(what));
        }
    };
    Ok(format!("{order}{kind}{item_bytes}"))
}
