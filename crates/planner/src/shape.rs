//! The two end layouts as words over one alphabet (paper, section 4.2).
//!
//! A *unit* is `F`, a block that an end's own layout has, or what remains of a dimension outside
//! those blocks. Where both ends block a dimension, the blocks are refined by nesting, so that
//! both ends are permutations of the same units. The planner may split what remains of each
//! dimension once more, by a factor that it chooses; the split never moves at the two ends.
//!
//! Where blocks don't nest (4 against 6, or boxes that start at different places in their blocks)
//! the ends have no common alphabet. Then the words keep units of their own for that dimension,
//! and intermediates use the order of one end or of the other.

use crate::round::gcd;
use crate::word::{MAX_ATOMS, SPLIT, Word};
use crate::{PlanError, Query, query::End};
use model::{Component, Layout, MAX_DIMS};

/// The dimension of `F`.
const NO_DIM: u8 = u8::MAX;

/// The planner's split of each dimension: the size of the inner half, 1 where it is not split.
pub(crate) type Factors = [u64; MAX_DIMS];

/// No dimension split.
pub(crate) const WHOLE: Factors = [1; MAX_DIMS];

#[derive(Clone, Copy, Debug)]
struct Unit {
    dim: u8,
    /// Level of the block, from 1; 0 for what remains of the dimension, and for `F`.
    level: u8,
    /// How many blocks of its end's layout lie below what remains.
    blocks: u8,
    size: u64,
}

#[derive(Clone, Copy, Debug)]
struct FieldSizes {
    sum: u64,
    least: u64,
    greatest: u64,
}

/// What cuts the runs at an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndCut {
    /// An index list.
    pub(crate) gathers: bool,
    /// No run is longer.
    pub(crate) run_bytes: u64,
}

/// The shape of a transfer: its units, the two ends as words of them, and sizes.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    units: [Unit; SPLIT as usize],
    count: u8,
    /// The ends, without units of size 1, which order nothing.
    pub(crate) src: Word,
    pub(crate) dst: Word,
    /// The ends with all their units.
    full: [Word; 2],
    /// Whether both words have the same units, so that other orders of them are layouts too.
    pub(crate) mixable: bool,
    fields: FieldSizes,
    /// The payload; at least one entry's.
    pub(crate) payload: u64,
    /// What cuts the runs at either end.
    pub(crate) cuts: [EndCut; 2],
    /// Where the box starts in the blocks of the plan's layouts.
    pub(crate) phase: [u64; MAX_DIMS],
    pub(crate) rank: usize,
    /// The unit that remains of each dimension, where both ends share it.
    rest: [u8; MAX_DIMS],
}

impl Shape {
    pub(crate) fn of(query: &Query<'_>) -> Result<Shape, PlanError> {
        let sum = query.field_bytes.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let extents = query.extents.iter().map(|&x| x.max(1));
        let mut shape = Shape {
            units: [Unit { dim: NO_DIM, level: 0, blocks: 0, size: sum }; SPLIT as usize],
            count: 1,
            src: Word::EMPTY,
            dst: Word::EMPTY,
            full: [Word::EMPTY; 2],
            mixable: true,
            fields: FieldSizes {
                sum,
                least: query.field_bytes.iter().copied().min().unwrap_or(1),
                greatest: query.field_bytes.iter().copied().max().unwrap_or(1),
            },
            payload: extents.fold(sum, |a, x| a.saturating_mul(x)),
            cuts: [EndCut { gathers: false, run_bytes: u64::MAX }; 2],
            phase: [0; MAX_DIMS],
            rank: query.extents.len(),
            rest: [0; MAX_DIMS],
        };
        if is_plain(query) {
            shape.add_whole_dims(query);
        } else {
            shape.add_blocked_dims(query)?;
        }
        shape.src = shape.compact(&shape.full[0], &WHOLE);
        shape.dst = shape.compact(&shape.full[1], &WHOLE);
        shape.cuts = [shape.cut_of(&shape.src, &query.src), shape.cut_of(&shape.dst, &query.dst)];
        Ok(shape)
    }

    fn cut_of(&self, word: &Word, end: &End<'_>) -> EndCut {
        let run_bytes = self.run_before(word, end.listed | end.gaps);
        EndCut { gathers: end.listed != 0, run_bytes }
    }

    /// The bytes of `word` before the first of the dimensions `ending`.
    fn run_before(&self, word: &Word, ending: u8) -> u64 {
        let dim = |atom: u8| self.units[usize::from(atom)].dim;
        let ends = |atom: &u8| dim(*atom) < 8 && ending & (1 << dim(*atom)) != 0;
        let Some(at) = word.atoms().iter().position(ends) else { return u64::MAX };
        let before = word.atoms()[..at].iter().fold(0, |set, &atom| set | 1 << atom);
        self.prefix_bytes(before, &WHOLE)
    }

    /// Units for layouts without blocks: one for each dimension.
    fn add_whole_dims(&mut self, query: &Query<'_>) {
        for (dim, &extent) in query.extents.iter().enumerate() {
            self.units[1 + dim] =
                Unit { dim: small(dim), level: 0, blocks: 0, size: extent.max(1) };
        }
        self.count = small(1 + self.rank);
        self.rest = std::array::from_fn(|dim| small(1 + dim));
        for (word, layout) in self.full.iter_mut().zip([query.src.layout, query.dst.layout]) {
            for component in layout.components() {
                word.push(component.dim().map_or(0, |dim| small(1 + dim)));
            }
        }
    }

    fn add_blocked_dims(&mut self, query: &Query<'_>) -> Result<(), PlanError> {
        // For each end, the first unit of each dimension.
        let mut firsts = [[0; MAX_DIMS]; 2];
        for dim in 0..self.rank {
            let cuts = [Cuts::of(&query.src, dim)?, Cuts::of(&query.dst, dim)?];
            if let Some(both) = Cuts::nest(&cuts[0], &cuts[1]) {
                self.phase[dim] = both.phase;
                let first = self.add_dim(dim, &both, query.extents[dim])?;
                firsts.iter_mut().for_each(|end| end[dim] = first);
            } else {
                self.mixable = false;
                for (end, cuts) in firsts.iter_mut().zip(cuts) {
                    end[dim] = self.add_dim(dim, &cuts, query.extents[dim])?;
                }
            }
        }
        self.full[0] = self.word_of(query.src.layout, &firsts[0]);
        self.full[1] = self.word_of(query.dst.layout, &firsts[1]);
        Ok(())
    }

    /// Adds the units of a dimension, the innermost block first, and returns the first.
    fn add_dim(&mut self, dim: usize, cuts: &Cuts, extent: u64) -> Result<u8, PlanError> {
        let first = self.count;
        let blocks = cuts.at().len();
        if usize::from(first) + blocks + 1 > usize::from(SPLIT) {
            return Err(PlanError::Query { why: "the layouts have too many blocks" });
        }
        let mut below = 1;
        for (i, &cut) in cuts.at().iter().enumerate() {
            self.add(Unit { dim: small(dim), level: small(1 + i), blocks: 0, size: cut / below });
            below = cut;
        }
        let size = extent.max(1).saturating_add(cuts.phase).div_ceil(below);
        self.rest[dim] = self.count;
        self.add(Unit { dim: small(dim), level: 0, blocks: small(blocks), size });
        Ok(first)
    }

    /// `layout` in units: a block that the other end cuts further becomes several, which stay
    /// together. `firsts` has the first unit of each dimension.
    fn word_of(&self, layout: &Layout, firsts: &[u8; MAX_DIMS]) -> Word {
        let mut word = Word::EMPTY;
        for &component in layout.components() {
            let below = |dim: u8, levels: usize| {
                layout.blocks(usize::from(dim)).take(levels).fold(1u64, u64::saturating_mul)
            };
            let (dim, span) = match component {
                Component::Fields => {
                    word.push(0);
                    continue;
                }
                Component::Whole(dim) => (dim, 1..u64::MAX),
                Component::Outer(dim) => (dim, below(dim, usize::MAX)..u64::MAX),
                Component::Inner { dim, level, .. } => {
                    let level = usize::from(level);
                    (dim, below(dim, level - 1)..below(dim, level))
                }
            };
            let (mut unit, mut start) = (firsts[usize::from(dim)], 1);
            while start < span.end {
                if span.contains(&start) {
                    word.push(unit);
                }
                let Unit { level, size, .. } = self.units[usize::from(unit)];
                if level == 0 {
                    break;
                }
                start *= size;
                unit += 1;
            }
        }
        word
    }

    fn add(&mut self, unit: Unit) {
        self.units[usize::from(self.count)] = unit;
        self.count += 1;
    }

    /// The size of `atom` in entries, or in bytes for `F`.
    pub(crate) fn size(&self, atom: u8, factors: &Factors) -> u64 {
        if atom >= SPLIT {
            return factors[usize::from(atom - SPLIT)];
        }
        let unit = &self.units[usize::from(atom)];
        match self.split_dim(atom) {
            Some(dim) if factors[dim] > 1 => unit.size.div_ceil(factors[dim]),
            _ => unit.size,
        }
    }

    /// The dimension whose remains the unit `atom` is, which the planner may split.
    pub(crate) fn split_dim(&self, atom: u8) -> Option<usize> {
        let unit = self.units.get(usize::from(atom))?;
        (unit.dim != NO_DIM && unit.level == 0).then_some(usize::from(unit.dim))
    }

    /// `word` with the splits of `factors` written out, without what has size 1.
    pub(crate) fn compact(&self, word: &Word, factors: &Factors) -> Word {
        let mut made = Word::EMPTY;
        for &atom in word.atoms() {
            if let Some(dim) = self.split_dim(atom)
                && factors[dim] > 1
            {
                made.push(SPLIT + small(dim));
            }
            if self.size(atom, factors) > 1 || atom == 0 {
                made.push(atom);
            }
        }
        made
    }

    /// The word of an end with the splits of `factors` written out.
    pub(crate) fn end_word(&self, end: usize, factors: &Factors) -> Word {
        let word = [&self.src, &self.dst][end];
        if *factors == WHOLE { *word } else { self.compact(word, factors) }
    }

    /// The product of the sizes of a set of atoms, but for `F`. Both halves of a split unit count
    /// as the unit: a split adds no padding.
    fn entries(&self, set: u64, factors: &Factors) -> u64 {
        let (mut left, mut product) = (set & !1, 1u64);
        while left != 0 {
            let atom = left.trailing_zeros() as u8;
            left &= left - 1;
            let size = match atom.checked_sub(SPLIT).map(usize::from) {
                Some(dim) if set >> self.rest[dim] & 1 == 1 => 1,
                None if self.is_joined(atom, set) => self.units[usize::from(atom)].size,
                _ => self.size(atom, factors),
            };
            product = product.saturating_mul(size);
        }
        product
    }

    /// Whether `set` has the inner half of `atom` too.
    fn is_joined(&self, atom: u8, set: u64) -> bool {
        self.split_dim(atom).is_some_and(|dim| set >> (usize::from(SPLIT) + dim) & 1 == 1)
    }

    /// A prefix in bytes, at most the payload; one that ends before `F` counts the smallest field.
    pub(crate) fn prefix_bytes(&self, set: u64, factors: &Factors) -> u64 {
        let field = if set & 1 == 1 { self.fields.sum } else { self.fields.least };
        self.entries(set, factors).saturating_mul(field).min(self.payload)
    }

    /// How full the runs over `set` are on average: the last part of a dimension is shorter than
    /// a factor that doesn't divide it.
    pub(crate) fn fullness(&self, set: u64, factors: &Factors) -> f64 {
        if set >> SPLIT == 0 {
            return 1.0;
        }
        let units = self.units[..usize::from(self.count)].iter().enumerate();
        let rests = units.filter(|(_, unit)| unit.dim != NO_DIM && unit.level == 0);
        let cut = rests.filter(|(i, unit)| set >> (SPLIT + unit.dim) & 1 == 1 && set >> i & 1 == 0);
        let full = |(_, unit): (usize, &Unit)| {
            let factor = factors[usize::from(unit.dim)];
            unit.size as f64 / unit.size.div_ceil(factor).saturating_mul(factor) as f64
        };
        cut.map(full).product()
    }

    /// The dimension whose split ends a prefix: its inner half is in `set`, its outer half not.
    pub(crate) fn cut_dim(&self, set: u64, factors: &Factors) -> Option<usize> {
        let has = |atom: u8| set >> atom & 1 == 1;
        let cut = |dim: &usize| has(SPLIT + small(*dim)) && !has(self.rest[*dim]);
        (0..self.rank).filter(|&dim| factors[dim] > 1).find(cut)
    }

    /// How much of dimension `dim` the planner may split, in entries.
    pub(crate) fn split_size(&self, dim: usize) -> u64 {
        self.size(self.rest[dim], &WHOLE)
    }

    /// What the places of runs over the prefix `set` are multiples of: a run's size, but the last
    /// of a dimension may be shorter.
    pub(crate) fn start_bytes(&self, set: u64, factors: &Factors) -> u64 {
        let run = self.prefix_bytes(set, factors);
        let Some(dim) = self.cut_dim(set, factors) else { return run };
        let row = (run / factors[dim]).saturating_mul(self.split_size(dim));
        gcd(run.max(1), row)
    }

    /// A complement of a suffix in bytes, at most the payload; one without `F` counts the largest
    /// field.
    pub(crate) fn shuffle_bytes(&self, set: u64, factors: &Factors) -> u64 {
        let field = if set & 1 == 1 { self.fields.sum } else { self.fields.greatest };
        self.entries(set, factors).saturating_mul(field).min(self.payload)
    }

    /// The size of a field, for prefixes before `F` and from it on.
    pub(crate) fn field_bytes(&self, with_fields: bool) -> u64 {
        if with_fields { self.fields.sum } else { self.fields.least }
    }

    /// The layout of an end, with the splits of `factors`: its addresses stay what they are.
    pub(crate) fn end_layout(&self, query: &Query<'_>, end: usize, factors: &Factors) -> Layout {
        let own = [query.src.layout, query.dst.layout][end];
        if !self.mixable || (*factors == WHOLE && is_plain(query)) {
            return own.clone();
        }
        self.written(&self.full[end], factors, true, own)
    }

    /// The layout of an intermediate with the compact word `word`: an end's, where it is in that
    /// order.
    pub(crate) fn layout(&self, query: &Query<'_>, word: &Word, factors: &Factors) -> Layout {
        for end in 0..2 {
            if *word == self.end_word(end, factors) {
                return self.end_layout(query, end, factors);
            }
        }
        self.plain_layout(query, word, factors)
    }

    /// The same order, with all units of size 1 at the slow end. Two windows that are both written
    /// so have the suffix in common that their words have.
    pub(crate) fn plain_layout(&self, query: &Query<'_>, word: &Word, factors: &Factors) -> Layout {
        let mut word = *word;
        word.push_missing(&self.full[0]);
        self.written(&word, factors, false, query.src.layout)
    }

    /// The layout of `word`, with a split unit as both halves where `both`. Its components are a
    /// permutation of those of `fallback`, or of its blocks cut further, and so always a layout.
    fn written(&self, word: &Word, factors: &Factors, both: bool, fallback: &Layout) -> Layout {
        let mut components = [Component::Fields; MAX_ATOMS];
        let mut count = 0;
        let mut push = |component| {
            components[count] = component;
            count += 1;
        };
        for &atom in word.atoms() {
            if let Some(dim) = self.split_dim(atom).filter(|&dim| both && factors[dim] > 1) {
                push(self.component(SPLIT + small(dim), factors));
            }
            push(self.component(atom, factors));
        }
        let layout = Layout::new(components[..count].iter().copied(), self.rank);
        debug_assert!(layout.is_ok(), "{layout:?}");
        layout.unwrap_or_else(|_| fallback.clone())
    }

    fn component(&self, atom: u8, factors: &Factors) -> Component {
        if let Some(dim) = atom.checked_sub(SPLIT) {
            let size = factors[usize::from(dim)];
            let rest = self.units[usize::from(self.rest[usize::from(dim)])];
            return Component::Inner { dim, level: rest.blocks + 1, size };
        }
        let Unit { dim, level, blocks, size } = self.units[usize::from(atom)];
        if dim == NO_DIM {
            Component::Fields
        } else if level > 0 {
            Component::Inner { dim, level, size }
        } else if blocks > 0 || factors[usize::from(dim)] > 1 {
            Component::Outer(dim)
        } else {
            Component::Whole(dim)
        }
    }
}

/// Where the blocks of one dimension end, in indices: each a multiple of the one before, so that 64
/// bits have no more of them.
struct Cuts {
    at: [u64; 64],
    count: usize,
    phase: u64,
}

impl Cuts {
    const NONE: Cuts = Cuts { at: [0; 64], count: 0, phase: 0 };

    fn of(end: &End<'_>, dim: usize) -> Result<Cuts, PlanError> {
        let mut cuts = Cuts::NONE;
        let mut cut = 1u64;
        for block in end.layout.blocks(dim).filter(|&block| block > 1) {
            let wide = PlanError::Query { why: "the blocks of a dimension pass 63 bits" };
            cut = cut.checked_mul(block).filter(|cut| cut >> 63 == 0).ok_or(wide)?;
            cuts.push(cut);
            cuts.phase = end.phase.get(dim).copied().unwrap_or(0);
        }
        Ok(cuts)
    }

    fn push(&mut self, cut: u64) {
        self.at[self.count] = cut;
        self.count += 1;
    }

    fn at(&self) -> &[u64] {
        &self.at[..self.count]
    }

    /// The blocks of both, where they nest and start together.
    fn nest(a: &Cuts, b: &Cuts) -> Option<Cuts> {
        let mut both = Cuts::NONE;
        let mut left = [a.at(), b.at()];
        while let Some(&next) = left.iter().filter_map(|cuts| cuts.first()).min() {
            if both.at().last().is_some_and(|&last| !next.is_multiple_of(last)) {
                return None;
            }
            both.push(next);
            for cuts in &mut left {
                *cuts = cuts.strip_prefix(&[next]).unwrap_or(cuts);
            }
        }
        let ends = (a.at().last(), b.at().last());
        both.phase = if ends.0 >= ends.1 { a.phase } else { b.phase };
        let (Some(a_ends), Some(b_ends)) = ends else { return Some(both) };
        let together = a.phase.abs_diff(b.phase).is_multiple_of(*a_ends.min(b_ends));
        together.then_some(both)
    }
}

/// Whether neither end has blocks.
fn is_plain(query: &Query<'_>) -> bool {
    let mut both = query.src.layout.components().iter().chain(query.dst.layout.components());
    both.all(|c| matches!(c, Component::Fields | Component::Whole(_)))
}

fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
