//! Ranks of one process, and what a peer may do wrong.

use super::*;
use crate::config::{APART, Job};
use crate::message::Payload;
use crate::tcp::stream::CREDITS;
use std::thread;

const SEGMENT_BYTES: u64 = 1 << 20;

/// Two ranks of this process.
fn pair() -> [Tcp; 2] {
    let job = Job::loopback(2).unwrap();
    let join = |rank: u32| {
        let variables = job.variables(rank);
        let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let mut config = Config::from_variables(find).unwrap();
        config.segment_bytes = SEGMENT_BYTES;
        Tcp::join(&config).unwrap()
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        [join(0), second.join().unwrap()]
    })
}

const SHORT: Message<'static> =
    Message { handler: 1, args: &[7], payload: Payload::None, rest: &[] };
const ME: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);

/// Sleeps until `is_over`, and takes what comes.
fn until(tcp: &Tcp, mut is_over: impl FnMut() -> bool) {
    while !is_over() {
        for queue in QUEUES {
            tcp.receive(queue, &mut |_, _| {});
        }
        tcp.sleep(&QUEUES, &|| false, Some(Duration::from_millis(20)));
    }
}

/// How many messages come until there are so many.
fn hear(tcp: &Tcp, queue: Queue, most: usize) {
    let mut heard = 0;
    while heard < most {
        tcp.receive(queue, &mut |_, message| {
            assert_eq!(message.args, [7]);
            heard += 1;
        });
        tcp.sleep(&[queue], &|| heard >= most, None);
    }
    assert_eq!(heard, most);
}

/// Has the first rank read what the second one's socket says.
fn say(second: &Tcp, queue: Queue, bytes: &[u8]) {
    // What goes by one comes by the other's connection.
    let stream = &second.shared.peers.get(0).unwrap().streams[1 - queue as usize];
    assert_eq!(send(stream.source().unwrap(), bytes, SendFlags::empty()), Ok(bytes.len()));
}

#[test]
fn who_is_alone_reaches_itself() {
    let tcp = Tcp::join(&Config::new("127.0.0.1:9", (0, 1), b"")).unwrap();
    for queue in QUEUES {
        tcp.send(ME, queue, &SHORT).unwrap();
        hear(&tcp, queue, 1);
    }
}

#[test]
fn frames_that_can_t_be_make_a_peer_lost_and_write_nothing() {
    let put = frame::put_front;
    let too_long = (2_u64 | (MEDIUM_BYTES as u64 + 1) << 32).to_le_bytes();
    let nonsense: [&[u8]; 6] =
        [&[0xFF; 8], &[0; 8], &too_long, &put(SEGMENT_BYTES - 1, 2), &put(u64::MAX, 1), &put(0, 0)];
    for bytes in nonsense {
        for queue in QUEUES {
            let [first, second] = pair();
            second.send(ME, queue, &SHORT).unwrap();
            hear(&first, queue, 1);
            // What comes behind nonsense, or by the other stream, is not taken either.
            say(&second, queue, &[bytes, &put(0, 8), &[9; 8]].concat());
            while !first.shared.peers.get(1).unwrap().is_broken() {
                first.receive(queue, &mut |_, _| panic!("nobody said that"));
            }
            say(&second, QUEUES[1 - queue as usize], &[&put(8, 8)[..], &[9; 8]].concat());
            until(&first, || first.lost(OTHER).is_some());
            assert_eq!((first.lost(OTHER), first.lost(ME)), (Some(Lost::Broken), None));
            for queue in QUEUES {
                assert_eq!(first.send(OTHER, queue, &SHORT), Err(Refusal::Lost));
                assert_eq!(first.put(OTHER, queue, &[(0, &[1])]), Err(Refusal::Lost));
            }
            let mut start = [7; 16];
            first.shared.segment.read(0, &mut start).unwrap();
            assert_eq!(start, [0; 16]);
            until(&second, || second.lost(ME).is_some());
            assert_eq!(second.lost(ME), Some(Lost::Died));
        }
    }
}

#[test]
fn a_frame_comes_in_any_pieces() {
    let [first, second] = pair();
    let (short, length) = SHORT.front();
    let stream = [&frame::put_front(3, 5)[..], &[1, 2, 3, 4, 5], &short[..length]].concat();
    for byte in stream.iter().chain(&stream) {
        say(&second, Queue::Request, &[*byte]);
        until(&first, || first.receive(Queue::Reply, &mut |_, _| {}) == 0);
    }
    let mut there = [9; 10];
    until(&first, || {
        first.shared.segment.read(0, &mut there).unwrap();
        there == [0, 0, 0, 1, 2, 3, 4, 5, 0, 0]
    });
    assert_eq!(first.lost(OTHER), None);
}

#[test]
fn a_queue_has_room_for_its_credits_and_what_it_took_comes() {
    let [first, second] = pair();
    let full = [5; MEDIUM_BYTES];
    let message = Message { handler: 1, args: &[7], payload: Payload::Bytes(&full), rest: &[] };
    let mut sent =
        (0..).take_while(|_| first.send(OTHER, Queue::Request, &message).is_ok()).count();
    // All is full; what comes out makes room for as many as were promised.
    assert_eq!(first.put(OTHER, Queue::Request, &[(0, &[1])]), Err(Refusal::Full));
    first.send(OTHER, Queue::Reply, &SHORT).unwrap();
    hear(&second, Queue::Reply, 1);
    let mut heard = 0;
    let mut shorts = 0;
    while shorts < CREDITS {
        second.receive(Queue::Request, &mut |_, _| heard += 1);
        shorts += (0..).take_while(|_| first.send(OTHER, Queue::Request, &SHORT).is_ok()).count();
    }
    sent += shorts;
    while heard < sent {
        first.receive(Queue::Request, &mut |_, _| {});
        second.receive(Queue::Request, &mut |_, _| heard += 1);
    }
    assert_eq!((heard, first.shared.waiting.writable().len()), (sent, 0));
}

#[test]
fn messages_that_are_sent_together_come_whole_and_in_order() {
    let [first, second] = pair();
    // More than a call writes, of lengths that end anywhere, until the socket is full.
    let bytes: Vec<u8> = (0..MEDIUM_BYTES).map(|i| (i * 7 / 3) as u8).collect();
    let payload = |i: usize| &bytes[..i * 7919 % 3000];
    let args: Vec<[u32; 1]> = (0..1000).map(|i| [i]).collect();
    let message =
        |(i, args)| Message { handler: 1, args, payload: Payload::of(payload(i)), rest: &[] };
    let messages: Vec<_> = args.iter().map(|args| &args[..]).enumerate().map(message).collect();
    let (all, mut sent, mut heard, mut most) = (10 * messages.len(), 0, 0, 0);
    let mut was_full = false;
    while heard < all {
        while sent < all {
            match first.send_some(OTHER, Queue::Request, &messages[sent % messages.len()..]) {
                Ok(taken) => (sent, most) = (sent + taken, most.max(taken)),
                Err(refusal) => {
                    was_full |= refusal == Refusal::Full;
                    break;
                }
            }
        }
        second.receive(Queue::Request, &mut |_, came| {
            assert_eq!(came, messages[heard % messages.len()]);
            heard += 1;
        });
        first.receive(Queue::Request, &mut |_, _| {});
    }
    assert_eq!((sent, most, was_full), (heard, 256, true));
}

#[test]
fn what_was_sent_before_leaving_still_comes() {
    let [first, second] = pair();
    // More than fits into a socket, so that some of it is taken while the other leaves.
    let bytes = vec![3; SEGMENT_BYTES as usize];
    second.send(ME, Queue::Reply, &SHORT).unwrap();
    assert_eq!(second.put(ME, Queue::Request, &[(5, &bytes[5..9])]), Ok(4));
    first.send(OTHER, Queue::Request, &SHORT).unwrap();
    drop(second);
    let mut heard = 0;
    while first.lost(OTHER).is_none() {
        for queue in QUEUES {
            first.receive(queue, &mut |_, _| heard += 1);
        }
        first.sleep(&QUEUES, &|| first.lost(OTHER).is_some(), None);
    }
    assert_eq!((first.lost(OTHER), heard), (Some(Lost::Left), 1));
    let mut there = [0; 6];
    first.shared.segment.read(4, &mut there).unwrap();
    assert_eq!(there, [0, 3, 3, 3, 3, 0]);
    assert_eq!(first.send(OTHER, Queue::Request, &SHORT), Err(Refusal::Lost));
}

#[test]
fn two_that_hear_of_leaving_at_once_take_what_still_comes() {
    let [first, second] = pair();
    // More than a receiver has room for that does not read.
    let bytes = vec![3; 16 << 10];
    let message = Message { handler: 1, args: &[7], payload: Payload::Bytes(&bytes), rest: &[] };
    (0..24).for_each(|_| second.send(ME, Queue::Request, &message).unwrap());
    drop(second);
    while first.shared.is_there(1) {
        thread::yield_now();
    }
    // As threads do that take a queue each.
    QUEUES.iter().for_each(|_| first.shared.hear(1));
    let mut heard = 0;
    while first.lost(OTHER).is_none() {
        for queue in QUEUES {
            first.receive(queue, &mut |_, _| heard += 1);
        }
    }
    assert_eq!((first.lost(OTHER), heard), (Some(Lost::Left), 24));
}

/// Whoever takes it is one, and others may just have looked.
#[test]
fn a_nudge_wakes_all_that_are_about_to_sleep() {
    let [first, second] = pair();
    let bells = [0; 2].map(|_| first.shared.waiting.bells.hang().unwrap());
    second.nudge(ME);
    let mut fds = bells.each_ref().map(|bell| PollFd::new(bell, PollFlags::IN));
    let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let is_rung = |_| {
        first.shared.hear(1);
        poll(&mut fds, Some(&moment)).unwrap() == 2
    };
    assert!((0..10_000).any(is_rung));
    assert!(first.shared.is_there(1) && first.lost(OTHER).is_none());
}

#[test]
fn a_silent_connection_that_ends_is_a_peer_that_died() {
    let [first, second] = pair();
    let silent = second.shared.peers.get(0).unwrap().silent.as_ref().unwrap().get().unwrap();
    rustix::net::shutdown(silent, rustix::net::Shutdown::Both).unwrap();
    until(&first, || first.lost(OTHER).is_some());
    assert_eq!(first.lost(OTHER), Some(Lost::Died));
    until(&second, || second.lost(ME).is_some());
}

#[test]
fn who_dies_before_it_has_said_that_it_joined_is_lost_and_others_join() {
    let root = place();
    let config = Config::new(&root, (0, 1), b"key");
    let first = Tcp::join(&Config { capacity: 4, ..config.clone() }).unwrap();
    let late = Config { is_late: true, ..config };
    let (entry, joining) = join::come_to::<LANES, 2>(&late, &root, &[0; 8]).unwrap();
    assert!(first.has(OTHER) && first.lost(OTHER).is_none());
    drop((entry, joining));
    // Nobody has polled, so that the first does not know.
    let second = Tcp::join(&late).unwrap();
    assert_eq!(second.place(), (NodeId(2), 3));
    assert!(!second.has(OTHER) && first.has(NodeId(2)));
    until(&first, || first.lost(OTHER).is_some());
    assert_eq!((first.lost(OTHER), first.lost(NodeId(2))), (Some(Lost::Died), None));
    assert_eq!(first.send(OTHER, Queue::Request, &SHORT), Err(Refusal::Lost));
    assert_eq!(second.put(OTHER, Queue::Request, &[(0, &[1])]), Err(Refusal::Lost));
}

#[test]
fn who_says_nothing_of_its_segment_is_not_admitted() {
    let root = place();
    let config = Config::new(&root, (0, 1), b"key");
    let first = Tcp::join(&Config { capacity: 4, ..config.clone() }).unwrap();
    // A second's patience, for what rank 0 is asked again and again.
    let late = Config { is_late: true, timeout: Duration::from_secs(1), ..config };
    let refused = join::come_to::<LANES, 2>(&late, &root, &[0; 7]);
    assert!(matches!(refused.map(|_| ()), Err(Error::Refused { rank: 0, .. })));
    assert!(!first.has(OTHER));
    assert_eq!(Tcp::join(&late).unwrap().place().0, NodeId(2));
}

/// Where ranks of this machine may meet.
fn place() -> String {
    let [(_, root), ..] = Job::loopback(1).unwrap().variables(0);
    root.replace(APART, "")
}
