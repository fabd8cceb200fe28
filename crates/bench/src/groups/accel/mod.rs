//! Copies to, from and inside the memory of an accelerator.
//!
//! Rows and whole runs go beside `clEnqueue…` of the same bytes, and conversions inside the device beside
//! `clEnqueueCopyBuffer` of as many. A file that becomes device memory in
//! another layout goes beside its hops, each for itself and all at once, on other buffers, so that each
//! has what the others leave it: the slowest is what a pipeline can reach. And beside the same hops one
//! after the other, as programs do by hand.
//!
//! The aims: `raw` takes at least 0.97 of our time for whole runs, `copy` at least 0.8 for conversions of 4
//! and 8 bytes, `hops at once` at least 0.9.

use crate::content::{Content, Numbers};
use crate::native::{RawDevice, Rows, Way};
use crate::problems::{self, Conversion};
use crate::report::{Bench, Case, Contender};
use crate::settings::Stop;
use crate::{Error, Report, Settings};
use channel_opencl::{DeviceInfo, DeviceKind};
use isometry::{Accelerators, Array, CopyOptions, Cuda, FileOptions, Instance, Machine};
use rustix::fs::{Advice, fadvise};
use serde::Deserialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const PROBLEMS: &str = include_str!("../../../../bench/problems/accel.toml");

/// What a device's memory is called.
const FBM: &str = "fbm";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    bytes: u64,
    rows: Vec<u64>,
    runs: usize,
    inside: Vec<Conversion>,
    path: Vec<Conversion>,
}

/// A device, and a machine whose first one it is.
struct Device {
    machine: Machine,
    info: DeviceInfo,
    stop: Stop,
}

impl Device {
    /// A graphics processor where there is one, else whatever is a device of OpenCL.
    fn open(stop: Stop, disk: Option<&Path>) -> Result<Device, Error> {
        let found = channel_opencl::find().map_err(Error::part("looking for devices"))?;
        let is_other = |info: &&DeviceInfo| info.kind != DeviceKind::Cpu;
        let infos: Vec<_> = found.iter().map(|found| found.info()).collect();
        let (info, which) = match infos.iter().copied().find(is_other) {
            Some(info) => (info.clone(), Accelerators::Gpu),
            None => (infos[0].clone(), Accelerators::All),
        };
        // What it goes beside is OpenCL's.
        let builder = Machine::builder().accelerators(which).cuda(Cuda::None);
        let machine = disk.into_iter().fold(builder, isometry::MachineBuilder::disk).open()?;
        Ok(Device { machine, info, stop })
    }

    fn copy(&self, src: &Instance, dst: &Instance) -> Result<(), Error> {
        self.stop.finish(&self.machine.copy(src, dst, &CopyOptions::default())?)
    }

    fn host(&self, array: &Array) -> Result<Instance, Error> {
        let host = self.machine.empty(array.clone(), "sys")?;
        // So that no copy pays for the first touch of a page.
        host.fill(&vec![5; host.host_span()?.len_bytes()])?;
        Ok(host)
    }

    fn there(&self, array: &Array) -> Result<Instance, Error> {
        Ok(self.machine.empty(array.clone(), FBM)?)
    }

    /// Whether what is on the device is `expected`.
    fn holds(&self, there: &Instance, expected: &Content) -> Result<bool, Error> {
        let back = self.host(&there.array())?;
        self.copy(there, &back)?;
        expected.is_in(&mut &*back.to_vec()?, &self.stop)
    }
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("accel", PROBLEMS)?;
    let mut bench = Bench::new("accel", settings)?;
    let device = Device::open(bench.stop(), None)?;
    let DeviceInfo { name, platform, kind, .. } = &device.info;
    let what = if *kind == DeviceKind::Cpu { ", which is this processor: emulated" } else { "" };
    bench.sum_up(format!("{name} by {platform}{what}"))?;
    for &row in &problems.rows {
        for way in [Way::Write, Way::Read] {
            let name = match way {
                Way::Write => format!("host to device, rows of {row} B"),
                Way::Read => format!("device to host, rows of {row} B"),
            };
            if bench.wants(&name) {
                run_rows(&mut bench, &device, (name, way), (row, &problems))?;
            }
        }
    }
    for inside in &problems.inside {
        if bench.wants(&inside.name) {
            run_inside(&mut bench, &device, inside)?;
        }
    }
    drop(device);
    for path in &problems.path {
        if bench.wants(&path.name) {
            let dir = tempfile::tempdir_in(&settings.files);
            let dir = dir.map_err(Error::io("making a directory for files"))?;
            run_path(&mut bench, path, dir.path())?;
        }
    }
    bench.finish()
}

fn run_rows(
    bench: &mut Bench,
    device: &Device,
    (name, way): (String, Way),
    (row, problems): (u64, &Problems),
) -> Result<(), Error> {
    let count = problems.bytes / row;
    let pitch = if count == 1 { row } else { 2 * row };
    let wide = Array::of(&[("y", count), ("x", pitch)], "|u1")?;
    let narrow = Array::of(&[("y", count), ("x", row)], "|u1")?;
    let mut numbers = Numbers::of(&wide)?;
    numbers.dims[1].truncate(usize::try_from(row).unwrap_or(usize::MAX));
    let expected = numbers.laid_out(&narrow.layout)?;
    let whole = device.host(&wide)?;
    whole.fill(&Content::of(&wide)?.to_vec(&device.stop)?)?;
    let (host, there) = (whole.select(&[("x", 0..row.cast_signed())])?, device.there(&narrow)?);
    device.copy(&host, &there)?;
    let bytes = usize::try_from(problems.bytes).map_err(Error::part("counting bytes"))?;
    let raw = RawDevice::open(&device.info.name, bytes)?;
    let mut theirs = whole.to_vec()?;
    let [count, row, pitch] = [count, row, pitch].map(|n| n as usize);
    let rows = Rows { count, bytes: row, pitch };
    raw.copy(Way::Write, &mut theirs, rows)?;
    let mut ours = || match way {
        Way::Write => device.copy(&host, &there),
        Way::Read => device.copy(&there, &host),
    };
    let mut by_hand = || raw.copy(way, &mut theirs, rows);
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "raw", run: &mut by_hand },
    ];
    let case = Case { name, bytes: problems.bytes, threads: 1, runs: problems.runs, calls: 1 };
    let original = Content::of(&wide)?;
    bench.run(&case, &mut contenders, &mut || {
        Ok(device.holds(&there, &expected)?
            && original.is_in(&mut &*whole.to_vec()?, &device.stop)?)
    })
}

fn run_inside(bench: &mut Bench, device: &Device, problem: &Conversion) -> Result<(), Error> {
    let [from, to] = problem.arrays()?;
    let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
    let (src, dst) = (device.there(&from)?, device.there(&to)?);
    let host = device.host(&from)?;
    let mut content = Content::of(&from)?.to_vec(&device.stop)?;
    host.fill(&content)?;
    device.copy(&host, &src)?;
    drop(host);
    let planned = device.machine.plan(&src, &dst, &CopyOptions::default().planning)?;
    bench.line(planned.explain())?;
    let bytes = content.len();
    let raw = RawDevice::open(&device.info.name, bytes)?;
    raw.copy(Way::Write, &mut content, Rows { count: 1, bytes, pitch: bytes })?;
    drop(content);
    let mut ours = || device.copy(&src, &dst);
    let mut copy = || raw.copy_inside();
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "copy", run: &mut copy },
    ];
    let (name, bytes) = (problem.name.clone(), src.payload_bytes());
    let case = Case { name, bytes, threads: 1, runs: problem.runs, calls: 1 };
    bench.run(&case, &mut contenders, &mut || device.holds(&dst, &expected))
}

fn run_path(bench: &mut Bench, problem: &Conversion, dir: &Path) -> Result<(), Error> {
    let [from, to] = problem.arrays()?;
    let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
    bench.say(format_args!("{}: writing the input", problem.name));
    let input = dir.join("in.raw");
    let file = File::create(&input).map_err(Error::io("writing the input"))?;
    let content = Content::of(&from)?.to_vec(&bench.stop())?;
    (&file).write_all(&content).map_err(Error::io("writing the input"))?;
    drop(content);
    file.sync_all().map_err(Error::io("writing the input"))?;
    let device = Device::open(bench.stop(), Some(dir))?;
    let options = FileOptions { raw: Some(from.clone()), ..FileOptions::default() };
    let src = device.machine.open_file(&input, &options)?;
    let there = device.there(&to)?;
    let planned = device.machine.plan(&src, &there, &CopyOptions::default().planning)?;
    bench.line(planned.explain())?;
    // What the hops move when each is for itself, and when one follows the other.
    let (read, kept, converted) = (device.host(&from)?, device.host(&from)?, device.host(&to)?);
    let (own, turned, other) = (device.host(&to)?, device.host(&to)?, device.there(&to)?);
    let mut ours = || device.copy(&src, &there);
    let mut at_once = || {
        let start = |src, dst| device.machine.copy(src, dst, &CopyOptions::default());
        let hops = [start(&src, &read)?, start(&kept, &converted)?, start(&own, &other)?];
        hops.iter().try_for_each(|hop| device.stop.finish(hop))
    };
    let mut in_turn = || {
        device.copy(&src, &read)?;
        device.copy(&read, &turned)?;
        device.copy(&turned, &other)
    };
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "hops at once", run: &mut at_once },
        Contender { name: "one after the other", run: &mut in_turn },
    ];
    let (name, bytes) = (problem.name.clone(), src.payload_bytes());
    let case = Case { name, bytes, threads: 2, runs: problem.runs, calls: 1 };
    (contenders[0].run)()?;
    let verified = device.holds(&there, &expected)?;
    bench.time((&case, verified), &mut contenders, &mut || {
        fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::io("dropping the input's pages"))
    })?;
    bench.figure("predicted_seconds", planned.plan.seconds.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_are_well_formed() {
        let problems: Problems = problems::read("accel", PROBLEMS).unwrap();
        assert!(problems.rows.iter().all(|row| problems.bytes.is_multiple_of(*row)));
        let conversions = problems.inside.iter().chain(&problems.path);
        conversions.for_each(|conversion| _ = conversion.arrays().unwrap());
    }
}
