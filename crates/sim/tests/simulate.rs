//! Workloads on clusters that are not there.

mod support;

use isometry_sim::{
    Baseline, Case, CaseReport, ChannelSpec, CopyReport, End, PoolSpec, Rule, Scenario, Setup,
    SimulateError, Stored, TransferSpec, Workload, run, simulate,
};
use model::{ChannelId, MemoryId, Plan, Selection, Time, Topology};
use std::collections::BTreeSet;
use std::time::Duration;

fn sapling() -> Topology {
    cluster::ready_made("sapling").unwrap()
}

fn play(topology: &Topology, case: &Case, setup: &Setup) -> CaseReport {
    simulate(topology, case, setup, &mut || true).unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

fn by(baseline: Baseline) -> Setup {
    Setup { baseline: Some(baseline), ..Setup::default() }
}

/// The case of a ready-made workload that is called `name`.
fn ready(workload: &str, name: &str) -> Case {
    let cases = Workload::ready_made(workload, &sapling()).unwrap().unwrap().cases;
    cases.into_iter().find(|case| case.name == name).unwrap()
}

/// Copies of 32 bytes an entry: from, to, entries, and more keys.
fn case(topology: &Topology, copies: &[(&str, &str, u64, &str)]) -> Case {
    let one = |&(from, to, entries, more): &(&str, &str, u64, &str)| {
        format!(
            "[[copy]]\nfrom = \"{from}\"\nto = \"{to}\"\ndims = \"x={entries}\"\n\
             fields = [4, 4, 4, 4, 4, 4, 4, 4]\nfrom_layout = \"<F, x>\"\n{more}\n"
        )
    };
    let text: String = copies.iter().map(one).collect();
    Workload::parse(&text, topology).unwrap().cases.remove(0)
}

const SAME: &str = "to_layout = \"<F, x>\"";

#[test]
fn every_pair_reaches_what_its_slowest_hop_can() {
    let topology = sapling();
    for case in &Workload::ready_made("micro", &topology).unwrap().unwrap().cases {
        let report = play(&topology, case, &Setup::default());
        let copy = &report.copies[0];
        let ratio = copy.throughput() / copy.peak;
        let least = if copy.path().len() == 2 { 0.98 } else { 0.95 };
        assert!((least..1.0 + 1e-9).contains(&ratio), "{}: {ratio}", case.name);
    }
}

#[test]
fn equal_arguments_give_equal_reports() {
    let topology = cluster::ready_made("modern").unwrap();
    let copies = ["n0.gpu0", "n0.gpu1", "n0.sys"].map(|from| (from, "n1.nvme", 1 << 20, SAME));
    let case = case(&topology, &copies);
    let setup = Setup::default();
    assert_eq!(play(&topology, &case, &setup), play(&topology, &case, &setup));
}

#[test]
fn storing_and_forwarding_takes_the_sum_of_the_hops() {
    let topology = sapling();
    let case = case(&topology, &[("n0.fbm", "n1.fbm", 4 << 20, SAME)]);
    let report = play(&topology, &case, &by(Baseline::StoreAndForward));
    let names = report.copies[0].path().into_iter().map(|m| topology.memory_name(m).unwrap());
    assert!(names.eq(["n0.fbm", "n0.sys", "n1.sys", "n1.fbm"]));
    let bytes = (128u64 << 20) as f64;
    let sum: f64 = [4.502e9, 2.701e9, 5.139e9].into_iter().map(|rate| bytes / rate).sum();
    let share = report.copies[0].seconds() / sum;
    assert!((1.0..1.01).contains(&share), "{share}");
}

#[test]
fn one_thread_does_one_hop_after_the_other() {
    let (topology, case) = (sapling(), ready("micro", "DSK to DSK"));
    let one = play(&topology, &case, &by(Baseline::StoreAndForward));
    let several = Setup { dma_threads: 4, ..by(Baseline::StoreAndForward) };
    let several = play(&topology, &case, &several);
    let rates = [&one, &several].map(|report| report.copies[0].throughput());
    let alone = 1.0 / (1.0 / 280e6 + 1.0 / 270e6);
    assert!((rates[0] / alone - 1.0).abs() < 0.01, "{rates:?}");
    assert!(rates[1] > rates[0] * 1.2, "{rates:?}");
}

#[test]
fn a_baseline_takes_its_own_path() {
    let topology = sapling();
    let case = case(&topology, &[("n0.fbm", "n1.fbm", 4 << 20, "to_layout = \"<x, F>\"")]);
    let path = |baseline| -> Vec<String> {
        let report = play(&topology, &case, &Setup { baseline, ..Setup::default() });
        report.copies[0].path().iter().map(|&m| topology.memory_name(m).unwrap()).collect()
    };
    let ours = path(None);
    assert!(ours.len() > 4, "{ours:?}");
    assert_eq!(path(Some(Baseline::NoPipeline)), ours);
    assert_eq!(path(Some(Baseline::NoPath)), path(Some(Baseline::StoreAndForward)));
    let fixed = path(Some(Baseline::DeviceConverts));
    assert_eq!(fixed, ["n0.fbm", "n0.reg", "n1.reg", "n1.fbm"]);
}

#[test]
fn a_fixed_path_converts_at_the_last_device() {
    let topology = sapling();
    for (to, converts) in [("n1.fbm", 2), ("n1.sys", 0)] {
        let case = case(&topology, &[("n0.fbm", to, 1 << 10, "to_layout = \"<x, F>\"")]);
        let report = play(&topology, &case, &by(Baseline::DeviceConverts));
        let layouts = &report.copies[0].plans[0].layouts;
        let changes: Vec<usize> =
            (0..layouts.len() - 1).filter(|&hop| layouts[hop] != layouts[hop + 1]).collect();
        assert_eq!(changes, [converts], "{to}");
    }
}

#[test]
fn whole_instances_stay_within_their_memories() {
    let (topology, case) = (sapling(), ready("micro", "SYS to FBM*"));
    let report = play(&topology, &case, &by(Baseline::NoPipeline));
    assert!(!report.instances.is_empty() && report.staging.is_empty());
    for &(memory, bytes) in &report.instances {
        assert_eq!(Some(bytes), topology.memory(memory).unwrap().capacity_bytes);
    }
    let ours = play(&topology, &case, &Setup::default());
    assert!(ours.instances.is_empty() && ours.held_bytes() < 1 << 29);
}

#[test]
fn the_most_whole_instances_are_told_though_fewer_come_later() {
    let topology = sapling();
    let (many, one) = (format!("{SAME}\ncount = 4"), format!("{SAME}\nafter = [\"copy0\"]"));
    let copies = [("n0.fbm", "n1.fbm", 1 << 20, &many[..]), ("n0.fbm", "n1.fbm", 1 << 20, &one)];
    let report = play(&topology, &case(&topology, &copies), &by(Baseline::StoreAndForward));
    let held: Vec<u64> = report.instances.iter().map(|&(_, bytes)| bytes).collect();
    assert_eq!(held, [4 << 25; 2]);
}

#[test]
fn the_last_copy_for_which_a_plan_was_made_is_told() {
    let topology = sapling();
    let ends = ["n1.sys", "n1.sys", "n0.fbm", "n1.sys"];
    let copies = ends.map(|to| ("n0.sys", to, 1 << 20, SAME));
    let report = play(&topology, &case(&topology, &copies), &Setup::default());
    let [(_, plans)] = &report.plans[..] else { panic!("one node plans") };
    assert_eq!((plans.made, plans.last_copy), ([2, 0], 2));
}

#[test]
fn a_peak_is_the_wires_where_that_is_slower() {
    let text = r#"
        [[node]]
        name = "n"
        memory = [{ name = "sys", kind = "SYS" }, { name = "fbm", kind = "FBM" }]
        channel = [{ kind = "GPUWrite", from = ["sys"], to = ["fbm"], throughput = 9e9, wire = "bus" }]
        wire = [{ name = "bus", throughput = 6e9 }]
    "#;
    let topology = cluster::parse(text).unwrap();
    let case = case(&topology, &[("n0.sys", "n0.fbm", 1 << 20, SAME)]);
    assert_eq!(play(&topology, &case, &Setup::default()).copies[0].peak, 6e9);
}

#[test]
fn waiting_for_an_instant_counts_as_computing() {
    let late = format!("{SAME}\nat_ns = 5000");
    let last = format!("{SAME}\nafter = [\"copy0\"]\ncompute_ns = 70");
    let copies = [("n0.sys", "n0.sys", 1, &late[..]), ("n0.sys", "n0.sys", 1, &last)];
    assert_eq!(case(&sapling(), &copies).computing(), Duration::from_nanos(5070));
}

#[test]
fn what_never_fits_is_an_error() {
    let topology = sapling();
    let large = case(&topology, &[("n0.fbm", "n0.fbm1", 1 << 28, SAME)]);
    let error = simulate(&topology, &large, &Setup::default(), &mut || true).unwrap_err();
    assert!(matches!(error, SimulateError::Capacity { bytes, .. } if bytes == 8 << 30), "{error}");
    let told = error.told(|memory| topology.memory_name(memory).unwrap());
    assert!(told.contains("n0.fbm") && told.contains("copy0"), "{told}");
}

#[test]
fn an_urgent_copy_waits_less_than_for_a_thread() {
    let topology = sapling();
    for case in &Workload::ready_made("priority", &topology).unwrap().unwrap().cases {
        let urgent = |setup: &Setup| play(&topology, case, setup).copies[1].seconds();
        let ours = urgent(&Setup::default());
        let one = urgent(&by(Baseline::StoreAndForward));
        assert!(ours < one, "{}: {ours} {one}", case.name);
        if case.name.starts_with("direct") {
            let many = Setup { dma_threads: 8, ..by(Baseline::StoreAndForward) };
            assert!(ours < urgent(&many), "{}", case.name);
        }
    }
}

#[test]
fn copies_start_when_they_may() {
    let topology = sapling();
    let later = format!("{SAME}\nat_ns = 5000\ncount = 3");
    let last = format!("{SAME}\nafter = [\"copy0\", \"copy1\"]\ncompute_ns = 70");
    let copies = [
        ("n0.sys", "n0.sys", 1 << 20, SAME),
        ("n1.sys", "n1.sys", 1 << 20, &later),
        ("n0.sys", "n1.sys", 1 << 20, &last),
    ];
    let report = play(&topology, &case(&topology, &copies), &Setup::default());
    let [first, second, third] = &report.copies[..] else { panic!("three copies") };
    assert_eq!((first.launched, second.launched), (Time(0), Time(5000)));
    assert_eq!(third.launched, first.ended.max(second.ended) + Duration::from_nanos(70));
    assert_eq!(report.ended, third.ended);
}

#[test]
fn nothing_takes_no_time() {
    let topology = sapling();
    let empty = case(&topology, &[("n0.fbm", "n1.fbm", 0, SAME)]);
    for baseline in [None].into_iter().chain(Baseline::ALL.map(Some)) {
        let report = play(&topology, &empty, &Setup { baseline, ..Setup::default() });
        assert_eq!((report.ended, report.copies[0].throughput()), (Time(0), 0.0));
    }
}

#[test]
fn the_caller_may_stop_it() {
    let (topology, case) = (sapling(), ready("micro", "SYS to SYS*"));
    let mut looks = 0;
    let mut go_on = || {
        looks += 1;
        looks < 3
    };
    let stopped = simulate(&topology, &case, &Setup::default(), &mut go_on);
    assert_eq!(stopped, Err(SimulateError::Stopped));
    assert_eq!(looks, 3);
}

#[test]
fn any_two_nodes_of_a_pod_are_alike() {
    let topology = cluster::ready_made("pod").unwrap();
    let seconds = |from, to| {
        let case = case(&topology, &[(from, to, 1 << 20, SAME)]);
        play(&topology, &case, &Setup::default()).ended
    };
    assert_eq!(seconds("n0.gpu0", "n1.nvme"), seconds("n1023.gpu0", "n517.nvme"));
}

/// Two accelerators behind one bus, and a disk that reads or writes.
const BUS: &str = r#"
[[node]]
name = "n"
memory = [ { name = "sys", kind = "SYS" }, { name = "a", kind = "FBM" }, { name = "b", kind = "FBM" }, { name = "dsk", kind = "DSK" } ]
channel = [
  { kind = "GPUWrite", from = ["sys"], to = ["a"], throughput = 8e9, wire = "bus" },
  { kind = "GPUWrite", from = ["sys"], to = ["b"], throughput = 6e9, wire = "bus" },
  { kind = "GPURead", from = ["a"], to = ["sys"], throughput = 8e9, wire = "bus" },
  { kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = 2e9, wire = "medium" },
  { kind = "DiskWrite", from = ["sys"], to = ["dsk"], throughput = 1e9, wire = "medium" },
]
wire = [ { name = "bus", throughput = 10e9 }, { name = "medium", throughput = 4e9, half_duplex = true } ]
"#;

/// Throughputs of copies of 128 MiB that run together, in units of 1e9 bytes a second.
fn together(pairs: &[(&str, &str)]) -> Vec<f64> {
    let topology = cluster::parse(BUS).unwrap();
    let copies: Vec<_> = pairs.iter().map(|&(from, to)| (from, to, 4 << 20, SAME)).collect();
    let report = play(&topology, &case(&topology, &copies), &Setup::default());
    report.copies.iter().map(|copy| copy.throughput() / 1e9).collect()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    let near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 0.02;
    assert!(found.iter().zip(expected).all(near), "{found:?} for {expected:?}");
}

#[test]
fn channels_share_a_bus_fairly() {
    close(&together(&[("sys", "a")]), &[8.0]);
    close(&together(&[("sys", "a"), ("sys", "b")]), &[5.0, 5.0]);
    // The other direction has a bus of its own.
    close(&together(&[("sys", "a"), ("a", "sys")]), &[8.0, 8.0]);
}

/// Four nodes behind ports of 1 GB/s each way, and a link of half that from other memories.
const PORTS: &str = r#"
[[node]]
name = "n"
count = 4
memory = [ { name = "a", kind = "SYS", port = "nic" }, { name = "b", kind = "REG", port = "nic" } ]
wire = [ { name = "nic", throughput = 1.0e9 } ]
[[link]]
kind = "RemoteMemcpy"
from = ["n.a"]
to = ["n.a"]
throughput = 9.0e9
[[link]]
kind = "RemoteMemcpy"
from = ["n.b"]
to = ["n.b"]
throughput = 0.25e9
"#;

/// The rates of copies between nodes that start together, in GB/s, to a hundredth.
fn between(pairs: &[(&str, &str)]) -> Vec<f64> {
    let topology = cluster::parse(PORTS).unwrap();
    let copies: Vec<_> = pairs.iter().map(|&(from, to)| (from, to, 1 << 21, SAME)).collect();
    let report = play(&topology, &case(&topology, &copies), &Setup::default());
    report.copies.iter().map(|copy| (copy.throughput() / 1e7).round() / 100.0).collect()
}

#[test]
fn many_that_send_to_one_node_share_its_port() {
    assert_eq!(between(&[("n0.a", "n1.a")]), [1.0]);
    assert_eq!(between(&[("n0.a", "n3.a"), ("n1.a", "n3.a"), ("n2.a", "n3.a")]), [0.33; 3]);
    let ways = [("n0.a", "n1.a"), ("n1.a", "n0.a"), ("n2.a", "n3.a")];
    assert_eq!(between(&ways), [1.0; 3], "each direction, and each node, for itself");
}

#[test]
fn links_of_one_node_share_its_port() {
    // The slower leaves the rest to the other, and is done last.
    assert_eq!(between(&[("n0.a", "n1.a"), ("n0.b", "n2.b")]), [0.75, 0.25]);
    // Each of three that come in has a third, unless it asks for less.
    let three = [("n0.a", "n3.a"), ("n1.a", "n3.a"), ("n2.b", "n3.b")];
    assert_eq!(between(&three), [0.37, 0.37, 0.25]);
}

#[test]
fn a_disk_reads_or_writes() {
    // Half of the time each, until the faster is through.
    close(&together(&[("dsk", "sys"), ("sys", "dsk")]), &[1.0, 1.0 / 1.5]);
}

/// Two ways from `a` to `d`, as fast as each other.
const TWO_WAYS: &str = r#"
[[node]]
name = "n"
memory = [ { name = "a", kind = "SYS" }, { name = "b", kind = "SYS" }, { name = "c", kind = "SYS" }, { name = "d", kind = "SYS" } ]
channel = [
  { kind = "Memcpy", from = ["a"], to = ["b"], throughput = 2e9 },
  { kind = "Memcpy", from = ["b"], to = ["d"], throughput = 2e9 },
  { kind = "Memcpy", from = ["a"], to = ["c"], throughput = 2e9 },
  { kind = "Memcpy", from = ["c"], to = ["d"], throughput = 2e9 },
]
"#;

/// Each copy is planned beside what is under way.
fn beside() -> Setup {
    Setup { load: true, ..Setup::default() }
}

#[test]
fn a_copy_goes_around_what_is_under_way() {
    let topology = cluster::parse(TWO_WAYS).unwrap();
    let more = ["at_ns = 1000", "after = [\"copy1\"]", "after = [\"copy2\"]"];
    let more = more.map(|more| format!("{SAME}\n{more}"));
    let later = more.iter().map(|more| ("a", "d", 4 << 20, more.as_str()));
    let copies: Vec<_> = [("a", "d", 4 << 20, SAME)].into_iter().chain(later).collect();
    let case = case(&topology, &copies);
    let played = |setup: &Setup| {
        let report = play(&topology, &case, setup);
        let between = |copy: &CopyReport| topology.short_name(copy.path()[1]);
        let rates = report.copies.iter().map(|copy| copy.throughput() / 1e9);
        (report.copies.iter().map(between).collect::<String>(), rates.collect::<Vec<_>>())
    };
    let (ways, rates) = played(&Setup::default());
    assert_eq!(ways, "bbbb");
    close(&rates, &[2.0, 1.0, 2.0, 2.0]);
    let (ways, rates) = played(&beside());
    assert_eq!(ways, "bcbb", "the last two start when nothing is under way");
    close(&rates, &[2.0; 4]);
}

#[test]
fn an_urgent_copy_does_not_go_around_less_urgent_ones() {
    let topology = cluster::parse(TWO_WAYS).unwrap();
    let way = |priority| {
        let more = format!("{SAME}\nat_ns = 1000\npriority = {priority}");
        let copies = [("a", "d", 4 << 20, SAME), ("a", "d", 4 << 20, more.as_str())];
        let report = play(&topology, &case(&topology, &copies), &beside());
        topology.short_name(report.copies[1].path()[1])
    };
    assert_eq!([-1, 0, 1].map(way), ["c", "c", "b"]);
}

#[test]
fn two_paths_take_half_the_time_of_one() {
    let topology = cluster::ready_made("modern").unwrap();
    let case = case(&topology, &[("n0.gpu0", "n1.gpu0", 64 << 20, SAME)]);
    let copy =
        |paths| play(&topology, &case, &Setup { paths, ..Setup::default() }).copies.remove(0);
    let [one, two, three] = [1, 2, 3].map(copy);
    assert_eq!([&one, &two, &three].map(|copy| copy.plans.len()), [1, 2, 3]);
    assert_eq!((one.split, two.split, two.paths().len()), (false, true, 2));
    for (copies, copy) in [(2.0, &two), (3.0, &three)] {
        let gain = copy.throughput() / one.throughput();
        assert!((copies * 0.97..copies).contains(&gain), "{gain}");
        assert!((copy.peak / one.peak - copies).abs() < 1e-9, "{}", copy.peak);
    }
}

#[test]
fn a_split_copy_goes_around_what_is_under_way() {
    let topology = cluster::parse(TWO_WAYS).unwrap();
    let copies = [("a", "d", 4 << 20, SAME), ("a", "d", 4 << 20, SAME)];
    let report = play(&topology, &case(&topology, &copies), &Setup { paths: 2, ..beside() });
    // Both ways are as busy for the second as for each other.
    assert_eq!(report.copies.iter().map(|copy| copy.plans.len()).collect::<Vec<_>>(), [2, 2]);
    assert!(report.copies[1].plans.iter().all(|plan| plan.search.flows == 4));
    close(&[report.ended.since(Time(0)).as_secs_f64()], &[2.0 * 128.0 * 1.048_576e6 / 4e9]);
}

#[test]
fn plans_on_an_idle_cluster_are_the_same_under_load() {
    let topology = sapling();
    for mut case in Workload::ready_made("micro", &topology).unwrap().unwrap().cases {
        case.copies[0].count = 1;
        let plans = |setup| play(&topology, &case, setup).copies.remove(0).plans;
        assert_eq!(plans(&Setup::default()), plans(&beside()), "{}", case.name);
    }
}

#[test]
fn a_busy_run_is_always_the_same() {
    let topology = cluster::ready_made("modern").unwrap();
    let later = format!("{SAME}\nat_ns = 5000\ncount = 3");
    let copies = ["n0.gpu0", "n0.gpu1", "n0.sys", "n0.gpu0"];
    let copies = copies.map(|from| (from, "n1.gpu2", 1 << 20, later.as_str()));
    let case = case(&topology, &copies);
    let setup = Setup { paths: 3, ..beside() };
    let report = play(&topology, &case, &setup);
    assert_eq!(report, play(&topology, &case, &setup));
    assert!(report.tally.transfers > 12, "{:?}", report.tally);
    assert!(report.ended < play(&topology, &case, &Setup::default()).ended);
}

#[test]
fn baselines_know_neither_load_nor_several_paths() {
    let topology = sapling();
    let case = case(&topology, &[("n0.fbm", "n1.fbm", 1 << 20, SAME); 2]);
    for baseline in Baseline::ALL {
        let plain = play(&topology, &case, &by(baseline));
        let setup = Setup { baseline: Some(baseline), paths: 3, ..beside() };
        assert_eq!(play(&topology, &case, &setup), plain, "{baseline:?}");
    }
}

#[test]
fn parts_of_blocked_boxes_run() {
    let topology = cluster::ready_made("modern").unwrap();
    let boxed =
        "{ box = \"y=3..1030,x=5..2000\", from = \"y=1100,x=2000\", to = \"y=3..1030,x=1..2001\" }";
    for (from, to) in [
        ("<F, x, y>", "<F, y, x>"),
        ("<x_in=4, F, x_out, y>", "<F, x, y>"),
        ("<y_in=8, F, x, y_out>", "<x_in=16, y_in=4, F, x_out, y_out>"),
        ("<F, y, x>", "<y_in=6, x, F, y_out>"),
    ] {
        let text = format!(
            "[[copy]]\nfrom = \"n0.gpu0\"\nto = \"n1.gpu0\"\ndims = {boxed}\n\
             fields = [8]\nfrom_layout = \"{from}\"\nto_layout = \"{to}\"\n"
        );
        let case = Workload::parse(&text, &topology).unwrap().cases.remove(0);
        let report = play(&topology, &case, &Setup { paths: 4, ..Setup::default() });
        assert!(report.copies[0].split, "{from} {to}");
        assert_eq!(report.tally.transfers, report.copies[0].plans.len() as u64);
    }
}

/// One copy of a case as a scenario of the world that fuzzes: no jitter, no payload, no faults.
fn scenario(topology: &Topology, case: &Case, plan: &Plan) -> Scenario {
    let copy = &case.copies[0];
    let end = |at: usize| End {
        space: copy.space.clone(),
        layout: copy.layouts[at].clone(),
        part: Selection::all(&copy.space),
        stored: Stored::all(copy.fields.clone()),
    };
    let channels: BTreeSet<ChannelId> = plan.hops.iter().map(|hop| hop.channel).collect();
    let pools: BTreeSet<MemoryId> = plan.buffers.iter().map(|buffer| buffer.memory).collect();
    let channel = |id| {
        let inside = topology.channel(id).map(|c| (&c.curves, c.latency_ns));
        let (curves, latency_ns) =
            inside.or_else(|| topology.link(id).map(|l| (&l.curves, l.latency_ns))).unwrap();
        let (jitter_ns, max_in_flight, rule) = (0, 2, Rule::Priority);
        ChannelSpec { id, curves: curves.clone(), latency_ns, jitter_ns, max_in_flight, rule }
    };
    let pool = |memory| PoolSpec { memory, capacity_bytes: 1 << 30, reserve_bytes: 0 };
    Scenario {
        seed: 1,
        channels: channels.into_iter().map(channel).collect(),
        ageing: None,
        pools: pools.into_iter().map(pool).collect(),
        transfers: vec![TransferSpec::new(plan.clone(), copy.fields.clone(), [end(0), end(1)])],
        fences: Vec::new(),
        faults: Vec::new(),
        payload: false,
        limit: Time(1 << 50),
    }
}

#[test]
fn it_takes_as_long_as_in_the_world_that_fuzzes() {
    let topology = cluster::ready_made("two-nodes").unwrap();
    let ends = [("n0.fbm", "n1.fbm"), ("n0.sys", "n1.zcm"), ("n0.reg", "n1.reg")];
    for (from, to) in ends {
        for layout in [SAME, "to_layout = \"<x, F>\""] {
            let case = case(&topology, &[(from, to, 1 << 19, layout)]);
            let report = play(&topology, &case, &Setup::default());
            let played = run(&scenario(&topology, &case, &report.copies[0].plans[0]));
            let summary = played.result.unwrap();
            assert_eq!(support::done_at(&played.trace, 0), report.ended, "{from} {to} {layout}");
            assert_eq!(summary.requests, report.tally.requests);
        }
    }
}
