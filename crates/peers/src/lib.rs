//! The benchmark of the kernels inside a Python process, where NumPy and PyTorch are.
//!
//! `scripts/bench_kernels.py` drives it. A peer is an object with a `name`, a `version` and a method
//! `prepare(source, destination, views, threads)`, which returns a callable that does the task
//! once, or None; it is called for each order of the dimensions, and the fastest is timed. `source`
//! and `destination` are an address and a length; a view is
//! `(extents, item_bytes, (offset, strides), (offset, strides))`, all in bytes. Where the object's
//! `aligned` is true, items divide every offset and stride.
#![forbid(unsafe_code)]

use bench::{Error, Output, Peer, Ready, Run, Settings, Stop, Strides, Task, View, fastest};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use regex::Regex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[pymodule]
mod isometry_peers {
    #[pymodule_export]
    use super::kernels;
}

/// The longest items that Python's arrays know: complex numbers.
const MOST_ITEM_BYTES: u64 = 16;

/// The names of cases that are wrong, and of the peers without which the table is void.
type Ended = (Vec<String>, Vec<String>);

/// Runs the group beside `peers`.
#[pyfunction]
#[pyo3(signature = (peers, *, filter = "", runs = None, budget = None))]
fn kernels(
    py: Python<'_>,
    peers: Vec<Py<PyAny>>,
    filter: &str,
    runs: Option<usize>,
    budget: Option<u64>,
) -> PyResult<Ended> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let peer = |object: Py<PyAny>| {
        let name = object.getattr(py, "name")?.extract(py)?;
        let version = object.getattr(py, "version")?.extract(py)?;
        let aligned = object.getattr(py, "aligned")?.extract(py)?;
        let interrupted = Arc::clone(&interrupted);
        Ok(Box::new(PythonPeer { name, version, aligned, object, interrupted }) as Box<dyn Peer>)
    };
    let peers = peers.into_iter().map(peer).collect::<PyResult<Vec<_>>>()?;
    let pattern = Regex::new(filter).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let settings = Settings {
        filter: Some(pattern).filter(|_| !filter.is_empty()),
        runs,
        budget: Duration::from_secs(budget.unwrap_or(Settings::BUDGET_SECONDS)),
        out: "bench/out".into(),
        files: ".".into(),
        output: Output::Standard,
        stop: Stop::on(Arc::clone(&interrupted)),
    };
    let ended = bench::kernels_beside(&settings, peers);
    py.check_signals()?;
    match ended {
        Ok(report) => Ok((report.wrong, report.void)),
        Err(Error::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
        Err(e) => Err(PyRuntimeError::new_err(e.to_string())),
    }
}

/// A peer that is a Python object.
struct PythonPeer {
    name: String,
    version: String,
    /// Whether it wants items that divide every offset and stride.
    aligned: bool,
    object: Py<PyAny>,
    /// Set when Python has a signal to deliver.
    interrupted: Arc<AtomicBool>,
}

impl PythonPeer {
    /// What was raised; an interrupt ends the run.
    fn failed(py: Python<'_>, error: PyErr, interrupted: &AtomicBool) -> Error {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            interrupted.store(true, Ordering::Relaxed);
            return Error::Interrupted;
        }
        Error::Part { doing: "calling a peer", why: error.to_string() }
    }
}

impl Peer for PythonPeer {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Option<String> {
        Some(self.version.clone())
    }

    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error> {
        let orders: Vec<[View; 3]> =
            task.views.iter().map(|v| self.typed(v).in_all_orders()).collect();
        let mut tried: Vec<Vec<&View>> = Vec::new();
        let mut ways = Vec::new();
        for k in 0..3 {
            let views: Vec<&View> = orders.iter().map(|orders| &orders[k]).collect();
            if tried.contains(&views) {
                continue;
            }
            ways.extend(self.way(task, &views)?);
            tried.push(views);
        }
        fastest(ways)
    }
}

/// A side of a view: its offset and its strides.
type Side = (i64, Vec<i64>);

impl PythonPeer {
    /// `view` in the longest items that the peer's arrays express.
    fn typed(&self, view: &View) -> View {
        match self.aligned {
            true => view.in_aligned_items(MOST_ITEM_BYTES),
            false => view.in_long_items(MOST_ITEM_BYTES),
        }
    }

    /// How the peer does `task` by `views`.
    fn way<'a>(&self, task: &Task<'a>, views: &[&View]) -> Result<Option<Ready<'a>>, Error> {
        let side = |side: &Strides| -> Side { (side.offset, side.strides.clone()) };
        let told = |view: &&View| {
            (view.extents.clone(), view.item_bytes, side(&view.src), side(&view.dst))
        };
        let views: Vec<_> = views.iter().map(told).collect();
        let arguments = (task.spans.src, task.spans.dst, views, task.threads);
        let interrupted = Arc::clone(&self.interrupted);
        let prepared = Python::attach(|py| {
            let made = self.object.call_method1(py, "prepare", arguments);
            made.map_err(|e| Self::failed(py, e, &interrupted))
                .map(|o| (!o.is_none(py)).then_some(o))
        })?;
        let Some(call) = prepared else { return Ok(None) };
        let run = move |py: Python<'_>| {
            call.call0(py).map(drop).map_err(|e| Self::failed(py, e, &interrupted))
        };
        let run: Run<'a> = Box::new(move || Python::attach(&run));
        Ok(Some(run.into()))
    }
}
