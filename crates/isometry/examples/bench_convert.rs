//! Conversions inside host memory, through the planner, the engine and the lanes, beside `memcpy`
//! of as many bytes.

use bench::{Case, Contender, Group};
use isometry::{Array, CopyOptions, Instance, Machine};
use std::error::Error;
use std::hint::black_box;

const RUNS: usize = 11;

/// Name, dimensions, element type, and the layouts of source and destination.
type Problem<'a> = (&'a str, &'a [(&'a str, u64)], &'a str, [&'a str; 2]);

struct Conversion {
    machine: Machine,
    src: Instance,
    dst: Instance,
}

impl Conversion {
    fn new(dims: &[(&str, u64)], dtype: &str, layouts: [&str; 2]) -> Result<Self, isometry::Error> {
        let machine = Machine::builder().open()?;
        let make = |layout| machine.empty(Array::of(dims, dtype)?.laid_out(layout)?, "sys");
        let (src, dst) = (make(layouts[0])?, make(layouts[1])?);
        let len = src.host_span()?.len_bytes();
        src.fill(&(0..len).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<_>>())?;
        dst.fill(&vec![0; dst.host_span()?.len_bytes()])?;
        Ok(Conversion { machine, src, dst })
    }

    fn run(&self) {
        let event = self.machine.copy(&self.src, &self.dst, &CopyOptions::default());
        event.and_then(|event| event.wait(None)).expect("the copy succeeds");
    }

    /// Every entry of a sample is where its layout says.
    fn is_right(&self) -> bool {
        let place = |i: &Instance| {
            let array = i.array();
            isometry::layout::Placement::of_layout(&array.layout, &array.space, &array.fields)
        };
        let (Ok(from), Ok(to)) = (place(&self.src), place(&self.dst)) else { return false };
        let (Ok(a), Ok(b)) = (self.src.to_vec(), self.dst.to_vec()) else { return false };
        let fields = self.src.fields().fields().to_vec();
        let mut seed = 1u64;
        (0..100_000).all(|_| {
            let index: Vec<i64> = self
                .src
                .space()
                .dims()
                .iter()
                .map(|dim| {
                    seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 33) as i64 % dim.hi
                })
                .collect();
            fields.iter().enumerate().all(|(f, field)| {
                let (s, d) = (from.address(&index, f) as usize, to.address(&index, f) as usize);
                a[s..s + field.bytes as usize] == b[d..d + field.bytes as usize]
            })
        })
    }
}

#[inline(never)]
fn memcpy(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut group = Group::from_args("convert")?;
    let fields: Vec<_> = (0..8).map(|i| format!("('f{i}', '<f4')")).collect();
    let structure = format!("[{}]", fields.join(", "));
    let images: &[(&str, u64)] = &[("n", 32), ("h", 224), ("w", 224), ("c", 64)];
    let cases: [Problem<'_>; 4] = [
        ("same order 256 MiB", &[("y", 8192), ("x", 8192)], "<f4", ["yx", "yx"]),
        ("transpose 8192x8192 f4", &[("y", 8192), ("x", 8192)], "<f4", ["yx", "xy"]),
        ("nhwc to nchw 32x224x224x64 u1", images, "|u1", ["nhwc", "nchw"]),
        ("aos to soa 8 x f4, 2^22", &[("i", 1 << 22)], &structure, ["<F, i>", "<i, F>"]),
    ];
    for (name, dims, dtype, layouts) in cases {
        if !group.wants(name) {
            continue;
        }
        let conversion = Conversion::new(dims, dtype, layouts)?;
        let from = conversion.src.to_vec()?;
        let mut to = vec![1u8; from.len()];
        let case = Case { name: name.to_owned(), bytes: from.len() as u64, threads: 1, runs: RUNS };
        let (mut ours, mut theirs) =
            (|| conversion.run(), || memcpy(black_box(&from), black_box(&mut to)));
        let mut contenders = [
            Contender { name: "isometry", run: &mut ours },
            Contender { name: "memcpy", run: &mut theirs },
        ];
        group.run(&case, &mut contenders, &mut || conversion.is_right());
    }
    let verified = group.finish()?;
    std::process::exit(i32::from(!verified));
}
