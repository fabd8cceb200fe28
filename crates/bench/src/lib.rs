//! Benchmarks: verify, then time all contenders of a case alternating, and print ratios.
//!
//! Machines are shared and noisy, so a figure is never an absolute one: each contender runs in
//! turn, run by run, and its time is divided by ours of the same turn. The report holds medians of
//! seconds, ratios at p25, p50 and p75, and the 95% bootstrap interval of the median ratio, by
//! which an aim counts as reached.
#![forbid(unsafe_code)]

mod group;
mod stats;

pub use group::{Case, Contender, Group, seconds_of};
pub use stats::{Ratio, median};
