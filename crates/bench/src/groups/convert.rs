//! Conversions inside host memory, through the planner, the engine and the lanes, beside `memcpy`
//! of as many bytes.

use crate::content::{Content, Numbers};
use crate::problems::{self, Conversion, Conversions};
use crate::report::{Bench, Case, Contender};
use crate::settings::Stop;
use crate::{Error, Report, Settings};
use isometry::{CopyOptions, Instance, Machine};
use std::hint::black_box;

const PROBLEMS: &str = include_str!("../../../../bench/problems/convert.toml");

struct Scene {
    machine: Machine,
    src: Instance,
    dst: Instance,
    /// What the destination is to hold.
    expected: Content,
}

impl Scene {
    fn new(problem: &Conversion, stop: &Stop) -> Result<Self, Error> {
        let [from, to] = problem.arrays()?;
        let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
        let content = Content::of(&from)?.to_vec(stop)?;
        let machine = Machine::builder().open()?;
        let (src, dst) = (machine.empty(from, "sys")?, machine.empty(to, "sys")?);
        src.fill(&content)?;
        // Touched before it is timed.
        dst.fill(&vec![0; content.len()])?;
        Ok(Scene { machine, src, dst, expected })
    }

    fn run(&self, stop: &Stop) -> Result<(), Error> {
        stop.finish(&self.machine.copy(&self.src, &self.dst, &CopyOptions::default())?)
    }

    fn is_converted(&self, stop: &Stop) -> Result<bool, Error> {
        self.expected.is_in(&mut &*self.dst.to_vec()?, stop)
    }
}

#[inline(never)]
fn memcpy(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Conversions = problems::read("convert", PROBLEMS)?;
    let mut bench = Bench::new("convert", settings)?;
    for problem in &problems.case {
        if bench.wants(&problem.name) {
            run_case(&mut bench, problem)?;
        }
    }
    bench.finish()
}

fn run_case(bench: &mut Bench, problem: &Conversion) -> Result<(), Error> {
    let stop = bench.stop();
    let scene = Scene::new(problem, &stop)?;
    let from = scene.src.to_vec()?;
    let mut to = vec![1u8; from.len()];
    let (name, bytes) = (problem.name.clone(), from.len() as u64);
    let case = Case { name, bytes, threads: 1, runs: problem.runs, calls: 1 };
    let mut ours = || scene.run(&stop);
    let mut theirs = || {
        memcpy(black_box(&from), black_box(&mut to));
        Ok(())
    };
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "memcpy", run: &mut theirs },
    ];
    bench.run(&case, &mut contenders, &mut || scene.is_converted(&stop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_can_be_read() {
        let problems: Conversions = problems::read("convert", PROBLEMS).unwrap();
        for problem in problems.case {
            let [from, to] = problem.arrays().unwrap();
            assert_eq!(from.bytes().unwrap(), to.bytes().unwrap());
            assert!(Numbers::of(&from).unwrap().laid_out(&to.layout).is_ok(), "{}", problem.name);
        }
    }
}
