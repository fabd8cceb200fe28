//! A case in virtual time: the planner's plans, an engine for each node, channels and wires; no
//! bytes.
//!
//! The driver is that of the fuzz world without its adversary and its audit: it hands commands and
//! completions in as their time comes, and takes requests and ends out until there are none.

use crate::agenda::Agenda;
use crate::simulate::desk::{Desk, pool_bytes};
use crate::simulate::error::SimulateError;
use crate::simulate::fleet::{Fleet, FleetTick, Output};
use crate::simulate::gate::{Needs, Turn};
use crate::simulate::lean::{Served, payload_bytes};
use crate::simulate::reach;
use crate::simulate::report::{CaseReport, CopyReport, Tally};
use crate::simulate::roads::{RoadTick, Roads, spec_of, wire_of};
use crate::simulate::route::{Leg, Route, Router, Stage};
use crate::simulate::setup::{Baseline, Setup};
use crate::simulate::watch::{Instance, Note, Watch};
use crate::simulate::workload::{Case, CopySpec};
use engine::{ByPriority, ChannelConfig, EngineConfig, FairShare, Policy, PoolConfig, Transfer};
use model::{ChannelId, MemoryId, NodeId, Outcome, Place, RegionId, Time, Topology};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One part in so many of a pool is kept for what is more urgent than what holds the rest.
const RESERVE_PARTS: u64 = 4;
/// A case lasts no longer: engines add to instants what is far less than the rest.
const LAST: Time = Time(1 << 62);
/// How many steps are taken before the caller is asked again.
const STEPS_A_LOOK: u64 = 4096;

/// What the clock brings.
#[derive(Debug)]
pub(crate) enum Tick {
    /// The instances of a copy start.
    Launch(usize),
    /// Something happens on a channel or wire.
    Road(RoadTick),
    /// Something reaches an engine.
    Fleet(FleetTick),
}

impl From<RoadTick> for Tick {
    fn from(tick: RoadTick) -> Self {
        Tick::Road(tick)
    }
}

impl From<FleetTick> for Tick {
    fn from(tick: FleetTick) -> Self {
        Tick::Fleet(tick)
    }
}

/// One instance on its way.
#[derive(Debug, Clone, Copy)]
struct Task {
    copy: usize,
    stage: usize,
    /// Which of the copy's instances.
    nth: u32,
    /// Transfers of the stage that have not ended.
    legs: usize,
    turn: Turn,
}

/// A copy of the case, and what became of it.
#[derive(Debug)]
struct Line {
    route: Route,
    needs: Needs,
    /// Copies that wait for it.
    dependents: Vec<usize>,
    /// Copies that it waits for.
    unmet: usize,
    /// Instances that have not ended.
    left: u32,
    launched: Time,
    ended: Time,
}

/// How far a case has come.
#[derive(Debug)]
struct Progress {
    /// Instances that have not ended.
    left: u64,
    /// Instances that have.
    ended: u64,
    /// When a channel or a launch moved something last.
    moved: Time,
    /// Steps taken since the caller was asked.
    steps: u64,
}

impl Progress {
    fn of(case: &Case) -> Self {
        let left = case.copies.iter().map(|copy| u64::from(copy.count)).sum();
        Progress { left, ended: 0, moved: Time(0), steps: 0 }
    }
}

/// A case that runs.
#[derive(Debug)]
pub(crate) struct World<'a> {
    copies: &'a [CopySpec],
    lines: Vec<Line>,
    tasks: Vec<Task>,
    memories: Vec<MemoryId>,
    clock: Agenda<Tick>,
    fleet: Fleet,
    roads: Roads,
    desk: Desk,
    router: Router<'a>,
    progress: Progress,
    tally: Tally,
    /// What is not told yet, where somebody wants to know.
    notes: Option<Vec<Note>>,
}

impl<'a> World<'a> {
    /// Everything planned, nothing started, unless `watch` says no.
    pub(crate) fn new(
        topology: &'a Topology,
        case: &'a Case,
        setup: &'a Setup,
        watch: &mut dyn Watch,
    ) -> Result<Self, SimulateError> {
        let mut router = Router::new(topology, setup);
        let routes: Vec<Route> = case
            .copies
            .iter()
            .enumerate()
            .map(|(at, copy)| ask(watch, 0).and_then(|()| router.route(at, copy)))
            .collect::<Result<_, _>>()?;
        let site = Site::of(topology, setup, &routes);
        let desk = site.desk();
        let mut world = World {
            copies: &case.copies,
            lines: lines(&case.copies, routes, &desk)?,
            tasks: Vec::new(),
            clock: Agenda::new(),
            fleet: Fleet::new(topology, site.configs(case)),
            roads: Roads::new(topology, site.channels, &site.memories),
            memories: site.memories,
            desk,
            router,
            progress: Progress::of(case),
            tally: Tally::default(),
            notes: None,
        };
        let ready = (0..case.copies.len()).filter(|&at| case.copies[at].after.is_empty());
        for at in ready {
            let computed = Time(0) + case.copies[at].compute;
            world.clock.add(computed.max(case.copies[at].at), Tick::Launch(at));
        }
        Ok(world)
    }

    /// Runs to the end, or until `watch` says no.
    pub(crate) fn run(
        mut self,
        topology: &Topology,
        watch: &mut dyn Watch,
    ) -> Result<CaseReport, SimulateError> {
        if watch.takes_notes() {
            self.notes = Some(Vec::new());
            self.fleet.follow();
        }
        while self.progress.left > 0 {
            let is_stuck = self.fleet.is_stuck(&self.clock, self.progress.moved);
            let next = if is_stuck { None } else { self.clock.next() };
            let tick = next.ok_or(SimulateError::Stuck { left: self.progress.left })?;
            if self.clock.now() > LAST {
                return Err(SimulateError::TooLong { left: self.progress.left });
            }
            self.tally.events += 1;
            self.tick(tick)?;
            self.drain(watch)?;
            self.tell(watch);
        }
        Ok(self.report(topology))
    }

    fn tick(&mut self, tick: Tick) -> Result<(), SimulateError> {
        let now = self.clock.now();
        match tick {
            Tick::Launch(copy) => self.launch(copy)?,
            Tick::Road(tick) => {
                self.roads.tick(&mut self.clock, tick);
                while let Some(served) = self.roads.poll() {
                    self.note_served(&served);
                    self.fleet.complete(now, &served.request);
                }
            }
            Tick::Fleet(tick) => {
                self.fleet.tick(now, tick);
                return Ok(());
            }
        }
        self.progress.moved = now;
        Ok(())
    }

    fn launch(&mut self, copy: usize) -> Result<(), SimulateError> {
        let (spec, line) = (&self.copies[copy], &mut self.lines[copy]);
        if let Some(route) = self.router.rerouted(copy, spec)? {
            line.route = route;
            // A search takes as long as many steps.
            self.progress.steps = STEPS_A_LOOK;
        }
        line.launched = self.clock.now();
        for nth in 0..spec.count {
            let task = self.tasks.len();
            let turn = (Reverse(spec.priority), task as u64);
            self.tasks.push(Task { copy, stage: 0, nth, legs: 0, turn });
            self.desk.ask_room(turn, task, &line.needs);
        }
        Ok(())
    }

    /// Moves everything on that can move now.
    fn drain(&mut self, watch: &mut dyn Watch) -> Result<(), SimulateError> {
        loop {
            self.progress.steps += 1;
            if self.progress.steps >= STEPS_A_LOOK {
                self.progress.steps = 0;
                ask(watch, self.progress.ended)?;
            }
            if let Some(task) = self.desk.next_with_room() {
                self.desk.occupy(&self.lines[self.tasks[task].copy].route);
                self.queue(task);
            } else if let Some(task) = self.desk.next_with_thread() {
                self.submit(task)?;
            } else if let Some(output) = self.fleet.poll(&mut self.clock) {
                self.take(output)?;
            } else {
                return Ok(());
            }
        }
    }

    fn take(&mut self, output: Output) -> Result<(), SimulateError> {
        match output {
            Output::Request(request) => {
                self.tally.requests += 1;
                self.roads.submit(&mut self.clock, request);
            }
            Output::Ended(task, Outcome::Done) => self.end_leg(task),
            Output::Ended(task, outcome) => {
                let copy = self.copies[self.tasks[task].copy].name.clone();
                return Err(SimulateError::Failed { copy, outcome });
            }
        }
        Ok(())
    }

    /// The next stage of `task` waits for a thread, or for its turn in the engine.
    fn queue(&mut self, task: usize) {
        let (node, turn) = (self.node_of(task), self.tasks[task].turn);
        self.desk.ask_thread(turn, task, node);
    }

    /// The node that asks for the stage that `task` is at, and whose thread does it: the one where
    /// its source lies.
    fn node_of(&self, task: usize) -> NodeId {
        let Task { copy, stage, .. } = self.tasks[task];
        self.lines[copy].route.stages[stage].legs[0].plan.memories[0].node
    }

    fn submit(&mut self, task: usize) -> Result<(), SimulateError> {
        let Task { copy, stage, turn, .. } = self.tasks[task];
        let route = &self.lines[copy].route;
        let place = |at: usize| Place { region: self.instances_in(route.places[at].0), offset: 0 };
        let (src, dst, stage) = (place(stage), place(stage + 1), &route.stages[stage]);
        for leg in &stage.legs {
            let mut transfer = Transfer::new(Arc::clone(&leg.program), src, dst);
            transfer.priority = turn.0.0;
            self.tally.transfers += 1;
            let taken = self.fleet.submit(self.clock.now(), self.node_of(task), transfer, task);
            let name = &self.copies[copy].name;
            taken.map_err(|source| SimulateError::Refused { copy: name.clone(), source })?;
        }
        self.tasks[task].legs = stage.legs.len();
        self.router.begin(stage, turn.0.0);
        Ok(())
    }

    /// The region of a memory in which all instances lie: no byte is kept, so none is in the way.
    fn instances_in(&self, memory: MemoryId) -> RegionId {
        region(&self.memories, memory, INSTANCES)
    }

    fn end_leg(&mut self, task: usize) {
        self.tasks[task].legs -= 1;
        if self.tasks[task].legs == 0 {
            self.end_stage(task);
        }
    }

    fn end_stage(&mut self, task: usize) {
        self.desk.free_thread(self.node_of(task));
        let Task { copy, stage, turn, .. } = self.tasks[task];
        let route = &self.lines[copy].route;
        self.router.end(&route.stages[stage], turn.0.0);
        let is_last = stage + 1 == route.stages.len();
        self.desk.vacate(route, stage);
        if is_last {
            self.desk.vacate(route, stage + 1);
        }
        if is_last {
            self.note_copied(task);
            return self.end(copy);
        }
        self.tasks[task].stage += 1;
        self.queue(task);
    }

    /// One more instance of `copy` has ended.
    fn end(&mut self, copy: usize) {
        let line = &mut self.lines[copy];
        self.progress.left -= 1;
        self.progress.ended += 1;
        line.left -= 1;
        line.ended = self.clock.now();
        if line.left > 0 {
            return;
        }
        for dependent in std::mem::take(&mut line.dependents) {
            let line = &mut self.lines[dependent];
            line.unmet -= 1;
            if line.unmet == 0 {
                let computed = self.clock.now() + self.copies[dependent].compute;
                self.clock.add(computed.max(self.copies[dependent].at), Tick::Launch(dependent));
            }
        }
    }

    fn note_served(&mut self, served: &Served) {
        let Some(notes) = &mut self.notes else { return };
        let request = &served.request;
        let Some(task) = self.fleet.task_of(request) else { return };
        let Task { copy, stage, nth, .. } = self.tasks[task];
        let stages = &self.lines[copy].route.stages[..stage];
        let before: usize = stages.iter().map(|stage| stage.legs[0].plan.hops.len()).sum();
        notes.push(Note::Served {
            instance: Instance { copy, nth },
            hop: before + usize::from(request.hop),
            channel: request.channel,
            bytes: payload_bytes(request),
            from: served.from,
            to: self.clock.now(),
        });
    }

    fn note_copied(&mut self, task: usize) {
        let Some(notes) = &mut self.notes else { return };
        let Task { copy, nth, .. } = self.tasks[task];
        let (from, to) = (self.lines[copy].launched, self.clock.now());
        notes.push(Note::Copied { instance: Instance { copy, nth }, from, to });
    }

    /// Tells what was noted since the last time.
    fn tell(&mut self, watch: &mut dyn Watch) {
        let Some(notes) = &mut self.notes else { return };
        notes.drain(..).for_each(|note| watch.note(&note));
        let at = self.clock.now();
        for (memory, bytes) in self.fleet.staged() {
            watch.note(&Note::Staged { memory, bytes, at });
        }
    }

    fn report(self, topology: &Topology) -> CaseReport {
        assert!(self.fleet.is_idle(), "nothing is left of any transfer");
        let instances = self.desk.peaks();
        let copy = |(line, spec): (Line, &CopySpec)| CopyReport {
            peak: peak(topology, &line.route),
            split: line.route.stages.iter().any(|stage| stage.legs.len() > 1),
            plans: line.route.into_plans(),
            bytes: spec.bytes(),
            launched: line.launched,
            ended: line.ended,
        };
        let copies: Vec<_> = self.lines.into_iter().zip(self.copies).map(copy).collect();
        let ended = copies.iter().map(|copy| copy.ended).max().unwrap_or_default();
        let (staging, plans) = (self.fleet.staging(), self.router.counts());
        CaseReport { copies, ended, staging, instances, plans, tally: self.tally }
    }
}

/// Stops where `watch` says no.
fn ask(watch: &mut dyn Watch, ended: u64) -> Result<(), SimulateError> {
    if watch.go_on(ended) { Ok(()) } else { Err(SimulateError::Stopped) }
}

fn lines(copies: &[CopySpec], routes: Vec<Route>, desk: &Desk) -> Result<Vec<Line>, SimulateError> {
    let line = |(copy, route): (&CopySpec, Route)| {
        Ok(Line {
            needs: desk.needs(copy, &route)?,
            route,
            dependents: Vec::new(),
            unmet: copy.after.len(),
            left: copy.count,
            launched: Time(0),
            ended: Time(0),
        })
    };
    let lines = copies.iter().zip(routes).map(line).collect::<Result<Vec<Line>, _>>();
    lines.map(|mut lines| {
        for (at, copy) in copies.iter().enumerate() {
            copy.after.iter().for_each(|&before| lines[before].dependents.push(at));
        }
        lines
    })
}

/// The most that the slowest hop's channel, and its wire, reach; for parts at once, their sum.
fn peak(topology: &Topology, route: &Route) -> f64 {
    let of_hop = |hop: &model::Hop, ends: &[MemoryId]| {
        let spec = spec_of(topology, hop.channel);
        let peak = spec.map_or(f64::INFINITY, |spec| spec.curves.of(hop.class).peak());
        let is_link = topology.link(hop.channel).is_some();
        let ports = ends.iter().filter(|_| is_link).filter_map(|&end| topology.port(end));
        let wires = wire_of(topology, hop.channel).into_iter().chain(ports);
        wires.map(|(_, wire)| wire.rate).fold(peak, f64::min)
    };
    let of_leg = |leg: &Leg| {
        let hops = leg.plan.hops.iter().zip(leg.plan.memories.windows(2));
        hops.map(|(hop, ends)| of_hop(hop, ends)).fold(f64::INFINITY, f64::min)
    };
    let of_stage = |stage: &Stage| stage.legs.iter().map(of_leg).sum();
    route.stages.iter().map(of_stage).fold(f64::INFINITY, f64::min)
}

/// Which region of a memory: all instances, or the staging pool.
const INSTANCES: u32 = 0;
const POOL: u32 = 1;

fn region(memories: &[MemoryId], memory: MemoryId, which: u32) -> RegionId {
    let index = memories.binary_search(&memory).expect("every memory of a route is listed");
    RegionId { index: u32::try_from(index).expect("few memories"), generation: which }
}

/// The memories, pools and channels that routes touch or may touch, each once, in order.
struct Site<'a> {
    topology: &'a Topology,
    setup: &'a Setup,
    memories: Vec<MemoryId>,
    pools: BTreeSet<MemoryId>,
    channels: Vec<ChannelId>,
}

impl<'a> Site<'a> {
    fn of(topology: &'a Topology, setup: &'a Setup, routes: &[Route]) -> Self {
        let mut pools: BTreeSet<MemoryId> = routes.iter().flat_map(Route::pools).collect();
        let mut channels: BTreeSet<ChannelId> = routes.iter().flat_map(Route::channels).collect();
        if setup.counts_load() {
            for node in routes.iter().flat_map(Route::nodes).collect::<BTreeSet<_>>() {
                pools.extend(reach::buffers(topology, node));
                channels.extend(reach::channels(topology, node));
            }
        }
        let places = routes.iter().flat_map(|route| &route.places).map(|place| place.0);
        let memories: BTreeSet<MemoryId> = places.chain(pools.iter().copied()).collect();
        let (memories, channels) = (memories.into_iter().collect(), channels.into_iter().collect());
        Site { topology, setup, memories, pools, channels }
    }

    fn desk(&self) -> Desk {
        let mut desk = Desk::default();
        for &memory in &self.memories {
            let is_pool = self.pools.contains(&memory);
            let pooled_bytes = if is_pool { pool_bytes(self.topology, memory) } else { 0 };
            desk.add_memory(self.topology, memory, pooled_bytes);
        }
        let shares = self.setup.baseline == Some(Baseline::StoreAndForward);
        let threads = shares.then_some(self.setup.dma_threads);
        self.nodes().into_iter().for_each(|node| desk.add_node(node, threads));
        desk
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.memories.iter().map(|memory| memory.node).collect()
    }

    /// The engine of each node.
    fn configs(&self, case: &Case) -> Vec<(NodeId, EngineConfig)> {
        let instances: u32 = case.copies.iter().map(|copy| copy.count).sum();
        let config = |node| (node, self.config(node, instances));
        self.nodes().into_iter().map(config).collect()
    }

    fn config(&self, node: NodeId, instances: u32) -> EngineConfig {
        let shares = self.setup.baseline == Some(Baseline::StoreAndForward);
        let policy: Arc<dyn Policy> =
            if shares { Arc::new(FairShare) } else { Arc::new(ByPriority) };
        let most = match self.setup.baseline {
            Some(Baseline::OneInFlight) => 1,
            _ => u32::MAX,
        };
        let channel = |&id: &ChannelId| ChannelConfig {
            id,
            max_in_flight: spec_of(self.topology, id)
                .map_or(1, |spec| spec.max_in_flight.min(most)),
            policy: Arc::clone(&policy),
        };
        let pool = |&memory: &MemoryId| {
            let capacity_bytes = pool_bytes(self.topology, memory);
            let region = region(&self.memories, memory, POOL);
            let reserve_bytes = capacity_bytes / RESERVE_PARTS;
            PoolConfig { memory, region, capacity_bytes, reserve_bytes }
        };
        let channels = self.channels.iter().filter(|id| id.node == node).map(channel).collect();
        let pools = self.pools.iter().filter(|id| id.node == node).map(pool).collect();
        let legs = u32::try_from(self.setup.most_paths()).unwrap_or(u32::MAX);
        // One that asks for a transfer counts it, and counts its own share of it.
        let max_transfers = instances.saturating_mul(2).saturating_mul(legs);
        EngineConfig { max_transfers, ..EngineConfig::new(channels, pools) }
    }
}

#[cfg(test)]
mod tests;
