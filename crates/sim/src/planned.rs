//! Plans by the real planner, over a small random topology.

use crate::channel::ChannelSpec;
use crate::content::part;
use crate::rng::Rng;
use crate::scenario::End;
use model::{
    Algorithm, Channel, ChannelKind, CostModel, Memory, MemoryId, MemoryKind, NodeClass, Plan,
    Span, Topology,
};
use planner::{Choice, Load, Options, Query};

/// One node whose channels are `specs`, each between a few of `memories` memories.
pub(crate) fn topology(rng: &mut Rng, memories: u16, specs: &[ChannelSpec]) -> Topology {
    let memory = |index: u16| Memory {
        name: format!("m{index}"),
        kind: MemoryKind::Sys,
        capacity_bytes: None,
        th_bytes: None,
        port: None,
    };
    let class = NodeClass {
        name: "n".to_owned(),
        first: 0,
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
    ends: [(&End, MemoryId); 2],
) -> Option<Plan> {
    let parts = ends.map(|(end, _)| part(end).expect("the box lies inside"));
    let [src, dst] = [0, 1].map(|i: usize| planner::End {
        memory: ends[i].1,
        layout: parts[i].layout(),
        phase: parts[i].phase(),
        listed: listed(ends[i].0),
        gaps: parts[i].gaps(),
    });
    let (extents, field_bytes) = (parts[0].extents(), parts[0].field_bytes());
    let query = Query { src, dst, extents, field_bytes, load: Load::IDLE };
    let algorithms = [Algorithm::Full, Algorithm::Full, Algorithm::Simple, Algorithm::Spsl];
    let choice = Choice::Only(rng.pick(&algorithms));
    let options = Options { choice, model: CostModel::Default, ..Options::default() };
    planner::plan(topology, &query, &options).ok()
}

/// A bit for each dimension of which an index list is taken.
fn listed(end: &End) -> u8 {
    let lists = end.part.spans().iter().map(|span| u8::from(matches!(span, Span::List(_))));
    lists.enumerate().map(|(dim, bit)| bit << dim).sum()
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
        stream_from_bytes: None,
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
