//! Where an instance keeps its entries (CONTRACTS.md, "Addresses").

use crate::digits::{Digit, digits_of};
use crate::part::Part;
use crate::{LayoutError, Sizes};
use model::{Component, Field, FieldSpace, IndexSpace, Layout, Selection};
use std::ops::Range;

/// How far one more of a digit moves: `fixed` bytes for every field, and `scaled` times the size
/// of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Step {
    pub(crate) fixed: i64,
    pub(crate) scaled: i64,
}

/// The digits of one dimension, innermost first, and their steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Axis {
    pub(crate) digits: Vec<Digit>,
    pub(crate) steps: Vec<Step>,
}

impl Axis {
    /// What `index`, counted from the lower bound, adds to the address.
    pub(crate) fn at(&self, index: u64) -> Step {
        let mut sum = Step::default();
        for (digit, step) in self.digits.iter().zip(&self.steps) {
            let value = digit.of(index) as i64;
            sum.fixed += value * step.fixed;
            sum.scaled += value * step.scaled;
        }
        sum
    }

    /// Joins neighbouring digits that step as one.
    fn fuse(mut self) -> Self {
        let mut j = 1;
        while j < self.digits.len() {
            let (below, here) = (self.digits[j - 1], self.digits[j]);
            if steps_on(self.steps[j - 1], below.size, self.steps[j]) {
                self.digits[j - 1].size = below.size.saturating_mul(here.size);
                self.digits.remove(j);
                self.steps.remove(j);
            } else {
                j += 1;
            }
        }
        self
    }
}

/// Whether `size` steps of `below` make one of `here`.
fn steps_on(below: Step, size: u64, here: Step) -> bool {
    let times = |step: i64| i64::try_from(size).ok().and_then(|s| step.checked_mul(s));
    times(below.fixed) == Some(here.fixed) && times(below.scaled) == Some(here.scaled)
}

/// Maps each (index, field) of an instance to a byte relative to the instance's base.
///
/// `address(i, f)` is the offset of the field, plus for each dimension the digits of
/// `i - lower bound` times their steps. A layout gives digits and steps by CONTRACTS.md's formula;
/// a wrapped array has one digit in each dimension, and any step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placement {
    los: Vec<i64>,
    extents: Vec<u64>,
    axes: Vec<Axis>,
    offsets: Vec<i64>,
    field_bytes: Vec<u64>,
    /// The bytes behind each field that are the instance's, and no field's.
    padding: Vec<u64>,
    layout: Layout,
    span: Range<i64>,
}

impl Placement {
    /// The placement of an instance that is stored in `layout`, from its base upwards, padded at
    /// the end of a dimension whose extent isn't a multiple of its blocks.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where `layout` is for another number of dimensions;
    /// [`LayoutError::TooLarge`] where the instance with its padding passes 63 bits.
    pub fn of_layout(
        layout: &Layout,
        space: &IndexSpace,
        fields: &FieldSpace,
    ) -> Result<Self, LayoutError> {
        let rank = layout.components().iter().filter_map(|c| c.dim()).max().map_or(0, |d| d + 1);
        check_rank(space, rank)?;
        let sizes = Sizes::of(space, fields);
        let is_structure = layout.components()[0] == Component::Fields;
        let entry_bytes = if is_structure { fields.item_bytes() } else { fields.payload_bytes() };
        let mut axes: Vec<Axis> = (0..rank).map(|dim| axis_of(layout, dim)).collect();
        let mut product = 1i64;
        let mut before_fields = None;
        for &component in layout.components() {
            let step = match before_fields {
                None => Step { fixed: 0, scaled: product },
                Some(_) => Step { fixed: mul(product, entry_bytes)?, scaled: 0 },
            };
            match component {
                Component::Fields => before_fields = Some(product),
                _ => set_step(&mut axes, component, step),
            }
            let size = if component == Component::Fields {
                1
            } else {
                sizes.of_component(layout, component)
            };
            product = mul(product, size.max(1))?;
        }
        let total = mul(product, entry_bytes)?;
        let block = before_fields.unwrap_or(1);
        Ok(Placement {
            los: space.dims().iter().map(|d| d.lo).collect(),
            extents: space.extents(),
            axes: axes.into_iter().map(Axis::fuse).collect(),
            offsets: field_offsets(fields, block, is_structure),
            field_bytes: fields.fields().iter().map(|f| f.bytes).collect(),
            padding: match is_structure {
                true => fields.fields().iter().map(|field| padding_behind(field, fields)).collect(),
                false => vec![0; fields.fields().len()],
            },
            layout: layout.clone(),
            span: 0..if space.entries() == 0 { 0 } else { total },
        })
    }

    /// The placement of a wrapped array: `strides` are bytes, one for each dimension of `space`,
    /// of any sign; the fields lie at their own offsets in each entry, and what is between them may be somebody
    /// else's. The base is the address of the entry with the lowest indices.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] for a wrong number of strides; [`LayoutError::TooLarge`] where an
    /// address passes 63 bits.
    pub fn of_strides(
        space: &IndexSpace,
        fields: &FieldSpace,
        strides: &[i64],
    ) -> Result<Self, LayoutError> {
        check_rank(space, strides.len())?;
        let axis = |&fixed: &i64| Axis {
            digits: vec![Digit::WHOLE],
            steps: vec![Step { fixed, scaled: 0 }],
        };
        Ok(Placement {
            los: space.dims().iter().map(|d| d.lo).collect(),
            extents: space.extents(),
            axes: strides.iter().map(axis).collect(),
            offsets: field_offsets(fields, 1, true),
            field_bytes: fields.fields().iter().map(|f| f.bytes).collect(),
            padding: vec![0; fields.fields().len()],
            layout: nearest_layout(strides),
            span: span_of_strides(space, strides, fields.item_bytes())?,
        })
    }

    /// The address of `field` at `index` (absolute indices), relative to the base.
    ///
    /// # Panics
    /// If `index` has too few dimensions or `field` doesn't exist; an index outside the space gives
    /// an address outside the span.
    #[must_use]
    pub fn address(&self, index: &[i64], field: usize) -> i64 {
        let size = self.field_bytes[field] as i64;
        let mut address = self.offsets[field];
        for (d, axis) in self.axes.iter().enumerate() {
            let step = axis.at(index[d].wrapping_sub(self.los[d]) as u64);
            address += step.fixed + step.scaled * size;
        }
        address
    }

    /// The bytes that the instance takes, padding included, relative to its base. They start
    /// below 0 where a stride is negative; there are none where a dimension is empty.
    #[must_use]
    pub fn span(&self) -> Range<i64> {
        self.span.clone()
    }

    /// The layout vector that it has. For strides it is the nearest one: fields innermost, then
    /// the dimensions by the size of their strides.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The sizes of the fields, in the field space's order.
    #[must_use]
    pub fn field_bytes(&self) -> &[u64] {
        &self.field_bytes
    }

    /// The extents of the whole instance.
    #[must_use]
    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// The part of the instance that lies in the box `selection`, with `fields` in this order.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::Bounds`] for a box of another index space;
    /// [`LayoutError::Field`] for a field that doesn't exist or is named twice, or for none.
    pub fn select(&self, selection: &Selection, fields: &[usize]) -> Result<Part, LayoutError> {
        Part::new(self, selection, fields)
    }

    pub(crate) fn lo(&self, dim: usize) -> i64 {
        self.los[dim]
    }

    pub(crate) fn axis(&self, dim: usize) -> &Axis {
        &self.axes[dim]
    }

    pub(crate) fn offset(&self, field: usize) -> i64 {
        self.offsets[field]
    }

    pub(crate) fn padding(&self, field: usize) -> u64 {
        self.padding[field]
    }
}

fn check_rank(space: &IndexSpace, rank: usize) -> Result<(), LayoutError> {
    if space.rank() == rank {
        return Ok(());
    }
    Err(LayoutError::Rank { expected: space.rank(), got: rank })
}

fn mul(a: i64, b: u64) -> Result<i64, LayoutError> {
    i64::try_from(b).ok().and_then(|b| a.checked_mul(b)).ok_or(LayoutError::TooLarge)
}

/// The digits of dimension `dim` in `layout`, their steps not yet known.
fn axis_of(layout: &Layout, dim: usize) -> Axis {
    let digits = digits_of(layout.blocks(dim));
    Axis { steps: vec![Step::default(); digits.len()], digits }
}

fn set_step(axes: &mut [Axis], component: Component, step: Step) {
    let Some(dim) = component.dim() else { return };
    let levels = axes[dim].steps.len();
    let level = match component {
        Component::Inner { level, .. } => usize::from(level) - 1,
        _ => levels - 1,
    };
    axes[dim].steps[level] = step;
}

/// A structure's own offsets, or `block` entries of each field behind `block` of the one before.
fn field_offsets(fields: &FieldSpace, block: i64, is_structure: bool) -> Vec<i64> {
    let mut packed = 0;
    let mut offsets = Vec::with_capacity(fields.fields().len());
    for field in fields.fields() {
        offsets.push(if is_structure { field.offset as i64 } else { block * packed });
        packed += field.bytes as i64;
    }
    offsets
}

/// The bytes of a structure between `field` and what comes next, or its end.
fn padding_behind(field: &Field, fields: &FieldSpace) -> u64 {
    let end = field.offset + field.bytes;
    let behind = fields.fields().iter().map(|other| other.offset).filter(|&offset| offset >= end);
    behind.min().unwrap_or(fields.item_bytes()) - end
}

/// Fields innermost, then the dimensions by the size of their strides; ties as in C order.
fn nearest_layout(strides: &[i64]) -> Layout {
    let mut dims: Vec<usize> = (0..strides.len()).rev().collect();
    dims.sort_by_key(|&d| strides[d].unsigned_abs());
    let whole = |d| Component::Whole(u8::try_from(d).unwrap_or(u8::MAX));
    let components = std::iter::once(Component::Fields).chain(dims.into_iter().map(whole));
    Layout::new(components, strides.len()).unwrap_or_else(|_| Layout::row_major(strides.len()))
}

fn span_of_strides(
    space: &IndexSpace,
    strides: &[i64],
    item_bytes: u64,
) -> Result<Range<i64>, LayoutError> {
    if space.entries() == 0 {
        return Ok(0..0);
    }
    let mut span = 0..i64::try_from(item_bytes).map_err(|_| LayoutError::TooLarge)?;
    for (dim, &stride) in space.dims().iter().zip(strides) {
        let reach = mul(stride, dim.extent() - 1)?;
        let end = if reach < 0 { &mut span.start } else { &mut span.end };
        *end = end.checked_add(reach).ok_or(LayoutError::TooLarge)?;
    }
    span.end.checked_sub(span.start).ok_or(LayoutError::TooLarge)?;
    Ok(span)
}
