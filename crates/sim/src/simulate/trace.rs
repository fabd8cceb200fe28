//! Runs as events of a trace that Perfetto and Chrome draw, while they go on.

use crate::simulate::setup::Baseline;
use crate::simulate::watch::{Instance, Note};
use crate::simulate::workload::{Case, CopySpec};
use cluster::chrome;
use model::{ChannelId, MemoryId, NodeId, Time, Topology};
use serde_json::Value;
use std::collections::BTreeSet;

/// The most requests, the most copies and the most values of counters in a trace; the first stay.
pub const MAX_TRACE_EVENTS: u64 = 1 << 20;

/// How many of a kind there is still room for.
#[derive(Debug)]
struct Room {
    requests: u64,
    copies: u64,
    values: u64,
    left_out: u64,
}

impl Room {
    fn take(&mut self, note: &Note) -> bool {
        let room = match note {
            Note::Served { .. } => &mut self.requests,
            Note::Copied { .. } => &mut self.copies,
            Note::Staged { .. } => &mut self.values,
        };
        let is_free = *room > 0;
        *room = room.saturating_sub(1);
        self.left_out += u64::from(!is_free);
        is_free
    }
}

/// Makes notes of one run after the other the events of a trace, in Chrome's format.
///
/// Every run starts at 0. A process is a node in one run, and called by both; it has a track for
/// each channel that served a request, one for the copies that leave the node, and a counter for
/// the staging of each of its memories.
#[derive(Debug)]
pub struct RunTrace<'a> {
    topology: &'a Topology,
    room: Room,
    /// Runs that have begun.
    runs: u64,
    /// What the processes of the run are called, after their nodes.
    run: String,
    copies: &'a [CopySpec],
    nodes: BTreeSet<NodeId>,
    channels: BTreeSet<ChannelId>,
}

impl<'a> RunTrace<'a> {
    /// A trace of runs on `topology`.
    #[must_use]
    pub fn new(topology: &'a Topology) -> Self {
        let most = MAX_TRACE_EVENTS;
        RunTrace {
            topology,
            room: Room { requests: most, copies: most, values: most, left_out: 0 },
            runs: 0,
            run: String::new(),
            copies: &[],
            nodes: BTreeSet::new(),
            channels: BTreeSet::new(),
        }
    }

    /// From here on notes are of a run of `case`.
    pub fn begin(&mut self, case: &'a Case, baseline: Option<Baseline>) {
        // First of all what a name that is cut short still shows.
        let baseline = baseline.map_or(String::new(), |by| format!(" ({})", by.name()));
        let colon = if case.name.is_empty() { "" } else { ": " };
        self.run = format!("{baseline}{colon}{}", case.name);
        (self.runs, self.copies) = (self.runs + 1, &case.copies);
        self.nodes.clear();
        self.channels.clear();
    }

    /// The events of what happened, where there is room for it.
    ///
    /// # Panics
    /// Before [`RunTrace::begin`].
    pub fn events(&mut self, note: &Note) -> Vec<Value> {
        if !self.room.take(note) {
            return Vec::new();
        }
        match *note {
            Note::Served { instance, hop, channel, bytes, from, to } => {
                let name = format!("{} hop {hop}", self.name(instance));
                let (process, mut events) = self.process(channel.node);
                events.extend(self.track(process, channel));
                events.push(chrome::request(process, channel.index, &name, (from, to), bytes));
                events
            }
            Note::Copied { instance, from, to } => self.copied(instance, (from, to)),
            Note::Staged { memory, bytes, at } => self.staged(memory, at, bytes),
        }
    }

    /// How many requests, copies and values of counters had no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.room.left_out
    }

    fn copied(&mut self, instance: Instance, life: (Time, Time)) -> Vec<Value> {
        let (process, mut events) = self.process(self.copies[instance.copy].from.node);
        let id = format!("{}.{}", instance.copy, instance.nth);
        events.extend(chrome::copy(process, &id, &self.name(instance), life, true));
        events
    }

    fn staged(&mut self, memory: MemoryId, at: Time, bytes: u64) -> Vec<Value> {
        let (process, mut events) = self.process(memory.node);
        let name = self.topology.memory(memory).map_or("?", |memory| &memory.name);
        events.push(chrome::count(process, &chrome::staging_name(name), at, bytes));
        events
    }

    /// `copy weights`, or `copy weights 3` where it has several instances.
    fn name(&self, Instance { copy, nth }: Instance) -> String {
        let copy = &self.copies[copy];
        match copy.count {
            1 => format!("copy {}", copy.name),
            _ => format!("copy {} {nth}", copy.name),
        }
    }

    /// The process of a node in this run, and its name where it is new.
    fn process(&mut self, node: NodeId) -> (u64, Vec<Value>) {
        let before = (self.runs - 1) * u64::from(self.topology.node_count());
        let process = before + u64::from(node.0) + 1;
        if !self.nodes.insert(node) {
            return (process, Vec::new());
        }
        let node = self.topology.node_name(node).unwrap_or_default();
        (process, chrome::process_name(process, &(node + &self.run)).into())
    }

    /// The name of a channel's track where it is new.
    fn track(&mut self, process: u64, id: ChannelId) -> Option<Value> {
        if !self.channels.insert(id) {
            return None;
        }
        let topology = self.topology;
        let inside = || {
            let (class, _) = topology.class_of(id.node)?;
            chrome::channel_name(&topology.classes[class], id.index)
        };
        let between = || Some(chrome::link_name(topology, topology.link(id)?));
        let name = inside().or_else(between).unwrap_or_default();
        Some(chrome::track_name(process, id.index, &name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_room_is_counted_and_left_out() {
        let topology = cluster::ready_made("sapling").unwrap();
        let case = Case { name: "few".to_owned(), copies: Vec::new() };
        let mut trace = RunTrace::new(&topology);
        trace.room.values = 2;
        trace.begin(&case, None);
        let memory = topology.memory_named("n1.sys").unwrap();
        let staged = (1..=5).map(|at| Note::Staged { memory, bytes: at, at: Time(at) });
        let events: Vec<usize> = staged.map(|note| trace.events(&note).len()).collect();
        assert_eq!((events, trace.left_out()), (vec![3, 1, 0, 0, 0], 3));
    }
}
