//! What one engine says to another, message by message. How several get on is the simulator's.

mod support;

use isometry_engine::{
    AskId, Asked, ChannelConfig, Commit, Engine, EngineConfig, Packet, PeerConfig, PeerMessage,
    PoolConfig, Program, SubmitError, Transfer,
};
use model::{ChannelId, MemoryId, NodeId, Outcome, Place, Plan, Time, Work};
use std::sync::Arc;
use support::{done, place, region};

const BYTES: u64 = 64;
const NAME: AskId = AskId { asker: NodeId(0), life: 1, serial: 1 };

/// From memory 0 of node 0 by a ring in memory 1 of node 1 to memory 2 there.
fn program() -> Arc<Program> {
    let (layout, part) = support::row(BYTES);
    let mut plan: Plan = support::plan(vec![layout; 3], &[16, 16], &[32], 1);
    plan.phase = vec![0];
    let ends = [0, 1, 1].map(NodeId);
    for (memory, node) in plan.memories.iter_mut().zip(ends) {
        memory.node = node;
    }
    plan.buffers[0].memory = plan.memories[1];
    for (hop, node) in plan.hops.iter_mut().zip(ends) {
        hop.channel = ChannelId { node, index: 0 };
    }
    Arc::new(Program::compile(&plan, part.clone(), part).unwrap())
}

fn node(node: u32) -> Engine {
    let node = NodeId(node);
    let channels = vec![ChannelConfig::new(ChannelId { node, index: 0 }, 4)];
    let memory = MemoryId { node, index: 1 };
    let pool = PoolConfig { memory, region: region(9), capacity_bytes: 1 << 16, reserve_bytes: 0 };
    let peers = Some(PeerConfig::new(node));
    Engine::new(EngineConfig { peers, ..EngineConfig::new(channels, vec![pool]) })
}

fn transfer() -> Transfer {
    Transfer::new(program(), place(1, 0), place(2, 0))
}

/// The messages that an engine has for others.
fn said(engine: &mut Engine) -> Vec<PeerMessage> {
    let packets = std::iter::from_fn(|| engine.poll_peer());
    packets.filter_map(|packet| packet.body.map(|body| body.2)).collect()
}

/// Says `messages` of the transfer to node 1 as node `from`.
fn say(engine: &mut Engine, from: u32, first: u64, messages: Vec<PeerMessage>) {
    for (number, message) in (first..).zip(messages) {
        let body = Some((number, NAME, message));
        let (from, to) = (NodeId(from), NodeId(1));
        let (session, to_session) = (1 << 32 | 1, 1 << 32 | 1);
        let (is_over, asks, ack) = (false, false, 0);
        let packet = Packet { from, to, session, to_session, is_over, asks, ack, body };
        engine.handle_peer(Time(0), packet);
    }
}

fn reserve() -> PeerMessage {
    let (src, dst) = (place(1, 0), place(2, 0));
    let priority = model::Priority(0);
    let asked = Asked { program: program(), src, dst, priority, commit: None };
    PeerMessage::Reserve(Arc::new(asked))
}

#[test]
fn a_transfer_is_reserved_opened_run_and_ended() {
    let (mut a, mut b) = (node(0), node(1));
    let id = a.submit(Time(0), transfer()).unwrap();
    for _ in 0..40 {
        for packet in std::iter::from_fn(|| a.poll_peer()).collect::<Vec<_>>() {
            b.handle_peer(Time(0), packet);
        }
        for packet in std::iter::from_fn(|| b.poll_peer()).collect::<Vec<_>>() {
            a.handle_peer(Time(0), packet);
        }
        for engine in [&mut a, &mut b] {
            for request in support::requests(engine) {
                engine.handle_completion(Time(0), done(&request));
            }
        }
    }
    let event = a.poll_event().unwrap();
    assert_eq!((event.transfer, event.outcome), (id, Outcome::Done));
    assert_eq!(a.progress(id), Some((BYTES, BYTES)));
    assert!(a.is_idle() && b.is_idle() && b.poll_event().is_none());
    assert_eq!(b.staging(MemoryId { node: NodeId(1), index: 1 }).unwrap().0, 0);
}

#[test]
fn nobody_writes_where_he_has_not_been_let() {
    let mut a = node(0);
    a.submit(Time(0), transfer()).unwrap();
    assert!(support::requests(&mut a).is_empty());
    assert!(matches!(said(&mut a)[..], [PeerMessage::Knock, PeerMessage::Reserve(_)]));
}

#[test]
fn who_knows_nothing_of_a_transfer_is_quiet() {
    let mut b = node(1);
    say(&mut b, 2, 1, vec![PeerMessage::Hush(Outcome::Cancelled)]);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Quiet]));
    assert!(b.is_idle());
}

#[test]
fn what_is_to_be_undone_is_not_begun() {
    let mut b = node(1);
    let PeerMessage::Reserve(asked) = reserve() else { unreachable!() };
    let asked = Arc::new(Asked { commit: Some(Commit { sync: false }), ..(*asked).clone() });
    say(&mut b, 0, 1, vec![PeerMessage::Undo(asked, Outcome::Cancelled)]);
    let requests = support::requests(&mut b);
    assert!(matches!(&requests[..], [r] if matches!(r.work, Work::Abort { .. })), "{requests:?}");
    b.handle_completion(Time(0), done(&requests[0]));
    assert!(matches!(said(&mut b)[..], [PeerMessage::Ended(Outcome::Cancelled)]));
}

/// A place whose addresses would wrap is no place.
#[test]
fn a_ring_at_the_end_of_the_world_is_not_written() {
    let mut a = node(0);
    a.submit(Time(0), transfer()).unwrap();
    let body = Some((1, NAME, PeerMessage::Open(Some(place(9, u64::MAX - 3)))));
    let (session, to_session) = (1 << 32 | 1, 1 << 32 | 1);
    let (from, to, is_over, asks, ack) = (NodeId(1), NodeId(0), false, false, 0);
    let packet = Packet { from, to, session, to_session, is_over, asks, ack, body };
    a.handle_peer(Time(0), packet);
    assert!(support::requests(&mut a).is_empty());
}

#[test]
fn what_can_t_run_here_is_refused_with_a_reason() {
    let mut b = Engine::new(EngineConfig {
        peers: Some(PeerConfig::new(NodeId(1))),
        ..EngineConfig::new(Vec::new(), Vec::new())
    });
    say(&mut b, 0, 1, vec![reserve()]);
    let [PeerMessage::Ended(Outcome::Failed(e))] = &said(&mut b)[..] else { panic!("not refused") };
    assert!(e.cause.detail.contains("channel 0 of node1 is not driven"), "{}", e.cause.detail);
}

/// Of the asker's and the neighbour's words only theirs count, and none beyond what there is.
#[test]
fn words_of_strangers_and_impossible_ones_are_nothing() {
    let mut b = node(1);
    say(&mut b, 2, 1, vec![reserve()]);
    assert!(said(&mut b).is_empty(), "it was asked in another's name");
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Knock]);
    let words = said(&mut b);
    assert!(matches!(words[..2], [PeerMessage::Reserved, PeerMessage::Open(Some(_))]));
    say(
        &mut b,
        2,
        2,
        vec![
            PeerMessage::Arrived(16),
            PeerMessage::Stop(Outcome::Cancelled),
            PeerMessage::Quiet,
            PeerMessage::Hush(Outcome::Cancelled),
            PeerMessage::Freed(16),
            PeerMessage::Open(Some(place(9, 0))),
        ],
    );
    say(
        &mut b,
        0,
        3,
        vec![
            PeerMessage::Arrived(BYTES + 1),
            PeerMessage::Reserved,
            PeerMessage::Ended(Outcome::Done),
            PeerMessage::Freed(u64::MAX),
        ],
    );
    assert!(support::requests(&mut b).is_empty() && said(&mut b).is_empty());
    say(&mut b, 0, 7, vec![PeerMessage::Arrived(32), PeerMessage::Arrived(16)]);
    assert_eq!(support::requests(&mut b).len(), 2, "as much as has arrived");
}

#[test]
fn a_stopped_party_keeps_its_memory_until_the_writer_is_quiet() {
    let mut b = node(1);
    let staged = |b: &Engine| b.staging(MemoryId { node: NodeId(1), index: 1 }).unwrap().0;
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Arrived(16)]);
    said(&mut b);
    say(&mut b, 0, 3, vec![PeerMessage::Stop(Outcome::Cancelled)]);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Hush(Outcome::Cancelled)]));
    assert!(staged(&b) > 0);
    say(&mut b, 0, 4, vec![PeerMessage::Quiet]);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Ended(Outcome::Cancelled)]));
    assert_eq!((staged(&b), b.is_idle()), (0, true));
}

#[test]
fn memory_of_a_writer_that_is_lost_is_kept_until_it_is_cut_off() {
    let mut b = node(1);
    let staged = |b: &Engine| b.staging(MemoryId { node: NodeId(1), index: 1 }).unwrap().0;
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Arrived(16)]);
    while let Some(at) = b.poll_timeout().filter(|at| *at <= Time(6_000_000_000)) {
        b.handle_timeout(at);
    }
    assert_eq!(b.poll_disconnect(), Some((NodeId(0), 1 << 32 | 2)));
    assert!(staged(&b) > 0 && !b.is_idle());
    b.handle_disconnected(Time(7_000_000_000), NodeId(0), 1 << 32 | 1);
    assert!(staged(&b) > 0, "an earlier session was cut off");
    b.handle_disconnected(Time(7_000_000_000), NodeId(0), 1 << 32 | 2);
    assert_eq!((staged(&b), b.is_idle(), b.poll_timeout()), (0, true, None));
}

#[test]
fn an_engine_without_peers_refuses_what_is_not_its_own() {
    let config = EngineConfig::new(Vec::new(), Vec::new());
    let refused = Engine::new(config).submit(Time(0), transfer());
    assert!(matches!(refused, Err(SubmitError::UnknownChannel(_))));
}

/// A ring's place reaches who writes there as it was given.
#[test]
fn the_ring_lies_where_its_owner_says() {
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve()]);
    let words = said(&mut b);
    let Some(PeerMessage::Open(Some(Place { region: ring, .. }))) = words.get(1) else {
        panic!("{words:?}")
    };
    assert_eq!(*ring, region(9));
}
