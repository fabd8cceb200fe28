//! What machines, instances and events share.

use super::Urgency;
use super::core::{Caller, Core, Pending, dependency_failed};
use super::fences::Fences;
use super::tally::Tally;
use crate::accelerators::{Devices, Providers};
use crate::builder::Settings;
use crate::disks::Disks;
use crate::event::{self, Calls, Event, State};
use crate::instance::Holding;
use crate::nodes::{Change, Nodes};
use crate::prepare::{Plans, Prepared};
use crate::report::CopyReport;
use crate::wake;
use crate::{ArgumentError, Error};
use channel::{Bell, DoneQueue, Provider, Regions};
use engine::{Commit, Dependency, Packet, SubmitError, Transfer};
use model::{
    FenceId, MemoryId, NodeClass, NodeId, Outcome, Place, Plan, Priority, Time, Topology,
    TransferId,
};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How long who waits for a copy looks, once, for the ends of what a device moves before he sleeps. To be woken may
/// take 100 us, a tenth of what 64 MiB take.
const LOOK: Duration = Duration::from_millis(2);

/// Between two looks.
const PAUSES: u32 = 32;

/// Time since a machine was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Everything that outlives a machine's handle for as long as an instance or event uses it.
pub(crate) struct Shared {
    pub(crate) regions: Arc<Regions>,
    pub(crate) disks: Disks,
    /// Tokens of [`Event::notify`].
    pub(crate) finished: DoneQueue<u64>,
    pub(crate) plans: Plans,
    pub(crate) urgency: Urgency,
    pub(crate) clock: Clock,
    topology: RwLock<Arc<Topology>>,
    core: Arc<Mutex<Core>>,
    notes: Notes,
    /// The others, where this machine is a node among several.
    pub(crate) nodes: Option<Arc<Nodes>>,
    /// Wakes the driver.
    pub(crate) bell: Arc<Bell>,
    life: Life,
}

/// What is to be remembered beside the engine.
struct Notes {
    /// Transfers that have been told of, to be forgotten by the engine.
    told: Mutex<Vec<TransferId>>,
    /// Files that were created and may not have been committed.
    created: Mutex<Vec<Weak<Holding>>>,
    fences: Fences,
    /// Counts the changes to the set of channels.
    changes: AtomicU64,
    /// Held by who changes what this node is.
    changing: Mutex<()>,
    /// Who makes regions of memories that are not plain host memory.
    providers: Providers,
    devices: Devices,
    tally: Tally,
}

impl Notes {
    fn new(bell: &Arc<Bell>, providers: Providers, devices: Devices) -> Self {
        Notes {
            told: Mutex::default(),
            created: Mutex::default(),
            fences: Fences::new(bell),
            changes: AtomicU64::new(0),
            changing: Mutex::default(),
            providers,
            devices,
            tally: Tally::default(),
        }
    }
}

/// Whether a machine may be used, by whom, and whether it keeps a trace.
struct Life {
    closed: AtomicBool,
    /// How many tell what the engine has brought.
    telling: AtomicUsize,
    /// What [`wake::forks`] said when it was opened.
    forks: u32,
    traces: bool,
}

impl Life {
    fn new(traces: bool) -> Self {
        let (closed, telling) = Default::default();
        Life { closed, telling, forks: wake::forks(), traces }
    }
}

/// A copy that is to run.
pub(crate) struct Submission {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) src: (Arc<Holding>, Place),
    pub(crate) dst: (Arc<Holding>, Place),
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Duration>,
    pub(crate) after: Vec<Event>,
    /// Transfers of the same event that must have ended well before; where there are any, nothing of
    /// that may have failed.
    pub(crate) behind: Option<Vec<TransferId>>,
    pub(crate) commit: Option<Commit>,
}

impl Shared {
    pub(crate) fn new(
        core: Core,
        (topology, nodes): (Topology, Option<Arc<Nodes>>),
        (regions, disks, (providers, devices)): (Regions, Disks, (Providers, Devices)),
        clock: Clock,
    ) -> std::io::Result<Self> {
        wake::watch_forks();
        let (traces, bell) = (core.recorder.is_some(), Arc::new(Bell::new()?));
        Ok(Shared {
            regions: Arc::new(regions),
            disks,
            finished: DoneQueue::new(Arc::new(Bell::new()?)),
            plans: Plans::new(),
            urgency: Urgency::new(),
            clock,
            topology: RwLock::new(Arc::new(topology)),
            core: Arc::new(Mutex::new(core)),
            notes: Notes::new(&bell, providers, devices),
            nodes,
            bell,
            life: Life::new(traces),
        })
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the topology, unless it is an older one.
    pub(crate) fn set_topology(&self, topology: Topology) {
        let mut current = self.topology.write().unwrap_or_else(PoisonError::into_inner);
        if topology.generation > current.generation {
            *current = Arc::new(topology);
        }
    }

    /// This node: its memories and channels.
    pub(crate) fn class(&self) -> NodeClass {
        let topology = self.topology();
        let here = topology.class_of(self.here()).map_or(0, |(class, _)| class);
        NodeClass { count: 1, ..topology.classes[here].clone() }
    }

    /// This node, for who is to change it and call [`Shared::set_class`]: until the guard is dropped
    /// nobody else changes it.
    pub(crate) fn class_to_change(&self) -> (MutexGuard<'_, ()>, NodeClass) {
        let guard = self.notes.changing.lock().unwrap_or_else(PoisonError::into_inner);
        (guard, self.class())
    }

    /// Has this node be another, and others hear of it.
    pub(crate) fn set_class(&self, class: NodeClass) {
        self.change(class, Change::default());
    }

    /// As [`Shared::set_class`], with what else `change` says.
    pub(crate) fn change(&self, class: NodeClass, change: Change) {
        match &self.nodes {
            Some(nodes) => {
                let (lost, apart) = (self.devices().lost(), self.devices().apart());
                let changed = Change { class: Some(class), lost, apart, ..change };
                if let Some(topology) = nodes.become_another(changed) {
                    self.set_topology(topology);
                }
            }
            None => {
                let mut topology = (*self.topology()).clone();
                topology.generation += 1;
                topology.classes[0] = class;
                self.set_topology(topology);
            }
        }
    }

    /// Which node this is.
    pub(crate) fn here(&self) -> NodeId {
        self.nodes.as_ref().map_or(NodeId(0), |nodes| nodes.here())
    }

    /// The topology's generation.
    pub(crate) fn generation(&self) -> u64 {
        self.topology.read().unwrap_or_else(PoisonError::into_inner).generation
    }

    /// Writes a copy that ran on its caller's thread into the trace.
    pub(crate) fn note_direct(
        &self,
        prepared: &Prepared,
        priority: Priority,
        (from, to): (Time, Time),
    ) {
        if self.life.traces
            && let Some(recorder) = &mut self.core().recorder
        {
            recorder.direct(prepared, priority, (from, to));
        }
    }

    /// What became of copies.
    pub(crate) fn tally(&self) -> &Tally {
        &self.notes.tally
    }

    /// Whether copies may be submitted.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.life.forks != wake::forks() {
            return Err(Error::Forked);
        }
        if self.life.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Whether the lock may be taken: in the child of a fork nobody may be there to give it back.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.life.forks == wake::forks()
    }

    /// Remembers a created file.
    pub(crate) fn note_created(&self, holding: &Arc<Holding>) {
        let mut created = self.notes.created.lock().unwrap_or_else(PoisonError::into_inner);
        created.retain(|file| file.strong_count() > 0);
        created.push(Arc::downgrade(holding));
    }

    /// Deletes the created files that were not committed.
    pub(crate) fn discard_created(&self) {
        let created =
            std::mem::take(&mut *self.notes.created.lock().unwrap_or_else(PoisonError::into_inner));
        created.iter().filter_map(Weak::upgrade).for_each(|file| crate::file::discard(&file));
    }

    /// Has the driver look at the channels that there are now.
    pub(crate) fn channels_changed(&self) {
        self.notes.changes.fetch_add(1, Ordering::Release);
        self.bell.ring();
    }

    /// How often the set of channels has changed.
    pub(crate) fn channel_changes(&self) -> u64 {
        self.notes.changes.load(Ordering::Acquire)
    }

    /// Refuses copies from now on, of other nodes as well.
    pub(crate) fn close(&self) {
        self.life.closed.store(true, Ordering::SeqCst);
        let (mut core, now) = self.core_now();
        core.leave(now);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.life.closed.load(Ordering::SeqCst)
    }

    pub(super) fn telling(&self) -> &AtomicUsize {
        &self.life.telling
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic under the lock is a bug of ours; going on shows it where it can be seen.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core and the time, which is read under the lock: for the engine it never runs
    /// backwards.
    pub(super) fn core_now(&self) -> (MutexGuard<'_, Core>, Time) {
        let core = self.core();
        let now = self.clock.now();
        (core, now)
    }

    /// Starts a copy as a part of the event `state`; what its transfer is called, if it has begun.
    pub(crate) fn submit(
        self: &Arc<Self>,
        state: &Arc<State>,
        submission: Submission,
    ) -> Result<Option<TransferId>, Error> {
        let plan = Arc::clone(&submission.prepared.plan);
        let (mut core, now) = self.core_now();
        // Again under the lock: the driver goes once it is closed and nothing is pending.
        self.check_open()?;
        // Under the lock, so that nothing that is still to be waited for is forgotten meanwhile.
        let mut awaited = Vec::new();
        let behind = still_running(state, submission.behind.as_deref());
        let after = self.dependencies(&submission.after, &mut awaited);
        let after = match behind.and_then(|behind| Ok([after?, behind].concat())) {
            Ok(after) => after,
            Err(why) => {
                drop(core);
                let error = dependency_failed(plan.memories[0], &why);
                let report = CopyReport::of_none(&plan, error.clone());
                self.tally().submitted();
                self.tally().ended(&Outcome::Failed(error.clone()), 0);
                let calls = state.finish(None, Err(self.failed(error)), report);
                calls.into_iter().for_each(Calls::call);
                return Ok(None);
            }
        };
        let transfer = Transfer {
            after,
            deadline: submission.deadline.map(|d| now + d),
            priority: submission.priority,
            commit: submission.commit,
            ..Transfer::new(
                Arc::clone(&submission.prepared.program),
                submission.src.1,
                submission.dst.1,
            )
        };
        let pending = Pending {
            state: Arc::clone(state),
            prepared: submission.prepared,
            priority: submission.priority,
            holdings: [submission.src.0, submission.dst.0],
        };
        let taken = core.submit(now, transfer, pending, &self.urgency);
        let id = taken.map_err(|error| self.refused(error))?;
        self.tally().submitted();
        drop(core);
        // Without the lock: an event that has ended meanwhile calls back at once.
        awaited.into_iter().for_each(|(fence, event)| self.reach_with(fence, &event));
        self.step(Caller::Any);
        Ok(Some(id))
    }

    /// What a transfer waits for: transfers of this machine, and fences that events of others and of streams,
    /// added to `awaited`, are to reach.
    fn dependencies(
        self: &Arc<Self>,
        after: &[Event],
        awaited: &mut Vec<(FenceId, Event)>,
    ) -> Result<Vec<Dependency>, Error> {
        let mut all = Vec::new();
        for event in after {
            let state = &event.state;
            if Arc::ptr_eq(&state.shared, self) && !state.is_fence() {
                all.extend(state.unfinished()?.into_iter().map(Dependency::Transfer));
            } else if let Some(outcome) = event.outcome() {
                outcome?;
            } else {
                let fence = self.notes.fences.number();
                awaited.push((fence, event.clone()));
                all.push(Dependency::Fence(fence));
            }
        }
        Ok(all)
    }

    /// Has `event`, of another machine or a stream, reach `fence` when it ends. What follows is left to
    /// this machine's driver: on the thread that ends the event, a chain of copies over two machines
    /// would go a stack deep.
    fn reach_with(self: &Arc<Self>, fence: FenceId, event: &Event) {
        let shared = Arc::clone(self);
        event.on_done(move |outcome| {
            let (mut core, now) = shared.core_now();
            core.handle_fence(now, fence, outcome.as_ref().copied());
            drop(core);
            shared.bell.ring();
        });
    }

    /// Looks after channels that tell late for as long as they have something to tell and `goes_on`, at most for
    /// [`LOOK`]. Returns whether they had. Who is called back has the driver look.
    pub(crate) fn look_while(&self, goes_on: impl Fn() -> bool) -> bool {
        let (started, mut looked) = (Instant::now(), false);
        while goes_on()
            && !event::is_calling_back()
            && !self.is_closed()
            && started.elapsed() < LOOK
        {
            // Whoever has the lock looks already.
            if let Ok(core) = self.core.try_lock() {
                if !core.may_see_ends() {
                    break;
                }
                drop(core);
                self.step(Caller::Any);
                looked = true;
            }
            // Others are to have it too.
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        looked
    }

    /// Hears what other nodes' engines say, and then that some nodes are gone.
    pub(crate) fn hear_peers(&self, packets: Vec<Packet>, lost: &[NodeId]) {
        let (mut core, now) = self.core_now();
        core.hear_peers(now, packets, lost);
        drop(core);
        self.step(Caller::Any);
    }

    pub(crate) fn cancel(&self, transfers: &[TransferId]) {
        let (mut core, now) = self.core_now();
        core.cancel(now, transfers);
        drop(core);
        self.step(Caller::Any);
    }

    pub(crate) fn cancel_all(&self) {
        let (mut core, now) = self.core_now();
        core.cancel_all(now);
        drop(core);
        self.step(Caller::Any);
    }

    /// Payload that these transfers have written so far.
    pub(crate) fn progress_of(&self, transfers: &[TransferId]) -> u64 {
        if transfers.is_empty() || !self.is_of_this_process() {
            return 0;
        }
        let core = self.core();
        transfers.iter().filter_map(|&id| core.engine().progress(id)).map(|p| p.0).sum()
    }

    pub(crate) fn reports_of(&self, transfers: &[(TransferId, Arc<Plan>)]) -> Vec<CopyReport> {
        if transfers.is_empty() || !self.is_of_this_process() {
            return Vec::new();
        }
        let core = self.core();
        let report = |(id, plan): &(TransferId, Arc<Plan>)| {
            let times = core.engine().report(*id)?;
            Some(CopyReport { transfer: Some(*id), plan: Arc::clone(plan), outcome: None, times })
        };
        transfers.iter().filter_map(report).collect()
    }

    /// What it did, where it keeps a trace.
    pub(crate) fn trace_json(&self) -> Option<Value> {
        if !self.life.traces || !self.is_of_this_process() {
            return None;
        }
        let topology = self.topology();
        self.core().recorder.as_ref().map(|recorder| recorder.to_json(&topology, self.here()))
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Vec<TransferId>> {
        self.notes.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed(&self, error: model::TransferError) -> Error {
        Error::Transfer { memory: self.memory_name(error.memory), error }
    }

    fn refused(&self, error: SubmitError) -> Error {
        if error == SubmitError::Full {
            return Error::Busy;
        }
        let told = error.told(|memory| format!("`{}`", self.memory_name(memory)));
        Error::Refused { error, told }
    }

    /// Who makes regions of `memory`, where it is a device's or near to one.
    pub(crate) fn provider(&self, memory: MemoryId) -> Option<&dyn Provider> {
        self.notes.providers.get(&memory).map(|provider| &**provider)
    }

    pub(super) fn fences(&self) -> &Fences {
        &self.notes.fences
    }

    /// What it was set up with.
    pub(crate) fn settings(&self) -> &Settings {
        self.disks.settings()
    }

    /// The accelerators of this machine.
    pub(crate) fn devices(&self) -> &Devices {
        &self.notes.devices
    }

    pub(crate) fn memory_name(&self, id: MemoryId) -> String {
        self.topology().short_name(id)
    }

    /// The memory called `name`, of this node where it names none.
    pub(crate) fn memory_named(&self, name: &str) -> Result<MemoryId, Error> {
        let topology = self.topology();
        let class = self.class();
        let there = || class.memories.iter().map(|m| m.name.clone()).collect();
        let unknown = || ArgumentError::NoMemory { name: name.to_owned(), there: there() };
        let index = class.memories.iter().position(|memory| memory.name == name);
        let here = index.and_then(|index| u16::try_from(index).ok());
        let here = here.map(|index| MemoryId { node: self.here(), index });
        Ok(here.or_else(|| topology.memory_named(name)).ok_or_else(unknown)?)
    }
}

/// Those of an event's transfers that have not ended.
///
/// # Errors
/// A failure of any of the event's.
fn still_running(
    state: &State,
    transfers: Option<&[TransferId]>,
) -> Result<Vec<Dependency>, Error> {
    let Some(transfers) = transfers else { return Ok(Vec::new()) };
    let running = state.unfinished()?;
    let left = running.into_iter().filter(|id| transfers.contains(id));
    Ok(left.map(Dependency::Transfer).collect())
}

impl Drop for Shared {
    /// In the child of a fork the channels would wait for threads that are not there.
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(Arc::clone(&self.core));
        }
    }
}
