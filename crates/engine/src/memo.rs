//! Copies that were made before: requests of one shape share a list.
//!
//! Making the copies of a request takes longer than anything else that the engine does for it.
//! **Hazard.** A list that is used where another belongs moves wrong bytes. **Guarantee.** Two
//! requests have one [`Key`] only if an exact translation takes one to the other. **Structure.**
//! The order's slowest components, as long as each is a whole dimension or the outer part of a
//! blocked one, and moving along it adds a constant on both sides, are [`Axis`]es. Walking down
//! them to a request gives the blocks that hold it: what they are is the translation, what lies
//! inside is the shape. Blocks that the box may cut stand for themselves only.

use crate::chunk::Chunk;
use model::{CopyDim, CopyList, FieldCopy, NdCopy, Stride};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most axes; what lies below is part of the shape.
pub(crate) const MAX_AXES: usize = 8;
/// The most lists kept for a hop.
const MAX_TEMPLATES: usize = 256;
/// The most memory that these take.
const MAX_BYTES: usize = 16 << 20;
/// About what a piece of a copy takes.
const PIECE_BYTES: u64 = 512;
/// The class of blocks that are all alike.
const ALIKE: u64 = u64::MAX;

/// One of the slowest components of a hop's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Indices of the dimension; at least 1.
    pub(crate) extent: u64,
    /// Indices that the component holds still together; 1 for a whole dimension.
    pub(crate) block: u64,
    /// Where the box starts in its first block.
    pub(crate) phase: u64,
    /// What a block adds to the address of the source and of the destination, where these are
    /// instances.
    pub(crate) strides: [i64; 2],
}

/// How the requests of a hop repeat.
#[derive(Debug)]
pub(crate) enum Repeat {
    /// All are plain runs, at the same distance on both sides.
    Run,
    /// Along these axes, slowest first; `total` is the length of the stream.
    Along { axes: Vec<Axis>, total: u64 },
}

/// The shape of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    axes: usize,
    offset: u64,
    bytes: u64,
    classes: [u64; MAX_AXES],
}

/// Where a request lies, by what its shape doesn't say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    key: Key,
    /// What the axes' blocks add to the address on either side.
    offsets: [i64; 2],
}

#[derive(Debug)]
struct Template {
    list: CopyList,
    /// Offsets of the list, less what the frame adds.
    bases: [i64; 2],
}

/// What the offsets of a request's sides count from: an instance's base, or the start of a slot.
pub(crate) type Origins = [Option<u64>; 2];

/// The lists of a hop. It changes what a request costs, never what it is.
#[derive(Debug)]
pub(crate) struct Memo {
    repeat: Repeat,
    templates: Mutex<Templates>,
}

/// Lists by the shape of their requests. Invariant: `bytes` is what all of them take.
#[derive(Debug, Default)]
struct Templates {
    by_key: HashMap<Key, Template>,
    bytes: usize,
}

impl Memo {
    pub(crate) fn new(repeat: Repeat) -> Self {
        Memo { repeat, templates: Mutex::default() }
    }

    /// The most memory that lists of up to `pieces` pieces come to take.
    pub(crate) fn max_bytes(pieces: u64) -> u64 {
        let all = pieces.saturating_mul(MAX_TEMPLATES as u64 * PIECE_BYTES);
        all.min(MAX_BYTES as u64)
    }

    /// The chunk of `range`, if one of its shape was kept.
    pub(crate) fn find(&self, range: &Range<u64>, origins: Origins) -> Option<Chunk> {
        let frame = self.repeat.frame(range);
        let offsets = self.offsets(&frame, range, origins);
        let templates = self.lock();
        let template = templates.by_key.get(&frame.key)?;
        Some(Chunk {
            list: CopyList::clone(&template.list),
            src_offset: template.bases[0].wrapping_add(offsets[0]),
            dst_offset: template.bases[1].wrapping_add(offsets[1]),
        })
    }

    /// Keeps the chunk of `range`.
    pub(crate) fn keep(&self, range: &Range<u64>, origins: Origins, chunk: &Chunk) {
        let frame = self.repeat.frame(range);
        let offsets = self.offsets(&frame, range, origins);
        let bases =
            [chunk.src_offset.wrapping_sub(offsets[0]), chunk.dst_offset.wrapping_sub(offsets[1])];
        self.lock().keep(frame.key, Template { list: CopyList::clone(&chunk.list), bases });
    }

    /// What a request's place adds to its offsets: in a stream its position, in an instance what
    /// its blocks add.
    fn offsets(&self, frame: &Frame, range: &Range<u64>, origins: Origins) -> [i64; 2] {
        let position = |origin: u64| range.start as i64 - origin as i64;
        let is_run = matches!(self.repeat, Repeat::Run);
        let offset = |side: usize| match origins[side] {
            Some(origin) => position(origin),
            None if is_run => position(0),
            None => frame.offsets[side],
        };
        [offset(0), offset(1)]
    }

    fn lock(&self) -> MutexGuard<'_, Templates> {
        // A panic while the lock was held left no template half-written.
        self.templates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Templates {
    /// Keeps one more; all others go first where it would be one too many.
    fn keep(&mut self, key: Key, template: Template) {
        let bytes = list_bytes(&template.list);
        if bytes > MAX_BYTES {
            return;
        }
        if self.by_key.len() >= MAX_TEMPLATES || self.bytes + bytes > MAX_BYTES {
            *self = Templates::default();
        }
        self.bytes += bytes;
        if let Some(before) = self.by_key.insert(key, template) {
            self.bytes -= list_bytes(&before.list);
        }
    }
}

/// The memory that a list takes.
fn list_bytes(list: &[NdCopy]) -> usize {
    list.iter().map(copy_bytes).sum()
}

fn copy_bytes(copy: &NdCopy) -> usize {
    let entries = |table: &Option<Arc<[u64]>>| table.as_ref().map_or(0, |table| table.len());
    let tables = copy.dims.iter().map(|d| entries(&d.src_index) + entries(&d.dst_index));
    let fields = size_of::<FieldCopy>() + copy.dims.len() * size_of::<Stride>();
    size_of::<NdCopy>()
        + copy.dims.len() * size_of::<CopyDim>()
        + copy.fields.len() * fields
        + tables.sum::<usize>() * size_of::<u64>()
}

impl Repeat {
    fn frame(&self, range: &Range<u64>) -> Frame {
        let bytes = range.end - range.start;
        let key = Key { axes: 0, offset: 0, bytes, classes: [0; MAX_AXES] };
        let mut frame = Frame { key, offsets: [0, 0] };
        if let Repeat::Along { axes, total } = self {
            frame.walk(axes, *total, range);
        }
        frame
    }
}

impl Frame {
    /// Goes down the axes as long as one block holds all of `range`, and to the block with its
    /// start on the first where several do.
    fn walk(&mut self, axes: &[Axis], total: u64, range: &Range<u64>) {
        let (mut start, mut bytes) = (0, total);
        for (i, axis) in axes.iter().enumerate() {
            let each = bytes / axis.extent;
            let first = axis.block_at((range.start - start) / each);
            let last = axis.block_at((range.end - 1 - start) / each);
            self.key.axes = i + 1;
            self.key.classes[i] = axis.class(first, last);
            for (offset, stride) in self.offsets.iter_mut().zip(axis.strides) {
                // Only the distance of two requests counts, and that fits.
                *offset = offset.wrapping_add((first as i64).wrapping_mul(stride));
            }
            let indices = axis.indices(first);
            start += indices.start * each;
            bytes = (indices.end - indices.start) * each;
            if first != last {
                break;
            }
        }
        self.key.offset = range.start - start;
    }
}

impl Axis {
    fn block_at(&self, index: u64) -> u64 {
        (index + self.phase) / self.block
    }

    /// The indices of a block that lie in the box.
    fn indices(&self, block: u64) -> Range<u64> {
        let start = (block * self.block).saturating_sub(self.phase);
        let end =
            (block + 1).saturating_mul(self.block).saturating_sub(self.phase).min(self.extent);
        start..end
    }

    /// Blocks inside the box are alike; the first and the last may be cut, each its own way.
    fn class(&self, first: u64, last: u64) -> u64 {
        let is_inside = first > 0 && last < self.block_at(self.extent - 1);
        if self.block == 1 || is_inside { ALIKE } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` runs of a byte.
    fn chunk(count: usize) -> Chunk {
        let field =
            FieldCopy { bytes: 1, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
        let copy = NdCopy { dims: Vec::new(), fields: vec![field] };
        Chunk { list: vec![copy; count].into(), src_offset: 0, dst_offset: 0 }
    }

    #[test]
    fn what_is_kept_fits_a_limit() {
        let memo = Memo::new(Repeat::Run);
        let each = chunk(10_000);
        for bytes in 1..100 {
            memo.keep(&(0..bytes), [None, None], &each);
            assert_eq!(memo.find(&(0..bytes), [None, None]), Some(each.clone()));
            let templates = memo.lock();
            let all: usize = templates.by_key.values().map(|t| list_bytes(&t.list)).sum();
            assert!(templates.bytes == all && all <= MAX_BYTES, "{all} of {}", templates.bytes);
        }
        memo.keep(&(0..100), [None, None], &chunk(1_000_000));
        assert_eq!(memo.find(&(0..100), [None, None]), None);
        assert!(memo.find(&(0..99), [None, None]).is_some());
    }
}
