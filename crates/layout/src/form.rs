//! A part as plain values, as another node is told it.
//!
//! **Hazard.** What comes from another node may be anything: addresses that wrap, blocks that lie on
//! each other, a dimension that counts in other digits than its layout says. **Guarantee.** What
//! comes out is a part that a placement could have made: addresses stay within [`REACH`], fields
//! lie apart, and so do the entries of a blocked part, which [`Part::check_destination`] takes for
//! granted. **Structure.** Digits travel as their places; sizes, extents and the phase are worked
//! out anew.

use crate::LayoutError;
use crate::digits::{Digit, digits_of};
use crate::part::{Indices, Part, phase_of};
use crate::placement::{Axis, Step};
use model::{Layout, MAX_DIMS};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// No address of a part lies further from its base: sums and differences of two stay within 64 bits.
const REACH: i128 = 1 << 61;

/// What a part is made of.
#[derive(Serialize, Deserialize)]
pub(crate) struct PartForm {
    layout: Layout,
    dims: Vec<DimForm>,
    /// Offset and size of each.
    fields: Vec<(i64, u64)>,
}

/// One dimension.
#[derive(Serialize, Deserialize)]
struct DimForm {
    indices: IndicesForm,
    /// Place and step of each, innermost first.
    digits: Vec<(u64, i64, i64)>,
}

/// The indices of one dimension.
#[derive(Serialize, Deserialize)]
enum IndicesForm {
    From { start: u64, extent: u64 },
    List(Arc<[u64]>),
}

impl From<Part> for PartForm {
    fn from(part: Part) -> Self {
        let dim = |(dim, (axis, indices)): (usize, &(Axis, Indices))| DimForm {
            indices: match indices {
                Indices::From(start) => {
                    IndicesForm::From { start: *start, extent: part.extents[dim] }
                }
                Indices::List(list) => IndicesForm::List(Arc::clone(list)),
            },
            digits: axis
                .digits
                .iter()
                .zip(&axis.steps)
                .map(|(digit, step)| (digit.place, step.fixed, step.scaled))
                .collect(),
        };
        PartForm {
            dims: part.axes.iter().enumerate().map(dim).collect(),
            fields: part.offsets.iter().copied().zip(part.field_bytes.iter().copied()).collect(),
            layout: part.layout,
        }
    }
}

impl TryFrom<PartForm> for Part {
    type Error = LayoutError;

    fn try_from(form: PartForm) -> Result<Self, LayoutError> {
        let PartForm { layout, dims, fields } = form;
        let rank = layout.components().iter().filter_map(|c| c.dim()).max().map_or(0, |d| d + 1);
        if dims.len() != rank || !(1..=MAX_DIMS).contains(&rank) {
            return Err(LayoutError::Rank { expected: rank, got: dims.len() });
        }
        let extents = dims.iter().map(DimForm::extent).collect();
        let axis = |(dim, form): (usize, DimForm)| Ok((form.axis(&layout, dim)?, form.indices()));
        let axes: Vec<_> =
            dims.into_iter().enumerate().map(axis).collect::<Result<_, LayoutError>>()?;
        let phase = axes.iter().enumerate().map(|(d, axis)| phase_of(&axis.1, layout.blocks(d)));
        let part = Part {
            phase: phase.collect(),
            extents,
            offsets: fields.iter().map(|field| field.0).collect(),
            field_bytes: fields.iter().map(|field| field.1).collect(),
            axes,
            layout,
        };
        part.check_reach()?;
        part.check_apart()?;
        Ok(part)
    }
}

impl DimForm {
    fn extent(&self) -> u64 {
        match &self.indices {
            IndicesForm::From { extent, .. } => *extent,
            IndicesForm::List(list) => list.len() as u64,
        }
    }

    /// How it counts: some of the places of its layout, the first and the last digit's among them.
    fn axis(&self, layout: &Layout, dim: usize) -> Result<Axis, LayoutError> {
        let known = digits_of(layout.blocks(dim));
        let places = || self.digits.iter().map(|digit| digit.0);
        let ascends = places().is_sorted() && places().len() <= known.len();
        let is_known = |place| known.iter().any(|digit| digit.place == place);
        if places().next() != Some(1) || !ascends || !places().all(is_known) {
            return Err(LayoutError::Digits { dim });
        }
        let ends = places().skip(1).map(Some).chain([None]);
        let digit = |(place, end): (u64, Option<u64>)| Digit {
            place,
            size: end.map_or(u64::MAX, |end| end / place),
        };
        let step = |&(_, fixed, scaled): &(u64, i64, i64)| Step { fixed, scaled };
        Ok(Axis {
            digits: places().zip(ends).map(digit).collect(),
            steps: self.digits.iter().map(step).collect(),
        })
    }

    fn indices(self) -> Indices {
        match self.indices {
            IndicesForm::From { start, .. } => Indices::From(start),
            IndicesForm::List(list) => Indices::listed(list),
        }
    }
}

impl Part {
    /// Refuses addresses, sizes and indices that are too large to count with.
    fn check_reach(&self) -> Result<(), LayoutError> {
        let fields: i128 = self.field_bytes.iter().map(|&bytes| i128::from(bytes)).sum();
        let entries = self.extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e.max(1)));
        let payload = entries.and_then(|n| i128::from(n).checked_mul(fields.min(REACH)));
        let offset = self.offsets.iter().map(|&offset| i128::from(offset).abs()).max();
        let mut reach = offset.unwrap_or(0) + fields;
        for (dim, at, step) in self.steps() {
            let (last, digit) = (self.last_index(dim), self.axes[dim].0.digits[at]);
            let most =
                i128::from(step.fixed).abs() + i128::from(step.scaled).abs() * fields.min(REACH);
            let way = most.checked_mul(i128::from((last / digit.place).min(digit.size)));
            reach = way.and_then(|way| reach.checked_add(way)).ok_or(LayoutError::TooLarge)?;
            reach += i128::from(last);
        }
        let fits = payload.is_some_and(|payload| payload.max(reach) <= REACH);
        if fits { Ok(()) } else { Err(LayoutError::TooLarge) }
    }

    /// Refuses fields that are none or lie on each other, and blocked entries that do.
    fn check_apart(&self) -> Result<(), LayoutError> {
        if let Some(field) = self.field_bytes.iter().position(|&bytes| bytes == 0) {
            return Err(LayoutError::Field { field });
        }
        // Steps of a layout are of one kind, and none lets entries meet; any others are strides.
        let is_blocked = |(_, at, step): (usize, usize, Step)| at > 0 || step.scaled != 0;
        if !self.steps().any(is_blocked) {
            return self.check_fields(1).map(|_| ());
        }
        if let Some((dim, ..)) = self.steps().find(|s| s.2.scaled != 0 && s.2.fixed != 0) {
            return Err(LayoutError::Digits { dim });
        }
        let is_scaled = |step: Step| step.scaled != 0;
        let block = self.walked(1, |step| is_scaled(step).then_some(step.scaled))?;
        let entry = self.check_fields(block)?;
        self.walked(entry, |step| (!is_scaled(step)).then_some(step.fixed)).map(|_| ())
    }

    /// How long all fields are together, where `block` values of each follow each other; refuses
    /// those that lie on each other.
    fn check_fields(&self, block: i128) -> Result<i128, LayoutError> {
        let span = |(&at, &bytes): (&i64, &u64)| {
            (i128::from(at), i128::from(at) + i128::from(bytes) * block)
        };
        let mut spans: Vec<_> = self.offsets.iter().zip(&self.field_bytes).map(span).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(LayoutError::Overlap);
        }
        let ends = spans.first().zip(spans.last()).ok_or(LayoutError::Field { field: 0 })?;
        Ok(ends.1.1 - ends.0.0)
    }

    /// How far the loops go that `step_of` picks, which walk over what is `length` long; refuses
    /// one that comes down on what was walked over.
    fn walked(
        &self,
        mut length: i128,
        step_of: impl Fn(Step) -> Option<i64>,
    ) -> Result<i128, LayoutError> {
        let picked = self.steps().filter_map(|(dim, at, step)| {
            Some((i128::from(step_of(step)?), i128::from(self.turns(dim, at))))
        });
        let mut loops: Vec<_> = picked.filter(|&(_, turns)| turns > 1).collect();
        loops.sort_unstable();
        for (step, turns) in loops {
            if step < length {
                return Err(LayoutError::Overlap);
            }
            length += (turns - 1) * step;
        }
        Ok(length)
    }

    /// Each dimension's digits with their steps.
    fn steps(&self) -> impl Iterator<Item = (usize, usize, Step)> + '_ {
        let of_axis = |(dim, axis): (usize, &(Axis, Indices))| {
            axis.0.steps.clone().into_iter().enumerate().map(move |(at, step)| (dim, at, step))
        };
        self.axes.iter().enumerate().flat_map(of_axis)
    }

    /// How many values digit `at` of dimension `dim` takes, at most.
    fn turns(&self, dim: usize, at: usize) -> u64 {
        let (axis, indices) = &self.axes[dim];
        let last = self.last_index(dim);
        let digit = axis.digits[at];
        let first = match indices {
            Indices::From(start) => *start,
            Indices::List(list) => list.iter().copied().min().unwrap_or(0),
        };
        let low = if digit.size == u64::MAX { first / digit.place } else { 0 };
        (last / digit.place).min(digit.size - 1) - low + 1
    }

    /// The greatest index of dimension `dim`; where there is none, the one from which it starts.
    fn last_index(&self, dim: usize) -> u64 {
        match &self.axes[dim].1 {
            Indices::From(start) => start.saturating_add(self.extents[dim].max(1) - 1),
            Indices::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }
}
