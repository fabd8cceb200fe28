//! Processes of one machine, by shared memory.
//!
//! Each rank has a mailbox that all map: a bell, and two rings from every rank. A sender
//! writes its ring and rings the bell if the receiver sleeps. Each rank also has a segment, which all
//! map. A socket to every peer ends with its process; a thread that sleeps on these sees it, and lets go
//! of the peer's memory, which the system has back once all have. Where ranks may come later, mailboxes have
//! rings for all that there may be, and another thread hears them.

pub(crate) mod bell;
#[cfg(test)]
mod checked;
mod join;
pub(crate) mod mailbox;
pub(crate) mod ring;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

/// What rings and bells synchronise with. A test compiles the same files against shuttle's.
pub(crate) mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use crate::conduit::{Capabilities, Conduit, Lost, Queue, Refusal};
use crate::config::{Config, ROOT, Root};
use crate::error::Error;
use crate::locks::lock;
use crate::meeting::{Door, Joined, Members, Socket, names};
use crate::message::{MOST_BYTES, Message};
use crate::process::Process;
use crate::segment::Segment;
use crate::slots::Slots;
use crate::standing::Standing;
use bell::Futex;
use join::{Gift, Joining, Memory};
use mailbox::{CREDITS, Inbox, Mailbox, Outbox, Senders};
use model::NodeId;
use ring::Refused;
use rustix::event::Timespec;
use rustix::thread::futex;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use watch::{BYE, Watch, Watched};

/// Longer than a thread takes to wake.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

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
    inbox: Inbox,
}

#[derive(Debug)]
struct Peer {
    outbox: Outbox,
    segment: Segment,
    /// `None` for this rank, and once it has parted.
    socket: Mutex<Option<Socket>>,
    standing: Standing,
    process: Option<Process>,
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

    fn of(config: &Config, own: (Mailbox, Segment), joining: Joining) -> Result<Shm, Error> {
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

/// This rank's mailbox and its segment.
fn memory(config: &Config) -> Result<((Mailbox, Segment), Memory<OwnedFd>), Error> {
    let (mailbox, mailbox_fd) = Mailbox::create(config.capacity)?;
    let (segment, segment_fd) = Segment::create(config.segment_bytes)?;
    Ok(((mailbox, segment), [mailbox_fd, segment_fd]))
}

impl Shared {
    /// Of a rank that has met nobody yet.
    fn new(config: &Config, own: (Mailbox, Segment)) -> Shared {
        let peers = Slots::new(config.capacity);
        let is_own = peers.fill(config.rank, Peer::new(own, None, None));
        debug_assert!(is_own, "ranks are below the capacity");
        let inbox = Inbox::new(config.capacity);
        Shared { rank: config.rank, founders: config.size, peers, inbox }
    }

    /// Takes what a rank has brought, which is reached and watched from now on.
    fn admit(
        &self,
        rank: u32,
        mut lanes: Vec<Joined<Gift>>,
        watched: &Watched,
    ) -> Result<(), Error> {
        let refused = |why| Error::Refused { rank, why };
        let Joined { socket, gift: (memory, process), .. } =
            lanes.pop().ok_or(refused("has no socket"))?;
        let map = |fd: &OwnedFd| match Segment::map(fd) {
            Err(Error::Refused { why, .. }) => Err(refused(why)),
            mapped => mapped,
        };
        let [mailbox, segment] = [map(&memory[0])?, map(&memory[1])?];
        let mailbox = Mailbox::of(mailbox, self.peers.capacity());
        let mailbox = mailbox.ok_or(refused("its mailbox is of another size"))?;
        let clone = socket.0.try_clone().map_err(Error::io("watching a rank"))?;
        let process = process.map(Process::behind);
        if !self.peers.fill(rank, Peer::new((mailbox, segment), Some(socket), process)) {
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
        [&peer.segment, peer.outbox.mailbox.memory()].into_iter().for_each(Segment::give_up);
        peer.process.iter().for_each(|process| process.part(&peer.standing));
    }

    /// This rank's mailbox, and who writes to it.
    fn own(&self) -> (&Mailbox, &Shared) {
        (&self.me().outbox.mailbox, self)
    }
}

impl Senders for Shared {
    fn ranks(&self) -> impl Iterator<Item = usize> {
        0..self.peers.size() as usize
    }

    fn is_heard(&self, from: usize) -> bool {
        let peer = self.peers.get(from);
        peer.is_some_and(|peer| peer.standing.lost() != Some(Lost::Broken))
    }

    fn condemn(&self, from: usize) {
        self.lose(from, Lost::Broken);
    }

    fn wake_sender(&self, from: usize) {
        self.peers.get(from).into_iter().for_each(Peer::wake);
    }
}

impl Peer {
    fn new(
        (mailbox, segment): (Mailbox, Segment),
        socket: Option<Socket>,
        process: Option<Process>,
    ) -> Peer {
        let (outbox, socket) = (Outbox::new(mailbox), Mutex::new(socket));
        Peer { outbox, segment, socket, standing: Standing::default(), process }
    }

    /// Wakes whoever of the peer's sleeps.
    fn wake(&self) {
        bell::wake(&Bell(self.outbox.mailbox.bell()));
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
        Capabilities { medium_bytes: MOST_BYTES, credits: CREDITS, spin: SPIN }
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
        match peer.outbox.push(shared.rank as usize, queue, message) {
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
        self.shared.inbox.receive(self.shared.own(), queue, run)
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let Shared { inbox, .. } = &*self.shared;
        let own = self.shared.own();
        let bell = Bell(own.0.bell());
        let is_over = || is_over() || queues.iter().any(|&queue| inbox.is_ready(own, queue));
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

    fn process(&self, peer: NodeId) -> Option<&Process> {
        self.shared.peer(peer)?.process.as_ref()
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
