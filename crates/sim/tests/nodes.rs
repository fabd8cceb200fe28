//! Several engines that run plans together.

use isometry_sim::{Event, Fault, NodeFault, NodeScenario, node_scenario, run_nodes};
use model::{ChannelErrorKind, Outcome};

#[test]
fn a_seed_of_several_nodes_fixes_everything() {
    for seed in 0..50 {
        assert!(node_scenario(seed) == node_scenario(seed), "seed {seed}");
        assert!(run_nodes(&node_scenario(seed)) == run_nodes(&node_scenario(seed)), "seed {seed}");
    }
}

#[test]
fn without_payload_the_same_happens_on_several_nodes() {
    for seed in 0..200 {
        let mut scenario = node_scenario(seed);
        let with = run_nodes(&scenario);
        scenario.base.payload = false;
        assert!(run_nodes(&scenario) == with, "seed {seed}");
    }
}

#[test]
fn every_kind_of_trouble_is_drawn() {
    let scenarios: Vec<NodeScenario> = (0..600).map(node_scenario).collect();
    let count = |kind: &dyn Fn(&NodeScenario) -> bool| scenarios.iter().filter(|s| kind(s)).count();
    let has =
        |s: &NodeScenario, fault: fn(&NodeFault) -> bool| s.faults.iter().any(|f| fault(&f.1));
    assert!(count(&|s| has(s, |f| matches!(f, NodeFault::Die(_)))) > 100);
    assert!(count(&|s| has(s, |f| matches!(f, NodeFault::Return(_)))) > 60);
    assert!(count(&|s| has(s, |f| matches!(f, NodeFault::Part { is_one_way: false, .. }))) > 40);
    assert!(count(&|s| has(s, |f| matches!(f, NodeFault::Part { is_one_way: true, .. }))) > 40);
    assert!(count(&|s| has(s, |f| matches!(f, NodeFault::Stall { .. }))) > 40);
    assert!(count(&|s| s.max_transfers < 9) > 100);
    let stall_ns = |s: &NodeScenario| {
        let stalls = s.base.faults.iter().filter_map(|fault| match fault.1 {
            Fault::Stall { for_ns, .. } => Some(for_ns),
            _ => None,
        });
        stalls.max().unwrap_or(0)
    };
    assert!(count(&|s| u128::from(stall_ns(s)) > s.wire.lease.as_nanos()) > 10);
    assert!(
        count(&|s| s.wire.lost_percent > 0) > 100 && count(&|s| s.wire.repeated_percent > 0) > 100
    );
    let nodes = |s: &NodeScenario| {
        let path = |t: &isometry_sim::TransferSpec| {
            let mut nodes: Vec<_> = t.plan.memories.iter().map(|m| m.node).collect();
            nodes.dedup();
            nodes.len()
        };
        s.base.transfers.iter().map(path).max()
    };
    assert!(count(&|s| nodes(s) >= Some(3)) > 60 && count(&|s| nodes(s) >= Some(2)) > 300);
    let third = |s: &NodeScenario| {
        let transfers = s.base.transfers.iter().zip(&s.askers);
        transfers.filter(|(t, a)| t.plan.memories.iter().all(|m| m.node != **a)).count()
    };
    assert!(count(&|s| third(s) > 0) > 100);
}

/// Ends of all kinds come about, so that no rule is kept for want of cases.
#[test]
fn transfers_between_nodes_end_in_every_way() {
    let (mut done, mut cancelled, mut timed_out, mut broken) = (0, 0, 0, 0);
    let (mut lost, mut busy) = (0, 0);
    for seed in 0..1000 {
        let run = run_nodes(&node_scenario(seed));
        run.result.unwrap_or_else(|e| panic!("{e}"));
        for entry in run.trace {
            let Event::Ended { outcome, .. } = entry.event else { continue };
            match outcome {
                Outcome::Done => done += 1,
                Outcome::Cancelled => cancelled += 1,
                Outcome::TimedOut => timed_out += 1,
                Outcome::Failed(e) => match e.cause.kind {
                    ChannelErrorKind::PeerLost => lost += 1,
                    ChannelErrorKind::Busy => busy += 1,
                    _ => broken += 1,
                },
            }
        }
    }
    assert!(
        done > 2500 && cancelled > 60 && timed_out > 40 && broken > 100,
        "{done} done, {cancelled} cancelled, {timed_out} timed out, {broken} broken"
    );
    assert!(lost > 200 && busy > 100, "{lost} lost, {busy} busy");
}
