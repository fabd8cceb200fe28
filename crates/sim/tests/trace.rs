//! What a run tells, and its trace.

use isometry_sim::{
    Baseline, Case, CaseReport, Instance, Note, RunTrace, Setup, SimulateError, Watch, Workload,
    simulate,
};
use model::{ChannelId, MemoryId, Time, Topology};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Keeps all that it is told.
#[derive(Default)]
struct Notes(Vec<Note>);

impl Watch for Notes {
    fn go_on(&mut self, _ended: u64) -> bool {
        true
    }

    fn takes_notes(&self) -> bool {
        true
    }

    fn note(&mut self, note: &Note) {
        self.0.push(*note);
    }
}

fn cluster(name: &str, nodes: u32) -> Topology {
    cluster::with_nodes(cluster::ready_made(name).unwrap(), nodes).unwrap()
}

/// Copies of several instances between two nodes and on one, that convert.
fn case(topology: &Topology) -> Case {
    let one = |from: &str, to: &str, count: u32| {
        format!(
            "[[copy]]\nfrom = \"{from}\"\nto = \"{to}\"\ndims = \"y=1024,x=512\"\nfields = [4]\n\
             from_layout = \"<F, x, y>\"\nto_layout = \"<F, y, x>\"\ncount = {count}\n"
        )
    };
    let text = [one("n0.fbm", "n1.fbm", 3), one("n0.sys", "n0.fbm", 1)].concat();
    Workload::parse(&text, topology).unwrap().cases.remove(0)
}

fn noted(topology: &Topology, case: &Case, setup: &Setup) -> (Vec<Note>, CaseReport) {
    let mut notes = Notes::default();
    let report = simulate(topology, case, setup, &mut notes).unwrap();
    (notes.0, report)
}

/// Ours, and every baseline.
fn setups() -> impl Iterator<Item = Setup> {
    let baselines = Baseline::ALL.map(Some);
    let all = [None].into_iter().chain(baselines);
    all.map(|baseline| Setup { baseline, ..Setup::default() })
}

fn lives(notes: &[Note]) -> BTreeMap<Instance, (Time, Time)> {
    let life = |note: &Note| match *note {
        Note::Copied { instance, from, to } => Some((instance, (from, to))),
        _ => None,
    };
    notes.iter().filter_map(life).collect()
}

#[test]
fn the_last_hop_of_each_instance_has_its_payload_in_its_life() {
    let topology = cluster("sapling", 2);
    let case = case(&topology);
    for setup in setups() {
        let (notes, report) = noted(&topology, &case, &setup);
        let lives = lives(&notes);
        assert_eq!(lives.len(), 4);
        let mut moved = BTreeMap::new();
        for note in &notes {
            let Note::Served { instance, hop, bytes, from, to, .. } = *note else { continue };
            let (launched, ended) = lives[&instance];
            assert!(launched <= from && from <= to && to <= ended, "{note:?}");
            *moved.entry((instance, hop)).or_insert(0) += bytes;
        }
        for (&instance, &(_, ended)) in &lives {
            let (spec, copy) = (&case.copies[instance.copy], &report.copies[instance.copy]);
            assert!(ended <= copy.ended, "{setup:?}");
            let hops = copy.path().len() - 1;
            let of_hop = |hop| moved.get(&(instance, hop)).copied();
            assert!((0..hops).all(|hop| of_hop(hop) == Some(spec.instance_bytes())), "{moved:?}");
            assert_eq!(of_hop(hops), None, "{setup:?}");
        }
    }
}

#[test]
fn a_channel_serves_one_request_at_a_time() {
    let topology = cluster("sapling", 2);
    let (notes, report) = noted(&topology, &case(&topology), &Setup::default());
    let mut last: BTreeMap<ChannelId, Time> = BTreeMap::new();
    let mut served = 0;
    for note in notes {
        let Note::Served { channel, from, to, .. } = note else { continue };
        let before = last.insert(channel, to).unwrap_or_default();
        assert!(before <= from, "{channel:?}: {before:?} {from:?}");
        served += 1;
    }
    assert_eq!(served, report.tally.requests);
}

#[test]
fn staging_rises_to_its_peak_and_comes_back() {
    let topology = cluster("sapling", 2);
    let (notes, report) = noted(&topology, &case(&topology), &Setup::default());
    let mut told: BTreeMap<MemoryId, Vec<u64>> = BTreeMap::new();
    for note in notes {
        let Note::Staged { memory, bytes, .. } = note else { continue };
        told.entry(memory).or_default().push(bytes);
    }
    for (memory, peak) in report.staging {
        let told = told.remove(&memory).unwrap_or_default();
        assert_eq!(told.iter().copied().max().unwrap_or(0), peak, "{memory:?}: {told:?}");
        assert_eq!(told.last().copied().unwrap_or(0), 0, "{memory:?}");
    }
    assert!(told.is_empty());
}

#[test]
fn who_takes_no_notes_changes_nothing_and_is_told_nothing() {
    struct Deaf(u64);
    impl Watch for Deaf {
        fn go_on(&mut self, ended: u64) -> bool {
            self.0 = self.0.max(ended);
            true
        }

        fn note(&mut self, note: &Note) {
            panic!("{note:?}");
        }
    }
    let topology = cluster("pod", 4);
    let case = Workload::exchange(&topology, 400).cases.remove(0);
    let mut deaf = Deaf(0);
    let report = simulate(&topology, &case, &Setup::default(), &mut deaf).unwrap();
    assert_eq!(noted(&topology, &case, &Setup::default()).1, report);
    assert!(deaf.0 > 0 && deaf.0 <= 400, "{} copies have ended", deaf.0);
}

#[test]
fn who_follows_a_run_is_asked_at_every_search() {
    let topology = cluster("sapling", 2);
    let case = case(&topology);
    let asked = |load: bool| {
        let (setup, mut asked) = (Setup { load, ..Setup::default() }, 0);
        let mut go_on = || {
            asked += 1;
            true
        };
        simulate(&topology, &case, &setup, &mut go_on).unwrap();
        asked
    };
    // Under a load the second is planned anew; the first finds the cluster idle.
    assert_eq!((asked(false), asked(true)), (2, 3));
    let stopped = simulate(&topology, &case, &Setup::default(), &mut || false);
    assert_eq!(stopped, Err(SimulateError::Stopped));
}

/// The events of these runs.
fn traced(topology: &Topology, case: &Case, setups: &[Setup]) -> Vec<Value> {
    let mut trace = RunTrace::new(topology);
    let mut events = Vec::new();
    for setup in setups {
        trace.begin(case, setup.baseline);
        let notes = noted(topology, case, setup).0;
        events.extend(notes.iter().flat_map(|note| trace.events(note)));
    }
    assert_eq!(trace.left_out(), 0);
    events
}

#[test]
fn the_trace_of_a_run_is_always_the_same() {
    let topology = cluster("sapling", 2);
    let case = case(&topology);
    let setups: Vec<_> = setups().collect();
    assert_eq!(traced(&topology, &case, &setups), traced(&topology, &case, &setups));
}

#[test]
fn a_trace_has_a_process_for_each_node_of_each_run() {
    let topology = cluster("sapling", 2);
    let case = Case { name: "both".to_owned(), ..case(&topology) };
    let no_path = Setup { baseline: Some(Baseline::NoPath), ..Setup::default() };
    let events = traced(&topology, &case, &[Setup::default(), no_path]);
    let named = |what: &str| -> BTreeSet<&str> {
        let named = events.iter().filter(|event| event["name"] == what);
        named.map(|event| event["args"]["name"].as_str().unwrap()).collect()
    };
    let processes: Vec<_> = named("process_name").into_iter().collect();
    assert_eq!(processes, ["n0 (no-path): both", "n0: both", "n1 (no-path): both", "n1: both"]);
    let process = |name: &str| {
        let named = events.iter().find(|event| event["args"]["name"] == name);
        named.unwrap()["pid"].as_u64().unwrap()
    };
    let of = |name: &str, phase: &str| {
        let process = process(name);
        events.iter().filter(|e| e["pid"] == process && e["ph"] == phase).count()
    };
    for node in ["n0: both", "n0 (no-path): both"] {
        assert_eq!((of(node, "b"), of(node, "e")), (4, 4), "{node}");
        assert!(of(node, "X") > 0 && of(node, "C") > 0, "{node}");
    }
    assert!(named("thread_name").iter().any(|name| name.starts_with("GPURead fbm→")));
    assert!(named("thread_name").iter().any(|name| name.starts_with("RemoteMemcpy n.")));
}

#[test]
fn every_event_of_a_trace_is_drawn() {
    let topology = cluster("sapling", 2);
    let events = traced(&topology, &case(&topology), &[Setup::default()]);
    let tracks: BTreeSet<_> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["pid"].as_u64(), event["tid"].as_u64()))
        .collect();
    let copy = |event: &Value| format!("{} {}", event["pid"], event["id2"]["local"]);
    let (mut open, mut last_hop) = (BTreeSet::new(), 0);
    for event in &events {
        match event["ph"].as_str().unwrap() {
            "X" => {
                assert!(tracks.contains(&(event["pid"].as_u64(), event["tid"].as_u64())));
                assert!(event["ts"].as_f64() >= Some(0.0) && event["dur"].as_f64() >= Some(0.0));
                let name = event["name"].as_str().unwrap();
                let is_last = name.starts_with("copy copy1 hop ");
                last_hop += if is_last { event["args"]["bytes"].as_u64().unwrap() } else { 0 };
            }
            "b" => assert!(open.insert(copy(event)), "{event}"),
            "e" => assert!(open.remove(&copy(event)), "{event}"),
            "C" => assert!(event["args"]["bytes"].is_u64(), "{event}"),
            phase => assert_eq!(phase, "M"),
        }
    }
    assert!(open.is_empty() && last_hop >= 1024 * 512 * 4, "{open:?} {last_hop}");
    assert!(events.iter().any(|event| event["name"] == "copy copy0 2"));
}
