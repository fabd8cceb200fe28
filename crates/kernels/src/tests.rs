//! Every instance and every way of writing against the naive copy.

mod alike;
mod choices;
mod ends;
mod guarded;
mod halves;
mod hybrids;
mod lines;
mod narrow;
mod nested;
mod padded;
mod picks;
mod rows;
mod short;
mod squares;
mod windows;
mod zen;

use crate::caches::{Cache, Caches};
use crate::instance::{Instance, ZEN_4, ZEN_5, available};
use crate::strategy::Strategy as Way;
use crate::vector::Abilities;
use crate::{Stores, copy_by, explain_by};
use layout::{CopyDim, FieldCopy, NdCopy, Stride, oracle, touched};
use proptest::prelude::*;
use std::slice;
use std::sync::{Arc, LazyLock};

/// Random copies for each property, and the bytes of the largest: Miri is ten thousand times slower.
const CASES: u32 = if cfg!(miri) { 8 } else { 400 };
const MOST_BYTES: u64 = if cfg!(miri) { 3000 } else { 100_000 };
const STORES: [Stores; 2] = [Stores::Cached, Stores::Streamed];

/// Elements in loops that nest in one order on either side, with gaps between rows.
#[derive(Debug, Clone)]
struct Shape {
    bytes: u64,
    extents: Vec<u64>,
    src_order: Vec<usize>,
    dst_order: Vec<usize>,
    /// What the innermost rows are longer by, on either side.
    gaps: (u64, u64),
}

fn shapes() -> impl Strategy<Value = Shape> {
    let bytes = prop_oneof![
        6 => prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        2 => prop::sample::select(vec![3u64, 6, 12, 24, 32, 48, 64, 192]),
        1 => 1u64..200,
    ];
    let extent = prop_oneof![
        3 => 1u64..9,
        2 => 9u64..70,
        2 => prop::sample::select(vec![16u64, 32, 64, 128]),
        1 => prop::sample::select(vec![61u64, 131, 257, 1021]),
    ];
    let gaps = prop_oneof![2 => Just((0u64, 0u64)), 1 => (0u64..3, 0u64..3), 1 => Just((0, 64))];
    (bytes, prop::collection::vec(extent, 1..5), gaps).prop_flat_map(
        |(bytes, mut extents, gaps)| {
            while bytes * extents.iter().product::<u64>() > MOST_BYTES {
                extents.pop();
            }
            let order = || Just((0..extents.len()).collect::<Vec<_>>()).prop_shuffle();
            (Just(extents.clone()), order(), order()).prop_map(
                move |(extents, src_order, dst_order)| Shape {
                    bytes,
                    extents,
                    src_order,
                    dst_order,
                    gaps,
                },
            )
        },
    )
}

impl Shape {
    fn strides(&self, order: &[usize], gap: u64) -> Vec<i64> {
        let mut strides = vec![0; self.extents.len()];
        let mut step = self.bytes;
        for (inner, &k) in order.iter().enumerate() {
            strides[k] = step.cast_signed();
            step = step * self.extents[k] + if inner == 0 { gap * self.bytes } else { 0 };
        }
        strides
    }

    fn copy(&self) -> NdCopy {
        let src = self.strides(&self.src_order, self.gaps.0);
        let dst = self.strides(&self.dst_order, self.gaps.1);
        let strides = src.iter().zip(&dst).map(|(&src, &dst)| Stride { src, dst }).collect();
        let dim = |&extent: &u64| CopyDim { extent, src_index: None, dst_index: None };
        let field =
            FieldCopy { bytes: self.bytes, src_offset: 0, dst_offset: 0, padding: 0, strides };
        NdCopy { dims: self.extents.iter().map(dim).collect(), fields: vec![field] }
    }
}

/// Structures of fields of these sizes to one array for each, or back.
fn structures(sizes: &[u64], count: u64, back: bool) -> NdCopy {
    padded_structures(sizes, count, (0, 1), back)
}

/// As [`structures`], with bytes behind each structure; arrays start at multiples of a number.
fn padded_structures(
    sizes: &[u64],
    count: u64,
    (padding, apart): (u64, u64),
    back: bool,
) -> NdCopy {
    let whole: u64 = sizes.iter().sum::<u64>() + padding;
    let (mut before, mut start) = (0, 0);
    let field = |&bytes: &u64| {
        let (aos, soa) = ((before, whole), (start, bytes));
        before += bytes;
        start = (start + bytes * count).next_multiple_of(apart);
        let (src, dst) = if back { (soa, aos) } else { (aos, soa) };
        FieldCopy {
            bytes,
            src_offset: src.0.cast_signed(),
            dst_offset: dst.0.cast_signed(),
            padding: 0,
            strides: vec![Stride { src: src.1.cast_signed(), dst: dst.1.cast_signed() }],
        }
    };
    let dims = vec![CopyDim { extent: count, src_index: None, dst_index: None }];
    NdCopy { dims, fields: sizes.iter().map(field).collect() }
}

/// A vector whose bytes from `at` on start `base` behind a multiple of 64.
fn aligned(len: usize, base: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0xEE; len + base + 128];
    let at = buffer.as_ptr().addr().wrapping_neg() % 64 + base;
    (buffer, at)
}

/// Bytes that tell where they are from.
fn source(len: usize) -> Vec<u8> {
    /// They repeat themselves from here on.
    static PERIOD: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..128 * 251).map(|i| (i * 31 + i / 251) as u8).collect());
    let mut bytes = PERIOD.repeat(len.div_ceil(PERIOD.len()));
    bytes.truncate(len);
    bytes
}

/// Small caches, of which no part is a power of two.
const SMALL: Caches = Caches {
    first: Cache { bytes: 2880, ways: 3 },
    second: Cache { bytes: 17 << 10, ways: 5 },
    third_bytes: 1 << 10,
    pages: 23,
};

/// Rows of columns turned round.
fn matrix(bytes: u64, rows: u64, columns: u64) -> NdCopy {
    let (extents, gaps) = (vec![rows, columns], (0, 0));
    Shape { bytes, extents, src_order: vec![1, 0], dst_order: vec![0, 1], gaps }.copy()
}

/// What is best on some machine: on this one, where vectors are lines, and where they are halves of them. These two
/// are emulated, so that what the others choose is told on every machine.
fn bests() -> impl Iterator<Item = Instance> {
    let emulated = available().filter(|instance| instance.name.starts_with("emulated"));
    available().take(1).chain(emulated)
}

/// Vectors that are lines, which the processor doesn't scatter: emulated, so that no choice depends on the machine.
fn of_lines() -> Instance {
    let emulated = available().find(|instance| instance.name == "emulated").unwrap();
    emulated.on(None).with(Caches::MEASURED)
}

/// Vectors of half a line, likewise.
fn halves() -> Instance {
    available().find(|instance| instance.name == "emulated halves").unwrap()
}

/// Every instance, for processors that scatter lines and for those that don't, and both for small caches; and lines by units.
fn each_ability() -> impl Iterator<Item = Instance> {
    let each = |instance: Instance| {
        let all = [None, Some(ZEN_4), Some(ZEN_5)].map(|amd| instance.on(amd));
        all.into_iter().chain([instance, instance.on(Some(ZEN_5))].map(|it| it.with(SMALL)))
    };
    available().flat_map(each).chain([lines::of_units()])
}

/// Whether the processor scatters lines or has small caches, but `told` says that it goes the same way as if it
/// didn't: Miri has no time for that.
fn is_spared(instance: &Instance, told: impl Fn(&Instance) -> String) -> bool {
    let Abilities { scatters, caches, .. } = instance.abilities;
    let plain = instance.on(None).with(Caches::MEASURED);
    cfg!(miri) && (scatters || caches == SMALL) && told(instance) == told(&plain)
}

/// Runs `copy` with all instances in all ways, at these distances from a line's start.
fn check(copy: &NdCopy, bases: (usize, usize)) {
    let (read, written) = touched(copy);
    let (mut src, from) = aligned(read.end as usize, bases.0);
    let bytes = source(src.len());
    src.copy_from_slice(&bytes);
    let mut moved = vec![0xEE; written.end as usize];
    oracle::copy(copy, &src, from, &mut moved, 0);
    for instance in each_ability() {
        for stores in STORES {
            let (mut dst, to) = aligned(moved.len(), bases.1);
            let mut expected = dst.clone();
            expected[to..to + moved.len()].copy_from_slice(&moved);
            let ends = (src[from..].as_ptr(), dst[to..].as_mut_ptr());
            let told = |instance: &Instance| explain_by(instance, copy, ends.1, stores);
            if is_spared(&instance, told) {
                continue;
            }
            // SAFETY: the buffers hold what the copy touches; the instance is available.
            unsafe { copy_by(&instance, copy, ends, stores) };
            padded::let_be(copy, &dst, (&mut expected, to));
            assert!(dst == expected, "{} {stores:?}: {}: {copy:?}", instance.name, told(&instance));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn permuted_loops(shape in shapes(), src in 0usize..3, dst in prop::sample::select(vec![0usize, 1, 4, 16, 60])) {
        check(&shape.copy(), (src, dst));
    }

    #[test]
    fn structures_and_arrays(
        sizes in prop_oneof![
            (1usize..18, prop::sample::select(vec![1u64, 2, 4, 8, 12, 16])).prop_map(|(n, e)| vec![e; n]),
            (1usize..66, prop::sample::select(vec![1u64, 2, 4])).prop_map(|(n, e)| vec![e; n]),
            prop::collection::vec(prop::sample::select(vec![1u64, 2, 4, 8, 12]), 1..6),
            prop::collection::vec(prop::sample::select(vec![4u64, 8, 12, 24, 36]), 1..5),
            prop::collection::vec(1u64..20, 1..5),
        ],
        count in prop_oneof![1u64..40, 256u64..300, prop::sample::select(vec![64, 509, 1025, 2100])],
        (padding, apart) in prop_oneof![Just((0, 1)), Just((0, 4096)), (0u64..9, Just(1))],
        back: bool,
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 4, 60])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES / sizes.iter().sum::<u64>() } else { count };
        let count = count.min(most);
        check(&padded_structures(&sizes, count, (padding, apart), back), bases);
    }

    #[test]
    fn long_rows(
        bytes in prop::sample::select(vec![1u64, 2, 3, 4, 8, 12, 16, 32, 48]),
        extents in prop::collection::vec(2u64..90, 2..5),
        turned in 1usize..4,
        gap in 0u64..2,
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 4, 60])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES } else { 4 * MOST_BYTES };
        let mut extents = extents;
        while bytes * extents.iter().product::<u64>() > most {
            extents.pop();
        }
        let src_order: Vec<usize> = (0..extents.len()).collect();
        let mut dst_order = src_order.clone();
        dst_order.rotate_left(turned.min(extents.len()));
        check(&Shape { bytes, extents, src_order, dst_order, gaps: (gap, 0) }.copy(), bases);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Rows whose distance is a multiple of one that few places of the caches have.
    #[test]
    fn rows_at_few_places(
        bytes in prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        (a, b, turns) in (1u64..300, prop_oneof![1u64..300, prop::sample::select(vec![64, 128, 256])], 1u64..3),
        apart in prop::sample::select(vec![1u64, 64, 512]),
        bases in (0usize..3, prop::sample::select(vec![0usize, 0, 4])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES } else { 8 * MOST_BYTES };
        let a = a.min(most / (bytes * b)).max(1);
        let rows = ((a * bytes).next_multiple_of(512), (b * bytes).next_multiple_of(apart));
        let strides = [(turns, b * rows.0, a * rows.1), (b, rows.0, bytes), (a, bytes, rows.1)];
        let strides = strides.map(|(n, src, dst)| (n, src.cast_signed(), dst.cast_signed()));
        let mut copy = looped(&strides);
        copy.fields[0].bytes = bytes;
        check(&copy, bases);
    }

    /// Rows of the destination that are an even number of lines apart, of several squares with sides of a line.
    #[test]
    fn several_squares_at_once(
        bytes in prop::sample::select(vec![2u64, 4, 4, 8]),
        (a, b) in (16u64..150, 1u64..6),
        (turns, gap, apart) in (1u64..3, prop::sample::select(vec![0u64, 0, 1, 64]), 0u64..2),
        bases in (0usize..3, prop::sample::select(vec![0usize, 0, 0, 64, 4])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES } else { 8 * MOST_BYTES };
        let b = b * 128 / bytes;
        let a = a.min(most / (b * bytes)).max(1);
        let (row, to) = (a * bytes + gap, b * bytes + apart * 128);
        let strides = [(turns, b * row, a * to), (b, row, bytes), (a, bytes, to)];
        let strides = strides.map(|(n, src, dst)| (n, src.cast_signed(), dst.cast_signed()));
        let mut copy = looped(&strides);
        copy.fields[0].bytes = bytes;
        check(&copy, bases);
    }

    /// Rows that follow each other, most of them whole lanes but not whole lines.
    #[test]
    fn rows_of_lanes(
        bytes in prop::sample::select(vec![2u64, 4, 4, 8, 8, 16]),
        (a, lanes) in (prop_oneof![1u64..70, prop::sample::select(vec![8, 16, 36, 128])], 1u64..150),
        (turns, less) in (1u64..3, prop::sample::select(vec![0u64, 0, 0, 1])),
        gap in prop::sample::select(vec![0u64, 0, 1, 60, 4096]),
        bases in (0usize..3, prop::sample::select(vec![0usize, 0, 0, 16, 4])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES } else { 4 * MOST_BYTES };
        let b = (lanes * 16 / bytes - less).min(most / (a * bytes)).max(1);
        let row = if gap == 4096 { (a * bytes).next_multiple_of(gap) } else { a * bytes + gap };
        let strides = [(turns, b * row, a * b * bytes), (b, row, bytes), (a, bytes, b * bytes)];
        let strides = strides.map(|(n, src, dst)| (n, src.cast_signed(), dst.cast_signed()));
        let mut copy = looped(&strides);
        copy.fields[0].bytes = bytes;
        check(&copy, bases);
    }

    #[test]
    fn runs_in_tiles(
        bytes in prop::sample::select(vec![32u64, 64, 96, 100, 128, 256, 320, 1500]),
        (extents, turned) in (prop::collection::vec(2u64..40, 2..4), 1usize..3),
        gaps in (0u64..2, 0u64..2),
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 60])),
    ) {
        let most = if cfg!(miri) { MOST_BYTES } else { 8 * MOST_BYTES };
        let mut extents = extents;
        while bytes * extents.iter().product::<u64>() > most {
            let longest = extents.iter_mut().max().expect("two or three");
            *longest = longest.div_ceil(2);
        }
        let src_order: Vec<usize> = (0..extents.len()).collect();
        let mut dst_order = src_order.clone();
        dst_order.rotate_left(turned.min(extents.len() - 1));
        check(&Shape { bytes, extents, src_order, dst_order, gaps }.copy(), bases);
    }

    #[test]
    fn runs_where_a_table_says(
        bytes in prop::sample::select(vec![1u64, 3, 4, 8, 12, 16, 48, 64, 100, 128, 192, 640, 1500, 2048]),
        (places, rows) in (1u64..70, 1u64..4),
        tables in prop::sample::select(vec![(true, false), (false, true), (true, true)]),
        seed: u64,
        outside: bool,
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 60])),
    ) {
        let places = if cfg!(miri) { places.min(MOST_BYTES / bytes) } else { places };
        let src_index = tables.0.then(|| shuffled(places, seed));
        let dst_index = tables.1.then(|| shuffled(places, !seed));
        let places = CopyDim { extent: places, src_index, dst_index };
        let rows = CopyDim { extent: rows, src_index: None, dst_index: None };
        // The rows are outside the places, or inside them.
        let (run, whole) = (bytes.cast_signed(), (bytes * places.extent).cast_signed());
        let gap = run * rows.extent.cast_signed();
        let strides = match outside {
            true => [Stride { src: whole, dst: whole }, Stride { src: run, dst: run }],
            false => [Stride { src: whole, dst: run }, Stride { src: run, dst: gap }],
        };
        let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: strides.to_vec() };
        check(&NdCopy { dims: vec![rows, places], fields: vec![field] }, bases);
    }

    /// Hybrids and structures: turned blocks, one behind the other or apart.
    #[test]
    fn blocks(
        bytes in prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        (a, b) in (1u64..20, prop::sample::select(vec![1u64, 2, 3, 4, 8, 16])),
        count in prop_oneof![1u64..20, prop::sample::select(vec![64, 67])],
        gaps in prop::sample::select(vec![(0, 0), (0, 0), (0, 64), (0, 4), (16, 0), (5, 64)]),
        bases in (0usize..3, prop::sample::select(vec![0usize, 0, 4])),
    ) {
        let block = bytes * a * b;
        let count = if cfg!(miri) { count.min((MOST_BYTES / block).max(1)) } else { count };
        let strides = [
            (count, block + gaps.0, block + gaps.1),
            (b, bytes * a, bytes),
            (a, bytes, bytes * b),
        ];
        let strides = strides.map(|(n, src, dst)| (n, src.cast_signed(), dst.cast_signed()));
        let mut copy = looped(&strides);
        copy.fields[0].bytes = bytes;
        check(&copy, bases);
    }
}

/// The numbers below `count` in some order.
fn shuffled(count: u64, seed: u64) -> Arc<[u64]> {
    let mut all: Vec<u64> = (0..count).collect();
    all.sort_by_key(|&i| (i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
    all.into()
}

/// A copy of elements of 4 bytes in loops of (turns, source stride, destination stride).
fn looped(loops: &[(u64, i64, i64)]) -> NdCopy {
    let dim =
        |&(extent, ..): &(u64, i64, i64)| CopyDim { extent, src_index: None, dst_index: None };
    let strides = loops.iter().map(|&(_, src, dst)| Stride { src, dst }).collect();
    let field = FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: loops.iter().map(dim).collect(), fields: vec![field] }
}

#[test]
fn whole_lines_of_which_an_outer_loop_starts_inside_one() {
    check(&looped(&[(3, 1024, 1028), (16, 4, 64), (16, 64, 4)]), (0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "several panels of 128 KiB")]
fn panels_that_ask_for_others() {
    // Runs of the source, of which the last is short; all rows of the destination; image by image.
    let runs = [(1712, 160, 4), (40, 4, 6848)];
    let rows = [(600, 4, 320), (80, 2400, 4)];
    let images = [(3, 12_288, 12_288), (64, 192, 4), (48, 4, 256)];
    for copy in [looped(&runs), looped(&rows), looped(&images)] {
        check(&copy, (0, 0));
    }
}

#[test]
fn fields_without_bytes() {
    let count = if cfg!(miri) { 300 } else { 5000 };
    let mut copy = looped(&[(count, 4, 4)]);
    let dst_offset = (4 * count + 1).cast_signed();
    copy.fields.push(FieldCopy { bytes: 0, dst_offset, ..copy.fields[0].clone() });
    check(&copy, (0, 0));
    copy.fields.remove(0);
    check(&copy, (0, 0));
}

/// Runs of the source are followed or asked for, and tiles of it are of several, where lines may be scattered.
#[test]
fn scattered_runs() {
    for (bytes, extents) in
        [(128, [64, 5]), (128, [80, 5]), (320, [5, 7]), (32, [64, 6]), (32, [38, 5]), (64, [9, 3])]
    {
        let (src_order, dst_order) = (vec![0, 1], vec![1, 0]);
        let shape = Shape { bytes, extents: extents.to_vec(), src_order, dst_order, gaps: (0, 0) };
        check(&shape.copy(), (0, 0));
    }
}

/// Also of sizes that no body is for, which are moved by their two ends.
#[test]
fn elements_of_each_size() {
    for bytes in 1..=80 {
        let (src_order, dst_order) = (vec![0, 1], vec![1, 0]);
        let shape = Shape { bytes, extents: vec![9, 17], src_order, dst_order, gaps: (1, 0) };
        check(&shape.copy(), (1, 0));
    }
}

/// Fields that a group of records has in other records, further on than a window tells.
#[test]
fn fields_of_other_records() {
    let field = |bytes: u64, at, dst| {
        let strides = vec![Stride { src: 12, dst: bytes.cast_signed() }];
        FieldCopy { bytes, src_offset: at, dst_offset: dst, padding: 0, strides }
    };
    let count = if cfg!(miri) { 300 } else { 100_000 };
    let dims = vec![CopyDim { extent: count, src_index: None, dst_index: None }];
    let fields = vec![field(4, 0, 0), field(8, 65_536, 4 * count.cast_signed())];
    check(&NdCopy { dims, fields }, (0, 0));
}

/// Lanes write the pieces of one copy at once.
#[test]
fn pieces_of_records_are_apart() {
    let all = [[2, 0, 1], [0, 1, 2]];
    let (count, orders) = if cfg!(miri) { (800, &all[..1]) } else { (2100, &all[..]) };
    for back in [false, true] {
        let whole = structures(&[4, 8, 12], count, back);
        let bytes = whole.payload_bytes() as usize;
        let (src, mut expected) = (source(bytes), vec![0; bytes]);
        oracle::copy(&whole, &src, 0, &mut expected, 0);
        let pieces = crate::split(&whole, 3);
        let told = |by: &Instance| explain_by(by, &whole, std::ptr::null(), Stores::Streamed);
        for instance in each_ability().filter(|instance| !is_spared(instance, told)) {
            for order in orders {
                let mut dst = vec![0xEE; bytes];
                for piece in order.map(|i| &pieces[i]) {
                    let at = (src.as_ptr(), dst.as_mut_ptr());
                    // SAFETY: both are as long as the whole.
                    unsafe { copy_by(&instance, piece, at, Stores::Streamed) };
                }
                assert!(dst == expected, "{back} {order:?}");
            }
        }
    }
}

/// Rows that start with their first whole line in the middle of a field, or of a unit of it.
#[test]
fn windows_from_any_byte_of_a_line() {
    // Of several blocks each, but for Miri.
    let all = [&[1, 2, 4, 8][..], &[12, 24], &[12, 8], &[12; 3], &[1, 7, 2]];
    let (count, sizes, distances) = match cfg!(miri) {
        true => (259, &all[..2], &[37][..]),
        false => (3003, &all[..], &[0, 1, 4, 37, 63][..]),
    };
    for sizes in sizes {
        for back in [false, true] {
            for &to in distances {
                check(&structures(sizes, count, back), (3, to));
                check(&structures(sizes, count, back), (0, to));
            }
        }
    }
}

#[test]
fn as_few_structures_as_windows_take() {
    // Also of so many fields that a line is made of six windows and more.
    for sizes in [&[1, 2, 4][..], &[4, 1, 2, 1, 2, 2], &[2, 1, 1, 2, 1, 1, 1, 1, 1, 1]] {
        for back in [false, true] {
            check(&structures(sizes, 257, back), (1, 4));
        }
    }
}

/// Of one column, of several, and of fields that are in none; columns may reach behind the last record.
#[test]
fn small_fields_by_halves() {
    let all = [
        &[1, 2, 4, 8][..],
        &[8, 8, 4, 2, 2],
        &[4, 1, 1],
        &[1, 2],
        &[2, 8, 8, 1, 1],
        &[1, 8, 2, 4],
        &[4, 3, 1, 2, 8, 2, 4, 1],
        &[1, 2, 1, 1, 4, 1, 1, 1, 1, 1, 1, 1],
    ];
    let (count, all) = if cfg!(miri) { (385, &all[..3]) } else { (1281, &all[..]) };
    for sizes in all {
        for back in [false, true] {
            for (padding, to) in [(0, 0), (0, 37), (3, 1)] {
                check(&padded_structures(sizes, count, (padding, 1), back), (3, to));
            }
        }
    }
}

#[test]
fn records_by_tables_of_each_number_of_fields() {
    for fields in [5, 6, 7] {
        for back in [false, true] {
            let copy = structures(&vec![1; fields], 259, back);
            for instance in available() {
                let told = explain_by(&instance, &copy, std::ptr::null(), Stores::Streamed);
                assert!(told.contains("by tables"), "{told}");
            }
            check(&copy, (1, 4));
        }
    }
}

/// One run.
fn run(bytes: u64) -> NdCopy {
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: vec![] };
    NdCopy { dims: vec![], fields: vec![field] }
}

#[test]
fn one_run_at_any_distance_from_a_line() {
    // The last is copied by parts, twice, and has a rest.
    let long = if cfg!(miri) { 5003 } else { 450_003 };
    for bytes in [1, 1535, 1536, 4096, long] {
        for bases in [(0, 0), (0, 63), (1, 3), (60, 16)] {
            check(&run(bytes), bases);
        }
    }
    let (extents, gaps) = (vec![long, 3], (5, 64));
    let rows = Shape { bytes: 1, extents, src_order: vec![0, 1], dst_order: vec![0, 1], gaps };
    check(&rows.copy(), (1, 3));
}

#[test]
fn a_panel_of_fewer_rows_than_a_square_has() {
    // A row more than a panel has; or three more than two have.
    let (side, panel) = if cfg!(miri) { (129, 128) } else { (257, 127) };
    let (extents, gaps) = (vec![side, side], (0, 0));
    let copy =
        Shape { bytes: 1, extents, src_order: vec![1, 0], dst_order: vec![0, 1], gaps }.copy();
    for instance in available() {
        let told = explain_by(&instance, &copy, std::ptr::null(), Stores::Streamed);
        assert!(told.starts_with(&format!("panels of {panel} by {side} ")), "{told}");
    }
    check(&copy, (0, 0));
}
