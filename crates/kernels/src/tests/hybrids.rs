//! Hybrids of fields of one size, which are records on the other side.

use super::rows::in_rows;
use super::windows::{arrive, of_halves};
use super::*;

/// So many hybrids of so many records, one right behind the other; as many records of as many fields of so many bytes.
fn hybrids(count: u64, bytes: u64, (inner, fields): (u64, u64)) -> NdCopy {
    let far = |elements: u64| (elements * bytes).cast_signed();
    let mut copy = looped(&[
        (count, far(inner * fields), far(inner * fields)),
        (fields, far(inner), far(1)),
        (inner, far(1), far(fields)),
    ]);
    copy.fields[0].bytes = bytes;
    copy
}

#[test]
fn hybrids_are_moved_by_windows_or_squares_where_panels_are_put_together() {
    let halves = of_halves(4).on(None).with(Caches::MEASURED);
    let told = |by: &Instance, count, bytes, shape, stores| {
        explain_by(by, &hybrids(count, bytes, shape), std::ptr::null(), stores)
    };
    for (bytes, shape, way) in [
        // As many windows of a lane as there may be, and more: or too many vectors.
        (1, (2, 3), "by windows of a lane each, "),
        (1, (8, 8), "by windows of a lane each, "),
        (2, (4, 8), "by windows of a lane each, "),
        (1, (5, 13), "panels"),
        (1, (7, 9), "panels"),
        // Units of an exchange.
        (4, (2, 3), "from hybrids 336 at once, by windows, "),
        (8, (2, 6), "by windows, "),
        // Many windows; no square inside lanes.
        (4, (8, 12), "from hybrids 10 at once, by squares, by lines past the caches"),
        (8, (16, 5), "by squares, "),
        (2, (8, 24), "by squares, "),
        (2, (2, 24), "by squares, "),
        (1, (4, 24), "panels"),
        // Whole lines where they belong; but of squares that overlap others.
        (4, (4, 16), "in place"),
        (8, (4, 16), "in place"),
        (8, (5, 8), "by squares, "),
        (16, (4, 3), "panels"),
    ] {
        let told = told(&halves, 1000, bytes, shape, Stores::Streamed);
        assert!(told.contains(way), "{bytes}, {shape:?}: {told}");
    }
    for (by, count, stores) in [
        // Into the caches; by vectors that exchange bytes, or are lines; too few.
        (&halves, 1000, Stores::Cached),
        (&of_halves(1), 1000, Stores::Streamed),
        (&of_lines(), 1000, Stores::Streamed),
        (&halves, 31, Stores::Streamed),
    ] {
        let told = told(by, count, 4, (8, 3), stores);
        assert!(!told.contains("hybrids"), "{told}");
    }
}

#[test]
fn hybrids_of_any_shape() {
    for bytes in [1, 2, 4, 8] {
        for inner in [2, 3, 4, 8, 16] {
            for fields in [3, 5, 6, 12, 24] {
                let count = 256_u64.div_ceil(inner) + 37;
                // From a line on, from inside of one, and from inside of a unit.
                let to = (inner + fields) as usize % 3 * 31 / 2;
                if cfg!(miri) && (bytes, inner, fields) != (2, 4, 3) {
                    continue;
                }
                let copy = hybrids(count, bytes, (inner, fields));
                check(&copy, (1, to));
                arrive(&of_halves(4), &copy, to);
            }
        }
    }
}

#[test]
fn squares_of_hybrids_of_which_the_last_block_has_one() {
    for (count, bytes, shape) in
        [(57, 1, (17, 17)), (1 + 3 * 42, 1, (48, 2)), (1 + 4 * 42, 1, (2, 48))]
    {
        let copy = hybrids(count, bytes, shape);
        let told = explain_by(&of_halves(4), &copy, std::ptr::null(), Stores::Streamed);
        assert!(told.contains("by squares, by lines past"), "{shape:?}: {told}");
        check(&copy, (1, 4));
        arrive(&of_halves(4), &copy, 4);
    }
}

#[test]
fn hybrids_of_fields_that_differ() {
    for (sizes, way) in [
        (&[1, 2, 4][..], "at once, by windows of a lane each, "),
        (&[1, 8], "by windows of a lane each, "),
        (&[4, 8], "by windows, "),
        (&[1, 2, 4, 8, 8], "at once, by lines"),
    ] {
        for back in [false, true] {
            let copy = in_rows(sizes, (3, 256), Some(4), back);
            let told = explain_by(&of_halves(4), &copy, std::ptr::null(), Stores::Streamed);
            assert!(told.contains(way), "{sizes:?}: {told}");
            check(&copy, (1, 4));
            arrive(&of_halves(4), &copy, 4);
        }
    }
}

#[test]
fn hybrids_in_rows() {
    for (bytes, shape) in [(1, (4, 6)), (2, (8, 8)), (4, (4, 3)), (4, (8, 12))] {
        let (inner, fields) = shape;
        let one = hybrids(300, bytes, shape);
        let row = (300 * inner * fields * bytes).cast_signed();
        // Rows that start elsewhere in a line each, from the last to the first; and that a table places.
        let mut rows = one.clone();
        rows.dims.insert(0, CopyDim { extent: 3, src_index: None, dst_index: None });
        rows.fields[0].strides.insert(0, Stride { src: -row - 5, dst: row + 12 });
        rows.fields[0].src_offset = 2 * (row + 5);
        let mut placed = rows.clone();
        placed.dims[0].dst_index = Some([1, 4, 0].into());
        for copy in [rows, placed] {
            check(&copy, (1, 4));
            arrive(&of_halves(4), &copy, 4);
        }
    }
}
