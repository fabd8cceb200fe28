//! Standard output, and what goes beside it.

use crate::failure::Failure;
use serde_json::Value;
use std::fmt::Display;
use std::io::Write;

/// Prints one JSON object.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    text(&format!("{value:#}"))
}

/// Prints `text`, and ends its last line.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

/// Says something on standard error, a whole line by one write: ranks share it. A terminal that has
/// gone is no reason to stop; it says so by a signal.
pub(crate) fn aside(what: impl Display) {
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}
