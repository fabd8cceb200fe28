//! Times the planner on the Sapling file: a cached plan, the simple algorithm, and the full one
//! with a cold cache over all pairs of memories and 8 pairs of layouts, in 1-D and 2-D.
//!
//! Run with `cargo run --release -p isometry-planner --example bench_planner [FILTER]`.

use bench::{Case, Group, median, seconds_of};
use isometry_planner::{Choice, Options, PlanCache, Query, plan};
use model::{Algorithm, Component, CostModel, Layout, MemoryId, NodeId, Plan, Topology};

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");
const FIELDS: [u64; 8] = [4; 8];
/// Repetitions of each plan; its time is their median.
const RUNS: usize = 5;
/// Calls timed together, where one is shorter than the clock is fine.
const BATCH: u32 = 1000;

struct Setup {
    topology: Topology,
    rank: usize,
    extents: Vec<u64>,
    layouts: Vec<[Layout; 2]>,
}

impl Setup {
    /// 4 Mi entries of 8 integers, as in the paper's section 6.
    fn new(rank: usize) -> Setup {
        let topology = cluster::parse(SAPLING).expect("the shipped file is right");
        let (extents, layouts) = match rank {
            1 => (vec![4 << 20], one_dimension()),
            _ => (vec![2048, 2048], two_dimensions()),
        };
        Setup { topology, rank, extents, layouts }
    }

    fn query<'a>(&'a self, ends: [MemoryId; 2], layouts: &'a [Layout; 2]) -> Query<'a> {
        Query::whole((ends[0], &layouts[0]), (ends[1], &layouts[1]), &self.extents, &FIELDS)
    }

    /// From every memory of the first node to every one of the first two.
    fn pairs(&self) -> Vec<[MemoryId; 2]> {
        let count = u16::try_from(self.topology.classes[0].memories.len()).unwrap_or(0);
        let of = |node| (0..count).map(move |index| MemoryId { node: NodeId(node), index });
        of(0).flat_map(|src| of(0).chain(of(1)).map(move |dst| [src, dst])).collect()
    }
}

fn inner(dim: u8, size: u64) -> Component {
    Component::Inner { dim, level: 1, size }
}

fn pairs_of(orders: &[Vec<Component>], pairs: [(usize, usize); 8]) -> Vec<[Layout; 2]> {
    let rank = orders[0].len() - 1;
    let layout = |i: usize| Layout::new(orders[i].clone(), rank).expect("a layout");
    pairs.map(|(from, to)| [layout(from), layout(to)]).into()
}

fn one_dimension() -> Vec<[Layout; 2]> {
    use Component::{Fields, Outer, Whole};
    let orders = [
        vec![Fields, Whole(0)],
        vec![Whole(0), Fields],
        vec![inner(0, 4), Fields, Outer(0)],
        vec![inner(0, 16), Fields, Outer(0)],
    ];
    pairs_of(&orders, [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 1), (1, 3), (2, 3)])
}

fn two_dimensions() -> Vec<[Layout; 2]> {
    use Component::{Fields, Outer, Whole};
    let orders = [
        vec![Fields, Whole(1), Whole(0)],
        vec![Fields, Whole(0), Whole(1)],
        vec![Whole(1), Whole(0), Fields],
        vec![Whole(0), Whole(1), Fields],
        vec![Whole(1), Fields, Whole(0)],
        vec![inner(1, 8), inner(0, 8), Outer(1), Outer(0), Fields],
    ];
    pairs_of(&orders, [(0, 0), (0, 1), (0, 2), (2, 1), (2, 3), (0, 4), (5, 0), (0, 5)])
}

/// Whether a plan starts and ends where it should and holds together.
fn is_sound(plan: &Plan, query: &Query<'_>) -> bool {
    let ends = [plan.memories.first(), plan.memories.last()];
    ends == [Some(&query.src.memory), Some(&query.dst.memory)]
        && plan.layouts.len() == plan.hops.len() + 1
        && plan.buffers.len() + 1 == plan.hops.len()
        && plan.throughput > 0.0
}

/// The seconds of one call, by batches.
fn batched(mut call: impl FnMut()) -> Vec<f64> {
    let mut batch = || seconds_of(|| (0..BATCH).for_each(|_| call())) / f64::from(BATCH);
    (0..31).map(|_| batch()).collect()
}

fn case(name: &str, runs: usize) -> Case {
    Case { name: name.to_owned(), bytes: 128 << 20, threads: 1, runs }
}

fn cached(group: &mut Group) {
    let setup = Setup::new(2);
    let query = setup.query(setup.pairs()[9], &setup.layouts[1]);
    let options = Options::default();
    let mut cache = PlanCache::new(256);
    let mut plan = || cache.plan(&setup.topology, &query, &options).expect("a plan");
    let verified = is_sound(&plan().plan, &query) && plan().hit;
    let seconds = batched(|| {
        std::hint::black_box(plan());
    });
    group.record(&case("cached plan", 31), verified, &["isometry"], &[seconds]);
}

/// Every pair of memories and layouts: the seconds of each plan, and the largest share of the
/// predicted time that planning takes.
fn sweep(group: &mut Group, name: &str, setup: &Setup, options: &Options) {
    let (mut seconds, mut verified, mut share) = (Vec::new(), true, 0.0f64);
    for ends in setup.pairs() {
        for layouts in &setup.layouts {
            let query = setup.query(ends, layouts);
            let Ok(planned) = plan(&setup.topology, &query, options) else { continue };
            verified &= is_sound(&planned, &query);
            let planned_again = || plan(&setup.topology, &query, options).ok();
            let time = |_| seconds_of(|| drop(std::hint::black_box(planned_again())));
            let typical = median(&(0..RUNS).map(time).collect::<Vec<_>>());
            let predicted = setup.payload_seconds(&planned);
            share = share.max(typical / predicted);
            seconds.push(typical);
        }
    }
    seconds.sort_by(f64::total_cmp);
    let (count, longest) = (seconds.len(), seconds.last().copied().unwrap_or(0.0));
    let late = seconds[count * 99 / 100];
    group.record(&case(name, count), verified, &["isometry"], &[seconds]);
    group.figure("plans", count as f64);
    group.figure("p99_us", late * 1e6);
    group.figure("longest_us", longest * 1e6);
    group.figure("largest_share_of_predicted_time", share);
}

impl Setup {
    fn payload_seconds(&self, plan: &Plan) -> f64 {
        let bytes = self.extents.iter().product::<u64>() * FIELDS.iter().sum::<u64>();
        plan.seconds.unwrap_or(bytes as f64 / plan.throughput)
    }
}

fn direct(group: &mut Group) {
    let setup = Setup::new(1);
    let mut topology = setup.topology.clone();
    topology.classes[0].count = 1;
    topology.links.clear();
    let query = setup.query(setup.pairs()[0], &setup.layouts[0]);
    let options = Options { choice: Choice::Only(Algorithm::Simple), ..Options::default() };
    let verified = plan(&topology, &query, &options).is_ok_and(|p| is_sound(&p, &query));
    let seconds = batched(|| {
        std::hint::black_box(plan(&topology, &query, &options).ok());
    });
    let name = "simple, SYS to SYS on one machine";
    group.record(&case(name, 31), verified, &["isometry"], &[seconds]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut group = Group::from_args("planner")?;
    if group.wants("cached plan") {
        cached(&mut group);
    }
    if group.wants("simple, SYS to SYS on one machine") {
        direct(&mut group);
    }
    for rank in [1, 2] {
        let setup = Setup::new(rank);
        for algorithm in [Algorithm::Simple, Algorithm::Full] {
            for model in [CostModel::Paper, CostModel::Default] {
                let name = format!("{algorithm:?}, {model:?} model, {}-D", setup.rank);
                let options =
                    Options { choice: Choice::Only(algorithm), model, ..Options::default() };
                if group.wants(&name) {
                    sweep(&mut group, &name, &setup, &options);
                }
            }
        }
    }
    if group.finish()? { Ok(()) } else { Err("a case gave a wrong result".into()) }
}
