//! Plans: what the planner returns and the engine runs (paper, section 4).

use crate::{ChannelId, ChannelKind, Layout, MemoryId, ShapeClass};

/// How a path was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Algorithm {
    /// Section 4.2: every path, layout and blocking factor.
    Full,
    /// Section 4.4: the shortest path, layouts of the ends only, converting on a Memcpy channel.
    Simple,
    /// Section 6.3's baseline: the shortest path, intermediates in the source's layout.
    Spsl,
    /// Section 6.3's baseline: the shortest path, intermediates in the destination's layout.
    Spdl,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Full, Algorithm::Simple, Algorithm::Spsl, Algorithm::Spdl];

    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Full => "full",
            Algorithm::Simple => "simple",
            Algorithm::Spsl => "spsl",
            Algorithm::Spdl => "spdl",
        }
    }
}

/// What a plan's predicted cost counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CostModel {
    /// Section 4.2 to the letter: the least throughput over the hops.
    Paper,
    /// Also pipeline fill, latency, channels and wires used twice, shape classes, and two
    /// granules a ring.
    Default,
}

impl CostModel {
    /// Both of them.
    pub const ALL: [CostModel; 2] = [CostModel::Paper, CostModel::Default];

    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CostModel::Paper => "paper",
            CostModel::Default => "default",
        }
    }
}

/// One direct transfer of a plan, from `memories[i]` to `memories[i + 1]`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hop {
    /// The channel that runs it.
    pub channel: ChannelId,
    /// That channel's kind.
    pub kind: ChannelKind,
    /// `PREFIX` of the two layouts, in bytes: the longest request in one order on both sides.
    pub prefix_bytes: u64,
    /// The `SUFFIX` complement, in bytes: the granule between two intermediates; 1 for equal
    /// layouts.
    pub shuffle_bytes: u64,
    /// How the hop's copies look to the channel.
    pub class: ShapeClass,
    /// Predicted bytes per second of this hop alone.
    pub throughput: f64,
    /// Payload that one request should carry; the engine rounds to what the layouts allow.
    pub request_bytes: u64,
}

/// One intermediate buffer: a ring over the payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Buffer {
    /// Where it is allocated.
    pub memory: MemoryId,
    /// Its size.
    pub bytes: u64,
}

/// Why a plan is not faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Limit {
    /// The channel is at its peak, or several hops share it.
    Channel,
    /// The hop's requests are short, and nothing allows longer ones.
    Request,
    /// `TH` stops a larger blocking factor.
    Space,
    /// Latency and pipeline fill dominate.
    Latency,
    /// A wire carries all it can.
    Wire,
}

impl Limit {
    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::Channel => "channel",
            Limit::Request => "request",
            Limit::Space => "space",
            Limit::Latency => "latency",
            Limit::Wire => "wire",
        }
    }
}

/// Which hop bounds a plan, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bound {
    /// The hop, from 0.
    pub hop: usize,
    /// The reason.
    pub why: Limit,
}

/// A path that the planner weighed and did not choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// The memories on it, ends included.
    pub memories: Vec<MemoryId>,
    /// The layouts on it.
    pub layouts: Vec<Layout>,
    /// Predicted bytes per second; 0 where it is infeasible.
    pub throughput: f64,
    /// Predicted time, where the cost model gives one.
    pub seconds: Option<f64>,
    /// What bound it; `None` where no blocking factors satisfy its constraints.
    pub bound: Option<Bound>,
}

/// What the search did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchReport {
    /// Paths of memories visited.
    pub paths: u64,
    /// (path, layouts) pairs whose constraints were solved.
    pub solved: u64,
    /// The most pairs that the search may solve.
    pub budget: u64,
    /// Whether the budget ended the search, so that the plan may not be the best.
    pub exhausted: bool,
    /// Hops of other transfers, on the channels searched, that it shared the rates with.
    pub flows: u64,
}

/// A path with everything that the engine needs: no other value says how a transfer runs.
///
/// `memories` and `layouts` have one entry more than `hops`, `buffers` one fewer. All layouts are
/// written with the same splits; at the two ends these are notation, the instances keep their
/// addresses.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Plan {
    /// How it was found.
    pub algorithm: Algorithm,
    /// What its prediction counts.
    pub model: CostModel,
    /// Predicted bytes of payload per second.
    pub throughput: f64,
    /// Predicted time from submission to completion; `None` in the paper's model.
    pub seconds: Option<f64>,
    /// `m_0 … m_{n+1}`.
    pub memories: Vec<MemoryId>,
    /// `l_0 … l_{n+1}`.
    pub layouts: Vec<Layout>,
    /// For each dimension, where the box starts in its first block: blocks of the layouts above
    /// end where `index + phase` is a multiple of the block.
    pub phase: Vec<u64>,
    /// One for each direct transfer.
    pub hops: Vec<Hop>,
    /// The ring of each intermediate memory.
    pub buffers: Vec<Buffer>,
    /// What bounds it.
    pub bound_by: Bound,
    /// What else was weighed, best first. It is not serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub alternatives: Vec<Alternative>,
    /// What the search did. It is not serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub search: SearchReport,
}

impl Plan {
    /// The plan without what the search did and what else it weighed: all that the engine needs.
    #[must_use]
    pub fn bare(&self) -> Self {
        Plan {
            memories: self.memories.clone(),
            layouts: self.layouts.clone(),
            phase: self.phase.clone(),
            hops: self.hops.clone(),
            buffers: self.buffers.clone(),
            alternatives: Vec::new(),
            search: SearchReport::default(),
            ..*self
        }
    }
}
