//! PageRank: everybody's ranks to everybody, large and alike.
//!
//! Each node has a part of the vertices, their ranks in the accelerator's memory, and computes new
//! ones from those of all neighbours, which may be anywhere: every node sends its ranks to every
//! other (FBM to FBM*), and takes its own from where both accelerators see them (ZCM to FBM).

use super::{Array, ITERATIONS, Made, Start, Trace, firsts, others, taking};
use crate::simulate::workload::CopySpec;
use model::{MemoryKind, Topology};

/// Assumed: a node's vertices, of 4 bytes of rank each.
const VERTICES: u32 = 32 << 20;
/// Assumed: edges that lead to a vertex, and edges a second and node.
const DEGREE: f64 = 16.0;
const EDGES_PER_SECOND: f64 = 2e9;

pub(super) fn copies(topology: &Topology) -> Made<Vec<CopySpec>> {
    let memories = firsts(topology, MemoryKind::Zcm).zip(firsts(topology, MemoryKind::Fbm));
    let Some((zcm, fbm)) = memories else { return Ok(Vec::new()) };
    let ranks = Array::vector(VERTICES.into(), 4);
    let compute = taking(DEGREE * f64::from(VERTICES), EDGES_PER_SECOND);
    let (mut trace, nodes) = (Trace::default(), fbm.len());
    let mut here = vec![Vec::new(); nodes];
    for _ in 0..ITERATIONS {
        let mut next = vec![Vec::new(); nodes];
        for node in 0..nodes {
            let start = Start::after(&here[node]).computing(compute);
            next[node].push(trace.copy("own", [zcm[node], fbm[node]], &ranks, start.clone())?);
            for other in others(node, nodes) {
                let ends = [fbm[node], fbm[other]];
                next[other].push(trace.copy("ranks", ends, &ranks, start.clone())?);
            }
        }
        here = next;
    }
    Ok(trace.copies)
}
