//! The linear order of a layout over the payload of a box: positions of entries, and walks.

use crate::LayoutError;
use crate::digits::{Digit, count, digits_of, free_ranges};
use model::{Component, Layout};
use std::ops::Range;

/// One component of an order, as a position in its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// The fields.
    Fields,
    /// The digit with this position in [`Order::digits`].
    Digit(usize),
}

/// Components, fastest first, over the indices of a box and its fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    /// For each dimension its indices, counted from the start of the block that holds the first.
    pub(crate) indices: Vec<Range<u64>>,
    /// Where the digits of each dimension start in `digits`; one more for the end.
    first: Vec<usize>,
    digits: Vec<Digit>,
    /// The dimension of each digit.
    dim_of: Vec<usize>,
    turns: Vec<Turn>,
    /// The bytes of the fields before each; one more for the sum.
    before: Vec<u64>,
    /// The values of each digit over the whole box.
    free: Vec<Range<u64>>,
}

impl Order {
    pub(crate) fn new(
        layout: &Layout,
        extents: &[u64],
        phase: &[u64],
        field_bytes: &[u64],
    ) -> Result<Self, LayoutError> {
        let rank = extents.len();
        let mut order = Order {
            indices: Vec::with_capacity(rank),
            first: vec![0],
            digits: Vec::new(),
            dim_of: Vec::new(),
            turns: Vec::new(),
            before: prefix_sums(field_bytes)?,
            free: Vec::new(),
        };
        for dim in 0..rank {
            let digits = digits_of(layout.blocks(dim));
            let block = digits[digits.len() - 1].place;
            let start = phase[dim] % block;
            let end = start.checked_add(extents[dim]).filter(|&end| end < 1 << 63);
            order.indices.push(start..end.ok_or(LayoutError::TooLarge)?);
            order.dim_of.extend(digits.iter().map(|_| dim));
            order.digits.extend(digits);
            order.first.push(order.digits.len());
        }
        order.turns = layout.components().iter().map(|&c| order.turn_of(c)).collect();
        let entries = extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e.max(1)));
        let bytes = entries.and_then(|n| n.checked_mul(order.entry_bytes()));
        bytes.filter(|&n| n < 1 << 63).ok_or(LayoutError::TooLarge)?;
        order.free = order.all_values();
        Ok(order)
    }

    /// The values of each digit over the whole box.
    fn all_values(&self) -> Vec<Range<u64>> {
        let of_dim = |(dim, indices): (usize, &Range<u64>)| match self.digits_of(dim) {
            [_] => vec![indices.clone()],
            digits => free_ranges(digits, indices),
        };
        self.indices.iter().enumerate().flat_map(of_dim).collect()
    }

    fn turn_of(&self, component: Component) -> Turn {
        match (component, component.dim()) {
            (Component::Inner { level, .. }, Some(dim)) => {
                Turn::Digit(self.first[dim] + usize::from(level) - 1)
            }
            (_, Some(dim)) => Turn::Digit(self.first[dim + 1] - 1),
            (_, None) => Turn::Fields,
        }
    }

    /// The same order with as few digits as possible: neighbours that count as one are joined,
    /// and blocks that hold the whole box are left out.
    pub(crate) fn fused(mut self) -> Self {
        let mut k = 0;
        while k + 1 < self.turns.len() {
            match (self.turns[k], self.turns[k + 1]) {
                (Turn::Digit(a), Turn::Digit(b))
                    if b == a + 1 && self.dim_of[a] == self.dim_of[b] =>
                {
                    self.join(k, a);
                }
                _ => k += 1,
            }
        }
        self.drop_constant_digits();
        self.free = self.all_values();
        self
    }

    /// Joins digit `a + 1`, the turn after turn `k`, to digit `a`.
    fn join(&mut self, k: usize, a: usize) {
        self.digits[a].size = self.digits[a].size.saturating_mul(self.digits[a + 1].size);
        self.turns.remove(k + 1);
        self.remove_digit(a + 1);
    }

    fn remove_digit(&mut self, at: usize) {
        let dim = self.dim_of[at];
        self.digits.remove(at);
        self.dim_of.remove(at);
        self.first[dim + 1..].iter_mut().for_each(|first| *first -= 1);
        for turn in &mut self.turns {
            match turn {
                Turn::Digit(digit) if *digit > at => *digit -= 1,
                _ => {}
            }
        }
    }

    /// Leaves out outermost digits that are 0 all over the box.
    fn drop_constant_digits(&mut self) {
        for dim in 0..self.rank() {
            while self.digits_of(dim).len() > 1 {
                let top = self.first[dim + 1] - 1;
                if self.indices[dim].end > self.digits[top].place {
                    break;
                }
                self.turns.retain(|&turn| turn != Turn::Digit(top));
                self.remove_digit(top);
                self.digits[top - 1].size = u64::MAX;
            }
            if self.digits_of(dim).len() == 1 {
                let start = self.indices[dim].start;
                self.indices[dim] = 0..self.indices[dim].end - start;
            }
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.indices.len()
    }

    pub(crate) fn extents(&self) -> impl Iterator<Item = u64> {
        self.indices.iter().map(|r| r.end - r.start)
    }

    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    pub(crate) fn digits_of(&self, dim: usize) -> &[Digit] {
        &self.digits[self.first[dim]..self.first[dim + 1]]
    }

    /// The bytes of all fields.
    pub(crate) fn entry_bytes(&self) -> u64 {
        self.before[self.before.len() - 1]
    }

    pub(crate) fn field_count(&self) -> usize {
        self.before.len() - 1
    }

    /// The bytes of the fields before `field`.
    pub(crate) fn before(&self, field: usize) -> u64 {
        self.before[field]
    }

    pub(crate) fn field_bytes(&self, field: usize) -> u64 {
        self.before[field + 1] - self.before[field]
    }

    /// The bytes of the whole stream.
    pub(crate) fn bytes(&self) -> u64 {
        let entries: u64 = self.indices.iter().map(|r| r.end - r.start).product();
        entries * self.entry_bytes()
    }

    /// Whether the digits of `dim` take turns from the innermost to the outermost.
    pub(crate) fn is_in_order(&self, dim: usize) -> bool {
        let digits = self.turns.iter().filter_map(|&turn| match turn {
            Turn::Digit(digit) if self.dim_of[digit] == dim => Some(digit),
            _ => None,
        });
        digits.is_sorted()
    }

    /// Where the entry at the box-relative `index` lies. `walk` is a walk of this order.
    pub(crate) fn rank_of(&self, index: &[u64], walk: &mut Walk) -> Rank {
        walk.reset();
        let mut rank = Rank::default();
        for &turn in self.turns.iter().rev() {
            match turn {
                Turn::Digit(digit) => {
                    let dim = self.dim_of[digit];
                    let value = self.digits[digit].of(index[dim] + self.indices[dim].start);
                    rank.behind += walk.entries_below(digit, value);
                    walk.restrict(digit, value..value + 1);
                }
                Turn::Fields => {
                    rank.blocks = std::mem::take(&mut rank.behind);
                    rank.block_entries = walk.entries();
                }
            }
        }
        rank
    }
}

/// The position of an entry in an order, before the fields' sizes come in: field `f` of it lies
/// at `blocks · |F| + block_entries · before(f) + behind · bytes(f)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rank {
    /// Entries in the blocks before, counted by the components slower than `F`.
    pub(crate) blocks: u64,
    /// Entries of the block itself.
    pub(crate) block_entries: u64,
    /// Entries of the block before it, counted by the components faster than `F`.
    pub(crate) behind: u64,
}

/// A part of an order: for each digit, the values that remain.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    pub(crate) order: &'a Order,
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) fields: Range<usize>,
    counts: [u64; model::MAX_DIMS],
}

impl<'a> Walk<'a> {
    /// The whole of `order`.
    pub(crate) fn new(order: &'a Order) -> Self {
        let (ranges, fields) = (order.free.clone(), 0..order.field_count());
        let mut walk = Walk { order, ranges, fields, counts: [1; model::MAX_DIMS] };
        walk.reset();
        walk
    }

    /// Makes it the whole of its order again.
    fn reset(&mut self) {
        self.ranges.clone_from_slice(&self.order.free);
        self.fields = 0..self.order.field_count();
        for (count, indices) in self.counts.iter_mut().zip(&self.order.indices) {
            *count = indices.end - indices.start;
        }
    }

    /// The number of entries.
    pub(crate) fn entries(&self) -> u64 {
        self.counts[..self.order.rank()].iter().product()
    }

    /// The bytes of the remaining fields of one entry.
    pub(crate) fn fields_bytes(&self) -> u64 {
        self.order.before(self.fields.end) - self.order.before(self.fields.start)
    }

    /// The bytes of what remains.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries() * self.fields_bytes()
    }

    /// Keeps only the entries whose `digit` lies in `values`.
    pub(crate) fn restrict(&mut self, digit: usize, values: Range<u64>) {
        let dim = self.order.dim_of[digit];
        self.ranges[digit] = values;
        let range = self.order.first[dim]..self.order.first[dim + 1];
        self.counts[dim] = self.count(dim, &self.ranges[range]);
    }

    /// The entries whose `digit` lies below `value`.
    pub(crate) fn entries_below(&mut self, digit: usize, value: u64) -> u64 {
        let dim = self.order.dim_of[digit];
        let others: u64 =
            (0..self.order.rank()).filter(|&d| d != dim).map(|d| self.counts[d]).product();
        others * self.indices_below(digit, value)
    }

    /// The indices of the digit's dimension whose `digit` lies below `value`.
    pub(crate) fn indices_below(&mut self, digit: usize, value: u64) -> u64 {
        let dim = self.order.dim_of[digit];
        let end = self.ranges[digit].end;
        self.ranges[digit].end = value.clamp(self.ranges[digit].start, end);
        let range = self.order.first[dim]..self.order.first[dim + 1];
        let below = self.count(dim, &self.ranges[range]);
        self.ranges[digit].end = end;
        below
    }

    /// The bytes of one index of the digit's dimension, over the remaining fields.
    pub(crate) fn bytes_per_index(&self, digit: usize) -> u64 {
        let dim = self.order.dim_of[digit];
        let others = (0..self.order.rank()).filter(|&d| d != dim);
        others.map(|d| self.counts[d]).product::<u64>() * self.fields_bytes()
    }

    /// The value of `digit` that holds the `at`-th remaining index of its dimension.
    pub(crate) fn value_at(&mut self, digit: usize, at: u64) -> u64 {
        let range = self.ranges[digit].clone();
        let points = self.uneven_points(digit);
        let mut start = range.start;
        let mut before = 0;
        for end in
            points.into_iter().chain([range.end]).filter(|p| range.contains(p) || *p == range.end)
        {
            if end <= start {
                continue;
            }
            let through = self.indices_below(digit, end);
            if at < through {
                let each = (through - before) / (end - start);
                return start + (at - before) / each;
            }
            (start, before) = (end, through);
        }
        range.end - 1
    }

    /// Where, in ascending order, the number of indices for each value of `digit` may change.
    fn uneven_points(&self, digit: usize) -> [u64; 4] {
        let indices = &self.order.indices[self.order.dim_of[digit]];
        let digit = self.order.digits[digit];
        let (lo, hi) = (digit.of(indices.start), digit.of(indices.end.max(1) - 1));
        let mut points = [lo, lo + 1, hi, hi + 1];
        points.sort_unstable();
        points
    }

    fn count(&self, dim: usize, ranges: &[Range<u64>]) -> u64 {
        count(self.order.digits_of(dim), ranges, &self.order.indices[dim])
    }

    /// The remaining digit ranges of `dim`.
    pub(crate) fn ranges_of(&self, dim: usize) -> &[Range<u64>] {
        &self.ranges[self.order.first[dim]..self.order.first[dim + 1]]
    }
}

fn prefix_sums(bytes: &[u64]) -> Result<Vec<u64>, LayoutError> {
    let mut sums = vec![0u64];
    for &b in bytes {
        let sum = sums[sums.len() - 1].checked_add(b).ok_or(LayoutError::TooLarge)?;
        sums.push(sum);
    }
    Ok(sums)
}
