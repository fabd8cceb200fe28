//! Channels over a device of the tests', whose batches are over when the test says so.

use super::*;
use crate::accelerator::{Ends, Over, Queued, Rect, RectRules, unknown};
use crate::conformance::{self, Accelerator, DeviceSuite, Host, Shape};
use crate::conformance::{backwards, job, memory, run_one, sys};
use crate::{HostSpan, Provider, Region};
use model::MemoryId;
use std::fmt::{self, Debug};
use std::mem::take;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

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
    stuck: Option<ChannelError>,
    lost: Option<ChannelError>,
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
#[derive(Clone, Default)]
struct Device(Arc<(Mutex<State>, Condvar)>);

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
    owner: Arc<Region>,
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    /// Has all that was queued be over, and all that comes.
    fn go(&self) {
        let mut state = self.state();
        state.held = false;
        (0..state.batches.len()).for_each(|which| state.run(which));
        self.0.1.notify_all();
    }

    fn channel(&self, direction: Direction) -> RectChannel<Device> {
        RectChannel::new(self.clone(), direction).unwrap()
    }

    fn under_test(&self) -> Accelerator {
        let device = self.clone();
        Accelerator {
            fbm: Box::new(Memory(memory(2), Some(self.clone()))),
            zcm: Box::new(Memory(memory(1), None)),
            channel: Box::new(move |direction| Box::new(device.channel(direction))),
        }
    }
}

struct Memory(MemoryId, Option<Device>);

impl Provider for Memory {
    fn allocate(&self, len_bytes: u64, align_bytes: u64) -> Result<Region, ChannelError> {
        let none = || {
            let detail = format!("no {len_bytes} bytes");
            ChannelError::new(ChannelErrorKind::OutOfMemory, detail)
        };
        let align = usize::try_from(align_bytes.max(1)).unwrap();
        let len = usize::try_from(len_bytes).ok().filter(|&n| n < 1 << 40).ok_or_else(none)?;
        let mut bytes = vec![0u8; len + align];
        let skip = bytes.as_ptr().addr().next_multiple_of(align) - bytes.as_ptr().addr();
        let start = NonNull::new(bytes[skip..].as_mut_ptr()).unwrap();
        // SAFETY: the bytes are the vector's, which the region owns and nobody else has.
        let span = unsafe { HostSpan::new(start, len) };
        let host = Region::host(self.0, span, Arc::new(bytes));
        Ok(match &self.1 {
            None => host,
            Some(device) => {
                let there = There { device: device.clone(), span, owner: Arc::new(host) };
                Region::device(self.0, len_bytes, Arc::new(there))
            }
        })
    }
}

/// A batch by its number.
#[derive(Debug)]
struct Ticket(Device, usize);

impl Batch for Ticket {
    fn when_over(&self, over: Over) -> Result<(), ChannelError> {
        let mut state = self.0.state();
        state.deaf.take().map_or(Ok(()), Err)?;
        state.batches[self.1].over.push(over);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), ChannelError> {
        let mut state = self.0.state();
        while state.held && state.batches[self.1].result.is_none() {
            state = self.0.0.1.wait(state).unwrap();
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
    type Batch = Ticket;

    fn rules(&self) -> RectRules {
        RectRules { most_pitch_bytes: 1000, equal_pitches_in_place: false }
    }

    fn queues(&self) -> usize {
        2
    }

    fn check(&self) -> Result<(), ChannelError> {
        self.state().lost.clone().map_or(Ok(()), Err)
    }

    fn memory<'a>(&self, region: &'a Region) -> Result<&'a There, ChannelError> {
        let there = region.view::<There>().filter(|there| Arc::ptr_eq(&there.device.0, &self.0));
        there.ok_or_else(|| unknown(region, "the device's"))
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
fn held(jobs: u64, bytes: u64) -> (Device, RectChannel<Device>, Vec<Arc<Region>>) {
    let device = Device::default();
    let under_test = device.under_test();
    let sources: Vec<_> =
        (0..jobs).map(|n| under_test.fbm(&vec![n as u8 + 1; bytes as usize])).collect();
    device.state().held = true;
    let mut channel = device.channel(Direction::Read);
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
    let device = Device::default().under_test();
    for (direction, host) in
        [(Direction::Write, Host::Zcm), (Direction::Read, Host::Sys), (Direction::Copy, Host::Sys)]
    {
        conformance::run(&DeviceSuite::new(&device, direction, host));
    }
}

#[test]
fn devices_conform() {
    conformance::run_devices(&[Device::default(), Device::default()].map(|d| d.under_test()));
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let (device, channel, results) = held(4, 1000);
    thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(channel));
        assert!(results.iter().all(|dst| Arc::strong_count(dst) == 2));
        assert!(!dropped.is_finished());
        device.go();
    });
    assert!(results.iter().all(|dst| Arc::strong_count(dst) == 1));
    for (n, dst) in (1..).zip(&results) {
        assert_eq!(device.under_test().contents(dst), [n; 1000]);
    }
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
    assert_eq!((channel.commands, channel.held), (0, 0));
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
    let (device, mut channel, _) = held(0, 0);
    let src = device_bytes(&device);
    device.go();
    for make_deaf in [true, false] {
        let dst = sys(&[0; 9]);
        let error = failed("nobody calls");
        let mut state = device.state();
        let broken = if make_deaf { &mut state.deaf } else { &mut state.stuck };
        *broken = error;
        drop(state);
        let ends = (Arc::clone(&src), Arc::clone(&dst));
        channel.submit(job(0, &[backwards(9)], (0, 0), ends)).unwrap();
        assert_eq!(channel.commands, 0, "it has waited");
        assert_eq!(polled(&mut channel)[0].result, Ok(()));
        assert_eq!(device.under_test().contents(&dst), [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    }
}

#[test]
fn a_device_lost_under_a_long_request_ends_it_and_refuses_more() {
    let (device, mut channel, results) = held(1, MOST_COMMANDS as u64 + 1);
    assert_eq!((channel.commands, channel.waiting.len()), (MOST_COMMANDS, 1));
    device.state().lost = failed("lost");
    device.go();
    channel.drain();
    assert_eq!(polled(&mut channel)[0].result.clone().err(), failed("lost"));
    assert_eq!((channel.commands, channel.held), (0, 0));
    let ends = (Arc::clone(&results[0]), Arc::clone(&results[0]));
    let refused: Job = job(1, &[Shape::run(8).copy], (0, 0), ends);
    assert_eq!(run_one(&mut channel, refused).result.err(), failed("lost"));
}
