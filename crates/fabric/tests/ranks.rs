//! Two and four processes of this machine, by shared memory, by messages alone, by TCP and by UCX.

mod common;

use common::{ended, is_rank, join, join_with, start, unmapped, ways};
use isometry_fabric::model::{NdCopy, NodeId};
use isometry_fabric::{
    Atomic, Barrier, Error, ErrorKind, Fabric, Handle, HandlerSafe, Handlers, MOST_ARGS,
    NoInterrupt, Payload, Which, runs, strided,
};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const REQUEST: u8 = 200;
const REPLY: u8 = 201;

/// Nothing here takes as long.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// Runs `body` as ranks of two processes and of four, over each of the conduits; `test` is the name of the test that calls this.
fn ranks(test: &str, handlers: impl FnOnce() -> Handlers, body: impl FnOnce(&Fabric)) {
    if is_rank() {
        return body(&join(handlers()).unwrap());
    }
    for (size, over) in ways(test).into_iter().flat_map(|over| [(2, over), (4, over)]) {
        for (rank, status) in ended(start(test, size, over)).into_iter().enumerate() {
            assert!(status.success(), "rank {rank} of {size} over {over:?}: {status}");
        }
    }
}

/// How many of `count` rounds there are: fewer where each takes messages, which wake threads, and a busy machine
/// takes its time for that.
fn rounds(fabric: &Fabric, count: u64) -> u64 {
    if peers(fabric).all(|peer| fabric.reaches(peer)) { count } else { count / 10 }
}

fn peers(fabric: &Fabric) -> impl Iterator<Item = NodeId> {
    (0..fabric.size()).map(NodeId)
}

/// What rank `from` puts at rank `to`.
fn pattern(from: NodeId, to: NodeId, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + from.0 as usize * 31 + to.0 as usize * 101) as u8).collect()
}

#[test]
fn ranks_of_one_machine_map_each_others_memory_unless_they_are_to_be_apart() {
    let test = "ranks_of_one_machine_map_each_others_memory_unless_they_are_to_be_apart";
    ranks(test, Handlers::new, |fabric| {
        let other = NodeId(1 - fabric.rank().0.min(1));
        assert_eq!(fabric.reaches(other), common::is_mapped());
        fabric.barrier().unwrap();
    });
}

#[test]
fn puts_arrive_and_gets_bring() {
    const EACH: usize = 100_003;
    ranks("puts_arrive_and_gets_bring", Handlers::new, |fabric| {
        let me = fabric.rank();
        for to in peers(fabric) {
            let at = (me.0 as usize * EACH) as u64;
            fabric.put(to, at, &pattern(me, to, EACH)).unwrap();
            fabric.put_word(to, 900_000 + 8 * u64::from(me.0), u64::from(me.0) + 7).unwrap();
            fabric.fill(to, (950_000 + u64::from(me.0), 1), me.0 as u8 + 1).unwrap();
        }
        fabric.barrier().unwrap();
        for from in peers(fabric) {
            let at = (from.0 as usize * EACH) as u64;
            let mut own = vec![0; EACH];
            fabric.segment().read(at, &mut own).unwrap();
            assert_eq!(own, pattern(from, me, EACH));
            // What rank `from` was sent by its neighbour.
            let neighbour = NodeId((from.0 + 1) % fabric.size());
            let mut theirs = vec![0; EACH];
            fabric.get(from, (neighbour.0 as usize * EACH) as u64, &mut theirs).unwrap();
            assert_eq!(theirs, pattern(neighbour, from, EACH));
            assert_eq!(
                fabric.get_word(from, 900_000 + 8 * u64::from(me.0)).unwrap(),
                u64::from(me.0) + 7
            );
            let mut filled = [0];
            fabric.get(from, 950_000 + u64::from(me.0), &mut filled).unwrap();
            assert_eq!(filled, [me.0 as u8 + 1]);
        }
        fabric.barrier().unwrap();
    });
}

/// Far more than sockets and queues hold: who waits for room takes what comes meanwhile.
#[test]
fn two_that_put_much_at_once_do_not_wait_for_each_other() {
    const MUCH: usize = 64 << 20;
    if !is_rank() {
        let test = "two_that_put_much_at_once_do_not_wait_for_each_other";
        for over in unmapped(test) {
            let statuses = ended(start(test, 2, over));
            assert!(statuses.into_iter().all(|status| status.success()), "{over:?}");
        }
        return;
    }
    let fabric =
        join_with(Handlers::new(), |config| config.segment_bytes = 2 * MUCH as u64).unwrap();
    let (me, other) = (fabric.rank(), NodeId(1 - fabric.rank().0));
    fabric.barrier().unwrap();
    fabric.put(other, 3, &pattern(me, other, MUCH)).unwrap();
    let mut back = vec![0; MUCH];
    fabric.get(other, 3, &mut back).unwrap();
    assert!(back == pattern(me, other, MUCH));
    fabric.barrier().unwrap();
    fabric.segment().read(3, &mut back).unwrap();
    assert!(back == pattern(other, me, MUCH));
    // Runs that go without messages, and some that don't, each other way round.
    let run = |bytes: u64| (0..4).map(move |i| (bytes * (2 * i + 1), bytes)).collect::<Vec<_>>();
    let place = MUCH as u64;
    for bytes in [100, 1 << 20] {
        let (from, mut to) = (run(bytes), run(bytes));
        to.reverse();
        let copies = runs(&from, &to).unwrap();
        fabric.put_copies(other, &copies, (&back, 0), place).unwrap().wait(LONG).unwrap();
        let mut there = vec![0; bytes as usize];
        for ((from, _), (to, _)) in from.into_iter().zip(to) {
            fabric.get(other, place + to, &mut there).unwrap();
            assert!(there == back[from as usize..][..bytes as usize]);
        }
    }
    fabric.barrier().unwrap();
}

#[test]
fn what_a_peer_did_not_publish_is_an_error() {
    ranks("what_a_peer_did_not_publish_is_an_error", Handlers::new, |fabric| {
        let other = NodeId((fabric.rank().0 + 1) % fabric.size());
        let end = fabric.segment().bytes();
        for (at, bytes) in [(end, 1), (end - 3, 4), (u64::MAX, 8), (u64::MAX - 3, 8)] {
            let put = fabric.put(other, at, &vec![1; bytes]).unwrap_err();
            let get = fabric.get(other, at, &mut vec![1; bytes]).unwrap_err();
            let long = fabric.request_long(other, REQUEST, &[], (&vec![1; bytes], at)).unwrap_err();
            for error in [put, get, long] {
                assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
            }
        }
        assert!(matches!(fabric.put_word(other, 4, 1), Err(Error::OutOfBounds { .. })));
        let stranger = NodeId(fabric.size());
        assert_eq!(fabric.published_bytes(stranger), 0);
        for error in [
            fabric.put(stranger, 0, &[1]).unwrap_err(),
            fabric.request(stranger, REQUEST, &[], &[]).unwrap_err(),
        ] {
            assert!(matches!(error, Error::NoSuchPeer { .. }), "{error}");
        }
        for (args, bytes) in [(MOST_ARGS + 1, 0), (0, fabric.capabilities().medium_bytes + 1)] {
            let error =
                fabric.request(other, REQUEST, &vec![0; args], &vec![0; bytes]).unwrap_err();
            assert!(matches!(error, Error::TooLong { .. }), "{error}");
        }
        fabric.barrier().unwrap();
    });
}

/// Requests of each size to every rank, this one among them, each of which is replied to; more than
/// queues hold, so that everybody waits for room while others do.
#[test]
fn every_request_comes_once_and_so_does_its_reply() {
    const EACH: u32 = 4000;
    let sums: Arc<[AtomicU64; 4]> = Arc::default();
    let (asked, answered) = (Arc::clone(&sums), Arc::clone(&sums));
    let handlers = || {
        let request = Handlers::new().with(REQUEST, move |call| {
            asked[0].fetch_add(1, SeqCst);
            asked[1].fetch_add(call.args()[0].into(), SeqCst);
            let (i, bytes) = (call.args()[0], call.args()[1] as usize);
            let expected = pattern(call.source(), call.fabric().rank(), bytes);
            match call.payload() {
                Payload::None => assert_eq!(bytes, 0),
                Payload::Bytes(payload) => assert_eq!(payload, expected),
                Payload::Placed { at, bytes: placed } => {
                    let mut payload = vec![0; placed as usize];
                    call.fabric().segment().read(at, &mut payload).unwrap();
                    assert_eq!(payload, expected);
                }
            }
            if i % 8 == 2 {
                // A long one, to where the requester's own requests put nothing.
                let at = 500_000 + 4096 * u64::from(call.fabric().rank().0);
                call.reply_long(REPLY, &[i], (&expected, at)).unwrap();
            } else {
                call.reply(REPLY, &[i], &expected[..bytes.min(512)]).unwrap();
            }
            assert!(call.reply(REPLY, &[i], &[]).is_err(), "a second reply");
            let error = call.fabric().request(call.source(), REQUEST, &[], &[]).unwrap_err();
            assert!(matches!(error, Error::InHandler { .. }), "{error}");
            assert!(call.fabric().wait_until(None, || true).is_err(), "waited in a handler");
        });
        request.with(REPLY, move |call| {
            answered[2].fetch_add(1, SeqCst);
            answered[3].fetch_add(call.args()[0].into(), SeqCst);
            if let Payload::Placed { at, bytes } = call.payload() {
                let mut payload = vec![0; bytes as usize];
                call.fabric().segment().read(at, &mut payload).unwrap();
                assert_eq!(payload, pattern(call.fabric().rank(), call.source(), payload.len()));
            }
            assert!(call.reply(REPLY, &[], &[]).is_err(), "a reply to a reply");
        })
    };
    ranks("every_request_comes_once_and_so_does_its_reply", handlers, |fabric| {
        let me = fabric.rank();
        let most = fabric.capabilities().medium_bytes;
        for i in 0..EACH {
            for to in peers(fabric) {
                let bytes = [0, 8, 61, most][i as usize % 4];
                let payload = pattern(me, to, bytes);
                let args = [i, bytes as u32, 3, 4, 5];
                if i % 4 == 2 {
                    // Where nobody else puts anything, and the last request is the same.
                    let at = u64::from(me.0) * 4096;
                    fabric.request_long(to, REQUEST, &args, (&payload, at)).unwrap();
                } else {
                    fabric.request(to, REQUEST, &args, &payload).unwrap();
                }
            }
        }
        let count = u64::from(EACH) * u64::from(fabric.size());
        fabric.wait_until(LONG, || sums[2].load(SeqCst) == count).unwrap();
        fabric.barrier().unwrap();
        let sum = count * u64::from(EACH - 1) / 2;
        assert_eq!([0, 1, 2, 3].map(|i| sums[i].load(SeqCst)), [count, sum, count, sum]);
    });
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    ranks("nobody_leaves_a_barrier_before_all_have_come", Handlers::new, |fabric| {
        for round in 1..=rounds(fabric, 500) {
            let mine = 8 * u64::from(fabric.rank().0);
            peers(fabric).for_each(|to| fabric.put_word(to, mine, round).unwrap());
            match round % 3 {
                0 => fabric.barrier().unwrap(),
                1 => {
                    fabric.barrier_notify(Barrier::Named(7)).unwrap();
                    while !fabric.barrier_try(Barrier::Named(7)).unwrap() {
                        std::thread::yield_now();
                    }
                }
                _ => {
                    // One is anonymous.
                    let first = fabric.rank() == NodeId(0);
                    let id = if first { Barrier::Anonymous } else { Barrier::Named(9) };
                    fabric.barrier_notify(id).unwrap();
                    fabric.barrier_wait(id, LONG).unwrap();
                }
            }
            for rank in peers(fabric) {
                let theirs = fabric.get_word(fabric.rank(), 8 * u64::from(rank.0)).unwrap();
                assert!(theirs == round || theirs == round + 1, "{theirs} in {round}");
            }
        }
    });
}

#[test]
fn ids_that_differ_are_a_mismatch_for_all() {
    ranks("ids_that_differ_are_a_mismatch_for_all", Handlers::new, |fabric| {
        let id = Barrier::Named(fabric.rank().0 / (fabric.size() - 1));
        fabric.barrier_notify(id).unwrap();
        let error = fabric.barrier_wait(id, LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BarrierMismatch);
        // And the next one is as if nothing had been.
        fabric.barrier().unwrap();
        // Ids that agree on coming and not on leaving.
        fabric.barrier_notify(Barrier::Named(1)).unwrap();
        let error = fabric.barrier_wait(Barrier::Named(2), LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BarrierMismatch);
        fabric.barrier().unwrap();
    });
}

#[test]
fn a_message_for_no_handler_is_dropped() {
    let count: Arc<AtomicU64> = Arc::default();
    let counted = Arc::clone(&count);
    let handlers = || {
        Handlers::new().with(REQUEST, move |_| {
            counted.fetch_add(1, SeqCst);
        })
    };
    ranks("a_message_for_no_handler_is_dropped", handlers, |fabric| {
        for to in peers(fabric) {
            fabric.request(to, 255, &[1, 2, 3], b"nothing").unwrap();
            fabric.request(to, REQUEST, &[], &[]).unwrap();
        }
        let all = u64::from(fabric.size());
        fabric.wait_until(LONG, || count.load(SeqCst) == all).unwrap();
        fabric.barrier().unwrap();
    });
}

#[test]
fn nobody_comes_between_an_atomic() {
    ranks("nobody_comes_between_an_atomic", Handlers::new, |fabric| {
        let (size, each) = (u64::from(fabric.size()), rounds(fabric, 2_000));
        let add = |at, by| fabric.atomic(NodeId(0), at, Atomic::Add(by)).unwrap();
        for _ in 0..each {
            add(0, 1);
            // A lock.
            let lock = |from, to| {
                fabric.atomic(NodeId(0), 8, Atomic::CompareSwap(from, to)).unwrap() == from
            };
            while !lock(0, 1) {
                std::thread::yield_now();
            }
            let held = fabric.get_word(NodeId(0), 16).unwrap();
            fabric.put_word(NodeId(0), 16, held + 2).unwrap();
            assert!(lock(1, 0));
        }
        fabric.barrier().unwrap();
        assert_eq!(fabric.get_word(NodeId(0), 0).unwrap(), size * each);
        assert_eq!(fabric.get_word(NodeId(0), 16).unwrap(), 2 * size * each);
        let beyond = fabric.atomic(NodeId(0), fabric.segment().bytes(), Atomic::Swap(1));
        assert!(matches!(beyond, Err(Error::OutOfBounds { .. })));
        fabric.barrier().unwrap();
    });
}

#[test]
fn what_goes_on_is_over_when_waited_for() {
    const EACH: usize = 30_011;
    ranks("what_goes_on_is_over_when_waited_for", Handlers::new, |fabric| {
        let (me, size) = (fabric.rank(), fabric.size() as usize);
        let at = |from: NodeId| (from.0 as usize * EACH) as u64;
        let mut bytes = vec![0; EACH];
        let mut puts: Vec<_> = peers(fabric)
            .map(|to| {
                bytes.copy_from_slice(&pattern(me, to, EACH));
                let put = fabric.put_nb(to, at(me), &bytes).unwrap();
                bytes.fill(0xEE);
                put
            })
            .collect();
        fabric.wait_all(&mut puts, LONG).unwrap();
        assert!(puts.iter().all(Handle::is_over) && fabric.try_all(&mut puts).unwrap());
        fabric.wait_some(&mut puts, LONG).unwrap();
        fabric.wait_some(&mut [], LONG).unwrap();
        fabric.barrier().unwrap();

        // One by one, in whichever order they end.
        let mut buffers = vec![vec![0; EACH]; size];
        let gets = buffers.iter_mut().zip(peers(fabric));
        let mut gets: Vec<_> =
            gets.map(|(into, from)| fabric.get_nb(from, at(me), into).unwrap()).collect();
        while !fabric.try_all(&mut gets).unwrap() {
            let over = gets.iter().filter(|get| get.is_over()).count();
            fabric.wait_some(&mut gets, LONG).unwrap();
            assert!(gets.iter().filter(|get| get.is_over()).count() > over);
        }
        drop(gets);
        for (from, bytes) in peers(fabric).zip(&buffers) {
            assert_eq!(*bytes, pattern(me, from, EACH));
        }
        // Who drops a get hears nothing of it, and whoever asks next is not confused.
        let neighbour = NodeId((me.0 + 1) % fabric.size());
        buffers[0].fill(0);
        drop(fabric.get_nb(neighbour, at(me), &mut buffers[0]).unwrap());
        fabric.get(neighbour, at(me), &mut buffers[1]).unwrap();
        assert_eq!(buffers[1], pattern(me, neighbour, EACH));
        fabric.barrier().unwrap();
    });
}

#[test]
fn a_region_waits_for_its_puts_and_its_gets() {
    const EACH: usize = 5_003;
    ranks("a_region_waits_for_its_puts_and_its_gets", Handlers::new, |fabric| {
        let me = fabric.rank();
        let at = |from: NodeId| (from.0 as usize * EACH) as u64;
        let mut buffers = vec![vec![0; EACH]; fabric.size() as usize];
        let mut region = fabric.region();
        for to in peers(fabric) {
            region.put(to, at(me), &pattern(me, to, EACH)).unwrap();
            region.fill(to, (at(me) + 100, 50), 7).unwrap();
        }
        assert!(region.try_wait(Which::Gets).unwrap(), "there are none");
        region.wait(Which::Puts, LONG).unwrap();
        for (from, into) in peers(fabric).zip(&mut buffers) {
            region.get(from, at(me), into).unwrap();
        }
        region.wait(Which::All, LONG).unwrap();
        assert!(region.try_wait(Which::All).unwrap());
        // An access region.
        region.put(me, at(me), &[1]).unwrap();
        let mut handle = region.end();
        handle.wait(LONG).unwrap();
        drop(handle);
        for (from, bytes) in peers(fabric).zip(&mut buffers) {
            assert_eq!(bytes[100..150], [7; 50]);
            let expected = pattern(me, from, EACH);
            bytes[100..150].copy_from_slice(&expected[100..150]);
            assert_eq!(*bytes, expected);
        }
        for bytes in 0..=8 {
            let value = 0xF1E2_D3C4_B5A6_9788;
            fabric.put_value(me, 900_000, value, bytes).unwrap();
            let kept = fabric.get_value(me, 900_000, bytes).unwrap();
            assert_eq!(kept, value & u64::MAX.checked_shr(64 - 8 * bytes as u32).unwrap_or(0));
        }
        fabric.barrier().unwrap();
    });
}

#[test]
fn no_handler_runs_while_handlers_are_held_off() {
    let count: Arc<HandlerSafe<u64>> = Arc::default();
    let counted = Arc::clone(&count);
    let handlers = || {
        Handlers::new().with(REQUEST, move |call| {
            let mut held = counted.lock();
            let error = call.reply(REPLY, &[], &[]).unwrap_err();
            assert!(matches!(error, Error::InHandler { .. }), "{error}");
            *held += 1;
        })
    };
    ranks("no_handler_runs_while_handlers_are_held_off", handlers, |fabric| {
        fabric.barrier().unwrap();
        peers(fabric).for_each(|to| fabric.request(to, REQUEST, &[], &[]).unwrap());
        let mut held = count.lock();
        let before = *held;
        let outer = NoInterrupt::begin();
        let inner = NoInterrupt::begin();
        for error in [
            fabric.request(fabric.rank(), REQUEST, &[], &[]).unwrap_err(),
            fabric.wait_until(LONG, || true).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InHandler { .. }), "{error}");
        }
        drop(outer);
        assert_eq!((fabric.poll(), *held), (0, before));
        *held += 100;
        drop(held);
        assert_eq!((fabric.poll(), *count.lock()), (0, before + 100));
        drop(inner);
        let all = u64::from(fabric.size()) + 100;
        fabric.wait_until(LONG, || *count.lock() == all).unwrap();
        fabric.barrier().unwrap();
    });
}

/// Every byte that `copy` moves: from where, to where.
fn moves(copy: &NdCopy) -> Vec<(usize, usize)> {
    let mut places = vec![(0, 0)];
    for (k, dim) in copy.dims.iter().enumerate() {
        let place = |table: &Option<Arc<[u64]>>, i: u64, stride: i64| {
            table.as_ref().map_or(i, |table| table[i as usize]) as i64 * stride
        };
        let stride = copy.fields[0].strides[k];
        let turns = |(src, dst): (i64, i64)| {
            (0..dim.extent).map(move |i| {
                (
                    src + place(&dim.src_index, i, stride.src),
                    dst + place(&dim.dst_index, i, stride.dst),
                )
            })
        };
        places = places.into_iter().flat_map(turns).collect();
    }
    let run = |(src, dst)| (0..copy.fields[0].bytes as i64).map(move |i| (src + i, dst + i));
    places.into_iter().flat_map(run).map(|(s, d)| (s as usize, d as usize)).collect()
}

#[test]
fn a_request_runs_once_all_that_it_follows_is_there() {
    // Every other of blocks of so many bytes: in messages, straight, and some of both.
    const EACH: usize = 300_000;
    let blocks = [8, 600, 30_000];
    let sum = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&sum);
    let handlers = move || {
        Handlers::new().with(REQUEST, move |call| {
            let mut came = vec![0; EACH];
            let at = u64::from(call.args()[0]);
            call.fabric().segment().read(at, &mut came).unwrap();
            sum.fetch_add(came.into_iter().map(u64::from).sum(), SeqCst);
        })
    };
    ranks("a_request_runs_once_all_that_it_follows_is_there", handlers, |fabric| {
        let me = fabric.rank();
        let to = NodeId((me.0 + 1) % fabric.size());
        for (turn, block) in blocks.into_iter().enumerate() {
            let src = vec![turn as u8 + 1; EACH];
            let step = 2 * block as i64;
            let count = EACH as u64 / (2 * block);
            let copy = strided(&[block, count], &[step], &[step]);
            let at = (EACH * turn) as u64;
            fabric.request_copies(to, (REQUEST, &[at as u32]), &[copy], (&src, 0, at)).unwrap();
        }
        let all: u64 = blocks
            .map(|block| block * (EACH as u64 / (2 * block)))
            .into_iter()
            .zip(1..)
            .map(|(bytes, value)| bytes * value)
            .sum();
        fabric.wait_until(LONG, || heard.load(SeqCst) == all).unwrap();
        let end = fabric.segment().bytes();
        let one = strided(&[8, 2], &[16], &[16]);
        let beyond = fabric.request_copies(to, (REQUEST, &[0]), &[one], (&[0; 24], 0, end - 8));
        assert!(matches!(beyond, Err(Error::OutOfBounds { .. })), "{beyond:?}");
        fabric.barrier().unwrap();
        assert_eq!(heard.load(SeqCst), all);
    });
}

#[test]
fn what_lies_in_many_places_goes_to_many_others() {
    // Of a matrix of rows of 40 elements every other, transposed; runs that lie together, spread; and
    // runs of 8 B to runs of 12.
    let transpose = strided(&[24, 20, 30], &[48, 960], &[24 * 30, 24]);
    let spread = strided(&[24, 600], &[24], &[48]);
    let from: Vec<_> = (0..600).map(|i| (30_000 - 16 * i, 8)).collect();
    let to: Vec<_> = (0..400).map(|i| ((i * 7 % 400) * 20, 12)).collect();
    let indexed = runs(&from, &to).unwrap();
    ranks("what_lies_in_many_places_goes_to_many_others", Handlers::new, |fabric| {
        let me = fabric.rank();
        let other = NodeId((me.0 + 1) % fabric.size());
        let src: Vec<u8> = pattern(me, other, 40_000);
        for copies in [from_ref(&transpose), from_ref(&spread), &indexed] {
            let mut expected = vec![0; 40_000];
            for (from, to) in copies.iter().flat_map(moves) {
                expected[to + 5] = src[from + 1];
            }
            fabric.barrier().unwrap();
            fabric.fill(me, (0, 40_000), 0).unwrap();
            fabric.barrier().unwrap();
            fabric.put_copies(other, copies, (&src, 1), 5).unwrap().wait(LONG).unwrap();
            let mut put = vec![1; 40_000];
            fabric.get(other, 0, &mut put).unwrap();
            assert!(put == expected, "what was put");
            // And the same of a peer's memory, while nobody writes there.
            fabric.put(other, 50_000, &src).unwrap();
            let mut region = fabric.region();
            put.fill(0);
            region.get_copies(other, copies, 50_001, (&mut put, 5)).unwrap();
            region.wait(Which::Gets, LONG).unwrap();
            drop(region);
            assert!(put == expected, "what was got");
        }
        let end = fabric.segment().bytes();
        let one = from_ref(&transpose);
        let mut small = [0; 100];
        for error in [
            fabric.put_copies(other, one, (&src, 1), end - 1000).unwrap_err(),
            fabric.put_copies(other, one, (&src, 1), u64::MAX).unwrap_err(),
            fabric.get_copies(other, one, end - 1000, (&mut [0; 40_000], 0)).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
        }
        for error in [
            fabric.put_copies(other, one, (&small.clone(), 0), 0).unwrap_err(),
            fabric.get_copies(other, one, 0, (&mut small, 0)).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfBuffer { bytes: 100 }), "{error}");
        }
        fabric.put_copies(other, &[], (&[], 0), 0).unwrap().wait(LONG).unwrap();
        fabric.barrier().unwrap();
    });
}
