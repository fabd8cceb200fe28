//! Ours, and the two plain copies that are the roof, on one lane or two.

use super::Buffers;
use super::stream;
use crate::lanes::{Lanes, Task};
use crate::{Error, peer::Spans};
use channel_host::{SPLIT_BYTES, cut, stores};
use kernels::Stores;
use layout::NdCopy;
use model::Crossover;
use std::marker::PhantomData;
use std::sync::Arc;

/// Two lanes part a plain copy at a multiple of this.
const PART_BYTES: usize = 4096;

/// What a contender of ours does.
#[derive(Debug, Clone)]
pub(crate) enum Move {
    /// The kernels, on canonical copies; written past the caches if there is as much to move.
    Kernels(Vec<NdCopy>, Crossover),
    /// glibc's `memcpy` of so many bytes, from the start of the buffers.
    Memcpy(u64),
    /// A streaming copy of as many.
    Stream(u64),
}

/// A move, cut for its lanes.
pub(crate) struct Moves<'a> {
    lanes: Arc<Lanes>,
    task: Task,
    parts: usize,
    buffers: PhantomData<&'a Buffers>,
}

impl<'a> Moves<'a> {
    /// Makes `what` ready for at most `threads` of the `lanes`.
    ///
    /// # Errors
    /// Where it reaches outside the buffers.
    pub(crate) fn new(
        what: &Move,
        buffers: &'a Buffers,
        (lanes, threads): (&Arc<Lanes>, u32),
    ) -> Result<Self, Error> {
        let spans = buffers.spans()?;
        let bytes = payload_bytes(what);
        let threads = threads as usize;
        let inside = match what {
            Move::Kernels(list, _) => list.iter().all(|copy| is_inside(copy, &spans)),
            Move::Memcpy(_) | Move::Stream(_) => bytes <= spans.src.1.min(spans.dst.1) as u64,
        };
        if !inside {
            return Err(Error::part("preparing a copy")("it reaches outside its buffers"));
        }
        let parts = if bytes < SPLIT_BYTES { 1 } else { threads };
        let (task, parts) = match what {
            // As the Memcpy channel does it.
            Move::Kernels(list, crossover) => {
                let stores = stores(list, bytes, (*crossover, threads));
                let (pieces, parts) = cut(&Arc::from(&list[..]), bytes, threads);
                (kernels_task(pieces, spans, (parts, stores)), parts)
            }
            Move::Memcpy(_) => (plain_task(memcpy, spans, (bytes as usize, parts)), parts),
            Move::Stream(_) => (plain_task(stream::copy, spans, (bytes as usize, parts)), parts),
        };
        Ok(Moves { lanes: Arc::clone(lanes), task, parts, buffers: PhantomData })
    }

    /// Runs it once.
    pub(crate) fn run(&self) {
        self.lanes.run(&self.task, self.parts);
    }
}

fn payload_bytes(what: &Move) -> u64 {
    match what {
        Move::Kernels(list, _) => {
            list.iter().map(NdCopy::payload_bytes).fold(0, u64::saturating_add)
        }
        Move::Memcpy(bytes) | Move::Stream(bytes) => *bytes,
    }
}

/// Whether `copy` stays inside the buffers.
pub(super) fn is_inside(copy: &NdCopy, spans: &Spans) -> bool {
    kernels::check_bounds(copy, (0, spans.src.1), (0, spans.dst.1)).is_ok()
}

fn kernels_task(pieces: Arc<[NdCopy]>, spans: Spans, (parts, stores): (usize, Stores)) -> Task {
    let (src, dst) = (spans.src.0, spans.dst.0);
    Arc::new(move |part| {
        let bound = |n| n * pieces.len() / parts;
        for piece in &pieces[bound(part)..bound(part + 1)] {
            // SAFETY: `Moves::new` found every byte inside the buffers, which live as long as
            // what it returns; the pieces of other lanes write other bytes; offset 0 is the first
            // byte on either side.
            unsafe { kernels::copy(piece, src as *const u8, dst as *mut u8, stores) };
        }
    })
}

/// A plain copy, as `std::ptr::copy_nonoverlapping` is.
type Plain = unsafe fn(*const u8, *mut u8, usize);

fn plain_task(plain: Plain, spans: Spans, (bytes, parts): (usize, usize)) -> Task {
    Arc::new(move |part| {
        let each = bytes.div_ceil(parts).next_multiple_of(PART_BYTES);
        let (start, end) = ((part * each).min(bytes), ((part + 1) * each).min(bytes));
        let (src, dst) = (spans.src.0 + start, spans.dst.0 + start);
        // SAFETY: `Moves::new` found the bytes inside both buffers, which live as long as what it
        // returns; parts don't overlap.
        unsafe { plain(src as *const u8, dst as *mut u8, end - start) };
    })
}

/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(never)]
unsafe fn memcpy(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isometry::Machine;

    fn buffers(bytes: u64) -> Buffers {
        let machine = Machine::builder().assume(true).open().unwrap();
        let buffers = Buffers::new(&machine, [bytes, bytes], 0).unwrap();
        buffers
            .fill(|src| src.iter_mut().zip(0u32..).for_each(|(b, i)| *b = (i / 3) as u8))
            .unwrap();
        buffers
    }

    #[test]
    fn plain_copies_move_all_on_one_lane_and_on_two() {
        let (lanes, bytes) = (Arc::new(Lanes::new(2).unwrap()), SPLIT_BYTES + 4099);
        let buffers = buffers(bytes);
        for what in [Move::Memcpy(bytes), Move::Stream(bytes)] {
            for threads in [1, 2] {
                buffers.poison().unwrap();
                Moves::new(&what, &buffers, (&lanes, threads)).unwrap().run();
                assert!(buffers.check(|src, dst| src == dst).unwrap(), "{what:?} by {threads}");
            }
        }
    }

    #[test]
    fn what_reaches_outside_is_refused() {
        let (lanes, buffers) = (Arc::new(Lanes::new(2).unwrap()), buffers(64));
        let refused = |what| Moves::new(&what, &buffers, (&lanes, 1)).is_err();
        assert!(refused(Move::Memcpy(65)) && !refused(Move::Memcpy(64)));
        let field = |src_offset| layout::FieldCopy {
            bytes: 60,
            src_offset,
            dst_offset: 0,
            padding: 0,
            strides: vec![],
        };
        let copy = |offset| NdCopy { dims: vec![], fields: vec![field(offset)] };
        let kernels = |list| Move::Kernels(list, Crossover::default());
        assert!(refused(kernels(vec![copy(0), copy(5)])));
        assert!(refused(kernels(vec![copy(-1)])));
        assert!(!refused(kernels(vec![copy(4)])));
    }
}
