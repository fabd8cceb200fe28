//! Channels and the wires that they cross, at work.
//!
//! A channel serves one request at a time. Where it crosses a wire, what it takes depends on who
//! else crosses it meanwhile: the end of a service is planned anew whenever one starts or ends on
//! that wire, and what was planned before is void.

use crate::agenda::Agenda;
use crate::channel::ChannelSpec;
use crate::scenario::Rule;
use crate::simulate::lean::{LeanChannel, payload_bytes};
use crate::simulate::wire::Wire;
use model::{ChannelId, NodeId, Request, Topology, Work};
use std::collections::{BTreeMap, VecDeque};

/// Requests in flight where a channel's own number was not measured; the planner counts on it.
const IN_FLIGHT: u32 = 2;

/// What the clock brings to channels and wires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoadTick {
    /// A channel's next request may be ready.
    Begin(usize),
    /// A channel's request has ended.
    End(usize),
    /// A wire's next request has crossed, unless the wire's plan has changed since.
    Crossed {
        /// Which wire.
        wire: usize,
        /// The plan that said so.
        version: u64,
    },
}

/// The wire of a channel, in either direction; the same where it is half duplex.
#[derive(Debug, Clone, Copy)]
struct Crossing {
    to_host: usize,
    from_host: usize,
}

#[derive(Debug)]
struct Road {
    channel: LeanChannel,
    crossing: Option<Crossing>,
}

#[derive(Debug)]
struct Lane {
    wire: Wire,
    version: u64,
}

/// All channels and wires of a run.
#[derive(Debug)]
pub(crate) struct Roads {
    roads: Vec<Road>,
    /// Those of `roads`, sorted.
    ids: Vec<ChannelId>,
    wires: Vec<Lane>,
    /// Whether a memory belongs to the host, by the index of its regions.
    is_host: Vec<bool>,
    done: VecDeque<Request>,
}

/// The clock of a run, whose other events are `E`.
pub(crate) type Clock<E> = Agenda<E>;

impl Roads {
    /// The channels `ids` of `topology`, which are sorted, and their wires.
    pub(crate) fn new(topology: &Topology, ids: Vec<ChannelId>, is_host: Vec<bool>) -> Self {
        let (roads, wires, done) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut made = Roads { roads, ids: Vec::new(), wires, is_host, done };
        let mut crossings = BTreeMap::new();
        for &id in &ids {
            let crossing = wire_of(topology, id)
                .map(|(key, wire)| *crossings.entry(key).or_insert_with(|| made.crossing(wire)));
            let spec = spec_of(topology, id).expect("plans use channels of their cluster");
            made.roads.push(Road { channel: LeanChannel::new(spec), crossing });
        }
        Roads { ids, ..made }
    }

    fn crossing(&mut self, wire: &model::Wire) -> Crossing {
        let lane = || Lane { wire: Wire::new(wire), version: 0 };
        let to_host = self.wires.len();
        self.wires.push(lane());
        if wire.half_duplex {
            return Crossing { to_host, from_host: to_host };
        }
        self.wires.push(lane());
        Crossing { to_host, from_host: to_host + 1 }
    }

    /// Takes a request.
    pub(crate) fn submit<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, request: Request) {
        let road = self.ids.binary_search(&request.channel).expect("the channels of all plans");
        let channel = &mut self.roads[road].channel;
        channel.submit(clock.now(), request);
        if channel.has_one() {
            self.begin(clock, road);
        }
    }

    /// What the clock brought.
    pub(crate) fn tick<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, tick: RoadTick) {
        match tick {
            RoadTick::Begin(road) => self.begin(clock, road),
            RoadTick::End(road) => self.end(clock, road),
            RoadTick::Crossed { wire, version } if self.wires[wire].version == version => {
                for road in self.wires[wire].wire.leave(clock.now()) {
                    self.end(clock, road);
                }
                self.plan(clock, wire);
            }
            RoadTick::Crossed { .. } => {}
        }
    }

    /// The next request that has ended.
    pub(crate) fn poll(&mut self) -> Option<Request> {
        self.done.pop_front()
    }

    fn end<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, road: usize) {
        self.done.extend(self.roads[road].channel.end());
        self.begin(clock, road);
    }

    /// Serves the next request of a channel that is idle, or plans to when it is ready.
    fn begin<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, road: usize) {
        let now = clock.now();
        match self.roads[road].channel.ready_at() {
            Some(at) if at <= now => self.serve(clock, road),
            Some(at) => clock.add(at, RoadTick::Begin(road).into()),
            None => {}
        }
    }

    fn serve<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, road: usize) {
        let (now, is_host) = (clock.now(), &self.is_host);
        let Road { channel, crossing } = &mut self.roads[road];
        let Some(job) = channel.begin() else { return };
        let Some(crossing) = crossing else {
            return clock.add(now + job.service, RoadTick::End(road).into());
        };
        let to_host = reaches_host(&job.request, is_host);
        let wire = if to_host { crossing.to_host } else { crossing.from_host };
        let bytes = payload_bytes(&job.request);
        self.wires[wire].wire.join(now, road, bytes, job.service);
        self.plan(clock, wire);
    }

    /// Plans when the next request has crossed a wire.
    fn plan<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, wire: usize) {
        let lane = &mut self.wires[wire];
        lane.version += 1;
        if let Some(at) = lane.wire.next_at() {
            clock.add(at, RoadTick::Crossed { wire, version: lane.version }.into());
        }
    }
}

fn reaches_host(request: &Request, is_host: &[bool]) -> bool {
    match &request.work {
        Work::Copy(work) => is_host[work.dst.region.index as usize],
        Work::Commit { .. } | Work::Abort { .. } => true,
    }
}

/// How a channel or link of `topology` behaves.
pub(crate) fn spec_of(topology: &Topology, id: ChannelId) -> Option<ChannelSpec> {
    let inside = topology.channel(id).map(|c| (&c.curves, c.latency_ns, c.in_flight));
    let between = topology.link(id).map(|l| (&l.curves, l.latency_ns, l.in_flight));
    let (curves, latency_ns, in_flight) = inside.or(between)?;
    Some(ChannelSpec {
        id,
        curves: curves.clone(),
        latency_ns,
        jitter_ns: 0,
        max_in_flight: in_flight.unwrap_or(IN_FLIGHT),
        rule: Rule::Priority,
    })
}

/// The wire that a channel crosses, and what names it.
pub(crate) fn wire_of(topology: &Topology, id: ChannelId) -> Option<((NodeId, u16), &model::Wire)> {
    let (class, _) = topology.class_of(id.node)?;
    let index = topology.channel(id)?.wire?;
    let wire = topology.classes[class].wires.get(usize::from(index))?;
    Some(((id.node, index), wire))
}
