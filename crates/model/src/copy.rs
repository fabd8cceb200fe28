//! The one canonical form of data movement: an N-D strided copy of several fields.
//!
//! Every layer that moves bytes takes this form: the host kernels, the rect copies of an
//! accelerator, the vectored I/O of a disk, a strided put, a message datatype.

use std::sync::Arc;

/// How far apart neighbours along one dimension lie, in bytes, on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Stride {
    /// In the source.
    pub src: i64,
    /// In the destination.
    pub dst: i64,
}

/// One dimension of a copy.
///
/// The position along a side is the loop counter, or what the side's index table holds there; it
/// is multiplied with the stride of each field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CopyDim {
    /// How often the loop runs; at least 1.
    pub extent: u64,
    /// Positions in the source, `extent` of them, where they are not 0, 1, 2, …
    pub src_index: Option<Arc<[u64]>>,
    /// Positions in the destination, likewise.
    pub dst_index: Option<Arc<[u64]>>,
}

/// What is moved for one field at each point of the dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldCopy {
    /// Contiguous bytes on both sides; at least 1.
    pub bytes: u64,
    /// Offset of the first element from the source's base.
    pub src_offset: i64,
    /// Offset of the first element from the destination's base.
    pub dst_offset: i64,
    /// So many bytes behind each element of the destination are padding, which nobody reads: they may be
    /// written, with anything.
    pub padding: u64,
    /// One for each dimension of the copy.
    pub strides: Vec<Stride>,
}

/// An N-D copy: for each point of `dims`, for each of `fields`, `bytes` from
/// `src_offset + Σ position · stride.src` to `dst_offset + Σ position · stride.dst`.
///
/// Dimensions are outermost first. There may be none. No byte of the destination is written twice; none of a field is
/// another's padding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NdCopy {
    /// The loops, outermost first, shared by all fields.
    pub dims: Vec<CopyDim>,
    /// The fields moved at each point; at least one.
    pub fields: Vec<FieldCopy>,
}

/// More loops that turn twice have no bytes of their own to write in any memory.
pub const MOST_LOOPS: usize = 64;

impl NdCopy {
    /// The bytes that the copy moves; `u64::MAX` stands for more.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let entry = self.fields.iter().map(|f| f.bytes).fold(0, u64::saturating_add);
        self.dims.iter().map(|d| d.extent).fold(entry, u64::saturating_mul)
    }

    /// Whether each field has a stride for each loop, each index table an entry for each of its loop's
    /// steps, and there are no more than [`MOST_LOOPS`].
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let whole = |table: &Option<Arc<[u64]>>, extent: u64| {
            table.as_ref().is_none_or(|t| t.len() as u64 >= extent)
        };
        self.dims.len() <= MOST_LOOPS
            && self
                .dims
                .iter()
                .all(|d| whole(&d.src_index, d.extent) && whole(&d.dst_index, d.extent))
            && self.fields.iter().all(|f| f.strides.len() == self.dims.len())
    }
}

/// Copies whose destinations don't overlap; any order gives the same result.
pub type CopyList = Arc<[NdCopy]>;

/// What a copy looks like to the hardware that runs it. A channel has a throughput function for
/// each class, since a 4-byte interleave and a 4-byte transpose differ by a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ShapeClass {
    /// Contiguous runs on both sides, in one order.
    Run,
    /// Several fields, or the steps of a loop no longer than a cache line: neighbours on one side,
    /// each strided by that structure; far apart on the other.
    Interleave,
    /// The fastest dimension differs between the sides.
    Transpose,
    /// An index table decides the order.
    Gather,
}
