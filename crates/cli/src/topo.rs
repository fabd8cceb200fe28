//! `iso topo`.

use crate::args::Topo;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::{ask, output, plot};
use cluster::chrome::short_link_name;
use isometry::Machine;
use model::{Channel, Crossover, Curves, Memory, MemoryKind, NodeClass, Topology, Wire};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes that a cluster file may have.
const MAX_CLUSTER_BYTES: u64 = 16 << 20;

/// Prints the topology, and plots it where that is asked for.
pub(crate) fn run(args: &Topo) -> Result<(), Failure> {
    let topology = match &args.socket {
        Some(socket) => of_node(socket)?,
        None => read(args.cluster.as_deref(), args.measure)?,
    };
    if let Some(path) = &args.plot {
        plot::write(path, &topology)?;
    }
    match args.json {
        true => output::json(&cluster::to_json(&topology)),
        false => output::text(&table(&topology)),
    }
}

/// The cluster that a running node is in.
fn of_node(socket: &Path) -> Result<Topology, Failure> {
    let told = ask::topology(socket)?;
    cluster::parse_json(&told.to_string()).map_err(|e| unreadable(socket, &e))
}

/// The topology of a cluster file or a ready-made cluster, a file of that name first; or of this
/// machine with the file system of the working directory; `measure` has it measured anew.
pub(crate) fn read(cluster: Option<&Path>, measure: bool) -> Result<Topology, Failure> {
    let Some(path) = cluster else {
        // A disk is measured in temporary files, which go before the command does.
        let interrupt = Interrupt::listen()?;
        let machine = Machine::builder().disk(".").remeasure(measure).open();
        interrupt.check()?;
        return Ok(Topology::clone(&machine.map_err(Failure::failed)?.topology()));
    };
    let text = match text_of(path, MAX_CLUSTER_BYTES) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_name(path) => return ready_made(path),
        text => text.map_err(|e| unreadable(path, &e))?,
    };
    cluster::parse(&text).map_err(|e| unreadable(path, &e))
}

/// A file that is not what it should be.
pub(crate) fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format_args!("{}: {error}", path.display()))
}

/// Whether `path` could be the name of something ready-made: no directory, no extension.
pub(crate) fn is_name(path: &Path) -> bool {
    path.file_name() == Some(path.as_os_str()) && path.extension().is_none()
}

/// A cluster that comes with the program.
fn ready_made(name: &Path) -> Result<Topology, Failure> {
    let found = name.to_str().and_then(cluster::ready_made);
    found.ok_or_else(|| {
        let known = cluster::ready_made_names().join(", ");
        let name = name.display();
        Failure::usage(format_args!(
            "no file and no ready-made cluster `{name}`; there are {known}"
        ))
    })
}

/// What a file of at most `most_bytes` says; one that never ends, `/dev/zero` say, is an error.
pub(crate) fn text_of(path: &Path, most_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(most_bytes + 1).read_to_string(&mut text)?;
    match text.len() as u64 > most_bytes {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file has more than {}", size(most_bytes)),
        )),
        false => Ok(text),
    }
}

/// What people read: one line for each memory and channel of each class of nodes.
fn table(topology: &Topology) -> String {
    let mut text = format!("{}\n", topology.name);
    for class in &topology.classes {
        let _ = writeln!(text, "\nnode {} ({})", class.name, class.count);
        class.memories.iter().for_each(|m| text.push_str(&memory_line(m)));
        class.channels.iter().for_each(|c| text.push_str(&channel_line(class, c)));
        class.wires.iter().for_each(|w| text.push_str(&wire_line(class, w)));
    }
    for link in &topology.links {
        let name = short_link_name(topology, link);
        let _ = writeln!(text, "\nlink {name} {}", rates(&link.curves));
    }
    text
}

fn memory_line(memory: &Memory) -> String {
    let capacity = memory.capacity_bytes.map(size).unwrap_or_default();
    let line = format!("  {:<10} {:<42} {capacity:>11}", memory.name, kind_of(memory.kind));
    format!("{}\n", line.trim_end())
}

fn channel_line(class: &NodeClass, channel: &Channel) -> String {
    let pair = match channel.from.is_empty() {
        true => "closed".to_owned(),
        false => format!("{} → {}", names(class, &channel.from), names(class, &channel.to)),
    };
    let past = |from: Crossover| {
        let [in_order, turned] = [from.in_order, from.turned].map(size);
        format!("; past the caches from {in_order} in order, {turned} turned")
    };
    let past = channel.stream_from_bytes.map(past).unwrap_or_default();
    format!("  {:<10} {pair:<42} {}{past}\n", channel.kind.name(), rates(&channel.curves))
}

/// A wire, with what crosses it.
fn wire_line(class: &NodeClass, wire: &Wire) -> String {
    let crosses = |c: &&Channel| c.wire.is_some_and(|w| class.wires[usize::from(w)] == *wire);
    let mut crossed: Vec<_> =
        class.channels.iter().filter(crosses).map(|c| c.kind.name()).collect();
    let is_port = |m: &Memory| m.port.is_some_and(|port| class.wires[usize::from(port)] == *wire);
    if class.memories.iter().any(is_port) {
        crossed.push("links");
    }
    let shared = format!("wire {} ({})", wire.name, crossed.join(", "));
    let ways = if wire.half_duplex { "both ways together" } else { "each way" };
    format!("  {shared:<53} {:>11} ({ways})\n", rate(wire.rate))
}

/// The memories at one end of a channel.
pub(crate) fn names(class: &NodeClass, ids: &[u16]) -> String {
    let names = ids.iter().map(|&i| &*class.memories[usize::from(i)].name);
    names.collect::<Vec<_>>().join(", ")
}

fn kind_of(kind: MemoryKind) -> String {
    let words = match kind {
        MemoryKind::Sys => "host memory",
        MemoryKind::Zcm => "host memory, registered with a device",
        MemoryKind::Reg => "host memory, registered with a NIC",
        MemoryKind::Fbm => "device memory",
        MemoryKind::Dsk => "file system",
    };
    format!("{} {words}", kind.name())
}

/// The peak, and what small requests get of it.
fn rates(curves: &Curves) -> String {
    let at = |bytes| rate(curves.run.at(bytes));
    format!("{:>11} ({} at 4 KiB, {} at 64 KiB)", rate(curves.run.peak()), at(1 << 12), at(1 << 16))
}

/// Bytes per second for people.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
        r if r >= 1e6 => format!("{:.1} MB/s", r / 1e6),
        r => format!("{:.1} kB/s", r / 1e3),
    }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >> shift > 0 {
            return format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{bytes} B")
}
