//! Launches against the oracle: what the kernels do is done here, in their order.

use super::*;
use crate::conformance::{Draw, Shape, nested as copy};
use layout::NdCopy;
use std::slice::from_ref;

fn launches(copies: &[NdCopy], bases: (u64, u64)) -> Vec<Launch> {
    Launches::new(copies.into(), bases).collect()
}

/// A group of a launch: where its tile starts, and how much of the tile's loops is left there.
fn tile(launch: &Launch, group: usize) -> (i64, i64, [u32; TILE_LOOPS]) {
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
    (src + start.src, dst + start.dst, left)
}

/// What the kernels do, one work item after the other.
fn run(launch: &Launch, from: &[u8], to: &mut [u8]) {
    let Kernel { bytes, turns } = launch.kernel;
    let loops = launch.parameters().loops;
    let logs = [0, 1, 2].map(|n| loops[n].log2);
    let turn_of = |at: u32, first: u32, second: u32| {
        (at & ((1 << first) - 1), at >> first & ((1 << second) - 1), at >> (first + second))
    };
    let area = 1u32 << logs.iter().sum::<u32>();
    assert!(area <= 1 << (2 * launch.kernel.side_log2()), "{launch:?}");
    for group in 0..launch.groups() {
        let (src, dst, left) = tile(launch, group);
        let is_inside = |turn: [u32; 3]| turn.iter().zip(left).all(|(&turn, left)| turn < left);
        let way = |[x, y, z]: [u32; 3], by: fn(&TiledLoop) -> i64| {
            let each = [x, y, z].into_iter().zip(&loops);
            each.map(|(turn, l)| i64::from(turn) * by(l)).sum::<i64>()
        };
        let read = |turn| &from[(src + way(turn, |l| l.src)) as usize..][..bytes];
        let mut write = |turn, element: &[u8]| {
            let at = (dst + way(turn, |l| l.dst)) as usize;
            assert!(at.is_multiple_of(bytes), "{launch:?}");
            to[at..][..bytes].copy_from_slice(element);
        };
        let mut local = vec![None; (1 << (2 * launch.kernel.side_log2())) * 3 / 2];
        let place =
            |[x, y, z]: [u32; 3]| (((z << logs[1]) + y) * ((1 << logs[0]) + 1) + x) as usize;
        let loaded = (0..area).map(|at| turn_of(at, logs[0], logs[1])).map(|(x, y, z)| [x, y, z]);
        for turn in loaded.filter(|&turn| is_inside(turn)) {
            if turns { local[place(turn)] = Some(read(turn)) } else { write(turn, read(turn)) }
        }
        let stored = (0..area).map(|at| turn_of(at, logs[1], logs[0])).map(|(y, x, z)| [x, y, z]);
        for turn in stored.filter(|&turn| turns && is_inside(turn)) {
            write(turn, local[place(turn)].expect("read before"));
        }
    }
}

/// Runs what `most_groups` makes of `copies` and compares.
fn check(copies: &[NdCopy], sizes: (u64, u64), most_groups: u64, seed: u64) {
    let draw = &mut Draw::new(seed);
    let bases = (draw.below(20), draw.below(20));
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
        [(67u64, 131u64), (1, 97), (2, 500), (3, 333), (8, 129), (5000, 7)].map(|e| (width, e))
    }) {
        let (rows, columns) = extents;
        let (row, column) = ((columns * width).cast_signed(), (rows * width).cast_signed());
        let step = width.cast_signed();
        let turned = copy(width, &[(rows, row, step), (columns, step, column)]);
        let bytes = rows * columns * width;
        for most_groups in [2, MOST_GROUPS] {
            check(from_ref(&turned), (bytes, bytes), most_groups, rows);
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
    assert_eq!(choice(&matrix), chosen("turn4", &[8192, 8192, 1], &[5, 5, 0]));
    let structures = copy(4, &[(1000, 32, 4), (8, 4, 4000)]);
    assert_eq!(choice(&structures), chosen("turn4", &[8, 1000, 1], &[3, 7, 0]));
    let columns = copy(4, &[(8, 4000, 4), (1000, 4, 32)]);
    assert_eq!(choice(&columns), chosen("turn4", &[1000, 8, 1], &[7, 3, 0]));
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
        let name = kernel.name();
        let area = 1 << (2 * kernel.side_log2());
        let line = KERNELS.lines().find(|line| line.contains(&format!("({name}, ")));
        let line = line.unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(line.ends_with(&format!(", {area})")), kernel.turns, "{line}");
    }
    assert_eq!(size_of::<Parameters>(), 8 * 32 + 32 * 16 + 8);
}
