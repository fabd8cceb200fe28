//! Random instances and streams, and naive readings of what they mean.
#![allow(dead_code, unreachable_pub, missing_docs)]

use isometry_layout::{Part, Placement};
use model::{Component, Dim, Field, FieldSpace, IndexSpace, Layout, Selection, Span};
use proptest::prelude::*;

/// An instance with a box of it.
#[derive(Debug, Clone)]
pub struct Instance {
    pub space: IndexSpace,
    pub fields: FieldSpace,
    pub order: Vec<usize>,
    pub storage: Storage,
    pub selection: Selection,
}

/// How an instance is stored.
#[derive(Debug, Clone)]
pub enum Storage {
    Layout(Layout),
    Strides(Vec<i64>),
}

impl Instance {
    pub fn placement(&self) -> Placement {
        match &self.storage {
            Storage::Layout(layout) => Placement::of_layout(layout, &self.space, &self.fields),
            Storage::Strides(strides) => Placement::of_strides(&self.space, &self.fields, strides),
        }
        .unwrap()
    }

    pub fn part(&self) -> Part {
        self.placement().select(&self.selection, &self.order).unwrap()
    }

    /// The address of a box-relative entry, read off CONTRACTS.md's formula.
    pub fn address(&self, index: &[u64], field: usize) -> i64 {
        let field = self.order[field];
        let absolute: Vec<i64> = self
            .selection
            .spans()
            .iter()
            .zip(index)
            .map(|(span, &i)| match span {
                Span::Range { lo, .. } => lo + i as i64,
                Span::List(list) => list[i as usize],
            })
            .collect();
        match &self.storage {
            Storage::Strides(strides) => {
                let dims = self.space.dims();
                let along = (0..dims.len()).map(|d| (absolute[d] - dims[d].lo) * strides[d]);
                self.fields.fields()[field].offset as i64 + along.sum::<i64>()
            }
            Storage::Layout(layout) => {
                contract_address(layout, &self.space, &self.fields, (&absolute, field))
            }
        }
    }
}

/// The value of `component` at the index `i` (from the lower bound) of its dimension.
pub fn digit(layout: &Layout, component: Component, i: u64) -> u64 {
    let blocks: Vec<u64> = layout.blocks(component.dim().unwrap()).collect();
    match component {
        Component::Inner { level, size, .. } => {
            i / blocks[..usize::from(level) - 1].iter().product::<u64>() % size
        }
        Component::Outer(_) => i / blocks.iter().product::<u64>(),
        _ => i,
    }
}

/// `addr = Σ index_c · step_c + off_f`, word for word.
pub fn contract_address(
    layout: &Layout,
    space: &IndexSpace,
    fields: &FieldSpace,
    (index, field): (&[i64], usize),
) -> i64 {
    let is_first = layout.components()[0] == Component::Fields;
    let sum = if is_first { fields.item_bytes() } else { fields.payload_bytes() };
    let size = fields.fields()[field].bytes;
    let (mut product, mut behind, mut address) = (1u64, false, 0u64);
    for &component in layout.components() {
        let Some(dim) = component.dim() else {
            behind = true;
            let before: u64 = fields.fields()[..field].iter().map(|f| f.bytes).sum();
            address += if is_first { fields.fields()[field].offset } else { product * before };
            continue;
        };
        let i = (index[dim] - space.dims()[dim].lo) as u64;
        let extent = space.dims()[dim].extent();
        address += digit(layout, component, i) * product * if behind { sum } else { size };
        product *= match component {
            Component::Inner { size, .. } => size,
            Component::Outer(_) => extent.div_ceil(layout.blocks(dim).product::<u64>()),
            _ => extent,
        };
    }
    address as i64
}

/// All indices of a box, last dimension fastest.
pub fn indices(extents: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &extent in extents {
        let longer = |i: &Vec<u64>| {
            let i = i.clone();
            (0..extent).map(move |e| i.iter().copied().chain([e]).collect())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Every (index, field) of a box in the order of the stream, by sorting.
pub fn stream_order(
    layout: &Layout,
    extents: &[u64],
    phase: &[u64],
    fields: usize,
) -> Vec<(Vec<u64>, usize)> {
    let mut entries: Vec<(Vec<u64>, usize)> = indices(extents)
        .into_iter()
        .flat_map(|i| (0..fields).map(move |f| (i.clone(), f)))
        .collect();
    entries.sort_by_cached_key(|(index, field)| {
        let value = |&c: &Component| match c.dim() {
            None => *field as u64,
            Some(d) => digit(layout, c, index[d] + phase[d]),
        };
        layout.components().iter().rev().map(value).collect::<Vec<u64>>()
    });
    entries
}

/// Field spaces of one to four fields, packed or padded.
pub fn field_spaces() -> impl Strategy<Value = FieldSpace> {
    prop::collection::vec(1u64..9, 1..4).prop_flat_map(|bytes| {
        let gaps = prop::collection::vec(0u64..3, bytes.len() + 1);
        (Just(bytes), gaps, any::<bool>())
            .prop_map(|(bytes, gaps, padded)| spread(&bytes, &gaps, u64::from(padded)))
    })
}

/// Fields of `bytes` with `gaps · scale` before each and after the last.
pub fn spread(bytes: &[u64], gaps: &[u64], scale: u64) -> FieldSpace {
    let mut end = 0;
    let mut fields = Vec::new();
    for (i, &size) in bytes.iter().enumerate() {
        let offset = end + gaps[i] * scale;
        end = offset + size;
        fields.push(Field { name: format!("f{i}").into(), bytes: size, offset, dtype: "".into() });
    }
    FieldSpace::new(fields, end + gaps[bytes.len()] * scale).unwrap()
}

/// Any layout of `rank` dimensions, some of them in blocks of up to two levels.
pub fn layouts(rank: usize) -> impl Strategy<Value = Layout> {
    let blocks = prop::collection::vec(prop::collection::vec(1u64..6, 0..3), rank);
    blocks.prop_flat_map(move |blocks| {
        let mut components = vec![Component::Fields];
        for (dim, sizes) in blocks.iter().enumerate() {
            let dim = dim as u8;
            for (k, &size) in sizes.iter().enumerate() {
                components.push(Component::Inner { dim, level: k as u8 + 1, size });
            }
            components.push(match sizes.len() {
                0 => Component::Whole(dim),
                _ => Component::Outer(dim),
            });
        }
        Just(components).prop_shuffle().prop_map(move |c| Layout::new(c, rank).unwrap())
    })
}

/// A span of `extent` indices in a dimension with room around it; with the dimension.
fn spans(extent: u64, list: bool) -> BoxedStrategy<((i64, i64), Span)> {
    let room = (-9i64..9, 0i64..5, 0i64..5);
    if !list {
        let build = move |(lo, before, after): (i64, i64, i64)| {
            let first = lo + before;
            let hi = first + extent as i64;
            ((lo, hi + after), Span::Range { lo: first, hi })
        };
        return room.prop_map(build).boxed();
    }
    room.prop_flat_map(move |(lo, before, after)| {
        let size = extent as i64 + before + after;
        let all = Just((lo..lo + size).collect::<Vec<_>>()).prop_shuffle();
        all.prop_map(move |mut all| {
            all.truncate(extent as usize);
            ((lo, lo + size), Span::List(all.into()))
        })
    })
    .boxed()
}

/// Strides that keep entries apart: dimensions nested in a random order, with gaps, signs, and
/// (for a source) now and then 0.
fn strides(extents: Vec<u64>, item: u64, zeros: bool) -> impl Strategy<Value = Vec<i64>> {
    let rank = extents.len();
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let each = prop::collection::vec((0i64..3, any::<bool>(), 0u8..6), rank);
    (order, each).prop_map(move |(order, each)| {
        let mut strides = vec![0; rank];
        let mut step = item as i64;
        for (&d, &(gap, down, zero)) in order.iter().zip(&each) {
            step += gap;
            strides[d] = if down { -step } else { step };
            if zeros && zero == 0 {
                strides[d] = 0;
            }
            step *= (extents[d] as i64).max(1);
        }
        strides
    })
}

/// An instance with a box of `extents`.
pub fn instances(
    extents: Vec<u64>,
    fields: FieldSpace,
    is_source: bool,
) -> impl Strategy<Value = Instance> {
    let rank = extents.len();
    let all: Vec<_> = extents
        .iter()
        .map(|&extent| prop_oneof![3 => spans(extent, false), 1 => spans(extent, true)].boxed())
        .collect();
    let order = Just((0..fields.fields().len()).collect::<Vec<_>>()).prop_shuffle();
    (all, order, any::<bool>()).prop_flat_map(move |(spans, order, by_layout)| {
        let dims: Vec<Dim> = spans
            .iter()
            .enumerate()
            .map(|(d, ((lo, hi), _))| Dim { name: format!("d{d}").into(), lo: *lo, hi: *hi })
            .collect();
        let space = IndexSpace::new(dims).unwrap();
        let spans = spans.into_iter().map(|(_, span)| span).collect();
        let selection = Selection::new(&space, spans).unwrap();
        let fields = fields.clone();
        let storage = if by_layout {
            layouts(rank).prop_map(Storage::Layout).boxed()
        } else {
            let item = fields.item_bytes();
            strides(space.extents(), item, is_source).prop_map(Storage::Strides).boxed()
        };
        storage.prop_map(move |storage| Instance {
            space: space.clone(),
            fields: fields.clone(),
            order: order.clone(),
            storage,
            selection: selection.clone(),
        })
    })
}

/// Extents of one to `most` dimensions, small enough to enumerate; 0 and 1 among them.
pub fn extents(most: usize) -> impl Strategy<Value = Vec<u64>> {
    (1..=most).prop_flat_map(|rank| {
        let largest = [0u64, 24, 14, 8, 6, 4, 4, 3, 3][rank];
        let extent = prop_oneof![1 => 0u64..2, 8 => 1..=largest];
        prop::collection::vec(extent, rank).prop_map(|mut extents| {
            while extents.iter().product::<u64>() > 300 {
                let largest = (0..extents.len()).max_by_key(|&d| extents[d]).unwrap();
                extents[largest] /= 2;
            }
            extents
        })
    })
}

/// The fields of `fields` in another order of declaration, so that both sides differ in it.
pub fn reordered(fields: &FieldSpace, order: &[usize], gaps: &[u64]) -> FieldSpace {
    let bytes: Vec<u64> = order.iter().map(|&f| fields.fields()[f].bytes).collect();
    spread(&bytes, gaps, 1)
}
