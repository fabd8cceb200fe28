//! `Machine`: everything starts on one.

use crate::array::Array as Exported;
use crate::dims::Dims;
use crate::event::PyEvent;
use crate::held::Held;
use crate::instance::PyInstance;
use crate::numbers::{integer, seconds};
use crate::plan::{PyPlan, PyTopology, options};
use crate::{dtype, errors, json, logging, settings, stream};
use isometry::{
    Array, CopyOptions, Error, ErrorKind, Event, FileOptions, Instance, Machine, MachineBuilder,
    NodeStatus,
};
use model::{Dim, FieldSpace, IndexSpace};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The memories of this machine, the channels between them, and what runs on them.
#[pyclass(frozen, name = "Machine", module = "isometry")]
pub(crate) struct PyMachine {
    inner: Held,
    waiters: Py<PyAny>,
}

#[pymethods]
impl PyMachine {
    #[new]
    #[pyo3(signature = (lanes = None, staging = None, disk = None, *, trace = false, remeasure = false))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords are its configuration struct")]
    fn new(
        py: Python<'_>,
        lanes: Option<&Bound<'_, PyAny>>,
        staging: Option<&Bound<'_, PyAny>>,
        disk: Option<&Bound<'_, PyAny>>,
        trace: bool,
        remeasure: bool,
    ) -> PyResult<Self> {
        let builder = settings::builder(lanes, staging, disk)?.trace(trace).remeasure(remeasure);
        Self::of(py, py.detach(|| builder.open()))
    }

    #[staticmethod]
    #[pyo3(signature = (address = None, rank = None, size = None, key = None, *, name = None,
        capacity = None, timeout = 60.0, lanes = None, staging = None, disk = None, files = None, trace = false))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords are its configuration struct")]
    fn join(
        py: Python<'_>,
        address: Option<String>,
        rank: Option<&Bound<'_, PyAny>>,
        size: Option<&Bound<'_, PyAny>>,
        key: Option<String>,
        name: Option<&str>,
        capacity: Option<&Bound<'_, PyAny>>,
        timeout: f64,
        lanes: Option<&Bound<'_, PyAny>>,
        staging: Option<&Bound<'_, PyAny>>,
        disk: Option<&Bound<'_, PyAny>>,
        files: Option<&Bound<'_, PyAny>>,
        trace: bool,
    ) -> PyResult<Self> {
        let builder = settings::builder(lanes, staging, disk)?.trace(trace);
        let builder = settings::serving(builder, files)?;
        let builder = name.into_iter().fold(builder, MachineBuilder::node_name);
        let mut config = settings::ranks(py, (address, key), rank, size, capacity)?;
        config.timeout = seconds("timeout", timeout)?;
        let joined =
            unless_interrupted(py, |is_interrupted| builder.join_unless(&config, is_interrupted));
        Self::of(py, Ok(joined?))
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.inner.size()
    }

    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let nodes: Vec<_> = self.inner.nodes().iter().map(NodeStatus::to_json).collect();
        json::object(py, &nodes.into())
    }

    #[pyo3(signature = (timeout = None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let end = timeout.map(|t| seconds("timeout", t)).transpose()?;
        patiently(py, end, |some| self.inner.barrier(Some(some)))
    }

    fn publish(&self, name: &str, instance: &Bound<'_, PyInstance>) -> PyResult<()> {
        let inner = &instance.get().inner;
        instance.py().detach(|| self.inner.publish(name, inner)).map_err(errors::raised)
    }

    #[pyo3(signature = (name, timeout = 30.0))]
    fn lookup(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<PyInstance> {
        let end = timeout.map(|t| seconds("timeout", t)).transpose()?;
        let inner = unless_interrupted(py, |is_interrupted| {
            self.inner.lookup_unless(name, end, is_interrupted)
        })?;
        Ok(PyInstance { inner, topology: self.inner.topology() })
    }

    #[pyo3(signature = (array, dims = None))]
    fn wrap(&self, array: &Bound<'_, PyAny>, dims: Option<Dims>) -> PyResult<PyInstance> {
        let (py, array) = (array.py(), Exported::of(&self.inner, array)?);
        let space =
            dims.unwrap_or_else(|| Dims::numbered(array.shape.len())).of_shape(&array.shape)?;
        let (fields, foreign) = (array.fields.clone(), array.into());
        self.instance(py.detach(|| self.inner.wrap(space, fields, foreign)))
    }

    #[pyo3(signature = (stream, memory = None))]
    fn fence(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        memory: Option<&str>,
    ) -> PyResult<PyEvent> {
        let stream = stream::handle(stream)?;
        let event = py.detach(|| self.inner.fence(stream, memory));
        self.event(py, event, false)
    }

    #[pyo3(signature = (dims, dtype, layout = None, memory = "sys"))]
    fn empty(
        &self,
        dims: Dims,
        dtype: &Bound<'_, PyAny>,
        layout: Option<&str>,
        memory: &str,
    ) -> PyResult<PyInstance> {
        let array = laid_out(Array::new(dims.into_space()?, dtype::fields(dtype)?), layout)?;
        let made = dtype.py().detach(|| self.inner.empty(array, memory));
        self.instance(made)
    }

    #[pyo3(signature = (path, dims = None, dtype = None, *, tensor = None, layout = None))]
    #[expect(clippy::too_many_arguments, reason = "what a file may leave open")]
    fn open(
        &self,
        py: Python<'_>,
        path: PathBuf,
        dims: Option<Dims>,
        dtype: Option<&Bound<'_, PyAny>>,
        tensor: Option<String>,
        layout: Option<&str>,
    ) -> PyResult<PyInstance> {
        let mut options = FileOptions { tensor, ..FileOptions::default() };
        match (dims, dtype) {
            (Some(dims), Some(dtype)) => {
                let array = Array::new(dims.into_space()?, dtype::fields(dtype)?);
                options.raw = Some(laid_out(array, layout)?);
            }
            (_, None) if layout.is_some() => {
                return Err(PyTypeError::new_err("a layout needs dims with extents and a dtype"));
            }
            (dims, None) => options.dims = dims.map(Dims::into_names).transpose()?,
            (None, Some(_)) => return Err(PyTypeError::new_err("a dtype needs dims with extents")),
        }
        self.instance(py.detach(|| match self.far(&path) {
            Some((node, path)) => self.inner.open_file_at(node, path, &options),
            None => self.inner.open_file(&path, &options),
        }))
    }

    #[pyo3(signature = (path, like = None, layout = None, *, dims = None, dtype = None, tensor = None))]
    #[expect(clippy::too_many_arguments, reason = "what a file may have")]
    fn create(
        &self,
        py: Python<'_>,
        path: PathBuf,
        like: Option<&Bound<'_, PyInstance>>,
        layout: Option<&str>,
        dims: Option<Dims>,
        dtype: Option<&Bound<'_, PyAny>>,
        tensor: Option<String>,
    ) -> PyResult<PyInstance> {
        let array = laid_out(described(like, dims, dtype)?, layout)?;
        let options = FileOptions { tensor, ..FileOptions::default() };
        self.instance(py.detach(|| match self.far(&path) {
            Some((node, path)) => self.inner.create_file_at(node, path, array, &options),
            None => self.inner.create_file(&path, array, &options),
        }))
    }

    #[pyo3(signature = (src, dst, priority = 0, deadline = None, after = None, algorithm = "auto", *, sync = false))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords are its options struct")]
    fn copy(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyInstance>,
        dst: &Bound<'_, PyInstance>,
        #[pyo3(from_py_with = urgency)] priority: i32,
        deadline: Option<f64>,
        after: Option<After>,
        algorithm: &str,
        sync: bool,
    ) -> PyResult<PyEvent> {
        let options = copy_options((priority, deadline), after, algorithm, sync)?;
        let (src, dst) = (&src.get().inner, &dst.get().inner);
        let event = py.detach(|| self.inner.copy(src, dst, &options));
        self.event(py, event, false)
    }

    #[pyo3(signature = (pairs, priority = 0, deadline = None, after = None, algorithm = "auto", *, sync = false))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords are its options struct")]
    fn copy_many(
        &self,
        py: Python<'_>,
        pairs: Vec<(Bound<'_, PyInstance>, Bound<'_, PyInstance>)>,
        #[pyo3(from_py_with = urgency)] priority: i32,
        deadline: Option<f64>,
        after: Option<After>,
        algorithm: &str,
        sync: bool,
    ) -> PyResult<PyEvent> {
        let options = copy_options((priority, deadline), after, algorithm, sync)?;
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (&a.get().inner, &b.get().inner)).collect();
        let event = py.detach(|| self.inner.copy_many(&pairs, &options));
        self.event(py, event, true)
    }

    fn verify(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyInstance>,
        dst: &Bound<'_, PyInstance>,
    ) -> PyResult<()> {
        let (src, dst) = (&src.get().inner, &dst.get().inner);
        unless_interrupted(py, |is_interrupted| self.inner.verify_unless(src, dst, is_interrupted))
    }

    #[pyo3(signature = (src, dst, priority = 0, deadline = None, after = None, algorithm = "auto"))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords are its options struct")]
    fn reshard(
        &self,
        py: Python<'_>,
        src: Vec<Bound<'_, PyInstance>>,
        dst: Vec<Bound<'_, PyInstance>>,
        #[pyo3(from_py_with = urgency)] priority: i32,
        deadline: Option<f64>,
        after: Option<After>,
        algorithm: &str,
    ) -> PyResult<PyEvent> {
        let options = copy_options((priority, deadline), after, algorithm, false)?;
        let inner = |shards: &[Bound<'_, PyInstance>]| {
            shards.iter().map(|shard| shard.get().inner.clone()).collect::<Vec<_>>()
        };
        let (src, dst) = (inner(&src), inner(&dst));
        let event = py.detach(|| self.inner.reshard(&src, &dst, &options));
        self.event(py, event, true)
    }

    #[pyo3(signature = (src, dst, algorithm = "auto", model = "default"))]
    fn plan(
        &self,
        src: &Bound<'_, PyInstance>,
        dst: &Bound<'_, PyInstance>,
        algorithm: &str,
        model: &str,
    ) -> PyResult<PyPlan> {
        let options = options(algorithm, model)?;
        let (from, to) = (&src.get().inner, &dst.get().inner);
        let planned = src.py().detach(|| self.inner.plan(from, to, &options));
        Ok(PyPlan { inner: planned.map_err(errors::raised)? })
    }

    fn topology(&self) -> PyTopology {
        PyTopology { inner: self.inner.topology() }
    }

    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.inner.is_orphan() {
            return Err(errors::raised(Error::Forked));
        }
        let none = || PyValueError::new_err("open the machine with trace=True for a trace");
        let trace = py.detach(|| self.inner.trace_json()).ok_or_else(none)?;
        json::object(py, &trace)
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.inner.metrics()).map_err(errors::raised)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.close());
        logging::deliver(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let failed = !kind.is_none();
        let end = || if failed { self.inner.close_now() } else { self.inner.close() };
        kind.py().detach(end);
        logging::deliver(kind.py())
    }

    fn __repr__(&self) -> String {
        let topology = PyTopology { inner: self.inner.topology() };
        format!("<Machine of {}>", topology.__repr__())
    }
}

/// Calls `run` with what says whether Ctrl-C was typed, which then is what it ends with.
fn unless_interrupted<T: Send>(
    py: Python<'_>,
    run: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let signal = Mutex::new(None);
    let is_interrupted = || {
        let raised = Python::attach(|py| py.check_signals()).err();
        let mut signal = signal.lock().unwrap_or_else(PoisonError::into_inner);
        *signal = signal.take().or(raised);
        signal.is_some()
    };
    let ended = py.detach(|| run(&is_interrupted));
    match signal.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(raised) => Err(raised),
        None => ended.map_err(errors::raised),
    }
}

/// Calls `wait` with a little time again and again, in between of which Ctrl-C is looked for, until
/// it ends otherwise than for lack of time or `timeout` is over.
fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    wait: impl Fn(Duration) -> Result<T, Error> + Sync,
) -> PyResult<T> {
    const SOME: Duration = Duration::from_millis(100);
    let start = Instant::now();
    loop {
        let left = timeout.map_or(SOME, |all| all.saturating_sub(start.elapsed()).min(SOME));
        match py.detach(|| wait(left)) {
            Err(e) if e.kind() == ErrorKind::Timeout && left == SOME => py.check_signals()?,
            result => return result.map_err(errors::raised),
        }
    }
}

impl PyMachine {
    fn of(py: Python<'_>, opened: Result<Machine, Error>) -> PyResult<Self> {
        let inner = Held::new(opened.map_err(errors::raised)?);
        let finished = Bound::new(py, Finished { inner: inner.clone() })?;
        let waiters = py.import("isometry._waiters")?.getattr("Waiters")?.call1((finished,))?;
        Ok(PyMachine { inner, waiters: waiters.unbind() })
    }

    /// The node and the path there that `path` means, where it starts with a node's name and a colon.
    fn far<'a>(&self, path: &'a Path) -> Option<(&'a str, &'a str)> {
        self.inner.split_node(path.to_str()?)
    }

    fn instance(&self, made: Result<Instance, isometry::Error>) -> PyResult<PyInstance> {
        let inner = made.map_err(errors::raised)?;
        Ok(PyInstance { inner, topology: self.inner.topology() })
    }

    fn event(
        &self,
        py: Python<'_>,
        event: Result<Event, isometry::Error>,
        many: bool,
    ) -> PyResult<PyEvent> {
        logging::deliver(py)?;
        let inner = event.map_err(errors::raised)?;
        Ok(PyEvent {
            inner,
            machine: self.inner.clone(),
            waiters: self.waiters.clone_ref(py),
            many,
        })
    }
}

fn urgency(given: &Bound<'_, PyAny>) -> PyResult<i32> {
    integer("priority", given, i32::MIN.into()..=i32::MAX.into())
}

/// What a copy waits for: an event, or several.
struct After(Vec<Event>);

impl<'py> FromPyObject<'_, 'py> for After {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(event) = object.cast::<PyEvent>() {
            return Ok(After(vec![event.get().inner.clone()]));
        }
        let wrong = |_| PyTypeError::new_err("after is an Event or an iterable of Events");
        let event = |item: PyResult<Bound<'py, PyAny>>| -> PyResult<Event> {
            Ok(item?.cast_into::<PyEvent>().map_err(|e| wrong(e.into()))?.get().inner.clone())
        };
        object.try_iter().map_err(wrong)?.map(event).collect::<PyResult<_>>().map(After)
    }
}

fn copy_options(
    (priority, deadline): (i32, Option<f64>),
    after: Option<After>,
    algorithm: &str,
    sync: bool,
) -> PyResult<CopyOptions> {
    Ok(CopyOptions {
        priority,
        deadline: deadline.map(|d| seconds("deadline", d)).transpose()?,
        after: after.map(|after| after.0).unwrap_or_default(),
        planning: options(algorithm, "default")?,
        sync,
    })
}

/// What a new file holds: as another instance, but for what is given.
fn described(
    like: Option<&Bound<'_, PyInstance>>,
    dims: Option<Dims>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let missing = || PyTypeError::new_err("create needs `like`, or `dims` and `dtype`");
    let like = like.map(|instance| &instance.get().inner);
    let fields = match (dtype, like) {
        (Some(dtype), _) => dtype::fields(dtype)?,
        (None, Some(like)) => like.fields().clone(),
        (None, None) => return Err(missing()),
    };
    match (dims, like) {
        (Some(dims), _) => Ok(Array::new(dims.into_space()?, fields)),
        (None, Some(like)) => like_box(like, fields),
        (None, None) => Err(missing()),
    }
}

/// An array of the extents of `like`, in its order of dimensions and its layout where that is one
/// of whole dimensions. A dimension that is whole keeps its bounds, a part of one starts at 0.
fn like_box(like: &Instance, fields: FieldSpace) -> PyResult<Array> {
    let extents = like.extents();
    let dims = like.space().dims().iter().zip(&extents);
    let dims = dims.map(|(dim, &extent)| match dim.extent() == extent {
        true => dim.clone(),
        // No more than `hi - lo`, which is in 63 bits.
        false => Dim { name: Arc::clone(&dim.name), lo: 0, hi: extent.cast_signed() },
    });
    let space = IndexSpace::new(dims.collect()).map_err(|e| errors::layout(&e))?;
    Ok(Array { space, fields, layout: like.layout() })
}

fn laid_out(array: Array, layout: Option<&str>) -> PyResult<Array> {
    match layout {
        Some(layout) => array.laid_out(layout).map_err(errors::raised),
        None => Ok(array),
    }
}

/// The machine's descriptor and the tokens behind it, for an event loop.
#[pyclass(frozen, module = "isometry")]
struct Finished {
    inner: Held,
}

#[pymethods]
impl Finished {
    fn fileno(&self) -> i32 {
        self.inner.finished_fd().as_raw_fd()
    }

    fn take(&self) -> Vec<u64> {
        let mut tokens = Vec::new();
        self.inner.take_finished(&mut tokens);
        tokens
    }
}
