//! Files as regions of a DSK memory.

use crate::align::Direct;
use crate::aside::{Aside, reserve};
use crate::error::{failed, short, unfit};
use channel::Region;
use channel::model::{ChannelError, MemoryId};
use rustix::fs::{FileType, Mode, OFlags, fcntl_setfl, fstat, open};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether a file's bytes go through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Around it where the file system lets them and they lie on the device's boundaries.
    Bypass,
    /// Through it.
    Use,
}

/// A span of a file: what a disk channel sees of a [`Region`].
///
/// One made by [`FileRegion::create`] appears under its name by a commit. Dropped before that, it
/// is deleted.
#[derive(Debug)]
pub struct FileRegion {
    path: PathBuf,
    fd: OwnedFd,
    direct: Option<Direct>,
    /// The file system took `O_DIRECT` and refuses direct I/O all the same.
    refused: AtomicBool,
    span: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// A file that was there, open for reading.
    Existing,
    /// A file that is being written under another name.
    Aside(Aside),
    /// A commit is at work on it.
    Committing,
    Committed,
    Aborted,
}

impl FileRegion {
    /// The bytes `span` of the file at `path`, for reading.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::ShortRead`] where the file ends before the span does;
    /// [`model::ChannelErrorKind::Io`] where it can't be opened or is no regular file.
    ///
    /// [`model::ChannelErrorKind::ShortRead`]: channel::model::ChannelErrorKind::ShortRead
    /// [`model::ChannelErrorKind::Io`]: channel::model::ChannelErrorKind::Io
    pub fn open(path: &Path, span: Range<u64>, cache: Cache) -> Result<Self, ChannelError> {
        // Without blocking: a pipe without a writer would hold up the caller for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open(path, flags, Mode::empty()).map_err(|e| failed(path, "opening it", e))?;
        let size = regular_size(&fd, path)?;
        // For io_uring such a descriptor means "fail rather than wait".
        fcntl_setfl(&fd, OFlags::empty()).map_err(|e| failed(path, "opening it", e))?;
        if span.start > span.end || span.end > size {
            return Err(short(path, "opening it", span.end.max(span.start), size));
        }
        Ok(Self::new((path, fd), span, State::Existing, (cache, OFlags::RDONLY)))
    }

    /// A new file that will appear at `path`, replacing what is there: `header`, then the
    /// `len_bytes` bytes of the region, reserved on the disk and zero until they are written.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::NoSpace`] where the disk has no room for it;
    /// [`model::ChannelErrorKind::Io`] where `path` is a directory or ends as one does, or its
    /// directory can't be written. Nothing is left behind.
    ///
    /// [`model::ChannelErrorKind::NoSpace`]: channel::model::ChannelErrorKind::NoSpace
    /// [`model::ChannelErrorKind::Io`]: channel::model::ChannelErrorKind::Io
    pub fn create(
        path: &Path,
        header: &[u8],
        len_bytes: u64,
        cache: Cache,
    ) -> Result<Self, ChannelError> {
        let from = header.len() as u64;
        let to = from.checked_add(len_bytes).filter(|&to| i64::try_from(to).is_ok());
        let to = to.ok_or_else(|| failed(path, "reserving space", Errno::FBIG))?;
        let (aside, fd) = Aside::create(path)?;
        // From here on, dropping the region deletes the temporary.
        let access = (cache, OFlags::RDWR);
        let file = Self::new((path, fd), from..to, State::Aside(aside), access);
        reserve(&file.fd, to).map_err(|e| failed(path, "reserving space", e))?;
        file.write_header(header)?;
        Ok(file)
    }

    /// The file as a region of `memory`.
    #[must_use]
    pub fn into_region(self, memory: MemoryId) -> Region {
        Region::device(memory, self.span.end - self.span.start, Arc::new(self))
    }

    /// The name that the file has or will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The boundaries that keep clear of the page cache; 1 where nothing does.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        self.direct().map_or(1, |direct| direct.bounds.block_bytes)
    }

    /// Where the region's first byte lies in the file.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        self.span.start
    }

    fn new(
        (path, fd): (&Path, OwnedFd),
        span: Range<u64>,
        state: State,
        (cache, access): (Cache, OFlags),
    ) -> Self {
        let direct = if cache == Cache::Bypass { Direct::of(&fd, access) } else { None };
        let (path, state, refused) = (path.to_owned(), Mutex::new(state), AtomicBool::new(false));
        FileRegion { path, fd, direct, refused, span, state }
    }

    fn write_header(&self, header: &[u8]) -> Result<(), ChannelError> {
        let mut done = 0;
        while done < header.len() {
            match rustix::io::pwrite(&self.fd, &header[done..], done as u64) {
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(&self.path, "writing the header", errno)),
            }
        }
        Ok(())
    }

    /// The descriptor that goes through the page cache.
    pub(crate) fn buffered_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The way around the page cache, if there is one.
    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    /// Takes the page cache from now on.
    pub(crate) fn refuse_direct(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether the file may be written now.
    pub(crate) fn check_writable(&self) -> Result<(), ChannelError> {
        match &*self.state() {
            State::Aside(_) => Ok(()),
            other => Err(self.unwritable(other)),
        }
    }

    /// Why a file in `state`, which is not written aside, can't be written.
    fn unwritable(&self, state: &State) -> ChannelError {
        let why = match state {
            State::Existing => "is open for reading only",
            State::Aside(_) | State::Committing => "is being committed",
            State::Committed => "is committed already",
            State::Aborted => "was aborted",
        };
        unfit(&self.path, why)
    }

    /// Whether it is created and neither committed nor aborted.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(&*self.state(), State::Aside(_))
    }

    /// Gives the file its name, whatever was written to it; with `sync`, so that it survives a
    /// power failure. Blocks.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::Io`] where it is not a file that is being written, or the
    /// operating system refuses. Where only the sync of its directory fails it is committed all
    /// the same.
    ///
    /// [`model::ChannelErrorKind::Io`]: channel::model::ChannelErrorKind::Io
    pub fn commit(&self, sync: bool) -> Result<(), ChannelError> {
        let aside = self.leave_aside(State::Committing)?;
        if let Err(error) = aside.commit(&self.fd, sync) {
            *self.state() = State::Aside(aside);
            return Err(error);
        }
        *self.state() = State::Committed;
        if sync { aside.sync_name() } else { Ok(()) }
    }

    /// Deletes an uncommitted file; does nothing to any other. Blocks.
    ///
    /// # Errors
    /// [`model::ChannelErrorKind::Io`] where the operating system refuses.
    ///
    /// [`model::ChannelErrorKind::Io`]: channel::model::ChannelErrorKind::Io
    pub fn abort(&self) -> Result<(), ChannelError> {
        let Ok(aside) = self.leave_aside(State::Aborted) else { return Ok(()) };
        let deleted = aside.abort();
        if deleted.is_err() {
            *self.state() = State::Aside(aside);
        }
        deleted
    }

    /// Takes the temporary out of the state, which is `next` from here on. The lock is not held
    /// while the disk works: who submits a copy of the file looks at its state, and waits for no
    /// sync.
    fn leave_aside(&self, next: State) -> Result<Aside, ChannelError> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, next) {
            State::Aside(aside) => Ok(aside),
            other => {
                let refused = self.unwritable(&other);
                *state = other;
                Err(refused)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for FileRegion {
    /// The file, through the page cache.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for FileRegion {
    fn drop(&mut self) {
        // A forked child drops its parent's files, which the parent still writes. There nobody may
        // be left to give the lock back, which nobody else wants any more.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_ours = matches!(state, State::Aside(aside) if aside.is_ours());
        if is_ours {
            // Nobody is left to tell; the next run cleans up what could not be deleted.
            let _ = self.abort();
        }
    }
}

/// The size of a regular file; anything else is refused.
fn regular_size(fd: &OwnedFd, path: &Path) -> Result<u64, ChannelError> {
    let stat = fstat(fd).map_err(|e| failed(path, "looking at it", e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
        FileType::Directory => Err(failed(path, "opening it", Errno::ISDIR)),
        _ => Err(unfit(path, "is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_its_name_is_committed_whatever_its_directory_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = FileRegion::create(&path, b"header", 10, Cache::Use).unwrap();
        let aside = file.leave_aside(State::Committing).unwrap().without_sync();
        *file.state() = State::Aside(aside);
        let told = file.commit(true).unwrap_err();
        assert!(told.detail.contains("syncing its directory"), "{told}");
        assert!(!file.is_pending() && path.exists());
        assert_eq!(file.abort(), Ok(()), "there is no temporary to delete");
    }

    #[test]
    fn a_file_whose_commit_is_at_work_takes_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = FileRegion::create(&path, b"header", 10, Cache::Use).unwrap();
        let aside = file.leave_aside(State::Committing).unwrap();
        let told = [file.check_writable(), file.commit(true)].map(|r| r.unwrap_err().detail);
        assert!(told.iter().all(|t| t.ends_with("is being committed")), "{told:?}");
        assert!(!file.is_pending() && file.abort().is_ok(), "the commit has it");
        *file.state() = State::Aside(aside);
        assert!(file.check_writable().is_ok() && file.commit(true).is_ok() && path.exists());
        assert!(file.commit(true).is_err() && file.abort().is_ok() && path.exists());
    }
}
