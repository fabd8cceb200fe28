//! The command line's arguments. Their comments are the help texts.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

/// Moves data between any two memories of a machine, in any layout, on a path that it chooses.
#[derive(Debug, Parser)]
#[command(name = "iso", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the memories, channels and throughput of a cluster.
    Topo(Topo),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Topo {
    /// The cluster file: TOML, or what `iso topo --json` prints.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: PathBuf,
    /// Draw the throughput functions into an SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object, which is itself a cluster file.
    #[arg(long)]
    pub(crate) json: bool,
}
