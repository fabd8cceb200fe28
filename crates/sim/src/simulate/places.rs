//! Memories by their kind.

use model::{LinkEnd, MemoryId, MemoryKind, NodeId, Topology};

/// The memories of `kind` on `node` that a channel reaches and another leaves, in the file's order.
pub(crate) fn joined(topology: &Topology, node: NodeId, kind: MemoryKind) -> Vec<MemoryId> {
    let Some((class, _)) = topology.class_of(node) else { return Vec::new() };
    let memories = topology.classes[class].memories.iter().zip(0u16..);
    let found = memories.filter(|(m, index)| m.kind == kind && is_joined(topology, class, *index));
    found.map(|(_, index)| MemoryId { node, index }).collect()
}

fn is_joined(topology: &Topology, class: usize, memory: u16) -> bool {
    let channels = &topology.classes[class].channels;
    let is_end = |end: &LinkEnd| usize::from(end.class) == class && end.memory == memory;
    let links = &topology.links;
    let leaves = channels.iter().any(|c| c.from.contains(&memory))
        || links.iter().any(|l| l.from.iter().any(is_end));
    let reaches = channels.iter().any(|c| c.to.contains(&memory))
        || links.iter().any(|l| l.to.iter().any(is_end));
    leaves && reaches
}
