//! What a copy did.

use crate::prepare::Prepared;
use engine::{HopReport, Report};
use model::{Outcome, Plan, TransferError, TransferId};
use std::sync::Arc;
use std::time::Duration;

/// The plan of a copy, and where its time went.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyReport {
    /// Its number, by which other reports and the trace name it; `None` where it ran on its
    /// caller's thread or never started.
    pub transfer: Option<TransferId>,
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

    /// Of a copy that never started, and why.
    pub(crate) fn of_none(plan: &Arc<Plan>, why: TransferError) -> Self {
        let times = Report {
            waiting_for_others: Duration::ZERO,
            waiting_for_staging: Duration::ZERO,
            running: Duration::ZERO,
            hops: Vec::new(),
        };
        CopyReport {
            transfer: None,
            plan: Arc::clone(plan),
            outcome: Some(Outcome::Failed(why)),
            times,
        }
    }
}

/// A copy that ran on its caller's thread. Its report is written when somebody asks for it.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) busy: Duration,
}

impl Direct {
    /// Payload that reached the destination: all of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.prepared.program.payload_bytes()
    }

    pub(crate) fn report(&self) -> CopyReport {
        let plan = Arc::clone(&self.prepared.plan);
        let hop = HopReport {
            channel: plan.hops[0].channel,
            from: plan.memories[0],
            to: plan.memories[1],
            bytes: self.bytes(),
            requests: 1,
            busy: self.busy,
            waiting_for_input: Duration::ZERO,
            waiting_for_space: Duration::ZERO,
            waiting_for_channel: Duration::ZERO,
            held_up_by: None,
        };
        let times = Report {
            waiting_for_others: Duration::ZERO,
            waiting_for_staging: Duration::ZERO,
            running: self.busy,
            hops: vec![hop],
        };
        CopyReport { transfer: None, plan, outcome: Some(Outcome::Done), times }
    }
}
