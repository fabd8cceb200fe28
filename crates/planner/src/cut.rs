//! Where a box may be cut in two without cutting a block of either end.

use crate::{Query, query::End};
use model::Component;
use std::ops::Range;

/// A dimension of so many parts or more can be divided finely enough; of fewer, the more the better.
const FINE: u64 = 64;
/// So many ends of blocks are tried for one that is a block's at the other end too.
const TRIED: u128 = 4096;

/// The places where one dimension may be cut: `first`, and from there on every `step` indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) dim: usize,
    first: u64,
    step: u64,
    extent: u64,
}

impl Cut {
    /// The dimensions along which `query` is best cut: the slowest at the destination that has
    /// many places, and the slowest at the source.
    pub(crate) fn of(query: &Query<'_>) -> Vec<Cut> {
        let mut cuts: Vec<Cut> = Vec::new();
        for end in [&query.dst, &query.src] {
            let along = dims(end).filter_map(|dim| Cut::along(query, dim));
            // Of equals the last, which is the slowest.
            let best = along.max_by_key(|cut| cut.parts().min(FINE));
            cuts.extend(best.filter(|cut| !cuts.contains(cut)));
        }
        cuts
    }

    /// `None` where no place is right for the blocks of both ends.
    fn along(query: &Query<'_>, dim: usize) -> Option<Cut> {
        let extent = query.extents[dim];
        let mut blocks = [&query.src, &query.dst].map(|end| block(end, dim));
        blocks.sort_unstable();
        let [(narrow, narrow_phase), (wide, wide_phase)] = blocks;
        let ends = (1..=TRIED).map(|k| k * wide - wide_phase);
        let mut both = ends.filter(|end| (end + narrow_phase).is_multiple_of(narrow));
        let mut next = || u64::try_from(both.next()?).ok();
        let first = next().filter(|&first| first < extent)?;
        let step = next().map_or(extent, |second| second - first);
        Some(Cut { dim, first, step, extent })
    }

    /// Into how many parts the dimension can be cut.
    fn parts(&self) -> u64 {
        2 + (self.extent - 1 - self.first) / self.step
    }

    /// The place nearest to the part `part` of the extent.
    fn nearest(&self, part: f64) -> u64 {
        let wanted = (part * self.extent as f64 - self.first as f64) / self.step as f64;
        self.first + (wanted.round() as u64).min(self.parts() - 2) * self.step
    }

    /// The extent in parts of about these sizes; `None` where one of them would be empty.
    pub(crate) fn ranges(&self, sizes: &[f64]) -> Option<Vec<Range<u64>>> {
        let total: f64 = sizes.iter().sum();
        let (mut start, mut before) = (0, 0.0);
        let mut ranges = Vec::with_capacity(sizes.len());
        for (at, size) in sizes.iter().enumerate() {
            before += size;
            let is_last = at + 1 == sizes.len();
            let end = if is_last { self.extent } else { self.nearest(before / total) };
            ranges.push(start..end);
            start = end;
        }
        ranges.iter().all(|range| !range.is_empty()).then_some(ranges)
    }
}

/// The dimensions of an end, the fastest first.
fn dims(end: &End<'_>) -> impl DoubleEndedIterator<Item = usize> {
    end.layout.components().iter().filter_map(|component| match component {
        Component::Whole(dim) | Component::Outer(dim) => Some(usize::from(*dim)),
        Component::Fields | Component::Inner { .. } => None,
    })
}

/// The outermost block of a dimension, and where the box starts in it.
fn block(end: &End<'_>, dim: usize) -> (u128, u128) {
    let size = end.layout.blocks(dim).fold(1u64, u64::saturating_mul);
    let phase = end.phase.get(dim).copied().unwrap_or(0);
    (size.into(), (phase % size).into())
}

/// A part of a box along one dimension, as a query needs it.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    extents: Vec<u64>,
    phases: [Vec<u64>; 2],
    gaps: [u8; 2],
}

impl Slice {
    /// The part `range` of the box of `query` along `dim`, not all of it.
    pub(crate) fn of(query: &Query<'_>, dim: usize, range: &Range<u64>) -> Slice {
        let mut extents = query.extents.to_vec();
        extents[dim] = range.end - range.start;
        let ends = [&query.src, &query.dst];
        let phases = ends.map(|end| {
            let mut phase = end.phase.to_vec();
            if let Some(phase) = phase.get_mut(dim) {
                let (size, _) = block(end, dim);
                *phase = ((u128::from(*phase) + u128::from(range.start)) % size) as u64;
            }
            phase
        });
        // After each row of the part comes the rest of the row of the box.
        let gaps = ends.map(|end| {
            let slower = dims(end).rev().take_while(|&slower| slower != dim);
            slower.fold(end.gaps, |gaps, slower| gaps | 1 << slower)
        });
        Slice { extents, phases, gaps }
    }

    /// As `query`, of this part only.
    pub(crate) fn query<'a>(&'a self, query: &Query<'a>) -> Query<'a> {
        let [src, dst] = [(0, query.src), (1, query.dst)].map(|(at, end)| End {
            phase: &self.phases[at],
            gaps: self.gaps[at],
            ..end
        });
        Query { src, dst, extents: &self.extents, ..*query }
    }
}

#[cfg(test)]
mod tests;
