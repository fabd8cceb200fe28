//! What is chosen on a Zen 5 and not on a Zen 4, whose vectors that are lines are moved by halves.

use super::lines::far;
use super::*;
use crate::instance::family_of;

/// That each of `copies` goes its way on either, past the caches, and that all arrive.
fn go<'a>(copies: impl IntoIterator<Item = (NdCopy, &'a str, &'a str)>) {
    go_by(Stores::Streamed, copies);
}

/// As [`go`], by such stores.
fn go_by<'a>(stores: Stores, copies: impl IntoIterator<Item = (NdCopy, &'a str, &'a str)>) {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    for (copy, on_4, on_5) in copies {
        for (family, way) in [(ZEN_4, on_4), (ZEN_5, on_5)] {
            let instance = of_lines().on(Some(family));
            let told = explain_by(&instance, &copy, at_line, stores);
            assert!(told.starts_with(way), "{told} for {way}");
        }
        check(&copy, (0, 0));
    }
}

#[test]
fn a_family_is_in_two_parts_of_a_signature() {
    let signatures = [0x00A0_0F11, 0x00B0_0F21, 0x0008_06F8, 0x0000_0F47];
    assert_eq!(signatures.map(family_of), [ZEN_4, ZEN_5, 6, 15]);
}

#[test]
#[cfg_attr(miri, ignore = "matrices of 40 to 400 KB, a dozen of them")]
fn far_rows_are_read_by_boxes_on_a_zen_5() {
    let (near, far_off) = ((16 << 10) - 64, (16 << 10) + 64);
    go([
        (far(4, (96, 528, far_off)), "panels of 64 by 96", "panels of 256 by 32"),
        // Of a last box there is more, or less.
        (far(4, (96, 388, far_off)), "panels of 64 by 96", "panels of 388 by 32"),
        (far(4, (96, 900, far_off)), "panels of 64 by 96", "panels of 256 by 32"),
        // More columns than a band has, and a few.
        (far(4, (96, 2051, far_off)), "panels of 64 by 96", "panels of 256 by 32"),
        (far(2, (192, 1024, far_off)), "panels of 128 by 192", "panels of 512 by 64"),
        (far(8, (40, 264, far_off)), "panels of 32 by 40", "panels of 128 by 16"),
        (far(16, (40, 136, 2 * far_off)), "panels of 16 by 40", "panels of 64 by 8"),
        // Of short rows of the destination a box makes a line.
        (far(4, (64, 528, far_off)), "panels of 64 by 64", "panels of 256 by 16"),
        // Neither what is nearer, nor short, nor one line of the destination.
        (far(4, (96, 528, near)), "panels of 64 by 96", "panels of 64 by 96"),
        (far(16, (40, 136, far_off)), "panels of 16 by 40", "panels of 16 by 40"),
        (far(4, (96, 252, far_off)), "panels of 64 by 96", "panels of 64 by 96"),
        (far(4, (16, 528, far_off)), "panels of 64 by 16", "panels of 64 by 16"),
    ]);
    // The next box is of the next block, or of the other rows.
    let turns = looped(&[(2, 4 * 528, 4 * 528 * 64), (64, far_off, 4), (528, 4, 256)]);
    go([(turns, "panels of 64 by 64", "panels of 256 by 16")]);
}

#[test]
fn runs_are_asked_for_where_they_go_to_many_places_on_a_zen_5() {
    let runs =
        |bytes: u64, (rows, row): (u64, u64)| far(bytes, (rows, row, (bytes * row).cast_signed()));
    go([
        (
            runs(64, (128, 16)),
            "runs of 64 B, in tiles of 16 by",
            "runs of 64 B, in tiles of 8 by 16",
        ),
        (
            runs(32, (128, 16)),
            "runs of 32 B, in tiles of 128 by 16",
            "runs of 32 B, in tiles of 16 by 16",
        ),
        (
            runs(32, (128, 4)),
            "runs of 32 B, in tiles of 4 by 4",
            "runs of 32 B, in tiles of 4 by 4",
        ),
        (
            runs(256, (32, 16)),
            "runs of 256 B, in tiles of 16 by 32",
            "runs of 256 B, in tiles of 16 by 32",
        ),
    ]);
    // Those behind which the source doesn't go on ask for what lies elsewhere.
    let apart = |bytes: i64, (along, across): (u64, u64)| {
        let (place, to) = (3 * across.cast_signed() * bytes, along.cast_signed() * bytes);
        let mut copy = looped(&[(along, place, bytes), (across, bytes, to)]);
        copy.fields[0].bytes = bytes.cast_unsigned();
        copy
    };
    for (bytes, shape, on_4, on_5) in [
        (64, (33, 12), "16 by 12", "8 by 12"),
        (128, (12, 16), "8 by 16", "4 by 16"),
        (704, (7, 8), "1 by 2", "1 by 2"),
        (192, (12, 96), "1 by 10", "1 by 10"),
        (512, (8, 16), "1 by 4", "2 by 2"),
    ] {
        let told = |tile: &str| format!("runs of {bytes} B, in tiles of {tile}, ");
        let (on_4, on_5) = (told(on_4) + "past", told(on_5) + "of which the next is asked for");
        go([(apart(bytes, shape), &*on_4, &*on_5)]);
    }
}

#[test]
fn structures_on_a_zen_5() {
    let gaps = "records of 16 B, 2 fields, put together";
    go([
        (
            padded_structures(&[4, 8], 1000, (4, 1), true),
            &*format!("{gaps} 128 at once, between gaps"),
            &*format!("{gaps} 144 at once, by windows, between gaps"),
        ),
        // Structures of less than a line by a few columns at once, and of one by squares.
        (structures(&[8; 2], 20_000, false), "panels of 2 by 64 ", "panels of 2 by 20000 "),
        (structures(&[4; 8], 20_000, false), "panels of 8 by 128 ", "panels of 8 by 20000 "),
        (structures(&[4; 16], 20_000, false), "panels of 16 by 20000 ", "panels of 16 by 20000 "),
        // Lanes are squares by themselves.
        (structures(&[16; 4], 5000, false), "records of 64 B, 4 fields", "panels of 4 by 5000 "),
    ]);
}

#[test]
#[cfg_attr(miri, ignore = "matrices of up to 1.4 MB")]
fn squares_stay_in_the_caches() {
    let matrix = |bytes: u64, side: u64| far(bytes, (side, side, (bytes * side).cast_signed()));
    go_by(
        Stores::Cached,
        [
            (matrix(4, 600), "panels of 32 by 32 ", "panels of 64 by 64 "),
            (matrix(8, 200), "panels of 200 by 16 ", "panels of 200 by 16 "),
            (matrix(16, 300), "panels of 8 by 8 ", "panels of 16 by 64 "),
            // Few rows of the destination where these are at multiples of a page.
            (far(4, (1024, 200, 800)), "panels of 200 by 32 ", "panels of 16 by 256 "),
            (far(4, (1040, 200, 800)), "panels of 200 by 32 ", "panels of 200 by 32 "),
            // Rows at few places are copied first.
            (matrix(4, 512), "panels of 512 by 32 ", "panels of 64 by 64 "),
            (matrix(8, 256), "panels of 256 by 16 ", "panels of 32 by 64 "),
        ],
    );
    // Where lines are held, of elements of 4 bytes from rows at many places.
    for (bytes, (rows, row, pitch), panels) in [
        (4, (1024, 200, 800), "panels of 16 by 256 "),
        (4, (1040, 200, 800), "panels of 200 by 32 "),
        (4, (1024, 128, 512), "panels of 32 by 256 "),
        (8, (1024, 100, 800), "panels of 100 by 32 "),
    ] {
        let copy = far(bytes, (rows, row, pitch));
        let told = explain_by(&of_lines(), &copy, std::ptr::null(), Stores::Cached);
        assert!(told.starts_with(panels), "{told} for {panels}");
        check(&copy, (1, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "2 MB of runs")]
fn long_tiles_are_asked_for_on_a_zen_5() {
    // Eight rows of half a second-level cache, and of more.
    let runs = |across: u64| {
        let (row, count) = (across.cast_signed() * 32, across);
        let mut copy = looped(&[(4, 8 * row, 8 * row), (8, row, 32), (count, 32, 256)]);
        copy.fields[0].bytes = 32;
        copy
    };
    go([
        (runs(2048), "runs of 32 B, in tiles of 8 by 128", "runs of 32 B, in tiles of 8 by 2048"),
        (runs(2176), "runs of 32 B, in tiles of 8 by 128", "runs of 32 B, in tiles of 8 by 128"),
    ]);
}

/// Images of so many rows, so long, of elements of `bytes`, whose columns become rows.
pub(super) fn images(bytes: i64, (n, rows, row): (u64, u64, u64)) -> NdCopy {
    let image = (rows * row).cast_signed() * bytes;
    let (from, to) = (row.cast_signed() * bytes, rows.cast_signed() * bytes);
    let mut copy = looped(&[(n, image, image), (rows, from, bytes), (row, bytes, to)]);
    copy.fields[0].bytes = bytes.cast_unsigned();
    copy
}

#[test]
#[cfg_attr(miri, ignore = "matrices of 1 to 3 MB")]
fn rows_that_follow_each_other_are_read_as_a_whole_on_a_zen_5() {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    for (bytes, shape, on_4, on_5) in [
        // Lines of the destination at few places of pages.
        (4, (2, 1024, 128), "64 by 64", "128 by 64"),
        (8, (2, 512, 64), "32 by 32", "64 by 32"),
        (4, (2, 784, 128), "128 by 256", "128 by 256"),
        // Few rows at once of many elements, if no cache keeps them.
        (4, (30, 784, 256), "256 by 128", "256 by 32"),
        (4, (20, 784, 256), "256 by 128", "256 by 128"),
        (4, (30, 784, 260), "260 by 128", "260 by 128"),
        (8, (30, 784, 256), "256 by 64", "256 by 16"),
        (2, (90, 784 * 4, 256), "256 by 256", "256 by 256"),
        // Longer ones, too.
        (4, (16, 784, 768), "64 by 64", "768 by 32"),
        (4, (6, 784, 768), "64 by 64", "64 by 64"),
        (4, (16, 784, 760), "64 by 64", "760 by 64"),
        (16, (9, 784, 192), "16 by 64", "192 by 48"),
        (16, (9, 784, 512), "16 by 64", "512 by 8"),
        (16, (9, 1024, 512), "16 by 64", "512 by 16"),
        (16, (20, 784, 760), "16 by 64", "760 by 8"),
        // But not yet longer ones, nor by lines at few places, or by very many elements.
        (16, (20, 784, 800), "16 by 64", "16 by 64"),
        (4, (16, 1024, 768), "64 by 64", "64 by 64"),
        (4, (4, 784, 2048), "64 by 64", "64 by 64"),
    ] {
        for (family, panels) in [(ZEN_4, on_4), (ZEN_5, on_5)] {
            let by = of_lines().on(Some(family));
            let told = explain_by(&by, &images(bytes, shape), at_line, Stores::Streamed);
            assert!(told.starts_with(&format!("panels of {panels} ")), "{told} for {panels}");
        }
    }
    // Small caches keep none of these, and some have no room for a row of them.
    let small = of_lines().on(Some(ZEN_5)).with(SMALL);
    for (bytes, shape, panels) in [
        (4, (2, 576, 600), "600 by 64"),
        (8, (2, 272, 700), "700 by 32"),
        (16, (2, 136, 264), "264 by 8"),
    ] {
        let copy = images(bytes, shape);
        let told = explain_by(&small, &copy, at_line, Stores::Streamed);
        assert!(told.starts_with(&format!("panels of {panels} ")), "{told} for {panels}");
        check(&copy, (0, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "matrices of 1 to 2 MB")]
fn rows_of_odd_images_are_made_in_registers_on_a_zen_5() {
    go([
        // What a second-level cache has no room for twice goes by long rows, and what is put together that isn't spliced.
        (images(8, (2, 225, 512)), "panels of 8 by 225 ", "long rows, 225 by 512 "),
        (images(2, (3, 701, 225)), "panels of 23 by 701 ", "long rows, 701 by 225 "),
        (
            images(8, (40, 49, 64)),
            "panels of 8 by 49 elements of 8 B, put together, by lines of two rows",
            "panels of 8 by 49 elements of 8 B, in place, by lines of two rows",
        ),
    ]);
}

#[test]
#[cfg_attr(miri, ignore = "matrices of 1.8 MB")]
fn long_rows_go_through_registers_on_a_zen_5() {
    // Rows that follow each other, and others, by so many columns and rows.
    for (bytes, (rows, row, pitch), on_4, on_5) in [
        (4, (2051, 225, 225), "128 by 128", "225 by 64"),
        (8, (1025, 225, 225), "64 by 64", "225 by 32"),
        (16, (513, 225, 225), "32 by 32", "225 by 16"),
        (2, (701, 225, 225), "128 by 256", "225 by 128"),
        (4, (701, 600, 600), "128 by 128", "128 by 64"),
        (4, (701, 225, 226), "128 by 128", "32 by 256"),
        (2, (701, 225, 226), "128 by 256", "32 by 256"),
        (16, (301, 225, 226), "32 by 32", "32 by 128"),
        // More columns than a band has, and a few, and more than are carried of one.
        (4, (301, 1985, 1985), "128 by 128", "128 by 64"),
        (4, (301, 2060, 2060), "128 by 128", "32 by 256"),
        (2, (701, 2009, 2009), "128 by 256", "128 by 128"),
        // Elements that don't.
        (1, (1025, 225, 225), "225 by 256", "225 by 256"),
        (12, (1025, 225, 225), "42 by 42", "32 by 64"),
    ] {
        let odd = far(bytes, (rows, row, pitch * bytes.cast_signed()));
        for (family, panels) in [(ZEN_4, on_4), (ZEN_5, on_5)] {
            let by = of_lines().on(Some(family));
            let told = explain_by(&by, &odd, std::ptr::null(), Stores::Streamed);
            assert!(told.contains(&format!("in panels of {panels}, ")), "{told} for {panels}");
            let through = family == ZEN_5 && matches!(bytes, 2 | 4 | 8 | 16);
            assert_eq!(told.contains("through registers"), through, "{told}");
        }
        check(&odd, (1, 4));
    }
}
