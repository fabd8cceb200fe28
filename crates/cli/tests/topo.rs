//! `iso topo` as a process.

mod process;

use fake_cuda::Fake;
use process::{Ran, cluster, command, iso};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn the_json_of_a_cluster_is_a_cluster_file() {
    let file = cluster("two-nodes.toml");
    let first = iso(&["topo", "--cluster", &file, "--json"]);
    first.succeeds();
    let value: serde_json::Value = serde_json::from_str(&first.stdout).unwrap();
    let memory = &value["memories"][0];
    assert_eq!((memory["name"].as_str(), memory["kind"].as_str()), (Some("n0.fbm"), Some("FBM")));
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.json");
    std::fs::write(&copy, &first.stdout).unwrap();
    let second = iso(&["topo", "--cluster", copy.to_str().unwrap(), "--json"]);
    assert_eq!(second.stdout, first.stdout);
}

#[test]
fn people_read_a_table() {
    let shown = iso(&["topo", "--cluster", &cluster("two-nodes.toml")]);
    shown.succeeds();
    let line = shown.stdout.lines().find(|l| l.contains("GPUWrite")).unwrap();
    assert!(line.contains("zcm, reg, sys → fbm") && line.contains("5.90 GB/s"), "{line}");
    assert!(shown.stdout.contains("wire pcie (GPUWrite)"), "{}", shown.stdout);
    assert!(shown.stdout.contains("link RemoteMemcpy REG→REG "), "{}", shown.stdout);
    assert!(shown.stdout.contains("sys        SYS host memory") && shown.stderr.is_empty());
}

#[test]
fn a_channel_that_joins_nothing_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("closed.toml");
    let text = std::fs::read_to_string(cluster("two-nodes.toml")).unwrap();
    let joins = r#"from = ["fbm"], to = ["zcm"]"#;
    assert!(text.contains(joins));
    std::fs::write(&file, text.replacen(joins, "from = [], to = []", 1)).unwrap();
    let shown = iso(&["topo", "--cluster", file.to_str().unwrap()]);
    shown.succeeds();
    let line = shown.stdout.lines().find(|l| l.contains("GPURead")).unwrap();
    assert!(line.contains("closed"), "{line}");
}

#[test]
fn a_plot_names_every_channel() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("out.svg");
    let args = ["topo", "--cluster", &cluster("two-nodes.toml"), "--plot", svg.to_str().unwrap()];
    iso(&args).succeeds();
    let text = std::fs::read_to_string(svg).unwrap();
    for label in ["GPURead fbm → zcm", "Memcpy", "link: RemoteMemcpy REG→REG", "64.0 KiB"] {
        assert!(text.contains(label), "{label}");
    }
    assert!(text.matches("<polyline").count() >= 5);
}

#[test]
fn devices_are_memories_with_measured_channels() {
    let Some(fake) = Fake::load() else {
        println!("skipped: devices_are_memories_with_measured_channels: it needs the fake driver");
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let mut command = command(&["topo", "--json"]);
    command.env("ISOMETRY_CUDA", fake.path()).env("ISOMETRY_OPENCL", "none");
    let shown: Ran = command.env("XDG_CACHE_HOME", cache.path()).output().unwrap().into();
    shown.succeeds();
    let value: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let memories = value["memories"].as_array().unwrap();
    let names: Vec<_> = memories.iter().map(|memory| memory["name"].as_str().unwrap()).collect();
    assert!(["zcm", "fbm", "fbm1"].iter().all(|name| names.contains(name)), "{names:?}");
    let channels = value["channels"].as_array().unwrap();
    let writes: Vec<_> = channels.iter().filter(|c| c["kind"] == "GPUWrite").collect();
    assert_eq!(writes.len(), 4, "two for each device");
    assert!(writes.iter().all(|channel| channel["assumed"] != true), "{writes:?}");
}

#[test]
fn ctrl_c_leaves_nothing_of_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(dir.path()).unwrap().count();
    let mut command = command(&["topo", "--measure"]);
    let command = command.current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let late = Instant::now() + Duration::from_secs(60);
    while left() == 0 {
        assert!(Instant::now() < late, "no disk was measured");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (130, ""), "{}", ran.stderr);
    assert_eq!(left(), 0);
}

#[test]
fn a_missing_or_wrong_file_fails() {
    let gone = iso(&["topo", "--cluster", "no-such-file.toml"]);
    assert_eq!((gone.code, gone.stdout.as_str()), (1, ""));
    assert!(gone.stderr.contains("no-such-file.toml"), "{}", gone.stderr);
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.toml");
    std::fs::write(&wrong, "name = \"x\"\nth_bytes = -4\n").unwrap();
    assert_eq!(iso(&["topo", "--cluster", wrong.to_str().unwrap()]).code, 1);
    let endless = iso(&["topo", "--cluster", "/dev/zero"]);
    assert_eq!(endless.code, 1);
    assert!(endless.stderr.contains("more than 16.0 MiB"), "{}", endless.stderr);
    let nowhere = ["topo", "--cluster", &cluster("two-nodes.toml"), "--plot", "/no/such/dir/a.svg"];
    assert_eq!(iso(&nowhere).code, 1);
}

#[test]
fn a_ready_made_cluster_has_a_name() {
    let file = iso(&["topo", "--cluster", &cluster("sapling.toml"), "--json"]);
    let named = iso(&["topo", "--cluster", "sapling", "--json"]);
    named.succeeds();
    assert_eq!(named.stdout, file.stdout);
    let dims = ["n0.sys", "n1.sys", "--dims", "x=65536", "--fields", "4"];
    let layouts = ["--from-layout", "x", "--to-layout", "x", "--cluster", "pod"];
    iso(&[&["plan"][..], &dims, &layouts].concat()).succeeds();
    let unknown = iso(&["topo", "--cluster", "saplings"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (2, ""));
    assert!(unknown.stderr.contains("xstream, moonlight"), "{}", unknown.stderr);
}

#[test]
fn a_file_comes_before_a_ready_made_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(cluster("two-nodes.toml")).unwrap();
    std::fs::write(dir.path().join("sapling"), text).unwrap();
    let mut command = command(&["topo", "--cluster", "sapling"]);
    let ran: Ran = command.current_dir(dir.path()).output().unwrap().into();
    assert!(ran.stdout.starts_with("two nodes"), "{}", ran.stdout);
}
