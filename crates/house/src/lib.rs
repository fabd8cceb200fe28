//! The house style as tests.
//!
//! Each rule is a pure function from text to [`Finding`]s, tested on a snippet that breaks it;
//! `tests/house.rs` runs every rule on the whole workspace. Nothing else depends on this crate.
#![forbid(unsafe_code)]

mod finding;
pub mod purity;
mod rust;
pub mod shape;
pub mod table;
mod tree;
pub mod unsafety;
pub mod words;

pub use finding::{Finding, assert_none};
pub use rust::{Function, Named, Source, Structure};
pub use tree::{File, Tree};
