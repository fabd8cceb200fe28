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
    /// Whose were taken out of these to be closed, once for each.
    closing: Vec<NodeId>,
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

    /// Rooms that `node` has withdrawn are to be closed as soon as no job has them.
    pub(super) fn withdraw(&mut self, node: NodeId, rooms: Vec<Arc<Region>>) {
        self.withdrawn.extend(rooms.into_iter().map(|room| (node, room)));
    }

    /// Takes out what nodes have withdrawn and no job has: who drops it, and so closes it, says that by
    /// [`Known::closed`].
    pub(super) fn take_withdrawn(&mut self) -> Vec<(NodeId, Arc<Region>)> {
        let is_idle = |(_, room): &mut (NodeId, Arc<Region>)| Exported::is_idle(room);
        let taken: Vec<_> = self.withdrawn.extract_if(.., is_idle).collect();
        self.closing.extend(taken.iter().map(|(node, _)| *node));
        taken
    }

    /// What was taken out is closed: once for each, whose it was. Returns those of which that was the last.
    pub(super) fn closed(&mut self, nodes: Vec<NodeId>) -> BTreeSet<NodeId> {
        for node in &nodes {
            let at = self.closing.iter().position(|closing| closing == node);
            self.closing.swap_remove(at.expect("it was taken out"));
        }
        let left = || self.withdrawn.iter().map(|(left, _)| left).chain(&self.closing);
        nodes.into_iter().filter(|node| !left().any(|left| left == node)).collect()
    }

    /// The rooms of a node that others open.
    pub(super) fn exported(&self, node: NodeId) -> Vec<RegionId> {
        let rooms = self.said(node).into_iter().flat_map(|said| &said.rooms);
        let exported = rooms.filter(|room| matches!(room.way, Way::Opened(_)));
        exported.map(|room| room.region).collect()
    }

    /// Forgets the rooms of a node that is lost, and returns them: what is open of them is closed with the last
    /// copy, and once they are dropped.
    pub(super) fn lose(&mut self, node: NodeId) -> Vec<Arc<Region>> {
        let is_its = |(whose, _): &mut (NodeId, Arc<Region>)| *whose == node;
        let withdrawn = self.withdrawn.extract_if(.., is_its).map(|(_, room)| room);
        let mut rooms: Vec<_> = withdrawn.collect();
        self.lost.insert(node);
        if let Some(Some(node)) = self.nodes.get_mut(node.0 as usize) {
            rooms.extend(node.rooms.drain(..).map(|(_, room)| room));
        }
        // Those may be linked now that were not since it was of one process with another.
        self.generation += 1;
        rooms
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
mod tests;
