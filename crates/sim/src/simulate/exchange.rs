//! The workload `exchange`: every node of a cluster sends to others, for questions of scale.

use crate::simulate::ready::{End, aos, copy, ends};
use crate::simulate::workload::{Case, CopySpec, Workload};
use model::{MemoryKind, Topology};

/// Entries of 32 bytes that make an instance of 1 MiB.
const ENTRIES: u64 = 1 << 15;

/// Which of its memories a node sends from, and which of the other's it sends to, in turn.
const MEMORIES: [[usize; 2]; 4] = [[0, 0], [1, 1], [0, 1], [1, 0]];

/// To how many others a node sends, in turn.
const OTHERS: usize = 4;

const ROUNDS: usize = OTHERS * MEMORIES.len();

impl Workload {
    /// The transfers of `exchange` unless their number is given.
    pub const EXCHANGED: u32 = 1000;

    /// The workload `exchange`: so many transfers of 1 MiB, dealt to all nodes in turn.
    ///
    /// A node sends to its neighbours on a ring, half and a third of the way around, in 16 rounds of
    /// equal size: to each from SYS to SYS, FBM to FBM, SYS to FBM and FBM to SYS, or as it has
    /// them. A round of a node begins when the one before has ended. One that is alone sends to
    /// itself.
    #[must_use]
    pub fn exchange(topology: &Topology, transfers: u32) -> Self {
        let name = "exchange".to_owned();
        let case = Case { name: name.clone(), copies: copies(topology, transfers) };
        Workload { name, cases: vec![case] }
    }
}

fn copies(topology: &Topology, transfers: u32) -> Vec<CopySpec> {
    let is_meant = |end: &End| end.kind != MemoryKind::Dsk;
    let ends_of =
        |node| -> Vec<End> { ends(topology, node).into_iter().filter(is_meant).collect() };
    let nodes: Vec<Vec<End>> =
        (0..topology.node_count()).map(ends_of).filter(|ends| !ends.is_empty()).collect();
    let (mut copies, mut before) = (Vec::<CopySpec>::new(), vec![Vec::new(); nodes.len()]);
    for round in 0..ROUNDS {
        for (node, before) in before.iter_mut().enumerate() {
            let count = dealt(dealt(transfers, nodes.len(), node), ROUNDS, round);
            if count == 0 {
                continue;
            }
            let pair = pair(&nodes, node, round);
            let after = std::mem::replace(before, vec![copies.len()]);
            let name = name(topology, round, pair);
            copies.push(CopySpec {
                count,
                after,
                ..copy((&name, 0), pair, [aos(), aos()], ENTRIES)
            });
        }
    }
    copies
}

/// How many of `all` the one at `at` gets when they are dealt to so many in turn.
fn dealt(all: u32, among: usize, at: usize) -> u32 {
    let (all, among) = (all as usize, among.max(1));
    u32::try_from(all / among + usize::from(at < all % among)).unwrap_or(u32::MAX)
}

/// The memories of a round of a node.
fn pair(nodes: &[Vec<End>], node: usize, round: usize) -> (End, End) {
    let all = nodes.len();
    let distance = [1, all - 1, all / 2, all / 3][round % OTHERS];
    // Nobody sends to itself, unless it is alone.
    let other = if distance == 0 { node + 1 } else { node + distance } % all;
    let of = |node: usize, which: usize| nodes[node][which % nodes[node].len()];
    let [from, to] = MEMORIES[round / OTHERS];
    (of(node, from), of(other, to))
}

fn name(topology: &Topology, round: usize, (src, dst): (End, End)) -> String {
    let [src, dst] = [src, dst].map(|end| topology.short_name(end.id));
    format!("{src} to {dst}, round {round}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn case(cluster: &str, nodes: u32, transfers: u32) -> Case {
        let topology = cluster::with_nodes(cluster::ready_made(cluster).unwrap(), nodes).unwrap();
        let case = Workload::exchange(&topology, transfers).cases.remove(0);
        assert_eq!(case.check(), Ok(()));
        case
    }

    fn count(copies: &[CopySpec]) -> u32 {
        copies.iter().map(|copy| copy.count).sum()
    }

    #[test]
    fn every_node_sends_as_much_as_every_other() {
        for (nodes, transfers) in [(1, 10), (2, 1000), (3, 7), (8, 1000), (64, 100_000)] {
            let copies = case("pod", nodes, transfers).copies;
            assert_eq!(count(&copies), transfers);
            let of = |node| copies.iter().filter(|c| c.from.node.0 == node).map(|c| c.count).sum();
            let sums: Vec<u32> = (0..nodes).map(of).collect();
            assert!(sums.iter().all(|sum| sum.abs_diff(sums[0]) <= 1), "{sums:?}");
        }
    }

    #[test]
    fn its_number_of_transfers_is_a_default() {
        let topology = cluster::ready_made("sapling").unwrap();
        let exchange = Workload::exchange(&topology, Workload::EXCHANGED);
        assert_eq!(Workload::ready_made("exchange", &topology), Ok(Some(exchange)));
    }

    #[test]
    fn nobody_sends_to_itself_but_who_is_alone() {
        for nodes in 1..8 {
            for copy in case("sapling", nodes, 200).copies {
                assert_eq!(copy.from.node == copy.to.node, nodes == 1, "{}", copy.name);
                assert_eq!(copy.instance_bytes(), 1 << 20);
            }
        }
    }

    #[test]
    fn a_node_sends_to_several_in_one_round_after_the_other() {
        let copies = case("pod", 8, 1000).copies;
        let first: Vec<&CopySpec> = copies.iter().filter(|copy| copy.from.node.0 == 0).collect();
        let others: BTreeSet<u32> = first.iter().map(|copy| copy.to.node.0).collect();
        assert_eq!((first.len(), others), (16, [1, 2, 4, 7].into()));
        for pair in first.windows(2) {
            assert_eq!(pair[1].after.len(), 1);
            assert_eq!(copies[pair[1].after[0]].name, pair[0].name);
        }
        let pairs: BTreeSet<_> = first.iter().map(|copy| (copy.from, copy.to.index)).collect();
        assert_eq!(pairs.len(), 4);
    }
}
