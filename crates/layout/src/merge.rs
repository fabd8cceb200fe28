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
    list.sort_by_key(first_byte);
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
pub(crate) fn join_series(list: Vec<NdCopy>) -> Vec<NdCopy> {
    let mut out = Vec::with_capacity(list.len());
    for alike in groups(list) {
        let mut rest = &alike[..];
        while let Some(first) = rest.first() {
            let count = series_length(rest);
            out.push(match rest[..count] {
                [_] => first.clone(),
                _ => canonical(with_loop(first.clone(), count as u64, &distances(first, &rest[1]))),
            });
            rest = &rest[count..];
        }
    }
    out
}

/// Copies that are alike, in the order of the list.
fn groups(list: Vec<NdCopy>) -> Vec<Vec<NdCopy>> {
    let mut groups: Vec<Vec<NdCopy>> = Vec::new();
    for copy in list {
        match groups.iter_mut().find(|group| is_alike(&group[0], &copy)) {
            Some(group) => group.push(copy),
            None => groups.push(vec![copy]),
        }
    }
    groups
}

/// Whether the copies differ in offsets only.
fn is_alike(a: &NdCopy, b: &NdCopy) -> bool {
    let same = |(x, y): (&FieldCopy, &FieldCopy)| x.bytes == y.bytes && x.strides == y.strides;
    a.fields.len() == b.fields.len()
        && a.fields.iter().zip(&b.fields).all(same)
        && run_alike(&a.dims, &b.dims)
}

/// How many of the copies are equally distant, from the first on.
fn series_length(alike: &[NdCopy]) -> usize {
    let [first, second, ..] = alike else { return 1 };
    let step = distances(first, second);
    let even = |pair: &&[NdCopy]| distances(&pair[0], &pair[1]) == step;
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
