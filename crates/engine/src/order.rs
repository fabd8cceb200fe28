//! The order in which a hop makes its requests.
//!
//! **Hazard.** Where the ends are fastest along different dimensions, a piece of one end's order
//! has few bytes of each row of the other: a request of a megabyte touches as many pages as lines.
//! **Structure.** A direct hop may go in any order, so it goes in one of its own: boxes of both
//! dimensions, whose rows are long on either side.

use crate::cutting::fast_entries;
use layout::Part;
use model::{ChannelKind, Component, Layout, Plan};

/// So long is a row of the source in a request, if the destination's is no shorter.
const ROW_BYTES: u64 = 2 << 10;

/// Rows end with a line, where those of the instances do.
const LINE_BYTES: u64 = 64;

/// The layout in whose order hop `hop` of `plan` makes its requests.
pub(crate) fn order(plan: &Plan, hop: usize, src: &Part) -> Layout {
    match plan.hops.len() {
        1 => direct_order(plan, src).0,
        hops if hop + 1 == hops => plan.layouts[hop].clone(),
        _ => plan.layouts[hop + 1].clone(),
    }
}

/// The order of a direct hop, and of how many components its boxes are, if it has any: a file's, so
/// that its offsets ascend; else boxes, where they can be made; else the order of the side that has
/// an entry's fields closer together, so that a request moves them all; else the destination's.
pub(crate) fn direct_order(plan: &Plan, src: &Part) -> (Layout, Option<usize>) {
    let fast = |at: usize| {
        let components = plan.layouts[at].components();
        let fields = components.iter().position(|c| *c == Component::Fields);
        fast_entries(plan, at, fields.unwrap_or(0), src)
    };
    let kind = plan.hops[0].kind;
    if matches!(kind, ChannelKind::Memcpy | ChannelKind::GpuConvert)
        && let Some((order, below)) = boxes(plan, src)
    {
        return (order, Some(below));
    }
    let end = match kind {
        ChannelKind::DiskRead => 0,
        ChannelKind::DiskWrite => 1,
        _ => usize::from(src.field_bytes().len() == 1 || fast(1) <= fast(0)),
    };
    (plan.layouts[end].clone(), None)
}

/// The destination's order with boxes of the two dimensions along which the ends are fastest, and
/// of how many components these are; `None` where there are no two, an end blocks them itself, or a
/// request holds too little.
fn boxes(plan: &Plan, src: &Part) -> Option<(Layout, usize)> {
    let &[bytes] = src.field_bytes() else { return None };
    let extent = |dim: u8| src.extents().get(usize::from(dim)).copied().unwrap_or(0);
    let is_long = |c: &&Component| c.dim().is_some_and(|dim| extent(dim as u8) > 1);
    let fastest = |end: usize| plan.layouts[end].components().iter().find(is_long);
    let (&Component::Whole(across), &Component::Whole(along)) = (fastest(0)?, fastest(1)?) else {
        return None;
    };
    let entries = plan.hops[0].request_bytes.checked_div(bytes)?;
    let unit = whole_lines(bytes);
    let side = entries.isqrt().min(ROW_BYTES / bytes);
    if across == along || side < unit {
        return None;
    }
    let rows = (entries / side.min(extent(across))).min(extent(along));
    let columns = (entries / rows).min(extent(across));
    let rest = plan.layouts[1].components().iter().copied().filter(|c| *c != Component::Fields);
    let mut order = Order { fast: vec![Component::Fields], rest: rest.collect() };
    order.take((along, extent(along)), rows, unit)?;
    order.take((across, extent(across)), columns, unit)?;
    // Where the destination goes on with another dimension, its rows still end with a line.
    let next = order.rest.iter().find(is_long);
    if let (true, Some(&Component::Whole(next))) = (rows == extent(along), next) {
        order.take((next, extent(next)), entries / rows / columns, whole_lines(rows * bytes))?;
    }
    let below = order.fast.len();
    let order = Layout::new(order.fast.into_iter().chain(order.rest), src.extents().len());
    Some((order.ok()?, below))
}

/// An order that is being made: what is in it, and what it goes on with.
struct Order {
    fast: Vec<Component>,
    rest: Vec<Component>,
}

impl Order {
    /// Goes on with `count` of a whole dimension, or the next smaller multiple of `unit`; not where
    /// that is none. `None` if the dimension isn't whole.
    fn take(&mut self, (dim, extent): (u8, u64), count: u64, unit: u64) -> Option<()> {
        let at = self.rest.iter().position(|c| *c == Component::Whole(dim))?;
        if count >= extent {
            self.fast.push(self.rest.remove(at));
        } else if count >= unit.max(2) {
            let size = count / unit * unit;
            self.fast.push(Component::Inner { dim, level: 1, size });
            self.rest[at] = Component::Outer(dim);
        }
        Some(())
    }
}

/// How many of so many bytes are whole lines.
fn whole_lines(bytes: u64) -> u64 {
    LINE_BYTES >> bytes.trailing_zeros().min(LINE_BYTES.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use Component::{Fields, Inner, Outer, Whole};
    use layout::Placement;
    use model::{FieldSpace, IndexSpace, Selection, Span};

    /// The order from `from` to `to` of entries of `bytes`, in requests of 1 MiB.
    fn ordered(extents: &[u64], bytes: &[u64], ends: [&[Component]; 2]) -> Vec<Component> {
        by(ChannelKind::Memcpy, extents, bytes, ends)
    }

    /// The same by a channel of another kind.
    fn by(
        kind: ChannelKind,
        extents: &[u64],
        bytes: &[u64],
        [from, to]: [&[Component]; 2],
    ) -> Vec<Component> {
        let names = ["n", "h", "w", "c"];
        let dims: Vec<_> = names.into_iter().zip(extents.iter().copied()).collect();
        let space = IndexSpace::of(&dims).unwrap();
        let layout = |c: &[Component]| Layout::new(c.iter().copied(), extents.len()).unwrap();
        let mut plan = support::plan(vec![layout(from), layout(to)], &[1 << 20], &[], 1);
        plan.hops[0].kind = kind;
        let fields = FieldSpace::packed(bytes).unwrap();
        let src = Placement::of_layout(&plan.layouts[0], &space, &fields).unwrap();
        let all: Vec<usize> = (0..bytes.len()).collect();
        let spans = extents.iter().map(|&hi| Span::Range { lo: 0, hi: hi.cast_signed() }).collect();
        let part = src.select(&Selection::new(&space, spans).unwrap(), &all).unwrap();
        order(&plan, 0, &part).components().to_vec()
    }

    fn inner(dim: u8, size: u64) -> Component {
        Inner { dim, level: 1, size }
    }

    #[test]
    fn a_transpose_goes_by_boxes() {
        let turned = |extents: [u64; 2], bytes| {
            let ends: [&[_]; 2] = [&[Fields, Whole(1), Whole(0)], &[Fields, Whole(0), Whole(1)]];
            ordered(&extents, &[bytes], ends)
        };
        let boxes =
            |rows, columns| vec![Fields, inner(0, rows), inner(1, columns), Outer(0), Outer(1)];
        assert_eq!(turned([8192, 8192], 4), boxes(512, 512));
        assert_eq!(turned([8192, 8192], 16), boxes(512, 128));
        assert_eq!(turned([8192, 8192], 1), boxes(1024, 1024));
        assert_eq!(turned([8191, 8191], 3), boxes(576, 576));
        let ends: [&[_]; 2] = [&[Fields, Whole(1), Whole(0)], &[Fields, Whole(0), Whole(1)]];
        assert_eq!(by(ChannelKind::GpuConvert, &[8192, 8192], &[4], ends), boxes(512, 512));
        assert_eq!(
            by(ChannelKind::GpuCopy, &[8192, 8192], &[4], ends),
            ends[1],
            "rows as they are"
        );
        // A short side is whole, and what it leaves is the other's.
        assert_eq!(turned([80_000, 20], 4), [Fields, inner(0, 13_104), Whole(1), Outer(0)]);
        assert_eq!(turned([20, 80_000], 4), [Fields, Whole(0), inner(1, 13_104), Outer(1)]);
        assert_eq!(turned([1, 80_000], 4), [Fields, Whole(0), Whole(1)]);
        assert_eq!(turned([40, 50], 4), [Fields, Whole(0), Whole(1)]);
        // Long elements are rows themselves.
        assert_eq!(turned([8192, 8192], 4096), [Fields, Whole(0), Whole(1)]);
    }

    #[test]
    fn images_go_by_rows_that_end_with_a_line() {
        let nhwc = [Fields, Whole(3), Whole(2), Whole(1), Whole(0)];
        let nchw = [Fields, Whole(2), Whole(1), Whole(3), Whole(0)];
        let images = [32, 28, 28, 512];
        let boxed = vec![Fields, Whole(2), Whole(3), inner(1, 16), Outer(1), Whole(0)];
        assert_eq!(ordered(&images, &[4], [&nhwc, &nchw]), boxed);
        let blocked = [Fields, inner(3, 16), Whole(2), Whole(1), Outer(3), Whole(0)];
        assert_eq!(ordered(&images, &[4], [&nchw, &blocked]), blocked);
        assert_eq!(ordered(&images, &[4, 4], [&nhwc, &nchw]), nchw);
        assert_eq!(ordered(&images, &[4], [&nhwc, &nhwc]), nhwc);
    }
}
