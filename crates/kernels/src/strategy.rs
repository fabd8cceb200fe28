//! Which way a copy goes: a pure choice, and its execution.

use crate::element::{Line, Plane, move_plane};
use crate::instance::Instance;
use crate::nest::{Loop, Nest};
use crate::panel::Panels;
use crate::vector::LINE_BYTES;
use crate::{Stores, stream, walk};
use layout::NdCopy;
use std::fmt;

/// Elements from here on are runs: they are moved one by one.
const RUN_BYTES: usize = 64;

/// Runs from here on may share their first and last lines with others: it doesn't matter.
const LONG_BYTES: usize = 1536;

/// How a copy is moved.
#[derive(Debug, Clone)]
pub(crate) struct Strategy<'a> {
    copy: &'a NdCopy,
    stores: Stores,
    way: Way<'a>,
}

/// The ways there are.
#[derive(Debug, Clone)]
enum Way<'a> {
    /// One run.
    Run(Nest<'a>),
    /// Runs, in two loops at each position of the nest.
    Runs(Nest<'a>, Plane),
    /// Panels at each position of the nest.
    Panels(Nest<'a>, Panels),
    /// Element by element, one field after the other in parts that fit into the cache.
    Walk,
}

impl<'a> Strategy<'a> {
    /// The way for `copy`, whose offset 0 is at the address `dst`; no extent is 0.
    pub(crate) fn of(copy: &'a NdCopy, dst: usize, stores: Stores) -> Self {
        let way = Nest::of(copy).map_or(Way::Walk, |nest| way(nest, dst, stores));
        Strategy { copy, stores, way }
    }

    /// Moves the copy.
    ///
    /// # Safety
    /// As [`crate::copy`]; the processor has the instructions of `instance`.
    pub(crate) unsafe fn run(&self, instance: &Instance, src: *const u8, dst: *mut u8) {
        let at = |nest: &Nest| (src.wrapping_offset(nest.src), dst.wrapping_offset(nest.dst));
        // SAFETY: the caller's contract, at each position of the loops.
        unsafe {
            match &self.way {
                Way::Run(nest) => return run(instance, at(nest), nest.bytes, self.stores),
                Way::Runs(nest, plane) => {
                    each(nest.loops(), at(nest), &|src, dst| match self.stores {
                        Stores::Cached => move_plane(nest.bytes, *plane, src, dst),
                        Stores::Streamed => (instance.runs)(plane, nest.bytes, src, dst),
                    })
                }
                Way::Panels(nest, panels) => {
                    each(nest.loops(), at(nest), &|src, dst| panels.run(instance, src, dst));
                }
                Way::Walk => walk::walk(self.copy, src, dst),
            }
        }
        if self.stores == Stores::Streamed {
            stream::fence();
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
        (instance.stream)(src, dst, bytes);
    }
    stream::fence();
}

/// Whether one run goes past the caches. libc's own copy does that from sizes on that are far
/// behind the crossover.
fn is_streamed(bytes: usize, stores: Stores) -> bool {
    stores == Stores::Streamed && bytes >= LONG_BYTES
}

fn way(mut nest: Nest, dst: usize, stores: Stores) -> Way {
    if nest.loops().is_empty() {
        return Way::Run(nest);
    }
    nest.sort_by_source();
    let (dst, streams) = (dst.wrapping_add_signed(nest.dst), stores == Stores::Streamed);
    if nest.bytes >= RUN_BYTES && (!streams || nest.bytes >= LONG_BYTES || is_whole(&nest, dst)) {
        let along = innermost(&mut nest);
        let across = innermost(&mut nest);
        return Way::Runs(nest, Plane { along, across });
    }
    let mut rest = nest;
    match Panels::of(&mut rest, dst, streams) {
        Some(panels) if streams || panels.square().is_some() => Way::Panels(rest, panels),
        _ => Way::Walk,
    }
}

/// Whether every run is whole lines of the destination.
fn is_whole(nest: &Nest, dst: usize) -> bool {
    let strides = nest.loops().iter().fold(nest.bytes, |all, l| all | l.dst.unsigned_abs());
    (strides | dst).is_multiple_of(LINE_BYTES)
}

/// Takes the innermost loop out of `nest`; one that turns once, where that has a table.
fn innermost(nest: &mut Nest) -> Line {
    let last = nest.loops().len().checked_sub(1).filter(|&k| nest.loops()[k].is_plain());
    let Some(taken) = last.map(|k| nest.take(k)) else { return Line { count: 1, stride: (0, 0) } };
    Line { count: taken.count, stride: (taken.src, taken.dst) }
}

/// Calls `body` at each position of `loops`.
fn each(loops: &[Loop], at: (*const u8, *mut u8), body: &impl Fn(*const u8, *mut u8)) {
    let Some((first, rest)) = loops.split_first() else { return body(at.0, at.1) };
    for i in 0..first.count {
        let (src, dst) = first.at(i);
        each(rest, (at.0.wrapping_offset(src), at.1.wrapping_offset(dst)), body);
    }
}

impl fmt::Display for Strategy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.way, self.stores) {
            (Way::Run(nest), stores) => {
                let past = if is_streamed(nest.bytes, stores) { ", past the caches" } else { "" };
                write!(f, "one run of {} B{past}", nest.bytes)
            }
            (Way::Runs(nest, _), Stores::Cached) => write!(f, "runs of {} B", nest.bytes),
            (Way::Runs(nest, _), Stores::Streamed) => {
                write!(f, "runs of {} B, past the caches", nest.bytes)
            }
            (Way::Panels(_, panels), _) => write!(f, "{panels}"),
            (Way::Walk, _) => {
                write!(f, "{} fields, element by element", self.copy.fields.len())
            }
        }
    }
}
