//! Moves canonical copies inside host memory.
//!
//! **Hazard.** A copy is a list of offsets from two addresses; nothing in it says how much memory
//! there is. **Guarantee.** [`copy`] reads and writes exactly the bytes that
//! [`layout::touched`] bounds and [`layout::oracle`] moves; whoever calls it answers for these
//! being there. [`copy_slices`] checks them. Neither allocates. **Structure.** `walk` takes the
//! outer loops apart, so that all fields of an entry are moved while it is in the cache; `plane`
//! moves what is left, two loops at a time, in blocks; `element` knows sizes at compile time.

mod element;
mod plane;
mod split;
mod walk;

pub use split::split;

use layout::{NdCopy, touched};
use std::ops::Range;
use thiserror::Error;

/// A copy that reaches outside a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the copy reaches outside its {side}")]
pub struct OutOfBounds {
    /// `source` or `destination`.
    pub side: &'static str,
}

/// Moves what `copy` says from `src` to `dst`, the addresses of offset 0 on either side. Any
/// alignment will do.
///
/// # Safety
/// The bytes that `copy` touches (see [`layout::touched`]; every index table has as many entries
/// as its loop's extent) lie in one allocation around `src`, valid for reads, and in one around
/// `dst`, valid for writes. The bytes read and those written don't overlap, and nobody else
/// accesses them in a conflicting way during the call.
pub unsafe fn copy(copy: &NdCopy, src: *const u8, dst: *mut u8) {
    if copy.dims.iter().all(|d| d.extent > 0) {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { walk::walk(copy, src, dst) }
    }
}

/// As [`copy`], between slices: offset 0 lies at `src_base` and `dst_base`.
///
/// # Errors
/// [`OutOfBounds`] where the copy reaches outside a slice, or an index table is shorter than its
/// loop; nothing is written then.
pub fn copy_slices(
    list: &NdCopy,
    src: &[u8],
    src_base: usize,
    dst: &mut [u8],
    dst_base: usize,
) -> Result<(), OutOfBounds> {
    if list.dims.iter().any(|d| d.extent == 0) {
        return Ok(());
    }
    let (read, written) = touched(list);
    if !list.is_well_formed() || !lies_in(&read, src_base, src.len()) {
        return Err(OutOfBounds { side: "source" });
    }
    if !lies_in(&written, dst_base, dst.len()) {
        return Err(OutOfBounds { side: "destination" });
    }
    let (src, dst) = (src.as_ptr().wrapping_add(src_base), dst.as_mut_ptr().wrapping_add(dst_base));
    // SAFETY: every byte that the copy touches lies in the slices, which is checked above; a
    // shared and an exclusive slice don't overlap.
    unsafe { copy(list, src, dst) };
    Ok(())
}

fn lies_in(range: &Range<i64>, base: usize, len: usize) -> bool {
    let (base, len) = (base as i128, len as i128);
    0 <= base + i128::from(range.start) && base + i128::from(range.end) <= len
}
