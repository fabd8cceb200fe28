//! Programs as the planner makes them, and packets of all kinds.

#![allow(dead_code, reason = "each test file uses its part")]

#[allow(unreachable_pub, reason = "a fuzz target is made of it too")]
pub(crate) mod play;

use engine::{
    AskId, Asked, ChannelConfig, Commit, Engine, EngineConfig, HopReport, Packet, PeerMessage,
    PoolConfig, Program, Transfer,
};
use layout::{Part, Placement};
use model::{
    ChannelError, ChannelErrorKind, ChannelId, Completion, Component, FieldSpace, IndexSpace,
    Layout, MemoryId, NodeId, Outcome, Place, Priority, RegionId, Selection, Span, Time, Topology,
    TransferError, Work,
};
use planner::{End, Load, Options, Query};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Two nodes with a memory for users and one for the network each, and small rings.
static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    let text = r#"
th_bytes = 1024
[[node]]
name = "n"
count = 2
memory = [ { name = "sys", kind = "SYS" }, { name = "reg", kind = "REG" } ]
channel = [
  { kind = "Memcpy", from = ["sys", "reg"], to = ["sys", "reg"], throughput = [[64, 1e9], [4096, 8e9]] },
]
[[link]]
kind = "RemoteMemcpy"
from = ["n.reg"]
to = ["n.reg"]
throughput = [[64, 1e8], [4096, 3e9]]
"#;
    cluster::parse(text).expect("a cluster")
});

/// How one end of a copy lies in its memory.
#[derive(Debug, Clone)]
pub(crate) enum Lie {
    /// In a layout that takes the dimensions and fields in this order, blocked by so many.
    Layout { order: Vec<usize>, block: u64 },
    /// As an array whose strides are the packed ones, times this.
    Strides(i64),
}

/// One end.
#[derive(Debug, Clone)]
pub(crate) struct EndSpec {
    pub(crate) lie: Lie,
    /// So many indices of each dimension come before the box.
    pub(crate) before: u64,
    /// The dimension along which an index list is taken, from the last to the first.
    pub(crate) listed: Option<usize>,
}

/// A copy.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) extents: Vec<u64>,
    pub(crate) field_bytes: Vec<u64>,
    pub(crate) ends: [EndSpec; 2],
    /// From one node to the other, or inside one.
    pub(crate) crosses: bool,
}

impl Case {
    fn part(&self, end: usize) -> Part {
        let names = ["x", "y", "z"];
        let EndSpec { lie, before, listed } = &self.ends[end];
        let sides: Vec<_> =
            names.into_iter().zip(self.extents.iter().map(|e| e + before)).collect();
        let space = IndexSpace::of(&sides).unwrap();
        let fields = FieldSpace::packed(&self.field_bytes).unwrap();
        let placement = match lie {
            Lie::Layout { order, block } => {
                Placement::of_layout(&layout(order, *block, self.extents.len()), &space, &fields)
            }
            Lie::Strides(times) => {
                Placement::of_strides(&space, &fields, &self.strides(end, *times))
            }
        };
        let span = |(dim, &extent): (usize, &u64)| {
            let (lo, hi) = (before.cast_signed(), (before + extent).cast_signed());
            if *listed == Some(dim) {
                Span::List((lo..hi).rev().collect())
            } else {
                Span::Range { lo, hi }
            }
        };
        let spans = self.extents.iter().enumerate().map(span).collect();
        let all: Vec<usize> = (0..self.field_bytes.len()).rev().collect();
        placement.unwrap().select(&Selection::new(&space, spans).unwrap(), &all).unwrap()
    }

    fn strides(&self, end: usize, times: i64) -> Vec<i64> {
        let mut stride = self.field_bytes.iter().sum::<u64>().cast_signed() * times;
        let mut strides = Vec::new();
        for extent in self.extents.iter().rev() {
            strides.insert(0, stride);
            stride *= (extent + self.ends[end].before).cast_signed();
        }
        strides
    }

    /// What the planner makes of it.
    pub(crate) fn program(&self) -> Arc<Program> {
        let [src, dst] = [self.part(0), self.part(1)];
        let memory = |node| MemoryId { node: NodeId(node), index: 0 };
        let end = |part, node, end: usize| End {
            memory: memory(node),
            layout: Part::layout(part),
            phase: Part::phase(part),
            listed: self.ends[end].listed.map_or(0, |dim| 1 << dim),
            gaps: Part::gaps(part),
        };
        let query = Query {
            src: end(&src, 0, 0),
            dst: end(&dst, u32::from(self.crosses), 1),
            extents: src.extents(),
            field_bytes: src.field_bytes(),
            load: Load::IDLE,
        };
        let plan = planner::plan(&TOPOLOGY, &query, &Options::default()).unwrap();
        assert!(plan.hops.len() >= if self.crosses { 3 } else { 1 });
        Arc::new(Program::compile(&plan, src, dst).unwrap())
    }
}

/// Dimensions and, as the last number, fields in `order`; dimension 0 in blocks of `block`.
fn layout(order: &[usize], block: u64, rank: usize) -> Layout {
    let component = |&at: &usize| match u8::try_from(at).unwrap() {
        _ if at == rank => vec![Component::Fields],
        0 if block > 1 => vec![Component::Inner { dim: 0, level: 1, size: block }],
        dim => vec![Component::Whole(dim)],
    };
    let mut all: Vec<Component> = order.iter().flat_map(component).collect();
    if block > 1 {
        all.push(Component::Outer(0));
    }
    Layout::new(all, rank).unwrap()
}

fn lie(rank: usize) -> impl Strategy<Value = Lie> {
    let order = Just((0..=rank).collect::<Vec<_>>()).prop_shuffle();
    prop_oneof![
        3 => (order, 1..5u64).prop_map(|(order, block)| Lie::Layout { order, block }),
        1 => prop_oneof![Just(1i64), Just(2), Just(-1)].prop_map(Lie::Strides),
    ]
}

fn end(rank: usize) -> impl Strategy<Value = EndSpec> {
    (lie(rank), 0..4u64, prop::option::weighted(0.3, 0..rank))
        .prop_map(|(lie, before, listed)| EndSpec { lie, before, listed })
}

/// Copies of a few hundred bytes.
pub(crate) fn case() -> impl Strategy<Value = Case> {
    (1..4usize).prop_flat_map(|rank| {
        let fields = prop::collection::vec(prop_oneof![Just(1u64), Just(3), Just(4)], 1..4);
        (prop::collection::vec(1..9u64, rank), fields, [end(rank), end(rank)], any::<bool>())
            .prop_map(|(extents, field_bytes, ends, crosses)| Case {
                extents,
                field_bytes,
                ends,
                crosses,
            })
    })
}

fn place() -> impl Strategy<Value = Place> {
    any::<(u32, u32, u64)>().prop_map(|(index, generation, offset)| Place {
        region: RegionId { index, generation },
        offset,
    })
}

fn memory() -> impl Strategy<Value = MemoryId> {
    any::<(u32, u16)>().prop_map(|(node, index)| MemoryId { node: NodeId(node), index })
}

fn kind() -> impl Strategy<Value = ChannelErrorKind> {
    prop::sample::select(vec![
        ChannelErrorKind::NoSpace,
        ChannelErrorKind::ShortRead,
        ChannelErrorKind::Io,
        ChannelErrorKind::DeviceLost,
        ChannelErrorKind::PeerLost,
        ChannelErrorKind::Busy,
        ChannelErrorKind::OutOfMemory,
        ChannelErrorKind::UnknownRegion,
        ChannelErrorKind::OutOfBounds,
        ChannelErrorKind::Dependency,
    ])
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let cause = (kind(), any::<String>(), any::<Option<i32>>());
    let failed =
        (any::<usize>(), memory(), cause).prop_map(|(hop, memory, (kind, detail, os_error))| {
            let cause = ChannelError { kind, detail, os_error };
            Outcome::Failed(TransferError { hop, memory, cause })
        });
    prop_oneof![Just(Outcome::Done), Just(Outcome::Cancelled), Just(Outcome::TimedOut), failed]
}

fn asked() -> impl Strategy<Value = Arc<Asked>> {
    let rest = (any::<i32>(), any::<Option<bool>>(), any::<[Option<u32>; 2]>());
    (case(), place(), place(), rest).prop_map(|(case, src, dst, (priority, sync, lives))| {
        Arc::new(Asked {
            program: case.program(),
            src,
            dst,
            priority: Priority(priority),
            commit: sync.map(|sync| Commit { sync }),
            lives,
        })
    })
}

fn hop_report() -> impl Strategy<Value = HopReport> {
    let numbers = any::<[u64; 6]>();
    (any::<(u32, u16)>(), memory(), memory(), numbers).prop_map(|((node, index), from, to, n)| {
        HopReport {
            channel: ChannelId { node: NodeId(node), index },
            from,
            to,
            bytes: n[0],
            requests: n[1],
            busy: Duration::from_nanos(n[2]),
            waiting_for_input: Duration::from_nanos(n[3]),
            waiting_for_space: Duration::from_nanos(n[4]),
            waiting_for_channel: Duration::from_nanos(n[5]),
            held_up_by: None,
        }
    })
}

/// Messages, each kind as often as any other.
pub(crate) fn message() -> impl Strategy<Value = PeerMessage> {
    let ended = (outcome(), prop::collection::vec(hop_report(), 0..4));
    prop_oneof![
        asked().prop_map(PeerMessage::Reserve),
        (asked(), outcome()).prop_map(|(asked, outcome)| PeerMessage::Undo(asked, outcome)),
        Just(PeerMessage::Reserved),
        Just(PeerMessage::Knock),
        prop::option::of(place()).prop_map(PeerMessage::Open),
        any::<u64>().prop_map(PeerMessage::Arrived),
        any::<u64>().prop_map(PeerMessage::Freed),
        outcome().prop_map(PeerMessage::Stop),
        outcome().prop_map(PeerMessage::Hush),
        Just(PeerMessage::Quiet),
        any::<u64>().prop_map(PeerMessage::Progress),
        ended.prop_map(|(outcome, hops)| PeerMessage::Ended(outcome, hops)),
    ]
}

/// Packets with or without a message.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let name = any::<(u32, u32, u64)>().prop_map(|(asker, life, serial)| AskId {
        asker: NodeId(asker),
        life,
        serial,
    });
    let body = prop::option::weighted(0.9, (any::<u64>(), name, message()));
    let head = any::<(u32, u32, u64, u64, bool, bool, u64)>();
    (head, body).prop_map(|((from, to, session, to_session, is_over, asks, ack), body)| Packet {
        from: NodeId(from),
        to: NodeId(to),
        session,
        to_session,
        is_over,
        asks,
        ack,
        body,
    })
}

/// All of a row of so many bytes.
pub(crate) fn row(bytes: u64) -> Part {
    let space = IndexSpace::of(&[("x", bytes)]).unwrap();
    let fields = FieldSpace::packed(&[1]).unwrap();
    let placement = Placement::of_layout(&Layout::row_major(1), &space, &fields).unwrap();
    placement.select(&Selection::all(&space), &[0]).unwrap()
}

/// What node 0 asks node 1 for, to run `program`.
pub(crate) fn reserve(program: &Arc<Program>) -> Packet {
    let place = |index| Place { region: RegionId { index, generation: 0 }, offset: 1 << 20 };
    let asked = Asked {
        program: Arc::clone(program),
        src: place(1),
        dst: place(2),
        priority: Priority(0),
        commit: None,
        lives: [None; 2],
    };
    let name = AskId { asker: NodeId(0), life: 1, serial: 1 };
    Packet {
        from: NodeId(0),
        to: NodeId(1),
        session: 1 << 32 | 1,
        to_session: 1 << 32 | 1,
        is_over: false,
        asks: true,
        ack: 0,
        body: Some((1, name, PeerMessage::Reserve(Arc::new(asked)))),
    }
}

/// The program that a packet asks for.
pub(crate) fn program_of(packet: &Packet) -> Arc<Program> {
    match &packet.body {
        Some((_, _, PeerMessage::Reserve(asked) | PeerMessage::Undo(asked, _))) => {
            Arc::clone(&asked.program)
        }
        other => panic!("{other:?}"),
    }
}

/// The copies of all requests of `program`, in the order in which one engine makes them that
/// drives everything.
pub(crate) fn copies(program: &Arc<Program>) -> Vec<Work> {
    let nodes = [NodeId(0), NodeId(1)];
    let channels = program.channels().collect::<std::collections::BTreeSet<_>>();
    let channels = channels.into_iter().map(|id| ChannelConfig::new(id, 2)).collect();
    let pool = |node| PoolConfig {
        memory: MemoryId { node, index: 1 },
        region: RegionId { index: 9, generation: 0 },
        capacity_bytes: 1 << 20,
        reserve_bytes: 0,
    };
    let mut engine = Engine::new(EngineConfig::new(channels, nodes.map(pool).into()));
    let place = |index| Place { region: RegionId { index, generation: 0 }, offset: 1 << 20 };
    let transfer = Transfer::new(Arc::clone(program), place(1), place(2));
    engine.submit(Time(0), transfer).unwrap();
    let mut works = Vec::new();
    while let Some(request) = engine.poll_request() {
        engine.handle_completion(Time(0), Completion { request: request.id, result: Ok(()) });
        works.push(request.work);
    }
    assert_eq!(engine.poll_event().unwrap().outcome, Outcome::Done);
    works
}
