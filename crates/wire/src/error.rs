//! What is wrong with bytes that came.

use crate::VERSION;
use engine::CompileError;
use model::NodeId;
use thiserror::Error;

/// Why bytes are no packet. Nothing of them has had an effect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The sender speaks another version.
    #[error("a packet of version {got}, where this node speaks {VERSION}")]
    Version {
        /// Its first byte.
        got: u8,
    },
    /// It is longer than [`crate::MAX_PACKET_BYTES`], or its program than
    /// [`crate::MAX_PROGRAM_BYTES`].
    #[error("a packet or a program of {bytes} B, where {most} are the most")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// The longest that is read.
        most: usize,
    },
    /// It does not read as a packet, or holds a value that its constructor refuses.
    #[error("what is no packet: {why}")]
    Malformed {
        /// What is wrong.
        why: &'static str,
    },
    /// It says that it is another's than who sent it.
    #[error("a packet of {from} that says it is {named}'s")]
    Sender {
        /// Who sent it.
        from: NodeId,
        /// Whose it says it is.
        named: NodeId,
    },
    /// It asks for a copy of more fields than are taken from others.
    #[error("a copy of {fields} fields, where {most} are the most")]
    TooManyFields {
        /// How many.
        fields: usize,
        /// The most that are taken.
        most: usize,
    },
    /// What it asks for makes no program.
    #[error("what it asks for can't run: {0}")]
    Program(#[from] CompileError),
}

/// The kinds of [`WireError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireErrorKind {
    /// [`WireError::Version`].
    Version,
    /// [`WireError::TooLong`], [`WireError::Malformed`].
    Malformed,
    /// [`WireError::Sender`].
    Sender,
    /// [`WireError::TooManyFields`], [`WireError::Program`].
    Program,
}

impl WireError {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> WireErrorKind {
        match self {
            WireError::Version { .. } => WireErrorKind::Version,
            WireError::TooLong { .. } | WireError::Malformed { .. } => WireErrorKind::Malformed,
            WireError::Sender { .. } => WireErrorKind::Sender,
            WireError::TooManyFields { .. } | WireError::Program(_) => WireErrorKind::Program,
        }
    }

    /// Always false: the same bytes are wrong again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl From<postcard::Error> for WireError {
    fn from(error: postcard::Error) -> Self {
        let why = match error {
            postcard::Error::DeserializeUnexpectedEnd => "it ends too early",
            _ => "a value that can't be",
        };
        WireError::Malformed { why }
    }
}
