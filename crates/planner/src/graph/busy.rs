//! A graph some of whose channels and wires others use.

use super::{Graph, Lane};
use crate::Load;
use std::borrow::Cow;

/// The two directions on a wire: towards the host's memories, and away from them.
const WAYS: [bool; 2] = [true, false];

impl Graph<'_> {
    /// Leaves of every lane and wire what fair sharing leaves beside the flows of `load`, and
    /// returns how many of these there are here. A channel has one request at a time on its wire:
    /// the channels at work share the wire, and the flows of each share what it gets.
    pub(crate) fn share(&mut self, load: &Load) -> u64 {
        if load.is_idle() {
            return 0;
        }
        let sharers = |lane: &Lane<'_>| (load.flows(lane.id), self.crossing_with(lane, load));
        let sharers: Vec<_> = self.lanes.iter().map(sharers).collect();
        for (lane, &(flows, channels)) in self.lanes.iter_mut().zip(&sharers) {
            if flows > 0 {
                lane.curves = Cow::Owned(lane.curves.shared(flows.saturating_add(1)));
            }
            if let Some(wire) = &mut lane.wire {
                wire.rate /= (f64::from(flows) + 1.0) * (f64::from(channels) + 1.0);
            }
        }
        sharers.iter().map(|&(flows, _)| u64::from(flows)).sum()
    }

    /// Closes every lane that `load` uses, and every wire in the directions that it uses.
    pub(crate) fn close(&mut self, load: &Load) {
        if load.is_idle() {
            return;
        }
        let open = |lane: &Lane<'_>| {
            let closed = |to_host: &bool| self.crossed(lane, *to_host, load) > 0;
            let ends = WAYS.into_iter().filter(closed).map(|to_host| self.ends(to_host));
            if load.flows(lane.id) > 0 { 0 } else { ends.fold(lane.to, |left, ends| left & !ends) }
        };
        let open: Vec<u64> = self.lanes.iter().map(open).collect();
        self.lanes.iter_mut().zip(open).for_each(|(lane, to)| lane.to = to);
    }

    /// How many other channels cross the wire of `lane` where its own edges do.
    fn crossing_with(&self, lane: &Lane<'_>, load: &Load) -> u32 {
        let ways = WAYS.into_iter().filter(|&to_host| lane.to & self.ends(to_host) != 0);
        ways.map(|to_host| self.crossed(lane, to_host, load)).max().unwrap_or(0)
    }

    /// How many other channels cross the wire of `lane` in one direction, or in either where they
    /// exclude each other.
    fn crossed(&self, lane: &Lane<'_>, to_host: bool, load: &Load) -> u32 {
        let Some(wire) = &lane.wire else { return 0 };
        let crosses = |other: &&Lane<'_>| {
            let beside = other.id != lane.id && other.wire.is_some_and(|w| w.is(wire));
            let there = load.flows_towards(other.id, to_host) > 0;
            beside && (there || (wire.half_duplex && load.flows(other.id) > 0))
        };
        self.lanes.iter().filter(crosses).map(|_| 1).sum()
    }

    /// The vertices where edges in one direction end, as bits.
    fn ends(&self, to_host: bool) -> u64 {
        let ends = (0..).zip(&self.vertices).filter(|(_, v)| v.kind.is_host() == to_host);
        ends.fold(0, |bits, (at, _): (u8, _)| bits | 1 << at)
    }
}
