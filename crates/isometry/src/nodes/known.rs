//! What is known of each node.

use super::{LinkRates, Registered, topology};
use channel::Region;
use channel_remote::RemoteSpan;
use model::{MemoryId, NodeClass, NodeId, RegionId, Topology};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a node says of itself when it joins, and when it has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// A cluster of this node alone, as JSON.
    topology: String,
    /// Its registered memory: which of its memories, what it calls the region, and how long that is.
    memory: u16,
    region: RegionId,
    bytes: u64,
}

impl Introduction {
    /// Of a node that has measured a link, if it has.
    pub(super) fn new(
        class: NodeClass,
        registered: &Registered,
        rates: Option<LinkRates>,
    ) -> Introduction {
        let alone = topology::cluster(&[class], 0, 1, rates);
        let topology = cluster::to_json(&alone).to_string();
        let Registered { memory, region, bytes } = *registered;
        Introduction { topology, memory: memory.index, region, bytes }
    }
}

/// All nodes, by rank.
#[derive(Debug)]
pub(super) struct Known {
    nodes: Vec<Option<Node>>,
    /// How often anything has changed.
    generation: u64,
}

#[derive(Debug)]
struct Node {
    said: Introduction,
    class: NodeClass,
    rates: Option<LinkRates>,
    registered: Arc<Region>,
}

impl Known {
    pub(super) fn new(size: u32) -> Known {
        Known { nodes: (0..size).map(|_| None).collect(), generation: 0 }
    }

    /// Takes what a node says of itself.
    pub(super) fn hear(&mut self, from: NodeId, said: Introduction) -> Result<(), String> {
        let topology = cluster::parse_json(&said.topology).map_err(|error| error.to_string())?;
        let [class] = <[NodeClass; 1]>::try_from(topology.classes)
            .map_err(|_| "it says to be several nodes".to_owned())?;
        if class.memories.get(usize::from(said.memory)).is_none() {
            return Err("it has no such memory".to_owned());
        }
        let memory = MemoryId { node: from, index: said.memory };
        let span = RemoteSpan { node: from, at: 0 };
        let registered = Arc::new(span.into_region(memory, said.bytes));
        let place = self.nodes.get_mut(from.0 as usize).ok_or("there is no such node")?;
        let rates = topology.links.into_iter().next().and_then(LinkRates::of);
        *place = Some(Node { said, class, rates, registered });
        self.generation += 1;
        Ok(())
    }

    /// What a node that has changed says of itself; `None` before it has said anything.
    pub(super) fn changed(&self, node: NodeId, class: NodeClass) -> Option<Introduction> {
        let Node { said, rates, .. } = self.nodes.get(node.0 as usize)?.as_ref()?;
        let Introduction { memory: index, region, bytes, .. } = *said;
        let memory = MemoryId { node, index };
        Some(Introduction::new(class, &Registered { memory, region, bytes }, rates.clone()))
    }

    /// The cluster, once all nodes have said what they are.
    pub(super) fn cluster(&self) -> Option<Topology> {
        let classes = self.nodes.iter().map(|node| Some(node.as_ref()?.class.clone()));
        let classes: Vec<_> = classes.collect::<Option<_>>()?;
        let rates = self.nodes.iter().flatten().find_map(|node| node.rates.clone());
        // Every memory says how large its buffers may be.
        Some(topology::cluster(&classes, self.generation, 1 << 20, rates))
    }

    /// A region in registered memory of a node.
    pub(super) fn registered(&self, memory: MemoryId, region: RegionId) -> Option<Arc<Region>> {
        let node = self.nodes.get(memory.node.0 as usize)?.as_ref()?;
        let is_it = node.said.memory == memory.index && node.said.region == region;
        is_it.then(|| Arc::clone(&node.registered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Memory, MemoryKind};

    const REGION: RegionId = RegionId { index: 4, generation: 1 };

    fn said() -> Introduction {
        let mut class = NodeClass {
            name: "node".to_owned(),
            first: 0,
            count: 1,
            memories: vec![Memory {
                name: "sys".to_owned(),
                kind: MemoryKind::Sys,
                capacity_bytes: None,
                th_bytes: Some(1 << 20),
                port: None,
            }],
            channels: Vec::new(),
            wires: Vec::new(),
        };
        topology::add_registered(&mut class, 64);
        let memory = MemoryId { node: NodeId(0), index: 1 };
        Introduction::new(class, &Registered { memory, region: REGION, bytes: 64 }, None)
    }

    #[test]
    fn the_cluster_is_known_once_all_are() {
        let mut known = Known::new(2);
        assert!(known.changed(NodeId(1), NodeClass { count: 1, ..class() }).is_none());
        known.hear(NodeId(1), said()).unwrap();
        assert!(known.cluster().is_none());
        known.hear(NodeId(0), said()).unwrap();
        let cluster = known.cluster().unwrap();
        assert_eq!((cluster.classes.len(), cluster.node_count()), (1, 2));
        let mut changed = class();
        changed.memories[0].capacity_bytes = Some(5);
        known.hear(NodeId(1), known.changed(NodeId(1), changed).unwrap()).unwrap();
        let later = known.cluster().unwrap();
        assert_eq!(later.classes.len(), 2);
        assert!(later.generation > cluster.generation);
        let reg = MemoryId { node: NodeId(1), index: 1 };
        assert_eq!(known.registered(reg, REGION).unwrap().len_bytes(), 64);
        let other = RegionId { index: 5, ..REGION };
        assert!(known.registered(reg, other).is_none());
        assert!(known.registered(MemoryId { index: 0, ..reg }, REGION).is_none());
    }

    fn class() -> NodeClass {
        cluster::parse_json(&said().topology).unwrap().classes.remove(0)
    }

    #[test]
    fn nonsense_is_told() {
        let mut known = Known::new(2);
        let wrong = [
            Introduction { topology: "{".to_owned(), ..said() },
            Introduction { memory: 2, ..said() },
            Introduction {
                topology: said().topology.replace("\"count\":1", "\"count\":0"),
                ..said()
            },
        ];
        for said in wrong {
            assert!(known.hear(NodeId(1), said.clone()).is_err(), "{said:?}");
        }
        assert!(known.hear(NodeId(2), said()).is_err());
    }
}
