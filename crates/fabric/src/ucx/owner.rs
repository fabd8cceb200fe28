//! The thread that owns a worker: it does what it is told, and sleeps when there is nothing to do.

use super::Shared;
use super::worker::{Endpoint, Key, Request, Worker};
use crate::conduit::Lost;
use crate::error::Error;
use crate::windows::{Begin, Owner as Keeper, Window, WindowRun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
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
    Open(Open),
    /// A peer's socket has ended, or it is broken.
    Lose(usize, Lost),
    /// Say all that was sent, and end.
    Stop,
}

/// Bytes that whoever waits for `done` keeps.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) to: usize,
    /// What of the peer's they go to, and its segment where that is none.
    pub(crate) window: Option<Window>,
    pub(crate) runs: Vec<WindowRun>,
    pub(crate) done: SyncSender<bool>,
}

/// Memory that others may put to from now on.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) owner: Keeper,
    pub(crate) begin: Begin,
    /// What they need for that.
    pub(crate) done: SyncSender<Result<Vec<u8>, Error>>,
}

/// A peer as others describe it.
pub(crate) struct Described {
    pub(crate) address: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// Where its segment starts, as it sees it.
    pub(crate) start: u64,
}

#[derive(Default)]
struct Peer {
    endpoint: Option<Endpoint>,
    start: u64,
}

impl Peer {
    /// Begins to connect. The endpoint is there also where its key can't be read.
    fn connect(&mut self, worker: &Worker<Shared>, described: &Described) -> Result<(), Error> {
        let Described { address, key, start } = described;
        self.start = *start;
        let endpoint = self.endpoint.insert(worker.connect(address)?);
        worker.reach(endpoint, key)
    }
}

/// A put whose runs go on; whichever ends last waits for all to arrive.
struct Putting {
    put: Put,
    key: Option<Key>,
    left: Cell<usize>,
    has_failed: Cell<bool>,
}

/// What goes on, and what it keeps.
enum Pending {
    Send {
        _bytes: Vec<u8>,
    },
    Run(Rc<Putting>),
    /// A put whose runs have left, and are to arrive.
    Flush(Rc<Putting>),
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
    /// Connects to all that are described. Where it can't, it stops.
    pub(crate) fn new(
        worker: Worker<Shared>,
        shared: Arc<Shared>,
        described: &[Option<Described>],
    ) -> Result<Owner, Error> {
        let mut peers: Vec<_> = described.iter().map(|_| Peer::default()).collect();
        let others = peers.iter_mut().zip(described);
        let mut others = others.filter_map(|(peer, described)| Some((peer, described.as_ref()?)));
        let connected = others.try_for_each(|(peer, described)| peer.connect(&worker, described));
        let owner = Owner { worker, shared, peers, pending: Vec::new(), leaving: Vec::new() };
        match connected {
            Ok(()) => Ok(owner),
            Err(error) => {
                owner.stop();
                Err(error)
            }
        }
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
            let Ok(descriptor) = self.worker.descriptor() else { return self.stop() };
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
            Command::Put(put) => self.put(put),
            Command::Open(Open { start, bytes, owner, begin, done }) => {
                begin.call();
                // SAFETY: as who opens a window, or has a segment, says.
                let key = unsafe { self.worker.register((start, bytes), owner) };
                // Who waits for it may be gone only with its thread.
                let _ = done.send(key);
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

    fn put(&mut self, put: Put) {
        let peer = &self.peers[put.to];
        let Some(endpoint) = &peer.endpoint else { return };
        let unpack = |window: &Window| self.worker.unpack(endpoint, &window.key);
        let Ok(key) = put.window.as_ref().map(unpack).transpose() else {
            let _ = put.done.send(false);
            return;
        };
        let there = put.window.as_ref().map_or(peer.start, |window| window.start);
        // One more, so that none is the last before all have begun.
        let left = Cell::new(put.runs.len() + 1);
        let putting = Rc::new(Putting { put, key, left, has_failed: Cell::new(false) });
        for &WindowRun { start, bytes, at } in &putting.put.runs {
            let Some(endpoint) = &self.peers[putting.put.to].endpoint else { break };
            let to = (endpoint, putting.key.as_ref());
            // SAFETY: who waits for it keeps the bytes, and the request keeps the key.
            match unsafe { self.worker.put(to, (start, bytes), there.wrapping_add(at)) } {
                Ok(Some(request)) => {
                    self.pending.push((request, Pending::Run(Rc::clone(&putting))));
                }
                put => self.end_run(Rc::clone(&putting), put.is_ok()),
            }
        }
        self.end_run(putting, true);
    }

    /// Waits for all to arrive once no run goes on: also where one has failed, since whoever hears of that may
    /// use anew what the others go to.
    fn end_run(&mut self, putting: Rc<Putting>, has_left: bool) {
        putting.left.set(putting.left.get() - 1);
        putting.has_failed.set(putting.has_failed.get() || !has_left);
        if putting.left.get() > 0 {
            return;
        }
        let endpoint = self.peers[putting.put.to].endpoint.as_ref();
        match endpoint.map(|to| self.worker.flush(to)) {
            Some(Ok(Some(request))) => self.pending.push((request, Pending::Flush(putting))),
            flushed => self.end_put(putting, matches!(flushed, Some(Ok(None)))),
        }
    }

    fn end_put(&self, putting: Rc<Putting>, is_there: bool) {
        // The others have ended before.
        let Some(Putting { put, key, has_failed, .. }) = Rc::into_inner(putting) else { return };
        key.into_iter().for_each(|key| self.worker.forget(key));
        // Who waits for it may be gone only with its thread.
        let _ = put.done.send(is_there && !has_failed.get());
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
                Pending::Run(putting) => self.end_run(putting, ended.is_ok()),
                Pending::Flush(putting) => self.end_put(putting, ended.is_ok()),
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
        for (_, what) in &self.pending {
            if let Pending::Run(putting) | Pending::Flush(putting) = what {
                // Several wait for one put: one of them has it answered.
                let _ = putting.put.done.try_send(false);
            }
        }
        self.worker.end(self.pending);
    }
}
