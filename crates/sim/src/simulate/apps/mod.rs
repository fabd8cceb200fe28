//! Applications as copies and the times that they compute in between.
//!
//! They are generated from problem sizes, for every node of a cluster that has the memories they
//! use. The paper says what its three applications move and how (section 6.5), and no size, rate or
//! time: all of these are assumed, and stand as constants with what they are made of.

mod circuit;
mod pagerank;
mod reshard;
mod serving;
mod vgg;

use crate::simulate::error::WorkloadError;
use crate::simulate::places::joined;
use crate::simulate::workload::{Case, CopySpec};
use model::{
    Component, FieldSpace, IndexSpace, Layout, MemoryId, MemoryKind, NodeId, Priority, Time,
    Topology,
};
use std::time::Duration;

/// How often an application's loop runs.
const ITERATIONS: usize = 4;

/// The most copies of an application, and the most that they wait for in all: with the number of
/// nodes the ones grow with its square, the others with its cube.
const MAX_COPIES: usize = 1 << 20;
const MAX_WAITS: usize = 1 << 26;

type Made<T> = Result<T, WorkloadError>;

/// The application called `name` on all nodes of `topology`; without a copy where the memories that
/// it uses are not there. `None` for another name.
pub(crate) fn case(name: &str, topology: &Topology) -> Made<Option<Case>> {
    let copies = match name {
        "pagerank" => pagerank::copies(topology),
        "circuit" => circuit::copies(topology),
        "vgg16" => vgg::copies(topology),
        "kv" => serving::copies(topology),
        "reshard" => reshard::copies(topology),
        _ => return Ok(None),
    };
    Ok(Some(Case { name: name.to_owned(), copies: copies? }))
}

/// What a copy moves.
#[derive(Debug, Clone)]
struct Array {
    space: IndexSpace,
    item_bytes: u64,
    layouts: [Layout; 2],
}

impl Array {
    /// One dimension, alike at both ends.
    fn vector(entries: u64, item_bytes: u64) -> Self {
        Self::of(&[("x", entries)], item_bytes, &[0])
    }

    /// `dims` slowest first, as it lies at the source; the destination has them in the order `to`.
    fn of(dims: &[(&str, u64)], item_bytes: u64, to: &[usize]) -> Self {
        let space = IndexSpace::of(dims).expect("names of dimensions");
        let from: Vec<usize> = (0..dims.len()).collect();
        Array { space, item_bytes, layouts: [row_major(&from), row_major(to)] }
    }

    /// The same the other way.
    fn back(&self) -> Self {
        let [from, to] = self.layouts.clone();
        Array { layouts: [to, from], ..self.clone() }
    }
}

/// Dimensions in this order, slowest first, the only field innermost.
fn row_major(order: &[usize]) -> Layout {
    let dims = order.iter().rev().map(|&dim| u8::try_from(dim).expect("few dimensions"));
    let components = [Component::Fields].into_iter().chain(dims.map(Component::Whole));
    Layout::new(components, order.len()).expect("each dimension once")
}

/// When a copy starts: so long after the last of these has ended.
#[derive(Debug, Clone, Default)]
struct Start {
    after: Vec<usize>,
    compute: Duration,
}

impl Start {
    fn after(copies: &[usize]) -> Self {
        Start { after: copies.to_vec(), compute: Duration::ZERO }
    }

    fn computing(self, compute: Duration) -> Self {
        Start { compute, ..self }
    }
}

const TOO_LARGE: &str = "more copies than fit in memory; on fewer nodes there are less";

/// Copies in the order in which they are launched.
#[derive(Debug, Default)]
struct Trace {
    copies: Vec<CopySpec>,
    /// What they wait for in all.
    waits: usize,
}

impl Trace {
    /// One more copy; what it is called is completed by its number. Returns its position.
    fn copy(
        &mut self,
        what: &str,
        ends: [MemoryId; 2],
        array: &Array,
        start: Start,
    ) -> Made<usize> {
        let at = self.copies.len();
        self.waits += start.after.len();
        if at == MAX_COPIES || self.waits > MAX_WAITS {
            return Err(WorkloadError::value("", TOO_LARGE));
        }
        self.copies.push(CopySpec {
            name: format!("{what} {at}"),
            from: ends[0],
            to: ends[1],
            space: array.space.clone(),
            instances: [array.space.clone(), array.space.clone()],
            fields: FieldSpace::packed(&[array.item_bytes]).expect("one field"),
            layouts: array.layouts.clone(),
            count: 1,
            priority: Priority(0),
            at: Time(0),
            after: start.after,
            compute: start.compute,
        });
        Ok(at)
    }
}

/// For each node, its first memory of `kind`; `None` unless all have one.
fn firsts(topology: &Topology, kind: MemoryKind) -> Option<Vec<MemoryId>> {
    let first = |node| joined(topology, NodeId(node), kind).first().copied();
    (0..topology.node_count()).map(first).collect()
}

/// All others, the next one first, so that not all begin with the same.
fn others(node: usize, nodes: usize) -> impl Iterator<Item = usize> {
    (1..nodes).map(move |step| (node + step) % nodes)
}

/// How long so many operations take at so many a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a day")]
fn taking(operations: f64, rate: f64) -> Duration {
    Duration::from_nanos((operations / rate * 1e9) as u64)
}

#[cfg(test)]
mod tests;
