//! What the runtime logs, for Python's `logging`.
//!
//! **Hazard.** A thread that runs copies logs, and waits for the interpreter, which is with whoever
//! waits for the copy. **Guarantee.** It only leaves the record here. **Structure.** [`deliver`]
//! hands records on, and is called by whoever calls into this package next, or at exit.

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most records kept; the oldest go first.
const MAX_RECORDS: usize = 1024;

static RECORDS: Records =
    Records { kept: Mutex::new(VecDeque::new()), some: AtomicBool::new(false) };

struct Records {
    kept: Mutex<VecDeque<(Level, String)>>,
    /// Whether there are any, for those who have no time to take the lock.
    some: AtomicBool,
}

impl Log for Records {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MAX_RECORDS {
            kept.pop_front();
        }
        kept.push_back((record.level(), record.args().to_string()));
        self.some.store(true, Ordering::Release);
    }

    fn flush(&self) {}
}

/// Keeps errors and warnings from now on, for [`deliver`].
pub(crate) fn start() {
    // Another logger stays: then this library is a part of a program that has one.
    if log::set_logger(&RECORDS).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Hands what was logged to the logger `isometry`.
pub(crate) fn deliver(py: Python<'_>) -> PyResult<()> {
    if !RECORDS.some.swap(false, Ordering::Acquire) {
        return Ok(());
    }
    let kept = std::mem::take(&mut *RECORDS.kept.lock().unwrap_or_else(PoisonError::into_inner));
    let logger = py.import("logging")?.call_method1("getLogger", ("isometry",))?;
    for (level, text) in kept {
        let method = if level == Level::Error { "error" } else { "warning" };
        logger.call_method1(method, ("%s", text))?;
    }
    Ok(())
}
