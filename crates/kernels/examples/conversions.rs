//! Times kernels on conversions that NumPy users write; prints GB/s of payload.
//! `cargo run --release -p isometry-kernels --example conversions`

use isometry_kernels::copy_slices;
use layout::{NdCopy, Placement, Side, Stream, copies, parse};
use model::{FieldSpace, IndexSpace, Selection};
use std::time::Instant;

fn list(space: &IndexSpace, fields: &FieldSpace, (a, b): (&str, &str)) -> Vec<NdCopy> {
    let order: Vec<usize> = (0..fields.fields().len()).collect();
    let part = |text: &str| {
        let placement = Placement::of_layout(&parse(text, space).unwrap(), space, fields).unwrap();
        placement.select(&Selection::all(space), &order).unwrap()
    };
    let (src, dst) = (part(a), part(b));
    let sizes: Vec<u64> = fields.fields().iter().map(|f| f.bytes).collect();
    let stream =
        Stream::new(dst.layout(), &space.extents(), &vec![0; space.rank()], &sizes).unwrap();
    copies(Side::Instance(&src), Side::Instance(&dst), &stream, 0..stream.bytes())
}

fn time(name: &str, dims: &[(&str, u64)], sizes: &[u64], ends: (&str, &str)) {
    let (space, fields) = (IndexSpace::of(dims).unwrap(), FieldSpace::packed(sizes).unwrap());
    let list = list(&space, &fields, ends);
    let bytes = list.iter().map(NdCopy::payload_bytes).sum::<u64>() as usize;
    let (src, mut dst) = (vec![1u8; bytes], vec![2u8; bytes]);
    let mut seconds: Vec<f64> = (0..7)
        .map(|_| {
            let start = Instant::now();
            for copy in &list {
                copy_slices(copy, &src, 0, &mut dst, 0).unwrap();
            }
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    println!("{name:34} {:8.3} ms {:6.2} GB/s", seconds[3] * 1e3, bytes as f64 / seconds[3] / 1e9);
}

fn main() {
    let images = [("n", 32), ("h", 224), ("w", 224), ("c", 3)];
    let maps = [("n", 8), ("h", 112), ("w", 112), ("c", 64)];
    for (name, size) in [("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16)] {
        let square = [("x", 4096), ("y", 4096)];
        time(&format!("transpose 4096² of {name}"), &square, &[size], ("xy", "yx"));
    }
    time("transpose 4097x4093 of 4", &[("x", 4097), ("y", 4093)], &[4], ("xy", "yx"));
    time("memcpy 4096² of 4", &[("x", 4096), ("y", 4096)], &[4], ("xy", "xy"));
    time("NHWC to NCHW 32x224²x3 of 1", &images, &[1], ("nhwc", "nchw"));
    time("NHWC to NCHW 32x224²x3 of 4", &images, &[4], ("nhwc", "nchw"));
    time("NCHW to NHWC 32x224²x3 of 1", &images, &[1], ("nchw", "nhwc"));
    time("NHWC to NCHW 8x112²x64 of 4", &maps, &[4], ("nhwc", "nchw"));
    time("NCHW to NHWC 8x112²x64 of 4", &maps, &[4], ("nchw", "nhwc"));
    let entries = [("x", 1 << 21)];
    time("AOS to SOA 8 of 4", &entries, &[4; 8], ("<F, x>", "<x, F>"));
    time("SOA to AOS 8 of 4", &entries, &[4; 8], ("<x, F>", "<F, x>"));
}
