//! `copies` between any two sides moves what an entry-by-entry copy moves, and nothing else.
//! `cargo +nightly fuzz run copies`
#![no_main]

use isometry_layout::{Part, Placement, Side, Stream, copies, oracle};
use isometry_model::{Component, Dim, FieldSpace, IndexSpace, Layout, Selection, Span};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// A side, with the box's place in its instance.
enum Known {
    Instance { placement: Placement, part: Part, los: Vec<i64> },
    Window { stream: Stream, base: u64 },
}

impl Known {
    fn side(&self) -> Side<'_> {
        match self {
            Known::Instance { part, .. } => Side::Instance(part),
            Known::Window { stream, base } => Side::Stream { stream, base: *base },
        }
    }

    fn address(&self, index: &[u64], field: usize) -> i64 {
        match self {
            Known::Instance { placement, los, .. } => {
                let absolute: Vec<i64> =
                    index.iter().zip(los).map(|(&i, lo)| lo + i as i64).collect();
                placement.address(&absolute, field)
            }
            Known::Window { stream, base } => stream.position(index, field) as i64 - *base as i64,
        }
    }
}

fn layout(u: &mut Unstructured, rank: usize) -> Result<Layout> {
    let mut components = vec![Component::Fields];
    for dim in 0..rank as u8 {
        let levels = u.int_in_range(0..=2u8)?;
        for level in 1..=levels {
            components.push(Component::Inner { dim, level, size: u.int_in_range(1..=5)? });
        }
        components.push(if levels == 0 { Component::Whole(dim) } else { Component::Outer(dim) });
    }
    for i in (1..components.len()).rev() {
        components.swap(i, u.int_in_range(0..=i)?);
    }
    Ok(Layout::new(components, rank).expect("every part of every dimension is there once"))
}

fn stream(u: &mut Unstructured, extents: &[u64], bytes: &[u64]) -> Result<Stream> {
    let phase: Vec<u64> = extents.iter().map(|_| u.int_in_range(0..=20)).collect::<Result<_>>()?;
    let layout = layout(u, extents.len())?;
    Ok(Stream::new(&layout, extents, &phase, bytes).expect("a small stream"))
}

fn side(u: &mut Unstructured, extents: &[u64], bytes: &[u64]) -> Result<Known> {
    if u.arbitrary()? {
        return Ok(Known::Window {
            stream: stream(u, extents, bytes)?,
            base: u.int_in_range(0..=40)?,
        });
    }
    let (mut dims, mut spans) = (Vec::new(), Vec::new());
    for (d, &extent) in extents.iter().enumerate() {
        let (lo, before, after) =
            (u.int_in_range(-5..=5)?, u.int_in_range(0..=4)?, u.int_in_range(0..=4)?);
        let first: i64 = lo + before;
        let hi = first + extent as i64;
        dims.push(Dim { name: format!("d{d}").into(), lo, hi: hi + after });
        spans.push(Span::Range { lo: first, hi });
    }
    let los = spans.iter().map(|s| if let Span::Range { lo, .. } = s { *lo } else { 0 }).collect();
    let space = IndexSpace::new(dims).expect("a small space");
    let fields = FieldSpace::packed(bytes).expect("small fields");
    let placement = Placement::of_layout(&layout(u, extents.len())?, &space, &fields)
        .expect("a small instance");
    let selection = Selection::new(&space, spans).expect("the box lies inside");
    let all: Vec<usize> = (0..bytes.len()).collect();
    let part = placement.select(&selection, &all).expect("all fields of a box");
    Ok(Known::Instance { placement, part, los })
}

fn run(u: &mut Unstructured) -> Result<()> {
    let rank = u.int_in_range(1..=3)?;
    let extents: Vec<u64> = (0..rank).map(|_| u.int_in_range(0..=8)).collect::<Result<_>>()?;
    let fields = u.int_in_range(1..=3)?;
    let bytes: Vec<u64> = (0..fields).map(|_| u.int_in_range(1..=5)).collect::<Result<_>>()?;
    let (src, dst) = (side(u, &extents, &bytes)?, side(u, &extents, &bytes)?);
    let order = stream(u, &extents, &bytes)?;
    let (a, b) = (u.int_in_range(0..=order.bytes())?, u.int_in_range(0..=order.bytes())?);
    check(&src, &dst, &order, (&extents, &bytes), a.min(b)..a.max(b));
    Ok(())
}

/// Offsets may be negative: a window starts up to 40 bytes into its stream.
const ROOM: usize = 64;

/// What holds the largest instance: 25 entries in each of 3 dimensions, 15 bytes each.
const BYTES: usize = 1 << 18;

fn check(
    src: &Known,
    dst: &Known,
    order: &Stream,
    (extents, bytes): (&[u64], &[u64]),
    range: std::ops::Range<u64>,
) {
    let source: Vec<u8> = (0..ROOM + BYTES).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut expected = vec![0xEE; ROOM + BYTES];
    let mut got = expected.clone();
    let entries: u64 = extents.iter().product();
    for entry in 0..entries {
        let mut rest = entry;
        let index: Vec<u64> = extents
            .iter()
            .map(|&e| {
                let i = rest % e;
                rest /= e;
                i
            })
            .collect();
        for (field, &size) in bytes.iter().enumerate() {
            let (from, to) = (src.address(&index, field), dst.address(&index, field));
            let at = order.position(&index, field);
            for b in (0..size).filter(|b| range.contains(&(at + b))) {
                expected[(to + (ROOM as u64 + b) as i64) as usize] =
                    source[(from + (ROOM as u64 + b) as i64) as usize];
            }
        }
    }
    for copy in copies(src.side(), dst.side(), order, range) {
        oracle::copy(&copy, &source, ROOM, &mut got, ROOM);
    }
    assert!(expected == got, "bytes differ");
}

fuzz_target!(|data: &[u8]| {
    // Too little data is no case.
    let _ = run(&mut Unstructured::new(data));
});
