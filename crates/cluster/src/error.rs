//! What is wrong with a cluster file, and where.

use std::fmt;

/// What kind of mistake a cluster file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It is neither TOML nor JSON.
    Syntax,
    /// A key is unknown or missing, or its value has the wrong type.
    Shape,
    /// A name is unknown, repeated or not a name.
    Name,
    /// A figure breaks an invariant.
    Value,
}

/// A mistake in a cluster file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ClusterError {
    kind: ErrorKind,
    /// `node[0].channel[2].from`; empty where the format's own message names it.
    pub(crate) key: String,
    line: Option<usize>,
    why: String,
}

impl ClusterError {
    pub(crate) fn name(key: impl Into<String>, why: impl Into<String>) -> Self {
        ClusterError { kind: ErrorKind::Name, key: key.into(), line: None, why: why.into() }
    }

    pub(crate) fn value(key: impl Into<String>, why: impl Into<String>) -> Self {
        ClusterError { kind: ErrorKind::Value, key: key.into(), line: None, why: why.into() }
    }

    pub(crate) fn at(self, line: Option<usize>) -> Self {
        ClusterError { line, ..self }
    }

    /// What kind of mistake it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Never: the same text is wrong again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }

    /// The key that is wrong, as a path through the file; empty for errors of syntax.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The line of the mistake, from 1, where the format gives it.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cluster file")?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ", key `{}`", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

/// What `toml` found, with its line.
pub(crate) fn of_toml(text: &str, error: &toml::de::Error, syntax: bool) -> ClusterError {
    ClusterError {
        kind: if syntax { ErrorKind::Syntax } else { ErrorKind::Shape },
        key: String::new(),
        line: error.span().map(|span| line_of(text, span.start)),
        why: error.message().trim().to_owned(),
    }
}

/// What `serde_json` found, with its line.
pub(crate) fn of_json(error: &serde_json::Error) -> ClusterError {
    let kind = if error.is_data() { ErrorKind::Shape } else { ErrorKind::Syntax };
    let line = (error.line() > 0).then_some(error.line());
    ClusterError { kind, key: String::new(), line, why: error.to_string() }
}

/// The line, from 1, of the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&b| b == b'\n').count()
}
