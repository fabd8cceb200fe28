//! From where on results are better written past the caches.
//!
//! Runs are copied, structures taken apart and matrices turned, into the same place several times in a
//! row: into the caches, then past them, by turns. So each way finds its destination as it left it, as it
//! does where a destination is used again and again. The sides of one matrix are powers of two, as those of
//! many are, or one of them, which is hardest on either way; those of another are whole lines and no such powers. On one
//! machine the former loses up to three quarters of its speed past the caches on results of sizes at which
//! a plain copy gains a little, on another the latter gains a factor of three there: so each kind of copies
//! has a crossover of its own, where its shapes together lose least. What else runs on the machine slows
//! one way more than the other, for seconds at times: so both are measured in rounds that other
//! measurements lie between, and the median of each counts: the best is what the caches reach where they happen to
//! keep all of both sides, as they seldom do of what just fits. One thread copies, so that nobody's waking is
//! measured, nor a cache that another core left its lines in.

use super::shapes::{Amount, interleaved, turned};
use super::work_of;
use crate::Error;
use channel::Region;
use channel_host::run_here;
use kernels::Stores;
use model::{ChannelError, CopyWork, Crossover, FieldCopy, NdCopy};
use std::sync::Arc;
use std::time::Instant;

/// The elements that are neither the best for one way nor for the other.
const ELEMENT_BYTES: u64 = 4;
/// What a cache fetches at once.
const LINE_BYTES: u64 = 64;
/// The smallest result that is measured, and the least that is found: smaller ones are read again before long, more
/// often than not.
const FIRST_BYTES: u64 = 512 << 10;
/// The largest one: the next would take two thirds as long as all before.
const LAST_BYTES: u64 = 16 << 20;
/// Up to here sizes between the powers of two are measured as well: a second-level cache of 2 MiB keeps both sides of
/// results of 1 MiB, and little of those of 1.5 MiB.
const MOST_BETWEEN_BYTES: u64 = 6 << 20;
/// What is copied of each size in each way in a round, at least twice: all count but the first, which finds its
/// destination as the other way left it.
const POINT_BYTES: u64 = 4 << 20;
/// How much faster it has to be past the caches: who reads a result next finds it in them otherwise.
const MARGIN: f64 = 1.1;
/// No factor counts for more, so that one bad point in many doesn't matter.
const MOST: f64 = 1.5;

/// What results of one size reach.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    bytes: u64,
    /// Bytes per second into the caches.
    cached: f64,
    /// And past them.
    streamed: f64,
}

impl Point {
    /// By how much it is better to write the result past the caches, as a logarithm.
    fn gain(&self) -> f64 {
        let most = MOST.ln();
        (self.streamed / (self.cached * MARGIN)).ln().clamp(-most, most)
    }
}

/// What copies of one size reached, from round to round.
#[derive(Debug)]
struct Size {
    bytes: u64,
    cached: Vec<f64>,
    streamed: Vec<f64>,
}

impl Size {
    fn point(&self) -> Point {
        let [cached, streamed] = [&self.cached, &self.streamed].map(|rates| median(rates));
        Point { bytes: self.bytes, cached, streamed }
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// What is known of one shape.
#[derive(Debug)]
struct Shape {
    /// A copy of so many bytes, or a little less.
    copy: fn(u64) -> NdCopy,
    sizes: Vec<Size>,
}

impl Shape {
    fn new(copy: fn(u64) -> NdCopy, most_bytes: u64) -> Self {
        let doubled = std::iter::successors(Some(FIRST_BYTES), |bytes| Some(2 * bytes));
        let sizes = doubled.flat_map(|bytes| [bytes, bytes + bytes / 2]);
        let sizes = sizes.take_while(|&bytes| bytes <= LAST_BYTES.min(most_bytes));
        let between = |&bytes: &u64| bytes.is_power_of_two() || bytes <= MOST_BETWEEN_BYTES;
        let sizes = sizes.filter(between);
        let sizes = sizes.map(|bytes| Size { bytes, cached: Vec::new(), streamed: Vec::new() });
        Shape { copy, sizes: sizes.collect() }
    }

    fn round(&mut self, src: &Region, dst: &Region) -> Result<(), Error> {
        for Size { bytes, cached, streamed } in &mut self.sizes {
            let list: Arc<[NdCopy]> = [(self.copy)(*bytes)].into();
            let work = work_of(&list, (0, 0), *bytes);
            for (rates, stores) in [(cached, Stores::Cached), (streamed, Stores::Streamed)] {
                rate(&work, (src, dst), stores)?;
                for _ in 1..(POINT_BYTES / *bytes).max(2) {
                    rates.push(rate(&work, (src, dst), stores)?);
                }
            }
        }
        Ok(())
    }
}

/// What is known of each kind.
#[derive(Debug)]
pub(super) struct Search {
    in_order: [Shape; 2],
    turned: [Shape; 2],
}

impl Search {
    /// With results of at most so many bytes.
    pub(super) fn new(most_bytes: u64) -> Self {
        let shape = |copy| Shape::new(copy, most_bytes);
        Search {
            in_order: [shape(one_run), shape(taken_apart)],
            turned: [shape(matrix), shape(matrix_of_lines)],
        }
    }

    /// Measures each size of each shape, by copies from `src` to `dst`.
    pub(super) fn round(&mut self, src: &Region, dst: &Region) -> Result<(), Error> {
        let shapes = self.in_order.iter_mut().chain(&mut self.turned);
        shapes.into_iter().try_for_each(|shape| shape.round(src, dst))
    }

    /// What the rounds so far say, of which there is at least one.
    pub(super) fn found(&self) -> Crossover {
        let [in_order, turned] = [&self.in_order, &self.turned].map(|shapes| {
            let points = shapes
                .each_ref()
                .map(|shape| shape.sizes.iter().map(Size::point).collect::<Vec<_>>());
            log::debug!("results into the caches and past them: {points:?}");
            chosen(&points.each_ref().map(Vec::as_slice))
        });
        Crossover { in_order, turned }
    }
}

/// Bytes per second.
fn rate(work: &CopyWork, sides: (&Region, &Region), stores: Stores) -> Result<f64, ChannelError> {
    let started = Instant::now();
    run_here(work, sides, stores)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    let bytes = work.payload_bytes as f64;
    Ok(bytes / started.elapsed().as_secs_f64())
}

/// `bytes` in a row.
fn one_run(bytes: u64) -> NdCopy {
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
    NdCopy { dims: Vec::new(), fields: vec![field] }
}

/// Structures of four fields, each to a column of its own.
fn taken_apart(bytes: u64) -> NdCopy {
    let mut pieces = interleaved(ELEMENT_BYTES, Amount { bytes, request_bytes: bytes });
    pieces.swap_remove(0)
}

/// A matrix of `bytes`, a power of two or between two, turned; it is square, or has rows of one and a half to three squares.
fn matrix(bytes: u64) -> NdCopy {
    let elements = bytes / ELEMENT_BYTES;
    let rows = 1 << (elements.ilog2() / 2);
    turned(ELEMENT_BYTES, (rows, elements / rows))
}

/// The largest square matrix of no more than `bytes` whose sides are an odd number of lines, turned.
fn matrix_of_lines(bytes: u64) -> NdCopy {
    let line = LINE_BYTES / ELEMENT_BYTES;
    let lines = (bytes / ELEMENT_BYTES).isqrt() / line;
    let side = (lines - (lines + 1) % 2) * line;
    turned(ELEMENT_BYTES, (side, side))
}

/// The size from which on it is best to write results past the caches, by the same sizes of several
/// shapes, which ascend: those gain most, altogether, from there on. So they gain there and don't at the
/// size before: the crossover is where a line through both is zero. Where nothing is gained from any size
/// on it is twice the last: beyond, nobody looked.
fn chosen(shapes: &[&[Point]]) -> u64 {
    let sizes = shapes.first().copied().unwrap_or_default();
    let gain = |at: usize| -> f64 { shapes.iter().map(|s| s[at].gain()).sum() };
    let from = |at: usize| -> f64 { (at..sizes.len()).map(gain).sum() };
    let at = (0..=sizes.len()).max_by(|&a, &b| from(a).total_cmp(&from(b))).unwrap_or(0);
    let beyond = || sizes.last().map_or(Crossover::default().turned, |p| 2 * p.bytes);
    sizes.get(at).map_or_else(beyond, |point| match at.checked_sub(1) {
        Some(before) => between(&sizes[before], point, (gain(before), gain(at))),
        None => point.bytes,
    })
}

/// Where the gain is zero between a size that loses, or gains nothing, and one that gains.
fn between(before: &Point, after: &Point, (loss, gain): (f64, f64)) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 53 bits")]
    let step = (after.bytes - before.bytes) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a step")]
    let beyond = (step * loss / (loss - gain)) as u64;
    before.bytes + beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crossover in MiB where streaming is faster by these factors, from 512 KiB on.
    fn of(factors: [f64; 6]) -> f64 {
        of_all(&[factors])
    }

    /// By several shapes.
    fn of_all(shapes: &[[f64; 6]]) -> f64 {
        let point = |(i, streamed)| Point { bytes: FIRST_BYTES << i, cached: 1.0, streamed };
        let of_one = |factors: &[f64; 6]| (0..).zip(*factors).map(point).collect();
        let shapes: Vec<Vec<Point>> = shapes.iter().map(of_one).collect();
        chosen(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()) as f64 / f64::from(1 << 20)
    }

    /// Whether that is what is wanted, to a thousandth.
    fn is(found: f64, wanted: f64) -> bool {
        (found / wanted - 1.0).abs() < 1e-3
    }

    #[test]
    fn it_lies_where_streaming_begins_to_win() {
        let [loss, gain] = [MARGIN / 1.2, MARGIN * 1.2];
        assert!(is(of([0.5, 0.6, 0.7, loss, gain, 1.5]), 6.0));
        assert!(is(of([0.5, 0.6, 0.7, 0.8, loss, gain]), 12.0));
        assert!(is(of([loss, gain, 1.3, 1.3, 1.4, 1.5]), 0.75));
    }

    #[test]
    fn it_is_nearer_to_the_size_at_which_less_is_won_or_lost() {
        let of = |lost: f64, won: f64| of([0.5, 0.6, MARGIN / lost, MARGIN * won, 1.4, 1.5]);
        assert!(is(of(1.1, 1.1 * 1.1 * 1.1), 2.5), "a quarter of what is between is lost");
        assert!(is(of(1.1 * 1.1 * 1.1, 1.1), 3.5), "three quarters");
        assert_eq!(of(1.0, 1.2), 2.0, "nothing is lost");
    }

    #[test]
    fn sizes_halfway_between_powers_of_two_are_measured_up_to_a_few_mebibytes() {
        let sizes = |most| Shape::new(one_run, most).sizes.iter().map(|s| s.bytes >> 10).collect();
        let all: Vec<_> = sizes(u64::MAX);
        assert_eq!(all, [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16_384]);
        assert_eq!(sizes(1 << 20), all[..3]);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(of([1.3; 6]), 0.5, "always");
        assert_eq!(of([0.7; 6]), 32.0, "never");
        assert_eq!(chosen(&[&[], &[]]), Crossover::default().turned, "nothing measured");
    }

    #[test]
    fn what_hardly_differs_stays_in_the_caches() {
        assert_eq!(of([1.0; 6]), 32.0);
        let found = of([0.6, 0.97, 1.09, 0.96, 1.4, 1.4]);
        assert!((4.0..8.0).contains(&found), "{found}");
    }

    #[test]
    fn it_is_where_all_shapes_together_lose_least() {
        let [late, early] = [[0.7, 0.7, 0.8, 0.9, 1.2, 1.3], [1.2, 1.3, 1.4, 1.5, 1.5, 1.5]];
        let both = of_all(&[late, early]);
        assert!((2.0..4.0).contains(&both), "{both}");
        assert_eq!(of_all(&[early, late]), both);
        assert!(of(late) > 4.0 && of(early) == 0.5);
    }

    #[test]
    fn each_shape_is_as_large_as_it_should_be() {
        for bytes in (19..25).flat_map(|power| [1 << power, 3 << (power - 1)]) {
            for shape in [one_run, taken_apart, matrix, matrix_of_lines] {
                let copy = shape(bytes);
                let (read, written) = layout::touched(&copy);
                assert_eq!((read.end, written.end), (written.end, copy.payload_bytes() as i64));
                assert!((bytes - bytes / 4..=bytes).contains(&copy.payload_bytes()), "{copy:?}");
            }
            let side = matrix_of_lines(bytes).dims[0].extent;
            assert_eq!(side % 32, 16, "an odd number of lines");
        }
    }

    #[test]
    fn a_matrix_is_as_large_as_it_should_be() {
        for (bytes, extents) in [(FIRST_BYTES, (256, 512)), (LAST_BYTES, (2048, 2048))] {
            let copy = matrix(bytes);
            assert_eq!((copy.dims[0].extent, copy.dims[1].extent), extents);
            assert_eq!(copy.payload_bytes(), bytes);
        }
    }

    #[test]
    fn neither_a_lucky_copy_counts_nor_a_disturbed_one() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 9.0, 3.0, 3.0, 0.5, 3.0, 9.0]), 3.0);
    }

    #[test]
    fn one_bad_point_does_not_matter() {
        let good = of([0.5, 0.6, 1.3, 1.4, 1.4, 1.5]);
        assert_eq!(of([0.5, 0.6, 1.3, 1.4, 0.4, 1.5]), good);
        assert_eq!(of([0.5, 0.6, 1.3, 1.4, 1.5, 0.4]), good);
        assert_eq!(of([1.5, 0.6, 0.7, 0.8, 1.4, 1.5]), of([0.5, 0.6, 0.7, 0.8, 1.4, 1.5]));
    }

    #[test]
    fn the_faster_streaming_is_the_earlier_it_begins() {
        let base = [0.5, 0.62, 0.75, 0.9, 1.1, 1.3];
        let at = |percent: u32| of(base.map(|f| f * f64::from(percent) / 100.0));
        let all: Vec<_> = (60..240).map(at).collect();
        assert!(all.is_sorted_by(|before, after| before >= after), "{all:?}");
        assert_eq!((all[0], all[all.len() - 1]), (32.0, 0.5));
    }
}
