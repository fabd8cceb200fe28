//! Peers that die, stop, are strangers, or never come.

mod breaking;
mod common;

use breaking::break_connections;
use common::{Over, ended, is_mapped, is_rank, join, join_with, start, together, unmapped, ways};
use isometry_fabric::model::NodeId;
use isometry_fabric::{
    APART, Atomic, Barrier, Call, Config, Error, ErrorKind, Fabric, Handlers, Job, Lost, MOST_ARGS,
    Service,
};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HANDLER: u8 = 128;

/// How often that handler ran in this process.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// What a rank says to whoever calls.
const HELLO_BYTES: usize = 64;

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// Runs `body` as each of `size` ranks, and returns how these ended.
fn processes_over(
    test: &str,
    (size, over): (u32, Over),
    body: impl FnOnce(&Fabric),
) -> Option<Vec<ExitStatus>> {
    if is_rank() {
        let counts = |_: &Call<'_>| _ = CALLS.fetch_add(1, Ordering::Relaxed);
        body(&join(Handlers::new().with(HANDLER, counts)).unwrap());
        return None;
    }
    Some(ended(start(test, size, over)))
}

fn end_this_process() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    unreachable!("it has ended")
}

fn is_lost(error: &Error, rank: u32, how: Lost) -> bool {
    matches!(error, Error::PeerLost { peer, why } if peer.0 == rank && *why == how)
}

#[test]
fn a_peer_that_dies_is_named_and_others_go_on() {
    let test = "a_peer_that_dies_is_named_and_others_go_on";
    for over in ways(test) {
        let Some(statuses) = processes_over(test, (3, over), dies_or_goes_on) else { return };
        for (rank, status) in statuses.into_iter().enumerate() {
            match rank {
                1 => assert_eq!(status.signal(), Some(9)),
                _ => assert!(status.success(), "rank {rank} over {over:?}: {status}"),
            }
        }
    }
}

fn dies_or_goes_on(fabric: &Fabric) {
    fabric.barrier().unwrap();
    if fabric.rank() == NodeId(1) {
        // Whoever is still in the barrier would take it for one that did not come.
        fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) == 2).unwrap();
        end_this_process();
    }
    fabric.request(NodeId(1), HANDLER, &[], &[]).unwrap();
    let error = fabric.barrier().unwrap_err();
    assert!(is_lost(&error, 1, Lost::Died), "{error}");
    for error in [
        fabric.put(NodeId(1), 0, &[1]).unwrap_err(),
        fabric.get(NodeId(1), 0, &mut [1]).unwrap_err(),
        fabric.request(NodeId(1), HANDLER, &[], &[]).unwrap_err(),
    ] {
        assert!(is_lost(&error, 1, Lost::Died), "{error}");
    }
    let other = NodeId(2 - fabric.rank().0);
    fabric.put_word(other, 0, 5).unwrap();
    fabric
        .wait_until(LONG, || {
            fabric.wake();
            fabric.get_word(fabric.rank(), 0).unwrap() == 5
        })
        .unwrap();
}

#[test]
fn a_peer_that_dies_while_it_is_asked_is_named() {
    let test = "a_peer_that_dies_while_it_is_asked_is_named";
    for over in unmapped(test) {
        let Some(statuses) = processes_over(test, (2, over), is_asked_and_dies) else { return };
        for (rank, status) in statuses.into_iter().enumerate() {
            assert_eq!(status.success(), rank == 0, "rank {rank} over {over:?}: {status}");
        }
    }
}

fn is_asked_and_dies(fabric: &Fabric) {
    let (me, other) = (fabric.rank(), NodeId(1 - fabric.rank().0));
    fabric.barrier().unwrap();
    if me == NodeId(1) {
        // It says that it is there, and never polls again.
        fabric.request(other, HANDLER, &[], &[]).unwrap();
        thread::sleep(Duration::from_secs(1));
        end_this_process();
    }
    fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) > 0).unwrap();
    let mut buffer = vec![7; 10_000];
    let mut own = [1];
    let mut handles = [
        fabric.get_nb(other, 0, &mut buffer).unwrap(),
        fabric.put_nb(other, 0, &[1; 10_000]).unwrap(),
        fabric.get_nb(me, 0, &mut own).unwrap(),
    ];
    let error = fabric.wait_all(&mut handles, Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(!handles[0].is_over() && !handles[1].is_over() && handles[2].is_over());
    for handle in &mut handles[..2] {
        let error = handle.wait(LONG).unwrap_err();
        assert!(is_lost(&error, 1, Lost::Died), "{error}");
        assert!(handle.is_over() && handle.try_wait().unwrap());
    }
    drop(handles);
    assert!(buffer.iter().all(|&byte| byte == 7));
    for error in [
        fabric.atomic(other, 0, Atomic::Add(1)).unwrap_err(),
        fabric.fill(other, (0, 1), 1).unwrap_err(),
        fabric.request_long(other, HANDLER, &[], (&[1], 0)).unwrap_err(),
    ] {
        assert!(is_lost(&error, 1, Lost::Died), "{error}");
    }
}

fn lie(fabric: &Fabric, to: NodeId) {
    let send = |handler, args: &[u32], bytes| {
        fabric.request(to, handler, args, &vec![0; bytes]).unwrap();
    };
    for handler in 1..=10 {
        for count in 0..=MOST_ARGS {
            send(handler, &[u32::MAX; MOST_ARGS][..count], 9);
        }
    }
    for handler in [5, 6] {
        // The first thing that was asked has number 1; its answers say where they belong.
        for place in [0, 1000, 2000, 2999] {
            send(handler, &[1, 0, place, 0], 1000);
        }
    }
}

/// Answers to nothing, to what another was asked, and of the wrong lengths; puts and gets outside.
#[test]
fn what_nobody_asks_or_answers_is_dropped() {
    let test = "what_nobody_asks_or_answers_is_dropped";
    for over in unmapped(test) {
        let Some(statuses) = processes_over(test, (3, over), hears_lies) else { return };
        assert!(statuses.into_iter().all(|status| status.success()), "{over:?}");
    }
}

fn hears_lies(fabric: &Fabric) {
    let (me, liar) = (fabric.rank(), NodeId(2));
    let end = fabric.segment().bytes();
    fabric.fill(me, (0, end as usize), 9).unwrap();
    fabric.barrier().unwrap();
    if me == NodeId(1) {
        fabric.request(NodeId(0), HANDLER, &[], &[]).unwrap();
    }
    let mut buffer = [7; 3000];
    let mut get = (me == NodeId(0)).then(|| {
        fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) > 0).unwrap();
        fabric.get_nb(NodeId(1), 0, &mut buffer).unwrap()
    });
    // Lies come while who is asked does something else.
    thread::sleep(Duration::from_millis([0, 200, 50][me.0 as usize]));
    if me == liar {
        [NodeId(0), NodeId(1)].into_iter().for_each(|to| lie(fabric, to));
    }
    fabric.barrier().unwrap();
    if let Some(get) = &mut get {
        get.wait(LONG).unwrap();
    }
    drop(get);
    if me == NodeId(0) {
        assert!(buffer.iter().all(|&byte| byte == 9));
    }
    fabric.barrier().unwrap();
}

#[test]
fn a_peer_that_dies_with_its_queue_full_holds_nobody_up() {
    let test = "a_peer_that_dies_with_its_queue_full_holds_nobody_up";
    for over in ways(test) {
        let Some(statuses) = processes_over(test, (2, over), fills_a_queue) else { return };
        for (rank, status) in statuses.into_iter().enumerate() {
            assert_eq!(status.success(), rank == 0, "rank {rank} over {over:?}: {status}");
        }
    }
}

fn fills_a_queue(fabric: &Fabric) {
    let (me, other) = (fabric.rank(), NodeId(1 - fabric.rank().0));
    if me == NodeId(1) {
        // It says that it is there, and never polls.
        fabric.request(other, HANDLER, &[], &[]).unwrap();
        thread::sleep(Duration::from_millis(300));
        end_this_process();
    }
    fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) > 0).unwrap();
    let bytes = vec![1; fabric.capabilities().medium_bytes];
    let sent = (0..).find_map(|count| {
        let bytes = if count < fabric.capabilities().credits { &[] } else { &bytes[..] };
        fabric.request(other, HANDLER, &[], bytes).err().map(|error| (count, error))
    });
    let (count, error) = sent.unwrap();
    assert!(is_lost(&error, 1, Lost::Died), "{error}");
    assert!(count >= fabric.capabilities().credits, "{count}");
}

#[test]
fn a_peer_that_stops_is_a_timeout_and_not_lost() {
    let test = "a_peer_that_stops_is_a_timeout_and_not_lost";
    for over in ways(test) {
        let Some(statuses) = processes_over(test, (2, over), stops_or_waits) else { return };
        assert!(statuses.into_iter().all(|status| status.success()), "{over:?}");
    }
}

fn stops_or_waits(fabric: &Fabric) {
    let me = fabric.rank();
    if me == NodeId(1) {
        fabric.put_word(NodeId(0), 8, getpid().as_raw_nonzero().get() as u64).unwrap();
        fabric.barrier().unwrap();
        // Another thread may be about to say that it came.
        fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) == 1).unwrap();
        kill_process(getpid(), Signal::STOP).unwrap();
        // The signal may take a while.
        while fabric.get_word(me, 16).unwrap() == 0 {
            fabric.poll();
            thread::yield_now();
        }
        return fabric.barrier().unwrap();
    }
    fabric.barrier().unwrap();
    fabric.request(NodeId(1), HANDLER, &[], &[]).unwrap();
    fabric.barrier_notify(Barrier::Anonymous).unwrap();
    let wait = |most| fabric.barrier_wait(Barrier::Anonymous, most);
    let error = wait(Some(Duration::from_millis(200))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(fabric.lost(NodeId(1)), None);
    let stopped = Pid::from_raw(fabric.get_word(me, 8).unwrap() as i32).unwrap();
    kill_process(stopped, Signal::CONT).unwrap();
    fabric.put_word(NodeId(1), 16, 1).unwrap();
    wait(LONG).unwrap();
}

/// A full queue is no silence: its machine still says that there is no room.
#[test]
fn a_peer_that_stops_with_its_queues_full_is_not_lost() {
    const MUCH: usize = 64 << 20;
    let silence = Duration::from_secs(2);
    if !is_rank() {
        let test = "a_peer_that_stops_with_its_queues_full_is_not_lost";
        let statuses = ended(start(test, 2, Over::Tcp));
        return assert!(statuses.into_iter().all(|status| status.success()));
    }
    let change =
        |config: &mut Config| (config.segment_bytes, config.silence) = (MUCH as u64, silence);
    let fabric = join_with(Handlers::new(), change).unwrap();
    if fabric.rank() == NodeId(1) {
        let id = getpid().as_raw_nonzero().get() as u64;
        fabric.put_value(NodeId(0), 0, id, 8).unwrap();
    }
    fabric.barrier().unwrap();
    if fabric.rank() == NodeId(1) {
        kill_process(getpid(), Signal::STOP).unwrap();
        return fabric.barrier().unwrap();
    }
    thread::scope(|scope| {
        let put = scope.spawn(|| fabric.put(NodeId(1), 0, &vec![1; MUCH]));
        fabric.wait_until(Some(2 * silence), || put.is_finished()).unwrap_err();
        assert_eq!(fabric.lost(NodeId(1)), None);
        let stopped = fabric.get_value(NodeId(0), 0, 8).unwrap();
        kill_process(Pid::from_raw(stopped as i32).unwrap(), Signal::CONT).unwrap();
        put.join().unwrap().unwrap();
    });
    fabric.barrier().unwrap();
}

/// Where nobody knows whose process is whose, who can't be reached is taken to be gone. Not over UCX, of which 1.13
/// ends the process whose connections break.
#[test]
fn a_peer_is_gone_once_it_has_left_or_its_process_has_ended() {
    let test = "a_peer_is_gone_once_it_has_left_or_its_process_has_ended";
    for over in [Over::Shm, Over::Messages, Over::Tcp, Over::NearTcp] {
        let Some(statuses) = processes_over(test, (3, over), is_cut_off_or_leaves) else { return };
        let signals: Vec<_> = statuses.iter().map(ExitStatus::signal).collect();
        assert_eq!(signals, [None, Some(9), Some(9)], "over {over:?}: {statuses:?}");
        assert!(statuses[0].success(), "over {over:?}: {}", statuses[0]);
    }
}

fn is_cut_off_or_leaves(fabric: &Fabric) {
    let (me, first) = (fabric.rank(), NodeId(0));
    let [cut, left] = [1, 2].map(NodeId);
    if me != first {
        let number = getpid().as_raw_nonzero().get() as u64;
        fabric.put_word(first, 8 * u64::from(me.0), number).unwrap();
    }
    fabric.barrier().unwrap();
    if me != first {
        if me == left {
            fabric.request(cut, HANDLER, &[], &[]).unwrap();
        }
        // Whoever is still in the barrier would take it for one that did not come.
        let calls = if me == cut { 2 } else { 1 };
        fabric.wait_until(LONG, || CALLS.load(Ordering::Relaxed) == calls).unwrap();
        if me == cut {
            break_connections()
        } else {
            fabric.leave().unwrap()
        }
        loop {
            thread::park();
        }
    }
    for peer in [cut, left] {
        assert!(!fabric.is_gone(peer), "it is not even lost");
        fabric.request(peer, HANDLER, &[], &[]).unwrap();
    }
    fabric.wait_until(LONG, || fabric.is_gone(left)).unwrap();
    fabric.wait_until(LONG, || fabric.lost(cut).is_some()).unwrap();
    assert_eq!([cut, left].map(|peer| fabric.lost(peer)), [Some(Lost::Died), Some(Lost::Left)]);
    let kill = |peer: NodeId| {
        let number = fabric.get_word(me, 8 * u64::from(peer.0)).unwrap();
        kill_process(Pid::from_raw(number as i32).unwrap(), Signal::KILL).unwrap();
    };
    if is_mapped() {
        let waited = fabric.wait_until(Some(Duration::from_millis(100)), || fabric.is_gone(cut));
        assert!(waited.is_err(), "its process goes on");
    } else {
        assert!(fabric.is_gone(cut));
    }
    thread::scope(|scope| {
        // Who sleeps is woken.
        scope.spawn(|| fabric.wait_until(None, || fabric.is_gone(cut)).unwrap());
        kill(cut);
    });
    kill(left);
}

#[test]
fn who_waits_sleeps() {
    for over in ways("who_waits_sleeps") {
        let Some(statuses) = processes_over("who_waits_sleeps", (2, over), sleeps) else { return };
        assert!(statuses.into_iter().all(|status| status.success()), "{over:?}");
    }
}

fn sleeps(fabric: &Fabric) {
    let spent = || {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
    };
    fabric.barrier().unwrap();
    let before = spent();
    let waited = Duration::from_millis(500);
    assert!(fabric.wait_until(Some(waited), || false).is_err());
    let spent = spent() - before;
    assert!(spent < waited / 5, "{spent:?} of the processor in {waited:?}");
    fabric.barrier().unwrap();
}

/// Rank 1 does not poll; a thread of it does.
#[test]
fn a_service_answers_while_its_process_does_something_else() {
    [Over::Shm, Over::Tcp, Over::NearTcp].into_iter().for_each(is_served);
}

fn is_served(over: Over) {
    let served = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&served);
    let both = together(
        over,
        vec![
            Handlers::new().with(HANDLER + 1, move |_| _ = count.fetch_add(1, Ordering::Relaxed)),
            Handlers::new().with(HANDLER, |call| call.reply(HANDLER + 1, &[], &[]).unwrap()),
        ],
    );
    let [first, second] = <[Fabric; 2]>::try_from(both).unwrap();
    let second = Arc::new(second);
    let service = Service::of(Arc::clone(&second)).unwrap();
    for round in 1..=1000 {
        first.request(NodeId(1), HANDLER, &[], &[]).unwrap();
        first.wait_until(LONG, || served.load(Ordering::Relaxed) == round).unwrap();
    }
    drop(service);
    first.request(NodeId(1), HANDLER, &[], &[]).unwrap();
    assert_eq!(Arc::into_inner(second).unwrap().poll(), 1, "nobody else took it");
}

/// Which others can't take for it meanwhile.
#[test]
fn who_waits_sleeps_while_a_handler_takes_its_time() {
    let ways = ways("who_waits_sleeps_while_a_handler_takes_its_time");
    let is_real = |over: &Over| !matches!(over, Over::Messages);
    ways.into_iter().filter(is_real).for_each(sleeps_beside_a_handler);
}

fn sleeps_beside_a_handler(over: Over) {
    const LENGTH: Duration = Duration::from_millis(500);
    let (begun, calls) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (begins, counts) = (Arc::clone(&begun), Arc::clone(&calls));
    let handlers = Handlers::new()
        .with(HANDLER, move |_| {
            begins.fetch_add(1, Ordering::Relaxed);
            thread::sleep(LENGTH);
        })
        .with(HANDLER + 1, move |_| _ = counts.fetch_add(1, Ordering::Relaxed));
    let [first, second] =
        <[Fabric; 2]>::try_from(together(over, vec![handlers, Handlers::new()])).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| first.wait_until(LONG, || calls.load(Ordering::Relaxed) == 100).unwrap());
        second.request(NodeId(0), HANDLER, &[], &[]).unwrap();
        while begun.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = spent();
        for _ in 0..100 {
            second.request(NodeId(0), HANDLER + 1, &[], &[]).unwrap();
        }
        first.wait_until(LONG, || calls.load(Ordering::Relaxed) == 100).unwrap();
        let spent = spent() - before;
        assert!(spent < LENGTH / 5, "{spent:?} of the processor over {over:?}");
    });
}

/// What comes by a network is looked at less often than what neighbours write, but is.
#[test]
fn who_is_flooded_by_a_neighbour_hears_others_too() {
    let flooded = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&flooded);
    let answered = Arc::new(AtomicU32::new(0));
    let answers = Arc::clone(&answered);
    let handlers = Handlers::new()
        .with(HANDLER, move |_| _ = count.fetch_add(1, Ordering::Relaxed))
        .with(HANDLER + 1, |call| call.reply(HANDLER + 2, &[], &[]).unwrap())
        .with(HANDLER + 2, move |_| _ = answers.fetch_add(1, Ordering::Relaxed));
    let [first, second] =
        <[Fabric; 2]>::try_from(together(Over::NearTcp, vec![handlers, Handlers::new()])).unwrap();
    let is_over = || answered.load(Ordering::Relaxed) == 1;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over() {
                second.request(NodeId(0), HANDLER, &[], &[]).unwrap();
            }
        });
        first.wait_until(LONG, || flooded.load(Ordering::Relaxed) > 1000).unwrap();
        // A rank's own go by the network.
        first.request(NodeId(0), HANDLER + 1, &[], &[]).unwrap();
        first.wait_until(LONG, is_over).unwrap();
        // The other may wait for room.
        first.wait_until(Some(Duration::from_millis(100)), || false).unwrap_err();
    });
}

/// Makes a meeting place that no other ranks have.
type NewJob = fn(u32) -> Result<Job, Error>;

const JOBS: [NewJob; 2] = [Job::new, Job::loopback];

fn root_of(job: NewJob) -> String {
    let [(_, root), ..] = job(2).unwrap().variables(0);
    root
}

/// Two ranks of this process, joined with these keys and sizes, and a short patience.
fn pair(job: NewJob, configs: [(u32, u32, &str); 2]) -> Vec<Result<Fabric, Error>> {
    let root = root_of(job);
    let join = |(rank, size, key): (u32, u32, &str)| {
        let mut config = Config::new(&root, (rank, size), key.as_bytes());
        config.timeout = Duration::from_millis(500);
        Fabric::join(&config, Handlers::new())
    };
    thread::scope(|scope| {
        let threads = configs.map(|config| scope.spawn(move || join(config)));
        threads.map(|thread| thread.join().unwrap()).into()
    })
}

#[test]
fn who_has_another_key_or_size_does_not_join() {
    let second = [
        ((1, 2, "other"), "key"),
        ((1, 3, "key"), "ISOMETRY_SIZE is 2 for rank 0, and 3 for this one"),
    ];
    for (job, (second, why)) in JOBS.into_iter().flat_map(|job| second.map(|s| (job, s))) {
        let joined = pair(job, [(0, 2, "key"), second]);
        let [Err(first), Err(second)] = &joined[..] else { panic!("{joined:?}") };
        assert!(matches!(first, Error::Missing { missing, .. } if *missing == [1]), "{first}");
        let is_told =
            matches!(second, Error::Refused { rank: 0, .. } | Error::Disagreement { rank: 0, .. });
        assert!(is_told && second.to_string().contains(why), "{second}");
    }
}

#[test]
fn one_rank_is_not_two() {
    for job in JOBS {
        let joined = pair(job, [(0, 2, "key"), (0, 2, "key")]);
        assert_eq!(joined.iter().flatten().count(), 0);
        let has = |kind: fn(&Error) -> bool| joined.iter().any(|j| j.as_ref().is_err_and(kind));
        // Where any program may listen, nobody knows that it is a rank.
        let is_refused =
            |e: &Error| matches!(e, Error::Refused { rank: 0, .. } | Error::Config { .. });
        assert!(has(is_refused), "{joined:?}");
        assert!(has(|e| matches!(e, Error::Missing { .. })), "{joined:?}");
    }
}

#[test]
fn strangers_hold_nobody_up() {
    let root = root_of(Job::new);
    let name = format!("isometry-{}-0", root.strip_prefix("local:").unwrap());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    hold_nobody_up(&root, || UnixStream::connect_addr(&address));
    let root = root_of(Job::loopback);
    hold_nobody_up(&root, || {
        // Before anybody listens, a socket may connect to itself.
        let socket = TcpStream::connect(root.replace(APART, ""))?;
        if socket.local_addr()? == socket.peer_addr()? {
            set_socket_linger(&socket, Some(Duration::ZERO))?;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(socket)
    });
}

/// Strangers call rank 0, and others join.
fn hold_nobody_up<S: Write>(root: &str, call: impl Fn() -> io::Result<S>)
where
    for<'a> &'a S: Read,
{
    let join = |rank| Fabric::join(&Config::new(root, (rank, 2), b"key"), Handlers::new());
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        let connect = || loop {
            if let Ok(socket) = call() {
                return socket;
            }
            thread::yield_now();
        };
        let silent = connect();
        let mut noisy = connect();
        noisy.write_all(&[0x55; 4096]).unwrap();
        let mut short = connect();
        short.write_all(b"isometry").unwrap();
        drop(short);
        // Who is silent is being heard, and is hung up on in the end.
        (&silent).read_exact(&mut [0; HELLO_BYTES]).unwrap();
        let second = join(1).unwrap();
        let first = first.join().unwrap().unwrap();
        assert_eq!((&silent).read(&mut [0]).unwrap(), 0);
        second.request(NodeId(0), HANDLER, &[], &[]).unwrap();
        drop(second);
        let left = first.wait_until(LONG, || first.lost(NodeId(1)) == Some(Lost::Left));
        left.unwrap();
    });
}
