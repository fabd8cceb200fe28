//! The thread that drives a machine's channels while nobody else does.
//!
//! **Hazard.** A channel that is added as the driver looks for new ones may be used at once, and what it has to tell
//! would not wake the driver. **Guarantee.** Whatever is rung for after the driver's look keeps it
//! from sleeping. **Structure.** [`Watched::look`] clears the bell first of all, and looks then.

use super::Shared;
use super::core::Caller;
use channel::Bell;
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
    let mut watched = Watched::default();
    loop {
        watched.look(&shared.bell, || shared.channel_changes(), || shared.core().wake_fds());
        shared.tell_fences();
        let timeout = shared.step(Caller::Driver);
        if shared.is_over() {
            return;
        }
        let now = shared.clock.now();
        let wait = timeout.and_then(|due| Timespec::try_from(due.since(now)).ok());
        watched.sleep(&shared.bell, wait);
    }
}

/// The channels that the driver sleeps on.
#[derive(Default)]
struct Watched {
    fds: Vec<Arc<OwnedFd>>,
    /// How often the set of channels had changed before `fds` was made.
    seen: Option<u64>,
}

impl Watched {
    /// Clears `bell`, and takes the channels' `fds` where there were changes: a later one rings again.
    fn look(
        &mut self,
        bell: &Bell,
        changes: impl FnOnce() -> u64,
        fds: impl FnOnce() -> Vec<Arc<OwnedFd>>,
    ) {
        bell.clear();
        let current = Some(changes());
        if current != self.seen {
            (self.fds, self.seen) = (fds(), current);
        }
    }

    /// Until a channel or `bell` rings, or the time is over.
    fn sleep(&self, bell: &Bell, wait: Option<Timespec>) {
        let mut polled: Vec<_> = self.fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        polled.push(PollFd::new(bell, PollFlags::IN));
        // An interruption is a wake-up like any other: the caller looks and sleeps again.
        let _ = poll(&mut polled, wait.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    #[test]
    fn a_channel_that_is_added_as_the_driver_looks_keeps_it_from_sleeping() {
        let (bell, count) = (Bell::new().unwrap(), Cell::new(0));
        let fd = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
        let fds = || (0..count.get()).map(|_| Arc::clone(&fd)).collect();
        let looks_before_it_is_added = || {
            bell.ring();
            count.replace(1)
        };
        let mut watched = Watched::default();
        watched.look(&bell, looks_before_it_is_added, Vec::new);
        let (long, started) = (Timespec { tv_sec: 10, tv_nsec: 0 }, Instant::now());
        watched.sleep(&bell, Some(long));
        assert!(started.elapsed() < Duration::from_secs(10), "it slept until its time was over");
        watched.look(&bell, || count.get(), fds);
        assert_eq!((watched.fds.len(), watched.seen), (1, Some(1)));
        watched.look(&bell, || count.get(), || unreachable!("nothing has changed"));
    }
}
