//! `iso launch`.

mod process;

use process::{Ran, command, iso};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn launched(ranks: &str, script: &str) -> Ran {
    iso(&["launch", "-n", ranks, "--", "sh", "-c", script])
}

#[test]
fn each_rank_is_told_which_it_is() {
    let told = launched(
        "3",
        r#"echo "$ISOMETRY_RANK of $ISOMETRY_SIZE at ${ISOMETRY_ROOT%:*}, ${#ISOMETRY_KEY}""#,
    );
    told.succeeds();
    let mut lines: Vec<_> = told.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 3 at local, 64", "1 of 3 at local, 64", "2 of 3 at local, 64"]);
}

#[test]
fn ranks_meet_at_a_port_where_they_are_told_to() {
    let script = "echo $ISOMETRY_ROOT";
    let told = iso(&["launch", "-n", "2", "--tcp", "--", "sh", "-c", script]);
    told.succeeds();
    let roots: Vec<_> = told.stdout.lines().collect();
    let port = roots[0].strip_prefix("127.0.0.1:").unwrap();
    assert!(port.parse::<u16>().is_ok_and(|port| port > 0) && roots == [roots[0]; 2], "{roots:?}");
}

#[test]
fn how_each_ended_is_json() {
    let ended = iso(&["launch", "-n", "2", "--json", "--", "sh", "-c", "echo aside; exit 0"]);
    ended.succeeds();
    let ranks: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(ranks["ranks"][1], serde_json::json!({ "rank": 1, "code": 0, "signal": null }));
    assert_eq!(ended.stderr.matches("aside").count(), 2, "{}", ended.stderr);
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let script = "[ $ISOMETRY_RANK = 1 ] && exit 7; exec sleep 1000";
    let ended = launched("3", script);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("rank 1: exit status: 7"), "{}", ended.stderr);
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [&["launch", "-n", "2"][..], &["launch", "--", "true"]] {
        assert_eq!(iso(args).code, 2, "{args:?}");
    }
    for ranks in ["0", "257", "-1"] {
        let refused = launched(ranks, "true");
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{ranks}");
    }
    let missing = iso(&["launch", "-n", "2", "--", "/no/such/program"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("can't start /no/such/program"), "{}", missing.stderr);
}

#[test]
fn ctrl_c_ends_all() {
    let script = "echo $$; exec sleep 1000";
    let mut launcher = command(&["launch", "-n", "2", "--", "sh", "-c", script]);
    let mut launcher = launcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let pids: Vec<i32> = lines.take(2).map(|line| line.unwrap().parse().unwrap()).collect();
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
    for pid in pids {
        let gone = rustix::process::test_kill_process(Pid::from_raw(pid).unwrap());
        assert!(gone.is_err(), "{pid} still runs");
    }
}
