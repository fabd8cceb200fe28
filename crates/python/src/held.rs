//! A machine, for as long as anything of Python's refers to it.
//!
//! **Hazard.** Whoever drops the last reference waits for what runs, and every other thread of the
//! program for the interpreter meanwhile. **Guarantee.** The wait gives the interpreter up.
//! **Structure.** [`Held`] is all that objects of Python's keep of a machine.

use isometry::Machine;
use pyo3::Python;
use std::ops::Deref;
use std::sync::Arc;

/// A reference to a machine.
#[derive(Clone)]
pub(crate) struct Held(Option<Arc<Machine>>);

impl Held {
    pub(crate) fn new(machine: Machine) -> Self {
        Held(Some(Arc::new(machine)))
    }
}

impl Deref for Held {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.0.as_deref().expect("taken when it is dropped only")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut last = self.0.take().and_then(Arc::into_inner);
        if last.is_some() {
            // An interpreter that is on its way out attaches nobody: then it goes as it is.
            Python::try_attach(|py| py.detach(|| drop(last.take())));
        }
    }
}
