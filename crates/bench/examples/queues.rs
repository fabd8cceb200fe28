//! Whether a channel is faster by several queues, or streams, than by one: MiB/s of every device there is.
//!
//! `cargo run --release -p isometry-bench --example queues`

use channel::accelerator::{Device, Direction, FbmProvider, ZcmProvider};
use channel::model::{
    CopyDim, CopyWork, FieldCopy, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId, Stride,
    Work,
};
use channel::{Channel, Job, Provider, Region};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };
const REQUEST_BYTES: u64 = 4 << 20;
const REQUESTS: u64 = 16;
const REPETITIONS: usize = 9;
const QUEUES: [usize; 3] = [1, 2, 4];
const ROWS: [u64; 4] = [64, 4096, 65536, REQUEST_BYTES];

/// Every other row of `row` bytes on the one side, packed on the other.
fn rows(row: u64) -> NdCopy {
    let stride = |way: u64| i64::try_from(way).expect("a few MiB");
    let strides = vec![Stride { src: stride(2 * row), dst: stride(row) }];
    let dim = CopyDim { extent: REQUEST_BYTES / row, src_index: None, dst_index: None };
    let field = FieldCopy { bytes: row, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: vec![dim], fields: vec![field] }
}

/// Bytes per second of requests for `copy`, as many at once as the channel takes.
fn rate(channel: &mut dyn Channel, copy: &NdCopy, ends: &(Arc<Region>, Arc<Region>)) -> f64 {
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let started = Instant::now();
    for request in 0..REQUESTS {
        let work = Work::Copy(CopyWork {
            list: [copy.clone()].into(),
            src: place,
            dst: place,
            payload_bytes: REQUEST_BYTES,
            result_bytes: REQUEST_BYTES,
        });
        let (src, dst) = (Arc::clone(&ends.0), Arc::clone(&ends.1));
        let mut job = Job { request: RequestId(request), work, src, dst };
        while let Err(back) = channel.submit(job) {
            channel.drain();
            channel.poll(&mut Vec::new());
            job = back;
        }
    }
    channel.drain();
    channel.poll(&mut Vec::new());
    (REQUESTS * REQUEST_BYTES) as f64 / started.elapsed().as_secs_f64()
}

fn measure(device: &Arc<dyn Device>) -> Result<(), Box<dyn Error>> {
    let host =
        Arc::new(ZcmProvider::new(MEMORY, Arc::clone(device)).allocate(2 * REQUEST_BYTES, 64)?);
    let there = FbmProvider::new(MEMORY, Arc::clone(device)).allocate(2 * REQUEST_BYTES, 64)?;
    let there = Arc::new(there);
    for direction in [Direction::Write, Direction::Read] {
        let ends = match direction {
            Direction::Write => (Arc::clone(&host), Arc::clone(&there)),
            _ => (Arc::clone(&there), Arc::clone(&host)),
        };
        let made = QUEUES.map(|n| device.channel(direction, Some(n)));
        let mut channels: Vec<_> = made.into_iter().collect::<Result<_, _>>()?;
        for row in ROWS {
            let mut rates = QUEUES.map(|_| Vec::new());
            for _ in 0..REPETITIONS {
                for (channel, rates) in channels.iter_mut().zip(&mut rates) {
                    rates.push(rate(channel.as_mut(), &rows(row), &ends));
                }
            }
            let medians = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[REPETITIONS / 2] / f64::from(1 << 20)
            });
            println!("{:>9} {row:>8} {medians:>8.0?}", format!("{direction:?}"));
        }
    }
    Ok(())
}

/// What a device is called, and the device.
type Named = (String, Arc<dyn Device>);

/// All devices; says where an API has none.
fn devices() -> Result<Vec<Named>, Box<dyn Error>> {
    let mut all: Vec<Named> = Vec::new();
    match channel_cuda::find() {
        Ok(found) => {
            for found in found {
                all.push((format!("{} (CUDA)", found.info().name), Arc::new(found.open()?)));
            }
        }
        Err(why) => println!("{why}"),
    }
    match channel_opencl::find() {
        Ok(found) => {
            for found in found {
                let name = format!("{} ({})", found.info().name, found.info().platform);
                all.push((name, Arc::new(found.open()?)));
            }
        }
        Err(why) => println!("{why}"),
    }
    Ok(all)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (name, device) in devices()? {
        println!("{name}: MiB/s by {QUEUES:?} queues");
        println!("{:>9} {:>8}", "direction", "row B");
        measure(&device)?;
    }
    Ok(())
}
