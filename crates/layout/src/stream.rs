//! The payload of a box as a stream (DESIGN.md, decision 2).

use crate::LayoutError;
use crate::digits::Digit;
use crate::lattice::{Lattice, lattices};
use crate::order::{Order, Turn, Walk};
use model::Layout;
use std::ops::Range;

/// Field values up to this size are never cut.
const WHOLE_FIELD_BYTES: u64 = 4096;

/// The payload of a box in the linear order of a layout, and nothing else: no padding, and splits
/// of a dimension are ragged where they don't divide it. Positions are bytes from 0.
///
/// A component of the layout that is slower comes later; within one block of `x_in=c` at the edge
/// of the box only the indices inside the box exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream {
    order: Order,
    fused: Order,
}

/// A set of entries, with some of their fields or with some bytes of one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// For each dimension the box-relative indices.
    pub dims: Vec<Lattice>,
    /// The fields, by position in the copy's order.
    pub fields: Range<usize>,
    /// Bytes of the field's value, where there is one field and the cell holds a part of it only.
    pub bytes: Option<Range<u64>>,
}

impl Stream {
    /// The stream of a box of `extents` in the order of `layout`, with fields of `field_bytes` in
    /// the copy's order. `phase` says for each dimension where the box starts in the outermost
    /// block: blocks end where `index + phase` is a multiple of the block.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the numbers of dimensions differ; [`LayoutError::Field`] for no
    /// field or one of size 0; [`LayoutError::TooLarge`] where the stream, or a phase with its
    /// extent, passes 63 bits.
    pub fn new(
        layout: &Layout,
        extents: &[u64],
        phase: &[u64],
        field_bytes: &[u64],
    ) -> Result<Self, LayoutError> {
        let expected =
            layout.components().iter().filter_map(|c| c.dim()).max().map_or(0, |d| d + 1);
        for got in [extents.len(), phase.len()] {
            if got != expected {
                return Err(LayoutError::Rank { expected, got });
            }
        }
        if field_bytes.is_empty() || field_bytes.contains(&0) {
            let field = field_bytes.iter().position(|&b| b == 0).unwrap_or(0);
            return Err(LayoutError::Field { field });
        }
        let order = Order::new(layout, extents, phase, field_bytes)?;
        Ok(Stream { fused: order.clone().fused(), order })
    }

    /// The length of the stream.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.order.bytes()
    }

    /// The extents of the box.
    #[must_use]
    pub fn extents(&self) -> Vec<u64> {
        self.order.indices.iter().map(|r| r.end - r.start).collect()
    }

    /// The number of fields.
    #[must_use]
    pub fn field_count(&self) -> usize {
        self.order.field_count()
    }

    /// The stream position of byte 0 of `field` at the box-relative `index`.
    ///
    /// # Panics
    /// If `index` has too few dimensions or `field` doesn't exist.
    #[must_use]
    pub fn position(&self, index: &[u64], field: usize) -> u64 {
        let rank = self.fused.rank_of(index, &mut Walk::new(&self.fused));
        rank.blocks * self.fused.entry_bytes()
            + rank.block_entries * self.fused.before(field)
            + rank.behind * self.fused.field_bytes(field)
    }

    /// The end of a good chunk that starts at `from` and holds about `want` bytes at most: as many
    /// whole iterations of the slowest component as fit, or else an even share of one. It lies
    /// after `from`, at the end of the stream at the latest, and cuts no field value of up to 4 KiB.
    ///
    /// # Panics
    /// If `from` isn't inside the stream.
    #[must_use]
    pub fn cut(&self, from: u64, want: u64) -> u64 {
        assert!(from < self.bytes(), "a chunk starts inside the stream");
        let mut cutter = Cutter { walk: Walk::new(&self.order), start: 0, want: want.max(1) };
        for &turn in self.order.turns().iter().rev() {
            let end = cutter.start + cutter.walk.bytes();
            if end - from <= cutter.want {
                return end;
            }
            cutter.share_evenly();
            if let Some(end) = cutter.step(turn, from) {
                return end;
            }
        }
        cutter.cut_field(from)
    }

    /// The iteration of the components from `components_below` on that contains `position`: the
    /// range of the stream over which all of these stand still, while the faster ones run.
    ///
    /// # Panics
    /// If `position` isn't inside the stream.
    #[must_use]
    pub fn granule_at(&self, components_below: usize, position: u64) -> Range<u64> {
        assert!(position < self.bytes(), "a position lies inside the stream");
        let mut cutter = Cutter { walk: Walk::new(&self.order), start: 0, want: 0 };
        for &turn in self.order.turns().iter().skip(components_below).rev() {
            cutter.enter(turn, position);
        }
        cutter.start..cutter.start + cutter.walk.bytes()
    }

    /// Cells that tile `range`, in ascending order of their first positions. A cell's positions
    /// are those of its entries, in the order of the stream; together they are contiguous.
    ///
    /// # Panics
    /// If `range` reaches past the stream.
    #[must_use]
    pub fn cells(&self, range: Range<u64>) -> Vec<Cell> {
        assert!(range.end <= self.bytes(), "a range lies inside the stream");
        let mut tiler = Tiler { walk: Walk::new(&self.order), cells: Vec::new() };
        tiler.tile(self.order.turns().len(), range);
        tiler.cells
    }

    pub(crate) fn component_count(&self) -> usize {
        self.order.turns().len()
    }

    /// The digits of `dim` as the layout has them, and what is added to an index before it is taken
    /// apart.
    pub(crate) fn digits_of(&self, dim: usize) -> (&[Digit], u64) {
        (self.order.digits_of(dim), self.order.indices[dim].start)
    }

    pub(crate) fn fused(&self) -> &Order {
        &self.fused
    }
}

/// A walk down the components towards a position.
struct Cutter<'a> {
    walk: Walk<'a>,
    /// The position of the first byte of what remains.
    start: u64,
    want: u64,
}

impl Cutter<'_> {
    /// Lowers `want` so that chunks of what remains are about equally long.
    fn share_evenly(&mut self) {
        let bytes = self.walk.bytes();
        self.want = bytes.div_ceil(bytes.div_ceil(self.want));
    }

    /// Cuts at an iteration of `turn` if one ends in time; else goes into the one with `from`.
    fn step(&mut self, turn: Turn, from: u64) -> Option<u64> {
        let (outer, start) = (self.walk.clone(), self.start);
        self.enter(turn, from);
        let end = self.start + self.walk.bytes();
        if self.start == from && end - from <= self.want {
            let bytes = self.walk.bytes();
            let inner_start = self.start;
            self.walk = outer;
            self.start = start;
            return Some(self.last_end(turn, inner_start, bytes));
        }
        (self.start < from && end - from <= self.want).then_some(end)
    }

    /// The end of the last iteration of `turn` that ends within `want` of `from`, where an
    /// iteration of `bytes` starts.
    fn last_end(&mut self, turn: Turn, from: u64, bytes: u64) -> u64 {
        let limit = from + self.want;
        let (walk, start) = (self.walk.clone(), self.start);
        self.enter(turn, limit.min(start + walk.bytes() - 1));
        let last = self.start;
        if last > from { last } else { from + bytes }
    }

    /// Goes into the iteration of `turn` that holds `position`.
    fn enter(&mut self, turn: Turn, position: u64) {
        let offset = position - self.start;
        match turn {
            Turn::Digit(digit) => {
                let value = self.walk.value_at(digit, offset / self.walk.bytes_per_index(digit));
                self.start +=
                    self.walk.indices_below(digit, value) * self.walk.bytes_per_index(digit);
                self.walk.restrict(digit, value..value + 1);
            }
            Turn::Fields => {
                let field = field_at(&self.walk, offset);
                self.start += field_start(&self.walk, field);
                self.walk.fields = field..field + 1;
            }
        }
    }

    /// Cuts inside one value of one field.
    fn cut_field(&self, from: u64) -> u64 {
        let end = self.start + self.walk.bytes();
        if self.walk.bytes() <= WHOLE_FIELD_BYTES { end } else { end.min(from + self.want) }
    }
}

/// The field whose block of what remains holds the byte at `offset`.
fn field_at(walk: &Walk, offset: u64) -> usize {
    let starts =
        (walk.fields.start + 1..walk.fields.end).take_while(|&f| field_start(walk, f) <= offset);
    starts.last().unwrap_or(walk.fields.start)
}

/// Where the block of `field` starts in what remains.
fn field_start(walk: &Walk, field: usize) -> u64 {
    (walk.order.before(field) - walk.order.before(walk.fields.start)) * walk.entries()
}

/// Tiles a range of a stream with cells.
struct Tiler<'a> {
    walk: Walk<'a>,
    cells: Vec<Cell>,
}

impl Tiler<'_> {
    /// Tiles `range`, counted from the start of what remains with `left` components to go.
    fn tile(&mut self, left: usize, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if range == (0..self.walk.bytes()) {
            self.emit(None);
        } else if left == 0 {
            self.emit(Some(range));
        } else {
            match self.walk.order.turns()[left - 1] {
                Turn::Digit(digit) => self.tile_digit(left - 1, digit, range),
                Turn::Fields => self.tile_fields(left - 1, range),
            }
        }
    }

    fn tile_digit(&mut self, left: usize, digit: usize, range: Range<u64>) {
        let values = self.walk.ranges[digit].clone();
        let each = self.walk.bytes_per_index(digit);
        let mut first = self.walk.value_at(digit, range.start / each);
        let last = self.walk.value_at(digit, (range.end - 1) / each);
        let mut start_of = |value| self.walk.indices_below(digit, value) * each;
        let (first_start, last_start, last_end) =
            (start_of(first), start_of(last), start_of(last + 1));
        let first_end = start_of(first + 1);
        if range.start > first_start || (first == last && range.end < last_end) {
            let end = range.end.min(first_end);
            self.inside(left, digit, first, range.start - first_start..end - first_start);
            first += 1;
        }
        let whole_end = if range.end == last_end { last + 1 } else { last };
        if first < whole_end {
            self.walk.restrict(digit, first..whole_end);
            self.emit(None);
            self.walk.restrict(digit, values.clone());
        }
        if first <= last && range.end < last_end {
            self.inside(left, digit, last, 0..range.end - last_start);
        }
    }

    /// Tiles `range` of the iteration in which `digit` is `value`.
    fn inside(&mut self, left: usize, digit: usize, value: u64, range: Range<u64>) {
        let values = self.walk.ranges[digit].clone();
        self.walk.restrict(digit, value..value + 1);
        self.tile(left, range);
        self.walk.restrict(digit, values);
    }

    fn tile_fields(&mut self, left: usize, range: Range<u64>) {
        let fields = self.walk.fields.clone();
        let starts: Vec<u64> =
            (fields.start..=fields.end).map(|f| field_start(&self.walk, f)).collect();
        let covered = |i: usize| range.start <= starts[i] && starts[i + 1] <= range.end;
        let mut i = 0;
        while i < fields.len() {
            let run = (i..fields.len()).take_while(|&j| covered(j)).count();
            let end = i + run.max(1);
            let inner = range.start.max(starts[i])..range.end.min(starts[end]);
            self.walk.fields = fields.start + i..fields.start + end;
            if !inner.is_empty() {
                self.tile(left, inner.start - starts[i]..inner.end - starts[i]);
            }
            self.walk.fields = fields.clone();
            i = end;
        }
    }

    /// Emits what remains, or `bytes` of its one field value.
    fn emit(&mut self, bytes: Option<Range<u64>>) {
        let order = self.walk.order;
        let mut boxes: Vec<Vec<Lattice>> = vec![Vec::with_capacity(order.rank())];
        for dim in 0..order.rank() {
            let choices =
                lattices(order.digits_of(dim), self.walk.ranges_of(dim), &order.indices[dim]);
            boxes = cross(boxes, choices);
        }
        let fields = self.walk.fields.clone();
        let cell = |dims| Cell { dims, fields: fields.clone(), bytes: bytes.clone() };
        self.cells.extend(boxes.into_iter().map(cell));
    }
}

/// Every box extended by every choice for the next dimension.
pub(crate) fn cross(mut boxes: Vec<Vec<Lattice>>, choices: Vec<Lattice>) -> Vec<Vec<Lattice>> {
    if let ([one], [only]) = (&mut boxes[..], &choices[..]) {
        one.push(only.clone());
        return boxes;
    }
    let extended = |b: &Vec<Lattice>, c: &Lattice| {
        let mut longer = b.clone();
        longer.push(c.clone());
        longer
    };
    boxes.iter().flat_map(|b| choices.iter().map(move |c| extended(b, c))).collect()
}
