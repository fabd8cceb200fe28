//! A machine among others: each process is a node, and a copy may go from any node's memory to any
//! other's.
//!
//! **Hazard.** A node dies, leaves or is slow; what another says is late, or nonsense; another names
//! memory that is not its business. **Guarantee.** What a node says comes whole and in order, or
//! not at all. Others reach buffers and what was published or lent, nothing else; the
//! destination of a copy is written by the node that it lies in. **Structure.** [`Nodes`] joins the
//! others through a [`Fabric`]: [`letters`] carry what nodes say, [`topology`] makes one cluster of
//! what they are, [`registry`] knows what they publish, [`rooms`] has devices put to each other. A
//! thread ([`service`]) hears them, and hands the engine what its peers say, another makes rooms for those that
//! come, and closes what is open of others'; whoever steps the engine sends what that has to say.

mod described;
mod desk;
mod files;
mod known;
mod lending;
mod letters;
mod members;
mod registry;
mod rooms;
mod service;
mod sums;
mod topology;

pub(crate) use known::Change;
pub(crate) use service::Service;
pub(crate) use topology::{LINK_OF_HOSTS, LinkRates, share_core};

use crate::accelerators::Devices;
use crate::accelerators::reg::{self, Reached};
use crate::instance::{Instance, Keeper};
use crate::runtime::Shared;
use crate::{ArgumentError, Error};
use channel::{Region, Regions};
use described::Described;
use desk::Desk;
use engine::Packet;
use fabric::{Barrier, Config, Fabric, MOST_RANKS};
use files::Served;
use known::{Known, PeerReach};
use letters::{Inbox, Outbox, Topic};
use model::{ChannelError, ChannelErrorKind, ChannelId, MemoryId, NodeClass, NodeId, RegionId};
use registry::{Asker, Registry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use service::Orders;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a node that closes waits for others to take what it has said.
const LEAVING: Duration = Duration::from_secs(1);

/// This node among others.
pub(crate) struct Nodes {
    pub(crate) fabric: Arc<Fabric>,
    inbox: Arc<Inbox>,
    outbox: Outbox,
    registry: Registry,
    served: Served,
    desk: Desk,
    known: Mutex<Known>,
    joining: Joining,
    decoder: Mutex<wire::Decoder>,
    /// Those of whose loss the engine was told, and whether they were gone by then.
    mourned: Mutex<BTreeMap<NodeId, bool>>,
    orders: Orders,
    is_in_barrier: Mutex<bool>,
}

/// What a node brings along.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    /// What it is called, if not `node` and its rank.
    pub(crate) name: Option<String>,
    /// Where others may open and make files.
    pub(crate) served: Vec<PathBuf>,
    /// Whether it measures the link to others where it is the first.
    pub(crate) measures: bool,
}

/// How this node has joined.
struct Joining {
    name: Option<String>,
    /// Whether it measures a link for all.
    measures: bool,
    /// Whether others were there before.
    is_late: bool,
    /// Whether others may come later.
    is_open: bool,
    /// The machine, as those tell each other that are of one.
    machine: Option<[u8; 32]>,
}

/// What others put to, as this node's engine and its peers see it: registered memory.
pub(crate) struct Registered {
    pub(crate) memory: MemoryId,
    pub(crate) region: RegionId,
    pub(crate) bytes: u64,
    /// How devices reach those of other nodes, where there are any that do.
    reach: Option<PeerReach>,
}

impl Nodes {
    /// Joins the nodes that `config` speaks of, with so much registered memory.
    pub(crate) fn join(config: &Config, bytes: u64, own: &Own) -> Result<Arc<Nodes>, Error> {
        if let Some(name) = own.name.clone().filter(|name| !registry::is_node_name(name)) {
            return Err(ArgumentError::NodeName { name }.into());
        }
        let served = Served::new(&own.served)?;
        let inbox: Arc<Inbox> = Arc::default();
        let name = own.name.clone();
        let config = Config { segment_bytes: bytes, name, ..config.clone() };
        let fabric = members::join(&config, &inbox)?;
        // The first copies shall not wait for memory.
        fabric.segment().populate().map_err(Error::nodes)?;
        Ok(Arc::new(Nodes {
            inbox,
            outbox: Outbox::new(MOST_RANKS),
            registry: Registry::default(),
            served,
            desk: Desk::default(),
            known: Mutex::default(),
            joining: Joining {
                name: own.name.clone(),
                measures: own.measures && fabric.rank() == NodeId(0),
                is_late: config.is_late,
                is_open: config.is_late || config.capacity > config.size,
                machine: config.machine(),
            },
            decoder: Mutex::default(),
            mourned: Mutex::default(),
            orders: Orders::default(),
            is_in_barrier: Mutex::default(),
            fabric: Arc::new(fabric),
        }))
    }

    /// This node.
    pub(crate) fn here(&self) -> NodeId {
        self.fabric.rank()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes but this one, those that are lost among them.
    fn others(&self) -> impl Iterator<Item = NodeId> {
        let is_other = |&node: &NodeId| node != self.here() && self.fabric.has(node);
        (0..self.fabric.size()).map(NodeId).filter(is_other)
    }

    /// Adds registered memory to this node, all of it for buffers, and says whether an API of `devices` has
    /// registered it too.
    pub(crate) fn add_registered(
        &self,
        class: &mut NodeClass,
        (regions, devices): (&Regions, &Devices),
    ) -> (Registered, bool) {
        let index = u16::try_from(class.memories.len()).unwrap_or(u16::MAX);
        let memory = MemoryId { node: self.here(), index };
        let bytes = self.fabric.segment().bytes();
        topology::add_registered(class, bytes);
        let Reached { region, by_devices } =
            reg::reach(crate::memory::segment(memory, &self.fabric), devices);
        let region = regions.insert(region);
        (Registered { memory, region, bytes, reach: self.reach(devices) }, by_devices)
    }

    /// How `devices` reach those of other nodes.
    fn reach(&self, devices: &Devices) -> Option<PeerReach> {
        devices.interops().next()?;
        if self.fabric.has_windows() {
            return Some(PeerReach::Network);
        }
        self.joining.machine.map(|machine| PeerReach::Machine(machine, std::process::id()))
    }

    /// Has what is open of devices of nodes that are lost closed, once no job has it.
    fn lose_rooms(&self, lost: &[NodeId]) {
        let mut known = self.known();
        for &node in lost {
            let rooms = known.lose(node);
            known.withdraw(node, rooms);
        }
        drop(known);
        self.order_closing();
    }

    /// Closes all that is open of devices of other nodes, each with the last copy to it. The threads have ended.
    fn close_rooms(&self) {
        for node in self.others() {
            let rooms = self.known().lose(node);
            // As they are closed, without the lock.
            drop(rooms);
        }
        // Those that were to be closed when the threads ended.
        while self.orders.rooms.take().is_some() {}
    }

    /// Why each node but this one is lost, `None` where it is not.
    pub(crate) fn standing(&self) -> Vec<(NodeId, Option<String>)> {
        let why = |node| self.fabric.lost(node).map(|why| why.to_string());
        self.others().map(|node| (node, why(node))).collect()
    }

    /// That `node` is not lost.
    pub(crate) fn check_present(&self, node: NodeId) -> Result<(), Error> {
        let Some(why) = self.fabric.lost(node) else { return Ok(()) };
        Err(Error::nodes(fabric::Error::PeerLost { peer: node, why }))
    }

    fn mourned(&self) -> MutexGuard<'_, BTreeMap<NodeId, bool>> {
        self.mourned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something for the thread that serves.
    fn has_news(&self) -> bool {
        let lost = || {
            let mourned = self.mourned();
            self.others().any(|node| match mourned.get(&node) {
                None => self.fabric.lost(node).is_some(),
                Some(was_gone) => !was_gone && self.fabric.is_gone(node),
            })
        };
        // What could be sent may be what makes room for more.
        !self.inbox.is_empty() || self.is_over() || self.outbox.flush_all(&self.fabric) || lost()
    }

    /// Those that were lost since the last call.
    fn newly_lost(&self) -> Vec<NodeId> {
        let mut mourned = self.mourned();
        let lost = self.others().filter(|&node| self.fabric.lost(node).is_some());
        let is_new = |&node: &NodeId| mourned.insert(node, self.fabric.is_gone(node)).is_none();
        let lost: Vec<_> = lost.filter(is_new).collect();
        lost.iter().for_each(|&node| self.registry.forget(node));
        self.forget_lent(|node| lost.contains(&node));
        lost
    }

    /// Gives up what others could reach: an instance keeps the machine that would keep it here.
    fn clear(&self) {
        self.registry.clear();
        self.forget_lent(|_| true);
    }

    /// Leaves, once what was to say has been said, or nobody takes it.
    fn leave(&self) {
        let is_said = || {
            self.outbox.flush_all(&self.fabric);
            self.outbox.is_empty()
        };
        let _ = self.fabric.wait_until(Some(LEAVING), is_said);
        let left = self.fabric.leave();
        debug_assert!(left.is_ok(), "it is no handler");
    }

    fn is_over(&self) -> bool {
        self.orders.is_over.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.orders.is_over.store(true, Ordering::Release);
        self.orders.rooms.close();
        self.fabric.wake();
    }

    fn decode(&self, from: NodeId, bytes: &[u8]) -> Result<Packet, wire::WireError> {
        self.decoder.lock().unwrap_or_else(PoisonError::into_inner).decode(from, bytes)
    }

    /// Sends what the engine has to say.
    pub(crate) fn send(&self, packets: Vec<Packet>) {
        for packet in packets {
            self.outbox.post(&self.fabric, packet.to, Topic::Packet, wire::encode(&packet));
        }
    }

    /// The link from this node to others, by its place among all.
    pub(crate) fn link(&self, place: usize) -> ChannelId {
        ChannelId::of_link(self.here(), place).expect("there is room for a link")
    }

    /// A region of another node, where this one may write to it.
    pub(crate) fn region_of(&self, memory: MemoryId, region: RegionId) -> Option<Arc<Region>> {
        self.known().registered(memory, region)
    }

    /// Lets other nodes have this one read and write a region: one of buffers, which their copies are
    /// given parts of.
    pub(crate) fn open(&self, region: RegionId) {
        self.registry.open(region, true);
    }

    /// Whether other nodes may have this one read a region, or write it.
    pub(crate) fn is_open(&self, region: RegionId, is_written: bool) -> bool {
        self.registry.is_open(region, is_written)
    }

    /// Waits until all nodes have come to a barrier. Where the time was over before, it goes on
    /// waiting for the same one.
    pub(crate) fn barrier(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let start = Instant::now();
        let left = || timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let mut is_in = loop {
            match self.is_in_barrier.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
            let is_free =
                || !matches!(self.is_in_barrier.try_lock(), Err(TryLockError::WouldBlock));
            self.fabric.wait_until(left(), is_free).map_err(Error::nodes)?;
        };
        let waited = if *is_in { Ok(()) } else { self.fabric.barrier_notify(Barrier::Anonymous) };
        // Also where somebody could not be told.
        *is_in = true;
        let waited = waited.and_then(|()| self.fabric.barrier_wait(Barrier::Anonymous, left()));
        *is_in = waited.is_err();
        drop(is_in);
        self.fabric.wake();
        waited.map_err(Error::nodes)
    }

    /// Lets others find `instance` under `name`.
    pub(crate) fn publish(&self, name: &str, instance: &Instance) -> Result<(), Error> {
        if !registry::is_name(name) {
            return Err(ArgumentError::Name { name: name.to_owned() }.into());
        }
        let waiting = self.registry.publish(name, instance);
        let taken = || ArgumentError::Published { name: name.to_owned() };
        for asker in waiting.ok_or_else(taken)? {
            self.answer(asker, (Topic::Found, Described::of(instance)));
        }
        Ok(())
    }

    /// What a node publishes under a name, as soon as it does.
    pub(crate) fn lookup(
        &self,
        shared: &Arc<Shared>,
        (node, name): (NodeId, &str),
        (end, is_interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<Instance, Error> {
        if !registry::is_name(name) {
            return Err(ArgumentError::Name { name: name.to_owned() }.into());
        }
        if node == self.here() {
            let found = self.registry.wait_for(name, end, || self.is_over() || is_interrupted());
            return found.ok_or_else(|| self.nothing());
        }
        let what: Described = self.ask(node, (Topic::Lookup, name), (end, is_interrupted))?;
        what.instance(shared, (node, Keeper::Publisher))
    }

    /// What a node answers.
    ///
    /// # Errors
    /// Where it is lost; [`Error::TimedOut`] at `end`, or when `is_interrupted`; where what it says is
    /// no such answer.
    fn ask<A: DeserializeOwned>(
        &self,
        node: NodeId,
        (topic, question): (Topic, impl Serialize),
        (end, is_interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<A, Error> {
        self.question(node, (topic, question)).wait((end, is_interrupted))
    }

    /// Asks a node something.
    fn question(&self, node: NodeId, (topic, question): (Topic, impl Serialize)) -> Question<'_> {
        let asked = self.registry.ask(node);
        self.outbox.post(&self.fabric, node, topic, postcard(&(asked.1, question)));
        Question { nodes: self, asked }
    }

    /// Answers what a node has asked.
    fn answer(&self, (node, serial): Asker, (topic, answer): (Topic, impl Serialize)) {
        self.outbox.post(&self.fabric, node, topic, postcard(&(serial, answer)));
    }

    /// Hears an answer; returns it where nobody waits for that any more.
    fn hear_answer<'a>(&self, from: NodeId, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        let (serial, answer) = ::postcard::take_from_bytes(bytes).map_err(|e| e.to_string())?;
        let is_awaited = self.registry.answer((from, serial), answer.to_vec());
        Ok((!is_awaited).then_some(answer))
    }

    /// Why no answer has come.
    fn nothing(&self) -> Error {
        if self.is_over() { Error::Closed } else { Error::TimedOut }
    }

    fn hear_lookup(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let (serial, name): (u64, String) =
            ::postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        if !registry::is_name(&name) {
            return Err("nothing has such a name".to_owned());
        }
        if let Some(instance) = self.registry.find(&name, (from, serial)) {
            self.answer((from, serial), (Topic::Found, Described::of(&instance)));
        }
        Ok(())
    }
}

/// What a node was asked. Once it is dropped, nobody waits for the answer any more.
pub(crate) struct Question<'a> {
    nodes: &'a Nodes,
    asked: Asker,
}

impl Question<'_> {
    /// Who was asked.
    fn node(&self) -> NodeId {
        self.asked.0
    }

    /// What it answers, as [`Nodes::ask`] says.
    fn wait<A: DeserializeOwned>(
        self,
        (end, is_interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<A, Error> {
        let (nodes, node) = (self.nodes, self.node());
        let is_vain = || nodes.fabric.lost(node).is_some() || nodes.is_over() || is_interrupted();
        let Some(answer) = nodes.registry.wait(self.asked, end, is_vain) else {
            nodes.check_present(node)?;
            return Err(nodes.nothing());
        };
        let wrong = |error: ::postcard::Error| Error::Introduction { node, why: error.to_string() };
        ::postcard::from_bytes(&answer).map_err(wrong)
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.nodes.registry.forget_question(self.asked);
    }
}

fn postcard(value: &impl Serialize) -> Vec<u8> {
    ::postcard::to_allocvec(value).expect("plain values in memory always serialize")
}

/// Why other nodes may not reach a region.
pub(crate) fn not_open() -> ChannelError {
    let detail = "the region was not published to other nodes";
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}
