//! Placeholder until this crate's first commit.
