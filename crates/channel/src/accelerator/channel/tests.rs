//! Channels over a device of the tests', whose batches are over when the test says so.

use super::*;
use crate::accelerator::{
    self, Ends, Health, Over, Owner, Profile, Queued, Reach, Rect, RectRules, Rects, ZcmProvider,
};
use crate::conformance::{self, Accelerator, Shape, backwards, drop_held, job, run_one};
use crate::conformance::{submit_all, sys};
use crate::{HostSpan, Provider, Region};
use model::CopyList;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::{self, Debug};
use std::mem::take;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard};

/// A batch that was queued.
#[derive(Default)]
struct Asked {
    runs: Vec<(NonNull<u8>, NonNull<u8>, usize)>,
    over: Vec<Over>,
    result: Option<Result<(), ChannelError>>,
}

// SAFETY: whoever asked keeps the memory until the batch is over, and only then forgets it.
unsafe impl Send for Asked {}

#[derive(Default)]
struct State {
    batches: Vec<Asked>,
    /// Whether batches are over only when the test says so.
    held: bool,
    /// What the next batch fails with, the next command is refused with, and so on.
    failure: Option<ChannelError>,
    refusal: Option<ChannelError>,
    deaf: Option<ChannelError>,
    /// Whether it calls nobody, and says nothing.
    silent: bool,
    stuck: Option<ChannelError>,
    /// Whether its memory is said to be the host's.
    shares_host_memory: bool,
    /// Whether it needs something before the next command, and what rings when it is there.
    unready: bool,
    bell: Option<Arc<Bell>>,
}

impl State {
    fn run(&mut self, which: usize) {
        let batch = &mut self.batches[which];
        if batch.result.is_none() {
            for (src, dst, bytes) in take(&mut batch.runs) {
                // SAFETY: both are valid until the batch is over; those of one region may overlap.
                unsafe { src.copy_to(dst, bytes) };
            }
            batch.result = Some(self.failure.take().map_or(Ok(()), Err));
        }
        take(&mut batch.over).into_iter().for_each(|over| over());
    }
}

/// A device whose memory is the host's.
#[derive(Clone)]
struct Device(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    health: Arc<Health>,
}

impl Default for Device {
    fn default() -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Device(Arc::new(Inner { state, changed, health: Arc::new(Health::new("The tests'", "a")) }))
    }
}

impl Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Device")
    }
}

/// Memory of a device.
#[derive(Debug)]
struct There {
    device: Device,
    span: HostSpan,
    #[expect(dead_code, reason = "it owns the span")]
    owner: Owner,
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Has all that was queued be over, and all that comes.
    fn go(&self) {
        let mut state = self.state();
        state.held = false;
        (0..state.batches.len()).for_each(|which| state.run(which));
        self.0.changed.notify_all();
    }

    /// Has it all that commands need.
    fn get_ready(&self) {
        let mut state = self.state();
        state.unready = false;
        state.bell.take().expect("somebody has asked").ring();
        self.0.changed.notify_all();
    }

    fn reader(&self) -> CommandChannel<Device> {
        self.channel_for(Direction::Read).unwrap()
    }

    fn channel_for(&self, direction: Direction) -> Result<CommandChannel<Device>, ChannelError> {
        let shares_host_memory = self.state().shares_host_memory;
        CommandChannel::new(self.clone(), direction, shares_host_memory)
    }

    fn under_test(&self) -> Accelerator {
        Accelerator::new(self.clone(), 2)
    }
}

impl accelerator::Device for Device {
    fn health(&self) -> &Arc<Health> {
        &self.0.health
    }

    fn profile(&self) -> Profile {
        let (memory_bytes, most_bytes) = (1 << 40, 1 << 40);
        let (key, place) = ("a".to_owned(), None);
        let shares_host_memory = self.state().shares_host_memory;
        let (converts, reach) = (false, Reach::Nothing);
        Profile { key, place, memory_bytes, most_bytes, shares_host_memory, converts, reach }
    }

    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError> {
        let (span, owner) = self.pin(len_bytes)?;
        // SAFETY: the bytes are new, and nobody else has them.
        unsafe { span.start().write_bytes(0, span.len_bytes()) };
        Ok(Arc::new(There { device: self.clone(), span, owner }))
    }

    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        if len_bytes > 1 << 40 {
            return Err(self.0.health.no_memory(len_bytes, "too much"));
        }
        // It starts where no kernel could begin.
        let mut bytes = vec![0xa5u8; len_bytes as usize + 1];
        let start = NonNull::new(bytes[1..].as_mut_ptr()).unwrap();
        // SAFETY: the bytes are the vector's, which its user owns and nobody else has.
        let span = unsafe { HostSpan::new(start, len_bytes as usize) };
        Ok((span, Arc::new(bytes)))
    }

    fn channel(
        &self,
        direction: Direction,
        _queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        Ok(Box::new(self.channel_for(direction)?))
    }
}

/// A batch by its number.
#[derive(Debug)]
struct Ticket(Device, usize);

impl Batch for Ticket {
    fn when_over(&self, over: Over) -> Result<(), ChannelError> {
        let mut state = self.0.state();
        state.deaf.take().map_or(Ok(()), Err)?;
        if state.silent {
            return Ok(());
        }
        let batch = &mut state.batches[self.1];
        batch.over.push(over);
        if batch.result.is_some() {
            state.run(self.1);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let mut state = self.0.state();
        if !state.held {
            state.run(self.1);
        }
        state.batches[self.1].result.is_some()
    }

    fn wait(&mut self) -> Result<(), ChannelError> {
        let mut state = self.0.state();
        while state.held && state.batches[self.1].result.is_none() {
            state = self.0.0.changed.wait(state).unwrap();
        }
        state.run(self.1);
        state.batches[self.1].result.clone().unwrap()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

impl Copier for Device {
    type Memory = There;
    type Commands = Rects;
    type Batch = Ticket;

    fn commands(&self, list: CopyList, bases: (u64, u64), in_place: bool) -> Rects {
        let rules = RectRules { most_pitch_bytes: 1000, equal_pitches_in_place: false };
        Rects::new(list, bases, rules, in_place)
    }

    fn queues(&self) -> usize {
        2
    }

    fn health(&self) -> &Health {
        &self.0.health
    }

    fn has(&self, memory: &There) -> bool {
        Arc::ptr_eq(&memory.device.0, &self.0)
    }

    fn is_ready(&mut self, bell: &Arc<Bell>) -> bool {
        let mut state = self.state();
        state.bell = Some(Arc::clone(bell));
        !state.unready
    }

    fn get_ready(&mut self) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.changed.wait_while(state, |state| state.unready).unwrap());
    }

    unsafe fn copy(
        &mut self,
        _queue: usize,
        ends: Ends<'_, There>,
        rects: &mut dyn Iterator<Item = Rect>,
    ) -> Queued<Ticket> {
        let (src, dst) = match ends {
            Ends::Write(from, to) => (from, to.span.start()),
            Ends::Read(from, to) => (from.span.start(), to),
            Ends::Copy(from, to) => (from.span.start(), to.span.start()),
        };
        let (mut asked, mut count, mut result) = (Asked::default(), 0, Ok(()));
        let mut state = self.state();
        for rect in rects {
            if let Some(error) = state.refusal.take_if(|_| count == 2) {
                result = Err(error);
                break;
            }
            count += 1;
            // SAFETY: the caller promises that the rect lies inside both ends.
            let at = |read, written| unsafe { (src.add(read), dst.add(written), rect.size[0]) };
            asked.runs.extend(rect.runs().map(|(read, written)| at(read, written)));
        }
        let batch = (count > 0).then(|| Ticket(self.clone(), state.batches.len()));
        state.batches.extend(batch.is_some().then_some(asked));
        Queued { count, batch, result }
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        let mut state = self.state();
        if !state.held {
            (0..state.batches.len()).for_each(|which| state.run(which));
        }
        state.stuck.take().map_or(Ok(()), Err)
    }
}

fn failed(detail: &str) -> Option<ChannelError> {
    Some(ChannelError::new(ChannelErrorKind::Io, detail))
}

/// A channel whose commands wait, and jobs of `bytes` each, which turn them round.
fn held(jobs: u64, bytes: u64) -> (Device, CommandChannel<Device>, Vec<Arc<Region>>) {
    let device = Device::default();
    let under_test = device.under_test();
    let sources: Vec<_> =
        (0..jobs).map(|n| under_test.fbm(&vec![n as u8 + 1; bytes as usize])).collect();
    device.state().held = true;
    let mut channel = device.reader();
    let mut results = Vec::new();
    for (n, src) in (0..).zip(sources) {
        let dst = sys(&vec![0; bytes as usize]);
        channel.submit(job(n, &[backwards(bytes)], (0, 0), (src, Arc::clone(&dst)))).unwrap();
        results.push(dst);
    }
    (device, channel, results)
}

fn polled(channel: &mut impl Channel) -> Vec<Completion> {
    let mut done = Vec::new();
    channel.poll(&mut done);
    done.sort_by_key(|completion| completion.request);
    done
}

#[test]
fn channels_conform() {
    conformance::run_channels(&Device::default().under_test());
}

#[test]
fn devices_conform() {
    conformance::run_devices(&[Device::default(), Device::default()].map(|d| d.under_test()));
}

#[test]
fn what_is_near_asks_for_huge_pages_where_the_device_has_the_hosts_memory() {
    let asks = |shares_host_memory| {
        let device = Device::default();
        device.state().shares_host_memory = shares_host_memory;
        // More than an allocator hands out twice.
        let near = ZcmProvider::new(conformance::memory(0), Arc::new(device))
            .allocate(64 << 20, 64)
            .unwrap();
        conformance::may_be_huge(near.host_span().unwrap())
    };
    assert_ne!(asks(false), Some(true));
    assert_ne!(asks(true), Some(false));
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let device = Device::default();
    let (reads, mut channel) = (device.under_test().reads(4), device.reader());
    device.state().held = true;
    submit_all(&mut channel, &reads);
    drop_held(Box::new(channel), &reads, || device.go());
}

#[test]
fn a_full_channel_takes_more_only_after_a_poll() {
    let (device, mut channel, results) = held(4, 1000);
    assert_eq!(polled(&mut channel), [], "held commands are not over");
    let ends = (Arc::clone(&results[0]), Arc::clone(&results[1]));
    let again = channel.submit(job(9, &[Shape::run(1).copy], (0, 0), ends)).unwrap_err();
    device.go();
    channel.drain();
    let again = channel.submit(again).unwrap_err();
    assert_eq!(polled(&mut channel).len(), 4);
    channel.submit(again).unwrap();
}

#[test]
fn a_batch_that_fails_ends_its_request_alone() {
    let (device, mut channel, _) = held(2, 1000);
    device.state().failure = failed("a command");
    device.go();
    channel.drain();
    let done = polled(&mut channel);
    assert_eq!((done[0].result.clone().err(), &done[1].result), (failed("a command"), &Ok(())));
    assert_eq!(channel.commands, 0);
}

#[test]
fn a_refused_command_ends_its_request_when_the_others_are_over() {
    let (device, mut channel, _) = held(0, 0);
    device.state().refusal = failed("no room");
    let (src, dst) = (device_bytes(&device), sys(&[0; 9]));
    channel.submit(job(0, &[backwards(9)], (0, 0), (src, Arc::clone(&dst)))).unwrap();
    assert_eq!((polled(&mut channel), channel.commands), (vec![], 2));
    device.go();
    assert_eq!(polled(&mut channel)[0].result.clone().err(), failed("no room"));
    assert_eq!(device.under_test().contents(&dst), [9, 8, 0, 0, 0, 0, 0, 0, 0]);
}

/// A region of nine bytes, 1 to 9, made although commands are held.
fn device_bytes(device: &Device) -> Arc<Region> {
    device.state().held = false;
    let region = device.under_test().fbm(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    device.state().held = true;
    region
}

#[test]
fn who_is_not_called_back_waits() {
    const BYTES: usize = LITTLE_BYTES as usize + 1;
    let (device, mut channel, _) = held(0, 0);
    device.go();
    let src = device.under_test().fbm(&[7; BYTES]);
    for make_deaf in [true, false] {
        let dst = sys(&[0; BYTES]);
        let error = failed("nobody calls");
        let mut state = device.state();
        let broken = if make_deaf { &mut state.deaf } else { &mut state.stuck };
        *broken = error;
        drop(state);
        let ends = (Arc::clone(&src), Arc::clone(&dst));
        channel.submit(job(0, &[Shape::run(BYTES as u64).copy], (0, 0), ends)).unwrap();
        assert_eq!(channel.commands, 0, "it has waited");
        assert_eq!(polled(&mut channel)[0].result, Ok(()));
        assert_eq!(device.under_test().contents(&dst), [7; BYTES]);
    }
}

#[test]
fn what_is_left_of_a_request_that_nobody_calls_for_goes_on() {
    const BYTES: usize = MOST_COMMANDS + 100;
    let (device, mut channel, _) = held(0, 0);
    device.go();
    let ends = (device.under_test().fbm(&[7; BYTES]), sys(&[0; BYTES]));
    device.state().deaf = failed("nobody calls");
    channel.submit(job(0, &[backwards(BYTES as u64)], (0, 0), ends)).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        let fd = channel.wake_fd().unwrap();
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)), Ok(1));
        channel.poll(&mut done);
    }
    assert_eq!(done[0].result, Ok(()));
}

#[test]
fn who_asks_sees_ends_that_nobody_has_called_for() {
    const BYTES: usize = LITTLE_BYTES as usize + 1;
    let (device, mut channel, _) = held(0, 0);
    device.go();
    let ends = (device.under_test().fbm(&[7; BYTES]), sys(&[0; BYTES]));
    (device.state().held, device.state().silent) = (true, true);
    channel.submit(job(0, &[Shape::run(BYTES as u64).copy], (0, 0), ends)).unwrap();
    assert_eq!(polled(&mut channel), []);
    device.go();
    assert_eq!(polled(&mut channel)[0].result, Ok(()));
}

#[test]
fn the_end_of_a_little_that_is_alone_is_seen_before_anybody_calls() {
    let (device, mut channel, _) = held(0, 0);
    let src = device_bytes(&device);
    let submit = |channel: &mut CommandChannel<Device>, id| {
        let ends = (Arc::clone(&src), sys(&[0; 9]));
        channel.submit(job(id, &[backwards(9)], (0, 0), ends)).unwrap();
    };
    submit(&mut channel, 0);
    assert_eq!(polled(&mut channel), [], "the moment is over");
    device.go();
    assert_eq!(polled(&mut channel).len(), 1, "it was called back");
    device.state().deaf = failed("nobody calls");
    submit(&mut channel, 1);
    assert_eq!(polled(&mut channel)[0].result, Ok(()));
    assert!(device.state().deaf.is_some(), "nobody was asked to");
}

/// A device that needs something before the next command, a channel that converts there, and the ends
/// of a job for it.
fn unready() -> (Device, CommandChannel<Device>, [Arc<Region>; 2]) {
    let device = Device::default();
    let ends = [[7; 8], [0; 8]].map(|bytes| device.under_test().fbm(&bytes));
    device.state().unready = true;
    let mut channel = device.channel_for(Direction::Convert).unwrap();
    let job = job(0, &[Shape::run(8).copy], (0, 0), ends.clone().into());
    channel.submit(job).unwrap();
    (device, channel, ends)
}

#[test]
fn a_request_waits_until_commands_can_be_queued_and_nobody_else_does() {
    let (device, mut channel, ends) = unready();
    let queued = device.state().batches.len();
    assert_eq!((polled(&mut channel), device.state().batches.len()), (vec![], queued));
    device.get_ready();
    let mut done = Vec::new();
    while done.is_empty() {
        conformance::wait(&mut channel, &mut done);
    }
    assert_eq!(done[0].result, Ok(()));
    assert_eq!(device.under_test().contents(&ends[1]), [7; 8]);
}

#[test]
fn who_drains_waits_for_what_commands_need() {
    let (device, mut channel, ends) = unready();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| channel.drain());
        assert!(!drained.is_finished());
        device.get_ready();
    });
    assert_eq!(polled(&mut channel)[0].result, Ok(()));
    assert_eq!(device.under_test().contents(&ends[1]), [7; 8]);
}

#[test]
fn where_what_commands_need_cant_be_had_conversions_end_so() {
    let (device, mut channel, ends) = unready();
    device.0.health.lose_kernels("no compiler");
    device.get_ready();
    let mut done = Vec::new();
    conformance::wait(&mut channel, &mut done);
    let refused = device.0.health.check_for(Direction::Convert);
    assert!(refused.is_err());
    assert_eq!(done[0].result, refused);
    let again = job(1, &[Shape::run(8).copy], (0, 0), ends.into());
    assert_eq!(run_one(&mut channel, again).result, refused);
    assert!(!device.0.health.is_lost());
}

#[test]
fn a_device_lost_under_a_long_request_ends_it_and_refuses_more() {
    let (device, mut channel, results) = held(1, MOST_COMMANDS as u64 + 1);
    assert_eq!((channel.commands, channel.waiting.len()), (MOST_COMMANDS, 1));
    device.0.health.failed(ChannelErrorKind::DeviceLost, "it fell");
    let lost = device.0.health.check().err();
    assert!(lost.is_some());
    device.go();
    channel.drain();
    assert_eq!(polled(&mut channel)[0].result.clone().err(), lost);
    assert_eq!(channel.commands, 0);
    let ends = (Arc::clone(&results[0]), Arc::clone(&results[0]));
    let refused: Job = job(1, &[Shape::run(8).copy], (0, 0), ends);
    assert_eq!(run_one(&mut channel, refused).result.err(), lost);
}
