//! What this machine is: its memories and channels, with measured curves.

use crate::Error;
use crate::builder::Settings;
use crate::probe::{self, HostRates};
use channel::Channel as _;
use channel_host::{Cores, Limits, MemcpyChannel};
use model::{
    Channel, ChannelKind, Curves, Memory, MemoryId, MemoryKind, NodeClass, Throughput, Topology,
};
use std::cell::OnceCell;
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Of a memory's staging, the part that one intermediate buffer may take: a conversion on disk
/// needs two, and some must remain for others.
pub(crate) const LARGEST_BUFFER_PARTS: u64 = 3;

/// A machine without its disks.
pub(crate) struct Found {
    pub(crate) topology: Topology,
    pub(crate) memcpy: MemcpyChannel,
    /// The memories that have staging.
    pub(crate) pools: Vec<MemoryId>,
}

/// The host memories and the channel inside them, measured through `memcpy` unless the cache
/// knows the curves.
pub(crate) fn host(settings: &Settings, cores: &Cores, mut memcpy: MemcpyChannel) -> Found {
    let mut topology = skeleton(settings, cores);
    let depth = memcpy.capabilities().max_in_flight;
    let key = format!("host, {depth} at once, {}", machine_key());
    let cache = Cache::new(settings, &key);
    let kept = cache.load();
    let kept = kept.and_then(|kept| kept.classes.into_iter().next()?.channels.into_iter().next());
    let known = kept.and_then(HostRates::of_channel);
    let is_known = known.is_some();
    let measured = || if settings.assume { None } else { measured(&mut memcpy) };
    if let Some(rates) = known.or_else(measured) {
        memcpy.set_crossover(rates.crossover);
        rates.tell(&mut topology.classes[0].channels[0]);
        if !is_known {
            cache.store(&topology);
        }
    }
    let pools = (0..topology.classes[0].memories.len()).filter_map(|i| u16::try_from(i).ok());
    let pools = pools.map(|index| settings.memory(index)).collect();
    Found { topology, memcpy, pools }
}

impl HostRates {
    /// What was kept of a channel.
    fn of_channel(kept: Channel) -> Option<Self> {
        let crossover = kept.stream_from_bytes?;
        Some(HostRates { curves: kept.curves, latency_ns: kept.latency_ns, crossover })
    }

    /// Says it of `channel`.
    fn tell(self, channel: &mut Channel) {
        (channel.curves, channel.latency_ns) = (self.curves, self.latency_ns);
        (channel.stream_from_bytes, channel.assumed) = (Some(self.crossover), false);
    }
}

/// What `memcpy` reaches, where there is the memory to find out.
fn measured(memcpy: &mut MemcpyChannel) -> Option<HostRates> {
    let tell = |error: &Error| log::warn!("the rates of copies in memory are assumed: {error}");
    probe::memcpy(memcpy).inspect_err(tell).ok()
}

/// One SYS for each NUMA node, and Memcpy between all of them, at an assumed rate.
fn skeleton(settings: &Settings, cores: &Cores) -> Topology {
    let capacity_bytes = Limits::detect().usable_bytes().map(|b| b / cores.nodes.len() as u64);
    let name = |i: usize| if i == 0 { "sys".to_owned() } else { format!("sys{i}") };
    let sys = |i| Memory {
        name: name(i),
        kind: MemoryKind::Sys,
        capacity_bytes,
        th_bytes: None,
        port: None,
    };
    let memories: Vec<_> = (0..cores.nodes.len()).map(sys).collect();
    let all: Vec<u16> = (0..memories.len()).filter_map(|i| u16::try_from(i).ok()).collect();
    let memcpy = Channel {
        kind: ChannelKind::Memcpy,
        from: all.clone(),
        to: all,
        curves: assumed_memcpy(),
        latency_ns: 25_000,
        wire: None,
        in_flight: None,
        stream_from_bytes: None,
        assumed: true,
    };
    let class = NodeClass {
        name: "node".to_owned(),
        first: 0,
        count: 1,
        memories,
        channels: vec![memcpy],
        wires: Vec::new(),
    };
    Topology {
        name: "this machine".to_owned(),
        generation: 1,
        th_bytes: settings.th_bytes(),
        classes: vec![class],
        links: Vec::new(),
    }
}

/// What a core of the last years does, roughly.
fn assumed_memcpy() -> Curves {
    let curve = |points: &[(u64, f64)]| Throughput::measured(points.to_vec()).ok();
    Curves {
        run: curve(&[(16, 0.3e9), (256, 3e9), (4096, 7e9), (1 << 20, 8e9)])
            .unwrap_or_else(|| unreachable!("the points ascend")),
        interleave: curve(&[(1, 0.2e9), (4, 0.8e9), (64, 3e9)]),
        transpose: curve(&[(1, 0.15e9), (4, 0.6e9), (64, 3e9)]),
        gather: curve(&[(4, 0.2e9), (64, 2e9), (4096, 7e9)]),
    }
}

/// Raised when something else is measured, or otherwise, or moved in another way.
const PROBE_VERSION: u32 = 17;

/// What curves depend on: the processor, the kernel, this library and how it measures.
pub(crate) fn machine_key() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = Cores::detect().allowed.len();
    let version = concat!(env!("CARGO_PKG_VERSION"), "/");
    format!("{model} x{cores}, {}, {version}{PROBE_VERSION}", kernel.trim())
}

/// Topologies kept in files, each under the key that its figures depend on.
///
/// Who finds nothing kept measures, and others of the machine that would wait meanwhile: side by side
/// each would find the memory half as fast.
pub(crate) struct Cache<'a> {
    key: &'a str,
    path: Option<PathBuf>,
    fresh: bool,
    /// Held until what was measured is kept.
    alone: OnceCell<File>,
}

/// How long one waits for others that measure; one of them may be stopped.
const MOST_WAITING: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl<'a> Cache<'a> {
    pub(crate) fn new(settings: &Settings, key: &'a str) -> Self {
        use std::hash::BuildHasher;
        let hash = foldhash::quality::FixedState::with_seed(0).hash_one(key);
        let dir = settings.cache_dir.as_ref().filter(|_| !settings.assume);
        let path = dir.map(|dir| dir.join(format!("curves-{hash:016x}.json")));
        Cache { key, path, fresh: settings.remeasure, alone: OnceCell::new() }
    }

    /// What was kept under this very key, if need be by somebody who measures just now. Where there is
    /// none, others wait until this value is gone.
    pub(crate) fn load(&self) -> Option<Topology> {
        self.kept().or_else(|| {
            let _ = self.alone.set(self.wait_for_others()?);
            self.kept()
        })
    }

    /// A lock that others respect; without one where there can be none, or one of them takes too long.
    fn wait_for_others(&self) -> Option<File> {
        let dir = self.path.as_ref()?.parent()?;
        fs::create_dir_all(dir).ok()?;
        let file = File::create(dir.join("measuring.lock")).ok()?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(TryLockError::WouldBlock) if since.elapsed() < MOST_WAITING => {
                    thread::sleep(BETWEEN_LOOKS);
                }
                Err(_) => return None,
            }
        }
    }

    /// A file that can't be read counts as none.
    fn kept(&self) -> Option<Topology> {
        let text = fs::read_to_string(self.path.as_ref().filter(|_| !self.fresh)?).ok()?;
        cluster::parse_json(&text).ok().filter(|kept| kept.name == self.key)
    }

    /// Keeps `topology`. A directory that can't be written means measuring again next time.
    pub(crate) fn store(&self, topology: &Topology) {
        let Some(path) = &self.path else { return };
        let named = Topology { name: self.key.to_owned(), ..topology.clone() };
        let text = cluster::to_json(&named).to_string();
        let write = || {
            fs::create_dir_all(path.parent()?).ok()?;
            // Aside first: another process may be reading.
            let aside = path.with_extension(format!("{}.tmp", std::process::id()));
            fs::write(&aside, text).ok()?;
            fs::rename(&aside, path).ok()
        };
        if write().is_none() {
            log::warn!("can't keep measurements in {}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel_host::NumaNode;
    use std::collections::BTreeSet;
    use std::sync::mpsc;

    #[test]
    fn one_measures_and_others_wait_for_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { cache_dir: Some(dir.path().to_owned()), ..Settings::default() };
        let cache = Cache::new(&settings, "a machine");
        assert!(cache.load().is_none());
        let topology = skeleton(&settings, &Cores::detect());
        thread::scope(|scope| {
            let (has_found, finds) = mpsc::channel();
            let settings = &settings;
            scope.spawn(move || has_found.send(Cache::new(settings, "a machine").load()).unwrap());
            assert!(finds.recv_timeout(10 * BETWEEN_LOOKS).is_err(), "it waits");
            cache.store(&topology);
            drop(cache);
            assert_eq!(finds.recv().unwrap().unwrap().classes, topology.classes);
        });
        assert!(Cache::new(&settings, "another").load().is_none(), "nobody is waited for");
    }

    #[test]
    fn who_waits_for_others_too_long_measures_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { cache_dir: Some(dir.path().to_owned()), ..Settings::default() };
        let stopped = Cache::new(&settings, "a machine");
        assert!(stopped.load().is_none());
        let since = Instant::now();
        assert!(Cache::new(&settings, "a machine").load().is_none());
        assert!(since.elapsed() >= MOST_WAITING);
    }

    #[test]
    fn each_node_has_room_for_two_of_the_largest_buffers_and_more() {
        for count in 1..=4 {
            let settings =
                Settings { staging_bytes: 192 << 20, pools: count as usize, ..Settings::default() };
            let node = |number| NumaNode { number, cores: BTreeSet::from([number as usize]) };
            let nodes: Vec<_> = (0..count).map(node).collect();
            let allowed = (0..count as usize).collect();
            let topology = skeleton(&settings, &Cores { allowed, nodes });
            assert_eq!(topology.classes[0].memories.len(), count as usize);
            let room = settings.pool_bytes();
            assert!(2 * topology.th_bytes < room, "{count} nodes: {} of {room}", topology.th_bytes);
        }
    }
}
