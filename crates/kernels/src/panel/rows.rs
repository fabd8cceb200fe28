//! Rows of the destination that follow each other and are whole lines only together.
//!
//! **Hazard.** Lines that two rows share are written once, and whole: elsewhere on the way they cost more than what is
//! moved. **Structure.** Whole lanes are made lines in registers (`tile::rows`), by panels of a line of so many rows of
//! the source as a cache keeps of a box; others are put together first.

use super::chunk::{SQUARES_BYTES, panel_run_bytes};
use super::{PACKED_BYTES, Panels, Writes};
use crate::flat::through::go_through;
use crate::tile::picked::are_picked;
use crate::tile::pitch;
use crate::tile::rows::{ALIKE, are_rows};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES};

/// At most this part of the rows is moved twice.
const MOST_TWICE: usize = 4;

/// And by a third where they go through registers.
const MOST_TWICE_THROUGH: usize = 3;

impl Panels {
    /// How such rows are written, if they are; `apart` says that they share no line with what other loops reach.
    pub(super) fn joined(&self, apart: bool) -> Option<Writes> {
        let row = self.row_bytes();
        let parts = row > LINE_BYTES && !row.is_multiple_of(LINE_BYTES);
        let follow = self.writes == Writes::Staged && self.goes_on() && self.o.count == 1;
        match parts && follow {
            true if apart && (self.are_rows() || self.are_picked()) => Some(Writes::Rows),
            true if self.has_line_sides => self.spliced(),
            _ => None,
        }
    }

    /// Whether they are made in registers by vectors that are lines: on a Zen 5 of elements of eight bytes, of which so few are
    /// carried that these stay there. On a Zen 4 that was not measured.
    fn are_picked(&self) -> bool {
        let Abilities { lanes, unit_bytes, .. } = self.by;
        let whole = self.a.count.is_multiple_of(LINE_BYTES / self.bytes);
        let squares = self.has_line_sides && are_picked(lanes, unit_bytes, self.bytes);
        let stay = self.by.holds_lines() || self.by.scatters_lines() && self.bytes == 8;
        squares && whole && stay && self.spliced().is_some()
    }

    /// Whether they are made in registers. Where the source's rows are at multiples of a page it is worth it for short
    /// ones, and at those of two pages for none.
    fn are_rows(&self) -> bool {
        if !are_rows(self.by.lanes, self.bytes) {
            return false;
        }
        let (row, a) = (self.row_bytes(), self.a.count);
        let twice = a.next_multiple_of(LINE_BYTES / self.bytes) - a;
        let whole = row.is_multiple_of(LANE_BYTES) && a.is_multiple_of(ALIKE);
        let most = match self.b.stride.0 {
            pitch if pitch % PAGE_BYTES != 0 => usize::MAX,
            pitch if pitch % (2 * PAGE_BYTES) != 0 => PACKED_BYTES,
            _ => 0,
        };
        self.source.dense && whole && twice <= a / MOST_TWICE && row <= most
    }

    /// How they are put together, if there is room.
    fn spliced(&self) -> Option<Writes> {
        let (side, pitch) = (LINE_BYTES / self.bytes, pitch(self.row_bytes() + LINE_BYTES));
        let rows = if self.a.count < 2 * side { self.a.count } else { side };
        (rows * pitch <= self.room()).then_some(Writes::Spliced { rows, pitch })
    }

    /// Whether long rows are no better than what is put together: each panel is one run of the destination, and the next
    /// block of the source is asked for meanwhile; or its source is one run of pixels of a line at most, and it shares no line
    /// of the destination.
    pub(super) fn keeps_rows(&self) -> bool {
        let short = self.a.count * self.bytes <= LINE_BYTES && self.square().is_some();
        let asks = self.asks.next != 0 && !self.goes_through();
        asks || self.whole && short && self.is_packed()
    }

    /// Whether long rows go through registers, and are better for that: on a Zen 5 by a fifth to a half where blocks are
    /// large and elements no less than 8 bytes, and up to four times where rows are put together that are not spliced. On a
    /// Xeon blocks of more than twice what is taken for a second-level cache are 1.1 to 3 times as fast so, and smaller
    /// ones, but for rows that are not spliced, up to a third slower; of these few columns, of which too many would be moved
    /// twice, up to a fourth.
    fn goes_through(&self) -> bool {
        let (caches, block, a) = (self.by.caches, self.block_bytes(), self.a.count);
        let twice = a.next_multiple_of(LINE_BYTES / self.bytes) - a;
        let (large, suits) = match self.by.holds_lines() {
            true => (block > 2 * caches.second.bytes, twice <= a / MOST_TWICE_THROUGH),
            false => (self.bytes >= 8 && block > panel_run_bytes(caches), true),
        };
        let better = large || self.writes == Writes::Staged && suits;
        let rows = (a * self.bytes, self.b.stride.0, self.row_bytes());
        better && go_through(self.by, self.bytes, rows)
    }

    /// How many rows of the source a panel has that is made in registers: a box and the next take a quarter of a
    /// second-level cache.
    pub(super) fn rows_of_box(&self) -> usize {
        let side = LINE_BYTES / self.bytes;
        (self.by.caches.second.bytes / 8 / SQUARES_BYTES).next_multiple_of(side)
    }
}
