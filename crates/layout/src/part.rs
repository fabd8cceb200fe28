//! A box of an instance.

use crate::LayoutError;
use crate::digits::{Digit, free_ranges, products};
#[cfg(feature = "serde")]
use crate::form::PartForm;
use crate::overlap::{Progression, overlap, overlaps_itself};
use crate::placement::{Axis, Placement, Step};
use model::{Component, Layout, Selection, Span};
use std::ops::Range;
use std::sync::Arc;

/// The indices of one dimension that a part holds, counted from the dimension's lower bound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Indices {
    /// As many as the part's extent, from here.
    From(u64),
    /// These.
    List(Arc<[u64]>),
}

impl Indices {
    /// Those of `list`; one that counts up by one is a range.
    pub(crate) fn listed(list: Arc<[u64]>) -> Self {
        let counts_up = list.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        match list.first() {
            Some(&start) if counts_up => Indices::From(start),
            None => Indices::From(0),
            _ => Indices::List(list),
        }
    }
}

/// A box of an instance with some of its fields: where each entry lies, for box-relative indices
/// from 0 and fields in the order of the copy. Offsets are relative to the instance's base.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "PartForm", try_from = "PartForm"))]
pub struct Part {
    pub(crate) extents: Vec<u64>,
    pub(crate) axes: Vec<(Axis, Indices)>,
    pub(crate) offsets: Vec<i64>,
    pub(crate) field_bytes: Vec<u64>,
    /// The bytes behind each field that may be written with anything.
    pub(crate) padding: Vec<u64>,
    pub(crate) phase: Vec<u64>,
    pub(crate) layout: Layout,
}

impl Part {
    pub(crate) fn new(
        placement: &Placement,
        selection: &Selection,
        fields: &[usize],
    ) -> Result<Self, LayoutError> {
        let rank = placement.extents().len();
        if selection.spans().len() != rank {
            return Err(LayoutError::Rank { expected: rank, got: selection.spans().len() });
        }
        check_fields(fields, placement.field_bytes().len())?;
        let mut axes = Vec::with_capacity(rank);
        for (dim, span) in selection.spans().iter().enumerate() {
            let indices = indices_of(span, placement.lo(dim), placement.extents()[dim])
                .ok_or(LayoutError::Bounds { dim })?;
            axes.push((placement.axis(dim).clone(), indices));
        }
        let phase = (0..rank).map(|d| phase_of(&axes[d].1, placement.layout().blocks(d)));
        Ok(Part {
            extents: selection.extents(),
            phase: phase.collect(),
            axes,
            offsets: fields.iter().map(|&f| placement.offset(f)).collect(),
            field_bytes: fields.iter().map(|&f| placement.field_bytes()[f]).collect(),
            padding: fields.iter().map(|&f| placement.padding(f)).collect(),
            layout: placement.layout().clone(),
        })
    }

    /// The extents of the box.
    #[must_use]
    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// The sizes of the fields, in the copy's order.
    #[must_use]
    pub fn field_bytes(&self) -> &[u64] {
        &self.field_bytes
    }

    /// The bytes of all fields at all indices.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.extents.iter().chain([&self.field_bytes.iter().sum()]).product()
    }

    /// For each dimension, where the box starts in the outermost block of the layout; 0 where the
    /// dimension isn't blocked or an index list is taken.
    #[must_use]
    pub fn phase(&self) -> &[u64] {
        &self.phase
    }

    /// The layout vector of the instance, or the nearest one.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The smallest range that holds every byte of the part, relative to the instance's base;
    /// empty where the part is.
    #[must_use]
    pub fn span(&self) -> Range<i64> {
        if self.extents.contains(&0) {
            return 0..0;
        }
        let spans = (0..self.offsets.len()).map(|f| self.field_span(f));
        spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// What `by` more indices along `dim` add to an address, where that is the same for every
    /// index and field: not for an index list, nor for parts of a block.
    ///
    /// # Panics
    /// If there is no such dimension.
    #[must_use]
    pub fn stride(&self, dim: usize, by: u64) -> Option<i64> {
        let (axis, indices) = &self.axes[dim];
        let (digit, step) = (axis.digits.last()?, axis.steps.last()?);
        if matches!(indices, Indices::List(_)) || !by.is_multiple_of(digit.place) {
            return None;
        }
        let mut sizes =
            self.field_bytes.iter().map(|&size| if step.scaled == 0 { 0 } else { size });
        let size = sizes.next()?;
        let one = step.fixed.checked_add(step.scaled.checked_mul(size.try_into().ok()?)?)?;
        let blocks = i64::try_from(by / digit.place).ok()?;
        if sizes.all(|other| other == size) { one.checked_mul(blocks) } else { None }
    }

    /// Whether an index list is taken of some dimension.
    #[must_use]
    pub fn has_lists(&self) -> bool {
        self.axes.iter().any(|(_, indices)| matches!(indices, Indices::List(_)))
    }

    /// A bit for each dimension whose next index doesn't follow the bytes of all that is faster:
    /// what lies between belongs to entries outside a box, to fields left out, or to nothing.
    /// Blocks that the box cuts count as whole.
    #[must_use]
    pub fn gaps(&self) -> u8 {
        let entry: u64 = self.field_bytes.iter().sum();
        let (mut bytes, mut entries, mut gaps) = (self.field_bytes.first().copied(), 1u64, 0);
        for component in self.layout.components() {
            let dim = match *component {
                Component::Fields => {
                    bytes = Some(entry);
                    continue;
                }
                Component::Inner { size, .. } => {
                    entries = entries.saturating_mul(size);
                    continue;
                }
                Component::Whole(dim) | Component::Outer(dim) => usize::from(dim),
            };
            let block = self.layout.blocks(dim).fold(1u64, u64::saturating_mul);
            let dense = bytes.and_then(|b| i64::try_from(b.saturating_mul(entries)).ok());
            let stride = self.stride(dim, block);
            let count = self.extents[dim].div_ceil(block);
            if count > 1 && stride.is_some() && stride != dense {
                gaps |= 1 << dim;
            }
            entries = entries.saturating_mul(count.max(1));
        }
        gaps
    }

    /// Refuses what can't be written to.
    ///
    /// # Errors
    /// [`LayoutError::StrideZero`] where a dimension of several entries has stride 0;
    /// [`LayoutError::Overlap`] where an index list repeats an index, or where two entries share a
    /// byte (or a gap between the selected fields of another entry). Strides whose search passes a
    /// bound of 4096 steps are refused likewise.
    pub fn check_destination(&self) -> Result<(), LayoutError> {
        if self.extents.contains(&0) {
            return Ok(());
        }
        for (dim, (axis, indices)) in self.axes.iter().enumerate() {
            if self.extents[dim] > 1 && axis.steps.contains(&Step::default()) {
                return Err(LayoutError::StrideZero { dim });
            }
            if let Indices::List(list) = indices {
                check_unique(list)?;
            }
        }
        match self.progression() {
            Some(progression) if overlaps_itself(&progression) => Err(LayoutError::Overlap),
            _ => Ok(()),
        }
    }

    /// Whether this part and `other`, whose instance's base lies `apart` bytes above this one's,
    /// share a byte; a gap between an entry's fields counts, and so does what an index list leaves
    /// out. True as well for blocks, and for strides whose search passes its bound.
    #[must_use]
    pub fn meets(&self, other: &Part, apart: i128) -> bool {
        if self.extents.contains(&0) || other.extents.contains(&0) {
            return false;
        }
        let starts = [self, other].map(|part| i128::from(part.span().start));
        match (self.progression(), other.progression()) {
            (Some(a), Some(b)) => overlap(&a, &b, apart + starts[1] - starts[0]),
            _ => true,
        }
    }

    /// The strides of a part whose dimensions aren't blocked, and its entry's bytes; `None` for a
    /// blocked one, which never overlaps itself.
    pub(crate) fn progression(&self) -> Option<Progression> {
        let mut loops = Vec::with_capacity(self.axes.len());
        for (dim, (axis, indices)) in self.axes.iter().enumerate() {
            let [step] = axis.steps[..] else { return None };
            let count = match indices {
                Indices::From(_) => self.extents[dim],
                Indices::List(list) => list.iter().max()? - list.iter().min()? + 1,
            };
            if step.scaled != 0 {
                return None;
            }
            loops.push((count, step.fixed));
        }
        let ends = self.offsets.iter().zip(&self.field_bytes).map(|(&o, &b)| o + b as i64);
        let bytes = ends.max()? - self.offsets.iter().min()?;
        Some(Progression { loops, bytes: bytes.unsigned_abs() })
    }

    pub(crate) fn digits(&self, dim: usize) -> &[Digit] {
        &self.axes[dim].0.digits
    }

    pub(crate) fn axis(&self, dim: usize) -> &Axis {
        &self.axes[dim].0
    }

    pub(crate) fn indices(&self, dim: usize) -> &Indices {
        &self.axes[dim].1
    }

    pub(crate) fn offset(&self, field: usize) -> i64 {
        self.offsets[field]
    }

    fn field_span(&self, field: usize) -> Range<i64> {
        let size = self.field_bytes[field] as i64;
        let mut span = self.offsets[field]..self.offsets[field] + size;
        for dim in 0..self.axes.len() {
            let (lo, hi) = self.axis_bounds(dim, size);
            span.start += lo;
            span.end += hi;
        }
        span
    }

    /// The least and greatest that dimension `dim` adds to the address of a field of `size`.
    fn axis_bounds(&self, dim: usize, size: i64) -> (i64, i64) {
        let (axis, indices) = &self.axes[dim];
        let at = |step: Step| step.fixed + step.scaled * size;
        let values: Vec<i64> = match indices {
            Indices::List(list) => list.iter().map(|&i| at(axis.at(i))).collect(),
            Indices::From(start) if axis.digits.len() == 1 => {
                let last = start + self.extents[dim] - 1;
                vec![at(axis.at(*start)), at(axis.at(last))]
            }
            Indices::From(start) => {
                let range = *start..start + self.extents[dim];
                let boxes = products(&axis.digits, &free_ranges(&axis.digits, &range), &range);
                boxes.iter().flat_map(|b| corners(axis, b).map(at)).collect()
            }
        };
        (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0))
    }
}

/// What the lowest and the highest corner of a product of digit ranges add to the address.
fn corners(axis: &Axis, ranges: &[Range<u64>]) -> [Step; 2] {
    let mut corners = [Step::default(); 2];
    for (step, range) in axis.steps.iter().zip(ranges) {
        for (corner, value) in corners.iter_mut().zip([range.start, range.end - 1]) {
            corner.fixed += value as i64 * step.fixed;
            corner.scaled += value as i64 * step.scaled;
        }
    }
    corners
}

fn check_fields(fields: &[usize], count: usize) -> Result<(), LayoutError> {
    if fields.is_empty() {
        return Err(LayoutError::Field { field: 0 });
    }
    for (i, &field) in fields.iter().enumerate() {
        if field >= count || fields[..i].contains(&field) {
            return Err(LayoutError::Field { field });
        }
    }
    Ok(())
}

/// The span's indices from the lower bound.
fn indices_of(span: &Span, lo: i64, extent: u64) -> Option<Indices> {
    let relative = |i: i64| u64::try_from(i.checked_sub(lo)?).ok();
    match span {
        Span::Range { lo: first, hi } => {
            let start = relative(*first)?;
            (first <= hi && relative(*hi)? <= extent).then_some(Indices::From(start))
        }
        Span::List(list) => {
            let list: Arc<[u64]> = list.iter().map(|&i| relative(i)).collect::<Option<_>>()?;
            list.iter().all(|&i| i < extent).then(|| Indices::listed(list))
        }
    }
}

pub(crate) fn phase_of(indices: &Indices, blocks: impl Iterator<Item = u64>) -> u64 {
    match indices {
        Indices::From(start) => start % blocks.fold(1u64, u64::saturating_mul),
        Indices::List(_) => 0,
    }
}

fn check_unique(list: &[u64]) -> Result<(), LayoutError> {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    let repeats = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    if repeats { Err(LayoutError::Overlap) } else { Ok(()) }
}
