//! How ranks find each other and prove that they know the key.
//!
//! **Hazard.** Any process that reaches a socket may connect to it, say anything, or nothing.
//! **Guarantee.** Each side has proved to the other that it knows the key, over what both have just
//! chosen at random, before anything is handed over; a stranger holds nobody up. **Structure.** Some
//! ranks listen, and others connect to them, as often as two ranks need sockets. Both say hello; then
//! who was called proves itself first, the caller next, and each hands over what a [`Way`] says.

use crate::config::{Config, choose};
use crate::error::Error;
use hmac::{Hmac, KeyInit, Mac};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};
use sha2::Sha256;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The version of what is said here, of messages, and of what shared memory looks like.
const VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"isometry";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + 5 * 4 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// The longest that it takes a peer to prove itself, or to take a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The longest between two attempts to reach a rank that is not there yet.
const RETRY: Duration = Duration::from_millis(20);

/// The most callers that are heard at once; others wait until one of these is through.
const MOST_CALLERS: usize = 64;

/// How often it is looked whether all is over.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, to, RecvFlags::empty())?.0)
    }
}

impl Write for &Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, from, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is particular to one kind of meeting.
pub(crate) trait Way: Sync {
    /// Tells meetings apart, so that nobody comes to another one.
    const KIND: u32;
    /// How many sockets two ranks are to have.
    const LANES: u32;
    /// What one rank is given by another.
    type Gift: Send;

    /// Connects to a rank.
    fn connect(&self, rank: u32) -> io::Result<OwnedFd>;

    /// Gives to a rank that has proved itself, and takes from it.
    fn exchange(&self, rank: u32, socket: &Socket, is_caller: bool) -> io::Result<Self::Gift>;
}

/// A peer that proved itself.
#[derive(Debug)]
pub(crate) struct Joined<T> {
    pub(crate) socket: Socket,
    pub(crate) gift: T,
}

#[derive(Debug)]
enum Place<T> {
    Free,
    /// By one that is about to give and take.
    Taken,
    Filled(Joined<T>),
}

/// Ranks that are about to join each other.
pub(crate) struct Meeting<'a, W: Way> {
    config: &'a Config,
    way: &'a W,
    /// Who will call this rank.
    callers: Range<u32>,
    end: Instant,
    /// By caller or called rank, and lane.
    places: Mutex<Vec<Place<W::Gift>>>,
    /// Those that have called and not yet proved themselves.
    strangers: Mutex<Vec<Socket>>,
    is_over: AtomicBool,
}

/// Calls ranks, and hears others, which call at `listener`. In the order of ranks and lanes, `None`
/// for those neither called nor heard.
pub(crate) fn meet<W: Way>(
    config: &Config,
    way: &W,
    called: Range<u32>,
    (listener, callers): (Option<BorrowedFd<'_>>, Range<u32>),
) -> Result<Vec<Option<Joined<W::Gift>>>, Error> {
    let others = called.len() + callers.len();
    let meeting = Meeting {
        config,
        way,
        callers,
        end: Instant::now() + config.timeout,
        places: Mutex::new((0..config.size * W::LANES).map(|_| Place::Free).collect()),
        strangers: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let hear = |listener| meeting.hear_all(listener);
    std::thread::scope(|scope| {
        let heard = listener.map(|listener| scope.spawn(move || hear(listener)));
        let lanes = |rank| (0..W::LANES).map(move |lane| (rank, lane));
        let called = called.flat_map(lanes).try_for_each(|place| meeting.call(place));
        if called.is_err() {
            meeting.is_over.store(true, Ordering::Release);
        }
        if let Some(heard) = heard {
            heard.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        called
    })?;
    meeting.finish(others)
}

/// What either side says first.
type Hello = [u8; HELLO_BYTES];

/// A rank, and which of the sockets between it and this one.
type Lane = (u32, u32);

impl<W: Way> Meeting<'_, W> {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Takes calls until all that will call have joined.
    fn hear_all(&self, listener: BorrowedFd<'_>) {
        std::thread::scope(|scope| {
            while !self.is_over() {
                let mut fds = [PollFd::new(&listener, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&TICK));
                while self.strangers().len() < MOST_CALLERS
                    && let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC)
                    && let Ok(clone) = socket.try_clone()
                {
                    let id = clone.as_raw_fd();
                    self.strangers().push(Socket(clone));
                    scope.spawn(move || self.hear(id, Socket(socket)));
                }
            }
            // Whoever has not proved itself by now is a stranger, and would be waited for.
            for socket in self.strangers().drain(..) {
                let _ = shutdown(&socket, Shutdown::Both);
            }
        });
    }

    /// Answers a caller, which is hung up on when all have joined before it has proved itself.
    fn hear(&self, id: RawFd, socket: Socket) {
        let proved = self.answer(&socket);
        self.strangers().retain(|caller| caller.as_fd().as_raw_fd() != id);
        if let Err(error) = proved.and_then(|lane| self.join(lane, socket, false)) {
            log::warn!("turned a caller away: {error}");
        }
    }

    fn strangers(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.strangers.lock().expect("no one panics with it")
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place<W::Gift>>> {
        self.places.lock().expect("no one panics with it")
    }

    fn is_over(&self) -> bool {
        let lanes = |rank: u32| (0..W::LANES).map(move |lane| place((rank, lane), W::LANES));
        let has_all = || {
            let places = self.places();
            self.callers.clone().flat_map(lanes).all(|at| matches!(places[at], Place::Filled(_)))
        };
        self.left().is_zero() || self.is_over.load(Ordering::Acquire) || has_all()
    }

    /// Calls a rank, as soon as it listens.
    fn call(&self, (rank, lane): Lane) -> Result<(), Error> {
        let mut wait = Duration::from_millis(1);
        let socket = loop {
            match self.way.connect(rank) {
                Ok(socket) => break Socket(socket),
                Err(_) if !self.left().is_zero() => std::thread::sleep(wait.min(self.left())),
                Err(_) => return Err(self.missing()),
            }
            wait = (2 * wait).min(RETRY);
        };
        let refused = |why| Error::Refused { rank, why };
        self.be_patient(&socket, PATIENCE)?;
        let ours = self.hello(lane)?;
        let theirs = swap(&socket, &ours)
            .map_err(|_| refused("said nothing: has it joined others already?"))?;
        let (said, _) = self.check(&theirs)?;
        if said != rank {
            return Err(refused("calls itself another rank"));
        }
        let mut proof = [0; PROOF_BYTES];
        let proved = (&socket).read_exact(&mut proof).is_ok();
        if !proved || self.mac(b"called", &ours, &theirs).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        let proof = self.mac(b"caller", &ours, &theirs).finalize().into_bytes();
        let sent = (&socket).write_all(&proof);
        sent.map_err(|_| refused("turned this rank away"))?;
        self.join((rank, lane), socket, true)
    }

    /// Answers a rank, and returns which one it proved to be.
    fn answer(&self, mut socket: &Socket) -> Result<Lane, Error> {
        self.be_patient(socket, PATIENCE)?;
        // Who was called has no lane to say.
        let ours = self.hello(0)?;
        let theirs = swap(socket, &ours).map_err(Error::io("hearing a caller"))?;
        let (rank, lane) = self.check(&theirs)?;
        let refused = |why| Error::Refused { rank, why };
        if !self.callers.contains(&rank) {
            return Err(refused("calls a rank that it should not call"));
        }
        let proof = self.mac(b"called", &theirs, &ours).finalize().into_bytes();
        socket.write_all(&proof).map_err(Error::io("answering a caller"))?;
        let mut proof = [0; PROOF_BYTES];
        socket.read_exact(&mut proof).map_err(|_| refused("did not prove itself"))?;
        if self.mac(b"caller", &theirs, &ours).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        Ok((rank, lane))
    }

    /// Gives to a peer that proved itself, and takes from it, unless it has joined before.
    fn join(&self, lane: Lane, socket: Socket, is_caller: bool) -> Result<(), Error> {
        let (rank, at) = (lane.0, place(lane, W::LANES));
        {
            let place = &mut self.places()[at];
            if !matches!(place, Place::Free) {
                return Err(Error::Refused { rank, why: "has joined already" });
            }
            *place = Place::Taken;
        }
        // It may have to wait for others.
        let exchanged = self.be_patient(&socket, self.config.timeout).and_then(|()| {
            let gift = self.way.exchange(rank, &socket, is_caller);
            let gift = gift.map_err(|e| match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => self.missing(),
                _ => Error::Refused { rank, why: "turned this rank away" },
            })?;
            set_timeouts(&socket, None)?;
            Ok(gift)
        });
        let (filled, result) = match exchanged {
            Ok(gift) => (Place::Filled(Joined { socket, gift }), Ok(())),
            Err(error) => (Place::Free, Err(error)),
        };
        self.places()[at] = filled;
        result
    }

    fn be_patient(&self, socket: &Socket, most: Duration) -> Result<(), Error> {
        set_timeouts(socket, Some(self.left().clamp(Duration::from_millis(1), most)))
    }

    fn hello(&self, lane: u32) -> Result<Hello, Error> {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MAGIC);
        let numbers = [VERSION, W::KIND, self.config.rank, self.config.size, lane];
        for (to, number) in hello[8..28].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        choose(&mut hello[28..])?;
        Ok(hello)
    }

    /// Whom a hello is from.
    fn check(&self, hello: &Hello) -> Result<Lane, Error> {
        let number =
            |at: usize| hello[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let [version, kind, rank, size, lane] = [8, 12, 16, 20, 24].map(number);
        let why = match () {
            () if hello[..8] != MAGIC => "does not speak as a rank does",
            () if version != VERSION => "is of another version",
            () if kind != W::KIND => "comes to another meeting",
            () if size != self.config.size => "counts other ranks",
            () if rank >= size || lane >= W::LANES => "is none of the ranks",
            () => return Ok((rank, lane)),
        };
        Err(Error::Refused { rank, why })
    }

    /// Of what both said, for one role.
    fn mac(&self, role: &[u8; 6], caller: &Hello, called: &Hello) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.config.key);
        let mut mac = mac.expect("keys may be of any length");
        [role.as_slice(), caller, called].into_iter().for_each(|part| mac.update(part));
        mac
    }

    fn missing(&self) -> Error {
        let places = self.places();
        let is_missing = |rank: &u32| {
            let at = place((*rank, 0), W::LANES);
            let lanes = &places[at..at + W::LANES as usize];
            *rank != self.config.rank && !lanes.iter().all(|p| matches!(p, Place::Filled(_)))
        };
        Error::Missing {
            missing: (0..self.config.size).filter(is_missing).collect(),
            size: self.config.size,
            waited: self.config.timeout,
        }
    }

    /// What all gave, if so many ranks did.
    fn finish(self, others: usize) -> Result<Vec<Option<Joined<W::Gift>>>, Error> {
        let filled = self.places().iter().filter(|p| matches!(p, Place::Filled(_))).count();
        if filled < others * W::LANES as usize {
            return Err(self.missing());
        }
        let places = self.places.into_inner().expect("no one panics with it");
        let joined = |place| if let Place::Filled(joined) = place { Some(joined) } else { None };
        Ok(places.into_iter().map(joined).collect())
    }
}

fn place((rank, lane): Lane, lanes: u32) -> usize {
    (rank * lanes + lane) as usize
}

fn swap(mut socket: &Socket, ours: &Hello) -> io::Result<Hello> {
    let mut theirs = [0; HELLO_BYTES];
    socket.write_all(ours)?;
    socket.read_exact(&mut theirs)?;
    Ok(theirs)
}

fn set_timeouts(socket: &Socket, most: Option<Duration>) -> Result<(), Error> {
    let set = set_socket_timeout(socket, Timeout::Recv, most)
        .and_then(|()| set_socket_timeout(socket, Timeout::Send, most));
    set.map_err(Error::os("setting a socket's timeout"))
}
