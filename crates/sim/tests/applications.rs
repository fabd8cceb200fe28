//! Applications on clusters that are not there.

use isometry_sim::{Baseline, Case, CaseReport, Setup, SimulateError, Workload, simulate};
use model::Topology;
use std::time::Duration;

fn play(name: &str, cluster: &str, nodes: u32) -> (Case, CaseReport) {
    let topology = cluster::with_nodes(cluster::ready_made(cluster).unwrap(), nodes).unwrap();
    let case = Workload::ready_made(name, &topology).unwrap().unwrap().cases.remove(0);
    let report = run(&topology, &case);
    (case, report)
}

fn run(topology: &Topology, case: &Case) -> CaseReport {
    simulate(topology, case, &Setup::default(), &mut || true).unwrap()
}

#[test]
fn nothing_is_planned_after_the_first_iteration() {
    for (name, cluster) in [("pagerank", "xstream"), ("vgg16", "xstream"), ("circuit", "moonlight")]
    {
        let (case, report) = play(name, cluster, 4);
        assert_eq!(report.plans.len(), 4, "{name}");
        for (node, plans) in &report.plans {
            assert!(plans.last_copy < case.copies.len() / 4, "{name} {node} {plans:?}");
            assert!(plans.made.iter().sum::<usize>() > 0, "{name} {node} {plans:?}");
        }
    }
}

#[test]
fn a_key_without_extents_makes_other_plans() {
    // From each node its own ranks and those to three others; these three are alike for us.
    let (_, pagerank) = play("pagerank", "xstream", 4);
    for (_, plans) in &pagerank.plans {
        assert_eq!((plans.made, plans.by_papers_key), ([2, 0], [4, 0]));
    }
    // The master's large copies to each part, itself among them, and its messages.
    let (_, circuit) = play("circuit", "moonlight", 4);
    assert_eq!(circuit.plans[0].1.by_papers_key, [4 + 1, 4]);
}

#[test]
fn communication_is_what_computing_leaves() {
    let (case, report) = play("pagerank", "xstream", 2);
    let computing = case.computing();
    // Four times 16 edges for each of 32 Mi vertices, at 2e9 a second.
    let four = Duration::from_secs_f64(4.0 * 16.0 * f64::from(32 << 20) / 2e9);
    assert!(computing.abs_diff(four) < Duration::from_nanos(8), "{computing:?} {four:?}");
    assert!(report.ended.0 > u64::try_from(computing.as_nanos()).unwrap());
}

#[test]
fn rows_of_a_box_cost_what_they_are_long() {
    let topology = cluster::ready_made("sapling").unwrap();
    let seconds = |from: &str| {
        let text = format!(
            "[[copy]]\nfrom = \"n0.fbm\"\nto = \"n0.sys\"\ndims = {{ box = \"y=65536,x=512..528\", from = \"{from}\" }}\n\
             fields = [4]\nfrom_layout = \"yx\"\nto_layout = \"yx\"\n"
        );
        let case = Workload::parse(&text, &topology).unwrap().cases.remove(0);
        run(&topology, &case).copies[0].seconds()
    };
    // Contiguous, or rows of 64 bytes that are 8 KiB apart.
    let (whole, rows) = (seconds("y=65536,x=512..528"), seconds("y=65536,x=2048"));
    assert!(rows > 10.0 * whole, "{rows} {whole}");
}

#[test]
fn caches_and_weights_change_their_layout_on_the_way() {
    let (_, kv) = play("kv", "modern", 2);
    let (_, reshard) = play("reshard", "modern", 2);
    for report in [kv, reshard] {
        let slow: Vec<_> = report.copies.iter().map(|copy| copy.seconds()).collect();
        assert!(slow.iter().all(|&s| s > 0.0 && s < 1.0), "{slow:?}");
    }
}

#[test]
fn one_request_at_a_time_pays_every_latency() {
    let topology = cluster::ready_made("modern").unwrap();
    let text = "[[copy]]\nfrom = \"n0.gpu0\"\nto = \"n0.gpu1\"\ndims = \"x=268435456\"\nfields = [1]\n\
                from_layout = \"x\"\nto_layout = \"x\"\n";
    let case = Workload::parse(text, &topology).unwrap().cases.remove(0);
    let one = Setup { baseline: Some(Baseline::OneInFlight), ..Setup::default() };
    let one = simulate(&topology, &case, &one, &mut || true).unwrap();
    let ours = run(&topology, &case);
    assert_eq!(ours.tally.requests, one.tally.requests);
    // The second of two requests waits for its latency after the first.
    let latencies = (ours.tally.requests - 1) * 3000;
    let more = one.ended.since(ours.ended).as_nanos();
    assert!(more > 0 && more <= latencies.into(), "{more} of {latencies}");
}

#[test]
fn a_case_that_outlasts_virtual_time_is_told() {
    let topology = cluster::ready_made("sapling").unwrap();
    let copy = |name: &str, after: &str| {
        format!(
            "[[copy]]\nname = \"{name}\"\nfrom = \"n0.sys\"\nto = \"n1.fbm\"\ndims = \"x=1024\"\n\
             fields = [4]\nfrom_layout = \"x\"\nto_layout = \"x\"\nafter = [{after}]\n\
             compute_ns = 9223372036854775807\n"
        )
    };
    let text = [copy("a", ""), copy("b", "\"a\""), copy("c", "\"b\"")].concat();
    let case = Workload::parse(&text, &topology).unwrap().cases.remove(0);
    let told = simulate(&topology, &case, &Setup::default(), &mut || true).unwrap_err();
    assert_eq!(told, SimulateError::TooLong { left: 3 });
}
