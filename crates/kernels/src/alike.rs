//! Structures that lie alike on both sides, with padding between their fields.
//!
//! **Hazard.** What the source has where the destination has padding may be somebody else's, and is not to get there; what
//! follows its last field may not be there at all. **Guarantee.** Padding is written as zeros, or stays as it is.
//! **Structure.** A row of structures is one run, each of whose vectors is written without what is padding; the last
//! structure ends with its last field.

use crate::Stores;
use crate::nest::{Nest, are_all};
use crate::stream::{self, Lines};
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use layout::{CopyDim, FieldCopy, NdCopy, Stride};
use std::fmt;
use std::ops::RangeInclusive;

/// The sizes of structures: of longer ones fields are long, too, or padding matters little.
const PITCHES: RangeInclusive<usize> = 1..=MOST_BYTES;
const MOST_BYTES: usize = 256;

/// A mask is for so much of a row at least, since each time it ends costs a little, and for no more: sizes of structures
/// are up to fifteen times a power of two, or multiples of a line.
const LEAST_ROUND_BYTES: usize = 256;
const MOST_ROUND_BYTES: usize = 1 << 10;

/// Shorter rows, and fewer of them, aren't worth a mask, whatever the last structure of each has.
const LEAST_ROW_BYTES: usize = 8 * LINE_BYTES;
const LEAST_BYTES: usize = if cfg!(test) { 2 * LEAST_ROW_BYTES } else { 4 << 10 };

/// What a number in a table of [`Vector::swizzle`] has where there is to be a zero.
const NONE: u8 = 0x80;

/// Rows of structures of these fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alike<'a> {
    fields: &'a [FieldCopy],
    /// Where the first field starts, on either side.
    base: (isize, isize),
    pitch: usize,
    /// From the start of the first structure of a row to the end of the last one's last field.
    pub(crate) bytes: usize,
    pub(crate) stores: Stores,
}

/// What of the structures of a row is padding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask {
    /// [`NONE`] for each byte of padding, 0 for others: of a round, and of a structure more, since a round may start
    /// anywhere in one.
    bytes: [u8; MOST_ROUND_BYTES + MOST_BYTES],
    pitch: usize,
    round: usize,
}

impl<'a> Alike<'a> {
    /// The rows of `copy`, and the loops around them. `None` where a structure of the destination has other gaps than
    /// padding, or none, or they are few.
    pub(crate) fn of(copy: &'a NdCopy, stores: Stores) -> Option<(Nest<'a>, Alike<'a>)> {
        let fields = &copy.fields[..];
        if fields.iter().all(|field| field.padding == 0) {
            return None;
        }
        let (row, outer) = copy.dims.split_last()?;
        let (first, CopyDim { extent, src_index: None, dst_index: None }) = (fields.first()?, row)
        else {
            return None;
        };
        let (stride, count) = (first.strides[outer.len()], *extent as usize);
        let pitch = usize::try_from(stride.dst).ok().filter(|pitch| PITCHES.contains(pitch))?;
        let least = count.saturating_sub(1).saturating_mul(pitch);
        let all = outer.iter().fold(least, |all, dim| all.saturating_mul(dim.extent as usize));
        let is_long = least >= LEAST_ROW_BYTES && all >= LEAST_BYTES;
        if !is_long || stride.src != stride.dst || round(pitch) > MOST_ROUND_BYTES {
            return None;
        }
        let (start, end) = structure(fields, pitch)?;
        let base = (start.src as isize, start.dst as isize);
        let rows = Alike { fields, base, pitch, bytes: least.saturating_add(end), stores };
        Some((Nest::around(outer, first)?, rows))
    }

    /// Where the first row lies, if offset 0 does here.
    pub(crate) fn at(&self, (src, dst): (*const u8, *mut u8)) -> (*const u8, *mut u8) {
        (src.wrapping_offset(self.base.0), dst.wrapping_offset(self.base.1))
    }

    /// What is padding.
    pub(crate) fn mask(&self) -> Mask {
        let (pitch, round) = (self.pitch, round(self.pitch));
        let mut bytes = [NONE; MOST_ROUND_BYTES + MOST_BYTES];
        for field in self.fields {
            let at = field.dst_offset.wrapping_sub(self.base.1 as i64) as usize;
            bytes[at..at + field.bytes as usize].fill(0);
        }
        for at in (pitch..round + pitch).step_by(pitch) {
            bytes.copy_within(..pitch, at);
        }
        Mask { bytes, pitch, round }
    }
}

/// Where the first of `fields` starts on either side, and how far from there the last ends, if they lie alike on both
/// sides, and with their padding are all of `pitch` bytes.
fn structure(fields: &[FieldCopy], pitch: usize) -> Option<(Stride, usize)> {
    let first = fields.iter().min_by_key(|f| f.dst_offset)?;
    let at = |f: &FieldCopy| f.dst_offset.abs_diff(first.dst_offset);
    let is_alike = |f: &FieldCopy| {
        f.bytes > 0
            && f.strides == first.strides
            && f.src_offset.abs_diff(first.src_offset) == at(f)
            && f.src_offset >= first.src_offset
    };
    let end = |f: &FieldCopy| at(f).saturating_add(f.bytes);
    let parts = fields.iter().map(|f| (at(f), f.bytes.saturating_add(f.padding)));
    let is_whole = are_all(parts, pitch as u64) && fields.iter().all(is_alike);
    let start = Stride { src: first.src_offset, dst: first.dst_offset };
    is_whole.then(|| (start, fields.iter().map(end).max().unwrap_or(0) as usize))
}

/// After so many bytes, whole lines, structures of `pitch` bytes are as far into a vector as before.
fn round(pitch: usize) -> usize {
    let bytes = (pitch >> pitch.trailing_zeros().min(LINE_BYTES.ilog2())) * LINE_BYTES;
    bytes * LEAST_ROUND_BYTES.div_ceil(bytes)
}

/// A row, and what of each of its vectors is copied.
struct Masked<'a, V> {
    mask: &'a Mask,
    /// The numbers of the bytes of each lane.
    numbers: V,
    row: (*const u8, *mut u8),
    /// Where its whole lines start.
    start: usize,
}

impl<V: Vector> Lines for Masked<'_, V> {
    #[inline(always)]
    unsafe fn lines(&self, at: usize, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { self.copy::<true>(self.start + at, bytes) }
    }
}

impl<V: Vector> Masked<'_, V> {
    /// Copies `bytes` from `at` on, whole vectors, without what is padding.
    ///
    /// # Safety
    /// As [`row`]; what goes past the caches starts on a line.
    #[inline(always)]
    unsafe fn copy<const STREAM: bool>(&self, at: usize, bytes: usize) {
        let Masked { mask, numbers, row: (src, dst), .. } = *self;
        let (phase, end) = (at % mask.pitch, at + bytes);
        for round in (at..end).step_by(mask.round) {
            for at in (round..end.min(round + mask.round)).step_by(V::LANES * LANE_BYTES) {
                // SAFETY: the mask is longer than a round by a structure; the caller's contract.
                unsafe {
                    let padding = V::load(mask.bytes.as_ptr().add(phase + (at - round)));
                    let vector = V::load(src.add(at)).swizzle(numbers.or(padding));
                    if STREAM { vector.stream(dst.add(at)) } else { vector.store(dst.add(at)) }
                }
            }
        }
    }
}

/// Copies a row of `bytes`, some lines at least, of whose structures the mask is.
///
/// # Safety
/// It is valid for reads at `src` and for writes at `dst`, apart; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn row<V: Vector>(
    row: (*const u8, *mut u8),
    (mask, bytes, stores): (&Mask, usize, Stores),
) {
    let numbers: [u8; LINE_BYTES] = std::array::from_fn(|i| (i % LANE_BYTES) as u8);
    let start = match stores {
        Stores::Cached => 0,
        Stores::Streamed => row.1.addr().wrapping_neg() % LINE_BYTES,
    };
    // SAFETY: there are as many numbers as the longest vector has.
    let masked = Masked { mask, numbers: unsafe { V::load(numbers.as_ptr()) }, row, start };
    let whole = (bytes - start) / LINE_BYTES * LINE_BYTES;
    // SAFETY: the caller's contract; parts of the row, those that go past the caches from line to line. What is no whole
    // line is written with a part of the next, or the last.
    unsafe {
        match stores {
            Stores::Cached => masked.copy::<false>(0, whole),
            Stores::Streamed => stream::by_parts::<V>(&masked, whole),
        }
        if start > 0 {
            masked.copy::<false>(0, LINE_BYTES);
        }
        if start + whole < bytes {
            masked.copy::<false>(bytes - LINE_BYTES, LINE_BYTES);
        }
    }
}

impl fmt::Display for Alike<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows of {} B of structures of {} B, without padding", self.bytes, self.pitch)?;
        let past = self.stores == Stores::Streamed;
        f.write_str(if past { ", past the caches" } else { "" })
    }
}
