//! The suite and the wrappers on the simplest channel there is.

use crate::conformance::{self, Fixture, Immediate, Shape};
use crate::{
    Channel, Fault, Faulty, Job, Region, Regions, Throttle, Trace, TraceKind, TraceLog,
    check_bounds,
};
use model::{
    ChannelError, ChannelErrorKind, CopyWork, MemoryId, NodeId, Place, RegionId, RequestId, Time,
    Work,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };

type Bytes = Mutex<Vec<u8>>;

fn bytes_of(region: &Region) -> Result<&Bytes, ChannelError> {
    let unknown =
        || ChannelError::new(ChannelErrorKind::UnknownRegion, "not a region of this test");
    region.view::<Bytes>().ok_or_else(unknown)
}

fn carry_out(job: &Job) -> Result<(), ChannelError> {
    let Work::Copy(work) = &job.work else {
        return Err(ChannelError::new(ChannelErrorKind::Io, "nothing to commit"));
    };
    let src = bytes_of(&job.src)?.lock().unwrap().clone();
    let dst = &mut *bytes_of(&job.dst)?.lock().unwrap();
    check_bounds(work, src.len() as u64, dst.len() as u64)?;
    for copy in work.list.iter() {
        layout::oracle::copy(copy, &src, base(work.src), dst, base(work.dst));
    }
    Ok(())
}

fn base(place: Place) -> usize {
    usize::try_from(place.offset).unwrap()
}

/// The simplest channel, by the oracle.
fn immediate() -> impl Channel {
    Immediate::new(4, carry_out)
}

struct Suite<F>(F);

impl<C: Channel + 'static, F: Fn() -> C> Fixture for Suite<F> {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new((self.0)())
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        let owner: Arc<Bytes> = Arc::new(Mutex::new(bytes.to_vec()));
        Arc::new(Region::device(MEMORY, bytes.len() as u64, owner))
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        self.source(bytes)
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        bytes_of(destination).unwrap().lock().unwrap().clone()
    }
}

/// Time since the first call, for wrappers that need one.
fn clock() -> impl Fn() -> Time + Send {
    let origin = Instant::now();
    move || Time(u64::try_from(origin.elapsed().as_nanos()).unwrap())
}

fn run_of(request: u64, bytes: u64, fixture: &dyn Fixture) -> Job {
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let list = vec![Shape::run(bytes).copy].into();
    let work = CopyWork { list, src: place, dst: place, payload_bytes: bytes, result_bytes: bytes };
    let zeros = vec![0; usize::try_from(bytes).unwrap()];
    let (src, dst) = (fixture.source(&zeros), fixture.destination(&zeros));
    Job { request: RequestId(request), work: Work::Copy(work), src, dst }
}

#[test]
fn the_simplest_channel_conforms() {
    conformance::run(&Suite(immediate));
}

#[test]
fn a_traced_channel_conforms_and_tells() {
    conformance::run(&Suite(|| Trace::new(immediate(), clock(), TraceLog::new(10))));
    let log = TraceLog::new(3);
    let mut channel = Trace::new(immediate(), || Time(5), log.clone());
    for request in 0..2 {
        channel.submit(run_of(request, 8, &Suite(immediate))).unwrap();
    }
    channel.poll(&mut Vec::new());
    let events = log.take();
    assert_eq!(events.len(), 3, "the oldest of four went");
    assert_eq!(events[0].kind, TraceKind::Submitted { payload_bytes: 8 });
    assert_eq!((events[0].request, events[0].at), (RequestId(1), Time(5)));
    assert_eq!(events[2].kind, TraceKind::Completed { ok: true });
}

#[test]
fn a_faulty_channel_conforms_without_faults_and_fails_with_them() {
    conformance::run(&Suite(|| Faulty::new(immediate(), Vec::new())));
    let faults = vec![Fault { nth: 1, kind: ChannelErrorKind::DeviceLost }];
    let mut channel = Faulty::new(immediate(), faults);
    for request in 10..13 {
        channel.submit(run_of(request, 8, &Suite(immediate))).unwrap();
    }
    let mut done = Vec::new();
    channel.poll(&mut done);
    let kinds: Vec<_> = done.into_iter().map(|c| c.result.map_err(|e| e.kind)).collect();
    assert_eq!(kinds, [Ok(()), Err(ChannelErrorKind::DeviceLost), Ok(())]);
}

#[test]
fn a_throttled_channel_conforms_and_holds_back() {
    conformance::run(&Suite(|| Throttle::new(immediate(), 1e9, clock()).unwrap()));
    let now = Arc::new(Mutex::new(Time(0)));
    let theirs = Arc::clone(&now);
    let slow = move || *theirs.lock().unwrap();
    let mut channel = Throttle::new(immediate(), 1000.0, slow).unwrap();
    for request in 0..2 {
        channel.submit(run_of(request, 500, &Suite(immediate))).unwrap();
    }
    let mut counts = Vec::new();
    for half_seconds in 0..3 {
        *now.lock().unwrap() = Time(0) + Duration::from_millis(500 * half_seconds);
        let mut done = Vec::new();
        channel.poll(&mut done);
        counts.push(done.len());
    }
    assert_eq!(counts, [0, 1, 1]);
}

#[test]
fn a_revoked_id_finds_nothing_and_is_not_reused() {
    let regions = Regions::new();
    let first = regions.insert(Region::device(MEMORY, 8, Arc::new(())));
    let held = regions.get(first).unwrap();
    assert!(regions.revoke(first).is_some());
    assert!(regions.get(first).is_none());
    assert!(regions.revoke(first).is_none());
    let second = regions.insert(Region::device(MEMORY, 9, Arc::new(())));
    assert_eq!((second.index, held.len_bytes()), (first.index, 8));
    assert_ne!(second, first);
    assert!(regions.get(first).is_none());
    assert_eq!(regions.get(second).unwrap().len_bytes(), 9);
}
