//! Whether two instances hold the same, told by checksums that are taken where each of them lies.
//!
//! Both are read in one order, that of the source's dimensions and fields, in boxes that hold a few
//! megabytes; a checksum of each box says as much of it as has to travel.

use crate::instance::Instance;
use crate::machine::Machine;
use crate::nodes::Question;
use crate::{ArgumentError, Array, CopyOptions, Error, Mismatch};
use model::{Dim, Field, FieldSpace, IndexSpace, Span};
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// The most bytes that a checksum is of, unless one entry has more.
const BOX_BYTES: u64 = 4 << 20;

/// The most checksums of one instance.
const MOST_BOXES: u64 = 1 << 20;

impl Machine {
    /// Looks whether `dst` holds what `src` does, wherever and however both lie: what a copy from one
    /// to the other leaves. Each is read once more by the node that it lies in, which takes a checksum
    /// (XXH3, 64 bits) of every few megabytes; these are compared. Damage on any of the ways between
    /// is found, and not the work of an adversary, who may choose bytes of equal checksums.
    ///
    /// ```
    /// # use isometry::{Array, CopyOptions, Machine};
    /// # let machine = Machine::builder().assume(true).open()?;
    /// let rows = machine.empty(Array::of(&[("y", 20), ("x", 30)], "<f4")?, "sys")?;
    /// let columns = machine.empty(rows.array().laid_out("xy")?, "sys")?;
    /// machine.copy(&rows, &columns, &CopyOptions::default())?.wait(None)?;
    /// machine.verify(&rows, &columns)?;
    /// # Ok::<(), isometry::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Differs`] where they don't; [`Mismatch`] where the two don't match;
    /// [`ArgumentError::TooManyBoxes`], [`ArgumentError::OtherMachine`]; [`Error::Far`] where another
    /// node can't read its own, [`Error::Nodes`] where that is lost; [`Error::Transfer`],
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn verify(&self, src: &Instance, dst: &Instance) -> Result<(), Error> {
        self.verify_unless(src, dst, &|| false)
    }

    /// As [`Machine::verify`], but ends with [`Error::TimedOut`] once `is_interrupted`, which is asked
    /// every few megabytes, and ten times a second while another node is waited for.
    ///
    /// # Errors
    /// As [`Machine::verify`].
    pub fn verify_unless(
        &self,
        src: &Instance,
        dst: &Instance,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        self.shared.check_open()?;
        let order = order_of(src)?;
        let sides = [src, dst];
        if sides.iter().any(|side| !Arc::ptr_eq(&side.holding.shared, &self.shared)) {
            return Err(ArgumentError::OtherMachine.into());
        }
        check_extents(src, dst)?;
        let boxes = Boxes::of(&order)?;
        // Other nodes read while this one does.
        let asked = sides.map(|side| self.ask_for_sums(side, &order));
        let mut sums = [const { Vec::new() }; 2];
        for (sums, side) in sums.iter_mut().zip(sides) {
            if side.memory().node == self.shared.here() {
                *sums = self.sums(side, &order, is_interrupted)?;
            }
        }
        for (sums, asked) in sums.iter_mut().zip(asked) {
            if let Some(asked) = asked {
                *sums = asked.sums(is_interrupted)?;
            }
        }
        let [ours, theirs] = sums;
        let count = boxes.count as usize;
        if let Some(wrong) = (0..count).find(|&i| ours.get(i) != theirs.get(i)) {
            let names = order.space.dims().iter().map(|dim| dim.name.to_string());
            return Err(Error::Differs { part: names.zip(boxes.nth(wrong as u64)).collect() });
        }
        Ok(())
    }

    /// Asks the node of an instance for checksums of it; `None` where that is this one.
    fn ask_for_sums(&self, of: &Instance, order: &Array) -> Option<Question<'_>> {
        let is_there = of.memory().node != self.shared.here();
        let nodes = self.shared.nodes.as_ref().filter(|_| is_there)?;
        Some(nodes.ask_for_sums(of, order))
    }

    /// Checksums of an instance of this node, box by box.
    ///
    /// # Errors
    /// As [`Machine::verify_unless`].
    pub(crate) fn sums(
        &self,
        of: &Instance,
        order: &Array,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u64>, Error> {
        let view = of.view.in_order_of(order.space.dims())?;
        let of = Instance::new(Arc::clone(&of.holding), of.base, view);
        let boxes = Boxes::of(order)?;
        let mut held: Option<Instance> = None;
        let mut sums = Vec::new();
        for i in 0..boxes.count {
            if is_interrupted() {
                return Err(Error::TimedOut);
            }
            let part = part_of(&of, &boxes.nth(i))?;
            let extents = part.extents();
            let held = match held.take().filter(|held| held.extents() == extents) {
                Some(again) => held.insert(again),
                None => held.insert(self.empty(packed_box(order, &extents)?, "sys")?),
            };
            self.copy(&part, held, &CopyOptions::default())?.wait(None)?;
            let mut sum = XxHash3_64::with_seed(0);
            sum.write(&held.to_vec()?);
            sums.push(sum.finish());
        }
        Ok(sums)
    }
}

/// That both have as many indices of each dimension. Whether fields match is found out when they are
/// read.
fn check_extents(src: &Instance, dst: &Instance) -> Result<(), Error> {
    let dst = dst.view.in_order_of(src.space().dims())?;
    let extents = src.extents().into_iter().zip(dst.selection.extents());
    for (dim, (src, dst)) in src.space().dims().iter().zip(extents) {
        if src != dst {
            return Err(Mismatch::Extent { name: dim.name.to_string(), src, dst }.into());
        }
    }
    Ok(())
}

/// In which order both sides are read: what is selected of `src`, without what lies between fields.
fn order_of(src: &Instance) -> Result<Array, Error> {
    let extents = src.extents();
    let dim = |(dim, extent): (&Dim, u64)| Ok(Dim { lo: 0, hi: signed(extent)?, ..dim.clone() });
    let dims = src.space().dims().iter().zip(extents).map(dim).collect::<Result<_, Error>>()?;
    let mut end = 0;
    let place = |field: &Field| {
        let offset = end;
        end += field.bytes;
        Field { offset, ..field.clone() }
    };
    let packed = src.fields().fields().iter().map(place).collect();
    Ok(Array::new(IndexSpace::new(dims)?, FieldSpace::new(packed, end)?))
}

fn packed_box(order: &Array, extents: &[u64]) -> Result<Array, Error> {
    let dim = |(dim, &extent): (&Dim, &u64)| Ok(Dim { hi: signed(extent)?, ..dim.clone() });
    let dims = order.space.dims().iter().zip(extents).map(dim).collect::<Result<_, Error>>()?;
    Ok(Array::new(IndexSpace::new(dims)?, order.fields.clone()))
}

fn signed(extent: u64) -> Result<i64, Error> {
    i64::try_from(extent).map_err(|_| model::ModelError::TooLarge.into())
}

/// The part of what is selected that has these positions, dimension by dimension.
fn part_of(of: &Instance, positions: &[Range<u64>]) -> Result<Instance, Error> {
    let mut view = of.view.as_ref().clone();
    for (dim, range) in of.space().dims().iter().zip(positions) {
        let at = of.space().position(&dim.name).expect("one of its own");
        let outside = || model::ModelError::TooLarge;
        let span = match &of.view.selection.spans()[at] {
            Span::Range { lo, .. } => {
                let index = |at: u64| lo.checked_add_unsigned(at).ok_or_else(outside);
                Span::Range { lo: index(range.start)?, hi: index(range.end)? }
            }
            Span::List(list) => {
                let part = list.get(range.start as usize..range.end as usize);
                Span::List(part.ok_or_else(outside)?.into())
            }
        };
        view = view.with_span(&dim.name, span)?;
    }
    Ok(Instance::new(Arc::clone(&of.holding), of.base, view))
}

/// Boxes of at most [`BOX_BYTES`], or of one entry, that tile an array.
struct Boxes {
    extents: Vec<u64>,
    steps: Vec<u64>,
    count: u64,
}

impl Boxes {
    fn of(array: &Array) -> Result<Boxes, Error> {
        let extents = array.space.extents();
        let mut room = (BOX_BYTES / array.fields.item_bytes().max(1)).max(1);
        let mut steps = vec![1; extents.len()];
        for (step, &extent) in steps.iter_mut().zip(&extents).rev() {
            *step = extent.clamp(1, room);
            room = (room / extent.max(1)).max(1);
        }
        let cuts = extents.iter().zip(&steps).map(|(extent, step)| extent.div_ceil(*step));
        let count = cuts.fold(1, u64::saturating_mul);
        if count > MOST_BOXES {
            return Err(ArgumentError::TooManyBoxes { boxes: count, most: MOST_BOXES }.into());
        }
        Ok(Boxes { extents, steps, count })
    }

    /// The positions of one of them.
    fn nth(&self, mut i: u64) -> Vec<Range<u64>> {
        let mut ranges = vec![0..0; self.extents.len()];
        let dims = ranges.iter_mut().zip(self.extents.iter().zip(&self.steps));
        for (range, (&extent, &step)) in dims.rev() {
            let cuts = extent.div_ceil(step);
            let start = i % cuts * step;
            (*range, i) = (start..(start + step).min(extent), i / cuts);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(extents: &[u64]) -> Result<Boxes, Error> {
        let names = ["a", "b", "c"];
        let dims: Vec<_> = names.into_iter().zip(extents.iter().copied()).collect();
        Boxes::of(&Array::of(&dims, "<f4").unwrap())
    }

    #[test]
    fn boxes_tile_the_whole() {
        for extents in [&[5, 7][..], &[3, 1 << 22, 9], &[1 << 25], &[2, 0, 4], &[1]] {
            let boxes = boxes(extents).unwrap();
            let all: Vec<_> = (0..boxes.count).map(|i| boxes.nth(i)).collect();
            let entries =
                |part: &Vec<Range<u64>>| -> u64 { part.iter().map(|r| r.end - r.start).product() };
            let sum: u64 = all.iter().map(entries).sum();
            assert_eq!(sum, extents.iter().product::<u64>(), "{extents:?}");
            assert!(all.iter().all(|part| entries(part) * 4 <= BOX_BYTES), "{extents:?}");
            for (i, a) in all.iter().enumerate() {
                let apart = |b: &Vec<Range<u64>>| {
                    a.iter().zip(b).any(|(a, b)| a.end <= b.start || b.end <= a.start)
                };
                assert!(all[..i].iter().all(apart), "{extents:?}");
            }
        }
    }

    #[test]
    fn more_boxes_than_are_answered_are_an_error() {
        assert!(boxes(&[1 << 20, 1 << 20]).is_ok());
        let error = boxes(&[1 << 20, (1 << 20) + 1]).err().unwrap();
        assert!(error.to_string().contains("2097152 boxes"), "{error}");
        assert!(boxes(&[1 << 30, 1 << 30]).is_err());
    }
}
