//! `Plan` and `Topology`: values that explain themselves.

use crate::json;
use isometry::Planned;
use model::{Algorithm, CostModel, Topology};
use planner::{Choice, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// How a copy would run.
#[pyclass(frozen, name = "Plan", module = "isometry")]
pub(crate) struct PyPlan {
    pub(crate) inner: Planned,
}

#[pymethods]
impl PyPlan {
    fn explain(&self) -> String {
        self.inner.explain()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::object(py, &self.inner.to_json())
    }

    fn __repr__(&self) -> String {
        let memories = self.inner.to_json()["memories"].to_string();
        format!("<Plan {memories} {:.3} GB/s>", self.inner.plan.throughput / 1e9)
    }
}

/// The memories and channels of a machine.
#[pyclass(frozen, name = "Topology", module = "isometry")]
pub(crate) struct PyTopology {
    pub(crate) inner: Arc<Topology>,
}

#[pymethods]
impl PyTopology {
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::object(py, &cluster::to_json(&self.inner))
    }

    pub(crate) fn __repr__(&self) -> String {
        let count =
            |n: fn(&model::NodeClass) -> usize| self.inner.classes.iter().map(n).sum::<usize>();
        let (memories, channels) = (count(|c| c.memories.len()), count(|c| c.channels.len()));
        format!("<Topology {memories} memories, {channels} channels>")
    }
}

/// Planning by the names that users write.
///
/// # Errors
/// `ValueError` for a name that is none.
pub(crate) fn options(algorithm: &str, model: &str) -> PyResult<Options> {
    let named = Algorithm::ALL.into_iter().find(|a| a.name() == algorithm).map(Choice::Only);
    let choice = named.or((algorithm == "auto").then_some(Choice::Auto));
    let unknown = || PyValueError::new_err(format!("no algorithm `{algorithm}`"));
    let choice = choice.ok_or_else(unknown)?;
    let unknown = || PyValueError::new_err(format!("no cost model `{model}`"));
    let model = CostModel::ALL.into_iter().find(|m| m.name() == model).ok_or_else(unknown)?;
    Ok(Options { choice, model, ..Options::default() })
}
