//! A place that breaks a rule.

use std::fmt;

/// A broken rule, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the workspace's root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do instead.
    pub what: String,
}

impl Finding {
    /// A finding at `line` of `path`.
    #[must_use]
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails a test with a line for each finding.
///
/// # Panics
/// Where `findings` is not empty.
pub fn assert_none(findings: &[Finding]) {
    let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} places break the rule:\n{}", lines.len(), lines.join("\n"));
}
