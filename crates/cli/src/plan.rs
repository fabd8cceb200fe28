//! `iso plan`.

use crate::args::{Algorithm, Model, Plan};
use crate::failure::Failure;
use crate::{output, topo};
use isometry::Planned;
use model::{CostModel, FieldSpace, IndexSpace, Layout, MemoryId, Topology};
use planner::{Choice, Options, PlanError, Query};
use std::sync::Arc;
use std::time::Instant;

/// Plans, and prints the plan with its alternatives.
pub(crate) fn run(args: &Plan) -> Result<(), Failure> {
    let topology = topo::read(args.cluster.as_deref(), false)?;
    let planned = planned(args, topology)?;
    match args.json {
        true => output::json(&planned.to_json()),
        false => output::text(&planned.explain()),
    }
}

fn planned(args: &Plan, topology: Topology) -> Result<Planned, Failure> {
    let dims: Vec<_> = args.dims.0.iter().map(|(name, extent)| (&**name, *extent)).collect();
    let space = IndexSpace::of(&dims).map_err(Failure::usage)?;
    let fields = FieldSpace::packed(&args.fields).map_err(Failure::usage)?;
    let field_bytes: Vec<_> = fields.fields().iter().map(|f| f.bytes).collect();
    let (from, to) = (layout(&args.from_layout, &space)?, layout(&args.to_layout, &space)?);
    let (src, dst) = (memory(&topology, &args.src)?, memory(&topology, &args.dst)?);
    let extents = space.extents();
    let query = Query::whole((src, &from), (dst, &to), &extents, &field_bytes);
    let started = Instant::now();
    let plan = planner::plan(&topology, &query, &options(args.algorithm, args.model, args.th));
    let plan_time = started.elapsed();
    let plan = Arc::new(plan.map_err(|error| refused(&error, &topology))?);
    Ok(Planned { plan, topology: Arc::new(topology), space, plan_time, cached: false })
}

/// How the planner is to search.
pub(crate) fn options(algorithm: Algorithm, model: Model, th_bytes: Option<u64>) -> Options {
    let choice = match algorithm {
        Algorithm::Auto => Choice::Auto,
        Algorithm::Full => Choice::Only(model::Algorithm::Full),
        Algorithm::Simple => Choice::Only(model::Algorithm::Simple),
        Algorithm::Spsl => Choice::Only(model::Algorithm::Spsl),
        Algorithm::Spdl => Choice::Only(model::Algorithm::Spdl),
    };
    let model = match model {
        Model::Paper => CostModel::Paper,
        Model::Default => CostModel::Default,
    };
    Options { choice, model, th_bytes, ..Options::default() }
}

fn layout(text: &str, space: &IndexSpace) -> Result<Layout, Failure> {
    layout::parse(text, space).map_err(|e| Failure::usage(format_args!("`{text}`: {e}")))
}

fn memory(topology: &Topology, name: &str) -> Result<MemoryId, Failure> {
    let unknown = || Failure::usage(format_args!("no memory `{name}`; `iso topo` lists them"));
    topology.memory_named(name).ok_or_else(unknown)
}

/// A query that contradicts itself is wrong usage; no path is a failure.
fn refused(error: &PlanError, topology: &Topology) -> Failure {
    let told = error.told(|memory| format!("`{}`", topology.short_name(memory)));
    match error.kind() {
        planner::ErrorKind::Query => Failure::usage(told),
        _ => Failure::failed(told),
    }
}
