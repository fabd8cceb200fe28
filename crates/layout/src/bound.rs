//! How many pieces a copy may fall into, before it is made.

use crate::lattice::gcd;
use crate::side::Side;
use crate::stream::Stream;

/// What a level of aligned blocks may cut a dimension into: at either end of the box a block that
/// it holds in part, the blocks beside these, and all others.
const PIECES_OF_A_LEVEL: u64 = 5;

/// So many periods of blocks that don't nest are cut apart: one is a loop of the others, and at
/// either end of the box one is cut.
const PERIODS: u64 = 3;

/// No more pieces than this come of [`crate::copies`] of any range of `range_of`, before they are
/// merged: one counts for each field, and for each entry of an index list. It says little where
/// blocks neither nest nor start together, as they are where one program moves them.
#[must_use]
pub fn most_pieces(src: Side, dst: Side, range_of: &Stream) -> u64 {
    let order = Side::Stream { stream: range_of, base: 0 };
    let extents = range_of.extents();
    let dims = (0..extents.len()).map(|dim| match extents[dim] {
        extent if src.list(dim).is_some() || dst.list(dim).is_some() => extent,
        extent => pieces(&edges([&src, &dst, &order], dim, extent), extent),
    });
    // A range starts and ends within an iteration of each component.
    let cells = 2 * range_of.component_count() as u64 + 1;
    dims.fold(cells, u64::saturating_mul).saturating_mul(range_of.field_count() as u64)
}

/// Blocks of one size: their ends are where an index plus `phase` is a multiple of `block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edges {
    block: u64,
    phase: u64,
}

/// The blocks along `dim` that end inside a box of `extent` indices, on any of `sides`, by size.
fn edges(sides: [&Side; 3], dim: usize, extent: u64) -> Vec<Edges> {
    let of_side = |side: &Side| {
        let (blocks, start) = side.blocks(dim);
        let ends_inside =
            move |block: &u64| extent > 0 && start / block != (start + extent - 1) / block;
        blocks
            .filter(ends_inside)
            .map(move |block| Edges { block, phase: start % block })
            .collect::<Vec<_>>()
    };
    let mut edges: Vec<Edges> = sides.into_iter().flat_map(of_side).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// After how many indices `edges` meet as before.
fn period(edges: &[Edges]) -> u64 {
    let common = |all: u64, e: &Edges| (all / gcd(all, e.block)).saturating_mul(e.block);
    edges.iter().fold(1, common)
}

/// How many pieces `edges`, by size, may cut `extent` indices into.
fn pieces(edges: &[Edges], extent: u64) -> u64 {
    let nests = |pair: &[Edges]| {
        let [fine, coarse] = [pair[0], pair[1]];
        coarse.block > fine.block
            && coarse.block.is_multiple_of(fine.block)
            && coarse.phase % fine.block == fine.phase
    };
    let all = if edges.windows(2).all(nests) {
        edges.iter().fold(1, |all: u64, _| all.saturating_mul(PIECES_OF_A_LEVEL))
    } else {
        let repeats = extent.min(period(edges).saturating_mul(PERIODS));
        let cuts = edges.iter().map(|e| repeats / e.block + 2);
        cuts.fold(1, u64::saturating_add).saturating_mul(PIECES_OF_A_LEVEL)
    };
    all.min(extent).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::pieces;
    use model::{Component, Layout};
    use proptest::prelude::*;

    /// A stream of `extents` with these blocks of each dimension, in the order of `keys`.
    fn stream(extents: &[u64], blocks: &[Vec<u64>], keys: &[u8], phase: &[u64]) -> Stream {
        let mut components = vec![Component::Fields];
        for (dim, sizes) in (0u8..).zip(blocks) {
            let inner =
                (1u8..).zip(sizes).map(|(level, &size)| Component::Inner { dim, level, size });
            components.extend(inner);
            let is_whole = sizes.is_empty();
            components.push(if is_whole { Component::Whole(dim) } else { Component::Outer(dim) });
        }
        let mut at = 0;
        components.sort_by_key(|_| {
            at += 1;
            keys[at % keys.len()]
        });
        let layout = Layout::new(components, extents.len()).unwrap();
        Stream::new(&layout, extents, phase, &[1, 2]).unwrap()
    }

    type Drawn = (Vec<Vec<u64>>, Vec<u8>, Vec<u64>);

    fn drawn(rank: usize, size: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Drawn> {
        let blocks = prop::collection::vec(prop::collection::vec(size, 0..3), rank);
        let keys = prop::collection::vec(any::<u8>(), 12);
        (blocks, keys, prop::collection::vec(0..64u64, rank))
    }

    /// Three streams of one box: blocks of powers of two nest, if they start together.
    fn streams() -> impl Strategy<Value = [Stream; 3]> {
        (1..4usize, any::<bool>(), any::<bool>()).prop_flat_map(|(rank, nests, starts)| {
            let extents = prop::collection::vec(1..[4000u64, 70, 12][rank - 1], rank);
            let size = 2..=if rank == 1 { 20 } else { 7 };
            let side = || drawn(rank, size.clone());
            (extents, [side(), side(), side()]).prop_map(move |(extents, sides)| {
                let first = sides[0].2.clone();
                sides.map(|(mut blocks, keys, phase)| {
                    let even = |size: &mut u64| *size = size.next_power_of_two();
                    if nests {
                        blocks.iter_mut().flatten().for_each(even);
                    }
                    stream(&extents, &blocks, &keys, if starts { &first } else { &phase })
                })
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn no_copy_falls_into_more_pieces([src, dst, order] in streams(), cut in any::<[u16; 2]>()) {
            let side = |stream| Side::Stream { stream, base: 0 };
            let at = cut.map(|cut| u64::from(cut) % (order.bytes() + 1));
            let all = 0..order.bytes();
            for range in [all, at[0].min(at[1])..at[0].max(at[1])] {
                let list = pieces(side(&src), side(&dst), &order, range);
                let count: usize = list.iter().map(|copy| copy.fields.len()).sum();
                let most = most_pieces(side(&src), side(&dst), &order);
                prop_assert!(count as u64 <= most, "{count} pieces, {most} at most");
            }
        }
    }
}
