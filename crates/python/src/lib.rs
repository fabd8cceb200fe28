//! The native half of the Python package `isometry`.
//!
//! Its contract, method by method, is `python/isometry/_native.pyi`. Here are conversions of types
//! and ownership at the border, and nothing else: every call that may block gives the interpreter
//! up, and a panic becomes an exception.

mod array;
mod dims;
mod dlpack;
mod dtype;
mod errors;
mod event;
mod held;
mod instance;
mod json;
mod logging;
mod machine;
mod numbers;
mod plan;
mod settings;
mod stream;

use pyo3::prelude::*;

/// What `isometry/__init__.py` builds on.
#[pymodule]
mod _native {
    use super::*;

    /// The package's version.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::logging::start();
        let py = module.py();
        let rest = wrap_pyfunction!(deliver_rest, module)?;
        py.import("atexit")?.call_method1("register", (rest,))?;
        Ok(())
    }

    /// Called at exit.
    #[pyfunction]
    fn deliver_rest(py: Python<'_>) -> PyResult<()> {
        crate::logging::deliver(py)
    }

    #[pymodule_export]
    use crate::event::PyEvent;
    #[pymodule_export]
    use crate::instance::PyInstance;
    #[pymodule_export]
    use crate::machine::PyMachine;
    #[pymodule_export]
    use crate::plan::{PyPlan, PyTopology};
}
