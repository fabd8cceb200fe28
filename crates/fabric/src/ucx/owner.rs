//! The thread that owns a worker: it does what it is told, and sleeps when there is nothing to do.

use super::Shared;
use super::worker::{Endpoint, Request, Worker};
use crate::conduit::Lost;
use crate::error::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// The bytes of a message before its frame.
pub(crate) const HEADER: usize = 16;

/// How long a rank that leaves waits for others to take what it has sent, and how long one that heard
/// that waits for it.
pub(crate) const LEAVING: Duration = Duration::from_secs(1);

/// How long it looks for more after something came or went before it sleeps, which costs more than that.
const SPIN: Duration = Duration::from_micros(50);

/// What the thread is told to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a header and a frame.
    Send(usize, Vec<u8>),
    Put(Put),
    /// A peer's socket has ended, or it is broken.
    Lose(usize, Lost),
    /// Say all that was sent, and end.
    Stop,
}

/// Bytes that whoever waits for `done` keeps.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) to: usize,
    pub(crate) start: *const u8,
    pub(crate) length: usize,
    pub(crate) at: u64,
    pub(crate) done: SyncSender<bool>,
}

// SAFETY: the bytes are only read, and kept by who waits.
unsafe impl Send for Put {}

/// A peer as others describe it.
pub(crate) struct Described {
    pub(crate) address: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// Where its segment starts, as it sees it.
    pub(crate) start: u64,
}

struct Peer {
    endpoint: Option<Endpoint>,
    start: u64,
}

/// What goes on, and what it keeps.
enum Pending {
    Send {
        _bytes: Vec<u8>,
    },
    Put(Put),
    /// A put that has left, and is to arrive.
    Flush(Put),
    Close,
}

pub(crate) struct Owner {
    worker: Worker<Shared>,
    shared: Arc<Shared>,
    peers: Vec<Peer>,
    pending: Vec<(Request, Pending)>,
    /// Who has said farewell by its socket, and until when what it sent may come.
    leaving: Vec<(usize, Instant)>,
}

impl Owner {
    pub(crate) fn new(
        worker: Worker<Shared>,
        shared: Arc<Shared>,
        described: &[Option<Described>],
    ) -> Result<Owner, Error> {
        let connect = |described: &Option<Described>| {
            let Some(Described { address, key, start }) = described else {
                return Ok(Peer { endpoint: None, start: 0 });
            };
            Ok(Peer { endpoint: Some(worker.connect(address, key)?), start: *start })
        };
        let peers = described.iter().map(connect).collect::<Result<_, Error>>()?;
        Ok(Owner { worker, shared, peers, pending: Vec::new(), leaving: Vec::new() })
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut busy_until = Instant::now();
        loop {
            let mut is_busy = false;
            while let Some(command) = shared.command() {
                is_busy = true;
                match command {
                    Command::Stop => return self.stop(),
                    command => self.obey(command),
                }
            }
            is_busy |= self.progress();
            let now = Instant::now();
            if is_busy {
                busy_until = now + SPIN;
            }
            if now < busy_until {
                // Whoever waits for what has come may want the core.
                std::thread::yield_now();
                continue;
            }
            let Ok(bell) = shared.owner.hang() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if shared.is_told() || !self.worker.arm() {
                continue;
            }
            let Ok(descriptor) = self.worker.descriptor() else { return };
            let mut fds = [
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN),
            ];
            // Woken, interrupted or over: all is looked at anyway.
            let _ = poll(&mut fds, self.left().as_ref());
        }
    }

    /// How long it may sleep.
    fn left(&self) -> Option<Timespec> {
        let end = self.leaving.iter().map(|(_, end)| *end).min()?;
        Timespec::try_from(end.saturating_duration_since(Instant::now())).ok()
    }

    /// Makes what progress there is; returns whether there was any.
    fn progress(&mut self) -> bool {
        let mut any = false;
        while self.worker.progress() {
            any = true;
            self.settle();
        }
        self.settle();
        let now = Instant::now();
        let late = self.leaving.extract_if(.., |(_, end)| *end <= now);
        let late: Vec<_> = late.map(|(peer, _)| peer).collect();
        late.into_iter().for_each(|peer| self.lose(peer, Lost::Left));
        any
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send(to, bytes) => {
                let Some(endpoint) = &self.peers[to].endpoint else { return };
                let parts = bytes.split_at(HEADER);
                // SAFETY: both are kept with the request, and their bytes don't move with it.
                let sent = unsafe { self.worker.send(endpoint, parts) };
                if let Ok(Some(request)) = sent {
                    self.pending.push((request, Pending::Send { _bytes: bytes }));
                }
            }
            Command::Put(put) => {
                let peer = &self.peers[put.to];
                let Some(endpoint) = &peer.endpoint else { return };
                let place = peer.start + put.at;
                // SAFETY: who waits for it keeps the bytes.
                let sent = unsafe { self.worker.put(endpoint, (put.start, put.length), place) };
                match sent {
                    Ok(Some(request)) => self.pending.push((request, Pending::Put(put))),
                    Ok(None) => self.flush(put),
                    Err(_) => answer(&put, false),
                }
            }
            Command::Lose(peer, Lost::Left) => {
                self.leaving.push((peer, Instant::now() + LEAVING));
            }
            Command::Lose(peer, why) => {
                // What it had sent before still comes.
                if why == Lost::Died {
                    self.progress();
                }
                self.lose(peer, why);
            }
            Command::Stop => {}
        }
    }

    fn flush(&mut self, put: Put) {
        let Some(endpoint) = &self.peers[put.to].endpoint else { return answer(&put, false) };
        match self.worker.flush(endpoint) {
            Ok(Some(request)) => self.pending.push((request, Pending::Flush(put))),
            flushed => answer(&put, flushed.is_ok()),
        }
    }

    fn lose(&mut self, peer: usize, why: Lost) {
        self.leaving.retain(|(leaving, _)| *leaving != peer);
        if let Some(endpoint) = self.peers[peer].endpoint.take()
            && let Some(request) = self.worker.close(endpoint, true)
        {
            self.pending.push((request, Pending::Close));
        }
        self.shared.lose(peer, why);
    }

    /// Takes what is over.
    fn settle(&mut self) {
        let mut i = 0;
        while i < self.pending.len() {
            let Some(ended) = self.worker.ended(&self.pending[i].0) else {
                i += 1;
                continue;
            };
            let (request, what) = self.pending.swap_remove(i);
            self.worker.free(request);
            match what {
                Pending::Put(put) if ended.is_ok() => self.flush(put),
                Pending::Put(put) | Pending::Flush(put) => answer(&put, ended.is_ok()),
                Pending::Send { .. } | Pending::Close => {}
            }
        }
    }

    /// Waits a while for all to be over, and ends.
    fn stop(mut self) {
        self.shared.obey_no_more();
        let endpoints: Vec<_> = self.peers.iter_mut().filter_map(|p| p.endpoint.take()).collect();
        for endpoint in endpoints {
            if let Some(request) = self.worker.close(endpoint, false) {
                self.pending.push((request, Pending::Close));
            }
        }
        let end = Instant::now() + LEAVING;
        while !self.pending.is_empty() && Instant::now() < end {
            self.progress();
            std::thread::yield_now();
        }
    }
}

/// Who waits for it may be gone only with its thread.
fn answer(put: &Put, is_there: bool) {
    let _ = put.done.send(is_there);
}
