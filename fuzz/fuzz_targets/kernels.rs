//! The kernels move what the naive copy moves, and nothing else.
//! `cargo +nightly fuzz run kernels`
#![no_main]

use isometry_kernels::{Stores, copy, split};
use isometry_layout::{CopyDim, FieldCopy, NdCopy, Stride, oracle, touched};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// What a copy moves at most.
const MOST_BYTES: u64 = 1 << 16;

/// How far apart the turns of each loop are, if they nest in some order, with gaps.
fn strides(u: &mut Unstructured, extents: &[u64], entry: u64) -> Result<Vec<i64>> {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, u.int_in_range(0..=i)?);
    }
    let mut strides = vec![0; extents.len()];
    let mut step = entry;
    for k in order {
        step += if u.ratio(1, 4)? { u.int_in_range(0..=64)? } else { 0 };
        strides[k] = step as i64;
        step *= extents[k];
    }
    Ok(strides)
}

fn table(u: &mut Unstructured, extent: u64) -> Result<Option<std::sync::Arc<[u64]>>> {
    if !u.ratio(1, 8)? {
        return Ok(None);
    }
    let mut table: Vec<u64> = (0..extent).collect();
    for i in (1..table.len()).rev() {
        table.swap(i, u.int_in_range(0..=i)?);
    }
    Ok(Some(table.into()))
}

fn any_copy(u: &mut Unstructured) -> Result<NdCopy> {
    let mut sizes = Vec::new();
    for _ in 0..u.int_in_range(1..=6)? {
        sizes.push(u.int_in_range(1..=40u64)?);
    }
    if u.ratio(3, 4)? {
        let bytes = *u.choose(&[1, 2, 4, 8, 16, 12, 24, 64, 100])?;
        sizes.fill(bytes);
    }
    let entry: u64 = sizes.iter().sum();
    let (mut extents, mut left) = (Vec::new(), MOST_BYTES / entry);
    for _ in 0..u.int_in_range(0..=4)? {
        let extent = u.int_in_range(1..=left.clamp(1, 600))?;
        extents.push(extent);
        left /= extent;
    }
    let separate = u.ratio(1, 2)?;
    let src = strides(u, &extents, entry)?;
    let inside: u64 = extents.iter().product();
    let dst = strides(u, &extents, entry)?;
    let (mut fields, mut before) = (Vec::new(), 0);
    for &bytes in &sizes {
        // Fields lie in structures, or in an array each.
        let soa = |strides: &[i64]| -> Vec<i64> {
            strides.iter().map(|s| s / entry as i64 * bytes as i64).collect()
        };
        let dense = dst.iter().all(|s| s % entry as i64 == 0);
        let (to, strides) = match separate && dense && inside > 0 {
            true => (before * inside as i64, soa(&dst)),
            false => (before, dst.clone()),
        };
        let strides = src.iter().zip(strides).map(|(&src, dst)| Stride { src, dst }).collect();
        fields.push(FieldCopy { bytes, src_offset: before, dst_offset: to, strides });
        before += bytes as i64;
    }
    let mut dims = Vec::new();
    for &extent in &extents {
        dims.push(CopyDim { extent, src_index: table(u, extent)?, dst_index: table(u, extent)? });
    }
    Ok(NdCopy { dims, fields })
}

/// Whether no byte is written twice: the kernels may then move in any order.
fn is_injective(list: &NdCopy, end: usize) -> bool {
    let mut ones = vec![0u8; end];
    let points: u64 = list.dims.iter().map(|d| d.extent).product();
    for point in 0..points {
        for field in &list.fields {
            let (mut to, mut rest) = (field.dst_offset, point);
            for (dim, stride) in list.dims.iter().zip(&field.strides).rev() {
                let turn = (rest % dim.extent) as usize;
                rest /= dim.extent;
                let at = dim.dst_index.as_ref().map_or(turn as u64, |table| table[turn]);
                to += at as i64 * stride.dst;
            }
            for byte in &mut ones[to as usize..(to + field.bytes as i64) as usize] {
                if std::mem::replace(byte, 1) == 1 {
                    return false;
                }
            }
        }
    }
    true
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(list) = any_copy(&mut u) else { return };
    let (read, written) = touched(&list);
    let base = u.int_in_range(0..=63usize).unwrap_or(0);
    if written.end > 1 << 24 || !is_injective(&list, written.end as usize) {
        return;
    }
    let src: Vec<u8> = (0..read.end).map(|i| (i * 31 + i / 251) as u8).collect();
    let mut expected = vec![0xEE; written.end as usize + base];
    let poisoned = expected.clone();
    oracle::copy(&list, &src, 0, &mut expected, base);
    let pieces = u.int_in_range(1..=4usize).unwrap_or(1);
    for stores in [Stores::Cached, Stores::Streamed] {
        let mut got = poisoned.clone();
        for piece in split(&list, pieces) {
            // SAFETY: the buffers are as long as what the copy touches.
            unsafe { copy(&piece, src.as_ptr(), got.as_mut_ptr().add(base), stores) };
        }
        assert!(got == expected, "{stores:?}: {list:?}");
    }
});
