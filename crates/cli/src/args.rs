//! The command line's arguments. Their comments are the help texts.

use crate::launch::hosts::{self, Host};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, value_parser};
use isometry::parse_size;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
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
    /// Show memories, channels and their throughput, of this machine or of a cluster file.
    Topo(Topo),
    /// Show the path that a copy would take in a cluster, and what else was weighed.
    Plan(Plan),
    /// Copy an array from a file to another, changing its layout on the way.
    Copy(Copy),
    /// Verify and time groups of cases beside their references; without a group, list them.
    Bench(Bench),
    /// Run the engine in virtual time.
    #[command(subcommand)]
    Sim(Sim),
    /// Start a program several times, as ranks that reach each other's memory.
    ///
    /// Ranks are of this machine unless hosts are named, which are reached by ssh. Where a rank fails, or
    /// the launcher is told to end or is lost, the other ranks are asked to end, and ended after three
    /// seconds.
    Launch(Launch),
    /// Be a node among others, which serves files and is asked for copies, until a signal ends it.
    ///
    /// It joins as ISOMETRY_ROOT, ISOMETRY_RANK, ISOMETRY_SIZE and ISOMETRY_KEY say, which `iso launch`
    /// sets; else as PMIx says, under `mpirun` of Open MPI 5 or `srun --mpi=pmix`, and else alone.
    Node(Node),
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Node {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show what a node is at: nodes that are lost, copies under way and what they wait for, staging.
    Status(Status),
}

/// What a node has for others.
#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// Let other nodes open and make files in this directory; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) files: Vec<PathBuf>,
    /// What others call this node: `store:/a.npy`; `node` and its rank unless given. Who comes back under
    /// its name is found by it.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Let others join later, by ISOMETRY_ROOT and ISOMETRY_KEY without ISOMETRY_RANK and ISOMETRY_SIZE, as
    /// long as no more than N have ever joined; the same on all that join at the start. Else
    /// ISOMETRY_CAPACITY says so.
    #[arg(long, value_name = "N")]
    pub(crate) capacity: Option<u32>,
    /// Threads that copy inside host memory; one for each core but one unless given.
    #[arg(long, value_name = "N")]
    pub(crate) lanes: Option<usize>,
    /// The sum of all intermediate buffers: `512MiB`; a share of the memory unless given.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) staging: Option<u64>,
    /// Answer `GET /metrics` over HTTP at this address, with figures for Prometheus; port 0 is one
    /// that is free, told on standard error. Nobody is asked who he is: whoever reaches the address
    /// may read them.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Status {
    /// The node's control socket; else that in ISOMETRY_SOCKET, else the only one that there is.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Launch {
    /// How many ranks to start, at most 256.
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    #[arg(value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) ranks: u32,
    /// Let ranks of one host meet by TCP, as those of several do, and not by shared memory: where no host is
    /// named at a free port of this machine, and without each other's memory.
    #[arg(long)]
    pub(crate) tcp: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Print one JSON object that says how each rank ended; what ranks print goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments. It finds ISOMETRY_ROOT, ISOMETRY_RANK, ISOMETRY_SIZE and
    /// ISOMETRY_KEY in its environment; rank 0 has standard input, unless hosts are named. On those it
    /// starts in a directory of the same path as the present one, if there is one.
    #[arg(last = true, required = true, value_name = "PROG")]
    pub(crate) program: Vec<OsString>,
}

/// Which hosts ranks are started on, and how.
#[derive(Debug, ClapArgs)]
pub(crate) struct Reach {
    /// Start the ranks on these hosts, as many on each as it has slots (`HOST:SLOTS`, 1 unless given), and
    /// once more round where that is too few. An IPv6 address stands in brackets.
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', value_parser = hosts::host)]
    #[arg(group = "named")]
    pub(crate) hosts: Vec<Host>,
    /// The same from a file, as mpirun reads it: `HOST slots=N` on each line, and comments after `#`.
    #[arg(long, value_name = "FILE", group = "named")]
    pub(crate) hostfile: Option<PathBuf>,
    /// The port of the first host where ranks of several hosts meet: rank 0 fails where it is taken. Unless
    /// given it is drawn from 16384 to 32767. Each rank also listens at a port that its system chooses.
    #[arg(long, value_name = "PORT", requires = "named")]
    #[arg(value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// What reaches a host: a program that takes ssh's options, a host, and what to run there.
    #[arg(long, value_name = "PROG", requires = "named", default_value = "ssh")]
    pub(crate) ssh: OsString,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Topo {
    /// Show this cluster instead of the machine: a file (TOML, or what `iso topo --json` prints), or
    /// one that is ready-made: `two-nodes`, `sapling`, `xstream`, `moonlight`, `modern`, `pod`.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
    /// Show the cluster of the node at this control socket.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["cluster", "measure"])]
    pub(crate) socket: Option<PathBuf>,
    /// Measure the machine's channels again, whatever was kept.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) measure: bool,
    /// Draw the throughput functions into an SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object, which is itself a cluster file.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Plan {
    /// Plan on this cluster instead of the machine: a file (TOML, or what `iso topo --json` prints),
    /// or one that is ready-made, as for `iso topo`.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
    /// The source memory: `n0.fbm`, or `sys` where there is one node.
    pub(crate) src: String,
    /// The destination memory.
    pub(crate) dst: String,
    /// Names and extents of the box, slowest first: `x=65536,y=65536`.
    #[arg(long, value_name = "x=N,…", value_parser = extents)]
    pub(crate) dims: Extents,
    /// The sizes of the fields in bytes: `4,4,8`.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', required = true)]
    pub(crate) fields: Vec<u64>,
    /// The source's layout: `<F, x, y>`, fastest first, or `y,x`, slowest first.
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) from_layout: String,
    /// The destination's layout.
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) to_layout: String,
    /// How to search.
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
    /// What a prediction counts: the paper's least throughput, or latency, fill and sharing too.
    #[arg(long, value_enum, default_value_t = Model::Default)]
    pub(crate) model: Model,
    /// The largest intermediate buffer, in place of the cluster's: `64MiB`. A memory whose own is less
    /// keeps that.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) th: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to search for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Algorithm {
    /// The full algorithm for large copies, the simple one for small ones.
    #[default]
    Auto,
    /// Every path, layout and blocking factor.
    Full,
    /// The shortest path, converting on a Memcpy channel.
    Simple,
    /// The shortest path, intermediates in the source's layout.
    Spsl,
    /// The shortest path, intermediates in the destination's layout.
    Spdl,
}

/// What a prediction counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Model {
    /// The least throughput over the hops.
    Paper,
    /// Also pipeline fill, latency, and channels and wires used twice.
    Default,
}

#[derive(Debug, Clone, ClapArgs, Serialize, Deserialize)]
pub(crate) struct Copy {
    /// The source: `in.npy`, `model.safetensors#name`, or a raw file with --dims and --dtype;
    /// `node1:/in.npy` is a file of that node, whose copy a running `iso node` is asked for.
    pub(crate) src: PathBuf,
    /// The destination: a new file, which appears when all of it is written; `out.safetensors#name`
    /// names its tensor; as the source, it may be a node's.
    pub(crate) dst: PathBuf,
    /// Names of the source's dimensions, slowest first: `nhwc` or `batch,row`; with extents for a
    /// raw file: `n=32,h=224`.
    #[arg(long, value_name = "DIMS")]
    pub(crate) dims: Option<String>,
    /// The element type of a raw file: `f4`.
    #[arg(long, value_name = "TYPE")]
    pub(crate) dtype: Option<String>,
    /// The destination's layout: `nchw`, slowest first, or `<F, w, h, c, n>`, fastest first.
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<String>,
    /// The larger, the more urgent.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    #[serde(default)]
    pub(crate) priority: i32,
    /// The largest intermediate buffer: `64MiB`. On running nodes none is larger than a third of what they
    /// have in that memory (`iso node --staging`).
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) th: Option<u64>,
    /// How to search.
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    #[serde(default)]
    pub(crate) algorithm: Algorithm,
    /// Make sure that the file survives a power failure before it appears.
    #[arg(long)]
    #[serde(default)]
    pub(crate) sync: bool,
    /// Read both files again afterwards, each where it lies, and compare checksums.
    #[arg(long)]
    #[serde(default)]
    pub(crate) verify: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) asking: Asking,
}

/// What of a copy is up to who asks, whoever runs it.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct Asking {
    /// Write a trace for Perfetto or Chrome; not of what a node is asked for.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The control socket of the node that is asked, which has the files that name none; else that in
    /// ISOMETRY_SOCKET, else the only one that there is. Nobody is asked where no side names a node.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Bench {
    /// The groups to run: `small`, `disk`, …
    #[arg(value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Run the cases whose names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<Regex>,
    /// How often each contender runs, in place of what the cases say.
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<NonZeroUsize>,
    /// After so many seconds of timing a case runs no more, once it has run 5 times.
    #[arg(long, value_name = "SECONDS", default_value_t = bench::Settings::BUDGET_SECONDS)]
    pub(crate) budget: u64,
    /// Where GROUP.json is written.
    #[arg(long, value_name = "DIR", default_value = "bench/out")]
    pub(crate) out: PathBuf,
    /// Where files are made for the time of the run: the file system that is measured.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) files: PathBuf,
    /// Print one JSON object: the group's, or those of several under `groups`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Have valgrind count what the kernels execute, and compare that with the limits in FILE.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["groups", "json"])]
    pub(crate) counts: Option<PathBuf>,
    /// Write what was counted into FILE, as its limits from now on.
    #[arg(long, requires = "counts")]
    pub(crate) write: bool,
    /// Run this case of FILE once: what valgrind looks at.
    #[arg(long, value_name = "CASE", requires = "counts", hide = true)]
    pub(crate) counted: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run a workload on a cluster that need not be there: when it ends, by which paths, and what a
    /// simpler runtime would take. Equal arguments, equal output.
    Run(Run),
    /// Play random scenarios with faults and check every rule; equal arguments, equal output.
    Fuzz(Fuzz),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// The cluster: a file (TOML, or what `iso topo --json` prints), or one that is ready-made:
    /// `two-nodes`, `sapling`, `xstream`, `moonlight`, `modern`, `pod`.
    pub(crate) cluster: PathBuf,
    /// The workload: a TOML file of copies, a trace of a real run (`iso copy --trace`), or one that is
    /// ready-made: `micro` (every pair of SYS, FBM and DSK, 8 GiB each, kept and converted), `priority`
    /// (an urgent copy among others), `exchange` (every node sends to others), or an application on
    /// all nodes: `pagerank`, `circuit`, `vgg16`, `kv`, `reshard`.
    pub(crate) workload: PathBuf,
    /// How many nodes there are of the cluster's only class; as many as its file says unless given.
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<NonZeroU32>,
    /// How many transfers `exchange` has; 1000 unless given.
    #[arg(long, value_name = "T", value_parser = value_parser!(u32).range(1..=sim::MAX_TRANSFERS as i64))]
    pub(crate) transfers: Option<u32>,
    /// Run only the cases whose names match this regular expression: `FBM to .*SOA`.
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<Regex>,
    #[command(flatten)]
    pub(crate) planning: Planning,
    /// Run each case once more with something taken away, and compare.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) baseline: Option<Baseline>,
    /// DMA threads of each node under `--baseline store-and-forward`; 1 unless given.
    #[arg(long, value_name = "N", requires = "baseline")]
    pub(crate) dma_threads: Option<NonZeroU32>,
    /// Write what channels, copies and staging did in virtual time, as Chrome JSON that Perfetto and
    /// chrome://tracing draw; of more than 1,048,576 requests, the first.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Say what each case comes to, not each copy: seconds, those computed, and what communication
    /// adds. Cases of more than 64 copies are summed up in any case, after their slowest copies.
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print one JSON object, with every copy and plan.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the copies of a workload are planned.
#[derive(Debug, ClapArgs)]
pub(crate) struct Planning {
    /// How to search for paths.
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
    /// Plan each copy when it starts, beside the transfers under way; else as on an idle cluster.
    #[arg(long)]
    pub(crate) present_load: bool,
    /// Split each copy over at most so many disjoint paths at once, where that is sooner.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN)]
    pub(crate) paths: NonZeroUsize,
}

/// What is taken away for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Baseline {
    /// One direct copy after the other on the shortest path, whole instances between, DMA threads
    /// that each do one at a time (Legion over Realm).
    StoreAndForward,
    /// Our path and layouts, one direct copy after the other, whole instances between.
    NoPipeline,
    /// The shortest path, pipelined; the last hop converts.
    NoPath,
    /// A path through registered memory, pipelined; the hop at the device converts
    /// (MVAPICH2-GPU).
    DeviceConverts,
    /// Our path and layouts, pipelined, one request at a time on each channel.
    OneInFlight,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Fuzz {
    /// How many scenarios to play.
    #[arg(long, default_value_t = 1000)]
    pub(crate) seeds: u64,
    /// The first scenario.
    #[arg(long, default_value_t = 0)]
    pub(crate) first_seed: u64,
    /// Write what happened in the last scenario, event by event.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Names and extents, slowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extents(pub(crate) Vec<(String, u64)>);

/// `x=65536,y=65536`.
pub(crate) fn extents(text: &str) -> Result<Extents, String> {
    let one = |part: &str| {
        let (name, extent) = part.split_once('=')?;
        Some((name.trim().to_owned(), extent.trim().parse().ok()?))
    };
    let all: Option<Vec<_>> = text.split(',').map(one).collect();
    all.map(Extents).ok_or_else(|| "expected names with extents, as in x=64,y=32".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_names() {
        let names = |text| extents(text).unwrap().0;
        assert_eq!(names("x=4, y=5"), [("x".to_owned(), 4), ("y".to_owned(), 5)]);
        for wrong in ["", "x", "x=", "x=-1", "x=4,,y=5"] {
            assert!(extents(wrong).is_err(), "{wrong}");
        }
    }
}
