//! How two processes prove to each other that they know the key: both say hello, then who was called
//! proves itself, and the caller next, which then says its name.

use super::{Lane, PATIENCE, Socket, be_patient, hear_short, is_late, say_short};
use crate::config::{CAPACITY, Config, SIZE, choose};
use crate::error::Error;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::ops::Range;

/// The version of what is said here, of messages, and of what shared memory looks like.
const VERSION: u32 = 12;

const MAGIC: [u8; 8] = *b"isometry";
const NUMBERS: usize = 6;
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + NUMBERS * 4 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// The kind of meeting at which a rank that comes later is told which one it is.
pub(super) const ADMISSION: u32 = 4;

/// What such a rank says until then.
pub(super) const LATE: u32 = 1 << 31;

/// Why those are refused that a rank meets before it is its turn, or in a crowd of strangers.
pub(super) const MUTE: &str = "said nothing: has it joined others already?";
pub(super) const HUNG_UP: &str =
    "hung up before it had proved itself: has it joined others already?";
pub(super) const ELSEWHERE: &str = "comes to another meeting";

/// What either side says first.
type Hello = [u8; HELLO_BYTES];

/// Who has called and proved itself.
#[derive(Debug)]
pub(super) struct Proved {
    pub(super) lane: Lane,
    /// Empty where it has none.
    pub(super) name: Vec<u8>,
}

/// What a rank says of itself at one kind of meeting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake<'a> {
    pub(super) config: &'a Config,
    pub(super) kind: u32,
    pub(super) lanes: u32,
}

impl Handshake<'_> {
    /// As who has called `rank`; the socket has a timeout already.
    pub(super) fn call(&self, mut socket: &Socket, (rank, lane): Lane) -> Result<(), Error> {
        let refused = |why| Error::Refused { rank, why };
        let failed = |error| refused(if is_late(&error) { MUTE } else { HUNG_UP });
        let ours = self.hello(lane)?;
        let theirs = swap(socket, &ours).map_err(failed)?;
        let (said, _) = self.check(&theirs)?;
        if said != rank {
            return Err(refused("calls itself another rank"));
        }
        let mut proof = [0; PROOF_BYTES];
        socket.read_exact(&mut proof).map_err(failed)?;
        if self.mac(b"called", &ours, &theirs).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        let proof = self.mac(b"caller", &ours, &theirs).finalize().into_bytes();
        let name = self.config.name.as_deref().unwrap_or_default();
        let said = socket.write_all(&proof).and_then(|()| say_short(socket, name.as_bytes()));
        said.map_err(failed)
    }

    /// As who was called, by one of `callers`; returns which one it proved to be.
    pub(super) fn answer(
        &self,
        mut socket: &Socket,
        callers: &Range<u32>,
    ) -> Result<Proved, Error> {
        be_patient(socket, PATIENCE)?;
        // Who was called has no lane to say.
        let ours = self.hello(0)?;
        let theirs = swap(socket, &ours).map_err(Error::io("hearing a caller"))?;
        let (rank, lane) = self.check(&theirs)?;
        let refused = |why| Error::Refused { rank, why };
        if !callers.contains(&rank) {
            return Err(refused("calls a rank that it should not call"));
        }
        let proof = self.mac(b"called", &theirs, &ours).finalize().into_bytes();
        socket.write_all(&proof).map_err(Error::io("answering a caller"))?;
        let mut proof = [0; PROOF_BYTES];
        socket.read_exact(&mut proof).map_err(|_| refused("did not prove itself"))?;
        if self.mac(b"caller", &theirs, &ours).verify_slice(&proof).is_err() {
            return Err(refused("does not have this cluster's key"));
        }
        let name = hear_short(socket).map_err(|_| refused("did not say its name"))?;
        Ok(Proved { lane: (rank, lane), name })
    }

    fn hello(&self, lane: u32) -> Result<Hello, Error> {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MAGIC);
        let Config { rank, size, capacity, is_late, .. } = *self.config;
        let [rank, size, capacity] = match self.kind {
            ADMISSION if is_late => [LATE, 0, 0],
            _ => [rank, size, capacity],
        };
        let numbers = [VERSION, self.kind, rank, size, lane, capacity];
        for (to, number) in hello[8..32].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        choose(&mut hello[32..])?;
        Ok(hello)
    }

    /// Whom a hello is from.
    fn check(&self, hello: &Hello) -> Result<Lane, Error> {
        let number =
            |at: usize| hello[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let [version, kind, rank, size, lane, capacity] = [8, 12, 16, 20, 24, 28].map(number);
        // Who comes later has yet to be told.
        let is_told = self.kind != ADMISSION;
        let refused = |why| Err(Error::Refused { rank, why });
        let disagree = |name, theirs, ours| Err(Error::Disagreement { rank, name, theirs, ours });
        let Config { size: our_size, capacity: our_capacity, .. } = *self.config;
        match () {
            () if hello[..8] != MAGIC => refused("does not speak as a rank does"),
            () if version != VERSION => refused("is of another version"),
            () if kind != self.kind => refused(ELSEWHERE),
            () if is_told && size != our_size => disagree(SIZE, size, our_size),
            () if is_told && capacity != our_capacity => disagree(CAPACITY, capacity, our_capacity),
            () if is_told && rank >= capacity || lane >= self.lanes => {
                refused("is none of the ranks")
            }
            () => Ok((rank, lane)),
        }
    }

    /// Of what both said, for one role.
    fn mac(&self, role: &[u8; 6], caller: &Hello, called: &Hello) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.config.key);
        let mut mac = mac.expect("keys may be of any length");
        [role.as_slice(), caller, called].into_iter().for_each(|part| mac.update(part));
        mac
    }
}

fn swap(mut socket: &Socket, ours: &Hello) -> io::Result<Hello> {
    let mut theirs = [0; HELLO_BYTES];
    socket.write_all(ours)?;
    socket.read_exact(&mut theirs)?;
    Ok(theirs)
}
