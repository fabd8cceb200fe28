//! Each normalisation pass by itself: it moves the same bytes as before, and does its work.

use crate::canon::*;
use crate::class::touched;
use crate::digits::{count, digits_of, free_ranges, products};
use crate::lattice::{Lattice, lattices, split_at_blocks, split_at_value};
use crate::merge::{join_neighbours, join_series, merged};
use model::{CopyDim, FieldCopy, NdCopy, Stride};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Destination byte to source byte.
fn moves(list: &[NdCopy]) -> BTreeMap<i64, i64> {
    let mut all = BTreeMap::new();
    for copy in list {
        for field in &copy.fields {
            let mut points = vec![(field.src_offset, field.dst_offset)];
            for (dim, stride) in copy.dims.iter().zip(&field.strides) {
                let at = |t: &Option<std::sync::Arc<[u64]>>, i: u64| {
                    t.as_ref().map_or(i, |t| t[i as usize]) as i64
                };
                let turn = |&(s, d): &(i64, i64)| {
                    let shift = |i| {
                        let (from, to) = (at(&dim.src_index, i), at(&dim.dst_index, i));
                        (s + from * stride.src, d + to * stride.dst)
                    };
                    (0..dim.extent).map(shift).collect::<Vec<_>>()
                };
                points = points.iter().flat_map(turn).collect();
            }
            for (s, d) in points {
                all.extend((0..field.bytes as i64).map(|b| (d + b, s + b)));
            }
        }
    }
    all
}

/// Copies with loops nested densely or with gaps, so that each pass often has something to do.
fn nd_copies() -> impl Strategy<Value = NdCopy> {
    let dim = (1u64..4, prop::bool::weighted(0.2), prop::bool::weighted(0.2), 0u8..3);
    (prop::collection::vec(dim, 0..4), prop::collection::vec(1u64..4, 1..4), any::<[bool; 3]>())
        .prop_map(|(dims, sizes, [soa, gap, swap])| build(&dims, &sizes, [soa, gap, swap]))
}

type DimChoice = (u64, bool, bool, u8);

fn build(dims: &[DimChoice], sizes: &[u64], [soa, gap, swap]: [bool; 3]) -> NdCopy {
    let points: u64 = dims.iter().map(|d| d.0).product();
    let entry: u64 = sizes.iter().sum();
    let mut before = 0;
    let mut fields = Vec::new();
    for &bytes in sizes {
        let unit = if soa { bytes } else { entry } as i64;
        let offset = if soa { before * points } else { before } as i64;
        let src_offset = offset + if gap { before as i64 } else { 0 };
        let strides = strides(dims, unit, swap);
        let mut field = FieldCopy { bytes, src_offset, dst_offset: offset, padding: 0, strides };
        for (stride, dim) in field.strides.iter_mut().zip(dims).filter(|(_, d)| d.1) {
            field.dst_offset += (dim.0 as i64 - 1) * stride.dst;
            stride.dst = -stride.dst;
        }
        fields.push(field);
        before += bytes;
    }
    NdCopy { dims: dims.iter().map(loop_of).collect(), fields }
}

/// Dense strides on both sides; on the source's with the loops the other way round if `swap`.
fn strides(dims: &[DimChoice], unit: i64, swap: bool) -> Vec<Stride> {
    let rank = dims.len();
    let dense = |k: usize| unit * dims[k + 1..].iter().map(|d| d.0 as i64).product::<i64>();
    let swapped = |k: usize| unit * dims[..k].iter().map(|d| d.0 as i64).product::<i64>();
    let stride = |k| Stride { src: if swap { swapped(k) } else { dense(k) }, dst: dense(k) };
    (0..rank).map(stride).collect()
}

fn loop_of(&(extent, _, table, kind): &DimChoice) -> CopyDim {
    let regular: Vec<u64> = (0..extent).collect();
    let reversed: Vec<u64> = (0..extent).rev().collect();
    let rotated: Vec<u64> = (0..extent).map(|i| (i + 1) % extent).collect();
    let indices = [regular, reversed, rotated][usize::from(kind)].clone();
    CopyDim { extent, src_index: table.then(|| indices.into()), dst_index: None }
}

fn check(pass: impl Fn(&mut NdCopy), before: &NdCopy) -> Result<NdCopy, TestCaseError> {
    let mut after = before.clone();
    pass(&mut after);
    prop_assert_eq!(moves(std::slice::from_ref(before)), moves(std::slice::from_ref(&after)));
    Ok(after)
}

proptest! {
    #[test]
    fn regular_tables_become_strides(copy in nd_copies()) {
        let after = check(replace_regular_tables, &copy)?;
        for dim in after.dims.iter().filter(|d| d.extent <= 2) {
            prop_assert!(dim.src_index.is_none());
        }
    }

    #[test]
    fn single_turns_are_dropped(mut copy in nd_copies()) {
        replace_regular_tables(&mut copy);
        let after = check(drop_single_turns, &copy)?;
        prop_assert!(after.dims.iter().all(|d| d.extent > 1));
    }

    #[test]
    fn destinations_are_walked_upwards(copy in nd_copies()) {
        let after = check(walk_upwards, &copy)?;
        for (dim, stride) in after.dims.iter().zip(&after.fields[0].strides) {
            prop_assert!(dim.src_index.is_some() || stride.dst >= 0);
        }
    }

    #[test]
    fn loops_descend_in_the_destination(copy in nd_copies()) {
        let after = check(sort_loops, &copy)?;
        let strides = after.fields[0].strides.iter().map(|s| s.dst.unsigned_abs());
        prop_assert!(strides.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn fields_ascend_in_the_destination(copy in nd_copies()) {
        let after = check(sort_fields, &copy)?;
        prop_assert!(after.fields.is_sorted_by_key(|f| f.dst_offset));
    }

    #[test]
    fn neighbouring_fields_are_joined(mut copy in nd_copies()) {
        sort_fields(&mut copy);
        let after = check(join_fields, &copy)?;
        let again = check(join_fields, &after)?;
        prop_assert_eq!(after, again);
    }

    #[test]
    fn loops_that_are_one_are_fused(mut copy in nd_copies()) {
        replace_regular_tables(&mut copy);
        let after = check(fuse_loops, &copy)?;
        let again = check(fuse_loops, &after)?;
        prop_assert_eq!(after, again);
    }

    #[test]
    fn dense_innermost_loops_are_folded(copy in nd_copies()) {
        let after = check(fold_innermost, &copy)?;
        prop_assert!(after.dims.len() + 1 >= copy.dims.len());
    }

    #[test]
    fn all_passes_move_the_same_bytes(copy in nd_copies()) {
        let after = canonical(copy.clone());
        prop_assert_eq!(moves(&[copy]), moves(std::slice::from_ref(&after)));
        prop_assert_eq!(canonical(after.clone()), after);
    }

    #[test]
    fn merging_moves_the_same_bytes(copies in prop::collection::vec(nd_copies(), 1..6), apart in 0i64..3) {
        // Each copy behind the one before, so that destinations are disjoint.
        let mut at = 0;
        let mut list = Vec::new();
        for mut copy in copies.into_iter().map(canonical) {
            let shift = at - copy.fields.iter().map(|f| f.dst_offset).min().unwrap();
            for field in &mut copy.fields {
                field.dst_offset += shift;
                field.src_offset += shift;
            }
            at = moves(&[copy.clone()]).last_key_value().unwrap().0 + 1 + apart;
            list.push(copy);
        }
        let before = moves(&list);
        for pass in [join_neighbours, join_series, merged] {
            let after = pass(list.clone());
            prop_assert!(after.len() <= list.len());
            prop_assert_eq!(&before, &moves(&after));
        }
    }

    #[test]
    fn lattices_hold_the_digits_they_are_of(
        blocks in prop::collection::vec(1u64..5, 0..3),
        start in 0u64..20,
        extent in 1u64..40,
        cuts in prop::collection::vec((0u64..5, 0u64..5), 3),
    ) {
        let digits = digits_of(blocks.iter().copied());
        let indices = start..start + extent;
        let mut ranges = free_ranges(&digits, &indices);
        for (range, (a, b)) in ranges.iter_mut().zip(&cuts) {
            *range = (*a).min(range.end - 1)..(a + b + 1).min(range.end);
        }
        let inside = |i: &u64| digits.iter().zip(&ranges).all(|(d, r)| r.contains(&d.of(*i)));
        let expected: Vec<u64> = indices.clone().filter(inside).collect();
        prop_assert_eq!(count(&digits, &ranges, &indices), expected.len() as u64);
        let mut got: Vec<u64> =
            lattices(&digits, &ranges, &indices).iter().flat_map(Lattice::indices).map(|i| i + start).collect();
        got.sort_unstable();
        prop_assert_eq!(&got, &expected);
        prop_assert!(products(&digits, &ranges, &indices).len() < 2 * digits.len());
    }

    #[test]
    fn blocks_are_not_left_but_by_whole_ones(
        (first, second) in (1u64..9, 1u64..9),
        (phase, start) in (0u64..9, 0u64..9),
        extent in 1u64..200,
    ) {
        let mut once = Vec::new();
        split_at_blocks(Lattice::interval(start..start + extent), first, phase, &mut once);
        let mut twice = Vec::new();
        once.into_iter().for_each(|l| split_at_blocks(l, second, phase, &mut twice));
        let mut all: Vec<u64> = twice.iter().flat_map(Lattice::indices).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (start..start + extent).collect::<Vec<_>>());
        for lattice in &twice {
            for block in [first, second] {
                let within = (lattice.start + phase) % block;
                let inner = lattice.loops.iter().filter(|l| l.step % block != 0);
                let reach: u64 = inner.map(|l| (l.count - 1) * l.step).sum();
                prop_assert!(within + reach < block);
            }
        }
    }

    #[test]
    fn a_value_is_on_one_side_of_a_cut(block in 1u64..9, extent in 1u64..99, at in 0u64..120) {
        let mut blocks = Vec::new();
        split_at_blocks(Lattice::interval(0..extent), block, 0, &mut blocks);
        for value in [|i: u64, _: u64| i, |i: u64, block: u64| i / block] {
            let mut cut = Vec::new();
            for lattice in blocks.clone() {
                split_at_value(lattice, &|i| value(i, block), at, &mut cut);
            }
            for lattice in &cut {
                let below = lattice.indices().iter().filter(|&&i| value(i, block) < at).count() as u64;
                prop_assert!(below == 0 || below == lattice.len());
            }
            let mut all: Vec<u64> = cut.iter().flat_map(Lattice::indices).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..extent).collect::<Vec<_>>());
        }
    }
}

#[test]
fn pieces_of_incommensurate_blocks_don_t_grow_with_the_extent() {
    let pieces = |extent| {
        let mut sixes = Vec::new();
        split_at_blocks(Lattice::interval(0..extent), 6, 0, &mut sixes);
        let mut both = Vec::new();
        sixes.into_iter().for_each(|l| split_at_blocks(l, 4, 0, &mut both));
        both.len()
    };
    assert_eq!(pieces(12 * 10), 4);
    assert_eq!(pieces(12 * 1_000_000), 4);
}

#[test]
fn positions_past_all_bounds_are_too_far() {
    let far: Arc<[u64]> = Arc::new([0, u64::MAX]);
    let dim = CopyDim { extent: 2, src_index: Some(far), dst_index: None };
    let stride = Stride { src: i64::MIN, dst: 0 };
    let field =
        FieldCopy { bytes: 1, src_offset: 0, dst_offset: 0, padding: 0, strides: vec![stride; 3] };
    let copy = NdCopy { dims: vec![dim; 3], fields: vec![field] };
    assert_eq!(touched(&copy), (i64::MIN..i64::MAX, 0..1));
}
