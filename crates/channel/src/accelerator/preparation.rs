//! What a channel needs before its first command.

use crate::Bell;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Something that takes long to make, made by a thread of its own once it is needed, so that nobody who
/// submits or polls waits for it. Dropping this waits for the thread.
#[derive(Debug, Default)]
pub struct Preparation {
    thread: Option<JoinHandle<()>>,
}

impl Preparation {
    /// Has `make` run, unless that was begun before, and `bell` ring behind it. Where there can be no
    /// thread it runs here.
    pub fn begin(&mut self, bell: &Arc<Bell>, make: impl Fn() + Send + Sync + 'static) {
        if self.thread.is_some() {
            return;
        }
        let bell = Arc::clone(bell);
        let body = Arc::new(move || {
            make();
            bell.ring();
        });
        let theirs = Arc::clone(&body);
        let thread = Builder::new().name("isometry-prepare".to_owned()).spawn(move || theirs());
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => body(),
        }
    }

    /// Blocks until what was begun is over.
    pub fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.wait();
    }
}
