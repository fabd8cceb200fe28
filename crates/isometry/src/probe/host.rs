//! Curves of copies inside host memory, and between it and other memory.
//!
//! Requests are pieces of one conversion of everything there is, as an engine cuts it: their
//! strides reach across all of it, and by the time one comes round again no cache holds it.

use super::crossover::Search;
use super::shapes::{Amount, gathered, interleaved, runs, transposed};
use super::{Bench, best_of_times, fill, job_of, memory, nanos_of};
use crate::Error;
use channel::{Channel, Provider, Region};
use channel_host::{HostProvider, Limits, MemcpyChannel, Pages, last_cache_bytes};
use model::{ChannelError, Crossover, Curves, FieldCopy, NdCopy, Throughput};
use std::sync::Arc;
use std::time::Duration;

/// Source and destination of a measurement are so many times as large as the last cache, within
/// these bounds: a shape may read only half of its source, which would otherwise stay there.
const SIDE_CACHES: u64 = 4;
const SIDE_BYTES: std::ops::RangeInclusive<u64> = (64 << 20)..=(224 << 20);
/// Each takes at most this part of the memory that the process may use.
const SIDE_PARTS: u64 = 16;
/// What a request carries, unless that is little for a channel.
const REQUEST_BYTES: u64 = 1 << 20;
/// What a request of a device with memory of its own carries at the least, unless that takes long: what it carries
/// where a plan has buffers.
const DEVICE_REQUEST_BYTES: u64 = 4 << 20;
/// A channel that is so much faster with requests twice as large is measured with larger ones.
const FASTER: f64 = 1.25;
/// Rows so long that their number doesn't count.
const LONG_ROW_BYTES: u64 = 64 << 10;
/// How long a point is measured each time.
const POINT: Duration = Duration::from_millis(4);
/// Requests in flight that take longer are short ones.
const LONG: Duration = Duration::from_millis(16);
/// What a request that moves next to nothing takes.
const TINY_BYTES: u64 = 64;

/// What copies inside host memory reach.
#[derive(Debug)]
pub(crate) struct HostRates {
    /// For each shape class.
    pub(crate) curves: Curves,
    /// From submitting a request to its end, where there is nothing to move.
    pub(crate) latency_ns: u64,
    /// From where on results are better written past the caches.
    pub(crate) crossover: Crossover,
}

/// Measures `channel`, which keeps to the crossover that was found.
pub(crate) fn memcpy(channel: &mut MemcpyChannel) -> Result<HostRates, Error> {
    let sides = Sides::new()?;
    let mut search = Search::new(sides.src.len_bytes());
    search.round(&sides.src, &sides.dst)?;
    channel.set_crossover(search.found());
    let mut bench = HostBench::new(channel, sides, search);
    let latency_ns = bench.points.latency_ns()?;
    let run = bench.curve(&[16, 64, 256, 1024, 4096, 65536, 1 << 20], runs)?;
    let interleave = bench.curve(&[1, 2, 4, 8, 16, 64], interleaved)?;
    let transpose = bench.curve(&[1, 2, 4, 8, 16, 64, 256], transposed)?;
    let gather = bench.curve(&[4, 16, 64, 1024, 16384], gathered)?;
    let (interleave, transpose, gather) = (Some(interleave), Some(transpose), Some(gather));
    let crossover = bench.search.found();
    channel.set_crossover(crossover);
    Ok(HostRates { curves: Curves { run, interleave, transpose, gather }, latency_ns, crossover })
}

/// Curves of a channel into registered memory of another node, which `dst` is, and the time of a
/// request that moves next to nothing.
pub(crate) fn link(channel: &mut dyn Channel, dst: Region) -> Result<(Curves, u64), Error> {
    let turns = (side_bytes() / dst.len_bytes()).max(1);
    let src = Arc::new(filled(turns * dst.len_bytes())?);
    let mut points = Points::new(channel, Sides { src, dst: Arc::new(dst) });
    let latency_ns = points.latency_ns()?;
    let mut curves = LINK.map(|(sizes, shape)| points.to_measure(sizes, shape));
    // Another process at the other end may be busy for a while, which is to count for all alike.
    for _ in 0..LINK_TIMES {
        for point in curves.iter_mut().flatten() {
            points.measure(point)?;
        }
    }
    let [run, interleave, transpose, gather] = curves.map(measured);
    let (interleave, transpose, gather) = (Some(interleave?), Some(transpose?), Some(gather?));
    Ok((Curves { run: run?, interleave, transpose, gather }, latency_ns))
}

/// How often each point of a link is measured.
const LINK_TIMES: usize = 4;

/// What a link is measured with, by shape class.
const LINK: [(&[u64], Requests); 4] = [
    (&[256, 4096, 65536, 1 << 20], runs),
    (&[1, 4, 16, 64], interleaved),
    (&[1, 4, 16], transposed),
    (&[16, 256, 4096, 32768], gathered),
];

/// Makes the requests of a size.
type Requests = fn(u64, Amount) -> Vec<NdCopy>;

/// A point of a curve, and the best rate that was measured so far.
struct Point {
    size: u64,
    requests: Round,
    best: f64,
}

/// Requests that are given round and round. Where a measurement ends the next goes on: what it
/// moved last may still be in the caches.
struct Round {
    lists: Vec<Arc<[NdCopy]>>,
    next: usize,
}

impl Round {
    /// At least one request.
    fn of(copies: Vec<NdCopy>) -> Self {
        Round { lists: copies.into_iter().map(|copy| [copy].into()).collect(), next: 0 }
    }

    /// The next request, and how many rounds there were before it.
    fn next(&mut self) -> (&Arc<[NdCopy]>, u64) {
        let (rounds, at) = (self.next / self.lists.len(), self.next % self.lists.len());
        self.next += 1;
        (&self.lists[at], rounds as u64)
    }
}

/// Curves of a channel between memory of a device and the host's, or inside it, and the time of a
/// request that moves next to nothing. A command for each element would take seconds here: below what
/// is measured a rate falls with the size, as that of commands does.
pub(crate) fn device(
    channel: &mut dyn Channel,
    (src, dst): (Arc<Region>, Arc<Region>),
) -> Result<(Curves, u64), Error> {
    let mut points = Points::new(channel, Sides { src, dst });
    let latency_ns = points.latency_ns()?;
    let mut run = vec![64, 1024, 16384, 1 << 18, 1 << 20];
    // What shares the host's memory may share its cores: alone, large requests promise what they don't keep.
    if points.bench.channel.capabilities().tells_late {
        let half = points.sides.dst.len_bytes() / 2;
        points.request_bytes = DEVICE_REQUEST_BYTES.min(half).max(1);
        points.enlarge_requests()?;
        // One run for each request: commands for those are others than for rows.
        run.push(points.request_bytes.max(2 << 20));
        run.retain(|&run| run <= half);
    }
    let run = points.curve(&run, runs)?;
    let interleave = Some(points.curve(&[4, 16, 64], interleaved)?);
    let transpose = Some(points.curve(&[4, 64], transposed)?);
    let gather = Some(points.curve(&[4096, 65536], gathered)?);
    Ok((Curves { run, interleave, transpose, gather }, latency_ns))
}

/// Memory to copy between, every page of which has been touched. The source may be several times as
/// large as the destination, and is then read part by part.
struct Sides {
    src: Arc<Region>,
    dst: Arc<Region>,
}

impl Sides {
    fn new() -> Result<Self, Error> {
        let (src, dst) = (filled(side_bytes())?, touched(side_bytes())?);
        Ok(Sides { src: Arc::new(src), dst: Arc::new(dst) })
    }
}

fn filled(len_bytes: u64) -> Result<Region, ChannelError> {
    touched(len_bytes).inspect(fill)
}

/// Memory like that of instances and of staging.
fn touched(len_bytes: u64) -> Result<Region, ChannelError> {
    let pages = Pages { prefault: true, huge: true, node: None };
    HostProvider::new(memory(0), pages).allocate(len_bytes, 4096)
}

struct HostBench<'a> {
    points: Points<'a>,
    search: Search,
}

impl<'a> HostBench<'a> {
    fn new(channel: &'a mut MemcpyChannel, sides: Sides, search: Search) -> Self {
        HostBench { points: Points::new(channel, sides), search }
    }

    /// As [`Points::curve`]; and a round more of the search for the crossover.
    fn curve(&mut self, sizes: &[u64], shape: Requests) -> Result<Throughput, Error> {
        let Sides { src, dst } = &self.points.sides;
        self.search.round(src, dst)?;
        self.points.curve(sizes, shape)
    }
}

/// Measures a channel, point by point.
struct Points<'a> {
    bench: Bench<'a>,
    sides: Sides,
    depth: u32,
    request_bytes: u64,
}

impl<'a> Points<'a> {
    fn new(channel: &'a mut dyn Channel, sides: Sides) -> Self {
        let depth = channel.capabilities().max_in_flight;
        Points { sides, depth, request_bytes: REQUEST_BYTES, bench: Bench { channel, next: 0 } }
    }

    /// Has requests carry so much that what else is done for each doesn't count, at most half a side.
    fn enlarge_requests(&mut self) -> Result<(), Error> {
        let mut best = self.rate_of_rows()?;
        while 4 * self.request_bytes <= self.sides.dst.len_bytes() {
            self.request_bytes *= 2;
            let rate = self.rate_of_rows()?;
            if rate < best * FASTER {
                self.request_bytes /= 2;
                break;
            }
            best = rate;
        }
        Ok(())
    }

    /// The best rate of long rows.
    fn rate_of_rows(&mut self) -> Result<f64, Error> {
        self.best_rate(self.depth, &mut Round::of(runs(LONG_ROW_BYTES, self.amount())))
    }

    fn latency_ns(&mut self) -> Result<u64, Error> {
        let run = FieldCopy {
            bytes: TINY_BYTES,
            src_offset: 0,
            dst_offset: 0,
            padding: 0,
            strides: Vec::new(),
        };
        let tiny = NdCopy { dims: Vec::new(), fields: vec![run] };
        let best = self.best_rate(1, &mut Round::of(vec![tiny]))?;
        Ok(nanos_of(TINY_BYTES, best))
    }

    /// The best rate at each of `sizes`.
    fn curve(&mut self, sizes: &[u64], shape: Requests) -> Result<Throughput, Error> {
        let mut points = self.to_measure(sizes, shape);
        for point in &mut points {
            self.shorten_requests(point, shape)?;
            point.best = self.best_rate(self.depth, &mut point.requests)?;
        }
        measured(points)
    }

    /// Has the requests of a point carry little where large ones would take long.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    fn shorten_requests(&mut self, point: &mut Point, shape: Requests) -> Result<(), Error> {
        if self.request_bytes > REQUEST_BYTES {
            let amount = Amount { request_bytes: REQUEST_BYTES, ..self.amount() };
            let mut short = Round::of(shape(point.size, amount));
            // The first of a kind may be made ready meanwhile, as a driver does with kernels.
            let first = self.rate(self.depth, &mut short)?;
            let rate = first.max(self.rate(self.depth, &mut short)?);
            if self.request_bytes as f64 * f64::from(self.depth) > rate * LONG.as_secs_f64() {
                point.requests = short;
            }
        }
        Ok(())
    }

    fn amount(&self) -> Amount {
        Amount { bytes: self.sides.dst.len_bytes(), request_bytes: self.request_bytes }
    }

    fn measure(&mut self, point: &mut Point) -> Result<(), Error> {
        point.best = point.best.max(self.rate(self.depth, &mut point.requests)?);
        Ok(())
    }

    fn to_measure(&self, sizes: &[u64], shape: Requests) -> Vec<Point> {
        let requests = |size| Round::of(shape(size, self.amount()));
        let point = |&size| Point { size, requests: requests(size), best: 0.0 };
        sizes.iter().map(point).collect()
    }

    /// The best of [`TIMES`] measurements of [`Points::rate`].
    fn best_rate(&mut self, depth: u32, requests: &mut Round) -> Result<f64, Error> {
        best_of_times(|| self.rate(depth, requests))
    }

    fn rate(&mut self, depth: u32, requests: &mut Round) -> Result<f64, Error> {
        // None is in flight twice.
        let depth = depth.min(u32::try_from(requests.lists.len()).unwrap_or(u32::MAX));
        let Sides { src, dst } = &self.sides;
        let parts = src.len_bytes() / dst.len_bytes();
        let mut job = |_| {
            let (list, rounds) = requests.next();
            job_of(list, (src, rounds % parts * dst.len_bytes()), (dst, 0))
        };
        Ok(self.bench.rate(depth, POINT, &mut job)?)
    }
}

fn measured(points: Vec<Point>) -> Result<Throughput, Error> {
    Ok(Throughput::measured(points.into_iter().map(|point| (point.size, point.best)).collect())?)
}

/// What each side has, so that no cache of the host's holds it.
pub(crate) fn side_bytes() -> u64 {
    let cache_bytes = last_cache_bytes().unwrap_or(0);
    side_bytes_of(cache_bytes, Limits::detect().usable_bytes())
}

fn side_bytes_of(cache_bytes: u64, usable_bytes: Option<u64>) -> u64 {
    let most = usable_bytes.map_or(u64::MAX, |bytes| bytes / SIDE_PARTS);
    let bytes = cache_bytes.saturating_mul(SIDE_CACHES);
    bytes.clamp(*SIDE_BYTES.start(), *SIDE_BYTES.end()).min(most)
}

#[cfg(test)]
mod tests {
    use super::{Points, REQUEST_BYTES, Sides, side_bytes_of, touched};
    use crate::probe::payload;
    use channel::conformance::Immediate;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn requests_are_so_large_that_their_number_does_not_count() {
        let side = || Arc::new(touched(16 << 20).unwrap());
        let sides = Sides { src: side(), dst: side() };
        // So long for each request, and for each byte.
        let enlarged = |each: Duration, byte: Duration| {
            let mut channel = Immediate::new(1, |job| {
                let bytes = u32::try_from(payload(&job.work)).unwrap();
                std::thread::sleep(each + byte * bytes);
                Ok(())
            });
            let sides = Sides { src: Arc::clone(&sides.src), dst: Arc::clone(&sides.dst) };
            let mut points = Points::new(&mut channel, sides);
            points.enlarge_requests().unwrap();
            points.request_bytes
        };
        assert_eq!(enlarged(Duration::ZERO, Duration::from_nanos(30)), REQUEST_BYTES);
        assert_eq!(enlarged(Duration::from_millis(20), Duration::ZERO), 8 * REQUEST_BYTES);
    }

    #[test]
    fn a_side_is_larger_than_the_cache_where_memory_allows() {
        assert_eq!(side_bytes_of(32 << 20, Some(64 << 30)), 128 << 20);
        assert_eq!(side_bytes_of(1 << 30, None), 224 << 20);
        assert_eq!(side_bytes_of(1 << 20, None), 64 << 20);
        assert_eq!(side_bytes_of(48 << 20, Some(160 << 20)), 10 << 20);
    }
}
