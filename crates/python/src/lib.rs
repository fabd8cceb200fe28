//! The native half of the Python package `isometry`.

use pyo3::prelude::*;

/// What `isometry/__init__.py` builds on.
#[pymodule]
mod _native {
    /// The package's version.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
