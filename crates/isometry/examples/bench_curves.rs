//! How well the measured curves predict copies of sizes that were not measured.
//!
//! Each case is a copy inside host memory of one shape class; its figure `predicted_over_measured`
//! is the rate that the plan predicts over the one that the hop reached. The last figure,
//! `median_error`, is the median of |1 - ratio|; the aim is 0.25.

use bench::{Case, Group, median};
use isometry::{Array, CopyOptions, Instance, Machine};
use std::error::Error;

type Fallible<T> = Result<T, Box<dyn Error>>;

const RUNS: usize = 9;
/// The payload of a copy: far beyond the caches.
const BYTES: u64 = 48 << 20;
/// What every byte of a source is, and of a destination before the copy.
const SRC: u8 = 3;
const DST: u8 = 5;

struct Problem {
    name: String,
    src: Instance,
    dst: Instance,
}

/// Filled, so that no copy pays for the first touch of a page.
fn make(
    machine: &Machine,
    dims: &[(&str, u64)],
    (dtype, layout): (&str, &str),
    value: u8,
) -> Fallible<Instance> {
    let instance = machine.empty(Array::of(dims, dtype)?.laid_out(layout)?, "sys")?;
    instance.fill(&vec![value; instance.host_span()?.len_bytes()])?;
    Ok(instance)
}

/// Every other run of `run` bytes.
fn runs(machine: &Machine, run: u64) -> Fallible<Problem> {
    let count = BYTES / run;
    let wide = make(machine, &[("y", count), ("x", 2 * run)], ("|u1", "yx"), SRC)?;
    let src = wide.select(&[("x", 0..i64::try_from(run)?)])?;
    let dst = make(machine, &[("y", count), ("x", run)], ("|u1", "yx"), DST)?;
    Ok(Problem { name: format!("run {run}"), src, dst })
}

fn transposed(machine: &Machine, element: u64) -> Fallible<Problem> {
    let side = (BYTES / element).isqrt();
    let dims = [("y", side), ("x", side)];
    let dtype = format!("|V{element}");
    let (src, dst) =
        (make(machine, &dims, (&dtype, "yx"), SRC)?, make(machine, &dims, (&dtype, "xy"), DST)?);
    Ok(Problem { name: format!("transpose {element}"), src, dst })
}

fn interleaved(machine: &Machine, element: u64) -> Fallible<Problem> {
    let fields: Vec<_> = (0..4).map(|f| format!("('f{f}', '|V{element}')")).collect();
    let dtype = format!("[{}]", fields.join(", "));
    let dims = [("i", BYTES / 4 / element)];
    let (src, dst) = (
        make(machine, &dims, (&dtype, "<F, i>"), SRC)?,
        make(machine, &dims, (&dtype, "<i, F>"), DST)?,
    );
    Ok(Problem { name: format!("interleave {element}"), src, dst })
}

fn gathered(machine: &Machine, run: u64) -> Fallible<Problem> {
    let count = BYTES / run;
    let dims = [("page", count), ("x", run)];
    let pool = make(machine, &dims, ("|u1", "page,x"), SRC)?;
    let pages: Vec<i64> = (0..count).map(|i| (i * 7919 % count) as i64).collect();
    let dst = make(machine, &dims, ("|u1", "page,x"), DST)?;
    Ok(Problem { name: format!("gather {run}"), src: pool.take("page", &pages)?, dst })
}

fn main() -> Fallible<()> {
    let mut group = Group::from_args("curves")?;
    let machine = Machine::builder().remeasure(true).open()?;
    let mut errors = Vec::new();
    type Make = fn(&Machine, u64) -> Fallible<Problem>;
    let cases: [(Make, &[u64]); 4] = [
        (runs, &[32, 128, 512, 2000, 20_000, 200_000]),
        (transposed, &[3, 6, 12, 32, 128]),
        (interleaved, &[3, 6, 12, 32]),
        (gathered, &[32, 256, 4000]),
    ];
    for (make, sizes) in cases {
        for &size in sizes {
            errors.push(run(&mut group, &machine, make(&machine, size)?)?);
        }
    }
    group.figure("median_error", median(&errors));
    let verified = group.finish()?;
    std::process::exit(i32::from(!verified));
}

/// The error of one prediction.
fn run(group: &mut Group, machine: &Machine, problem: Problem) -> Fallible<f64> {
    let (mut seconds, mut predicted) = (Vec::new(), 0.0);
    for _ in 0..=RUNS {
        let event = machine.copy(&problem.src, &problem.dst, &CopyOptions::default())?;
        event.wait(None)?;
        let report = &event.report()[0];
        predicted = report.plan.hops[0].throughput;
        seconds.push(report.times.hops[0].busy.as_secs_f64());
    }
    let bytes = problem.src.payload_bytes();
    let right = problem.dst.to_vec()?.iter().all(|&b| b == SRC);
    let case = Case { name: problem.name, bytes, threads: 1, runs: RUNS };
    group.record(&case, right, &["isometry"], &[seconds[1..].to_vec()]);
    let ratio = predicted * median(&seconds[1..]) / bytes as f64;
    group.figure("predicted_over_measured", ratio);
    Ok((1.0 - ratio).abs())
}
