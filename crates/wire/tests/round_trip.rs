//! What is told another node is what it understands.

mod support;

use engine::{Packet, PeerMessage, Program};
use isometry_wire::{Decoder, encode};
use proptest::prelude::*;

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

    /// The bytes are these for ever: what changes them is another version.
    #[test]
    fn the_format_stays(case in support::case()) {
        let program = case.program();
        let own = postcard::to_stdvec(&(&**program.plan(), program.src(), program.dst())).unwrap();
        prop_assert_eq!(encode(&support::reserve(&program)), support::play::asking(&own));
    }
}
