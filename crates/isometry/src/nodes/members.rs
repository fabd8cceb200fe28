//! Which nodes there are, what they are, and what they are called.
//!
//! A node that joins tells all that it is there and what it is, and whoever hears it of one that has not
//! been told says the same of himself, so that each knows all. Until it has heard all others nobody can
//! have anything of it: what is asked of it waits. A rank is given once, so that a node that comes back
//! under its name is another one, and what was found at the one before stays lost.

use super::known::{Change, Introduction, Known, Rooms};
use super::letters::{Inbox, Topic};
use super::service::Order;
use super::topology::NODE;
use super::{LinkRates, Nodes, Registered, postcard, registry};
use crate::{ArgumentError, Error, probe};
use channel::{Channel, Region};
use channel_remote::{RemoteChannel, RemoteSpan};
use fabric::{Config, Fabric, Handlers};
use model::{MemoryId, NodeClass, NodeId, RegionId, Topology};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most of another node's memory that links are measured with.
const MEASURED_BYTES: u64 = 16 << 20;

/// How long a node waits for another of its name to go: one that died may be there for some seconds.
const NAME_PATIENCE: Duration = Duration::from_secs(10);

/// How soon it asks again whether that one has gone.
const RETRY: Duration = Duration::from_millis(50);

/// How long a node that closes waits for others to close memory of its devices.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// Joins the ranks that `config` speaks of, also where its name is about to be free.
pub(super) fn join(config: &Config, inbox: &Arc<Inbox>) -> Result<Fabric, Error> {
    let end = Instant::now() + config.timeout.min(NAME_PATIENCE);
    loop {
        match Fabric::join(config, Inbox::handle(inbox, Handlers::new())) {
            Err(fabric::Error::NameTaken { name, rank }) => {
                if Instant::now() >= end {
                    return Err(ArgumentError::NodeNameTaken { name, by: rank }.into());
                }
                std::thread::sleep(RETRY);
            }
            joined => return joined.map_err(Error::nodes),
        }
    }
}

impl Nodes {
    /// Tells all others what this node is, hears what they are, and returns the cluster.
    ///
    /// # Errors
    /// Where a node does not say what it is within `timeout`, or has gone; where another has the same
    /// name.
    pub(crate) fn introduce(
        &self,
        (class, rates): (NodeClass, Option<LinkRates>),
        registered: &Registered,
        timeout: Duration,
    ) -> Result<Topology, Error> {
        let (start, end) = (Instant::now(), Instant::now() + timeout);
        let name = self.joining.name.clone();
        self.tell(&mut self.known(), Introduction::new(name, class, registered, rates));
        loop {
            self.hear_introductions()?;
            self.check_awaited()?;
            let namesake = self.namesake();
            if self.has_met() && namesake.is_none() {
                return Ok(self.cluster());
            }
            let left = self.left_to_meet((start, end), namesake)?;
            let news = || self.inbox.has(Topic::Class) || self.outbox.flush_all(&self.fabric);
            let is_met = || self.has_met() && self.namesake().is_none();
            let is_over = || news() || is_met() || self.check_awaited().is_err();
            match self.fabric.wait_until(Some(left), is_over) {
                Err(fabric::Error::Timeout { .. }) if namesake.is_some() => {}
                Err(fabric::Error::Timeout { .. }) => return Err(self.missing(timeout)),
                waited => waited.map_err(Error::nodes)?,
            }
        }
    }

    /// Hears what nodes are; what else has come is for later.
    fn hear_introductions(&self) -> Result<(), Error> {
        self.inbox.take_about(Topic::Class).into_iter().try_for_each(|letter| {
            let heard = self.hear_class(letter.from, &letter.bytes);
            heard.map_err(|why| Error::Introduction { node: letter.from, why })?;
            self.introduce_to(letter.from);
            Ok(())
        })
    }

    /// How long to wait, for others until `end`, and for another of this node's name less.
    fn left_to_meet(
        &self,
        (start, end): (Instant, Instant),
        namesake: Option<NodeId>,
    ) -> Result<Duration, Error> {
        let left = end.saturating_duration_since(Instant::now());
        let Some(other) = namesake else { return Ok(left) };
        let patience = if self.joining.is_late { NAME_PATIENCE } else { Duration::ZERO };
        match left.min(patience.saturating_sub(start.elapsed())) {
            Duration::ZERO => Err(self.taken(other)),
            left => Ok(left),
        }
    }

    /// Those that this node has to hear before it is one of them: all that have joined with it, or before
    /// and are there.
    fn awaited(&self) -> impl Iterator<Item = NodeId> {
        let (founders, here) = (self.fabric.founders(), self.here());
        let is_awaited = move |&node: &NodeId| match self.joining.is_late {
            true => node < here && self.fabric.lost(node).is_none(),
            false => node.0 < founders,
        };
        self.others().filter(is_awaited)
    }

    /// That some have not said what they are.
    fn missing(&self, waited: Duration) -> Error {
        let known = self.known();
        let missing =
            self.awaited().filter(|&node| !known.knows(node)).map(|node| node.0).collect();
        Error::nodes(fabric::Error::Missing { missing, size: self.fabric.size(), waited })
    }

    fn has_met(&self) -> bool {
        let known = self.known();
        self.awaited().all(|node| known.knows(node))
    }

    /// That none is lost that has joined with this node.
    fn check_awaited(&self) -> Result<(), Error> {
        self.awaited().try_for_each(|node| self.check_present(node))
    }

    /// Another node that is there, came before, and is called as this one is.
    fn namesake(&self) -> Option<NodeId> {
        let (known, here) = (self.known(), self.here());
        let is_there = |node: &NodeId| *node < here && self.fabric.lost(*node).is_none();
        known.named(self.joining.name.as_deref()?).find(is_there)
    }

    fn taken(&self, by: NodeId) -> Error {
        let name = self.joining.name.clone().unwrap_or_default();
        ArgumentError::NodeNameTaken { name, by: by.0 }.into()
    }

    /// The cluster, as far as nodes have said what they are.
    pub(crate) fn cluster(&self) -> Topology {
        self.known().cluster()
    }

    /// Tells all others what this node has become; returns the new cluster.
    pub(crate) fn become_another(&self, change: Change) -> Option<Topology> {
        let mut known = self.known();
        let is_withdrawn = known.rooms == Rooms::Withdrawn;
        let change = Change { rooms: change.rooms.filter(|_| !is_withdrawn), ..change };
        let changed = known.changed(self.here(), change)?;
        self.tell(&mut known, changed);
        Some(known.cluster())
    }

    /// Under the lock, so that nobody hears last what was said before.
    fn tell(&self, known: &mut Known, introduction: Introduction) {
        let bytes = postcard(&introduction);
        // It has nothing open of its own.
        let _ = known.hear(self.here(), introduction).expect("it says what it is");
        for node in self.others().filter(|&node| known.measured != Some(node)) {
            known.told.insert(node);
            self.outbox.post(&self.fabric, node, Topic::Class, bytes.clone());
        }
    }

    /// Hears what a node is.
    pub(super) fn hear_class(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let introduction = ::postcard::from_bytes(bytes).map_err(|e| e.to_string());
        let mut known = self.known();
        // Whatever comes of it: the next one that comes may be measured.
        known.measured = known.measured.filter(|&node| node != from);
        let withdrawn = known.hear(from, introduction?)?;
        known.withdraw(from, withdrawn);
        drop(known);
        self.order_closing();
        self.registry.look_again();
        Ok(())
    }

    /// Tells a node what this one is, unless it knows.
    pub(super) fn introduce_to(&self, node: NodeId) {
        let mut known = self.known();
        if known.told.insert(node)
            && let Some(said) = known.said(self.here())
        {
            self.outbox.post(&self.fabric, node, Topic::Class, postcard(said));
        }
    }

    /// Has others put to this node's devices no more, and waits until they have closed what they had opened for
    /// that; returns the regions of which that is not known.
    pub(super) fn withdraw(&self) -> Vec<RegionId> {
        let mut known = self.known();
        known.rooms = Rooms::Withdrawn;
        let rooms = known.exported(self.here());
        if rooms.is_empty() {
            return rooms;
        }
        let change = Change { rooms: Some(Vec::new()), ..Change::default() };
        let changed = known.changed(self.here(), change).expect("it has said what it is");
        // Who comes just now hears of no rooms.
        known.awaited = known.told.clone();
        self.tell(&mut known, changed);
        drop(known);
        // Who leaves has closed what it had open, and with a process goes what that had.
        let are_closed = || self.known().awaited.iter().all(|&node| self.fabric.is_gone(node));
        match self.fabric.wait_until(Some(WITHDRAWAL), are_closed) {
            Ok(()) => Vec::new(),
            Err(_) => rooms,
        }
    }

    /// A node has closed what this one has withdrawn.
    pub(super) fn hear_closed(&self, from: NodeId) {
        self.known().awaited.remove(&from);
        self.fabric.wake();
    }

    /// Has what others have withdrawn closed, as far as no job has it.
    pub(crate) fn order_closing(&self) {
        let taken = self.known().take_withdrawn();
        if !taken.is_empty() {
            self.orders.rooms.push(Order::Close(taken));
        }
    }

    /// Closes rooms that were [taken out](Nodes::order_closing), and tells the nodes whose they were.
    pub(super) fn close(&self, rooms: Vec<(NodeId, Arc<Region>)>) {
        // Without the lock: the driver takes its time.
        let closed = rooms.into_iter().map(|(node, _)| node).collect();
        let last = self.known().closed(closed);
        for node in last {
            self.outbox.post(&self.fabric, node, Topic::Closed, Vec::new());
        }
    }

    /// Measures the link to another node, by puts into registered memory that nobody uses yet.
    pub(crate) fn measure(&self, channel: &mut dyn Channel, node: NodeId) -> Option<LinkRates> {
        let bytes = self.fabric.published_bytes(node) as u64;
        let memory = MemoryId { node, index: u16::MAX };
        let span = RemoteSpan::in_segment(node, 0);
        let region = (bytes > 0).then(|| span.into_region(memory, bytes.min(MEASURED_BYTES)))?;
        let tell = |error: &Error| log::warn!("the rates of links are assumed: {error}");
        let (curves, latency_ns) = probe::link(channel, region).inspect_err(tell).ok()?;
        Some(LinkRates { curves, latency_ns })
    }

    /// Whom the first node measures the link to for all, when nodes join at the start.
    pub(crate) fn to_measure(&self) -> Option<NodeId> {
        let founders = self.fabric.founders();
        self.others().next().filter(|node| self.joining.measures && node.0 < founders)
    }

    /// Whether the link to a node that comes is [measured](Nodes::measure_newcomer) from now on, before that is
    /// told anything: no link was, and nobody can use its memory yet.
    pub(super) fn begins_to_measure(&self, node: NodeId) -> bool {
        let mut known = self.known();
        let is_new = node.0 >= self.fabric.founders() && !known.knows(node);
        let is_first = known.rates().is_none() && known.measured.is_none();
        let begins = self.joining.measures && is_new && is_first;
        if begins {
            known.measured = Some(node);
        }
        begins
    }

    /// Measures the link to a node that has come. Where that is stopped, it is given up after some seconds, or
    /// over UCX once that node is lost.
    pub(super) fn measure_newcomer(&self, node: NodeId) {
        let failed = |error: &_| log::warn!("the rates of links are assumed: {error}");
        let channel = RemoteChannel::new(Arc::clone(&self.fabric)).inspect_err(failed);
        let measured = channel.ok().and_then(|mut channel| self.measure(&mut channel, node));
        if measured.is_some() {
            self.become_another(Change { measured, ..Change::default() });
        }
    }

    /// The node that is called `name`: of several that were, the one that is there, else the last.
    ///
    /// # Errors
    /// [`ArgumentError::NoNode`]
    pub(crate) fn named(&self, name: &str) -> Result<NodeId, ArgumentError> {
        let known = self.known();
        let there = || known.named(name).find(|&node| self.is_there(node));
        let by_name = || there().or_else(|| known.named(name).next_back());
        let is_it = |&node: &NodeId| known.knows(node) && format!("{NODE}{}", node.0) == name;
        let by_rank = || name.strip_prefix(NODE)?.parse().ok().map(NodeId).filter(is_it);
        let named = by_name().or_else(by_rank);
        named.ok_or_else(|| ArgumentError::NoNode { name: name.to_owned(), there: known.all() })
    }

    fn is_there(&self, node: NodeId) -> bool {
        node == self.here() || self.fabric.lost(node).is_none()
    }

    /// As [`Nodes::named`], but where nodes may come waits for one to be there until `end`, or
    /// `is_interrupted`: who has a name of its own may also come back.
    ///
    /// # Errors
    /// [`ArgumentError::NoNode`]
    pub(crate) fn find(
        &self,
        name: &str,
        (end, is_interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<NodeId, ArgumentError> {
        if self.joining.is_open && registry::is_name(name) {
            let is_given = registry::is_node_name(name);
            let is_there = |node| !is_given || self.is_there(node);
            let is_found = || self.named(name).is_ok_and(is_there);
            self.registry.wait_until(end, || is_found() || self.is_over() || is_interrupted());
        }
        self.named(name)
    }

    /// Why the device whose memory `memory` is was lost, if its node has said so.
    pub(crate) fn why_lost(&self, memory: MemoryId) -> Option<String> {
        self.known().why_lost(memory).map(str::to_owned)
    }

    /// What a node calls itself.
    pub(crate) fn called(&self, node: NodeId) -> Option<String> {
        self.known().name(node).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{Own, topology};

    #[test]
    fn who_comes_hears_nothing_before_the_link_to_it_is_measured() {
        let [(_, root), ..] = fabric::Job::new(1).unwrap().variables(0);
        let config = Config { capacity: 2, ..Config::new(&root, (0, 1), b"key") };
        let own = Own { measures: true, ..Own::default() };
        let founder = Nodes::join(&config, 64, &own).unwrap();
        let registered = Registered {
            memory: MemoryId { node: NodeId(0), index: 1 },
            region: RegionId { index: 0, generation: 0 },
            bytes: 64,
            reach: None,
        };
        let host = r#"
            th_bytes = 1
            [[node]]
            name = "node"
            memory = [{ name = "sys", kind = "SYS" }]
            channel = [{ kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = 9e9 }]
        "#;
        let class = || {
            let mut class = cluster::parse_toml(host).unwrap().classes.remove(0);
            topology::add_registered(&mut class, 64);
            class
        };
        founder.introduce((class(), None), &registered, Duration::ZERO).unwrap();
        let comes = Fabric::join(&Config::later(&root, b"key"), Handlers::new()).unwrap();
        let is_told = || founder.known().told.contains(&comes.rank());
        assert!(founder.begins_to_measure(comes.rank()));
        founder.become_another(Change::default()).unwrap();
        assert!(!is_told());
        assert!(founder.hear_class(comes.rank(), b"nonsense").is_err());
        assert!(founder.begins_to_measure(comes.rank()), "nothing is measured any more");
        let said = Introduction::new(None, class(), &registered, None);
        founder.hear_class(comes.rank(), &postcard(&said)).unwrap();
        assert!(!is_told() && !founder.begins_to_measure(comes.rank()));
        founder.become_another(Change::default()).unwrap();
        assert!(is_told());
    }
}
