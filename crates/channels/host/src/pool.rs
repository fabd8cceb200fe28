//! Host memory by `mmap`.

use crate::limits::Limits;
use channel::model::{ChannelError, ChannelErrorKind, MemoryId};
use channel::{HUGE_PAGE_BYTES, HostSpan, Provider, Region};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// The least alignment of a mapping.
const PAGE_BYTES: u64 = 4096;

/// Regions below this are not held against the limits: asking for them takes longer than mapping.
const UNCHECKED_BYTES: u64 = 16 << 20;

/// How a pool's pages are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Touch every page at once, so that no transfer pays for the first touch.
    pub prefault: bool,
    /// Ask for huge pages in regions of at least one.
    pub huge: bool,
    /// Prefer the memory of this NUMA node.
    pub node: Option<u32>,
}

/// Makes regions of zeroed host memory (SYS), each a mapping of its own.
#[derive(Debug, Clone)]
pub struct HostProvider {
    memory: MemoryId,
    pages: Pages,
}

impl HostProvider {
    /// Regions of `memory`, their pages had as `pages` says.
    #[must_use]
    pub fn new(memory: MemoryId, pages: Pages) -> Self {
        HostProvider { memory, pages }
    }
}

impl Provider for HostProvider {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        let whole_bytes = len_bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let whole_bytes = whole_bytes.ok_or_else(|| out_of_memory(len_bytes, "no such size"))?;
        check_room(whole_bytes, self.pages)?;
        let huge = self.pages.huge && len_bytes >= HUGE_PAGE_BYTES;
        let align_bytes = align_bytes.max(if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES });
        let mapping = Mapping::new(whole_bytes, align_bytes)?;
        let len = to_usize(len_bytes)?;
        // SAFETY: the mapping is at least `len_bytes` long and readable and writable, and the
        // region owns it.
        let span = unsafe { HostSpan::new(mapping.start(), len) };
        if huge {
            span.ask_for_huge_pages();
        }
        mapping.prepare(self.pages)?;
        Ok(Region::host(self.memory, span, Arc::new(mapping)))
    }
}

/// Refuses what would have the kernel kill the process rather than say no.
fn check_room(len_bytes: u64, pages: Pages) -> Result<(), ChannelError> {
    if len_bytes < UNCHECKED_BYTES {
        return Ok(());
    }
    let refusal = Limits::detect().refusal(len_bytes, pages.prefault);
    refusal.map_or(Ok(()), |why| Err(out_of_memory(len_bytes, why)))
}

/// A mapping, of which an aligned part is used.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    mapped_bytes: usize,
    /// Where the used part begins, and its length.
    skip_bytes: usize,
    used_bytes: usize,
}

// SAFETY: a mapping is an address range that this value alone unmaps.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; nothing is reached through a shared reference but the addresses.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(used_bytes: u64, align_bytes: u64) -> Result<Self, ChannelError> {
        let slack_bytes = align_bytes - PAGE_BYTES.min(align_bytes);
        let mapped = used_bytes.checked_add(slack_bytes);
        let mapped = mapped.ok_or_else(|| out_of_memory(used_bytes, "no such size"))?;
        let (mapped_bytes, used) = (to_usize(mapped)?, to_usize(used_bytes)?);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_bytes, access, flags) };
        let base = base.map_err(|errno| refused(used_bytes, errno))?.cast::<u8>();
        let base = NonNull::new(base).ok_or_else(|| refused(used_bytes, Errno::NOMEM))?;
        let skip = (base.as_ptr() as usize).next_multiple_of(to_usize(align_bytes)?);
        let skip_bytes = skip - base.as_ptr() as usize;
        Ok(Mapping { base, mapped_bytes, skip_bytes, used_bytes: used })
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the used part lies inside the mapping: `skip` is below the slack.
        unsafe { self.base.add(self.skip_bytes) }
    }

    fn prepare(&self, pages: Pages) -> Result<(), ChannelError> {
        if let Some(node) = pages.node {
            self.prefer(node);
        }
        if pages.prefault {
            self.touch().map_err(|errno| refused(self.used_bytes as u64, errno))?;
        }
        Ok(())
    }

    fn touch(&self) -> Result<(), Errno> {
        match self.advise(Advice::LinuxPopulateWrite) {
            // Before Linux 5.14 there is no such advice.
            Err(Errno::INVAL) => {
                self.touch_by_hand();
                Ok(())
            }
            result => result,
        }
    }

    fn touch_by_hand(&self) {
        let page = usize::try_from(PAGE_BYTES).expect("a page fits");
        for offset in (0..self.used_bytes).step_by(page) {
            // SAFETY: the offset lies inside the used part, and nobody else has the mapping yet.
            unsafe { self.start().add(offset).write_volatile(0) };
        }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        let start = self.start().as_ptr().cast::<c_void>();
        // SAFETY: none of the advices used here changes what the memory holds.
        unsafe { madvise(start, self.used_bytes, advice) }
    }

    /// Asks for pages of NUMA node `node` first. A kernel that refuses leaves them anywhere.
    fn prefer(&self, node: u32) {
        let mut mask = [0u64; 16];
        let Some(word) = mask.get_mut(node as usize / 64) else { return };
        *word = 1 << (node % 64);
        let bits = mask.len() * 64;
        // SAFETY: the range is this mapping's, and the mask has as many bits as is said.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start().as_ptr(),
                self.used_bytes,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                bits,
                0,
            );
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: whoever used the memory held the region, which owned this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.mapped_bytes) };
    }
}

fn to_usize(bytes: u64) -> Result<usize, ChannelError> {
    usize::try_from(bytes).map_err(|_| out_of_memory(bytes, "no such size"))
}

fn out_of_memory(len_bytes: u64, why: &str) -> ChannelError {
    let detail = format!("can't allocate {len_bytes} bytes of host memory: {why}");
    ChannelError::new(ChannelErrorKind::OutOfMemory, detail)
}

fn refused(len_bytes: u64, errno: Errno) -> ChannelError {
    out_of_memory(len_bytes, &std::io::Error::from(errno).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::model::NodeId;

    const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };

    fn bytes(region: &Region) -> &[u8] {
        let span = region.host_span().unwrap();
        // SAFETY: the region is host memory that only this test has.
        unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) }
    }

    #[test]
    fn regions_are_zeroed_and_aligned() {
        for pages in [
            Pages::default(),
            Pages { prefault: true, ..Pages::default() },
            Pages { prefault: true, huge: true, node: Some(0) },
            Pages { prefault: true, huge: false, node: Some(4000) },
        ] {
            for (len, align) in [(1, 1), (5000, 4096), (3 << 20, 1 << 16), (100, 1 << 22)] {
                let region = HostProvider::new(MEMORY, pages).allocate(len, align).unwrap();
                let start = region.host_span().unwrap().start().as_ptr() as u64;
                assert_eq!((region.len_bytes(), start % align), (len, 0));
                assert!(bytes(&region).iter().all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn an_empty_region_is_a_region() {
        let region = HostProvider::new(MEMORY, Pages::default()).allocate(0, 1).unwrap();
        assert_eq!((region.len_bytes(), region.memory()), (0, MEMORY));
    }

    #[test]
    fn too_much_is_refused_by_a_clear_error() {
        for len in [u64::MAX, 1 << 60, 1 << 50] {
            let pages = Pages { prefault: true, ..Pages::default() };
            let error = HostProvider::new(MEMORY, pages).allocate(len, 4096).unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::OutOfMemory);
            assert!(error.detail.contains(&len.to_string()) || len == u64::MAX, "{error}");
        }
    }
}
