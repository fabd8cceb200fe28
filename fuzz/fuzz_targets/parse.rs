//! No text makes the parser panic; an error lies inside the text; what it reads it prints and
//! reads again. `cargo +nightly fuzz run parse`
#![no_main]

use isometry_layout::parse;
use isometry_model::IndexSpace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let dims = [("n", 2), ("x", 3), ("x_in", 4), ("row", 5)];
    for rank in 1..=dims.len() {
        let space = IndexSpace::of(&dims[..rank]).expect("these dimensions are valid");
        match parse(text, &space) {
            Ok(layout) => {
                let printed = layout.display(&space).to_string();
                assert_eq!(parse(&printed, &space), Ok(layout));
            }
            Err(error) => assert!(text.get(error.span).is_some()),
        }
    }
});
