//! What a path with its layouts costs, and the requests and buffers that go with it.
//!
//! The paper's model is the least `tp(PREFIX)` over the hops. The default model counts what that
//! leaves out:
//!
//! - a channel or wire that several hops cross carries the payload once for each, a half-duplex
//!   wire in one direction at a time;
//! - a disk moves whole pages, so runs that start elsewhere move more than they hold;
//! - a hop's rate is that of its shape class, and falls where latency is not hidden by the
//!   requests in flight;
//! - the time is the payload over the rate of the slowest resource, plus each other hop's first or
//!   last unit of work (a request, or a granule where a hop between windows converts), plus the
//!   latencies.

use crate::graph::{Graph, Lane, WireRef};
use crate::path::{MAX_HOPS, Path, Solution, Step};
use crate::rates::{curve, inverse, rate};
use crate::round::gcd;
use crate::shape::{Shape, WHOLE};
use crate::solve::{Fitter, Needs};
use model::{Bound, CostModel, Limit, MemoryKind, ShapeClass, Throughput};

/// Requests in flight where a channel's own number was not measured.
const IN_FLIGHT: u32 = 2;
/// What a request carries where a buffer or the payload doesn't keep it smaller: enough that what
/// an engine does for it doesn't count, and that a conversion uses whole lines on both sides.
const WANTED_BYTES: u64 = 1 << 20;
/// No request is smaller for the sake of pipelining, nor larger for the sake of the curve, unless no buffer is
/// beside it and it takes less than [`REQUEST_SECONDS`].
const REQUEST_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=4 << 20;
/// What an urgent copy may wait for any request: larger ones are only for channels that have no other way to
/// hide what is done for each, as those inside the memory of a device.
const REQUEST_SECONDS: f64 = 200e-6;
/// A request reaches this part of its channel's rate.
const GOOD_RATE: f64 = 0.97;
/// What a disk moves at the least.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// What counts as faster than a rate.
const FASTER: f64 = 1.0 + 1e-6;
/// What a ring that a disk fills holds at the least. The lines of a shorter one are still in caches when they
/// are filled again, and other cores may do that, as a host's that copy what its guest reads: to take the
/// lines away from the caches of those that convert is half as fast as to write memory.
const READ_RING_BYTES: u64 = 16 << 20;
/// A buffer of the paper's model that no granule needs larger.
const PAPER_BUFFER_BYTES: u64 = 1 << 20;

/// One hop's part of a prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopCost {
    pub(crate) step: Step,
    pub(crate) rate: f64,
    pub(crate) request_bytes: u64,
}

/// What a solved path costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prediction {
    pub(crate) throughput: f64,
    pub(crate) seconds: f64,
    pub(crate) hops: [HopCost; MAX_HOPS],
    pub(crate) bound: Bound,
}

/// What bounds a prediction of the default model.
struct Busiest {
    hop: usize,
    /// How long a byte of payload keeps the hop's channel or wire busy.
    seconds_a_byte: f64,
    /// `None` where the hop has its channel for itself.
    why: Option<Limit>,
}

/// A path, its layouts and what surrounds them.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) model: CostModel,
    pub(crate) path: &'a Path,
    pub(crate) solution: &'a Solution,
}

impl<'a> Case<'a> {
    pub(crate) fn lane(&self, hop: usize) -> &'a Lane<'a> {
        self.graph.lane(self.path.edges()[hop])
    }

    fn hops(&self) -> usize {
        self.path.hops()
    }

    /// `TH` of the memory that hop `hop` writes; no limit at the destination.
    fn th_after(&self, hop: usize) -> u64 {
        if hop + 1 == self.hops() {
            return u64::MAX;
        }
        self.graph.th_bytes(self.path.edges()[hop].to)
    }

    /// `TH` of the memory that hop `hop` reads; no limit at the source.
    fn th_before(&self, hop: usize) -> u64 {
        if hop == 0 { u64::MAX } else { self.th_after(hop - 1) }
    }

    /// The model's prediction.
    pub(crate) fn predict(&self) -> Prediction {
        let steps = self.solution.steps(self.shape, self.hops());
        match self.model {
            CostModel::Paper => self.paper(&steps),
            CostModel::Default => self.timed(&steps),
        }
    }

    fn paper(&self, steps: &[Step; MAX_HOPS]) -> Prediction {
        let hops = self.costs(steps, u64::MAX);
        let rates = hops[..self.hops()].iter().map(|h| h.rate);
        let throughput = rates.fold(f64::INFINITY, f64::min);
        let bound = self.bound(&hops, throughput);
        let seconds = self.shape.payload as f64 / throughput;
        Prediction { throughput, seconds, hops, bound }
    }

    /// The default model, with requests small enough that the hops overlap.
    fn timed(&self, steps: &[Step; MAX_HOPS]) -> Prediction {
        let largest = self.timed_with(self.costs(steps, u64::MAX));
        let longest = largest.hops[..self.hops()].iter().map(|h| h.request_bytes).max();
        if self.hops() == 1 || longest.is_none_or(|q| self.shape.payload / q > 64) {
            return largest;
        }
        let smaller =
            [4, 16, 64].map(|n| self.timed_with(self.costs(steps, self.shape.payload / n)));
        smaller.into_iter().fold(largest, |a, b| if b.seconds < a.seconds { b } else { a })
    }

    fn timed_with(&self, hops: [HopCost; MAX_HOPS]) -> Prediction {
        let mut busiest = self.busiest_lane(&hops);
        for hop in 0..self.hops() {
            let seconds = self.wire_seconds_a_byte(hop, &hops);
            if seconds > busiest.seconds_a_byte * (1.0 + 1e-9) {
                let why = Some(Limit::Wire);
                busiest = Busiest { hop, seconds_a_byte: seconds, why };
            }
        }
        let overhead = self.overhead_seconds(&hops, &busiest);
        let streaming = self.shape.payload as f64 * busiest.seconds_a_byte;
        let bound = match busiest.why {
            _ if overhead > streaming => Bound { hop: busiest.hop, why: Limit::Latency },
            Some(why) => Bound { hop: busiest.hop, why },
            None => self.bound_at(busiest.hop, &hops),
        };
        let throughput = 1.0 / busiest.seconds_a_byte;
        Prediction { throughput, seconds: overhead + streaming, hops, bound }
    }

    /// The lane that the payload keeps busy longest, by the slowest hop on it.
    fn busiest_lane(&self, hops: &[HopCost; MAX_HOPS]) -> Busiest {
        let mut busiest = Busiest { hop: 0, seconds_a_byte: 0.0, why: None };
        for hop in 0..self.hops() {
            let id = self.lane(hop).id;
            let same = (0..self.hops()).filter(|&k| self.lane(k).id == id);
            let (uses, busy) = same.fold((0, 0.0), |(n, sum), k| (n + 1, sum + 1.0 / hops[k].rate));
            let most = busiest.seconds_a_byte;
            let slower = busy >= most && hops[hop].rate < hops[busiest.hop].rate;
            if busy > most * (1.0 + 1e-9) || slower {
                let why = (uses > 1).then_some(Limit::Channel);
                busiest = Busiest { hop, seconds_a_byte: busy.max(most), why };
            }
        }
        busiest
    }

    /// The seconds that a byte keeps the slowest wire of `hop` busy; in the direction of `hop`,
    /// unless the wire is half duplex.
    fn wire_seconds_a_byte(&self, hop: usize, hops: &[HopCost; MAX_HOPS]) -> f64 {
        let crossings = |k: usize| self.graph.crossings(self.path.edges()[k]);
        let all = |(wire, to_host): (WireRef, bool)| {
            let same = move |other: &(WireRef, bool)| {
                other.0.id == wire.id && (wire.half_duplex || other.1 == to_host)
            };
            let seconds = |k: usize| {
                let own = crossings(k).filter(same).map(move |(own, _)| match own.half_duplex {
                    true => self.lane(k).busy_seconds(hops[k].rate),
                    false => 1.0 / own.rate,
                });
                own.sum::<f64>()
            };
            (0..self.hops()).map(seconds).sum()
        };
        crossings(hop).map(all).fold(0.0, f64::max)
    }

    /// Latencies, and the units that the hops before the slowest must do first and those after it
    /// have left at the end. What shares the slowest's channel or wire is counted there.
    fn overhead_seconds(&self, hops: &[HopCost; MAX_HOPS], busiest: &Busiest) -> f64 {
        let latency: f64 = (0..self.hops()).map(|i| self.lane(i).latency_ns as f64).sum();
        let held_up = self.held_up(hops, busiest.hop);
        let granule = hops[self.solution.pivot].step.shuffle_bytes;
        let mut seconds = latency * 1e-9;
        let others = (0..self.hops()).filter(|&i| !self.excludes(i, busiest.hop));
        for i in others {
            let unit = if held_up == Some(i) { granule } else { hops[i].request_bytes };
            seconds += unit.min(self.shape.payload) as f64 / hops[i].rate;
        }
        seconds
    }

    /// Whether hops `a` and `b` can't work at once.
    fn excludes(&self, a: usize, b: usize) -> bool {
        self.lane(a).excludes(self.lane(b))
    }

    /// The hop that a whole granule passes while the slowest hop has nothing to do: the slowest
    /// of those that fill the first granule, or of those that empty the last one.
    fn held_up(&self, hops: &[HopCost; MAX_HOPS], slowest: usize) -> Option<usize> {
        let pivot = self.solution.pivot;
        let between = pivot > 0 && pivot + 1 < self.hops();
        let others = if slowest < pivot { pivot..self.hops() } else { 0..pivot };
        let others = others.filter(|&i| !self.excludes(i, slowest));
        between.then(|| others.min_by(|&a, &b| hops[a].rate.total_cmp(&hops[b].rate)))?
    }

    /// Requests of at most `most` bytes, and the rates that they reach.
    fn costs(&self, steps: &[Step; MAX_HOPS], most: u64) -> [HopCost; MAX_HOPS] {
        let mut hops = [HopCost { step: steps[0], rate: 1.0, request_bytes: 1 }; MAX_HOPS];
        for (i, hop) in hops[..self.hops()].iter_mut().enumerate() {
            hop.step = Step { class: self.class(i, steps[i].class), ..steps[i] };
            let curve = curve(self.model, &self.lane(i).curves, hop.step.class);
            hop.rate = curve.at(hop.step.prefix_bytes);
            hop.request_bytes = self.request_bytes(i, hop, curve, most);
            if self.model == CostModel::Default {
                hop.rate = self.rate_in_flight(i, hop, curve);
            }
        }
        hops
    }

    /// The rate of requests of the size that `hop` has, with as many in flight as the channel takes.
    fn rate_in_flight(&self, at: usize, hop: &HopCost, curve: &Throughput) -> f64 {
        let lane = self.lane(at);
        let run = hop.step.run_bytes.min(hop.request_bytes).min(self.end_run(at));
        let rate = if run == hop.step.prefix_bytes { hop.rate } else { curve.at(run) };
        let busy = hop.request_bytes as f64 / rate * self.off_page(at, &hop.step, run);
        let latency = lane.latency_ns as f64 * 1e-9;
        let in_flight = f64::from(lane.in_flight.unwrap_or(IN_FLIGHT));
        hop.request_bytes as f64 / busy.max((busy + latency) / in_flight)
    }

    /// How much more a disk moves than was measured on whole pages, where runs of `run` bytes
    /// start anywhere on their grid. Requests in order are whole pages but for the last.
    fn off_page(&self, hop: usize, step: &Step, run: u64) -> f64 {
        if !self.at_disk(hop) || run < step.run_bytes || step.shuffle_bytes == 1 {
            return 1.0;
        }
        let beside = PAGE_BYTES - gcd(PAGE_BYTES, step.start_bytes);
        (run + beside) as f64 / run.max(PAGE_BYTES) as f64
    }

    /// Whether a hop reads or writes a disk.
    pub(crate) fn at_disk(&self, hop: usize) -> bool {
        let edge = self.path.edges()[hop];
        let kind = |vertex: u8| self.graph.vertices[usize::from(vertex)].kind;
        [edge.from, edge.to].into_iter().any(|vertex| kind(vertex) == MemoryKind::Dsk)
    }

    /// A hop at an end with an index list gathers, in the default model.
    fn class(&self, hop: usize, class: ShapeClass) -> ShapeClass {
        let gathers = self.ends_at(hop).any(|end| self.shape.cuts[end].gathers);
        if gathers && self.model == CostModel::Default { ShapeClass::Gather } else { class }
    }

    /// The longest run at the ends that `hop` touches.
    fn end_run(&self, hop: usize) -> u64 {
        self.ends_at(hop).map(|end| self.shape.cuts[end].run_bytes).min().unwrap_or(u64::MAX)
    }

    /// 0 for the source, 1 for the destination.
    fn ends_at(&self, hop: usize) -> impl Iterator<Item = usize> {
        let last = hop + 1 == self.hops();
        [hop == 0, last].into_iter().zip(0..).filter_map(|(touches, end)| touches.then_some(end))
    }

    /// How much one request should carry, where the hop might reach `hop.rate`: the least power of
    /// two at which a point of the curve is near its height and hides the latency, at most a
    /// quarter of either ring; whole runs where it can be.
    fn request_bytes(&self, at: usize, hop: &HopCost, curve: &Throughput, most: u64) -> u64 {
        let good = curve.points().iter().find(|p| p.1 >= hop.rate * GOOD_RATE);
        let knee = good.map_or(1, |p| p.0);
        let hidden = (hop.rate * self.lane(at).latency_ns as f64 * 1e-9 * 8.0) as u64;
        let ring = self.th_before(at).min(self.th_after(at)) / 4;
        let (least, mut largest) = REQUEST_BYTES.into_inner();
        if self.hops() == 1 {
            let fast = (hop.rate * REQUEST_SECONDS) as u64;
            largest = largest.max(1 << fast.checked_ilog2().unwrap_or(0));
        }
        let payload = self.shape.payload;
        let wanted = knee.max(hidden).max(WANTED_BYTES).min(largest).min(payload);
        let held = wanted.next_power_of_two().min(most.max(least)).min(ring.max(1));
        let held = held.min(payload).max(1);
        let run = hop.step.prefix_bytes;
        if run < held { held - held % run } else { held }
    }

    /// The hop that bounds a plan of rate `throughput`: among those at it, one at its channel's
    /// peak before one that its requests limit, then the first.
    fn bound(&self, hops: &[HopCost; MAX_HOPS], throughput: f64) -> Bound {
        let slow = |i: &usize| hops[*i].rate <= throughput * (1.0 + 1e-12);
        let at_peak = |i: &usize| hops[*i].rate >= self.lane(*i).peak();
        let least = (0..self.hops()).filter(slow);
        let hop = least.clone().find(at_peak).or(least.clone().next()).unwrap_or(0);
        self.bound_at(hop, hops)
    }

    /// Why `hop` is not faster, but for [`Case::refined`].
    fn bound_at(&self, hop: usize, hops: &[HopCost; MAX_HOPS]) -> Bound {
        let peak = self.lane(hop).peak();
        let close = if self.model == CostModel::Paper { 1.0 } else { GOOD_RATE };
        let at_peak = hops[hop].rate >= peak * close;
        Bound { hop, why: if at_peak { Limit::Channel } else { Limit::Request } }
    }

    /// `bound`, which says `request` wherever requests are short, with `space` where `TH` is why.
    pub(crate) fn refined(&self, bound: Bound, hops: &[HopCost; MAX_HOPS]) -> Bound {
        let space = bound.why == Limit::Request && self.space_stops(bound.hop, hops);
        Bound { why: if space { Limit::Space } else { bound.why }, ..bound }
    }

    /// Whether `TH` keeps hop `hop` from longer requests, which would be faster: a hop that
    /// converts between rings has no window for them that leaves the other end what it has.
    fn space_stops(&self, hop: usize, hops: &[HopCost; MAX_HOPS]) -> bool {
        let (last, chosen) = (self.hops() - 1, self.solution.pivot);
        let step = &hops[hop].step;
        let curve = curve(self.model, &self.lane(hop).curves, step.class);
        let longer = inverse(curve, curve.at(step.prefix_bytes) * FASTER);
        let Some(longer) = longer.filter(|&bytes| bytes <= self.shape.payload) else {
            return false;
        };
        let mut needs = [hops[0].step.prefix_bytes, hops[last].step.prefix_bytes];
        needs[usize::from(hop > 0)] = longer;
        let fits = |pivot| {
            let window_bytes = self.window_bytes(pivot);
            let needs = Needs { first_bytes: needs[0], last_bytes: needs[1], window_bytes };
            Fitter { shape: self.shape }.fit(pivot, &needs).is_some()
        };
        let conversion = self.shape.step(&self.shape.src, &self.shape.dst, &WHOLE);
        let converts = |&pivot: &usize| {
            let faster = rate(self.model, &self.lane(pivot).curves, &conversion) > hops[hop].rate;
            pivot == chosen || (faster && !(1..last).contains(&chosen))
        };
        let mut pivots = (1..last).filter(converts).peekable();
        let at_end = hop == 0 || hop == last;
        at_end && self.shape.mixable && pivots.peek().is_some() && !pivots.any(fits)
    }

    /// The largest granule of hop `hop`, which converts between two rings.
    pub(crate) fn window_bytes(&self, hop: usize) -> u64 {
        self.th_before(hop).min(self.th_after(hop)) / granules(self.model)
    }

    /// The size of the ring after hop `hop`.
    pub(crate) fn buffer_bytes(&self, hop: usize, hops: &[HopCost; MAX_HOPS]) -> u64 {
        let pivot = self.solution.pivot;
        let between = pivot > 0 && pivot + 1 < self.hops();
        let beside = between && (pivot == hop || pivot == hop + 1);
        let granule = if beside { hops[pivot].step.shuffle_bytes } else { 1 };
        let th = self.th_after(hop);
        if self.model == CostModel::Paper {
            return granule.max(PAPER_BUFFER_BYTES.min(th).min(self.shape.payload));
        }
        let slot = granule.max(hops[hop].request_bytes).max(hops[hop + 1].request_bytes);
        let of_lane = |i| u64::from(self.lane(i).in_flight.unwrap_or(IN_FLIGHT));
        let slots = if granule > 1 { 2 } else { of_lane(hop) + of_lane(hop + 1) };
        // A quarter is left, so that it fits into what the urgent have for themselves.
        let least = if self.at_disk(hop) { READ_RING_BYTES.min(th - th / 4) / slot } else { 0 };
        let wanted = slots.max(least).min(self.shape.payload.div_ceil(slot));
        slot * wanted.min((th / slot).max(1))
    }
}

/// How many granules a ring between converting windows holds: one in the paper; else two, one
/// filled while the other empties.
pub(crate) fn granules(model: CostModel) -> u64 {
    match model {
        CostModel::Paper => 1,
        CostModel::Default => 2,
    }
}

#[cfg(test)]
mod tests;
