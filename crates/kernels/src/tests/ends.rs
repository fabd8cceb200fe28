//! Destinations that start inside of a line.

use super::*;

/// What a matrix, or structures of so many fields, have of whole lines at the least, to be cut.
const LEAST_BYTES: u64 = 512;

/// As many as elsewhere are too many for Miri, of rows so long.
const CASES: u32 = if cfg!(miri) { 2 } else { super::CASES };

/// A matrix that is turned, with such gaps behind the rows of the destination.
fn matrix(bytes: u64, extents: [u64; 2], gap: u64) -> NdCopy {
    let (src_order, dst_order) = (vec![0, 1], vec![1, 0]);
    Shape { bytes, extents: extents.to_vec(), src_order, dst_order, gaps: (0, gap) }.copy()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn matrices(
        bytes in prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        (columns, more, gap) in (1u64..40, 0u64..80, prop::sample::select(vec![0u64, 0, 1, 16, 64])),
        (src, dst) in (0usize..64, 0usize..64),
    ) {
        let columns = columns.min(MOST_BYTES / LEAST_BYTES);
        // Where whole lines of the matrix begin every row is as far into one as the first.
        let rows = (LEAST_BYTES / bytes + more).next_multiple_of([1, 64 / bytes][more as usize % 2]);
        check(&matrix(bytes, [columns, rows], gap), (src, dst));
    }

    #[test]
    fn records_and_arrays(
        (bytes, fields) in (prop::sample::select(vec![1u64, 2, 4, 8]), 2u64..9),
        (more, back) in (0u64..300, any::<bool>()),
        (src, dst) in (0usize..64, 0usize..64),
    ) {
        let count = LEAST_BYTES / bytes + more;
        let fields = fields.min(MOST_BYTES / LEAST_BYTES);
        check(&structures(&vec![bytes; fields as usize], count.next_multiple_of([1, 64][more as usize % 2]), back), (src, dst));
    }

    #[test]
    fn turns_that_start_anywhere(
        (bytes, fields) in (prop::sample::select(vec![1u64, 2, 4, 8]), prop_oneof![Just(2u64), 1u64..70]),
        (turns, more, gap) in (2u64..4, 0u64..9, 0u64..3),
        (down, turned) in (any::<bool>(), any::<bool>()),
        (src, dst) in (0usize..64, 0usize..64),
    ) {
        let count = (LEAST_TURN_BYTES / (bytes * fields) + more).max(1);
        check(&batch((bytes, fields), (turns, count), gap, [down, turned]), (src, dst));
    }

    #[test]
    fn blocks_that_tables_and_descending_loops_place(
        (blocks, columns, more) in (1u64..4, 1u64..20, 0u64..40),
        (down, seed) in (any::<bool>(), 0u64..100),
        (src, dst) in (0usize..64, 0usize..64),
    ) {
        let (rows, columns) = (LEAST_BYTES / 4 + more, columns.min(MOST_BYTES / LEAST_BYTES));
        let pitch = (4 * rows).next_multiple_of(64).cast_signed();
        let block = columns.cast_signed() * pitch;
        let (columns, rows) = ((columns, 4, pitch), (rows, 4 * columns.cast_signed(), 4));
        let mut copy = looped(&[(blocks, columns.0.cast_signed() * rows.0.cast_signed() * 4, block), columns, rows]);
        if seed % 2 == 0 {
            copy.dims[0].dst_index = Some(shuffled(blocks, seed));
        } else if down {
            copy.fields[0].strides[0].dst = -block;
            copy.fields[0].dst_offset = (blocks.cast_signed() - 1) * block;
        }
        check(&copy, (src, dst));
    }
}

/// What turns of a loop have at least that are moved one by one.
const LEAST_TURN_BYTES: u64 = 4 << 10;

/// Turns of so many arrays that are put together, or such that are taken apart, with so many elements between turns;
/// the last turn first, if they go down.
fn batch(
    (bytes, fields): (u64, u64),
    (turns, count): (u64, u64),
    gap: u64,
    [down, apart]: [bool; 2],
) -> NdCopy {
    let [step, array, turn] =
        [bytes, bytes * count, bytes * (count * fields + gap)].map(u64::cast_signed);
    let record = (bytes * fields).cast_signed();
    let mut copy = match apart {
        true => looped(&[(turns, turn, turn), (count, record, step), (fields, step, array)]),
        false => looped(&[(turns, turn, turn), (fields, array, step), (count, step, record)]),
    };
    copy.fields[0].bytes = bytes;
    if down {
        copy.fields[0].strides[0].dst = -turn;
        copy.fields[0].dst_offset = (turns.cast_signed() - 1) * turn;
    }
    copy
}

#[test]
fn turns_that_start_anywhere_are_cut_each() {
    let by = halves();
    let explained = |copy: &NdCopy, by: &Instance, stores| {
        explain_by(by, copy, std::ptr::without_provenance(4096), stores)
    };
    let streamed = |copy: &NdCopy| explained(copy, &by, Stores::Streamed);
    let each =
        |copy: &NdCopy| streamed(copy).starts_with("turn by turn, from line to line, panels of ");
    let pairs = |count| batch((4, 2), (9, count), 0, [false; 2]);
    assert!(each(&pairs(1001)), "{}", streamed(&pairs(1001)));
    assert!(streamed(&pairs(1001)).contains("in place, by lines past the caches"));
    assert!(!each(&pairs(1024)), "all start with a line");
    assert!(!each(&pairs(501)), "4008 bytes each");
    assert!(!each(&batch((4, 33), (9, 1001), 0, [false; 2])), "nor would lines be whole");
    assert!(!each(&batch((8, 16), (9, 1001), 1, [false; 2])), "structures of a line and more");
    assert!(!each(&batch((4, 32), (9, 1001), 1, [false; 2])), "nor are others cut");
    let at = |copy: &NdCopy, by_bytes: i64| {
        let mut copy = copy.clone();
        copy.fields[0].dst_offset += by_bytes;
        copy
    };
    assert!(
        each(&at(&pairs(1001), 8)) && !each(&at(&pairs(1001), 4)),
        "no structure starts a line"
    );
    // A turn by itself goes as is told of all.
    let mut turn = at(&pairs(1001), 8008);
    turn.dims.remove(0);
    turn.fields[0].strides.remove(0);
    let told = |copy: &NdCopy| streamed(copy).replace("turn by turn, ", "");
    let until = |told: String| told.split(" (").next().unwrap().to_owned();
    assert_eq!(until(told(&turn)), until(told(&pairs(1001))));
    assert!(!explained(&pairs(1001), &by, Stores::Cached).contains("turn by turn"));
    assert!(explained(&pairs(1001), &of_lines(), Stores::Streamed).contains("turn by turn"));
}

/// How the whole lines are moved, if a destination so far behind the start of a line is cut.
fn cut(by: &Instance, copy: &NdCopy, at: usize, stores: Stores) -> Option<String> {
    let told = explain_by(by, copy, std::ptr::without_provenance(4096 + at), stores);
    told.strip_prefix("from line to line, ").map(str::to_owned)
}

#[test]
fn whole_lines_are_moved_from_where_they_begin() {
    let by = of_lines();
    let turned = |bytes, rows| matrix(bytes, [512, rows], 0);
    let is_cut = |copy: &NdCopy, at| cut(&by, copy, at, Stores::Streamed).is_some();
    let told = cut(&by, &turned(4, 512), 16, Stores::Streamed).unwrap();
    assert!(
        told.starts_with("panels of ") && told.contains("in place, by lines past the caches"),
        "{told}"
    );
    assert!(!is_cut(&turned(4, 512), 0), "it starts on a line");
    assert!(!is_cut(&turned(4, 512), 18), "no element does");
    assert!(!is_cut(&turned(4, 511), 16), "rows start elsewhere in theirs");
    assert!(is_cut(&turned(4, 144), 16) && !is_cut(&turned(4, 128), 16), "8 lines at the least");
    assert!(is_cut(&structures(&[4; 4], 1024, true), 16), "lines are of several structures");
    assert!(is_cut(&structures(&[4; 4], 1024, false), 36), "or of a field");
    assert!(!is_cut(&structures(&[4; 4], 1024, true), 36), "structures begin in no line");
    assert!(!is_cut(&structures(&[4, 4, 4], 1024, true), 16), "records carry what lines share");
    let fields_and_records = [(4, 4096, 4), (1024, 4, 16)];
    let records_and_fields = [(1024, 4, 16), (4, 4096, 4)];
    for loops in [fields_and_records, records_and_fields] {
        assert!(is_cut(&looped(&loops), 16), "in any order");
    }
    let mut offset = turned(4, 512);
    offset.fields[0].dst_offset = 16;
    assert!(
        is_cut(&offset, 0) && !is_cut(&offset, 48),
        "it is where the first element goes that counts"
    );
}

#[test]
fn in_the_caches_rows_of_whole_lines_are() {
    let named = |name| available().find(|instance| instance.name == name).unwrap();
    let [lines, halves, lanes] = ["emulated", "emulated halves", "portable"].map(named);
    let is_cut = |by: &Instance, copy: &NdCopy, at| cut(by, copy, at, Stores::Cached).is_some();
    let turned = |columns, rows| matrix(4, [columns, rows], 0);
    let square = turned(128, 128);
    let told = cut(&lines, &square, 16, Stores::Cached).unwrap();
    assert!(told.starts_with("panels of ") && !told.contains("past the caches"), "{told}");
    assert!(!is_cut(&lines, &square, 0) && !is_cut(&halves, &square, 0), "it starts on a line");
    assert!(
        is_cut(&lines, &square, 32) && !is_cut(&halves, &square, 32),
        "no vector has parts of two"
    );
    assert!(is_cut(&halves, &square, 16) && !is_cut(&lanes, &square, 16), "few have");
    assert!(!is_cut(&lines, &turned(128, 127), 16), "rows start elsewhere in theirs");
    assert!(is_cut(&lines, &turned(8, 144), 16) && !is_cut(&lines, &turned(7, 144), 16), "enough");
    assert!(!is_cut(&lines, &turned(8, 128), 16), "8 lines at the least, of so little");
    assert!(is_cut(&lines, &turned(16, 128), 16), "and fewer of more");
    assert!(is_cut(&lines, &turned(128, 80), 16) && !is_cut(&lines, &turned(128, 64), 16), "but 4");
    assert!(is_cut(&lines, &structures(&[4; 4], 1024, false), 16), "columns are whole lines");
    assert!(!is_cut(&lines, &structures(&[4; 4], 1024, true), 16), "no row is");
    for copy in
        [square, turned(16, 128), structures(&[4; 4], 1024, false), matrix(1, [40, 200], 56)]
    {
        check(&copy, (0, 16));
        check(&copy, (3, 61));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Runs and blocks whose destination is dense, or in parts that are, whatever the order and the size of a piece.
    #[test]
    fn pieces_that_follow_each_other(
        (bytes, inner, middle) in (prop::sample::select(vec![4u64, 8, 12, 32, 64, 100, 256]), 1u64..40, 1u64..40),
        (outer, gap, table) in (1u64..5, prop::sample::select(vec![0u64, 0, 8, 64]), any::<bool>()),
        (seed, back) in (0u64..100, any::<bool>()),
        (src, dst) in (0usize..64, 0usize..64),
    ) {
        // Of pieces of several turns, and of what is left.
        let (inner, outer) = if cfg!(miri) { (inner.min(2), outer.min(2)) } else { (inner, outer * 7) };
        let row = (bytes * inner).cast_signed();
        let block = (bytes * inner * middle + gap).cast_signed();
        let strides = [(block, block), (bytes.cast_signed(), row), (bytes.cast_signed() * middle.cast_signed(), bytes.cast_signed())];
        let strides = strides.map(|(src, dst)| Stride { src, dst }).to_vec();
        let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
        let mut copy = NdCopy {
            dims: [outer, middle, inner].map(dim).to_vec(),
            fields: vec![FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides }],
        };
        match (table, back) {
            (true, true) => copy.dims[0].src_index = Some(shuffled(outer, seed)),
            (true, false) => copy.dims[0].dst_index = Some(shuffled(outer, seed)),
            (false, true) => {
                copy.fields[0].strides[0].dst = -block;
                copy.fields[0].dst_offset = (outer.cast_signed() - 1) * block;
            }
            _ => {}
        }
        check(&copy, (src, dst));
    }
}

#[test]
#[cfg_attr(miri, ignore = "several pieces of 16 KiB")]
fn pieces_of_dense_destinations_are_put_together() {
    let by = of_lines();
    let is_put = |copy: &NdCopy, at: usize, stores| {
        explain_by(&by, copy, std::ptr::without_provenance(4096 + at), stores)
            .starts_with("pieces put together")
    };
    let blocks = |bytes, (count, near): (u64, i64), rows: i64| {
        let strides = [
            (count.cast_signed() * near, rows * count.cast_signed() * bytes),
            (bytes, count.cast_signed() * bytes),
            (near, bytes),
        ];
        let strides = strides.map(|(src, dst)| Stride { src, dst }).to_vec();
        let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
        let field = FieldCopy {
            bytes: bytes.cast_unsigned(),
            src_offset: 0,
            dst_offset: 0,
            padding: 0,
            strides,
        };
        NdCopy { dims: [9, rows.cast_unsigned(), count].map(dim).to_vec(), fields: vec![field] }
    };
    let pages = blocks(256, (16, 2048), 8);
    assert!(is_put(&pages, 16, Stores::Streamed));
    assert!(!is_put(&pages, 0, Stores::Streamed) && !is_put(&pages, 16, Stores::Cached));
    assert!(is_put(&blocks(256, (64, 16 << 10), 64), 16, Stores::Streamed), "near enough");
    assert!(!is_put(&blocks(256, (64, 17 << 10), 64), 16, Stores::Streamed), "too far");
    assert!(!is_put(&blocks(64, (256, 8 << 10), 64), 16, Stores::Streamed), "too short");
    assert!(is_put(&blocks(512, (64, 17 << 10), 32), 16, Stores::Streamed), "long enough");
    check(&pages, (0, 16));
    check(&pages, (3, 61));
    // Planes of few channels: elements that are no runs.
    let planes = |pixels: i64| looped(&[(64, 200_704, 4), (pixels.cast_unsigned(), 4, 256)]);
    assert!(is_put(&planes(640), 16, Stores::Streamed));
    // Of rows that don't follow each other.
    let rows = |count: i64| {
        looped(&[(20, 16_384, 8 * count + 8), (count.cast_unsigned(), 4, 8), (2, 8192, 4)])
    };
    assert!(is_put(&rows(256), 16, Stores::Streamed) && !is_put(&rows(128), 16, Stores::Streamed));
    // Records of which none starts with a line; with less than a line left behind the last whole piece.
    for count in [5000, 512, 513, 1024, 1025, 1026] {
        let records = structures(&[8; 4], count, true);
        assert!(is_put(&records, 16, Stores::Streamed));
        for dst in [1, 16, 33, 63] {
            check(&records, (0, dst));
        }
    }
}

/// What is put together may not reach to before the memory, be it by a pointer alone.
#[test]
fn a_destination_begins_with_its_memory() {
    let copy = structures(&[8; 4], if cfg!(miri) { 70 } else { 1030 }, true);
    let bytes = copy.payload_bytes() as usize;
    let src = source(bytes);
    let mut expected = vec![0; bytes];
    oracle::copy(&copy, &src, 0, &mut expected, 0);
    for instance in each_ability() {
        let mut dst = vec![0xEE_u8; bytes];
        // SAFETY: both are as long as the copy reaches.
        unsafe { copy_by(&instance, &copy, (src.as_ptr(), dst.as_mut_ptr()), Stores::Streamed) };
        assert!(dst == expected);
    }
}
