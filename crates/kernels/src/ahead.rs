//! What is asked for before it is read.
//!
//! **Hazard.** What the processor doesn't find by itself it waits for, a line after the other. **Structure.** Lines
//! are named while others are moved: one by one, or those behind records.

use crate::vector::LINE_BYTES;
use std::ops::Range;

/// How far ahead of its blocks records, or the arrays of all fields, are asked for in the second-level cache,
/// if single vectors are made: with lines of two it takes more time than it saves. And how far ahead lines are that
/// are written in part.
pub(crate) const FAR_BYTES: usize = 16 << 10;

/// How far ahead a source that is read from end to end is asked for, into a second-level cache, where
/// [`Abilities::holds_lines`](crate::vector::Abilities::holds_lines): what is stored past the caches takes the places
/// of what a first-level cache waits for. From 4 to 32 KiB it is the same. On a Zen 5 little blocks are, too.
pub(crate) const READ_ON_BYTES: isize = 16 << 10;

/// Asks for the line at `src`, which need not be there.
#[inline(always)]
pub(crate) fn prefetch(src: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; every x86-64 has it, and it faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(src.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, too; every AArch64 has it, and it faults at no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) src, options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = src;
}

/// As [`prefetch`], into a second-level cache only: for more than a first-level one keeps meanwhile, and
/// for rows that are at the same few places of it.
#[inline(always)]
pub(crate) fn prefetch_near(src: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as for `prefetch`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(src.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as for `prefetch`.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) src, options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = src;
}

/// Where a row is, and how far it is to its next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<P> {
    pub(crate) at: P,
    pub(crate) step: usize,
}

/// What is asked for behind groups: as many in the first-level cache, and in the second-level cache what
/// lies so far behind these that it takes the memory's time.
pub(crate) struct Asks<'a> {
    rows: std::slice::Iter<'a, Row<*const u8>>,
    records: usize,
    /// What a record has in all rows.
    record_bytes: usize,
    /// What is left of a row, as addresses, and how far behind that is asked for, too.
    lines: Range<usize>,
    far: usize,
}

impl<'a> Asks<'a> {
    /// For so many `records` behind as many of the `rows`.
    #[inline(always)]
    pub(crate) fn new(rows: &'a [Row<*const u8>], records: usize) -> Self {
        let record_bytes = rows.iter().map(|row| row.step).sum();
        Asks { rows: rows.iter(), records, record_bytes, lines: 0..0, far: 0 }
    }

    /// Where the next lines of a row are, so many, if there are any left: for others to ask for.
    #[inline(always)]
    pub(crate) fn take(&mut self, lines: usize) -> Option<*const u8> {
        while self.lines.is_empty() {
            let row = self.rows.next()?;
            let bytes = self.records * row.step;
            let start = row.at.addr() + bytes;
            self.lines = start..start + bytes;
            self.far = FAR_BYTES * row.step / self.record_bytes;
        }
        let first = std::ptr::without_provenance::<u8>(self.lines.start);
        self.lines.start += lines * LINE_BYTES;
        Some(first)
    }

    /// Asks for so many lines, if there are any left.
    #[inline(always)]
    pub(crate) fn ask(&mut self, lines: usize) {
        for _ in 0..lines {
            let Some(line) = self.take(1) else { return };
            prefetch(line);
        }
    }

    /// As [`Asks::ask`], and for as many lines far behind.
    #[inline(always)]
    pub(crate) fn ask_far(&mut self, lines: usize) {
        for _ in 0..lines {
            let Some(line) = self.take(1) else { return };
            prefetch(line);
            prefetch_near(line.wrapping_add(self.far));
        }
    }
}
