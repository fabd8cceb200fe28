//! Structures by windows of a lane each.

use super::padded::{one_row, put_together};
use super::rows::in_rows;
use super::*;

/// Vectors of two lanes that exchange units of so many bytes: emulated, so that no choice depends on the machine.
pub(super) fn of_halves(unit_bytes: usize) -> Instance {
    let mut halves = halves();
    halves.abilities.unit_bytes = unit_bytes;
    halves
}

#[test]
fn fields_of_12_bytes_are_moved_by_windows_of_a_lane() {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    for (sizes, back, way) in [
        (&[12; 3][..], false, "448 at once, by windows of a lane each, "),
        (&[12; 3], true, "448 at once, by windows of a lane each, "),
        (&[12; 4], false, "336 at once, by windows of a lane each, "),
        (&[12; 8], true, "160 at once, by windows of a lane each, "),
        (&[12, 24], false, "448 at once, by windows of a lane each, "),
        // Few vectors, or other fields.
        (&[12, 24], true, "224 at once, by windows, "),
        (&[12; 2], true, "336 at once, by windows, "),
        (&[4, 12, 8], true, "128 at once, by lines"),
        (&[16, 24, 16], true, "64 at once, by lines"),
    ] {
        let copy = structures(sizes, 300, back);
        let told = |units, stores| explain_by(&of_halves(units), &copy, at_line, stores);
        assert!(told(4, Stores::Streamed).contains(way), "{sizes:?} {}", told(4, Stores::Streamed));
        // Neither in the caches nor by vectors that exchange bytes.
        for (units, stores) in [(4, Stores::Cached), (1, Stores::Streamed)] {
            assert!(!told(units, stores).contains("of a lane"), "{}", told(units, stores));
        }
        // From a line on, from inside of one, and from inside of a unit.
        for (count, to) in [(1025, 0), (300, 20), (511, 60), (700, 1)] {
            if cfg!(miri) && (count, to) != (300, 20) {
                continue;
            }
            check(&structures(sizes, count, back), (1, to));
            arrive(&of_halves(4), &structures(sizes, count, back), to);
        }
    }
    // Structures that start inside of a unit: a lane would have parts of three arrays.
    for sizes in [&[12; 3][..], &[12, 12, 24], &[12; 4]] {
        let copy = one_row(put_together(sizes, (1, 300), 2, false));
        let told = explain_by(&of_halves(4), &copy, at_line, Stores::Streamed);
        assert!(!told.contains("of a lane"), "{told}");
        check(&copy, (1, 4));
    }
    // Rows that start at several places of a line.
    for back in [false, true] {
        arrive(&of_halves(4), &in_rows(&[12; 3], (3, 259), None, back), 4);
    }
}

/// That `copy` arrives at a place of a line, past the caches.
pub(super) fn arrive(instance: &Instance, copy: &NdCopy, to: usize) {
    let (read, written) = touched(copy);
    let src = source(read.end as usize);
    let mut moved = vec![0xEE; written.end as usize];
    oracle::copy(copy, &src, 0, &mut moved, 0);
    let (mut dst, to) = aligned(moved.len(), to);
    let mut expected = dst.clone();
    expected[to..to + moved.len()].copy_from_slice(&moved);
    let ends = (src.as_ptr(), dst[to..].as_mut_ptr());
    // SAFETY: the buffers hold what the copy touches; the instance is emulated.
    unsafe { copy_by(instance, copy, ends, Stores::Streamed) };
    assert!(dst == expected, "{copy:?}");
}
