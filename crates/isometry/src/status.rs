//! What a machine is at: for people who ask why nothing moves.

use crate::machine::Machine;
use crate::planned::transfer_name;
use crate::{Error, runtime::Shared};
use engine::{AskId, Dependency, Engine, Underway, Wait};
use model::{MemoryId, NodeId, Topology, TransferId};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// What a machine is at, at one moment.
#[derive(Debug, Clone)]
pub struct Status {
    /// All nodes, by rank; of a machine that has joined no others, itself.
    pub nodes: Vec<NodeStatus>,
    /// The copies that were asked for here, and the shares that this node has of those of others.
    pub transfers: Vec<TransferStatus>,
    /// The memories of this node that have staging.
    pub staging: Vec<StagingStatus>,
    /// How many copies found their plan made.
    pub plan_hits: u64,
    /// For how many one was made.
    pub plan_misses: u64,
    topology: Arc<Topology>,
}

/// A node, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its rank, which is given once: of nodes of one name the later ones have higher ones.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Why it is lost; `None` where it is not.
    pub lost: Option<String>,
}

impl NodeStatus {
    /// As one JSON object: `rank`, `name`, `lost`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let NodeStatus { node, name, lost } = self;
        json!({ "rank": node.0, "name": name, "lost": lost })
    }
}

/// A transfer that has not ended, or this node's share of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferStatus {
    /// How far it has come, and what it waits for.
    pub underway: Underway,
    /// What the nodes that take part call it; `None` where there are no others.
    pub ask: Option<AskId>,
}

/// The intermediate buffers in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingStatus {
    /// The memory.
    pub memory: MemoryId,
    /// Bytes that are given out.
    pub used_bytes: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// The most that were given out at once.
    pub peak_bytes: u64,
}

impl Machine {
    /// All nodes that came, by rank, those that are lost among them, also before they had joined; of a
    /// machine that has joined no others, itself.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        nodes(&self.shared, &self.topology())
    }

    /// What the machine is at. It looks through everything under the lock that copies need: for
    /// people, not for loops.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn status(&self) -> Result<Status, Error> {
        if !self.shared.is_of_this_process() {
            return Err(Error::Forked);
        }
        let topology = self.topology();
        let core = self.shared.core();
        let (transfers, staging) = (transfers(core.engine()), staging(core.engine(), &self.shared));
        drop(core);
        let (plan_hits, plan_misses) = self.shared.plans.uses();
        let nodes = nodes(&self.shared, &topology);
        Ok(Status { nodes, transfers, staging, plan_hits, plan_misses, topology })
    }
}

fn transfers(engine: &Engine) -> Vec<TransferStatus> {
    let status = |underway: Underway| TransferStatus { ask: engine.ask_id(underway.id), underway };
    engine.underway().into_iter().map(status).collect()
}

/// The memories of this node that have staging.
pub(crate) fn staging(engine: &Engine, shared: &Shared) -> Vec<StagingStatus> {
    let (node, count) = (shared.here(), shared.class().memories.len());
    let memories = (0..).take(count).map(|index| MemoryId { node, index });
    let status = |memory| {
        let (used_bytes, bytes) = engine.staging(memory)?;
        let peak_bytes = engine.staging_peak(memory)?;
        Some(StagingStatus { memory, used_bytes, bytes, peak_bytes })
    };
    memories.filter_map(status).collect()
}

/// All nodes, this one among them, by rank.
pub(crate) fn nodes(shared: &Shared, topology: &Topology) -> Vec<NodeStatus> {
    let here = [(shared.here(), None)];
    let others = shared.nodes.as_ref().map(|nodes| nodes.standing()).unwrap_or_default();
    let mut all: Vec<_> = here.into_iter().chain(others).collect();
    all.sort_by_key(|(node, _)| *node);
    let called = |node| shared.nodes.as_ref().and_then(|nodes| nodes.called(node));
    let status = |(node, lost)| {
        let name = called(node).unwrap_or_else(|| name_of(topology, node));
        NodeStatus { node, name, lost }
    };
    all.into_iter().map(status).collect()
}

/// What a node is called.
pub(crate) fn name_of(topology: &Topology, node: NodeId) -> String {
    topology.node_name(node).unwrap_or_else(|| node.to_string())
}

impl Status {
    /// As one JSON object: `nodes` (see [`NodeStatus::to_json`]), `transfers` (`transfer`, `asked_by`, `priority`,
    /// `progress` in bytes and of how many, `path`, and what it waits for, in words), `staging`
    /// (`memory`, `used_bytes`, `bytes`, `peak_bytes`), `plans` (`hits`, `misses`).
    #[must_use]
    pub fn to_json(&self) -> Value {
        let staging = |staging: &StagingStatus| {
            json!({
                "memory": self.topology.short_name(staging.memory),
                "used_bytes": staging.used_bytes,
                "bytes": staging.bytes,
                "peak_bytes": staging.peak_bytes,
            })
        };
        json!({
            "nodes": self.nodes.iter().map(NodeStatus::to_json).collect::<Vec<_>>(),
            "transfers": self.transfers.iter().map(|t| self.transfer_json(t)).collect::<Vec<_>>(),
            "staging": self.staging.iter().map(staging).collect::<Vec<_>>(),
            "plans": { "hits": self.plan_hits, "misses": self.plan_misses },
        })
    }

    fn transfer_json(&self, transfer: &TransferStatus) -> Value {
        let underway = &transfer.underway;
        let path = underway.memories.iter().map(|&memory| self.topology.short_name(memory));
        let waits = underway.waits.iter().map(|wait| self.told(wait));
        json!({
            "transfer": transfer_name(underway.id),
            "asked_by": transfer.ask.map(|ask| name_of(&self.topology, ask.asker)),
            "priority": underway.priority.0,
            "progress": [underway.progress.0, underway.progress.1],
            "path": path.collect::<Vec<_>>(),
            "waits": waits.collect::<Vec<_>>(),
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, transfer: &TransferStatus) -> fmt::Result {
        let underway = &transfer.underway;
        let path = underway.memories.iter().map(|&memory| self.topology.short_name(memory));
        let path = path.collect::<Vec<_>>().join(" → ");
        let (id, (done, all)) = (transfer_name(underway.id), underway.progress);
        let asker =
            transfer.ask.map(|ask| format!(", asked by {}", name_of(&self.topology, ask.asker)));
        let (asker, priority) = (asker.unwrap_or_default(), underway.priority.0);
        writeln!(f, "transfer {id}: {path}, {done} of {all} B, priority {priority}{asker}")?;
        underway.waits.iter().try_for_each(|wait| writeln!(f, "  waits for {}", self.told(wait)))
    }

    /// What a transfer waits for, in words.
    fn told(&self, wait: &Wait) -> String {
        let node = |id: &NodeId| name_of(&self.topology, *id);
        let channel = |id: &model::ChannelId| {
            let kind = self.topology.channel(*id).map(|channel| channel.kind);
            let kind = kind.or_else(|| self.topology.link(*id).map(|link| link.kind));
            kind.map_or_else(|| "a channel".to_owned(), |kind| kind.name().to_owned())
        };
        match wait {
            Wait::Other(Dependency::Transfer(id)) => format!("transfer {}", transfer_name(*id)),
            Wait::Other(Dependency::Fence(_)) => {
                "a copy of another machine, or a stream".to_owned()
            }
            Wait::Staging { memory, held_by, behind } => {
                let first = behind.map(|id| format!(", behind {}", transfer_name(id)));
                let memory = self.topology.short_name(*memory);
                format!(
                    "staging in {memory}, held by {}{}",
                    names(held_by),
                    first.unwrap_or_default()
                )
            }
            Wait::Channel { hop, channel: id } => format!("hop {hop}: its turn on {}", channel(id)),
            Wait::Requests { hop, channel: id, count } => {
                format!("hop {hop}: {count} requests on {}", channel(id))
            }
            Wait::Input { hop, from } => format!("hop {hop}: input from {}", node(from)),
            Wait::Space { hop, of } => format!("hop {hop}: space of {}", node(of)),
            Wait::Leave { hop, of } => {
                format!("hop {hop}: to be told where to write by {}", node(of))
            }
            Wait::Party { node: party, has_reserved: false } => {
                format!("{} to reserve its buffers", node(party))
            }
            Wait::Party { node: party, has_reserved: true } => format!("{} to end", node(party)),
            Wait::Quiet { node: writer } => format!("{} to write no more", node(writer)),
            Wait::CutOff { node: writer } => format!("{} to be cut off", node(writer)),
        }
    }
}

/// For people: a line for each node, staging and transfer, and one for each thing that one waits for.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for NodeStatus { node, name, lost, .. } in &self.nodes {
            let plain = name_of(&self.topology, *node);
            let rank = if *name == plain { String::new() } else { format!(" ({plain})") };
            match lost {
                Some(why) => writeln!(f, "{name}{rank}: lost, {why}")?,
                None => writeln!(f, "{name}{rank}: there")?,
            }
        }
        for staging in &self.staging {
            let memory = self.topology.short_name(staging.memory);
            let StagingStatus { used_bytes, bytes, peak_bytes, .. } = staging;
            writeln!(f, "staging in {memory}: {used_bytes} of {bytes} B, {peak_bytes} B at most")?;
        }
        let (hits, misses) = (self.plan_hits, self.plan_misses);
        writeln!(f, "plans: {hits} found, {misses} made")?;
        self.transfers.iter().try_for_each(|transfer| self.write(f, transfer))
    }
}

fn names(transfers: &[TransferId]) -> String {
    match transfers {
        [] => "nobody".to_owned(),
        some => some.iter().map(|&id| transfer_name(id)).collect::<Vec<_>>().join(", "),
    }
}
