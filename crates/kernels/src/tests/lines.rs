//! What is chosen where vectors are lines.

use super::*;

/// What is told of a copy to a line, where a processor holds vectors that are lines, and on a Zen 4.
fn told(copy: &NdCopy, stores: Stores) -> [String; 2] {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    [None, Some(ZEN_4)].map(|amd| explain_by(&of_lines().on(amd), copy, at_line, stores))
}

/// Rows so long and so far apart to so many columns, of elements of `bytes`.
pub(super) fn far(bytes: u64, (rows, row, pitch): (u64, u64, i64)) -> NdCopy {
    let bytes = bytes.cast_signed();
    let mut copy = looped(&[(rows, pitch, bytes), (row, bytes, rows.cast_signed() * bytes)]);
    copy.fields[0].bytes = bytes.cast_unsigned();
    copy
}

#[test]
fn rows_by_vectors_that_are_lines() {
    let block = 196 * 2048;
    // Few of the source's rows at once, or so many of a run as make lines of each row; and lines of two, made in registers.
    for (copy, panels, on_amd) in [
        (looped(&[(256, 12_544, 4), (3136, 4, 1024)]), "512 by 64", "64 by 256"),
        (looped(&[(512, 196, 4), (49, 4, 2048)]), "49 by 128", "49 by 64"),
        (looped(&[(512, 1024, 4), (256, 4, 2048)]), "64 by 64", "64 by 64"),
        (
            looped(&[(2, block, block), (196, 2048, 4), (512, 4, 784)]),
            "16 by 196 elements of 4 B, in place",
            "16 by 196 elements of 4 B, put together",
        ),
    ] {
        for (told, panels) in told(&copy, Stores::Streamed).iter().zip([panels, on_amd]) {
            assert!(told.starts_with(&format!("panels of {panels}")), "{told} for {panels}");
        }
    }
    check(&looped(&[(320, 196, 4), (49, 4, 1280)]), (0, 0));
    // A run is no longer than a cache keeps of it and the next.
    let mut long = looped(&[(512, 1800, 2), (900, 2, 1024)]);
    long.fields[0].bytes = 2;
    let [told, _] = told(&long, Stores::Streamed);
    assert!(told.starts_with("panels of 900 by 128 "), "{told}");
    for (bytes, side) in [(4, 16), (8, 8)] {
        for rows in side + 1..2 * side {
            let block = rows * 2 * side * bytes;
            let loops = [
                (2, block, block),
                (rows, 2 * side * bytes, bytes),
                (2 * side, bytes, rows * bytes),
            ];
            let mut copy = looped(&loops.map(|(n, src, dst)| (n as u64, src, dst)));
            copy.fields[0].bytes = bytes as u64;
            check(&copy, (0, 0));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "matrices of up to 1.1 MB, a dozen of them")]
fn rows_that_no_cache_keeps_are_read_by_boxes_where_lines_are_held() {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    let (page, apart) = (4096 + 64, (256 << 10) + 64);
    // Caches that keep nothing, and those that keep all of it.
    for (bytes, shape, far_off, near) in [
        (4, (96, 528, page), "128 by 32", "64 by 96"),
        // Of a last box there is more, or less, or of the last rows.
        (4, (96, 388, page), "128 by 32", "64 by 96"),
        (4, (112, 452, page), "128 by 32", "64 by 112"),
        (2, (192, 1024, page), "256 by 32", "1024 by 64"),
        (8, (40, 264, page), "64 by 16", "32 by 40"),
        // Short rows of the destination as a whole, but of long elements.
        (4, (64, 528, page), "128 by 64", "64 by 64"),
        (8, (32, 264, page), "32 by 32", "32 by 32"),
        // At multiples of a page.
        (4, (96, 528, 2 * 4096), "128 by 32", "64 by 96"),
        // Those that the processor follows by itself.
        (8, (320, 320, 5 * 1024), "32 by 32", "32 by 32"),
        (16, (264, 264, 264 * 16), "16 by 32", "16 by 32"),
        // Rows of less than two boxes, or one.
        (4, (96, 252, page), "252 by 32", "64 by 96"),
        (4, (96, 48, page), "48 by 32", "48 by 96"),
        (4, (96, 16, page), "16 by 32", "16 by 96"),
        // Not what is nearer.
        (4, (96, 528, page - 128), "64 by 96", "64 by 96"),
        // Nor rows too far apart for short ones of the destination, or too short for that.
        (4, (96, 528, apart), "64 by 96", "64 by 96"),
        (4, (128, 528, apart), "528 by 64", "528 by 64"),
        (4, (160, 528, apart), "128 by 32", "528 by 64"),
        (4, (160, 48, apart), "48 by 32", "48 by 64"),
        (4, (160, 48, 4 * apart), "48 by 64", "48 by 64"),
        (4, (160, 128, 4 * apart), "128 by 32", "128 by 64"),
    ] {
        let copy = far(bytes, shape);
        for (caches, panels) in [(SMALL, far_off), (Caches::MEASURED, near)] {
            let told = explain_by(&of_lines().with(caches), &copy, at_line, Stores::Streamed);
            assert!(told.starts_with(&format!("panels of {panels} ")), "{told} for {panels}");
        }
        if shape.2 < apart {
            check(&copy, (0, 0));
        }
    }
    // The next box is of the next block.
    check(&looped(&[(2, 4 * 528, 4 * 528 * 64), (64, page, 4), (528, 4, 256)]), (0, 0));
}

#[test]
fn longer_elements_are_read_by_rows_that_the_processor_follows() {
    // Of 8 bytes where rows are at few places of a first-level cache; neither short rows, nor where the destination's are.
    for (bytes, (rows, row, pitch), panels) in [
        (16, (264, 264, 264), "16 by 32"),
        (8, (320, 320, 320), "32 by 32"),
        (8, (328, 328, 328), "32 by 64"),
        (4, (528, 640, 640), "64 by 64"),
        (16, (264, 60, 66), "16 by 64"),
        (16, (264, 80, 96), "16 by 32"),
        (16, (96, 264, 264), "16 by 96"),
    ] {
        let mut copy =
            looped(&[(rows, pitch * bytes, bytes), (row, bytes, rows.cast_signed() * bytes)]);
        copy.fields[0].bytes = bytes.cast_unsigned();
        let on_amd = panels.replace("by 32", "by 64");
        for (told, panels) in told(&copy, Stores::Streamed).iter().zip([panels, &on_amd]) {
            assert!(told.starts_with(&format!("panels of {panels} ")), "{told} for {panels}");
        }
        check(&copy, (0, 0));
    }
    // Two turns of a third loop would be twice as many rows.
    let mut copy = looped(&[(64, 8 * 2560, 8), (8, 2560, 512), (320, 8, 8 * 512)]);
    copy.fields[0].bytes = 8;
    let [told, _] = told(&copy, Stores::Streamed);
    assert!(told.starts_with("panels of 32 by 64 elements of 8 B, 2 at once"), "{told}");
}

#[test]
fn long_runs_are_read_on_where_lines_are_held() {
    for (bytes, (rows, row), is_asked) in [
        (512, (9, 40), true),
        (4096, (5, 7), true),
        (20_480, (3, 4), true),
        (2000, (9, 11), true),
        (448, (9, 40), false),
    ] {
        let copy = far(bytes, (rows, row, (bytes * row).cast_signed()));
        let [told, on_amd] = told(&copy, Stores::Streamed);
        assert_eq!(told.contains(" B, asked for far ahead, past"), is_asked, "{told}");
        assert!(!on_amd.contains("far ahead"), "{on_amd}");
        check(&copy, (0, 0));
    }
    // By a table, too, if they are whole lines.
    for bytes in [512, 1500, 20_480] {
        let mut pages = looped(&[(40, bytes, bytes)]);
        pages.fields[0].bytes = bytes.cast_unsigned();
        pages.dims[0].src_index = Some(shuffled(40, 1));
        check(&pages, (0, 0));
    }
}

#[test]
fn crowded_rows_in_the_caches_are_read_by_few_columns() {
    let matrix = |side: u64| {
        let row = side.cast_signed() * 4;
        looped(&[(side, row, 4), (side, 4, row)])
    };
    for (side, panels, on_amd) in [
        (256, "32 by 256", "256 by 32"),
        (240, "240 by 32", "240 by 32"),
        (512, "512 by", "512 by"),
        (600, "64 by 64", "32 by 32"),
        (1024, "64 by 64", "64 by 64"),
    ] {
        for (told, panels) in told(&matrix(side), Stores::Cached).iter().zip([panels, on_amd]) {
            assert!(told.starts_with(&format!("panels of {panels}")), "{told} for {panels}");
        }
        check(&matrix(side), (0, 0));
    }
    // Before squares with sides of a line rows at one place are copied on AMD's only.
    let copy = looped(&[(100, 4096, 4), (1024, 4, 400)]);
    let both = ["panels of 64 by 100 ", "panels of 64 by 64 "];
    for (told, panels) in told(&copy, Stores::Cached).iter().zip(both) {
        assert!(told.starts_with(panels), "{told} for {panels}");
    }
    check(&copy, (0, 0));
}

/// Vectors that are lines, of which only units of 4 bytes are exchanged: AVX-512's without byte permutations.
pub(super) fn of_units() -> Instance {
    let mut lines = of_lines();
    lines.abilities.unit_bytes = 4;
    lines
}

#[test]
#[cfg_attr(miri, ignore = "matrices of up to 12 MB, two dozen of them")]
fn long_rows_are_read_by_a_few_lines_each() {
    // Through registers where bytes are exchanged, but of bytes at one place of a first-level cache, and of short rows.
    for (bytes, rows, panels, (by_units, on_amd)) in [
        (4, 1001u64, "64 by 64, through registers", ("32 by 64", "128 by 128")),
        (8, 1001, "32 by 32, through registers", ("32 by 64", "64 by 64")),
        (16, 1001, "16 by 16, through registers", ("32 by 64", "32 by 32")),
        (2, 3001, "64 by 128, through registers", ("128 by 256", "128 by 256")),
        (12, 1001, "32 by 64", ("32 by 64", "42 by 42")),
        (4, 769, "64 by 64, through registers", ("32 by 64", "128 by 128")),
        (4, 767, "64 by 64, through registers", ("128 by 128", "128 by 128")),
        (4, 273, "64 by 64, through registers", ("128 by 128", "128 by 128")),
        (4, 271, "128 by 128", ("128 by 128", "128 by 128")),
        (8, 257, "32 by 32, through registers", ("64 by 64", "64 by 64")),
        (8, 255, "64 by 64", ("64 by 64", "64 by 64")),
    ] {
        // Of a last panel there is half, or little.
        for columns in [208u64, 225] {
            let (row, to) = (columns.cast_signed() * bytes, rows.cast_signed() * bytes);
            let mut copy = looped(&[(rows, row, bytes), (columns, bytes, to)]);
            copy.fields[0].bytes = bytes.cast_unsigned();
            let [held, on_amd_told] = told(&copy, Stores::Streamed);
            let by_units_told = explain_by(&of_units(), &copy, std::ptr::null(), Stores::Streamed);
            for (told, panels) in [(held, panels), (by_units_told, by_units), (on_amd_told, on_amd)]
            {
                assert!(
                    told.contains(&format!("in panels of {panels}, by lines")),
                    "{told} for {panels}"
                );
            }
            check(&copy, (1, 4));
        }
    }
    for (columns, panels) in
        [(33, "32 by 32, through registers"), (32, "32 by 32, through"), (31, "31 by 64, by lines")]
    {
        let copy = far(8, (1001, columns, 8 * columns.cast_signed() + 8));
        let [told, _] = told(&copy, Stores::Streamed);
        assert!(told.contains(&format!("in panels of {panels}")), "{told} for {panels}");
        check(&copy, (1, 4));
    }
    // Of bytes; of the last panel there is more than of others, and short rows.
    for (rows, pitch, panels) in [
        (3011, 225, "64 by 256, through registers"),
        (3001, 4095, "225 by 256, by lines"),
        (3001, 2048 + 63, "225 by 256, by lines"),
        (3001, 2048 + 65, "64 by 256, through registers"),
        (3001, 512, "225 by 256, by lines"),
        (1089, 225, "64 by 256, through registers"),
        (1087, 225, "225 by 256, by lines"),
    ] {
        let copy = far(1, (rows, 225, pitch));
        let [told, _] = told(&copy, Stores::Streamed);
        assert!(told.contains(&format!("in panels of {panels}")), "{told} for {panels}");
        check(&copy, (1, 4));
    }
}

/// Rows of whole lines that follow each other, of few elements.
#[test]
#[cfg_attr(miri, ignore = "structures of up to 1.1 MB")]
fn rows_of_few_lines_are_read_from_end_to_end_where_lines_are_held() {
    for (bytes, (records, fields), panels) in [
        (2, (4096, 32), "32 by 4096 "),
        (4, (4096, 16), "16 by 4096 "),
        (8, (2048, 8), "8 by 2048 "),
        (8, (2048, 64), "64 by 32 "),
        // Rows of more, of parts of lines, or of two lines to rows an even number of lines apart.
        (2, (2112, 64), "64 by 256 "),
        (4, (4112, 32), "32 by 64 "),
        (4, (4096, 32), "32 by 128 "),
        (8, (2048, 72), "32 by 32 "),
        (8, (2048, 12), "12 by 64 "),
    ] {
        let copy = zen::images(bytes, (1, records, fields));
        let [told, _] = told(&copy, Stores::Streamed);
        assert!(told.starts_with(&format!("panels of {panels}")), "{told} for {panels}");
        check(&copy, (0, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "images of up to 1.1 MB")]
fn rows_of_large_odd_images_go_through_registers() {
    // Of so many channels and pixels: they are spliced in small blocks, and put together otherwise.
    for (bytes, (channels, pixels), panels, on_amd) in [
        (4, (301, 900), "64 by 64, through registers", "panels of 16 by 301 "),
        (4, (301, 860), "panels of 16 by 301 ", "panels of 16 by 301 "),
        (8, (257, 520), "32 by 32, through registers", "panels of 8 by 257 "),
        (2, (701, 225), "64 by 128, through registers", "panels of 23 by 701 "),
        // Rows that are not spliced, and too few columns of these.
        (4, (701, 24), "read from end to end, through registers", "24 by 128, by lines"),
        (4, (701, 20), "panels of 8 by 701 ", "panels of 8 by 701 "),
    ] {
        let copy = zen::images(bytes, (2, channels, pixels));
        for (told, panels) in told(&copy, Stores::Streamed).iter().zip([panels, on_amd]) {
            assert!(told.contains(panels), "{told} for {panels}");
        }
        check(&copy, (1, 4));
    }
}

/// More rows of the destination than are gone on with before the next are begun, of which something is carried each.
#[test]
#[cfg_attr(miri, ignore = "matrices of 4 to 16 MB")]
fn bands_of_long_rows() {
    for columns in [1025u64, 2047, 2049, 4097] {
        let row = 4 * columns.cast_signed();
        check(&looped(&[(1001u64, row, 4), (columns, 4, 4 * 1001)]), (0, 4));
    }
}
