//! Runs plans: the transfer descriptors, DMA workers and intermediate buffers of section 3 of the
//! paper, as a machine without I/O, threads or a clock.
//!
//! [`Program::compile`] turns a plan and the two parts that it joins into something that runs any
//! number of times; [`Engine::submit`] takes a [`Transfer`] that runs one. The driver hands the
//! engine's requests to channels and their completions back to it; see [`Engine`] for the hazard,
//! the guarantee and the order of calls.

#![forbid(unsafe_code)]

mod arena;
mod chain;
mod chunk;
mod config;
mod counts;
mod cutting;
mod engine;
mod error;
mod flight;
mod lifecycle;
mod memo;
mod order;
mod peer;
mod policy;
mod program;
mod report;
mod ring;
mod serving;
mod span;
mod staging;
mod transfer;
mod waits;
mod worker;
mod workers;

pub use config::{ChannelConfig, EngineConfig, PoolConfig};
pub use counts::{ChannelCounts, ClassWaits, Traffic, WAIT_BOUNDS, Waits};
pub use engine::Engine;
pub use error::{CompileError, SubmitError};
pub use peer::{AskId, Asked, Packet, PeerConfig, PeerMessage};
pub use policy::{ByPriority, FairShare, Fifo, Policy, Rank, Standing};
pub use program::Program;
pub use report::{HopReport, Report};
pub use transfer::{Commit, Dependency, State, Transfer, TransferEvent};
pub use waits::{Underway, Wait};

#[cfg(test)]
extern crate self as isometry_engine;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
