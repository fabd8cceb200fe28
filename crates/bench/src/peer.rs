//! Others that do the same: what a case asks of them.

use crate::Error;
use crate::report::timed;
use layout::{CopyDim, NdCopy};
use std::marker::PhantomData;

/// The most views that a case is taken apart into.
const MOST_VIEWS: usize = 1 << 16;

/// How often each way to do a task runs before the fastest is chosen, and how much slower than the
/// fastest one run shows a way to be.
const TRIALS: usize = 2;
const HOPELESS: f64 = 2.0;

/// What takes less shows in a first run what it finds in no cache: it runs so often.
const SHORT_SECONDS: f64 = 0.01;
const SHORT_TRIALS: usize = 10;

/// One that does the same as the kernels, in this process: a library.
pub trait Peer {
    /// What it is called in the table.
    fn name(&self) -> &str;

    /// Its version, where it tells one.
    fn version(&self) -> Option<String> {
        None
    }

    /// Makes ready for `task`, in the fastest of its ways; `None` where it has none.
    ///
    /// # Errors
    /// Where it has a way, and it fails.
    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error>;
}

/// A way to do a task.
pub struct Ready<'a> {
    /// Does it.
    pub run: Run<'a>,
    /// What a reader of its times should know.
    pub remark: Option<String>,
}

impl<'a> From<Run<'a>> for Ready<'a> {
    fn from(run: Run<'a>) -> Self {
        Ready { run, remark: None }
    }
}

/// The fastest of `ways` to do the same; none of none. Where there are several each runs.
///
/// # Errors
/// Where all fail, or it is interrupted.
pub fn fastest(ways: Vec<Ready<'_>>) -> Result<Option<Ready<'_>>, Error> {
    if ways.len() < 2 {
        return Ok(ways.into_iter().next());
    }
    let mut best: Option<(f64, Ready<'_>)> = None;
    let mut failed = None;
    for mut way in ways {
        let bound = best.as_ref().map_or(f64::MAX, |(seconds, _)| *seconds);
        match tried(&mut way.run, bound) {
            Ok(seconds) if seconds < bound => best = Some((seconds, way)),
            Ok(_) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => failed = Some(error),
        }
    }
    match (best, failed) {
        (None, Some(error)) => Err(error),
        (best, _) => Ok(best.map(|(_, way)| way)),
    }
}

/// The least seconds that `run` takes in a few trials; in more, if they are short, and in one, if it takes far
/// longer than `bound`.
fn tried(run: &mut Run<'_>, bound: f64) -> Result<f64, Error> {
    let mut least = timed(&mut *run)?;
    let trials = if least < SHORT_SECONDS { SHORT_TRIALS } else { TRIALS };
    for _ in 1..trials {
        if least > SHORT_SECONDS.max(HOPELESS * bound) {
            break;
        }
        least = least.min(timed(&mut *run)?);
    }
    Ok(least)
}

/// Does a task once; the destination is complete when it returns.
pub type Run<'a> = Box<dyn FnMut() -> Result<(), Error> + 'a>;

/// The addresses and lengths of a case's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// The source's first byte, and how many there are.
    pub src: (usize, usize),
    /// The destination's.
    pub dst: (usize, usize),
}

/// Strided copies between two buffers, which live as long as `'a`. All of them are to be made.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// The copies; their bytes lie inside the buffers.
    pub views: &'a [View],
    /// The buffers.
    pub spans: Spans,
    /// How many threads may work on it.
    pub threads: u32,
    pub(crate) buffers: PhantomData<&'a ()>,
}

/// One side of a view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Strides {
    /// The first item's distance from the buffer's start, in bytes.
    pub offset: i64,
    /// For each dimension, how many bytes apart neighbours lie.
    pub strides: Vec<i64>,
}

/// A copy of items of one size, all of whose dimensions are regular: what strided arrays express.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// How many items there are along each dimension, outermost first.
    pub extents: Vec<u64>,
    /// An item's length.
    pub item_bytes: u64,
    /// Where they come from.
    pub src: Strides,
    /// Where they go.
    pub dst: Strides,
}

impl View {
    /// The same bytes in items of a power of two that divides every length, offset and stride,
    /// at most `most_bytes`: what typed, aligned arrays express. What is dense on both sides is one
    /// length.
    #[must_use]
    pub fn in_aligned_items(&self, most_bytes: u64) -> View {
        let runs = self.in_runs();
        let all =
            [&runs.src, &runs.dst].into_iter().flat_map(|s| s.strides.iter().chain([&s.offset]));
        let bits = all.fold(runs.item_bytes | most_bytes, |bits, &n| bits | n.unsigned_abs());
        runs.in_items(1 << bits.trailing_zeros())
    }

    /// The same in items of a power of two that divides every length, at most `most_bytes`, wherever
    /// they lie: what typed arrays express that need no alignment.
    #[must_use]
    pub fn in_long_items(&self, most_bytes: u64) -> View {
        let runs = self.in_runs();
        runs.in_items(1 << (runs.item_bytes | most_bytes).trailing_zeros())
    }

    /// The same with its dimensions in other orders too, those of either side: what typed arrays are
    /// the faster by differs. The first is its own; equal ones may be among them.
    #[must_use]
    pub fn in_all_orders(&self) -> [View; 3] {
        let by = |side: &Strides| {
            let mut order: Vec<usize> = (0..self.extents.len()).collect();
            order.sort_by_key(|&k| std::cmp::Reverse(side.strides[k].unsigned_abs()));
            let strides = |side: &Strides| Strides {
                strides: order.iter().map(|&k| side.strides[k]).collect(),
                ..*side
            };
            let extents = order.iter().map(|&k| self.extents[k]).collect();
            View { extents, src: strides(&self.src), dst: strides(&self.dst), ..*self }
        };
        [self.clone(), by(&self.src), by(&self.dst)]
    }

    /// The same, where an item is all that is dense on both sides.
    fn in_runs(&self) -> View {
        let mut view = self.clone();
        let dense = |view: &View| {
            let item = view.item_bytes.cast_signed();
            let mut strides = view.src.strides.iter().zip(&view.dst.strides);
            strides.position(|(&src, &dst)| [src, dst] == [item; 2])
        };
        while let Some(k) = dense(&view) {
            view.item_bytes *= view.extents.remove(k);
            view.src.strides.remove(k);
            view.dst.strides.remove(k);
        }
        view
    }

    /// The same bytes in items of `item_bytes`, which divide its own.
    #[must_use]
    pub fn in_items(&self, item_bytes: u64) -> View {
        let mut view = View { item_bytes, ..self.clone() };
        if item_bytes < self.item_bytes {
            view.extents.push(self.item_bytes / item_bytes);
            view.src.strides.push(item_bytes.cast_signed());
            view.dst.strides.push(item_bytes.cast_signed());
        }
        view
    }
}

/// `copies` as views, in items of the power of two that divides the sizes of all fields of the
/// case: equal fields that lie at equal distances are one more dimension, an index table is a view
/// for each entry. `None` where these are too many.
pub(crate) fn views(copies: &[NdCopy], field_bytes: &[u64]) -> Option<Vec<View>> {
    let mut all = Vec::new();
    for copy in copies {
        for view in by_fields(copy, field_bytes) {
            without_tables(&copy.dims, view, &mut all)?;
        }
    }
    Some(all)
}

/// A view of all fields where they are regular, else one for each; tables left out.
fn by_fields(copy: &NdCopy, field_bytes: &[u64]) -> Vec<View> {
    let one = |field: &layout::FieldCopy| {
        let side = |offset, of: fn(&layout::Stride) -> i64| Strides {
            offset,
            strides: field.strides.iter().map(of).collect(),
        };
        let (src, dst) = (side(field.src_offset, |s| s.src), side(field.dst_offset, |s| s.dst));
        let extents = copy.dims.iter().map(|d| d.extent).collect();
        let view = View { extents, item_bytes: field.bytes, src, dst };
        let whole = field_bytes.iter().copied().filter(|b| field.bytes.is_multiple_of(*b)).max();
        let item = whole.map_or(1, |bytes| bytes & bytes.wrapping_neg()).min(16);
        view.in_items(item)
    };
    let views: Vec<View> = copy.fields.iter().map(one).collect();
    match joined(&views) {
        Some(view) => vec![view],
        None => views,
    }
}

/// Views that differ by equal offsets as one with a dimension more.
fn joined(views: &[View]) -> Option<View> {
    let [first, second, ..] = views else { return None };
    let src = second.src.offset - first.src.offset;
    let dst = second.dst.offset - first.dst.offset;
    let mut expected = first.clone();
    for view in views {
        if *view != expected {
            return None;
        }
        expected.src.offset += src;
        expected.dst.offset += dst;
    }
    let mut all = first.clone();
    all.extents.push(views.len() as u64);
    all.src.strides.push(src);
    all.dst.strides.push(dst);
    Some(all)
}

/// Appends `view` once for each position of the loops that have an index table.
fn without_tables(dims: &[CopyDim], view: View, all: &mut Vec<View>) -> Option<()> {
    let table = dims.iter().rposition(|d| d.src_index.is_some() || d.dst_index.is_some());
    let Some(k) = table else {
        all.push(view);
        return (all.len() <= MOST_VIEWS).then_some(());
    };
    for i in 0..dims[k].extent {
        let position = |table: &Option<std::sync::Arc<[u64]>>| {
            table.as_ref().map_or(i, |t| t[i as usize]).cast_signed()
        };
        let mut one = view.clone();
        one.extents.remove(k);
        one.src.offset += position(&dims[k].src_index) * one.src.strides.remove(k);
        one.dst.offset += position(&dims[k].dst_index) * one.dst.strides.remove(k);
        without_tables(&dims[..k], one, all)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{FieldCopy, Stride, oracle};

    fn field(bytes: u64, src_offset: i64, dst_offset: i64, strides: &[(i64, i64)]) -> FieldCopy {
        let strides = strides.iter().map(|&(src, dst)| Stride { src, dst }).collect();
        FieldCopy { bytes, src_offset, dst_offset, padding: 0, strides }
    }

    fn dim(extent: u64, table: Option<&[u64]>) -> CopyDim {
        CopyDim { extent, src_index: table.map(Into::into), dst_index: None }
    }

    /// What the views move, item by item.
    fn moved(views: &[View], src: &[u8], dst: &mut [u8]) {
        for view in views {
            for item in 0..view.extents.iter().product::<u64>() {
                let (mut rest, mut from, mut to) = (item, view.src.offset, view.dst.offset);
                for (k, extent) in view.extents.iter().enumerate().rev() {
                    from += (rest % extent) as i64 * view.src.strides[k];
                    to += (rest % extent) as i64 * view.dst.strides[k];
                    rest /= extent;
                }
                let bytes = view.item_bytes as usize;
                dst[to as usize..][..bytes].copy_from_slice(&src[from as usize..][..bytes]);
            }
        }
    }

    /// The views of `copy`, which move what the oracle moves.
    fn checked(copy: &NdCopy, field_bytes: &[u64]) -> Vec<View> {
        let views = views(std::slice::from_ref(copy), field_bytes).unwrap();
        let src: Vec<u8> = (0..=255).collect();
        let mut expected = vec![0; 256];
        oracle::copy(copy, &src, 0, &mut expected, 0);
        let aligned: Vec<View> = views.iter().map(|v| v.in_aligned_items(4)).collect();
        let long: Vec<View> = views.iter().map(|v| v.in_long_items(16)).collect();
        for views in [&views, &aligned, &long] {
            let mut dst = vec![0; 256];
            moved(views, &src, &mut dst);
            assert_eq!(dst, expected);
        }
        views
    }

    #[test]
    fn equal_fields_are_a_dimension() {
        let fields = (0..3).map(|f| field(4, f * 4, f * 80, &[(12, 4)])).collect();
        let views = checked(&NdCopy { dims: vec![dim(20, None)], fields }, &[4, 4, 4]);
        assert_eq!((views.len(), &views[0].extents[..]), (1, &[20, 3][..]));
        assert_eq!(views[0].src.strides, [12, 4]);
    }

    #[test]
    fn mixed_fields_are_a_view_each_and_aligned_where_they_can_be() {
        let fields = vec![field(1, 0, 0, &[(5, 1)]), field(4, 1, 20, &[(5, 4)])];
        let views = checked(&NdCopy { dims: vec![dim(20, None)], fields }, &[1, 4]);
        assert_eq!(views.iter().map(|v| v.item_bytes).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(views[1].in_aligned_items(4).item_bytes, 1);
        assert_eq!(views[1].in_long_items(16).item_bytes, 4);
    }

    #[test]
    fn what_is_dense_on_both_sides_goes_by_the_longest_items() {
        let fields = vec![field(2, 0, 0, &[(24, 6), (6, 30), (2, 2)])];
        let dims = vec![dim(5, None), dim(4, None), dim(3, None)];
        let odd = &checked(&NdCopy { dims, fields }, &[2])[0];
        assert_eq!((&odd.in_aligned_items(16).extents[..], odd.item_bytes), (&[5, 4, 3][..], 2));
        let fields = vec![field(2, 0, 0, &[(48, 12), (12, 60), (4, 4), (2, 2)])];
        let dims = vec![dim(5, None), dim(4, None), dim(3, None), dim(2, None)];
        let even = checked(&NdCopy { dims, fields }, &[2])[0].in_aligned_items(16);
        assert_eq!((&even.extents[..], even.item_bytes), (&[5, 4, 3][..], 4));
        assert_eq!(
            (&even.src.strides[..], &even.dst.strides[..]),
            (&[48, 12, 4][..], &[12, 60, 4][..])
        );
    }

    #[test]
    fn dimensions_go_in_the_order_of_either_side_too() {
        let fields = (0..3).map(|f| field(4, f * 80, f * 4, &[(4, 12)])).collect();
        let views = checked(&NdCopy { dims: vec![dim(20, None)], fields }, &[4, 4, 4]);
        let [own, by_src, by_dst] = views[0].in_all_orders();
        assert_eq!((&own, &own), (&views[0], &by_dst));
        assert_eq!((&by_src.extents[..], &by_src.src.strides[..]), (&[3, 20][..], &[80, 4][..]));
        assert_eq!(by_src.dst.strides, [4, 12]);
        let moves = |view| {
            let (src, mut dst) = ((0..=255).collect::<Vec<u8>>(), vec![0; 256]);
            moved(&[view], &src, &mut dst);
            dst
        };
        assert_eq!(moves(own), moves(by_src));
    }

    #[test]
    fn the_fastest_way_is_chosen_by_trial() {
        let slow: Run<'_> = Box::new(|| {
            std::hint::black_box(vec![1u8; 64 << 20]);
            Ok(())
        });
        let fast: Run<'_> = Box::new(|| Ok(()));
        let fast = Ready { run: fast, remark: Some("fast".to_owned()) };
        let chosen = fastest(vec![slow.into(), fast]).unwrap().unwrap();
        assert_eq!(chosen.remark.as_deref(), Some("fast"));
        assert!(fastest(Vec::new()).unwrap().is_none());
        let fails = || -> Run<'_> { Box::new(|| Err(Error::part("running")("it is broken"))) };
        let chosen = fastest(vec![fails().into(), chosen]).unwrap().unwrap();
        assert_eq!(chosen.remark.as_deref(), Some("fast"));
        assert!(fastest(vec![fails().into(), fails().into()]).is_err());
        let stopped: Run<'_> = Box::new(|| Err(Error::Interrupted));
        assert!(fastest(vec![chosen, stopped.into()]).is_err());
    }

    #[test]
    fn a_table_is_a_view_for_each_entry_and_a_run_is_items() {
        let fields = vec![field(12, 0, 0, &[(48, 12), (24, 48)])];
        let dims = vec![dim(4, Some(&[2, 0, 3, 1])), dim(2, None)];
        let views = checked(&NdCopy { dims, fields }, &[2]);
        assert_eq!(views.len(), 4);
        assert_eq!((views[0].src.offset, views[1].dst.offset), (96, 12));
        assert_eq!((&views[0].extents[..], views[0].item_bytes), (&[2, 6][..], 2));
        let dims = vec![dim(MOST_VIEWS as u64 + 1, Some(&vec![0; MOST_VIEWS + 1]))];
        let copy = NdCopy { dims, fields: vec![field(1, 0, 0, &[(1, 1)])] };
        assert_eq!(super::views(&[copy], &[1]), None);
    }
}
