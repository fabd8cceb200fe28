//! A plan made ready to run: how each hop is cut into requests, and the shape of each ring.
//!
//! A hop that touches an end is cut in the order of the window at its other side; a hop between
//! two windows of one layout moves plain runs; one between two layouts works granule by granule,
//! since the iterations of the components that both share at their slow end are the same ranges
//! of both streams. A direct hop is cut in an order that suits its channel and both ends.

use crate::CompileError;
use crate::chain::Cut;
use crate::chunk::{Chunk, Sides, chunk_of};
use crate::cutting::{self, Rule};
use crate::memo::{Memo, Origins, Repeat};
use crate::ring::{Ring, Slot};
use layout::{Part, Side, Stream};
use model::{ChannelId, ChannelKind, MemoryId, NodeId, Plan};
use std::ops::Range;
use std::sync::Arc;

/// The most hops of a program.
const MAX_HOPS: usize = 64;
/// The most requests of a hop whose copies are made at compile time.
const MAX_HEADS: usize = 8;
/// The most pieces that all of these may fall into.
const MAX_EARLY_PIECES: u64 = 4096;

/// One direct transfer of a program.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) channel: ChannelId,
    pub(crate) kind: ChannelKind,
    /// The memories that it reads and writes.
    pub(crate) ends: [MemoryId; 2],
    /// The ring that it reads; none where that is the source.
    pub(crate) input: Option<usize>,
    /// The ring that it writes; none where that is the destination.
    pub(crate) output: Option<usize>,
    pub(crate) rule: Rule,
    /// Where the granules end at which both its windows agree, if it converts between two.
    pub(crate) granule: Option<usize>,
    /// No more pieces than this come of a request.
    most_pieces: u64,
    /// The copies of all its requests, where they are few.
    heads: Vec<Chunk>,
    memo: Memo,
}

/// The part of a path that lies on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) node: NodeId,
    /// Those whose source lies there.
    pub(crate) hops: Range<usize>,
    /// The node before it on the path.
    pub(crate) before: Option<NodeId>,
    /// The node behind it.
    pub(crate) behind: Option<NodeId>,
}

/// How to run a plan on one pair of parts: immutable, and the same for every pair of instances
/// that are alike, since all offsets count from the instances' bases.
#[derive(Debug)]
pub struct Program {
    plan: Arc<Plan>,
    src: Part,
    dst: Part,
    hops: Vec<Hop>,
    rings: Vec<Ring>,
    /// The order of a direct hop; a longer program's orders are its rings'.
    direct: Option<Stream>,
    payload_bytes: u64,
    spans: [Range<i64>; 2],
    stretches: Vec<Stretch>,
}

impl Program {
    /// The program of `plan` from `src` to `dst`.
    ///
    /// The buffers' sizes are the plan's; each must hold the granules of the hops beside it, and
    /// should hold two where one converts, or the hops beside it take turns.
    ///
    /// # Errors
    /// [`CompileError::Plan`] where the plan's lists don't belong together, [`CompileError::Parts`]
    /// where the parts differ, [`CompileError::Layout`] where a layout doesn't suit the box,
    /// [`CompileError::Destination`] where `dst` can't be written to, [`CompileError::Buffer`]
    /// where a buffer doesn't hold one granule.
    pub fn compile(plan: &Plan, src: Part, dst: Part) -> Result<Self, CompileError> {
        Self::compile_within(plan, src, dst, u64::MAX)
    }

    /// As [`Program::compile`], of a plan that somebody else has made: each of its requests falls
    /// into at most `max_pieces` pieces before they are merged, so that it takes time and memory in
    /// proportion to them.
    ///
    /// # Errors
    /// As [`Program::compile`]; [`CompileError::Pieces`] where a request may fall into more.
    pub fn compile_within(
        plan: &Plan,
        src: Part,
        dst: Part,
        max_pieces: u64,
    ) -> Result<Self, CompileError> {
        check_plan(plan)?;
        check_parts(&src, &dst)?;
        let streams = cutting::streams(plan, &src)?;
        let payload_bytes = streams[0].bytes();
        let (hops, rings, direct) = if plan.hops.len() == 1 {
            let hop = cutting::direct_hop(plan, &src, &dst);
            (vec![hop], Vec::new(), streams.into_iter().next())
        } else {
            let rings = cutting::rings(plan, (&src, &dst), streams)?;
            (cutting::hops(plan, (&src, &dst), &rings), rings, None)
        };
        let spans = [src.span(), dst.span()];
        let stretches = stretches(&hops).unwrap_or_default();
        let bare = Arc::new(plan.bare());
        let mut program =
            Program { plan: bare, src, dst, hops, rings, direct, payload_bytes, spans, stretches };
        for hop in 0..program.hops.len() {
            let pieces = program.most_pieces(hop);
            if pieces > max_pieces {
                return Err(CompileError::Pieces { hop, pieces, max_pieces });
            }
            program.hops[hop].most_pieces = pieces;
            program.hops[hop].memo = Memo::new(program.repeat(plan, hop));
            program.hops[hop].heads = program.heads(hop);
        }
        Ok(program)
    }

    /// The plan that it runs, without what else was weighed and what the search did.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The bytes that the program moves.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// About the most memory that it comes to take: what it keeps of its requests, so that those
    /// alike cost nothing, grows while it runs.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.hops.iter().map(|hop| Memo::max_bytes(hop.most_pieces)).sum()
    }

    /// What it reads, relative to the source's base.
    #[must_use]
    pub fn src(&self) -> &Part {
        &self.src
    }

    /// What it writes, relative to the destination's base.
    #[must_use]
    pub fn dst(&self) -> &Part {
        &self.dst
    }

    /// The smallest range that holds all that it reads, relative to the source's base.
    #[must_use]
    pub fn src_span(&self) -> Range<i64> {
        self.spans[0].clone()
    }

    /// The smallest range that holds all that it writes, relative to the destination's base.
    #[must_use]
    pub fn dst_span(&self) -> Range<i64> {
        self.spans[1].clone()
    }

    /// The channel of each hop.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = ChannelId> + '_ {
        self.hops.iter().map(|hop| hop.channel)
    }

    /// The memory and size of each intermediate buffer.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = (MemoryId, u64)> + '_ {
        self.rings.iter().map(|ring| (ring.memory, ring.bytes()))
    }

    /// The payload ranges of the requests of hop `hop`, in the order in which they are made; for
    /// reports and tests.
    ///
    /// # Panics
    /// If there is no such hop.
    pub fn requests(&self, hop: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.walk(hop).map(|(range, _)| range)
    }

    /// The parts of the path on each node, in its order; none where it comes back to one, or a
    /// channel is not its source's.
    pub(crate) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Where the source (0) or the destination (1) lies.
    pub(crate) fn node_of(&self, end: usize) -> NodeId {
        let hop = if end == 0 { self.hops.first() } else { self.hops.last() };
        hop.map_or(NodeId(0), |hop| hop.ends[end].node)
    }

    pub(crate) fn hops(&self) -> &[Hop] {
        &self.hops
    }

    pub(crate) fn rings(&self) -> &[Ring] {
        &self.rings
    }

    /// The request of `hop` that starts at `from`, given the slots that hold `from`.
    pub(crate) fn cut(&self, hop: usize, from: u64, slots: (Slot, Slot)) -> Cut {
        let step = &self.hops[hop];
        let mut limit = self.payload_bytes;
        for (ring, slot) in [(step.input, slots.0), (step.output, slots.1)] {
            limit = if ring.is_some() { limit.min(slot.end) } else { limit };
        }
        let stream = self.order(hop);
        let Some(below) = step.granule else {
            let end = step.rule.end(stream, from, limit);
            return Cut { range: from..end, needs: end };
        };
        if !matches!(step.rule, Rule::Granules { .. }) {
            limit = limit.min(stream.granule_at(below, from).end);
        }
        let end = step.rule.end(stream, from, limit);
        Cut { range: from..end, needs: stream.granule_at(below, end - 1).end }
    }

    /// How much of the input of `hop` may be freed once its output is complete up to `done`.
    pub(crate) fn frees(&self, hop: usize, done: u64) -> u64 {
        match self.hops[hop].granule {
            Some(below) if done < self.payload_bytes => {
                self.order(hop).granule_at(below, done).start
            }
            _ => done,
        }
    }

    /// The copies of request number `ordinal` of `hop`.
    pub(crate) fn chunk(
        &self,
        hop: usize,
        ordinal: usize,
        range: Range<u64>,
        slots: (Slot, Slot),
    ) -> Chunk {
        if let Some(head) = self.hops[hop].heads.get(ordinal) {
            return head.clone();
        }
        let (memo, origins) = (&self.hops[hop].memo, self.origins(hop, slots));
        let make = || chunk_of(&self.sides(hop, slots), range.clone());
        if let Some(known) = memo.find(&range, origins) {
            debug_assert_eq!(known.outline(), make().outline(), "one key, one shape");
            return known;
        }
        let chunk = make();
        memo.keep(&range, origins, &chunk);
        chunk
    }

    /// What the offsets of a request's sides count from.
    fn origins(&self, hop: usize, slots: (Slot, Slot)) -> Origins {
        let step = &self.hops[hop];
        [step.input.map(|_| slots.0.start), step.output.map(|_| slots.1.start)]
    }

    /// See [`Hop`]: what its blocks make of a request, and at most one for each value of a field.
    fn most_pieces(&self, hop: usize) -> u64 {
        let values = self.hops[hop].rule.bytes().min(self.payload_bytes)
            / self.src.field_bytes().iter().copied().min().unwrap_or(1);
        // A value may be cut at either end.
        self.blocked_pieces(hop).min(values.saturating_add(2))
    }

    /// No more pieces than this come of any part of what `hop` moves.
    fn blocked_pieces(&self, hop: usize) -> u64 {
        let Sides { src, dst, order } = self.sides(hop, (Slot::default(), Slot::default()));
        layout::most_pieces(src, dst, order)
    }

    /// How the requests of `hop` repeat.
    fn repeat(&self, plan: &Plan, hop: usize) -> Repeat {
        let step = &self.hops[hop];
        let all = 0..self.payload_bytes;
        let is_run = || {
            self.blocked_pieces(hop) <= MAX_EARLY_PIECES
                && chunk_of(&self.sides(hop, (Slot::default(), Slot::default())), all).is_run()
        };
        if matches!(step.rule, Rule::Every { .. }) && is_run() {
            return Repeat::Run;
        }
        let part = |ring: Option<usize>, part| if ring.is_none() { Some(part) } else { None };
        let parts = [part(step.input, &self.src), part(step.output, &self.dst)];
        let axes = cutting::axes(plan, hop, step.granule, parts, &self.src);
        Repeat::Along { axes, total: self.payload_bytes }
    }

    /// The stream in whose order `hop` makes its requests.
    fn order(&self, hop: usize) -> &Stream {
        let ring = self.hops[hop].output.or(self.hops[hop].input);
        match (ring, &self.direct) {
            (Some(ring), _) => &self.rings[ring].stream,
            (None, Some(stream)) => stream,
            (None, None) => unreachable!("a hop without a ring is direct"),
        }
    }

    fn sides(&self, hop: usize, (input, output): (Slot, Slot)) -> Sides<'_> {
        let step = &self.hops[hop];
        let side = |ring: Option<usize>, slot: Slot, part| match ring {
            Some(ring) => Side::Stream { stream: &self.rings[ring].stream, base: slot.start },
            None => Side::Instance(part),
        };
        Sides {
            src: side(step.input, input, &self.src),
            dst: side(step.output, output, &self.dst),
            order: self.order(hop),
        }
    }

    fn heads(&self, hop: usize) -> Vec<Chunk> {
        let few: Vec<_> = self.walk(hop).take(MAX_HEADS + 1).collect();
        let pieces = self.hops[hop].most_pieces.saturating_mul(few.len() as u64);
        if few.len() > MAX_HEADS || pieces > MAX_EARLY_PIECES {
            return Vec::new();
        }
        few.into_iter().map(|(range, slots)| chunk_of(&self.sides(hop, slots), range)).collect()
    }

    fn walk(&self, hop: usize) -> impl Iterator<Item = (Range<u64>, (Slot, Slot))> + '_ {
        let step = &self.hops[hop];
        let enter = |ring: Option<usize>, slot, at| {
            ring.map_or(slot, |r: usize| self.rings[r].holding(slot, at))
        };
        let first = |ring: Option<usize>| ring.map_or(Slot::default(), |r| self.rings[r].first());
        let (mut at, mut slots) = (0, (first(step.input), first(step.output)));
        std::iter::from_fn(move || {
            (at < self.payload_bytes).then(|| {
                slots = (enter(step.input, slots.0, at), enter(step.output, slots.1, at));
                let range = self.cut(hop, at, slots).range;
                at = range.end;
                (range, slots)
            })
        })
    }
}

/// See [`Program::stretches`].
fn stretches(hops: &[Hop]) -> Option<Vec<Stretch>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let last = hops.last().map(|hop| hop.ends[1].node);
    let nodes = hops.iter().map(|hop| hop.ends[0].node).chain(last);
    for (at, node) in nodes.enumerate() {
        let hop = hops.get(at);
        if hop.is_some_and(|hop| hop.channel.node != node) {
            return None;
        }
        let end = at + usize::from(hop.is_some());
        let comes_back = stretches.iter().rev().skip(1).any(|s| s.node == node);
        match stretches.last_mut() {
            _ if comes_back => return None,
            Some(stretch) if stretch.node == node => stretch.hops.end = end,
            last => {
                let before = last.map(|stretch| {
                    stretch.behind = Some(node);
                    stretch.node
                });
                stretches.push(Stretch { node, hops: at..end, before, behind: None });
            }
        }
    }
    Some(stretches)
}

fn check_plan(plan: &Plan) -> Result<(), CompileError> {
    let hops = plan.hops.len();
    let why = match () {
        () if hops == 0 || hops > MAX_HOPS => "a plan has 1 to 64 hops",
        () if plan.memories.len() != hops + 1 => "each hop joins two memories",
        () if plan.layouts.len() != hops + 1 => "each memory has a layout",
        () if plan.buffers.len() != hops - 1 => "each intermediate memory has a buffer",
        () if plan.buffers.iter().zip(&plan.memories[1..]).any(|(b, m)| b.memory != *m) => {
            "a buffer lies in another memory than the path"
        }
        () => return Ok(()),
    };
    Err(CompileError::Plan { why })
}

fn check_parts(src: &Part, dst: &Part) -> Result<(), CompileError> {
    if src.extents() != dst.extents() {
        return Err(CompileError::Parts { what: "extents" });
    }
    if src.field_bytes() != dst.field_bytes() {
        return Err(CompileError::Parts { what: "field sizes" });
    }
    dst.check_destination().map_err(CompileError::Destination)
}

impl Hop {
    /// Hop `at` of `plan`, cut by `rule`.
    pub(crate) fn new(plan: &Plan, at: usize, rule: Rule, granule: Option<usize>) -> Self {
        let hop = &plan.hops[at];
        Hop {
            channel: hop.channel,
            kind: hop.kind,
            ends: [plan.memories[at], plan.memories[at + 1]],
            input: at.checked_sub(1),
            output: (at + 1 < plan.hops.len()).then_some(at),
            rule,
            granule,
            most_pieces: u64::MAX,
            heads: Vec::new(),
            memo: Memo::new(Repeat::Run),
        }
    }

    /// The end to blame for a failure of this kind.
    pub(crate) fn blamed(&self, kind: model::ChannelErrorKind) -> MemoryId {
        use model::ChannelErrorKind::{NoSpace, ShortRead};
        let reads_device = matches!(self.kind, ChannelKind::DiskRead | ChannelKind::GpuRead);
        match kind {
            ShortRead => self.ends[0],
            NoSpace => self.ends[1],
            _ => self.ends[usize::from(!reads_device)],
        }
    }
}

#[cfg(test)]
mod tests;
