//! Why a group of benchmarks did not come to its end.

use std::io;

/// Why a group of benchmarks did not come to its end. A wrong result is none of these: it stands
/// in the report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// [`crate::Stop`] was asked for.
    #[error("interrupted")]
    Interrupted,
    /// No group has this name.
    #[error("there is no group `{name}`; there are {}", .known.join(", "))]
    UnknownGroup {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A file of problems says what it may not.
    #[error("bench/problems/{group}.toml: {why}")]
    Problems {
        /// Whose file.
        group: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// Opening the machine, an instance or a copy failed.
    #[error(transparent)]
    Copy(#[from] isometry::Error),
    /// What was planned can't be taken apart, or a library refused its part.
    #[error("{doing}: {why}")]
    Part {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        why: String,
    },
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The table can't be printed.
    #[error("the table can't be printed: {0}")]
    Output(io::Error),
}

impl Error {
    /// Makes an error of what the operating system said while `doing`.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { doing, source: source.into() }
    }

    /// Makes an error of what a library said while `doing`.
    pub(crate) fn part<E: std::fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |why| Error::Part { doing, why: why.to_string() }
    }
}
