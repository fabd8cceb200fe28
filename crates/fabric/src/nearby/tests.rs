//! Neighbours of one process, over each network.

use super::*;
use crate::active::Handlers;
use crate::conduit::QUEUES;
use crate::config::{APART, Job};
use crate::fabric::Fabric;
use crate::message::Payload;
use crate::segment::is_shared;
use crate::shm::ring::LINE_WORDS;
use crate::strided::strided;
use crate::tcp::Tcp;
#[cfg(feature = "ucx")]
use crate::ucx::Ucx;
use rustix::fs::{MemfdFlags, memfd_create};
use std::cell::Cell;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

const SHORT: Message<'static> =
    Message { handler: 1, args: &[7], payload: Payload::None, rest: &[] };

/// Nothing here takes as long.
const LONG: Duration = Duration::from_secs(30);

const ME: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);

/// Two ranks of this process, the second of which maps what the first has told unless it `is_shy`.
fn pair<N: Network>(
    root: &str,
    is_shy: bool,
    network: impl Fn(&Config, Option<Arc<Neighbours>>) -> Result<N, Error> + Sync,
) -> [Near<N>; 2] {
    let join = |rank: u32| {
        let config = Config { segment_bytes: 1 << 12, ..Config::new(root, (rank, 2), b"key") };
        let mut neighbours = Neighbours::new().unwrap();
        if is_shy && rank == 0 {
            // What may change its size is mapped by nobody.
            neighbours.fd = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        }
        let neighbours = Arc::new(neighbours);
        let network = network(&config, Some(Arc::clone(&neighbours))).unwrap();
        Near::new(network, neighbours)
    };
    thread::scope(|scope| {
        let join = &join;
        let second = scope.spawn(move || join(1));
        [join(0), second.join().unwrap()]
    })
}

fn by_tcp(is_shy: bool) -> [Near<Tcp>; 2] {
    let [(_, root), ..] = Job::loopback(2).unwrap().variables(0);
    pair(&root.replace(APART, ""), is_shy, Tcp::join_near)
}

/// Nothing where there is no UCX, as a test of all that goes over it says.
#[cfg(feature = "ucx")]
fn by_ucx(is_shy: bool) -> Option<[Near<Ucx>; 2]> {
    Ucx::join(&Config::new("ucx:127.0.0.1:9", (0, 1), b"")).ok()?;
    let [(_, root), ..] = Job::ucx(2).unwrap().variables(0);
    Some(pair(&root.replace(APART, ""), is_shy, Ucx::join_near))
}

/// Runs a test of two ranks over each network.
macro_rules! over_each {
    ($test:ident, $is_shy:expr) => {
        $test(by_tcp($is_shy));
        #[cfg(feature = "ucx")]
        by_ucx($is_shy).into_iter().for_each($test);
    };
}

/// How many messages come of a queue, which are all like that.
fn count<C: Conduit>(conduit: &C, queue: Queue) -> usize {
    conduit.receive(queue, &mut |_, message| assert_eq!(message.args, [7]))
}

/// Sleeps, and takes what comes, until `is_over`.
fn until(near: &impl Conduit, is_over: impl Fn() -> bool, mut run: impl FnMut(&Message<'_>)) {
    while !is_over() {
        for queue in QUEUES {
            near.receive(queue, &mut |_, message| run(&message));
        }
        // As a fabric does, for other threads.
        near.wake();
        let start = Instant::now();
        near.sleep(&QUEUES, &is_over, Some(LONG));
        assert!(start.elapsed() < LONG, "nobody has woken it");
    }
}

#[test]
fn what_neighbours_say_goes_by_no_network() {
    over_each!(go_by_no_network, false);
}

fn go_by_no_network<N: Network>([first, second]: [Near<N>; 2]) {
    let most = first.capabilities().medium_bytes;
    assert_eq!((most, first.medium_bytes(OTHER)), (MOST_BYTES, MOST_BYTES));
    assert!(first.medium_bytes(ME) > most, "it speaks to itself by the network");
    for queue in QUEUES {
        second.send(ME, queue, &SHORT).unwrap();
        assert_eq!(count(&first.network, queue), 0);
        assert_eq!(count(&first, queue), 1);
    }
    // To each other by memory, both ways.
    second.segment(ME).unwrap().write(100, &[1, 2, 3]).unwrap();
    let mut there = [0; 3];
    first.network.segment(ME).unwrap().read(100, &mut there).unwrap();
    assert_eq!(there, [1, 2, 3]);
    assert!(first.segment(OTHER).is_some() && first.network.segment(OTHER).is_none());
}

/// Without a time that is over, each would sleep for ever that is not woken.
#[test]
fn neighbours_that_sleep_are_woken() {
    over_each!(wake_each_other, false);
}

fn wake_each_other<N: Network>([first, second]: [Near<N>; 2]) {
    const ROUNDS: u32 = 1000;
    let [heard, answered] = [0; 2].map(AtomicU32::new);
    let is_over = |count: &AtomicU32| count.load(Ordering::Relaxed) == ROUNDS;
    thread::scope(|scope| {
        // Two threads of the second sleep on the same bell; either may take what comes.
        for _ in 0..2 {
            scope.spawn(|| {
                until(
                    &second,
                    || is_over(&heard),
                    |_| {
                        second.send(ME, Queue::Reply, &SHORT).unwrap();
                        heard.fetch_add(1, Ordering::Relaxed);
                    },
                );
                second.wake();
            });
        }
        for round in 0..ROUNDS {
            first.send(OTHER, Queue::Request, &SHORT).unwrap();
            let is_there = || answered.load(Ordering::Relaxed) > round;
            until(&first, is_there, |_| _ = answered.fetch_add(1, Ordering::Relaxed));
        }
    });
    assert!(is_over(&heard) && is_over(&answered));
}

/// One maps the other, which does not map it: so each has one way.
#[test]
fn who_does_not_map_its_neighbour_speaks_by_the_network_and_is_answered_by_memory() {
    over_each!(speak_each_by_its_way, true);
}

fn speak_each_by_its_way<N: Network>([first, second]: [Near<N>; 2]) {
    assert!(first.segment(OTHER).is_some() && second.segment(ME).is_none());
    // Answers that one asks the other for fit into either way.
    assert_eq!(first.medium_bytes(OTHER), second.medium_bytes(ME));
    first.send(OTHER, Queue::Request, &SHORT).unwrap();
    assert_eq!((count(&second.network, Queue::Request), count(&second, Queue::Request)), (0, 1));
    // More than a mailbox holds: who waits for room is woken by one that does not see it sleep.
    const MUCH: u32 = 4000;
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MUCH {
                let is_sent = Cell::new(false);
                let send = || {
                    let sent = || first.send(OTHER, Queue::Request, &SHORT).is_ok();
                    is_sent.set(is_sent.get() || sent());
                    is_sent.get()
                };
                while !send() {
                    let start = Instant::now();
                    first.sleep(&QUEUES, &send, Some(LONG));
                    assert!(start.elapsed() < LONG, "nobody has woken it");
                    first.receive(Queue::Reply, &mut |_, _| {});
                }
            }
        });
        thread::sleep(Duration::from_millis(100));
        let is_over = || taken.load(Ordering::Relaxed) == MUCH;
        until(&second, is_over, |_| _ = taken.fetch_add(1, Ordering::Relaxed));
    });
    second.send(ME, Queue::Reply, &SHORT).unwrap();
    let heard = AtomicU32::new(0);
    let is_over = || heard.load(Ordering::Relaxed) == 1;
    until(&first, is_over, |_| _ = heard.fetch_add(1, Ordering::Relaxed));
}

#[test]
fn ranks_are_neighbours_where_both_know_that_they_are_of_one_machine() {
    let (segment, fd) = Segment::create(64).unwrap();
    let other = Neighbours::new().unwrap();
    let told = other.told(&fd);
    let here = Machine::this().unwrap();
    let [pid, net] = here.namespaces;
    // Whether it tells where it is, and takes the other for a neighbour.
    for (machine, expected) in [
        (Some(here), (true, true)),
        (Some(Machine { boot: [7; 16], ..here }), (true, false)),
        (Some(Machine { namespaces: [pid + 1, net], ..here }), (true, false)),
        (Some(Machine { namespaces: [pid, net + 1], ..here }), (true, false)),
        (None, (false, false)),
    ] {
        let own = Neighbours { machine, ..Neighbours::new().unwrap() };
        own.admit(1, (&told, segment.bytes()));
        let found = (!own.told(&fd).is_empty(), own.ranks.get(1).is_some());
        assert_eq!(found, expected, "{machine:?}");
    }
}

#[test]
fn a_neighbour_that_writes_nonsense_is_lost() {
    over_each!(write_nonsense, false);
}

fn write_nonsense<N: Network>([first, second]: [Near<N>; 2]) {
    // UCX 1.13 ends the process of one whose peer hangs up while they still connect.
    for (from, to, there) in [(&first, OTHER, &second), (&second, ME, &first)] {
        from.network.send(to, Queue::Request, &SHORT).unwrap();
        let is_heard = Cell::new(false);
        until(&there.network, || is_heard.get(), |_| is_heard.set(true));
    }
    second.send(ME, Queue::Request, &SHORT).unwrap();
    assert_eq!(count(&first, Queue::Request), 1);
    let Mapped { outbox, .. } = second.neighbours.mapped(0).unwrap();
    let ring = outbox.mailbox.ring(1, Queue::Request);
    ring.0[2 * LINE_WORDS].store(u64::MAX, Ordering::Relaxed);
    until(&first, || first.lost(OTHER).is_some(), |_| panic!("it says nothing"));
    assert_eq!(first.lost(OTHER), Some(Lost::Broken));
    assert_eq!(first.send(OTHER, Queue::Reply, &SHORT), Err(Refusal::Lost));
    assert!(first.segment(OTHER).is_none());
}

#[test]
fn what_a_neighbour_has_said_before_it_leaves_still_comes_and_its_memory_is_held_by_nobody() {
    over_each!(say_and_leave, false);
}

fn say_and_leave<N: Network>([first, second]: [Near<N>; 2]) {
    second.send(ME, Queue::Request, &SHORT).unwrap();
    second.leave();
    assert_eq!(second.send(ME, Queue::Request, &SHORT), Err(Refusal::Lost));
    let mut heard = 0;
    until(&first, || first.lost(OTHER).is_some(), |_| heard += 1);
    heard += count(&first, Queue::Request);
    assert_eq!((heard, first.lost(OTHER)), (1, Some(Lost::Left)));
    for (near, of) in [(&first, 1), (&second, 0)] {
        let Mapped { outbox, segment } = near.neighbours.mapped(of).unwrap();
        assert!([segment, outbox.mailbox.memory()].into_iter().all(|m| !is_shared(m)));
    }
}

/// A handler of requests takes replies only while it waits for room, and nobody else takes anything here.
#[test]
fn who_waits_for_room_hears_that_its_neighbour_takes_no_more() {
    over_each!(wait_for_room_in_vain, false);
}

fn wait_for_room_in_vain<N: Network>([first, second]: [Near<N>; 2]) {
    while first.send(OTHER, Queue::Reply, &SHORT).is_ok() {}
    second.leave();
    let sent = Cell::new(Err(Refusal::Full));
    let is_over = || {
        sent.set(first.send(OTHER, Queue::Reply, &SHORT));
        sent.get() != Err(Refusal::Full)
    };
    let start = Instant::now();
    while !is_over() {
        first.sleep(&[Queue::Reply], &is_over, Some(LONG));
        count(&first, Queue::Reply);
        assert!(start.elapsed() < LONG, "nobody has told it");
    }
    assert_eq!(sent.get(), Err(Refusal::Lost));
}

/// Of a queue, by whatever way its messages come.
#[test]
fn handlers_run_one_at_a_time() {
    over_each!(run_one_at_a_time, false);
}

fn run_one_at_a_time<N: Network>([first, second]: [Near<N>; 2]) {
    for queue in QUEUES {
        // The one by the network, the other by memory.
        first.send(ME, queue, &SHORT).unwrap();
        second.send(ME, queue, &SHORT).unwrap();
        let others = Cell::new(0);
        let is_first = Cell::new(true);
        first.receive(queue, &mut |_, _| {
            if is_first.take() {
                others.set(thread::scope(|scope| {
                    let all = || count(&first, queue) + first.glance(queue, &mut |_, _| {});
                    scope.spawn(all).join().unwrap()
                }));
            }
        });
        assert_eq!((others.get(), is_first.get()), (0, false));
    }
}

/// Of one machine, and yet apart to one of them, as ranks of several are.
#[test]
fn what_goes_by_the_network_goes_in_messages_as_long_as_that_takes() {
    let [(_, apart), ..] = Job::loopback(2).unwrap().variables(0);
    let near = apart.replace(APART, "");
    let config = |root: &str, rank: u32| Config {
        segment_bytes: 1 << 17,
        ..Config::new(root, (rank, 2), b"key")
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| Tcp::join(&config(&apart, 1)).unwrap());
        (Fabric::join(&config(&near, 0), Handlers::new()).unwrap(), second.join().unwrap())
    });
    const BYTES: usize = 32 << 10;
    let copy = strided(&[64, BYTES as u64 / 64], &[64], &[128]);
    first.put_copies(OTHER, slice::from_ref(&copy), (&[7; BYTES], 0), 0).map(drop).unwrap();
    let mut there = [0; 2 * BYTES];
    first.get_copies(OTHER, &[copy], 0, (&mut there, 0)).map(drop).unwrap();
    let mut lengths = Vec::new();
    let mut hear = || {
        second.receive(Queue::Request, &mut |_, message| lengths.push(message.bytes()));
        lengths.len()
    };
    while hear() < 3 {}
    thread::sleep(Duration::from_millis(50));
    assert_eq!(hear(), 3, "bytes, what asks whether they are there, and what asks for them");
    assert!(lengths[0] > BYTES, "{lengths:?}");
}
