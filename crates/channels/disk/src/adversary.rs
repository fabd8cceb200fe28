//! The channel against the worst kernel that is still right: it moves less than it was asked,
//! says "again" and "interrupted", refuses direct I/O that it had agreed to, and ends operations
//! in any order.

use crate::common::{Suite, channel, directory, finish, memory, run_at};
use crate::executor::{Ended, Executor};
use crate::op::Op;
use crate::threads::call;
use crate::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use channel::conformance::{self, Draw, Fixture};
use channel::{Bell, Channel, Region};
use rustix::io::Errno;
use std::sync::{Arc, Mutex};

/// The slot and the offset of every start.
type Log = Arc<Mutex<Vec<(usize, u64)>>>;

/// An executor that does as little as it may.
struct Adversary {
    draw: Draw,
    bell: Arc<Bell>,
    held: Vec<Op>,
    /// Where each operation was started first.
    log: Log,
    refuses_direct: bool,
}

impl Adversary {
    fn outcome(&mut self, op: &Op) -> Result<usize, Errno> {
        match self.draw.below(8) {
            0 => return Err(Errno::INTR),
            1 => return Err(Errno::AGAIN),
            2 => return Err(Errno::CANCELED),
            3 if self.refuses_direct && op.is_direct() => return Err(Errno::INVAL),
            _ => {}
        }
        // A direct transfer stops at a block, any other anywhere.
        let mut segments = op.segments().to_vec();
        segments.truncate(1 + usize::try_from(self.draw.below(3)).unwrap());
        let unit = if op.is_direct() { 4096 } else { 1 };
        let last = segments.last_mut().unwrap();
        let units = last.iov_len / unit;
        if units > 1 {
            last.iov_len = unit * (1 + usize::try_from(self.draw.below(units as u64)).unwrap());
        }
        // SAFETY: the segments begin where the operation's own do and are no longer.
        unsafe { call(op, &segments) }
    }
}

impl Executor for Adversary {
    fn start(&mut self, op: Box<Op>) {
        self.log.lock().unwrap().push((op.slot, op.offset));
        self.held.push(*op);
        self.bell.ring();
    }

    fn flush(&mut self) {}

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        if self.held.is_empty() {
            return;
        }
        let index = usize::try_from(self.draw.below(self.held.len() as u64)).unwrap();
        let op = Box::new(self.held.swap_remove(index));
        let result = self.outcome(&op);
        ended.push(Ended { op, result });
        if !self.held.is_empty() {
            self.bell.ring();
        }
    }
}

struct Hostile {
    suite: Suite,
    refuses_direct: bool,
}

fn hostile(direction: Direction, refuses_direct: bool) -> (DiskChannel, Log) {
    let (bell, log) = (Arc::new(Bell::new().unwrap()), Log::default());
    let (draw, held) = (Draw::new(7), Vec::new());
    let adversary =
        Adversary { draw, bell: Arc::clone(&bell), held, log: Arc::clone(&log), refuses_direct };
    let (interface, arenas) = (Interface::Threads, Vec::new());
    let config = DiskConfig { direction, depth: 5, interface, arenas };
    (DiskChannel::with(config, Box::new(adversary), bell).unwrap(), log)
}

impl Fixture for Hostile {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(hostile(self.suite.direction, self.refuses_direct).0)
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        self.suite.source(bytes)
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        self.suite.destination(bytes)
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        self.suite.contents(destination)
    }
}

#[test]
fn the_worst_kernel_changes_no_byte() {
    for direction in [Direction::Read, Direction::Write] {
        for (cache, refuses_direct) in
            [(Cache::Bypass, false), (Cache::Bypass, true), (Cache::Use, false)]
        {
            let suite = Suite::new(direction, Interface::Threads, cache);
            conformance::run(&Hostile { suite, refuses_direct });
        }
    }
}

#[test]
fn operations_start_in_the_order_of_requests_and_ascend_within() {
    let dir = directory();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![1; 16 << 20]).unwrap();
    let file = FileRegion::open(&path, 0..16 << 20, Cache::Use).unwrap();
    let file = Arc::new(file.into_region(crate::common::DSK));
    let target = memory(&vec![0; 16 << 20], 0);
    let (mut reader, log) = hostile(Direction::Read, false);
    for request in 0..4 {
        // The later a request, the earlier its bytes.
        let at = (3 - request) << 22;
        reader.submit(run_at(request, 4 << 20, (&file, at), (&target, at))).unwrap();
    }
    reader.drain();
    let log = log.lock().unwrap();
    let first = |offset: u64| log.iter().position(|&(_, at)| at == offset).unwrap();
    let wanted: Vec<u64> =
        (0..4).rev().flat_map(|r| (0..4).map(move |n| (r * 4 + n) << 20)).collect();
    let positions: Vec<_> = wanted.iter().map(|&offset| first(offset)).collect();
    assert!(positions.is_sorted(), "{positions:?}");
}

#[test]
fn requests_outlive_the_thread_that_made_them() {
    let dir = directory();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![5; 8 << 20]).unwrap();
    let file = FileRegion::open(&path, 0..8 << 20, Cache::Bypass).unwrap();
    let file = Arc::new(file.into_region(crate::common::DSK));
    let target = memory(&vec![0; 8 << 20], 0);
    let (from, to) = (Arc::clone(&file), Arc::clone(&target));
    let submit = move || {
        let mut reader = channel(Direction::Read, Interface::Best, 8);
        for request in 0..8 {
            let at = request << 20;
            reader.submit(run_at(request, 1 << 20, (&from, at), (&to, at))).unwrap();
        }
        reader
    };
    let mut reader = std::thread::spawn(submit).join().unwrap();
    reader.drain();
    let mut done = Vec::new();
    reader.poll(&mut done);
    assert_eq!(done.len(), 8);
    assert!(done.iter().all(|completion| completion.result.is_ok()), "{done:?}");
    assert!(crate::common::bytes_of(&target).iter().all(|&b| b == 5));
}

/// The fallback for real: the kernel refuses this thread io_uring.
#[test]
fn a_kernel_that_forbids_io_uring_gets_threads() {
    let thread = std::thread::spawn(|| {
        if !forbid_io_uring() {
            println!("skipped: a_kernel_that_forbids_io_uring_gets_threads: no seccomp filter");
            return;
        }
        let dir = directory();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![9; 70_000]).unwrap();
        let file = FileRegion::open(&path, 0..70_000, Cache::Bypass).unwrap();
        let file = Arc::new(file.into_region(crate::common::DSK));
        let target = memory(&vec![0; 70_000], 0);
        let mut reader = channel(Direction::Read, Interface::Best, 4);
        assert!(!reader.uses_ring());
        let job = run_at(1, 70_000, (&file, 0), (&target, 0));
        assert_eq!(finish(&mut reader, job).result, Ok(()));
        assert!(crate::common::bytes_of(&target).iter().all(|&b| b == 9));
    });
    thread.join().unwrap();
}

/// Has the kernel answer `io_uring_setup` with `EPERM` on this thread, as containers do.
fn forbid_io_uring() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: 0,
        k,
    };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let is_setup = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(is_setup, setup) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: the filter outlives the calls, which change this thread only.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}
