//! Runs on a cluster as events of Chrome's trace format, which Perfetto and chrome://tracing draw.
//!
//! A process stands for a node. Its track 0 has the copies, the one after a channel's index that
//! channel's requests.

use model::{Link, LinkEnd, MemoryKind, NodeClass, Time, Topology};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// What a process is called, and where it stands among the others.
#[must_use]
pub fn process_name(process: u64, name: &str) -> [Value; 2] {
    let event =
        |what: &str, args: Value| json!({ "ph": "M", "pid": process, "name": what, "args": args });
    [
        event("process_name", json!({ "name": name })),
        event("process_sort_index", json!({ "sort_index": process })),
    ]
}

/// What the track of a channel is called.
#[must_use]
pub fn track_name(process: u64, channel: u16, name: &str) -> Value {
    let args = json!({ "name": name });
    json!({ "ph": "M", "pid": process, "tid": track(channel), "name": "thread_name", "args": args })
}

/// A channel of a class by its kind and its ends, if there is one of that number. One that is closed by its kind
/// and number: its ends are gone, and others of its kind may be closed too.
#[must_use]
pub fn channel_name(class: &NodeClass, index: u16) -> Option<String> {
    let channel = class.channels.get(usize::from(index))?;
    if channel.from.is_empty() {
        return Some(format!("{} {index}, closed", channel.kind.name()));
    }
    let name = |&memory: &u16| class.memories[usize::from(memory)].name.clone();
    let ends = [&channel.from, &channel.to].map(|ids| ids.iter().map(name).collect());
    Some(between(channel.kind.name(), ends))
}

/// A link by its kind and its ends.
#[must_use]
pub fn link_name(topology: &Topology, link: &Link) -> String {
    let name = |end: &LinkEnd| {
        let class = &topology.classes[usize::from(end.class)];
        format!("{}.{}", class.name, class.memories[usize::from(end.memory)].name)
    };
    let ends = [&link.from, &link.to].map(|ends| ends.iter().map(name).collect());
    between(link.kind.name(), ends)
}

/// A link by its kind and those of the memory at its ends, which is short where there are many nodes.
#[must_use]
pub fn short_link_name(topology: &Topology, link: &Link) -> String {
    let kind = |end: &LinkEnd| {
        let class = &topology.classes[usize::from(end.class)];
        class.memories[usize::from(end.memory)].kind
    };
    let kinds = |ends: &[LinkEnd]| ends.iter().map(kind).collect::<BTreeSet<_>>();
    let names = [&link.from, &link.to].map(|ends| kinds(ends).into_iter().map(MemoryKind::name));
    between(link.kind.name(), names.map(|names| names.map(str::to_owned).collect()))
}

fn between(kind: &str, ends: [Vec<String>; 2]) -> String {
    let [from, to] = ends.map(|names| names.join(","));
    format!("{kind} {from}→{to}")
}

/// A request on the track of its channel.
#[must_use]
pub fn request(
    process: u64,
    channel: u16,
    name: &str,
    (from, to): (Time, Time),
    bytes: u64,
) -> Value {
    json!({
        "ph": "X", "pid": process, "tid": track(channel), "cat": "request", "name": name,
        "ts": instant(from), "dur": micros(to.since(from)), "args": { "bytes": bytes },
    })
}

/// A copy from its submission to its end. Copies overlap, so that each is a pair of asynchronous
/// events, which `id` pairs: unique in its process.
#[must_use]
pub fn copy(
    process: u64,
    id: &str,
    name: &str,
    (from, to): (Time, Time),
    done: bool,
) -> [Value; 2] {
    let event = |phase: &str, at: Time| {
        json!({
            "ph": phase, "pid": process, "tid": 0, "cat": "copy", "id2": { "local": id },
            "ts": instant(at), "name": name, "args": { "done": done },
        })
    };
    [event("b", from), event("e", to)]
}

/// The value of a counter of bytes from an instant on.
#[must_use]
pub fn count(process: u64, name: &str, at: Time, bytes: u64) -> Value {
    let args = json!({ "bytes": bytes });
    json!({ "ph": "C", "pid": process, "ts": instant(at), "name": name, "args": args })
}

/// What the counter of a memory's staging is called.
#[must_use]
pub fn staging_name(memory: &str) -> String {
    format!("staging {memory}")
}

fn track(channel: u16) -> u32 {
    u32::from(channel) + 1
}

fn instant(at: Time) -> f64 {
    micros(at.since(Time(0)))
}

#[expect(clippy::cast_precision_loss, reason = "a trace of 104 days still has nanoseconds")]
fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_microseconds_with_nanoseconds() {
        let event = request(3, 1, "a", (Time(1_234_567), Time(1_234_868)), 8);
        assert_eq!((&event["ts"], &event["dur"]), (&1234.567.into(), &0.301.into()));
        assert_eq!((&event["pid"], &event["tid"]), (&3.into(), &2.into()));
        let [begin, end] = copy(3, "7", "b", (Time(0), Time(2000)), true);
        assert_eq!((&begin["ph"], &begin["ts"]), (&"b".into(), &0.0.into()));
        assert_eq!(
            (&end["ph"], &end["ts"], &end["id2"]["local"]),
            (&"e".into(), &2.0.into(), &"7".into())
        );
    }

    #[test]
    fn channels_and_links_are_named_by_their_ends() {
        let topology = crate::ready_made("two-nodes").unwrap();
        let mut class = topology.classes[0].clone();
        let names: Vec<_> = (0..).map_while(|index| channel_name(&class, index)).collect();
        assert_eq!(names.len(), class.channels.len());
        let open = names.iter().position(|name| name == "GPURead fbm→zcm").expect("it is there");
        class.channels[open].from.clear();
        class.channels[open].to.clear();
        let closed = channel_name(&class, u16::try_from(open).unwrap()).unwrap();
        assert_eq!(closed, format!("GPURead {open}, closed"));
        assert_eq!(link_name(&topology, &topology.links[0]), "RemoteMemcpy n.reg→n.reg");
    }

    #[test]
    fn each_kind_of_memory_that_a_link_joins_is_named_once() {
        let mut topology = crate::ready_made("two-nodes").unwrap();
        let Link { from, .. } = &mut topology.links[0];
        let all = 0..topology.classes[0].memories.len() as u16;
        *from = all.map(|memory| LinkEnd { class: 0, memory }).cycle().take(12).collect();
        let name = short_link_name(&topology, &topology.links[0]);
        assert_eq!(name, "RemoteMemcpy SYS,ZCM,REG,FBM,DSK→REG");
    }
}
