//! The workloads that come with the program: the paper's microbenchmarks, and applications.

use crate::simulate::apps;
use crate::simulate::error::WorkloadError;
use crate::simulate::places::joined;
use crate::simulate::workload::{Case, CopySpec, Workload};
use model::{
    Component, FieldSpace, IndexSpace, Layout, MemoryId, MemoryKind, NodeId, Priority, Time,
    Topology,
};
use std::time::Duration;

/// The names that [`Workload::ready_made`] knows.
pub const READY_MADE_WORKLOADS: [&str; 8] =
    ["micro", "priority", "exchange", "pagerank", "circuit", "vgg16", "kv", "reshard"];

/// Sections 6.1 and 6.3: 64 instances, 4 Mi entries, 8 fields of 4 bytes, 8 GiB in all.
const INSTANCES: u32 = 64;
const ENTRIES: u64 = 4 << 20;
const FIELD_BYTES: [u64; 8] = [4; 8];

/// The kinds of memory between which the microbenchmark copies.
const KINDS: [MemoryKind; 3] = [MemoryKind::Sys, MemoryKind::Fbm, MemoryKind::Dsk];

/// Section 6.2 says neither which copies nor how many or how large: assumed. The others leave room
/// in every memory; the urgent one is launched while they run, and is as large as each of them, or a
/// sixteenth of it.
const OTHERS: u32 = 32;
const LAUNCH_NS: u64 = 200_000_000;
const SMALL_PART: u64 = 16;

impl Workload {
    /// The workload called `name`. `None` for another name. It has no cases, or a case no copies,
    /// where the memories that it copies between are not there.
    ///
    /// For the first two nodes of `topology`:
    /// - `micro`: sections 6.1 and 6.3. One case for each ordered pair of SYS, FBM and DSK, within
    ///   a node and to another, whose memory has a `*`; then the same with AOS made SOA on the way.
    ///   A node's first memory of each kind that any channel reaches and leaves stands for it.
    /// - `priority`: section 6.2. One urgent copy beside 32 others, direct (from and to SYS) and
    ///   over several hops (from FBM to FBM*), as large as the others and smaller.
    ///
    /// For all its nodes, one case each, of sizes that are assumed:
    /// - `exchange`: [`Workload::exchange`], with [`Workload::EXCHANGED`] transfers.
    /// - `pagerank`, `circuit`, `vgg16`: section 6.5. Copies and the compute times between them, four
    ///   iterations.
    /// - `kv`: caches of keys and values from half of the nodes to the other half, whose layout
    ///   differs.
    /// - `reshard`: a matrix that half of the nodes have by rows, to the other half by columns.
    ///
    /// # Errors
    /// [`WorkloadError`] where an application has more copies on so many nodes than fit in memory.
    pub fn ready_made(name: &str, topology: &Topology) -> Result<Option<Self>, WorkloadError> {
        let cases = match name {
            "micro" => micro(topology),
            "priority" => priority(topology),
            "exchange" => return Ok(Some(Self::exchange(topology, Self::EXCHANGED))),
            _ => match apps::case(name, topology)? {
                Some(case) => vec![case],
                None => return Ok(None),
            },
        };
        Ok(Some(Workload { name: name.to_owned(), cases }))
    }
}

/// One of the memories that a pair joins.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) kind: MemoryKind,
    pub(super) id: MemoryId,
    is_remote: bool,
}

fn micro(topology: &Topology) -> Vec<Case> {
    let (here, there) = (ends(topology, 0), ends(topology, 1));
    let targets: Vec<End> = here.iter().chain(&there).copied().collect();
    let pairs = || here.iter().flat_map(|src| targets.iter().map(move |dst| (*src, *dst)));
    let same = pairs().map(|pair| case_of(pair, "", [&aos(), &aos()]));
    let converted = pairs().map(|pair| case_of(pair, ", AOS to SOA", [&aos(), &soa()]));
    same.chain(converted).collect()
}

fn case_of((src, dst): (End, End), what: &str, layouts: [&Layout; 2]) -> Case {
    let name = format!("{}{what}", pair_name(src, dst));
    let copy = copy(("all", 0), (src, dst), layouts.map(Layout::clone), ENTRIES);
    Case { name, copies: vec![copy] }
}

fn priority(topology: &Topology) -> Vec<Case> {
    let (here, there) = (ends(topology, 0), ends(topology, 1));
    let find = |ends: &[End], kind| ends.iter().find(|end| end.kind == kind).copied();
    let direct = find(&here, MemoryKind::Sys).map(|sys| (sys, sys));
    let several = find(&here, MemoryKind::Fbm).zip(find(&there, MemoryKind::Fbm));
    let pairs = [("direct", direct), ("multi-hop", several)];
    let pairs = pairs.into_iter().filter_map(|(what, pair)| Some((what, pair?)));
    let sizes = [("as large", ENTRIES), ("a sixteenth", ENTRIES / SMALL_PART)];
    pairs.flat_map(|pair| sizes.map(|size| urgent_case(pair, size))).collect()
}

fn urgent_case((what, pair): (&str, (End, End)), (size, entries): (&str, u64)) -> Case {
    let name = format!("{what} {}, {size}", pair_name(pair.0, pair.1));
    let others = CopySpec { count: OTHERS, ..copy(("others", 0), pair, [aos(), aos()], ENTRIES) };
    let urgent = CopySpec {
        count: 1,
        at: Time(LAUNCH_NS),
        ..copy(("urgent", 1), pair, [aos(), aos()], entries)
    };
    Case { name, copies: vec![others, urgent] }
}

pub(super) fn copy(
    (name, urgency): (&str, i32),
    (src, dst): (End, End),
    layouts: [Layout; 2],
    entries: u64,
) -> CopySpec {
    let space = IndexSpace::of(&[("x", entries)]).expect("one dimension");
    CopySpec {
        name: name.to_owned(),
        from: src.id,
        to: dst.id,
        instances: [space.clone(), space.clone()],
        space,
        fields: FieldSpace::packed(&FIELD_BYTES).expect("eight fields"),
        layouts,
        count: INSTANCES,
        priority: Priority(urgency),
        at: Time(0),
        after: Vec::new(),
        compute: Duration::ZERO,
    }
}

/// The first memory of each kind on node `node` that a channel reaches and another leaves.
pub(super) fn ends(topology: &Topology, node: u32) -> Vec<End> {
    let node = NodeId(node);
    let end = |kind| {
        let id = *joined(topology, node, kind).first()?;
        Some(End { kind, id, is_remote: node.0 > 0 })
    };
    KINDS.into_iter().filter_map(end).collect()
}

fn pair_name(src: End, dst: End) -> String {
    let star = if dst.is_remote { "*" } else { "" };
    format!("{} to {}{star}", src.kind.name(), dst.kind.name())
}

pub(super) fn aos() -> Layout {
    Layout::new([Component::Fields, Component::Whole(0)], 1).expect("each component once")
}

fn soa() -> Layout {
    Layout::new([Component::Whole(0), Component::Fields], 1).expect("each component once")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, cluster: &str) -> Vec<String> {
        let topology = cluster::ready_made(cluster).unwrap();
        let workload = Workload::ready_made(name, &topology).unwrap().unwrap();
        workload.cases.into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn micro_is_every_pair_twice() {
        let sapling = names("micro", "sapling");
        assert_eq!(sapling.len(), 36);
        assert_eq!((sapling[0].as_str(), sapling[4].as_str()), ("SYS to SYS", "SYS to FBM*"));
        assert_eq!(sapling[35], "DSK to DSK*, AOS to SOA");
        // No channel of that file joins its disk.
        assert!(names("micro", "two-nodes").iter().all(|name| !name.contains("DSK")));
    }

    #[test]
    fn micro_moves_eight_gigabytes() {
        let topology = cluster::ready_made("sapling").unwrap();
        for case in Workload::ready_made("micro", &topology).unwrap().unwrap().cases {
            assert_eq!(case.copies[0].bytes(), 8 << 30);
            assert_eq!(case.check(), Ok(()));
        }
    }

    #[test]
    fn one_copy_of_priority_is_urgent() {
        assert_eq!(names("priority", "sapling").len(), 4);
        assert_eq!(Workload::ready_made("no such", &cluster::ready_made("pod").unwrap()), Ok(None));
    }
}
