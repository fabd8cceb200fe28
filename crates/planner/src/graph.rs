//! The transfer graph of the two end nodes (paper, section 4.1).

use crate::{Options, PlanError};
use model::{
    ChannelId, ChannelKind, Curves, LinkEnd, MemoryId, MemoryKind, NodeId, Topology, Wire,
};

/// The most memories of a graph.
const MAX_MEMORIES: usize = 128;

/// The most channels and links of a graph.
const MAX_LANES: usize = 250;

/// What one channel or link gives all its edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<'t> {
    pub(crate) id: ChannelId,
    pub(crate) kind: ChannelKind,
    pub(crate) curves: &'t Curves,
    pub(crate) latency_ns: u64,
    pub(crate) in_flight: Option<u32>,
    pub(crate) wire: Option<WireRef>,
    pub(crate) peak: f64,
}

/// A wire that a lane crosses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireRef {
    node: NodeId,
    /// Its position in the node's class.
    index: u16,
    pub(crate) rate: f64,
    pub(crate) half_duplex: bool,
}

impl WireRef {
    pub(crate) fn is(&self, other: &WireRef) -> bool {
        (self.node, self.index) == (other.node, other.index)
    }
}

impl<'t> Lane<'t> {
    fn new(
        id: ChannelId,
        kind: ChannelKind,
        curves: &'t Curves,
        (latency_ns, in_flight): (u64, Option<u32>),
    ) -> Lane<'t> {
        let peak = curves.run.peak();
        Lane { id, kind, curves, latency_ns, in_flight, wire: None, peak }
    }

    /// The seconds that a byte of a hop that reaches `rate` keeps its half-duplex wire busy; those
    /// of the hop where it crosses none.
    pub(crate) fn busy_seconds(&self, rate: f64) -> f64 {
        let wire = self.wire.filter(|wire| wire.half_duplex);
        wire.map_or(1.0 / rate, |wire| (1.0 / rate).max(1.0 / wire.rate))
    }

    /// Whether hops on this lane and on `other` keep each other from working at once: they share
    /// the channel or a half-duplex wire.
    pub(crate) fn excludes(&self, other: &Lane<'_>) -> bool {
        let shares = |wire: &WireRef| other.wire.is_some_and(|w| wire.half_duplex && w.is(wire));
        self.id == other.id || self.wire.as_ref().is_some_and(shares)
    }
}

/// A channel between one pair of memories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) lane: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vertex {
    pub(crate) id: MemoryId,
    pub(crate) kind: MemoryKind,
    /// `TH`; 0 where the memory is never an intermediate.
    pub(crate) th_bytes: u64,
    /// Where its edges start in the list of all.
    first: u16,
    end: u16,
}

/// Memories of the nodes that a search visits, and the channels between them, in file order.
#[derive(Debug)]
pub(crate) struct Graph<'t> {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) lanes: Vec<Lane<'t>>,
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
            edges: Vec::with_capacity(96),
            lanes: Vec::with_capacity(32),
            src: 0,
            dst: 0,
        };
        let mut firsts = Vec::with_capacity(nodes.len());
        for &node in nodes {
            firsts.push(small(graph.vertices.len()));
            graph.add_memories(topology, node, options)?;
        }
        for (&node, &first) in nodes.iter().zip(&firsts) {
            graph.add_channels(topology, node, first);
        }
        graph.add_links(topology, nodes, &firsts);
        if graph.lanes.len() > MAX_LANES || graph.edges.len() > usize::from(u16::MAX) {
            return Err(PlanError::Query { why: "the nodes have more than 250 channels" });
        }
        graph.src = graph.vertex(ends.0)?;
        graph.dst = graph.vertex(ends.1)?;
        graph.sort_edges();
        Ok(graph)
    }

    fn vertex(&self, id: MemoryId) -> Result<u8, PlanError> {
        let found = self.vertices.iter().position(|v| v.id == id);
        found.map(small).ok_or(PlanError::UnknownMemory { memory: id })
    }

    fn add_memories(
        &mut self,
        topology: &Topology,
        node: NodeId,
        options: &Options,
    ) -> Result<(), PlanError> {
        let Some((class, _)) = topology.class_of(node) else { return Ok(()) };
        for (index, memory) in (0..).zip(&topology.classes[class].memories) {
            let own = memory.th_bytes.unwrap_or(topology.th_bytes);
            let th_bytes = if own == 0 { 0 } else { options.th_bytes.unwrap_or(own) };
            let id = MemoryId { node, index };
            self.vertices.push(Vertex { id, kind: memory.kind, th_bytes, first: 0, end: 0 });
        }
        if self.vertices.len() > MAX_MEMORIES {
            return Err(PlanError::Query { why: "the nodes have more than 128 memories" });
        }
        Ok(())
    }

    fn add_channels(&mut self, topology: &'t Topology, node: NodeId, first: u8) {
        let Some((class, _)) = topology.class_of(node) else { return };
        let class = &topology.classes[class];
        for (index, channel) in (0..).zip(&class.channels) {
            let wire = channel.wire.and_then(|at| {
                let &Wire { rate, half_duplex, .. } = class.wires.get(usize::from(at))?;
                Some(WireRef { node, index: at, rate, half_duplex })
            });
            let (id, timing) = (ChannelId { node, index }, (channel.latency_ns, channel.in_flight));
            let lane = Lane::new(id, channel.kind, &channel.curves, timing);
            let lane = self.add_lane(Lane { wire, ..lane });
            for &from in &channel.from {
                for &to in &channel.to {
                    let (from, to) = (first + from as u8, first + to as u8);
                    self.edges.push(Edge { from, to, lane });
                }
            }
        }
    }

    fn add_links(&mut self, topology: &'t Topology, nodes: &[NodeId], firsts: &[u8]) {
        for (at, &node) in nodes.iter().enumerate() {
            let Some((class, _)) = topology.class_of(node) else { continue };
            let channels = topology.classes[class].channels.len();
            for (number, link) in topology.links.iter().enumerate() {
                let here = |end: &&LinkEnd| usize::from(end.class) == class;
                if nodes.len() == 1 || !link.from.iter().any(|end| here(&end)) {
                    continue;
                }
                let index = u16::try_from(channels + number).unwrap_or(u16::MAX);
                let (id, timing) = (ChannelId { node, index }, (link.latency_ns, link.in_flight));
                let lane = self.add_lane(Lane::new(id, link.kind, &link.curves, timing));
                for from in link.from.iter().filter(here) {
                    let from = firsts[at] + from.memory as u8;
                    self.add_link_edges(topology, (nodes, firsts), (at, from, lane), &link.to);
                }
            }
        }
    }

    fn add_link_edges(
        &mut self,
        topology: &Topology,
        (nodes, firsts): (&[NodeId], &[u8]),
        (at, from, lane): (usize, u8, u8),
        to: &[LinkEnd],
    ) {
        for (other, (&node, &first)) in nodes.iter().zip(firsts).enumerate() {
            let class = topology.class_of(node).map(|(class, _)| class);
            for end in to.iter().filter(|e| other != at && Some(usize::from(e.class)) == class) {
                self.edges.push(Edge { from, to: first + end.memory as u8, lane });
            }
        }
    }

    fn add_lane(&mut self, lane: Lane<'t>) -> u8 {
        self.lanes.push(lane);
        small(self.lanes.len() - 1)
    }

    /// Groups edges by their start; within a group they stay in file order.
    fn sort_edges(&mut self) {
        for edge in &self.edges {
            self.vertices[usize::from(edge.from)].end += 1;
        }
        let mut at = 0;
        for vertex in &mut self.vertices {
            (vertex.first, at) = (at, at + vertex.end);
            vertex.end = vertex.first;
        }
        let mut sorted = self.edges.clone();
        for &edge in &self.edges {
            let vertex = &mut self.vertices[usize::from(edge.from)];
            sorted[usize::from(vertex.end)] = edge;
            vertex.end += 1;
        }
        self.edges = sorted;
    }

    /// The edges that start at `vertex`, with their positions.
    pub(crate) fn out(&self, vertex: u8) -> impl Iterator<Item = (u16, Edge)> {
        let v = &self.vertices[usize::from(vertex)];
        (v.first..v.end)
            .zip(&self.edges[usize::from(v.first)..usize::from(v.end)])
            .map(|(i, &edge)| (i, edge))
    }

    pub(crate) fn edge(&self, edge: u16) -> Edge {
        self.edges[usize::from(edge)]
    }

    pub(crate) fn lane(&self, edge: u16) -> &Lane<'t> {
        &self.lanes[usize::from(self.edge(edge).lane)]
    }

    pub(crate) fn th_bytes(&self, vertex: u8) -> u64 {
        self.vertices[usize::from(vertex)].th_bytes
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
            return chain_through(topology, (src, dst), class, &before);
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

fn chain_through(
    topology: &Topology,
    (src, dst): (NodeId, NodeId),
    last: usize,
    before: &[Option<usize>],
) -> Option<Vec<NodeId>> {
    let mut chain = vec![dst];
    let mut class = last;
    while let Some(previous) = before[class] {
        let first: u32 = topology.classes[..class].iter().map(|c| c.count).sum();
        let nodes = (first..first + topology.classes[class].count).map(NodeId);
        chain.push(nodes.into_iter().find(|n| *n != src && *n != dst)?);
        class = previous;
    }
    chain.push(src);
    chain.reverse();
    Some(chain)
}

fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}
