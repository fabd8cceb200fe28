//! An intermediate buffer: a ring over the payload stream (DESIGN.md, decision 2).
//!
//! **Hazard.** A byte of the ring is overwritten while a request still reads it, or read before it
//! is written. **Guarantee.** [`Window`] admits a reader only to what is completely written, and a
//! writer only where the readers of the old content have *completed*. **Structure.** The stream is
//! cut into slots, in order; slot `k` lies at `(k mod slots) · pitch`. No request crosses a slot,
//! so none wraps. Cursors walk the slots, since ragged ones have no closed form.

use crate::cutting::Rule;
use layout::Stream;
use model::MemoryId;

/// Slots start at a multiple of this where the buffer's size allows it, for direct I/O.
pub(crate) const ALIGN_BYTES: u64 = 4096;

/// One slot's part of the stream. Slots follow each other without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot {
    /// Counted from the start of the stream, not modulo the ring.
    pub(crate) index: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The shape of a ring: what is the same for every transfer that runs a program.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) memory: MemoryId,
    pub(crate) stream: Stream,
    pub(crate) rule: Rule,
    /// Distance of neighbouring slots; no slot is longer.
    pub(crate) pitch_bytes: u64,
    /// How many slots the buffer holds; at least 1.
    pub(crate) slots: u64,
}

impl Ring {
    /// The size of the buffer.
    pub(crate) fn bytes(&self) -> u64 {
        self.pitch_bytes * self.slots
    }

    /// The slot that holds the start of the stream.
    pub(crate) fn first(&self) -> Slot {
        self.slot(0, 0)
    }

    /// The slot that holds `position`, which lies in `slot` or the one after it.
    pub(crate) fn holding(&self, slot: Slot, position: u64) -> Slot {
        if position < slot.end { slot } else { self.after(slot) }
    }

    /// The slot after `slot`; an empty one at the end of the stream.
    pub(crate) fn after(&self, slot: Slot) -> Slot {
        self.slot(slot.index + 1, slot.end)
    }

    /// Where `slot` lies in the buffer.
    pub(crate) fn offset(&self, slot: Slot) -> u64 {
        slot.index % self.slots * self.pitch_bytes
    }

    fn slot(&self, index: u64, start: u64) -> Slot {
        let total = self.stream.bytes();
        let end = if start < total { self.rule.end(&self.stream, start, total) } else { start };
        debug_assert!(end - start <= self.pitch_bytes, "a slot fits its place");
        Slot { index, start, end }
    }
}

/// What of a ring is written and what is read, for one transfer.
///
/// Invariant: `freed <= written`; `tail` holds `freed`, or both are at the end of the stream.
#[derive(Debug, Default)]
pub(crate) struct Window {
    written: u64,
    freed: u64,
    tail: Slot,
}

impl Window {
    /// An empty window at the start of `ring`'s stream.
    pub(crate) fn new(ring: &Ring) -> Self {
        Window { written: 0, freed: 0, tail: ring.first() }
    }

    /// How far the stream is completely written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// How far the stream was read.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// Whether the part of `slot` up to stream position `end` may be overwritten.
    pub(crate) fn has_room(&self, ring: &Ring, slot: Slot, end: u64) -> bool {
        let Some(before) = slot.index.checked_sub(ring.slots) else { return true };
        let last_read = self.tail.end.min(self.tail.start + (end - slot.start));
        self.tail.index > before || (self.tail.index == before && self.freed >= last_read)
    }

    /// Everything below `position` is written.
    pub(crate) fn write(&mut self, position: u64) {
        debug_assert!(position >= self.written);
        self.written = position;
    }

    /// Everything below `position` was read, and the requests that read it have completed.
    pub(crate) fn free(&mut self, ring: &Ring, position: u64) {
        debug_assert!(self.freed <= position && position <= self.written);
        self.freed = position;
        while self.tail.end <= position && self.tail.end > self.tail.start {
            self.tail = ring.after(self.tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, NodeId};

    /// Two slots of 8 bytes over a stream of 32.
    fn ring() -> Ring {
        let stream = Stream::new(&Layout::row_major(1), &[32], &[0], &[1]).unwrap();
        let memory = MemoryId { node: NodeId(0), index: 1 };
        Ring { memory, stream, rule: Rule::Every { bytes: 8 }, pitch_bytes: 8, slots: 2 }
    }

    #[test]
    fn what_was_read_may_be_overwritten_before_the_rest_of_its_slot() {
        let ring = ring();
        let second = ring.after(ring.first());
        let third = ring.after(second);
        let mut window = Window::new(&ring);
        assert!(window.has_room(&ring, second, 16));
        window.write(16);
        window.free(&ring, 5);
        assert!(window.has_room(&ring, third, 21));
        window.free(&ring, 13);
        assert!(window.has_room(&ring, third, 24));
        assert!(window.has_room(&ring, ring.after(third), 29));
    }
}
