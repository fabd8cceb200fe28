//! What a copy did.

use engine::{HopReport, Report};
use model::{Outcome, Plan};
use std::sync::Arc;
use std::time::Duration;

/// The plan of a copy, and where its time went.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyReport {
    /// How it ran.
    pub plan: Arc<Plan>,
    /// How it ended; `None` while it has not.
    pub outcome: Option<Outcome>,
    /// What its hops did, and what they waited for.
    pub times: Report,
}

impl CopyReport {
    /// Payload that reached the destination.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.times.hops.last().map_or(0, |hop| hop.bytes)
    }

    /// Of a direct copy of `bytes` that took `busy`, on the caller's thread.
    pub(crate) fn of_direct(plan: &Arc<Plan>, bytes: u64, busy: Duration) -> Self {
        let hop = HopReport {
            channel: plan.hops[0].channel,
            from: plan.memories[0],
            to: plan.memories[1],
            bytes,
            requests: 1,
            busy,
            waiting_for_input: Duration::ZERO,
            waiting_for_space: Duration::ZERO,
            waiting_for_channel: Duration::ZERO,
            held_up_by: None,
        };
        let times = Report {
            waiting_for_others: Duration::ZERO,
            waiting_for_staging: Duration::ZERO,
            running: busy,
            hops: vec![hop],
        };
        CopyReport { plan: Arc::clone(plan), outcome: Some(Outcome::Done), times }
    }

    /// Of a copy that never started.
    pub(crate) fn of_none(plan: &Arc<Plan>) -> Self {
        let times = Report {
            waiting_for_others: Duration::ZERO,
            waiting_for_staging: Duration::ZERO,
            running: Duration::ZERO,
            hops: Vec::new(),
        };
        CopyReport { plan: Arc::clone(plan), outcome: None, times }
    }
}
