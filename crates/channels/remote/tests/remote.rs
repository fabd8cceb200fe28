//! The RemoteMemcpy channel against the contract of channels, between two ranks of this process.

use channel::conformance::{self, Fixture};
use channel::model::{
    ChannelErrorKind, CopyWork, MemoryId, NodeId, Place, RegionId, RequestId, Work,
};
use channel::{Channel, HostSpan, Job, Region};
use fabric::{Config, Fabric, Handlers, Job as Ranks};
use isometry_channel_remote::{RemoteChannel, RemoteSpan};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEGMENT_BYTES: u64 = 256 << 20;

fn memory(node: u32) -> MemoryId {
    MemoryId { node: NodeId(node), index: 0 }
}

/// Two ranks, the second of which has a segment.
fn pair() -> [Fabric; 2] {
    let ranks = Ranks::new(2).unwrap();
    let join = |rank: u32| {
        let variables = ranks.variables(rank);
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let mut config = Config::from_variables(lookup).unwrap();
        config.segment_bytes = SEGMENT_BYTES;
        Fabric::join(&config, Handlers::new()).unwrap()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        [join(0), other.join().unwrap()]
    })
}

struct Ranked {
    fabric: Arc<Fabric>,
    other: Fabric,
    used: AtomicU64,
}

impl Ranked {
    fn new() -> Ranked {
        let [fabric, other] = pair();
        Ranked { fabric: Arc::new(fabric), other, used: AtomicU64::new(0) }
    }
}

fn host(bytes: &[u8]) -> Arc<Region> {
    let owner: Arc<Vec<u8>> = Arc::new(bytes.to_vec());
    let start = NonNull::from(owner.as_slice()).cast();
    // SAFETY: the vector lives as long as the region, and is read only.
    let span = unsafe { HostSpan::new(start, owner.len()) };
    Arc::new(Region::host(memory(0), span, owner))
}

impl Fixture for Ranked {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(RemoteChannel::new(Arc::clone(&self.fabric)).unwrap())
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        host(bytes)
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        let len = bytes.len() as u64;
        let at = self.used.fetch_add(len, Ordering::Relaxed);
        assert!(at + len <= SEGMENT_BYTES, "the segment holds what all cases need");
        self.other.segment().write(at, bytes).unwrap();
        Arc::new(RemoteSpan { node: NodeId(1), at }.into_region(memory(1), len))
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        let span: &RemoteSpan = destination.view().unwrap();
        let mut bytes = vec![0; destination.len_bytes() as usize];
        self.other.segment().read(span.at, &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn it_conforms() {
    conformance::run(&Ranked::new());
}

#[test]
fn a_lost_peer_is_an_error_that_names_it() {
    let [fabric, other] = pair();
    let mut channel = RemoteChannel::new(Arc::new(fabric)).unwrap();
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let list = Arc::from([conformance::Shape::run(64).copy]);
    let work = CopyWork { list, src: place, dst: place, payload_bytes: 64, result_bytes: 0 };
    let dst = RemoteSpan { node: NodeId(1), at: 0 }.into_region(memory(1), 64);
    let (src, dst) = (host(&[7; 64]), Arc::new(dst));
    drop(other);
    // Until the loss is seen, puts go to memory that is still mapped.
    for request in 0.. {
        let (src, dst) = (Arc::clone(&src), Arc::clone(&dst));
        let work = Work::Copy(work.clone());
        channel.submit(Job { request: RequestId(request), work, src, dst }).unwrap();
        channel.drain();
        let mut done = Vec::new();
        channel.poll(&mut done);
        if let Err(error) = &done[0].result {
            assert_eq!(error.kind, ChannelErrorKind::PeerLost);
            assert!(error.detail.contains("rank 1"), "{}", error.detail);
            break;
        }
    }
}
