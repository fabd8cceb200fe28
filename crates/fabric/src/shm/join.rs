//! How processes of one machine find each other, prove that they know the key, and hand over
//! descriptors of their memory.
//!
//! **Hazard.** Any process of the machine may connect to a socket, say anything, or nothing.
//! **Guarantee.** Each side has proved to the other that it knows the key, over what both have just
//! chosen at random, before anything is handed over; a stranger holds nobody up. **Structure.** Rank
//! `r` listens at a name of its own and connects to all below it. Both say hello; then who was called
//! proves itself first, the caller next, and each sends its descriptors. The socket stays open: its
//! end tells of the peer's.

use crate::config::{Config, choose};
use crate::error::Error;
use hmac::{Hmac, KeyInit, Mac};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sha2::Sha256;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The version of what is said here and of what the memory looks like.
const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"isometry";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + 3 * 4 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// The longest that one peer's part takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest between two attempts to reach a rank that is not there yet.
const RETRY: Duration = Duration::from_millis(20);

/// The most callers that are heard at once; others wait until one of these is through.
const MOST_CALLERS: usize = 64;

/// How often it is looked whether all is over.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Its mailbox and its segment.
pub(crate) type Memory<T> = [T; 2];

/// A peer that proved itself.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) socket: UnixStream,
    pub(crate) memory: Memory<OwnedFd>,
}

/// Joins all ranks but this one, to which `memory` is handed; in the order of ranks, `None` for this
/// one.
pub(crate) fn join(
    config: &Config,
    memory: Memory<BorrowedFd<'_>>,
) -> Result<Vec<Option<Joined>>, Error> {
    let name = config.check()?;
    if config.size == 1 {
        return Ok(vec![None]);
    }
    let meeting = Meeting {
        config,
        name,
        memory,
        end: Instant::now() + config.timeout,
        joined: Mutex::new((0..config.size).map(|_| None).collect()),
        callers: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let listener = meeting.listen()?;
    let called = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| meeting.accept_all(&listener));
        let called = (0..config.rank).try_for_each(|rank| meeting.call(rank));
        if called.is_err() {
            meeting.is_over.store(true, Ordering::Release);
        }
        accepted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        called
    });
    called?;
    meeting.finish()
}

struct Meeting<'a> {
    config: &'a Config,
    name: &'a str,
    memory: Memory<BorrowedFd<'a>>,
    end: Instant,
    joined: Mutex<Vec<Option<Joined>>>,
    /// Those that have called and not yet proved themselves.
    callers: Mutex<Vec<UnixStream>>,
    is_over: AtomicBool,
}

/// What either side says first.
type Hello = [u8; HELLO_BYTES];

impl Meeting<'_> {
    fn address(&self, rank: u32) -> Result<SocketAddr, Error> {
        let name = format!("isometry-{}-{rank}", self.name);
        SocketAddr::from_abstract_name(name).map_err(Error::io("naming a socket"))
    }

    fn listen(&self) -> Result<UnixListener, Error> {
        let listener = match UnixListener::bind_addr(&self.address(self.config.rank)?) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                return Err(Error::Refused { rank: self.config.rank, why: "has joined already" });
            }
            bound => bound.map_err(Error::io("listening for ranks"))?,
        };
        listener.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
        Ok(listener)
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Takes calls until all ranks above have joined.
    fn accept_all(&self, listener: &UnixListener) {
        std::thread::scope(|scope| {
            while !self.is_over() {
                let mut fds = [PollFd::new(listener, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&TICK));
                while self.callers().len() < MOST_CALLERS
                    && let Ok((socket, _)) = listener.accept()
                    && let Ok(clone) = socket.try_clone()
                {
                    let id = clone.as_raw_fd();
                    self.callers().push(clone);
                    scope.spawn(move || self.hear(id, socket));
                }
            }
            // Whoever has not proved itself by now is a stranger, and would be waited for.
            for socket in self.callers().drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        });
    }

    /// Answers a caller, which is hung up on when all have joined before it has proved itself.
    fn hear(&self, id: RawFd, socket: UnixStream) {
        let answered = self.answer(socket);
        self.callers().retain(|caller| caller.as_raw_fd() != id);
        if let Err(error) = answered.and_then(|peer| self.keep(peer)) {
            log::warn!("turned a caller away: {error}");
        }
    }

    fn callers(&self) -> MutexGuard<'_, Vec<UnixStream>> {
        self.callers.lock().expect("no one panics with it")
    }

    fn is_over(&self) -> bool {
        self.has_all_above() || self.left().is_zero() || self.is_over.load(Ordering::Acquire)
    }

    fn has_all_above(&self) -> bool {
        let joined = self.joined.lock().expect("no one panics with it");
        joined.iter().skip(self.config.rank as usize + 1).all(Option::is_some)
    }

    /// Calls a rank below.
    fn call(&self, rank: u32) -> Result<(), Error> {
        let address = self.address(rank)?;
        let mut wait = Duration::from_millis(1);
        let mut socket = loop {
            match UnixStream::connect_addr(&address) {
                Ok(socket) => break socket,
                Err(_) if !self.left().is_zero() => std::thread::sleep(wait.min(self.left())),
                Err(_) => return Err(self.missing()),
            }
            wait = (2 * wait).min(RETRY);
        };
        let refused = |why| Error::Refused { rank, why };
        self.be_patient(&socket)?;
        let ours = self.hello()?;
        let theirs = exchange(&mut socket, &ours)
            .map_err(|_| refused("said nothing: has it joined others already?"))?;
        let said = self.check(&theirs)?;
        if said != rank {
            return Err(refused("calls itself another rank"));
        }
        let mut proof = [0; PROOF_BYTES];
        let proved = socket.read_exact(&mut proof).is_ok();
        if !proved || self.mac(b"called", &ours, &theirs).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        let proof = self.mac(b"caller", &ours, &theirs).finalize().into_bytes();
        let sent = socket.write_all(&proof).and_then(|()| give(&socket, self.memory));
        sent.map_err(|_| refused("turned this rank away"))?;
        let memory = take(&socket).map_err(|_| refused("turned this rank away"))?;
        self.keep((rank, Joined { socket, memory }))
    }

    /// Answers a rank above.
    fn answer(&self, mut socket: UnixStream) -> Result<(u32, Joined), Error> {
        self.be_patient(&socket)?;
        let ours = self.hello()?;
        let theirs = exchange(&mut socket, &ours).map_err(Error::io("hearing a caller"))?;
        let rank = self.check(&theirs)?;
        let refused = |why| Error::Refused { rank, why };
        if rank <= self.config.rank {
            return Err(refused("calls a rank above it, or itself"));
        }
        let proof = self.mac(b"called", &theirs, &ours).finalize().into_bytes();
        socket.write_all(&proof).map_err(Error::io("answering a caller"))?;
        let mut proof = [0; PROOF_BYTES];
        socket.read_exact(&mut proof).map_err(|_| refused("did not prove itself"))?;
        if self.mac(b"caller", &theirs, &ours).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        let memory = take(&socket).map_err(Error::io("taking a rank's memory"))?;
        give(&socket, self.memory).map_err(Error::io("giving memory to a rank"))?;
        Ok((rank, Joined { socket, memory }))
    }

    fn be_patient(&self, socket: &UnixStream) -> Result<(), Error> {
        let patience = Some(self.left().clamp(Duration::from_millis(1), PATIENCE));
        let set =
            socket.set_read_timeout(patience).and_then(|()| socket.set_write_timeout(patience));
        set.map_err(Error::io("setting a socket's timeout"))
    }

    fn hello(&self) -> Result<Hello, Error> {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MAGIC);
        let numbers = [VERSION, self.config.rank, self.config.size];
        for (to, number) in hello[8..20].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        choose(&mut hello[20..])?;
        Ok(hello)
    }

    /// The rank that a hello is from.
    fn check(&self, hello: &Hello) -> Result<u32, Error> {
        let number =
            |at: usize| hello[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (version, rank, size) = (number(8), number(12), number(16));
        let why = match () {
            () if hello[..8] != MAGIC => "does not speak as a rank does",
            () if version != VERSION => "is of another version",
            () if size != self.config.size => "counts other ranks",
            () if rank >= size => "is none of the ranks",
            () => return Ok(rank),
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

    fn keep(&self, (rank, peer): (u32, Joined)) -> Result<(), Error> {
        let timeouts = peer.socket.set_read_timeout(None);
        timeouts.map_err(Error::io("setting a socket's timeout"))?;
        let mut joined = self.joined.lock().expect("no one panics with it");
        let place = &mut joined[rank as usize];
        if place.is_some() {
            return Err(Error::Refused { rank, why: "has joined already" });
        }
        *place = Some(peer);
        Ok(())
    }

    fn missing(&self) -> Error {
        let joined = self.joined.lock().expect("no one panics with it");
        let is_missing = |rank: &u32| *rank != self.config.rank && joined[*rank as usize].is_none();
        Error::Missing {
            missing: (0..self.config.size).filter(is_missing).collect(),
            size: self.config.size,
            waited: self.config.timeout,
        }
    }

    fn finish(self) -> Result<Vec<Option<Joined>>, Error> {
        let others = self.config.size as usize - 1;
        let count = self.joined.lock().expect("no one panics with it").iter().flatten().count();
        if count < others {
            return Err(self.missing());
        }
        Ok(self.joined.into_inner().expect("no one panics with it"))
    }
}

fn exchange(socket: &mut UnixStream, ours: &Hello) -> io::Result<Hello> {
    let mut theirs = [0; HELLO_BYTES];
    socket.write_all(ours)?;
    socket.read_exact(&mut theirs)?;
    Ok(theirs)
}

fn give(socket: &UnixStream, memory: Memory<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&memory)), "there is room for two");
    let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

fn take(socket: &UnixStream) -> io::Result<Memory<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    fds.try_into().map_err(|_| ErrorKind::InvalidData.into())
}

/// The descriptors of both.
pub(crate) fn borrowed(memory: &Memory<OwnedFd>) -> Memory<BorrowedFd<'_>> {
    memory.each_ref().map(AsFd::as_fd)
}
