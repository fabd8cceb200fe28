//! What is wrong with a workload, and why a run did not end.

use model::{MemoryId, Outcome};
use std::fmt;
use thiserror::Error;

/// A mistake in a workload file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadError {
    /// `copy[2].from`; empty where the format's own message names it.
    key: String,
    line: Option<usize>,
    why: String,
}

impl WorkloadError {
    pub(crate) fn value(key: impl Into<String>, why: impl Into<String>) -> Self {
        WorkloadError { key: key.into(), line: None, why: why.into() }
    }

    /// What `toml` found, with its line.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|&b| b == b'\n').count();
        WorkloadError {
            key: String::new(),
            line: error.span().map(|span| line(span.start)),
            why: error.message().trim().to_owned(),
        }
    }

    /// What `serde_json` found, which names its line.
    pub(crate) fn of_json(error: &serde_json::Error) -> Self {
        Self::value("", error.to_string())
    }

    /// The key that is wrong, as a path through the file; empty for errors of the format, which
    /// name their line.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Never: the same text is wrong again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("workload")?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ", key `{}`", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for WorkloadError {}

/// Why a case has no report.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulateError {
    /// The case contradicts itself.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A copy has no plan.
    #[error("copy `{copy}`: {source}")]
    Plan {
        /// Its name.
        copy: String,
        /// Why.
        source: planner::PlanError,
    },
    /// A plan makes no program.
    #[error("copy `{copy}`: {source}")]
    Compile {
        /// Its name.
        copy: String,
        /// Why.
        source: engine::CompileError,
    },
    /// An instance is too large to have addresses.
    #[error("copy `{copy}`: {source}")]
    Layout {
        /// Its name.
        copy: String,
        /// Why.
        source: layout::LayoutError,
    },
    /// The engine takes a transfer neither now nor later.
    #[error("copy `{copy}`: {source}")]
    Refused {
        /// Its name.
        copy: String,
        /// Why.
        source: engine::SubmitError,
    },
    /// A transfer has ended otherwise than done.
    #[error("copy `{copy}`: {}", told_outcome(.outcome))]
    Failed {
        /// Its name.
        copy: String,
        /// How.
        outcome: Outcome,
    },
    /// No channels lead on through memories that may hold the whole instance.
    #[error("copy `{copy}`: no path through memories that hold the whole instance")]
    NoRoute {
        /// Its name.
        copy: String,
    },
    /// Instances that one copy needs at once exceed what a memory has for them.
    #[error(
        "copy `{copy}`: its instances need {bytes} bytes of memory {} of {}, which has {left_bytes} \
         for them",
        .memory.index, .memory.node
    )]
    Capacity {
        /// Its name.
        copy: String,
        /// Where.
        memory: MemoryId,
        /// What one copy needs there at once.
        bytes: u64,
        /// What there is, less staging.
        left_bytes: u64,
    },
    /// Nothing more can happen, though not all copies have ended.
    #[error("{left} transfers never end")]
    Stuck {
        /// How many have not.
        left: u64,
    },
    /// Virtual time is at its end: it counts nanoseconds in 64 bits.
    #[error("{left} transfers have not ended after 146 years")]
    TooLong {
        /// How many have not.
        left: u64,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

impl SimulateError {
    /// What went wrong, with memories by the names that `name` has for them.
    #[must_use]
    pub fn told(&self, name: impl Fn(MemoryId) -> String) -> String {
        match self {
            SimulateError::Plan { copy, source } => format!("copy `{copy}`: {}", source.told(name)),
            SimulateError::Refused { copy, source } => {
                format!("copy `{copy}`: {}", source.told(name))
            }
            SimulateError::Capacity { memory, .. } => {
                let numbered = format!("memory {} of {}", memory.index, memory.node);
                self.to_string().replace(&numbered, &name(*memory))
            }
            _ => self.to_string(),
        }
    }

    /// Never: a run is a function of its arguments, but for being stopped.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, SimulateError::Stopped)
    }
}

fn told_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}
