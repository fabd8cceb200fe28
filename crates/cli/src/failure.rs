//! How a command ends when it does not succeed.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An argument is wrong or names nothing: 2.
    Usage(String),
    /// The work failed: 1.
    Failed(String),
    /// Ctrl-C: 130.
    Interrupted,
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
            Failure::Usage(what) | Failure::Failed(what) => eprintln!("error: {what}"),
            Failure::Interrupted => eprintln!("interrupted"),
            Failure::Closed => {}
        }
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Closed => 1,
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
        }
    }
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
