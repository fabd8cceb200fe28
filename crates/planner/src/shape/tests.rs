//! Sizes of prefixes and complements of suffixes, worked out by hand.

use super::*;
use crate::{Options, plan};
use model::{ChannelKind, MemoryId, NodeId};

const X: u8 = 1;
const Y: u8 = 2;
const X_IN: u8 = SPLIT;
const Y_IN: u8 = SPLIT + 1;

fn set(atoms: &[u8]) -> u64 {
    atoms.iter().fold(0, |set, atom| set | 1 << atom)
}

fn of(extents: &[u64], fields: &[u64], edit: impl FnOnce(&mut Query<'_>)) -> Shape {
    let memory = MemoryId { node: NodeId(0), index: 0 };
    let dims = || (0..extents.len() as u8).map(Component::Whole);
    let ends = [0, 1].map(|end| {
        let dims: Vec<_> = if end == 0 { dims().collect() } else { dims().rev().collect() };
        Layout::new(std::iter::once(Component::Fields).chain(dims), extents.len()).unwrap()
    });
    let mut query = Query::whole((memory, &ends[0]), (memory, &ends[1]), extents, fields);
    edit(&mut query);
    Shape::of(&query).unwrap()
}

/// From `<F, x, y>` to `<F, y, x>`, 10 by 6, with fields of 4 and 2 bytes.
fn turned() -> Shape {
    of(&[10, 6], &[4, 2], |_| {})
}

fn factors(x: u64, y: u64) -> Factors {
    let mut factors = WHOLE;
    (factors[0], factors[1]) = (x, y);
    factors
}

#[test]
fn a_split_dimension_is_two_atoms() {
    let shape = turned();
    assert_eq!([0, X, Y].map(|atom| shape.size(atom, &WHOLE)), [6, 10, 6]);
    let split = factors(3, 1);
    assert_eq!([0, X, Y, X_IN].map(|atom| shape.size(atom, &split)), [6, 4, 6, 3]);
    assert_eq!(shape.end_word(0, &split).atoms(), [0, X_IN, X, Y]);
    assert_eq!(shape.end_word(1, &split).atoms(), [0, Y, X_IN, X]);
    assert_eq!(shape.end_word(1, &WHOLE).atoms(), [0, Y, X]);
    // What has size 1 orders nothing, but for the fields.
    let thin = of(&[10, 1], &[1], |_| {});
    assert_eq!((thin.src.atoms(), thin.dst.atoms()), (&[0, X][..], &[0, X][..]));
    assert_eq!(thin.end_word(0, &factors(10, 1)).atoms(), [0, X_IN]);
}

#[test]
fn a_prefix_counts_the_least_field_and_a_suffix_the_greatest() {
    let (shape, split) = (turned(), factors(3, 1));
    let prefix = |atoms: &[u8]| shape.prefix_bytes(set(atoms), &split);
    assert_eq!(prefix(&[]), 2);
    assert_eq!(prefix(&[X_IN]), 3 * 2);
    assert_eq!(prefix(&[0]), 6);
    assert_eq!(prefix(&[0, X_IN]), 3 * 6);
    assert_eq!(prefix(&[0, X]), 4 * 6);
    // Both halves are the dimension, however the last block is filled.
    assert_eq!(prefix(&[0, X_IN, X]), 10 * 6);
    assert_eq!(prefix(&[0, X_IN, X, Y]), 360);
    let shuffle = |atoms: &[u8]| shape.shuffle_bytes(set(atoms), &split);
    assert_eq!([shuffle(&[X_IN]), shuffle(&[0, X_IN])], [3 * 4, 3 * 6]);
    assert_eq!(shuffle(&[0, X, Y]), 4 * 6 * 6);
    // At most the payload, however the parts are filled.
    assert_eq!(shape.shuffle_bytes(set(&[0, Y, Y_IN, X]), &factors(1, 4)), 360);
    assert_eq!(shape.prefix_bytes(set(&[0, X_IN, Y, Y_IN]), &factors(99, 4)), 360);
}

#[test]
fn runs_are_as_full_as_the_last_of_a_dimension_leaves_them() {
    let shape = turned();
    let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got}, not {want}");
    close(shape.fullness(set(&[0, X_IN]), &factors(3, 1)), 10.0 / 12.0);
    close(shape.fullness(set(&[0, X_IN]), &factors(5, 1)), 1.0);
    close(shape.fullness(set(&[0, X_IN, X]), &factors(3, 1)), 1.0);
    close(shape.fullness(set(&[0, X_IN, Y_IN]), &factors(3, 4)), 10.0 / 12.0 * 6.0 / 8.0);
    close(shape.fullness(set(&[0, X_IN, X, Y_IN]), &factors(3, 4)), 6.0 / 8.0);
    close(shape.fullness(set(&[0, X]), &WHOLE), 1.0);
}

#[test]
fn runs_start_where_rows_and_runs_do() {
    let shape = turned();
    let start = |atoms: &[u8], x, y| shape.start_bytes(set(atoms), &factors(x, y));
    // Runs of 18 bytes in rows of 60, and of 24 in rows of 36.
    assert_eq!(start(&[0, X_IN], 3, 1), 6);
    assert_eq!(start(&[0, Y_IN], 1, 4), 12);
    assert_eq!(start(&[0, X_IN], 5, 1), 30);
    assert_eq!(start(&[0, X_IN, X], 3, 1), 60);
    let cut = |atoms: &[u8], x, y| shape.cut_dim(set(atoms), &factors(x, y));
    assert_eq!(cut(&[0, X_IN], 3, 1), Some(0));
    assert_eq!(cut(&[0, Y_IN], 3, 4), Some(1));
    assert_eq!(cut(&[0, X_IN, X, Y_IN], 3, 4), Some(1));
    assert_eq!(cut(&[0, X_IN, X], 3, 4), None);
}

#[test]
fn lists_and_gaps_end_runs() {
    let cut = |listed, gaps| {
        let ask = |query: &mut Query<'_>| (query.src.listed, query.src.gaps) = (listed, gaps);
        let shape = of(&[10, 6, 7], &[4], ask);
        assert_eq!(shape.cuts[1].run_bytes, u64::MAX);
        (shape.cuts[0].gathers, shape.cuts[0].run_bytes)
    };
    assert_eq!(cut(0, 0), (false, u64::MAX));
    assert_eq!(cut(0, 0b001), (false, 4));
    assert_eq!(cut(0, 0b010), (false, 40));
    assert_eq!(cut(0b100, 0), (true, 240));
    assert_eq!(cut(0b100, 0b010), (true, 40));
    assert_eq!(cut(0b010, 0b010), (true, 40));
}

/// Blocks of 2, 4, 8 and so on in each of 8 dimensions; with the fields 48 units at most.
#[test]
fn a_plan_has_so_many_blocks_and_no_more() {
    let topology = |memory: &str| {
        let channel =
            "channel = [{ kind = \"Memcpy\", from = [\"a\"], to = [\"a\"], throughput = 1e9 }]";
        cluster::parse(&format!("[[node]]\nname = \"n\"\nmemory = [{memory}]\n{channel}")).unwrap()
    };
    let topology = topology("{ name = \"a\", kind = \"SYS\" }");
    let planned = |last: u8| {
        let blocks = |dim: u8| if dim == 7 { last } else { 5 };
        let inner =
            |dim| (1..=blocks(dim)).map(move |level| Component::Inner { dim, level, size: 2 });
        let components = (0..8).flat_map(|dim| inner(dim).chain([Component::Outer(dim)]));
        let layout = Layout::new(std::iter::once(Component::Fields).chain(components), 8).unwrap();
        let memory = MemoryId { node: NodeId(0), index: 0 };
        let query = Query::whole((memory, &layout), (memory, &layout), &[2; 8], &[4]);
        plan(&topology, &query, &Options::default()).map(|plan| plan.hops[0].kind)
    };
    assert_eq!(planned(4), Ok(ChannelKind::Memcpy));
    assert_eq!(planned(5), Err(PlanError::Query { why: "the layouts have too many blocks" }));
}
