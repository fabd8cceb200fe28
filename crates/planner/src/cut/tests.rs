use super::*;
use layout::{Part, Placement};
use model::{FieldSpace, IndexSpace, Layout, MemoryId, NodeId, Selection, Span};
use proptest::prelude::*;

const RANK: usize = 3;

/// A layout of three dimensions, each in 0 to 2 blocks, in some order.
fn any_layout() -> impl Strategy<Value = Layout> {
    let dim = |dim: u8| {
        prop::collection::vec(1u64..5, 0..3).prop_map(move |sizes| {
            let plain = sizes.is_empty();
            let outer = if plain { Component::Whole(dim) } else { Component::Outer(dim) };
            let inner = |(level, size)| Component::Inner { dim, level, size };
            (1u8..).zip(sizes).map(inner).chain([outer]).collect::<Vec<_>>()
        })
    };
    let all = (dim(0), dim(1), dim(2));
    let all = all.prop_map(|(a, b, c)| [vec![Component::Fields], a, b, c].concat());
    all.prop_shuffle().prop_map(|components| Layout::new(components, RANK).unwrap())
}

/// The box from `starts` of these extents, and so much of the instance before and behind it.
fn part(layout: &Layout, starts: [u64; RANK], sides: [u64; RANK], extents: &[u64]) -> Part {
    let names = ["z", "y", "x"].into_iter().zip(sides).collect::<Vec<_>>();
    let space = IndexSpace::of(&names).unwrap();
    let fields = FieldSpace::packed(&[4, 4]).unwrap();
    let span =
        |(&lo, &extent): (&u64, &u64)| Span::Range { lo: lo as i64, hi: (lo + extent) as i64 };
    let spans = starts.iter().zip(extents).map(span).collect();
    let selection = Selection::new(&space, spans).unwrap();
    Placement::of_layout(layout, &space, &fields).unwrap().select(&selection, &[0, 1]).unwrap()
}

fn end(part: &Part) -> End<'_> {
    let memory = MemoryId { node: NodeId(0), index: 0 };
    End { memory, layout: part.layout(), phase: part.phase(), listed: 0, gaps: part.gaps() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_slice_is_the_part_that_layout_makes_of_its_box(
        layouts in [any_layout(), any_layout()],
        starts in prop::array::uniform2(prop::array::uniform3(prop_oneof![Just(0), 1..20u64])),
        beyond in prop::array::uniform3(prop_oneof![Just(0), 1..4u64]),
        extents in prop::array::uniform3(1..40u64),
        sizes in prop::collection::vec(0.1..9.0f64, 2..5),
    ) {
        let sides = [0, 1].map(|end: usize| {
            std::array::from_fn(|dim| starts[end][dim] + extents[dim] + beyond[dim])
        });
        let made = |end: usize, starts, extents: &[u64]| {
            part(&layouts[end], starts, sides[end], extents)
        };
        let parts = [0, 1].map(|at| made(at, starts[at], &extents));
        let [src, dst] = parts.each_ref().map(end);
        let field_bytes = &[4, 4];
        let query = Query { src, dst, extents: &extents, field_bytes, load: crate::Load::IDLE };
        for cut in Cut::of(&query) {
            for range in cut.ranges(&sizes).into_iter().flatten() {
                let slice = Slice::of(&query, cut.dim, &range);
                let found = slice.query(&query);
                for (at, found) in [found.src, found.dst].iter().enumerate() {
                    let mut start = starts[at];
                    start[cut.dim] += range.start;
                    let expected = made(at, start, &slice.extents);
                    let blocks = |dim: usize| layouts[at].blocks(dim).product::<u64>();
                    prop_assert_eq!(found.phase, expected.phase());
                    prop_assert!(range.start == 0 || found.phase[cut.dim] % blocks(cut.dim) == 0);
                    // A bit of a dimension with one block says nothing.
                    for dim in (0..RANK).filter(|&dim| slice.extents[dim] > blocks(dim)) {
                        let gap = |gaps: u8| gaps >> dim & 1;
                        prop_assert_eq!(gap(found.gaps), gap(expected.gaps()), "dim {}", dim);
                    }
                }
            }
        }
    }
}

fn cuts(texts: [&str; 2], phases: [&[u64]; 2], extents: &[(&str, u64)]) -> Vec<Cut> {
    let space = IndexSpace::of(extents).unwrap();
    let layouts = texts.map(|text| layout::parse(text, &space).unwrap());
    let memory = MemoryId { node: NodeId(0), index: 0 };
    let extents = space.extents();
    let mut query = Query::whole((memory, &layouts[0]), (memory, &layouts[1]), &extents, &[4]);
    (query.src.phase, query.dst.phase) = (phases[0], phases[1]);
    Cut::of(&query)
}

#[test]
fn the_slowest_dimensions_of_both_ends_are_cut() {
    let dims = |from, to, extents: &[_]| {
        cuts([from, to], [&[]; 2], extents).iter().map(|cut| cut.dim).collect::<Vec<_>>()
    };
    let square = [("y", 100), ("x", 100)];
    assert_eq!(dims("<F, x, y>", "<F, x, y>", &square), [0]);
    assert_eq!(dims("<F, x, y>", "<F, y, x>", &square), [1, 0]);
    // A dimension of a few indices gives way to one that can be divided finely.
    let images = [("n", 3), ("h", 100), ("c", 1000)];
    assert_eq!(dims("<F, c, h, n>", "<F, c, h, n>", &images), [1]);
    assert_eq!(dims("<F, c, h, n>", "<F, c, h, n>", &[("n", 3), ("h", 2), ("c", 1)]), [0]);
    assert!(dims("<F, x>", "<F, x>", &[("x", 1)]).is_empty());
}

#[test]
fn cuts_lie_where_blocks_of_both_ends_start() {
    let places = |from, to, phases: [&[u64]; 2]| {
        let cuts = cuts([from, to], phases, &[("x", 40)]);
        cuts.first().map(|cut| (cut.first, cut.step, cut.parts()))
    };
    let fours = "<x_in=4, F, x_out>";
    assert_eq!(places("<F, x>", fours, [&[], &[]]), Some((4, 4, 10)));
    assert_eq!(places("<F, x>", fours, [&[], &[1]]), Some((3, 4, 11)));
    assert_eq!(places(fours, "<x_in=6, F, x_out>", [&[], &[]]), Some((12, 12, 4)));
    assert_eq!(places("<x_in=6, F, x_out>", fours, [&[4], &[2]]), Some((2, 12, 5)));
    assert_eq!(places(fours, fours, [&[0], &[2]]), None);
    assert_eq!(places("<F, x>", "<x_in=40, F, x_out>", [&[], &[]]), None);
    assert_eq!(places("<F, x>", "<x_in=30, F, x_out>", [&[], &[]]), Some((30, 30, 2)));
}

#[test]
fn ranges_are_as_large_as_asked_for_as_nearly_as_blocks_allow() {
    let ranges = |phase: &[u64], sizes: &[f64]| {
        let cuts = cuts(["<F, x>", "<x_in=4, F, x_out>"], [&[], phase], &[("x", 40)]);
        cuts[0].ranges(sizes)
    };
    assert_eq!(ranges(&[], &[1.0, 1.0]), Some(vec![0..20, 20..40]));
    assert_eq!(ranges(&[1], &[1.0, 1.0]), Some(vec![0..19, 19..40]));
    assert_eq!(ranges(&[], &[1.0, 2.0, 7.0]), Some(vec![0..4, 4..12, 12..40]));
    assert_eq!(ranges(&[], &[1.0, 99.0]), Some(vec![0..4, 4..40]));
    assert_eq!(ranges(&[], &[99.0, 1.0]), Some(vec![0..36, 36..40]));
    assert_eq!(ranges(&[], &[50.0, 1.0, 50.0]), None);
}
