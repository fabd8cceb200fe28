//! Throughput functions as the search asks them.

use crate::graph::Graph;
use crate::path::{RUN_BYTES, Step};
use crate::shape::{Shape, WHOLE};
use model::{CostModel, Curves, ShapeClass, Throughput};
use std::cell::{Cell, OnceCell};

/// What each lane does for one transfer, worked out once, when somebody asks.
#[derive(Debug)]
pub(crate) struct Rates<'a> {
    pub(crate) model: CostModel,
    graph: &'a Graph<'a>,
    shape: &'a Shape,
    lanes: Vec<LaneRates>,
    /// From one end's layout to the other's.
    conversion: OnceCell<Step>,
}

/// What one lane does for it; NaN until somebody asks.
#[derive(Clone, Debug)]
struct LaneRates {
    copy: Cell<f64>,
    conversion: Cell<f64>,
}

impl<'a> Rates<'a> {
    pub(crate) fn of(graph: &'a Graph<'a>, shape: &'a Shape, model: CostModel) -> Rates<'a> {
        let unknown = Cell::new(f64::NAN);
        let lane = LaneRates { copy: unknown.clone(), conversion: unknown };
        let lanes = vec![lane; graph.lanes.len()];
        Rates { model, graph, shape, lanes, conversion: OnceCell::new() }
    }

    /// The rate of a copy in order: no hop on this lane is faster.
    pub(crate) fn copy(&self, lane: u8) -> f64 {
        let step = || self.shape.copy_step();
        self.known(lane, &self.lanes[usize::from(lane)].copy, step)
    }

    /// The rate of a hop from the source's layout to the destination's.
    pub(crate) fn convert(&self, lane: u8) -> f64 {
        let step = || self.shape.step(&self.shape.src, &self.shape.dst, &WHOLE);
        let step = || *self.conversion.get_or_init(step);
        self.known(lane, &self.lanes[usize::from(lane)].conversion, step)
    }

    fn known(&self, lane: u8, known: &Cell<f64>, step: impl FnOnce() -> Step) -> f64 {
        if known.get().is_nan() {
            let curves = &self.graph.lanes[usize::from(lane)].curves;
            known.set(rate(self.model, curves, &step()));
        }
        known.get()
    }
}

/// `tp(m_i, m_i+1, PREFIX)`; in the default model that of the hop's shape class.
pub(crate) fn rate(model: CostModel, curves: &Curves, step: &Step) -> f64 {
    curve(model, curves, step.class).at(step.prefix_bytes)
}

/// The function for `class`: the paper has one for each edge.
pub(crate) fn curve(model: CostModel, curves: &Curves, class: ShapeClass) -> &Throughput {
    match model {
        CostModel::Paper => &curves.run,
        CostModel::Default => curves.of(class),
    }
}

/// The least prefix from which on a hop that reorders all beyond it reaches `rate`: of one below
/// [`RUN_BYTES`], whichever other shape class that makes it as well.
pub(crate) fn least_prefix(model: CostModel, curves: &Curves, rate: f64) -> Option<u64> {
    let least = |class| inverse(curve(model, curves, class), rate);
    let run = least(ShapeClass::Run)?;
    if run >= RUN_BYTES {
        return Some(run);
    }
    let short = [ShapeClass::Interleave, ShapeClass::Transpose].map(least).into_iter();
    Some(short.fold(run, |most, bytes| most.max(bytes.unwrap_or(RUN_BYTES))).min(RUN_BYTES))
}

/// The least request that reaches `rate`, as [`Throughput::inverse`] but without its bisection:
/// a closed form between two points, put right by the function itself.
pub(crate) fn inverse(curve: &Throughput, rate: f64) -> Option<u64> {
    let points = curve.points();
    let above = points.partition_point(|p| p.1 < rate);
    let to = points.get(above)?;
    if curve.is_constant() {
        return Some(1);
    }
    let guess = match above.checked_sub(1).map(|below| points[below]) {
        _ if to.1 == rate => to.0 as f64,
        None => rate / points[0].1 * points[0].0 as f64,
        Some(from) => {
            let part = libm::log(rate / from.1) / libm::log(to.1 / from.1);
            from.0 as f64 * libm::exp(part * libm::log(to.0 as f64 / from.0 as f64))
        }
    };
    let mut request = (guess.ceil() as u64).clamp(1, to.0);
    while request > 1 && curve.at(request - 1) >= rate {
        request -= 1;
    }
    while request < to.0 && curve.at(request) < rate {
        request += 1;
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curves(most_apart: u64) -> impl Strategy<Value = Throughput> {
        let points = prop::collection::vec((1..most_apart, 0..4u64, 1..1000u64), 1..6);
        points.prop_map(|steps| {
            let (mut request, mut rate) = (0, 0.0);
            let point = |(by, flat, more): (u64, u64, u64)| {
                request += by;
                // Some points are no faster than the one before.
                rate += if flat == 0 && rate > 0.0 { 0.0 } else { more as f64 * 1e5 };
                (request, rate)
            };
            Throughput::through(steps.into_iter().map(point).collect()).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_closed_form_is_the_inverse(
            curve in curves(9000),
            part in 0.0..1.05f64,
            requests in prop::collection::vec(1..50_000u64, 20),
        ) {
            // Where a rate is that of a request to the last bit, the closed form is off by one.
            let at = requests.into_iter().map(|request| curve.at(request));
            let points = curve.points().iter().map(|point| point.1);
            for rate in at.chain(points).chain([(curve.peak() * part).max(1.0)]) {
                prop_assert_eq!(inverse(&curve, rate), curve.inverse(rate));
            }
        }
    }

    proptest! {
        #[test]
        fn a_prefix_is_the_least_that_is_enough_in_every_class(
            run in curves(40),
            transpose in curves(40),
            interleave in prop::option::of(curves(40)),
            part in 0.0..1.05f64,
        ) {
            let rate = (run.peak() * part).max(1.0);
            let curves = Curves { run, interleave, transpose: Some(transpose), gather: None };
            let reaches = |bytes, class| curves.of(class).at(bytes) >= rate;
            let is_enough = |&bytes: &u64| {
                let short = [ShapeClass::Interleave, ShapeClass::Transpose];
                let is_short = bytes < RUN_BYTES;
                reaches(bytes, ShapeClass::Run)
                    && short.into_iter().all(|class| !is_short || reaches(bytes, class))
            };
            // No curve has points further up.
            let least = (1..300).find(is_enough);
            prop_assert_eq!(least_prefix(CostModel::Default, &curves, rate), least);
        }
    }

    #[test]
    fn a_constant_needs_no_more_than_a_byte() {
        let curve = Throughput::constant(5e9).unwrap();
        assert_eq!([4e9, 5e9, 6e9].map(|rate| inverse(&curve, rate)), [Some(1), Some(1), None]);
    }
}
