//! What squares with sides of a line are moved by where vectors are half of one.

use super::*;

fn at_line() -> *const u8 {
    std::ptr::without_provenance(4096)
}

#[test]
fn squares_by_halves_follow_the_source() {
    let (halves, at_line) = (halves(), at_line());
    let parts = |b: i64, o: i64, a: i64| {
        let (row, block) = (4 * a, 4 * a * b);
        let extents = [3, b, o, a].map(i64::cast_unsigned);
        let [all, rows] = [(o * block, o * block), (o * row, 4)];
        let strides = [all, rows, (row, block), (4, 4 * b)];
        looped(&[0, 1, 2, 3].map(|k| (extents[k], strides[k].0, strides[k].1)))
    };
    for (copy, panels) in [
        // Blocks that lie side by side, all of them, or as many as a second-level cache keeps.
        (parts(32, 15, 32), "32 by 32 elements of 4 B, 15 at once, in place, by lines past"),
        (parts(48, 28, 48), "48 by 48 elements of 4 B, 14 at once, in place, by lines past"),
        // Not where rows are at few places of pages.
        (parts(32, 32, 32), "32 by 32 elements of 4 B, in place, by lines past"),
        // Blocks that are runs, but for short rows.
        (
            looped(&[(28, 4096, 128), (32, 128, 4), (32, 4, 3584)]),
            "32 by 32 elements of 4 B, in place, by lines past",
        ),
        (
            looped(&[(28, 2048, 128), (32, 64, 4), (16, 4, 3584)]),
            "16 by 32 elements of 4 B, 7 at once, in place, by lines past",
        ),
    ] {
        let told = explain_by(&halves, &copy, at_line, Stores::Streamed);
        assert!(told.starts_with(&format!("panels of {panels}")), "{told}");
        check(&copy, (0, 0));
    }
}

#[test]
fn squares_by_halves_where_neither_side_is_crowded() {
    let (halves, at_line) = (halves(), at_line());
    let [cached, streamed] = [Stores::Cached, Stores::Streamed];
    for (copy, stores, panels) in [
        (matrix(8, 2000, 2000), streamed, "256 by 8 elements of 8 B, in place, by lines past"),
        (matrix(4, 2000, 2000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(4, 496, 2000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(8, 2000, 2048), streamed, "256 by 8 elements of 8 B, in place, by lines past"),
        (matrix(16, 2048, 2048), streamed, "128 by 8 elements of 16 B, in place, by lines past"),
        // At few places only near, or for longer rows.
        (matrix(4, 2112, 3000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(4, 128, 32_768), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        // Boxes, of more rows than the processor follows, or to lines at few places of pages.
        (matrix(8, 2048, 2000), streamed, "64 by 32 elements of 8 B, in place, by lines past"),
        (matrix(2, 1536, 20_000), streamed, "256 by 32 elements of 2 B, in place, by lines past"),
        (matrix(4, 2112, 960), streamed, "128 by 64 elements of 4 B, in place, by lines past"),
        (matrix(8, 1056, 900), streamed, "64 by 32 elements of 8 B, in place, by lines past"),
        (matrix(4, 2176, 3000), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 256, 32_768), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 3136, 64), streamed, "64 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 4096, 4096), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 4096, 16384), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(2, 2016, 2016), streamed, "256 by 64 elements of 2 B, in place, by lines past"),
        (matrix(2, 4160, 4096), streamed, "256 by 32 elements of 2 B, in place, by lines past"),
        // All rows at one place of a second-level cache.
        (matrix(4, 128, 16_384), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(2, 128, 32_768), streamed, "256 by 32 elements of 2 B, in place, by lines past"),
        (matrix(8, 4096, 8192), streamed, "32 by 16 elements of 8 B, in place, by lines past"),
        // Lines that are begun at few places of pages.
        (matrix(4, 256, 784), streamed, "32 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 256, 10_000), streamed, "32 by 32 elements of 4 B, in place, by lines past"),
        (matrix(8, 192, 2000), streamed, "16 by 16 elements of 8 B, in place, by lines past"),
        (matrix(4, 12_544, 128), streamed, "128 by 64 elements of 4 B, in place, by lines past"),
        // So they are, but the source's rows are long, and squares inside lanes would not do.
        (matrix(4, 256, 12_544), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(4, 512, 6000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        // At not so few, where the source is read by runs.
        (matrix(2, 2560, 64), streamed, "64 by 64 elements of 2 B, in place, by lines past"),
        (matrix(8, 1152, 128), streamed, "128 by 16 elements of 8 B, in place, by lines past"),
        (matrix(8, 128, 100), streamed, "100 by 16 elements of 8 B, in place, by lines past"),
        // Put together by blocks, where a second-level cache has room for two.
        (matrix(4, 512, 196), streamed, "16 by 128 elements of 4 B, put together, by runs past"),
        (matrix(8, 512, 784), streamed, "8 by 32 elements of 8 B, put together, by runs past"),
        (matrix(4, 256, 256), cached, "256 by 32 elements of 4 B, in place ("),
        // Too few rows: those of the last square would be moved twice.
        (matrix(4, 49, 512), cached, "64 by 49 elements of 4 B, in place ("),
        // Not where rows follow each other and are whole lines only together; but of less than two lines.
        (
            matrix(4, 49, 512),
            streamed,
            "16 by 49 elements of 4 B, put together, by lines of two rows",
        ),
        (matrix(4, 25, 512), streamed, "32 by 25 elements of 4 B, put together, by runs past"),
        // Whole lanes, of not too few rows, or of rows of the source at too few places of a cache.
        (
            matrix(4, 1004, 1000),
            streamed,
            "16 by 256 elements of 4 B, in place, by lines of two rows",
        ),
        (matrix(8, 98, 512), streamed, "8 by 98 elements of 8 B, in place, by lines of two rows"),
        (matrix(4, 196, 20), streamed, "20 by 196 elements of 4 B, put together, by lines of two"),
        (
            matrix(4, 196, 2048),
            streamed,
            "16 by 196 elements of 4 B, put together, by lines of two",
        ),
    ] {
        let told = explain_by(&halves, &copy, at_line, stores);
        assert!(told.starts_with(&format!("panels of {panels}")), "{told} for {panels}");
    }
    // Of two bytes, lines that are begun at few places of pages, and rows at many of a first-level cache, or few.
    let ways =
        [(4128, "long rows, 4096"), (4096, "panels of 256 by 32"), (32_768, "panels of 256 by 32")];
    for (columns, way) in ways {
        let told = explain_by(&halves, &matrix(2, 4096, columns), at_line, streamed);
        assert!(told.starts_with(way), "{told} for {way}");
    }
}

/// So many images of channels of pixels of 4 bytes, that become pixels of channels.
fn images(count: i64, (channels, pixels): (i64, i64)) -> NdCopy {
    let (image, all) = (4 * channels * pixels, [count, channels, pixels].map(i64::cast_unsigned));
    looped(&[(all[0], image, image), (all[1], 4 * pixels, 4), (all[2], 4, 4 * channels)])
}

/// The other way round.
fn images_back(count: i64, of: (i64, i64)) -> NdCopy {
    let mut copy = images(count, of);
    for stride in &mut copy.fields[0].strides {
        (stride.src, stride.dst) = (stride.dst, stride.src);
    }
    copy
}

/// Of rows that end soon, by boxes or of all; those of several panels are not parted by a third loop.
#[test]
fn squares_by_halves_read_few_rows_from_end_to_end() {
    let (halves, at_line, streamed) = (halves(), at_line(), Stores::Streamed);
    let far_apart = looped(&[(64, 1_600_000, 4), (200, 8000, 256), (2000, 4, 51_200)]);
    for (copy, panels) in [
        (looped(&[(96, 1024, 4), (200, 4, 384)]), "64 by 96"),
        (looped(&[(96, 1536, 4), (300, 4, 384)]), "300 by 16"),
        (looped(&[(128, 1536, 4), (300, 4, 512)]), "64 by 128"),
        (looped(&[(128, 80_064, 4), (20_000, 4, 512)]), "512 by 16"),
        (looped(&[(608, 2112, 4), (512, 4, 2432)]), "128 by 64"),
        (looped(&[(608, 2176, 4), (528, 4, 2432)]), "528 by 16"),
        (
            looped(&[(5, 192_064, 192), (48, 4000, 4), (1000, 4, 960)]),
            "1000 by 16 elements of 4 B, 5",
        ),
        (
            looped(&[(5, 384_064, 192), (48, 8000, 4), (2000, 4, 960)]),
            "512 by 16 elements of 4 B, in",
        ),
        (far_apart, "128 by 32"),
        // Small blocks, all of whose rows are one panel.
        (
            looped(&[(300, 8192, 8192), (64, 128, 4), (32, 4, 256)]),
            "32 by 64 elements of 4 B, 300 at",
        ),
        // Several images of 512 channels, whose rows are longer than 8 KiB or not.
        (images(6, (512, 1920)), "16 by 512 elements of 4 B, put together"),
        (images(6, (512, 2112)), "512 by 16 elements of 4 B, in place"),
        // Runs of the source, by two lines of each row of the destination or one.
        (images_back(2, (128, 12_544)), "128 by 32"),
        (images_back(2, (256, 3136)), "256 by 32"),
        (images_back(2, (256, 3152)), "256 by 16"),
        (images_back(2, (240, 3152)), "240 by 32"),
    ] {
        let told = explain_by(&halves, &copy, at_line, streamed);
        assert!(told.starts_with(&format!("panels of {panels}")), "{told} for {panels}");
    }
    // Near, and lines at few places: other squares would lie at few places of the caches, too.
    let told = explain_by(&halves, &matrix(4, 256, 7680), at_line, streamed);
    assert!(told.starts_with("long rows, 256 by 7680"), "{told}");
}

/// In records that are whole lines, or not, and of many fields; from a line on or from inside of one.
#[test]
#[cfg_attr(miri, ignore = "records of up to a KiB")]
fn lanes_are_squares() {
    let (halves, in_line) = (halves(), std::ptr::without_provenance(4096 + 16));
    let lanes = |fields: i64, back| {
        let (together, apart) = ((16 * fields, 16), (16, 4160));
        let [src, dst] = if back { [apart, together] } else { [together, apart] };
        let mut copy = looped(&[(260, src.0, dst.0), (fields.cast_unsigned(), src.1, dst.1)]);
        copy.fields[0].bytes = 16;
        copy
    };
    for (fields, back, [from_line, from_inside]) in [
        (36, true, ["panels of 128 by 8 ", "from line to line, panels of 128 by 8 "]),
        (64, true, ["panels of 8 by 8 ", "from line to line, panels of 8 by 8 "]),
        (32, true, ["panels of 16 by 32", "records of 512 B, 32 fields, put together"]),
        (2, true, ["panels of 260 by 2 ", "records of 32 B, 2 fields, put together"]),
        (3, true, ["records of 48 B, 3 fields, put together"; 2]),
        (16, false, ["records of 256 B, 16 fields, taken apart"; 2]),
        (33, false, ["panels of 33 by 8 ", "from line to line, panels of 33 by 8 "]),
    ] {
        let copy = lanes(fields, back);
        for (at, way) in [(at_line(), from_line), (in_line, from_inside)] {
            let told = explain_by(&halves, &copy, at, Stores::Streamed);
            assert!(told.starts_with(way), "{told} for {way}");
        }
        for to in [0, 16, 32, 48] {
            check(&copy, (0, to));
        }
    }
    // A cut that leaves too few records to be some is none.
    let mut few = lanes(16, false);
    few.dims[0].extent = 258;
    let told = explain_by(&halves, &few, in_line, Stores::Streamed);
    assert!(told.starts_with("records of 256 B, 16 fields, taken apart"), "{told}");
}

#[test]
fn smaller_caches_get_smaller_parts() {
    let (halves, at_line) = (halves(), at_line());
    let with = |first_kib: usize, second_kib: usize| {
        let [first, second] =
            [first_kib, second_kib].map(|kib| Cache { bytes: kib << 10, ways: 8 });
        halves.with(Caches { first, second, ..Caches::MEASURED })
    };
    // Pixels of 64 channels, and 512 channels of 196 pixels each, of which a block and the next are kept.
    let pixels = looped(&[(3136, 256, 4), (64, 4, 12_544)]);
    let channels = looped(&[(512, 784, 4), (196, 4, 2048)]);
    for (copy, stores, caches, panels) in [
        (&pixels, Stores::Cached, (32, 512), "panels of 64 by 128 elements of 4 B, in place"),
        (&pixels, Stores::Cached, (16, 512), "panels of 64 by 64 elements of 4 B, in place"),
        (
            &channels,
            Stores::Streamed,
            (32, 512),
            "panels of 16 by 128 elements of 4 B, put together",
        ),
        (
            &channels,
            Stores::Streamed,
            (32, 128),
            "panels of 16 by 64 elements of 4 B, put together",
        ),
        (&channels, Stores::Streamed, (32, 64), "long rows, 512 by 196 elements of 4 B"),
    ] {
        let told = explain_by(&with(caches.0, caches.1), copy, at_line, stores);
        assert!(told.starts_with(panels), "{told}");
    }
}
