//! How a machine is set up.

use crate::accelerators::{self, Accelerators, Added, Choice, Cuda, Devices, Group, Providers};
use crate::discover::{self, Found, LARGEST_BUFFER_PARTS};
use crate::disks::{Disks, check_path};
use crate::machine::Machine;
use crate::nodes::{LINK_OF_HOSTS, Nodes, Own, share_core};
use crate::runtime::{Clock, Core, NewChannel, Shared};
use crate::trace::Recorder;
use crate::{ArgumentError, Error};
use channel::accelerator::Profile;
use channel::{Channel, Provider, Region, Regions};
use channel_host::{Cores, HostProvider, Limits, MemcpyChannel, MemcpyConfig, NumaNode, Pages};
use channel_remote::RemoteChannel;
use engine::{ChannelConfig, EngineConfig, PeerConfig, Policy, PoolConfig};
use model::{ChannelError, ChannelId, ChannelKind, MemoryId, NodeId, RegionId, Topology};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

/// One part in so many of a pool is kept for what is more urgent than what holds the rest.
const RESERVE_PARTS: u64 = 4;

/// How often who waits for others looks whether it is interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// The settings of a [`Machine`]. What can be measured is not among them.
#[derive(Debug, Clone, Default)]
pub struct MachineBuilder {
    lanes: Option<usize>,
    staging_bytes: Option<u64>,
    largest_buffer_bytes: u64,
    disk: Vec<PathBuf>,
    own: Own,
    cache_dir: Option<PathBuf>,
    remeasure: bool,
    assume: bool,
    trace: bool,
    policies: Policies,
    ageing: Option<Duration>,
    accelerators: Choice,
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

    /// A directory in which other nodes may open and make files, once this one has joined them: what
    /// lies below it once symbolic links are followed, and nothing else. Default: none.
    #[must_use]
    pub fn serve_files(mut self, dir: impl AsRef<Path>) -> Self {
        self.own.served.push(dir.as_ref().to_owned());
        self
    }

    /// What other nodes call this one, once it has joined them: letters, digits, `_` and `-`. Of nodes of
    /// one name at most one is there at a time; the one that comes after it is another node. Default:
    /// `node` and its rank.
    #[must_use]
    pub fn node_name(mut self, name: &str) -> Self {
        self.own.name = Some(name.to_owned());
        self
    }

    /// Which devices of OpenCL are memories of the machine. Default: what the variable ISOMETRY_OPENCL
    /// says (`gpu`, `all` or `none`), else [`Accelerators::Gpu`].
    #[must_use]
    pub fn accelerators(mut self, which: Accelerators) -> Self {
        self.accelerators.opencl = Some(which);
        self
    }

    /// Which devices of CUDA are memories of the machine. Default: what the variable ISOMETRY_CUDA says
    /// (`all`, `none` or the path of a driver), else [`Cuda::All`].
    #[must_use]
    pub fn cuda(mut self, which: Cuda) -> Self {
        self.accelerators.cuda = Some(which);
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
    /// [`ArgumentError::Lanes`], [`ArgumentError::NulInPath`], [`ArgumentError::Accelerators`]
    /// and [`ArgumentError::Cuda`] for a variable that names none; [`Error::Resource`] where the
    /// process has no descriptors or threads left; [`Error::Io`] where a path of
    /// [`MachineBuilder::disk`] is not there;
    /// [`Error::Channel`] where there is no memory for staging.
    pub fn open(self) -> Result<Machine, Error> {
        self.make(None)
    }

    /// Opens the machine as one node among those that `config` speaks of; returns when all have
    /// joined and said what they are, or, where it comes later, all those that are there. How much
    /// memory it registers follows from [`MachineBuilder::staging`], whatever `config` says.
    ///
    /// # Errors
    /// As [`MachineBuilder::open`]; [`Error::Io`] where a directory of
    /// [`MachineBuilder::serve_files`] is not there; [`Error::Nodes`] where not all join in time, or
    /// one is refused; [`Error::Introduction`]; [`ArgumentError::NodeName`], and [`ArgumentError::NodeNameTaken`] where
    /// that node does not go within ten seconds.
    pub fn join(self, config: &fabric::Config) -> Result<Machine, Error> {
        self.make(Some(config))
    }

    /// As [`MachineBuilder::join`], but ends with [`Error::TimedOut`] too once `is_interrupted`, which is
    /// asked ten times a second. What has joined others by then leaves them at the end of its time.
    ///
    /// # Errors
    /// As [`MachineBuilder::join`]; [`Error::Resource`] where no thread can be started.
    pub fn join_unless(
        self,
        config: &fabric::Config,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Machine, Error> {
        let (told, heard) = mpsc::channel();
        let config = config.clone();
        let join = move || {
            // A machine that nobody waits for any more is dropped, and so leaves.
            let _ = told.send(self.join(&config));
        };
        let thread = Builder::new().name("isometry-join".to_owned()).spawn(join);
        let thread = thread.map_err(|e| Error::resource("starting a thread that joins", e))?;
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(joined) => return joined,
                Err(RecvTimeoutError::Timeout) if is_interrupted() => return Err(Error::TimedOut),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = thread.join().expect_err("it has told nothing");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    fn make(self, joins: Option<&fabric::Config>) -> Result<Machine, Error> {
        let (regions, clock, cores) = (Regions::new(), Clock::start(), Cores::detect());
        let memcpy = self.memcpy(&cores)?;
        let devices = self.accelerators.open()?;
        // What a device has for itself doesn't count.
        let counts = |profile: &Profile| profile.converts && profile.shares_host_memory;
        let of_host = devices.iter().flatten().filter(|d| counts(&d.profile())).count();
        let others = usize::from(joins.is_some()) + devices.len() + of_host;
        let mut settings = self.settings(cores.nodes.len() + others);
        let own = Own { measures: !self.assume, ..self.own.clone() };
        let join = |config| Nodes::join(config, settings.pool_bytes(), &own);
        let nodes = joins.map(join).transpose()?;
        settings.here = nodes.as_ref().map_or(0, |nodes| nodes.here().0);
        let Found { topology, memcpy, pools } = discover::host(&settings, &cores, memcpy);
        let memcpy: Box<dyn Channel> = Box::new(memcpy);
        let channels = vec![(settings.channel_id(0), ChannelKind::Memcpy, memcpy)];
        let mut made = Made { topology, channels, pools: Vec::new(), arenas: Vec::new() };
        made.add_pools(&regions, &settings, pools.iter().copied().zip(&cores.nodes))?;
        let (providers, devices) = made.add_devices(&regions, &settings, &devices)?;
        if let (Some(nodes), Some(config)) = (&nodes, joins) {
            made.introduce((nodes, config.timeout), (&regions, &devices), &settings)?;
        }
        let devices = (providers, devices);
        let Made { topology, channels, pools, arenas } = made;
        let recorder = self.trace.then(|| Recorder::new(pools.iter().map(|p| p.memory).collect()));
        let mut core = Core::new(self.engine(pools, nodes.as_deref()), recorder);
        let driven = channels.into_iter().map(|(id, kind, channel)| NewChannel {
            config: settings.channel(id, kind),
            channel,
            pinned: false,
        });
        core.add_channels(driven).map_err(|e| Error::resource("watching a channel", e))?;
        let disks = Disks::new(settings, arenas);
        let shared = Shared::new(core, (topology, nodes), (regions, disks, devices), clock);
        let shared = Arc::new(shared.map_err(|e| Error::resource("eventfd", e))?);
        // What was lost as it was made ready.
        shared.close_lost();
        shared.open_rooms();
        let machine = Machine::start(shared)?;
        for path in &self.disk {
            check_path(path)?;
            std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
            machine.shared.disk_of(path)?;
        }
        Ok(machine)
    }

    fn engine(&self, pools: Vec<PoolConfig>, nodes: Option<&Nodes>) -> EngineConfig {
        let peers = nodes.map(|nodes| PeerConfig::new(nodes.here()));
        EngineConfig { ageing: self.ageing, peers, ..EngineConfig::new(Vec::new(), pools) }
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

    /// For `pools` memories that have staging.
    fn settings(&self, pools: usize) -> Settings {
        let user = || directories::ProjectDirs::from("", "", "isometry");
        let dir = || user().map(|dirs| dirs.cache_dir().to_owned());
        let limit = || Limits::detect().default_staging_bytes();
        let largest = self.largest_buffer_bytes.saturating_mul(LARGEST_BUFFER_PARTS);
        let least = largest.saturating_mul(pools as u64).max(1 << 20);
        Settings {
            here: 0,
            pools,
            cache_dir: self.cache_dir.clone().or_else(dir),
            remeasure: self.remeasure,
            assume: self.assume,
            staging_bytes: self.staging_bytes.unwrap_or_else(limit).max(least),
            policies: self.policies.clone(),
        }
    }
}

/// What a machine is made of.
struct Made {
    topology: Topology,
    channels: Vec<(ChannelId, ChannelKind, Box<dyn Channel>)>,
    pools: Vec<PoolConfig>,
    /// The staging that direct I/O reaches.
    arenas: Vec<Arc<Region>>,
}

impl Made {
    /// Allocates the staging of each memory.
    fn add_pools<'a>(
        &mut self,
        regions: &Regions,
        settings: &Settings,
        memories: impl ExactSizeIterator<Item = (MemoryId, &'a NumaNode)>,
    ) -> Result<(), Error> {
        let several = memories.len() > 1;
        for (memory, node) in memories {
            let pages = Pages { prefault: false, huge: true, node: several.then_some(node.number) };
            let bytes = settings.pool_bytes();
            let region = regions.insert(HostProvider::new(memory, pages).allocate(bytes, 4096)?);
            self.add_pool(regions, (memory, region, bytes));
        }
        Ok(())
    }

    fn add_pool(&mut self, regions: &Regions, pool: (MemoryId, RegionId, u64)) {
        let pool = pool_of(pool);
        self.arenas.extend(regions.get(pool.region).filter(|region| region.host_span().is_some()));
        self.pools.push(pool);
    }

    /// Adds the memories and channels of `devices`, and staging near to them.
    fn add_devices(
        &mut self,
        regions: &Regions,
        settings: &Settings,
        devices: &[Group],
    ) -> Result<(Providers, Devices), Error> {
        let class = &mut self.topology.classes[0];
        let first = u16::try_from(class.channels.len()).unwrap_or(u16::MAX);
        let Added { channels, providers, devices, staged } =
            accelerators::add(class, devices, settings);
        let named = (first..).zip(channels);
        self.channels.extend(
            named.map(|(index, (kind, channel))| (settings.channel_id(index), kind, channel)),
        );
        for (memory, bytes) in staged {
            match providers[&memory].allocate(bytes, 4096) {
                Ok(region) => self.add_pool(regions, (memory, regions.insert(region), bytes)),
                Err(error) => self.leave_without_staging(memory, &error),
            }
        }
        Ok((providers, devices))
    }

    /// Has nothing pass through `memory`, whose staging can't be had.
    fn leave_without_staging(&mut self, memory: MemoryId, error: &ChannelError) {
        let class = &mut self.topology.classes[0];
        let Some(memory) = class.memories.get_mut(usize::from(memory.index)) else { return };
        memory.th_bytes = Some(0);
        log::warn!("nothing passes through `{}`, which has no room for that: {error}", memory.name);
    }

    /// Becomes a node among others.
    fn introduce(
        &mut self,
        (nodes, timeout): (&Nodes, Duration),
        (regions, devices): (&Regions, &Devices),
        settings: &Settings,
    ) -> Result<(), Error> {
        let mut class = self.topology.classes.remove(0);
        if Cores::detect().allowed.len() == 1 {
            share_core(&mut class);
        }
        let (registered, by_devices) = nodes.add_registered(&mut class, (regions, devices));
        let reg = (registered.memory.index, by_devices);
        let channels = accelerators::reg::join(&mut class, reg, devices, settings).into_iter();
        let identified = |(number, kind, channel)| (settings.channel_id(number), kind, channel);
        self.channels.extend(channels.map(identified));
        self.add_pool(regions, (registered.memory, registered.region, registered.bytes));
        self.pools.iter().for_each(|pool| nodes.open(pool.region));
        for memory in &mut class.memories {
            memory.th_bytes = memory.th_bytes.or(Some(settings.th_bytes()));
        }
        let of_hosts = RemoteChannel::new(Arc::clone(&nodes.fabric));
        let mut of_hosts = of_hosts.map_err(no_thread)?;
        let rates = nodes.to_measure().and_then(|node| nodes.measure(&mut of_hosts, node));
        let link = nodes.link(LINK_OF_HOSTS);
        self.channels.push((link, ChannelKind::RemoteMemcpy, Box::new(of_hosts)));
        self.topology = nodes.introduce((class, rates), &registered, timeout)?;
        Ok(())
    }
}

/// The pool of so many bytes in `memory`, which are the region.
pub(crate) fn pool_of((memory, region, capacity_bytes): (MemoryId, RegionId, u64)) -> PoolConfig {
    let reserve_bytes = capacity_bytes / RESERVE_PARTS;
    PoolConfig { memory, region, capacity_bytes, reserve_bytes }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::resource("starting a thread for puts", error)
}

/// What discovery needs of the settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Which node this is, by number.
    pub(crate) here: u32,
    /// How many memories have staging.
    pub(crate) pools: usize,
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

    /// The staging of each memory that has any.
    pub(crate) fn pool_bytes(&self) -> u64 {
        (self.staging_bytes / self.pools.max(1) as u64).max(1)
    }

    /// The largest intermediate buffer.
    pub(crate) fn th_bytes(&self) -> u64 {
        self.pool_bytes() / LARGEST_BUFFER_PARTS
    }

    /// Channel `index` of this node; the one inside host memory is the first.
    pub(crate) fn channel_id(&self, index: u16) -> ChannelId {
        ChannelId { node: NodeId(self.here), index }
    }

    /// Memory `index` of this node.
    pub(crate) fn memory(&self, index: u16) -> MemoryId {
        MemoryId { node: NodeId(self.here), index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerators::Full;
    use channel::accelerator::Device;
    use channel::accelerator::Reach;

    #[test]
    fn staging_has_room_for_the_largest_buffers() {
        let builder = MachineBuilder::default().staging(8 << 20).largest_buffer(100 << 20);
        for nodes in 1..3 {
            let room = builder.settings(nodes).pool_bytes();
            assert!(room >= 300 << 20, "{nodes} nodes: {room}");
        }
        assert_eq!(MachineBuilder::default().staging(8 << 20).settings(2).pool_bytes(), 4 << 20);
    }

    #[test]
    fn nothing_passes_through_a_device_without_room() {
        let builder = MachineBuilder::default().staging(8 << 20).assume(true);
        let (settings, regions, cores) = (builder.settings(2), Regions::new(), Cores::detect());
        let memcpy = builder.memcpy(&cores).unwrap();
        let Found { topology, .. } = discover::host(&settings, &cores, memcpy);
        let mut made = Made { topology, channels: vec![], pools: vec![], arenas: vec![] };
        let device: Arc<dyn Device> = Arc::new(Full::new("full", true, Reach::Nothing));
        made.add_devices(&regions, &settings, &[vec![device]]).unwrap();
        let class = &made.topology.classes[0];
        let device = |memory: &&model::Memory| memory.kind != model::MemoryKind::Sys;
        let rooms: Vec<_> = class.memories.iter().filter(device).map(|m| m.th_bytes).collect();
        assert_eq!(rooms, [Some(0), Some(0)], "near to the device, and its own");
        assert!(made.pools.is_empty());
        assert_eq!(made.channels.len(), 6, "it is a memory all the same");
    }

    #[test]
    fn waiting_copies_age_where_it_is_asked_for() {
        let ageing = Duration::from_millis(5);
        let config = MachineBuilder::default().ageing(ageing).engine(Vec::new(), None);
        assert_eq!(config.ageing, Some(ageing));
        assert_eq!(MachineBuilder::default().engine(Vec::new(), None).ageing, None);
    }
}
