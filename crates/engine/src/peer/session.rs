//! One peer: every message once and in order, over a wire that loses, repeats and reorders packets.
//!
//! **Hazard.** A packet of a peer's earlier life, or from before it was given up, is taken for a new
//! one; a peer that is gone is waited for. **Guarantee.** Within a pair of sessions messages come
//! once and in order; a message of any other pair comes never. A peer that is in use and is not
//! heard for a lease, or acknowledges nothing for one, is given up, and learns of it from the next
//! packet that comes from here.
//! **Structure.** Each side numbers its sessions with each peer, in ascending order over all its
//! lives; a packet names the session of either side, and only one that names the receiver's present
//! session is heard: others are answered by a greeting that names theirs. When one side renews its
//! session, the other's is over as well. Messages are numbered, kept until they are acknowledged, and
//! at most [`WINDOW`] are out.

use super::{AskId, Note, PeerConfig, PeerMessage};
use model::{NodeId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most messages that are out to one peer; others wait.
const WINDOW: usize = 256;

/// A session's number is its node's life, then a count.
const LIFE_SHIFT: u32 = 32;

/// The least lease, and the least time before a message is sent again.
const LEAST: Duration = Duration::from_nanos(4);

/// What one engine hands another. The driver may lose it, repeat it, delay it, and let others
/// overtake it.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Who sends it.
    pub from: NodeId,
    /// For whom it is.
    pub to: NodeId,
    /// The sender's session, which ascends for ever.
    pub session: u64,
    /// The receiver's session as the sender knows it; 0 if it knows none.
    pub to_session: u64,
    /// Whether the sender has given that one up.
    pub is_over: bool,
    /// Whether the sender wants to hear that the receiver lives.
    pub asks: bool,
    /// All messages up to this number have come.
    pub ack: u64,
    /// The message's number, from 1, with what it is about.
    pub body: Option<(u64, AskId, PeerMessage)>,
}

/// What to say to a packet at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// Which session this side is in, to this one of theirs.
    Greet(u64),
    /// All that was not acknowledged: the peer's session was just learned.
    Speak,
}

/// What a packet says.
#[derive(Debug)]
enum Word {
    Message(u64, Note),
    /// Which session this side is in, to one of theirs that is not learned yet, or over.
    Greet(u64),
    /// That this side lives, and wants to hear that the other does.
    Beat,
    /// That this side lives, and what has come. It asks nothing: two who are in use and idle would
    /// answer each other for ever.
    Ack,
}

/// What a packet brought.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Who counted on the peer's session before this one, which has ended.
    pub(crate) lost: Option<BTreeSet<Use>>,
    /// In order.
    pub(crate) notes: Vec<Note>,
}

#[derive(Debug)]
struct Out {
    number: u64,
    /// When it was sent first in the present pair of sessions.
    since: Time,
    sent_at: Time,
    note: Note,
}

/// Who counts on a peer: a transfer that this node has asked for, or a share that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Ask(AskId),
    Share(AskId),
}

/// What is known of one peer. Invariant: `unacked` is sorted, and no longer than [`WINDOW`].
#[derive(Debug)]
struct Session {
    mine: u64,
    theirs: u64,
    /// `theirs` was given up.
    is_dead: bool,
    /// The driver has said that the peer is gone, and nothing was heard of it since.
    is_gone: bool,
    users: BTreeSet<Use>,
    last_number: u64,
    unacked: VecDeque<Out>,
    waiting: VecDeque<Note>,
    received: u64,
    early: BTreeMap<u64, Note>,
    times: Times,
}

/// When a peer was heard last and told something, and since when it is owed an acknowledgement.
#[derive(Debug)]
struct Times {
    heard_at: Time,
    sent_at: Time,
    owes_since: Option<Time>,
}

/// All peers, by node.
#[derive(Debug)]
pub(crate) struct Sessions {
    config: PeerConfig,
    all: BTreeMap<NodeId, Session>,
    alarms: Alarms,
    packets: VecDeque<Packet>,
}

/// When each peer that has something to do is due.
#[derive(Debug, Default)]
struct Alarms {
    queue: BTreeSet<(Time, NodeId)>,
    set: BTreeMap<NodeId, Time>,
}

impl Alarms {
    fn set(&mut self, node: NodeId, due: Option<Time>) {
        if let Some(before) = self.set.remove(&node) {
            self.queue.remove(&(before, node));
        }
        if let Some(due) = due {
            self.set.insert(node, due);
            self.queue.insert((due, node));
        }
    }

    fn next(&self) -> Option<(Time, NodeId)> {
        self.queue.first().copied()
    }
}

impl Session {
    fn new(life: u32, now: Time) -> Self {
        Session {
            mine: u64::from(life) << LIFE_SHIFT | 1,
            theirs: 0,
            is_dead: false,
            is_gone: false,
            users: BTreeSet::new(),
            last_number: 0,
            unacked: VecDeque::new(),
            waiting: VecDeque::new(),
            received: 0,
            early: BTreeMap::new(),
            times: Times { heard_at: now, sent_at: now, owes_since: None },
        }
    }

    /// Starts over; returns who counted on the peer.
    fn renew(&mut self, now: Time) -> BTreeSet<Use> {
        let next = Session::new(0, now);
        let old = std::mem::replace(self, next);
        (self.mine, self.theirs, self.is_dead) = (old.mine + 1, old.theirs, old.theirs != 0);
        self.is_gone = old.is_gone;
        old.users
    }

    fn is_in_use(&self) -> bool {
        !self.users.is_empty() || !self.unacked.is_empty()
    }

    /// From when on a peer that is in use owes a word, or an acknowledgement.
    fn in_use_since(&self) -> Option<Time> {
        let oldest = self.unacked.front().map_or(self.times.heard_at, |out| out.since);
        self.is_in_use().then(|| self.times.heard_at.min(oldest))
    }

    /// Whether it is used in vain: its lease is over, or it is gone.
    fn is_lost(&self, now: Time, lease: Duration) -> bool {
        self.in_use_since().is_some_and(|since| self.is_gone || now.since(since) >= lease)
    }

    /// When something is to be done about it.
    fn due(&self, config: &PeerConfig) -> Option<Time> {
        if self.is_gone && self.is_in_use() {
            return Some(Time::default());
        }
        let again = self.unacked.front().map(|out| out.sent_at + config.resend);
        let ack = self.times.owes_since.map(|at| at + config.resend / 4);
        let use_by = self.in_use_since().map(|since| since + config.lease);
        let beat = self.is_in_use().then(|| self.times.sent_at + beat(config));
        [again, ack, use_by, beat].into_iter().flatten().min()
    }

    /// Whether a session of the peer's is known, and not over.
    fn is_open(&self) -> bool {
        self.theirs != 0 && !self.is_dead
    }

    /// Takes a packet in; what to answer. A session of the peer's is learned only from a packet that
    /// names the present one of this side, so that no late packet is taken for one of it.
    fn hear(&mut self, now: Time, packet: Packet, heard: &mut Heard) -> Answer {
        let theirs = packet.session;
        if theirs == 0 || theirs < self.theirs {
            return Answer::Nothing;
        }
        if theirs == self.theirs && self.is_dead {
            return Answer::Greet(theirs);
        }
        let names_me = packet.to_session == self.mine;
        let is_newer = theirs > self.theirs;
        if (names_me && packet.is_over) || (is_newer && self.is_open()) {
            heard.lost = Some(self.renew(now));
            return Answer::Greet(theirs);
        }
        if !names_me {
            return Answer::Greet(theirs);
        }
        (self.theirs, self.is_dead, self.times.heard_at) = (theirs, false, now);
        self.is_gone = false;
        while self.unacked.front().is_some_and(|out| out.number <= packet.ack) {
            self.unacked.pop_front();
        }
        if packet.asks || packet.body.is_some() {
            self.times.owes_since.get_or_insert(now);
        }
        if let Some((number, ask, message)) = packet.body {
            heard.notes = self.take(number, Note { ask, message });
        }
        if is_newer { Answer::Speak } else { Answer::Nothing }
    }

    /// Takes a message in, and returns those whose turn it is.
    fn take(&mut self, number: u64, note: Note) -> Vec<Note> {
        let mut notes = Vec::new();
        if number <= self.received || number > self.received + WINDOW as u64 {
            return notes;
        }
        self.early.insert(number, note);
        while let Some(note) = self.early.remove(&(self.received + 1)) {
            self.received += 1;
            notes.push(note);
        }
        notes
    }
}

/// How often a peer in use hears something.
fn beat(config: &PeerConfig) -> Duration {
    config.lease / 4
}

impl Sessions {
    pub(crate) fn new(config: PeerConfig) -> Self {
        // Time goes on between two alarms.
        let (lease, resend) = (config.lease.max(LEAST), config.resend.max(LEAST));
        let (all, alarms, packets) = (BTreeMap::new(), Alarms::default(), VecDeque::new());
        Sessions { config: PeerConfig { lease, resend, ..config }, all, alarms, packets }
    }

    /// Says `note` to a peer.
    pub(crate) fn send(&mut self, now: Time, to: NodeId, note: Note) {
        self.change(now, to, |session| session.waiting.push_back(note));
    }

    /// From now on somebody counts on the peer: its silence is its end.
    pub(crate) fn hold(&mut self, now: Time, node: NodeId, by: Use) {
        self.change(now, node, |session| {
            if !session.is_in_use() {
                session.times.heard_at = now;
            }
            session.users.insert(by);
        });
    }

    /// The peer is gone: who counts on it, now or before it is heard again, is not to wait for its
    /// lease.
    pub(crate) fn give_up(&mut self, now: Time, node: NodeId) {
        self.change(now, node, |session| session.is_gone = true);
    }

    /// Nobody counts on the peer for that any more.
    pub(crate) fn release(&mut self, now: Time, node: NodeId, by: Use) {
        self.change(now, node, |session| {
            session.users.remove(&by);
        });
    }

    /// Takes a packet in.
    pub(crate) fn handle(&mut self, now: Time, packet: Packet) -> Heard {
        let (mut heard, mut answer) = (Heard::default(), Answer::Nothing);
        let from = packet.from;
        self.change(now, from, |session| answer = session.hear(now, packet, &mut heard));
        match answer {
            Answer::Nothing => {}
            Answer::Greet(theirs) => self.post(now, from, Word::Greet(theirs)),
            Answer::Speak => self.speak(now, from),
        }
        self.rearm(from);
        heard
    }

    /// Says all that was not acknowledged, or nothing in particular, in a session that is new.
    fn speak(&mut self, now: Time, node: NodeId) {
        let Some(session) = self.all.get_mut(&node) else { return };
        session.unacked.iter_mut().for_each(|out| (out.since, out.sent_at) = (now, now));
        let all: Vec<_> =
            session.unacked.iter().map(|out| (out.number, out.note.clone())).collect();
        if all.is_empty() {
            self.post(now, node, Word::Beat);
        }
        all.into_iter()
            .for_each(|(number, note)| self.post(now, node, Word::Message(number, note)));
    }

    /// Sends again what is due, and gives up who was not heard: with those who counted on it.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Vec<(NodeId, BTreeSet<Use>)> {
        let mut lost = Vec::new();
        while let Some((_, node)) = self.alarms.next().filter(|(due, _)| *due <= now) {
            lost.extend(self.wake(now, node).map(|users| (node, users)));
            self.rearm(node);
        }
        lost
    }

    /// What is due with one peer; who counted on it, if it is given up.
    fn wake(&mut self, now: Time, node: NodeId) -> Option<BTreeSet<Use>> {
        let config = self.config;
        let session = self.all.get_mut(&node)?;
        if session.is_lost(now, config.lease) {
            return Some(session.renew(now));
        }
        let late = |out: &&mut Out| now.since(out.sent_at) >= config.resend;
        let again = session.unacked.iter_mut().filter(late).map(|out| {
            out.sent_at = now;
            (out.number, out.note.clone())
        });
        let again: Vec<_> = again.collect();
        let beats = session.is_in_use() && now.since(session.times.sent_at) >= beat(&config);
        let overdue = |at: Time| now.since(at) >= config.resend / 4;
        let owes = session.times.owes_since.is_some_and(overdue);
        if again.is_empty() && (beats || owes) {
            self.post(now, node, if beats { Word::Beat } else { Word::Ack });
        }
        again
            .into_iter()
            .for_each(|(number, note)| self.post(now, node, Word::Message(number, note)));
        None
    }

    /// This side's number of the present session, and the other's, 0 where that is not known.
    pub(crate) fn numbers(&self, node: NodeId) -> Option<(u64, u64)> {
        let session = self.all.get(&node)?;
        Some((session.mine, if session.is_open() { session.theirs } else { 0 }))
    }

    /// In which life a peer is, where its present session is known.
    pub(crate) fn life_of(&self, node: NodeId) -> Option<u32> {
        let (_, theirs) = self.numbers(node)?;
        u32::try_from(theirs >> LIFE_SHIFT).ok().filter(|life| *life > 0)
    }

    pub(crate) fn poll_packet(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.alarms.next().map(|(due, _)| due)
    }

    /// Changes what is known of a peer, then sends what may go and minds its alarm.
    fn change(&mut self, now: Time, node: NodeId, act: impl FnOnce(&mut Session)) {
        let life = self.config.life;
        let session = self.all.entry(node).or_insert_with(|| Session::new(life, now));
        act(session);
        let mut ready = Vec::new();
        while session.unacked.len() < WINDOW {
            let Some(note) = session.waiting.pop_front() else { break };
            if session.unacked.is_empty() && session.users.is_empty() {
                session.times.heard_at = now;
            }
            session.last_number += 1;
            let number = session.last_number;
            ready.push((number, note.clone()));
            session.unacked.push_back(Out { number, since: now, sent_at: now, note });
        }
        ready
            .into_iter()
            .for_each(|(number, note)| self.post(now, node, Word::Message(number, note)));
        self.rearm(node);
    }

    fn rearm(&mut self, node: NodeId) {
        let due = self.all.get(&node).and_then(|session| session.due(&self.config));
        self.alarms.set(node, due);
    }

    /// Sends a packet.
    fn post(&mut self, now: Time, node: NodeId, word: Word) {
        let Some(session) = self.all.get_mut(&node) else { return };
        session.times.sent_at = now;
        let greeted = match word {
            Word::Greet(theirs) => Some(theirs),
            _ => None,
        };
        if greeted.is_none() {
            session.times.owes_since = None;
        }
        let is_open = session.is_open() && greeted.is_none();
        let to_session = greeted.unwrap_or(session.theirs);
        let asks = is_open && session.is_in_use() && !matches!(word, Word::Ack);
        self.packets.push_back(Packet {
            from: self.config.node,
            to: node,
            session: session.mine,
            to_session,
            is_over: session.is_dead && to_session == session.theirs,
            asks,
            ack: if is_open { session.received } else { 0 },
            body: match word {
                Word::Message(number, note) => Some((number, note.ask, note.message)),
                _ => None,
            },
        });
    }
}

#[cfg(test)]
mod tests;
