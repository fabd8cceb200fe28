//! All that plans between some nodes may use, whatever the load makes of them.

use model::{ChannelId, MemoryId, NodeClass, NodeId, Topology};

/// Every channel of a node, and every link that leaves it.
pub(crate) fn channels(topology: &Topology, node: NodeId) -> Vec<ChannelId> {
    let Some((at, class)) = class_of(topology, node) else { return Vec::new() };
    let leaves = |link: &model::Link| link.from.iter().any(|end| usize::from(end.class) == at);
    let links = topology.links.iter().enumerate().filter(|(_, link)| leaves(link));
    let links = links.filter_map(|(position, _)| ChannelId::of_link(node, position));
    let here = (0..).zip(&class.channels).map(|(index, _)| ChannelId { node, index });
    here.chain(links).collect()
}

/// Every memory of a node that may hold an intermediate buffer.
pub(crate) fn buffers(topology: &Topology, node: NodeId) -> Vec<MemoryId> {
    let Some((_, class)) = class_of(topology, node) else { return Vec::new() };
    let ids = (0..).zip(&class.memories).map(|(index, _)| MemoryId { node, index });
    ids.filter(|&id| topology.th_bytes(id) > 0).collect()
}

fn class_of(topology: &Topology, node: NodeId) -> Option<(usize, &NodeClass)> {
    let (at, _) = topology.class_of(node)?;
    Some((at, &topology.classes[at]))
}
