//! Devices that are lost while a machine runs.
//!
//! **Hazard.** A device that is gone refuses each request, while plans still lead to it. **Guarantee.**
//! Once a request was refused so, no plan leads to the device or through it, and who asks for one hears
//! why there is none. **Structure.** The device's channels join nothing any more, in a topology of a new
//! generation, which no plan that was kept is for. Memories and channels keep their numbers, and host memory
//! that was pinned by the device remains what it is, host memory.

use crate::runtime::Shared;
use channel::accelerator::Device;
use model::{ChannelError, MemoryId, NodeClass};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The devices of a machine, by their memories.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    all: BTreeMap<MemoryId, Arc<dyn Device>>,
    /// Those whose channels are closed.
    closed: Mutex<Vec<MemoryId>>,
}

impl Devices {
    pub(crate) fn add(&mut self, memory: MemoryId, device: Arc<dyn Device>) {
        self.all.insert(memory, device);
    }

    /// Why the device whose memory is `memory` is lost, if that is one of this machine's, and is.
    pub(crate) fn why_lost(&self, memory: MemoryId) -> Option<ChannelError> {
        self.all.get(&memory)?.health().check().err()
    }

    /// Those that are lost, with why, and not among `closed`.
    fn lost_but(&self, closed: &[MemoryId]) -> Vec<(MemoryId, ChannelError)> {
        let open = self.all.keys().filter(|memory| !closed.contains(memory));
        open.filter_map(|&memory| Some((memory, self.why_lost(memory)?))).collect()
    }
}

impl Shared {
    /// Has no plan lead to a device, or through it, that is lost. Returns when that is so, whoever saw
    /// to it.
    pub(crate) fn close_lost(&self) {
        let mut closed = self.devices().closed.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = self.devices().lost_but(&closed);
        if lost.is_empty() {
            return;
        }
        let (_changing, mut class) = self.class_to_change();
        for (memory, why) in lost {
            log::warn!("no more copies are planned to an accelerator: {why}");
            close(&mut class, memory.index);
            closed.push(memory);
        }
        self.set_class(class);
    }
}

/// Has no channel join `memory` any more, as if it were not there. A channel that joins nothing remains,
/// so that others keep their numbers.
fn close(class: &mut NodeClass, memory: u16) {
    for channel in &mut class.channels {
        channel.from.retain(|&end| end != memory);
        channel.to.retain(|&end| end != memory);
        if channel.from.is_empty() || channel.to.is_empty() {
            channel.from.clear();
            channel.to.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, Topology};
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
        close(&mut topology.classes[0], lost.index);
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
}
