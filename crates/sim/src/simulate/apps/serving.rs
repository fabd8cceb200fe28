//! A language model served by two groups of nodes: one half reads prompts, the other writes answers.
//!
//! What the first half has computed of a prompt, the keys and values of every layer, goes from each
//! of its accelerators to the same one of a node of the other half, whose engine wants the heads
//! outside of the tokens (HND) where the first has them inside (NHD).

use super::{Array, Made, Start, Trace};
use crate::simulate::places::joined;
use crate::simulate::workload::CopySpec;
use model::{MemoryKind, NodeId, Topology};
use std::time::Duration;

/// A model of 80 layers with 16 heads of keys and values, two for each of 8 accelerators, of 128
/// values of 2 bytes.
const LAYERS: u64 = 80;
const HEADS: u64 = 2;
const HEAD_DIM: u64 = 128;
/// Assumed: tokens of a prompt, prompts of each node, and the time that each takes.
const TOKENS: u64 = 4096;
const PROMPTS: u32 = 8;
const PROMPT: Duration = Duration::from_millis(250);

pub(super) fn copies(topology: &Topology) -> Made<Vec<CopySpec>> {
    let dims = [("l", LAYERS), ("k", 2), ("n", TOKENS), ("h", HEADS), ("d", HEAD_DIM)];
    let cache = Array::of(&dims, 2, &[0, 1, 3, 2, 4]);
    let half = topology.node_count() / 2;
    let mut trace = Trace::default();
    for prompt in 1..=PROMPTS {
        for node in 0..half {
            let devices = |node| joined(topology, NodeId(node), MemoryKind::Fbm);
            for (from, to) in devices(node).into_iter().zip(devices(half + node)) {
                let start = Start::default().computing(PROMPT * prompt);
                trace.copy("cache", [from, to], &cache, start)?;
            }
        }
    }
    Ok(trace.copies)
}
