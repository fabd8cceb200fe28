//! What the tests of every accelerator work with: two memories of a device, regions of them that hold
//! given bytes, and the suite over one of its channels.

use super::{Fixture, Shape};
use crate::accelerator::{Device, Direction, FbmProvider, ZcmProvider};
use crate::{Channel, HostSpan, Job, Provider, Region};
use model::{
    Completion, CopyDim, CopyWork, FieldCopy, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId,
    Stride, Work,
};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};
use std::thread;

/// A device under test, whose channels have so many queues.
#[derive(Debug, Clone)]
pub struct Accelerator {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Its own memory.
    pub fbm: FbmProvider,
    /// Host memory near to it.
    pub zcm: ZcmProvider,
    queues: usize,
}

impl Accelerator {
    /// `device`, with channels of so many queues.
    #[must_use]
    pub fn new(device: impl Device + 'static, queues: usize) -> Self {
        let device: Arc<dyn Device> = Arc::new(device);
        let fbm = FbmProvider::new(memory(2), Arc::clone(&device));
        let zcm = ZcmProvider::new(memory(1), Arc::clone(&device));
        Accelerator { device, fbm, zcm, queues }
    }

    /// Whether the device has such a channel.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        self.device.profile().has(direction)
    }

    /// A channel of the device.
    ///
    /// # Panics
    /// Where it can't be made.
    #[must_use]
    pub fn channel(&self, direction: Direction) -> Box<dyn Channel> {
        self.device.channel(direction, Some(self.queues)).expect("a channel")
    }

    /// Memory of the device that holds `bytes`.
    ///
    /// # Panics
    /// Where it can't be had or written.
    #[must_use]
    pub fn fbm(&self, bytes: &[u8]) -> Arc<Region> {
        let region = self.fbm.allocate(bytes.len() as u64, 64).expect("a small region");
        let region = Arc::new(region);
        self.copy(Direction::Write, (sys(bytes), Arc::clone(&region)));
        region
    }

    /// Host memory near to the device that holds `bytes`.
    ///
    /// # Panics
    /// Where it can't be had.
    #[must_use]
    pub fn zcm(&self, bytes: &[u8]) -> Arc<Region> {
        let region = self.zcm.allocate(bytes.len() as u64, 64).expect("a small region");
        let span = region.host_span().expect("host memory");
        // SAFETY: the region is new, and as long as the bytes.
        unsafe { span.start().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Arc::new(region)
    }

    /// So much of the host memory near to the device, so many bytes behind where it may start.
    ///
    /// # Panics
    /// Where it can't be had.
    pub(super) fn zcm_at(&self, at: usize, len_bytes: usize) -> Arc<Region> {
        let whole = (at + len_bytes) as u64;
        let (span, owner) = self.device.pin(whole).expect("a small region");
        // SAFETY: it lies inside what was pinned, which the owner keeps.
        let part = unsafe { HostSpan::new(span.start().add(at), len_bytes) };
        Arc::new(Region::host(memory(1), part, owner))
    }

    /// Memory of the device that holds `bytes`, or host memory near to it.
    ///
    /// # Panics
    /// As [`Accelerator::fbm`] or [`Accelerator::zcm`].
    #[must_use]
    pub fn side(&self, bytes: &[u8], is_device: bool) -> Arc<Region> {
        if is_device { self.fbm(bytes) } else { self.zcm(bytes) }
    }

    /// What a region of host memory, or of the device, holds; no request on it is in flight.
    ///
    /// # Panics
    /// Where it can't be read.
    #[must_use]
    pub fn contents(&self, region: &Arc<Region>) -> Vec<u8> {
        let host = if region.host_span().is_some() {
            Arc::clone(region)
        } else {
            let host = sys(&vec![0; size(region.len_bytes())]);
            self.copy(Direction::Read, (Arc::clone(region), Arc::clone(&host)));
            host
        };
        let span = host.host_span().expect("host memory");
        // SAFETY: the memory is initialized, and no request on it is in flight.
        unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) }.to_vec()
    }

    fn copy(&self, direction: Direction, ends: Ends) {
        let job = job(0, &[run(ends.0.len_bytes())], (0, 0), ends);
        let done = run_one(self.channel(direction).as_mut(), job);
        done.result.expect("a small copy");
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a test's size")
}

/// A memory of the tests'.
#[must_use]
pub fn memory(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

/// Host memory that is a vector (SYS), and holds `bytes`.
///
/// # Panics
/// Never.
#[must_use]
pub fn sys(bytes: &[u8]) -> Arc<Region> {
    let mut owner = bytes.to_vec();
    let start = NonNull::new(owner.as_mut_ptr()).expect("a vector's pointer");
    // SAFETY: the bytes are there as long as the vector, which the region owns and nobody else has.
    let span = unsafe { HostSpan::new(start, owner.len()) };
    Arc::new(Region::host(memory(0), span, Arc::new(owner)))
}

/// One run of `bytes`.
pub(super) fn run(bytes: u64) -> NdCopy {
    Shape::run(bytes).copy
}

/// `count` bytes, the last first: no two of them are one rect.
#[must_use]
pub fn backwards(count: u64) -> NdCopy {
    let mut copy = nested(1, &[(count, -1, 1)]);
    copy.fields[0].src_offset = count.cast_signed() - 1;
    copy
}

/// Elements of `bytes` in loops of (extent, source stride, destination stride).
#[must_use]
pub fn nested(bytes: u64, loops: &[(u64, i64, i64)]) -> NdCopy {
    let dim = |l: &(u64, i64, i64)| CopyDim { extent: l.0, src_index: None, dst_index: None };
    let strides = loops.iter().map(|&(_, src, dst)| Stride { src, dst }).collect();
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: loops.iter().map(dim).collect(), fields: vec![field] }
}

/// A request for `list`, its offsets counted from `at`, between two regions.
#[must_use]
pub fn job(request: u64, list: &[NdCopy], at: (u64, u64), (src, dst): Ends) -> Job {
    // Channels are handed regions, not ids.
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let payload_bytes = list.iter().map(NdCopy::payload_bytes).sum();
    let work = Work::Copy(CopyWork {
        list: list.into(),
        src: place(at.0),
        dst: place(at.1),
        payload_bytes,
        result_bytes: payload_bytes,
    });
    Job { request: RequestId(request), work, src, dst }
}

/// Runs `job` alone on an empty channel.
///
/// # Panics
/// Where the channel breaks its contract.
pub fn run_one(channel: &mut dyn Channel, job: Job) -> Completion {
    channel.submit(job).expect("an empty channel takes a job");
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    done.pop().expect("a drained channel tells of its job")
}

/// The source and the destination of a job.
pub type Ends = (Arc<Region>, Arc<Region>);

/// Bytes of each of [`Accelerator::reads`].
const READ_BYTES: usize = 100_000;

impl Accelerator {
    /// The ends of so many jobs that read, the first of which holds ones, the next twos, and so on.
    #[must_use]
    pub fn reads(&self, jobs: u8) -> Vec<Ends> {
        (1..=jobs).map(|n| (self.fbm(&[n; READ_BYTES]), sys(&[0; READ_BYTES]))).collect()
    }
}

/// Has `channel` carry out jobs on `ends`, the requests 0 and on.
///
/// # Panics
/// Where it doesn't take them all.
pub fn submit_all(channel: &mut dyn Channel, ends: &[Ends]) {
    for (n, ends) in (0..).zip(ends) {
        channel.submit(job(n, &[run(ends.0.len_bytes())], (0, 0), ends.clone())).expect("room");
    }
}

/// Drops `channel`, whose jobs on [`Accelerator::reads`] stand still until `release` is called.
///
/// # Panics
/// Where it doesn't wait for them, or doesn't hold their regions until then.
pub fn drop_held(channel: Box<dyn Channel>, reads: &[Ends], release: impl FnOnce()) {
    let counts = |(src, dst): &Ends| (Arc::strong_count(src), Arc::strong_count(dst));
    thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(channel));
        let held = reads.iter().all(|ends| counts(ends) == (2, 2));
        assert!(held && !dropped.is_finished());
        release();
    });
    for (n, (src, dst)) in (1..).zip(reads) {
        assert_eq!((Arc::strong_count(src), Arc::strong_count(dst)), (1, 1));
        let span = dst.host_span().expect("host memory");
        // SAFETY: the memory is initialized, and no request on it is in flight.
        let read = unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) };
        assert!(read.iter().all(|&byte| byte == n));
    }
}

/// What host memory a channel is tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Any.
    Sys,
    /// Memory near to the device.
    Zcm,
}

/// A channel of a device, and what lies at its ends.
#[derive(Debug)]
pub struct DeviceSuite<'a> {
    device: &'a Accelerator,
    /// Whose memory a destination is that is no host's.
    there: &'a Accelerator,
    direction: Direction,
    host: Host,
    /// The regions made, since a job needs more than a reference to read one.
    made: Mutex<Vec<Weak<Region>>>,
}

impl<'a> DeviceSuite<'a> {
    /// The suite's fixture for one channel.
    #[must_use]
    pub fn new(device: &'a Accelerator, direction: Direction, host: Host) -> Self {
        DeviceSuite { device, there: device, direction, host, made: Mutex::default() }
    }

    /// That for the channel from `device` to `there`, which it reaches.
    #[must_use]
    pub fn to_peer(device: &'a Accelerator, there: &'a Accelerator) -> Self {
        DeviceSuite { there, ..DeviceSuite::new(device, Direction::Copy, Host::Sys) }
    }

    fn side(&self, bytes: &[u8], on_device: Option<&Accelerator>) -> Arc<Region> {
        let region = match (on_device, self.host) {
            (Some(device), _) => device.fbm(bytes),
            (None, Host::Sys) => sys(bytes),
            (None, Host::Zcm) => self.device.zcm(bytes),
        };
        self.made.lock().expect("no test panicked here").push(Arc::downgrade(&region));
        region
    }
}

impl Fixture for DeviceSuite<'_> {
    fn channel(&self) -> Box<dyn Channel> {
        self.device.channel(self.direction)
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        self.side(bytes, self.direction.reads_device().then_some(self.device))
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        self.side(bytes, self.direction.writes_device().then_some(self.there))
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        let mut made = self.made.lock().expect("no test panicked here");
        made.retain(|region| region.strong_count() > 0);
        let region = made.iter().find(|region| std::ptr::eq(region.as_ptr(), destination));
        self.there.contents(&region.and_then(Weak::upgrade).expect("one of this suite's"))
    }
}
