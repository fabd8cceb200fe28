//! JSON values as Python's own.

use pyo3::prelude::*;

/// `value` as dicts, lists, strings and numbers.
pub(crate) fn object<'py>(
    py: Python<'py>,
    value: &serde_json::Value,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
