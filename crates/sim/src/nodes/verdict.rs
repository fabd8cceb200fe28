//! What is said of a transfer at its end, and of the whole run: by rules, without looking inside.

use super::world::{Watch, World};
use crate::scenario::After;
use crate::trace::Event;
use crate::violation::Violation;
use engine::{Engine, State, TransferEvent};
use model::{ChannelErrorKind, NodeId, Outcome, Request, Work};

impl World<'_> {
    /// A transfer ended, says its asker.
    pub(super) fn end(&mut self, node: usize, event: TransferEvent) -> Result<(), Violation> {
        let TransferEvent { transfer: id, outcome } = event;
        let found = self.asked_at(node, id);
        let transfer = found.ok_or(Violation::Stuck { transfer: usize::MAX })?;
        self.note(Event::Ended { transfer, outcome: outcome.clone() });
        if self.watches[transfer].ended.is_some() {
            return Err(Violation::EndedTwice { transfer });
        }
        if !self.is_explained(transfer, &outcome) {
            return Err(Violation::Unexplained { transfer, outcome });
        }
        self.watches[transfer].ended = Some(outcome.clone());
        self.check_commit(transfer)?;
        if outcome == Outcome::Done || self.scenario.faults.is_empty() {
            self.cast.retire(transfer, &outcome, &mut self.memories)?;
        }
        Ok(())
    }

    /// What a transfer waits for is done before anything of it is copied or committed.
    pub(super) fn check_waits(&self, transfer: usize, request: &Request) -> Result<(), Violation> {
        let is_met = |after: &After| match *after {
            After::Transfer(other) => self.is_done(other),
            After::Fence(fence) => {
                self.trace.iter().any(|e| e.event == Event::Fenced { fence, ok: true })
            }
        };
        let waits = &self.scenario.base.transfers[transfer].after;
        let is_undone = matches!(request.work, Work::Abort { .. });
        let right = is_undone || waits.iter().all(is_met);
        right.then_some(()).ok_or(Violation::TooEarly { request: request.id, transfer })
    }

    /// Whether its asker knows that a transfer is done, though it may not have said so yet.
    fn is_done(&self, transfer: usize) -> bool {
        let watch = &self.watches[transfer];
        let site = &self.sites[self.scenario.askers[transfer].0 as usize];
        let engine = site.engine.as_ref().filter(|_| site.life == watch.life);
        let state = watch.id.and_then(|id| engine?.state(id));
        watch.ended == Some(Outcome::Done) || state == Some(State::Ended(Outcome::Done))
    }

    /// What is done was committed, and what is not was undone, unless who had to do it is dead.
    fn check_commit(&self, transfer: usize) -> Result<(), Violation> {
        let watch = &self.watches[transfer];
        let is_done = watch.ended == Some(Outcome::Done);
        let right = match (self.scenario.base.transfers[transfer].commit, is_done) {
            (false, _) => watch.commits + watch.aborts == 0,
            (true, true) => (watch.commits, watch.aborts) == (1, 0),
            (true, false) => watch.aborts == 1 || !self.scenario.faults.is_empty(),
        };
        right.then_some(()).ok_or(Violation::WrongCommit { transfer })
    }

    fn is_explained(&self, transfer: usize, outcome: &Outcome) -> bool {
        let base = &self.scenario.base;
        let has_faults = !base.faults.is_empty() || !self.scenario.faults.is_empty();
        match outcome {
            Outcome::Done => true,
            Outcome::Cancelled => self.watches[transfer].cancelled,
            Outcome::TimedOut => {
                base.transfers[transfer].deadline.is_some_and(|d| d <= self.agenda.now())
            }
            Outcome::Failed(e) => match e.cause.kind {
                ChannelErrorKind::PeerLost => !self.scenario.faults.is_empty(),
                ChannelErrorKind::Dependency => !base.transfers[transfer].after.is_empty(),
                _ => has_faults,
            },
        }
    }

    pub(super) fn all_ended(&self) -> Result<(), Violation> {
        let lives = |watch: &Watch, asker: NodeId| {
            let site = &self.sites[asker.0 as usize];
            site.engine.is_some() && site.life == watch.life
        };
        let watches = self.watches.iter().zip(&self.scenario.askers).enumerate();
        for (transfer, (watch, asker)) in watches {
            if watch.id.is_some() && watch.ended.is_none() && lives(watch, *asker) {
                return Err(Violation::Stuck { transfer });
            }
        }
        Ok(())
    }

    /// Nothing more can happen: everything has ended, and nothing was touched since.
    pub(super) fn close(&mut self) -> Result<(), Violation> {
        self.all_ended()?;
        self.cast.check_untouched(&self.memories)?;
        for transfer in 0..self.watches.len() {
            let ended = self.watches[transfer].ended.clone();
            let is_retired = ended == Some(Outcome::Done) || self.scenario.faults.is_empty();
            if let Some(outcome) = Some(ended.unwrap_or(Outcome::Cancelled)).filter(|_| !is_retired)
            {
                self.cast.compare(transfer, &outcome, &self.memories)?;
            }
        }
        let pools = self.scenario.base.pools.iter();
        let engine = |node: NodeId| self.sites[node.0 as usize].engine.as_ref();
        let given = pools.filter_map(|p| engine(p.memory.node)?.staging(p.memory)).map(|u| u.0);
        let bytes = given.sum::<u64>() + self.memories.staged_bytes();
        let mut engines = self.sites.iter().filter_map(|site| site.engine.as_ref());
        if bytes > 0 || !engines.all(Engine::is_idle) {
            return Err(Violation::StagingLeak { bytes });
        }
        Ok(())
    }
}
