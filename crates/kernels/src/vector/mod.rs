//! Vectors of a few lanes of 16 bytes: all that the bodies know of an instruction set.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(test)]
pub(crate) mod emulated;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) mod neon;
pub(crate) mod scalar;

use crate::caches::Caches;

/// A cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Lines that are written one behind the other cost less than single ones.
pub(crate) const PAIR_BYTES: usize = 2 * LINE_BYTES;

/// Rows at multiples of this compete for few places, in caches and in memory: nothing is asked for
/// ahead of them but for squares with sides of a line.
pub(crate) const PAGE_BYTES: isize = 4096;

/// A lane: what elements are exchanged in.
pub(crate) const LANE_BYTES: usize = 16;

/// What a choice depends on, of an instruction set and the processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// [`Vector::LANES`].
    pub(crate) lanes: usize,
    /// [`Vector::UNIT_BYTES`].
    pub(crate) unit_bytes: usize,
    /// [`Vector::MASKS`].
    pub(crate) masks: bool,
    /// Whether AMD made the processor. There lines that go past the caches may be scattered, if the
    /// source is read in its order, and runs of half a line are worth a tile: on a Zen 5 that is
    /// nearly as fast as a copy, on a Xeon half as fast as other ways.
    /// There three fields are better moved by tables than by windows, too: on a Zen 4 by a twentieth.
    pub(crate) scatters: bool,
    /// Whether such a processor moves a vector that is a line as a whole: a Zen 5 of servers does, a Zen 4 its halves.
    /// Other processors of a Zen 5's family are taken for one, too.
    pub(crate) is_wide: bool,
    /// What choices take the caches for.
    pub(crate) caches: Caches,
}

impl Abilities {
    /// Whether vectors are lines, which the processor doesn't scatter but holds until memory takes them.
    pub(crate) fn holds_lines(&self) -> bool {
        self.lanes * LANE_BYTES == LINE_BYTES && !self.scatters
    }

    /// Whether vectors are lines, which the processor moves as a whole.
    pub(crate) fn moves_lines(&self) -> bool {
        self.lanes * LANE_BYTES == LINE_BYTES && (!self.scatters || self.is_wide)
    }

    /// Whether vectors are two lanes, which exchange only units of more than a byte: AVX2's.
    pub(crate) fn exchanges_units(&self) -> bool {
        self.lanes == 2 && self.unit_bytes > 1
    }

    /// Whether such may be scattered past the caches, too: on a Zen 5.
    pub(crate) fn scatters_lines(&self) -> bool {
        self.scatters && self.moves_lines()
    }
}

/// One, two or four lanes. No method needs an alignment but [`Vector::stream`]. What has a body
/// here is for one lane and no way past the caches; others bring their own.
///
/// # Safety
/// Each method needs the instruction set of its instance; what it reads or writes is valid for
/// that.
pub(crate) trait Vector: Copy {
    /// How many lanes there are.
    const LANES: usize;

    /// What moves two lanes, or one, of the same instruction set: for what four don't divide.
    type Half: Vector;

    /// What [`Vector::pick`] picks are multiples of so many bytes; more than there are where it takes
    /// no less time than to move such elements one by one.
    const UNIT_BYTES: usize = usize::MAX;

    /// Whether there is [`Vector::store_some`].
    const MASKS: bool = false;

    /// Bytes in a row.
    unsafe fn load(src: *const u8) -> Self;

    /// Lane `i` from where `at` says.
    #[inline(always)]
    unsafe fn gather(at: impl Fn(usize) -> *const u8) -> Self {
        // SAFETY: the caller's contract; there is one lane.
        unsafe { Self::load(at(0)) }
    }

    /// Writes bytes in a row.
    unsafe fn store(self, dst: *mut u8);

    /// Writes those bytes whose bits in `which` are set; only they need be valid for that.
    #[inline(always)]
    unsafe fn store_some(self, _dst: *mut u8, _which: u64) {
        unreachable!("no masks")
    }

    /// As [`Vector::store`], past the caches; `dst` is a multiple of the vector's size.
    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { self.store(dst) }
    }

    /// Lane `i` to `i * by` bytes behind `dst`, in ascending order.
    #[inline(always)]
    unsafe fn scatter(self, dst: *mut u8, _by: isize) {
        // SAFETY: the caller's contract; there is one lane.
        unsafe { self.store(dst) }
    }

    /// The elements of `E` bytes of the low halves of each lane of both, in turn; and those of the
    /// high halves.
    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self);

    /// Every second lane of this, then of the other: from the first on, and from the second on. One
    /// lane has no second.
    #[inline(always)]
    unsafe fn unzip_lanes(self, _other: Self) -> (Self, Self) {
        unreachable!("one lane")
    }

    /// In each lane, the bytes whose numbers are in `table`; 0 where a number is 128 or more.
    unsafe fn swizzle(self, table: Self) -> Self;

    /// The bits of both.
    unsafe fn or(self, other: Self) -> Self;

    /// Of two, one behind the other, the bytes whose numbers are in `table`, whole units of
    /// [`Vector::UNIT_BYTES`]; any where a number is 128 or more.
    #[inline(always)]
    unsafe fn pick(_from: (Self, Self), _table: Self) -> Self {
        unreachable!("no units")
    }

    /// This, but `other` where the number in `table` is 128 or more.
    #[inline(always)]
    unsafe fn or_else(self, _other: Self, _table: Self) -> Self {
        unreachable!("no units")
    }
}
