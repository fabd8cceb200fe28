//! File systems as memories: each joins the machine when a path on it is first used.

use crate::builder::Settings;
use crate::discover::{Cache, machine_key};
use crate::probe;
use crate::runtime::{NewChannel, Shared};
use crate::{ArgumentError, Error};
use channel::Region;
use channel_disk::{Direction, DiskChannel, DiskConfig, Interface, clean_stale};
use model::{Channel, ChannelKind, Curves, Memory, MemoryId, MemoryKind, Throughput, Wire};
use rustix::fs::{statfs, statvfs};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Requests at once where nothing was measured.
const ASSUMED_DEPTH: u32 = 4;

/// The file systems in use, by device number.
pub(crate) struct Disks {
    settings: Settings,
    arenas: Vec<Arc<Region>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_device: HashMap<u64, MemoryId>,
    /// Directories whose stale temporaries were deleted.
    cleaned: HashSet<PathBuf>,
}

/// A file system's two channels: rates and how many requests keep them busy.
#[derive(Debug, Clone)]
pub(crate) struct DiskCurves {
    pub(crate) read: Throughput,
    pub(crate) write: Throughput,
    /// Bytes per second, read and written together while both go on.
    pub(crate) both: f64,
    /// Of a read and of a write.
    pub(crate) latency_ns: [u64; 2],
    pub(crate) depth: u32,
    pub(crate) assumed: bool,
}

impl Disks {
    pub(crate) fn new(settings: Settings, arenas: Vec<Arc<Region>>) -> Self {
        Disks { settings, arenas, known: Mutex::default() }
    }

    /// What the machine was set up with.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Shared {
    /// The memory of the file system that holds `path`, or its directory where it is yet to be.
    pub(crate) fn disk_of(&self, path: &Path) -> Result<MemoryId, Error> {
        let dir = if path.is_dir() { path } else { parent(path) };
        let device = fs::metadata(dir).map_err(|e| Error::io(dir, e))?.dev();
        let mut known = self.disks.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.cleaned.insert(dir.to_owned()) {
            // A directory that may be read but not written has none of ours.
            let _ = clean_stale(dir);
        }
        if let Some(&memory) = known.by_device.get(&device) {
            return Ok(memory);
        }
        let curves = self.disks.curves(dir, device);
        let memory = self.add_disk(&curves)?;
        known.by_device.insert(device, memory);
        Ok(memory)
    }

    fn add_disk(&self, curves: &DiskCurves) -> Result<MemoryId, Error> {
        let (_changing, mut class) = self.class_to_change();
        let disk = u16::try_from(class.memories.len()).unwrap_or(u16::MAX);
        let hosts: Vec<u16> =
            (0..disk).filter(|&i| class.memories[usize::from(i)].kind.is_host()).collect();
        let disks = class.memories.iter().filter(|m| m.kind == MemoryKind::Dsk).count();
        let name = if disks == 0 { "dsk".to_owned() } else { format!("dsk{disks}") };
        let wire = u16::try_from(class.wires.len()).unwrap_or(u16::MAX);
        class.wires.push(wire_of(&name, curves));
        class.memories.push(Memory {
            name,
            kind: MemoryKind::Dsk,
            capacity_bytes: None,
            th_bytes: Some(0),
            port: None,
        });
        // Both or none: a channel that the core has keeps its id.
        let channel = |direction| self.disks.channel(direction, curves.depth);
        let (reads, writes) = (channel(Direction::Read)?, channel(Direction::Write)?);
        let both = [(Direction::Read, reads), (Direction::Write, writes)];
        let both = both.map(|(direction, channel)| {
            let index = u16::try_from(class.channels.len()).unwrap_or(u16::MAX);
            let id = self.disks.settings.channel_id(index);
            let entry = entry(direction, (disk, wire), &hosts, curves);
            let config = self.disks.settings.channel(id, entry.kind);
            class.channels.push(entry);
            NewChannel { config, channel: Box::new(channel), pinned: true }
        });
        let added = self.core().add_channels(both);
        added.map_err(|e| Error::resource("watching a disk's channels", e))?;
        self.set_class(class);
        self.channels_changed();
        Ok(self.disks.settings.memory(disk))
    }
}

impl Disks {
    fn channel(&self, direction: Direction, depth: u32) -> Result<DiskChannel, Error> {
        let arenas = self.arenas.clone();
        let config = DiskConfig { direction, depth, interface: Interface::Best, arenas };
        let what = "starting the channels of a disk";
        DiskChannel::new(config).map_err(|e| Error::resource(what, e))
    }

    /// From the cache, or measured in temporary files in `dir`; assumed where these can't be
    /// written.
    fn curves(&self, dir: &Path, device: u64) -> DiskCurves {
        if self.settings.assume {
            return DiskCurves::assumed();
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let key =
            format!("disk {} {} {}", volume_of(dir), mount_of(&mounts, device), machine_key());
        let cache = Cache::new(&self.settings, &key);
        if let Some(curves) = cache.load().as_ref().and_then(DiskCurves::of_topology) {
            return curves;
        }
        let measured = probe::disk(dir).inspect(|curves| cache.store(&curves.to_topology()));
        measured.unwrap_or_else(DiskCurves::assumed)
    }
}

impl DiskCurves {
    fn assumed() -> Self {
        let curve = |top: f64| Throughput::measured(vec![(4096, top / 20.0), (1 << 20, top)]);
        let curve = |top| curve(top).unwrap_or_else(|_| unreachable!("the points ascend"));
        DiskCurves {
            read: curve(1e9),
            write: curve(1e9),
            both: 1e9,
            latency_ns: [100_000; 2],
            depth: ASSUMED_DEPTH,
            assumed: true,
        }
    }

    /// As a cluster of one disk, which is what the cache keeps.
    fn to_topology(&self) -> model::Topology {
        let disk = Memory {
            name: "dsk".into(),
            kind: MemoryKind::Dsk,
            capacity_bytes: None,
            th_bytes: Some(0),
            port: None,
        };
        let host = Memory {
            name: "sys".into(),
            kind: MemoryKind::Sys,
            capacity_bytes: None,
            th_bytes: None,
            port: None,
        };
        let channels = [Direction::Read, Direction::Write].map(|d| entry(d, (1, 0), &[0], self));
        let class = model::NodeClass {
            name: "node".into(),
            first: 0,
            count: 1,
            memories: vec![host, disk],
            channels: channels.into(),
            wires: vec![wire_of("dsk", self)],
        };
        model::Topology {
            name: String::new(),
            generation: 0,
            th_bytes: 1 << 20,
            classes: vec![class],
            links: Vec::new(),
        }
    }

    fn of_topology(topology: &model::Topology) -> Option<Self> {
        let class = topology.classes.first()?;
        let of = |kind| class.channels.iter().find(|c| c.kind == kind);
        let (read, write) = (of(ChannelKind::DiskRead)?, of(ChannelKind::DiskWrite)?);
        Some(DiskCurves {
            read: read.curves.run.clone(),
            write: write.curves.run.clone(),
            both: class.wires.first()?.rate,
            latency_ns: [read.latency_ns, write.latency_ns],
            depth: read.in_flight?,
            assumed: false,
        })
    }
}

/// What reads and writes share.
fn wire_of(disk: &str, curves: &DiskCurves) -> Wire {
    Wire { name: disk.to_owned(), rate: curves.both, half_duplex: true }
}

/// A channel of `disk`, whose requests cross `wire`.
fn entry(
    direction: Direction,
    (disk, wire): (u16, u16),
    hosts: &[u16],
    curves: &DiskCurves,
) -> Channel {
    let (kind, from, to, rate) = match direction {
        Direction::Read => (ChannelKind::DiskRead, vec![disk], hosts.to_vec(), &curves.read),
        Direction::Write => (ChannelKind::DiskWrite, hosts.to_vec(), vec![disk], &curves.write),
    };
    let latency_ns = curves.latency_ns[usize::from(direction == Direction::Write)];
    Channel {
        kind,
        from,
        to,
        curves: Curves::all(rate.clone()),
        latency_ns,
        wire: Some(wire),
        in_flight: Some(curves.depth),
        stream_from_bytes: None,
        assumed: curves.assumed,
    }
}

/// The directory that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a path that no file can have.
pub(crate) fn check_path(path: &Path) -> Result<(), ArgumentError> {
    match path.as_os_str().as_encoded_bytes().contains(&0) {
        true => Err(ArgumentError::NulInPath { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// The type of the file system and its own number, which another disk under this one's device
/// number does not share.
fn volume_of(dir: &Path) -> String {
    let kind = statfs(dir).map(|s| s.f_type).unwrap_or_default();
    let volume = statvfs(dir).map(|s| s.f_fsid).unwrap_or_default();
    format!("{kind:x} {volume:x}")
}

/// How `device` is mounted, of the lines of `/proc/self/mountinfo`: its number, options, type and
/// source, but not where. The first line counts: the others are the same device at other places.
fn mount_of(mounts: &str, device: u64) -> String {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number));
    let options = line.and_then(|line| line.split(' ').nth(5)).unwrap_or_default();
    let volume = line.and_then(|line| line.split_once(" - ")).unwrap_or_default().1;
    format!("{number} {options} {volume}")
}

#[cfg(test)]
mod tests {
    use super::mount_of;

    #[test]
    fn a_disk_is_known_by_how_it_is_mounted() {
        let mounts = "\
            21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
            22 21 0:5 / /dev rw,nosuid - devtmpfs devtmpfs rw,size=1k\n\
            90 21 254:0 /home /mnt rw - ext4 /dev/vda rw,discard\n";
        let device = rustix::fs::makedev(254, 0);
        assert_eq!(mount_of(mounts, device), "254:0 rw,relatime ext4 /dev/vda rw,discard");
        let remounted = mounts.replace("rw,relatime", "rw,sync");
        assert_ne!(mount_of(&remounted, device), mount_of(mounts, device));
        let unknown = mount_of(mounts, rustix::fs::makedev(8, 17));
        assert_eq!(unknown, "8:17  ", "btrfs numbers its volumes otherwise");
    }
}
