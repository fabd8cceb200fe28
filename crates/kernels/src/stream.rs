//! Runs written past the caches, by whole lines.

use crate::ahead::{READ_ON_BYTES, prefetch, prefetch_near};
use crate::tile::is_line;
use crate::vector::{LANE_BYTES, LINE_BYTES, Vector};
use std::marker::PhantomData;

/// A long run is copied as so many parts, each so long, by turns: the processor reads ahead in each of them. By
/// vectors of a line that was not measured.
const PARTS: usize = 3;
const PART_BYTES: usize = 64 << 10;

/// What a turn copies of a part: of half as much four parts take twice the time of one.
const TURN_BYTES: usize = 512;

/// Whether a run is long, for vectors `V`.
#[inline(always)]
pub(crate) fn is_long<V: Vector>(bytes: usize) -> bool {
    !is_line(V::LANES) && bytes >= PARTS * PART_BYTES
}

/// As [`copy`], by parts where a run is long, or asked for far ahead if it `reads_on` by vectors that are lines.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn run<V: Vector>(
    src: *const u8,
    dst: *mut u8,
    (bytes, reads_on): (usize, bool),
) {
    if const { is_line(V::LANES) } && reads_on {
        // SAFETY: the caller's contract.
        return unsafe { read_on::<V>((src, dst), bytes, (bytes, 0)) };
    }
    let head = dst.addr().wrapping_neg() % LINE_BYTES;
    if !is_long::<V>(bytes.saturating_sub(head)) {
        // SAFETY: the caller's contract.
        return unsafe { copy::<V>(src, dst, bytes) };
    }
    let whole = (bytes - head) / LINE_BYTES * LINE_BYTES;
    let tail = head + whole;
    // SAFETY: the head, whole lines and the tail are the caller's ranges; turns start with a line.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        by_parts::<V>(&Plain::<V>(src.add(head), dst.add(head), PhantomData), whole);
        std::ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), bytes - tail);
    }
}

/// What copies lines of a run.
pub(crate) trait Lines {
    /// Copies `bytes` from `at` on, whole lines.
    ///
    /// # Safety
    /// They are valid for reads and writes, apart; the processor has the instruction set at hand.
    unsafe fn lines(&self, at: usize, bytes: usize);
}

/// As they are.
struct Plain<V>(*const u8, *mut u8, PhantomData<V>);

impl<V: Vector> Lines for Plain<V> {
    #[inline(always)]
    unsafe fn lines(&self, at: usize, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { lines::<V>(self.0.add(at), self.1.add(at), (bytes, 0)) }
    }
}

/// Copies all of a run of `bytes`, whole lines: by turns of several parts where it is long, for vectors `V`.
///
/// # Safety
/// As [`Lines::lines`], for all of it.
#[inline(always)]
pub(crate) unsafe fn by_parts<V: Vector>(run: &impl Lines, bytes: usize) {
    let rest = if is_long::<V>(bytes) { bytes - bytes % (PARTS * PART_BYTES) } else { 0 };
    // SAFETY: the turns of the parts and the rest are the run.
    unsafe {
        for parts in (0..rest).step_by(PARTS * PART_BYTES) {
            for turn in (0..PART_BYTES).step_by(TURN_BYTES) {
                for part in 0..PARTS {
                    run.lines(parts + part * PART_BYTES + turn, TURN_BYTES);
                }
            }
        }
        run.lines(rest, bytes - rest);
    }
}

/// Copies `bytes` from `src` to `dst`, the whole lines of the destination past the caches.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector>(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { asking::<V>((src, dst), bytes, |_| ()) }
}

/// As [`copy`]; what is read later is asked for: behind the first bytes, so many, [`READ_ON_BYTES`] ahead, and behind
/// others `then`.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn read_on<V: Vector>(
    (src, dst): (*const u8, *mut u8),
    bytes: usize,
    (first, then): (usize, isize),
) {
    let ask = |at| {
        let ahead = if at < first { READ_ON_BYTES } else { then };
        prefetch_near(src.wrapping_add(at).wrapping_offset(ahead));
    };
    // SAFETY: the caller's contract.
    unsafe { asking::<V>((src, dst), bytes, ask) }
}

/// As [`copy`], with `ask` called before each vector of the whole lines for where it is.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn asking<V: Vector>((src, dst): (*const u8, *mut u8), bytes: usize, ask: impl Fn(usize)) {
    let head = (dst.addr().wrapping_neg() % LINE_BYTES).min(bytes);
    let lines = (bytes - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    // SAFETY: the three parts are the caller's ranges; whole lines start aligned.
    unsafe {
        if head > 0 {
            std::ptr::copy_nonoverlapping(src, dst, head);
        }
        for at in (head..tail).step_by(V::LANES * LANE_BYTES) {
            ask(at);
            V::load(src.add(at)).stream(dst.add(at));
        }
        if bytes > tail {
            std::ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), bytes - tail);
        }
    }
}

/// Writes out what a row gains by `bytes` behind the line that starts at `row`: the whole lines of
/// the destination, where `dst` is what it goes on with, past the caches. What is left of it is
/// `carried` to the next call, which all but the last leave at least a line's bytes for; `ends`
/// says whether the row begins and whether it ends, and `ask`, if there is one, is called before each line if it does
/// neither.
///
/// # Safety
/// A line and `bytes` are valid for reads and writes at `row`, a line at `carried`, and what the
/// row gains, with what was left of it, for writes at `dst`, all apart; the processor has the
/// instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn carry<V: Vector>(
    (row, carried, dst): (*mut u8, *mut u8, *mut u8),
    bytes: usize,
    (is_first, is_last): (bool, bool),
    ask: Option<impl FnMut()>,
) {
    let carried = carried.cast::<[u8; LINE_BYTES]>();
    let begun = if is_first { 0 } else { dst.addr() % LINE_BYTES };
    let left = if is_last { 0 } else { dst.addr().wrapping_add(bytes) % LINE_BYTES };
    // SAFETY: the caller's contract; what of the line is read is what was left before.
    unsafe {
        if !is_first {
            row.cast::<[u8; LINE_BYTES]>().write(carried.read());
        }
        let (from, to) = (row.wrapping_add(LINE_BYTES - begun), dst.wrapping_sub(begun));
        let bytes_out = begun + bytes - left;
        if is_first || is_last {
            copy::<V>(from, to, bytes_out);
        } else if let Some(mut ask) = ask {
            for at in (0..bytes_out).step_by(LINE_BYTES) {
                ask();
                lines::<V>(from.wrapping_add(at), to.wrapping_add(at), (LINE_BYTES, 0));
            }
        } else {
            lines::<V>(from, to, (bytes_out, 0));
        }
        if !is_last {
            carried.write(row.wrapping_add(bytes).cast::<[u8; LINE_BYTES]>().read());
        }
    }
}

/// Writes out `rows` of so many bytes, a line at least, which follow each other from `dst` on: the whole
/// lines of the destination past the caches. In the stage they are `pitch` bytes apart, with a line's
/// room behind each. As many lines from what is `next` on are asked for meanwhile.
///
/// # Safety
/// The rows and that room are valid for reads and writes at `stage`, the rows for writes at `dst`,
/// apart; the processor has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn splice<V: Vector>(
    (rows, bytes, pitch): (usize, usize, usize),
    mut next: Option<*const u8>,
    stage: *mut u8,
    dst: *mut u8,
) {
    let row = |i: usize| stage.wrapping_add(i * pitch);
    let mut at = dst.addr().wrapping_neg() % LINE_BYTES;
    // SAFETY: the caller's contract; a line has parts of two rows at most, of which the second
    // stands behind the first.
    unsafe {
        for i in 1..rows {
            let head = row(i).cast::<[u8; LINE_BYTES]>().read();
            row(i - 1).wrapping_add(bytes).cast::<[u8; LINE_BYTES]>().write(head);
        }
        std::ptr::copy_nonoverlapping(stage, dst, at);
        for i in 0..rows {
            let from = row(i).wrapping_sub(i * bytes);
            let until = if i + 1 < rows { (i + 1) * bytes } else { rows * bytes - LINE_BYTES + 1 };
            while at < until {
                if let Some(next) = &mut next {
                    prefetch_near(*next);
                    *next = next.wrapping_add(LINE_BYTES);
                }
                lines::<V>(from.wrapping_add(at), dst.wrapping_add(at), (LINE_BYTES, 0));
                at += LINE_BYTES;
            }
        }
        let last = row(rows - 1).wrapping_sub((rows - 1) * bytes);
        std::ptr::copy_nonoverlapping(
            last.wrapping_add(at),
            dst.wrapping_add(at),
            rows * bytes - at,
        );
    }
}

/// # Safety
/// As [`copy`], for whole lines.
#[inline(always)]
pub(crate) unsafe fn lines<V: Vector>(
    src: *const u8,
    dst: *mut u8,
    (bytes, ahead): (usize, isize),
) {
    for at in (0..bytes).step_by(V::LANES * LANE_BYTES) {
        if ahead != 0 {
            prefetch(src.wrapping_add(at).wrapping_offset(ahead));
        }
        // SAFETY: a vector of the run.
        unsafe { V::load(src.add(at)).stream(dst.add(at)) };
    }
}

/// Makes what was streamed visible to whoever is told of it later. AArch64 orders such stores as any others.
pub(crate) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
