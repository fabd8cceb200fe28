//! What happens to a transfer: taken, released by what it waits for, granted its buffers, run,
//! finished or stopped, ended.
//!
//! What follows from an event is queued as a [`Step`] and taken in a loop, so that a chain of
//! any number of dependents takes no stack.

use crate::SubmitError;
use crate::engine::Engine;
use crate::peer::Note;
use crate::program::Stretch;
use crate::report::Doing;
use crate::transfer::{Dependency, Phase, Record, Role, Transfer, TransferEvent};
use crate::worker::XdRef;
use model::{
    ChannelError, ChannelErrorKind, ChannelId, FenceId, MemoryId, Outcome, Place, RegionId,
    TransferError, TransferId,
};
use std::ops::Range;

/// Something that follows from what happened.
#[derive(Debug)]
pub(crate) enum Step {
    /// Something that the transfer waited for is done, or failed so.
    Resolve(TransferId, Result<(), ChannelError>),
    /// Staging came back, or somebody new waits for it.
    Admit,
    /// This node says something to itself, as the asker or a party.
    Note(Note),
}

impl Engine {
    /// Takes the steps that are due, and those that follow from them.
    pub(crate) fn settle(&mut self) {
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Resolve(id, result) => self.resolve(id, result),
                Step::Admit => self.admit(),
                Step::Note(Note { ask, message }) => {
                    if let Some(me) = self.peers.as_ref().map(|peers| peers.config.node) {
                        self.handle_note(me, ask, message);
                    }
                }
            }
        }
    }

    /// Checks a transfer and enters it in the table.
    pub(crate) fn accept(&mut self, transfer: Transfer) -> Result<TransferId, SubmitError> {
        self.check(&transfer)?;
        let (deadline, is_away) = (transfer.deadline, self.is_away(&transfer.program));
        let id = self.enter(transfer);
        if let Some(record) = self.table.get_mut(id).filter(|_| is_away) {
            (record.role, record.run.own) = (Role::Away, 0..0);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        self.depend(id);
        Ok(id)
    }

    /// Adds a transfer that was checked to the table.
    pub(crate) fn enter(&mut self, transfer: Transfer) -> TransferId {
        let (now, arrival, workers) = (self.now, self.table.arrivals(), &self.workers);
        let worker_of = |channel| workers.of(channel).unwrap_or(0);
        self.table.insert(|run| Record::new(transfer, arrival, now, run, worker_of))
    }

    /// Ends a transfer as `outcome` once nothing of it is in flight. Not where it has ended, is
    /// ending otherwise, or its commit is out: what that says is the truth.
    pub(crate) fn stop(&mut self, id: TransferId, outcome: Outcome) -> bool {
        let Some(record) = self.table.get_mut(id) else { return false };
        match record.phase {
            Phase::Waiting => {
                let must_undo = record.transfer.commit.is_some();
                self.unhook(id);
                let is_away = |r: &Record| matches!(r.role, Role::Away);
                if must_undo && self.table.get(id).is_some_and(is_away) {
                    let serial = self.name_ask(id);
                    return self.stop_away(id, serial, outcome);
                }
            }
            Phase::Away => {
                let Role::Asker(serial) = record.role else { return false };
                return self.stop_away(id, Some(serial), outcome);
            }
            Phase::Queued => {
                let turn = record.turn();
                self.staging.withdraw(turn);
                // Those behind it may have been held up by it.
                self.steps.push_back(Step::Admit);
            }
            Phase::Running => self.unqueue(id),
            Phase::Committing if record.in_flight == 0 => self.unqueue(id),
            _ => return false,
        }
        self.drain(id, outcome);
        true
    }

    /// Ends a transfer that others run; how, is up to them.
    fn stop_away(&mut self, id: TransferId, serial: Option<u64>, outcome: Outcome) -> bool {
        if let Some(record) = self.table.get_mut(id) {
            record.phase = Phase::Draining(outcome.clone());
        }
        serial.into_iter().for_each(|serial| self.recall(serial, &outcome));
        false
    }

    /// From here on nothing more of the transfer is given out.
    pub(crate) fn drain(&mut self, id: TransferId, outcome: Outcome) {
        let Some(record) = self.table.get_mut(id) else { return };
        record.phase = Phase::Draining(outcome);
        if record.in_flight == 0 {
            self.drained(id);
        }
    }

    /// Nothing of a stopped transfer is in flight any more.
    pub(crate) fn drained(&mut self, id: TransferId) {
        if !self.may_leave(id) {
            return;
        }
        self.release_staging(id);
        let Some(record) = self.table.get(id) else { return };
        let Phase::Draining(outcome) = &record.phase else { return };
        let outcome = outcome.clone();
        let undoes = record.transfer.commit.is_some() && self.may_undo(record, &outcome);
        match self.table.get_mut(id).filter(|_| undoes) {
            Some(record) => {
                record.phase = Phase::Aborting(outcome);
                self.queue_finish(id);
            }
            None => self.end(id, outcome),
        }
    }

    /// All bytes have arrived.
    pub(crate) fn copied(&mut self, id: TransferId) {
        self.release_staging(id);
        let Some(record) = self.table.get_mut(id) else { return };
        if record.transfer.commit.is_some() {
            record.phase = Phase::Committing;
            self.queue_finish(id);
        } else {
            self.end(id, Outcome::Done);
        }
    }

    /// The end: tells the user, and those that wait for it.
    pub(crate) fn end(&mut self, id: TransferId, outcome: Outcome) {
        let Some(record) = self.table.get_mut(id) else { return };
        debug_assert_eq!(record.in_flight, 0, "nothing is in flight at the end");
        debug_assert!(record.grants.is_empty(), "staging was given back");
        record.phase = Phase::Ended(outcome.clone());
        record.stages.ended = Some(self.now);
        for lane in &mut record.run.lanes {
            lane.meter.turn(self.now, Doing::Nothing);
        }
        if matches!(record.role, Role::Share(_)) {
            self.end_share(id, outcome);
            self.table.retire();
            return self.table.remove(id);
        }
        let (deadline, is_forgotten) = (record.transfer.deadline, record.is_forgotten);
        for dependent in std::mem::take(&mut record.ties.dependents) {
            self.steps.push_back(Step::Resolve(dependent, resolution(&outcome)));
        }
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.table.retire();
        self.events.push_back(TransferEvent { transfer: id, outcome });
        if is_forgotten {
            self.table.remove(id);
        }
    }

    /// Drops a record, now or at its end.
    pub(crate) fn drop_record(&mut self, id: TransferId) {
        match self.table.get_mut(id) {
            Some(record) if !matches!(record.phase, Phase::Ended(_)) => record.is_forgotten = true,
            _ => self.table.remove(id),
        }
    }

    /// A fence has been reached, or never will be.
    pub(crate) fn reach(&mut self, fence: FenceId, result: &Result<(), ChannelError>) {
        for id in self.fences.remove(&fence).unwrap_or_default() {
            let result =
                result.clone().map_err(|e| because(&e.detail, "a fence that it waited for"));
            self.steps.push_back(Step::Resolve(id, result));
        }
    }

    fn check(&self, transfer: &Transfer) -> Result<(), SubmitError> {
        if self.table.is_full() {
            return Err(SubmitError::Full);
        }
        let program = &transfer.program;
        let is_away = self.is_away(program);
        let unknown = program.channels().find(|&c| self.worker_of(c).is_none());
        if let Some(channel) = unknown.filter(|_| !is_away) {
            return Err(SubmitError::UnknownChannel(channel));
        }
        check_places(transfer)?;
        for dependency in &transfer.after {
            if let Dependency::Transfer(id) = *dependency
                && self.table.get(id).is_none()
            {
                return Err(SubmitError::UnknownDependency(id));
            }
        }
        // What others run is theirs to check.
        if is_away { Ok(()) } else { self.check_staging(transfer, |_| true) }
    }

    /// Whether a share can run here.
    pub(crate) fn check_share(
        &self,
        transfer: &Transfer,
        stretch: &Stretch,
    ) -> Result<(), SubmitError> {
        if self.table.is_full() {
            return Err(SubmitError::Full);
        }
        let mut channels = transfer.program.channels().enumerate();
        let is_lacking = |(at, channel): &(usize, ChannelId)| {
            stretch.hops.contains(at) && self.worker_of(*channel).is_none()
        };
        if let Some((_, channel)) = channels.find(is_lacking) {
            return Err(SubmitError::UnknownChannel(channel));
        }
        check_places(transfer)?;
        self.check_staging(transfer, |memory| memory.node == stretch.node)
    }

    /// Whether the buffers in the memories that are `mine` can be had.
    fn check_staging(
        &self,
        transfer: &Transfer,
        mine: impl Fn(MemoryId) -> bool,
    ) -> Result<(), SubmitError> {
        let pool_of = |memory| self.staging.pool_of(memory);
        let is_lacking =
            |(memory, _): &(MemoryId, u64)| mine(*memory) && pool_of(*memory).is_none();
        if let Some((memory, _)) = transfer.program.buffers().find(is_lacking) {
            return Err(SubmitError::UnknownPool(memory));
        }
        let is_direct = transfer.program.rings().is_empty();
        if is_direct || transfer.program.payload_bytes() == 0 {
            return Ok(());
        }
        let needs = transfer.needs(pool_of);
        self.staging.fits(&needs).map_err(|pool| SubmitError::NeverFits(self.staging.memory(pool)))
    }

    /// Hooks the transfer to what it waits for; releases it if that is nothing.
    fn depend(&mut self, id: TransferId) {
        let dependencies = self.table.get(id).map_or(0, |record| record.transfer.after.len());
        if dependencies == 0 {
            return self.release(id);
        }
        for i in 0..dependencies {
            let Some(record) = self.table.get_mut(id) else { return };
            record.ties.unmet += 1;
            let dependency = record.transfer.after[i];
            let is_new = match (self.outcome_of(dependency), dependency) {
                (Some(outcome), _) => {
                    self.steps.push_back(Step::Resolve(id, resolution(&outcome)));
                    true
                }
                (None, Dependency::Fence(fence)) => {
                    self.fences.entry(fence).or_default().insert(id)
                }
                (None, Dependency::Transfer(other)) => {
                    self.table.get_mut(other).is_some_and(|r| r.ties.dependents.insert(id))
                }
            };
            if let Some(record) = self.table.get_mut(id).filter(|_| !is_new) {
                // Named twice, resolved once.
                record.ties.unmet -= 1;
            }
        }
    }

    /// Takes the transfer off what it waits for.
    fn unhook(&mut self, id: TransferId) {
        let dependencies = self.table.get(id).map_or(0, |record| record.transfer.after.len());
        for i in 0..dependencies {
            let Some(record) = self.table.get(id) else { return };
            match record.transfer.after[i] {
                Dependency::Transfer(other) => {
                    let others = self.table.get_mut(other).into_iter();
                    others.for_each(|r| {
                        r.ties.dependents.remove(&id);
                    });
                }
                Dependency::Fence(fence) => {
                    let waiting = self.fences.entry(fence).or_default();
                    waiting.remove(&id);
                    if waiting.is_empty() {
                        self.fences.remove(&fence);
                    }
                }
            }
        }
    }

    fn resolve(&mut self, id: TransferId, result: Result<(), ChannelError>) {
        let Some(record) = self.table.get_mut(id) else { return };
        if record.phase != Phase::Waiting {
            return;
        }
        match result {
            Ok(()) => {
                record.ties.unmet -= 1;
                if record.ties.unmet == 0 {
                    self.release(id);
                }
            }
            Err(cause) => {
                let memory = record.transfer.program.hops()[0].ends[0];
                self.stop(id, Outcome::Failed(TransferError { hop: 0, memory, cause }));
            }
        }
    }

    /// Everything in `after` is done: on to staging, or to the start.
    pub(crate) fn release(&mut self, id: TransferId) {
        let now = self.now;
        let Some(record) = self.table.get_mut(id) else { return };
        record.stages.released = Some(now);
        let is_empty = record.transfer.program.payload_bytes() == 0;
        if matches!(record.role, Role::Away) && !(is_empty && record.transfer.commit.is_none()) {
            return self.ask(id);
        }
        let needs = record.transfer.needs(|memory: MemoryId| self.staging.pool_of(memory));
        if is_empty {
            self.copied(id);
        } else if needs.is_empty() {
            self.start(id);
        } else {
            record.phase = Phase::Queued;
            let turn = record.turn();
            self.staging.wait(turn, id, needs);
            self.steps.push_back(Step::Admit);
        }
    }

    fn admit(&mut self) {
        while let Some((id, grants)) = self.staging.admit() {
            if let Some(record) = self.table.get_mut(id) {
                record.grants = grants;
                let waited = record.stages.spent(self.now)[1];
                self.staging_waits.add(record.transfer.priority, waited);
                self.start(id);
            }
        }
        self.pass_on();
    }

    /// Where others than before wait for a pool, those that hold it are served as the first of
    /// them: it can't start before they are done.
    fn pass_on(&mut self) {
        while let Some((pool, turn)) = self.staging.poll_change() {
            for holder in self.staging.holders_behind(pool, turn) {
                self.restand(holder);
            }
        }
    }

    /// Has a transfer that holds staging served as the most urgent that waits for any of it.
    fn restand(&mut self, id: TransferId) {
        let Some(record) = self.table.get_mut(id) else { return };
        let waiting = record.grants.iter().filter_map(|grant| self.staging.first_turn(grant.pool));
        record.served_as = waiting.chain([record.turn()]).min().unwrap_or(record.turn());
        for hop in 0..record.run.lanes.len() {
            let standing = record.standing(hop);
            let lane = &mut record.run.lanes[hop];
            let worker = &mut self.workers[lane.worker];
            lane.queued = lane.queued.map(|entry| worker.restand(&entry, &standing));
        }
    }

    fn start(&mut self, id: TransferId) {
        let now = self.now;
        let Some(record) = self.table.get_mut(id) else { return };
        record.phase = Phase::Running;
        record.stages.started = Some(now);
        let rings = record.transfer.program.rings().iter();
        let mut grants = record.grants.iter();
        let nowhere = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
        record.run.rings.clear();
        record.run.rings.extend(rings.map(|ring| {
            let is_here = self.staging.pool_of(ring.memory).is_some();
            let grant = is_here.then(|| grants.next()).flatten();
            grant.map_or(nowhere, |grant| Place {
                region: self.staging.region(grant.pool),
                offset: grant.block.start,
            })
        }));
        record.run.chain.start(&record.transfer.program);
        let own = record.run.own.clone();
        self.reserved(id);
        for hop in own {
            self.refresh(id, hop);
        }
    }

    fn release_staging(&mut self, id: TransferId) {
        let Some(record) = self.table.get_mut(id) else { return };
        let grants = std::mem::take(&mut record.grants);
        if !grants.is_empty() {
            record.served_as = record.turn();
            self.staging.release((record.turn(), id), &grants);
            self.steps.push_back(Step::Admit);
        }
    }

    /// Takes the transfer's descriptors out of their workers' queues.
    fn unqueue(&mut self, id: TransferId) {
        let Some(record) = self.table.get_mut(id) else { return };
        for lane in &mut record.run.lanes {
            let entry = lane.queued.take();
            entry.iter().for_each(|entry| self.workers[lane.worker].remove(entry));
        }
    }

    /// Queues the commit or abort at the last hop's worker.
    fn queue_finish(&mut self, id: TransferId) {
        let now = self.now;
        let Some(record) = self.table.get_mut(id) else { return };
        let hop = record.run.lanes.len() - 1;
        let standing = record.standing(hop);
        let xd = XdRef { transfer: id, hop: hop_number(hop) };
        let lane = &mut record.run.lanes[hop];
        lane.queued = Some(self.workers.push(lane.worker, xd, &standing, (0, now)));
    }
}

/// A hop's position as requests carry it; a program has few hops.
pub(crate) fn hop_number(hop: usize) -> u16 {
    u16::try_from(hop).unwrap_or(u16::MAX)
}

/// What the end of a transfer means for those that wait for it.
fn resolution(outcome: &Outcome) -> Result<(), ChannelError> {
    let what = "a transfer that it waited for";
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Cancelled => Err(because("cancelled", what)),
        Outcome::TimedOut => Err(because("out of time", what)),
        // The first cause goes down a chain as it is, or its words would grow with the chain.
        Outcome::Failed(e) if e.cause.kind == ChannelErrorKind::Dependency => Err(e.cause.clone()),
        Outcome::Failed(e) => Err(because(&e.to_string(), what)),
    }
}

fn because(why: &str, what: &str) -> ChannelError {
    ChannelError::new(ChannelErrorKind::Dependency, format!("{what} did not succeed: {why}"))
}

fn check_places(transfer: &Transfer) -> Result<(), SubmitError> {
    let program = &transfer.program;
    let ends = [(transfer.src, program.src_span()), (transfer.dst, program.dst_span())];
    let is_inside = ends.into_iter().all(|(place, span)| reaches_inside(place, span));
    if is_inside { Ok(()) } else { Err(SubmitError::OutOfRegion) }
}

/// Whether `span`, relative to `place`, starts at 0 or above and ends below 2^63.
fn reaches_inside(place: Place, span: Range<i64>) -> bool {
    let at = |offset: i64| i64::try_from(place.offset).ok()?.checked_add(offset);
    at(span.start).is_some_and(|start| start >= 0) && at(span.end).is_some()
}
