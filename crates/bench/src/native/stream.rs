//! A plain copy by streaming stores: lines go to memory without being read first.

/// Whether this machine has streaming stores that [`copy`] uses.
pub(crate) const HAS_STREAM: bool = cfg!(target_arch = "x86_64");

/// Copies `bytes` from `src` to `dst`, its whole lines by streaming stores where the machine has
/// them. They are visible to other threads when it returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    let head = dst.align_offset(LINE_BYTES).min(bytes);
    let lines = (bytes - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    // SAFETY: the three parts are those of the caller's ranges; the lines start aligned.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        copy_lines(src.add(head), dst.add(head), lines);
        std::ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), bytes - tail);
    }
    fence();
}

pub(super) const LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{copy_lines, fence, prefetch, prefetch_far};

/// # Safety
/// As [`copy`], for so many lines.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy_lines(src: *const u8, dst: *mut u8, lines: usize) {
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, lines * LINE_BYTES) }
}

/// Makes what was streamed visible to other threads.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn fence() {}

/// Asks for the line at `src`, which need not be there.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_src: *const u8) {}

/// As [`prefetch`], for the second-level cache.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch_far(_src: *const u8) {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LINE_BYTES;
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _MM_HINT_T0, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch,
        _mm_sfence, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512,
        _mm512_stream_si512,
    };

    /// # Safety
    /// As [`super::copy`], for so many lines; `dst` lies on a line's start. They are visible after
    /// [`fence`].
    pub(in super::super) unsafe fn copy_lines(src: *const u8, dst: *mut u8, lines: usize) {
        let lines_512 = is_x86_feature_detected!("avx512f");
        let lines_256 = is_x86_feature_detected!("avx2");
        // SAFETY: the caller's contract; what is called is what the processor has.
        unsafe {
            match (lines_512, lines_256) {
                (true, _) => by_64(src, dst, lines),
                (_, true) => by_32(src, dst, lines),
                _ => by_16(src, dst, lines),
            }
        }
    }

    /// Makes what was streamed visible to other threads.
    pub(in super::super) fn fence() {
        // SAFETY: every x86-64 has it.
        unsafe { _mm_sfence() };
    }

    /// Asks for the line at `src`, which need not be there.
    pub(in super::super) fn prefetch(src: *const u8) {
        // SAFETY: a hint; every x86-64 has it, and it faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(src.cast()) };
    }

    /// As [`prefetch`], for the second-level cache.
    pub(in super::super) fn prefetch_far(src: *const u8) {
        // SAFETY: as for `prefetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(src.cast()) };
    }

    /// # Safety
    /// As [`copy_lines`].
    #[target_feature(enable = "avx512f")]
    unsafe fn by_64(src: *const u8, dst: *mut u8, lines: usize) {
        for line in 0..lines {
            // SAFETY: a line of both ranges, aligned at `dst`.
            unsafe {
                let bits = _mm512_loadu_si512(src.add(line * LINE_BYTES).cast());
                _mm512_stream_si512(dst.add(line * LINE_BYTES).cast::<__m512i>(), bits);
            }
        }
    }

    /// # Safety
    /// As [`copy_lines`].
    #[target_feature(enable = "avx2")]
    unsafe fn by_32(src: *const u8, dst: *mut u8, lines: usize) {
        for half in 0..lines * 2 {
            // SAFETY: half a line of both ranges, aligned at `dst`.
            unsafe {
                let bits = _mm256_loadu_si256(src.add(half * 32).cast());
                _mm256_stream_si256(dst.add(half * 32).cast::<__m256i>(), bits);
            }
        }
    }

    /// # Safety
    /// As [`copy_lines`].
    unsafe fn by_16(src: *const u8, dst: *mut u8, lines: usize) {
        for quarter in 0..lines * 4 {
            // SAFETY: a quarter of a line of both ranges, aligned at `dst`; every x86-64 has these.
            unsafe {
                let bits = _mm_loadu_si128(src.add(quarter * 16).cast());
                _mm_stream_si128(dst.add(quarter * 16).cast::<__m128i>(), bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_no_other_is_copied_at_any_alignment() {
        let src: Vec<u8> = (0..1000u32).map(|i| (i * 7 + 1) as u8).collect();
        for (from, to, bytes) in [(0, 0, 1000), (1, 3, 900), (5, 64, 64), (0, 1, 63), (9, 0, 0)] {
            let mut dst = vec![0u8; 1000];
            // SAFETY: both ranges lie in their vectors.
            unsafe { copy(src.as_ptr().add(from), dst.as_mut_ptr().add(to), bytes) };
            let mut expected = vec![0u8; 1000];
            expected[to..to + bytes].copy_from_slice(&src[from..from + bytes]);
            assert!(dst == expected, "{bytes} bytes from {from} to {to}");
        }
    }
}
