//! What the tests of this crate share: two devices, and regions that hold given bytes.
#![allow(dead_code, reason = "each test program uses a part of it")]

use channel::conformance::Fixture;
use channel::model::{
    Completion, CopyDim, CopyWork, FieldCopy, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId,
    Stride, Work,
};
use channel::{Channel, Job, Provider, Region};
use isometry_channel_opencl::{
    Device, Direction, FbmProvider, Found, OpenClChannel, ZcmProvider, find,
};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Two devices, each a context of its own; they are one and the same where there is no second.
/// Without any it says so, and the test is skipped.
pub(crate) fn devices(test: &str) -> Option<[Device; 2]> {
    static FOUND: OnceLock<Result<Vec<Found>, isometry_channel_opencl::Absent>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if std::env::var_os("POCL_DEVICES").is_none() {
            // SAFETY: all that reads variables here goes through std's lock, but for OpenCL, which
            // is first called behind this.
            unsafe { std::env::set_var("POCL_DEVICES", "pthread pthread") };
        }
        find()
    });
    match found {
        Ok(found) => {
            let open = |found: &Found| found.open().expect("a device that was found opens");
            Some([open(&found[0]), open(found.get(1).unwrap_or(&found[0]))])
        }
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}

pub(crate) fn memory(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

/// Host memory that is a vector (SYS).
pub(crate) fn sys(bytes: &[u8]) -> Arc<Region> {
    let mut owner = bytes.to_vec();
    let start = NonNull::new(owner.as_mut_ptr()).expect("a vector's pointer");
    // SAFETY: the bytes are there as long as the vector, which the region owns and nobody else has.
    let span = unsafe { channel::HostSpan::new(start, owner.len()) };
    Arc::new(Region::host(memory(0), span, Arc::new(owner)))
}

/// Host memory near to `device` (ZCM).
pub(crate) fn zcm(device: &Device, bytes: &[u8]) -> Arc<Region> {
    let region = ZcmProvider::new(memory(1), device.clone()).allocate(bytes.len() as u64, 64);
    let region = region.expect("a small region");
    let span = region.host_span().expect("host memory");
    // SAFETY: the region is new, and as long as the bytes.
    unsafe { span.start().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Arc::new(region)
}

/// Memory of `device` (FBM).
pub(crate) fn fbm(device: &Device, bytes: &[u8]) -> Arc<Region> {
    let region = FbmProvider::new(memory(2), device.clone()).allocate(bytes.len() as u64, 64);
    let region = Arc::new(region.expect("a small region"));
    let write = run(bytes.len() as u64);
    let mut channel = OpenClChannel::new(device, Direction::Write).expect("a channel");
    let done = run_one(&mut channel, job(0, &[write], (0, 0), (sys(bytes), Arc::clone(&region))));
    done.result.expect("a small write");
    region
}

/// What a region of host memory, or of `device`, holds.
pub(crate) fn contents(device: &Device, region: &Arc<Region>) -> Vec<u8> {
    let host = match region.host_span() {
        Some(_) => Arc::clone(region),
        None => {
            let host = sys(&vec![0; region.len_bytes() as usize]);
            let mut channel = OpenClChannel::new(device, Direction::Read).expect("a channel");
            let ends = (Arc::clone(region), Arc::clone(&host));
            let done = run_one(&mut channel, job(0, &[run(region.len_bytes())], (0, 0), ends));
            done.result.expect("a small read");
            host
        }
    };
    let span = host.host_span().expect("host memory");
    // SAFETY: the memory is initialized, and no request on it is in flight.
    unsafe { std::slice::from_raw_parts(span.start().as_ptr(), span.len_bytes()) }.to_vec()
}

/// One run of `bytes`.
pub(crate) fn run(bytes: u64) -> NdCopy {
    channel::conformance::Shape::run(bytes).copy
}

pub(crate) fn job(
    request: u64,
    list: &[NdCopy],
    at: (u64, u64),
    (src, dst): (Arc<Region>, Arc<Region>),
) -> Job {
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

/// Runs `job` alone.
pub(crate) fn run_one(channel: &mut dyn Channel, job: Job) -> Completion {
    channel.submit(job).expect("an empty channel takes a job");
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    done.pop().expect("a drained channel tells of its job")
}

/// What host memory a channel is tested with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host {
    Sys,
    Zcm,
}

/// A channel of a device, and what lies at its ends.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) device: Device,
    pub(crate) direction: Direction,
    pub(crate) host: Host,
    pub(crate) queues: usize,
    /// The regions made, since a job needs more than a reference to read one.
    made: Mutex<Vec<Weak<Region>>>,
}

impl Suite {
    pub(crate) fn new(device: &Device, direction: Direction, host: Host, queues: usize) -> Self {
        Suite { device: device.clone(), direction, host, queues, made: Mutex::default() }
    }

    fn side(&self, bytes: &[u8], on_device: bool) -> Arc<Region> {
        let region = match (on_device, self.host) {
            (true, _) => fbm(&self.device, bytes),
            (false, Host::Sys) => sys(bytes),
            (false, Host::Zcm) => zcm(&self.device, bytes),
        };
        self.made.lock().expect("no test panicked here").push(Arc::downgrade(&region));
        region
    }
}

impl Fixture for Suite {
    fn channel(&self) -> Box<dyn Channel> {
        let channel = OpenClChannel::with_queues(&self.device, self.direction, self.queues);
        Box::new(channel.expect("a channel"))
    }

    fn source(&self, bytes: &[u8]) -> Arc<Region> {
        self.side(bytes, self.direction != Direction::Write)
    }

    fn destination(&self, bytes: &[u8]) -> Arc<Region> {
        self.side(bytes, self.direction != Direction::Read)
    }

    fn contents(&self, destination: &Region) -> Vec<u8> {
        let mut made = self.made.lock().expect("no test panicked here");
        made.retain(|region| region.strong_count() > 0);
        let region = made.iter().find(|region| std::ptr::eq(region.as_ptr(), destination));
        contents(&self.device, &region.and_then(Weak::upgrade).expect("one of this suite's"))
    }
}

/// `count` bytes, the last first: one command each.
pub(crate) fn backwards(count: u64) -> NdCopy {
    let dim = CopyDim { extent: count, src_index: None, dst_index: None };
    let last = count as i64 - 1;
    let strides = vec![Stride { src: -1, dst: 1 }];
    let field = FieldCopy { bytes: 1, src_offset: last, dst_offset: 0, strides };
    NdCopy { dims: vec![dim], fields: vec![field] }
}
