//! Help texts and wrong arguments.

mod process;

use process::iso;

#[test]
fn help_goes_to_standard_output() {
    for args in [&["--help"][..], &["topo", "--help"]] {
        let shown = iso(args);
        shown.succeeds();
        assert!(shown.stdout.contains("Usage: iso") && shown.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn wrong_arguments_exit_with_2() {
    for args in [&[][..], &["frobnicate"], &["topo", "--no-such-flag"]] {
        let refused = iso(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!refused.stderr.is_empty());
    }
}
