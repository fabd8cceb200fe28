//! What a machine has done, as text that Prometheus reads. Names, types and help texts stand here and
//! nowhere else.

use crate::Error;
use crate::machine::Machine;
use crate::runtime::{Copies, Shared};
use crate::status::{self, NodeStatus, StagingStatus};
use engine::{ChannelCounts, ClassWaits, Traffic, WAIT_BOUNDS, Waits};
use model::{ChannelId, NodeId, Topology};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;

impl Machine {
    /// What the machine has done since it was opened and is at now, in Prometheus' text format 0.0.4
    /// (`text/plain; version=0.0.4`): copies, requests and bytes by `channel` and, where they go to
    /// another node, by `peer`; how long requests waited by `priority` (`low` below 0, `normal` 0,
    /// `high` above); staging by `memory`; uses of the plan cache; which peers are there. Every sample
    /// has the label `node`. Counters never fall; units are bytes and seconds. `node` and `peer` are ranks,
    /// since a node that comes back under its name is another one; `isometry_node_info` and
    /// `isometry_peer_info` say by `name` what these are called.
    ///
    /// It holds the lock that copies need for microseconds, and may be called by any thread, also of a
    /// closed machine.
    ///
    /// ```
    /// # let machine = isometry::Machine::builder().assume(true).open()?;
    /// let text = machine.metrics()?;
    /// assert!(text.contains("isometry_copies_submitted_total{node=\"node0\"} 0\n"));
    /// # Ok::<(), isometry::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn metrics(&self) -> Result<String, Error> {
        if !self.shared.is_of_this_process() {
            return Err(Error::Forked);
        }
        Ok(Snapshot::of(&self.shared).told())
    }
}

/// All numbers at one moment, or nearly.
struct Snapshot {
    topology: Arc<Topology>,
    here: NodeId,
    copies: Copies,
    plan_uses: (u64, u64),
    channels: Vec<Channel>,
    staging: Vec<StagingStatus>,
    staging_waits: ClassWaits,
    shares: usize,
    arrived: BTreeMap<NodeId, u64>,
    /// What this node is called.
    name: String,
    /// The other nodes.
    peers: Vec<NodeStatus>,
}

struct Channel {
    name: String,
    in_flight: u32,
    waits: ClassWaits,
    /// By where requests went: this node is no peer.
    traffic: Vec<(Option<NodeId>, Traffic)>,
}

impl Snapshot {
    fn of(shared: &Shared) -> Self {
        let (topology, here) = (shared.topology(), shared.here());
        let mut peers = status::nodes(shared, &topology);
        let own = peers.extract_if(.., |node| node.node == here);
        let name = own.map(|node| node.name).collect();
        let copies = shared.tally().read();
        let core = shared.core();
        let engine = core.engine();
        let counts: Vec<_> = engine
            .channels()
            .map(|(id, counts)| (id, engine.in_flight(id), counts.clone()))
            .collect();
        let staging = status::staging(engine, shared);
        let (staging_waits, shares) = (engine.staging_waits(), engine.share_count());
        let arrived = engine.arrived_bytes().collect();
        drop(core);
        let channel = |(id, in_flight, counts)| {
            let mut traffic = traffic(id, &counts, &peers);
            if id == (ChannelId { node: here, index: MEMCPY }) {
                add_direct(&mut traffic, &copies);
            }
            // One that has just joined has no name yet.
            let name = channel_name(&topology, id)?;
            Some(Channel { name, in_flight, waits: counts.waits, traffic })
        };
        let channels = counts.into_iter().filter_map(channel).collect();
        let plan_uses = shared.plans.uses();
        Snapshot {
            topology,
            here,
            copies,
            plan_uses,
            channels,
            staging,
            staging_waits,
            shares,
            arrived,
            name,
            peers,
        }
    }

    fn told(&self) -> String {
        let mut text =
            Text { node: status::name_of(&self.topology, self.here), out: String::new() };
        self.tell_copies(&mut text);
        self.tell_requests(&mut text);
        self.tell_waits(&mut text);
        self.tell_staging(&mut text);
        self.tell_peers(&mut text);
        text.out
    }

    fn tell_copies(&self, text: &mut Text) {
        let Copies { submitted, done, failed, cancelled, timed_out, bytes, .. } = self.copies;
        text.counter("isometry_copies_submitted_total", "Copies that were taken.")
            .sample(&[], submitted);
        let mut ended =
            text.counter("isometry_copies_ended_total", "Copies that have ended, by outcome.");
        for (outcome, count) in
            [("done", done), ("failed", failed), ("cancelled", cancelled), ("timed_out", timed_out)]
        {
            ended.sample(&[("outcome", outcome)], count);
        }
        text.gauge("isometry_copies_in_flight", "Copies that were taken and have not ended.")
            .sample(&[], self.copies.in_flight());
        let help = "Payload that copies which have ended brought to their destinations.";
        text.counter("isometry_copied_bytes_total", help).sample(&[], bytes);
        let help = "Transfers between nodes that this node has a share of, whoever asked for them.";
        text.gauge("isometry_shares_in_flight", help).sample(&[], self.shares);
        let (hits, misses) = self.plan_uses;
        text.counter("isometry_plan_cache_hits_total", "Copies that found their plan made.")
            .sample(&[], hits);
        text.counter("isometry_plan_cache_misses_total", "Copies for which a plan was made.")
            .sample(&[], misses);
    }

    fn tell_requests(&self, text: &mut Text) {
        let help = "Requests that were given to a channel.";
        let mut submitted = text.counter("isometry_requests_submitted_total", help);
        self.each_traffic(|labels, traffic| submitted.sample(labels, traffic.submitted));
        let help = "Requests that a channel has ended, by outcome.";
        let mut ended = text.counter("isometry_requests_ended_total", help);
        self.each_traffic(|labels, traffic| {
            for (outcome, count) in [("done", traffic.done), ("failed", traffic.failed)] {
                ended.sample(&[labels, &[("outcome", outcome)]].concat(), count);
            }
        });
        let help = "Requests that a channel has and has not ended.";
        let mut in_flight = text.gauge("isometry_requests_in_flight", help);
        for channel in &self.channels {
            in_flight.sample(&[("channel", &channel.name)], channel.in_flight);
        }
        let help = "Payload that a channel has moved; a copy of several hops counts at each.";
        let mut moved = text.counter("isometry_moved_bytes_total", help);
        self.each_traffic(|labels, traffic| moved.sample(labels, traffic.bytes));
    }

    /// The traffic of each channel to each node, with the labels that name it.
    fn each_traffic(&self, mut tell: impl FnMut(&[(&str, &str)], &Traffic)) {
        for channel in &self.channels {
            for (peer, traffic) in &channel.traffic {
                let peer = peer.map(|peer| status::name_of(&self.topology, peer));
                let peer = peer.as_deref().map(|peer| ("peer", peer));
                let labels: Vec<_> =
                    [("channel", &*channel.name)].into_iter().chain(peer).collect();
                tell(&labels, traffic);
            }
        }
    }

    fn tell_waits(&self, text: &mut Text) {
        let help = "How long requests that were ready waited for their turn on a channel.";
        let mut queue = text.family("isometry_queue_wait_seconds", "histogram", help);
        for channel in &self.channels {
            for (class, waits) in classes(&channel.waits) {
                queue.waits(&[("channel", &channel.name), ("priority", class)], waits);
            }
        }
        let help = "How long transfers waited for intermediate buffers on this node.";
        let mut staging = text.family("isometry_staging_wait_seconds", "histogram", help);
        for (class, waits) in classes(&self.staging_waits) {
            staging.waits(&[("priority", class)], waits);
        }
    }

    fn tell_staging(&self, text: &mut Text) {
        type Figure = fn(&StagingStatus) -> u64;
        let figures: [(&str, &str, Figure); 3] = [
            ("isometry_staging_used_bytes", "Staging that is given out.", |s| s.used_bytes),
            ("isometry_staging_size_bytes", "Staging that there is.", |s| s.bytes),
            ("isometry_staging_peak_bytes", "The most staging given out at once.", |s| {
                s.peak_bytes
            }),
        ];
        for (name, help, figure) in figures {
            let mut family = text.gauge(name, help);
            for staging in &self.staging {
                if let Some(memory) = self.topology.memory(staging.memory) {
                    family.sample(&[("memory", &memory.name)], figure(staging));
                }
            }
        }
    }

    fn tell_peers(&self, text: &mut Text) {
        let rank = |peer: &NodeStatus| status::name_of(&self.topology, peer.node);
        let help = "Payload that a peer has written to this node.";
        let mut received = text.counter("isometry_received_bytes_total", help);
        for peer in &self.peers {
            let bytes = self.arrived.get(&peer.node).copied().unwrap_or_default();
            received.sample(&[("peer", &rank(peer))], bytes);
        }
        let mut up = text.gauge("isometry_peer_up", "1 while a peer is there, 0 once it is lost.");
        for peer in &self.peers {
            up.sample(&[("peer", &rank(peer))], u8::from(peer.lost.is_none()));
        }
        text.gauge("isometry_node_info", "1: what this node is called.")
            .sample(&[("name", &self.name)], 1);
        let mut info = text.gauge("isometry_peer_info", "1: what a peer is called.");
        for peer in &self.peers {
            info.sample(&[("peer", &rank(peer)), ("name", &peer.name)], 1);
        }
    }
}

/// Memcpy is the first channel of every machine.
const MEMCPY: u16 = 0;

/// What a channel's requests did, by where they went: a link's to each peer.
fn traffic(
    id: ChannelId,
    counts: &ChannelCounts,
    peers: &[NodeStatus],
) -> Vec<(Option<NodeId>, Traffic)> {
    let to = |node: NodeId| counts.traffic.get(&node).copied().unwrap_or_default();
    if id.index < ChannelId::FIRST_LINK {
        return vec![(None, to(id.node))];
    }
    peers.iter().map(|peer| (Some(peer.node), to(peer.node))).collect()
}

/// Adds the requests that callers ran themselves.
fn add_direct(traffic: &mut [(Option<NodeId>, Traffic)], copies: &Copies) {
    for (_, traffic) in traffic {
        traffic.submitted += copies.direct;
        traffic.done += copies.direct;
        traffic.bytes += copies.direct_bytes;
    }
}

/// A channel as it is called anywhere. A link by its kind, and where it is not the first of that by what it
/// joins too: nodes that come may change what the first does.
fn channel_name(topology: &Topology, id: ChannelId) -> Option<String> {
    if let Some(link) = topology.link(id) {
        let first = topology.links.iter().find(|other| other.kind == link.kind)?;
        return Some(match std::ptr::eq(link, first) {
            true => link.kind.name().to_owned(),
            false => cluster::chrome::short_link_name(topology, link),
        });
    }
    let (class, _) = topology.class_of(id.node)?;
    cluster::chrome::channel_name(&topology.classes[class], id.index)
}

fn classes(waits: &ClassWaits) -> [(&'static str, &Waits); 3] {
    [("low", &waits.low), ("normal", &waits.normal), ("high", &waits.high)]
}

/// Text in the format, of one node.
struct Text {
    node: String,
    out: String,
}

impl Text {
    fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "counter", help)
    }

    fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "gauge", help)
    }

    /// Begins a family; its samples follow.
    fn family<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        self.out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: self, name }
    }
}

/// The samples of one name.
struct Family<'a> {
    text: &'a mut Text,
    name: &'a str,
}

impl Family<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.line("", labels, value);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let Text { node, out } = &mut *self.text;
        let labels = [&[("node", node.as_str())], labels].concat();
        let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        writeln!(out, "{}{suffix}{{{labels}}} {value}", self.name).expect("a string takes it");
    }

    /// The samples of one histogram.
    fn waits(&mut self, labels: &[(&str, &str)], waits: &Waits) {
        let bounds = WAIT_BOUNDS.map(|bound| bound.as_secs_f64().to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        let mut sum = 0;
        for (bound, count) in bounds.zip(waits.counts) {
            sum += count;
            self.line("_bucket", &[labels, &[("le", bound)]].concat(), sum);
        }
        self.line("_sum", labels, waits.total.as_secs_f64());
        self.line("_count", labels, sum);
    }
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn whatever_a_name_holds_stays_between_the_quotes() {
        let mut text = Text { node: "n\n0".to_owned(), out: String::new() };
        let name = "a \"quoted\" C:\\new\nline, {é}";
        text.gauge("isometry_test", "Of a test.").sample(&[("channel", name)], 7);
        let expected = r#"# HELP isometry_test Of a test.
# TYPE isometry_test gauge
isometry_test{node="n\n0",channel="a \"quoted\" C:\\new\nline, {é}"} 7
"#;
        assert_eq!(text.out, expected);
    }

    #[test]
    fn links_of_a_kind_have_names_of_their_own() {
        let text = r#"
            th_bytes = 1
            [[node]]
            name = "n"
            count = 2
            memory = [{ name = "sys", kind = "SYS" }, { name = "fbm", kind = "FBM" }]
            [[link]]
            kind = "RemoteMemcpy"
            from = ["n.sys"]
            to = ["n.sys"]
            throughput = 1e9
            [[link]]
            kind = "RemoteMemcpy"
            from = ["n.fbm"]
            to = ["n.fbm"]
            throughput = 1e9
        "#;
        let topology = cluster::parse_toml(text).unwrap();
        let link = |place| ChannelId::of_link(NodeId(1), place).unwrap();
        let names = [0, 1, 2].map(|place| channel_name(&topology, link(place)));
        let names = names.each_ref().map(|name| name.as_deref());
        assert_eq!(names, [Some("RemoteMemcpy"), Some("RemoteMemcpy FBM→FBM"), None]);
    }

    #[test]
    fn buckets_add_up() {
        let mut text = Text { node: "n".to_owned(), out: String::new() };
        let counts = [1, 0, 2, 0, 0, 0, 0, 4];
        let waits = Waits { counts, total: Duration::from_millis(1500) };
        text.family("w", "histogram", "Waits.").waits(&[], &waits);
        let samples: Vec<_> = text.out.lines().skip(2).collect();
        assert_eq!(samples[0], r#"w_bucket{node="n",le="0.00001"} 1"#);
        assert_eq!(samples[2], r#"w_bucket{node="n",le="0.001"} 3"#);
        assert_eq!(samples[7], r#"w_bucket{node="n",le="+Inf"} 7"#);
        assert_eq!(samples[8..], [r#"w_sum{node="n"} 1.5"#, r#"w_count{node="n"} 7"#]);
    }
}
