//! No stream of a peer makes the parser of frames panic, and what it takes is within its limits and
//! within the stream. `cargo +nightly fuzz run frames`
#![no_main]

use isometry_fabric::tcp::frame::{Frame, Front, Limits};
use isometry_fabric::{MOST_ARGS, Payload};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { medium_bytes: 200, segment_bytes: 1000 };

fn admits(at: u64, bytes: u32) -> bool {
    at.checked_add(bytes.into()).is_some_and(|end| end <= LIMITS.segment_bytes)
}

fuzz_target!(|stream: &[u8]| {
    let mut rest = stream;
    while let Ok(Some(front)) = Front::of(rest, LIMITS) {
        let put = front.with(rest, |frame| match frame {
            Frame::Message(message) => {
                assert!(message.args.len() <= MOST_ARGS);
                match message.payload {
                    Payload::None => {}
                    Payload::Bytes(bytes) => assert!(bytes.len() <= LIMITS.medium_bytes),
                    Payload::Placed { at, bytes } => assert!(admits(at, bytes)),
                }
                0
            }
            Frame::Put { at, bytes } => {
                assert!(bytes > 0 && admits(at, bytes));
                bytes as usize
            }
            Frame::Bye => rest.len(),
        });
        let Some(behind) = rest[front.length()..].get(put..) else { return };
        rest = behind;
    }
});
