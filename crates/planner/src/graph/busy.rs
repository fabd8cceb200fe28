//! A graph some of whose channels and wires others use.

use super::{Crosses, Graph, Lane, WireRef};
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
        let left: Vec<Crosses> = self.lanes.iter().map(|lane| self.left(lane, load)).collect();
        let mut flows_here = 0;
        for (lane, crosses) in self.lanes.iter_mut().zip(left) {
            let flows = load.flows(lane.id);
            if flows > 0 {
                lane.curves = Cow::Owned(lane.curves.shared(flows.saturating_add(1)));
            }
            lane.crosses = crosses;
            flows_here += u64::from(flows);
        }
        flows_here
    }

    /// What the wires of `lane` have left for one more flow.
    fn left(&self, lane: &Lane<'_>, load: &Load) -> Crosses {
        let own = f64::from(load.flows(lane.id)) + 1.0;
        let part = |others: u32| 1.0 / (own * (f64::from(others) + 1.0));
        match &lane.crosses {
            Crosses::Own(wire) => Crosses::Own(wire.map(|wire| {
                let ways = WAYS.into_iter().filter(|&way| lane.to & self.ends(way) != 0);
                let others = ways.map(|way| load.beside(lane.id, &wire, way)).max().unwrap_or(0);
                WireRef { rate: wire.rate * part(others), ..wire }
            })),
            Crosses::Ports(_) => Crosses::Ports(
                self.ports(lane)
                    .map(|(_, port, way)| ((port.id, way), part(load.beside(lane.id, &port, way))))
                    .collect(),
            ),
        }
    }

    /// Closes every lane that `load` uses, and every wire in the directions that it uses.
    pub(crate) fn close(&mut self, load: &Load) {
        if load.is_idle() {
            return;
        }
        let open: Vec<_> = self.lanes.iter().map(|lane| self.open(lane, load)).collect();
        for (lane, (from, to)) in self.lanes.iter_mut().zip(open) {
            (lane.from, lane.to) = (from, to);
        }
    }

    /// Where edges of `lane` may still start and end.
    fn open(&self, lane: &Lane<'_>, load: &Load) -> (u64, u64) {
        if load.flows(lane.id) > 0 {
            return (0, 0);
        }
        let mut open = (lane.from, lane.to);
        match &lane.crosses {
            Crosses::Own(None) => {}
            Crosses::Own(Some(wire)) => {
                let used = WAYS.into_iter().filter(|&way| load.beside(lane.id, wire, way) > 0);
                used.for_each(|way| open.1 &= !self.ends(way));
            }
            Crosses::Ports(_) => {
                let used =
                    self.ports(lane).filter(|(_, port, way)| load.beside(lane.id, port, *way) > 0);
                for (vertex, _, comes_in) in used {
                    let end = if comes_in { &mut open.1 } else { &mut open.0 };
                    *end &= !(1 << vertex);
                }
            }
        }
        open
    }

    /// The ports of all ends of a link, each with its vertex and whether traffic comes in there.
    fn ports(&self, lane: &Lane<'_>) -> impl Iterator<Item = (u8, WireRef, bool)> + '_ {
        let ends = [(lane.from, false), (lane.to, true)];
        ends.into_iter().flat_map(move |(ends, comes_in)| {
            super::members(ends).filter_map(move |vertex| {
                Some((vertex, self.vertices[usize::from(vertex)].port?, comes_in))
            })
        })
    }

    /// The vertices where edges in one direction end, as bits.
    fn ends(&self, to_host: bool) -> u64 {
        let ends = (0..).zip(&self.vertices).filter(|(_, v)| v.kind.is_host() == to_host);
        ends.fold(0, |bits, (at, _): (u8, _)| bits | 1 << at)
    }
}
