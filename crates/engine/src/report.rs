//! Where a transfer's time went.

use model::{ChannelId, MemoryId, Time, TransferId};
use std::time::Duration;

/// What one hop did, and what it waited for. The four times don't overlap; while a hop has made
/// all of its requests and they have completed, none of them runs.
///
/// A hop that another node runs, whose its channel is, has figures once that node has told them, at
/// the end of its part of the transfer; until then, and where it never does, all are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopReport {
    /// The channel that ran it.
    pub channel: ChannelId,
    /// Where it read.
    pub from: MemoryId,
    /// Where it wrote.
    pub to: MemoryId,
    /// Payload of its completed requests.
    pub bytes: u64,
    /// Requests given out.
    pub requests: u64,
    /// Time with at least one request out.
    pub busy: Duration,
    /// Time with none out, since the hop before had not written enough.
    pub waiting_for_input: Duration,
    /// Time with none out, since the hop after had not read enough.
    pub waiting_for_space: Duration,
    /// Time with none out, since the channel was full or served others.
    pub waiting_for_channel: Duration,
    /// Whose request the channel had taken last when the longest wait for it ended; not known of
    /// a hop that another node runs.
    pub held_up_by: Option<TransferId>,
}

/// Where a transfer's time went, until now or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Time from submission until everything in `after` was done.
    pub waiting_for_others: Duration,
    /// Time from there until it had its intermediate buffers; none where other nodes run it.
    pub waiting_for_staging: Duration,
    /// Time from there on.
    pub running: Duration,
    /// One for each hop of the plan.
    pub hops: Vec<HopReport>,
}

/// What a hop spends its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Doing {
    Busy,
    Input,
    Space,
    Channel,
    #[default]
    Nothing,
}

/// Adds up what one hop did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    doing: Doing,
    since: Time,
    spent: [Duration; 4],
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    longest: Duration,
    held_up_by: Option<TransferId>,
}

impl Meter {
    /// Of a hop that has ended, as another node tells it.
    pub(crate) fn told(hop: &HopReport) -> Self {
        let spent =
            [hop.busy, hop.waiting_for_input, hop.waiting_for_space, hop.waiting_for_channel];
        Meter { spent, bytes: hop.bytes, requests: hop.requests, ..Meter::default() }
    }

    pub(crate) fn doing(&self) -> Doing {
        self.doing
    }

    /// From `now` on the hop does `doing`.
    pub(crate) fn turn(&mut self, now: Time, doing: Doing) {
        if self.doing != doing {
            self.add_up(now);
            (self.doing, self.since) = (doing, now);
        }
    }

    fn add_up(&mut self, now: Time) {
        if let Some(spent) = self.spent.get_mut(self.doing as usize) {
            *spent += now.since(self.since);
        }
    }

    /// A request is about to be given out, after `other`'s.
    pub(crate) fn served_after(&mut self, now: Time, other: Option<TransferId>) {
        let waited = now.since(self.since);
        if self.doing == Doing::Channel && waited > self.longest {
            (self.longest, self.held_up_by) = (waited, other);
        }
    }

    pub(crate) fn report(&self, now: Time, channel: ChannelId, ends: [MemoryId; 2]) -> HopReport {
        let mut until_now = self.clone();
        until_now.add_up(now);
        let [busy, input, space, waited] = until_now.spent;
        HopReport {
            channel,
            from: ends[0],
            to: ends[1],
            bytes: self.bytes,
            requests: self.requests,
            busy,
            waiting_for_input: input,
            waiting_for_space: space,
            waiting_for_channel: waited,
            held_up_by: self.held_up_by,
        }
    }
}

/// When a transfer came to its stages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stages {
    pub(crate) submitted: Time,
    pub(crate) released: Option<Time>,
    pub(crate) started: Option<Time>,
    pub(crate) ended: Option<Time>,
}

impl Stages {
    /// Times spent waiting for others, for staging, and running.
    pub(crate) fn spent(&self, now: Time) -> [Duration; 3] {
        let end = self.ended.unwrap_or(now);
        let released = self.released.unwrap_or(end);
        let started = self.started.unwrap_or(end);
        [released - self.submitted, started - released, end - started]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::NodeId;

    #[test]
    fn times_add_up_and_name_who_held_it_up() {
        let memory = MemoryId { node: NodeId(0), index: 0 };
        let other = TransferId { index: 7, generation: 0 };
        let mut meter = Meter::default();
        meter.turn(Time(10), Doing::Input);
        meter.turn(Time(15), Doing::Channel);
        meter.served_after(Time(35), Some(other));
        meter.turn(Time(35), Doing::Busy);
        let channel = ChannelId { node: NodeId(0), index: 0 };
        let report = meter.report(Time(45), channel, [memory, memory]);
        assert_eq!(report.waiting_for_input, Duration::from_nanos(5));
        assert_eq!(report.waiting_for_channel, Duration::from_nanos(20));
        assert_eq!(report.busy, Duration::from_nanos(10));
        assert_eq!((report.waiting_for_space, report.held_up_by), (Duration::ZERO, Some(other)));
    }

    #[test]
    fn who_is_served_at_once_was_held_up_by_nobody() {
        let memory = MemoryId { node: NodeId(0), index: 0 };
        let mut meter = Meter::default();
        meter.turn(Time(10), Doing::Channel);
        meter.served_after(Time(10), Some(TransferId { index: 7, generation: 0 }));
        let channel = ChannelId { node: NodeId(0), index: 0 };
        assert_eq!(meter.report(Time(10), channel, [memory, memory]).held_up_by, None);
    }
}
