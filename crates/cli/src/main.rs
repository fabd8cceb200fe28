//! `iso`: Isometry on the command line.
//!
//! Standard output holds what was asked for, one JSON object under `--json`; everything else goes
//! to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted;
//! 128 and its number after another signal.
#![forbid(unsafe_code)]

mod args;
mod ask;
mod bench;
mod control;
mod copy;
mod end;
mod failure;
mod follow;
mod interrupt;
mod launch;
mod lines;
mod metrics;
mod node;
mod output;
mod plan;
mod plot;
mod progress;
mod simulate;
mod summary;
mod topo;
mod trace_file;
mod workload;

use args::{Args, Command};
use clap::Parser;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = match Args::try_parse() {
        Ok(args) => run(&args.command),
        Err(refused) => explain(&refused),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Help where it was asked for, on standard output; else what is wrong with the arguments.
fn explain(refused: &clap::Error) -> Result<(), Failure> {
    let printed = refused.print().and_then(|()| std::io::stdout().flush());
    match refused.use_stderr() {
        true => Err(Failure::Explained),
        false => Ok(printed?),
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Topo(args) => topo::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Copy(args) => copy::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Sim(args) => simulate::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Node(args) => match &args.command {
            Some(args::NodeCommand::Status(args)) => ask::status(args),
            None => node::run(&args.serve),
        },
    }
}
