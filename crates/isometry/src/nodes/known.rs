//! What is known of each node.

use super::topology::{Member, NODE};
use super::{LinkRates, Registered, registry, topology};
use channel::Region;
use channel::accelerator::IpcHandle;
use channel_remote::{Exported, RemoteSpan};
use fabric::Window;
use model::{MemoryId, MemoryKind, NodeClass, NodeId, RegionId, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a node says of itself when it joins, and when it has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// What it is called, where that is not `node` and its rank.
    name: Option<String>,
    /// A cluster of this node alone, as JSON.
    topology: String,
    /// Its registered memory: which of its memories, what it calls the region, and how long that is.
    memory: u16,
    region: RegionId,
    bytes: u64,
    /// Room of its devices that others put to.
    rooms: Vec<OnDevice>,
    /// Which of its memories are those of lost devices, and why these are.
    lost: Vec<(u16, String)>,
    /// Memories of other nodes' devices that its own don't reach, each with that one's own memory.
    apart: Vec<(u16, MemoryId)>,
    /// How its devices reach those of others, where it has any that do.
    reach: Option<PeerReach>,
}

/// How devices of a node reach those of others where they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PeerReach {
    /// Through the network.
    Network,
    /// By opening what other processes of this machine have exported; and which process this is there.
    Machine([u8; 32], u32),
}

impl PeerReach {
    /// Whether devices of a node that has this and those of one that has `other` reach each other, unless both are
    /// of one process.
    fn is_alike(&self, other: &PeerReach) -> bool {
        match (self, other) {
            (PeerReach::Network, PeerReach::Network) => true,
            (PeerReach::Machine(machine, _), PeerReach::Machine(other, _)) => machine == other,
            _ => false,
        }
    }
}

/// Room of a device that others put to where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OnDevice {
    /// The device's own memory, and that which is this, among its node's; and what that calls the region.
    own: u16,
    memory: u16,
    region: RegionId,
    bytes: u64,
    way: Way,
}

/// How others put to room of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Way {
    /// Through a window of the network's, from where it starts, by its key.
    Window(u64, Vec<u8>),
    /// By opening it, where they are other processes of the machine, by a handle: two halves, as long as arrays
    /// that serialize may be.
    Opened([[u8; 32]; 2]),
}

impl OnDevice {
    /// Room that others put to through `window`.
    pub(super) fn in_window(own: u16, (memory, region): (u16, RegionId), window: Window) -> Self {
        let Window { start, bytes, key } = window;
        OnDevice { own, memory, region, bytes, way: Way::Window(start, key) }
    }

    /// Whether a node of this class and reach may say so: both are memories of devices.
    fn is_of(&self, class: &NodeClass, reach: Option<&PeerReach>) -> bool {
        let kind = |memory: u16| class.memories.get(usize::from(memory)).map(|memory| memory.kind);
        let are_devices = [self.own, self.memory].iter().all(|&m| kind(m) == Some(MemoryKind::Fbm));
        let is_reached = match (&self.way, reach) {
            (Way::Window(_, key), Some(PeerReach::Network)) => !key.is_empty(),
            (Way::Opened(_), Some(PeerReach::Machine(..))) => true,
            _ => false,
        };
        are_devices && self.own != self.memory && is_reached
    }

    /// Room of so many bytes that others open by `handle`.
    pub(super) fn exported(
        own: u16,
        (memory, region): (u16, RegionId),
        (bytes, handle): (u64, IpcHandle),
    ) -> Self {
        let halves = [0, 32].map(|from| std::array::from_fn(|at| handle.0[from + at]));
        OnDevice { own, memory, region, bytes, way: Way::Opened(halves) }
    }

    /// The region, as others see it.
    fn region(&self, node: NodeId) -> Arc<Region> {
        let OnDevice { memory: index, bytes, ref way, .. } = *self;
        let memory = MemoryId { node, index };
        let region = match way {
            Way::Window(start, key) => {
                let window = Window { start: *start, bytes, key: key.clone() };
                RemoteSpan::in_window(node, window).into_region(memory, bytes)
            }
            Way::Opened(halves) => {
                let handle = IpcHandle(std::array::from_fn(|at| halves.as_flattened()[at]));
                Exported::new(handle).into_region(memory, bytes)
            }
        };
        Arc::new(region)
    }
}

impl Introduction {
    /// Of a node that has measured a link, if it has.
    pub(super) fn new(
        name: Option<String>,
        class: NodeClass,
        registered: &Registered,
        rates: Option<LinkRates>,
    ) -> Introduction {
        let (topology, reach) = (alone(class, rates), registered.reach.clone());
        let Registered { memory, region, bytes, .. } = *registered;
        let (memory, rooms, lost, apart) = (memory.index, Vec::new(), Vec::new(), Vec::new());
        Introduction { name, topology, memory, region, bytes, rooms, lost, apart, reach }
    }

    /// The node among others, of which those of `group` reach its devices.
    fn member(&self, class: NodeClass, group: u16) -> Member {
        let is_lost = |memory| self.lost.iter().any(|(lost, _)| *lost == memory);
        let rooms = self.rooms.iter().filter(|room| !is_lost(room.own));
        let putting = rooms.clone().map(|room| room.own).collect();
        let (rooms, apart) =
            (rooms.map(|room| room.memory).collect::<Vec<_>>(), self.apart.clone());
        // Without rooms it is linked to none, and looks like others of other groups.
        let group = if rooms.is_empty() { 0 } else { group };
        Member { class, putting, rooms, group, apart }
    }
}

/// A cluster of one node alone, as JSON.
fn alone(class: NodeClass, rates: Option<LinkRates>) -> String {
    let alone = topology::cluster(&[Member::alone(class)], 0, 1, rates);
    cluster::to_json(&alone).to_string()
}

/// What a node becomes.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Its memories and channels, where these change.
    pub(crate) class: Option<NodeClass>,
    /// Of its memories those of lost devices, and why these are.
    pub(crate) lost: Vec<(u16, String)>,
    /// And memories of other nodes' devices that its own don't reach, each with that one's own memory.
    pub(crate) apart: Vec<(u16, MemoryId)>,
    /// What was measured of a link.
    pub(crate) measured: Option<LinkRates>,
    /// Room of its devices that others put to, where that changes.
    pub(crate) rooms: Option<Vec<OnDevice>>,
}

/// What has become of the room of this node's devices that others put to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rooms {
    /// Nobody has needed any.
    #[default]
    Unneeded,
    Opened,
    Withdrawn,
}

/// All nodes, by rank.
#[derive(Debug, Default)]
pub(super) struct Known {
    nodes: Vec<Option<Node>>,
    /// How often anything has changed.
    generation: u64,
    /// Those that have heard what this one is.
    pub(super) told: BTreeSet<NodeId>,
    /// One that has come, and hears nothing before the link to it was measured.
    pub(super) measured: Option<NodeId>,
    /// What has become of this one's rooms.
    pub(super) rooms: Rooms,
    /// Rooms that their nodes have withdrawn, and that this one may have open yet.
    withdrawn: Vec<(NodeId, Arc<Region>)>,
    /// Those that are lost: a rank is given once, so that none comes back with what is still heard of it.
    lost: BTreeSet<NodeId>,
    /// Those that may have rooms open yet that this one has withdrawn.
    pub(super) awaited: BTreeSet<NodeId>,
}

#[derive(Debug)]
struct Node {
    said: Introduction,
    class: NodeClass,
    rates: Option<LinkRates>,
    /// What others may put to: registered memory of the host.
    registered: (RegionId, Arc<Region>),
    /// And of devices, until it is lost.
    rooms: Vec<(RegionId, Arc<Region>)>,
}

impl Known {
    /// Takes what a node says of itself; returns the rooms that it has no more.
    pub(super) fn hear(
        &mut self,
        from: NodeId,
        said: Introduction,
    ) -> Result<Vec<Arc<Region>>, String> {
        let topology = cluster::parse_json(&said.topology).map_err(|error| error.to_string())?;
        let [class] = <[NodeClass; 1]>::try_from(topology.classes)
            .map_err(|_| "it says to be several nodes".to_owned())?;
        let has_memory = class.memories.get(usize::from(said.memory)).is_some();
        let is_its = |room: &OnDevice| room.is_of(&class, said.reach.as_ref());
        if !has_memory || !said.rooms.iter().all(is_its) {
            return Err("it has no such memory".to_owned());
        }
        if said.name.as_deref().is_some_and(|name| !registry::is_node_name(name)) {
            return Err("no node is called that".to_owned());
        }
        let memory = MemoryId { node: from, index: said.memory };
        let of_host = RemoteSpan::in_segment(from, 0).into_region(memory, said.bytes);
        let registered = (said.region, Arc::new(of_host));
        let room = |room: &OnDevice| (room.region, self.room(from, room));
        let is_there = !self.lost.contains(&from);
        let rooms: Vec<_> = said.rooms.iter().filter(|_| is_there).map(room).collect();
        let rates = topology.links.into_iter().next().and_then(LinkRates::of);
        let at = from.0 as usize;
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, || None);
        }
        let is_left = |room: &Arc<Region>| !rooms.iter().any(|(_, now)| Arc::ptr_eq(now, room));
        let before = self.nodes[at].take().map_or(Vec::new(), |node| node.rooms);
        let gone = before.into_iter().map(|(_, room)| room).filter(is_left).collect();
        self.nodes[at] = Some(Node { said, class, rates, registered, rooms });
        self.generation += 1;
        Ok(gone)
    }

    /// The region that room of a node's is: the one from before, which may be open, where it has said so then.
    fn room(&self, node: NodeId, room: &OnDevice) -> Arc<Region> {
        let is_known = self.said(node).is_some_and(|said| said.rooms.contains(room));
        let before = || self.registered(MemoryId { node, index: room.memory }, room.region);
        is_known.then(before).flatten().unwrap_or_else(|| room.region(node))
    }

    /// Closes rooms that `node` has withdrawn as soon as no job has them.
    pub(super) fn withdraw(&mut self, node: NodeId, rooms: Vec<Arc<Region>>) {
        self.withdrawn.extend(rooms.into_iter().map(|room| (node, room)));
    }

    /// Closes what nodes have withdrawn and no job has; returns those of which that was the last.
    pub(super) fn close_withdrawn(&mut self) -> BTreeSet<NodeId> {
        let is_idle = |(_, room): &mut (NodeId, Arc<Region>)| Exported::is_idle(room);
        let closed: Vec<_> = self.withdrawn.extract_if(.., is_idle).collect();
        let nodes = closed.into_iter().map(|(node, _)| node);
        let is_left = |node: &NodeId| self.withdrawn.iter().any(|(left, _)| left == node);
        nodes.filter(|node| !is_left(node)).collect()
    }

    /// The rooms of a node that others open.
    pub(super) fn exported(&self, node: NodeId) -> Vec<RegionId> {
        let rooms = self.said(node).into_iter().flat_map(|said| &said.rooms);
        let exported = rooms.filter(|room| matches!(room.way, Way::Opened(_)));
        exported.map(|room| room.region).collect()
    }

    /// Forgets the rooms of a node that is lost, so that what is open of them is closed with the last copy.
    pub(super) fn close(&mut self, node: NodeId) {
        self.withdrawn.retain(|(whose, _)| *whose != node);
        self.lost.insert(node);
        if let Some(Some(node)) = self.nodes.get_mut(node.0 as usize) {
            node.rooms.clear();
        }
        // Those may be linked now that were not since it was of one process with another.
        self.generation += 1;
    }

    /// How those that are there reach devices that do so as `reach` says.
    fn alike<'a>(&'a self, reach: &'a PeerReach) -> impl Iterator<Item = &'a PeerReach> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        let there = nodes.filter(|(node, _)| !self.lost.contains(node));
        let reaches = there.filter_map(|(_, node)| node.as_ref()?.said.reach.as_ref());
        reaches.filter(|other| other.is_alike(reach))
    }

    /// Whether devices are linked that reach each other as `reach` says: no two of these nodes are of one process,
    /// which can't open what it has exported itself.
    fn are_linked(&self, reach: &PeerReach) -> bool {
        let mut processes = BTreeSet::new();
        *reach == PeerReach::Network || self.alike(reach).all(|process| processes.insert(process))
    }

    /// Whether another node would put to devices of `here`, which has no room for that yet.
    pub(super) fn needs_rooms(&self, here: NodeId) -> bool {
        let Some(reach) = self.said(here).and_then(|said| said.reach.as_ref()) else {
            return false;
        };
        let is_met = self.alike(reach).nth(1).is_some() && self.are_linked(reach);
        is_met && self.rooms == Rooms::Unneeded
    }

    fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.0 as usize)?.as_ref()
    }

    /// Whether a node has said what it is.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.get(node).is_some()
    }

    /// What a node has said last.
    pub(super) fn said(&self, node: NodeId) -> Option<&Introduction> {
        Some(&self.get(node)?.said)
    }

    /// What a node that has changed, or measured a link, says of itself; `None` before it has said
    /// anything.
    pub(super) fn changed(&self, node: NodeId, change: Change) -> Option<Introduction> {
        let Node { said, class, rates, .. } = self.get(node)?;
        let class = change.class.unwrap_or_else(|| class.clone());
        let rates = change.measured.or_else(|| rates.clone());
        let mut changed = Introduction { topology: alone(class, rates), ..said.clone() };
        if !change.lost.is_empty() {
            changed.lost = change.lost;
        }
        if !change.apart.is_empty() {
            changed.apart = change.apart;
        }
        changed.rooms = change.rooms.unwrap_or(changed.rooms);
        Some(changed)
    }

    /// Why the device whose memory `memory` is was lost, if its node has said so.
    pub(super) fn why_lost(&self, memory: MemoryId) -> Option<&str> {
        let lost = &self.get(memory.node)?.said.lost;
        lost.iter().find(|(index, _)| *index == memory.index).map(|(_, why)| why.as_str())
    }

    /// What a link reaches, where one was measured.
    pub(super) fn rates(&self) -> Option<&LinkRates> {
        self.nodes.iter().flatten().find_map(|node| node.rates.as_ref())
    }

    /// The cluster of all that have said what they are; others have no memories.
    pub(super) fn cluster(&self) -> Topology {
        let member = |node: &Option<Node>| match node {
            Some(Node { class, said, .. }) => match self.group(said) {
                Some(group) => said.member(class.clone(), group),
                None => Member::alone(class.clone()),
            },
            None => Member::alone(topology::unknown()),
        };
        let members: Vec<_> = self.nodes.iter().map(member).collect();
        // Every memory says how large its buffers may be.
        topology::cluster(&members, self.generation, 1 << 20, self.rates().cloned())
    }

    /// Those of which nodes the devices of one that said so reach, where there are any: which was the first.
    fn group(&self, said: &Introduction) -> Option<u16> {
        let reach = said.reach.as_ref().filter(|reach| self.are_linked(reach))?;
        let is_of_it = |node: &Node| node.said.reach.as_ref().is_some_and(|it| it.is_alike(reach));
        let first = self.nodes.iter().position(|node| node.as_ref().is_some_and(is_of_it));
        first.and_then(|first| u16::try_from(first).ok())
    }

    /// A region of a node that others may put to.
    pub(super) fn registered(&self, memory: MemoryId, region: RegionId) -> Option<Arc<Region>> {
        let Node { registered, rooms, .. } = self.get(memory.node)?;
        let is_it = |(id, there): &&(_, Arc<Region>)| *id == region && there.memory() == memory;
        let found = [registered].into_iter().chain(rooms).find(is_it);
        found.map(|(_, there)| Arc::clone(there))
    }

    /// What a node calls itself.
    pub(super) fn name(&self, node: NodeId) -> Option<&str> {
        self.get(node)?.said.name.as_deref()
    }

    /// Those that call, or called, themselves `name`, by rank.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = NodeId> {
        let nodes = (0..self.nodes.len() as u32).map(NodeId);
        nodes.filter(move |&node| self.name(node) == Some(name))
    }

    /// All nodes that there are, for people.
    pub(super) fn all(&self) -> String {
        let nodes = (0..).zip(&self.nodes).filter_map(|(rank, node)| Some((rank, node.as_ref()?)));
        let name = |(rank, node): (u32, &Node)| match &node.said.name {
            Some(name) => format!("{name} ({NODE}{rank})"),
            None => format!("{NODE}{rank}"),
        };
        nodes.map(name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{LinkEnd, Memory};

    const REGION: RegionId = RegionId { index: 4, generation: 1 };

    fn said() -> Introduction {
        of_memories(&[MemoryKind::Sys], None)
    }

    /// Of a node with these memories, one that is registered, and such devices.
    fn of_memories(kinds: &[MemoryKind], reach: Option<PeerReach>) -> Introduction {
        let memory = |(i, &kind): (usize, &MemoryKind)| Memory {
            name: format!("memory{i}"),
            kind,
            capacity_bytes: None,
            th_bytes: Some(1 << 20),
            port: None,
        };
        let mut class = NodeClass {
            name: "node".to_owned(),
            first: 0,
            count: 1,
            memories: kinds.iter().enumerate().map(memory).collect(),
            channels: Vec::new(),
            wires: Vec::new(),
        };
        topology::add_registered(&mut class, 64);
        let memory = MemoryId { node: NodeId(0), index: kinds.len() as u16 };
        let registered = Registered { memory, region: REGION, bytes: 64, reach };
        Introduction::new(None, class, &registered, None)
    }

    #[test]
    fn the_cluster_is_of_those_that_said_what_they_are() {
        let mut known = Known::default();
        assert!(known.changed(NodeId(2), Change::default()).is_none());
        known.hear(NodeId(2), said()).unwrap();
        let cluster = known.cluster();
        assert!(known.knows(NodeId(2)) && !known.knows(NodeId(0)) && !known.knows(NodeId(3)));
        assert_eq!((cluster.classes.len(), cluster.node_count()), (2, 3));
        assert_eq!(cluster.memory_named("node1.reg"), None);
        let again = cluster::parse_json(&cluster::to_json(&cluster).to_string()).unwrap();
        assert_eq!(again.classes, cluster.classes);
        known.hear(NodeId(0), said()).unwrap();
        known.hear(NodeId(1), said()).unwrap();
        let cluster = known.cluster();
        assert_eq!((cluster.classes.len(), cluster.node_count()), (1, 3));
        let mut changed = class();
        changed.memories[0].capacity_bytes = Some(5);
        let change = Change { class: Some(changed), ..Change::default() };
        let changed = known.changed(NodeId(1), change).unwrap();
        known.hear(NodeId(1), changed).unwrap();
        let later = known.cluster();
        assert_eq!(later.classes.len(), 3);
        assert!(later.generation > cluster.generation);
        let reg = MemoryId { node: NodeId(1), index: 1 };
        assert_eq!(known.registered(reg, REGION).unwrap().len_bytes(), 64);
        let other = RegionId { index: 5, ..REGION };
        assert!(known.registered(reg, other).is_none());
        assert!(known.registered(MemoryId { index: 0, ..reg }, REGION).is_none());
    }

    #[test]
    fn nodes_of_a_name_are_those_that_have_and_had_it() {
        let mut known = Known::default();
        let called = |name: &str| Introduction { name: Some(name.to_owned()), ..said() };
        for (node, said) in [(0, said()), (1, called("a")), (4, called("b")), (5, called("a"))] {
            known.hear(NodeId(node), said).unwrap();
        }
        assert_eq!(known.named("a").collect::<Vec<_>>(), [NodeId(1), NodeId(5)]);
        assert_eq!(known.named("node0").count(), 0);
        assert_eq!((known.name(NodeId(4)), known.name(NodeId(0))), (Some("b"), None));
        assert_eq!(known.all(), "node0, a (node1), b (node4), a (node5)");
        let changed = known.changed(NodeId(4), Change::default()).unwrap();
        assert_eq!(changed, called("b"), "it keeps its name");
    }

    #[test]
    fn why_a_device_is_lost_is_known_from_then_on() {
        let mut known = Known::default();
        known.hear(NodeId(1), said()).unwrap();
        let lost = MemoryId { node: NodeId(1), index: 0 };
        assert_eq!(known.why_lost(lost), None);
        let it_fell = || vec![(0, "it fell".to_owned())];
        for lost in [it_fell(), Vec::new()] {
            let changed = known.changed(NodeId(1), Change { lost, ..Change::default() }).unwrap();
            known.hear(NodeId(1), changed).unwrap();
        }
        assert_eq!(known.why_lost(lost), Some("it fell"), "other changes keep that");
        assert_eq!(known.why_lost(MemoryId { index: 1, ..lost }), None);
        assert_eq!(known.why_lost(MemoryId { node: NodeId(0), ..lost }), None);
    }

    fn on_device(own: u16, memory: u16) -> OnDevice {
        let region = RegionId { index: 9, generation: 0 };
        let window = Window { start: 0x7000, bytes: 32, key: vec![1, 2] };
        OnDevice::in_window(own, (memory, region), window)
    }

    /// Of a process of its own, with devices and no room yet.
    fn opening(machine: u8, process: u32) -> Introduction {
        let reach = Some(PeerReach::Machine([machine; 32], process));
        Introduction { reach, ..on_devices(Vec::new()) }
    }

    /// And with room that others open.
    fn exporting(process: u32) -> Introduction {
        let OnDevice { own, memory, region, bytes, .. } = on_device(0, 1);
        let room = OnDevice::exported(own, (memory, region), (bytes, IpcHandle([7; 64])));
        Introduction { rooms: vec![room], ..opening(1, process) }
    }

    #[test]
    fn room_that_was_opened_stays_so_until_its_node_is_lost() {
        let mut known = Known::default();
        known.hear(NodeId(1), exporting(8)).unwrap();
        let memory = MemoryId { node: NodeId(1), index: 1 };
        let room = |known: &Known| known.registered(memory, on_device(0, 1).region);
        let before = room(&known).unwrap();
        let apart = vec![(0, MemoryId { node: NodeId(2), index: 1 })];
        known.hear(NodeId(1), Introduction { apart, ..exporting(8) }).unwrap();
        assert!(Arc::ptr_eq(&before, &room(&known).unwrap()), "the node has changed");
        let mut another = exporting(8);
        another.rooms[0].way = Way::Opened([[8; 32]; 2]);
        known.hear(NodeId(1), another).unwrap();
        assert!(!Arc::ptr_eq(&before, &room(&known).unwrap()), "and exports other memory");
        let host = || MemoryId { index: exporting(8).memory, ..memory };
        known.close(NodeId(1));
        known.close(NodeId(7));
        assert!(room(&known).is_none());
        assert!(known.registered(host(), REGION).is_some());
    }

    #[test]
    fn who_is_heard_once_it_is_lost_has_no_rooms_and_is_linked_to_none() {
        let mut known = Known::default();
        known.hear(NodeId(0), opening(1, 8)).unwrap();
        known.close(NodeId(1));
        known.hear(NodeId(1), exporting(9)).unwrap();
        let memory = MemoryId { node: NodeId(1), index: 1 };
        assert!(known.registered(memory, on_device(0, 1).region).is_none());
        assert!(!known.needs_rooms(NodeId(0)));
        known.hear(NodeId(2), exporting(9)).unwrap();
        assert!(known.needs_rooms(NodeId(0)), "its process has come back as another node");
    }

    #[test]
    fn what_is_exported_is_linked_where_each_node_is_a_process() {
        let mut known = Known::default();
        let ends = |known: &Known| {
            let link = known.cluster().links.get(1).cloned();
            link.map_or((0, 0, 0), |link| (link.from.len(), link.to.len(), link.except.len()))
        };
        known.hear(NodeId(0), exporting(8)).unwrap();
        let apart = vec![(0, MemoryId { node: NodeId(0), index: 1 })];
        known.hear(NodeId(1), Introduction { apart, ..exporting(9) }).unwrap();
        assert_eq!(ends(&known), (2, 2, 1), "one does not reach the other");
        known.hear(NodeId(2), exporting(9)).unwrap();
        assert_eq!(ends(&known), (0, 0, 0));
        known.close(NodeId(1));
        assert_eq!(ends(&known), (3, 3, 1), "its process has come back as another node");
    }

    #[test]
    fn room_is_needed_once_another_would_put_there() {
        let mut known = Known::default();
        let needs = |known: &mut Known, node, said| {
            known.hear(NodeId(node), said).unwrap();
            known.needs_rooms(NodeId(0))
        };
        for (node, said, what) in [
            (0, opening(1, 8), "alone"),
            (1, said(), "a host"),
            (2, on_devices(Vec::new()), "of which a network reaches the devices"),
            (3, opening(2, 9), "of another machine"),
            (4, opening(1, 8), "of the same process"),
            (5, opening(1, 9), "of another process, among two that are of one"),
        ] {
            assert!(!needs(&mut known, node, said), "{what}");
        }
        let before = known.cluster().generation;
        known.close(NodeId(4));
        assert!(known.cluster().generation > before);
        assert!(known.needs_rooms(NodeId(0)) && !known.needs_rooms(NodeId(1)));
        for rooms in [Rooms::Opened, Rooms::Withdrawn] {
            known.rooms = rooms;
            assert!(!known.needs_rooms(NodeId(0)), "{rooms:?}");
        }
    }

    #[test]
    fn devices_of_one_machine_are_linked_and_those_of_two_are_not() {
        let mut known = Known::default();
        let of = |machine, process| {
            let Introduction { reach, .. } = opening(machine, process);
            Introduction { reach, ..exporting(process) }
        };
        // Numbers of processes are those of their machines.
        for (node, said) in
            [(0, of(1, 8)), (1, of(2, 8)), (2, of(1, 9)), (3, on_devices(vec![on_device(0, 1)]))]
        {
            known.hear(NodeId(node), said).unwrap();
        }
        let link = &known.cluster().links[1];
        let end = |class, memory| LinkEnd { class, memory };
        let joined = |from| [0, 1, 2, 3].map(|to| link.joins(end(from, 0), end(to, 1)));
        assert_eq!(joined(0), [true, false, true, false]);
        assert_eq!(joined(1), [false, true, false, false]);
        assert_eq!(joined(3), [false, false, false, true]);
    }

    #[test]
    fn nodes_of_several_machines_look_alike_while_they_have_no_rooms() {
        let mut known = Known::default();
        let Introduction { rooms, .. } = exporting(8);
        let open = |machine| Introduction { rooms: rooms.clone(), ..opening(machine, 8) };
        let it_fell = || vec![(0, "it fell".to_owned())];
        let lost = |machine| Introduction { lost: it_fell(), ..open(machine) };
        for (node, said, classes) in [
            (0, opening(0, 8), 1),
            (1, opening(1, 8), 1),
            (2, opening(2, 8), 1),
            (1, open(1), 3),
            (2, open(2), 3),
            (1, lost(1), 2),
            (2, lost(2), 1),
        ] {
            known.hear(NodeId(node), said).unwrap();
            assert_eq!(known.cluster().classes.len(), classes, "{node}");
        }
    }

    /// Of a node with two memories of devices before that of its host, whose network reaches these.
    fn on_devices(rooms: Vec<OnDevice>) -> Introduction {
        let kinds = [MemoryKind::Fbm, MemoryKind::Fbm, MemoryKind::Sys];
        Introduction { rooms, ..of_memories(&kinds, Some(PeerReach::Network)) }
    }

    #[test]
    fn room_of_a_device_is_found_and_linked_until_it_is_lost() {
        let mut known = Known::default();
        for node in [0, 1] {
            known.hear(NodeId(node), on_devices(vec![on_device(0, 1)])).unwrap();
        }
        let memory = MemoryId { node: NodeId(1), index: 1 };
        let there = known.registered(memory, on_device(0, 1).region).unwrap();
        let span: &RemoteSpan = there.view().unwrap();
        assert_eq!((there.len_bytes(), span.node), (32, NodeId(1)));
        assert_eq!(span.window.as_ref().unwrap().start, 0x7000);
        assert!(
            known.registered(MemoryId { index: 0, ..memory }, on_device(0, 1).region).is_none()
        );
        let ends = |known: &Known| {
            known.cluster().links.get(1).map(|link| (link.from.clone(), link.to.clone()))
        };
        let of_class =
            |class| (vec![LinkEnd { class, memory: 0 }], vec![LinkEnd { class, memory: 1 }]);
        assert_eq!(ends(&known), Some(of_class(0)));
        let lose = |known: &mut Known, node| {
            let change = Change { lost: vec![(0, "it fell".to_owned())], ..Change::default() };
            let changed = known.changed(NodeId(node), change).unwrap();
            known.hear(NodeId(node), changed).unwrap();
        };
        lose(&mut known, 1);
        assert_eq!(ends(&known), Some(of_class(0)), "that of the other");
        assert_eq!(known.cluster().classes.len(), 2);
        lose(&mut known, 0);
        assert_eq!(ends(&known), None);
    }

    #[test]
    fn what_is_withdrawn_is_closed_once_no_job_has_it() {
        let mut known = Known::default();
        let ends = |known: &Known| {
            let ends = known.cluster().links[1].to.iter().map(|end| end.class).collect::<Vec<_>>();
            (ends, known.cluster().classes.len())
        };
        for node in [0, 1] {
            known.hear(NodeId(node), exporting(7 + node)).unwrap();
        }
        let (node, region) = (NodeId(1), on_device(0, 1).region);
        assert_eq!((known.exported(node), ends(&known)), (vec![region], (vec![0], 1)));
        let job = known.registered(MemoryId { node, index: 1 }, region).unwrap();
        let change = Change { rooms: Some(Vec::new()), ..Change::default() };
        let changed = known.changed(node, change).unwrap();
        let rooms = known.hear(node, changed).unwrap();
        known.withdraw(node, rooms);
        assert_eq!((known.exported(node), ends(&known)), (vec![], (vec![0], 2)));
        assert!(known.registered(job.memory(), region).is_none());
        assert_eq!(known.close_withdrawn(), BTreeSet::new());
        drop(job);
        assert_eq!(known.close_withdrawn(), BTreeSet::from([node]));
        assert_eq!(known.close_withdrawn(), BTreeSet::new());
    }

    fn class() -> NodeClass {
        cluster::parse_json(&said().topology).unwrap().classes.remove(0)
    }

    #[test]
    fn nonsense_is_told() {
        let mut known = Known::default();
        let wrong = [
            Introduction { topology: "{".to_owned(), ..said() },
            Introduction { memory: 2, ..said() },
            on_devices(vec![on_device(0, 1), on_device(0, 4)]),
            on_devices(vec![on_device(4, 1)]),
            on_devices(vec![on_device(0, 2)]),
            on_devices(vec![on_device(2, 1)]),
            on_devices(vec![on_device(1, 1)]),
            on_devices(vec![OnDevice { way: Way::Window(0x7000, Vec::new()), ..on_device(0, 1) }]),
            Introduction { reach: None, ..on_devices(vec![on_device(0, 1)]) },
            Introduction { reach: Some(PeerReach::Network), ..exporting(1) },
            Introduction { reach: exporting(1).reach, ..on_devices(vec![on_device(0, 1)]) },
            Introduction { name: Some("a/b".to_owned()), ..said() },
            Introduction { name: Some("node3".to_owned()), ..said() },
            Introduction {
                topology: said().topology.replace("\"count\":1", "\"count\":0"),
                ..said()
            },
        ];
        for said in wrong {
            assert!(known.hear(NodeId(1), said.clone()).is_err(), "{said:?}");
        }
        assert!(!known.knows(NodeId(1)));
    }
}
