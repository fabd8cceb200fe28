//! Operations on a file by io_uring and nothing else: what a program does that only reads or
//! writes.
//!
//! **Hazard.** The kernel reads and writes memory until it says that it has stopped.
//! **Guarantee.** [`RawRing::run`] returns when nothing is in flight; where the kernel stops
//! answering, the memory is never freed. **Structure.** One slot of the memory for each operation
//! in flight; the slot is the completion's user data.

use crate::Error;
use crate::content::Content;
use crate::settings::Stop;
use channel_disk::{Direction, Operation};
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use isometry::{Array, Instance, Machine};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What direct I/O wants of addresses.
const PAGE_BYTES: u64 = 4096;

/// A file, through the page cache and around it.
#[derive(Debug)]
pub(crate) struct RawFile {
    pub(crate) buffered: OwnedFd,
    /// None where the file system has no direct I/O.
    pub(crate) direct: Option<OwnedFd>,
    pub(crate) bytes: u64,
}

/// A ring, and memory for each operation that it may hold.
pub(crate) struct RawRing {
    ring: IoUring,
    direction: Direction,
    /// What is in flight, by slot.
    slots: Vec<Option<Operation>>,
    slot_bytes: u64,
    /// Whether the kernel knows the memory.
    fixed: bool,
    /// Last, so that the ring goes before it.
    memory: Instance,
}

impl RawRing {
    /// A ring for `depth` operations of up to `most_bytes`, from or to memory that holds numbers.
    pub(crate) fn new(
        machine: &Machine,
        direction: Direction,
        (depth, most_bytes): (u32, u64),
    ) -> Result<Self, Error> {
        let slot_bytes = most_bytes.next_multiple_of(PAGE_BYTES);
        let array = Array::of(&[("slot", depth.into()), ("byte", slot_bytes)], "|u1")?;
        let memory = machine.empty(array.clone(), "sys")?;
        // Not zeros: some disks have a short way with those.
        memory.fill(&Content::of(&array)?.to_vec(&Stop::default())?)?;
        let ring = IoUring::new(depth).map_err(Error::io("making an io_uring"))?;
        let span = memory.host_span()?;
        let whole =
            libc::iovec { iov_base: span.start().as_ptr().cast(), iov_len: span.len_bytes() };
        // SAFETY: the memory is the ring's as long as the ring is there.
        let fixed = unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok();
        let slots = vec![None; depth as usize];
        Ok(RawRing { ring, direction, slots, slot_bytes, fixed, memory })
    }

    /// Carries out `operations` on `file`, started in their order, as many at once as the ring
    /// holds.
    ///
    /// # Errors
    /// Where the kernel refuses an operation or moves less than it was asked;
    /// [`Error::Interrupted`].
    pub(crate) fn run(
        &mut self,
        file: &RawFile,
        operations: &[Operation],
        stop: &Stop,
    ) -> Result<(), Error> {
        let mut next = operations.iter();
        let mut outcome = Ok(());
        loop {
            outcome = outcome.and_then(|()| stop.check());
            while outcome.is_ok()
                && let Some(slot) = self.slots.iter().position(Option::is_none)
                && let Some(operation) = next.next()
            {
                outcome = self.start(slot, file, *operation);
            }
            if self.slots.iter().all(Option::is_none) {
                return outcome;
            }
            self.wait()?;
            outcome = outcome.and(self.reap(file));
        }
    }

    fn start(&mut self, slot: usize, file: &RawFile, operation: Operation) -> Result<(), Error> {
        let entry = self.entry(slot, file, &operation)?;
        self.slots[slot] = Some(operation);
        // SAFETY: the slot's memory is free until its completion, as `slots` says, and the file
        // is the caller's until `run` returns, which is when all slots are free.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(Error::part("queueing an operation"))
    }

    fn entry(&self, slot: usize, file: &RawFile, operation: &Operation) -> Result<Entry, Error> {
        let at = slot as u64 * self.slot_bytes;
        let fits = operation.bytes <= self.slot_bytes;
        let bytes = u32::try_from(operation.bytes).ok().filter(|_| fits);
        let len = bytes.ok_or_else(|| Error::part("starting an operation")("it is too long"))?;
        let start = self.memory.host_span()?.start().as_ptr().wrapping_add(at as usize);
        let direct = file.direct.as_ref().filter(|_| operation.direct);
        let fd = types::Fd(direct.unwrap_or(&file.buffered).as_raw_fd());
        let at = operation.offset;
        let entry = match (self.direction, self.fixed) {
            (Direction::Read, true) => opcode::ReadFixed::new(fd, start, len, 0).offset(at).build(),
            (Direction::Read, false) => opcode::Read::new(fd, start, len).offset(at).build(),
            (Direction::Write, true) => {
                opcode::WriteFixed::new(fd, start, len, 0).offset(at).build()
            }
            (Direction::Write, false) => opcode::Write::new(fd, start, len).offset(at).build(),
        };
        Ok(entry.user_data(slot as u64))
    }

    /// Passes on what is queued, and sleeps until something has ended.
    fn wait(&mut self) -> Result<(), Error> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(e) if is_passing(&e) => {}
                Err(source) => {
                    // Something may be in flight for ever.
                    std::mem::forget(self.memory.clone());
                    self.slots.fill(None);
                    return Err(Error::Io { doing: "waiting for an operation", source });
                }
            }
        }
    }

    fn reap(&mut self, file: &RawFile) -> Result<(), Error> {
        let mut outcome = Ok(());
        for entry in self.ring.completion() {
            let slot = usize::try_from(entry.user_data()).ok();
            let operation = slot.and_then(|slot| self.slots.get_mut(slot)?.take());
            let Some(operation) = operation else { continue };
            outcome = outcome.and(check(&operation, entry.result(), file));
        }
        outcome
    }
}

/// Whether the kernel did all that `operation` asks; a read may end where the file does.
fn check(operation: &Operation, result: i32, file: &RawFile) -> Result<(), Error> {
    let Ok(moved) = u64::try_from(result) else {
        let source = io::Error::from_raw_os_error(-result);
        return Err(Error::Io { doing: "the raw program's operation", source });
    };
    let to_end = file.bytes.saturating_sub(operation.offset);
    if moved >= operation.bytes.min(to_end) {
        return Ok(());
    }
    let why = format!("{moved} bytes of {operation:?}");
    Err(Error::Part { doing: "the raw program's operation", why })
}

fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file(path: &std::path::Path) -> (RawFile, std::fs::File) {
        let open = || std::fs::File::options().read(true).write(true).open(path).unwrap();
        let bytes = open().metadata().unwrap().len();
        (RawFile { buffered: open().into(), direct: None, bytes }, open())
    }

    fn operations(bytes: u64, step: u64) -> Vec<Operation> {
        (0..bytes)
            .step_by(step as usize)
            .map(|offset| Operation { offset, bytes: step, direct: false })
            .collect()
    }

    /// `None` where the kernel forbids io_uring.
    fn ring(direction: Direction) -> Option<RawRing> {
        let machine = Machine::builder().assume(true).open().unwrap();
        let ring = RawRing::new(&machine, direction, (3, 5000));
        if ring.is_err() {
            println!("skipped: ring: the kernel forbids io_uring");
        }
        ring.ok()
    }

    #[test]
    fn what_is_written_is_in_the_file_and_what_is_read_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![0; 50_000]).unwrap();
        let (raw, plain) = file(&path);
        let stop = Stop::default();
        let Some(mut write) = ring(Direction::Write) else { return };
        write.run(&raw, &operations(50_000, 5000), &stop).unwrap();
        let mut held = vec![0; 50_000];
        plain.read_exact_at(&mut held, 0).unwrap();
        let memory = write.memory.to_vec().unwrap();
        let slots: Vec<_> = memory.chunks(8192).map(|slot| slot[..5000].to_vec()).collect();
        assert!(held.chunks(5000).all(|part| slots.contains(&part.to_vec())));
        let Some(mut read) = ring(Direction::Read) else { return };
        std::fs::write(&path, vec![7; 50_000]).unwrap();
        read.run(&raw, &operations(50_000, 5000), &stop).unwrap();
        let memory = read.memory.to_vec().unwrap();
        assert!(memory.chunks(8192).all(|slot| slot[..5000] == [7; 5000]));
    }

    #[test]
    fn an_operation_that_fails_or_falls_short_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![0; 9000]).unwrap();
        let (mut raw, _) = file(&path);
        let stop = Stop::default();
        let Some(mut read) = ring(Direction::Read) else { return };
        read.run(&raw, &operations(9000, 5000), &stop).unwrap();
        raw.bytes = 20_000;
        assert!(read.run(&raw, &operations(20_000, 5000), &stop).is_err());
        assert!(read.slots.iter().all(Option::is_none));
        assert!(read.run(&raw, &operations(6000, 6000 + 4096), &stop).is_err());
        let stop = Stop::on(std::sync::Arc::new(true.into()));
        let ended = read.run(&raw, &operations(5000, 5000), &stop);
        assert!(matches!(ended, Err(Error::Interrupted)));
    }
}
