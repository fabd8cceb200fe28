//! `iso bench`.

mod process;

use process::{Ran, command, iso};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn groups_are_listed() {
    let listed = iso(&["bench"]);
    listed.succeeds();
    let names: Vec<_> = listed.stdout.lines().filter_map(|l| l.split(' ').next()).collect();
    let all = [
        "small", "convert", "kernels", "disk", "fabric", "firehose", "priority", "accel",
        "planner", "curves",
    ];
    assert_eq!(names, all);
    let listed: Value = serde_json::from_str(&iso(&["bench", "--json"]).stdout).unwrap();
    assert_eq!(listed["groups"][2]["group"], "kernels");
}

#[test]
fn an_unknown_group_or_a_broken_filter_is_wrong_usage() {
    let refused = iso(&["bench", "planner", "frobnicate"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("frobnicate") && refused.stderr.contains("convert"));
    for args in [&["--filter", "("][..], &["--runs", "0"], &["--budget", "-1"]] {
        assert_eq!(iso(&[&["bench", "planner"], args].concat()).code, 2, "{args:?}");
    }
}

#[test]
fn a_case_to_be_counted_runs_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts.toml");
    let case = "name = 'transpose 256x256 u1'\ninstructions = 1.0\nmemory_bytes = 2.0\n";
    fs::write(&file, format!("[[case]]\n{case}")).unwrap();
    let file = file.to_str().unwrap();
    iso(&["bench", "--counts", file, "--counted", "transpose 256x256 u1"]).succeeds();
    let unknown = iso(&["bench", "--counts", file, "--counted", "transpose"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("no case has this name"), "{}", unknown.stderr);
    assert_eq!(iso(&["bench", "--counts", "/dev/null/none"]).code, 1);
    assert_eq!(iso(&["bench", "--write"]).code, 2);
    assert_eq!(iso(&["bench", "planner", "--counts", file]).code, 2);
}

#[test]
fn a_group_prints_what_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let args = ["bench", "planner", "--filter", "^cached", "--runs", "3", "--out", out, "--json"];
    let ran = iso(&args);
    ran.succeeds();
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    let written = fs::read_to_string(dir.path().join("planner.json")).unwrap();
    assert_eq!(printed, serde_json::from_str::<Value>(&written).unwrap());
    assert_eq!(printed["group"], "planner");
    let case = &printed["cases"][0];
    assert_eq!((&case["case"], &case["verified"]), (&"cached plan".into(), &true.into()));
    assert_eq!(case["runs"], 3);
    assert!(case["seconds"]["isometry"].as_f64().unwrap() > 0.0);
    assert_eq!(printed["cases"].as_array().unwrap().len(), 1);
    assert!(ran.stderr.contains("cached plan"), "the table goes to standard error: {}", ran.stderr);
    let none = iso(&["bench", "planner", "--filter", "^nothing", "--out", out]);
    none.succeeds();
    assert!(none.stderr.contains("no case has a name that matches"), "{}", none.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("planner.json")).unwrap(), written);
}

#[test]
fn ctrl_c_leaves_no_file_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = ["bench", "disk", "--filter", "2 GiB", "--files", path, "--out", path];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let late = Instant::now() + Duration::from_secs(60);
    while names(dir.path()).is_empty() {
        assert!(Instant::now() < late, "the group never started");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}
