//! What the bytes of a transfer must be, found entry by entry from the addresses of the data
//! model and nothing else.

use crate::scenario::{End, TransferSpec};
use layout::{LayoutError, Part, Placement};
use model::Span;
use std::ops::Range;

/// Where every entry of a box lies at both ends: source, destination, length.
#[derive(Debug)]
pub(crate) struct Entries {
    list: Vec<(usize, usize, usize)>,
}

impl Entries {
    /// The entries of `spec`, in bytes from the start of instances whose first byte lies at
    /// `base.0` and `base.1`.
    pub(crate) fn of(spec: &TransferSpec, base: (u64, u64)) -> Result<Self, LayoutError> {
        let (src, dst) = (placement(&spec.src)?, placement(&spec.dst)?);
        let mut list = Vec::new();
        for point in points(&spec.src.part.extents()) {
            let (from, to) = (index_at(&spec.src, &point), index_at(&spec.dst, &point));
            for (field, size) in spec.fields.fields().iter().enumerate() {
                let src_at = shift(base.0, src.address(&from, spec.src.stored.chosen[field]));
                let dst_at = shift(base.1, dst.address(&to, spec.dst.stored.chosen[field]));
                list.push((src_at, dst_at, usize::try_from(size.bytes).expect("small")));
            }
        }
        Ok(Entries { list })
    }

    /// Copies every entry from `src` to `dst`.
    pub(crate) fn copy(&self, src: &[u8], dst: &mut [u8]) {
        for &(from, to, len) in &self.list {
            dst[to..to + len].copy_from_slice(&src[from..from + len]);
        }
    }

    /// The destination's ranges.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.list.iter().map(|&(_, to, len)| to..to + len)
    }
}

/// How the instance of `end` maps entries to bytes.
pub(crate) fn placement(end: &End) -> Result<Placement, LayoutError> {
    let fields = &end.stored.fields;
    match &end.stored.strides {
        Some(strides) => Placement::of_strides(&end.space, fields, strides),
        None => Placement::of_layout(&end.layout, &end.space, fields),
    }
}

/// The box of `end`, with the fields that are copied.
pub(crate) fn part(end: &End) -> Result<Part, LayoutError> {
    placement(end)?.select(&end.part, &end.stored.chosen)
}

/// The first byte at which `after` differs from `before`.
pub(crate) fn first_difference(before: &[u8], after: &[u8]) -> Option<usize> {
    before.iter().zip(after).position(|(b, a)| b != a)
}

fn index_at(end: &End, point: &[u64]) -> Vec<i64> {
    let at = |(span, &nth): (&Span, &u64)| match span {
        Span::Range { lo, .. } => lo + i64::try_from(nth).expect("small"),
        Span::List(list) => list[usize::try_from(nth).expect("small")],
    };
    end.part.spans().iter().zip(point).map(at).collect()
}

fn points(extents: &[u64]) -> Vec<Vec<u64>> {
    extents.iter().fold(vec![Vec::new()], |points, &extent| {
        let grow =
            |p: &Vec<u64>| (0..extent).map(|i| [p.as_slice(), &[i]].concat()).collect::<Vec<_>>();
        points.iter().flat_map(grow).collect()
    })
}

fn shift(base: u64, address: i64) -> usize {
    let at = base.checked_add_signed(address).expect("instances start after their region");
    usize::try_from(at).expect("simulated memory fits")
}
