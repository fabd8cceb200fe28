//! Direct I/O: whether a file allows it, and on which boundaries.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};
use std::os::fd::{AsRawFd, OwnedFd};

/// Where the kernel doesn't say, pages are on the safe side of any device's blocks.
const UNKNOWN_BYTES: u64 = 4096;
/// `STATX_DIOALIGN`, since Linux 6.1.
const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// A way around the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The same file, opened with `O_DIRECT`.
    pub(crate) fd: OwnedFd,
    /// Offsets, lengths and memory addresses are multiples of this.
    pub(crate) block_bytes: u64,
}

impl Direct {
    /// The way around the cache for the file behind `fd`, opened with `access`, if it has one.
    pub(crate) fn of(fd: &OwnedFd, access: OFlags) -> Option<Self> {
        let block_bytes = block_bytes(fd)?;
        // By descriptor, not by name: the name may be another file's by now.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).ok()?;
        Some(Direct { fd, block_bytes })
    }
}

/// What offsets and addresses have to be multiples of; `None` where the kernel rules direct I/O
/// out.
fn block_bytes(fd: &OwnedFd) -> Option<u64> {
    let Ok(stat) = statx(fd, "", AtFlags::EMPTY_PATH, DIOALIGN) else {
        return Some(UNKNOWN_BYTES);
    };
    if stat.stx_mask & DIOALIGN.bits() == 0 {
        return Some(UNKNOWN_BYTES);
    }
    let bytes = u64::from(stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    (stat.stx_dio_offset_align > 0 && bytes.is_power_of_two()).then_some(bytes)
}
