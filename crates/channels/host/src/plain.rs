//! A canonical copy, point by point.

use channel::layout::{CopyDim, NdCopy};

/// Carries out `copy`.
///
/// # Safety
/// Every byte that `copy` reads, counted from `src`, may be read, and every byte that it writes,
/// counted from `dst`, written.
pub(crate) unsafe fn copy(copy: &NdCopy, src: *const u8, dst: *mut u8) {
    let mut point = vec![0u64; copy.dims.len()];
    loop {
        for field in &copy.fields {
            let (mut from, mut to) = (field.src_offset, field.dst_offset);
            for ((dim, stride), &at) in copy.dims.iter().zip(&field.strides).zip(&point) {
                let positions = positions(dim, at);
                from += positions.0 * stride.src;
                to += positions.1 * stride.dst;
            }
            let (from, to) = (src.wrapping_offset(from as isize), dst.wrapping_offset(to as isize));
            // SAFETY: these are bytes that the caller vouched for, and the copy's sides don't
            // overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, to, field.bytes as usize) };
        }
        if !step(&mut point, &copy.dims) {
            return;
        }
    }
}

fn positions(dim: &CopyDim, at: u64) -> (i64, i64) {
    let of = |table: &Option<std::sync::Arc<[u64]>>| {
        table.as_ref().map_or(at, |t| t[at as usize]).cast_signed()
    };
    (of(&dim.src_index), of(&dim.dst_index))
}

/// Goes to the next point; false after the last.
fn step(point: &mut [u64], dims: &[CopyDim]) -> bool {
    for (at, dim) in point.iter_mut().zip(dims).rev() {
        *at += 1;
        if *at < dim.extent {
            return true;
        }
        *at = 0;
    }
    false
}
