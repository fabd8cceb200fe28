//! The link between devices of one machine, of ranks of this process, whose devices are in their segments.

use channel::accelerator::{
    Device, Direction, Fence, Health, Interop, IpcHandle, Owner, Profile, StreamHandle,
};
use channel::conformance::Shape;
use channel::model::{
    ChannelError, ChannelErrorKind, Completion, CopyWork, MemoryId, NodeId, Place, RegionId,
    RequestId, Work,
};
use channel::{Channel, DeviceSpan, HostSpan, Job, Region};
use fabric::{Config, Fabric, Handlers, Job as Ranks};
use isometry_channel_remote::{DeviceLink, Exported, RemoteChannel, RemoteSpan};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

const BYTES: u64 = 64;

fn pair() -> [Fabric; 2] {
    let ranks = Ranks::new(2).unwrap();
    let join = |rank: u32| {
        let variables = ranks.variables(rank);
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let config = Config { segment_bytes: 4096, ..Config::from_variables(lookup).unwrap() };
        Fabric::join(&config, Handlers::new()).unwrap()
    };
    thread::scope(|scope| {
        let join = &join;
        let second = scope.spawn(move || join(1));
        [join(0), second.join().unwrap()]
    })
}

/// A device that opens the segment of rank 1 by handles of ones, from the byte on that its number says, and has a
/// driver that breaks at handles of threes.
#[derive(Debug)]
struct Mapping {
    fabric: Arc<Fabric>,
    number: i32,
    health: Arc<Health>,
    opened: AtomicU64,
    /// Held by who has it wait before it opens anything.
    gate: Mutex<()>,
}

impl Device for Mapping {
    fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn profile(&self) -> Profile {
        unreachable!("nobody asks")
    }

    fn allocate(&self, _bytes: u64) -> Result<Owner, ChannelError> {
        unreachable!("as above")
    }

    fn pin(&self, _bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        unreachable!("as above")
    }

    fn channel(
        &self,
        _direction: Direction,
        _queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        self.health.check()?;
        Ok(Box::new(RemoteChannel::new(Arc::clone(&self.fabric)).unwrap()))
    }

    fn interop(&self) -> Option<&dyn Interop> {
        Some(self)
    }
}

impl Interop for Mapping {
    fn ordinal(&self) -> i32 {
        self.number
    }

    fn span(&self, _owner: &Owner) -> Option<DeviceSpan> {
        None
    }

    fn locate(&self, _address: u64) -> Result<Option<Range<u64>>, ChannelError> {
        Ok(None)
    }

    unsafe fn adopt(&self, _bytes: Range<u64>, owner: Owner) -> Owner {
        owner
    }

    fn export(&self, _region: &Region) -> Result<Option<IpcHandle>, ChannelError> {
        Ok(None)
    }

    fn import(&self, handle: &IpcHandle, _bytes: u64) -> Result<Owner, ChannelError> {
        let _open = self.gate.lock().unwrap();
        self.opened.fetch_add(1, Ordering::Relaxed);
        match handle.0 {
            [1, ..] => Ok(Arc::new(RemoteSpan::in_segment(NodeId(1), self.number as u64 * BYTES))),
            [3, ..] => panic!("as a driver may"),
            _ => Err(self.health.failed(ChannelErrorKind::Io, "no such memory")),
        }
    }

    fn register(&self, host: &Arc<Region>) -> Result<Owner, ChannelError> {
        Ok(Arc::<Region>::clone(host))
    }

    fn reach(&self, _peer: &dyn Device) -> Result<Option<i32>, ChannelError> {
        Ok(None)
    }

    fn has_stream(&self, _stream: StreamHandle) -> Result<bool, ChannelError> {
        Ok(false)
    }

    fn fence(&self) -> Result<Box<dyn Fence>, ChannelError> {
        unreachable!("nobody asks for one")
    }
}

/// The memory of a device of rank 0.
fn own(index: u16) -> MemoryId {
    MemoryId { node: NodeId(0), index }
}

fn devices(fabric: &Arc<Fabric>) -> [Arc<Mapping>; 2] {
    [0, 1].map(|number| {
        let health = Arc::new(Health::new("Some", &number.to_string()));
        let (fabric, (opened, gate)) = (Arc::clone(fabric), Default::default());
        Arc::new(Mapping { fabric, number, health, opened, gate })
    })
}

fn link(fabric: &Arc<Fabric>, devices: &[Arc<Mapping>]) -> DeviceLink {
    let all = (0..).zip(devices).map(|(index, it)| (own(index), Arc::clone(it) as Arc<dyn Device>));
    DeviceLink::new(Arc::clone(fabric), all).unwrap()
}

fn there(byte: u8) -> Arc<Region> {
    exported(byte, 0)
}

/// What rank 1 has exported of a memory, by a handle of `byte`s.
fn exported(byte: u8, index: u16) -> Arc<Region> {
    let memory = MemoryId { node: NodeId(1), index };
    Arc::new(Exported::new(IpcHandle([byte; 64])).into_region(memory, BYTES))
}

/// Submits a copy of `byte`s out of memory `from`.
fn submit(link: &mut DeviceLink, from: u16, byte: u8, dst: &Arc<Region>) -> RequestId {
    let owner: Arc<Vec<u8>> = Arc::new(vec![byte; BYTES as usize]);
    // SAFETY: the vector lives as long as the region, and is read only.
    let span = unsafe { HostSpan::new(NonNull::from(owner.as_slice()).cast(), owner.len()) };
    let src = Arc::new(Region::host(own(from), span, owner));
    let place = Place { region: RegionId { index: 0, generation: 0 }, offset: 0 };
    let list = Arc::from([Shape::run(BYTES).copy]);
    let work = CopyWork { list, src: place, dst: place, payload_bytes: BYTES, result_bytes: 0 };
    let (request, work) = (RequestId(u64::from(from)), Work::Copy(work));
    link.submit(Job { request, work, src, dst: Arc::clone(dst) }).unwrap();
    request
}

/// What became of such a copy, and that the link rings then.
fn copied(
    link: &mut DeviceLink,
    from: u16,
    byte: u8,
    dst: &Arc<Region>,
) -> Result<(), ChannelError> {
    let request = submit(link, from, byte, dst);
    link.drain();
    assert!(rings(link));
    let mut done = Vec::new();
    link.poll(&mut done);
    assert!(!rings(link));
    let [done] = <[_; 1]>::try_from(done).unwrap();
    assert_eq!(done.request, request);
    done.result
}

fn rings(link: &DeviceLink) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = link.wake_fd().unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
}

#[test]
fn each_device_opens_what_it_copies_to_once() {
    let [fabric, other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let (mut link, dst) = (link(&fabric, &devices), there(1));
    for (from, byte) in [(0, 3), (1, 4), (0, 5)] {
        copied(&mut link, from, byte, &dst).unwrap();
        let mut bytes = [0; BYTES as usize];
        other.segment().read(u64::from(from) * BYTES, &mut bytes).unwrap();
        assert_eq!(bytes, [byte; BYTES as usize]);
    }
    assert_eq!(devices.each_ref().map(|device| device.opened.load(Ordering::Relaxed)), [1, 1]);
    let error = copied(&mut link, 2, 6, &dst).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::UnknownRegion, "no device has such memory");
}

#[test]
fn what_a_device_does_not_reach_is_asked_for_once() {
    let [fabric, _other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let mut link = link(&fabric, &devices);
    let bad = there(2);
    for _ in 0..2 {
        let error = copied(&mut link, 0, 1, &bad).unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::Io);
        assert!(error.detail.contains("no such memory"), "{}", error.detail);
    }
    assert_eq!(devices[0].opened.load(Ordering::Relaxed), 1);
    let unreached =
        |device: &Arc<Mapping>| device.health.unreached().into_keys().collect::<Vec<_>>();
    assert_eq!(devices.each_ref().map(unreached), [vec![bad.memory()], vec![]]);
    copied(&mut link, 0, 1, &exported(1, 1)).unwrap();
}

#[test]
fn what_a_lost_rank_has_exported_says_nothing_of_the_device() {
    let [fabric, other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let mut link = link(&fabric, &devices);
    drop(other);
    let error = copied(&mut link, 0, 1, &there(2)).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::PeerLost, "{}", error.detail);
    assert!(devices[0].health.unreached().is_empty());
}

#[test]
fn a_panic_while_memory_is_opened_ends_that_copy_alone() {
    let [fabric, _other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let mut link = link(&fabric, &devices);
    let error = copied(&mut link, 0, 1, &there(3)).unwrap_err();
    assert!(error.kind == ChannelErrorKind::Io && error.detail.contains("panicked"), "{error}");
    copied(&mut link, 1, 1, &there(1)).unwrap();
}

#[test]
fn a_device_that_makes_no_channel_reaches_nothing() {
    let [fabric, _other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    devices[0].health.failed(ChannelErrorKind::DeviceLost, "it fell");
    let mut link = link(&fabric, &devices);
    copied(&mut link, 1, 1, &there(1)).unwrap();
    let error = copied(&mut link, 0, 1, &there(1)).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    assert_eq!(devices[0].health.unreached().len(), 1);
}

/// What is done, where only `goes_on` is while the gate is shut.
fn first_and_rest(
    link: &mut DeviceLink,
    goes_on: RequestId,
    gate: MutexGuard<'_, ()>,
) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.is_empty() {
        link.poll(&mut done);
    }
    assert_eq!((done.len(), done[0].request), (1, goes_on));
    drop(gate);
    link.drain();
    link.poll(&mut done);
    done
}

#[test]
fn what_opens_one_memory_holds_up_none_that_opens_another() {
    let [fabric, _other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let (mut link, held_up) = (link(&fabric, &devices), there(1));
    let gate = devices[0].gate.lock().unwrap();
    let waits = [4, 5].map(|byte| submit(&mut link, 0, byte, &held_up));
    let goes_on = submit(&mut link, 1, 6, &exported(1, 1));
    let done = first_and_rest(&mut link, goes_on, gate);
    assert_eq!(done[1..].iter().map(|done| done.request).collect::<Vec<_>>(), waits);
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    assert_eq!(devices.map(|device| device.opened.load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn nobody_waits_while_a_device_opens_memory() {
    let [fabric, other] = pair();
    let fabric = Arc::new(fabric);
    let devices = devices(&fabric);
    let (mut link, dst) = (link(&fabric, &devices), there(1));
    copied(&mut link, 1, 4, &dst).unwrap();
    let gate = devices[0].gate.lock().unwrap();
    let waits = submit(&mut link, 0, 3, &dst);
    // What is open goes on meanwhile.
    let goes_on = submit(&mut link, 1, 5, &dst);
    let done = first_and_rest(&mut link, goes_on, gate);
    assert_eq!((done.len(), done[1].request), (2, waits));
    let mut bytes = [0; 2 * BYTES as usize];
    other.segment().read(0, &mut bytes).unwrap();
    assert_eq!(bytes.as_chunks().0, [[3; BYTES as usize], [5; BYTES as usize]]);
}
