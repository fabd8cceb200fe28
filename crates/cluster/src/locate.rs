//! From a key's path to its line.

use crate::error::line_of;
use toml::de::{DeTable, DeValue};

/// The line of `key` (`node[0].channel[2].from`) in `text`, or of the innermost table around it
/// that is there.
pub(crate) fn line(text: &str, table: &DeTable<'_>, key: &str) -> Option<usize> {
    let mut found = None;
    let mut here = Some(table);
    for part in key.split('.') {
        let (name, index) = split(part);
        let Some(value) = here.and_then(|t| t.get(name)) else { break };
        let value = match (value.get_ref(), index) {
            (DeValue::Array(items), Some(index)) => items.get(index)?,
            _ => value,
        };
        found = Some(value.span().start);
        here = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    found.map(|offset| line_of(text, offset))
}

/// `channel[2]` as the name and the index.
fn split(part: &str) -> (&str, Option<usize>) {
    match part.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse().ok()),
        None => (part, None),
    }
}
