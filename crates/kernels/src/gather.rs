//! Runs that lie where an index table says: gathers and scatters.
//!
//! **Hazard.** No processor guesses where the next run lies, so that each would wait for memory in
//! its turn. **Structure.** The table knows: the lines of runs ahead are asked for while one is
//! moved, also those of the destination where they are not written whole past the caches.

use crate::ahead::prefetch;
use crate::element::by_size;
use crate::nest::{Loop, Nest};
use crate::stream::{lines, read_on};
use crate::vector::{Abilities, LINE_BYTES, Vector};
use std::fmt;

/// Longer runs don't wait long for their first line.
const LONGEST_BYTES: usize = 16 << 10;

/// Of a run into the caches, so much is asked for: from there on the processor goes ahead by itself.
const ASKED_BYTES: usize = 512;

/// What is no longer hardly ever lies in two lines.
const ELEMENT_BYTES: usize = 16;

/// Lines that are asked for at once.
const AHEAD_LINES: usize = 32;

/// As [`AHEAD_LINES`], into a second-level cache, of runs past the caches where lines are held: there it is faster by a
/// tenth to a third.
const FAR_LINES: usize = 512;

/// Runs of `bytes`, one for each turn of a loop that has a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather<'a> {
    bytes: usize,
    runs: Loop<'a>,
    /// How many runs ahead is asked.
    ahead: usize,
    /// Whether runs are whole lines of the destination that go past the caches.
    streams: bool,
    /// Whether these are asked for far ahead.
    far: bool,
}

impl<'a> Gather<'a> {
    /// Takes the innermost loop out of `nest`, if it has a table and its runs are short; elements
    /// that are no runs, as `are_runs` says, must be written in the order of that loop. `streams`
    /// says that runs are whole lines of the destination that go past the caches, by vectors of these abilities.
    pub(crate) fn of(
        nest: &mut Nest<'a>,
        are_runs: bool,
        (streams, by): (bool, Abilities),
    ) -> Option<Gather<'a>> {
        let last = nest.loops().len().checked_sub(1)?;
        let runs = nest.loops()[last];
        let nearest =
            || nest.loops().iter().all(|l| l.dst.unsigned_abs() >= runs.dst.unsigned_abs());
        let fits = !runs.is_plain() && nest.bytes <= LONGEST_BYTES && (are_runs || nearest());
        let far = streams && by.holds_lines();
        let lines = if far { FAR_LINES } else { AHEAD_LINES };
        let ahead = (lines / nest.bytes.div_ceil(LINE_BYTES)).max(1);
        fits.then(|| Gather { bytes: nest.bytes, runs: nest.take(last), ahead, streams, far })
    }

    /// Where run `i` is, or the last.
    #[inline(always)]
    fn at(&self, i: usize, (src, dst): (*const u8, *mut u8)) -> (*const u8, *mut u8) {
        let (from, to) = self.runs.at(i.min(self.runs.count - 1));
        (src.wrapping_offset(from), dst.wrapping_offset(to))
    }
}

/// Asks for the first lines of a run.
#[inline(always)]
fn ask(at: *const u8, bytes: usize) {
    if bytes <= LINE_BYTES {
        prefetch(at);
        if bytes > ELEMENT_BYTES {
            prefetch(at.wrapping_add(bytes - 1));
        }
        return;
    }
    let begun = at.addr() % LINE_BYTES;
    for by in (0..begun + bytes.min(ASKED_BYTES)).step_by(LINE_BYTES) {
        prefetch(at.wrapping_add(by).wrapping_sub(begun));
    }
}

/// Moves all runs.
///
/// # Safety
/// As [`crate::copy`], with `src` and `dst` at a position of the other loops; the processor has the
/// instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn runs<V: Vector>(gather: &Gather<'_>, src: *const u8, dst: *mut u8) {
    if !gather.streams {
        // SAFETY: the caller's contract.
        return unsafe {
            by_size!(gather.bytes, sized(gather, src, dst), unsized_runs(gather, src, dst))
        };
    }
    for i in 0..gather.runs.count {
        let (ahead, _) = gather.at(i + gather.ahead, (src, dst));
        let (src, dst) = gather.at(i, (src, dst));
        let by = ahead.addr().wrapping_sub(src.addr()) as isize;
        // SAFETY: a run, of whole lines.
        unsafe {
            if gather.far {
                read_on::<V>((src, dst), gather.bytes, (0, by));
            } else {
                lines::<V>(src, dst, (gather.bytes, by));
            }
        }
    }
}

/// Calls `body` for each run, of `bytes`, with the one ahead asked for on a side where a table says
/// where it is.
#[inline(always)]
fn each(
    gather: &Gather<'_>,
    bytes: usize,
    (src, dst): (*const u8, *mut u8),
    body: impl Fn(*const u8, *mut u8),
) {
    let Gather { ahead, runs: Loop { count, src: from, dst: to, src_table, dst_table }, .. } =
        *gather;
    let (here, there) = (|by| src.wrapping_offset(by), |by| dst.wrapping_offset(by));
    // A loop for each case: what is asked in the loop itself costs as much as a short run.
    match (src_table.map(|table| &table[..count]), dst_table.map(|table| &table[..count])) {
        (Some(froms), Some(tos)) => {
            let at = |i: usize| (here(froms[i] as isize * from), there(tos[i] as isize * to));
            let ask_both = |(src, dst): (*const u8, *mut u8)| {
                ask(src, bytes);
                ask(dst, bytes);
            };
            walk(count, ahead, at, ask_both, body);
        }
        (Some(froms), None) => {
            let at = |i: usize| (here(froms[i] as isize * from), there(i as isize * to));
            walk(count, ahead, at, |(src, _)| ask(src, bytes), body);
        }
        (None, Some(tos)) => {
            let at = |i: usize| (here(i as isize * from), there(tos[i] as isize * to));
            walk(count, ahead, at, |(_, dst)| ask(dst, bytes), body);
        }
        (None, None) => unreachable!("one side has a table"),
    }
}

/// Calls `body` for so many runs, and `ask` for those ahead.
#[inline(always)]
fn walk(
    count: usize,
    ahead: usize,
    at: impl Fn(usize) -> (*const u8, *mut u8),
    ask: impl Fn((*const u8, *mut u8)),
    body: impl Fn(*const u8, *mut u8),
) {
    let asked = count.saturating_sub(ahead);
    for i in 0..asked {
        ask(at(i + ahead));
        let (src, dst) = at(i);
        body(src, dst);
    }
    for i in asked..count {
        let (src, dst) = at(i);
        body(src, dst);
    }
}

/// # Safety
/// As [`runs`], for runs of `N` bytes.
unsafe fn sized<const N: usize>(gather: &Gather<'_>, src: *const u8, dst: *mut u8) {
    // SAFETY: each is a run; byte arrays need no alignment.
    let body = |src: *const u8, dst: *mut u8| unsafe {
        dst.cast::<[u8; N]>().write(src.cast::<[u8; N]>().read());
    };
    each(gather, N, (src, dst), body);
}

/// # Safety
/// As [`runs`].
unsafe fn unsized_runs(gather: &Gather<'_>, src: *const u8, dst: *mut u8) {
    // SAFETY: each is a run.
    let body = |src, dst| unsafe { std::ptr::copy_nonoverlapping(src, dst, gather.bytes) };
    each(gather, gather.bytes, (src, dst), body);
}

impl fmt::Display for Gather<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let past = if self.streams { ", past the caches" } else { "" };
        write!(f, "runs of {} B where a table says{past}", self.bytes)
    }
}
