//! The thread that drives a machine's channels while nobody else does.

use super::Shared;
use super::core::Caller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The running thread. It sleeps whenever nothing is to be done.
pub(crate) struct Driver {
    thread: JoinHandle<()>,
}

impl Driver {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let shared = Arc::clone(shared);
        let body = move || drive(&shared);
        let thread = Builder::new().name("isometry-driver".to_owned()).spawn(body)?;
        Ok(Driver { thread })
    }

    /// Waits until everything that was submitted has ended.
    pub(crate) fn join(self, shared: &Shared) {
        shared.bell.ring();
        // A panic of the driver was printed when it happened.
        let _ = self.thread.join();
    }
}

fn drive(shared: &Shared) {
    let (mut fds, mut seen) = (Vec::new(), None);
    loop {
        let current = Some(shared.channel_changes());
        if current != seen {
            (fds, seen) = (shared.core().wake_fds(), current);
        }
        shared.bell.clear();
        shared.tell_fences();
        let timeout = shared.step(Caller::Driver);
        if shared.is_over() {
            return;
        }
        let now = shared.clock.now();
        let wait = timeout.and_then(|due| Timespec::try_from(due.since(now)).ok());
        sleep(shared, &fds, wait);
    }
}

/// Until a channel or the bell rings, or the time is over.
fn sleep(shared: &Shared, fds: &[Arc<OwnedFd>], wait: Option<Timespec>) {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    polled.push(PollFd::new(&*shared.bell, PollFlags::IN));
    // An interruption is a wake-up like any other: the caller looks and sleeps again.
    let _ = poll(&mut polled, wait.as_ref());
}
