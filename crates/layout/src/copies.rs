//! A pair of sides as canonical copies (DESIGN.md, decision 1).

use crate::canon::canonical;
use crate::lattice::Lattice;
use crate::merge::merged;
use crate::short::Short;
use crate::side::{Finder, Point, Side};
use crate::stream::{Cell, Stream, cross};
use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::ops::Range;
use std::sync::Arc;

/// The copies that move the bytes `range` of the stream `range_of` from `src` to `dst`: a short
/// list in canonical form, whose payload is that of the range and nothing else.
///
/// Offsets are relative to an instance's base, or to the position at which a window starts.
/// Where the order of two copies could be swapped it is by ascending destination offset.
///
/// # Panics
/// If the extents, or the number or sizes of fields, of the three differ, or if `range` reaches
/// past the stream.
#[must_use]
pub fn copies(src: Side, dst: Side, range_of: &Stream, range: Range<u64>) -> Vec<NdCopy> {
    check_alike(&src, &dst, range_of);
    assert!(range.end <= range_of.bytes(), "a range lies inside the stream");
    if range.is_empty() {
        return Vec::new();
    }
    if let Some(run) = same_stream(&src, &dst, range_of, &range) {
        return vec![run];
    }
    merged(pieces(src, dst, range_of, range).into_iter().map(canonical).collect())
}

/// The copies that move `range`, as they fall out of its cells.
pub(crate) fn pieces(src: Side, dst: Side, range_of: &Stream, range: Range<u64>) -> Vec<NdCopy> {
    let whole = range == (0..range_of.bytes());
    let cells = if whole { vec![whole_box(range_of)] } else { range_of.cells(range) };
    let mut list = Vec::with_capacity(cells.len());
    let mut finders = (src.finder(), dst.finder());
    for mut cell in cells {
        for dims in boxes(&src, &dst, std::mem::take(&mut cell.dims)) {
            let piece = Piece { src: &src, dst: &dst, dims: &dims };
            piece.copies_of(&cell, &mut finders, &mut list);
        }
    }
    list
}

fn check_alike(src: &Side, dst: &Side, range_of: &Stream) {
    assert!(src.is_as_long_as(range_of) && dst.is_as_long_as(range_of), "equal extents");
    let fields = range_of.field_count();
    assert!(src.field_count() == fields && dst.field_count() == fields, "equally many fields");
    let same = |f| {
        let bytes = range_of.fused().field_bytes(f);
        src.field_bytes(f) == bytes && dst.field_bytes(f) == bytes
    };
    assert!((0..fields).all(same), "fields have equal sizes on both sides");
}

/// The one run between two windows on the same stream.
fn same_stream(src: &Side, dst: &Side, range_of: &Stream, range: &Range<u64>) -> Option<NdCopy> {
    let (Side::Stream { stream: a, base: src }, Side::Stream { stream: b, base: dst }) = (src, dst)
    else {
        return None;
    };
    let all = *range == (0..range_of.bytes());
    let same = a.fused() == b.fused() && (all || a.fused() == range_of.fused());
    let offset = |base: u64| range.start as i64 - base as i64;
    let field = || FieldCopy {
        bytes: range.end - range.start,
        src_offset: offset(*src),
        dst_offset: offset(*dst),
        padding: 0,
        strides: Vec::new(),
    };
    same.then(|| NdCopy { dims: Vec::new(), fields: vec![field()] })
}

fn whole_box(stream: &Stream) -> Cell {
    let dims = stream.extents().into_iter().map(|extent| Lattice::interval(0..extent)).collect();
    Cell { dims, fields: 0..stream.field_count(), bytes: None }
}

/// The boxes of a cell on which both sides are affine.
fn boxes(src: &Side, dst: &Side, dims: Vec<Lattice>) -> Vec<Vec<Lattice>> {
    let mut boxes = vec![Vec::with_capacity(dims.len())];
    for (dim, lattice) in dims.into_iter().enumerate() {
        boxes = cross(boxes, dst.split(dim, src.split(dim, vec![lattice])));
    }
    boxes
}

/// A box on which both sides are affine, but for index lists.
struct Piece<'a> {
    src: &'a Side<'a>,
    dst: &'a Side<'a>,
    dims: &'a [Lattice],
}

/// One loop of a copy: its extent, and how either side moves.
struct Turn {
    extent: u64,
    src: Motion,
    dst: Motion,
}

/// How a side moves along a loop: `step` for each position, which a table may give.
struct Motion {
    table: Option<Vec<u64>>,
    step: Point,
}

/// How far one more turn of each of a dimension's loops goes: count, source, destination.
type Along = Short<(u64, Point, Point), 4>;

impl Piece<'_> {
    /// Appends one copy; or one for each field, where index lists cross blocks on both sides of
    /// `F` and so need a table for each field.
    fn copies_of(&self, cell: &Cell, finders: &mut (Finder, Finder), out: &mut Vec<NdCopy>) {
        let mut index: Vec<u64> = self.dims.iter().map(|l| l.start).collect();
        let starts = (finders.0.point(&index), finders.1.point(&index));
        let mut along = Vec::with_capacity(self.dims.len());
        for dim in 0..self.dims.len() {
            along.push(self.along(dim, &mut index, starts, finders));
        }
        if let Some(turns) = self.turns(&along, None) {
            out.push(self.copy(cell, cell.fields.clone(), starts, &turns));
            return;
        }
        for field in cell.fields.clone() {
            if let Some(turns) = self.turns(&along, Some(self.src.field_bytes(field))) {
                out.push(self.copy(cell, field..field + 1, starts, &turns));
            }
        }
    }

    /// The steps of the loops of `dim`, from the `starts` at `index`.
    fn along(
        &self,
        dim: usize,
        index: &mut [u64],
        starts: (Point, Point),
        finders: &mut (Finder, Finder),
    ) -> Along {
        let mut along = Along::new();
        for l in self.dims[dim].loops.iter() {
            index[dim] += l.step;
            let src = finders.0.point(index).minus(starts.0);
            let dst = finders.1.point(index).minus(starts.1);
            index[dim] -= l.step;
            along.push((l.count, src, dst));
        }
        along
    }

    fn copy(
        &self,
        cell: &Cell,
        fields: Range<usize>,
        (src, dst): (Point, Point),
        turns: &[Turn],
    ) -> NdCopy {
        let field_copy = |field| {
            let whole = self.src.field_bytes(field);
            let bytes = cell.bytes.clone().unwrap_or(0..whole);
            let stride = |t: &Turn| Stride {
                src: t.src.step.of_bytes(whole),
                dst: t.dst.step.of_bytes(whole),
            };
            FieldCopy {
                bytes: bytes.end - bytes.start,
                src_offset: self.src.address(src, field) + bytes.start as i64,
                dst_offset: self.dst.address(dst, field) + bytes.start as i64,
                padding: if bytes.end == whole { self.dst.padding(field) } else { 0 },
                strides: turns.iter().map(stride).collect(),
            }
        };
        NdCopy {
            dims: turns.iter().map(dim_of).collect(),
            fields: fields.map(field_copy).collect(),
        }
    }

    /// The loops of all dimensions. `field_bytes` is given where a table is for one field only;
    /// without it, `None` says that a table would have to be.
    fn turns(&self, along: &[Along], field_bytes: Option<u64>) -> Option<Vec<Turn>> {
        let mut turns = Vec::with_capacity(2 * along.len());
        for (dim, along) in along.iter().enumerate() {
            if self.src.list(dim).is_some() || self.dst.list(dim).is_some() {
                turns.push(self.listed_turn(dim, along, field_bytes)?);
            } else {
                turns.extend(along.iter().copied().map(plain_turn));
            }
        }
        Some(turns)
    }

    /// The one loop of a dimension along which a side has a list.
    fn listed_turn(
        &self,
        dim: usize,
        along: &[(u64, Point, Point)],
        field_bytes: Option<u64>,
    ) -> Option<Turn> {
        let lattice = &self.dims[dim];
        let src_loops: Vec<_> = along.iter().map(|l| (l.0, l.1)).collect();
        let dst_loops: Vec<_> = along.iter().map(|l| (l.0, l.2)).collect();
        Some(Turn {
            extent: lattice.len(),
            src: motion(self.src, dim, lattice, (&src_loops, field_bytes))?,
            dst: motion(self.dst, dim, lattice, (&dst_loops, field_bytes))?,
        })
    }
}

fn plain_turn((extent, src, dst): (u64, Point, Point)) -> Turn {
    let motion = |step| Motion { table: None, step };
    Turn { extent, src: motion(src), dst: motion(dst) }
}

fn dim_of(turn: &Turn) -> CopyDim {
    let table = |motion: &Motion| motion.table.as_ref().map(|t| Arc::from(&t[..]));
    CopyDim { extent: turn.extent, src_index: table(&turn.src), dst_index: table(&turn.dst) }
}

/// How `side` moves along the one loop over `lattice` that a list makes of `dim`.
fn motion(
    side: &Side,
    dim: usize,
    lattice: &Lattice,
    (loops, field_bytes): (&[(u64, Point)], Option<u64>),
) -> Option<Motion> {
    match (side.list(dim), loops) {
        (Some(list), _) if side.is_plain(dim) => {
            let table = lattice.indices().into_iter().map(|i| list[i as usize]).collect();
            Some(Motion { table: Some(table), step: side.listed(dim, 1) })
        }
        (Some(list), _) => {
            let indices = lattice.indices();
            table_of(indices.iter().map(|&i| side.listed(dim, list[i as usize])), field_bytes)
        }
        (None, []) => Some(Motion { table: None, step: Point::default() }),
        (None, [(_, step)]) => Some(Motion { table: None, step: *step }),
        (None, _) => table_of(positions(loops).into_iter(), field_bytes),
    }
}

/// The points that `loops` visit, from 0, outermost loop slowest.
fn positions(loops: &[(u64, Point)]) -> Vec<Point> {
    let mut points = vec![Point::default()];
    for &(count, step) in loops {
        let at = |p: Point, i: i64| Point {
            fixed: p.fixed + i * step.fixed,
            scaled: p.scaled + i * step.scaled,
            spread: 0,
        };
        points =
            points.into_iter().flat_map(|p| (0..count).map(move |i| at(p, i as i64))).collect();
    }
    points
}

/// A table of `points`: of bytes, or of multiples of the field's size. Points that mix both need
/// to know the field.
fn table_of(points: impl Iterator<Item = Point>, field_bytes: Option<u64>) -> Option<Motion> {
    let points: Vec<Point> = points.collect();
    let table = |value: &dyn Fn(&Point) -> i64| {
        let down = points.iter().map(value).min().is_some_and(|least| least < 0);
        let sign = if down { -1 } else { 1 };
        let table = points.iter().map(|p| value(p).unsigned_abs()).collect();
        (Some(table), sign)
    };
    if let Some(bytes) = field_bytes {
        let (table, fixed) = table(&|p| p.of_bytes(bytes));
        return Some(Motion { table, step: Point { fixed, ..Point::default() } });
    }
    if points.iter().all(|p| p.scaled == 0) {
        let (table, fixed) = table(&|p| p.fixed);
        return Some(Motion { table, step: Point { fixed, ..Point::default() } });
    }
    let (table, scaled) = table(&|p| p.scaled);
    let step = Point { scaled, ..Point::default() };
    points.iter().all(|p| p.fixed == 0).then_some(Motion { table, step })
}
