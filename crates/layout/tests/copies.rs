//! `copies` against a naive copy, entry by entry, for random pairs of sides.

mod common;

use common::*;
use isometry_layout::{Part, Placement, Side, Stream, copies, oracle, touched};
use model::{Component, Dim, Field, FieldSpace, IndexSpace, Layout, NdCopy, Selection};
use proptest::prelude::*;
use std::ops::Range;

/// Where each byte of the payload lies: entries in the order of the stream of `range_of`.
type Bytes = Vec<i64>;

/// One side, with all that is needed to find a byte naively.
#[derive(Debug, Clone)]
enum Naive {
    Instance(Instance),
    Stream { layout: Layout, phase: Vec<u64>, base: u64 },
}

#[derive(Debug, Clone)]
struct Case {
    extents: Vec<u64>,
    field_bytes: Vec<u64>,
    src: Naive,
    dst: Naive,
    order: Layout,
    phase: Vec<u64>,
    range: (prop::sample::Index, prop::sample::Index),
}

impl Case {
    fn stream(&self, layout: &Layout, phase: &[u64]) -> Stream {
        Stream::new(layout, &self.extents, phase, &self.field_bytes).unwrap()
    }

    fn range(&self, bytes: u64) -> Range<u64> {
        let (a, b) =
            (self.range.0.index(bytes as usize + 1), self.range.1.index(bytes as usize + 1));
        a.min(b) as u64..a.max(b) as u64
    }

    /// The address of every byte on one side, in the order of `range_of`.
    fn bytes_of(&self, side: &Naive) -> Bytes {
        let entries = stream_order(&self.order, &self.extents, &self.phase, self.field_bytes.len());
        let mut out = Vec::new();
        let places = match side {
            Naive::Stream { layout, phase, .. } => self.stream_places(layout, phase),
            Naive::Instance(_) => Default::default(),
        };
        for (index, field) in entries {
            let start = match side {
                Naive::Instance(instance) => instance.address(&index, field),
                Naive::Stream { base, .. } => places[&(index, field)] - *base as i64,
            };
            out.extend((0..self.field_bytes[field] as i64).map(|b| start + b));
        }
        out
    }

    fn stream_places(
        &self,
        layout: &Layout,
        phase: &[u64],
    ) -> std::collections::HashMap<(Vec<u64>, usize), i64> {
        let mut at = 0;
        let mut places = std::collections::HashMap::new();
        for (index, field) in stream_order(layout, &self.extents, phase, self.field_bytes.len()) {
            places.insert((index, field), at);
            at += self.field_bytes[field] as i64;
        }
        places
    }
}

fn sides(extents: Vec<u64>, bytes: Vec<u64>, is_source: bool) -> BoxedStrategy<Naive> {
    let rank = extents.len();
    let gaps = prop::collection::vec(0u64..3, bytes.len() + 1);
    let order = Just((0..bytes.len()).collect::<Vec<_>>()).prop_shuffle();
    let instance = (gaps, order).prop_flat_map(move |(gaps, order)| {
        // Declare the fields in a random order; the copy's order undoes it.
        let declared: Vec<u64> = order.iter().map(|&f| bytes[f]).collect();
        let fields = spread(&declared, &gaps, 1);
        let back: Vec<usize> =
            (0..order.len()).map(|f| order.iter().position(|&o| o == f).unwrap()).collect();
        instances(extents.clone(), fields, is_source).prop_map(move |mut instance| {
            instance.order = back.clone();
            Naive::Instance(instance)
        })
    });
    let stream = (layouts(rank), prop::collection::vec(0u64..30, rank), 0u64..50)
        .prop_map(|(layout, phase, base)| Naive::Stream { layout, phase, base });
    prop_oneof![3 => instance, 2 => stream].boxed()
}

fn cases() -> impl Strategy<Value = Case> {
    (extents(8), prop::collection::vec(1u64..9, 1..4)).prop_flat_map(|(extents, field_bytes)| {
        let rank = extents.len();
        (
            sides(extents.clone(), field_bytes.clone(), true),
            sides(extents.clone(), field_bytes.clone(), false),
            layouts(rank),
            prop::collection::vec(0u64..30, rank),
            any::<(prop::sample::Index, prop::sample::Index)>(),
            any::<bool>(),
        )
            .prop_map(move |(src, dst, order, phase, range, _)| Case {
                extents: extents.clone(),
                field_bytes: field_bytes.clone(),
                src,
                dst,
                order,
                phase,
                range,
            })
    })
}

/// The bytes of padding that `copy` names.
fn padding_of(copy: &NdCopy) -> Vec<i64> {
    let mut all = Vec::new();
    for field in &copy.fields {
        let mut ends = vec![field.dst_offset + field.bytes as i64];
        for (dim, stride) in copy.dims.iter().zip(&field.strides) {
            let at = |i: u64| dim.dst_index.as_ref().map_or(i, |table| table[i as usize]) as i64;
            let turns = |end: &i64| {
                let end = *end;
                (0..dim.extent).map(move |i| end + at(i) * stride.dst)
            };
            ends = ends.iter().flat_map(turns).collect();
        }
        all.extend(ends.into_iter().flat_map(|end| end..end + field.padding as i64));
    }
    all
}

/// Whether what `list` takes for padding is the instance's, and no field's; wrapped arrays and streams have none.
fn check_padding(list: &[NdCopy], dst: &Naive) -> Result<(), TestCaseError> {
    let padding: Vec<i64> = list.iter().flat_map(padding_of).collect();
    let structure = match dst {
        _ if padding.is_empty() => return Ok(()),
        Naive::Instance(instance) => match &instance.storage {
            Storage::Layout(layout) if layout.components()[0] == Component::Fields => instance,
            _ => return Err(TestCaseError::fail("no structure that is laid out")),
        },
        Naive::Stream { .. } => return Err(TestCaseError::fail("streams have no padding")),
    };
    let (span, fields) = (structure.placement().span(), &structure.fields);
    let is_field = |at: i64| {
        let at = at as u64 % fields.item_bytes();
        fields.fields().iter().any(|field| (field.offset..field.offset + field.bytes).contains(&at))
    };
    prop_assert!(padding.iter().all(|&at| span.contains(&at) && !is_field(at)));
    Ok(())
}

/// Runs `list` by the oracle and compares with the naive copy; bytes outside stay as they were.
fn check(list: &[NdCopy], src: &[i64], dst: &[i64]) -> Result<(), TestCaseError> {
    let bounds = |b: &[i64]| {
        let lo = b.iter().copied().min().unwrap_or(0);
        (lo, b.iter().copied().max().unwrap_or(-1) + 1)
    };
    let ((src_lo, src_hi), (dst_lo, dst_hi)) = (bounds(src), bounds(dst));
    for copy in list {
        let (from, to) = touched(copy);
        prop_assert!(src_lo <= from.start && from.end <= src_hi);
        let padding = padding_of(copy).into_iter().max().unwrap_or(dst_hi - 1);
        prop_assert!(dst_lo <= to.start && to.end <= dst_hi.max(padding + 1));
    }
    // Relative to the bases the bytes may start anywhere: shift the copies into the buffers.
    let source: Vec<u8> =
        (0..(src_hi - src_lo) as usize).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut expected = vec![0xEE; (dst_hi - dst_lo) as usize];
    let mut got = expected.clone();
    for (&from, &to) in src.iter().zip(dst) {
        expected[(to - dst_lo) as usize] = source[(from - src_lo) as usize];
    }
    for copy in list {
        let mut copy = copy.clone();
        for field in &mut copy.fields {
            field.src_offset -= src_lo;
            field.dst_offset -= dst_lo;
        }
        oracle::copy(&copy, &source, 0, &mut got, 0);
    }
    prop_assert_eq!(expected, got);
    let payload: u64 = list.iter().map(NdCopy::payload_bytes).sum();
    prop_assert_eq!(payload, src.len() as u64);
    Ok(())
}

/// The random side as the crate knows it.
enum Known {
    Part(Part),
    Stream(Box<Stream>, u64),
}

impl Known {
    fn of(case: &Case, side: &Naive) -> Self {
        match side {
            Naive::Instance(instance) => Known::Part(instance.part()),
            Naive::Stream { layout, phase, base } => {
                Known::Stream(Box::new(case.stream(layout, phase)), *base)
            }
        }
    }

    fn side(&self) -> Side<'_> {
        match self {
            Known::Part(part) => Side::Instance(part),
            Known::Stream(stream, base) => Side::Stream { stream, base: *base },
        }
    }
}

fn check_case(case: &Case) -> Result<(), TestCaseError> {
    let range_of = case.stream(&case.order, &case.phase);
    let (src, dst) = (Known::of(case, &case.src), Known::of(case, &case.dst));
    let (src_bytes, dst_bytes) = (case.bytes_of(&case.src), case.bytes_of(&case.dst));
    for range in [0..range_of.bytes(), case.range(range_of.bytes())] {
        let list = copies(src.side(), dst.side(), &range_of, range.clone());
        let bytes = range.start as usize..range.end as usize;
        check(&list, &src_bytes[bytes.clone()], &dst_bytes[bytes])?;
        check_padding(&list, &case.dst)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn copies_are_those_of_the_naive_copy(case in cases()) {
        check_case(&case)?;
    }
}

/// Which bytes behind each field the copies of `range` take for padding, from arrays to structures of these fields,
/// or to an array of such that is wrapped.
fn padding(fields: &[usize], wrapped: bool, range: Option<Range<u64>>) -> Vec<Vec<u64>> {
    let entries = Dim { name: "x".into(), lo: 0, hi: 5 };
    let space = IndexSpace::new(vec![entries]).unwrap();
    // Of 1, 4 and 8 bytes, at 0, 4 and 8 of 24.
    let field = |(bytes, offset): (u64, u64)| Field {
        name: format!("f{offset}").into(),
        bytes,
        offset,
        dtype: "".into(),
    };
    let structure = [(1, 0), (4, 4), (8, 8)].map(field).to_vec();
    let structure = FieldSpace::new(structure, 24).unwrap();
    let layout = |components: [Component; 2]| Layout::new(components.to_vec(), 1).unwrap();
    let aos = layout([Component::Fields, Component::Whole(0)]);
    let soa = layout([Component::Whole(0), Component::Fields]);
    let src = Placement::of_layout(&soa, &space, &structure).unwrap();
    let dst = match wrapped {
        true => Placement::of_strides(&space, &structure, &[24]).unwrap(),
        false => Placement::of_layout(&aos, &space, &structure).unwrap(),
    };
    let all = Selection::all(&space);
    let (src, dst) = (src.select(&all, fields).unwrap(), dst.select(&all, fields).unwrap());
    let stream = Stream::new(&aos, &[5], &[0], dst.field_bytes()).unwrap();
    let range = range.unwrap_or(0..stream.bytes());
    let list = copies(Side::Instance(&src), Side::Instance(&dst), &stream, range);
    list.iter().map(|copy| copy.fields.iter().map(|field| field.padding).collect()).collect()
}

#[test]
fn structures_that_are_laid_out_have_padding() {
    assert_eq!(padding(&[0, 1, 2], false, None), [vec![3, 0, 8]]);
    assert_eq!(padding(&[1], false, None), [vec![0]], "what is behind it is another field");
    assert_eq!(padding(&[2], false, None), [vec![8]]);
    assert_eq!(padding(&[0, 1, 2], true, None), [vec![0; 3]], "gaps may be somebody else's");
    let half = padding(&[2], false, Some(0..4));
    assert_eq!(half, [vec![0]], "the rest of the field is behind it");
    assert_eq!(padding(&[2], false, Some(4..8)), [vec![8]]);
}
