//! What the arrays of this group hold, entry by entry, at the addresses that CONTRACTS.md's
//! formula gives.
//!
//! Unlike [`crate::content`], which makes a whole array in the order in which it lies, this knows
//! structures with padding and mixed fields, and blocks; it works on memory only. It asks neither
//! the `layout` crate nor the kernels where anything lies.

use crate::Error;
use crate::content::value;
use model::{Component, FieldSpace, IndexSpace, Layout};

/// The most entries of a row.
const ROW_ENTRIES: usize = 16 << 10;

/// The entries of an instance: for each field, where they lie and which numbers they have.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    fields: Vec<FieldCells>,
    /// The instance's bytes, padding included.
    bytes: usize,
}

/// The entries of a field: nested loops, the slowest first.
#[derive(Debug, Clone)]
struct FieldCells {
    offset: usize,
    bytes: usize,
    number: u64,
    loops: Vec<Along>,
}

/// One component of the layout.
#[derive(Debug, Clone)]
struct Along {
    dim: usize,
    /// How many neighbours along the dimension are one step of this component.
    place: u64,
    /// What each position contributes to the number.
    numbers: Vec<u64>,
    /// How many bytes apart positions lie.
    step: usize,
}

/// An entry's number and place.
type Cell = (u64, usize);

impl Cells {
    /// The entries of `space` in `layout`, numbered in the order of the dimensions, fields
    /// innermost.
    ///
    /// # Errors
    /// Where a block cuts a dimension unevenly.
    pub(super) fn new(
        space: &IndexSpace,
        fields: &FieldSpace,
        layout: &Layout,
    ) -> Result<Self, Error> {
        let sizes: Vec<u64> = fields.fields().iter().map(|f| f.bytes).collect();
        let entry: u64 = sizes.iter().sum();
        let is_structure = layout.components()[0] == Component::Fields;
        let item = if is_structure { fields.item_bytes() } else { entry };
        let mut cells = Cells { fields: Vec::new(), bytes: 0 };
        for (number, (field, before)) in (0..).zip(fields.fields().iter().zip(sums(&sizes))) {
            let (mut product, mut step, mut offset) = (1u64, field.bytes, 0);
            let mut loops = Vec::new();
            for &component in layout.components() {
                if component == Component::Fields {
                    offset = if is_structure { field.offset } else { product * before };
                    step = item;
                    continue;
                }
                let along = along(space, layout, component, product * step)?;
                product *= along.numbers.len() as u64;
                loops.insert(0, along);
            }
            for along in &mut loops {
                let weight = weight(space, along.dim) * sizes.len() as u64 * along.place;
                along.numbers.iter_mut().for_each(|n| *n *= weight);
            }
            cells.bytes = usize_of(product * item);
            let (offset, bytes) = (usize_of(offset), usize_of(field.bytes));
            cells.fields.push(FieldCells { offset, bytes, number, loops });
        }
        Ok(cells)
    }

    /// The same places; what lies at position `i` of dimension `dim` is what lay at `list[i]`.
    ///
    /// # Panics
    /// Where the dimension is blocked.
    pub(super) fn renumbered(mut self, dim: usize, list: &[u64]) -> Self {
        for field in &mut self.fields {
            let along = field.loops.iter_mut().find(|a| a.dim == dim).expect("a dimension");
            assert_eq!(along.numbers.len(), list.len(), "a whole dimension");
            along.numbers = list.iter().map(|&i| along.numbers[i as usize]).collect();
        }
        self
    }

    /// Writes all entries into `memory`; what is padding stays as it is.
    ///
    /// # Panics
    /// Where `memory` is not as long as the instance.
    pub(super) fn fill(&self, memory: &mut [u8]) {
        assert_eq!(memory.len(), self.bytes);
        for field in &self.fields {
            field.rows(|base, row| {
                for &(number, at) in row {
                    let at = base.1 + at;
                    write(base.0 + number, &mut memory[at..at + field.bytes]);
                }
                true
            });
        }
    }

    /// Whether `memory` holds all entries, each byte of them.
    pub(super) fn are_in(&self, memory: &[u8]) -> bool {
        memory.len() == self.bytes && self.fields.iter().all(|field| field.is_in(memory))
    }
}

impl FieldCells {
    fn is_in(&self, memory: &[u8]) -> bool {
        match self.bytes {
            1 => self.rows(|base, row| holds::<1>(memory, base, row)),
            2 => self.rows(|base, row| holds::<2>(memory, base, row)),
            4 => self.rows(|base, row| holds::<4>(memory, base, row)),
            8 => self.rows(|base, row| holds::<8>(memory, base, row)),
            bytes => self.rows(|base, row| holds_any(memory, bytes, base, row)),
        }
    }

    /// Calls `each` with the rows' starts and the entries of a row, relative to that, until it
    /// says `false`; returns what it said last.
    fn rows(&self, mut each: impl FnMut(Cell, &[Cell]) -> bool) -> bool {
        let mut row = vec![(0, 0)];
        let mut outer = &self.loops[..];
        while let Some((next, rest)) = outer.split_last()
            && (row.len() == 1 || row.len() * next.numbers.len() <= ROW_ENTRIES)
        {
            row = next.cells().flat_map(|a| row.iter().map(move |b| sum(a, *b))).collect();
            outer = rest;
        }
        nest(outer, (self.number, self.offset), &mut |base| each(base, &row))
    }
}

impl Along {
    fn cells(&self) -> impl Iterator<Item = Cell> {
        self.numbers.iter().enumerate().map(|(i, &number)| (number, i * self.step))
    }
}

/// Calls `each` at every position of `loops`, until it says `false`.
fn nest(loops: &[Along], base: Cell, each: &mut dyn FnMut(Cell) -> bool) -> bool {
    match loops.split_first() {
        None => each(base),
        Some((first, rest)) => first.cells().all(|cell| nest(rest, sum(base, cell), each)),
    }
}

fn sum(a: Cell, b: Cell) -> Cell {
    (a.0 + b.0, a.1 + b.1)
}

/// A component of `layout`, its numbers still 0, 1, 2, …
fn along(
    space: &IndexSpace,
    layout: &Layout,
    component: Component,
    step: u64,
) -> Result<Along, Error> {
    let dim = component.dim().expect("not F");
    let extent = space.dims()[dim].extent();
    let below = |than: u8| {
        let sizes = layout.components().iter().filter_map(|c| match *c {
            Component::Inner { dim: d, level, size } if usize::from(d) == dim && level < than => {
                Some(size)
            }
            _ => None,
        });
        sizes.product::<u64>()
    };
    let (place, count) = match component {
        Component::Inner { level, size, .. } => (below(level), size),
        Component::Outer(_) => (below(u8::MAX), extent / below(u8::MAX)),
        Component::Whole(_) | Component::Fields => (1, extent),
    };
    if !extent.is_multiple_of(below(u8::MAX)) {
        return Err(Error::part("laying out cells")("a block cuts a dimension unevenly"));
    }
    Ok(Along { dim, place, numbers: (0..count).collect(), step: usize_of(step) })
}

/// How many entries one step along `dim` is, in the order of the dimensions.
fn weight(space: &IndexSpace, dim: usize) -> u64 {
    space.extents()[dim + 1..].iter().product()
}

/// The sum of what stands before each of `sizes`.
fn sums(sizes: &[u64]) -> impl Iterator<Item = u64> {
    sizes.iter().scan(0, |sum, size| {
        let before = *sum;
        *sum += size;
        Some(before)
    })
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("addresses have 64 bits here")
}

fn holds<const N: usize>(memory: &[u8], base: Cell, row: &[Cell]) -> bool {
    let wrong = |&(number, at): &Cell| {
        let expected: [u8; N] = word(base.0 + number, 0, N)[..N].try_into().expect("N bytes");
        memory[base.1 + at..][..N] != expected
    };
    !row.iter().any(wrong)
}

fn holds_any(memory: &[u8], bytes: usize, base: Cell, row: &[Cell]) -> bool {
    let mut expected = vec![0; bytes];
    row.iter().all(|&(number, at)| {
        write(base.0 + number, &mut expected);
        memory[base.1 + at..][..bytes] == expected
    })
}

fn write(number: u64, out: &mut [u8]) {
    let bytes = out.len();
    for (index, part) in (0..).zip(out.chunks_mut(8)) {
        part.copy_from_slice(&word(number, index, bytes)[..part.len()]);
    }
}

/// Eight bytes of the entry of this number. Where a peer takes entries of two bytes or more for
/// floating-point numbers, these are all normal: some quieten a NaN that they copy, or flush what
/// is too small.
fn word(number: u64, index: u64, bytes: usize) -> [u8; 8] {
    let bits = u64::from_le_bytes(value(number, index));
    let (cleared, set) = match bytes {
        1 => (0, 0),
        2 | 3 => (0x4000_4000_4000_4000, 0x2000_2000_2000_2000),
        _ => (0x4000_0000_4000_0000, 0x2000_0000_2000_0000),
    };
    (bits & !cleared | set).to_le_bytes()
}
