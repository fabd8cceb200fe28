//! `iso sim run`.

use crate::args::{Baseline, Model, Run};
use crate::failure::Failure;
use crate::follow::Follower;
use crate::{output, plan, summary, topo, trace_file};
use isometry::plan_json;
use model::{MemoryId, NodeId, Topology};
use serde_json::{Value, json};
use sim::{
    Case, CaseReport, CopyReport, CopySpec, PlanCount, READY_MADE_WORKLOADS, Setup, SimulateError,
    Workload,
};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Instant;

/// The most bytes that a workload file may have: a trace lists a million copies, and what became of
/// them.
const MAX_WORKLOAD_BYTES: u64 = 512 << 20;

/// Runs every case, once more with the baseline where one is asked for, and prints what they came
/// to.
pub(crate) fn run(args: &Run) -> Result<(), Failure> {
    let topology = cluster_of(args)?;
    let mut workload = workload_of(args, &topology)?;
    if let Some(filter) = &args.filter {
        workload.cases.retain(|case| filter.is_match(&case.name));
    }
    if workload.cases.is_empty() {
        return Err(Failure::usage("no case of the workload has such a name"));
    }
    if workload.cases.iter().all(|case| case.copies.is_empty()) {
        let why = "the cluster has not the nodes or the memories that this workload copies between";
        return Err(Failure::usage(why));
    }
    let setup = setup(args)?;
    let trace = args.trace.as_deref();
    trace_file::check_apart(trace, [&args.cluster, &args.workload], "the cluster or the workload")?;
    let play = Play { topology: &topology, setup, summary: args.summary };
    let mut follower = Follower::new(&topology, trace, play.copies(&workload.cases))?;
    let started = Instant::now();
    let cases = workload.cases.iter();
    let played: Result<Vec<Played>, Failure> =
        cases.map(|case| play.both(case, &mut follower)).collect();
    follower.clear();
    let played = played?;
    tell_speed(&played, started.elapsed().as_secs_f64());
    match args.json {
        true => output::json(&play.to_json(&workload.name, &played))?,
        false if args.summary => output::text(&aligned(&summary::table(setup.baseline, &played)))?,
        false => output::text(&play.table(&played))?,
    }
    follower.finish()
}

fn cluster_of(args: &Run) -> Result<Topology, Failure> {
    let topology = topo::read(Some(&args.cluster), false)?;
    let Some(nodes) = args.nodes else { return Ok(topology) };
    let several = || Failure::usage("--nodes: the cluster has several classes of nodes");
    cluster::with_nodes(topology, nodes.get()).ok_or_else(several)
}

/// The workload of a file, or a ready-made one; a file of that name first.
fn workload_of(args: &Run, topology: &Topology) -> Result<Workload, Failure> {
    let path = &args.workload;
    match (topo::text_of(path, MAX_WORKLOAD_BYTES), args.transfers) {
        (Err(e), transfers) if e.kind() == io::ErrorKind::NotFound && topo::is_name(path) => {
            ready_made(path, topology, transfers)
        }
        (Err(e), _) => Err(topo::unreadable(path, &e)),
        (Ok(_), Some(_)) => Err(not_exchange()),
        (Ok(text), None) => {
            let is_trace = text.trim_start().starts_with('{');
            let read = if is_trace { Workload::of_trace } else { Workload::parse };
            read(&text, topology).map_err(|e| topo::unreadable(path, &e))
        }
    }
}

fn ready_made(
    name: &Path,
    topology: &Topology,
    transfers: Option<u32>,
) -> Result<Workload, Failure> {
    let text = name.to_str().unwrap_or_default();
    let made = Workload::ready_made(text, topology);
    let made = made.map_err(|e| Failure::usage(format_args!("`{text}`: {e}")))?;
    let found = made.ok_or_else(|| unknown(name))?;
    match transfers {
        None => Ok(found),
        Some(transfers) if text == "exchange" => Ok(Workload::exchange(topology, transfers)),
        Some(_) => Err(not_exchange()),
    }
}

fn not_exchange() -> Failure {
    Failure::usage("--transfers is for the ready-made workload `exchange`")
}

fn unknown(name: &Path) -> Failure {
    let (known, name) = (READY_MADE_WORKLOADS.join(", "), name.display());
    Failure::usage(format_args!("no file and no ready-made workload `{name}`; there are {known}"))
}

fn setup(args: &Run) -> Result<Setup, Failure> {
    if args.dma_threads.is_some() && args.baseline != Some(Baseline::StoreAndForward) {
        return Err(Failure::usage("--dma-threads is for --baseline store-and-forward"));
    }
    let planning = &args.planning;
    let choice = plan::options(planning.algorithm, Model::Default, None).choice;
    let baseline = args.baseline.map(|baseline| match baseline {
        Baseline::StoreAndForward => sim::Baseline::StoreAndForward,
        Baseline::NoPipeline => sim::Baseline::NoPipeline,
        Baseline::NoPath => sim::Baseline::NoPath,
        Baseline::DeviceConverts => sim::Baseline::DeviceConverts,
        Baseline::OneInFlight => sim::Baseline::OneInFlight,
    });
    let dma_threads = args.dma_threads.map_or(1, std::num::NonZeroU32::get);
    let (load, paths) = (planning.present_load, planning.paths.get());
    Ok(Setup { choice, baseline, dma_threads, load, paths })
}

/// How fast the simulator is, which is no part of what it says.
fn tell_speed(played: &[Played<'_>], seconds: f64) {
    let reports = played.iter().flat_map(|case| [Some(&case.ours), case.theirs.as_ref()]);
    let events: u64 = reports.flatten().map(|report| report.tally.events).sum();
    let rate = events as f64 / seconds;
    let peak = peak_memory().map_or(String::new(), |peak| format!(", {peak} of memory"));
    output::aside(format_args!("{events} events in {seconds:.2} s, {rate:.0} a second{peak}"));
}

/// The most memory that this process has had, as the system counts it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(topo::size(kibibytes << 10))
}

/// A case that has run, by us and by the baseline.
pub(crate) struct Played<'a> {
    pub(crate) case: &'a Case,
    pub(crate) ours: CaseReport,
    pub(crate) theirs: Option<CaseReport>,
}

/// Runs cases, and writes down what they came to.
struct Play<'a> {
    topology: &'a Topology,
    setup: Setup,
    summary: bool,
}

impl Play<'_> {
    /// How many copies are run in all.
    fn copies(&self, cases: &[Case]) -> u64 {
        let runs = if self.setup.baseline.is_some() { 2 } else { 1 };
        runs * cases.iter().map(copies).sum::<u64>()
    }

    fn both<'c>(&self, case: &'c Case, follower: &mut Follower<'c>) -> Result<Played<'c>, Failure> {
        let ours = self.play(case, &Setup { baseline: None, ..self.setup }, follower)?;
        let theirs = self.setup.baseline.map(|_| self.play(case, &self.setup, follower));
        Ok(Played { case, ours, theirs: theirs.transpose()? })
    }

    fn play<'c>(
        &self,
        case: &'c Case,
        setup: &Setup,
        follower: &mut Follower<'c>,
    ) -> Result<CaseReport, Failure> {
        follower.check()?;
        follower.begin(case, setup.baseline);
        let played = sim::simulate(self.topology, case, setup, follower);
        follower.end(copies(case));
        played.map_err(|error| match error {
            SimulateError::Stopped => follower.check().err().unwrap_or(Failure::Closed),
            _ => self.failed(case, setup, &error),
        })
    }

    fn failed(&self, case: &Case, setup: &Setup, error: &SimulateError) -> Failure {
        let told = error.told(|memory| self.name(memory));
        let baseline = setup.baseline.map_or("", sim::Baseline::name);
        let place = [case.name.as_str(), baseline].into_iter().filter(|text| !text.is_empty());
        let place: Vec<&str> = place.chain([told.as_str()]).collect();
        Failure::failed(place.join(": "))
    }

    fn name(&self, memory: MemoryId) -> String {
        self.topology.short_name(memory)
    }

    fn names(&self, memories: &[MemoryId]) -> Vec<String> {
        memories.iter().map(|&memory| self.name(memory)).collect()
    }

    /// What people read: a line for each copy, or what many come to.
    fn table(&self, played: &[Played<'_>]) -> String {
        let mut rows = vec![self.head()];
        for case in played {
            rows.extend(summary::told(case).into_iter().map(|copy| self.row(case, copy)));
        }
        let many = || played.iter().filter(|case| summary::sums_up(case));
        let mut text = aligned(&rows);
        if many().next().is_some() {
            text.push('\n');
            text.push_str(&aligned(&summary::table(self.setup.baseline, many())));
            text.extend(many().map(summary::remark));
        }
        text
    }

    fn head(&self) -> Vec<String> {
        let ours = ["copy", "path", "throughput", "peak", "ratio", "seconds", "staging"];
        let mut head: Vec<String> = ours.map(str::to_owned).into();
        if let Some(baseline) = self.setup.baseline {
            head.extend([baseline.name(), "seconds", "held", "speedup"].map(str::to_owned));
        }
        head
    }

    fn row(&self, played: &Played<'_>, at: usize) -> Vec<String> {
        let copy = &played.ours.copies[at];
        let mut row = vec![
            label(played.case, &played.case.copies[at]),
            copy.paths()
                .iter()
                .map(|path| self.names(path).join(" → "))
                .collect::<Vec<_>>()
                .join(" + "),
            topo::rate(copy.throughput()),
            topo::rate(copy.peak),
            format!("{:.3}", ratio(copy)),
            format!("{:.6}", copy.seconds()),
            topo::size(played.ours.held_bytes()),
        ];
        if let Some(theirs) = &played.theirs {
            let other = &theirs.copies[at];
            row.push(topo::rate(other.throughput()));
            row.push(format!("{:.6}", other.seconds()));
            row.push(topo::size(theirs.held_bytes()));
            row.push(format!("{:.2}", speedup(copy, other)));
        }
        row
    }

    fn to_json(&self, workload: &str, played: &[Played<'_>]) -> Value {
        let setup = &self.setup;
        let algorithm = match setup.choice {
            planner::Choice::Auto => "auto",
            planner::Choice::Only(algorithm) => algorithm.name(),
        };
        json!({
            "cluster": self.topology.name,
            "nodes": self.topology.node_count(),
            "workload": workload,
            "algorithm": algorithm,
            "present_load": setup.load,
            "paths": setup.paths,
            "baseline": setup.baseline.map(sim::Baseline::name),
            "dma_threads": setup.baseline.map(|_| setup.dma_threads),
            "cases": played.iter().map(|case| self.case_json(case)).collect::<Vec<_>>(),
        })
    }

    fn case_json(&self, played: &Played<'_>) -> Value {
        let mut value = self.report_json(played.case, &played.ours);
        value["case"] = json!(played.case.name);
        value["computing_seconds"] = json!(played.case.computing().as_secs_f64());
        let Some(theirs) = &played.theirs else { return value };
        value["baseline"] = self.report_json(played.case, theirs);
        if !self.summary {
            for (at, copy) in played.ours.copies.iter().enumerate() {
                value["copies"][at]["speedup"] = json!(speedup(copy, &theirs.copies[at]));
            }
        }
        value
    }

    fn report_json(&self, case: &Case, report: &CaseReport) -> Value {
        let held = |held: &[(MemoryId, u64)]| {
            let each = |&(memory, bytes): &(MemoryId, u64)| json!({ "memory": self.name(memory), "bytes": bytes });
            held.iter().map(each).collect::<Vec<_>>()
        };
        let mut value = json!({
            "seconds": report.ended.since(model::Time(0)).as_secs_f64(),
            "communication_seconds": summary::communication(case, report),
            "bytes": report.copies.iter().map(|copy| copy.bytes).sum::<u64>(),
            "staging": held(&report.staging),
            "instances": held(&report.instances),
            "events": report.tally.events,
            "requests": report.tally.requests,
            "transfers": report.tally.transfers,
            "planned": report.plans.iter().map(|plans| self.plans_json(plans)).collect::<Vec<_>>(),
        });
        if !self.summary {
            let copies = case.copies.iter().zip(&report.copies);
            let copies = copies.map(|(spec, copy)| self.copy_json(spec, copy));
            value["copies"] = copies.collect();
        }
        value
    }

    fn plans_json(&self, (node, count): &(NodeId, PlanCount)) -> Value {
        let by = |[full, simple]: [usize; 2]| json!({ "full": full, "simple": simple });
        json!({
            "node": self.topology.node_name(*node),
            "made": by(count.made),
            "by_papers_key": by(count.by_papers_key),
            "last_copy": count.last_copy,
        })
    }

    fn copy_json(&self, spec: &CopySpec, copy: &CopyReport) -> Value {
        let plans = copy.plans.iter().map(|plan| {
            let mut value = plan_json(plan, self.topology, &spec.space);
            value.as_object_mut().map(|plan| plan.remove("alternatives"));
            value
        });
        json!({
            "copy": spec.name,
            "count": spec.count,
            "bytes": copy.bytes,
            "launched_ns": copy.launched.0,
            "ended_ns": copy.ended.0,
            "seconds": copy.seconds(),
            "throughput": copy.throughput(),
            "peak": copy.peak,
            "ratio": ratio(copy),
            "memories": self.names(&copy.path()),
            "split": copy.split,
            "plans": plans.collect::<Vec<_>>(),
        })
    }
}

/// How many copies a case is, each instance for itself.
fn copies(case: &Case) -> u64 {
    case.copies.iter().map(|copy| u64::from(copy.count)).sum()
}

/// What a line is called: the case, the copy where it has several, or the one that has a name.
fn label(case: &Case, copy: &CopySpec) -> String {
    match (case.name.as_str(), case.copies.len()) {
        ("", _) => copy.name.clone(),
        (name, 1) => name.to_owned(),
        (name, _) => format!("{name}: {}", copy.name),
    }
}

/// What was reached of what the slowest hop can.
fn ratio(copy: &CopyReport) -> f64 {
    copy.throughput() / copy.peak
}

/// How much longer the baseline takes; 1 where neither takes any time.
fn speedup(ours: &CopyReport, theirs: &CopyReport) -> f64 {
    if ours.seconds() > 0.0 { theirs.seconds() / ours.seconds() } else { 1.0 }
}

/// Columns beside each other, the first two to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 | 1 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
