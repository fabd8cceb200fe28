//! Workloads on clusters of several engines.

use isometry_sim::{
    Baseline, CaseReport, READY_MADE_WORKLOADS, Setup, SimulateError, Workload, simulate,
};
use model::{MemoryKind, Time, Topology};
use proptest::prelude::*;

fn cluster(name: &str, nodes: u32) -> Topology {
    cluster::with_nodes(cluster::ready_made(name).unwrap(), nodes).unwrap()
}

fn played(
    topology: &Topology,
    workload: &Workload,
    setup: &Setup,
) -> Result<CaseReport, SimulateError> {
    simulate(topology, &workload.cases[0], setup, &mut || true)
}

fn play(topology: &Topology, workload: &Workload) -> CaseReport {
    played(topology, workload, &Setup::default()).unwrap()
}

/// A class of one node of each name, and links of 1e9 bytes a second.
fn linked(nodes: &[(&str, &str)], links: &[(&str, &str, u64)]) -> Topology {
    let node = |(name, keys): &(&str, &str)| {
        format!(
            "[[node]]\nname = \"{name}\"\nchannel = []\n\
             memory = [{{ name = \"reg\", kind = \"REG\", {keys} }}]\n"
        )
    };
    let link = |(from, to, latency_ns): &(&str, &str, u64)| {
        format!(
            "[[link]]\nkind = \"RemoteMemcpy\"\nfrom = [\"{from}.reg\"]\nto = [\"{to}.reg\"]\n\
             throughput = 1e9\nlatency_ns = {latency_ns}\n"
        )
    };
    let text: String = nodes.iter().map(node).chain(links.iter().map(link)).collect();
    cluster::parse(&text).unwrap()
}

/// Copies of `bytes` from one memory to another, with more keys.
fn copies(topology: &Topology, copies: &[(&str, &str, u64, &str)]) -> Workload {
    let one = |(from, to, bytes, more): &(&str, &str, u64, &str)| {
        format!(
            "[[copy]]\nfrom = \"{from}\"\nto = \"{to}\"\ndims = \"x={bytes}\"\nfields = [1]\n\
             from_layout = \"<F, x>\"\nto_layout = \"<F, x>\"\n{more}\n"
        )
    };
    Workload::parse(&copies.iter().map(one).collect::<String>(), topology).unwrap()
}

const SERVICE_NS: u64 = 1000;

#[test]
fn what_engines_tell_each_other_takes_the_latency_of_their_link() {
    let there_ns = 10_000;
    let back_ns = 300;
    let links = [("a", "b", there_ns), ("b", "a", back_ns)];
    let topology = linked(&[("a", ""), ("b", "")], &links);
    let once = ("a0.reg", "b0.reg", SERVICE_NS, "");
    let again = ("a0.reg", "b0.reg", SERVICE_NS, "after = [\"copy0\"]");
    let report = play(&topology, &copies(&topology, &[once, again]));
    // Reserve and Open; the request and its own latency; Arrived and Ended.
    let copy_ns = (there_ns + back_ns) + (there_ns + SERVICE_NS) + (there_ns + back_ns);
    let greeting_ns = there_ns + back_ns;
    let first = report.copies[0].ended;
    assert_eq!(first, Time(greeting_ns + copy_ns));
    assert_eq!(report.copies[1].ended, Time(first.0 + copy_ns));
}

#[test]
fn engines_have_nothing_to_say_while_nothing_moves() {
    let topology = cluster("sapling", 2);
    let events = |compute_ns: u64| {
        let later = format!("after = [\"copy0\"]\ncompute_ns = {compute_ns}");
        let both = [("n0.reg", "n1.reg", 4096, ""), ("n0.reg", "n1.reg", 4096, &later)];
        play(&topology, &copies(&topology, &both)).tally.events
    };
    // A year, and a fifth of a second.
    assert_eq!(events(31_536_000_000_000_000), events(200_000_000));
}

#[test]
fn a_copy_that_another_node_can_not_hold_is_an_error() {
    let ample = "capacity_bytes = 1048576, th_bytes = 1048576";
    let scarce = "capacity_bytes = 8192, th_bytes = 1048576";
    let links = [("a", "b", 0), ("b", "c", 0)];
    let topology = linked(&[("a", ample), ("b", scarce), ("c", ample)], &links);
    let workload = copies(&topology, &[("a0.reg", "c0.reg", 1 << 19, "")]);
    let failed = played(&topology, &workload, &Setup::default()).unwrap_err();
    assert!(matches!(failed, SimulateError::Failed { .. }), "{failed}");
    assert!(
        failed.to_string().contains("copy0") && failed.to_string().contains("node1"),
        "{failed}"
    );
}

#[test]
fn a_copy_of_nothing_is_refused() {
    let topology = cluster("sapling", 2);
    let one = ("n0.sys", "n1.sys", 1024, "");
    let mut workload = copies(&topology, &[one, ("n0.sys", "n1.sys", 1024, "after = [\"copy0\"]")]);
    workload.cases[0].copies[0].count = 0;
    let Err(SimulateError::Workload(refused)) = played(&topology, &workload, &Setup::default())
    else {
        panic!("what waits for no copy never starts");
    };
    assert_eq!(refused.key(), "copy[0].count");
}

#[test]
fn staging_is_each_nodes_own() {
    let topology = cluster("pod", 8);
    let report = play(&topology, &Workload::exchange(&topology, 800));
    let kinds = |node: u32| {
        let here = report.staging.iter().filter(move |(memory, _)| memory.node.0 == node);
        here.map(|&(memory, bytes)| (topology.memory(memory).unwrap().kind, bytes))
    };
    let first: Vec<(MemoryKind, u64)> = kinds(0).collect();
    assert!(first.len() == 2 && first.iter().all(|(_, bytes)| *bytes > 0), "{first:?}");
    assert!((1..8).all(|node| kinds(node).map(|k| k.0).eq(first.iter().map(|k| k.0))));
}

#[test]
fn every_ready_made_workload_runs_on_several_nodes() {
    let topology = cluster("sapling", 3);
    for name in READY_MADE_WORKLOADS {
        let workload = Workload::ready_made(name, &topology).unwrap().unwrap();
        let copies: u64 = workload.cases[0].copies.iter().map(|copy| u64::from(copy.count)).sum();
        assert_eq!(play(&topology, &workload).tally.transfers, copies, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// That nothing is left of any transfer at the end is asserted by the run itself.
    #[test]
    fn every_copy_ends_once_and_equal_arguments_give_equal_reports(
        (nodes, transfers) in (1..12u32, 1..400u32),
        baseline in prop::option::of(prop::sample::select(&Baseline::ALL[..])),
    ) {
        let topology = cluster("sapling", nodes);
        let workload = Workload::exchange(&topology, transfers);
        let setup = Setup { baseline, ..Setup::default() };
        let report = played(&topology, &workload, &setup).unwrap();
        let stages = report.copies.iter().zip(&workload.cases[0].copies);
        let stages: usize = stages.map(|(copy, spec)| copy.plans.len() * spec.count as usize).sum();
        prop_assert_eq!(report.tally.transfers, stages as u64);
        prop_assert_eq!(played(&topology, &workload, &setup).unwrap(), report);
    }
}
