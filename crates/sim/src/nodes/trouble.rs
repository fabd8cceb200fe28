//! What goes wrong between nodes, and what of it excuses that one gives another up.
//!
//! **Hazard.** Where anything may fail once something has gone wrong somewhere, an engine that gives
//! peers up for nothing goes unseen. **Guarantee.** Each time that a peer is given up there is a
//! reason: it died, it gave up the other, or for a lease no packet of it came since one of the two
//! was down or a packet between them was lost; and a transfer fails with a lost peer only where two
//! of its nodes have so parted.

use super::WireSpec;
use model::{NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// One node has given another up.
#[derive(Debug)]
struct Loss {
    at: Time,
    by: NodeId,
    of: NodeId,
}

/// A node was dead, or did not run.
#[derive(Debug)]
struct Down {
    node: NodeId,
    from: Time,
    until: Time,
}

/// What has gone wrong so far.
#[derive(Debug)]
pub(super) struct Trouble {
    lease_ns: u64,
    /// The most that a packet takes that is neither lost nor late.
    delay_ns: u64,
    /// Until when no packet passes from the one to the other.
    cuts: BTreeMap<(NodeId, NodeId), Time>,
    /// When a packet between two, the lesser first, was last lost or late.
    drops: BTreeMap<(NodeId, NodeId), Time>,
    downs: Vec<Down>,
    deaths: Vec<(Time, NodeId)>,
    losses: Vec<Loss>,
}

impl Trouble {
    pub(super) fn new(wire: &WireSpec) -> Self {
        Trouble {
            lease_ns: u64::try_from(wire.lease.as_nanos()).expect("a short lease"),
            delay_ns: wire.latency_ns + wire.jitter_ns,
            cuts: BTreeMap::new(),
            drops: BTreeMap::new(),
            downs: Vec::new(),
            deaths: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// No packet from the one arrives at the other.
    pub(super) fn cut(&mut self, from: NodeId, to: NodeId, until: Time) {
        let known = self.cuts.entry((from, to)).or_default();
        *known = until.max(*known);
    }

    pub(super) fn is_cut(&self, now: Time, from: NodeId, to: NodeId) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|until| now < *until)
    }

    /// A packet between the two is lost, or late.
    pub(super) fn dropped(&mut self, now: Time, one: NodeId, other: NodeId) {
        self.drops.insert((one.min(other), one.max(other)), now);
    }

    /// A node does not run for a while.
    pub(super) fn stalled(&mut self, node: NodeId, from: Time, until: Time) {
        self.downs.push(Down { node, from, until });
    }

    pub(super) fn died(&mut self, now: Time, node: NodeId) {
        self.deaths.push((now, node));
        self.downs.push(Down { node, from: now, until: Time(u64::MAX) });
    }

    /// A node that was dead runs again.
    pub(super) fn returned(&mut self, now: Time, node: NodeId) {
        let open = |down: &&mut Down| down.node == node && down.until > now;
        self.downs.iter_mut().filter(open).for_each(|down| down.until = now);
    }

    /// One gives the other up; whether there is a reason.
    pub(super) fn gives_up(&mut self, now: Time, by: NodeId, of: NodeId) -> bool {
        let last = self.losses.iter().rev().find(|l| (l.by, l.of) == (by, of)).map(|l| l.at);
        let since = last.unwrap_or_default();
        let was_given_up = self.losses.iter().any(|l| (l.by, l.of) == (of, by) && l.at >= since);
        let has_died = self.deaths.iter().any(|(at, node)| *node == of && *at >= since);
        let is_silent = self.may_be_silent(now, by, of);
        self.losses.push(Loss { at: now, by, of });
        was_given_up || has_died || is_silent
    }

    /// Whether something kept the packets of a lease. Who runs for three quarters of one sends, and
    /// hears, more than one.
    fn may_be_silent(&self, now: Time, one: NodeId, other: NodeId) -> bool {
        let from = now.0.saturating_sub(self.lease_ns);
        let down = |node: NodeId| -> u64 {
            let its = self.downs.iter().filter(|down| down.node == node);
            its.map(|down| down.until.0.min(now.0).saturating_sub(down.from.0.max(from))).sum()
        };
        let drop = self.drops.get(&(one.min(other), one.max(other)));
        let is_dropped = drop.is_some_and(|at| at.0 + self.delay_ns >= from);
        is_dropped || down(one) >= self.lease_ns / 4 || down(other) >= self.lease_ns / 4
    }

    /// Whether a node has died since.
    pub(super) fn has_died(&self, since: Time, node: NodeId) -> bool {
        self.deaths.iter().any(|(at, dead)| *dead == node && *at >= since)
    }

    /// Whether two of these nodes have parted since, or one has died.
    pub(super) fn have_parted(&self, since: Time, nodes: &BTreeSet<NodeId>) -> bool {
        let parts = |l: &Loss| l.at >= since && nodes.contains(&l.by) && nodes.contains(&l.of);
        self.losses.iter().any(parts) || nodes.iter().any(|node| self.has_died(since, *node))
    }
}
