//! The rules that are checked from what an engine says, without looking inside it.

use crate::scenario::{After, Scenario, TransferSpec};
use crate::urgency::Urgency;
use crate::violation::Violation;
use model::{ChannelError, Outcome, Priority, Request, Time, TransferError, Work};

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
    commits: u32,
    aborts: u32,
}

/// Follows a run and says at once when a rule is broken.
#[derive(Debug)]
pub(crate) struct Audit<'a> {
    scenario: &'a Scenario,
    records: Vec<Record>,
    fences: Vec<Option<bool>>,
    urgency: Urgency,
}

impl<'a> Audit<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        Audit {
            scenario,
            records: scenario.transfers.iter().map(|_| Record::default()).collect(),
            fences: vec![None; scenario.fences.len()],
            urgency: Urgency::new(scenario),
        }
    }

    pub(crate) fn submitted(&mut self, transfer: usize) {
        self.records[transfer].submitted = true;
        self.urgency.changed(transfer);
    }

    /// How urgent each transfer is now.
    pub(crate) fn urgencies(&mut self, now: &[Priority]) {
        self.urgency.set(now);
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
                let asked = (request.channel, work.payload_bytes);
                self.urgency.check(self.scenario, transfer, asked)?;
            }
            Work::Commit { .. } => self.check_commit(transfer)?,
            Work::Abort { .. } => self.check_abort(transfer)?,
        }
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
        self.urgency.changed(transfer);
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
