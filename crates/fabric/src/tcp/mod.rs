//! Processes of several machines, by TCP.
//!
//! Each rank has a stream to each other for requests and one for replies, so that replies find room
//! whatever becomes of requests. Replies go by the connection on which their requests came: so what
//! says that a segment came goes with the reply, where it would cost as much as a message. Messages and
//! puts are [frames](frame::Frame) of these, in their order; a put's
//! bytes go from the caller's buffer to the socket, and from the socket to the segment. Nobody has a
//! thread: whoever polls reads what has come and writes what waits, and whoever waits sleeps on the
//! sockets that matter to it.
//!
//! A third connection is silent. The kernels at both ends keep it alive, also while a peer is stopped or
//! reads nothing, so that it ends soon where a machine or a link is gone and at no other time. (A
//! stream's own timer would end it too where a peer has no room.) A peer is lost once both of its
//! streams are at their end, so that nothing of it comes afterwards; its connections are closed then.

pub(crate) mod bells;
pub(crate) mod closable;
pub mod frame;
pub(crate) mod join;
mod peer;
mod stream;
#[cfg(test)]
mod tests;

use crate::conduit::{Capabilities, Conduit, Lost, Puts, QUEUES, Queue, Refusal, Run};
use crate::config::{Config, ROOT, Root};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use crate::meeting::{Door, Joined, Members, Socket, names};
use crate::message::Message;
use crate::nearby::{Neighbours, Network};
use crate::segment::Segment;
use crate::slots::Slots;
use closable::Closable;
use join::{Book, Joining, LANES, SILENT};
use model::NodeId;
pub(crate) use peer::keep_alive;
use peer::{Peer, name, place};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stream::{
    CREDITS, Came, LEAVING, MEDIUM_BYTES, Next, RUN_BYTES, Reader, Stream, Waiting, ready,
};

/// What who leaves says on the silent connection, so that nobody cuts what it has sent.
const BYE: u8 = b'B';

/// What is said there to whom sleeps.
const NUDGE: u8 = b'N';

/// The most of what is said there that is heard at once.
const HEARD_BYTES: usize = 64;

/// How long a thread sleeps for which there is no descriptor to sleep on.
const BREATH: Duration = Duration::from_millis(1);

/// How often a stream is read that brings puts before others have their turn.
const READS: usize = 16;

/// How long it pays to look again, which a wake-up takes at both ends.
const SPIN: Duration = Duration::from_micros(50);

/// Processes of several machines.
#[derive(Debug)]
pub struct Tcp {
    shared: Arc<Shared>,
    /// For those that come later.
    doors: Mutex<Vec<Door>>,
}

/// What doors know of too.
#[derive(Debug)]
struct Shared {
    rank: usize,
    founders: u32,
    peers: Slots<Peer>,
    segment: Segment,
    // By which neighbours find it.
    _fd: OwnedFd,
    neighbours: Option<Arc<Neighbours>>,
    silence: Duration,
    /// Readable while a stream of that queue is, or a silent connection.
    ins: [OwnedFd; 2],
    waiting: Waiting,
    /// What reads the streams, by queue and sender.
    inboxes: [Mutex<Vec<Reader>>; 2],
}

impl Tcp {
    /// Joins the ranks that `config` speaks of; returns when all have, or, where this rank comes later,
    /// when all that there are reach it.
    ///
    /// # Errors
    /// [`Error::Config`] for what can't be; [`Error::Missing`] where not all join in time;
    /// [`Error::Refused`] where this rank, or another, has another key or version, or has joined already;
    /// [`Error::Disagreement`] where they count other ranks; [`Error::Unanswered`], [`Error::Busy`],
    /// [`Error::Unresponsive`], [`Error::NameTaken`] and [`Error::Full`] where it comes later and is not let
    /// in; [`Error::Io`], also
    /// where somebody listens at rank 0's port already.
    pub fn join(config: &Config) -> Result<Tcp, Error> {
        Tcp::join_near(config, None)
    }

    /// As [`Tcp::join`], as one that may have neighbours.
    pub(crate) fn join_near(config: &Config, near: Option<Arc<Neighbours>>) -> Result<Tcp, Error> {
        let Root::At(root) = config.check()? else {
            let why = format!("`{}` is no host and port", config.root);
            return Err(Error::Config { name: ROOT, why });
        };
        let (segment, fd) = Segment::create(config.segment_bytes)?;
        let told = near.as_ref().map(|near| near.told(&fd)).unwrap_or_default();
        let gift = [&segment.bytes().to_le_bytes()[..], &told].concat();
        let own = Own { segment, fd, near };
        if !config.is_late {
            return Tcp::of(config, own, join::meet_at(config, root, &gift)?);
        }
        let (entry, joining) = join::come_to(config, root, &gift)?;
        let tcp = Tcp::of(&entry.config(config), own, joining)?;
        entry.finish()?;
        Ok(tcp)
    }

    fn of(config: &Config, own: Own, joining: Joining<LANES, 2>) -> Result<Tcp, Error> {
        let shared = Arc::new(Shared::new(config, own)?);
        shared.admit_self()?;
        let Joining { peers, way, listener, root } = joining;
        let names = names(&peers);
        peers.into_iter().try_for_each(|(rank, lanes)| shared.admit(rank, lanes))?;
        let mut doors = Vec::new();
        if let Some(listener) = listener.filter(|_| config.may_be_called_later()) {
            let theirs = Arc::clone(&shared);
            let admit = move |rank, lanes| theirs.admit(rank, lanes);
            doors.push(Door::open(config.clone(), way, listener.into(), admit)?);
        }
        if let Some((at_root, known)) = root.filter(|_| config.is_open()) {
            let members = Roll { shared: Arc::clone(&shared), book: Book::of(known) };
            doors.push(Door::at_root(config.clone(), members, (at_root.into(), names))?);
        }
        Ok(Tcp { shared, doors: Mutex::new(doors) })
    }
}

/// What a rank brings.
struct Own {
    segment: Segment,
    fd: OwnedFd,
    near: Option<Arc<Neighbours>>,
}

/// What rank 0 tells those that come later.
struct Roll {
    shared: Arc<Shared>,
    book: Book,
}

impl Members for Roll {
    fn is_there(&self, rank: u32) -> bool {
        self.shared.is_there(rank as usize)
    }

    fn note(&self, rank: u32, socket: &Socket, said: &[u8]) -> io::Result<()> {
        self.book.note(rank, socket, said)
    }

    fn place(&self, rank: u32) -> Vec<u8> {
        self.book.place(rank)
    }
}

impl Shared {
    fn new(config: &Config, own: Own) -> Result<Shared, Error> {
        let failed = Error::os("setting up sockets");
        let set = || epoll::create(CreateFlags::CLOEXEC).map_err(&failed);
        let readers = || Mutex::new((0..config.capacity).map(|_| Reader::default()).collect());
        Ok(Shared {
            rank: config.rank as usize,
            founders: config.size,
            peers: Slots::new(config.capacity),
            segment: own.segment,
            _fd: own.fd,
            neighbours: own.near,
            silence: config.silence,
            ins: [set()?, set()?],
            waiting: Waiting::new().map_err(&failed)?,
            inboxes: QUEUES.map(|_| readers()),
        })
    }

    fn admit_self(&self) -> Result<(), Error> {
        let told = (self.segment.bytes(), self.silence);
        let own = Peer::new((self.rank, false), Vec::new(), told);
        self.take(self.rank as u32, own)
    }

    /// Takes what a rank has brought, which is reached from now on.
    fn admit(&self, rank: u32, lanes: Vec<Joined<Vec<u8>>>) -> Result<(), Error> {
        let told = lanes.first().and_then(|lane| lane.gift.split_first_chunk());
        let (bytes, there) =
            told.ok_or(Error::Refused { rank, why: "says nothing of its segment" })?;
        let bytes = u64::from_le_bytes(*bytes);
        self.neighbours.iter().for_each(|near| near.admit(rank, (there, bytes)));
        let sockets = lanes.into_iter().map(|lane| lane.socket.0).collect();
        let is_lower = (rank as usize) < self.rank;
        self.take(rank, Peer::new((rank as usize, is_lower), sockets, (bytes, self.silence)))
    }

    fn take(&self, rank: u32, peer: rustix::io::Result<Peer>) -> Result<(), Error> {
        let failed = Error::os("setting up sockets");
        if !self.peers.fill(rank, peer.map_err(&failed)?) {
            return Err(Error::Refused { rank, why: "has joined already" });
        }
        let watched = self.watch(rank as usize);
        if watched.is_err() {
            QUEUES.into_iter().for_each(|queue| self.end(rank as usize, queue, Lost::Died));
        }
        self.waiting.bells.ring();
        watched.map_err(failed)
    }

    /// Watches what is to be read of a rank.
    fn watch(&self, rank: usize) -> rustix::io::Result<()> {
        let Some(peer) = self.peers.get(rank) else { return Ok(()) };
        let name = |lane| EventData::new_u64(name(rank, lane));
        for (set, (lane, stream)) in self.ins.iter().zip(peer.streams.iter().enumerate()) {
            let silent = peer.silent.as_ref().and_then(Closable::get);
            for (source, lane) in [(stream.source(), lane), (silent, SILENT)] {
                let Some(source) = source else { continue };
                epoll::add(set, source, name(lane), EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Reads what has come of a stream, more than once only where that is a put's, and returns how many
    /// messages that were, or 1 for bytes of a put.
    fn read(
        &self,
        (from, queue): (usize, Queue),
        reader: &mut Reader,
        run: &mut dyn FnMut(NodeId, Message<'_>),
    ) -> usize {
        let Some(peer) = self.peers.get(from) else { return 0 };
        let Some(source) = peer.streams[queue as usize].source() else { return 0 };
        if peer.is_broken() {
            self.end(from, queue, Lost::Broken);
        }
        let (mut count, mut has_put) = (0, false);
        for _ in 0..READS {
            if self.has_ended(from, queue) {
                break;
            }
            match reader.fill(source.as_fd(), &self.segment) {
                Came::Nothing => break,
                Came::End => self.end(from, queue, Lost::Died),
                Came::Some(is_put) => {
                    has_put |= is_put;
                    count += self.take_frames((from, queue), reader, run);
                    if !reader.is_in_put() {
                        break;
                    }
                }
            }
        }
        if self.has_ended(from, queue) {
            *reader = Reader::default();
        }
        count.max(has_put.into())
    }

    /// Takes the frames that were read, and returns how many messages these were.
    fn take_frames(
        &self,
        (from, queue): (usize, Queue),
        reader: &mut Reader,
        run: &mut dyn FnMut(NodeId, Message<'_>),
    ) -> usize {
        let mut run = |message: Message<'_>| run(NodeId(from as u32), message);
        let mut count = 0;
        loop {
            match reader.next(&self.segment, &mut run) {
                Ok(Next::Message) => count += 1,
                Ok(Next::Nothing) => return count,
                Ok(Next::Bye) => self.end(from, queue, Lost::Left),
                Err(_) => self.end(from, queue, Lost::Broken),
            }
            if self.has_ended(from, queue) {
                return count;
            }
        }
    }

    fn has_ended(&self, from: usize, queue: Queue) -> bool {
        self.peers.get(from).is_none_or(|peer| peer.has_ended(queue))
    }

    /// A stream is at its end; where its peer has not left, so is the other soon.
    fn end(&self, from: usize, queue: Queue, why: Lost) {
        let Some(peer) = self.peers.get(from) else { return };
        let source = peer.streams[queue as usize].source();
        let _ = source.map(|source| epoll::delete(&self.ins[queue as usize], source));
        let ends = {
            let mut ends = lock(&peer.ends);
            ends[queue as usize] = Some(why);
            *ends
        };
        if why != Lost::Left {
            self.cut(from);
        }
        if let [Some(one), Some(other)] = ends {
            peer.close(&self.waiting);
            let worst = [Lost::Broken, Lost::Died].into_iter().find(|l| [one, other].contains(l));
            self.lose(from, worst.unwrap_or(Lost::Left));
        }
        self.waiting.bells.ring();
    }

    /// Nothing more is read of any peer: to this rank, all have left.
    fn listen_no_more(&self) {
        for (queue, inbox) in self.inboxes.iter().enumerate() {
            // Nobody is in the middle of a frame.
            let _readers = lock(inbox);
            for (rank, peer) in self.peers.iter() {
                let Some(silent) = &peer.silent else { continue };
                let watched = [peer.streams[queue].source(), silent.get()];
                watched
                    .into_iter()
                    .flatten()
                    .for_each(|fd| _ = epoll::delete(&self.ins[queue], fd));
                lock(&peer.ends)[queue].get_or_insert(Lost::Left);
                self.lose(rank, Lost::Left);
            }
        }
    }

    /// A peer is lost: its memory is of no use any more.
    fn lose(&self, peer: usize, why: Lost) {
        let Some(Peer { standing, .. }) = self.peers.get(peer) else { return };
        standing.lose(why);
        self.neighbours.iter().for_each(|near| near.part(peer, standing));
    }

    /// What a peer has sent is the last that comes of it.
    fn cut(&self, peer: usize) {
        let streams = self.peers.get(peer).into_iter().flat_map(|peer| &peer.streams);
        streams.for_each(|stream| stream.cut(&self.waiting));
    }

    /// As [`Conduit::leave`].
    fn leave(&self) {
        let others =
            || self.peers.iter().filter_map(|(_, peer)| Some((peer, peer.silent.as_ref()?)));
        let streams = || others().flat_map(|(peer, _)| &peer.streams);
        self.listen_no_more();
        streams().for_each(|stream| stream.begin_leaving(&self.waiting));
        self.waiting.bells.ring();
        let end = Instant::now() + LEAVING;
        loop {
            let full: Vec<_> = streams().filter_map(Stream::go_on_leaving).collect();
            let mut fds: Vec<_> = full.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)).collect();
            let left = end.saturating_duration_since(Instant::now());
            if fds.is_empty() || left.is_zero() {
                break;
            }
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        }
        streams().filter(|stream| stream.go_on_leaving().is_some()).for_each(Stream::hang_up);
        streams().for_each(|stream| stream.drain(end));
        for silent in others().filter_map(|(_, silent)| silent.get()) {
            // Who is gone hears nothing.
            let _ = send(silent, &[BYE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn peer(&self, peer: NodeId) -> Option<&Peer> {
        self.peers.get(peer.0 as usize)
    }

    /// Whether a rank is not lost, nor will be once somebody polls.
    fn is_there(&self, rank: usize) -> bool {
        self.hear(rank);
        let is_there = |peer: &Peer| peer.standing.lost().is_none() && !*lock(&peer.has_spoken);
        self.peers.get(rank).is_some_and(is_there)
    }

    /// Something may have become of a silent connection.
    fn hear(&self, from: usize) {
        let Some(peer) = self.peers.get(from) else { return };
        let Some(silent) = peer.silent.as_ref().and_then(Closable::get) else { return };
        // Another thread may have found it ready too, and the end behind a farewell says nothing.
        let mut has_spoken = lock(&peer.has_spoken);
        if *has_spoken {
            return;
        }
        let mut said = [0; HEARD_BYTES];
        let heard = recv(&silent, &mut said, RecvFlags::DONTWAIT).map(|(read, _)| &said[..read]);
        let word = match heard {
            Err(Errno::AGAIN | Errno::INTR) => return,
            heard => heard.ok().and_then(|said| said.iter().find(|&&byte| byte != NUDGE)),
        };
        if heard.is_ok_and(|said| !said.is_empty()) && word.is_none() {
            // All that sleep are to look, since nobody else hears it.
            return self.waiting.bells.ring();
        }
        *has_spoken = true;
        drop(has_spoken);
        self.ins.iter().for_each(|set| _ = epoll::delete(set, &silent));
        if word != Some(&BYE) {
            self.cut(from);
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Conduit for Tcp {
    fn capabilities(&self) -> Capabilities {
        Capabilities { medium_bytes: MEDIUM_BYTES, credits: CREDITS, spin: SPIN }
    }

    fn place(&self) -> (NodeId, u32) {
        (NodeId(self.shared.rank as u32), self.shared.peers.size())
    }

    fn founders(&self) -> u32 {
        self.shared.founders
    }

    fn has(&self, peer: NodeId) -> bool {
        self.shared.peer(peer).is_some()
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        self.send_some(to, queue, slice::from_ref(message)).map(|_| ())
    }

    fn send_some(
        &self,
        to: NodeId,
        queue: Queue,
        messages: &[Message<'_>],
    ) -> Result<usize, Refusal> {
        let peer = self.shared.peer(to).ok_or(Refusal::Lost)?;
        peer.streams[queue as usize].send(&self.shared.waiting, messages)
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let shared = &*self.shared;
        for (peer, lane) in shared.waiting.writable().into_iter().map(place) {
            if let Some(peer) = shared.peers.get(peer) {
                peer.streams[lane].flush(&shared.waiting);
            }
        }
        let Some(mut readers) = try_lock(&shared.inboxes[queue as usize]) else { return 0 };
        let mut count = 0;
        for (from, lane) in ready(&shared.ins[queue as usize]).into_iter().map(place) {
            match lane {
                SILENT => shared.hear(from),
                _ => count += shared.read((from, queue), &mut readers[from], run),
            }
        }
        count
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let Shared { ins, waiting, .. } = &*self.shared;
        let Ok(bell) = waiting.bells.hang() else {
            return std::thread::sleep(most.map_or(BREATH, |most| most.min(BREATH)));
        };
        if is_over() {
            return;
        }
        let sets = queues.iter().map(|&queue| ins[queue as usize].as_fd());
        let all = sets.chain([waiting.outs().as_fd(), bell.as_fd()]);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Woken, interrupted or over: the caller looks again.
        let _ = poll(&mut fds, most.and_then(|most| Timespec::try_from(most).ok()).as_ref());
    }

    fn wake(&self) {
        self.shared.waiting.bells.ring();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        (peer.0 as usize == self.shared.rank).then_some(&self.shared.segment)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.shared.peer(peer).map_or(0, |peer| peer.segment_bytes)
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.shared.peer(peer)?.standing.lost()
    }

    fn leave(&self) {
        // From here on nobody joins.
        lock(&self.doors).clear();
        self.shared.leave();
    }

    fn puts(&self) -> Option<&dyn Puts> {
        Some(self)
    }
}

impl Network for Tcp {
    fn nudge(&self, peer: NodeId) {
        let silent = self.shared.peer(peer).and_then(|peer| peer.silent.as_ref()?.get());
        // Where there is no room, it has not heard those before.
        let nudge = |fd| send(fd, &[NUDGE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        silent.iter().for_each(|silent| _ = nudge(silent));
    }

    fn condemn(&self, peer: NodeId) {
        QUEUES.into_iter().for_each(|queue| self.shared.end(peer.0 as usize, queue, Lost::Broken));
    }

    fn has_ended(&self, peer: NodeId) -> bool {
        // Who reads the one stream may be kept from the other.
        QUEUES.into_iter().any(|queue| self.shared.has_ended(peer.0 as usize, queue))
    }
}

impl Puts for Tcp {
    fn put(&self, to: NodeId, queue: Queue, runs: &[Run<'_>]) -> Result<usize, Refusal> {
        let peer = self.shared.peer(to).ok_or(Refusal::Lost)?;
        peer.streams[queue as usize].put(&self.shared.waiting, runs)
    }

    fn run_bytes(&self) -> u64 {
        RUN_BYTES
    }
}
