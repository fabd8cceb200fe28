//! Memory and streams of devices that other libraries of the process use too: emulated, but for what also runs on
//! the system's driver where that is asked for.

use fake_cuda::{Fake, Neighbour};
use isometry::channel::accelerator::StreamHandle;
use isometry::model::{ChannelError, ChannelErrorKind, ChannelKind, MemoryKind};
use isometry::planner::Options;
use isometry::{
    Accelerators, ArgumentError, Array, CopyOptions, Cuda, Error, Event, Foreign, Instance, Machine,
};
use std::sync::{Arc, Weak};
use std::thread;

const ILLEGAL_ADDRESS: u32 = 700;

/// A machine of two emulated devices, and their driver; none where tests run on the system's.
fn machine(test: &str) -> Option<(Fake, Machine)> {
    let Some(fake) = Fake::load() else {
        println!("skipped: {test}: it needs the fake driver, and the system's is asked for");
        return None;
    };
    let machine = open(Cuda::Driver(fake.path().to_owned()));
    Some((fake, machine))
}

fn open(cuda: Cuda) -> Machine {
    let builder = Machine::builder().lanes(1).staging(2 << 20).assume(true);
    builder.accelerators(Accelerators::None).cuda(cuda).open().unwrap()
}

/// A machine of devices and another library that uses the last of them, by its number; the driver, unless it is the
/// system's.
fn beside_a_neighbour(test: &str) -> Option<(Option<Fake>, Machine, (Neighbour, i32))> {
    let fake = Fake::load();
    let machine =
        open(fake.as_ref().map_or(Cuda::All, |fake| Cuda::Driver(fake.path().to_owned())));
    let memories = &machine.topology().classes[0].memories;
    let devices = memories.iter().filter(|memory| memory.kind == MemoryKind::Fbm).count();
    let Some(last) = devices.checked_sub(1).map(|last| last as i32) else {
        println!("skipped: {test}: there is no device");
        return None;
    };
    let on_fake = fake.as_ref().map(|fake| fake.neighbour(last));
    let neighbour = on_fake.unwrap_or_else(|| Neighbour::on_system(last));
    Some((fake, machine, (neighbour, last)))
}

fn handle(stream: u64) -> StreamHandle {
    // SAFETY: tests hand over streams of the neighbour's that are there until they end.
    unsafe { StreamHandle::new(stream) }
}

/// `len` bytes of a device at `address`, that something owns.
fn bytes_at(address: u64, strides: Vec<i64>) -> (Foreign, Weak<()>) {
    let owner = Arc::new(());
    let kept = Arc::downgrade(&owner);
    // SAFETY: the neighbour has it there, or it is the emulated driver, which refuses what is not.
    (unsafe { Foreign::on_device(address, None, strides, true, owner) }, kept)
}

fn row(len: u64) -> Array {
    Array::of(&[("x", len)], "|u1").unwrap()
}

fn wrap_row(machine: &Machine, len: u64, foreign: Foreign) -> Result<Instance, Error> {
    let Array { space, fields, .. } = row(len);
    machine.wrap(space, fields, foreign)
}

fn start(machine: &Machine, src: &Instance, dst: &Instance) -> Event {
    machine.copy(src, dst, &CopyOptions::default()).unwrap()
}

/// What a device holds there, as a copy finds it.
fn read(machine: &Machine, src: &Instance) -> Result<Vec<u8>, Error> {
    let here = machine.empty(row(src.payload_bytes()), "sys").unwrap();
    start(machine, src, &here).wait(None)?;
    here.to_vec()
}

/// A stream of the first device that stands still until it is let go, or dropped.
struct Held<'a> {
    fake: &'a Fake,
    stream: u64,
}

impl<'a> Held<'a> {
    fn new(fake: &'a Fake, stream: u64) -> Self {
        fake.hold_stream(0, stream, true);
        Held { fake, stream }
    }

    /// A new stream with a fill of `bytes` bytes at `address` on it.
    fn with_fill(
        fake: &'a Fake,
        other: &Neighbour,
        (address, bytes): (u64, usize),
        byte: u8,
    ) -> Self {
        let held = Held::new(fake, other.stream());
        other.fill(held.stream, (address, bytes), byte);
        held
    }

    fn handle(&self) -> StreamHandle {
        handle(self.stream)
    }

    fn let_go(&self) {
        self.fake.hold_stream(0, self.stream, false);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Many fences with nothing in front are reached meanwhile: so would be those before them, and copies behind
/// these have begun.
fn others_are_reached(machine: &Machine) {
    for _ in 0..100 {
        machine.fence(StreamHandle::PER_THREAD_DEFAULT, None).unwrap().wait(None).unwrap();
    }
}

fn argument(result: Result<impl Sized, Error>) -> ArgumentError {
    match result.map(drop).unwrap_err() {
        Error::Argument(error) => error,
        other => panic!("it is no argument's: {other}"),
    }
}

#[test]
fn what_a_neighbour_has_allocated_is_copied_in_place_and_stays_his() {
    let test = "what_a_neighbour_has_allocated_is_copied_in_place_and_stays_his";
    let Some((fake, machine, (other, last))) = beside_a_neighbour(test) else { return };
    let (address, stream) = (other.allocate(1000), other.stream());
    other.fill(stream, (address, 1000), 0xa5);
    machine.fence(handle(stream), None).unwrap().wait(None).unwrap();
    other.end(stream);
    // Rows of three of five bytes, from the last to the first.
    let (foreign, owner) = bytes_at(address + 901, vec![-5, 1]);
    let Array { space, fields, .. } = Array::of(&[("y", 100), ("x", 3)], "|u1").unwrap();
    let there = machine.wrap(space.clone(), fields.clone(), foreign).unwrap();
    let memory = machine.topology().short_name(there.memory());
    let expected = if last == 0 { "fbm".to_owned() } else { format!("fbm{last}") };
    assert_eq!((memory, there.device_ordinal().unwrap()), (expected, last));
    assert_eq!(there.device_byte().unwrap(), address + 901);
    let bytes: Vec<u8> = (0..300).map(|i| (i * 7 + i / 251) as u8).collect();
    let (src, dst) = (Foreign::of_vec(bytes.clone(), vec![3, 1]), vec![0; 300]);
    let src = machine.wrap(space.clone(), fields.clone(), src).unwrap();
    let dst = machine.wrap(space, fields, Foreign::of_vec(dst, vec![3, 1])).unwrap();
    start(&machine, &src, &there).wait(None).unwrap();
    start(&machine, &there, &dst).wait(None).unwrap();
    assert_eq!(dst.to_vec().unwrap(), bytes);
    let (whole, _) = bytes_at(address, vec![1]);
    let whole = read(&machine, &wrap_row(&machine, 1000, whole).unwrap()).unwrap();
    assert_eq!(whole[901..904], bytes[..3], "the first row is the last");
    assert_eq!((whole[404], whole[405], whole[904]), (0xa5, 0xa5, 0xa5), "gaps stay");
    assert!(owner.strong_count() > 0);
    let freed = || fake.as_ref().map(|fake| fake.count("cuMemFree_v2"));
    let before = freed();
    drop(there);
    assert_eq!((owner.strong_count(), freed()), (0, before));
    other.free(address);
}

#[test]
fn a_copy_starts_behind_the_stream_that_its_array_is_made_on() {
    let test = "a_copy_starts_behind_the_stream_that_its_array_is_made_on";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let (address, free) = (other.allocate(64), machine.empty(row(64), "fbm").unwrap());
    let stream = Held::with_fill(&fake, &other, (address, 64), 7);
    let kept = Arc::new(());
    let owner = Arc::downgrade(&kept);
    // SAFETY: the neighbour frees nothing.
    let foreign =
        unsafe { Foreign::on_device(address, Some(stream.handle()), vec![1], true, kept) };
    let there = wrap_row(&machine, 64, foreign).unwrap();
    // What it is asked later is not waited for, and not over before the end.
    let later = Held::with_fill(&fake, &other, (address, 64), 9);
    other.follow(stream.stream, later.stream);
    let here = machine.empty(row(64), "sys").unwrap();
    let event = start(&machine, &there, &here);
    drop(there);
    others_are_reached(&machine);
    assert_eq!(read(&machine, &free).unwrap(), [0; 64], "others go on");
    assert!(!event.is_done() && owner.strong_count() > 0);
    stream.let_go();
    event.wait(None).unwrap();
    assert_eq!(here.to_vec().unwrap(), [7; 64]);
    assert_eq!(owner.strong_count(), 0, "nobody needs it any more");
}

#[test]
fn a_small_copy_of_host_memory_waits_for_a_stream_too() {
    let test = "a_small_copy_of_host_memory_waits_for_a_stream_too";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let stream = Held::with_fill(&fake, &other, (other.allocate(1), 1), 7);
    let fence = machine.fence(stream.handle(), None).unwrap();
    let foreign = Foreign::of_vec(vec![3; 8], vec![1]).after(fence.clone());
    let (src, dst) =
        (wrap_row(&machine, 8, foreign).unwrap(), machine.empty(row(8), "sys").unwrap());
    let options = CopyOptions { after: vec![fence], ..CopyOptions::default() };
    let plain = machine.empty(row(8), "sys").unwrap();
    let events =
        [start(&machine, &src, &dst), machine.copy(&plain, &plain_of(&machine), &options).unwrap()];
    others_are_reached(&machine);
    assert!(events.iter().all(|event| !event.is_done()));
    stream.let_go();
    events.iter().for_each(|event| event.wait(None).unwrap());
    assert_eq!(dst.to_vec().unwrap(), [3; 8]);
    src.settle().unwrap();
    assert!(start(&machine, &src, &dst).is_done(), "from then on it runs on its caller's thread");
}

fn plain_of(machine: &Machine) -> Instance {
    machine.empty(row(8), "sys").unwrap()
}

#[test]
fn a_fence_on_a_stream_of_ours_is_behind_what_others_put_in_front() {
    let test = "a_fence_on_a_stream_of_ours_is_behind_what_others_put_in_front";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let stream = Held::with_fill(&fake, &other, (other.allocate(1), 1), 7);
    let fences = [machine.stream_fence(0).unwrap(), machine.stream_fence(0).unwrap()];
    let [ahead, free] = fences;
    assert_ne!(ahead.stream(), free.stream());
    other.follow(ahead.stream().raw(), stream.stream);
    let ahead = ahead.into_event().unwrap();
    free.into_event().unwrap().wait(None).unwrap();
    assert!(!ahead.is_done());
    stream.let_go();
    ahead.wait(None).unwrap();
    let ordinal = 2;
    assert_eq!(argument(machine.stream_fence(ordinal)), ArgumentError::NoOrdinal { ordinal });
}

#[test]
fn a_fence_that_is_cancelled_fails_what_is_behind_it() {
    let test = "a_fence_that_is_cancelled_fails_what_is_behind_it";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let stream = Held::with_fill(&fake, &other, (other.allocate(1), 1), 7);
    let fence = machine.fence(stream.handle(), Some("fbm")).unwrap();
    let options = CopyOptions { after: vec![fence.clone()], ..CopyOptions::default() };
    let event = machine.copy(&plain_of(&machine), &plain_of(&machine), &options).unwrap();
    others_are_reached(&machine);
    fence.cancel();
    assert!(matches!(fence.wait(None), Err(Error::Cancelled)));
    let Error::Transfer { error, .. } = event.wait(None).unwrap_err() else { panic!("it fails") };
    assert_eq!(error.cause.kind, ChannelErrorKind::Dependency);
    stream.let_go();
    machine.fence(stream.handle(), None).unwrap().wait(None).unwrap();
    assert!(matches!(fence.wait(None), Err(Error::Cancelled)), "it has ended once");
}

#[test]
fn a_machine_that_is_closed_ends_fences_and_waits_for_copies_behind_them() {
    let test = "a_machine_that_is_closed_ends_fences_and_waits_for_copies_behind_them";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let [first, second] =
        [(); 2].map(|()| Held::with_fill(&fake, &other, (other.allocate(1), 1), 7));
    let [ahead, forgotten] = [&first, &second].map(|s| machine.fence(s.handle(), None).unwrap());
    let options = CopyOptions { after: vec![ahead.clone()], ..CopyOptions::default() };
    let event = machine.copy(&plain_of(&machine), &plain_of(&machine), &options).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| machine.close());
        first.let_go();
        event.wait(None).unwrap();
    });
    ahead.wait(None).unwrap();
    assert!(matches!(forgotten.wait(None), Err(Error::Cancelled)));
    assert!(matches!(machine.fence(first.handle(), None), Err(Error::Closed)));
    drop((machine, event, ahead, options));
    second.let_go();
    [&first, &second].into_iter().for_each(|held| other.end(held.stream));
    drop((first, second, forgotten, other));
    assert_eq!(fake.live(), 2, "the neighbour's two bytes");
}

#[test]
fn what_is_on_no_device_or_reaches_outside_is_refused() {
    let test = "what_is_on_no_device_or_reaches_outside_is_refused";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let start = other.allocate(1 << 14);
    let wrap = |address: u64, len, stride| {
        wrap_row(&machine, len, bytes_at(address, vec![stride]).0).map(drop)
    };
    let here = [0u8; 8];
    for address in [0, u64::MAX, here.as_ptr() as u64, start + (1 << 14)] {
        assert_eq!(argument(wrap(address, 4, 1)), ArgumentError::NoDevice { address });
    }
    for (address, len, stride) in [
        (start + 1, 1 << 14, 1),
        (start, 2, 1 << 14),
        (start, 2, -1),
        (start, 3, i64::MAX / 2),
        (start, 2, i64::MIN / 2),
    ] {
        assert_eq!(argument(wrap(address, len, stride)), ArgumentError::Outside);
    }
    wrap(start + (1 << 14) - 1, 1 << 14, -1).unwrap();
    // As where pages are mapped one by one.
    fake.map(4096);
    wrap(start, 1 << 14, 1).unwrap();
    assert_eq!(argument(wrap(start + 1, 1 << 14, 1)), ArgumentError::Outside);
}

#[test]
fn a_stream_that_can_have_no_fence_is_refused() {
    let test = "a_stream_that_can_have_no_fence_is_refused";
    let Some((fake, machine)) = machine(test) else { return };
    let (other, far) = (fake.neighbour(0), fake.neighbour(1));
    let (stream, there) = (other.stream(), far.stream());
    machine.fence(handle(there), None).unwrap().wait(None).unwrap();
    assert_eq!(argument(machine.fence(handle(there), Some("fbm"))), ArgumentError::NoStream);
    let name = "sys".to_owned();
    let not_a_devices = machine.fence(handle(stream), Some("sys"));
    assert_eq!(argument(not_a_devices), ArgumentError::NotAddressed { name });
    for default in [StreamHandle::LEGACY_DEFAULT, StreamHandle::PER_THREAD_DEFAULT] {
        machine.fence(default, Some("fbm1")).unwrap().wait(None).unwrap();
    }
    fake.capture(0, stream, true);
    let Err(Error::Channel(error)) = machine.fence(handle(stream), None) else {
        panic!("captured")
    };
    assert!(error.detail.contains("STREAM_CAPTURE_UNSUPPORTED (900)"), "{error}");
    fake.capture(0, stream, false);
    machine.fence(handle(stream), None).unwrap().wait(None).unwrap();
}

#[test]
fn fences_that_are_not_reached_are_bounded_and_streams_are_used_again() {
    let test = "fences_that_are_not_reached_are_bounded_and_streams_are_used_again";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let stream = Held::with_fill(&fake, &other, (other.allocate(1), 1), 7);
    let fences: Vec<_> = (0..256).map(|_| machine.fence(stream.handle(), None).unwrap()).collect();
    let Err(Error::Channel(error)) = machine.fence(stream.handle(), None) else {
        panic!("too many")
    };
    assert!(error.detail.ends_with("256 fences are not reached"), "{error}");
    stream.let_go();
    fences.iter().for_each(|fence| fence.wait(None).unwrap());
    let made = fake.count("cuStreamCreate");
    thread::scope(|scope| {
        for _ in 0..8 {
            let fence = || machine.fence(stream.handle(), None).unwrap().wait(None).unwrap();
            scope.spawn(move || (0..50).for_each(|_| fence()));
        }
    });
    assert_eq!(fake.count("cuStreamCreate"), made);
}

#[test]
fn a_device_that_is_lost_fails_its_fences_and_refuses_memory() {
    let test = "a_device_that_is_lost_fails_its_fences_and_refuses_memory";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(0);
    let (address, far) = (other.allocate(8), fake.neighbour(1).allocate(8));
    let stream = Held::with_fill(&fake, &other, (address, 8), 7);
    let fence = machine.fence(stream.handle(), None).unwrap();
    let there = wrap_row(&machine, 8, bytes_at(address, vec![1]).0.after(fence.clone())).unwrap();
    let behind = start(&machine, &there, &plain_of(&machine));
    fake.fail(0, ILLEGAL_ADDRESS, true);
    let free = machine.empty(row(8), "fbm").unwrap_or_else(|_| unreachable!("it is not lost yet"));
    assert!(read(&machine, &free).is_err());
    stream.let_go();
    let Err(Error::Channel(error)) = fence.wait(None) else { panic!("its device is lost") };
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    let Error::Transfer { error, .. } = behind.wait(None).unwrap_err() else { panic!("lost") };
    assert_eq!(error.cause.kind, ChannelErrorKind::Dependency);
    assert!(matches!(there.settle(), Err(Error::Channel(_))));
    let lost = [
        wrap_row(&machine, 8, bytes_at(address, vec![1]).0).map(drop),
        machine.fence(stream.handle(), None).map(drop),
        machine.stream_fence(0).map(drop),
        there.device_byte().map(drop),
    ];
    for lost in lost {
        let Err(Error::Channel(error)) = lost else { panic!("{lost:?}") };
        assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    }
    wrap_row(&machine, 8, bytes_at(far, vec![1]).0).unwrap();
}

#[test]
fn bytes_that_two_instances_share_are_known_by_their_addresses() {
    let test = "bytes_that_two_instances_share_are_known_by_their_addresses";
    let Some((_fake, machine)) = machine(test) else { return };
    let own = machine.empty(row(64), "fbm").unwrap();
    let address = own.device_byte().unwrap();
    assert_eq!(own.device_ordinal().unwrap(), 0);
    let wrap = |from: u64| wrap_row(&machine, 32, bytes_at(address + from, vec![1]).0).unwrap();
    let half = own.select(&[("x", 0..32)]).unwrap();
    for from in [0, 1, 31] {
        let shared = machine.copy(&half, &wrap(from), &CopyOptions::default());
        assert_eq!(argument(shared), ArgumentError::Overlap, "{from}");
    }
    start(&machine, &half, &wrap(32)).wait(None).unwrap();
    let name = "zcm".to_owned();
    let near = machine.empty(row(8), "zcm").unwrap();
    for refused in [near.device_byte().map(drop), near.device_ordinal().map(drop)] {
        assert_eq!(argument(refused), ArgumentError::NotAddressed { name: name.clone() });
    }
}

#[test]
fn a_device_that_a_fence_finds_lost_is_planned_to_no_more() {
    let test = "a_device_that_a_fence_finds_lost_is_planned_to_no_more";
    let by_stream = |machine: &Machine| machine.stream_fence(0).map(drop);
    let by_memory = |machine: &Machine| {
        // SAFETY: nothing is there that a copy could touch.
        let foreign = unsafe {
            Foreign::on_device(0, Some(StreamHandle::LEGACY_DEFAULT), vec![1], true, Arc::new(()))
        };
        wrap_row(machine, 8, foreign).map(drop)
    };
    for asks in [&by_stream as &dyn Fn(&Machine) -> Result<(), Error>, &by_memory] {
        let Some((fake, machine)) = machine(test) else { return };
        let there = machine.empty(row(8), "fbm").unwrap();
        lose(&fake);
        let plan = || machine.plan(&there, &plain_of(&machine), &Options::default());
        plan().unwrap();
        assert!(matches!(asks(&machine), Err(Error::Channel(error)) if is_loss(&error)));
        assert!(matches!(plan(), Err(Error::Plan { .. })), "nobody copies there any more");
    }
    let Some((fake, machine)) = machine(test) else { return };
    let (there, fence) = (machine.empty(row(8), "fbm").unwrap(), machine.stream_fence(0).unwrap());
    lose(&fake);
    assert!(matches!(fence.into_event(), Err(Error::Channel(error)) if is_loss(&error)));
    assert!(machine.plan(&there, &plain_of(&machine), &Options::default()).is_err());
}

#[test]
fn a_device_that_is_lost_before_a_fence_is_reached_is_planned_to_no_more() {
    let test = "a_device_that_is_lost_before_a_fence_is_reached_is_planned_to_no_more";
    let Some((fake, machine)) = machine(test) else { return };
    let (there, other) = (machine.empty(row(8), "fbm").unwrap(), fake.neighbour(0));
    let address = other.allocate(1);
    let held = Held::with_fill(&fake, &other, (address, 1), 7);
    let fence = machine.fence(held.handle(), None).unwrap();
    other.free(address);
    held.let_go();
    assert!(matches!(fence.wait(None), Err(Error::Channel(error)) if is_loss(&error)));
    assert!(machine.plan(&there, &plain_of(&machine), &Options::default()).is_err());
}

#[test]
fn an_array_without_bytes_needs_no_address() {
    let test = "an_array_without_bytes_needs_no_address";
    let Some((fake, machine)) = machine(test) else { return };
    let other = fake.neighbour(1);
    for (foreign, owner) in [(0, 1), (5, -1), (other.allocate(8), 1)]
        .map(|(address, stride)| bytes_at(address, vec![stride]))
    {
        let there = wrap_row(&machine, 0, foreign).unwrap();
        assert_eq!(there.device_ordinal().unwrap(), 0);
        start(&machine, &there, &machine.empty(row(0), "sys").unwrap()).wait(None).unwrap();
        start(&machine, &machine.empty(row(0), "fbm1").unwrap(), &there).wait(None).unwrap();
        drop(there);
        assert!(owner.upgrade().is_none());
    }
    let there = wrap_row(&machine, 0, bytes_at(0, vec![1]).0.on_ordinal(1)).unwrap();
    assert_eq!((there.device_ordinal().unwrap(), there.device_byte().unwrap()), (1, 0));
    let none = wrap_row(&machine, 0, bytes_at(0, vec![1]).0.on_ordinal(2));
    assert_eq!(argument(none), ArgumentError::NoOrdinal { ordinal: 2 });
}

/// Has the first device be lost by what a neighbour does there, so that nobody has heard.
fn lose(fake: &Fake) {
    let other = fake.neighbour(0);
    let address = other.allocate(1);
    let held = Held::with_fill(fake, &other, (address, 1), 7);
    other.free(address);
    // While nothing is lost yet: later it may be told of the loss.
    other.end(held.stream);
    held.let_go();
    // It waits until the stream has ended, or the fault is there.
    let _ = fake.live();
}

fn is_loss(error: &ChannelError) -> bool {
    error.kind == ChannelErrorKind::DeviceLost
}

#[test]
fn kernels_turn_what_a_neighbour_has_at_any_place_and_keep_it_until_they_have() {
    let test = "kernels_turn_what_a_neighbour_has_at_any_place_and_keep_it_until_they_have";
    let Some((fake, machine)) = machine(test) else { return };
    let (other, rows) = (fake.neighbour(0), Array::of(&[("y", 300), ("x", 200)], "<f4").unwrap());
    let src = machine.empty(rows.clone(), "sys").unwrap();
    let bytes: Vec<u8> = (0..src.payload_bytes()).map(|i| (i * 7 + i / 251) as u8).collect();
    src.fill(&bytes).unwrap();
    let here = machine.empty(rows.clone(), "fbm").unwrap();
    start(&machine, &src, &here).wait(None).unwrap();
    for ahead in [0, 4, 8, 16, 3] {
        let address = other.allocate(bytes.len() + ahead) + ahead as u64;
        let (foreign, owner) = bytes_at(address, vec![4, 300 * 4]);
        let there = machine.wrap(rows.space.clone(), rows.fields.clone(), foreign).unwrap();
        let back = machine.empty(rows.clone(), "sys").unwrap();
        fake.hold(0, true);
        let turned = start(&machine, &here, &there);
        let options = CopyOptions { after: vec![turned.clone()], ..CopyOptions::default() };
        let again = machine.copy(&there, &back, &options).unwrap();
        drop((there, options));
        let (is_kept, is_done) = (owner.strong_count() > 0, turned.is_done());
        fake.hold(0, false);
        assert!(is_kept && !is_done);
        again.wait(None).unwrap();
        let hops = &turned.report()[0].plan.hops;
        assert_eq!(hops.iter().map(|hop| hop.kind).collect::<Vec<_>>(), [ChannelKind::GpuConvert]);
        assert_eq!(back.to_vec().unwrap(), bytes, "{ahead} bytes behind where allocations start");
        assert_eq!(owner.strong_count(), 0);
    }
}
