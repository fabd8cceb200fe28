//! `iso bench`.

use crate::args::Bench;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use bench::{Error, GROUPS, Group, Output, Report, Settings, Stop};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs groups of benchmarks, or lists them where none is named.
pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    if let Some(file) = &args.counts {
        return match &args.counted {
            Some(case) => bench::run_counted(file, case).map_err(failure),
            None => counts(file, args.write),
        };
    }
    if args.groups.is_empty() {
        return list(args.json);
    }
    let groups = args.groups.iter().map(|name| bench::named(name));
    let groups: Vec<&Group> = groups.collect::<Result<_, _>>().map_err(failure)?;
    let interrupt = Interrupt::listen()?;
    let settings = settings(args, &interrupt);
    let mut reports = Vec::new();
    for group in groups {
        let ended = group.run(&settings);
        interrupt.check()?;
        reports.push(ended.map_err(failure)?);
    }
    if args.json {
        output::json(&to_json(&reports))?;
    }
    let wrong: Vec<_> = reports.iter().flat_map(|r| &r.wrong).map(String::as_str).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format_args!("wrong results: {}", wrong.join("; ")))),
    }
}

/// Compares what the kernels execute with the limits in `file`, or writes these anew.
fn counts(file: &Path, write: bool) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let counts = bench::check_counts(file, write, |case| {
        let mut command = Command::new(&program);
        command.args(["bench", "--counted", case, "--counts"]).arg(file);
        command
    });
    let counts = counts.map_err(failure)?;
    output::text(&counts.table)?;
    match write || counts.above.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format_args!("above limits: {}", counts.above.join("; ")))),
    }
}

fn settings(args: &Bench, interrupt: &Interrupt) -> Settings {
    Settings {
        filter: args.filter.clone().filter(|f| !f.as_str().is_empty()),
        runs: args.runs.map(std::num::NonZero::get),
        budget: Duration::from_secs(args.budget),
        out: args.out.clone(),
        files: args.files.clone(),
        output: if args.json { Output::Error } else { Output::Standard },
        stop: Stop::on(interrupt.flag()),
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    if as_json {
        let group = |g: &Group| json!({ "group": g.name, "about": g.about });
        return output::json(&json!({ "groups": GROUPS.iter().map(group).collect::<Vec<_>>() }));
    }
    let lines: Vec<_> = GROUPS.iter().map(|g| format!("{:10} {}", g.name, g.about)).collect();
    output::text(&lines.join("\n"))
}

/// The report of one group, or all of several.
fn to_json(reports: &[Report]) -> Value {
    match reports {
        [one] => one.json.clone(),
        all => json!({ "groups": all.iter().map(|r| &r.json).collect::<Vec<_>>() }),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::UnknownGroup { .. } => Failure::usage(error),
        Error::Output(error) => error.into(),
        other => Failure::failed(other),
    }
}
