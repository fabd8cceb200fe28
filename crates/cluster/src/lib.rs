//! Cluster files: the TOML that people write, and the JSON of the same keys that `iso topo --json`
//! prints, to and from [`model::Topology`]; and what runs on a cluster as traces ([`chrome`]).
//!
//! [`parse`] takes either; a file that starts with `{` is JSON. [`ready_made`] has the clusters that
//! come with the program. What can't be understood is an
//! error that names the key, and the line where the format gives one; no input panics.
#![forbid(unsafe_code)]

mod build;
pub mod chrome;
mod error;
mod locate;
mod raw;
mod ready;
mod write;

pub use error::{ClusterError, ErrorKind};
pub use ready::{ready_made, ready_made_names, with_nodes};
pub use write::to_json;

use model::Topology;

/// The topology of a cluster file in either format.
///
/// # Errors
/// [`ClusterError`] as [`parse_toml`] and [`parse_json`].
pub fn parse(text: &str) -> Result<Topology, ClusterError> {
    if text.trim_start().starts_with('{') { parse_json(text) } else { parse_toml(text) }
}

/// The topology of a TOML cluster file. Its generation is 0.
///
/// # Errors
/// [`ErrorKind::Syntax`] for what is not TOML, [`ErrorKind::Shape`] for unknown or missing keys and
/// values of a wrong type, [`ErrorKind::Name`] for unknown or repeated names, and
/// [`ErrorKind::Value`] for figures that break an invariant, a rate that falls for example.
pub fn parse_toml(text: &str) -> Result<Topology, ClusterError> {
    let table = toml::de::DeTable::parse(text).map_err(|e| error::of_toml(text, &e, true))?;
    let raw = toml::from_str(text).map_err(|e| error::of_toml(text, &e, false))?;
    build::topology(&raw).map_err(|fault| {
        let line = locate::line(text, table.get_ref(), &fault.key);
        fault.at(line)
    })
}

/// The topology of a JSON cluster file. Its generation is 0; the flat lists `memories` and
/// `channels`, which repeat for readers what the other keys say, are ignored.
///
/// # Errors
/// As [`parse_toml`]; only errors of syntax and shape know their line.
pub fn parse_json(text: &str) -> Result<Topology, ClusterError> {
    let raw = serde_json::from_str(text).map_err(|e| error::of_json(&e))?;
    build::topology(&raw)
}

#[cfg(test)]
mod tests;
