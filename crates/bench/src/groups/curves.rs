//! How well the measured curves predict copies of sizes that were not measured.
//!
//! Each case is a copy inside host memory of one shape class; its figure `predicted_over_measured`
//! is the rate that the plan predicts over the best that the hop reached, since the curves are the
//! best of several measurements too: what else runs only slows down. The last figure,
//! `median_error`, is the median of |1 - ratio|; the aim is 0.25.

use crate::content::{Content, Numbers};
use crate::problems;
use crate::report::{Bench, Case};
use crate::settings::Stop;
use crate::stats::median;
use crate::{Error, Report, Settings};
use isometry::{Array, CopyOptions, Instance, Machine};
use serde::Deserialize;

const PROBLEMS: &str = include_str!("../../../../bench/problems/curves.toml");

/// Copies of `payload_bytes` of each shape class, by the bytes of a run or an element.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    payload_bytes: u64,
    runs: usize,
    run: Vec<u64>,
    transpose: Vec<u64>,
    interleave: Vec<u64>,
    gather: Vec<u64>,
}

struct Problem {
    name: String,
    src: Instance,
    dst: Instance,
    /// What the destination is to hold.
    expected: Content,
}

/// Makes problems on one machine.
struct Maker {
    machine: Machine,
    payload_bytes: u64,
    stop: Stop,
}

impl Maker {
    fn src(&self, array: &Array) -> Result<Instance, Error> {
        let src = self.machine.empty(array.clone(), "sys")?;
        src.fill(&Content::of(array)?.to_vec(&self.stop)?)?;
        Ok(src)
    }

    /// Filled, so that no copy pays for the first touch of a page.
    fn dst(&self, array: &Array) -> Result<Instance, Error> {
        let dst = self.machine.empty(array.clone(), "sys")?;
        dst.fill(&vec![5; dst.host_span()?.len_bytes()])?;
        Ok(dst)
    }

    /// Every other run of `run` bytes.
    fn run(&self, run: u64) -> Result<Problem, Error> {
        let count = self.payload_bytes / run;
        let wide = Array::of(&[("y", count), ("x", 2 * run)], "|u1")?;
        let narrow = Array::of(&[("y", count), ("x", run)], "|u1")?;
        let mut numbers = Numbers::of(&wide)?;
        numbers.dims[1].truncate(usize::try_from(run).unwrap_or(usize::MAX));
        let src = self.src(&wide)?.select(&[("x", 0..run.cast_signed())])?;
        let (dst, expected) = (self.dst(&narrow)?, numbers.laid_out(&narrow.layout)?);
        Ok(Problem { name: format!("run {run}"), src, dst, expected })
    }

    fn transpose(&self, element: u64) -> Result<Problem, Error> {
        let side = (self.payload_bytes / element).isqrt();
        let array = Array::of(&[("y", side), ("x", side)], &format!("|V{element}"))?;
        self.convert(format!("transpose {element}"), &array, "xy")
    }

    fn interleave(&self, element: u64) -> Result<Problem, Error> {
        let fields: Vec<_> = (0..4).map(|f| format!("('f{f}', '|V{element}')")).collect();
        let dtype = format!("[{}]", fields.join(", "));
        let array = Array::of(&[("i", self.payload_bytes / 4 / element)], &dtype)?;
        self.convert(format!("interleave {element}"), &array, "<i, F>")
    }

    fn convert(&self, name: String, from: &Array, layout: &str) -> Result<Problem, Error> {
        let to = from.clone().laid_out(layout)?;
        let expected = Numbers::of(from)?.laid_out(&to.layout)?;
        Ok(Problem { name, src: self.src(from)?, dst: self.dst(&to)?, expected })
    }

    /// Pages of `run` bytes in an order that jumps about.
    fn gather(&self, run: u64) -> Result<Problem, Error> {
        let count = self.payload_bytes / run;
        let array = Array::of(&[("page", count), ("x", run)], "|u1")?;
        let pages: Vec<u64> = (0..count).map(|i| i * 7919 % count).collect();
        let mut numbers = Numbers::of(&array)?;
        numbers.dims[0] = pages.iter().map(|page| page * run).collect();
        let pages: Vec<i64> = pages.iter().map(|page| page.cast_signed()).collect();
        let src = self.src(&array)?.take("page", &pages)?;
        let (dst, expected) = (self.dst(&array)?, numbers.laid_out(&array.layout)?);
        Ok(Problem { name: format!("gather {run}"), src, dst, expected })
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("curves", PROBLEMS)?;
    let mut bench = Bench::new("curves", settings)?;
    bench.say("measuring the machine");
    let machine = Machine::builder().remeasure(true).open()?;
    let (payload_bytes, stop) = (problems.payload_bytes, bench.stop());
    let maker = Maker { machine, payload_bytes, stop };
    type Make = fn(&Maker, u64) -> Result<Problem, Error>;
    let classes: [(&str, &[u64], Make); 4] = [
        ("run", &problems.run, Maker::run),
        ("transpose", &problems.transpose, Maker::transpose),
        ("interleave", &problems.interleave, Maker::interleave),
        ("gather", &problems.gather, Maker::gather),
    ];
    let mut errors = Vec::new();
    for (class, sizes, make) in classes {
        for &size in sizes {
            if bench.wants(&format!("{class} {size}")) {
                errors.push(run_case(&mut bench, &maker, make(&maker, size)?, problems.runs)?);
            }
        }
    }
    bench.figure("median_error", median(&errors))?;
    bench.finish()
}

/// The error of one prediction.
fn run_case(bench: &mut Bench, maker: &Maker, problem: Problem, runs: usize) -> Result<f64, Error> {
    let (mut seconds, mut predicted) = (Vec::new(), 0.0);
    let mut copy = || {
        let event = maker.machine.copy(&problem.src, &problem.dst, &CopyOptions::default())?;
        maker.stop.finish(&event)?;
        let report = &event.report()[0];
        predicted = report.plan.hops[0].throughput;
        Ok::<_, Error>(report.times.hops[0].busy.as_secs_f64())
    };
    copy()?;
    let right = problem.expected.is_in(&mut &*problem.dst.to_vec()?, &maker.stop)?;
    for _ in 0..bench.runs(runs) {
        seconds.push(copy()?);
    }
    let bytes = problem.src.payload_bytes();
    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = predicted * best / bytes as f64;
    let case = Case { name: problem.name, bytes, threads: 1, runs, calls: 1 };
    bench.record(&case, right, &["isometry"], &[seconds])?;
    bench.figure("predicted_over_measured", ratio)?;
    Ok((1.0 - ratio).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_copies_what_its_content_says() {
        let problems: Problems = problems::read("curves", PROBLEMS).unwrap();
        assert!(problems.payload_bytes > 0 && problems.runs > 0);
        let machine = Machine::builder().assume(true).open().unwrap();
        let maker = Maker { machine, payload_bytes: 60_000, stop: Stop::default() };
        for problem in [maker.run(20), maker.transpose(3), maker.interleave(6), maker.gather(32)] {
            let problem = problem.unwrap();
            let options = CopyOptions::default();
            let event = maker.machine.copy(&problem.src, &problem.dst, &options).unwrap();
            event.wait(None).unwrap();
            let held = problem.dst.to_vec().unwrap();
            assert!(problem.expected.is_in(&mut &*held, &maker.stop).unwrap(), "{}", problem.name);
        }
    }
}
