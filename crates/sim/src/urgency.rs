//! Whether channels that serve by urgency do: what one engine gave out, and when who was ready.

use crate::scenario::{Rule, Scenario};
use crate::violation::Violation;
use model::{ChannelId, Priority};
use std::collections::BTreeMap;

/// Of every so many bytes of a channel, one may go to those that have waited long.
const AGEING_SHARE: u64 = 20;

/// What was issued on one channel.
#[derive(Debug, Default)]
struct Issues {
    /// Moment, urgency and payload, in order; one that is known to have gone too early has no
    /// urgency any more.
    all: Vec<(u64, Option<Priority>, u64)>,
    bytes: u64,
    /// Payload that went before a more urgent request that was ready.
    early_bytes: u64,
}

impl Issues {
    /// Finds those less urgent than `urgency` that were issued after the moment `since`.
    fn find_early(&mut self, since: u64, urgency: Priority) {
        let after = self.all.iter_mut().rev().take_while(|issue| issue.0 > since);
        let early = after.filter_map(|issue| issue.1.take_if(|p| *p < urgency).map(|_| issue.2));
        self.early_bytes += early.sum::<u64>();
    }

    fn add(&mut self, moment: u64, urgency: Priority, bytes: u64) {
        self.all.push((moment, Some(urgency), bytes));
        self.bytes += bytes;
    }
}

/// What one transfer may ask of a channel that serves by urgency.
#[derive(Debug, Default)]
struct Standing {
    /// How urgent it is now.
    urgency: Priority,
    /// The last moment, in requests and changes, at which it may have become ready.
    changed_at: u64,
    issued: bool,
}

/// Follows the requests of one engine.
#[derive(Debug)]
pub(crate) struct Urgency {
    standings: Vec<Standing>,
    issues: BTreeMap<ChannelId, Issues>,
    moment: u64,
}

impl Urgency {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let standing = |priority| Standing { urgency: priority, ..Standing::default() };
        let standings = scenario.transfers.iter().map(|t| standing(t.priority)).collect();
        Urgency { standings, issues: BTreeMap::new(), moment: 0 }
    }

    /// Something happened from which `transfer` may have become ready.
    pub(crate) fn changed(&mut self, transfer: usize) {
        self.moment += 1;
        self.standings[transfer].changed_at = self.moment;
    }

    /// Something happened from which any may have become ready.
    pub(crate) fn all_changed(&mut self) {
        (0..self.standings.len()).for_each(|transfer| self.changed(transfer));
    }

    /// How urgent each transfer is now.
    pub(crate) fn set(&mut self, now: &[Priority]) {
        for (transfer, &urgency) in now.iter().enumerate() {
            if self.standings[transfer].urgency != urgency {
                self.standings[transfer].urgency = urgency;
                self.changed(transfer);
            }
        }
    }

    /// No less urgent request went to `channel` since `transfer`'s next request became ready.
    ///
    /// What made it ready was a change that was told or, at the start, its admission, which shows
    /// in its first request; from the last of these on, or from when it became as urgent as it is,
    /// it was ready, and every less urgent request since passed it over.
    ///
    /// Where descriptors age, those that did so may have one byte in twenty.
    pub(crate) fn check(
        &mut self,
        scenario: &Scenario,
        transfer: usize,
        (channel, bytes): (ChannelId, u64),
    ) -> Result<(), Violation> {
        if !self.standings[transfer].issued {
            self.changed(transfer);
            self.standings[transfer].issued = true;
        }
        let Standing { urgency, changed_at, .. } = self.standings[transfer];
        let issues = self.issues.entry(channel).or_default();
        issues.find_early(changed_at, urgency);
        self.moment += 1;
        issues.add(self.moment, urgency, bytes);
        let aged_bytes = if scenario.ageing.is_some() { issues.bytes / AGEING_SHARE } else { 0 };
        let kept = issues.early_bytes <= aged_bytes;
        let ruled = scenario.channels.iter().any(|c| c.id == channel && c.rule == Rule::Priority);
        (kept || !ruled).then_some(()).ok_or(Violation::PassedOver { passed: transfer, channel })
    }
}
