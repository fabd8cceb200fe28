//! The clusters that come with the program, by name.

use crate::parse;
use model::Topology;

const MODERN: &str = include_str!("../../../clusters/modern.toml");

/// A name, the file behind it, and how many nodes it has where that is not what the file says.
type Ready = (&'static str, &'static str, Option<u32>);

const CLUSTERS: [Ready; 6] = [
    ("two-nodes", include_str!("../../../clusters/two-nodes.toml"), None),
    ("sapling", include_str!("../../../clusters/sapling.toml"), None),
    ("xstream", include_str!("../../../clusters/xstream.toml"), None),
    ("moonlight", include_str!("../../../clusters/moonlight.toml"), None),
    ("modern", MODERN, None),
    ("pod", MODERN, Some(1024)),
];

/// The names that [`ready_made`] knows.
#[must_use]
pub fn ready_made_names() -> [&'static str; 6] {
    CLUSTERS.map(|(name, _, _)| name)
}

/// The cluster called `name`: `two-nodes`, `sapling`, `xstream`, `moonlight`, `modern`, or `pod`,
/// which is 1,024 nodes as `modern`'s. `None` for another name.
///
/// # Panics
/// Never: the files are part of the program, and a test reads each.
#[must_use]
pub fn ready_made(name: &str) -> Option<Topology> {
    let (_, text, nodes) = CLUSTERS.into_iter().find(|(known, _, _)| *known == name)?;
    let mut topology = parse(text).expect("a cluster that comes with the program");
    if let Some(nodes) = nodes {
        topology = with_nodes(topology, nodes)?;
        name.clone_into(&mut topology.name);
    }
    Some(topology)
}

/// `topology` with `nodes` nodes in its only class. `None` where it has several classes, or for no
/// node.
#[must_use]
pub fn with_nodes(mut topology: Topology, nodes: u32) -> Option<Topology> {
    match topology.classes.as_mut_slice() {
        [class] if nodes > 0 => class.count = nodes,
        _ => return None,
    }
    Some(topology)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_cluster() {
        for name in ready_made_names() {
            assert!(ready_made(name).is_some_and(|t| t.node_count() >= 2), "{name}");
        }
        assert_eq!(ready_made("Sapling"), None);
    }

    #[test]
    fn a_pod_is_many_modern_nodes() {
        let (pod, modern) = (ready_made("pod").unwrap(), ready_made("modern").unwrap());
        assert_eq!((pod.node_count(), pod.name.as_str()), (1024, "pod"));
        assert_eq!(pod.classes[0].channels, modern.classes[0].channels);
    }

    #[test]
    fn the_number_of_nodes_is_that_of_the_only_class() {
        let sapling = ready_made("sapling").unwrap();
        assert_eq!(with_nodes(sapling.clone(), 9).unwrap().node_count(), 9);
        assert_eq!(with_nodes(sapling.clone(), 0), None);
        let mut two = sapling;
        two.classes.push(two.classes[0].clone());
        assert_eq!(with_nodes(two, 9), None);
    }
}
