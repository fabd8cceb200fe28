//! One operation on a file, from its start to its end.

use crate::align::Bounds;
use crate::error::{failed, short};
use crate::file::FileRegion;
use crate::pieces::Direction;
use crate::plan::{Move, Plan, Segment};
use crate::scratch::{Scratch, ScratchPool};
use channel::model::ChannelError;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::with_exposed_provenance_mut;

/// An operation in flight. It owns its segments and its buffer; the memory it names beyond those
/// belongs to its job, which outlives it.
#[derive(Debug)]
pub(crate) struct Op {
    /// The job that it belongs to, by slot.
    pub(crate) slot: usize,
    /// Which way the bytes go.
    pub(crate) direction: Direction,
    /// The file.
    pub(crate) fd: RawFd,
    /// Where in the file the first segment goes.
    pub(crate) offset: u64,
    from: u64,
    needed_to: u64,
    segments: Vec<libc::iovec>,
    /// The first segment that is not done.
    first: usize,
    moves: Vec<Move>,
    scratch: Option<Scratch>,
    direct: bool,
}

// SAFETY: the raw pointers of the segments are addresses; only the kernel follows them, while the
// job that owns the memory is held.
unsafe impl Send for Op {}

/// What an operation wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// To be started again, for what is left of it.
    Again,
    /// Nothing: all of it is done.
    Done,
    /// Nothing more: it failed.
    Failed(ChannelError),
}

impl Op {
    /// The operation that carries out `plan` on `file` for the job in `slot`.
    pub(crate) fn new(
        plan: &Plan,
        (slot, direction): (usize, Direction),
        file: &FileRegion,
        pool: &mut ScratchPool,
    ) -> Box<Op> {
        let spread = plan.spread();
        let scratch = (spread.scratch_bytes > 0).then(|| pool.take(spread.scratch_bytes));
        let base = scratch.as_ref().map_or(0, Scratch::address);
        if let Some(scratch) = &scratch
            && direction == Direction::Write
            && spread.has_holes()
        {
            // What padding gets is not to be what the buffer was for before.
            scratch.clear();
        }
        let direct = file.direct().filter(|_| plan.bounds != Bounds::NONE);
        let op = Op {
            slot,
            direction,
            fd: direct.map_or(file.buffered_fd(), |d| d.fd.as_raw_fd()),
            offset: plan.from,
            from: plan.from,
            needed_to: plan.needed_to,
            segments: iovecs(&spread.segments, base),
            first: 0,
            moves: spread.moves,
            scratch,
            direct: direct.is_some(),
        };
        if direction == Direction::Write {
            op.move_bytes();
        }
        Box::new(op)
    }

    /// The segments that are not done.
    pub(crate) fn segments(&self) -> &[libc::iovec] {
        &self.segments[self.first..]
    }

    /// Whether it goes around the page cache.
    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Takes in what the kernel said about the segments that were left.
    pub(crate) fn advance(&mut self, result: Result<usize, Errno>, file: &FileRegion) -> Step {
        match result {
            Ok(0) if self.direction == Direction::Read => self.ended(file),
            Ok(0) => Step::Failed(failed(file.path(), &self.doing(), Errno::IO)),
            Ok(bytes) => self.moved(bytes as u64, file),
            // Canceled: the thread that submitted it has ended. This one has not.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => Step::Again,
            Err(Errno::INVAL) if self.direct => {
                file.refuse_direct();
                self.go_buffered(file);
                Step::Again
            }
            Err(errno) => Step::Failed(failed(file.path(), &self.doing(), errno)),
        }
    }

    /// Gives the buffer back to `pool`.
    pub(crate) fn retire(&mut self, pool: &mut ScratchPool) {
        if let Some(scratch) = self.scratch.take() {
            pool.give(scratch);
        }
    }

    fn moved(&mut self, bytes: u64, file: &FileRegion) -> Step {
        self.offset += bytes;
        self.skip(bytes);
        if self.offset < self.needed_to && !self.segments().is_empty() {
            // What a short transfer leaves may be off the boundaries.
            self.go_buffered(file);
            return Step::Again;
        }
        if self.direction == Direction::Read {
            self.move_bytes();
        }
        Step::Done
    }

    fn ended(&self, file: &FileRegion) -> Step {
        Step::Failed(short(file.path(), &self.doing(), self.needed_to, self.offset))
    }

    fn go_buffered(&mut self, file: &FileRegion) {
        self.fd = file.buffered_fd();
        self.direct = false;
    }

    /// Drops the first `bytes` of the segments.
    fn skip(&mut self, mut bytes: u64) {
        while let Some(segment) = self.segments.get_mut(self.first) {
            let part = bytes.min(segment.iov_len as u64);
            let step = usize::try_from(part).expect("no more than the segment");
            segment.iov_base = segment.iov_base.wrapping_byte_add(step);
            segment.iov_len -= step;
            bytes -= part;
            if segment.iov_len > 0 {
                return;
            }
            self.first += 1;
        }
    }

    /// Copies between the buffer and memory.
    fn move_bytes(&self) {
        let base = self.scratch.as_ref().map_or(0, Scratch::address);
        for one in &self.moves {
            let scratch = with_exposed_provenance_mut::<u8>(at(base + one.scratch));
            let memory = with_exposed_provenance_mut::<u8>(at(one.memory));
            let (from, to) = match self.direction {
                Direction::Read => (scratch, memory),
                Direction::Write => (memory, scratch),
            };
            // SAFETY: `Plan::spread` keeps moves inside the buffer, whose size it gave; the
            // memory lies inside the job's region by the bounds check, and the job is held.
            unsafe { std::ptr::copy_nonoverlapping(from, to, at(one.bytes)) };
        }
    }

    fn doing(&self) -> String {
        let verb = match self.direction {
            Direction::Read => "reading",
            Direction::Write => "writing",
        };
        format!("{verb} {} bytes at {}", self.needed_to - self.from, self.from)
    }
}

fn iovecs(segments: &[Segment], scratch: u64) -> Vec<libc::iovec> {
    let mut next = scratch;
    let iovec = |segment: &Segment| {
        let (address, bytes) = match *segment {
            Segment::Memory { address, bytes } => (address, bytes),
            Segment::Scratch { bytes } => {
                next += bytes;
                (next - bytes, bytes)
            }
        };
        libc::iovec { iov_base: with_exposed_provenance_mut(at(address)), iov_len: at(bytes) }
    };
    segments.iter().map(iovec).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits here")]
fn at(address: u64) -> usize {
    address as usize
}
