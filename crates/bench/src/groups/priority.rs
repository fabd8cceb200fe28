//! An urgent copy under a load of low-priority ones, beside the same copy alone.
//!
//! The ratio of `alone` to ours is what the load costs; the aim is 1/1.3 = 0.77 or more. The load
//! shares the host's memory bus and the disk, so that the figure on a clock is an upper bound of
//! what the scheduler does.

use crate::content::{Content, Numbers};
use crate::problems;
use crate::report::{Bench, Case, timed};
use crate::settings::Stop;
use crate::{Error, Report, Settings};
use isometry::{Array, CopyOptions, Event, FileOptions, Instance, Machine};
use serde::Deserialize;
use std::path::Path;

const PROBLEMS: &str = include_str!("../../../../bench/problems/priority.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    load: Load,
    case: Vec<Problem>,
}

/// What runs beside the urgent copy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    /// Copies at once.
    copies: usize,
    /// Rows and columns of each.
    side: u64,
}

/// A transpose of `side`² floats into host memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problem {
    name: String,
    side: u64,
    from: Origin,
    runs: usize,
}

/// Where the sources lie, the load's too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Origin {
    Sys,
    Disk,
}

struct Job {
    src: Instance,
    dst: Instance,
    expected: Content,
}

/// Where the copies of a case run.
struct Scene<'a> {
    machine: Machine,
    from: Origin,
    dir: &'a Path,
    stop: Stop,
}

impl Scene<'_> {
    /// The copy number `i`, ready to start.
    fn job(&self, i: usize, side: u64) -> Result<Job, Error> {
        let array = Array::of(&[("y", side), ("x", side)], "<f4")?;
        let turned = array.clone().laid_out("xy")?;
        let expected = Numbers::of(&array)?.laid_out(&turned.layout)?;
        let content = Content::of(&array)?.to_vec(&self.stop)?;
        let src = self.machine.empty(array, "sys")?;
        src.fill(&content)?;
        let dst = self.machine.empty(turned, "sys")?;
        // Touched before it is timed.
        dst.fill(&vec![2; content.len()])?;
        let src = if self.from == Origin::Disk { self.on_disk(i, &src)? } else { src };
        Ok(Job { src, dst, expected })
    }

    /// `src` in a file.
    fn on_disk(&self, i: usize, src: &Instance) -> Result<Instance, Error> {
        let path = self.dir.join(format!("{i}.npy"));
        let file = self.machine.create_file(&path, src.array(), &FileOptions::default())?;
        self.stop.finish(&self.machine.copy(src, &file, &CopyOptions::default())?)?;
        let dims = Some(vec!["y".to_owned(), "x".to_owned()]);
        Ok(self.machine.open_file(&path, &FileOptions { dims, ..FileOptions::default() })?)
    }

    fn start(&self, job: &Job, options: &CopyOptions) -> Result<Event, Error> {
        Ok(self.machine.copy(&job.src, &job.dst, options)?)
    }

    /// Runs `job` urgently.
    fn urgent(&self, job: &Job) -> Result<(), Error> {
        self.stop.finish(&self.start(job, &CopyOptions::with_priority(9))?)
    }

    /// Starts `load` twice, one behind the other, which is more than an urgent copy outlasts.
    fn start_load(&self, load: &[Job]) -> Result<Vec<Event>, Error> {
        let first = CopyOptions::default();
        let mut events: Vec<Event> =
            load.iter().map(|job| self.start(job, &first)).collect::<Result<_, _>>()?;
        let behind = CopyOptions { after: events.clone(), ..CopyOptions::default() };
        for job in load {
            events.push(self.start(job, &behind)?);
        }
        Ok(events)
    }

    fn is_turned(&self, job: &Job) -> Result<bool, Error> {
        job.expected.is_in(&mut &*job.dst.to_vec()?, &self.stop)
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("priority", PROBLEMS)?;
    let mut bench = Bench::new("priority", settings)?;
    for problem in &problems.case {
        if bench.wants(&problem.name) {
            run_case(&mut bench, problem, &problems.load)?;
        }
    }
    bench.finish()
}

fn run_case(bench: &mut Bench, problem: &Problem, load: &Load) -> Result<(), Error> {
    let dir = tempfile::tempdir_in(&bench.settings().files);
    let dir = dir.map_err(Error::io("making a directory for files"))?;
    let machine = Machine::builder().disk(dir.path()).open()?;
    let scene = Scene { machine, from: problem.from, dir: dir.path(), stop: bench.stop() };
    let urgent = scene.job(0, problem.side)?;
    let jobs: Vec<Job> =
        (1..=load.copies).map(|i| scene.job(i, load.side)).collect::<Result<_, _>>()?;
    scene.urgent(&urgent)?;
    let verified = scene.is_turned(&urgent)?;
    let (mut loaded, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs(problem.runs) {
        alone.push(timed(|| scene.urgent(&urgent))?);
        let low = scene.start_load(&jobs)?;
        loaded.push(timed(|| scene.urgent(&urgent))?);
        low.iter().try_for_each(|event| scene.stop.finish(event))?;
    }
    let bytes = urgent.src.payload_bytes();
    let case = Case { name: problem.name.clone(), bytes, threads: 1, runs: problem.runs, calls: 1 };
    bench.record(&case, verified, &["isometry", "alone"], &[loaded, alone])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_can_be_read() {
        let problems: Problems = problems::read("priority", PROBLEMS).unwrap();
        assert!(problems.load.copies > 0 && problems.case.iter().all(|p| p.side > 0));
    }
}
