//! The channels of all nodes, and what of their work crosses from one node to another.

use crate::channel::{Flight, Moments, VirtualChannel};
use crate::memory::{Memories, Owner};
use crate::rng::Rng;
use crate::violation::Violation;
use engine::AskId;
use model::{ChannelErrorKind, ChannelId, CopyWork, NodeId, Request, RequestId, Time};
use std::collections::BTreeMap;

/// A request that writes to another node.
#[derive(Debug, Clone)]
pub(crate) struct Crossing {
    pub(crate) ask: AskId,
    pub(crate) to: NodeId,
    /// The session of the reader's in which it was issued.
    stamp: u64,
    /// The reader is cut off from it: it will not arrive.
    is_cut: bool,
}

/// One life of a channel.
#[derive(Debug)]
struct Seat {
    channel: VirtualChannel,
    is_dead: bool,
    crossings: BTreeMap<RequestId, Crossing>,
}

/// All channels. Those of a dead node stay: what they were writing may still arrive.
#[derive(Debug)]
pub(crate) struct Plant {
    seats: Vec<Seat>,
    /// For a reader and a writer: what was issued in an earlier session never arrives.
    floors: BTreeMap<(NodeId, NodeId), u64>,
}

impl Plant {
    pub(crate) fn new() -> Self {
        Plant { seats: Vec::new(), floors: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, spec: &crate::ChannelSpec, rng: Rng) {
        let channel = VirtualChannel::new(spec.clone(), rng);
        self.seats.push(Seat { channel, is_dead: false, crossings: BTreeMap::new() });
    }

    /// The seat of a channel that takes `request` now.
    pub(crate) fn seat(&self, request: &Request) -> Result<usize, Violation> {
        let (id, channel) = (request.id, request.channel);
        let wrong = Violation::WrongChannel { request: id, channel };
        let takes = |s: &Seat| s.channel.id() == channel && !s.is_dead && s.channel.has_room();
        let at = self.seats.iter().position(takes).ok_or(wrong)?;
        let follows = self.seats[at].channel.follows(id);
        follows.then_some(at).ok_or(Violation::OutOfOrder { request: id })
    }

    /// Whose channel sits there.
    pub(crate) fn node_of(&self, at: usize) -> NodeId {
        self.seats[at].channel.id().node
    }

    /// Takes a request; `crossing` says the reader, and its session, if it writes to another node.
    pub(crate) fn submit(
        &mut self,
        at: usize,
        now: Time,
        (owner, request): (Owner, Request),
        crossing: Option<(AskId, NodeId, u64)>,
    ) -> Moments {
        let seat = &mut self.seats[at];
        if let Some((ask, to, stamp)) = crossing {
            let crossing = Crossing { ask, to, stamp, is_cut: false };
            seat.crossings.insert(request.id, crossing);
        }
        seat.channel.submit(now, owner, request)
    }

    /// A request whose bytes move now; not one that died with its node.
    pub(crate) fn flight(&mut self, at: usize, id: RequestId) -> Option<&mut Flight> {
        let seat = &mut self.seats[at];
        let lives = !seat.is_dead || seat.crossings.contains_key(&id);
        seat.channel.flight(id).filter(|_| lives)
    }

    /// What a request writes to another node, if it does.
    pub(crate) fn crossing(&self, at: usize, id: RequestId) -> Option<&Crossing> {
        self.seats[at].crossings.get(&id)
    }

    /// Whether what a request writes arrives.
    pub(crate) fn arrives(&self, at: usize, id: RequestId) -> bool {
        let seat = &self.seats[at];
        let Some(crossing) = seat.crossings.get(&id) else { return true };
        !crossing.is_cut && self.lets_in(seat.channel.id().node, crossing.to, crossing.stamp)
    }

    /// Whether what `writer` issues in a session of the reader's arrives.
    pub(crate) fn lets_in(&self, writer: NodeId, reader: NodeId, stamp: u64) -> bool {
        self.floors.get(&(reader, writer)).is_none_or(|floor| stamp >= *floor)
    }

    /// Ends a request: what it was, and whether its node lives to hear of it.
    pub(crate) fn complete(&mut self, at: usize, id: RequestId) -> Option<(Flight, bool)> {
        let seat = &mut self.seats[at];
        let was_crossing = seat.crossings.remove(&id).is_some();
        let flight = seat.channel.complete(id)?;
        (was_crossing || !seat.is_dead).then_some((flight, !seat.is_dead))
    }

    /// Nothing that `writer` issued before the reader's session `floor` arrives at `reader`.
    pub(crate) fn cut(
        &mut self,
        (reader, writer): (NodeId, NodeId),
        floor: u64,
        memories: &mut Memories,
    ) -> Result<(), Violation> {
        let known = self.floors.entry((reader, writer)).or_default();
        *known = floor.max(*known);
        for seat in self.seats.iter_mut().filter(|s| s.channel.id().node == writer) {
            for (id, crossing) in &mut seat.crossings {
                if crossing.to == reader && crossing.stamp < floor && !crossing.is_cut {
                    crossing.is_cut = true;
                    let flight = seat.channel.flight(*id).expect("what crosses is in flight");
                    flight.fail(ChannelErrorKind::PeerLost);
                    abandon(flight, memories)?;
                }
            }
        }
        Ok(())
    }

    /// The channels of `node` stop.
    pub(crate) fn kill(&mut self, node: NodeId) {
        let its = self.seats.iter_mut().filter(|s| s.channel.id().node == node);
        its.for_each(|seat| seat.is_dead = true);
    }

    /// The channel `id` of a node that lives.
    pub(crate) fn channel(&mut self, id: ChannelId) -> Option<&mut VirtualChannel> {
        let seat = self.seats.iter_mut().find(|s| s.channel.id() == id && !s.is_dead)?;
        Some(&mut seat.channel)
    }
}

fn abandon(flight: &Flight, memories: &mut Memories) -> Result<(), Violation> {
    let work: Option<&CopyWork> = flight.copy();
    work.map_or(Ok(()), |work| memories.abandon(flight.owner, work))
}
