//! The asker's side: the order of reservations, and the end of a transfer that others run.

use super::{AskId, Asked, PeerMessage, Peers, Use, gone};
use crate::engine::Engine;
use crate::program::{Program, Stretch};
use crate::report::{HopReport, Meter};
use crate::transfer::{Phase, Role};
use crate::waits::Wait;
use model::{NodeId, Outcome, TransferId};
use std::sync::Arc;

/// How far a party is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// It knows nothing of the transfer.
    Unasked,
    /// It may have staging, or wait for it.
    Asked,
    /// It has its rings.
    Reserved,
    /// Nothing of its share is left.
    Ended,
}

#[derive(Debug)]
struct Party {
    stretch: Stretch,
    stage: Stage,
}

/// A transfer that others run. Invariant: parties are in the order of the path; they are asked in
/// the order of nodes.
#[derive(Debug)]
pub(crate) struct Ask {
    transfer: TransferId,
    asked: Arc<Asked>,
    parties: Vec<Party>,
    is_stopping: bool,
    /// Whether the party of the last hop is done: all bytes are where they belong, and committed.
    is_done: bool,
}

impl Ask {
    /// The next to be asked, if all that were have reserved.
    fn next(&self) -> Option<usize> {
        if self.is_stopping || self.parties.iter().any(|p| p.stage == Stage::Asked) {
            return None;
        }
        let unasked = self.parties.iter().enumerate().filter(|(_, p)| p.stage == Stage::Unasked);
        unasked.min_by_key(|(_, p)| p.stretch.node).map(|(at, _)| at)
    }

    /// The node of the last hop.
    fn last(&self) -> Option<NodeId> {
        let last = self.parties.iter().rfind(|p| !p.stretch.hops.is_empty());
        last.map(|party| party.stretch.node)
    }

    fn party(&mut self, node: NodeId) -> Option<&mut Party> {
        self.parties.iter_mut().find(|p| p.stretch.node == node)
    }

    /// Those who know of the transfer, and are not done with it.
    fn open(&self) -> Vec<NodeId> {
        let knows = |p: &&Party| matches!(p.stage, Stage::Asked | Stage::Reserved);
        self.parties.iter().filter(knows).map(|p| p.stretch.node).collect()
    }
}

impl Peers {
    fn id_of(&self, serial: u64) -> AskId {
        AskId { asker: self.config.node, life: self.config.life, serial }
    }
}

impl Engine {
    /// The name of a transfer between nodes.
    pub(crate) fn ask_of(&self, id: TransferId) -> Option<AskId> {
        match &self.table.get(id)?.role {
            Role::Asker(serial) => Some(self.peers.as_ref()?.id_of(*serial)),
            Role::Share(share) => Some(share.name),
            Role::Whole | Role::Away => None,
        }
    }

    /// Whose word the asker of a transfer waits for.
    pub(crate) fn waits_of_asker(&self, serial: u64) -> Vec<Wait> {
        let ask = self.peers.as_ref().and_then(|peers| peers.asks.get(&serial));
        let parties = ask.into_iter().flat_map(|ask| &ask.parties);
        let knows = |p: &&Party| matches!(p.stage, Stage::Asked | Stage::Reserved);
        let wait = |p: &Party| Wait::Party {
            node: p.stretch.node,
            has_reserved: p.stage == Stage::Reserved,
        };
        parties.filter(knows).map(wait).collect()
    }

    /// Whether other nodes have part in a program, and it can be asked of them.
    pub(crate) fn is_away(&self, program: &Program) -> bool {
        let Some(peers) = &self.peers else { return false };
        let me = peers.config.node;
        program.stretches().iter().any(|stretch| stretch.node != me)
    }

    /// Asks the parties of a transfer that waits for nothing any more.
    pub(crate) fn ask(&mut self, id: TransferId) {
        if let Some(serial) = self.name_ask(id) {
            self.ask_next(serial);
        }
    }

    /// Numbers a transfer that others are to run; nobody is asked yet.
    pub(crate) fn name_ask(&mut self, id: TransferId) -> Option<u64> {
        let (record, peers) = (self.table.get_mut(id)?, self.peers.as_mut()?);
        let transfer = &mut record.transfer;
        let asked = Asked {
            program: Arc::clone(&transfer.program),
            src: transfer.src,
            dst: transfer.dst,
            priority: transfer.priority,
            commit: transfer.commit.take(),
            lives: transfer.lives,
        };
        let party = |stretch: &Stretch| Party { stretch: stretch.clone(), stage: Stage::Unasked };
        peers.serial += 1;
        let ask = Ask {
            transfer: id,
            asked: Arc::new(asked),
            parties: transfer.program.stretches().iter().map(party).collect(),
            is_stopping: false,
            is_done: false,
        };
        peers.asks.insert(peers.serial, ask);
        record.phase = Phase::Away;
        record.role = Role::Asker(peers.serial);
        record.stages.started = Some(self.now);
        Some(peers.serial)
    }

    /// Asks the next party, if it is its turn.
    fn ask_next(&mut self, serial: u64) {
        let ask = self.peers.as_ref().and_then(|peers| peers.asks.get(&serial));
        if let Some(at) = ask.and_then(Ask::next) {
            self.ask_party(serial, at, PeerMessage::Reserve);
        }
    }

    fn ask_party(
        &mut self,
        serial: u64,
        at: usize,
        message: impl FnOnce(Arc<Asked>) -> PeerMessage,
    ) {
        let Some(peers) = &mut self.peers else { return };
        let name = peers.id_of(serial);
        let Some(ask) = peers.asks.get_mut(&serial) else { return };
        let party = &mut ask.parties[at];
        party.stage = Stage::Asked;
        let (node, asked) = (party.stretch.node, Arc::clone(&ask.asked));
        if !peers.is_me(node) {
            peers.sessions.hold(self.now, node, Use::Ask(name));
        }
        self.say(node, name, message(asked));
    }

    /// A party has its rings.
    pub(super) fn handle_reserved(&mut self, from: NodeId, name: AskId) {
        let Some(ask) = self.peers.as_mut().and_then(|p| p.asks.get_mut(&name.serial)) else {
            return;
        };
        let Some(party) = ask.party(from).filter(|p| p.stage == Stage::Asked) else { return };
        party.stage = Stage::Reserved;
        self.ask_next(name.serial);
    }

    /// The party of the last hop is so far.
    pub(super) fn handle_progress(&mut self, from: NodeId, name: AskId, bytes: u64) {
        let ask = self.peers.as_ref().and_then(|p| p.asks.get(&name.serial));
        let Some(ask) = ask.filter(|ask| ask.last() == Some(from)) else { return };
        let Some(record) = self.table.get_mut(ask.transfer) else { return };
        let total = record.transfer.program.payload_bytes();
        record.done_bytes = record.done_bytes.max(bytes.min(total));
    }

    /// Nothing is left of a party's share.
    pub(super) fn handle_ended(
        &mut self,
        from: NodeId,
        name: AskId,
        outcome: Outcome,
        reports: &[HopReport],
    ) {
        let Some(peers) = &mut self.peers else { return };
        let Some(ask) = peers.asks.get_mut(&name.serial) else { return };
        let knows = |p: &&mut Party| matches!(p.stage, Stage::Asked | Stage::Reserved);
        let Some(party) = ask.party(from).filter(knows) else { return };
        party.stage = Stage::Ended;
        let hops = party.stretch.hops.clone();
        let id = ask.transfer;
        ask.is_done |= outcome == Outcome::Done && ask.last() == Some(from);
        if !peers.is_me(from) {
            peers.sessions.release(self.now, from, Use::Ask(name));
        }
        if let Some(record) = self.table.get_mut(id) {
            let lanes = record.run.lanes[hops].iter_mut().zip(reports);
            lanes.for_each(|(lane, told)| lane.meter = Meter::told(told));
        }
        if outcome != Outcome::Done {
            self.stop(id, outcome);
        }
        self.close(name.serial);
        self.ask_next(name.serial);
    }

    /// Has the parties of a transfer stop; it ends when all have.
    pub(crate) fn recall(&mut self, serial: u64, outcome: &Outcome) {
        let Some(peers) = &mut self.peers else { return };
        let name = peers.id_of(serial);
        let Some(ask) = peers.asks.get_mut(&serial) else { return };
        ask.is_stopping = true;
        let open = ask.open();
        let last = ask.last();
        let last = ask.parties.iter().position(|p| Some(p.stretch.node) == last);
        let unasked = last.filter(|&at| ask.parties[at].stage == Stage::Unasked);
        if let Some(at) = unasked.filter(|_| ask.asked.commit.is_some()) {
            let undo = |asked| PeerMessage::Undo(asked, outcome.clone());
            self.ask_party(serial, at, undo);
        }
        for node in open {
            self.say(node, name, PeerMessage::Stop(outcome.clone()));
        }
        self.close(serial);
    }

    /// A peer is gone: whatever it had part in fails.
    pub(super) fn lose_party(&mut self, node: NodeId, name: AskId) {
        let Some(ask) = self.peers.as_mut().and_then(|p| p.asks.get_mut(&name.serial)) else {
            return;
        };
        let Some(party) = ask.party(node).filter(|p| p.stage != Stage::Ended) else { return };
        party.stage = Stage::Ended;
        let (id, failure) = (ask.transfer, gone(&ask.asked.program, node));
        self.stop(id, failure);
        self.close(name.serial);
    }

    /// Ends a transfer when all parties that know of it have ended.
    fn close(&mut self, serial: u64) {
        let Some(peers) = &mut self.peers else { return };
        let Some(ask) = peers.asks.get(&serial) else { return };
        let is_over = |p: &Party| p.stage == Stage::Ended;
        let all = ask.parties.iter().all(is_over);
        let rest = ask.parties.iter().all(|p| is_over(p) || p.stage == Stage::Unasked);
        if !(all || (ask.is_stopping && rest)) {
            return;
        }
        let (id, is_done) = (ask.transfer, ask.is_done);
        peers.asks.remove(&serial);
        let Some(record) = self.table.get_mut(id) else { return };
        let outcome = match &record.phase {
            Phase::Draining(outcome) if !is_done => outcome.clone(),
            _ => Outcome::Done,
        };
        if outcome == Outcome::Done {
            record.done_bytes = record.transfer.program.payload_bytes();
        }
        self.end(id, outcome);
    }
}
