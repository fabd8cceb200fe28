//! What can be wrong with a file's header, or with asking a format for something it lacks.

use crate::Format;
use model::ModelError;
use thiserror::Error;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilesError {
    /// The bytes are no header of the format.
    #[error("not a valid {format} header: {why}")]
    Header {
        /// The format that was expected.
        format: Format,
        /// What is wrong, and where.
        why: String,
    },
    /// The file's length does not fit its header, or the dimensions that were given for it.
    #[error("the array takes {needed_bytes} bytes of the file, which has {file_bytes}")]
    Length {
        /// How long the file must be, header included.
        needed_bytes: u64,
        /// How long it is.
        file_bytes: u64,
    },
    /// No tensor of that name in a safetensors file.
    #[error("no tensor `{name}`; the file has {}", listed(.there))]
    NoTensor {
        /// The name that was asked for.
        name: String,
        /// Some of the names that are there.
        there: Vec<String>,
    },
    /// The format has no way to say it.
    #[error("{format} can't express {what}")]
    Inexpressible {
        /// The format.
        format: Format,
        /// What it lacks.
        what: String,
    },
    /// A text that describes no element type, or one that can't be moved as bytes.
    #[error("`{text}` is not an element type: {why}")]
    Dtype {
        /// The text, shortened.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The number of dimension names differs from the array's rank.
    #[error("{names} dimension names for an array of {rank} dimensions")]
    Names {
        /// How many names were given.
        names: usize,
        /// How many dimensions the array has.
        rank: usize,
    },
    /// A header that is well-formed but describes an impossible array.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What sort of mistake a [`FilesError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilesErrorKind {
    /// The file is wrong.
    Format,
    /// The layout or type that was asked for does not exist in the format.
    Layout,
    /// An argument of the caller is wrong.
    Argument,
}

impl FilesError {
    /// Whose mistake it is.
    #[must_use]
    pub fn kind(&self) -> FilesErrorKind {
        match self {
            // No format names dimensions: the caller does, and which tensor is meant.
            FilesError::Model(ModelError::DimName { .. })
            | FilesError::NoTensor { .. }
            | FilesError::Dtype { .. }
            | FilesError::Names { .. } => FilesErrorKind::Argument,
            FilesError::Header { .. } | FilesError::Length { .. } | FilesError::Model(_) => {
                FilesErrorKind::Format
            }
            FilesError::Inexpressible { .. } => FilesErrorKind::Layout,
        }
    }

    /// Never: the same bytes fail again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
