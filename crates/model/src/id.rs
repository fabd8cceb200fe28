//! Identifiers: small, copyable, never addresses.

use std::fmt;

/// One node of a cluster, counted over all node classes in the order of the cluster file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u32);

/// One memory: the `index`-th of its node's class. The order is the global order of memories in
/// which staging is reserved (paper, section 3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryId {
    /// The node that holds the memory.
    pub node: NodeId,
    /// Position among the memories of the node's class.
    pub index: u16,
}

/// One channel, and so one DMA worker. Indices below [`ChannelId::FIRST_LINK`] are the channels of
/// the node's class; the ones from there on are the cluster's links, in file order, seen from their
/// source node. So a class may get another channel, and no other is called otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChannelId {
    /// The node whose worker drives the channel (the source's, for a link).
    pub node: NodeId,
    /// Position among the channels of the node's class, or among the cluster's links.
    pub index: u16,
}

impl ChannelId {
    /// The index of the first link.
    pub const FIRST_LINK: u16 = 1 << 15;

    /// The link at a position among the cluster's, as `node` drives it; `None` past the last index.
    #[must_use]
    pub fn of_link(node: NodeId, position: usize) -> Option<ChannelId> {
        let index = Self::FIRST_LINK.checked_add(u16::try_from(position).ok()?)?;
        Some(ChannelId { node, index })
    }
}

/// One wire of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireId {
    /// The node.
    pub node: NodeId,
    /// Position among the wires of the node's class.
    pub index: u16,
}

/// A span of registered bytes in one memory. The generation makes a stale id harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegionId {
    /// Slot in the region table.
    pub index: u32,
    /// How often the slot was given out before.
    pub generation: u32,
}

/// A transfer known to an engine. The generation makes a stale id harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId {
    /// Slot in the engine's transfer table.
    pub index: u32,
    /// How often the slot was given out before.
    pub generation: u32,
}

/// A request given out by an engine and not yet completed; never reused by that engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Something outside the engine that a transfer may wait for, such as a fence of a device's
/// stream. The driver numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FenceId(pub u64);

/// How urgent a transfer is; larger is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Priority(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0)
    }
}
