//! One lane, without any instruction set: for other processors, and for Miri.

use super::{LANE_BYTES, Vector};

/// A lane as bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar([u8; LANE_BYTES]);

impl Vector for Scalar {
    type Half = Self;
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        Scalar(unsafe { src.cast::<[u8; LANE_BYTES]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { dst.cast::<[u8; LANE_BYTES]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        let half = LANE_BYTES / 2;
        let zipped = |start: usize| {
            Scalar(std::array::from_fn(|i| {
                let from = start + i / (2 * E) * E + i % E;
                if (i / E).is_multiple_of(2) { self.0[from] } else { other.0[from] }
            }))
        };
        (zipped(0), zipped(half))
    }

    #[inline(always)]
    unsafe fn swizzle(self, table: Self) -> Self {
        Scalar(table.0.map(|at| self.0.get(usize::from(at)).copied().unwrap_or(0)))
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        Scalar(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}
