//! A descriptor that any thread may close while others use it.

use crate::locks::lock;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The system has it back once it is closed and nobody uses it any more, so that no other takes its number
/// before.
#[derive(Debug)]
pub(crate) struct Closable(Mutex<Option<Arc<OwnedFd>>>);

impl Closable {
    pub(crate) fn new(fd: impl Into<Arc<OwnedFd>>) -> Closable {
        Closable(Mutex::new(Some(fd.into())))
    }

    /// `None` once it is closed.
    pub(crate) fn get(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0).clone()
    }

    pub(crate) fn close(&self) {
        lock(&self.0).take();
    }
}
