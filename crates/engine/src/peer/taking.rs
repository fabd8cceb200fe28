//! How a party takes its share, or refuses it.
//!
//! **Hazard.** A share names a region of this node's earlier life, which means something else by
//! now; one that is refused leaves a file that nobody undoes; parties that wait for room in each
//! other's tables wait for ever. **Guarantee.** What was named in another life is neither written,
//! read nor undone. A session is of two lives, yet who asks may have learned of a region before the
//! first of his with this node: so the life is named beside the region. Who refuses the share that
//! commits undoes it, once, though the table is full. A full table refuses at once, and says that
//! this may pass: a place in a table is held by those who wait as well, in no global order, so that
//! waiting for one could last for ever.

use super::{AskId, Asked, PeerMessage, Share, Use, failed_at};
use crate::SubmitError;
use crate::engine::Engine;
use crate::program::Stretch;
use crate::transfer::{Record, Role, Transfer};
use model::{ChannelError, ChannelErrorKind, NodeId, Outcome, TransferId};
use std::sync::Arc;

impl Engine {
    /// Takes a share, or says why not.
    pub(super) fn handle_reserve(&mut self, name: AskId, asked: &Asked) {
        let Some(stretch) = self.new_share(name, asked) else { return };
        let transfer = transfer_of(asked, &stretch);
        match self.refusal(&transfer, &stretch) {
            None => {
                let id = self.take_share(name, transfer, stretch);
                self.release(id);
            }
            Some(cause) => {
                let outcome = failed_at(&asked.program, stretch.node, cause);
                self.undo_share(name, transfer, stretch, outcome);
            }
        }
    }

    /// Does nothing of a share but undo what it would have committed.
    pub(super) fn handle_undo(&mut self, name: AskId, asked: &Asked, outcome: Outcome) {
        if let Some(stretch) = self.new_share(name, asked) {
            self.undo_share(name, transfer_of(asked, &stretch), stretch, outcome);
        }
    }

    /// This node's part of a program that it is asked to run and does not know yet.
    fn new_share(&mut self, name: AskId, asked: &Asked) -> Option<Stretch> {
        let peers = self.peers.as_ref()?;
        if peers.shares.contains_key(&name) {
            return None;
        }
        let me = peers.config.node;
        let stretch = asked.program.stretches().iter().find(|s| s.node == me);
        if stretch.is_none() {
            let kind = ChannelErrorKind::Dependency;
            let cause = ChannelError::new(kind, format!("the path does not pass {me}"));
            let outcome = failed_at(&asked.program, me, cause);
            self.say(name.asker, name, PeerMessage::Ended(outcome, Vec::new()));
        }
        stretch.cloned()
    }

    /// Why a share can't run here, if it can't.
    fn refusal(&self, transfer: &Transfer, stretch: &Stretch) -> Option<ChannelError> {
        let me = stretch.node;
        if self.peers.as_ref().is_some_and(|peers| peers.is_leaving) {
            return Some(ChannelError::new(ChannelErrorKind::PeerLost, format!("{me} is leaving")));
        }
        if !self.names_this_life(transfer, 0) || !self.names_this_life(transfer, 1) {
            let detail = format!("a region was named in another life of {me}");
            return Some(ChannelError::new(ChannelErrorKind::PeerLost, detail));
        }
        let refused = self.check_share(transfer, stretch).err()?;
        let is_full = refused == SubmitError::Full;
        let kind = if is_full { ChannelErrorKind::Busy } else { ChannelErrorKind::Dependency };
        Some(ChannelError::new(kind, format!("{me} does not take the transfer: {refused}")))
    }

    /// Takes no more shares, and gives up those that there are where it `stops` them.
    pub(crate) fn refuse_shares(&mut self, stops: bool) {
        let Some(peers) = &mut self.peers else { return };
        peers.is_leaving = true;
        let me = peers.config.node;
        let shares: Vec<_> = peers.shares.values().copied().filter(|_| stops).collect();
        for id in shares {
            let Some(record) = self.table.get(id) else { continue };
            let cause = ChannelError::new(ChannelErrorKind::PeerLost, format!("{me} is leaving"));
            let outcome = failed_at(&record.transfer.program, me, cause);
            self.stop(id, outcome);
        }
    }

    /// Whether an end that lies here is named as it is in this life.
    fn names_this_life(&self, transfer: &Transfer, end: usize) -> bool {
        let Some(peers) = &self.peers else { return false };
        let named = transfer.lives[end].filter(|_| peers.is_me(transfer.program.node_of(end)));
        named.is_none_or(|life| life == peers.config.life)
    }

    fn undo_share(&mut self, name: AskId, transfer: Transfer, stretch: Stretch, outcome: Outcome) {
        let last = transfer.program.channels().last();
        let is_driven = last.is_some_and(|channel| self.worker_of(channel).is_some());
        if transfer.commit.is_some() && is_driven && self.names_this_life(&transfer, 1) {
            let id = self.take_share(name, transfer, stretch);
            self.stop(id, outcome);
        } else {
            self.say(name.asker, name, PeerMessage::Ended(outcome, Vec::new()));
        }
    }

    /// Enters a share in the table.
    fn take_share(&mut self, name: AskId, transfer: Transfer, stretch: Stretch) -> TransferId {
        let share = Share::new(name, stretch);
        let partners: Vec<NodeId> = share.partners().collect();
        let own = share.own();
        let id = self.enter(transfer);
        if let Some(record) = self.table.get_mut(id) {
            (record.role, record.run.own) = (Role::Share(Box::new(share)), own);
        }
        let Some(peers) = &mut self.peers else { return id };
        peers.shares.insert(name, id);
        for node in partners {
            if !peers.is_me(node) {
                peers.sessions.hold(self.now, node, Use::Share(name));
            }
        }
        id
    }

    /// Whether the destination of a share that is to be undone is still what it was: not where its
    /// node has begun another life since, as far as is known here.
    pub(crate) fn may_undo(&self, record: &Record, outcome: &Outcome) -> bool {
        let Some(peers) = &self.peers else { return true };
        let node = record.transfer.program.node_of(1);
        let named = record.transfer.lives[1].filter(|_| !peers.is_me(node));
        let Some(named) = named else { return true };
        match peers.sessions.life_of(node) {
            Some(life) => life == named,
            None => !is_lost(outcome, node),
        }
    }
}

/// Whether a transfer ended so since `node` was lost.
fn is_lost(outcome: &Outcome, node: NodeId) -> bool {
    let Outcome::Failed(e) = outcome else { return false };
    e.cause.kind == ChannelErrorKind::PeerLost && e.memory.node == node
}

/// What a party does of a transfer: only that of the last hop commits.
fn transfer_of(asked: &Asked, stretch: &Stretch) -> Transfer {
    let ends_here = stretch.hops.end == asked.program.hops().len() && !stretch.hops.is_empty();
    Transfer {
        priority: asked.priority,
        lives: asked.lives,
        commit: asked.commit.filter(|_| ends_here),
        ..Transfer::new(Arc::clone(&asked.program), asked.src, asked.dst)
    }
}
