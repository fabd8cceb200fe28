//! VGG-16 trained data parallel: images in, gradients to their owners, weights back.
//!
//! Tasks of the host have channels innermost (NHWC; filters as OHWI), those of the accelerator the
//! rows (NCHW, OIHW), so that every copy between SYS and the local FBM but those of the fully connected
//! layers changes the layout. A layer's gradients go to the node's own host when its backward pass has
//! ended, and are cut there by output channels, a part for each node, whose host sums it up and sends
//! the new weights to all hosts; these send a layer to their accelerator when they have all of it.

use super::{Array, ITERATIONS, Made, Start, Trace, firsts, others, taking};
use crate::simulate::workload::CopySpec;
use model::{MemoryId, MemoryKind, Topology};
use std::time::Duration;

/// Assumed: images of a node and iteration, of 224 · 224 · 3 values of 4 bytes.
const BATCH: u64 = 64;
/// Assumed: floating-point operations a second of a node's accelerators.
const FLOPS: f64 = 4e12;

/// A layer with weights: output channels, input channels, the side of its filters and of what it
/// writes (Simonyan and Zisserman, 2014; configuration D).
#[derive(Debug, Clone, Copy)]
struct Layer {
    out: u64,
    input: u64,
    filter: u64,
    side: u64,
}

const fn layer(out: u64, input: u64, filter: u64, side: u64) -> Layer {
    Layer { out, input, filter, side }
}

const LAYERS: [Layer; 16] = [
    layer(64, 3, 3, 224),
    layer(64, 64, 3, 224),
    layer(128, 64, 3, 112),
    layer(128, 128, 3, 112),
    layer(256, 128, 3, 56),
    layer(256, 256, 3, 56),
    layer(256, 256, 3, 56),
    layer(512, 256, 3, 28),
    layer(512, 512, 3, 28),
    layer(512, 512, 3, 28),
    layer(512, 512, 3, 14),
    layer(512, 512, 3, 14),
    layer(512, 512, 3, 14),
    layer(4096, 512 * 7 * 7, 1, 1),
    layer(4096, 4096, 1, 1),
    layer(1000, 4096, 1, 1),
];

impl Layer {
    /// All weights, from the accelerator to the host.
    fn whole(self) -> Array {
        let dims = [("o", self.out), ("i", self.input), ("h", self.filter), ("w", self.filter)];
        match self.filter {
            1 => Array::of(&dims[..2], 4, &[0, 1]),
            _ => Array::of(&dims, 4, &[0, 2, 3, 1]),
        }
    }

    /// Weights of the part that `owner` of `nodes` has, from host to host; `None` where there are
    /// fewer channels than nodes, and it has none.
    fn part(self, owner: usize, nodes: usize) -> Option<Array> {
        let (owner, nodes) = (owner as u64, nodes as u64);
        let out = self.out * (owner + 1) / nodes - self.out * owner / nodes;
        let weights = out * self.input * self.filter * self.filter;
        (out > 0).then(|| Array::vector(weights, 4))
    }

    /// Operations of a forward pass of the batch; the backward pass takes twice as many.
    fn operations(self) -> f64 {
        let weights = self.out * self.input * self.filter * self.filter;
        let each = weights * self.side * self.side;
        let both = u32::try_from(each * BATCH / (1 << 10)).expect("below 2^42");
        2.0 * f64::from(both) * 1024.0
    }
}

pub(super) fn copies(topology: &Topology) -> Made<Vec<CopySpec>> {
    let memories = firsts(topology, MemoryKind::Sys).zip(firsts(topology, MemoryKind::Fbm));
    let Some((sys, fbm)) = memories else { return Ok(Vec::new()) };
    let mut training = Training { trace: Trace::default(), sys, fbm };
    let mut weights = vec![Vec::new(); training.sys.len()];
    for _ in 0..ITERATIONS {
        let images = training.images(&weights)?;
        let gradients = training.gradients(&images)?;
        weights = training.weights(&gradients)?;
    }
    Ok(training.trace.copies)
}

#[derive(Debug)]
struct Training {
    trace: Trace,
    sys: Vec<MemoryId>,
    fbm: Vec<MemoryId>,
}

impl Training {
    /// Each node's batch to its accelerator, once its weights are there.
    fn images(&mut self, weights: &[Vec<usize>]) -> Made<Vec<usize>> {
        let dims = [("n", BATCH), ("h", 224), ("w", 224), ("c", 3)];
        let images = Array::of(&dims, 4, &[0, 3, 1, 2]);
        let mut sent = Vec::new();
        for (node, weights) in weights.iter().enumerate() {
            let ends = [self.sys[node], self.fbm[node]];
            sent.push(self.trace.copy("images", ends, &images, Start::after(weights))?);
        }
        Ok(sent)
    }

    /// From every accelerator to its host, and from there to every owner; for each layer and owner,
    /// the copies that it waits for.
    fn gradients(&mut self, images: &[usize]) -> Made<Vec<Vec<Vec<usize>>>> {
        let nodes = self.sys.len();
        let mut sent = vec![vec![Vec::new(); nodes]; LAYERS.len()];
        for (node, &images) in images.iter().enumerate() {
            for layer in (0..LAYERS.len()).rev() {
                let start = Start::after(&[images]).computing(passed(layer));
                let (ends, whole) = ([self.fbm[node], self.sys[node]], LAYERS[layer].whole());
                let here = self.trace.copy("gradients", ends, &whole, start)?;
                sent[layer][node].push(here);
                for owner in others(node, nodes) {
                    let Some(part) = LAYERS[layer].part(owner, nodes) else { continue };
                    let (ends, start) = ([self.sys[node], self.sys[owner]], Start::after(&[here]));
                    let copy = self.trace.copy("gradients to owner", ends, &part, start)?;
                    sent[layer][owner].push(copy);
                }
            }
        }
        Ok(sent)
    }

    /// From every owner to every host, and from there to its accelerator; for each node, the copies
    /// to that.
    fn weights(&mut self, gradients: &[Vec<Vec<usize>>]) -> Made<Vec<Vec<usize>>> {
        let nodes = self.sys.len();
        let mut here = vec![Vec::new(); nodes];
        for (layer, owners) in LAYERS.iter().zip(gradients).rev() {
            // Of the node's own part, what it waits for itself.
            let mut parts = owners.clone();
            for (owner, gradients) in owners.iter().enumerate() {
                let Some(part) = layer.part(owner, nodes) else { continue };
                for node in others(owner, nodes) {
                    let (ends, start) =
                        ([self.sys[owner], self.sys[node]], Start::after(gradients));
                    parts[node].push(self.trace.copy("weights to node", ends, &part, start)?);
                }
            }
            for (node, parts) in parts.iter().enumerate() {
                let (ends, whole) = ([self.sys[node], self.fbm[node]], layer.whole().back());
                let start = Start::after(parts);
                here[node].push(self.trace.copy("weights", ends, &whole, start)?);
            }
        }
        Ok(here)
    }
}

/// From the images' arrival to the end of the backward pass of `layer`.
fn passed(layer: usize) -> Duration {
    let forward: f64 = LAYERS.iter().map(|layer| layer.operations()).sum();
    let backward: f64 = LAYERS[layer..].iter().map(|layer| 2.0 * layer.operations()).sum();
    taking(forward + backward, FLOPS)
}
