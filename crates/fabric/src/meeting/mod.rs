//! How ranks find each other and prove that they know the key.
//!
//! **Hazard.** Any process that reaches a socket may connect to it, say anything, or nothing.
//! **Guarantee.** Each side has proved to the other that it knows the key, over what both have just
//! chosen at random, before anything is handed over; a stranger holds nobody up. **Structure.** Some
//! ranks listen, and others connect to them, as often as two ranks need sockets. Both say hello and prove
//! themselves ([`handshake`]), and each hands over what a [`Way`] says. Those that are there at the start
//! [`meet`]. Who comes later is told by rank 0 which one it is and who is there ([`admission`]), and
//! calls all of these ([`call_there`]), each of which hears it by a thread that sleeps else ([`door`]).

mod admission;
mod callers;
mod door;
mod handshake;
mod places;
#[cfg(test)]
mod tests;

pub(crate) use admission::{Entry, Members, enter};
pub(crate) use door::Door;

use crate::config::Config;
use crate::error::Error;
use callers::{Bell, Callers, Host};
use handshake::{HUNG_UP, Handshake, MUTE, Proved};
use places::Places;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest that it takes a peer to prove itself, or to take a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The longest between two attempts to reach a rank that is not there yet.
const RETRY: Duration = Duration::from_millis(20);

/// What a rank says on the last socket to one that came later and that it reaches from now on.
const ADMITTED: u8 = b'A';

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) OwnedFd);

impl Socket {
    /// Whether its other end has said something that was not heard yet, or hung up.
    fn has_spoken(&self) -> bool {
        let peeked = recv(&self.0, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Waits for that, no longer than until `end`.
    fn has_spoken_by(&self, end: Instant) -> bool {
        while !self.has_spoken() && !left(end).is_zero() {
            // Interrupted or over: it is looked at again.
            let most = Timespec::try_from(left(end)).ok();
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], most.as_ref());
        }
        self.has_spoken()
    }
}

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

    /// Connects to a rank, within so much time: one that is stopped may have no room for a caller.
    fn connect(&self, rank: u32, most: Duration) -> io::Result<OwnedFd>;

    /// Gives to a rank that has proved itself, and takes from it.
    fn exchange(&self, rank: u32, socket: &Socket, is_caller: bool) -> io::Result<Self::Gift>;
}

/// A peer that proved itself.
#[derive(Debug)]
pub(crate) struct Joined<T> {
    pub(crate) socket: Socket,
    pub(crate) gift: T,
    /// What it said that it is called, where it was the one that called.
    pub(crate) name: Vec<u8>,
}

/// By rank, what its sockets are and gave, in the order of lanes.
pub(crate) type Met<T> = BTreeMap<u32, Vec<Joined<T>>>;

/// By rank, what it is called, empty where it has no name.
pub(crate) type Names = BTreeMap<u32, Vec<u8>>;

/// The names of those that have called.
pub(crate) fn names<T>(met: &Met<T>) -> Names {
    let name = |lanes: &Vec<Joined<T>>| Some(lanes.first()?.name.clone());
    met.iter().filter_map(|(&rank, lanes)| Some((rank, name(lanes)?))).collect()
}

/// A rank, and which of the sockets between it and this one.
type Lane = (u32, u32);

/// Calls ranks, and hears others, which call at `listener`, until all are there.
pub(crate) fn meet<W: Way>(
    config: &Config,
    way: &W,
    called: Range<u32>,
    (listener, callers): (Option<BorrowedFd<'_>>, Range<u32>),
) -> Result<Met<W::Gift>, Error> {
    let calls = Calls::new(config, way);
    let bell = Bell::new()?;
    let host =
        Founders { way, end: calls.end, callers: callers.clone(), places: Places::new(W::LANES) };
    let handshake = calls.handshake();
    let expected = callers.clone();
    let heard = Callers { handshake, expected, host: &host, bell: &bell, heard: Mutex::default() };
    let mut met = Met::new();
    let done = std::thread::scope(|scope| {
        let hearing = listener.map(|listener| {
            let heard = &heard;
            scope.spawn(move || heard.hear_all(listener))
        });
        let done = called.clone().try_for_each(|rank| {
            met.insert(rank, calls.call_all(rank, None)?);
            Ok(())
        });
        if done.is_err() {
            bell.end();
        }
        if let Some(hearing) = hearing {
            hearing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        done
    });
    met.extend(host.places.into_full());
    let missing: Vec<_> = called.chain(callers).filter(|rank| !met.contains_key(rank)).collect();
    match done {
        Err(error) if !matches!(error, Error::Missing { .. }) => Err(error),
        _ if missing.is_empty() => Ok(met),
        _ => Err(Error::Missing { missing, size: config.size, waited: config.timeout }),
    }
}

/// As a rank that comes later, calls all that there are as rank 0 says by `entry`, but for those that
/// are lost meanwhile; returns when each reaches this rank, or, before it costs a number, one says nothing.
pub(crate) fn call_there<W: Way>(
    config: &Config,
    way: &W,
    entry: &Entry,
) -> Result<Met<W::Gift>, Error> {
    let calls = Calls { entry: Some(entry), ..Calls::new(config, way) };
    let mut knocked = calls.knock(entry)?;
    entry.begin()?;
    let mut met = Met::new();
    for rank in entry.ranks() {
        match calls
            .call_all(rank, knocked.remove(&rank))
            .and_then(|lanes| calls.until_admitted(rank, lanes))
        {
            Ok(lanes) => _ = met.insert(rank, lanes),
            Err(_) if calls.is_soon_lost(entry, rank)? => {}
            Err(error) => return Err(error),
        }
    }
    Ok(met)
}

/// How a rank calls others.
struct Calls<'a, W> {
    config: &'a Config,
    way: &'a W,
    end: Instant,
    /// Of a rank that comes later.
    entry: Option<&'a Entry>,
}

impl<'a, W: Way> Calls<'a, W> {
    fn new(config: &'a Config, way: &'a W) -> Calls<'a, W> {
        Calls { config, way, end: Instant::now() + config.timeout, entry: None }
    }

    fn handshake(&self) -> Handshake<'a> {
        Handshake { config: self.config, kind: W::KIND, lanes: W::LANES }
    }

    fn left(&self) -> Duration {
        left(self.end)
    }

    /// Connects to all that there are, as far as they are reached, and waits until each has said hello, which
    /// one that is stopped does not, or has no room to.
    fn knock(&self, entry: &Entry) -> Result<BTreeMap<u32, Socket>, Error> {
        let check_gone = |rank| match entry.is_there(rank)? {
            true => Err(self.silent(rank)),
            false => Ok(()),
        };
        let mut knocked = BTreeMap::new();
        for rank in entry.ranks() {
            match self.way.connect(rank, patience(self.end)) {
                Ok(socket) => _ = knocked.insert(rank, Socket(socket)),
                Err(error) if is_late(&error) => check_gone(rank)?,
                Err(_) => {}
            }
        }
        let end = Instant::now() + patience(self.end);
        let mute = knocked.iter().filter(|(_, socket)| !socket.has_spoken_by(end));
        mute.map(|(&rank, _)| rank).try_for_each(check_gone)?;
        Ok(knocked)
    }

    /// By `knocked` first, if that is there.
    fn call_all(
        &self,
        rank: u32,
        mut knocked: Option<Socket>,
    ) -> Result<Vec<Joined<W::Gift>>, Error> {
        (0..W::LANES).map(|lane| self.call((rank, lane), &mut knocked)).collect()
    }

    fn call(&self, lane: Lane, knocked: &mut Option<Socket>) -> Result<Joined<W::Gift>, Error> {
        let rank = lane.0;
        let socket = self.reach(lane, knocked)?;
        let gift = exchange(self.way, (rank, self.patience()), &socket, true);
        let gift = gift.map_err(|error| self.refusal(rank, &error))?;
        Ok(Joined { socket, gift, name: Vec::new() })
    }

    /// Connects to a rank, as soon as it listens, and proves itself.
    fn reach(&self, (rank, lane): Lane, knocked: &mut Option<Socket>) -> Result<Socket, Error> {
        let mut wait = Duration::from_millis(1);
        let mut refusal = None;
        loop {
            match self.prove((rank, lane), knocked.take()) {
                Ok(socket) => return Ok(socket),
                Err(Error::Missing { .. }) => {}
                // Strangers may crowd it; or it has not met all others yet, and hears only these.
                Err(error @ Error::Refused { why: MUTE | HUNG_UP, .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
            let is_there = self.entry.map_or(Ok(true), |entry| entry.is_there(rank))?;
            if self.left().is_zero() || !is_there {
                return Err(refusal.unwrap_or_else(|| self.missing(rank)));
            }
            std::thread::sleep(wait.min(self.left()));
            wait = (2 * wait).min(RETRY);
        }
    }

    /// Connects to a rank, unless `socket` is to it, and proves itself.
    fn prove(&self, (rank, lane): Lane, socket: Option<Socket>) -> Result<Socket, Error> {
        let connect = || self.way.connect(rank, patience(self.end)).map(Socket);
        let failed = |error| if is_late(&error) { self.silent(rank) } else { self.missing(rank) };
        let socket = socket.map_or_else(connect, Ok).map_err(failed)?;
        be_patient(&socket, patience(self.end))?;
        match self.handshake().call(&socket, (rank, lane)) {
            Err(Error::Refused { why: MUTE, .. }) if self.entry.is_some() => Err(self.silent(rank)),
            proved => proved.map(|()| socket),
        }
    }

    /// Waits until `rank` reaches this one.
    fn until_admitted(
        &self,
        rank: u32,
        lanes: Vec<Joined<W::Gift>>,
    ) -> Result<Vec<Joined<W::Gift>>, Error> {
        if let Some(Joined { socket, .. }) = lanes.last() {
            be_patient(socket, self.patience())?;
            let mut said = [0];
            let read = (&mut &*socket).read_exact(&mut said);
            read.map_err(|error| self.refusal(rank, &error))?;
            if said != [ADMITTED] {
                return Err(Error::Refused { rank, why: "says what no rank says" });
            }
            set_timeouts(socket, None)?;
        }
        Ok(lanes)
    }

    /// Whether rank 0 takes `rank` for lost, which may take a while.
    fn is_soon_lost(&self, entry: &Entry, rank: u32) -> Result<bool, Error> {
        let end = self.end.min(Instant::now() + PATIENCE);
        loop {
            match entry.is_there(rank)? {
                true if left(end).is_zero() => return Ok(false),
                true => std::thread::sleep(RETRY),
                false => return Ok(true),
            }
        }
    }

    fn refusal(&self, rank: u32, error: &io::Error) -> Error {
        if is_late(error) { self.silent(rank) } else { turned_away(rank) }
    }

    /// How long a rank has to give and take, and to let this one in: those that meet at the start may wait for
    /// others.
    fn patience(&self) -> Duration {
        self.entry.map_or_else(|| self.left(), |_| patience(self.end))
    }

    /// That a rank said nothing for so long.
    fn silent(&self, rank: u32) -> Error {
        let waited = PATIENCE.min(self.config.timeout);
        self.entry.map_or_else(|| self.missing(rank), |_| Error::Unresponsive { rank, waited })
    }

    fn missing(&self, rank: u32) -> Error {
        let Config { rank: own, size, timeout, .. } = *self.config;
        Error::Missing { missing: vec![rank], size: size.max(own), waited: timeout }
    }
}

/// The ranks that are there at the start, as they are heard.
struct Founders<'a, W: Way> {
    way: &'a W,
    end: Instant,
    callers: Range<u32>,
    places: Places<W::Gift>,
}

impl<W: Way> Host for Founders<'_, W> {
    type Gift = W::Gift;

    fn greet(&self, proved: &Proved, socket: &Socket) -> Result<W::Gift, Error> {
        // It may have to wait for others.
        greet(self.way, &self.places, (proved.lane, left(self.end)), socket)
    }

    fn keep(&self, proved: Proved, socket: Socket, gift: W::Gift) -> Result<(), Error> {
        self.places.fill(proved.lane, Joined { socket, gift, name: proved.name });
        Ok(())
    }

    fn patience(&self) -> Option<Duration> {
        let is_over = self.callers.clone().all(|rank| self.places.is_full(rank));
        Some(left(self.end)).filter(|left| !is_over && !left.is_zero())
    }
}

/// Takes a place for a caller, and gives and takes.
fn greet<W: Way>(
    way: &W,
    places: &Places<W::Gift>,
    (lane, most): (Lane, Duration),
    socket: &Socket,
) -> Result<W::Gift, Error> {
    places.take(lane)?;
    exchange(way, (lane.0, most), socket, false).map_err(|_| {
        places.free(lane);
        turned_away(lane.0)
    })
}

/// Gives to a rank that has proved itself, and takes from it.
fn exchange<W: Way>(
    way: &W,
    (rank, most): (u32, Duration),
    socket: &Socket,
    is_caller: bool,
) -> io::Result<W::Gift> {
    let set = |most| set_timeouts(socket, most).map_err(io::Error::other);
    set(Some(most))?;
    let gift = way.exchange(rank, socket, is_caller)?;
    set(None)?;
    Ok(gift)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn turned_away(rank: u32) -> Error {
    Error::Refused { rank, why: "turned this rank away" }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// How long one step may take that is over at `end`.
fn patience(end: Instant) -> Duration {
    // None at all would be for ever.
    left(end).clamp(Duration::from_millis(1), PATIENCE)
}

fn be_patient(socket: &Socket, most: Duration) -> Result<(), Error> {
    set_timeouts(socket, Some(most))
}

/// So few bytes, behind their number.
fn say_short(mut socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    debug_assert!(bytes.len() <= u8::MAX.into(), "their number is one byte");
    socket.write_all(&[&[bytes.len() as u8], bytes].concat())
}

fn hear_short(mut socket: &Socket) -> io::Result<Vec<u8>> {
    let mut length = [0];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; length[0].into()];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn set_timeouts(socket: &Socket, most: Option<Duration>) -> Result<(), Error> {
    // None at all would be for ever.
    let most = most.map(|most| most.max(Duration::from_millis(1)));
    let set = set_socket_timeout(socket, Timeout::Recv, most)
        .and_then(|()| set_socket_timeout(socket, Timeout::Send, most));
    set.map_err(Error::os("setting a socket's timeout"))
}
