//! Kernels against the naive copy, for random copies at any alignment.

use isometry_kernels::{OutOfBounds, copy_slices, parts, split};
use layout::{CopyDim, FieldCopy, NdCopy, Stride, oracle, touched};
use proptest::prelude::*;
use proptest::sample::Index;

/// Random copies for each property, and the entries of the largest: Miri is ten thousand times slower.
const CASES: u32 = if cfg!(miri) { 6 } else { 1000 };
const MOST_ENTRIES: u64 = if cfg!(miri) { 100 } else { 6000 };

/// Loops of random extents; per loop a random choice of tables and gaps.
#[derive(Debug, Clone)]
struct Shape {
    extents: Vec<u64>,
    field_bytes: Vec<u64>,
    src_order: Vec<usize>,
    dst_order: Vec<usize>,
    gaps: Vec<(u64, u64)>,
    down: Vec<(bool, bool)>,
    shuffled: Vec<Option<Index>>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let extent = prop_oneof![3 => 1u64..6, 2 => 7u64..40, 1 => Just(67)];
    let bytes =
        prop_oneof![4 => prop::sample::select(vec![1u64, 2, 3, 4, 6, 8, 12, 16]), 1 => 1u64..70];
    let fields = prop::collection::vec(bytes, 1..4);
    (prop::collection::vec(extent, 0..4), fields).prop_flat_map(|(mut extents, field_bytes)| {
        while extents.iter().product::<u64>() > MOST_ENTRIES {
            extents.pop();
        }
        let rank = extents.len();
        let order = || Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
        let gaps =
            prop_oneof![Just(vec![(0, 0); rank]), prop::collection::vec((0u64..3, 0u64..3), rank)];
        let tables = prop_oneof![
            3 => Just(vec![None; rank]),
            1 => prop::collection::vec(prop::option::of(any::<Index>()), rank),
        ];
        let down =
            prop::collection::vec((prop::bool::weighted(0.1), prop::bool::weighted(0.1)), rank);
        (Just((extents, field_bytes)), order(), order(), gaps, (down, tables)).prop_map(
            |((extents, field_bytes), src_order, dst_order, gaps, (down, shuffled))| Shape {
                extents,
                field_bytes,
                src_order,
                dst_order,
                gaps,
                down,
                shuffled,
            },
        )
    })
}

impl Shape {
    /// Strides of one side, nested in `order` from the last to the first.
    fn strides(&self, order: &[usize], side: impl Fn(usize) -> (u64, bool)) -> (Vec<i64>, i64) {
        let mut strides = vec![0; self.extents.len()];
        let mut step = self.field_bytes.iter().sum::<u64>() as i64;
        let mut lowest = 0;
        for &k in order.iter().rev() {
            let (gap, down) = side(k);
            step += gap as i64;
            strides[k] = if down { -step } else { step };
            lowest += strides[k].min(0) * (self.extents[k] as i64 - 1);
            step *= self.extents[k] as i64;
        }
        (strides, lowest)
    }

    fn copy(&self) -> NdCopy {
        let (src, src_lo) = self.strides(&self.src_order, |k| (self.gaps[k].0, self.down[k].0));
        let (dst, dst_lo) = self.strides(&self.dst_order, |k| (self.gaps[k].1, self.down[k].1));
        let mut before = 0;
        let mut fields = Vec::new();
        for &bytes in &self.field_bytes {
            let strides = src.iter().zip(&dst).map(|(&src, &dst)| Stride { src, dst });
            fields.push(FieldCopy {
                bytes,
                src_offset: before - src_lo,
                dst_offset: before - dst_lo,
                padding: 0,
                strides: strides.collect(),
            });
            before += bytes as i64;
        }
        let table = |k: usize, salt: usize| {
            let turn = self.shuffled[k].as_ref()?.index(self.extents[k] as usize);
            let mut table: Vec<u64> = (0..self.extents[k]).collect();
            table.rotate_left(turn);
            if salt == 1 {
                table.reverse()
            }
            Some(table.into())
        };
        let dim = |k: usize| CopyDim {
            extent: self.extents[k],
            src_index: table(k, 0),
            dst_index: table(k, 1),
        };
        NdCopy { dims: (0..self.extents.len()).map(dim).collect(), fields }
    }
}

fn source(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// Runs `list` with the kernels and `copy` with the oracle, from the same odd bases.
fn check(list: &[NdCopy], copy: &NdCopy, bases: (usize, usize)) -> Result<(), TestCaseError> {
    let (read, written) = touched(copy);
    let src = source(read.end as usize + bases.0);
    let mut expected = vec![0xEE; written.end as usize + bases.1 + 3];
    let mut got = expected.clone();
    oracle::copy(copy, &src, bases.0, &mut expected, bases.1);
    for part in list {
        prop_assert_eq!(copy_slices(part, &src, bases.0, &mut got, bases.1), Ok(()));
    }
    prop_assert!(expected == got, "bytes differ");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn kernels_move_what_the_oracle_moves(shape in shapes(), src in 0usize..17, dst in 0usize..17) {
        let copy = shape.copy();
        check(std::slice::from_ref(&copy), &copy, (src, dst))?;
    }

    #[test]
    fn pieces_are_the_whole(shape in shapes(), pieces in 1usize..9) {
        let copy = shape.copy();
        let list = split(&copy, pieces);
        prop_assert!(list.len() <= pieces.max(1));
        prop_assert_eq!(list.iter().map(NdCopy::payload_bytes).sum::<u64>(), copy.payload_bytes());
        check(&list, &copy, (0, 0))?;
    }

    #[test]
    fn parts_are_the_whole(shape in shapes(), most in 1u64..9) {
        let copy = shape.copy();
        let list: Vec<_> = parts(&copy, most).collect();
        let sizes: Vec<_> = list.iter().map(NdCopy::payload_bytes).collect();
        prop_assert_eq!(sizes.iter().sum::<u64>(), copy.payload_bytes());
        let (last, others) = sizes.split_last().unwrap();
        prop_assert!(others.windows(2).all(|pair| pair[0] == pair[1]));
        prop_assert!(others.iter().all(|other| last <= other));
        check(&list, &copy, (0, 0))?;
    }
}

fn run(bytes: u64) -> NdCopy {
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: vec![] };
    NdCopy { dims: vec![], fields: vec![field] }
}

#[test]
fn a_run_is_cut_at_pages() {
    let sizes: Vec<u64> = split(&run(10_000), 2).iter().map(NdCopy::payload_bytes).collect();
    assert_eq!(sizes, [8192, 1808]);
    let parts: Vec<_> =
        parts(&run(9), 5).map(|part| (part.fields[0].src_offset, part.fields[0].bytes)).collect();
    assert_eq!(parts, [(0, 5), (5, 4)]);
}

/// A copy of elements of 4 bytes, of loops with so many turns, and so far apart on either side.
fn nest(loops: &[(u64, i64, i64)]) -> NdCopy {
    let plain =
        |&(extent, ..): &(u64, i64, i64)| CopyDim { extent, src_index: None, dst_index: None };
    let strides = loops.iter().map(|&(_, src, dst)| Stride { src, dst }).collect();
    let field = FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: loops.iter().map(plain).collect(), fields: vec![field] }
}

#[test]
fn the_loop_is_cut_whose_turns_are_far_apart_on_both_sides() {
    let turns = |loops: &[_], pieces| -> Vec<Vec<u64>> {
        let list = split(&nest(loops), pieces);
        list.iter().map(|piece| piece.dims.iter().map(|dim| dim.extent).collect()).collect()
    };
    let turned = [(48, 4, 1200), (6, 192, 200), (5, 1152, 40), (10, -5760, 4)];
    assert_eq!(turns(&turned, 2), [[48, 3, 5, 10], [48, 3, 5, 10]], "not along the rows of a side");
    assert_eq!(turns(&turned, 8)[0], [6, 6, 5, 10], "a turn for each piece");
    assert_eq!(turns(&turned[2..], 16)[0], [5, 1], "or else the most turns");
    let square = [(16, 4, 64), (16, 64, 4)];
    assert_eq!(turns(&square, 2), [[8, 16], [8, 16]], "the outermost of several");
    let pixels = [(3, 4, 4000), (1000, 12, 4)];
    assert_eq!(turns(&pixels, 2), [[3, 512], [3, 488]], "not inside of lines");
    let records = [(4, 4000, 4), (1000, 4, 16)];
    assert_eq!(turns(&records, 3), [[4, 336], [4, 336], [4, 328]], "nor of those written last");
    let (few, apart) = ([(4, 4000, 4), (100, 4, 16)], [(4, 4000, 4), (1002, 4, 64)]);
    assert_eq!(turns(&few, 3), [[4, 34], [4, 34], [4, 32]], "unless there are few turns");
    assert_eq!(turns(&apart, 2), [[4, 501], [4, 501]], "each on a line");
    let farther = [(64, 4, 4), (1002, 256, 768)];
    assert_eq!(turns(&farther, 2), [[64, 501], [64, 501]], "several lines");
    let mut columns = nest(&[(1000, 16, 4)]);
    let wide = FieldCopy {
        bytes: 8,
        dst_offset: 4000,
        strides: vec![Stride { src: 16, dst: 8 }],
        ..columns.fields[0].clone()
    };
    columns.fields.insert(0, wide);
    let sizes =
        |list: Vec<NdCopy>| list.iter().map(|piece| piece.dims[0].extent).collect::<Vec<_>>();
    assert_eq!(sizes(split(&columns, 2)), [512, 488], "lines of every field");
    columns.dims[0].dst_index = Some((0..1000).collect());
    assert_eq!(sizes(split(&columns, 2)), [500, 500], "a table may say anything");
}

#[test]
fn what_reaches_outside_is_refused() {
    let (src, mut dst) = (vec![1; 8], vec![0; 8]);
    let source = Err(OutOfBounds { side: "source" });
    let destination = Err(OutOfBounds { side: "destination" });
    assert_eq!(copy_slices(&run(9), &src, 0, &mut dst, 0), source);
    assert_eq!(copy_slices(&run(8), &src, 0, &mut dst, 1), destination);
    let mut down = run(1);
    down.fields[0].src_offset = -1;
    assert_eq!(copy_slices(&down, &src, 0, &mut dst, 0), source);
    assert_eq!(copy_slices(&down, &src, 1, &mut dst, 0), Ok(()));
    let short = CopyDim { extent: 2, src_index: Some([0].into()), dst_index: None };
    down.dims = vec![short];
    down.fields[0].strides = vec![Stride { src: 1, dst: 1 }];
    assert_eq!(copy_slices(&down, &src, 1, &mut dst, 0), source);
    for strides in [0, 2] {
        let mut odd = run(1);
        odd.dims = vec![CopyDim { extent: 2, src_index: None, dst_index: None }];
        odd.fields[0].strides = vec![Stride { src: 1, dst: 1 }; strides];
        assert_eq!(copy_slices(&odd, &src, 0, &mut dst, 0), source);
    }
    assert_eq!(dst, [1, 0, 0, 0, 0, 0, 0, 0]);
    // Farther down than any base is up, though what is known of that would fit behind one.
    let once = CopyDim { extent: 2, src_index: None, dst_index: None };
    let far = |src_offset, dst_offset, stride| {
        let field =
            FieldCopy { bytes: 1, src_offset, dst_offset, padding: 0, strides: vec![stride] };
        NdCopy { dims: vec![once.clone()], fields: vec![field] }
    };
    let reads = far(i64::MIN, 0, Stride { src: -1000, dst: 1 });
    assert_eq!(copy_slices(&reads, &src, 1 << 63, &mut dst, 0), source);
    let writes = far(0, i64::MIN, Stride { src: 1, dst: -1000 });
    assert_eq!(copy_slices(&writes, &src, 0, &mut dst, 1 << 63), destination);
    // Each turns once, and takes some of the stack.
    let mut many = run(1);
    many.dims = vec![CopyDim { extent: 1, ..once }; 200_000];
    many.fields[0].strides = vec![Stride { src: 0, dst: 0 }; 200_000];
    assert_eq!(copy_slices(&many, &src, 0, &mut dst, 0), source);
    assert_eq!(dst, [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_numbers_hold_may_be_said() {
    let (src, mut dst) = ([1, 2, 3, 4], [0; 4]);
    let mut once = run(4);
    once.dims = vec![CopyDim { extent: 1, src_index: Some([0].into()), dst_index: None }];
    once.fields[0].strides = vec![Stride { src: 4, dst: i64::MIN }];
    assert_eq!(copy_slices(&once, &src, 0, &mut dst, 0), Ok(()));
    assert_eq!(dst, src);
    let loops = |extents: &[u64]| {
        let dim = |&extent: &u64| CopyDim { extent, src_index: None, dst_index: None };
        let mut copy = run(4);
        copy.dims = extents.iter().map(dim).collect();
        copy.fields[0].strides = vec![Stride { src: 0, dst: 0 }; extents.len()];
        copy
    };
    assert_eq!(loops(&[1 << 32, 1 << 32, 0]).payload_bytes(), 0);
    assert_eq!(loops(&[1 << 32, 1 << 32]).payload_bytes(), u64::MAX);
    let long = run(u64::MAX - 5);
    assert_eq!(split(&long, 1), std::slice::from_ref(&long));
    let halves: Vec<u64> = parts(&long, 1 << 63).map(|part| part.fields[0].bytes).collect();
    assert_eq!(halves, [1 << 63, (1 << 63) - 6]);
}
