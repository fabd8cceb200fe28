//! A descriptor that threads ring and one thread sleeps on.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd: readable from [`Bell::ring`] until [`Bell::clear`].
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { fd })
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        // The only failure is a full counter, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        // The only failure is an empty counter, and then it is unreadable already.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Sleeps until the descriptor is readable; leaves it so.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
