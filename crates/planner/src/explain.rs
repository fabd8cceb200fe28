//! A plan in words.

use model::{Alternative, Bound, CostModel, Hop, IndexSpace, Limit, Plan, Topology};
use std::fmt::Write;

/// `plan` for people: the path with its layouts, requests and buffers, what bounds it, the
/// alternatives weighed and what bound each, and how much of its budget the search used. `space`
/// gives the dimensions their names.
#[must_use]
pub fn explain(plan: &Plan, topology: &Topology, space: &IndexSpace) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = write_plan(&mut text, plan, topology, space);
    text
}

fn write_plan(
    text: &mut String,
    plan: &Plan,
    topology: &Topology,
    space: &IndexSpace,
) -> std::fmt::Result {
    let model = match plan.model {
        CostModel::Paper => "the paper's model",
        CostModel::Default => "the default model",
    };
    let cost = cost(plan.throughput, plan.seconds);
    writeln!(text, "{} algorithm, {model}: {cost}", plan.algorithm.name())?;
    for (at, memory) in plan.memories.iter().enumerate() {
        let layout = plan.layouts[at].display(space);
        write!(text, "  {:<12} {layout}", topology.short_name(*memory))?;
        if let Some(buffer) = at.checked_sub(1).and_then(|i| plan.buffers.get(i)) {
            write!(text, "  in a buffer of {}", bytes(buffer.bytes))?;
        }
        text.push('\n');
        if let Some(hop) = plan.hops.get(at) {
            writeln!(text, "    {}", describe(hop))?;
        }
    }
    writeln!(text, "bound by {}", bound(plan, plan.bound_by))?;
    if plan.search.flows > 0 {
        writeln!(text, "beside {} flows of other transfers, by fair shares", plan.search.flows)?;
    }
    for other in &plan.alternatives {
        writeln!(text, "weighed: {}", alternative(other, topology, space))?;
    }
    let search = &plan.search;
    let end = if search.exhausted { "; the budget ended it" } else { "" };
    let (paths, solved, budget) = (search.paths, search.solved, search.budget);
    writeln!(text, "search: {paths} paths, {solved} solved, of at most {budget}{end}")
}

fn describe(hop: &Hop) -> String {
    let order = match hop.shuffle_bytes {
        1 => "in order".to_owned(),
        shuffle => {
            format!("reorders {} at a time, in runs of {}", bytes(shuffle), bytes(hop.prefix_bytes))
        }
    };
    let requests = bytes(hop.request_bytes);
    format!("{}: {order}, {}, requests of {requests}", hop.kind.name(), rate(hop.throughput))
}

fn bound(plan: &Plan, bound: Bound) -> String {
    let hop = plan.hops.get(bound.hop).map_or("", |h| h.kind.name());
    format!("hop {} ({hop}): {}", bound.hop, reason(bound.why))
}

fn reason(why: Limit) -> &'static str {
    match why {
        Limit::Channel => "its channel is at its peak, or shared",
        Limit::Request => "its requests are short, and the layouts allow no longer ones",
        Limit::Space => "TH stops a larger blocking factor",
        Limit::Latency => "latency and the fill of the pipeline dominate",
        Limit::Wire => "its wire carries all it can",
    }
}

fn alternative(other: &Alternative, topology: &Topology, space: &IndexSpace) -> String {
    let mut memories = Vec::with_capacity(other.memories.len());
    for (memory, layout) in other.memories.iter().zip(&other.layouts) {
        memories.push(format!("{} {}", topology.short_name(*memory), layout.display(space)));
    }
    let why = match other.bound {
        None => "no blocking factors satisfy its constraints".to_owned(),
        Some(Bound { hop, why }) => format!("hop {hop}: {}", reason(why)),
    };
    format!("{}: {}; {why}", memories.join(" → "), cost(other.throughput, other.seconds))
}

fn cost(throughput: f64, seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) => format!("{}, {} in all", rate(throughput), time(seconds)),
        None => rate(throughput),
    }
}

fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
        r if r >= 1e6 => format!("{:.1} MB/s", r / 1e6),
        r => format!("{:.1} kB/s", r / 1e3),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
