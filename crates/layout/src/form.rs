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
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PartForm {
    layout: Layout,
    dims: Vec<DimForm>,
    /// Offset and size of each.
    fields: Vec<(i64, u64)>,
}

/// One dimension.
#[derive(Debug, Serialize, Deserialize)]
struct DimForm {
    indices: IndicesForm,
    /// Place and step of each, innermost first.
    digits: Vec<(u64, i64, i64)>,
}

/// The indices of one dimension.
#[derive(Debug, Serialize, Deserialize)]
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
            // Another node does not say which bytes it doesn't need.
            padding: vec![0; fields.len()],
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

    /// How it counts: by places of its layout, the first among them; of neighbours that step as one
    /// the upper is left out.
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
        // Steps of a layout are of one kind, and none lets entries meet; any others are strides,
        // and where there is no entry, none meet.
        let is_blocked = |(_, at, step): (usize, usize, Step)| at > 0 || step.scaled != 0;
        if self.extents.contains(&0) || !self.steps().any(is_blocked) {
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

    /// How many values digit `at` of dimension `dim` takes, at most, from 0 on: where the instance
    /// starts, and not the box, is where its blocks of the fields do.
    fn turns(&self, dim: usize, at: usize) -> u64 {
        let digit = self.axes[dim].0.digits[at];
        (self.last_index(dim) / digit.place).min(digit.size - 1) + 1
    }

    /// The greatest index of dimension `dim`; where there is none, where it would start.
    fn last_index(&self, dim: usize) -> u64 {
        match &self.axes[dim].1 {
            Indices::From(start) => start.saturating_add(self.extents[dim].max(1) - 1),
            Indices::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Component;
    use proptest::prelude::*;

    /// Digits as place, fixed and scaled step.
    type Digits = Vec<(u64, i64, i64)>;

    fn form(
        components: Vec<Component>,
        dims: Vec<(IndicesForm, Digits)>,
        fields: &[(i64, u64)],
    ) -> PartForm {
        let layout = Layout::new(components, dims.len()).unwrap();
        let dims = dims.into_iter().map(|(indices, digits)| DimForm { indices, digits });
        PartForm { layout, dims: dims.collect(), fields: fields.to_vec() }
    }

    /// `<F, x>`, `extent` entries of 4 bytes from `start` on.
    fn row(start: u64, extent: u64, stride: i64) -> PartForm {
        let indices = IndicesForm::From { start, extent };
        let dims = vec![(indices, vec![(1, stride, 0)])];
        form(vec![Component::Fields, Component::Whole(0)], dims, &[(0, 4)])
    }

    /// `<x_in=4, F, x_out>`, or what these digits make of it.
    fn blocks(extent: u64, digits: Digits, fields: &[(i64, u64)]) -> PartForm {
        let inner = Component::Inner { dim: 0, level: 1, size: 4 };
        let indices = IndicesForm::From { start: 0, extent };
        let dims = vec![(indices, digits)];
        form(vec![inner, Component::Fields, Component::Outer(0)], dims, fields)
    }

    #[test]
    fn addresses_stay_in_reach() {
        let part = |form: PartForm| Part::try_from(form);
        assert_eq!(part(row(2, 3, 4)).unwrap().span(), 8..20);
        assert_eq!(part(row(0, 3, -4)).unwrap().span(), -8..4);
        let too_large = Err(LayoutError::TooLarge);
        for (start, extent, stride) in [
            (0, 1 << 62, 0),
            (1 << 62, 1, 1),
            (u64::MAX, u64::MAX, 1),
            (0, 2, i64::MIN),
            (0, 1 << 40, 1 << 40),
        ] {
            assert_eq!(part(row(start, extent, stride)), too_large, "{start} {extent} {stride}");
        }
        // One entry takes no step: arrays of one row have any stride.
        assert!(part(row(0, 1, i64::MAX)).is_ok());
        let far = PartForm { fields: vec![(i64::MIN, 4)], ..row(0, 1, 4) };
        assert_eq!(part(far), too_large);
        let long = PartForm { fields: vec![(0, u64::MAX), (0, u64::MAX)], ..row(0, 1, 4) };
        assert_eq!(part(long), too_large);
    }

    #[test]
    fn fields_lie_apart() {
        let of = |fields: &[(i64, u64)]| {
            Part::try_from(PartForm { fields: fields.to_vec(), ..row(0, 2, 16) }).map(|_| ())
        };
        assert_eq!(of(&[(8, 4), (0, 8)]), Ok(()));
        assert_eq!(of(&[(0, 4), (3, 4)]), Err(LayoutError::Overlap));
        assert_eq!(of(&[(0, 4), (4, 0)]), Err(LayoutError::Field { field: 1 }));
        assert_eq!(of(&[]), Err(LayoutError::Field { field: 0 }));
    }

    #[test]
    fn blocks_lie_apart() {
        let of = |digits: &[(u64, i64, i64)], fields: &[(i64, u64)]| {
            Part::try_from(blocks(10, digits.to_vec(), fields)).map(|_| ())
        };
        let two: &[(i64, u64)] = &[(0, 4), (16, 2)];
        assert_eq!(of(&[(1, 0, 1), (4, 24, 0)], two), Ok(()));
        assert_eq!(of(&[(1, 0, 1), (4, 23, 0)], two), Err(LayoutError::Overlap));
        assert_eq!(of(&[(1, 0, 1), (4, -24, 0)], two), Err(LayoutError::Overlap));
        assert_eq!(of(&[(1, 0, 1), (4, 24, 0)], &[(0, 4), (15, 2)]), Err(LayoutError::Overlap));
        let digits = Err(LayoutError::Digits { dim: 0 });
        assert_eq!(of(&[(1, 2, 1), (4, 24, 0)], two), digits);
        assert_eq!(of(&[(1, 0, 1), (3, 24, 0)], two), digits);
        assert_eq!(of(&[(4, 0, 1), (1, 24, 0)], two), digits);
        assert_eq!(of(&[(1, 0, 1), (4, 24, 0), (4, 24, 0)], two), digits);
        assert_eq!(of(&[], two), digits);
    }

    #[test]
    fn a_list_that_counts_up_is_a_range() {
        let listed = |list: Vec<u64>| {
            let dims = vec![(IndicesForm::List(list.into()), vec![(1, 4, 0)])];
            form(vec![Component::Fields, Component::Whole(0)], dims, &[(0, 4)])
        };
        let part = |list| Part::try_from(listed(list)).unwrap();
        assert_eq!(part(vec![2, 3, 4]), Part::try_from(row(2, 3, 4)).unwrap());
        assert!(part(vec![3, 2]).has_lists());
        assert_eq!(part(vec![]).payload_bytes(), 0);
        assert_eq!(Part::try_from(listed(vec![0, u64::MAX])), Err(LayoutError::TooLarge));
    }

    fn small_form() -> impl Strategy<Value = PartForm> {
        let step = || prop_oneof![3 => 0..40i64, 1 => -8..8i64];
        let fields = prop::collection::vec((0..12i64, 0..5u64), 1..3);
        let dim = (0..6u64, 0..9u64, [step(), step()], any::<[bool; 2]>());
        (dim.clone(), dim, fields).prop_map(|(x, y, fields)| {
            let digits = |steps: [i64; 2], scaled: [bool; 2], places: &[u64]| {
                let digit = |(at, &place): (usize, &u64)| {
                    let step = steps[at];
                    if scaled[at] { (place, 0, step % 4) } else { (place, step, 0) }
                };
                places.iter().enumerate().map(digit).collect()
            };
            let from = |start, extent| IndicesForm::From { start, extent };
            let inner = Component::Inner { dim: 0, level: 1, size: 3 };
            let (outer, whole) = (Component::Outer(0), Component::Whole(1));
            form(
                vec![inner, Component::Fields, whole, outer],
                vec![
                    (from(x.0, x.1), digits(x.2, x.3, &[1, 3])),
                    (from(y.0, y.1), digits(y.2, y.3, &[1])),
                ],
                &fields,
            )
        })
    }

    /// The bytes of every value.
    fn spans(part: &Part) -> Vec<(i64, i64)> {
        let mut spans = Vec::new();
        let first = |dim| match part.indices(dim) {
            Indices::From(start) => *start,
            Indices::List(_) => unreachable!("none is drawn"),
        };
        for x in 0..part.extents[0] {
            for y in 0..part.extents[1] {
                let steps = [part.axis(0).at(first(0) + x), part.axis(1).at(first(1) + y)];
                for (offset, &bytes) in part.offsets.iter().zip(&part.field_bytes) {
                    let way = |s: &Step| s.fixed + s.scaled * bytes as i64;
                    let start = offset + steps.iter().map(way).sum::<i64>();
                    spans.push((start, start + bytes as i64));
                }
            }
        }
        spans.sort_unstable();
        spans
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_byte_of_a_blocked_part_is_two_values(form in small_form()) {
            if let Ok(part) = Part::try_from(form) {
                let spans = spans(&part);
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
                let hull = spans.first().map_or(0, |s| s.0)..spans.last().map_or(0, |s| s.1);
                prop_assert_eq!(part.span(), hull);
            }
        }
    }
}
