//! Processes of several machines, by UCX: over whatever it has, InfiniBand or TCP, say.
//!
//! **Hazard.** UCX's worker may be used by one thread only, and moves nothing unless that asks it to;
//! messages may come in another order than they were sent. **Guarantee.** Messages are taken in their
//! order, and no more of them lie anywhere than their senders have credits for. **Structure.** A thread
//! owns the worker, does what it is told by a queue, and sleeps on the worker's descriptor and a
//! bell. Messages are active ones with a number each; a receiver gives credits back as it takes them. A
//! put's caller waits until its bytes are there. A socket to every peer, by which they met, ends when the
//! peer does. The library is loaded when ranks join.

mod boxes;
mod owner;
mod raw;
#[cfg(test)]
mod tests;
mod worker;

use crate::conduit::{Capabilities, Conduit, Lost, Puts, QUEUES, Queue, Refusal, Run, Windows};
use crate::config::{Config, ROOT, Root};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use crate::meeting::Socket;
use crate::message::Message;
use crate::nearby::{Neighbours, Network};
use crate::segment::Segment;
use crate::shm::watch::{BYE, Watch};
use crate::standing::Standing;
use crate::tcp::bells::Bells;
use crate::tcp::frame::{FAREWELL, Frame, Front, Limits};
use crate::tcp::join::meet_at;
use crate::windows::{Begin, Owner as Keeper, Window, WindowRun};
use boxes::{CREDITS, Inbox, Outbox};
use model::NodeId;
use owner::{Command, Described, HEADER, Open, Owner, Put};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use worker::{Arrivals, Worker};

/// The most bytes of a payload that travels with a message.
const MEDIUM_BYTES: usize = 64 << 10;

/// From how many bytes on a put is worth waiting for.
const PUT_BYTES: u64 = 256 << 10;

/// Kinds of messages, after those of the queues.
const CREDIT: u32 = QUEUES.len() as u32;

/// The most messages that are taken at once.
const BATCH: usize = 64;

/// Processes of several machines.
#[derive(Debug)]
pub struct Ucx {
    shared: Arc<Shared>,
    can: Abilities,
    /// To each peer, `None` for this rank.
    sockets: Vec<Option<Socket>>,
    /// Until this rank leaves.
    owner: Mutex<Option<JoinHandle<()>>>,
    _watch: Watch,
    // By which neighbours find the segment.
    _fd: OwnedFd,
}

/// What the owner of the worker and others share.
#[derive(Debug)]
struct Shared {
    rank: usize,
    segment: Arc<Segment>,
    neighbours: Option<Arc<Neighbours>>,
    peers: Vec<Peer>,
    /// By queue.
    inboxes: [Mutex<Inbox>; 2],
    /// Held by who runs handlers, by queue.
    running: [Mutex<()>; 2],
    /// `None` once nobody obeys any more.
    commands: Mutex<Option<VecDeque<Command>>>,
    /// The owner's, and all others'.
    owner: Bells,
    sleepers: Bells,
}

#[derive(Debug, Default)]
struct Peer {
    /// By queue.
    outboxes: [Mutex<Outbox>; 2],
    standing: Standing,
    /// By queue, whether it has said farewell.
    ends: Mutex<[bool; 2]>,
    segment_bytes: OnceLock<u64>,
}

/// What a peer tells of itself: its segment's bytes and place, its key, its worker's address, and what
/// neighbours are to know.
fn described(gift: &[u8]) -> Option<(u64, Described, &[u8])> {
    let (bytes, rest) = gift.split_first_chunk()?;
    let (start, rest) = rest.split_first_chunk()?;
    let (key, rest) = split_counted(rest)?;
    let (address, there) = split_counted(rest)?;
    let start = u64::from_le_bytes(*start);
    let described = Described { address: address.to_vec(), key: key.to_vec(), start };
    Some((u64::from_le_bytes(*bytes), described, there))
}

/// What a number of bytes is in front of, and the rest.
fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// What to give to peers, which may put to the segment from then on: that part which the worker knows.
fn gift(worker: &mut Worker<Shared>, segment: &Arc<Segment>) -> Result<Vec<u8>, Error> {
    let (start, bytes) = (address(segment.start().as_ptr()), segment.bytes());
    let key = match bytes {
        0 => Vec::new(),
        // SAFETY: nobody has references to the bytes of a segment, which stay with it.
        _ => unsafe { worker.register((start, bytes), Arc::clone(segment) as Keeper)? },
    };
    let address = worker.address()?;
    let [key_length, length] = [&key, &address].map(|it| (it.len() as u32).to_le_bytes());
    let place = [bytes.to_le_bytes(), start.to_le_bytes()].concat();
    Ok([&place[..], &key_length, &key, &length, &address].concat())
}

fn address(of: *const u8) -> u64 {
    of.expose_provenance() as u64
}

/// What the thread of the owner first says of its library, and what to give to peers.
type Opened = Result<(Abilities, Vec<u8>), Error>;

/// What a library is, and can do.
#[derive(Debug, Clone, Copy, Default)]
struct Abilities {
    version: [u32; 3],
    /// Whether it reaches memory of CUDA's devices.
    reaches_cuda: bool,
}

/// Opens a worker, says so, and owns it once it is told of the peers.
fn own(
    library: Option<&std::path::Path>,
    shared: &Arc<Shared>,
    opened: &Sender<Opened>,
    peers: &Receiver<Vec<Option<Described>>>,
) {
    let mut worker = match Worker::open(library, Arc::clone(shared)) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    let can = Abilities { version: worker.version(), reaches_cuda: worker.reaches_cuda() };
    let _ = opened.send(gift(&mut worker, &shared.segment).map(|gift| (can, gift)));
    // Where they did not meet, there is nothing to own.
    let Ok(peers) = peers.recv() else { return };
    match Owner::new(worker, Arc::clone(shared), &peers) {
        Ok(owner) => {
            let _ = opened.send(Ok((can, Vec::new())));
            owner.run();
        }
        Err(error) => _ = opened.send(Err(error)),
    }
}

impl Ucx {
    /// Joins the ranks that `config` speaks of; returns when all have.
    ///
    /// # Errors
    /// As [`Tcp::join`](crate::tcp::Tcp::join), and [`Error::Config`] where there is no UCX.
    pub fn join(config: &Config) -> Result<Ucx, Error> {
        Ucx::join_near(config, None)
    }

    /// As [`Ucx::join`], as one that may have neighbours.
    pub(crate) fn join_near(config: &Config, near: Option<Arc<Neighbours>>) -> Result<Ucx, Error> {
        let Root::Ucx(root) = config.check()? else {
            let why = format!("`{}` is no `ucx:HOST:PORT`", config.root);
            return Err(Error::Config { name: ROOT, why });
        };
        let (segment, fd) = Segment::create(config.segment_bytes)?;
        let place = near.as_ref().map(|near| near.told(&fd)).unwrap_or_default();
        let shared = Arc::new(Shared::new(config, Arc::new(segment), near));
        let ((open, opened), (tell, told)) = (channel(), channel());
        let (library, theirs) = (config.ucx.clone(), Arc::clone(&shared));
        let run = move || own(library.as_deref(), &theirs, &open, &told);
        let owner = Builder::new().name("iso-ucx".into()).spawn(run);
        let owner = Mutex::new(Some(owner.map_err(Error::io("starting UCX's thread"))?));
        let hear = || {
            opened.recv().unwrap_or(Err(Error::Refused { rank: config.rank, why: "its UCX ended" }))
        };
        let (can, mut gift) = hear()?;
        gift.extend(place);
        let mut joined = meet_at::<1, 3>(config, root, &gift)?.peers;
        let (mut peers, mut sockets) = (Vec::new(), Vec::new());
        for rank in 0..config.size {
            let Some(peer) = joined.remove(&rank).and_then(|mut lanes| lanes.pop()) else {
                peers.push(None);
                sockets.push(None);
                continue;
            };
            let refused = Error::Refused { rank, why: "says nothing of its worker" };
            let (bytes, described, there) = described(&peer.gift).ok_or(refused)?;
            let _ = shared.peers[rank as usize].segment_bytes.set(bytes);
            shared.neighbours.iter().for_each(|near| near.admit(rank, (there, bytes)));
            peers.push(Some(described));
            sockets.push(Some(peer.socket));
        }
        let _ = tell.send(peers);
        hear()?;
        let watch = shared.watch(&sockets, config.silence);
        let watch = watch.inspect_err(|_| shared.tell(Command::Stop))?;
        Ok(Ucx { shared, can, sockets, owner, _watch: watch, _fd: fd })
    }

    /// Has the owner put runs, and returns whether they are there. Whoever calls keeps their bytes until then.
    fn put_runs(&self, to: NodeId, window: Option<Window>, runs: Vec<WindowRun>) -> bool {
        let to = to.0 as usize;
        if self.shared.peers[to].standing.lost().is_some() {
            return false;
        }
        let (done, is_done) = sync_channel(1);
        self.shared.tell(Command::Put(Put { to, window, runs, done }));
        // Where it ends without an answer, so has the endpoint.
        is_done.recv().unwrap_or(false)
    }

    /// The version of the library.
    #[must_use]
    pub fn version(&self) -> [u32; 3] {
        self.can.version
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    fn new(config: &Config, segment: Arc<Segment>, neighbours: Option<Arc<Neighbours>>) -> Shared {
        let size = config.size as usize;
        let peers: Vec<_> = (0..size).map(|_| Peer::default()).collect();
        let rank = config.rank as usize;
        let _ = peers[rank].segment_bytes.set(segment.bytes());
        Shared {
            rank,
            segment,
            neighbours,
            peers,
            inboxes: QUEUES.map(|_| Mutex::new(Inbox::new(size))),
            running: Default::default(),
            commands: Mutex::new(Some(VecDeque::new())),
            owner: Bells::default(),
            sleepers: Bells::default(),
        }
    }

    /// Watches the sockets by which ranks met.
    fn watch(
        self: &Arc<Shared>,
        sockets: &[Option<Socket>],
        silence: Duration,
    ) -> Result<Watch, Error> {
        let theirs = Arc::clone(self);
        let watch = Watch::new(move |peer, left| {
            theirs.tell(Command::Lose(peer, if left { Lost::Left } else { Lost::Died }));
        })?;
        let clone = |socket: &Socket| {
            crate::tcp::keep_alive(&socket.0, silence)?;
            socket.0.try_clone()
        };
        for (peer, socket) in sockets.iter().enumerate() {
            let Some(socket) = socket else { continue };
            let clone = clone(socket).map_err(Error::io("watching peers"))?;
            watch.watched().add(peer, clone);
        }
        Ok(watch)
    }

    fn tell(&self, command: Command) {
        // What nobody obeys is dropped, and who waits for it finds that out.
        if let Some(commands) = &mut *lock(&self.commands) {
            commands.push_back(command);
        }
        self.owner.ring();
    }

    fn command(&self) -> Option<Command> {
        lock(&self.commands).as_mut()?.pop_front()
    }

    /// From here on nobody obeys.
    fn obey_no_more(&self) {
        lock(&self.commands).take();
    }

    /// Whether there is a command.
    fn is_told(&self) -> bool {
        lock(&self.commands).as_ref().is_some_and(|commands| !commands.is_empty())
    }

    fn lose(&self, peer: usize, why: Lost) {
        let standing = &self.peers[peer].standing;
        standing.lose(why);
        self.neighbours.iter().for_each(|near| near.part(peer, standing));
        self.sleepers.ring();
    }

    /// A message's header and frame.
    fn framed(&self, (kind, number): (u32, u64), parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(HEADER + parts.iter().map(|part| part.len()).sum::<usize>());
        bytes.extend((self.rank as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    fn limits(&self) -> Limits {
        Limits { medium_bytes: MEDIUM_BYTES, segment_bytes: self.segment.bytes() }
    }

    /// Takes what came; `None` for what no rank sends.
    fn take(&self, from: usize, (kind, number): (u32, u64), frame: &[u8]) -> Option<()> {
        if let Some(queue) = kind.checked_sub(CREDIT) {
            let outbox = self.peers[from].outboxes.get(queue as usize)?;
            let mut outbox = lock(outbox);
            let credits = outbox.credits.checked_add(usize::try_from(number).ok()?);
            outbox.credits = credits.filter(|&credits| credits <= CREDITS)?;
        } else {
            let front = Front::of(frame, self.limits()).ok().flatten()?;
            let is_put = front.with(frame, |frame| matches!(frame, Frame::Put { .. }));
            if is_put || front.length() != frame.len() {
                return None;
            }
            lock(self.inboxes.get(kind as usize)?).arrive(from, number, frame)?;
        }
        self.sleepers.ring();
        Some(())
    }

    /// Takes the next message of a queue.
    fn next(&self, queue: Queue) -> Option<(usize, Vec<u8>)> {
        let (from, frame, told) = lock(&self.inboxes[queue as usize]).take(self.rank)?;
        if told > 0 && from == self.rank {
            lock(&self.peers[from].outboxes[queue as usize]).credits += told;
            self.sleepers.ring();
        } else if told > 0 {
            let kind = CREDIT + queue as u32;
            self.tell(Command::Send(from, self.framed((kind, told as u64), &[])));
        }
        Some((from, frame))
    }

    /// A peer has said farewell by one queue.
    fn hear_farewell(&self, from: usize, queue: Queue) {
        let mut ends = lock(&self.peers[from].ends);
        ends[queue as usize] = true;
        if *ends == [true; 2] {
            self.lose(from, Lost::Left);
        }
    }
}

impl Arrivals for Shared {
    fn arrive(&self, header: &[u8], data: &[u8]) {
        let Ok(header) = <&[u8; HEADER]>::try_from(header) else {
            return log::warn!("dropped what is no message of a rank");
        };
        let [from, kind] = [0, 4]
            .map(|at| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
        let number = header[8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let from = from as usize;
        if from == self.rank || from >= self.peers.len() {
            return log::warn!("dropped a message of rank {from}, which is none");
        }
        if self.peers[from].standing.lost().is_none()
            && self.take(from, (kind, number), data).is_none()
        {
            self.tell(Command::Lose(from, Lost::Broken));
        }
    }
}

impl Conduit for Ucx {
    fn capabilities(&self) -> Capabilities {
        // Its own thread looks.
        Capabilities { medium_bytes: MEDIUM_BYTES, credits: CREDITS, spin: Duration::ZERO }
    }

    fn place(&self) -> (NodeId, u32) {
        (NodeId(self.shared.rank as u32), self.shared.peers.len() as u32)
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        let (shared, to) = (&*self.shared, to.0 as usize);
        let peer = &shared.peers[to];
        if peer.standing.lost().is_some() {
            return Err(Refusal::Lost);
        }
        let (front, length) = message.front();
        let parts = [&front[..length], message.payload.carried(), message.rest];
        let number = {
            let mut outbox = lock(&peer.outboxes[queue as usize]);
            outbox.credits = outbox.credits.checked_sub(1).ok_or(Refusal::Full)?;
            outbox.next += 1;
            outbox.next - 1
        };
        if to == shared.rank {
            lock(&shared.inboxes[queue as usize]).ready.push_back((to, parts.concat()));
            shared.sleepers.ring();
        } else {
            shared.tell(Command::Send(to, shared.framed((queue as u32, number), &parts)));
        }
        Ok(())
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let shared = &*self.shared;
        let Some(_running) = try_lock(&shared.running[queue as usize]) else { return 0 };
        let mut count = 0;
        while count < BATCH
            && let Some((from, frame)) = shared.next(queue)
        {
            let front = Front::of(&frame, shared.limits()).ok().flatten();
            front.expect("it was looked at when it came").with(&frame, |frame| match frame {
                Frame::Message(message) => run(NodeId(from as u32), message),
                _ => shared.hear_farewell(from, queue),
            });
            count += 1;
        }
        count
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let shared = &*self.shared;
        let Ok(bell) = shared.sleepers.hang() else {
            return std::thread::sleep(Duration::from_millis(1));
        };
        let is_ready = |queue: &Queue| !lock(&shared.inboxes[*queue as usize]).ready.is_empty();
        if is_over() || queues.iter().any(is_ready) {
            return;
        }
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        // Woken, interrupted or over: the caller looks again.
        let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN)], most.as_ref());
    }

    fn wake(&self) {
        self.shared.sleepers.ring();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        (peer.0 as usize == self.shared.rank).then_some(&*self.shared.segment)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        let peer = self.shared.peers.get(peer.0 as usize);
        peer.and_then(|peer| peer.segment_bytes.get()).copied().unwrap_or(0)
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.shared.peers.get(peer.0 as usize)?.standing.lost()
    }

    fn leave(&self) {
        let Some(owner) = lock(&self.owner).take() else { return };
        let others = || self.sockets.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)));
        for (to, _) in others() {
            self.shared.lose(to, Lost::Left);
            for queue in QUEUES {
                let mut outbox = lock(&self.shared.peers[to].outboxes[queue as usize]);
                let farewell = self.shared.framed((queue as u32, outbox.next), &[&FAREWELL]);
                outbox.next += 1;
                self.shared.tell(Command::Send(to, farewell));
            }
        }
        self.shared.tell(Command::Stop);
        // A panic of the thread has been told by its hook.
        let _ = owner.join();
        for (_, mut socket) in others() {
            // Who is gone hears nothing.
            let _ = socket.write_all(&[BYE]);
        }
    }

    fn puts(&self) -> Option<&dyn Puts> {
        Some(self)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        self.can.reaches_cuda.then_some(self)
    }
}

impl Network for Ucx {
    fn nudge(&self, peer: NodeId) {
        // No credits at all: these need none, and whoever sleeps is woken.
        let none = self.shared.framed((CREDIT, 0), &[]);
        self.shared.tell(Command::Send(peer.0 as usize, none));
    }

    fn condemn(&self, peer: NodeId) {
        self.shared.tell(Command::Lose(peer.0 as usize, Lost::Broken));
    }
}

impl Puts for Ucx {
    fn put(&self, to: NodeId, _: Queue, runs: &[Run<'_>]) -> Result<usize, Refusal> {
        let Some(&(at, bytes)) = runs.first() else { return Ok(0) };
        let run = WindowRun { start: address(bytes.as_ptr()), bytes: bytes.len() as u64, at };
        match self.put_runs(to, None, vec![run]) {
            true => Ok(bytes.len()),
            false => Err(Refusal::Lost),
        }
    }

    fn run_bytes(&self) -> u64 {
        // Each is waited for.
        PUT_BYTES
    }
}

impl Windows for Ucx {
    unsafe fn open(
        &self,
        (start, bytes): (u64, u64),
        owner: Keeper,
        begin: Begin,
    ) -> Result<Window, Error> {
        let (done, is_done) = sync_channel(1);
        self.shared.tell(Command::Open(Open { start, bytes, owner, begin, done }));
        let ended = || Err(Error::Refused { rank: self.shared.rank as u32, why: "its UCX ended" });
        let key = is_done.recv().unwrap_or_else(|_| ended())?;
        Ok(Window { start, bytes, key })
    }

    unsafe fn put_to_window(
        &self,
        to: NodeId,
        window: &Window,
        runs: &[WindowRun],
    ) -> Result<(), Error> {
        if self.put_runs(to, Some(window.clone()), runs.to_vec()) {
            return Ok(());
        }
        let refused = || std::io::Error::other("UCX does not put to this window");
        Err(match self.lost(to) {
            Some(why) => Error::PeerLost { peer: to, why },
            None => Error::Io { doing: "putting to memory of a device", source: refused() },
        })
    }
}
