//! Whether two instances hold the same, told by checksums that are taken where each of them lies.
//!
//! Both are read in one order, that of the source's dimensions and fields, in boxes that hold a few
//! megabytes; a checksum of each box says as much of it as has to travel. Other nodes are asked for those of
//! a group of boxes at a time.

use crate::instance::Instance;
use crate::machine::Machine;
use crate::matching::matched;
use crate::nodes::Question;
use crate::{ArgumentError, Array, CopyOptions, Error};
use model::{Dim, Field, FieldSpace, IndexSpace, Selection, Span};
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// The most bytes that a checksum is of, unless one entry has more.
const BOX_BYTES: u64 = 4 << 20;

/// The most bytes that another node is asked for checksums of at once, so that nobody waits for long behind
/// that, and it stops soon once nobody waits for it.
pub(crate) const GROUP_BYTES: u64 = 64 << 20;

/// The most indices of a list that it is told at once.
const GROUP_INDICES: u64 = 1 << 17;

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
    /// [`Error::Differs`] where they don't; [`crate::Mismatch`] where the two don't match;
    /// [`ArgumentError::OtherMachine`]; [`Error::Far`] where another node can't read its own,
    /// [`Error::Nodes`] where that is lost; [`Error::Transfer`], [`Error::Closed`], [`Error::Forked`].
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
        if [src, dst].iter().any(|side| !Arc::ptr_eq(&side.holding.shared, &self.shared)) {
            return Err(ArgumentError::OtherMachine.into());
        }
        match matched(&src.view, &dst.view) {
            // Nothing is written to it.
            Ok(_) | Err(Error::Argument(ArgumentError::Destination(_))) => {}
            Err(error) => return Err(error),
        }
        let dims = src.space().dims();
        let turned = dst.view.in_order_of(dims)?;
        let sides = [src.clone(), Instance::new(Arc::clone(&dst.holding), dst.base, turned)];
        let fields = packed(src.fields())?;
        let is_list = |dim: usize| {
            sides.iter().any(|side| matches!(side.view.selection.spans()[dim], Span::List(_)))
        };
        let most = |dim| if is_list(dim) { GROUP_INDICES } else { u64::MAX };
        let caps: Vec<_> = (0..dims.len()).map(most).collect();
        let groups = Boxes::of(&src.extents(), (fields.item_bytes(), GROUP_BYTES), &caps);
        for i in 0..groups.count {
            let at = groups.nth(i);
            let parts = [part_of(&sides[0], &at)?, part_of(&sides[1], &at)?];
            let order = of_extents(dims, &parts[0].extents(), &fields)?;
            if let Some(wrong) = self.first_difference(&parts, &order, is_interrupted)? {
                let range = |((dim, group), part): ((&Dim, &Range<u64>), Range<u64>)| {
                    (dim.name.to_string(), group.start + part.start..group.start + part.end)
                };
                let part = dims.iter().zip(&at).zip(wrong).map(range).collect();
                return Err(Error::Differs { part });
            }
        }
        Ok(())
    }

    /// The first box in which two instances differ.
    fn first_difference(
        &self,
        sides: &[Instance; 2],
        order: &Array,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Range<u64>>>, Error> {
        // Other nodes read while this one does.
        let [one, other] = sides;
        let asked = [self.ask_for_sums(one, order)?, self.ask_for_sums(other, order)?];
        let mut sums = [const { Vec::new() }; 2];
        for ((sums, side), asked) in sums.iter_mut().zip(sides).zip(&asked) {
            if asked.is_none() {
                *sums = self.sums(side, order, is_interrupted)?;
            }
        }
        for (sums, asked) in sums.iter_mut().zip(asked) {
            if let Some(asked) = asked {
                *sums = asked.sums(is_interrupted)?;
            }
        }
        let boxes = Boxes::in_memory(order);
        let wrong = (0..boxes.count as usize).find(|&i| sums[0].get(i) != sums[1].get(i));
        Ok(wrong.map(|i| boxes.nth(i as u64)))
    }

    /// Asks the node of an instance for checksums of it; `None` where that is this one.
    fn ask_for_sums(&self, of: &Instance, order: &Array) -> Result<Option<Question<'_>>, Error> {
        let is_there = of.memory().node != self.shared.here();
        let nodes = self.shared.nodes.as_ref().filter(|_| is_there);
        nodes.map(|nodes| nodes.ask_for_sums(of, order)).transpose()
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
        let boxes = Boxes::in_memory(order);
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
                None => {
                    let array = of_extents(order.space.dims(), &extents, &order.fields)?;
                    held.insert(self.empty(array, "sys")?)
                }
            };
            self.copy(&part, held, &CopyOptions::default())?.wait(None)?;
            let mut sum = XxHash3_64::with_seed(0);
            sum.write(&held.to_vec()?);
            sums.push(sum.finish());
        }
        Ok(sums)
    }
}

/// The same fields without what lies between them.
pub(crate) fn packed(fields: &FieldSpace) -> Result<FieldSpace, Error> {
    let mut end = 0_u64;
    let place = |field: &Field| {
        let offset = end;
        end = end.saturating_add(field.bytes);
        Field { offset, ..field.clone() }
    };
    let packed = fields.fields().iter().map(place).collect();
    Ok(FieldSpace::new(packed, end)?)
}

/// `fields` at as many indices of each dimension.
fn of_extents(dims: &[Dim], extents: &[u64], fields: &FieldSpace) -> Result<Array, Error> {
    let dim = |(dim, &extent): (&Dim, &u64)| {
        let hi = i64::try_from(extent).map_err(|_| model::ModelError::TooLarge)?;
        Ok(Dim { lo: 0, hi, ..dim.clone() })
    };
    let dims = dims.iter().zip(extents).map(dim).collect::<Result<_, Error>>()?;
    Ok(Array::new(IndexSpace::new(dims)?, fields.clone()))
}

/// The part of what is selected that has these positions, dimension by dimension.
fn part_of(of: &Instance, positions: &[Range<u64>]) -> Result<Instance, Error> {
    let outside = || model::ModelError::TooLarge;
    let part = |(span, at): (&Span, &Range<u64>)| {
        let size = span.extent();
        if at.start > at.end || at.end > size {
            return Err(outside());
        }
        Ok(match span {
            Span::Range { lo, .. } => {
                let index = |at: u64| lo.checked_add_unsigned(at).ok_or_else(outside);
                Span::Range { lo: index(at.start)?, hi: index(at.end)? }
            }
            Span::List(list) => Span::List(list[at.start as usize..at.end as usize].into()),
        })
    };
    let spans = of.view.selection.spans().iter().zip(positions).map(part);
    let selection = Selection::new(of.space(), spans.collect::<Result<_, _>>()?)?;
    let view = of.view.as_ref().clone().selecting(selection);
    Ok(Instance::new(Arc::clone(&of.holding), of.base, view))
}

/// Boxes of at most so many bytes, or of one entry, that tile an array.
struct Boxes {
    extents: Vec<u64>,
    steps: Vec<u64>,
    count: u64,
}

impl Boxes {
    /// Those that one checksum each is of.
    fn in_memory(array: &Array) -> Boxes {
        let extents = array.space.extents();
        let caps = vec![u64::MAX; extents.len()];
        Boxes::of(&extents, (array.fields.item_bytes(), BOX_BYTES), &caps)
    }

    /// With no more indices of each dimension than its cap.
    fn of(extents: &[u64], (entry_bytes, most_bytes): (u64, u64), caps: &[u64]) -> Boxes {
        let mut room = (most_bytes / entry_bytes.max(1)).max(1);
        let mut steps = vec![1; extents.len()];
        for ((step, &extent), &cap) in steps.iter_mut().zip(extents).zip(caps).rev() {
            *step = extent.clamp(1, room.min(cap));
            // What is cut leaves no room: boxes are whole in the dimensions behind.
            room = if *step < extent { 1 } else { (room / extent.max(1)).max(1) };
        }
        let cuts = extents.iter().zip(&steps).map(|(extent, step)| extent.div_ceil(*step));
        let count = cuts.fold(1, u64::saturating_mul);
        Boxes { extents: extents.to_vec(), steps, count }
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

    #[test]
    fn boxes_tile_the_whole() {
        for (extents, cap) in [
            (&[5, 7][..], u64::MAX),
            (&[3, 1 << 22, 9], u64::MAX),
            (&[1 << 25], u64::MAX),
            (&[2, 0, 4], u64::MAX),
            (&[1], u64::MAX),
            (&[3, 1000, 9], 7),
        ] {
            let boxes = Boxes::of(extents, (4, BOX_BYTES), &vec![cap; extents.len()]);
            let all: Vec<_> = (0..boxes.count).map(|i| boxes.nth(i)).collect();
            let entries =
                |part: &Vec<Range<u64>>| -> u64 { part.iter().map(|r| r.end - r.start).product() };
            let sum: u64 = all.iter().map(entries).sum();
            assert_eq!(sum, extents.iter().product::<u64>(), "{extents:?}");
            assert!(all.iter().all(|part| entries(part) * 4 <= BOX_BYTES), "{extents:?}");
            assert!(all.iter().flatten().all(|r| r.end - r.start <= cap), "{extents:?}");
            for (i, a) in all.iter().enumerate() {
                let apart = |b: &Vec<Range<u64>>| {
                    a.iter().zip(b).any(|(a, b)| a.end <= b.start || b.end <= a.start)
                };
                assert!(all[..i].iter().all(apart), "{extents:?}");
            }
        }
    }
}
