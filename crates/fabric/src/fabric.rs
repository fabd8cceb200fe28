use crate::active::{Call, Handlers};
use crate::atomic::Atomic;
use crate::barrier::{self, Rounds};
use crate::conduit::{Capabilities, Conduit, Lost, Puts, Queue, Refusal, Run};
#[cfg(not(feature = "ucx"))]
use crate::config::ROOT;
use crate::config::{Config, Root};
use crate::error::Error;
use crate::held;
use crate::message::{MOST_ARGS, Message, Payload};
use crate::nearby;
use crate::patience::{self, Heard};
use crate::process::Ends;
use crate::progress::drained;
use crate::remote::{self, Asked};
use crate::segment::Segment;
use crate::shm::Shm;
use crate::tcp::Tcp;
use crate::turn::Turn;
#[cfg(feature = "ucx")]
use crate::ucx::Ucx;
use model::NodeId;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

/// A process among others: sends them active messages, and reads and writes what they published.
///
/// Messages are delivered once and in no promised order. Somebody has to poll for handlers to run:
/// every call that waits does, [`Fabric::poll`], and the thread of a [`Service`](crate::Service). Puts
/// and gets need nobody at the other end, unless the conduit maps no memory. All methods may be called
/// by any thread; handlers of requests run one at a time, as do those of replies. Dropping it leaves:
/// peers that go on speaking to it get [`Error::PeerLost`].
#[derive(Debug)]
pub struct Fabric {
    /// Dropped before the conduit, which its thread has too: that is left here, and not there.
    pub(crate) ends: Ends,
    pub(crate) conduit: Arc<dyn Conduit>,
    handlers: Handlers,
    rounds: Rounds,
    asked: Asked,
    pub(crate) heard: Heard,
    /// By queue.
    turns: [Turn; 2],
}

impl Fabric {
    /// Joins the ranks that `config` speaks of, over the conduit that its root says; returns when all
    /// have, or, where this rank comes later, when all that there are reach it.
    ///
    /// # Errors
    /// As [`Shm::join`] and [`Tcp::join`].
    pub fn join(config: &Config, handlers: Handlers) -> Result<Fabric, Error> {
        let conduit: Box<dyn Conduit> = match config.check()? {
            Root::Local(_) => Box::new(Shm::join(config)?),
            Root::At(_) => nearby::join(config, |near| Tcp::join_near(config, near))?,
            #[cfg(feature = "ucx")]
            Root::Ucx(_) => nearby::join(config, |near| Ucx::join_near(config, near))?,
            #[cfg(not(feature = "ucx"))]
            Root::Ucx(_) => {
                let why = "this program was built without UCX".to_owned();
                return Err(Error::Config { name: ROOT, why });
            }
        };
        Ok(Fabric::over(conduit, handlers))
    }

    /// A fabric over any conduit.
    #[must_use]
    pub fn over(conduit: Box<dyn Conduit>, handlers: Handlers) -> Fabric {
        let handlers = handlers.with_any(barrier::HANDLER, Box::new(barrier::arrived));
        let handlers = remote::handlers(handlers);
        let rounds = Rounds::new(conduit.founders());
        let (asked, turns) = Default::default();
        let (ends, conduit, heard) = (Ends::default(), Arc::from(conduit), Heard::new());
        Fabric { ends, conduit, handlers, rounds, asked, heard, turns }
    }

    /// This process.
    #[must_use]
    pub fn rank(&self) -> NodeId {
        self.conduit.place().0
    }

    /// How many ranks there are: one more than the highest that has ever joined, as far as this one
    /// knows.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.conduit.place().1
    }

    /// How many have joined at the start.
    #[must_use]
    pub fn founders(&self) -> u32 {
        self.conduit.founders()
    }

    /// Whether `peer` has joined, be it lost or not. Of those that come later it may be known to some
    /// ranks before others, and one that fails to join may leave its number to nobody.
    #[must_use]
    pub fn has(&self, peer: NodeId) -> bool {
        self.conduit.has(peer)
    }

    /// What messages may be.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.conduit.capabilities()
    }

    /// The most bytes of a payload that travels with a message to `peer`, which may be more than
    /// [`Fabric::capabilities`] says of whichever.
    #[must_use]
    pub fn medium_bytes(&self, peer: NodeId) -> usize {
        self.conduit.medium_bytes(peer)
    }

    /// The memory that this process published.
    ///
    /// # Panics
    /// Never: a process's own memory is mapped.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        self.conduit.segment(self.rank()).expect("a process's own memory is mapped")
    }

    /// Whether this process reaches what `peer` published by itself, so that puts and gets are over
    /// when they return, and wait for nobody.
    #[must_use]
    #[inline]
    pub fn reaches(&self, peer: NodeId) -> bool {
        self.mapped(peer).is_some()
    }

    /// Why `peer` is lost, if it is.
    #[must_use]
    pub fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.conduit.lost(peer)
    }

    /// Sends a short or medium request: handler `handler` of `to` runs with `args`, up to 16, and
    /// `bytes`. Both may be reused at once. Waits for room as long as that peer lives, and runs
    /// handlers meanwhile.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::TooLong`], [`Error::PeerLost`]; [`Error::InHandler`] in a
    /// handler.
    pub fn request(
        &self,
        to: NodeId,
        handler: u8,
        args: &[u32],
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.outside("send requests")?;
        let message = Message { handler, args, payload: Payload::of(bytes), rest: &[] };
        self.send(to, Queue::Request, &message)
    }

    /// As [`Fabric::request`], but does not wait for room: returns whether it was sent. Where it was
    /// not, [`Fabric::wait_until`] looks again when there is room.
    ///
    /// # Errors
    /// As [`Fabric::request`].
    pub fn try_request(
        &self,
        to: NodeId,
        handler: u8,
        args: &[u32],
        bytes: &[u8],
    ) -> Result<bool, Error> {
        self.outside("send requests")?;
        let message = Message { handler, args, payload: Payload::of(bytes), rest: &[] };
        self.check_message(to, &message)?;
        match self.conduit.send(to, Queue::Request, &message) {
            Ok(()) => Ok(true),
            Err(Refusal::Full) => Ok(false),
            Err(Refusal::Lost) => Err(self.lost_error(to)),
        }
    }

    /// Sends a long request: puts `bytes` at byte `at` of the segment of `to` before the handler
    /// runs.
    ///
    /// # Errors
    /// As [`Fabric::request`], and [`Error::OutOfBounds`].
    pub fn request_long(
        &self,
        to: NodeId,
        handler: u8,
        args: &[u32],
        (bytes, at): (&[u8], u64),
    ) -> Result<(), Error> {
        self.outside("send requests")?;
        let payload = self.place(Queue::Request, (to, at), bytes)?;
        self.send(to, Queue::Request, &Message { handler, args, payload, rest: &[] })
    }

    /// Copies `bytes` to byte `at` of the segment of `to`; it is there on return.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::OutOfBounds`], [`Error::PeerLost`].
    #[inline]
    pub fn put(&self, to: NodeId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match self.mapped(to) {
            Some(segment) => {
                segment.write(at, bytes).ok_or_else(|| self.beyond(to, at, bytes.len()))
            }
            None => self.put_nb(to, at, bytes)?.wait(None),
        }
    }

    /// Copies what is from byte `at` on of the segment of `from` to `bytes`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    #[inline]
    pub fn get(&self, from: NodeId, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        match self.mapped(from) {
            Some(segment) => {
                segment.read(at, bytes).ok_or_else(|| self.beyond(from, at, bytes.len()))?;
                self.check_still(from)
            }
            None => self.get_in_turns(from, at, bytes),
        }
    }

    /// Stores a word at byte `at`, a multiple of 8, of the segment of `to`. Whoever gets it by
    /// [`Fabric::get_word`] sees what was put before it.
    ///
    /// # Errors
    /// As [`Fabric::put`]; [`Error::OutOfBounds`] too where `at` is no multiple of 8.
    #[inline]
    pub fn put_word(&self, to: NodeId, at: u64, word: u64) -> Result<(), Error> {
        match self.word(to, at)? {
            Some(place) => place.store(word, Ordering::Release),
            None => _ = self.ask_atomic(to, at, Atomic::Swap(word))?,
        }
        Ok(())
    }

    /// The word at byte `at`, a multiple of 8, of the segment of `from`.
    ///
    /// # Errors
    /// As [`Fabric::put_word`].
    #[inline]
    pub fn get_word(&self, from: NodeId, at: u64) -> Result<u64, Error> {
        match self.word(from, at)? {
            Some(place) => {
                let word = place.load(Ordering::Acquire);
                self.check_still(from)?;
                Ok(word)
            }
            None => self.ask_atomic(from, at, Atomic::Or(0)),
        }
    }

    /// Sets `bytes` bytes from `at` on of the segment of `to`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    pub fn fill(&self, to: NodeId, place: (u64, usize), value: u8) -> Result<(), Error> {
        self.fill_nb(to, place, value)?.wait(None)
    }

    /// Stores the low `bytes` bytes of `value`, at most 8, as this machine orders them.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    ///
    /// # Panics
    /// Where `bytes` is more than 8.
    #[inline]
    pub fn put_value(&self, to: NodeId, at: u64, value: u64, bytes: usize) -> Result<(), Error> {
        self.put(to, at, &value.to_le_bytes()[..bytes])
    }

    /// The number whose low `bytes` bytes, at most 8, lie at byte `at`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    ///
    /// # Panics
    /// Where `bytes` is more than 8.
    #[inline]
    pub fn get_value(&self, from: NodeId, at: u64, bytes: usize) -> Result<u64, Error> {
        let mut value = [0; 8];
        self.get(from, at, &mut value[..bytes])?;
        Ok(u64::from_le_bytes(value))
    }

    /// Leaves, as dropping it does: peers that go on speaking to this rank get [`Error::PeerLost`], as
    /// it does when it speaks to them. What it sent before still comes; what others have sent may not be
    /// heard. It may wait a second for peers that take nothing, which then take this rank for dead.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler or a [`NoInterrupt`](crate::NoInterrupt) section.
    pub fn leave(&self) -> Result<(), Error> {
        self.outside("leave")?;
        self.conduit.leave();
        Ok(())
    }

    pub(crate) fn turn(&self, queue: Queue) -> &Turn {
        &self.turns[queue as usize]
    }

    pub(crate) fn asked(&self) -> &Asked {
        &self.asked
    }

    pub(crate) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Puts the payload of a long message where it is to be.
    pub(crate) fn place(
        &self,
        queue: Queue,
        (to, at): (NodeId, u64),
        bytes: &[u8],
    ) -> Result<Payload<'static>, Error> {
        let length = u32::try_from(bytes.len());
        let length = length.map_err(|_| too_long(0, bytes.len(), u32::MAX as usize))?;
        self.check(to, at, bytes.len())?;
        match self.mapped(to) {
            Some(_) => self.put(to, at, bytes)?,
            None => self.put_ahead(queue, (to, at), bytes)?,
        }
        Ok(Payload::Placed { at, bytes: length })
    }

    /// Sends `message`, as soon as there is room for it.
    pub(crate) fn send(
        &self,
        to: NodeId,
        queue: Queue,
        message: &Message<'_>,
    ) -> Result<(), Error> {
        self.check_message(to, message)?;
        self.until_taken((to, queue), || self.conduit.send(to, queue, message))
    }

    /// As [`Fabric::send`], several in their order.
    pub(crate) fn send_all(
        &self,
        to: NodeId,
        queue: Queue,
        mut messages: &[Message<'_>],
    ) -> Result<(), Error> {
        messages.iter().try_for_each(|message| self.check_message(to, message))?;
        while !messages.is_empty() {
            let send = || self.conduit.send_some(to, queue, messages);
            messages = &messages[self.until_taken((to, queue), send)?..];
        }
        Ok(())
    }

    /// Puts `runs`, none of which is empty, within the segment of a rank that there is, without
    /// messages.
    pub(crate) fn put_directly(
        &self,
        puts: &dyn Puts,
        queue: Queue,
        to: NodeId,
        mut runs: &mut [Run<'_>],
    ) -> Result<(), Error> {
        while !runs.is_empty() {
            let mut taken = self.until_taken((to, queue), || puts.put(to, queue, runs))?;
            while let Some((at, bytes)) = runs.first_mut()
                && taken > 0
            {
                let some = taken.min(bytes.len());
                (*at, *bytes, taken) = (*at + some as u64, &bytes[some..], taken - some);
                if bytes.is_empty() {
                    runs = &mut runs[1..];
                }
            }
        }
        Ok(())
    }

    /// Gives something to the conduit, as soon as there is room for it, and takes what comes meanwhile.
    fn until_taken<T: Copy>(
        &self,
        (to, queue): (NodeId, Queue),
        give: impl Fn() -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        let given = Cell::new(give());
        let try_again = || {
            given.set(give());
            !matches!(given.get(), Err(Refusal::Full))
        };
        let mut since = None;
        loop {
            let Err(Refusal::Full) = given.get() else {
                return given.get().map_err(|_| self.lost_error(to));
            };
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            // Replies are waited for whatever thread sends them: who asked has nothing else.
            let most = patience::most().filter(|_| queue == Queue::Request);
            let is_silent = || most.is_some_and(|most| waited.min(self.silence(to)) >= most);
            // Also this process may have been stopped meanwhile.
            if self.drain(queue) > 0 || is_silent() {
                if !try_again() && is_silent() {
                    return Err(Error::Silent { peer: to, waited });
                }
            } else {
                // From here on room wakes, so there is one more try before it sleeps.
                self.sleep(drained(queue), try_again, most);
            }
        }
    }

    pub(crate) fn check_message(&self, to: NodeId, message: &Message<'_>) -> Result<(), Error> {
        if !self.has(to) {
            return Err(self.unreachable(to));
        }
        let most = self.conduit.medium_bytes(to);
        if !message.fits(most) {
            return Err(too_long(message.args.len(), message.bytes(), most));
        }
        Ok(())
    }

    pub(crate) fn conduit(&self) -> &dyn Conduit {
        &*self.conduit
    }

    pub(crate) fn run(&self, (from, queue): (NodeId, Queue), message: Message<'_>) {
        let bytes = self.segment().bytes();
        if let Payload::Placed { at, bytes: placed } = message.payload
            && at.checked_add(placed.into()).is_none_or(|end| end > bytes)
        {
            let rank = from.0;
            return log::warn!("dropped a long message of rank {rank}: beyond {bytes} B");
        }
        match self.handlers.get(message.handler) {
            Some(handler) => handler(&Call::new(self, (from, queue), message)),
            None => {
                let (rank, index) = (from.0, message.handler);
                log::warn!("dropped a message of rank {rank}: there is no handler {index}");
            }
        }
    }

    /// The word at byte `at` of a segment, unless that is not mapped.
    #[inline]
    pub(crate) fn word(&self, of: NodeId, at: u64) -> Result<Option<&AtomicU64>, Error> {
        let Some(segment) = self.mapped(of) else { return Ok(None) };
        segment.word(at).ok_or_else(|| self.beyond(of, at, 8)).map(Some)
    }

    /// What `peer` published, where this process can reach it by itself.
    #[inline]
    pub(crate) fn mapped(&self, peer: NodeId) -> Option<&Segment> {
        self.conduit.segment(peer)
    }

    /// That `peer` was not lost while its mapped segment was read, which is zero from then on.
    #[inline]
    pub(crate) fn check_still(&self, peer: NodeId) -> Result<(), Error> {
        // Looked at after what was read.
        fence(Ordering::Acquire);
        if self.mapped(peer).is_some() { Ok(()) } else { Err(self.lost_error(peer)) }
    }

    /// How many bytes a rank published; none where there is no such rank.
    #[must_use]
    pub fn published_bytes(&self, peer: NodeId) -> usize {
        self.conduit.segment_bytes(peer) as usize
    }

    /// That `peer` is there and published so many bytes from `at` on.
    pub(crate) fn check(&self, peer: NodeId, at: u64, bytes: usize) -> Result<(), Error> {
        if !self.has(peer) || self.lost(peer).is_some() {
            return Err(self.unreachable(peer));
        }
        let end = at.checked_add(bytes as u64);
        let fits = end.is_some_and(|end| end <= self.conduit.segment_bytes(peer));
        if fits { Ok(()) } else { Err(self.beyond(peer, at, bytes)) }
    }

    #[cold]
    fn unreachable(&self, peer: NodeId) -> Error {
        match self.has(peer) {
            true => self.lost_error(peer),
            false => Error::NoSuchPeer { peer, size: self.size() },
        }
    }

    /// That `peer` was there at the start.
    pub(crate) fn check_founder(&self, peer: NodeId) -> Result<(), Error> {
        let founders = self.founders();
        if peer.0 < founders { Ok(()) } else { Err(Error::Late { peer, founders }) }
    }

    pub(crate) fn outside(&self, what: &'static str) -> Result<(), Error> {
        if held::is_held() { Err(Error::InHandler { what }) } else { Ok(()) }
    }

    #[cold]
    pub(crate) fn beyond(&self, peer: NodeId, at: u64, bytes: usize) -> Error {
        let of = self.conduit.segment_bytes(peer);
        Error::OutOfBounds { peer, at, bytes: bytes as u64, of }
    }

    pub(crate) fn lost_error(&self, peer: NodeId) -> Error {
        Error::PeerLost { peer, why: self.conduit.lost(peer).unwrap_or(Lost::Died) }
    }
}

#[cold]
fn too_long(args: usize, bytes: usize, most_bytes: usize) -> Error {
    Error::TooLong { args, bytes, most_args: MOST_ARGS, most_bytes }
}
