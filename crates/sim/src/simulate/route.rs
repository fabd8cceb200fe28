//! How the instances of a copy go: in one transfer, in several with whole instances between, or in
//! several parts at once.

use crate::simulate::error::SimulateError;
use crate::simulate::planning::{PlanCount, Planning};
use crate::simulate::setup::{Baseline, Setup};
use crate::simulate::shortest::shortest;
use crate::simulate::workload::{CopySpec, Form};
use engine::Program;
use layout::{LayoutError, Part};
use model::{
    Algorithm, Bound, ChannelId, CostModel, Limit, MemoryId, MemoryKind, NodeId, Plan, Priority,
    Topology,
};
use planner::{Choice, End, Load, Options, Piece, PlanCache, Query};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plans of single hops that are kept.
const PLANS: usize = 1024;

/// One transfer of the engine.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) plan: Arc<Plan>,
    pub(crate) program: Arc<Program>,
}

/// Transfers that run at the same time, each with a part of the instance.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) legs: Vec<Leg>,
}

/// The stages that each instance of a copy takes, each after the one before.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) stages: Vec<Stage>,
    /// Where the source lies, each whole instance between two stages, and the destination; and
    /// what it takes there. One more than there are stages.
    pub(crate) places: Vec<(MemoryId, u64)>,
}

impl Route {
    /// The channels that it uses.
    pub(crate) fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.plans().flat_map(|plan| plan.hops.iter().map(|hop| hop.channel))
    }

    /// The memories in which its transfers need staging.
    pub(crate) fn pools(&self) -> impl Iterator<Item = MemoryId> + '_ {
        self.plans().flat_map(|plan| plan.buffers.iter().map(|b| b.memory))
    }

    /// The nodes that its transfers pass.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.plans().flat_map(|plan| plan.memories.iter().map(|memory| memory.node))
    }

    /// The plan of every transfer.
    pub(crate) fn into_plans(self) -> Vec<Arc<Plan>> {
        self.stages.into_iter().flat_map(|stage| stage.legs).map(|leg| leg.plan).collect()
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.stages.iter().flat_map(|stage| &stage.legs).map(|leg| &*leg.plan)
    }

    fn push(&mut self, copy: &CopySpec, plan: Arc<Plan>, ends: [Form<'_>; 2]) -> Made<()> {
        let leg = Leg::of(copy, plan, ends)?;
        self.push_stage(copy, vec![leg], ends)
    }

    /// `legs` are one at least.
    fn push_stage(&mut self, copy: &CopySpec, legs: Vec<Leg>, ends: [Form<'_>; 2]) -> Made<()> {
        let memories = &legs[0].plan.memories;
        if self.places.is_empty() {
            self.places.push((memories[0], refused(copy, copy.footprint(ends[0].layout))?));
        }
        let last = memories[memories.len() - 1];
        self.places.push((last, refused(copy, copy.footprint(ends[1].layout))?));
        self.stages.push(Stage { legs });
        Ok(())
    }
}

impl Leg {
    fn of(copy: &CopySpec, plan: Arc<Plan>, ends: [Form<'_>; 2]) -> Made<Self> {
        let [src, dst] = ends.map(|form| copy.part(form));
        let program = Program::compile(&plan, refused(copy, src)?, refused(copy, dst)?);
        let compile = |source| SimulateError::Compile { copy: copy.name.clone(), source };
        Ok(Leg { plan, program: Arc::new(program.map_err(compile)?) })
    }
}

type Made<T> = Result<T, SimulateError>;

/// Finds routes on one cluster, as the baseline has it.
#[derive(Debug)]
pub(crate) struct Router<'a> {
    topology: &'a Topology,
    setup: &'a Setup,
    /// The cluster without memories for intermediates: there are direct paths only.
    direct: Topology,
    planning: Planning,
    direct_plans: PlanCache,
    /// What has begun and not ended, by how urgent it is; nothing where it doesn't count.
    loads: BTreeMap<Priority, Load>,
}

impl<'a> Router<'a> {
    pub(crate) fn new(topology: &'a Topology, setup: &'a Setup) -> Self {
        Router {
            topology,
            setup,
            direct: narrowed(topology, &[]),
            planning: Planning::default(),
            direct_plans: PlanCache::new(PLANS),
            loads: BTreeMap::new(),
        }
    }

    /// How the instances of `copy`, number `at` of its case, go.
    pub(crate) fn route(&mut self, at: usize, copy: &CopySpec) -> Made<Route> {
        match self.setup.baseline {
            None | Some(Baseline::OneInFlight) => self.planned(at, copy, Load::IDLE),
            Some(Baseline::StoreAndForward) => self.stored_and_forwarded(copy),
            Some(Baseline::NoPipeline) => self.hop_by_hop(at, copy),
            Some(Baseline::NoPath) => self.fixed(copy),
            Some(Baseline::DeviceConverts) => self.device_converts(copy),
        }
    }

    /// How they go from now on, where the present load may have changed that. Channels serve the more
    /// urgent first, so that what is less urgent is none.
    pub(crate) fn rerouted(&mut self, at: usize, copy: &CopySpec) -> Made<Option<Route>> {
        let mut load = Load::default();
        self.loads.range(copy.priority..).for_each(|(_, more)| load.add(more));
        let changed = !load.is_idle();
        changed.then(|| self.planned(at, copy, &load)).transpose()
    }

    /// The transfers of a stage have begun.
    pub(crate) fn begin(&mut self, stage: &Stage, priority: Priority) {
        if self.setup.counts_load() {
            let load = self.loads.entry(priority).or_default();
            stage.legs.iter().for_each(|leg| load.begin(self.topology, &leg.plan));
        }
    }

    /// All of them have ended.
    pub(crate) fn end(&mut self, stage: &Stage, priority: Priority) {
        if let Some(load) = self.loads.get_mut(&priority) {
            stage.legs.iter().for_each(|leg| load.end(self.topology, &leg.plan));
        }
    }

    /// What each node planned.
    pub(crate) fn counts(&self) -> Vec<(NodeId, PlanCount)> {
        self.planning.counts()
    }

    /// The planner's path in one transfer, or its paths in several.
    fn planned(&mut self, at: usize, copy: &CopySpec, load: &Load) -> Made<Route> {
        if self.setup.most_paths() > 1 {
            return self.split(copy, load);
        }
        let plan = self.plan(at, copy, load)?;
        one_stage(copy, plan)
    }

    fn split(&self, copy: &CopySpec, load: &Load) -> Made<Route> {
        let (topology, options, most) =
            (self.topology, options(self.setup.choice), self.setup.most_paths());
        let split =
            |query: &Query<'_>| planner::split(topology, &Query { load, ..*query }, &options, most);
        let split = asked(copy, whole(copy), split)?;
        let leg = |piece: Piece| {
            let part = copy.slice(split.dim, &piece.range);
            Leg::of(&part, Arc::new(piece.plan), [part.end(0), part.end(1)])
        };
        let legs = split.parts.into_iter().map(leg).collect::<Made<Vec<Leg>>>()?;
        let mut route = Route::default();
        route.push_stage(copy, legs, [copy.end(0), copy.end(1)])?;
        Ok(route)
    }

    fn plan(&mut self, at: usize, copy: &CopySpec, load: &Load) -> Made<Arc<Plan>> {
        let (topology, options) = (self.topology, options(self.setup.choice));
        let planning = &mut self.planning;
        let plan =
            |query: &Query<'_>| planning.plan(topology, &Query { load, ..*query }, &options, at);
        asked(copy, whole(copy), plan)
    }

    /// The planner's path and layouts, each hop for itself.
    fn hop_by_hop(&mut self, at: usize, copy: &CopySpec) -> Made<Route> {
        let plan = self.plan(at, copy, Load::IDLE)?;
        let (mut route, last) = (Route::default(), plan.hops.len() - 1);
        for hop in 0..=last {
            let from = if hop == 0 { copy.end(0) } else { copy.alone(&plan.layouts[hop]) };
            let to = if hop == last { copy.end(1) } else { copy.alone(&plan.layouts[hop + 1]) };
            route.push(copy, Arc::new(hop_of(&plan, hop)), [from, to])?;
        }
        Ok(route)
    }

    /// The path of a runtime that can't plan, each hop for itself; the last one converts.
    fn stored_and_forwarded(&mut self, copy: &CopySpec) -> Made<Route> {
        let path = self.path(copy, &HOST, copy.footprint(&copy.layouts[0]))?;
        let mut route = Route::default();
        for (hop, pair) in path.windows(2).enumerate() {
            let between = copy.alone(&copy.layouts[0]);
            let from = if hop == 0 { copy.end(0) } else { between };
            let to = if hop + 2 == path.len() { copy.end(1) } else { between };
            let (direct, plans) = (&self.direct, &mut self.direct_plans);
            let full = options(Choice::Only(Algorithm::Full));
            let query = ((pair[0], from), (pair[1], to));
            let plan = asked(copy, query, |query| Ok(plans.plan(direct, query, &full)?.plan))?;
            route.push(copy, plan, [from, to])?;
        }
        Ok(route)
    }

    /// The same path and layouts in one transfer.
    fn fixed(&self, copy: &CopySpec) -> Made<Route> {
        let path = self.path(copy, &HOST, copy.footprint(&copy.layouts[0]))?;
        self.along(copy, &path, Algorithm::Spsl)
    }

    /// A path through registered memory in one transfer, whose hop at the device converts.
    fn device_converts(&self, copy: &CopySpec) -> Made<Route> {
        let path = self.path(copy, &[MemoryKind::Reg], Ok(0))?;
        let is_device = |id| self.topology.memory(id).is_some_and(|m| m.kind == MemoryKind::Fbm);
        let first_only = is_device(copy.from) && !is_device(copy.to);
        let algorithm = if first_only { Algorithm::Spdl } else { Algorithm::Spsl };
        self.along(copy, &path, algorithm)
    }

    fn path(
        &self,
        copy: &CopySpec,
        kinds: &[MemoryKind],
        bytes: Result<u64, LayoutError>,
    ) -> Made<Vec<MemoryId>> {
        let path = shortest(self.topology, (copy.from, copy.to), refused(copy, bytes)?, kinds);
        path.ok_or_else(|| SimulateError::NoRoute { copy: copy.name.clone() })
    }

    /// A transfer by way of these memories.
    fn along(&self, copy: &CopySpec, path: &[MemoryId], algorithm: Algorithm) -> Made<Route> {
        let narrowed = narrowed(self.topology, &path[1..path.len() - 1]);
        let options = options(Choice::Only(algorithm));
        let planned = |query: &Query<'_>| planner::plan(&narrowed, query, &options).map(Arc::new);
        let plan = asked(copy, whole(copy), planned)?;
        one_stage(copy, plan)
    }
}

/// Where whole instances are kept between hops.
const HOST: [MemoryKind; 3] = [MemoryKind::Sys, MemoryKind::Zcm, MemoryKind::Reg];

fn one_stage(copy: &CopySpec, plan: Arc<Plan>) -> Made<Route> {
    let mut route = Route::default();
    route.push(copy, plan, [copy.end(0), copy.end(1)])?;
    Ok(route)
}

/// `topology`, in which only memories like these are intermediates.
fn narrowed(topology: &Topology, between: &[MemoryId]) -> Topology {
    let mut narrowed = topology.clone();
    let place = |id: &MemoryId| Some((topology.class_of(id.node)?.0, usize::from(id.index)));
    let kept: Vec<_> = between.iter().filter_map(place).collect();
    for (class, node) in narrowed.classes.iter_mut().enumerate() {
        for (index, memory) in node.memories.iter_mut().enumerate() {
            if !kept.contains(&(class, index)) {
                memory.th_bytes = Some(0);
            }
        }
    }
    narrowed
}

fn options(choice: Choice) -> Options {
    Options { choice, model: CostModel::Default, ..Options::default() }
}

type Asked<'a> = ((MemoryId, Form<'a>), (MemoryId, Form<'a>));

/// From the source of `copy` to its destination.
fn whole(copy: &CopySpec) -> Asked<'_> {
    ((copy.from, copy.end(0)), (copy.to, copy.end(1)))
}

/// Asks `planner` for `copy` between these memories and forms, on an idle cluster.
fn asked<T>(
    copy: &CopySpec,
    (src, dst): Asked<'_>,
    planner: impl FnOnce(&Query<'_>) -> Result<T, planner::PlanError>,
) -> Made<T> {
    let parts = (refused(copy, copy.part(src.1))?, refused(copy, copy.part(dst.1))?);
    let query = Query {
        src: end(src.0, &parts.0),
        dst: end(dst.0, &parts.1),
        extents: parts.0.extents(),
        field_bytes: parts.0.field_bytes(),
        load: Load::IDLE,
    };
    planner(&query).map_err(|source| SimulateError::Plan { copy: copy.name.clone(), source })
}

fn end(memory: MemoryId, part: &Part) -> End<'_> {
    End { memory, layout: part.layout(), phase: part.phase(), listed: 0, gaps: part.gaps() }
}

fn refused<T>(copy: &CopySpec, made: Result<T, LayoutError>) -> Made<T> {
    made.map_err(|source| SimulateError::Layout { copy: copy.name.clone(), source })
}

/// One hop of a plan as a plan.
fn hop_of(plan: &Plan, hop: usize) -> Plan {
    Plan {
        algorithm: plan.algorithm,
        model: plan.model,
        throughput: plan.hops[hop].throughput,
        seconds: None,
        memories: plan.memories[hop..hop + 2].to_vec(),
        layouts: plan.layouts[hop..hop + 2].to_vec(),
        phase: plan.phase.clone(),
        hops: vec![plan.hops[hop].clone()],
        buffers: Vec::new(),
        bound_by: Bound { hop: 0, why: Limit::Channel },
        alternatives: Vec::new(),
        search: plan.search.clone(),
    }
}
