//! One of two ranks that does what it is told, line by line, and sleeps in between: what the peers of
//! `make bench GROUP=fabric` and `GROUP=kv` are timed beside.
//!
//! Started with the variables of `iso launch`, as `iso-rank DIRECTORY BYTES`. Rank `r` runs on core `r`,
//! reads `DIRECTORY/r.in` and answers each line with one on `DIRECTORY/r.out`. It has so many bytes
//! of its own, and as many that the other reaches. `scripts/ranks/pairs.py` says what the lines are.
#![forbid(unsafe_code)]

use isometry::fabric::model::{CopyDim, FieldCopy, NdCopy, NodeId, Stride};
use isometry::fabric::{Barrier, Call, Config, Fabric, Handlers, Payload, runs, strided};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROOT: NodeId = NodeId(0);
const PEER: NodeId = NodeId(1);

/// Handlers: what is sent back, what comes back, and what is only heard.
const ASK: u8 = 128;
const ANSWER: u8 = 129;
const HEAR: u8 = 130;

/// Own bytes start with a page, as those that others reach do: else a load may wait for the store before
/// it to another place of the same low bits.
const PAGE_BYTES: usize = 4096;

/// Bytes behind those that the other reaches, for the probe.
const WORD_BYTES: u64 = 64;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().ok_or("a directory is missing")?);
    let bytes: u64 = args.next().ok_or("a number of bytes is missing")?.parse()?;
    let mut rank = Rank::join(bytes)?;
    let number = rank.fabric.rank().0;
    let mut core = CpuSet::new();
    core.set(number as usize);
    sched_setaffinity(None, &core)?;
    let commands = BufReader::new(File::open(directory.join(format!("{number}.in")))?);
    let mut answers =
        OpenOptions::new().write(true).open(directory.join(format!("{number}.out")))?;
    answers.write_all(b"{}\n")?;
    for line in commands.lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["quit"] {
            break;
        }
        let answer = match rank.obey(&words) {
            Ok(Some(seconds)) => format!("{{\"seconds\": {seconds:e}}}\n"),
            Ok(None) => "{}\n".to_owned(),
            Err(error) => format!("{{\"error\": {:?}}}\n", error.to_string()),
        };
        answers.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// What is done over and over.
#[derive(Default)]
struct Work {
    kind: String,
    bytes: usize,
    /// Where not all bytes lie in one piece, the copies that move them.
    copies: Option<Vec<NdCopy>>,
}

/// Memory that starts with a page.
struct Own {
    room: Vec<u8>,
    start: usize,
}

impl Own {
    fn new(bytes: usize) -> Own {
        let room = vec![0; bytes + PAGE_BYTES];
        let start = room.as_ptr().align_offset(PAGE_BYTES);
        Own { room, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..]
    }
}

struct Rank {
    fabric: Fabric,
    own: Own,
    /// How many answers came.
    answered: Arc<AtomicU64>,
    work: Work,
}

impl Rank {
    fn join(bytes: u64) -> Outcome<Rank> {
        let mut config = Config::from_variables(|name| std::env::var(name).ok())?;
        config.segment_bytes = bytes.next_multiple_of(WORD_BYTES) + WORD_BYTES;
        let answered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&answered);
        let handlers = Handlers::new()
            .with(ASK, |call| {
                keep(call);
                // Who asked may be gone, and then waits for nothing.
                _ = call.reply(ANSWER, &[], carried(call));
            })
            .with(HEAR, keep)
            .with(ANSWER, move |call| {
                keep(call);
                count.fetch_add(1, Ordering::Relaxed);
            });
        let fabric = Fabric::join(&config, handlers)?;
        let own = Own::new(usize::try_from(bytes)?);
        Ok(Rank { fabric, own, answered, work: Work::default() })
    }

    fn obey(&mut self, words: &[&str]) -> Outcome<Option<f64>> {
        match *words {
            ["case", kind, bytes, block, src, dst] => {
                let (bytes, block) = (bytes.parse()?, block.parse()?);
                let copies = match (src, dst) {
                    ("plain", "plain") => None,
                    _ => Some(copies((bytes, block), (src, dst))?),
                };
                self.work = Work { kind: kind.to_owned(), bytes: bytes as usize, copies };
            }
            ["kv", layers, pages, tokens, heads, run, src, dst, joined, shares] => {
                let extents = numbers([layers, pages, tokens, heads, run])?;
                let [joined, shares] = numbers([joined, shares])?;
                let tables = [places(src)?, places(dst)?];
                let copies = pages_turned(extents, &tables, (joined, shares));
                let bytes = copies.iter().map(NdCopy::payload_bytes).sum::<u64>() as usize;
                self.work = Work { kind: "put".to_owned(), bytes, copies: Some(copies) };
            }
            ["load", which, bytes, path] => self.load(which, bytes.parse()?, path)?,
            ["dump", which, bytes, path] => self.dump(which, bytes.parse()?, path)?,
            ["once"] => {
                self.together(|rank| rank.run(1))?;
            }
            [verb @ ("run" | "time"), times] => {
                let times = times.parse()?;
                if verb == "run" {
                    // Once off the clock: others have been at the caches.
                    self.together(|rank| rank.run(1))?;
                }
                return Ok(Some(self.together(|rank| rank.run(times))?));
            }
            ["probe", turns] => {
                let turns = turns.parse()?;
                return Ok(Some(self.probe(turns)?));
            }
            _ => return Err(format!("no such command: {}", words.join(" ")).into()),
        }
        Ok(None)
    }

    fn load(&mut self, which: &str, bytes: usize, path: &str) -> Outcome<()> {
        let from = fs::read(path)?;
        let from = from.get(..bytes).ok_or("a file is too short")?;
        match which {
            "own" => self.own.bytes_mut()[..bytes].copy_from_slice(from),
            _ => self.fabric.segment().write(0, from).ok_or("too long for the segment")?,
        }
        Ok(())
    }

    fn dump(&self, which: &str, bytes: usize, path: &str) -> Outcome<()> {
        if which == "own" {
            return Ok(fs::write(path, &self.own.bytes()[..bytes])?);
        }
        let mut shared = vec![0; bytes];
        self.fabric.segment().read(0, &mut shared).ok_or("beyond the segment")?;
        Ok(fs::write(path, &shared)?)
    }

    /// What `work` of the root takes, which starts when both are there; the other serves meanwhile.
    fn together(&mut self, work: impl FnOnce(&mut Rank) -> Outcome<()>) -> Outcome<f64> {
        self.meet()?;
        let start = Instant::now();
        let done = if self.fabric.rank() == ROOT { work(self) } else { Ok(()) };
        let seconds = start.elapsed().as_secs_f64();
        // Also where it failed: the other waits here.
        self.meet()?;
        done.map(|()| seconds)
    }

    fn meet(&self) -> Outcome<()> {
        self.fabric.barrier_notify(Barrier::Anonymous)?;
        Ok(self.fabric.barrier_wait(Barrier::Anonymous, None)?)
    }

    fn run(&mut self, times: u64) -> Outcome<()> {
        let Work { kind, bytes, copies } = &self.work;
        let (fabric, bytes) = (&self.fabric, *bytes);
        match (&**kind, copies) {
            ("put", None) => {
                for _ in 0..times {
                    fabric.put(PEER, 0, black_box(&self.own.bytes()[..bytes]))?;
                }
            }
            ("puts", None) => {
                let mut region = fabric.region();
                for _ in 0..times {
                    region.put(PEER, 0, black_box(&self.own.bytes()[..bytes]))?;
                }
                region.end().wait(None)?;
            }
            ("get", None) => {
                for _ in 0..times {
                    fabric.get(PEER, 0, black_box(&mut self.own.bytes_mut()[..bytes]))?;
                }
            }
            ("put", Some(copies)) => {
                for _ in 0..times {
                    fabric
                        .put_copies(PEER, copies, (black_box(self.own.bytes()), 0), 0)?
                        .wait(None)?;
                }
            }
            ("get", Some(copies)) => {
                for _ in 0..times {
                    let own = black_box(self.own.bytes_mut());
                    fabric.get_copies(PEER, copies, 0, (own, 0))?.wait(None)?;
                }
            }
            _ => return self.send(times),
        }
        Ok(())
    }

    /// What the other takes part in.
    fn send(&self, times: u64) -> Outcome<()> {
        let Work { kind, bytes, copies } = &self.work;
        let (fabric, own) = (&self.fabric, black_box(&self.own.bytes()[..*bytes]));
        match (&**kind, copies) {
            ("trip", None) => (0..times).try_for_each(|_| self.ask(own)),
            ("flood", None) => {
                (0..times).try_for_each(|_| fabric.request(PEER, HEAR, &[], own))?;
                self.ask(&[])
            }
            ("send", None) => (0..times).try_for_each(|_| {
                let before = self.answered.load(Ordering::Relaxed);
                fabric.request_long(PEER, ASK, &[], (own, 0))?;
                self.hear(before)
            }),
            ("send", Some(copies)) => (0..times).try_for_each(|_| {
                let before = self.answered.load(Ordering::Relaxed);
                let own = black_box(self.own.bytes());
                fabric.request_copies(PEER, (ASK, &[]), copies, (own, 0, 0))?;
                self.hear(before)
            }),
            _ => Err(format!("no such case: {kind}").into()),
        }
    }

    /// Sends a request, and waits for the reply.
    fn ask(&self, bytes: &[u8]) -> Outcome<()> {
        let before = self.answered.load(Ordering::Relaxed);
        self.fabric.request(PEER, ASK, &[], bytes)?;
        self.hear(before)
    }

    fn hear(&self, before: u64) -> Outcome<()> {
        Ok(self.fabric.wait_until(None, || self.answered.load(Ordering::Relaxed) > before)?)
    }

    /// So many turns of two words that the ranks store and wait for: what it takes to get a line from
    /// one core to the other and one back.
    fn probe(&self, turns: u64) -> Outcome<f64> {
        let (me, fabric) = (self.fabric.rank(), &self.fabric);
        let at = fabric.segment().bytes() - WORD_BYTES;
        let wait = |turn| -> Outcome<()> {
            while fabric.get_word(me, at)? < turn {
                spin_loop();
            }
            Ok(())
        };
        fabric.put_word(me, at, 0)?;
        self.meet()?;
        let start = Instant::now();
        for turn in 1..=turns {
            if me == ROOT {
                fabric.put_word(PEER, at, turn)?;
                wait(turn)?;
            } else {
                wait(turn)?;
                fabric.put_word(ROOT, at, turn)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.meet()?;
        Ok(seconds)
    }
}

fn carried<'a>(call: &Call<'a>) -> &'a [u8] {
    if let Payload::Bytes(bytes) = call.payload() { bytes } else { &[] }
}

/// Copies what came to where the other could have put it, as a receive does.
fn keep(call: &Call<'_>) {
    call.fabric().segment().write(0, carried(call)).expect("a message is shorter than the segment");
}

/// The numbers that a file holds.
fn places(path: &str) -> Outcome<Vec<u64>> {
    let bytes = fs::read(Path::new(path))?;
    Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// The copies of `bytes` bytes in blocks that lie one after the other (`plain`), every other
/// (`every`), or at the places that a file names, counted in blocks.
fn copies((bytes, block): (u64, u64), (src, dst): (&str, &str)) -> Outcome<Vec<NdCopy>> {
    let apart = |how| match how {
        "plain" => Some(block.cast_signed()),
        "every" => Some(2 * block.cast_signed()),
        _ => None,
    };
    if let (Some(src), Some(dst)) = (apart(src), apart(dst)) {
        return Ok(vec![strided(&[block, bytes / block], &[src], &[dst])]);
    }
    let listed = |how: &str| -> Outcome<Vec<(u64, u64)>> {
        let at: Vec<u64> = match how {
            "plain" => (0..bytes / block).collect(),
            "every" => (0..bytes / block).map(|i| 2 * i).collect(),
            path => places(path)?,
        };
        Ok(at.into_iter().map(|i| (i * block, block)).collect())
    };
    Ok(runs(&listed(src)?, &listed(dst)?).ok_or("the sides differ in bytes")?)
}

fn numbers<const N: usize>(words: [&str; N]) -> Outcome<[u64; N]> {
    let mut numbers = [0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = word.parse()?;
    }
    Ok(numbers)
}

/// Pages of a cache, from `[share][layer][page][token][head]` to `[layer][page][head][token]`, by a copy for
/// each share of the heads; so many layers, pages, tokens and heads, and bytes of a head. Places in the
/// tables are of pages, of which `joined` that follow each other are one page of the other side.
fn pages_turned(
    extents: [u64; 5],
    [src, dst]: &[Vec<u64>; 2],
    (joined, shares): (u64, u64),
) -> Vec<NdCopy> {
    let [layers, pages, tokens, heads, run] = extents;
    let each = heads / shares;
    // In heads of as many tokens as a page of the source has.
    let part = |page: usize| {
        let (whole, part) = (page as u64 / joined, page as u64 % joined);
        dst[whole as usize] * joined * heads + part
    };
    let parts: Vec<_> = (0..src.len()).map(part).collect();
    let loops = [
        (layers, pages * tokens * each * run, pages * tokens * heads * run),
        (pages, tokens * each * run, tokens * run),
        (each, run, joined * tokens * run),
        (tokens, each * run, run),
    ];
    let strides = loops
        .map(|(_, src, dst)| Stride { src: src.cast_signed(), dst: dst.cast_signed() })
        .to_vec();
    let mut dims = loops.map(|(extent, _, _)| CopyDim { extent, src_index: None, dst_index: None });
    dims[1].src_index = Some(src.as_slice().into());
    dims[1].dst_index = Some(parts.into());
    let of_share = |share: u64| {
        let src_offset = (share * layers * pages * tokens * each * run).cast_signed();
        let dst_offset = (share * each * joined * tokens * run).cast_signed();
        let strides = strides.clone();
        let field = FieldCopy { bytes: run, src_offset, dst_offset, padding: 0, strides };
        NdCopy { dims: dims.to_vec(), fields: vec![field] }
    };
    (0..shares).map(of_share).collect()
}
