//! How a group is to run.

use crate::Error;
use isometry::Event;
use regex::Regex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often somebody who waits looks whether to stop.
const STEP: Duration = Duration::from_millis(50);

/// Where the table goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Standard,
    /// Standard error, beside the progress.
    Error,
}

/// How a group is to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cases to run, by name; all where there is none.
    pub filter: Option<Regex>,
    /// How often each contender runs, in place of what the problems say.
    pub runs: Option<usize>,
    /// After so long a case runs no more often than it has to for a median.
    pub budget: Duration,
    /// Where the reports go.
    pub out: PathBuf,
    /// Where a temporary directory for files is made; the file system that is measured.
    pub files: PathBuf,
    /// Where the table goes.
    pub output: Output,
    /// Ends the run.
    pub stop: Stop,
}

impl Settings {
    /// The budget of who names none.
    pub const BUDGET_SECONDS: u64 = 40;
}

/// A flag that ends a run as soon as may be. Clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that somebody else sets.
    #[must_use]
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Stop(flag)
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the run here if it was asked for.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_asked() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Waits for the end of a copy, or cancels it.
    pub(crate) fn finish(&self, event: &Event) -> Result<(), Error> {
        loop {
            let ended = event.wait(Some(STEP));
            if event.is_done() {
                // The time may have been over just before the copy was.
                return Ok(ended.or_else(|_| event.wait(None))?);
            }
            if self.is_asked() {
                event.cancel();
                return Err(Error::Interrupted);
            }
        }
    }
}
