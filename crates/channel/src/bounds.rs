//! The check that every channel makes before it moves a byte.

use layout::lies_in;
use model::{ChannelError, ChannelErrorKind, CopyWork, MOST_LOOPS, NdCopy};
use std::ops::Range;

/// Whether `work` is well-formed ([`NdCopy::is_well_formed`]) and stays inside a source of `src_bytes` and a
/// destination of `dst_bytes`.
///
/// # Errors
/// [`ChannelErrorKind::OutOfBounds`] for the first copy that does not, naming its bytes.
pub fn check_bounds(work: &CopyWork, src_bytes: u64, dst_bytes: u64) -> Result<(), ChannelError> {
    for copy in work.list.iter() {
        if is_run_inside(copy, (work.src.offset, src_bytes), (work.dst.offset, dst_bytes)) {
            continue;
        }
        if !copy.is_well_formed() {
            let detail = format!(
                "a copy whose strides or index tables are fewer than its loops need, or with more than \
                 {MOST_LOOPS} loops"
            );
            return Err(ChannelError::new(ChannelErrorKind::OutOfBounds, detail));
        }
        let (src, dst) = layout::touched(copy);
        check_side("source", src, work.src.offset, src_bytes)?;
        check_side("destination", dst, work.dst.offset, dst_bytes)?;
    }
    Ok(())
}

/// Whether `copy` is one run inside both sides, each a base and a length: the shortcut of small
/// copies, for which the check costs as much as the copy.
fn is_run_inside(copy: &NdCopy, src: (u64, u64), dst: (u64, u64)) -> bool {
    let [field] = &copy.fields[..] else { return false };
    let inside = |(base, len_bytes): (u64, u64), offset: i64| {
        let from = base.checked_add_signed(offset);
        from.and_then(|from| from.checked_add(field.bytes)).is_some_and(|to| to <= len_bytes)
    };
    let run = copy.dims.is_empty() && field.strides.is_empty();
    run && inside(src, field.src_offset) && inside(dst, field.dst_offset)
}

fn check_side(
    side: &str,
    touched: Range<i64>,
    base: u64,
    len_bytes: u64,
) -> Result<(), ChannelError> {
    if lies_in(&touched, base, len_bytes) {
        return Ok(());
    }
    let [from, to] = [touched.start, touched.end].map(|end| i128::from(end) + i128::from(base));
    let detail = format!("the copy touches bytes {from}..{to} of a {side} of {len_bytes} bytes");
    Err(ChannelError::new(ChannelErrorKind::OutOfBounds, detail))
}
