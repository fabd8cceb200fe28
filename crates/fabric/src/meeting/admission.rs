//! How a rank that comes later is told which one it is, and of whom there is.
//!
//! **Hazard.** Two come at once, and neither hears of the other; or one is told its number, and dies.
//! **Guarantee.** Who has joined knows of all that have joined before: rank 0 tells the next one its number
//! once this one has joined or failed, and nobody has joined before rank 0 has said that it heard so. No
//! rank is called by two that have the same number. **Structure.** A newcomer says how long it has and where
//! it listens, and is told the rest. It says that it calls others from now on, asks
//! whether a rank that it does not reach is still there, and says that it has joined.

use super::callers::Host;
use super::handshake::{ADMISSION, ELSEWHERE, HUNG_UP, Handshake, MUTE, Proved};
use super::{
    Names, PATIENCE, RETRY, Socket, be_patient, hear_short, is_late, left, patience, say_short,
};
use crate::config::{Config, MOST_RANKS};
use crate::error::Error;
use crate::locks::lock;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What rank 0 says first.
const WELCOME: u32 = 1;
const FULL: u32 = 2;
const TAKEN: u32 = 3;

/// What a newcomer says then, and is answered.
const IS_THERE: u32 = 1;
const JOINED: u32 = 2;
const CALLS: u32 = 3;

/// The longest that one newcomer has others wait, however long it would take itself.
const LONGEST: Duration = Duration::from_secs(600);

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
    /// Held until the last one has joined, or failed.
    given: Mutex<Given>,
}

/// What newcomers were given.
struct Given {
    /// The number of the next one.
    next: u32,
    /// The names of all that are there or were, empty where they have none.
    names: Names,
}

/// What a newcomer says of itself.
struct Said {
    /// Until when it waits.
    end: Instant,
    place: Vec<u8>,
}

impl<'a, M: Members> Admission<'a, M> {
    /// With the names of the others that were there at the start.
    pub(super) fn new(config: &'a Config, members: &'a M, mut names: Names) -> Admission<'a, M> {
        names.insert(config.rank, config.name.clone().unwrap_or_default().into_bytes());
        Admission { config, members, given: Mutex::new(Given { next: config.size, names }) }
    }

    fn admit(&self, name: &[u8], socket: &Socket) -> io::Result<()> {
        let said = Said::hear(socket)?;
        let mut given = lock(&self.given);
        if socket.has_spoken() {
            // It has given up, and takes no number.
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let number = given.next;
        if number == self.config.capacity {
            return say(socket, [FULL, number]);
        }
        if let Some(rank) = self.named(&given, name) {
            return say(socket, [TAKEN, rank]);
        }
        self.members.note(number, socket, &said.place)?;
        given.names.insert(number, name.to_vec());
        let (mut calls, end) = (false, said.end.min(Instant::now() + LONGEST));
        let joined = self.attend(number, (socket, end), &mut calls);
        if calls {
            given.next += 1;
        }
        joined
    }

    /// Which of the ranks that are there has this name.
    fn named(&self, given: &Given, name: &[u8]) -> Option<u32> {
        let mut names = given.names.iter().filter(|(_, has)| !has.is_empty() && *has == name);
        names.find(|(rank, _)| self.members.is_there(**rank)).map(|(rank, _)| *rank)
    }

    /// Answers a newcomer until it has joined; says whether others may have heard of its number.
    fn attend(
        &self,
        number: u32,
        (socket, end): (&Socket, Instant),
        calls: &mut bool,
    ) -> io::Result<()> {
        say(socket, [WELCOME, number])?;
        self.describe(number, socket)?;
        while !left(end).is_zero() {
            be_patient(socket, left(end)).map_err(io::Error::other)?;
            match hear(socket)? {
                [CALLS, _] => {
                    *calls = true;
                    say(socket, [number])?;
                }
                [IS_THERE, rank] => say(socket, [self.members.is_there(rank).into()])?,
                [JOINED, _] => return say(socket, [number]),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Says who is there, before a newcomer of that number.
    fn describe(&self, number: u32, socket: &Socket) -> io::Result<()> {
        let there: Vec<_> = (0..number).filter(|&rank| self.members.is_there(rank)).collect();
        let Config { size, capacity, .. } = *self.config;
        say(socket, [size, capacity, there.len() as u32])?;
        for rank in there {
            say(socket, [rank])?;
            say_short(socket, &self.members.place(rank))?;
        }
        Ok(())
    }
}

impl Said {
    fn hear(socket: &Socket) -> io::Result<Said> {
        let [most_ms] = hear(socket)?;
        let end = Instant::now() + Duration::from_millis(most_ms.into());
        Ok(Said { end, place: hear_short(socket)? })
    }
}

impl<M: Members> Host for Admission<'_, M> {
    type Gift = ();

    fn greet(&self, proved: &Proved, socket: &Socket) -> Result<(), Error> {
        self.admit(&proved.name, socket).map_err(Error::io("a rank that came did not join"))
    }

    fn keep(&self, _: Proved, _: Socket, (): ()) -> Result<(), Error> {
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
/// [`Error::Unanswered`], [`Error::Busy`], [`Error::Full`], [`Error::NameTaken`], [`Error::Refused`],
/// [`Error::Io`].
pub(crate) fn enter(
    config: &Config,
    connect: impl Fn(Duration) -> io::Result<OwnedFd>,
    own: impl FnOnce(&Socket) -> Result<Vec<u8>, Error>,
) -> Result<Entry, Error> {
    let end = Instant::now() + config.timeout;
    let waited = config.timeout;
    let unanswered = || Error::Unanswered { root: config.root.clone(), waited };
    let socket = reach(config, connect, end)?.ok_or_else(unanswered)?;
    let own = own(&socket)?;
    be_patient(&socket, left(end))?;
    let failed = |error: io::Error| if is_late(&error) { Error::Busy { waited } } else { gone() };
    introduce(&socket, end, &own).map_err(failed)?;
    let [kind, number] = hear(&socket).map_err(failed)?;
    match (kind, &config.name) {
        (FULL, _) => return Err(Error::Full { capacity: number }),
        (TAKEN, Some(name)) => return Err(Error::NameTaken { name: name.clone(), rank: number }),
        _ => {}
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

/// Says until when this rank waits, and where it listens.
fn introduce(socket: &Socket, end: Instant, own: &[u8]) -> io::Result<()> {
    say(socket, [u32::try_from(left(end).as_millis()).unwrap_or(u32::MAX)])?;
    say_short(socket, own)
}

/// Calls rank 0 until it answers; `None` where it does not in time.
fn reach(
    config: &Config,
    connect: impl Fn(Duration) -> io::Result<OwnedFd>,
    end: Instant,
) -> Result<Option<Socket>, Error> {
    let handshake = Handshake { config, kind: ADMISSION, lanes: 1 };
    let mut wait = Duration::from_millis(1);
    loop {
        if let Ok(socket) = connect(patience(end)).map(Socket) {
            be_patient(&socket, patience(end))?;
            match handshake.call(&socket, (0, 0)) {
                Ok(()) => return Ok(Some(socket)),
                // Those that are there at the start may not have met yet, or strangers crowd the door.
                Err(Error::Refused { why: MUTE | HUNG_UP | ELSEWHERE, .. }) => {}
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

    /// Says that this rank calls others from now on, and returns once rank 0 gives its number to nobody
    /// else, whatever becomes of this rank.
    ///
    /// # Errors
    /// As [`Entry::finish`].
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.ask([CALLS, self.number], left(self.end)).map(drop)
    }

    /// Whether rank 0 takes `rank` for one that is there.
    ///
    /// # Errors
    /// [`Error::Refused`] where rank 0 does not answer.
    pub(super) fn is_there(&self, rank: u32) -> Result<bool, Error> {
        self.ask([IS_THERE, rank], PATIENCE).map(|is_there| is_there != 0)
    }

    /// Says that this rank has joined, and returns once rank 0 tells the next ones so.
    ///
    /// # Errors
    /// [`Error::Refused`] where rank 0 has gone, no longer waits for this rank, or does not answer in time.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.ask([JOINED, self.number], left(self.end)).map(drop)
    }

    fn ask(&self, question: [u32; 2], most: Duration) -> Result<u32, Error> {
        be_patient(&self.socket, most)?;
        let answer = say(&self.socket, question).and_then(|()| hear(&self.socket));
        answer.map(|[answer]| answer).map_err(|_| gone())
    }
}

fn gone() -> Error {
    let why =
        "did not answer until this rank had joined: it left, ended or stopped, or waits no longer";
    Error::Refused { rank: 0, why }
}

fn say<const N: usize>(mut socket: &Socket, numbers: [u32; N]) -> io::Result<()> {
    socket.write_all(numbers.map(u32::to_le_bytes).as_flattened())
}

fn hear<const N: usize>(mut socket: &Socket) -> io::Result<[u32; N]> {
    let mut numbers = [[0; 4]; N];
    socket.read_exact(numbers.as_flattened_mut())?;
    Ok(numbers.map(u32::from_le_bytes))
}
