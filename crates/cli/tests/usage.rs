//! Help texts and wrong arguments.

mod process;

use process::{Ran, cluster, command, iso};
use std::fs::File;
use std::process::Stdio;

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

/// Everything that prints to standard output.
fn printing(test: impl Fn(&[&str])) {
    let two_nodes = cluster("two-nodes.toml");
    let of_plan = ["--fields", "4", "--from-layout", "<F, x>", "--to-layout", "<F, x>"];
    let plan = ["plan", "n0.sys", "n0.zcm", "--dims", "x=64", "--cluster", &two_nodes];
    test(&["--help"]);
    test(&["help", "copy"]);
    test(&["topo", "--help"]);
    test(&["--version"]);
    test(&["topo", "--cluster", &two_nodes]);
    test(&["topo", "--cluster", &two_nodes, "--json"]);
    test(&[&plan[..], &of_plan].concat());
    test(&["bench"]);
    test(&["sim", "fuzz", "--seeds", "1"]);
}

#[test]
fn what_cannot_be_printed_is_a_failure() {
    printing(|args| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran: Ran = command(args).stdout(full).output().unwrap().into();
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.stderr.contains("standard output: No space left"), "{args:?}: {}", ran.stderr);
    });
}

#[test]
fn what_is_said_beside_the_output_may_get_lost() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran: Ran = command(&["sim", "fuzz", "--seeds", "1"]).stderr(full).output().unwrap().into();
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.starts_with("1 seeds passed"), "{}", ran.stdout);
}

#[test]
fn a_reader_that_has_gone_is_no_word_worth() {
    printing(|args| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert!(!ran.stderr.contains("error") && !ran.stderr.contains("panic"), "{}", ran.stderr);
        assert_eq!(ran.code, 1, "{args:?}");
    });
}
