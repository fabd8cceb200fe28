//! Structures of many fields of one size, past the caches.

use super::*;

/// Rows of records of so many fields, and so many of each.
#[derive(Clone, Copy)]
struct Case {
    bytes: u64,
    fields: i64,
    rows: u64,
    count: i64,
}

impl Case {
    /// From records to arrays of each row, or `back`.
    fn copy(self, back: bool) -> NdCopy {
        let Case { bytes, fields, rows, count } = self;
        let (step, record) = (bytes.cast_signed(), fields * bytes.cast_signed());
        let loops = [
            (rows, record * count, record * count),
            (count.cast_unsigned(), record, step),
            (fields.cast_unsigned(), step, step * count),
        ];
        let mut copy = looped(&loops.map(|(n, records, arrays)| match back {
            true => (n, arrays, records),
            false => (n, records, arrays),
        }));
        copy.fields[0].bytes = bytes;
        copy
    }

    fn is_by_squares(self, by: &Instance, back: bool) -> bool {
        let told = explain_by(by, &self.copy(back), std::ptr::null(), Stores::Streamed);
        told.contains("by squares, by lines past the caches")
    }
}

fn case((bytes, fields): (u64, i64), (rows, count): (u64, i64)) -> Case {
    Case { bytes, fields, rows, count }
}

/// A record, rows of such, and whether squares move them.
type Expected = ((u64, i64), (u64, i64), bool);

/// Fails where `by` moves one of `cases` by squares, `back` or from records, and it is not expected, or the other way round.
fn check_ways(by: &Instance, back: bool, cases: &[Expected]) {
    for &(record, rows, is_so) in cases {
        let by_squares = case(record, rows).is_by_squares(by, back);
        assert_eq!(by_squares, is_so, "{record:?}, {rows:?}");
    }
}

/// AVX2's, whatever the processor is.
fn avx2() -> Option<Instance> {
    let avx2 = available().find(|instance| instance.name == "AVX2")?;
    Some(avx2.on(Some(ZEN_4)).with(Caches::MEASURED))
}

#[test]
fn arrays_of_which_lines_are_shared_are_made_by_squares() {
    let Some(by) = avx2() else { return };
    let cases = [
        ((4, 8), (1, 100_003), true),
        ((4, 8), (1, 100_032), false),
        ((4, 8), (8, 12_544), false),
        ((4, 8), (64, 12_544), true),
        ((4, 2), (200, 12_544), false),
        ((4, 16), (8, 10_000), false),
        ((4, 16), (64, 10_000), true),
        ((8, 64), (3, 1001), false),
        ((8, 64), (100, 1001), true),
        ((2, 9), (1, 100_032), true),
        ((2, 4), (100, 100_032), false),
        ((2, 64), (1, 32_832), false),
        ((1, 2), (8, 100_003), true),
        ((1, 2), (8, 1001), false),
        ((4, 65), (9, 100_003), false),
        ((16, 8), (9, 100_003), false),
    ];
    check_ways(&by, false, &cases);
    let xeon = by.on(None);
    let apart = |record, rows| case(record, rows).is_by_squares(&xeon, false);
    assert!(apart((4, 8), (1, 100_003)), "lines are shared everywhere");
    assert!(!apart((4, 16), (64, 10_000)), "these were measured on a Zen 3");
}

#[test]
fn structures_that_are_no_lines_are_put_together_by_squares() {
    let Some(by) = avx2() else { return };
    let cases = [
        ((1, 8), (1, 5000), false),
        ((1, 9), (1, 256), true),
        ((1, 9), (1, 255), false),
        ((1, 9), (3, 300), true),
        ((1, 9), (3, 299), false),
        ((1, 16), (1, 5000), false),
        ((1, 17), (1, 5000), true),
        ((1, 32), (1, 5000), true),
        ((1, 63), (1, 5000), true),
        ((1, 64), (1, 5000), false),
        ((2, 32), (1, 5000), false),
        ((4, 12), (1, 5000), true),
        ((4, 47), (1, 5000), true),
        ((4, 48), (1, 5000), false),
        ((8, 23), (1, 5000), true),
        ((8, 25), (1, 5000), false),
        ((16, 9), (1, 5000), false),
    ];
    check_ways(&by, true, &cases);
    // Squares of as many records, or of fields; a last block of less than a vector; rows that start anywhere.
    for record in [(1, 9), (1, 21), (1, 37), (2, 11), (2, 47), (4, 9), (4, 47), (8, 23)] {
        for rows in [(1, 256), (1, 1031), (3, 301)] {
            check(&case(record, rows).copy(true), (1, 4));
        }
    }
    // Windows on one row, of which a last block has two or three; one field many times; fields from the last to the first.
    let windows =
        [[(322, 4, 48), (12, 8, 4)], [(258, 4, 132), (33, 8, 4)], [(323, 4, 48), (12, 12, 4)]];
    for loops in windows.into_iter().chain([[(301, 4, 48), (12, 0, 4)]]) {
        check(&looped(&loops), (1, 4));
    }
    let mut down = looped(&[(3, 16_000, 15_600), (325, 4, 48), (12, -1300, 4)]);
    down.fields[0].src_offset = 11 * 1300;
    check(&down, (1, 4));
    // Rows that tables place.
    for (src_index, dst_index) in [(Some([2, 0, 5].into()), None), (None, Some([1, 4, 0].into()))] {
        let mut placed = case((2, 11), (3, 301)).copy(true);
        placed.dims[0] = CopyDim { extent: 3, src_index, dst_index };
        check(&placed, (1, 4));
    }
    // Nothing of it depends on who made the processor; into the caches it is no better.
    let record = case((4, 12), (1, 5000));
    assert!(record.is_by_squares(&by.on(None), true));
    let cached = explain_by(&by, &record.copy(true), std::ptr::null(), Stores::Cached);
    assert!(cached.starts_with("panels"), "{cached}");
    let wide = of_lines();
    assert!(!record.is_by_squares(&wide, true), "others were not measured");
}
