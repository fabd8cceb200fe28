//! Runs in two loops.
//!
//! **Hazard.** Who follows one side alone touches the other by single lines, each in another page:
//! less than half as fast. **Structure.** Where the source goes on in one loop and the destination
//! in another, runs are moved in tiles that write half a kilobyte at one place, and ask for the next. A
//! processor that scatters lines past the caches, and has vectors that are lines, follows the source instead, but for
//! a Zen 5 where runs are short and go to many places; there runs that the next don't follow are asked for, too.
//! Where lines are held, long runs past the caches follow the source, too, and what is read later is asked for.
//! What can't be asked for, or goes into the caches, has a kilobyte or two of either side at one place.

use crate::ahead::{READ_ON_BYTES, prefetch_near};
use crate::caches::Caches;
use crate::element::Line;
use crate::nest::{Loop, Nest, line};
use crate::tile::is_line;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES, PAGE_BYTES, PAIR_BYTES, Vector};
use crate::{Stores, stream};
use std::fmt;

/// How many runs ahead the source is asked for.
const AHEAD_RUNS: isize = 8;

/// What a tile of runs has of the source, and of the destination, at one place.
const TILE_BYTES: (usize, usize) = (2 << 10, 1 << 10);

/// As [`TILE_BYTES`], where runs are halves of lines and the source has many at one place: few rows
/// of it compete for places in the caches.
const HALVES_BYTES: (usize, usize) = (4 << 10, 256);

/// As [`TILE_BYTES`], where halves of lines may be scattered past the caches, and the source goes on
/// with the next turns where it leaves off, but has less than [`FOLLOWED_BYTES`] at one place: of a few
/// places of the destination each has two lines at once, of more each has so much that changing them
/// costs little.
const FEW_PLACES: usize = 8;
const FEW_PLACES_BYTES: (usize, usize) = (256, 128);
const MANY_PLACES_BYTES: (usize, usize) = (4 << 10, 4 << 10);

/// As [`TILE_BYTES`], where pairs of lines may be scattered past the caches and the source has at
/// least [`FOLLOWED_PAIRS_BYTES`] at one place.
const SCATTERED_BYTES: (usize, usize) = (2 << 10, 256);

/// As [`TILE_BYTES`] on a Zen 5, where the source doesn't go on and the next tile is asked for.
const APART_BYTES: (usize, usize) = (2 << 10, 512);

/// As [`SCATTERED_BYTES`], of [`FEW_BYTES`] and more on a Zen 5, where the source doesn't go on: of such, two runs each way.
const SCATTERED_RUNS_BYTES: (usize, usize) = (1 << 10, 1 << 10);

/// Where lines may be scattered past the caches, and the source goes on with the next turns where it
/// leaves off, it is followed from end to end if it has less than this at one place; of pairs of lines it
/// may have more.
const FOLLOWED_BYTES: usize = 3 << 10;
const FOLLOWED_PAIRS_BYTES: usize = 8 << 10;

/// The shortest runs, but for lines.
const HALF_BYTES: usize = LINE_BYTES / 2;

/// What the source has at one place, up to this, may go to as many places of the destination as it
/// has runs: if these are lines that go past the caches, tiles would gain nothing.
const FEW_BYTES: usize = 512;

/// What a visit to one place of the destination writes past the caches, where the source goes on with the next
/// turns where it leaves off, and is not followed. It is read by single runs then, which no processor finds by
/// itself: as much as a tile has is asked for in the order in which it lies, if it is no more than a quarter of
/// a second-level cache, or half of a Zen 5's.
const VISIT_BYTES: usize = 512;

/// Where lines are held, runs from here on are moved in the order of the source, and what is read later is asked for:
/// by a quarter faster than in tiles, or without.
const READ_ON_RUN_BYTES: usize = 512;

/// Two pairs of lines.
const PAIRS_BYTES: usize = 2 * PAIR_BYTES;

/// libc knows best how to copy what is longer.
const LONG_BYTES: usize = 1 << 10;

/// Runs of `bytes`, in two loops that are moved in tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    bytes: usize,
    along: Line,
    across: Line,
    /// How many turns of `along` and of `across` a tile has, at most.
    tile: (usize, usize),
    is_tiled: bool,
    asked: Asked,
    stores: Stores,
}

/// What tiles ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Nothing,
    /// The next tile, with which the source goes on.
    Tile,
    /// The next tile, which lies so far ahead.
    Ahead(isize),
    /// What is read [`READ_ON_BYTES`] later: runs are long, and in the order of the source.
    On,
}

impl Runs {
    /// Two loops, `along` inside `across`.
    pub(crate) fn of(
        mut bytes: usize,
        (mut along, mut across): (Line, Line),
        stores: Stores,
    ) -> Runs {
        let once = Line { count: 1, stride: (0, 0) };
        // Runs that follow each other on both sides are longer ones.
        for _ in 0..2 {
            if along.count == 1 || along.stride == (bytes as isize, bytes as isize) {
                bytes *= along.count;
                (along, across) = (across, once);
            }
        }
        let tile = (along.count, across.count);
        Runs { bytes, along, across, tile, is_tiled: false, asked: Asked::Nothing, stores }
    }

    /// Takes the loop in which the source goes on and the one in which the destination does out of
    /// `nest`, whose first run goes to the address `dst`. `None` where there are no such two, tiles
    /// would gain nothing, or parts of lines went past the caches, by vectors of these abilities.
    pub(crate) fn tiled(
        nest: &mut Nest,
        dst: usize,
        (stores, by): (Stores, Abilities),
    ) -> Option<Runs> {
        let (bytes, mut rest) = (nest.bytes, *nest);
        let is_half = bytes == HALF_BYTES;
        let few = if is_half || stores == Stores::Cached { LINE_BYTES } else { FEW_BYTES };
        // Less may be asked for.
        let least = if asks_for_tiles(by, stores) { LINE_BYTES } else { few };
        let mut take = |is: &dyn Fn(&Loop) -> bool| {
            let found = |l: &Loop| l.is_plain() && l.count > 1 && is(l);
            rest.loops().iter().position(found).map(|k| line(rest.take(k)))
        };
        let across = take(&|l| l.src == bytes as isize && l.count * bytes > least)?;
        let along = take(&|l| l.dst == bytes as isize)?;
        let strides = rest.loops().iter().fold(across.stride.1, |all, l| all | l.dst) as usize;
        let whole = (strides | dst | (bytes * along.count)).is_multiple_of(LINE_BYTES);
        let (tile, asked) = ((1, 1), Asked::Nothing);
        let runs = Runs { bytes, along, across, tile, is_tiled: true, asked, stores };
        let asks = runs.is_asked_for(by, rest.loops().last());
        let fits = match stores {
            Stores::Streamed => whole && (is_half || bytes.is_multiple_of(LINE_BYTES)),
            Stores::Cached => is_half || bytes >= LINE_BYTES,
        };
        (fits && (asks || runs.at_one() > few)).then(|| *nest = rest)?;
        Some(match () {
            () if runs.is_read_on(by) => Runs { along: across, across: along, ..runs }.reading_on(),
            () if asks => runs.asking(),
            () if runs.is_followed(by) => runs.following(by.caches),
            () => runs.by_tiles(by),
        })
    }

    /// What the source has at one place.
    fn at_one(&self) -> usize {
        self.across.count * self.bytes
    }

    /// Whether the source goes on with the next turns where it leaves off.
    fn goes_on(&self) -> bool {
        self.along.stride.0 == self.at_one() as isize
    }

    /// Whether the next tile is asked for: where that may be, and there is one, be it with the next turn of the
    /// loop around.
    fn is_asked_for(&self, by: Abilities, around: Option<&Loop>) -> bool {
        let block = (self.at_one() * self.along.count) as isize;
        let follows = |l: &Loop| l.is_plain() && l.src == block;
        let has_next = self.along.count > self.visit() || around.is_some_and(follows);
        // On a Zen 5 long runs, those that go to few places, and blocks behind which the source doesn't go on are better
        // scattered.
        let many = self.across.count >= FEW_PLACES && self.bytes <= PAIR_BYTES;
        let suits = !by.scatters_lines() || many && around.is_none_or(follows);
        // Of a Zen 5's, which is twice as large as what choices take it for, half.
        let most =
            if by.scatters_lines() { by.caches.second.bytes } else { by.caches.second.bytes / 4 };
        asks_for_tiles(by, self.stores)
            && has_next
            && suits
            && self.goes_on()
            && self.visit() * self.at_one() <= most
    }

    /// How many runs a visit has.
    fn visit(&self) -> usize {
        (VISIT_BYTES / self.bytes).clamp(1, self.along.count)
    }

    fn asking(self) -> Runs {
        Runs { tile: (self.visit(), self.across.count), asked: Asked::Tile, ..self }
    }

    /// Whether what is read later is asked for.
    fn is_read_on(&self, by: Abilities) -> bool {
        by.holds_lines() && self.stores == Stores::Streamed && self.bytes >= READ_ON_RUN_BYTES
    }

    fn reading_on(self) -> Runs {
        Runs { is_tiled: false, asked: Asked::On, ..self }
    }

    /// As they are, or so that what is read later is asked for, by vectors of these abilities: if the first loop
    /// is that in which the source goes on.
    pub(crate) fn read_by(self, by: Abilities) -> Runs {
        if self.is_read_on(by) { self.reading_on() } else { self }
    }

    /// Whether the source is followed from end to end.
    fn is_followed(&self, by: Abilities) -> bool {
        let bytes = self.bytes;
        let scatters = self.scatters(by) && bytes >= LINE_BYTES;
        let followed = if bytes < PAIR_BYTES { FOLLOWED_BYTES } else { FOLLOWED_PAIRS_BYTES };
        self.goes_on() && (self.is_near(by.caches) || scatters && self.at_one() < followed)
    }

    /// Whether runs of pairs of lines go to what stays in the second-level cache: then the source is followed,
    /// which may lie in no cache and comes by itself.
    fn is_near(&self, caches: Caches) -> bool {
        let pairs = self.stores == Stores::Cached && self.bytes >= PAIR_BYTES;
        pairs && self.at_one() * self.along.count <= caches.second.bytes / 2
    }

    /// Whether they are scattered past the caches.
    fn scatters(&self, by: Abilities) -> bool {
        by.scatters && self.stores == Stores::Streamed
    }

    fn following(self, caches: Caches) -> Runs {
        let Runs { bytes, along, across, .. } = self;
        // Where these places clash, a few runs of each row before the next row.
        let clashes = across.count > caches.first.ways && across.stride.1 % PAGE_BYTES == 0;
        let few = if self.is_near(caches) && clashes { FEW_BYTES / bytes } else { across.count };
        let tile = (few.clamp(1, across.count), along.count);
        Runs { along: across, across: along, tile, ..self }
    }

    fn by_tiles(self, by: Abilities) -> Runs {
        let Runs { bytes, along, across, .. } = self;
        let (at_one, scatters) = (self.at_one(), self.scatters(by));
        // No processor finds the next of such runs by itself; of lines that go to memory a Zen 5 has time for it. Others
        // were not measured.
        let apart = scatters && by.scatters_lines() && bytes >= LINE_BYTES && !self.goes_on();
        let most = match bytes {
            HALF_BYTES if scatters && self.goes_on() && at_one < FOLLOWED_BYTES => {
                if across.count <= FEW_PLACES { FEW_PLACES_BYTES } else { MANY_PLACES_BYTES }
            }
            HALF_BYTES if at_one > FEW_BYTES => HALVES_BYTES,
            PAIR_BYTES.. if scatters && at_one >= FOLLOWED_PAIRS_BYTES => {
                let long = apart && bytes >= FEW_BYTES;
                if long { SCATTERED_RUNS_BYTES } else { SCATTERED_BYTES }
            }
            _ if apart => APART_BYTES,
            _ => TILE_BYTES,
        };
        let turns = |most: usize, count: usize| (most / bytes).clamp(1, count);
        let tile = (turns(most.1, along.count), turns(most.0, across.count));
        let asked = match apart {
            true => Asked::Ahead(tile.0.cast_signed() * along.stride.0),
            false => Asked::Nothing,
        };
        Runs { tile, asked, ..self }
    }
}

/// Whether tiles may be asked for, by vectors of these abilities: past the caches, by halves of lines, and by
/// lines that a processor moves as a whole.
fn asks_for_tiles(by: Abilities, stores: Stores) -> bool {
    (is_line(2 * by.lanes) || by.moves_lines()) && stores == Stores::Streamed
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs of {} B", self.bytes)?;
        if self.is_tiled {
            write!(f, ", in tiles of {} by {}", self.tile.0, self.tile.1)?;
        }
        f.write_str(match self.asked {
            Asked::Nothing => "",
            Asked::Tile | Asked::Ahead(_) => ", of which the next is asked for",
            Asked::On => ", asked for far ahead",
        })?;
        let past = self.stores == Stores::Streamed;
        f.write_str(if past { ", past the caches" } else { "" })
    }
}

/// Copies `runs`, tile by tile.
///
/// # Safety
/// As [`stream::copy`], for each run.
#[inline(always)]
pub(crate) unsafe fn runs<V: Vector>(runs: &Runs, src: *const u8, dst: *mut u8) {
    if const { is_line(V::LANES) } && runs.asked == Asked::On {
        // SAFETY: the caller's contract.
        return unsafe { reading_on::<V>(runs, (src, dst)) };
    }
    if const { is_line(2 * V::LANES) || is_line(V::LANES) } && runs.asked == Asked::Tile {
        // SAFETY: the caller's contract; the destination starts on a line, halves are even in number, others whole lines.
        return unsafe {
            match runs.bytes {
                ..=LINE_BYTES => asking::<V, true>(runs, src, dst),
                _ => asking::<V, false>(runs, src, dst),
            }
        };
    }
    let part = |line: Line, start: usize, most: usize| {
        let by = (start as isize * line.stride.0, start as isize * line.stride.1);
        (by, Line { count: most.min(line.count - start), ..line })
    };
    for i in (0..runs.along.count).step_by(runs.tile.0) {
        let (by, along) = part(runs.along, i, runs.tile.0);
        let (src, dst) = (src.wrapping_offset(by.0), dst.wrapping_offset(by.1));
        for j in (0..runs.across.count).step_by(runs.tile.1) {
            let (by, across) = part(runs.across, j, runs.tile.1);
            let (src, dst) = (src.wrapping_offset(by.0), dst.wrapping_offset(by.1));
            // SAFETY: a tile of the runs.
            unsafe { tile::<V>(&Runs { along, across, ..*runs }, (src, dst)) };
        }
    }
}

/// # Safety
/// As [`runs`], for one tile.
#[inline(always)]
unsafe fn tile<V: Vector>(runs: &Runs, at: (*const u8, *mut u8)) {
    let Runs { bytes, along, across, is_tiled, asked, stores, .. } = *runs;
    let ahead = if let Asked::Ahead(ahead) = asked { ahead } else { 0 };
    let ends = at.1.addr() | bytes | along.stride.1 as usize | across.stride.1 as usize;
    let whole = is_tiled || ends.is_multiple_of(LINE_BYTES);
    let lines = (along, across);
    // SAFETY: the caller's contract; a tile's runs start aligned if they go past the caches.
    unsafe {
        match (bytes, stores) {
            _ if !is_tiled => {}
            (HALF_BYTES, _) if const { V::LANES * LANE_BYTES >= HALF_BYTES } => {
                return vectors::<V::Half, HALF_BYTES>(lines, stores, at);
            }
            // Bodies for each size are long, and pay where a vector is a line.
            _ if const { V::LANES * LANE_BYTES != LINE_BYTES } => {}
            (LINE_BYTES, _) if ahead == 0 => return vectors::<V, LINE_BYTES>(lines, stores, at),
            (PAIR_BYTES, Stores::Cached) => return vectors_to::<V, PAIR_BYTES, false>(lines, at),
            (PAIRS_BYTES, Stores::Cached) => return vectors_to::<V, PAIRS_BYTES, false>(lines, at),
            _ => {}
        }
    }
    let (src, dst) = at;
    // What follows on the source comes by itself, and is soon wanted.
    let ahead = if is_tiled { ahead } else { AHEAD_RUNS * along.stride.0 };
    for j in 0..across.count as isize {
        let src = src.wrapping_offset(j * across.stride.0);
        let dst = dst.wrapping_offset(j * across.stride.1);
        for i in 0..along.count as isize {
            let src = src.wrapping_offset(i * along.stride.0);
            let dst = dst.wrapping_offset(i * along.stride.1);
            // SAFETY: a run; whole ones start aligned, as halves of lines do that a tile has.
            unsafe {
                match stores {
                    Stores::Cached => cached::<V>(src, dst, bytes),
                    Stores::Streamed if stream::is_long::<V>(bytes) => {
                        stream::run::<V>(src, dst, (bytes, false))
                    }
                    Stores::Streamed if whole && ahead == 0 => {
                        stream::lines::<V>(src, dst, (bytes, 0))
                    }
                    Stores::Streamed if whole => stream::lines::<V>(src, dst, (bytes, ahead)),
                    Stores::Streamed => stream::copy::<V>(src, dst, bytes),
                }
            }
        }
    }
}

/// Copies runs of `BYTES`, which are whole vectors. A size known at compile time costs no loop for each run:
/// in a cache that would take as long as a few lines do.
///
/// # Safety
/// As [`runs`]; those that go past the caches start aligned.
#[inline(always)]
unsafe fn vectors<V: Vector, const BYTES: usize>(
    lines: (Line, Line),
    stores: Stores,
    at: (*const u8, *mut u8),
) {
    // SAFETY: the caller's contract.
    unsafe {
        match stores {
            Stores::Cached => vectors_to::<V, BYTES, false>(lines, at),
            Stores::Streamed => vectors_to::<V, BYTES, true>(lines, at),
        }
    }
}

/// # Safety
/// As [`vectors`], past the caches with `STREAM`.
#[inline(always)]
unsafe fn vectors_to<V: Vector, const BYTES: usize, const STREAM: bool>(
    (along, across): (Line, Line),
    (src, dst): (*const u8, *mut u8),
) {
    for j in 0..across.count as isize {
        let mut src = src.wrapping_offset(j * across.stride.0);
        let mut dst = dst.wrapping_offset(j * across.stride.1);
        for _ in 0..along.count {
            for at in (0..BYTES).step_by(const { V::LANES * LANE_BYTES }) {
                // SAFETY: a vector of a run.
                unsafe {
                    let vector = V::load(src.wrapping_add(at));
                    let dst = dst.wrapping_add(at);
                    if STREAM { vector.stream(dst) } else { vector.store(dst) }
                }
            }
            src = src.wrapping_offset(along.stride.0);
            dst = dst.wrapping_offset(along.stride.1);
        }
    }
}

/// Where what is read [`READ_ON_BYTES`] later lies, of runs that are read one by one.
struct Later {
    /// How much lies at one place, and what a run has of it.
    place: usize,
    run: usize,
    /// How far ahead it is, if it lies at another.
    apart: isize,
}

impl Later {
    fn of(&Runs { bytes, along, across, .. }: &Runs) -> Later {
        let far = READ_ON_BYTES as usize;
        let goes_on = along.stride.0 == bytes as isize;
        let (place, step, run) = match goes_on {
            true => (along.count * bytes, across.stride.0, bytes),
            false => (bytes, along.stride.0, 0),
        };
        // Of places with less, as much further on at the place so many ahead. Behind a single place nothing is known:
        // what was read is asked for again.
        let places = far.div_ceil(place) as isize;
        let within = if place < far { 0 } else { READ_ON_BYTES - place as isize };
        Later { place, run, apart: within.wrapping_add(places.wrapping_mul(step)) }
    }

    /// Behind how many bytes of run `i` it is at another place, and how far ahead.
    fn of_run(&self, i: usize) -> (usize, isize) {
        (self.place.saturating_sub(i * self.run + READ_ON_BYTES as usize), self.apart)
    }
}

/// Copies runs one by one, and asks for what is read later.
///
/// # Safety
/// As [`runs`], for vectors that are lines.
#[inline(always)]
unsafe fn reading_on<V: Vector>(runs: &Runs, (src, dst): (*const u8, *mut u8)) {
    let Runs { bytes, along, across, .. } = *runs;
    let later = Later::of(runs);
    for j in 0..across.count as isize {
        let src = src.wrapping_offset(j * across.stride.0);
        let dst = dst.wrapping_offset(j * across.stride.1);
        for i in 0..along.count {
            let src = src.wrapping_offset(i as isize * along.stride.0);
            let dst = dst.wrapping_offset(i as isize * along.stride.1);
            // SAFETY: a run.
            unsafe { stream::read_on::<V>((src, dst), bytes, later.of_run(i)) };
        }
    }
}

/// Copies runs of lines, of `ONE` or of several, or of halves, past the caches, and asks for as much behind
/// each tile meanwhile.
///
/// # Safety
/// As [`runs`], for whole lines of the destination; vectors are lines or halves of them.
#[inline(always)]
unsafe fn asking<V: Vector, const ONE: bool>(runs: &Runs, src: *const u8, dst: *mut u8) {
    let Runs { bytes, mut along, across, tile: (mut visit, _), .. } = *runs;
    let mut half = HALF_BYTES as isize;
    if bytes == HALF_BYTES {
        half = along.stride.0;
        along = Line { count: along.count / 2, stride: (2 * half, LINE_BYTES as isize) };
        visit /= 2;
    }
    let bytes = if ONE { LINE_BYTES } else { bytes };
    let tile = visit as isize * along.stride.0;
    let least = if const { is_line(V::LANES) } { READ_ON_BYTES } else { 0 };
    let mut next = src.wrapping_offset(tile.max(least));
    for start in (0..along.count).step_by(visit) {
        let src = src.wrapping_offset(start as isize * along.stride.0);
        let dst = dst.wrapping_add(start * bytes);
        for j in 0..across.count as isize {
            let mut src = src.wrapping_offset(j * across.stride.0);
            let mut dst = dst.wrapping_offset(j * across.stride.1);
            for _ in 0..visit.min(along.count - start) {
                for at in (0..bytes).step_by(LINE_BYTES) {
                    let (src, dst) = (src.wrapping_add(at), dst.wrapping_add(at));
                    prefetch_near(next);
                    next = next.wrapping_add(LINE_BYTES);
                    // SAFETY: a line of a run, or of two that follow each other in the destination.
                    unsafe { of_halves::<V>((src, src.wrapping_offset(half)), dst) }
                }
                src = src.wrapping_offset(along.stride.0);
                dst = dst.wrapping_add(bytes);
            }
        }
    }
}

/// Writes a line past the caches that is made of two halves.
///
/// # Safety
/// As [`asking`], for these halves.
#[inline(always)]
unsafe fn of_halves<V: Vector>((low, high): (*const u8, *const u8), dst: *mut u8) {
    let lane = |i: usize| if i < 2 { low } else { high }.wrapping_add(i % 2 * LANE_BYTES);
    // SAFETY: the caller's contract.
    unsafe {
        if const { is_line(V::LANES) } {
            return V::gather(lane).stream(dst);
        }
        let (low, high) = (V::load(low), V::load(high));
        low.stream(dst);
        high.stream(dst.wrapping_add(HALF_BYTES));
    }
}

/// Copies a run into the caches.
///
/// # Safety
/// As [`stream::copy`].
#[inline(always)]
unsafe fn cached<V: Vector>(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract; whole vectors are parts of the run.
    unsafe {
        if bytes > LONG_BYTES || !bytes.is_multiple_of(V::LANES * LANE_BYTES) {
            return std::ptr::copy_nonoverlapping(src, dst, bytes);
        }
        for at in (0..bytes).step_by(V::LANES * LANE_BYTES) {
            V::load(src.add(at)).store(dst.add(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of `bytes`, so many of which so far apart from each other, in so many rows.
    fn later(bytes: usize, along: (usize, isize), across: (usize, isize)) -> Runs {
        let line = |(count, stride)| Line { count, stride: (stride, 0) };
        Runs::of(bytes, (line(along), line(across)), Stores::Streamed)
    }

    #[test]
    fn what_is_asked_for_is_read_soon() {
        let far = READ_ON_BYTES as usize;
        for (bytes, along, across) in [
            // At one place there is more, as much, or less; by one run, or by several.
            (3 * far, (4, 1 << 20), (3, 1 << 23)),
            (far, (4, 1 << 20), (3, 1 << 23)),
            (far / 8, (32, far as isize / 8), (9, 1 << 20)),
            (1000, (40, 1000), (9, -(1 << 20))),
            (1000, (5, 1000), (9, 1 << 20)),
            (600, (50, 900), (2, 1 << 20)),
        ] {
            let runs = later(bytes, along, across);
            let later = Later::of(&runs);
            let place = |i: usize, j: usize, at: usize| {
                i as isize * along.1 + j as isize * across.1 + at as isize
            };
            let all = (0..across.0).flat_map(|j| (0..along.0).map(move |i| (i, j)));
            let read: Vec<isize> =
                all.flat_map(|(i, j)| (0..bytes).map(move |at| place(i, j, at))).collect();
            // But for the last of a row of runs that are apart.
            let row = if along.1 == bytes as isize { read.len() } else { along.0 * bytes };
            for at in (0..row.saturating_sub(far + bytes.max(later.place))).step_by(64) {
                let (run, within) = (at / bytes, at % bytes);
                let (first, apart) = later.of_run(run % along.0);
                let ahead = if within < first { READ_ON_BYTES } else { apart };
                let asked = read[at] + ahead;
                let room = if later.place < far { later.place } else { 1 };
                let soon = &read[at + far..][..room];
                assert!(soon.contains(&asked), "{asked} of {at} in runs of {bytes}");
            }
        }
    }
}
