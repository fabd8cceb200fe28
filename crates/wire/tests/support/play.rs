//! An engine that is handed what came: it must not choke on it.

use engine::{ChannelConfig, Engine, EngineConfig, Packet, PeerConfig, PeerMessage, PoolConfig};
use isometry_wire::VERSION;
use model::{
    ChannelId, Completion, MemoryId, NdCopy, NodeId, Outcome, Place, RegionId, Request, Time, Work,
};

const ME: NodeId = NodeId(1);

/// The first session of a node's first life.
const SESSION: u64 = 1 << 32 | 1;

/// More requests than most transfers have here; others are left where they are.
const MAX_REQUESTS: usize = 200;

/// The bytes in which node 0 has node 1 reserve for the program that `program` stands for.
pub fn asking(program: &[u8]) -> Vec<u8> {
    let head = (VERSION, 0u32, 1u32, SESSION, SESSION, false, true, 0u64);
    let name = (0u32, 1u32, 1u64);
    let place = |region: u32| (region, 0u32, 1u64 << 20);
    let (reserve, priority, commit, lives) = (0u32, 0i32, None::<bool>, [None::<u32>; 2]);
    let asked = (reserve, program, place(1), place(2), priority, commit, lives);
    postcard::to_stdvec(&(head, Some((1u64, name, asked)))).expect("plain values")
}

/// An engine of node 1, with room for rings of any size.
fn engine() -> Engine {
    let ids = (0..2).map(|index| ChannelId { node: ME, index });
    let pool = |index| PoolConfig {
        memory: MemoryId { node: ME, index },
        region: RegionId { index: 9, generation: 0 },
        capacity_bytes: 1 << 62,
        reserve_bytes: 0,
    };
    let channels = ids.map(|id| ChannelConfig::new(id, 4)).collect();
    let peers = Some(PeerConfig::new(ME));
    Engine::new(EngineConfig { peers, ..EngineConfig::new(channels, (0..2).map(pool).collect()) })
}

/// A copy is what it says it is.
fn check(request: &Request) {
    let Work::Copy(work) = &request.work else { return };
    assert!(work.list.iter().all(NdCopy::is_well_formed), "{request:?}");
    let moved: u64 = work.list.iter().map(NdCopy::payload_bytes).sum();
    assert_eq!(moved, work.payload_bytes);
}

/// Ends all requests that the engine has, and reads all that it says.
fn poll_dry(engine: &mut Engine) {
    for _ in 0..MAX_REQUESTS {
        let Some(request) = engine.poll_request() else { break };
        check(&request);
        engine.handle_completion(Time(0), Completion { request: request.id, result: Ok(()) });
    }
    while engine.poll_peer().is_some() {}
    while engine.poll_event().is_some() {}
}

/// Hands `packet` to an engine as the first of its session, then what lets its transfer run.
pub fn play(packet: Packet) {
    let mut engine = engine();
    let (session, to_session) = (SESSION, SESSION);
    let heard = Packet { to: ME, session, to_session, is_over: false, ..packet };
    let Some((_, name, message)) = heard.body.clone() else {
        engine.handle_peer(Time(0), heard);
        return poll_dry(&mut engine);
    };
    let total = match &message {
        PeerMessage::Reserve(asked) => asked.program.payload_bytes(),
        _ => 0,
    };
    let place = Place { region: RegionId { index: 3, generation: 0 }, offset: 64 };
    let others = [
        PeerMessage::Open(None),
        PeerMessage::Open(Some(place)),
        PeerMessage::Arrived(total / 2),
        PeerMessage::Arrived(total),
        PeerMessage::Freed(total / 3),
        PeerMessage::Stop(Outcome::Cancelled),
        PeerMessage::Quiet,
    ];
    for (number, message) in (1..).zip([message].into_iter().chain(others)) {
        for from in [name.asker, NodeId(0), NodeId(2)] {
            let body = Some((number, name, message.clone()));
            engine.handle_peer(Time(0), Packet { from, body, ..heard.clone() });
            poll_dry(&mut engine);
        }
    }
}
