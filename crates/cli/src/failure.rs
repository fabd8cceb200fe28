//! How a command ends when it does not succeed.

use crate::output;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An argument is wrong or names nothing: 2.
    Usage(String),
    /// The same, which was told already: 2.
    Explained,
    /// The work failed: 1.
    Failed(String),
    /// A signal asked for the end: 128 and its number, 130 for Ctrl-C.
    Interrupted(u8),
    /// Whoever read standard output has gone, as `head` does: 1, without a word.
    Closed,
}

impl Failure {
    /// Wrong usage, because of `what`.
    pub(crate) fn usage(what: impl Display) -> Self {
        Failure::Usage(what.to_string())
    }

    /// A failure, because of `what`.
    pub(crate) fn failed(what: impl Display) -> Self {
        Failure::Failed(what.to_string())
    }

    /// Says what happened on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Usage(what) | Failure::Failed(what) => {
                output::aside(format_args!("error: {what}"));
            }
            Failure::Interrupted(_) => output::aside("interrupted"),
            Failure::Explained | Failure::Closed => {}
        }
        ExitCode::from(self.code())
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Closed => 1,
            Failure::Usage(_) | Failure::Explained => 2,
            Failure::Interrupted(signal) => interrupted_code(*signal),
        }
    }
}

/// The exit code of what `signal` ended, as shells count.
pub(crate) fn interrupted_code(signal: u8) -> u8 {
    128 + signal
}

/// A failure to write to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::failed(format_args!("standard output: {error}")),
        }
    }
}
