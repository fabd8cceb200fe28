//! Merging of copies into fewer: named passes over the list.

use crate::canon::{canonical, run_alike};
use model::{CopyDim, FieldCopy, NdCopy, Stride};

/// All passes, until the list gets no shorter. The result is sorted by the first byte written.
pub(crate) fn merged(mut list: Vec<NdCopy>) -> Vec<NdCopy> {
    while list.len() > 1 {
        let before = list.len();
        list.sort_by_key(first_byte);
        list = join_neighbours(list);
        list = join_series(list);
        if list.len() == before {
            break;
        }
    }
    list
}

fn first_byte(copy: &NdCopy) -> i64 {
    copy.fields[0].dst_offset
}

/// Joins a copy to one before it where both run alike and their fields lie side by side.
pub(crate) fn join_neighbours(list: Vec<NdCopy>) -> Vec<NdCopy> {
    let mut out: Vec<NdCopy> = Vec::with_capacity(list.len());
    for copy in list {
        match out.last_mut() {
            Some(last) if continues(last, &copy) => {
                last.fields[0].bytes += copy.fields[0].bytes;
                *last = canonical(std::mem::replace(last, copy));
            }
            _ => out.push(copy),
        }
    }
    out
}

/// Whether both have one field, and that of `next` starts where that of `copy` ends.
fn continues(copy: &NdCopy, next: &NdCopy) -> bool {
    let ([a], [b]) = (&copy.fields[..], &next.fields[..]) else { return false };
    a.dst_offset + a.bytes as i64 == b.dst_offset
        && a.src_offset + a.bytes as i64 == b.src_offset
        && a.strides == b.strides
        && run_alike(&copy.dims, &next.dims)
}

/// Makes copies that are alike but for equally distant offsets one copy with a loop more.
pub(crate) fn join_series(mut list: Vec<NdCopy>) -> Vec<NdCopy> {
    let mut out = Vec::with_capacity(list.len());
    while !list.is_empty() {
        let alike: Vec<usize> = (0..list.len()).filter(|&i| is_alike(&list[0], &list[i])).collect();
        let count = series_length(&list, &alike);
        let step = alike.get(1).map(|&second| distances(&list[0], &list[second]));
        for &i in alike[1..count].iter().rev() {
            list.remove(i);
        }
        let first = list.remove(0);
        out.push(match step {
            Some(step) if count > 1 => canonical(with_loop(first, count as u64, &step)),
            _ => first,
        });
    }
    out
}

/// Whether the copies differ in offsets only.
fn is_alike(a: &NdCopy, b: &NdCopy) -> bool {
    let same = |(x, y): (&FieldCopy, &FieldCopy)| x.bytes == y.bytes && x.strides == y.strides;
    a.fields.len() == b.fields.len()
        && a.fields.iter().zip(&b.fields).all(same)
        && run_alike(&a.dims, &b.dims)
}

/// How many of the copies at `alike` are equally distant, from the first on.
fn series_length(list: &[NdCopy], alike: &[usize]) -> usize {
    let Some(&second) = alike.get(1) else { return 1 };
    let step = distances(&list[alike[0]], &list[second]);
    let even = |pair: &&[usize]| distances(&list[pair[0]], &list[pair[1]]) == step;
    1 + alike.windows(2).take_while(even).count()
}

/// How far `b` lies behind `a`, for each field.
fn distances(a: &NdCopy, b: &NdCopy) -> Vec<Stride> {
    let distance = |(x, y): (&FieldCopy, &FieldCopy)| Stride {
        src: y.src_offset - x.src_offset,
        dst: y.dst_offset - x.dst_offset,
    };
    a.fields.iter().zip(&b.fields).map(distance).collect()
}

/// `copy`, repeated `count` times at these distances.
fn with_loop(mut copy: NdCopy, count: u64, steps: &[Stride]) -> NdCopy {
    copy.dims.insert(0, CopyDim { extent: count, src_index: None, dst_index: None });
    for (field, &step) in copy.fields.iter_mut().zip(steps) {
        field.strides.insert(0, step);
    }
    copy
}
