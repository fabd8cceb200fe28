//! The chain of transfer descriptors of one running transfer (paper, section 3.4).
//!
//! **Hazard.** A hop reads what the one before has not written, or overwrites what the one after
//! has not read. **Guarantee.** [`Chain::readiness`] lets a request go only when its whole input
//! is written and its whole output is free, both counted by completions. **Structure.** One
//! [`Xd`] a hop, walking the payload stream in its own order; one [`Window`] between each two.

use crate::chunk::Chunk;
use crate::program::{Hop, Program};
use crate::ring::{Slot, Window};
use crate::span::Spans;
use std::ops::Range;

/// Whether a descriptor can make a request (the paper's idle and active).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It has made all of its requests.
    Exhausted,
    /// Idle: the hop before has not written its input.
    NeedsInput,
    /// Idle: the hop after has not read what its output would overwrite.
    NeedsSpace,
    /// It can make a request of so many bytes.
    Ready(u64),
}

/// A range of the stream that one request moves, and how much of the input must be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) range: Range<u64>,
    pub(crate) needs: u64,
}

/// A transfer descriptor: one hop of one transfer. Invariant: `next` has been given out,
/// `spans` of it has completed; `input` and `output` are the slots of the last cut.
#[derive(Debug, Default)]
pub(crate) struct Xd {
    next: u64,
    ordinal: usize,
    cut: Option<Cut>,
    input: Slot,
    output: Slot,
    spans: Spans,
}

/// A request of a descriptor, with where in the rings it reads and writes.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) range: Range<u64>,
    pub(crate) chunk: Chunk,
    /// Offset in the input ring; 0 where the source is an instance.
    pub(crate) src_ring: u64,
    /// Offset in the output ring; 0 where the destination is an instance.
    pub(crate) dst_ring: u64,
}

/// The descriptors and windows of one transfer.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    xds: Vec<Xd>,
    windows: Vec<Window>,
}

impl Chain {
    /// Starts over at the beginning of `program`, keeping the memory.
    pub(crate) fn start(&mut self, program: &Program) {
        self.windows.clear();
        self.windows.extend(program.rings().iter().map(Window::new));
        self.xds.resize_with(program.hops().len(), Xd::default);
        for (xd, hop) in self.xds.iter_mut().zip(program.hops()) {
            xd.restart(program, hop);
        }
    }

    /// Whether hop `hop` can make a request now.
    pub(crate) fn readiness(&mut self, program: &Program, hop: usize) -> Readiness {
        let (step, xd) = (&program.hops()[hop], &mut self.xds[hop]);
        let Some(cut) = xd.cut(program, hop) else { return Readiness::Exhausted };
        if step.input.is_some_and(|ring| self.windows[ring].written() < cut.needs) {
            return Readiness::NeedsInput;
        }
        let has_room = |ring: usize| {
            self.windows[ring].has_room(&program.rings()[ring], xd.output, cut.range.end)
        };
        if step.output.is_some_and(|ring| !has_room(ring)) {
            return Readiness::NeedsSpace;
        }
        Readiness::Ready(cut.range.end - cut.range.start)
    }

    /// Makes the request that [`Chain::readiness`] said is ready.
    pub(crate) fn issue(&mut self, program: &Program, hop: usize) -> Option<Issue> {
        let (step, xd) = (&program.hops()[hop], &mut self.xds[hop]);
        let range = xd.cut(program, hop)?.range;
        let chunk = program.chunk(hop, xd.ordinal, range.clone(), (xd.input, xd.output));
        let offset =
            |ring: Option<usize>, slot| ring.map_or(0, |r| program.rings()[r].offset(slot));
        let (src_ring, dst_ring) = (offset(step.input, xd.input), offset(step.output, xd.output));
        xd.next = range.end;
        xd.ordinal += 1;
        xd.cut = None;
        Some(Issue { range, chunk, src_ring, dst_ring })
    }

    /// A request of hop `hop` has completed: its output is written, its input may be freed.
    pub(crate) fn complete(&mut self, program: &Program, hop: usize, range: Range<u64>) {
        let step = &program.hops()[hop];
        let done = self.xds[hop].spans.complete(range);
        if let Some(ring) = step.output {
            self.windows[ring].write(done);
        }
        if let Some(ring) = step.input {
            self.windows[ring].free(&program.rings()[ring], program.frees(hop, done));
        }
    }

    /// How far hop `hop` has moved the stream, and whether that is all.
    pub(crate) fn moved(&self, program: &Program, hop: usize) -> (u64, bool) {
        let done = self.xds[hop].spans.watermark();
        (done, done == program.payload_bytes())
    }

    /// How far the stream is written to `ring`, which lies on another node.
    pub(crate) fn written(&self, ring: usize) -> u64 {
        self.windows.get(ring).map_or(0, Window::written)
    }

    /// How far the stream was read from `ring`.
    pub(crate) fn read(&self, ring: usize) -> u64 {
        self.windows.get(ring).map_or(0, Window::freed)
    }

    /// Another node has written the stream to `ring` as far as `position`.
    pub(crate) fn arrived(&mut self, ring: usize, position: u64) {
        self.windows[ring].write(position);
    }

    /// Another node has read the stream from `ring` as far as `position`.
    pub(crate) fn freed(&mut self, program: &Program, ring: usize, position: u64) {
        self.windows[ring].free(&program.rings()[ring], position);
    }
}

impl Xd {
    fn restart(&mut self, program: &Program, hop: &Hop) {
        let first =
            |ring: Option<usize>| ring.map_or(Slot::default(), |r| program.rings()[r].first());
        self.spans.clear();
        self.cut = None;
        (self.next, self.ordinal) = (0, 0);
        (self.input, self.output) = (first(hop.input), first(hop.output));
    }

    /// The range of the next request; `None` past the last.
    fn cut(&mut self, program: &Program, hop: usize) -> Option<Cut> {
        let step = &program.hops()[hop];
        if self.cut.is_none() && self.next < program.payload_bytes() {
            let enter = |ring: Option<usize>, slot| {
                ring.map_or(slot, |r: usize| program.rings()[r].holding(slot, self.next))
            };
            (self.input, self.output) =
                (enter(step.input, self.input), enter(step.output, self.output));
            self.cut = Some(program.cut(hop, self.next, (self.input, self.output)));
        }
        self.cut.clone()
    }
}
