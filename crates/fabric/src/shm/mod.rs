//! Processes of one machine, by shared memory.
//!
//! Each rank has a mailbox that all map: a bell, and two rings from every rank. A sender
//! writes its ring and rings the bell if the receiver sleeps. Each rank also has a segment, which all
//! map. A socket to every peer ends when the peer does; a thread that sleeps on these sees it, and lets go
//! of the peer's memory, which the system has back once all have. Where ranks may come later, mailboxes have
//! rings for all that there may be, and another thread hears them.

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
use crate::meeting::{Door, Joined, Members, Socket, names};
use crate::message::{Copied, MOST_BYTES, Message};
use crate::segment::Segment;
use crate::slots::Slots;
use crate::standing::Standing;
use bell::Futex;
use join::Joining;
use model::NodeId;
use ring::{Found, LINE_WORDS, LINES, RING_WORDS, Reader, Refused, Words, Writer};
use rustix::event::Timespec;
use rustix::thread::futex;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use watch::{BYE, Watch, Watched};

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
    /// For those that come later.
    doors: Mutex<Vec<Door>>,
    _watch: Watch,
}

#[derive(Debug)]
struct Shared {
    rank: u32,
    founders: u32,
    peers: Slots<Peer>,
    /// What reads the rings in this rank's mailbox, by queue and sender.
    inboxes: [Mutex<Inbox>; 2],
}

#[derive(Debug)]
struct Peer {
    mailbox: Segment,
    segment: Segment,
    /// `None` for this rank, and once it has parted.
    socket: Mutex<Option<Socket>>,
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
    /// Joins the ranks that `config` speaks of; returns when all have, or, where this rank comes later,
    /// when all that there are reach it.
    ///
    /// # Errors
    /// [`Error::Config`] for what can't be; [`Error::Missing`] where not all join in time;
    /// [`Error::Refused`] where this rank, or another, has another key or version, or has joined already;
    /// [`Error::Disagreement`] where they count other ranks; [`Error::Unanswered`], [`Error::Busy`],
    /// [`Error::Unresponsive`], [`Error::NameTaken`] and [`Error::Full`] where it comes later and is not let
    /// in; [`Error::Io`].
    pub fn join(config: &Config) -> Result<Shm, Error> {
        let Root::Local(name) = config.check()? else {
            let why = format!("`{}` is no meeting place of one machine", config.root);
            return Err(Error::Config { name: ROOT, why });
        };
        if !config.is_late {
            let (own, fds) = memory(config)?;
            return Shm::of(config, own, join::join(config, name, fds)?);
        }
        let entry = join::come_to(config, name)?;
        let config = entry.config(config);
        let (own, fds) = memory(&config)?;
        let joining = join::join_there(&config, name, (fds, &entry))?;
        let shm = Shm::of(&config, own, joining)?;
        entry.finish()?;
        Ok(shm)
    }

    fn of(config: &Config, own: [Segment; 2], joining: Joining) -> Result<Shm, Error> {
        let shared = Arc::new(Shared::new(config, own));
        let theirs = Arc::clone(&shared);
        let watch = Watch::new(move |peer, left| {
            theirs.part(peer, if left { Lost::Left } else { Lost::Died });
        })?;
        let Joining { peers, way, listener, root } = joining;
        let names = names(&peers);
        let (theirs, watched) = (Arc::clone(&shared), Arc::clone(watch.watched()));
        let admit = move |rank, lanes| theirs.admit(rank, lanes, &watched);
        peers.into_iter().try_for_each(|(rank, lanes)| admit(rank, lanes))?;
        let mut doors = Vec::new();
        if let Some(listener) = listener.filter(|_| config.may_be_called_later()) {
            doors.push(Door::open(config.clone(), way, listener.into(), admit)?);
        }
        if let Some(root) = root {
            let members = Roll(Arc::clone(&shared));
            doors.push(Door::at_root(config.clone(), members, (root.into(), names))?);
        }
        Ok(Shm { shared, doors: Mutex::new(doors), _watch: watch })
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What rank 0 tells those that come later.
struct Roll(Arc<Shared>);

impl Members for Roll {
    fn is_there(&self, rank: u32) -> bool {
        self.0.peers.get(rank as usize).is_some_and(|peer| peer.standing.lost().is_none())
    }

    fn note(&self, _: u32, _: &Socket, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn place(&self, _: u32) -> Vec<u8> {
        Vec::new()
    }
}

fn mailbox_words(capacity: u32) -> usize {
    BELL_WORDS + capacity as usize * QUEUES.len() * RING_WORDS
}

/// This rank's mailbox and its segment.
fn memory(config: &Config) -> Result<([Segment; 2], [OwnedFd; 2]), Error> {
    let (mailbox, mailbox_fd) = Segment::create(8 * mailbox_words(config.capacity) as u64)?;
    let (segment, segment_fd) = Segment::create(config.segment_bytes)?;
    Ok(([mailbox, segment], [mailbox_fd, segment_fd]))
}

fn mapped(rank: u32, memory: &[OwnedFd; 2]) -> Result<[Segment; 2], Error> {
    let map = |fd: &OwnedFd| match Segment::map(fd) {
        Err(Error::Refused { why, .. }) => Err(Error::Refused { rank, why }),
        mapped => mapped,
    };
    Ok([map(&memory[0])?, map(&memory[1])?])
}

impl Shared {
    /// Of a rank that has met nobody yet.
    fn new(config: &Config, own: [Segment; 2]) -> Shared {
        let peers = Slots::new(config.capacity);
        let is_own = peers.fill(config.rank, Peer::new(own, None));
        debug_assert!(is_own, "ranks are below the capacity");
        let readers = || (0..config.capacity).map(|_| Reader::default()).collect();
        let inbox = || Mutex::new(Inbox { readers: readers(), copied: Copied::new() });
        Shared { rank: config.rank, founders: config.size, peers, inboxes: QUEUES.map(|_| inbox()) }
    }

    /// Takes what a rank has brought, which is reached and watched from now on.
    fn admit(
        &self,
        rank: u32,
        mut lanes: Vec<Joined<[OwnedFd; 2]>>,
        watched: &Watched,
    ) -> Result<(), Error> {
        let refused = |why| Error::Refused { rank, why };
        let Joined { socket, gift, .. } = lanes.pop().ok_or(refused("has no socket"))?;
        let memory = mapped(rank, &gift)?;
        if memory[0].bytes() != self.me().mailbox.bytes() {
            return Err(refused("its mailbox is of another size"));
        }
        let clone = socket.0.try_clone().map_err(Error::io("watching a rank"))?;
        if !self.peers.fill(rank, Peer::new(memory, Some(socket))) {
            return Err(refused("has joined already"));
        }
        watched.add(rank as usize, clone);
        self.me().wake();
        Ok(())
    }

    fn me(&self) -> &Peer {
        self.peers.get(self.rank as usize).expect("a rank knows itself")
    }

    fn peer(&self, peer: NodeId) -> Option<&Peer> {
        self.peers.get(peer.0 as usize)
    }

    fn lose(&self, peer: usize, why: Lost) {
        if self.peers.get(peer).is_some_and(|peer| peer.standing.lose(why)) {
            self.me().wake();
        }
    }

    /// A peer has died or left, and its memory is of no use any more.
    fn part(&self, peer: usize, why: Lost) {
        self.lose(peer, why);
        let Some(peer) = self.peers.get(peer) else { return };
        lock(&peer.socket).take();
        [&peer.segment, &peer.mailbox].into_iter().for_each(Segment::give_up);
    }

    fn is_ready(&self, queue: Queue) -> bool {
        // Whoever has it may have looked before something came.
        let Some(inbox) = try_lock(&self.inboxes[queue as usize]) else { return true };
        let me = self.me();
        self.peers.iter().any(|(from, peer)| {
            peer.is_heard() && inbox.readers[from].is_ready(me.ring(from, queue))
        })
    }
}

impl Peer {
    fn new([mailbox, segment]: [Segment; 2], socket: Option<Socket>) -> Peer {
        let (writers, standing) = (Default::default(), Standing::default());
        let socket = Mutex::new(socket);
        Peer { mailbox, segment, socket, writers, standing }
    }

    /// The ring in its mailbox that `from` writes.
    fn ring(&self, from: usize, queue: Queue) -> Words<'_> {
        let start = BELL_WORDS + (from * QUEUES.len() + queue as usize) * RING_WORDS;
        Words(&self.mailbox.words()[start..start + RING_WORDS])
    }

    /// Whether what it sends is taken; also what it had sent before it died or left.
    fn is_heard(&self) -> bool {
        self.standing.lost() != Some(Lost::Broken)
    }

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
        (NodeId(self.shared.rank), self.shared.peers.size())
    }

    fn founders(&self) -> u32 {
        self.shared.founders
    }

    fn has(&self, peer: NodeId) -> bool {
        self.shared.peer(peer).is_some()
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        let shared = &*self.shared;
        let peer = shared.peer(to).ok_or(Refusal::Lost)?;
        if peer.standing.lost().is_some() {
            return Err(Refusal::Lost);
        }
        let ring = peer.ring(shared.rank as usize, queue);
        let pushed = lock(&peer.writers[queue as usize]).push(ring, message);
        match pushed {
            Ok(()) => {
                peer.wake();
                Ok(())
            }
            Err(Refused::Full) => Err(Refusal::Full),
            Err(Refused::Broken) => {
                shared.lose(to.0 as usize, Lost::Broken);
                Err(Refusal::Lost)
            }
        }
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let shared = &*self.shared;
        let Some(mut inbox) = try_lock(&shared.inboxes[queue as usize]) else { return 0 };
        let Inbox { readers, copied } = &mut *inbox;
        let (me, mut count) = (shared.me(), 0);
        let size = shared.peers.size() as usize;
        for (from, reader) in readers[..size].iter_mut().enumerate() {
            let ring = me.ring(from, queue);
            for _ in 0..BATCH {
                if !reader.is_ready(ring) {
                    break;
                }
                let peer = shared.peers.get(from).filter(|peer| peer.is_heard());
                let Some(peer) = peer else { break };
                match reader.pop(ring, copied) {
                    Found::Nothing => break,
                    Found::Broken => shared.lose(from, Lost::Broken),
                    Found::Message { wakes } => {
                        if wakes {
                            peer.wake();
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
        let peer = self.shared.peer(peer)?;
        peer.standing.lost().is_none().then_some(&peer.segment)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.shared.peer(peer).map_or(0, |peer| peer.segment.bytes())
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.shared.peer(peer)?.standing.lost()
    }

    fn leave(&self) {
        // From here on nobody joins.
        lock(&self.doors).clear();
        for (rank, peer) in self.shared.peers.iter() {
            let socket = lock(&peer.socket);
            let Some(mut socket) = socket.as_ref() else { continue };
            self.shared.lose(rank, Lost::Left);
            // Who is gone hears nothing.
            let _ = socket.write_all(&[BYE]);
        }
    }
}
