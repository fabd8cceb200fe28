//! Streams of other libraries, as arguments.

use crate::numbers::integer;
use isometry::channel::accelerator::StreamHandle;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The stream that `object` is: an integer as the protocols number them, or what has `__cuda_stream__`,
/// `cuda_stream` (PyTorch) or `ptr` (CuPy).
///
/// # Errors
/// `TypeError` for what is none; `ValueError` for the integer 0, which is one of two default streams.
pub(crate) fn handle(object: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    match raw(object)? {
        // What an object means by 0 is not in doubt: a library's own default, which is this.
        Some(0) => Ok(StreamHandle::LEGACY_DEFAULT),
        // SAFETY: who hands over a stream says that it is there.
        Some(raw) => Ok(unsafe { StreamHandle::new(raw) }),
        None => number(object),
    }
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
        let (version, handle): (u64, u64) = pair.extract()?;
        if version != 0 {
            return Err(PyTypeError::new_err(format!("__cuda_stream__ of version {version}")));
        }
        return Ok(Some(handle));
    }
    for name in ["cuda_stream", "ptr"] {
        if let Some(handle) = object.getattr_opt(name)? {
            return handle.extract().map(Some);
        }
    }
    Ok(None)
}
