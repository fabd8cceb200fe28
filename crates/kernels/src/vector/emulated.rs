//! Lanes without an instruction set: four are what tests have of AVX-512 where there is none, two of AVX2.

use super::scalar::Scalar;
use super::{LANE_BYTES, LINE_BYTES, Vector};
use std::array::from_fn;

/// Of so many lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emulated<const LANES: usize>([Scalar; LANES]);

impl<const LANES: usize> Vector for Emulated<LANES> {
    type Half = Scalar;
    const LANES: usize = LANES;
    const UNIT_BYTES: usize = 1;
    const MASKS: bool = LANES * LANE_BYTES == LINE_BYTES;

    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Self::gather(|i| src.add(i * LANE_BYTES)) }
    }

    unsafe fn gather(at: impl Fn(usize) -> *const u8) -> Self {
        // SAFETY: the caller's contract, for each lane.
        Emulated(from_fn(|i| unsafe { Scalar::load(at(i)) }))
    }

    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { self.scatter(dst, LANE_BYTES as isize) }
    }

    unsafe fn store_some(self, dst: *mut u8, which: u64) {
        let mut bytes = [0; LINE_BYTES];
        // SAFETY: it is as long as a vector.
        unsafe { self.store(bytes.as_mut_ptr()) };
        for (i, byte) in bytes.into_iter().enumerate().filter(|(i, _)| which >> i & 1 == 1) {
            // SAFETY: the caller's contract.
            unsafe { dst.wrapping_add(i).write(byte) }
        }
    }

    unsafe fn stream(self, dst: *mut u8) {
        let bytes = LANES * LANE_BYTES;
        assert!(dst.addr().is_multiple_of(bytes), "a processor would end the program");
        // SAFETY: the caller's contract.
        unsafe { self.store(dst) }
    }

    unsafe fn scatter(self, dst: *mut u8, by: isize) {
        for (i, lane) in (0..).zip(self.0) {
            // SAFETY: the caller's contract, for each lane.
            unsafe { lane.store(dst.wrapping_offset(i * by)) }
        }
    }

    unsafe fn zip<const E: usize>(self, other: Self) -> (Self, Self) {
        // SAFETY: no instruction set is needed.
        let zipped: [_; LANES] = from_fn(|i| unsafe { self.0[i].zip::<E>(other.0[i]) });
        (Emulated(zipped.map(|both| both.0)), Emulated(zipped.map(|both| both.1)))
    }

    unsafe fn unzip_lanes(self, other: Self) -> (Self, Self) {
        let at = |i: usize| if i < LANES { self.0[i] } else { other.0[i - LANES] };
        (Emulated(from_fn(|i| at(2 * i))), Emulated(from_fn(|i| at(2 * i + 1))))
    }

    unsafe fn swizzle(self, table: Self) -> Self {
        // SAFETY: no instruction set is needed.
        Emulated(from_fn(|i| unsafe { self.0[i].swizzle(table.0[i]) }))
    }

    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: no instruction set is needed.
        Emulated(from_fn(|i| unsafe { self.0[i].or(other.0[i]) }))
    }

    unsafe fn pick(from: (Self, Self), table: Self) -> Self {
        let (mut both, mut numbers) = ([[0; LINE_BYTES]; 2], [0; LINE_BYTES]);
        // SAFETY: each is as long as a vector.
        unsafe {
            from.0.store(both[0].as_mut_ptr());
            from.1.store(both[1].as_mut_ptr());
            table.store(numbers.as_mut_ptr());
            let bytes = LANES * LANE_BYTES;
            let at = |n: u8| both[usize::from(n) / bytes % 2][usize::from(n) % bytes];
            Self::load(numbers.map(at).as_ptr())
        }
    }

    unsafe fn or_else(self, other: Self, table: Self) -> Self {
        let mut all = [[0; LINE_BYTES]; 3];
        // SAFETY: each is as long as a vector.
        unsafe {
            self.store(all[0].as_mut_ptr());
            other.store(all[1].as_mut_ptr());
            table.store(all[2].as_mut_ptr());
            let [this, other, numbers] = all;
            let made: [_; LINE_BYTES] =
                from_fn(|i| if numbers[i] < 128 { this[i] } else { other[i] });
            Self::load(made.as_ptr())
        }
    }
}
