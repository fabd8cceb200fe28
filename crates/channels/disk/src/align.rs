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
    /// Where it may begin and end.
    pub(crate) bounds: Bounds,
}

/// The boundaries that an operation keeps to; 1 and 1 where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Offsets in the file and lengths are multiples of this.
    pub(crate) block_bytes: u64,
    /// Addresses of memory are multiples of this, which divides `block_bytes`.
    pub(crate) memory_bytes: u64,
}

impl Bounds {
    /// Those of the page cache.
    pub(crate) const NONE: Bounds = Bounds { block_bytes: 1, memory_bytes: 1 };
    /// Those that do for any file.
    const SAFE: Bounds = Bounds { block_bytes: UNKNOWN_BYTES, memory_bytes: UNKNOWN_BYTES };

    fn new(block_bytes: u64, memory_bytes: u64) -> Option<Self> {
        let powers = block_bytes.is_power_of_two() && memory_bytes.is_power_of_two();
        let block_bytes = block_bytes.max(memory_bytes);
        powers.then_some(Bounds { block_bytes, memory_bytes })
    }
}

impl Direct {
    /// The way around the cache for the file behind `fd`, opened with `access`, if it has one.
    pub(crate) fn of(fd: &OwnedFd, access: OFlags) -> Option<Self> {
        let bounds = bounds(fd)?;
        // By descriptor, not by name: the name may be another file's by now.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).ok()?;
        Some(Direct { fd, bounds })
    }
}

/// What the kernel says of `fd`; `None` where it rules direct I/O out.
fn bounds(fd: &OwnedFd) -> Option<Bounds> {
    let Ok(stat) = statx(fd, "", AtFlags::EMPTY_PATH, DIOALIGN) else {
        return Some(Bounds::SAFE);
    };
    if stat.stx_mask & DIOALIGN.bits() == 0 {
        return Some(Bounds::SAFE);
    }
    Bounds::new(stat.stx_dio_offset_align.into(), stat.stx_dio_mem_align.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_says_zero_rules_direct_io_out() {
        assert_eq!(Bounds::new(0, 0), None);
        let nvme = Bounds { block_bytes: 512, memory_bytes: 4 };
        assert_eq!(Bounds::new(512, 4), Some(nvme));
        let odd = Bounds { block_bytes: 4096, memory_bytes: 4096 };
        assert_eq!(Bounds::new(512, 4096), Some(odd));
    }
}
