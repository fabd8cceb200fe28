//! `iso node`, and copies between files of nodes.

#[path = "../../isometry/tests/exposition/mod.rs"]
mod exposition;
mod process;

use isometry::fabric::Job;
use process::{Ran, command, iso};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use tempfile::TempDir;

/// Running nodes; each serves a directory of its own.
struct Nodes {
    dir: TempDir,
    running: Vec<Running>,
}

struct Running {
    child: Child,
    socket: PathBuf,
    /// Where its metrics are.
    metrics: String,
}

impl Nodes {
    /// That have met in this way, and are ready.
    fn start(job: &Job, size: u32) -> Nodes {
        let dir = tempfile::tempdir().unwrap();
        let children: Vec<_> = (0..size).map(|rank| start(dir.path(), job, rank)).collect();
        let running = children.into_iter().map(Running::wait).collect();
        Nodes { dir, running }
    }

    /// The directory that a node serves.
    fn files(&self, rank: usize) -> PathBuf {
        self.dir.path().join(format!("files{rank}"))
    }

    /// `node1:/…/name`.
    fn file(&self, rank: usize, name: &str) -> String {
        format!("node{rank}:{}", self.files(rank).join(name).display())
    }

    /// `iso` with `args` and the socket of a node.
    fn command(&self, rank: usize, args: &[&str]) -> Command {
        let mut command = command(args);
        command.arg("--socket").arg(&self.running[rank].socket);
        command
    }

    fn ask(&self, rank: usize, args: &[&str]) -> Ran {
        self.command(rank, args).output().unwrap().into()
    }

    fn status(&self, rank: usize) -> Value {
        let status = self.ask(rank, &["node", "status", "--json"]);
        status.succeeds();
        serde_json::from_str(&status.stdout).unwrap()
    }

    /// What a node says to Prometheus.
    fn metrics(&self, rank: usize) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(&self.running[rank].metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        exposition::samples(body)
    }

    /// Starts a copy that takes long, and returns once it is under way.
    fn long_copy(&self) -> Child {
        File::create(self.files(1).join("long")).unwrap().set_len(2 << 30).unwrap();
        let (src, dst) = (self.file(1, "long"), self.file(2, "far.npy"));
        let dims = ["--dims", "y=16384,x=16384", "--dtype", "<f8", "--layout", "xy"];
        let mut copy = self.command(0, &[&["copy", &src, &dst], &dims[..]].concat());
        let mut copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while self.status(0)["transfers"].as_array().unwrap().is_empty() {
            assert!(copy.try_wait().unwrap().is_none(), "it has ended too soon");
        }
        copy
    }

    fn signal(&self, rank: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.running[rank].child), signal).unwrap();
    }
}

fn start(dir: &Path, job: &Job, rank: u32) -> Child {
    let files = dir.join(format!("files{rank}"));
    fs::create_dir_all(&files).unwrap();
    let mut node = command(&["node", "--lanes", "1", "--staging", "8MiB"]);
    node.args(["--metrics", "127.0.0.1:0", "--files"]);
    let node = node.arg(&files).envs(job.variables(rank)).env("XDG_RUNTIME_DIR", dir);
    node.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

impl Running {
    fn wait(mut child: Child) -> Running {
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut told = String::new();
        let mut metrics = String::new();
        let socket = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            told.push_str(&line);
            if let Some(at) = line.strip_prefix("metrics at http://") {
                metrics = at.trim_end_matches("/metrics").to_owned();
            }
            line.split_once("control socket ").map(|(_, path)| PathBuf::from(path))
        });
        // What it says later goes nowhere, and does not stop it.
        thread::spawn(move || lines.for_each(drop));
        Running { child, socket: socket.unwrap_or_else(|| panic!("{told}")), metrics }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended hears nothing.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A `.npy` file of `u2`, in the order of its rows.
fn write_npy(path: &Path, (rows, columns): (u16, u16)) {
    let mut head =
        format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let padded = (10 + head.len() + 1).next_multiple_of(64) - 11;
    head = format!("{head:<padded$}\n");
    let mut file = File::create(path).unwrap();
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&u16::try_from(head.len()).unwrap().to_le_bytes()).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    let words = (0..u32::from(rows) * u32::from(columns)).flat_map(|i| (i as u16).to_le_bytes());
    file.write_all(&words.collect::<Vec<_>>()).unwrap();
}

/// The entries of a file of two dimensions, by `(row, column)` of the file.
fn words(path: &Path) -> Vec<u16> {
    let bytes = fs::read(path).unwrap();
    let head = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[head..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

fn is_transposed(from: &Path, to: &Path, (rows, columns): (usize, usize)) -> bool {
    let (from, to) = (words(from), words(to));
    (0..rows).all(|y| (0..columns).all(|x| from[y * columns + x] == to[x * rows + y]))
}

#[test]
fn a_file_goes_from_node_to_node_in_another_layout() {
    for job in [Job::new(3).unwrap(), Job::loopback(3).unwrap()] {
        let nodes = Nodes::start(&job, 3);
        let (from, to) = (nodes.files(1).join("a.npy"), nodes.files(2).join("b.npy"));
        write_npy(&from, (300, 500));
        let (src, dst) = (nodes.file(1, "a.npy"), nodes.file(2, "b.npy"));
        let how = ["--dims", "yx", "--layout", "xy", "--priority", "3", "--verify", "--json"];
        let copied = nodes.ask(0, &[&["copy", &src, &dst], &how[..]].concat());
        copied.succeeds();
        assert!(is_transposed(&from, &to, (300, 500)));
        let told: Value = serde_json::from_str(&copied.stdout).unwrap();
        assert_eq!((&told["bytes"], &told["verified"]), (&300_000.into(), &true.into()));
        let path = told["plan"]["memories"].as_array().unwrap();
        assert_eq!((&path[0], path.last().unwrap()), (&"node1.dsk".into(), &"node2.dsk".into()));
        // A path that names no node is the asked one's own, wherever it lies.
        let own = nodes.dir.path().join("own.npy");
        nodes.ask(0, &["copy", &dst, own.to_str().unwrap()]).succeeds();
        assert_eq!(words(&own), words(&to));
        let topology = nodes.ask(0, &["topo", "--json"]);
        assert!(topology.stdout.contains("3 nodes"), "{}", topology.stderr);
    }
}

#[test]
fn buffers_fit_the_staging_of_nodes_whatever_th_says() {
    let nodes = Nodes::start(&Job::new(2).unwrap(), 2);
    let (from, to) = (nodes.files(1).join("a.npy"), nodes.files(0).join("b.npy"));
    write_npy(&from, (4096, 4096));
    let (src, dst) = (nodes.file(1, "a.npy"), nodes.file(0, "b.npy"));
    let how = ["--dims", "yx", "--layout", "xy", "--th", "1GiB"];
    nodes.ask(0, &[&["copy", &src, &dst], &how[..]].concat()).succeeds();
    assert!(is_transposed(&from, &to, (4096, 4096)));
}

#[test]
fn what_can_t_be_is_named() {
    let nodes = Nodes::start(&Job::new(2).unwrap(), 2);
    let copy = |src: &str| nodes.ask(0, &["copy", src, &nodes.file(1, "out.npy")]);
    let missing = copy(&nodes.file(1, "none.npy"));
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains(&nodes.file(1, "none.npy")), "{}", missing.stderr);
    assert!(missing.stderr.contains("No such file"), "{}", missing.stderr);
    let outside = nodes.dir.path().join("outside.npy");
    write_npy(&outside, (4, 4));
    for path in [outside.clone(), nodes.files(1).join("../outside.npy")] {
        let refused = copy(&format!("node1:{}", path.display()));
        assert_eq!(refused.code, 1);
        assert!(
            refused.stderr.contains("not in a directory that the node serves"),
            "{}",
            refused.stderr
        );
    }
    let unknown = copy("node7:/a.npy");
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("node7"), "{}", unknown.stderr);
    let no_socket = iso(&["copy", "node1:/a.npy", "b.npy", "--socket", "/no/such/socket"]);
    assert_eq!(no_socket.code, 1);
    assert_eq!(nodes.ask(0, &["copy", "node1:/a", "b", "--trace", "t"]).code, 2);
    let several = command(&["node", "status"]).env("XDG_RUNTIME_DIR", nodes.dir.path()).output();
    let several = Ran::from(several.unwrap());
    assert_eq!(several.code, 2, "{}", several.stderr);
    assert!(several.stderr.contains("--socket"), "{}", several.stderr);
    assert!(fs::read_dir(nodes.files(1)).unwrap().next().is_none(), "something is left");
}

#[test]
fn a_name_that_is_taken_is_an_error_and_a_signal_cleans_up() {
    let job = Job::new(1).unwrap();
    let mut nodes = Nodes::start(&job, 1);
    let second = start(nodes.dir.path(), &job, 0).wait_with_output().unwrap();
    let second = Ran::from(second);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("another node listens there"), "{}", second.stderr);
    let only = command(&["node", "status"]).env("XDG_RUNTIME_DIR", nodes.dir.path()).output();
    let only = Ran::from(only.unwrap());
    only.succeeds();
    assert!(only.stdout.contains("node0: there"), "{}", only.stdout);
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        nodes.signal(0, signal);
        assert_eq!(nodes.running[0].child.wait().unwrap().code(), Some(code));
        assert!(!nodes.running[0].socket.exists());
        nodes.running[0] = Running::wait(start(nodes.dir.path(), &job, 0));
    }
}

#[test]
fn a_node_that_is_killed_ends_its_copy_and_is_named() {
    let nodes = Nodes::start(&Job::new(3).unwrap(), 3);
    let copy = nodes.long_copy();
    let status = nodes.status(0);
    let transfer = &status["transfers"][0];
    assert_eq!((&transfer["asked_by"], &transfer["priority"]), (&"node0".into(), &0.into()));
    assert_eq!(transfer["progress"][1], 2u64 << 30);
    nodes.signal(2, Signal::KILL);
    let ended = Ran::from(copy.wait_with_output().unwrap());
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("node2") || ended.stderr.contains("rank 2"), "{}", ended.stderr);
    let status = nodes.status(0);
    assert_eq!(status["nodes"][1]["lost"], Value::Null);
    assert!(status["nodes"][2]["lost"].is_string(), "{status}");
    // The others go on.
    write_npy(&nodes.files(1).join("a.npy"), (20, 30));
    nodes.ask(0, &["copy", &nodes.file(1, "a.npy"), &nodes.file(1, "b.npy")]).succeeds();
}

#[test]
fn a_node_tells_what_it_does_and_did() {
    let nodes = Nodes::start(&Job::new(3).unwrap(), 3);
    let of = |rank: usize, name: &str, labels: &str| {
        let key = format!("isometry_{name}{{node=\"node{rank}\"{labels}}}");
        *nodes.metrics(rank).get(&key).unwrap_or_else(|| panic!("{key}"))
    };
    write_npy(&nodes.files(1).join("a.npy"), (300, 500));
    nodes.ask(0, &["copy", &nodes.file(1, "a.npy"), &nodes.file(2, "b.npy")]).succeeds();
    assert_eq!(of(0, "copied_bytes_total", ""), 300_000.0);
    let sent = r#",channel="RemoteMemcpy",peer="node2""#;
    assert_eq!(of(1, "moved_bytes_total", sent), 300_000.0);
    assert_eq!(of(2, "received_bytes_total", r#",peer="node1""#), 300_000.0);
    let mut copy = nodes.long_copy();
    let before = nodes.metrics(0);
    assert_eq!(of(0, "copies_in_flight", ""), 1.0);
    while of(2, "received_bytes_total", r#",peer="node1""#) == 300_000.0 {
        assert!(copy.try_wait().unwrap().is_none(), "it has ended too soon");
    }
    assert_eq!((of(1, "shares_in_flight", ""), of(2, "shares_in_flight", "")), (1.0, 1.0));
    assert!(of(2, "staging_used_bytes", r#",memory="reg""#) > 0.0);
    nodes.signal(2, Signal::KILL);
    assert_eq!(Ran::from(copy.wait_with_output().unwrap()).code, 1);
    exposition::assert_grown(&before, &nodes.metrics(0));
    assert_eq!(of(0, "copies_ended_total", r#",outcome="failed""#), 1.0);
    assert_eq!(of(0, "peer_up", r#",peer="node2""#), 0.0);
    assert_eq!(of(0, "peer_up", r#",peer="node1""#), 1.0);
}

#[test]
fn an_address_for_metrics_that_can_t_be_is_named() {
    let bad = iso(&["node", "--metrics", "nowhere"]);
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("--metrics nowhere"), "{}", bad.stderr);
    let help = iso(&["node", "--help"]);
    assert!(help.stdout.contains("--metrics <HOST:PORT>"), "{}", help.stdout);
}

#[test]
fn ctrl_c_cancels_a_copy_of_nodes() {
    let nodes = Nodes::start(&Job::new(3).unwrap(), 3);
    let copy = nodes.long_copy();
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    let ended = Ran::from(copy.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    assert_eq!(nodes.status(0)["transfers"], Value::Array(Vec::new()));
    // What was written aside goes once it has been given back.
    while fs::read_dir(nodes.files(2)).unwrap().next().is_some() {
        thread::yield_now();
    }
}

#[test]
fn nodes_are_launched_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut launcher = command(&["launch", "-n", "2", "--", env!("CARGO_BIN_EXE_iso"), "node"]);
    let launcher = launcher.arg("--files").arg(dir.path()).env("XDG_RUNTIME_DIR", dir.path());
    let mut launcher = launcher.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(launcher.stderr.take().unwrap()).lines();
    let ready = lines.map(Result::unwrap).filter(|line| line.contains("is ready")).take(2);
    assert_eq!(ready.count(), 2);
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
    assert!(fs::read_dir(dir.path().join("isometry")).unwrap().next().is_none());
}

/// Files of nodes go by the names that these have given themselves.
#[test]
fn a_node_comes_later_and_comes_back_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::loopback(1).unwrap();
    let files = dir.path().join("files");
    let run = |name: &str, is_late: bool| {
        fs::create_dir_all(&files).unwrap();
        let mut node = command(&["node", "--lanes", "1", "--staging", "8MiB", "--name", name]);
        let variables = job.variables(0).into_iter();
        let is_said = |name: &str| !is_late || !["ISOMETRY_RANK", "ISOMETRY_SIZE"].contains(&name);
        node.envs(variables.filter(|v| is_said(v.0))).env("XDG_RUNTIME_DIR", dir.path());
        if !is_late {
            node.args(["--capacity", "4"]);
        }
        node.arg("--files").arg(&files).stdin(Stdio::null()).stderr(Stdio::piped());
        Running::wait(node.spawn().unwrap())
    };
    let ask = |args: &[&str], node: &Running| -> Ran {
        command(args).arg("--socket").arg(&node.socket).output().unwrap().into()
    };
    let (store, worker) = (run("store", false), run("worker", true));
    let shape = (70, 90);
    write_npy(&files.join("a.npy"), shape);
    let file = |node: &str, name: &str| format!("{node}:{}", files.join(name).display());
    let copy = |to: &str, asked: &Running| {
        let (src, dst) = (file("store", "a.npy"), file("worker", to));
        ask(&["copy", &src, &dst, "--dims", "yx", "--layout", "xy", "--verify"], asked)
    };
    copy("b.npy", &worker).succeeds();
    copy("c.npy", &store).succeeds();
    drop(worker);
    let gone = copy("d.npy", &store);
    assert!(gone.code == 1 && gone.stderr.contains("rank 1"), "{}", gone.stderr);
    let _worker = run("worker", true);
    copy("d.npy", &store).succeeds();
    for name in ["b.npy", "c.npy", "d.npy"] {
        assert!(is_transposed(&files.join("a.npy"), &files.join(name), (70, 90)), "{name}");
    }
    let status = ask(&["node", "status"], &store);
    status.succeeds();
    let lines: Vec<_> = status.stdout.lines().take(3).collect();
    assert_eq!(lines[0], "store (node0): there");
    assert!(lines[1].starts_with("worker (node1): lost, "), "{lines:?}");
    assert_eq!(lines[2], "worker (node2): there");
}

/// Nobody is there who would let it in.
#[test]
fn who_waits_for_others_hears_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::loopback(1).unwrap();
    let variables = job.variables(0).into_iter();
    let mut node = command(&["node"]);
    node.envs(variables.filter(|v| ["ISOMETRY_ROOT", "ISOMETRY_KEY"].contains(&v.0)));
    node.env("XDG_RUNTIME_DIR", dir.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut node = node.spawn().unwrap();
    let listens = |status: String| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:").map(str::trim));
        caught.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() >> 1 & 1 == 1)
    };
    while !listens(fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap()) {
        thread::yield_now();
    }
    kill_process(Pid::from_child(&node), Signal::INT).unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(130));
}
