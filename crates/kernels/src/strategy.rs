//! Which way a copy goes: a pure choice, and its execution.

use crate::alike::Alike;
use crate::element::Line;
use crate::ends::Ends;
use crate::flat::{Flat, Stage};
use crate::gather::Gather;
use crate::instance::Instance;
use crate::nest::{Loop, Nest, line};
use crate::panel::Panels;
use crate::record::Records;
use crate::runs::Runs;
use crate::shift::Shifted;
use crate::tile::is_line;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES};
use crate::{Stores, stream, walk};
use layout::NdCopy;
use std::fmt;

/// Elements from here on are runs: they are moved one by one.
const RUN_BYTES: usize = 64;

/// Runs from here on may share their first and last lines with others: it doesn't matter, where
/// lines may be scattered even less.
const LONG_BYTES: usize = 1536;
const LONG_SCATTERED_BYTES: usize = 4 * LINE_BYTES;

/// Turns of a loop from here on are copies of their own where they start elsewhere in a line each.
const LEAST_TURN_BYTES: usize = if cfg!(test) { 4 << 10 } else { 32 << 10 };

/// Why copies are taken for records.
const ARE_RECORDS: &str = "one side has records, the other an array of each field";

/// Why pieces are put together.
const IS_DENSE: &str = "the destination is dense, and starts inside of a line";

/// How a copy is moved.
#[derive(Debug, Clone)]
pub(crate) struct Strategy<'a> {
    copy: &'a NdCopy,
    part: Part<'a>,
    why: &'static str,
    start: Start,
}

/// One way, at each position of a nest.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    stores: Stores,
    nest: Nest<'a>,
    way: Way<'a>,
}

/// What is made of a destination that starts inside of a line.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// Nothing.
    Any,
    /// Its ends are moved apart.
    Cut(Ends),
    /// Pieces are put together, whatever the way of the whole is.
    Shifted(Shifted),
    /// Each turn of this loop, which starts elsewhere in a line, is a copy of its own.
    Turns(usize),
}

/// A way, what loops it leaves, and why it is taken.
type Choice<'a> = (Nest<'a>, Way<'a>, &'static str);

/// The ways there are.
#[derive(Debug, Clone)]
enum Way<'a> {
    /// One run.
    Run,
    /// Runs where a table says.
    Gather(Gather<'a>),
    /// Runs, in two loops.
    Runs(Runs),
    /// Panels.
    Panels(Panels),
    /// Long rows.
    Flat(Flat),
    /// Records.
    Records(Records<'a>),
    /// Structures that lie alike on both sides.
    Alike(Alike<'a>),
    /// Element by element, one field after the other in parts that fit into the cache.
    Walk,
}

impl<'a> Strategy<'a> {
    /// The way for `copy`, whose offset 0 is at the address `dst`, by vectors of these abilities; no
    /// extent is 0.
    pub(crate) fn of(copy: &'a NdCopy, dst: usize, stores: Stores, by: Abilities) -> Self {
        let of = |(nest, way, why), start| Strategy {
            copy,
            part: Part { stores, nest, way },
            why,
            start,
        };
        if let Some((nest, rows)) = Alike::of(copy, stores) {
            return of(
                (nest, Way::Alike(rows), "both sides have structures in one order"),
                Start::Any,
            );
        }
        let Some(whole) = Nest::of(copy) else {
            return of(way_of_fields(copy, (stores, by)), Start::Any);
        };
        let (choice, start) = started(&whole, dst, (stores, by));
        of(choice, start)
    }

    /// Why it is taken, in words.
    pub(crate) fn why(&self) -> &'static str {
        self.why
    }

    /// The copy as one nest, which it is wherever a start is made something of; too large to be kept for those that don't.
    fn nest(&self) -> Nest<'a> {
        Nest::of(self.copy).unwrap_or_default()
    }

    /// Moves the copy.
    ///
    /// # Safety
    /// As [`crate::copy`]; the processor has the instructions of `instance`.
    pub(crate) unsafe fn run(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        // SAFETY: the caller's contract, for parts that together are the copy.
        unsafe {
            match self.start {
                Start::Any if matches!(self.part.way, Way::Walk) => {
                    walk::walk(self.copy, src, dst);
                }
                Start::Any => self.part.run(instance, (src, dst)),
                start => self.part.start(instance, (&self.nest(), start), (src, dst)),
            }
        }
        // A run has its own.
        if self.part.stores == Stores::Streamed && !matches!(self.part.way, Way::Run) {
            stream::fence();
        }
    }
}

impl<'a> Part<'a> {
    /// The way for `nest` into the caches.
    pub(crate) fn cached(nest: Nest<'a>, by: Abilities) -> Self {
        let stores = Stores::Cached;
        // Where it starts in a line does not matter there.
        let (nest, way, _) = way(nest, 0, (stores, by));
        Part { stores, nest, way }
    }

    /// Moves all of `whole`: by this way where nothing is made of its start, or what a cut leaves between two ends; else
    /// as `start` says, with the same stores.
    ///
    /// # Safety
    /// As [`Strategy::run`], for all of it.
    unsafe fn start(
        &self,
        instance: &Instance,
        (whole, start): (&Nest<'a>, Start),
        (src, dst): (*const u8, *mut u8),
    ) {
        // SAFETY: the caller's contract, for parts that together are the whole.
        unsafe {
            match start {
                Start::Any => self.run(instance, (src, dst)),
                Start::Cut(ends) => {
                    for end in ends.outside(whole) {
                        Part::cached(end, instance.abilities).run(instance, (src, dst));
                    }
                    self.run(instance, (src, dst));
                }
                Start::Shifted(shifted) => {
                    let at = (src.wrapping_offset(whole.src), dst.wrapping_offset(whole.dst));
                    shifted.run(instance, whole, at);
                }
                Start::Turns(k) => {
                    for i in 0..whole.loops()[k].count {
                        let turn = whole.turn(k, i);
                        let by = (self.stores, instance.abilities);
                        let ((nest, way, _), start) = started(&turn, dst.addr(), by);
                        let part = Part { stores: self.stores, nest, way };
                        part.start(instance, (&turn, start), (src, dst));
                    }
                }
            }
        }
    }

    /// Moves it, without a fence unless it is a run; what no way is for, element by element.
    ///
    /// # Safety
    /// As [`Strategy::run`].
    pub(crate) unsafe fn run(&self, instance: &Instance, (src, dst): (*const u8, *mut u8)) {
        let (nest, bytes) = (&self.nest, self.nest.bytes);
        let at = (src.wrapping_offset(nest.src), dst.wrapping_offset(nest.dst));
        // SAFETY: the caller's contract, at each position of the loops.
        unsafe {
            match &self.way {
                Way::Run => run(instance, at, bytes, self.stores),
                Way::Gather(gather) => {
                    each(nest.loops(), at, &mut |src, dst| (instance.gather)(gather, src, dst));
                }
                Way::Runs(runs) => {
                    each(nest.loops(), at, &mut |src, dst| (instance.runs)(runs, src, dst));
                }
                Way::Panels(panels) => {
                    each(nest.loops(), at, &mut |src, dst| panels.run(instance, src, dst));
                }
                Way::Flat(flat) => flats(instance, flat, nest.loops(), at),
                Way::Records(records) => records.run(instance, nest.loops(), at),
                Way::Alike(rows) => alike(instance, rows, nest.loops(), at),
                Way::Walk => {
                    each(nest.loops(), at, &mut |src, dst| src.copy_to_nonoverlapping(dst, bytes));
                }
            }
        }
    }
}

impl Way<'_> {
    /// Whether lines of the destination are made of parts: which are moved elsewhere first, or in the caches
    /// by vectors that may have parts of two.
    fn shares_lines(&self, stores: Stores) -> bool {
        match self {
            Way::Panels(panels) => panels.is_staged() || stores == Stores::Cached,
            Way::Flat(_) => true,
            _ => false,
        }
    }

    /// Whether panels write whole lines where they belong; in the caches, rows of such.
    fn writes_lines(&self, stores: Stores) -> bool {
        match self {
            Way::Panels(panels) if stores == Stores::Cached => panels.has_whole_rows(),
            Way::Panels(panels) => !panels.is_staged(),
            _ => false,
        }
    }
}

/// Moves one run.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; the processor has the instructions of `instance`.
#[inline]
pub(crate) unsafe fn run(
    instance: &Instance,
    (src, dst): (*const u8, *mut u8),
    bytes: usize,
    stores: Stores,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_streamed(bytes, stores) {
            return std::ptr::copy_nonoverlapping(src, dst, bytes);
        }
        (instance.whole.stream)(src, dst, (bytes, instance.abilities.holds_lines()));
    }
    stream::fence();
}

/// Moves long rows at each position of `loops`: with one stage, which is not there for any other way.
///
/// # Safety
/// As [`Flat::run`], at each position.
#[inline(never)]
unsafe fn flats(instance: &Instance, flat: &Flat, loops: &[Loop], at: (*const u8, *mut u8)) {
    let mut stage = Stage::new();
    // SAFETY: the caller's contract.
    each(loops, at, &mut |src, dst| unsafe { flat.run(instance, (src, &mut stage, dst)) });
}

/// Moves structures that lie alike on both sides, at each position of `loops`: with one mask, likewise.
///
/// # Safety
/// As [`crate::alike::row`], at each position, which is from the first field on.
#[inline(never)]
unsafe fn alike(instance: &Instance, rows: &Alike<'_>, loops: &[Loop], at: (*const u8, *mut u8)) {
    let mask = rows.mask();
    each(loops, rows.at(at), &mut |src, dst| {
        // SAFETY: the caller's contract.
        unsafe { (instance.whole.alike)((src, dst), (&mask, rows.bytes, rows.stores)) };
    });
}

/// Whether one run goes past the caches. libc's own copy does that from sizes on that are far
/// behind the crossover.
fn is_streamed(bytes: usize, stores: Stores) -> bool {
    stores == Stores::Streamed && bytes >= LONG_BYTES
}

/// The way for fields that differ, and the loops around it.
fn way_of_fields(copy: &NdCopy, (stores, by): (Stores, Abilities)) -> Choice<'_> {
    let streams = stores == Stores::Streamed;
    match Records::of_fields(copy, (streams, by)) {
        Some((nest, records)) => (nest, Way::Records(records), ARE_RECORDS),
        None => (Nest::default(), Way::Walk, "fields differ, in no or too short rows of records"),
    }
}

/// The way for `whole`, or what of it starts with a line, and what is made of the start.
fn started<'a>(
    whole: &Nest<'a>,
    dst: usize,
    (stores, by): (Stores, Abilities),
) -> (Choice<'a>, Start) {
    let choice = way(*whole, dst, (stores, by));
    let is_records = matches!(choice.1, Way::Records(_));
    if is_records && is_of_lanes(whole, (stores == Stores::Streamed, by)) {
        let suits = |way: &Way| matches!(way, Way::Panels(panels) if panels.suits_lanes());
        return match cut(whole, dst, (stores, by)).filter(|(_, (_, way, _))| suits(way)) {
            Some((ends, choice)) => (choice, Start::Cut(ends)),
            None => (choice, Start::Any),
        };
    }
    if !choice.1.shares_lines(stores) {
        return (choice, Start::Any);
    }
    if let Some((k, choice)) = turns(whole, dst, (stores, by)) {
        return (choice, Start::Turns(k));
    }
    if let Some((ends, choice)) = cut(whole, dst, (stores, by)) {
        return (choice, Start::Cut(ends));
    }
    let is_inside = !dst.wrapping_add_signed(whole.dst).is_multiple_of(LINE_BYTES);
    let (nest, way, why) = choice;
    match Shifted::of(whole, by).filter(|_| is_inside && stores == Stores::Streamed) {
        Some(shifted) => ((nest, way, IS_DENSE), Start::Shifted(shifted)),
        None => ((nest, way, why), Start::Any),
    }
}

/// Where `whole` is cut, and the way for what is left, if it starts inside of a line and so becomes whole lines.
fn cut<'a>(
    whole: &Nest<'a>,
    dst: usize,
    (stores, by): (Stores, Abilities),
) -> Option<(Ends, Choice<'a>)> {
    let at = dst.wrapping_add_signed(whole.dst);
    let least = Ends::least(whole, at, (stores, by))?;
    let middle = |ends: Ends| (ends, way(ends.middle(whole), dst, (stores, by)));
    Ends::each(whole, at, least).map(middle).find(|(_, (_, way, _))| way.writes_lines(stores))
}

/// The outermost loop of `whole`, on either side, whose turns are moved one by one, and the way for what is left of a
/// turn that is cut: where turns are long, go past the caches and start elsewhere in a line each, so that one of the first
/// two starts inside of one. By vectors of half a line that was measured on a Zen 3, by such as are lines on a Xeon.
fn turns<'a>(
    whole: &Nest<'a>,
    dst: usize,
    (stores, by): (Stores, Abilities),
) -> Option<(usize, Choice<'a>)> {
    if stores == Stores::Cached {
        return None;
    }
    let far = |l: &Loop| (l.dst.unsigned_abs(), l.src.unsigned_abs());
    let k = (0..whole.loops().len()).max_by_key(|&k| far(&whole.loops()[k]))?;
    let l = whole.loops()[k];
    let is_outermost = whole.loops().iter().all(|other| far(other).1 <= far(&l).1);
    let is_odd = l.is_plain() && l.dst % LINE_BYTES as isize != 0;
    if !is_odd || !is_outermost || whole.payload_bytes() / l.count < LEAST_TURN_BYTES {
        return None;
    }
    let (_, (nest, way, _)) = (0..2).find_map(|i| cut(&whole.turn(k, i), dst, (stores, by)))?;
    Some((k, (nest, way, "turns of a loop start elsewhere in a line each")))
}

/// The way for `nest`, and what is left of it.
fn way<'a>(mut nest: Nest<'a>, dst: usize, (stores, by): (Stores, Abilities)) -> Choice<'a> {
    if nest.loops().is_empty() {
        return (nest, Way::Run, "both sides have it in one order");
    }
    nest.sort_by_source();
    let (dst, streams) = (dst.wrapping_add_signed(nest.dst), stores == Stores::Streamed);
    let (are_runs, whole) = (nest.bytes >= RUN_BYTES, is_whole(&nest, dst));
    // Long runs that share lines are better written past the caches than looked ahead for.
    let long = if by.scatters { LONG_SCATTERED_BYTES } else { LONG_BYTES };
    let gathers = !streams || whole || nest.bytes < long;
    if gathers && let Some(gather) = Gather::of(&mut nest, are_runs, (streams && whole, by)) {
        return (nest, Way::Gather(gather), "a table says where runs are");
    }
    if let Some(runs) = Runs::tiled(&mut nest, dst, (stores, by)) {
        return (nest, Way::Runs(runs), "either side goes on in another loop");
    }
    if are_runs && (!streams || nest.bytes >= long || whole) {
        let (along, across) = (innermost(&mut nest), innermost(&mut nest));
        let runs = Runs::of(nest.bytes, (along, across), stores).read_by(by);
        return (nest, Way::Runs(runs), "elements are long");
    }
    let mut rest = nest;
    let panels =
        is_of_lanes(&nest, (streams, by)).then(|| Panels::of(&mut rest, dst, (streams, by)));
    if let Some(panels) = panels.flatten().filter(Panels::suits_lanes) {
        return (rest, Way::Panels(panels), "lanes are written by whole lines");
    }
    if let Some(records) = Records::of_nest(&mut nest, (streams, by)) {
        return (nest, Way::Records(records), ARE_RECORDS);
    }
    let mut rest = nest;
    let Some(panels) = Panels::of(&mut rest, dst, (streams, by)) else {
        return (nest, Way::Walk, "the destination is dense in no loop");
    };
    if let Some(records) = Records::of_hybrids(&mut nest, panels.is_staged(), (streams, by)) {
        return (nest, Way::Records(records), ARE_RECORDS);
    }
    if let Some(why) = panels.why_flat()
        && let Some(flat) = Flat::of(&mut nest, by)
    {
        return (nest, Way::Flat(flat), why);
    }
    if streams || panels.square().is_some() {
        return (rest, Way::Panels(panels), "the destination is dense in a loop");
    }
    (nest, Way::Walk, "no squares of elements are whole vectors")
}

/// Whether elements are lanes that go past the caches by vectors of half a line, which may make squares of them.
fn is_of_lanes(nest: &Nest, (streams, by): (bool, Abilities)) -> bool {
    streams && nest.bytes == LANE_BYTES && is_line(2 * by.lanes)
}

/// Whether every run is whole lines of the destination.
fn is_whole(nest: &Nest, dst: usize) -> bool {
    let strides = nest.loops().iter().fold(nest.bytes, |all, l| all | l.dst.unsigned_abs());
    (strides | dst).is_multiple_of(LINE_BYTES)
}

/// Takes the innermost loop out of `nest`; one that turns once, where that has a table.
fn innermost(nest: &mut Nest) -> Line {
    let last = nest.loops().len().checked_sub(1).filter(|&k| nest.loops()[k].is_plain());
    last.map_or(Line { count: 1, stride: (0, 0) }, |k| line(nest.take(k)))
}

/// Calls `body` at each position of `loops`.
fn each(loops: &[Loop], at: (*const u8, *mut u8), body: &mut impl FnMut(*const u8, *mut u8)) {
    let Some((first, rest)) = loops.split_first() else { return body(at.0, at.1) };
    for i in 0..first.count {
        let (src, dst) = first.at(i);
        each(rest, (at.0.wrapping_offset(src), at.1.wrapping_offset(dst)), body);
    }
}

impl fmt::Display for Strategy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part { stores, nest: Nest { bytes, .. }, way } = &self.part;
        match self.start {
            Start::Any => {}
            Start::Cut(_) => write!(f, "from line to line, ")?,
            Start::Shifted(_) => return write!(f, "pieces put together, past the caches"),
            Start::Turns(_) => write!(f, "turn by turn, from line to line, ")?,
        }
        match (way, *stores) {
            (Way::Run, stores) => {
                let past = if is_streamed(*bytes, stores) { ", past the caches" } else { "" };
                write!(f, "one run of {bytes} B{past}")
            }
            (Way::Runs(runs), _) => write!(f, "{runs}"),
            (Way::Gather(gather), _) => write!(f, "{gather}"),
            (Way::Flat(flat), _) => write!(f, "{flat}"),
            (Way::Records(records), _) => write!(f, "{records}"),
            (Way::Alike(rows), _) => write!(f, "{rows}"),
            (Way::Panels(panels), _) => write!(f, "{panels}"),
            (Way::Walk, _) => {
                write!(f, "{} fields, element by element", self.copy.fields.len())
            }
        }
    }
}
