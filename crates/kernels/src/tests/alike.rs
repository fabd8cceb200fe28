//! Structures that lie alike on both sides: padding is left out, and what the source has there goes nowhere.

use super::padded::{one_row, put_together};
use super::*;

/// What puts structures together, from such that lie so in the source, `shift` bytes farther on.
pub(super) fn alike(mut copy: NdCopy, shift: i64) -> NdCopy {
    for field in &mut copy.fields {
        field.src_offset = field.dst_offset + shift;
        field.strides.iter_mut().for_each(|stride| stride.src = stride.dst);
    }
    copy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn structures_keep_their_order(
        sizes in prop_oneof![
            prop::collection::vec(prop::sample::select(vec![1u64, 2, 4, 8]), 1..8),
            prop::collection::vec(prop::sample::select(vec![12u64, 24, 36, 48, 60, 72]), 1..5),
            prop::collection::vec(1u64..20, 1..5),
        ],
        shape in (1u64..4, prop_oneof![1u64..300, prop::sample::select(vec![509, 1025])]),
        more in prop::sample::select(vec![0u64, 1, 4, 40, 96]),
        (turned, down, table) in (any::<bool>(), any::<bool>(), any::<bool>()),
        at in (0i64..3, 0usize..3, prop::sample::select(vec![0usize, 1, 4, 8, 60])),
    ) {
        let mut copy = alike(put_together(&sizes, shape, more, false), at.0);
        if turned {
            copy.fields.reverse();
        }
        for field in copy.fields.iter_mut().filter(|_| down) {
            field.src_offset += (shape.0.cast_signed() - 1) * field.strides[0].src;
            field.strides[0].src *= -1;
        }
        copy.dims[0].dst_index = table.then(|| shuffled(shape.0, 7));
        check(&copy, (at.1, at.2));
    }
}

/// Long enough for several parts of them to be copied by turns.
#[test]
#[cfg_attr(miri, ignore = "Miri takes minutes")]
fn long_rows_of_structures() {
    for (sizes, count) in [(&[1, 8, 2][..], 25_003), (&[4, 8], 24_576), (&[8, 1, 4, 1, 8], 10_007)]
    {
        check(&alike(one_row(put_together(sizes, (1, count), 0, false)), 0), (1, 4));
    }
}

#[test]
fn what_lies_in_gaps_of_the_source_stays_there() {
    const SECRET: u8 = 9;
    for (sizes, count) in
        [(&[1u64, 8][..], 45), (&[4], 1000), (&[1, 4, 1], 259), (&[12, 8, 36], 33)]
    {
        let copy = alike(one_row(put_together(sizes, (1, count), 8, false)), 0);
        let (read, written) = touched(&copy);
        let mut src = vec![SECRET; read.end as usize];
        oracle::copy(&copy, &vec![7; src.len()], 0, &mut src, 0);
        for instance in each_ability() {
            for stores in STORES {
                let (mut dst, to) = aligned(written.end as usize, 4);
                let told = explain_by(&instance, &copy, dst[to..].as_ptr(), stores);
                assert!(told.contains("without padding"), "{told}");
                // SAFETY: the buffers hold what the copy touches; the instance is available.
                unsafe {
                    copy_by(&instance, &copy, (src.as_ptr(), dst[to..].as_mut_ptr()), stores)
                };
                assert!(!dst.contains(&SECRET), "{told}");
            }
        }
    }
}

#[test]
fn only_padding_is_left_out() {
    let best = available().next().unwrap();
    let told =
        |copy: &NdCopy| explain_by(&best, copy, std::ptr::without_provenance(64), Stores::Cached);
    let padded = alike(one_row(put_together(&[1, 8, 2], (1, 1000), 0, false)), 3);
    assert!(
        told(&padded).starts_with("rows of 23994 B of structures of 24 B, without padding ("),
        "{}",
        told(&padded)
    );
    // One that is longer, gaps that are somebody else's, another order, and structures that are farther apart on a side.
    let long = alike(one_row(put_together(&[1, 8, 2], (1, 1000), 240, false)), 0);
    let mut gaps = padded.clone();
    gaps.fields[1].padding = 0;
    gaps.fields[2].padding = 0;
    let mut moved = padded.clone();
    moved.fields[1].src_offset += 1;
    let mut apart = padded.clone();
    apart.fields.iter_mut().for_each(|field| field.strides[0].src = 32);
    // What comes to one place of a line again too late, too few, by a table, and an empty field behind the structure.
    let odd = alike(one_row(put_together(&[128, 1], (1, 1000), 4, false)), 0);
    let few = alike(one_row(put_together(&[1, 8, 2], (1, 43), 0, false)), 0);
    let short = alike(put_together(&[1, 8, 2], (100, 22), 0, false), 0);
    let mut listed = padded.clone();
    listed.dims[0].src_index = Some(shuffled(1000, 3));
    let mut empty = padded.clone();
    let strides = empty.fields[0].strides.clone();
    empty.fields.push(FieldCopy {
        bytes: 0,
        src_offset: 300,
        dst_offset: 300,
        padding: 0,
        strides,
    });
    for other in [long, gaps, moved, apart, odd, few, short, listed, empty] {
        assert!(!told(&other).contains("without padding"), "{}", told(&other));
        check(&other, (0, 1));
    }
    let enough = alike(one_row(put_together(&[1, 8, 2], (1, 44), 0, false)), 0);
    let rows = alike(put_together(&[1, 8, 2], (2, 23), 0, false), 0);
    assert!([enough, rows].iter().all(|copy| told(copy).contains("without padding")));
    // They are read in the order in which they lie.
    let crossover = model::Crossover { in_order: 1 << 20, turned: 1 << 10 };
    let of = |copy| Stores::of(slice::from_ref(copy), 100_000, crossover);
    assert_eq!(of(&padded), Stores::Cached);
}
