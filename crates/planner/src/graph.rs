//! The transfer graph of the two end nodes (paper, section 4.1).

mod busy;

use crate::{Options, PlanError};
use model::{
    Channel, ChannelId, ChannelKind, Curves, Link, LinkEnd, MemoryId, MemoryKind, NodeClass,
    NodeId, Topology, WireId,
};
use std::borrow::Cow;

/// The most memories of a graph.
pub(crate) const MAX_MEMORIES: usize = 64;

/// The most channels and links of a graph.
const MAX_LANES: usize = 250;

/// What one channel or link gives all its edges.
#[derive(Clone, Debug)]
pub(crate) struct Lane<'t> {
    pub(crate) id: ChannelId,
    pub(crate) kind: ChannelKind,
    pub(crate) curves: Cow<'t, Curves>,
    pub(crate) latency_ns: u64,
    pub(crate) in_flight: Option<u32>,
    pub(crate) crosses: Crosses,
    /// The vertices where its edges start and end, as bits.
    from: u64,
    to: u64,
    ends: Ends<'t>,
}

/// Where the edges of a lane end, in file order.
#[derive(Clone, Copy, Debug)]
enum Ends<'t> {
    /// At these memories of the node whose first vertex this is.
    Here(u8, &'t [u16]),
    /// At these ends of a link, on all nodes but this one.
    Far(NodeId, &'t [LinkEnd]),
}

/// The wires that the hops of a lane cross.
#[derive(Clone, Debug)]
pub(crate) enum Crosses {
    /// The one of a channel inside a node, if it has any.
    Own(Option<WireRef>),
    /// The ports of the memories at both ends, of a link; and of those that others use, the part
    /// that is left of it.
    Ports(Vec<(Way, f64)>),
}

/// A wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireRef {
    pub(crate) id: WireId,
    pub(crate) rate: f64,
    pub(crate) half_duplex: bool,
}

impl WireRef {
    fn of(site: &Site<'_>, index: u16) -> Option<WireRef> {
        let wire = site.class.wires.get(usize::from(index))?;
        let id = WireId { node: site.node, index };
        Some(WireRef { id, rate: wire.rate, half_duplex: wire.half_duplex })
    }
}

/// A wire in one direction: towards its node's host memories, or from other nodes; or not.
pub(crate) type Way = (WireId, bool);

impl<'t> Lane<'t> {
    fn of_channel(channel: &'t Channel, index: u16, site: &Site<'t>) -> Lane<'t> {
        let wire = channel.wire.and_then(|index| WireRef::of(site, index));
        Lane {
            id: ChannelId { node: site.node, index },
            kind: channel.kind,
            curves: Cow::Borrowed(&channel.curves),
            latency_ns: channel.latency_ns,
            in_flight: channel.in_flight,
            crosses: Crosses::Own(wire),
            from: site.bits(channel.from.iter().copied()),
            to: site.bits(channel.to.iter().copied()),
            ends: Ends::Here(site.vertices, &channel.to),
        }
    }

    /// What of a link starts at `starts`, which are joined to the same ends.
    fn of_link(
        (link, index): (&'t Link, u16),
        starts: &[LinkEnd],
        site: &Site<'t>,
        sites: &[Site<'t>],
    ) -> Lane<'t> {
        let here = starts.iter().filter(|end| site.is_of(end));
        let ends = link.to.iter().filter(|&&end| link.joins(starts[0], end));
        Lane {
            id: ChannelId { node: site.node, index },
            kind: link.kind,
            curves: Cow::Borrowed(&link.curves),
            latency_ns: link.latency_ns,
            in_flight: link.in_flight,
            crosses: Crosses::Ports(Vec::new()),
            from: site.bits(here.map(|end| end.memory)),
            to: far_ends(sites, site.node, ends).fold(0, |bits, vertex| bits | 1 << vertex),
            ends: Ends::Far(site.node, &link.to),
        }
    }

    /// The rate of the largest requests.
    pub(crate) fn peak(&self) -> f64 {
        self.curves.run.peak()
    }

    /// The seconds that a byte of a hop that reaches `rate` keeps its half-duplex wire busy; those
    /// of the hop where it crosses none.
    pub(crate) fn busy_seconds(&self, rate: f64) -> f64 {
        let wire = self.wire().filter(|wire| wire.half_duplex);
        wire.map_or(1.0 / rate, |wire| (1.0 / rate).max(1.0 / wire.rate))
    }

    /// The part of a port that others leave.
    fn left_of(&self, way: Way) -> f64 {
        let Crosses::Ports(left) = &self.crosses else { return 1.0 };
        left.iter().find(|(port, _)| *port == way).map_or(1.0, |(_, part)| *part)
    }

    /// The wire of a channel inside a node.
    fn wire(&self) -> Option<WireRef> {
        match self.crosses {
            Crosses::Own(wire) => wire,
            Crosses::Ports(_) => None,
        }
    }

    /// Whether hops on this lane and on `other` keep each other from working at once: they share
    /// the channel or a half-duplex wire.
    pub(crate) fn excludes(&self, other: &Lane<'_>) -> bool {
        let shares =
            |wire: WireRef| wire.half_duplex && other.wire().is_some_and(|w| w.id == wire.id);
        self.id == other.id || self.wire().is_some_and(shares)
    }
}

/// A channel between one pair of memories, ordered by its start, then as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: u8,
    pub(crate) lane: u8,
    /// Its place among the edges of its lane and start.
    order: u8,
    pub(crate) to: u8,
}

impl Edge {
    pub(crate) const NONE: Edge = Edge { from: 0, lane: 0, order: 0, to: 0 };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vertex {
    pub(crate) id: MemoryId,
    pub(crate) kind: MemoryKind,
    /// `TH`; 0 where the memory is never an intermediate.
    pub(crate) th_bytes: u64,
    /// The wire by which other nodes reach it.
    port: Option<WireRef>,
}

/// A node of the graph.
#[derive(Clone, Copy, Debug)]
struct Site<'t> {
    node: NodeId,
    class: &'t NodeClass,
    /// The position of the class in the topology.
    index: usize,
    /// The vertex of its first memory.
    vertices: u8,
}

impl Site<'_> {
    fn vertex(&self, memory: u16) -> u8 {
        self.vertices + memory as u8
    }

    fn bits(&self, memories: impl Iterator<Item = u16>) -> u64 {
        memories.fold(0, |bits, memory| bits | 1 << memory) << self.vertices
    }

    /// Whether a link's end is at nodes like this.
    fn is_of(&self, end: &LinkEnd) -> bool {
        usize::from(end.class) == self.index
    }
}

/// Memories of the nodes that a search visits, and the channels between them, in file order.
#[derive(Debug)]
pub(crate) struct Graph<'t> {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) lanes: Vec<Lane<'t>>,
    sites: Vec<Site<'t>>,
    pub(crate) src: u8,
    pub(crate) dst: u8,
}

impl<'t> Graph<'t> {
    /// The graph of `nodes`, which hold `src` and `dst`.
    pub(crate) fn of(
        topology: &'t Topology,
        nodes: &[NodeId],
        ends: (MemoryId, MemoryId),
        options: &Options,
    ) -> Result<Graph<'t>, PlanError> {
        let mut graph = Graph {
            vertices: Vec::with_capacity(16),
            lanes: Vec::with_capacity(32),
            sites: Vec::with_capacity(nodes.len()),
            src: 0,
            dst: 0,
        };
        for &node in nodes {
            graph.add_node(topology, node, options)?;
        }
        let several = graph.sites.len() > 1;
        for site in graph.sites.iter().filter(|_| several) {
            let first = ChannelId::FIRST_LINK..=u16::MAX;
            for (index, link) in first.zip(&topology.links) {
                let starts = link.starts().filter(|starts| starts.iter().any(|s| site.is_of(s)));
                let lane = |starts| Lane::of_link((link, index), starts, site, &graph.sites);
                graph.lanes.extend(starts.map(lane));
            }
        }
        if graph.lanes.len() > MAX_LANES {
            return Err(PlanError::Query { why: "the nodes have more than 250 channels" });
        }
        graph.src = graph.vertex(ends.0)?;
        graph.dst = graph.vertex(ends.1)?;
        Ok(graph)
    }

    fn vertex(&self, id: MemoryId) -> Result<u8, PlanError> {
        let found = self.vertices.iter().position(|v| v.id == id);
        found.map(small).ok_or(PlanError::UnknownMemory { memory: id })
    }

    /// The memories and channels of `node`.
    fn add_node(
        &mut self,
        topology: &'t Topology,
        node: NodeId,
        options: &Options,
    ) -> Result<(), PlanError> {
        let Some((index, _)) = topology.class_of(node) else { return Ok(()) };
        let class = &topology.classes[index];
        let site = Site { node, index, class, vertices: small(self.vertices.len()) };
        for (index, memory) in (0..).zip(&class.memories) {
            let th_bytes = match options.th_bytes {
                Some(th_bytes) => th_bytes.min(memory.th_bytes.unwrap_or(u64::MAX)),
                None => memory.th_bytes.unwrap_or(topology.th_bytes),
            };
            let id = MemoryId { node, index };
            let port = memory.port.and_then(|port| WireRef::of(&site, port));
            self.vertices.push(Vertex { id, kind: memory.kind, th_bytes, port });
        }
        if self.vertices.len() > MAX_MEMORIES {
            return Err(PlanError::Query { why: "the nodes have more than 64 memories" });
        }
        let lane = |(index, channel)| Lane::of_channel(channel, index, &site);
        self.lanes.extend((0..).zip(&class.channels).map(lane));
        self.sites.push(site);
        Ok(())
    }

    /// Calls `take` with each edge from a vertex of `from` to one of `to`, both as bits: by the
    /// order of the channels, then the links, in the file.
    pub(crate) fn each_edge(&self, from: u64, to: u64, mut take: impl FnMut(Edge)) {
        let joins = |(_, lane): &(u8, &Lane<'_>)| lane.from & from != 0 && lane.to & to != 0;
        for (at, lane) in (0..).zip(&self.lanes).filter(joins) {
            for from in members(lane.from & from) {
                let mut offer = |order, end: u8| {
                    if to & lane.to & 1 << end != 0 {
                        take(Edge { from, lane: at, order, to: end });
                    }
                };
                match lane.ends {
                    Ends::Here(first, ends) => {
                        (0..).zip(ends).for_each(|(order, &end)| offer(order, first + end as u8));
                    }
                    Ends::Far(node, ends) => {
                        let ends = far_ends(&self.sites, node, ends.iter());
                        (0..).zip(ends).for_each(|(order, end)| offer(order, end));
                    }
                }
            }
        }
    }

    /// The vertices that edges from `vertices` lead to, all as bits.
    pub(crate) fn after(&self, vertices: u64) -> u64 {
        let leads = self.lanes.iter().filter(|lane| lane.from & vertices != 0);
        leads.fold(0, |bits, lane| bits | lane.to)
    }

    /// The vertices from which edges lead to `vertices`, all as bits.
    pub(crate) fn before(&self, vertices: u64) -> u64 {
        let leads = self.lanes.iter().filter(|lane| lane.to & vertices != 0);
        leads.fold(0, |bits, lane| bits | lane.from)
    }

    pub(crate) fn lane(&self, edge: Edge) -> &Lane<'t> {
        &self.lanes[usize::from(edge.lane)]
    }

    /// The wires that a hop on `edge` crosses, each with the direction and what it has for the hop
    /// in bytes per second.
    pub(crate) fn crossings(&self, edge: Edge) -> impl Iterator<Item = (WireRef, bool)> + '_ {
        let [from, to] = [edge.from, edge.to].map(|end| &self.vertices[usize::from(end)]);
        let lane = self.lane(edge);
        let all = match &lane.crosses {
            Crosses::Own(wire) => [wire.map(|wire| (wire, to.kind.is_host())), None],
            Crosses::Ports(_) => {
                [from.port.map(|wire| (wire, false)), to.port.map(|wire| (wire, true))]
            }
        };
        all.into_iter().flatten().map(|(wire, to_host)| {
            (WireRef { rate: wire.rate * lane.left_of((wire.id, to_host)), ..wire }, to_host)
        })
    }

    /// The vertices that may hold intermediates, as bits.
    pub(crate) fn intermediates(&self) -> u64 {
        let vertices = (0..).zip(&self.vertices).filter(|(_, v)| v.th_bytes > 0);
        vertices.fold(0, |bits, (at, _): (u8, _)| bits | 1 << at)
    }

    pub(crate) fn th_bytes(&self, vertex: u8) -> u64 {
        self.vertices[usize::from(vertex)].th_bytes
    }
}

/// The members of a set of bits, ascending.
fn members(mut set: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let first = set.trailing_zeros() as u8;
        set &= set.wrapping_sub(1);
        (first < 64).then_some(first)
    })
}

/// The vertices of the ends of a link on all nodes but `node`.
fn far_ends<'a>(
    sites: &'a [Site<'_>],
    node: NodeId,
    to: impl Iterator<Item = &'a LinkEnd> + Clone + 'a,
) -> impl Iterator<Item = u8> + 'a {
    sites.iter().filter(move |site| site.node != node).flat_map(move |site| {
        let ends = to.clone().filter(|end| site.is_of(end));
        ends.map(|end| site.vertex(end.memory))
    })
}

/// All edges of a graph, for searches that ask for those of a vertex many times.
#[derive(Debug)]
pub(crate) struct Edges {
    pub(crate) all: Vec<Edge>,
    /// For each vertex, where its edges start and end.
    ranges: Vec<(usize, usize)>,
}

impl Edges {
    pub(crate) fn of(graph: &Graph<'_>) -> Edges {
        let count = graph.vertices.len();
        let mut edges =
            Edges { all: Vec::with_capacity(8 * count), ranges: Vec::with_capacity(count) };
        for vertex in 0..small(count) {
            let first = edges.all.len();
            graph.each_edge(1 << vertex, u64::MAX, |edge| edges.all.push(edge));
            edges.ranges.push((first, edges.all.len()));
        }
        edges
    }

    /// The edges that start at `vertex`, in file order.
    pub(crate) fn out(&self, vertex: u8) -> &[Edge] {
        let (first, end) = self.ranges[usize::from(vertex)];
        &self.all[first..end]
    }
}

/// The nodes that a search visits: the two ends', or, where no link joins these, a shortest chain
/// of nodes between them.
pub(crate) fn nodes_between(topology: &Topology, src: NodeId, dst: NodeId) -> Vec<NodeId> {
    if src == dst {
        return vec![src];
    }
    chain_of_classes(topology, src, dst).unwrap_or_else(|| vec![src, dst])
}

/// A shortest chain by links, with one more node of a class for each step through it.
fn chain_of_classes(topology: &Topology, src: NodeId, dst: NodeId) -> Option<Vec<NodeId>> {
    let (from, _) = topology.class_of(src)?;
    let (to, _) = topology.class_of(dst)?;
    let joins = |a: usize, b: usize| {
        let has = |ends: &[LinkEnd], class| ends.iter().any(|e| usize::from(e.class) == class);
        topology.links.iter().any(|l| has(&l.from, a) && has(&l.to, b))
    };
    if joins(from, to) {
        return Some(vec![src, dst]);
    }
    let mut before = vec![None; topology.classes.len()];
    let mut queue = std::collections::VecDeque::from([from]);
    while let Some(class) = queue.pop_front() {
        if joins(class, to) {
            return Some(chain_through(topology, (src, dst), class, &before));
        }
        for (next, previous) in before.iter_mut().enumerate() {
            if next != from && previous.is_none() && joins(class, next) {
                *previous = Some(class);
                queue.push_back(next);
            }
        }
    }
    None
}

/// The chain whose last class before the destination is `last`, with the first node of each class:
/// none of these is an end's, since the search never comes back to the one, and ends at the other.
fn chain_through(
    topology: &Topology,
    (src, dst): (NodeId, NodeId),
    last: usize,
    before: &[Option<usize>],
) -> Vec<NodeId> {
    let mut chain = vec![dst];
    let mut class = last;
    while let Some(previous) = before[class] {
        chain.push(NodeId(topology.classes[..class].iter().map(|c| c.count).sum()));
        class = previous;
    }
    chain.push(src);
    chain.reverse();
    chain
}

fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
