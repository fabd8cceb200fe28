//! Wires that several channels cross at once.
//!
//! **Hazard.** Two channels on one bus that each run at their own rate move more than the bus
//! carries. **Guarantee.** What crosses a wire at any moment takes no more of it than there is, and
//! nobody could have more without taking it from one who has no more than he (max-min fair). The
//! sums are of `f64` in one order, without a function of the standard library's that differs
//! between machines, and instants are whole nanoseconds, rounded up. **Structure.** A [`Wire`] is
//! one direction of a wire, or both of a half-duplex one; a [`Flow`] is the one request that a
//! channel serves.

use model::Time;
use std::time::Duration;

/// What counts as nothing left, in nanoseconds: what sums leave over.
const NOTHING_NS: f64 = 1e-3;

/// A request that crosses a wire.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    channel: usize,
    /// What it would still take alone.
    left_ns: f64,
    /// The part of the wire that it would take alone.
    demand: f64,
    /// How fast it goes, against alone.
    pace: f64,
}

/// One direction of a wire, or a half-duplex one.
///
/// Invariant: the paces are those of [`Wire::share`] for the flows that are there.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Bytes per second.
    rate: f64,
    half_duplex: bool,
    /// One for each channel at most, in the order in which they joined.
    flows: Vec<Flow>,
    at: Time,
}

impl Wire {
    pub(crate) fn new(wire: &model::Wire) -> Self {
        let (rate, half_duplex) = (wire.rate, wire.half_duplex);
        Wire { rate, half_duplex, flows: Vec::new(), at: Time(0) }
    }

    /// `channel` starts a request of `bytes` that takes it `service` where no wire holds it up.
    pub(crate) fn join(&mut self, now: Time, channel: usize, bytes: u64, service: Duration) {
        self.advance(now);
        let (service_ns, wire_ns) = (nanoseconds(service), bytes as f64 * 1e9 / self.rate);
        let alone_ns = service_ns.max(wire_ns);
        // A half-duplex wire is taken for as long as it lasts; the other in part.
        let fills = self.half_duplex || alone_ns <= 0.0;
        let demand = if fills { 1.0 } else { wire_ns / alone_ns };
        self.flows.push(Flow { channel, left_ns: alone_ns, demand, pace: 0.0 });
        self.share();
    }

    /// When the next request has crossed, if nothing else happens on this wire.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let ends = self.flows.iter().map(|flow| flow.left_ns.max(0.0) / flow.pace);
        let first = ends.min_by(f64::total_cmp)?;
        Some(self.at + Duration::from_nanos(whole(libm::ceil(first))))
    }

    /// The channels whose requests have crossed by `now`.
    pub(crate) fn leave(&mut self, now: Time) -> Vec<usize> {
        self.advance(now);
        let done = self.flows.extract_if(.., |flow| flow.left_ns < NOTHING_NS);
        let done: Vec<usize> = done.map(|flow| flow.channel).collect();
        self.share();
        done
    }

    fn advance(&mut self, now: Time) {
        let passed_ns = nanoseconds(now.since(self.at));
        for flow in &mut self.flows {
            flow.left_ns -= flow.pace * passed_ns;
        }
        self.at = now;
    }

    /// Gives each the part of the wire that it asks for, or an equal part of what those who ask
    /// for less leave.
    fn share(&mut self) {
        let mut order: Vec<usize> = (0..self.flows.len()).collect();
        order.sort_by(|&a, &b| self.flows[a].demand.total_cmp(&self.flows[b].demand));
        let mut left = 1.0;
        for (served, &at) in order.iter().enumerate() {
            let flow = &mut self.flows[at];
            let part = flow.demand.min(left / (order.len() - served) as f64);
            left -= part;
            flow.pace = part / flow.demand;
        }
    }
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
mod tests {
    use super::*;

    fn wire(rate: f64, half_duplex: bool) -> Wire {
        Wire::new(&model::Wire { name: "bus".to_owned(), rate, half_duplex })
    }

    /// The instants at which requests of `(bytes, service_ns)`, all begun at 0, have crossed.
    fn ends(mut wire: Wire, requests: &[(u64, u64)]) -> Vec<u64> {
        for (channel, &(bytes, service_ns)) in requests.iter().enumerate() {
            wire.join(Time(0), channel, bytes, Duration::from_nanos(service_ns));
        }
        let mut ends = vec![0; requests.len()];
        while let Some(at) = wire.next_at() {
            wire.leave(at).into_iter().for_each(|channel| ends[channel] = at.0);
        }
        ends
    }

    #[test]
    fn a_channel_alone_has_its_own_rate_or_the_wires() {
        assert_eq!(ends(wire(1e9, false), &[(1000, 4000)]), [4000]);
        assert_eq!(ends(wire(1e9, false), &[(1000, 10)]), [1000]);
        assert_eq!(ends(wire(1e9, true), &[(1000, 4000)]), [4000]);
    }

    #[test]
    fn two_channels_get_half_each() {
        assert_eq!(ends(wire(1e9, false), &[(1000, 1000), (1000, 500)]), [2000, 2000]);
    }

    #[test]
    fn a_slow_one_leaves_its_rest_to_the_others() {
        // A tenth for the first; the others halve what is left.
        let all = ends(wire(1e9, false), &[(100, 1000), (450, 1), (450, 1)]);
        assert_eq!(all, [1000, 1000, 1000]);
        // Once the second has gone, the first is not held up: it never was.
        assert_eq!(ends(wire(1e9, false), &[(100, 1000), (90, 1)]), [1000, 100]);
    }

    #[test]
    fn who_stays_gets_what_those_who_leave_had() {
        // Half the wire until 1000, all of it for the 500 bytes that are left then.
        assert_eq!(ends(wire(1e9, false), &[(500, 1), (1000, 1)]), [1000, 1500]);
    }

    #[test]
    fn a_half_duplex_wire_is_taken_for_as_long_as_it_lasts() {
        // Each takes it alone for as long as its channel does, whatever is carried meanwhile.
        assert_eq!(ends(wire(1e9, true), &[(100, 1000), (100, 1000)]), [2000, 2000]);
        assert_eq!(ends(wire(1e9, true), &[(100, 1000), (1000, 10)]), [2000, 2000]);
    }

    #[test]
    fn parts_of_nanoseconds_are_rounded_up() {
        assert_eq!(ends(wire(3e9, false), &[(1, 0), (1, 0), (1, 0)]), [1, 1, 1]);
        assert_eq!(ends(wire(1e9, false), &[(0, 0)]), [0]);
    }
}
