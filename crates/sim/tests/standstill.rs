//! Runs in which nothing goes on: the failure says who waits for whom.

mod support;

use isometry_sim::{Fault, NodeFault, NodeScenario, Scenario, WireSpec, run, run_nodes};
use model::{ChannelId, NodeId, Time};
use std::time::Duration;
use support::{Chain, scene};

const RING_BYTES: u64 = 4096;

/// Two alike over two hops, of which the staging holds one; the second channel never ends what it
/// takes.
fn stuck() -> Scenario {
    let chain =
        Chain { hops: 2, side: 256, request_bytes: 1024, ring_bytes: RING_BYTES, converts: false };
    let transfers = vec![chain.transfer(0), chain.transfer(0)];
    let channel = support::channel(1);
    let faults = vec![(Time(0), Fault::Stall { channel, for_ns: u64::MAX / 2 })];
    Scenario { faults, limit: Time(1_000_000_000), ..scene(&[1e9, 1e9], RING_BYTES, transfers) }
}

/// The same from node 0 to node 1, where ring and second channel are.
fn stuck_between_nodes() -> NodeScenario {
    let mut base = stuck();
    let there = NodeId(1);
    base.channels[1].id.node = there;
    base.pools.iter_mut().skip(1).for_each(|pool| pool.memory.node = there);
    for plan in base.transfers.iter_mut().map(|t| &mut t.plan) {
        plan.memories.iter_mut().skip(1).for_each(|memory| memory.node = there);
        plan.buffers[0].memory.node = there;
        plan.hops[1].channel.node = there;
    }
    let channel = ChannelId { node: there, index: 1 };
    base.faults = vec![(Time(0), Fault::Stall { channel, for_ns: u64::MAX / 2 })];
    let wire = WireSpec {
        latency_ns: 1000,
        jitter_ns: 0,
        lost_percent: 0,
        repeated_percent: 0,
        late_percent: 0,
        lease: Duration::from_millis(100),
        resend: Duration::from_millis(1),
    };
    let (askers, faults) = (vec![NodeId(0); 2], Vec::new());
    NodeScenario { nodes: 2, base, askers, wire, max_transfers: 9, faults }
}

fn assert_says(result: Result<isometry_sim::Summary, isometry_sim::Failure>, lines: &[&str]) {
    let text = result.expect_err("nothing goes on").to_string();
    for line in lines {
        assert!(text.contains(&format!("\n  {line}\n")), "`{line}` is not in:\n{text}");
    }
}

#[test]
fn who_holds_what_is_named() {
    assert_says(
        run(&stuck()).result,
        &[
            "transfer 0 waits for credit for hop 0 from node0",
            "transfer 0 waits for 2 requests of hop 1 on channel 1 of node0",
            "transfer 1 waits for staging in memory 1 of node0, held by transfer 0",
        ],
    );
}

#[test]
fn who_holds_what_on_which_node_is_named() {
    assert_says(
        run_nodes(&stuck_between_nodes()).result,
        &[
            "node0 transfer 0 waits for node1 to end its share",
            "node0 its share of transfer 0 waits for credit for hop 0 from node1",
            "node1 its share of transfer 0 waits for 2 requests of hop 1 on channel 1 of node1",
            "node0 transfer 1 waits for node1 to reserve its share",
            "node0 its share of transfer 1 waits for word from node1 where hop 0 may write",
            "node1 its share of transfer 1 waits for staging in memory 1 of node1, held by transfer 0",
        ],
    );
}

/// A node that stands still for ever, with peers of endless patience.
#[test]
fn whose_answer_is_missing_is_named() {
    let mut scenario = stuck_between_nodes();
    scenario.wire.lease = Duration::from_secs(1 << 20);
    let stall = NodeFault::Stall { node: NodeId(1), for_ns: u64::MAX / 2 };
    scenario.faults = vec![(Time(0), stall)];
    assert_says(
        run_nodes(&scenario).result,
        &["node0 transfer 0 waits for node1 to reserve its share"],
    );
}
