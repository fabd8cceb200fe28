//! Where the payload stream is cut: into slots, and into requests.

use crate::CompileError;
use crate::memo::{Axis, MAX_AXES};
use crate::order::{direct_order, order};
use crate::program::Hop;
use crate::ring::{ALIGN_BYTES, Ring};
use layout::{Part, Stream};
use model::{Buffer, ChannelKind, Component, Layout, Plan};

/// How a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Every so many bytes, whatever stands there.
    Every {
        /// At least 1.
        bytes: u64,
    },
    /// At the largest component boundary before so many bytes.
    Component {
        /// At least 1.
        bytes: u64,
    },
    /// After as many whole iterations of the components from `below` on as so many bytes hold;
    /// after one at least.
    Granules {
        /// The first component that stands still.
        below: usize,
        /// At least 1.
        bytes: u64,
    },
}

impl Rule {
    /// How long a piece is at most, where granules are no longer.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Rule::Every { bytes } | Rule::Component { bytes } | Rule::Granules { bytes, .. } => {
                bytes
            }
        }
    }

    /// The end of the piece that starts at `from`: past `from`, at most `limit`.
    pub(crate) fn end(self, stream: &Stream, from: u64, limit: u64) -> u64 {
        let end = match self {
            Rule::Every { bytes } => {
                let even = without_sliver(limit - from, bytes);
                let is_aligned = bytes.is_multiple_of(ALIGN_BYTES);
                let step = if is_aligned { even.next_multiple_of(ALIGN_BYTES) } else { even };
                from.saturating_add(step.min(bytes))
            }
            Rule::Component { bytes } => {
                let bytes = without_sliver(limit - from, bytes);
                stream.cut(from, bytes).min(from.saturating_add(bytes))
            }
            Rule::Granules { below, bytes } => {
                let first = stream.granule_at(below, from).end;
                match from.checked_add(bytes).filter(|&end| end < stream.bytes()) {
                    Some(end) => stream.granule_at(below, end).start.max(first),
                    None => stream.bytes(),
                }
            }
        };
        end.clamp(from + 1, limit)
    }
}

/// `want`, or half of what is left where that is more than one piece and less than two.
fn without_sliver(left: u64, want: u64) -> u64 {
    if left > want && left - want < want { left.div_ceil(2) } else { want }
}

/// The stream of each ring; the order of a direct hop.
pub(crate) fn streams(plan: &Plan, src: &Part) -> Result<Vec<Stream>, CompileError> {
    let count = plan.layouts.len();
    let stream = |at: usize, layout: &Layout| {
        Stream::new(layout, src.extents(), &plan.phase, src.field_bytes())
            .map_err(|source| CompileError::Layout { at, source })
    };
    match count {
        2 => {
            let order = order(plan, 0, src);
            let at = usize::from(order != plan.layouts[0]);
            Ok(vec![stream(at, &order)?])
        }
        _ => (1..count - 1).map(|at| stream(at, &plan.layouts[at])).collect(),
    }
}

/// The one hop of a direct transfer.
pub(crate) fn direct_hop(plan: &Plan, src: &Part, dst: &Part) -> Hop {
    let bytes = plan.hops[0].request_bytes.max(1);
    let is_run = plan.layouts[0] == plan.layouts[1] && is_dense(src) && is_dense(dst);
    let rule = match direct_order(plan, src).1 {
        _ if is_run => Rule::Every { bytes },
        Some(below) => Rule::Granules { below, bytes },
        None => Rule::Component { bytes },
    };
    Hop::new(plan, 0, rule, None)
}

/// The hops of a longer transfer.
pub(crate) fn hops(plan: &Plan, parts: (&Part, &Part), rings: &[Ring]) -> Vec<Hop> {
    let hop = |at: usize| {
        let below = granule_below(plan, at, at + 1);
        let slots = rings.get(at).into_iter().chain(at.checked_sub(1).map(|i| &rings[i]));
        let pitch_bytes = slots.map(|ring| ring.pitch_bytes).min().unwrap_or(1);
        let bytes = even_share(pitch_bytes, plan.hops[at].request_bytes);
        let rule = match below {
            Some(below) if granule_bytes(plan, at + 1, below, parts.0) <= bytes => {
                Rule::Granules { below, bytes }
            }
            None if moves_runs(plan, at, parts) => Rule::Every { bytes },
            _ => Rule::Component { bytes },
        };
        Hop::new(plan, at, rule, below)
    };
    (0..plan.hops.len()).map(hop).collect()
}

/// The rings of a plan's buffers.
pub(crate) fn rings(
    plan: &Plan,
    parts: (&Part, &Part),
    streams: Vec<Stream>,
) -> Result<Vec<Ring>, CompileError> {
    let ring = |(at, stream)| ring(plan, parts, at, stream);
    streams.into_iter().enumerate().map(ring).collect()
}

/// The ring of buffer `at`, between the hops `at` and `at + 1`.
fn ring(
    plan: &Plan,
    parts: (&Part, &Part),
    at: usize,
    stream: Stream,
) -> Result<Ring, CompileError> {
    let Buffer { memory, bytes: buffer_bytes } = plan.buffers[at];
    let total = stream.bytes();
    let below = granule_below(plan, at, at + 1).max(granule_below(plan, at + 1, at + 1));
    let granule = below.map_or(1, |below| granule_bytes(plan, at + 1, below, parts.0));
    let needed_bytes = granule.min(total).max(1);
    if buffer_bytes < needed_bytes && total > 0 {
        return Err(CompileError::Buffer { buffer: at, bytes: buffer_bytes, needed_bytes });
    }
    // Half a ring for each slot, so that one fills while the other empties.
    let wanted = plan.hops[at].request_bytes.max(plan.hops[at + 1].request_bytes);
    let most = (buffer_bytes / 2).min(total).max(needed_bytes);
    let bytes = match below {
        Some(_) => nearest(wanted, needed_bytes).min(most / needed_bytes) * needed_bytes,
        None => wanted.clamp(1, most),
    };
    let (pitch_bytes, slots) = pitch(bytes, buffer_bytes.max(1));
    let is_disk = is_disk_run(plan, at, parts) || is_disk_run(plan, at + 1, parts);
    let is_plain = moves_runs(plan, at, parts) && moves_runs(plan, at + 1, parts);
    let rule = match below {
        Some(below) => Rule::Granules { below, bytes: pitch_bytes },
        None if is_disk || is_plain => Rule::Every { bytes: pitch_bytes },
        None => Rule::Component { bytes: pitch_bytes },
    };
    Ok(Ring { memory, stream, rule, pitch_bytes, slots })
}

/// The distance and number of slots of `bytes` in a buffer: aligned where that costs no slot.
fn pitch(bytes: u64, buffer_bytes: u64) -> (u64, u64) {
    let slots = (buffer_bytes / bytes).max(1);
    let aligned = bytes.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(bytes);
    let fits = aligned.checked_mul(slots).is_some_and(|all| all <= buffer_bytes);
    (if fits { aligned } else { bytes }, slots)
}

/// About `want`, so that a slot of `slot_bytes` is cut evenly.
fn even_share(slot_bytes: u64, want: u64) -> u64 {
    let (slot, want) = (slot_bytes.max(1), want.clamp(1, slot_bytes.max(1)));
    slot.div_ceil(nearest(slot, want))
}

/// How many of `unit` come nearest to `bytes`; at least 1.
fn nearest(bytes: u64, unit: u64) -> u64 {
    (bytes / unit + u64::from(bytes % unit > unit / 2)).max(1)
}

/// How many components hop `at`'s two windows share at their slow end, where it converts between
/// two windows.
fn shared_components(plan: &Plan, at: usize) -> Option<usize> {
    let is_between = at > 0 && at + 1 < plan.hops.len();
    let (from, to) = (&plan.layouts[at], &plan.layouts[at + 1]);
    (is_between && from != to).then(|| common_suffix(from, to))
}

/// The first component of layout `at` that stands still over the granules of hop `hop`.
fn granule_below(plan: &Plan, hop: usize, at: usize) -> Option<usize> {
    Some(plan.layouts[at].components().len() - shared_components(plan, hop)?)
}

/// How many of the slowest components two layouts share, cut into the same blocks.
fn common_suffix(a: &Layout, b: &Layout) -> usize {
    let same = |(x, y): &(&Component, &Component)| {
        x == y && x.dim().is_none_or(|dim| a.blocks(dim).eq(b.blocks(dim)))
    };
    a.components().iter().rev().zip(b.components().iter().rev()).take_while(same).count()
}

/// The most bytes over which the components of layout `at` from `below` on stand still.
fn granule_bytes(plan: &Plan, at: usize, below: usize, part: &Part) -> u64 {
    let fast = &plan.layouts[at].components()[..below];
    let fields = part.field_bytes();
    let entry = if fast.contains(&Component::Fields) {
        fields.iter().sum()
    } else {
        fields.iter().copied().max().unwrap_or(1)
    };
    entry.saturating_mul(fast_entries(plan, at, below, part))
}

/// The most entries over which the components of layout `at` from `below` on stand still.
pub(crate) fn fast_entries(plan: &Plan, at: usize, below: usize, part: &Part) -> u64 {
    let fast = &plan.layouts[at].components()[..below];
    let indices = |(dim, &extent): (usize, &u64)| {
        let blocks: Vec<u64> = plan.layouts[at].blocks(dim).collect();
        indices_of(fast, dim, &blocks, extent)
    };
    part.extents().iter().enumerate().map(indices).fold(1, u64::saturating_mul)
}

/// The most of `extent` neighbouring indices of dimension `dim` over which the components not in
/// `fast` stand still.
///
/// With blocks of `P` indices below the innermost fast component, these lie at least `P` apart;
/// and of any `P` of the outer component's blocks, each holds the product of the fast ones.
fn indices_of(fast: &[Component], dim: usize, blocks: &[u64], extent: u64) -> u64 {
    let product = |levels: &[u64]| levels.iter().copied().fold(1u64, u64::saturating_mul);
    let (mut innermost, mut count) = (None, 1u64);
    for component in fast.iter().filter(|c| c.dim() == Some(dim)) {
        let (level, size) = match *component {
            Component::Inner { level, size, .. } => (usize::from(level) - 1, size),
            _ => (blocks.len(), extent.div_ceil(product(blocks))),
        };
        innermost = Some(innermost.map_or(level, |least: usize| least.min(level)));
        count = count.saturating_mul(size);
    }
    innermost.map_or(1, |level| count.min(extent.div_ceil(product(&blocks[..level]))))
}

/// The slowest components of the order of hop `hop`, slowest first, along which its requests
/// repeat: on an instance one more adds a constant, and two windows share them.
pub(crate) fn axes(
    plan: &Plan,
    hop: usize,
    granule: Option<usize>,
    sides: [Option<&Part>; 2],
    src: &Part,
) -> Vec<Axis> {
    let layout = order(plan, hop, src);
    let axis = |component: &Component| {
        let (Component::Whole(dim) | Component::Outer(dim)) = *component else { return None };
        let dim = usize::from(dim);
        let block = layout.blocks(dim).try_fold(1u64, |b, size| b.checked_mul(size))?;
        let stride = |side: Option<&Part>| side.map_or(Some(0), |part| part.stride(dim, block));
        let strides = [stride(sides[0])?, stride(sides[1])?];
        Some(Axis { extent: src.extents()[dim], block, phase: plan.phase[dim] % block, strides })
    };
    let slow = layout.components()[granule.unwrap_or(0)..].iter().rev();
    slow.map_while(axis).take(MAX_AXES).collect()
}

/// Whether hop `at` moves whole runs, so that it may be cut anywhere.
fn moves_runs(plan: &Plan, at: usize, (src, dst): (&Part, &Part)) -> bool {
    let part = match at {
        0 => Some(src),
        _ if at + 1 == plan.hops.len() => Some(dst),
        _ => None,
    };
    plan.layouts[at] == plan.layouts[at + 1] && part.is_none_or(is_dense)
}

/// Whether hop `at` reads or writes a file in its own order, so that aligned cuts pay.
fn is_disk_run(plan: &Plan, at: usize, parts: (&Part, &Part)) -> bool {
    let kind = plan.hops[at].kind;
    matches!(kind, ChannelKind::DiskRead | ChannelKind::DiskWrite) && moves_runs(plan, at, parts)
}

/// Whether a part has no byte between its first and its last that isn't payload, and its bytes
/// ascend in the order of its layout: not so under a negative stride, nor along a list.
fn is_dense(part: &Part) -> bool {
    let span = part.span();
    let is_whole = span.start.abs_diff(span.end) == part.payload_bytes();
    is_whole && part.gaps() == 0 && !part.has_lists()
}

#[cfg(test)]
mod tests;
