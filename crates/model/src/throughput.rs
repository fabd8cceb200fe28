//! Throughput functions `tp(m_s, m_d, r)` (paper, section 4.1).

use crate::{ModelError, ShapeClass};
use std::ops::RangeInclusive;

/// Bytes per second that a function may have: products of a path's rates stay within a `f64`.
const RATES: RangeInclusive<f64> = 1.0..=1e24;

/// Bytes per second against request size; monotone.
///
/// Between points straight in log–log, below the first proportional to the request (a constant
/// cost for each request), above the last constant. Logarithms come from `libm`, so that the same
/// points give the same bits on every machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Throughput {
    /// `(request bytes, bytes per second)`: requests strictly ascending, rates never falling.
    points: Vec<(u64, f64)>,
    /// Whether the rate below the first point falls with the request or stays.
    constant: bool,
}

impl Throughput {
    /// The same rate whatever the request.
    ///
    /// # Errors
    /// [`ModelError::Throughput`] where the rate is not from 1 to 1e24 bytes a second.
    pub fn constant(rate: f64) -> Result<Self, ModelError> {
        check_rate(rate)?;
        Ok(Throughput { points: vec![(1, rate)], constant: true })
    }

    /// The function through `points`, each `(request bytes, bytes per second)`.
    ///
    /// # Errors
    /// [`ModelError::Throughput`] where there is no point, requests don't ascend strictly from at
    /// least 1, a rate falls, or a rate is not from 1 to 1e24 bytes a second.
    pub fn through(points: Vec<(u64, f64)>) -> Result<Self, ModelError> {
        let wrong = |why: &str| Err(ModelError::Throughput { why: why.to_owned() });
        if points.first().is_none_or(|p| p.0 == 0) {
            return wrong("a curve needs a point, and requests of at least 1 byte");
        }
        points.iter().try_for_each(|p| check_rate(p.1))?;
        if points.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return wrong("request sizes must ascend strictly");
        }
        if points.windows(2).any(|pair| pair[0].1 > pair[1].1) {
            return wrong("rates must not fall as requests grow");
        }
        Ok(Throughput { points, constant: false })
    }

    /// The function through measured points: where a rate falls, the running maximum stands
    /// instead, which splitting large requests reaches (paper, section 4.2, footnote 2).
    ///
    /// # Errors
    /// As [`Throughput::through`], but for falling rates.
    pub fn measured(mut points: Vec<(u64, f64)>) -> Result<Self, ModelError> {
        let mut best = 0.0f64;
        for point in &mut points {
            best = best.max(point.1);
            point.1 = best;
        }
        Self::through(points)
    }

    /// What each of `sharers` gets, at least 1, where they have equal parts of it.
    fn shared(&self, sharers: u32) -> Self {
        let part = |&(request, rate): &(u64, f64)| {
            (request, (rate / f64::from(sharers)).max(*RATES.start()))
        };
        Throughput { points: self.points.iter().map(part).collect(), constant: self.constant }
    }

    /// Whether the rate is the same for every request.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    /// The points `(request bytes, bytes per second)`; one for a constant function.
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// The rate of the largest requests, bytes per second.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.1)
    }

    /// The rate with requests of `request_bytes`, bytes per second; 0 for a request of 0.
    #[must_use]
    pub fn at(&self, request_bytes: u64) -> f64 {
        // Most requests asked for are no shorter than the last point's.
        if let Some(last) = self.points.last().filter(|last| request_bytes >= last.0) {
            return last.1;
        }
        let above = self.points.partition_point(|p| p.0 <= request_bytes);
        let to = self.points[above];
        match above.checked_sub(1).map(|below| self.points[below]) {
            Some(from) if from.0 == request_bytes => from.1,
            Some(from) => between(from, to, request_bytes),
            None if self.constant => to.1,
            None => to.1 * (as_f64(request_bytes) / as_f64(to.0)),
        }
    }

    /// The least request that reaches `rate`: the smallest `r` with `at(r) >= rate`. `None` where
    /// no request does.
    #[must_use]
    pub fn inverse(&self, rate: f64) -> Option<u64> {
        if rate > self.peak() {
            return None;
        }
        if self.constant {
            return Some(1);
        }
        let (mut low, mut high) = (1, self.points.last()?.0);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) >= rate { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }
}

/// The throughput functions of one channel, one for each shape class.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Contiguous runs, against the length of a run.
    pub run: Throughput,
    /// Interleaves, against the element size; the run's at that size where absent.
    pub interleave: Option<Throughput>,
    /// Transposes, likewise.
    pub transpose: Option<Throughput>,
    /// Gathers through an index table, against the run for each index.
    pub gather: Option<Throughput>,
}

impl Curves {
    /// The same function for every class.
    #[must_use]
    pub fn all(run: Throughput) -> Self {
        Curves { run, interleave: None, transpose: None, gather: None }
    }

    /// What each of `sharers` of the channel gets, at least 1, where they have equal parts of it;
    /// no rate falls below 1 byte a second.
    #[must_use]
    pub fn shared(&self, sharers: u32) -> Self {
        let of = |curve: &Option<Throughput>| curve.as_ref().map(|curve| curve.shared(sharers));
        Curves {
            run: self.run.shared(sharers),
            interleave: of(&self.interleave),
            transpose: of(&self.transpose),
            gather: of(&self.gather),
        }
    }

    /// The function of `class`.
    #[must_use]
    pub fn of(&self, class: ShapeClass) -> &Throughput {
        match class {
            ShapeClass::Run => None,
            ShapeClass::Interleave => self.interleave.as_ref(),
            ShapeClass::Transpose => self.transpose.as_ref(),
            ShapeClass::Gather => self.gather.as_ref(),
        }
        .unwrap_or(&self.run)
    }
}

fn check_rate(rate: f64) -> Result<(), ModelError> {
    if RATES.contains(&rate) {
        return Ok(());
    }
    let why = format!("a rate is from 1 to 1e24 bytes per second, and not {rate:e}");
    Err(ModelError::Throughput { why })
}

fn between(from: (u64, f64), to: (u64, f64), request_bytes: u64) -> f64 {
    let log = |x: u64| libm::log(as_f64(x));
    let part = (log(request_bytes) - log(from.0)) / (log(to.0) - log(from.0));
    let rate = from.1 * libm::exp(part * libm::log(to.1 / from.1));
    rate.clamp(from.1, to.1)
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits of a size")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Throughput {
        Throughput::through(vec![(1024, 0.1e9), (32768, 3.0e9), (1 << 20, 6.4e9)]).unwrap()
    }

    #[test]
    fn a_curve_passes_its_points() {
        let f = curve();
        assert_eq!(f.at(1024), 0.1e9);
        assert_eq!(f.at(32768), 3.0e9);
        assert_eq!(f.at(1 << 30), 6.4e9);
        assert_eq!(f.at(512), 0.05e9);
        assert_eq!(f.at(0), 0.0);
    }

    #[test]
    fn the_inverse_is_the_least_request() {
        let f = curve();
        for rate in [0.01e9, 0.1e9, 0.5e9, 3.0e9, 5.0e9, 6.4e9] {
            let request = f.inverse(rate).unwrap();
            assert!(f.at(request) >= rate);
            assert!(request == 1 || f.at(request - 1) < rate);
        }
        assert_eq!(f.inverse(6.5e9), None);
        assert_eq!(Throughput::constant(7.74e9).unwrap().inverse(7.74e9), Some(1));
    }

    #[test]
    fn sharers_get_equal_parts_of_every_curve() {
        let constant = Throughput::constant(6e9).unwrap();
        let curves =
            Curves { transpose: Some(constant), gather: Some(curve()), ..Curves::all(curve()) };
        let third = curves.shared(3);
        for class in [ShapeClass::Run, ShapeClass::Transpose, ShapeClass::Gather] {
            for request in [1, 1000, 5000, 1 << 30] {
                let (part, all) = (third.of(class).at(request), curves.of(class).at(request));
                assert!((part * 3.0 / all - 1.0).abs() < 1e-9, "{class:?} of {request}");
            }
        }
        assert_eq!(third.interleave, None);
        assert_eq!(Curves::all(Throughput::constant(2.0).unwrap()).shared(9).run.peak(), 1.0);
    }

    #[test]
    fn a_falling_measurement_is_held_at_its_maximum() {
        let f = Throughput::measured(vec![(1, 2.0), (2, 5.0), (3, 4.0)]).unwrap();
        assert_eq!(f.points(), [(1, 2.0), (2, 5.0), (3, 5.0)]);
        assert!(Throughput::through(vec![(1, 2.0), (2, 1.0)]).is_err());
        assert!(Throughput::through(vec![(2, 1.0), (2, 1.0)]).is_err());
        assert!(Throughput::through(vec![]).is_err());
        for rate in [f64::NAN, f64::INFINITY, 0.99, 1.01e24, -5.0] {
            assert!(Throughput::constant(rate).is_err());
        }
        assert!([1.0, 1e24].iter().all(|&rate| Throughput::constant(rate).is_ok()));
    }
}
