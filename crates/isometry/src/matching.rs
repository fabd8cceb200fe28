//! Makes two boxes one: dimensions and fields by name, and what may not be copied onto what.

use crate::instance::Instance;
use crate::view::{View, members};
use crate::{ArgumentError, Error, Mismatch};
use engine::Program;
use layout::Part;
use model::{Field, FieldSpace, Selection, Span};
use std::ops::Range;

/// The two sides of a copy, in the destination's order of dimensions and fields.
#[derive(Debug)]
pub(crate) struct Matched {
    pub(crate) src: Part,
    pub(crate) dst: Part,
    /// A bit for each dimension that is an index list, on either side.
    pub(crate) listed: [u8; 2],
}

/// Source and destination of one copy, dimensions and fields paired by name.
///
/// # Errors
/// [`Mismatch`] for dimensions, extents, fields or types that differ;
/// [`ArgumentError::Destination`] for a destination that overlaps itself or has stride 0.
pub(crate) fn matched(src: &View, dst: &View) -> Result<Matched, Error> {
    let src = src.in_order_of(dst.space.dims())?;
    for (i, dim) in dst.space.dims().iter().enumerate() {
        let (from, to) = (src.selection.spans()[i].extent(), dst.selection.spans()[i].extent());
        if from != to {
            return Err(Mismatch::Extent { name: dim.name.to_string(), src: from, dst: to }.into());
        }
    }
    let order = field_order(&src.fields, &dst.fields)?;
    let all: Vec<_> = (0..dst.fields.fields().len()).collect();
    let from = src.placement()?.select(&src.selection, &order)?;
    let to = dst.placement()?.select(&dst.selection, &all)?;
    to.check_destination().map_err(ArgumentError::Destination)?;
    Ok(Matched { src: from, dst: to, listed: [listed(&src), listed(dst)] })
}

/// For each of the destination's fields, the position of its partner in the source.
fn field_order(src: &FieldSpace, dst: &FieldSpace) -> Result<Vec<usize>, Error> {
    if let ([from], [to]) = (src.fields(), dst.fields()) {
        check_types(from, to)?;
        return Ok(vec![0]);
    }
    let lacks = |field: &Field| Mismatch::Field { name: field.name.to_string() };
    if let Some(extra) = src.fields().iter().find(|f| position(dst, &f.name).is_none()) {
        return Err(lacks(extra).into());
    }
    let partner = |to: &Field| {
        let at = position(src, &to.name).ok_or_else(|| lacks(to))?;
        check_types(&src.fields()[at], to)?;
        Ok(at)
    };
    dst.fields().iter().map(partner).collect()
}

fn position(fields: &FieldSpace, name: &str) -> Option<usize> {
    fields.fields().iter().position(|f| &*f.name == name)
}

/// Opaque bytes, and NumPy's void, match any type of their size.
fn check_types(src: &Field, dst: &Field) -> Result<(), Mismatch> {
    let opaque = |f: &Field| {
        f.dtype.trim_start_matches(['<', '>', '|']).starts_with('V') || f.dtype.is_empty()
    };
    if src.bytes == dst.bytes && (src.dtype == dst.dtype || opaque(src) || opaque(dst)) {
        return Ok(());
    }
    let say = |f: &Field| match &*f.dtype {
        "" => format!("{} bytes", f.bytes),
        dtype => dtype.to_owned(),
    };
    Err(Mismatch::Type { name: dst.name.to_string(), src: say(src), dst: say(dst) })
}

fn listed(view: &View) -> u8 {
    let spans = view.selection.spans().iter().enumerate();
    spans.filter(|(_, s)| matches!(s, Span::List(_))).fold(0, |bits, (i, _)| bits | 1 << i)
}

/// Refuses a destination that shares a byte with a source, each as its program touches it: of one copy,
/// or of two.
///
/// Exact but for blocks, index lists and fields left out of two instances whose bytes lie among
/// each other's, which are refused for caution.
pub(crate) fn check_apart(
    (src, reads): (&Instance, &Program),
    (dst, writes): (&Instance, &Program),
) -> Result<(), Error> {
    let spans = [reads.src_span(), writes.dst_span()];
    let ends = (span_of(src, &spans[0]), span_of(dst, &spans[1]));
    let (Some(a), Some(b)) = ends else { return Ok(()) };
    let crossing = a.1 < b.2 && b.1 < a.2 && a.0 == b.0;
    let apart = (b.1 - i128::from(spans[1].start)) - (a.1 - i128::from(spans[0].start));
    if !crossing || same_instance_apart(src, dst) || !reads.src().meets(writes.dst(), apart) {
        return Ok(());
    }
    Err(ArgumentError::Overlap.into())
}

/// An address space, and the first and last byte in it; `None` for no byte.
type Bytes = (u64, i128, i128);

fn span_of(instance: &Instance, span: &Range<i64>) -> Option<Bytes> {
    let holding = &instance.holding;
    let host = holding.region.host_span().map(|host| host.start().as_ptr() as usize as u64);
    // Host memory is one space, devices' that has addresses another, each other region one of its own.
    let (space, start) = match (host, holding.device_address()) {
        (Some(start), _) => (u64::MAX, i128::from(start)),
        (None, Some(start)) => (u64::MAX - 1, i128::from(start)),
        _ => (u64::from(instance.memory().node.0) << 32 | u64::from(holding.id.index), 0),
    };
    let base = start + i128::from(instance.base);
    let (from, to) = (base + i128::from(span.start), base + i128::from(span.end));
    (span.start < span.end).then_some((space, from, to))
}

/// Two boxes of one instance that share no entry.
fn same_instance_apart(src: &Instance, dst: &Instance) -> bool {
    let (a, b) = (&src.view, &dst.view);
    let alike = a.space == b.space && a.fields == b.fields && a.arrangement == b.arrangement;
    let same = src.place() == dst.place() && src.memory() == dst.memory() && alike;
    let mut pairs = a.selection.spans().iter().zip(b.selection.spans());
    same && pairs.any(|(a, b)| share_nothing(a, b)) && keeps_entries_apart(a)
}

/// Whether different entries have different bytes: those of a wrapped array may not.
fn keeps_entries_apart(view: &View) -> bool {
    let all: Vec<_> = (0..view.fields.fields().len()).collect();
    let whole = Selection::all(&view.space);
    let part = view.placement().and_then(|p| Ok(p.select(&whole, &all)?));
    part.is_ok_and(|part| part.check_destination().is_ok())
}

fn share_nothing(a: &Span, b: &Span) -> bool {
    match (a, b) {
        (Span::Range { lo, hi }, Span::Range { lo: from, hi: to }) => hi <= from || to <= lo,
        (Span::Range { lo, hi }, Span::List(list)) | (Span::List(list), Span::Range { lo, hi }) => {
            list.iter().all(|i| !(*lo..*hi).contains(i))
        }
        (Span::List(a), Span::List(b)) => {
            let there = members(b);
            a.iter().all(|i| !there.contains(i))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_share_nothing_are_told_in_no_time() {
        let list = |from: i64| Span::List((0..400_000).map(|i| from + 2 * i).collect());
        assert!(share_nothing(&list(0), &list(1)));
        assert!(!share_nothing(&list(0), &list(799_998)));
    }
}
