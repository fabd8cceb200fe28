//! Transfers: what a user asks for, and the table of what became of it.

use crate::arena::Fit;
use crate::chain::Chain;
use crate::peer::Share;
use crate::policy::Standing;
use crate::program::Program;
use crate::report::{Meter, Report, Stages};
use crate::ring::{ALIGN_BYTES, Ring};
use crate::staging::{Grant, Need, Turn};
use crate::worker::Entry;
use model::{
    ChannelId, ChannelKind, FenceId, MemoryId, NodeId, Outcome, Place, Priority, Time, TransferId,
};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Something that a transfer waits for before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// Another transfer of the same engine, ended or not, but not forgotten.
    Transfer(TransferId),
    /// A fence that [`crate::Engine::handle_fence`] will report, after this submission.
    Fence(FenceId),
}

/// What becomes of the destination's region in the end: [`model::Work::Commit`] after all bytes
/// are written, [`model::Work::Abort`] where the transfer ends otherwise. Both run on the
/// channel of the last hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commit {
    /// Whether it must survive a power failure.
    pub sync: bool,
}

/// One transfer to run.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// How.
    pub program: Arc<Program>,
    /// The base of the source's instance; the program's source part is relative to it.
    pub src: Place,
    /// The base of the destination's instance.
    pub dst: Place,
    /// How urgent it is.
    pub priority: Priority,
    /// When to give it up.
    pub deadline: Option<Time>,
    /// What must be done first.
    pub after: Vec<Dependency>,
    /// What becomes of the destination's region in the end; nothing if `None`.
    pub commit: Option<Commit>,
    /// In which lives of their nodes ([`crate::PeerConfig::life`]) source and destination were
    /// named, where that matters: in another, the transfer fails with
    /// [`model::ChannelErrorKind::PeerLost`], since the region may mean something else by then.
    /// Only ends on other nodes are asked about.
    pub lives: [Option<u32>; 2],
}

impl Transfer {
    /// The rings that it needs, where `pool_of` knows their memories.
    pub(crate) fn needs(&self, pool_of: impl Fn(MemoryId) -> Option<usize>) -> Vec<Need> {
        let rings = self.program.rings().iter().enumerate();
        let need = |(at, ring): (usize, &Ring)| {
            let (bytes, phase) = (ring.bytes(), self.phase_of(at));
            let fit = Fit { bytes, align_bytes: ALIGN_BYTES, phase };
            Some(Need { pool: pool_of(ring.memory)?, fit })
        };
        rings.filter_map(need).collect()
    }

    /// Where a ring should start within an alignment unit: as the file beside it, so that direct
    /// I/O finds file and memory aligned at the same bytes.
    fn phase_of(&self, ring: usize) -> u64 {
        let hops = self.program.hops();
        let start = if ring == 0 && hops[0].kind == ChannelKind::DiskRead {
            self.src.offset.wrapping_add_signed(self.program.src_span().start)
        } else if ring + 2 == hops.len() && hops[ring + 1].kind == ChannelKind::DiskWrite {
            self.dst.offset.wrapping_add_signed(self.program.dst_span().start)
        } else {
            0
        };
        start % ALIGN_BYTES
    }

    /// A transfer of priority 0 without deadline, dependency or commit, in whatever life its ends
    /// are found.
    #[must_use]
    pub fn new(program: Arc<Program>, src: Place, dst: Place) -> Self {
        Transfer {
            program,
            src,
            dst,
            priority: Priority::default(),
            deadline: None,
            after: Vec::new(),
            commit: None,
            lives: [None; 2],
        }
    }
}

/// A transfer has ended: no channel touches its memory any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferEvent {
    /// Which.
    pub transfer: TransferId,
    /// How.
    pub outcome: Outcome,
}

/// How far a transfer has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Something in `after` is not done.
    WaitingForOthers,
    /// It waits for intermediate buffers.
    WaitingForStaging,
    /// Its requests run.
    Running,
    /// All bytes are written, the commit is not done.
    Committing,
    /// It will end so, once nothing is in flight and the destination is aborted.
    Stopping(Outcome),
    /// It has ended so.
    Ended(Outcome),
}

/// The engine's own form of [`State`]. Each step goes down this list, but for a failed commit,
/// which goes on to `Aborting`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    /// Others run it.
    Away,
    Queued,
    Running,
    Committing,
    Draining(Outcome),
    Aborting(Outcome),
    Ended(Outcome),
}

/// One hop's dealings with its worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) worker: usize,
    /// Its entry in the worker's queue, while it stands there.
    pub(crate) queued: Option<Entry>,
    pub(crate) in_flight: u32,
    pub(crate) served_bytes: u64,
    pub(crate) meter: Meter,
}

/// Everything about one transfer. Invariant: `in_flight` is the sum of the lanes'; `grants` are
/// held from `Running` until everything is copied or drained.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) transfer: Transfer,
    pub(crate) phase: Phase,
    pub(crate) role: Role,
    pub(crate) arrival: u64,
    pub(crate) ties: Ties,
    pub(crate) grants: Vec<Grant>,
    /// Its own turn, or that of a more urgent transfer that waits for staging it holds.
    pub(crate) served_as: Turn,
    pub(crate) run: Run,
    pub(crate) in_flight: u32,
    pub(crate) done_bytes: u64,
    pub(crate) stages: Stages,
    pub(crate) is_forgotten: bool,
}

/// What of a transfer this engine runs.
#[derive(Debug)]
pub(crate) enum Role {
    /// All of it.
    Whole,
    /// Nothing: others will be asked to.
    Away,
    /// Nothing: others were asked to, under this number.
    Asker(u64),
    /// What another engine, or this one itself, has asked for.
    Share(Box<Share>),
}

/// What holds a transfer up, and whom it holds up.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    pub(crate) unmet: u32,
    pub(crate) dependents: BTreeSet<TransferId>,
}

/// The parts of a record whose memory the next transfer reuses.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) chain: Chain,
    pub(crate) lanes: Vec<Lane>,
    /// The hops that this engine runs.
    pub(crate) own: Range<usize>,
    /// Where each ring lies, once that is known.
    pub(crate) rings: Vec<Place>,
}

impl Record {
    /// A transfer that was just taken, with the memory of an earlier one.
    pub(crate) fn new(
        transfer: Transfer,
        arrival: u64,
        submitted: Time,
        mut run: Run,
        worker_of: impl Fn(ChannelId) -> usize,
    ) -> Self {
        let lane = |channel| Lane { worker: worker_of(channel), ..Lane::default() };
        run.lanes.clear();
        run.lanes.extend(transfer.program.channels().map(lane));
        run.own = 0..run.lanes.len();
        let served_as = (Reverse(transfer.priority), arrival);
        Record {
            transfer,
            served_as,
            phase: Phase::Waiting,
            role: Role::Whole,
            arrival,
            ties: Ties::default(),
            grants: Vec::new(),
            run,
            in_flight: 0,
            done_bytes: 0,
            stages: Stages { submitted, ..Stages::default() },
            is_forgotten: false,
        }
    }

    /// What a policy knows of one of its descriptors.
    pub(crate) fn standing(&self, hop: usize) -> Standing {
        let served_bytes = self.run.lanes[hop].served_bytes;
        let (Reverse(priority), priority_arrival) = self.served_as;
        Standing { priority, priority_arrival, arrival: self.arrival, served_bytes }
    }

    /// Where its time went.
    pub(crate) fn report(&self, now: Time) -> Report {
        let [waiting_for_others, waiting_for_staging, running] = self.stages.spent(now);
        let hops = self.run.lanes.iter().zip(self.transfer.program.hops());
        let hops = hops.map(|(lane, hop)| lane.meter.report(now, hop.channel, hop.ends)).collect();
        Report { waiting_for_others, waiting_for_staging, running, hops }
    }

    /// The node that a hop writes to.
    pub(crate) fn written_by(&self, hop: usize) -> NodeId {
        self.transfer.program.hops()[hop].ends[1].node
    }

    pub(crate) fn turn(&self) -> Turn {
        (Reverse(self.transfer.priority), self.arrival)
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    pub(crate) fn state(&self) -> State {
        match &self.phase {
            Phase::Waiting => State::WaitingForOthers,
            Phase::Queued => State::WaitingForStaging,
            Phase::Running | Phase::Away => State::Running,
            Phase::Committing => State::Committing,
            Phase::Draining(outcome) | Phase::Aborting(outcome) => State::Stopping(outcome.clone()),
            Phase::Ended(outcome) => State::Ended(outcome.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Seat {
    generation: u32,
    record: Option<Record>,
    spare: Run,
}

/// Transfers by id. A slot that is used again has a new generation.
#[derive(Debug)]
pub(crate) struct Table {
    seats: Vec<Seat>,
    vacant: Vec<u32>,
    max_transfers: u32,
    live: u32,
    arrivals: u64,
}

impl Table {
    pub(crate) fn new(max_transfers: u32) -> Self {
        Table { seats: Vec::new(), vacant: Vec::new(), max_transfers, live: 0, arrivals: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.seats.len() - self.vacant.len() >= self.max_transfers as usize
    }

    /// Adds what `record` makes of memory to reuse.
    pub(crate) fn insert(&mut self, record: impl FnOnce(Run) -> Record) -> TransferId {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.seats.push(Seat::default());
            u32::try_from(self.seats.len() - 1).expect("fewer than 2^32")
        });
        self.live += 1;
        self.arrivals += 1;
        let seat = &mut self.seats[index as usize];
        seat.record = Some(record(std::mem::take(&mut seat.spare)));
        TransferId { index, generation: seat.generation }
    }

    /// How many were ever added.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// How many have not ended.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// One has ended.
    pub(crate) fn retire(&mut self) {
        self.live -= 1;
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Record> {
        let seat = self.seats.get(id.index as usize)?;
        seat.record.as_ref().filter(|_| seat.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Record> {
        let seat = self.seats.get_mut(id.index as usize)?;
        seat.record.as_mut().filter(|_| seat.generation == id.generation)
    }

    /// All that have not been dropped.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransferId, &Record)> {
        (0..).zip(&self.seats).filter_map(|(index, seat)| {
            let id = TransferId { index, generation: seat.generation };
            Some((id, seat.record.as_ref()?))
        })
    }

    /// Drops a record; its id finds nothing from now on.
    pub(crate) fn remove(&mut self, id: TransferId) {
        if self.get(id).is_none() {
            return;
        }
        let seat = &mut self.seats[id.index as usize];
        seat.spare = seat.record.take().map(|record| record.run).unwrap_or_default();
        seat.generation = seat.generation.wrapping_add(1);
        self.vacant.push(id.index);
    }
}
