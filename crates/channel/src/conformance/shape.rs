//! Random canonical copies, straight from the definition of the form: any extents, any strides
//! that don't make the destination overlap itself, negative ones, zero ones in the source, index
//! tables on either side, fields of any size.

use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::sync::Arc;

/// Numbers from a seed (splitmix64): the same everywhere, for ever.
#[derive(Debug, Clone)]
pub struct Draw {
    state: u64,
}

impl Draw {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Draw { state: seed }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// True in one case out of `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.number().to_le_bytes());
        words.take(len).collect()
    }

    /// The numbers below `n` in any order.
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            let j = usize::try_from(self.below(i as u64 + 1)).expect("an index");
            order.swap(i, j);
        }
        order
    }
}

/// A copy and the room that it needs: offsets count from 0 on either side.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The copy.
    pub copy: NdCopy,
    /// It reads bytes below this.
    pub src_bytes: u64,
    /// It writes bytes below this.
    pub dst_bytes: u64,
}

/// One side of a copy while it is drawn.
struct SideShape {
    index: Vec<Option<Arc<[u64]>>>,
    offsets: Vec<u64>,
    strides: Vec<Vec<i64>>,
    bytes: u64,
}

impl Shape {
    /// A copy of up to four dimensions, 512 points and three fields of up to `field_bytes` each.
    pub fn draw(draw: &mut Draw, field_bytes: u64) -> Shape {
        let mut extents = Vec::new();
        for _ in 0..draw.below(5) {
            let room = 512 / extents.iter().product::<u64>().max(1);
            extents.push(1 + draw.below(room.clamp(1, 9)));
        }
        let fields: Vec<u64> = (0..=draw.below(3)).map(|_| 1 + draw.below(field_bytes)).collect();
        let src = side(draw, &extents, &fields, true);
        let dst = side(draw, &extents, &fields, false);
        Shape {
            src_bytes: src.bytes,
            dst_bytes: dst.bytes,
            copy: join(extents, &fields, &src, &dst),
        }
    }

    /// One run of `bytes`.
    #[must_use]
    pub fn run(bytes: u64) -> Shape {
        let field =
            FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
        let copy = NdCopy { dims: Vec::new(), fields: vec![field] };
        Shape { copy, src_bytes: bytes, dst_bytes: bytes }
    }
}

fn join(extents: Vec<u64>, fields: &[u64], src: &SideShape, dst: &SideShape) -> NdCopy {
    let dims = extents.into_iter().enumerate().map(|(d, extent)| CopyDim {
        extent,
        src_index: src.index[d].clone(),
        dst_index: dst.index[d].clone(),
    });
    let fields = fields.iter().enumerate().map(|(f, &bytes)| FieldCopy {
        bytes,
        src_offset: i64::try_from(src.offsets[f]).expect("a small offset"),
        dst_offset: i64::try_from(dst.offsets[f]).expect("a small offset"),
        padding: 0,
        strides: (0..src.index.len())
            .map(|d| Stride { src: src.strides[f][d], dst: dst.strides[f][d] })
            .collect(),
    });
    NdCopy { dims: dims.collect(), fields: fields.collect() }
}

/// Places the points of `extents` and `fields` without overlap, or with where `repeats`.
fn side(draw: &mut Draw, extents: &[u64], fields: &[u64], repeats: bool) -> SideShape {
    let index: Vec<_> = extents.iter().map(|&n| table(draw, n, repeats)).collect();
    let positions: Vec<u64> = extents.iter().zip(&index).map(|(&n, t)| highest(n, t) + 1).collect();
    let order = draw.order(extents.len());
    let mut shape = SideShape { index, offsets: vec![], strides: vec![], bytes: 0 };
    if draw.one_in(2) {
        place_structures(draw, &mut shape, (&positions, &order, fields));
    } else {
        place_fields(draw, &mut shape, (&positions, &order, fields));
    }
    for (d, count) in positions.iter().enumerate() {
        twist(draw, &mut shape, (d, count - 1, repeats));
    }
    shape
}

/// All fields of a point beside each other.
fn place_structures(
    draw: &mut Draw,
    shape: &mut SideShape,
    (positions, order, fields): (&[u64], &[usize], &[u64]),
) {
    let mut record = 0;
    for &bytes in fields {
        record += pad(draw);
        shape.offsets.push(record);
        record += bytes;
    }
    let (strides, bytes) = steps(draw, positions, order, record);
    shape.strides = vec![strides; fields.len()];
    shape.bytes = bytes;
}

/// Each field in an array of its own.
fn place_fields(
    draw: &mut Draw,
    shape: &mut SideShape,
    (positions, order, fields): (&[u64], &[usize], &[u64]),
) {
    for &field in fields {
        let (strides, bytes) = steps(draw, positions, order, field);
        shape.offsets.push(shape.bytes);
        shape.strides.push(strides);
        shape.bytes += bytes + pad(draw);
    }
}

/// The stride of each dimension where `order` is fastest first and an element has `bytes`, and
/// the bytes of the whole.
fn steps(draw: &mut Draw, positions: &[u64], order: &[usize], bytes: u64) -> (Vec<i64>, u64) {
    let mut strides = vec![0; positions.len()];
    let mut step = bytes;
    for &d in order {
        step += pad(draw);
        strides[d] = i64::try_from(step).expect("a small stride");
        step *= positions[d];
    }
    (strides, step)
}

/// Turns a dimension round, or, where points may repeat, lets it stand still.
fn twist(draw: &mut Draw, shape: &mut SideShape, (d, last, repeats): (usize, u64, bool)) {
    let (backwards, still) = (draw.one_in(4), repeats && draw.one_in(6));
    for (offset, strides) in shape.offsets.iter_mut().zip(&mut shape.strides) {
        if still {
            strides[d] = 0;
        } else if backwards {
            *offset += strides[d].unsigned_abs() * last;
            strides[d] = -strides[d];
        }
    }
}

/// Mostly none, so that runs stay contiguous.
fn pad(draw: &mut Draw) -> u64 {
    if draw.one_in(3) { draw.below(9) } else { 0 }
}

/// An index table of `extent` positions, distinct unless they may repeat; mostly none.
fn table(draw: &mut Draw, extent: u64, repeats: bool) -> Option<Arc<[u64]>> {
    if !draw.one_in(5) {
        return None;
    }
    if repeats {
        return Some((0..extent).map(|_| draw.below(extent + 3)).collect());
    }
    let all = draw.order(usize::try_from(extent + 3).expect("a small extent"));
    Some(all.into_iter().map(|i| i as u64).take(usize::try_from(extent).ok()?).collect())
}

fn highest(extent: u64, table: &Option<Arc<[u64]>>) -> u64 {
    table.as_ref().map_or(extent - 1, |t| t.iter().copied().max().unwrap_or(0))
}
