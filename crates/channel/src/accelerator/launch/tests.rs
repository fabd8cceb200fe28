//! Launches against the oracle: what the kernels do is done here, in their order.

use super::*;
use crate::conformance::{Draw, Shape, nested as copy};
use layout::NdCopy;
use std::ops::Range;
use std::slice::from_ref;

fn launches(copies: &[NdCopy], bases: (u64, u64)) -> Vec<Launch> {
    Launches::new(copies.into(), bases).collect()
}

/// The tile of a group: its loops, where it starts, and how much of the loops is left there.
struct Tile {
    loops: [TiledLoop; TILE_LOOPS],
    src: i64,
    dst: i64,
    left: [u32; TILE_LOOPS],
}

impl Tile {
    fn of(launch: &Launch, group: usize) -> Self {
        let Parameters { loops, starts, rank, .. } = launch.parameters();
        let (mut group, mut left) = (group as u32, [0; TILE_LOOPS]);
        let (mut src, mut dst) = (0, 0);
        for (n, l) in loops[..rank as usize].iter().enumerate() {
            let turn = (group % l.tiles) << l.log2;
            group /= l.tiles;
            src += l.src * i64::from(turn);
            dst += l.dst * i64::from(turn);
            if n < TILE_LOOPS {
                left[n] = l.count - turn;
            }
        }
        let start = starts[group as usize];
        let loops = [0, 1, 2].map(|n| loops[n]);
        Tile { loops, src: src + start.src, dst: dst + start.dst, left }
    }

    fn area(&self) -> usize {
        1 << self.loops.iter().map(|l| l.log2).sum::<u32>()
    }

    /// The turns of its loops, so many at once along `first`, and then those along `second`.
    fn turns(
        &self,
        (first, second): (usize, usize),
        at_once: usize,
    ) -> impl Iterator<Item = [u32; TILE_LOOPS]> {
        let (log, logs) =
            (self.loops[first].log2, self.loops[first].log2 + self.loops[second].log2);
        let turn = move |at: usize| {
            let mut turn = [0, 0, at as u32 >> logs];
            turn[first] = at as u32 & ((1 << log) - 1);
            turn[second] = (at as u32 & ((1 << logs) - 1)) >> log;
            turn
        };
        let is_inside =
            |turn: &[u32; TILE_LOOPS]| turn.iter().zip(self.left).all(|(&n, left)| n < left);
        (0..self.area()).step_by(at_once).map(turn).filter(is_inside)
    }

    /// How far a turn lies from the first on a side.
    fn way(&self, turn: [u32; TILE_LOOPS], side: fn(&TiledLoop) -> i64) -> i64 {
        self.loops.iter().zip(turn).map(|(l, n)| i64::from(n) * side(l)).sum()
    }
}

/// So many bytes of a side; what is moved at once starts at multiples of its size.
fn range(at: i64, bytes: usize) -> Range<usize> {
    let at = at as usize;
    assert!(at.is_multiple_of(bytes), "{bytes} bytes at {at}");
    at..at + bytes
}

/// What the kernels do, one work item after the other.
fn run(launch: &Launch, from: &[u8], to: &mut [u8]) {
    for group in 0..launch.groups() {
        let tile = Tile::of(launch, group);
        if launch.kernel.turns {
            turn(launch, &tile, from, to);
        } else {
            straight(launch, &tile, from, to);
        }
    }
}

fn straight(launch: &Launch, tile: &Tile, from: &[u8], to: &mut [u8]) {
    let bytes = launch.kernel.bytes;
    for turn in tile.turns((0, 1), 1) {
        let src = range(tile.src + tile.way(turn, |l| l.src), bytes);
        let dst = range(tile.dst + tile.way(turn, |l| l.dst), bytes);
        to[dst].copy_from_slice(&from[src]);
    }
}

fn turn(launch: &Launch, tile: &Tile, from: &[u8], to: &mut [u8]) {
    let Kernel { bytes, .. } = launch.kernel;
    let words = launch.parameters().words;
    let elements = |side| if words & side > 0 { launch.kernel.word_bytes() / bytes } else { 1 };
    let most = 1 << launch.kernel.area_log2();
    assert!(tile.area() <= most, "{launch:?}");
    let mut local = vec![&[][..]; most * 3 / 2];
    let row = (1 << tile.loops[0].log2) + 1;
    let place = |[x, y, z]: [u32; 3]| (((z << tile.loops[1].log2) + y) * row + x) as usize;
    for [x, y, z] in tile.turns((0, 1), elements(1)) {
        let word = range(tile.src + tile.way([x, y, z], |l| l.src), elements(1) * bytes);
        for (k, element) in (0..).zip(from[word].chunks(bytes)) {
            local[place([x + k, y, z])] = element;
        }
    }
    for [x, y, z] in tile.turns((1, 0), elements(2)) {
        let word = range(tile.dst + tile.way([x, y, z], |l| l.dst), elements(2) * bytes);
        for (k, element) in (0..).zip(to[word].chunks_mut(bytes)) {
            element.copy_from_slice(local[place([x, y + k, z])]);
        }
    }
}

/// Runs what `most_groups` makes of `copies` and compares.
fn check(copies: &[NdCopy], sizes: (u64, u64), most_groups: u64, seed: u64) {
    let draw = &mut Draw::new(seed);
    // Words start at multiples of theirs only.
    let mut base = || if draw.one_in(2) { 16 } else { draw.below(20) };
    let bases = (base(), base());
    let from = draw.bytes((bases.0 + sizes.0) as usize);
    let mut expected = draw.bytes((bases.1 + sizes.1) as usize);
    let mut to = expected.clone();
    for copy in copies {
        layout::oracle::copy(copy, &from, bases.0 as usize, &mut expected, bases.1 as usize);
    }
    for launch in Launches::within(most_groups, copies.into(), bases) {
        assert!(launch.starts.len() <= MOST_STARTS && launch.loops.len() <= MOST_LOOPS);
        run(&launch, &from, &mut to);
    }
    assert!(to == expected, "seed {seed}, {most_groups} groups: {copies:?}");
}

#[test]
fn launches_move_what_the_oracle_moves() {
    for seed in 0..900 {
        let shape = Shape::draw(&mut Draw::new(seed), [1, 4, 16, 300][seed as usize % 4]);
        let most_groups = [1, 3, MOST_GROUPS][seed as usize % 3];
        check(&[shape.copy], (shape.src_bytes, shape.dst_bytes), most_groups, seed);
    }
}

#[test]
fn elements_of_every_width_are_turned_and_interleaved() {
    for (width, extents) in [1u64, 2, 4, 8, 16].into_iter().flat_map(|width| {
        let odd = [(67u64, 131u64), (1, 97), (2, 500), (3, 333), (8, 129), (5000, 7)];
        let even = [(64, 128), (80, 77), (77, 80), (2, 320), (3, 336), (8, 136), (6, 322)];
        odd.into_iter().chain(even).map(move |extents| (width, extents))
    }) {
        let (rows, columns) = extents;
        let (row, column) = ((columns * width).cast_signed(), (rows * width).cast_signed());
        let step = width.cast_signed();
        let turned = copy(width, &[(rows, row, step), (columns, step, column)]);
        let bytes = rows * columns * width;
        for seed in 0..6 {
            check(from_ref(&turned), (bytes, bytes), [2, MOST_GROUPS][seed as usize % 2], seed);
        }
    }
}

#[test]
fn many_loops_and_copies_are_few_launches() {
    // Ten loops of two turns, each of which trades its place with another.
    let strides: Vec<i64> = (0..10).map(|k| 4 << k).collect();
    let loops: Vec<_> = (0..10).map(|k| (2, strides[(k * 3) % 10], strides[k])).collect();
    let deep = copy(4, &loops);
    assert_eq!(launches(from_ref(&deep), (0, 0)).len(), 1, "two of the loops are starts");
    check(&[deep], (4 << 10, 4 << 10), MOST_GROUPS, 1);
    let page = |n: i64| {
        let mut page = copy(4, &[(8, 4, 64), (16, 32, 4)]);
        page.fields[0].src_offset = 512 * (n * 7 % 40);
        page.fields[0].dst_offset = 512 * n;
        page
    };
    let pages: Vec<_> = (0..40).map(page).collect();
    assert_eq!(launches(&pages, (0, 0)).len(), 2, "each has 32 starts");
    check(&pages, (512 * 40, 512 * 40), MOST_GROUPS, 2);
    let by_table = |table: Vec<u64>| {
        let mut pages = copy(4, &[(table.len() as u64, 512, 512), (8, 4, 64), (16, 32, 4)]);
        pages.dims[0].src_index = Some(table.into());
        pages
    };
    let scattered = by_table((0..40).map(|n| n * n * 7 % 41).collect());
    assert_eq!(launches(from_ref(&scattered), (0, 0)).len(), 2, "each has 32 starts");
    check(&[scattered], (512 * 41, 512 * 40), MOST_GROUPS, 3);
    let in_a_row = by_table((0..40).map(|n| n % 20 * 2).collect());
    assert_eq!(launches(from_ref(&in_a_row), (0, 0)).len(), 1, "two loops over 20 are two starts");
    check(&[in_a_row], (512 * 41, 512 * 40), MOST_GROUPS, 4);
}

/// The kernel, the loops in the order in which a launch takes them, and the tile.
fn choice(copy: &NdCopy) -> (String, Vec<u32>, Vec<u32>) {
    let all = launches(from_ref(copy), (0, 0));
    let [launch] = &all[..] else { panic!("{all:?}") };
    let each = |of: fn(&TiledLoop) -> u32| launch.loops.iter().map(of).collect();
    (launch.kernel.name(), each(|l| l.count), each(|l| l.log2))
}

#[test]
fn each_shape_has_its_kernel() {
    let chosen = |name: &str, counts: &[u32], logs: &[u32]| {
        (name.to_owned(), counts.to_vec(), logs.to_vec())
    };
    let matrix = copy(4, &[(8192, 32768, 4), (8192, 4, 32768)]);
    assert_eq!(choice(&matrix), chosen("turn4", &[8192, 8192, 1], &[6, 6, 0]));
    let structures = copy(4, &[(1000, 32, 4), (8, 4, 4000)]);
    assert_eq!(choice(&structures), chosen("turn4", &[8, 1000, 1], &[3, 9, 0]));
    let columns = copy(4, &[(8, 4000, 4), (1000, 4, 32)]);
    assert_eq!(choice(&columns), chosen("turn4", &[1000, 8, 1], &[9, 3, 0]));
    let run = copy(4096, &[]);
    assert_eq!(choice(&run), chosen("copy16", &[256, 1, 1], &[8, 0, 0]));
    let rows = copy(256, &[(16, 256, 4096), (100, 4096, 256)]);
    assert_eq!(choice(&rows), chosen("copy16", &[16, 100, 16], &[4, 4, 0]));
    let pixels = copy(1, &[(100, 3, 1), (3, 1, 100)]);
    assert_eq!(choice(&pixels), chosen("turn1", &[3, 100, 1], &[2, 7, 0]));
    let again = copy(2, &[(100, 0, 6), (3, 4, 2)]);
    assert_eq!(choice(&again), chosen("copy2", &[3, 100, 1], &[2, 7, 0]));
}

#[test]
fn elements_are_as_wide_as_all_places_allow() {
    let width = |bytes, bases, stride| {
        let all = launches(&[copy(bytes, &[(3, stride, 1024)])], bases);
        all[0].kernel.bytes
    };
    assert_eq!(width(64, (0, 0), 128), 16);
    assert_eq!(width(64, (8, 0), 128), 8);
    assert_eq!(width(64, (0, 4), 128), 4);
    assert_eq!(width(64, (16, 48), 130), 2);
    assert_eq!(width(63, (0, 0), 128), 1);
    assert_eq!(width(24, (0, 0), -32), 8);
}

#[test]
fn words_are_moved_where_all_of_them_are_whole() {
    let words = |bytes, (rows, columns): (u64, u64), bases, pitch: i64| {
        let (row, column) = (columns.cast_signed() * bytes, rows.cast_signed() * bytes);
        let mut turned = copy(bytes as u64, &[(rows, pitch, bytes), (columns, bytes, column)]);
        turned.fields[0].src_offset = if pitch < 0 { 1024 * row } else { 0 };
        let all = launches(&[turned], bases);
        assert!(all[0].kernel.turns && all[0].kernel.bytes == bytes as usize, "{all:?}");
        all[0].words
    };
    assert_eq!(words(4, (64, 128), (0, 0), 512), 3);
    assert_eq!(words(4, (64, 126), (0, 0), 512), 2, "rows end inside of words");
    assert_eq!(words(4, (62, 128), (0, 0), 512), 1, "columns do");
    assert_eq!(words(4, (64, 128), (4, 0), 512), 2, "words of the source are at odd places");
    assert_eq!(words(4, (64, 128), (0, 8), 512), 1, "those of the destination");
    assert_eq!(words(4, (64, 128), (0, 0), 516), 2, "all rows but the first");
    assert_eq!(words(4, (64, 128), (0, 0), -512), 3, "rows may come in any order");
    assert_eq!(words(1, (8, 24), (8, 24), 24), 3, "words of bytes are of eight");
    assert_eq!(words(1, (8, 24), (4, 24), 24), 2);
    let backwards = copy(4, &[(64, 512, 4), (128, -4, 256)]);
    assert_eq!(launches(&[backwards], (512, 0))[0].words, 2, "no words read backwards");
    let apart = copy(4, &[(64, 1024, 4), (128, 8, 256)]);
    assert_eq!(launches(&[apart], (0, 0))[0].words, 2, "nor with gaps");
    let straight = copy(4, &[(64, 512, 256), (64, 4, 4)]);
    assert_eq!(launches(&[straight], (4, 0))[0].words, 0, "only turned tiles have words");
    let mut pages =
        [copy(4, &[(64, 512, 4), (128, 4, 256)]), copy(4, &[(64, 512, 4), (128, 4, 256)])];
    pages[1].fields[0].src_offset = 4;
    let all: Vec<_> = launches(&pages, (0, 0)).iter().map(|launch| launch.words).collect();
    assert_eq!(all, [3, 2], "no launch has starts of both kinds");
}

#[test]
fn nothing_is_no_launch() {
    assert_eq!(launches(&[], (0, 0)), []);
    assert_eq!(launches(&[copy(4, &[(0, 4, 4)]), copy(0, &[])], (0, 0)), []);
}

#[test]
fn the_kernels_have_what_launches_have() {
    for (what, count) in [("Loop loops", MOST_LOOPS), ("Start starts", MOST_STARTS)] {
        assert!(KERNELS.contains(&format!("{what}[{count}];")), "{what}");
    }
    let widths = [1, 2, 4, 8, ELEMENT_BYTES as usize];
    let kernels = widths.map(|bytes| [false, true].map(|turns| Kernel { bytes, turns }));
    for kernel in kernels.into_iter().flatten() {
        let (name, bits) = (kernel.name(), 8 * kernel.bytes);
        let line = if kernel.turns {
            let (word_bits, area) = (8 * kernel.word_bytes(), 1 << kernel.area_log2());
            // OpenCL promises each group so much memory.
            assert!(area * 3 / 2 * kernel.bytes <= 32 << 10, "{name}");
            format!("TURN({name}, u{bits}, u{word_bits}, {area})")
        } else {
            format!("COPY({name}, u{bits})")
        };
        assert!(KERNELS.lines().any(|l| l == line), "no {line}");
    }
    assert_eq!(size_of::<Parameters>(), 8 * 32 + 32 * 16 + 8);
}
