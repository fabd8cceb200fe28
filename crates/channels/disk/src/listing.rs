//! The operations of a request, written down instead of carried out: for programs that make the
//! same ones without what a channel does beside them.

use crate::align::Bounds;
use crate::disk::ops_of;
use crate::file::FileRegion;
use crate::flight::Active;
use crate::pieces::Direction;
use channel::Job;
use channel::model::ChannelError;

/// One operation on a file, as the kernel is asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Where it begins in the file, the file's header included.
    pub offset: u64,
    /// How many bytes it asks for; a read may ask for some beyond the file's end.
    pub bytes: u64,
    /// Whether it goes around the page cache.
    pub direct: bool,
}

/// The operations that a channel of this direction starts for `job`, in their order, provided
/// that the kernel carries out each of them whole. Nothing is read or written.
///
/// # Errors
/// As the completion of such a request.
pub fn operations(job: Job, direction: Direction) -> Result<Vec<Operation>, ChannelError> {
    let mut active = Active::begin(job, direction)?;
    let mut all = Vec::new();
    while let Some(plan) = active.next_plan(direction) {
        let around = active.file().and_then(FileRegion::direct).is_some();
        let direct = around && plan.bounds != Bounds::NONE;
        all.push(Operation { offset: plan.from, bytes: plan.to - plan.from, direct });
    }
    Ok(all)
}

/// The most operations that a channel of this depth has in flight.
#[must_use]
pub fn operations_at_once(depth: u32) -> u32 {
    ops_of(depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{DSK, directory, finish, memory, run_at};
    use crate::executor::{Ended, Executor};
    use crate::op::Op;
    use crate::threads::call;
    use crate::{Cache, DiskChannel, DiskConfig, Interface};
    use channel::layout::{CopyDim, FieldCopy, NdCopy, Stride};
    use channel::model::Work;
    use channel::{Bell, Region};
    use std::sync::{Arc, Mutex};

    type Log = Arc<Mutex<Vec<Operation>>>;

    /// Carries out each operation whole, and notes it.
    struct Noting {
        held: Vec<Op>,
        bell: Arc<Bell>,
        log: Log,
    }

    impl Executor for Noting {
        fn start(&mut self, op: Box<Op>) {
            let bytes = op.segments().iter().map(|s| s.iov_len as u64).sum();
            let noted = Operation { offset: op.offset, bytes, direct: op.is_direct() };
            self.log.lock().unwrap().push(noted);
            self.held.push(*op);
            self.bell.ring();
        }

        fn flush(&mut self) {}

        fn reap(&mut self, ended: &mut Vec<Ended>) {
            for op in self.held.drain(..) {
                // SAFETY: the segments are the operation's own, and its job is held.
                let result = unsafe { call(&op, op.segments()) };
                let op = Box::new(op);
                ended.push(Ended { op, result });
            }
        }
    }

    /// What a channel starts for `job`.
    fn started(job: Job, direction: Direction) -> Vec<Operation> {
        let (bell, log) = (Arc::new(Bell::new().unwrap()), Log::default());
        let executor = Noting { held: Vec::new(), bell: Arc::clone(&bell), log: Arc::clone(&log) };
        let (interface, arenas) = (Interface::Threads, Vec::new());
        let config = DiskConfig { direction, depth: 2, interface, arenas };
        let mut channel = DiskChannel::with(config, Box::new(executor), bell).unwrap();
        assert_eq!(finish(&mut channel, job).result, Ok(()));
        std::mem::take(&mut *log.lock().unwrap())
    }

    /// 300 runs of `run` bytes, `stride` apart in the file and side by side in memory.
    fn strided(direction: Direction, file: &Arc<Region>, run: u64, stride: i64) -> Job {
        let held = memory(&vec![1; 300 * run as usize], 0);
        let mut job = match direction {
            Direction::Read => run_at(0, 300 * run, (file, 24), (&held, 0)),
            Direction::Write => run_at(0, 300 * run, (&held, 0), (file, 24)),
        };
        let strides = match direction {
            Direction::Read => Stride { src: stride, dst: run as i64 },
            Direction::Write => Stride { src: run as i64, dst: stride },
        };
        let field = FieldCopy {
            bytes: run,
            src_offset: 0,
            dst_offset: 0,
            padding: 0,
            strides: vec![strides],
        };
        let dims = vec![CopyDim { extent: 300, src_index: None, dst_index: None }];
        let Work::Copy(work) = &mut job.work else { unreachable!("it is a copy") };
        work.list = [NdCopy { dims, fields: vec![field] }].into();
        job
    }

    #[test]
    fn a_channel_starts_what_is_listed() {
        let dir = directory();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 16 << 20]).unwrap();
        for (run, stride) in [(4096, 50_000), (40_000, 50_000), (700, 1000), (50_000, 50_000)] {
            for cache in [Cache::Bypass, Cache::Use] {
                let input = FileRegion::open(&path, 0..16 << 20, cache).unwrap();
                let output =
                    FileRegion::create(&dir.path().join("g"), &[0; 100], 16 << 20, cache).unwrap();
                for (direction, file) in [(Direction::Read, input), (Direction::Write, output)] {
                    let file = Arc::new(file.into_region(DSK));
                    let listed = operations(strided(direction, &file, run, stride), direction);
                    let started = started(strided(direction, &file, run, stride), direction);
                    assert!(
                        listed.unwrap() == started,
                        "{direction:?} {run} of {stride} {cache:?}"
                    );
                    assert!(!started.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_write_off_the_boundaries_has_two_edges() {
        let dir = directory();
        let file = FileRegion::create(&dir.path().join("f"), &[], 1 << 20, Cache::Bypass).unwrap();
        let (around, phase) = (file.direct().is_some(), 100);
        let file = Arc::new(file.into_region(DSK));
        let held = memory(&[1; 100_000], phase);
        let job = run_at(0, 100_000, (&held, 0), (&file, phase as u64));
        let made = operations(job, Direction::Write).unwrap();
        let one = |offset, bytes, direct| Operation { offset, bytes, direct };
        let expected = match around {
            true => vec![one(100, 3996, false), one(4096, 94_208, true), one(98_304, 1796, false)],
            false => vec![one(100, 100_000, false)],
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn what_a_channel_refuses_is_refused() {
        let (from, to) = (memory(&[0; 8], 0), memory(&[0; 8], 0));
        assert!(operations(run_at(0, 8, (&from, 0), (&to, 0)), Direction::Read).is_err());
    }
}
