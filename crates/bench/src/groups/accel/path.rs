//! A file that becomes device memory in another layout, beside the hops of its plan.

use super::api::{Api, Device, FBM, memories, path};
use crate::Error;
use crate::content::{Content, Numbers};
use crate::problems::Conversion;
use crate::report::{Bench, Case, Contender};
use isometry::model::{Algorithm, ChannelKind, Plan};
use isometry::planner::Choice;
use isometry::{Array, CopyOptions, Event, FileOptions, Instance, Planned};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Algorithms that take few hops.
const ONLY: [Choice; 2] = [Choice::Only(Algorithm::Simple), Choice::Only(Algorithm::Spdl)];

/// A copy that is made for itself.
#[derive(Clone)]
struct Single {
    src: Instance,
    dst: Instance,
    options: CopyOptions,
}

impl Single {
    fn new(src: &Instance, dst: &Instance) -> Single {
        Single { src: src.clone(), dst: dst.clone(), options: CopyOptions::default() }
    }

    /// One that takes a single hop by a channel of this kind, where some algorithm plans so; else as it is planned,
    /// which is over hops that are faster.
    fn direct(
        device: &Device,
        (src, dst): (&Instance, &Instance),
        kind: ChannelKind,
    ) -> Result<Single, Error> {
        let planned = Single::new(src, dst);
        for choice in [planned.options.planning.choice, ONLY[0], ONLY[1]] {
            let mut copy = planned.clone();
            copy.options.planning.choice = choice;
            let plan = copy.planned(device)?.plan;
            if plan.hops.len() == 1 && plan.hops[0].kind == kind {
                return Ok(copy);
            }
        }
        Ok(planned)
    }

    fn planned(&self, device: &Device) -> Result<Planned, Error> {
        Ok(device.machine.plan(&self.src, &self.dst, &self.options.planning)?)
    }

    fn start(&self, device: &Device) -> Result<Event, Error> {
        Ok(device.machine.copy(&self.src, &self.dst, &self.options)?)
    }
}

/// Times the whole path beside its hops at once, and beside a read, a conversion and an upload.
pub(super) fn run(
    bench: &mut Bench,
    api: &Api,
    (name, problem): (String, &Conversion),
) -> Result<(), Error> {
    let dir = tempfile::tempdir_in(&bench.settings().files);
    let dir = dir.map_err(Error::io("making a directory for files"))?;
    let [from, to] = problem.arrays()?;
    let expected = Numbers::of(&from)?.laid_out(&to.layout)?;
    let input = dir.path().join("in.raw");
    bench.say(format_args!("{name}: writing the input"));
    let file = write(bench, &input, &from)?;
    let device = api.open(bench.settings(), Some(dir.path()))?;
    let options = FileOptions { raw: Some(from.clone()), ..FileOptions::default() };
    let src = device.machine.open_file(&input, &options)?;
    let there = device.empty(&to, FBM[0])?;
    let planned = device.machine.plan(&src, &there, &CopyOptions::default().planning)?;
    bench.line(planned.explain())?;
    let hops = hops(&device, &planned, (&src, &from))?;
    let by_hand = by_hand(&device, &src, [&from, &to])?;
    device.copy(&src, &there)?;
    let verified = expected.is_in(&mut &*device.bytes(&there)?, &device.stop)?;
    let mut contenders = [
        Contender { name: "isometry", run: &mut || device.copy(&src, &there) },
        Contender { name: "hops at once", run: &mut || at_once(&device, &hops) },
        Contender { name: "one after the other", run: &mut || in_turn(&device, &by_hand) },
    ];
    let case = Case { name, bytes: src.payload_bytes(), threads: 2, runs: problem.runs, calls: 1 };
    bench.time((&case, verified), &mut contenders, &mut || {
        fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::io("dropping the input's pages"))
    })?;
    bench.figure("predicted_seconds", planned.plan.seconds.unwrap_or(0.0))?;
    bench.note("path", &described(&device, &planned, &hops)?)
}

/// Writes what `array` holds to a new file, and to the disk.
fn write(bench: &Bench, path: &Path, array: &Array) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io("writing the input"))?;
    let content = Content::of(array)?.to_vec(&bench.stop())?;
    (&file).write_all(&content).map_err(Error::io("writing the input"))?;
    file.sync_all().map_err(Error::io("writing the input"))?;
    Ok(file)
}

/// Each hop of the plan for itself, with buffers of its own that hold everything; but all read one file.
fn hops(
    device: &Device,
    planned: &Planned,
    (file, array): (&Instance, &Array),
) -> Result<Vec<Single>, Error> {
    let called = memories(planned);
    let side = |at: usize| {
        let layout = planned.plan.layouts[at].clone();
        device.empty(&Array { layout, ..array.clone() }, &called[at])
    };
    let hop = |n| {
        let src = if n == 0 { file.clone() } else { side(n)? };
        Single::direct(device, (&src, &side(n + 1)?), planned.plan.hops[n].kind)
    };
    (0..planned.plan.hops.len()).map(hop).collect()
}

/// The path, and the channels of the hops for themselves, where these are others.
fn described(device: &Device, planned: &Planned, hops: &[Single]) -> Result<String, Error> {
    let kinds = |plan: &Plan| plan.hops.iter().map(|hop| hop.kind.name()).collect::<Vec<_>>();
    let together = kinds(&planned.plan);
    let alone = hops.iter().map(|hop| Ok(kinds(&hop.planned(device)?.plan)));
    let alone = alone.collect::<Result<Vec<_>, Error>>()?.concat();
    match alone == together {
        true => Ok(path(planned)),
        false => Ok(format!("{}; for themselves by {}", path(planned), alone.join(", "))),
    }
}

/// What programs do by hand: all is read, then turned in the host's memory, then written to the device.
fn by_hand(
    device: &Device,
    file: &Instance,
    [from, to]: [&Array; 2],
) -> Result<Vec<Single>, Error> {
    let (read, turned) = (device.empty(from, "sys")?, device.empty(to, "sys")?);
    let there = device.empty(to, FBM[0])?;
    let steps = [(file, &read), (&read, &turned), (&turned, &there)];
    Ok(steps.into_iter().map(|(src, dst)| Single::new(src, dst)).collect())
}

fn at_once(device: &Device, copies: &[Single]) -> Result<(), Error> {
    let started = copies.iter().map(|copy| copy.start(device));
    let events: Vec<Event> = started.collect::<Result<_, _>>()?;
    events.iter().try_for_each(|event| device.stop.finish(event))
}

fn in_turn(device: &Device, copies: &[Single]) -> Result<(), Error> {
    copies.iter().try_for_each(|copy| device.stop.finish(&copy.start(device)?))
}
