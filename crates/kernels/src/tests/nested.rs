//! Fields in loops that nest in any order on either side, and go either way.

use super::*;

/// Arrays of structures or of each field on either side.
#[derive(Debug, Clone)]
struct Nested {
    sizes: Vec<u64>,
    extents: Vec<u64>,
    sides: [Side; 2],
}

/// Where a field starts, and its strides.
type Placed = (i64, Vec<i64>);

/// One side. Loops are in the order of the extents.
#[derive(Debug, Clone)]
struct Side {
    /// The loops, the innermost first.
    order: Vec<usize>,
    /// How many entries are left out behind those of a loop.
    gaps: Vec<u64>,
    /// Which loops go down.
    down: Vec<bool>,
    are_arrays: bool,
}

fn nested() -> impl Strategy<Value = Nested> {
    let extent = prop_oneof![
        3 => 1u64..9,
        2 => 9u64..70,
        2 => prop::sample::select(vec![16u64, 32, 64, 128, 256]),
        1 => prop::sample::select(vec![61u64, 131, 257]),
    ];
    let size = || prop_oneof![4 => prop::sample::select(vec![1u64, 2, 4, 8, 16]), 1 => 1u64..40];
    let sizes = prop_oneof![
        3 => size().prop_map(|bytes| vec![bytes]),
        2 => (size(), 2usize..9).prop_map(|(bytes, fields)| vec![bytes; fields]),
        1 => prop::collection::vec(size(), 2..6),
    ];
    (prop::collection::vec(extent, 1..5), sizes).prop_flat_map(|(mut extents, sizes)| {
        let entry: u64 = sizes.iter().sum();
        while extents.len() > 1 && entry * extents.iter().product::<u64>() > MOST_BYTES {
            extents.pop();
        }
        let rank = extents.len();
        let side = || {
            let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
            let gaps =
                prop_oneof![2 => Just(vec![0; rank]), 1 => prop::collection::vec(0u64..3, rank)];
            let down = prop::collection::vec(prop::bool::weighted(0.3), rank);
            (order, gaps, down, any::<bool>()).prop_map(|(order, gaps, down, are_arrays)| Side {
                order,
                gaps,
                down,
                are_arrays,
            })
        };
        [side(), side()].prop_map(move |sides| Nested {
            sizes: sizes.clone(),
            extents: extents.clone(),
            sides,
        })
    })
}

impl Nested {
    fn fields(&self, side: &Side) -> Vec<Placed> {
        let entry: u64 = self.sizes.iter().sum();
        let (mut before, mut start) = (0, 0);
        let field = |&bytes: &u64| {
            let unit = if side.are_arrays { bytes } else { entry };
            let (mut step, mut lowest) = (unit.cast_signed(), 0);
            let mut strides = vec![0; self.extents.len()];
            for &k in &side.order {
                let extent = self.extents[k].cast_signed();
                strides[k] = if side.down[k] { -step } else { step };
                lowest += strides[k].min(0) * (extent - 1);
                step = step * extent + (side.gaps[k] * unit).cast_signed();
            }
            let at = if side.are_arrays { start } else { before };
            (before, start) = (before + bytes.cast_signed(), start + step);
            (at - lowest, strides)
        };
        self.sizes.iter().map(field).collect()
    }

    fn copy(&self) -> NdCopy {
        let [src, dst] = self.sides.each_ref().map(|side| self.fields(side));
        let field = |((&bytes, src), dst): ((&u64, Placed), Placed)| FieldCopy {
            bytes,
            src_offset: src.0,
            dst_offset: dst.0,
            padding: 0,
            strides: src.1.iter().zip(&dst.1).map(|(&src, &dst)| Stride { src, dst }).collect(),
        };
        let dim = |&extent: &u64| CopyDim { extent, src_index: None, dst_index: None };
        NdCopy {
            dims: self.extents.iter().map(dim).collect(),
            fields: self.sizes.iter().zip(src).zip(dst).map(field).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn fields_in_loops_that_go_either_way(
        nested in nested(),
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 4, 16, 60])),
    ) {
        check(&nested.copy(), bases);
    }
}
