//! The text form of layouts: round trips, errors that point at the wrong token, no panic.

mod common;

use common::*;
use isometry_layout::parse;
use model::IndexSpace;
use proptest::prelude::*;

fn space() -> IndexSpace {
    IndexSpace::of(&[("n", 2), ("h", 4), ("w", 6), ("c", 3)]).unwrap()
}

/// The wrong token, and what was expected.
fn fault<'a>(text: &'a str, space: &IndexSpace) -> (&'a str, String) {
    let error = parse(text, space).unwrap_err();
    (&text[error.span], error.expected)
}

#[test]
fn the_three_forms_mean_the_same() {
    let space = space();
    let vector = parse("<F, w, h, c, n>", &space).unwrap();
    assert_eq!(parse("nchw", &space).unwrap(), vector);
    assert_eq!(parse(" n, c,h ,w", &space).unwrap(), vector);
    assert_eq!(parse("  <F,w,h,c,n> ", &space).unwrap(), vector);
    let row = IndexSpace::of(&[("batch", 2), ("row", 3)]).unwrap();
    assert_eq!(parse("row,batch", &row).unwrap(), parse("<F, batch, row>", &row).unwrap());
    let one = IndexSpace::of(&[("row", 3)]).unwrap();
    assert_eq!(parse("row", &one).unwrap(), parse("<F, row>", &one).unwrap());
}

#[test]
fn several_levels_of_blocks() {
    let space = IndexSpace::of(&[("x", 100)]).unwrap();
    let text = "<x_in=4, F, x_in2=8, x_out>";
    assert_eq!(parse(text, &space).unwrap().display(&space).to_string(), text);
}

#[test]
fn a_name_that_looks_like_a_part_is_a_name() {
    let space = IndexSpace::of(&[("x_out", 2), ("x_in", 3)]).unwrap();
    assert!(parse("<F, x_out, x_in>", &space).is_ok());
    assert!(parse("<x_in_in=2, F, x_out, x_in_out>", &space).is_ok());
}

#[test]
fn an_error_points_at_the_wrong_token() {
    let space = space();
    let at = |text| fault(text, &space).0;
    assert_eq!(at("<F, w, h, q, n>"), "q");
    assert_eq!(at("<F, w, h, c, n, w>"), "w");
    assert_eq!(at("<F, w, F, h, c, n>"), "F");
    assert_eq!(at("<F, w_in=0, w_out, h, c, n>"), "0");
    assert_eq!(at("<F, w_in=x, w_out, h, c, n>"), "x");
    assert_eq!(at("<F, q_in=4, w, h, c, n>"), "q_in");
    assert_eq!(at("<F, w_in2=4, w_out, h, c, n>"), "w_in2=4");
    assert_eq!(at("<F, w_out, h, c, n>"), "w_out");
    assert_eq!(at("<F, w_in=4, w, h, c, n>"), "w");
    assert_eq!(at("<F, w, h, c, n> x"), "x");
    assert_eq!(at("<F, w, , c, n>"), "");
    assert_eq!(at("nchq"), "q");
    assert_eq!(at("nchh"), "h");
    assert_eq!(at("n,c,h,wide"), "wide");
    assert_eq!(at("<F, w_in=99999999999999999999, w_out, h, c, n>"), "99999999999999999999");
}

#[test]
fn what_is_missing_is_missing_at_the_end() {
    let space = space();
    let missing = |text: &str, expected: &str| {
        let error = parse(text, &space).unwrap_err();
        assert!(error.span.is_empty());
        assert_eq!(error.expected, expected);
        error.span.start
    };
    assert_eq!(missing("<F, w, h, c>", "`n`"), 11);
    assert_eq!(missing("<w, h, c, n>", "`F`"), 11);
    assert_eq!(missing("<F, w_in=4, h, c, n>", "`w_out`"), 19);
    assert_eq!(missing("<F, w, h", "`>`"), 8);
    assert_eq!(missing("nch", "`w`"), 3);
    assert_eq!(missing("", "`n`"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_printed_is_read_back(layout in (1usize..=8).prop_flat_map(layouts)) {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let rank = layout.components().iter().filter_map(|c| c.dim()).max().unwrap() + 1;
        let dims: Vec<(&str, u64)> = names[..rank].iter().map(|n| (*n, 3)).collect();
        let space = IndexSpace::of(&dims).unwrap();
        prop_assert_eq!(parse(&layout.display(&space).to_string(), &space).unwrap(), layout);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}") {
        let _ = parse(&text, &space());
    }

    #[test]
    fn an_error_lies_inside_the_text(
        tokens in prop::collection::vec("[<>,= ]|F|[nhwc]|[nhwc]_in|[nhwc]_out|[0-9é]", 0..20),
    ) {
        let text = tokens.concat();
        if let Err(error) = parse(&text, &space()) {
            prop_assert!(text.get(error.span).is_some());
        }
    }
}
