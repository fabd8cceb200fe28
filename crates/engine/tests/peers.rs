//! What one engine says to another, message by message. How several get on is the simulator's.

mod support;

use isometry_engine::{
    AskId, Asked, ChannelConfig, Commit, Dependency, Engine, EngineConfig, Packet, PeerConfig,
    PeerMessage, PoolConfig, Program, SubmitError, Transfer,
};
use model::{
    ChannelError, ChannelErrorKind, ChannelId, FenceId, MemoryId, NodeId, Outcome, Place, Plan,
    Request, Time, Work,
};
use std::sync::Arc;
use support::{done, place, region};

const BYTES: u64 = 64;
const COMMIT: Option<Commit> = Some(Commit { sync: false });
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
    living(NodeId(node), 1)
}

/// Node 1 in a later life.
fn reborn(life: u32) -> Engine {
    living(NodeId(1), life)
}

fn living(node: NodeId, life: u32) -> Engine {
    let channels = vec![ChannelConfig::new(ChannelId { node, index: 0 }, 4)];
    let memory = MemoryId { node, index: 1 };
    let pool = PoolConfig { memory, region: region(9), capacity_bytes: 1 << 16, reserve_bytes: 0 };
    let peers = Some(PeerConfig { life, ..PeerConfig::new(node) });
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
    for numbered in (first..).zip(messages) {
        engine.handle_peer(Time(0), packet((from, 1), numbered));
    }
}

/// A message in the first session of either node.
fn packet((from, to): (u32, u32), (number, message): (u64, PeerMessage)) -> Packet {
    let body = Some((number, NAME, message));
    let (from, to) = (NodeId(from), NodeId(to));
    let (session, to_session) = (1 << 32 | 1, 1 << 32 | 1);
    Packet { from, to, session, to_session, is_over: false, asks: false, ack: 0, body }
}

/// What node 0 asks for.
fn asked() -> Asked {
    let (src, dst) = (place(1, 0), place(2, 0));
    let priority = model::Priority(0);
    Asked { program: program(), src, dst, priority, commit: None, lives: [None; 2] }
}

fn reserve() -> PeerMessage {
    PeerMessage::Reserve(Arc::new(asked()))
}

fn staged(engine: &Engine) -> u64 {
    engine.staging(MemoryId { node: NodeId(1), index: 1 }).unwrap().0
}

/// Why a share has ended, where that is all that was said.
fn refusal(engine: &mut Engine) -> ChannelError {
    match &said(engine)[..] {
        [PeerMessage::Ended(Outcome::Failed(e), _)] => e.cause.clone(),
        other => panic!("{other:?}"),
    }
}

/// Passes all packets and ends all requests; how many these were.
fn run_both(a: &mut Engine, b: &mut Engine) -> usize {
    let mut requests = 0;
    for _ in 0..40 {
        for packet in std::iter::from_fn(|| a.poll_peer()).collect::<Vec<_>>() {
            b.handle_peer(Time(0), packet);
        }
        for packet in std::iter::from_fn(|| b.poll_peer()).collect::<Vec<_>>() {
            a.handle_peer(Time(0), packet);
        }
        for engine in [&mut *a, &mut *b] {
            for request in support::requests(engine) {
                engine.handle_completion(Time(0), done(&request));
                requests += 1;
            }
        }
    }
    requests
}

#[test]
fn a_transfer_is_reserved_opened_run_and_ended() {
    let (mut a, mut b) = (node(0), node(1));
    let id = a.submit(Time(0), transfer()).unwrap();
    let requests = run_both(&mut a, &mut b);
    let event = a.poll_event().unwrap();
    assert_eq!((event.transfer, event.outcome), (id, Outcome::Done));
    assert_eq!(a.progress(id), Some((BYTES, BYTES)));
    let hops = a.report(id).unwrap().hops;
    assert!(hops.iter().all(|hop| hop.bytes == BYTES), "{hops:?}");
    assert_eq!(hops.iter().map(|hop| hop.requests).sum::<u64>(), requests as u64);
    assert!(a.is_idle() && b.is_idle() && b.poll_event().is_none());
    assert_eq!((staged(&b), b.share_count()), (0, 0));
    let to = |engine: &Engine| {
        let (_, counts) = engine.channels().next().unwrap();
        counts.traffic.iter().map(|(node, t)| (node.0, t.bytes)).collect::<Vec<_>>()
    };
    assert_eq!((to(&a), to(&b)), (vec![(1, BYTES)], vec![(1, BYTES)]));
    assert_eq!(b.arrived_bytes().collect::<Vec<_>>(), [(NodeId(0), BYTES)]);
    assert_eq!(a.arrived_bytes().count(), 0);
}

/// Who is known to be gone is not waited for, neither by what runs nor by what comes later.
#[test]
fn a_node_that_is_gone_fails_all_that_counts_on_it_at_once() {
    let mut a = node(0);
    let first = a.submit(Time(0), transfer()).unwrap();
    a.handle_lost(Time(5), NodeId(1));
    let later = a.submit(Time(6), transfer()).unwrap();
    a.handle_timeout(Time(6));
    for id in [first, later] {
        let event = a.poll_event().unwrap();
        let Outcome::Failed(error) = event.outcome else { panic!("{:?}", event.outcome) };
        let kind = ChannelErrorKind::PeerLost;
        assert_eq!((event.transfer, error.cause.kind, error.memory.node), (id, kind, NodeId(1)));
    }
    assert_eq!(a.poll_disconnect().map(|lost| lost.0), Some(NodeId(1)));
    assert!(a.is_idle());
    // Once it is heard again it is as any other.
    while a.poll_peer().is_some() {}
    let mut back = reborn(2);
    for engine in [&mut back, &mut a] {
        engine.submit(Time(0), transfer()).unwrap();
    }
    run_both(&mut a, &mut back);
    assert!([a, back].iter_mut().all(|e| e.poll_event().unwrap().outcome == Outcome::Done));
}

/// A message to node 1, of a transfer that node 2 asked for.
fn asked_by_another(from: u32, (number, message): (u64, PeerMessage)) -> Packet {
    let name = AskId { asker: NodeId(2), ..NAME };
    Packet { body: Some((number, name, message)), ..packet((from, 1), (number, reserve())) }
}

/// Who has written all that was wanted of it may go: the rest is of others.
#[test]
fn a_writer_that_is_lost_when_all_has_arrived_is_not_missed() {
    let mut b = node(1);
    b.handle_peer(Time(0), asked_by_another(2, (1, reserve())));
    let mut words = said(&mut b);
    let pieces = (0..BYTES).step_by(16).map(|at| (at + 16).min(BYTES));
    for (number, arrived) in (1..).zip(pieces) {
        b.handle_peer(Time(0), asked_by_another(0, (number, PeerMessage::Arrived(arrived))));
        if arrived == BYTES {
            b.handle_lost(Time(1), NodeId(0));
        }
        for request in support::requests(&mut b) {
            b.handle_completion(Time(1), done(&request));
        }
        words.extend(said(&mut b));
    }
    assert!(matches!(words.last(), Some(PeerMessage::Ended(Outcome::Done, _))), "{words:?}");
    assert!(b.is_idle() && staged(&b) == 0);
}

/// Node 1 holds what node 0 writes.
#[test]
fn what_a_lost_writer_may_still_write_is_kept_and_nobody_waits_for_it() {
    let mut b = node(1);
    b.handle_peer(Time(0), asked_by_another(2, (1, reserve())));
    let words = said(&mut b);
    assert!(words.iter().any(|word| matches!(word, PeerMessage::Open(Some(_)))), "{words:?}");
    b.handle_lost(Time(1), NodeId(0));
    let words = said(&mut b);
    let is_end = |word: &PeerMessage| matches!(word, PeerMessage::Ended(Outcome::Failed(_), _));
    assert!(words.iter().any(is_end), "{words:?}");
    assert!(b.is_idle() && staged(&b) == 32);
    let (lost, floor) = b.poll_disconnect().unwrap();
    b.handle_disconnected(Time(2), lost, floor - 1);
    assert_eq!(staged(&b), 32, "of an earlier session");
    b.handle_disconnected(Time(2), lost, floor);
    assert_eq!(staged(&b), 0);
}

/// A writer that was only slow is asked again, and quiet once it says so.
#[test]
fn a_writer_that_is_heard_again_gives_the_ring_back() {
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve()]);
    lose(&mut b);
    said(&mut b);
    assert!(staged(&b) > 0);
    let greeting = |number, message| Packet {
        session: 1 << 32 | 2,
        to_session: 1 << 32 | 2,
        ..packet((0, 1), (number, message))
    };
    b.handle_peer(Time(8_000_000_000), greeting(1, PeerMessage::Quiet));
    assert!(staged(&b) > 0, "it says so unasked");
    let words = said(&mut b);
    assert!(matches!(words[..], [PeerMessage::Hush(_)]), "{words:?}");
    b.handle_peer(Time(8_000_000_000), greeting(2, PeerMessage::Quiet));
    assert_eq!(staged(&b), 0);
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
    let asked = Asked { commit: COMMIT, ..asked() };
    say(&mut b, 0, 1, vec![PeerMessage::Undo(Arc::new(asked), Outcome::Cancelled)]);
    let requests = support::requests(&mut b);
    assert!(matches!(&requests[..], [r] if matches!(r.work, Work::Abort { .. })), "{requests:?}");
    b.handle_completion(Time(0), done(&requests[0]));
    assert!(matches!(said(&mut b)[..], [PeerMessage::Ended(Outcome::Cancelled, _)]));
}

/// The words of the party of the last hop, and of nobody else, are the asker's progress.
#[test]
fn the_last_party_tells_how_far_it_is() {
    let mut a = node(0);
    let id = a.submit(Time(0), transfer()).unwrap();
    let tell = |a: &mut Engine, from, number, bytes| {
        let packet = packet((from, 0), (number, PeerMessage::Progress(bytes)));
        a.handle_peer(Time(0), packet);
        a.progress(id).unwrap().0
    };
    assert_eq!(tell(&mut a, 2, 1, 32), 0);
    let told = [(1, 16), (2, 8), (3, u64::MAX)];
    assert_eq!(told.map(|(number, bytes)| tell(&mut a, 1, number, bytes)), [16, 16, BYTES]);
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Arrived(32)]);
    said(&mut b);
    for (request, so_far) in support::requests(&mut b).iter().zip([16, 32]) {
        b.handle_completion(Time(0), done(request));
        let words = said(&mut b);
        let is_told = |m: &PeerMessage| matches!(m, PeerMessage::Progress(b) if *b == so_far);
        assert!(words.iter().any(is_told), "{words:?}");
    }
}

/// A place whose addresses would wrap is no place.
#[test]
fn a_ring_at_the_end_of_the_world_is_not_written() {
    let mut a = node(0);
    a.submit(Time(0), transfer()).unwrap();
    let open = PeerMessage::Open(Some(place(9, u64::MAX - 3)));
    a.handle_peer(Time(0), packet((1, 0), (1, open)));
    assert!(support::requests(&mut a).is_empty());
}

#[test]
fn what_can_t_run_here_is_refused_with_a_reason() {
    let mut b = Engine::new(EngineConfig {
        peers: Some(PeerConfig::new(NodeId(1))),
        ..EngineConfig::new(Vec::new(), Vec::new())
    });
    say(&mut b, 0, 1, vec![reserve()]);
    let cause = refusal(&mut b);
    assert!(cause.detail.contains("channel 0 of node1 is not driven"), "{}", cause.detail);
    assert!(!cause.is_retryable());
}

/// Node 1 with room for one transfer, which it has.
fn full() -> Engine {
    let peers = Some(PeerConfig::new(NodeId(1)));
    let channels = vec![ChannelConfig::new(ChannelId { node: NodeId(1), index: 0 }, 4)];
    let config = EngineConfig { peers, max_transfers: 1, ..EngineConfig::new(channels, vec![]) };
    let mut engine = Engine::new(config);
    let after = vec![Dependency::Fence(FenceId(0))];
    engine.submit(Time(0), Transfer { after, ..transfer() }).unwrap();
    engine
}

#[test]
fn a_full_table_refuses_and_says_that_it_may_pass() {
    let mut b = full();
    say(&mut b, 0, 1, vec![reserve()]);
    let cause = refusal(&mut b);
    assert_eq!((cause.kind, cause.is_retryable()), (ChannelErrorKind::Busy, true));
    assert!(cause.detail.contains("node1"), "{}", cause.detail);
}

#[test]
fn a_node_that_leaves_takes_no_shares_and_may_give_up_those_it_has() {
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve()]);
    said(&mut b);
    b.leave(Time(1), false);
    assert!(!b.is_idle(), "what it has it goes on with");
    let other = AskId { serial: 2, ..NAME };
    let mut packet = packet((0, 1), (2, reserve()));
    packet.body = packet.body.map(|(number, _, message)| (number, other, message));
    b.handle_peer(Time(1), packet);
    assert_eq!(refusal(&mut b).kind, ChannelErrorKind::PeerLost);
    b.leave(Time(2), true);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Hush(Outcome::Failed(_))]));
    say(&mut b, 0, 3, vec![PeerMessage::Quiet]);
    assert_eq!(refusal(&mut b).kind, ChannelErrorKind::PeerLost);
    assert!(b.is_idle());
}

/// Also where there is no room for it.
#[test]
fn who_refuses_to_commit_undoes_once() {
    let mut b = full();
    let asked = Arc::new(Asked { commit: COMMIT, ..asked() });
    let again = PeerMessage::Undo(Arc::clone(&asked), Outcome::Cancelled);
    say(&mut b, 0, 1, vec![PeerMessage::Reserve(asked), again]);
    let requests = support::requests(&mut b);
    assert!(matches!(&requests[..], [r] if matches!(r.work, Work::Abort { .. })), "{requests:?}");
    assert!(said(&mut b).is_empty(), "it is not undone yet");
    b.handle_completion(Time(0), done(&requests[0]));
    assert_eq!(refusal(&mut b).kind, ChannelErrorKind::Busy);
    say(&mut b, 0, 3, vec![reserve()]);
    assert_eq!(refusal(&mut b).kind, ChannelErrorKind::Busy, "that has made no room for others");
}

/// Neither written nor undone: who knows what it means by now.
#[test]
fn a_region_named_in_another_life_is_left_alone() {
    for (lives, commit) in [([None, Some(2)], None), ([None, Some(2)], COMMIT)] {
        let mut b = node(1);
        say(&mut b, 0, 1, vec![PeerMessage::Reserve(Arc::new(Asked { commit, lives, ..asked() }))]);
        assert!(support::requests(&mut b).is_empty());
        assert_eq!(refusal(&mut b).kind, ChannelErrorKind::PeerLost);
        let asked = Arc::new(Asked { commit: COMMIT, lives, ..asked() });
        say(&mut b, 0, 2, vec![PeerMessage::Undo(asked, Outcome::Cancelled)]);
        assert!(support::requests(&mut b).is_empty());
        assert!(
            b.is_idle() && matches!(said(&mut b)[..], [PeerMessage::Ended(Outcome::Cancelled, _)])
        );
    }
    let mut b = node(1);
    let lives = [Some(7), Some(1)];
    say(&mut b, 0, 1, vec![PeerMessage::Reserve(Arc::new(Asked { lives, ..asked() }))]);
    assert!(matches!(said(&mut b)[0], PeerMessage::Reserved), "the source is another's to judge");
}

/// The asker may never have heard of the life that the region is of, so that no session of it is
/// over: the name of the life alone tells.
#[test]
fn a_transfer_to_an_earlier_life_fails_as_a_lost_peer() {
    for (life, is_kept) in [(1, true), (2, false)] {
        let (mut a, mut b) = (node(0), reborn(life));
        let lives = [None, Some(1)];
        a.submit(Time(0), Transfer { lives, ..transfer() }).unwrap();
        let requests = run_both(&mut a, &mut b);
        let event = a.poll_event().unwrap();
        assert_eq!((event.outcome == Outcome::Done, requests > 0), (is_kept, is_kept));
        if let Outcome::Failed(e) = event.outcome {
            assert_eq!((e.cause.kind, e.memory.node), (ChannelErrorKind::PeerLost, NodeId(1)));
        }
        assert!(a.is_idle() && b.is_idle());
    }
}

/// To memory 1 of node 1, past no ring: node 0 writes all.
fn direct() -> Transfer {
    let (layout, part) = support::row(BYTES);
    let mut plan = support::plan(vec![layout; 2], &[16], &[], 1);
    (plan.phase, plan.memories[1].node) = (vec![0], NodeId(1));
    let program = Program::compile(&plan, part.clone(), part).unwrap();
    let lives = [None, Some(1)];
    Transfer { lives, ..Transfer::new(Arc::new(program), place(1, 0), place(2, 0)) }
}

/// Lets time pass until who says nothing is lost.
fn lose(engine: &mut Engine) {
    while let Some(at) = engine.poll_timeout().filter(|at| *at <= Time(6_000_000_000)) {
        engine.handle_timeout(at);
    }
}

/// A peer that is lost may be in another life by now, in which the destination is something else.
#[test]
fn what_lies_at_a_lost_peer_is_not_undone() {
    for is_lost in [false, true] {
        let mut a = node(0);
        let id = a.submit(Time(0), Transfer { commit: COMMIT, ..direct() }).unwrap();
        a.handle_peer(Time(0), packet((1, 0), (1, PeerMessage::Reserved)));
        if is_lost {
            lose(&mut a);
        } else {
            a.cancel(Time(0), id);
        }
        let undone = |request: &Request| matches!(request.work, Work::Abort { .. });
        assert_eq!(support::requests(&mut a).iter().any(undone), !is_lost);
    }
}

#[test]
fn who_is_lost_is_not_told_that_it_is_quiet() {
    for is_lost in [false, true] {
        let mut a = node(0);
        a.submit(Time(0), direct()).unwrap();
        a.handle_peer(Time(0), packet((1, 0), (1, PeerMessage::Open(None))));
        let requests = support::requests(&mut a);
        assert!(!requests.is_empty());
        let hush = PeerMessage::Hush(Outcome::Cancelled);
        a.handle_peer(Time(0), packet((1, 0), (2, hush)));
        if is_lost {
            lose(&mut a);
        }
        said(&mut a);
        requests.iter().for_each(|request| a.handle_completion(Time(6_000_000_000), done(request)));
        let is_quiet = |word: &PeerMessage| matches!(word, PeerMessage::Quiet);
        assert_eq!(said(&mut a).iter().any(is_quiet), !is_lost);
    }
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
            PeerMessage::Ended(Outcome::Done, Vec::new()),
            PeerMessage::Freed(u64::MAX),
        ],
    );
    assert!(support::requests(&mut b).is_empty() && said(&mut b).is_empty());
    say(&mut b, 0, 7, vec![PeerMessage::Arrived(32), PeerMessage::Arrived(16)]);
    assert_eq!(support::requests(&mut b).len(), 2, "as much as has arrived");
}

/// What was not written can't have been read, and makes no room.
#[test]
fn credit_for_what_was_not_written_is_none() {
    let mut a = node(0);
    a.submit(Time(0), transfer()).unwrap();
    let open = PeerMessage::Open(Some(place(9, 0)));
    a.handle_peer(Time(0), packet((1, 0), (1, open)));
    let first = support::requests(&mut a);
    assert_eq!(first.len(), 2, "as much as the ring holds");
    a.handle_completion(Time(0), done(&first[0]));
    for (number, bytes) in [(2, 32), (3, u64::MAX)] {
        a.handle_peer(Time(0), packet((1, 0), (number, PeerMessage::Freed(bytes))));
    }
    assert!(support::requests(&mut a).is_empty());
    a.handle_peer(Time(0), packet((1, 0), (4, PeerMessage::Freed(16))));
    assert_eq!(support::requests(&mut a).len(), 1);
}

/// A peer may run ahead of what is lost by so much, and no further.
#[test]
fn messages_too_far_ahead_are_not_kept() {
    for (ahead, is_kept) in [(256, true), (257, false)] {
        let mut b = node(1);
        say(&mut b, 0, ahead, vec![reserve()]);
        say(&mut b, 0, 1, (1..ahead).map(|_| PeerMessage::Knock).collect());
        assert_eq!(!said(&mut b).is_empty(), is_kept, "{ahead}");
    }
}

#[test]
fn a_stopped_party_keeps_its_memory_until_the_writer_is_quiet() {
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Arrived(16)]);
    said(&mut b);
    say(&mut b, 0, 3, vec![PeerMessage::Stop(Outcome::Cancelled)]);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Hush(Outcome::Cancelled)]));
    assert!(staged(&b) > 0);
    say(&mut b, 0, 4, vec![PeerMessage::Quiet]);
    assert!(matches!(said(&mut b)[..], [PeerMessage::Ended(Outcome::Cancelled, _)]));
    assert_eq!((staged(&b), b.is_idle()), (0, true));
}

/// A writer that is quiet unasked may go on, as far as the reader knows.
#[test]
fn a_stray_quiet_releases_nothing() {
    let mut b = node(1);
    let stop = PeerMessage::Stop(Outcome::Cancelled);
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Quiet, stop]);
    let words = said(&mut b);
    assert!(matches!(words.last(), Some(PeerMessage::Hush(_))), "{words:?}");
    assert!(staged(&b) > 0);
}

#[test]
fn memory_of_a_writer_that_is_lost_is_kept_until_it_is_cut_off() {
    let mut b = node(1);
    say(&mut b, 0, 1, vec![reserve(), PeerMessage::Arrived(16)]);
    lose(&mut b);
    assert_eq!(b.poll_disconnect(), Some((NodeId(0), 1 << 32 | 2)));
    assert!(staged(&b) > 0 && b.is_idle(), "nobody waits for the ring");
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
