//! A run: the engine, driven in virtual time against virtual channels.
//!
//! The driver is the least that the engine's contract allows: it hands commands, completions and
//! timeouts in as their time comes, and takes requests and events out until there are none.

use crate::agenda::Agenda;
use crate::audit::Audit;
use crate::channel::{Moments, VirtualChannel};
use crate::memory::{Memories, Owner};
use crate::rng::Rng;
use crate::scenario::{Fault, PoolSpec, Scenario, TransferSpec};
use crate::stage::Cast;
use crate::trace::{Entry, Event};
use crate::violation::Violation;
use crate::waits::Waits;
use engine::{Engine, State, TransferEvent};
use model::{
    Buffer, ChannelId, Completion, CopyWork, FenceId, Outcome, Priority, Request, RequestId, Time,
    Work,
};

/// What the clock brings.
#[derive(Debug, Clone, Copy)]
enum Tick {
    Submit(usize),
    Fence(usize),
    Fault(usize),
    Read(usize, RequestId),
    Scribble(usize, RequestId),
    Write(usize, RequestId),
    Complete(usize, RequestId),
    Wake,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    agenda: Agenda<Tick>,
    memories: Memories,
    channels: Vec<VirtualChannel>,
    cast: Cast,
    audit: Audit<'a>,
    rng: Rng,
    trace: Vec<Entry>,
}

/// More than any run takes; an engine that asks to be called again at once, for ever, ends here.
const MAX_STEPS: u64 = 20_000_000;

impl<'a> World<'a> {
    /// Everything in place, nothing submitted.
    pub(crate) fn new(scenario: &'a Scenario) -> Result<Self, Violation> {
        let mut rng = Rng::new(scenario.seed ^ 0x5eed);
        let mut memories = Memories::new(scenario.payload);
        let engine = Engine::new(crate::stage::config(scenario, &mut memories));
        let cast = Cast::gather(scenario, &mut memories, &mut rng.fork())?;
        let channel = |spec: &crate::ChannelSpec| VirtualChannel::new(spec.clone(), rng.fork());
        let channels = scenario.channels.iter().map(channel).collect();
        let mut agenda = Agenda::new();
        let submits = scenario.transfers.iter().enumerate();
        submits.for_each(|(i, t)| agenda.add(t.submit_at, Tick::Submit(i)));
        scenario.fences.iter().enumerate().for_each(|(i, f)| agenda.add(f.at, Tick::Fence(i)));
        scenario.faults.iter().enumerate().for_each(|(i, f)| agenda.add(f.0, Tick::Fault(i)));
        let audit = Audit::new(scenario);
        let trace = Vec::new();
        Ok(World { scenario, engine, agenda, memories, channels, cast, audit, rng, trace })
    }

    /// Runs to the end, and returns what happened; the second part says what rule was broken.
    pub(crate) fn run(mut self) -> (Vec<Entry>, Result<(), (Time, Violation)>) {
        let result = self.play().map_err(|violation| (self.agenda.now(), violation));
        (self.trace, result)
    }

    fn play(&mut self) -> Result<(), Violation> {
        for _ in 0..MAX_STEPS {
            let Some(tick) = self.next_tick() else { return self.close() };
            self.tick(tick)?;
            let more_now = self.agenda.next_at() == Some(self.agenda.now());
            if !(more_now && self.rng.chance(30)) {
                self.drain()?;
            }
        }
        self.all_ended()
    }

    /// Called when nothing more can happen, or the time is over.
    fn all_ended(&self) -> Result<(), Violation> {
        let Some(transfer) = self.audit.open().next() else { return Ok(()) };
        let name = |id| self.cast.find(id).map_or("nobody".to_owned(), |t| format!("transfer {t}"));
        let mut waits = Waits::default();
        for open in self.audit.open() {
            let found = self.cast.id(open).map_or(Vec::new(), |id| self.engine.waits(id));
            waits.add(&format!("transfer {open}"), &found, name);
        }
        Err(Violation::Stuck { transfer, waits })
    }

    /// The next event, or a timeout that the engine asked for before it.
    fn next_tick(&mut self) -> Option<Tick> {
        let wake = self.engine.poll_timeout();
        let next = self.agenda.next_at();
        if let Some(at) = wake.filter(|&at| next.is_none_or(|next| at < next)) {
            self.agenda.add(at, Tick::Wake);
        }
        self.agenda.next().filter(|_| self.agenda.now() <= self.scenario.limit)
    }

    fn tick(&mut self, tick: Tick) -> Result<(), Violation> {
        match tick {
            Tick::Submit(transfer) => return self.submit(transfer),
            Tick::Fence(fence) => self.fence(fence),
            Tick::Fault(fault) => self.strike(fault),
            Tick::Read(at, id) => self.read(at, id),
            Tick::Scribble(at, id) => self.scribble(at, id),
            Tick::Write(at, id) => self.write(at, id),
            Tick::Complete(at, id) => return self.complete(at, id),
            Tick::Wake => self.engine.handle_timeout(self.agenda.now()),
        }
        Ok(())
    }

    /// Takes out what the engine has to say, until it has nothing more.
    fn drain(&mut self) -> Result<(), Violation> {
        self.free_staging()?;
        loop {
            if let Some(request) = self.engine.poll_request() {
                self.issue(request)?;
            } else if let Some(event) = self.engine.poll_event() {
                self.end(event)?;
            } else {
                return self.audit.settled(self.agenda.now());
            }
        }
    }

    /// A transfer that is ending and has nothing in flight may have its staging given to others,
    /// and let others go, before its event is taken.
    fn free_staging(&mut self) -> Result<(), Violation> {
        for transfer in 0..self.scenario.transfers.len() {
            let Some(id) = self.cast.id(transfer) else { continue };
            let state = self.engine.state(id);
            let is_ending = |s: &State| matches!(s, State::Stopping(_) | State::Ended(_));
            if self.audit.is_idle(transfer) && state.as_ref().is_none_or(is_ending) {
                let left_bytes = self.memories.forget(owner_of(transfer), |_| true)?;
                self.cast.freed(transfer, left_bytes);
                self.audit.foreseen(transfer, state == Some(State::Ended(Outcome::Done)));
            }
        }
        Ok(())
    }

    fn submit(&mut self, at: usize) -> Result<(), Violation> {
        let now = self.agenda.now();
        let transfer = self.cast.transfer(self.scenario, at);
        let refused =
            |e: engine::SubmitError| Violation::Refused { transfer: at, why: e.to_string() };
        let id = self.engine.submit(now, transfer).map_err(refused)?;
        self.cast.name(at, id);
        self.audit.submitted(at);
        self.note(Event::Submitted { transfer: at });
        if self.scenario.transfers[at].forgotten {
            self.audit.forgotten(at);
            self.engine.forget(id);
        }
        Ok(())
    }

    fn fence(&mut self, fence: usize) {
        let ok = !self.scenario.fences[fence].fails;
        self.audit.fenced(fence, ok);
        self.note(Event::Fenced { fence, ok });
        let result = crate::stage::fence_result(ok);
        self.engine.handle_fence(self.agenda.now(), FenceId(fence as u64), result);
    }

    fn strike(&mut self, fault: usize) {
        self.note(Event::Struck { fault });
        let now = self.agenda.now();
        match self.scenario.faults[fault].1 {
            Fault::Cancel(transfer) => self.cancel(transfer),
            Fault::Break { channel, kind } => self.channel(channel, |c| c.break_next(kind)),
            Fault::Lose(channel) => self.channel(channel, VirtualChannel::lose),
            Fault::Stall { channel, for_ns } => {
                self.channel(channel, |c| c.stall(Time(now.0 + for_ns)));
            }
        }
    }

    fn cancel(&mut self, transfer: usize) {
        if let Some(id) = self.cast.id(transfer)
            && self.engine.cancel(self.agenda.now(), id)
        {
            self.audit.cancelled(transfer);
        }
    }

    fn channel(&mut self, id: ChannelId, act: impl FnOnce(&mut VirtualChannel)) {
        if let Some(channel) = self.channels.iter_mut().find(|c| c.id() == id) {
            act(channel);
        }
    }

    /// A request goes to its channel, if it may.
    fn issue(&mut self, request: Request) -> Result<(), Violation> {
        let (now, id) = (self.agenda.now(), request.id);
        let transfer = self.cast.find(request.transfer);
        let transfer = transfer.ok_or(Violation::NotRunning { request: id })?;
        self.audit.urgencies(&self.urgencies());
        self.audit.issued(transfer, &request)?;
        let at = self.seat(transfer, &request)?;
        let owner = owner_of(transfer);
        self.note_issue(transfer, &request);
        if let Work::Copy(work) = &request.work {
            check_payload(id, work)?;
            self.check_memories(transfer, &request, work)?;
            self.memories.begin(owner, work)?;
            self.memories.scribble(work, scribble_byte(id));
        }
        let moments = self.channels[at].submit(now, owner, request);
        self.plan_moves(at, id, moments);
        Ok(())
    }

    /// How urgent each transfer is: as it was asked for, or as the most urgent that waits for
    /// staging in a memory where it holds some.
    fn urgencies(&self) -> Vec<Priority> {
        let transfers = || self.scenario.transfers.iter().enumerate();
        let state = |at: usize| self.cast.id(at).and_then(|id| self.engine.state(id));
        let waits = |(at, _): &(usize, _)| state(*at) == Some(State::WaitingForStaging);
        let waiting: Vec<&TransferSpec> = transfers().filter(waits).map(|(_, t)| t).collect();
        let meet = |a: &TransferSpec, b: &TransferSpec| {
            let in_one = |buffer: &Buffer| a.plan.buffers.iter().any(|b| b.memory == buffer.memory);
            b.plan.buffers.iter().any(in_one)
        };
        let urgency = |(at, spec): (usize, &TransferSpec)| {
            let others = waiting.iter().filter(|other| meet(spec, other)).map(|t| t.priority);
            let holds = !waiting.is_empty() && state(at) == Some(State::Running);
            others.filter(|_| holds).max().map_or(spec.priority, |most| most.max(spec.priority))
        };
        transfers().map(urgency).collect()
    }

    /// The channel that `request` names, if it is its hop's and has room.
    fn seat(&self, transfer: usize, request: &Request) -> Result<usize, Violation> {
        let (id, channel) = (request.id, request.channel);
        let wrong = Violation::WrongChannel { request: id, channel };
        let hop = self.scenario.transfers[transfer].plan.hops.get(usize::from(request.hop));
        let at = self.channels.iter().position(|c| c.id() == channel && c.has_room());
        let at = at.filter(|_| hop.is_some_and(|h| h.channel == channel)).ok_or(wrong)?;
        let follows = self.channels[at].follows(id);
        follows.then_some(at).ok_or(Violation::OutOfOrder { request: id })
    }

    /// The ends of a request lie in the memories of its hop.
    fn check_memories(
        &self,
        transfer: usize,
        request: &Request,
        work: &CopyWork,
    ) -> Result<(), Violation> {
        let memories = &self.scenario.transfers[transfer].plan.memories[usize::from(request.hop)..];
        let found = [work.src.region, work.dst.region].map(|r| self.memories.memory_of(r));
        let right = found == [Some(memories[0]), Some(memories[1])];
        right.then_some(()).ok_or(Violation::WrongMemory { request: request.id })
    }

    fn plan_moves(&mut self, at: usize, id: RequestId, moments: Moments) {
        self.agenda.add(moments.read, Tick::Read(at, id));
        self.agenda.add(moments.scribble, Tick::Scribble(at, id));
        self.agenda.add(moments.write, Tick::Write(at, id));
        self.agenda.add(moments.complete, Tick::Complete(at, id));
    }

    fn read(&mut self, at: usize, id: RequestId) {
        let Some(flight) = self.channels[at].flight(id) else { return };
        flight.taken = flight.copy().map_or_else(Vec::new, |work| self.memories.read(work));
    }

    fn scribble(&mut self, at: usize, id: RequestId) {
        let Some(flight) = self.channels[at].flight(id) else { return };
        if let Some(work) = flight.copy() {
            self.memories.scribble(work, !scribble_byte(id));
        }
    }

    fn write(&mut self, at: usize, id: RequestId) {
        let Some(flight) = self.channels[at].flight(id) else { return };
        if let Some(work) = flight.copy().filter(|_| flight.result().is_ok()) {
            self.memories.write(work, &flight.taken);
        }
    }

    fn complete(&mut self, at: usize, id: RequestId) -> Result<(), Violation> {
        let Some(flight) = self.channels[at].complete(id) else { return Ok(()) };
        let (transfer, result) = (flight.owner as usize, flight.result());
        if let Some(work) = flight.copy() {
            self.memories.end(flight.owner, work)?;
        }
        self.note(Event::Completed { request: id, ok: result.is_ok() });
        self.audit.completed(transfer, flight.request.hop, &result);
        self.engine.handle_completion(self.agenda.now(), Completion { request: id, result });
        let progress = self.engine.progress(flight.request.transfer);
        progress.map_or(Ok(()), |now| self.audit.progress(transfer, now))
    }

    /// A transfer ended: its memory is its user's again.
    fn end(&mut self, event: TransferEvent) -> Result<(), Violation> {
        let TransferEvent { transfer: id, outcome } = event;
        let transfer = self.cast.find(id).ok_or(Violation::UnknownEvent)?;
        self.note(Event::Ended { transfer, outcome: outcome.clone() });
        if let Some(now) = self.engine.progress(id) {
            self.audit.progress(transfer, now)?;
        }
        self.audit.ended(transfer, &outcome, self.agenda.now())?;
        self.cast.retire(transfer, &outcome, &mut self.memories)
    }

    /// Nothing more can happen: everything has ended, and nothing was touched since.
    fn close(&mut self) -> Result<(), Violation> {
        self.all_ended()?;
        self.cast.check_untouched(&self.memories)?;
        let given = |pool: &PoolSpec| self.engine.staging(pool.memory).map_or(0, |usage| usage.0);
        let given: u64 = self.scenario.pools.iter().map(given).sum();
        let bytes = given + self.memories.staged_bytes();
        if bytes > 0 || !self.engine.is_idle() {
            return Err(Violation::StagingLeak { bytes });
        }
        Ok(())
    }

    fn note_issue(&mut self, transfer: usize, request: &Request) {
        let bytes = match &request.work {
            Work::Copy(work) => work.payload_bytes,
            Work::Commit { .. } | Work::Abort { .. } => 0,
        };
        let (hop, channel) = (request.hop, request.channel);
        self.note(Event::Issued { request: request.id, transfer, hop, channel, bytes });
    }

    fn note(&mut self, event: Event) {
        self.trace.push(Entry { at: self.agenda.now(), event });
    }
}

fn owner_of(transfer: usize) -> Owner {
    Owner::try_from(transfer).expect("few transfers")
}

fn check_payload(request: RequestId, work: &CopyWork) -> Result<(), Violation> {
    let moved: u64 = work.list.iter().map(model::NdCopy::payload_bytes).sum();
    let claimed = work.payload_bytes;
    let wrong = Violation::WrongPayload { request, moved, claimed };
    (moved == claimed && moved > 0).then_some(()).ok_or(wrong)
}

fn scribble_byte(id: RequestId) -> u8 {
    id.0.wrapping_mul(0x9d).to_le_bytes()[0] ^ 0x5a
}
