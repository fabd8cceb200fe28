//! Processes of one machine, by shared memory.
//!
//! Each rank has a mailbox that all map: a bell, and two rings from every rank. A sender
//! writes its ring and rings the bell if the receiver sleeps. Each rank also has a segment, which all
//! map. A socket to every peer ends when the peer does, and a thread that sleeps on these sees it.

mod bell;
#[cfg(test)]
mod checked;
mod join;
mod ring;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

/// What rings and bells synchronise with. A test compiles the same files against shuttle's.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use crate::conduit::{Capabilities, Conduit, Lost, QUEUES, Queue, Refusal};
use crate::config::{Config, ROOT, Root};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use crate::meeting::Socket;
use crate::message::{Copied, MOST_BYTES, Message};
use crate::segment::Segment;
use crate::standing::Standing;
use bell::Futex;
use model::NodeId;
use ring::{Found, LINE_WORDS, LINES, RING_WORDS, Reader, Refused, Words, Writer};
use rustix::event::Timespec;
use rustix::thread::futex;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use watch::{BYE, Watch};

/// The words before the rings: a line that the bell has for itself.
const BELL_WORDS: usize = LINE_WORDS;

/// Longer than a thread takes to wake.
const SPIN: Duration = Duration::from_micros(50);

/// The most messages that one call takes of each peer's queue.
const BATCH: usize = 32;

/// Processes of one machine.
#[derive(Debug)]
pub struct Shm {
    shared: Arc<Shared>,
    /// To each peer, `None` for this rank.
    sockets: Vec<Option<Socket>>,
    _watch: Watch,
}

#[derive(Debug)]
struct Shared {
    rank: u32,
    peers: Vec<Peer>,
    /// What reads the rings in this rank's mailbox, by queue and sender.
    inboxes: [Mutex<Inbox>; 2],
}

#[derive(Debug)]
struct Peer {
    mailbox: Segment,
    segment: Segment,
    /// By queue.
    writers: [Mutex<Writer>; 2],
    standing: Standing,
}

#[derive(Debug)]
struct Inbox {
    readers: Vec<Reader>,
    copied: Copied,
}

impl Shm {
    /// Joins the ranks that `config` speaks of; returns when all have.
    ///
    /// # Errors
    /// [`Error::Config`] for what can't be; [`Error::Missing`] where not all join in time;
    /// [`Error::Refused`] where this rank, or another, has another key, version or number of ranks,
    /// or has joined already; [`Error::Io`].
    pub fn join(config: &Config) -> Result<Shm, Error> {
        let Root::Local(name) = config.check()? else {
            let why = format!("`{}` is no meeting place of one machine", config.root);
            return Err(Error::Config { name: ROOT, why });
        };
        let size = config.size as usize;
        let words = BELL_WORDS + size * QUEUES.len() * RING_WORDS;
        let (mailbox, mailbox_fd) = Segment::create(8 * words as u64)?;
        let (segment, segment_fd) = Segment::create(config.segment_bytes)?;
        let memory = [mailbox_fd, segment_fd];
        let joined = join::join(config, name, join::borrowed(&memory))?;
        let mut sockets = Vec::with_capacity(size);
        let mut own = Some([mailbox, segment]);
        let mut peers = Vec::with_capacity(size);
        for (rank, peer) in (0..).zip(joined) {
            let (memory, socket) = match peer {
                Some(peer) => (mapped(rank, &peer.gift)?, Some(peer.socket)),
                None => (own.take().expect("one rank is this one"), None),
            };
            let [mailbox, segment] = memory;
            if mailbox.bytes() != 8 * words as u64 {
                return Err(Error::Refused { rank, why: "its mailbox is of another size" });
            }
            let (writers, standing) = (Default::default(), Standing::default());
            peers.push(Peer { mailbox, segment, writers, standing });
            sockets.push(socket);
        }
        let readers = || (0..size).map(|_| Reader::default()).collect();
        let inbox = || Mutex::new(Inbox { readers: readers(), copied: Copied::new() });
        let inboxes = QUEUES.map(|_| inbox());
        let shared = Arc::new(Shared { rank: config.rank, peers, inboxes });
        let watched = sockets.iter().map(|s| s.as_ref().map(|s| s.0.try_clone()).transpose());
        let watched: Result<Vec<_>, _> = watched.collect();
        let watched = watched.map_err(Error::io("watching peers"))?;
        let theirs = Arc::clone(&shared);
        let watch = Watch::over(watched, move |peer, left| {
            theirs.lose(peer, if left { Lost::Left } else { Lost::Died });
        })?;
        Ok(Shm { shared, sockets, _watch: watch })
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.leave();
    }
}

fn mapped(rank: u32, memory: &[OwnedFd; 2]) -> Result<[Segment; 2], Error> {
    let map = |fd: &OwnedFd| match Segment::map(fd) {
        Err(Error::Refused { why, .. }) => Err(Error::Refused { rank, why }),
        mapped => mapped,
    };
    Ok([map(&memory[0])?, map(&memory[1])?])
}

impl Shared {
    fn me(&self) -> &Peer {
        &self.peers[self.rank as usize]
    }

    /// The ring in the mailbox of `to` that `from` writes.
    fn ring(&self, to: usize, from: usize, queue: Queue) -> Words<'_> {
        let start = BELL_WORDS + (from * QUEUES.len() + queue as usize) * RING_WORDS;
        Words(&self.peers[to].mailbox.words()[start..start + RING_WORDS])
    }

    fn lose(&self, peer: usize, why: Lost) {
        if self.peers[peer].standing.lose(why) {
            self.me().wake();
        }
    }

    fn is_ready(&self, queue: Queue) -> bool {
        // Whoever has it may have looked before something came.
        let Some(inbox) = try_lock(&self.inboxes[queue as usize]) else { return true };
        let me = self.rank as usize;
        let is_ready = |(from, reader): (usize, &Reader)| {
            self.is_present(from) && reader.is_ready(self.ring(me, from, queue))
        };
        inbox.readers.iter().enumerate().any(is_ready)
    }

    fn is_present(&self, peer: usize) -> bool {
        // What a peer sent before it died or left is still taken.
        self.peers[peer].standing.lost() != Some(Lost::Broken)
    }
}

impl Peer {
    /// Wakes whoever of the peer's sleeps.
    fn wake(&self) {
        bell::wake(&Bell(self.mailbox.bell()));
    }
}

/// The bell of a mailbox, on which threads of several processes may sleep.
struct Bell<'a>(&'a AtomicU32);

impl Futex for Bell<'_> {
    fn word(&self) -> &AtomicU32 {
        self.0
    }

    fn wait(&self, value: u32, most: Option<Duration>) {
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        // Woken, interrupted, over or never asleep: the caller looks again.
        let _ = futex::wait(self.0, futex::Flags::empty(), value, most.as_ref());
    }

    fn wake(&self) {
        let _ = futex::wake(self.0, futex::Flags::empty(), i32::MAX as u32);
    }
}

impl Conduit for Shm {
    fn capabilities(&self) -> Capabilities {
        // The reader may be a quarter behind in what it says, and one line stays free.
        Capabilities { medium_bytes: MOST_BYTES, credits: LINES - LINES / 4 - 1, spin: SPIN }
    }

    fn place(&self) -> (NodeId, u32) {
        (NodeId(self.shared.rank), self.shared.peers.len() as u32)
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        let (shared, to) = (&*self.shared, to.0 as usize);
        let peer = &shared.peers[to];
        if peer.standing.lost().is_some() {
            return Err(Refusal::Lost);
        }
        let ring = shared.ring(to, shared.rank as usize, queue);
        let pushed = lock(&peer.writers[queue as usize]).push(ring, message);
        match pushed {
            Ok(()) => {
                peer.wake();
                Ok(())
            }
            Err(Refused::Full) => Err(Refusal::Full),
            Err(Refused::Broken) => {
                shared.lose(to, Lost::Broken);
                Err(Refusal::Lost)
            }
        }
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let shared = &*self.shared;
        let Some(mut inbox) = try_lock(&shared.inboxes[queue as usize]) else { return 0 };
        let Inbox { readers, copied } = &mut *inbox;
        let mut count = 0;
        for (from, reader) in readers.iter_mut().enumerate() {
            let ring = shared.ring(shared.rank as usize, from, queue);
            for _ in 0..BATCH {
                if !reader.is_ready(ring) || !shared.is_present(from) {
                    break;
                }
                match reader.pop(ring, copied) {
                    Found::Nothing => break,
                    Found::Broken => shared.lose(from, Lost::Broken),
                    Found::Message { wakes } => {
                        if wakes {
                            shared.peers[from].wake();
                        }
                        count += 1;
                        copied.with(|message| run(NodeId(from as u32), message));
                    }
                }
            }
        }
        count
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let bell = Bell(self.shared.me().mailbox.bell());
        let is_over = || is_over() || queues.iter().any(|&queue| self.shared.is_ready(queue));
        if !bell::sleep(&bell, most, is_over) {
            std::thread::yield_now();
        }
    }

    fn wake(&self) {
        self.shared.me().wake();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        let peer = self.shared.peers.get(peer.0 as usize)?;
        peer.standing.lost().is_none().then_some(&peer.segment)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.shared.peers[peer.0 as usize].segment.bytes()
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.shared.peers.get(peer.0 as usize)?.standing.lost()
    }

    fn leave(&self) {
        for (peer, socket) in self.sockets.iter().enumerate() {
            let Some(mut socket) = socket.as_ref() else { continue };
            self.shared.lose(peer, Lost::Left);
            // Who is gone hears nothing.
            let _ = socket.write_all(&[BYE]);
        }
    }
}
