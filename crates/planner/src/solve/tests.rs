//! Which of the layouts that fit are taken.

use super::*;
use crate::Query;
use model::{Component, Layout, MemoryId, NodeId};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Shape> {
    let order = || Just([0u8, 1, 2, 3]).prop_shuffle();
    let extents = prop::collection::vec(1..40u64, 3);
    (extents, prop::collection::vec(1..9u64, 1..3), order(), order()).prop_map(
        |(extents, fields, from, to)| {
            let component =
                |c: u8| if c == 0 { Component::Fields } else { Component::Whole(c - 1) };
            let layouts = [from, to].map(|order| Layout::new(order.map(component), 3).unwrap());
            let memory = MemoryId { node: NodeId(0), index: 0 };
            let ends = ((memory, &layouts[0]), (memory, &layouts[1]));
            Shape::of(&Query::whole(ends.0, ends.1, &extents, &fields)).unwrap()
        },
    )
}

fn needs() -> impl Strategy<Value = Needs> {
    let bytes = || (0..17u32).prop_map(|bits| 1u64 << bits);
    (bytes(), bytes(), bytes()).prop_map(|(first_bytes, last_bytes, window_bytes)| Needs {
        first_bytes,
        last_bytes,
        window_bytes,
    })
}

/// The sum of what the three hops that may convert move within, as the paper counts it.
fn moved(shape: &Shape, solution: &Solution) -> u128 {
    let steps = solution.steps(shape, 3);
    steps[..3].iter().map(|step| u128::from(step.shuffle_bytes)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_fits_moves_least(shape in shapes(), needs in needs()) {
        prop_assume!(shape.src != shape.dst);
        let fitter = Fitter { shape: &shape };
        let (a, b) = fitter.least_prefixes(&needs);
        let direct = Solution::ends(&shape, 1);
        let one_end = [direct, fitter.after_only(1, &b), fitter.before_only(1, &a)];
        let least = one_end.iter().filter(|s| fitter.fits(s, &needs)).map(|s| moved(&shape, s)).min();
        let found = fitter.fit(1, &needs);
        if let Some(least) = least {
            prop_assert_eq!(found.map(|s| moved(&shape, &s)), Some(least));
        }
        if let Some(found) = found {
            let [first, window, last, ..] = found.steps(&shape, 3);
            prop_assert!(first.prefix_bytes >= needs.first_bytes.min(shape.payload));
            prop_assert!(last.prefix_bytes >= needs.last_bytes.min(shape.payload));
            prop_assert!(window.shuffle_bytes <= needs.window_bytes);
        }
    }
}

/// Both ends need blocks of 16 entries: the rest stands in one end's order, and the hop at the
/// other moves more.
#[test]
fn the_rest_stands_in_the_order_of_the_end_that_then_moves_less() {
    let layout = |dims: [u8; 3]| {
        let dims = dims.map(Component::Whole);
        Layout::new(std::iter::once(Component::Fields).chain(dims), 3).unwrap()
    };
    let memory = MemoryId { node: NodeId(0), index: 0 };
    let sum = |from: [u8; 3], to: [u8; 3]| {
        let layouts = [layout(from), layout(to)];
        let ends = ((memory, &layouts[0]), (memory, &layouts[1]));
        let shape = Shape::of(&Query::whole(ends.0, ends.1, &[64, 64, 64], &[4])).unwrap();
        let needs = Needs { first_bytes: 64, last_bytes: 64, window_bytes: 1024 };
        let found = Fitter { shape: &shape }.fit(1, &needs).unwrap();
        found.steps(&shape, 3)[..3].iter().map(|step| step.shuffle_bytes).collect::<Vec<_>>()
    };
    assert_eq!(sum([0, 1, 2], [1, 0, 2]), [4096, 1024, 16_384]);
    assert_eq!(sum([0, 1, 2], [1, 2, 0]), [4096, 1024, 1 << 20]);
    assert_eq!(sum([0, 1, 2], [2, 0, 1]), [1 << 20, 1024, 4096]);
}
