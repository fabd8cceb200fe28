//! NumPy's element types as field spaces, and back.

use files::dtype;
use model::{Field, FieldSpace};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// The fields of anything that `np.dtype` takes; of a string even where NumPy is missing.
///
/// # Errors
/// `TypeError` for what is no type, or a type of Python objects or without a size.
pub(crate) fn fields(dtype: &Bound<'_, PyAny>) -> PyResult<FieldSpace> {
    let dtype = match dtype.py().import("numpy") {
        Ok(numpy) => numpy.call_method1("dtype", (dtype,))?,
        Err(_) => return parse(dtype.cast::<PyString>()?.to_string()),
    };
    parse(descr(&dtype)?.repr()?.to_string().trim_matches('\''))
}

/// The fields that `text` describes, in the form of NumPy's `descr`.
pub(crate) fn parse(text: impl AsRef<str>) -> PyResult<FieldSpace> {
    dtype::parse(text.as_ref()).map_err(|e| PyTypeError::new_err(e.to_string()))
}

/// The `np.dtype` of `fields`, in their order.
///
/// # Errors
/// `ImportError` where NumPy is missing.
pub(crate) fn of<'py>(py: Python<'py>, fields: &FieldSpace) -> PyResult<Bound<'py, PyAny>> {
    if let [lone] = fields.fields()
        && lone.name.is_empty()
        && lone.bytes == fields.item_bytes()
    {
        return element(py, lone);
    }
    let parts = fields.fields();
    let formats: Vec<_> = parts.iter().map(|f| element(py, f)).collect::<PyResult<_>>()?;
    let whole = PyDict::new(py);
    whole.set_item("names", parts.iter().map(|f| &*f.name).collect::<Vec<_>>())?;
    whole.set_item("formats", formats)?;
    whole.set_item("offsets", parts.iter().map(|f| f.offset).collect::<Vec<_>>())?;
    whole.set_item("itemsize", fields.item_bytes())?;
    py.import("numpy")?.call_method1("dtype", (whole,))
}

/// One field's type. A type that this NumPy doesn't know comes as bytes.
fn element<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let text = &*field.dtype;
    if text.starts_with(['[', '(', '{']) {
        let literal = py.import("ast")?.call_method1("literal_eval", (text,))?;
        return py.import("numpy.lib.format")?.call_method1("descr_to_dtype", (literal,));
    }
    let opaque = || numpy.call_method1("dtype", (format!("V{}", field.bytes),));
    if text.is_empty() {
        opaque()
    } else {
        numpy.call_method1("dtype", (text,)).or_else(|_| opaque())
    }
}

/// NumPy's own `descr` lacks subarrays, and structures whose fields are out of order: their parts
/// have one.
fn descr<'py>(dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = dtype.py();
    let subarray = dtype.getattr("subdtype")?;
    if !subarray.is_none() {
        let base = descr(&subarray.get_item(0)?)?;
        return Ok((base, subarray.get_item(1)?).into_pyobject(py)?.into_any());
    }
    let names = dtype.getattr("names")?;
    if names.is_none() {
        return py.import("numpy.lib.format")?.call_method1("dtype_to_descr", (dtype,));
    }
    let (mut formats, mut offsets) = (Vec::new(), Vec::new());
    let parts = dtype.getattr("fields")?;
    for name in names.try_iter()? {
        let part = parts.get_item(name?)?;
        formats.push(descr(&part.get_item(0)?)?);
        offsets.push(part.get_item(1)?);
    }
    let whole = PyDict::new(py);
    whole.set_item("names", names)?;
    whole.set_item("formats", formats)?;
    whole.set_item("offsets", offsets)?;
    whole.set_item("itemsize", dtype.getattr("itemsize")?)?;
    Ok(whole.into_any())
}
