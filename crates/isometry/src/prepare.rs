//! Plans and programs of copies, made once for all that are alike.

use crate::Error;
use crate::matching::{Matched, matched};
use crate::runtime::Shared;
use crate::view::View;
use engine::Program;
use layout::{Side, Stream};
use model::{ChannelKind, CopyList, Plan, Span, Topology};
use planner::{Cached, End, Load, Options, PlanCache, PlanError, Query};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A direct copy of host memory below this runs on the caller's thread: waking another costs
/// more.
const SMALL_BYTES: u64 = 96 << 10;

/// The most programs kept, and as many plans.
const MAX_PREPARED: usize = 1024;
/// The most memory that programs take, roughly.
const MAX_PREPARED_BYTES: u64 = 64 << 20;
/// One that takes more is made each time, lest it push out many others.
const MAX_PROGRAM_BYTES: u64 = 4 << 20;
/// What a program takes, and what an index of a list adds to it.
const PROGRAM_BYTES: u64 = 8 << 10;
const INDEX_BYTES: u64 = 32;

/// A plan with its program, for every pair of instances that look like these.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) src: Arc<View>,
    pub(crate) dst: Arc<View>,
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

    /// The memory that it takes, roughly: what grows are the lists of indices.
    fn bytes(&self) -> u64 {
        let spans = [&self.src, &self.dst].into_iter().flat_map(|view| view.selection.spans());
        let indices = spans.map(|span| match span {
            Span::Range { .. } => 0,
            Span::List(list) => list.len() as u64,
        });
        PROGRAM_BYTES + INDEX_BYTES * indices.sum::<u64>()
    }
}

/// What has been made for copies: a program for those of the very same boxes, and before that a
/// plan for all whose boxes look alike, wherever they lie.
#[derive(Debug)]
pub(crate) struct Plans {
    programs: Mutex<Programs>,
    plans: Mutex<PlanCache>,
    /// How many copies found their plan here, and for how many one was made.
    found: AtomicU64,
    made: AtomicU64,
}

/// A bounded table of programs; the least recently used ones make room.
///
/// Invariant: `bytes` is the sum over `entries`, at most [`MAX_PREPARED_BYTES`].
#[derive(Debug, Default)]
struct Programs {
    entries: HashMap<u64, Entry, foldhash::fast::FixedState>,
    bytes: u64,
    /// Counts uses, to know the oldest.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    prepared: Arc<Prepared>,
    bytes: u64,
    used: u64,
}

impl Plans {
    pub(crate) fn new() -> Self {
        let plans = Mutex::new(PlanCache::new(MAX_PREPARED));
        Plans { programs: Mutex::default(), plans, found: 0.into(), made: 0.into() }
    }

    /// How many copies found their plan here, and for how many one was made.
    pub(crate) fn uses(&self) -> (u64, u64) {
        (self.found.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed))
    }

    fn count(&self, was_found: bool) {
        let counted = if was_found { &self.found } else { &self.made };
        counted.fetch_add(1, Ordering::Relaxed);
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan that was kept, or a new one. Others that look for one wait meanwhile: it may be
    /// theirs.
    fn plan(
        &self,
        topology: &Topology,
        query: &Query<'_>,
        options: &Options,
    ) -> Result<Cached, PlanError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.plan(topology, query, options)
    }
}

impl Programs {
    fn get(&mut self, key: u64) -> Option<Arc<Prepared>> {
        self.uses += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.used = self.uses;
        Some(Arc::clone(&entry.prepared))
    }

    fn put(&mut self, key: u64, prepared: &Arc<Prepared>, bytes: u64) {
        if bytes > MAX_PROGRAM_BYTES {
            return;
        }
        self.remove(key);
        while self.entries.len() >= MAX_PREPARED || self.bytes + bytes > MAX_PREPARED_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some((&oldest, _)) = oldest else { break };
            self.remove(oldest);
        }
        self.bytes += bytes;
        let entry = Entry { prepared: Arc::clone(prepared), bytes, used: self.uses };
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: u64) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.bytes;
        }
    }
}

/// The plan and program from a box like `src` to a box like `dst`, and whether the plan was there.
pub(crate) fn prepare(
    shared: &Shared,
    src: &Arc<View>,
    dst: &Arc<View>,
    options: &Options,
) -> Result<(Arc<Prepared>, bool), Error> {
    let generation = shared.generation();
    let key = src.hash ^ dst.hash.rotate_left(23) ^ hash_of(options).rotate_left(47);
    let found = shared.plans.programs().get(key);
    if let Some(found) = found.filter(|p| p.generation == generation && p.is_for(src, dst, options))
    {
        shared.plans.count(true);
        return Ok((found, true));
    }
    let (prepared, cached) = make(shared, src, dst, options)?;
    shared.plans.count(cached);
    let prepared = Arc::new(prepared);
    shared.plans.programs().put(key, &prepared, prepared.bytes());
    Ok((prepared, cached))
}

fn hash_of(options: &Options) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::with_seed(1).hash_one(options)
}

fn make(
    shared: &Shared,
    src: &Arc<View>,
    dst: &Arc<View>,
    options: &Options,
) -> Result<(Prepared, bool), Error> {
    let matched = matched(src, dst)?;
    let topology = shared.topology();
    let started = Instant::now();
    let Cached { plan, hit } = plan_of((shared, &topology), (src, dst), &matched, options)?;
    let plan_time = started.elapsed();
    let is_ours = plan.memories.iter().all(|memory| memory.node == shared.here());
    let small = if is_ours { small_of(&plan, &matched)? } else { None };
    let program = Program::compile(&plan, matched.src, matched.dst)?;
    if !is_ours {
        wire::check(&program).map_err(|error| Error::Untellable(Arc::new(error)))?;
    }
    let prepared = Prepared {
        src: Arc::clone(src),
        dst: Arc::clone(dst),
        options: *options,
        generation: topology.generation,
        plan,
        program: Arc::new(program),
        small,
        plan_time,
    };
    Ok((prepared, hit))
}

fn plan_of(
    (shared, topology): (&Shared, &Topology),
    (src, dst): (&View, &View),
    matched: &Matched,
    options: &Options,
) -> Result<Cached, Error> {
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
    let query = Query { src: from, dst: to, extents, field_bytes, load: Load::IDLE };
    shared.plans.plan(topology, &query, options).map_err(|error| {
        let name = |memory| format!("`{}`", topology.short_name(memory));
        let lost = [src, dst].into_iter().find_map(|end| shared.why_lost(end.memory));
        let told = match lost {
            None => error.told(name),
            Some(why) => {
                format!("no path from {} to {}: {why}", name(src.memory), name(dst.memory))
            }
        };
        Error::Plan { error, told }
    })
}

/// The copies of a direct plan on this node that is cheaper than a thread's wake-up.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, Instance, Machine};

    fn machine() -> Machine {
        Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap()
    }

    fn prepared(machine: &Machine, src: &Instance, dst: &Instance) -> (Arc<Prepared>, bool) {
        prepare(&machine.shared, &src.view, &dst.view, &Options::default()).unwrap()
    }

    fn rows(machine: &Machine) -> [Instance; 2] {
        let array = Array::of(&[("y", 4096), ("x", 16)], "|u1").unwrap();
        [(); 2].map(|()| machine.empty(array.clone(), "sys").unwrap())
    }

    #[test]
    fn boxes_that_look_alike_share_a_plan() {
        let machine = machine();
        let [src, dst] = rows(&machine);
        let part = |array: &Instance, at: i64, rows| array.select(&[("y", at..at + rows)]).unwrap();
        let (first, cached) = prepared(&machine, &part(&src, 0, 8), &part(&dst, 8, 8));
        assert!(!cached);
        let (second, cached) = prepared(&machine, &part(&src, 80, 8), &part(&dst, 0, 8));
        assert!(cached && Arc::ptr_eq(&first.plan, &second.plan));
        assert!(!Arc::ptr_eq(&first.program, &second.program));
        assert!(!prepared(&machine, &part(&src, 0, 9), &part(&dst, 8, 9)).1, "larger ones");
        let [first, second] = [[9, 2, 5], [7, 0, 1]].map(|pages| src.take("y", &pages).unwrap());
        assert!(!prepared(&machine, &first, &part(&dst, 0, 3)).1);
        assert!(prepared(&machine, &second, &part(&dst, 0, 3)).1, "other pages");
    }

    #[test]
    fn what_is_used_is_kept_and_what_is_large_makes_room() {
        let machine = machine();
        let [src, dst] = rows(&machine);
        let (one, _) = prepared(&machine, &src, &dst);
        let mut programs = Programs::default();
        for key in 0..3000 {
            programs.put(key, &one, PROGRAM_BYTES);
            assert!(programs.get(0).is_some(), "in use, with {key} others");
        }
        assert_eq!(programs.entries.len(), MAX_PREPARED);
        for key in 5000..5100 {
            programs.put(key, &one, MAX_PROGRAM_BYTES);
            assert!(programs.get(0).is_some() && programs.bytes <= MAX_PREPARED_BYTES);
        }
        assert_eq!(programs.bytes, programs.entries.values().map(|e| e.bytes).sum::<u64>());
        programs.put(0, &one, PROGRAM_BYTES);
        programs.put(1, &one, MAX_PROGRAM_BYTES + 1);
        assert!(programs.get(0).is_some() && programs.get(1).is_none(), "too large to be kept");
    }

    #[test]
    fn a_program_is_as_large_as_its_lists() {
        let machine = machine();
        let [src, dst] = rows(&machine);
        let all: Vec<i64> = (0..4096).rev().collect();
        let (program, _) = prepared(&machine, &src.take("y", &all).unwrap(), &dst);
        assert!(program.bytes() > 4096 * 24, "{}", program.bytes());
        assert!(prepared(&machine, &src, &dst).0.bytes() < 16 << 10);
    }
}
