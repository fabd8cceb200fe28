//! Conversion of a file into another with another layout, beside a raw program that makes the
//! same operations (offsets, lengths, order, depth, both ways at once, around the page cache where
//! ours go around it) and converts nothing; and, for scale, beside sequential reads and writes of
//! 1 MiB at once.
//!
//! The aim: `raw` takes at least 0.9 of our time.

mod operations;
mod raw;

use crate::content::{Content, Numbers};
use crate::problems::{self, Conversion, Conversions};
use crate::report::{Bench, Case, Contender};
use crate::settings::Stop;
use crate::{Error, Report, Settings, process};
use isometry::{Array, CopyOptions, FileOptions, Instance, Machine, Planned};
use operations::Operations;
use raw::Raw;
use rustix::fs::{Advice, fadvise, syncfs};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

const PROBLEMS: &str = include_str!("../../../../../bench/problems/disk.toml");

/// The contenders that need io_uring.
const RAW: [&str; 2] = ["raw", "sequential"];

/// What is read from and written to a file at once, beside the clock.
const BUFFER_BYTES: usize = 1 << 20;

struct Scene {
    machine: Machine,
    src: Instance,
    /// The destination's array, and what it is to hold.
    to: Array,
    expected: Content,
    dir: PathBuf,
    stop: Stop,
}

impl Scene {
    fn new(problem: &Conversion, dir: &Path, stop: Stop) -> Result<Self, Error> {
        let [from, to] = problem.arrays()?;
        let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
        let dir = dir.to_owned();
        write_input(&dir.join("in.raw"), &Content::of(&from)?, &stop)?;
        let machine = Machine::builder().disk(&dir).open()?;
        let options = FileOptions { raw: Some(from), ..FileOptions::default() };
        let src = machine.open_file(dir.join("in.raw"), &options)?;
        Ok(Scene { machine, src, to, expected, dir, stop })
    }

    fn target(&self) -> Result<Instance, Error> {
        let path = self.dir.join("out.raw");
        Ok(self.machine.create_file(path, self.to.clone(), &FileOptions::default())?)
    }

    fn plan(&self) -> Result<Planned, Error> {
        let planning = CopyOptions::default().planning;
        Ok(self.machine.plan(&self.src, &self.target()?, &planning)?)
    }

    fn convert(&self) -> Result<(), Error> {
        let dst = self.target()?;
        self.stop.finish(&self.machine.copy(&self.src, &dst, &CopyOptions::default())?)
    }

    /// Deletes what a run has written and waits for the disk, so that the next does not pay for
    /// what is still on its way.
    fn settle(&self) -> Result<(), Error> {
        for name in ["out.raw", "raw.raw"] {
            match fs::remove_file(self.dir.join(name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io("deleting an output"))?,
            }
        }
        let dir = File::open(&self.dir).map_err(Error::io("opening the directory"))?;
        syncfs(dir).map_err(Error::io("waiting for the disk"))
    }

    /// Compares every byte of the output, which is read back in pieces.
    fn is_converted(&self) -> Result<bool, Error> {
        let file = File::open(self.dir.join("out.raw")).map_err(Error::io("opening the result"))?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        self.expected.is_in(&mut reader, &self.stop)
    }
}

/// Writes the file and takes it out of the page cache, so that it is read from the disk.
fn write_input(path: &Path, content: &Content, stop: &Stop) -> Result<(), Error> {
    let fail = || Error::io("writing the input");
    let file = File::create(path).map_err(fail())?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, &file);
    content.write_to(&mut writer, stop)?;
    drop(writer);
    file.sync_all().map_err(fail())?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::io("dropping the input's pages"))
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Conversions = problems::read("disk", PROBLEMS)?;
    let mut bench = Bench::new("disk", settings)?;
    for problem in &problems.case {
        if bench.wants(&problem.name) {
            // One a case, so that a case never needs the space of two.
            let dir = tempfile::tempdir_in(&settings.files);
            let dir = dir.map_err(Error::io("making a directory for files"))?;
            run_case(&mut bench, problem, dir.path())?;
        }
    }
    bench.finish()
}

fn run_case(bench: &mut Bench, problem: &Conversion, dir: &Path) -> Result<(), Error> {
    bench.say(format_args!("{}: writing the input", problem.name));
    let scene = Scene::new(problem, dir, bench.stop())?;
    let planned = scene.plan()?;
    bench.line(planned.explain())?;
    bench.say("converting once, and verifying every byte");
    let first = First::of(&scene)?;
    let verified = scene.is_converted()?;
    let operations = Operations::of(&planned.plan, &scene)?;
    bench.say("timing");
    let (name, bytes) = (problem.name.clone(), scene.src.payload_bytes());
    let case = Case { name, bytes, threads: 2, runs: problem.runs, calls: 1 };
    time(bench, (&case, verified), &scene, &operations)?;
    bench.figure("predicted_seconds", planned.plan.seconds.unwrap_or(0.0))?;
    operations.figures(bench)?;
    first.figures(bench)
}

/// Times us beside the raw program, where the kernel lets it be.
fn time(
    bench: &mut Bench,
    (case, verified): (&Case, bool),
    scene: &Scene,
    operations: &Operations,
) -> Result<(), Error> {
    let mut ours = || scene.convert();
    let ours = Contender { name: "isometry", run: &mut ours };
    let raw = match Raw::new(scene, operations) {
        Ok(raw) => RefCell::new(raw),
        Err(why) => {
            RAW.iter().for_each(|name| bench.absent(name, &why));
            return bench.time((case, verified), &mut [ours], &mut || scene.settle());
        }
    };
    let sequential = operations.sequential(scene.src.payload_bytes());
    let mut same = || raw.borrow_mut().run(operations, &scene.stop);
    let mut whole = || raw.borrow_mut().run(&sequential, &scene.stop);
    let mut contenders = [
        ours,
        Contender { name: RAW[0], run: &mut same },
        Contender { name: RAW[1], run: &mut whole },
    ];
    bench.time((case, verified), &mut contenders, &mut || scene.settle())
}

/// What our first run used.
struct First {
    peak_bytes: Option<u64>,
    /// Bytes read from and written to the disk.
    disk_bytes: Option<[u64; 2]>,
}

impl First {
    fn of(scene: &Scene) -> Result<Self, Error> {
        let counts = process::reset_peak();
        let before = process::disk_bytes();
        scene.convert()?;
        let moved = before.zip(process::disk_bytes());
        let disk_bytes = moved.map(|(b, a)| [a[0] - b[0], a[1] - b[1]]);
        Ok(First { peak_bytes: process::peak_bytes().filter(|_| counts), disk_bytes })
    }

    fn figures(&self, bench: &mut Bench) -> Result<(), Error> {
        if let Some(peak) = self.peak_bytes {
            bench.figure("peak_rss_bytes", peak as f64)?;
        }
        let Some([read, written]) = self.disk_bytes else { return Ok(()) };
        bench.figure("disk_read_bytes", read as f64)?;
        bench.figure("disk_written_bytes", written as f64)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
