//! Devices as memories: `fbm`, `fbm1`, … are theirs, `zcm` is what of the host's is near to those of one
//! API, and `zcm1` to those of another.
//!
//! Each has a channel to and from plain host memory, one to and from what is near, which are not equally
//! fast, and inside its own memory one that copies. Where it has kernels one converts there, and, where these
//! reach what is near, one on the way from there and one on the way back. What is on its way to the host or
//! from it shares a wire. Where it copies straight to others of its API there is one to all that are as near. To
//! it registered memory of a network is plain host memory, or has channels of its own where its API registers it.

mod choice;
#[cfg(test)]
mod full;
mod lost;
mod peers;
pub(crate) mod reg;
pub(crate) mod registered;

pub use choice::{Accelerators, Cuda};
pub(crate) use choice::{Choice, Group};
#[cfg(test)]
pub(crate) use full::Full;
pub(crate) use lost::Devices;

use crate::builder::Settings;
use crate::discover::{Cache, LARGEST_BUFFER_PARTS, machine_key};
use crate::{Error, probe};
use channel::accelerator::{Device, Direction, FbmProvider, Profile, Reach, ZcmProvider};
use channel::{Provider, Region};
use channel_host::{HostProvider, Limits, Pages};
use model::{
    Channel, ChannelError, ChannelErrorKind, ChannelKind, Curves, Memory, MemoryId, MemoryKind,
    NodeClass, NodeId, Throughput, Topology, Wire,
};
use std::collections::HashMap;
use std::sync::Arc;

/// The staging of a device that converts takes at most this part of its memory.
const STAGING_PARTS: u64 = 16;

/// What each side of a measurement between the host and a device with memory of its own has, where the device
/// allocates that much.
const SIDE_BYTES: u64 = 32 << 20;
/// As [`SIDE_BYTES`], inside such devices: more than their caches hold.
const INSIDE_BYTES: u64 = 128 << 20;

/// Who makes regions of the memories that devices have or are near to.
pub(crate) type Providers = HashMap<MemoryId, Box<dyn Provider>>;

/// Makes regions of host memory that somebody else touches: asks first whether there is room, since
/// he who touches it is killed where there is none.
#[derive(Debug)]
struct Bounded<P>(P);

impl<P: Provider> Provider for Bounded<P> {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        if let Some(why) = Limits::detect().refusal(len_bytes, true) {
            let detail = format!("can't allocate {len_bytes} bytes for an accelerator: {why}");
            return Err(ChannelError::new(ChannelErrorKind::OutOfMemory, detail));
        }
        self.0.allocate(len_bytes, align_bytes)
    }
}

/// The device that pins what is near to all of `group`: the first that is not lost.
fn pinning(group: &Group) -> &Arc<dyn Device> {
    let is_there = |device: &&Arc<dyn Device>| !device.health().is_lost();
    group.iter().find(is_there).unwrap_or(&group[0])
}

/// Whether kernels of `device`, one of `group`, reach what is near to all of it.
fn reaches_near(device: &Arc<dyn Device>, group: &Group) -> bool {
    match device.profile().reach {
        Reach::Nothing => false,
        Reach::Own => Arc::ptr_eq(device, pinning(group)),
        Reach::All => true,
    }
}

/// Makes regions of host memory that are near to devices of one API.
#[derive(Debug)]
struct Near(MemoryId, Group);

impl Provider for Near {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        let Near(memory, devices) = self;
        let device = Arc::clone(pinning(devices));
        ZcmProvider::new(*memory, device).allocate(len_bytes, align_bytes)
    }
}

/// What devices add to a machine.
#[derive(Default)]
pub(crate) struct Added {
    /// In the order in which they follow the channels that were there.
    pub(crate) channels: Vec<(ChannelKind, Box<dyn channel::Channel>)>,
    pub(crate) providers: Providers,
    pub(crate) devices: Devices,
    /// The memories that have staging, and how much.
    pub(crate) staged: Vec<(MemoryId, u64)>,
}

/// The channels of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    kind: ChannelKind,
    direction: Direction,
    /// The kind of memory at the other end, FBM being that of other devices; the device's own where there is none.
    other: Option<MemoryKind>,
}

const WAYS: [Way; 8] = [
    way(ChannelKind::GpuWrite, Direction::Write, Some(MemoryKind::Sys)),
    way(ChannelKind::GpuWrite, Direction::Write, Some(MemoryKind::Zcm)),
    way(ChannelKind::GpuRead, Direction::Read, Some(MemoryKind::Sys)),
    way(ChannelKind::GpuRead, Direction::Read, Some(MemoryKind::Zcm)),
    way(ChannelKind::GpuCopy, Direction::Copy, None),
    way(ChannelKind::GpuConvert, Direction::Convert, None),
    way(ChannelKind::GpuConvert, Direction::ConvertWrite, Some(MemoryKind::Zcm)),
    way(ChannelKind::GpuConvert, Direction::ConvertRead, Some(MemoryKind::Zcm)),
];

/// The channel to other devices.
const TO_PEERS: Way = way(ChannelKind::GpuCopy, Direction::Copy, Some(MemoryKind::Fbm));

/// Those between a device and registered memory of a network that its API has registered too.
const REGISTERED: [Way; 2] = [
    way(ChannelKind::GpuWrite, Direction::Write, Some(MemoryKind::Reg)),
    way(ChannelKind::GpuRead, Direction::Read, Some(MemoryKind::Reg)),
];

const fn way(kind: ChannelKind, direction: Direction, other: Option<MemoryKind>) -> Way {
    Way { kind, direction, other }
}

impl Way {
    /// Whether the other end is host memory.
    fn joins_host(self) -> bool {
        self.other.is_some_and(|kind| kind != MemoryKind::Fbm)
    }

    /// What each side of a measurement has, on a device with this profile.
    fn side_bytes(self, profile: &Profile) -> u64 {
        let bytes = match (profile.shares_host_memory, self.joins_host()) {
            (true, _) => probe::side_bytes(),
            (false, true) => SIDE_BYTES,
            (false, false) => INSIDE_BYTES,
        };
        bytes.min(profile.most_bytes / 4)
    }

    /// Whether kernels convert between the device's memory and the host's.
    fn converts_host(self) -> bool {
        self.joins_host() && self.direction.converts()
    }
}

/// The channels of a device.
fn ways(profile: &Profile) -> Vec<Way> {
    WAYS.into_iter().filter(|way| profile.has(way.direction)).collect()
}

/// Those channels of a device that are measured together, and kept.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// Those that any machine has.
    Usual,
    /// That to others, of which this is one.
    Peers(&'a Arc<dyn Device>),
    Registered,
}

impl Part<'_> {
    fn ways(self, profile: &Profile) -> Vec<Way> {
        match self {
            Part::Usual => ways(profile),
            Part::Peers(_) => vec![TO_PEERS],
            Part::Registered => REGISTERED.to_vec(),
        }
    }

    /// What it is called behind the device.
    fn name(self) -> String {
        match self {
            Part::Usual => String::new(),
            Part::Peers(peer) => format!(" to {}", peer.profile().key),
            Part::Registered => " and registered memory".to_owned(),
        }
    }
}

/// What a channel of a device reaches.
#[derive(Debug, Clone, PartialEq)]
struct Rate {
    way: Way,
    curves: Curves,
    /// Of a request that moves next to nothing.
    latency_ns: u64,
}

/// The channels that a device has, and what they reach.
#[derive(Debug, Clone, PartialEq)]
struct Rates {
    ways: Vec<Rate>,
    assumed: bool,
}

/// Adds `devices` to `class`, whose memories so far are host memory, and its only channel inside it. A
/// device that takes no channels is left out and logged.
pub(crate) fn add(class: &mut NodeClass, devices: &[Group], settings: &Settings) -> Added {
    let mut added = Added::default();
    for group in devices {
        let near = add_near(class, group, settings, &mut added);
        let mut members = Vec::new();
        for device in group {
            let mut rates = rates(device, Part::Usual, settings);
            let reaches = reaches_near(device, group);
            rates.ways.retain(|rate| reaches || !rate.way.converts_host());
            let made = rates.ways.iter().map(|rate| device.channel(rate.way.direction, None));
            match made.collect::<Result<Vec<_>, _>>() {
                Ok(made) => {
                    let made = (&rates, made);
                    let own = add_device(class, (device, near), made, settings, &mut added);
                    members.push((own, device));
                }
                Err(error) => log::warn!("an accelerator is left out: {error}"),
            }
        }
        peers::join(class, &members, settings, &mut added.channels);
    }
    added
}

/// Adds what of the host's is near to devices of one API, which Memcpy reaches as it reaches the rest.
fn add_near(class: &mut NodeClass, group: &Group, settings: &Settings, added: &mut Added) -> u16 {
    let name = numbered(class, "zcm", MemoryKind::Zcm);
    let near = push_memory(class, name, MemoryKind::Zcm, (None, None));
    for memcpy in class.channels.iter_mut().filter(|c| c.kind == ChannelKind::Memcpy) {
        memcpy.from.push(near);
        memcpy.to.push(near);
    }
    let memory = settings.memory(near);
    added.staged.push((memory, settings.pool_bytes()));
    added.providers.insert(memory, Box::new(Bounded(Near(memory, group.clone()))));
    near
}

/// Adds the memory of a device and its channels, which reach these rates, and says which it is.
fn add_device(
    class: &mut NodeClass,
    (device, near): (&Arc<dyn Device>, u16),
    (rates, made): (&Rates, Vec<Box<dyn channel::Channel>>),
    settings: &Settings,
    added: &mut Added,
) -> u16 {
    let (name, profile) = (numbered(class, "fbm", MemoryKind::Fbm), device.profile());
    // Nothing passes through a device but what is converted there.
    let converts = rates.ways.iter().any(|rate| rate.way.direction == Direction::Convert);
    let staging_bytes = if converts { staging_bytes(&profile, settings) } else { 0 };
    let sizes = (Some(profile.memory_bytes), Some(staging_bytes / LARGEST_BUFFER_PARTS));
    let own = push_memory(class, name.clone(), MemoryKind::Fbm, sizes);
    push_channels(class, &name, (own, near), rates);
    for (rate, channel) in rates.ways.iter().zip(made) {
        added.channels.push((rate.way.kind, channel));
    }
    let memory = settings.memory(own);
    added.devices.add(memory, Arc::clone(device));
    if converts {
        added.staged.push((memory, staging_bytes));
    }
    added.providers.insert(memory, of_device(memory, device));
    own
}

/// Who makes regions of `device`'s memory.
fn of_device(memory: MemoryId, device: &Arc<dyn Device>) -> Box<dyn Provider> {
    let provider = FbmProvider::new(memory, Arc::clone(device));
    let is_host = device.profile().shares_host_memory;
    if is_host { Box::new(Bounded(provider)) } else { Box::new(provider) }
}

/// The staging of a device that has any.
fn staging_bytes(profile: &Profile, settings: &Settings) -> u64 {
    settings.pool_bytes().min(profile.memory_bytes / STAGING_PARTS)
}

/// What the next memory of a kind is called: `name`, or that with a number.
fn numbered(class: &NodeClass, name: &str, kind: MemoryKind) -> String {
    match class.memories.iter().filter(|memory| memory.kind == kind).count() {
        0 => name.to_owned(),
        before => format!("{name}{before}"),
    }
}

/// Adds a memory of this capacity and largest buffer, and says which it is.
fn push_memory(
    class: &mut NodeClass,
    name: String,
    kind: MemoryKind,
    (capacity_bytes, th_bytes): (Option<u64>, Option<u64>),
) -> u16 {
    class.memories.push(Memory { name, kind, capacity_bytes, th_bytes, port: None });
    u16::try_from(class.memories.len() - 1).unwrap_or(u16::MAX)
}

/// Adds the channels of the device whose memory is `own`, to which `near` is near, and what they share.
fn push_channels(class: &mut NodeClass, name: &str, (own, near): (u16, u16), rates: &Rates) {
    let wire = u16::try_from(class.wires.len()).unwrap_or(u16::MAX);
    let shared = rates.ways.iter().filter(|rate| rate.way.joins_host());
    let rate = shared.map(|rate| rate.curves.run.peak()).fold(1.0, f64::max);
    class.wires.push(Wire { name: name.to_owned(), rate, half_duplex: false });
    for rate in &rates.ways {
        let is_plain = |(_, memory): &(u16, &Memory)| memory.kind == MemoryKind::Sys;
        let host = match rate.way.other {
            Some(MemoryKind::Zcm) => vec![near],
            _ => (0..).zip(&class.memories).filter(is_plain).map(|(index, _)| index).collect(),
        };
        let side = |is_device| if is_device { vec![own] } else { host.clone() };
        let direction = rate.way.direction;
        let ends = (side(direction.reads_device()), side(direction.writes_device()));
        let wire = rate.way.joins_host().then_some(wire);
        class.channels.push(Channel { wire, ..rate.channel(ends, rates.assumed) });
    }
}

impl Rate {
    /// The channel from and to these memories that reaches it.
    fn channel(&self, (from, to): (Vec<u16>, Vec<u16>), assumed: bool) -> Channel {
        Channel {
            kind: self.way.kind,
            from,
            to,
            curves: self.curves.clone(),
            latency_ns: self.latency_ns,
            wire: None,
            in_flight: None,
            stream_from_bytes: None,
            assumed,
        }
    }
}

/// These channels of `device` and what they reach, assumed where that can't be [found].
fn rates(device: &Arc<dyn Device>, part: Part<'_>, settings: &Settings) -> Rates {
    found(device, part, settings).unwrap_or_else(|error| {
        log::warn!("the rates of {}{} are assumed: {error}", device.health().name(), part.name());
        Rates::assumed(&part.ways(&device.profile()))
    })
}

/// These channels of `device` and what they reach: kept or measured, or assumed where nothing is to be measured.
/// Where they are kept nothing runs on the device, so that its kernels are not made.
fn found(device: &Arc<dyn Device>, part: Part<'_>, settings: &Settings) -> Result<Rates, Error> {
    let (profile, part_name) = (device.profile(), part.name());
    let ways = part.ways(&profile);
    if settings.assume {
        return Ok(Rates::assumed(&ways));
    }
    let key = format!("{}{part_name}, {}", profile.key, machine_key());
    let cache = Cache::new(settings, &key);
    if let Some(rates) = cache.load().and_then(|kept| Rates::of_topology(kept, &ways)) {
        return Ok(rates);
    }
    let measured = Rates::measured((device, part), &ways);
    measured.inspect(|rates| cache.store(&rates.to_topology()))
}

impl Rates {
    fn measured((device, part): (&Arc<dyn Device>, Part<'_>), ways: &[Way]) -> Result<Self, Error> {
        let own = MemoryId { node: NodeId(0), index: 1 };
        let side = |kind: Option<MemoryKind>, bytes: u64| -> Result<Arc<Region>, ChannelError> {
            let pages = Pages { prefault: true, huge: true, node: None };
            let other = MemoryId { node: NodeId(0), index: 0 };
            let host = || HostProvider::new(other, pages).allocate(bytes, 4096);
            let region = match kind {
                Some(MemoryKind::Zcm) => {
                    Bounded(ZcmProvider::new(other, Arc::clone(device))).allocate(bytes, 4096)
                }
                Some(_) => match part {
                    Part::Peers(peer) => of_device(other, peer).allocate(bytes, 4096),
                    Part::Registered => {
                        reg::registered(device.as_ref(), &Arc::new(host()?)).unwrap_or_else(host)
                    }
                    Part::Usual => host(),
                },
                None => of_device(own, device).allocate(bytes, 4096),
            };
            let is_host = |region: &&Region| region.host_span().is_some();
            region.as_ref().ok().filter(is_host).map(probe::fill);
            region.map(Arc::new)
        };
        let rate = |&way: &Way| -> Result<Rate, Error> {
            let profile = device.profile();
            let bytes = way.side_bytes(&profile);
            let (other, own) = (side(way.other, bytes)?, side(None, bytes)?);
            let mut channel = device.channel(way.direction, None)?;
            let ends = if way.direction.reads_device() { (own, other) } else { (other, own) };
            let (curves, latency_ns) = probe::device(channel.as_mut(), ends)?;
            Ok(Rate { way, curves, latency_ns })
        };
        let mut measured = Vec::with_capacity(ways.len());
        for way in ways {
            match (rate(way), device.health().check_for(way.direction)) {
                (Ok(rate), _) => measured.push(rate),
                (Err(_), Err(why)) if why.kind != ChannelErrorKind::DeviceLost => {
                    log::warn!("an accelerator has a channel fewer: {why}");
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(Rates { ways: measured, assumed: false })
    }

    /// What a device of the last years reaches, roughly.
    fn assumed(ways: &[Way]) -> Self {
        let curve = |points: &[(u64, f64)]| {
            let curve = Throughput::measured(points.to_vec());
            curve.unwrap_or_else(|_| unreachable!("the points ascend"))
        };
        let of = |&way: &Way| {
            let top = match way.other {
                Some(MemoryKind::Sys) => 5e9,
                Some(MemoryKind::Fbm) => 20e9,
                Some(_) => 10e9,
                None => 100e9,
            };
            // A rect takes a command, however short its rows are, and a kernel takes many elements.
            let (element, line) = match way.direction {
                by_kernels if by_kernels.converts() => (top / 3.0, top / 2.0),
                _ => (top / 500.0, top / 100.0),
            };
            let curves = Curves {
                run: curve(&[(64, line), (4096, line.max(top / 4.0)), (1 << 16, top)]),
                interleave: Some(curve(&[(4, element), (64, line)])),
                transpose: Some(curve(&[(4, element), (64, line)])),
                gather: Some(curve(&[(4096, top / 20.0), (1 << 16, top)])),
            };
            Rate { way, curves, latency_ns: 20_000 }
        };
        Rates { ways: ways.iter().map(of).collect(), assumed: true }
    }

    /// As a cluster of one device, which is what the cache keeps; other devices are host memory there.
    fn to_topology(&self) -> Topology {
        let mut class = NodeClass {
            name: "node".to_owned(),
            first: 0,
            count: 1,
            memories: Vec::new(),
            channels: Vec::new(),
            wires: Vec::new(),
        };
        push_memory(&mut class, "sys".to_owned(), MemoryKind::Sys, (None, None));
        let near = push_memory(&mut class, "zcm".to_owned(), MemoryKind::Zcm, (None, None));
        let own = push_memory(&mut class, "fbm".to_owned(), MemoryKind::Fbm, (None, Some(0)));
        push_channels(&mut class, "fbm", (own, near), self);
        Topology {
            name: String::new(),
            generation: 0,
            th_bytes: 1 << 20,
            classes: vec![class],
            links: Vec::new(),
        }
    }

    /// What was kept of these channels. A device whose kernels could not be made has none there that convert.
    fn of_topology(topology: Topology, ways: &[Way]) -> Option<Self> {
        let channels = topology.classes.into_iter().next()?.channels;
        let is_converting = |channel: &Channel| channel.kind == ChannelKind::GpuConvert;
        let converts = channels.iter().any(is_converting);
        let ways = ways.iter().filter(|way| converts || !way.direction.converts());
        let kinds = channels.iter().map(|channel| channel.kind);
        if !kinds.eq(ways.clone().map(|way| way.kind)) {
            return None;
        }
        let rate = |(&way, Channel { curves, latency_ns, .. })| Rate { way, curves, latency_ns };
        Some(Rates { ways: ways.zip(channels).map(rate).collect(), assumed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cache_keeps_is_what_was_measured() {
        let mut rates = Rates::assumed(&WAYS);
        rates.assumed = false;
        rates.ways[2].latency_ns = 1234;
        let text = cluster::to_json(&rates.to_topology()).to_string();
        let kept = cluster::parse_json(&text).unwrap();
        let of = |converts, reach| ways(&Full::new("a", converts, reach).profile());
        for ways in [of(false, Reach::All), of(true, Reach::Nothing), vec![TO_PEERS]] {
            assert_eq!(Rates::of_topology(kept.clone(), &ways), None, "ways more");
        }
        let ways = of(true, Reach::All);
        assert_eq!(Rates::of_topology(kept.clone(), &ways), Some(rates.clone()));
        rates.ways.retain(|rate| !rate.way.direction.converts());
        let without = rates.to_topology();
        let kept_without = Rates::of_topology(without.clone(), &ways);
        assert_eq!(kept_without, Some(rates), "it had no kernels");
        let mut fewer = without;
        fewer.classes[0].channels.pop();
        let none = Topology { classes: Vec::new(), ..kept };
        for topology in [fewer, none] {
            assert_eq!(Rates::of_topology(topology, &ways), None);
        }
    }

    /// A machine before devices are added to it.
    fn host_only() -> NodeClass {
        let class = r#"
            th_bytes = 1
            [[node]]
            name = "node"
            memory = [{ name = "sys", kind = "SYS" }]
            channel = [{ kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = 9e9 }]
        "#;
        cluster::parse_toml(class).unwrap().classes.remove(0)
    }

    #[test]
    fn what_has_the_hosts_memory_is_measured_in_as_much_as_the_host() {
        let own = Profile { most_bytes: u64::MAX, ..Full::new("a", true, Reach::All).profile() };
        let shared = Profile { shares_host_memory: true, ..own.clone() };
        assert_eq!(WAYS.map(|way| way.side_bytes(&shared)), [probe::side_bytes(); 8]);
        let of_own = [WAYS[0], WAYS[4]].map(|way| way.side_bytes(&own));
        assert_eq!(of_own, [SIDE_BYTES, INSIDE_BYTES]);
        let little = Profile { most_bytes: 4096, ..shared };
        assert_eq!(WAYS[0].side_bytes(&little), 1024);
    }

    #[test]
    fn only_what_converts_has_staging() {
        let mut class = host_only();
        let device =
            |converts| Arc::new(Full::new("a", converts, Reach::Nothing)) as Arc<dyn Device>;
        let settings = Settings { assume: true, staging_bytes: 96 << 20, ..Settings::default() };
        let added = add(&mut class, &[[false, true].map(device).to_vec()], &settings);
        let name = |memory: MemoryId| class.memories[usize::from(memory.index)].name.as_str();
        let staged: Vec<_> = added.staged.iter().map(|&(memory, _)| name(memory)).collect();
        assert_eq!(staged, ["zcm", "fbm1"]);
        assert_eq!(added.staged[1].1, 64 << 20, "a sixteenth of what it has");
        let buffers: Vec<_> = class.memories.iter().map(|memory| memory.th_bytes).collect();
        assert_eq!(buffers[2..], [Some(0), Some((64 << 20) / LARGEST_BUFFER_PARTS)]);
        assert_eq!(class.channels.iter().filter(|c| c.kind == ChannelKind::GpuConvert).count(), 1);
    }

    /// How many channels convert on the way to or from what is near, of each device of a group whose first
    /// is lost or not.
    fn converting_near(reach: Reach, is_lost: bool) -> Vec<usize> {
        let device = |name| Arc::new(Full::new(name, true, reach)) as Arc<dyn Device>;
        let group = ["a", "b"].map(device).to_vec();
        if is_lost {
            group[0].health().failed(ChannelErrorKind::DeviceLost, "it fell");
        }
        let mut class = host_only();
        let settings = Settings { assume: true, ..Settings::default() };
        let added = add(&mut class, &[group], &settings);
        assert_eq!(added.channels.len() + 1, class.channels.len(), "and Memcpy");
        let at = |name: &str| class.memories.iter().position(|m| m.name == name).unwrap() as u16;
        let (near, wires) = (at("zcm"), [Some(0), Some(1)]);
        let converts = |c: &&Channel| c.kind == ChannelKind::GpuConvert && c.from != c.to;
        let all: Vec<_> = class.channels.iter().filter(converts).collect();
        let count = |(own, wire)| {
            let ends = [(vec![near], vec![own]), (vec![own], vec![near])];
            let is_its = |c: &&&Channel| ends.contains(&(c.from.clone(), c.to.clone()));
            all.iter().filter(is_its).filter(|c| c.wire == wire).count()
        };
        ["fbm", "fbm1"].map(at).into_iter().zip(wires).map(count).collect()
    }

    #[test]
    fn kernels_are_given_only_what_they_reach() {
        for (reach, expected) in
            [(Reach::Nothing, [0, 0]), (Reach::Own, [2, 0]), (Reach::All, [2, 2])]
        {
            assert_eq!(converting_near(reach, false), expected, "{reach:?}");
        }
        assert_eq!(
            converting_near(Reach::Own, true),
            [0, 2],
            "the second pins where the first can't"
        );
    }

    #[test]
    fn a_device_without_kernels_is_measured_and_kept_without_them() {
        let test = "a_device_without_kernels_is_measured_and_kept_without_them";
        let Ok(found) = channel_opencl::find() else { return println!("skipped: {test}") };
        let device: Arc<dyn Device> = Arc::new(found[0].open().unwrap());
        device.health().lose_kernels("no compiler");
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { cache_dir: Some(dir.path().to_owned()), ..Settings::default() };
        let measured = rates(&device, Part::Usual, &settings);
        let directions: Vec<_> = measured.ways.iter().map(|rate| rate.way.direction).collect();
        assert_eq!(directions[4..], [Direction::Copy]);
        assert!(!measured.assumed);
        assert_eq!(rates(&device, Part::Usual, &settings), measured);
    }
}
