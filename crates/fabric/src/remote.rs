//! Memory of peers that the conduit does not map: puts, gets, fills and atomics in terms of active
//! messages alone, which is all that a conduit must have.
//!
//! **Hazard.** An answer comes late, twice, from whom it was not asked of, or never; what is asked
//! lies outside of the memory. **Guarantee.** An answer is for one thing asked of that peer, and goes
//! nowhere once nobody waits for it. Who is asked looks at the bounds again. **Structure.** A
//! [`Ticket`] is what was asked, whose number travels with the question. The messages of one put are
//! in the order of one queue, so that its last one alone is answered.

use crate::active::{Call, Handlers};
use crate::atomic::Atomic;
use crate::conduit::Queue;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::message::{Message, Payload};
use crate::scratch::Scratch;
use crate::strided;
use model::NodeId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PUT: u8 = 1;
const GET: u8 = 2;
const FILL: u8 = 3;
const ATOMIC: u8 = 4;
const DONE: u8 = 5;
pub(crate) const DATA: u8 = 6;

/// Where a conduit puts without messages, what is no longer than this still goes in one: one system
/// call less outweighs one copy more.
const PACKED_BYTES: usize = 4096;

/// The number of what nobody waits for.
const NO_ONE: u64 = 0;

/// What was asked of others and is not over.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    peer: NodeId,
    /// How many answers are to come.
    left: usize,
    answer: Answer,
}

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What a get asked for.
    pub(crate) bytes: Vec<u8>,
    /// What an atomic found.
    pub(crate) word: u64,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer of `from`; `None` where that is none.
    fn answer(
        &self,
        id: u64,
        from: NodeId,
        take: impl FnOnce(&mut Answer) -> Option<()>,
    ) -> Option<()> {
        let mut table = self.lock();
        // Nobody waits for it any more.
        let Some(open) = table.open.get_mut(&id) else { return Some(()) };
        if open.peer != from {
            return None;
        }
        open.left = open.left.checked_sub(1)?;
        take(&mut open.answer)
    }
}

/// Something asked of a peer; its answer goes nowhere when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    fabric: &'a Fabric,
    id: u64,
    peer: NodeId,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.fabric.asked().lock().open.remove(&self.id);
    }
}

impl<'a> Ticket<'a> {
    pub(crate) fn new(fabric: &'a Fabric, peer: NodeId, left: usize, bytes: usize) -> Ticket<'a> {
        let mut table = fabric.asked().lock();
        table.last += 1;
        let id = table.last;
        let answer = Answer { bytes: vec![0; bytes], word: 0 };
        table.open.insert(id, Open { peer, left, answer });
        Ticket { fabric, id, peer }
    }

    /// Its number, which answers say.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether there is an answer, or none will come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_answered() || self.fabric.lost(self.peer).is_some()
    }

    fn is_answered(&self) -> bool {
        self.fabric.asked().lock().open.get(&self.id).is_none_or(|open| open.left == 0)
    }

    /// The answer, once all of it has come.
    ///
    /// # Errors
    /// [`Error::PeerLost`]
    pub(crate) fn settle(&self) -> Result<Option<Answer>, Error> {
        let is_lost = self.fabric.lost(self.peer).is_some();
        // What it had sent before may not have been heard yet.
        while is_lost && !self.is_answered() && self.fabric.poll() > 0 {}
        let mut table = self.fabric.asked().lock();
        match table.open.get(&self.id) {
            Some(open) if open.left > 0 && is_lost => Err(self.fabric.lost_error(self.peer)),
            Some(open) if open.left > 0 => Ok(None),
            _ => Ok(table.open.remove(&self.id).map(|open| open.answer)),
        }
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Numbers as arguments.
pub(crate) fn arguments<const N: usize>(numbers: [u64; N]) -> Vec<u32> {
    numbers.into_iter().flat_map(halves).collect()
}

/// The numbers that were made arguments; `None` where there are not as many.
pub(crate) fn numbers<const N: usize>(args: &[u32]) -> Option<[u64; N]> {
    let (pairs, rest) = args.as_chunks::<2>();
    let pairs: &[[u32; 2]; N] = pairs.try_into().ok()?;
    rest.is_empty().then(|| pairs.map(whole))
}

/// Adds the handlers of what is asked here.
pub(crate) fn handlers(handlers: Handlers) -> Handlers {
    type Run = fn(&Call<'_>) -> Option<()>;
    let all: [(u8, &str, Run); 8] = [
        (PUT, "put", put_asked),
        (GET, "get", get_asked),
        (FILL, "fill", fill_asked),
        (ATOMIC, "atomic", atomic_asked),
        (DONE, "answer", done),
        (DATA, "answer", data),
        (strided::SCATTER, "strided put", strided::scatter_asked),
        (strided::GATHER, "strided get", strided::gather_asked),
    ];
    all.into_iter().fold(handlers, |handlers, (index, what, run)| {
        let run = move |call: &Call<'_>| {
            if run(call).is_none() {
                let rank = call.source().0;
                log::warn!("dropped a {what} of rank {rank}: not what one is, or out of bounds");
            }
        };
        handlers.with_any(index, Box::new(run))
    })
}

/// Answers; who asked may be lost, and then hears nothing.
pub(crate) fn answer(call: &Call<'_>, handler: u8, args: &[u32], bytes: &[u8]) {
    if let Err(error) = call.reply(handler, args, bytes) {
        log::debug!("an answer that nobody hears: {error}");
    }
}

pub(crate) fn bytes_of<'a>(call: &Call<'a>) -> &'a [u8] {
    if let Payload::Bytes(bytes) = call.payload() { bytes } else { &[] }
}

fn put_asked(call: &Call<'_>) -> Option<()> {
    let [id, at] = numbers(call.args())?;
    call.fabric().segment().write(at, bytes_of(call))?;
    if id != NO_ONE {
        answer(call, DONE, &arguments([id, 0]), &[]);
    }
    Some(())
}

fn get_asked(call: &Call<'_>) -> Option<()> {
    let [id, offset, at, bytes] = numbers(call.args())?;
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= call.medium_bytes())?;
    let mut scratch = Scratch::take();
    let buffer = scratch.bytes(bytes);
    call.fabric().segment().read(at, buffer)?;
    answer(call, DATA, &arguments([id, offset]), buffer);
    Some(())
}

fn fill_asked(call: &Call<'_>) -> Option<()> {
    let [id, at, bytes, value] = numbers(call.args())?;
    let (bytes, value) = (usize::try_from(bytes).ok()?, u8::try_from(value).ok()?);
    call.fabric().segment().fill(at, bytes, value)?;
    answer(call, DONE, &arguments([id, 0]), &[]);
    Some(())
}

fn atomic_asked(call: &Call<'_>) -> Option<()> {
    let [id, at, kind, first, second] = numbers(call.args())?;
    let what = Atomic::of([kind, first, second])?;
    let found = what.on(call.fabric().segment().word(at)?);
    answer(call, DONE, &arguments([id, found]), &[]);
    Some(())
}

fn done(call: &Call<'_>) -> Option<()> {
    let [id, word] = numbers(call.args())?;
    call.fabric().asked().answer(id, call.source(), |answer| {
        answer.word = word;
        Some(())
    })
}

fn data(call: &Call<'_>) -> Option<()> {
    let [id, offset] = numbers(call.args())?;
    let (start, bytes) = (usize::try_from(offset).ok()?, bytes_of(call));
    call.fabric().asked().answer(id, call.source(), |answer| {
        let place = answer.bytes.get_mut(start..start.checked_add(bytes.len())?)?;
        place.copy_from_slice(bytes);
        Some(())
    })
}

impl Fabric {
    /// Asks `to` to take `bytes`. They are sent on return.
    pub(crate) fn ask_put(&self, to: NodeId, at: u64, bytes: &[u8]) -> Result<Ticket<'_>, Error> {
        self.ask_within(to, at, bytes.len())?;
        let ticket = Ticket::new(self, to, 1, 0);
        self.put_by(Queue::Request, (to, at), bytes, ticket.id)?;
        Ok(ticket)
    }

    /// Sends `bytes` to where the handler of a message that follows in the same queue needs them.
    pub(crate) fn put_ahead(
        &self,
        queue: Queue,
        to: (NodeId, u64),
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.put_by(queue, to, bytes, NO_ONE)
    }

    /// The last message is answered, if somebody waits for that.
    pub(crate) fn put_by(
        &self,
        queue: Queue,
        (to, at): (NodeId, u64),
        bytes: &[u8],
        id: u64,
    ) -> Result<(), Error> {
        match self.conduit().puts().filter(|_| bytes.len() > PACKED_BYTES) {
            Some(puts) => {
                self.put_directly(puts, queue, to, &mut [(at, bytes)])?;
                // Behind a message that follows anyway nothing is to be told.
                if id == NO_ONE { Ok(()) } else { self.put_in_messages(queue, (to, at), &[], id) }
            }
            None => self.put_in_messages(queue, (to, at), bytes, id),
        }
    }

    fn put_in_messages(
        &self,
        queue: Queue,
        (to, at): (NodeId, u64),
        bytes: &[u8],
        id: u64,
    ) -> Result<(), Error> {
        let chunk = self.conduit().medium_bytes(to);
        let last = bytes.len().saturating_sub(1) / chunk;
        for i in 0..=last {
            let payload = &bytes[i * chunk..bytes.len().min((i + 1) * chunk)];
            let id = if i == last { id } else { NO_ONE };
            let args = arguments([id, at + (i * chunk) as u64]);
            let message =
                Message { handler: PUT, args: &args, payload: Payload::of(payload), rest: &[] };
            self.send(to, queue, &message)?;
        }
        Ok(())
    }

    /// Asks `from` for `bytes` bytes.
    pub(crate) fn ask_get(&self, from: NodeId, at: u64, bytes: usize) -> Result<Ticket<'_>, Error> {
        self.ask_within(from, at, bytes)?;
        let chunk = self.conduit().medium_bytes(from);
        let ticket = Ticket::new(self, from, bytes.div_ceil(chunk), bytes);
        for start in (0..bytes).step_by(chunk) {
            let some = chunk.min(bytes - start) as u64;
            let args = [ticket.id, start as u64, at + start as u64, some];
            self.ask(from, GET, &arguments(args))?;
        }
        Ok(ticket)
    }

    /// Asks `to` to set bytes.
    pub(crate) fn ask_fill(
        &self,
        to: NodeId,
        (at, bytes): (u64, usize),
        value: u8,
    ) -> Result<Ticket<'_>, Error> {
        self.ask_within(to, at, bytes)?;
        let ticket = Ticket::new(self, to, 1, 0);
        self.ask(to, FILL, &arguments([ticket.id, at, bytes as u64, value.into()]))?;
        Ok(ticket)
    }

    /// Asks `to` to do something to a word, and waits for what was there.
    pub(crate) fn ask_atomic(&self, to: NodeId, at: u64, what: Atomic) -> Result<u64, Error> {
        self.ask_within(to, at, 8)?;
        if !at.is_multiple_of(8) {
            return Err(self.beyond(to, at, 8));
        }
        let ticket = Ticket::new(self, to, 1, 0);
        let [kind, first, second] = what.numbers();
        self.ask(to, ATOMIC, &arguments([ticket.id, at, kind, first, second]))?;
        loop {
            if let Some(answer) = ticket.settle()? {
                return Ok(answer.word);
            }
            self.wait_until(None, || ticket.is_over())?;
        }
    }

    fn ask(&self, of: NodeId, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.send(of, Queue::Request, &Message { handler, args, payload: Payload::None, rest: &[] })
    }

    fn ask_within(&self, peer: NodeId, at: u64, bytes: usize) -> Result<(), Error> {
        self.outside("reach memory that is not mapped")?;
        self.check(peer, at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_is_of_whom_was_asked_and_of_what_is_open() {
        let asked = Asked::default();
        let open = Open { peer: NodeId(3), left: 1, answer: Answer::default() };
        asked.lock().open.insert(7, open);
        let hear = |id, from| {
            asked.answer(id, NodeId(from), |answer| {
                answer.word += 1;
                Some(())
            })
        };
        assert_eq!(
            [hear(7, 2), hear(6, 3), hear(7, 3), hear(7, 3)],
            [None, Some(()), Some(()), None]
        );
        assert_eq!(asked.lock().open[&7].answer.word, 1);
    }

    proptest! {
        #[test]
        fn numbers_come_back_from_arguments(all: [u64; 5], cut in 0_usize..10) {
            let args = arguments(all);
            prop_assert_eq!(numbers::<5>(&args), Some(all));
            prop_assert_eq!(numbers::<5>(&args[..cut]), None);
        }
    }
}
