//! Normalisation of one copy: small passes over one value.

use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::cmp::Reverse;
use std::sync::Arc;

/// All passes. The result moves the same bytes to the same places.
pub(crate) fn canonical(mut copy: NdCopy) -> NdCopy {
    replace_regular_tables(&mut copy);
    drop_single_turns(&mut copy);
    walk_upwards(&mut copy);
    sort_loops(&mut copy);
    sort_fields(&mut copy);
    loop {
        let before = (copy.dims.len(), copy.fields.len());
        join_fields(&mut copy);
        fuse_loops(&mut copy);
        fold_innermost(&mut copy);
        if before == (copy.dims.len(), copy.fields.len()) {
            return copy;
        }
    }
}

/// Makes an index table whose entries are equally far apart an offset and a stride.
pub(crate) fn replace_regular_tables(copy: &mut NdCopy) {
    for k in 0..copy.dims.len() {
        if let Some((first, step)) = copy.dims[k].src_index.as_deref().and_then(regular) {
            copy.dims[k].src_index = None;
            for field in &mut copy.fields {
                field.src_offset += first * field.strides[k].src;
                field.strides[k].src *= step;
            }
        }
        if let Some((first, step)) = copy.dims[k].dst_index.as_deref().and_then(regular) {
            copy.dims[k].dst_index = None;
            for field in &mut copy.fields {
                field.dst_offset += first * field.strides[k].dst;
                field.strides[k].dst *= step;
            }
        }
    }
}

/// The first entry and the distance of entries that are equally far apart.
fn regular(table: &[u64]) -> Option<(i64, i64)> {
    let first = *table.first()? as i64;
    let step = table.get(1).map_or(0, |&second| second as i64 - first);
    let even = table.windows(2).all(|pair| pair[1] as i64 - pair[0] as i64 == step);
    even.then_some((first, step))
}

/// Leaves out loops that run once.
pub(crate) fn drop_single_turns(copy: &mut NdCopy) {
    for k in (0..copy.dims.len()).rev().filter(|&k| copy.dims[k].extent == 1).collect::<Vec<_>>() {
        remove_loop(copy, k);
    }
}

fn remove_loop(copy: &mut NdCopy, k: usize) {
    copy.dims.remove(k);
    for field in &mut copy.fields {
        field.strides.remove(k);
    }
}

/// Turns loops around that walk the destination of the first field downwards.
pub(crate) fn walk_upwards(copy: &mut NdCopy) {
    for k in 0..copy.dims.len() {
        if has_table(&copy.dims[k]) || copy.fields[0].strides[k].dst >= 0 {
            continue;
        }
        let last = copy.dims[k].extent as i64 - 1;
        for field in &mut copy.fields {
            let stride = field.strides[k];
            field.src_offset += last * stride.src;
            field.dst_offset += last * stride.dst;
            field.strides[k] = Stride { src: -stride.src, dst: -stride.dst };
        }
    }
}

fn has_table(dim: &CopyDim) -> bool {
    dim.src_index.is_some() || dim.dst_index.is_some()
}

/// Sorts loops by the first field's stride in the destination, largest first; then by that in
/// the source.
pub(crate) fn sort_loops(copy: &mut NdCopy) {
    let key = |copy: &NdCopy, k: usize| {
        let stride = copy.fields[0].strides[k];
        Reverse((stride.dst.unsigned_abs(), stride.src.unsigned_abs()))
    };
    if (1..copy.dims.len()).all(|k| key(copy, k - 1) <= key(copy, k)) {
        return;
    }
    let mut order: Vec<usize> = (0..copy.dims.len()).collect();
    order.sort_by_key(|&k| key(copy, k));
    copy.dims = order.iter().map(|&k| copy.dims[k].clone()).collect();
    for field in &mut copy.fields {
        field.strides = order.iter().map(|&k| field.strides[k]).collect();
    }
}

/// Sorts fields by their offset in the destination.
pub(crate) fn sort_fields(copy: &mut NdCopy) {
    copy.fields.sort_by_key(|f| f.dst_offset);
}

/// Joins neighbouring fields that are contiguous on both sides and stride alike.
pub(crate) fn join_fields(copy: &mut NdCopy) {
    copy.fields.dedup_by(|next, field| {
        let joins = follows(field, next);
        if joins {
            field.bytes += next.bytes;
            field.padding = next.padding;
        }
        joins
    });
}

fn follows(field: &FieldCopy, next: &FieldCopy) -> bool {
    let bytes = field.bytes as i64;
    field.dst_offset + bytes == next.dst_offset
        && field.src_offset + bytes == next.src_offset
        && field.strides == next.strides
}

/// Joins neighbouring loops that are one loop for every field on both sides.
pub(crate) fn fuse_loops(copy: &mut NdCopy) {
    for k in (1..copy.dims.len()).rev() {
        let inner = copy.dims[k].extent as i64;
        let fits = |f: &FieldCopy| {
            let (outer, step) = (f.strides[k - 1], f.strides[k]);
            step.src.checked_mul(inner) == Some(outer.src)
                && step.dst.checked_mul(inner) == Some(outer.dst)
        };
        let tables = has_table(&copy.dims[k - 1]) || has_table(&copy.dims[k]);
        if !tables && copy.fields.iter().all(fits) {
            copy.dims[k].extent *= copy.dims[k - 1].extent;
            remove_loop(copy, k - 1);
        }
    }
}

/// Makes the innermost loop part of the elements where these lie side by side on both sides.
pub(crate) fn fold_innermost(copy: &mut NdCopy) {
    let Some(k) = copy.dims.len().checked_sub(1) else { return };
    let dense = |f: &FieldCopy| {
        let bytes = f.bytes as i64;
        f.strides[k] == Stride { src: bytes, dst: bytes }
    };
    if has_table(&copy.dims[k]) || !copy.fields.iter().all(dense) {
        return;
    }
    let extent = copy.dims[k].extent;
    copy.fields.iter_mut().for_each(|f| f.bytes *= extent);
    remove_loop(copy, k);
}

/// Whether two loops run alike: same extents and same tables.
pub(crate) fn run_alike(a: &[CopyDim], b: &[CopyDim]) -> bool {
    let same = |x: &Option<Arc<[u64]>>, y: &Option<Arc<[u64]>>| match (x, y) {
        (Some(x), Some(y)) => Arc::ptr_eq(x, y) || x == y,
        (None, None) => true,
        _ => false,
    };
    let alike = |(x, y): (&CopyDim, &CopyDim)| {
        x.extent == y.extent && same(&x.src_index, &y.src_index) && same(&x.dst_index, &y.dst_index)
    };
    a.len() == b.len() && a.iter().zip(b).all(alike)
}
