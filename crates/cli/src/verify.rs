//! Compares two instances, box by box.

use crate::failure::Failure;
use crate::progress::Watch;
use isometry::{Array, CopyOptions, Error, Instance, Machine};
use model::{Field, FieldSpace, IndexSpace};
use std::ops::Range;

/// What a box may hold.
const BOX_BYTES: u64 = 16 << 20;

/// Fails where an entry of `dst` differs from that of `src`.
pub(crate) fn compare(
    machine: &Machine,
    src: &Instance,
    dst: &Instance,
    watch: &dyn Watch,
) -> Result<(), Failure> {
    let fields = packed(src.fields()).map_err(Failure::failed)?;
    for part in boxes(&src.extents(), fields.item_bytes()) {
        watch.check()?;
        let names = src.space().dims().iter().map(|d| &*d.name);
        let ranges: Vec<_> = names.zip(part.iter().cloned()).collect();
        let bytes = |from: &Instance| bytes_of(machine, from, &ranges, &fields);
        let (left, right) =
            (bytes(src).map_err(Failure::failed)?, bytes(dst).map_err(Failure::failed)?);
        if left != right {
            return Err(Failure::failed(format_args!("the files differ in the box {ranges:?}")));
        }
    }
    Ok(())
}

/// The bytes of a box, in the order of its dimensions, without padding.
fn bytes_of(
    machine: &Machine,
    from: &Instance,
    ranges: &[(&str, Range<i64>)],
    fields: &FieldSpace,
) -> Result<Vec<u8>, Error> {
    let extents: Vec<_> = ranges.iter().map(|(n, r)| (*n, r.end.abs_diff(r.start))).collect();
    let array = Array::new(IndexSpace::of(&extents)?, fields.clone());
    let held = machine.empty(array, "sys")?;
    machine.copy(&from.select(ranges)?, &held, &CopyOptions::default())?.wait(None)?;
    held.to_vec()
}

/// The same fields without what lies between them.
fn packed(fields: &FieldSpace) -> Result<FieldSpace, model::ModelError> {
    let mut end = 0;
    let place = |field: &Field| {
        let offset = end;
        end += field.bytes;
        Field { offset, ..field.clone() }
    };
    let packed = fields.fields().iter().map(place).collect();
    FieldSpace::new(packed, end)
}

/// Boxes of at most [`BOX_BYTES`], or of one entry, that tile `extents`.
fn boxes(extents: &[u64], entry_bytes: u64) -> Vec<Vec<Range<i64>>> {
    let mut room = (BOX_BYTES / entry_bytes.max(1)).max(1);
    let mut boxes = vec![Vec::new()];
    for &extent in extents.iter().rev() {
        let step = extent.clamp(1, room);
        room = (room / extent.max(1)).max(1);
        let cuts = (0..extent).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let ranges: Vec<_> = cuts.map(|lo| lo as i64..(lo + step).min(extent) as i64).collect();
        let with = |part: &Vec<Range<i64>>| {
            let part = part.clone();
            ranges
                .iter()
                .map(move |range| [std::slice::from_ref(range), &part[..]].concat())
                .collect::<Vec<_>>()
        };
        boxes = boxes.iter().flat_map(with).collect();
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(part: &[Range<i64>]) -> u64 {
        part.iter().map(|r| r.end.abs_diff(r.start)).product()
    }

    #[test]
    fn boxes_tile_the_whole() {
        for extents in [&[5, 7][..], &[3, 1 << 22, 9], &[1 << 25], &[2, 0, 4], &[1]] {
            let boxes = boxes(extents, 4);
            assert_eq!(
                boxes.iter().map(|b| entries(b)).sum::<u64>(),
                extents.iter().product::<u64>()
            );
            assert!(boxes.iter().all(|b| entries(b) * 4 <= BOX_BYTES), "{extents:?}");
            for (i, a) in boxes.iter().enumerate() {
                let apart = |b: &Vec<Range<i64>>| {
                    a.iter().zip(b).any(|(a, b)| a.end <= b.start || b.end <= a.start)
                };
                assert!(boxes[..i].iter().all(apart), "{extents:?}");
            }
        }
    }
}
