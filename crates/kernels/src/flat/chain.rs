//! Loops that are one long row, as one side has them.

use crate::element::Line;
use crate::nest::{Loop, Nest};

/// The most loops of a long row.
const MOST_CHAINED: usize = 5;

/// Rows are long enough from here on.
const ROW_BYTES: usize = 4 << 10;

/// Loops in which one side goes on, the fastest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    pub(super) lines: [Line; MOST_CHAINED],
    pub(super) len: usize,
}

impl Chain {
    /// Takes the loops in which a side, as `stride` says, goes on from elements of `bytes`, until
    /// they are long; but none for which `leave` holds. `None` without a first.
    pub(super) fn take(
        nest: &mut Nest,
        stride: impl Fn(&Loop) -> isize,
        leave: impl Fn(&Loop) -> bool,
    ) -> Option<Chain> {
        let mut chain = Chain { lines: [Line { count: 1, stride: (0, 0) }; MOST_CHAINED], len: 0 };
        let mut bytes = nest.bytes;
        while bytes < ROW_BYTES && chain.len < MOST_CHAINED {
            let next = |l: &Loop| l.is_plain() && stride(l) == bytes as isize && !leave(l);
            let Some(k) = nest.loops().iter().position(next) else { break };
            let taken = nest.take(k);
            bytes *= taken.count;
            chain.lines[chain.len] = Line { count: taken.count, stride: (taken.src, taken.dst) };
            chain.len += 1;
        }
        (chain.len > 0).then_some(chain)
    }

    pub(super) fn count(&self) -> usize {
        self.lines[..self.len].iter().map(|l| l.count).product()
    }

    /// Where its elements are on either side, from `start` on.
    pub(super) fn from(&self, start: usize) -> Walk<'_> {
        let mut walk = Walk { chain: self, at: [0; MOST_CHAINED], offset: (0, 0) };
        let mut left = start;
        for (at, line) in walk.at.iter_mut().zip(&self.lines[..self.len]) {
            *at = left % line.count;
            left /= line.count;
            walk.offset.0 += *at as isize * line.stride.0;
            walk.offset.1 += *at as isize * line.stride.1;
        }
        walk
    }
}

/// Goes through a chain, without an end.
pub(super) struct Walk<'a> {
    chain: &'a Chain,
    at: [usize; MOST_CHAINED],
    offset: (isize, isize),
}

impl Iterator for Walk<'_> {
    type Item = (isize, isize);

    #[inline(always)]
    fn next(&mut self) -> Option<(isize, isize)> {
        let offset = self.offset;
        for (at, line) in self.at.iter_mut().zip(&self.chain.lines[..self.chain.len]) {
            *at += 1;
            self.offset.0 += line.stride.0;
            self.offset.1 += line.stride.1;
            if *at < line.count {
                break;
            }
            *at = 0;
            self.offset.0 -= line.count as isize * line.stride.0;
            self.offset.1 -= line.count as isize * line.stride.1;
        }
        Some(offset)
    }
}
