//! An engine among peers that say anything at any time: it never panics, and once they are silent
//! nothing of them is left.

mod support;

use isometry_engine::{
    AskId, Asked, ChannelConfig, Commit, Engine, EngineConfig, HopReport, Packet, PeerConfig,
    PeerMessage, PoolConfig, Program, Transfer,
};
use model::{
    ChannelError, ChannelErrorKind, ChannelId, MemoryId, NodeId, Outcome, Place, Priority,
    RegionId, Request, Time, TransferError, TransferId,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use support::{broken, done, region};

const ME: NodeId = NodeId(1);
const BYTES: u64 = 64;
const LEASE_NS: u64 = 5_000_000_000;

/// The nodes of memories on the way, and of the channels between them.
const PATHS: [(&[u32], &[u32]); 9] = [
    (&[0, 1, 1], &[0, 1]),
    (&[1, 0, 0], &[1, 0]),
    (&[0, 1], &[0]),
    (&[1, 0], &[1]),
    (&[0, 1, 2], &[0, 1]),
    (&[1, 1, 1], &[1, 1]),
    (&[1, 0, 1], &[1, 0]),
    (&[2, 0, 0], &[2, 0]),
    (&[0, 1, 1], &[0, 0]),
];

fn program(path: usize) -> Arc<Program> {
    let (nodes, channels) = PATHS[path];
    let (layout, part) = support::row(BYTES);
    let hops = channels.len();
    let mut plan = support::plan(vec![layout; hops + 1], &vec![16; hops], &vec![32; hops - 1], 1);
    plan.phase = vec![0];
    for (memory, &node) in plan.memories.iter_mut().zip(nodes) {
        memory.node = NodeId(node);
    }
    for (buffer, memory) in plan.buffers.iter_mut().zip(&plan.memories[1..]) {
        buffer.memory = *memory;
    }
    for (hop, &node) in plan.hops.iter_mut().zip(channels) {
        hop.channel = ChannelId { node: NodeId(node), index: 0 };
    }
    Arc::new(Program::compile(&plan, part.clone(), part).unwrap())
}

/// What happens to the engine.
#[derive(Debug, Clone)]
enum Act {
    Hear {
        from: u32,
        sessions: [u64; 2],
        is_over: bool,
        ack: u64,
        body: Body,
    },
    Submit {
        path: usize,
        commits: bool,
    },
    Cancel(usize),
    /// The oldest request ends.
    Complete {
        fails: bool,
    },
    Pass(u64),
    CutOff,
}

type Body = Option<(u64, AskId, PeerMessage)>;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=BYTES + 1, Just(16), Just(32), Just(BYTES), Just(u64::MAX)]
}

fn spot() -> impl Strategy<Value = Place> {
    let offset = prop_oneof![Just(0), number()];
    (0..3u32, 0..2u32, offset).prop_map(|(index, generation, offset)| Place {
        region: RegionId { index, generation },
        offset,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let failed = (0..20usize, any::<u32>()).prop_map(|(hop, node)| {
        let memory = MemoryId { node: NodeId(node), index: 9 };
        let cause = ChannelError::new(ChannelErrorKind::PeerLost, "so they say");
        Outcome::Failed(TransferError { hop, memory, cause })
    });
    prop_oneof![Just(Outcome::Done), Just(Outcome::Cancelled), Just(Outcome::TimedOut), failed]
}

fn asked() -> impl Strategy<Value = Arc<Asked>> {
    let lives = [0, 1].map(|_| prop::option::of(0..3u32));
    (0..PATHS.len(), spot(), spot(), -1..2i32, any::<bool>(), lives).prop_map(
        |(path, src, dst, priority, commits, lives)| {
            let commit = commits.then_some(Commit { sync: true });
            let (program, priority) = (program(path), Priority(priority));
            Arc::new(Asked { program, src, dst, priority, commit, lives })
        },
    )
}

/// What hops did that nobody has seen.
fn tales() -> impl Strategy<Value = Vec<HopReport>> {
    let tale = prop_oneof![Just(Duration::ZERO), Just(Duration::MAX)].prop_map(|all| HopReport {
        channel: ChannelId { node: NodeId(9), index: 9 },
        from: POOL,
        to: POOL,
        bytes: u64::MAX,
        requests: u64::MAX,
        busy: all,
        waiting_for_input: all,
        waiting_for_space: all,
        waiting_for_channel: all,
        held_up_by: Some(TransferId { index: u32::MAX, generation: 0 }),
    });
    prop::collection::vec(tale, 0..4)
}

fn message() -> impl Strategy<Value = PeerMessage> {
    prop_oneof![
        4 => asked().prop_map(PeerMessage::Reserve),
        1 => (asked(), outcome()).prop_map(|(asked, outcome)| PeerMessage::Undo(asked, outcome)),
        2 => Just(PeerMessage::Reserved),
        1 => Just(PeerMessage::Knock),
        2 => prop::option::of(spot()).prop_map(PeerMessage::Open),
        3 => number().prop_map(PeerMessage::Arrived),
        3 => number().prop_map(PeerMessage::Freed),
        1 => outcome().prop_map(PeerMessage::Stop),
        1 => outcome().prop_map(PeerMessage::Hush),
        1 => Just(PeerMessage::Quiet),
        1 => number().prop_map(PeerMessage::Progress),
        1 => (outcome(), tales()).prop_map(|(outcome, tales)| PeerMessage::Ended(outcome, tales)),
    ]
}

fn name() -> impl Strategy<Value = AskId> {
    (0..3u32, 1..3u32, 1..4u64).prop_map(|(asker, life, serial)| AskId {
        asker: NodeId(asker),
        life,
        serial,
    })
}

fn session() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(1 << 32 | 1), 1 => Just(1 << 32 | 2), 1 => Just(2 << 32 | 1), 1 => Just(0)]
}

fn act() -> impl Strategy<Value = Act> {
    let numbered = prop_oneof![9 => 1..12u64, 1 => Just(0), 1 => Just(u64::MAX)];
    let body = prop::option::weighted(0.95, (numbered, name(), message()));
    let over = prop::bool::weighted(0.03);
    let heard = (0..4u32, [session(), session()], over, prop_oneof![0..4u64, Just(u64::MAX)], body);
    prop_oneof![
        12 => heard.prop_map(|(from, sessions, is_over, ack, body)| {
            Act::Hear { from, sessions, is_over, ack, body }
        }),
        2 => (0..PATHS.len(), any::<bool>()).prop_map(|(path, commits)| Act::Submit { path, commits }),
        1 => (0..4usize).prop_map(Act::Cancel),
        4 => prop::bool::weighted(0.1).prop_map(|fails| Act::Complete { fails }),
        2 => (0..LEASE_NS / 2).prop_map(Act::Pass),
        1 => Just(Act::CutOff),
    ]
}

/// An engine and what it has out.
struct World {
    engine: Engine,
    now: u64,
    ids: Vec<TransferId>,
    requests: Vec<Request>,
}

const POOL: MemoryId = MemoryId { node: ME, index: 1 };

impl World {
    fn new() -> Self {
        let channels = vec![ChannelConfig::new(ChannelId { node: ME, index: 0 }, 2)];
        let pool =
            PoolConfig { memory: POOL, region: region(9), capacity_bytes: 8192, reserve_bytes: 0 };
        let peers = Some(PeerConfig::new(ME));
        let config =
            EngineConfig { peers, max_transfers: 4, ..EngineConfig::new(channels, vec![pool]) };
        World { engine: Engine::new(config), now: 0, ids: Vec::new(), requests: Vec::new() }
    }

    fn play(&mut self, act: &Act) {
        let now = Time(self.now);
        match act.clone() {
            Act::Hear { from, sessions: [session, to_session], is_over, ack, body } => {
                let (from, to) = (NodeId(from), ME);
                let asks = true;
                let packet = Packet { from, to, session, to_session, is_over, asks, ack, body };
                self.engine.handle_peer(now, packet);
            }
            Act::Submit { path, commits } => {
                let commit = commits.then_some(Commit { sync: false });
                let (src, dst) = (support::place(1, 0), support::place(2, 0));
                let transfer = Transfer { commit, ..Transfer::new(program(path), src, dst) };
                self.ids.extend(self.engine.submit(now, transfer).ok());
            }
            Act::Cancel(at) => {
                if let Some(&id) = self.ids.get(at) {
                    self.engine.cancel(now, id);
                }
            }
            Act::Complete { fails } => self.complete(fails),
            Act::Pass(ns) => self.pass(ns),
            Act::CutOff => self.cut_off(),
        }
        self.look();
    }

    fn complete(&mut self, fails: bool) {
        if !self.requests.is_empty() {
            let mut ended = done(&self.requests.remove(0));
            if fails {
                ended.result = Err(broken());
            }
            self.engine.handle_completion(Time(self.now), ended);
        }
    }

    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        let mut alarms = 0;
        while let Some(due) = self.engine.poll_timeout().filter(|due| due.0 <= end) {
            alarms += 1;
            assert!(alarms < 1000, "the engine rings and nothing changes");
            self.now = self.now.max(due.0);
            self.engine.handle_timeout(Time(self.now));
        }
        self.now = end;
    }

    fn cut_off(&mut self) {
        while let Some((node, floor)) = self.engine.poll_disconnect() {
            self.engine.handle_disconnected(Time(self.now), node, floor);
        }
    }

    /// All that may be asked is asked.
    fn look(&mut self) {
        while self.engine.poll_peer().is_some() {}
        while let Some(event) = self.engine.poll_event() {
            assert!(self.engine.report(event.transfer).is_some());
            self.engine.forget(event.transfer);
            self.ids.retain(|&id| id != event.transfer);
        }
        self.requests.extend(std::iter::from_fn(|| self.engine.poll_request()));
        for &id in &self.ids {
            assert!(self.engine.report(id).is_some());
            let (done, all) = self.engine.progress(id).unwrap();
            assert!(done <= all);
            assert!(self.engine.waits(id).len() < 8);
        }
    }

    /// The peers are silent from now on, and are cut off when they are given up.
    fn end(&mut self) {
        for _ in 0..8 {
            self.pass(LEASE_NS);
            self.cut_off();
            self.look();
            while !self.requests.is_empty() {
                self.complete(false);
                self.look();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_is_left_of_peers_that_say_anything(acts in prop::collection::vec(act(), 1..150)) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.play(act));
        world.end();
        prop_assert!(world.ids.is_empty(), "{:?}", world.ids);
        prop_assert!(world.engine.is_idle());
        prop_assert_eq!(world.engine.staging(POOL).unwrap().0, 0);
        prop_assert_eq!(world.engine.poll_timeout(), None);
    }
}
