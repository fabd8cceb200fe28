//! What is told another node is what it understands.

mod support;

use engine::{AskId, HopReport, Packet, PeerMessage, Program};
use isometry_wire::{Decoder, VERSION, encode};
use model::{
    Algorithm, Bound, ChannelError, ChannelErrorKind, ChannelId, ChannelKind, CostModel, Layout,
    Limit, MemoryId, NodeId, Outcome, Plan, SearchReport, ShapeClass, TransferError,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// What a packet says; a program is what it was compiled from.
fn told(packet: &Packet) -> String {
    let body = packet.body.as_ref().map(|(number, ask, message)| {
        let message = match message {
            PeerMessage::Reserve(asked) => format!("Reserve {}", told_of(asked)),
            PeerMessage::Undo(asked, outcome) => format!("Undo {} {outcome:?}", told_of(asked)),
            other => format!("{other:?}"),
        };
        (number, ask, message)
    });
    let Packet { from, to, session, to_session, is_over, asks, ack, .. } = packet;
    format!("{:?}", (from, to, session, to_session, is_over, asks, ack, body))
}

fn told_of(asked: &engine::Asked) -> String {
    let engine::Asked { program, src, dst, priority, commit, lives } = asked;
    let of = (program.plan(), program.src(), program.dst());
    format!("{:?}", (of, src, dst, priority, commit, lives))
}

/// All that is known of a program from outside.
fn behaviour(program: &Program) -> String {
    let requests = |hop| program.requests(hop).collect::<Vec<_>>();
    let hops: Vec<_> = (0..program.channels().len()).map(requests).collect();
    let (buffers, channels): (Vec<_>, Vec<_>) =
        (program.buffers().collect(), program.channels().collect());
    let spans = (program.payload_bytes(), program.src_span(), program.dst_span());
    format!("{:?}", (hops, buffers, channels, spans))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_packet_comes_as_it_went(packet in support::packet()) {
        let bytes = encode(&packet);
        let came = Decoder::new().decode(packet.from, &bytes).unwrap();
        prop_assert_eq!(told(&came), told(&packet));
        prop_assert_eq!(encode(&came), bytes);
    }

    #[test]
    fn a_program_runs_there_as_it_does_here(case in support::case()) {
        let program = case.program();
        let packet = support::reserve(&program);
        let came = Decoder::new().decode(packet.from, &encode(&packet)).unwrap();
        let there = support::program_of(&came);
        prop_assert_eq!(behaviour(&there), behaviour(&program));
        prop_assert_eq!(support::copies(&there), support::copies(&program));
    }
}

/// What changes these bytes is another version.
#[test]
fn the_format_stays() {
    let memory = |node, index| MemoryId { node: NodeId(node), index };
    let channel = ChannelId { node: NodeId(1), index: 300 };
    let cause =
        ChannelError { kind: ChannelErrorKind::Busy, detail: "no".into(), os_error: Some(-1) };
    let outcome = Outcome::Failed(TransferError { hop: 1, memory: memory(1, 2), cause });
    let hop = HopReport {
        channel,
        from: memory(0, 1),
        to: memory(1, 2),
        bytes: 128,
        requests: 3,
        busy: Duration::from_nanos(4),
        waiting_for_input: Duration::from_nanos(5),
        waiting_for_space: Duration::from_nanos(6),
        waiting_for_channel: Duration::from_nanos(7),
        held_up_by: None,
    };
    let ask = AskId { asker: NodeId(0), life: 1, serial: 9 };
    let packet = Packet {
        from: NodeId(1),
        to: NodeId(0),
        session: 5,
        to_session: 6,
        is_over: false,
        asks: true,
        ack: 8,
        body: Some((7, ask, PeerMessage::Ended(outcome, vec![hop]))),
    };
    let head = [VERSION, 1, 0, 5, 6, 0, 1, 8, 1, 7, 0, 1, 9, 11];
    let failed = [3, 1, 1, 2, 5, 2, b'n', b'o', 1, 1];
    let hops = [1, 1, 172, 2, 0, 1, 1, 2, 128, 1, 3, 4, 5, 6, 7];
    assert_eq!(encode(&packet), [&head[..], &failed, &hops].concat());
}

/// As above.
#[test]
fn the_format_of_a_program_stays() {
    let layout = Layout::row_major(1);
    let hop = model::Hop {
        channel: ChannelId { node: NodeId(0), index: 4 },
        kind: ChannelKind::RemoteMemcpy,
        prefix_bytes: 5,
        shuffle_bytes: 1,
        class: ShapeClass::Run,
        throughput: 1.0,
        request_bytes: 6,
    };
    let plan = Plan {
        algorithm: Algorithm::Simple,
        model: CostModel::Default,
        throughput: 1.0,
        seconds: None,
        memories: [0, 1].map(|node| MemoryId { node: NodeId(node), index: 0 }).into(),
        layouts: vec![layout.clone(), layout],
        phase: vec![0],
        hops: vec![hop],
        buffers: Vec::new(),
        bound_by: Bound { hop: 0, why: Limit::Wire },
        alternatives: Vec::new(),
        search: SearchReport::default(),
    };
    let part = support::row(3);
    let program = Arc::new(Program::compile(&plan, part.clone(), part).unwrap());
    let one = [0, 0, 0, 0, 0, 0, 0xF0, 0x3F];
    let plan = [&[1, 1], &one[..], &[0, 2, 0, 0, 1, 0, 2, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0]].concat();
    let hop = [&[1, 0, 4, 7, 5, 1, 0], &one[..], &[6, 0, 0, 4]].concat();
    let part = [2, 0, 1, 0, 1, 0, 0, 3, 1, 1, 2, 0, 1, 0, 1];
    let own = [&plan[..], &hop, &part, &part].concat();
    let bytes = encode(&support::reserve(&program));
    let is_there =
        bytes.windows(own.len() + 1).any(|w| w[0] as usize == own.len() && w[1..] == own);
    assert!(is_there, "{bytes:?} has no {own:?}");
}
