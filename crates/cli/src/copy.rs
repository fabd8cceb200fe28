//! `iso copy`: by this process, or by a node that is asked.

use crate::args::{Copy, Model, extents};
use crate::end::{self, End};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::{Terminal, Watch};
use crate::topo::{rate, size};
use crate::trace_file::{self, TraceFile};
use crate::{ask, output, plan, progress};
use isometry::files::Format;
use isometry::{Array, CopyOptions, Error, Event, FileOptions, Instance, Machine, Planned};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A copy that is done.
pub(crate) struct Copied<'a> {
    machine: &'a Machine,
    planned: Planned,
    event: Event,
    bytes: u64,
    took: Duration,
    verified: bool,
}

/// Copies, and says on which path and how fast.
pub(crate) fn run(args: &Copy) -> Result<(), Failure> {
    if args.asking.socket.is_some()
        || [&args.src, &args.dst].into_iter().any(|end| end::names_node(end))
    {
        return ask::copy(args);
    }
    let ends = [&args.src, &args.dst].map(|path| End::of(path).path);
    trace_file::check_apart(args.asking.trace.as_deref(), ends, "the source or the destination")?;
    let interrupt = Interrupt::listen()?;
    let builder = Machine::builder().trace(args.asking.trace.is_some());
    let builder = builder.largest_buffer(args.th.unwrap_or(0));
    let machine = builder.open().map_err(failure)?;
    // Before the copy: what it took is lost where its trace can't be written.
    let trace = args.asking.trace.as_deref().map(TraceFile::open).transpose()?;
    let ended = copied(args, &machine, &Terminal::new(&interrupt)?);
    let traced = trace.map_or(Ok(()), |trace| {
        trace.write_whole(&machine.trace_json().unwrap_or_default().to_string())
    });
    let copied = ended?;
    traced?;
    match args.asking.json {
        true => output::json(&copied.to_json()),
        false => output::text(&copied.summary()),
    }
}

/// Copies as `args` say, for `watch`.
pub(crate) fn copied<'a>(
    args: &Copy,
    machine: &'a Machine,
    watch: &dyn Watch,
) -> Result<Copied<'a>, Failure> {
    let src = source(args, machine)?;
    let dst = destination(args, machine, &src)?;
    let planning = plan::options(args.algorithm, Model::Default, args.th);
    let planned = machine.plan(&src, &dst, &planning).map_err(failure)?;
    let (priority, sync) = (args.priority, args.sync);
    let options = CopyOptions { priority, planning, sync, ..CopyOptions::default() };
    watch.check()?;
    watch.planned(&path_of(&planned));
    let started = Instant::now();
    let event = machine.copy(&src, &dst, &options).map_err(failure)?;
    progress::wait(&event, watch)?.map_err(failure)?;
    let took = started.elapsed();
    drop(dst);
    if args.verify {
        let is_interrupted = || watch.check().is_err();
        let same = machine.verify_unless(&src, &written(args, machine, &src)?, &is_interrupted);
        watch.check()?;
        same.map_err(failure)?;
    }
    let bytes = src.payload_bytes();
    Ok(Copied { machine, planned, event, bytes, took, verified: args.verify })
}

fn source(args: &Copy, machine: &Machine) -> Result<Instance, Failure> {
    let mut options = FileOptions::default();
    match (&args.dims, &args.dtype) {
        (Some(dims), Some(dtype)) => options.raw = Some(raw(dims, dtype)?),
        (dims, None) => options.dims = dims.as_deref().map(layout::dim_names),
        (None, Some(_)) => return Err(Failure::usage("--dtype is for raw files, with --dims")),
    }
    End::of(&args.src).open(machine, options).map_err(failure)
}

fn destination(args: &Copy, machine: &Machine, src: &Instance) -> Result<Instance, Failure> {
    let (space, fields) = (src.space().clone(), src.fields().clone());
    let mut array = Array { space, fields, layout: src.layout() };
    if let Some(layout) = &args.layout {
        array = array.laid_out(layout).map_err(failure)?;
    }
    End::of(&args.dst).create(machine, array).map_err(failure)
}

/// The destination as a reader finds it.
fn written(args: &Copy, machine: &Machine, src: &Instance) -> Result<Instance, Failure> {
    let mut array = Array::new(src.space().clone(), src.fields().clone());
    array.layout = src.layout();
    if let Some(layout) = &args.layout {
        array = array.laid_out(layout).map_err(failure)?;
    }
    // The file's shape is in the order of its layout, slowest first.
    let dims = array.layout.components().iter().rev().filter_map(|c| c.dim());
    let names = dims.map(|dim| array.space.dims()[dim].name.to_string()).collect();
    let end = End::of(&args.dst);
    let raw = (Format::of_path(end.path) == Format::Raw).then_some(array);
    let options = FileOptions { dims: Some(names), raw, ..FileOptions::default() };
    end.open(machine, options).map_err(failure)
}

fn raw(dims: &str, dtype: &str) -> Result<Array, Failure> {
    let extents = extents(dims).map_err(Failure::usage)?.0;
    let dims: Vec<_> = extents.iter().map(|(name, extent)| (&**name, *extent)).collect();
    Array::of(&dims, dtype).map_err(Failure::usage)
}

/// What a person did wrong is wrong usage; what the machine could not do is a failure.
pub(crate) fn failure(error: Error) -> Failure {
    use isometry::ErrorKind::{Argument, Layout};
    match error.kind() {
        Argument | Layout => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

fn path_of(planned: &Planned) -> String {
    let plan = &planned.plan;
    let names = plan.memories.iter().map(|&m| planned.topology.short_name(m));
    let names: Vec<_> = names.collect();
    let predicted = rate(plan.throughput);
    format!("{} ({:?} algorithm, {predicted} predicted)", names.join(" → "), plan.algorithm)
}

impl Copied<'_> {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// For people.
    pub(crate) fn summary(&self) -> String {
        let (bytes, seconds) = (size(self.bytes), self.took.as_secs_f64());
        let verified = if self.verified { ", verified" } else { "" };
        format!("{bytes} in {seconds:.2} s, {}{verified}", rate(self.rate()))
    }

    pub(crate) fn to_json(&self) -> Value {
        let topology = self.machine.topology();
        let reports = self.event.report();
        let reports = reports.iter().map(|report| isometry::report_json(report, &topology));
        json!({
            "bytes": self.bytes,
            "seconds": self.took.as_secs_f64(),
            "throughput": self.rate(),
            "verified": self.verified,
            "plan": self.planned.to_json(),
            "report": reports.collect::<Vec<_>>(),
        })
    }
}
