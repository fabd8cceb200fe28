//! `iso sim` as a process.

mod process;

use process::iso;
use serde_json::Value;

#[test]
fn equal_arguments_give_equal_output() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.txt");
    let args = ["sim", "fuzz", "--seeds", "20", "--first-seed", "7", "--json", "--trace"];
    let run = || iso(&[&args[..], &[trace.to_str().unwrap()]].concat());
    let first = run();
    first.succeeds();
    let events = std::fs::read_to_string(&trace).unwrap();
    let second = run();
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), events);
    assert!(events.contains("submitted t0") && events.contains("ended t"));
    let value: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!(value["passed"], 20);
    assert!(value["bytes"].as_u64().unwrap() > 0 && value["failure"].is_null());
}

#[test]
fn other_seeds_give_other_runs() {
    let digest = |seed| {
        let ran = iso(&["sim", "fuzz", "--seeds", "3", "--first-seed", seed]);
        ran.succeeds();
        ran.stdout
    };
    assert_ne!(digest("1"), digest("50"));
    assert!(digest("1").starts_with("3 seeds passed"));
}

#[test]
fn seeds_past_64_bits_are_wrong_usage() {
    let last = u64::MAX.to_string();
    assert_eq!(iso(&["sim", "fuzz", "--seeds", "2", "--first-seed", &last]).code, 2);
    assert_eq!(iso(&["sim"]).code, 2);
}

#[test]
fn a_trace_that_cannot_be_written_hides_no_report() {
    let ran = iso(&["sim", "fuzz", "--seeds", "2", "--trace", "/dev/full"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("2 seeds passed"), "{}", ran.stdout);
    assert!(ran.stderr.contains("/dev/full: No space left"), "{}", ran.stderr);
}
