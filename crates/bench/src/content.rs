//! What the arrays of benchmarks hold.
//!
//! **Hazard.** A check that looks at a sample, or that asks the code under test where an entry
//! lies, lets errors pass. **Guarantee.** Every byte of an array is compared with one that follows
//! from its entry's number alone, the source is not needed. **Structure.** [`Numbers`] number the
//! entries and fields of a box; [`Content`] lays the numbers out as a layout says, by loops of its
//! own (CONTRACTS.md, "Addresses"), and gives the bytes in the order of the memory or the file.

use crate::Error;
use crate::settings::Stop;
use isometry::Array;
use model::{Component, Layout};
use std::io::{self, Read, Write};

/// The most entries that are laid out at once, unless one dimension alone has more.
const ROW_ENTRIES: usize = 64 << 10;

/// The number of each entry and field: the sum over dimensions of what a position contributes,
/// and the field's own.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// For each dimension, what each of its positions contributes.
    pub(crate) dims: Vec<Vec<u64>>,
    fields: Vec<u64>,
    field_bytes: usize,
}

impl Numbers {
    /// Numbers the entries of `array` in the order of its dimensions, fields innermost.
    ///
    /// # Errors
    /// Where fields differ in length or have padding: no benchmark needs those.
    pub(crate) fn of(array: &Array) -> Result<Self, Error> {
        let fields = array.fields.fields();
        let bytes = fields[0].bytes;
        let packed = fields.iter().zip(0..).all(|(f, i)| f.bytes == bytes && f.offset == i * bytes);
        if !packed || array.fields.item_bytes() != bytes * fields.len() as u64 {
            return Err(unfit("fields that are not packed and equally long"));
        }
        let mut weight = fields.len() as u64;
        let mut dims: Vec<Vec<u64>> = Vec::new();
        for dim in array.space.dims().iter().rev() {
            let extent = dim.hi.abs_diff(dim.lo);
            dims.push((0..extent).map(|i| i * weight).collect());
            weight *= extent;
        }
        dims.reverse();
        let field_bytes = usize::try_from(bytes).map_err(Error::part("a field's length"))?;
        Ok(Numbers { dims, fields: (0..fields.len() as u64).collect(), field_bytes })
    }

    /// The content of an instance of these entries in `layout`.
    ///
    /// # Errors
    /// Where the layout has blocks: they may have padding, which nothing says the value of.
    pub(crate) fn laid_out(&self, layout: &Layout) -> Result<Content, Error> {
        let along = |component: &Component| match component {
            Component::Fields => Ok(self.fields.clone()),
            Component::Whole(dim) => Ok(self.dims[usize::from(*dim)].clone()),
            Component::Inner { .. } | Component::Outer(_) => Err(unfit("a layout with blocks")),
        };
        let loops: Result<Vec<_>, Error> = layout.components().iter().rev().map(along).collect();
        Ok(Content::new(loops?, self.field_bytes))
    }
}

fn unfit(what: &'static str) -> Error {
    Error::Part { doing: "laying out the content of a benchmark's array", why: what.to_owned() }
}

/// The bytes of an array in the order in which they lie, made row by row.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// Loops around a row, the slowest first, and where they stand.
    outer: Vec<Vec<u64>>,
    at: Vec<usize>,
    rows_left: usize,
    /// The numbers of a row's entries, less what the loops around it contribute.
    row: Vec<u64>,
    entry_bytes: usize,
}

impl Content {
    /// The content of an array, its numbers in the order of its own layout.
    pub(crate) fn of(array: &Array) -> Result<Self, Error> {
        Numbers::of(array)?.laid_out(&array.layout)
    }

    fn new(mut loops: Vec<Vec<u64>>, entry_bytes: usize) -> Self {
        let mut row = vec![0];
        let fits = |inner: &[u64], next: &Vec<u64>| {
            inner.len() == 1 || inner.len() * next.len() <= ROW_ENTRIES
        };
        while let Some(next) = loops.pop_if(|next| fits(&row, next)) {
            row = next.iter().flat_map(|a| row.iter().map(move |b| a + b)).collect();
        }
        let rows_left = loops.iter().map(Vec::len).product();
        Content { at: vec![0; loops.len()], outer: loops, rows_left, row, entry_bytes }
    }

    /// The bytes of a row.
    fn row_bytes(&self) -> usize {
        self.row.len() * self.entry_bytes
    }

    /// Makes the next row; `false` where there is none.
    fn next_row(&mut self, out: &mut [u8]) -> bool {
        if self.rows_left == 0 {
            return false;
        }
        self.rows_left -= 1;
        let base = self.outer.iter().zip(&self.at).map(|(along, &at)| along[at]).sum();
        match self.entry_bytes {
            1 => fill::<1>(out, base, &self.row),
            2 => fill::<2>(out, base, &self.row),
            4 => fill::<4>(out, base, &self.row),
            8 => fill::<8>(out, base, &self.row),
            bytes => fill_any(out, bytes, base, &self.row),
        }
        self.step();
        true
    }

    fn step(&mut self) {
        for (at, along) in self.at.iter_mut().zip(&self.outer).rev() {
            *at += 1;
            if *at < along.len() {
                return;
            }
            *at = 0;
        }
    }

    /// Writes all of it.
    pub(crate) fn write_to(&self, to: &mut impl Write, stop: &Stop) -> Result<(), Error> {
        let (mut rows, mut row) = (self.clone(), vec![0; self.row_bytes()]);
        while rows.next_row(&mut row) {
            stop.check()?;
            to.write_all(&row).map_err(Error::io("writing a benchmark's array"))?;
        }
        to.flush().map_err(Error::io("writing a benchmark's array"))
    }

    /// Whether `from` holds exactly this, to its last byte.
    pub(crate) fn is_in(&self, from: &mut impl Read, stop: &Stop) -> Result<bool, Error> {
        let (mut rows, mut expected) = (self.clone(), vec![0; self.row_bytes()]);
        let mut found = vec![0; self.row_bytes()];
        while rows.next_row(&mut expected) {
            stop.check()?;
            match from.read_exact(&mut found) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                read => read.map_err(Error::io("reading a result"))?,
            }
            if expected != found {
                return Ok(false);
            }
        }
        Ok(from.read(&mut [0]).map_err(Error::io("reading a result"))? == 0)
    }

    /// All of it at once.
    pub(crate) fn to_vec(&self, stop: &Stop) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(self.rows_left * self.row_bytes());
        self.write_to(&mut bytes, stop)?;
        Ok(bytes)
    }
}

fn fill<const N: usize>(out: &mut [u8], base: u64, row: &[u64]) {
    for (entry, number) in out.as_chunks_mut::<N>().0.iter_mut().zip(row) {
        entry.copy_from_slice(&value(base + number, 0)[..N]);
    }
}

fn fill_any(out: &mut [u8], entry_bytes: usize, base: u64, row: &[u64]) {
    for (entry, number) in out.chunks_exact_mut(entry_bytes).zip(row) {
        for (word, bytes) in (0..).zip(entry.chunks_mut(8)) {
            bytes.copy_from_slice(&value(base + number, word)[..bytes.len()]);
        }
    }
}

/// Eight bytes of the entry of this number: a hash (splitmix64), so that neighbours differ.
pub(crate) fn value(number: u64, word: u64) -> [u8; 8] {
    let mut z = (number ^ word << 48).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
