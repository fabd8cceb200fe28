//! The ranks that are timed beside their peers do what they are told.

use isometry::fabric::Job;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const BYTES: usize = 4096;

/// How often it is looked whether a rank still runs.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Two ranks, and the pipes to and from each.
struct Pair {
    folder: TempDir,
    ranks: Vec<(Child, File, BufReader<File>)>,
}

fn pipe(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened both ways: else it would wait for the other end.
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

impl Pair {
    fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let job = Job::new(2).unwrap();
        let start = |rank: u32| {
            let [to, from] =
                ["in", "out"].map(|end| pipe(&folder.path().join(format!("{rank}.{end}"))));
            // Whatever becomes of it, nobody waits for it for ever.
            let mut command = Command::new("timeout");
            command
                .args(["--signal=KILL", "120"])
                .arg(env!("CARGO_BIN_EXE_iso-rank"))
                .arg(folder.path());
            command.arg(BYTES.to_string()).envs(job.variables(rank)).stdout(Stdio::null());
            (command.spawn().unwrap(), to, BufReader::new(from))
        };
        let ranks = (0..2).map(start).collect();
        let mut pair = Pair { folder, ranks };
        (0..2).for_each(|rank| assert_eq!(pair.hear(rank), "{}"));
        pair
    }

    fn hear(&mut self, rank: usize) -> String {
        let (child, _, from) = &mut self.ranks[rank];
        while poll(&mut [PollFd::new(from.get_ref(), PollFlags::IN)], Some(&TICK)).unwrap() == 0 {
            assert_eq!(child.try_wait().unwrap(), None, "rank {rank} has ended");
        }
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn say(&mut self, rank: usize, line: &str) {
        self.ranks[rank].1.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// What the first answers to what both are told.
    fn tell(&mut self, line: &str) -> String {
        (0..2).for_each(|rank| self.say(rank, line));
        let answers = [0, 1].map(|rank| self.hear(rank));
        answers[0].clone()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn load(&mut self, rank: usize, which: &str, bytes: &[u8]) {
        let path = self.path("bytes");
        fs::write(&path, bytes).unwrap();
        self.say(rank, &format!("load {which} {} {path}", bytes.len()));
        assert_eq!(self.hear(rank), "{}");
    }

    fn dump(&mut self, rank: usize, which: &str, bytes: usize) -> Vec<u8> {
        let path = self.path("bytes");
        self.say(rank, &format!("dump {which} {bytes} {path}"));
        assert_eq!(self.hear(rank), "{}");
        fs::read(&path).unwrap()
    }

    /// A file of numbers.
    fn table(&self, name: &str, places: &[u64]) -> String {
        let path = self.path(name);
        let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        (0..2).for_each(|rank| self.say(rank, "quit"));
        let ended = |(child, ..): &mut (Child, File, BufReader<File>)| child.wait().unwrap();
        let is_well = self.ranks.iter_mut().map(ended).all(|status| status.success());
        assert!(is_well || std::thread::panicking());
    }
}

fn numbered(bytes: usize) -> Vec<u8> {
    (1..=bytes).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn blocks_go_where_the_case_says() {
    let mut pair = Pair::new();
    let tables = [pair.table("src", &[5, 0, 3, 2]), pair.table("dst", &[1, 7, 4, 0])];
    let sides: [(&str, [usize; 4]); 3] =
        [("plain", [0, 1, 2, 3]), ("every", [0, 2, 4, 6]), ("table", [5, 0, 3, 2])];
    let named = |how: &str, side: usize| match how {
        "table" => tables[side].clone(),
        how => how.to_owned(),
    };
    let (bytes, block) = (64, 16);
    for kind in ["put", "get", "puts", "send"] {
        for (src, from) in sides {
            for (dst, to) in sides {
                // Puts that are waited for together are of one piece.
                if kind == "puts" && (src, dst) != ("plain", "plain") {
                    continue;
                }
                let to = if dst == "table" { [1, 7, 4, 0] } else { to };
                let source = numbered(2 * bytes);
                let mut expected = vec![0; 2 * bytes];
                for (from, to) in from.into_iter().zip(to) {
                    let moved = &source[from * block..][..block];
                    expected[to * block..][..block].copy_from_slice(moved);
                }
                let ends = [(0, "own"), (1, "shared")];
                let [first, last] = if kind == "get" { [ends[1], ends[0]] } else { ends };
                pair.load(first.0, first.1, &source);
                pair.load(last.0, last.1, &vec![0; 2 * bytes]);
                let case =
                    format!("case {kind} {bytes} {block} {} {}", named(src, 0), named(dst, 1));
                assert_eq!(pair.tell(&case), "{}");
                assert_eq!(pair.tell("once"), "{}");
                assert!(pair.dump(last.0, last.1, 2 * bytes) == expected, "{case}");
                assert!(pair.tell("run 3").starts_with("{\"seconds\": "));
            }
        }
    }
}

#[test]
fn messages_carry_their_bytes() {
    let mut pair = Pair::new();
    for kind in ["trip", "flood"] {
        pair.load(0, "own", &numbered(500));
        pair.load(1, "shared", &[0; 500]);
        assert_eq!(pair.tell(&format!("case {kind} 500 500 plain plain")), "{}");
        assert_eq!(pair.tell("once"), "{}");
        assert_eq!(pair.dump(1, "shared", 500), numbered(500), "{kind}");
    }
    // A trip brings them back.
    pair.load(0, "shared", &[0; 500]);
    pair.tell("case trip 500 500 plain plain");
    pair.tell("once");
    assert_eq!(pair.dump(0, "shared", 500), numbered(500));
    assert!(pair.tell("probe 10").starts_with("{\"seconds\": "));
}

/// Pages of the source's of which so many go to one of the destination's, from so many shares of heads.
fn turns_pages((joined, shares): (usize, usize), dst: &[u64]) {
    let mut pair = Pair::new();
    let (layers, pages, tokens, heads, run) = (2, 6, 3, 4, 8);
    let src = [2, 0, 1, 5, 3, 4];
    let tables = [pair.table("src", &src), pair.table("dst", dst)];
    let bytes = layers * pages * tokens * heads * run;
    let (each, whole) = (heads / shares, joined * tokens);
    let source = numbered(bytes);
    let mut expected = vec![0; bytes];
    for (layer, page) in (0..layers).flat_map(|l| (0..pages).map(move |p| (l, p))) {
        for (token, head) in (0..tokens).flat_map(|t| (0..heads).map(move |h| (t, h))) {
            let share = head / each * layers + layer;
            let from = share * pages + src[page] as usize;
            let here = ((from * tokens + token) * each + head % each) * run;
            let to = layer * (pages / joined) + dst[page / joined] as usize;
            let there = (to * heads + head) * whole + page % joined * tokens + token;
            expected[there * run..][..run].copy_from_slice(&source[here..here + run]);
        }
    }
    pair.load(0, "own", &source);
    let [src, dst] = tables;
    assert_eq!(pair.tell(&format!("kv 2 6 3 4 8 {src} {dst} {joined} {shares}")), "{}");
    assert_eq!(pair.tell("once"), "{}");
    assert!(pair.dump(1, "shared", bytes) == expected, "{joined} {shares}");
}

#[test]
fn pages_are_turned() {
    turns_pages((1, 1), &[1, 2, 0, 4, 5, 3]);
    turns_pages((1, 2), &[5, 4, 3, 2, 1, 0]);
    turns_pages((3, 1), &[1, 0]);
    turns_pages((2, 4), &[2, 0, 1]);
}

#[test]
fn what_cant_be_is_an_error_and_no_end() {
    let mut pair = Pair::new();
    for line in
        ["dance", "case put 64", "run x", "load own 64 /nowhere", "case put 8 8 plain /nowhere"]
    {
        assert!(pair.tell(line).starts_with("{\"error\": "), "{line}");
    }
    assert_eq!(pair.tell("case dance 8 8 plain plain"), "{}");
    assert!(pair.tell("once").starts_with("{\"error\": "));
    assert_eq!(pair.tell("case put 8 8 plain plain"), "{}");
    assert_eq!(pair.tell("once"), "{}");
}
