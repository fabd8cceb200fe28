//! The thread that hears those which come later, and sleeps until one calls.

use super::admission::Admission;
use super::callers::{Bell, Callers, Host};
use super::handshake::{ADMISSION, Handshake, LATE, Proved};
use super::places::Places;
use super::{ADMITTED, Joined, Members, Names, PATIENCE, Socket, Way, greet};
use crate::config::Config;
use crate::error::Error;
use rustix::net::{Shutdown, shutdown};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Where those that come later call; closed when dropped, which waits for nobody.
#[derive(Debug)]
pub(crate) struct Door {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Has `admit` called for each rank that comes later, once all its lanes are there; that one is told
    /// when it returns, unless it fails. By any thread, and not after the door is closed.
    pub(crate) fn open<W: Way + Send + 'static>(
        config: Config,
        way: W,
        listener: OwnedFd,
        admit: impl Fn(u32, Vec<Joined<W::Gift>>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Door, Error> {
        Door::start(listener, move |listener, bell| {
            let handshake = Handshake { config: &config, kind: W::KIND, lanes: W::LANES };
            let expected = config.size.max(config.rank + 1)..config.capacity;
            let host = Newcomers { way, admit, places: Places::new(W::LANES) };
            let heard = Mutex::default();
            Callers { handshake, expected, host: &host, bell, heard }.hear_all(listener);
        })
    }

    /// As rank 0, tells those that come later which ranks they are, unless one of its own or of `names` is
    /// theirs.
    pub(crate) fn at_root(
        config: Config,
        members: impl Members + 'static,
        (listener, names): (OwnedFd, Names),
    ) -> Result<Door, Error> {
        Door::start(listener, move |listener, bell| {
            let handshake = Handshake { config: &config, kind: ADMISSION, lanes: 1 };
            let (expected, host) = (LATE..LATE + 1, Admission::new(&config, &members, names));
            let heard = Mutex::default();
            Callers { handshake, expected, host: &host, bell, heard }.hear_all(listener);
        })
    }

    fn start(
        listener: OwnedFd,
        hear: impl FnOnce(BorrowedFd<'_>, &Bell) + Send + 'static,
    ) -> Result<Door, Error> {
        let bell = Arc::new(Bell::new()?);
        let theirs = Arc::clone(&bell);
        let thread = Builder::new().name("iso-door".into());
        let thread = thread.spawn(move || hear(listener.as_fd(), &theirs));
        let thread = Some(thread.map_err(Error::io("opening the door for ranks that come later"))?);
        Ok(Door { bell, thread })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.bell.end();
        // A panic of the thread has been told by its hook.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Those that come later, as they are heard.
struct Newcomers<W: Way, A> {
    way: W,
    admit: A,
    places: Places<W::Gift>,
}

impl<W, A> Host for Newcomers<W, A>
where
    W: Way,
    A: Fn(u32, Vec<Joined<W::Gift>>) -> Result<(), Error> + Sync,
{
    type Gift = W::Gift;

    fn greet(&self, proved: &Proved, socket: &Socket) -> Result<W::Gift, Error> {
        greet(&self.way, &self.places, (proved.lane, PATIENCE), socket)
    }

    fn keep(&self, proved: Proved, socket: Socket, gift: W::Gift) -> Result<(), Error> {
        let Proved { lane, name } = proved;
        self.places.fill(lane, Joined { socket, gift, name });
        let Some(lanes) = self.places.take_out(lane.0) else { return Ok(()) };
        // This lane may be any of them: several are heard at once.
        let last = lanes.last().map(|lane| lane.socket.0.try_clone()).transpose();
        let Some(last) = last.map_err(Error::io("keeping a socket"))?.map(Socket) else {
            return Ok(());
        };
        let admitted = (self.admit)(lane.0, lanes);
        // Who is gone hears nothing.
        match admitted {
            Ok(()) => _ = (&last).write_all(&[ADMITTED]),
            Err(_) => _ = shutdown(&last, Shutdown::Both),
        }
        admitted
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.places.expire(PATIENCE))
    }
}
