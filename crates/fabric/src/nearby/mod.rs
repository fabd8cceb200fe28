//! Ranks of one machine among those that meet by a network: memory and messages of theirs go by no network.
//!
//! **Hazard.** Who sleeps, sleeps on the network's descriptors, and hears no bell in shared memory.
//! **Guarantee.** To a rank of this machine all goes by its memory, or all by the network, so that one's
//! messages stay in their order; whoever sleeps while one comes is woken. **Structure.** Each rank has a
//! mailbox beside its segment and tells where both lie; who is on its machine maps them. A sleeper says so in
//! its own mailbox before it looks once more; who writes there then and finds that has the network
//! [nudge](Network::nudge) it.

#[cfg(test)]
mod tests;
mod whereabouts;

use crate::conduit::{Capabilities, Conduit, Lost, Puts, Queue, Refusal, Windows};
use crate::config::{Config, MOST_RANKS};
use crate::error::Error;
use crate::locks::try_lock;
use crate::message::{MOST_BYTES, Message};
use crate::process::Process;
use crate::segment::Segment;
use crate::shm::SPIN;
use crate::shm::bell;
use crate::shm::mailbox::{CREDITS, Inbox, Mailbox, Outbox, Senders};
use crate::shm::ring::Refused;
use crate::slots::Slots;
use crate::standing::Standing;
use model::NodeId;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
pub(crate) use whereabouts::Machine;
use whereabouts::Whereabouts;

/// What ranks of one machine may have of each other beside a network.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Looked at once: of two ranks both take the other for a neighbour, or none does.
    machine: Option<Machine>,
    mailbox: Mailbox,
    // By which others find it.
    fd: OwnedFd,
    inbox: Inbox,
    /// Those of this machine.
    ranks: Slots<Neighbour>,
}

/// A rank of this machine.
#[derive(Debug)]
struct Neighbour {
    process: Option<Process>,
    /// Of its memory, unless that failed.
    mapped: Option<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    outbox: Outbox,
    segment: Segment,
}

impl Neighbours {
    fn new() -> Result<Neighbours, Error> {
        // Who comes later does not know yet how many there may be. What is not written takes no room.
        let (mailbox, fd) = Mailbox::create(MOST_RANKS)?;
        let (inbox, ranks) = (Inbox::new(MOST_RANKS), Slots::new(MOST_RANKS));
        Ok(Neighbours { machine: Machine::this(), mailbox, fd, inbox, ranks })
    }

    /// Where others of this machine find the mailbox, and the segment behind `segment`; nothing where the
    /// system doesn't say.
    pub(crate) fn told(&self, segment: &OwnedFd) -> Vec<u8> {
        let there = self.machine.and_then(|here| Whereabouts::of(here, [&self.fd, segment]));
        there.map(Whereabouts::to_bytes).into_iter().flatten().collect()
    }

    /// Takes what a rank has told that has so many bytes, before anything is sent to it.
    pub(crate) fn admit(&self, rank: u32, (told, segment_bytes): (&[u8], u64)) {
        let there = told.try_into().ok().map(Whereabouts::from_bytes);
        let is_here = |there: &Whereabouts| self.machine == Some(there.machine);
        let Some(there) = there.filter(is_here) else { return };
        // Before its memory is looked for by that number: what is found to have it had the number already.
        let process = Process::numbered(there.process);
        let mapped = there.map().and_then(|[mailbox, segment]| {
            let outbox = Outbox::new(Mailbox::of(mailbox, MOST_RANKS)?);
            (segment.bytes() == segment_bytes).then_some(Mapped { outbox, segment })
        });
        // One that has come before is refused by the network.
        let _ = self.ranks.fill(rank, Neighbour { process, mapped });
    }

    /// A rank is lost, and its memory is of no use any more.
    pub(crate) fn part(&self, rank: usize, standing: &Standing) {
        let Some(Neighbour { process, mapped }) = self.ranks.get(rank) else { return };
        if let Some(Mapped { outbox, segment }) = mapped {
            [segment, outbox.mailbox.memory()].into_iter().for_each(Segment::give_up);
        }
        process.iter().for_each(|process| process.part(standing));
    }

    #[inline]
    fn mapped(&self, rank: usize) -> Option<&Mapped> {
        self.ranks.get(rank)?.mapped.as_ref()
    }
}

/// A conduit between machines, whose ranks may be neighbours.
pub(crate) trait Network: Conduit {
    /// Wakes whoever sleeps in a rank's process. It may get lost where that is lost, and nowhere else.
    fn nudge(&self, peer: NodeId);

    /// `peer` has sent what no rank sends.
    fn condemn(&self, peer: NodeId);

    /// Whether `peer` takes nothing more, though what it has sent may still come: also before it is lost.
    fn has_ended(&self, peer: NodeId) -> bool {
        self.lost(peer).is_some()
    }
}

/// Joins by `network`, which is to tell the others what its neighbours are, if there may be any.
pub(crate) fn join<N: Network + 'static>(
    config: &Config,
    network: impl FnOnce(Option<Arc<Neighbours>>) -> Result<N, Error>,
) -> Result<Box<dyn Conduit>, Error> {
    let tell = |error: &Error| log::warn!("ranks of this machine are as apart as others: {error}");
    let neighbours = config.is_near().then(|| Neighbours::new().inspect_err(tell).ok());
    let Some(neighbours) = neighbours.flatten().map(Arc::new) else {
        return Ok(Box::new(network(None)?));
    };
    let network = network(Some(Arc::clone(&neighbours)))?;
    Ok(Box::new(Near::new(network, neighbours)))
}

/// A network, and shared memory between neighbours.
#[derive(Debug)]
struct Near<N> {
    network: N,
    neighbours: Arc<Neighbours>,
    rank: usize,
    /// Held by who runs handlers, by queue, of whatever way.
    running: [Mutex<()>; 2],
}

impl<N: Network> Near<N> {
    fn new(network: N, neighbours: Arc<Neighbours>) -> Near<N> {
        let rank = network.place().0.0 as usize;
        Near { network, neighbours, rank, running: Default::default() }
    }

    /// What is mapped of `peer`, unless that is lost or has not joined.
    fn mapped(&self, peer: NodeId) -> Option<&Mapped> {
        let mapped = self.neighbours.mapped(peer.0 as usize)?;
        (self.network.has(peer) && self.network.lost(peer).is_none()).then_some(mapped)
    }

    /// This rank's mailbox, and who writes to it.
    fn own(&self) -> (&Mailbox, &Near<N>) {
        (&self.neighbours.mailbox, self)
    }

    /// Takes what neighbours have sent.
    fn receive_here(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        self.neighbours.inbox.receive(self.own(), queue, run)
    }

    fn wake_peer(&self, peer: NodeId, mailbox: &Mailbox) {
        if bell::claim(mailbox.bell()) {
            self.network.nudge(peer);
        }
    }
}

impl<N: Network> Senders for Near<N> {
    fn ranks(&self) -> impl Iterator<Item = usize> {
        self.neighbours.ranks.iter().map(|(rank, _)| rank)
    }

    fn is_heard(&self, from: usize) -> bool {
        let peer = NodeId(from as u32);
        self.network.has(peer) && self.network.lost(peer) != Some(Lost::Broken)
    }

    fn condemn(&self, from: usize) {
        self.network.condemn(NodeId(from as u32));
    }

    fn wake_sender(&self, from: usize) {
        let peer = NodeId(from as u32);
        match self.neighbours.mapped(from) {
            Some(mapped) => self.wake_peer(peer, &mapped.outbox.mailbox),
            // It may write here, and is not to be seen to sleep.
            None => self.network.nudge(peer),
        }
    }
}

impl<N: Network> Conduit for Near<N> {
    fn capabilities(&self) -> Capabilities {
        let Capabilities { medium_bytes, credits, spin } = self.network.capabilities();
        // Nobody writes to the mailbox where there are none.
        let spin = if self.neighbours.ranks.size() > 0 { spin.max(SPIN) } else { spin };
        Capabilities {
            medium_bytes: medium_bytes.min(MOST_BYTES),
            credits: credits.min(CREDITS),
            spin,
        }
    }

    fn medium_bytes(&self, peer: NodeId) -> usize {
        // Also where it was not mapped, since the other way it may be, by which answers go.
        match self.neighbours.ranks.get(peer.0 as usize) {
            Some(_) => self.capabilities().medium_bytes,
            None => self.network.medium_bytes(peer),
        }
    }

    fn place(&self) -> (NodeId, u32) {
        self.network.place()
    }

    fn founders(&self) -> u32 {
        self.network.founders()
    }

    fn has(&self, peer: NodeId) -> bool {
        self.network.has(peer)
    }

    fn send(&self, to: NodeId, queue: Queue, message: &Message<'_>) -> Result<(), Refusal> {
        self.send_some(to, queue, std::slice::from_ref(message)).map(|_| ())
    }

    fn send_some(
        &self,
        to: NodeId,
        queue: Queue,
        messages: &[Message<'_>],
    ) -> Result<usize, Refusal> {
        let Some(Mapped { outbox, .. }) = self.mapped(to) else {
            return self.network.send_some(to, queue, messages);
        };
        match outbox.push(self.rank, queue, &messages[0]) {
            Ok(()) => {
                self.wake_peer(to, &outbox.mailbox);
                Ok(1)
            }
            // Nobody makes room, and who waits may not be one who hears all that has to come before it is lost.
            Err(Refused::Full) if self.network.has_ended(to) => Err(Refusal::Lost),
            Err(Refused::Full) => Err(Refusal::Full),
            Err(Refused::Broken) => {
                self.network.condemn(to);
                Err(Refusal::Lost)
            }
        }
    }

    fn receive(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let Some(_running) = try_lock(&self.running[queue as usize]) else { return 0 };
        // Whoever was nudged finds what that was for.
        self.network.receive(queue, run) + self.receive_here(queue, run)
    }

    fn glance(&self, queue: Queue, run: &mut dyn FnMut(NodeId, Message<'_>)) -> usize {
        let Some(_running) = try_lock(&self.running[queue as usize]) else { return 0 };
        match self.neighbours.ranks.size() {
            0 => self.network.glance(queue, run),
            _ => self.receive_here(queue, run),
        }
    }

    fn sleep(&self, queues: &[Queue], is_over: &dyn Fn() -> bool, most: Option<Duration>) {
        let Neighbours { inbox, mailbox, .. } = &*self.neighbours;
        let is_over = || {
            // From here on the network wakes.
            bell::announce(mailbox.bell());
            is_over() || queues.iter().any(|&queue| inbox.is_ready(self.own(), queue))
        };
        self.network.sleep(queues, &is_over, most);
    }

    fn wake(&self) {
        self.network.wake();
    }

    fn segment(&self, peer: NodeId) -> Option<&Segment> {
        match self.mapped(peer) {
            Some(mapped) => Some(&mapped.segment),
            None => self.network.segment(peer),
        }
    }

    fn segment_bytes(&self, peer: NodeId) -> u64 {
        self.network.segment_bytes(peer)
    }

    fn lost(&self, peer: NodeId) -> Option<Lost> {
        self.network.lost(peer)
    }

    fn process(&self, peer: NodeId) -> Option<&Process> {
        self.neighbours.ranks.get(peer.0 as usize)?.process.as_ref()
    }

    fn leave(&self) {
        self.network.leave();
    }

    fn puts(&self) -> Option<&dyn Puts> {
        self.network.puts()
    }

    fn windows(&self) -> Option<&dyn Windows> {
        self.network.windows()
    }
}
