//! Wires that several channels cross at once.
//!
//! **Hazard.** Two channels on one bus that each run at their own rate move more than the bus
//! carries; many nodes that send to one move more than its port does. **Guarantee.** What crosses a
//! wire at any moment takes no more of it than there is, and nobody could have more without taking
//! it from one who has no more than he (max-min fair); a flow that another wire holds up leaves the
//! rest to others. The sums are of `f64` in one order, without a function of the standard library's
//! that differs between machines, and instants are whole nanoseconds, rounded up. **Structure.** A
//! wire here is one direction of a wire, or both of a half-duplex one; a [`Flow`] is the one request
//! that a channel serves. When one comes or goes, only those that share a wire with it are shared
//! out anew, and those that share one with them where it has too little for all that cross it.

use model::Time;
use std::time::Duration;

/// What counts as nothing left, in nanoseconds: what sums leave over.
const NOTHING_NS: f64 = 1e-3;
/// A wire that is asked for no more than this, as a part of it, holds nobody up.
const ALL: f64 = 1.0 + 1e-12;

/// A request that crosses one wire, or two.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    /// The wires, and the part of either that it would take alone.
    crosses: [Option<(usize, f64)>; 2],
    /// What it would still take alone.
    left_ns: f64,
    /// How fast it goes, against alone.
    pace: f64,
    /// When that was so.
    at: Time,
}

impl Flow {
    fn advance(&mut self, now: Time) {
        self.left_ns -= self.pace * nanoseconds(now.since(self.at));
        self.at = now;
    }

    fn crosses(&self) -> impl Iterator<Item = (usize, f64)> + use<> {
        self.crosses.into_iter().flatten()
    }

    /// The wire that says when it has crossed.
    fn last(&self) -> usize {
        self.crosses().last().map_or(0, |(wire, _)| wire)
    }
}

/// One direction of a wire, or a half-duplex one.
#[derive(Debug)]
struct Wire {
    /// Bytes per second.
    rate: f64,
    half_duplex: bool,
    /// The channels whose requests cross it, in the order in which they came.
    channels: Vec<usize>,
    /// Whether it has been looked at, while flows are shared out.
    is_seen: bool,
}

/// All wires.
///
/// Invariant: the paces are those of [`Wires::share`] for the flows that are there.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    wires: Vec<Wire>,
    /// By channel.
    flows: Vec<Option<Flow>>,
}

impl Wires {
    /// Adds one direction of `wire`, or both where it is half duplex; returns its number.
    pub(crate) fn add(&mut self, wire: &model::Wire) -> usize {
        let (rate, half_duplex) = (wire.rate, wire.half_duplex);
        self.wires.push(Wire { rate, half_duplex, channels: Vec::new(), is_seen: false });
        self.wires.len() - 1
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.wires.len()
    }

    /// `channel` starts a request of `bytes` across `wires`, which takes it `service` where none
    /// holds it up. Returns the wires of which [`Wires::next_at`] may have changed.
    pub(crate) fn join(
        &mut self,
        now: Time,
        channel: usize,
        wires: [Option<usize>; 2],
        (bytes, service): (u64, Duration),
    ) -> Vec<usize> {
        let wire_ns = |wire: usize| bytes as f64 * 1e9 / self.wires[wire].rate;
        let slowest = |most: f64, wire: usize| most.max(wire_ns(wire));
        let alone_ns = wires.into_iter().flatten().fold(nanoseconds(service), slowest);
        let part = |wire: usize| {
            // A half-duplex wire is taken for as long as it lasts; the other in part.
            let fills = self.wires[wire].half_duplex || alone_ns <= 0.0;
            (wire, if fills { 1.0 } else { wire_ns(wire) / alone_ns })
        };
        let crosses = wires.map(|wire| wire.map(part));
        let flow = Flow { crosses, left_ns: alone_ns, pace: 0.0, at: now };
        for (wire, _) in flow.crosses() {
            self.wires[wire].channels.push(channel);
        }
        if self.flows.len() <= channel {
            self.flows.resize(channel + 1, None);
        }
        self.flows[channel] = Some(flow);
        self.share(now, flow.crosses().map(|(wire, _)| wire).collect())
    }

    /// When the next request whose last wire this is has crossed it, if nothing else happens.
    pub(crate) fn next_at(&self, wire: usize) -> Option<Time> {
        let flows = self.wires[wire].channels.iter().filter_map(|&channel| self.flows[channel]);
        let ends = flows.filter(|flow| flow.last() == wire).map(|flow| {
            let left = Duration::from_nanos(whole(libm::ceil(flow.left_ns.max(0.0) / flow.pace)));
            flow.at + left
        });
        ends.min()
    }

    /// The channels whose requests have crossed `wire` by `now`, and the wires of which
    /// [`Wires::next_at`] may have changed.
    pub(crate) fn leave(&mut self, now: Time, wire: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut done, mut touched) = (Vec::new(), vec![wire]);
        for &channel in &self.wires[wire].channels {
            let Some(flow) = &mut self.flows[channel] else { continue };
            if flow.last() == wire {
                flow.advance(now);
            }
            if flow.last() == wire && flow.left_ns < NOTHING_NS {
                done.push(channel);
            }
        }
        for &channel in &done {
            let Some(flow) = self.flows[channel].take() else { continue };
            for (wire, _) in flow.crosses() {
                self.wires[wire].channels.retain(|&other| other != channel);
                touched.push(wire);
            }
        }
        (done, self.share(now, touched))
    }

    /// Gives each flow that a change on these wires may matter to its pace; returns their last
    /// wires.
    fn share(&mut self, now: Time, touched: Vec<usize>) -> Vec<usize> {
        let (wires, channels) = self.reached(touched);
        let all = |wire: &usize| Left { rate: self.wires[*wire].rate, part: 1.0, flows: 0 };
        let mut left: Vec<Left> = wires.iter().map(all).collect();
        let mut waiting = Vec::with_capacity(channels.len());
        for &channel in &channels {
            let Some(flow) = &mut self.flows[channel] else { continue };
            flow.advance(now);
            let crosses = flow.crosses.map(|crosses| {
                let (wire, part) = crosses?;
                Some((wires.iter().position(|&other| other == wire)?, part))
            });
            crosses.into_iter().flatten().for_each(|(at, _)| left[at].flows += 1);
            waiting.push(Asks { channel, crosses });
        }
        for (channel, pace) in fair(waiting, left) {
            if let Some(flow) = &mut self.flows[channel] {
                flow.pace = pace;
            }
        }
        let flows = channels.iter().filter_map(|&channel| self.flows[channel]);
        let mut last: Vec<usize> = flows.map(|flow| flow.last()).collect();
        last.sort_unstable();
        last.dedup();
        last
    }

    /// The wires and the channels that a change on `touched` may matter to.
    fn reached(&mut self, mut touched: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        let (mut wires, mut channels) = (Vec::new(), Vec::new());
        while let Some(wire) = touched.pop() {
            if std::mem::replace(&mut self.wires[wire].is_seen, true) {
                continue;
            }
            wires.push(wire);
            for &channel in &self.wires[wire].channels {
                let Some(flow) = self.flows[channel] else { continue };
                let other = flow.crosses().map(|(other, _)| other).find(|&other| other != wire);
                // Its other wire may have brought it here.
                if !other.is_some_and(|other| self.wires[other].is_seen) {
                    channels.push(channel);
                }
                touched.extend(other.filter(|&other| self.is_short(other)));
            }
        }
        wires.iter().for_each(|&wire| self.wires[wire].is_seen = false);
        (wires, channels)
    }

    /// Whether those that cross a wire ask for more than there is.
    fn is_short(&self, wire: usize) -> bool {
        let flows = self.wires[wire].channels.iter().filter_map(|&channel| self.flows[channel]);
        let parts = flows.flat_map(|flow| flow.crosses()).filter(|part| part.0 == wire);
        parts.map(|part| part.1).sum::<f64>() > ALL
    }
}

/// What a wire has left for those whose pace is not settled.
#[derive(Debug)]
struct Left {
    /// Of the wire, in bytes per second.
    rate: f64,
    /// The part of it.
    part: f64,
    flows: usize,
}

impl Left {
    /// The part for each of them.
    fn each(&self) -> f64 {
        self.part / self.flows as f64
    }

    fn take(&mut self, part: f64) {
        self.part -= part;
        self.flows -= 1;
    }
}

/// A flow whose pace is not settled: its wires, by their places in a list, and the part of either
/// that it would take alone.
#[derive(Debug)]
struct Asks {
    channel: usize,
    crosses: [Option<(usize, f64)>; 2],
}

impl Asks {
    fn crosses(&self) -> impl Iterator<Item = (usize, f64)> + use<> {
        self.crosses.into_iter().flatten()
    }

    /// The part of the wire at `at` that it would take alone.
    fn part_of(&self, at: usize) -> Option<f64> {
        self.crosses().find(|(other, _)| *other == at).map(|(_, part)| part)
    }

    /// The bytes per second that it would move alone.
    fn rate(&self, left: &[Left]) -> f64 {
        self.crosses().next().map_or(0.0, |(at, part)| part * left[at].rate)
    }
}

/// The pace of each flow, max-min fair: those that ask for least get it, until those that are left
/// have no more on some wire than an equal part each.
fn fair(mut waiting: Vec<Asks>, mut left: Vec<Left>) -> Vec<(usize, f64)> {
    waiting.sort_by(|a, b| b.rate(&left).total_cmp(&a.rate(&left)));
    // Of equals, who came first is served first.
    waiting.chunk_by_mut(|a, b| a.rate(&left) == b.rate(&left)).for_each(<[Asks]>::reverse);
    let mut paces = Vec::with_capacity(waiting.len());
    while let Some(least) = waiting.pop() {
        let rate = |at: &usize| left[*at].each() * left[*at].rate;
        let crossed = (0..left.len()).filter(|&at| left[at].flows > 0);
        let shortest = crossed.min_by(|a, b| rate(a).total_cmp(&rate(b))).expect("it crosses one");
        if least.rate(&left) <= rate(&shortest) {
            least.crosses().for_each(|(at, part)| left[at].take(part));
            paces.push((least.channel, 1.0));
            continue;
        }
        waiting.push(least);
        let held_up = waiting.extract_if(.., |flow| flow.part_of(shortest).is_some());
        for flow in held_up.collect::<Vec<_>>().into_iter().rev() {
            let each = left[shortest].each();
            let pace = flow.part_of(shortest).map_or(1.0, |part| each / part);
            let taken = |at: usize, part: f64| if at == shortest { each } else { pace * part };
            flow.crosses().for_each(|(at, part)| left[at].take(taken(at, part)));
            paces.push((flow.channel, pace));
        }
    }
    paces
}

#[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are 104 days")]
fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held at the ends")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests;
