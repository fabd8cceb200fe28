//! Byte ranges of one region: first fit, coalescing.

/// Bounds on where a block starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The block's length; at least 1.
    pub(crate) bytes: u64,
    /// The block starts at a multiple of this, plus `phase`; a power of two.
    pub(crate) align_bytes: u64,
    /// Below `align_bytes`.
    pub(crate) phase: u64,
}

/// A block given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Block {
    /// Where it starts.
    pub(crate) start: u64,
    /// Where it ends.
    pub(crate) end: u64,
}

/// The free parts of `0..capacity`.
///
/// Invariant: `free` is sorted, no block is empty, no two touch or overlap; what was given out and
/// not taken back overlaps none of them.
#[derive(Debug)]
pub(crate) struct Arena {
    capacity_bytes: u64,
    free_bytes: u64,
    free: Vec<Block>,
}

impl Arena {
    /// All of `0..capacity_bytes`, free.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let all = Block { start: 0, end: capacity_bytes };
        let free = if capacity_bytes == 0 { Vec::new() } else { vec![all] };
        Arena { capacity_bytes, free_bytes: capacity_bytes, free }
    }

    /// How much is free, in however many pieces.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// How much there is.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The first place that `fit` has room in.
    pub(crate) fn allocate(&mut self, fit: Fit) -> Option<Block> {
        let found =
            self.free.iter().enumerate().find_map(|(i, hole)| Some((i, place(*hole, fit)?)));
        let (at, block) = found?;
        let hole = self.free.remove(at);
        self.free_bytes -= block.end - block.start;
        let rest = [Block { start: block.end, ..hole }, Block { end: block.start, ..hole }];
        for part in rest.into_iter().filter(|part| part.start < part.end) {
            self.free.insert(at, part);
        }
        Some(block)
    }

    /// Takes back a block that [`Arena::allocate`] gave out.
    pub(crate) fn release(&mut self, block: Block) {
        self.free_bytes += block.end - block.start;
        let at = self.free.partition_point(|hole| hole.start < block.start);
        debug_assert!(at == 0 || self.free[at - 1].end <= block.start, "a block is released once");
        debug_assert!(self.free.get(at).is_none_or(|next| block.end <= next.start));
        self.free.insert(at, block);
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
    }

    fn join(&mut self, at: usize) {
        if self.free.get(at + 1).is_some_and(|next| next.start == self.free[at].end) {
            self.free[at].end = self.free.remove(at + 1).end;
        }
    }
}

fn place(hole: Block, fit: Fit) -> Option<Block> {
    let ahead = fit.phase.wrapping_sub(hole.start) & (fit.align_bytes - 1);
    let start = hole.start.checked_add(ahead)?;
    let end = start.checked_add(fit.bytes)?;
    (end <= hole.end).then_some(Block { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY_BYTES: u64 = 1 << 12;

    fn fit(bytes: u64, phase: u64) -> Fit {
        Fit { bytes, align_bytes: 64, phase }
    }

    #[test]
    fn blocks_keep_alignment_and_phase() {
        let mut arena = Arena::new(CAPACITY_BYTES);
        assert_eq!(arena.allocate(fit(10, 0)), Some(Block { start: 0, end: 10 }));
        assert_eq!(arena.allocate(fit(10, 5)), Some(Block { start: 69, end: 79 }));
        assert_eq!(arena.allocate(fit(5000, 0)), None);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((1..700u64, 0..64u64, any::<bool>()), 1..200)
        ) {
            let mut arena = Arena::new(CAPACITY_BYTES);
            let mut held: Vec<Block> = Vec::new();
            for (bytes, phase, give_back) in steps {
                if give_back && !held.is_empty() {
                    arena.release(held.swap_remove(bytes as usize % held.len()));
                } else if let Some(block) = arena.allocate(fit(bytes, phase)) {
                    prop_assert_eq!(block.start % 64, phase);
                    prop_assert_eq!(block.end - block.start, bytes);
                    prop_assert!(block.end <= CAPACITY_BYTES);
                    let apart = |h: &Block| h.end <= block.start || block.end <= h.start;
                    prop_assert!(held.iter().all(apart));
                    held.push(block);
                }
                let out: u64 = held.iter().map(|h| h.end - h.start).sum();
                prop_assert_eq!(arena.free_bytes(), CAPACITY_BYTES - out);
                prop_assert!(arena.free.windows(2).all(|p| p[0].end < p[1].start));
            }
            held.into_iter().for_each(|block| arena.release(block));
            prop_assert_eq!(&arena.free, &[Block { start: 0, end: CAPACITY_BYTES }]);
        }
    }
}
