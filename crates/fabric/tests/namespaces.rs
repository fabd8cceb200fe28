//! Ranks as on several machines: each in a network namespace of its own, with a shaped link to a switch,
//! one of which is then cut. Needs root and iproute2.

#[allow(dead_code, reason = "ranks here are started in namespaces")]
mod common;

use common::Over;
use isometry_fabric::model::NodeId;
use isometry_fabric::{Config, Error, Fabric, Handlers, KEY, Lost, RANK, ROOT, SIZE};
use rustix::process::getuid;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// What a rank says before the link is to be cut.
const JOINED: &str = "joined";

/// Where rank 0 listens.
const PLACE: &str = "10.231.0.1:7077";

/// What each rank puts to every other.
const EACH: usize = 8 << 20;

/// A namespace for each rank, and one with a switch that has a link to each; gone when dropped.
struct Net {
    switch: String,
    ranks: Vec<String>,
}

impl Net {
    /// An error where this process may not make one, or has no program to.
    fn new(size: u32) -> Result<Net, String> {
        if !getuid().is_root() {
            return Err("it needs root".to_owned());
        }
        let name = |what: &str| format!("isometry-{}-{what}", std::process::id());
        let ranks = (0..size).map(|rank| name(&rank.to_string())).collect();
        let net = Net { switch: name("switch"), ranks };
        let switch = &net.switch;
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for (rank, name) in (1..).zip(&net.ranks) {
            let port = format!("port{rank}");
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link add veth type veth peer name {port} netns {switch}"))?;
            ip(&format!("-n {switch} link set {port} master bridge up"))?;
            ip(&format!("-n {name} address add 10.231.0.{rank}/24 dev veth"))?;
            ip(&format!("-n {name} link set veth up"))?;
            // Shaped so that all of a put is on its way for a while.
            let shape = "tbf rate 2gbit burst 256kb latency 50ms";
            ip(&format!("netns exec {name} tc qdisc add dev veth root {shape}"))?;
        }
        Ok(net)
    }

    /// Cuts rank 0 off.
    fn cut(&self) {
        ip(&format!("-n {} link set veth down", self.ranks[0])).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.ranks.iter().chain([&self.switch]) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(args: &str) -> Result<(), String> {
    let ran = Command::new("ip").args(args.split(' ')).output();
    let ran = ran.map_err(|e| format!("no ip: {e}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("ip {args}: {said}")) }
}

/// Starts this program again in a namespace, as a rank that the variables tell.
fn start(test: &str, namespace: &str, variables: [(&str, &str); 4]) -> Child {
    let program = env::current_exe().unwrap();
    let mut command = Command::new("ip");
    // Whatever becomes of it, nobody waits for it for ever.
    command.args(["netns", "exec", namespace, "timeout", "--signal=KILL", "60"]);
    command.arg(program).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.envs(variables).stdout(Stdio::piped()).spawn().unwrap()
}

/// Joins, and has each rank put much to all others at once, over a link that is slower than they are.
fn join_and_put() -> Fabric {
    let mut config = Config::from_variables(|name| env::var(name).ok()).unwrap();
    config.segment_bytes = u64::from(config.size) * EACH as u64;
    config.silence = Duration::from_secs(2);
    let fabric = Fabric::join(&config, Handlers::new()).unwrap();
    let place = |rank: u32| u64::from(rank) * EACH as u64;
    let own = vec![config.rank as u8 + 1; EACH];
    others(&fabric).for_each(|to| fabric.put(to, place(config.rank), &own).unwrap());
    fabric.barrier().unwrap();
    for from in others(&fabric) {
        let mut there = vec![0; EACH];
        fabric.segment().read(place(from.0), &mut there).unwrap();
        assert!(there.iter().all(|&byte| u32::from(byte) == from.0 + 1), "of {from}");
    }
    fabric
}

fn others(fabric: &Fabric) -> impl Iterator<Item = NodeId> {
    let own = fabric.rank();
    (0..fabric.size()).map(NodeId).filter(move |&rank| rank != own)
}

/// Until rank 0 is lost to all others, and these are to it.
fn wait_until_cut(fabric: &Fabric) {
    let is_first = fabric.rank() == NodeId(0);
    // One waits for the other, which waits for room.
    if !is_first {
        let put = vec![0; EACH];
        let error = (0..1_000_000).find_map(|_| fabric.put(NodeId(0), 0, &put).err()).unwrap();
        assert!(matches!(error, Error::PeerLost { why: Lost::Died, .. }), "{error}");
    }
    let is_lost = |rank| fabric.lost(rank) == Some(Lost::Died);
    let is_over = || others(fabric).all(|rank| is_lost(rank) || !is_first && rank != NodeId(0));
    fabric.wait_until(LONG, is_over).unwrap();
}

#[test]
fn ranks_of_several_networks_meet_and_see_a_link_that_is_cut() {
    let test = "ranks_of_several_networks_meet_and_see_a_link_that_is_cut";
    if env::var(RANK).is_ok() {
        let fabric = join_and_put();
        println!("{JOINED}");
        return wait_until_cut(&fabric);
    }
    let ways = common::unmapped(test).into_iter().filter_map(|over| match over {
        Over::Tcp => Some(PLACE.to_owned()),
        Over::Ucx => Some(format!("ucx:{PLACE}")),
        _ => None,
    });
    for (root, size) in ways.flat_map(|root| [(root.clone(), 2), (root, 4)]) {
        let net = match Net::new(size) {
            Ok(net) => net,
            Err(why) => return println!("skipped: {test}: {}", why.trim_end()),
        };
        meet_and_cut(test, &net, &root);
    }
}

fn meet_and_cut(test: &str, net: &Net, root: &str) {
    let size = net.ranks.len().to_string();
    let start = |(rank, namespace): (u32, &String)| {
        let rank = rank.to_string();
        start(test, namespace, [(ROOT, root), (RANK, &rank), (SIZE, &size), (KEY, "key")])
    };
    let mut ranks: Vec<_> = (0..).zip(&net.ranks).map(start).collect();
    // What they say later goes on being read.
    let said = |rank: &mut Child| BufReader::new(rank.stdout.take().unwrap()).lines();
    let mut said: Vec<_> = ranks.iter_mut().map(said).collect();
    for lines in &mut said {
        let has_joined = lines.any(|line| line.unwrap().ends_with(JOINED));
        assert!(has_joined, "over {root}: one of {size} ended before the link was cut");
    }
    net.cut();
    for (rank, (child, lines)) in ranks.iter_mut().zip(said).enumerate() {
        lines.for_each(drop);
        let status = child.wait().unwrap();
        assert!(status.success(), "over {root}: rank {rank} of {size}: {status}");
    }
}
