//! Four lanes, by AVX-512 with byte and word operations, and with byte permutations or without.

use super::Vector;
use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm512_castsi128_si512,
    _mm512_castsi512_si128, _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_loadu_si512,
    _mm512_mask_blend_epi8, _mm512_mask_storeu_epi8, _mm512_movepi8_mask, _mm512_or_si512,
    _mm512_permutex2var_epi8, _mm512_permutex2var_epi32, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
    _mm512_srli_epi32, _mm512_storeu_si512, _mm512_stream_si512, _mm512_unpackhi_epi8,
    _mm512_unpackhi_epi16, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi8,
    _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// A cache line.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BYTES: bool>(__m512i);

/// # Safety
/// As [`Vector::load`], for one lane.
#[inline(always)]
unsafe fn lane(src: *const u8) -> __m128i {
    // SAFETY: the caller's contract.
    unsafe { _mm_loadu_si128(src.cast()) }
}

impl<const BYTES: bool> Vector for Avx512<BYTES> {
    type Half = super::avx2::Avx2;
    const LANES: usize = 4;
    const UNIT_BYTES: usize = if BYTES { 1 } else { 4 };
    const MASKS: bool = true;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        Avx512(unsafe { _mm512_loadu_si512(src.cast()) })
    }

    #[inline(always)]
    unsafe fn gather(at: impl Fn(usize) -> *const u8) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let all = _mm512_castsi128_si512(lane(at(0)));
            let all = _mm512_inserti32x4::<1>(all, lane(at(1)));
            let all = _mm512_inserti32x4::<2>(all, lane(at(2)));
            Avx512(_mm512_inserti32x4::<3>(all, lane(at(3))))
        }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_storeu_si512(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_some(self, dst: *mut u8, which: u64) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_mask_storeu_epi8(dst.cast(), which, self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_stream_si512(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: *mut u8, by: isize) {
        let at = |i: isize| dst.wrapping_offset(i * by).cast::<__m128i>();
        // SAFETY: the caller's contract.
        unsafe {
            _mm_storeu_si128(at(0), _mm512_castsi512_si128(self.0));
            _mm_storeu_si128(at(1), _mm512_extracti32x4_epi32::<1>(self.0));
            _mm_storeu_si128(at(2), _mm512_extracti32x4_epi32::<2>(self.0));
            _mm_storeu_si128(at(3), _mm512_extracti32x4_epi32::<3>(self.0));
        }
    }

    #[inline(always)]
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        // SAFETY: the caller has the instruction set.
        let (low, high) = unsafe {
            match E {
                1 => (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)),
                2 => (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)),
                4 => (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)),
                _ => (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)),
            }
        };
        (Avx512(low), Avx512(high))
    }

    #[inline(always)]
    unsafe fn unzip_lanes(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller has the instruction set.
        unsafe {
            (
                Avx512(_mm512_shuffle_i32x4::<0b10_00_10_00>(self.0, other.0)),
                Avx512(_mm512_shuffle_i32x4::<0b11_01_11_01>(self.0, other.0)),
            )
        }
    }

    #[inline(always)]
    unsafe fn swizzle(self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx512(unsafe { _mm512_shuffle_epi8(self.0, table.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx512(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn pick(from: (Self, Self), table: Self) -> Self {
        let (a, b) = (from.0.0, from.1.0);
        // SAFETY: the caller has the instruction set.
        Avx512(unsafe {
            if BYTES {
                _mm512_permutex2var_epi8(a, table.0, b)
            } else {
                // Of the number of a unit, five bits count, from that of its first byte.
                _mm512_permutex2var_epi32(a, _mm512_srli_epi32::<2>(table.0), b)
            }
        })
    }

    #[inline(always)]
    unsafe fn or_else(self, other: Self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx512(unsafe { _mm512_mask_blend_epi8(_mm512_movepi8_mask(table.0), self.0, other.0) })
    }
}
