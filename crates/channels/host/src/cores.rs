//! The cores that this process may run on, and the memories that they are near.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// A memory of the machine with the cores beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub number: u32,
    /// The cores near it that the process may use; never empty.
    pub cores: BTreeSet<usize>,
}

/// Where this process may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Every core of the process's cpuset.
    pub allowed: BTreeSet<usize>,
    /// The memories with at least one of them, by number; at least one.
    pub nodes: Vec<NumaNode>,
}

impl Cores {
    /// What the kernel says of the calling thread. A machine that doesn't say has one node with
    /// all of its cores.
    #[must_use]
    pub fn detect() -> Self {
        Self::read(allowed(), Path::new("/sys/devices/system/node"))
    }

    /// The lanes that copying deserves by default: a core is left to the application.
    #[must_use]
    pub fn default_lanes(&self) -> usize {
        (self.allowed.len().max(2)) - 1
    }

    fn read(allowed: BTreeSet<usize>, sysfs: &Path) -> Self {
        let online = fs::read_to_string(sysfs.join("online")).unwrap_or_default();
        let near = |number: usize| {
            let path = sysfs.join(format!("node{number}/cpulist"));
            let listed = parse_list(&fs::read_to_string(path).ok()?);
            let cores: BTreeSet<_> = listed.intersection(&allowed).copied().collect();
            let number = u32::try_from(number).ok()?;
            (!cores.is_empty()).then_some(NumaNode { number, cores })
        };
        let mut nodes: Vec<_> = parse_list(&online).into_iter().filter_map(near).collect();
        if nodes.is_empty() {
            nodes.push(NumaNode { number: 0, cores: allowed.clone() });
        }
        Cores { allowed, nodes }
    }
}

/// Keeps the calling thread on `cores`.
pub(crate) fn bind(cores: &BTreeSet<usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn allowed() -> BTreeSet<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        // More cores than the set has room for: all of those that it has.
        Err(_) => (0..CpuSet::MAX_CPU).collect(),
    }
}

/// The numbers of the kernel's list format, `0-3,8`. What it can't read it leaves out.
fn parse_list(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(parse_list("0-2,7\n"), BTreeSet::from([0, 1, 2, 7]));
        assert_eq!(parse_list("5"), BTreeSet::from([5]));
        assert_eq!(parse_list("\n"), BTreeSet::new());
        assert_eq!(parse_list("x,2-y,3"), BTreeSet::from([3]));
    }

    #[test]
    fn a_machine_of_two_nodes_is_cut_to_the_cpuset() {
        let dir = std::env::temp_dir().join(format!("isometry-cores-{}", std::process::id()));
        for (node, cores) in [("node0", "0-3"), ("node1", "4-7"), ("node2", "")] {
            fs::create_dir_all(dir.join(node)).unwrap();
            fs::write(dir.join(node).join("cpulist"), cores).unwrap();
        }
        fs::write(dir.join("online"), "0-2\n").unwrap();
        let both = Cores::read(BTreeSet::from([2, 3, 4]), &dir);
        let one = Cores::read(BTreeSet::from([5]), &dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(both.nodes.len(), 2);
        assert_eq!(both.nodes[0].cores, BTreeSet::from([2, 3]));
        assert_eq!((both.nodes[1].number, both.default_lanes()), (1, 2));
        assert_eq!((one.nodes.len(), one.nodes[0].number, one.default_lanes()), (1, 1, 1));
    }

    #[test]
    fn this_machine_has_a_node_and_a_core() {
        let cores = Cores::detect();
        assert!(!cores.allowed.is_empty() && !cores.nodes.is_empty());
        bind(&cores.nodes[0].cores).unwrap();
        assert_eq!(allowed(), cores.nodes[0].cores);
    }
}
