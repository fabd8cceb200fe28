//! What a cluster is made of: classes of nodes, their memories, channels and wires, and the links
//! between nodes (paper, sections 3.1, 3.2 and 4.1).
//!
//! Nodes are kept as classes with a count, never written out, so that a pod of a thousand nodes
//! is as small a value as a pair.

use crate::{ChannelId, Curves, MemoryId, NodeId, WireId};

/// The kinds of memory of the paper's Table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Unregistered host memory.
    Sys,
    /// Host memory registered with an accelerator.
    Zcm,
    /// Host memory registered with a network interface.
    Reg,
    /// Memory of an accelerator.
    Fbm,
    /// Persistent storage.
    Dsk,
}

impl MemoryKind {
    /// Whether a CPU core reads and writes the memory directly.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, MemoryKind::Sys | MemoryKind::Zcm | MemoryKind::Reg)
    }

    /// The name in text: `SYS`, `ZCM`, `REG`, `FBM`, `DSK`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Sys => "SYS",
            MemoryKind::Zcm => "ZCM",
            MemoryKind::Reg => "REG",
            MemoryKind::Fbm => "FBM",
            MemoryKind::Dsk => "DSK",
        }
    }
}

/// The kinds of channel of the paper's Table 2, and one that converts on an accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ChannelKind {
    /// Host memory to host memory, by the CPU.
    Memcpy,
    /// Accelerator to host.
    GpuRead,
    /// Host to accelerator.
    GpuWrite,
    /// Accelerator to accelerator.
    GpuCopy,
    /// Inside an accelerator, or between one and host memory that it reaches, by kernels that convert
    /// layouts.
    GpuConvert,
    /// Disk to host.
    DiskRead,
    /// Host to disk.
    DiskWrite,
    /// Host to host of another node.
    RemoteMemcpy,
}

impl ChannelKind {
    /// The name in text, as in the paper where it has the channel: `Memcpy`, `GPURead`, …
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChannelKind::Memcpy => "Memcpy",
            ChannelKind::GpuRead => "GPURead",
            ChannelKind::GpuWrite => "GPUWrite",
            ChannelKind::GpuCopy => "GPUCopy",
            ChannelKind::GpuConvert => "GPUConvert",
            ChannelKind::DiskRead => "DiskRead",
            ChannelKind::DiskWrite => "DiskWrite",
            ChannelKind::RemoteMemcpy => "RemoteMemcpy",
        }
    }
}

/// One memory of a class of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Unique within its class: `sys`.
    pub name: String,
    /// What it is.
    pub kind: MemoryKind,
    /// How much it holds, where that is known.
    pub capacity_bytes: Option<u64>,
    /// The largest intermediate buffer in it, where it differs from the topology's; 0 means that
    /// it is never an intermediate.
    pub th_bytes: Option<u64>,
    /// The wire by which other nodes reach it, by position in the class: what leaves for them, and
    /// what comes from them, crosses it.
    pub port: Option<u16>,
}

/// One channel of each node of a class: one worker, one rate, several pairs of memories. One that joins
/// none is closed: it keeps its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    /// What it is.
    pub kind: ChannelKind,
    /// Source memories, by position in the class.
    pub from: Vec<u16>,
    /// Destination memories; each pair of a source and a destination is an edge, a memory in both
    /// has a self-loop.
    pub to: Vec<u16>,
    /// Throughput against request size, for each shape class.
    pub curves: Curves,
    /// Time from submitting a request to its first byte.
    pub latency_ns: u64,
    /// The wire that its traffic crosses, by position in the class.
    pub wire: Option<u16>,
    /// How many requests keep it busy, where that was measured.
    pub in_flight: Option<u32>,
    /// From how many bytes on it writes a result past the caches, where that was measured; of
    /// `Memcpy` only.
    pub stream_from_bytes: Option<Crossover>,
    /// Whether a figure here is assumed rather than given by the table's source.
    pub assumed: bool,
}

/// From how many bytes on a result is better written past the caches, by one thread. It differs from
/// machine to machine by a factor of ten or more: who can should measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crossover {
    /// Of copies that read their source about in the order in which it lies: runs, and records that
    /// are taken apart.
    pub in_order: u64,
    /// Of all others: records that are put together, and transposes.
    pub turned: u64,
}

impl Default for Crossover {
    /// 4 MiB: a guess, for who has not measured.
    fn default() -> Self {
        Crossover { in_order: 4 << 20, turned: 4 << 20 }
    }
}

impl Crossover {
    /// As it is for so many threads together. Two share what memory takes and have a cache each, so
    /// that each may write as much as one alone. For what is turned, one waits for its cache, and goes
    /// past it early; two wait at once, so that memory decides as it does for what is in order. Of more
    /// nothing is known.
    #[must_use]
    pub fn by(self, threads: usize) -> Self {
        if threads < 2 {
            return self;
        }
        let [in_order, turned] = [self.in_order, self.turned].map(|b| b.saturating_mul(2));
        Crossover { in_order, turned: turned.max(self.in_order) }
    }
}

/// A shared physical path of each node of a class: a bus, or the medium of a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    /// Unique within its class.
    pub name: String,
    /// Bytes per second: in each direction, or in both together where it is half duplex.
    pub rate: f64,
    /// Whether it carries one direction at a time, as a disk reads or writes. Each crossing then
    /// keeps it busy for as long as the wire or the channel takes, whichever is slower.
    pub half_duplex: bool,
}

/// A class of identical nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClass {
    /// Its nodes are called by this and their number: `n0`, `n1`.
    pub name: String,
    /// The number of its first node; those of the others follow.
    pub first: u32,
    /// How many nodes there are; at least 1.
    pub count: u32,
    /// The memories of each node.
    pub memories: Vec<Memory>,
    /// The channels inside each node.
    pub channels: Vec<Channel>,
    /// The wires of each node.
    pub wires: Vec<Wire>,
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEnd {
    /// Position of the node class in the topology.
    pub class: u16,
    /// Position of the memory in the class.
    pub memory: u16,
}

/// A channel from every node of a class to every other node of a class, one direction. Each
/// source node has its own worker and rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// What it is; `RemoteMemcpy` so far.
    pub kind: ChannelKind,
    /// Where it starts.
    pub from: Vec<LinkEnd>,
    /// Where it ends.
    pub to: Vec<LinkEnd>,
    /// The group of each class, by its position, where the link joins nodes of one group only; none where it
    /// joins all. Cluster files can't say so.
    pub groups: Vec<u16>,
    /// The pairs of these that it does not join all the same. Cluster files can't say so either.
    pub except: Vec<[LinkEnd; 2]>,
    /// Throughput against request size, for each shape class.
    pub curves: Curves,
    /// Time from submitting a request to its first byte.
    pub latency_ns: u64,
    /// How many requests keep it busy, where that was measured.
    pub in_flight: Option<u32>,
    /// Whether a figure here is assumed rather than given by the table's source.
    pub assumed: bool,
}

impl Link {
    /// Whether it leads from the one end to the other.
    #[must_use]
    pub fn joins(&self, from: LinkEnd, to: LinkEnd) -> bool {
        let ends = self.from.contains(&from) && self.to.contains(&to);
        ends && self.group(from) == self.group(to) && !self.except.contains(&[from, to])
    }

    /// Its starts, together where neighbours among them are joined to the same ends, and else each by itself.
    pub fn starts(&self) -> impl Iterator<Item = &[LinkEnd]> {
        let are_alike =
            |a: &LinkEnd, b: &LinkEnd| self.except.is_empty() && self.group(*a) == self.group(*b);
        self.from.chunk_by(are_alike)
    }

    fn group(&self, end: LinkEnd) -> Option<u16> {
        self.groups.get(usize::from(end.class)).copied()
    }
}

/// A whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// What people call it.
    pub name: String,
    /// Grows whenever a value below changes; part of every plan cache's key.
    pub generation: u64,
    /// `TH`: the largest intermediate buffer, unless a memory says otherwise.
    pub th_bytes: u64,
    /// The node classes; nodes are counted through them in this order.
    pub classes: Vec<NodeClass>,
    /// The links between nodes.
    pub links: Vec<Link>,
}

impl Topology {
    /// The number of nodes.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        self.classes.iter().map(|c| c.count).sum()
    }

    /// The class of `node`, and the node's number within it. `None` past the last node.
    #[must_use]
    pub fn class_of(&self, node: NodeId) -> Option<(usize, u32)> {
        let mut left = node.0;
        for (i, class) in self.classes.iter().enumerate() {
            if left < class.count {
                return Some((i, left));
            }
            left -= class.count;
        }
        None
    }

    /// The wire by which other nodes reach the memory `id`, and what names it.
    #[must_use]
    pub fn port(&self, id: MemoryId) -> Option<(WireId, &Wire)> {
        let (class, _) = self.class_of(id.node)?;
        let class = &self.classes[class];
        let index = class.memories.get(usize::from(id.index))?.port?;
        Some((WireId { node: id.node, index }, class.wires.get(usize::from(index))?))
    }

    /// The memory `id`.
    #[must_use]
    pub fn memory(&self, id: MemoryId) -> Option<&Memory> {
        let (class, _) = self.class_of(id.node)?;
        self.classes[class].memories.get(usize::from(id.index))
    }

    /// The full name of a memory, `n0.sys`.
    #[must_use]
    pub fn memory_name(&self, id: MemoryId) -> Option<String> {
        Some(format!("{}.{}", self.node_name(id.node)?, self.memory(id)?.name))
    }

    /// The name of a node: `n0`.
    #[must_use]
    pub fn node_name(&self, id: NodeId) -> Option<String> {
        let (class, number) = self.class_of(id)?;
        let class = &self.classes[class];
        Some(format!("{}{}", class.name, u64::from(class.first) + u64::from(number)))
    }

    /// The name of a memory for people: `n0.sys`, or `sys` for short where there is one node only.
    #[must_use]
    pub fn short_name(&self, id: MemoryId) -> String {
        let short = || self.memory(id).map(|memory| memory.name.clone());
        let name = if self.node_count() == 1 { short() } else { self.memory_name(id) };
        name.unwrap_or_else(|| format!("memory {} of {}", id.index, id.node))
    }

    /// The memory called `name`: `n0.sys`, or `sys` for short where there is one node only.
    #[must_use]
    pub fn memory_named(&self, name: &str) -> Option<MemoryId> {
        let (node, memory) = match name.split_once('.') {
            Some((node, memory)) => (self.node_named(node)?, memory),
            None if self.node_count() == 1 => (NodeId(0), name),
            None => return None,
        };
        let (class, _) = self.class_of(node)?;
        let index = self.classes[class].memories.iter().position(|m| m.name == memory)?;
        Some(MemoryId { node, index: u16::try_from(index).ok()? })
    }

    /// `TH` for the memory `id`: its own, or the topology's.
    #[must_use]
    pub fn th_bytes(&self, id: MemoryId) -> u64 {
        self.memory(id).and_then(|m| m.th_bytes).unwrap_or(self.th_bytes)
    }

    /// The channel `id`, where it lies inside a node.
    #[must_use]
    pub fn channel(&self, id: ChannelId) -> Option<&Channel> {
        let (class, _) = self.class_of(id.node)?;
        self.classes[class].channels.get(usize::from(id.index))
    }

    /// The link `id`, where it joins two nodes.
    #[must_use]
    pub fn link(&self, id: ChannelId) -> Option<&Link> {
        self.class_of(id.node)?;
        self.links.get(usize::from(id.index.checked_sub(ChannelId::FIRST_LINK)?))
    }

    fn node_named(&self, name: &str) -> Option<NodeId> {
        let mut first = 0;
        for class in &self.classes {
            let number = name.strip_prefix(&*class.name).and_then(|n| n.parse::<u32>().ok());
            let number = number.and_then(|n| n.checked_sub(class.first));
            if let Some(number) = number.filter(|&n| n < class.count) {
                return Some(NodeId(first + number));
            }
            first += class.count;
        }
        None
    }
}
