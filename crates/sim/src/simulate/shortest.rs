//! The path that a runtime takes which can't plan: the fewest hops, through memories that hold the
//! whole instance.

use model::{LinkEnd, Memory, MemoryId, MemoryKind, NodeId, Topology};

/// The most paths of equal length that are compared.
const MAX_PATHS: usize = 10_000;
/// The most hops of a path.
const MAX_HOPS: usize = 6;

/// The memories on the way from `src` to `dst`, both included; `None` where no path leads there.
///
/// The path has the fewest hops; of those, the one whose least intermediate holds the most (the
/// paper's words name "the CPU memories" where others would do), then the one whose slowest channel
/// is the fastest, then the first in the order of the file. An intermediate is a memory of either
/// node, is no disk, holds `bytes`, may be an intermediate at all, and is of one of `kinds`.
pub(crate) fn shortest(
    topology: &Topology,
    ends: (MemoryId, MemoryId),
    bytes: u64,
    kinds: &[MemoryKind],
) -> Option<Vec<MemoryId>> {
    let nodes = match ends.0.node == ends.1.node {
        true => vec![ends.0.node],
        false => vec![ends.0.node, ends.1.node],
    };
    let all = nodes.iter().flat_map(|&node| memories_of(topology, node));
    let holds = |id: &MemoryId| {
        let is_kind = |m: &&Memory| kinds.contains(&m.kind) && topology.th_bytes(*id) > 0;
        let memory = topology.memory(*id).filter(is_kind);
        memory.is_some_and(|m| m.capacity_bytes.is_none_or(|capacity| capacity >= bytes))
    };
    let between: Vec<MemoryId> = all.filter(holds).collect();
    let search = Search { topology, between: &between, dst: ends.1 };
    let paths = (1..=MAX_HOPS).map(|hops| search.paths(ends.0, hops));
    let paths = paths.into_iter().find(|paths| !paths.is_empty())?;
    paths.into_iter().reduce(|best, path| if search.is_better(&path, &best) { path } else { best })
}

struct Search<'a> {
    topology: &'a Topology,
    between: &'a [MemoryId],
    dst: MemoryId,
}

impl Search<'_> {
    /// All paths of `hops` hops that visit no memory twice, but for a destination that is the
    /// source.
    fn paths(&self, src: MemoryId, hops: usize) -> Vec<Vec<MemoryId>> {
        let mut paths = vec![vec![src]];
        for hop in 1..=hops {
            let is_last = hop == hops;
            let next = paths.iter().flat_map(|path| self.longer(path, is_last));
            paths = next.take(MAX_PATHS).collect();
        }
        paths
    }

    fn longer(&self, path: &[MemoryId], is_last: bool) -> Vec<Vec<MemoryId>> {
        let here = path[path.len() - 1];
        let ends: &[MemoryId] = if is_last { &[self.dst] } else { self.between };
        let is_new = |next: &&MemoryId| is_last || (!path.contains(next) && **next != self.dst);
        let leads = |next: &&MemoryId| self.rate(here, **next).is_some();
        let next = ends.iter().filter(is_new).filter(leads);
        next.map(|&next| [path, &[next]].concat()).collect()
    }

    fn is_better(&self, path: &[MemoryId], than: &[MemoryId]) -> bool {
        let (room, other) = (self.room(path), self.room(than));
        room > other || (room == other && self.slowest(path) > self.slowest(than))
    }

    /// What the least intermediate holds.
    fn room(&self, path: &[MemoryId]) -> u64 {
        let between = path[1..path.len() - 1].iter();
        let room = |id: &MemoryId| self.topology.memory(*id).and_then(|m| m.capacity_bytes);
        between.map(|id| room(id).unwrap_or(u64::MAX)).min().unwrap_or(u64::MAX)
    }

    fn slowest(&self, path: &[MemoryId]) -> f64 {
        let rates = path.windows(2).map(|pair| self.rate(pair[0], pair[1]).unwrap_or(0.0));
        rates.fold(f64::INFINITY, f64::min)
    }

    /// The peak of the fastest channel from one memory to another.
    fn rate(&self, from: MemoryId, to: MemoryId) -> Option<f64> {
        let rates = match from.node == to.node {
            true => self.rates_within(from, to),
            false => self.rates_between(from, to),
        };
        rates.into_iter().reduce(f64::max)
    }

    fn rates_within(&self, from: MemoryId, to: MemoryId) -> Vec<f64> {
        let Some((class, _)) = self.topology.class_of(from.node) else { return Vec::new() };
        let channels = self.topology.classes[class].channels.iter();
        let joins = channels.filter(|c| c.from.contains(&from.index) && c.to.contains(&to.index));
        joins.map(|c| c.curves.run.peak()).collect()
    }

    fn rates_between(&self, from: MemoryId, to: MemoryId) -> Vec<f64> {
        let is_end = |ends: &[LinkEnd], id: MemoryId| {
            let class = self.topology.class_of(id.node).map(|(class, _)| class);
            ends.iter().any(|e| Some(usize::from(e.class)) == class && e.memory == id.index)
        };
        let links = self.topology.links.iter();
        let joins = links.filter(|link| is_end(&link.from, from) && is_end(&link.to, to));
        joins.map(|link| link.curves.run.peak()).collect()
    }
}

fn memories_of(topology: &Topology, node: NodeId) -> impl Iterator<Item = MemoryId> {
    let count =
        topology.class_of(node).map_or(0, |(class, _)| topology.classes[class].memories.len());
    (0..u16::try_from(count).unwrap_or(u16::MAX)).map(move |index| MemoryId { node, index })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: [MemoryKind; 3] = [MemoryKind::Sys, MemoryKind::Zcm, MemoryKind::Reg];

    fn path(ends: [&str; 2], bytes: u64, kinds: &[MemoryKind]) -> Option<Vec<String>> {
        let topology = cluster::ready_made("sapling").unwrap();
        let [src, dst] = ends.map(|name| topology.memory_named(name).unwrap());
        let path = shortest(&topology, (src, dst), bytes, kinds)?;
        Some(path.into_iter().map(|id| topology.memory_name(id).unwrap()).collect())
    }

    #[test]
    fn the_fewest_hops_through_the_largest_memories() {
        let found = path(["n0.fbm", "n1.fbm"], 128 << 20, &HOST).unwrap();
        assert_eq!(found, ["n0.fbm", "n0.sys", "n1.sys", "n1.fbm"]);
        assert_eq!(path(["n0.sys", "n1.sys"], 1, &HOST).unwrap().len(), 2);
        assert_eq!(path(["n0.dsk", "n0.dsk"], 1, &HOST).unwrap(), ["n0.dsk", "n0.sys", "n0.dsk"]);
        assert_eq!(path(["n0.sys", "n0.sys"], 1, &HOST).unwrap(), ["n0.sys", "n0.sys"]);
    }

    #[test]
    fn an_intermediate_is_of_a_kind_that_is_asked_for_and_holds_everything() {
        let found = path(["n0.fbm", "n1.fbm"], 0, &[MemoryKind::Reg]).unwrap();
        assert_eq!(found, ["n0.fbm", "n0.reg", "n1.reg", "n1.fbm"]);
        assert_eq!(path(["n0.fbm", "n1.fbm"], 1 << 30, &[MemoryKind::Reg]), None);
        assert_eq!(path(["n0.fbm", "n1.fbm"], 1 << 40, &HOST), None);
    }
}
