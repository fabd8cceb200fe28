//! Memory that several processes map.
//!
//! **Hazard.** Another process may write at any time, and whoever made the memory may try to make it
//! shorter, so that touching it kills. **Guarantee.** Nobody holds a reference to its bytes: they are
//! copied in and out, or are atomic words. What is mapped is sealed: its size can't change.

use crate::error::Error;
use kernels::{OutOfBounds, Stores};
use model::{Crossover, FieldCopy, NdCopy};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, mremap_fixed,
    munlock, munmap,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// What no one may undo.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A process's memory that all of a fabric may read and write.
///
/// Nothing orders what one process writes and another reads but messages, barriers and puts of words:
/// who reads bytes while they are written gets some of either. All methods may be called by any
/// thread.
#[derive(Debug)]
pub struct Segment {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping, and is only copied from and to, or reached by atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes memory of so many bytes, all zero; who has the descriptor may map it too.
    pub(crate) fn create(bytes: u64) -> Result<(Segment, OwnedFd), Error> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("isometry", flags).map_err(Error::os("making shared memory"))?;
        ftruncate(&fd, bytes).map_err(Error::os("sizing shared memory"))?;
        fcntl_add_seals(&fd, SEALS).map_err(Error::os("sealing shared memory"))?;
        Ok((Segment::map(&fd)?, fd))
    }

    /// Maps what another process made.
    pub(crate) fn map(fd: impl AsFd) -> Result<Segment, Error> {
        let seals = fcntl_get_seals(&fd).map_err(Error::os("asking for a segment's seals"))?;
        if !seals.contains(SEALS) {
            return Err(Error::Refused { rank: u32::MAX, why: "its memory may change its size" });
        }
        let stat = fstat(&fd).map_err(Error::os("asking for a segment's size"))?;
        let bytes = usize::try_from(stat.st_size).unwrap_or(0);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        if bytes == 0 {
            return Ok(Segment { start: NonNull::dangling(), bytes });
        }
        // SAFETY: a new mapping, at an address that the system chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
        let start = start.map_err(Error::os("mapping a segment"))?;
        let start = NonNull::new(start.cast()).expect("no mapping is at address zero");
        Ok(Segment { start, bytes })
    }

    /// Has the system provide all of it now, not page by page when it is first written. Nothing where it
    /// can't, as before Linux 5.14.
    ///
    /// # Errors
    /// [`Error::Io`] where there is not that much memory.
    pub fn populate(&self) -> Result<(), Error> {
        // SAFETY: it is mapped as long as this lives, and nothing in it changes.
        let populated =
            unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite) };
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            failed => failed.map_err(Error::os("providing a segment's memory")),
        }
    }

    /// Lets go of it for good: it is all zero here from now on, and nobody else's, so that the system has
    /// the memory back once all that mapped it have let go. Who still reads gets some of either.
    ///
    /// # Errors
    /// [`Error::Io`] where the system has no room for that; it is as it was then.
    pub(crate) fn let_go(&self) -> Result<(), Error> {
        if self.bytes == 0 {
            return Ok(());
        }
        let failed = Error::os("letting go of shared memory");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // Made elsewhere first: there may be no moment at which nothing is mapped.
        // SAFETY: a new mapping, at an address that the system chooses.
        let empty = unsafe { mmap_anonymous(std::ptr::null_mut(), self.bytes, access, flags) };
        let empty = empty.map_err(&failed)?;
        let place = self.start.as_ptr().cast();
        // SAFETY: both are whole mappings of so many bytes, the one new, the other this one's own, into
        // which no reference points but to atomics. Threads that reach for it meanwhile wait in the kernel.
        let moved =
            unsafe { mremap_fixed(empty, self.bytes, self.bytes, MremapFlags::MAYMOVE, place) };
        if moved.is_err() {
            // SAFETY: the new one, which nobody knows.
            let _ = unsafe { munmap(empty, self.bytes) };
        }
        moved.map(drop).map_err(failed)
    }

    /// As [`Segment::let_go`] for a rank that has gone; where that fails its memory stays held, which is logged.
    pub(crate) fn give_up(&self) {
        if let Err(error) = self.let_go() {
            log::warn!("the memory of a rank that has gone stays held: {error}");
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Its first byte, as long as it lives; dangling where it has none. Whoever reads or writes there
    /// answers for races, as with any memory that others map.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Copies what lies from byte `at` on into `to`; `None` where there is not as much.
    #[must_use]
    #[inline]
    pub fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        let from = self.span(at, to.len())?;
        // SAFETY: inside the mapping, which no reference points into, so `to` is apart.
        unsafe { copy_bytes(from, to.as_mut_ptr(), to.len()) };
        Some(())
    }

    /// Reads from `source` to where byte `at` is, at most `bytes` and at least one, and what comes
    /// behind these into `spare`; returns how much that was in all, 0 at the source's end.
    ///
    /// # Errors
    /// As `readv`; `INVAL` where there is less room.
    pub(crate) fn read_from(
        &self,
        source: BorrowedFd<'_>,
        (at, bytes): (u64, usize),
        spare: &mut [u8],
    ) -> Result<usize, Errno> {
        let to = self.span(at, bytes).ok_or(Errno::INVAL)?;
        let room = [
            libc::iovec { iov_base: to.cast(), iov_len: bytes },
            libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() },
        ];
        // SAFETY: the kernel writes inside the mapping, which no reference points into, and to `spare`.
        let read = unsafe { libc::readv(source.as_raw_fd(), room.as_ptr(), room.len() as i32) };
        usize::try_from(read)
            .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    /// Copies `from` to where byte `at` is; `None` where there is less room.
    #[must_use]
    #[inline]
    pub fn write(&self, at: u64, from: &[u8]) -> Option<()> {
        let to = self.span(at, from.len())?;
        // SAFETY: inside the mapping, which no reference points into, so `from` is apart.
        unsafe { copy_bytes(from.as_ptr(), to, from.len()) };
        Some(())
    }

    /// Sets so many bytes from `at` on; `None` where there are fewer.
    #[must_use]
    pub fn fill(&self, at: u64, bytes: usize, value: u8) -> Option<()> {
        let to = self.span(at, bytes)?;
        // SAFETY: inside the mapping.
        unsafe { to.write_bytes(value, bytes) };
        Some(())
    }

    /// Copies what `copy` says from `src`, where offset 0 is byte `base`, to here, where it is byte
    /// `at`.
    ///
    /// # Errors
    /// [`OutOfBounds`], and nothing is written.
    pub fn scatter(
        &self,
        copy: &NdCopy,
        (src, base): (&[u8], usize),
        at: usize,
    ) -> Result<(), OutOfBounds> {
        if copy.dims.iter().any(|dim| dim.extent == 0) {
            return Ok(());
        }
        kernels::check_bounds(copy, (base, src.len()), (at, self.bytes))?;
        let (src, to) = (src.as_ptr().wrapping_add(base), self.start.as_ptr().wrapping_add(at));
        // SAFETY: inside `src` and the mapping, as was checked; these are apart, since no reference
        // points into the mapping.
        unsafe { kernels::copy(copy, src, to, stores(copy)) };
        Ok(())
    }

    /// Copies what `copy` says from here, where offset 0 is byte `at`, to `dst`, where it is byte
    /// `base`.
    ///
    /// # Errors
    /// As [`Segment::scatter`].
    pub fn gather(
        &self,
        copy: &NdCopy,
        at: usize,
        (dst, base): (&mut [u8], usize),
    ) -> Result<(), OutOfBounds> {
        if copy.dims.iter().any(|dim| dim.extent == 0) {
            return Ok(());
        }
        kernels::check_bounds(copy, (at, self.bytes), (base, dst.len()))?;
        let from = self.start.as_ptr().wrapping_add(at);
        // SAFETY: as for `scatter`.
        unsafe { kernels::copy(copy, from, dst.as_mut_ptr().wrapping_add(base), stores(copy)) };
        Ok(())
    }

    /// Keeps the pages of so many bytes from `at` on in physical memory, until [`Segment::unlock`].
    ///
    /// # Errors
    /// What the system says, where it refuses; `InvalidInput` where there are not as many bytes.
    pub fn lock(&self, at: u64, bytes: u64) -> io::Result<()> {
        let (start, bytes) = self.pages(at, bytes)?;
        // SAFETY: inside the mapping; where its pages lie is nobody's concern.
        unsafe { mlock(start.cast(), bytes) }.map_err(io::Error::from)
    }

    /// Lets the system move these pages again, however often they were locked.
    ///
    /// # Errors
    /// As [`Segment::lock`].
    pub fn unlock(&self, at: u64, bytes: u64) -> io::Result<()> {
        let (start, bytes) = self.pages(at, bytes)?;
        // SAFETY: as for `lock`.
        unsafe { munlock(start.cast(), bytes) }.map_err(io::Error::from)
    }

    fn pages(&self, at: u64, bytes: u64) -> io::Result<(*mut u8, usize)> {
        let inside = usize::try_from(bytes).ok().and_then(|b| Some((self.span(at, b)?, b)));
        inside.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// The atomic word at byte `at`, a multiple of 8; `None` where there is none.
    #[must_use]
    #[inline]
    pub fn word(&self, at: u64) -> Option<&AtomicU64> {
        let word = self.span(at, 8)?.cast::<AtomicU64>();
        // SAFETY: inside the mapping, aligned, and only shared.
        word.is_aligned().then(|| unsafe { &*word })
    }

    /// All its whole words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let start = self.start.as_ptr().cast();
        if self.bytes < 8 {
            return &[];
        }
        // SAFETY: inside the mapping, which starts with a page; words are only reached as atomics.
        unsafe { std::slice::from_raw_parts(start, self.bytes / 8) }
    }

    /// The first half of the first word.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        assert!(self.bytes >= 8, "a mailbox has words");
        // SAFETY: inside the mapping, which starts with a page; nobody reaches it in another way.
        unsafe { &*self.start.as_ptr().cast::<AtomicU32>() }
    }

    #[inline]
    fn span(&self, at: u64, bytes: usize) -> Option<*mut u8> {
        let at = usize::try_from(at).ok()?;
        let fits = at <= self.bytes && bytes <= self.bytes - at;
        fits.then(|| self.start.as_ptr().wrapping_add(at))
    }
}

/// Copies so many bytes; where they are too many for the caches, as the kernels do, which go past these
/// sooner than the C library.
///
/// # Safety
/// The bytes are there at both ends, which are apart.
#[inline]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    if (bytes as u64) < Crossover::default().in_order {
        // SAFETY: as the caller says.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
    let strides = Vec::new();
    let run = FieldCopy { bytes: bytes as u64, src_offset: 0, dst_offset: 0, padding: 0, strides };
    let run = NdCopy { dims: Vec::new(), fields: vec![run] };
    // SAFETY: as the caller says.
    unsafe { kernels::copy(&run, from, to, stores(&run)) }
}

fn stores(copy: &NdCopy) -> Stores {
    Stores::of(slice::from_ref(copy), copy.payload_bytes(), Crossover::default())
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: its own mapping, which nothing points into any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Whether the system says that it is memory of a descriptor.
#[cfg(test)]
pub(crate) fn is_shared(segment: &Segment) -> bool {
    let start = format!("{:x}-", segment.start.as_ptr() as usize);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| line.starts_with(&start) && line.contains("memfd:isometry"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn bytes_are_those_of_the_memory_and_no_others() {
        let (made, fd) = Segment::create(100).unwrap();
        let mapped = Segment::map(&fd).unwrap();
        made.write(97, &[1, 2, 3]).unwrap();
        let mut back = [0; 4];
        mapped.read(96, &mut back).unwrap();
        assert_eq!(back, [0, 1, 2, 3]);
        mapped.fill(98, 2, 9).unwrap();
        made.read(96, &mut back).unwrap();
        assert_eq!(back, [0, 1, 9, 9]);
        for (at, bytes) in [(98, 3), (101, 0), (u64::MAX, 1), (u64::MAX - 1, 4), (0, 101)] {
            assert_eq!(made.write(at, &vec![0; bytes]), None);
            assert_eq!(made.read(at, &mut vec![0; bytes]), None);
            assert_eq!(made.fill(at, bytes, 0), None);
        }
        assert_eq!(made.write(100, &[]), Some(()));
        made.word(88).unwrap().store(u64::MAX, Ordering::Relaxed);
        assert_eq!(mapped.words()[11].load(Ordering::Relaxed), u64::MAX);
        assert!(made.word(89).is_none() && made.word(96).is_none());
    }

    #[test]
    fn what_is_too_large_for_the_caches_is_copied_all_the_same() {
        let bytes = Crossover::default().in_order as usize + 12345;
        let (made, _) = Segment::create(bytes as u64 + 100).unwrap();
        let src: Vec<u8> = (0..bytes).map(|i| (i * 7 / 5) as u8).collect();
        made.write(99, &src).unwrap();
        let mut back = vec![0; bytes];
        made.read(99, &mut back).unwrap();
        assert!(back == src);
        let mut first = [0; 99];
        made.read(0, &mut first).unwrap();
        assert_eq!(first, [0; 99]);
    }

    #[test]
    fn who_has_let_go_sees_zeros_and_takes_nothing_from_others() {
        let (made, fd) = Segment::create(3 << 12).unwrap();
        let mapped = Segment::map(&fd).unwrap();
        made.write(5000, &[7; 9]).unwrap();
        assert!(is_shared(&mapped));
        mapped.let_go().unwrap();
        mapped.let_go().unwrap();
        assert!(!is_shared(&mapped) && is_shared(&made));
        let mut back = [1; 9];
        mapped.read(5000, &mut back).unwrap();
        assert_eq!(back, [0; 9]);
        mapped.fill(0, 3 << 12, 3).unwrap();
        made.read(5000, &mut back).unwrap();
        assert_eq!(back, [7; 9]);
        Segment::create(0).unwrap().0.let_go().unwrap();
    }

    #[test]
    fn none_is_mapped_whose_size_may_change() {
        let fd = memfd_create("bare", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        assert!(Segment::map(&fd).is_err());
        let (_, fd) = Segment::create(4096).unwrap();
        assert!(ftruncate(&fd, 0).is_err() && ftruncate(&fd, 8192).is_err());
    }

    /// What the system says this process keeps in place, in bytes.
    fn locked() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    #[test]
    fn pages_are_locked_and_unlocked() {
        let (made, _fd) = Segment::create(1 << 20).unwrap();
        let before = locked();
        made.lock(4096, 8192).unwrap();
        made.lock(8192, 4096).unwrap();
        assert_eq!(locked() - before, 8192);
        made.unlock(8192, 4096).unwrap();
        assert_eq!(locked() - before, 4096);
        for (at, bytes) in [(1 << 20, 1), (0, u64::MAX), (u64::MAX, 4096)] {
            let error = made.lock(at, bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        drop(made);
        assert_eq!(locked(), before);
    }

    #[test]
    fn an_empty_one_has_no_bytes() {
        let (made, fd) = Segment::create(0).unwrap();
        assert!(made.words().is_empty() && made.word(0).is_none());
        assert_eq!(Segment::map(&fd).unwrap().bytes(), 0);
    }
}
