//! From where on results are better written past the caches.
//!
//! Runs are copied, and matrices turned, into the same place several times in a row, first into the
//! caches, then past them. The sides of the matrices are powers of two, as those of many are, which is
//! hardest on either way: on one machine they lose up to three quarters of their speed past the caches
//! on results of sizes at which a plain copy gains a little, on another they gain there where a plain
//! copy loses two fifths. Those losses are what the crossover has to avoid; so each kind has its own.
//! What else runs on the machine slows one way more than the other, for seconds at times: so both are
//! measured in rounds that other measurements lie between, and the best of each counts. One thread
//! copies, so that nobody's waking is measured, nor a cache that another core left its lines in.

use super::shapes::turned;
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
/// The smallest result that is measured.
const FIRST_BYTES: u64 = 512 << 10;
/// The largest one: the next would take as long as all before.
const LAST_BYTES: u64 = 16 << 20;
/// What is copied of each size in each way in a round, and at least so many times: the best counts.
/// The first into the caches finds none of its destination there.
const POINT_BYTES: u64 = 4 << 20;
const LEAST_TIMES: u64 = 2;
/// A way wins where it is faster by more than this part.
const MARGIN: f64 = 0.1;
/// What is found is no less: smaller results are read again before long, more often than not.
const LEAST_BYTES: u64 = 1 << 20;

/// The rates of results of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    bytes: u64,
    /// Bytes per second into the caches.
    cached: f64,
    /// And past them.
    streamed: f64,
}

/// What is known of the rates of one kind of copies, from round to round.
#[derive(Debug)]
struct Kind {
    /// A copy of so many bytes.
    shape: fn(u64) -> NdCopy,
    points: Vec<Point>,
}

impl Kind {
    fn new(shape: fn(u64) -> NdCopy, most_bytes: u64) -> Self {
        let sizes = std::iter::successors(Some(FIRST_BYTES), |bytes| Some(2 * bytes));
        let sizes = sizes.take_while(|&bytes| bytes <= LAST_BYTES.min(most_bytes));
        let points = sizes.map(|bytes| Point { bytes, cached: 0.0, streamed: 0.0 });
        Kind { shape, points: points.collect() }
    }

    fn round(&mut self, src: &Region, dst: &Region) -> Result<(), Error> {
        for Point { bytes, cached, streamed } in &mut self.points {
            let list: Arc<[NdCopy]> = [(self.shape)(*bytes)].into();
            let work = work_of(&list, (0, 0), *bytes);
            for (best, stores) in [(cached, Stores::Cached), (streamed, Stores::Streamed)] {
                for _ in 0..(POINT_BYTES / *bytes).max(LEAST_TIMES) {
                    *best = best.max(rate(&work, (src, dst), stores)?);
                }
            }
        }
        Ok(())
    }
}

/// What is known of each kind.
#[derive(Debug)]
pub(super) struct Search {
    in_order: Kind,
    turned: Kind,
}

impl Search {
    /// With results of at most so many bytes.
    pub(super) fn new(most_bytes: u64) -> Self {
        let kind = |shape| Kind::new(shape, most_bytes);
        Search { in_order: kind(one_run), turned: kind(matrix) }
    }

    /// Measures each size of each kind, by copies from `src` to `dst`.
    pub(super) fn round(&mut self, src: &Region, dst: &Region) -> Result<(), Error> {
        self.in_order.round(src, dst)?;
        self.turned.round(src, dst)
    }

    /// What the rounds so far say.
    pub(super) fn found(&self) -> Crossover {
        log::debug!("results into the caches and past them: {self:?}");
        let [in_order, turned] = [&self.in_order, &self.turned].map(|kind| chosen(&kind.points));
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
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, strides: Vec::new() };
    NdCopy { dims: Vec::new(), fields: vec![field] }
}

/// A matrix of `bytes`, a power of two, turned; it is square, or has rows of two squares.
fn matrix(bytes: u64) -> NdCopy {
    let elements = bytes / ELEMENT_BYTES;
    let rows = 1 << (elements.ilog2() / 2);
    turned(ELEMENT_BYTES, (rows, elements / rows))
}

/// The size that parts `points`, which ascend, with the fewest on the wrong side: those below it
/// where writing past the caches wins, and those from it on where it loses. The largest of
/// several: what hardly differs stays in the caches. One bad point in many doesn't matter. The
/// crossover lies between that point and the one before, and is taken to be halfway. Where
/// writing past the caches never wins it is twice the last: beyond, nobody looked.
fn chosen(points: &[Point]) -> u64 {
    let wins = |p: &&Point| p.streamed > p.cached * (1.0 + MARGIN);
    let loses = |p: &&Point| p.cached > p.streamed * (1.0 + MARGIN);
    let wrong = |at: &usize| {
        let (below, above) = points.split_at(*at);
        below.iter().filter(wins).count() + above.iter().filter(loses).count()
    };
    let at = (0..=points.len()).rev().min_by_key(wrong).unwrap_or(0);
    let beyond = || points.last().map_or(Crossover::default().turned, |p| 2 * p.bytes);
    let bytes = points.get(at).map_or_else(beyond, |p| p.bytes / 4 * 3);
    bytes.max(LEAST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crossover in MiB where streaming is faster by these factors, from 512 KiB on.
    fn of(factors: [f64; 6]) -> f64 {
        let point = |(i, streamed)| Point { bytes: FIRST_BYTES << i, cached: 1.0, streamed };
        let points: Vec<_> = (0..).zip(factors).map(point).collect();
        chosen(&points) as f64 / f64::from(1 << 20)
    }

    #[test]
    fn it_lies_where_streaming_begins_to_win() {
        assert_eq!(of([0.5, 0.6, 0.7, 0.8, 1.4, 1.5]), 6.0);
        assert_eq!(of([0.5, 0.6, 0.7, 0.8, 0.8, 1.5]), 12.0);
        assert_eq!(of([0.8, 1.2, 1.3, 1.3, 1.4, 1.5]), 1.0);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(of([1.3; 6]), 1.0, "always");
        assert_eq!(of([0.7; 6]), 32.0, "never");
        assert_eq!(chosen(&[]), Crossover::default().turned, "nothing measured");
    }

    #[test]
    fn what_hardly_differs_stays_in_the_caches() {
        assert_eq!(of([1.0; 6]), 32.0);
        assert_eq!(of([0.6, 0.97, 1.09, 0.96, 1.4, 1.4]), 6.0);
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
    fn one_bad_point_does_not_matter() {
        assert_eq!(of([0.5, 0.6, 1.3, 1.4, 0.4, 1.5]), 1.5);
        assert_eq!(of([0.5, 0.6, 1.3, 1.4, 1.5, 0.4]), 1.5);
        assert_eq!(of([1.5, 0.6, 0.7, 0.8, 1.4, 1.5]), 6.0);
    }

    #[test]
    fn the_faster_streaming_is_the_earlier_it_begins() {
        let base = [0.5, 0.62, 0.75, 0.9, 1.1, 1.3];
        let at = |percent: u32| of(base.map(|f| f * f64::from(percent) / 100.0));
        let all: Vec<_> = (60..240).map(at).collect();
        assert!(all.is_sorted_by(|before, after| before >= after), "{all:?}");
        assert_eq!((all[0], all[all.len() - 1]), (32.0, 1.0));
    }
}
