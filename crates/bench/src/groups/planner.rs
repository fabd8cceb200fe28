//! Times the planner on the Sapling file: a cached plan, the simple algorithm, and the full one
//! with a cold cache over all pairs of memories and of layouts, in 1-D and 2-D.

use crate::problems::{self, Dims};
use crate::report::{Bench, Case, timed};
use crate::settings::Stop;
use crate::stats::median;
use crate::{Error, Report, Settings};
use model::{Algorithm, CostModel, IndexSpace, Layout, MemoryId, NodeId, Plan, Topology};
use planner::{Choice, Options, PlanCache, Query, plan};
use serde::Deserialize;
use std::hint::black_box;

const PROBLEMS: &str = include_str!("../../../../bench/problems/planner.toml");
const SAPLING: &str = include_str!("../../../../clusters/sapling.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    /// The fields of an entry.
    field_bytes: Vec<u64>,
    /// Repetitions of each plan; its time is their median.
    repetitions: usize,
    /// Calls timed together, where one is shorter than the clock is fine, and how often.
    batch: usize,
    runs: usize,
    space: Vec<Space>,
}

/// A box, and the pairs of layouts that it is planned between.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Space {
    dims: Dims,
    layouts: Vec<[String; 2]>,
}

struct Setup<'a> {
    problems: &'a Problems,
    topology: Topology,
    extents: Vec<u64>,
    layouts: Vec<[Layout; 2]>,
}

impl<'a> Setup<'a> {
    fn new(problems: &'a Problems, space: &Space) -> Result<Self, Error> {
        let topology = cluster::parse(SAPLING).map_err(Error::part("reading the cluster"))?;
        let dims = space.dims.pairs();
        let index = IndexSpace::of(&dims).map_err(Error::part("a box to plan for"))?;
        let parsed = |text: &String| {
            layout::parse(text, &index).map_err(Error::part("a layout to plan for"))
        };
        let pair = |[from, to]: &[String; 2]| Ok([parsed(from)?, parsed(to)?]);
        let layouts = space.layouts.iter().map(pair).collect::<Result<_, Error>>()?;
        let extents = dims.iter().map(|(_, extent)| *extent).collect();
        Ok(Setup { problems, topology, extents, layouts })
    }

    fn query<'q>(&'q self, ends: [MemoryId; 2], layouts: &'q [Layout; 2]) -> Query<'q> {
        let fields = &self.problems.field_bytes;
        Query::whole((ends[0], &layouts[0]), (ends[1], &layouts[1]), &self.extents, fields)
    }

    /// From every memory of the first node to every one of the first two.
    fn pairs(&self) -> Vec<[MemoryId; 2]> {
        let count = u16::try_from(self.topology.classes[0].memories.len()).unwrap_or(0);
        let of = |node| (0..count).map(move |index| MemoryId { node: NodeId(node), index });
        of(0).flat_map(|src| of(0).chain(of(1)).map(move |dst| [src, dst])).collect()
    }

    fn payload_bytes(&self) -> u64 {
        self.extents.iter().product::<u64>() * self.problems.field_bytes.iter().sum::<u64>()
    }

    fn seconds_of(&self, plan: &Plan) -> f64 {
        plan.seconds.unwrap_or(self.payload_bytes() as f64 / plan.throughput)
    }

    fn case(&self, name: &str) -> Case {
        let (bytes, runs) = (self.payload_bytes(), self.problems.runs);
        Case { name: name.to_owned(), bytes, threads: 1, runs, calls: 1 }
    }

    /// The seconds of one call, by batches.
    fn batched(&self, bench: &Bench, mut call: impl FnMut()) -> Result<Vec<f64>, Error> {
        let batch = self.problems.batch;
        let mut seconds = || {
            let all = timed(|| {
                (0..batch).for_each(|_| call());
                Ok(())
            })?;
            Ok(all / batch as f64)
        };
        (0..bench.runs(self.problems.runs)).map(|_| seconds()).collect()
    }
}

/// Whether a plan starts and ends where it should and holds together.
fn is_sound(plan: &Plan, query: &Query<'_>) -> bool {
    let ends = [plan.memories.first(), plan.memories.last()];
    ends == [Some(&query.src.memory), Some(&query.dst.memory)]
        && plan.layouts.len() == plan.hops.len() + 1
        && plan.buffers.len() + 1 == plan.hops.len()
        && plan.throughput > 0.0
}

fn cached(bench: &mut Bench, name: &str, setup: &Setup<'_>) -> Result<(), Error> {
    let query = setup.query(setup.pairs()[9], &setup.layouts[1]);
    let (options, mut cache) = (Options::default(), PlanCache::new(256));
    let mut plan = || cache.plan(&setup.topology, &query, &options);
    plan().map_err(Error::part("planning"))?;
    let verified = plan().is_ok_and(|found| is_sound(&found.plan, &query) && found.hit);
    let seconds = setup.batched(bench, || drop(black_box(plan())))?;
    bench.record(&setup.case(name), verified, &["isometry"], &[seconds])
}

fn direct(bench: &mut Bench, name: &str, setup: &Setup<'_>) -> Result<(), Error> {
    let mut topology = setup.topology.clone();
    topology.classes[0].count = 1;
    topology.links.clear();
    let query = setup.query(setup.pairs()[0], &setup.layouts[0]);
    let options = Options { choice: Choice::Only(Algorithm::Simple), ..Options::default() };
    let again = || plan(&topology, &query, &options);
    let verified = again().is_ok_and(|p| is_sound(&p, &query));
    let seconds = setup.batched(bench, || drop(black_box(again())))?;
    bench.record(&setup.case(name), verified, &["isometry"], &[seconds])
}

/// What planning every pair of memories and of layouts took.
#[derive(Default)]
struct Swept {
    verified: bool,
    /// Of each plan, ascending.
    seconds: Vec<f64>,
    /// The largest share of the predicted time that planning takes.
    share: f64,
}

fn sweep(setup: &Setup<'_>, options: &Options, stop: &Stop) -> Result<Swept, Error> {
    let mut swept = Swept { verified: true, ..Swept::default() };
    for ends in setup.pairs() {
        stop.check()?;
        for layouts in &setup.layouts {
            let query = setup.query(ends, layouts);
            let again = || plan(&setup.topology, &query, options);
            let Ok(planned) = again() else { continue };
            swept.verified &= is_sound(&planned, &query);
            let once = |_| {
                timed(|| {
                    drop(black_box(again()));
                    Ok(())
                })
            };
            let times = (0..setup.problems.repetitions).map(once).collect::<Result<Vec<_>, _>>()?;
            let typical = median(&times);
            swept.share = swept.share.max(typical / setup.seconds_of(&planned));
            swept.seconds.push(typical);
        }
    }
    swept.seconds.sort_by(f64::total_cmp);
    Ok(swept)
}

fn swept(bench: &mut Bench, name: &str, setup: &Setup<'_>, options: &Options) -> Result<(), Error> {
    let Swept { verified, seconds, share } = sweep(setup, options, &bench.stop())?;
    let (count, longest) = (seconds.len(), seconds.last().copied().unwrap_or(0.0));
    let late = seconds.get(count * 99 / 100).copied().unwrap_or(0.0);
    bench.record(&setup.case(name), verified && count > 0, &["isometry"], &[seconds])?;
    bench.figure("plans", count as f64)?;
    bench.figure("p99_us", late * 1e6)?;
    bench.figure("longest_us", longest * 1e6)?;
    bench.figure("largest_share_of_predicted_time", share)
}

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("planner", PROBLEMS)?;
    let mut bench = Bench::new("planner", settings)?;
    let setups = problems.space.iter().map(|space| Setup::new(&problems, space));
    let setups = setups.collect::<Result<Vec<_>, _>>()?;
    type Run = fn(&mut Bench, &str, &Setup<'_>) -> Result<(), Error>;
    let lone: [(&str, Run, usize); 2] = [
        ("cached plan", cached, setups.len() - 1),
        ("simple, SYS to SYS on one machine", direct, 0),
    ];
    for (name, run, setup) in lone {
        if bench.wants(name) {
            run(&mut bench, name, &setups[setup])?;
        }
    }
    for setup in &setups {
        for algorithm in [Algorithm::Simple, Algorithm::Full] {
            for model in [CostModel::Paper, CostModel::Default] {
                let name = format!("{algorithm:?}, {model:?} model, {}-D", setup.extents.len());
                let choice = Choice::Only(algorithm);
                if bench.wants(&name) {
                    let options = Options { choice, model, ..Options::default() };
                    swept(&mut bench, &name, setup, &options)?;
                }
            }
        }
    }
    bench.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_can_be_read() {
        let problems: Problems = problems::read("planner", PROBLEMS).unwrap();
        let ranks: Vec<_> = problems.space.iter().map(|s| s.dims.pairs().len()).collect();
        assert_eq!(ranks, [1, 2]);
        for space in &problems.space {
            let setup = Setup::new(&problems, space).unwrap();
            assert_eq!(setup.payload_bytes(), 128 << 20);
            assert_eq!(setup.layouts.len(), 8);
        }
    }
}
