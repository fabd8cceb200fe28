//! What a machine says of itself to Prometheus, against the reports of its copies.

mod exposition;

use exposition::{assert_grown, samples};
use fake_cuda::Fake;
use isometry::{
    Accelerators, Array, CopyOptions, Cuda, Error, Event, Instance, Machine, MachineBuilder,
};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

fn builder() -> MachineBuilder {
    Machine::builder().assume(true).lanes(1).staging(8 << 20)
}

fn machine() -> Machine {
    builder().open().unwrap()
}

fn matrix(machine: &Machine, side: u64, layout: &str) -> Instance {
    let array = Array::of(&[("y", side), ("x", side)], "<f4").unwrap();
    machine.empty(array.laid_out(layout).unwrap(), "sys").unwrap()
}

fn read(machine: &Machine) -> BTreeMap<String, f64> {
    samples(&machine.metrics().unwrap())
}

/// The value of a sample of node 0 whose other labels are these.
fn value(samples: &BTreeMap<String, f64>, name: &str, labels: &str) -> f64 {
    let comma = if labels.is_empty() { "" } else { "," };
    let key = format!("isometry_{name}{{node=\"node0\"{comma}{labels}}}");
    *samples.get(&key).unwrap_or_else(|| panic!("{key} of {samples:#?}"))
}

/// Bytes and requests of each kind of channel, as reports say it.
fn reported(machine: &Machine, events: &[Event]) -> BTreeMap<&'static str, (f64, f64)> {
    let topology = machine.topology();
    let mut all: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for hop in events.iter().flat_map(Event::report).flat_map(|report| report.times.hops) {
        let figures = all.entry(topology.channel(hop.channel).unwrap().kind.name()).or_default();
        figures.0 += hop.bytes as f64;
        figures.1 += hop.requests as f64;
    }
    all
}

#[test]
fn figures_agree_with_the_reports_of_copies() {
    let dir = tempfile::tempdir().unwrap();
    let machine = machine();
    let (small, large) = ([16, 16], [700, 700]);
    let mut events = Vec::new();
    for (side, priority) in [small, large, large].into_iter().flatten().zip([0, 3, -2, 0, 7, 0]) {
        let (src, dst) = (matrix(&machine, side, "yx"), matrix(&machine, side, "xy"));
        let options = CopyOptions::with_priority(priority);
        events.push(machine.copy(&src, &dst, &options).unwrap());
    }
    let rows = matrix(&machine, 700, "yx");
    let array = rows.array().laid_out("xy").unwrap();
    let file = machine.create_file(dir.path().join("a.npy"), array, &Default::default()).unwrap();
    events.push(machine.copy(&rows, &file, &CopyOptions::default()).unwrap());
    events.iter().for_each(|event| event.wait(Some(Duration::from_secs(20))).unwrap());
    let told = read(&machine);
    let reports: u64 = events.iter().flat_map(Event::report).map(|report| report.bytes()).sum();
    assert_eq!(value(&told, "copied_bytes_total", ""), reports as f64);
    assert_eq!(value(&told, "copies_submitted_total", ""), 7.0);
    assert_eq!(value(&told, "copies_ended_total", r#"outcome="done""#), 7.0);
    assert_eq!(value(&told, "copies_in_flight", ""), 0.0);
    let hits = value(&told, "plan_cache_hits_total", "");
    assert_eq!(hits + value(&told, "plan_cache_misses_total", ""), 7.0);
    let reported = reported(&machine, &events);
    for (kind, ends) in [("Memcpy", "sys→sys"), ("DiskWrite", "sys→dsk")] {
        let channel = format!(r#"channel="{kind} {ends}""#);
        let (bytes, requests) = reported[kind];
        assert_eq!(value(&told, "moved_bytes_total", &channel), bytes, "{kind}");
        assert_eq!(value(&told, "requests_submitted_total", &channel), requests, "{kind}");
        let done = value(&told, "requests_ended_total", &format!(r#"{channel},outcome="done""#));
        assert_eq!((done, value(&told, "requests_in_flight", &channel)), (requests, 0.0), "{kind}");
        let waits = ["low", "normal", "high"].map(|class| {
            value(&told, "queue_wait_seconds_count", &format!(r#"{channel},priority="{class}""#))
        });
        // Two small copies ran where they were asked for, and waited for nothing.
        let direct = if kind == "Memcpy" { 2.0 } else { 0.0 };
        assert_eq!(waits.iter().sum::<f64>(), requests - direct, "{kind}");
        assert!(kind == "DiskWrite" || waits[0] > 0.0 && waits[2] > 0.0, "{waits:?}");
    }
    let sys = r#"memory="sys""#;
    assert_eq!(value(&told, "staging_used_bytes", sys), 0.0);
    assert!(value(&told, "staging_size_bytes", sys) >= value(&told, "staging_peak_bytes", sys));
}

#[test]
fn copies_that_end_otherwise_are_told_apart() {
    let machine = machine();
    let (src, dst) = (matrix(&machine, 2048, "yx"), matrix(&machine, 2048, "xy"));
    let copy = |options: &CopyOptions| machine.copy(&src, &dst, options).unwrap();
    let first = copy(&CopyOptions::default());
    let behind = copy(&CopyOptions { after: vec![first], ..CopyOptions::default() });
    behind.cancel();
    let cancelled = behind.wait(None);
    let late = copy(&CopyOptions { deadline: Some(Duration::ZERO), ..CopyOptions::default() });
    assert!(matches!(late.wait(None), Err(Error::TimedOut)));
    let then = CopyOptions { after: vec![late], ..CopyOptions::default() };
    copy(&then).wait(None).unwrap_err();
    machine.close();
    let told = read(&machine);
    let ended = |outcome| value(&told, "copies_ended_total", &format!("outcome=\"{outcome}\""));
    let outcomes = ["done", "failed", "cancelled", "timed_out"].map(ended);
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    assert_eq!(outcomes, [1.0; 4]);
    assert_eq!(value(&told, "copies_submitted_total", ""), 4.0);
}

#[test]
fn counters_only_grow_while_copies_run() {
    let machine = machine();
    let start = read(&machine);
    thread::scope(|scope| {
        let copying = scope.spawn(|| {
            for side in [32, 600, 64, 900].into_iter().cycle().take(24) {
                let (src, dst) = (matrix(&machine, side, "yx"), matrix(&machine, side, "xy"));
                machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
            }
        });
        let mut before = start.clone();
        while !copying.is_finished() {
            let now = read(&machine);
            assert_grown(&before, &now);
            assert!(value(&now, "copies_in_flight", "") <= 1.0);
            before = now;
        }
    });
    let end = read(&machine);
    assert_grown(&start, &end);
    assert_eq!(value(&end, "copies_ended_total", r#"outcome="done""#), 24.0);
}

#[test]
fn channels_that_are_closed_are_told_apart() {
    let test = "channels_that_are_closed_are_told_apart";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    let builder = builder().accelerators(Accelerators::None);
    let machine = builder.cuda(Cuda::Driver(fake.path().to_owned())).open().unwrap();
    let src = matrix(&machine, 30, "yx");
    let dst = machine.empty(src.array().clone(), "fbm").unwrap();
    fake.fail(0, 700, true);
    let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    assert!(event.wait(Some(Duration::from_secs(20))).is_err());
    let told = read(&machine);
    let closed = told.iter().filter(|(key, _)| key.contains(", closed\""));
    let failed = closed.filter(|(key, _)| key.contains("outcome=\"failed\""));
    assert_eq!(failed.map(|(_, count)| count).sum::<f64>(), 1.0, "it is counted all the same");
}
