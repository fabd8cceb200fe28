//! What is copied where channels are measured.

use foldhash::quality::FixedState;
use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::hash::BuildHasher;
use std::sync::Arc;

/// What is copied altogether, and by one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    /// The length of either side.
    pub(super) bytes: u64,
    pub(super) request_bytes: u64,
}

/// How long a row of the source is in a box.
const ROW_BYTES: u64 = 2 << 10;

pub(super) fn dim(extent: u64) -> CopyDim {
    CopyDim { extent: extent.max(1), src_index: None, dst_index: None }
}

pub(super) fn step(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// `whole` as requests of so many bytes, each with a part of the outermost loop.
fn requests(whole: &NdCopy, request_bytes: u64) -> Vec<NdCopy> {
    let pieces = whole.payload_bytes() / request_bytes;
    kernels::split(whole, usize::try_from(pieces).unwrap_or(usize::MAX))
}

/// Every other run of a source of `bytes`, packed.
pub(super) fn runs(run: u64, amount: Amount) -> Vec<NdCopy> {
    let strides = vec![Stride { src: step(2 * run), dst: step(run) }];
    let field = FieldCopy { bytes: run, src_offset: 0, dst_offset: 0, padding: 0, strides };
    let whole = NdCopy { dims: vec![dim(amount.bytes / (2 * run))], fields: vec![field] };
    requests(&whole, amount.request_bytes)
}

/// Four fields of a structure, each to a column of its own.
pub(super) fn interleaved(element: u64, amount: Amount) -> Vec<NdCopy> {
    let entries = amount.bytes / (4 * element);
    let field = |f: u64| FieldCopy {
        bytes: element,
        src_offset: step(f * element),
        dst_offset: step(f * entries * element),
        padding: 0,
        strides: vec![Stride { src: step(4 * element), dst: step(element) }],
    };
    let whole = NdCopy { dims: vec![dim(entries)], fields: (0..4).map(field).collect() };
    requests(&whole, amount.request_bytes)
}

/// A square matrix, turned by boxes as an engine cuts it, whose rows are whole lines.
pub(super) fn transposed(element: u64, amount: Amount) -> Vec<NdCopy> {
    let Amount { bytes, request_bytes } = amount;
    let whole_lines = |count: u64| count - count % count.clamp(1, 64);
    let side = whole_lines((bytes / element).isqrt().max(1));
    let columns = (request_bytes / element).isqrt().min(ROW_BYTES / element);
    let columns = whole_lines(columns).clamp(1, side);
    let rows = whole_lines(request_bytes / element / columns).clamp(1, side);
    let whole = turned(element, (side, side));
    let boxed = |(column, row): (u64, u64)| {
        let mut boxed = whole.clone();
        boxed.dims = vec![dim(columns.min(side - column)), dim(rows.min(side - row))];
        let field = &mut boxed.fields[0];
        field.src_offset = step((row * side + column) * element);
        field.dst_offset = step((column * side + row) * element);
        boxed
    };
    let starts = |each: u64| (0..side).step_by(usize::try_from(each).unwrap_or(usize::MAX));
    let corners = starts(columns).flat_map(|column| starts(rows).map(move |row| (column, row)));
    corners.map(boxed).collect()
}

/// A matrix of so many rows and columns, row after row of the result.
pub(super) fn turned(element: u64, (rows, columns): (u64, u64)) -> NdCopy {
    let strides = vec![
        Stride { src: step(element), dst: step(columns * element) },
        Stride { src: step(rows * element), dst: step(element) },
    ];
    let field = FieldCopy { bytes: element, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: vec![dim(rows), dim(columns)], fields: vec![field] }
}

/// Runs from anywhere, in an order that no prefetcher guesses.
pub(super) fn gathered(run: u64, amount: Amount) -> Vec<NdCopy> {
    let all = (amount.bytes / run).max(1);
    let count = (amount.request_bytes / run).clamp(1, all);
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
        NdCopy {
            dims,
            fields: vec![FieldCopy { bytes: run, src_offset, dst_offset, padding: 0, strides }],
        }
    };
    (0..pieces).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boxes_of_a_transpose_are_all_of_it() {
        for (element, side) in [(1, 4096), (4, 2048), (6, 1664), (16, 1024), (256, 256)] {
            let amount = Amount { bytes: side * side * element, request_bytes: 1 << 20 };
            let boxes = transposed(element, amount);
            let payload: u64 = boxes.iter().map(NdCopy::payload_bytes).sum();
            assert_eq!(payload, side * side * element);
            assert!(boxes.iter().all(|b| b.payload_bytes() <= amount.request_bytes));
            let ends = |copy: &NdCopy| {
                let (read, written) = layout::touched(copy);
                [read.end, written.end]
            };
            let last = boxes.iter().map(ends).fold([0; 2], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
            assert_eq!(last, [payload.cast_signed(); 2]);
        }
    }
}
