//! Addresses, spans, parts and sizes against direct readings of their definitions.

mod common;

use common::*;
use isometry_layout::{
    LayoutError, Placement, Sizes, Stream, parse, prefix_bytes, shuffle_bytes, suffix_bytes,
    total_bytes,
};
use model::{Dim, FieldSpace, IndexSpace, Selection, Span};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn any_instance(is_source: bool) -> impl Strategy<Value = Instance> {
    (extents(8), field_spaces())
        .prop_flat_map(move |(extents, fields)| instances(extents, fields, is_source))
}

/// The bytes of every field of every entry of the box, entry by entry.
fn bytes_of(instance: &Instance) -> Vec<i64> {
    let entries = indices(&instance.selection.extents());
    let fields = instance.fields.fields().len();
    let each = |index: &Vec<u64>| {
        let of = |f: usize| {
            let start = instance.address(index, f);
            let bytes = instance.fields.fields()[instance.order[f]].bytes as i64;
            start..start + bytes
        };
        (0..fields).flat_map(of).collect::<Vec<_>>()
    };
    entries.iter().flat_map(each).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn addresses_are_the_contract_s(instance in any_instance(true)) {
        let placement = instance.placement();
        let spans = instance.selection.spans();
        for index in indices(&instance.selection.extents()) {
            let absolute: Vec<i64> = index.iter().zip(spans).map(|(&i, span)| match span {
                Span::Range { lo, .. } => lo + i as i64,
                Span::List(list) => list[i as usize],
            }).collect();
            for (position, &field) in instance.order.iter().enumerate() {
                prop_assert_eq!(
                    placement.address(&absolute, field),
                    instance.address(&index, position),
                );
            }
        }
    }

    #[test]
    fn spans_hold_what_is_touched(instance in any_instance(true)) {
        let bytes = bytes_of(&instance);
        let (part, whole) = (instance.part().span(), instance.placement().span());
        match (bytes.iter().min(), bytes.iter().max()) {
            (Some(&lo), Some(&hi)) => {
                prop_assert_eq!(part.clone(), lo..hi + 1);
                prop_assert!(whole.start <= part.start && part.end <= whole.end);
            }
            _ => prop_assert_eq!(part, 0..0),
        }
    }

    #[test]
    fn destinations_that_overlap_are_refused(
        extents in prop::collection::vec(1u64..5, 1..4),
        strides in prop::collection::vec(-9i64..10, 3),
        bytes in 1u64..5,
    ) {
        let names = ["x", "y", "z"];
        let dims: Vec<(&str, u64)> = names.into_iter().zip(extents.iter().copied()).collect();
        let space = IndexSpace::of(&dims).unwrap();
        let fields = FieldSpace::packed(&[bytes]).unwrap();
        let strides = &strides[..extents.len()];
        let placement = Placement::of_strides(&space, &fields, strides).unwrap();
        let part = placement.select(&Selection::all(&space), &[0]).unwrap();
        let mut written = BTreeSet::new();
        let apart = indices(&extents).into_iter().all(|index| {
            let start: i64 = index.iter().zip(strides).map(|(&i, s)| i as i64 * s).sum();
            (0..bytes as i64).all(|b| written.insert(start + b))
        });
        prop_assert_eq!(part.check_destination().is_ok(), apart);
    }

    #[test]
    fn layouts_are_destinations(instance in any_instance(false)) {
        prop_assert_eq!(instance.part().check_destination(), Ok(()));
    }

    #[test]
    fn sizes_never_panic(
        layout in layouts(3),
        other in layouts(3),
        extents in prop::array::uniform3(any::<u64>()),
        bytes in prop::collection::vec(any::<u64>(), 1..3),
        phase in prop::array::uniform3(any::<u64>()),
    ) {
        let sizes = Sizes { extents: extents.to_vec(), field_bytes: bytes.clone() };
        let all = total_bytes(&layout, &sizes);
        prop_assert!(all >= prefix_bytes(&layout, &layout, &sizes));
        prop_assert!(shuffle_bytes(&layout, &other, &sizes) > 0 || extents.contains(&0));
        let _ = Stream::new(&layout, &extents, &phase, &bytes);
    }

    #[test]
    fn huge_instances_are_errors(layout in layouts(2), a in 1i64..i64::MAX, b in 1i64..i64::MAX) {
        let dims = [("x", a), ("y", b)].map(|(n, hi)| Dim { name: n.into(), lo: 0, hi });
        if let Ok(space) = IndexSpace::new(dims.to_vec()) {
            let fields = FieldSpace::packed(&[1 << 40]).unwrap();
            let _ = Placement::of_layout(&layout, &space, &fields);
            let _ = Placement::of_strides(&space, &fields, &[a, -b]);
        }
    }
}

/// Section 4.3's example: `|F|` = 16, `x_in` = 2K, `y_in` = 1K (paper, Table 3).
#[test]
fn sizes_of_table_3() {
    let space = IndexSpace::of(&[("x", 65536), ("y", 65536)]).unwrap();
    let fields = FieldSpace::packed(&[4, 4, 8]).unwrap();
    let sizes = Sizes::of(&space, &fields);
    let layouts = [
        "<F, x_in=2048, x_out, y_in=1024, y_out>",
        "<F, x_in=2048, y_in=1024, x_out, y_out>",
        "<F, y_in=1024, x_in=2048, x_out, y_out>",
        "<F, y_in=1024, x_in=2048, x_out, y_out>",
        "<F, y_in=1024, y_out, x_in=2048, x_out>",
    ]
    .map(|text| parse(text, &space).unwrap());
    let total = 1u64 << 36;
    let of = |f: fn(&model::Layout, &model::Layout, &Sizes) -> u64| {
        [0, 1, 2, 3].map(|i| f(&layouts[i], &layouts[i + 1], &sizes))
    };
    assert_eq!(total_bytes(&layouts[0], &sizes), total);
    assert_eq!(of(prefix_bytes), [32768, 16, total, 16384]);
    assert_eq!(of(shuffle_bytes), [1 << 30, 32 << 20, 1, total]);
    assert_eq!(of(suffix_bytes), [64, 2048, total, 1]);
}

/// A prefix without `F` counts the smallest field, a complement without `F` the largest.
#[test]
fn sizes_without_f_count_one_field() {
    let space = IndexSpace::of(&[("x", 10), ("y", 6)]).unwrap();
    let fields = FieldSpace::packed(&[2, 8]).unwrap();
    let sizes = Sizes::of(&space, &fields);
    let layout = |text| parse(text, &space).unwrap();
    let (a, b) = (layout("<x, y, F>"), layout("<x, F, y>"));
    assert_eq!(prefix_bytes(&a, &b, &sizes), 20);
    let c = layout("<y, x, F>");
    assert_eq!(shuffle_bytes(&a, &c, &sizes), 60 * 8);
    assert_eq!(total_bytes(&layout("<x_in=4, F, x_out, y>"), &sizes), 4 * 10 * 3 * 6);
}

#[test]
fn what_can_t_be_a_part_is_an_error() {
    let space = IndexSpace::of(&[("x", 4), ("y", 6)]).unwrap();
    let fields = FieldSpace::packed(&[2, 8]).unwrap();
    let placement = Placement::of_strides(&space, &fields, &[60, 10]).unwrap();
    let all = Selection::all(&space);
    for wrong in [&[][..], &[2], &[0, 0]] {
        assert!(matches!(placement.select(&all, wrong), Err(LayoutError::Field { .. })));
    }
    let other = IndexSpace::of(&[("x", 5), ("y", 6)]).unwrap();
    let outside = placement.select(&Selection::all(&other), &[0]);
    assert_eq!(outside, Err(LayoutError::Bounds { dim: 0 }));
    let line = IndexSpace::of(&[("x", 4)]).unwrap();
    let flat = placement.select(&Selection::all(&line), &[0]);
    assert_eq!(flat, Err(LayoutError::Rank { expected: 2, got: 1 }));
    assert!(Placement::of_strides(&space, &fields, &[1]).is_err());
    let huge = Placement::of_strides(&space, &fields, &[i64::MAX, 1]);
    assert_eq!(huge, Err(LayoutError::TooLarge));
    let repeated = Selection::new(&line, vec![Span::List([1, 3, 1].into())]).unwrap();
    let row = Placement::of_strides(&line, &fields, &[10]).unwrap();
    let part = row.select(&repeated, &[0]).unwrap();
    assert_eq!(part.check_destination(), Err(LayoutError::Overlap));
    let still = Placement::of_strides(&line, &fields, &[0]).unwrap();
    let part = still.select(&Selection::all(&line), &[0]).unwrap();
    assert_eq!(part.check_destination(), Err(LayoutError::StrideZero { dim: 0 }));
}

#[test]
fn gaps_are_where_the_next_index_does_not_follow() {
    let space = IndexSpace::of(&[("y", 4), ("x", 6), ("z", 5)]).unwrap();
    let fields = FieldSpace::packed(&[2, 8]).unwrap();
    let gaps = |placement: &Placement, selection: &Selection, fields: &[usize]| {
        placement.select(selection, fields).unwrap().gaps()
    };
    // In the order of the space.
    let [y, x, z] = [1, 2, 4];
    let all = Selection::all(&space);
    let of = |text: &str| {
        let layout = parse(text, &space).unwrap();
        Placement::of_layout(&layout, &space, &fields).unwrap()
    };
    for text in ["<F, z, x, y>", "<z, F, x, y>", "<x_in=3, F, z, x_out, y>"] {
        assert_eq!(gaps(&of(text), &all, &[0, 1]), 0, "{text}");
    }
    let narrow = |dim: usize| {
        let mut spans = all.spans().to_vec();
        spans[dim] = Span::Range { lo: 1, hi: 3 };
        Selection::new(&space, spans).unwrap()
    };
    let rows = of("<F, z, x, y>");
    assert_eq!(gaps(&rows, &narrow(2), &[0, 1]), x | y);
    assert_eq!(gaps(&rows, &narrow(1), &[0, 1]), y);
    assert_eq!(gaps(&rows, &narrow(0), &[0, 1]), 0);
    assert_eq!(gaps(&rows, &all, &[1]), x | y | z);
    let turned = Placement::of_strides(&space, &fields, &[300, -50, 10]).unwrap();
    assert_eq!(gaps(&turned, &all, &[0, 1]), x);
}
