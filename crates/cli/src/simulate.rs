//! `iso sim`.

use crate::args::{Fuzz, Sim};
use crate::failure::Failure;
use crate::trace_file::TraceFile;
use crate::{output, workload};
use serde_json::{Value, json};
use sim::FuzzReport;
use std::fmt::Write;
use std::time::Instant;

/// Runs the engine in virtual time. What it prints is a function of its arguments; how long it
/// took goes to standard error.
pub(crate) fn run(sim: &Sim) -> Result<(), Failure> {
    match sim {
        Sim::Run(args) => workload::run(args),
        Sim::Fuzz(args) => fuzz(args),
    }
}

fn fuzz(args: &Fuzz) -> Result<(), Failure> {
    let end = args.first_seed.checked_add(args.seeds);
    let end = end.ok_or_else(|| Failure::usage("the last seed passes 64 bits"))?;
    let trace = args.trace.as_deref().map(TraceFile::open).transpose()?;
    let started = Instant::now();
    let report = sim::fuzz(args.first_seed..end);
    output::aside(format_args!("{:.1} s", started.elapsed().as_secs_f64()));
    match args.json {
        true => output::json(&to_json(&report))?,
        false => output::text(&report.to_string())?,
    }
    if let Some(file) = trace {
        file.write_whole(&trace_of(last_seed(args.first_seed, &report)))?;
    }
    match report.failure {
        None => Ok(()),
        Some(failure) => Err(Failure::failed(failure)),
    }
}

/// The seed that failed, or the last that passed.
fn last_seed(first_seed: u64, report: &FuzzReport) -> u64 {
    let passed = first_seed + report.passed.saturating_sub(1);
    report.failure.as_ref().map_or(passed, |failure| failure.seed)
}

/// What happened, event by event.
fn trace_of(seed: u64) -> String {
    let mut text = String::new();
    for entry in &sim::run_seed(seed).trace {
        let _ = writeln!(text, "{entry}");
    }
    text
}

fn to_json(report: &FuzzReport) -> Value {
    let total = &report.total;
    json!({
        "passed": report.passed,
        "failed_seed": report.failure.as_ref().map(|f| f.seed),
        "failure": report.failure.as_ref().map(|f| f.violation.to_string()),
        "transfers": {
            "done": total.done,
            "cancelled": total.cancelled,
            "timed_out": total.timed_out,
            "failed": total.failed,
        },
        "requests": total.requests,
        "bytes": total.bytes,
        "time_ns": total.time_ns,
        "digest": format!("{:016x}", total.digest),
    })
}
