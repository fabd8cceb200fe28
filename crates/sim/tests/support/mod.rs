//! Scenarios by hand, shared by the tests of this folder.
#![allow(dead_code, reason = "each test file uses a part")]

use isometry_sim::{
    ChannelSpec, End, Entry, Event, PoolSpec, Rule, Scenario, Stored, TransferSpec,
};
use model::{
    Algorithm, Bound, Buffer, ChannelId, ChannelKind, Component, CostModel, Curves, FieldSpace,
    Hop, IndexSpace, Layout, Limit, MemoryId, NodeId, Plan, Priority, SearchReport, Selection,
    ShapeClass, Throughput, Time,
};

/// A chain of memories 0, 1, … joined by channels 0, 1, …, over a square of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) hops: u16,
    pub(crate) side: u64,
    pub(crate) request_bytes: u64,
    pub(crate) ring_bytes: u64,
    /// Whether each hop turns the square into tiles and back, or keeps it as it is.
    pub(crate) converts: bool,
}

const TILE: u64 = 8;

impl Chain {
    pub(crate) fn transfer(&self, priority: i32) -> TransferSpec {
        let space = IndexSpace::of(&[("y", self.side), ("x", self.side)]).unwrap();
        let part = Selection::all(&space);
        let end = |layout: Layout| End {
            space: space.clone(),
            layout,
            part: part.clone(),
            stored: Stored::all(FieldSpace::packed(&[1]).unwrap()),
        };
        let last = if self.converts { columns() } else { rows() };
        let (fields, ends) = (FieldSpace::packed(&[1]).unwrap(), [end(rows()), end(last)]);
        let priority = Priority(priority);
        TransferSpec { priority, ..TransferSpec::new(self.plan(), fields, ends) }
    }

    fn plan(&self) -> Plan {
        let layouts = self.layouts();
        let sizes = layout::Sizes { extents: vec![self.side; 2], field_bytes: vec![1] };
        let pairs = (0u16..).zip(layouts.windows(2));
        let hops: Vec<Hop> = pairs.map(|(i, pair)| self.hop(i, pair, &sizes)).collect();
        let buffer = |index| Buffer { memory: memory(index), bytes: self.ring_bytes };
        Plan {
            algorithm: Algorithm::Full,
            model: CostModel::Default,
            throughput: 1e9,
            seconds: None,
            memories: (0..=self.hops).map(memory).collect(),
            layouts,
            phase: vec![0; 2],
            hops,
            buffers: (1..self.hops).map(buffer).collect(),
            bound_by: Bound { hop: 0, why: Limit::Channel },
            alternatives: Vec::new(),
            search: SearchReport::default(),
        }
    }

    fn hop(&self, index: u16, pair: &[Layout], sizes: &layout::Sizes) -> Hop {
        Hop {
            channel: channel(index),
            kind: ChannelKind::Memcpy,
            prefix_bytes: layout::prefix_bytes(&pair[0], &pair[1], sizes),
            shuffle_bytes: layout::shuffle_bytes(&pair[0], &pair[1], sizes),
            class: ShapeClass::Run,
            throughput: 1e9,
            request_bytes: self.request_bytes,
        }
    }

    /// Rows to columns by way of tiles, which the middle hop turns; or rows all the way.
    fn layouts(&self) -> Vec<Layout> {
        if !self.converts {
            return vec![rows(); usize::from(self.hops) + 1];
        }
        let tile = |fast: u8, slow: u8| {
            vec![inner(fast), inner(slow), Component::Outer(1), Component::Outer(0)]
        };
        let blocked = |fast: u8, slow: u8| {
            vec![inner(fast), Component::Outer(fast), inner(slow), Component::Outer(slow)]
        };
        let middle = usize::from(self.hops) / 2;
        let of = |i: usize| match i {
            0 => blocked(1, 0),
            i if i == usize::from(self.hops) => blocked(0, 1),
            i if i <= middle => tile(1, 0),
            _ => tile(0, 1),
        };
        let full = |c: Vec<Component>| [vec![Component::Fields], c].concat();
        (0..=usize::from(self.hops)).map(|i| Layout::new(full(of(i)), 2).unwrap()).collect()
    }
}

fn inner(dim: u8) -> Component {
    Component::Inner { dim, level: 1, size: TILE }
}

fn rows() -> Layout {
    Layout::new(vec![Component::Fields, Component::Whole(1), Component::Whole(0)], 2).unwrap()
}

fn columns() -> Layout {
    Layout::new(vec![Component::Fields, Component::Whole(0), Component::Whole(1)], 2).unwrap()
}

pub(crate) fn memory(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

pub(crate) fn channel(index: u16) -> ChannelId {
    ChannelId { node: NodeId(0), index }
}

/// Channel `index` at `rate` bytes per second, its completions in order.
pub(crate) fn steady(index: u16, rate: f64) -> ChannelSpec {
    ChannelSpec {
        id: channel(index),
        curves: Curves::all(Throughput::constant(rate).unwrap()),
        latency_ns: 500,
        jitter_ns: 0,
        max_in_flight: 2,
        rule: Rule::Priority,
    }
}

/// A scenario of `transfers` over channels of `rates`, with `staging_bytes` in every memory.
pub(crate) fn scene(rates: &[f64], staging_bytes: u64, transfers: Vec<TransferSpec>) -> Scenario {
    let pool =
        |index| PoolSpec { memory: memory(index), capacity_bytes: staging_bytes, reserve_bytes: 0 };
    let last = u16::try_from(rates.len()).unwrap();
    Scenario {
        seed: 1,
        channels: (0..).zip(rates).map(|(i, &rate)| steady(i, rate)).collect(),
        ageing: None,
        pools: (0..=last).map(pool).collect(),
        transfers,
        fences: Vec::new(),
        faults: Vec::new(),
        payload: true,
        limit: Time(1 << 40),
    }
}

/// When `transfer` ended, and that it moved everything.
pub(crate) fn done_at(trace: &[Entry], transfer: usize) -> Time {
    let done = Event::Ended { transfer, outcome: model::Outcome::Done };
    trace.iter().find(|e| e.event == done).expect("the transfer is done").at
}
