//! Ranks that reach each other's memory: what puts, gets and active messages cost.
//!
//! Two ranks, each a thread of this process, by shared memory. Small puts and gets are timed beside a
//! store and a load behind a call that checks bounds, large ones beside memcpy, strided ones beside
//! memcpy of as many bytes and of one run after the other, and the round trip of an active message
//! beside two threads that wait for each other's stores: `core-to-core`. Then two ranks by TCP, and by
//! UCX, beside a plain socket.

mod tcp;

use crate::problems;
use crate::report::{Bench, Case, Contender};
use crate::{Error, Report, Settings};
use isometry::fabric::model::NodeId;
use isometry::fabric::{Call, Config, Fabric, Handlers, Job, Payload, UCX, strided};
use serde::Deserialize;
use std::cell::RefCell;
use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const PROBLEMS: &str = include_str!("../../../../bench/problems/fabric.toml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    /// Of puts and gets that are timed in batches.
    small_bytes: Vec<usize>,
    batch: usize,
    /// Of puts and gets that are timed one by one.
    bulk_bytes: Vec<usize>,
    /// Of strided puts and gets, each in runs of so many bytes, every other.
    strided_bytes: usize,
    run_bytes: Vec<usize>,
    /// Active messages that are timed together, each after the reply to the one before.
    round_trips: u64,
    /// Active messages that are timed together, without replies.
    floods: u64,
    runs: usize,
    tcp: tcp::Problems,
}

const ASK: u8 = 128;
const ANSWER: u8 = 129;
const COUNT: u8 = 130;

/// What a contender runs, and what says whether that was right.
type Run<'a> = dyn FnMut() -> Result<(), Error> + 'a;
type Check<'a> = dyn FnMut() -> Result<bool, Error> + 'a;

/// Where puts go and gets come from: not at the start of a page. There a load would wait for the
/// store before it to a buffer that starts just behind one, which memcpy's buffers don't.
const AT: u64 = 1024;

const LINE_BYTES: usize = 64;

/// The rank at the other end.
const PEER: NodeId = NodeId(1);

pub(super) fn run(settings: &Settings) -> Result<Report, Error> {
    let problems: Problems = problems::read("fabric", PROBLEMS)?;
    let mut bench = Bench::new("fabric", settings)?;
    let sizes = problems.small_bytes.iter().chain(&problems.bulk_bytes);
    let most = sizes.copied().max().unwrap_or(0).max(2 * problems.strided_bytes);
    let job = Job::new(2).map_err(failed)?;
    with_pair(&job, most, |pair| pair.cases(&mut bench, &problems))?;
    let job = Job::loopback(2).map_err(failed)?;
    with_pair(&job, most, |pair| pair.socket_cases(&mut bench, "TCP", &problems.tcp))?;
    let mut alone = Config::new("ucx:127.0.0.1:9", (0, 1), b"");
    alone.ucx = library();
    match Fabric::join(&alone, Handlers::new()) {
        Err(why) => bench.absent("UCX", &failed(why)),
        Ok(_) => {
            let job = Job::ucx(2).map_err(failed)?;
            with_pair(&job, most, |pair| pair.socket_cases(&mut bench, "UCX", &problems.tcp))?;
        }
    }
    bench.finish()
}

/// Where UCX lies, if the system does not know that.
fn library() -> Option<PathBuf> {
    std::env::var_os(UCX).map(PathBuf::from)
}

/// Calls `time` with two ranks that have so many bytes each from [`AT`] on.
fn with_pair(
    job: &Job,
    bytes: usize,
    time: impl FnOnce(&Pair) -> Result<(), Error>,
) -> Result<(), Error> {
    let (answers, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = AtomicBool::new(false);
    let join = |rank: u32, handlers| {
        let variables = job.variables(rank);
        let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let mut config = Config::from_variables(find)?;
        config.ucx = library();
        config.segment_bytes = AT + bytes.next_multiple_of(8) as u64;
        Fabric::join(&config, handlers)
    };
    thread::scope(|scope| {
        let count = Arc::clone(&counted);
        let theirs = Handlers::new()
            .with(ASK, |call| _ = call.reply(ANSWER, call.args(), &[]))
            .with(COUNT, move |call| _ = count.fetch_add(weight(call), Ordering::Relaxed));
        let (join, is_over) = (&join, &is_over);
        let peer = scope.spawn(move || -> Result<(), isometry::fabric::Error> {
            let fabric = join(1, theirs)?;
            let is_alone = || fabric.lost(NodeId(0)).is_some();
            fabric.wait_until(None, || is_over.load(Ordering::Acquire) || is_alone())
        });
        let count = Arc::clone(&answers);
        let ours = Handlers::new().with(ANSWER, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let fabric = join(0, ours).map_err(failed)?;
        let pair = Pair { fabric, answers, counted };
        let timed = time(&pair);
        is_over.store(true, Ordering::Release);
        drop(pair);
        let ended = peer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        timed.and(ended.map_err(failed))
    })
}

/// 1, and what shows that a payload came: how many bytes, and the last of them.
fn weight(call: &Call<'_>) -> u64 {
    match call.payload() {
        Payload::None => 1,
        Payload::Bytes(bytes) => weight_of(bytes.len(), bytes.last().copied()),
        Payload::Placed { at, bytes } => {
            let mut last = [0];
            let read = call.fabric().segment().read(at + u64::from(bytes) - 1, &mut last);
            weight_of(bytes as usize, read.map(|()| last[0]))
        }
    }
}

fn weight_of(bytes: usize, last: Option<u8>) -> u64 {
    1 + bytes as u64 + u64::from(last.unwrap_or(0))
}

/// This rank, and what both ranks' handlers count.
struct Pair {
    fabric: Fabric,
    answers: Arc<AtomicU64>,
    counted: Arc<AtomicU64>,
}

impl Pair {
    fn cases(&self, bench: &mut Bench, problems: &Problems) -> Result<(), Error> {
        for &bytes in &problems.small_bytes {
            self.moves(bench, (bytes, problems.batch), problems.runs)?;
        }
        for &bytes in &problems.bulk_bytes {
            self.moves(bench, (bytes, 1), problems.runs)?;
        }
        for &run in &problems.run_bytes {
            self.strided(bench, (problems.strided_bytes, run), problems.runs)?;
        }
        self.words(bench, problems)?;
        self.round_trips(bench, (problems.round_trips, problems.runs))?;
        self.floods(bench, (problems.floods, problems.runs))
    }

    /// So many puts of so many bytes, and as many gets.
    fn moves(
        &self,
        bench: &mut Bench,
        (bytes, batch): (usize, usize),
        runs: usize,
    ) -> Result<(), Error> {
        let sent: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
        let put = || self.fabric.put(PEER, AT, black_box(&sent)).map_err(failed);
        let there = || {
            let mut there = vec![0; bytes];
            self.fabric.get(PEER, AT, &mut there).map_err(failed)?;
            Ok(there == sent)
        };
        let back = RefCell::new(vec![0; bytes]);
        let get = || self.fabric.get(PEER, AT, black_box(&mut *back.borrow_mut())).map_err(failed);
        let came = || Ok(*back.borrow() == sent);
        let mut copied = vec![0; bytes];
        let mut memcpys = || {
            (0..batch).for_each(|_| memcpy(black_box(&sent), black_box(&mut copied)));
            Ok(())
        };
        let mut time = |verb: &str, ours: &mut Run<'_>, verify: &mut Check<'_>| {
            let name = format!("{verb} {bytes} B, shared memory, x{batch}");
            let case = Case { name, bytes: (bytes * batch) as u64, threads: 1, runs, calls: 1 };
            if !bench.wants(&case.name) {
                return Ok(());
            }
            put()?;
            let mut contenders = [
                Contender { name: "isometry", run: ours },
                Contender { name: "memcpy", run: &mut memcpys },
            ];
            bench.run(&case, &mut contenders, verify)
        };
        time("put", &mut || (0..batch).try_for_each(|_| put()), &mut || there())?;
        time("get", &mut || (0..batch).try_for_each(|_| get()), &mut || came())
    }

    /// Puts of every other run of a buffer to every other of the segment, and gets back.
    fn strided(
        &self,
        bench: &mut Bench,
        (bytes, run): (usize, usize),
        runs: usize,
    ) -> Result<(), Error> {
        let apart = [2 * run as i64];
        let copies = [strided(&[run as u64, (bytes / run) as u64], &apart, &apart)];
        // All lie alike on lines, so that all contenders copy between the same places of them; each
        // has a destination of its own.
        let mut room = [(); 4].map(|()| vec![0; 2 * bytes + LINE_BYTES]);
        let [sent, back, copied, apart_copied] = room.each_mut().map(|room| {
            let start = room.as_ptr().align_offset(LINE_BYTES);
            &mut room[start..start + 2 * bytes]
        });
        sent.iter_mut().zip(0_usize..).for_each(|(byte, i)| *byte = (i * 31 + i / 251) as u8);
        let sent = &*sent;
        let back = RefCell::new(back);
        let put = || self.fabric.put_copies(PEER, &copies, (black_box(sent), 0), AT)?.wait(None);
        let get = || {
            let mut back = back.borrow_mut();
            self.fabric.get_copies(PEER, &copies, AT, (black_box(&mut **back), 0))?.wait(None)
        };
        let is_right = |there: &[u8]| {
            let pairs = there.chunks(run).zip(sent.chunks(run));
            pairs.step_by(2).all(|(there, sent)| there == sent)
        };
        let mut by_memcpy = || {
            memcpy(black_box(&sent[..bytes]), black_box(&mut copied[..bytes]));
            Ok(())
        };
        let mut one_by_one = || {
            let pairs = apart_copied.chunks_mut(run).zip(sent.chunks(run)).step_by(2);
            pairs.for_each(|(copied, sent)| memcpy(black_box(sent), black_box(copied)));
            Ok(())
        };
        let mut time = |verb: &str, ours: &mut Run<'_>, verify: &mut Check<'_>| {
            let name = format!("{verb} {bytes} B in runs of {run} B, shared memory");
            let case = Case { name, bytes: bytes as u64, threads: 1, runs, calls: 1 };
            if !bench.wants(&case.name) {
                return Ok(());
            }
            put().map_err(failed)?;
            let mut contenders = [
                Contender { name: "isometry", run: ours },
                Contender { name: "memcpy", run: &mut by_memcpy },
                Contender { name: "run by run", run: &mut one_by_one },
            ];
            bench.run(&case, &mut contenders, verify)
        };
        let mut there = || {
            let mut there = vec![0; 2 * bytes];
            self.fabric.get(PEER, AT, &mut there).map_err(failed)?;
            Ok(is_right(&there))
        };
        time("put", &mut || put().map_err(failed), &mut there)?;
        time("get", &mut || get().map_err(failed), &mut || Ok(is_right(&back.borrow())))
    }

    /// Puts and gets of a word.
    fn words(&self, bench: &mut Bench, problems: &Problems) -> Result<(), Error> {
        let (batch, runs) = (problems.batch, problems.runs);
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let mut stores = || {
            (0..batch as u64).for_each(|word| store(black_box(&words), black_box(1), word));
            Ok(())
        };
        let mut loads = || {
            (0..batch).for_each(|_| _ = black_box(load(black_box(&words), black_box(1))));
            Ok(())
        };
        let put = |word| self.fabric.put_word(PEER, black_box(8), word).map_err(failed);
        let get = || self.fabric.get_word(PEER, black_box(8)).map_err(failed);
        let mut puts = || (0..batch as u64).try_for_each(put);
        let mut gets = || (0..batch).try_for_each(|_| black_box(get()).map(|_| ()));
        let last = batch as u64 - 1;
        let mut verify = || Ok(get()? == last);
        let cases: [(&str, &str, &mut Run<'_>, &mut Run<'_>); 2] =
            [("put", "store", &mut puts, &mut stores), ("get", "load", &mut gets, &mut loads)];
        for (verb, beside, ours, theirs) in cases {
            let name = format!("{verb} a word, shared memory, x{batch}");
            let case = Case { name, bytes: 8 * batch as u64, threads: 1, runs, calls: 1 };
            if bench.wants(&case.name) {
                put(last)?;
                let mut contenders = [
                    Contender { name: "isometry", run: ours },
                    Contender { name: beside, run: theirs },
                ];
                bench.run(&case, &mut contenders, &mut verify)?;
            }
        }
        Ok(())
    }

    fn round_trips(&self, bench: &mut Bench, (count, runs): (u64, usize)) -> Result<(), Error> {
        let name = format!("active message and reply, shared memory, x{count}");
        let case = Case { name, bytes: 0, threads: 2, runs, calls: 1 };
        if !bench.wants(&case.name) {
            return Ok(());
        }
        let before = self.answers.load(Ordering::Relaxed);
        let mut ours = || (0..count).try_for_each(|i| self.round_trip(i as u32)).map_err(failed);
        let mut theirs = || turns(count);
        let mut contenders = [
            Contender { name: "isometry", run: &mut ours },
            Contender { name: "core-to-core", run: &mut theirs },
        ];
        let mut verify = || Ok(self.answers.load(Ordering::Relaxed) == before + count);
        bench.run(&case, &mut contenders, &mut verify)
    }

    fn round_trip(&self, i: u32) -> Result<(), isometry::fabric::Error> {
        let before = self.answers.load(Ordering::Relaxed);
        self.fabric.request(PEER, ASK, &[i], &[])?;
        self.fabric.wait_until(None, || self.answers.load(Ordering::Relaxed) > before)
    }

    fn floods(&self, bench: &mut Bench, (count, runs): (u64, usize)) -> Result<(), Error> {
        let name = format!("active messages one way, shared memory, x{count}");
        let case = Case { name, bytes: 0, threads: 2, runs, calls: 1 };
        if !bench.wants(&case.name) {
            return Ok(());
        }
        let before = self.counted.load(Ordering::Relaxed);
        let mut ours = || {
            let target = self.counted.load(Ordering::Relaxed) + count;
            (0..count)
                .try_for_each(|_| self.fabric.request(PEER, COUNT, &[], &[]))
                .map_err(failed)?;
            while self.counted.load(Ordering::Relaxed) < target {
                spin_loop();
            }
            Ok(())
        };
        let mut contenders = [Contender { name: "isometry", run: &mut ours }];
        let mut verify = || Ok(self.counted.load(Ordering::Relaxed) == before + count);
        bench.run(&case, &mut contenders, &mut verify)
    }
}

fn failed(error: isometry::fabric::Error) -> Error {
    Error::part("reaching a rank")(error)
}

#[inline(never)]
fn store(words: &[AtomicU64], at: usize, word: u64) {
    words[at].store(word, Ordering::Release);
}

#[inline(never)]
fn load(words: &[AtomicU64], at: usize) -> u64 {
    words[at].load(Ordering::Acquire)
}

#[inline(never)]
fn memcpy(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

/// Two threads that take so many turns, each of two stores that the other waits for.
fn turns(count: u64) -> Result<(), Error> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=count {
                while ping.0.load(Ordering::Acquire) < turn {
                    spin_loop();
                }
                pong.0.store(turn, Ordering::Release);
            }
        });
        for turn in 1..=count {
            ping.0.store(turn, Ordering::Release);
            while pong.0.load(Ordering::Acquire) < turn {
                spin_loop();
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_can_be_read() {
        let problems: Problems = problems::read("fabric", PROBLEMS).unwrap();
        assert!(problems.batch > 0 && problems.round_trips > 0 && problems.floods > 0);
    }
}
