//! Circuit: a master that every node talks to.
//!
//! Each node has a part of an electrical circuit on its accelerator. Some of its nodes are shared
//! with other parts: what their wires charge them with goes to the master, which holds all that is
//! shared, and the new voltages come back; with each a message that says how the step went. All
//! large copies are of one size here; the small ones are of two.

use super::{Array, ITERATIONS, Made, Start, Trace, firsts, taking};
use crate::simulate::workload::CopySpec;
use model::{MemoryId, MemoryKind, Topology};
use std::time::Duration;

/// Assumed: shared circuit nodes of a part, and as many of other parts that its wires touch; 4 bytes
/// of charge or voltage each.
const SHARED: u64 = 4 << 20;
/// Assumed: wires of a part, and operations of a step for each (10 segments, 400 times, 8 each).
const WIRES: u32 = 64 << 20;
const OPERATIONS_PER_WIRE: f64 = 32_000.0;
/// Assumed: operations a second of a node's two accelerators. Chosen before the first run so that
/// computing would take about two thirds of an iteration on 64 nodes, as the paper's 36% of
/// communication has it; it takes four fifths.
const OPERATIONS_PER_SECOND: f64 = 6e11;
/// Assumed: a message about a step.
const STATUS_BYTES: u64 = 64;

pub(super) fn copies(topology: &Topology) -> Made<Vec<CopySpec>> {
    let memories = firsts(topology, MemoryKind::Sys).zip(firsts(topology, MemoryKind::Fbm));
    let Some((sys, fbm)) = memories else { return Ok(Vec::new()) };
    let mut circuit = Circuit {
        trace: Trace::default(),
        sys,
        fbm,
        step: taking(f64::from(WIRES) * OPERATIONS_PER_WIRE, OPERATIONS_PER_SECOND),
    };
    let mut here = vec![Vec::new(); circuit.fbm.len()];
    for _ in 0..ITERATIONS {
        let charged = circuit.charge(&here)?;
        here = circuit.update(&charged)?;
    }
    Ok(circuit.trace.copies)
}

#[derive(Debug)]
struct Circuit {
    trace: Trace,
    sys: Vec<MemoryId>,
    fbm: Vec<MemoryId>,
    step: Duration,
}

impl Circuit {
    /// Every part computes a step from what is `here`, and sends the master its charges.
    fn charge(&mut self, here: &[Vec<usize>]) -> Made<Vec<usize>> {
        let mut sent = Vec::new();
        for (part, here) in here.iter().enumerate() {
            let start = Start::after(here).computing(self.step);
            for what in ["charges", "ghost charges"] {
                sent.push(self.copy(what, [self.fbm[part], self.sys[0]], SHARED * 4, &start)?);
            }
            sent.push(self.copy("status", [self.sys[part], self.sys[0]], STATUS_BYTES, &start)?);
        }
        Ok(sent)
    }

    /// The master sends every part its voltages, once all charges are there.
    fn update(&mut self, charged: &[usize]) -> Made<Vec<Vec<usize>>> {
        let start = Start::after(charged);
        let mut back = Vec::new();
        for part in 0..self.fbm.len() {
            let (device, host) = ([self.sys[0], self.fbm[part]], [self.sys[0], self.sys[part]]);
            back.push(vec![
                self.copy("voltages", device, SHARED * 4, &start)?,
                self.copy("ghost voltages", device, SHARED * 4, &start)?,
                self.copy("step", host, STATUS_BYTES, &start)?,
            ]);
        }
        Ok(back)
    }

    fn copy(&mut self, what: &str, ends: [MemoryId; 2], bytes: u64, start: &Start) -> Made<usize> {
        self.trace.copy(what, ends, &Array::vector(bytes / 4, 4), start.clone())
    }
}
