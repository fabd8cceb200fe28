//! Memory that another Python object owns, described without copying it.

use crate::{dlpack, dtype, stream};
use isometry::channel::accelerator::StreamHandle;
use isometry::{Event, Foreign, Machine};
use model::FieldSpace;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};
use std::any::Any;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

/// Elements of an array, and what keeps them there.
pub(crate) struct Array {
    /// Where the element at index 0 of every dimension is.
    pub(crate) place: Place,
    /// Extents, slowest first.
    pub(crate) shape: Vec<u64>,
    /// Bytes from one index to the next, likewise.
    pub(crate) strides: Vec<i64>,
    /// What an element is.
    pub(crate) fields: FieldSpace,
    /// Whether it may be a destination.
    pub(crate) writable: bool,
    /// What is to be over before it is touched.
    pub(crate) after: Vec<Event>,
    /// Keeps the memory valid while it lives.
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
}

/// Where an element is.
pub(crate) enum Place {
    Host(*mut u8),
    /// At an address of a device's memory.
    Device(u64, Known),
}

/// What an exporter says of memory of a device.
pub(crate) enum Known {
    /// The stream on which it is made, if any.
    Stream(Option<StreamHandle>),
    /// The device, as CUDA numbers them.
    Ordinal(i32),
}

impl Array {
    /// What `object` exports: memory of a device by `__dlpack__` or `__cuda_array_interface__`, else by
    /// `__array_interface__`, `__dlpack__` or the buffer protocol.
    ///
    /// # Errors
    /// `TypeError` for an object that exports none of them.
    pub(crate) fn of(machine: &Machine, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if dlpack::is_on_cuda(object)? {
            return dlpack::taken(machine, object);
        }
        if let Some(interface) = object.getattr_opt("__cuda_array_interface__")? {
            return Self::of_cuda(object, &interface.cast_into::<PyDict>()?);
        }
        Self::of_host(object)
    }

    fn of_host(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(interface) = object.getattr_opt("__array_interface__")? {
            return Self::of_interface(object, &interface.cast_into::<PyDict>()?);
        }
        if object.hasattr("__dlpack__")? {
            let numpy = object.py().import("numpy")?;
            return Self::of_host(&numpy.call_method1("from_dlpack", (object,))?);
        }
        Self::of_buffer(object)
    }

    fn of_interface(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let fields = match object.getattr_opt("dtype")? {
            Some(dtype) => dtype::fields(&dtype)?,
            None => dtype::fields(&required(interface, "typestr")?)?,
        };
        let promised = dtype::fields(&required(interface, "typestr")?)?;
        if promised.item_bytes() != fields.item_bytes() {
            return Err(PyValueError::new_err("its dtype and its __array_interface__ disagree"));
        }
        let place = |address| Place::Host(std::ptr::with_exposed_provenance_mut(address));
        Self::described(object, interface, fields, place)
    }

    /// What `object` says by `__cuda_array_interface__`, of any version. Without a stream (before version 3) what
    /// is there is taken to be made.
    fn of_cuda(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let given = |key| Ok::<_, PyErr>(interface.get_item(key)?.filter(|value| !value.is_none()));
        if given("mask")?.is_some() {
            return Err(PyValueError::new_err("an array with a mask has no strides"));
        }
        let stream = given("stream")?.map(|stream| stream::number(&stream)).transpose()?;
        let fields = dtype::fields(&required(interface, "typestr")?)?;
        Self::described(object, interface, fields, |address| {
            Place::Device(address as u64, Known::Stream(stream))
        })
    }

    fn described(
        object: &Bound<'_, PyAny>,
        interface: &Bound<'_, PyDict>,
        fields: FieldSpace,
        place: impl FnOnce(usize) -> Place,
    ) -> PyResult<Self> {
        let shape: Vec<u64> = required(interface, "shape")?.extract()?;
        let (address, read_only): (usize, bool) = required(interface, "data")?.extract()?;
        let strides = match interface.get_item("strides")?.filter(|s| !s.is_none()) {
            Some(strides) => strides.extract()?,
            None => packed_strides(&shape, fields.item_bytes()),
        };
        Ok(Array {
            place: place(address),
            shape,
            strides,
            fields,
            writable: !read_only,
            after: Vec::new(),
            owner: Arc::new(object.clone().unbind()),
        })
    }

    fn of_buffer(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let none = |_| {
            PyTypeError::new_err(
                "expected an array: an object with __array_interface__, __cuda_array_interface__, \
                 __dlpack__ or a buffer",
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
            place: Place::Host(buffer.buf_ptr().cast()),
            shape: buffer.shape().iter().map(|&extent| extent as u64).collect(),
            strides: buffer.strides().iter().map(|&stride| stride as i64).collect(),
            fields: dtype::parse(element(buffer.format(), buffer.item_size())?)?,
            writable: !buffer.readonly(),
            after: Vec::new(),
            owner: Arc::new(view.unbind()),
        })
    }
}

impl From<Array> for Foreign {
    fn from(array: Array) -> Self {
        let Array { place, strides, writable, after, owner, .. } = array;
        // SAFETY: the exporter describes memory of that shape, and `owner` keeps it. Who else touches it during
        // a copy is up to the caller, as with any function on arrays.
        let foreign = unsafe {
            match place {
                Place::Host(first) => {
                    let first = NonNull::new(first).unwrap_or(NonNull::dangling());
                    Foreign::new(first, strides, writable, owner)
                }
                Place::Device(first, Known::Stream(stream)) => {
                    Foreign::on_device(first, stream, strides, writable, owner)
                }
                Place::Device(first, Known::Ordinal(ordinal)) => {
                    Foreign::on_device(first, None, strides, writable, owner).on_ordinal(ordinal)
                }
            }
        };
        after.into_iter().fold(foreign, Foreign::after)
    }
}

fn required<'py>(interface: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || PyTypeError::new_err(format!("its array interface has no `{key}`"));
    interface.get_item(key)?.filter(|v| !v.is_none()).ok_or_else(missing)
}

pub(crate) fn packed_strides(shape: &[u64], item_bytes: u64) -> Vec<i64> {
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
