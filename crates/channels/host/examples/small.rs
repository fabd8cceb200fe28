//! What a small copy on the caller's thread costs beyond `memcpy` behind a call.
//!
//! `cargo run --release -p isometry-channel-host --example small`

use channel::conformance::Shape;
use channel::model::{CopyWork, MemoryId, NodeId, Place, RegionId};
use channel::{Provider, Region};
use isometry_channel_host::{HostProvider, Pages, run_here};
use kernels::Stores;
use std::hint::black_box;
use std::time::Instant;

const COPIES: u32 = 100_000;
const REPETITIONS: usize = 11;

#[inline(never)]
fn memcpy(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: both regions below are at least `bytes` long.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
}

fn median_ns(mut copy: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            (0..COPIES).for_each(|_| copy());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(COPIES)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPETITIONS / 2]
}

fn start(region: &Region) -> *mut u8 {
    region.host_span().expect("host memory").start().as_ptr()
}

fn main() {
    let pages = Pages { prefault: true, ..Pages::default() };
    let provider = HostProvider::new(MemoryId { node: NodeId(0), index: 0 }, pages);
    let region = || provider.allocate(1 << 16, 64).expect("64 KiB");
    let (src, dst) = (region(), region());
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    println!("{:>8} {:>10} {:>10} {:>10}", "bytes", "memcpy ns", "here ns", "over ns");
    for bytes in [64u64, 256, 1024, 4096, 65536] {
        let list = [Shape::run(bytes).copy].into();
        let work =
            CopyWork { list, src: place, dst: place, payload_bytes: bytes, result_bytes: bytes };
        let plain = median_ns(|| memcpy(black_box(start(&src)), start(&dst), bytes as usize));
        let here = median_ns(|| {
            run_here(black_box(&work), (&src, &dst), Stores::Cached).expect("in bounds")
        });
        println!("{bytes:>8} {plain:>10.1} {here:>10.1} {:>10.1}", here - plain);
    }
}
