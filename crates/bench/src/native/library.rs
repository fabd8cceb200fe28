//! Libraries that are loaded at run time, where they are.

use crate::Error;
use libloading::Library;
use std::env;
use std::path::Path;

/// A library that stays loaded to the end of the process: its threads may outlive whoever uses it.
#[derive(Debug)]
pub(super) struct Loaded(Library);

impl Loaded {
    /// Loads what the environment variable `variable` names, or else the first of `names` that
    /// the loader finds.
    pub(super) fn open(variable: &str, names: &[&str]) -> Result<Self, Error> {
        let named = env::var(variable).ok().filter(|path| !path.is_empty());
        let all: Vec<&str> = named.as_deref().map_or_else(|| names.to_vec(), |path| vec![path]);
        let mut outcome = Err(Error::part("loading a library")("it has no name"));
        for name in all {
            // SAFETY: a library of the benchmark's user, whose initialisers are trusted as far as
            // the contender itself is.
            match unsafe { Library::new(name) } {
                Ok(library) => return Ok(Loaded(library)),
                Err(e) => {
                    outcome = Err(Error::part("loading a library")(format!(
                        "{e} ({variable} may name it)"
                    )))
                }
            }
        }
        outcome
    }

    /// Loads what is at `path`, or what the loader knows by that name.
    pub(super) fn at(path: &Path) -> Result<Self, Error> {
        // SAFETY: as above.
        let loaded = unsafe { Library::new(path) };
        loaded.map(Loaded).map_err(Error::part("loading a library"))
    }

    /// The function called `name`.
    ///
    /// # Safety
    /// It has the type `F`, a function pointer.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, Error> {
        // SAFETY: the caller's contract; the library is never unloaded, so that the pointer may
        // be kept.
        let symbol = unsafe { self.0.get::<F>(name) };
        symbol.map(|s| *s).map_err(Error::part("looking for a library's function"))
    }

    /// Keeps it loaded.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}
