//! Errors of this crate.

use std::ops::Range;
use thiserror::Error;

/// Instances, boxes and strides that can't be what they were asked to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A size, a stride or an address passes 63 bits.
    #[error("the size passes 63 bits")]
    TooLarge,
    /// The number of dimensions differs from that of the index space.
    #[error("{got} dimensions where {expected} are needed")]
    Rank {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// A box that lies outside the index space.
    #[error("the box lies outside dimension {dim}")]
    Bounds {
        /// The dimension's position in the index space.
        dim: usize,
    },
    /// A field that doesn't exist, or is asked for twice.
    #[error("field {field} doesn't exist or is named twice")]
    Field {
        /// The position that was asked for.
        field: usize,
    },
    /// A dimension of a part that counts in other digits than its layout's, or by steps that no
    /// layout has.
    #[error("dimension {dim} doesn't count as its layout does")]
    Digits {
        /// The dimension's position in the index space.
        dim: usize,
    },
    /// A destination in which a dimension of several entries has stride 0.
    #[error("a destination has stride 0 in dimension {dim}")]
    StrideZero {
        /// The dimension's position in the index space.
        dim: usize,
    },
    /// A destination in which two entries share a byte.
    #[error("two entries of a destination overlap")]
    Overlap,
}

/// A layout's text that can't be read; it points at the wrong token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {expected} at byte {}", span.start)]
pub struct ParseError {
    /// The bytes of the text that are wrong; empty at the end where something is missing.
    pub span: Range<usize>,
    /// What should stand there.
    pub expected: String,
}
