//! A step of the engine, and who is told of what it brings.
//!
//! **Hazard.** Who is told may try anything: ask for copies, cancel some, close the machine; and whoever has seen
//! the last end may not have told of it when the machine is closed. **Guarantee.** Nobody is told under a lock,
//! nor later because of what others ask for when they are told: that is the driver's. The driver stays until
//! all events have ended and other nodes have heard; callbacks may come after that. **Structure.**
//! [`Shared::step`] has the engine go on, and tells what comes of that; [`Telling`] is there until it has.

use super::Shared;
use super::core::{Caller, Ended, Outcomes, Pending, Reach};
use crate::Error;
use crate::event::{self, Calls};
use crate::report::CopyReport;
use model::{Outcome, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// While it lives, somebody tells others what the engine has brought, and the driver stays.
struct Telling<'a>(&'a Shared);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.telling().fetch_sub(1, Ordering::SeqCst);
        // The driver may sleep with nothing left to ring for it, and is to see the end.
        if self.0.is_over() {
            self.0.bell.ring();
        }
    }
}

impl Shared {
    /// Handles what there is to handle, and tells of what has ended. Returns when to call again
    /// although nothing rings.
    pub(crate) fn step(&self, caller: Caller) -> Option<Time> {
        if event::is_calling_back() {
            // Here others are to be told next, of what has ended before, and a chain of copies would go
            // a stack deep.
            self.bell.ring();
            return None;
        }
        let telling = self.begin_telling();
        let (mut core, now) = self.core_now();
        core.forget(std::mem::take(&mut *self.told()).into_iter());
        let reach = Reach { regions: &self.regions, nodes: self.nodes.as_deref() };
        let Outcomes { ended, packets, has_failure, has_more } =
            core.pump((now, caller), reach, &self.urgency);
        let timeout = core.engine().poll_timeout();
        let oversleeps = core.oversleeps(caller, timeout);
        let wake = caller == Caller::Any && (oversleeps || core.needs_driver());
        drop(core);
        // It is left to the driver, which doesn't sleep then: others return to what they do.
        if wake || has_more {
            self.bell.ring();
        }
        let has_failed = |end: &Ended| matches!(end.outcome, Outcome::Failed(_));
        if has_failure || ended.iter().any(has_failed) {
            // Before anyone hears of it, here or on another node, and copies again.
            self.close_lost();
        }
        if let Some(nodes) = &self.nodes {
            nodes.send(packets);
            nodes.order_closing();
        }
        let calls = self.tell(ended);
        drop(telling);
        calls.into_iter().for_each(Calls::call);
        timeout
    }

    /// To be called before the lock is taken under which the engine is asked.
    fn begin_telling(&self) -> Telling<'_> {
        self.telling().fetch_add(1, Ordering::SeqCst);
        Telling(self)
    }

    /// Whether the machine is closed, and all that was submitted has ended, as who waits for it knows.
    pub(super) fn is_over(&self) -> bool {
        // In this order: who has seen the last end tells of it.
        self.is_closed() && self.core().is_idle() && self.telling().load(Ordering::SeqCst) == 0
    }

    /// Ends the events of what has ended; whom to call.
    fn tell(&self, ended: Vec<Ended>) -> Vec<Calls> {
        let tell = |end: Ended| {
            let Pending { state, prepared, holdings, .. } = end.pending;
            let plan = Arc::clone(&prepared.plan);
            let result = self.result_of(&end.outcome);
            let (transfer, outcome) = (Some(end.transfer), Some(end.outcome.clone()));
            let report = CopyReport { transfer, plan, outcome, times: end.report };
            self.tally().ended(&end.outcome, report.bytes());
            // The instances go before anyone is told, so that memory that was given away for the
            // copy is free by then. Whose it was may have it run anything.
            event::guarded(|| drop(holdings));
            let calls = state.finish(transfer, result, report);
            self.told().push(end.transfer);
            calls
        };
        ended.into_iter().filter_map(tell).collect()
    }

    fn result_of(&self, outcome: &Outcome) -> Result<(), Error> {
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Cancelled => Err(Error::Cancelled),
            Outcome::TimedOut => Err(Error::TimedOut),
            Outcome::Failed(error) => Err(self.failed(error.clone())),
        }
    }
}
