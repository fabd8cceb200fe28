//! What the runtime's lock holds.

use super::Urgency;
use super::urgency::Census;
use crate::event::State;
use crate::instance::Holding;
use crate::nodes::{self, Nodes};
use crate::prepare::Prepared;
use crate::trace::Recorder;
use channel::{Channel, Job, Region, Regions};
use engine::{
    ChannelConfig, Engine, EngineConfig, Packet, PoolConfig, Report, SubmitError, Transfer,
};
use model::{
    ChannelError, ChannelErrorKind, ChannelId, Completion, MemoryId, NodeId, Outcome, Priority,
    RegionId, Request, Time, TransferId, Work,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// So often a step goes round at most before it tells of what has ended: who is told waits for no more than
/// the channels hold so many times, however many copies go on.
const MOST_ROUNDS: usize = 16;

/// What a transfer needs kept until its end, and who is told of it.
pub(crate) struct Pending {
    pub(crate) state: Arc<State>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) priority: Priority,
    /// The instances: source and destination.
    pub(crate) holdings: [Arc<Holding>; 2],
}

/// A transfer that has ended. To be told and dropped after the lock is given back.
pub(crate) struct Ended {
    pub(crate) transfer: TransferId,
    pub(crate) pending: Pending,
    pub(crate) outcome: Outcome,
    pub(crate) report: Report,
}

/// What a step of the engine has brought, for when the lock is given back.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) ended: Vec<Ended>,
    /// What other nodes are to hear.
    pub(crate) packets: Vec<Packet>,
    /// Whether a request has failed, after which a device may be lost.
    pub(crate) has_failure: bool,
    /// Whether there may be more to handle at once.
    pub(crate) has_more: bool,
}

/// Where the regions of a request are found: this machine's, and those of other nodes.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) nodes: Option<&'a Nodes>,
}

/// Who calls. Some channels serve the driver's thread only: io_uring cancels what a thread has
/// begun when that thread ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Any thread, which looks after the channels that let it.
    Any,
    /// The driver, which looks after all.
    Driver,
}

/// A channel that is to be driven, and whether only the driver's thread may call it.
pub(crate) struct NewChannel {
    pub(crate) config: ChannelConfig,
    pub(crate) channel: Box<dyn Channel>,
    pub(crate) pinned: bool,
}

struct Driven {
    id: ChannelId,
    /// Whether only the driver may call it.
    pinned: bool,
    channel: Box<dyn Channel>,
    /// What the driver sleeps on, which may outlast the lock.
    wake: Option<Arc<OwnedFd>>,
    /// Given out by the engine and not yet taken by the channel, in order.
    waiting: VecDeque<Job>,
    /// How many it has taken that have not ended.
    flying: usize,
    /// Whether it tells late of what has ended.
    tells_late: bool,
}

impl Driven {
    fn new(NewChannel { config, channel, pinned }: NewChannel) -> io::Result<Self> {
        let wake = channel.wake_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        let (wake, waiting) = (wake.map(Arc::new), VecDeque::new());
        let tells_late = channel.capabilities().tells_late;
        Ok(Driven { id: config.id, pinned, channel, wake, waiting, flying: 0, tells_late })
    }

    fn serves(&self, caller: Caller) -> bool {
        caller == Caller::Driver || !self.pinned
    }

    /// Whether `caller` asks it what has ended: the driver, whom it may have woken for nothing too, and others
    /// where something may have.
    fn may_tell(&self, caller: Caller) -> bool {
        caller == Caller::Driver || !self.pinned && self.flying > 0
    }
}

/// The engine, its channels and what is pending.
pub(crate) struct Core {
    engine: Engine,
    channels: Vec<Driven>,
    pending: HashMap<TransferId, Pending>,
    census: Census,
    completions: Vec<Completion>,
    /// When the driver looks at the clock again.
    alarm: Option<Time>,
    /// Peers that were given up and may still write what they began before a session.
    cut_off: HashMap<NodeId, u64>,
    /// Whether a request has failed, and nobody has heard.
    has_failure: bool,
    pub(crate) recorder: Option<Recorder>,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, recorder: Option<Recorder>) -> Self {
        Core {
            engine: Engine::new(config),
            channels: Vec::new(),
            pending: HashMap::new(),
            census: Census::default(),
            completions: Vec::new(),
            alarm: None,
            cut_off: HashMap::new(),
            has_failure: false,
            recorder,
        }
    }

    /// Drives `channels` from now on, all of them or none, each with as many requests at once as
    /// it takes.
    ///
    /// # Errors
    /// Where the process has no descriptors left to watch them with.
    pub(crate) fn add_channels(
        &mut self,
        channels: impl IntoIterator<Item = NewChannel>,
    ) -> io::Result<()> {
        let watched = |new: NewChannel| Ok((new.config.clone(), Driven::new(new)?));
        let new = channels.into_iter().map(watched).collect::<io::Result<Vec<_>>>()?;
        for (config, driven) in new {
            let max_in_flight = driven.channel.capabilities().max_in_flight.max(1);
            self.engine.add_channel(&ChannelConfig { max_in_flight, ..config });
            self.channels.push(driven);
        }
        Ok(())
    }

    /// Gives out staging of one more memory, behind all that have any.
    pub(crate) fn add_pool(&mut self, pool: PoolConfig) {
        if let Some(recorder) = &mut self.recorder {
            recorder.follow(pool.memory);
        }
        self.engine.add_pool(pool);
    }

    /// What the driver sleeps on: one for each channel that has one.
    pub(crate) fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.channels.iter().filter_map(|c| c.wake.clone()).collect()
    }

    pub(crate) fn submit(
        &mut self,
        now: Time,
        transfer: Transfer,
        pending: Pending,
        urgency: &Urgency,
    ) -> Result<TransferId, SubmitError> {
        let id = self.engine.submit(now, transfer)?;
        self.census.add(pending.priority, urgency);
        pending.state.add(id, &pending.prepared.plan);
        if let Some(recorder) = &mut self.recorder {
            recorder.submitted(now, id, &pending.prepared, pending.priority);
        }
        self.pending.insert(id, pending);
        Ok(id)
    }

    pub(crate) fn cancel(&mut self, now: Time, transfers: &[TransferId]) {
        for &id in transfers {
            self.engine.cancel(now, id);
        }
    }

    /// Takes nothing more of other nodes.
    pub(crate) fn leave(&mut self, now: Time) {
        self.engine.leave(now, false);
    }

    pub(crate) fn cancel_all(&mut self, now: Time) {
        self.engine.leave(now, true);
        let all: Vec<_> = self.pending.keys().copied().collect();
        self.cancel(now, &all);
    }

    pub(crate) fn handle_fence(
        &mut self,
        now: Time,
        fence: model::FenceId,
        outcome: Result<(), &crate::Error>,
    ) {
        let failed = |why| ChannelError::new(ChannelErrorKind::Dependency, format!("{why}"));
        self.engine.handle_fence(now, fence, outcome.map_err(failed));
    }

    pub(crate) fn forget(&mut self, transfers: impl Iterator<Item = TransferId>) {
        transfers.for_each(|id| self.engine.forget(id));
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether the driver has something to do that does not ring: jobs for its own channels.
    pub(crate) fn needs_driver(&self) -> bool {
        self.channels.iter().any(|c| c.pinned && !c.waiting.is_empty())
    }

    /// Whether the driver sleeps longer than until `due`, unless somebody rings; it is `caller`, or is
    /// to hear of it now.
    pub(crate) fn oversleeps(&mut self, caller: Caller, due: Option<Time>) -> bool {
        let is_sooner = due.is_some_and(|due| self.alarm.is_none_or(|alarm| due < alarm));
        if is_sooner || caller == Caller::Driver {
            self.alarm = due;
        }
        is_sooner
    }

    /// Whether who waits may see an end before the driver hears of it.
    pub(crate) fn may_see_ends(&self) -> bool {
        self.channels.iter().any(|c| c.tells_late && c.flying > 0)
    }

    /// Whether nothing is pending, here or for another node.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.engine.is_idle()
    }

    /// Hears what other nodes say, and then that some are gone.
    pub(crate) fn hear_peers(&mut self, now: Time, packets: Vec<Packet>, lost: &[NodeId]) {
        packets.into_iter().for_each(|packet| self.engine.handle_peer(now, packet));
        lost.iter().for_each(|&node| self.engine.handle_lost(now, node));
    }

    /// Takes what the channels have completed, gives them what the engine gives out, until
    /// neither has more, or [`MOST_ROUNDS`] times, and returns what that has brought.
    pub(crate) fn pump(
        &mut self,
        (now, caller): (Time, Caller),
        reach: Reach<'_>,
        urgency: &Urgency,
    ) -> Outcomes {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        let (mut moved, mut rounds) = (true, 0);
        while moved && rounds < MOST_ROUNDS {
            rounds += 1;
            moved = self.take_completions(now, caller);
            while let Some(request) = self.engine.poll_request() {
                moved = true;
                self.start(now, request, reach);
            }
            // What is handed over may end at once.
            moved |= self.feed(caller);
            moved |= self.mind_lost(now, reach.nodes);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.staging(now, &self.engine);
        }
        let packets = std::iter::from_fn(|| self.engine.poll_peer()).collect();
        let has_failure = std::mem::take(&mut self.has_failure);
        let ended = self.take_events(now, urgency);
        Outcomes { ended, packets, has_failure, has_more: moved }
    }

    /// Sees to it that peers that were given up write nothing any more: those that are gone don't,
    /// and what the others may still write is kept from others. Returns whether any has gone.
    fn mind_lost(&mut self, now: Time, nodes: Option<&Nodes>) -> bool {
        while let Some((node, floor)) = self.engine.poll_disconnect() {
            let latest = self.cut_off.entry(node).or_default();
            *latest = floor.max(*latest);
        }
        let Some(nodes) = nodes else { return false };
        let is_gone = |&node: &NodeId, _: &mut u64| nodes.fabric.is_gone(node);
        let gone: Vec<_> = self.cut_off.extract_if(is_gone).collect();
        gone.iter().for_each(|&(node, floor)| self.engine.handle_disconnected(now, node, floor));
        !gone.is_empty()
    }

    fn take_completions(&mut self, now: Time, caller: Caller) -> bool {
        for driven in self.channels.iter_mut().filter(|c| c.may_tell(caller)) {
            let before = self.completions.len();
            driven.channel.poll(&mut self.completions);
            driven.flying -= self.completions.len() - before;
        }
        let any = !self.completions.is_empty();
        for completion in self.completions.drain(..) {
            self.has_failure |= completion.result.is_err();
            if let Some(recorder) = &mut self.recorder {
                recorder.completed(now, completion.request);
            }
            self.engine.handle_completion(now, completion);
        }
        any
    }

    fn start(&mut self, now: Time, request: Request, reach: Reach<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.started(now, &request);
        }
        let job = self.job_of(&request, reach);
        let driven = self.channels.iter_mut().find(|c| c.id == request.channel);
        match (job, driven) {
            (Ok(job), Some(driven)) => driven.waiting.push_back(job),
            (job, _) => {
                let error = job.err().unwrap_or_else(no_region);
                self.completions.push(Completion { request: request.id, result: Err(error) });
            }
        }
    }

    fn job_of(&self, request: &Request, reach: Reach<'_>) -> Result<Job, ChannelError> {
        let asker = self.engine.ask_id(request.transfer).map(|ask| ask.asker);
        let others = reach.nodes.filter(|nodes| asker.is_some_and(|asker| asker != nodes.here()));
        let ours = |id: RegionId, is_written: bool| {
            if others.is_some_and(|nodes| !nodes.is_open(id, is_written)) {
                return Err(nodes::not_open());
            }
            reach.regions.get(id).ok_or_else(no_region)
        };
        let (src, dst) = match &request.work {
            Work::Copy(copy) => {
                let written = |id| ours(id, true);
                let dst = self.destination(request, copy.dst.region, reach, written)?;
                (ours(copy.src.region, false)?, dst)
            }
            Work::Commit { region, .. } | Work::Abort { region } => {
                (ours(*region, true)?, ours(*region, true)?)
            }
        };
        Ok(Job { request: request.id, work: request.work.clone(), src, dst })
    }

    /// The region that a copy writes, which may be another node's.
    fn destination(
        &self,
        request: &Request,
        id: RegionId,
        reach: Reach<'_>,
        ours: impl Fn(RegionId) -> Result<Arc<Region>, ChannelError>,
    ) -> Result<Arc<Region>, ChannelError> {
        let ends = self.engine.ends(request);
        match (reach.nodes, ends) {
            (Some(nodes), Some([_, to])) if to.node != nodes.here() => {
                nodes.region_of(to, id).ok_or_else(no_region)
            }
            _ => ours(id),
        }
    }

    /// Hands over jobs until their channels are full. The engine keeps to what they take, so that
    /// none stays but where a channel was told to take fewer. Returns whether any was taken.
    fn feed(&mut self, caller: Caller) -> bool {
        let mut any = false;
        for driven in self.channels.iter_mut().filter(|c| c.serves(caller)) {
            while let Some(job) = driven.waiting.pop_front() {
                if let Err(job) = driven.channel.submit(job) {
                    driven.waiting.push_front(job);
                    break;
                }
                (driven.flying, any) = (driven.flying + 1, true);
            }
        }
        any
    }

    fn take_events(&mut self, now: Time, urgency: &Urgency) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some(event) = self.engine.poll_event() {
            let transfer = event.transfer;
            let Some(report) = self.engine.report(transfer) else { continue };
            let Some(pending) = self.pending.remove(&transfer) else { continue };
            self.census.remove(pending.priority, urgency);
            if let Some(recorder) = &mut self.recorder {
                recorder.ended(now, transfer, &event.outcome);
            }
            ended.push(Ended { transfer, pending, outcome: event.outcome, report });
        }
        ended
    }
}

fn no_region() -> ChannelError {
    let detail = "the region or channel of the request is gone";
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}

/// The failure of a transfer that did not start since what it waited for failed before.
pub(crate) fn dependency_failed(memory: MemoryId, why: &crate::Error) -> model::TransferError {
    let detail = format!("what the copy waited for failed: {why}");
    let cause = ChannelError::new(ChannelErrorKind::Dependency, detail);
    model::TransferError { hop: 0, memory, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::prepare;
    use crate::{Array, Machine};
    use channel::{Capabilities, Channel, Provider};
    use channel_host::{HostProvider, Pages};
    use model::{ChannelId, RequestId};
    use planner::Options;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Ends what it is given whenever it is asked for so many times, and counts how often it is; it tells late
    /// where it is not at once.
    struct Asked {
        requests: VecDeque<RequestId>,
        every: usize,
        count: Arc<AtomicUsize>,
    }

    impl Channel for Asked {
        fn capabilities(&self) -> Capabilities {
            Capabilities { max_in_flight: 2, commits: false, tells_late: self.every > 1 }
        }

        fn submit(&mut self, job: Job) -> Result<(), Job> {
            self.requests.push_back(job.request);
            Ok(())
        }

        fn poll(&mut self, done: &mut Vec<Completion>) {
            if self.count.fetch_add(1, Ordering::Relaxed) % self.every == self.every - 1 {
                let over = self.requests.drain(..);
                done.extend(over.map(|request| Completion { request, result: Ok(()) }));
            }
        }

        fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn drain(&mut self) {}
    }

    #[test]
    fn a_channel_that_tells_late_is_asked_while_it_has_something() {
        let mut core = Core::new(EngineConfig::new(Vec::new(), Vec::new()), None);
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        let channel = Box::new(Asked { requests: VecDeque::new(), every: 2, count });
        let config = ChannelConfig::new(ChannelId { node: NodeId(0), index: 0 }, 1);
        core.add_channels([NewChannel { config, channel, pinned: false }]).unwrap();
        let ask = |core: &mut Core, caller| {
            let _ = core.take_completions(Time(0), caller);
            (core.may_see_ends(), asked.load(Ordering::Relaxed))
        };
        assert_eq!(ask(&mut core, Caller::Any), (false, 0));
        assert_eq!(ask(&mut core, Caller::Driver), (false, 1), "it may have rung for nothing");
        assert_eq!(ask(&mut core, Caller::Driver), (false, 2));
        let provider = HostProvider::new(MemoryId { node: NodeId(0), index: 0 }, Pages::default());
        let region = Arc::new(provider.allocate(8, 8).unwrap());
        let work = Work::Abort { region: RegionId { index: 0, generation: 0 } };
        let (src, dst) = (Arc::clone(&region), region);
        core.channels[0].waiting.push_back(Job { request: RequestId(1), work, src, dst });
        assert!(core.feed(Caller::Any));
        assert_eq!(ask(&mut core, Caller::Any), (true, 3));
        assert_eq!(ask(&mut core, Caller::Any), (false, 4));
        assert_eq!(ask(&mut core, Caller::Any), (false, 4));
    }

    #[test]
    fn what_has_ended_is_told_of_although_others_go_on() {
        let machine = Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
        let (shared, urgency) = (&machine.shared, Urgency::new());
        let array = Array::of(&[("x", 64)], "|u1").unwrap();
        let [src, dst] = [(); 2].map(|()| machine.empty(array.clone(), "sys").unwrap());
        let (prepared, _) = prepare(shared, &src.view, &dst.view, &Options::default()).unwrap();
        let mut core = Core::new(EngineConfig::new(Vec::new(), Vec::new()), None);
        let config = ChannelConfig::new(prepared.plan.hops[0].channel, 1);
        let (requests, count) = Default::default();
        let channel = Box::new(Asked { requests, every: 1, count });
        core.add_channels([NewChannel { config, channel, pinned: false }]).unwrap();
        let mut left = 1000;
        for _ in 0..left {
            let program = Arc::clone(&prepared.program);
            let pending = Pending {
                state: Arc::new(State::new(shared, 1, 64)),
                prepared: Arc::clone(&prepared),
                priority: Priority(0),
                holdings: [&src, &dst].map(|side| Arc::clone(&side.holding)),
            };
            let transfer = Transfer::new(program, src.place(), dst.place());
            core.submit(Time(0), transfer, pending, &urgency).unwrap();
        }
        while left > 0 {
            let reach = Reach { regions: &shared.regions, nodes: None };
            let told = core.pump((Time(0), Caller::Any), reach, &urgency);
            assert!((1..=2 * MOST_ROUNDS).contains(&told.ended.len()), "{}", told.ended.len());
            left -= told.ended.len();
            assert!(told.has_more || left == 0, "{left} wait for nothing");
        }
    }

    #[test]
    fn the_driver_is_woken_once_for_what_is_due_before_it_looks() {
        let mut core = Core::new(EngineConfig::new(Vec::new(), Vec::new()), None);
        let mut oversleeps = |caller, due| core.oversleeps(caller, due);
        assert!(!oversleeps(Caller::Any, None));
        assert!(oversleeps(Caller::Any, Some(Time(9))));
        assert!(!oversleeps(Caller::Any, Some(Time(9))), "it was told");
        assert!(oversleeps(Caller::Any, Some(Time(8))));
        assert!(!oversleeps(Caller::Any, Some(Time(12))), "it wakes before");
        let _ = oversleeps(Caller::Driver, Some(Time(12)));
        assert!(oversleeps(Caller::Any, Some(Time(11))));
        let _ = oversleeps(Caller::Driver, None);
        assert!(oversleeps(Caller::Any, Some(Time(20))), "it looks no more at the clock");
    }
}
