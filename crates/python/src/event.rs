//! `Event`: the end of a copy.

use crate::held::Held;
use crate::numbers::seconds;
use crate::{errors, json};
use isometry::{Error, Event};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::{Duration, Instant};

/// How often a wait looks for Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// The end of a copy, or of several.
#[pyclass(frozen, name = "Event", module = "isometry")]
pub(crate) struct PyEvent {
    pub(crate) inner: Event,
    pub(crate) machine: Held,
    /// Of the machine: who awaits which event.
    pub(crate) waiters: Py<PyAny>,
    /// Whether it stands for several copies.
    pub(crate) many: bool,
}

#[pymethods]
impl PyEvent {
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        // A time past what the clock counts is for ever.
        let timeout = timeout.map(|t| seconds("timeout", t)).transpose()?;
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.inner.is_done() {
            let left = until.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(errors::raised(Error::TimedOut));
            }
            let slice = left.unwrap_or(SIGNALS).min(SIGNALS);
            // How it ended is looked up below; here only the waiting counts.
            if let Err(error @ Error::Forked) = py.detach(|| self.inner.wait(Some(slice))) {
                return Err(errors::raised(error));
            }
            py.check_signals()?;
        }
        self._outcome()
    }

    fn done(&self) -> bool {
        self.inner.is_done()
    }

    fn progress(&self) -> PyResult<(u64, u64)> {
        Ok(self.here()?.progress())
    }

    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.inner.cancel());
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event = self.here()?;
        let reports = py.detach(|| event.report());
        let topology = self.machine.topology();
        let dict = |report| json::object(py, &isometry::report_json(report, &topology));
        let reports = reports.iter().map(dict);
        let mut reports = reports.collect::<PyResult<Vec<_>>>()?;
        if !self.many && reports.len() == 1 {
            return Ok(reports.remove(0));
        }
        let whole = PyDict::new(py);
        whole.set_item("bytes", self.inner.progress().0)?;
        whole.set_item("copies", reports)?;
        Ok(whole.into_any())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let waiting = slf.get().waiters.bind(slf.py()).call_method1("wait", (slf,))?;
        waiting.call_method0("__await__")
    }

    /// Puts `token` among what the machine's `Finished.take` returns once it has ended.
    ///
    /// # Errors
    /// `Error` where that will never be: the machine stayed in the process that forked this one.
    fn _notify(&self, token: u64) -> PyResult<()> {
        self.here()?.notify(token);
        Ok(())
    }

    /// Raises what ended it, if not success.
    fn _outcome(&self) -> PyResult<()> {
        self.inner.outcome().unwrap_or(Ok(())).map_err(errors::raised)
    }

    fn __repr__(&self) -> String {
        if self.inner.is_orphan() {
            return format!("<Event: {}>", Error::Forked);
        }
        let (done, total) = self.inner.progress();
        let state = match self.inner.outcome() {
            None => "running".to_owned(),
            Some(Ok(())) => "done".to_owned(),
            Some(Err(error)) => error.to_string(),
        };
        format!("<Event {state}, {done} of {total} bytes>")
    }
}

impl PyEvent {
    /// The event, where it has ended or may end in this process.
    fn here(&self) -> PyResult<&Event> {
        if self.inner.is_orphan() {
            return Err(errors::raised(Error::Forked));
        }
        Ok(&self.inner)
    }
}
