//! Why there is no plan.

use model::MemoryId;
use std::fmt;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The topology has no such memory.
    UnknownMemory {
        /// The memory asked for.
        memory: MemoryId,
    },
    /// The parts of a query don't belong together.
    Query {
        /// What is wrong.
        why: &'static str,
    },
    /// No channels lead from the source to the destination.
    NoPath {
        /// The source memory.
        src: MemoryId,
        /// The destination memory.
        dst: MemoryId,
    },
    /// There are paths, but none whose conversions fit in the intermediate buffers.
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

    /// What is wrong, with memories by the names that `name` has for them.
    #[must_use]
    pub fn told(&self, name: impl Fn(MemoryId) -> String) -> String {
        let ends =
            |src: &MemoryId, dst: &MemoryId| format!("from {} to {}", name(*src), name(*dst));
        match self {
            PlanError::UnknownMemory { memory } => {
                format!("{} is not in the topology", name(*memory))
            }
            PlanError::Query { why } => format!("wrong query: {why}"),
            PlanError::NoPath { src, dst } => {
                let ends = ends(src, dst);
                format!("no path of channels leads {ends}; where TH is 0 it can't pass through")
            }
            PlanError::Space { src, dst } => {
                let ends = ends(src, dst);
                format!(
                    "every path {ends} needs an intermediate buffer larger than TH allows: ask for more, or \
                     give running nodes more staging"
                )
            }
        }
    }

    /// Never: the same topology and query fail again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(|memory| format!("memory {} of {}", memory.index, memory.node)))
    }
}

impl std::error::Error for PlanError {}
