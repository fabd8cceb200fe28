//! The kernels by themselves, on one thread and on two, beside their roof and their peers.
//!
//! The roof is the faster of glibc's memcpy and a streaming copy of as many bytes in the same
//! buffers. Peers work on the same buffers in the same process, in turn with ours. Everybody's
//! result is checked to its last byte before anything is timed; a peer that is wrong, or has no
//! way to do a case, is named beside the case and left out of it.
//!
//! Beside them goes a pattern on one thread: the lines that a conversion by pieces reads and writes,
//! in the best of a few orders, and no conversion ([`Pattern`]; [`Lines`] where fields of structures differ). What
//! it takes longer than the roof is not the kernels', as far as these have no better order: where ours is
//! faster it bounds nothing.

mod aims;
mod cells;
mod counts;
mod family;
mod problem;
mod summary;

use crate::lanes::Lanes;
use crate::native::{Buffers, HAS_STREAM, Hptt, Lines, Mkl, Move, Moves, OneDnn, Pattern};
use crate::peer::{self, Peer, Ready, Run, Task, View};
use crate::report::{Bench, Case, Contender, timed};
use crate::{Error, Report, Settings};
pub use counts::{Counts, check_counts, run_counted};

use cells::Cells;
use channel_host::{Limits, last_cache_bytes};
use isometry::Machine;
use kernels::Stores;
use layout::NdCopy;
use model::Crossover;
use problem::Problem;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Peers without which a table says nothing.
const REQUIRED: [&str; 3] = ["numpy", "pytorch", "onednn"];

/// What the two plain copies are called.
const ROOFS: [&str; 2] = ["memcpy", "stream"];

/// What the kernels are called when they write through the caches, and when past them.
const STORES: [&str; 2] = ["cached", "streamed"];

/// What the traffic without the conversion is called.
const PATTERN: &str = "pattern";

/// What ours on one thread is called beside ours on two.
const ALONE: &str = "one thread";

/// The note that names the peers that have no way to do a case.
const UNABLE: &str = "unable";

/// So many times as slow as ours a contender is timed no more.
const SLOW: f64 = 10.0;

/// How often each pattern runs before the fastest is chosen.
const TRIALS: usize = 2;

/// What is timed together has at least this much payload, where it fits into the cache.
const BATCH_BYTES: u64 = 4 << 20;

/// The most calls that are timed together; and the fewest of what fits into the cache.
const MOST_CALLS: u64 = 64;
const LEAST_CACHED_CALLS: u64 = 2;

/// How long the threads of a contender that has ended look for work before they sleep.
const SETTLE: Duration = Duration::from_millis(2);

/// Runs the group with the libraries that are found, and no Python.
pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    run_beside(settings, Vec::new())
}

/// Runs the group beside `peers` and the libraries that are found.
///
/// # Errors
/// As [`crate::Group::run`].
pub fn run_beside(settings: &Settings, peers: Vec<Box<dyn Peer>>) -> Result<Report, Error> {
    run_on(Machine::open()?, settings, peers)
}

/// Runs the group as [`run_beside`], by what was measured of `machine`.
fn run_on(
    machine: Machine,
    settings: &Settings,
    peers: Vec<Box<dyn Peer>>,
) -> Result<Report, Error> {
    let mut bench = Bench::new("kernels", settings)?;
    bench.leave_slow(SLOW);
    let peers = all_peers(&mut bench, peers)?;
    let (lanes, cache_bytes) = (Arc::new(Lanes::new(2)?), last_cache_bytes());
    let crossover = crossover_of(&machine);
    let problems = family::problems(crossover)?;
    let mut group = Group { bench, peers, machine, lanes, cache_bytes, crossover };
    for problem in &problems {
        group.problem(problem)?;
    }
    let void = summary::sum_up(&mut group.bench)?;
    Ok(Report { void, ..group.bench.finish()? })
}

/// `peers`, and the libraries that this machine has.
fn all_peers(
    bench: &mut Bench,
    mut peers: Vec<Box<dyn Peer>>,
) -> Result<Vec<Box<dyn Peer>>, Error> {
    type Loaded = Result<Box<dyn Peer>, Error>;
    let loaded: [(&str, Loaded); 3] = [
        ("onednn", OneDnn::load().map(|p| Box::new(p) as _)),
        ("mkl", Mkl::load().map(|p| Box::new(p) as _)),
        ("hptt", Hptt::load().map(|p| Box::new(p) as _)),
    ];
    for (name, library) in loaded {
        match library {
            Ok(peer) => peers.push(peer),
            Err(why) => bench.absent(name, &why),
        }
    }
    for name in REQUIRED {
        if !bench.is_absent(name) && peers.iter().all(|p| p.name() != name) {
            let why = "it comes with `make bench GROUP=kernels`";
            bench.absent(name, &Error::part("looking for it")(why));
        }
    }
    for peer in &peers {
        bench.beside(peer.name(), peer.version())?;
    }
    if !HAS_STREAM {
        bench.absent("stream", &Error::part("looking for it")("no streaming stores here"));
    }
    Ok(peers)
}

/// From where on results are written past the caches there, as the Memcpy channel does it.
fn crossover_of(machine: &Machine) -> Crossover {
    let topology = machine.topology();
    let measured = topology.classes[0].channels.iter().find_map(|c| c.stream_from_bytes);
    measured.unwrap_or_default()
}

struct Group {
    bench: Bench,
    peers: Vec<Box<dyn Peer>>,
    machine: Machine,
    lanes: Arc<Lanes>,
    cache_bytes: Option<u64>,
    crossover: Crossover,
}

/// The buffers of a problem, and what is to be in them.
struct Scene {
    buffers: Buffers,
    copies: Vec<NdCopy>,
    /// What peers move; none where that is too many to tell more of a peer than of the loop over them,
    /// and where both kinds of stores are compared.
    views: Option<Vec<View>>,
    both_stores: bool,
    /// Whether source and destination have structures with padding.
    has_padding: [bool; 2],
    /// Whether the destination begins on a line.
    on_line: bool,
    expected: Cells,
    /// The payload, which is what a plain copy moves too.
    bytes: u64,
}

impl Group {
    /// The cases of a problem: one thread, and two.
    fn problem(&mut self, problem: &Problem) -> Result<(), Error> {
        let names = [problem.name.clone(), format!("{}, 2 threads", problem.name)];
        let wanted = names.map(|name| Some(name).filter(|name| self.bench.wants(name)));
        if wanted.iter().all(Option::is_none) {
            return Ok(());
        }
        let sides: u64 = problem.side_bytes()?.iter().sum();
        let room = Limits::detect().usable_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        if sides > room {
            for name in wanted.iter().flatten() {
                self.bench.leave_out(name, format_args!("{sides} B are more than half the memory"));
            }
            return Ok(());
        }
        let scene = Scene::new(problem, &self.machine)?;
        for (name, threads) in wanted.into_iter().zip([1, 2]) {
            if let Some(name) = name {
                self.bench.stop().check()?;
                self.bench.say(&name);
                let case = self.case(problem, name, (threads, sides));
                self.run_case(&scene, &case)?;
            }
        }
        Ok(())
    }

    fn case(&self, problem: &Problem, name: String, (threads, sides): (u32, u64)) -> Case {
        let bytes = problem.payload_bytes();
        let cached = self.cache_bytes.is_some_and(|cache| sides <= cache);
        let calls = (BATCH_BYTES / bytes.max(1)).clamp(LEAST_CACHED_CALLS, MOST_CALLS);
        let calls = if cached { calls as usize } else { 1 };
        Case { name, bytes, threads, runs: problem.runs, calls }
    }

    fn run_case(&mut self, scene: &Scene, case: &Case) -> Result<(), Error> {
        let mut checked = Checked::default();
        for (name, run) in self.ours(scene, case.threads)? {
            checked.check(scene, name, run)?;
        }
        if case.threads == 1
            && let Some((name, run)) = self.traffic(scene)?
        {
            checked.notes.push((PATTERN.to_owned(), name));
            checked.right.push((PATTERN.to_owned(), run));
        }
        let spans = scene.buffers.spans()?;
        let size = size_label(spans.src.1 + spans.dst.1, self.cache_bytes);
        checked.notes.push(("size".to_owned(), size));
        let Some(views) = &scene.views else {
            if !scene.both_stores {
                let why = "none: more pieces than they are given";
                checked.notes.push(("peers".to_owned(), why.to_owned()));
            }
            return self.time(checked, case);
        };
        let task = Task { views, spans, threads: case.threads, buffers: PhantomData };
        for peer in &mut self.peers {
            let name = peer.name().to_owned();
            let ready = peer.prepare(&task);
            match ready.and_then(|r| r.map(|r| checked.check_peer(scene, &name, r)).transpose()) {
                Ok(Some(())) => {}
                Ok(None) => checked.unable.push(name),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(why) => checked.notes.push((name, format!("failed: {why}"))),
            }
        }
        self.time(checked, case)
    }

    /// Ours, with either kind of stores where these are compared, on one thread beside several, and
    /// the roofs.
    fn ours<'a>(&self, scene: &'a Scene, threads: u32) -> Result<Vec<(String, Run<'a>)>, Error> {
        let mut moves = vec![
            ("isometry", Move::Kernels(scene.copies.clone(), self.crossover)),
            ("memcpy", Move::Memcpy(scene.bytes)),
        ];
        if HAS_STREAM {
            moves.push(("stream", Move::Stream(scene.bytes)));
        }
        if scene.both_stores {
            let from = [u64::MAX, 0].map(|from| Crossover { in_order: from, turned: from });
            let told = from.map(|from| Move::Kernels(scene.copies.clone(), from));
            moves.extend(STORES.into_iter().zip(told));
        }
        if threads > 1 {
            moves.push((ALONE, Move::Kernels(scene.copies.clone(), self.crossover)));
        }
        let ready = |(name, what): (&str, Move)| {
            let threads = if name == ALONE { 1 } else { threads };
            let moves = Moves::new(&what, &scene.buffers, (&self.lanes, threads))?;
            Ok((name.to_owned(), never_fails(move || moves.run())))
        };
        moves.into_iter().map(ready).collect()
    }

    /// The traffic of a case to where lines begin, unless there are too many pieces: what it is, and its run.
    fn traffic<'a>(&self, scene: &'a Scene) -> Result<Option<(String, Run<'a>)>, Error> {
        let Some(views) = scene.views.as_deref().filter(|_| scene.on_line) else { return Ok(None) };
        if let ([view], [false, false]) = (views, scene.has_padding) {
            let pattern = self.pattern(scene, view)?;
            return Ok(pattern.map(|it| (it.name.clone(), never_fails(move || it.run()))));
        }
        let lines = Lines::of(&scene.buffers, views, scene.has_padding[1])?;
        Ok(lines.map(|it| (it.name(), never_fails(move || it.run()))))
    }

    /// The fastest pattern of a case that is one regular copy.
    fn pattern<'a>(&self, scene: &'a Scene, view: &View) -> Result<Option<Pattern<'a>>, Error> {
        let streams = Stores::of(&scene.copies, scene.bytes, self.crossover) == Stores::Streamed;
        let mut fastest = None;
        for pattern in Pattern::of(view, &scene.buffers, streams)? {
            self.bench.stop().check()?;
            let run = || {
                timed(|| {
                    pattern.run();
                    Ok(())
                })
            };
            let seconds =
                (0..TRIALS).try_fold(f64::MAX, |best, _| Ok::<_, Error>(best.min(run()?)))?;
            if fastest.as_ref().is_none_or(|(best, _)| seconds < *best) {
                fastest = Some((seconds, pattern));
            }
        }
        Ok(fastest.map(|(_, pattern)| pattern))
    }

    /// Times those that are right.
    fn time(&mut self, checked: Checked<'_>, case: &Case) -> Result<(), Error> {
        let Checked { mut right, unable, mut notes } = checked;
        let verified = right.first().is_some_and(|(name, _)| name == "isometry");
        let mut contenders: Vec<Contender<'_>> =
            right.iter_mut().map(|(name, run)| Contender { name, run }).collect();
        let lanes = Arc::clone(&self.lanes);
        let mut settle = || {
            if case.threads > 1 {
                std::thread::sleep(SETTLE);
                lanes.leave_to_helpers();
            }
            Ok(())
        };
        self.bench.time((case, verified), &mut contenders, &mut settle)?;
        if !unable.is_empty() {
            notes.push((UNABLE.to_owned(), unable.join(", ")));
        }
        notes.extend(self.bench.cases().last().map(summary::best).unwrap_or_default());
        notes.extend(self.bench.cases().last().and_then(summary::far));
        notes.iter().try_for_each(|(name, text)| self.bench.note(name, text))
    }
}

impl Scene {
    fn new(problem: &Problem, machine: &Machine) -> Result<Self, Error> {
        let (sides, behind) = (problem.side_bytes()?, problem.behind_line);
        let buffers = Buffers::new(machine, sides, behind)?;
        let source = problem.source()?;
        buffers.fill(|src| source.fill(src))?;
        let copies = problem.copies()?;
        let both_stores = problem.both_stores;
        let views = peer::views(&copies, &problem.field_bytes()).filter(|_| !both_stores);
        let (expected, bytes) = (problem.destination()?, problem.payload_bytes());
        let (has_padding, on_line) = (problem.has_padding(), behind == 0);
        Ok(Scene { buffers, copies, views, both_stores, has_padding, on_line, expected, bytes })
    }

    /// Whether the destination holds what `name` was to put there.
    fn is_right(&self, name: &str) -> Result<bool, Error> {
        if ROOFS.contains(&name) {
            let bytes = usize::try_from(self.bytes).map_err(Error::part("checking a copy"))?;
            return self.buffers.check(|src, dst| src[..bytes] == dst[..bytes]);
        }
        self.buffers.check(|_, dst| self.expected.are_in(dst))
    }
}

/// Contenders that ran once.
#[derive(Default)]
struct Checked<'a> {
    right: Vec<(String, Run<'a>)>,
    /// Peers that have no way to do it.
    unable: Vec<String>,
    /// What there is to say of the others.
    notes: Vec<(String, String)>,
}

impl<'a> Checked<'a> {
    /// As [`Checked::check`], for a peer.
    fn check_peer(&mut self, scene: &Scene, name: &str, ready: Ready<'a>) -> Result<(), Error> {
        self.notes.extend(ready.remark.map(|remark| (name.to_owned(), remark)));
        self.check(scene, name.to_owned(), ready.run)
    }

    /// Runs one, and looks at every byte of the destination.
    fn check(&mut self, scene: &Scene, name: String, mut run: Run<'a>) -> Result<(), Error> {
        scene.buffers.poison()?;
        run()?;
        if scene.is_right(&name)? {
            self.right.push((name, run));
        } else {
            self.notes.push((name, "WRONG RESULT".to_owned()));
        }
        Ok(())
    }
}

/// A run of what has no way to fail.
fn never_fails<'a>(run: impl Fn() + 'a) -> Run<'a> {
    Box::new(move || {
        run();
        Ok(())
    })
}

/// Source and destination against the last-level cache.
fn size_label(sides: usize, cache_bytes: Option<u64>) -> String {
    let Some(cache) = cache_bytes else { return "no cache known".to_owned() };
    let share = sides as f64 / cache as f64;
    let label = match share {
        ..=0.5 => "in the last-level cache",
        ..=2.0 => "about the last-level cache",
        _ => "beyond the last-level cache",
    };
    format!("{label} ({share:.2} of it)")
}

#[cfg(test)]
mod tests;
