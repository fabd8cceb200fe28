//! From the one error of the public API to the exceptions that Python users catch.

use isometry::{ArgumentError, Error, ErrorKind};
use model::ChannelErrorKind;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

/// The exception for `error`.
pub(crate) fn raised(error: Error) -> PyErr {
    match &error {
        Error::Argument(ArgumentError::NoNode { .. }) => PyKeyError::new_err(error.to_string()),
        Error::Transfer { memory, error: failed } => {
            let (hop, cause) = (failed.hop, failed.cause.to_string());
            let name =
                if error.kind() == ErrorKind::PeerLost { "PeerLost" } else { "TransferError" };
            let arguments = (error.to_string(), hop, memory.clone(), cause);
            exception(name, arguments)
        }
        Error::Io { path, error: io } => match io.raw_os_error() {
            // Three arguments make it a FileNotFoundError, or what else the number means.
            Some(number) => PyOSError::new_err((
                number,
                without_number(&io.to_string()),
                path.clone().into_os_string(),
            )),
            None => PyOSError::new_err(error.to_string()),
        },
        Error::FarFile { node, path, os_error: Some(number), told, .. } => PyOSError::new_err((
            *number,
            without_number(told),
            format!("{node}:{}", path.display()),
        )),
        Error::Channel(refused) if refused.kind == ChannelErrorKind::OutOfMemory => {
            PyMemoryError::new_err(error.to_string())
        }
        Error::Channel(refused) => match refused.os_error {
            Some(number) => PyOSError::new_err((number, refused.detail.clone())),
            None => PyOSError::new_err(refused.detail.clone()),
        },
        _ => of_kind(error.kind(), &error),
    }
}

/// Python puts the number before the text.
fn without_number(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

/// A `LayoutError` that says `why`.
pub(crate) fn layout(why: &dyn Display) -> PyErr {
    exception("LayoutError", (why.to_string(),))
}

fn of_kind(kind: ErrorKind, error: &Error) -> PyErr {
    let name = match kind {
        ErrorKind::Argument => return PyValueError::new_err(error.to_string()),
        ErrorKind::Io => return PyOSError::new_err(error.to_string()),
        ErrorKind::Layout => "LayoutError",
        ErrorKind::Plan => "PlanError",
        ErrorKind::Transfer => "TransferError",
        ErrorKind::FileFormat => "FileFormatError",
        ErrorKind::PeerLost => "PeerLost",
        ErrorKind::Cancelled => "Cancelled",
        ErrorKind::Timeout => "Timeout",
        _ => "Error",
    };
    exception(name, (error.to_string(),))
}

/// The exceptions are Python's: `Timeout` has two bases, which a native class can't have.
fn exception(name: &str, arguments: impl for<'py> PyCallArgs<'py>) -> PyErr {
    Python::attach(|py| {
        let class = py.import("isometry._errors").and_then(|module| module.getattr(name));
        match class.and_then(|class| class.call1(arguments)) {
            Ok(value) => PyErr::from_value(value),
            Err(error) => error,
        }
    })
}
