//! How the engines of several nodes run one plan (DESIGN.md, decisions 7, 8 and 10).
//!
//! **Hazard.** A node writes into memory that another has given to somebody else; two transfers
//! hold staging on two nodes and wait for each other's; a message is lost, repeated or overtaken; a
//! node dies, is cut off, or comes back and knows nothing; the one who asked dies. **Guarantee.** A
//! node writes to another only after that one has reserved the place, and that one gives the place
//! back only once the writer has said that it is quiet, or the driver that nothing of the writer's
//! arrives any more. A node that dies or is cut off holds nobody up for longer than a lease and what
//! the driver takes to see to it. **Structure.**
//!
//! The node where a transfer is submitted is its *asker*; the nodes whose memories the plan names
//! are the *parties*, the asker among them or not. Each party has a *share*: the hops whose
//! channels are its own, the rings in its memories. A hop between two nodes is the sender's, and
//! its ring the receiver's: two half-descriptors, of which the one says what has
//! [`Arrived`](PeerMessage::Arrived) and the other what is [`Freed`](PeerMessage::Freed) (credit).
//!
//! 1. The asker has the parties [`Reserve`](PeerMessage::Reserve) their rings, one after the other
//!    in the global order of nodes, so that no two transfers wait for each other. A party answers
//!    [`Reserved`](PeerMessage::Reserved), and runs what stays inside it; or it refuses, for which
//!    see [`taking`].
//! 2. It tells the party before it where to write, by [`Open`](PeerMessage::Open); that one, which
//!    may have come later, [`Knock`](PeerMessage::Knock)s. So who writes has heard from who reads
//!    in the session that both are in, and a session that is over takes the leave to write along.
//! 3. A party whose part is done, or given up, is [`Ended`](PeerMessage::Ended). When all are, so
//!    is the transfer. The party of the last hop says how far it is
//!    ([`Progress`](PeerMessage::Progress)), a few dozen times at most.
//! 4. A party that fails, or that the asker tells to [`Stop`](PeerMessage::Stop), has who writes to
//!    it [`Hush`](PeerMessage::Hush), and keeps its memory until that one is
//!    [`Quiet`](PeerMessage::Quiet). When one has ended so, the asker stops the others. Where the
//!    writer was given up, a destination is kept until it is cut off; of a ring nobody else knows, so
//!    that the transfer ends and the ring stays in quarantine, also until the writer is heard again
//!    and says that it is quiet.
//! 5. A peer that is not heard for a lease, or that the driver knows to be gone, is given up with
//!    all that it has part in: see [`session`], which also makes of the wire's packets messages that
//!    come once and in order.

mod asking;
mod session;
mod sharing;
mod taking;

pub use session::Packet;

use crate::engine::Engine;
use crate::lifecycle::Step;
use crate::program::Program;
use crate::report::HopReport;
use crate::staging::{Grant, Holder};
use crate::transfer::Commit;
use model::{
    ChannelError, ChannelErrorKind, MemoryId, NodeId, Outcome, Place, Priority, TransferError,
    TransferId,
};
use session::{Sessions, Use};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use asking::Ask;
pub(crate) use sharing::Share;

/// How an engine speaks to those of other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerConfig {
    /// The node whose channels and memories these are.
    pub node: NodeId,
    /// Greater each time that the node starts anew.
    pub life: u32,
    /// A peer that is not heard for so long is given up.
    pub lease: Duration,
    /// A message that is not acknowledged for so long is sent again.
    pub resend: Duration,
}

impl PeerConfig {
    /// A node in its first life: a lease of 5 seconds, messages again after a fifth of one.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        let (lease, resend) = (Duration::from_secs(5), Duration::from_millis(200));
        PeerConfig { node, life: 1, lease, resend }
    }
}

/// Names a transfer between nodes, once and for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId {
    /// Who asked for it.
    pub asker: NodeId,
    /// In which of its lives.
    pub life: u32,
    /// The asker's number for it.
    pub serial: u64,
}

/// What is asked of every party.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How the whole transfer runs.
    pub program: Arc<Program>,
    /// The base of the source's instance; its region is one of the first memory's node.
    pub src: Place,
    /// The base of the destination's instance; its region is one of the last memory's node.
    pub dst: Place,
    /// How urgent it is.
    pub priority: Priority,
    /// What becomes of the destination's region in the end; it is up to the party of the last hop.
    pub commit: Option<Commit>,
    /// In which lives of their nodes source and destination were named; see [`Transfer::lives`].
    ///
    /// [`Transfer::lives`]: crate::Transfer::lives
    pub lives: [Option<u32>; 2],
}

/// What two engines say to each other.
#[derive(Debug, Clone)]
pub enum PeerMessage {
    /// Asker to party: hold your share.
    Reserve(Arc<Asked>),
    /// Asker to the party of the last hop, which knows nothing of the transfer: it ends so before it
    /// began; undo what would have been committed.
    Undo(Arc<Asked>, Outcome),
    /// Party to asker: its rings are its own.
    Reserved,
    /// Writer to its neighbour: where may I write?
    Knock,
    /// Reader to its neighbour: write here, if it is a ring; else to the destination.
    Open(Option<Place>),
    /// Writer to its neighbour: so much of the stream has arrived.
    Arrived(u64),
    /// Reader to its neighbour: so much of the stream was read, and may be overwritten.
    Freed(u64),
    /// Asker to party: give it up, as `Outcome` says.
    Stop(Outcome),
    /// Reader to its neighbour: it ends so; write nothing more, and say when nothing is under way.
    Hush(Outcome),
    /// Writer to its neighbour: nothing is under way, and nothing more will be.
    Quiet,
    /// Party of the last hop to asker: so much of the payload is written to the destination.
    Progress(u64),
    /// Party to asker: its share has ended so; nothing of it is left. What each of its hops did.
    Ended(Outcome, Vec<HopReport>),
}

/// A message and the transfer that it is about.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) ask: AskId,
    pub(crate) message: PeerMessage,
}

/// What an engine has to do with others.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) config: PeerConfig,
    pub(crate) sessions: Sessions,
    /// How many transfers were asked of others.
    serial: u64,
    /// Those that have not ended, by serial.
    asks: BTreeMap<u64, Ask>,
    /// What others, or this node itself, have asked of it.
    shares: BTreeMap<AskId, TransferId>,
    /// Who is to be cut off, and from which session on is heard again.
    disconnects: VecDeque<(NodeId, u64)>,
    /// Whether it takes no more shares.
    is_leaving: bool,
    /// What shares that have ended had, where a peer that was given up may still write to it.
    quarantine: Vec<Quarantined>,
    /// Payload that others have written here.
    pub(crate) arrived_bytes: BTreeMap<NodeId, u64>,
}

/// Rings that nobody gets before their writer is cut off, or has said that it is quiet.
#[derive(Debug)]
struct Quarantined {
    name: AskId,
    writer: NodeId,
    /// Whether the writer was asked to hush, since it has been heard again.
    is_hushed: bool,
    /// The session that has begun since.
    floor: u64,
    holder: Holder,
    grants: Vec<Grant>,
}

impl Peers {
    pub(crate) fn new(config: PeerConfig) -> Self {
        Peers {
            config,
            sessions: Sessions::new(config),
            serial: 0,
            asks: BTreeMap::new(),
            shares: BTreeMap::new(),
            disconnects: VecDeque::new(),
            is_leaving: false,
            quarantine: Vec::new(),
            arrived_bytes: BTreeMap::new(),
        }
    }

    pub(crate) fn poll_disconnect(&mut self) -> Option<(NodeId, u64)> {
        self.disconnects.pop_front()
    }

    /// How much of what a share had is kept although it has ended.
    pub(crate) fn quarantined_bytes(&self, name: AskId) -> u64 {
        let of_it = self.quarantine.iter().filter(|q| q.name == name);
        of_it.flat_map(|q| &q.grants).map(|grant| grant.block.end - grant.block.start).sum()
    }

    /// This node's share of a transfer.
    pub(crate) fn share(&self, name: AskId) -> Option<TransferId> {
        self.shares.get(&name).copied()
    }

    /// How many shares have not ended.
    pub(crate) fn share_count(&self) -> usize {
        self.shares.len()
    }

    fn is_me(&self, node: NodeId) -> bool {
        self.config.node == node
    }
}

/// A transfer of which a party is gone.
fn gone(program: &Program, node: NodeId) -> Outcome {
    let cause = ChannelError::new(ChannelErrorKind::PeerLost, format!("{node} is gone"));
    failed_at(program, node, cause)
}

/// A transfer that fails because of one of its nodes: at the first hop that has to do with it.
fn failed_at(program: &Program, node: NodeId, cause: ChannelError) -> Outcome {
    let hops = program.hops().iter().enumerate();
    let beside = |memory: &MemoryId| memory.node == node;
    let found =
        hops.filter_map(|(at, hop)| Some((at, *hop.ends.iter().find(|m| beside(m))?))).next();
    let (hop, memory) = found.unwrap_or((0, program.hops()[0].ends[0]));
    Outcome::Failed(TransferError { hop, memory, cause })
}

impl Engine {
    /// Takes in what a peer sends.
    pub(crate) fn receive(&mut self, packet: Packet) {
        let Some(peers) = &mut self.peers else { return };
        let from = packet.from;
        if !peers.is_me(packet.to) || peers.is_me(from) {
            return;
        }
        let heard = peers.sessions.handle(self.now, packet);
        if let Some(users) = heard.lost {
            self.lose(from, users);
        }
        for Note { ask, message } in heard.notes {
            self.handle_note(from, ask, message);
        }
        self.hush_quarantined(from);
    }

    /// Runs what a message asks for.
    pub(crate) fn handle_note(&mut self, from: NodeId, name: AskId, message: PeerMessage) {
        let is_asker = from == name.asker;
        let is_mine = self.peers.as_ref().is_some_and(|peers| {
            let (node, life) = (peers.config.node, peers.config.life);
            (name.asker, name.life) == (node, life)
        });
        match message {
            PeerMessage::Reserve(asked) if is_asker => self.handle_reserve(name, &asked),
            PeerMessage::Undo(asked, outcome) if is_asker && outcome != Outcome::Done => {
                self.handle_undo(name, &asked, outcome);
            }
            PeerMessage::Stop(outcome) if is_asker && outcome != Outcome::Done => {
                self.handle_stop(name, outcome)
            }
            PeerMessage::Reserved if is_mine => self.handle_reserved(from, name),
            PeerMessage::Progress(bytes) if is_mine => self.handle_progress(from, name, bytes),
            PeerMessage::Ended(outcome, hops) if is_mine => {
                self.handle_ended(from, name, outcome, &hops)
            }
            PeerMessage::Knock => self.handle_knock(from, name),
            PeerMessage::Open(place) => self.handle_open(from, name, place),
            PeerMessage::Arrived(bytes) => self.handle_arrived(from, name, bytes),
            PeerMessage::Freed(bytes) => self.handle_freed(from, name, bytes),
            PeerMessage::Hush(outcome) if outcome != Outcome::Done => {
                self.handle_hush(from, name, outcome)
            }
            PeerMessage::Quiet => self.handle_quiet(from, name),
            // Only the asker may say these, and only to the asker those.
            _ => {}
        }
    }

    /// Minds the peers' clocks.
    pub(crate) fn mind_peers(&mut self) {
        let Some(peers) = &mut self.peers else { return };
        for (node, users) in peers.sessions.handle_timeout(self.now) {
            self.lose(node, users);
        }
    }

    /// A peer is gone.
    pub(crate) fn give_up(&mut self, node: NodeId) {
        if let Some(peers) = &mut self.peers {
            peers.sessions.give_up(self.now, node);
        }
        self.mind_peers();
    }

    /// A peer is given up: all that counted on it fails, and the driver is to cut it off.
    fn lose(&mut self, node: NodeId, users: BTreeSet<Use>) {
        let Some(peers) = &mut self.peers else { return };
        let floor = peers.sessions.numbers(node).map_or(0, |numbers| numbers.0);
        peers.disconnects.push_back((node, floor));
        peers.quarantine.iter_mut().filter(|q| q.writer == node).for_each(|q| q.is_hushed = false);
        for by in users {
            match by {
                Use::Ask(name) => self.lose_party(node, name),
                Use::Share(name) => self.lose_partner(node, name, floor),
            }
        }
    }

    /// Tells a node, which may be this one.
    fn say(&mut self, node: NodeId, ask: AskId, message: PeerMessage) {
        let Some(peers) = &mut self.peers else { return };
        let note = Note { ask, message };
        if peers.is_me(node) {
            self.steps.push_back(Step::Note(note));
        } else {
            peers.sessions.send(self.now, node, note);
        }
    }
}
