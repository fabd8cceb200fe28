//! The RemoteMemcpy channel against the contract of channels, between two ranks of this process.

use channel::conformance::{self, Fixture};
use channel::model::{
    ChannelErrorKind, CopyWork, MemoryId, NodeId, Place, RegionId, RequestId, Work,
};
use channel::{Channel, HostSpan, Job, Region};
use fabric::{Config, Fabric, Handlers, Job as Ranks, Service};
use isometry_channel_remote::{RemoteChannel, RemoteSpan};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 256 << 20;

fn memory(node: u32) -> MemoryId {
    MemoryId { node: NodeId(node), index: 0 }
}

/// So many ranks, with segments.
fn joined<const N: usize>(ranks: &Ranks) -> [Fabric; N] {
    let join = |rank: u32| {
        let variables = ranks.variables(rank);
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let mut config = Config::from_variables(lookup).unwrap();
        config.segment_bytes = SEGMENT_BYTES;
        Fabric::join(&config, Handlers::new()).unwrap()
    };
    thread::scope(|scope| {
        let join = &join;
        let all: [_; N] = std::array::from_fn(|rank| scope.spawn(move || join(rank as u32)));
        all.map(|rank| rank.join().unwrap())
    })
}

fn pair() -> [Fabric; 2] {
    joined(&Ranks::new(2).unwrap())
}

/// A job that puts 64 bytes to a rank.
fn job(request: u64, to: u32) -> Job {
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let list = Arc::from([conformance::Shape::run(64).copy]);
    let work = CopyWork { list, src: place, dst: place, payload_bytes: 64, result_bytes: 0 };
    let dst = RemoteSpan::in_segment(NodeId(to), 0).into_region(memory(to), 64);
    let (request, work) = (RequestId(request), Work::Copy(work));
    Job { request, work, src: host(&[7; 64]), dst: Arc::new(dst) }
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
        Arc::new(RemoteSpan::in_segment(NodeId(1), at).into_region(memory(1), len))
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
    drop(other);
    // Until the loss is seen, puts go to memory that is still mapped.
    for request in 0.. {
        channel.submit(job(request, 1)).unwrap();
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

/// Also where that one's came before the channel's thread had looked for any.
#[test]
fn a_job_to_one_rank_does_not_wait_for_another_rank() {
    let [first, second, third] = joined(&Ranks::loopback(3).unwrap());
    let _serving = Service::of(Arc::new(third)).unwrap();
    let mut channel = RemoteChannel::new(Arc::new(first)).unwrap();
    // The second does not look what comes.
    channel.submit(job(1, 1)).unwrap();
    // What it is for is on its way by then.
    thread::sleep(Duration::from_millis(50));
    channel.submit(job(2, 2)).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while done.is_empty() && Instant::now() < end {
        channel.poll(&mut done);
        thread::yield_now();
    }
    assert_eq!(done.first().map(|ended| ended.request), Some(RequestId(2)));
    while done.len() < 2 {
        second.poll();
        channel.poll(&mut done);
    }
}

/// Requests to a peer that takes nothing, of which the sockets have no room for all, and then to others.
#[test]
fn who_takes_nothing_holds_others_up_for_seconds_and_not_for_ever() {
    const MUCH: usize = 64 << 20;
    let [fabric, silent, other] = joined::<3>(&Ranks::loopback(3).unwrap());
    let fabric = Arc::new(fabric);
    let other = Service::of(Arc::new(other)).unwrap();
    let mut channel = RemoteChannel::new(Arc::clone(&fabric)).unwrap();
    let much: Vec<u8> = vec![7; MUCH];
    let start = Instant::now();
    for request in 0..3 {
        let mut job = job(request, 1);
        let Work::Copy(work) = &mut job.work else { unreachable!("a copy") };
        work.list = Arc::from([conformance::Shape::run(MUCH as u64).copy]);
        work.payload_bytes = MUCH as u64;
        job.src = host(&much);
        job.dst =
            Arc::new(RemoteSpan::in_segment(NodeId(1), 0).into_region(memory(1), MUCH as u64));
        channel.submit(job).unwrap();
    }
    let mut done = Vec::new();
    while done.len() < 3 {
        conformance::wait(&mut channel, &mut done);
    }
    for completion in &done {
        let error = completion.result.as_ref().unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::PeerLost);
        assert!(error.detail.contains("rank 1 has had no room"), "{error}");
    }
    done.clear();
    channel.submit(job(3, 2)).unwrap();
    while done.is_empty() {
        conformance::wait(&mut channel, &mut done);
    }
    assert_eq!(done[0].result, Ok(()));
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    // One that goes on is used again, although it has said nothing by itself.
    let silent = Service::of(Arc::new(silent)).unwrap();
    let works = |request| {
        let (mut done, end) = (Vec::new(), Instant::now() + Duration::from_secs(1));
        channel.submit(job(request, 1)).unwrap();
        while done.is_empty() {
            conformance::wait(&mut channel, &mut done);
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        done[0].result.is_ok()
    };
    assert!((4..24).any(works));
    drop((silent, other));
}
