//! Tells whether the process has forked, for less than asking the kernel who we are.
//!
//! **Hazard.** A child has its parent's machines, and none of their threads: a copy would hang.
//! **Guarantee.** A child counts one fork more than its parent did, before `fork` returns there.
//! **Structure.** A handler that the C library runs in each child counts.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process is the child of a fork, since the first machine in its line.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCHED: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub(crate) fn watch_forks() {
    WATCHED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which a child of a threaded process may.
        let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if result != 0 {
            log::warn!("forks can't be noticed: there is no memory for a handler");
        }
    });
}

/// The number of forks between the first call of [`watch_forks`] and this process.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
