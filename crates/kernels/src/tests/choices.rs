//! Which way a copy goes, in words, and by which stores.

use super::rows::in_rows;
use super::*;

/// A tile of runs that asks for the next.
macro_rules! asked {
    ($tile:literal) => {
        concat!($tile, ", of which the next is asked for")
    };
}

#[test]
fn the_way_is_told() {
    let transpose = |side: u64, bytes: u64| {
        let (extents, gaps) = (vec![side, side], (0, 0));
        Shape { bytes, extents, src_order: vec![0, 1], dst_order: vec![1, 0], gaps }.copy()
    };
    let at_line = std::ptr::without_provenance::<u8>(4096);
    let best = available().next().unwrap();
    let told = |copy: &NdCopy, stores| explain_by(&best, copy, at_line, stores);
    let says = |copy: &NdCopy, stores, text: &str| {
        let told = told(copy, stores);
        assert!(told.starts_with(text), "{told}");
    };
    let whole = "panels of 32 by 32 elements of 4 B, ";
    // What lies at few places of the caches is copied first, by more rows at once, or moved by as many.
    let many = "panels of 64 by 64 elements of 4 B, ";
    let few = if best.abilities.holds_lines() { many } else { whole };
    says(&transpose(4080, 4), Stores::Cached, &format!("{few}in place ("));
    says(&transpose(4096, 4), Stores::Cached, &format!("{many}in place ("));
    let panels = |of: &str| format!("panels of {of} elements of 4 B, in place, by lines past");
    let (whole, long) = match best.abilities.lanes {
        4 => (panels("64 by 64"), panels("64 by 64")),
        // Rows that are read from end to end, or boxes.
        2 => (panels("512 by 16"), panels("128 by 32")),
        _ => (panels("32 by 32"), "long rows, 4096 by 4096 elements".to_owned()),
    };
    says(&transpose(4080, 4), Stores::Streamed, &whole);
    says(&transpose(4096, 4), Stores::Streamed, &long);
    says(&transpose(4095, 4), Stores::Streamed, "long rows, 4095 by 4095 elements of 4 B");
    // So much is asked for as a second-level cache keeps; by vectors of a line not where they may be scattered.
    let (tiles, amd, odd) = match best.abilities.lanes {
        2 => (asked!("4 by 64"), asked!("4 by 64"), asked!("4 by 63")),
        4 => (asked!("4 by 64"), "2 by 16", "63 by 63"),
        _ => ("8 by 16", "2 by 16", "63 by 63"),
    };
    let on_amd = best.on(Some(ZEN_4));
    for (by, side, tile) in [(best, 64, tiles), (on_amd, 64, amd), (on_amd, 63, odd)] {
        let told = explain_by(&by, &transpose(side, 128), at_line, Stores::Streamed);
        assert!(told.starts_with(&format!("runs of 128 B, in tiles of {tile}, past")), "{told}");
    }
    says(&transpose(5, 128), Stores::Cached, "runs of 128 B, in tiles of 5 by 5 (");
    // Near, and at one place of a first-level cache.
    let crowded = looped(&[(9, 128, 4096), (32, 9 * 128, 128), (32, 4, 4)]);
    says(&crowded, Stores::Cached, "runs of 128 B, in tiles of 4 by 32 (");
    // Few runs at one place are asked for, if the source goes on behind them.
    says(&transpose(4, 128), Stores::Streamed, "runs of 128 B, past the caches (");
    let few = if best.abilities.lanes > 1 { asked!(", in tiles of 4 by 4") } else { "" };
    let blocks = looped(&[(5, 2048, 2048), (4, 128, 512), (4, 512, 128), (32, 4, 4)]);
    says(&blocks, Stores::Streamed, &format!("runs of 128 B{few}, past the caches ("));
    // From structures of four fields to hybrids of four of them.
    let blocks = looped(&[(1000, 64, 64), (4, 16, 4), (4, 4, 16)]);
    let blocks_at_once = "panels of 4 by 4 elements of 4 B, 1000 at once, in place, by lines past";
    says(&blocks, Stores::Streamed, blocks_at_once);
    // Groups of 16 channels taken apart: too large to be one panel each.
    let groups = looped(&[(8, 802_816, 802_816), (12_544, 64, 4), (16, 4, 50_176)]);
    let groups = told(&groups, Stores::Streamed);
    assert!(!groups.contains("at once"), "{groups}");
    says(&transpose(64, 5), Stores::Cached, "1 fields, element by element");
    says(&structures(&[4, 8], 9, false), Stores::Streamed, "2 fields, element by element");
    says(&structures(&[8], 9, false), Stores::Cached, "one run of 72 B");
    says(&structures(&[8], 900, false), Stores::Streamed, "one run of 7200 B, past the caches (");
    says(&structures(&[8], 900, false), Stores::Cached, "one run of 7200 B (");
    let mut pages = looped(&[(40, 128, 128)]);
    pages.fields[0].bytes = 128;
    pages.dims[0].dst_index = Some(shuffled(40, 1));
    says(&pages, Stores::Cached, "runs of 128 B where a table says (");
    says(&pages, Stores::Streamed, "runs of 128 B where a table says, past the caches (");
    // Long ones that start on no line go past the caches, as others do.
    let mut pages = looped(&[(40, 4096, 4096)]);
    (pages.fields[0].bytes, pages.fields[0].dst_offset) = (4096, 16);
    pages.dims[0].src_index = Some(shuffled(40, 1));
    says(&pages, Stores::Streamed, "runs of 4096 B, past the caches (");
    says(&pages, Stores::Cached, "runs of 4096 B where a table says (");
    says(&transpose(0, 4), Stores::Cached, "nothing");
    // As many bytes as a record has, but not all of them.
    let mut overlapping = structures(&[4, 2, 2], 300, true);
    overlapping.fields[1].dst_offset = 2;
    let windows = best.abilities.masks && best.abilities.unit_bytes == 1;
    let gaps = if windows { ", by windows, between gaps (" } else { ", between gaps (" };
    let gaps = format!("records of 8 B, 3 fields, put together 256 at once{gaps}");
    says(&overlapping, Stores::Streamed, &gaps);
}

#[test]
fn the_reason_is_told() {
    let best = available().next().unwrap();
    let says = |copy: &NdCopy, why: &str| {
        let told = explain_by(&best, copy, std::ptr::null(), Stores::Streamed);
        assert!(told.ends_with(&format!(": {why}")), "{told}");
    };
    says(&run(5000), "both sides have it in one order");
    says(
        &structures(&[4, 8], 1000, true),
        "one side has records, the other an array of each field",
    );
    says(&structures(&[4, 8], 10, true), "fields differ, in no or too short rows of records");
    says(&looped(&[(64, 5000, 6000), (1250, 4, 4)]), "elements are long");
    says(
        &looped(&[(64, 12_800, 128), (100, 128, 8192), (32, 4, 4)]),
        "either side goes on in another loop",
    );
    says(&looped(&[(100, 4, 8), (100, 400, 800)]), "the destination is dense in no loop");
    says(&looped(&[(96, 4, 1600), (400, 384, 4)]), "the destination is dense in a loop");
    let odd = "squares would not write whole lines where they belong";
    says(&looped(&[(4095, 4, 16_380), (4095, 16_380, 4)]), odd);
    let mut gather = looped(&[(100, 256, 256), (64, 4, 4)]);
    gather.dims[0].src_index = Some(shuffled(100, 1));
    says(&gather, "a table says where runs are");
}

#[test]
fn rows_and_hybrids_are_records() {
    let best = available().next().unwrap();
    let told = |copy: &NdCopy, stores| explain_by(&best, copy, std::ptr::null(), stores);
    // By windows, where these take units of 4 bytes.
    for (sizes, by) in [(&[4, 8][..], ", by windows"), (&[1, 2, 4, 8], "")] {
        let by = if best.abilities.lanes == 2 { by } else { "" };
        let pitch: u64 = sizes.iter().sum();
        for (hybrid, how) in
            [(None, ["taken apart", "put together"]), (Some(16), ["to hybrids", "from hybrids"])]
        {
            let of = hybrid.map_or(pitch, |inner| inner * pitch);
            for (back, how) in [false, true].into_iter().zip(how) {
                let copy = in_rows(sizes, (9, 512), hybrid, back);
                let starts = format!("records of {of} B, {} fields, {how}", sizes.len());
                let told = told(&copy, Stores::Streamed);
                assert!(told.starts_with(&starts) && told.contains(by), "{told}");
            }
        }
    }
    // Short rows, or what stays in the caches, one by one.
    let short = in_rows(&[4, 8], (9, 250), None, false);
    let long = in_rows(&[4, 8], (9, 512), None, false);
    let hybrids = in_rows(&[4, 8], (9, 16), Some(64), false);
    for (copy, stores) in
        [(&short, Stores::Streamed), (&long, Stores::Cached), (&hybrids, Stores::Cached)]
    {
        let told = told(copy, stores);
        assert!(told.starts_with("2 fields, element by element"), "{told}");
    }
}

#[test]
fn panels_are_runs_of_the_source_or_rows() {
    let best = available().next().unwrap();
    if best.abilities.lanes != 4 {
        return println!("skipped: panels_are_runs_of_the_source_or_rows: no vector is a line");
    }
    let at_line = std::ptr::without_provenance::<u8>(4096);
    let of_run = if best.abilities.holds_lines() { "16 by 128" } else { "16 by 2048" };
    for (loops, panels) in [
        (&[(1712, 160, 4), (40, 4, 6848)][..], "40 by 832"),
        (&[(600, 4, 320), (80, 2400, 4)], "64 by 80"),
        // Of few rows of the destination: read from end to end, if nothing lies between blocks, and written by
        // squares inside lanes, or out of registers.
        (&[(12_544, 64, 4), (16, 4, 50_176)], "16 by 128"),
        (&[(3, 802_816, 802_816), (12_544, 64, 4), (16, 4, 50_176)], "16 by 128"),
        (&[(12_544, 32, 4), (8, 4, 50_176)], "8 by 12544"),
        (&[(12_544, 16, 4), (4, 4, 50_176)], "4 by 12544"),
        (&[(3, 802_880, 802_816), (12_544, 64, 4), (16, 4, 50_176)], of_run),
    ] {
        let told = explain_by(&best, &looped(loops), at_line, Stores::Streamed);
        let panels = format!("panels of {panels} elements of 4 B, in place, by lines past");
        assert!(told.starts_with(&panels), "{told}");
        check(&looped(loops), (0, 0));
    }
}

#[test]
fn hybrids_are_read_from_end_to_end() {
    let best = available().next().unwrap();
    if best.abilities.lanes != 4 {
        return println!("skipped: hybrids_are_read_from_end_to_end: no vector is a line");
    }
    let at_line = std::ptr::without_provenance::<u8>(4096);
    let hybrids = |bytes: u64, fields: u64| {
        let run = bytes.cast_signed();
        let (all, row) = (run * fields.cast_signed(), 304 * run);
        let mut copy = looped(&[(304, all, run), (fields, run, row)]);
        copy.fields[0].bytes = bytes;
        copy
    };
    let mut back = hybrids(32, 4);
    for stride in &mut back.fields[0].strides {
        (stride.src, stride.dst) = (stride.dst, stride.src);
    }
    for (copy, held, scattered) in [
        (back, "runs of 32 B, in tiles of 4 by 128", "runs of 32 B, in tiles of 4 by 128"),
        (hybrids(16, 4), "panels of 4 by 304 elements of 16 B", "records of 64 B, 4 fields"),
        (hybrids(32, 4), "runs of 32 B, in tiles of 16 by 4", "runs of 32 B, in tiles of 4 by 4"),
        (hybrids(64, 16), "runs of 64 B, in tiles of 8 by 16", "runs of 64 B, in tiles of 16 by"),
        (hybrids(64, 4), "runs of 64 B, in tiles of 8 by 4", "runs of 64 B, past the caches"),
    ] {
        for (instance, way) in [(best, held), (best.on(Some(ZEN_4)), scattered)] {
            let told = explain_by(&instance, &copy, at_line, Stores::Streamed);
            assert!(told.starts_with(way), "{told}");
        }
        check(&copy, (0, 0));
    }
}

#[test]
fn squares_by_halves_follow_the_source() {
    let halves = available().find(|instance| instance.name == "emulated halves").unwrap();
    let at_line = std::ptr::without_provenance::<u8>(4096);
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
    let halves = available().find(|instance| instance.name == "emulated halves").unwrap();
    let at_line = std::ptr::without_provenance::<u8>(4096);
    let [cached, streamed] = [Stores::Cached, Stores::Streamed];
    for (copy, stores, panels) in [
        (matrix(8, 2000, 2000), streamed, "256 by 8 elements of 8 B, in place, by lines past"),
        (matrix(4, 2000, 2000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(4, 496, 2000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(8, 2000, 2048), streamed, "256 by 8 elements of 8 B, in place, by lines past"),
        (matrix(16, 2048, 2048), streamed, "128 by 8 elements of 16 B, in place, by lines past"),
        // Boxes, of more rows than the processor follows, or to lines at few places of pages.
        (matrix(8, 2048, 2000), streamed, "64 by 32 elements of 8 B, in place, by lines past"),
        (matrix(2, 1536, 20_000), streamed, "256 by 32 elements of 2 B, in place, by lines past"),
        (matrix(4, 2112, 1000), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 2112, 3000), streamed, "512 by 16 elements of 4 B, in place, by lines past"),
        (matrix(8, 192, 2000), streamed, "16 by 16 elements of 8 B, in place, by lines past"),
        (matrix(4, 3136, 64), streamed, "64 by 128 elements of 4 B, in place, by lines past"),
        (matrix(4, 4096, 4096), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(4, 4096, 16384), streamed, "128 by 32 elements of 4 B, in place, by lines past"),
        (matrix(2, 2016, 2016), streamed, "256 by 64 elements of 2 B, in place, by lines past"),
        (matrix(2, 4160, 4096), streamed, "256 by 32 elements of 2 B, in place, by lines past"),
        // All rows at one place of a second-level cache.
        (matrix(8, 4096, 8192), streamed, "32 by 16 elements of 8 B, in place, by lines past"),
        // Lines that are begun at few places of pages.
        (matrix(4, 256, 784), streamed, "32 by 32 elements of 4 B, in place, by lines past"),
        // At not so few, where visits are longer.
        (matrix(2, 2560, 64), streamed, "64 by 256 elements of 2 B, in place, by lines past"),
        (matrix(8, 1152, 128), streamed, "128 by 64 elements of 8 B, in place, by lines past"),
        (matrix(4, 12_544, 128), streamed, "128 by 64 elements of 4 B, in place, by lines past"),
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

#[test]
fn smaller_caches_get_smaller_parts() {
    let halves = available().find(|instance| instance.name == "emulated halves").unwrap();
    let at_line = std::ptr::without_provenance::<u8>(4096);
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

#[test]
fn each_kind_of_copies_has_its_own_crossover() {
    let crossover = model::Crossover { in_order: 1000, turned: 100 };
    let streamed =
        |copies: &[NdCopy], bytes| Stores::of(copies, bytes, crossover) == Stores::Streamed;
    let matrix = |extents: [u64; 2], bytes| {
        let (extents, gaps) = (extents.to_vec(), (0, 0));
        Shape { bytes, extents, src_order: vec![0, 1], dst_order: vec![1, 0], gaps }.copy()
    };
    let apart = [structures(&[4, 8], 300, false), run(5000), run(24), matrix([300, 300], 64)];
    // Pixels of less than a line are records; what is longer is a matrix.
    let images = [matrix([15, 300], 4), matrix([16, 300], 4)];
    for copy in apart.iter().chain([&images[0]]).map(slice::from_ref) {
        assert!(!streamed(copy, 999) && streamed(copy, 1000));
    }
    let mut gathered = matrix([64, 300], 64);
    gathered.dims[1].src_index = Some((0..300).rev().collect());
    let few = structures(&[4; 5], 255, false);
    let back = structures(&[4, 8], 300, true);
    let turned = [back, matrix([300, 4], 4), images[1].clone(), gathered, few];
    for copy in turned.iter().map(slice::from_ref) {
        assert!(!streamed(copy, 99) && streamed(copy, 100));
    }
    assert!(streamed(&[apart[0].clone(), images[1].clone()], 100), "the worst of several counts");
    let by = |threads| Stores::of(&apart[..1], 1999, crossover.by(threads)) == Stores::Streamed;
    assert!(by(0) && by(1) && !by(2) && !by(64), "two share what memory takes");
    let of_two = |in_order| model::Crossover { in_order, turned: 100 }.by(2).turned;
    assert_eq!([1000, 150].map(of_two), [1000, 200], "and wait for their caches at once");
}

/// Rows of columns turned round.
fn matrix(bytes: u64, rows: u64, columns: u64) -> NdCopy {
    let (extents, gaps) = (vec![rows, columns], (0, 0));
    Shape { bytes, extents, src_order: vec![1, 0], dst_order: vec![0, 1], gaps }.copy()
}

/// Miri takes minutes for any of these; others go the same ways.
fn is_long(copy: &NdCopy) -> bool {
    cfg!(miri) && copy.payload_bytes() > 20_000
}

/// The least of what goes past the caches in each way: also where a case takes long.
#[test]
fn the_least_of_each_way() {
    let best = available().next().unwrap();
    let told = |copy: &NdCopy| explain_by(&best, copy, std::ptr::null(), Stores::Streamed);
    let (halves, alone) = (best.abilities.lanes < 4, best.abilities.lanes < 2);
    let apart = if halves { "records of 8 B, 2 fields, taken apart" } else { "panels of 2 by 256" };
    let bytes = if halves { "panels of 64 by 128" } else { "panels of 64 by 512" };
    let of_run = ["panels of 53 by 64 ", "panels of 53 by 128 "];
    let of_run = of_run[usize::from(best.abilities.holds_lines())];
    let (rows, pixels) = match best.abilities.lanes {
        4 => ("panels of 32 by 32 elements of 8 B", of_run),
        2 => (
            "panels of 8 by 64 elements of 8 B, put together",
            "panels of 16 by 128 elements of 4 B, put together",
        ),
        _ => ("long rows, 256 by 128", "long rows, 512 by 53"),
    };
    let images_by = if halves { "panels of 32 by 37" } else { "panels of 16 by 37" };
    // Planes of so many bytes, of eight channels.
    let planes = |bytes: i64| {
        let block = 8 * bytes;
        looped(&[(2, block, block), (bytes.cast_unsigned() / 4, 32, 4), (8, 4, bytes)])
    };
    // Sixteen long rows each, to blocks of sixteen.
    let near = looped(&[(3, 33_792, 33_792), (16, 2112, 4), (528, 4, 64)]);
    let near_by = if alone { "panels of 32 by 16" } else { "panels of 528 by 16" };
    let images = looped(&[(3, 22_200, 22_200), (37, 600, 4), (150, 4, 148)]);
    let least = [
        (matrix(4, 259, 33), "long rows, 259 by 33"),
        (matrix(8, 256, 128), rows),
        (matrix(4, 512, 53), pixels),
        (matrix(8, 255, 128), "long rows, 255 by 128"),
        (matrix(12, 86, 6), "long rows, 86 by 6"),
        (matrix(2, 600, 64), "long rows, 600 by 64"),
        (matrix(4, 301, 64), "long rows, 301 by 64"),
        (matrix(8, 151, 32), "long rows, 151 by 32"),
        (matrix(16, 65, 8), "long rows, 65 by 8"),
        (matrix(4, 259, 16), "long rows, 259 by 16"),
        (matrix(8, 151, 8), "long rows, 151 by 8"),
        (matrix(1, 512, 64), bytes),
        (structures(&[1; 3], 256, false), "records of 3 B, 3 fields, taken apart"),
        (structures(&[4; 3], 259, true), "records of 12 B, 3 fields, put together"),
        (structures(&[1, 2, 4], 257, false), "records of 7 B, 3 fields, taken apart"),
        (structures(&[1, 2, 4], 257, true), "records of 7 B, 3 fields, put together"),
        (padded_structures(&[4; 2], 256, (0, 4096), false), apart),
        (padded_structures(&[2], 300, (5, 1), false), "records of 7 B, 1 fields, taken apart"),
        (images, images_by),
        (near, near_by),
        (planes(3072), "panels of 8 by 768 elements of 4 B, put together"),
        (planes(784), "panels of 8 by 196 elements of 4 B, put together"),
    ];
    for (copy, way) in least {
        assert!(told(&copy).starts_with(way), "{}", told(&copy));
        if is_long(&copy) {
            continue;
        }
        check(&copy, (1, 0));
        if !cfg!(miri) {
            check(&copy, (1, 4));
        }
    }
}

/// Packed, and with rows that are all at one place of a cache.
#[test]
fn the_least_of_squares() {
    let best = available().next().unwrap();
    let told = |copy: &NdCopy| explain_by(&best, copy, std::ptr::null(), Stores::Streamed);
    let halves = best.abilities.lanes < 4;
    let distant = looped(&[(64, 4, 16 << 10), (64, 16 << 10, 4)]);
    let squares = [matrix(2, 512, 40), matrix(4, 272, 19), matrix(8, 136, 9), matrix(16, 68, 7)];
    for copy in squares.into_iter().chain([distant]) {
        assert!(halves || told(&copy).contains("in place, by lines past"), "{}", told(&copy));
        if !is_long(&copy) {
            check(&copy, (1, 0));
        }
    }
}

/// Whatever the processor is on which tests run.
#[test]
fn fields_of_any_sizes_go_by_windows_where_vectors_take_such() {
    let abilities = |lanes, unit_bytes| Abilities {
        lanes,
        unit_bytes,
        masks: lanes == 4,
        scatters: false,
        is_wide: false,
        caches: Caches::MEASURED,
    };
    let none = abilities(1, usize::MAX);
    let told = |copy: &NdCopy, by| Way::of(copy, 0, Stores::Streamed, by).to_string();
    let by_windows = |copy: &NdCopy, by| told(copy, by).contains(", by windows, ");
    let in_caches = |copy: &NdCopy| Way::of(copy, 0, Stores::Cached, abilities(2, 4)).to_string();
    for back in [false, true] {
        let bytes = structures(&[1, 2, 4, 8], 100_000, back);
        assert!(by_windows(&bytes, abilities(4, 1)));
        assert!(!by_windows(&bytes, abilities(4, 4)) && !by_windows(&bytes, none));
        assert!(told(&bytes, abilities(2, 4)).contains("by halves"));
        assert!(in_caches(&bytes).contains("by halves"));
        assert!(!in_caches(&structures(&[1, 2], 900, back)).contains("by halves"), "2700 bytes");
        let behind = structures(&[2, 8, 8, 1, 1], 100_000, back);
        assert_eq!(told(&behind, abilities(2, 4)).contains("by halves"), !back);
        let words = structures(&[12, 8], 100_000, back);
        assert!(by_windows(&words, abilities(4, 4)) && by_windows(&words, abilities(2, 4)));
        assert!(!by_windows(&words, none));
        let long = structures(&[16, 32], 100_000, back);
        assert!(!by_windows(&long, abilities(4, 1)), "these are vectors as they are");
        let three = structures(&[4; 3], 100_000, back);
        let amd = Abilities { scatters: true, ..abilities(4, 1) };
        assert!(by_windows(&three, abilities(4, 1)));
        assert_eq!(told(&three, amd).contains("by tables"), back);
        for (by, way) in
            [(abilities(4, 1), "picked"), (amd, "picked"), (abilities(2, 4), "by tables")]
        {
            let cached = Way::of(&three, 0, Stores::Cached, by).to_string();
            assert!(cached.contains(way), "{cached}");
        }
    }
    // So many groups that twelve lines are asked for before each vector, those of gaps among them; and no
    // more than a first-level cache holds of this block and the next.
    let four = |back| structures(&[4; 3], 100_000, back);
    let gaps = padded_structures(&[4, 8], 100_000, (4, 1), false);
    let long = structures(&[1, 30], 100_000, true);
    for (copy, block) in [(four(false), 192), (four(true), 192), (gaps, 144), (long, 512)] {
        let told = told(&copy, abilities(4, 1));
        assert!(told.contains(&format!(" {block} at once, by windows")), "{told}");
    }
    // Lines of two vectors ask for a line each: then a block is 8 KiB.
    let two = told(&structures(&[12, 8], 100_000, false), abilities(2, 4));
    assert!(two.contains(" 400 at once, by windows"), "{two}");
    let sparse = padded_structures(&[4, 8], 100_000, (24, 1), false);
    assert!(!by_windows(&sparse, abilities(4, 4)), "most of a window is of no use");
    // Gaps that are not to be written take masks, are too large for the caches, and no processor of AMD's.
    let gaps = padded_structures(&[4, 8], 100_000, (4, 1), true);
    let by_masks = "records of 16 B, 2 fields, put together 128 at once, by windows, between gaps";
    assert_eq!(told(&gaps, abilities(4, 4)), by_masks);
    let amd = Abilities { scatters: true, ..abilities(4, 1) };
    for by in [Abilities { masks: false, ..abilities(4, 4) }, amd, abilities(2, 4)] {
        let one_by_one = "records of 16 B, 2 fields, put together 128 at once, between gaps";
        assert_eq!(told(&gaps, by), one_by_one);
    }
    let cached = Way::of(&gaps, 0, Stores::Cached, abilities(4, 1)).to_string();
    assert!(cached.starts_with("2 fields, element by element"), "{cached}");
}
