//! The rules that are checked from what an engine says, without looking inside it.

use crate::scenario::{After, Rule, Scenario, TransferSpec};
use crate::violation::Violation;
use model::{ChannelError, ChannelId, Outcome, Priority, Request, Time, TransferError, Work};
use std::collections::BTreeMap;

/// Of every so many bytes of a channel, one may go to those that have waited long.
const AGEING_SHARE: u64 = 20;

/// What is known of one transfer.
#[derive(Debug, Default)]
struct Record {
    submitted: bool,
    /// The engine says that it is done; its event comes.
    is_done: bool,
    ended: Option<Outcome>,
    cancelled: bool,
    forgotten: bool,
    in_flight: u32,
    errors: Vec<TransferError>,
    progress_bytes: u64,
    standing: Standing,
    commits: u32,
    aborts: u32,
}

/// What was issued on one channel.
#[derive(Debug, Default)]
struct Issues {
    /// Moment, urgency and payload, in order; one that is known to have gone too early has no
    /// urgency any more.
    all: Vec<(u64, Option<Priority>, u64)>,
    bytes: u64,
    /// Payload that went before a more urgent request that was ready.
    early_bytes: u64,
}

impl Issues {
    /// Finds those less urgent than `urgency` that were issued after the moment `since`.
    fn find_early(&mut self, since: u64, urgency: Priority) {
        let after = self.all.iter_mut().rev().take_while(|issue| issue.0 > since);
        let early = after.filter_map(|issue| issue.1.take_if(|p| *p < urgency).map(|_| issue.2));
        self.early_bytes += early.sum::<u64>();
    }

    fn add(&mut self, moment: u64, urgency: Priority, bytes: u64) {
        self.all.push((moment, Some(urgency), bytes));
        self.bytes += bytes;
    }
}

/// What one transfer may ask of a channel that serves by urgency.
#[derive(Debug, Default)]
struct Standing {
    /// How urgent it is now.
    urgency: Priority,
    /// The last moment, in requests and completions, at which it may have become ready.
    changed_at: u64,
    issued: bool,
}

impl Record {
    fn of(spec: &TransferSpec) -> Self {
        let standing = Standing { urgency: spec.priority, ..Standing::default() };
        Record { standing, ..Record::default() }
    }
}

/// Follows a run and says at once when a rule is broken.
#[derive(Debug)]
pub(crate) struct Audit<'a> {
    scenario: &'a Scenario,
    records: Vec<Record>,
    fences: Vec<Option<bool>>,
    issues: BTreeMap<ChannelId, Issues>,
    moment: u64,
}

impl<'a> Audit<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        Audit {
            scenario,
            records: scenario.transfers.iter().map(Record::of).collect(),
            fences: vec![None; scenario.fences.len()],
            issues: BTreeMap::new(),
            moment: 0,
        }
    }

    pub(crate) fn submitted(&mut self, transfer: usize) {
        self.records[transfer].submitted = true;
        self.changed(transfer);
    }

    /// How urgent each transfer is now.
    pub(crate) fn urgencies(&mut self, now: &[Priority]) {
        for (transfer, &urgency) in now.iter().enumerate() {
            if self.records[transfer].standing.urgency != urgency {
                self.records[transfer].standing.urgency = urgency;
                self.changed(transfer);
            }
        }
    }

    /// The engine said that the transfer will end as cancelled.
    pub(crate) fn cancelled(&mut self, transfer: usize) {
        self.records[transfer].cancelled = true;
    }

    /// `transfer` is ending; perhaps it is done.
    pub(crate) fn foreseen(&mut self, transfer: usize, is_done: bool) {
        self.records[transfer].is_done = is_done;
    }

    /// The engine drops what it knows of the transfer when it ends.
    pub(crate) fn forgotten(&mut self, transfer: usize) {
        self.records[transfer].forgotten = true;
    }

    pub(crate) fn fenced(&mut self, fence: usize, ok: bool) {
        self.fences[fence] = Some(ok);
    }

    /// Whether `transfer` was submitted and not announced as ended, with nothing in flight.
    pub(crate) fn is_idle(&self, transfer: usize) -> bool {
        let record = &self.records[transfer];
        record.submitted && record.ended.is_none() && record.in_flight == 0
    }

    /// A request was given out.
    pub(crate) fn issued(&mut self, transfer: usize, request: &Request) -> Result<(), Violation> {
        let record = &self.records[transfer];
        if !record.submitted || record.ended.is_some() {
            return Err(Violation::NotRunning { request: request.id });
        }
        if !matches!(request.work, Work::Abort { .. }) && !self.may_start(transfer) {
            return Err(Violation::TooEarly { request: request.id, transfer });
        }
        match &request.work {
            Work::Copy(work) => {
                self.check_urgency(transfer, request.channel, work.payload_bytes)?;
            }
            Work::Commit { .. } => self.check_commit(transfer)?,
            Work::Abort { .. } => self.check_abort(transfer)?,
        }
        self.records[transfer].standing.issued = true;
        self.records[transfer].in_flight += 1;
        Ok(())
    }

    /// A request of `transfer` completed.
    pub(crate) fn completed(
        &mut self,
        transfer: usize,
        hop: u16,
        result: &Result<(), ChannelError>,
    ) {
        let memories = &self.scenario.transfers[transfer].plan.memories;
        let hop = usize::from(hop);
        let record = &mut self.records[transfer];
        record.in_flight -= 1;
        if let Err(cause) = result {
            let memory = memories[hop + 1];
            record.errors.push(TransferError { hop, memory, cause: cause.clone() });
        }
        self.changed(transfer);
    }

    /// Progress of `transfer` was read.
    pub(crate) fn progress(&mut self, transfer: usize, now: (u64, u64)) -> Result<(), Violation> {
        let (after, total) = now;
        let before = self.records[transfer].progress_bytes;
        let whole = payload_bytes(&self.scenario.transfers[transfer]);
        if after < before || after > total || total != whole {
            return Err(Violation::Progress { transfer, before, after, total });
        }
        self.records[transfer].progress_bytes = after;
        Ok(())
    }

    /// `transfer` ended.
    pub(crate) fn ended(
        &mut self,
        transfer: usize,
        outcome: &Outcome,
        now: Time,
    ) -> Result<(), Violation> {
        let record = &self.records[transfer];
        if record.ended.is_some() {
            return Err(Violation::EndedTwice { transfer });
        }
        if record.in_flight > 0 {
            return Err(Violation::EndedInFlight);
        }
        let spec = &self.scenario.transfers[transfer];
        if record.aborts != u32::from(spec.commit && *outcome != Outcome::Done) {
            return Err(Violation::WrongCommit { transfer });
        }
        if !self.explains(transfer, outcome, now) {
            return Err(Violation::Unexplained { transfer, outcome: outcome.clone() });
        }
        self.records[transfer].ended = Some(outcome.clone());
        Ok(())
    }

    /// Called when the engine has nothing more to say: a transfer that must end and has nothing in
    /// flight has ended.
    pub(crate) fn settled(&self, now: Time) -> Result<(), Violation> {
        let overdue = |&transfer: &usize| {
            self.is_idle(transfer)
                && !self.scenario.transfers[transfer].commit
                && self.is_doomed(transfer, now)
        };
        let found = (0..self.records.len()).find(overdue);
        found.map_or(Ok(()), |transfer| Err(Violation::Overdue { transfer }))
    }

    /// The transfers that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.records.len()).filter(|at| self.records[*at].ended.is_none())
    }

    fn is_doomed(&self, transfer: usize, now: Time) -> bool {
        let record = &self.records[transfer];
        record.cancelled
            || !record.errors.is_empty()
            || self.waits(transfer).any(|end| end == Some(false))
            || self.scenario.transfers[transfer].deadline.is_some_and(|at| at < now)
    }

    /// A commit follows every byte, once.
    fn check_commit(&mut self, transfer: usize) -> Result<(), Violation> {
        let record = &mut self.records[transfer];
        record.commits += 1;
        let whole = payload_bytes(&self.scenario.transfers[transfer]);
        let right = record.commits == 1
            && record.in_flight == 0
            && record.progress_bytes == whole
            && self.scenario.transfers[transfer].commit;
        right.then_some(()).ok_or(Violation::WrongCommit { transfer })
    }

    /// An abort follows everything else, once.
    fn check_abort(&mut self, transfer: usize) -> Result<(), Violation> {
        let record = &mut self.records[transfer];
        record.aborts += 1;
        let alone = record.aborts == 1 && record.in_flight == 0;
        let right = alone && self.scenario.transfers[transfer].commit;
        right.then_some(()).ok_or(Violation::WrongCommit { transfer })
    }

    /// No less urgent request went to `channel` since `transfer`'s next request became ready.
    ///
    /// What made it ready was a completion of its own or, at the start, its admission, which shows
    /// in its first request; from the last of these on, or from when it became as urgent as it is,
    /// it was ready, and every less urgent request since passed it over.
    ///
    /// Where descriptors age, those that did so may have one byte in twenty.
    fn check_urgency(
        &mut self,
        transfer: usize,
        channel: ChannelId,
        bytes: u64,
    ) -> Result<(), Violation> {
        if !self.records[transfer].standing.issued {
            self.changed(transfer);
        }
        let Standing { urgency, changed_at, .. } = self.records[transfer].standing;
        let issues = self.issues.entry(channel).or_default();
        issues.find_early(changed_at, urgency);
        self.moment += 1;
        issues.add(self.moment, urgency, bytes);
        let aged_bytes =
            if self.scenario.ageing.is_some() { issues.bytes / AGEING_SHARE } else { 0 };
        let kept = issues.early_bytes <= aged_bytes;
        let ruled =
            self.scenario.channels.iter().any(|c| c.id == channel && c.rule == Rule::Priority);
        (kept || !ruled).then_some(()).ok_or(Violation::PassedOver { passed: transfer, channel })
    }

    fn changed(&mut self, transfer: usize) {
        self.moment += 1;
        self.records[transfer].standing.changed_at = self.moment;
    }

    /// What `transfer` waits for: `None` while it is open, then whether it succeeded.
    fn waits(&self, transfer: usize) -> impl Iterator<Item = Option<bool>> + '_ {
        self.scenario.transfers[transfer].after.iter().map(|after| match *after {
            After::Transfer(t) if self.records[t].is_done => Some(true),
            After::Transfer(t) => self.records[t].ended.as_ref().map(|o| *o == Outcome::Done),
            After::Fence(f) => self.fences[f],
        })
    }

    fn may_start(&self, transfer: usize) -> bool {
        self.waits(transfer).all(|end| end == Some(true))
    }

    fn explains(&self, transfer: usize, outcome: &Outcome, now: Time) -> bool {
        let record = &self.records[transfer];
        let spec = &self.scenario.transfers[transfer];
        let late = spec.deadline.is_some_and(|at| at < now) && !spec.commit;
        match outcome {
            Outcome::Done => {
                let whole = record.forgotten || record.progress_bytes == payload_bytes(spec);
                let committed = record.commits == u32::from(spec.commit);
                record.errors.is_empty() && whole && committed && !record.cancelled && !late
            }
            Outcome::Cancelled => record.cancelled,
            Outcome::TimedOut => spec.deadline.is_some_and(|at| at <= now),
            Outcome::Failed(error) => {
                record.errors.iter().any(|e| e.hop == error.hop && e.cause == error.cause)
                    || self.waits(transfer).any(|end| end == Some(false))
            }
        }
    }
}

/// The bytes that `spec` moves.
pub(crate) fn payload_bytes(spec: &TransferSpec) -> u64 {
    spec.src.part.extents().iter().product::<u64>() * spec.fields.payload_bytes()
}
