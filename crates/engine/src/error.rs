//! What is refused, and why.

use layout::LayoutError;
use model::{ChannelId, MemoryId, TransferId};
use thiserror::Error;

/// Why a plan and two parts make no program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The plan's lists don't belong together.
    #[error("inconsistent plan: {why}")]
    Plan {
        /// What is wrong.
        why: &'static str,
    },
    /// The two parts differ in extents or in field sizes.
    #[error("source and destination differ in {what}")]
    Parts {
        /// In what.
        what: &'static str,
    },
    /// A layout of the plan doesn't suit the box.
    #[error("layout {at} of the plan: {source}")]
    Layout {
        /// Which layout, from 0.
        at: usize,
        /// Why.
        source: LayoutError,
    },
    /// The destination has stride 0 or overlaps itself.
    #[error("the destination can't be written to: {0}")]
    Destination(LayoutError),
    /// A request of a hop may fall into more pieces than it may.
    #[error("requests of hop {hop} fall into up to {pieces} pieces, and may into {max_pieces}")]
    Pieces {
        /// The hop, from 0.
        hop: usize,
        /// How many there may be.
        pieces: u64,
        /// The most that are allowed.
        max_pieces: u64,
    },
    /// A buffer is smaller than one granule of a hop beside it.
    #[error("buffer {buffer} has {bytes} bytes where {needed_bytes} are needed")]
    Buffer {
        /// Which buffer, from 0.
        buffer: usize,
        /// Its size.
        bytes: u64,
        /// The least that would do.
        needed_bytes: u64,
    },
}

/// Why a transfer was not taken. It has no effect, but [`SubmitError::Full`] may pass.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// As many transfers as the engine holds are known; forget some that have ended.
    #[error("the engine holds as many transfers as it may")]
    Full,
    /// The plan uses a channel that the engine does not drive.
    #[error("channel {} of {} is not driven by this engine", .0.index, .0.node)]
    UnknownChannel(ChannelId),
    /// The plan has a buffer in a memory without a staging pool.
    #[error("{} has no staging", numbered(*.0))]
    UnknownPool(MemoryId),
    /// The plan's buffers in a memory exceed its staging, even when nobody else holds any.
    #[error(
        "the plan's buffers in {} exceed its staging: give it more, or plan with a smaller TH",
        numbered(*.0)
    )]
    NeverFits(MemoryId),
    /// The source or destination reaches below the start of its region, or past 63 bits.
    #[error("the instance reaches outside its region")]
    OutOfRegion,
    /// A transfer to wait for that is not known, or forgotten.
    #[error("a transfer to wait for is unknown")]
    UnknownDependency(TransferId),
}

impl SubmitError {
    /// What is wrong, with memories by the names that `name` has for them.
    #[must_use]
    pub fn told(&self, name: impl Fn(MemoryId) -> String) -> String {
        match self {
            SubmitError::UnknownPool(memory) | SubmitError::NeverFits(memory) => {
                self.to_string().replace(&numbered(*memory), &name(*memory))
            }
            _ => self.to_string(),
        }
    }

    /// Whether the same transfer may be taken later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, SubmitError::Full)
    }
}

fn numbered(memory: MemoryId) -> String {
    format!("memory {} of {}", memory.index, memory.node)
}
