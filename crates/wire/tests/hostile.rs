//! Whatever comes, decoding ends soon and gives nothing that an engine chokes on.

mod support;

use isometry_wire::{Decoder, WireErrorKind, encode};
use model::NodeId;
use proptest::prelude::*;
use support::play::{asking, play};

/// Numbers at the edge of what fits.
const EDGES: [u64; 9] = [0, 1, 3, 255, 1 << 31, 1 << 61, i64::MAX as u64, u64::MAX - 1, u64::MAX];

/// What is done to bytes.
#[derive(Debug, Clone)]
enum Harm {
    /// The byte there becomes another.
    Byte(prop::sample::Index, u8),
    /// A number stands in its place.
    Number(prop::sample::Index, u64),
    Drop(prop::sample::Index),
    Cut(prop::sample::Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<prop::sample::Index>;
    let number = prop_oneof![prop::sample::select(&EDGES[..]), 0..300u64, any::<u64>()];
    prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Harm::Byte(at, byte)),
        6 => (at(), number).prop_map(|(at, number)| Harm::Number(at, number)),
        1 => at().prop_map(Harm::Drop),
        1 => at().prop_map(Harm::Cut),
    ]
}

fn harmed(mut bytes: Vec<u8>, harms: &[Harm]) -> Vec<u8> {
    for harm in harms {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        match harm {
            Harm::Byte(at, byte) => bytes[at.index(len)] = *byte,
            Harm::Number(at, number) => {
                let at = at.index(len);
                bytes.splice(at..=at, varint(*number));
            }
            Harm::Drop(at) => {
                bytes.remove(at.index(len));
            }
            Harm::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
    bytes
}

fn varint(number: u64) -> Vec<u8> {
    postcard::to_stdvec(&number).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let versioned = [&[isometry_wire::VERSION][..], &bytes].concat();
        for bytes in [bytes, versioned] {
            let from = NodeId(0);
            if let Ok(packet) = Decoder::new().decode(from, &bytes) {
                prop_assert_eq!(packet.from, from);
                play(packet);
            }
        }
    }

    #[test]
    fn a_harmed_packet_is_read_or_refused(
        packet in support::packet(),
        harms in prop::collection::vec(harm(), 1..4),
    ) {
        let bytes = harmed(encode(&packet), &harms);
        if let Ok(packet) = Decoder::new().decode(packet.from, &bytes) {
            play(packet);
        }
    }

    #[test]
    fn a_harmed_program_is_run_or_refused(
        case in support::case(),
        harms in prop::collection::vec(harm(), 1..4),
    ) {
        let program = case.program();
        let own = (&**program.plan(), program.src(), program.dst());
        let bytes = asking(&harmed(postcard::to_stdvec(&own).unwrap(), &harms));
        match Decoder::new().decode(NodeId(0), &bytes) {
            Ok(packet) => play(packet),
            Err(e) => prop_assert!(
                matches!(e.kind(), WireErrorKind::Malformed | WireErrorKind::Program)
            ),
        }
    }
}
