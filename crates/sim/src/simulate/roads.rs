//! Channels and the wires that they cross, at work.
//!
//! A channel serves one request at a time. Where it crosses a wire, what it takes depends on who
//! else crosses it meanwhile: the end of a service is planned anew whenever one starts or ends on
//! that wire, and what was planned before is void.

use crate::agenda::Agenda;
use crate::channel::ChannelSpec;
use crate::scenario::Rule;
use crate::simulate::lean::{LeanChannel, Served, payload_bytes};
use crate::simulate::wire::Wires;
use model::{ChannelId, MemoryId, Place, Request, Topology, WireId, Work};
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

/// A wire, in either direction; the same where it is half duplex.
#[derive(Debug, Clone, Copy)]
struct Crossing {
    to_host: usize,
    from_host: usize,
}

/// What a channel's requests cross.
#[derive(Debug, Clone, Copy)]
enum Across {
    Nothing,
    Wire(Crossing),
    /// The ports of the memories at both ends, of a link.
    Ports,
}

#[derive(Debug)]
struct Road {
    channel: LeanChannel,
    across: Across,
}

/// A memory at which requests end.
#[derive(Debug)]
struct End {
    is_host: bool,
    /// Where other nodes reach it.
    port: Option<Crossing>,
}

/// All channels and wires of a run.
#[derive(Debug)]
pub(crate) struct Roads {
    roads: Vec<Road>,
    /// Those of `roads`, sorted.
    ids: Vec<ChannelId>,
    wires: Wires,
    /// Of each wire, how often its plan has changed.
    versions: Vec<u64>,
    /// By the index of a memory's regions.
    ends: Vec<End>,
    done: VecDeque<Served>,
}

/// The clock of a run, whose other events are `E`.
pub(crate) type Clock<E> = Agenda<E>;

impl Roads {
    /// The channels `ids` of `topology`, which are sorted, and their wires; regions are of `memories`.
    pub(crate) fn new(topology: &Topology, ids: Vec<ChannelId>, memories: &[MemoryId]) -> Self {
        let mut crossings = Crossings::default();
        let road = |&id: &ChannelId| {
            let across = match wire_of(topology, id) {
                Some((id, wire)) => Across::Wire(crossings.of(id, wire)),
                None if topology.link(id).is_some() => Across::Ports,
                None => Across::Nothing,
            };
            let spec = spec_of(topology, id).expect("plans use channels of their cluster");
            Road { channel: LeanChannel::new(spec), across }
        };
        let roads = ids.iter().map(road).collect();
        let end = |&id: &MemoryId| End {
            is_host: topology.memory(id).is_some_and(|memory| memory.kind.is_host()),
            port: topology.port(id).map(|(id, wire)| crossings.of(id, wire)),
        };
        let ends = memories.iter().map(end).collect();
        let Crossings { wires, versions, .. } = crossings;
        Roads { roads, ids, wires, versions, ends, done: VecDeque::new() }
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
            RoadTick::Crossed { wire, version } if self.versions[wire] == version => {
                let (crossed, changed) = self.wires.leave(clock.now(), wire);
                crossed.into_iter().for_each(|road| self.end(clock, road));
                self.plan(clock, changed);
            }
            RoadTick::Crossed { .. } => {}
        }
    }

    /// The next request that has ended.
    pub(crate) fn poll(&mut self) -> Option<Served> {
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
        let now = clock.now();
        let Road { channel, across } = &mut self.roads[road];
        let Some(job) = channel.begin(now) else { return };
        let across = crosses(&job.request, *across, &self.ends);
        if across == [None; 2] {
            return clock.add(now + job.service, RoadTick::End(road).into());
        }
        let work = (payload_bytes(&job.request), job.service);
        let changed = self.wires.join(now, road, across, work);
        self.plan(clock, changed);
    }

    /// Plans when the next request has crossed each of these wires.
    fn plan<E: From<RoadTick>>(&mut self, clock: &mut Clock<E>, wires: Vec<usize>) {
        for wire in wires {
            self.versions[wire] += 1;
            let version = self.versions[wire];
            if let Some(at) = self.wires.next_at(wire) {
                clock.add(at, RoadTick::Crossed { wire, version }.into());
            }
        }
    }
}

/// The wires that a request crosses.
fn crosses(request: &Request, across: Across, ends: &[End]) -> [Option<usize>; 2] {
    let end = |place: &Place| &ends[place.region.index as usize];
    match (across, &request.work) {
        (Across::Wire(wire), Work::Copy(work)) if end(&work.dst).is_host => {
            [Some(wire.to_host), None]
        }
        (Across::Wire(wire), Work::Copy(_)) => [Some(wire.from_host), None],
        (Across::Wire(wire), Work::Commit { .. } | Work::Abort { .. }) => {
            [Some(wire.to_host), None]
        }
        (Across::Ports, Work::Copy(work)) => {
            let out = end(&work.src).port.map(|port| port.from_host);
            [out, end(&work.dst).port.map(|port| port.to_host)]
        }
        (Across::Nothing, _) | (Across::Ports, _) => [None; 2],
    }
}

/// Wires as they come up.
#[derive(Default)]
struct Crossings {
    all: BTreeMap<WireId, Crossing>,
    wires: Wires,
    versions: Vec<u64>,
}

impl Crossings {
    fn of(&mut self, id: WireId, wire: &model::Wire) -> Crossing {
        let wires = &mut self.wires;
        let crossing = *self.all.entry(id).or_insert_with(|| {
            let to_host = wires.add(wire);
            let from_host = if wire.half_duplex { to_host } else { wires.add(wire) };
            Crossing { to_host, from_host }
        });
        self.versions.resize(self.wires.len(), 0);
        crossing
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

/// The wire that a channel inside a node crosses, and what names it.
pub(crate) fn wire_of(topology: &Topology, id: ChannelId) -> Option<(WireId, &model::Wire)> {
    let (class, _) = topology.class_of(id.node)?;
    let index = topology.channel(id)?.wire?;
    let wire = topology.classes[class].wires.get(usize::from(index))?;
    Some((WireId { node: id.node, index }, wire))
}
