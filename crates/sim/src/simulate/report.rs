//! What a case came to.

use crate::simulate::planning::PlanCount;
use model::{MemoryId, NodeId, Plan, Time};
use std::sync::Arc;

/// What the instances of one copy came to.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyReport {
    /// The plan of each transfer that an instance took, in order; one but for the baselines that
    /// go hop by hop, and for what was split.
    pub plans: Vec<Arc<Plan>>,
    /// Whether they ran at the same time, each with a part of the instance.
    pub split: bool,
    /// Payload of all instances.
    pub bytes: u64,
    /// When they were launched.
    pub launched: Time,
    /// When the last of them had ended.
    pub ended: Time,
    /// The most that the slowest hop's channel, and its wire, reach: bytes per second. What was
    /// split has the sum of its parts'.
    pub peak: f64,
}

/// What a case came to.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseReport {
    /// One for each copy of the case.
    pub copies: Vec<CopyReport>,
    /// When the last of all had ended.
    pub ended: Time,
    /// For each memory that held staging, the most that was given out when a transfer started or
    /// ended.
    pub staging: Vec<(MemoryId, u64)>,
    /// For each memory that held whole instances between hops, the most at once.
    pub instances: Vec<(MemoryId, u64)>,
    /// For each node that the copies leave, the plans that it made; none for a baseline with a path
    /// of its own.
    pub plans: Vec<(NodeId, PlanCount)>,
    /// What the run took.
    pub tally: Tally,
}

/// How much happened in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// What the clock brought.
    pub events: u64,
    /// Requests of all channels.
    pub requests: u64,
    /// Transfers of the engine.
    pub transfers: u64,
}

impl CopyReport {
    /// From the launch to the end of the last.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.ended.since(self.launched).as_secs_f64()
    }

    /// Payload per second, from the launch on; 0 where it took no time.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { as_f64(self.bytes) / seconds } else { 0.0 }
    }

    /// The memories that the bytes pass, ends included; of what was split, those of the first part.
    #[must_use]
    pub fn path(&self) -> Vec<MemoryId> {
        self.paths().swap_remove(0)
    }

    /// The same for each part.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<MemoryId>> {
        if self.split {
            return self.plans.iter().map(|plan| plan.memories.clone()).collect();
        }
        let first = self.plans.first().and_then(|plan| plan.memories.first());
        let rest = self.plans.iter().flat_map(|plan| plan.memories.iter().skip(1));
        vec![first.into_iter().chain(rest).copied().collect()]
    }
}

impl CaseReport {
    /// Bytes of staging, and of whole instances between hops.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.staging.iter().chain(&self.instances).map(|(_, bytes)| bytes).sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}
