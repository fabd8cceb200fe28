//! The copies of one request.

use layout::{Side, Stream, copies, touched};
use model::{CopyList, NdCopy};
use std::ops::Range;

/// What a hop joins, for one request.
pub(crate) struct Sides<'a> {
    pub(crate) src: Side<'a>,
    pub(crate) dst: Side<'a>,
    /// The stream whose ranges are asked for.
    pub(crate) order: &'a Stream,
}

/// The copies of one request. The list's offsets start at 0 on either side, so that requests of
/// one shape have equal lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) list: CopyList,
    /// Where the list's source offset 0 lies: from the instance's base, or from the slot's start.
    pub(crate) src_offset: i64,
    /// Likewise for the destination.
    pub(crate) dst_offset: i64,
}

impl Chunk {
    /// Whether it is one run.
    pub(crate) fn is_run(&self) -> bool {
        matches!(&*self.list, [copy] if copy.dims.is_empty() && copy.fields.len() == 1)
    }

    /// What two chunks that move the same bytes agree in, however their lists are split: where
    /// they start on either side, and how much they move.
    pub(crate) fn outline(&self) -> (i64, i64, u64) {
        let payload_bytes = self.list.iter().map(NdCopy::payload_bytes).sum();
        (self.src_offset, self.dst_offset, payload_bytes)
    }
}

/// The copies that move `range`.
pub(crate) fn chunk_of(sides: &Sides<'_>, range: Range<u64>) -> Chunk {
    let mut list = copies(sides.src, sides.dst, sides.order, range);
    let lowest = |side: fn(&NdCopy) -> i64| list.iter().map(side).min().unwrap_or(0);
    let src_offset = lowest(|copy| touched(copy).0.start);
    let dst_offset = lowest(|copy| touched(copy).1.start);
    for field in list.iter_mut().flat_map(|copy| &mut copy.fields) {
        field.src_offset -= src_offset;
        field.dst_offset -= dst_offset;
    }
    Chunk { list: list.into(), src_offset, dst_offset }
}
