//! What a rank has of another, or of itself.

use super::closable::Closable;
use super::join::{LANES, SILENT};
use super::stream::{Stream, Waiting};
use crate::conduit::{Lost, Queue};
use crate::locks::lock;
use crate::nearby::Whereabouts;
use crate::segment::Segment;
use crate::standing::Standing;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often the kernel asks over a silent connection whether the other end is there.
const PROBE: Duration = Duration::from_secs(1);

/// What a rank tells of its segment.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) segment_bytes: u64,
    /// Where it is mapped.
    pub(super) segment: Option<Segment>,
}

impl Told {
    /// As it is told: how many bytes there are, and where, unless that is nobody's business.
    pub(super) fn gift(bytes: u64, fd: Option<&OwnedFd>) -> Vec<u8> {
        let there = fd.and_then(Whereabouts::of).map(Whereabouts::to_bytes);
        bytes.to_le_bytes().into_iter().chain(there.into_iter().flatten()).collect()
    }

    /// `None` for what no rank tells.
    pub(super) fn of(gift: &[u8]) -> Option<Told> {
        let (bytes, rest) = gift.split_first_chunk()?;
        let segment_bytes = u64::from_le_bytes(*bytes);
        let there = rest.first_chunk().map(Whereabouts::from_bytes);
        Some(Told { segment_bytes, segment: there.and_then(|it| it.map(segment_bytes)) })
    }
}

#[derive(Debug)]
pub(super) struct Peer {
    /// By queue: to where it goes, and whence it comes, are two connections.
    pub(super) streams: [Stream; 2],
    /// `None` for this rank.
    pub(super) silent: Option<Closable>,
    /// Whether that said something, or has ended; held by who hears it.
    pub(super) has_spoken: Mutex<bool>,
    pub(super) segment_bytes: u64,
    /// Where that is mapped.
    pub(super) segment: Option<Segment>,
    /// How the streams ended.
    pub(super) ends: Mutex<[Option<Lost>; 2]>,
    pub(super) standing: Standing,
}

impl Peer {
    /// `is_lower` says whether its rank is lower than this one's.
    pub(super) fn new(
        (rank, is_lower): (usize, bool),
        mut sockets: Vec<OwnedFd>,
        (told, silence): (Told, Duration),
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
        let Told { segment_bytes, segment } = told;
        Ok(Peer { streams, silent, has_spoken, segment_bytes, segment, ends, standing })
    }

    /// Its segment, where that is mapped and it is not lost.
    pub(super) fn mapped(&self) -> Option<&Segment> {
        self.segment.as_ref().filter(|_| self.standing.lost().is_none())
    }

    /// It is lost: its memory is of no use any more.
    pub(super) fn lose(&self, why: Lost) {
        self.standing.lose(why);
        self.segment.iter().for_each(Segment::give_up);
    }

    /// Whether it is not lost, nor will be once somebody polls.
    pub(super) fn is_there(&self) -> bool {
        let is_silent = |silent: &Closable| {
            let Some(silent) = silent.get() else { return false };
            let heard = recv(silent, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            matches!(heard, Err(Errno::AGAIN | Errno::INTR))
        };
        let has_spoken = lock(&self.has_spoken);
        self.standing.lost().is_none() && !*has_spoken && self.silent.as_ref().is_none_or(is_silent)
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
