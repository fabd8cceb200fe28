//! What happened in a run, in order.

use model::{ChannelId, Outcome, RequestId, Time};
use std::fmt;

/// One thing that happened. Transfers and fences are named by their position in the scenario.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A transfer was submitted.
    Submitted {
        /// The transfer.
        transfer: usize,
    },
    /// A request was given to its channel.
    Issued {
        /// The request.
        request: RequestId,
        /// Its transfer.
        transfer: usize,
        /// The hop of that transfer.
        hop: u16,
        /// Where it runs.
        channel: ChannelId,
        /// Its payload; 0 for a commit or an abort.
        bytes: u64,
    },
    /// A request completed.
    Completed {
        /// The request.
        request: RequestId,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A transfer ended.
    Ended {
        /// The transfer.
        transfer: usize,
        /// How.
        outcome: Outcome,
    },
    /// A fence ended.
    Fenced {
        /// The fence.
        fence: usize,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A fault struck, by position in the scenario.
    Struck {
        /// The fault.
        fault: usize,
    },
}

/// An event and its instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When.
    pub at: Time,
    /// What.
    pub event: Event,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ", self.at.0)?;
        match &self.event {
            Event::Submitted { transfer } => write!(f, "submitted t{transfer}"),
            Event::Issued { request, transfer, hop, channel, bytes } => write!(
                f,
                "issued r{} t{transfer} hop {hop} node {} channel {} {bytes} B",
                request.0, channel.node.0, channel.index
            ),
            Event::Completed { request, ok } => {
                write!(f, "{} r{}", if *ok { "completed" } else { "failed" }, request.0)
            }
            Event::Ended { transfer, outcome } => write!(f, "ended t{transfer} {outcome:?}"),
            Event::Fenced { fence, ok } => {
                write!(f, "fence {fence} {}", if *ok { "passed" } else { "failed" })
            }
            Event::Struck { fault } => write!(f, "fault {fault}"),
        }
    }
}
