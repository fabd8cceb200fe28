//! Bytes of other nodes are read or refused, and an engine that is handed what was read goes on.
//! `cargo +nightly fuzz run wire`
#![no_main]

extern crate isometry_engine as engine;
extern crate isometry_model as model;

#[path = "../../crates/wire/tests/support/play.rs"]
mod play;

use isometry_wire::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    // A packet, or the program of one.
    let bytes = if first % 2 == 0 { rest.to_vec() } else { play::asking(rest) };
    if let Ok(packet) = Decoder::new().decode(model::NodeId(0), &bytes) {
        play::play(packet);
    }
});
