//! Plans by the real planner, over a small random topology.

use crate::channel::ChannelSpec;
use crate::content::placement;
use crate::geometry::Geometry;
use crate::rng::Rng;
use crate::scenario::End;
use layout::Part;
use model::{
    Algorithm, Channel, ChannelKind, CostModel, FieldSpace, Memory, MemoryId, MemoryKind,
    NodeClass, Plan, Topology,
};
use planner::{Choice, Options, Query};

/// One node whose channels are `specs`, each between a few of `memories` memories.
pub(crate) fn topology(rng: &mut Rng, memories: u16, specs: &[ChannelSpec]) -> Topology {
    let memory = |index: u16| Memory {
        name: format!("m{index}"),
        kind: MemoryKind::Sys,
        capacity_bytes: None,
        th_bytes: None,
    };
    let class = NodeClass {
        name: "n".to_owned(),
        count: 1,
        memories: (0..memories).map(memory).collect(),
        channels: specs.iter().map(|spec| channel(rng, memories, spec)).collect(),
        wires: Vec::new(),
    };
    Topology {
        name: "random".to_owned(),
        generation: 0,
        th_bytes: rng.pick(&[256, 1024, 8192]),
        classes: vec![class],
        links: Vec::new(),
    }
}

/// A plan between two memories, if there is a path and its buffers can be small.
pub(crate) fn plan(
    rng: &mut Rng,
    topology: &Topology,
    geometry: &Geometry,
    ends: [(&End, MemoryId); 2],
) -> Option<Plan> {
    let parts = ends.map(|(end, _)| part(end, &geometry.fields()));
    let [src, dst] = [0, 1].map(|i: usize| planner::End {
        memory: ends[i].1,
        layout: parts[i].layout(),
        phase: parts[i].phase(),
        listed: 0,
        gaps: 0,
    });
    let (extents, field_bytes) = (parts[0].extents(), parts[0].field_bytes());
    let query = Query { src, dst, extents, field_bytes };
    let algorithms = [Algorithm::Full, Algorithm::Full, Algorithm::Simple, Algorithm::Spsl];
    let choice = Choice::Only(rng.pick(&algorithms));
    let options = Options { choice, model: CostModel::Default, ..Options::default() };
    planner::plan(topology, &query, &options).ok()
}

fn part(end: &End, fields: &FieldSpace) -> Part {
    let all: Vec<usize> = (0..fields.fields().len()).collect();
    let place = placement(end, fields).expect("a small instance");
    place.select(&end.part, &all).expect("the box lies inside")
}

fn channel(rng: &mut Rng, memories: u16, spec: &ChannelSpec) -> Channel {
    Channel {
        kind: ChannelKind::Memcpy,
        from: some(rng, memories),
        to: some(rng, memories),
        curves: spec.curves.clone(),
        latency_ns: spec.latency_ns,
        wire: None,
        in_flight: Some(spec.max_in_flight),
        assumed: false,
    }
}

/// At least one of `memories`.
fn some(rng: &mut Rng, memories: u16) -> Vec<u16> {
    let mut all: Vec<u16> = (0..memories).collect();
    rng.shuffle(&mut all);
    all.truncate(1 + rng.index(2.min(all.len())));
    all.sort_unstable();
    all
}
