//! A run: an engine for each node, driven in virtual time against the plant and the wire.

use super::plant::Plant;
use super::trouble::Trouble;
use super::{NodeScenario, node_id};
use crate::agenda::Agenda;
use crate::channel::{Flight, Moments};
use crate::memory::{Memories, Owner};
use crate::rng::Rng;
use crate::scenario::{After, Fault};
use crate::stage::{Cast, fence_result};
use crate::trace::{Entry, Event};
use crate::urgency::Urgency;
use crate::violation::Violation;
use engine::{AskId, Engine, Packet, Transfer};
use model::{
    ChannelErrorKind, Completion, CopyWork, FenceId, NodeId, Outcome, Request, RequestId, Time,
    TransferId, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::Decoder;

/// What the clock brings.
#[derive(Debug)]
pub(super) enum Tick {
    Submit(usize),
    Fence(usize),
    Fault(usize),
    NodeFault(usize),
    Read(usize, RequestId),
    Scribble(usize, RequestId),
    Write(usize, RequestId),
    Complete(usize, RequestId),
    Deliver(Letter),
    /// At the first, nothing of the second from before a session arrives any more.
    Cut(NodeId, (NodeId, u64), u32),
    Wake(usize),
}

/// A packet on its way, as bytes.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    from: NodeId,
    to: NodeId,
    bytes: Arc<[u8]>,
}

/// A node, dead or alive.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) engine: Option<Engine>,
    pub(super) life: u32,
    /// Until then it is told nothing, and says nothing.
    pub(super) awake_at: Time,
    pub(super) urgency: Urgency,
    /// Reads what comes for it.
    decoder: Decoder,
}

/// How far a transfer is, for those who watch it.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    pub(super) id: Option<TransferId>,
    pub(super) submitted_at: Time,
    /// In which life of its asker it was submitted.
    pub(super) life: u32,
    /// The lives of its source's and its destination's node then.
    pub(super) lives: [u32; 2],
    /// Whether the node of its last hop ever had its share.
    pub(super) is_known: bool,
    /// What its last hop has written, and what its asker knows of that.
    pub(super) written_bytes: u64,
    pub(super) progress_bytes: u64,
    pub(super) ended: Option<Outcome>,
    pub(super) cancelled: bool,
    pub(super) commits: u32,
    pub(super) aborts: u32,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(super) scenario: &'a NodeScenario,
    pub(super) sites: Vec<Site>,
    pub(super) agenda: Agenda<Tick>,
    pub(super) memories: Memories,
    pub(super) plant: Plant,
    pub(super) cast: Cast,
    pub(super) watches: Vec<Watch>,
    pub(super) names: BTreeMap<AskId, usize>,
    /// On which nodes a transfer has something in staging.
    pub(super) staged: BTreeSet<(usize, usize)>,
    pub(super) trouble: Trouble,
    pub(super) rng: Rng,
    pub(super) trace: Vec<Entry>,
}

/// How late a packet may be that is.
const LATE_NS: u64 = 8_000_000;

/// More than any run takes.
const MAX_STEPS: u64 = 5_000_000;

impl<'a> World<'a> {
    /// Everything in place, nothing submitted.
    pub(crate) fn new(scenario: &'a NodeScenario) -> Result<Self, Violation> {
        let base = &scenario.base;
        let mut rng = Rng::new(base.seed ^ 0x0de5);
        let mut memories = Memories::new(base.payload);
        let cast = Cast::gather(base, &mut memories, &mut rng.fork())?;
        let mut agenda = Agenda::new();
        let submits = base.transfers.iter().enumerate();
        submits.for_each(|(i, t)| agenda.add(t.submit_at, Tick::Submit(i)));
        base.fences.iter().enumerate().for_each(|(i, f)| agenda.add(f.at, Tick::Fence(i)));
        base.faults.iter().enumerate().for_each(|(i, f)| agenda.add(f.0, Tick::Fault(i)));
        let faults = scenario.faults.iter().enumerate();
        faults.for_each(|(i, f)| agenda.add(f.0, Tick::NodeFault(i)));
        let mut world = World {
            scenario,
            sites: Vec::new(),
            agenda,
            memories,
            plant: Plant::new(),
            cast,
            watches: vec![Watch::default(); base.transfers.len()],
            names: BTreeMap::new(),
            staged: BTreeSet::new(),
            trouble: Trouble::new(&scenario.wire),
            rng,
            trace: Vec::new(),
        };
        for node in 0..scenario.nodes {
            let (awake_at, urgency) = (Time(0), Urgency::new(base));
            let decoder = Decoder::new();
            world.sites.push(Site { engine: None, life: 0, awake_at, urgency, decoder });
            world.start(NodeId(node));
        }
        Ok(world)
    }

    /// Runs to the end, and returns what happened; the second part says what rule was broken.
    pub(crate) fn run(mut self) -> (Vec<Entry>, Result<(), (Time, Violation)>) {
        let result = self.play().map_err(|violation| (self.agenda.now(), violation));
        (self.trace, result)
    }

    fn play(&mut self) -> Result<(), Violation> {
        for _ in 0..MAX_STEPS {
            let Some(tick) = self.next_tick() else { return self.close() };
            let node = self.tick(tick)?;
            if let Some(node) = node {
                self.pump(node)?;
            }
        }
        self.all_ended()
    }

    /// The next event, or a timeout that an engine asked for before it.
    fn next_tick(&mut self) -> Option<Tick> {
        let wake = |(at, site): (usize, &Site)| {
            Some((site.engine.as_ref()?.poll_timeout()?.max(site.awake_at), at))
        };
        let first = self.sites.iter().enumerate().filter_map(wake).min();
        let next = self.agenda.next_at();
        if let Some((at, node)) = first.filter(|(at, _)| next.is_none_or(|next| *at < next)) {
            self.agenda.add(at, Tick::Wake(node));
        }
        self.agenda.next().filter(|_| self.agenda.now() <= self.scenario.base.limit)
    }

    /// Does what the clock brings; returns the node whose engine was told of it.
    fn tick(&mut self, tick: Tick) -> Result<Option<usize>, Violation> {
        let now = self.agenda.now();
        if let Some(awake_at) = self.asleep(&tick) {
            self.agenda.add(awake_at, tick);
            return Ok(None);
        }
        match tick {
            Tick::Submit(transfer) => return self.submit(transfer),
            Tick::Fence(fence) => return self.fence(fence).map(|()| None),
            Tick::Fault(fault) => return Ok(self.strike(fault)),
            Tick::NodeFault(fault) => return self.strike_node(fault).map(|()| None),
            Tick::Read(at, id) => self.read(at, id),
            Tick::Scribble(at, id) => self.scribble(at, id),
            Tick::Write(at, id) => self.write(at, id)?,
            Tick::Complete(at, id) => return self.complete(at, id),
            Tick::Deliver(letter) => return self.deliver(&letter),
            Tick::Cut(reader, peer, life) => return self.cut(reader, peer, life),
            Tick::Wake(node) => {
                let engine = self.sites[node].engine.as_mut();
                engine.into_iter().for_each(|engine| engine.handle_timeout(now));
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Until when the engine that is to be told of `tick` does not run, if it does not.
    fn asleep(&self, tick: &Tick) -> Option<Time> {
        let asker = |transfer: usize| self.scenario.askers[transfer].0 as usize;
        let all = 0..self.sites.len();
        let told = match tick {
            Tick::Submit(transfer) => vec![asker(*transfer)],
            Tick::Fence(_) => all.collect(),
            Tick::Fault(fault) => match self.scenario.base.faults[*fault].1 {
                Fault::Cancel(transfer) => vec![asker(transfer)],
                _ => Vec::new(),
            },
            Tick::Complete(seat, _) => vec![self.plant.node_of(*seat).0 as usize],
            Tick::Deliver(letter) => vec![letter.to.0 as usize],
            Tick::Cut(reader, ..) => vec![reader.0 as usize],
            Tick::Wake(node) => vec![*node],
            Tick::NodeFault(_) | Tick::Read(..) | Tick::Scribble(..) | Tick::Write(..) => {
                Vec::new()
            }
        };
        let until = told.into_iter().map(|node| self.sites[node].awake_at).max();
        until.filter(|until| *until > self.agenda.now())
    }

    /// Takes out what an engine has to say, until it has nothing more.
    fn pump(&mut self, node: usize) -> Result<(), Violation> {
        self.learn(node)?;
        self.free_staging(node)?;
        let now = self.agenda.now();
        loop {
            let Some(engine) = &mut self.sites[node].engine else { return Ok(()) };
            if let Some(request) = engine.poll_request() {
                self.issue(node, request)?;
            } else if let Some(packet) = engine.poll_peer() {
                self.post(&packet);
            } else if let Some(peer) = engine.poll_disconnect() {
                self.give_up(node, peer.0)?;
                let after = self.rng.within(0, self.scenario.wire.jitter_ns);
                let (reader, life) = (NodeId(node as u32), self.sites[node].life);
                self.agenda.add(Time(now.0 + after), Tick::Cut(reader, peer, life));
            } else if let Some(event) = engine.poll_event() {
                self.end(node, event)?;
            } else {
                return Ok(());
            }
        }
    }

    /// The names of transfers that were asked of others, how far they are, and what shares there are.
    fn learn(&mut self, node: usize) -> Result<(), Violation> {
        let Some(engine) = &self.sites[node].engine else { return Ok(()) };
        for (transfer, watch) in self.watches.iter_mut().enumerate() {
            let is_here = self.scenario.askers[transfer].0 as usize == node;
            let id = watch.id.filter(|_| is_here && watch.life == self.sites[node].life);
            if let Some(name) = id.and_then(|id| engine.ask_id(id)) {
                self.names.insert(name, transfer);
            }
            if let Some(progress) = id.and_then(|id| engine.progress(id)) {
                watch.check_progress(transfer, progress)?;
            }
        }
        let shares = self.names.iter().filter(|(name, _)| engine.share(**name).is_some());
        for (_, &transfer) in shares {
            let is_last = self.scenario.committer(transfer).0 as usize == node;
            self.watches[transfer].is_known |= is_last;
        }
        Ok(())
    }

    /// What a node calls its share of a transfer, or all of one that is its own.
    pub(super) fn run_at(&self, node: usize, transfer: usize) -> Option<TransferId> {
        match self.names.iter().find(|(_, named)| **named == transfer) {
            Some((name, _)) => self.sites[node].engine.as_ref()?.share(*name),
            None => self.watches[transfer].id.filter(|id| self.asked_at(node, *id).is_some()),
        }
    }

    /// What a transfer had in staging is gone once the engine has given it back.
    fn free_staging(&mut self, node: usize) -> Result<(), Violation> {
        let Some(engine) = &self.sites[node].engine else { return Ok(()) };
        let here = self.staged.iter().filter(|(at, _)| *at == node);
        let holds = |transfer: usize| {
            let id = self.run_at(node, transfer);
            let named = self.names.iter().filter(|(_, named)| **named == transfer);
            let kept: u64 = named.map(|(name, _)| engine.quarantined_bytes(*name)).sum();
            kept + id.and_then(|id| engine.staged_bytes(id)).unwrap_or(0) > 0
        };
        let left: Vec<usize> = here.map(|(_, t)| *t).filter(|t| !holds(*t)).collect();
        for transfer in left {
            self.staged.remove(&(node, transfer));
            let is_here = |memory: model::MemoryId| memory.node.0 as usize == node;
            let left_bytes = self.memories.forget(owner_of(transfer), is_here)?;
            self.cast.freed(transfer, left_bytes);
        }
        Ok(())
    }

    fn submit(&mut self, at: usize) -> Result<Option<usize>, Violation> {
        let (now, node) = (self.agenda.now(), self.scenario.askers[at].0 as usize);
        let life = self.sites[node].life;
        if !self.scenario.base.transfers[at].after.iter().all(|after| self.is_here(life, after)) {
            return Ok(None);
        }
        let lives = self.scenario.ends(at).map(|end| self.sites[end.0 as usize].life);
        let Some(engine) = &mut self.sites[node].engine else { return Ok(None) };
        let transfer = self.cast.transfer(&self.scenario.base, at);
        let transfer = Transfer { lives: lives.map(Some), ..transfer };
        let id = match engine.submit(now, transfer) {
            Ok(id) => id,
            // Small tables fill up; then the transfer is none.
            Err(engine::SubmitError::Full) if self.scenario.has_small_tables() => return Ok(None),
            Err(e) => return Err(Violation::Refused { transfer: at, why: e.to_string() }),
        };
        self.cast.name(at, id);
        self.watches[at] =
            Watch { id: Some(id), submitted_at: now, life, lives, ..Watch::default() };
        self.note(Event::Submitted { transfer: at });
        Ok(Some(node))
    }

    /// Whether what a transfer is to wait for is known where it is submitted, in this life.
    fn is_here(&self, life: u32, after: &After) -> bool {
        let After::Transfer(other) = *after else { return true };
        self.watches[other].id.is_some() && self.watches[other].life == life
    }

    fn fence(&mut self, fence: usize) -> Result<(), Violation> {
        let (now, ok) = (self.agenda.now(), !self.scenario.base.fences[fence].fails);
        self.note(Event::Fenced { fence, ok });
        for node in 0..self.sites.len() {
            if let Some(engine) = &mut self.sites[node].engine {
                engine.handle_fence(now, FenceId(fence as u64), fence_result(ok));
            }
            self.pump(node)?;
        }
        Ok(())
    }

    /// Takes a request in, and plans when its bytes move.
    fn issue(&mut self, node: usize, request: Request) -> Result<(), Violation> {
        let transfer = self.transfer_of(node, &request)?;
        self.check_waits(transfer, &request)?;
        self.check_lives(node, transfer, &request)?;
        let seat = self.plant.seat(&request)?;
        let owner = owner_of(transfer);
        let crossing = match &request.work {
            Work::Copy(work) => self.begin(node, transfer, (&request, work))?,
            Work::Commit { .. } | Work::Abort { .. } => None,
        };
        match &request.work {
            Work::Copy(_) => {}
            Work::Commit { .. } => self.watches[transfer].commits += 1,
            Work::Abort { .. } => self.watches[transfer].aborts += 1,
        }
        self.note_issue(transfer, &request);
        let (now, id) = (self.agenda.now(), request.id);
        let moments = self.plant.submit(seat, now, (owner, request), crossing);
        self.plan_moves(seat, id, moments);
        Ok(())
    }

    /// What a request reads and writes is in use from now on; says so if it writes to another node.
    fn begin(
        &mut self,
        node: usize,
        transfer: usize,
        (request, work): (&Request, &CopyWork),
    ) -> Result<Option<(AskId, NodeId, u64)>, Violation> {
        self.check_urgency(node, transfer, (request.channel, work.payload_bytes))?;
        let (owner, memory) = (owner_of(transfer), self.memories.memory_of(work.dst.region));
        let to = memory.map_or(node_id(node), |memory| memory.node);
        if to.0 as usize == node {
            self.staged.insert((node, transfer));
            return self.memories.begin(owner, work).map(|()| None);
        }
        let crossing = self.crossing(node, to, request)?;
        if self.plant.lets_in(node_id(node), to, crossing.2) {
            self.staged.insert((to.0 as usize, transfer));
            self.memories.begin(owner, work)?;
        } else {
            self.memories.begin_read(owner, work)?;
        }
        Ok(Some(crossing))
    }

    /// A request that writes to another node does so in that one's session, as its node knows it.
    fn crossing(
        &self,
        node: usize,
        to: NodeId,
        request: &Request,
    ) -> Result<(AskId, NodeId, u64), Violation> {
        let engine = self.sites[node].engine.as_ref().expect("it gave the request out");
        let unheard = Violation::Unheard { request: request.id, to };
        let stamp = engine.session(to).map(|s| s.1).filter(|s| *s > 0).ok_or(unheard)?;
        let ask = engine.ask_id(request.transfer);
        let ask = ask.ok_or(Violation::NotRunning { request: request.id })?;
        Ok((ask, to, stamp))
    }

    fn transfer_of(&self, node: usize, request: &Request) -> Result<usize, Violation> {
        let engine = self.sites[node].engine.as_ref().expect("it gave the request out");
        let named = engine.ask_id(request.transfer).and_then(|name| self.names.get(&name));
        let found = named.copied().or_else(|| self.asked_at(node, request.transfer));
        found.ok_or(Violation::NotRunning { request: request.id })
    }

    /// The transfer that was submitted at `node`, in its present life, as `id`.
    pub(super) fn asked_at(&self, node: usize, id: TransferId) -> Option<usize> {
        let mut watches = self.watches.iter().zip(&self.scenario.askers);
        watches.position(|(watch, asker)| {
            let is_here = asker.0 as usize == node && watch.life == self.sites[node].life;
            is_here && watch.id == Some(id)
        })
    }

    fn plan_moves(&mut self, at: usize, id: RequestId, moments: Moments) {
        self.agenda.add(moments.read, Tick::Read(at, id));
        self.agenda.add(moments.scribble, Tick::Scribble(at, id));
        self.agenda.add(moments.write, Tick::Write(at, id));
        self.agenda.add(moments.complete, Tick::Complete(at, id));
    }

    fn read(&mut self, at: usize, id: RequestId) {
        let Some(flight) = self.plant.flight(at, id) else { return };
        flight.taken = flight.copy().map_or_else(Vec::new, |work| self.memories.read(work));
    }

    fn scribble(&mut self, at: usize, id: RequestId) {
        if !self.plant.arrives(at, id) {
            return;
        }
        let Some(flight) = self.plant.flight(at, id) else { return };
        if let Some(work) = flight.copy() {
            self.memories.scribble(work, id.0.to_le_bytes()[0] ^ 0xa5);
        }
    }

    fn write(&mut self, at: usize, id: RequestId) -> Result<(), Violation> {
        if !self.plant.arrives(at, id) {
            return Ok(());
        }
        self.check_awaited(at, id)?;
        let Some(flight) = self.plant.flight(at, id) else { return Ok(()) };
        if let Some(work) = flight.copy().filter(|_| flight.result().is_ok()) {
            self.memories.write(work, &flight.taken);
        }
        Ok(())
    }

    /// What arrives from another node is of a transfer that the reader knows of.
    fn check_awaited(&mut self, at: usize, id: RequestId) -> Result<(), Violation> {
        let Some(crossing) = self.plant.crossing(at, id).cloned() else { return Ok(()) };
        let reader = self.sites[crossing.to.0 as usize].engine.as_ref();
        let knows = |engine: &Engine| {
            engine.share(crossing.ask).is_some() || engine.quarantined_bytes(crossing.ask) > 0
        };
        let is_awaited = reader.is_none_or(knows);
        let transfer = self.names.get(&crossing.ask).copied().unwrap_or(usize::MAX);
        is_awaited.then_some(()).ok_or(Violation::Late { transfer, at: crossing.to })
    }

    fn complete(&mut self, at: usize, id: RequestId) -> Result<Option<usize>, Violation> {
        let arrives = self.plant.arrives(at, id);
        let Some((flight, lives)) = self.plant.complete(at, id) else { return Ok(None) };
        if let Some(work) = flight.copy() {
            self.end_copy(flight.owner, work, (arrives, lives))?;
        }
        if !lives {
            return Ok(None);
        }
        let (now, node) = (self.agenda.now(), flight.request.channel.node.0 as usize);
        let result = if arrives { flight.result() } else { Err(cut_off()) };
        self.note(Event::Completed { request: id, ok: result.is_ok() });
        self.count_written(&flight, result.is_ok());
        self.sites[node].urgency.changed(flight.owner as usize);
        let engine = self.sites[node].engine.as_mut().expect("its channel lives");
        engine.handle_completion(now, Completion { request: id, result });
        Ok(Some(node))
    }

    /// What a request wrote is written, what it read is read: where that was not cut off before.
    fn end_copy(
        &mut self,
        owner: Owner,
        work: &CopyWork,
        (arrives, lives): (bool, bool),
    ) -> Result<(), Violation> {
        match (arrives, lives) {
            (true, true) => self.memories.end(owner, work),
            (true, false) => self.memories.abandon(owner, work),
            (false, true) => self.memories.end_read(owner, work),
            (false, false) => Ok(()),
        }
    }

    /// What the last hop of a transfer has written.
    fn count_written(&mut self, flight: &Flight, is_ok: bool) {
        let transfer = flight.owner as usize;
        let hops = self.scenario.base.transfers[transfer].plan.hops.len();
        let is_last = usize::from(flight.request.hop) + 1 == hops;
        if let Some(work) = flight.copy().filter(|_| is_ok && is_last) {
            self.watches[transfer].written_bytes += work.payload_bytes;
        }
    }

    /// The wire takes a packet.
    fn post(&mut self, packet: &Packet) {
        let (wire, now) = (&self.scenario.wire, self.agenda.now());
        let bytes = wire::encode(packet).into();
        let letter = Letter { from: packet.from, to: packet.to, bytes };
        let copies = 1 + u64::from(self.rng.chance(wire.repeated_percent));
        for _ in 0..copies {
            let is_late = self.rng.chance(wire.late_percent);
            let most_ns = if is_late { LATE_NS } else { wire.jitter_ns };
            let after = wire.latency_ns + self.rng.within(0, most_ns);
            let is_lost = self.rng.chance(wire.lost_percent);
            if is_lost || is_late {
                self.trouble.dropped(now, letter.from, letter.to);
            }
            if !is_lost {
                self.agenda.add(Time(now.0 + after), Tick::Deliver(letter.clone()));
            }
        }
    }

    fn deliver(&mut self, letter: &Letter) -> Result<Option<usize>, Violation> {
        let (now, node) = (self.agenda.now(), letter.to.0 as usize);
        if self.trouble.is_cut(now, letter.from, letter.to) {
            self.trouble.dropped(now, letter.from, letter.to);
            return Ok(None);
        }
        let site = &mut self.sites[node];
        let Some(engine) = &mut site.engine else { return Ok(None) };
        let packet = site.decoder.decode(letter.from, &letter.bytes);
        let packet = packet.map_err(|e| Violation::Unreadable { why: e.to_string() })?;
        if packet.body.is_some() {
            // It may bring on what came early, of others.
            site.urgency.all_changed();
        }
        engine.handle_peer(now, packet);
        Ok(Some(node))
    }

    /// The driver of `reader` has made sure that nothing of `writer` arrives any more.
    fn cut(
        &mut self,
        reader: NodeId,
        (writer, floor): (NodeId, u64),
        life: u32,
    ) -> Result<Option<usize>, Violation> {
        let (now, at) = (self.agenda.now(), reader.0 as usize);
        if self.sites[at].life != life {
            return Ok(None);
        }
        self.plant.cut((reader, writer), floor, &mut self.memories)?;
        let Some(engine) = &mut self.sites[at].engine else { return Ok(None) };
        engine.handle_disconnected(now, writer, floor);
        Ok(Some(at))
    }

    fn note_issue(&mut self, transfer: usize, request: &Request) {
        let bytes = match &request.work {
            Work::Copy(work) => work.payload_bytes,
            Work::Commit { .. } | Work::Abort { .. } => 0,
        };
        let (hop, channel) = (request.hop, request.channel);
        self.note(Event::Issued { request: request.id, transfer, hop, channel, bytes });
    }

    pub(super) fn note(&mut self, event: Event) {
        self.trace.push(Entry { at: self.agenda.now(), event });
    }
}

fn cut_off() -> model::ChannelError {
    model::ChannelError::new(ChannelErrorKind::PeerLost, "the reader has cut the connection")
}

fn owner_of(transfer: usize) -> Owner {
    Owner::try_from(transfer).expect("few transfers")
}
