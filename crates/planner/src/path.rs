//! Paths of memories, and a path with its layouts solved.

use crate::graph::Edge;
use crate::shape::{Factors, Shape, WHOLE};
use crate::word::Word;
use model::ShapeClass;

/// The most hops of a path.
pub(crate) const MAX_HOPS: usize = 12;

/// A sequence of edges, each starting where the one before ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    len: u8,
    edges: [Edge; MAX_HOPS],
}

impl Path {
    pub(crate) const EMPTY: Path = Path { len: 0, edges: [Edge::NONE; MAX_HOPS] };

    pub(crate) fn edges(&self) -> &[Edge] {
        &self.edges[..usize::from(self.len)]
    }

    /// The number of hops.
    pub(crate) fn hops(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn push(&mut self, edge: Edge) {
        self.edges[usize::from(self.len)] = edge;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) {
        self.len -= 1;
    }

    /// The path with `edge` for hop `at`.
    pub(crate) fn replaced(mut self, at: usize, edge: Edge) -> Path {
        self.edges[at] = edge;
        self
    }

    /// The path with `edge` put in before hop `at`.
    pub(crate) fn with(&self, at: usize, edge: Edge) -> Path {
        let mut path = Path::EMPTY;
        self.edges()[..at].iter().for_each(|&e| path.push(e));
        path.push(edge);
        self.edges()[at..].iter().for_each(|&e| path.push(e));
        path
    }
}

/// The layouts of a path: intermediates up to the pivot hop have `before`, later ones `after`.
///
/// Hop 0 may change the order beyond a prefix, the pivot hop within a window, the last hop beyond
/// a prefix; the others copy in order. The pivot is 0 where hop 0 does it all, and the last hop
/// where that one does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Solution {
    pub(crate) factors: Factors,
    pub(crate) pivot: usize,
    pub(crate) before: Word,
    pub(crate) after: Word,
}

/// What one hop does to the order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) prefix_bytes: u64,
    /// The mean run: shorter than `prefix_bytes` where a split doesn't divide its dimension.
    pub(crate) run_bytes: u64,
    pub(crate) shuffle_bytes: u64,
    /// At either end, runs start at multiples of this.
    pub(crate) start_bytes: u64,
    pub(crate) class: ShapeClass,
}

impl Solution {
    /// All intermediates up to `pivot` in the source's order, and the rest in the destination's.
    pub(crate) fn ends(shape: &Shape, pivot: usize) -> Solution {
        Solution { factors: WHOLE, pivot, before: shape.src, after: shape.dst }
    }

    /// The word of layout `at` of a path with `hops` hops, between the ends' words.
    fn word<'a>(&'a self, at: usize, hops: usize, ends: &'a [Word; 2]) -> &'a Word {
        match at {
            0 => &ends[0],
            _ if at == hops => &ends[1],
            _ if at <= self.pivot => &self.before,
            _ => &self.after,
        }
    }

    /// What each hop does.
    pub(crate) fn steps(&self, shape: &Shape, hops: usize) -> [Step; MAX_HOPS] {
        let ends = [shape.end_word(0, &self.factors), shape.end_word(1, &self.factors)];
        let mut steps = [shape.copy_step(); MAX_HOPS];
        let step = |at| {
            let (from, to) = (self.word(at, hops, &ends), self.word(at + 1, hops, &ends));
            shape.step(from, to, &self.factors)
        };
        let last = hops - 1;
        steps[0] = step(0);
        if last > 0 {
            steps[last] = step(last);
        }
        if (1..last).contains(&self.pivot) {
            steps[self.pivot] = step(self.pivot);
        }
        steps
    }
}

impl Shape {
    /// A hop between equal layouts.
    pub(crate) fn copy_step(&self) -> Step {
        let prefix_bytes = self.payload;
        Step {
            prefix_bytes,
            run_bytes: prefix_bytes,
            shuffle_bytes: 1,
            start_bytes: prefix_bytes,
            class: ShapeClass::Run,
        }
    }

    /// The hop from one order to another.
    pub(crate) fn step(&self, from: &Word, to: &Word, factors: &Factors) -> Step {
        if from == to {
            return self.copy_step();
        }
        let prefix = from.common_prefix(to);
        let prefix_bytes = self.prefix_bytes(prefix, factors);
        let at = prefix.count_ones() as usize;
        let fastest = |word: &Word| word.atoms()[at..].iter().copied().find(|&atom| atom != 0);
        let ends = [fastest(from), fastest(to)];
        let width = |atom: &u8| self.prefix_bytes(prefix | 1 << atom, factors);
        let narrowest = ends.iter().flatten().map(width).min();
        Step {
            prefix_bytes,
            run_bytes: (prefix_bytes as f64 * self.fullness(prefix, factors)) as u64,
            shuffle_bytes: self.shuffle_bytes(from.below_suffix(to), factors),
            start_bytes: self.start_bytes(prefix, factors),
            class: class_of(prefix_bytes, ends[0] == ends[1], narrowest),
        }
    }
}

/// Runs of so many bytes or more are copied as such.
pub(crate) const RUN_BYTES: u64 = 64;

/// As `layout::shape_class` says of the copies: runs of 64 bytes or more are copied as such;
/// shorter ones are interleaved where only the fields part or the fastest loop of an end stays
/// within 64 bytes, and transposed elsewhere.
fn class_of(prefix_bytes: u64, same_loop: bool, narrowest: Option<u64>) -> ShapeClass {
    if prefix_bytes >= RUN_BYTES {
        ShapeClass::Run
    } else if same_loop || narrowest.is_some_and(|bytes| bytes <= RUN_BYTES) {
        ShapeClass::Interleave
    } else {
        ShapeClass::Transpose
    }
}

#[cfg(test)]
mod tests;
