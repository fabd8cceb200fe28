//! The weights of a layer from those who train to those who serve.
//!
//! The first half of the nodes has a matrix by rows, a part on each accelerator; the other half wants
//! it by columns. Every accelerator sends every one of the other half the box that both have a part
//! of: rows of the source's part as long as the destination's are wide.

use super::{Array, Made, Start, Trace};
use crate::simulate::places::joined;
use crate::simulate::workload::CopySpec;
use model::{Dim, IndexSpace, MemoryId, MemoryKind, NodeId, Topology};

/// Assumed: a matrix of so many rows and columns of 2 bytes.
const SIDE: u64 = 32 << 10;

pub(super) fn copies(topology: &Topology) -> Made<Vec<CopySpec>> {
    let half = topology.node_count() / 2;
    let devices = |nodes: std::ops::Range<u32>| -> Vec<MemoryId> {
        nodes.flat_map(|node| joined(topology, NodeId(node), MemoryKind::Fbm)).collect()
    };
    let (from, to) = (devices(0..half), devices(half..2 * half));
    let matrix = Array::of(&[("y", SIDE), ("x", SIDE)], 2, &[0, 1]);
    let mut trace = Trace::default();
    for step in 0..to.len() {
        for (row, &src) in from.iter().enumerate() {
            let column = (row + step) % to.len();
            let (rows, columns) = (part(row, from.len()), part(column, to.len()));
            let array = Array { space: part_of(rows, columns), ..matrix.clone() };
            let at = trace.copy("box", [src, to[column]], &array, Start::default())?;
            let all = (0, SIDE);
            trace.copies[at].instances = [part_of(rows, all), part_of(all, columns)];
        }
    }
    Ok(trace.copies)
}

/// Part `at` of `parts` of the matrix's side.
fn part(at: usize, parts: usize) -> (u64, u64) {
    let edge = |at: usize| SIDE * at as u64 / parts as u64;
    (edge(at), edge(at + 1))
}

fn part_of(rows: (u64, u64), columns: (u64, u64)) -> IndexSpace {
    let dim = |name: &str, (lo, hi): (u64, u64)| Dim {
        name: name.into(),
        lo: lo.cast_signed(),
        hi: hi.cast_signed(),
    };
    IndexSpace::new(vec![dim("y", rows), dim("x", columns)]).expect("two dimensions")
}
