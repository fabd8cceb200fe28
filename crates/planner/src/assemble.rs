//! From what a search found to a [`Plan`].

use crate::Query;
use crate::full::Found;
use crate::graph::Graph;
use crate::path::{Path, Solution};
use crate::predict::{Case, Prediction};
use crate::round::rounded;
use crate::shape::{Shape, WHOLE};
use model::{Algorithm, Alternative, Buffer, CostModel, Hop, Layout, MemoryId, Plan, SearchReport};

/// What all plans and alternatives of one search share.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) query: &'a Query<'a>,
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) model: CostModel,
}

impl Frame<'_> {
    fn case<'b>(&'b self, path: &'b Path, solution: &'b Solution) -> Case<'b> {
        Case { graph: self.graph, shape: self.shape, model: self.model, path, solution }
    }

    pub(crate) fn predict(&self, path: &Path, solution: &Solution) -> Prediction {
        self.case(path, solution).predict()
    }

    /// The plan of `path`, in the default model with its factors rounded.
    pub(crate) fn rounded_plan(
        &self,
        algorithm: Algorithm,
        path: &Path,
        solution: &Solution,
    ) -> Plan {
        let prediction = self.predict(path, solution);
        let split = self.model == CostModel::Default && solution.factors != WHOLE;
        let found = (solution, &prediction);
        let rounded = split.then(|| rounded(self, path, found)).flatten();
        let (solution, prediction) = rounded.unwrap_or((*solution, prediction));
        self.plan(algorithm, (path, &solution), &prediction)
    }

    fn plan(
        &self,
        algorithm: Algorithm,
        (path, solution): (&Path, &Solution),
        prediction: &Prediction,
    ) -> Plan {
        let case = self.case(path, solution);
        let hops = (0..path.hops()).map(|i| self.hop(&case, prediction, i)).collect();
        let memories = self.memories(path);
        let buffers = (1..path.hops()).map(|i| Buffer {
            memory: memories[i],
            bytes: case.buffer_bytes(i - 1, &prediction.hops),
        });
        Plan {
            algorithm,
            model: self.model,
            throughput: prediction.throughput,
            seconds: (self.model == CostModel::Default).then_some(prediction.seconds),
            layouts: self.layouts(path, solution),
            phase: self.shape.phase[..self.shape.rank].to_vec(),
            hops,
            buffers: buffers.collect(),
            bound_by: case.refined(prediction.bound, &prediction.hops),
            alternatives: Vec::new(),
            search: SearchReport { paths: 1, solved: 1, budget: 1, exhausted: false, flows: 0 },
            memories,
        }
    }

    fn hop(&self, case: &Case<'_>, prediction: &Prediction, hop: usize) -> Hop {
        let lane = case.lane(hop);
        let cost = &prediction.hops[hop];
        Hop {
            channel: lane.id,
            kind: lane.kind,
            prefix_bytes: cost.step.prefix_bytes,
            shuffle_bytes: cost.step.shuffle_bytes,
            class: cost.step.class,
            throughput: cost.rate,
            request_bytes: cost.request_bytes,
        }
    }

    fn memories(&self, path: &Path) -> Vec<MemoryId> {
        let vertices = path.edges().iter().map(|e| e.from).chain([self.graph.dst]);
        vertices.map(|v| self.graph.vertices[usize::from(v)].id).collect()
    }

    fn layouts(&self, path: &Path, solution: &Solution) -> Vec<Layout> {
        let (query, shape, hops) = (self.query, self.shape, path.hops());
        let between_windows = (1..hops - 1).contains(&solution.pivot) && shape.mixable;
        let mut layouts = Vec::with_capacity(hops + 1);
        layouts.push(shape.end_layout(query, 0, &solution.factors));
        for at in 1..hops {
            let word = if at <= solution.pivot { &solution.before } else { &solution.after };
            let repeated = at > 1 && at != solution.pivot + 1;
            let layout = match layouts.last() {
                Some(previous) if repeated => Layout::clone(previous),
                _ if between_windows => shape.plain_layout(query, word, &solution.factors),
                _ => shape.layout(query, word, &solution.factors),
            };
            layouts.push(layout);
        }
        layouts.push(shape.end_layout(query, 1, &solution.factors));
        layouts
    }

    /// What `found` would have been.
    pub(crate) fn alternative(&self, found: &Found) -> Alternative {
        let case = self.case(&found.path, &found.solution);
        Alternative {
            memories: self.memories(&found.path),
            layouts: self.layouts(&found.path, &found.solution),
            throughput: found.prediction.throughput,
            seconds: (self.model == CostModel::Default).then_some(found.prediction.seconds),
            bound: Some(case.refined(found.prediction.bound, &found.prediction.hops)),
        }
    }
}
