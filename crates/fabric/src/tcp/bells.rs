//! What wakes the threads of a process that sleep on descriptors.
//!
//! **Hazard.** What one sleeps for comes just before it sleeps; or another takes the sign that was for
//! it. **Guarantee.** Whoever has hung up its bell, and then has not seen what it waits for, is woken by
//! who makes that so. **Structure.** Each sleeper has a descriptor of its own, which is kept for the
//! next one. Where nobody sleeps, ringing is a look at a number.

use crate::locks::lock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Result, read, write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// The bells of a process.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    /// How many hang.
    count: AtomicUsize,
    fds: Mutex<Fds>,
}

#[derive(Debug, Default)]
struct Fds {
    hung: Vec<Arc<OwnedFd>>,
    free: Vec<Arc<OwnedFd>>,
}

/// Of who is about to sleep; taken down when dropped.
#[derive(Debug)]
pub(crate) struct Bell<'a> {
    bells: &'a Bells,
    fd: Arc<OwnedFd>,
}

impl Bells {
    /// Hangs up a bell; what it is to tell of is looked at after this.
    pub(crate) fn hang(&self) -> Result<Bell<'_>> {
        let mut fds = lock(&self.fds);
        let fd = match fds.free.pop() {
            Some(fd) => fd,
            None => Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        };
        fds.hung.push(Arc::clone(&fd));
        self.count.store(fds.hung.len(), Ordering::Relaxed);
        drop(fds);
        // Between hanging it up and looking; its like is in `ring`.
        fence(Ordering::SeqCst);
        Ok(Bell { bells: self, fd })
    }

    /// Rings all that hang.
    pub(crate) fn ring(&self) {
        // Between what was done and whether somebody sleeps.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for fd in &lock(&self.fds).hung {
            // The only failure is a full counter, and then it is readable already.
            let _ = write(fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell<'_> {
    /// Readable once it was rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        let mut fds = lock(&self.bells.fds);
        fds.hung.retain(|fd| !Arc::ptr_eq(fd, &self.fd));
        self.bells.count.store(fds.hung.len(), Ordering::Relaxed);
        // It fails where it was not rung, and is silent then.
        let _ = read(&self.fd, &mut [0; 8]);
        fds.free.push(Arc::clone(&self.fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_rung(bell: &Bell<'_>) -> bool {
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn those_that_hang_are_rung_and_no_others() {
        let bells = Bells::default();
        bells.ring();
        let (first, second) = (bells.hang().unwrap(), bells.hang().unwrap());
        assert!(!is_rung(&first) && !is_rung(&second));
        bells.ring();
        assert!(is_rung(&first) && is_rung(&second));
        drop(first);
        assert!(is_rung(&second), "another was taken down");
        let third = bells.hang().unwrap();
        assert!(!is_rung(&third), "rung before it hung");
        drop((second, third));
        assert_eq!(lock(&bells.fds).free.len(), 2);
    }
}
