//! How a command ends when it does not succeed.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The work failed: 1.
    Failed(String),
    /// Whoever read standard output has gone, as `head` does: 1, without a word.
    Closed,
}

impl Failure {
    /// A failure, because of `what`.
    pub(crate) fn failed(what: impl Display) -> Self {
        Failure::Failed(what.to_string())
    }

    /// Says what happened on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Failed(what) => eprintln!("error: {what}"),
            Failure::Closed => {}
        }
        ExitCode::from(1)
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
