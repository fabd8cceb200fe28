//! Where a rank finds what others of its machine send: a bell, and two rings from each of them.

use super::ring::{Found, LINE_WORDS, LINES, RING_WORDS, Reader, Refused, Words, Writer};
use crate::conduit::{QUEUES, Queue};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use crate::message::{Copied, Message};
use crate::segment::Segment;
use model::NodeId;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// How many messages of no payload a ring holds at least.
pub(crate) const CREDITS: usize = LINES - LINES / 4 - 1;

/// The words before the rings: a line that the bell has for itself.
const BELL_WORDS: usize = LINE_WORDS;

/// The most messages that one call takes of each ring.
const BATCH: usize = 32;

/// A rank's mailbox, which others map.
#[derive(Debug)]
pub(crate) struct Mailbox(Segment);

impl Mailbox {
    /// A new one, for messages of so many ranks; who has the descriptor may map it too.
    pub(crate) fn create(capacity: u32) -> Result<(Mailbox, OwnedFd), Error> {
        let (memory, fd) = Segment::create(Mailbox::bytes(capacity))?;
        Ok((Mailbox(memory), fd))
    }

    /// One that another rank has made, if that is for messages of so many.
    pub(crate) fn of(memory: Segment, capacity: u32) -> Option<Mailbox> {
        (memory.bytes() == Mailbox::bytes(capacity)).then_some(Mailbox(memory))
    }

    fn bytes(capacity: u32) -> u64 {
        8 * (BELL_WORDS + capacity as usize * QUEUES.len() * RING_WORDS) as u64
    }

    /// What its rank's threads sleep on, or say that they sleep.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        self.0.bell()
    }

    /// The memory, which all know.
    pub(crate) fn memory(&self) -> &Segment {
        &self.0
    }

    /// The ring that `from` writes.
    pub(crate) fn ring(&self, from: usize, queue: Queue) -> Words<'_> {
        let start = BELL_WORDS + (from * QUEUES.len() + queue as usize) * RING_WORDS;
        Words(&self.0.words()[start..start + RING_WORDS])
    }
}

/// A rank's mailbox, for who writes to it.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) mailbox: Mailbox,
    /// By queue.
    writers: [Mutex<Writer>; 2],
}

impl Outbox {
    pub(crate) fn new(mailbox: Mailbox) -> Outbox {
        Outbox { mailbox, writers: Default::default() }
    }

    /// Appends `message` of rank `from`, which is always the same.
    pub(crate) fn push(
        &self,
        from: usize,
        queue: Queue,
        message: &Message<'_>,
    ) -> Result<(), Refused> {
        lock(&self.writers[queue as usize]).push(self.mailbox.ring(from, queue), message)
    }
}

/// Those that write to a mailbox.
pub(crate) trait Senders {
    /// Which there are.
    fn ranks(&self) -> impl Iterator<Item = usize>;

    /// Whether what it sends is taken; also what it had sent before it died or left.
    fn is_heard(&self, from: usize) -> bool;

    /// It has sent what no rank sends.
    fn condemn(&self, from: usize);

    /// Wakes whoever of it sleeps.
    fn wake_sender(&self, from: usize);
}

/// What reads a mailbox, by queue.
#[derive(Debug)]
pub(crate) struct Inbox([Mutex<Readers>; 2]);

#[derive(Debug)]
struct Readers {
    /// By sender.
    readers: Vec<Reader>,
    copied: Copied,
}

impl Inbox {
    /// Of a mailbox for messages of so many.
    pub(crate) fn new(capacity: u32) -> Inbox {
        let readers = || (0..capacity).map(|_| Reader::default()).collect();
        Inbox(QUEUES.map(|_| Mutex::new(Readers { readers: readers(), copied: Copied::new() })))
    }

    /// As [`Conduit::receive`](crate::Conduit::receive), of the rank's own mailbox.
    pub(crate) fn receive(
        &self,
        (own, senders): (&Mailbox, &impl Senders),
        queue: Queue,
        run: &mut dyn FnMut(NodeId, Message<'_>),
    ) -> usize {
        let Some(mut inbox) = try_lock(&self.0[queue as usize]) else { return 0 };
        let Readers { readers, copied } = &mut *inbox;
        let mut count = 0;
        for from in senders.ranks() {
            let (ring, reader) = (own.ring(from, queue), &mut readers[from]);
            for _ in 0..BATCH {
                if !reader.is_ready(ring) || !senders.is_heard(from) {
                    break;
                }
                match reader.pop(ring, copied) {
                    Found::Nothing => break,
                    Found::Broken => {
                        senders.condemn(from);
                        break;
                    }
                    Found::Message { wakes } => {
                        if wakes {
                            senders.wake_sender(from);
                        }
                        count += 1;
                        copied.with(|message| run(NodeId(from as u32), message));
                    }
                }
            }
        }
        count
    }

    /// Whether there may be something to receive.
    pub(crate) fn is_ready(&self, (own, senders): (&Mailbox, &impl Senders), queue: Queue) -> bool {
        // Whoever has it may have looked before something came.
        let Some(inbox) = try_lock(&self.0[queue as usize]) else { return true };
        let is_ready = |from: usize| inbox.readers[from].is_ready(own.ring(from, queue));
        senders.ranks().any(|from| senders.is_heard(from) && is_ready(from))
    }
}
