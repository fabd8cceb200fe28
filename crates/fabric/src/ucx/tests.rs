//! What comes out of order or can't be, and ranks of one process where there is UCX.

use super::boxes::TOLD;
use super::worker::{Arrivals, Worker};
use super::*;
use crate::config::{Job, UCX};
use crate::message::Payload;
use proptest::prelude::*;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::thread;

const SHORT: Message<'static> =
    Message { handler: 1, args: &[7], payload: Payload::None, rest: &[] };
const ME: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);

proptest! {
    /// Against the order in which they were sent.
    #[test]
    fn messages_are_taken_in_their_order(order in Just((0..100_u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut inbox = Inbox::new(2);
        for number in order {
            prop_assert_eq!(inbox.arrive(1, number, &[number as u8]), Some(()));
            prop_assert_eq!(inbox.arrive(1, number, &[0]), None, "twice");
        }
        let taken: Vec<_> = inbox.ready.drain(..).collect();
        let sent: Vec<_> = (0..100).map(|number| (1, vec![number])).collect();
        prop_assert_eq!(taken, sent);
        prop_assert_eq!(inbox.arrive(1, 100 + CREDITS as u64 + 1, &[]), None, "too early");
        prop_assert_eq!(inbox.arrive(1, 99, &[]), None, "too late");
    }

    /// Of a sender that heeds no credits, beside what it was told of; farewell needs none.
    #[test]
    fn no_more_of_a_sender_lies_there_than_it_has_credits(takes in prop::collection::vec(0_usize..3, 1..2000)) {
        let mut inbox = Inbox::new(2);
        let (mut number, mut taken, mut told) = (0, 0, 0);
        for take in takes {
            while number <= (told + CREDITS) as u64 {
                prop_assert_eq!(inbox.arrive(1, number, &[]), Some(()));
                number += 1;
            }
            prop_assert_eq!(inbox.arrive(1, number, &[]), None);
            prop_assert!(inbox.ready.len() <= CREDITS + 1);
            for (_, _, some) in (0..take).filter_map(|_| inbox.take(0)) {
                (taken, told) = (taken + 1, told + some);
                prop_assert!(taken - told < TOLD);
            }
        }
    }

    #[test]
    fn nothing_that_a_peer_tells_of_itself_makes_it_panic(
        gift in prop::collection::vec(any::<u8>(), 0..60),
        length in 0_u32..60,
    ) {
        let _ = described(&gift);
        let gift = [&[0; 16][..], &length.to_le_bytes(), &gift, &[0; 4]].concat();
        let fits = gift.len() - 24 == length as usize;
        let found = described(&gift).map(|(_, described, there)| (described.key.len(), there.len()));
        prop_assert!(!fits || found == Some((length as usize, 0)));
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let mut config = Config::new("ucx:127.0.0.1:9", (0, 1), b"");
    config.ucx = Some(PathBuf::from("/no/such/libucp.so"));
    let error = Ucx::join(&config).unwrap_err().to_string();
    assert!(error.starts_with(UCX) && error.contains("libucx0"), "{error}");
}

/// Two ranks of this process; `None` where there is no UCX, which it says.
fn pair(test: &str) -> Option<[Ucx; 2]> {
    pair_of(test, None)
}

/// As [`pair`], of this library if there is one.
fn pair_of(test: &str, library: Option<&Path>) -> Option<[Ucx; 2]> {
    let job = Job::ucx(2).unwrap();
    let join = |rank: u32| {
        let variables = job.variables(rank);
        let find = |name: &str| {
            let told = variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
            told.or_else(|| env::var(name).ok().filter(|_| name == UCX))
        };
        let mut config = Config::from_variables(find).unwrap();
        config.segment_bytes = 1000;
        config.ucx = library.map(Path::to_owned).or(config.ucx);
        Ucx::join(&config)
    };
    let joined = thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        [join(0), second.join().unwrap()]
    });
    match joined {
        [Ok(first), Ok(second)] => Some([first, second]),
        [Err(why @ Error::Config { .. }), _] => {
            println!("skipped: {test}: {why}");
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Sleeps until `is_over`, and takes what comes.
fn until(ucx: &Ucx, mut is_over: impl FnMut() -> bool) {
    while !is_over() {
        for queue in QUEUES {
            ucx.receive(queue, &mut |_, _| {});
        }
        ucx.sleep(&QUEUES, &|| false, Some(Duration::from_millis(20)));
    }
}

#[test]
fn messages_that_can_t_be_make_a_peer_lost() {
    let put = crate::tcp::frame::put_front(0, 8);
    let (short, length) = SHORT.front();
    let short = &short[..length];
    let longer = [short, &[0]].concat();
    let wrong: [(u32, u64, &[u8]); 8] = [
        (0, 0, &[0xFF; 8]),
        (1, 0, &[]),
        (0, 0, &put),
        (0, 0, &longer),
        (0, 1000, short),
        (CREDIT, 1, &[]),
        (CREDIT + 1, u64::MAX, &[]),
        (CREDIT + 2, 0, &[]),
    ];
    for (kind, number, frame) in wrong {
        let Some([first, second]) = pair("messages_that_can_t_be_make_a_peer_lost") else { return };
        let bytes = second.shared.framed((kind, number), &[frame]);
        second.shared.tell(Command::Send(0, bytes));
        until(&first, || first.lost(OTHER).is_some());
        assert_eq!((first.lost(OTHER), first.lost(ME)), (Some(Lost::Broken), None));
        assert_eq!(first.send(OTHER, Queue::Reply, &SHORT), Err(Refusal::Lost));
        assert_eq!(first.put(OTHER, Queue::Reply, &[(0, &[1])]), Err(Refusal::Lost));
    }
}

#[test]
fn what_was_sent_before_leaving_still_comes() {
    let Some([first, second]) = pair("what_was_sent_before_leaving_still_comes") else { return };
    assert!(second.version() >= [1, 13, 0]);
    second.send(ME, Queue::Reply, &SHORT).unwrap();
    assert_eq!(second.put(ME, Queue::Request, &[(5, &[1, 2, 3])]), Ok(3));
    drop(second);
    let mut heard = 0;
    while first.lost(OTHER).is_none() {
        for queue in QUEUES {
            first.receive(queue, &mut |_, message| heard += message.args.len());
        }
        first.sleep(&QUEUES, &|| first.lost(OTHER).is_some(), None);
    }
    assert_eq!((first.lost(OTHER), heard), (Some(Lost::Left), 1));
    let mut there = [9; 5];
    first.shared.segment.read(4, &mut there).unwrap();
    assert_eq!(there, [0, 1, 2, 3, 0]);
}

#[test]
fn a_queue_has_room_for_its_credits() {
    let Some([first, second]) = pair("a_queue_has_room_for_its_credits") else { return };
    let fill = |to| (0..).take_while(|_| first.send(to, Queue::Request, &SHORT).is_ok()).count();
    for (to, receiver) in [(OTHER, &second), (ME, &first)] {
        assert_eq!(fill(to), CREDITS);
        let (mut sent, mut heard) = (CREDITS, 0);
        while heard < 10 * CREDITS {
            receiver.sleep(&[Queue::Request], &|| false, Some(Duration::from_millis(20)));
            heard += receiver.receive(Queue::Request, &mut |_, _| {});
            sent += fill(to);
            assert!(sent - heard <= CREDITS);
        }
        until(receiver, || {
            heard += receiver.receive(Queue::Request, &mut |_, _| {});
            lock(&receiver.shared.inboxes[0]).ready.is_empty()
        });
    }
}

/// Memory of the host stands for a device's: how UCX reaches the latter is not seen.
#[test]
fn a_window_takes_runs_and_keeps_its_owner() {
    let Some([first, second]) = pair("a_window_takes_runs_and_keeps_its_owner") else { return };
    assert!(first.windows().is_none(), "no CUDA");
    let there: Keeper = Arc::new(vec![0_u8; 100]);
    let bytes = there.downcast_ref::<Vec<u8>>().unwrap();
    let all = (address(bytes.as_ptr()), 100);
    let (told, begun) = channel();
    let begin = Begin::new(move || told.send(thread::current().name().map(str::to_owned)).unwrap());
    // SAFETY: the vector stays with its owner.
    let window = unsafe { second.open(all, Arc::clone(&there), begin).unwrap() };
    assert_eq!(begun.try_recv().unwrap().as_deref(), Some("iso-ucx"));
    assert_eq!((window.start, window.bytes), all);
    let here: Vec<u8> = (1..=50).collect();
    let run = |from: usize, bytes, at| WindowRun { start: address(&here[from]), bytes, at };
    let put = |runs: &[WindowRun]| {
        // SAFETY: the vector stays, and nobody writes it.
        unsafe { first.put_to_window(OTHER, &window, runs) }
    };
    put(&[run(0, 10, 90), run(20, 1, 0), run(30, 5, 40)]).unwrap();
    // SAFETY: nobody writes it any more.
    let found = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), 100) };
    let mut wanted = vec![0; 100];
    wanted[90..].copy_from_slice(&here[..10]);
    wanted[0] = here[20];
    wanted[40..45].copy_from_slice(&here[30..35]);
    assert_eq!(found, wanted);
    assert_eq!(Arc::strong_count(&there), 2);
    let without_key = Window { key: Vec::new(), ..window.clone() };
    // SAFETY: as before.
    let refused = unsafe { first.put_to_window(OTHER, &without_key, &[run(0, 1, 0)]) }.unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    drop(second);
    assert_eq!(Arc::strong_count(&there), 1, "it has left");
    until(&first, || first.lost(OTHER).is_some());
    let lost = put(&[run(0, 1, 0)]).unwrap_err();
    assert!(matches!(lost, Error::PeerLost { peer: OTHER, .. }), "{lost}");
}

/// What a run has that the library of [`refuses_runs`] does not put.
const REFUSED_BYTES: u64 = 13;

/// A library that is UCX, and refuses some puts; `None` where it can't be made.
fn refuses_runs(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("refuses.c"), dir.join("libucp.so"));
    let text = format!(
        "#define _GNU_SOURCE
         #include <dlfcn.h>
         #include <stddef.h>
         #include <stdint.h>
         typedef void *put(void *, const void *, size_t, uint64_t, void *, const void *);
         put ucp_put_nbx;
         void *ucp_put_nbx(void *to, const void *from, size_t bytes, uint64_t at, void *key, const void *how)
         {{
             put *real = (put *)dlsym(RTLD_NEXT, \"ucp_put_nbx\");
             return bytes == {REFUSED_BYTES} ? (void *)(intptr_t)-3 : real(to, from, bytes, at, key, how);
         }}"
    );
    std::fs::write(&source, text).unwrap();
    let mut cc = Program::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(&library).arg(source);
    let made = cc.args(["-l:libucp.so.0", "-ldl"]).output();
    made.is_ok_and(|made| made.status.success()).then_some(library)
}

#[test]
fn what_has_left_is_there_before_a_refused_put_is_told() {
    let test = "what_has_left_is_there_before_a_refused_put_is_told";
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = refuses_runs(dir.path()) else {
        return println!("skipped: {test}: no UCX, or no C compiler");
    };
    let Some([first, second]) = pair_of(test, Some(&library)) else { return };
    let (here, there) = (vec![7_u8; 100], Arc::new(vec![0_u8; 100]));
    // SAFETY: the vector stays with its owner.
    let window = unsafe {
        let all = (address(there.as_ptr()), 100);
        second.open(all, Arc::clone(&there) as Keeper, Begin::new(|| ()))
    };
    let window = window.unwrap();
    let run = |bytes, at| WindowRun { start: address(here.as_ptr()), bytes, at };
    for at in 0..50 {
        // SAFETY: the vector stays, and nobody writes it.
        let put =
            unsafe { first.put_to_window(OTHER, &window, &[run(1, at), run(REFUSED_BYTES, 80)]) };
        assert!(matches!(put, Err(Error::Io { .. })), "{put:?}");
        // SAFETY: the byte is there, and whoever may still write it is another thread of this process.
        let found = unsafe { std::ptr::read_volatile(there.as_ptr().add(at as usize)) };
        assert_eq!(found, 7, "{at}");
    }
}

struct Deaf;

impl Arrivals for Deaf {
    fn arrive(&self, _: &[u8], _: &[u8]) {}
}

#[test]
fn a_worker_may_go_at_each_step_of_a_close() {
    let library = env::var_os(UCX).map(PathBuf::from);
    let open = || Worker::open(library.as_deref(), Arc::new(Deaf));
    let mut unfinished = 0;
    for steps in 0..10_000 {
        let (worker, other) = match (open(), open()) {
            (Ok(worker), Ok(other)) => (worker, other),
            (Err(why), _) if steps == 0 => {
                return println!("skipped: a_worker_may_go_at_each_step_of_a_close: {why}");
            }
            (Err(why), _) | (_, Err(why)) => panic!("{why}"),
        };
        let to = worker.connect(&other.address().unwrap()).unwrap();
        let data = [1; 64];
        // SAFETY: so little is copied before it goes on.
        let sent = unsafe { worker.send(&to, (&data, &data)) }.unwrap();
        let closed = worker.close(to, false);
        for _ in 0..steps {
            worker.progress();
            other.progress();
        }
        let left: Vec<_> = sent.into_iter().chain(closed).map(|request| (request, ())).collect();
        let is_over = left.iter().all(|(request, ())| worker.ended(request).is_some());
        worker.end(left);
        if is_over {
            break;
        }
        unfinished += 1;
        // Of what connects it to the first nothing tells it.
        std::mem::forget(other);
    }
    assert!((1..10_000).contains(&unfinished), "{unfinished}");
}

#[test]
fn a_worker_that_can_t_connect_to_all_stays_while_it_connects_to_some() {
    let library = env::var_os(UCX).map(PathBuf::from);
    let (segment, _fd) = Segment::create(1000).unwrap();
    let config = Config::new("ucx:127.0.0.1:9", (0, 3), b"");
    let shared = Arc::new(Shared::new(&config, Arc::new(segment), None));
    let worker = match Worker::open(library.as_deref(), Arc::clone(&shared)) {
        Ok(worker) => worker,
        Err(why) => {
            let test = "a_worker_that_can_t_connect_to_all_stays_while_it_connects_to_some";
            return println!("skipped: {test}: {why}");
        }
    };
    let other = Worker::open(library.as_deref(), Arc::new(Deaf)).unwrap();
    let peer = |address| Some(Described { address, key: Vec::new(), start: 0 });
    let described = [None, peer(other.address().unwrap()), peer(Vec::new())];
    let refused = Owner::new(worker, Arc::clone(&shared), &described).err();
    assert!(matches!(refused, Some(Error::Io { .. })), "{refused:?}");
    assert_eq!(Arc::strong_count(&shared), 2, "it has gone, and the other has not answered");
    // As in the test above.
    std::mem::forget(other);
}
