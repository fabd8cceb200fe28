//! The ring against a queue of the standard library, and ranks of one process.

use super::ring::{Found, LINE_WORDS, LINES, RING_WORDS, Reader, Words, Writer};
use super::sync::{AtomicU64, Ordering};
use super::*;
use crate::conduit::QUEUES;
use crate::config::Job;
use crate::message::{Copied, Payload};
use crate::segment::is_shared;
use proptest::prelude::*;
use rustix::net::{Shutdown, listen, shutdown};
use std::collections::VecDeque;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

fn ring() -> Vec<AtomicU64> {
    (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()
}

proptest! {
    /// Against a queue of the standard library, with room for so much.
    #[test]
    fn what_goes_in_comes_out(steps in prop::collection::vec((any::<bool>(), 0usize..4097), 1..2000)) {
        let words = ring();
        let ring = Words(&words);
        let (mut writer, mut reader, mut copied) =
            (Writer::default(), Reader::default(), Copied::new());
        let mut queue = VecDeque::new();
        for (i, (push, bytes)) in steps.into_iter().enumerate() {
            let payload = vec![i as u8; bytes];
            let message = Message {
                handler: i as u8,
                args: &[i as u32; 3],
                payload: Payload::Bytes(&payload),
                rest: &[],
            };
            if push {
                match writer.push(ring, &message) {
                    Ok(()) => queue.push_back((i, bytes)),
                    Err(refused) => {
                        prop_assert_eq!(refused, Refused::Full);
                        let lines: usize = queue.iter().map(|(_, b)| (8 + 16 + b) / 64 + 1).sum();
                        prop_assert!(lines > LINES / 2, "refused with {} lines", lines);
                    }
                }
            } else {
                let found = reader.pop(ring, &mut copied);
                prop_assert_eq!(found == Found::Nothing, queue.is_empty());
                if let Some((i, bytes)) = queue.pop_front() {
                    copied.with(|message| {
                        assert_eq!(message.args, [i as u32; 3]);
                        assert_eq!(message.payload, Payload::Bytes(&vec![i as u8; bytes]));
                    });
                }
            }
        }
    }

    /// A peer that stores anything anywhere.
    #[test]
    fn nonsense_ends_a_ring_and_no_more(stores in prop::collection::vec((0..RING_WORDS, any::<u64>()), 1..500)) {
        let words = ring();
        let ring = Words(&words);
        let (mut writer, mut reader, mut copied) =
            (Writer::default(), Reader::default(), Copied::new());
        for (i, (at, word)) in stores.into_iter().enumerate() {
            let message = Message { handler: 1, args: &[], payload: Payload::None, rest: &[] };
            let _ = writer.push(ring, &message);
            // Mostly what could be a message's start, where one is or is to be.
            let at = match at % 3 {
                0 => at,
                1 => at / LINE_WORDS * LINE_WORDS,
                _ => (1 + i % LINES) * LINE_WORDS,
            };
            words[at].store(word & 0xFFFF_001F_FF03, Ordering::Relaxed);
            match reader.pop(ring, &mut copied) {
                Found::Message { .. } => {
                    copied.with(|message| assert!(message.fits(MOST_BYTES)));
                }
                Found::Broken => prop_assert!(!reader.is_ready(ring)),
                Found::Nothing => {}
            }
        }
    }
}

/// It finds it when the reader has said how far it has come, and not yet looked who waits.
#[test]
fn who_finds_room_by_itself_leaves_another_that_waits_to_be_woken() {
    let words = ring();
    let ring = Words(&words);
    let (mut writer, mut reader, mut copied) =
        (Writer::default(), Reader::default(), Copied::new());
    let mut read = || reader.pop(ring, &mut copied);
    while writer.push(ring, &SHORT).is_ok() {}
    let done = LINES as u64 / 4 - 1;
    (0..done).for_each(|_| assert_eq!(read(), Found::Message { wakes: false }));
    words[0].store(done, Ordering::SeqCst);
    writer.push(ring, &SHORT).unwrap();
    assert_eq!(read(), Found::Message { wakes: true });
}

/// Two ranks of this process.
fn pair() -> [Shm; 2] {
    let job = Job::new(2).unwrap();
    let join = |rank: u32| {
        let variables = job.variables(rank);
        let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        Shm::join(&Config::from_variables(find).unwrap()).unwrap()
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        [join(0), second.join().unwrap()]
    })
}

#[test]
fn who_is_alone_meets_nobody() {
    let alone = Config::from_variables(|_| None).unwrap();
    let both = [Shm::join(&alone).unwrap(), Shm::join(&alone).unwrap()];
    for shm in both {
        shm.send(NodeId(0), Queue::Request, &SHORT).unwrap();
        assert_eq!(count(&shm, Queue::Request), 1);
    }
}

const SHORT: Message<'static> =
    Message { handler: 1, args: &[7], payload: Payload::None, rest: &[] };

fn count(shm: &Shm, queue: Queue) -> usize {
    shm.receive(queue, &mut |_, message| assert_eq!(message.args, [7]))
}

#[test]
fn a_peer_that_sends_nonsense_is_lost_and_others_are_not() {
    let [first, second] = pair();
    let (me, other) = (NodeId(0), NodeId(1));
    first.send(me, Queue::Request, &SHORT).unwrap();
    second.send(me, Queue::Request, &SHORT).unwrap();
    assert_eq!(count(&first, Queue::Request), 2);
    second.send(me, Queue::Request, &SHORT).unwrap();
    let ring = second.shared.peers.get(0).unwrap().outbox.mailbox.ring(1, Queue::Request);
    ring.0[2 * LINE_WORDS].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(count(&first, Queue::Request), 0);
    assert_eq!((first.lost(other), first.lost(me)), (Some(Lost::Broken), None));
    assert_eq!(first.send(other, Queue::Reply, &SHORT), Err(Refusal::Lost));
    second.send(me, Queue::Request, &SHORT).unwrap();
    assert_eq!(count(&first, Queue::Request), 0);
    first.send(me, Queue::Reply, &SHORT).unwrap();
    assert_eq!(count(&first, Queue::Reply), 1);
}

/// Why it is lost does not change.
#[test]
fn who_has_left_and_sent_nonsense_keeps_nobody_awake() {
    let [first, second] = pair();
    let ring = second.shared.peers.get(0).unwrap().outbox.mailbox.ring(1, Queue::Request);
    ring.0[LINE_WORDS].store(u64::MAX, Ordering::Relaxed);
    first.shared.lose(1, Lost::Left);
    let is_ready = || first.shared.inbox.is_ready(first.shared.own(), Queue::Request);
    assert!(is_ready());
    assert_eq!(count(&first, Queue::Request), 0);
    assert!(!is_ready());
}

#[test]
fn a_reader_that_says_nonsense_is_lost() {
    let [first, second] = pair();
    let ring = second.shared.me().outbox.mailbox.ring(0, Queue::Request);
    ring.0[0].store(u64::MAX, Ordering::Relaxed);
    let mut sends = (0..=LINES).map(|_| first.send(NodeId(1), Queue::Request, &SHORT));
    assert_eq!(sends.find(Result::is_err), Some(Err(Refusal::Lost)));
    assert_eq!(first.lost(NodeId(1)), Some(Lost::Broken));
}

#[test]
fn a_queue_has_room_for_its_credits_and_no_more_than_it_has_lines() {
    let [first, second] = pair();
    let fill =
        || (0..).take_while(|_| first.send(NodeId(1), Queue::Request, &SHORT).is_ok()).count();
    let mut held = fill();
    for _ in 0..100 {
        assert!((first.capabilities().credits..LINES).contains(&held), "{held}");
        held -= count(&second, Queue::Request);
        held += fill();
    }
}

#[test]
fn the_memory_of_a_rank_that_has_gone_is_held_by_nobody_else() {
    for is_dead in [false, true] {
        let (root, late) = open(Duration::from_secs(20));
        let own = Shm::join(&Config { segment_bytes: 1 << 16, ..late }).unwrap();
        let theirs = own.shared.peers.get(0).unwrap();
        let ours = root.shared.peers.get(1).unwrap();
        assert!(is_shared(&ours.segment) && is_shared(ours.outbox.mailbox.memory()));
        if is_dead {
            shutdown(lock(&theirs.socket).as_ref().unwrap(), Shutdown::Both).unwrap();
        } else {
            own.leave();
        }
        let why = if is_dead { Lost::Died } else { Lost::Left };
        while root.lost(NodeId(1)).is_none() {
            root.sleep(&QUEUES, &|| root.lost(NodeId(1)).is_some(), None);
        }
        assert_eq!(root.lost(NodeId(1)), Some(why));
        let end = Instant::now() + Duration::from_secs(20);
        while is_shared(&ours.segment) || is_shared(ours.outbox.mailbox.memory()) {
            assert!(Instant::now() < end, "it is held still");
            thread::yield_now();
        }
        // Who has gone still has its own, and the other what it has itself.
        assert!(is_shared(&own.shared.me().segment));
        root.send(NodeId(0), Queue::Request, &SHORT).unwrap();
        assert_eq!(count(&root, Queue::Request), 1);
        assert_eq!(root.send(NodeId(1), Queue::Request, &SHORT), Err(Refusal::Lost));
    }
}

#[test]
fn what_was_sent_before_leaving_still_comes() {
    let [first, second] = pair();
    second.send(NodeId(0), Queue::Request, &SHORT).unwrap();
    drop(second);
    while first.lost(NodeId(1)).is_none() {
        first.sleep(&QUEUES, &|| first.lost(NodeId(1)).is_some(), None);
    }
    assert_eq!(first.lost(NodeId(1)), Some(Lost::Left));
    assert_eq!(count(&first, Queue::Request), 1);
}

/// Where others may come later, with rank 0 of one that is patient for so long.
fn open(patience: Duration) -> (Shm, Config) {
    let job = Job::new(1).unwrap();
    let [(_, root), ..] = job.variables(0);
    let config = Config::new(&root, (0, 1), b"key");
    let root = Shm::join(&Config { capacity: 8, timeout: patience, ..config.clone() }).unwrap();
    (root, Config { is_late: true, ..config })
}

/// Told which rank it is; it does not go on.
fn told(config: &Config) -> crate::meeting::Entry {
    let Root::Local(name) = config.check().unwrap() else { unreachable!("it is a name") };
    join::come_to(config, name).unwrap()
}

#[test]
fn who_dies_while_it_joins_leaves_its_number_to_nobody() {
    let (root, late) = open(Duration::from_secs(20));
    // Who has called nobody yet takes no number.
    drop(told(&late));
    let first = told(&late);
    assert_eq!(first.config(&late).rank, 1);
    first.begin().unwrap();
    // Nor does who waits for its turn and gives up.
    let hasty = Config { timeout: Duration::from_millis(100), ..late.clone() };
    let error = Shm::join(&hasty).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }) && error.is_retryable(), "{error}");
    let has_died = AtomicU64::new(0);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let second = Shm::join(&late).unwrap();
            assert_eq!(has_died.load(Ordering::SeqCst), 1, "two joined at once");
            second
        });
        has_died.store(1, Ordering::SeqCst);
        drop(first);
        let second = second.join().unwrap();
        assert_eq!(second.place(), (NodeId(2), 3));
        for shm in [&root, &second] {
            assert!(!shm.has(NodeId(1)) && shm.has(NodeId(2)));
            assert_eq!((shm.lost(NodeId(1)), shm.segment_bytes(NodeId(1))), (None, 0));
            assert_eq!(shm.send(NodeId(1), Queue::Request, &SHORT), Err(Refusal::Lost));
        }
    });
}

#[test]
fn who_stops_while_it_joins_holds_the_next_up_for_so_long_only() {
    let (_root, late) = open(Duration::from_secs(20));
    let stopped = told(&Config { timeout: Duration::from_millis(100), ..late.clone() });
    stopped.begin().unwrap();
    assert_eq!(Shm::join(&late).unwrap().place().0, NodeId(2));
    let error = stopped.finish().unwrap_err();
    assert!(matches!(error, Error::Refused { rank: 0, .. }), "{error}");
}

#[test]
fn who_leaves_hangs_up_on_those_that_join() {
    let (root, late) = open(Duration::from_secs(20));
    let first = told(&late);
    thread::scope(|scope| {
        let second = scope.spawn(|| Shm::join(&Config { timeout: Duration::from_secs(1), ..late }));
        drop(root);
        assert!(second.join().unwrap().is_err());
    });
    assert!(first.finish().is_err());
}

#[test]
fn who_has_no_room_for_callers_holds_nobody_up_for_longer_than_it_waits() {
    let [(_, root), ..] = Job::new(1).unwrap().variables(0);
    let name = format!("isometry-{}-root", root.strip_prefix("local:").unwrap());
    let at = SocketAddr::from_abstract_name(name).unwrap();
    let stopped = UnixListener::bind_addr(&at).unwrap();
    listen(&stopped, 0).unwrap();
    let _caller = UnixStream::connect_addr(&at).unwrap();
    let (has_come, comes) = channel();
    let late = Config { timeout: Duration::from_millis(300), ..Config::later(&root, b"key") };
    thread::spawn(move || has_come.send(Shm::join(&late).map(drop)));
    let error = comes.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
    assert!(matches!(error, Error::Unanswered { .. }), "{error}");
}
