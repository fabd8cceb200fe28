//! Errors as values.

use crate::MemoryId;
use std::ops::Range;
use thiserror::Error;

/// A value of this crate that breaks its invariant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The wrong number of dimensions.
    #[error("{dims} dimensions where 1 to 8, or as many as the index space has, are needed")]
    Rank {
        /// The number given.
        dims: usize,
    },
    /// A dimension's name that is not an identifier, or not unique, or that of the fields, `F`.
    #[error(
        "`{name}` can't name a dimension: letters, digits and `_`, each name once, and not `F`"
    )]
    DimName {
        /// The name.
        name: String,
    },
    /// Indices outside a dimension, or a range that runs backwards.
    #[error("indices {asked:?} lie outside dimension `{name}` of {bounds:?}, or run backwards")]
    Bounds {
        /// The dimension.
        name: String,
        /// The indices asked for.
        asked: Range<i64>,
        /// Those of the dimension.
        bounds: Range<i64>,
    },
    /// A size that passes 63 bits.
    #[error("the size passes 63 bits")]
    TooLarge,
    /// A field space that breaks its invariant.
    #[error("wrong field space: {why}")]
    Fields {
        /// What is wrong.
        why: String,
    },
    /// A layout vector that breaks its invariant.
    #[error("wrong layout: {why}")]
    Layout {
        /// What is wrong.
        why: String,
    },
    /// A throughput function that breaks its invariant.
    #[error("wrong throughput function: {why}")]
    Throughput {
        /// What is wrong.
        why: String,
    },
}

/// Why a channel could not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ChannelErrorKind {
    /// The storage is full.
    NoSpace,
    /// A file ended before the bytes that were asked for.
    ShortRead,
    /// The operating system or device refused or failed an operation.
    Io,
    /// The device is gone; every later request fails likewise.
    DeviceLost,
    /// The other node is gone.
    PeerLost,
    /// The other node knows as many transfers as it may; this may pass.
    Busy,
    /// Memory could not be had.
    OutOfMemory,
    /// The request names a region that was revoked or never existed.
    UnknownRegion,
    /// The request reaches outside its region.
    OutOfBounds,
    /// Something that the transfer waited for failed, was cancelled or ran out of time.
    Dependency,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("{detail}")]
pub struct ChannelError {
    /// What kind of failure it is.
    pub kind: ChannelErrorKind,
    /// What happened, naming file, device or peer, for people.
    pub detail: String,
    /// The operating system's number for it, where that is where it came from.
    pub os_error: Option<i32>,
}

impl ChannelError {
    /// A failure that no number of the operating system's stands for.
    #[must_use]
    pub fn new(kind: ChannelErrorKind, detail: impl Into<String>) -> Self {
        ChannelError { kind, detail: detail.into(), os_error: None }
    }

    /// Whether the same may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind == ChannelErrorKind::Busy
    }
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("hop {hop} failed: {cause}")]
pub struct TransferError {
    /// The hop whose request failed, from 0.
    pub hop: usize,
    /// The memory that failed, where one end is to blame; else the hop's destination.
    pub memory: MemoryId,
    /// What its channel said.
    pub cause: ChannelError,
}

/// How a transfer ended. In every case no channel touches its memory any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// Every byte of the destination's box is written, and committed if that was asked.
    Done,
    /// It was cancelled; the destination's box is unspecified.
    Cancelled,
    /// Its deadline passed; the destination's box is unspecified.
    TimedOut,
    /// A request, or something it waited for, failed; the destination's box is unspecified.
    Failed(TransferError),
}
