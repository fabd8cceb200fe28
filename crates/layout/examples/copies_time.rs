//! Times `copies` for typical pairs, the best of many batches: `cargo run --release -p isometry-layout --example copies_time`.

use isometry_layout::{Part, Placement, Side, Stream, copies, parse};
use model::{FieldSpace, IndexSpace, Selection};
use std::hint::black_box;
use std::time::Instant;

fn part(space: &IndexSpace, fields: &FieldSpace, layout: &str) -> Part {
    let placement = Placement::of_layout(&parse(layout, space).unwrap(), space, fields).unwrap();
    let order: Vec<usize> = (0..fields.fields().len()).collect();
    placement.select(&Selection::all(space), &order).unwrap()
}

fn time(name: &str, call: impl Fn() -> usize) {
    let count = call();
    let batch = || {
        let start = Instant::now();
        (0..200).for_each(|_| {
            black_box(call());
        });
        start.elapsed().as_nanos() / 200
    };
    let each = (0..200).map(|_| batch()).min().unwrap_or(0);
    println!("{name:50} {each:6} ns, {count} copies");
}

fn main() {
    let nhwc = IndexSpace::of(&[("n", 32), ("h", 224), ("w", 224), ("c", 3)]).unwrap();
    let one = FieldSpace::packed(&[4]).unwrap();
    let three = FieldSpace::packed(&[4, 4, 8]).unwrap();
    whole(&nhwc, &one, ("nhwc", "nhwc"));
    whole(&nhwc, &one, ("nhwc", "nchw"));
    let square = IndexSpace::of(&[("x", 65536), ("y", 65536)]).unwrap();
    whole(&square, &three, ("<F, x, y>", "<F, y, x>"));
    whole(&square, &three, ("<F, x, y>", "<x, y, F>"));
    whole(&square, &three, ("<F, x, y>", "<x_in=4, y_in=4, F, x_out, y_out>"));
    let l0 = "<F, x, y>";
    let l1 = "<F, x_in=2048, y_in=1024, x_out, y_out>";
    let l2 = "<F, y_in=1024, x_in=2048, x_out, y_out>";
    let stream = |l: &str| {
        Stream::new(&parse(l, &square).unwrap(), &[65536; 2], &[0; 2], &[4, 4, 8]).unwrap()
    };
    let (a, s1, s2) = (part(&square, &three, l0), stream(l1), stream(l2));
    let start = s1.bytes() / 2;
    let end = s1.cut(start, 1 << 20);
    let side = |stream| Side::Stream { stream, base: start };
    time("chunk: instance to window, 1 MiB", || {
        copies(Side::Instance(&a), side(&s1), &s1, start..end).len()
    });
    let granule = s1.granule_at(3, start);
    time("chunk: window to window, one granule", || {
        copies(side(&s1), side(&s2), &s1, granule.clone()).len()
    });
    time("cut", || s1.cut(start, 1 << 20) as usize);
}

fn whole(space: &IndexSpace, fields: &FieldSpace, (a, b): (&str, &str)) {
    let (src, dst) = (part(space, fields, a), part(space, fields, b));
    let sizes: Vec<u64> = fields.fields().iter().map(|f| f.bytes).collect();
    let zeros = vec![0; space.rank()];
    let stream = Stream::new(dst.layout(), &space.extents(), &zeros, &sizes).unwrap();
    let all = 0..stream.bytes();
    time(&format!("whole: {a} to {b}"), || {
        copies(Side::Instance(&src), Side::Instance(&dst), &stream, all.clone()).len()
    });
}
