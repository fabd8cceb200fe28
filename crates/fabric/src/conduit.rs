use crate::error::Error;
use crate::message::Message;
use crate::process::Process;
use crate::segment::Segment;
use crate::windows::{Begin, Owner, Window, WindowRun};
use model::NodeId;
use std::fmt::{self, Debug};
use std::time::Duration;

/// What a conduit can do, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The most bytes of a payload that travels with a message, to whichever peer.
    pub medium_bytes: usize,
    /// How many messages of no payload a peer's queue holds at least: the credits of a sender.
    pub credits: usize,
    /// How long it pays to look for messages again and again before [`Conduit::sleep`].
    pub spin: Duration,
}

/// Two ways to each peer, so that replies find room whatever becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Queue {
    /// Of requests.
    Request,
    /// Of replies, whose handlers send nothing.
    Reply,
}

/// Both.
pub(crate) const QUEUES: [Queue; 2] = [Queue::Request, Queue::Reply];

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The peer's queue is full. Not an error: whoever sleeps is woken when there is room.
    Full,
    /// The peer is lost, and [`Conduit::lost`] says why, or has not joined.
    Lost,
}

/// Why a peer is lost: what it had sent before still comes, but no more is sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Its process has ended, or its machine can't be reached.
    Died,
    /// It has left.
    Left,
    /// It sent what no rank sends; nothing more of it comes.
    Broken,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::Died => "its process has ended, or can't be reached",
            Lost::Left => "it has left",
            Lost::Broken => "it sent what no rank sends",
        })
    }
}

/// Carries messages between the processes of a fabric, and maps their segments.
///
/// Messages are delivered once, whole, and in the order of one sender's one queue. All methods may be
/// called by any thread at any time; none but [`Conduit::sleep`],
/// [`Conduit::leave`] and [`Puts::put`] block.
pub trait Conduit: Debug + Send + Sync {
    /// What it can do; constant over its life, but for how long it pays to look again.
    fn capabilities(&self) -> Capabilities;

    /// The most bytes of a payload that travels with a message between this process and `peer`, of which
    /// both think alike: at least as many as to whichever.
    fn medium_bytes(&self, _peer: NodeId) -> usize {
        self.capabilities().medium_bytes
    }

    /// This process, and how many ranks there are: one more than the highest that has ever joined.
    fn place(&self) -> (NodeId, u32);

    /// How many have joined at the start; others may come later.
    fn founders(&self) -> u32 {
        self.place().1
    }

    /// Whether `peer` has joined, be it lost or not. Whoever sleeps is woken when one has.
    fn has(&self, peer: NodeId) -> bool {
        peer.0 < self.place().1
    }

    /// Sends `message`, which is no longer than [`Conduit::medium_bytes`] says. What this process wrote to memory
    /// before is seen by whoever receives it.
    ///
    /// # Errors
    /// When it is not sent, which says why.
    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal>;

    /// Sends the first of `messages`, of which there is one, as [`Conduit::send`] does each. Returns how
    /// many.
    ///
    /// # Errors
    /// As [`Conduit::send`].
    fn send_some(
        &self,
        to: NodeId,
        queue: Queue,
        messages: &[Message<'_>],
    ) -> Result<usize, Refusal> {
        self.send(to, queue, &messages[0]).map(|()| 1)
    }

    /// Calls `run` for messages that have come, and returns how many, or 1 where only a part of
    /// something long has; none while another thread does so for that queue. Takes a limited number of
    /// each peer's.
    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize;

    /// As [`Conduit::receive`], but may leave out what takes much longer to look at than memory: for who looks
    /// again and again, and calls that at times.
    fn glance(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        self.receive(queue, run)
    }

    /// Sleeps until a message of one of `queues` comes, there is room again for what was refused, a
    /// peer is lost, [`Conduit::wake`] is called, or the time is over; not at all if `is_over`, which
    /// is called once, when all of these would wake. It may also wake for nothing.
    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>);

    /// Wakes whoever sleeps in this process.
    fn wake(&self);

    /// The memory that `peer` published, unless the peer is lost, has not joined, or its memory is
    /// not mapped here. This process's own is.
    fn segment(&self, peer: NodeId) -> Option<&Segment>;

    /// How many bytes a rank published; none where it has not joined.
    fn segment_bytes(&self, peer: NodeId) -> u64;

    /// Why `peer` is lost, if it is; one that has not joined is not.
    fn lost(&self, peer: NodeId) -> Option<Lost>;

    /// The process of `peer`, where that is known and of this machine.
    fn process(&self, _peer: NodeId) -> Option<&Process> {
        None
    }

    /// Parts from all peers: what was sent to them before still comes, but to each other they are
    /// lost, as [`Lost::Left`], and what they sent may not be heard. It may wait a second for peers that
    /// take nothing, which then take this rank for dead. Not for handlers. What drops a conduit leaves
    /// too.
    fn leave(&self);

    /// What puts without messages, where that is faster.
    fn puts(&self) -> Option<&dyn Puts> {
        None
    }

    /// What puts from memory of accelerators to such memory of peers, where the network reaches it.
    fn windows(&self) -> Option<&dyn Windows> {
        None
    }
}

/// Bytes that lie together, and where they go: from which byte of a segment on.
pub type Run<'a> = (u64, &'a [u8]);

/// Puts bytes straight from a buffer into segments that are not mapped.
pub trait Puts {
    /// Puts the first bytes of `runs`, of which there is one, and none is empty: each to where it says
    /// in the segment of a rank, which has room for all of them. Returns how many bytes
    /// of them, one after the other, at least one, which may be reused. It may wait until these are
    /// there, which they are whatever the peer's threads do.
    /// Whoever receives a message that is sent to that queue afterwards sees them.
    ///
    /// # Errors
    /// As [`Conduit::send`].
    fn put(&self, to: NodeId, queue: Queue, runs: &[Run<'_>]) -> Result<usize, Refusal>;

    /// From how many bytes on a run of what has several is better put than sent in a message with
    /// others.
    fn run_bytes(&self) -> u64;
}

/// Puts bytes of accelerators' memory into windows, which is such memory of peers.
pub trait Windows {
    /// Lets all peers put to the `bytes` bytes from address `start` on, until this rank has left; keeps
    /// `owner` until nobody can put there any more. Calls `begin` before, on the thread that will do so.
    ///
    /// # Safety
    ///
    /// They are memory of a device of CUDA's that this process has allocated, and valid while `owner` lives.
    ///
    /// # Errors
    /// What the network says where it doesn't take them.
    unsafe fn open(&self, bytes: (u64, u64), owner: Owner, begin: Begin) -> Result<Window, Error>;

    /// Puts `runs`, of which there is one, and none is empty, to a rank's window, which has room for them.
    /// Blocks until they are there.
    ///
    /// # Safety
    ///
    /// Their bytes are memory of a device of CUDA's that this process has allocated; they are valid, and
    /// nobody writes them, until this returns.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::Io`] where the network doesn't take them, or does not know the window:
    /// what it took of them is there by then.
    unsafe fn put_to_window(
        &self,
        to: NodeId,
        window: &Window,
        runs: &[WindowRun],
    ) -> Result<(), Error>;
}
