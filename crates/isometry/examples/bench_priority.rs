//! An urgent copy under a load of low-priority ones, beside the same copy alone.
//!
//! The ratio of `alone` to ours is what the load costs; the aim is 1/1.3 = 0.77 or more. The load
//! shares the host's memory bus and the disk, so that the figure on a clock is an upper bound of
//! what the scheduler does.

use bench::{Case, Group};
use isometry::{Array, CopyOptions, Event, FileOptions, Instance, Machine};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

const RUNS: usize = 9;
/// Low-priority copies at once.
const LOAD: usize = 4;

struct Job {
    src: Instance,
    dst: Instance,
}

impl Job {
    /// A transpose of `side`² floats inside host memory.
    fn host(machine: &Machine, side: u64) -> Result<Self, isometry::Error> {
        let array = Array::of(&[("y", side), ("x", side)], "<f4")?;
        let src = machine.empty(array.clone(), "sys")?;
        let bytes = src.host_span()?.len_bytes();
        src.fill(&(0..bytes).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<_>>())?;
        let dst = machine.empty(array.laid_out("xy")?, "sys")?;
        // Touched before it is timed.
        dst.fill(&vec![2; bytes])?;
        Ok(Job { src, dst })
    }

    /// The same from a file.
    fn disk(machine: &Machine, dir: &Path, side: u64) -> Result<Self, isometry::Error> {
        let host = Job::host(machine, side)?;
        let path = dir.join(format!("load-{side}-{:p}.npy", &raw const host));
        let file = machine.create_file(&path, host.src.array(), &FileOptions::default())?;
        machine.copy(&host.src, &file, &CopyOptions::default())?.wait(None)?;
        let dims = Some(vec!["y".to_owned(), "x".to_owned()]);
        let src = machine.open_file(&path, &FileOptions { dims, ..FileOptions::default() })?;
        Ok(Job { src, dst: host.dst })
    }

    fn start(&self, machine: &Machine, priority: i32) -> Result<Event, isometry::Error> {
        machine.copy(&self.src, &self.dst, &CopyOptions::with_priority(priority))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut group = Group::from_args("priority")?;
    let dir = tempfile::tempdir_in(".")?;
    for (name, side, from_disk) in [
        ("host transpose 64 MiB under load", 4096, false),
        ("disk to host transpose 64 MiB under load", 4096, true),
        ("host transpose 4 MiB under load", 1024, false),
    ] {
        if group.wants(name) {
            run(&mut group, (name, side), from_disk, dir.path())?;
        }
    }
    let verified = group.finish()?;
    drop(dir);
    std::process::exit(i32::from(!verified));
}

fn run(
    group: &mut Group,
    (name, side): (&str, u64),
    from_disk: bool,
    dir: &Path,
) -> Result<(), Box<dyn Error>> {
    let machine = Machine::builder().disk(dir).open()?;
    let job =
        |side| if from_disk { Job::disk(&machine, dir, side) } else { Job::host(&machine, side) };
    let urgent = job(side)?;
    let load = (0..LOAD).map(|_| job(2048)).collect::<Result<Vec<_>, _>>()?;
    let (mut loaded, mut alone) = (Vec::new(), Vec::new());
    urgent.start(&machine, 9)?.wait(None)?;
    for _ in 0..RUNS {
        alone.push(timed(&machine, &urgent)?);
        let mut low: Vec<_> =
            load.iter().map(|j| j.start(&machine, 0)).collect::<Result<_, _>>()?;
        // More of the load than the urgent copy outlasts.
        let behind = CopyOptions { after: low.clone(), ..CopyOptions::default() };
        for job in &load {
            low.push(machine.copy(&job.src, &job.dst, &behind)?);
        }
        loaded.push(timed(&machine, &urgent)?);
        low.iter().try_for_each(|event| event.wait(None))?;
    }
    let expected = urgent.src.payload_bytes();
    let case = Case { name: name.to_owned(), bytes: expected, threads: 1, runs: RUNS };
    group.record(&case, is_turned(&urgent, side)?, &["isometry", "alone"], &[loaded, alone]);
    Ok(())
}

/// Whether every entry is where it belongs.
fn is_turned(job: &Job, side: u64) -> Result<bool, isometry::Error> {
    let side = usize::try_from(side).unwrap_or(0);
    let turned = job.dst.to_vec()?;
    let value = |i: usize| ((i * 7) >> 3) as u8;
    Ok((0..side * side).all(|i| {
        let (x, y) = (i / side, i % side);
        (0..4).all(|b| turned[i * 4 + b] == value((y * side + x) * 4 + b))
    }))
}

fn timed(machine: &Machine, job: &Job) -> Result<f64, isometry::Error> {
    let start = Instant::now();
    job.start(machine, 9)?.wait(None)?;
    Ok(start.elapsed().as_secs_f64())
}
