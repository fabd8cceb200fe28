//! Short rows that follow each other, to long ones that start anywhere.

use super::*;

/// `rows` of so many elements, each of which goes to a row of its own with such a gap behind it, in so many turns.
fn short((bytes, columns): (u64, u64), (turns, rows): (u64, u64), gap: u64) -> NdCopy {
    let [step, row, to] = [bytes, bytes * columns, bytes * rows + gap].map(u64::cast_signed);
    let (read, written) = (row * rows.cast_signed(), to * columns.cast_signed());
    let mut copy = looped(&[(turns, read, written), (rows, row, step), (columns, step, to)]);
    copy.fields[0].bytes = bytes;
    copy
}

/// Rows of the destination have at least so much.
const LEAST_BYTES: u64 = 1 << 10;

/// How many columns there may be; where all takes long, one of each body.
fn columns() -> BoxedStrategy<u64> {
    match cfg!(miri) {
        true => prop::sample::select(vec![2, 4, 8, 17]).boxed(),
        false => (2u64..=64).boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { CASES }))]

    #[test]
    fn short_rows_to_long_ones(
        (bytes, columns) in (prop::sample::select(vec![1u64, 2, 4, 8, 16]), columns()),
        (turns, more, gap) in (1u64..3, 0u64..130, 0u64..9),
        bases in (0usize..64, 0usize..64),
    ) {
        let rows = LEAST_BYTES / bytes + more;
        check(&short((bytes, columns.min(256 / bytes)), (turns, rows), gap), bases);
    }
}

#[test]
fn they_go_through_registers_where_lines_are_held() {
    let told = |by: &Instance, copy: &NdCopy| {
        explain_by(by, copy, std::ptr::without_provenance(4096), Stores::Streamed)
    };
    let goes = |copy: &NdCopy| told(&of_lines(), copy).contains("read from end to end");
    for (bytes, columns) in [
        (1, 2),
        (1, 63),
        (2, 4),
        (2, 31),
        (4, 2),
        (4, 8),
        (4, 15),
        (8, 2),
        (8, 7),
        (16, 2),
        (16, 3),
    ] {
        // Others than records are better for.
        let records = matches!(columns, 3 | 5 | 6 | 7);
        let odd = short((bytes, columns), (1, 2003), 0);
        assert_eq!(goes(&odd), !records, "{} for {columns} of {bytes} B", told(&of_lines(), &odd));
        assert!(!goes(&short((bytes, columns), (1, 2048), 0)), "rows are whole lines");
    }
    assert!(!goes(&short((2, 5), (1, 2003), 0)), "less than a lane, and no part of one");
    assert!(
        goes(&short((4, 64), (1, 2003), 0)) && goes(&short((1, 64), (1, 2003), 0)),
        "four lines, and one"
    );
    assert!(
        !goes(&short((8, 33), (1, 2003), 0)) && !goes(&short((1, 65), (1, 2003), 0)),
        "more of either"
    );
    assert!(!goes(&short((4, 8), (1, 255), 0)), "short rows on either side");
    let odd = short((4, 8), (3, 2003), 4);
    assert!(goes(&odd), "each turn of a loop");
    for other in
        [of_lines().on(Some(ZEN_4)), of_lines().on(Some(ZEN_5)), halves(), lines::of_units()]
    {
        assert!(!told(&other, &odd).contains("read from end to end"), "{}", told(&other, &odd));
    }
}
