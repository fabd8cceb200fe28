//! Streams of other libraries, as arguments.

use crate::numbers::integer;
use isometry::channel::accelerator::StreamHandle;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The stream that `object` is: an integer as the protocols number them, or what has `__cuda_stream__`,
/// `cuda_stream` (PyTorch) or `ptr` and `wait_event` (CuPy, whose events and pointers have a `ptr` too).
///
/// # Errors
/// `TypeError` for what is none; `ValueError` for the integer 0, which is one of two default streams.
pub(crate) fn handle(object: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    match raw(object)? {
        // What an object means by 0 is not in doubt: a library's own default, which is this.
        Some(0) => Ok(StreamHandle::LEGACY_DEFAULT),
        // SAFETY: who hands over a stream says that it is there.
        Some(raw) => Ok(unsafe { StreamHandle::new(raw) }),
        None => number(object).map_err(|error| none(object, error)),
    }
}

/// `error`, that `object` is no integer, with what else it could be.
fn none(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(object.py()) {
        return error;
    }
    PyTypeError::new_err(format!(
        "expected a stream of CUDA's: an integer, or what has __cuda_stream__, cuda_stream (PyTorch), or ptr \
         and wait_event (CuPy), not {}",
        object.get_type()
    ))
}

/// The stream that the protocols call `number`.
///
/// # Errors
/// As [`handle`].
pub(crate) fn number(number: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    match integer::<u64>("a stream", number, 0..=i64::MAX)? {
        0 => Err(PyValueError::new_err(
            "0 says not which stream: 1 is the legacy default stream, 2 that of each thread",
        )),
        // SAFETY: as above.
        raw => Ok(unsafe { StreamHandle::new(raw) }),
    }
}

/// The handle of a stream that is an object.
fn raw(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if let Some(protocol) = object.getattr_opt("__cuda_stream__")? {
        // At first it was an attribute.
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        let wrong =
            |_| PyTypeError::new_err("__cuda_stream__ is no pair of a version and a handle");
        let (version, handle): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            pair.extract().map_err(wrong)?;
        let version: i64 = integer("the version of __cuda_stream__", &version, 0..=i64::MAX)?;
        if version != 0 {
            return Err(PyTypeError::new_err(format!("__cuda_stream__ of version {version}")));
        }
        return integer("the handle of __cuda_stream__", &handle, 0..=i64::MAX).map(Some);
    }
    for (name, beside) in [("cuda_stream", None), ("ptr", Some("wait_event"))] {
        if let Some(handle) = object.getattr_opt(name)?
            && beside.map_or(Ok(true), |beside| object.hasattr(beside))?
        {
            return integer(name, &handle, 0..=i64::MAX).map(Some);
        }
    }
    Ok(None)
}
