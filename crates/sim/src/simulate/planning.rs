//! The plan caches of a cluster's nodes, and how many plans they had to have made.

use model::{Algorithm, Layout, MemoryId, NodeId, Plan, Topology};
use planner::{Cached, Options, PlanCache, PlanError, Query};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Plans that a node keeps.
const PLANS: usize = 1024;

/// The plans that a node made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanCount {
    /// By the full and by the simple algorithm.
    pub made: [usize; 2],
    /// What these numbers would be with the paper's key: both memories and both layouts, whatever is
    /// copied (section 4.2); the first copy with such a key chooses the algorithm.
    pub by_papers_key: [usize; 2],
    /// The last copy of the case for which a plan was made, by position.
    pub last_copy: usize,
}

/// Both memories and both layouts.
type PapersKey = (MemoryId, MemoryId, Layout, Layout);

/// What a node has planned.
#[derive(Debug)]
struct Planned {
    cache: PlanCache,
    keys: HashSet<PapersKey>,
    count: PlanCount,
}

/// A plan cache for each node that asks for copies: the one of their source.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    nodes: BTreeMap<NodeId, Planned>,
}

impl Planning {
    /// The plan for copy number `copy` of the case.
    pub(crate) fn plan(
        &mut self,
        topology: &Topology,
        query: &Query<'_>,
        options: &Options,
        copy: usize,
    ) -> Result<Arc<Plan>, PlanError> {
        let node = self.nodes.entry(query.src.memory.node).or_insert_with(Planned::new);
        let Cached { plan, hit } = node.cache.plan(topology, query, options)?;
        let by = usize::from(plan.algorithm != Algorithm::Full);
        if !hit {
            node.count.made[by] += 1;
            node.count.last_copy = copy;
        }
        let [from, to] = [query.src, query.dst].map(|end| (end.memory, end.layout.clone()));
        let is_new = node.keys.insert((from.0, to.0, from.1, to.1));
        node.count.by_papers_key[by] += usize::from(is_new);
        Ok(plan)
    }

    /// What each node made.
    pub(crate) fn counts(&self) -> Vec<(NodeId, PlanCount)> {
        self.nodes.iter().map(|(&node, planned)| (node, planned.count)).collect()
    }
}

impl Planned {
    fn new() -> Self {
        Planned { cache: PlanCache::new(PLANS), keys: HashSet::new(), count: PlanCount::default() }
    }
}
