//! What is copied where host memory is measured.

use foldhash::quality::FixedState;
use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::hash::BuildHasher;
use std::sync::Arc;

/// The payload of one request.
const REQUEST_BYTES: u64 = 1 << 20;

pub(super) fn dim(extent: u64) -> CopyDim {
    CopyDim { extent: extent.max(1), src_index: None, dst_index: None }
}

pub(super) fn step(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// `whole` as requests, each with a part of the outermost loop.
fn requests(whole: &NdCopy) -> Vec<NdCopy> {
    let pieces = whole.payload_bytes() / REQUEST_BYTES;
    kernels::split(whole, usize::try_from(pieces).unwrap_or(usize::MAX))
}

/// Every other run of a source of `bytes`, packed.
pub(super) fn runs(run: u64, bytes: u64) -> Vec<NdCopy> {
    let strides = vec![Stride { src: step(2 * run), dst: step(run) }];
    let field = FieldCopy { bytes: run, src_offset: 0, dst_offset: 0, strides };
    requests(&NdCopy { dims: vec![dim(bytes / (2 * run))], fields: vec![field] })
}

/// Four fields of a structure, each to a column of its own.
pub(super) fn interleaved(element: u64, bytes: u64) -> Vec<NdCopy> {
    let entries = bytes / (4 * element);
    let field = |f: u64| FieldCopy {
        bytes: element,
        src_offset: step(f * element),
        dst_offset: step(f * entries * element),
        strides: vec![Stride { src: step(4 * element), dst: step(element) }],
    };
    requests(&NdCopy { dims: vec![dim(entries)], fields: (0..4).map(field).collect() })
}

/// A square matrix, turned.
pub(super) fn transposed(element: u64, bytes: u64) -> Vec<NdCopy> {
    let side = (bytes / element).isqrt().max(2);
    requests(&turned(element, (side, side)))
}

/// A matrix of so many rows and columns, row after row of the result.
pub(super) fn turned(element: u64, (rows, columns): (u64, u64)) -> NdCopy {
    let strides = vec![
        Stride { src: step(element), dst: step(columns * element) },
        Stride { src: step(rows * element), dst: step(element) },
    ];
    let field = FieldCopy { bytes: element, src_offset: 0, dst_offset: 0, strides };
    NdCopy { dims: vec![dim(rows), dim(columns)], fields: vec![field] }
}

/// Runs from anywhere, in an order that no prefetcher guesses.
pub(super) fn gathered(run: u64, bytes: u64) -> Vec<NdCopy> {
    let all = (bytes / run).max(1);
    let count = (REQUEST_BYTES / run).clamp(1, all);
    let pieces = all / count;
    // Each request takes the neighbours of what the one before it took.
    let starts = (all - pieces + 1).max(1);
    let hash = FixedState::with_seed(0);
    let index: Arc<[u64]> = (0..count).map(|i| hash.hash_one(i) % starts).collect();
    let piece = |n: u64| {
        let dims =
            vec![CopyDim { extent: count, src_index: Some(Arc::clone(&index)), dst_index: None }];
        let strides = vec![Stride { src: step(run), dst: step(run) }];
        let (src_offset, dst_offset) = (step(n * run), step(n * count * run));
        NdCopy { dims, fields: vec![FieldCopy { bytes: run, src_offset, dst_offset, strides }] }
    };
    (0..pieces).map(piece).collect()
}
