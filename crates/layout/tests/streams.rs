//! Streams against their naive enumeration.

mod common;

use common::*;
use isometry_layout::Stream;
use model::Layout;
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    extents: Vec<u64>,
    phase: Vec<u64>,
    field_bytes: Vec<u64>,
}

impl Case {
    fn stream(&self) -> Stream {
        Stream::new(&self.layout, &self.extents, &self.phase, &self.field_bytes).unwrap()
    }

    /// (index, field, byte of the field) of each position.
    fn enumerated(&self) -> Vec<(Vec<u64>, usize, u64)> {
        let entries =
            stream_order(&self.layout, &self.extents, &self.phase, self.field_bytes.len());
        let bytes = |(index, field): (Vec<u64>, usize)| {
            (0..self.field_bytes[field]).map(move |b| (index.clone(), field, b))
        };
        entries.into_iter().flat_map(bytes).collect()
    }

    /// The components from `below` on, slowest first, at each position.
    fn slow_values(&self, below: usize) -> Vec<Vec<u64>> {
        let slow = &self.layout.components()[below..];
        let values = |(index, field, _): (Vec<u64>, usize, u64)| {
            let value = |c: &model::Component| match c.dim() {
                None => field as u64,
                Some(d) => digit(&self.layout, *c, index[d] + self.phase[d]),
            };
            slow.iter().rev().map(value).collect()
        };
        self.enumerated().into_iter().map(values).collect()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (extents(4), prop::collection::vec(1u64..9, 1..4)).prop_flat_map(|(extents, field_bytes)| {
        let rank = extents.len();
        (layouts(rank), prop::collection::vec(0u64..30, rank)).prop_map(move |(layout, phase)| {
            Case { layout, extents: extents.clone(), phase, field_bytes: field_bytes.clone() }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_position_is_that_of_the_enumeration(case in cases()) {
        let stream = case.stream();
        let all = case.enumerated();
        prop_assert_eq!(stream.bytes(), all.len() as u64);
        for (at, (index, field, byte)) in all.into_iter().enumerate() {
            prop_assert_eq!(stream.position(&index, field) + byte, at as u64);
        }
    }

    #[test]
    fn cells_tile_a_range(case in cases(), a: prop::sample::Index, b: prop::sample::Index) {
        let stream = case.stream();
        let all = case.enumerated();
        let (a, b) = (a.index(all.len() + 1), b.index(all.len() + 1));
        let range = a.min(b)..a.max(b);
        let mut got = Vec::new();
        for cell in stream.cells(range.start as u64..range.end as u64) {
            let mut boxes = vec![vec![]];
            for lattice in &cell.dims {
                let longer = |b: &Vec<u64>| {
                    let b = b.clone();
                    lattice.indices().into_iter().map(move |i| b.iter().copied().chain([i]).collect())
                };
                boxes = boxes.iter().flat_map(longer).collect();
            }
            for index in boxes {
                for field in cell.fields.clone() {
                    let bytes = cell.bytes.clone().unwrap_or(0..case.field_bytes[field]);
                    got.extend(bytes.map(|byte| (index.clone(), field, byte)));
                }
            }
        }
        let mut expected = all[range].to_vec();
        got.sort();
        expected.sort();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn a_granule_is_one_iteration_of_the_slow_components(case in cases()) {
        let stream = case.stream();
        for below in 0..=case.layout.components().len() {
            let values = case.slow_values(below);
            let mut start = 0;
            while start < values.len() {
                let len = values[start..].iter().take_while(|v| **v == values[start]).count();
                for at in [start, start + len - 1] {
                    let granule = stream.granule_at(below, at as u64);
                    prop_assert_eq!(granule, start as u64..(start + len) as u64);
                }
                start += len;
            }
        }
    }

    #[test]
    fn cuts_end_at_the_largest_boundary(case in cases(), want in 1u64..400) {
        let stream = case.stream();
        let largest = *case.field_bytes.iter().max().unwrap();
        let all = case.enumerated();
        let mut from = 0;
        while from < stream.bytes() {
            let end = stream.cut(from, want);
            prop_assert!(from < end && end <= stream.bytes());
            prop_assert!(end - from <= want.max(largest));
            prop_assert!(end == stream.bytes() || all[end as usize].2 == 0);
            from = end;
        }
    }
}
