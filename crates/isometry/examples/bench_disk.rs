//! Conversion of a file into another with another layout, beside a raw program that makes the
//! same reads and writes (sizes, order, depth, both at once) and converts nothing; and, for scale,
//! beside sequential reads and writes of 1 MiB at once.
//!
//! The aim: `raw` takes at least 0.9 of our time. Uses 2 GiB twice in the working directory;
//! `ISOMETRY_BENCH_MIB` makes it less.

use bench::{Case, Contender, Group};
use isometry::engine::Program;
use isometry::layout::{Part, Side, Stream, copies};
use isometry::model::{NdCopy, Plan, Selection};
use isometry::{Array, CopyOptions, FileOptions, Instance, Machine};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use std::error::Error;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

type Fallible<T> = Result<T, Box<dyn Error>>;

const RUNS: usize = 5;
/// What direct I/O wants of offsets, lengths and addresses.
const BLOCK: u64 = 4096;
/// The longest single operation, ours and the raw program's.
const OP_BYTES: u64 = 1 << 20;

/// An operation: offset and length in the file, on block boundaries.
type Op = (u64, u64);

struct Scene {
    dir: PathBuf,
    machine: Machine,
    src: Instance,
    layout: &'static str,
    depth: u32,
}

impl Scene {
    fn new(dir: &Path, array: Array, layout: &'static str) -> Fallible<Self> {
        let machine = Machine::builder().disk(dir).open()?;
        let (dir, path) = (dir.to_owned(), dir.join("in.raw"));
        fill(&path, array.bytes()?)?;
        let raw = FileOptions { raw: Some(array), ..FileOptions::default() };
        let src = machine.open_file(path, &raw)?;
        let channels = &machine.topology().classes[0].channels;
        let depth = channels.iter().filter_map(|c| c.in_flight).max().unwrap_or(4);
        Ok(Scene { dir, machine, src, layout, depth })
    }

    fn target(&self) -> Result<Instance, isometry::Error> {
        let array = self.src.array().laid_out(self.layout)?;
        self.machine.create_file(self.dir.join("out.raw"), array, &FileOptions::default())
    }

    fn convert(&self) {
        let run = || {
            let dst = self.target()?;
            self.machine.copy(&self.src, &dst, &CopyOptions::default())?.wait(None)
        };
        run().expect("the copy succeeds");
    }

    /// Samples entries of both files.
    fn is_converted(&self) -> Fallible<bool> {
        let (from, to) = (self.src.array(), self.src.array().laid_out(self.layout)?);
        let files = [
            std::fs::File::open(self.dir.join("in.raw"))?,
            std::fs::File::open(self.dir.join("out.raw"))?,
        ];
        let places = [placement(&from)?, placement(&to)?];
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let index: Vec<i64> = from
                .space
                .dims()
                .iter()
                .map(|dim| {
                    seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 33) as i64 % dim.hi
                })
                .collect();
            let bytes = from.fields.payload_bytes() as usize;
            let read = |i: usize| -> Fallible<Vec<u8>> {
                use std::os::unix::fs::FileExt;
                let mut buffer = vec![0; bytes];
                files[i].read_exact_at(&mut buffer, places[i].address(&index, 0) as u64)?;
                Ok(buffer)
            };
            if read(0)? != read(1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The reads and writes of the plan, in the order of its requests.
    fn operations(&self, plan: &Plan) -> Fallible<(Vec<Op>, Vec<Op>)> {
        let target = self.src.array().laid_out(self.layout)?;
        let (src, dst) = (part(&self.src.array())?, part(&target)?);
        let program = Program::compile(plan, src.clone(), dst.clone())?;
        let last = plan.hops.len() - 1;
        let stream =
            |i: usize| Stream::new(&plan.layouts[i], src.extents(), &plan.phase, src.field_bytes());
        let (first, final_) = (stream(1)?, stream(last)?);
        let mut reads = Vec::new();
        for range in program.requests(0) {
            let window = Side::Stream { stream: &first, base: 0 };
            reads.extend(ops(&copies(Side::Instance(&src), window, &first, range), true));
        }
        let mut writes = Vec::new();
        for range in program.requests(last) {
            let window = Side::Stream { stream: &final_, base: 0 };
            writes.extend(ops(&copies(window, Side::Instance(&dst), &final_, range), false));
        }
        Ok((reads, writes))
    }

    /// Runs `reads` of the input and `writes` of a new file at once, `depth` of each at a time.
    fn raw(&self, reads: &[Op], writes: &[Op]) {
        let path = self.dir.join("raw.raw");
        let input = direct(&self.dir.join("in.raw"), OFlags::RDONLY).expect("the input is there");
        let output =
            direct(&path, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC).expect("there is room");
        let bytes = self.src.payload_bytes().next_multiple_of(BLOCK);
        fallocate(&output, FallocateFlags::empty(), 0, bytes).expect("there is room");
        let (next_read, next_write) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..self.depth {
                scope.spawn(|| {
                    work(reads, &next_read, |buffer, at| {
                        rustix::io::pread(&input, buffer, at).expect("the input can be read");
                    })
                });
                scope.spawn(|| {
                    work(writes, &next_write, |buffer, at| {
                        rustix::io::pwrite(&output, buffer, at).expect("the output can be written");
                    })
                });
            }
        });
        std::fs::remove_file(path).expect("it was made above");
    }
}

fn work(ops: &[Op], next: &AtomicUsize, run: impl Fn(&mut [u8], u64)) {
    let mut memory = vec![0u8; (OP_BYTES + 3 * BLOCK) as usize];
    let skip = memory.as_ptr().align_offset(BLOCK as usize);
    while let Some(&(at, bytes)) = ops.get(next.fetch_add(1, Ordering::Relaxed)) {
        run(&mut memory[skip..skip + bytes as usize], at);
    }
}

fn placement(array: &Array) -> Fallible<isometry::layout::Placement> {
    Ok(isometry::layout::Placement::of_layout(&array.layout, &array.space, &array.fields)?)
}

fn part(array: &Array) -> Fallible<Part> {
    Ok(placement(array)?.select(&Selection::all(&array.space), &[0])?)
}

/// The contiguous runs of the file's side of `list`, joined, rounded out to blocks and cut.
fn ops(list: &[NdCopy], src: bool) -> Vec<Op> {
    let mut runs = Vec::new();
    list.iter().for_each(|copy| walk(copy, 0, 0, src, &mut runs));
    runs.sort_unstable();
    let mut joined: Vec<Op> = Vec::new();
    for (at, bytes) in runs {
        let (from, to) = (at / BLOCK * BLOCK, (at + bytes).next_multiple_of(BLOCK));
        match joined.last_mut() {
            Some(last) if last.0 + last.1 >= from => last.1 = last.1.max(to - last.0),
            _ => joined.push((from, to - from)),
        }
    }
    let cut = |(at, bytes): Op| {
        (0..bytes).step_by(OP_BYTES as usize).map(move |o| (at + o, OP_BYTES.min(bytes - o)))
    };
    joined.into_iter().flat_map(cut).collect()
}

fn walk(copy: &NdCopy, dim: usize, offset: i64, src: bool, runs: &mut Vec<Op>) {
    let field = &copy.fields[0];
    let Some(this) = copy.dims.get(dim) else {
        let base = if src { field.src_offset } else { field.dst_offset };
        runs.push(((base + offset) as u64, field.bytes));
        return;
    };
    let stride = if src { field.strides[dim].src } else { field.strides[dim].dst };
    let is_last = dim + 1 == copy.dims.len();
    if is_last && stride == field.bytes as i64 {
        let base = if src { field.src_offset } else { field.dst_offset };
        runs.push(((base + offset) as u64, field.bytes * this.extent));
        return;
    }
    for i in 0..this.extent as i64 {
        walk(copy, dim + 1, offset + i * stride, src, runs);
    }
}

fn direct(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    open(path, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))
}

fn fill(path: &Path, bytes: u64) -> Fallible<()> {
    let mut file = std::fs::File::create(path)?;
    let mut block = vec![0u8; 1 << 20];
    for n in 0..bytes.div_ceil(1 << 20) {
        for (i, b) in block.iter_mut().enumerate() {
            *b = ((i as u64 ^ n.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                >> 56) as u8;
        }
        file.write_all(&block[..(bytes - n * (1 << 20)).min(1 << 20) as usize])?;
    }
    file.sync_all()?;
    Ok(())
}

fn main() -> Fallible<()> {
    let mut group = Group::from_args("disk")?;
    let mib: u64 =
        std::env::var("ISOMETRY_BENCH_MIB").ok().and_then(|m| m.parse().ok()).unwrap_or(2048);
    let dir = tempfile::tempdir_in(".")?;
    let rows = (mib << 20) / 4 / 16384;
    let images = (mib << 20) / (224 * 224 * 3);
    let cases = [
        ("transpose", Array::of(&[("y", rows), ("x", 16384)], "<f4")?, "xy"),
        (
            "nhwc to nchw",
            Array::of(&[("n", images), ("h", 224), ("w", 224), ("c", 3)], "|u1")?,
            "nchw",
        ),
    ];
    for (name, array, layout) in cases {
        let name = format!("{name} of {mib} MiB, disk to disk");
        if group.wants(&name) {
            run(&mut group, name, Scene::new(dir.path(), array, layout)?)?;
        }
    }
    let verified = group.finish()?;
    drop(dir);
    std::process::exit(i32::from(!verified));
}

fn run(group: &mut Group, name: String, scene: Scene) -> Fallible<()> {
    let planned =
        scene.machine.plan(&scene.src, &scene.target()?, &CopyOptions::default().planning)?;
    println!("{}", planned.explain());
    let (reads, writes) = scene.operations(&planned.plan)?;
    let bytes = scene.src.payload_bytes();
    let sequential: Vec<Op> = (0..bytes / OP_BYTES).map(|i| (i * OP_BYTES, OP_BYTES)).collect();
    let case = Case { name, bytes, threads: 2, runs: RUNS };
    let (mut ours, mut raw) = (|| scene.convert(), || scene.raw(&reads, &writes));
    let mut whole = || scene.raw(&sequential, &sequential);
    let mut contenders = [
        Contender { name: "isometry", run: &mut ours },
        Contender { name: "raw", run: &mut raw },
        Contender { name: "sequential", run: &mut whole },
    ];
    group.run(&case, &mut contenders, &mut || scene.is_converted().unwrap_or(false));
    group.figure("predicted_seconds", planned.plan.seconds.unwrap_or(0.0));
    group.figure("operations", (reads.len() + writes.len()) as f64);
    Ok(())
}
