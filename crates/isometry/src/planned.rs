//! Plans and reports as people and programs read them.

use crate::report::CopyReport;
use engine::HopReport;
use model::{Bound, IndexSpace, MemoryId, Outcome, Plan, Topology, TransferId};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A plan that was made and not run.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The plan.
    pub plan: Arc<Plan>,
    /// What it was made for.
    pub topology: Arc<Topology>,
    /// The dimensions that its layouts speak of.
    pub space: IndexSpace,
    /// What the search took, when the copy was first prepared.
    pub plan_time: Duration,
    /// Whether it came out of the cache: that of an equal copy, or of one whose boxes look alike.
    pub cached: bool,
}

impl Planned {
    /// The plan, the alternatives that were weighed, and what bound each, for people.
    #[must_use]
    pub fn explain(&self) -> String {
        planner::explain(&self.plan, &self.topology, &self.space)
    }

    /// The plan as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = plan_json(&self.plan, &self.topology, &self.space);
        value["plan_ns"] = json!(u64::try_from(self.plan_time.as_nanos()).unwrap_or(u64::MAX));
        value["cached"] = json!(self.cached);
        value
    }
}

/// A plan as one JSON object: `algorithm`, `model`, `throughput`, `memories`, `layouts`, `hops`,
/// `buffers`, `bound_by`, in the default model `seconds`, and `alternatives`.
#[must_use]
pub fn plan_json(plan: &Plan, topology: &Topology, space: &IndexSpace) -> Value {
    let name = |id: MemoryId| topology.short_name(id);
    let hops = plan.hops.iter().map(|hop| {
        json!({
            "channel": hop.kind.name(),
            "prefix_bytes": hop.prefix_bytes,
            "shuffle_bytes": hop.shuffle_bytes,
            "request_bytes": hop.request_bytes,
            "throughput": hop.throughput,
        })
    });
    let buffers =
        plan.buffers.iter().map(|b| json!({ "memory": name(b.memory), "bytes": b.bytes }));
    let mut value = json!({
        "algorithm": plan.algorithm.name(),
        "model": plan.model.name(),
        "throughput": plan.throughput,
        "memories": plan.memories.iter().map(|&m| name(m)).collect::<Vec<_>>(),
        "layouts": layouts(&plan.layouts, space),
        "hops": hops.collect::<Vec<_>>(),
        "buffers": buffers.collect::<Vec<_>>(),
        "bound_by": bound(&plan.bound_by),
        "alternatives": alternatives(plan, topology, space),
    });
    if let Some(seconds) = plan.seconds {
        value["seconds"] = json!(seconds);
    }
    value
}

/// Where a copy's time went, as one JSON object.
#[must_use]
pub fn report_json(report: &CopyReport, topology: &Topology) -> Value {
    let seconds = |d: Duration| d.as_secs_f64();
    let hops = report.times.hops.iter().map(|hop| hop_json(hop, topology));
    let outcome = report.outcome.as_ref().map(|outcome| match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Failed(error) => error.to_string(),
    });
    json!({
        "transfer": report.transfer.map(transfer_name),
        "outcome": outcome,
        "bytes": report.bytes(),
        "path": report.plan.memories.iter().map(|&m| topology.short_name(m)).collect::<Vec<_>>(),
        "predicted_seconds": report.plan.seconds,
        "waiting_for_others": seconds(report.times.waiting_for_others),
        "waiting_for_staging": seconds(report.times.waiting_for_staging),
        "running": seconds(report.times.running),
        "hops": hops.collect::<Vec<_>>(),
    })
}

/// What reports and traces call a transfer: no other of its machine has that name.
pub(crate) fn transfer_name(id: TransferId) -> String {
    format!("{}.{}", id.index, id.generation)
}

fn hop_json(hop: &HopReport, topology: &Topology) -> Value {
    let kind = topology.channel(hop.channel).map(|c| c.kind);
    let kind = kind.or_else(|| topology.link(hop.channel).map(|l| l.kind));
    json!({
        "channel": kind.map(model::ChannelKind::name),
        "from": topology.short_name(hop.from),
        "to": topology.short_name(hop.to),
        "bytes": hop.bytes,
        "requests": hop.requests,
        "busy": hop.busy.as_secs_f64(),
        "waiting_for_input": hop.waiting_for_input.as_secs_f64(),
        "waiting_for_space": hop.waiting_for_space.as_secs_f64(),
        "waiting_for_channel": hop.waiting_for_channel.as_secs_f64(),
        "held_up_by": hop.held_up_by.map(transfer_name),
    })
}

fn layouts(layouts: &[model::Layout], space: &IndexSpace) -> Vec<String> {
    layouts.iter().map(|layout| layout.display(space).to_string()).collect()
}

fn alternatives(plan: &Plan, topology: &Topology, space: &IndexSpace) -> Vec<Value> {
    let one = |other: &model::Alternative| {
        json!({
            "memories": other.memories.iter().map(|&m| topology.short_name(m)).collect::<Vec<_>>(),
            "layouts": layouts(&other.layouts, space),
            "throughput": other.throughput,
            "seconds": other.seconds,
            "bound_by": other.bound.as_ref().map(bound),
        })
    };
    plan.alternatives.iter().map(one).collect()
}

fn bound(bound: &Bound) -> Value {
    json!({ "hop": bound.hop, "why": bound.why.name() })
}
