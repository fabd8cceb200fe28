//! The caller's thread and a few others, for contenders that work on several.
//!
//! A helper that has run out of work looks for more for a while before it sleeps, as the threads
//! of OpenMP do; the benchmarks wait that long between runs. Each has a core of its own, as the
//! process counts them, where there are as many: a scheduler may wake it on the caller's, and leave
//! both there for milliseconds.

use crate::Error;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a helper looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Work in parts: called with the number of the part.
pub(crate) type Task = Arc<dyn Fn(usize) + Send + Sync>;

/// A caller and its helpers.
#[derive(Debug)]
pub(crate) struct Lanes {
    helpers: Vec<Helper>,
    cores: Cores,
}

/// The cores that the process may run on, one for each lane, the caller's first; none where there
/// are fewer.
#[derive(Debug, Clone)]
struct Cores(Vec<usize>);

impl Cores {
    /// None where it isn't told what the process may run on.
    fn of(lanes: usize) -> Cores {
        let all = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).take(lanes);
        let cores: Vec<_> = cores.collect();
        Cores(if cores.len() == lanes { cores } else { Vec::new() })
    }

    /// Binds the calling thread to the core of `lane`. One that stays unbound is only slower.
    fn bind(&self, lane: usize) {
        if let Some(core) = self.0.get(lane) {
            let mut only = CpuSet::new();
            only.set(*core);
            let _ = sched_setaffinity(None, &only);
        }
    }

    /// Moves the caller to its core if it is on a helper's. It is not bound to it: what it starts
    /// later would be too.
    fn leave_to_helpers(&self) {
        let is_on_theirs = self.0.iter().skip(1).any(|&core| core == sched_getcpu());
        if is_on_theirs && let Ok(all) = sched_getaffinity(None) {
            self.bind(0);
            let _ = sched_setaffinity(None, &all);
        }
    }
}

#[derive(Debug)]
struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// What to run next, and which part of it.
    next: Mutex<Option<(Task, usize)>>,
    /// How many tasks were handed over, and how many are done.
    given: AtomicUsize,
    done: AtomicUsize,
    ends: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("given", &self.given).field("done", &self.done).finish()
    }
}

impl Lanes {
    /// `count` lanes, the caller's among them.
    pub(crate) fn new(count: usize) -> Result<Self, Error> {
        let cores = Cores::of(count);
        let helper = |lane| Helper::new(lane, cores.clone());
        let helpers = (1..count).map(helper).collect::<Result<_, _>>()?;
        Ok(Lanes { helpers, cores })
    }

    /// Moves the caller to its core if it is on a helper's, or that of a peer's, which are the same.
    pub(crate) fn leave_to_helpers(&self) {
        self.cores.leave_to_helpers();
    }

    /// Runs parts `0..parts` of `task`, one on each lane; returns when all are done.
    ///
    /// # Panics
    /// Where there are fewer lanes than parts.
    pub(crate) fn run(&self, task: &Task, parts: usize) {
        let helpers = &self.helpers[..parts - 1];
        if !helpers.is_empty() {
            self.leave_to_helpers();
        }
        for (part, helper) in (1..).zip(helpers) {
            helper.give(task, part);
        }
        task(0);
        helpers.iter().for_each(Helper::wait);
    }
}

impl Helper {
    fn new(lane: usize, cores: Cores) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let serve = move || {
            cores.bind(lane);
            theirs.serve();
        };
        let thread = Builder::new().name("iso-bench-lane".into()).spawn(serve);
        let thread = Some(thread.map_err(Error::io("starting a lane"))?);
        Ok(Helper { shared, thread })
    }

    fn give(&self, task: &Task, part: usize) {
        *self.shared.lock() = Some((Arc::clone(task), part));
        self.shared.given.fetch_add(1, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    fn wait(&self) {
        let given = self.shared.given.load(Ordering::Relaxed);
        while self.shared.done.load(Ordering::Acquire) != given {
            std::hint::spin_loop();
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "a lane has failed");
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Task, usize)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut since = Instant::now();
        while !self.ends.load(Ordering::Acquire) {
            if self.given.load(Ordering::Acquire) == self.done.load(Ordering::Relaxed) {
                // A task that is given from here on leaves a token, so that `park` returns.
                if since.elapsed() > SPIN {
                    std::thread::park()
                } else {
                    std::hint::spin_loop()
                }
                continue;
            }
            if let Some((task, part)) = self.lock().take() {
                task(part);
            }
            self.done.fetch_add(1, Ordering::Release);
            since = Instant::now();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.wake();
        // A lane that has failed has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_once_before_run_returns() {
        let lanes = Lanes::new(3).unwrap();
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let theirs = Arc::clone(&counts);
        let task: Task = Arc::new(move |part| {
            theirs[part].fetch_add(1, Ordering::Relaxed);
        });
        for round in 1..=100 {
            lanes.run(&task, 3);
            let all: Vec<_> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            assert_eq!(all, [round; 3]);
        }
        lanes.run(&task, 1);
        assert_eq!(counts[1].load(Ordering::Relaxed), 100);
    }

    #[test]
    fn a_helper_runs_on_its_core_and_the_caller_is_not_bound() {
        let before = sched_getaffinity(None).unwrap();
        let lanes = Lanes::new(2).unwrap();
        let core = lanes.cores.0.get(1).copied();
        let task: Task = Arc::new(move |part| {
            let is_its_own = core.is_none_or(|core| core == sched_getcpu());
            assert!(part == 0 || is_its_own, "a helper is elsewhere");
        });
        for _ in 0..100 {
            lanes.run(&task, 2);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_lane_that_sleeps_is_woken() {
        let lanes = Lanes::new(2).unwrap();
        let task: Task = Arc::new(|_| {});
        for _ in 0..20 {
            let start = Instant::now();
            while start.elapsed() < SPIN * 3 {
                std::thread::yield_now();
            }
            lanes.run(&task, 2);
        }
    }
}
