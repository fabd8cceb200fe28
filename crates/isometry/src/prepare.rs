//! Plans and programs of copies, made once for all that are alike.

use crate::Error;
use crate::matching::{Matched, matched};
use crate::runtime::Shared;
use crate::view::View;
use engine::Program;
use layout::{Side, Stream};
use model::{ChannelKind, CopyList, Plan, Topology};
use planner::{End, Options, Query};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A direct copy of host memory below this runs on the caller's thread: waking another costs
/// more.
const SMALL_BYTES: u64 = 96 << 10;

/// The most programs kept.
const MAX_PREPARED: usize = 1024;

/// A plan with its program, for every pair of instances that look like these.
#[derive(Debug)]
pub(crate) struct Prepared {
    src: Arc<View>,
    dst: Arc<View>,
    options: Options,
    generation: u64,
    pub(crate) plan: Arc<Plan>,
    pub(crate) program: Arc<Program>,
    /// What a small direct copy inside host memory does.
    pub(crate) small: Option<CopyList>,
    /// What the search took.
    pub(crate) plan_time: Duration,
}

impl Prepared {
    fn is_for(&self, src: &Arc<View>, dst: &Arc<View>, options: &Options) -> bool {
        let same = |a: &Arc<View>, b: &Arc<View>| Arc::ptr_eq(a, b) || a == b;
        same(&self.src, src) && same(&self.dst, dst) && self.options == *options
    }
}

/// The copies that have been prepared; the oldest go first.
#[derive(Debug)]
pub(crate) struct Plans {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    prepared: HashMap<u64, Arc<Prepared>, foldhash::fast::FixedState>,
    order: VecDeque<u64>,
}

impl Plans {
    pub(crate) fn new() -> Self {
        Plans { table: Mutex::new(Table::default()) }
    }

    fn get(&self, key: u64) -> Option<Arc<Prepared>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).prepared.get(&key).cloned()
    }

    fn put(&self, key: u64, prepared: &Arc<Prepared>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.prepared.insert(key, Arc::clone(prepared)).is_some() {
            return;
        }
        table.order.push_back(key);
        if table.order.len() > MAX_PREPARED
            && let Some(oldest) = table.order.pop_front()
        {
            table.prepared.remove(&oldest);
        }
    }
}

/// The plan and program from a box like `src` to a box like `dst`, and whether they were there.
pub(crate) fn prepare(
    shared: &Shared,
    src: &Arc<View>,
    dst: &Arc<View>,
    options: &Options,
) -> Result<(Arc<Prepared>, bool), Error> {
    let generation = shared.generation();
    let key = src.hash ^ dst.hash.rotate_left(23) ^ hash_of(options).rotate_left(47);
    let found = shared.plans.get(key);
    if let Some(found) = found.filter(|p| p.generation == generation && p.is_for(src, dst, options))
    {
        return Ok((found, true));
    }
    let prepared = Arc::new(make(&shared.topology(), src, dst, options)?);
    shared.plans.put(key, &prepared);
    Ok((prepared, false))
}

fn hash_of(options: &Options) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::with_seed(1).hash_one(options)
}

fn make(
    topology: &Topology,
    src: &Arc<View>,
    dst: &Arc<View>,
    options: &Options,
) -> Result<Prepared, Error> {
    let matched = matched(src, dst)?;
    let started = Instant::now();
    let plan = plan_of(topology, (src, dst), &matched, options)?;
    let plan_time = started.elapsed();
    let small = small_of(&plan, &matched)?;
    let program = Program::compile(&plan, matched.src, matched.dst)?;
    Ok(Prepared {
        src: Arc::clone(src),
        dst: Arc::clone(dst),
        options: *options,
        generation: topology.generation,
        plan: Arc::new(plan),
        program: Arc::new(program),
        small,
        plan_time,
    })
}

fn plan_of(
    topology: &Topology,
    (src, dst): (&View, &View),
    matched: &Matched,
    options: &Options,
) -> Result<Plan, Error> {
    let [from, to] = [
        (src.memory, &matched.src, matched.listed[0]),
        (dst.memory, &matched.dst, matched.listed[1]),
    ]
    .map(|(memory, part, listed)| End {
        memory,
        layout: part.layout(),
        phase: part.phase(),
        listed,
        gaps: part.gaps(),
    });
    let extents = matched.dst.extents();
    let field_bytes = matched.dst.field_bytes();
    let query = Query { src: from, dst: to, extents, field_bytes };
    planner::plan(topology, &query, options).map_err(|error| {
        let told = error.told(|memory| format!("`{}`", topology.short_name(memory)));
        Error::Plan { error, told }
    })
}

/// The copies of a direct plan that is cheaper than a thread's wake-up.
fn small_of(plan: &Plan, matched: &Matched) -> Result<Option<CopyList>, Error> {
    let (src, dst) = (&matched.src, &matched.dst);
    let payload = dst.payload_bytes();
    let direct = plan.hops.len() == 1 && plan.hops[0].kind == ChannelKind::Memcpy;
    if !direct || payload > SMALL_BYTES {
        return Ok(None);
    }
    let order = Stream::new(dst.layout(), dst.extents(), dst.phase(), dst.field_bytes())?;
    let list = layout::copies(Side::Instance(src), Side::Instance(dst), &order, 0..payload);
    Ok(Some(list.into()))
}
