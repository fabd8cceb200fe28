//! Two lanes, by NEON: a register each, since it loads and stores them by twos.

use super::{LANE_BYTES, Vector};
use std::arch::aarch64::{
    uint8x16_t, uint8x16x4_t, vbslq_u8, vcltzq_s8, vld1q_u8, vorrq_u8, vqtbl1q_u8, vqtbl4q_u8,
    vreinterpretq_s8_u8, vreinterpretq_u8_u16, vreinterpretq_u8_u32, vreinterpretq_u8_u64,
    vreinterpretq_u16_u8, vreinterpretq_u32_u8, vreinterpretq_u64_u8, vst1q_u8, vzip1q_u8,
    vzip1q_u16, vzip1q_u32, vzip1q_u64, vzip2q_u8, vzip2q_u16, vzip2q_u32, vzip2q_u64,
};
use std::arch::asm;

/// Half a cache line.
#[derive(Clone, Copy)]
pub(crate) struct Neon(uint8x16_t, uint8x16_t);

/// As [`Vector::zip`], of a lane.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn zip<const E: usize>(a: uint8x16_t, b: uint8x16_t) -> (uint8x16_t, uint8x16_t) {
    macro_rules! by {
        ($to:ident, $back:ident, $low:ident, $high:ident) => {{
            let (a, b) = ($to(a), $to(b));
            ($back($low(a, b)), $back($high(a, b)))
        }};
    }
    // SAFETY: the caller has the instruction set.
    unsafe {
        match E {
            1 => (vzip1q_u8(a, b), vzip2q_u8(a, b)),
            2 => by!(vreinterpretq_u16_u8, vreinterpretq_u8_u16, vzip1q_u16, vzip2q_u16),
            4 => by!(vreinterpretq_u32_u8, vreinterpretq_u8_u32, vzip1q_u32, vzip2q_u32),
            _ => by!(vreinterpretq_u64_u8, vreinterpretq_u8_u64, vzip1q_u64, vzip2q_u64),
        }
    }
}

impl Vector for Neon {
    type Half = Self;
    const LANES: usize = 2;
    const UNIT_BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Self::gather(|i| src.add(i * LANE_BYTES)) }
    }

    #[inline(always)]
    unsafe fn gather(at: impl Fn(usize) -> *const u8) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Neon(vld1q_u8(at(0)), vld1q_u8(at(1))) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { self.scatter(dst, LANE_BYTES as isize) }
    }

    /// The processor may take it for [`Vector::store`]; whatever it does, it orders both alike.
    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        let Neon(low, high) = self;
        // SAFETY: the caller's contract; the instruction writes both lanes and nothing else.
        unsafe {
            asm!(
                "stnp {low:q}, {high:q}, [{dst}]",
                low = in(vreg) low,
                high = in(vreg) high,
                dst = in(reg) dst,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: *mut u8, by: isize) {
        // SAFETY: the caller's contract.
        unsafe {
            vst1q_u8(dst, self.0);
            vst1q_u8(dst.wrapping_offset(by), self.1);
        }
    }

    #[inline(always)]
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller has the instruction set.
        let (first, second) = unsafe { (zip::<E>(self.0, other.0), zip::<E>(self.1, other.1)) };
        (Neon(first.0, second.0), Neon(first.1, second.1))
    }

    #[inline(always)]
    unsafe fn unzip_lanes(self, other: Self) -> (Self, Self) {
        (Neon(self.0, other.0), Neon(self.1, other.1))
    }

    #[inline(always)]
    unsafe fn swizzle(self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { Neon(vqtbl1q_u8(self.0, table.0), vqtbl1q_u8(self.1, table.1)) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe { Neon(vorrq_u8(self.0, other.0), vorrq_u8(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn pick((a, b): (Self, Self), table: Self) -> Self {
        let both = uint8x16x4_t(a.0, a.1, b.0, b.1);
        // SAFETY: the caller has the instruction set.
        unsafe { Neon(vqtbl4q_u8(both, table.0), vqtbl4q_u8(both, table.1)) }
    }

    #[inline(always)]
    unsafe fn or_else(self, other: Self, table: Self) -> Self {
        // A number of 128 or more is a negative one.
        // SAFETY: the caller has the instruction set.
        unsafe {
            let elsewhere = |numbers| vcltzq_s8(vreinterpretq_s8_u8(numbers));
            Neon(
                vbslq_u8(elsewhere(table.0), other.0, self.0),
                vbslq_u8(elsewhere(table.1), other.1, self.1),
            )
        }
    }
}
