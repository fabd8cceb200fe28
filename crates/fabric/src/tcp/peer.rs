//! What a rank has of another, or of itself.

use super::closable::Closable;
use super::join::{LANES, SILENT};
use super::stream::{Stream, Waiting};
use crate::conduit::{Lost, Queue};
use crate::locks::lock;
use crate::standing::Standing;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often the kernel asks over a silent connection whether the other end is there.
const PROBE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Peer {
    /// By queue: to where it goes, and whence it comes, are two connections.
    pub(super) streams: [Stream; 2],
    /// `None` for this rank.
    pub(super) silent: Option<Closable>,
    /// Whether that said farewell, or has ended; held by who hears it.
    pub(super) has_spoken: Mutex<bool>,
    pub(super) segment_bytes: u64,
    /// How the streams ended.
    pub(super) ends: Mutex<[Option<Lost>; 2]>,
    pub(super) standing: Standing,
}

impl Peer {
    /// `is_lower` says whether its rank is lower than this one's.
    pub(super) fn new(
        (rank, is_lower): (usize, bool),
        mut sockets: Vec<OwnedFd>,
        (segment_bytes, silence): (u64, Duration),
    ) -> rustix::io::Result<Peer> {
        for socket in &sockets {
            set_tcp_nodelay(socket, true)?;
            keep_alive(socket, silence)?;
        }
        let silent = (sockets.len() > SILENT).then(|| Closable::new(sockets.remove(SILENT)));
        // The connection of each one's requests; a rank's to itself are the ends of one.
        let [mine, theirs] = match <[OwnedFd; 2]>::try_from(sockets) {
            Ok([first, second]) if is_lower => [second, first],
            Ok(sockets) => sockets,
            Err(_) => {
                let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                <[OwnedFd; 2]>::from(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
            }
        }
        .map(Arc::new);
        for socket in [&mine, &theirs] {
            ioctl_fionbio(socket, true)?;
        }
        let streams = [
            Stream::new(name(rank, 0), Arc::clone(&mine), Arc::clone(&theirs)),
            Stream::new(name(rank, 1), theirs, mine),
        ];
        let (ends, standing) = (Mutex::default(), Standing::default());
        let has_spoken = Mutex::default();
        Ok(Peer { streams, silent, has_spoken, segment_bytes, ends, standing })
    }

    /// Nothing is said to it any more, nor heard of it.
    pub(super) fn close(&self, waiting: &Waiting) {
        self.streams.iter().for_each(|stream| stream.close(waiting));
        self.silent.iter().for_each(Closable::close);
    }

    pub(super) fn has_ended(&self, queue: Queue) -> bool {
        lock(&self.ends)[queue as usize].is_some()
    }

    pub(super) fn is_broken(&self) -> bool {
        lock(&self.ends).contains(&Some(Lost::Broken))
    }
}

/// What sets of descriptors call a stream, by its queue, or a silent connection.
pub(super) fn name(rank: usize, lane: usize) -> u64 {
    (rank * LANES as usize + lane) as u64
}

pub(super) fn place(name: u64) -> (usize, usize) {
    (name as usize / LANES as usize, name as usize % LANES as usize)
}

pub(crate) fn keep_alive(socket: &OwnedFd, silence: Duration) -> rustix::io::Result<()> {
    let probes = silence.as_secs().saturating_sub(PROBE.as_secs()).clamp(1, 100);
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, PROBE)?;
    set_tcp_keepintvl(socket, PROBE)?;
    set_tcp_keepcnt(socket, probes as u32)
}
