//! No copy allocates, whichever way it goes.

use isometry_kernels::{Stores, copy, explain};
use layout::{CopyDim, FieldCopy, NdCopy, Stride};
use std::collections::BTreeSet;

/// Of either side, more than any copy here has.
const BYTES: usize = 1 << 20;

/// Fields of (bytes, source offset, destination offset, (turns, source stride, destination stride) of each loop).
type Field<'a> = (u64, i64, i64, &'a [(u64, i64, i64)]);

fn copy_of(fields: &[Field<'_>]) -> NdCopy {
    let dim =
        |&(extent, ..): &(u64, i64, i64)| CopyDim { extent, src_index: None, dst_index: None };
    let field = |&(bytes, src_offset, dst_offset, loops): &Field<'_>| FieldCopy {
        bytes,
        src_offset,
        dst_offset,
        padding: 0,
        strides: loops.iter().map(|&(_, src, dst)| Stride { src, dst }).collect(),
    };
    NdCopy {
        dims: fields[0].3.iter().map(dim).collect(),
        fields: fields.iter().map(field).collect(),
    }
}

#[test]
#[cfg_attr(miri, ignore = "panels and long rows are too many elements")]
fn no_way_allocates() {
    let mut pages = copy_of(&[(128, 0, 0, &[(100, 128, 128)])]);
    pages.dims[0].src_index = Some((0..100).rev().collect());
    let copies = [
        ("one run", copy_of(&[(4096, 0, 0, &[])])),
        ("runs", copy_of(&[(128, 0, 0, &[(16, 128, 8192), (64, 2048, 128)])])),
        ("runs of 128 B where a table says", pages),
        ("panels", copy_of(&[(4, 0, 0, &[(256, 4, 1024), (256, 1024, 4)])])),
        ("long rows", copy_of(&[(4, 0, 0, &[(301, 4, 1204), (301, 1204, 4)])])),
        ("records", copy_of(&[(4, 0, 0, &[(1000, 12, 4)]), (8, 4, 4000, &[(1000, 12, 8)])])),
        (
            "records of 48 B, 2 fields, to hybrids",
            copy_of(&[
                (4, 0, 0, &[(3, 12_000, 12_008), (250, 48, 48), (4, 12, 4)]),
                (8, 4, 16, &[(3, 12_000, 12_008), (250, 48, 48), (4, 12, 8)]),
            ]),
        ),
        ("1 fields, element", copy_of(&[(5, 0, 0, &[(64, 5, 320), (64, 320, 5)])])),
    ];
    let (src, mut dst) = (vec![1; BYTES], vec![0; BYTES]);
    let mut ways = BTreeSet::new();
    for (list, stores) in
        copies.iter().flat_map(|(_, list)| [(list, Stores::Cached), (list, Stores::Streamed)])
    {
        let told = explain(list, dst.as_ptr(), stores);
        let counted = allocation_counter::measure(|| {
            // SAFETY: both sides have all that the copy touches.
            unsafe { copy(list, src.as_ptr(), dst.as_mut_ptr(), stores) }
        });
        assert_eq!(counted.count_total, 0, "{told}");
        ways.extend(copies.iter().map(|(way, _)| *way).filter(|way| told.starts_with(way)));
    }
    assert_eq!(ways.len(), copies.len(), "{ways:?}");
}
