//! Benchmarks: verify, then time all contenders of a case alternating, and print ratios.
//!
//! Machines are shared and noisy, so a figure is never an absolute one: each contender runs in
//! turn, run by run, and its time is divided by ours of the same turn. The report holds medians of
//! seconds, ratios at p25, p50 and p75, and the 95% bootstrap interval of the median ratio, by
//! which an aim counts as reached.
//!
//! The cases stand in `bench/problems/GROUP.toml`. A case whose result is wrong in a single byte
//! is reported as such and not timed.
#![deny(unsafe_code)]

mod content;
mod error;
mod groups;
mod lanes;
#[allow(unsafe_code)]
mod native;
mod peer;
mod problems;
mod process;
mod report;
#[allow(unsafe_code)]
mod ring;
mod settings;
mod stats;
mod turns;

pub use error::Error;
pub use groups::{Counts, GROUPS, Group, check_counts, kernels_beside, named, run_counted};
pub use peer::{Peer, Ready, Run, Spans, Strides, Task, View, fastest};
pub use report::Report;
pub use settings::{Output, Settings, Stop};
