//! What a machine is opened with.

use crate::numbers::integer;
use isometry::fabric::{CAPACITY, Config, ErrorKind, KEY, RANK, ROOT, SIZE};
use isometry::{Machine, MachineBuilder, parse_size};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::path::PathBuf;

/// A builder with the given settings.
///
/// # Errors
/// `ValueError` and `TypeError` for settings that are none.
pub(crate) fn builder(
    lanes: Option<&Bound<'_, PyAny>>,
    staging: Option<&Bound<'_, PyAny>>,
    disk: Option<&Bound<'_, PyAny>>,
) -> PyResult<MachineBuilder> {
    let mut builder = Machine::builder();
    if let Some(lanes) = lanes {
        builder = builder.lanes(integer("lanes", lanes, 1..=MachineBuilder::MAX_LANES as i64)?);
    }
    if let Some(staging) = staging {
        builder = builder.staging(staging_bytes(staging)?);
    }
    for path in disk.map(paths).transpose()?.unwrap_or_default() {
        builder = builder.disk(path);
    }
    Ok(builder)
}

/// The same with directories whose files other nodes may have.
///
/// # Errors
/// `TypeError` for what are no paths.
pub(crate) fn serving(
    builder: MachineBuilder,
    files: Option<&Bound<'_, PyAny>>,
) -> PyResult<MachineBuilder> {
    let dirs = files.map(paths).transpose()?.unwrap_or_default();
    Ok(dirs.iter().fold(builder, MachineBuilder::serve_files))
}

/// Whom to join, of which what is `None` is read from the environment, or asked of PMIx.
///
/// # Errors
/// `ValueError` and `TypeError` for what is missing or can't be, `OSError` for what PMIx refuses.
pub(crate) fn ranks(
    py: Python<'_>,
    (address, key): (Option<String>, Option<String>),
    rank: Option<&Bound<'_, PyAny>>,
    size: Option<&Bound<'_, PyAny>>,
    capacity: Option<&Bound<'_, PyAny>>,
) -> PyResult<Config> {
    let number = |name, given: Option<&Bound<'_, PyAny>>| {
        let number = given.map(|given| integer::<u32>(name, given, 0..=i64::from(u32::MAX)));
        Ok::<_, PyErr>(number.transpose()?.map(|number| number.to_string()))
    };
    let given = [
        (ROOT, address),
        (RANK, number("rank", rank)?),
        (SIZE, number("size", size)?),
        (KEY, key),
        (CAPACITY, number("capacity", capacity)?),
    ];
    let lookup = |name: &str| {
        let given = given.iter().find(|given| given.0 == name).and_then(|given| given.1.clone());
        given.or_else(|| std::env::var(name).ok())
    };
    py.detach(|| Config::from_variables(lookup)).map_err(|error| match error.kind() {
        ErrorKind::Usage => PyValueError::new_err(error.to_string()),
        _ => PyOSError::new_err(error.to_string()),
    })
}

/// `{"sys": "512MiB"}`.
fn staging_bytes(staging: &Bound<'_, PyAny>) -> PyResult<u64> {
    let wrong = || PyTypeError::new_err("staging is a mapping from memory to size, as \"512MiB\"");
    let mut total = 0u64;
    for (memory, bytes) in staging.cast::<PyDict>().map_err(|_| wrong())?.iter() {
        let memory: String = memory.extract()?;
        if memory != "sys" {
            return Err(PyValueError::new_err(format!("no memory `{memory}` takes staging")));
        }
        let bytes = match bytes.cast::<PyString>() {
            Ok(text) => {
                parse_size(text.to_str()?).map_err(|e| PyValueError::new_err(e.to_string()))?
            }
            Err(_) => integer("staging", &bytes, 0..=i64::MAX)?,
        };
        total = total.saturating_add(bytes);
    }
    Ok(total)
}

fn paths(disk: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    disk.extract::<PathBuf>().map(|path| vec![path]).or_else(|_| disk.extract())
}
