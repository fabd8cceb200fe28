//! Active messages: handlers, and what they are called with.

use crate::conduit::Queue;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::held;
use crate::message::{Message, Payload};
use model::NodeId;
use std::cell::Cell;
use std::fmt;

/// Runs when a message comes, on a thread that polls. It may reply once, to a request; it may not
/// send requests, wait, or poll, nor hold a lock that handlers of replies take while it replies. It
/// should be short: others wait for it.
pub type Handler = Box<dyn Fn(&Call<'_>) + Send + Sync>;

/// Clients' handlers have indices from here on; GASNet keeps those below for itself.
const FIRST: u8 = 128;

/// The handlers of a process, by index.
pub struct Handlers {
    table: Vec<Option<Handler>>,
}

impl Default for Handlers {
    fn default() -> Self {
        Handlers { table: (0..=u8::MAX).map(|_| None).collect() }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = |i: &u8| self.table[usize::from(*i)].is_some();
        f.debug_set().entries((0..=u8::MAX).filter(taken)).finish()
    }
}

impl Handlers {
    /// None yet.
    #[must_use]
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Adds a handler.
    ///
    /// # Panics
    /// Where `index` is less than 128, or taken.
    #[must_use]
    pub fn with(self, index: u8, handler: impl Fn(&Call<'_>) + Send + Sync + 'static) -> Handlers {
        assert!(index >= FIRST, "handlers have indices from {FIRST} on, not {index}");
        self.with_any(index, Box::new(handler))
    }

    pub(crate) fn with_any(mut self, index: u8, handler: Handler) -> Handlers {
        let place = &mut self.table[usize::from(index)];
        assert!(place.is_none(), "there is a handler {index} already");
        *place = Some(handler);
        self
    }

    pub(crate) fn get(&self, index: u8) -> Option<&Handler> {
        self.table[usize::from(index)].as_ref()
    }
}

/// A message that has come.
pub struct Call<'a> {
    fabric: &'a Fabric,
    source: NodeId,
    message: Message<'a>,
    may_reply: Cell<bool>,
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Call");
        f.field("source", &self.source).field("message", &self.message).finish_non_exhaustive()
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        fabric: &'a Fabric,
        (source, queue): (NodeId, Queue),
        message: Message<'a>,
    ) -> Call<'a> {
        Call { fabric, source, message, may_reply: Cell::new(queue == Queue::Request) }
    }

    /// Who sent it.
    #[must_use]
    pub fn source(&self) -> NodeId {
        self.source
    }

    /// Its arguments.
    #[must_use]
    pub fn args(&self) -> &'a [u32] {
        self.message.args
    }

    /// What it carries besides. Placed bytes were there before the handler was called, and are inside
    /// this process's segment.
    #[must_use]
    pub fn payload(&self) -> Payload<'a> {
        self.message.payload
    }

    /// The fabric it came by: to read placed bytes.
    #[must_use]
    pub fn fabric(&self) -> &'a Fabric {
        self.fabric
    }

    /// The most bytes that an answer has.
    pub(crate) fn medium_bytes(&self) -> usize {
        self.fabric.conduit().medium_bytes(self.source)
    }

    /// Sends a short or medium reply, which runs handler `handler` where the request came from.
    /// Waits for room as long as that peer lives.
    ///
    /// # Errors
    /// [`Error::InHandler`] where this is no request, was replied to, or handlers are held off;
    /// [`Error::TooLong`]; [`Error::PeerLost`].
    pub fn reply(&self, handler: u8, args: &[u32], bytes: &[u8]) -> Result<(), Error> {
        self.send(&Message { handler, args, payload: Payload::of(bytes), rest: &[] })
    }

    /// Sends a long reply: puts `bytes` at byte `at` of the requester's segment before the handler
    /// runs there.
    ///
    /// # Errors
    /// As [`Call::reply`], and [`Error::OutOfBounds`].
    pub fn reply_long(
        &self,
        handler: u8,
        args: &[u32],
        (bytes, at): (&[u8], u64),
    ) -> Result<(), Error> {
        let payload = self.fabric.place(Queue::Reply, (self.source, at), bytes)?;
        self.send(&Message { handler, args, payload, rest: &[] })
    }

    fn send(&self, message: &Message<'_>) -> Result<(), Error> {
        if !self.may_reply.get() {
            return Err(Error::InHandler { what: "reply but once, and to a request" });
        }
        if held::is_held_twice() {
            return Err(Error::InHandler { what: "reply while it holds handlers off" });
        }
        self.fabric.send(self.source, Queue::Reply, message)?;
        self.may_reply.set(false);
        Ok(())
    }
}
