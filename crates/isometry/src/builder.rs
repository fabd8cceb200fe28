//! How a machine is set up.

use crate::discover::{self, Found, LARGEST_BUFFER_PARTS};
use crate::disks::{Disks, check_path};
use crate::machine::Machine;
use crate::runtime::{Clock, Core, NewChannel, Shared};
use crate::trace::Recorder;
use crate::{ArgumentError, Error};
use channel::{Provider, Regions};
use channel_host::{Cores, HostProvider, Limits, MemcpyChannel, MemcpyConfig, Pages};
use engine::{ChannelConfig, EngineConfig, Policy, PoolConfig};
use model::{ChannelId, ChannelKind, MemoryId, NodeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One part in so many of a pool is kept for what is more urgent than what holds the rest.
const RESERVE_PARTS: u64 = 4;

/// The settings of a [`Machine`]. What can be measured is not among them.
#[derive(Debug, Clone, Default)]
pub struct MachineBuilder {
    lanes: Option<usize>,
    staging_bytes: Option<u64>,
    largest_buffer_bytes: u64,
    disk: Vec<PathBuf>,
    cache_dir: Option<PathBuf>,
    remeasure: bool,
    assume: bool,
    trace: bool,
    policies: Policies,
    ageing: Option<Duration>,
}

/// The policies of the channels that have another than the default.
pub(crate) type Policies = HashMap<ChannelKind, Arc<dyn Policy>>;

impl MachineBuilder {
    /// The most threads that may copy inside host memory.
    pub const MAX_LANES: usize = 1024;

    /// Threads that copy inside host memory, 1 to [`MachineBuilder::MAX_LANES`]. Default: one for
    /// each core but one.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// The sum of all intermediate buffers in host memory. Default: a sixteenth of what the
    /// process may use, at most 192 MiB.
    #[must_use]
    pub fn staging(mut self, bytes: u64) -> Self {
        self.staging_bytes = Some(bytes);
        self
    }

    /// Takes more staging where it would not hold the intermediate buffers of copies that are
    /// planned with [`planner::Options::th_bytes`] of this much.
    #[must_use]
    pub fn largest_buffer(mut self, bytes: u64) -> Self {
        self.largest_buffer_bytes = bytes;
        self
    }

    /// A path whose file system is measured when the machine is opened; others are on their first
    /// use.
    #[must_use]
    pub fn disk(mut self, path: impl AsRef<Path>) -> Self {
        self.disk.push(path.as_ref().to_owned());
        self
    }

    /// Where measurements are kept. Default: the user's cache directory.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.cache_dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Measures the channels again, whatever was kept.
    #[must_use]
    pub fn remeasure(mut self, again: bool) -> Self {
        self.remeasure = again;
        self
    }

    /// Measures nothing and plans with assumed curves: for tests, and programs whose copies don't
    /// pay for a second of measuring.
    #[must_use]
    pub fn assume(mut self, assume: bool) -> Self {
        self.assume = assume;
        self
    }

    /// Keeps what [`Machine::trace_json`] returns.
    #[must_use]
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }

    /// What the channels of this kind serve next. Default: [`engine::ByPriority`].
    #[must_use]
    pub fn policy(mut self, kind: ChannelKind, policy: Arc<dyn Policy>) -> Self {
        self.policies.insert(kind, policy);
        self
    }

    /// Gives copies that have waited for a channel this long at most 5% of it, whatever its policy
    /// says. Default: none, so that urgent copies may hold up others for ever.
    #[must_use]
    pub fn ageing(mut self, after: Duration) -> Self {
        self.ageing = Some(after);
        self
    }

    /// Opens the machine.
    ///
    /// # Errors
    /// [`ArgumentError::Lanes`], [`ArgumentError::NulInPath`]; [`Error::Resource`] where the
    /// process has no descriptors or threads left; [`Error::Io`] where a path of
    /// [`MachineBuilder::disk`] is not there; [`Error::Channel`] where there is no memory for
    /// staging.
    pub fn open(self) -> Result<Machine, Error> {
        let regions = Arc::new(Regions::new());
        let clock = Clock::start();
        let cores = Cores::detect();
        let settings = self.settings(cores.nodes.len());
        let memcpy = self.memcpy(&cores)?;
        let Found { topology, memcpy, pools } = discover::host(&settings, &cores, memcpy);
        let mut configs = Vec::new();
        let mut arenas = Vec::new();
        for (&memory, node) in pools.iter().zip(&cores.nodes) {
            let node = (pools.len() > 1).then_some(node.number);
            let pages = Pages { prefault: false, huge: true, node };
            let bytes = settings.pool_bytes(pools.len());
            let region = regions.insert(HostProvider::new(memory, pages).allocate(bytes, 4096)?);
            let reserve_bytes = bytes / RESERVE_PARTS;
            configs.push(PoolConfig { memory, region, capacity_bytes: bytes, reserve_bytes });
            arenas.extend(regions.get(region));
        }
        let recorder = self.trace.then(|| Recorder::new(pools));
        let mut core = Core::new(self.engine(configs), recorder);
        let config = settings.channel(MEMCPY, ChannelKind::Memcpy);
        let memcpy = NewChannel { config, channel: Box::new(memcpy), pinned: false };
        core.add_channels([memcpy]).map_err(|e| Error::resource("watching a channel", e))?;
        let shared = Shared::new(core, topology, regions, clock);
        let shared = Arc::new(shared.map_err(|e| Error::resource("eventfd", e))?);
        let machine = Machine::start(shared, Disks::new(settings, arenas))?;
        for path in &self.disk {
            check_path(path)?;
            std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
            machine.disk_of(path)?;
        }
        Ok(machine)
    }

    fn engine(&self, pools: Vec<PoolConfig>) -> EngineConfig {
        EngineConfig { ageing: self.ageing, ..EngineConfig::new(Vec::new(), pools) }
    }

    fn memcpy(&self, cores: &Cores) -> Result<MemcpyChannel, Error> {
        let lanes = self.lanes.unwrap_or(cores.default_lanes());
        if !(1..=Self::MAX_LANES).contains(&lanes) {
            return Err(ArgumentError::Lanes { given: lanes, most: Self::MAX_LANES }.into());
        }
        let config = MemcpyConfig::among(cores, lanes);
        let what = || format!("starting {} threads for copies, see `lanes`", config.lanes);
        MemcpyChannel::new(&config).map_err(|e| Error::resource(what(), e))
    }

    fn settings(&self, nodes: usize) -> Settings {
        let user = || directories::ProjectDirs::from("", "", "isometry");
        let dir = || user().map(|dirs| dirs.cache_dir().to_owned());
        let limit = || Limits::detect().default_staging_bytes();
        let largest = self.largest_buffer_bytes.saturating_mul(LARGEST_BUFFER_PARTS);
        let least = largest.saturating_mul(nodes as u64).max(1 << 20);
        Settings {
            cache_dir: self.cache_dir.clone().or_else(dir),
            remeasure: self.remeasure,
            assume: self.assume,
            staging_bytes: self.staging_bytes.unwrap_or_else(limit).max(least),
            policies: self.policies.clone(),
        }
    }
}

/// What discovery needs of the settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) remeasure: bool,
    pub(crate) assume: bool,
    pub(crate) staging_bytes: u64,
    pub(crate) policies: Policies,
}

impl Settings {
    /// A channel of this kind, by its policy; how much it takes at once is its own matter.
    pub(crate) fn channel(&self, id: ChannelId, kind: ChannelKind) -> ChannelConfig {
        let config = ChannelConfig::new(id, 1);
        match self.policies.get(&kind) {
            Some(policy) => ChannelConfig { policy: Arc::clone(policy), ..config },
            None => config,
        }
    }

    /// The staging of each of `nodes` memories.
    pub(crate) fn pool_bytes(&self, nodes: usize) -> u64 {
        (self.staging_bytes / nodes.max(1) as u64).max(1)
    }
}

/// The node that we are.
pub(crate) const HERE: NodeId = NodeId(0);

/// The channel inside host memory is the first.
pub(crate) const MEMCPY: ChannelId = ChannelId { node: HERE, index: 0 };

/// Memory `index` of this node.
pub(crate) fn memory(index: u16) -> MemoryId {
    MemoryId { node: HERE, index }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_has_room_for_the_largest_buffers() {
        let builder = MachineBuilder::default().staging(8 << 20).largest_buffer(100 << 20);
        for nodes in 1..3 {
            let room = builder.settings(nodes).pool_bytes(nodes);
            assert!(room >= 300 << 20, "{nodes} nodes: {room}");
        }
        assert_eq!(MachineBuilder::default().staging(8 << 20).settings(2).pool_bytes(2), 4 << 20);
    }

    #[test]
    fn waiting_copies_age_where_it_is_asked_for() {
        let ageing = Duration::from_millis(5);
        let config = MachineBuilder::default().ageing(ageing).engine(Vec::new());
        assert_eq!(config.ageing, Some(ageing));
        assert_eq!(MachineBuilder::default().engine(Vec::new()).ageing, None);
    }
}
