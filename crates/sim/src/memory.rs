//! Virtual memories: regions of real bytes, and a ledger of who may touch them.
//!
//! **Hazard.** An engine that reuses a ring too early is right most of the time: the bytes that it
//! overwrites have often been read already. **Guarantee.** Here they have not: the adversary of
//! [`crate::channel`] reads as late and scribbles as early as it may, every byte of staging is
//! poisoned the moment its reader is done, and the ledger of a staging arena says for each byte
//! whose it is, so that a wrong request is named when it is submitted. **Structure.**
//! [`Memories`] is a table of regions; [`Ledger`] keeps the state of each staged byte.

use crate::violation::Violation;
use layout::touched;
use model::{CopyWork, MemoryId, NdCopy, NodeId, Place, RegionId, Stride};
use std::ops::Range;

/// A transfer, by its position in the scenario.
pub(crate) type Owner = u32;

/// What one byte of a staging arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// Nothing: poison.
    Free,
    /// A request of the owner is writing it.
    Written(Owner),
    /// Payload of the owner that nobody has read.
    Full(Owner),
    /// A request of the owner is reading it.
    Read(Owner),
}

#[derive(Debug)]
struct VirtualRegion {
    memory: MemoryId,
    len_bytes: u64,
    /// Empty where payload is not simulated.
    bytes: Vec<u8>,
    /// Staging arenas have one, where payload is simulated.
    ledger: Option<Vec<Cell>>,
}

/// Every region of a run.
#[derive(Debug)]
pub(crate) struct Memories {
    regions: Vec<VirtualRegion>,
    payload: bool,
}

/// What staging and freed memory are filled with.
const POISON: u8 = 0xdb;

impl Memories {
    /// No region yet. Without `payload`, lengths are checked and no byte is kept.
    pub(crate) fn new(payload: bool) -> Self {
        Memories { regions: Vec::new(), payload }
    }

    /// A region of a user, holding `bytes`.
    pub(crate) fn add_instance(&mut self, memory: MemoryId, bytes: Vec<u8>) -> RegionId {
        let len_bytes = bytes.len() as u64;
        self.add(VirtualRegion { memory, len_bytes, bytes, ledger: None })
    }

    /// A region of a user of which only the length is known.
    pub(crate) fn add_length(&mut self, memory: MemoryId, len_bytes: u64) -> RegionId {
        self.add(VirtualRegion { memory, len_bytes, bytes: Vec::new(), ledger: None })
    }

    /// A staging arena of the engine.
    pub(crate) fn add_arena(&mut self, memory: MemoryId, len_bytes: u64) -> RegionId {
        let len = if self.payload { to_usize(len_bytes) } else { 0 };
        let ledger = self.payload.then(|| vec![Cell::Free; len]);
        self.add(VirtualRegion { memory, len_bytes, bytes: vec![POISON; len], ledger })
    }

    /// The memory that holds `region`.
    pub(crate) fn memory_of(&self, region: RegionId) -> Option<MemoryId> {
        self.regions.get(region.index as usize).map(|r| r.memory)
    }

    /// The bytes of `region`.
    pub(crate) fn bytes(&self, region: RegionId) -> &[u8] {
        &self.regions[region.index as usize].bytes
    }

    /// Overwrites all of `region`, as its owner may once no transfer uses it.
    pub(crate) fn fill(&mut self, region: RegionId, byte: u8) {
        self.regions[region.index as usize].bytes.fill(byte);
    }

    /// Takes a request of `owner` in: its bounds, and what the ledgers say of its bytes.
    pub(crate) fn begin(&mut self, owner: Owner, work: &CopyWork) -> Result<(), Violation> {
        self.begin_read(owner, work)?;
        let unread = |()| Violation::OverwritesUnread { place: work.dst };
        self.turn(work, Side::Dst, Cell::Free, Cell::Written(owner)).map_err(unread)
    }

    /// Takes in a request of which nothing will arrive.
    pub(crate) fn begin_read(&mut self, owner: Owner, work: &CopyWork) -> Result<(), Violation> {
        for copy in work.list.iter() {
            let (src, dst) = touched(copy);
            self.check_bounds(work.src, src)?;
            self.check_bounds(work.dst, dst)?;
        }
        let unwritten = |()| Violation::ReadsUnwritten { place: work.src };
        self.turn(work, Side::Src, Cell::Full(owner), Cell::Read(owner)).map_err(unwritten)
    }

    /// Gives a request back: what it wrote is full, what it read is free, and poisoned.
    pub(crate) fn end(&mut self, owner: Owner, work: &CopyWork) -> Result<(), Violation> {
        let lost = |_| Violation::Stolen { place: work.dst };
        self.turn(work, Side::Dst, Cell::Written(owner), Cell::Full(owner)).map_err(lost)?;
        self.turn(work, Side::Src, Cell::Read(owner), Cell::Free).map_err(lost)?;
        if self.payload && self.region(work.src).ledger.is_some() {
            self.poison(work, Side::Src, POISON);
        }
        Ok(())
    }

    /// Frees what `owner`, which has ended there, left in the staging of the memories that are
    /// `its`; says how many bytes that were.
    pub(crate) fn forget(
        &mut self,
        owner: Owner,
        its: impl Fn(MemoryId) -> bool,
    ) -> Result<u64, Violation> {
        let mut left_bytes = 0;
        for region in self.regions.iter_mut().filter(|region| its(region.memory)) {
            let Some(ledger) = &mut region.ledger else { continue };
            for (cell, byte) in ledger.iter_mut().zip(&mut region.bytes) {
                match *cell {
                    Cell::Full(o) if o == owner => {
                        (*cell, *byte, left_bytes) = (Cell::Free, POISON, left_bytes + 1);
                    }
                    Cell::Written(o) | Cell::Read(o) if o == owner => {
                        return Err(Violation::EndedInFlight);
                    }
                    _ => {}
                }
            }
        }
        Ok(left_bytes)
    }

    /// What a request of `owner` was writing is not written any more: its node is cut off.
    pub(crate) fn abandon(&mut self, owner: Owner, work: &CopyWork) -> Result<(), Violation> {
        let lost = |()| Violation::Stolen { place: work.dst };
        self.turn(work, Side::Dst, Cell::Written(owner), Cell::Full(owner)).map_err(lost)
    }

    /// What a request of `owner` was reading is read.
    pub(crate) fn end_read(&mut self, owner: Owner, work: &CopyWork) -> Result<(), Violation> {
        let lost = |()| Violation::Stolen { place: work.src };
        self.turn(work, Side::Src, Cell::Read(owner), Cell::Free).map_err(lost)
    }

    /// The node of `memory` has died: what it had in staging is gone.
    pub(crate) fn bury(&mut self, node: NodeId) {
        let here = self.regions.iter_mut().filter(|r| r.memory.node == node);
        here.for_each(|r| r.ledger = None);
    }

    /// How many bytes of staging are not free.
    pub(crate) fn staged_bytes(&self) -> u64 {
        let ledgers = self.regions.iter().filter_map(|r| r.ledger.as_ref());
        ledgers.flatten().filter(|c| **c != Cell::Free).count() as u64
    }

    /// The bytes that `work` reads, in the order of its list.
    pub(crate) fn read(&self, work: &CopyWork) -> Vec<u8> {
        let mut taken =
            Vec::with_capacity(if self.payload { to_usize(work.payload_bytes) } else { 0 });
        if self.payload {
            let src = &self.region(work.src).bytes;
            runs(work, Side::Src, |range| taken.extend_from_slice(&src[range]));
        }
        taken
    }

    /// Writes what [`Memories::read`] took to where `work` wants it.
    pub(crate) fn write(&mut self, work: &CopyWork, taken: &[u8]) {
        if self.payload {
            let dst = &mut self.regions[work.dst.region.index as usize].bytes;
            let mut from = 0;
            runs(work, Side::Dst, |range| {
                let len = range.len();
                dst[range].copy_from_slice(&taken[from..from + len]);
                from += len;
            });
        }
    }

    /// Scribbles `byte` over what `work` is going to write.
    pub(crate) fn scribble(&mut self, work: &CopyWork, byte: u8) {
        if self.payload {
            self.poison(work, Side::Dst, byte);
        }
    }

    fn add(&mut self, region: VirtualRegion) -> RegionId {
        self.regions.push(region);
        RegionId { index: to_u32(self.regions.len() - 1), generation: 0 }
    }

    fn region(&self, place: Place) -> &VirtualRegion {
        &self.regions[place.region.index as usize]
    }

    fn check_bounds(&self, place: Place, span: Range<i64>) -> Result<(), Violation> {
        let region = self.regions.get(place.region.index as usize);
        let len_bytes = region.map_or(0, |r| r.len_bytes);
        let base = i128::from(place.offset);
        let inside = base + i128::from(span.start) >= 0
            && base + i128::from(span.end) <= i128::from(len_bytes);
        inside.then_some(()).ok_or(Violation::OutOfBounds { place, span, len_bytes })
    }

    fn poison(&mut self, work: &CopyWork, side: Side, byte: u8) {
        let bytes = &mut self.regions[side.place(work).region.index as usize].bytes;
        runs(work, side, |range| bytes[range].fill(byte));
    }

    /// Turns the cells of one side from `was` to `becomes`, or fails where one is something else.
    fn turn(&mut self, work: &CopyWork, side: Side, was: Cell, becomes: Cell) -> Result<(), ()> {
        let region = &mut self.regions[side.place(work).region.index as usize];
        let Some(ledger) = &mut region.ledger else { return Ok(()) };
        let mut right = true;
        runs(work, side, |range| {
            right &= ledger[range.clone()].iter().all(|c| *c == was);
            ledger[range].fill(becomes);
        });
        right.then_some(()).ok_or(())
    }
}

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
enum Side {
    Src,
    Dst,
}

impl Side {
    fn place(self, work: &CopyWork) -> Place {
        match self {
            Side::Src => work.src,
            Side::Dst => work.dst,
        }
    }

    fn stride(self, stride: Stride) -> i64 {
        match self {
            Side::Src => stride.src,
            Side::Dst => stride.dst,
        }
    }

    fn position(self, copy: &NdCopy, dim: usize, count: u64) -> i64 {
        let index = match self {
            Side::Src => &copy.dims[dim].src_index,
            Side::Dst => &copy.dims[dim].dst_index,
        };
        to_i64(index.as_ref().map_or(count, |table| table[to_usize(count)]))
    }
}

/// Calls `visit` with every contiguous run of one side of `work`, in one order for both sides.
fn runs(work: &CopyWork, side: Side, mut visit: impl FnMut(Range<usize>)) {
    for copy in work.list.iter() {
        let mut counts = vec![0u64; copy.dims.len()];
        loop {
            visit_point(copy, &counts, (side, side.place(work).offset), &mut visit);
            if !step(copy, &mut counts) {
                break;
            }
        }
    }
}

fn visit_point(
    copy: &NdCopy,
    counts: &[u64],
    (side, base): (Side, u64),
    visit: &mut impl FnMut(Range<usize>),
) {
    for field in &copy.fields {
        let first = match side {
            Side::Src => field.src_offset,
            Side::Dst => field.dst_offset,
        };
        let along = |(dim, stride): (usize, &Stride)| {
            side.position(copy, dim, counts[dim]) * side.stride(*stride)
        };
        let offset = first + field.strides.iter().enumerate().map(along).sum::<i64>();
        let start = to_usize(base.checked_add_signed(offset).expect("bounds were checked"));
        visit(start..start + to_usize(field.bytes));
    }
}

/// Moves `counts` to the next point of `copy`; false after the last.
fn step(copy: &NdCopy, counts: &mut [u64]) -> bool {
    for dim in (0..counts.len()).rev() {
        counts[dim] += 1;
        if counts[dim] < copy.dims[dim].extent {
            return true;
        }
        counts[dim] = 0;
    }
    false
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("simulated memory fits in this machine's")
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 regions")
}

fn to_i64(position: u64) -> i64 {
    i64::try_from(position).expect("positions fit in 63 bits")
}

#[cfg(test)]
mod tests;
