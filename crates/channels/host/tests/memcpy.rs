//! The Memcpy channel against the contract of channels, and what is its own.

use channel::conformance::{self, Draw, Fixture, Shape};
use channel::layout;
use channel::model::{
    ChannelErrorKind, Completion, CopyWork, MemoryId, NodeId, Place, RegionId, RequestId, Work,
};
use channel::{Channel, Job, Provider, Region};
use isometry_channel_host::{
    Cores, HostProvider, MemcpyChannel, MemcpyConfig, NumaNode, Pages, run_here,
};
use kernels::Stores;
use std::sync::Arc;

const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };

fn region(bytes: &[u8]) -> Arc<Region> {
    let provider = HostProvider::new(MEMORY, Pages::default());
    let region = provider.allocate(bytes.len() as u64, 64).unwrap();
    let start = region.host_span().unwrap().start().as_ptr();
    // SAFETY: the region is new, writable and as long as `bytes`.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Arc::new(region)
}

fn contents(region: &Region) -> Vec<u8> {
    let span = region.host_span().unwrap();
    // SAFETY: the region is host memory, and no request on it is in flight.
    unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) }.to_vec()
}

struct Lanes(usize);

impl Fixture for Lanes {
    fn channel(&self) -> Box<dyn Channel> {
        let config = MemcpyConfig { lanes: self.0, max_in_flight: 8, cores: None };
        Box::new(MemcpyChannel::new(&config).unwrap())
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        region(bytes)
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        region(bytes)
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        contents(destination)
    }
}

#[test]
fn one_lane_conforms() {
    conformance::run(&Lanes(1));
}

#[test]
fn three_lanes_conform() {
    conformance::run(&Lanes(3));
}

#[test]
fn lanes_kept_to_a_node_conform() {
    struct Bound;
    impl Fixture for Bound {
        fn channel(&self) -> Box<dyn Channel> {
            let cores = Some(Cores::detect().nodes[0].cores.clone());
            let config = MemcpyConfig { lanes: 2, max_in_flight: 3, cores };
            Box::new(MemcpyChannel::new(&config).unwrap())
        }

        fn source(&self, bytes: &[u8]) -> Arc<Region> {
            region(bytes)
        }

        fn destination(&self, bytes: &[u8]) -> Arc<Region> {
            region(bytes)
        }

        fn contents(&self, destination: &Region) -> Vec<u8> {
            contents(destination)
        }
    }
    conformance::run(&Bound);
}

fn place(offset: u64) -> Place {
    Place { region: RegionId { index: 0, generation: 0 }, offset }
}

fn work_of(shape: &Shape, at: u64) -> CopyWork {
    let payload_bytes = shape.copy.payload_bytes();
    CopyWork {
        list: [shape.copy.clone()].into(),
        src: place(at),
        dst: place(at),
        payload_bytes,
        result_bytes: payload_bytes,
    }
}

#[test]
fn the_callers_thread_copies_as_the_oracle_does() {
    for seed in 0..200 {
        let draw = &mut Draw::new(seed);
        let shape = Shape::draw(draw, 64);
        let (bytes, other) = (shape.src_bytes.max(shape.dst_bytes) + 9, draw.bytes(1 << 16));
        let src = draw.bytes(usize::try_from(bytes).unwrap());
        let mut expected = other.iter().copied().cycle().take(src.len()).collect::<Vec<_>>();
        let (from, to) = (region(&src), region(&expected));
        let stores = [Stores::Cached, Stores::Streamed][seed as usize % 2];
        layout::oracle::copy(&shape.copy, &src, 9, &mut expected, 9);
        run_here(&work_of(&shape, 9), (&from, &to), stores).unwrap();
        assert!(contents(&to) == expected, "seed {seed}: {:?}", shape.copy);
    }
}

#[test]
fn the_callers_thread_checks_bounds_first() {
    let (src, dst) = (region(&[1; 64]), region(&[2; 64]));
    let error = run_here(&work_of(&Shape::run(64), 1), (&src, &dst), Stores::Cached).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::OutOfBounds);
    assert_eq!(contents(&dst), [2; 64]);
}

#[test]
fn one_lane_completes_in_order() {
    let mut channel = Lanes(1).channel();
    for request in 0..8 {
        let (src, dst) = (region(&[1; 4096]), region(&[2; 4096]));
        let work = Work::Copy(work_of(&Shape::run(4096), 0));
        channel.submit(Job { request: RequestId(request), work, src, dst }).unwrap();
    }
    channel.drain();
    let mut done: Vec<Completion> = Vec::new();
    channel.poll(&mut done);
    let order: Vec<u64> = done.iter().map(|c| c.request.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn lanes_are_bound_only_where_each_has_a_core() {
    let node = |number: usize| {
        let cores = (number * 4..number * 4 + 4).collect();
        NumaNode { number: u32::try_from(number).unwrap(), cores }
    };
    let two = Cores { allowed: (0..8).collect(), nodes: vec![node(0), node(1)] };
    assert_eq!(MemcpyConfig::among(&two, two.default_lanes()), MemcpyConfig::of(7, None));
    let near = Some((0..4).collect());
    assert_eq!(MemcpyConfig::among(&two, 4), MemcpyConfig::of(4, near));
    let one = Cores { allowed: (0..4).collect(), nodes: vec![node(0)] };
    assert_eq!(MemcpyConfig::among(&one, 3), MemcpyConfig::of(3, None));
}
