//! What the threads of a process sleep on, each for something of its own.
//!
//! **Hazard.** What one sleeps for comes just before it sleeps; or another goes to sleep just then, and
//! hides that the first was woken. **Guarantee.** Whoever has said that it sleeps, and then has not
//! seen what it waits for, is woken by who makes that so. **Structure.** The lowest bit says that
//! somebody may sleep, the others count wake-ups, so that no two sleep through one in between. Any file
//! may be compiled against the types of `sync` that a model checker brings.

use super::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Says that somebody may sleep.
const SLEEPS: u32 = 1;

/// A word that threads sleep on while it stays as it is.
pub(crate) trait Futex {
    /// The word.
    fn word(&self) -> &AtomicU32;

    /// Sleeps until woken, if the word is `value`, and no longer than `most`. It may wake for nothing.
    fn wait(&self, value: u32, most: Option<Duration>);

    /// Wakes all that sleep.
    fn wake(&self);
}

/// Sleeps until [`wake`] is called, the time is over, or for nothing; not at all if `is_over`, which is
/// called when that would wake. Returns whether it went to sleep.
pub(crate) fn sleep(
    futex: &impl Futex,
    most: Option<Duration>,
    is_over: impl FnOnce() -> bool,
) -> bool {
    let value = announce(futex.word());
    if is_over() {
        return false;
    }
    futex.wait(value, most);
    true
}

/// Says that one is about to sleep, who looks afterwards whether it may; returns the word.
pub(crate) fn announce(word: &AtomicU32) -> u32 {
    let value = word.fetch_or(SLEEPS, Ordering::Relaxed) | SLEEPS;
    // Between saying that it sleeps and looking once more; its like is in `claim`.
    fence(Ordering::SeqCst);
    value
}

/// Wakes all that said they sleep before they could see what was done before this call.
pub(crate) fn wake(futex: &impl Futex) {
    if claim(futex.word()) {
        futex.wake();
    }
}

/// Whether somebody said so, all of whom the caller is to wake: nobody else does.
pub(crate) fn claim(word: &AtomicU32) -> bool {
    // Between what was done and whether somebody sleeps.
    fence(Ordering::SeqCst);
    let relaxed = Ordering::Relaxed;
    let value = word.load(relaxed);
    // Where it has changed since, somebody else wakes them.
    value & SLEEPS != 0
        && word.compare_exchange(value, value.wrapping_add(1), relaxed, relaxed).is_ok()
}
