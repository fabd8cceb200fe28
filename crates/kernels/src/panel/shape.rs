//! What the loops of panels are like, as far as choices depend on it: which of them follow each other, and
//! what stays in which cache.

use super::chunk::{HALVES_BYTES, SQUARES_ROWS, block_rows, panel_run_bytes};
use super::{CLASHING_BYTES, PACKED_BYTES, Panels, VISIT_BYTES, Writes};
use crate::caches::Caches;
use crate::element::Line;
use crate::nest::Nest;
use crate::tile::sides::{SEVERAL_BYTES, Squares};
use crate::tile::{Lanes, PAIR, SCATTERING_BYTES, are_lines, is_line};
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES, PAIR_BYTES};

/// Rows of so many elements at most are moved all at once, in the order in which they lie: on a Zen 4 of 32
/// they are better read by runs while the next is asked for.
const FEW_ELEMENTS: usize = 16;

/// Rows of the source of less end before the processor follows them.
pub(super) const FOLLOWED_BYTES: usize = 1 << 10;

/// Rows of up to so much, and so many elements, that follow each other are read as a whole on a Zen 5.
const LONG_RUNS_BYTES: usize = 12 << 10;
const LONG_RUNS_ELEMENTS: usize = 3 << 9;

/// Rows of so many elements are short.
const SHORT_ELEMENTS: usize = 32;

/// Lines of several rows that are begun one after the other, each by two vectors, take longer where they lie
/// at multiples of this; those of long rows or of 8-byte elements at less, and where caches keep the source at still less.
const HALVES_CLASH_BYTES: isize = 1 << 10;
const LESS_CLASH_BYTES: isize = 512;
pub(super) const NEAR_CLASH_BYTES: isize = 256;

/// Rows of the source of 4-byte elements that are longer are better read from end to end wherever they go.
const LONG_FLAT_BYTES: usize = 8 << 10;

/// So many records of lanes are put together by squares, and records of so many are taken apart: of 16 they were up to a
/// fifth slower so, and of 24 level.
const MANY: usize = 32;

/// Of rows that are no shorter than this one block is worth asking for by itself.
const SIDE_BYTES: isize = 8 * LINE_BYTES.cast_signed();

/// Squares by halves move at most this part of a row twice; of rows that are whole lines only together, and of so many
/// bytes, they are worth more: other squares store parts of lines into the stage, and half of a last square that is
/// mostly old is left out.
const MOST_TWICE: usize = 8;
const MOST_TWICE_SPLICED: usize = 3;
const SPLICED_BYTES: usize = 5 * LINE_BYTES / 2;

/// Whether squares by halves are better than other ways, for elements of so many bytes: where they move little
/// twice, and past the caches don't begin lines at the same few places of pages, unless they are put together by
/// blocks.
pub(super) fn suit_halves(
    bytes: usize,
    (a, b): (Line, Line),
    (streams, whole, far): (bool, bool, bool),
    caches: Caches,
) -> bool {
    let side = LINE_BYTES / bytes;
    let row = b.count * bytes;
    let spliced = streams && !whole && row >= SPLICED_BYTES && a.stride.1 == row.cast_signed();
    let twice = b.count.next_multiple_of(side) - b.count;
    let few_twice = twice <= b.count / if spliced { MOST_TWICE_SPLICED } else { MOST_TWICE };
    let blocks = whole && are_blocks(bytes, (a, b), caches);
    few_twice && !(streams && halves_clash(bytes, (a, b), far, caches) && !blocks)
}

/// Whether the source goes on where a block of so many bytes ends, or there is but one: `nest` has the loops around.
pub(super) fn follows(nest: &Nest, block: usize) -> bool {
    nest.loops().last().is_none_or(|l| l.is_plain() && l.src == block.cast_signed())
}

/// Whether a block of so many bytes stays in the caches while it is read again and again.
fn stays_near(block: usize, caches: Caches) -> bool {
    block <= caches.second.bytes / 8
}

/// Whether the source's rows are of few elements and follow each other, by such vectors: they are better read in their
/// order and written by a few lines of two or four columns at once than by squares with sides of a line, which begin
/// as many lines as a row has elements. Blocks that stay in the caches are not.
pub(super) fn has_short_rows(bytes: usize, (a, b): (Line, Line), by: Abilities) -> bool {
    let row = (a.count * bytes).cast_signed();
    let few = a.count <= SHORT_ELEMENTS && bytes <= LANE_BYTES && b.stride.0 == row;
    let long = b.count * bytes > PACKED_BYTES && !stays_near(a.count * b.count * bytes, by.caches);
    // On a Zen 5 rows of a line and more are better read by squares, and where lines are held some of whole lines.
    let held = by.holds_lines() && !suit_squares(bytes, a);
    few && long && (held || by.moves_lines() && row < LINE_BYTES.cast_signed())
}

/// Whether rows of so many elements that follow each other are read by squares with sides of a line from end to end where
/// lines are held: of one line, of a few of elements of 8 bytes, or two of 4 to rows an odd number of lines apart. A Xeon
/// is 1.05 to 1.2 times as fast so as by a few columns at once, or by longer visits, and others up to a fifth slower.
fn suit_squares(bytes: usize, a: Line) -> bool {
    let most = match bytes {
        8 => 8,
        4 if !is_even(a.stride.1) => 2,
        _ => 1,
    };
    let row = bytes * a.count;
    row.is_multiple_of(LINE_BYTES) && row <= most * LINE_BYTES
}

/// How much of a source the caches keep: on a Zen 3, whose vectors are half a line, half as much as on others.
pub(super) fn kept_bytes(by: Abilities) -> usize {
    by.caches.third_bytes / if is_line(2 * by.lanes) { 4 } else { 2 }
}

/// Whether lines of rows along `b` that squares by halves begin are at the same few places of pages, and other ways are
/// better. Fewer places do for elements of two bytes, which boxes move, and for longer ones than of four where the source's
/// rows follow each other and are short: they are read by runs then. Of rows that are far apart boxes of 8 bytes, and of
/// 4 that no cache keeps, begin these again before they are gone, and those of 16 bytes are few. Of short rows squares
/// inside lanes move two or four lines at a time; where these are not taken either, which [`Panels::clashes`] and
/// [`Panels::why_flat`] say, reading long rows of a `far` source from end to end is worth more than where they go. It does
/// not matter where the source's rows are at one place of a first-level cache: other ways are no better with these.
pub(super) fn halves_clash(bytes: usize, (a, b): (Line, Line), far: bool, caches: Caches) -> bool {
    let row = a.count * bytes;
    let packed = row <= PACKED_BYTES && b.stride.0 == row.cast_signed();
    let short = a.stride.1.unsigned_abs() <= PACKED_BYTES;
    let apart = !short && !are_blocks(bytes, (a, b), caches);
    let lanes = a.stride.1 % CLASHING_BYTES != 0 && b.stride.0 % SCATTERING_BYTES != 0;
    let clashing = match bytes {
        2 => CLASHING_BYTES,
        4 if far && (apart || short && row > LONG_FLAT_BYTES && !lanes) => return false,
        8.. if packed => CLASHING_BYTES,
        8.. if apart => return false,
        8 if short => LESS_CLASH_BYTES,
        _ => HALVES_CLASH_BYTES,
    };
    a.stride.1 % clashing == 0 && b.stride.0 % PAGE_BYTES != 0
}

/// Whether such lines are put together by blocks of the source's rows that make a few lines of each row of the
/// destination: a block is a run, and a second-level cache has room for it and for the next.
fn are_blocks(bytes: usize, (a, b): (Line, Line), caches: Caches) -> bool {
    let (row, squares) = (a.count * bytes, are_lines(2, bytes, false));
    let long = b.count * bytes >= VISIT_BYTES && a.stride.1 % CLASHING_BYTES == 0;
    squares
        && long
        && b.stride.0 == row as isize
        && row * block_rows(bytes) <= 2 * panel_run_bytes(caches)
}

/// Whether so many bytes are an even number of lines.
fn is_even(bytes: isize) -> bool {
    bytes % PAIR_BYTES.cast_signed() == 0
}

impl Panels {
    /// Whether squares with sides of a line go past the caches.
    pub(super) fn has_squares_of_lines(&self) -> bool {
        self.has_line_sides && self.writes == Writes::Lines(Lanes::Lines)
    }

    /// Whether rows of the destination follow each other that are whole lines only together, a few of which go past
    /// the caches at once.
    pub(super) fn has_parts_of_lines(&self) -> bool {
        matches!(self.writes, Writes::Rows | Writes::Spliced { .. })
    }

    /// Whether squares by halves are put together by blocks of the source's rows, each of which is asked for as a
    /// whole while the one before it is moved.
    pub(super) fn has_blocks(&self) -> bool {
        self.by_halves() && self.has_line_sides && self.whole && self.writes == Writes::Staged
    }

    /// Whether a block stays in the caches, and its rows are long, but no longer than that whole
    /// squares of side `n` of them can be put together.
    pub(super) fn is_small(&self, n: usize) -> bool {
        let row = self.row_bytes();
        let rows = (PACKED_BYTES + 1..=self.room() / n).contains(&row) && self.a.count >= n;
        rows && self.is_packed() && self.goes_on() && self.stays_near()
    }

    /// Whether a block is read again and again, by a part of each row: it stays in the caches.
    fn stays_near(&self) -> bool {
        stays_near(self.block_bytes(), self.by.caches)
    }

    /// Whether a block is one run of the source, and each of its panels, put together, one of the
    /// destination, or a part of rows that follow each other.
    pub(super) fn is_run(&self) -> bool {
        let rows = self.writes == Writes::Rows;
        let whole = self.o.count == 1 && (rows || self.chunk.1 == self.b.count) && self.goes_on();
        let follow = self.source_goes_on() && whole;
        (rows || self.is_staged()) && follow && self.square().is_some()
    }

    /// Whether a block is one run on both sides, of long rows of the source, by squares with sides of a
    /// line, and a second-level cache has room for the next.
    pub(super) fn is_near(&self) -> bool {
        let near = self.stays_near() && !self.is_packed();
        self.has_squares_of_lines() && near && self.source_goes_on() && self.goes_on()
    }

    /// How squares with sides of a line are moved past the caches, by vectors that are lines, if panels are no boxes:
    /// several at once where rows of the destination are an even number of lines apart, so that lines that follow each other
    /// are written so. On a Xeon they are better put together first, by up to a third, than moved lane by lane, but where the
    /// source's rows are short and follow each other, or the destination's are an odd number of lines: there that is up to a
    /// fourth slower. And lanes are worth a tenth to two fifths, but up to a fifth slower where the source's rows are at few
    /// places of a first-level cache, which is to keep a line of each. Of longer elements neither is worth it. AMD's
    /// processors were not measured.
    pub(super) fn squares_past_caches(&self) -> Squares {
        let several = self.chunk.1 * self.bytes > LINE_BYTES;
        match self.may_join_squares() && several {
            true if !self.is_packed() && is_even(self.row_bytes().cast_signed()) => Squares::Staged,
            true if self.may_go_by_lanes() => Squares::Lanes,
            _ => Squares::Single,
        }
    }

    /// Whether several squares with sides of a line may be moved at once.
    fn may_join_squares(&self) -> bool {
        self.by.holds_lines() && self.bytes <= SEVERAL_BYTES && is_even(self.a.stride.1)
    }

    /// Whether these may be moved lane by lane: the source's rows are at no few places of a first-level cache.
    pub(super) fn may_go_by_lanes(&self) -> bool {
        self.may_join_squares() && self.b.stride.0 % SCATTERING_BYTES != 0
    }

    /// Whether squares with sides of a line stay in the caches: as much of both sides' rows at once as past the caches is a
    /// tenth to two fifths faster there on a Xeon than a pair of lines of each, and than a copy of rows at few places of
    /// these; on a Zen 5 up to twice as fast, but for rows at few places. A Zen 4 was not measured.
    pub(super) fn has_squares_in_caches(&self) -> bool {
        let suits = self.by.holds_lines() || self.by.moves_lines() && !self.has_few_places();
        suits && self.has_line_sides && self.writes == Writes::Cached
    }

    /// Whether rows of the source are copied before they are moved: they lie at the same few places
    /// of the caches, of which squares with sides of a line want fewer at once.
    pub(super) fn is_copied(&self) -> bool {
        let cached = self.writes == Writes::Cached && !self.has_squares_in_caches();
        cached && self.has_few_places() && self.square().is_some()
    }

    /// Whether rows of the source are at the same few places of a first-level cache.
    fn has_few_places(&self) -> bool {
        let few = match self.has_line_sides {
            // On a Zen 5 such rows are up to twice as fast copied first, too.
            true if self.by.scatters_lines() => CLASHING_BYTES,
            true => PAGE_BYTES,
            false => SCATTERING_BYTES,
        };
        self.b.stride.0 % few == 0
    }

    /// Whether panels of squares with sides of a line that stay in the caches write long rows of the destination, of few
    /// columns: where the source's rows are at few places of a first-level cache, it keeps none of them for long. On a
    /// Xeon 256x256 elements are a tenth faster so, and elements of 16 bytes, or what a second-level cache has no room
    /// for, as much slower.
    pub(super) fn writes_long_rows(&self) -> bool {
        let near = self.block_bytes() <= self.by.caches.second.bytes && self.bytes <= 8;
        let crowded = self.b.stride.0 % SCATTERING_BYTES == 0;
        self.has_squares_in_caches() && near && crowded
    }

    /// Whether panels of squares with sides of a line that stay in the caches write long parts of as few rows of the
    /// destination as a square has: where these are at multiples of a page, on a Zen 5 1.2 to 3.5 times as fast as all of
    /// them. On a Xeon elements of 4 bytes are up to 1.3 times as fast so, and longer ones, or from rows at few places of a
    /// first-level cache, up to a third slower. Others were not measured.
    pub(super) fn writes_few_rows(&self) -> bool {
        let squares = self.has_line_sides && self.writes == Writes::Cached;
        let crowded = self.b.stride.0 % SCATTERING_BYTES == 0;
        let held = self.by.holds_lines() && self.bytes == 4 && !crowded;
        squares && (held || self.by.scatters_lines()) && self.a.stride.1 % PAGE_BYTES == 0
    }

    /// Whether panels of squares with sides of a line are runs of the source.
    pub(super) fn has_runs(&self) -> bool {
        self.has_squares_of_lines()
            && (self.is_packed() || self.has_long_runs())
            && self.o.count == 1
            && self.chunk.0 == self.a.count
    }

    /// Whether panels of squares with sides of a line read the source from end to end: its rows are of few
    /// elements and follow each other, and so do blocks.
    pub(super) fn is_read_once(&self) -> bool {
        let few = self.a.count <= FEW_ELEMENTS && self.o.count == 1;
        self.has_squares_of_lines() && self.is_packed() && self.source.follows && few
    }

    /// Whether panels of squares with sides of a line read the source from end to end, of which what comes next is asked for.
    pub(super) fn reads_lines(&self) -> bool {
        let squares = self.has_squares_of_lines() && self.by.holds_lines();
        let suits = self.is_packed() && suit_squares(self.bytes, self.a);
        squares && suits && self.source.follows && self.o.count == 1
    }

    /// Whether short rows, or blocks that follow each other on both sides, are read from end to end and written past
    /// the caches by vectors of a line, on a processor that doesn't scatter them: such stores take the places of what a
    /// first-level cache waits for, so that what is asked for into the second comes a tenth to a third faster.
    pub(super) fn reads_on(&self) -> bool {
        // On a Zen 5 only little blocks gain by it.
        let little = self.by.scatters_lines() && self.block_bytes() <= PAIR_BYTES;
        let gains = self.by.holds_lines();
        let reads_on = match self.o.count {
            1 => gains && has_short_rows(self.bytes, (self.a, self.b), self.by),
            _ => (gains || little) && self.is_followed(self.o),
        };
        matches!(self.writes, Writes::Lines(_)) && self.source.follows && reads_on
    }

    /// Whether rows are of 2, 4 or 8 elements and follow each other: less than a square's, or short ones. Two lines of
    /// each column are written at once, out of registers.
    pub(super) fn is_split(&self) -> bool {
        let less = self.square().is_some_and(|n| self.a.count < n);
        let short = self.source.follows && has_short_rows(self.bytes, (self.a, self.b), self.by);
        matches!(self.a.count, 2 | 4 | 8)
            && self.source.dense
            && (less || short)
            && self.is_packed()
    }

    /// How rows of 2, 4 or 8 elements that follow each other are moved in the caches, on either side, where the other's
    /// have enough for whole vectors. Rows of 8 elements that make squares are no faster taken apart so.
    pub(super) fn narrow_in_caches(&self) -> Option<Lanes> {
        let n = self.square().filter(|_| self.writes == Writes::Cached)?;
        let (a, b, line) = (self.a.count, self.b.count, LINE_BYTES / self.bytes);
        let few = matches!(a, 2 | 4 | 8) && (a < n || a <= 4);
        let splits = few && self.source_goes_on() && b >= PAIR * line;
        let joins = matches!(b, 2 | 4 | 8 | 16) && b <= line && self.goes_on() && a >= line;
        match () {
            () if splits => Some(Lanes::SplitCached),
            () if joins => Some(Lanes::JoinCached),
            () => None,
        }
    }

    /// Whether elements that are lanes are better moved by squares than as records, by vectors of half a line: many records
    /// that are put together where they belong are 1.4 to 3 times as fast so, and those of many fields that are taken apart
    /// 1.3 to 2 times.
    pub(crate) fn suits_lanes(&self) -> bool {
        matches!(self.writes, Writes::Lines(_)) && self.a.count >= MANY
    }

    /// Whether squares inside lanes, by vectors of half a line, begin two lines at a time, or four that long
    /// visits soon go on from: wherever these lie, they are better moved from where they are.
    pub(super) fn begins_few(&self) -> bool {
        let visits = self.is_packed() && self.row_bytes() > VISIT_BYTES;
        self.by_halves() && (self.bytes == 8 || self.bytes == 4 && visits)
    }

    /// Whether lines of the destination that squares by halves begin in as many of its rows as a visit of the source's is long
    /// are at so few places of pages that they are better begun by fewer. Fewer places do where no cache keeps the source,
    /// and still fewer for short rows.
    pub(super) fn begins_at_few_places(&self) -> bool {
        let few = match (self.source.far, self.row_bytes() <= PACKED_BYTES) {
            (true, true) => HALVES_CLASH_BYTES,
            (true, false) => LESS_CLASH_BYTES,
            (false, _) => NEAR_CLASH_BYTES,
        };
        self.a.stride.1 % few == 0
    }

    /// Whether a square with sides of a line has more rows than a first-level cache keeps of those at one
    /// place, where the source's rows are.
    pub(super) fn is_crowded(&self) -> bool {
        LINE_BYTES / self.bytes > self.by.caches.first.ways && self.b.stride.0 % PAGE_BYTES == 0
    }

    /// The loop of `nest` whose turns lie side by side in the source, and how many of them a panel has: of short rows no
    /// less than two.
    pub(super) fn beside(&self, nest: &Nest) -> Option<(usize, usize)> {
        let row = self.row_beside()?;
        let k = nest.loops().iter().position(|l| l.is_plain() && l.src == row)?;
        let turns = nest.part(k, panel_run_bytes(self.by.caches) / self.block_bytes());
        (turns > 1 || row >= SIDE_BYTES).then_some((k, turns))
    }

    /// Whether panels have such turns.
    pub(super) fn are_beside(&self) -> bool {
        let row = (self.a.count * self.bytes).cast_signed();
        self.o.stride.0 == row && self.row_beside().is_some()
    }

    /// How far apart such turns are of squares by halves, if a second-level cache has room for a block and the next,
    /// and they don't follow each other by themselves.
    fn row_beside(&self) -> Option<isize> {
        let row = self.a.count * self.bytes;
        let squares = self.by_halves() && self.has_squares_of_lines() && !self.is_packed();
        let lines = row.is_multiple_of(LINE_BYTES) && self.b.stride.0 % PAGE_BYTES != 0;
        let fits = self.block_bytes() <= panel_run_bytes(self.by.caches);
        (squares && lines && fits).then_some(row.cast_signed())
    }

    /// Whether panels are boxes, or squares by halves read few rows of several panels from end to end, or ask for blocks
    /// of the source that are runs: a third loop would part what follows each other there, and its turns be more rows.
    pub(super) fn reads_in_order(&self) -> bool {
        let squares = self.by_halves() && self.has_squares_of_lines();
        let parted = match self.is_packed() {
            true => self.a.count > FEW_ELEMENTS,
            false => self.a.count * self.bytes >= 2 * HALVES_BYTES,
        };
        squares && parted || self.boxes().is_some()
    }

    /// Whether panels of squares with sides of a line may write all of the destination's rows: these follow each other
    /// and are short, and the source's rows are long, and not at multiples of a page.
    pub(super) fn writes_all(&self) -> bool {
        let rows = self.goes_on() && self.row_bytes() <= PACKED_BYTES;
        rows && !self.is_packed() && self.b.stride.0 % PAGE_BYTES != 0
    }

    /// Whether few long rows of the source are better read, from end to end, and nothing asked for: the processor follows
    /// so many by itself. On a Xeon elements of 16 bytes are a tenth to two fifths faster so, and those of 8 bytes where
    /// rows, and with them what would be asked for, are at few places of a first-level cache; where they are not these are
    /// up to a fourth slower, and smaller elements up to a third. AMD's were not measured. Turns of a third loop would be
    /// more rows.
    pub(super) fn follows_rows(&self) -> bool {
        let long = self.a.count * self.bytes >= FOLLOWED_BYTES && !self.is_packed();
        let crowded = self.b.stride.0 % SCATTERING_BYTES == 0;
        let apart = self.bytes > 8 || self.bytes == 8 && crowded;
        self.by.holds_lines() && self.o.count == 1 && long && apart && !self.writes_all()
    }

    /// Whether few rows of the source are better read at once, and more of each: on a Xeon that is a fourth to two
    /// fifths faster by 64 rows than by 96 and more, on a Zen 5 up to two fifths. A Zen 4 was found to be faster by all.
    pub(super) fn by_few_rows(&self) -> bool {
        self.by.moves_lines() && self.b.count >= 2 * SQUARES_ROWS
    }

    /// Whether the rows of the source follow each other.
    pub(super) fn source_goes_on(&self) -> bool {
        self.source.dense && self.b.stride.0 == (self.a.count * self.bytes) as isize
    }

    /// Whether every row of the destination is whole lines.
    pub(crate) fn has_whole_rows(&self) -> bool {
        self.whole
    }

    /// Whether rows are put together.
    pub(crate) fn is_staged(&self) -> bool {
        matches!(self.writes, Writes::Staged | Writes::Spliced { .. })
    }

    /// A row of the destination.
    pub(super) fn row_bytes(&self) -> usize {
        self.b.count * self.bytes
    }

    /// Whether the rows of the source follow each other, and are short and few.
    pub(super) fn is_packed(&self) -> bool {
        let row = self.a.count * self.bytes;
        let few = !self.is_staged() || self.a.count <= self.room() / (2 * PAIR_BYTES);
        self.source.dense && few && row <= PACKED_BYTES && self.b.stride.0 == row as isize
    }

    /// Whether rows of the source that follow each other and are longer than short ones are read as these are. On a Zen 5
    /// that is up to two thirds faster than a part of each at once, where no cache keeps the source, but for elements of 4 and
    /// 8 bytes whose lines begin at few places of pages. Others were not measured.
    pub(super) fn has_long_runs(&self) -> bool {
        let row = self.a.count * self.bytes;
        let long =
            row <= LONG_RUNS_BYTES && self.a.count <= LONG_RUNS_ELEMENTS && !self.writes_all();
        let places = !(matches!(self.bytes, 4 | 8) && self.clashes_on());
        let suits = self.by.scatters_lines() && self.source.far && self.o.count == 1;
        suits && long && places && self.source_goes_on()
    }

    /// Whether rows of the destination follow each other and are at few places of pages: they get in each other's way.
    pub(super) fn clashes_on(&self) -> bool {
        self.goes_on() && self.a.stride.1 % CLASHING_BYTES == 0
    }

    /// Whether the rows of the destination follow each other.
    pub(super) fn goes_on(&self) -> bool {
        self.a.stride.1 == self.row_bytes() as isize
    }

    /// What a turn of the other loops moves.
    pub(super) fn block_bytes(&self) -> usize {
        self.row_bytes() * self.a.count
    }

    /// Whether both sides go on with the turns of a loop where this leaves off.
    pub(super) fn is_followed(&self, by: Line) -> bool {
        let bytes = self.block_bytes() as isize;
        self.is_packed() && self.goes_on() && by.stride == (bytes, bytes)
    }
}
