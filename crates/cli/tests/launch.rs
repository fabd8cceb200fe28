//! `iso launch`.

mod process;

use process::{Ran, command, iso};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

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
    let port = roots[0].strip_prefix("apart:127.0.0.1:").unwrap();
    assert!(port.parse::<u16>().is_ok_and(|port| port > 0) && roots == [roots[0]; 2], "{roots:?}");
}

#[test]
fn how_each_ended_is_json() {
    let ended = iso(&["launch", "-n", "2", "--json", "--", "sh", "-c", "echo aside; exit 0"]);
    ended.succeeds();
    let ranks: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(ranks["ranks"][1], json!({ "rank": 1, "code": 0, "signal": null }));
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

/// Takes what ssh takes, and runs the command on this machine, whatever the host; that ends where its
/// input does, and goes on when this is killed, as with ssh. Of a host `nowhere` it knows no way.
const SSH: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    [ "$1" = -o ] && shift
    shift
done
host=$1
shift
[ "$host" = nowhere ] && { echo "no way to $host" >&2; exit 255; }
export ISOMETRY_TEST_HOST="$host" ISOMETRY_TEST_SSH=$$
pipe=$0.$$
mkfifo "$pipe"
exec 3<&0
cat <&3 >"$pipe" &
eval "$*" <"$pipe" 3<&- &
exec 3<&-
wait $!
code=$?
kill %1
exit $code
"#;

/// A launcher that reaches hosts by [`SSH`].
struct Hosts {
    dir: TempDir,
}

impl Hosts {
    fn new() -> Hosts {
        let dir = TempDir::new().unwrap();
        let ssh = dir.path().join("ssh");
        fs::write(&ssh, SSH).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        Hosts { dir }
    }

    fn command(&self, args: &[&str], program: &[&str]) -> Command {
        let mut command = command(&["launch", "--ssh"]);
        command.arg(self.dir.path().join("ssh")).args(args).arg("--").args(program);
        command
    }

    fn launched(&self, args: &[&str], program: &[&str]) -> Ran {
        self.command(args, program).output().unwrap().into()
    }

    /// A launcher of two ranks that sleep, these, and what else each said in its first line.
    fn sleeping(&self, said: &str) -> (Child, Vec<(OwnedFd, String)>) {
        let script = format!("echo $$ {said}; sleep 1000");
        let mut launcher = self.command(&["-n", "2", "--hosts", "a,b"], &["sh", "-c", &script]);
        let mut launcher = launcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let ranks = lines.take(2).map(|line| {
            let line = line.unwrap();
            let (pid, said) = line.split_once(' ').unwrap_or((&line, ""));
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            (pidfd_open(pid, PidfdFlags::empty()).unwrap(), said.to_owned())
        });
        let ranks = ranks.collect();
        (launcher, ranks)
    }
}

/// Waits for processes that are nobody's children here.
fn end(ranks: &[(OwnedFd, String)]) {
    for (pidfd, _) in ranks {
        let long = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&long)).unwrap();
        assert_eq!(ended, 1, "a rank still runs");
    }
}

#[test]
fn ranks_of_hosts_are_told_which_they_are_and_where_they_meet() {
    let script = r#"echo "$ISOMETRY_RANK $ISOMETRY_TEST_HOST $ISOMETRY_SIZE $ISOMETRY_ROOT ${#ISOMETRY_KEY}"
        [ "$PWD" = "$1" ] && [ "$(cat)" = "" ] || exit 3"#;
    let here = std::env::current_dir().unwrap();
    let program = ["sh", "-c", script, "sh", here.to_str().unwrap()];
    let hosts = Hosts::new();
    let args = ["-n", "4", "--port", "7001", "--hosts", "me@a,b:2"];
    let told = hosts.launched(&args, &program);
    told.succeeds();
    let mut lines: Vec<_> = told.stdout.lines().collect();
    lines.sort_unstable();
    let host = ["me@a", "b", "b", "me@a"];
    let all = [0, 1, 2, 3].map(|rank| format!("{rank} {} 4 a:7001 64", host[rank]));
    assert_eq!(lines, all);

    let file = hosts.dir.path().join("hosts");
    fs::write(&file, "# one of them\na slots=2\n").unwrap();
    let args = ["-n", "2", "--hostfile", file.to_str().unwrap()];
    let told = hosts.launched(&args, &program);
    told.succeeds();
    assert_eq!(told.stdout.matches(" a 2 local:").count(), 2, "{}", told.stdout);
}

#[test]
fn words_reach_another_host_as_they_are() {
    let words = ["a b", "", "it's", "$HOME \"`id`\"", "two\nlines", "\\", "*", "-n", "é#;&"];
    // More than a pipe holds.
    let long = "x".repeat(100_000);
    let program = [&["printf", "<%s>"][..], &words, &[&long]].concat();
    let args = ["-n", "1", "--hosts", "a"];
    let printed = Hosts::new().launched(&args, &program);
    printed.succeeds();
    let all: String = program[2..].iter().map(|word| format!("<{word}>")).collect();
    assert!(printed.stdout == all, "{:.200}", printed.stdout);
}

#[test]
fn nodes_of_hosts_join_each_other() {
    let args = ["-n", "3", "--hosts", "localhost,127.0.0.1:2"];
    let hosts = Hosts::new();
    let mut launcher = hosts.command(&args, &[env!("CARGO_BIN_EXE_iso"), "node"]);
    let launcher = launcher.env("XDG_RUNTIME_DIR", hosts.dir.path());
    let mut launcher = launcher.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(launcher.stderr.take().unwrap()).lines();
    let ready = lines.map(Result::unwrap).filter(|line| line.contains(" of 3 is ready"));
    assert_eq!(ready.take(3).count(), 3);
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
}

#[test]
fn a_rank_that_fails_ends_those_of_other_hosts() {
    let script = "[ $ISOMETRY_RANK = 1 ] && exit 7; sleep 1000";
    let args = ["-n", "3", "--json", "--hosts", "a,b:2"];
    let ended = Hosts::new().launched(&args, &["sh", "-c", script]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("rank 1 at b: exit status: 7"), "{}", ended.stderr);
    let ranks: Value = serde_json::from_str(&ended.stdout).unwrap();
    let one = json!({ "rank": 1, "code": 7, "signal": null, "host": "b" });
    assert_eq!(ranks["ranks"][1], one);
    // Its shell counts so what a signal ended.
    assert_eq!(ranks["ranks"][0]["code"], 128 + 15);
}

#[test]
fn a_host_that_is_not_reached_ends_all() {
    let args = ["-n", "2", "--hosts", "a,nowhere"];
    let ended = Hosts::new().launched(&args, &["sleep", "1000"]);
    assert_eq!(ended.code, 1);
    for told in ["no way to nowhere", "rank 1 at nowhere: exit status: 255, with which ssh ends"] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    let missing = iso(&["launch", "-n", "1", "--hosts", "a", "--ssh", "/no/ssh", "--", "true"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("can't start /no/ssh"), "{}", missing.stderr);
}

#[test]
fn nothing_is_left_on_hosts_when_the_launcher_or_a_connection_ends() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let hosts = Hosts::new();
        let (mut launcher, ranks) = hosts.sleeping("");
        kill_process(Pid::from_child(&launcher), signal).unwrap();
        let code = (signal != Signal::KILL).then_some(128 + signal.as_raw());
        assert_eq!(launcher.wait().unwrap().code(), code);
        end(&ranks);
    }
    let hosts = Hosts::new();
    let (mut launcher, ranks) = hosts.sleeping("$ISOMETRY_TEST_SSH");
    kill_process(Pid::from_raw(ranks[0].1.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(1));
    end(&ranks);
}

#[test]
fn what_ignores_being_asked_is_ended_with_all_that_it_started() {
    let script = "trap '' TERM; sleep 1000 & echo $!; [ $ISOMETRY_RANK = 1 ] && exit 1; wait";
    let args = ["-n", "2", "--hosts", "a,b"];
    let ended = Hosts::new().launched(&args, &["sh", "-c", script]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let left = ended.stdout.lines().filter_map(|line| {
        let pid = Pid::from_raw(line.parse().unwrap()).unwrap();
        Some((pidfd_open(pid, PidfdFlags::empty()).ok()?, String::new()))
    });
    end(&left.collect::<Vec<_>>());
}

#[test]
fn the_key_stands_on_no_command_line() {
    let hosts = Hosts::new();
    let (mut launcher, ranks) = hosts.sleeping("$ISOMETRY_KEY");
    let key = ranks[0].1.as_bytes();
    assert_eq!(key.len(), 64);
    let lines = fs::read_dir("/proc").unwrap().filter_map(|process| {
        // Some have ended by now.
        fs::read(process.unwrap().path().join("cmdline")).ok()
    });
    let shown = lines.filter(|line| line.windows(key.len()).any(|part| part == key)).count();
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    launcher.wait().unwrap();
    assert_eq!(shown, 0);
}

#[test]
fn wrong_hosts_exit_with_2() {
    let hosts = Hosts::new();
    let file = hosts.dir.path().join("hosts");
    fs::write(&file, "a\nb cores=2\n").unwrap();
    let file = file.to_str().unwrap();
    let wrong: [&[&str]; 6] = [
        &["--hosts", "a:0"],
        &["--hosts", "-oProxyCommand=x"],
        &["--hosts", "local,b"],
        &["--hosts", "a", "--hostfile", file],
        &["--hostfile", file],
        &["--port", "7001"],
    ];
    for args in wrong {
        let refused = hosts.launched(&[&["-n", "2"][..], args].concat(), &["true"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!refused.stderr.is_empty());
    }
    let missing = hosts.launched(&["-n", "2", "--hostfile", "/no/such/hosts"], &["true"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("/no/such/hosts"), "{}", missing.stderr);
}
