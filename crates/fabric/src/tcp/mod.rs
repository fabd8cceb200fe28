//! Processes of several machines, by TCP.
//!
//! Each pair of ranks has a stream for requests and one for replies, so that replies find room whatever
//! becomes of requests. Messages and puts are [frames](frame::Frame) of these, in their order; a put's
//! bytes go from the caller's buffer to the socket, and from the socket to the segment. Nobody has a
//! thread: whoever polls reads what has come and writes what waits, and whoever waits sleeps on the
//! sockets that matter to it.
//!
//! A third connection is silent. The kernels at both ends keep it alive, also while a peer is stopped or
//! reads nothing, so that it ends soon where a machine or a link is gone and at no other time. (A
//! stream's own timer would end it too where a peer has no room.) A peer is lost once both of its
//! streams are at their end, so that nothing of it comes afterwards.

pub(crate) mod bells;
pub mod frame;
pub(crate) mod join;
mod stream;
#[cfg(test)]
mod tests;

use crate::conduit::{Capabilities, Conduit, Lost, Puts, QUEUES, Queue, Refusal};
use crate::config::{Config, ROOT, Root};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use crate::message::Message;
use crate::segment::Segment;
use crate::standing::Standing;
use join::{LANES, SILENT};
use model::NodeId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stream::{CREDITS, Came, LEAVING, MEDIUM_BYTES, Next, Reader, Stream, Waiting, ready};

/// What who leaves says on the silent connection, so that nobody cuts what it has sent.
const BYE: u8 = b'B';

/// How long a thread sleeps for which there is no descriptor to sleep on.
const BREATH: Duration = Duration::from_millis(1);

/// How long it pays to look again, which a wake-up takes at both ends.
const SPIN: Duration = Duration::from_micros(50);

/// How often the kernel asks over a silent connection whether the other end is there.
const PROBE: Duration = Duration::from_secs(1);

/// Processes of several machines.
#[derive(Debug)]
pub struct Tcp {
    rank: usize,
    peers: Vec<Peer>,
    segment: Segment,
    /// Readable while a stream of that queue is, or a silent connection.
    ins: [OwnedFd; 2],
    waiting: Waiting,
    /// What reads the streams, by queue and sender.
    inboxes: [Mutex<Vec<Reader>>; 2],
}

#[derive(Debug)]
struct Peer {
    /// By queue.
    streams: [Stream; 2],
    /// `None` for this rank.
    silent: Option<OwnedFd>,
    segment_bytes: u64,
    /// How the streams ended.
    ends: Mutex<[Option<Lost>; 2]>,
    standing: Standing,
}

impl Tcp {
    /// Joins the ranks that `config` speaks of; returns when all have.
    ///
    /// # Errors
    /// [`Error::Config`] for what can't be; [`Error::Missing`] where not all join in time;
    /// [`Error::Refused`] where this rank, or another, has another key, version or number of ranks,
    /// or has joined already; [`Error::Io`], also where somebody listens at rank 0's port already.
    pub fn join(config: &Config) -> Result<Tcp, Error> {
        let Root::At(root) = config.check()? else {
            let why = format!("`{}` is no host and port", config.root);
            return Err(Error::Config { name: ROOT, why });
        };
        let bytes = config.segment_bytes.to_le_bytes();
        let mut joined = join::meet_at::<LANES, 2>(config, root, &bytes)?.into_iter();
        let (segment, _) = Segment::create(config.segment_bytes)?;
        let failed = Error::os("setting up sockets");
        let mut peers = Vec::with_capacity(config.size as usize);
        for rank in 0..config.size as usize {
            let lanes: Vec<_> = joined.by_ref().take(LANES as usize).flatten().collect();
            let gift = lanes.first().map_or(&bytes[..], |lane| &lane.gift);
            let refused = Error::Refused { rank: rank as u32, why: "says nothing of its segment" };
            let bytes =
                gift.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(refused)?;
            let sockets = lanes.into_iter().map(|lane| lane.socket.0).collect();
            peers.push(Peer::new(rank, sockets, (bytes, config.silence)).map_err(&failed)?);
        }
        let set = || epoll::create(CreateFlags::CLOEXEC);
        let sets = set().and_then(|requests| Ok(([requests, set()?], Waiting::new()?)));
        let (ins, waiting) = sets.map_err(&failed)?;
        let readers = || Mutex::new(peers.iter().map(|_| Reader::default()).collect());
        let inboxes = QUEUES.map(|_| readers());
        let tcp = Tcp { rank: config.rank as usize, peers, segment, ins, waiting, inboxes };
        tcp.watch().map_err(&failed)?;
        Ok(tcp)
    }

    /// Watches what is to be read.
    fn watch(&self) -> rustix::io::Result<()> {
        for (rank, peer) in self.peers.iter().enumerate() {
            let name = |lane| EventData::new_u64(name(rank, lane));
            for (set, (lane, stream)) in self.ins.iter().zip(peer.streams.iter().enumerate()) {
                epoll::add(set, stream.source(), name(lane), EventFlags::IN)?;
                if let Some(silent) = &peer.silent {
                    epoll::add(set, silent, name(SILENT), EventFlags::IN)?;
                }
            }
        }
        Ok(())
    }

    /// Reads once what has come of a stream, and returns how many messages that were, or 1 for bytes of
    /// a put.
    fn read(
        &self,
        (from, queue): (usize, Queue),
        reader: &mut Reader,
        run: &mut dyn FnMut(NodeId, Message<'_>),
    ) -> usize {
        let peer = &self.peers[from];
        if peer.is_broken() {
            self.end(from, queue, Lost::Broken);
            return 0;
        }
        let is_put = match reader.fill(peer.streams[queue as usize].source(), &self.segment) {
            Came::Nothing => return 0,
            Came::End => {
                self.end(from, queue, Lost::Died);
                return 0;
            }
            Came::Some(is_put) => is_put,
        };
        let mut count = 0;
        loop {
            let mut run = |message: Message<'_>| run(NodeId(from as u32), message);
            match reader.next(&self.segment, &mut run) {
                Ok(Next::Message) => count += 1,
                Ok(Next::Nothing) => return count.max(is_put.into()),
                Ok(Next::Bye) => self.end(from, queue, Lost::Left),
                Err(_) => self.end(from, queue, Lost::Broken),
            }
            if peer.has_ended(queue) {
                return count;
            }
        }
    }

    /// A stream is at its end; where its peer has not left, so is the other soon.
    fn end(&self, from: usize, queue: Queue, why: Lost) {
        let peer = &self.peers[from];
        let _ = epoll::delete(&self.ins[queue as usize], peer.streams[queue as usize].source());
        let ends = {
            let mut ends = lock(&peer.ends);
            ends[queue as usize] = Some(why);
            *ends
        };
        if why != Lost::Left {
            self.cut(from);
        }
        if let [Some(one), Some(other)] = ends {
            peer.streams.iter().for_each(|stream| stream.close(&self.waiting));
            let worst = [Lost::Broken, Lost::Died].into_iter().find(|l| [one, other].contains(l));
            peer.standing.lose(worst.unwrap_or(Lost::Left));
        }
        self.waiting.bells.ring();
    }

    /// Nothing more is read of any peer: to this rank, all have left.
    fn listen_no_more(&self) {
        for (queue, inbox) in self.inboxes.iter().enumerate() {
            // Nobody is in the middle of a frame.
            let _readers = lock(inbox);
            for peer in &self.peers {
                let Some(silent) = &peer.silent else { continue };
                let _ = epoll::delete(&self.ins[queue], peer.streams[queue].source());
                let _ = epoll::delete(&self.ins[queue], silent);
                lock(&peer.ends)[queue].get_or_insert(Lost::Left);
                peer.standing.lose(Lost::Left);
            }
        }
    }

    /// What a peer has sent is the last that comes of it.
    fn cut(&self, peer: usize) {
        self.peers[peer].streams.iter().for_each(|stream| stream.cut(&self.waiting));
    }

    /// Something became of a silent connection.
    fn hear(&self, from: usize) {
        let Some(silent) = &self.peers[from].silent else { return };
        let mut said = [0];
        let heard = recv(silent, &mut said, RecvFlags::DONTWAIT).map(|(read, _)| read);
        if matches!(heard, Err(Errno::AGAIN | Errno::INTR)) {
            return;
        }
        self.ins.iter().for_each(|set| _ = epoll::delete(set, silent));
        if heard != Ok(1) || said != [BYE] {
            self.cut(from);
        }
    }
}

impl Peer {
    fn new(
        rank: usize,
        mut sockets: Vec<OwnedFd>,
        (segment_bytes, silence): (u64, Duration),
    ) -> rustix::io::Result<Peer> {
        for socket in &sockets {
            set_tcp_nodelay(socket, true)?;
            keep_alive(socket, silence)?;
        }
        let silent = (sockets.len() > SILENT).then(|| sockets.remove(SILENT));
        let mut sockets = sockets.into_iter();
        let mut stream = |lane| {
            let (to, from) = match sockets.next() {
                Some(socket) => (socket, None),
                None => {
                    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                    let (to, from) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
                    (to, Some(from))
                }
            };
            ioctl_fionbio(from.as_ref().unwrap_or(&to), true)?;
            rustix::io::Result::Ok(Stream::new(name(rank, lane), to, from))
        };
        let streams = [stream(0)?, stream(1)?];
        let (ends, standing) = (Mutex::default(), Standing::default());
        Ok(Peer { streams, silent, segment_bytes, ends, standing })
    }

    fn has_ended(&self, queue: Queue) -> bool {
        lock(&self.ends)[queue as usize].is_some()
    }

    fn is_broken(&self) -> bool {
        lock(&self.ends).contains(&Some(Lost::Broken))
    }
}

/// What sets of descriptors call a stream, by its queue, or a silent connection.
fn name(rank: usize, lane: usize) -> u64 {
    (rank * LANES as usize + lane) as u64
}

fn place(name: u64) -> (usize, usize) {
    (name as usize / LANES as usize, name as usize % LANES as usize)
}

pub(crate) fn keep_alive(socket: &OwnedFd, silence: Duration) -> rustix::io::Result<()> {
    let probes = silence.as_secs().saturating_sub(PROBE.as_secs()).clamp(1, 100);
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, PROBE)?;
    set_tcp_keepintvl(socket, PROBE)?;
    set_tcp_keepcnt(socket, probes as u32)
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
        (NodeId(self.rank as u32), self.peers.len() as u32)
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        self.peers[to.0 as usize].streams[queue as usize].send(&self.waiting, message)
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        for (peer, lane) in self.waiting.writable().into_iter().map(place) {
            self.peers[peer].streams[lane].flush(&self.waiting);
        }
        let Some(mut readers) = try_lock(&self.inboxes[queue as usize]) else { return 0 };
        let mut count = 0;
        for (from, lane) in ready(&self.ins[queue as usize]).into_iter().map(place) {
            match lane {
                SILENT => self.hear(from),
                _ => count += self.read((from, queue), &mut readers[from], run),
            }
        }
        count
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let Ok(bell) = self.waiting.bells.hang() else {
            return std::thread::sleep(most.map_or(BREATH, |most| most.min(BREATH)));
        };
        if is_over() {
            return;
        }
        let sets = queues.iter().map(|&queue| self.ins[queue as usize].as_fd());
        let all = sets.chain([self.waiting.outs().as_fd(), bell.as_fd()]);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Woken, interrupted or over: the caller looks again.
        let _ = poll(&mut fds, most.and_then(|most| Timespec::try_from(most).ok()).as_ref());
    }

    fn wake(&self) {
        self.waiting.bells.ring();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        (peer.0 as usize == self.rank).then_some(&self.segment)
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.peers[peer.0 as usize].segment_bytes
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.peers.get(peer.0 as usize)?.standing.lost()
    }

    fn leave(&self) {
        let others = || self.peers.iter().filter_map(|peer| Some((peer, peer.silent.as_ref()?)));
        let streams = || others().flat_map(|(peer, _)| &peer.streams);
        self.listen_no_more();
        streams().for_each(|stream| stream.begin_leaving(&self.waiting));
        self.waiting.bells.ring();
        let end = Instant::now() + LEAVING;
        loop {
            let full = streams().filter_map(Stream::go_on_leaving);
            let mut fds: Vec<_> =
                full.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)).collect();
            let left = end.saturating_duration_since(Instant::now());
            if fds.is_empty() || left.is_zero() {
                break;
            }
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        }
        streams().filter(|stream| stream.go_on_leaving().is_some()).for_each(Stream::hang_up);
        streams().for_each(|stream| stream.drain(end));
        for (_, silent) in others() {
            // Who is gone hears nothing.
            let _ = send(silent, &[BYE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn puts(&self) -> Option<&dyn Puts> {
        Some(self)
    }
}

impl Puts for Tcp {
    fn put(&self, to: NodeId, queue: Queue, at: u64, bytes: &[u8]) -> Result<usize, Refusal> {
        self.peers[to.0 as usize].streams[queue as usize].put(&self.waiting, at, bytes)
    }
}
