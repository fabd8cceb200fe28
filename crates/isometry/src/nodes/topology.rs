//! Nodes as one cluster: classes of those that look alike, and the links between all of them.

use model::{
    ChannelKind, Curves, Link, LinkEnd, Memory, MemoryId, MemoryKind, NodeClass, Throughput,
    Topology, Wire,
};
use std::collections::BTreeSet;

/// What registered memory is called.
pub(crate) const REG: &str = "reg";

/// What nodes are called, with their rank, unless they have names.
pub(crate) const NODE: &str = "node";

/// What a node's only core is called.
const CORE: &str = "core";

/// What a put of one run between devices is taken to cost, however short it is.
const PUT_SECONDS: f64 = 2e-6;

/// What puts from one node to another reach.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkRates {
    pub(crate) curves: Curves,
    pub(crate) latency_ns: u64,
}

impl LinkRates {
    /// What was measured of a link, if that was.
    pub(crate) fn of(link: Link) -> Option<LinkRates> {
        let Link { curves, latency_ns, .. } = link;
        (!link.assumed).then_some(LinkRates { curves, latency_ns })
    }

    /// What puts between devices are taken to reach over this link: the same bytes, and each run by itself.
    fn by_runs(&self) -> LinkRates {
        let points = self.curves.run.points().iter();
        let points = points.map(|&(bytes, rate)| (bytes, rate.min(bytes as f64 / PUT_SECONDS)));
        let run = Throughput::measured(points.collect());
        let run = run.unwrap_or_else(|_| unreachable!("the sizes ascend, as before"));
        LinkRates { curves: Curves::all(run), latency_ns: self.latency_ns }
    }
}

/// Adds registered memory to a node, which Memcpy reaches as it reaches the rest.
pub(crate) fn add_registered(class: &mut NodeClass, bytes: u64) {
    let index = u16::try_from(class.memories.len()).unwrap_or(u16::MAX);
    class.memories.push(Memory {
        name: REG.to_owned(),
        kind: MemoryKind::Reg,
        capacity_bytes: Some(bytes),
        th_bytes: None,
        port: None,
    });
    for memcpy in class.channels.iter_mut().filter(|c| c.kind == ChannelKind::Memcpy) {
        memcpy.from.push(index);
        memcpy.to.push(index);
    }
}

/// What stands for a node that has not said what it is.
pub(crate) fn unknown() -> NodeClass {
    let (memories, channels, wires) = (Vec::new(), Vec::new(), Vec::new());
    NodeClass { name: NODE.to_owned(), first: 0, count: 1, memories, channels, wires }
}

/// Has Memcpy and links take turns where a node has one core for both, which they would share. What
/// the core of the other end does for a link is not counted.
pub(crate) fn share_core(class: &mut NodeClass) {
    let index = u16::try_from(class.wires.len()).unwrap_or(u16::MAX);
    let mut rate = 0.0f64;
    for memcpy in class.channels.iter_mut().filter(|c| c.kind == ChannelKind::Memcpy) {
        memcpy.wire = Some(index);
        rate = rate.max(memcpy.curves.run.peak());
    }
    if rate == 0.0 {
        return;
    }
    class.wires.push(Wire { name: CORE.to_owned(), rate, half_duplex: true });
    for memory in class.memories.iter_mut().filter(|m| m.kind == MemoryKind::Sys) {
        memory.port = Some(index);
    }
}

/// A node as it is among others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) class: NodeClass,
    /// Its memories of devices that put to those of others where these are, and those that are put to.
    pub(crate) putting: Vec<u16>,
    pub(crate) rooms: Vec<u16>,
    /// Which of the nodes these devices reach: those of the same group.
    pub(crate) group: u16,
    /// Memories of others that are not put to from one of its own all the same.
    pub(crate) apart: Vec<(u16, MemoryId)>,
}

impl Member {
    /// A node whose devices nobody else reaches.
    pub(crate) fn alone(class: NodeClass) -> Member {
        Member { class, putting: Vec::new(), rooms: Vec::new(), group: 0, apart: Vec::new() }
    }
}

/// The places of links among all: from host memory to registered memory, and between devices.
pub(crate) const LINK_OF_HOSTS: usize = 0;
pub(crate) const LINK_OF_DEVICES: usize = 1;

/// The cluster of these nodes, in the order of their ranks: neighbours that look alike are a class,
/// and host memory of each is linked to registered memory of all others. That is for what comes in:
/// nothing goes faster from there. Devices that others reach where they are are linked to each other, group by
/// group. A node that some device does not reach is a class of its own.
pub(crate) fn cluster(
    nodes: &[Member],
    generation: u64,
    th_bytes: u64,
    rates: Option<LinkRates>,
) -> Topology {
    let apart = nodes.iter().flat_map(|node| &node.apart);
    let apart: BTreeSet<u32> = apart.map(|(_, there)| there.node.0).collect();
    let stand_out = |ranks: [u32; 2]| ranks.iter().any(|rank| apart.contains(rank));
    let mut members: Vec<Member> = Vec::new();
    for (rank, node) in (0..).zip(nodes) {
        match members.last_mut() {
            Some(member) if !stand_out([member.class.first, rank]) && looks_like(member, node) => {
                member.class.count += 1;
            }
            _ => {
                let class = NodeClass { first: rank, count: 1, ..node.class.clone() };
                members.push(Member { class, ..node.clone() });
            }
        }
    }
    let is_assumed = rates.is_none();
    let rates = rates.unwrap_or_else(assumed);
    let of_devices = rates.by_runs();
    let from = ends(&members, |_, memory| memory.kind.is_host() && memory.kind != MemoryKind::Reg);
    let to = ends(&members, |_, memory| memory.kind == MemoryKind::Reg);
    let mut links = vec![link((from, to), rates, is_assumed)];
    let from = ends(&members, |(member, index), _| member.putting.contains(&index));
    let to = ends(&members, |(member, index), _| member.rooms.contains(&index));
    if !from.is_empty() && !to.is_empty() {
        let (groups, except) = (groups(&members), exceptions(&members));
        links.push(Link { groups, except, ..link((from, to), of_devices, true) });
    }
    let classes = members.into_iter().map(|member| member.class).collect();
    Topology { name: format!("{} nodes", nodes.len()), generation, th_bytes, classes, links }
}

/// The memories that are ends of a link.
fn ends(members: &[Member], is_end: impl Fn((&Member, u16), &Memory) -> bool) -> Vec<LinkEnd> {
    let of_class = |(class, member): (u16, &Member)| {
        let memories = (0..).zip(&member.class.memories);
        let memories = memories.filter(|(index, memory)| is_end((member, *index), memory));
        memories.map(|(memory, _)| LinkEnd { class, memory }).collect::<Vec<_>>()
    };
    (0..).zip(members).flat_map(of_class).collect()
}

/// The group of each class, where devices are of several.
fn groups(members: &[Member]) -> Vec<u16> {
    let linked = members.iter().filter(|member| !member.rooms.is_empty());
    let several = linked.map(|member| member.group).collect::<BTreeSet<_>>().len() > 1;
    members.iter().filter(|_| several).map(|member| member.group).collect()
}

/// The pairs of ends of which the one does not reach the other.
fn exceptions(members: &[Member]) -> Vec<[LinkEnd; 2]> {
    let of_class = |(class, member): (u16, &Member)| {
        let pair = |&(memory, there): &(u16, MemoryId)| {
            let is_there = |member: &Member| member.class.first == there.node.0;
            let far = members.iter().position(is_there).and_then(|at| u16::try_from(at).ok())?;
            Some([LinkEnd { class, memory }, LinkEnd { class: far, memory: there.index }])
        };
        member.apart.iter().filter_map(pair).collect::<Vec<_>>()
    };
    (0..).zip(members).flat_map(of_class).collect()
}

fn link((from, to): (Vec<LinkEnd>, Vec<LinkEnd>), rates: LinkRates, assumed: bool) -> Link {
    let LinkRates { curves, latency_ns } = rates;
    let kind = ChannelKind::RemoteMemcpy;
    let (groups, except, in_flight) = (Vec::new(), Vec::new(), None);
    Link { kind, from, to, groups, except, curves, latency_ns, in_flight, assumed }
}

fn looks_like(member: &Member, node: &Member) -> bool {
    let alone = |it: &Member| {
        let class = NodeClass { first: 0, count: 1, ..it.class.clone() };
        Member { class, ..it.clone() }
    };
    alone(member) == alone(node)
}

/// What a core copies into memory that a process of this machine maps.
fn assumed() -> LinkRates {
    let curve = |points: &[(u64, f64)]| {
        let curve = Throughput::measured(points.to_vec());
        curve.unwrap_or_else(|_| unreachable!("the points ascend"))
    };
    let curves = Curves {
        run: curve(&[(16, 0.2e9), (256, 2e9), (4096, 5e9), (1 << 18, 7e9)]),
        interleave: Some(curve(&[(1, 0.2e9), (4, 0.8e9), (64, 3e9)])),
        transpose: Some(curve(&[(1, 0.15e9), (4, 0.6e9), (64, 3e9)])),
        gather: Some(curve(&[(4, 0.2e9), (64, 2e9), (4096, 5e9)])),
    };
    LinkRates { curves, latency_ns: 30_000 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ChannelId, MemoryId, NodeId};

    fn node(memories: usize) -> Member {
        let memory = |i: usize| Memory {
            name: format!("sys{i}"),
            kind: MemoryKind::Sys,
            capacity_bytes: None,
            th_bytes: None,
            port: None,
        };
        let memories = (0..memories).map(memory).collect();
        let (channels, wires) = (Vec::new(), Vec::new());
        let name = "node".to_owned();
        let mut class = NodeClass { name, first: 0, count: 1, memories, channels, wires };
        add_registered(&mut class, 64);
        Member::alone(class)
    }

    #[test]
    fn neighbours_that_look_alike_are_a_class_and_keep_their_ranks() {
        let topology = cluster(&[node(1), node(1), node(2), node(1)], 7, 1 << 20, None);
        let counts: Vec<_> = topology.classes.iter().map(|c| (c.first, c.count)).collect();
        assert_eq!(counts, [(0, 2), (2, 1), (3, 1)]);
        for rank in 0..4 {
            let name = topology.node_name(NodeId(rank)).unwrap();
            assert_eq!(name, format!("node{rank}"));
            let id = ChannelId::of_link(NodeId(rank), 0).unwrap();
            assert_eq!(topology.link(id).unwrap().kind, ChannelKind::RemoteMemcpy);
        }
        let reg = topology.memory_named("node2.reg").unwrap();
        assert_eq!(reg, MemoryId { node: NodeId(2), index: 2 });
        assert_eq!((topology.links[0].from.len(), topology.links[0].to.len()), (4, 3));
        // What links join is written by names, and so in another order.
        let again = ::cluster::parse_json(&::cluster::to_json(&topology).to_string()).unwrap();
        assert_eq!(again.classes, topology.classes);
        let [link, before] = [&again.links[0], &topology.links[0]];
        assert!(before.from.iter().all(|end| link.from.contains(end)));
        assert_eq!((link.from.len(), &link.to), (4, &before.to));
    }

    #[test]
    fn devices_are_linked_by_puts_of_runs() {
        let rates = || {
            let run = Throughput::measured(vec![(16, 1e9), (1 << 20, 5e9)]).unwrap();
            Some(LinkRates {
                curves: Curves { transpose: Some(run.clone()), ..Curves::all(run) },
                latency_ns: 7,
            })
        };
        let reached = |putting, rooms| Member { putting, rooms, group: 3, ..node(2) };
        let links = cluster(
            &[reached(vec![0], vec![1]), reached(vec![], vec![]), reached(vec![0], vec![1])],
            0,
            1,
            rates(),
        )
        .links;
        let both = |memory| [0, 2].map(|class| LinkEnd { class, memory });
        assert_eq!((&links[1].from[..], &links[1].to[..]), (&both(0)[..], &both(1)[..]));
        assert!(links[1].assumed && !links[0].assumed);
        let Curves { run, transpose, .. } = &links[1].curves;
        assert_eq!((run.points(), transpose), (&[(16, 8e6), (1 << 20, 5e9)][..], &None));
        for (putting, rooms) in [(vec![], vec![]), (vec![0], vec![]), (vec![], vec![1])] {
            assert_eq!(cluster(&[reached(putting, rooms)], 0, 1, rates()).links.len(), 1);
        }
    }

    #[test]
    fn devices_are_linked_to_those_of_their_group() {
        let node = |group| Member { putting: vec![0], rooms: vec![1], group, ..node(2) };
        let cluster = cluster(&[0, 0, 1, 1, 0].map(node), 0, 1, None);
        assert_eq!(cluster.classes.iter().map(|class| class.count).collect::<Vec<_>>(), [2, 2, 1]);
        let end = |class, memory| LinkEnd { class, memory };
        let joined =
            |class| [0, 1, 2].map(|far| cluster.links[1].joins(end(class, 0), end(far, 1)));
        assert_eq!([0, 1].map(joined), [[true, false, true], [false, true, false]]);
        let alike = super::cluster(&[Member::alone(node(0).class), node(7)], 0, 1, None);
        assert!(alike.links[1].groups.is_empty(), "there is one");
    }

    #[test]
    fn a_device_that_does_not_reach_one_node_reaches_the_others() {
        let node = |apart| Member { putting: vec![0], rooms: vec![1], apart, ..node(2) };
        let of = |rank| (0, MemoryId { node: NodeId(rank), index: 1 });
        let cluster = cluster(
            &[node(vec![]), node(vec![]), node(vec![]), node(vec![of(1), of(7)])],
            0,
            1,
            None,
        );
        assert_eq!(cluster.classes.iter().map(|class| class.count).collect::<Vec<_>>(), [1; 4]);
        let end = |class, memory| LinkEnd { class, memory };
        let link = &cluster.links[1];
        assert_eq!(link.except, [[end(3, 0), end(1, 1)]]);
        let joined = [0, 1, 2].map(|far| link.joins(end(3, 0), end(far, 1)));
        assert_eq!((joined, link.joins(end(1, 0), end(3, 1))), ([true, false, true], true));
    }
}
