//! Puts to memory that has to be pinned: GASNet's Firehose beside pinning everything, rendezvous and
//! bounce buffers, on the access patterns of its slides.
//!
//! Two ranks, each a thread of this process and one that serves it, by shared memory. Nothing here
//! needs pinned memory: what is timed is what each strategy does to have it, with mlock in place of a
//! network's driver, and the put. Every strategy has ranks of its own and does the same work, whose
//! result is verified for each.

mod kernels;

use crate::problems;
use crate::report::{Bench, Case, Contender};
use crate::{Error, Report, Settings};
use isometry::fabric::firehose::{self, Firehose, Mlock, Strategy};
use isometry::fabric::model::NodeId;
use isometry::fabric::{Config, Handlers, Job, Service};
use serde::Deserialize;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

const PROBLEMS: &str = include_str!("../../../../../bench/problems/firehose.toml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    lent_bytes: u64,
    victim_bytes: u64,
    /// Of puts to one place, and how many of them are timed together.
    one_place_bytes: Vec<usize>,
    one_place_puts: usize,
    /// The most bytes of these.
    one_place_total: usize,
    /// From where to where puts of 8 bytes go at random.
    working_set_bytes: Vec<u64>,
    random_puts: usize,
    matrix_side: usize,
    sort_keys: usize,
    hits: usize,
    runs: usize,
}

/// The rank that is asked, and the one that asks.
const PEER: NodeId = NodeId(1);
const ME: NodeId = NodeId(0);

/// Ours first.
const STRATEGIES: [(&str, Strategy); 5] = [
    ("isometry", Strategy::Firehose),
    ("everything", Strategy::Everything),
    ("rendezvous", Strategy::Rendezvous),
    ("rendezvous unpin", Strategy::RendezvousUnpin),
    ("bounce", Strategy::Bounce),
];

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("firehose", PROBLEMS)?;
    let mut bench = Bench::new("firehose", settings)?;
    let mut pairs = Vec::new();
    for (name, strategy) in STRATEGIES {
        match Pair::join(name, strategy, &problems) {
            Ok(pair) => pairs.push(pair),
            // Who is not privileged may pin a little, and not all.
            Err(why) if strategy == Strategy::Everything => bench.absent(name, &why),
            Err(why) => return Err(why),
        }
    }
    let group = Group { pairs, problems };
    group.hits(&mut bench)?;
    group.one_place(&mut bench)?;
    group.random(&mut bench)?;
    group.cannon(&mut bench)?;
    group.bitonic(&mut bench)?;
    bench.finish()
}

/// Two ranks that pin in one way, and what serves them.
struct Pair {
    name: &'static str,
    ranks: [Firehose; 2],
    _services: [Service; 2],
}

impl Pair {
    fn join(name: &'static str, strategy: Strategy, problems: &Problems) -> Result<Pair, Error> {
        let job = Job::new(2).map_err(failed)?;
        let settings = firehose::Settings::new(problems.lent_bytes, problems.victim_bytes);
        let settings = firehose::Settings { strategy, ..settings };
        let bytes = problems.working_set_bytes.iter().copied().max().unwrap_or(0);
        let join = |rank: u32| {
            let variables = job.variables(rank);
            let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
            let mut config = Config::from_variables(find)?;
            config.segment_bytes = bytes.max(64 << 20);
            Firehose::join(&config, Handlers::new(), &settings, Arc::new(Mlock))
        };
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| join(1));
            let first = join(0);
            (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let ranks = [first.map_err(failed)?, second.map_err(failed)?];
        let serve = |rank: &Firehose| Service::of(Arc::clone(rank.fabric())).map_err(failed);
        let services = [serve(&ranks[0])?, serve(&ranks[1])?];
        Ok(Pair { name, ranks, _services: services })
    }

    /// Runs `work` as both ranks at once, and returns what they have.
    fn both<T: Send>(
        &self,
        work: impl Fn(&Firehose) -> Result<T, isometry::fabric::Error> + Sync,
    ) -> Result<[T; 2], Error> {
        let [first, second] = &self.ranks;
        let (ours, theirs) = thread::scope(|scope| {
            let theirs = scope.spawn(|| work(second));
            let ours = work(first);
            (ours, theirs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok([ours.map_err(failed)?, theirs.map_err(failed)?])
    }

    /// The hits and the misses of both ranks.
    fn counts(&self) -> [u64; 2] {
        let [a, b] = self.ranks.each_ref().map(Firehose::statistics);
        [a.hits + b.hits, a.misses + b.misses]
    }
}

struct Group {
    pairs: Vec<Pair>,
    problems: Problems,
}

/// What a contender does, by name.
type Work<'a> = (&'a str, Box<dyn Fn() -> Result<(), Error> + 'a>);

impl Group {
    fn case(&self, name: String, bytes: usize) -> Case {
        Case { name, bytes: bytes as u64, threads: 2, runs: self.problems.runs, calls: 1 }
    }

    /// Times all `works`, ours first, whose results `verified` says something of, and adds what ours
    /// found pinned.
    fn time(
        &self,
        bench: &mut Bench,
        (case, verified): (&Case, bool),
        works: &[Work<'_>],
    ) -> Result<(), Error> {
        let before = self.pairs[0].counts();
        let mut runs: Vec<_> = works.iter().map(|(_, work)| || work()).collect();
        let contenders = works.iter().zip(&mut runs);
        let mut contenders: Vec<_> =
            contenders.map(|((name, _), run)| Contender { name, run }).collect();
        bench.time((case, verified), &mut contenders, &mut || Ok(()))?;
        let after = self.pairs[0].counts();
        figures(bench, "", [after[0] - before[0], after[1] - before[1]])
    }

    /// What hits cost besides the puts: of one bucket, and of any of half of what is lent.
    fn hits(&self, bench: &mut Bench) -> Result<(), Error> {
        let count = self.problems.hits;
        for (which, bytes) in [("one bucket", 8), ("any bucket", self.problems.lent_bytes / 2)] {
            let case = self.case(format!("{which} held and released, x{count}"), 0);
            if !bench.wants(&case.name) {
                continue;
            }
            let (rank, places) = (&self.pairs[0].ranks[0], Places::new(bytes));
            let hold = |at| rank.hold(PEER, at, 8)?.wait(None);
            (0..bytes).step_by(4096).try_for_each(hold).map_err(failed)?;
            let all = || (0..count).try_for_each(|_| hold(places.next())).map_err(failed);
            self.time(bench, (&case, true), &[("isometry", Box::new(all))])?;
            let last = bench.cases().last();
            let seconds = last.and_then(|case| case.seconds.get("isometry").copied());
            bench.figure("nanoseconds a hit", seconds.unwrap_or(0.0) * 1e9 / count as f64)?;
        }
        Ok(())
    }

    /// Puts of one size to one place.
    fn one_place(&self, bench: &mut Bench) -> Result<(), Error> {
        for &bytes in &self.problems.one_place_bytes {
            let most = self.problems.one_place_total / bytes.max(1);
            let puts = self.problems.one_place_puts.min(most).max(1);
            let case = self.case(format!("put {bytes} B to one place, x{puts}"), bytes * puts);
            if !bench.wants(&case.name) {
                continue;
            }
            let sent: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
            let mut verified = true;
            for pair in &self.pairs {
                pair.ranks[0].put(PEER, 1024, &sent).map_err(failed)?;
                let mut there = vec![0; bytes];
                pair.ranks[0].fabric().get(PEER, 1024, &mut there).map_err(failed)?;
                verified &= there == sent;
            }
            let work = |pair: &Pair| {
                let put = |_| pair.ranks[0].put(PEER, 1024, &sent);
                (0..puts).try_for_each(put).map_err(failed)
            };
            self.time(bench, (&case, verified), &self.by_all(&work))?;
        }
        Ok(())
    }

    /// The same work by all strategies.
    fn by_all<'a>(&'a self, work: &'a dyn Fn(&Pair) -> Result<(), Error>) -> Vec<Work<'a>> {
        let by = |pair: &'a Pair| -> Work<'a> { (pair.name, Box::new(move || work(pair))) };
        self.pairs.iter().map(by).collect()
    }

    /// Puts of 8 bytes to anywhere in a working set, from memory that is pinned; and from anywhere in
    /// memory of the same size that is not.
    fn random(&self, bench: &mut Bench) -> Result<(), Error> {
        let count = self.problems.random_puts;
        for &set in &self.problems.working_set_bytes {
            let case = self.case(format!("put 8 B anywhere in {set} B, x{count}"), 8 * count);
            if !bench.wants(&case.name) {
                continue;
            }
            let mut verified = true;
            for pair in &self.pairs {
                let places = Places::new(set);
                puts(pair, count, &places)?;
                verified &= are_there(pair, count, set)?;
            }
            let mut works: Vec<Work<'_>> = Vec::new();
            for pair in &self.pairs {
                let places = Places::new(set);
                works.push((pair.name, Box::new(move || puts(pair, count, &places))));
            }
            let local = &self.pairs[0];
            let mut from_own = |name, pair| {
                let places = Places::new(set);
                let work = move || puts_from_own((local, pair), count, &places);
                works.push((name, Box::new(work)));
            };
            from_own("local unpinned", local);
            if let Some(all) = self.pairs.iter().find(|pair| pair.name == "everything") {
                from_own("everything, local unpinned", all);
            }
            self.time(bench, (&case, verified), &works)?;
        }
        Ok(())
    }

    /// Cannon's algorithm: what its nodes send each other.
    fn cannon(&self, bench: &mut Bench) -> Result<(), Error> {
        let side = self.problems.matrix_side;
        let puts = 2 * kernels::cannon_puts(side);
        let case = self.case(format!("cannon, {side} by {side} f8, {puts} puts"), 8 * puts);
        let work = |rank: &Firehose, multiply| kernels::cannon(rank, side, multiply);
        self.program(bench, &case, &work, || kernels::product(side))
    }

    /// Bitonic sort: what its nodes send each other, and the comparisons.
    fn bitonic(&self, bench: &mut Bench) -> Result<(), Error> {
        let keys = self.problems.sort_keys;
        let puts = kernels::bitonic_puts(keys);
        let case = self.case(format!("bitonic sort, {keys} keys, {puts} puts"), 8 * puts);
        let work = |rank: &Firehose, _| kernels::bitonic(rank, keys);
        self.program(bench, &case, &work, || kernels::sorted(keys))
    }

    /// A program of two ranks, which is told whether its result is looked at.
    fn program<T: Send + PartialEq>(
        &self,
        bench: &mut Bench,
        case: &Case,
        work: &(dyn Fn(&Firehose, bool) -> Result<T, isometry::fabric::Error> + Sync),
        expected: impl Fn() -> [T; 2],
    ) -> Result<(), Error> {
        if !bench.wants(&case.name) {
            return Ok(());
        }
        let (expected, before) = (expected(), self.pairs[0].counts());
        let mut verified = true;
        for pair in &self.pairs {
            verified &= pair.both(|rank| work(rank, true))? == expected;
        }
        let after = self.pairs[0].counts();
        let timed = |pair: &Pair| pair.both(|rank| work(rank, false)).map(|_| ());
        self.time(bench, (case, verified), &self.by_all(&timed))?;
        figures(bench, "first run: ", [after[0] - before[0], after[1] - before[1]])
    }
}

/// Adds hits and misses to the last case.
fn figures(bench: &mut Bench, when: &str, [hits, misses]: [u64; 2]) -> Result<(), Error> {
    bench.figure(&format!("{when}hits"), hits as f64)?;
    bench.figure(&format!("{when}misses"), misses as f64)?;
    let all = (hits + misses).max(1);
    bench.figure(&format!("{when}hits in percent"), 100.0 * hits as f64 / all as f64)
}

/// Places of 8 bytes that look chosen at random, the same for all who start anew.
struct Places {
    state: Cell<u64>,
    words: u64,
}

impl Places {
    fn new(bytes: u64) -> Places {
        Places { state: Cell::new(1), words: bytes / 8 }
    }

    fn next(&self) -> u64 {
        let next = self.state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.state.set(next);
        (next >> 33) % self.words * 8
    }
}

fn puts(pair: &Pair, count: usize, places: &Places) -> Result<(), Error> {
    let put = |i: usize| pair.ranks[0].put(PEER, places.next(), &i.to_le_bytes());
    (0..count).try_for_each(put).map_err(failed)
}

/// Puts what lies anywhere in this rank's memory, which `local` has pinned meanwhile.
fn puts_from_own(
    (local, pair): (&Pair, &Pair),
    count: usize,
    places: &Places,
) -> Result<(), Error> {
    let put = |_| {
        let (from, to) = (places.next(), places.next());
        let mut hold = local.ranks[0].hold(ME, from, 8)?;
        hold.wait(None)?;
        let word = local.ranks[0].fabric().get_value(ME, from, 8)?;
        pair.ranks[0].put(PEER, to, &word.to_le_bytes())
    };
    (0..count).try_for_each(put).map_err(failed)
}

/// Whether the first so many places hold what was put there last.
fn are_there(pair: &Pair, count: usize, set: u64) -> Result<bool, Error> {
    let places = Places::new(set);
    let last: HashMap<u64, usize> = (0..count).map(|i| (places.next(), i)).collect();
    for (place, i) in last {
        let there = pair.ranks[0].fabric().get_value(PEER, place, 8).map_err(failed)?;
        if there != i as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn failed(error: isometry::fabric::Error) -> Error {
    Error::part("reaching a rank")(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_strategies_multiply_and_sort() {
        let problems: Problems = problems::read("firehose", PROBLEMS).unwrap();
        let problems = Problems { lent_bytes: 1 << 18, victim_bytes: 1 << 16, ..problems };
        for (name, strategy) in STRATEGIES {
            // Pinned as a whole it may be more than is allowed.
            if strategy == Strategy::Everything {
                continue;
            }
            let pair = Pair::join(name, strategy, &problems).unwrap();
            let parts = pair.both(|rank| kernels::cannon(rank, 32, true)).unwrap();
            assert!(parts == kernels::product(32), "{name}");
            let parts = pair.both(|rank| kernels::bitonic(rank, 1 << 10)).unwrap();
            assert!(parts == kernels::sorted(1 << 10), "{name}");
            puts(&pair, 100, &Places::new(1 << 20)).unwrap();
            assert!(are_there(&pair, 100, 1 << 20).unwrap(), "{name}");
            assert!(!are_there(&pair, 101, 1 << 20).unwrap(), "{name}");
        }
    }
}
