//! A request as pieces that are contiguous on both sides, in ascending file offsets.
//!
//! Pieces are made a window at a time, so that a request of millions of them stays small.

use channel::layout::{CopyDim, FieldCopy, NdCopy, Stride};
use channel::model::CopyList;
use std::sync::Arc;

/// The most pieces that are laid out at once.
const WINDOW_PIECES: usize = 4096;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a file to memory.
    Read,
    /// From memory to a file.
    Write,
}

/// Bytes that lie in one piece in the file and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in the file.
    pub(crate) file: u64,
    /// Address in memory.
    pub(crate) memory: u64,
    /// Length.
    pub(crate) bytes: u64,
    /// How many bytes behind it in the file may be written with anything.
    pub(crate) padding: u64,
}

impl Piece {
    /// Takes in `next`, which follows it on both sides.
    fn join(&mut self, next: &Piece) {
        self.bytes += next.bytes;
        self.padding = next.padding;
    }
}

/// Where the offsets of a request count from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// The offset of the file side's base in the file.
    pub(crate) file: u64,
    /// The address of the memory side's base.
    pub(crate) memory: u64,
}

/// Goes through the pieces of a request.
#[derive(Debug)]
pub(crate) struct Walk {
    list: CopyList,
    direction: Direction,
    origin: Origin,
    /// The copy at work, its dimensions by file stride, the widest first, and the next point.
    copy: usize,
    order: Vec<usize>,
    point: Vec<u64>,
    window: Vec<Piece>,
    /// The first piece of the window that has not been taken.
    next: usize,
}

impl Walk {
    /// The pieces of `list`, whose bounds have been checked.
    pub(crate) fn new(list: CopyList, direction: Direction, origin: Origin) -> Self {
        let (order, point, window) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk { list, direction, origin, copy: 0, order, point, window, next: 0 };
        walk.enter();
        walk
    }

    /// The pieces laid out and not taken, ascending; empty when the request has no more.
    pub(crate) fn pieces(&mut self) -> &[Piece] {
        if self.next == self.window.len() {
            self.refill();
        }
        &self.window[self.next..]
    }

    /// Takes the first `count` of [`Walk::pieces`]; where `rest` is given, the last of them goes
    /// back in part, as `rest`.
    pub(crate) fn take(&mut self, count: usize, rest: Option<Piece>) {
        self.next += count;
        if let Some(rest) = rest {
            self.next -= 1;
            self.window[self.next] = rest;
        }
    }

    /// Starts the next copy that there is.
    fn enter(&mut self) {
        let empty = |copy: &NdCopy| copy.dims.iter().any(|d| d.extent == 0);
        while self.list.get(self.copy).is_some_and(empty) {
            self.copy += 1;
        }
        let Some(copy) = self.list.get(self.copy) else { return };
        let stride = |d: &usize| self.file_stride(copy.fields[0].strides[*d]).unsigned_abs();
        let mut order: Vec<usize> = (0..copy.dims.len()).collect();
        order.sort_by_key(|d| std::cmp::Reverse(stride(d)));
        self.point = vec![0; order.len()];
        self.order = order;
    }

    fn refill(&mut self) {
        self.window.clear();
        self.next = 0;
        let list = Arc::clone(&self.list);
        while self.window.len() < WINDOW_PIECES {
            let Some(copy) = list.get(self.copy) else { break };
            for field in &copy.fields {
                self.add(copy, field);
            }
            self.step(copy);
        }
        if !self.window.is_sorted_by_key(|p| p.file) {
            self.window.sort_unstable_by_key(|p| p.file);
            join_neighbours(&mut self.window);
        }
    }

    /// Lays out the piece of `field` at the present point.
    fn add(&mut self, copy: &NdCopy, field: &FieldCopy) {
        let (mut src, mut dst) = (field.src_offset, field.dst_offset);
        for ((dim, stride), &at) in copy.dims.iter().zip(&field.strides).zip(&self.point) {
            let (from, to) = positions(dim, at);
            src = src.wrapping_add(from.wrapping_mul(stride.src));
            dst = dst.wrapping_add(to.wrapping_mul(stride.dst));
        }
        let (file, memory, padding) = match self.direction {
            Direction::Read => (src, dst, 0),
            Direction::Write => (dst, src, field.padding),
        };
        let file = self.origin.file.wrapping_add_signed(file);
        let memory = self.origin.memory.wrapping_add_signed(memory);
        let piece = Piece { file, memory, bytes: field.bytes, padding };
        match self.window.last_mut() {
            Some(last) if continues(last, &piece) => last.join(&piece),
            _ => self.window.push(piece),
        }
    }

    /// Goes to the next point, or to the next copy after the last one.
    fn step(&mut self, copy: &NdCopy) {
        for &d in self.order.iter().rev() {
            self.point[d] += 1;
            if self.point[d] < copy.dims[d].extent {
                return;
            }
            self.point[d] = 0;
        }
        self.copy += 1;
        self.enter();
    }

    fn file_stride(&self, stride: Stride) -> i64 {
        match self.direction {
            Direction::Read => stride.src,
            Direction::Write => stride.dst,
        }
    }
}

/// The positions of loop counter `at` on either side.
fn positions(dim: &CopyDim, at: u64) -> (i64, i64) {
    let position = |table: &Option<Arc<[u64]>>| {
        let index = usize::try_from(at).ok();
        let position = table.as_ref().zip(index).map_or(at, |(table, index)| table[index]);
        position.cast_signed()
    };
    (position(&dim.src_index), position(&dim.dst_index))
}

fn continues(last: &Piece, next: &Piece) -> bool {
    last.file.wrapping_add(last.bytes) == next.file
        && last.memory.wrapping_add(last.bytes) == next.memory
}

fn join_neighbours(pieces: &mut Vec<Piece>) {
    pieces.dedup_by(|next, last| {
        let joined = continues(last, next);
        if joined {
            last.join(next);
        }
        joined
    });
}
