//! Small direct copies: what a call costs over `memcpy` behind a call that is not inlined.
//!
//! A cached plan, instances made before, from the call to the completed event, in batches.
//! `figures.over_ns` is the cost of one copy over one `memcpy`; the aim is below 1000.

use bench::{Case, Contender, Group, median};
use isometry::{Array, CopyOptions, Instance, Machine};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Far shorter than a turn on the core, so that what else runs falls between most batches.
const BATCH: usize = 1_000;
const BATCHES: usize = 101;

#[inline(never)]
fn memcpy(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

struct Pair {
    machine: Machine,
    src: Instance,
    dst: Instance,
    options: CopyOptions,
}

impl Pair {
    fn new(bytes: u64) -> Result<Self, isometry::Error> {
        let machine = Machine::builder().assume(true).open()?;
        let array = Array::of(&[("x", bytes)], "|u1")?;
        let (src, dst) = (machine.empty(array.clone(), "sys")?, machine.empty(array, "sys")?);
        src.fill(&(0..bytes).map(|i| i as u8).collect::<Vec<_>>())?;
        Ok(Pair { machine, src, dst, options: CopyOptions::default() })
    }

    fn copy(&self) {
        let event = self.machine.copy(&self.src, &self.dst, &self.options);
        let event = event.expect("the copy was planned before");
        assert!(black_box(event).is_done(), "a small copy is done when the call returns");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut group = Group::from_args("small")?;
    for bytes in [64u64, 256, 1024, 4096] {
        let name = format!("copy {bytes} B, host to host, x{BATCH}");
        if !group.wants(&name) {
            continue;
        }
        let pair = Pair::new(bytes)?;
        let (from, mut to) = (pair.src.to_vec()?, vec![0u8; usize::try_from(bytes)?]);
        let case = Case { name, bytes: bytes * BATCH as u64, threads: 1, runs: BATCHES };
        let mut ours = || (0..BATCH).for_each(|_| pair.copy());
        let mut theirs = || (0..BATCH).for_each(|_| memcpy(black_box(&from), black_box(&mut to)));
        let mut contenders = [
            Contender { name: "isometry", run: &mut ours },
            Contender { name: "memcpy", run: &mut theirs },
        ];
        group.run(&case, &mut contenders, &mut || pair.dst.to_vec().is_ok_and(|d| d == from));
        group.figure("over_ns", over_ns(&pair, &from));
    }
    group.figure("open_seconds", open_seconds()?);
    let verified = group.finish()?;
    std::process::exit(i32::from(!verified));
}

/// What opening a machine takes once its curves are known.
fn open_seconds() -> Result<f64, isometry::Error> {
    drop(Machine::open()?);
    let mut seconds = Vec::new();
    for _ in 0..BATCHES {
        let start = Instant::now();
        let machine = Machine::open()?;
        seconds.push(start.elapsed().as_secs_f64());
        machine.close();
    }
    Ok(median(&seconds))
}

/// The median over batches of the difference for one copy.
fn over_ns(pair: &Pair, from: &[u8]) -> f64 {
    let mut to = vec![0u8; from.len()];
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..BATCH).for_each(|_| run());
        start.elapsed().as_secs_f64() / BATCH as f64
    };
    let differences: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let ours = time(&mut || pair.copy());
            ours - time(&mut || memcpy(black_box(from), black_box(&mut to)))
        })
        .collect();
    median(&differences) * 1e9
}
