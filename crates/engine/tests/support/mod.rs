//! A cluster in vectors: memories, hand-written plans, and channels that move real bytes at the
//! worst legal moment.

#![allow(dead_code, reason = "each test file uses its part")]

use isometry_engine::{ChannelConfig, Engine, EngineConfig, PoolConfig, Program, Transfer};
use layout::{Part, Placement, oracle};
use model::{
    Algorithm, Bound, Buffer, ChannelError, ChannelErrorKind, ChannelId, ChannelKind, Completion,
    CopyWork, CostModel, FieldSpace, Hop, IndexSpace, Layout, Limit, MemoryId, NodeId, Place, Plan,
    RegionId, Request, SearchReport, Selection, ShapeClass, Time, Work,
};
use std::sync::Arc;

/// The memory number `index` of the one node.
pub(crate) fn memory(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

/// The channel number `index` of the one node.
pub(crate) fn channel(index: u16) -> ChannelId {
    ChannelId { node: NodeId(0), index }
}

/// The region number `index`.
pub(crate) fn region(index: u32) -> RegionId {
    RegionId { index, generation: 0 }
}

/// A place in a region.
pub(crate) fn place(index: u32, offset: u64) -> Place {
    Place { region: region(index), offset }
}

/// A plan over memories 0, 1, … with these layouts; hop `i` runs on channel `i % channels`.
pub(crate) fn plan(
    layouts: Vec<Layout>,
    request_bytes: &[u64],
    buffers: &[u64],
    channels: u16,
) -> Plan {
    let hops = layouts.len() - 1;
    let hop = |i: usize| Hop {
        channel: channel(u16::try_from(i).unwrap() % channels),
        kind: ChannelKind::Memcpy,
        prefix_bytes: 1,
        shuffle_bytes: 1,
        class: ShapeClass::Run,
        throughput: 1.0,
        request_bytes: request_bytes[i],
    };
    let id = |i: usize| memory(u16::try_from(i).unwrap());
    let buffer = |i: usize| Buffer { memory: id(i + 1), bytes: buffers[i] };
    Plan {
        algorithm: Algorithm::Full,
        model: CostModel::Default,
        throughput: 1.0,
        seconds: None,
        memories: (0..=hops).map(id).collect(),
        phase: vec![0; 8],
        layouts,
        hops: (0..hops).map(hop).collect(),
        buffers: (0..hops - 1).map(buffer).collect(),
        bound_by: Bound { hop: 0, why: Limit::Channel },
        alternatives: Vec::new(),
        search: SearchReport::default(),
    }
}

/// A row of `bytes` bytes and the part that holds all of it.
pub(crate) fn row(bytes: u64) -> (Layout, Part) {
    let space = IndexSpace::of(&[("x", bytes)]).unwrap();
    let fields = FieldSpace::packed(&[1]).unwrap();
    let layout = Layout::row_major(1);
    let placement = Placement::of_layout(&layout, &space, &fields).unwrap();
    (layout, placement.select(&Selection::all(&space), &[0]).unwrap())
}

/// A program that moves `bytes` bytes over `hops` hops, in requests of `request_bytes`, through
/// rings of `ring_bytes`.
pub(crate) fn run_program(
    bytes: u64,
    hops: usize,
    request_bytes: u64,
    ring_bytes: u64,
) -> Arc<Program> {
    let (layout, part) = row(bytes);
    let mut plan = plan(
        vec![layout; hops + 1],
        &vec![request_bytes; hops],
        &vec![ring_bytes; hops - 1],
        u16::try_from(hops).unwrap(),
    );
    plan.phase = vec![0];
    Arc::new(Program::compile(&plan, part.clone(), part).unwrap())
}

/// An engine with `channels` channels, and a pool of `capacity_bytes` in each of the memories
/// 1 to 8, whose region has the memory's number.
pub(crate) fn engine(channels: u16, max_in_flight: u32, capacity_bytes: u64) -> Engine {
    let channels = (0..channels).map(|i| ChannelConfig::new(channel(i), max_in_flight)).collect();
    let pool = |index: u16| PoolConfig {
        memory: memory(index),
        region: region(index.into()),
        capacity_bytes,
        reserve_bytes: 0,
    };
    Engine::new(EngineConfig::new(channels, (1..9).map(pool).collect()))
}

/// Region 100 to region 101, both at offset 0.
pub(crate) fn transfer(program: &Arc<Program>) -> Transfer {
    Transfer::new(Arc::clone(program), place(100, 0), place(101, 0))
}

/// A failure of a channel.
pub(crate) fn broken() -> ChannelError {
    ChannelError::new(ChannelErrorKind::Io, "broken")
}

/// Regions as vectors; region `i` is `regions[i]`.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    /// The bytes of each region.
    pub(crate) regions: Vec<Vec<u8>>,
}

impl Bytes {
    /// What a channel may do between taking a request and ending it: the destination holds
    /// garbage.
    pub(crate) fn scribble(&mut self, request: &Request) {
        if let Work::Copy(work) = &request.work {
            let source = vec![0xEE; self.of(work.src).len()];
            self.apply(work, &source);
        }
    }

    /// Moves the bytes, as late as a channel may.
    pub(crate) fn finish(&mut self, request: &Request) {
        if let Work::Copy(work) = &request.work {
            let source = self.of(work.src).to_vec();
            self.apply(work, &source);
        }
    }

    fn of(&self, place: Place) -> &[u8] {
        &self.regions[place.region.index as usize]
    }

    fn apply(&mut self, work: &CopyWork, source: &[u8]) {
        let target = &mut self.regions[work.dst.region.index as usize];
        for copy in work.list.iter() {
            let bases = (work.src.offset as usize, work.dst.offset as usize);
            oracle::copy(copy, source, bases.0, target, bases.1);
        }
    }
}

/// Ends `request` well.
pub(crate) fn done(request: &Request) -> Completion {
    Completion { request: request.id, result: Ok(()) }
}

/// Ends `request` badly.
pub(crate) fn failed(request: &Request) -> Completion {
    Completion { request: request.id, result: Err(broken()) }
}

/// All requests that the engine gives out now.
pub(crate) fn requests(engine: &mut Engine) -> Vec<Request> {
    std::iter::from_fn(|| engine.poll_request()).collect()
}

/// Runs everything to its end, in the order given out; returns the requests.
pub(crate) fn run(engine: &mut Engine, now: Time) -> Vec<Request> {
    let mut all = Vec::new();
    while let Some(request) = engine.poll_request() {
        engine.handle_completion(now, done(&request));
        all.push(request);
    }
    all
}
