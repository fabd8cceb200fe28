//! How a rank that comes later is told which one it is, and of whom there is.
//!
//! **Hazard.** Two come at once, and neither hears of the other; or one is told its number, and dies.
//! **Guarantee.** Who was told its number knows of all that have joined before, since rank 0 tells the
//! next one once this one has joined or failed, and no number is told twice. **Structure.** A newcomer
//! says where it listens, is told the rest, and asks whether a rank that it does not reach is still there,
//! until it says that it has joined.

use super::callers::Host;
use super::handshake::{ADMISSION, ELSEWHERE, Handshake, MUTE};
use super::{Lane, PATIENCE, RETRY, Socket, be_patient, is_late, left};
use crate::config::{Config, MOST_RANKS};
use crate::error::Error;
use crate::locks::lock;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What rank 0 says first.
const WELCOME: u32 = 1;
const FULL: u32 = 2;

/// What a newcomer says then.
const IS_THERE: u32 = 1;
const JOINED: u32 = 2;

/// What rank 0 knows of the ranks that there are. Any thread may call these.
pub(crate) trait Members: Send + Sync {
    /// Whether a rank has joined and is not lost, looked at now.
    fn is_there(&self, rank: u32) -> bool;

    /// Hears what a newcomer says of where it listens, which it has said on `socket`.
    ///
    /// # Errors
    /// Where that can't be.
    fn note(&self, rank: u32, socket: &Socket, said: &[u8]) -> io::Result<()>;

    /// Where a rank listens, at most 255 bytes; none where its number says that.
    fn place(&self, rank: u32) -> Vec<u8>;
}

/// What rank 0 tells newcomers.
pub(super) struct Admission<'a, M> {
    config: &'a Config,
    members: &'a M,
    /// The number of the next one. Held until that has joined, or failed.
    next: Mutex<u32>,
}

impl<'a, M: Members> Admission<'a, M> {
    pub(super) fn new(config: &'a Config, members: &'a M) -> Admission<'a, M> {
        Admission { config, members, next: Mutex::new(config.size) }
    }

    fn admit(&self, socket: &Socket) -> io::Result<()> {
        let said = hear_short(socket)?;
        let mut next = lock(&self.next);
        if has_hung_up(socket) {
            // It takes no number.
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let number = *next;
        if number == self.config.capacity {
            return say(socket, [FULL, number]);
        }
        *next += 1;
        let end = Instant::now() + self.config.timeout;
        self.members.note(number, socket, &said)?;
        say(socket, [WELCOME, number])?;
        self.describe(number, socket)?;
        loop {
            be_patient(socket, left(end)).map_err(io::Error::other)?;
            match hear(socket)? {
                [IS_THERE, rank] => say(socket, [self.members.is_there(rank).into()])?,
                [JOINED, _] => return Ok(()),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Says who is there, before a newcomer of that number.
    fn describe(&self, number: u32, mut socket: &Socket) -> io::Result<()> {
        let there: Vec<_> = (0..number).filter(|&rank| self.members.is_there(rank)).collect();
        let Config { size, capacity, .. } = *self.config;
        say(socket, [size, capacity, there.len() as u32])?;
        for rank in there {
            let place = self.members.place(rank);
            say(socket, [rank])?;
            socket.write_all(&[&[place.len() as u8], &place[..]].concat())?;
        }
        Ok(())
    }
}

impl<M: Members> Host for Admission<'_, M> {
    type Gift = ();

    fn greet(&self, _: Lane, socket: &Socket) -> Result<(), Error> {
        self.admit(socket).map_err(Error::io("a rank that came did not join"))
    }

    fn keep(&self, _: Lane, _: Socket, (): ()) -> Result<(), Error> {
        Ok(())
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }
}

/// What a newcomer was told; while this lives, no other is told anything.
#[derive(Debug)]
pub(crate) struct Entry {
    socket: Socket,
    number: u32,
    founders: u32,
    capacity: u32,
    there: BTreeMap<u32, Vec<u8>>,
    end: Instant,
}

/// As a rank that comes later, calls rank 0 by `connect`, says what `own` says of where it listens, and
/// hears the rest.
///
/// # Errors
/// [`Error::Unanswered`], [`Error::Full`], [`Error::Refused`], [`Error::Io`].
pub(crate) fn enter(
    config: &Config,
    connect: impl Fn() -> io::Result<OwnedFd>,
    own: impl FnOnce(&Socket) -> Result<Vec<u8>, Error>,
) -> Result<Entry, Error> {
    let end = Instant::now() + config.timeout;
    let unanswered = || Error::Unanswered { root: config.root.clone(), waited: config.timeout };
    let socket = reach(config, connect, end)?.ok_or_else(unanswered)?;
    let own = own(&socket)?;
    be_patient(&socket, left(end))?;
    let failed = |error: io::Error| if is_late(&error) { unanswered() } else { gone() };
    let said = (&socket).write_all(&[&[own.len() as u8], &own[..]].concat());
    let [kind, number] = said.and_then(|()| hear(&socket)).map_err(failed)?;
    if kind == FULL {
        return Err(Error::Full { capacity: number });
    }
    let [founders, capacity, count] = hear(&socket).map_err(failed)?;
    let mut there = BTreeMap::new();
    for _ in 0..count.min(MOST_RANKS) {
        let [rank] = hear(&socket).map_err(failed)?;
        there.insert(rank, hear_short(&socket).map_err(failed)?);
    }
    let is_right = kind == WELCOME
        && (1..=number).contains(&founders)
        && (number + 1..=MOST_RANKS).contains(&capacity)
        && there.len() == count as usize
        && there.keys().all(|&rank| rank < number);
    if !is_right {
        return Err(Error::Refused { rank: 0, why: "says what no rank says" });
    }
    Ok(Entry { socket, number, founders, capacity, there, end })
}

/// Calls rank 0 until it answers; `None` where it does not in time.
fn reach(
    config: &Config,
    connect: impl Fn() -> io::Result<OwnedFd>,
    end: Instant,
) -> Result<Option<Socket>, Error> {
    let handshake = Handshake { config, kind: ADMISSION, lanes: 1 };
    let mut wait = Duration::from_millis(1);
    loop {
        if let Ok(socket) = connect().map(Socket) {
            be_patient(&socket, PATIENCE.min(left(end)))?;
            match handshake.call(&socket, (0, 0)) {
                Ok(()) => return Ok(Some(socket)),
                // Those that are there at the start may not have met yet.
                Err(Error::Refused { why: MUTE | ELSEWHERE, .. }) => {}
                Err(Error::Refused { why, .. }) => return Err(Error::Refused { rank: 0, why }),
                Err(error) => return Err(error),
            }
        }
        if left(end).is_zero() {
            return Ok(None);
        }
        std::thread::sleep(wait.min(left(end)));
        wait = (2 * wait).min(RETRY);
    }
}

impl Entry {
    /// What to join with, now that it is known.
    pub(crate) fn config(&self, config: &Config) -> Config {
        let Entry { number: rank, founders: size, capacity, .. } = *self;
        Config { rank, size, capacity, timeout: left(self.end), ..config.clone() }
    }

    /// Who is there.
    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> {
        self.there.keys().copied()
    }

    /// Who is there, and where it listens.
    pub(crate) fn places(&self) -> &BTreeMap<u32, Vec<u8>> {
        &self.there
    }

    /// By which rank 0 was reached.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether rank 0 takes `rank` for one that is there.
    ///
    /// # Errors
    /// [`Error::Refused`] where rank 0 does not answer.
    pub(super) fn is_there(&self, rank: u32) -> Result<bool, Error> {
        let heard = be_patient(&self.socket, PATIENCE)
            .and_then(|()| say(&self.socket, [IS_THERE, rank]).map_err(|_| gone()));
        heard.and_then(|()| hear(&self.socket).map_err(|_| gone())).map(|[is_there]| is_there != 0)
    }

    /// Says that this rank has joined.
    ///
    /// # Errors
    /// [`Error::Refused`] where rank 0 has gone.
    pub(crate) fn finish(self) -> Result<(), Error> {
        say(&self.socket, [JOINED, self.number]).map_err(|_| gone())
    }
}

fn gone() -> Error {
    Error::Refused { rank: 0, why: "left, or ended, before this rank had joined" }
}

fn say<const N: usize>(mut socket: &Socket, numbers: [u32; N]) -> io::Result<()> {
    socket.write_all(numbers.map(u32::to_le_bytes).as_flattened())
}

fn hear<const N: usize>(mut socket: &Socket) -> io::Result<[u32; N]> {
    let mut numbers = [[0; 4]; N];
    socket.read_exact(numbers.as_flattened_mut())?;
    Ok(numbers.map(u32::from_le_bytes))
}

/// So few bytes, behind their number.
fn hear_short(mut socket: &Socket) -> io::Result<Vec<u8>> {
    let mut length = [0];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; length[0].into()];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn has_hung_up(socket: &Socket) -> bool {
    let peeked = recv(socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
}
