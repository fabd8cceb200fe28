//! The engines of a cluster, one for each node: transfers in, requests out, completions in, ends
//! out.
//!
//! Engines run transfers between nodes by their own protocol (`engine::PeerConfig`); what they say
//! takes the latency of a link, comes once and in order, and nobody dies. **Hazard.** A thousand
//! engines that are asked in turn whether they have something to do; alarms that keep the clock
//! busy when nothing moves. **Structure.** Only engines that something happened to are *awake*,
//! and asked, in the order of nodes. Leases are so long that alarms are few, and each engine has
//! one alarm set, which is moved on only when it rings.

use crate::agenda::Agenda;
use crate::simulate::latency::{Latencies, class_of};
use engine::{AskId, Engine, EngineConfig, Packet, PeerConfig, SubmitError, Transfer};
use model::{Completion, MemoryId, NodeId, Outcome, Request, Time, Topology, TransferId};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

/// A lease, in times that it takes until a message is sent again: a day, unless links are slow.
const LEASE: u32 = 432_000;

/// What the clock brings to engines.
#[derive(Debug)]
pub(crate) enum FleetTick {
    /// What one engine said reaches another.
    Deliver(Box<Packet>),
    /// An engine's alarm.
    Wake(NodeId),
}

/// What engines give out.
#[derive(Debug)]
pub(crate) enum Output {
    /// For a channel.
    Request(Request),
    /// The transfer of this task has ended.
    Ended(usize, Outcome),
}

/// A node with its engine.
#[derive(Debug)]
struct Site {
    engine: Engine,
    /// What was asked of this engine, and for whom.
    tasks: BTreeMap<TransferId, usize>,
    class: usize,
    alarm: Option<Time>,
    pools: Vec<MemoryId>,
}

impl Site {
    fn is_idle(&self) -> bool {
        let used = |memory: &MemoryId| self.engine.staging(*memory).map(|usage| usage.0);
        self.engine.is_idle() && self.pools.iter().all(|pool| used(pool) == Some(0))
    }

    fn peaks(&self) -> impl Iterator<Item = (MemoryId, u64)> {
        let peak = |memory| self.engine.staging_peak(memory).unwrap_or(0);
        self.pools.iter().map(move |&memory| (memory, peak(memory)))
    }
}

/// The engines of a cluster.
#[derive(Debug)]
pub(crate) struct Fleet {
    sites: Vec<Site>,
    /// Those of `sites`, sorted.
    nodes: Vec<NodeId>,
    /// Positions of those to which something happened.
    awake: BTreeSet<usize>,
    latencies: Latencies,
    lease: Duration,
    /// Events of the clock that are the engines' own.
    planned: usize,
    /// What those who follow the run ask for.
    followed: Option<Followed>,
}

/// What is kept where somebody follows the run.
#[derive(Debug, Default)]
struct Followed {
    /// The tasks of transfers between nodes, whose shares have ids of their own.
    asked: BTreeMap<AskId, usize>,
    /// What was told last of the staging of each memory.
    told: BTreeMap<MemoryId, u64>,
    /// Changes that were not told yet.
    staged: Vec<(MemoryId, u64)>,
}

impl Followed {
    /// Notes the staging of a site where it has changed.
    fn look(&mut self, site: &Site) {
        for &memory in &site.pools {
            let Some((bytes, _)) = site.engine.staging(memory) else { continue };
            if self.told.insert(memory, bytes).unwrap_or(0) != bytes {
                self.staged.push((memory, bytes));
            }
        }
    }
}

impl Fleet {
    /// An engine for each of these nodes, which are sorted; each has its own channels and pools.
    pub(crate) fn new(topology: &Topology, configs: Vec<(NodeId, EngineConfig)>) -> Self {
        let latencies = Latencies::of(topology);
        let peers = |node| {
            let peers = PeerConfig::new(node);
            // No acknowledgement is so late that a message is sent again.
            let resend = peers.resend.max(latencies.longest() * 4);
            PeerConfig { resend, lease: resend * LEASE, ..peers }
        };
        let nodes = configs.iter().map(|(node, _)| *node).collect();
        let site = |(node, config): (NodeId, EngineConfig)| Site {
            tasks: BTreeMap::new(),
            class: class_of(topology, node),
            alarm: None,
            pools: config.pools.iter().map(|pool| pool.memory).collect(),
            engine: Engine::new(EngineConfig { peers: Some(peers(node)), ..config }),
        };
        let lease = peers(NodeId(0)).lease;
        let sites = configs.into_iter().map(site).collect();
        Fleet { sites, nodes, awake: BTreeSet::new(), latencies, lease, planned: 0, followed: None }
    }

    /// Keeps what [`Fleet::task_of`] and [`Fleet::staged`] tell, from now on.
    pub(crate) fn follow(&mut self) {
        self.followed = Some(Followed::default());
    }

    /// The task that a request is for, while its transfer runs.
    pub(crate) fn task_of(&self, request: &Request) -> Option<usize> {
        let site = &self.sites[self.position(request.channel.node)];
        let whole = site.tasks.get(&request.transfer);
        let share = || {
            let ask = site.engine.ask_id(request.transfer)?;
            self.followed.as_ref()?.asked.get(&ask)
        };
        whole.or_else(share).copied()
    }

    /// How much staging is given out of memories where that has changed.
    pub(crate) fn staged(&mut self) -> Vec<(MemoryId, u64)> {
        self.followed.as_mut().map(|followed| mem::take(&mut followed.staged)).unwrap_or_default()
    }

    /// Has `node` start a transfer of `task`.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        node: NodeId,
        transfer: Transfer,
        task: usize,
    ) -> Result<(), SubmitError> {
        let site = self.rouse(node);
        let id = site.engine.submit(now, transfer)?;
        site.tasks.insert(id, task);
        let ask = site.engine.ask_id(id);
        if let (Some(followed), Some(ask)) = (&mut self.followed, ask) {
            followed.asked.insert(ask, task);
        }
        Ok(())
    }

    /// A channel has done a request.
    pub(crate) fn complete(&mut self, now: Time, request: &Request) {
        let completion = Completion { request: request.id, result: Ok(()) };
        self.rouse(request.channel.node).engine.handle_completion(now, completion);
    }

    /// What the clock brought.
    pub(crate) fn tick(&mut self, now: Time, tick: FleetTick) {
        self.planned -= 1;
        match tick {
            FleetTick::Deliver(packet) => self.rouse(packet.to).engine.handle_peer(now, *packet),
            FleetTick::Wake(node) => {
                let site = self.rouse(node);
                // One that was set later, for an earlier time, may have rung before.
                if site.alarm == Some(now) {
                    site.alarm = None;
                    site.engine.handle_timeout(now);
                }
            }
        }
    }

    /// The next that an engine gives out.
    pub(crate) fn poll<E: From<FleetTick>>(&mut self, clock: &mut Agenda<E>) -> Option<Output> {
        while let Some(&at) = self.awake.first() {
            let site = &mut self.sites[at];
            if let Some(request) = site.engine.poll_request() {
                return Some(Output::Request(request));
            }
            if let Some(packet) = site.engine.poll_peer() {
                self.post(clock, packet);
            } else if let Some(event) = site.engine.poll_event() {
                if let (Some(followed), Some(ask)) =
                    (&mut self.followed, site.engine.ask_id(event.transfer))
                {
                    followed.asked.remove(&ask);
                }
                site.engine.forget(event.transfer);
                let task = site.tasks.remove(&event.transfer).expect("it was submitted");
                return Some(Output::Ended(task, event.outcome));
            } else {
                self.rest(clock, at);
            }
        }
        None
    }

    /// Whether all that the clock will bring is what engines have planned, and nothing that they
    /// said for a lease, from `since` on, has moved anything.
    pub(crate) fn is_stuck<E>(&self, clock: &Agenda<E>, since: Time) -> bool {
        clock.len() == self.planned && clock.now().since(since) > self.lease
    }

    /// Whether every engine is idle, and all staging was given back.
    pub(crate) fn is_idle(&self) -> bool {
        self.sites.iter().all(Site::is_idle)
    }

    /// For each memory with a pool, the most that was given out at once.
    pub(crate) fn staging(&self) -> Vec<(MemoryId, u64)> {
        self.sites.iter().flat_map(Site::peaks).collect()
    }

    fn position(&self, node: NodeId) -> usize {
        self.nodes.binary_search(&node).expect("plans pass nodes that are there")
    }

    /// The engine of a node that something happens to.
    fn rouse(&mut self, node: NodeId) -> &mut Site {
        let at = self.position(node);
        self.awake.insert(at);
        &mut self.sites[at]
    }

    fn post<E: From<FleetTick>>(&mut self, clock: &mut Agenda<E>, packet: Packet) {
        let class = |node| self.sites[self.position(node)].class;
        let after = self.latencies.between(class(packet.from), class(packet.to));
        self.planned += 1;
        clock.add(clock.now() + after, FleetTick::Deliver(Box::new(packet)).into());
    }

    /// An engine has nothing more to say until something happens to it, or its alarm rings.
    fn rest<E: From<FleetTick>>(&mut self, clock: &mut Agenda<E>, at: usize) {
        self.awake.remove(&at);
        let site = &mut self.sites[at];
        if let Some(followed) = &mut self.followed {
            followed.look(site);
        }
        let due = site.engine.poll_timeout();
        if let Some(due) = due.filter(|due| site.alarm.is_none_or(|alarm| *due < alarm)) {
            site.alarm = Some(due);
            self.planned += 1;
            clock.add(due, FleetTick::Wake(self.nodes[at]).into());
        }
    }
}
