//! Two ranks as on two machines: each in a network namespace of its own, with a shaped link between,
//! which is then cut. Needs root and iproute2.

use isometry_fabric::model::NodeId;
use isometry_fabric::{Config, Error, Fabric, Handlers, Lost};
use rustix::process::getuid;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The variable that tells a process that it is a rank.
const CHILD: &str = "ISOMETRY_TEST_NAMESPACE";

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// What a rank says before the link is to be cut.
const JOINED: &str = "joined";

const ROOT: &str = "10.231.0.1:7077";
const EACH: usize = 8 << 20;

/// Two namespaces with a link between; gone when dropped.
struct Net {
    names: [String; 2],
}

impl Net {
    /// `None` where this process may not make one, or has no program to.
    fn new() -> Result<Net, String> {
        if !getuid().is_root() {
            return Err("it needs root".to_owned());
        }
        let names = [0, 1].map(|rank| format!("isometry-{}-{rank}", std::process::id()));
        let net = Net { names };
        let [a, b] = &net.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&["-n", a, "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", b])?;
        for (name, address) in [(a, "10.231.0.1/24"), (b, "10.231.0.2/24")] {
            ip(&["-n", name, "address", "add", address, "dev", "veth"])?;
            ip(&["-n", name, "link", "set", "veth", "up"])?;
            // Shaped so that all of a put is on its way for a while.
            let shape = "qdisc add dev veth root tbf rate 2gbit burst 256kb latency 50ms";
            let all = [&["netns", "exec", name, "tc"][..], &shape.split(' ').collect::<Vec<_>>()];
            ip(&all.concat())?;
        }
        Ok(net)
    }

    fn cut(&self) {
        ip(&["-n", &self.names[0], "link", "set", "veth", "down"]).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(args).output().map_err(|e| format!("no ip: {e}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("ip {}: {said}", args.join(" "))) }
}

/// Starts this program again in a namespace, as one of two ranks.
fn start(test: &str, namespace: &str, rank: usize) -> Child {
    let program = env::current_exe().unwrap();
    let mut command = Command::new("ip");
    // Whatever becomes of it, nobody waits for it for ever.
    command.args(["netns", "exec", namespace, "timeout", "--signal=KILL", "60"]);
    command.arg(program).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, rank.to_string()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Joins, and has each rank put much to the other at once, over a link that is slower than they are.
fn join_and_put(rank: u32) -> Fabric {
    let mut config = Config::new(ROOT, (rank, 2), b"key");
    config.segment_bytes = EACH as u64;
    config.silence = Duration::from_secs(2);
    let fabric = Fabric::join(&config, Handlers::new()).unwrap();
    let other = NodeId(1 - rank);
    fabric.put(other, 0, &vec![rank as u8 + 1; EACH]).unwrap();
    fabric.barrier().unwrap();
    let mut back = vec![0; EACH];
    fabric.segment().read(0, &mut back).unwrap();
    assert!(back.iter().all(|&byte| u32::from(byte) == other.0 + 1));
    fabric
}

fn wait_until_cut(fabric: &Fabric) {
    let other = NodeId(1 - fabric.rank().0);
    let put = vec![0; EACH];
    // One waits for the other, which waits for room.
    if fabric.rank() == NodeId(1) {
        let error = (0..1_000_000).find_map(|_| fabric.put(other, 0, &put).err()).unwrap();
        assert!(matches!(error, Error::PeerLost { why: Lost::Died, .. }), "{error}");
    }
    fabric.wait_until(LONG, || fabric.lost(other) == Some(Lost::Died)).unwrap();
}

#[test]
fn ranks_of_two_networks_meet_and_see_a_link_that_is_cut() {
    let test = "ranks_of_two_networks_meet_and_see_a_link_that_is_cut";
    if let Ok(rank) = env::var(CHILD) {
        let fabric = join_and_put(rank.parse().unwrap());
        println!("{JOINED}");
        return wait_until_cut(&fabric);
    }
    let net = match Net::new() {
        Ok(net) => net,
        Err(why) => return println!("skipped: {test}: {}", why.trim_end()),
    };
    let mut ranks = [0, 1].map(|rank| start(test, &net.names[rank], rank));
    // What they say later goes on being read.
    let mut said = ranks.each_mut().map(|rank| BufReader::new(rank.stdout.take().unwrap()).lines());
    for lines in &mut said {
        let has_joined = lines.any(|line| line.unwrap().ends_with(JOINED));
        assert!(has_joined, "it ended before the link was cut");
    }
    net.cut();
    for (rank, (child, lines)) in ranks.iter_mut().zip(said).enumerate() {
        lines.for_each(drop);
        let status = child.wait().unwrap();
        assert!(status.success(), "rank {rank}: {status}");
    }
}
