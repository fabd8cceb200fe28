//! Merging of copies into fewer: named passes over the list.

use crate::canon::{canonical, run_alike};
use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

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
                last.fields[0].padding = copy.fields[0].padding;
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

/// Lists up to this are searched from end to end, which is faster than any index.
const FEW: usize = 32;

/// Copies that are alike, in the order of the list.
fn groups(list: Vec<NdCopy>) -> Vec<Vec<NdCopy>> {
    let is_long = list.len() > FEW;
    let mut groups: Vec<Vec<NdCopy>> = Vec::new();
    let mut first_of: HashMap<u64, usize> = HashMap::new();
    for copy in list {
        let is_group = |group: &Vec<NdCopy>| is_alike(&group[0], &copy);
        let at = if is_long {
            // Two shapes of one hash are rare; the second is left as it is.
            let at = *first_of.entry(shape_of(&copy)).or_insert(groups.len());
            groups.get(at).is_some_and(is_group).then_some(at)
        } else {
            groups.iter().position(is_group)
        };
        match at {
            Some(at) => groups[at].push(copy),
            None => groups.push(vec![copy]),
        }
    }
    groups
}

/// Equal for copies that are alike.
fn shape_of(copy: &NdCopy) -> u64 {
    let mut hash = DefaultHasher::new();
    for dim in &copy.dims {
        let ends = |table: &Option<Arc<[u64]>>| {
            table.as_ref().map(|t| (t.len(), t.first().copied(), t.last().copied()))
        };
        (dim.extent, ends(&dim.src_index), ends(&dim.dst_index)).hash(&mut hash);
    }
    let fields = copy.fields.iter();
    fields.for_each(|field| (field.bytes, field.padding, &field.strides).hash(&mut hash));
    hash.finish()
}

/// Whether the copies differ in offsets only.
fn is_alike(a: &NdCopy, b: &NdCopy) -> bool {
    let same = |(x, y): (&FieldCopy, &FieldCopy)| {
        (x.bytes, x.padding) == (y.bytes, y.padding) && x.strides == y.strides
    };
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
