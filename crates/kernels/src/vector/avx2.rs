//! Two lanes, by AVX2.

use super::Vector;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_blendv_epi8,
    _mm256_castsi128_si256, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256,
    _mm256_permutevar8x32_epi32, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

/// Half a cache line.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

impl Vector for Avx2 {
    type Half = Self;
    const LANES: usize = 2;
    const UNIT_BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        Avx2(unsafe { _mm256_loadu_si256(src.cast()) })
    }

    #[inline(always)]
    unsafe fn gather(at: impl Fn(usize) -> *const u8) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let low = _mm256_castsi128_si256(_mm_loadu_si128(at(0).cast()));
            Avx2(_mm256_inserti128_si256::<1>(low, _mm_loadu_si128(at(1).cast())))
        }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm256_storeu_si256(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm256_stream_si256(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: *mut u8, by: isize) {
        // SAFETY: the caller's contract.
        unsafe {
            _mm_storeu_si128(dst.cast::<__m128i>(), _mm256_castsi256_si128(self.0));
            let high = _mm256_extracti128_si256::<1>(self.0);
            _mm_storeu_si128(dst.wrapping_offset(by).cast::<__m128i>(), high);
        }
    }

    #[inline(always)]
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        // SAFETY: the caller has the instruction set.
        let (low, high) = unsafe {
            match E {
                1 => (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)),
                2 => (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)),
                4 => (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)),
                _ => (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)),
            }
        };
        (Avx2(low), Avx2(high))
    }

    #[inline(always)]
    unsafe fn unzip_lanes(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller has the instruction set.
        unsafe {
            (
                Avx2(_mm256_permute2x128_si256::<0x20>(self.0, other.0)),
                Avx2(_mm256_permute2x128_si256::<0x31>(self.0, other.0)),
            )
        }
    }

    #[inline(always)]
    unsafe fn swizzle(self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx2(unsafe { _mm256_shuffle_epi8(self.0, table.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx2(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn pick(from: (Self, Self), table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        unsafe {
            // Of the number of a unit, three bits count, from that of its first byte.
            let units = _mm256_srli_epi32::<2>(table.0);
            let first = _mm256_permutevar8x32_epi32(from.0.0, units);
            let second = _mm256_permutevar8x32_epi32(from.1.0, units);
            // A number of the second has its sixth bit set.
            Avx2(_mm256_blendv_epi8(first, second, _mm256_slli_epi32::<2>(table.0)))
        }
    }

    #[inline(always)]
    unsafe fn or_else(self, other: Self, table: Self) -> Self {
        // SAFETY: the caller has the instruction set.
        Avx2(unsafe { _mm256_blendv_epi8(self.0, other.0, table.0) })
    }
}
