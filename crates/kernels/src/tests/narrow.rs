//! Rows of a power of two of elements, less than a line, in the caches.

use super::*;

/// So many rows of `few` elements of `bytes` each to as many columns, or back, and so many of these.
fn matrices(bytes: u64, (few, rows, turns): (u64, u64, u64), back: bool) -> NdCopy {
    let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
    let stride = |rows: u64, columns: u64| {
        let (src, dst) = if back { (columns, rows) } else { (rows, columns) };
        Stride { src: src.cast_signed(), dst: dst.cast_signed() }
    };
    let all = bytes * few * rows;
    let strides = vec![stride(all, all), stride(few * bytes, bytes), stride(bytes, rows * bytes)];
    NdCopy {
        dims: [turns, rows, few].map(dim).to_vec(),
        fields: vec![FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides }],
    }
}

#[test]
fn rows_of_few_elements_in_the_caches() {
    let at = std::ptr::without_provenance::<u8>(4096 + 16);
    for bytes in [1, 2, 4, 8, 16] {
        let line = 64 / bytes;
        for (few, back) in [2, 4, 8, 16].into_iter().flat_map(|few| [(few, false), (few, true)]) {
            // On both sides of the least there is to move so, and with a rest.
            let least = if back { line } else { 2 * line };
            let goes = if back { few <= line } else { few <= 4 || few == 8 && bytes == 1 };
            for rows in [least - 1, least, least + 1, 2 * least, 3 * least + line / 2 + 1] {
                let copy = matrices(bytes, (few, rows, 1), back);
                for instance in each_ability() {
                    let told = explain_by(&instance, &copy, at, Stores::Cached);
                    let how = if back { "columns put together" } else { "rows taken apart" };
                    let says = told.contains(&format!("in place, {how} in registers"));
                    assert_eq!(says, goes && rows >= least, "{told}: {copy:?}");
                }
                check(&copy, (0, 0));
                check(&copy, (3, 16));
                check(&matrices(bytes, (few, rows, 3), back), (bytes as usize, 4));
            }
        }
    }
}
