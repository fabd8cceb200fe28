//! From a topology back to its file.

use crate::raw::{self, Curve};
use model::{ChannelKind, Curves, LinkEnd, NodeClass, Throughput, Topology};
use serde_json::{Value, json};

/// The most nodes that the flat lists spell out.
const LISTED_NODES: u32 = 64;

/// The topology as one JSON object with the cluster file's keys, which [`crate::parse_json`] reads
/// back, and two flat lists for readers: `memories` (`name`, `kind`, `th_bytes`, …) and `channels`
/// (`kind`, `from`, `to`, `throughput`, …), with the names that a user would write. A cluster of
/// more than 64 nodes has the flat lists of its first 64.
#[must_use]
pub fn to_json(topology: &Topology) -> Value {
    let file = raw::Cluster {
        name: topology.name.clone(),
        th_bytes: topology.th_bytes,
        node: topology.classes.iter().map(node).collect(),
        link: topology.links.iter().map(|l| link(l, topology)).collect(),
        memories: Default::default(),
        channels: Default::default(),
    };
    // Every key is a string and every number finite, so nothing can fail to serialize.
    let mut value = serde_json::to_value(&file).unwrap_or_default();
    value["memories"] = memories(topology).collect();
    value["channels"] = channels(topology).chain(links(topology)).collect();
    value
}

fn node(class: &NodeClass) -> raw::Node {
    let memory = |m: &model::Memory| raw::Memory {
        name: m.name.clone(),
        kind: m.kind.name().to_owned(),
        capacity_bytes: m.capacity_bytes,
        th_bytes: m.th_bytes,
        port: m.port.and_then(|port| Some(class.wires.get(usize::from(port))?.name.clone())),
        assumed: false,
    };
    let wire = |w: &model::Wire| raw::Wire {
        name: w.name.clone(),
        throughput: w.rate,
        half_duplex: w.half_duplex,
        assumed: false,
    };
    raw::Node {
        name: class.name.clone(),
        first: class.first,
        count: class.count,
        memory: class.memories.iter().map(memory).collect(),
        channel: class.channels.iter().map(|c| channel(c, class)).collect(),
        wire: class.wires.iter().map(wire).collect(),
        assumed: false,
    }
}

fn channel(channel: &model::Channel, class: &NodeClass) -> raw::Channel {
    let names = |ids: &[u16]| ids.iter().map(|&i| memory_name(class, i)).collect();
    let wire = channel.wire.and_then(|w| class.wires.get(usize::from(w)));
    raw::Channel {
        from: names(&channel.from),
        to: names(&channel.to),
        latency_ns: channel.latency_ns,
        wire: wire.map(|w| w.name.clone()),
        in_flight: channel.in_flight,
        stream_from_bytes: channel.stream_from_bytes.map(stream_from),
        assumed: channel.assumed,
        ..bare(channel.kind, &channel.curves)
    }
}

fn stream_from(crossover: model::Crossover) -> raw::StreamFrom {
    raw::StreamFrom { in_order: crossover.in_order, turned: crossover.turned }
}

fn link(link: &model::Link, topology: &Topology) -> raw::Link {
    let names = |ends: &[LinkEnd]| {
        let mut names: Vec<String> = Vec::new();
        for name in ends.iter().map(|&end| end_name(topology, end)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    raw::Channel {
        from: names(&link.from),
        to: names(&link.to),
        latency_ns: link.latency_ns,
        in_flight: link.in_flight,
        assumed: link.assumed,
        ..bare(link.kind, &link.curves)
    }
}

fn bare(kind: ChannelKind, curves: &Curves) -> raw::Channel {
    raw::Channel {
        kind: kind.name().to_owned(),
        from: Vec::new(),
        to: Vec::new(),
        throughput: curve(&curves.run),
        throughput_interleave: curves.interleave.as_ref().map(curve),
        throughput_transpose: curves.transpose.as_ref().map(curve),
        throughput_gather: curves.gather.as_ref().map(curve),
        latency_ns: 0,
        wire: None,
        in_flight: None,
        stream_from_bytes: None,
        assumed: false,
    }
}

fn curve(throughput: &Throughput) -> Curve {
    if throughput.is_constant() {
        return Curve::Constant(throughput.peak());
    }
    Curve::Points(throughput.points().to_vec())
}

fn memory_name(class: &NodeClass, index: u16) -> String {
    class.memories.get(usize::from(index)).map(|m| m.name.clone()).unwrap_or_default()
}

fn end_name(topology: &Topology, end: LinkEnd) -> String {
    let class = topology.classes.get(usize::from(end.class));
    class.map(|c| format!("{}.{}", c.name, memory_name(c, end.memory))).unwrap_or_default()
}

/// The first nodes of a cluster: class and the prefix of its memories' names.
fn nodes(topology: &Topology) -> impl Iterator<Item = (usize, &NodeClass, String)> {
    let alone = topology.node_count() == 1;
    let of_class = move |(i, class): (usize, &'_ NodeClass)| (i, class.count);
    let counts: Vec<_> = topology.classes.iter().enumerate().map(of_class).collect();
    let all = counts.into_iter().flat_map(|(i, count)| (0..count).map(move |n| (i, n)));
    all.take(LISTED_NODES as usize).map(move |(i, number)| {
        let class = &topology.classes[i];
        let number = u64::from(class.first) + u64::from(number);
        let prefix = if alone { String::new() } else { format!("{}{number}.", class.name) };
        (i, class, prefix)
    })
}

fn memories(topology: &Topology) -> impl Iterator<Item = Value> {
    nodes(topology).flat_map(move |(_, class, prefix)| {
        class.memories.iter().map(move |m| {
            json!({
                "name": format!("{prefix}{}", m.name),
                "kind": m.kind.name(),
                "capacity_bytes": m.capacity_bytes,
                "th_bytes": m.th_bytes.unwrap_or(topology.th_bytes),
            })
        })
    })
}

fn channels(topology: &Topology) -> impl Iterator<Item = Value> {
    nodes(topology).flat_map(|(_, class, prefix)| {
        class.channels.iter().map(move |c| {
            let mut value = serde_json::to_value(channel(c, class)).unwrap_or_default();
            for end in ["from", "to"] {
                prefix_all(&mut value[end], &prefix);
            }
            value
        })
    })
}

/// One entry for each link and node that it starts at, to all the others; one for each memory there where these
/// are joined to different ones.
fn links(topology: &Topology) -> impl Iterator<Item = Value> {
    let starts = topology.links.iter().flat_map(|l| l.starts().map(move |starts| (l, starts)));
    starts.flat_map(move |(l, starts)| {
        let is_end = |&&end: &&LinkEnd| l.joins(starts[0], end);
        let ends: Vec<_> = l.to.iter().filter(is_end).copied().collect();
        nodes(topology).filter_map(move |(class, _, prefix)| {
            let from = names_at(topology, starts, class, &prefix);
            let others = nodes(topology).filter(|other| other.2 != prefix);
            let to: Vec<_> =
                others.flat_map(|(c, _, other)| names_at(topology, &ends, c, &other)).collect();
            let mut value = serde_json::to_value(link(l, topology)).unwrap_or_default();
            let ends = !from.is_empty() && !to.is_empty();
            (value["from"], value["to"]) = (from.into(), to.into());
            ends.then_some(value)
        })
    })
}

fn names_at(topology: &Topology, ends: &[LinkEnd], class: usize, prefix: &str) -> Vec<String> {
    let here = ends.iter().filter(|e| usize::from(e.class) == class);
    let name = |e: &LinkEnd| format!("{prefix}{}", memory_name(&topology.classes[class], e.memory));
    here.map(name).collect()
}

fn prefix_all(names: &mut Value, prefix: &str) {
    for name in names.as_array_mut().into_iter().flatten() {
        *name = Value::from(format!("{prefix}{}", name.as_str().unwrap_or_default()));
    }
}
