//! One lane, by NEON.

use super::Vector;
use std::arch::aarch64::{
    uint8x16_t, vld1q_u8, vorrq_u8, vqtbl1q_u8, vreinterpretq_u8_u16, vreinterpretq_u8_u32,
    vreinterpretq_u8_u64, vreinterpretq_u16_u8, vreinterpretq_u32_u8, vreinterpretq_u64_u8,
    vst1q_u8, vzip1q_u8, vzip1q_u16, vzip1q_u32, vzip1q_u64, vzip2q_u8, vzip2q_u16, vzip2q_u32,
    vzip2q_u64,
};

/// A quarter of a cache line.
#[derive(Clone, Copy)]
pub(crate) struct Neon(uint8x16_t);

impl Vector for Neon {
    type Half = Self;
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        Neon(unsafe { vld1q_u8(src) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { vst1q_u8(dst, self.0) }
    }

    #[inline(always)]
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        macro_rules! by {
            ($to:ident, $back:ident, $low:ident, $high:ident) => {{
                let (a, b) = ($to(a), $to(b));
                ($back($low(a, b)), $back($high(a, b)))
            }};
        }
        // SAFETY: the caller has the instruction set.
        let (low, high) = unsafe {
            match E {
                1 => (vzip1q_u8(a, b), vzip2q_u8(a, b)),
                2 => by!(vreinterpretq_u16_u8, vreinterpretq_u8_u16, vzip1q_u16, vzip2q_u16),
                4 => by!(vreinterpretq_u32_u8, vreinterpretq_u8_u32, vzip1q_u32, vzip2q_u32),
                _ => by!(vreinterpretq_u64_u8, vreinterpretq_u8_u64, vzip1q_u64, vzip2q_u64),
            }
        };
        (Neon(low), Neon(high))
    }

    #[inline(always)]
    unsafe fn swizzle(self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Neon(unsafe { vqtbl1q_u8(self.0, table.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Neon(unsafe { vorrq_u8(self.0, other.0) })
    }
}
