//! Why there is no plan.

use model::MemoryId;
use thiserror::Error;

/// What kind of failure kept the planner from a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The query contradicts itself or the topology.
    Query,
    /// No channels lead from the source to the destination.
    NoPath,
    /// Every path needs an intermediate buffer larger than `TH` allows.
    Space,
}

/// A query that has no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The topology has no such memory.
    #[error("there is no memory {memory:?} in the topology")]
    UnknownMemory {
        /// The memory asked for.
        memory: MemoryId,
    },
    /// The parts of a query don't belong together.
    #[error("wrong query: {why}")]
    Query {
        /// What is wrong.
        why: &'static str,
    },
    /// No channels lead from the source to the destination.
    #[error("no path of channels leads from {src:?} to {dst:?}")]
    NoPath {
        /// The source memory.
        src: MemoryId,
        /// The destination memory.
        dst: MemoryId,
    },
    /// There are paths, but none whose conversions fit in the intermediate buffers.
    #[error("the layout conversion needs more intermediate space than TH allows on every path")]
    Space {
        /// The source memory.
        src: MemoryId,
        /// The destination memory.
        dst: MemoryId,
    },
}

impl PlanError {
    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            PlanError::UnknownMemory { .. } | PlanError::Query { .. } => ErrorKind::Query,
            PlanError::NoPath { .. } => ErrorKind::NoPath,
            PlanError::Space { .. } => ErrorKind::Space,
        }
    }

    /// Never: the same topology and query fail again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}
