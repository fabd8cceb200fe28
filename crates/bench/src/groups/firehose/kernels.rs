//! The slides' two programs, on two ranks, number by number: a put for each.

use super::{ME, PEER};
use isometry::fabric::Error;
use isometry::fabric::firehose::Firehose;

/// The factors' numbers at row `y`, column `x`: small, so that sums are exact.
fn left(y: usize, x: usize) -> f64 {
    ((y * 7 + x * 3) % 11) as f64
}

fn right(y: usize, x: usize) -> f64 {
    ((y * 5 + x * 2) % 13) as f64
}

/// How many numbers a rank puts in [`cannon`].
pub(super) fn cannon_puts(side: usize) -> usize {
    // Of three blocks.
    3 * (side / 2) * (side / 2)
}

/// Cannon's algorithm on a grid of 2 by 2 nodes, whose rows are the ranks. So the blocks of the left
/// factor, which go along rows, stay in a rank's memory, and those of the right one go to the other's.
/// Returns the rank's rows of the product, block by block, or nothing where it is not to `multiply`.
pub(super) fn cannon(rank: &Firehose, side: usize, multiply: bool) -> Result<Vec<f64>, Error> {
    let me = rank.fabric().rank().0 as usize;
    let b = side / 2;
    let block = |of: fn(usize, usize) -> f64, i: usize, j: usize| -> Vec<f64> {
        (0..b * b).map(|k| of(i * b + k / b, j * b + k % b)).collect()
    };
    // Each row moved by its number, as each column will be.
    let mut lefts = [0, 1].map(|j| block(left, me, (j + me) % 2));
    let mut rights = [0, 1].map(|j| block(right, me, j));
    let mut product = vec![0.0; if multiply { 2 * b * b } else { 0 }];
    exchange(rank, &mut rights, &[1], 0)?;
    for step in 0..2 {
        if multiply {
            for (sum, (left, right)) in product.chunks_mut(b * b).zip(lefts.iter().zip(&rights)) {
                add_product(sum, left, right, b);
            }
        }
        if step == 0 {
            lefts.swap(0, 1);
            exchange(rank, &mut rights, &[0, 1], 1)?;
        }
    }
    Ok(product)
}

/// Sends the blocks of some columns to the other rank, and takes its own for them; `turn` says where
/// they go meanwhile.
fn exchange(
    rank: &Firehose,
    blocks: &mut [Vec<f64>; 2],
    columns: &[usize],
    turn: usize,
) -> Result<(), Error> {
    let fabric = rank.fabric();
    let other = if fabric.rank() == ME { PEER } else { ME };
    let bytes = 8 * blocks[0].len() as u64;
    let place = |column: usize| (2 * turn + column) as u64 * bytes;
    for &column in columns {
        for (at, number) in (place(column)..).step_by(8).zip(&blocks[column]) {
            rank.put(other, at, &number.to_le_bytes())?;
        }
    }
    fabric.barrier()?;
    for &column in columns {
        for (at, number) in (place(column)..).step_by(8).zip(&mut blocks[column]) {
            *number = f64::from_bits(fabric.get_value(fabric.rank(), at, 8)?);
        }
    }
    Ok(())
}

fn add_product(sum: &mut [f64], left: &[f64], right: &[f64], b: usize) {
    for (sums, lefts) in sum.chunks_mut(b).zip(left.chunks(b)) {
        for (left, rights) in lefts.iter().zip(right.chunks(b)) {
            sums.iter_mut().zip(rights).for_each(|(sum, right)| *sum += left * right);
        }
    }
}

/// What [`cannon`] has to return.
pub(super) fn product(side: usize) -> [Vec<f64>; 2] {
    let of = |number: fn(usize, usize) -> f64| -> Vec<f64> {
        (0..side * side).map(|i| number(i / side, i % side)).collect()
    };
    let mut whole = vec![0.0; side * side];
    add_product(&mut whole, &of(left), &of(right), side);
    let b = side / 2;
    let block = |i: usize, j: usize| {
        let rows = whole.chunks(side).skip(i * b).take(b);
        rows.flat_map(move |row| row[j * b..][..b].iter().copied())
    };
    [0, 1].map(|i| block(i, 0).chain(block(i, 1)).collect())
}

/// How many keys both ranks put in [`bitonic`].
pub(super) fn bitonic_puts(keys: usize) -> usize {
    keys * keys.ilog2() as usize
}

fn key(i: usize) -> u64 {
    (i as u64 * 7919) % 1_000_003
}

/// Bitonic sort of so many keys, a power of two, of which each rank has every other. What is compared
/// with what lies next to it goes to the other rank. Returns the rank's keys.
pub(super) fn bitonic(rank: &Firehose, keys: usize) -> Result<Vec<u64>, Error> {
    let me = rank.fabric().rank().0 as usize;
    let mut own: Vec<u64> = (0..keys / 2).map(|l| key(2 * l + me)).collect();
    for turn in 1..=keys.ilog2() {
        let half = 1 << turn;
        for apart in (1..turn).rev().map(|k| 1 << k) {
            for l in (0..own.len()).filter(|l| l & (apart / 2) == 0) {
                let is_wrong = own[l] > own[l + apart / 2];
                if is_wrong == ((2 * l) & half == 0) {
                    own.swap(l, l + apart / 2);
                }
            }
        }
        compare_with_the_other(rank, &mut own, half)?;
    }
    Ok(own)
}

fn compare_with_the_other(rank: &Firehose, own: &mut [u64], half: usize) -> Result<(), Error> {
    let fabric = rank.fabric();
    let (me, other) = if fabric.rank() == ME { (0, PEER) } else { (1, ME) };
    for (at, key) in (0..).step_by(8).zip(&*own) {
        rank.put(other, at, &key.to_le_bytes())?;
    }
    fabric.barrier()?;
    for (l, (at, key)) in (0..).step_by(8).zip(own).enumerate() {
        let theirs = fabric.get_value(fabric.rank(), at, 8)?;
        let is_least = ((2 * l) & half == 0) == (me == 0);
        *key = if is_least { theirs.min(*key) } else { theirs.max(*key) };
    }
    // Who is ahead sends again once all is read.
    fabric.barrier()
}

/// What [`bitonic`] has to return.
pub(super) fn sorted(keys: usize) -> [Vec<u64>; 2] {
    let mut all: Vec<u64> = (0..keys).map(key).collect();
    all.sort_unstable();
    [0, 1].map(|me| all.iter().skip(me).step_by(2).copied().collect())
}
