//! Records in rows that don't follow each other, and hybrids of them.

use super::*;

/// Fields of records on one side; on the other arrays of each, or hybrids of so many records.
#[derive(Debug, Clone)]
struct Rows {
    /// The bytes of fields, and those that nobody copies in front of each.
    fields: Vec<(u64, u64)>,
    /// What lies behind those of a record.
    padding: u64,
    count: u64,
    /// How many records a hybrid has, and what lies behind it.
    hybrid: Option<(u64, u64)>,
    loops: Vec<Outer>,
    seed: u64,
    back: bool,
}

/// A loop around rows.
#[derive(Debug, Clone)]
struct Outer {
    extent: u64,
    /// What lies behind all that is inside it: of records, and of arrays, of which the first fields have more.
    gaps: (u64, [u64; 2]),
    down: (bool, bool),
    tables: (bool, bool),
}

fn outer() -> impl Strategy<Value = Outer> {
    let gap = || prop::sample::select(vec![0u64, 0, 0, 1, 4, 28, 64]);
    let rarely = || (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (1u64..6, gap(), [gap(), gap()], rarely(), rarely()).prop_map(
        |(extent, records, arrays, down, tables)| Outer {
            extent,
            gaps: (records, arrays),
            down,
            tables,
        },
    )
}

fn rows() -> impl Strategy<Value = Rows> {
    let gap = || prop_oneof![6 => Just(0u64), 1 => prop::sample::select(vec![1u64, 4, 8])];
    let of = |sizes: Vec<u64>| prop::collection::vec((prop::sample::select(sizes), gap()), 1..6);
    let fields = prop_oneof![
        3 => of(vec![4, 8, 12, 24]),
        2 => of(vec![1, 2, 4, 8]),
        1 => of((1..20).collect()),
    ];
    let count = prop_oneof![
        1 => prop::sample::select(vec![16u64, 32, 64, 67, 128]),
        1 => 1u64..40,
        2 => prop::sample::select(vec![255u64, 256, 257, 301, 400]),
    ];
    let inner = prop::sample::select(vec![2u64, 3, 4, 8, 16, 32]);
    let behind = prop_oneof![3 => Just(0u64), 1 => 1u64..9, 1 => 900u64..1000];
    let hybrid = prop::option::of((inner, behind));
    let loops = prop::collection::vec(outer(), 0..3);
    (fields, gap(), count, hybrid, loops, any::<(u64, bool)>()).prop_map(
        |(fields, padding, count, hybrid, mut loops, (seed, back))| {
            let mut rows = Rows { fields, padding, count, hybrid, loops: Vec::new(), seed, back };
            let inner = rows.hybrid.map_or(1, |(inner, _)| inner);
            let behind = rows.hybrid.map_or(0, |(_, behind)| behind);
            let record = rows.pitch() * inner + behind;
            rows.count = rows.count.min((MOST_BYTES / record).max(1));
            let row = record * rows.count;
            let turns = |loops: &[Outer]| loops.iter().map(|of| of.extent).product::<u64>();
            while row * turns(&loops) > MOST_BYTES && loops.pop().is_some() {}
            Rows { loops, ..rows }
        },
    )
}

impl Rows {
    /// How far it is from record to record.
    fn pitch(&self) -> u64 {
        self.fields.iter().map(|(bytes, gap)| bytes + gap).sum::<u64>() + self.padding
    }

    /// Where what has so many bytes inside all loops starts, its strides, and where all of it ends.
    fn placed(&self, bytes: u64, of: impl Fn(&Outer) -> (u64, bool)) -> (i64, Vec<i64>, i64) {
        let (mut strides, mut lowest, mut step) = (Vec::new(), 0, bytes.cast_signed());
        for outer in self.loops.iter().rev() {
            let (gap, down) = of(outer);
            step += gap.cast_signed();
            strides.insert(0, if down { -step } else { step });
            lowest += strides[0].min(0) * (outer.extent.cast_signed() - 1);
            step *= outer.extent.cast_signed();
        }
        (-lowest, strides, step)
    }

    /// The field `i`, where it starts and its strides on the side of the records, and on the other.
    fn field(&self, i: usize, start: &mut i64) -> [(i64, Vec<i64>); 2] {
        let (bytes, gap) = self.fields[i];
        let before: u64 = self.fields[..i].iter().map(|(bytes, gap)| bytes + gap).sum();
        let inner = self.hybrid.map_or(1, |(inner, _)| inner);
        let whole = self.pitch() * inner;
        let (at, mut records, _) =
            self.placed(whole * self.count, |outer| (outer.gaps.0, outer.down.0));
        let records_at = at + (before + gap).cast_signed();
        records.push(whole.cast_signed());
        let Some((inner, behind)) = self.hybrid else {
            let gap = |outer: &Outer| (outer.gaps.1[i % 2], outer.down.1);
            let (at, mut arrays, end) = self.placed(bytes * self.count, gap);
            let at = at + *start;
            arrays.push(bytes.cast_signed());
            *start += end;
            return [(records_at, records), (at, arrays)];
        };
        let dense: u64 = self.fields.iter().map(|(bytes, _)| bytes).sum();
        let before: u64 = self.fields[..i].iter().map(|(bytes, _)| bytes).sum();
        let apart = inner * dense + behind;
        let (at, mut hybrids, _) =
            self.placed(apart * self.count, |outer| (outer.gaps.1[0], outer.down.1));
        records.push(self.pitch().cast_signed());
        hybrids.extend([apart.cast_signed(), bytes.cast_signed()]);
        [(records_at, records), (at + (inner * before).cast_signed(), hybrids)]
    }

    fn copy(&self) -> NdCopy {
        let mut start = 0;
        let fields = (0..self.fields.len()).map(|i| {
            let [records, other] = self.field(i, &mut start);
            let (src, dst) = if self.back { (other, records) } else { (records, other) };
            FieldCopy {
                bytes: self.fields[i].0,
                src_offset: src.0,
                dst_offset: dst.0,
                padding: 0,
                strides: src.1.iter().zip(dst.1).map(|(&src, dst)| Stride { src, dst }).collect(),
            }
        });
        let fields = fields.collect();
        let table = |is: bool, extent, seed| is.then(|| shuffled(extent, seed));
        let plain = |extent| CopyDim { extent, src_index: None, dst_index: None };
        let mut dims: Vec<CopyDim> = self.loops.iter().map(|of| plain(of.extent)).collect();
        for (dim, of) in dims.iter_mut().zip(&self.loops) {
            dim.src_index = table(of.tables.0, of.extent, self.seed);
            dim.dst_index = table(of.tables.1, of.extent, !self.seed);
        }
        dims.extend([self.count].into_iter().chain(self.hybrid.map(|(inner, _)| inner)).map(plain));
        NdCopy { dims, fields }
    }
}

/// Rows of so many records of fields of these sizes, with gaps between rows, to arrays of each field or to
/// hybrids of so many records; or back.
pub(super) fn in_rows(
    sizes: &[u64],
    (turns, count): (u64, u64),
    hybrid: Option<u64>,
    back: bool,
) -> NdCopy {
    let outer =
        Outer { extent: turns, gaps: (8, [4, 0]), down: (false, false), tables: (false, false) };
    let fields = sizes.iter().map(|&bytes| (bytes, 0)).collect();
    let (hybrid, loops) = (hybrid.map(|inner| (inner, 0)), vec![outer]);
    Rows { fields, padding: 0, count, hybrid, loops, seed: 0, back }.copy()
}

#[test]
fn gaps_between_fields_are_left() {
    let all = [&[1, 2, 4, 8][..], &[4, 8, 4, 4], &[8, 1, 7, 4, 2], &[1, 1, 70, 60]];
    let (count, all) = if cfg!(miri) { (385, &all[..1]) } else { (1281, &all[..]) };
    for sizes in all {
        for left_out in 0..sizes.len() {
            for (padding, to) in [(0, 0), (0, 37), (3, 4)] {
                let mut copy = padded_structures(sizes, count, (padding, 1), true);
                copy.fields.remove(left_out);
                check(&copy, (3, to));
            }
            for (hybrid, back) in [(Some(4), false), (Some(4), true), (None, true)] {
                let mut copy = in_rows(sizes, (3, 259), hybrid, back);
                copy.fields.remove(left_out);
                check(&copy, (1, 4));
            }
        }
    }
}

#[test]
fn hybrids_far_apart() {
    for (fields, count, (inner, apart)) in [([2, 3], 590, (3, 1021)), ([2, 1], 345, (7, 1023))] {
        let behind = apart - inner * (fields[0] + fields[1]);
        let fields = fields.map(|bytes| (bytes, 0)).to_vec();
        let (hybrid, loops, seed) = (Some((inner, behind)), Vec::new(), 0);
        for back in [false, true] {
            let fields = fields.clone();
            check(
                &Rows { fields, padding: 0, count, hybrid, loops: loops.clone(), seed, back }
                    .copy(),
                (1, 4),
            );
        }
    }
}

/// Boxes of rows, the last of which have less: at any places of the caches, and all at one.
#[test]
#[cfg_attr(miri, ignore = "several boxes of 16 KiB")]
fn boxes_of_rows() {
    let at_line = std::ptr::without_provenance::<u8>(4096);
    for (bytes, pitch) in [(2, 1664), (4, 1664), (8, 64 << 10), (8, 2624), (8, 4096), (16, 4096)] {
        for (rows, columns, turns) in [(64, 120, 2), (192, 124, 1)] {
            let row = bytes * rows + 1088;
            let loops =
                [(turns, rows * pitch, columns * row), (columns, bytes, row), (rows, pitch, bytes)];
            let mut copy = looped(&loops.map(|(n, src, dst)| (n as u64, src, dst)));
            copy.fields[0].bytes = bytes as u64;
            let told = explain_by(&halves(), &copy, at_line, Stores::Streamed);
            let by = match (bytes, pitch) {
                (2 | 4, _) => 64,
                (8, 65_536) => 16,
                _ => 32,
            };
            assert!(told.contains(&format!(" by {by} elements")), "{told} for {by}");
            check(&copy, (0, 0));
        }
    }
}

/// A table whose positions are far beyond the memory, where the stride is none.
#[test]
fn turns_without_strides() {
    let mut copy = in_rows(&[4, 8], (2, 3000), Some(2), false);
    copy.dims[0].src_index = Some([1 << 63, 0].into());
    for field in &mut copy.fields {
        field.strides[0].src = 0;
    }
    check(&copy, (0, 0));
    let none = FieldCopy {
        bytes: 0,
        src_offset: 0,
        dst_offset: 0,
        padding: 0,
        strides: vec![Stride { src: 0, dst: 0 }; 2],
    };
    let dims = vec![CopyDim { extent: 1 << 33, src_index: None, dst_index: None }; 2];
    assert_eq!(
        crate::copy_slices(&NdCopy { dims, fields: vec![none] }, &[], 0, &mut [], 0),
        Ok(())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * CASES))]

    #[test]
    fn records_in_rows_and_hybrids(
        rows in rows(),
        bases in (0usize..3, prop::sample::select(vec![0usize, 1, 4, 16, 60])),
    ) {
        check(&rows.copy(), bases);
    }
}
