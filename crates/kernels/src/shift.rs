//! Dense destinations that start inside of a line, and are not better cut where lines begin (`ends`).
//!
//! **Hazard.** A line that two panels write costs a read and two writes of it. **Structure.** Pieces of some KiB, in
//! the order of the destination, are moved into a first-level cache as if there were no lines, each right behind what
//! is left of the last one; whole lines of it are written past the caches, and where the processor holds lines the next
//! piece is asked for between them.

use crate::instance::Instance;
use crate::nest::Nest;
use crate::strategy::Part;
use crate::vector::{Abilities, LINE_BYTES, PAIR_BYTES};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// What a piece has at most: half of a first-level cache.
const PIECE_BYTES: usize = 16 << 10;

/// On a Zen 5, if it then has enough of the source at one place: the next is read while this one is written. By 2 to
/// 4 KiB most are 1.15 to 1.35 times as fast there as by [`PIECE_BYTES`], and none slower.
const LITTLE_BYTES: usize = 3 << 10;

/// What it has at least: of less both ends would count, where pieces don't follow each other.
const LEAST_BYTES: usize = 2 << 10;

/// What a piece has of the source at one place at the least: of less, what comes by itself comes too late.
const PLACE_BYTES: usize = 4 * LINE_BYTES;

/// As [`PLACE_BYTES`], of elements of pairs of lines and more, unless the next is no farther than that: other ways are
/// faster with these.
const RUNS_BYTES: usize = 8 * LINE_BYTES;
const NEAR_BYTES: usize = 16 << 10;

/// A part of a loop has a multiple of so many turns, if it has as many: squares leave no rest then.
const WHOLE: usize = 16;

/// How a nest is cut into pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shifted {
    /// Which of its loops are inside of a piece, a bit for each.
    inside: u16,
    /// The outermost of these, and how many of its turns a piece has.
    k: usize,
    turns: usize,
    /// What each of these moves.
    turn_bytes: usize,
}

impl Shifted {
    /// How `nest` is cut by vectors of these abilities, if it is worth it.
    pub(crate) fn of(nest: &Nest, by: Abilities) -> Option<Shifted> {
        let little = by.scatters_lines().then(|| Shifted::by(nest, LITTLE_BYTES)).flatten();
        little.or_else(|| Shifted::by(nest, PIECE_BYTES))
    }

    /// As [`Shifted::of`], by pieces of so much at most.
    fn by(nest: &Nest, piece_bytes: usize) -> Option<Shifted> {
        let (loops, mut inside, mut bytes, mut last) = (nest.loops(), 0u16, nest.bytes, None);
        while let Some(k) = loops.iter().position(|l| l.is_plain() && l.dst == bytes.cast_signed())
        {
            let most = piece_bytes / bytes;
            let turns = loops[k].count.min(if most > WHOLE { most - most % WHOLE } else { most });
            if turns == 0 {
                break;
            }
            inside |= 1 << k;
            last = Some((k, turns, bytes));
            bytes *= turns;
            if turns < loops[k].count {
                break;
            }
        }
        let (k, turns, turn_bytes) = last?;
        let shifted = Shifted { inside, k, turns, turn_bytes };
        let runs = shifted.runs(nest);
        let next = runs.loops().iter().min_by_key(|l| l.dst);
        let are_runs = nest.bytes >= PAIR_BYTES;
        let near = are_runs && next.is_none_or(|l| l.src.unsigned_abs() <= NEAR_BYTES);
        let long = runs.bytes >= if are_runs { RUNS_BYTES } else { PLACE_BYTES };
        (bytes >= LEAST_BYTES && (near || long)).then_some(shifted)
    }

    /// What a piece has of the source at one place, and the loops over such places.
    fn runs<'a>(&self, nest: &Nest<'a>) -> Nest<'a> {
        let mut runs = self.piece(nest, self.turns);
        let follows = |runs: &Nest| {
            runs.loops().iter().position(|l| l.count > 1 && l.src == runs.bytes.cast_signed())
        };
        while let Some(k) = follows(&runs) {
            runs.bytes *= runs.take(k).count;
        }
        runs
    }

    /// So many turns of a piece.
    fn piece<'a>(&self, nest: &Nest<'a>, turns: usize) -> Nest<'a> {
        nest.turns(self.k, 0..turns).only(|k| self.inside & 1 << k != 0)
    }

    /// Moves `nest`.
    ///
    /// # Safety
    /// As [`crate::copy`], with offsets from `src` and `dst`; the processor has the instructions of `instance`.
    #[inline(never)]
    pub(crate) unsafe fn run(
        &self,
        instance: &Instance,
        nest: &Nest,
        (src, dst): (*const u8, *mut u8),
    ) {
        let along = nest.loops()[self.k];
        let mut around = nest.only(|k| self.inside & 1 << k == 0);
        around.sort_by_destination();
        let part = |turns| Part::cached(self.piece(nest, turns), instance.abilities);
        let (whole, rest) = (part(self.turns), part((along.count % self.turns).max(1)));
        let each = along.count.div_ceil(self.turns);
        let count = each * around.positions();
        let place = |i: usize| {
            let (outer, inner) = (around.at(i / each), along.at(i % each * self.turns));
            (src.wrapping_offset(outer.0 + inner.0), dst.wrapping_offset(outer.1 + inner.1))
        };
        let places = instance.abilities.holds_lines().then(|| self.runs(nest));
        let mut stage = Stage(MaybeUninit::uninit());
        let mut out =
            Out { instance, stage: stage.0.as_mut_ptr().cast(), line: null_mut(), from: 0, to: 0 };
        for i in 0..count {
            let turns = self.turns.min(along.count - i % each * self.turns);
            let piece = if turns == self.turns { &whole } else { &rest };
            let (src, dst) = place(i);
            // SAFETY: the caller's contract, for a piece, for which the stage has room behind less than a line.
            unsafe {
                let at = out.goes_on(dst);
                piece.run(instance, (src, at));
                let next =
                    places.as_ref().filter(|_| i + 1 < count).map(|runs| (runs, place(i + 1).0));
                out.write(turns * self.turn_bytes, next);
            }
        }
        // SAFETY: what was left of the last piece.
        unsafe { out.finish() };
    }
}

/// Room for a piece and what is left of the one before.
#[repr(align(64))]
struct Stage(MaybeUninit<[u8; PIECE_BYTES + LINE_BYTES]>);

/// What is written of pieces that follow each other.
struct Out<'a> {
    instance: &'a Instance,
    stage: *mut u8,
    /// Where the stage's first byte goes, the first of a line, which may lie before the destination's memory; nowhere
    /// before the first piece.
    line: *mut u8,
    /// What of the stage is not written yet.
    from: usize,
    to: usize,
}

impl Out<'_> {
    /// Where in the stage the piece is put that goes to `dst`.
    ///
    /// # Safety
    /// What is left of the piece before may be written.
    unsafe fn goes_on(&mut self, dst: *mut u8) -> *mut u8 {
        if self.line.wrapping_add(self.to) != dst {
            // SAFETY: the caller's contract.
            unsafe { self.finish() };
            let into = dst.addr() % LINE_BYTES;
            (self.line, self.from, self.to) = (dst.wrapping_sub(into), into, into);
        }
        self.stage.wrapping_add(self.to)
    }

    /// Writes the whole lines that there are with `bytes` more; what is left of the last goes to the stage's start. What is
    /// `next`, the runs of a piece and where it starts, is asked for meanwhile.
    ///
    /// # Safety
    /// So many bytes were written where [`Out::goes_on`] said, and may be written where they go; the processor has the
    /// instructions of the instance.
    unsafe fn write(&mut self, bytes: usize, next: Option<(&Nest, *const u8)>) {
        self.to += bytes;
        let whole = self.to - self.to % LINE_BYTES;
        if whole == 0 {
            return;
        }
        let (stage, first) = (self.stage, self.from.next_multiple_of(LINE_BYTES));
        // SAFETY: the caller's contract; what is left is less than a line, and lies behind one.
        unsafe {
            stage
                .add(self.from)
                .copy_to_nonoverlapping(self.line.wrapping_add(self.from), first - self.from);
            match next {
                Some(next) => self.asking((first, whole), next),
                None => {
                    let lines = (stage.add(first), self.line.wrapping_add(first));
                    (self.instance.whole.stream)(lines.0, lines.1, (whole - first, false));
                }
            }
            stage.add(whole).copy_to_nonoverlapping(stage, self.to - whole);
        }
        (self.line, self.from, self.to) = (self.line.wrapping_add(whole), 0, self.to - whole);
    }

    /// Writes the whole lines of the stage from one place to another, and asks for as many of what is next meanwhile, as
    /// [`Out::write`].
    ///
    /// # Safety
    /// As [`Out::write`], for these.
    unsafe fn asking(&self, (first, last): (usize, usize), (runs, src): (&Nest, *const u8)) {
        let (count, lines) = (runs.positions(), (last - first) / LINE_BYTES);
        let part = |i: usize| first + i * lines / count * LINE_BYTES;
        for i in 0..count {
            let (from, to, next) = (part(i), part(i + 1), src.wrapping_offset(runs.at(i).0));
            let at = (self.stage.wrapping_add(from), self.line.wrapping_add(from));
            if from < to {
                // SAFETY: the caller's contract.
                unsafe { (self.instance.joined.splice)((1, to - from, 0), Some(next), at.0, at.1) };
            }
        }
    }

    /// Writes what is left.
    ///
    /// # Safety
    /// It may be written.
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's contract.
        unsafe {
            let left = self.stage.add(self.from);
            left.copy_to_nonoverlapping(self.line.wrapping_add(self.from), self.to - self.from);
        }
    }
}
