//! The program that reads and writes and does nothing else.

use super::Scene;
use super::operations::Operations;
use crate::Error;
use crate::ring::{RawFile, RawRing};
use crate::settings::Stop;
use channel_disk::Direction;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use std::path::{Path, PathBuf};

/// Two rings, and the file that one of them reads.
pub(super) struct Raw {
    input: RawFile,
    output: PathBuf,
    reads: RawRing,
    writes: RawRing,
}

impl Raw {
    /// Ready for `operations` on the input of `scene`, which it opens as we do, before the clock.
    pub(super) fn new(scene: &Scene, operations: &Operations) -> Result<Self, Error> {
        let size = (operations.depth, operations.most_bytes());
        let ring = |direction| RawRing::new(&scene.machine, direction, size);
        let bytes = scene.src.payload_bytes();
        Ok(Raw {
            input: file(&scene.dir.join("in.raw"), OFlags::RDONLY, bytes)?,
            output: scene.dir.join("raw.raw"),
            reads: ring(Direction::Read)?,
            writes: ring(Direction::Write)?,
        })
    }

    /// Reads the input and writes a new file at once.
    pub(super) fn run(&mut self, operations: &Operations, stop: &Stop) -> Result<(), Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let output = file(&self.output, flags, self.input.bytes)?;
        fallocate(&output.buffered, FallocateFlags::empty(), 0, output.bytes)
            .map_err(Error::io("reserving the raw program's output"))?;
        let (input, reads, writes) = (&self.input, &mut self.reads, &mut self.writes);
        let (read, written) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| reads.run(input, &operations.reads, stop));
            let written = writes.run(&output, &operations.writes, stop);
            (reading.join().unwrap_or_else(|p| std::panic::resume_unwind(p)), written)
        });
        read.and(written)
    }
}

/// A file, its page cache used and not.
fn file(path: &Path, flags: OFlags, bytes: u64) -> Result<RawFile, Error> {
    let open = |flags| open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    let buffered = open(flags).map_err(Error::io("opening a raw file"))?;
    let direct = open((flags - OFlags::TRUNC) | OFlags::DIRECT).ok();
    Ok(RawFile { buffered, direct, bytes })
}
