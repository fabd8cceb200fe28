//! Structures that are put together: padding is written with them, other gaps stay as they are.

use super::*;

/// Lets `expected` have what `dst` has where it is padding, which may be anything. Offset 0 of the copy lies at `at`.
pub(super) fn let_be(copy: &NdCopy, dst: &[u8], (expected, at): (&mut [u8], usize)) {
    let stays = |dim: &CopyDim| CopyDim { src_index: dim.dst_index.clone(), ..dim.clone() };
    let dims = copy.dims.iter().map(stays).collect();
    let behind = |field: &FieldCopy| {
        let at = field.dst_offset + field.bytes.cast_signed();
        let stays = |stride: &Stride| Stride { src: stride.dst, dst: stride.dst };
        let strides = field.strides.iter().map(stays).collect();
        FieldCopy { bytes: field.padding, src_offset: at, dst_offset: at, padding: 0, strides }
    };
    let padding = NdCopy { dims, fields: copy.fields.iter().map(behind).collect() };
    oracle::copy(&padding, dst, at, expected, at);
}

/// Where fields of these sizes lie in a structure, each at a multiple of its size or of 8, and how long it is
/// with `more` bytes at its end.
fn structure(sizes: &[u64], more: u64) -> (Vec<u64>, u64) {
    let unit = |bytes: u64| (1 << bytes.trailing_zeros()).min(8);
    let mut end = 0;
    let mut places = Vec::new();
    for &bytes in sizes {
        places.push(u64::next_multiple_of(end, unit(bytes)));
        end = places[places.len() - 1] + bytes;
    }
    let most = sizes.iter().map(|&bytes| unit(bytes)).max().unwrap_or(1);
    (places, end.next_multiple_of(most) + more)
}

/// Arrays of fields of these sizes to such structures, which `rows` of `count` have, or groups of as many of an
/// array of each field in turn.
pub(super) fn put_together(
    sizes: &[u64],
    (rows, count): (u64, u64),
    more: u64,
    in_hybrids: bool,
) -> NdCopy {
    let (places, pitch) = structure(sizes, more);
    let next = |i: usize| places.get(i + 1).copied().unwrap_or(pitch);
    let (mut array, all) = (0, sizes.iter().sum::<u64>() * count);
    let field = |(i, &bytes): (usize, &u64)| {
        let start = array;
        array += bytes * count * if in_hybrids { 1 } else { rows };
        let row = if in_hybrids { all } else { bytes * count };
        let stride = |src: u64, dst: u64| Stride { src: src.cast_signed(), dst: dst.cast_signed() };
        FieldCopy {
            bytes,
            src_offset: start.cast_signed(),
            dst_offset: places[i].cast_signed(),
            padding: next(i) - places[i] - bytes,
            strides: vec![stride(row, pitch * count), stride(bytes, pitch)],
        }
    };
    let fields = sizes.iter().enumerate().map(field).collect();
    let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
    NdCopy { dims: vec![dim(rows), dim(count)], fields }
}

/// The one row of such a copy.
pub(super) fn one_row(mut copy: NdCopy) -> NdCopy {
    copy.dims.remove(0);
    for field in &mut copy.fields {
        field.strides.remove(0);
    }
    copy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn padding_is_all_that_changes_beside_fields(
        sizes in prop_oneof![
            prop::collection::vec(prop::sample::select(vec![1u64, 2, 4, 8]), 1..8),
            prop::collection::vec(prop::sample::select(vec![4u64, 8, 12, 16, 24]), 1..5),
            prop::collection::vec(prop::sample::select(vec![12u64, 24, 36, 48, 60, 72]), 1..5),
            prop::collection::vec(1u64..20, 1..5),
        ],
        count in prop_oneof![1u64..40, 256u64..300, prop::sample::select(vec![64, 509, 1025])],
        more in prop_oneof![3 => Just(0u64), 1 => prop::sample::select(vec![1, 2, 4, 40, 96])],
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 4, 8, 60])),
    ) {
        check(&one_row(put_together(&sizes, (1, count), more, false)), bases);
    }

    #[test]
    fn rows_of_structures_and_hybrids_have_padding(
        sizes in prop::collection::vec(prop::sample::select(vec![1u64, 2, 4, 8, 12]), 1..5),
        shape in (1u64..5, prop_oneof![1u64..9, 256u64..300]),
        in_hybrids: bool,
        to in prop::sample::select(vec![0usize, 1, 60]),
    ) {
        let (rows, count) = if in_hybrids { (shape.1, shape.0) } else { shape };
        check(&put_together(&sizes, (rows, count), 0, in_hybrids), (0, to));
    }
}

/// What lies between fields of the destination stays as it is, wherever that is.
#[test]
fn gaps_of_structures() {
    let fields = [
        &[(0u64, 1u64), (8, 8), (16, 2), (20, 4)][..],
        &[(5, 4), (1, 1)],
        &[(0, 4), (8, 8)],
        &[(2, 12), (20, 24)],
        &[(0, 8), (80, 8)],
    ];
    for (fields, pitch) in fields.into_iter().zip([24, 12, 16, 48, 160]) {
        let sizes: Vec<u64> = fields.iter().map(|f| f.1).collect();
        for (count, base) in [(600, 0), (1003, 1), (259, 4), (2100, 60)] {
            let count = if cfg!(miri) { count.min(300) } else { count };
            let mut copy = structures(&sizes, count, true);
            for (field, (at, _)) in copy.fields.iter_mut().zip(fields) {
                field.dst_offset = at.cast_signed();
                field.strides[0].dst = pitch;
            }
            check(&copy, (1, base));
        }
    }
}

/// How a large copy that puts such structures together goes by AVX2, where it is there.
fn told(sizes: &[u64], pads: bool) -> Option<String> {
    let mut copy = one_row(put_together(sizes, (1, 100_000), 0, false));
    if !pads {
        copy.fields.iter_mut().for_each(|field| field.padding = 0);
    }
    let instance = available().find(|instance| instance.name == "AVX2")?.with(Caches::MEASURED);
    Some(explain_by(&instance, &copy, std::ptr::without_provenance(64), Stores::Streamed))
}

#[test]
fn what_has_padding_goes_past_the_caches() {
    for (sizes, how) in [
        (&[4, 8][..], "put together 512 at once, by windows, by lines past the caches"),
        (&[1, 2, 4, 8], "by halves, by lines past the caches"),
        (&[1, 4, 1], "by halves, by lines past the caches"),
        (&[1, 8, 2, 4], "at once, by lines past the caches"),
    ] {
        let Some(padded) = told(sizes, true) else { return };
        assert!(padded.contains(how), "{sizes:?}: {padded}");
        let gaps = told(sizes, false).unwrap();
        assert!(gaps.contains("between gaps"), "{sizes:?}: {gaps}");
    }
}

#[test]
fn padding_of_staged_structures_is_zero() {
    let copy = one_row(put_together(&[1, 8, 2, 4], (1, 3000), 0, false));
    let (read, written) = touched(&copy);
    let src = source(read.end as usize);
    let mut staged = 0;
    for instance in each_ability() {
        let (mut dst, to) = aligned(written.end as usize, 0);
        let ends = (src.as_ptr(), dst[to..].as_mut_ptr());
        // SAFETY: the buffers hold what the copy touches; the instance is available.
        unsafe { copy_by(&instance, &copy, ends, Stores::Streamed) };
        let told = explain_by(&instance, &copy, ends.1, Stores::Streamed);
        if told.contains("windows") || told.contains("between gaps") {
            continue;
        }
        staged += 1;
        let records = dst[to..].chunks_exact(24).take(3000);
        assert!(records.clone().all(|record| record[1..8] == [0; 7]), "{told}");
        assert!(records.clone().all(|record| record[18..20] == [0; 2]), "{told}");
    }
    assert!(staged > 0, "by vectors of half a line, or none");
}

/// A rotation, a translation and a vector of it: a lane has the end of one field, padding, and the start of the next.
#[test]
fn padding_takes_no_window() {
    for (sizes, places, pitch) in [
        (&[36u64, 24, 12][..], &[0u64, 40, 64][..], 80),
        (&[36, 24, 24], &[0, 40, 64], 88),
        (&[12, 36], &[0, 16], 56),
        (&[48, 24], &[0, 52], 76),
        (&[12, 20], &[0, 12], 96),
    ] {
        let mut copy = one_row(put_together(sizes, (1, 1030), 0, false));
        for (i, field) in copy.fields.iter_mut().enumerate() {
            let next = places.get(i + 1).copied().unwrap_or(pitch);
            field.dst_offset = places[i].cast_signed();
            field.padding = next - places[i] - field.bytes;
            field.strides[0].dst = pitch.cast_signed();
        }
        for to in [0, 4, 60] {
            check(&copy, (1, to));
        }
    }
}

/// What has padding on the other side, too, as records of one turn in hybrids do.
#[test]
fn hybrids_of_one_turn_have_padding() {
    let field = |(bytes, at): (u64, i64)| FieldCopy {
        bytes,
        src_offset: at,
        dst_offset: at,
        padding: if at > 0 { 32 } else { 0 },
        strides: [(32, 64), (32, bytes.cast_signed())]
            .map(|(src, dst)| Stride { src, dst })
            .to_vec(),
    };
    let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
    let fields = [(12, 0), (20, 12)].map(field).to_vec();
    check(&NdCopy { dims: vec![dim(1000), dim(1)], fields }, (0, 0));
}
