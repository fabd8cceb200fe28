//! Scenarios: everything that a run does, as a value.

use crate::channel::ChannelSpec;
use model::{
    ChannelErrorKind, ChannelId, FieldSpace, IndexSpace, Layout, MemoryId, Plan, Priority,
    Selection, Time,
};
use std::time::Duration;

/// What a channel's worker serves next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The most urgent.
    Priority,
    /// The oldest.
    Fifo,
    /// The least served.
    FairShare,
}

/// A staging pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The memory that it lies in.
    pub memory: MemoryId,
    /// Its size.
    pub capacity_bytes: u64,
    /// The part that is kept for the urgent.
    pub reserve_bytes: u64,
}

/// One end of a transfer: a box of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// The instance's index space.
    pub space: IndexSpace,
    /// Its layout.
    pub layout: Layout,
    /// The box.
    pub part: Selection,
    /// What it stores for each entry.
    pub stored: Stored,
}

/// What an instance stores for each entry, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// All of its fields, at their own offsets.
    pub fields: FieldSpace,
    /// Those that are copied, in the transfer's order.
    pub chosen: Vec<usize>,
    /// Bytes from one index to the next in each dimension, in place of what the layout says.
    pub strides: Option<Vec<i64>>,
}

impl Stored {
    /// `fields`, all of them copied, where the layout puts them.
    #[must_use]
    pub fn all(fields: FieldSpace) -> Self {
        let chosen = (0..fields.fields().len()).collect();
        Stored { fields, chosen, strides: None }
    }
}

/// What a transfer waits for, by position in the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// A transfer listed earlier.
    Transfer(usize),
    /// A fence that ends after the transfer's submission.
    Fence(usize),
}

/// One transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferSpec {
    /// How it runs.
    pub plan: Plan,
    /// What is copied of each entry.
    pub fields: FieldSpace,
    /// Where the bytes come from.
    pub src: End,
    /// Where they go.
    pub dst: End,
    /// How urgent it is.
    pub priority: Priority,
    /// When it is submitted.
    pub submit_at: Time,
    /// When it must have ended.
    pub deadline: Option<Time>,
    /// What it waits for.
    pub after: Vec<After>,
    /// Whether its destination is committed at the end.
    pub commit: bool,
    /// Whether its user drops it right after the submission.
    pub forgotten: bool,
}

impl TransferSpec {
    /// A transfer from the first of `ends` to the second, at the start: priority 0, no deadline,
    /// nothing to wait for, no commit.
    #[must_use]
    pub fn new(plan: Plan, fields: FieldSpace, ends: [End; 2]) -> Self {
        let [src, dst] = ends;
        TransferSpec {
            plan,
            fields,
            src,
            dst,
            priority: Priority(0),
            submit_at: Time(0),
            deadline: None,
            after: Vec::new(),
            commit: false,
            forgotten: false,
        }
    }
}

/// Something outside the engine that transfers wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceSpec {
    /// When it ends.
    pub at: Time,
    /// Whether it fails.
    pub fails: bool,
}

/// What goes wrong, or is asked for, besides the transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A transfer is cancelled, by position.
    Cancel(usize),
    /// The oldest request in flight fails, or the next one if there is none.
    Break {
        /// Where.
        channel: ChannelId,
        /// How.
        kind: ChannelErrorKind,
    },
    /// The device goes away: every request in flight and every later one fails.
    Lose(ChannelId),
    /// The channel starts nothing for a while.
    Stall {
        /// Where.
        channel: ChannelId,
        /// How long.
        for_ns: u64,
    },
}

/// A whole run. Equal scenarios with equal seeds run alike, event for event.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The seed of the adversary and of all bytes.
    pub seed: u64,
    /// The channels.
    pub channels: Vec<ChannelSpec>,
    /// How long a descriptor has waited that gets 5% of its channel, if any does.
    pub ageing: Option<Duration>,
    /// The staging pools, in the order of their memories.
    pub pools: Vec<PoolSpec>,
    /// The transfers.
    pub transfers: Vec<TransferSpec>,
    /// The fences.
    pub fences: Vec<FenceSpec>,
    /// What goes wrong, and when.
    pub faults: Vec<(Time, Fault)>,
    /// Whether bytes move. Without, only lengths and times are kept, and the run is the same.
    pub payload: bool,
    /// When every transfer must have ended.
    pub limit: Time,
}
