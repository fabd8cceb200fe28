//! Ranks that come to a fabric that runs: over shared memory, by messages alone, and by TCP.

#[allow(dead_code, reason = "most ranks here are no processes of their own")]
#[path = "../common/mod.rs"]
mod common;
mod place;
mod turnover;

use common::{Over, is_rank, join, new_job, start_one};
use isometry_fabric::firehose::{Firehose, Mlock, Settings, Strategy};
use isometry_fabric::model::NodeId;
use isometry_fabric::shm::Shm;
use isometry_fabric::{
    Barrier, CAPACITY, Config, Error, ErrorKind, Fabric, Handlers, KEY, Lost, ROOT, SIZE,
};
use place::{
    ASK, DIE, END, LONG, Place, Rank, SHORT, WAYS, all_reach_all, is_lost, is_nobody, reaches_not,
};
use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn who_comes_later_reaches_all_and_is_reached() {
    for (over, size) in WAYS.into_iter().flat_map(|over| [(over, 1), (over, 3)]) {
        let place = Place::new(over, size + 2);
        let mut ranks = place.founders(size);
        let mut served: Vec<_> = ranks.iter().map(Rank::serve).collect();
        for number in size..size + 2 {
            reaches_not(&ranks[0], NodeId(number), is_nobody);
            let rank = place.later().unwrap();
            assert_eq!(
                (rank.rank(), rank.size(), rank.founders()),
                (NodeId(number), number + 1, size)
            );
            served.push(rank.serve());
            ranks.push(rank);
            for rank in &ranks {
                assert_eq!(rank.size(), number + 1, "over {over:?}");
                assert!((0..=number).all(|peer| rank.has(NodeId(peer))));
            }
            all_reach_all(&ranks);
        }
    }
}

#[test]
fn several_come_at_once_and_know_each_other() {
    const SIZE: u32 = 7;
    for over in WAYS {
        let place = Place::new(over, SIZE);
        let mut ranks = place.founders(1);
        thread::scope(|scope| {
            let coming: Vec<_> =
                (1..SIZE).map(|_| scope.spawn(|| place.later().unwrap())).collect();
            ranks.extend(coming.into_iter().map(|rank| rank.join().unwrap()));
        });
        let mut numbers: Vec<_> = ranks.iter().map(|rank| rank.rank().0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..SIZE).collect::<Vec<_>>());
        let _served: Vec<_> = ranks.iter().map(Rank::serve).collect();
        all_reach_all(&ranks);
    }
}

#[test]
fn who_has_joined_knows_all_others_however_soon_rank_0_would_give_up_itself() {
    const SIZE: u32 = 9;
    for over in WAYS {
        let place = Place::new(over, SIZE);
        let config = Config::new(&place.root, (0, 1), b"key");
        let hasty = Config { capacity: SIZE, timeout: Duration::from_millis(1), ..config };
        let mut ranks = vec![place.join(hasty).unwrap()];
        thread::scope(|scope| {
            let coming: Vec<_> =
                (1..SIZE).map(|_| scope.spawn(|| place.later().unwrap())).collect();
            ranks.extend(coming.into_iter().map(|rank| rank.join().unwrap()));
        });
        for rank in &ranks {
            assert!((0..SIZE).all(|peer| rank.has(NodeId(peer))), "over {over:?}");
        }
    }
}

#[test]
fn a_name_is_of_one_rank_at_a_time_and_costs_no_number() {
    for over in WAYS {
        let place = Place::new(over, 4);
        let named = |config: Config, name: &str| {
            let timeout = Duration::from_secs(20);
            place.join(Config { name: Some(name.to_owned()), capacity: 4, timeout, ..config })
        };
        let later = |name: &str| named(Config::later(&place.root, b"key"), name);
        let found = |rank, name| named(Config::new(&place.root, (rank, 2), b"key"), name).unwrap();
        let founders = thread::scope(|scope| {
            let second = scope.spawn(|| found(1, "second"));
            [found(0, "first"), second.join().unwrap()]
        });
        let third = later("third").unwrap();
        for (rank, name) in (0..).zip(["first", "second", "third"]) {
            let error = later(name).err().unwrap();
            let is_it = |taken: &str, has| taken == name && has == rank;
            assert!(
                matches!(&error, Error::NameTaken { name, rank } if is_it(name, *rank)),
                "{error}"
            );
            assert!(error.is_retryable() && error.kind() == ErrorKind::Join);
        }
        drop(third);
        founders[0].until_lost(NodeId(2));
        assert_eq!(later("third").unwrap().rank(), NodeId(3), "over {over:?}");
    }
}

#[test]
fn a_number_is_given_once() {
    for over in WAYS {
        let place = Place::new(over, 4);
        let founders = place.founders(2);
        let gone = place.later().unwrap();
        gone.leave().unwrap();
        for founder in &founders {
            assert_eq!(founder.until_lost(NodeId(2)), Lost::Left);
        }
        let next = place.later().unwrap();
        assert_eq!((next.rank(), next.size()), (NodeId(3), 4));
        assert!(!next.has(NodeId(2)) && !gone.has(NodeId(3)));
        reaches_not(&next, NodeId(2), is_nobody);
        reaches_not(&gone, NodeId(3), is_nobody);
        reaches_not(&gone, NodeId(0), is_lost);
        for founder in &founders {
            founder.until_has(NodeId(3));
            reaches_not(founder, NodeId(2), is_lost);
        }
        drop(next);
        let error = place.later().err().unwrap();
        assert!(matches!(error, Error::Full { capacity: 4 }), "{error}");
        assert!(!error.is_retryable());
    }
}

#[test]
fn nobody_need_poll_and_who_sleeps_is_woken() {
    for over in WAYS {
        let place = Place::new(over, 4);
        let founders = place.founders(2);
        thread::scope(|scope| {
            let asleep = scope.spawn(|| founders[0].until_has(NodeId(2)));
            let rank = place.later().unwrap();
            // The other one does nothing at all.
            assert!(founders[1].has(rank.rank()));
            asleep.join().unwrap();
            rank.request(NodeId(1), ASK, &[], &[]).unwrap();
            while founders[1].poll() == 0 {
                thread::yield_now();
            }
            rank.wait_until(LONG, || rank.answers.load(SeqCst) == 1).unwrap();
        });
    }
}

#[test]
fn who_may_not_come_is_told_why() {
    for over in WAYS {
        let place = Place::new(over, 3);
        let _founder = place.founders(1);
        let error = place.later_with(b"other", SHORT).err().unwrap();
        assert!(matches!(error, Error::Refused { rank: 0, .. }), "{error}");
        assert!(error.to_string().contains("key"), "{error}");
        let closed = Place::new(over, 2);
        let _founders = closed.founders(2);
        for place in [closed, Place::new(over, 2)] {
            let error = place.later_with(b"key", SHORT).err().unwrap();
            assert!(
                matches!(&error, Error::Unanswered { root, .. } if *root == place.root),
                "{error}"
            );
        }
    }
}

#[test]
fn who_comes_before_the_others_have_met_waits_for_them() {
    for over in WAYS {
        let place = Place::new(over, 3);
        thread::scope(|scope| {
            let first = scope.spawn(|| place.founder(0, 2).unwrap());
            let late = scope.spawn(|| place.later().unwrap());
            while place.call().is_err() {
                thread::yield_now();
            }
            let second = place.founder(1, 2).unwrap();
            let late = late.join().unwrap();
            assert_eq!(late.rank(), NodeId(2));
            assert!(second.has(NodeId(2)) && first.join().unwrap().has(NodeId(2)));
        });
    }
}

#[test]
fn founders_agree_about_how_many_there_may_be() {
    for over in WAYS {
        let place = Place::new(over, 4);
        let join = |rank, capacity| {
            let config = Config::new(&place.root, (rank, 2), b"key");
            place.join(Config { capacity, timeout: SHORT, ..config })
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| join(0, 4));
            let error = join(1, 5).err().unwrap();
            assert!(
                matches!(
                    error,
                    Error::Disagreement { rank: 0, name: CAPACITY, theirs: 4, ours: 5 }
                ),
                "{error}"
            );
            let error = first.join().unwrap().err().unwrap();
            assert!(matches!(&error, Error::Missing { missing, .. } if *missing == [1]), "{error}");
        });
    }
}

#[test]
fn strangers_at_the_door_hold_nobody_up() {
    for over in [Over::Shm, Over::Tcp] {
        let place = Place::new(over, 3);
        let founder = place.founders(1);
        let mut silent = place.call().unwrap();
        // Who is called says hello first: the magic word, and then the version.
        let mut greeting = [0; 12];
        silent.read_exact(&mut greeting).unwrap();
        let version = greeting.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let says = |bytes: &[u8]| {
            let mut stranger = place.call().unwrap();
            stranger.write_all(bytes).unwrap();
            stranger
        };
        let hello = |version: u32, kind: u32| {
            let numbers = [version, kind, 1 << 31, 0, 0, 0].map(u32::to_le_bytes);
            [&b"isometry"[..], numbers.as_flattened(), &[7; 32]].concat()
        };
        // Of another version; of a rank that may not call here; and without a proof.
        let turned_away =
            [hello(version - 1, 4), hello(version, 0), [hello(version, 4), vec![0; 32]].concat()];
        for bytes in turned_away {
            let mut heard = Vec::new();
            // Who has said more than was read may hear of that instead of the end.
            let end = says(&bytes).read_to_end(&mut heard);
            assert!(end.is_ok() || end.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset));
        }
        let noisy = says(&[0x55; 4096]);
        drop(says(b"isometry"));
        let rank = place.later().unwrap();
        assert_eq!(rank.rank(), NodeId(1), "a stranger took no number");
        let start = Instant::now();
        drop(founder);
        assert!(start.elapsed() < Duration::from_secs(4), "it waited for a stranger");
        drop((silent, noisy));
    }
}

#[test]
fn a_crowd_of_strangers_that_say_nothing_holds_nobody_up() {
    for over in [Over::Shm, Over::Tcp] {
        let place = Place::new(over, 2);
        let founder = place.founders(1);
        let crowd: Vec<_> = (0..300).map(|_| place.call().unwrap()).collect();
        // By patience alone with these strangers it would take longer.
        let rank = place.later_with(b"key", Duration::from_secs(15)).unwrap();
        assert_eq!(rank.rank(), NodeId(1));
        drop((crowd, founder));
    }
}

#[test]
fn ranks_leave_while_others_join() {
    for (over, who) in WAYS.into_iter().flat_map(|over| [0, 1, 0, 1].map(|who| (over, who))) {
        let place = Place::new(over, 4);
        let founders = place.founders(2);
        // Nobody joins where rank 0 has gone, and who tries finds that out so late.
        let timeout = if who == 0 { SHORT } else { Duration::from_secs(20) };
        thread::scope(|scope| {
            let place = &place;
            let coming = [(); 2].map(|()| scope.spawn(move || place.later_with(b"key", timeout)));
            founders[who].leave().unwrap();
            for rank in coming.map(|rank| rank.join().unwrap()) {
                match rank {
                    Ok(rank) if rank.has(NodeId(who as u32)) => {
                        assert_eq!(rank.until_lost(NodeId(who as u32)), Lost::Left);
                    }
                    Ok(_) => {}
                    Err(error) if who == 0 => assert_eq!(error.kind(), ErrorKind::Join),
                    Err(error) => panic!("over {over:?}: {error}"),
                }
            }
        });
    }
}

#[test]
fn barriers_are_of_those_that_were_there_at_the_start() {
    for over in WAYS {
        let place = Place::new(over, 4);
        let founders = place.founders(3);
        let late = place.later().unwrap();
        let error = late.barrier().unwrap_err();
        assert!(matches!(error, Error::Late { peer: NodeId(3), founders: 3 }), "{error}");
        for founder in &founders {
            for round in 0..2 {
                late.request(founder.rank(), 0, &[0, round, 2, 0], &[]).unwrap();
            }
            while founder.poll() == 0 {
                thread::yield_now();
            }
        }
        drop(late);
        for _ in 0..3 {
            thread::scope(|scope| {
                for founder in &founders {
                    scope.spawn(|| {
                        founder.barrier_notify(Barrier::Named(7)).unwrap();
                        founder.barrier_wait(Barrier::Named(7), LONG).unwrap();
                    });
                }
            });
        }
    }
}

#[test]
fn firehoses_are_of_those_that_were_there_at_the_start() {
    let place = Place::new(Over::Shm, 3);
    let settings = |strategy| Settings { strategy, ..Settings::new(64 << 12, 8 << 12) };
    let config = Config { capacity: 3, ..Config::new(&place.root, (0, 1), b"key") };
    let config = Config { segment_bytes: 1 << 16, ..config };
    let own =
        Firehose::join(&config, Handlers::new(), &settings(Strategy::Firehose), Arc::new(Mlock));
    let own = own.unwrap();
    let late = place.later().unwrap();
    let error = own.put(late.rank(), 0, &[1]).unwrap_err();
    assert!(matches!(error, Error::Late { peer: NodeId(1), founders: 1 }), "{error}");
    for handler in 32..38 {
        late.request(NodeId(0), handler, &[0; 4], &[0; 16]).unwrap();
    }
    let mut came = 0;
    while came < 6 {
        came += own.fabric().poll();
    }
    let conduit = Box::new(Shm::join(&Config::later(&place.root, b"key")).unwrap());
    let error =
        Firehose::over(conduit, Handlers::new(), &settings(Strategy::Bounce), Arc::new(Mlock));
    assert!(matches!(error, Err(Error::Late { peer: NodeId(2), founders: 1 })), "{error:?}");
}

/// Runs as a process until it is told to end, or to die.
fn run_until_told() {
    let ends = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ends);
    let handlers = Handlers::new()
        .with(DIE, |_| kill_process(getpid(), Signal::KILL).unwrap())
        .with(END, move |_| _ = count.fetch_add(1, SeqCst));
    let fabric = join(handlers).unwrap();
    let pid = getpid().as_raw_nonzero().get() as u64;
    fabric.segment().word(0).unwrap().store(pid, SeqCst);
    fabric.wait_until(LONG, || ends.load(SeqCst) > 0).unwrap();
}

#[test]
fn who_comes_while_a_rank_is_stopped_is_told_so_and_takes_no_place() {
    if is_rank() {
        return run_until_told();
    }
    let test = "who_comes_while_a_rank_is_stopped_is_told_so_and_takes_no_place";
    thread::scope(|scope| {
        for over in WAYS {
            scope.spawn(move || come_while_stopped(test, over));
        }
    });
}

fn come_while_stopped(test: &str, over: Over) {
    let job = new_job(2, over);
    let [(_, root), .., (_, key)] = job.variables(0);
    let start = |rank| {
        let capacity = (CAPACITY, "4".to_owned());
        start_one(test, over, job.variables(rank).into_iter().chain([capacity]))
    };
    let children = [start(0), start(1)].into();
    let place = Place { over, root, capacity: 4 };
    let later = |timeout| place.later_with(key.as_bytes(), timeout);
    let first = later(Duration::from_secs(20)).unwrap();
    let pid = || first.get_word(NodeId(1), 0).unwrap();
    let pid = (0..).map(|_| pid()).find(|&pid| pid > 0).unwrap() as i32;
    let signal = |signal| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
        thread::yield_now();
    }
    let error = later(Duration::from_secs(60)).err().unwrap();
    assert!(matches!(error, Error::Unresponsive { rank: 1, .. }), "over {over:?}: {error}");
    assert!(error.is_retryable());
    signal(Signal::CONT);
    let second = later(Duration::from_secs(20)).unwrap();
    assert_eq!(second.rank(), NodeId(3), "over {over:?}");
    second.request(NodeId(1), END, &[], &[]).unwrap();
    second.request(NodeId(0), END, &[], &[]).unwrap();
    assert!(common::ended(children).iter().all(std::process::ExitStatus::success));
}

#[test]
fn others_join_after_some_were_killed_and_nobody_after_rank_0_was() {
    if is_rank() {
        return run_until_told();
    }
    let test = "others_join_after_some_were_killed_and_nobody_after_rank_0_was";
    for over in WAYS {
        let job = new_job(3, over);
        let [(_, root), .., (_, key)] = job.variables(0);
        let start = |rank| {
            let capacity = (CAPACITY, "8".to_owned());
            start_one(test, over, job.variables(rank).into_iter().chain([capacity]))
        };
        let mut children: Vec<_> = (0..3).map(start).collect();
        let place = Place { over, root: root.clone(), capacity: 8 };
        let later = || place.later_with(key.as_bytes(), Duration::from_secs(20)).unwrap();
        let first = later();
        children.push(start_one(test, over, [(ROOT, root), (KEY, key.clone())]));
        first.until_has(NodeId(4));
        for lost in [1, 4].map(NodeId) {
            first.request(lost, DIE, &[], &[]).unwrap();
            assert_eq!(first.until_lost(lost), Lost::Died);
        }
        let second = later();
        assert_eq!(second.rank(), NodeId(5), "over {over:?}");
        let there: Vec<_> = (0..6).filter(|&rank| second.has(NodeId(rank))).collect();
        assert_eq!(there, [0, 2, 3, 5], "over {over:?}");
        first.request(NodeId(0), DIE, &[], &[]).unwrap();
        assert_eq!(second.until_lost(NodeId(0)), Lost::Died);
        let error = place.later_with(key.as_bytes(), SHORT).err().unwrap();
        assert!(matches!(error, Error::Unanswered { .. }), "{error}");
        second.request(NodeId(2), END, &[], &[]).unwrap();
        let statuses = common::ended(children);
        assert!(statuses[2].success(), "over {over:?}: {}", statuses[2]);
    }
}

#[test]
fn a_door_sleeps_and_ends_with_its_fabric() {
    if is_rank() {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let fabric = join(Handlers::new()).unwrap();
        let late = fabric_later();
        let spent = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let (start, waited) = (spent(), Duration::from_millis(500));
        assert!(fabric.wait_until(Some(waited), || false).is_err());
        let spent = spent() - start;
        assert!(spent < waited / 5, "{spent:?} of the processor in {waited:?}");
        assert!(threads() > before);
        drop((fabric, late));
        // The system shows one that was waited for a little longer.
        while threads() > before {
            thread::yield_now();
        }
        return;
    }
    let test = "a_door_sleeps_and_ends_with_its_fabric";
    for over in WAYS {
        let variables = new_job(1, over).variables(0).into_iter();
        let child = start_one(test, over, variables.chain([(CAPACITY, "4".to_owned())]));
        let statuses = common::ended(vec![child]);
        assert!(statuses[0].success(), "over {over:?}: {}", statuses[0]);
    }
}

/// One that joins where this process is rank 0.
fn fabric_later() -> Fabric {
    let variable = |name| std::env::var(name).unwrap();
    assert_eq!(variable(SIZE), "1");
    let config = Config::later(&variable(ROOT), variable(KEY).as_bytes());
    Fabric::join(&config, Handlers::new()).unwrap()
}
