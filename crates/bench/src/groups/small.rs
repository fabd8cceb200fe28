//! Small direct copies: what a call costs over `memcpy` behind a call that is not inlined.
//!
//! A cached plan, instances made before, from the call to the completed event, in batches.
//! `figures.over_ns` is the cost of one copy over one `memcpy`; the aim is below 1000.

use crate::content::Content;
use crate::problems;
use crate::report::{Bench, Case, Contender, timed};
use crate::stats::median;
use crate::{Error, Report, Settings};
use isometry::{Array, CopyOptions, Instance, Machine};
use serde::Deserialize;
use std::hint::black_box;

const PROBLEMS: &str = include_str!("../../../../bench/problems/small.toml");

/// The case that copies nothing.
const OPEN: &str = "open a machine";

/// Copies of these sizes, in batches.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    sizes_bytes: Vec<u64>,
    /// Copies timed together: far shorter than a turn on the core, so that what else runs falls
    /// between most batches.
    batch: usize,
    runs: usize,
    /// How often a machine is opened.
    opens: usize,
}

struct Pair {
    machine: Machine,
    src: Instance,
    dst: Instance,
    expected: Content,
    options: CopyOptions,
}

impl Pair {
    fn new(bytes: u64, bench: &Bench) -> Result<Self, Error> {
        let machine = Machine::builder().assume(true).open()?;
        let array = Array::of(&[("x", bytes)], "|u1")?;
        let expected = Content::of(&array)?;
        let (src, dst) = (machine.empty(array.clone(), "sys")?, machine.empty(array, "sys")?);
        src.fill(&expected.to_vec(&bench.stop())?)?;
        Ok(Pair { machine, src, dst, expected, options: CopyOptions::default() })
    }

    fn copy(&self) -> Result<(), Error> {
        let event = self.machine.copy(&self.src, &self.dst, &self.options)?;
        // A small copy is done when the call returns; nobody is asked to wait for it.
        match black_box(event).is_done() {
            true => Ok(()),
            false => Err(Error::part("copying on the caller's thread")("it is still running")),
        }
    }

    fn copies(&self, count: usize) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.copy())
    }
}

#[inline(never)]
fn memcpy(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

fn memcpys(src: &[u8], dst: &mut [u8], count: usize) -> Result<(), Error> {
    (0..count).for_each(|_| memcpy(black_box(src), black_box(dst)));
    Ok(())
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("small", PROBLEMS)?;
    let mut bench = Bench::new("small", settings)?;
    for &bytes in &problems.sizes_bytes {
        let name = format!("copy {bytes} B, host to host, x{}", problems.batch);
        if bench.wants(&name) {
            run_case(&mut bench, (name, bytes), &problems)?;
        }
    }
    if bench.wants(OPEN) {
        open(&mut bench, problems.opens)?;
    }
    bench.finish()
}

fn run_case(
    bench: &mut Bench,
    (name, bytes): (String, u64),
    problems: &Problems,
) -> Result<(), Error> {
    let (stop, pair, batch) = (bench.stop(), Pair::new(bytes, bench)?, problems.batch);
    let from = pair.src.to_vec()?;
    let mut to = vec![0u8; from.len()];
    let case =
        Case { name, bytes: bytes * batch as u64, threads: 1, runs: problems.runs, calls: 1 };
    let (mut ours, mut theirs) = (|| pair.copies(batch), || memcpys(&from, &mut to, batch));
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "memcpy", run: &mut theirs },
    ];
    let mut verify = || pair.expected.is_in(&mut &*pair.dst.to_vec()?, &stop);
    bench.run(&case, &mut contenders, &mut verify)?;
    let over_ns = over_ns(&pair, (&from, &mut to), (batch, bench.runs(problems.runs)))?;
    bench.figure("over_ns", over_ns)
}

/// The median over batches of the difference for one copy.
fn over_ns(
    pair: &Pair,
    (from, to): (&[u8], &mut [u8]),
    (batch, batches): (usize, usize),
) -> Result<f64, Error> {
    let mut difference = || {
        let ours = timed(|| pair.copies(batch))?;
        Ok((ours - timed(|| memcpys(from, to, batch))?) / batch as f64)
    };
    let differences: Result<Vec<f64>, Error> = (0..batches).map(|_| difference()).collect();
    Ok(median(&differences?) * 1e9)
}

/// What opening a machine takes once its curves are known, its closing not counted.
fn open(bench: &mut Bench, opens: usize) -> Result<(), Error> {
    drop(Machine::open()?);
    let mut seconds = Vec::new();
    for _ in 0..bench.runs(opens) {
        bench.stop().check()?;
        let mut machine = None;
        seconds.push(timed(|| {
            machine = Some(Machine::open()?);
            Ok(())
        })?);
    }
    let case = Case { name: OPEN.to_owned(), bytes: 0, threads: 1, runs: opens, calls: 1 };
    bench.record(&case, true, &["isometry"], &[seconds])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_can_be_read() {
        let problems: Problems = problems::read("small", PROBLEMS).unwrap();
        assert!(!problems.sizes_bytes.is_empty() && problems.batch > 0);
    }
}
