//! The naive copy that everything else is tested against.

use model::NdCopy;

/// Moves what `copy` says, point by point and field by field, from `src` to `dst`. Offset 0 of the
/// copy lies at `src_base` and `dst_base`.
///
/// # Panics
/// If the copy reaches outside either slice.
pub fn copy(copy: &NdCopy, src: &[u8], src_base: usize, dst: &mut [u8], dst_base: usize) {
    let points: u64 = copy.dims.iter().map(|d| d.extent).product();
    for point in 0..points {
        for field in &copy.fields {
            let mut from = src_base as i64 + field.src_offset;
            let mut to = dst_base as i64 + field.dst_offset;
            let mut rest = point;
            for (dim, stride) in copy.dims.iter().zip(&field.strides).rev() {
                let counter = rest % dim.extent;
                rest /= dim.extent;
                let position = |index: &Option<std::sync::Arc<[u64]>>| {
                    index.as_ref().map_or(counter, |table| table[counter as usize]) as i64
                };
                from += position(&dim.src_index) * stride.src;
                to += position(&dim.dst_index) * stride.dst;
            }
            let (from, to, bytes) = (from as usize, to as usize, field.bytes as usize);
            // A field without bytes may lie anywhere.
            if bytes > 0 {
                dst[to..to + bytes].copy_from_slice(&src[from..from + bytes]);
            }
        }
    }
}
