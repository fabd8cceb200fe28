//! What a machine did, as a trace that Perfetto and Chrome draw.

use crate::planned::transfer_name;
use crate::prepare::Prepared;
use crate::recorded::Recorded;
use cluster::chrome;
use engine::Engine;
use model::{
    ChannelId, MemoryId, NodeId, Outcome, Priority, Request, RequestId, Time, Topology, TransferId,
    Work,
};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most spans kept; the oldest go first.
const MAX_SPANS: usize = 1 << 20;
/// A machine is one process.
const PROCESS: u64 = 1;

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
struct Span {
    channel: ChannelId,
    transfer: Option<TransferId>,
    hop: u16,
    bytes: u64,
    from: Time,
    to: Time,
}

/// What a counter counts the bytes of.
#[derive(Debug, Clone, Copy)]
enum Counter {
    /// All staging of a memory that is given out.
    Pool(MemoryId),
    /// What stands in an intermediate buffer: the first of a transfer is 0.
    Buffer { transfer: TransferId, buffer: usize },
}

/// One value of a counter.
#[derive(Debug, Clone, Copy)]
struct Sample {
    counter: Counter,
    at: Time,
    bytes: u64,
}

/// A transfer that has not ended.
#[derive(Debug)]
struct Open {
    from: Time,
    /// What stands in each of its intermediate buffers.
    buffers: Vec<u64>,
}

/// A transfer from its submission to its end.
#[derive(Debug, Clone, Copy)]
struct Life {
    transfer: TransferId,
    from: Time,
    to: Time,
    done: bool,
}

/// Collects spans and counters while a machine runs.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Each with what was last noted of it.
    pools: Vec<(MemoryId, Option<u64>)>,
    open: HashMap<RequestId, Span>,
    spans: VecDeque<Span>,
    samples: VecDeque<Sample>,
    submitted: HashMap<TransferId, Open>,
    lives: VecDeque<Life>,
    copies: VecDeque<Recorded>,
}

impl Recorder {
    /// One that follows the staging of `pools`.
    pub(crate) fn new(pools: Vec<MemoryId>) -> Self {
        Recorder {
            pools: pools.into_iter().map(|memory| (memory, None)).collect(),
            open: HashMap::new(),
            spans: VecDeque::new(),
            samples: VecDeque::new(),
            submitted: HashMap::new(),
            lives: VecDeque::new(),
            copies: VecDeque::new(),
        }
    }

    /// Follows the staging of one more memory.
    pub(crate) fn follow(&mut self, pool: MemoryId) {
        self.pools.push((pool, None));
    }

    /// A transfer.
    pub(crate) fn submitted(
        &mut self,
        now: Time,
        transfer: TransferId,
        prepared: &Prepared,
        priority: Priority,
    ) {
        let buffers = vec![0; prepared.plan.buffers.len()];
        self.submitted.insert(transfer, Open { from: now, buffers });
        self.asked(now, prepared, priority);
    }

    fn asked(&mut self, at: Time, prepared: &Prepared, priority: Priority) {
        let (src, dst) = (Arc::clone(&prepared.src), Arc::clone(&prepared.dst));
        push(&mut self.copies, Recorded { src, dst, priority, at });
    }

    pub(crate) fn ended(&mut self, now: Time, transfer: TransferId, outcome: &Outcome) {
        let Some(open) = self.submitted.remove(&transfer) else { return };
        let done = *outcome == Outcome::Done;
        push(&mut self.lives, Life { transfer, from: open.from, to: now, done });
        // What a failed transfer leaves in a buffer goes with it.
        let left = open.buffers.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        for (buffer, _) in left {
            let counter = Counter::Buffer { transfer, buffer };
            push(&mut self.samples, Sample { counter, at: now, bytes: 0 });
        }
    }

    pub(crate) fn started(&mut self, now: Time, request: &Request) {
        let bytes = match &request.work {
            Work::Copy(copy) => copy.payload_bytes,
            Work::Commit { .. } | Work::Abort { .. } => 0,
        };
        let (channel, transfer, hop) = (request.channel, Some(request.transfer), request.hop);
        self.open.insert(request.id, Span { channel, transfer, hop, bytes, from: now, to: now });
    }

    pub(crate) fn completed(&mut self, now: Time, request: RequestId) {
        if let Some(span) = self.open.remove(&request) {
            push(&mut self.spans, Span { to: now, ..span });
            self.moved(now, &span);
        }
    }

    /// Counts what a request has taken from the buffer before its hop and put into the one after.
    fn moved(&mut self, now: Time, span: &Span) {
        let Some(transfer) = span.transfer else { return };
        let Some(open) = self.submitted.get_mut(&transfer) else { return };
        let (after, before) = (usize::from(span.hop), usize::from(span.hop).wrapping_sub(1));
        let steps = [(before, 0, span.bytes), (after, span.bytes, 0)];
        for (buffer, more, less) in steps {
            let Some(bytes) = open.buffers.get_mut(buffer) else { continue };
            *bytes = bytes.saturating_add(more).saturating_sub(less);
            let counter = Counter::Buffer { transfer, buffer };
            push(&mut self.samples, Sample { counter, at: now, bytes: *bytes });
        }
    }

    /// A copy that ran on its caller's thread.
    pub(crate) fn direct(
        &mut self,
        prepared: &Prepared,
        priority: Priority,
        (from, to): (Time, Time),
    ) {
        let channel = prepared.plan.hops[0].channel;
        let bytes = prepared.program.payload_bytes();
        self.asked(from, prepared, priority);
        push(&mut self.spans, Span { channel, transfer: None, hop: 0, bytes, from, to });
    }

    /// Notes how full the staging is, where that has changed.
    pub(crate) fn staging(&mut self, now: Time, engine: &Engine) {
        for (memory, last) in &mut self.pools {
            let Some((bytes, _)) = engine.staging(*memory) else { continue };
            if *last != Some(bytes) {
                *last = Some(bytes);
                let counter = Counter::Pool(*memory);
                push(&mut self.samples, Sample { counter, at: now, bytes });
            }
        }
    }

    /// The trace of `here` so far, in Chrome's JSON format: a track for each channel, one for transfers,
    /// a counter for each intermediate buffer and for the staging of each memory. `copy` lists what
    /// was asked for, as a workload file does: programs that draw traces leave it out.
    pub(crate) fn to_json(&self, topology: &Topology, here: NodeId) -> Value {
        let mut events = tracks(topology, here);
        events.extend(self.spans.iter().map(span_event));
        events.extend(self.lives.iter().flat_map(life_events));
        events.extend(self.samples.iter().map(|sample| {
            chrome::count(PROCESS, &sample.counter.name(topology), sample.at, sample.bytes)
        }));
        let copies = self.copies.iter().filter_map(|copy| copy.to_json(topology).ok());
        let copies: Vec<Value> = copies.collect();
        json!({ "displayTimeUnit": "ns", "traceEvents": events, "copy": copies })
    }
}

impl Counter {
    /// Buffers are told apart by the place of their transfer in the table, which others take after
    /// it: a track for each transfer there ever was would be too many.
    fn name(&self, topology: &Topology) -> String {
        match self {
            Counter::Pool(memory) => {
                chrome::staging_name(topology.memory(*memory).map_or("?", |m| &m.name))
            }
            Counter::Buffer { transfer, buffer } => {
                format!("copy {} buffer {buffer}", transfer.index)
            }
        }
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= MAX_SPANS {
        list.pop_front();
    }
    list.push_back(item);
}

/// A name for the track of each channel of `here`, and for that of each link.
fn tracks(topology: &Topology, here: NodeId) -> Vec<Value> {
    let Some((class, _)) = topology.class_of(here) else { return Vec::new() };
    let class = &topology.classes[class];
    let own = (0..).map_while(|index| chrome::channel_name(class, index));
    let links = topology.links.iter().map(|link| chrome::short_link_name(topology, link));
    let links = (ChannelId::FIRST_LINK..=u16::MAX).zip(links);
    let named = (0..).zip(own).chain(links);
    named.map(|(index, name)| chrome::track_name(PROCESS, index, &name)).collect()
}

fn span_event(span: &Span) -> Value {
    let name = match span.transfer {
        Some(id) => format!("copy {} hop {}", transfer_name(id), span.hop),
        None => "small copy".to_owned(),
    };
    chrome::request(PROCESS, span.channel.index, &name, (span.from, span.to), span.bytes)
}

fn life_events(life: &Life) -> [Value; 2] {
    let id = transfer_name(life.transfer);
    chrome::copy(PROCESS, &id, &format!("copy {id}"), (life.from, life.to), life.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_of_a_node_s_own_channels_and_of_links() {
        let text = r#"
            th_bytes = 1
            [[node]]
            name = "a"
            memory = [{ name = "sys", kind = "SYS" }, { name = "fbm", kind = "FBM" }]
            channel = [{ kind = "GPURead", from = ["fbm"], to = ["sys"], throughput = 1e9 }]
            [[node]]
            name = "b"
            memory = [{ name = "sys", kind = "SYS" }]
            channel = [{ kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = 1e9 }]
            [[link]]
            kind = "RemoteMemcpy"
            from = ["a.sys"]
            to = ["b.sys"]
            throughput = 1e9
            [[link]]
            kind = "RemoteMemcpy"
            from = ["a.fbm"]
            to = ["b.sys"]
            throughput = 1e9
        "#;
        let topology = cluster::parse_toml(text).unwrap();
        let link = |place| ChannelId::of_link(NodeId(0), place).unwrap().index;
        for (node, own) in [(0, "GPURead fbm→sys"), (1, "Memcpy sys→sys")] {
            let names =
                [(0, own), (link(0), "RemoteMemcpy SYS→SYS"), (link(1), "RemoteMemcpy FBM→SYS")];
            let expected = names.map(|(index, name)| chrome::track_name(PROCESS, index, name));
            assert_eq!(tracks(&topology, NodeId(node)), expected, "{node}");
        }
        assert!(tracks(&topology, NodeId(2)).is_empty());
    }
}
