//! A thread that sleeps until a peer's socket ends, or a process.

use crate::error::Error;
use crate::locks::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

/// What a peer says before it leaves.
pub(crate) const BYE: u8 = b'B';

/// The thread; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

/// What is watched: by which name, and that.
type Named = (usize, Arc<OwnedFd>);

/// What is told to the thread.
#[derive(Debug)]
pub(crate) struct Watched {
    bell: OwnedFd,
    /// What is to be watched too; `None` where nothing is any more.
    more: Mutex<Option<Vec<Named>>>,
}

impl Watched {
    /// Has one more socket watched, or pidfd, unless the thread has ended.
    pub(crate) fn add(&self, name: usize, fd: impl Into<Arc<OwnedFd>>) {
        if let Some(more) = &mut *lock(&self.more) {
            more.push((name, fd.into()));
        }
        self.ring();
    }

    fn ring(&self) {
        // The only failure is a full counter, and then it is readable already.
        let _ = write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Watch {
    /// Calls `ended` with the name of each that is added and ends, and whether it said bye.
    pub(crate) fn new(ended: impl Fn(usize, bool) + Send + 'static) -> Result<Watch, Error> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(Error::os("making an eventfd"))?;
        let watched = Arc::new(Watched { bell, more: Mutex::new(Some(Vec::new())) });
        let theirs = Arc::clone(&watched);
        let thread = Builder::new().name("iso-watch".into()).spawn(move || watch(&theirs, ended));
        let thread = Some(thread.map_err(Error::io("starting the watch"))?);
        Ok(Watch { watched, thread })
    }

    /// What adds to it.
    pub(crate) fn watched(&self) -> &Arc<Watched> {
        &self.watched
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *lock(&self.watched.more) = None;
        self.watched.ring();
        // A panic of the thread has been told by its hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn watch(watched: &Watched, ended: impl Fn(usize, bool)) {
    if let Err(error) = watch_until_told(watched, ended) {
        log::error!("no longer watching peers: {error}");
    }
    *lock(&watched.more) = None;
}

fn watch_until_told(watched: &Watched, ended: impl Fn(usize, bool)) -> Result<(), Errno> {
    let mut sockets: Vec<Named> = Vec::new();
    loop {
        // Whoever adds rings afterwards. It fails where nobody did.
        let _ = read(&watched.bell, &mut [0; 8]);
        match &mut *lock(&watched.more) {
            Some(more) => sockets.append(more),
            None => return Ok(()),
        }
        let fds = sockets.iter().map(|(_, socket)| &**socket).chain([&watched.bell]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let mut ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        ready.pop();
        let mut ready = ready.into_iter();
        sockets.retain(|(name, socket)| {
            !ready.next().unwrap_or(false) || goes_on(*name, socket, &ended)
        });
    }
}

/// Hears what came of a socket; returns whether more may. A pidfd has nothing to read, and is ready at its end.
fn goes_on(name: usize, socket: &OwnedFd, ended: &impl Fn(usize, bool)) -> bool {
    let mut said = [0];
    match read(socket, &mut said) {
        Err(Errno::INTR | Errno::AGAIN) => true,
        heard => {
            ended(name, heard == Ok(1) && said == [BYE]);
            false
        }
    }
}
