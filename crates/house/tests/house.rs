//! The rules of the house, on the whole workspace.

use isometry_house::{Finding, Source, Tree, assert_none, purity, shape, table, unsafety, words};
use std::sync::LazyLock;

static TREE: LazyLock<Tree> = LazyLock::new(Tree::workspace);
static RUST: LazyLock<Vec<Source>> = LazyLock::new(|| TREE.rust());

fn everywhere(rule: impl Fn(&Source) -> Vec<Finding>) -> Vec<Finding> {
    RUST.iter().flat_map(rule).collect()
}

fn manifests() -> Vec<table::Manifest> {
    TREE.manifests().map(table::Manifest::parse).collect()
}

#[test]
fn the_workspace_is_found() {
    assert_eq!(manifests().len(), table::ALLOWED.len());
    assert!(RUST.iter().any(|s| s.path == "crates/model/src/lib.rs" && !s.is_test));
    assert!(RUST.iter().any(|s| s.path == "crates/model/src/tests.rs" && s.is_test));
}

#[test]
fn dependencies_point_down() {
    assert_none(&table::forbidden(&manifests()));
}

#[test]
fn dependencies_of_tests_make_no_circle() {
    assert_none(&table::cycles(&manifests()));
}

#[test]
fn functions_are_short() {
    assert_none(&everywhere(shape::long_functions));
    let (median, p90) = shape::spread(&RUST);
    println!("lines of a function: median {median}, nine in ten within {p90}");
    assert!(median <= shape::MEDIAN_LINES, "the median function has {median} lines");
    assert!(p90 <= shape::P90_LINES, "nine in ten functions have up to {p90} lines");
}

#[test]
fn files_are_small() {
    assert_none(&everywhere(|source| shape::long_file(source).into_iter().collect()));
}

#[test]
fn functions_take_few_parameters() {
    assert_none(&everywhere(shape::many_parameters));
}

#[test]
fn structs_have_few_fields() {
    assert_none(&everywhere(shape::many_fields));
}

#[test]
fn crates_forbid_unsafe_code() {
    assert_none(&everywhere(|source| unsafety::unforbidden(source).into_iter().collect()));
}

#[test]
fn unsafe_code_lives_at_the_edge() {
    assert_none(&everywhere(unsafety::misplaced));
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    assert_none(&everywhere(unsafety::unexplained));
}

#[test]
fn the_text_holds_nothing_unwanted() {
    assert_none(&TREE.files.iter().flat_map(words::unwanted).collect::<Vec<_>>());
}

#[test]
fn planner_and_engine_reach_for_nothing_outside() {
    assert_none(&everywhere(purity::impure));
}

#[test]
fn libraries_neither_print_nor_exit() {
    assert_none(&everywhere(purity::talkative));
}
