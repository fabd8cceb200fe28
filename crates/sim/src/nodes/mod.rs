//! Several engines that run plans together, against a wire and nodes that do all they may.
//!
//! **Hazard.** Two engines that agree when every packet comes at once may not when one is lost,
//! late, repeated, or the last that its sender ever sent. **Guarantee.** A run is a function of its
//! [`NodeScenario`]: the shipped engines, one for each node, a wire that loses, repeats and
//! reorders, and nodes that die, come back, stand still and are cut off, also one way only; what a
//! dead or cut-off node was writing may still arrive until the reader's driver has said that it does
//! not. **Structure.**
//! [`node_scenario`] draws a scenario from a seed, [`run_nodes`] plays it.
//!
//! Every run checks: bounds, staging and urgency as [`crate::run`] does, on every node; that nobody
//! writes to a node that has not let him, or no longer knows of the transfer, or is in another life
//! than the region was named in; every byte of a destination, and around it; that peers are given up
//! for a reason; that every transfer whose asker lives ends once, for a reason, and was committed or
//! undone once; that its progress is true; that nothing is left.

mod faults;
mod generate;
mod plant;
mod trouble;
mod verdict;
mod world;

pub use generate::node_scenario;

use crate::report::{Failure, Summary};
use crate::scenario::Scenario;
use crate::trace::Entry;
use crate::violation::Violation;
use crate::{Run, message_of};
use engine::EngineConfig;
use model::{NodeId, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use world::World;

/// How the wire between engines treats packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireSpec {
    /// The least time that a packet takes.
    pub latency_ns: u64,
    /// The most that one takes longer, by chance.
    pub jitter_ns: u64,
    /// Of a hundred packets, so many are lost.
    pub lost_percent: u64,
    /// Of a hundred packets, so many come twice.
    pub repeated_percent: u64,
    /// Of a hundred packets, so many come as late as others' next lives.
    pub late_percent: u64,
    /// A peer that is silent for so long is given up.
    pub lease: Duration,
    /// What is not acknowledged for so long is sent again.
    pub resend: Duration,
}

/// What happens to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFault {
    /// It stops, with all that it knew.
    Die(NodeId),
    /// If it is dead it comes back, in another life, knowing nothing.
    Return(NodeId),
    /// No packet between the two arrives for a while; what they write still does.
    Part {
        /// One of them.
        one: NodeId,
        /// The other.
        other: NodeId,
        /// How long.
        for_ns: u64,
        /// Whether what the other sends arrives.
        is_one_way: bool,
    },
    /// Its engine does not run for a while; its channels do.
    Stall {
        /// The node.
        node: NodeId,
        /// How long.
        for_ns: u64,
    },
}

/// A run of several nodes. Equal scenarios with equal seeds run alike, event for event.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeScenario {
    /// How many nodes there are.
    pub nodes: u32,
    /// Channels, pools, transfers and faults as on one node; ids say where each is.
    pub base: Scenario,
    /// Who asks for each transfer.
    pub askers: Vec<NodeId>,
    /// The wire.
    pub wire: WireSpec,
    /// The most transfers that each engine knows at once.
    pub max_transfers: u32,
    /// What happens to nodes, and when.
    pub faults: Vec<(Time, NodeFault)>,
}

impl NodeScenario {
    /// The nodes where a transfer starts and ends.
    fn ends(&self, transfer: usize) -> [NodeId; 2] {
        let memories = &self.base.transfers[transfer].plan.memories;
        [memories[0].node, memories[memories.len() - 1].node]
    }

    /// The node that runs the last hop of a transfer, and commits it.
    fn committer(&self, transfer: usize) -> NodeId {
        let hops = &self.base.transfers[transfer].plan.hops;
        hops[hops.len() - 1].channel.node
    }

    /// Whether engines may have to refuse transfers for want of room.
    fn has_small_tables(&self) -> bool {
        self.max_transfers < EngineConfig::MAX_TRANSFERS
    }
}

/// Plays `scenario` to its end, or to the first rule that an engine breaks.
#[must_use]
pub fn run_nodes(scenario: &NodeScenario) -> Run {
    let seed = scenario.base.seed;
    let played = catch_unwind(AssertUnwindSafe(|| play(scenario)));
    let (trace, result) = played.unwrap_or_else(|panic| {
        let message = message_of(panic.as_ref());
        (Vec::new(), Err((Time(0), Violation::Panicked { message })))
    });
    let failure = |(at, violation)| Failure { seed, at, violation };
    let result = result.map(|()| Summary::of(&trace)).map_err(failure);
    Run { trace, result }
}

fn node_id(at: usize) -> NodeId {
    NodeId(u32::try_from(at).expect("few nodes"))
}

type Played = (Vec<Entry>, Result<(), (Time, Violation)>);

fn play(scenario: &NodeScenario) -> Played {
    match World::new(scenario) {
        Ok(world) => world.run(),
        Err(violation) => (Vec::new(), Err((Time(0), violation))),
    }
}
