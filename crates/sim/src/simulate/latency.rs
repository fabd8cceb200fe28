//! How long it takes what one engine says to reach another.

use model::{Link, NodeId, Topology};
use std::time::Duration;

/// The latencies between the nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// From each class of nodes to each.
    between: Vec<Vec<Duration>>,
}

impl Latencies {
    /// The latency of the link from the one class of nodes to the other, the least where there are
    /// several; where there is none, of the link back; where there is none either, the longest of
    /// all links.
    pub(crate) fn of(topology: &Topology) -> Self {
        let links = &topology.links;
        let longest = links.iter().map(|link| link.latency_ns).max().unwrap_or(0);
        let least = |from: usize, to: usize| {
            let joining = links.iter().filter(|link| joins(link, from, to));
            joining.map(|link| link.latency_ns).min()
        };
        let classes = 0..topology.classes.len();
        let one = |from: usize, to: usize| {
            Duration::from_nanos(least(from, to).or_else(|| least(to, from)).unwrap_or(longest))
        };
        let row = |from| classes.clone().map(|to| one(from, to)).collect();
        Latencies { between: classes.clone().map(row).collect() }
    }

    /// From a node of class `from` to another of class `to`.
    pub(crate) fn between(&self, from: usize, to: usize) -> Duration {
        self.between[from][to]
    }

    /// The longest of all.
    pub(crate) fn longest(&self) -> Duration {
        self.between.iter().flatten().max().copied().unwrap_or_default()
    }
}

fn joins(link: &Link, from: usize, to: usize) -> bool {
    let is_of = |class: usize| move |end: &model::LinkEnd| usize::from(end.class) == class;
    link.from.iter().any(is_of(from)) && link.to.iter().any(is_of(to))
}

/// The class of a node that is there.
pub(crate) fn class_of(topology: &Topology, node: NodeId) -> usize {
    topology.class_of(node).expect("a plan passes nodes of its cluster").0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds between classes a, b and c.
    fn latencies(links: &[(&str, &str, u64)]) -> [[u128; 3]; 3] {
        let class = |name| {
            format!(
                "[[node]]\nname = \"{name}\"\nmemory = [{{ name = \"reg\", kind = \"REG\" }}]\n\
                 channel = []\n"
            )
        };
        let link = |(from, to, latency_ns): &(&str, &str, u64)| {
            format!(
                "[[link]]\nkind = \"RemoteMemcpy\"\nfrom = [\"{from}.reg\"]\nto = [\"{to}.reg\"]\n\
                 throughput = 1e9\nlatency_ns = {latency_ns}\n"
            )
        };
        let classes: String = ["a", "b", "c"].map(class).concat();
        let text = classes + &links.iter().map(link).collect::<String>();
        let latencies = Latencies::of(&cluster::parse(&text).unwrap());
        let one = |from, to| latencies.between(from, to).as_nanos();
        [0, 1, 2].map(|from| [0, 1, 2].map(|to| one(from, to)))
    }

    #[test]
    fn what_is_said_takes_the_fastest_link() {
        let links = [("a", "a", 9), ("a", "b", 5), ("a", "b", 3), ("b", "a", 4)];
        let found = latencies(&links);
        assert_eq!((found[0][0], found[0][1], found[1][0]), (9, 3, 4));
    }

    #[test]
    fn without_a_link_it_takes_the_way_back_or_the_longest() {
        let found = latencies(&[("a", "b", 3), ("b", "c", 8)]);
        assert_eq!((found[1][0], found[2][1], found[0][2], found[2][0]), (3, 8, 8, 8));
        assert_eq!(latencies(&[]), [[0; 3]; 3]);
    }
}
