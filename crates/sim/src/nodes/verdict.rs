//! What is said of a transfer at its end, and of the whole run: by rules, without looking inside.

use super::node_id;
use super::world::{Watch, World};
use crate::scenario::{After, TransferSpec};
use crate::trace::Event;
use crate::violation::Violation;
use crate::waits::Waits;
use engine::{Engine, State, TransferEvent};
use model::{
    ChannelErrorKind, ChannelId, MemoryId, NodeId, Outcome, Priority, Request, TransferId, Work,
};
use std::collections::BTreeSet;

impl Watch {
    /// What an asker knows of its progress is true, and only grows.
    pub(super) fn check_progress(
        &mut self,
        transfer: usize,
        (after, total): (u64, u64),
    ) -> Result<(), Violation> {
        let before = std::mem::replace(&mut self.progress_bytes, after);
        let right = before <= after && after <= self.written_bytes.min(total);
        right.then_some(()).ok_or(Violation::Progress { transfer, before, after, total })
    }
}

impl World<'_> {
    /// A transfer ended, says its asker.
    pub(super) fn end(&mut self, node: usize, event: TransferEvent) -> Result<(), Violation> {
        let TransferEvent { transfer: id, outcome } = event;
        let found = self.asked_at(node, id);
        let transfer = found.ok_or(Violation::UnknownEvent)?;
        self.note(Event::Ended { transfer, outcome: outcome.clone() });
        if self.watches[transfer].ended.is_some() {
            return Err(Violation::EndedTwice { transfer });
        }
        if !self.is_explained(transfer, &outcome) {
            return Err(Violation::Unexplained { transfer, outcome });
        }
        self.watches[transfer].ended = Some(outcome.clone());
        if outcome == Outcome::Done {
            self.check_commit(transfer)?;
            self.check_figures(transfer, node, id)?;
        }
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

    /// What is done is committed, and what is not is undone; once.
    fn check_commit(&self, transfer: usize) -> Result<(), Violation> {
        let watch = &self.watches[transfer];
        let made = (watch.commits, watch.aborts);
        let is_done = watch.ended == Some(Outcome::Done);
        let right = match (self.scenario.base.transfers[transfer].commit, is_done) {
            (false, _) => made == (0, 0),
            (true, true) => made == (1, 0),
            (true, false) => {
                let is_left = watch.id.is_none() || self.is_excused(transfer);
                watch.commits <= 1 && (watch.aborts == 1 || watch.aborts == 0 && is_left)
            }
        };
        right.then_some(()).ok_or(Violation::WrongCommit { transfer })
    }

    /// Whether what is not done need not have been undone: the destination is of an earlier life;
    /// who had to undo it is dead, or has parted from the destination; or has parted from the asker, before it had heard of the transfer, or having
    /// committed it, which the asker does not know.
    fn is_excused(&self, transfer: usize) -> bool {
        let watch = &self.watches[transfer];
        let (committer, asker) =
            (self.scenario.committer(transfer), self.scenario.askers[transfer]);
        let [_, destination] = self.scenario.ends(transfer);
        let is_stale = self.sites[destination.0 as usize].life != watch.lives[1];
        let have_parted = |a: NodeId, b: NodeId| {
            self.trouble.have_parted(watch.submitted_at, &BTreeSet::from([a, b]))
        };
        let is_late = have_parted(committer, asker) && (watch.commits == 1 || !watch.is_known);
        let is_apart = destination != committer
            && (have_parted(committer, destination) || have_parted(asker, destination));
        let is_dead = self.trouble.has_died(watch.submitted_at, committer);
        is_stale || is_dead || is_late || is_apart
    }

    /// All of a transfer that is done is in its asker's figures: of every hop, but where a party
    /// was lost before it had told them.
    fn check_figures(&self, at: usize, node: usize, id: TransferId) -> Result<(), Violation> {
        let engine = self.sites[node].engine.as_ref();
        let (progress, report) =
            (engine.and_then(|e| e.progress(id)), engine.and_then(|e| e.report(id)));
        let (Some((after, total)), Some(report)) = (progress, report) else { return Ok(()) };
        if after < total {
            let before = self.watches[at].progress_bytes;
            return Err(Violation::Progress { transfer: at, before, after, total });
        }
        let is_whole = self.scenario.faults.is_empty();
        let untold = report.hops.iter().position(|hop| hop.bytes != total).filter(|_| is_whole);
        untold.map_or(Ok(()), |hop| Err(Violation::Untold { transfer: at, hop }))
    }

    /// No request touches what its asker did not name: a region of a node's life before this one.
    pub(super) fn check_lives(
        &self,
        node: usize,
        transfer: usize,
        request: &Request,
    ) -> Result<(), Violation> {
        let hops = self.scenario.base.transfers[transfer].plan.hops.len();
        let hop = usize::from(request.hop);
        let reads = hop == 0 && matches!(request.work, Work::Copy(_));
        let ends = self.scenario.ends(transfer);
        for (end, touches) in [(0, reads), (1, hop + 1 == hops)] {
            let (at, named) = (ends[end], self.watches[transfer].lives[end]);
            if touches && self.life_for(node, at).is_some_and(|life| life != named) {
                return Err(Violation::Stale { request: request.id, at });
            }
        }
        Ok(())
    }

    /// On each node, channels that serve by urgency pass nobody over who is ready.
    pub(super) fn check_urgency(
        &mut self,
        node: usize,
        transfer: usize,
        asked: (ChannelId, u64),
    ) -> Result<(), Violation> {
        let urgencies = self.urgencies(node);
        let urgency = &mut self.sites[node].urgency;
        urgency.set(&urgencies);
        urgency.check(&self.scenario.base, transfer, asked)
    }

    /// How urgent each transfer is on a node: as it was asked for, or as the most urgent that waits
    /// there for staging in a memory where it holds some.
    fn urgencies(&self, node: usize) -> Vec<Priority> {
        let specs = &self.scenario.base.transfers;
        let state = |transfer: usize| {
            let id = self.run_at(node, transfer)?;
            self.sites[node].engine.as_ref()?.state(id)
        };
        let states: Vec<Option<State>> = (0..specs.len()).map(state).collect();
        let memories = |spec: &TransferSpec| -> BTreeSet<MemoryId> {
            let memories = spec.plan.buffers.iter().map(|buffer| buffer.memory);
            memories.filter(|memory| memory.node.0 as usize == node).collect()
        };
        let waits = |at: &usize| states[*at] == Some(State::WaitingForStaging);
        let waiting: Vec<_> = (0..specs.len()).filter(waits).map(|at| &specs[at]).collect();
        let urgency = |(at, spec): (usize, &TransferSpec)| {
            let its = memories(spec);
            let meets = |other: &&&TransferSpec| !its.is_disjoint(&memories(other));
            let others = waiting.iter().filter(meets).map(|other| other.priority);
            let holds = states[at] == Some(State::Running);
            others.filter(|_| holds).max().map_or(spec.priority, |most| most.max(spec.priority))
        };
        specs.iter().enumerate().map(urgency).collect()
    }

    /// The life of `at` as `node` knows it.
    fn life_for(&self, node: usize, at: NodeId) -> Option<u32> {
        let site = &self.sites[node];
        if at.0 as usize == node {
            return Some(site.life);
        }
        let (_, theirs) = site.engine.as_ref()?.session(at)?;
        u32::try_from(theirs >> 32).ok().filter(|life| *life > 0)
    }

    /// A node gives a peer up.
    pub(super) fn give_up(&mut self, node: usize, of: NodeId) -> Result<(), Violation> {
        let by = node_id(node);
        let is_right = self.trouble.gives_up(self.agenda.now(), by, of);
        is_right.then_some(()).ok_or(Violation::GivenUp { by, of })
    }

    fn is_explained(&self, transfer: usize, outcome: &Outcome) -> bool {
        let base = &self.scenario.base;
        match outcome {
            Outcome::Done => true,
            Outcome::Cancelled => self.watches[transfer].cancelled,
            Outcome::TimedOut => {
                base.transfers[transfer].deadline.is_some_and(|d| d <= self.agenda.now())
            }
            Outcome::Failed(e) => match e.cause.kind {
                ChannelErrorKind::PeerLost => self.has_lost_peer(transfer),
                ChannelErrorKind::Dependency => !base.transfers[transfer].after.is_empty(),
                ChannelErrorKind::Busy => self.scenario.has_small_tables(),
                _ => !base.faults.is_empty(),
            },
        }
    }

    /// Whether two nodes of a transfer have parted, or one of its ends is in another life than the
    /// asker meant.
    fn has_lost_peer(&self, transfer: usize) -> bool {
        let (watch, asker) = (&self.watches[transfer], self.scenario.askers[transfer]);
        let memories = &self.scenario.base.transfers[transfer].plan.memories;
        let nodes = memories.iter().map(|memory| memory.node).chain([asker]).collect();
        let lives = self.scenario.ends(transfer).map(|end| self.sites[end.0 as usize].life);
        lives != watch.lives || self.trouble.have_parted(watch.submitted_at, &nodes)
    }

    pub(super) fn all_ended(&self) -> Result<(), Violation> {
        let open = self.open();
        let Some(&transfer) = open.first() else { return Ok(()) };
        let mut waits = Waits::default();
        for transfer in open {
            self.add_waits(transfer, &mut waits);
        }
        Err(Violation::Stuck { transfer, waits })
    }

    /// The transfers that have not ended though their askers live.
    fn open(&self) -> Vec<usize> {
        let is_open = |transfer: &usize| {
            let watch = &self.watches[*transfer];
            let site = &self.sites[self.scenario.askers[*transfer].0 as usize];
            let lives = site.engine.is_some() && site.life == watch.life;
            watch.id.is_some() && watch.ended.is_none() && lives
        };
        (0..self.watches.len()).filter(is_open).collect()
    }

    /// What a transfer waits for, as its asker and as each party knows.
    fn add_waits(&self, transfer: usize, waits: &mut Waits) {
        let name = self.names.iter().find(|(_, named)| **named == transfer).map(|(name, _)| *name);
        for (node, site) in self.sites.iter().enumerate() {
            let Some(engine) = &site.engine else { continue };
            let is_asker = self.scenario.askers[transfer].0 as usize == node;
            let asked = self.watches[transfer].id.filter(|_| is_asker);
            let share = name.and_then(|name| engine.share(name));
            for (role, id) in [("", asked), ("its share of ", share)] {
                let found = id.map_or(Vec::new(), |id| engine.waits(id));
                let what = format!("{} {role}transfer {transfer}", node_id(node));
                waits.add(&what, &found, |id| self.name_at(node, id));
            }
        }
    }

    /// What an engine calls `id`.
    fn name_at(&self, node: usize, id: TransferId) -> String {
        let engine = self.sites[node].engine.as_ref();
        let named = engine.and_then(|e| self.names.get(&e.ask_id(id)?).copied());
        let found = named.or_else(|| self.asked_at(node, id));
        found.map_or("nobody known".to_owned(), |transfer| format!("transfer {transfer}"))
    }

    /// Nothing more can happen: everything has ended, and nothing was touched since.
    pub(super) fn close(&mut self) -> Result<(), Violation> {
        self.all_ended()?;
        self.cast.check_untouched(&self.memories)?;
        for transfer in 0..self.watches.len() {
            self.check_commit(transfer)?;
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
