//! `Instance`: an array in a memory, or a box of one.

use crate::dlpack::{self, Request};
use crate::numbers::integer;
use crate::{dims, dtype, errors};
use isometry::Instance;
use model::Topology;
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::c_int;
use std::sync::Arc;

/// An array in a memory, or a box of one.
#[pyclass(frozen, name = "Instance", module = "isometry")]
pub(crate) struct PyInstance {
    pub(crate) inner: Instance,
    /// Knows its memory's name.
    pub(crate) topology: Arc<Topology>,
}

#[pymethods]
impl PyInstance {
    #[getter]
    fn dims<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dims = PyDict::new(py);
        for dim in self.inner.space().dims() {
            dims.set_item(&*dim.name, (dim.lo, dim.hi))?;
        }
        Ok(dims)
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.extents())
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::of(py, self.inner.fields())
    }

    #[getter]
    fn layout(&self) -> String {
        self.inner.layout().display(self.inner.space()).to_string()
    }

    #[getter]
    fn memory(&self) -> String {
        self.topology.short_name(self.inner.memory())
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.payload_bytes()
    }

    #[pyo3(name = "box")]
    fn select(&self, ranges: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bounds = dims::bounds(ranges)?;
        let ranges: Vec<_> = bounds.iter().map(|(n, range)| (&**n, range.clone())).collect();
        self.part(self.inner.select(&ranges))
    }

    fn take(&self, dim: &str, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let index =
            |given: PyResult<Bound<'_, PyAny>>| integer("each index", &given?, i64::MIN..=i64::MAX);
        let indices: Vec<i64> = indices.try_iter()?.map(index).collect::<PyResult<_>>()?;
        self.part(self.inner.take(dim, &indices))
    }

    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.inner.host_span().map_err(errors::raised)?;
        let bytes = Bound::new(py, Bytes { inner: self.inner.clone() })?;
        py.import("builtins")?.call_method1("memoryview", (bytes,))
    }

    #[pyo3(signature = (sync = false))]
    fn commit(&self, py: Python<'_>, sync: bool) -> PyResult<()> {
        py.detach(|| self.inner.commit(sync)).map_err(errors::raised)
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dtype = self.plain_dtype(py)?;
        let interface = self.interface(py)?;
        interface.set_item("typestr", dtype.getattr("str")?)?;
        Ok(interface)
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let array = Self::view(slf)?;
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        options.set_item("copy", copy)?;
        py.import("numpy")?.getattr("array")?.call((array,), Some(&options))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let none = |_| PyAttributeError::new_err("it is in no memory of a CUDA device");
        self.inner.device_ordinal().map_err(none)?;
        let dtype = self.plain_dtype(py)?;
        py.detach(|| self.inner.settle()).map_err(errors::raised)?;
        let first = self.inner.device_byte().map_err(errors::raised)?;
        let is_empty = self.inner.extents().contains(&0);
        let interface = self.described(py, if is_empty { 0 } else { first })?;
        interface.set_item("typestr", dtype.getattr("str")?)?;
        interface.set_item("stream", py.None())?;
        Ok(interface)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, inner) = (slf.py(), &slf.get().inner);
        py.detach(|| inner.settle()).map_err(errors::raised)?;
        if inner.host_span().is_err() {
            let request = Request { most_version: max_version, device: dl_device, copy };
            return dlpack::capsule(py, inner, &request);
        }
        let options = PyDict::new(py);
        options.set_item("stream", stream)?;
        for (name, given) in [
            ("max_version", max_version.into_pyobject(py)?.into_any()),
            ("dl_device", dl_device.into_pyobject(py)?.into_any()),
            ("copy", copy.into_pyobject(py)?.into_any()),
        ] {
            if !given.is_none() {
                options.set_item(name, given)?;
            }
        }
        Self::view(slf)?.call_method("__dlpack__", (), Some(&options))
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        const CPU: i32 = 1;
        match self.inner.host_span() {
            Ok(_) => Ok((CPU, 0)),
            Err(_) => dlpack::device_of(&self.inner),
        }
    }

    fn __repr__(&self) -> String {
        let space = self.inner.space();
        let dims = space.dims().iter().map(|d| match d.lo {
            0 => format!("{}={}", d.name, d.hi),
            lo => format!("{}={lo}..{}", d.name, d.hi),
        });
        let (dims, memory) = (dims.collect::<Vec<_>>().join(", "), self.memory());
        format!("<Instance {dims} {} in {memory}>", self.layout())
    }
}

impl PyInstance {
    fn part(&self, part: Result<Instance, isometry::Error>) -> PyResult<Self> {
        let inner = part.map_err(errors::raised)?;
        Ok(PyInstance { inner, topology: Arc::clone(&self.topology) })
    }

    /// `__array_interface__` without the type: shape, strides and address.
    ///
    /// # Errors
    /// `ValueError` for memory that is not on the host, `LayoutError` for a layout without
    /// strides.
    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let first = self.inner.first_byte().map_err(errors::raised)?;
        self.described(py, first as u64)
    }

    /// The type of an element that is no structure: of these the protocols lose padding, and NumPy goes on to
    /// ask for `__array__`.
    fn plain_dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dtype = self.dtype(py)?;
        match dtype.getattr("names")?.is_none() {
            true => Ok(dtype),
            false => Err(PyAttributeError::new_err("a structure needs __array__")),
        }
    }

    /// As [`PyInstance::interface`], of what starts at `first`.
    fn described<'py>(&self, py: Python<'py>, first: u64) -> PyResult<Bound<'py, PyDict>> {
        let strides = self.inner.strides().map_err(errors::raised)?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
        interface.set_item("data", (first, !self.inner.is_writable()))?;
        Ok(interface)
    }

    /// An `ndarray` on the same memory, which it keeps.
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let interface = this.interface(py)?;
        let item = this.inner.fields().item_bytes();
        interface.set_item("typestr", format!("|V{item}"))?;
        let exporter = py.import("types")?.getattr("SimpleNamespace")?.call0()?;
        exporter.setattr("__array_interface__", interface)?;
        exporter.setattr("owner", slf)?;
        let bytes = py.import("numpy")?.call_method1("asarray", (exporter,))?;
        bytes.call_method1("view", (this.dtype(py)?,))
    }
}

/// The bytes of an instance, padding included, for the buffer protocol.
#[pyclass(frozen, module = "isometry")]
struct Bytes {
    inner: Instance,
}

#[pymethods]
impl Bytes {
    // SAFETY: CPython calls this slot with a view to fill in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let inner = &slf.get().inner;
        let span = inner.host_span().map_err(errors::raised)?;
        let len = isize::try_from(span.len_bytes())
            .map_err(|_| PyBufferError::new_err("more bytes than a buffer can have"))?;
        let read_only = c_int::from(!inner.is_writable());
        let start = span.start().as_ptr().cast();
        // SAFETY: the span stays valid while `inner` lives, which `slf` does: the view refers to
        // it, and CPython gives that reference back with the view.
        let result =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, read_only, flags) };
        if result == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
