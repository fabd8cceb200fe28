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
    bests().for_each(tell_the_way);
}

fn tell_the_way(best: Instance) {
    let transpose = |side: u64, bytes: u64| {
        let (extents, gaps) = (vec![side, side], (0, 0));
        Shape { bytes, extents, src_order: vec![0, 1], dst_order: vec![1, 0], gaps }.copy()
    };
    let at_line = std::ptr::without_provenance::<u8>(4096);
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
        // Boxes, or rows that are read from end to end.
        4 => (panels("128 by 32"), panels("128 by 32")),
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
    let later = if best.abilities.holds_lines() { ", asked for far ahead" } else { "" };
    says(&pages, Stores::Streamed, &format!("runs of 4096 B{later}, past the caches ("));
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
    bests().for_each(tell_the_reason);
}

fn tell_the_reason(best: Instance) {
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
    bests().for_each(tell_of_rows_and_hybrids);
}

fn tell_of_rows_and_hybrids(best: Instance) {
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
    let (held, scattered) = (of_lines(), of_lines().on(Some(ZEN_4)));
    let at_line = std::ptr::without_provenance::<u8>(4096);
    for (loops, panels) in [
        (&[(1712, 160, 4), (40, 4, 6848)][..], ["40 by 832"; 2]),
        (&[(600, 4, 320), (80, 2400, 4)], ["64 by 80"; 2]),
        // Of few rows of the destination: read from end to end, if nothing lies between blocks, and written by
        // squares with sides of a line, inside lanes, or out of registers.
        (&[(12_544, 64, 4), (16, 4, 50_176)], ["16 by 12544"; 2]),
        (&[(3, 802_816, 802_816), (12_544, 64, 4), (16, 4, 50_176)], ["16 by 12544"; 2]),
        (&[(12_544, 96, 4), (24, 4, 50_176)], ["24 by 128", "24 by 1408"]),
        (&[(12_544, 32, 4), (8, 4, 50_176)], ["8 by 12544", "8 by 128"]),
        (&[(12_544, 16, 4), (4, 4, 50_176)], ["4 by 12544", "4 by 128"]),
        (&[(3, 802_880, 802_816), (12_544, 64, 4), (16, 4, 50_176)], ["16 by 128", "16 by 2048"]),
    ] {
        for (instance, panels) in [held, scattered].iter().zip(panels) {
            let told = explain_by(instance, &looped(loops), at_line, Stores::Streamed);
            let panels = format!("panels of {panels} elements of 4 B, in place, by lines past");
            assert!(told.starts_with(&panels), "{told}");
        }
        check(&looped(loops), (0, 0));
    }
}

#[test]
fn hybrids_are_read_from_end_to_end() {
    let lines = of_lines();
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
        for (instance, way) in [(lines, held), (lines.on(Some(ZEN_4)), scattered)] {
            let told = explain_by(&instance, &copy, at_line, Stores::Streamed);
            assert!(told.starts_with(way), "{told}");
        }
        check(&copy, (0, 0));
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

/// Miri takes minutes for any of these; others go the same ways.
fn is_long(copy: &NdCopy) -> bool {
    cfg!(miri) && copy.payload_bytes() > 20_000
}

/// The least of what goes past the caches in each way: also where a case takes long.
#[test]
fn the_least_of_each_way() {
    for best in bests() {
        for (copy, way) in least(&best) {
            let told = explain_by(&best, &copy, std::ptr::null(), Stores::Streamed);
            assert!(told.starts_with(way), "{}: {told}", best.name);
        }
    }
    for (copy, _) in least(&of_lines()) {
        if is_long(&copy) {
            continue;
        }
        check(&copy, (1, 0));
        if !cfg!(miri) {
            check(&copy, (1, 4));
        }
    }
}

fn least(best: &Instance) -> Vec<(NdCopy, &'static str)> {
    let halves = best.abilities.lanes < 4;
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
    let near_by = match best.abilities.lanes {
        4 => "panels of 64 by 16",
        2 => "panels of 528 by 16",
        _ => "panels of 32 by 16",
    };
    let images = looped(&[(3, 22_200, 22_200), (37, 600, 4), (150, 4, 148)]);
    vec![
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
    ]
}

/// Packed, and with rows that are all at one place of a cache.
#[test]
fn the_least_of_squares() {
    let lines = of_lines();
    let told = |copy: &NdCopy| explain_by(&lines, copy, std::ptr::null(), Stores::Streamed);
    let distant = looped(&[(64, 4, 16 << 10), (64, 16 << 10, 4)]);
    let squares = [matrix(2, 512, 40), matrix(4, 272, 19), matrix(8, 136, 9), matrix(16, 68, 7)];
    for copy in squares.into_iter().chain([distant]) {
        assert!(told(&copy).contains("in place, by lines past"), "{}", told(&copy));
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
