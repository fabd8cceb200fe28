//! Ranks that pin what they use of each other: processes, and threads where one is as good.

#[allow(dead_code, reason = "it starts ranks in fewer ways than other tests")]
mod common;

use common::{Over, conduit, ended, is_rank, start};
use isometry_fabric::firehose::{Firehose, Mlock, Registration, Settings, Strategy};
use isometry_fabric::model::NodeId;
use isometry_fabric::{
    Config, Error, ErrorKind, Handlers, Job, Lost, NoInterrupt, Segment, Service,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const BUCKET: u64 = 4096;

/// The handler that is told the number of a process.
const WHO: u8 = 128;

/// What it was told.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// Counts what is pinned, and fails where that is more or less than it may be.
#[derive(Debug, Default)]
struct Counted {
    pinned: Mutex<BTreeSet<u64>>,
    most: usize,
    /// This bucket can't be.
    refused: Option<u64>,
}

fn buckets(memory: &Segment, at: u64, bytes: u64) -> std::ops::Range<u64> {
    assert!(at.is_multiple_of(BUCKET) && bytes > 0 && at + bytes <= memory.bytes());
    at / BUCKET..(at + bytes).div_ceil(BUCKET)
}

impl Registration for Counted {
    fn pin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()> {
        let mut pinned = self.pinned.lock().unwrap();
        let buckets = buckets(memory, at, bytes);
        if self.refused.is_some_and(|refused| buckets.contains(&refused)) {
            return Err(io::Error::from_raw_os_error(12));
        }
        buckets.for_each(|bucket| assert!(pinned.insert(bucket), "{bucket} is pinned"));
        assert!(pinned.len() <= self.most, "{} are pinned", pinned.len());
        Ok(())
    }

    fn unpin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()> {
        let mut pinned = self.pinned.lock().unwrap();
        buckets(memory, at, bytes).for_each(|bucket| assert!(pinned.remove(&bucket)));
        Ok(())
    }
}

fn counted(settings: &Settings) -> Arc<Counted> {
    let most = (settings.lent_bytes + settings.victim_bytes) / BUCKET;
    Arc::new(Counted { most: most as usize, ..Counted::default() })
}

/// M and MAXVICTIM, in buckets.
fn settings(lent: u64, victims: u64) -> Settings {
    Settings { bucket_bytes: BUCKET, ..Settings::new(lent * BUCKET, victims * BUCKET) }
}

/// Runs `body` as ranks of processes, which join with `settings`.
fn processes(
    test: &str,
    all: &[(u32, Over)],
    settings: Settings,
    body: impl FnOnce(&Firehose, &Counted),
) {
    if is_rank() {
        let counted = counted(&settings);
        let registration = Arc::clone(&counted);
        let handlers = Handlers::new().with(WHO, |call| PROCESS.store(call.args()[0], Relaxed));
        let firehose =
            Firehose::over(conduit().unwrap(), handlers, &settings, registration).unwrap();
        return body(&firehose, &counted);
    }
    for &(size, over) in all {
        for (rank, status) in ended(start(test, size, over)).into_iter().enumerate() {
            assert!(status.success(), "rank {rank} of {size} over {over:?}: {status}");
        }
    }
}

const ALL: [(u32, Over); 4] =
    [(2, Over::Shm), (4, Over::Shm), (2, Over::Messages), (4, Over::Messages)];

/// Runs `body` as ranks that are threads of this process, each with so many bytes.
fn threads(
    size: u32,
    (settings, bytes): (Settings, u64),
    refused: Option<u64>,
    body: impl Fn(&Firehose) + Sync,
) {
    let job = Job::new(size).unwrap();
    thread::scope(|scope| {
        for rank in 0..size {
            let (job, body) = (&job, &body);
            scope.spawn(move || {
                let variables = job.variables(rank);
                let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
                let mut config = Config::from_variables(find).unwrap();
                config.segment_bytes = bytes;
                let most = usize::MAX;
                let registration = Arc::new(Counted { most, refused, ..Counted::default() });
                let firehose =
                    Firehose::join(&config, Handlers::new(), &settings, registration).unwrap();
                body(&firehose);
                firehose.fabric().barrier().unwrap();
            });
        }
    });
}

/// Numbers that look chosen at random.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

fn next(firehose: &Firehose) -> NodeId {
    NodeId((firehose.fabric().rank().0 + 1) % firehose.fabric().size())
}

/// Each rank puts to its part of each other's memory, in any order and from anywhere to anywhere, of
/// which a quarter may be pinned at once.
#[test]
fn puts_reach_memory_that_nobody_has_pinned() {
    let test = "puts_reach_memory_that_nobody_has_pinned";
    let settings = settings(60, 4);
    processes(test, &ALL, settings, |firehose, counted| {
        let (me, size) = (firehose.fabric().rank(), firehose.fabric().size());
        let part = (1 << 20) / u64::from(size);
        let mut random = numbers(u64::from(me.0) + 1);
        let peers = || (0..size).map(NodeId);
        let mut expected = vec![vec![0; part as usize]; size as usize];
        for round in 0..2000 {
            let to = NodeId(random(u64::from(size)) as u32);
            // Most are small, some have several pieces.
            let most = [8, 8, 8, 5000, part / 2][round % 5];
            let bytes = random(most) + 1;
            let at = random(part - bytes + 1);
            let value = vec![round as u8; bytes as usize];
            firehose.put(to, u64::from(me.0) * part + at, &value).unwrap();
            expected[to.0 as usize][at as usize..][..bytes as usize].fill(round as u8);
        }
        for to in peers() {
            let mut there = vec![0; part as usize];
            firehose.get(to, u64::from(me.0) * part, &mut there).unwrap();
            assert!(there == expected[to.0 as usize], "what {me:?} put at {to:?}");
        }
        let statistics = firehose.statistics();
        assert!(statistics.hits > 0 && statistics.misses > 0, "{statistics:?}");
        firehose.fabric().barrier().unwrap();
        let statistics = firehose.statistics();
        assert_eq!(statistics.pinned_bytes, counted.pinned.lock().unwrap().len() as u64 * BUCKET);
        assert!(statistics.evictions > 0 && statistics.victim_hits > 0, "{statistics:?}");
        assert!(statistics.peak_bytes <= settings.lent_bytes + settings.victim_bytes);
        firehose.fabric().barrier().unwrap();
    });
}

/// The peer neither polls nor waits until it finds what was put.
#[test]
fn a_hit_needs_nobody_at_the_other_end() {
    let test = "a_hit_needs_nobody_at_the_other_end";
    processes(test, &[(2, Over::Shm)], settings(8, 0), |firehose, _| {
        let fabric = firehose.fabric();
        let other = next(firehose);
        if fabric.rank() == NodeId(0) {
            firehose.put(other, 8, &[7; 8]).unwrap();
            fabric.barrier().unwrap();
            for round in 1..=1000_u64 {
                firehose.put(other, 8, &round.to_le_bytes()).unwrap();
            }
            assert_eq!((firehose.statistics().misses, firehose.statistics().hits), (1, 1000));
        } else {
            fabric.barrier().unwrap();
            while fabric.segment().word(8).unwrap().load(Acquire) != 1000 {
                thread::yield_now();
            }
            assert_eq!(firehose.statistics().pinned_bytes, BUCKET);
        }
        fabric.barrier().unwrap();
    });
}

#[test]
fn a_peer_that_dies_while_it_is_asked_is_named_and_its_budget_comes_back() {
    let test = "a_peer_that_dies_while_it_is_asked_is_named_and_its_budget_comes_back";
    if !is_rank() {
        for over in [Over::Shm, Over::Messages] {
            for (rank, status) in ended(start(test, 3, over)).into_iter().enumerate() {
                assert_eq!(status.success(), rank != 1, "rank {rank} over {over:?}: {status}");
            }
        }
        return;
    }
    // Four buckets for each peer, none beside.
    processes(test, &[], settings(8, 0), |firehose, _| {
        let fabric = firehose.fabric();
        let bucket = |i: u64| i * BUCKET;
        match fabric.rank().0 {
            0 => {
                fabric.barrier().unwrap();
                asks_the_dead(firehose);
                // Who asks an owner for what a lost rank held has to wait until that one knows.
                fabric.put_word(NodeId(2), bucket(8), 1).unwrap();
                let told = || fabric.get_word(NodeId(0), bucket(8)).unwrap() == 1;
                while !told() {
                    fabric.poll();
                    thread::yield_now();
                }
            }
            1 => {
                // All it may hold of rank 0.
                let mut held: Vec<_> =
                    (0..4).map(|i| firehose.hold(NodeId(0), bucket(i), 1).unwrap()).collect();
                held.iter_mut().for_each(|hold| hold.wait(LONG).unwrap());
                fabric.barrier().unwrap();
                // It never polls again.
                fabric.request(NodeId(0), WHO, &[std::process::id()], &[]).unwrap();
                loop {
                    thread::park();
                }
            }
            _ => {
                fabric.barrier().unwrap();
                fabric.wait_until(LONG, || fabric.lost(NodeId(1)).is_some()).unwrap();
                while fabric.get_word(NodeId(2), bucket(8)).unwrap() != 1 {
                    fabric.poll();
                    thread::yield_now();
                }
                for round in 0..200 {
                    firehose.put(NodeId(0), bucket(round % 8), &[round as u8]).unwrap();
                }
                // More than its own share, at once.
                let mut holds: Vec<_> =
                    (0..7).map(|i| firehose.hold(NodeId(0), bucket(i), 1).unwrap()).collect();
                holds.iter_mut().for_each(|hold| hold.wait(LONG).unwrap());
                assert_eq!(firehose.statistics().stolen, 4);
                drop(holds);
                fabric.put_word(NodeId(0), bucket(8), 1).unwrap();
            }
        }
    });
}

/// Asks rank 1 for more than it may hold, and ends it.
fn asks_the_dead(firehose: &Firehose) {
    let (fabric, dead) = (firehose.fabric(), NodeId(1));
    fabric.wait_until(LONG, || PROCESS.load(Relaxed) > 0).unwrap();
    let ask = |i: u64| firehose.hold(dead, i * BUCKET, 1).unwrap();
    let (mut first, mut again, left) = (ask(0), ask(0), ask(1));
    let mut waits: Vec<_> = (2..7).map(ask).collect();
    drop(left);
    let error = first.wait(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let process = Pid::from_raw(PROCESS.load(Relaxed) as i32).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    for hold in [&mut first, &mut again].into_iter().chain(&mut waits) {
        let error = hold.wait(LONG).unwrap_err();
        let is_named = matches!(error, Error::PeerLost { peer, why: Lost::Died } if peer == dead);
        assert!(is_named && hold.try_wait().unwrap(), "{error}");
    }
    let error = firehose.put(dead, 0, &[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost);
}

#[test]
fn what_an_owner_cant_pin_is_an_error_and_nothing_else_is() {
    let settings = settings(16, 2);
    threads(2, (settings, 32 * BUCKET - 100), Some(5), |firehose| {
        let (fabric, other) = (firehose.fabric(), next(firehose));
        let _service = Service::of(Arc::clone(fabric)).unwrap();
        for _ in 0..3 {
            let error = firehose.put(other, 5 * BUCKET + 7, &[1]).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Unpinned { peer, .. } if peer == other), "{text}");
            assert!(text.contains("rank") && text.contains("pinned"), "{text}");
            let own = firehose.hold(fabric.rank(), 5 * BUCKET, 1).unwrap_err();
            assert!(matches!(own, Error::Unpinned { peer, .. } if peer == fabric.rank()));
        }
        for bucket in (0..32).filter(|bucket| *bucket != 5) {
            firehose.put(other, bucket * BUCKET + 7, &[bucket as u8]).unwrap();
        }
        let end = fabric.segment().bytes();
        firehose.put(other, end - 1, &[9]).unwrap();
        firehose.put(other, end, &[]).unwrap();
        assert!(firehose.hold(other, end, 0).unwrap().is_held());
        for (at, bytes) in [(end, 1), (end - 1, 2), (u64::MAX, 1)] {
            let error = firehose.put(other, at, &vec![0; bytes]).unwrap_err();
            assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
        }
        let most = firehose.most_bytes();
        let error = firehose.hold(other, 0, most as usize + 1).unwrap_err();
        assert!(matches!(error, Error::TooMuch { most: told, .. } if told == most), "{error}");
        fabric.barrier().unwrap();
    });
}

#[test]
fn all_strategies_bring_the_same_bytes() {
    let all = [
        Strategy::Firehose,
        Strategy::Everything,
        Strategy::Rendezvous,
        Strategy::RendezvousUnpin,
        Strategy::Bounce,
    ];
    for strategy in all {
        for region_buckets in [1, 4] {
            let settings = Settings { strategy, region_buckets, ..settings(64, 4) };
            threads(2, (settings, 1 << 20), None, |firehose| {
                let _service = Service::of(Arc::clone(firehose.fabric())).unwrap();
                let (me, other) = (firehose.fabric().rank(), next(firehose));
                let mut random = numbers(9 + u64::from(me.0));
                let mut expected = vec![0; 1 << 20];
                for round in 0..300 {
                    let bytes = random([8, 20_000, 400_000][round % 3]) + 1;
                    let at = random((1 << 20) - bytes) as usize;
                    let value = vec![(round % 250) as u8 + 1; bytes as usize];
                    firehose.put(other, at as u64, &value).unwrap();
                    expected[at..][..bytes as usize].copy_from_slice(&value);
                }
                let mut there = vec![0; 1 << 20];
                firehose.get(other, 0, &mut there).unwrap();
                assert!(there == expected, "{strategy:?}");
                firehose.fabric().barrier().unwrap();
                firehose.put(me, 0, &[1; 5000]).unwrap();
                let statistics = firehose.statistics();
                let expected = match strategy {
                    Strategy::Bounce => 0,
                    Strategy::Everything | Strategy::Rendezvous => 1 << 20,
                    _ => statistics.pinned_bytes.min(68 * BUCKET),
                };
                assert_eq!(statistics.pinned_bytes, expected, "{strategy:?}: {statistics:?}");
                let asks = matches!(strategy, Strategy::Rendezvous | Strategy::RendezvousUnpin);
                assert!(!asks || statistics.hits == 0, "{strategy:?}: {statistics:?}");
                firehose.fabric().barrier().unwrap();
            });
        }
    }
}

#[test]
fn many_threads_share_a_ranks_firehoses() {
    threads(3, (settings(24, 6), 1 << 20), None, |firehose| {
        let _service = Service::of(Arc::clone(firehose.fabric())).unwrap();
        let (me, size) = (firehose.fabric().rank(), firehose.fabric().size());
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let mut random = numbers(u64::from(me.0) * 4 + thread);
                    // 16 buckets for each, and a word of each bucket for each thread of each rank.
                    let word = 8 * (u64::from(me.0) * 4 + thread);
                    for round in 0..2000_u64 {
                        let to = NodeId(random(u64::from(size)) as u32);
                        let at = random(40) * BUCKET + word;
                        match random(8) {
                            0 => {
                                let own = firehose.hold(me, at, 8).unwrap();
                                drop(firehose.hold(to, at, 8).unwrap());
                                let mut own = own;
                                own.wait(LONG).unwrap();
                            }
                            1 => {
                                let mut hold = firehose.hold(to, at, 8).unwrap();
                                while !hold.try_wait().unwrap() {
                                    thread::yield_now();
                                }
                            }
                            _ => {
                                firehose.put(to, at, &round.to_le_bytes()).unwrap();
                                assert_eq!(firehose.fabric().get_value(to, at, 8).unwrap(), round);
                            }
                        }
                    }
                });
            }
        });
        let statistics = firehose.statistics();
        assert!(statistics.peak_bytes <= 30 * BUCKET, "{statistics:?}");
        firehose.fabric().barrier().unwrap();
    });
}

#[test]
fn who_holds_its_own_memory_waits_for_room() {
    threads(1, (settings(4, 2), 8 * BUCKET), None, |firehose| {
        let me = NodeId(0);
        let own = |bucket: u64, count: u64| {
            firehose.hold(me, bucket * BUCKET, (count * BUCKET) as usize).unwrap()
        };
        assert!(matches!(firehose.hold(me, 0, 3 * BUCKET as usize), Err(Error::TooMuch { .. })));
        assert!(own(8, 0).is_held());
        let first = own(0, 2);
        assert!(first.is_held());
        let mut again = own(1, 1);
        assert!(again.is_held());
        let mut other = own(4, 1);
        assert!(!other.is_held() && !other.try_wait().unwrap());
        let error = other.wait(Some(Duration::from_millis(5))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        thread::scope(|scope| {
            let waits = scope.spawn(|| other.wait(LONG));
            // It sleeps by now, most times.
            thread::sleep(Duration::from_millis(2));
            drop(first);
            waits.join().unwrap().unwrap();
        });
        again.wait(None).unwrap();
        let statistics = firehose.statistics();
        assert_eq!((statistics.local_hits, statistics.local_misses), (1, 3));
    });
}

#[test]
fn who_waits_for_others_to_release_firehoses_is_woken() {
    threads(2, (settings(1, 0), 8 * BUCKET), None, |firehose| {
        let _service = Service::of(Arc::clone(firehose.fabric())).unwrap();
        let other = next(firehose);
        let mut first = firehose.hold(other, 0, 1).unwrap();
        first.wait(LONG).unwrap();
        assert!(firehose.hold(other, 0, 1).unwrap().is_held());
        let mut second = firehose.hold(other, BUCKET, 1).unwrap();
        assert!(!second.try_wait().unwrap());
        thread::scope(|scope| {
            let waits = scope.spawn(|| second.wait(LONG));
            // It sleeps by now, most times.
            thread::sleep(Duration::from_millis(2));
            drop(first);
            waits.join().unwrap().unwrap();
        });
        firehose.fabric().barrier().unwrap();
    });
}

#[test]
fn who_holds_handlers_off_may_use_what_is_pinned_and_ask_for_nothing() {
    threads(2, (settings(4, 0), 8 * BUCKET), None, |firehose| {
        let other = next(firehose);
        let service = Service::of(Arc::clone(firehose.fabric())).unwrap();
        firehose.put(other, 0, &[1]).unwrap();
        let section = NoInterrupt::begin();
        firehose.put(other, 1, &[1]).unwrap();
        for bucket in 1..8 {
            let error = firehose.put(other, bucket * BUCKET, &[1]).unwrap_err();
            assert!(matches!(error, Error::InHandler { .. }), "{error}");
        }
        drop(section);
        (1..8).for_each(|bucket| firehose.put(other, bucket * BUCKET, &[1]).unwrap());
        firehose.fabric().barrier().unwrap();
        drop(service);
    });
}

/// What the system says this process keeps in place, in bytes.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[test]
fn the_system_keeps_in_place_what_is_pinned() {
    let test = "the_system_keeps_in_place_what_is_pinned";
    if !is_rank() {
        let statuses = ended(start(test, 2, Over::Shm));
        return statuses.into_iter().for_each(|status| assert!(status.success(), "{status}"));
    }
    let settings = settings(64, 8);
    let firehose =
        Firehose::over(conduit().unwrap(), Handlers::new(), &settings, Arc::new(Mlock)).unwrap();
    let (fabric, other) = (firehose.fabric(), next(&firehose));
    let mut random = numbers(3);
    for _ in 0..1000 {
        firehose.put(other, random(1 << 20), &[1]).unwrap();
    }
    fabric.barrier().unwrap();
    let statistics = firehose.statistics();
    assert_eq!(statistics.pinned_bytes, 72 * BUCKET);
    assert_eq!(locked(), statistics.pinned_bytes);
    fabric.barrier().unwrap();
}
