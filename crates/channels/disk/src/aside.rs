//! Files that are written aside and appear under their name when they are whole.
//!
//! **Hazard.** A run that dies leaves half a file; one that cleans up after it may delete what a
//! living one still writes. **Guarantee.** The name holds the old file or the new one, whole; a
//! temporary is deleted by whoever made it, or by a later run once its maker is dead. **Structure.**
//! The temporary lies in the same directory, carries the maker's process id, and is locked by it
//! as long as it lives: a process id alone means nothing across containers.

use crate::error::{failed, unfit};
use channel::model::ChannelError;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, flock, fstat,
    fsync, ftruncate, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What stands between a file's name and the maker of its temporary.
const MARK: &str = ".isometry-";
/// How often a temporary is made again that a cleaner took away at once.
const MOST_TRIES: usize = 100;
/// The most bytes of a file's name that its temporary's name repeats.
const NAME_BYTES: usize = 180;

/// A temporary file on its way to a name.
#[derive(Debug)]
pub(crate) struct Aside {
    path: PathBuf,
    dir: OwnedFd,
    temporary: OsString,
    name: OsString,
}

impl Aside {
    /// An empty, locked temporary for `path`, open for reading and writing.
    pub(crate) fn create(path: &Path) -> Result<(Self, OwnedFd), ChannelError> {
        let name = path.file_name().ok_or_else(|| unfit(path, "names no file"))?.to_owned();
        if names_directory(path) {
            return Err(failed(path, "creating it", Errno::ISDIR));
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let dir = open(parent, flags, Mode::empty());
        let dir = dir.map_err(|e| failed(parent, "opening the directory", e))?;
        refuse_other_than_file(&dir, &name, path)?;
        let made = temporary_in(&dir, &name, getpid());
        let (temporary, fd) =
            made.map_err(|e| failed(path, "creating a temporary beside it", e))?;
        Ok((Aside { path: path.to_owned(), dir, temporary, name }, fd))
    }

    /// Gives the file its name; with `sync`, what is in it survives a power failure by then.
    pub(crate) fn commit(&self, fd: &OwnedFd, sync: bool) -> Result<(), ChannelError> {
        let fail = |what, errno| failed(&self.path, what, errno);
        if sync {
            fsync(fd).map_err(|e| fail("syncing the file", e))?;
        }
        renameat(&self.dir, &self.temporary, &self.dir, &self.name)
            .map_err(|e| fail("renaming the temporary", e))
    }

    /// Has the name survive a power failure, once the file has it. A file system that can't sync
    /// a directory says so, and has no more to do.
    pub(crate) fn sync_name(&self) -> Result<(), ChannelError> {
        match fsync(&self.dir) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(failed(&self.path, "syncing its directory, where it is now", errno)),
        }
    }

    /// The same with a directory that can be renamed in, and not synced.
    #[cfg(test)]
    pub(crate) fn without_sync(self) -> Self {
        let parent = self.path.parent().unwrap();
        let dir = open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Aside { dir, ..self }
    }

    /// Whether this process made it, rather than one that it was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        maker(&self.temporary) == Some(getpid())
    }

    /// Deletes the temporary.
    pub(crate) fn abort(&self) -> Result<(), ChannelError> {
        unlinkat(&self.dir, &self.temporary, AtFlags::empty())
            .map_err(|e| failed(&self.path, "deleting the temporary", e))
    }
}

/// Whether `path` ends as only a directory's does, whatever [`Path::file_name`] makes of it.
fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

/// A rename would replace a device or a pipe, `/dev/null` too, for everybody.
fn refuse_other_than_file(dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), ChannelError> {
    let stat = match statat(dir, name, AtFlags::empty()) {
        Ok(stat) => stat,
        // The temporary's name may be shorter, and the rename would fail in the end.
        Err(errno @ Errno::NAMETOOLONG) => return Err(failed(path, "creating it", errno)),
        Err(_) => return Ok(()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(failed(path, "creating it", Errno::ISDIR)),
        _ => Err(unfit(path, "is not a regular file")),
    }
}

/// Makes the file `len_bytes` long, its blocks reserved where the file system can: a full disk
/// shows here, not in the middle.
pub(crate) fn reserve(fd: &OwnedFd, len_bytes: u64) -> Result<(), Errno> {
    if len_bytes == 0 {
        return Ok(());
    }
    match fallocate(fd, FallocateFlags::empty(), 0, len_bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => ftruncate(fd, len_bytes),
        result => result,
    }
}

/// A new, locked temporary for `name`, made by process `maker`.
///
/// Between its making and its locking another's cleaner may take it for a dead one's, where `maker`
/// means nothing: then it is made again.
fn temporary_in(dir: &OwnedFd, name: &OsStr, maker: Pid) -> Result<(OsString, OwnedFd), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    for _ in 0..MOST_TRIES {
        let temporary = temporary_name(name, maker);
        let fd = openat(dir, &temporary, flags, Mode::from_raw_mode(0o666))?;
        // Where files can't be locked, the process id alone has to do.
        let taken = flock(&fd, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
        if !taken && fstat(&fd)?.st_nlink > 0 {
            return Ok((temporary, fd));
        }
    }
    Err(Errno::BUSY)
}

/// `.NAME.isometry-PID-RANDOM.tmp`
fn temporary_name(name: &OsStr, maker: Pid) -> OsString {
    let random = RandomState::new().build_hasher().finish();
    let part = &name.as_bytes()[..name.len().min(NAME_BYTES)];
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(part);
    let maker = format!("{MARK}{}-{random:016x}.tmp", maker.as_raw_nonzero());
    temporary.extend_from_slice(maker.as_bytes());
    OsString::from_vec(temporary)
}

/// The process that made a temporary of this name. `None` for any other file.
fn maker(name: &OsStr) -> Option<Pid> {
    let text = String::from_utf8_lossy(name.as_bytes());
    let (_, rest) = text.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once(MARK)?;
    let (pid, random) = rest.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
    Pid::from_raw(pid.parse().ok()?).filter(|_| is_random)
}

/// Deletes the temporaries in `dir` whose makers are dead, and says how many those were. What it
/// may not touch it leaves.
///
/// # Errors
/// When the directory can't be read.
pub fn clean_stale(dir: &Path) -> Result<usize, ChannelError> {
    let unreadable = |e: std::io::Error| unfit(dir, &e.to_string());
    let mut cleaned = 0;
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let dead = maker(&entry.file_name()).is_some_and(is_dead);
        // Held until it is deleted: a maker that finds it locked makes another.
        let lock = dead.then(|| locked(&entry.path())).flatten();
        if lock.is_some() && fs::remove_file(entry.path()).is_ok() {
            cleaned += 1;
        }
    }
    Ok(cleaned)
}

fn is_dead(pid: Pid) -> bool {
    test_kill_process(pid) == Err(Errno::SRCH)
}

/// The file, locked; `None` where somebody else has it locked.
fn locked(path: &Path) -> Option<OwnedFd> {
    // NFS locks for writing only what is open for writing. Where nothing can be locked, the maker
    // may live on another host.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd = open(path, flags, Mode::empty()).ok()?;
    flock(&fd, FlockOperation::NonBlockingLockExclusive).ok().map(|()| fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_temporary_names_its_maker() {
        let name = temporary_name(OsStr::new("a.npy"), getpid());
        assert!(name.to_string_lossy().starts_with(".a.npy.isometry-"));
        assert_eq!(maker(&name), Some(getpid()));
        let long = temporary_name(OsStr::new(&"n".repeat(255)), getpid());
        assert!(long.len() < 255 && maker(&long).is_some());
        for other in [".a.tmp", "a.isometry-1-0123456789abcdef.tmp", ".a.isometry-x-0.tmp", ".tmp"]
        {
            assert_eq!(maker(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_directory_that_knows_no_sync_needs_none() {
        let dir = tempfile::tempdir().unwrap();
        let (aside, _fd) = Aside::create(&dir.path().join("x")).unwrap();
        let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        assert_eq!(fsync(&eventfd), Err(Errno::INVAL));
        assert_eq!(Aside { dir: eventfd, ..aside }.sync_name(), Ok(()));
    }

    #[test]
    fn a_cleaner_never_takes_a_temporary_that_was_handed_out() {
        let dir = tempfile::tempdir().unwrap();
        let fd = open(dir.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        // As another container's process sees it.
        let dead = Pid::from_raw(2_147_483_646).unwrap();
        let (ready, over) = (std::sync::Barrier::new(2), AtomicBool::new(false));
        let clean = || {
            ready.wait();
            while !over.load(Ordering::Relaxed) {
                clean_stale(dir.path()).unwrap();
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(clean);
            ready.wait();
            let made = (0..500).map(|_| temporary_in(&fd, OsStr::new("x"), dead).unwrap());
            let lost = made.filter(|(name, _)| !dir.path().join(name).exists()).count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
    }

    #[test]
    fn only_the_temporaries_of_the_dead_are_cleaned() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join(".x.isometry-2147483646-0123456789abcdef.tmp");
        let locked = dir.path().join(".y.isometry-2147483646-0123456789abcdef.tmp");
        let other = dir.path().join(".z.tmp");
        for path in [&dead, &locked, &other] {
            fs::write(path, "half").unwrap();
        }
        let held = open(&locked, OFlags::RDONLY, Mode::empty()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let (mine, _fd) = Aside::create(&dir.path().join("mine")).unwrap();
        assert_eq!(clean_stale(dir.path()).unwrap(), 1);
        assert!(!dead.exists() && locked.exists() && other.exists());
        assert!(dir.path().join(&mine.temporary).exists());
        assert!(clean_stale(&dir.path().join("none")).is_err());
    }
}
