//! Nodes whose network reaches memory of devices where it is. The devices are emulated, in memory of the
//! host that UCX reaches by TCP, and a library before UCX says that it reaches CUDA's: how it does is not seen.

use fake_cuda::Fake;
use isometry::fabric::{Config, Job};
use isometry::planner::Options;
use isometry::{Accelerators, Array, CopyOptions, Cuda, ErrorKind, Instance, Machine};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// While there is a file of this name, the network puts nothing.
const REFUSES: &str = "refuses";

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// A library that is UCX, and says that it reaches memory of CUDA's devices; `None` where it can't be made.
fn reports_cuda(dir: &Path) -> Option<std::path::PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windows/reports_cuda.c");
    let library = dir.join("libucp.so");
    let refuses = format!("-DREFUSES={:?}", dir.join(REFUSES));
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--no-as-needed", &refuses, "-o"])
        .arg(&library)
        .arg(source)
        .args(["-l:libucp.so.0", "-ldl"])
        .output();
    made.is_ok_and(|made| made.status.success()).then_some(library)
}

/// Nodes, those with devices among them, and what they need.
struct Cluster {
    nodes: Vec<Machine>,
    fake: Fake,
    dir: TempDir,
}

/// `None` where there is no UCX, no compiler, or the system's driver is to be used, which it says.
fn cluster(test: &str, have_devices: &[bool]) -> Option<Cluster> {
    let dir = tempfile::tempdir().unwrap();
    let (Some(fake), Some(ucx)) = (Fake::load(), reports_cuda(dir.path())) else {
        println!("skipped: {test}: no UCX, no C compiler, or no emulated devices");
        return None;
    };
    fake.at_host_addresses();
    let job = Job::ucx(have_devices.len() as u32).unwrap();
    let join = |(rank, &has_devices): (u32, &bool)| {
        let variables = job.variables(rank);
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let config = Config { ucx: Some(ucx.clone()), ..Config::from_variables(lookup).unwrap() };
        let builder = Machine::builder().assume(true).lanes(1).staging(8 << 20);
        let builder = builder.accelerators(Accelerators::None);
        let cuda = if has_devices { Cuda::Driver(fake.path().to_owned()) } else { Cuda::None };
        builder.cuda(cuda).join(&config).unwrap()
    };
    let nodes = thread::scope(|scope| {
        let join = &join;
        let joining = (0..).zip(have_devices).map(|node| scope.spawn(move || join(node)));
        let joining: Vec<_> = joining.collect();
        joining.into_iter().map(|node| node.join().unwrap()).collect()
    });
    Some(Cluster { nodes, fake, dir })
}

/// Two nodes with devices.
fn pair(test: &str) -> Option<Cluster> {
    cluster(test, &[true, true])
}

fn array(layout: &str) -> Array {
    Array::of(&[("y", 700), ("x", 900)], "<f4").unwrap().laid_out(layout).unwrap()
}

/// Of different values.
fn noise() -> Vec<u8> {
    (0..700 * 900_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn copy(machine: &Machine, src: &Instance, dst: &Instance) {
    machine.copy(src, dst, &CopyOptions::default()).unwrap().wait(PATIENCE).unwrap();
}

/// Rows in a device's memory, published by the first of two nodes and found by the other.
fn published(nodes: &[Machine]) -> Instance {
    let host = nodes[0].empty(array("yx"), "sys").unwrap();
    host.fill(&noise()).unwrap();
    let rows = nodes[0].empty(array("yx"), "fbm").unwrap();
    copy(&nodes[0], &host, &rows);
    nodes[0].publish("rows", &rows).unwrap();
    let first = nodes[0].rank();
    nodes[1].lookup(&format!("node{first}/rows"), PATIENCE).unwrap()
}

/// What `there` has, as rows.
fn rows_of(machine: &Machine, there: &Instance) -> Vec<u8> {
    let host = machine.empty(array("yx"), "sys").unwrap();
    copy(machine, there, &host);
    host.to_vec().unwrap()
}

#[test]
fn an_array_goes_from_device_to_device_without_the_hosts() {
    let test = "an_array_goes_from_device_to_device_without_the_hosts";
    let Some(Cluster { nodes, fake, .. }) = pair(test) else { return };
    assert_eq!(
        fake.count("cuCtxSetCurrent"),
        4,
        "the network's threads, by each device of each node"
    );
    let there = published(&nodes);
    for layout in ["yx", "xy"] {
        let here = nodes[1].empty(array(layout), "fbm").unwrap();
        let plan = nodes[1].plan(&there, &here, &Options::default()).unwrap().to_json();
        let path = ["node0.fbm", "node1.fbm_reg", "node1.fbm"];
        assert_eq!(plan["memories"], serde_json::json!(path), "{layout}");
        assert_eq!(plan["hops"][0]["channel"], "RemoteMemcpy");
        copy(&nodes[1], &there, &here);
        assert!(rows_of(&nodes[1], &here) == noise(), "{layout}");
        let back = nodes[0].empty(array("yx"), "fbm1").unwrap();
        nodes[0].publish(layout, &back).unwrap();
        copy(&nodes[1], &here, &nodes[1].lookup(&format!("node0/{layout}"), PATIENCE).unwrap());
        assert!(rows_of(&nodes[0], &back) == noise(), "{layout}, back");
    }
}

/// Waits for what other threads bring about.
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE.unwrap();
    while !is_so() {
        assert!(Instant::now() < end, "it is not so in time");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Which memories the link between devices joins, of either node.
fn joined(machine: &Machine) -> Vec<u16> {
    let links = machine.topology().links.clone();
    links.get(1).map_or_else(Vec::new, |link| link.to.iter().map(|end| end.memory).collect())
}

#[test]
fn a_device_that_is_lost_is_joined_no_more() {
    let test = "a_device_that_is_lost_is_joined_no_more";
    let Some(Cluster { nodes, fake, .. }) = pair(test) else { return };
    let there = published(&nodes);
    let (before, here) = (joined(&nodes[1]), nodes[1].empty(array("yx"), "fbm").unwrap());
    assert_eq!(before.len(), 2, "both devices, of a class of two");
    // Of either node, since they have the same devices.
    fake.fail(0, 719, true);
    let refused = |machine: &Machine, src: &Instance, dst: &Instance| {
        let copied = machine.copy(src, dst, &CopyOptions::default());
        let error = copied.and_then(|event| event.wait(PATIENCE)).unwrap_err();
        assert!(error.to_string().contains("719"), "{error}");
    };
    refused(&nodes[1], &there, &here);
    for machine in &nodes {
        assert!(machine.empty(array("yx"), "fbm").is_err());
    }
    let whole = |machine: &Machine| machine.empty(array("yx"), "fbm1").unwrap();
    let (from, to) = (whole(&nodes[0]), whole(&nodes[1]));
    nodes[0].publish("other", &from).unwrap();
    let from = nodes[1].lookup("node0/other", PATIENCE).unwrap();
    copy(&nodes[1], &from, &to);
    until(|| joined(&nodes[1]).len() == 1);
    assert_eq!(joined(&nodes[1]), before[1..]);
    let plan = nodes[1].plan(&from, &to, &Options::default()).unwrap().to_json();
    assert_eq!(plan["hops"][0]["channel"], "RemoteMemcpy");
}

#[test]
fn what_the_network_refuses_goes_by_the_hosts_from_then_on() {
    let test = "what_the_network_refuses_goes_by_the_hosts_from_then_on";
    let Some(Cluster { nodes, dir, .. }) = pair(test) else { return };
    let there = published(&nodes);
    let [here, other] = ["fbm", "fbm1"].map(|at| nodes[1].empty(array("yx"), at).unwrap());
    let path = |machine: &Machine, dst: &Instance| {
        let plan = machine.plan(&there, dst, &Options::default()).unwrap().to_json();
        plan["memories"][1].as_str().unwrap().to_owned()
    };
    assert_eq!(path(&nodes[1], &here), "node1.fbm_reg");
    std::fs::write(dir.path().join(REFUSES), "").unwrap();
    let refused = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
    let error = refused.wait(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("does not put"), "{error}");
    std::fs::remove_file(dir.path().join(REFUSES)).unwrap();
    until(|| path(&nodes[1], &here) != "node1.fbm_reg");
    copy(&nodes[1], &there, &here);
    assert!(rows_of(&nodes[1], &here) == noise());
    assert_eq!(path(&nodes[1], &other), "node1.fbm1_reg", "nobody said so of that");
}

#[test]
fn a_node_that_has_gone_is_an_error_that_names_it() {
    let test = "a_node_that_has_gone_is_an_error_that_names_it";
    let Some(Cluster { mut nodes, fake, .. }) = pair(test) else { return };
    let there = published(&nodes);
    let here = nodes[1].empty(array("xy"), "fbm").unwrap();
    // What is on its way waits for the device.
    fake.hold(0, true);
    let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
    let closing = nodes.remove(0);
    let closed = thread::spawn(move || closing.close_now());
    thread::sleep(Duration::from_millis(50));
    fake.hold(0, false);
    closed.join().unwrap();
    let waited = event.wait(PATIENCE);
    if let Err(error) = waited {
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        assert!(error.to_string().contains("node0"), "{error}");
    }
    let gone = nodes[0].copy(&there, &here, &CopyOptions::default());
    let gone = gone.and_then(|event| event.wait(PATIENCE)).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::PeerLost, "{gone}");
}

/// The samples of a machine's metrics, without their values.
fn samples(machine: &Machine) -> Vec<String> {
    let text = machine.metrics().unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn both_links_are_told_apart() {
    let Some(Cluster { nodes, .. }) = pair("both_links_are_told_apart") else { return };
    let there = published(&nodes);
    copy(&nodes[1], &there, &nodes[1].empty(array("xy"), "fbm").unwrap());
    let topology = nodes[1].topology();
    let json = isometry::cluster::to_json(&topology).to_string();
    let again = isometry::cluster::parse_json(&json).unwrap();
    assert_eq!((again.links.len(), &again.links), (2, &topology.links));
    let mut samples = samples(&nodes[0]);
    let moved =
        r#"isometry_moved_bytes_total{node="node0",channel="RemoteMemcpy FBM→FBM",peer="node1"}"#;
    assert!(samples.iter().any(|sample| sample == moved), "{samples:?}");
    let all = samples.len();
    samples.sort_unstable();
    samples.dedup();
    assert_eq!(samples.len(), all, "no two of a name");
}

#[test]
fn nothing_of_devices_is_left_once_all_nodes_have_gone() {
    let test = "nothing_of_devices_is_left_once_all_nodes_have_gone";
    let Some(Cluster { mut nodes, fake, .. }) = pair(test) else { return };
    let there = published(&nodes);
    let here = nodes[1].empty(array("xy"), "fbm").unwrap();
    copy(&nodes[1], &there, &here);
    let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
    nodes.remove(0).close_now();
    let _ = event.wait(PATIENCE);
    assert!(fake.live() > 0);
    drop((nodes, there, here, event));
    assert_eq!(fake.live(), 0);
}

#[test]
fn a_node_without_devices_has_others_copy_between_theirs() {
    let test = "a_node_without_devices_has_others_copy_between_theirs";
    let Some(Cluster { nodes, .. }) = cluster(test, &[false, true, true]) else { return };
    published(&nodes[1..]);
    let there = nodes[0].lookup("node1/rows", PATIENCE).unwrap();
    let turned = nodes[2].empty(array("xy"), "fbm1").unwrap();
    nodes[2].publish("turned", &turned).unwrap();
    let turned_there = nodes[0].lookup("node2/turned", PATIENCE).unwrap();
    let plan = nodes[0].plan(&there, &turned_there, &Options::default()).unwrap().to_json();
    assert_eq!(plan["memories"], serde_json::json!(["node1.fbm", "node2.fbm1_reg", "node2.fbm1"]));
    copy(&nodes[0], &there, &turned_there);
    assert!(rows_of(&nodes[2], &turned) == noise());
    assert!(rows_of(&nodes[0], &there) == noise(), "through the hosts, to one that has no device");
}

#[test]
fn what_is_cancelled_on_its_way_leaves_the_link_as_it_was() {
    let test = "what_is_cancelled_on_its_way_leaves_the_link_as_it_was";
    let Some(Cluster { nodes, .. }) = pair(test) else { return };
    let there = published(&nodes);
    let here = nodes[1].empty(array("xy"), "fbm").unwrap();
    for turns in (0..2000).step_by(200) {
        let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
        (0..turns).for_each(|_| thread::yield_now());
        event.cancel();
        let _ = event.wait(PATIENCE);
        copy(&nodes[1], &there, &here);
    }
    assert!(rows_of(&nodes[1], &here) == noise());
    for machine in &nodes {
        until(|| machine.status().unwrap().staging.iter().all(|staging| staging.used_bytes == 0));
    }
}
