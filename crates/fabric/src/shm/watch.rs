//! A thread that sleeps until a peer's socket ends.

use crate::error::Error;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// What a peer says before it leaves.
pub(crate) const BYE: u8 = b'B';

/// The thread; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `ended` with the position of each of `sockets` that ends, and whether it said bye.
    pub(crate) fn over(
        sockets: Vec<Option<OwnedFd>>,
        ended: impl Fn(usize, bool) + Send + 'static,
    ) -> Result<Watch, Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::os("making an eventfd"))?;
        let stop = Arc::new(stop);
        let theirs = Arc::clone(&stop);
        let watch = move || watch(sockets, &theirs, ended);
        let thread = Builder::new().name("iso-watch".into()).spawn(watch);
        let thread = Some(thread.map_err(Error::io("starting the watch"))?);
        Ok(Watch { stop, thread })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The only failure is a full counter, and then it is readable already.
        let _ = write(&self.stop, &1u64.to_ne_bytes());
        // A panic of the thread has been told by its hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn watch(mut sockets: Vec<Option<OwnedFd>>, stop: &OwnedFd, ended: impl Fn(usize, bool)) {
    loop {
        let (places, mut fds): (Vec<_>, Vec<_>) = sockets
            .iter()
            .enumerate()
            .filter_map(|(i, socket)| Some((i, PollFd::new(socket.as_ref()?, PollFlags::IN))))
            .unzip();
        fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(error) => return log::error!("no longer watching peers: {error}"),
            Ok(_) => {}
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.last() == Some(&true) {
            return;
        }
        for (&place, _) in places.iter().zip(ready).filter(|(_, ready)| *ready) {
            let Some(socket) = &sockets[place] else { continue };
            let mut said = [0];
            match read(socket, &mut said) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                heard => {
                    ended(place, heard == Ok(1) && said == [BYE]);
                    sockets[place] = None;
                }
            }
        }
    }
}
