//! Whose turn it is to run the handlers of a queue.
//!
//! **Hazard.** Who finds that it is another's can't look whether something has come: it may sleep through what
//! came just behind the other's look, or look again and again while a handler takes its time. **Guarantee.**
//! Whoever was told that it is another's, once woken or not, is woken when that is over. **Structure.** A word: it
//! is somebody's, and somebody has missed it. A test compiles this file against shuttle's types.

use super::sync::{AtomicU32, Ordering};

/// It is somebody's.
const TAKEN: u32 = 1;

/// Somebody has asked meanwhile, and sleeps.
const MISSED: u32 = 2;

/// The turn.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU32);

impl Turn {
    /// Takes it until what this returns is dropped, which calls `wake` if somebody has missed it; `None` while it
    /// is another's.
    pub(crate) fn take<W: Fn()>(&self, wake: W) -> Option<Taken<'_, W>> {
        let taken = self.0.compare_exchange(0, TAKEN, Ordering::SeqCst, Ordering::Relaxed);
        taken.ok().map(|_| Taken { turn: self, wake })
    }

    /// Whether it is another's, which then wakes this one once that is over.
    pub(crate) fn is_missed(&self) -> bool {
        let missed = |word: u32| (word & TAKEN != 0).then_some(word | MISSED);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, missed).is_ok()
    }
}

/// While it lives, it is this one's turn.
#[derive(Debug)]
pub(crate) struct Taken<'a, W: Fn()> {
    turn: &'a Turn,
    wake: W,
}

impl<W: Fn()> Drop for Taken<'_, W> {
    fn drop(&mut self) {
        if self.turn.0.swap(0, Ordering::SeqCst) & MISSED != 0 {
            (self.wake)();
        }
    }
}
