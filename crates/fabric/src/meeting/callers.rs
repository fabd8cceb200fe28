//! Those that call at a listener. Each is heard by a thread of its own, as long as it takes to prove
//! itself and to join, and no longer than [`PATIENCE`] before it has proved itself; where too many have not,
//! no longer than [`GRACE`], so that strangers hold nobody up who tries again.

use super::handshake::{Handshake, LATE, Proved};
use super::{PATIENCE, Socket};
use crate::error::Error;
use crate::locks::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// The most callers that are heard at once before they have proved themselves; others wait until one
/// of these is through, or the first of them was hung up on.
const MOST_CALLERS: usize = 64;

/// How long a caller has to prove itself while others wait for its place.
const GRACE: Duration = Duration::from_millis(100);

/// How long nobody is heard where the system has no room for one more.
const BREATH: Duration = Duration::from_millis(100);

/// What becomes of those that have proved themselves. Any thread may call these, for several callers at
/// once.
pub(super) trait Host: Sync {
    /// What a caller gave.
    type Gift;

    /// Gives to a caller and takes from it; it is hung up on where nobody is to be heard any more.
    ///
    /// # Errors
    /// Why it is turned away.
    fn greet(&self, proved: &Proved, socket: &Socket) -> Result<Self::Gift, Error>;

    /// Keeps a caller, which nobody hangs up on from here on.
    ///
    /// # Errors
    /// Why it is turned away.
    fn keep(&self, proved: Proved, socket: Socket, gift: Self::Gift) -> Result<(), Error>;

    /// For how long to wait for the next one, until the bell is rung; `None` where no more are to be
    /// heard.
    fn patience(&self) -> Option<Duration>;
}

/// What wakes the thread that hears callers, so that it looks again.
#[derive(Debug)]
pub(super) struct Bell {
    fd: OwnedFd,
    is_over: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> Result<Bell, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let fd = fd.map_err(Error::os("making an eventfd"))?;
        Ok(Bell { fd, is_over: AtomicBool::new(false) })
    }

    pub(super) fn ring(&self) {
        // The only failure is a full counter, and then it is readable already.
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// No more are to be heard.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sleeps until it is rung, somebody calls, or the time is over.
    fn sleep(&self, listener: Option<BorrowedFd<'_>>, most: Duration) {
        let fds = [Some(self.fd.as_fd()), listener].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Interrupted: it is looked at again. What is too long for the system is for ever.
        let _ = poll(&mut fds, Timespec::try_from(most).ok().as_ref());
        // It fails where it was not rung.
        let _ = read(&self.fd, &mut [0; 8]);
    }
}

/// Those that call.
pub(super) struct Callers<'a, H> {
    pub(super) handshake: Handshake<'a>,
    /// Who may.
    pub(super) expected: Range<u32>,
    pub(super) host: &'a H,
    pub(super) bell: &'a Bell,
    /// Those that were not kept yet.
    pub(super) heard: Mutex<Vec<Caller>>,
}

/// One that has called.
#[derive(Debug)]
pub(super) struct Caller {
    /// Another descriptor of its socket.
    socket: Socket,
    since: Instant,
    has_proved: bool,
}

impl Caller {
    fn id(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }

    fn hang_up(&self) {
        // It fails where the other end has gone.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl<H: Host> Callers<'_, H> {
    /// Takes calls until the host has no patience left, or the bell's end.
    pub(super) fn hear_all(&self, listener: BorrowedFd<'_>) {
        scope(|scope| {
            while let Some(most) = self.host.patience().filter(|_| !self.bell.is_over()) {
                let next = self.hang_up_on_strangers();
                self.bell.sleep(self.has_room().then_some(listener), most.min(next));
                while self.has_room() {
                    match accept_with(listener, SocketFlags::CLOEXEC) {
                        Ok(socket) => {
                            let Some((id, socket)) = self.note(socket) else { continue };
                            let hear = move || self.hear(id, socket);
                            if Builder::new().spawn_scoped(scope, hear).is_err() {
                                self.forget(id);
                            }
                        }
                        Err(Errno::AGAIN) => break,
                        Err(Errno::INTR | Errno::CONNABORTED) => {}
                        Err(error) => {
                            log::warn!("a caller can't be heard now: {error}");
                            self.bell.sleep(None, BREATH);
                            break;
                        }
                    }
                }
            }
            lock(&self.heard).iter().for_each(Caller::hang_up);
        });
    }

    /// Whether one more may be heard.
    fn has_room(&self) -> bool {
        lock(&self.heard).iter().filter(|caller| !caller.has_proved).count() < MOST_CALLERS
    }

    /// Hangs up on those that take too long to prove themselves, and on the first of them sooner where
    /// there is no room; returns when that is to be done next.
    fn hang_up_on_strangers(&self) -> Duration {
        let mut most = if self.has_room() { PATIENCE } else { GRACE };
        let mut next = Duration::MAX;
        for caller in lock(&self.heard).iter().filter(|caller| !caller.has_proved) {
            match most.checked_sub(caller.since.elapsed()) {
                Some(left) => next = next.min(left),
                None => caller.hang_up(),
            }
            most = PATIENCE;
        }
        next
    }

    fn note(&self, socket: OwnedFd) -> Option<(RawFd, Socket)> {
        let clone = Socket(socket.try_clone().ok()?);
        let caller = Caller { socket: clone, since: Instant::now(), has_proved: false };
        let id = caller.id();
        lock(&self.heard).push(caller);
        Some((id, Socket(socket)))
    }

    fn forget(&self, id: RawFd) {
        lock(&self.heard).retain(|caller| caller.id() != id);
        self.bell.ring();
    }

    /// Answers a caller.
    fn hear(&self, id: RawFd, socket: Socket) {
        let proved = self.handshake.answer(&socket, &self.expected);
        if proved.is_ok() {
            let mut heard = lock(&self.heard);
            heard.iter_mut().filter(|caller| caller.id() == id).for_each(|c| c.has_proved = true);
            drop(heard);
            self.bell.ring();
        }
        let greeted = proved.and_then(|proved| {
            let gift = self.host.greet(&proved, &socket)?;
            Ok((proved, gift))
        });
        self.forget(id);
        let kept = greeted.and_then(|(proved, gift)| self.host.keep(proved, socket, gift));
        match kept {
            Ok(()) => {}
            // It had no number yet.
            Err(Error::Refused { rank: LATE, why }) => {
                log::warn!("turned a rank away that comes later: {why}");
            }
            Err(error) => log::warn!("turned a caller away: {error}"),
        }
        self.bell.ring();
    }
}
