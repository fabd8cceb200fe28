//! Devices that are lost while a machine runs, or whose kernels can't be made.
//!
//! **Hazard.** A device that is gone refuses each request, while plans still lead to it. **Guarantee.**
//! Once a request, an allocation or a fence was refused so, no plan leads to the device or through it, and who
//! asks for one hears why there is none. **Structure.** The device's channels join nothing any more, in a
//! topology of a new generation, which no plan that was kept is for, and which other nodes hear of before
//! they hear of any copy that has failed so; without kernels these are those that convert. Where a device does
//! not reach memory of another process, no link leads there from it, and where it does not reach another of this
//! machine's, no channel. Memories and channels keep their numbers, and host memory that was pinned by the device
//! remains what it is, host memory.

use crate::runtime::Shared;
use channel::accelerator::{Device, Direction, Interop};
use model::{Channel, ChannelError, ChannelKind, MemoryId, NodeClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The devices of a machine, by their own memories.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    all: BTreeMap<MemoryId, Arc<dyn Device>>,
    /// The memories that other nodes put to, of those that have one.
    rooms: Mutex<BTreeMap<MemoryId, MemoryId>>,
    /// What is closed of each that has not all its channels any more.
    closed: Mutex<BTreeMap<MemoryId, Closed>>,
    /// Those of others that no link or channel leads to any more from one.
    apart: Mutex<BTreeSet<(MemoryId, MemoryId)>>,
}

/// Which channels of a device are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closed {
    /// Those that convert.
    Convert,
    All,
}

impl Closed {
    /// What is closed of `device`, and why.
    fn of(device: &dyn Device) -> Option<(Closed, ChannelError)> {
        let health = device.health();
        let all = health.check().map_err(|why| (Closed::All, why));
        let some = health.check_for(Direction::Convert).map_err(|why| (Closed::Convert, why));
        all.and(some).err()
    }

    fn is_for(self, kind: ChannelKind) -> bool {
        self == Closed::All || kind == ChannelKind::GpuConvert
    }
}

impl Devices {
    pub(crate) fn add(&mut self, memory: MemoryId, device: Arc<dyn Device>) {
        self.all.insert(memory, device);
    }

    /// Adds the memory that other nodes put to of the device whose own is `own`.
    pub(crate) fn add_room(&self, own: MemoryId, room: MemoryId) {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).insert(own, room);
    }

    /// The memory that other nodes put to of the device whose own is `own`, if it has one.
    fn room(&self, own: MemoryId) -> Option<MemoryId> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).get(&own).copied()
    }

    /// All, with their memories.
    pub(crate) fn all(&self) -> Vec<(MemoryId, Arc<dyn Device>)> {
        self.all.iter().map(|(&memory, device)| (memory, Arc::clone(device))).collect()
    }

    /// Those whose memory has addresses, by their memories.
    pub(crate) fn interops(&self) -> impl Iterator<Item = (MemoryId, &dyn Interop)> {
        let all = self.all.iter();
        all.filter_map(|(&memory, device)| Some((memory, device.interop()?)))
    }

    /// The device whose memory is `memory`, where that has addresses.
    pub(crate) fn interop(&self, memory: MemoryId) -> Option<&dyn Interop> {
        self.all.get(&memory)?.interop()
    }

    /// Refuses where the device whose memory is `memory` is lost.
    pub(crate) fn check(&self, memory: MemoryId) -> Result<(), ChannelError> {
        self.all.get(&memory).map_or(Ok(()), |device| device.health().check())
    }

    /// Why the device whose memory is `memory` is lost, if that is one of this machine's, and is.
    fn why_lost(&self, memory: MemoryId) -> Option<String> {
        Some(self.all.get(&memory)?.health().check().err()?.detail)
    }

    /// The memories of those that are lost, by their numbers, and why these are.
    pub(crate) fn lost(&self) -> Vec<(u16, String)> {
        let all = self.all.keys();
        all.filter_map(|&memory| Some((memory.index, self.why_lost(memory)?))).collect()
    }

    /// The memories of other processes that devices don't reach, with the number of the device's own.
    pub(crate) fn apart(&self) -> Vec<(u16, MemoryId)> {
        let all = self.all.iter();
        let apart = all.flat_map(|(own, device)| {
            let unreached = device.health().unreached().into_keys();
            unreached.filter(|there| there.node != own.node).map(|there| (own.index, there))
        });
        apart.collect()
    }

    /// Which devices, by their own memories, don't reach which memories that they did the last time that somebody
    /// asked, and why.
    fn newly_apart(&self) -> Vec<([MemoryId; 2], String)> {
        let mut known = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (&own, device) in &self.all {
            let unreached = device.health().unreached().into_iter();
            let new = unreached.filter(|&(there, _)| known.insert((own, there)));
            found.extend(new.map(|(there, why)| ([own, there], why)));
        }
        found
    }

    /// What is to be closed, with why, and is not among `closed`.
    fn to_close(
        &self,
        closed: &BTreeMap<MemoryId, Closed>,
    ) -> Vec<(MemoryId, Closed, ChannelError)> {
        let all = self.all.iter();
        let found = all.filter_map(|(&memory, device)| {
            let (what, why) = Closed::of(device.as_ref())?;
            (closed.get(&memory) < Some(&what)).then_some((memory, what, why))
        });
        found.collect()
    }
}

impl Shared {
    /// Why the device whose memory is `memory` is lost, if it is, and its node has said so where that is
    /// another.
    pub(crate) fn why_lost(&self, memory: MemoryId) -> Option<String> {
        let far = || self.nodes.as_ref()?.why_lost(memory);
        self.devices().why_lost(memory).or_else(far)
    }

    /// Has no plan lead to a device, or through it, that is lost, nor to kernels that there are none of.
    /// Returns when that is so, whoever saw to it.
    pub(crate) fn close_lost(&self) {
        let mut closed = self.devices().closed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.devices().to_close(&closed);
        let apart = self.devices().newly_apart();
        if found.is_empty() && apart.is_empty() {
            return;
        }
        let (_changing, mut class) = self.class_to_change();
        for ([own, there], why) in apart {
            log::warn!("no more copies go straight there: {why}");
            if there.node == own.node {
                part(&mut class, own.index, there.index);
            }
        }
        for (memory, what, why) in found {
            log::warn!("no more copies are planned that need it: {why}");
            for memory in [Some(memory), self.devices().room(memory)].into_iter().flatten() {
                close(&mut class, memory.index, what);
            }
            closed.insert(memory, what);
        }
        self.set_class(class);
    }
}

/// Has no channel of these join `memory` any more, as if it were not there. A channel that joins nothing
/// remains, so that others keep their numbers.
fn close(class: &mut NodeClass, memory: u16, what: Closed) {
    for channel in class.channels.iter_mut().filter(|channel| what.is_for(channel.kind)) {
        channel.from.retain(|&end| end != memory);
        channel.to.retain(|&end| end != memory);
        close_end(channel);
    }
}

/// Has no channel lead from one device's `own` memory to that of another, `there`, any more.
fn part(class: &mut NodeClass, own: u16, there: u16) {
    for channel in class.channels.iter_mut().filter(|channel| channel.from == [own]) {
        channel.to.retain(|&end| end != there);
        close_end(channel);
    }
}

/// Has a channel that joins nothing on one side join nothing.
fn close_end(channel: &mut Channel) {
    if channel.from.is_empty() || channel.to.is_empty() {
        channel.from.clear();
        channel.to.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerators::Full;
    use channel::accelerator::Reach;
    use model::{ChannelErrorKind, Layout, NodeId, Topology};
    use planner::{End, Load, Options, PlanCache, PlanError, Query};

    /// A machine on which the best way from `a` to `b` is through a device's memory.
    const THROUGH: &str = r#"
        name = "a device on the way"
        th_bytes = 1048576
        [[node]]
        name = "node"
        count = 1
        memory = [
            { name = "a", kind = "SYS" }, { name = "fbm", kind = "FBM" },
            { name = "b", kind = "SYS" }, { name = "fbm1", kind = "FBM" },
        ]
        channel = [
            { kind = "GPUWrite", from = ["a"], to = ["fbm"], throughput = 9e9 },
            { kind = "GPURead", from = ["fbm"], to = ["b"], throughput = 9e9 },
            { kind = "GPUWrite", from = ["a"], to = ["fbm1"], throughput = 2e9 },
            { kind = "GPURead", from = ["fbm1", "fbm"], to = ["b"], throughput = 2e9 },
        ]
    "#;

    #[test]
    fn plans_go_another_way_and_numbers_stay() {
        let mut topology = cluster::parse_toml(THROUGH).unwrap();
        let (mut plans, layout) = (PlanCache::new(8), Layout::row_major(1));
        let mut way = |topology: &Topology, ends: [&str; 2]| {
            let [src, dst] = ends.map(|name| End {
                memory: topology.memory_named(name).unwrap(),
                layout: &layout,
                phase: &[],
                listed: 0,
                gaps: 0,
            });
            let (extents, field_bytes) = (&[1 << 24][..], &[1][..]);
            let query = Query { src, dst, extents, field_bytes, load: Load::IDLE };
            let plan = plans.plan(topology, &query, &Options::default())?.plan;
            let names = plan.memories.iter().map(|&id| topology.short_name(id));
            Ok::<_, PlanError>(names.collect::<Vec<_>>())
        };
        assert_eq!(way(&topology, ["a", "b"]).unwrap(), ["a", "fbm", "b"]);
        let before = topology.clone();
        let lost = topology.memory_named("fbm").unwrap();
        close(&mut topology.classes[0], lost.index, Closed::All);
        topology.generation += 1;
        assert_eq!(way(&topology, ["a", "b"]).unwrap(), ["a", "fbm1", "b"]);
        let refused = way(&topology, ["a", "fbm"]).unwrap_err();
        assert!(matches!(refused, PlanError::NoPath { .. }), "{refused:?}");
        let channels = &topology.classes[0].channels;
        assert_eq!(channels[2], before.classes[0].channels[2], "what joins others stays");
        assert_eq!((channels.len(), &channels[3].from), (4, &vec![3]));
        let again = cluster::parse_json(&cluster::to_json(&topology).to_string()).unwrap();
        assert_eq!(again.classes, topology.classes);
    }

    #[test]
    fn without_kernels_only_what_converts_is_closed() {
        let own = 1;
        let class = r#"
            th_bytes = 1
            [[node]]
            name = "node"
            memory = [{ name = "a", kind = "SYS" }, { name = "fbm", kind = "FBM" }]
            channel = [
                { kind = "GPUWrite", from = ["a"], to = ["fbm"], throughput = 9e9 },
                { kind = "GPUCopy", from = ["fbm"], to = ["fbm"], throughput = 9e9 },
                { kind = "GPUConvert", from = ["fbm"], to = ["fbm"], throughput = 9e9 },
            ]
        "#;
        let mut class = cluster::parse_toml(class).unwrap().classes.remove(0);
        let before = class.clone();
        close(&mut class, own, Closed::Convert);
        assert_eq!(class.channels[..2], before.channels[..2]);
        assert_eq!((&class.channels[2].from, &class.channels[2].to), (&vec![], &vec![]));
        close(&mut class, own, Closed::All);
        assert!(class.channels.iter().all(|channel| channel.to.is_empty()));
    }

    #[test]
    fn what_is_closed_is_closed_once_and_then_no_less() {
        let device = Arc::new(Full::new("a", true, Reach::Nothing));
        let (mut devices, memory) = (Devices::default(), MemoryId { node: NodeId(0), index: 1 });
        devices.add(memory, Arc::clone(&device) as Arc<dyn Device>);
        devices.add_room(memory, MemoryId { index: 2, ..memory });
        let health = device.health();
        let mut closed = BTreeMap::new();
        let mut found = || {
            let found = devices.to_close(&closed);
            closed.extend(found.iter().map(|(memory, what, _)| (*memory, *what)));
            found.into_iter().map(|(_, what, why)| (what, why.kind)).collect::<Vec<_>>()
        };
        assert_eq!(found(), []);
        health.lose_kernels("no compiler");
        assert_eq!(found(), [(Closed::Convert, ChannelErrorKind::Io)]);
        assert_eq!(found(), []);
        health.failed(ChannelErrorKind::DeviceLost, "it fell");
        assert_eq!(found(), [(Closed::All, ChannelErrorKind::DeviceLost)]);
        assert_eq!(found(), []);
    }

    #[test]
    fn what_a_device_does_not_reach_is_told_once_each() {
        let device = Arc::new(Full::new("a", true, Reach::Nothing));
        let (mut devices, memory) = (Devices::default(), MemoryId { node: NodeId(0), index: 1 });
        devices.add(memory, Arc::clone(&device) as Arc<dyn Device>);
        let there = [1, 2].map(|node| MemoryId { node: NodeId(node), index: 1 });
        let here = MemoryId { index: 4, ..memory };
        assert_eq!(devices.newly_apart(), []);
        for (at, there) in (1..).zip([there[0], there[1], here]) {
            device.health().lose_reach(there, at);
            device.health().lose_reach(there, "again");
            assert_eq!(devices.newly_apart(), [([memory, there], at.to_string())]);
            assert_eq!(devices.newly_apart(), []);
        }
        let links = there.map(|there| (memory.index, there));
        assert_eq!(devices.apart(), links, "no link leads inside a node");
    }
}
