//! The engine's public face. What happens to a transfer is in `lifecycle`, what happens to its
//! requests in `serving`.

use crate::SubmitError;
use crate::config::{ChannelConfig, EngineConfig, PoolConfig};
use crate::counts::{ChannelCounts, ClassWaits};
use crate::flight::Flights;
use crate::lifecycle::Step;
use crate::peer::{AskId, Packet, Peers};
use crate::report::Report;
use crate::staging::Staging;
use crate::transfer::{Dependency, State, Table, Transfer, TransferEvent};
use crate::workers::Workers;
use model::{
    ChannelError, ChannelId, Completion, FenceId, MemoryId, NodeId, Outcome, Priority, Request,
    Time, TransferId,
};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Runs transfers as chains of transfer descriptors over channels that somebody else drives
/// (paper, section 3).
///
/// **Hazard.** Memory is read before it is written, written while it is still read, or given back
/// while a channel still touches it. **Guarantee.** A request is given out only when its whole
/// input is written and its whole output is free, both by requests that have completed; an event
/// is given out only when nothing of its transfer is in flight. **Structure.** A table of
/// transfers, each a chain of descriptors and windows; a worker for each channel, with the
/// descriptors that are ready; the staging pools; and a list of what follows from what happened.
///
/// The engine does no I/O, reads no clock and blocks on nothing. Its methods are of four kinds,
/// called in any order by one thread at a time:
/// - commands: [`Engine::submit`], [`Engine::cancel`], [`Engine::forget`], [`Engine::leave`];
/// - [`Engine::handle_completion`] for each request that a channel has ended,
///   [`Engine::handle_fence`] for each fence, [`Engine::handle_timeout`] when
///   [`Engine::poll_timeout`] says so, [`Engine::handle_peer`] for each packet of another node's
///   engine, [`Engine::handle_lost`] for each node that has died, and
///   [`Engine::handle_disconnected`] for each peer that was cut off;
/// - `poll_*`: after any of the above, [`Engine::poll_request`] until it says `None`, handing
///   each request to its channel in that order, then [`Engine::poll_peer`],
///   [`Engine::poll_disconnect`] and [`Engine::poll_event`] until `None`;
/// - getters, at any time.
///
/// Time never runs backwards. What is submitted must stay valid until its event: the source's and
/// the destination's region, and that nobody writes the one or touches the other.
///
/// Bounds: [`EngineConfig::max_transfers`], what others ask for included, but for what of that was
/// refused and is being undone; requests out, by each channel's `max_in_flight`; events and what
/// waits to be said, by the transfers.
#[derive(Debug)]
pub struct Engine {
    pub(crate) now: Time,
    pub(crate) table: Table,
    pub(crate) workers: Workers,
    pub(crate) flights: Flights,
    pub(crate) staging: Staging,
    pub(crate) staging_waits: ClassWaits,
    pub(crate) deadlines: BTreeSet<(Time, TransferId)>,
    pub(crate) fences: HashMap<FenceId, BTreeSet<TransferId>>,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) events: VecDeque<TransferEvent>,
    pub(crate) peers: Option<Peers>,
}

impl Engine {
    /// An engine over these channels and pools.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        let mut workers = Workers::new(config.ageing);
        config.channels.iter().for_each(|channel| workers.add(channel));
        Engine {
            now: Time::default(),
            table: Table::new(config.max_transfers),
            workers,
            flights: Flights::default(),
            staging: Staging::new(config.pools),
            staging_waits: ClassWaits::default(),
            deadlines: BTreeSet::new(),
            fences: HashMap::new(),
            steps: VecDeque::new(),
            events: VecDeque::new(),
            peers: config.peers.map(Peers::new),
        }
    }

    /// Gives requests to one more channel from now on: a device that was found later, a file
    /// system at its first use.
    pub fn add_channel(&mut self, channel: &ChannelConfig) {
        self.workers.add(channel);
    }

    /// Has staging in one more memory from now on: a device's that others come to need.
    ///
    /// # Panics
    /// Where the memory is not behind all that have staging.
    pub fn add_pool(&mut self, pool: PoolConfig) {
        self.staging.add(pool);
    }

    /// Takes a transfer. It starts when all of `after` is done and its buffers are granted; one
    /// without payload ends at once, unless it commits.
    ///
    /// # Errors
    /// See [`SubmitError`]; a transfer that is refused has no effect.
    pub fn submit(&mut self, now: Time, transfer: Transfer) -> Result<TransferId, SubmitError> {
        self.now = now;
        let id = self.accept(transfer)?;
        self.settle();
        Ok(id)
    }

    /// Ends a transfer as [`Outcome::Cancelled`] once nothing of it is in flight. Returns whether
    /// that will be its outcome: not where it has ended, is ending otherwise, or is already
    /// committing, nor where other nodes run it, which may be done by then.
    pub fn cancel(&mut self, now: Time, id: TransferId) -> bool {
        self.now = now;
        let stops = self.stop(id, Outcome::Cancelled);
        self.settle();
        stops
    }

    /// Drops what is known of a transfer, at its end if it still runs; its event comes all the
    /// same. Its id finds nothing from then on. Every transfer is forgotten by somebody, or the
    /// table fills up.
    pub fn forget(&mut self, id: TransferId) {
        self.drop_record(id);
    }

    /// A request has ended. An id that is not out is ignored.
    pub fn handle_completion(&mut self, now: Time, completion: Completion) {
        self.now = now;
        self.complete(completion);
        self.settle();
    }

    /// A fence has been reached, or will never be. Transfers submitted later don't know of it.
    pub fn handle_fence(&mut self, now: Time, fence: FenceId, result: Result<(), ChannelError>) {
        self.now = now;
        self.reach(fence, &result);
        self.settle();
    }

    /// A packet of another node's engine has come; one that is for somebody else is ignored.
    pub fn handle_peer(&mut self, now: Time, packet: Packet) {
        self.now = now;
        self.receive(packet);
        self.settle();
    }

    /// The driver knows that `node` has died, or has left: what counts on it fails now, and so does
    /// what will, until something of it is heard again.
    pub fn handle_lost(&mut self, now: Time, node: NodeId) {
        self.now = now;
        self.give_up(node);
        self.settle();
    }

    /// Takes no shares of others' transfers from now on: each fails with
    /// [`model::ChannelErrorKind::PeerLost`]. Where it `stops_shares`, those that it has are given up too.
    pub fn leave(&mut self, now: Time, stops_shares: bool) {
        self.now = now;
        self.refuse_shares(stops_shares);
        self.settle();
    }

    /// Nothing that `node` was writing before session `floor` arrives here any more: see
    /// [`Engine::poll_disconnect`].
    pub fn handle_disconnected(&mut self, now: Time, node: NodeId, floor: u64) {
        self.now = now;
        self.disconnected(node, floor);
        self.settle();
    }

    /// Gives up the transfers whose deadlines have passed, and the peers that are silent.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some(&(deadline, id)) = self.deadlines.first().filter(|d| d.0 <= now) {
            self.deadlines.remove(&(deadline, id));
            self.stop(id, Outcome::TimedOut);
        }
        self.mind_peers();
        self.settle();
    }

    /// The next request of any channel.
    pub fn poll_request(&mut self) -> Option<Request> {
        while self.flights.has_room() {
            let worker = self.workers.next()?;
            match self.next_request(worker) {
                None => self.workers.calm(worker),
                request => {
                    self.workers.gave(worker);
                    return request;
                }
            }
        }
        None
    }

    /// The next request of one channel, for drivers that serve channels apart.
    pub fn poll_request_of(&mut self, channel: ChannelId) -> Option<Request> {
        let worker = self.worker_of(channel)?;
        self.next_request(worker)
    }

    /// The next packet for another node's engine.
    pub fn poll_peer(&mut self) -> Option<Packet> {
        self.peers.as_mut()?.sessions.poll_packet()
    }

    /// The next peer that was given up, and the session of this side's that begins: the driver makes
    /// sure that nothing of what the peer was writing in one before it arrives any more, by revoking
    /// what was registered or closing the connection, and says so by
    /// [`Engine::handle_disconnected`]; requests that write to the peer fail.
    pub fn poll_disconnect(&mut self) -> Option<(NodeId, u64)> {
        self.peers.as_mut()?.poll_disconnect()
    }

    /// The next transfer that has ended.
    pub fn poll_event(&mut self) -> Option<TransferEvent> {
        self.events.pop_front()
    }

    /// When to call [`Engine::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let peers = self.peers.as_ref().and_then(|peers| peers.sessions.poll_timeout());
        deadline.into_iter().chain(peers).min()
    }

    /// The payload written to the destination, and the payload in all. Where another node has the
    /// last hop, what that one has told, every few hundredths of the payload at most.
    #[must_use]
    pub fn progress(&self, id: TransferId) -> Option<(u64, u64)> {
        let record = self.table.get(id)?;
        Some((record.done_bytes, record.transfer.program.payload_bytes()))
    }

    /// The memories that a request which is out reads and writes.
    #[must_use]
    pub fn ends(&self, request: &Request) -> Option<[MemoryId; 2]> {
        let hops = self.table.get(request.transfer)?.transfer.program.hops();
        hops.get(usize::from(request.hop)).map(|hop| hop.ends)
    }

    /// Where the transfer's time went.
    #[must_use]
    pub fn report(&self, id: TransferId) -> Option<Report> {
        self.table.get(id).map(|record| record.report(self.now))
    }

    /// How far the transfer has come.
    #[must_use]
    pub fn state(&self, id: TransferId) -> Option<State> {
        self.table.get(id).map(|record| record.state())
    }

    /// Requests of a channel that are out.
    #[must_use]
    pub fn in_flight(&self, channel: ChannelId) -> u32 {
        self.worker_of(channel).map_or(0, |worker| self.workers[worker].in_flight())
    }

    /// The priority of what a channel serves next; `None` while nobody is ready for it.
    #[must_use]
    pub fn next_priority(&self, channel: ChannelId) -> Option<Priority> {
        self.workers[self.worker_of(channel)?].next_priority()
    }

    /// Names a transfer between nodes that this engine asked for, or has a share of.
    #[must_use]
    pub fn ask_id(&self, id: TransferId) -> Option<AskId> {
        self.ask_of(id)
    }

    /// The share that this engine has of a transfer between nodes, while it has one.
    #[must_use]
    pub fn share(&self, ask: AskId) -> Option<TransferId> {
        self.peers.as_ref()?.share(ask)
    }

    /// The staging that a share of a transfer had here, where a peer that was given up may still write
    /// to it although the share has ended.
    #[must_use]
    pub fn quarantined_bytes(&self, ask: AskId) -> u64 {
        self.peers.as_ref().map_or(0, |peers| peers.quarantined_bytes(ask))
    }

    /// The numbers of the present session with a peer, this side's first; the other's is 0 while
    /// nothing is known of it. Who writes to a node does so in the session that he knows of; what
    /// was written in one that is over must not arrive: see [`Engine::poll_disconnect`].
    #[must_use]
    pub fn session(&self, node: NodeId) -> Option<(u64, u64)> {
        self.peers.as_ref()?.sessions.numbers(node)
    }

    /// How much staging a transfer has.
    #[must_use]
    pub fn staged_bytes(&self, id: TransferId) -> Option<u64> {
        let record = self.table.get(id)?;
        Some(record.grants.iter().map(|grant| grant.block.end - grant.block.start).sum())
    }

    /// The most of a memory's staging that was given out at once.
    #[must_use]
    pub fn staging_peak(&self, memory: MemoryId) -> Option<u64> {
        self.staging.peak(memory)
    }

    /// Bytes of a memory's staging that are given out, and its size.
    #[must_use]
    pub fn staging(&self, memory: MemoryId) -> Option<(u64, u64)> {
        self.staging.usage(memory)
    }

    /// What each channel has done.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &ChannelCounts)> {
        self.workers.iter().map(|worker| (worker.id(), &worker.counts))
    }

    /// How long the transfers that have had staging waited for it, from when everything in their
    /// `after` was done.
    #[must_use]
    pub fn staging_waits(&self) -> ClassWaits {
        self.staging_waits
    }

    /// Payload that other nodes have written here, by node.
    pub fn arrived_bytes(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let arrived = self.peers.as_ref().map(|peers| &peers.arrived_bytes);
        arrived.into_iter().flatten().map(|(&node, &bytes)| (node, bytes))
    }

    /// How many transfers this engine has a share of at present.
    #[must_use]
    pub fn share_count(&self) -> usize {
        self.peers.as_ref().map_or(0, Peers::share_count)
    }

    /// Whether nothing runs, waits or has an event to tell.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.events.is_empty() && self.table.live() == 0
    }

    pub(crate) fn worker_of(&self, channel: ChannelId) -> Option<usize> {
        self.workers.of(channel)
    }

    /// What is known of a dependency: done, failed, or yet to come.
    pub(crate) fn outcome_of(&self, dependency: Dependency) -> Option<Outcome> {
        let Dependency::Transfer(id) = dependency else { return None };
        match &self.table.get(id)?.phase {
            crate::transfer::Phase::Ended(outcome) => Some(outcome.clone()),
            _ => None,
        }
    }
}
